/* Arena, interner and context. The arena is a list of blocks that double in size up to 1 MiB; the
   interner an open hash table of pointers into the arena, FNV-1a by content, so nothing depends on
   addresses.

   With SHARDC_STRESS, which shardc_stress is linked with (tests/stress), mistakes are found that go
   unnoticed otherwise: blocks hold one value or few, each with a guard after it; freed memory, the
   old memory of a growing array and the room of a new one are overwritten; growing arrays move
   often; and allocation number SHARDC_FAIL_AT of the process fails. */
#include "ctx.h"
#include "heap.h"
#include "room.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef SHARDC_STRESS
enum { ALIGN = 16, FIRST_BLOCK = 32, LARGEST_BLOCK = 32, GUARD = 32, STRESS = 1 };
#else
enum { ALIGN = 16, FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 1 << 20, GUARD = 0, STRESS = 0 };
#endif
enum { FEW = 256 };                    /* most texts are shorter */
enum { STALE = 0xdb, GUARDED = 0x9c }; /* no pointer, no small number, NaN as f32 and f64 */

typedef struct ArenaBlock {
  struct ArenaBlock *next;
  size_t used, size;
  bool zeros; /* the free bytes */
  char bytes[] __attribute__((aligned(ALIGN)));
} ArenaBlock;

struct Arena {
  ArenaBlock *head;
};

#ifdef SHARDC_STRESS
/* Is this allocation the one that fails? */
static bool fails(void) {
  static _Atomic long long count;
  const char *at = getenv("SHARDC_FAIL_AT");
  return ++count == (at ? atoll(at) : 0);
}
#else
static bool fails(void) { return false; }
#endif

static _Noreturn void out_of_memory(void) {
  fputs("shardc: out of memory\n", stderr);
  exit(70);
}

static void *heap_got(void *p) {
  if (!p) out_of_memory();
  return p;
}

void *heap_new(size_t n, size_t bytes) { return heap_got(fails() ? NULL : calloc(n, bytes)); }

FILE *heap_stream(char **text, size_t *n) {
  FILE *f = fails() ? NULL : open_memstream(text, n);
  if (!f) out_of_memory();
  return f;
}

/* Its bytes are cleared as they are given away, and only for who wants that: a whole block is more
   than a cache holds. Fresh pages of a large block are zeros, and touched by their user. */
static ArenaBlock *new_block(size_t size) {
  size_t bytes = sizeof(ArenaBlock) + size + GUARD;
  bool large = size > LARGEST_BLOCK;
  ArenaBlock *block = heap_got(fails() ? NULL : large ? calloc(1, bytes) : malloc(bytes));
  *block = (ArenaBlock){.size = size, .zeros = large};
  memset(block->bytes + size, GUARDED, GUARD);
  return block;
}

static void free_block(ArenaBlock *block) {
  for (int i = 0; i < (int)GUARD; i++)
    if ((unsigned char)block->bytes[block->size + (size_t)i] != GUARDED)
      bug("a write went past the %zu bytes of an arena block", block->size);
  if (STRESS) memset(block->bytes, STALE, block->size);
  free(block);
}

Arena *arena_new(void) {
  Arena *arena = heap_new(1, sizeof *arena);
  arena->head = new_block(FIRST_BLOCK);
  return arena;
}

void arena_free(Arena *arena) {
  for (ArenaBlock *block = arena->head, *next; block; block = next)
    next = block->next, free_block(block);
  free(arena);
}

static size_t rounded(size_t bytes) { return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

/* The latest allocation needs no copy while its block has room. */
static bool grows_in_place(Arena *arena, const void *at, size_t before, size_t bytes) {
  ArenaBlock *block = arena->head;
  bool last = (const char *)at + before == (const char *)block->bytes + block->used;
  if (!last || block->size - block->used < bytes - before) return false;
  block->used += bytes - before;
  return true;
}

/* Bytes of any value. */
static void *take(Arena *arena, size_t bytes, bool zeros) {
  bytes = rounded(bytes);
  ArenaBlock *block = arena->head;
  if (block->size - block->used < bytes) {
    size_t size = block->size * 2 > LARGEST_BLOCK ? LARGEST_BLOCK : block->size * 2;
    block = new_block(bytes > size ? bytes : size);
    block->next = arena->head, arena->head = block;
  }
  void *at = block->bytes + block->used;
  block->used += bytes;
  if (zeros ? !block->zeros : STRESS) memset(at, zeros ? 0 : STALE, bytes);
  return at;
}

void *arena_alloc(Arena *arena, size_t bytes) { return take(arena, bytes, true); }

void *vec_grown(Arena *arena, void *at, uint32_t n, uint32_t *cap, size_t bytes) {
  size_t before = rounded(bytes * *cap);
  *cap = !*cap ? (STRESS ? 1 : 8) : STRESS && *cap < 16 ? *cap + 1 : *cap * 2;
  if (!STRESS && n && grows_in_place(arena, at, before, rounded(bytes * *cap))) return at;
  void *grown = take(arena, bytes * *cap, false);
  if (n) memcpy(grown, at, bytes * n);
  if (STRESS && n) memset(at, STALE, bytes * n);
  return grown;
}

void *vec_room(Arena *arena, uint32_t n, uint32_t *cap, size_t bytes) {
  *cap = STRESS ? 0 : n;
  return *cap ? take(arena, bytes * n, false) : NULL;
}

char *arena_strndup(Arena *arena, const char *s, size_t n) {
  char *copy = take(arena, n + 1, false);
  memcpy(copy, s, n);
  copy[n] = 0;
  return copy;
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  char line[FEW];
  va_list again;
  va_copy(again, args);
  size_t n = (size_t)vsnprintf(line, sizeof line, format, args) + 1;
  char *text = take(arena, n, false);
  if (n <= sizeof line) memcpy(text, line, n);
  else vsnprintf(text, n, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}

char *arena_list(Arena *arena, const char *list, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *item = arena_vprintf(arena, format, args);
  va_end(args);
  return *list ? arena_printf(arena, "%s, %s", list, item) : item;
}

char *arena_amount(Arena *arena, double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
  return arena_printf(arena, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
}

char *arena_least(Arena *arena, double bytes) {
  static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  bytes = ceil(bytes);
  for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
  double up = ceil(bytes * 100) / 100;
  return arena_printf(arena, up == floor(up) ? "%.0f%s" : "%.2f%s", up, units[unit]);
}

struct Interner {
  Arena *arena;
  Str *slot;
  uint32_t n, cap; /* cap is a power of two, at most half full */
};

static uint32_t hash_text(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return h;
}

static Interner *interner_new(Arena *arena) {
  Interner *in = ARENA_NEW(arena, Interner);
  in->arena = arena, in->cap = 256, in->slot = ARENA_ARRAY(arena, Str, in->cap);
  return in;
}

static Str *find_slot(Interner *in, const char *s, size_t n) {
  uint32_t i = hash_text(s, n) & (in->cap - 1);
  while (in->slot[i] && (strncmp(in->slot[i], s, n) || in->slot[i][n])) i = (i + 1) & (in->cap - 1);
  return &in->slot[i];
}

static void grow(Interner *in) {
  Str *old = in->slot;
  uint32_t cap = in->cap;
  in->cap *= 2, in->slot = ARENA_ARRAY(in->arena, Str, in->cap);
  for (uint32_t i = 0; i < cap; i++)
    if (old[i]) *find_slot(in, old[i], strlen(old[i])) = old[i];
}

Str intern_n(Interner *in, const char *text, size_t n) {
  Str *slot = find_slot(in, text, n);
  if (*slot) return *slot;
  Str copy = arena_strndup(in->arena, text, n);
  *slot = copy;
  if (++in->n * 2 > in->cap) grow(in);
  return copy;
}

Str intern(Interner *in, const char *text) { return intern_n(in, text, strlen(text)); }

Str intern_printf(Interner *in, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Str s = intern(in, arena_vprintf(in->arena, format, args));
  va_end(args);
  return s;
}

Ctx *ctx_new(void) {
  Arena *arena = arena_new();
  Ctx *c = ARENA_NEW(arena, Ctx);
  c->arena = arena, c->names = interner_new(arena), c->diag = diag_new(arena);
  return c;
}

void ctx_free(Ctx *c) { arena_free(c->arena); }

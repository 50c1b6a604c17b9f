/* Arena, interner and context. The arena is a list of blocks that double in size up to 1 MiB; the
   interner an open hash table of pointers into the arena, FNV-1a by content, so nothing depends on
   addresses. */
#include "ctx.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, FIRST_BLOCK = 16 << 10, LARGEST_BLOCK = 1 << 20 };

typedef struct Block {
  struct Block *next;
  size_t used, size;
  char bytes[] __attribute__((aligned(ALIGN)));
} Block;

struct Arena {
  Block *head;
};

static Block *new_block(size_t size) {
  Block *b = calloc(1, sizeof *b + size);
  if (!b) fputs("shardc: out of memory\n", stderr), exit(70);
  b->size = size;
  return b;
}

Arena *arena_new(void) {
  Arena *a = calloc(1, sizeof *a);
  if (!a) fputs("shardc: out of memory\n", stderr), exit(70);
  a->head = new_block(FIRST_BLOCK);
  return a;
}

void arena_free(Arena *a) {
  for (Block *b = a->head, *next; b; b = next) next = b->next, free(b);
  free(a);
}

void *arena_alloc(Arena *a, size_t bytes) {
  bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  Block *b = a->head;
  if (b->size - b->used < bytes) {
    size_t size = b->size * 2 > LARGEST_BLOCK ? LARGEST_BLOCK : b->size * 2;
    b = new_block(bytes > size ? bytes : size);
    b->next = a->head, a->head = b;
  }
  b->used += bytes;
  return b->bytes + b->used - bytes;
}

char *arena_strndup(Arena *a, const char *s, size_t n) {
  char *copy = arena_alloc(a, n + 1);
  memcpy(copy, s, n);
  return copy;
}

char *arena_vprintf(Arena *a, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  char *text = arena_alloc(a, (size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(a, format, args);
  va_end(args);
  return text;
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

Interner *interner_new(Arena *a) {
  Interner *in = ARENA_NEW(a, Interner);
  in->arena = a, in->cap = 256, in->slot = ARENA_ARRAY(a, Str, in->cap);
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
  Arena *a = arena_new();
  Ctx *c = ARENA_NEW(a, Ctx);
  c->arena = a, c->names = interner_new(a), c->diag = diag_new(a);
  return c;
}

void ctx_free(Ctx *c) { arena_free(c->arena); }

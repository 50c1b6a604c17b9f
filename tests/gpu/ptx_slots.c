/* Memory of a module and places in the register file.
 *
 * Registers are above the file's origin, constants and special registers below it, so that the
 * constants can be copied in one piece and neither knows how many of the other there will be.
 * Predicates are single words and share lines of 64 bytes.
 *
 * Must not: give one place to two values. */
#include "ptx_read.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 * 1024, FILE_LIMIT = 16 << 20 };
struct Arena {
  Arena *next;
  size_t used, size;
  _Alignas(16) uint8_t data[];
};

void *arena_get(Arena **a, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  if (!*a || (*a)->size - (*a)->used < bytes) {
    size_t size = bytes > CHUNK ? bytes : CHUNK;
    Arena *more = calloc(1, sizeof *more + size);
    if (!more) abort();
    more->next = *a, more->size = size, *a = more;
  }
  void *p = (*a)->data + (*a)->used;
  (*a)->used += bytes;
  return p;
}

void arena_drop(Arena **a) {
  while (*a) {
    Arena *next = (*a)->next;
    free(*a);
    *a = next;
  }
}

void *get(Reader *r, size_t bytes) { return arena_get(&r->m->arena, bytes); }

char *text_of(Reader *r, const Token *t) {
  char *s = get(r, (size_t)t->n + 1);
  memcpy(s, t->text, (size_t)t->n);
  return s;
}

void *grown(Reader *r, void *old, int have, size_t size) {
  if (have > 0 && (have < 16 || (have & (have - 1)))) return old;
  int room = have < 16 ? 16 : 2 * have;
  void *more = get(r, (size_t)room * size);
  if (have) memcpy(more, old, (size_t)have * size);
  return more;
}

/* ---- types ---- */
typedef struct Type {
  const char *name;
  int bytes;
  RegKind kind;
} Type;
static const Type types[] = {
    {"pred", 0, REG_PRED}, {"b8", 1, REG_16},    {"u8", 1, REG_16},     {"s8", 1, REG_16},
    {"b16", 2, REG_16},    {"u16", 2, REG_16},   {"s16", 2, REG_16},    {"f16", 2, REG_16},
    {"bf16", 2, REG_16},   {"b32", 4, REG_32},   {"u32", 4, REG_32},    {"s32", 4, REG_32},
    {"f32", 4, REG_32},    {"f16x2", 4, REG_32}, {"bf16x2", 4, REG_32}, {"tf32", 4, REG_32},
    {"b64", 8, REG_64},    {"u64", 8, REG_64},   {"s64", 8, REG_64},    {"f64", 8, REG_64},
};
static const Type *type_of(const char *name) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(name, types[i].name)) return &types[i];
  return NULL;
}
RegKind type_kind(const char *type) {
  const Type *t = type_of(type);
  return t ? t->kind : REG_NONE;
}
int type_bytes(const char *type) {
  const Type *t = type_of(type);
  return t ? t->bytes : 0;
}

/* ---- slots ---- */
int reg_bytes(RegKind k) {
  static const int bytes[] = {4, 2 * LANES, 4 * LANES, 8 * LANES, 0};
  return bytes[k];
}

int32_t new_slot(Reader *r, RegKind k) {
  if (r->above > FILE_LIMIT) read_error(r, r->line, "too many registers");
  if (k == REG_PRED && r->pred_left) {
    r->pred_left--, r->pred_at += 4;
    return r->pred_at;
  }
  int32_t at = r->above;
  r->above += k == REG_PRED ? 64 : reg_bytes(k);
  if (k == REG_PRED) r->pred_left = 15, r->pred_at = at;
  return at;
}

static int32_t slot_below(Reader *r, RegKind k) {
  r->below += k == REG_PRED ? 64 : reg_bytes(k);
  if (r->below > FILE_LIMIT) read_error(r, r->line, "too many constants");
  return -r->below;
}

static int32_t add_constant(Reader *r, RegKind k, uint64_t value) {
  r->constants = grown(r, r->constants, r->nconstants, sizeof *r->constants);
  Constant *c = &r->constants[r->nconstants++];
  *c = (Constant){k, value, slot_below(r, k)};
  return c->slot;
}

static uint64_t cut(RegKind k, uint64_t v) {
  return k == REG_16     ? v & 0xffff
         : k == REG_32   ? v & 0xffffffff
         : k == REG_PRED ? (v ? ALL_LANES : 0)
                         : v;
}

int32_t constant(Reader *r, RegKind k, uint64_t value) {
  value = cut(k, value);
  for (int i = 0; i < r->nconstants; i++)
    if (r->constants[i].kind == k && r->constants[i].value == value) return r->constants[i].slot;
  return add_constant(r, k, value);
}

int32_t special(Reader *r, Which which, RegKind kind) {
  for (int i = 0; i < r->nspecials; i++)
    if (r->specials[i].which == which && r->specials[i].kind == kind) return r->specials[i].slot;
  r->specials = grown(r, r->specials, r->nspecials, sizeof *r->specials);
  r->specials[r->nspecials] = (Special){slot_below(r, kind), which, kind};
  return r->specials[r->nspecials++].slot;
}

/* The address of dynamic shared memory, aligned as the variable wants. */
int32_t dynamic_shared(Reader *r, const Symbol *y, RegKind kind) {
  if (y->align > r->f->dynamic_align) r->f->dynamic_align = (uint32_t)y->align;
  return special(r, DYNAMIC_BASE, kind);
}

static void fill_constant(uint8_t *at, const Constant *c) {
  if (c->kind == REG_PRED) memcpy(at, &c->value, 4);
  else
    for (int i = 0; i < LANES; i++) {
      int n = reg_bytes(c->kind) / LANES;
      memcpy(at + i * n, &c->value, (size_t)n);
    }
}

/* All constants are known: their image. */
void constants_close(Reader *r) {
  uint8_t *fill = get(r, (size_t)r->below + 1);
  for (int i = 0; i < r->nconstants; i++)
    fill_constant(fill + r->below + r->constants[i].slot, &r->constants[i]);
  Function *f = r->f;
  f->fill = fill, f->below = r->below, f->above = r->above;
  f->special = r->specials, f->nspecial = r->nspecials;
}

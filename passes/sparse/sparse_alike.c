/* Heads whose masks are provably the same, element by element, so that they can share lists:
   kernels evaluate partial blocks once for all heads that share them.

   Some values of a mask follow from the head alone (its number mod n, the first position of a
   rank); a mask differs by head only through those of them that are combined with positions or
   data. Heads for which these values agree have the same mask. Must not: guess; a value that
   intervals cannot represent makes the head a class of its own. */
#include "ir/mask/lists.h"
#include "ir/mask/mask_range.h"
#include "sparse.h"

enum { OF_POSITIONS = 1, OF_HEAD = 2, OF_DATA = 4 };

typedef struct Alike {
  Arena *a;
  const Fn *f;
  const SparseHeads *x;
  uint8_t *of;       /* by value: the inputs that it depends on */
  VEC(ValueId) told; /* depend on the head alone, and are used by an op that does not */
} Alike;

static bool is_number_of_rank(const Alike *alike, ValueId v) {
  for (int i = 0; i < alike->x->shape->scalars; i++)
    if (alike->x->of->scalar[i] == v) return true;
  return false;
}

static uint8_t kind_of(const Alike *alike, const Op *o) {
  if (is_number_of_rank(alike, o->out)) return OF_HEAD;
  if (o->code == OP_iota) {
    Str dim = o->group[0].from[0];
    return dim == alike->x->query || dim == alike->x->key ? OF_POSITIONS : OF_HEAD;
  }
  uint8_t kind = o->nin || o->code == OP_const ? 0 : OF_DATA;
  for (uint32_t i = 0; i < o->nin; i++) kind |= alike->of[o->in[i]];
  return kind;
}

static void find_told(Alike *alike, ValueId mask) {
  const Fn *f = alike->f;
  for (ValueId v = 0; v < f->values.n; v++)
    alike->of[v] = is_number_of_rank(alike, v) ? OF_HEAD : OF_DATA; /* arguments */
  EACH_OP (f, o) {
    if (o->nout) alike->of[o->out] = kind_of(alike, o);
    for (uint32_t n = 0; n < o->nin && o->nout && alike->of[o->out] != OF_HEAD; n++)
      if (alike->of[o->in[n]] == OF_HEAD) vec_push(alike->a, alike->told, o->in[n]);
  }
  if (alike->of[mask] == OF_HEAD) vec_push(alike->a, alike->told, mask);
}

/* Records the values for a head; false: one is not known. */
static bool tell(const Alike *alike, MaskQuestion *question, int64_t head, int64_t *key) {
  BlockHead at[MASK_DIMS];
  lists_head_at(alike->x->shape, alike->x->of, head, at);
  blocks_set_heads(question, alike->x->shape->heads, at);
  for (uint32_t i = 0; i < alike->told.n; i++) {
    MaskInterval interval = mask_interval(question, alike->told.at[i]);
    if (!interval.known || interval.lo != interval.hi) return false;
    key[i] = interval.lo;
  }
  return true;
}

const int64_t *sparse_alike(Arena *arena, const Fn *f, ValueId mask,
                            const SparseHeads *sparse_heads) {
  Alike alike = {
      .a = arena, .f = f, .x = sparse_heads, .of = ARENA_ARRAY(arena, uint8_t, f->values.n + 1)};
  find_told(&alike, mask);
  int64_t heads = sparse_heads->shape->count, n = alike.told.n;
  int64_t *first = ARENA_ARRAY(arena, int64_t, heads),
          *key = ARENA_ARRAY(arena, int64_t, heads * n + 1);
  bool *known = ARENA_ARRAY(arena, bool, heads);
  MaskQuestion question = mask_question(arena, f);
  for (int64_t h = 0; h < heads; h++) {
    known[h] = tell(&alike, &question, h, key + h * n);
    while (first[h] < h && !(known[h] && known[first[h]] &&
                             !memcmp(key + first[h] * n, key + h * n, sizeof *key * (size_t)n)))
      first[h]++;
  }
  return first;
}

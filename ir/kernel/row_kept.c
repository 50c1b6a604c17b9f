/* Values of rows that are kept between walks: see row_kept.h.

   Twice a search goes from what each walk ends in (operands of its reductions; at last the results)
   to what it reads. The first one finds in which walks a slow value is needed, the second, which no
   longer looks below such values, whether a later walk needs it itself or only through another
   one. */
#include "row_kept.h"
#include "ir/support/num.h"
#include <string.h>

typedef struct KeptSearch {
  const Fn *k;
  const Reductions *r;
  const int *level;
  int walks, walk;
  bool *seen;      /* by the present walk */
  int *first;      /* per value: the first walk that needs it, + 1; 0: none */
  bool *again;     /* a later one needs it, too */
  bool *kept;      /* the answer */
  bool only_roots; /* the second search */
} KeptSearch;

/* Worth a place in scratch: slow to make, one number per element of the row, known at this row
   alone. Divisions are mostly by one number per row, which is a product. */
static bool is_slow(const KeptSearch *s, ValueId v) {
  const Op *o = value_def(s->k, v);
  const Type *t = value_type(s->k, v);
  if (!o || !(op_flags(o->code) & SLOW) || o->code == OP_div || !s->level[v]) return false;
  const Axis *a = &s->r->over.axis[0];
  return elem_class(t->elem) == CLASS_FLOAT && t->elem != ELEM_f64 && type_find(t, a->dim) >= 0 &&
         type_size(t, a->dim) == a->size;
}

static void look(KeptSearch *s, ValueId v) {
  const Op *o = value_def(s->k, v);
  if (!o || s->seen[v] || !(op_flags(o->code) & POINT)) return;
  s->seen[v] = true;
  if (!s->only_roots) {
    if (!s->first[v]) s->first[v] = s->walk + 1;
    else s->again[v] = true;
  } else if (s->again[v] && is_slow(s, v) && s->first[v] <= s->walk) {
    s->kept[v] = true;
    return;
  }
  for (uint32_t i = 0; i < o->nin; i++) look(s, o->in[i]);
}

static void look_at_walk(KeptSearch *s, Arena *a) {
  const Fn *k = s->k;
  s->seen = ARENA_ARRAY(a, bool, k->values.n + 1);
  for (int i = 0; i < s->r->n; i++) {
    ValueId in = k->ops.at[s->r->op[i]].in[0];
    if (s->level[in] == s->walk) look(s, in);
  }
  if (s->walk < s->walks - 1) return;
  for (int i = 0; i < s->r->ncolumns; i++) look(s, k->ops.at[s->r->column[i]].in[0]);
  for (uint32_t i = 0; i < k->results.n; i++)
    if (reduction_along(k, s->r, k->results.at[i])) look(s, k->results.at[i]);
}

KeptRows rows_kept(Arena *a, const Fn *k, const Reductions *r) {
  KeptRows out = {0};
  if (strcmp(attr_str(&k->attrs, ATTR_variant, ""), "row") || r->scans || r->over.n != 1)
    return out;
  uint32_t n = k->values.n + 1;
  KeptSearch s = {.k = k, .r = r, .level = reduction_levels(a, k)};
  s.walks = reduction_passes(k, r, s.level);
  s.first = ARENA_ARRAY(a, int, n), s.again = ARENA_ARRAY(a, bool, n);
  s.kept = ARENA_ARRAY(a, bool, n);
  for (int roots = 0; roots < 2; roots++)
    for (s.only_roots = roots, s.walk = 0; s.walk < s.walks; s.walk++) look_at_walk(&s, a);
  for (ValueId v = 0; v < k->values.n && out.n < MAX_RESULTS; v++)
    if (s.kept[v]) out.v[out.n] = v, out.walk[out.n++] = s.first[v] - 1;
  out.bytes = round_up(r->over.axis[0].size * 4, CACHE_LINE);
  return out;
}

int64_t row_scratch(Arena *a, const Fn *k, const Reductions *r) {
  KeptRows kept = rows_kept(a, k, r);
  return scan_scratch(k, r) + kept.n * kept.bytes;
}

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
  bool *again;     /* a later one needs it as well */
  bool *kept;      /* the answer */
  bool only_roots; /* the second search */
} KeptSearch;

/* Worth a place in scratch: slow to make, one number per element of the row, known at this row
   alone. Divisions are mostly by one number per row, which is a product. */
static bool is_slow(const KeptSearch *search, ValueId v) {
  const Op *o = value_def(search->k, v);
  const Type *t = value_type(search->k, v);
  if (!o || !(op_flags(o->code) & SLOW) || o->code == OP_div || !search->level[v]) return false;
  const Axis *a = &search->r->over.axis[0];
  return elem_class(t->elem) == CLASS_FLOAT && t->elem != ELEM_f64 && type_find(t, a->dim) >= 0 &&
         type_size(t, a->dim) == a->size;
}

static void look(KeptSearch *search, ValueId v) {
  const Op *o = value_def(search->k, v);
  if (!o || search->seen[v] || !(op_flags(o->code) & POINT)) return;
  search->seen[v] = true;
  if (!search->only_roots) {
    if (!search->first[v]) search->first[v] = search->walk + 1;
    else search->again[v] = true;
  } else if (search->again[v] && is_slow(search, v) && search->first[v] <= search->walk) {
    search->kept[v] = true;
    return;
  }
  for (uint32_t i = 0; i < o->nin; i++) look(search, o->in[i]);
}

static void look_at_walk(KeptSearch *search, Arena *arena) {
  const Fn *k = search->k;
  search->seen = ARENA_ARRAY(arena, bool, k->values.n + 1);
  for (int i = 0; i < search->r->n; i++) {
    ValueId in = k->ops.at[search->r->op[i]].in[0];
    if (search->level[in] == search->walk) look(search, in);
  }
  if (search->walk < search->walks - 1) return;
  for (int i = 0; i < search->r->ncolumns; i++) look(search, k->ops.at[search->r->column[i]].in[0]);
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i], packed = reduction_packed(k, search->r, v);
    if (packed != NO_VALUE) look(search, packed);
    else if (reduction_along(k, search->r, v)) look(search, v);
  }
}

KeptRows rows_kept(Arena *arena, const Fn *k, const Reductions *reductions) {
  KeptRows out = {0};
  if (strcmp(attr_str(&k->attrs, ATTR_variant, ""), "row") || reductions->scans ||
      reductions->over.n != 1)
    return out;
  uint32_t n = k->values.n + 1;
  KeptSearch search = {.k = k, .r = reductions, .level = reduction_levels(arena, k)};
  search.walks = reduction_passes(k, reductions, search.level);
  search.first = ARENA_ARRAY(arena, int, n), search.again = ARENA_ARRAY(arena, bool, n);
  search.kept = ARENA_ARRAY(arena, bool, n);
  for (int roots = 0; roots < 2; roots++)
    for (search.only_roots = roots, search.walk = 0; search.walk < search.walks; search.walk++)
      look_at_walk(&search, arena);
  for (ValueId v = 0; v < k->values.n && out.n < MAX_RESULTS; v++)
    if (search.kept[v]) out.v[out.n] = v, out.walk[out.n++] = search.first[v] - 1;
  out.bytes = round_up(reductions->over.axis[0].size * 4, CACHE_LINE);
  return out;
}

int64_t row_scratch(Arena *arena, const Fn *k, const Reductions *reductions) {
  KeptRows kept = rows_kept(arena, k, reductions);
  return scan_scratch(k, reductions) + kept.n * kept.bytes;
}

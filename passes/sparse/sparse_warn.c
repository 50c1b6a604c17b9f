/* W0705: a plan that cuts the sequence inside of blocks of a layout.

   A rank's positions begin at a multiple of its number of positions. If that is no multiple of a
   block, blocks of the layout span two of the rank's own: those are partial, and their scores are
   tested one by one. The results are the same. The block size is the divisor by which the mask
   counts. Must not: warn more than once for a word and a size. */
#include "ir/support/num.h"
#include "sparse.h"

/* Positions of `dim` that begin where a rank's number says: how many there are, else 0. */
static int64_t own_positions(const Fn *f, ValueId v, Str dim) {
  const Op *o = value_def(f, v);
  for (int k = 0; o && o->code == OP_add && k < 2; k++) {
    const Op *i = value_def(f, o->in[k]), *from = value_def(f, o->in[1 - k]);
    bool counts = i && i->code == OP_iota && i->group[0].from[0] == dim;
    if (counts && !(from && from->code == OP_const)) return value_type(f, i->out)->axis[0].size;
  }
  return 0;
}

/* The division that cuts blocks, or NULL. */
static const Op *find_cut(const Fn *f, ValueId v, Str dim, bool *seen, int64_t *own,
                          int64_t *block) {
  const Op *o = value_def(f, v), *found = NULL;
  if (!o || seen[v]) return NULL;
  seen[v] = true;
  if (o->code == OP_div && (*own = own_positions(f, o->in[0], dim)) > 0) {
    const Op *n = value_def(f, o->in[1]);
    *block = n && n->code == OP_const ? (int64_t)attr_float(&n->attrs, ATTR_value, 1) : 1;
    if (*own % *block) return o;
  }
  for (uint32_t i = 0; i < o->nin && !found; i++)
    found = find_cut(f, o->in[i], dim, seen, own, block);
  return found;
}

static bool is_said(SparseWarned *warned, Module *m, Span at, int64_t own) {
  for (uint32_t i = 0; i < warned->n; i++)
    if (warned->at[i].own == own && !memcmp(&warned->at[i].word, &at, sizeof at)) return true;
  vec_push(m->arena, *warned, ((SparseSaid){at, own}));
  return false;
}

/* The smallest size from `block` on that divides the rank's number of positions; 0: none is
   close. */
static int64_t dividing(int64_t own, int64_t block) {
  for (int64_t n = block; n <= min_i64(own, 2 * block); n++)
    if (own % n == 0) return n;
  return 0;
}

void sparse_warn(Module *m, const Fn *f, ValueId mask, Str query, SparseWarned *warned) {
  Arena *arena = arena_new();
  int64_t own, block, fits;
  const Op *o = find_cut(f, mask, query, ARENA_ARRAY(arena, bool, f->values.n + 1), &own, &block);
  Span at = o ? span_of(m, o->loc) : (Span){0};
  if (o && !is_said(warned, m, at, own)) {
    Report *r = diag_at(m->ctx->diag, "W0705", at, "the plan cuts blocks of this layout");
    diag_label(r, "%lld of `%s` on a rank, blocks of %lld", (long long)own, query,
               (long long)block);
    diag_fact(r, "two ranks share a cut block and test its scores one by one");
    fits = dividing(own, block);
    if (fits) diag_help(r, "`blocks(%lld)` divides the part of a rank", (long long)fits);
    if (fits) diag_edit(r, at, "blocks(%lld)", (long long)fits);
  }
  arena_free(arena);
}

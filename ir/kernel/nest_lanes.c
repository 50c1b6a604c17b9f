/* Lanes along a dim that no buffer has: see nest.h.

   The dim is followed from the values that have it back to the buffers, through ops that move
   indexes: a concat to each of its parts, a split or a merge to its innermost dim. Vectors that
   cross a border (of a part, or of that dim) take their lanes apart in the expression generator
   (codegen/expr_struct.c), so this says what pays, not what works. */
#include "nest.h"

typedef struct MovedLanes {
  const Fn *k;
  Str *along; /* by value: the dim of it that has been looked at */
} MovedLanes;

static bool runs_on(MovedLanes *lanes, ValueId v, Str dim);

static bool mentions(const Group *group, Str dim, int *to) {
  bool from = false;
  *to = -1;
  for (int i = 0; i < group->nfrom; i++) from |= group->from[i] == dim;
  for (int i = 0; i < group->nto; i++)
    if (group->to[i] == dim) *to = i;
  return from || *to >= 0;
}

static bool parts_run_on(MovedLanes *lanes, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (!runs_on(lanes, o->in[i], o->group[0].from[i])) return false;
  return true;
}

/* The dim that becomes number `to` of a group's, if neighbours stay neighbours. */
static bool group_runs_on(MovedLanes *lanes, const Op *o, const Group *group, int to) {
  switch (o->code) {
  case OP_rename: return runs_on(lanes, o->in[0], group->from[to]);
  case OP_slice: return runs_on(lanes, o->in[0], group->from[0]);
  case OP_split: return to == group->nto - 1 && runs_on(lanes, o->in[0], group->from[0]);
  case OP_merge: return runs_on(lanes, o->in[0], group->from[group->nfrom - 1]);
  case OP_concat: return parts_run_on(lanes, o);
  default: return false;
  }
}

static bool moved(MovedLanes *lanes, const Op *o, Str dim) {
  int to;
  for (int g = 0; g < o->ngroups; g++)
    if (mentions(&o->group[g], dim, &to))
      return to >= 0 && group_runs_on(lanes, o, &o->group[g], to);
  return runs_on(lanes, o->in[0], dim);
}

static bool runs_on(MovedLanes *lanes, ValueId v, Str dim) {
  const Op *o = value_def(lanes->k, v);
  if (type_find(value_type(lanes->k, v), dim) < 0 || lanes->along[v] == dim) return true;
  lanes->along[v] = dim;
  if (!o) return buffer_stride(lanes->k, v, dim) == 1;
  if (o->code == OP_expand) return runs_on(lanes, o->in[0], dim);
  if (op_family(o->code) == FAMILY_STRUCT) return moved(lanes, o, dim);
  for (uint32_t i = 0; i < o->nin; i++)
    if (!runs_on(lanes, o->in[i], dim)) return false;
  return true;
}

bool nest_moved_vector(const Module *m, const Fn *k, const Nest *nest, int lanes) {
  if (!nest->n || nest_inner(nest) < lanes / 2) return false;
  MovedLanes moved_lanes = {.k = k, .along = ARENA_ARRAY(m->arena, Str, k->values.n + 1)};
  for (ValueId v = 0; v < k->values.n; v++)
    if (!runs_on(&moved_lanes, v, nest->dim[nest->n - 1].dim)) return false;
  return true;
}

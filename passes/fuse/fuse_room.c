/* fuse: whether a group has room for work that it does not need.

   A GPU moves some MB in the time that a kernel takes to start. So small ops (updates of vectors,
   their norms) join a kernel over the same elements although they read nothing of it: if nothing
   larger than element-wise ops and reductions comes after that kernel, no other op waits for them
   and no buffer is needed for longer. Must not: change a group. */
#include "fuse.h"

enum { SMALL = 1 << 18, SMALL_RESULTS = 16 }; /* bytes of a value; results of a kernel */

static uint32_t count_stored(const Fuse *fuse, uint32_t group) {
  uint32_t n = 0;
  for (ValueId v = 0; v < fuse->f->values.n; v++) {
    const FuseValue *x = &fuse->value[v];
    n += x->where == MATERIALISED && x->group == group && x->stored;
  }
  return n;
}

bool fuse_has_room(const Fuse *fuse, uint32_t group) {
  return count_stored(fuse, group) < MAX_RESULTS / 2;
}

static bool is_small_kind(GroupKind kind) {
  return kind == GROUP_elem || kind == GROUP_row || kind == GROUP_column;
}

bool fuse_joins_small(const Fuse *fuse, uint32_t group, ValueId v) {
  const Type *t = value_type(fuse->f, v);
  if (!module_on_gpu(fuse->m) || !t->rank || value_dense_bytes(fuse->f, v) > SMALL) return false;
  for (uint32_t i = group; i < fuse->groups.n; i++)
    if (!is_small_kind(fuse->groups.at[i].kind)) return false;
  const Type *space = &fuse->groups.at[group].space;
  return space->tier == t->tier && type_same_dims(space, t) && fuse_same_order(space, t) &&
         count_stored(fuse, group) < SMALL_RESULTS;
}

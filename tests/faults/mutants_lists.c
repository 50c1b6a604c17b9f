/* Faults of lists of blocks: a row that begins or ends a block off, a block that is lost, one that
   is listed and should not be, a full block instead of a partial one and the other way round, a
   head of another class. The name follows what they say, as if the pass had made them so. */
#include "ir/mask/lists.h"
#include "mutants.h"

static Attr *numbers_of(BlockLists *l, AttrKey k) {
  Attr *a = (Attr *)attr_get(&l->attrs, k);
  return a && a->i ? a : NULL;
}

/* A border between two runs, one block further: a listed or partial run begins or ends at it. */
static bool moved_border(Fault *x, BlockLists *l, AttrKey k) {
  Attr *a = numbers_of(l, k);
  if (!a) return false;
  int64_t i = fault_below(x, (uint64_t)a->i - 1), by = fault_below(x, 2) ? 1 : -1;
  int64_t least = i > 0;
  if (a->list[i] + by < least || a->list[i + 1] - by < 1) return false;
  a->list[i] += by, a->list[i + 1] -= by;
  x->what = k == ATTR_listed ? "a range off by one" : "full for partial";
  return true;
}

/* A run of two or more loses its last block, and pauses for one. */
static bool lost_block(Fault *x, BlockLists *l) {
  Attr *a = numbers_of(l, ATTR_listed);
  if (!a) return false;
  int64_t i = 1 + 2 * fault_below(x, (uint64_t)a->i / 2), n = a->i + 2;
  if (a->list[i] < 3) return false;
  int64_t *list = ARENA_ARRAY(x->m->arena, int64_t, n), first = a->list[i] / 2;
  memcpy(list, a->list, sizeof *list * (size_t)i);
  list[i] = first, list[i + 1] = 1, list[i + 2] = a->list[i] - first - 1;
  memcpy(list + i + 3, a->list + i + 1, sizeof *list * (size_t)(a->i - i - 1));
  a->list = list, a->i = n, x->what = "a lost block";
  return true;
}

static bool all_full(Fault *x, BlockLists *l) {
  Attr *a = numbers_of(l, ATTR_partial);
  if (!a) return false;
  return a->i = 0, x->what = "full instead of partial", true;
}

static bool other_class(Fault *x, BlockLists *l) {
  Attr *a = numbers_of(l, ATTR_classes);
  if (!a) return false;
  int64_t i = fault_below(x, (uint64_t)a->i), k = fault_below(x, (uint64_t)a->i);
  if (a->list[i] == a->list[k]) return false;
  int64_t c = a->list[i];
  a->list[i] = a->list[k], a->list[k] = c, x->what = "the lists of another head";
  return true;
}

static bool changed(Fault *x, BlockLists *l) {
  switch (fault_below(x, 5)) {
  case 0: return moved_border(x, l, ATTR_listed);
  case 1: return moved_border(x, l, ATTR_partial);
  case 2: return lost_block(x, l);
  case 3: return all_full(x, l);
  default: return other_class(x, l);
  }
}

static void rename_lists(Module *m, Str from, Str to) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Op *o = &m->fns.at[i]->ops.at[k];
      if (attr_str(&o->attrs, ATTR_lists, NULL) == from) attr_set_str(m, &o->attrs, ATTR_lists, to);
    }
}

bool fault_other_lists(Fault *x) {
  Module *m = x->m;
  if (!m->lists.n) return false;
  BlockLists *l = &m->lists.at[fault_below(x, m->lists.n)];
  Str from = l->name;
  if (!changed(x, l)) return false;
  l->name = lists_hash(m, &l->attrs);
  rename_lists(m, from, l->name);
  return true;
}

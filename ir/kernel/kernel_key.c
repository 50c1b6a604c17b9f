/* The normal forms of kernel functions: see kernel_key.h. */
#include "kernel_key.h"
#include "ir/support/num.h"

typedef struct Renaming {
  Module *m;
  VEC(Str) seen;
} Renaming;

static Str renamed(Renaming *renaming, Str dim) {
  uint32_t i = 0;
  while (i < renaming->seen.n && renaming->seen.at[i] != dim) i++;
  if (i == renaming->seen.n) vec_push(renaming->m->arena, renaming->seen, dim);
  return intern_printf(renaming->m->ctx->names, "d%u", i);
}

static void rename_groups(Renaming *renaming, Op *o) {
  Group *g = ARENA_ARRAY(renaming->m->arena, Group, o->ngroups + 1);
  for (int i = 0; i < o->ngroups; i++) {
    g[i] = o->group[i];
    for (int j = 0; j < g[i].nfrom; j++) g[i].from[j] = renamed(renaming, g[i].from[j]);
    for (int j = 0; j < g[i].nto; j++) g[i].to[j] = renamed(renaming, g[i].to[j]);
  }
  o->group = g;
}

static void rename_dims(Module *m, Fn *f) {
  Renaming renaming = {.m = m};
  const Value *values = f->values.at;
  f->values.at = ARENA_ARRAY(m->arena, Value, f->values.n + 1);
  memcpy(f->values.at, values, sizeof *values * f->values.n);
  for (ValueId v = 0; v < f->values.n; v++) {
    Type *t = &f->values.at[v].type;
    for (int i = 0; i < t->rank; i++) t->axis[i].dim = renamed(&renaming, t->axis[i].dim);
  }
  for (OpId i = 0; i < f->ops.n; i++) rename_groups(&renaming, &f->ops.at[i]);
}

static void forget_cut(Module *m, Fn *f) {
  static const AttrKey stay[] = {ATTR_align, ATTR_codes};
  AttrList all = f->attrs;
  memset(&f->attrs, 0, sizeof f->attrs);
  for (size_t i = 0; i < COUNT_OF(stay); i++) {
    const Attr *said = attr_get(&all, stay[i]);
    if (said) attr_set_ints(m, &f->attrs, stay[i], (int)said->i, said->list);
  }
}

char *kernel_key(Module *m, const Fn *k, unsigned what) {
  Fn f = *k;
  f.loc = (Loc){0};
  f.ops.at = ARENA_ARRAY(m->arena, Op, k->ops.n + 1);
  memcpy(f.ops.at, k->ops.at, sizeof *k->ops.at * k->ops.n);
  for (OpId i = 0; i < f.ops.n; i++) f.ops.at[i].loc = (Loc){0};
  f.name = intern(m->ctx->names, "k");
  if (!(what & KEY_CUT)) forget_cut(m, &f);
  if (!(what & KEY_DIMS)) rename_dims(m, &f);
  return ir_print_fn(m, &f);
}

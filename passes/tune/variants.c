/* Variants by name, and the key of tuning records: see variants.h.

   The key must not depend on names that a user chose, nor on where a kernel stands: the same
   product in two models is one record. It must change with everything that the code generator
   reads: types, strides, ops, their attributes. */
#include "variants.h"
#include "tune.h"
#include <ctype.h>
#include <stdlib.h>

const Variants *variants_find(const char *family, DeviceKind device) {
  const Variants *v;
  for (int i = 0; (v = variants_row(i, device)); i++)
    if (!strcmp(v->family, family) || (v->alias && !strcmp(v->alias, family))) return v;
  return NULL;
}

KernelLimits machine_of(const Module *m) {
  const TargetFacts *t = &m->target;
  return (KernelLimits){.registers = t->vector_registers,
                        .l2 = t->l2,
                        .workers = t->workers,
                        .lanes = target_lanes(t),
                        .pairs = t->pairs,
                        .rounds = t->rounds,
                        .matrix = t->matrix};
}

/* ---- keys ---- */

typedef struct Renaming {
  Module *m;
  VEC(Str) seen;
} Renaming;

static Str renamed(Renaming *r, Str dim) {
  uint32_t i = 0;
  while (i < r->seen.n && r->seen.at[i] != dim) i++;
  if (i == r->seen.n) vec_push(r->m->arena, r->seen, dim);
  return intern_printf(r->m->ctx->names, "d%u", i);
}

static void rename_groups(Renaming *r, Op *o) {
  Group *g = ARENA_ARRAY(r->m->arena, Group, o->ngroups + 1);
  for (int i = 0; i < o->ngroups; i++) {
    g[i] = o->group[i];
    for (int j = 0; j < g[i].nfrom; j++) g[i].from[j] = renamed(r, g[i].from[j]);
    for (int j = 0; j < g[i].nto; j++) g[i].to[j] = renamed(r, g[i].to[j]);
  }
  o->group = g;
}

/* The function without its name and positions, dims as d0, d1, ..; of its attributes `align` alone,
   which says how buffers may be read. */
static Fn bare_of(Module *m, const Fn *k) {
  Renaming r = {.m = m};
  Fn f = *k;
  f.name = intern(m->ctx->names, "k"), f.loc = (Loc){0};
  memset(&f.attrs, 0, sizeof f.attrs);
  const Attr *align = attr_get(&k->attrs, ATTR_align);
  if (align) attr_set_ints(m, &f.attrs, ATTR_align, (int)align->i, align->list);
  f.values.at = ARENA_ARRAY(m->arena, Value, k->values.n + 1);
  f.ops.at = ARENA_ARRAY(m->arena, Op, k->ops.n + 1);
  memcpy(f.values.at, k->values.at, sizeof *k->values.at * k->values.n);
  memcpy(f.ops.at, k->ops.at, sizeof *k->ops.at * k->ops.n);
  for (ValueId v = 0; v < f.values.n; v++) {
    Type *t = &f.values.at[v].type;
    for (int i = 0; i < t->rank; i++) t->axis[i].dim = renamed(&r, t->axis[i].dim);
  }
  for (OpId i = 0; i < f.ops.n; i++) f.ops.at[i].loc = (Loc){0}, rename_groups(&r, &f.ops.at[i]);
  return f;
}

Str variants_key(Module *m, const Variants *v, const Fn *k) {
  Fn bare = bare_of(m, k);
  uint64_t h = 14695981039346656037u;
  for (const char *c = ir_print_fn(m, &bare); *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  return intern_printf(m->ctx->names, "%s-%016llx", v->shape(m, k), (unsigned long long)h);
}

const char *variants_setting(Module *m, const Variants *v, Str key) {
  return arena_printf(m->arena, "tune.%s.%s", v->family, key);
}

/* ---- cuts as text ---- */

Str variants_text(Module *m, const Variants *v, const Cut *c) {
  const char *text = "";
  for (int i = 0; i < v->count; i++)
    text = arena_printf(m->arena, "%s%s%lld", text, i ? " " : "", (long long)c->at[i]);
  return intern(m->ctx->names, text);
}

bool variants_read(const Variants *v, const char *text, Cut *c) {
  *c = (Cut){0};
  for (int i = 0; i < v->count; i++) {
    char *end;
    while (*text == ' ') text++;
    if (!isdigit((unsigned char)*text)) return false;
    long long n = strtoll(text, &end, 10);
    if (n > 1 << 30 || end - text > 10) return false;
    c->at[i] = n, text = end;
  }
  return !text[strspn(text, " ")];
}

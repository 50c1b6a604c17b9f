/* Frozen parameters are stored in the compute type if every reader needs them in it.

   No update writes them, so they need no f32 master weights: entries read nothing but a cast of
   them, and the cast is done once, when the parameter gets its value. Runs after precision_emit.c,
   whose casts show the types that readers need. A parameter that some op also reads in f32, such
   as the gain of a norm or one that is marked @f32, stays f32. So no number changes.

   The analysis starts with all values derived from loads of frozen parameters as candidates, i.e.
   values that are a parameter or a permutation of its elements. It removes candidates with other
   readers until none is left. Must not: touch parameters that an update writes. */
#include "precision.h"

typedef struct Stored {
  Module *m;
  Elem elem;    /* the compute type */
  bool **is;    /* by function, by value: an element of it can be one of `elem` */
  bool *global; /* by global: may be stored so */
  bool changed;
} Stored;

static uint32_t index_of(const Module *m, const Fn *f) {
  uint32_t i = 0;
  while (i < m->fns.n && m->fns.at[i] != f) i++;
  must(i < m->fns.n, "precision: %s is not in the module", f->name);
  return i;
}

static uint32_t global_index(const Module *m, const Global *global) {
  uint32_t i = 0;
  while (m->globals.at[i] != global) i++;
  return i;
}

static bool is_frozen(const Global *global) {
  return global->kind == GLOBAL_PARAM && global->frozen && global->type.elem == ELEM_f32 &&
         global->type.rank;
}

static bool loads_frozen(const Op *o) { return o->code == OP_load && is_frozen(o->global); }

/* The same elements, some of them, or in other places. */
static bool moves_one(const Op *o) {
  return op_family(o->code) == FAMILY_STRUCT && o->code != OP_rope && o->nin == 1 && o->nout == 1;
}

static bool takes_whole(const Op *o, uint32_t i) {
  return o->code == OP_loop && i >= loop_shape(o).carry;
}

/* ---- values derived from frozen parameters ---- */

static bool mark(Stored *stored, bool *is) {
  bool news = !*is;
  *is = true, stored->changed |= news;
  return news;
}

static void mark_op(Stored *stored, uint32_t f, const Op *o) {
  bool *is = stored->is[f];
  if (loads_frozen(o)) mark(stored, &is[o->out]);
  if (moves_one(o) && is[o->in[0]]) mark(stored, &is[o->out]);
  for (uint32_t i = 0; i < o->nin; i++)
    if (takes_whole(o, i) && is[o->in[i]])
      mark(stored, &stored->is[index_of(stored->m, o->callee)][o->callee->args.at[i + 1]]);
}

/* ---- values that are removed ---- */

static void strike(Stored *stored, bool *is) { stored->changed |= *is, *is = false; }

static bool reads_so(const Stored *stored, uint32_t f, const Op *o, uint32_t i) {
  if (o->code == OP_cast) return value_type(stored->m->fns.at[f], o->out)->elem == stored->elem;
  if (takes_whole(o, i))
    return stored->is[index_of(stored->m, o->callee)][o->callee->args.at[i + 1]];
  return moves_one(o) && stored->is[f][o->out];
}

static void strike_op(Stored *stored, uint32_t f, const Op *o) {
  bool *is = stored->is[f];
  for (uint32_t i = 0; i < o->nin; i++)
    if (!reads_so(stored, f, o, i)) strike(stored, &is[o->in[i]]);
  for (uint32_t i = 0; i < o->nin; i++)
    if (takes_whole(o, i) && !is[o->in[i]])
      strike(stored, &stored->is[index_of(stored->m, o->callee)][o->callee->args.at[i + 1]]);
  if (moves_one(o) && !is[o->in[0]]) strike(stored, &is[o->out]);
  if (!loads_frozen(o)) return;
  bool *global = &stored->global[global_index(stored->m, o->global)];
  if (!is[o->out]) strike(stored, global);
  if (!*global) strike(stored, &is[o->out]);
}

static void strike_results(Stored *stored, uint32_t f) {
  const Fn *fn = stored->m->fns.at[f];
  for (uint32_t i = 0; i < fn->results.n; i++) strike(stored, &stored->is[f][fn->results.at[i]]);
}

static void walk(Stored *stored, void each(Stored *stored, uint32_t f, const Op *o)) {
  do {
    stored->changed = false;
    for (uint32_t f = 0; f < stored->m->fns.n; f++) {
      const Fn *fn = stored->m->fns.at[f];
      for (OpId i = 0; i < fn->ops.n; i++) each(stored, f, &fn->ops.at[i]);
      if (each == strike_op) strike_results(stored, f);
    }
  } while (stored->changed);
}

/* ---- the functions anew ---- */

static void copy_op(const Stored *stored, uint32_t f, Rebuild *rebuild, const Op *o) {
  const bool *is = stored->is[f];
  if (o->code == OP_cast && is[o->in[0]]) {
    rebuild->map[o->out] = rebuild->map[o->in[0]];
    return;
  }
  if (o->code == OP_store &&
      o->global->type.elem != value_type(rebuild->to, rebuild->map[o->in[0]])->elem) {
    ValueId v =
        ir_cast(stored->m, rebuild->to, rebuild->map[o->in[0]], o->global->type.elem, o->loc);
    ir_store(stored->m, rebuild->to, o->global, v, o->loc);
    return;
  }
  Op *made = rebuild_op(rebuild, o);
  if (o->nout == 1 && is[o->out]) rebuild->to->values.at[made->out].type.elem = stored->elem;
}

static void rewrite(const Stored *stored, uint32_t f) {
  Fn *fn = stored->m->fns.at[f];
  Rebuild rebuild = rebuild_begin(stored->m, fn);
  for (uint32_t i = 0; i < fn->args.n; i++)
    if (stored->is[f][fn->args.at[i]])
      rebuild.to->values.at[rebuild.map[fn->args.at[i]]].type.elem = stored->elem;
  for (OpId i = 0; i < fn->ops.n; i++) copy_op(stored, f, &rebuild, &fn->ops.at[i]);
  rebuild_results(&rebuild);
  module_replace(stored->m, fn, rebuild.to);
}

void precision_frozen(Module *m, Elem compute) {
  Stored stored = {.m = m, .elem = compute};
  bool any = false;
  stored.is = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  stored.global = ARENA_ARRAY(m->arena, bool, m->globals.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    stored.is[i] = ARENA_ARRAY(m->arena, bool, m->fns.at[i]->values.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) any |= stored.global[i] = is_frozen(m->globals.at[i]);
  if (!any) return;
  walk(&stored, mark_op);
  walk(&stored, strike_op);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (stored.global[i]) m->globals.at[i]->type.elem = compute;
  for (uint32_t i = 0; i < m->fns.n; i++) rewrite(&stored, i);
  module_collect(m);
}

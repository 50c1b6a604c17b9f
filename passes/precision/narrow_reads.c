/* Readers of parameters in the compute type: see narrow_reads.h. */
#include "narrow_reads.h"

static uint32_t index_of(const Module *m, const Fn *f) {
  uint32_t i = 0;
  while (i < m->fns.n && m->fns.at[i] != f) i++;
  must(i < m->fns.n, "precision: %s is not in the module", f->name);
  return i;
}

bool narrow_moves(const Op *o) {
  return op_family(o->code) == FAMILY_STRUCT && o->code != OP_rope && o->nin == 1 && o->nout == 1;
}

static bool takes_whole(const Op *o, uint32_t i) {
  return o->code == OP_loop && i >= loop_shape(o).carry;
}

static bool *argument(const NarrowReads *reads, const Op *loop, uint32_t i) {
  return &reads->is[index_of(reads->m, loop->callee)][loop->callee->args.at[i + 1]];
}

/* ---- values derived from candidates ---- */

static void mark(NarrowReads *reads, bool *is) { reads->changed |= !*is, *is = true; }

static void mark_op(NarrowReads *reads, uint32_t f, const Op *o) {
  bool *is = reads->is[f];
  if (o->code == OP_load && reads->global[global_index(reads->m, o->global)])
    mark(reads, &is[o->out]);
  if (narrow_moves(o) && is[o->in[0]]) mark(reads, &is[o->out]);
  for (uint32_t i = 0; i < o->nin; i++)
    if (takes_whole(o, i) && is[o->in[i]]) mark(reads, argument(reads, o, i));
}

/* ---- values that are removed ---- */

static void strike(NarrowReads *reads, bool *is) { reads->changed |= *is, *is = false; }

bool narrow_operand(const NarrowReads *reads, uint32_t f, const Op *o, uint32_t i) {
  if (o->code == OP_cast) return value_type(reads->m->fns.at[f], o->out)->elem == reads->elem;
  if (takes_whole(o, i)) return *argument(reads, o, i);
  return narrow_moves(o) && reads->is[f][o->out];
}

static void strike_op(NarrowReads *reads, uint32_t f, const Op *o) {
  bool *is = reads->is[f];
  for (uint32_t i = 0; i < o->nin; i++)
    if (takes_whole(o, i) && !is[o->in[i]]) strike(reads, argument(reads, o, i));
  if (reads->wide_too && reads->m->fns.at[f]->kind == FN_ENTRY) return;
  for (uint32_t i = 0; i < o->nin; i++)
    if (!narrow_operand(reads, f, o, i)) strike(reads, &is[o->in[i]]);
  if (narrow_moves(o) && !is[o->in[0]]) strike(reads, &is[o->out]);
  if (o->code != OP_load) return;
  bool *global = &reads->global[global_index(reads->m, o->global)];
  if (!is[o->out]) strike(reads, global);
  if (!*global) strike(reads, &is[o->out]);
}

static void strike_results(NarrowReads *reads, uint32_t f) {
  const Fn *fn = reads->m->fns.at[f];
  for (uint32_t i = 0; i < fn->results.n; i++) strike(reads, &reads->is[f][fn->results.at[i]]);
}

static void walk(NarrowReads *reads, void each(NarrowReads *reads, uint32_t f, const Op *o)) {
  do {
    reads->changed = false;
    for (uint32_t f = 0; f < reads->m->fns.n; f++) {
      const Fn *fn = reads->m->fns.at[f];
      for (OpId i = 0; i < fn->ops.n; i++) each(reads, f, &fn->ops.at[i]);
      if (each == strike_op) strike_results(reads, f);
    }
  } while (reads->changed);
}

bool narrow_reads(NarrowReads *reads, Module *m, Elem elem, bool wide_too,
                  bool takes(const Module *m, const Global *global)) {
  *reads = (NarrowReads){.m = m, .elem = elem, .wide_too = wide_too};
  bool any = false;
  reads->is = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  reads->global = ARENA_ARRAY(m->arena, bool, m->globals.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    reads->is[i] = ARENA_ARRAY(m->arena, bool, m->fns.at[i]->values.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    any |= reads->global[i] = global->kind == GLOBAL_PARAM && global->type.elem == ELEM_f32 &&
                              global->type.rank && takes(m, global);
  }
  if (!any) return false;
  walk(reads, mark_op);
  walk(reads, strike_op);
  return true;
}

/* ---- the functions anew ---- */

/* All values that `is` have the compute type. */
static void narrow_op(const NarrowReads *reads, uint32_t f, Rebuild *rebuild, const Op *o) {
  const bool *is = reads->is[f];
  if (o->code == OP_cast && is[o->in[0]]) {
    rebuild->map[o->out] = rebuild->map[o->in[0]];
    return;
  }
  Op *made = rebuild_op(rebuild, o);
  if (o->nout == 1 && is[o->out]) rebuild->to->values.at[made->out].type.elem = reads->elem;
}

void narrow_function(const NarrowReads *reads, uint32_t f) {
  Fn *fn = reads->m->fns.at[f];
  Rebuild rebuild = rebuild_begin(reads->m, fn);
  for (uint32_t i = 0; i < fn->args.n; i++)
    if (reads->is[f][fn->args.at[i]])
      rebuild.to->values.at[rebuild.map[fn->args.at[i]]].type.elem = reads->elem;
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *o = &fn->ops.at[i];
    Elem given =
        o->code == OP_store ? value_type(rebuild.to, rebuild.map[o->in[0]])->elem : ELEM_f32;
    if (o->code != OP_store || given == o->global->type.elem) narrow_op(reads, f, &rebuild, o);
    else
      ir_store(reads->m, rebuild.to, o->global,
               ir_cast(reads->m, rebuild.to, rebuild.map[o->in[0]], o->global->type.elem, o->loc),
               o->loc);
  }
  rebuild_results(&rebuild);
  module_replace(reads->m, fn, rebuild.to);
}

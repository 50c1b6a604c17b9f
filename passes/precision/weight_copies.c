/* copies: weights that products read in 16 bits are kept in that type in addition to the f32 master
   weights: the update writes both, so forward, backward and micro-batches cast no weight.

   Each parameter that a step writes and that some reader casts to the compute type gets a global
   `copy.of.NAME`, derived from it: every entry that stores the parameter stores the rounded value
   in the copy, entry `refresh` makes copies again after a checkpoint's parameters were read, and
   readers of a cast load the copy. Values inside of loops are narrow if all their readers are
   (narrow_reads.h). No number changes: the same value is rounded once, earlier.

   Parameters of pass `zero` have copies of their own (zero_readers.c); those stored on the host
   have none. `precision .. copies = off` keeps none in either, for 2 bytes a parameter. Runs after
   `offload`, which decides where parameters are stored. Must not: give a parameter a copy
   without a reader. */
#include "ir/made.h"
#include "ir/plan/module_settings.h"
#include "narrow_reads.h"
#include "precision.h"
#include <string.h>

typedef struct WeightCopies {
  NarrowReads reads;
  bool **needed; /* by entry, by value: it is read in the compute type */
  Global **copy; /* by global; NULL: it has none */
} WeightCopies;

/* A step writes it: entries other than `init`. */
static bool is_updated(const Module *m, const Global *global) {
  if (global->within || global->derived || global->type.tier != TIER_device) return false;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    if (f->kind == FN_ENTRY && strcmp(f->name, "init") != 0 && fn_store_of(f, global)) return true;
  }
  return false;
}

/* ---- which parameters ---- */

static void add_copy(WeightCopies *copies, const Global *of) {
  Module *m = copies->reads.m;
  Global **copy = &copies->copy[global_index(m, of)];
  if (*copy) return;
  Type type = of->type;
  type.elem = copies->reads.elem;
  Str name = name_made(m, MADE_COPY "%s", of->name);
  *copy = module_add_global(m, GLOBAL_PARAM, name, type, of->loc);
  (*copy)->placed = of->placed, (*copy)->stages = of->stages, (*copy)->derived = true;
}

static void find_needed(WeightCopies *copies, uint32_t f) {
  const NarrowReads *reads = &copies->reads;
  const Fn *fn = reads->m->fns.at[f];
  bool *needed = copies->needed[f] = ARENA_ARRAY(reads->m->arena, bool, fn->values.n + 1);
  for (OpId at = fn->ops.n; at-- > 0;) {
    const Op *o = &fn->ops.at[at];
    for (uint32_t i = 0; i < o->nin; i++)
      needed[o->in[i]] |= reads->is[f][o->in[i]] && narrow_operand(reads, f, o, i) &&
                          (!narrow_moves(o) || needed[o->out]);
    if (o->code == OP_load && needed[o->out]) add_copy(copies, o->global);
  }
}

/* ---- entries ---- */

typedef struct CopyEntry {
  WeightCopies *copies;
  uint32_t f;
  Rebuild rebuild;
  ValueId *narrow; /* by value of `from`: the same in the compute type */
} CopyEntry;

static void make_narrow(CopyEntry *entry, const Op *o) {
  const WeightCopies *copies = entry->copies;
  Module *m = copies->reads.m;
  Rebuild *rebuild = &entry->rebuild;
  if (o->nout != 1 || !copies->needed[entry->f][o->out]) return;
  if (o->code == OP_load) {
    Global *copy = copies->copy[global_index(m, o->global)];
    entry->narrow[o->out] = ir_load(m, rebuild->to, copy, o->loc);
    return;
  }
  ValueId wide = rebuild->map[o->out], in = rebuild->map[o->in[0]];
  rebuild->map[o->in[0]] = entry->narrow[o->in[0]];
  entry->narrow[o->out] = rebuild_op(rebuild, o)->out;
  rebuild->to->values.at[entry->narrow[o->out]].type.elem = copies->reads.elem;
  rebuild->map[o->in[0]] = in, rebuild->map[o->out] = wide;
}

static void copy_op(CopyEntry *entry, const Op *o) {
  const NarrowReads *reads = &entry->copies->reads;
  const bool *is = reads->is[entry->f];
  Rebuild *rebuild = &entry->rebuild;
  if (o->code == OP_cast && is[o->in[0]] && narrow_operand(reads, entry->f, o, 0)) {
    rebuild->map[o->out] = entry->narrow[o->in[0]];
    return;
  }
  Op *made = rebuild_op(rebuild, o);
  for (uint32_t i = 0; o->code == OP_loop && i < o->nin; i++)
    if (is[o->in[i]] && narrow_operand(reads, entry->f, o, i))
      made->in[i] = entry->narrow[o->in[i]];
  make_narrow(entry, o);
  Global *copy =
      o->code == OP_store ? entry->copies->copy[global_index(reads->m, o->global)] : NULL;
  if (!copy) return;
  ValueId rounded = ir_cast(reads->m, rebuild->to, rebuild->map[o->in[0]], reads->elem, o->loc);
  ir_store(reads->m, rebuild->to, copy, rounded, o->loc);
}

static void copy_entry(WeightCopies *copies, uint32_t f) {
  Module *m = copies->reads.m;
  Fn *fn = m->fns.at[f];
  CopyEntry entry = {copies, f, rebuild_begin(m, fn), value_map(m, fn)};
  for (OpId i = 0; i < fn->ops.n; i++) copy_op(&entry, &fn->ops.at[i]);
  module_replace(m, fn, entry.rebuild.to);
}

/* Copies are no part of checkpoints: this entry runs after a checkpoint's parameters are read. */
static void refresh(const WeightCopies *copies, uint32_t globals) {
  Module *m = copies->reads.m;
  Fn *fn = entry_of(m, "refresh");
  if (!fn) module_add(m, fn = fn_new(m, FN_ENTRY, intern(m->ctx->names, "refresh")));
  for (uint32_t i = 0; i < globals; i++) {
    if (!copies->copy[i]) continue;
    ValueId wide = ir_load(m, fn, m->globals.at[i], (Loc){0});
    ValueId narrow = ir_cast(m, fn, wide, copies->reads.elem, (Loc){0});
    ir_store(m, fn, copies->copy[i], narrow, (Loc){0});
  }
}

void pass_copies(Module *m) {
  Elem compute;
  uint32_t globals = m->globals.n, added;
  WeightCopies copies;
  if (!elem_find(plan_precision(m), &compute) || elem_bytes(compute) != 2) return;
  if (!plan_copies_weights(m)) return;
  if (!narrow_reads(&copies.reads, m, compute, true, is_updated)) return;
  copies.needed = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  copies.copy = ARENA_ARRAY(m->arena, Global *, globals + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) find_needed(&copies, i);
  added = m->globals.n - globals;
  if (!added) return;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) copy_entry(&copies, i);
    else narrow_function(&copies.reads, i);
  refresh(&copies, globals);
  module_collect(m);
}

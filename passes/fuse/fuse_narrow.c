/* fuse, before grouping: a product whose result is shown by views alone stores it in its own type.

   A view is of a buffer, so a product in 16 bits whose result is cast to f32 before it is split,
   merged or renamed (the gradient of a parameter that has a group of its own, as pass `zero` reads
   it) would store the wider value. The cast is written after the views instead, where their
   readers compute it. It adds no digits, so no number changes. Must not: move a cast that rounds,
   or whose result an op needs in memory (a message). */
#include "fuse.h"

typedef struct NarrowViews {
  Rebuild r;
  ValueId *own; /* by ValueId of from: the narrow value of the new function that it shows */
  bool *shown;  /* by ValueId of from: by views alone */
} NarrowViews;

static bool is_view(const Op *op) {
  return op_flags(op->code) & VIEW && op->nin == 1 && op->nout == 1;
}

/* By ValueId: read by such views alone. */
static bool *shown_by_views(Arena *arena, const Fn *fn) {
  bool *shown = ARENA_ARRAY(arena, bool, fn->values.n + 1);
  for (ValueId v = 0; v < fn->values.n; v++) shown[v] = true;
  EACH_OP (fn, op)
    for (uint32_t i = 0; i < op->nin; i++) shown[op->in[i]] &= is_view(op);
  for (uint32_t i = 0; i < fn->results.n; i++) shown[fn->results.at[i]] = false;
  return shown;
}

/* By ValueId: needed in memory, itself or what views show of it. Other readers compute with it. */
static bool *needed_in_memory(Arena *arena, const Fn *fn) {
  bool *needed = ARENA_ARRAY(arena, bool, fn->values.n + 1);
  for (uint32_t i = 0; i < fn->results.n; i++) needed[fn->results.at[i]] = true;
  for (OpId id = fn->ops.n; id-- > 0;) {
    const Op *op = &fn->ops.at[id];
    OpFamily family = op_family(op->code);
    bool computes = family == FAMILY_ELEM || family == FAMILY_REDUCE;
    if (computes || (is_view(op) && !needed[op->out])) continue;
    for (uint32_t i = 0; i < op->nin; i++) needed[op->in[i]] = true;
  }
  return needed;
}

static bool widens_product(const Fn *fn, const Op *op) {
  const Op *dot = op->code == OP_cast ? value_def(fn, op->in[0]) : NULL;
  return dot && op_family(dot->code) == FAMILY_CONTRACT &&
         elem_is_half(value_type(fn, dot->out)->elem) && value_type(fn, op->out)->elem == ELEM_f32;
}

/* A view of the narrow value, and the wide one for other readers. */
static void move_view(NarrowViews *narrow, const Op *op, ValueId own) {
  Rebuild *r = &narrow->r;
  Elem wide = value_type(r->from, op->out)->elem;
  r->map[op->in[0]] = own;
  ValueId view = rebuild_op(r, op)->out;
  r->to->values.at[view].type.elem = value_type(r->to, own)->elem;
  narrow->own[op->out] = view;
  if (!narrow->shown[op->out]) r->map[op->out] = ir_cast(r->m, r->to, view, wide, op->loc);
}

const Fn *fuse_narrow(Module *m, const Fn *fn) {
  NarrowViews narrow = {rebuild_begin(m, fn), value_map(m, fn), shown_by_views(m->arena, fn)};
  const bool *needed = needed_in_memory(m->arena, fn);
  bool moved = false;
  EACH_OP (fn, op) {
    ValueId own = is_view(op) ? narrow.own[op->in[0]] : NO_VALUE;
    if (own != NO_VALUE) move_view(&narrow, op, own);
    else if (widens_product(fn, op) && narrow.shown[op->out] && !needed[op->out])
      narrow.own[op->out] = narrow.r.map[op->in[0]], moved = true;
    else rebuild_op(&narrow.r, op);
  }
  if (!moved) return fn;
  rebuild_results(&narrow.r);
  return narrow.r.to;
}

/* fuse, before grouping: the rounds of a ring end where their results are known.

   Passes that write a function anew from its results (zero) leave sums of a ring (passes/place/
   ring.c) where their last reader is, and all their terms would be kept until then. So a copy, and
   a rotation of a copy or of an attention's result, is written as soon as its operands are, with
   the element-wise ops between them. Everything else keeps its order. Must not: move the
   rotations of keys, which would then all be sent before the first round. */
#include "fuse.h"

typedef struct Early {
  Rebuild r;
  bool *written;  /* by OpId */
  VEC(OpId) ops;  /* that are written as soon as possible */
  uint32_t first; /* of those: all before are written */
} Early;

static bool is_early(const Fn *fn, const Op *op) {
  if (op->code == OP_copy) return true;
  const Op *from = op->code == OP_rotate ? value_def(fn, op->in[0]) : NULL;
  return from && (from->code == OP_copy || op_family(from->code) == FAMILY_ATTENTION);
}

static bool is_point(const Op *op) { return op_flags(op->code) & POINT && op->nout == 1; }

/* Are all its operands known, but for element-wise ops? */
static bool is_ready(const Early *early, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++) {
    const Op *def = value_def(early->r.from, op->in[i]);
    if (!def || early->written[def - early->r.from->ops.at]) continue;
    if (!is_point(def) || def->code == OP_copy || !is_ready(early, def)) return false;
  }
  return true;
}

static void write(Early *early, const Op *op) {
  OpId id = (OpId)(op - early->r.from->ops.at);
  if (early->written[id]) return;
  early->written[id] = true;
  for (uint32_t i = 0; i < op->nin; i++) {
    const Op *def = value_def(early->r.from, op->in[i]);
    if (def) write(early, def);
  }
  rebuild_op(&early->r, op);
}

/* The next few alone: they become ready in their order. */
static bool write_ready(Early *early) {
  enum { AHEAD = 16 };
  while (early->first < early->ops.n && early->written[early->ops.at[early->first]]) early->first++;
  for (uint32_t i = early->first; i < early->ops.n && i < early->first + AHEAD; i++) {
    const Op *op = &early->r.from->ops.at[early->ops.at[i]];
    if (early->written[early->ops.at[i]] || !is_ready(early, op)) continue;
    write(early, op);
    return true;
  }
  return false;
}

const Fn *fuse_early(Module *m, const Fn *fn) {
  Early early = {.r = rebuild_begin(m, fn), .written = ARENA_ARRAY(m->arena, bool, fn->ops.n + 1)};
  bool rotates = false;
  for (OpId i = 0; i < fn->ops.n; i++) {
    if (is_early(fn, &fn->ops.at[i])) vec_push(m->arena, early.ops, i);
    rotates |= fn->ops.at[i].code == OP_rotate;
  }
  if (!rotates) return fn;
  for (OpId i = 0; i < fn->ops.n; i++) {
    write(&early, &fn->ops.at[i]);
    while (write_ready(&early)) {}
  }
  rebuild_results(&early.r);
  return early.r.to;
}

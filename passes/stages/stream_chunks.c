/* pipeline: layers in chunks, under `pipeline interleaved` ("Efficient Large-Scale Language Model
   Training on GPU Clusters Using Megatron-LM", section 2.2).

   A loop of stages becomes one loop for each chunk of the layers, all with the same body: the
   carried value passes through the stages once per chunk, from the last stage back to the first.
   Stacks that the loop reads stay whole; its stacked results become pieces, a chunk each, which
   are joined for readers of the whole stack. Gradients that are added up over micro-batches are
   added up piece by piece.

   Then the loop over micro-batches is cut after each of these loops (loop_split.c), with the sums
   of their results, so that a stage may continue with any chunk of any micro-batch. Must not:
   change a number; each piece is added up in the order of the micro-batches, as the whole would
   be. */
#include "ir/made.h"
#include "stream.h"

typedef struct ChunkCut {
  const Chunks *c;
  Rebuild r;
  ValueId **piece; /* by value of r.from: of each chunk; NULL: it is whole */
} ChunkCut;

/* ---- pieces ---- */

static ValueId *new_pieces(ChunkCut *cut, ValueId v) {
  return cut->piece[v] = ARENA_ARRAY(cut->c->m->arena, ValueId, cut->c->n);
}

static Type piece_type(const Chunks *chunks, const Type *whole) {
  Type t = *whole;
  t.axis[type_find(whole, chunks->dim)].size /= chunks->n;
  return t;
}

ValueId chunks_join(const Chunks *chunks, Fn *f, const ValueId *piece, const Type *whole) {
  Str name[MOST_CHUNKS];
  ValueId in[MOST_CHUNKS];
  Type joined = *whole; /* `whole` may be a value's of f, which grows */
  Placement placed = f->values.at[piece[0]].placed;
  for (int64_t j = 0; j < chunks->n; j++) {
    name[j] = name_made(chunks->m, "%s'%c", chunks->dim, (char)('a' + j));
    in[j] = ir_rename(chunks->m, f, piece[j], chunks->dim, name[j], (Loc){0});
    f->values.at[in[j]].placed = placed;
    f->values.at[in[j]].placed.on[chunks->axis] = name[j];
  }
  Group map = group_map((int)chunks->n, name, 1, &chunks->dim);
  ValueId v = emit_typed(chunks->m, f, OP_concat, (uint32_t)chunks->n, in, &map, joined, (Loc){0});
  f->values.at[v].placed = placed;
  return v;
}

static ValueId whole_of(ChunkCut *cut, ValueId v) {
  if (cut->r.map[v] == NO_VALUE && cut->piece[v])
    cut->r.map[v] = chunks_join(cut->c, cut->r.to, cut->piece[v], value_type(cut->r.from, v));
  return cut->r.map[v];
}

/* ---- ops ---- */

static void cut_loop(ChunkCut *cut, const Op *o) {
  Module *m = cut->c->m;
  LoopShape shape = loop_shape(o);
  uint32_t whole = shape.carry + shape.invariant;
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < shape.carry; i++) in[i] = whole_of(cut, o->in[i]);
  for (uint32_t i = shape.carry; i < o->nout; i++) new_pieces(cut, o->out + i);
  shape.of = shape.trip, shape.trip = shape.axis.size = shape.of / cut->c->n;
  for (int64_t t = 0; t < cut->c->n; t++) {
    int64_t chunk = shape.reverse ? cut->c->n - 1 - t : t;
    shape.first = chunk * shape.trip;
    for (uint32_t i = shape.carry; i < o->nin; i++) {
      bool own = i >= whole && cut->piece[o->in[i]];
      in[i] = own ? cut->piece[o->in[i]][chunk] : whole_of(cut, o->in[i]);
    }
    ValueId out = rebuild_loop(m, cut->r.to, o->callee, shape, in, o->loc)->out;
    for (uint32_t i = 0; i < o->nout; i++) {
      cut->r.to->values.at[out + i].placed = cut->r.from->values.at[o->out + i].placed;
      if (i < shape.carry) in[i] = cut->r.map[o->out + i] = out + i;
      else cut->piece[o->out + i][chunk] = out + i;
    }
  }
}

/* Element by element, of pieces alone? */
static bool goes_by_piece(const ChunkCut *cut, const Op *o) {
  bool all = o->nin && o->nout == 1 && op_flags(o->code) & POINT && !o->callee;
  for (uint32_t i = 0; i < o->nin; i++) all &= cut->piece[o->in[i]] != NULL;
  return all;
}

static void copy_pieces(ChunkCut *cut, const Op *o) {
  ValueId *whole = ARENA_ARRAY(cut->c->m->arena, ValueId, o->nin);
  for (uint32_t i = 0; i < o->nin; i++) whole[i] = cut->r.map[o->in[i]];
  new_pieces(cut, o->out);
  for (int64_t j = 0; j < cut->c->n; j++) {
    for (uint32_t i = 0; i < o->nin; i++) cut->r.map[o->in[i]] = cut->piece[o->in[i]][j];
    ValueId v = cut->piece[o->out][j] = rebuild_op(&cut->r, o)->out;
    cut->r.to->values.at[v].type = piece_type(cut->c, value_type(cut->r.from, o->out));
  }
  for (uint32_t i = 0; i < o->nin; i++) cut->r.map[o->in[i]] = whole[i];
  cut->r.map[o->out] = NO_VALUE;
}

static void copy_op(ChunkCut *cut, const Op *o) {
  if (loop_has_stages(o)) {
    cut_loop(cut, o);
  } else if (goes_by_piece(cut, o)) {
    copy_pieces(cut, o);
  } else {
    for (uint32_t i = 0; i < o->nin; i++) whole_of(cut, o->in[i]);
    rebuild_op(&cut->r, o);
  }
}

/* ---- the body ---- */

/* Does a loop of stages leave v, stacked? */
static bool is_left(const Fn *body, ValueId v) {
  const Op *o = value_def(body, v);
  if (o && o->nin == 1 && op_flags(o->code) & POINT) return is_left(body, o->in[0]);
  return o && loop_has_stages(o) && v - o->out >= loop_shape(o).carry;
}

bool chunks_sum(const Fn *body, uint32_t carried) {
  RunningSum sum;
  return running_sum(body, body->args.at[carried + 1], body->results.at[carried], &sum) &&
         is_left(body, sum.added);
}

static void add_args(ChunkCut *cut, const bool *split, uint32_t carry) {
  for (uint32_t i = 0; i < cut->r.from->args.n; i++) {
    ValueId arg = cut->r.from->args.at[i];
    bool pieces = i && i <= carry && split[i - 1];
    Type t = *value_type(cut->r.from, arg);
    if (pieces) new_pieces(cut, arg), t = piece_type(cut->c, &t);
    for (int64_t j = 0; j < (pieces ? cut->c->n : 1); j++) {
      ValueId v = fn_arg(cut->c->m, cut->r.to, t);
      cut->r.to->values.at[v].placed = cut->r.from->values.at[arg].placed;
      *(pieces ? &cut->piece[arg][j] : &cut->r.map[arg]) = v;
    }
  }
}

static void add_results(ChunkCut *cut, const bool *split, uint32_t carry) {
  for (uint32_t i = 0; i < cut->r.from->results.n; i++) {
    ValueId v = cut->r.from->results.at[i];
    bool pieces = i < carry && split[i];
    for (int64_t j = 0; j < (pieces ? cut->c->n : 1); j++)
      fn_result(cut->c->m, cut->r.to, pieces ? cut->piece[v][j] : whole_of(cut, v));
  }
}

Fn *chunks_body(const Chunks *chunks, const Fn *body, const bool *split, uint32_t carry) {
  ChunkCut cut = {.c = chunks};
  cut.r = (Rebuild){chunks->m, body, fn_like(chunks->m, body), value_map(chunks->m, body)};
  cut.piece = ARENA_ARRAY(chunks->m->arena, ValueId *, body->values.n + 1);
  add_args(&cut, split, carry);
  for (OpId i = 0; i < body->ops.n; i++) copy_op(&cut, &body->ops.at[i]);
  add_results(&cut, split, carry);
  return cut.r.to;
}

/* ---- the loop over parts ---- */

typedef struct PartsCut { /* the rest of the loop */
  const Chunks *c;
  Fn *f;
  Op loop;
  Str name;
  uint32_t *result; /* by result of `loop`: which of the whole one it is */
  ValueId *out;     /* by result of the whole one */
} PartsCut;

static OpId first_stages(const Fn *body) {
  OpId i = 0;
  while (i < body->ops.n && !loop_has_stages(&body->ops.at[i])) i++;
  must(i < body->ops.n, "pipeline: @%s has lost its layers", body->name);
  return i;
}

/* By op: does it wait for a loop of stages after the first one? */
static bool *waits_for_others(const Chunks *chunks, const Fn *body, OpId first) {
  bool *waits = ARENA_ARRAY(chunks->m->arena, bool, body->ops.n + 1);
  for (OpId i = first + 1; i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    waits[i] = loop_has_stages(o);
    for (uint32_t k = 0; k < o->nin; k++) {
      OpId def = body->values.at[o->in[k]].def;
      waits[i] |= def != NO_OP && waits[def];
    }
  }
  return waits;
}

/* Sums that are complete for the part once the first loop of stages is over. */
static bool *early_sums(const PartsCut *cut, OpId stages) {
  const Fn *body = cut->loop.callee;
  const bool *waits = waits_for_others(cut->c, body, stages);
  uint32_t carry = loop_shape(&cut->loop).carry;
  bool *early = ARENA_ARRAY(cut->c->m->arena, bool, carry + 1);
  for (uint32_t i = 0; i < carry; i++) {
    RunningSum sum;
    OpId def = body->values.at[body->results.at[i]].def;
    early[i] = running_sum(body, body->args.at[i + 1], body->results.at[i], &sum) && !waits[def];
  }
  return early;
}

/* The second loop is the last op of f, and its results are the last values: it is taken back. */
static void take_back(PartsCut *cut, OpId id, const bool *early, uint32_t carry) {
  uint32_t n = 0, all = cut->loop.nout;
  must(id + 1 == cut->f->ops.n, "pipeline: an op follows the rest of @%s", cut->name);
  cut->loop = cut->f->ops.at[id];
  cut->f->ops.n = id, cut->f->values.n = cut->loop.out;
  cut->loop.callee->name = cut->name;
  for (uint32_t i = 0; i < all; i++)
    if (!early || i >= carry || !early[i]) cut->result[n++] = cut->result[i];
}

/* Cuts it after its first loop of stages; backward, the first half includes the sums over its
   results. */
static void cut_first(PartsCut *cut, const char *name, bool backward) {
  const Fn *body = cut->loop.callee;
  OpId stages = first_stages(body);
  uint32_t carry = loop_shape(&cut->loop).carry;
  const bool *early = backward ? early_sums(cut, stages) : NULL;
  bool *first = ARENA_ARRAY(cut->c->m->arena, bool, body->ops.n + 1);
  ValueId *out = ARENA_ARRAY(cut->c->m->arena, ValueId, cut->loop.nout + 1);
  Op whole = cut->loop;
  first[stages] = true;
  for (uint32_t i = 0; early && i < carry; i++)
    if (early[i]) first[body->values.at[body->results.at[i]].def] = true;
  LoopSplit split = {.m = cut->c->m, .f = cut->f, .loop = &whole, .in = whole.in, .first = first};
  split.early = early, split.names[0] = name, split.names[1] = "rest", split.out = out;
  loop_split(&split);
  for (uint32_t i = 0; early && i < carry; i++)
    if (early[i]) cut->out[cut->result[i]] = out[i];
  take_back(cut, split.made[1], early, carry);
}

static void put_last(PartsCut *cut) {
  LoopShape shape = loop_shape(&cut->loop);
  cut->loop.callee->name = intern_printf(cut->c->m->ctx->names, "%s.backward.a", cut->name);
  ValueId out =
      rebuild_loop(cut->c->m, cut->f, cut->loop.callee, shape, cut->loop.in, cut->loop.loc)->out;
  for (uint32_t i = 0; i < cut->loop.nout; i++) {
    const Fn *body = cut->loop.callee;
    cut->f->values.at[out + i].placed = body->values.at[body->results.at[i]].placed;
    cut->out[cut->result[i]] = out + i;
  }
}

void chunks_parts(const Chunks *chunks, Fn *f, const Op *loop, const ValueId *in, ValueId *out) {
  PartsCut cut = {.c = chunks, .f = f, .loop = *loop, .name = loop->callee->name, .out = out};
  cut.loop.in = ARENA_ARRAY(chunks->m->arena, ValueId, loop->nin + 1);
  cut.result = ARENA_ARRAY(chunks->m->arena, uint32_t, loop->nout + 1);
  for (uint32_t i = 0; i < loop->nin; i++) cut.loop.in[i] = in[i];
  for (uint32_t i = 0; i < loop->nout; i++) cut.result[i] = i;
  for (int64_t j = 0; j < chunks->n; j++)
    cut_first(&cut, arena_printf(chunks->m->arena, "forward.%c", (char)('a' + j)), false);
  for (int64_t j = chunks->n - 1; j > 0; j--)
    cut_first(&cut, arena_printf(chunks->m->arena, "backward.%c", (char)('a' + j)), true);
  put_last(&cut);
}

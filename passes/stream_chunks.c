/* pipeline: layers in chunks, under `pipeline interleaved` ("Efficient Large-Scale Language Model
   Training on GPU Clusters Using Megatron-LM", section 2.2).

   A loop of stages becomes one for each chunk of the layers, all of the same body: what is handed
   on goes through the stages once per chunk, from the last one back to the first. Stacks that the
   loop reads stay whole; what it leaves stacked are pieces, a chunk each, and where somebody wants
   all of it, they are joined. Gradients that are added up over parts of the batch are so piece by
   piece. Then the loop over parts is cut behind each of these loops (loop_split.c), with the sums
   that are made of it, so that a stage may go on with any chunk of any part. Must not: change a
   number; each piece is added up in the order of the parts, as the whole would be. */
#include "passes/stream.h"
#include "ir/placement.h"

typedef struct ChunkCut {
  const Chunks *c;
  Rebuild r;
  ValueId **piece; /* by value of r.from: of each chunk; NULL: it is whole */
} ChunkCut;

static bool is_stages(const Op *o) {
  return o->code == OP_loop && attr_get(&o->attrs, ATTR_stages);
}

/* ---- pieces ---- */

static ValueId *new_pieces(ChunkCut *k, ValueId v) {
  return k->piece[v] = ARENA_ARRAY(k->c->m->arena, ValueId, k->c->n);
}

static Type piece_type(const Chunks *c, const Type *whole) {
  Type t = *whole;
  t.axis[type_find(whole, c->dim)].size /= c->n;
  return t;
}

ValueId chunks_join(const Chunks *c, Fn *f, const ValueId *piece, const Type *whole) {
  Str name[MOST_CHUNKS];
  ValueId in[MOST_CHUNKS];
  Placement placed = f->values.at[piece[0]].placed;
  for (int64_t j = 0; j < c->n; j++) {
    name[j] = intern_printf(c->m->ctx->names, "%s_%c", c->dim, (char)('a' + j));
    in[j] = ir_rename(c->m, f, piece[j], c->dim, name[j], (Loc){0});
    f->values.at[in[j]].placed = placed;
    f->values.at[in[j]].placed.on[c->axis] = name[j];
  }
  Group map = group_map((int)c->n, name, 1, &c->dim);
  ValueId v = emit_typed(c->m, f, OP_concat, (uint32_t)c->n, in, &map, *whole, (Loc){0});
  f->values.at[v].placed = placed;
  return v;
}

static ValueId whole_of(ChunkCut *k, ValueId v) {
  if (k->r.map[v] == NO_VALUE && k->piece[v])
    k->r.map[v] = chunks_join(k->c, k->r.to, k->piece[v], value_type(k->r.from, v));
  return k->r.map[v];
}

/* ---- ops ---- */

static void cut_loop(ChunkCut *k, const Op *o) {
  Module *m = k->c->m;
  LoopShape s = loop_shape(o);
  uint32_t whole = s.carry + s.invariant;
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < s.carry; i++) in[i] = whole_of(k, o->in[i]);
  for (uint32_t i = s.carry; i < o->nout; i++) new_pieces(k, o->out + i);
  s.of = s.trip, s.trip = s.axis.size = s.of / k->c->n;
  for (int64_t t = 0; t < k->c->n; t++) {
    int64_t chunk = s.reverse ? k->c->n - 1 - t : t;
    s.first = chunk * s.trip;
    for (uint32_t i = s.carry; i < o->nin; i++) {
      bool own = i >= whole && k->piece[o->in[i]];
      in[i] = own ? k->piece[o->in[i]][chunk] : whole_of(k, o->in[i]);
    }
    ValueId out = rebuild_loop(m, k->r.to, o->callee, s, in, o->loc)->out;
    for (uint32_t i = 0; i < o->nout; i++) {
      k->r.to->values.at[out + i].placed = k->r.from->values.at[o->out + i].placed;
      if (i < s.carry) in[i] = k->r.map[o->out + i] = out + i;
      else k->piece[o->out + i][chunk] = out + i;
    }
  }
}

/* Element by element, of pieces alone? */
static bool goes_by_piece(const ChunkCut *k, const Op *o) {
  bool all = o->nin && o->nout == 1 && op_flags(o->code) & POINT && !o->callee;
  for (uint32_t i = 0; i < o->nin; i++) all &= k->piece[o->in[i]] != NULL;
  return all;
}

static void copy_pieces(ChunkCut *k, const Op *o) {
  ValueId *whole = ARENA_ARRAY(k->c->m->arena, ValueId, o->nin);
  for (uint32_t i = 0; i < o->nin; i++) whole[i] = k->r.map[o->in[i]];
  new_pieces(k, o->out);
  for (int64_t j = 0; j < k->c->n; j++) {
    for (uint32_t i = 0; i < o->nin; i++) k->r.map[o->in[i]] = k->piece[o->in[i]][j];
    ValueId v = k->piece[o->out][j] = rebuild_op(&k->r, o)->out;
    k->r.to->values.at[v].type = piece_type(k->c, value_type(k->r.from, o->out));
  }
  for (uint32_t i = 0; i < o->nin; i++) k->r.map[o->in[i]] = whole[i];
  k->r.map[o->out] = NO_VALUE;
}

static void copy_op(ChunkCut *k, const Op *o) {
  if (is_stages(o)) {
    cut_loop(k, o);
  } else if (goes_by_piece(k, o)) {
    copy_pieces(k, o);
  } else {
    for (uint32_t i = 0; i < o->nin; i++) whole_of(k, o->in[i]);
    rebuild_op(&k->r, o);
  }
}

/* ---- the body ---- */

/* Does a loop of stages leave v, stacked? */
static bool is_left(const Fn *body, ValueId v) {
  const Op *o = value_def(body, v);
  if (o && o->nin == 1 && op_flags(o->code) & POINT) return is_left(body, o->in[0]);
  return o && is_stages(o) && v - o->out >= loop_shape(o).carry;
}

bool chunks_sum(const Fn *body, uint32_t carried) {
  RunningSum r;
  return running_sum(body, body->args.at[carried + 1], body->results.at[carried], &r) &&
         is_left(body, r.added);
}

static void add_args(ChunkCut *k, const bool *split, uint32_t carry) {
  for (uint32_t i = 0; i < k->r.from->args.n; i++) {
    ValueId arg = k->r.from->args.at[i];
    bool pieces = i && i <= carry && split[i - 1];
    Type t = *value_type(k->r.from, arg);
    if (pieces) new_pieces(k, arg), t = piece_type(k->c, &t);
    for (int64_t j = 0; j < (pieces ? k->c->n : 1); j++) {
      ValueId v = fn_arg(k->c->m, k->r.to, t);
      k->r.to->values.at[v].placed = k->r.from->values.at[arg].placed;
      *(pieces ? &k->piece[arg][j] : &k->r.map[arg]) = v;
    }
  }
}

static void add_results(ChunkCut *k, const bool *split, uint32_t carry) {
  for (uint32_t i = 0; i < k->r.from->results.n; i++) {
    ValueId v = k->r.from->results.at[i];
    bool pieces = i < carry && split[i];
    for (int64_t j = 0; j < (pieces ? k->c->n : 1); j++)
      fn_result(k->c->m, k->r.to, pieces ? k->piece[v][j] : whole_of(k, v));
  }
}

Fn *chunks_body(const Chunks *c, const Fn *body, const bool *split, uint32_t carry) {
  ChunkCut k = {.c = c};
  k.r = (Rebuild){c->m, body, fn_new(c->m, body->kind, body->name), value_map(c->m, body)};
  k.r.to->loc = body->loc, k.r.to->attrs = body->attrs;
  k.piece = ARENA_ARRAY(c->m->arena, ValueId *, body->values.n + 1);
  add_args(&k, split, carry);
  for (OpId i = 0; i < body->ops.n; i++) copy_op(&k, &body->ops.at[i]);
  add_results(&k, split, carry);
  return k.r.to;
}

/* ---- the loop over parts ---- */

typedef struct PartsCut { /* what is left of it */
  const Chunks *c;
  Fn *f;
  Op loop;
  Str name;
  uint32_t *result; /* by result of `loop`: which of the whole one it is */
  ValueId *out;     /* by result of the whole one */
} PartsCut;

static OpId first_stages(const Fn *body) {
  OpId i = 0;
  while (i < body->ops.n && !is_stages(&body->ops.at[i])) i++;
  must(i < body->ops.n, "pipeline: @%s has lost its layers", body->name);
  return i;
}

/* By op: does it wait for a loop of stages behind the first one? */
static bool *waits_for_others(const Chunks *c, const Fn *body, OpId first) {
  bool *waits = ARENA_ARRAY(c->m->arena, bool, body->ops.n + 1);
  for (OpId i = first + 1; i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    waits[i] = is_stages(o);
    for (uint32_t k = 0; k < o->nin; k++) {
      OpId def = body->values.at[o->in[k]].def;
      waits[i] |= def != NO_OP && waits[def];
    }
  }
  return waits;
}

/* Sums that are complete for the part once the first loop of stages is over. */
static bool *early_sums(const PartsCut *p, OpId stages) {
  const Fn *body = p->loop.callee;
  const bool *waits = waits_for_others(p->c, body, stages);
  uint32_t carry = loop_shape(&p->loop).carry;
  bool *early = ARENA_ARRAY(p->c->m->arena, bool, carry + 1);
  for (uint32_t i = 0; i < carry; i++) {
    RunningSum r;
    OpId def = body->values.at[body->results.at[i]].def;
    early[i] = running_sum(body, body->args.at[i + 1], body->results.at[i], &r) && !waits[def];
  }
  return early;
}

/* The second loop is the last op of f, and its results are the last values: it is taken back. */
static void take_back(PartsCut *p, OpId id, const bool *early, uint32_t carry) {
  uint32_t n = 0, all = p->loop.nout;
  must(id + 1 == p->f->ops.n, "pipeline: something stands behind what is left of @%s", p->name);
  p->loop = p->f->ops.at[id];
  p->f->ops.n = id, p->f->values.n = p->loop.out;
  p->loop.callee->name = p->name;
  for (uint32_t i = 0; i < all; i++)
    if (!early || i >= carry || !early[i]) p->result[n++] = p->result[i];
}

/* Cuts it behind its first loop of stages, backward with the sums that are made there. */
static void cut_first(PartsCut *p, const char *name, bool backward) {
  const Fn *body = p->loop.callee;
  OpId stages = first_stages(body);
  uint32_t carry = loop_shape(&p->loop).carry;
  const bool *early = backward ? early_sums(p, stages) : NULL;
  bool *first = ARENA_ARRAY(p->c->m->arena, bool, body->ops.n + 1);
  ValueId *out = ARENA_ARRAY(p->c->m->arena, ValueId, p->loop.nout + 1);
  Op whole = p->loop;
  first[stages] = true;
  for (uint32_t i = 0; early && i < carry; i++)
    if (early[i]) first[body->values.at[body->results.at[i]].def] = true;
  LoopSplit s = {.m = p->c->m, .f = p->f, .loop = &whole, .in = whole.in, .first = first};
  s.early = early, s.names[0] = name, s.names[1] = "rest", s.out = out;
  loop_split(&s);
  for (uint32_t i = 0; early && i < carry; i++)
    if (early[i]) p->out[p->result[i]] = out[i];
  take_back(p, s.made[1], early, carry);
}

static void put_last(PartsCut *p) {
  LoopShape s = loop_shape(&p->loop);
  p->loop.callee->name = intern_printf(p->c->m->ctx->names, "%s.backward.a", p->name);
  ValueId out = rebuild_loop(p->c->m, p->f, p->loop.callee, s, p->loop.in, p->loop.loc)->out;
  for (uint32_t i = 0; i < p->loop.nout; i++) {
    const Fn *body = p->loop.callee;
    p->f->values.at[out + i].placed = body->values.at[body->results.at[i]].placed;
    p->out[p->result[i]] = out + i;
  }
}

void chunks_parts(const Chunks *c, Fn *f, const Op *loop, const ValueId *in, ValueId *out) {
  PartsCut p = {.c = c, .f = f, .loop = *loop, .name = loop->callee->name, .out = out};
  p.loop.in = ARENA_ARRAY(c->m->arena, ValueId, loop->nin + 1);
  p.result = ARENA_ARRAY(c->m->arena, uint32_t, loop->nout + 1);
  for (uint32_t i = 0; i < loop->nin; i++) p.loop.in[i] = in[i];
  for (uint32_t i = 0; i < loop->nout; i++) p.result[i] = i;
  for (int64_t j = 0; j < c->n; j++)
    cut_first(&p, arena_printf(c->m->arena, "forward.%c", (char)('a' + j)), false);
  for (int64_t j = c->n - 1; j > 0; j--)
    cut_first(&p, arena_printf(c->m->arena, "backward.%c", (char)('a' + j)), true);
  put_last(&p);
}

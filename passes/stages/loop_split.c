/* pipeline: splits a loop into two consecutive loops (stream.h).

   The first loop does the requested ops and their dependences, and nothing else; its results that
   are not carried depend on nothing but its operands. Values that the second loop reads from the
   first are stacked over the rounds; but values that follow from operands by element-wise ops and
   moves of indexes alone (masks, positions, random numbers) are computed again. Must not: know the
   use of the rounds. */
#include "ir/shape/placement.h"
#include "stream.h"

typedef struct Half {
  Rebuild r;
  bool *has; /* by op of the body */
  LoopShape shape;
  VEC(ValueId) in; /* operands, in f */
} Half;

typedef struct LoopHalves {
  LoopSplit *s;
  const Fn *body;
  LoopShape shape;
  bool *again; /* by value of the body: both have it, or can do it */
  Half half[2];
  VEC(ValueId) crossing; /* of the body: from the first to the second */
} LoopHalves;

static bool is_early_carry(const LoopHalves *halves, uint32_t i) {
  return i < halves->shape.carry && halves->s->early && halves->s->early[i];
}

static bool is_early(const LoopHalves *halves, ValueId v) {
  OpId def = halves->body->values.at[v].def;
  if (def != NO_OP) return halves->half[0].has[def];
  for (uint32_t i = 0; i < halves->shape.carry; i++)
    if (halves->body->args.at[i + 1] == v) return is_early_carry(halves, i);
  return false;
}

static void ask(LoopHalves *halves, bool *has, ValueId v) {
  OpId def = halves->body->values.at[v].def;
  if (def == NO_OP || has[def]) return;
  has[def] = true;
  for (uint32_t i = 0; i < halves->body->ops.at[def].nin; i++)
    ask(halves, has, halves->body->ops.at[def].in[i]);
}

static bool is_light(const Op *o) {
  OpFamily f = op_family(o->code);
  return f == FAMILY_SOURCE || f == FAMILY_ELEM || f == FAMILY_STRUCT;
}

static void find_again(LoopHalves *halves) {
  for (uint32_t i = 0; i < halves->body->args.n; i++)
    halves->again[halves->body->args.at[i]] = !i || !is_early_carry(halves, i - 1);
  EACH_OP (halves->body, o) {
    bool again = is_light(o);
    for (uint32_t j = 0; j < o->nin; j++) again &= halves->again[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) halves->again[o->out + j] = again;
  }
}

/* The second half reads v: it crosses, or is done again. */
static void need(LoopHalves *halves, ValueId v) {
  if (!is_early(halves, v)) return;
  if (halves->again[v]) {
    OpId def = halves->body->values.at[v].def;
    if (halves->half[1].has[def]) return;
    halves->half[1].has[def] = true;
    for (uint32_t i = 0; i < halves->body->ops.at[def].nin; i++)
      need(halves, halves->body->ops.at[def].in[i]);
    return;
  }
  for (uint32_t i = 0; i < halves->crossing.n; i++)
    if (halves->crossing.at[i] == v) return;
  vec_push(halves->s->m->arena, halves->crossing, v);
}

static void deal_ops(LoopHalves *halves) {
  bool *early = halves->half[0].has, *late = halves->half[1].has;
  for (OpId i = 0; i < halves->body->ops.n; i++)
    for (uint32_t j = 0; halves->s->first[i] && j < halves->body->ops.at[i].nin; j++)
      ask(halves, early, halves->body->ops.at[i].in[j]);
  for (OpId i = 0; i < halves->body->ops.n; i++) late[i] = !(early[i] |= halves->s->first[i]);
  for (OpId i = 0; i < halves->body->ops.n; i++)
    for (uint32_t j = 0; !early[i] && j < halves->body->ops.at[i].nin; j++)
      need(halves, halves->body->ops.at[i].in[j]);
  for (uint32_t i = 0; i < halves->body->results.n; i++)
    if (!is_early_carry(halves, i)) need(halves, halves->body->results.at[i]);
}

static bool reads(const LoopHalves *halves, const Half *half, ValueId v) {
  for (OpId i = 0; i < halves->body->ops.n; i++)
    for (uint32_t j = 0; half->has[i] && j < halves->body->ops.at[i].nin; j++)
      if (halves->body->ops.at[i].in[j] == v) return true;
  for (uint32_t i = 0; i < halves->body->results.n; i++)
    if (halves->body->results.at[i] == v && is_early_carry(halves, i) == (half == halves->half))
      return true;
  return false;
}

static ValueId add_arg(LoopHalves *halves, Half *half, ValueId v) {
  ValueId arg = fn_arg(halves->s->m, half->r.to, *value_type(halves->body, v));
  half->r.to->values.at[arg].placed = halves->body->values.at[v].placed;
  return half->r.map[v] = arg;
}

/* Carried values go to their half; other operands to the half that reads them. */
static void add_args(LoopHalves *halves, Half *half) {
  uint32_t whole = halves->shape.carry + halves->shape.invariant;
  add_arg(halves, half, halves->body->args.at[0]);
  half->shape = halves->shape;
  half->shape.carry = half->shape.invariant = half->shape.stacked = 0;
  for (uint32_t i = 0; i < halves->s->loop->nin; i++) {
    ValueId v = halves->body->args.at[i + 1];
    if (i < halves->shape.carry ? is_early_carry(halves, i) != (half == halves->half)
                                : !reads(halves, half, v))
      continue;
    add_arg(halves, half, v);
    vec_push(halves->s->m->arena, half->in, halves->s->in[i]);
    *(i < halves->shape.carry ? &half->shape.carry
      : i < whole             ? &half->shape.invariant
                              : &half->shape.stacked) += 1;
  }
}

static void copy_ops(LoopHalves *halves, Half *half) {
  for (OpId i = 0; i < halves->body->ops.n; i++)
    if (half->has[i]) rebuild_op(&half->r, &halves->body->ops.at[i]);
}

static void add_result(LoopHalves *halves, Half *half, ValueId v) {
  must(half->r.map[v] != NO_VALUE, "pipeline: %s lacks a result", half->r.to->name);
  fn_result(halves->s->m, half->r.to, half->r.map[v]);
}

/* Placed in f as in the body; only stages cut rounds. */
static void place_result(LoopHalves *halves, const Half *half, ValueId v, uint32_t result) {
  const LoopSplit *split = halves->s;
  Placement *p = &split->f->values.at[v].placed;
  *p = half->r.to->values.at[half->r.to->results.at[result]].placed;
  int axis = halves->shape.stages ? mesh_find(split->m, halves->shape.stages) : -1;
  if (axis >= 0) p->on[axis] = halves->shape.axis.dim;
}

static ValueId emit(LoopHalves *halves, int half) {
  LoopSplit *split = halves->s;
  Half *h = &halves->half[half];
  Op *o = rebuild_loop(split->m, split->f, h->r.to, h->shape, h->in.at, split->loop->loc);
  ValueId out = o->out;
  split->made[half] = split->f->ops.n - 1;
  for (uint32_t i = h->shape.carry; i < o->nout; i++) place_result(halves, h, out + i, i);
  for (uint32_t i = 0; i < h->shape.carry; i++)
    split->f->values.at[out + i].placed = split->f->values.at[h->in.at[i]].placed;
  return out;
}

static Half half_new(const LoopHalves *halves, const char *name) {
  Module *m = halves->s->m;
  Half half = {
      .r = {m, halves->body,
            fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.%s", halves->body->name, name)),
            value_map(m, halves->body)}};
  half.r.to->loc = halves->body->loc;
  half.has = ARENA_ARRAY(m->arena, bool, halves->body->ops.n + 1);
  return half;
}

/* Returns the first of the values that cross from the first half to the second. */
static ValueId emit_first(LoopHalves *halves) {
  Half *half = &halves->half[0];
  add_args(halves, half);
  half->shape.ninto = 0, half->shape.over = NULL, half->shape.offload = false;
  copy_ops(halves, half);
  for (uint32_t i = 0; i < halves->shape.carry; i++)
    if (is_early_carry(halves, i)) add_result(halves, half, halves->body->results.at[i]);
  for (uint32_t i = 0; i < halves->crossing.n; i++)
    add_result(halves, half, halves->crossing.at[i]);
  ValueId out = emit(halves, 0), next = out;
  for (uint32_t i = 0; i < halves->shape.carry; i++)
    if (is_early_carry(halves, i)) halves->s->out[i] = next++;
  return next;
}

static void emit_second(LoopHalves *halves, ValueId crossing) {
  Half *half = &halves->half[1];
  add_args(halves, half);
  for (uint32_t i = 0; i < halves->crossing.n; i++) {
    add_arg(halves, half, halves->crossing.at[i]);
    vec_push(halves->s->m->arena, half->in, crossing + i);
    half->shape.stacked++;
  }
  copy_ops(halves, half);
  for (uint32_t i = 0; i < halves->body->results.n; i++)
    if (!is_early_carry(halves, i)) add_result(halves, half, halves->body->results.at[i]);
  ValueId out = emit(halves, 1);
  for (uint32_t i = 0; i < halves->body->results.n; i++)
    if (!is_early_carry(halves, i)) halves->s->out[i] = out++;
}

void loop_split(LoopSplit *split) {
  LoopHalves halves = {.s = split, .body = split->loop->callee, .shape = loop_shape(split->loop)};
  halves.again = ARENA_ARRAY(split->m->arena, bool, halves.body->values.n + 1);
  halves.half[0] = half_new(&halves, split->names[0]),
  halves.half[1] = half_new(&halves, split->names[1]);
  find_again(&halves);
  deal_ops(&halves);
  emit_second(&halves, emit_first(&halves));
}

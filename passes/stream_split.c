/* pipeline: the loop over parts of the batch as two loops, one behind the other.

   The first does what the forward layers ask for, and nothing else; it carries nothing, so its
   rounds depend on nothing but their operands. What the second reads of it is stacked over the
   parts; but what follows from operands by element-wise ops and moves of indexes alone (masks,
   positions, random numbers) is done again. */
#include "passes/stream.h"

typedef struct Half {
  Rebuild r;
  bool *has;     /* by op of the body */
  uint32_t *arg; /* by operand of the loop: the one of this half, NO_VALUE */
  LoopShape shape;
  VEC(ValueId) in; /* operands, in f */
} Half;

typedef struct LoopHalves {
  StreamSplit *s;
  const Fn *body;
  LoopShape shape;
  bool *again; /* by value of the body: done in both */
  Half half[2];
  VEC(ValueId) crossing; /* of the body: from the first to the second */
} LoopHalves;

static bool is_early(const LoopHalves *k, ValueId v) {
  OpId def = k->body->values.at[v].def;
  return def != NO_OP && k->half[0].has[def];
}

static void ask(LoopHalves *k, bool *has, ValueId v) {
  OpId def = k->body->values.at[v].def;
  if (def == NO_OP || has[def]) return;
  has[def] = true;
  for (uint32_t i = 0; i < k->body->ops.at[def].nin; i++) ask(k, has, k->body->ops.at[def].in[i]);
}

static bool is_light(const Op *o) {
  OpFamily f = op_family(o->code);
  return f == FAMILY_SOURCE || f == FAMILY_ELEM || f == FAMILY_STRUCT;
}

static void find_again(LoopHalves *k) {
  for (uint32_t i = 0; i < k->body->args.n; i++) k->again[k->body->args.at[i]] = true;
  for (OpId i = 0; i < k->body->ops.n; i++) {
    const Op *o = &k->body->ops.at[i];
    bool again = is_light(o);
    for (uint32_t j = 0; j < o->nin; j++) again &= k->again[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) k->again[o->out + j] = again;
  }
}

/* The second half reads v: it crosses, or is done again. */
static void need(LoopHalves *k, ValueId v) {
  if (!is_early(k, v)) return;
  if (k->again[v]) {
    OpId def = k->body->values.at[v].def;
    if (k->half[1].has[def]) return;
    k->half[1].has[def] = true;
    for (uint32_t i = 0; i < k->body->ops.at[def].nin; i++) need(k, k->body->ops.at[def].in[i]);
    return;
  }
  for (uint32_t i = 0; i < k->crossing.n; i++)
    if (k->crossing.at[i] == v) return;
  vec_push(k->s->m->arena, k->crossing, v);
}

static void deal_ops(LoopHalves *k) {
  const Op *first = &k->body->ops.at[k->s->first];
  bool *early = k->half[0].has, *late = k->half[1].has;
  early[k->s->first] = true;
  for (uint32_t i = 0; i < first->nin; i++) ask(k, early, first->in[i]);
  for (OpId i = 0; i < k->body->ops.n; i++) late[i] = !early[i];
  for (OpId i = 0; i < k->body->ops.n; i++)
    for (uint32_t j = 0; !early[i] && j < k->body->ops.at[i].nin; j++)
      need(k, k->body->ops.at[i].in[j]);
  for (uint32_t i = 0; i < k->body->results.n; i++) need(k, k->body->results.at[i]);
}

static bool reads(const LoopHalves *k, const Half *h, ValueId v) {
  for (OpId i = 0; i < k->body->ops.n; i++)
    for (uint32_t j = 0; h->has[i] && j < k->body->ops.at[i].nin; j++)
      if (k->body->ops.at[i].in[j] == v) return true;
  for (uint32_t i = 0; h == &k->half[1] && i < k->body->results.n; i++)
    if (k->body->results.at[i] == v) return true;
  return false;
}

static ValueId add_arg(LoopHalves *k, Half *h, ValueId v) {
  ValueId arg = fn_arg(k->s->m, h->r.to, *value_type(k->body, v));
  h->r.to->values.at[arg].placed = k->body->values.at[v].placed;
  return h->r.map[v] = arg;
}

/* Carried values go with the second half; other operands with who reads them. */
static void add_args(LoopHalves *k, Half *h) {
  uint32_t whole = k->shape.carry + k->shape.invariant;
  add_arg(k, h, k->body->args.at[0]);
  h->shape = k->shape;
  h->shape.invariant = h->shape.stacked = 0;
  if (h == k->half) h->shape.carry = 0;
  for (uint32_t i = 0; i < k->s->loop->nin; i++) {
    ValueId v = k->body->args.at[i + 1];
    if (i < k->shape.carry ? h == k->half : !reads(k, h, v)) continue;
    add_arg(k, h, v);
    vec_push(k->s->m->arena, h->in, k->s->in[i]);
    if (i >= k->shape.carry) *(i < whole ? &h->shape.invariant : &h->shape.stacked) += 1;
  }
}

static void copy_ops(LoopHalves *k, Half *h) {
  for (OpId i = 0; i < k->body->ops.n; i++)
    if (h->has[i]) rebuild_op(&h->r, &k->body->ops.at[i]);
}

/* Placed in f as in the body; parts are not cut. */
static ValueId emit(LoopHalves *k, Half *h) {
  const StreamSplit *s = k->s;
  Op *o = rebuild_loop(s->m, s->f, h->r.to, h->shape, h->in.at, s->loop->loc);
  for (uint32_t i = 0; i < o->nout; i++)
    s->f->values.at[o->out + i].placed = h->r.to->values.at[h->r.to->results.at[i]].placed;
  return o->out;
}

static Half half_new(const LoopHalves *k, const char *name) {
  Module *m = k->s->m;
  Half h = {.r = {m, k->body,
                  fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.%s", k->body->name, name)),
                  value_map(m, k->body)}};
  h.r.to->loc = k->body->loc;
  h.has = ARENA_ARRAY(m->arena, bool, k->body->ops.n + 1);
  return h;
}

static ValueId emit_first(LoopHalves *k) {
  Half *h = &k->half[0];
  add_args(k, h);
  copy_ops(k, h);
  for (uint32_t i = 0; i < k->crossing.n; i++)
    fn_result(k->s->m, h->r.to, h->r.map[k->crossing.at[i]]);
  return emit(k, h);
}

static ValueId emit_second(LoopHalves *k, ValueId crossing) {
  Half *h = &k->half[1];
  add_args(k, h);
  for (uint32_t i = 0; i < k->crossing.n; i++) {
    add_arg(k, h, k->crossing.at[i]);
    vec_push(k->s->m->arena, h->in, crossing + i);
    h->shape.stacked++;
  }
  copy_ops(k, h);
  rebuild_results(&h->r);
  return emit(k, h);
}

void stream_split(StreamSplit *s) {
  LoopHalves k = {.s = s, .body = s->loop->callee, .shape = loop_shape(s->loop)};
  k.again = ARENA_ARRAY(s->m->arena, bool, k.body->values.n + 1);
  k.half[0] = half_new(&k, "forward"), k.half[1] = half_new(&k, "backward");
  find_again(&k);
  deal_ops(&k);
  ValueId out = emit_second(&k, emit_first(&k));
  for (uint32_t i = 0; i < s->loop->nout; i++) s->out[i] = out + i;
}

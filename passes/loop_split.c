/* pipeline: a loop as two loops, one behind the other (stream.h).

   The first does what it is asked for, and nothing else; what it does not carry depends on nothing
   but its operands. What the second reads of it is stacked over the rounds; but what follows from
   operands by element-wise ops and moves of indexes alone (masks, positions, random numbers) is
   done again. Must not: know what the rounds are for. */
#include "ir/placement.h"
#include "passes/stream.h"

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

static bool is_early_carry(const LoopHalves *k, uint32_t i) {
  return i < k->shape.carry && k->s->early && k->s->early[i];
}

static bool is_early(const LoopHalves *k, ValueId v) {
  OpId def = k->body->values.at[v].def;
  if (def != NO_OP) return k->half[0].has[def];
  for (uint32_t i = 0; i < k->shape.carry; i++)
    if (k->body->args.at[i + 1] == v) return is_early_carry(k, i);
  return false;
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
  for (uint32_t i = 0; i < k->body->args.n; i++)
    k->again[k->body->args.at[i]] = !i || !is_early_carry(k, i - 1);
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
  bool *early = k->half[0].has, *late = k->half[1].has;
  for (OpId i = 0; i < k->body->ops.n; i++)
    for (uint32_t j = 0; k->s->first[i] && j < k->body->ops.at[i].nin; j++)
      ask(k, early, k->body->ops.at[i].in[j]);
  for (OpId i = 0; i < k->body->ops.n; i++) late[i] = !(early[i] |= k->s->first[i]);
  for (OpId i = 0; i < k->body->ops.n; i++)
    for (uint32_t j = 0; !early[i] && j < k->body->ops.at[i].nin; j++)
      need(k, k->body->ops.at[i].in[j]);
  for (uint32_t i = 0; i < k->body->results.n; i++)
    if (!is_early_carry(k, i)) need(k, k->body->results.at[i]);
}

static bool reads(const LoopHalves *k, const Half *h, ValueId v) {
  for (OpId i = 0; i < k->body->ops.n; i++)
    for (uint32_t j = 0; h->has[i] && j < k->body->ops.at[i].nin; j++)
      if (k->body->ops.at[i].in[j] == v) return true;
  for (uint32_t i = 0; i < k->body->results.n; i++)
    if (k->body->results.at[i] == v && is_early_carry(k, i) == (h == k->half)) return true;
  return false;
}

static ValueId add_arg(LoopHalves *k, Half *h, ValueId v) {
  ValueId arg = fn_arg(k->s->m, h->r.to, *value_type(k->body, v));
  h->r.to->values.at[arg].placed = k->body->values.at[v].placed;
  return h->r.map[v] = arg;
}

/* Carried values go with their half; other operands with who reads them. */
static void add_args(LoopHalves *k, Half *h) {
  uint32_t whole = k->shape.carry + k->shape.invariant;
  add_arg(k, h, k->body->args.at[0]);
  h->shape = k->shape;
  h->shape.carry = h->shape.invariant = h->shape.stacked = 0;
  for (uint32_t i = 0; i < k->s->loop->nin; i++) {
    ValueId v = k->body->args.at[i + 1];
    if (i < k->shape.carry ? is_early_carry(k, i) != (h == k->half) : !reads(k, h, v)) continue;
    add_arg(k, h, v);
    vec_push(k->s->m->arena, h->in, k->s->in[i]);
    *(i < k->shape.carry ? &h->shape.carry
      : i < whole        ? &h->shape.invariant
                         : &h->shape.stacked) += 1;
  }
}

static void copy_ops(LoopHalves *k, Half *h) {
  for (OpId i = 0; i < k->body->ops.n; i++)
    if (h->has[i]) rebuild_op(&h->r, &k->body->ops.at[i]);
}

static void add_result(LoopHalves *k, Half *h, ValueId v) {
  must(h->r.map[v] != NO_VALUE, "pipeline: %s lacks a result", h->r.to->name);
  fn_result(k->s->m, h->r.to, h->r.map[v]);
}

/* Placed in f as in the body; only stages cut rounds. */
static void place_result(LoopHalves *k, const Half *h, ValueId v, uint32_t result) {
  const LoopSplit *s = k->s;
  Placement *p = &s->f->values.at[v].placed;
  *p = h->r.to->values.at[h->r.to->results.at[result]].placed;
  int axis = k->shape.stages ? mesh_find(s->m, k->shape.stages) : -1;
  if (axis >= 0) p->on[axis] = k->shape.axis.dim;
}

static ValueId emit(LoopHalves *k, int half) {
  LoopSplit *s = k->s;
  Half *h = &k->half[half];
  Op *o = rebuild_loop(s->m, s->f, h->r.to, h->shape, h->in.at, s->loop->loc);
  ValueId out = o->out;
  s->made[half] = s->f->ops.n - 1;
  for (uint32_t i = h->shape.carry; i < o->nout; i++) place_result(k, h, out + i, i);
  for (uint32_t i = 0; i < h->shape.carry; i++)
    s->f->values.at[out + i].placed = s->f->values.at[h->in.at[i]].placed;
  return out;
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

/* Returns the first of what crosses. */
static ValueId emit_first(LoopHalves *k) {
  Half *h = &k->half[0];
  add_args(k, h);
  h->shape.ninto = 0, h->shape.over = NULL, h->shape.offload = false;
  copy_ops(k, h);
  for (uint32_t i = 0; i < k->shape.carry; i++)
    if (is_early_carry(k, i)) add_result(k, h, k->body->results.at[i]);
  for (uint32_t i = 0; i < k->crossing.n; i++) add_result(k, h, k->crossing.at[i]);
  ValueId out = emit(k, 0), next = out;
  for (uint32_t i = 0; i < k->shape.carry; i++)
    if (is_early_carry(k, i)) k->s->out[i] = next++;
  return next;
}

static void emit_second(LoopHalves *k, ValueId crossing) {
  Half *h = &k->half[1];
  add_args(k, h);
  for (uint32_t i = 0; i < k->crossing.n; i++) {
    add_arg(k, h, k->crossing.at[i]);
    vec_push(k->s->m->arena, h->in, crossing + i);
    h->shape.stacked++;
  }
  copy_ops(k, h);
  for (uint32_t i = 0; i < k->body->results.n; i++)
    if (!is_early_carry(k, i)) add_result(k, h, k->body->results.at[i]);
  ValueId out = emit(k, 1);
  for (uint32_t i = 0; i < k->body->results.n; i++)
    if (!is_early_carry(k, i)) k->s->out[i] = out++;
}

void loop_split(LoopSplit *s) {
  LoopHalves k = {.s = s, .body = s->loop->callee, .shape = loop_shape(s->loop)};
  k.again = ARENA_ARRAY(s->m->arena, bool, k.body->values.n + 1);
  k.half[0] = half_new(&k, s->names[0]), k.half[1] = half_new(&k, s->names[1]);
  find_again(&k);
  deal_ops(&k);
  emit_second(&k, emit_first(&k));
}

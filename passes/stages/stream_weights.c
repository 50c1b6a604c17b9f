/* pipeline: splits the backward loop over micro-batches in two, under `pipeline zero_bubble`.

   The previous stage waits for nothing but the gradient of this stage's input. So the loop over
   layers is cut first: its carried values stay, with all their dependences, and the gradients of
   weights, which no stage waits for, become a second loop over layers; then the loop over
   micro-batches is cut after the first of these loops. Gradients of outputs that products with
   weights read are passed from the first half to the second, by micro-batch and layer. Terms of
   sums over micro-batches that the first half makes anyway, such as gradients of a stack after the
   stages, are added up in the first half. Must not: change a number; the order of sums over
   micro-batches and over layers stays. */
#include "ir/loop.h"
#include "stream.h"
#include "ir/shape/placement.h"

typedef struct WeightCut {
  Module *m;
  Rebuild r;   /* of the body over parts */
  OpId layers; /* of the body: the backward loop of stages */
  OpId inputs; /* of the new body: its first half */
} WeightCut;

static OpId backward_layers(const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop && attr_get(&o->attrs, ATTR_stages) &&
        attr_int(&o->attrs, ATTR_reverse, 0))
      return i;
  }
  return NO_OP;
}

/* By carried value: is it carried from stage to stage, not added up over rounds? As in pass
   `localize`. */
static bool *handed_on(const WeightCut *cut, const Op *o) {
  uint32_t carry = loop_shape(o).carry;
  int axis = mesh_find(cut->m, loop_shape(o).stages);
  bool *on = ARENA_ARRAY(cut->m->arena, bool, carry + 1);
  for (uint32_t i = 0; i < carry; i++) on[i] = !cut->r.from->values.at[o->in[i]].placed.on[axis];
  return on;
}

static bool *makers_of(const WeightCut *cut, const Fn *body, const bool *on, uint32_t carry) {
  bool *first = ARENA_ARRAY(cut->m->arena, bool, body->ops.n + 1);
  for (uint32_t i = 0; i < carry; i++) {
    OpId def = body->values.at[body->results.at[i]].def;
    if (on[i] && def != NO_OP) first[def] = true;
  }
  return first;
}

static void cut_layers(WeightCut *cut, const Op *o) {
  uint32_t carry = loop_shape(o).carry;
  ValueId *in = ARENA_ARRAY(cut->m->arena, ValueId, o->nin + 1),
          *out = ARENA_ARRAY(cut->m->arena, ValueId, o->nout + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = cut->r.map[o->in[i]];
  const bool *on = handed_on(cut, o);
  LoopSplit split = {
      .m = cut->m, .f = cut->r.to, .loop = o, .in = in, .names = {"inputs", "weights"}};
  split.first = makers_of(cut, o->callee, on, carry), split.early = on, split.out = out;
  loop_split(&split);
  for (uint32_t i = 0; i < o->nout; i++) cut->r.map[o->out + i] = out[i];
  cut->inputs = split.made[0];
}

static Fn *cut_body(WeightCut *cut, const Fn *body) {
  cut->r = rebuild_begin(cut->m, body);
  for (uint32_t i = 0; i < body->args.n; i++)
    cut->r.to->values.at[cut->r.to->args.at[i]].placed = body->values.at[body->args.at[i]].placed;
  for (OpId i = 0; i < body->ops.n; i++)
    if (i == cut->layers) cut_layers(cut, &body->ops.at[i]);
    else rebuild_op(&cut->r, &body->ops.at[i]);
  rebuild_results(&cut->r);
  return cut->r.to;
}

/* By op: is it a dependence of an op in `first`? */
static bool *asked_for(Module *m, const Fn *body, const bool *first) {
  bool *asked = ARENA_ARRAY(m->arena, bool, body->ops.n + 1);
  for (OpId i = body->ops.n; i-- > 0;) {
    const Op *o = &body->ops.at[i];
    asked[i] |= first[i];
    for (uint32_t k = 0; asked[i] && k < o->nin; k++) {
      OpId def = body->values.at[o->in[k]].def;
      if (def != NO_OP) asked[def] = true;
    }
  }
  return asked;
}

/* Does a needed op make v, apart from its cast and the op that keeps one stage's value? */
static bool is_made(const Fn *body, const bool *asked, ValueId v) {
  OpId def = body->values.at[v].def;
  while (def != NO_OP && !asked[def]) {
    const Op *o = &body->ops.at[def];
    if (o->nin != 1 || (o->code != OP_cast && o->code != OP_keep_first)) return false;
    def = body->values.at[o->in[0]].def;
  }
  return def != NO_OP;
}

/* Sums over micro-batches of values that the first half makes: the first half carries them, with
   the ops that add. */
static bool *early_sums(Module *m, const Op *loop, bool *first) {
  const Fn *body = loop->callee;
  uint32_t carry = loop_shape(loop).carry;
  const bool *asked = asked_for(m, body, first);
  bool *early = ARENA_ARRAY(m->arena, bool, carry + 1);
  for (uint32_t i = 0; i < carry; i++) {
    RunningSum sum;
    ValueId v = body->results.at[i];
    early[i] = running_sum(body, body->args.at[i + 1], v, &sum) && is_made(body, asked, sum.added);
    if (early[i]) first[body->values.at[v].def] = true;
  }
  return early;
}

static void cut_parts(Module *m, Rebuild *rebuild, const Op *o, OpId layers) {
  WeightCut cut = {.m = m, .layers = layers};
  Op loop = *o;
  loop.callee = cut_body(&cut, o->callee);
  bool *first = ARENA_ARRAY(m->arena, bool, loop.callee->ops.n + 1);
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = rebuild->map[o->in[i]];
  first[cut.inputs] = true;
  LoopSplit split = {
      .m = m, .f = rebuild->to, .loop = &loop, .in = in, .names = {"inputs", "weights"}};
  split.early = early_sums(m, &loop, first);
  split.first = first, split.out = &rebuild->map[o->out];
  loop_split(&split);
}

void stream_weights(Module *m, Fn *step) {
  Rebuild rebuild = rebuild_begin(m, step);
  EACH_OP (step, o) {
    OpId layers = loop_is_micro(o) ? backward_layers(o->callee) : NO_OP;
    if (layers == NO_OP) rebuild_op(&rebuild, o);
    else cut_parts(m, &rebuild, o, layers);
  }
  module_replace(m, step, rebuild.to);
}

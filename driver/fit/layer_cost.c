/* The cost of one layer in a micro-batch, by the bodies of the two loops over layers of a small
   program: forward and backward (search.h, CostLayer). Schedules of pipelines with turns for
   gradients of weights split backward in the same way: an op that no gradient of activations
   depends on is later (passes/stages/stream_weights.c). Must not: know plans. */
#include "search.h"
#include "ir/cost/kernel_time.h"
#include "ir/bytes.h"
#include "ir/loop.h"
#include "ir/schedule/message.h"
#include "ir/shape/placement.h"

typedef struct LayerLoops {
  const Module *m;
  const Machine *machine;
  const Op *loop[2]; /* forward, backward */
} LayerLoops;

/* The two loops over layers of a body; false: it has others. */
static bool find_loops(const Fn *body, LayerLoops *loops) {
  int n = 0;
  EACH_OP (body, o) {
    if (o->code != OP_loop || loop_rounds(o) != ROUNDS_layers) continue;
    if (n == 2) return false;
    loops->loop[n++] = o;
  }
  for (int i = 0; i < n; i++)
    EACH_OP (loops->loop[i]->callee, o)
      if (o->code == OP_loop) return false;
  return n == 2 && attr_int(&loops->loop[1]->attrs, ATTR_reverse, 0);
}

static bool of_samples(const Module *m, const Type *t) {
  return type_find(t, intern(m->ctx->names, "Batch")) >= 0;
}

static double bytes_of(const Type *t) {
  return (double)type_count(t) * (double)elem_bytes(t->elem);
}

/* ---- messages ---- */

static void add_sent(const LayerLoops *loops, const Fn *body, const Op *o, SentList *out) {
  int axis = mesh_find(loops->m, attr_str(&o->attrs, ATTR_axis, ""));
  Message message = message_of(body, o);
  uint32_t i = 0;
  while (i < out->n && (out->at[i].axis != axis || out->at[i].kind != o->code)) i++;
  must(i < MOST_SENT, "search: messages of %u kinds", i);
  if (i == out->n) out->at[out->n++] = (SentKind){axis, o->code, 0, 0};
  out->at[i].calls += (double)(message.times * message.pieces);
  out->at[i].bytes += message_traffic(body, o) * elem_bytes(value_type(body, o->out)->elem);
}

/* Messages of all ops, or of those in `which`. */
static void add_messages(const LayerLoops *loops, const Fn *body, const bool *which,
                         SentList *out) {
  for (OpId i = 0; i < body->ops.n; i++)
    if (op_family(body->ops.at[i].code) == FAMILY_COLLECTIVE && (!which || which[i]))
      add_sent(loops, body, &body->ops.at[i], out);
}

/* Those that kernels wait for, from start to end; `later`: of gradients of weights, or others. */
static void add_blocking(const LayerLoops *loops, const Fn *body, const bool *which, bool later,
                         SentList *out) {
  for (OpId i = 0; i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    bool blocks = !strcmp(attr_str(&o->attrs, ATTR_stall_reason, ""), "needed at once");
    if (blocks && (which && which[i]) == later) add_sent(loops, body, o, out);
  }
}

/* ---- gradients of weights ---- */

/* By op: does no carried gradient of activations depend on it? */
static bool *find_later(Arena *arena, const LayerLoops *loops, const Fn *body) {
  uint32_t carry = (uint32_t)attr_int(&loops->loop[1]->attrs, ATTR_carry, 0);
  bool *asked = ARENA_ARRAY(arena, bool, body->ops.n + 1);
  for (uint32_t i = 0; i < carry; i++) {
    OpId def = body->values.at[body->results.at[i]].def;
    if (def != NO_OP && of_samples(loops->m, value_type(body, body->results.at[i])))
      asked[def] = true;
  }
  for (OpId i = body->ops.n; i-- > 0;)
    for (uint32_t k = 0; asked[i] && k < body->ops.at[i].nin; k++) {
      OpId def = body->values.at[body->ops.at[i].in[k]].def;
      if (def != NO_OP) asked[def] = true;
    }
  for (OpId i = 0; i < body->ops.n; i++) asked[i] = !asked[i];
  return asked;
}

/* The value that v is a view of, or that its flight brings. */
static ValueId root_of(const Fn *body, ValueId v) {
  const Op *o;
  while ((o = value_def(body, v)) && (o->code == OP_rename || o->code == OP_wait)) v = o->in[0];
  return v;
}

static double later_seconds(const LayerLoops *loops, const Fn *body, const bool *later) {
  double seconds = 0;
  for (OpId i = 0; i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    if (!later[i] || o->code != OP_kernel || kernel_on_host(loops->m, o->callee)) continue;
    KernelTime time = kernel_time(loops->m, loops->machine, o->callee);
    seconds += kernel_sum(&time);
  }
  return seconds;
}

/* Element-wise kernels of arguments alone are run again, their results are not kept. */
static bool runs_again(const Fn *body, const Op *o) {
  bool all = o->code == OP_kernel && !strcmp(attr_str(&o->callee->attrs, ATTR_family, ""), "elem");
  for (uint32_t i = 0; i < o->nin; i++) all &= body->values.at[o->in[i]].def == NO_OP;
  return all;
}

static void add_read(const LayerLoops *loops, const Fn *body, const bool *later, ValueId v,
                     CostLayer *out) {
  OpId def = body->values.at[v].def;
  const Type *t = value_type(body, v);
  if (!of_samples(loops->m, t)) return;
  if (def == NO_OP) out->kept += bytes_of(t);
  else if (!later[def] && !runs_again(body, &body->ops.at[def])) out->passed += bytes_of(t);
}

/* Each value once. */
static void add_kept(Arena *arena, const LayerLoops *loops, const Fn *body, const bool *later,
                     CostLayer *out) {
  bool *seen = ARENA_ARRAY(arena, bool, body->values.n + 1);
  for (OpId i = 0; i < body->ops.n; i++)
    for (uint32_t k = 0; later[i] && k < body->ops.at[i].nin; k++) {
      ValueId v = root_of(body, body->ops.at[i].in[k]);
      if (!seen[v]) add_read(loops, body, later, v, out);
      seen[v] = true;
    }
}

/* ---- outside of layers ---- */

static double op_seconds(const Module *m, const Machine *machine, const Op *o) {
  KernelTime time = {0};
  if (o->code == OP_loop) time = kernels_time(m, machine, o->callee);
  else if (o->code == OP_kernel && !kernel_on_host(m, o->callee))
    time = kernel_time(m, machine, o->callee);
  return kernel_sum(&time) * (double)attr_int(&o->attrs, ATTR_trip, 1);
}

static bool reads_samples(const Module *m, const Fn *body, const Op *o) {
  bool reads = false;
  for (uint32_t i = 0; i < o->nin; i++) reads |= of_samples(m, value_type(body, o->in[i]));
  return reads;
}

/* Between the two loops over layers, with loops over blocks of samples, is the head; after them are
   its gradients of weights, and those of values that the first layer gets: of tables, for example.
   0: a body has more loops over layers, or fewer. */
void cost_of_ends(const Module *m, const Machine *machine, const Fn *body, double *head,
                  double *first) {
  Arena *arena = arena_new();
  bool *after = ARENA_ARRAY(arena, bool, body->values.n + 1);
  int loops = 0;
  *head = *first = 0;
  EACH_OP (body, o) {
    bool layers = o->code == OP_loop && loop_rounds(o) == ROUNDS_layers, reads = false;
    loops += layers;
    for (uint32_t i = 0; i < o->nin; i++) reads |= after[o->in[i]];
    for (uint32_t i = 0; i < o->nout; i++)
      after[o->out + i] =
          layers ? loops == 2 && of_samples(m, value_type(body, o->out + i)) : reads;
    if (layers || !loops) continue;
    double seconds = op_seconds(m, machine, o);
    if (reads) *first += seconds;
    else if (loops == 1 || reads_samples(m, body, o)) *head += seconds;
  }
  if (loops != 2) *head = *first = 0;
  arena_free(arena);
}

/* ---- a layer ---- */

/* Stacks that the loop forward hands to the loop backward: bytes of one layer, those of a buffer
   once. */
static double saved_bytes(const LayerLoops *loops, const Fn *body) {
  const Op *forward = loops->loop[0], *backward = loops->loop[1];
  Arena *arena = arena_new();
  bool *seen = ARENA_ARRAY(arena, bool, body->values.n + 1);
  const ValueId *root = shared_bytes(arena, body).of;
  double bytes = 0;
  for (uint32_t i = loop_whole(backward); i < backward->nin; i++) {
    ValueId v = root[backward->in[i]];
    bool read = value_is_used(backward->callee, backward->callee->args.at[i + 1]);
    if (!read || seen[v] || value_def(body, v) != forward) continue;
    seen[v] = true, bytes += (double)value_span_bytes(&body->values.at[v]);
  }
  arena_free(arena);
  return bytes / (double)attr_int(&forward->attrs, ATTR_trip, 1);
}

CostLayer cost_of_layer(const Module *m, const Machine *machine, const Fn *body) {
  CostLayer out = {0};
  LayerLoops loops = {.m = m, .machine = machine};
  if (!machine->reach || !find_loops(body, &loops)) return out;
  const Fn *forward = loops.loop[0]->callee, *backward = loops.loop[1]->callee;
  Arena *arena = arena_new();
  bool *later = find_later(arena, &loops, backward);
  KernelTime time = kernels_time(m, machine, forward);
  out.known = true, out.forward = kernel_sum(&time);
  out.later = later_seconds(&loops, backward, later);
  add_messages(&loops, forward, NULL, &out.forward_sent);
  add_messages(&loops, backward, later, &out.later_sent);
  add_blocking(&loops, forward, NULL, false, &out.blocking[TURN_FORWARD]);
  add_blocking(&loops, backward, later, false, &out.blocking[TURN_BACKWARD]);
  add_blocking(&loops, backward, later, true, &out.blocking[TURN_WEIGHTS]);
  add_kept(arena, &loops, backward, later, &out);
  out.saved = saved_bytes(&loops, body);
  arena_free(arena);
  return out;
}

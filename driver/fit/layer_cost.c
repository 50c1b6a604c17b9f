/* The cost of one layer in a micro-batch, by the bodies of the two loops over layers of a small
   program: forward and backward (search.h, CostLayer). Schedules of pipelines with turns for
   gradients of weights split backward in the same way: an op that no gradient of activations
   depends on is later (passes/stages/stream_weights.c). Must not: know plans. */
#include "search.h"
#include "ir/cost/kernel_time.h"
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

/* Those that kernels wait for, from start to end. */
static void add_blocking(const LayerLoops *loops, const Fn *body, const bool *later,
                         SentList *out) {
  for (OpId i = 0; i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    bool blocks = !strcmp(attr_str(&o->attrs, ATTR_stall_reason, ""), "needed at once");
    if (blocks && !(later && later[i])) add_sent(loops, body, o, out);
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
    if (!later[i] || o->code != OP_kernel || kernel_beside(loops->m, o->callee)) continue;
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
  add_blocking(&loops, forward, NULL, &out.blocking);
  add_blocking(&loops, backward, later, &out.blocking);
  add_blocking(&loops, backward, NULL, &out.blocking_all);
  add_blocking(&loops, forward, NULL, &out.blocking_all);
  add_kept(arena, &loops, backward, later, &out);
  arena_free(arena);
  return out;
}

/* Messages of one function in flight (flight.h): which messages can be in flight, from where to
   where, and the function with its starts and waits.

   `zero prefetch = n`: the all-gathers of a body whose operand is a slice of a stacked operand,
   i.e. the gathers of layers, start n rounds before the round that reads them; each has n + 1
   buffers.

   `zero overlap`: the reduce-scatters of a body that write straight into stacked results are
   waited for one round later, and a further collective on their result runs during that round. Any
   other collective overlaps with the kernels and loops between the op that makes its operand and
   the first op that needs its result. A gather of weights, whose operand is complete from the
   start, starts before the last loop that precedes it, or with the function: an earlier start
   would only need memory for longer. A sum in place starts after the last access to its operand:
   that costs no memory. An all-to-all starts after the op that makes its operand and holds a
   buffer for longer, while the operands of other messages are made. Rotations, the rounds of a
   ring, do the same without that setting.

   The pass runs after `schedule`: order is final, and views come right before their first reader,
   so the wait belongs before the first reader of a result. The kernels are not touched, so no bit
   of a number depends on these two settings. Must not: move kernels; let the choice depend on
   anything but the module. */
#include "ir/loop.h"
#include "fill.h"
#include "prefetch.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/shape/view.h"
#include <string.h>

typedef struct Plan { /* for one collective */
  bool flies;
  int64_t rounds;
  OpId from, to;   /* it starts before op `from`, and is waited for before op `to` */
  const char *why; /* it does not, where messages may; NULL: it does, or they may not */
} Plan;

typedef struct PrefetchPass {
  Module *m;
  const Fn *f, *as; /* before the change; the function now in the module */
  const ValueId *class;
  int64_t ahead; /* rounds */
  bool overlap;
  const bool *stays;
  Plan *plan;         /* by op */
  VEC(OpId) messages; /* those that fly */
} PrefetchPass;

static const Value *value(const PrefetchPass *pass, ValueId v) { return &pass->f->values.at[v]; }

/* ---- over rounds ---- */

/* Loops whose rounds will follow a pipeline schedule (turn_loops.c). The results of one such loop
   are read by another in its next turn, so they are not available rounds earlier, nor may they
   arrive a round later. */
static bool takes_turns(const Module *m, const Op *loop) {
  return loop_is_micro(loop) && module_class(m).axis >= 0 && plan_takes_turns(m);
}

/* Is that operand (of the first `whole`: no slice), or result, a slice in all loops over f? */
static bool is_slice(const PrefetchPass *pass, bool operand, uint32_t number) {
  bool any = false;
  for (uint32_t i = 0; i < pass->m->fns.n; i++)
    EACH_OP (pass->m->fns.at[i], o) {
      if (o->callee != pass->as || o->code != OP_loop) continue;
      LoopShape shape = loop_shape(o);
      if (number < (operand ? shape.carry + shape.invariant : shape.carry)) return false;
      if (takes_turns(pass->m, o)) return false;
      any |= shape.trip > 1;
    }
  return any;
}

static bool in_caller(const PrefetchPass *pass, ValueId v) {
  return flight_in_caller(pass->f, pass->class, v);
}

static bool can_fetch(const PrefetchPass *pass, const Op *o) {
  const Value *from = value(pass, o->in[0]);
  return o->code == OP_all_gather && op_can_cross(o) && from->def == NO_OP && from->result > 0 &&
         is_slice(pass, true, from->result - 1) && pass->class[o->out] == o->out &&
         !in_caller(pass, o->out);
}

/* Does an op write into the bytes of that class? */
static bool writes(const PrefetchPass *pass, const Op *o, ValueId class) {
  for (uint32_t k = 0; k < o->nout; k++)
    if (pass->class[o->out + k] == class && value(pass, o->out + k)->storage.view != VIEW_OF)
      return true;
  return false;
}

static bool is_inplace(const PrefetchPass *pass, const Op *o) {
  return value(pass, o->out)->storage.view == VIEW_INPLACE;
}

/* The reduce-scatter, or all-reduce in place, whose operand is the result of o; NULL: none. */
static const Op *sender_on(const PrefetchPass *pass, const Op *o) {
  for (OpId i = (OpId)(o - pass->f->ops.at) + 1; i < pass->f->ops.n; i++) {
    const Op *q = &pass->f->ops.at[i];
    bool sums = q->code == OP_reduce_scatter || (q->code == OP_all_reduce && is_inplace(pass, q));
    if (sums && op_can_cross(q) && q->in[0] == o->out) return q;
  }
  return NULL;
}

/* Only the ops of its chain use the bytes of v. */
static bool is_alone(const PrefetchPass *pass, const Op *o, const Op *next) {
  for (ValueId w = 0; w < pass->f->values.n; w++)
    if (w != o->out && pass->class[w] == pass->class[o->out] && (!next || w != next->out) &&
        !(is_inplace(pass, o) && w == o->in[0]))
      return false;
  return true;
}

static uint32_t count_readers(const PrefetchPass *pass, ValueId v) {
  uint32_t n = 0;
  for (OpId i = 0; i < pass->f->ops.n; i++)
    for (uint32_t k = 0; k < pass->f->ops.at[i].nin; k++) n += pass->f->ops.at[i].in[k] == v;
  return n;
}

/* Is o's value only returned as a stacked result, or only read by a collective for which the same
   holds? */
static bool leaves(const PrefetchPass *pass, const Op *o) {
  const Op *next = sender_on(pass, o);
  uint32_t returned = UINT32_MAX, times = 0;
  for (uint32_t i = 0; i < pass->f->results.n; i++)
    if (pass->f->results.at[i] == o->out) returned = i, times++;
  if (count_readers(pass, o->out) != (next ? 1 : 0) || !is_alone(pass, o, next)) return false;
  return next ? !times && leaves(pass, next) : times == 1 && is_slice(pass, false, returned);
}

static bool can_drain(const PrefetchPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id], *before = value_def(pass->f, o->in[0]);
  bool behind = before && before < o && sender_on(pass, before) == o &&
                pass->plan[before - pass->f->ops.at].rounds == 1;
  if (!pass->overlap || !op_can_cross(o) || !leaves(pass, o)) return false;
  if (behind) return true;
  for (OpId i = id + 1; i < pass->f->ops.n; i++)
    if (writes(pass, &pass->f->ops.at[i], pass->class[o->in[0]])) return false;
  return o->code == OP_reduce_scatter && !in_caller(pass, o->in[0]);
}

/* ---- in one function ---- */

/* Does the store overwrite the global that is itself the operand of the message? */
static bool stores_over(const PrefetchPass *pass, const Op *o, ValueId sent) {
  const Op *load = value_def(pass->f, pass->class[sent]);
  return o->code == OP_store && load && load->code == OP_load && load->global == o->global;
}

static OpId needed_at(const PrefetchPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id];
  for (OpId i = id + 1; i < pass->f->ops.n; i++) {
    const Op *next = &pass->f->ops.at[i];
    if (op_reads(next, o->out) || writes(pass, next, pass->class[o->in[0]]) ||
        stores_over(pass, next, o->in[0]))
      return i;
  }
  return pass->f->ops.n;
}

/* Does a message in flight release these bytes just before op `at`? */
static bool lets_go(const PrefetchPass *pass, OpId at, ValueId class) {
  for (OpId i = 0; i < at; i++)
    if (pass->plan[i].flies && pass->plan[i].to == at &&
        op_touches(&pass->f->ops.at[i], pass->class, class))
      return true;
  return false;
}

/* Does a message in flight, waited for just before op `at`, arrive in these bytes? */
static bool arrives(const PrefetchPass *pass, OpId at, ValueId class) {
  for (OpId i = 0; i < at; i++) {
    const Plan *plan = &pass->plan[i];
    if (plan->flies && plan->rounds <= 0 && plan->to == at &&
        pass->class[pass->f->ops.at[i].out] == class)
      return true;
  }
  return false;
}

/* The operand is complete from the start: the gather may begin before the loop that precedes it. */
static OpId ready_at(const PrefetchPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id], *def = value_def(pass->f, o->in[0]);
  ValueId class = pass->class[o->in[0]];
  if (is_inplace(pass, o)) {
    while (id && !op_touches(&pass->f->ops.at[id - 1], pass->class, class) &&
           !lets_go(pass, id, class))
      id--;
    return id;
  }
  if (o->code == OP_all_to_all || o->code == OP_rotate) {
    while (id && !writes(pass, &pass->f->ops.at[id - 1], class) && !arrives(pass, id, class)) id--;
    return id;
  }
  if (o->code != OP_all_gather || (def && def->code != OP_load)) return id;
  for (OpId i = id; i-- > 0;)
    if (pass->f->ops.at[i].code == OP_loop) return i;
  return 0;
}

static bool is_hop(const Op *hop, OpCode code, const Op *o) {
  return hop->code == code &&
         !strcmp(attr_str(&hop->attrs, ATTR_axis, ""), attr_str(&o->attrs, ATTR_axis, ""));
}

/* Stages one after the other: from its receive to its send a stage waits for all stages before it,
   which must not wait for its part of a message over their axis. Such a message starts after the
   send. */
static OpId after_hops(const PrefetchPass *pass, OpId id, OpId from) {
  const Op *ops = pass->f->ops.at;
  bool between = false;
  for (OpId i = 0; i < id; i++) {
    if (is_hop(&ops[i], OP_receive, &ops[id]) && i < from) between = true;
    if (!is_hop(&ops[i], OP_send, &ops[id])) continue;
    if (i >= from && between) from = i + 1;
    between = false;
  }
  return from;
}

static bool hides(const PrefetchPass *pass, OpId id, OpId from, OpId to) {
  for (OpId i = from; i < to; i++)
    if (i != id && (pass->f->ops.at[i].code == OP_kernel || pass->f->ops.at[i].code == OP_loop))
      return true;
  return false;
}

static bool asked_ahead(const PrefetchPass *pass) {
  Ahead a = flights_ahead(pass->m);
  return a.layers > 0 || a.bytes > 0;
}

static Plan plan_for(const PrefetchPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id];
  if (!op_can_fly(o)) return (Plan){0};
  if (between_classes(pass->m, o))
    return (Plan){.why = pass->overlap ? "stages have programs of their own" : NULL};
  Plan plan = {true, 0, id, needed_at(pass, id), NULL};
  if (pass->stays && pass->stays[id]) return (Plan){.why = "hides nothing"};
  if (can_drain(pass, id)) return plan.rounds = 1, plan;
  if (pass->ahead > 0 && can_fetch(pass, o)) return plan.rounds = -pass->ahead, plan;
  plan.from = after_hops(pass, id, ready_at(pass, id));
  bool overlap = pass->overlap || o->code == OP_rotate;
  plan.flies = overlap && hides(pass, id, plan.from, plan.to);
  if (!plan.flies && asked_ahead(pass) && can_fetch(pass, o)) plan.why = "hides nothing";
  else if (!plan.flies && overlap) plan.why = "needed at once";
  return plan;
}

/* ---- the function with starts and waits ---- */

/* Writes the load or views that make v, if they came later. */
static void bring(Rebuild *rebuild, ValueId v) {
  if (rebuild->map[v] != NO_VALUE) return;
  const Op *o = value_def(rebuild->from, v);
  for (uint32_t i = 0; i < o->nin; i++) bring(rebuild, o->in[i]);
  rebuild_op(rebuild, o);
}

static void add_start(Rebuild *rebuild, const Op *o, const Plan *plan) {
  must(plan->flies && op_can_fly(o), "prefetch: %s cannot fly", op_name(o->code));
  bring(rebuild, o->in[0]);
  Op *start = rebuild_op(rebuild, o);
  attr_set_int(rebuild->m, &start->attrs, ATTR_flight, plan->rounds);
}

/* From now on the wait replaces the result. */
static void add_wait(Rebuild *rebuild, const Op *o) {
  must(rebuild->map[o->out] != NO_VALUE, "prefetch: %s is waited for before it is started",
       op_name(o->code));
  ValueId out = rebuild->map[o->out], in[2] = {out, rebuild->map[o->in[0]]};
  bool inplace = rebuild->to->values.at[out].storage.view == VIEW_INPLACE;
  Type t = rebuild->to->values.at[out].type;
  Op *wait = fn_op(rebuild->m, rebuild->to, OP_wait, inplace ? 1 : 2, in, 1, &t, o->loc);
  Value *v = &rebuild->to->values.at[wait->out];
  if (!view_layout(rebuild->to, wait, 0, &v->type, &v->storage)) bug("prefetch: a wait is no view");
  rebuild->map[o->out] = wait->out;
}

/* Must a message that starts just before op `at` come after the waits that are before `at`? */
static bool follows_waits(const PrefetchPass *pass, const Op *o, OpId at) {
  ValueId class = pass->class[o->in[0]];
  return is_inplace(pass, o) ? lets_go(pass, at, class) : arrives(pass, at, class);
}

static void add_starts(const PrefetchPass *pass, Rebuild *rebuild, OpId at, bool behind_waits) {
  for (uint32_t n = 0; n < pass->messages.n; n++) {
    OpId i = pass->messages.at[n];
    const Op *o = &pass->f->ops.at[i];
    if (pass->plan[i].from == at && i != at && follows_waits(pass, o, at) == behind_waits)
      add_start(rebuild, o, &pass->plan[i]);
  }
}

static void add_starts_and_waits(const PrefetchPass *pass, Rebuild *rebuild, OpId at) {
  add_starts(pass, rebuild, at, false);
  for (uint32_t n = 0; n < pass->messages.n; n++) {
    OpId i = pass->messages.at[n];
    if (pass->plan[i].rounds <= 0 && pass->plan[i].to == at) add_wait(rebuild, &pass->f->ops.at[i]);
  }
  add_starts(pass, rebuild, at, true);
}

static void add_op(const PrefetchPass *pass, Rebuild *rebuild, OpId id) {
  const Op *o = &pass->f->ops.at[id];
  const Plan *plan = &pass->plan[id];
  if (plan->flies && plan->from != id) return;
  if (plan->flies) add_start(rebuild, o, plan);
  else if (!o->nout || rebuild->map[o->out] == NO_VALUE) {
    Op *copy = rebuild_op(rebuild, o);
    if (plan->why)
      attr_set_str(rebuild->m, &copy->attrs, ATTR_stall_reason,
                   intern(rebuild->m->ctx->names, plan->why));
  }
}

/* Views of the result of a wait become views of the value itself, as views of other views do. */
static void root_views(Fn *f) {
  for (ValueId v = 0; v < f->values.n; v++) {
    Storage *s = &f->values.at[v].storage;
    const Op *def = s->view == VIEW_OF ? value_def(f, s->base) : NULL;
    if (def && def->code == OP_wait) s->base = def->in[0];
  }
}

/* By op: its original op, found by their results; an op without results is no message. */
static OpId *origins(const Rebuild *rebuild) {
  OpId *of = ARENA_ARRAY(rebuild->m->arena, OpId, rebuild->to->ops.n + 1);
  for (OpId i = 0; i < rebuild->to->ops.n; i++) of[i] = NO_OP;
  for (OpId i = 0; i < rebuild->from->ops.n; i++) {
    const Op *o = &rebuild->from->ops.at[i];
    const Op *to = o->nout && rebuild->map[o->out] != NO_VALUE
                       ? value_def(rebuild->to, rebuild->map[o->out])
                       : NULL;
    if (to && to->code == OP_wait) to = value_def(rebuild->to, to->in[0]);
    if (to) of[to - rebuild->to->ops.at] = i;
  }
  return of;
}

static Flown with_flights(const PrefetchPass *pass) {
  Rebuild rebuild = rebuild_begin(pass->m, pass->f);
  for (uint32_t i = 0; i < pass->f->args.n; i++)
    rebuild.to->values.at[rebuild.map[pass->f->args.at[i]]] =
        pass->f->values.at[pass->f->args.at[i]];
  for (OpId i = 0; i < pass->f->ops.n; i++)
    add_starts_and_waits(pass, &rebuild, i), add_op(pass, &rebuild, i);
  add_starts_and_waits(pass, &rebuild, pass->f->ops.n);
  rebuild_results(&rebuild);
  root_views(rebuild.to);
  return (Flown){rebuild.to, origins(&rebuild)};
}

static PrefetchPass prefetch_of(Module *m, const Fn *f, const Fn *as) {
  return (PrefetchPass){.m = m, .f = f, .as = as, .class = shared_bytes(m->arena, f).of};
}

int64_t prefetch_rounds(const Module *m, const Fn *f) { return body_rounds(m, f) - 1; }

static int64_t round_bytes(Module *m, const Fn *f, const Fn *as) {
  PrefetchPass pass = prefetch_of(m, f, as);
  int64_t bytes = 0;
  EACH_OP (f, o)
    if (can_fetch(&pass, o)) bytes += value_span_bytes(&f->values.at[o->out]);
  return bytes;
}

int64_t prefetch_round_bytes(Module *m, const Fn *f) { return round_bytes(m, f, f); }

static int64_t rounds_ahead(Module *m, const Fn *f, const Fn *as, const FlightsAsked *asked) {
  int64_t bytes = asked->ahead.bytes ? round_bytes(m, f, as) : 0, most = prefetch_rounds(m, as);
  int64_t n = asked->ahead.layers < most ? asked->ahead.layers : most;
  return bytes && asked->ahead.bytes / bytes < n ? asked->ahead.bytes / bytes : n;
}

Flown prefetch_function(Module *m, const Fn *f, const Fn *as, const FlightsAsked *asked) {
  must(asked->ahead.layers >= 0 && asked->ahead.bytes >= 0, "prefetch: %lld layers ahead",
       (long long)asked->ahead.layers);
  PrefetchPass pass = prefetch_of(m, f, as);
  pass.ahead = rounds_ahead(m, f, as, asked), pass.overlap = asked->overlap,
  pass.stays = asked->stays;
  pass.plan = ARENA_ARRAY(m->arena, Plan, f->ops.n + 1);
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    pass.plan[i] = plan_for(&pass, i);
    if (pass.plan[i].flies) vec_push(m->arena, pass.messages, i);
    any |= pass.plan[i].flies || pass.plan[i].why;
  }
  return any ? with_flights(&pass) : (Flown){0};
}

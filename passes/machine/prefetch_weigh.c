/* prefetch, weighing: messages are in flight while kernels compute only if that hides time.

   prefetch.c says which messages can be in flight. Each of them keeps buffers alive for longer,
   and early gathers need a ring of buffers; so a message is not started earlier than useful. If
   the machine of the plan gives its compute and transfer rates, the walk that gives `plan` its
   seconds (timeline.h) weighs each choice: gathers start one more round ahead as long as that
   hides more time, and a message starts where its result is needed if all entries together then
   wait no longer. Messages are tried one after the other, in program order, but rotations: a round
   of a ring hides its own. Attribute
   `stall_reason` gives the reason. Without those rates nothing is weighed: requested prefetches
   are done, and every message that a kernel or a loop could hide is in flight.

   The choice follows from the module alone; all ranks run one program, hence start the same
   messages in the same order. Must not: query the machine that compiles. */
#include "ir/cost/timeline.h"
#include "prefetch.h"
#include "ir/plan/module_settings.h"

typedef struct Weighed { /* a function */
  Fn *sound, *now;       /* before the change; with messages in flight */
  OpId *origin;          /* by op of `now`; NULL: they are the same ops */
  bool *stays;           /* by op of `sound` */
} Weighed;

typedef struct Weighing {
  Module *m;
  Machine machine;
  FlightsAsked asked;
  Weighed *fn;   /* by function; sound NULL: a kernel */
  double *waits; /* by function: of an entry; less than 0: it has changed since */
} Weighing;

static void redirect(Fn *f, const Fn *from, Fn *to) {
  for (OpId i = 0; f && i < f->ops.n; i++)
    if (f->ops.at[i].callee == from) f->ops.at[i].callee = to;
}

static bool runs(const Fn *f, const Fn *of) {
  bool found = f == of;
  for (OpId i = 0; i < f->ops.n && !found; i++) {
    const Fn *callee = f->ops.at[i].callee;
    found = callee && callee->kind != FN_KERNEL && runs(callee, of);
  }
  return found;
}

static void put(Weighing *weighing, Weighed *weighed, Flown with) {
  Fn *old = weighed->now;
  weighed->now = with.f ? with.f : weighed->sound, weighed->origin = with.origin;
  if (old == weighed->now) return;
  module_replace(weighing->m, old, weighed->now);
  for (uint32_t i = 0; i < weighing->m->fns.n; i++)
    redirect(weighing->fn[i].sound, old, weighed->now);
  for (uint32_t i = 0; i < weighing->m->fns.n; i++)
    if (runs(weighing->m->fns.at[i], weighed->now)) weighing->waits[i] = -1;
}

static void apply(Weighing *weighing, Weighed *weighed) {
  FlightsAsked asked = weighing->asked;
  asked.stays = weighed->stays;
  put(weighing, weighed, prefetch_function(weighing->m, weighed->sound, weighed->now, &asked));
}

static void apply_all(Weighing *weighing) {
  for (uint32_t i = 0; i < weighing->m->fns.n; i++)
    if (weighing->fn[i].sound) apply(weighing, &weighing->fn[i]);
}

/* ---- hidden time ---- */

/* Seconds that kernels wait for messages, or lose to concurrent messages. */
static double waits_of(const Weighing *weighing, const Fn *entry) {
  EventList list = events_in_order(weighing->m, entry);
  Lanes lanes = lanes_of(weighing->m, &weighing->machine, &list);
  double sum = lanes.slowed;
  for (uint32_t k = 0; k < weighing->m->mesh.n; k++) sum += lanes.exposed[k];
  return sum;
}

/* The same, in all entries together. */
static double exposed(Weighing *weighing) {
  double sum = 0;
  for (uint32_t i = 0; i < weighing->m->fns.n; i++) {
    if (weighing->m->fns.at[i]->kind != FN_ENTRY) continue;
    if (weighing->waits[i] < 0) weighing->waits[i] = waits_of(weighing, weighing->m->fns.at[i]);
    sum += weighing->waits[i];
  }
  return sum;
}

static bool is_less(double a, double b) { return a < b * (1 - 1e-9); /* else it is rounding */ }

/* One round more ahead as long as that hides more. */
static double weigh_depth(Weighing *weighing) {
  int64_t asked = weighing->asked.ahead.layers;
  weighing->asked.ahead.layers = 0;
  apply_all(weighing);
  double best = exposed(weighing);
  while (weighing->asked.ahead.layers < asked) {
    weighing->asked.ahead.layers++;
    apply_all(weighing);
    double e = exposed(weighing);
    if (is_less(e, best)) {
      best = e;
      continue;
    }
    weighing->asked.ahead.layers--;
    apply_all(weighing);
    break;
  }
  return best;
}

static bool flies(const Weighed *weighed, OpId op) {
  for (OpId i = 0; weighed->origin && i < weighed->now->ops.n; i++)
    if (weighed->origin[i] == op) return op_flies(&weighed->now->ops.at[i]);
  return false;
}

static double weigh_message(Weighing *weighing, Weighed *weighed, OpId op, double best) {
  must(weighed->sound && op < weighed->sound->ops.n,
       "prefetch: message %u is weighed of no function", op);
  Flown before = {weighed->now, weighed->origin};
  weighed->stays[op] = true;
  apply(weighing, weighed);
  double e = exposed(weighing);
  if (!is_less(best, e)) return e;
  weighed->stays[op] = false;
  put(weighing, weighed, before);
  return best;
}

static void weigh(Weighing *weighing) {
  double best = weigh_depth(weighing);
  for (uint32_t i = 0; i < weighing->m->fns.n; i++) {
    Weighed *weighed = &weighing->fn[i];
    for (OpId k = 0; weighed->sound && k < weighed->sound->ops.n; k++)
      if (weighed->sound->ops.at[k].code != OP_rotate && flies(weighed, k))
        best = weigh_message(weighing, weighed, k, best);
  }
}

/* ---- the pass ---- */

static int64_t most_rounds(Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    int64_t n = m->fns.at[i]->kind == FN_BODY ? prefetch_rounds(m, m->fns.at[i]) : 0;
    if (n > most) most = n;
  }
  return most;
}

static Weighing weighing_of(Module *m) {
  Weighing weighing = {.m = m, .machine = plan_machine(m)};
  weighing.machine.shapes = ARENA_NEW(m->arena, KernelShapes);
  weighing.asked.ahead = flights_ahead(m);
  weighing.asked.overlap = plan_overlaps(m);
  int64_t most = most_rounds(m);
  if (weighing.asked.ahead.bytes || weighing.asked.ahead.layers > most)
    weighing.asked.ahead.layers = most;
  weighing.fn = ARENA_ARRAY(m->arena, Weighed, m->fns.n + 1);
  weighing.waits = ARENA_ARRAY(m->arena, double, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    weighing.waits[i] = -1;
    if (f->kind == FN_KERNEL) continue;
    weighing.fn[i] =
        (Weighed){.sound = f, .now = f, .stays = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  }
  return weighing;
}

static bool has_rotations(const Module *m) {
  EACH_FN (m, f)
    EACH_OP (f, o)
      if (o->code == OP_rotate) return true;
  return false;
}

void pass_prefetch(Module *m) {
  Ahead asked = flights_ahead(m);
  bool overlap = plan_overlaps(m);
  if (asked.layers <= 0 && asked.bytes <= 0 && !overlap && !has_rotations(m)) return;
  Weighing weighing = weighing_of(m);
  if (machine_is_known(m, &weighing.machine)) weigh(&weighing);
  else apply_all(&weighing);
}

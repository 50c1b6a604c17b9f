/* prefetch: messages fly while kernels compute, where that hides something.

   What may fly is in prefetch.c. Each message in flight keeps buffers alive for longer, and gathers
   ahead need a ring of them; so what a start earlier does not hide is not started earlier. Where
   the machine of the plan says how fast it computes and sends, it is weighed by the walk that
   gives `plan` its seconds (ir/lanes.h): gathers start one more round ahead as long as that hides
   more, and a message in flight stays where it is if all entries together wait no longer then:
   one after the other, in the order of the program. Attribute `blocking` says why. Without those
   figures nothing is weighed: what is asked for is done, and what has a kernel or a loop to hide
   behind flies.

   The choice follows from the module alone; all ranks run one program, hence start the same
   messages in the same order. Must not: look at the machine that compiles. */
#include "ir/lanes.h"
#include "passes/prefetch.h"
#include "ir/module_settings.h"

typedef struct Weighed { /* a function */
  Fn *sound, *now;       /* as it was; with what flies */
  OpId *origin;          /* by op of `now`; NULL: they are the same ops */
  bool *stays;           /* by op of `sound` */
} Weighed;

typedef struct Weighing {
  Module *m;
  Machine machine;
  FlightsAsked asked;
  Weighed *fn; /* by function; sound NULL: a kernel */
} Weighing;

static void redirect(Fn *f, const Fn *from, Fn *to) {
  for (OpId i = 0; f && i < f->ops.n; i++)
    if (f->ops.at[i].callee == from) f->ops.at[i].callee = to;
}

static void put(Weighing *w, Weighed *x, Flown with) {
  Fn *old = x->now;
  x->now = with.f ? with.f : x->sound, x->origin = with.origin;
  if (old == x->now) return;
  module_replace(w->m, old, x->now);
  for (uint32_t i = 0; i < w->m->fns.n; i++) redirect(w->fn[i].sound, old, x->now);
}

static void apply(Weighing *w, Weighed *x) {
  FlightsAsked asked = w->asked;
  asked.stays = x->stays;
  put(w, x, prefetch_function(w->m, x->sound, x->now, &asked));
}

static void apply_all(Weighing *w) {
  for (uint32_t i = 0; i < w->m->fns.n; i++)
    if (w->fn[i].sound) apply(w, &w->fn[i]);
}

/* ---- what is hidden ---- */

/* Seconds in which kernels wait for messages, or by which they are slower beside some, in all
   entries together. */
static double exposed(Weighing *w) {
  double sum = 0;
  for (uint32_t i = 0; i < w->m->fns.n; i++) {
    if (w->m->fns.at[i]->kind != FN_ENTRY) continue;
    EventList l = events_in_order(w->m, w->m->fns.at[i]);
    Lanes lanes = lanes_of(w->m, &w->machine, &l);
    for (uint32_t k = 0; k < w->m->mesh.n; k++) sum += lanes.exposed[k];
    sum += lanes.slowed;
  }
  return sum;
}

static bool is_less(double a, double b) { return a < b * (1 - 1e-9); /* else it is rounding */ }

/* One round more ahead as long as that hides more. */
static double weigh_depth(Weighing *w) {
  int64_t asked = w->asked.ahead.layers;
  w->asked.ahead.layers = 0;
  apply_all(w);
  double best = exposed(w);
  while (w->asked.ahead.layers < asked) {
    w->asked.ahead.layers++;
    apply_all(w);
    double e = exposed(w);
    if (is_less(e, best)) {
      best = e;
      continue;
    }
    w->asked.ahead.layers--;
    apply_all(w);
    break;
  }
  return best;
}

static bool flies(const Weighed *x, OpId op) {
  for (OpId i = 0; x->origin && i < x->now->ops.n; i++)
    if (x->origin[i] == op) return op_flies(&x->now->ops.at[i]);
  return false;
}

static double weigh_message(Weighing *w, Weighed *x, OpId op, double best) {
  must(x->sound && op < x->sound->ops.n, "prefetch: message %u is weighed of no function", op);
  x->stays[op] = true;
  apply(w, x);
  double e = exposed(w);
  if (!is_less(best, e)) return e;
  x->stays[op] = false;
  apply(w, x);
  return best;
}

static void weigh(Weighing *w) {
  double best = weigh_depth(w);
  for (uint32_t i = 0; i < w->m->fns.n; i++) {
    Weighed *x = &w->fn[i];
    for (OpId k = 0; x->sound && k < x->sound->ops.n; k++)
      if (flies(x, k)) best = weigh_message(w, x, k, best);
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
  Weighing w = {.m = m, .machine = plan_machine(m)};
  w.asked.ahead = flights_ahead(m);
  w.asked.overlap = plan_overlaps(m);
  int64_t most = most_rounds(m);
  if (w.asked.ahead.bytes || w.asked.ahead.layers > most) w.asked.ahead.layers = most;
  w.fn = ARENA_ARRAY(m->arena, Weighed, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind == FN_KERNEL) continue;
    w.fn[i] = (Weighed){.sound = f, .now = f, .stays = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  }
  return w;
}

void pass_prefetch(Module *m) {
  Ahead asked = flights_ahead(m);
  bool overlap = plan_overlaps(m);
  if (asked.layers <= 0 && asked.bytes <= 0 && !overlap) return;
  Weighing w = weighing_of(m);
  if (machine_is_known(m, &w.machine)) weigh(&w);
  else apply_all(&w);
}

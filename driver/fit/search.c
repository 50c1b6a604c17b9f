/* Tries changes of a plan and keeps the best one (search.h). Must not: list changes
   (generate.c). */
#include "fit.h"
#include "ir/cost/count.h"
#include "ir/cost/nodes.h"
#include "ir/cost/forecast.h"
#include "ir/loop.h"
#include "ir/word_patterns.h"
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

/* ---- one try ---- */

static Cost cost_of(const Module *m) {
  Moves moves = module_moves(m);
  HostBudget host = module_host(m);
  Pinned pinned = module_pinned(m);
  Cost cost = {.need = module_budget(m),
               .moved = moves.down + moves.up,
               .host = host.total + pinned_all(&pinned)};
  TrafficList l = module_traffic(m);
  for (uint32_t i = 0; i < l.n; i++) cost.elements += l.at[i].elements, cost.bytes += l.at[i].bytes;
  return cost;
}

/* The order of all axes in which the fewest bytes leave nodes; those that cut Batch stay among
   themselves, since what one of them reduces is not sent over the next. */
static void judge_nodes(const ChangeSearch *search, const Programs *programs, Cost *cost) {
  const Module *m = programs->at[0];
  uint32_t keep = 0;
  int order[MAX_MESH];
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (text_lists(batch_axes(m), m->mesh.at[i].name)) keep |= 1u << i;
  cost->leaves = node_order(programs->at, programs->n, plan_machine(m).in_node, keep, order);
  cost->mesh = "";
  for (uint32_t i = 0; i < m->mesh.n; i++)
    cost->mesh = arena_list(search->o->c->arena, cost->mesh, "%s", m->mesh.at[order[i]].name);
}

/* Seconds of kernels during which no message over the axes is in flight, if each message takes
   longer than all that it can hide. The longest chain through all these messages has these seconds
   of kernels, whatever the messages take: no step is shorter than both together. */
static double seconds_alone(const Programs *programs, Machine machine, uint32_t axes) {
  static const double ROUNDING = 2e-9; /* of messages, in lanes_hide() */
  const Module *m = programs->at[0];
  machine.endless = axes;
  StepTime time = plan_step_on(&machine, programs->at, programs->n, ir_main_entry(m)).time;
  for (uint32_t i = 0; i < m->mesh.n; i++) time.total -= (1 + ROUNDING) * time.axis[i];
  return axes ? time.total : time.compute;
}

/* NULL: no loop over micro-batches. */
static const Fn *micro_body(const Fn *entry) {
  const Fn *body = NULL;
  EACH_OP (entry, o)
    if (loop_is_micro(o)) body = o->callee;
  return body;
}

static void judge_alone(const ChangeSearch *search, const Programs *programs, Machine machine,
                        CostTime *time) {
  const Module *m = programs->at[0];
  uint32_t axes = 0;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (!search->inside || !text_lists(batch_axes(m), m->mesh.at[i].name)) axes |= 1u << i;
  time->alone = time->least_alone = seconds_alone(programs, machine, axes);
  if (!machine.reach || programs->n > 1) return;
  const Fn *body = micro_body(ir_main_entry(m));
  if (body) cost_of_ends(m, &machine, body, &time->head, &time->first);
  Arch least;
  forecast_least(&machine, &least);
  KernelTime kernels = kernels_time(m, &machine, ir_main_entry(m));
  time->least = kernel_sum(&kernels);
  if (body) cost_of_ends(m, &machine, body, &time->least_head, &time->least_first);
  time->least_alone = seconds_alone(programs, machine, axes);
}

static void copy_sent(const TrafficList *list, SentList *out) {
  must(list->n <= MOST_SENT, "search: messages of %u kinds", list->n);
  out->n = list->n;
  for (uint32_t i = 0; i < list->n; i++)
    out->at[i] =
        (SentKind){list->at[i].axis, list->at[i].kind, list->at[i].calls, list->at[i].bytes};
}

typedef struct Clock { /* by which steps of programs are timed */
  bool asked, foreseen;
  Machine machine;
} Clock;

/* By the forecast; where there is none or `search` wants none, the bound. */
static PlanStep step_by(const ChangeSearch *search, Clock *clock, const Programs *programs,
                        const Fn *entry) {
  const Module *m = programs->at[0];
  if (!clock->asked && search->bounds) *clock = (Clock){true, false, plan_machine(m)};
  if (!clock->asked) {
    Forecast forecast = plan_forecast(programs->at, programs->n, entry);
    *clock = (Clock){true, forecast.known, forecast.known ? forecast.machine : plan_machine(m)};
    if (forecast.known) return forecast.step;
  }
  return plan_step_on(&clock->machine, programs->at, programs->n, entry);
}

static CostTime time_of(const ChangeSearch *search, const Programs *programs, Clock *clock,
                        Cost *cost) {
  const Module *m = programs->at[0];
  const Fn *entry = ir_main_entry(m);
  PlanStep step = step_by(search, clock, programs, entry);
  cost->foreseen = clock->foreseen;
  CostTime time = {
      .seconds = step.time.total, .computes = step.time.compute, .least = step.time.compute};
  for (uint32_t i = 0; i < m->mesh.n; i++) time.waits += step.time.exposed[i];
  if (!search->micros) return time;
  judge_alone(search, programs, clock->machine, &time);
  const Fn *body = programs->n == 1 ? micro_body(entry) : NULL;
  if (body) cost->layer = cost_of_layer(m, &clock->machine, body);
  copy_sent(&step.traffic, &cost->sent);
  return time;
}

static bool loop_is_layers(const Op *o) {
  return o->code == OP_loop && loop_rounds(o) == ROUNDS_layers;
}

static void add_rounds(Module *m, bool (*is)(const Op *o), int64_t rounds) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Op *o = &m->fns.at[i]->ops.at[k];
      if (is(o)) attr_set_int(m, &o->attrs, ATTR_trip, attr_int(&o->attrs, ATTR_trip, 1) + rounds);
    }
}

/* The loop over micro-batches runs once more. */
static void judge_micro(const ChangeSearch *search, const Programs *programs, Clock *clock,
                        Cost *cost) {
  add_rounds(programs->at[0], loop_is_micro, 1);
  Cost more = {0};
  const CostTime *before = &cost->forecast, time = time_of(search, programs, clock, &more);
  cost->micro = (CostTime){time.seconds - before->seconds,
                           time.computes - before->computes,
                           time.waits - before->waits,
                           time.least - before->least,
                           time.alone - before->alone,
                           time.least_alone - before->least_alone,
                           time.head,
                           time.first,
                           time.least_head,
                           time.least_first};
  cost->sent_micro = more.sent;
  for (uint32_t i = 0; i < cost->sent.n; i++) {
    cost->sent_micro.at[i].calls -= cost->sent.at[i].calls;
    cost->sent_micro.at[i].bytes -= cost->sent.at[i].bytes;
  }
  add_rounds(programs->at[0], loop_is_micro, -1);
}

static double bound_seconds(const Programs *programs) {
  return plan_step(programs->at, programs->n, ir_main_entry(programs->at[0])).time.total;
}

/* Facts that small programs, which have one class, do not need. */
static void judge_classes(const ChangeSearch *search, const Programs *programs, Cost *cost) {
  cost->makespan = stages_makespan(programs->at, programs->n);
  for (uint32_t i = 0; i < programs->n; i++) { /* the class with the most there may be another */
    Cost class = cost_of(programs->at[i]);
    if (class.host > cost->host) cost->host = class.host, cost->moved = class.moved;
  }
  if (search->by == BY_SECONDS) cost->seconds = bound_seconds(programs);
  if (search->by == BY_NODES) judge_nodes(search, programs, cost);
}

static Cost cost_by(const ChangeSearch *search, const Programs *programs, Clock *clock) {
  Cost cost = cost_of(fit_largest(programs));
  if (!search->micros) judge_classes(search, programs, &cost);
  if (search->forecasts) cost.forecast = time_of(search, programs, clock, &cost);
  if (search->micros) judge_micro(search, programs, clock, &cost);
  return cost;
}

Cost search_cost(const ChangeSearch *search, const Programs *programs) {
  Clock clock = {0};
  return cost_by(search, programs, &clock);
}

Try search_try(const ChangeSearch *search, Change change) {
  Try one = {.change = change};
  Programs programs;
  Ctx *c;
  one.made = change_programs(search->o, &change, &c, &programs);
  if (!one.made) return one;
  one.cost = search_cost(search, &programs);
  ctx_free(c);
  return one;
}

/* False: its layers are not known. */
static bool try_deeper(const ChangeSearch *search, TryJob *job) {
  Programs programs;
  Clock clock = {0};
  Ctx *c;
  Try *out = job->made;
  out[0] = out[1] = (Try){.change = job->change[0]};
  out[0].made = out[1].made = change_programs(search->o, &job->change[0], &c, &programs);
  job->compiled++;
  if (!out[0].made) return true;
  out[0].cost = cost_by(search, &programs, &clock);
  add_rounds(programs.at[0], loop_is_layers, 1);
  out[1].cost = cost_by(search, &programs, &clock);
  out[1].cost.need.saved += (int64_t)out[0].cost.layer.saved;
  ctx_free(c);
  return out[0].cost.layer.known;
}

static void try_job(const ChangeSearch *search, TryJob *job) {
  ChangeSearch own = *search;
  own.inside = job->inside;
  if (job->deeper && try_deeper(&own, job)) return;
  own.inside = false;
  for (int i = 0; i < job->n; i++) job->made[i] = search_try(&own, job->change[i]), job->compiled++;
}

typedef struct JobThread {
  const ChangeSearch *search;
  TryJob *job;
} JobThread;

static void *try_alone(void *of) {
  JobThread *thread = of;
  Cli own = cli_again(thread->search->o);
  ChangeSearch search = *thread->search;
  search.o = &own, try_job(&search, thread->job);
  ctx_free(own.c);
  return NULL;
}

static void try_both(const ChangeSearch *search, TryJob job[2]) {
  JobThread other = {search, &job[0]};
  pthread_t thread;
  bool beside = !pthread_create(&thread, NULL, try_alone, &other);
  try_job(search, &job[1]);
  if (beside) pthread_join(thread, NULL);
  else try_alone(&other);
}

void search_try_jobs(const ChangeSearch *search, TryJob *job, int n) {
  if (n == 2) return try_both(search, job);
  if (job->deeper || job->n == 1) return try_job(search, job);
  TryJob half[2] = {{.change = {job->change[0]}, .n = 1}, {.change = {job->change[1]}, .n = 1}};
  try_both(search, half);
  job->made[0] = half[0].made[0], job->made[1] = half[1].made[0], job->compiled += 2;
}

/* ---- which is better ---- */

/* With `offload auto` what is on the host of a processor counts as if it were another memory. */
static int64_t device_bytes(const ChangeSearch *search, const Cost *cost) {
  return search->by == BY_FREED ? cost->need.total : budget_all(&cost->need);
}

bool search_fits(const ChangeSearch *search, const Try *one) {
  return one->made && device_bytes(search, &one->cost) <= search->device &&
         one->cost.host <= search->host;
}

double search_whole(const Cost *cost) {
  return cost->forecast.seconds > 0 ? cost->forecast.seconds : cost->moved;
}

static double value(const ChangeSearch *search, const Try *one) {
  const Cost *cost = &one->cost, *from = &search->from;
  double now = cost->forecast.seconds, before = from->forecast.seconds;
  switch (search->by) {
  case BY_SECONDS: return cost->forecast.seconds;
  case BY_MAKESPAN: return cost->makespan;
  case BY_NODES: return cost->leaves;
  case BY_BYTES: return (double)device_bytes(search, cost);
  case BY_FREED:
    if (search_fits(search, one)) return search_whole(cost);
    return (now > 0 && before > 0 ? now - before : cost->moved - from->moved) /
           (double)(from->need.total - cost->need.total);
  }
  return 0;
}

bool search_better(const ChangeSearch *search, const Try *one, const Try *than) {
  bool fits = search_fits(search, one);
  double gain = search->by == BY_BYTES || search->by == BY_FREED ? 1 : NODE_GAIN;
  if (!than->made || fits != search_fits(search, than)) return fits || !than->made;
  if (!fits && search->by != BY_FREED)
    return device_bytes(search, &one->cost) < device_bytes(search, &than->cost);
  return value(search, one) < gain * value(search, than);
}

/* ---- all of them ---- */

ChangeSearch search_new(const Cli *o, const Module *m, Objective by) {
  /* Pages of a try are kept for the next one. */
  mallopt(M_TRIM_THRESHOLD, INT_MAX), mallopt(M_TOP_PAD, 1 << 26);
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  Machine machine = plan_machine(m);
  return (ChangeSearch){.o = o,
                        .m = m,
                        .by = by,
                        .forecasts = by == BY_SECONDS || by == BY_FREED,
                        .device = fit_capacity(o, m),
                        .host = machine.gpus && machine.host ? machine.host : INT64_MAX};
}

static Try try_next(ChangeSearch *search, const Change *change) {
  Try one = search_try(search, *change);
  vec_push(search->o->c->arena, search->tried, one);
  return one;
}

static void offer(ChangeSearch *search, const Try *one) {
  if (one->made && search_better(search, one, &search->best)) search->best = *one;
}

static void offer_largest(ChangeSearch *search, const Changes *list) {
  Try best = {0};
  for (uint32_t low = 0, high = list->n; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    Try one = try_next(search, &list->at[middle]);
    if (!one.made) break;
    if (search_fits(search, &one)) best = one, low = middle + 1;
    else high = middle;
  }
  offer(search, &best);
}

bool search_run(ChangeSearch *search, unsigned generators) {
  for (Generator i = 0; i < GENERATORS; i++) {
    Changes list = {0};
    if (!(generators & 1u << i)) continue;
    TryOrder order = search_list(search, i, &list);
    if (order == ORDER_LARGEST) offer_largest(search, &list);
    for (uint32_t k = 0; order != ORDER_LARGEST && k < list.n; k++) {
      Try one = try_next(search, &list.at[k]);
      offer(search, &one);
      if (order == ORDER_FIRST && search_fits(search, &one)) break;
    }
  }
  return search_fits(search, &search->best);
}

/* What `plan` says of one run of an entry: what it sends, and in which time at least. Where 1-bit
   Adam has frozen steps (passes/onebit.c) these are told behind, and what a run sends in all. */
#include "cmd_plan.h"
#include "ir/count.h"
#include "ir/module_settings.h"

/* The class whose kernels have the most to do: the others wait for it. */
static uint32_t slowest(const Planned *p) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < p->programs.n; i++)
    if (p->class[i].flop > p->class[at].flop) at = i;
  return at;
}

PlanStep plan_step(const Planned *p, const Fn *entry) {
  PlanStep s = {0};
  if (!entry) return s;
  uint32_t at = slowest(p);
  const Module *m = p->programs.at[at];
  entry = module_fn(m, intern(m->ctx->names, entry->name));
  bool classes = p->programs.n > 1;
  IrCount work = ir_count(m, entry),
          others = classes ? plan_waits(p, entry, at) : ir_waited(m, entry);
  s.traffic = classes ? plan_traffic(p) : entry_traffic(m, entry);
  s.flop = work.flop, s.moved = work.bytes, s.waited = others.flop;
  Moves moves = entry_moves(entry);
  IrCount beside = ir_count_beside(m, entry);
  s.time = plan_time(m, &p->machine, &s.traffic, &moves, &beside,
                     s.flop + others.flop - beside.flop, s.moved + others.bytes - beside.bytes);
  s.lanes = plan_lanes(m, &p->machine, entry);
  lanes_hide(&s.lanes, m, &s.time);
  return s;
}

double plan_bytes_sent(const PlanStep *s) {
  double sum = 0;
  for (uint32_t i = 0; i < s->traffic.n; i++) sum += s->traffic.at[i].bytes;
  return sum;
}

/* ---- text ---- */

void plan_say_traffic(const Planned *p, const PlanStep *s) {
  if (!s->traffic.n) return;
  printf("each rank sends per step          elements        bytes     calls\n");
  for (uint32_t i = 0; i < s->traffic.n; i++) {
    const Traffic *t = &s->traffic.at[i];
    printf("  over %-8s %-16s %12.0f %12s %9.0f\n", p->m->mesh.at[t->axis].name, op_name(t->kind),
           t->elements, plan_amount(p->m->arena, t->bytes), t->calls);
  }
}

/* Half of 1 / 127, the largest number's part of a code's step, and rounding in f32. */
static const double INT8_ERROR = 0.00394;

/* Messages of 8 bits in a step of all programs; those of packed signs are others. */
static uint32_t int8_messages(const Planned *p) {
  uint32_t n = 0;
  Str in = intern(p->m->ctx->names, "int8_in");
  for (uint32_t i = 0; i < p->m->fns.n; i++) {
    const Fn *f = p->m->fns.at[i];
    for (OpId k = 0; k < f->ops.n; k++)
      n += op_family(f->ops.at[k].code) == FAMILY_COLLECTIVE && f->ops.at[k].nin &&
           type_find(value_type(f, f->ops.at[k].in[0]), in) >= 0;
  }
  return n;
}

/* in 8 bits: gradients, a scale for 256 of them; a message rounds .. */
void plan_say_int8(const Planned *p) {
  bool gradients = plan_int8_gradients(p->m), weights = plan_int8_weights(p->m);
  if (!p->m->mesh.n || !(gradients || weights)) return;
  printf("in 8 bits: %s%s%s, a scale for %lld of them; ", gradients ? "gradients" : "",
         gradients && weights ? " and " : "", weights ? "gathered weights" : "",
         (long long)plan_int8_block(p->m));
  if (int8_messages(p))
    printf("a message rounds each by %.3g %% of the largest of these at most\n", 100 * INT8_ERROR);
  else printf("no message is long enough, and numbers travel as they are\n");
}

void plan_put_int8(const Planned *p) {
  if (!p->m->mesh.n || !int8_messages(p)) return;
  printf("\"int8\":{\"gradients\":%s,\"weights\":%s,\"block\":%lld,\"error\":%.3g},",
         plan_int8_gradients(p->m) ? "true" : "false", plan_int8_weights(p->m) ? "true" : "false",
         (long long)plan_int8_block(p->m), INT8_ERROR);
}

/* at least 1.2 s: computation 0.8 s beside memory 0.3 s, over data 0.4 s (between nodes)
   at least 0.9 s: computation 0.8 s, over data 0.1 s and 0.3 s hidden, over pcie 0.2 s */
void plan_say_time(const Planned *p, const PlanStep *s) {
  const StepTime *t = &s->time;
  if (t->total <= 0) return;
  printf("at least %.3g s: computation %.3g s", t->total, t->compute);
  if (t->memory > 0) printf(" beside memory %.3g s", t->memory);
  for (uint32_t i = 0; i < p->m->mesh.n; i++)
    if (t->axis[i] > 0)
      printf(", over %s %.3g s%s%s", p->m->mesh.at[i].name, t->exposed[i],
             t->exposed[i] < t->axis[i]
                 ? arena_printf(p->m->arena, " and %.3g s hidden", t->axis[i] - t->exposed[i])
                 : "",
             axis_crosses(p->m, &p->machine, (int)i) ? " (between nodes)" : "");
  if (t->pcie > 0) printf(", over pcie %.3g s", t->pcie);
  if (t->host > 0) printf(", on the host %.3g s", t->host);
  if (t->pcie + t->host > 0) printf(", of which the GPU waits for %.3g s", t->away);
  if (t->slowed > 0) printf(", slower by %.3g s beside messages that processors carry", t->slowed);
  printf("\n");
}

/* Bytes of a step, over all of the run. */
static double bytes_on_average(const Planned *p) {
  double warm = p->freeze < p->steps ? p->freeze / p->steps : 1;
  return warm * plan_bytes_sent(&p->step) + (1 - warm) * plan_bytes_sent(&p->frozen);
}

const char *plan_warm_up(const Planned *p) {
  if (!p->freeze) return "the warm-up, whose length `freeze = auto` finds";
  return arena_printf(p->m->arena, "%.0f of %.0f steps", p->freeze, p->steps);
}

/* after 2000 of 10000 steps, which send 12.0 MiB
   .. on average 2.80 MiB a step: 4.29 times less than 12.0 MiB, as before the freeze */
void plan_say_frozen(const Planned *p) {
  Arena *a = p->m->arena;
  if (!p->freezes) return;
  printf("after %s, frozen: %.4g FLOP per rank, %s between kernels and memory\n", plan_warm_up(p),
         p->frozen.flop, plan_amount(a, p->frozen.moved));
  plan_say_traffic(p, &p->frozen);
  plan_say_time(p, &p->frozen);
  double first = plan_bytes_sent(&p->step), mean = bytes_on_average(p);
  if (first <= 0 || mean <= 0) return;
  printf("a frozen step sends %.3g times less", first / plan_bytes_sent(&p->frozen));
  if (p->freeze)
    printf("; on average of the run %s a step, %.3g times less", plan_amount(a, mean),
           first / mean);
  printf("\n");
}

/* ---- JSON ---- */

static void put_axis(const Planned *p, const PlanStep *s, uint32_t axis) {
  double elements = 0, bytes = 0;
  for (uint32_t i = 0; i < s->traffic.n; i++)
    if (s->traffic.at[i].axis == (int)axis)
      elements += s->traffic.at[i].elements, bytes += s->traffic.at[i].bytes;
  printf("%s{\"axis\":\"%s\",\"elements_per_step\":%.0f,\"bytes_per_step\":%.0f,\"collectives\":[",
         axis ? "," : "", p->m->mesh.at[axis].name, elements, bytes);
  bool first = true;
  for (uint32_t i = 0; i < s->traffic.n; i++) {
    const Traffic *t = &s->traffic.at[i];
    if (t->axis != (int)axis) continue;
    printf("%s{\"kind\":\"%s\",\"calls\":%.0f,\"elements\":%.0f,\"bytes\":%.0f,"
           "\"largest_message_bytes\":%lld}",
           first ? "" : ",", op_name(t->kind), t->calls, t->elements, t->bytes,
           (long long)t->largest);
    first = false;
  }
  printf("]}");
}

void plan_put_communication(const Planned *p, const PlanStep *s) {
  printf("\"communication\":[");
  for (uint32_t i = 0; i < p->m->mesh.n; i++) put_axis(p, s, i);
  printf("],");
}

static void put_axis_seconds(const Planned *p, const double *seconds) {
  for (uint32_t i = 0; i < p->m->mesh.n; i++)
    printf("%s\"%s\":%.6g", i ? "," : "", p->m->mesh.at[i].name, seconds[i]);
}

void plan_put_time(const Planned *p, const PlanStep *s) {
  const StepTime *t = &s->time;
  if (t->total <= 0) return;
  printf("\"seconds_per_step\":%.6g,\"seconds\":{\"compute\":%.6g,\"memory\":%.6g,\"over\":{",
         t->total, t->compute, t->memory);
  put_axis_seconds(p, t->axis);
  printf("},\"exposed\":{");
  put_axis_seconds(p, t->exposed);
  printf("},\"pcie\":%.6g,\"host\":%.6g,\"away\":%.6g,\"slowed\":%.6g},", t->pcie, t->host, t->away,
         t->slowed);
}

void plan_put_frozen(const Planned *p) {
  if (!p->freezes) return;
  printf("\"frozen\":{");
  if (p->freeze) printf("\"from\":%.0f,\"steps\":%.0f,", p->freeze, p->steps);
  plan_put_communication(p, &p->frozen);
  plan_put_time(p, &p->frozen);
  printf("\"flop_per_step\":%.17g},", p->frozen.flop);
  if (p->freeze) printf("\"bytes_per_step_on_average\":%.17g,", bytes_on_average(p));
}

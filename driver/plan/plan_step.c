/* The part of `plan` about one run of an entry: its traffic, and a lower bound of its time.
   Different steps after a warm-up follow: frozen ones of 1-bit Adam (plan_freeze.c); late ones
   (passes/offload/delayed_update.c), and the time that they wait for the host. */
#include "plan_report.h"
#include "ir/cost/count.h"
#include "ir/plan/module_settings.h"
#include <string.h>

double plan_bytes_sent(const PlanStep *step) {
  double sum = 0;
  for (uint32_t i = 0; i < step->traffic.n; i++) sum += step->traffic.at[i].bytes;
  return sum;
}

/* ---- text ---- */

void plan_say_traffic(const Planned *planned, const PlanStep *step) {
  if (!step->traffic.n) return;
  printf("each rank sends per step          elements        bytes     calls\n");
  for (uint32_t i = 0; i < step->traffic.n; i++) {
    const Traffic *traffic = &step->traffic.at[i];
    printf("  over %-8s %-16s %12.0f %12s %9.0f\n", planned->m->mesh.at[traffic->axis].name,
           op_name(traffic->kind), traffic->elements,
           arena_amount(planned->m->arena, traffic->bytes), traffic->calls);
  }
}

/* bucket 1.00 GiB: latency 2.8 % of the time of a full one */
void plan_say_bucket(const Planned *planned) {
  int64_t bytes = plan_zero_bucket(planned->m);
  double latency = fit_latency(planned->m, bytes);
  if (latency > 0)
    printf("bucket %s: latency %.2g %% of the time of a full one\n",
           arena_amount(planned->m->arena, (double)bytes), latency);
}

void plan_put_bucket(const Planned *planned) {
  int64_t bytes = plan_zero_bucket(planned->m);
  double latency = fit_latency(planned->m, bytes);
  if (latency > 0)
    printf("\"bucket\":{\"bytes\":%lld,\"latency\":%.6g},", (long long)bytes, latency / 100);
}

/* Half of 1 / 127, the largest number's part of a code's step, and rounding in f32. */
static const double INT8_ERROR = 0.00394;

/* Messages of 8 bits in a step of all programs; those of packed signs are others. */
static uint32_t int8_messages(const Planned *planned) {
  uint32_t n = 0;
  Str in = intern(planned->m->ctx->names, "int8'in");
  for (uint32_t i = 0; i < planned->m->fns.n; i++) {
    const Fn *f = planned->m->fns.at[i];
    for (OpId k = 0; k < f->ops.n; k++)
      n += op_family(f->ops.at[k].code) == FAMILY_COLLECTIVE && f->ops.at[k].nin &&
           type_find(value_type(f, f->ops.at[k].in[0]), in) >= 0;
  }
  return n;
}

/* in 8 bits: gradients, a scale for 256 of them; a message rounds .. */
void plan_say_int8(const Planned *planned) {
  bool gradients = plan_int8_gradients(planned->m), weights = plan_int8_weights(planned->m);
  if (!planned->m->mesh.n || !(gradients || weights)) return;
  printf("in 8 bits: %s%s%s, a scale for %lld of them; ", gradients ? "gradients" : "",
         gradients && weights ? " and " : "", weights ? "gathered weights" : "",
         (long long)plan_int8_block(planned->m));
  if (int8_messages(planned))
    printf("a message rounds each by %.3g %% of the largest of these at most\n", 100 * INT8_ERROR);
  else printf("no message is long enough, and numbers travel as they are\n");
}

void plan_put_int8(const Planned *planned) {
  if (!planned->m->mesh.n || !int8_messages(planned)) return;
  printf("\"int8\":{\"gradients\":%s,\"weights\":%s,\"block\":%lld,\"error\":%.3g},",
         plan_int8_gradients(planned->m) ? "true" : "false",
         plan_int8_weights(planned->m) ? "true" : "false", (long long)plan_int8_block(planned->m),
         INT8_ERROR);
}

/* , over data 0.4 s and 0.1 s hidden (between nodes, latency 0.02 s of both) */
static void say_axis(const Planned *planned, const StepTime *step_time, int i) {
  double hidden = step_time->axis[i] - step_time->exposed[i];
  if (step_time->axis[i] <= 0) return;
  printf(", over %s %.3g s", planned->m->mesh.at[i].name, step_time->exposed[i]);
  if (hidden > 0) printf(" and %.3g s hidden", hidden);
  if (!axis_crosses(planned->m, &planned->machine, i)) return;
  printf(" (between nodes");
  if (step_time->latency[i] > 0)
    printf(", latency %.3g s%s", step_time->latency[i], hidden > 0 ? " of both" : "");
  printf(")");
}

/* at least 1.2 s: computation 0.8 s, memory 0.3 s (concurrent), over data 0.4 s (between nodes)
   at least 0.9 s: computation 0.8 s, over data 0.1 s and 0.3 s hidden, over pcie 0.2 s */
void plan_say_time(const Planned *planned, const PlanStep *step) {
  const StepTime *step_time = &step->time;
  if (step_time->total <= 0) return;
  printf("at least %.3g s: computation %.3g s", step_time->total, step_time->compute);
  if (step_time->memory > 0) printf(", memory %.3g s (concurrent)", step_time->memory);
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) say_axis(planned, step_time, (int)i);
  if (step_time->pcie > 0) printf(", over pcie %.3g s", step_time->pcie);
  if (step_time->host > 0) printf(", on the host %.3g s", step_time->host);
  if (step_time->pcie + step_time->host > 0)
    printf(", of which the GPU waits for %.3g s", step_time->away);
  if (step_time->slowed > 0)
    printf(", slowed by %.3g s by messages that CPUs carry", step_time->slowed);
  printf("\n");
}

const char *plan_warm_up(const Planned *planned) {
  if (!planned->from) return "the warm-up, whose length `freeze = auto` finds";
  return arena_printf(planned->m->arena, "%.0f of %.0f steps", planned->from, planned->steps);
}

/* for copies and the host the GPU waits 0.12 s of a late step, 0.48 s of one before */
static void say_hidden(const Planned *planned) {
  const StepTime *late = &planned->later.time, *before = &planned->step.time;
  if (late->total <= 0 || before->pcie + before->host <= 0) return;
  printf("for copies and the host the GPU waits %.3g s of a late step, %.3g s of one before\n",
         late->away, before->away);
}

/* Between the memories a later step moves what it works with. */
static void say_moves(const Planned *planned) {
  Moves moves = entry_moves(ir_phase_entry(planned->m));
  if (moves.calls <= 0) return;
  printf("  such a step copies %s to the host and %s to the device, in %.0f copies\n",
         arena_amount(planned->m->arena, moves.down), arena_amount(planned->m->arena, moves.up),
         moves.calls);
}

/* after 2000 of 10000 steps, frozen: .. */
void plan_say_later(const Planned *planned) {
  const PlanStep *later = &planned->later;
  if (!planned->kind) return;
  printf("after %s, %s: %.4g FLOP per rank, %s between kernels and memory\n", plan_warm_up(planned),
         planned->kind, later->flop, arena_amount(planned->m->arena, later->moved));
  say_moves(planned);
  plan_say_traffic(planned, later);
  plan_say_time(planned, later);
  if (plan_freezes(planned)) plan_say_freeze(planned);
  else say_hidden(planned);
}

/* ---- JSON ---- */

static void put_axis(const Planned *planned, const PlanStep *step, uint32_t axis) {
  double elements = 0, bytes = 0;
  for (uint32_t i = 0; i < step->traffic.n; i++)
    if (step->traffic.at[i].axis == (int)axis)
      elements += step->traffic.at[i].elements, bytes += step->traffic.at[i].bytes;
  printf("%s{\"axis\":\"%s\",\"elements_per_step\":%.0f,\"bytes_per_step\":%.0f,\"collectives\":[",
         axis ? "," : "", planned->m->mesh.at[axis].name, elements, bytes);
  bool first = true;
  for (uint32_t i = 0; i < step->traffic.n; i++) {
    const Traffic *traffic = &step->traffic.at[i];
    if (traffic->axis != (int)axis) continue;
    printf("%s{\"kind\":\"%s\",\"calls\":%.0f,\"elements\":%.0f,\"bytes\":%.0f,"
           "\"largest_message_bytes\":%lld}",
           first ? "" : ",", op_name(traffic->kind), traffic->calls, traffic->elements,
           traffic->bytes, (long long)traffic->largest);
    first = false;
  }
  printf("]}");
}

void plan_put_communication(const Planned *planned, const PlanStep *step) {
  printf("\"communication\":[");
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) put_axis(planned, step, i);
  printf("],");
}

static void put_axis_seconds(const Planned *planned, const double *seconds) {
  for (uint32_t i = 0; i < planned->m->mesh.n; i++)
    printf("%s\"%s\":%.6g", i ? "," : "", planned->m->mesh.at[i].name, seconds[i]);
}

void plan_put_time(const Planned *planned, const PlanStep *step) {
  const StepTime *step_time = &step->time;
  if (step_time->total <= 0) return;
  printf("\"seconds_per_step\":%.6g,\"seconds\":{\"compute\":%.6g,\"memory\":%.6g,\"over\":{",
         step_time->total, step_time->compute, step_time->memory);
  put_axis_seconds(planned, step_time->axis);
  printf("},\"exposed\":{");
  put_axis_seconds(planned, step_time->exposed);
  printf("},\"latency\":{");
  put_axis_seconds(planned, step_time->latency);
  printf("},\"pcie\":%.6g,\"host\":%.6g,\"away\":%.6g,\"slowed\":%.6g},", step_time->pcie,
         step_time->host, step_time->away, step_time->slowed);
}

void plan_put_later(const Planned *planned) {
  if (!planned->kind) return;
  printf("\"%s\":{", planned->kind);
  if (planned->from) printf("\"from\":%.0f,\"steps\":%.0f,", planned->from, planned->steps);
  plan_put_communication(planned, &planned->later);
  plan_put_time(planned, &planned->later);
  Moves moves = entry_moves(ir_phase_entry(planned->m));
  printf("\"moved_per_step\":{\"down\":%.0f,\"up\":%.0f,\"copies\":%.0f},", moves.down, moves.up,
         moves.calls);
  printf("\"flop_per_step\":%.17g},", planned->later.flop);
  if (plan_freezes(planned)) plan_put_freeze(planned);
}

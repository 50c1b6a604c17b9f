/* The part of `plan` about one run of an entry: its traffic, and a lower bound of its time.
   Different steps after a warm-up follow: frozen ones of 1-bit Adam (plan_freeze.c); late ones
   (passes/offload/delayed_update.c), and the time that they wait for the host. */
#include "plan_report.h"
#include "plan_timeline.h"
#include "ir/schedule/stream_order.h"
#include "ir/plan/module_settings.h"

double plan_bytes_sent(const PlanStep *step) {
  double sum = 0;
  for (uint32_t i = 0; i < step->traffic.n; i++) sum += step->traffic.at[i].bytes;
  return sum;
}

/* ---- the topics ---- */

void plan_traffic_of(Sheet *sheet, const Planned *planned, const PlanStep *step) {
  const TrafficList *list = &step->traffic;
  sheet_list(sheet, "communication");
  if (list->n)
    sheet_heads(sheet, EVERYWHERE,
                planned->programs.n > 1
                    ? "a rank sends per step, at most    elements        bytes     calls"
                    : "each rank sends per step          elements        bytes     calls");
  for (uint32_t axis = 0; axis < planned->m->mesh.n; axis++) {
    Figure name = as_text(planned->m->mesh.at[axis].name);
    double elements = 0, bytes = 0;
    sheet_open(sheet, "communication[]");
    sheet_list(sheet, "collectives");
    for (uint32_t i = 0; i < list->n; i++) {
      const Traffic *row = &list->at[i];
      if (row->axis != (int)axis) continue;
      elements += row->elements, bytes += row->bytes;
      sheet_say(sheet,
                "[collectives]  over {:-8} {kind:-16} {elements:12} {bytes:12} {calls:9}"
                "{!largest_message_bytes}\n",
                name, as_text(op_name(row->kind)), as_count(row->elements), as_bytes(row->bytes),
                as_count(row->calls), as_bytes((double)row->largest));
    }
    sheet_put(sheet, "{axis}{elements_per_step}{bytes_per_step}", name, as_count(elements),
              as_bytes(bytes));
    sheet_close(sheet);
  }
}

/* bucket 1.00 GiB: latency 2.8 % of the time of a full one; nothing where links have no latency */
void topic_bucket(Sheet *sheet, const Planned *planned) {
  int64_t bytes = plan_zero_bucket(planned->m);
  double latency = fit_latency(planned->m, bytes) / 100;
  if (latency > 0)
    sheet_say(sheet,
              "bucket {bucket.bytes}: latency {bucket.latency:.2} of the time of a full one\n",
              as_bytes((double)bytes), as_portion(latency));
}

/* Messages of 8 bits in a step of all programs; those of packed signs are others. */
static uint32_t int8_messages(const Planned *planned) {
  uint32_t n = 0;
  Str in = intern(planned->m->ctx->names, "int8'in");
  EACH_FN (planned->m, f) {
    for (OpId k = 0; k < f->ops.n; k++)
      n += op_family(f->ops.at[k].code) == FAMILY_COLLECTIVE && f->ops.at[k].nin &&
           type_find(value_type(f, f->ops.at[k].in[0]), in) >= 0;
  }
  return n;
}

/* in 8 bits: gradients, a scale for 256 of them; a message rounds .. */
void topic_int8(Sheet *sheet, const Planned *planned) {
  /* Half of 1 / 127, the largest number's part of a code's step, and rounding in f32. */
  static const double error = 0.00394;
  bool gradients = plan_int8_gradients(planned->m), weights = plan_int8_weights(planned->m);
  if (!planned->m->mesh.n || !(gradients || weights)) return;
  bool any = int8_messages(planned);
  sheet_say(sheet, "in 8 bits: {}{}{}, a scale for {} of them; ",
            as_text(gradients ? "gradients" : ""), as_text(gradients && weights ? " and " : ""),
            as_text(weights ? "gathered weights" : ""),
            as_count((double)plan_int8_block(planned->m)));
  if (any)
    sheet_say(sheet,
              "a message rounds each by {int8.error} of the largest of these at most\n"
              "{!int8.gradients}{!int8.weights}{!int8.block}",
              as_portion(error), as_flag(gradients, "", ""), as_flag(weights, "", ""),
              as_count((double)plan_int8_block(planned->m)));
  else sheet_say(sheet, "no message is long enough, and numbers travel as they are\n");
}

/* , over data 0.4 s and 0.1 s hidden (between nodes, latency 0.02 s of both) */
static void say_axis(Sheet *sheet, const Planned *planned, const StepTime *time, int i) {
  Figure name = as_text(planned->m->mesh.at[i].name);
  double hidden = time->axis[i] - time->exposed[i];
  bool sent = time->axis[i] > 0, crosses = sent && axis_crosses(planned->m, &planned->machine, i);
  sheet_put(sheet, "{seconds.over.*}", name, as_seconds(time->axis[i]));
  sheet_say_if(sheet, sent, ", over {} {seconds.exposed.*}", name, name,
               as_seconds(time->exposed[i]));
  sheet_say_if(sheet, sent && hidden > 0, " and {} hidden", as_seconds(hidden));
  sheet_say_if(sheet, crosses, " (between nodes");
  sheet_say_if(sheet, crosses && time->latency[i] > 0, ", latency {seconds.latency.*}{}", name,
               as_seconds(time->latency[i]), as_text(hidden > 0 ? " of both" : ""));
  sheet_say_if(sheet, crosses, ")");
}

/* , waiting for the next inputs 0.2 s, 0.1 s hidden, snapshots 0.01 s (0.5 s every 50 steps); what
   takes less than a thousandth is not said */
void plan_background_of(Sheet *sheet, const Planned *planned, const StepTime *time) {
  double seen = time->total / 1000;
  sheet_say_if(sheet, time->inputs > seen, ", waiting for the next inputs {seconds.inputs}",
               as_seconds(time->inputs));
  sheet_put(sheet, "{seconds.send_inputs}{seconds.snapshot}", as_seconds(time->sends),
            as_seconds(time->snapshot));
  sheet_say_if(sheet, time->saves > seen, ", snapshots {seconds.snapshots} ({} every {} steps)",
               as_seconds(time->saves), as_seconds(time->snapshot),
               as_count((double)module_whole(planned->m, "train.save.every")));
}

/* at least 1.2 s: computation 0.8 s, memory 0.3 s (concurrent), over data 0.4 s (between nodes)
   at least 0.9 s: computation 0.8 s, over data 0.1 s and 0.3 s hidden, over pcie 0.2 s */
void plan_time_of(Sheet *sheet, const Planned *planned, const PlanStep *step) {
  const StepTime *time = &step->time;
  if (time->total <= 0) return;
  sheet_say(sheet, "at least {seconds_per_step}: computation {seconds.compute}",
            as_seconds(time->total), as_seconds(time->compute));
  sheet_say_if(sheet, time->memory > 0, ", memory {seconds.memory} (concurrent)",
               as_seconds(time->memory));
  sheet_object(sheet, "seconds.over"), sheet_object(sheet, "seconds.exposed");
  sheet_object(sheet, "seconds.latency");
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) say_axis(sheet, planned, time, (int)i);
  sheet_say_if(sheet, time->pcie > 0, ", over pcie {seconds.pcie}", as_seconds(time->pcie));
  sheet_say_if(sheet, time->host > 0, ", on the host {seconds.host}", as_seconds(time->host));
  sheet_say_if(sheet, time->pcie + time->host > 0, ", of which the GPU waits for {seconds.away}",
               as_seconds(time->away));
  plan_background_of(sheet, planned, time);
  sheet_say_if(sheet, time->slowed > 0, ", slowed by {seconds.slowed} by messages that CPUs carry",
               as_seconds(time->slowed));
  sheet_say(sheet, "\n");
}

static void draw_lanes(FILE *file, const void *data) {
  const Planned *planned = data;
  lanes_svg(file, &(LanesPicture){planned->m, &planned->machine, &planned->step.lanes});
}

void topic_lanes(Sheet *sheet, const Planned *planned) {
  bool streams = module_has_streams(planned->m);
  if (planned->step.time.total <= 0 || planned->step.lanes.shown <= 0) return;
  if (!planned->m->mesh.n && !streams) return;
  sheet_heading(sheet, streams
                           ? "Kernels, copies and messages of a rank, at the rates of the machine"
                           : "Kernels and messages of a rank, at the rates of the machine");
  sheet_page(sheet, streams ? "Yellow: the kernels wait. An arrow is a token: what it points at "
                              "waits. Only some rounds of a loop are drawn.\n"
                            : "Yellow: the kernels wait for messages. Only some rounds of a loop "
                              "are drawn.\n");
  sheet_draw(sheet, draw_lanes, planned);
}

/* after 2000 of 10000 steps, frozen: ..
   for copies and the host the GPU waits 0.12 s of a late step, 0.48 s of one before */
void topic_later(Sheet *sheet, const Planned *planned) {
  const PlanStep *later = &planned->later;
  const StepTime *late = &later->time, *before = &planned->step.time;
  const char *warm_up = "the warm-up, whose length `freeze = auto` finds";
  if (planned->phase == PHASE_none) return;
  Moves moves = entry_moves(module_later_step(planned->m));
  if (planned->from)
    warm_up = arena_printf(planned->m->arena, "%.0f of %.0f steps", planned->from, planned->steps);
  sheet_open(sheet, phase_name(planned->phase));
  if (planned->from)
    sheet_put(sheet, "{from}{steps}", as_count(planned->from), as_count(planned->steps));
  sheet_say(
      sheet,
      "after {}, {}: {flop_per_step} FLOP per rank, {memory_bytes_per_step} between kernels and "
      "memory\n",
      as_text(warm_up), as_text(phase_name(planned->phase)), as_flop(later->flop),
      as_bytes(later->moved));
  plan_moves(sheet, moves.calls > 0, "such a step", &moves);
  plan_traffic_of(sheet, planned, later);
  plan_time_of(sheet, planned, later);
  plan_forecast_of(sheet, planned, &planned->later_forecast);
  sheet_close(sheet);
  if (plan_freezes(planned)) plan_freeze(sheet, planned);
  else if (late->total > 0 && before->pcie + before->host > 0)
    sheet_say(sheet, "for copies and the host the GPU waits {} of a late step, {} of one before\n",
              as_seconds(late->away), as_seconds(before->away));
}

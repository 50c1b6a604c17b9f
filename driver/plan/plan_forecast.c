/* The part of `plan` about the time that a step is expected to take: the forecast (forecast.h) next
   to the bound, what it consists of, the rate of training, the length of the run, and where its
   values come from. Without a machine there is none. */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include <string.h>

enum { HOUR = 3600, DAY = 86400 };

/* Three digits, but no exponent of large numbers. */
static Figure as_rounded(double number) {
  return number < 1000 ? as_number(number) : as_count(number);
}

static double dim_size(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (!strcmp(m->dims.at[i].name, name)) return (double)m->dims.at[i].size;
  return 1;
}

/* Tokens of a sample: numbers of the first input that indexes a table; 0: the model has none. */
static double tokens_of(const Module *m) {
  EACH_GLOBAL (m, global) {
    if (global->kind != GLOBAL_INPUT || !global->of || global->type.rank < 2) continue;
    double tokens = 1;
    for (int k = 0; k < global->type.rank; k++)
      if (strcmp(global->type.axis[k].dim, "Batch"))
        tokens *= dim_size(m, global->type.axis[k].dim);
    return tokens;
  }
  return 0;
}

/* , over data 0.4 s (0.1 s hidden) */
static void say_exposed(Sheet *sheet, const Planned *planned, const StepTime *time) {
  sheet_object(sheet, "seconds.exposed"), sheet_object(sheet, "seconds.over");
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) {
    Figure name = as_text(planned->m->mesh.at[i].name);
    bool sent = time->axis[i] > 0;
    double hidden = time->axis[i] - time->exposed[i];
    sheet_put(sheet, "{seconds.over.*}", name, as_seconds(time->axis[i]));
    sheet_say_if(sheet, sent, ", over {} {seconds.exposed.*}", name, name,
                 as_seconds(time->exposed[i]));
    sheet_say_if(sheet, sent && hidden > 0, " ({} hidden)", as_seconds(hidden));
  }
}

static void say_step(Sheet *sheet, const Planned *planned, const Forecast *forecast) {
  const PlanStep *step = &forecast->step;
  const double *part = step->kernels.part;
  sheet_say(sheet,
            "forecast {seconds_per_step} (error about {error:.0}): kernels {seconds.kernels}",
            as_seconds(step->time.total), as_share(forecast->error),
            as_seconds(kernel_sum(&step->kernels)));
  sheet_say_if(sheet, step->bubble > 0, ", waiting for other stages {seconds.bubble}",
               as_seconds(step->bubble));
  say_exposed(sheet, planned, &step->time);
  sheet_say_if(sheet, step->time.pcie + step->time.host > 0,
               ", waiting for copies and the host {seconds.host}", as_seconds(step->time.away));
  plan_background_of(sheet, planned, &step->time);
  sheet_say_if(sheet, step->time.slowed > 0, ", slowed by messages {seconds.slowed}",
               as_seconds(step->time.slowed));
  sheet_say(sheet,
            "\n  kernels: products {seconds.products}, attention {seconds.attention}, memory "
            "{seconds.memory}, launches {seconds.launches}\n",
            as_seconds(part[PART_PRODUCTS]), as_seconds(part[PART_ATTENTION]),
            as_seconds(part[PART_MEMORY]), as_seconds(part[PART_LAUNCH]));
  sheet_put(sheet, "{launches}", as_count(step->kernels.launches));
}

static void say_rate(Sheet *sheet, const Planned *planned) {
  const Forecast *forecast = &planned->forecast;
  const char *device = forecast->machine.gpus ? "GPU" : "rank";
  double seconds = forecast->step.time.total, rate = forecast->step.flop / seconds;
  double samples = (double)train_batch(planned->m), tokens = tokens_of(planned->m);
  double run = seconds * planned->steps;
  sheet_say_if(sheet, samples > 0 && tokens > 0, "  {tokens_per_second:.0} tokens/s, ",
               as_count(samples * tokens / seconds));
  sheet_say_if(sheet, samples > 0 && tokens <= 0, "  {samples_per_second} samples/s, ",
               as_number(samples / seconds));
  sheet_say(sheet, "{!flop_per_second}{} TFLOP/s a {}, MFU {mfu:.1}", as_exact(rate),
            as_number(rate * 1e-12), as_text(device), as_share(rate / forecast->machine.flops));
  double hours = run / HOUR * (double)mesh_ranks(planned->m);
  double unit = run >= DAY ? DAY : run >= HOUR ? HOUR : 1;
  sheet_say_if(sheet, planned->steps > 0,
               "; {run.steps} step{} {} {}, {run.device_hours} {} hours{!run.seconds}",
               as_count(planned->steps), as_text(planned->steps == 1 ? " takes" : "s take"),
               as_number(run / unit),
               as_text(run >= DAY    ? "days"
                       : run >= HOUR ? "hours"
                                     : "s"),
               as_rounded(hours), as_text(device), as_seconds(run));
  sheet_say(sheet, "\n");
}

/* guess for sm_80 (A100 SXM 40 GB), error about 30 %: products, memory, launches
   published rates in place of missing lines: link intra = 300 GB/s */
static void say_source(Sheet *sheet, const Planned *planned) {
  static const char *const words[] = {"TFLOP/s", "GB/s", "us"};
  static const double scale[] = {1e-12, 1e-9, 1e6};
  const Forecast *forecast = &planned->forecast;
  sheet_put(sheet, "{arch}{reached}", as_text(forecast->arch->name), as_text(forecast->measured));
  sheet_list(sheet, "sources");
  for (int i = 0; i < RATE_SOURCES; i++)
    if (*forecast->source[i].parts)
      sheet_say(sheet, "[sources]  {}, error about {error:.0}: {parts}{!source}\n",
                as_text(source_words(planned->m->arena, forecast, (RateSource)i)),
                as_share(forecast->source[i].error), as_text(forecast->source[i].parts),
                as_text(source_key((RateSource)i)));
  const KernelRecords *records = forecast->machine.records;
  sheet_say_if(sheet, records, "  {tuning_records} tuning records of this target\n",
               as_count(records ? records->at.n : 0));
  bool shared = forecast->machine.on_core > 1;
  sheet_say_if(
      sheet, shared,
      "  {ranks_on_a_core} ranks share a core: each has a whole one while the others wait\n",
      as_number(forecast->machine.on_core));
  sheet_list(sheet, "published");
  for (int i = 0; i < forecast->published; i++) {
    const PublishedRate *rate = &forecast->rate[i];
    sheet_say(sheet, "[published]{} {line} = {} {}{!value}",
              as_text(i ? "," : "  published rates in place of missing lines:"),
              as_text(rate->words), as_rounded(rate->value * scale[rate->unit]),
              as_text(words[rate->unit]), as_exact(rate->value));
  }
  if (forecast->published) sheet_say(sheet, "\n");
}

/* For another entry than `step`. */
void plan_forecast_of(Sheet *sheet, const Planned *planned, const Forecast *forecast) {
  if (!forecast->known) return;
  sheet_open(sheet, "forecast"), say_step(sheet, planned, forecast), sheet_close(sheet);
}

void topic_forecast(Sheet *sheet, const Planned *planned) {
  const Forecast *forecast = &planned->forecast;
  if (forecast->lacks)
    sheet_say(sheet, "no forecast: the machine block gives no `{forecast.lacks}`\n",
              as_text(forecast->lacks));
  if (!forecast->known) return;
  sheet_open(sheet, "forecast");
  say_step(sheet, planned, forecast), say_rate(sheet, planned), say_source(sheet, planned);
  sheet_close(sheet);
}

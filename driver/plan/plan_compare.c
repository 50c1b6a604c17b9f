/* `shardc plan --measured FILE`: the forecast of a step next to the step of median time of a trace,
   on rank 0: kernels by part and each for itself, the time between them, what they wait for
   messages over each axis, and which errs most.

   A kernel is one stretch of time, from the first of its workers to the last; stretches do not
   overlap. A file without blocked times (a GPU whose kernels are timed one by one) has messages in
   their place. All time that is neither a kernel's nor such a wait is between kernels: launches,
   copies between host and GPU, kernels of the host. A trace of kernels that the plan does not have
   is refused. Must not: change the forecast. */
#include "plan_compare.h"
#include "ir/schedule/flight.h"
#include <math.h>
#include <stdlib.h>

/* ---- the forecast ---- */

typedef struct ForecastOf { /* the program of rank 0 */
  const Module *m;
  const Machine *machine;
  PlanCompared *compared;
} ForecastOf;

static ComparedRow *row_named(PlanCompared *compared, Str name) {
  for (uint32_t i = 0; i < compared->kernel.n; i++)
    if (compared->kernel.at[i].name == name) return &compared->kernel.at[i];
  return NULL;
}

static void add_forecast(const ForecastOf *of, const Fn *kernel, double times) {
  KernelTime time = kernel_time(of->m, of->machine, kernel);
  ComparedRow *row = row_named(of->compared, kernel->name);
  if (!row) {
    vec_push(of->m->arena, of->compared->kernel,
             (ComparedRow){.name = kernel->name,
                           .part = kernel_work(of->m, of->machine->reach, kernel).part});
    row = &vec_last(of->compared->kernel);
  }
  row->forecast += times * (kernel_sum(&time) - time.part[PART_LAUNCH]);
  of->compared->part[PART_LAUNCH].forecast += times * time.part[PART_LAUNCH];
}

static void add_kernels(const ForecastOf *of, const Fn *f, double times) {
  EACH_OP (f, o) {
    double trips = o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
    if (o->code == OP_kernel && !kernel_on_host(of->m, o->callee))
      add_forecast(of, o->callee, times);
    else if (o->code != OP_kernel && o->callee) add_kernels(of, o->callee, times * trips);
  }
}

/* Waits of the step; those for other stages are part of the axis of the stages. */
static void forecast_waits(const Planned *planned, PlanCompared *compared) {
  const Module *m = planned->m;
  const PlanStep *step = &planned->forecast.step;
  int stages = module_class(m).axis;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    compared->axis[i] =
        (ComparedRow){.name = m->mesh.at[i].name,
                      .forecast = step->time.exposed[i] + ((int)i == stages ? step->bubble : 0)};
  compared->part[PART_LAUNCH].forecast += step->time.away;
}

/* ---- the trace ---- */

static int by_start(const void *a, const void *b) {
  const TraceBox *x = *(const TraceBox *const *)a, *y = *(const TraceBox *const *)b;
  return x->from < y->from ? -1 : x->from > y->from ? 1 : x < y ? -1 : x > y;
}

static bool of_host(const TraceReading *reading, Str name) {
  const Module *m = reading->planned->programs.at[0];
  const Fn *kernel = module_fn(m, name);
  return kernel && kernel_on_host(m, kernel);
}

/* Neither a kernel of the step, nor a copy or fill, whose names have no dot. */
static bool other_kernel(const TraceReading *reading, Str name) {
  const Module *m = reading->planned->programs.at[0];
  bool later = module_fn(m, name) != NULL;
  const char *why = later ? "is of steps after the warm-up: they have kernel `%s`"
                          : "is of another plan: this one has no kernel `%s`";
  return trace_refuse(reading, arena_printf(m->arena, why, name),
                      later ? "trace steps before: `./model train --trace FILE:2..4`"
                            : "--plan NAME: the plan that the executable was compiled with");
}

typedef VEC(const TraceBox *) KernelBoxes;

static bool add_measured(const TraceReading *reading, PlanCompared *compared,
                         const KernelBoxes *kernels) {
  double over = 0;
  for (uint32_t i = 0; i < kernels->n; i++) {
    const TraceBox *box = kernels->at[i];
    ComparedRow *row = row_named(compared, box->name);
    if (!row && of_host(reading, box->name)) continue;
    if (!row && strchr(box->name, '.')) return other_kernel(reading, box->name);
    double from = box->from > over ? box->from : over;
    if (row && box->to > from) row->measured += box->to - from;
    over = box->to > over ? box->to : over;
  }
  return true;
}

static bool read_step(const TraceReading *reading, PlanCompared *compared) {
  const TraceFile *file = &reading->file;
  const TraceBox *step = trace_step(reading, 0);
  BoxKind waits = file->waits ? BOX_WAIT : BOX_MESSAGE;
  KernelBoxes kernels = {0};
  for (uint32_t i = 0; i < file->box.n; i++) {
    const TraceBox *box = &file->box.at[i];
    if (box->rank || !trace_within(box, step)) continue;
    if (box->kind == BOX_KERNEL) vec_push(reading->planned->m->arena, kernels, box);
    if (box->kind == waits && box->axis >= 0)
      compared->axis[box->axis].measured += box->to - box->from;
  }
  if (kernels.n) qsort(kernels.at, kernels.n, sizeof *kernels.at, by_start);
  compared->seconds = step->to - step->from;
  return add_measured(reading, compared, &kernels);
}

/* ---- both ---- */

static int by_difference(const void *a, const void *b) {
  const ComparedRow *x = a, *y = b;
  double s = fabs(x->forecast - x->measured), t = fabs(y->forecast - y->measured);
  return s > t ? -1 : s < t ? 1 : strcmp(x->name, y->name);
}

static void add_up(PlanCompared *compared, uint32_t axes) {
  double rest = compared->seconds;
  for (uint32_t i = 0; i < compared->kernel.n; i++) {
    const ComparedRow *row = &compared->kernel.at[i];
    compared->part[row->part].forecast += row->forecast;
    compared->part[row->part].measured += row->measured, rest -= row->measured;
  }
  for (uint32_t i = 0; i < axes; i++) rest -= compared->axis[i].measured;
  compared->part[PART_LAUNCH].measured = rest > 0 ? rest : 0;
  qsort(compared->kernel.at, compared->kernel.n, sizeof *compared->kernel.at, by_difference);
}

bool plan_compare(const TraceReading *reading, Measured *measured) {
  const Planned *planned = reading->planned;
  if (!planned->forecast.known)
    return measured->scheduled ||
           trace_refuse(reading, "cannot be compared: the plan has no schedule and no forecast",
                        "`on MACHINE` in the plan: `plan` forecasts the time of its step");
  PlanCompared *compared = ARENA_NEW(planned->m->arena, PlanCompared);
  ForecastOf of = {planned->programs.at[0], &planned->forecast.machine, compared};
  add_kernels(&of, ir_main_entry(of.m), 1);
  forecast_waits(planned, compared);
  if (!read_step(reading, compared)) return false;
  add_up(compared, planned->m->mesh.n);
  measured->compared = compared;
  return true;
}

/* ---- the topic ---- */

enum { SHOWN = 6 };

static Figure error_of(const ComparedRow *row) {
  return as_share(row->measured > 0 ? row->forecast / row->measured - 1 : 0);
}

static void say_row(Sheet *sheet, const char *name, const ComparedRow *row) {
  if (row->forecast > 0 || row->measured > 0)
    sheet_say(sheet, "[parts]  {part:-36} {forecast:11} {measured:11} {error:9.1}\n", as_text(name),
              as_measured(row->forecast), as_measured(row->measured), error_of(row));
}

static void say_kernels(Sheet *sheet, const PlanCompared *compared) {
  sheet_heads(sheet, EVERYWHERE,
              "  kernels that err most                  forecast    measured     error");
  sheet_list(sheet, "kernels");
  for (uint32_t i = 0; i < compared->kernel.n; i++) {
    const ComparedRow *row = &compared->kernel.at[i];
    sheet_say_if(
        sheet, i < SHOWN, "[kernels]  {kernel:-36} {forecast:11} {measured:11} {error:9.1}\n",
        as_text(row->name), as_measured(row->forecast), as_measured(row->measured), error_of(row));
  }
}

void topic_compared(Sheet *sheet, const Planned *planned) {
  static const char *const names[KERNEL_PARTS] = {
      [PART_PRODUCTS] = "products",
      [PART_ATTENTION] = "attention",
      [PART_MEMORY] = "memory",
      [PART_LAUNCH] = "between kernels",
  };
  const PlanCompared *compared = planned->measured ? planned->measured->compared : NULL;
  if (!compared) return;
  double all = planned->forecast.step.time.total;
  sheet_open(sheet, "compared");
  sheet_say(sheet,
            "a step of rank 0: {seconds} measured, the forecast has {forecast} ({error:.1}); step "
            "{step} of {}\n",
            as_measured(compared->seconds), as_measured(all), as_share(all / compared->seconds - 1),
            as_count((double)planned->measured->step), as_text(planned->measured->path));
  sheet_heads(sheet, EVERYWHERE,
              "  part                                   forecast    measured     error");
  sheet_list(sheet, "parts");
  for (int i = 0; i < KERNEL_PARTS; i++) say_row(sheet, names[i], &compared->part[i]);
  for (uint32_t i = 0; i < planned->m->mesh.n; i++)
    say_row(sheet, arena_printf(planned->m->arena, "waits over %s", compared->axis[i].name),
            &compared->axis[i]);
  say_kernels(sheet, compared);
  sheet_close(sheet);
}

/* Where the rates of a forecast come from (forecast_source.h), each part of a step by itself:
   tuning records before the line `reached` of the machine block, which comes before the arch's row.
   A row that no run has checked is a guess; one checked by one rank is a guess for messages.

   Four of five are expected within the error. RECORD_ERROR is that of records of the same shape,
   which `tune` runs with empty caches, a step does not. The error of nearest records is that of the
   records themselves, each forecast by the others (kernel_time.h). MACHINE_ERROR is that of
   bench/forecast, MODEL_ERROR twice what attention's model differs from published rates. */
#include "forecast_source.h"
#include "ir/support/num.h"
#include "ir/shape/placement.h"
#include <string.h>

static const double RECORD_ERROR = 0.05, MACHINE_ERROR = 0.1, MODEL_ERROR = 0.25;

typedef struct SourceList {
  Forecast *forecast;
  Arena *arena;
  RateSource arch; /* of kernels */
  double sum, off; /* seconds; times their errors */
} SourceList;

static void add(SourceList *list, RateSource source, const char *part, double seconds) {
  SourceOf *of = &list->forecast->source[source];
  if (seconds <= 0) return;
  of->parts = arena_list(list->arena, of->parts, "%s", part);
  list->sum += seconds, list->off += seconds * of->error;
}

/* Does the line `reached` give it? */
static bool given(const Forecast *forecast, const char *word) {
  size_t n = strlen(word);
  for (const char *at = forecast->measured; (at = strstr(at, word)); at += n)
    if ((at == forecast->measured || at[-1] == ' ') && (!at[n] || at[n] == ',')) return true;
  return false;
}

static RateSource source_of(const SourceList *list, const char *word) {
  return given(list->forecast, word) ? BY_MACHINE : list->arch;
}

static void add_kernels(SourceList *list) {
  static const struct {
    KernelPart part;
    const char *name, *word;
  } rows[] = {{PART_PRODUCTS, "products", "products"},
              {PART_ATTENTION, "attention", "attention"},
              {PART_MEMORY, "memory", "memory"},
              {PART_LAUNCH, "launches", "launch"}};
  const KernelTime *time = &list->forecast->step.kernels;
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    KernelPart part = rows[i].part;
    double all = time->part[part], rest = all - time->recorded[part] - time->near[part];
    double modeled = time->modeled[part];
    add(list, BY_RECORD, rows[i].name, time->recorded[part]);
    add(list, BY_NEAREST, rows[i].name, time->near[part]);
    if (given(list->forecast, rows[i].word)) modeled = 0;
    add(list, BY_MODEL, rows[i].name, modeled), rest -= modeled;
    if (rest > 1e-9 * all) add(list, source_of(list, rows[i].word), rows[i].name, rest);
  }
}

/* Messages that are hidden count as those that are not: they may be exposed by an error. */
static void add_messages(SourceList *list, const Module *m) {
  Forecast *forecast = list->forecast;
  bool checked = forecast->arch->ranks_checked;
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    bool crosses = axis_crosses(m, &forecast->machine, (int)i);
    RateSource source = given(forecast, crosses ? "inter" : "intra") ? BY_MACHINE
                        : checked                                    ? BY_ARCH
                                                                     : BY_GUESS;
    add(list, source, arena_printf(list->arena, "over %s", m->mesh.at[i].name),
        forecast->step.time.axis[i]);
  }
  add(list, source_of(list, "pcie"), "copies", forecast->step.time.pcie);
  add(list, source_of(list, "dram"), "host", forecast->step.time.host);
}

void find_sources(Forecast *forecast, const Module *m) {
  const Arch *arch = forecast->arch;
  double error = mesh_ranks(m) > 1 ? arch->error_of_ranks : arch->error, near = -1;
  if (forecast->machine.records) near = records_error(&forecast->machine, m->arena);
  for (int i = 0; i < RATE_SOURCES; i++) forecast->source[i] = (SourceOf){"", error};
  forecast->source[BY_RECORD].error = RECORD_ERROR;
  forecast->source[BY_MACHINE].error = MACHINE_ERROR;
  forecast->source[BY_MODEL].error = MODEL_ERROR;
  if (near >= 0) forecast->source[BY_NEAREST].error = near > RECORD_ERROR ? near : RECORD_ERROR;
  SourceList list = {forecast, m->arena, arch->checked ? BY_ARCH : BY_GUESS, 0, 0};
  add_kernels(&list), add_messages(&list, m);
  forecast->error = list.sum > 0 ? list.off / list.sum : error;
}

const char *source_key(RateSource source) {
  static const char *const keys[RATE_SOURCES] = {"record", "nearest", "machine",
                                                 "model",  "arch",    "guess"};
  return keys[source];
}

const char *source_words(Arena *arena, const Forecast *forecast, RateSource source) {
  const Arch *arch = forecast->arch;
  switch (source) {
  case BY_RECORD: return "tuning records";
  case BY_NEAREST: return "nearest tuning records";
  case BY_MACHINE: return "machine block, measured";
  case BY_MODEL:
    return arena_printf(arena, "model of kernels by wgmma on %s (%s), checked by no run",
                        arch->name, arch->words);
  case BY_ARCH:
    return arena_printf(arena, "table of %s (%s), %s", arch->name, arch->words, arch->checked);
  case BY_GUESS:
  case RATE_SOURCES: break;
  }
  return arena_printf(arena, "guess for %s (%s)", arch->name, arch->words);
}

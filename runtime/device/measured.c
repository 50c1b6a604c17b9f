/* The rates of a profiled training as a machine block (measured.h): the lines of the plan's
   machine, or the target and the number of GPUs, and the line `reached` in place of any other.

   Counted are steps after the first WARM ones. A rate is the work of all kernels of a part over
   their seconds, in the mean of ranks; of messages that of LONG bytes or more, per axis, by the
   slowest axis inside a node and the slowest between nodes. A node of processors has the rates of
   its ranks together.
   Rates of processors are those of threads while they compute. Several threads of a rank wait for
   the slowest one, and `joined` is the share of the time in which they do not. Waits of threads
   that get fewer chunks of a kernel than others do not count, since `plan` knows these
   (ir/kernel/chunks.h). Ranks wait in messages for the slowest one: `balance` is the share in which
   they do not, in the mean of ranks; known where the communicator knows when the last rank has
   begun a message, and each rank has processors of its own.
   Parts without kernels and links without long messages have no rate. A rate above the block's own
   peak is written as the peak. On a GPU the time between launches is left out: a profile launches
   kernels one by one, a training by graphs. Must not: change what runs. */
#include "measured.h"
#include "ir/plan/setting_default.h"
#include "runtime/base/setting.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 2 };
static const double LONG = 1 << 16, LEAST_GAP = 1e-7;

typedef struct MeasuredRates { /* per second, of this rank; 0: not known */
  double part[RT_PART_ATTENTION + 1], host;
  double joined;        /* share of the time in which its workers do not wait for the slowest one */
  double balance, late; /* share of kernels and waits for the last rank that kernels take; seconds
                           of these waits */
  double gap;           /* seconds between two kernels */
  double intra, inter;
} MeasuredRates;

/* ---- rates ---- */

static bool on_host(const rt_program *program, const rt_kernel *k) {
  return program->sm && !k->image;
}

/* Rows of kernels since the mark. */
static double add_kernels(const Trace *trace, MeasuredRates *rates, double *calls) {
  const rt_program *program = trace->program;
  double all = 0, joined = trace->joined - trace->marked_joined, count[RT_PART_ATTENTION + 1] = {0},
         seconds[RT_PART_ATTENTION + 1] = {0}, moved = 0, by_host = 0;
  for (int i = 0; i < program->nkernels + 2; i++) {
    const TraceRow *row = &trace->row[i], *before = &trace->marked[i];
    const rt_kernel *k = i < program->nkernels ? program->kernels[i] : NULL;
    double took = row->seconds - before->seconds, worked = row->busy - before->busy,
           runs = (double)(row->calls - before->calls);
    all += took, *calls += runs;
    if (k && on_host(program, k)) moved += row->bytes - before->bytes, by_host += took;
    if (!k || on_host(program, k)) continue;
    count[k->part] += k->part == RT_PART_MEMORY ? row->bytes - before->bytes : runs * k->work;
    seconds[k->part] += worked;
  }
  for (int i = 0; i <= RT_PART_ATTENTION; i++)
    if (seconds[i] > 0) rates->part[i] = count[i] / seconds[i];
  if (by_host > 0) rates->host = moved / by_host;
  if (trace->workers > 1 && all > 0) rates->joined = joined < all ? joined / all : 1;
  return all;
}

static bool in_one_node(const Comm *c, int axis) {
  const RankGroup *group = &c->group[axis];
  int64_t ranks = c->launch.local_world, last = group->first + (group->n - 1) * group->stride;
  return group->first / ranks == last / ranks;
}

/* Ranks of the group that are in this rank's node. */
static double joined(const Comm *c, int axis) {
  const RankGroup *group = &c->group[axis];
  int64_t ranks = c->launch.local_world, node = c->launch.rank / ranks, n = 0;
  for (int i = 0; i < group->n; i++) n += (group->first + i * group->stride) / ranks == node;
  return n > 0 ? (double)n : 1;
}

static void take_slowest(double *rate, double other) {
  if (other > 0 && (*rate <= 0 || other < *rate)) *rate = other;
}

/* Bytes per second over an axis in a ring, without the time until all ranks have come to a message;
   0: no long message was sent. */
static double axis_rate(const Trace *trace, const Comm *c, int axis) {
  double bytes = 0, seconds = 0, n = (double)c->group[axis].n;
  for (int i = 0; i < trace->program->ncollectives; i++) {
    const rt_collective *row = &trace->program->collectives[i];
    const CommCount *now = &c->count[i], *before = &trace->sent[i];
    double calls = (double)(now->calls - before->calls), more = now->bytes - before->bytes;
    if (row->axis != axis || rt_is_hop(row->kind) || calls <= 0 || more < calls * LONG) continue;
    bytes += more * (rt_collective_facts[row->kind].shifts ? 1 : (n - 1) / n),
        seconds += now->seconds - before->seconds - (now->late - before->late);
  }
  return seconds > 0 ? bytes / seconds : 0;
}

/* Messages since the mark; seconds for which kernels waited for them. */
static double add_messages(const Trace *trace, MeasuredRates *rates) {
  const Comm *c = trace->comm;
  double waited = 0;
  for (int i = 0; i < trace->program->ncollectives; i++)
    waited += c->count[i].waited - trace->sent[i].waited;
  for (int axis = 0; axis < trace->program->naxes; axis++) {
    double rate = axis_rate(trace, c, axis);
    if (in_one_node(c, axis)) take_slowest(&rates->intra, rate);
    else take_slowest(&rates->inter, rate * (double)c->launch.local_world / joined(c, axis));
  }
  return waited;
}

/* Seconds for which kernels waited until the last rank had begun a message. */
static double waited_for_last(const Trace *trace) {
  double seconds = 0;
  for (int i = 0; i < trace->program->ncollectives; i++) {
    const CommCount *now = &trace->comm->count[i], *before = &trace->sent[i];
    double late = now->late - before->late, waited = now->waited - before->waited;
    seconds += late < waited ? late : waited;
  }
  return seconds;
}

static MeasuredRates measure(const Trace *trace) {
  MeasuredRates rates = {0};
  double calls = 0, kernels = add_kernels(trace, &rates, &calls), waited = 0;
  if (trace->comm->launch.world > 1) {
    waited = add_messages(trace, &rates), rates.late = waited_for_last(trace);
    rates.balance = kernels > 0 ? kernels / (kernels + rates.late) : 0;
  }
  double rest = trace->in_steps - trace->marked_seconds - kernels - waited;
  if (!trace->program->sm && calls > 0) rates.gap = rest / calls;
  if (!trace->program->sm && rates.gap < LEAST_GAP) rates.gap = LEAST_GAP;
  return rates;
}

static void add(double *sum, double *n, double rate) {
  if (rate > 0) *sum += rate, *n += 1;
}

/* Rates of kernels and `balance` in the mean of all ranks that have them. */
static void take_means(MeasuredRates *rates, const MeasuredRates *all, int ranks) {
  for (int part = 0; part <= RT_PART_ATTENTION; part++) {
    double sum = 0, n = 0;
    for (int r = 0; r < ranks; r++) add(&sum, &n, all[r].part[part]);
    rates->part[part] = n > 0 ? sum / n : 0;
  }
  double sum = 0, n = 0, late = 0;
  for (int r = 0; r < ranks; r++) add(&sum, &n, all[r].balance), late += all[r].late;
  rates->balance = late > 0 ? sum / n : 0;
}

/* A call of all ranks. */
static MeasuredRates measure_all(const Trace *trace, Comm *c) {
  MeasuredRates rates = measure(trace);
  int ranks = rt_comm_world(c);
  MeasuredRates *all = rt_alloc(sizeof rates * (size_t)ranks);
  rt_comm_gather(c, "measured rates", &rates, all, sizeof rates);
  take_means(&rates, all, ranks);
  free(all);
  return rates;
}

/* ---- lines ---- */

typedef struct TypeUnit { /* of the options of a type (settings.def) */
  const char *type, *unit;
  double scale;
} TypeUnit;

static const TypeUnit units[] = {
    {"FLOPS", "TFLOPS", 1e-12}, {"RATE", "GB/s", 1e-9}, {"SECONDS", "us", 1e6}};

/* NULL: numbers and words of this type have no unit. */
static const TypeUnit *unit_of(const char *line, const char *option) {
  const char *type = setting_type(line, option);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (!strcmp(units[i].type, type)) return &units[i];
  return NULL;
}

static void print_option(FILE *out, const char *line, const char *option, const char *value) {
  const TypeUnit *unit = unit_of(line, option);
  if (unit) fprintf(out, " %s = %.9g%s", option, strtod(value, NULL) * unit->scale, unit->unit);
  else fprintf(out, " %s = %s", option, value);
}

static double cores_of(const rt_program *program) {
  const char *said = rt_setting_said(program, "machine.node.cores");
  return said ? strtod(said, NULL) : (double)sysconf(_SC_NPROCESSORS_ONLN);
}

static void print_cores(FILE *out, const rt_program *program) {
  if (!program->sm && !rt_setting_said(program, "machine.node.cores"))
    fprintf(out, " cores = %.0f", cores_of(program));
}

/* The options of a line that the program's machine has, but `native`, which is this machine's
   target, and the one that is measured; false: it has none. */
static bool print_options(FILE *out, const rt_program *program, const char *line,
                          const char *measured) {
  char key[32];
  int n = snprintf(key, sizeof key, "machine.%s", line), shown = 0;
  for (int i = 0; i < program->nsettings; i++) {
    const rt_setting *setting = &program->settings[i];
    bool native = !strcmp(setting->key, "machine.node.arch") && !strcmp(setting->value, "native");
    if (strncmp(setting->key, key, (size_t)n) || setting->key[n] != '.') continue;
    if (!strcmp(setting->key + n + 1, measured)) continue;
    if (!shown++) fprintf(out, "  %s", line);
    print_option(out, key, setting->key + n + 1, native ? program->target : setting->value);
  }
  return shown > 0;
}

static void print_line(FILE *out, const rt_program *program, const char *line) {
  if (!print_options(out, program, line, "")) return;
  if (!strcmp(line, "node")) print_cores(out, program);
  fprintf(out, "\n");
}

/* With the rate at which the thread that communicates carries messages, where one does. */
static void print_link(FILE *out, const rt_program *program, const Comm *c) {
  double rate = c && c->launch.world > 1 && !program->sm ? rt_comm_per_core(c) : 0;
  bool shown = print_options(out, program, "link", rate > 0 ? "per_core" : "");
  if (rate > 0) fprintf(out, "%s per_core = %.4gGB/s", shown ? "" : "  link", 1e-9 * rate);
  if (shown || rate > 0) fprintf(out, "\n");
}

static void print_machine(FILE *out, const rt_program *program, const Comm *c) {
  bool gpus = program->sm > 0;
  if (!rt_setting_said(program, "machine.node.arch")) {
    fprintf(out, "  node arch = %s", program->target);
    if (gpus) fprintf(out, " gpus = %d", c ? c->launch.local_world : 1);
    print_cores(out, program);
    fprintf(out, "\n");
    return;
  }
  print_line(out, program, "node");
  if (gpus) print_line(out, program, "host");
  print_link(out, program, c);
}

/* Not above the peak of this key. */
static double within(const rt_program *program, const char *key, double rate) {
  const char *said = rt_setting_said(program, key);
  double peak = said ? strtod(said, NULL) : 0;
  return peak > 0 && rate > peak ? peak : rate;
}

static void print_rate(FILE *out, const char *word, double rate, double scale, const char *unit) {
  if (rate > 0) fprintf(out, " %s = %.4g%s", word, rate * scale, unit);
}

static void print_block(FILE *out, const Trace *trace, MeasuredRates rates) {
  const rt_program *program = trace->program;
  const Comm *c = trace->comm;
  double ranks = c->launch.local_world, in_node = program->sm ? 1 : ranks;
  bool shared = !program->sm && ranks > cores_of(program);
  if (shared) rates.intra *= ranks / cores_of(program); /* what a rank of its own core reaches */
  fprintf(out, "machine measured {\n");
  print_machine(out, program, c);
  fprintf(out, "  reached");
  print_rate(out, "products", in_node * rates.part[RT_PART_PRODUCTS], 1e-12, "TFLOPS");
  print_rate(out, "attention", in_node * rates.part[RT_PART_ATTENTION], 1e-12, "TFLOPS");
  print_rate(out, "memory",
             within(program, "machine.node.hbm", in_node * rates.part[RT_PART_MEMORY]), 1e-9,
             "GB/s");
  print_rate(out, "joined", rates.joined, 1, "");
  if (!program->sm && !shared) print_rate(out, "balance", rates.balance, 1, "");
  print_rate(out, "launch", rates.gap, 1e6, "us");
  print_rate(out, "intra", within(program, "machine.link.intra", rates.intra), 1e-9, "GB/s");
  print_rate(out, "inter", within(program, "machine.link.inter", rates.inter), 1e-9, "GB/s");
  print_rate(out, "dram", within(program, "machine.host.dram", ranks * rates.host), 1e-9, "GB/s");
  fprintf(out, "\n}\n");
}

char *rt_measured_text(const Trace *trace, Comm *c) {
  char *text = NULL;
  size_t n = 0;
  if (trace->steps <= trace->marked_steps || !trace->marked_steps) return NULL;
  MeasuredRates rates = measure_all(trace, c);
  FILE *out = rt_comm_rank(c) ? NULL : open_memstream(&text, &n);
  if (!out) return NULL;
  print_block(out, trace, rates);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

/* ---- while it runs ---- */

void rt_measured_open(Trace *trace, const Comm *c) {
  trace->comm = c;
  trace->marked = rt_alloc(sizeof *trace->marked * ((size_t)trace->program->nkernels + 2));
  trace->sent = rt_alloc(sizeof *trace->sent * ((size_t)trace->program->ncollectives + 1));
}

void rt_measured_step(Trace *trace) {
  if (trace->steps != WARM || !trace->marked) return;
  size_t kernels = (size_t)trace->program->nkernels + 2;
  memcpy(trace->marked, trace->row, kernels * sizeof *trace->marked);
  if (trace->comm->launch.world > 1)
    memcpy(trace->sent, trace->comm->count,
           (size_t)trace->program->ncollectives * sizeof *trace->sent);
  trace->marked_joined = trace->joined;
  trace->marked_steps = trace->steps, trace->marked_seconds = trace->in_steps;
}

/* The size of a bucket that is not written (bucket.h).

   A ring over n ranks has n - 1 hops whatever its message holds, so on a link with latency a small
   bucket takes little longer than an empty one. The size is the smallest power of two MiB of whose
   time at most 5 % is latency. Room in which pieces of messages are put end to end is as large as
   a bucket, so it is at most 1/64 of the memory of a rank, or 1 GiB where the machine does not say
   that; and never less than the default of the settings. driver/fit/choose.c asks whether the
   program then fits.

   The default stays where smaller buckets overlap other work: a host that updates parameters takes
   what is more than a bucket row by row, and 1-bit Adam sends one bucket while it packs the next.
   It stays also for models that are smaller than one bucket of it. */
#include "bucket.h"
#include "forecast.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/word_patterns.h"

static const double LATENCY = BUCKET_LATENCY / 100., MEMORY = 1. / 64, MOST = 1 << 30;

static bool cuts_batch(const Module *m, Str axis) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; rule_cuts_batch(&m->rules.at[i]) && k < m->rules.at[i].axes.n; k++)
      if (m->rules.at[i].axes.at[k] == axis) return true;
  return false;
}

/* A piece of the bucket goes over each axis after those before it. Ranks that hold the same piece
   sum it whole. */
static LinkTime time_over(const Module *m, const Machine *machine, double bytes) {
  const char *over = plan_zero_axes(m);
  LinkTime sum = {0};
  for (int whole = 0; whole < 2; whole++)
    for (uint32_t i = 0; i < m->mesh.n; i++) {
      Str axis = m->mesh.at[i].name;
      bool cut = *over ? text_lists(over, axis) : cuts_batch(m, axis);
      if (m->mesh.at[i].size < 2 || cut == whole || (whole && !cuts_batch(m, axis))) continue;
      OpCode kind = whole ? OP_all_reduce : OP_reduce_scatter;
      LinkTime one = link_time(m, machine, (int)i, kind, 1, (1 + whole) * bytes);
      if (one.seconds <= 0) return (LinkTime){0};
      sum.seconds += one.seconds, sum.latency += one.latency;
      if (cut) bytes /= (double)m->mesh.at[i].size;
    }
  return sum;
}

LinkTime bucket_time(const Module *m, double bytes) {
  Machine machine = forecast_links(m);
  return time_over(m, &machine, bytes);
}

static bool long_enough(const Module *m, const Machine *machine, int64_t bytes) {
  LinkTime time = time_over(m, machine, (double)bytes);
  return time.latency <= LATENCY * time.seconds;
}

/* Would another size change anything for the better? */
static bool is_free(const Module *m, int64_t least) {
  double bytes = 0;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_PARAM)
      bytes += (double)type_count(&m->globals.at[i]->type) * 4;
  return bytes > (double)least && !plan_offloads_any(m, OFFLOAD_OPTIMIZER) &&
         !(train_freezes(m) && plan_overlaps(m));
}

int64_t bucket_default(const Module *m) {
  const Machine machine = forecast_links(m);
  const int64_t least = plan_zero_bucket(m);
  const double most = machine.memory ? (double)machine.memory * MEMORY : MOST;
  if (!is_free(m, least) || long_enough(m, &machine, least)) return 0;
  int64_t bytes = 1 << 20;
  while (bytes < least) bytes *= 2;
  while (!long_enough(m, &machine, bytes) && (double)bytes * 2 <= most) bytes *= 2;
  return (double)bytes <= most ? bytes : 0;
}

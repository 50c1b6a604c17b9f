/* The cost of other sizes of micro-batches and buckets: the bytes of a rank and the bound of a
   step, each from the program compiled with that size, as for `accumulate`. Only for plans over
   several ranks whose machine gives its speeds; a size that cannot be compiled has no row. Must
   not: try more than the nearest sizes, since each one is a compilation. */
#include "ir/cost/bucket.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "plan_report.h"

enum { MOST_BUCKET = 16 }; /* GiB */

static void add(Planned *planned, const char *setting, int64_t value, const Cost *cost) {
  Alternative one = {.setting = setting,
                     .value = value,
                     .taken = !cost,
                     .total =
                         (cost ? cost->need.total : planned->need.total) + planned->machine.reserve,
                     .seconds = cost ? cost->seconds : planned->step.time.total};
  planned->alternative[planned->nalternative++] = one;
}

static void try(const Cli *o, Planned *planned, const char *setting, int64_t value,
                FitChange change) {
  Cost cost;
  change.timed = true;
  if (fit_cost(o, &change, &cost) && cost.seconds > 0) add(planned, setting, value, &cost);
}

/* The least above 1; n: there is none, or it is too large to be looked for. */
static int64_t factor_of(int64_t n) {
  enum { MOST = 1 << 16 };
  for (int64_t i = 2; i < MOST && i * i <= n; i++)
    if (n % i == 0) return i;
  return n;
}

/* The nearest smaller and larger one of which the plan's is a multiple, or that is one of it. */
static void try_micro(const Cli *o, Planned *planned) {
  FitChange change = fit_as_written(planned->m, o->facts);
  int64_t share = train_batch(planned->m) / mesh_batch_ranks(planned->m),
          now = plan_micro(planned->m) ? plan_micro(planned->m) : share;
  if (now < 1 || share % now) return;
  change.micro = now / factor_of(now);
  if (now > 1) try(o, planned, "micro", change.micro, change);
  add(planned, "micro", now, NULL);
  change.micro = now * factor_of(share / now);
  if (share > now) try(o, planned, "micro", change.micro, change);
}

/* Where links have latency: a quarter, and four times as much or what suits the links. */
static void try_bucket(const Cli *o, Planned *planned) {
  FitChange change = fit_as_written(planned->m, o->facts);
  int64_t now = plan_zero_bucket(planned->m),
          better = bucket_default(planned->m, &planned->machine);
  if (fit_latency(planned->m, now) <= 0) return;
  change.bucket = now / 4;
  if (change.bucket) try(o, planned, "bucket", change.bucket, change);
  add(planned, "bucket", now, NULL);
  change.bucket = better > now ? better : now * 4;
  if (now >> 30 < MOST_BUCKET) try(o, planned, "bucket", change.bucket, change);
}

void plan_alternative_tries(const Cli *o, Planned *planned) {
  if (planned->step.time.total <= 0 || mesh_ranks(planned->m) < 2 || !o->facts ||
      file_kind(o->c, o->operands.at[0]) != FILE_SHARD)
    return;
  try_micro(o, planned);
  try_bucket(o, planned);
}

/* Does its setting have another row? */
static bool has_choice(const Planned *planned, const Alternative *one) {
  int n = 0;
  for (int i = 0; i < planned->nalternative; i++)
    n += planned->alternative[i].setting == one->setting;
  return n > 1;
}

void topic_alternatives(Sheet *sheet, const Planned *planned) {
  bool first = true;
  for (int i = 0; i < planned->nalternative; i++) {
    const Alternative *one = &planned->alternative[i];
    double value = (double)one->value;
    if (!has_choice(planned, one)) continue;
    if (first)
      sheet_heads(sheet, EVERYWHERE, "with other sizes                     total     at least");
    sheet_say(
        sheet, "[alternatives]  {setting:-6} = {value:-11} {taken:-7} {total:12} {seconds:12}\n",
        as_text(one->setting), strcmp(one->setting, "bucket") ? as_count(value) : as_bytes(value),
        as_flag(one->taken, "(taken)", ""), as_bytes((double)one->total), as_seconds(one->seconds));
    first = false;
  }
}

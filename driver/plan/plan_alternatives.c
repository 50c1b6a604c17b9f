/* The cost of other sizes of micro-batches and buckets: the bytes of a rank and the bound of a
   step, each from the program compiled with that size, as for `accumulate`. Only for plans over
   several ranks whose machine gives its speeds; a size that cannot be compiled has no row. */
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "plan_report.h"
#include <stdlib.h>

static void add(Planned *planned, const char *setting, int64_t value, const Cost *cost) {
  Alternative one = {.setting = setting,
                     .value = value,
                     .taken = !cost,
                     .total =
                         (cost ? cost->need.total : planned->need.total) + planned->machine.reserve,
                     .seconds = cost ? cost->seconds : planned->step.time.total};
  planned->alternative[planned->nalternative++] = one;
}

/* Between the smaller and the larger ones the plan's own. */
static void try_sizes(const Cli *o, Planned *planned, Generator generator, const char *key,
                      int64_t now) {
  ChangeSearch search = search_new(o, planned->m, BY_SECONDS);
  bool taken = false;
  search_run(&search, 1u << generator);
  for (uint32_t i = 0; i <= search.tried.n; i++) {
    const Try *one = i < search.tried.n ? &search.tried.at[i] : NULL;
    int64_t value = one ? atoll(change_value(&one->change, key)) : INT64_MAX;
    const char *setting = strrchr(key, '.') + 1;
    if (value > now && !taken) add(planned, setting, now, NULL), taken = true;
    if (one && one->made && one->cost.seconds > 0) add(planned, setting, value, &one->cost);
  }
}

void plan_alternative_tries(const Cli *o, Planned *planned) {
  if (planned->step.time.total <= 0 || mesh_ranks(planned->m) < 2 || !o->facts ||
      file_kind(o->c, o->operands.at[0]) != FILE_SHARD)
    return;
  try_sizes(o, planned, TRY_NEAR, "plan.micro", rank_micro(planned->m));
  try_sizes(o, planned, TRY_BUCKET, "plan.zero.bucket", plan_zero_bucket(planned->m));
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

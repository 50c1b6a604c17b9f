/* The cost of other values of `accumulate`, `micro` and `bucket`, and of other ways by which
   attention gets keys (driver/fit/ways.h): the bytes of a rank, and what it
   sends in a step or the bound and the forecast of the step, each from the program compiled with
   that value. A value that cannot be compiled has no row. Must not: choose one. */
#include "driver/fit/ways.h"
#include "ir/loop.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "plan_report.h"
#include <stdlib.h>

/* ---- gradients between micro-batches ---- */

/* For plans with sharded gradients and several micro-batches. */
static void try_accumulate(const Cli *o, Planned *planned) {
  ChangeSearch search = search_new(o, planned->m, BY_BYTES);
  Alternatives all = {0};
  const char *now = plan_accumulates_full(planned->m) ? "full" : "shard";
  if (plan_zero_stage(planned->m) < 2 || !planned->step.traffic.n ||
      !module_has(planned->m, loop_is_micro))
    return;
  search_run(&search, 1u << TRY_ACCUMULATE);
  for (uint32_t i = 0; i < search.tried.n; i++) {
    const Try *one = &search.tried.at[i];
    const char *value = change_value(&one->change, "plan.zero.accumulate");
    if (!one->made) return;
    vec_push(o->c->arena, all, ((Alternative){value, !strcmp(value, now), one->cost}));
  }
  planned->accumulate = all;
}

void topic_accumulated(Sheet *sheet, const Planned *planned) {
  if (planned->accumulate.n)
    sheet_heads(sheet, EVERYWHERE,
                "gradients between micro-batches       total    gradients   sent per step");
  for (uint32_t i = 0; i < planned->accumulate.n; i++) {
    const Alternative *one = &planned->accumulate.at[i];
    sheet_say(sheet,
              "[accumulate]  accumulate = {choice:-5} {taken:-8} {total:13} {gradients:12} "
              "{bytes_per_step:15}{!elements_per_step}\n",
              as_text(one->value), as_flag(one->taken, "(chosen)", ""),
              as_bytes((double)(one->cost.need.total + planned->machine.reserve)),
              as_bytes((double)one->cost.need.gradients), as_bytes(one->cost.bytes),
              as_count(one->cost.elements));
  }
}

/* ---- sizes of micro-batches and buckets ---- */

static Alternative own_size(const Planned *planned, int64_t size) {
  return (Alternative){arena_printf(planned->m->arena, "%lld", (long long)size), true,
                       (Cost){.need = planned->need,
                              .seconds = planned->step.time.total,
                              .forecast.seconds = planned->forecast.step.time.total}};
}

/* Between the smaller and the larger ones the plan's own. */
static Alternatives try_sizes(const Cli *o, const Planned *planned, Generator generator,
                              const char *key, int64_t now) {
  ChangeSearch search = search_new(o, planned->m, BY_SECONDS);
  Alternatives all = {0};
  bool taken = false;
  search_run(&search, 1u << generator);
  for (uint32_t i = 0; i < search.tried.n; i++) {
    const Try *one = &search.tried.at[i];
    const char *value = change_value(&one->change, key);
    if (!one->made || one->cost.seconds <= 0) continue;
    bool after = !taken && atoll(value) > now;
    if (after) vec_push(o->c->arena, all, own_size(planned, now));
    taken |= after;
    vec_push(o->c->arena, all, ((Alternative){value, false, one->cost}));
  }
  if (all.n && !taken) vec_push(o->c->arena, all, own_size(planned, now));
  return all;
}

static int by_time(const void *a, const void *b) {
  const Alternative *x = a, *y = b;
  double s = x->cost.forecast.seconds, t = y->cost.forecast.seconds;
  if (s <= 0 || t <= 0) s = x->cost.seconds, t = y->cost.seconds;
  return s < t ? -1 : s > t ? 1 : strcmp(x->value, y->value);
}

/* The fastest first. */
static void try_ways(const Cli *o, Planned *planned) {
  AttentionWay way;
  ChangeSearch search = search_new(o, planned->m, BY_SECONDS);
  if (!attention_way(planned->m, &way)) return;
  search_run(&search, 1u << TRY_WAY);
  Alternative own = own_size(planned, 0);
  own.value = way.now;
  vec_push(o->c->arena, planned->ways, own);
  for (uint32_t i = 0; i < search.tried.n; i++)
    if (search.tried.at[i].made)
      vec_push(o->c->arena, planned->ways,
               ((Alternative){change_value(&search.tried.at[i].change, "way"), false,
                              search.tried.at[i].cost}));
  qsort(planned->ways.at, planned->ways.n, sizeof *planned->ways.at, by_time);
}

/* Sizes for plans over several ranks whose machine gives its rates. */
void plan_alternative_tries(const Cli *o, Planned *planned) {
  try_accumulate(o, planned);
  if (planned->step.time.total <= 0 || mesh_ranks(planned->m) < 2 ||
      file_kind(o->c, o->operands.at[0]) != FILE_SHARD)
    return;
  try_ways(o, planned);
  planned->micro = try_sizes(o, planned, TRY_NEAR, "plan.micro", rank_micro(planned->m));
  planned->bucket =
      try_sizes(o, planned, TRY_BUCKET, "plan.zero.bucket", plan_zero_bucket(planned->m));
}

static void say_size(Sheet *sheet, const Planned *planned, const Alternative *one, Figure setting,
                     Figure value) {
  Figure taken = as_flag(one->taken, "(chosen)", ""),
         total = as_bytes((double)(one->cost.need.total + planned->machine.reserve)),
         seconds = as_seconds(one->cost.seconds);
  if (planned->forecast.known)
    sheet_say(sheet,
              "[alternatives]  {setting:-6} = {value:-11} {taken:-8} {total:11} {seconds:12} "
              "{forecast:11}\n",
              setting, value, taken, total, seconds, as_seconds(one->cost.forecast.seconds));
  else
    sheet_say(sheet,
              "[alternatives]  {setting:-6} = {value:-11} {taken:-8} {total:11} {seconds:12}\n",
              setting, value, taken, total, seconds);
}

static void say_ways(Sheet *sheet, const Planned *planned) {
  if (planned->ways.n < 2) return;
  sheet_heads(sheet, EVERYWHERE,
              planned->forecast.known
                  ? "keys of attention by                 total     at least    forecast"
                  : "keys of attention by                 total     at least");
  for (uint32_t i = 0; i < planned->ways.n; i++) {
    const Alternative *one = &planned->ways.at[i];
    Figure way = as_text(one->value), taken = as_flag(one->taken, "(chosen)", ""),
           total = as_bytes((double)(one->cost.need.total + planned->machine.reserve)),
           seconds = as_seconds(one->cost.seconds);
    if (planned->forecast.known)
      sheet_say(sheet, "[ways]  {way:-20} {taken:-8} {total:11} {seconds:12} {forecast:11}\n", way,
                taken, total, seconds, as_seconds(one->cost.forecast.seconds));
    else
      sheet_say(sheet, "[ways]  {way:-20} {taken:-8} {total:11} {seconds:12}\n", way, taken, total,
                seconds);
  }
}

void topic_alternatives(Sheet *sheet, const Planned *planned) {
  say_ways(sheet, planned);
  if (planned->micro.n + planned->bucket.n)
    sheet_heads(sheet, EVERYWHERE,
                planned->forecast.known
                    ? "with other sizes                     total     at least    forecast"
                    : "with other sizes                     total     at least");
  for (uint32_t i = 0; i < planned->micro.n; i++)
    say_size(sheet, planned, &planned->micro.at[i], as_text("micro"),
             as_count(strtod(planned->micro.at[i].value, NULL)));
  for (uint32_t i = 0; i < planned->bucket.n; i++)
    say_size(sheet, planned, &planned->bucket.at[i], as_text("bucket"),
             as_bytes(strtod(planned->bucket.at[i].value, NULL)));
}

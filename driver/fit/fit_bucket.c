/* The size of a bucket that no plan writes: by latency and rate of the machine's links
   (ir/cost/bucket.h), set in the module, so that a dump of it has it; with its note. */
#include "fit.h"
#include "ir/cost/bucket.h"

int64_t fit_set_bucket(Module *m, const LowerFacts *facts) {
  Machine machine = plan_machine(m);
  int64_t bytes = facts->bucket ? 0 : bucket_default(m, &machine);
  if (bytes) module_set(m, "plan.zero.bucket", "%lld", (long long)bytes);
  return bytes;
}

double fit_latency(const Module *m, int64_t bytes) {
  Machine machine = plan_machine(m);
  LinkTime time = bucket_time(m, &machine, (double)bytes);
  return time.seconds > 0 ? 100 * time.latency / time.seconds : 0;
}

void fit_bucket(Cli *o, Module *m, const LowerFacts *facts) {
  int64_t before = plan_zero_bucket(m), bytes = fit_set_bucket(m, facts);
  if (!bytes) return;
  Report *r = diag_at(o->c->diag, "N0601", facts->zero.file ? facts->zero : facts->plan,
                      "bucket = %lldMiB was chosen", (long long)(bytes >> 20));
  Str why = arena_printf(
      o->c->arena, "latency is %.2g %% of the time of a full bucket; of %s it would be %.2g %%",
      fit_latency(m, bytes), arena_amount(o->c->arena, (double)before), fit_latency(m, before));
  diag_fact(r, "%s", why);
  module_set(m, "made.zero.bucket", "chosen: %s", why); /* `info` prints it */
  if (fit_latency(m, bytes) > BUCKET_LATENCY)
    diag_fact(r, "no larger one is chosen: 1/64 of a rank's memory, or 1 GiB, is the most");
  diag_help(r, "another one: `--set plan.zero.bucket=N`, or `bucket = N` in the line `zero`");
}

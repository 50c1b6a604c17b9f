/* Command eval: the loss over the validation data, all of it unless --eval-batches says otherwise.
 */
#include "run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_result(const Run *r, double loss, int64_t samples) {
  if (r->o.at[OPT_json].given)
    printf("{\"schema\":1,\"step\":%lld,\"loss\":%.9g,\"samples\":%lld}\n", (long long)r->at.step,
           loss, (long long)samples);
  else
    printf("validation loss %.4f after %lld steps (%lld samples)\n", loss, (long long)r->at.step,
           (long long)samples);
}

int rt_eval(Run *r) {
  Fault f = {0};
  double loss = NAN;
  int64_t samples;
  if (!rt_open_data(r, &f)) rt_die_together(r, &f);
  if (!r->data.valid.samples) {
    rt_fault(&f, 203, "there is no validation data, or less than one sample of it");
    rt_help(&f, "--valid FILE, or --valid 10%% for the end of the training data");
    rt_die_together(r, &f);
  }
  if (!rt_start_device(r, &f) || !rt_load_weights(r, &f)) rt_die_together(r, &f);
  int64_t batches = r->o.at[OPT_eval_batches].given ? r->o.at[OPT_eval_batches].count : 0;
  if (!rt_evaluate(r, batches, &loss, &samples, &f)) rt_die_together(r, &f);
  if (!samples) return 128 + rt_caught(r);
  if (!rt_finish(r, &f)) rt_die_together(r, &f);
  print_result(r, loss, samples);
  return isfinite(loss) ? 0 : 5;
}

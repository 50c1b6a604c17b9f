/* Command eval, and evaluation while training: the loss over the validation data.

   Whole batches are spread evenly over the set and read in file order, so every evaluation sees the
   same samples. Samples behind the last whole batch have a loss where the compiler found that the
   loss is a sum over samples of what each gives alone (setting made.eval.separable): a batch with t
   of them, each k times, and one of them r times more (k t + r = B, the batch's size) has the loss
   (k sum + r one) / B, and a batch of that one alone tells `one`. Every sample then counts alike.
   Must not: guess where the loss is none of that kind (contrastive losses, means over tokens
   that count): the rest is left out, and said. */
#include "run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which samples ---- */

bool rt_separable(const Run *r) {
  const char *text = rt_setting_of(r->p, "made.eval.separable");
  return text && !strcmp(text, "on");
}

Evaluation rt_evaluation(const Run *r, int64_t batches) {
  int64_t samples = r->data.valid.samples, batch = r->data.batch, all = samples / batch,
          tail = samples % batch;
  Evaluation evaluation = {.loss = NAN, .batches = all, .tail = tail};
  if (batches && batches < all + (tail > 0))
    evaluation.batches = batches < all ? batches : all, evaluation.tail = 0;
  evaluation.repeats = evaluation.tail && !rt_separable(r) && !evaluation.batches;
  if (evaluation.tail && !rt_separable(r) && evaluation.batches) evaluation.tail = 0;
  return evaluation;
}

int64_t rt_evaluated(const Run *r, const Evaluation *evaluation, int64_t i) {
  int64_t batch = r->data.batch, all = r->data.valid.samples / batch;
  if (i < evaluation->batches * batch)
    return i / batch * all / evaluation->batches * batch + i % batch;
  return all * batch + i - evaluation->batches * batch;
}

/* ---- running ---- */

/* The loss of a batch of `count` samples from `first` on, `rounds` times each, and the first. */
static bool one_batch(Run *r, int64_t first, int64_t count, int64_t rounds, double *loss,
                      Fault *f) {
  const rt_entry *entry = rt_need_entry(r, "eval", f);
  f->code = 0;
  bool filled =
      entry && rt_data_fill_rows(&r->data, &r->data.valid, &r->device, first, count, rounds, f);
  if (!rt_all_filled(r, filled, f) || !rt_device_run(&r->device, entry, f)) return false;
  *loss = rt_get_output(r, "eval.loss");
  return true;
}

/* The sum of what the last samples give. */
static bool tail_sum(Run *r, const Evaluation *evaluation, double *sum, Fault *f) {
  int64_t batch = r->data.batch, first = r->data.valid.samples - evaluation->tail,
          rounds = evaluation->repeats ? batch : batch / evaluation->tail,
          rest = batch - rounds * evaluation->tail;
  double all = 0, one = 0;
  if (!one_batch(r, first, evaluation->tail, rounds, &all, f)) return false;
  *sum = all * (double)evaluation->tail;
  if (rest <= 0) return true;
  if (!one_batch(r, first, 1, 1, &one, f)) return false;
  *sum = (all * (double)batch - one * (double)rest) / (double)rounds;
  return true;
}

bool rt_evaluate(Run *r, Evaluation *evaluation, Fault *f) {
  double sum = 0, part = 0;
  int64_t batch = r->data.batch;
  evaluation->samples = 0;
  rt_set_scalar(r, "seed", (int64_t)r->at.seed);
  rt_set_scalar(r, "step", r->at.step);
  for (int64_t i = 0; i < evaluation->batches; i++) {
    if (rt_caught(r)) return true;
    if (!one_batch(r, rt_evaluated(r, evaluation, i * batch), batch, 1, &part, f)) return false;
    sum += part * (double)batch;
  }
  if (evaluation->tail && rt_caught(r)) return true;
  if (evaluation->tail && !tail_sum(r, evaluation, &part, f)) return false;
  if (evaluation->tail) sum += part;
  evaluation->samples = evaluation->batches * batch + evaluation->tail;
  evaluation->loss = sum / (double)evaluation->samples;
  return true;
}

/* ---- the command ---- */

static void print_result(const Run *r, const Evaluation *evaluation) {
  int64_t all = r->data.valid.samples;
  if (r->o.at[OPT_json].given) {
    printf("{\"schema\":1,\"step\":%lld,\"loss\":%.9g,\"samples\":%lld,\"of\":%lld}\n",
           (long long)r->at.step, evaluation->loss, (long long)evaluation->samples, (long long)all);
    return;
  }
  char of[32] = "";
  if (evaluation->samples < all) snprintf(of, sizeof of, " of %lld", (long long)all);
  printf("validation loss %.4f after %lld steps (%lld%s samples)\n", evaluation->loss,
         (long long)r->at.step, (long long)evaluation->samples, of);
}

/* Where the loss is no sum over samples. */
static void tell_rest(const Run *r, const Evaluation *evaluation) {
  int64_t rest = r->data.valid.samples % r->data.batch;
  if (evaluation->repeats)
    fprintf(stderr,
            "note: a batch has %lld samples, the data %lld: some are in it more than once\n",
            (long long)r->data.batch, (long long)rest);
  else if (rest && !evaluation->tail && !r->o.at[OPT_eval_batches].given)
    fprintf(stderr,
            "note: the last %lld samples make no whole batch of %lld, and this loss is no sum over "
            "samples: they are left out\n",
            (long long)rest, (long long)r->data.batch);
}

int rt_eval(Run *r) {
  Fault f = {0};
  Outputs outputs = {0};
  if (!rt_open_data(r, &f)) rt_die_on_all(r, &f);
  if (!r->data.valid.samples) {
    rt_fault(&f, 203, "there is no validation data, or less than one sample of it");
    rt_help(&f, "--valid FILE, or --valid 10%% for the end of the training data");
    rt_die_on_all(r, &f);
  }
  if (!rt_start_device(r, &f) || !rt_load_weights(r, &f)) rt_die_on_all(r, &f);
  const OptionValue *most = &r->o.at[OPT_eval_batches];
  Evaluation evaluation = rt_evaluation(r, most->given ? most->count : 0);
  if (!rt_evaluate(r, &evaluation, &f)) rt_die_on_all(r, &f);
  if (!evaluation.samples) return 128 + rt_caught(r);
  if (r->o.at[OPT_dump].given && !rt_outputs(r, &evaluation, &outputs, &f)) rt_die_on_all(r, &f);
  if (!rt_finish(r, outputs.n ? &outputs : NULL, &f)) rt_die_on_all(r, &f);
  rt_outputs_free(&outputs);
  if (!r->o.at[OPT_quiet].given && !r->o.at[OPT_json].given) tell_rest(r, &evaluation);
  print_result(r, &evaluation);
  return isfinite(evaluation.loss) ? 0 : 5;
}

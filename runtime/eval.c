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
  Evaluation v = {.loss = NAN, .batches = all, .tail = tail};
  if (batches && batches < all + (tail > 0)) v.batches = batches < all ? batches : all, v.tail = 0;
  v.repeats = v.tail && !rt_separable(r) && !v.batches;
  if (v.tail && !rt_separable(r) && v.batches) v.tail = 0;
  return v;
}

int64_t rt_evaluated(const Run *r, const Evaluation *v, int64_t i) {
  int64_t batch = r->data.batch, all = r->data.valid.samples / batch;
  if (i < v->batches * batch) return i / batch * all / v->batches * batch + i % batch;
  return all * batch + i - v->batches * batch;
}

/* ---- running ---- */

/* The loss of a batch of `count` samples from `first` on, `rounds` times each, and the first. */
static bool one_batch(Run *r, int64_t first, int64_t count, int64_t rounds, double *loss,
                      Fault *f) {
  const rt_entry *e = rt_need_entry(r, "eval", f);
  f->code = 0;
  bool filled =
      e && rt_data_fill_rows(&r->data, &r->data.valid, &r->device, first, count, rounds, f);
  if (!rt_all_filled(r, filled, f) || !rt_device_run(&r->device, e, f)) return false;
  *loss = rt_get_output(r, "eval.loss");
  return true;
}

/* The sum of what the last samples give. */
static bool tail_sum(Run *r, const Evaluation *v, double *sum, Fault *f) {
  int64_t batch = r->data.batch, first = r->data.valid.samples - v->tail,
          rounds = v->repeats ? batch : batch / v->tail, rest = batch - rounds * v->tail;
  double all = 0, one = 0;
  if (!one_batch(r, first, v->tail, rounds, &all, f)) return false;
  *sum = all * (double)v->tail;
  if (rest <= 0) return true;
  if (!one_batch(r, first, 1, 1, &one, f)) return false;
  *sum = (all * (double)batch - one * (double)rest) / (double)rounds;
  return true;
}

bool rt_evaluate(Run *r, Evaluation *v, Fault *f) {
  double sum = 0, part = 0;
  int64_t batch = r->data.batch;
  v->samples = 0;
  rt_set_scalar(r, "seed", (int64_t)r->at.seed);
  rt_set_scalar(r, "step", r->at.step);
  for (int64_t i = 0; i < v->batches; i++) {
    if (rt_caught(r)) return true;
    if (!one_batch(r, rt_evaluated(r, v, i * batch), batch, 1, &part, f)) return false;
    sum += part * (double)batch;
  }
  if (v->tail && rt_caught(r)) return true;
  if (v->tail && !tail_sum(r, v, &part, f)) return false;
  if (v->tail) sum += part;
  v->samples = v->batches * batch + v->tail;
  v->loss = sum / (double)v->samples;
  return true;
}

/* ---- the command ---- */

static void print_result(const Run *r, const Evaluation *v) {
  int64_t all = r->data.valid.samples;
  if (r->o.at[OPT_json].given) {
    printf("{\"schema\":1,\"step\":%lld,\"loss\":%.9g,\"samples\":%lld,\"of\":%lld}\n",
           (long long)r->at.step, v->loss, (long long)v->samples, (long long)all);
    return;
  }
  char of[32] = "";
  if (v->samples < all) snprintf(of, sizeof of, " of %lld", (long long)all);
  printf("validation loss %.4f after %lld steps (%lld%s samples)\n", v->loss, (long long)r->at.step,
         (long long)v->samples, of);
}

/* Where the loss is no sum over samples. */
static void tell_rest(const Run *r, const Evaluation *v) {
  int64_t rest = r->data.valid.samples % r->data.batch;
  if (v->repeats)
    fprintf(stderr,
            "note: a batch has %lld samples, the data %lld: some are in it more than once\n",
            (long long)r->data.batch, (long long)rest);
  else if (rest && !v->tail && !r->o.at[OPT_eval_batches].given)
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
  Evaluation v = rt_evaluation(r, most->given ? most->count : 0);
  if (!rt_evaluate(r, &v, &f)) rt_die_on_all(r, &f);
  if (!v.samples) return 128 + rt_caught(r);
  if (r->o.at[OPT_dump].given && !rt_outputs(r, &v, &outputs, &f)) rt_die_on_all(r, &f);
  if (!rt_finish(r, outputs.n ? &outputs : NULL, &f)) rt_die_on_all(r, &f);
  rt_outputs_free(&outputs);
  if (!r->o.at[OPT_quiet].given && !r->o.at[OPT_json].given) tell_rest(r, &v);
  print_result(r, &v);
  return isfinite(v.loss) ? 0 : 5;
}

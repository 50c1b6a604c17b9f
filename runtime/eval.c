/* Command eval, and evaluation while training: the loss over the validation data.

   Whole batches are spread evenly over the set and read in file order, so every evaluation sees the
   same samples. A loss that is divided by a count or a sum of weights is computed as sums and
   weights (passes/math/tally.c): these are added up over batches in double precision and divided
   once, so batches with more counted elements weigh more. Terms that are linear in the samples are
   averaged.

   Samples after the last whole batch are evaluated if all sums are sums of independent terms per
   sample (setting made.eval.separable): a batch of size B = k t + r with each of the t remaining
   samples k times, and one of them r times more, gives k sum + r one; a batch with only that one
   sample gives B one. So every sample counts equally. Must not: guess if the loss is not of that
   kind (contrastive losses): the remaining samples are skipped with a message. */
#include "run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which samples ---- */

/* has a part of a batch a loss? */
static bool rt_separable(const Run *r) {
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

/* The contribution of a batch: its loss, then the sum and the weight of each term. */
typedef struct Totals {
  int terms, n;
  double *at;
} Totals;

static int64_t whole_setting(const Run *r, const char *key) {
  const char *text = rt_setting_of(r->p, key);
  return text ? strtoll(text, NULL, 10) : 0;
}

static double term_setting(const Run *r, const char *what, int term) {
  char key[64];
  snprintf(key, sizeof key, "made.eval.%s.%d", what, term);
  const char *text = rt_setting_of(r->p, key);
  return text ? strtod(text, NULL) : 0;
}

static double term_output(const Run *r, const char *what, int term) {
  char name[64];
  snprintf(name, sizeof name, "eval.%s.%d", what, term);
  return rt_get_output(r, name);
}

static Totals no_totals(const Run *r) {
  Totals totals = {.terms = (int)whole_setting(r, "made.eval.terms")};
  totals.n = 1 + 2 * totals.terms;
  totals.at = rt_alloc(sizeof *totals.at * (size_t)totals.n);
  for (int i = 0; i < totals.n; i++) totals.at[i] = 0;
  return totals;
}

/* Evaluates a batch of `count` samples from `first` on, each `rounds` times, filled up with the
   first. */
static bool one_batch(Run *r, int64_t first, int64_t count, int64_t rounds, Totals *totals,
                      Fault *f) {
  const rt_entry *entry = rt_need_entry(r, "eval", f);
  f->code = 0;
  bool filled =
      entry && rt_data_fill_rows(&r->data, &r->data.valid, &r->device, first, count, rounds, f);
  if (!rt_all_filled(r, filled, f) || !rt_device_run(&r->device, entry, f)) return false;
  totals->at[0] = rt_get_output(r, "eval.loss");
  for (int i = 0; i < totals->terms; i++) {
    totals->at[1 + 2 * i] = term_output(r, "sum", i);
    totals->at[2 + 2 * i] = term_output(r, "weight", i);
  }
  return true;
}

static void add_totals(Totals *all, const Totals *part, double times) {
  for (int i = 0; i < all->n; i++) all->at[i] += times * part->at[i];
}

/* Adds what the last samples give; `part` is room for one batch. */
static bool add_tail(Run *r, const Evaluation *evaluation, Totals *all, Totals *part, Fault *f) {
  int64_t batch = r->data.batch, first = r->data.valid.samples - evaluation->tail,
          rounds = evaluation->repeats ? batch : batch / evaluation->tail,
          rest = batch - rounds * evaluation->tail;
  if (!one_batch(r, first, evaluation->tail, rounds, part, f)) return false;
  if (rest <= 0 || evaluation->repeats) {
    double share = (double)evaluation->tail / (double)batch;
    return add_totals(all, part, share), true;
  }
  add_totals(all, part, 1.0 / (double)rounds);
  if (!one_batch(r, first, 1, 1, part, f)) return false;
  add_totals(all, part, -(double)rest / ((double)rounds * (double)batch));
  return true;
}

/* The loss of `samples` samples, and how much of them counts; NaN: every sample does. */
static void conclude(const Run *r, const Totals *totals, Evaluation *evaluation) {
  double average = (double)r->data.batch / (double)evaluation->samples, loss = 0, counted = NAN;
  for (int i = 0; i < totals->terms; i++) {
    double sum = totals->at[1 + 2 * i], weight = totals->at[2 + 2 * i];
    double by = fmax(weight, term_setting(r, "least", i)) + term_setting(r, "plus", i);
    if (isnan(weight)) loss += sum * average;
    else if (weight != 0) loss += sum / by;
    if (!isnan(weight)) counted = isnan(counted) ? weight : counted + weight;
  }
  evaluation->loss = totals->terms ? loss : totals->at[0] * average;
  /* what the last batch adds was divided and multiplied again */
  bool whole = fabs(counted - rint(counted)) < 1e-9 * fmax(1, counted);
  evaluation->counted = whole ? rint(counted) : counted;
  if (counted == 0) evaluation->loss = NAN;
}

static bool add_all(Run *r, Evaluation *evaluation, Totals *all, Totals *part, Fault *f) {
  int64_t batch = r->data.batch;
  for (int64_t i = 0; i < evaluation->batches; i++) {
    if (rt_caught(r)) return true;
    if (!one_batch(r, rt_evaluated(r, evaluation, i * batch), batch, 1, part, f)) return false;
    add_totals(all, part, 1);
  }
  if (evaluation->tail && rt_caught(r)) return true;
  if (evaluation->tail && !add_tail(r, evaluation, all, part, f)) return false;
  evaluation->samples = evaluation->batches * batch + evaluation->tail;
  conclude(r, all, evaluation);
  return true;
}

bool rt_evaluate(Run *r, Evaluation *evaluation, Fault *f) {
  Totals all = no_totals(r), part = no_totals(r);
  evaluation->samples = 0;
  rt_set_scalar(r, "seed", (int64_t)r->at.seed);
  rt_set_scalar(r, "step", r->at.step);
  bool ok = add_all(r, evaluation, &all, &part, f);
  free(all.at), free(part.at);
  return ok;
}

/* ---- the command ---- */

static bool nothing_counts(const Run *r, Fault *f) {
  rt_fault(f, 203, "no label of the validation data counts: all are ignored or have weight 0");
  return rt_everywhere(r, f);
}

static void print_result(const Run *r, const Evaluation *evaluation) {
  int64_t all = r->data.valid.samples;
  if (r->o.at[OPT_json].given) {
    printf("{\"schema\":1,\"step\":%lld,\"loss\":%.9g,\"samples\":%lld,\"of\":%lld",
           (long long)r->at.step, evaluation->loss, (long long)evaluation->samples, (long long)all);
    if (!isnan(evaluation->counted)) printf(",\"counted\":%.9g", evaluation->counted);
    printf("}\n");
    return;
  }
  char of[32] = "", counted[48] = "";
  if (evaluation->samples < all) snprintf(of, sizeof of, " of %lld", (long long)all);
  if (!isnan(evaluation->counted))
    snprintf(counted, sizeof counted,
             evaluation->counted == floor(evaluation->counted) ? ", %.0f labels count"
                                                               : ", weights of %.6g",
             evaluation->counted);
  printf("validation loss %.4f after %lld steps (%lld%s samples%s)\n", evaluation->loss,
         (long long)r->at.step, (long long)evaluation->samples, of, counted);
}

void rt_tell_batches(const Run *r, const Evaluation *evaluation) {
  if (rt_setting_of(r->p, "made.eval.mean") && evaluation->batches > 1)
    rt_note(
        "this loss depends on the batch as a whole: an evaluation is the mean over %lld batches "
        "of %lld samples",
        (long long)evaluation->batches, (long long)r->data.batch);
}

static void tell_rest(const Run *r, const Evaluation *evaluation) {
  int64_t rest = r->data.valid.samples % r->data.batch;
  rt_tell_batches(r, evaluation);
  if (evaluation->repeats)
    rt_note("a batch has %lld samples, the data %lld: some are in it more than once",
            (long long)r->data.batch, (long long)rest);
  else if (rest && !evaluation->tail && !r->o.at[OPT_eval_batches].given)
    rt_note("the last %lld samples make no whole batch of %lld, and this loss is no sum over "
            "samples: they are left out",
            (long long)rest, (long long)r->data.batch);
}

int rt_eval(Run *r) {
  Fault f = {0};
  Outputs outputs = {0};
  bool recalled = r->o.at[OPT_init].given || rt_recall_data(r, &f);
  if (!recalled || !rt_open_data(r, &f)) rt_die_on_all(r, &f);
  if (!r->data.valid.samples) {
    rt_fault(&f, 203, "there is no validation data, or less than one sample of it");
    rt_help(&f, "--valid FILE, or --valid 10%% for the end of the training data");
    rt_die_on_all(r, &f);
  }
  if (!rt_start_device(r, &f) || !rt_can_finish(r, &f) || !rt_load_weights(r, &f))
    rt_die_on_all(r, &f);
  const OptionValue *most = &r->o.at[OPT_eval_batches];
  Evaluation evaluation = rt_evaluation(r, most->given ? most->count : 0);
  if (!rt_evaluate(r, &evaluation, &f)) rt_die_on_all(r, &f);
  if (!evaluation.samples) return 128 + rt_caught(r);
  if (evaluation.counted == 0 && !nothing_counts(r, &f)) rt_die_on_all(r, &f);
  if (r->o.at[OPT_dump].given && !rt_outputs(r, &evaluation, &outputs, &f)) rt_die_on_all(r, &f);
  if (!rt_finish(r, outputs.n ? &outputs : NULL, &f)) rt_die_on_all(r, &f);
  rt_outputs_free(&outputs);
  if (!r->o.at[OPT_quiet].given && !r->o.at[OPT_json].given) tell_rest(r, &evaluation);
  print_result(r, &evaluation);
  return isfinite(evaluation.loss) ? 0 : 5;
}

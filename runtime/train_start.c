/* Command train before its loop: reads settings, resumes a run or begins one, opens data, the
   device, the run directory and logs, and says what it trains. Must not: run a step. */
#include "run_train.h"
#include "runtime/base/file.h"
#include "runtime/base/recorder.h"
#include "runtime/store/run_settings.h"
#include "run_tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing to resume yet. Metrics of an earlier run are kept under another name. */
static bool begin_anew(Run *r, Fault *f) {
  char path[RT_PATH], kept[RT_PATH], name[32];
  if (rt_is_first(r)) rt_note("no checkpoint in %s: begins at step 1", r->out);
  rt_join(path, r->out, "metrics.jsonl");
  for (int i = 1; rt_is_first(r) && rt_exists(path); i++) {
    snprintf(name, sizeof name, "metrics-%03d.jsonl", i);
    rt_join(kept, r->out, name);
    if (rt_exists(kept)) continue;
    if (rename(path, kept)) break;
    rt_note("its metrics.jsonl is now %s", name);
  }
  return rt_initialise(r, f);
}

/* Loads from the run's own directory (auto), another run's, or one checkpoint. */
static bool load_resumed(Train *train, Fault *f) {
  Run *r = train->r;
  const char *from = r->o.at[OPT_resume].text;
  bool automatic = !*from || !strcmp(from, "auto"), run = automatic || rt_holds_checkpoints(from);
  if (automatic) from = r->out;
  if (run && rt_is_first(r)) rt_checkpoint_recover(from);
  bool ok = run ? rt_checkpoint_load_newest(from, &r->device, &r->at, f)
                : rt_checkpoint_load(from, &r->device, &r->at, f);
  if (!ok && automatic && f->code == 501) return begin_anew(r, f);
  if (ok && run && !strcmp(from, r->out)) train->saved = r->at.step;
  return ok && rt_refresh(r, f);
}

/* Reports changes to a resumed run; checkpoints of old runtimes do not have the facts. */
static void tell_differences(const Train *train, const Progress *own) {
  const Progress *then = &train->r->at;
  if (!then->step || !rt_is_first(train->r)) return;
  if (then->data && then->data != own->data)
    rt_note("the resumed run read other data, or in another order (files, --valid, "
            "--shuffle, length of samples)");
  if (then->settings) {
    char *now = rt_run_settings(train->r->first);
    rt_tell_settings(then->settings, now);
    free(now);
  } else if (then->optimizer[0] && strcmp(then->optimizer, own->optimizer))
    rt_note("the resumed run's optimizer was %s, this one is %s", then->optimizer, own->optimizer);
}

static bool resume(Train *train, Fault *f) {
  Run *r = train->r;
  const OptionValue *seed = &r->o.at[OPT_seed];
  Progress own = r->at;
  if (!load_resumed(train, f)) return false;
  tell_differences(train, &own);
  if (!seed->given && r->at.step && own.seed != r->at.seed && rt_is_first(r))
    rt_note("train.seed was %lld in the resumed run and stays so: %lld is not used",
            (long long)r->at.seed, (long long)own.seed);
  rt_keep_rates(r, r->at.given);
  free(r->at.settings), free(r->at.given), r->at.settings = r->at.given = NULL;
  r->at.data = own.data, memcpy(r->at.optimizer, own.optimizer, sizeof own.optimizer);
  if (seed->given && (uint64_t)seed->count != r->at.seed)
    return rt_fault(f, 104, "--seed %lld, but the resumed run has seed %lld",
                    (long long)seed->count, (long long)r->at.seed);
  if (rt_is_first(r)) rt_checkpoint_retire(r->out, r->at.step);
  if (!r->o.at[OPT_quiet].given && r->at.step)
    fprintf(stderr, "resumed at step %lld\n", (long long)r->at.step);
  return true;
}

/* For which the schedule is compiled; -1: the program does not say it. */
static int64_t planned_steps(const rt_program *p) {
  const char *text = rt_setting_of(p, "train.steps");
  return text ? strtoll(text, NULL, 10) : -1;
}

static void read_settings(Train *train) {
  Run *r = train->r;
  int64_t planned = planned_steps(r->p);
  train->steps = rt_count_option(r, OPT_steps, planned < 0 ? 1000 : planned);
  train->eval_every = rt_count_setting(r, OPT_eval_every, "train.eval.every");
  train->eval_batches = rt_count_setting(r, OPT_eval_batches, "train.eval.batches");
  train->save_every = rt_count_setting(r, OPT_save_every, "train.save.every");
  train->may_skip = rt_may_skip(r->p);
  train->save_seconds = rt_save_seconds(r);
  train->saved_at = rt_now(), train->keep_best = r->o.at[OPT_keep_best].given;
  train->saves = rt_kept(r) && (train->save_every || !r->o.at[OPT_save_every].given);
  train->aside = rt_saves_aside(r);
  train->limit = r->o.at[OPT_max_time].given ? r->started + r->o.at[OPT_max_time].real : INFINITY;
  r->at = (Progress){.seed = (uint64_t)rt_seed(r), .loss = NAN, .valid_loss = NAN};
  const char *name = rt_setting_of(r->p, "train.optim");
  snprintf(r->at.optimizer, sizeof r->at.optimizer, "%s", name ? name : "");
}

/* Reports data that the run does not use, or uses more often than expected. */
static void tell_data(const Train *t) {
  const Run *r = t->r;
  int64_t batch = r->data.batch, train = r->data.train.samples, valid = r->data.valid.samples;
  if (train && train < batch)
    rt_note("a batch has %lld samples, the data %lld: some are in it more than once",
            (long long)batch, (long long)train);
  if (r->data.valid.asked && !valid)
    rt_note("the validation data holds no whole sample: the run has no validation");
  if (!valid || !rt_entry_find(r->p, "eval")) return;
  Evaluation evaluation = rt_evaluation(r, t->eval_batches);
  int64_t seen = evaluation.batches * batch + evaluation.tail;
  rt_tell_batches(r, &evaluation);
  if (evaluation.repeats)
    rt_note("validation: a batch has %lld samples, the data %lld: some are in it more "
            "than once",
            (long long)batch, (long long)valid);
  if (seen < valid)
    rt_note("an evaluation takes %lld of the validation samples%s", (long long)seen,
            t->eval_batches ? "; --eval-batches 0: all" : "");
}

static void greet(const Train *train) {
  const Run *r = train->r;
  char ranks[48] = "", device[160];
  int world = rt_comm_world(&r->comm);
  if (r->o.at[OPT_quiet].given) return;
  rt_device_words(&r->device, device, sizeof device);
  if (world > 1) snprintf(ranks, sizeof ranks, "%d ranks with each ", world);
  rt_say(stderr,
         "%s: %lld parameters, %s%s, %lld training and %lld validation samples, run "
         "directory %s\n",
         r->p->model, (long long)rt_parameters(r->p), ranks, device,
         (long long)r->data.train.samples, (long long)r->data.valid.samples, r->out);
  tell_data(train);
  int64_t compiled = planned_steps(r->p);
  if (compiled >= 0 && compiled != train->steps)
    rt_note("the learning-rate schedule was compiled for %lld steps", (long long)compiled);
}

/* The files that other tools read; by rank 0. */
static bool open_logs(Train *train, Fault *f) {
  const Run *r = train->r;
  if (rt_checkpoint_best(r->out) < 0) train->metrics.best = INFINITY;
  const OptionValue *logs = &r->o.at[OPT_log_as];
  return !logs->given || rt_logs_open(&train->metrics, r->out, logs->text, r->at.step, f);
}

/* Several ranks: a core dump of one rank says more. */
static bool open_record(Run *r, Fault *f) {
  const OptionValue *option = &r->o.at[OPT_flight_recorder];
  bool off = option->given && !strcmp(option->text, "off");
  int world = rt_comm_world(&r->comm);
  if (option->given && !off && strcmp(option->text, "on"))
    return rt_fault(f, 103, "--flight-recorder takes on or off, not `%s`", option->text);
  if (world < 2 || off) return true;
  r->comm.record = rt_record_open(r->out, rt_comm_rank(&r->comm), world);
  if (r->comm.record) r->comm.record->step = r->at.step;
  atomic_store(&r->watch.record, r->comm.record);
  return true;
}

bool rt_train_start(Train *train, Fault *f) {
  Run *r = train->r;
  bool resumes = r->o.at[OPT_resume].given;
  read_settings(train);
  if (r->o.at[OPT_log_as].given && !rt_logs_check(r->o.at[OPT_log_as].text, f)) return false;
  if (!train->saves && (train->keep_best || r->o.at[OPT_save_time].given))
    return rt_fault(f, 104, "%s, but no checkpoint is written (--keep 0 or --save-every 0)",
                    train->keep_best ? "--keep-best" : "--save-time");
  if (!(train->step = rt_entry_find(r->p, "step")))
    return rt_fault(f, 801, "this executable has no entry `step`");
  train->later = rt_phase_entry(r), train->looks = rt_freeze_window(r);
  if (resumes && !rt_recall_data(r, f)) return false;
  if (!rt_open_port(r, train->steps, &train->port, f) || !rt_open_data(r, f) ||
      !rt_run_folder(r, !resumes, f) || !rt_start_device(r, f))
    return false;
  if (!rt_train_evaluates(train) && !rt_without_validation(r, f)) return false;
  r->at.data = rt_data_identity(&r->data);
  train->saver = rt_saver_open(&r->device, rt_kept(r));
  bool there = rt_exists(r->out); /* a new directory is made only once the run can begin */
  if (!rt_comm_decide(&r->comm, "the run directory", true, &there, sizeof there, f)) return false;
  if (there && !rt_hold_folder(r, !resumes, f)) return false;
  if (!(resumes ? resume(train, f) : rt_initialise(r, f))) return false;
  if (!there && !rt_hold_folder(r, !resumes, f)) return false;
  if (!rt_can_finish(r, f) || !open_record(r, f) || !rt_rank_log(r, f)) return false;
  rt_keep_data(r);
  r->at.given = r->given, rt_set_rates(r);
  train->from = rt_phase_from(r);
  if (!rt_phase_fits(r, train->from, f)) return false;
  if (!rt_comm_all(&r->comm, "read the data", rt_data_beside(&r->data, &r->device, f), f))
    return false;
  if (r->at.step < train->steps && !r->o.at[OPT_overfit_batch].given)
    rt_data_ahead(&r->data, &r->data.train, r->at.samples, &r->at.seed);
  bool kept = !rt_is_first(r) || rt_run_tokenizer_keep(r, f);
  if (!rt_comm_decide(&r->comm, "the tokenizer", kept, NULL, 0, f)) return false;
  if (!rt_is_first(r)) return true;
  rt_checkpoint_clean(r->out);
  greet(train);
  bool own = train->saved == r->at.step;
  return rt_metrics_open(&train->metrics, r->out, r->at.step, own, f) && open_logs(train, f);
}

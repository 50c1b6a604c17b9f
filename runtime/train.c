/* Command train: the loop around entry step.

   A step is: fill the inputs with the next samples, set @seed and @step, run, read @loss.
   Everything else (evaluation, metrics, checkpoints, progress) happens between steps. A run depends
   on nothing but the tensors and Progress, which is why a resumed run gives the same bits as an
   unbroken one. Must not: save a checkpoint whose numbers are not finite. */
#include "run_train.h"
#include "runtime/base/recorder.h"
#include "runtime/base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Defined by tests that count allocations: how many there were so far. */
size_t rt_allocations(void) __attribute__((weak));

typedef enum Stop { GO_ON, DONE, TIME_UP, SIGNAL, NO_DATA } Stop;

static void trace_data(const Train *train) {
  const Run *r = train->r;
  double begin, end;
  if (r->device.trace && rt_data_read_at(&r->data, &begin, &end))
    rt_trace_data(r->device.trace, r->at.step + 1, begin, end, fmax(end - train->began, 0),
                  r->data.batch * r->data.tokens);
}

/* The data of the next step, before ranks ask each other whether it is to be: one that cannot read
   its part ends the run on all, with the state so far saved. */
static bool fill(Train *train, Fault *f) {
  Run *r = train->r;
  int64_t cursor = r->o.at[OPT_overfit_batch].given ? 0 : r->at.samples;
  train->allocated = rt_allocations ? rt_allocations() : 0;
  train->began = rt_now(), train->waited = rt_comm_waited(&r->comm), f->code = 0;
  if (r->at.step >= train->steps) return true;
  if (!rt_data_fill(&r->data, &r->data.train, &r->device, cursor, &r->at.seed, f)) return false;
  trace_data(train);
  if (!r->o.at[OPT_overfit_batch].given && r->at.step + 1 < train->steps)
    rt_data_ahead(&r->data, &r->data.train, cursor + r->data.batch, &r->at.seed);
  return true;
}

/* Seconds for which the kernels of the last step waited for messages. */
static double waited(const Train *train) {
  const Device *d = &train->r->device;
  return d->kind->waited ? d->kind->waited(d) : rt_comm_waited(&train->r->comm) - train->waited;
}

/* Are the second moments steady after this step of warm-up? */
static bool look(Train *train, Fault *f) {
  Run *r = train->r;
  int64_t done = r->at.step + 1;
  if (!train->looks || done % train->looks || r->at.step >= train->from) return true;
  if (!rt_device_run(&r->device, rt_entry_of_phase(r->p, RT_PHASE_look), f)) return false;
  train->from = rt_phase_from(r);
  if (train->from == done && rt_is_first(r))
    rt_note("the second moments are steady: frozen after %lld steps", (long long)done);
  return true;
}

/* The entry of the next step, after its initial states were prepared; NULL: that failed. */
static const rt_entry *entry_now(Train *train, Fault *f) {
  Run *r = train->r;
  bool switched = train->later && r->at.step >= train->from,
       renews = switched && rt_phase_renews(r, train->from);
  if (renews && !rt_phase_end(r, train->begun, f)) return NULL;
  if (renews) train->begun = false;
  else if (switched && !train->begun && !(train->begun = rt_phase_begin(r, f))) return NULL;
  return switched && !renews ? train->later : train->step;
}

static bool one_step(Train *train, StepRecord *record, Fault *f) {
  Run *r = train->r;
  if (r->device.trace) rt_trace_step(r->device.trace, r->at.step + 1);
  if (r->comm.record) r->comm.record->step = r->at.step + 1;
  rt_set_scalar(r, "seed", (int64_t)r->at.seed);
  rt_set_scalar(r, "step", r->at.step);
  const rt_entry *entry = entry_now(train, f);
  if (!entry || !rt_device_run(&r->device, entry, f)) return false;
  if (r->device.trace) rt_trace_stepped(r->device.trace, r->at.step + 1);
  if (!look(train, f)) return false;
  *record = (StepRecord){.step = r->at.step + 1,
                         .samples = r->at.samples + r->data.batch,
                         .tokens = r->at.tokens + r->data.batch * r->data.tokens,
                         .loss = rt_get_output(r, "loss"),
                         .valid_loss = NAN,
                         .lr = rt_get_output(r, "lr"),
                         .norm = rt_get_output(r, "norm.of.gradients"),
                         .scale = rt_get_output(r, "loss.scale"),
                         .overflows = rt_get_output(r, "loss.skipped"),
                         .counted = rt_counted(r),
                         .skipped = rt_overflowed(r),
                         .milliseconds = 1e3 * (rt_now() - train->began),
                         .waited = 1e3 * waited(train)};
  if (rt_allocations && rt_allocations() != train->allocated)
    return rt_fault(f, 703, "step %lld allocated memory %zu times", (long long)record->step,
                    rt_allocations() - train->allocated);
  return true;
}

static void advance(Run *r, const StepRecord *record) {
  r->at.step = record->step, r->at.samples = record->samples, r->at.tokens = record->tokens;
  if (!record->skipped) r->at.loss = record->loss;
}

/* Asked of all ranks: the larger reason counts. own: ms of the last step without its waits. */
static Stop why_stop(Train *train, bool filled, double own) {
  Run *r = train->r;
  if (r->at.step >= train->steps) return DONE;
  Stop mine = !filled                         ? NO_DATA
              : atomic_load(&r->watch.caught) ? SIGNAL
              : rt_now() >= train->limit      ? TIME_UP
                                              : GO_ON;
  bool late = train->save_seconds > 0 && rt_now() >= train->saved_at + train->save_seconds;
  Agreed agreed = {.stop = mine, .writing = rt_saver_busy(train->saver), .late = late, .own = own};
  rt_agree(r, &agreed);
  train->writing = agreed.writing, train->save_due = agreed.late;
  train->slowest = agreed.slowest, train->slower = agreed.slower;
  return (Stop)agreed.stop;
}

static bool write_metrics(Train *train, StepRecord *record, Fault *f) {
  record->slowest = train->slowest, record->slower = train->slower;
  if (rt_is_first(train->r)) rt_metrics_port_step(train->port, record);
  return !rt_is_first(train->r) || rt_metrics_step(&train->metrics, record, f);
}

static bool point_at_saved(const Train *train, Fault *f) {
  char folder[RT_PATH];
  char cause[sizeof f->help];
  snprintf(cause, sizeof cause, "%.480s%s", f->help, *f->help ? "; " : "");
  if (train->saved < 0)
    return rt_help(f, "%.500snothing was saved%s", cause,
                   *cause || f->code / 100 != 6
                       ? ""
                       : "; a smaller learning rate, warm-up or `clip` often helps");
  rt_checkpoint_path(folder, train->r->out, train->saved);
  return rt_help(f, "%.300sthe last good checkpoint is %.330s", cause, folder);
}

/* Says which tensors hold numbers that are not finite and which do not: the boundary shows where it
 * began. */
static bool not_finite(Train *train, int code, const char *what, Fault *f) {
  char bad[240], clean[240];
  rt_check_finite(&train->r->device, 1 << RT_PARAM | 1 << RT_STATE | 1 << RT_OUTPUT, bad,
                  sizeof bad, clean, sizeof clean);
  rt_fault(f, code, "%s after step %lld is not finite\n  not finite: %s\n  clean: %s", what,
           (long long)train->r->at.step, *bad ? bad : "none", *clean ? clean : "none");
  rt_everywhere(train->r, f);
  return point_at_saved(train, f);
}

/* The name that the run directory has now, on rank 0. */
static bool find_run(Train *train, Fault *f) {
  Run *r = train->r;
  char before[RT_PATH];
  memcpy(before, r->out, sizeof before);
  Whereabouts now = rt_find_folder(r, f);
  if (now == FOLDER_STAYED || now == FOLDER_LOST) return now == FOLDER_STAYED;
  rt_meter_break(&train->meter);
  rt_note("the run directory %s is %s %s", before,
          now == FOLDER_MOVED ? "now" : "gone: the run continues in", r->out);
  return now == FOLDER_MOVED || rt_metrics_move(&train->metrics, r->out, r->at.step, f);
}

/* Writes what the saver has taken. Again if the directory was moved meanwhile; `tried`: where that
   has failed already. */
static bool save_where_it_is(Train *train, const char *tried, bool wait, Fault *f) {
  Run *r = train->r;
  char before[RT_PATH];
  for (snprintf(before, sizeof before, "%s", tried);;) {
    Fault lost = {0};
    bool found = !rt_is_first(r) || find_run(train, &lost);
    if (!rt_comm_decide(&r->comm, "the run directory", found, r->out, sizeof r->out, &lost))
      return *f = lost, false;
    if (!strcmp(before, r->out)) return false;
    if (rt_saver_start(train->saver, r->out, wait, f) &&
        (!wait || rt_saver_go_on(train->saver, true, f)))
      return true;
    memcpy(before, r->out, sizeof before);
  }
}

/* Lets a save go on, to its end if `wait` is set: a call of all ranks between two steps. */
static bool settle(Train *train, bool wait, Fault *f) {
  if (!rt_saver_saves(train->saver)) return true;
  if (!rt_saver_go_on(train->saver, wait, f) &&
      !save_where_it_is(train, rt_saver_run(train->saver), true, f))
    return false;
  if (!rt_saver_saves(train->saver)) train->saved = rt_saver_step(train->saver);
  return true;
}

/* wait: training does not go on before the checkpoint is complete. */
static bool save(Train *train, bool wait, Fault *f) {
  char bad[240], clean[240];
  if (!settle(train, true, f)) return false;
  train->saved_at = rt_now();
  if (train->saved == train->r->at.step || !train->saves) return true;
  if (rt_check_finite(&train->r->device, 1 << RT_PARAM | 1 << RT_STATE, bad, sizeof bad, clean,
                      sizeof clean))
    return not_finite(train, 602, "a tensor", f);
  bool synced = !rt_is_first(train->r) || rt_metrics_sync(&train->metrics, f);
  if (!rt_comm_all(&train->r->comm, "write its metrics", synced, f)) return false;
  bool aside = train->aside && !wait;
  rt_saver_take(train->saver, &train->r->at, aside);
  if (!save_where_it_is(train, "", !aside, f)) return false;
  if (!aside) train->saved = train->r->at.step;
  return true;
}

/* Before a message names the last checkpoint, or the run ends with a fault that all ranks have. */
static void finish_save(Train *train) {
  Fault unsaved = {0};
  if (!settle(train, true, &unsaved)) rt_print_fault(&unsaved, "warning");
}

/* A step that is not finite is skipped while that is allowed; otherwise the run ends and saves the
   state before the step. */
static bool handle_fault(Train *train, StepRecord *record, Fault *f) {
  Run *r = train->r;
  rt_meter_break(&train->meter);
  if (!rt_guarded(r->p)) {
    finish_save(train);
    advance(r, record);
    write_metrics(train, record, f);
    return not_finite(train, 601, "the loss", f);
  }
  Fault unsaved = {0};
  rt_report_nonfinite(r, record, f);
  rt_everywhere(r, f);
  record->skipped = true;
  if (train->skipped++ < train->may_skip) {
    rt_help(f, "%lld of %lld steps in a row that may be left out (on_nan skip)",
            (long long)train->skipped, (long long)train->may_skip);
    rt_print_fault(f, "warning");
    return true;
  }
  if (r->at.step > 0 && !save(train, true, &unsaved)) rt_print_fault(&unsaved, "warning");
  write_metrics(train, record, &unsaved);
  return point_at_saved(train, f);
}

static bool evaluate(Train *train, StepRecord *record, Fault *f) {
  Evaluation evaluation = rt_evaluation(train->r, train->eval_batches);
  if (!rt_evaluate(train->r, &evaluation, f)) return false;
  if (!evaluation.samples) return true; /* stopped by a signal */
  if (evaluation.counted == 0 && !train->told_unevaluated++ && rt_is_first(train->r)) {
    rt_meter_break(&train->meter);
    rt_note("no label of the validation samples counts: they have no loss");
  }
  record->valid_loss = train->r->at.valid_loss = evaluation.loss;
  train->evaluated = evaluation.samples;
  return true;
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

/* Data that cannot be read ends the run; what was trained so far stays. */
static bool keep_state(Train *train, Fault *f) {
  Fault unsaved = {0};
  if (train->r->at.step > 0 && !save(train, true, &unsaved)) rt_print_fault(&unsaved, "warning");
  return f->help[0] ? false : point_at_saved(train, f);
}

/* Is this validation loss the best so far? Asked of all ranks: rank 0 has those of before. */
static bool is_best(Train *train, const StepRecord *record) {
  bool better = rt_is_first(train->r) && record->valid_loss < train->metrics.best;
  return train->keep_best && !isnan(record->valid_loss) &&
         rt_comm_max(&train->r->comm, "whether it is the best", better);
}

/* Saves, if the run ends, a save is due, or this is the best state. */
static bool save_step(Train *train, bool ends, bool best, Fault *f) {
  bool any = ends || best || train->save_due || due(train->r->at.step, train->save_every);
  if (any && !save(train, ends || best, f)) return false;
  if (!best || !rt_is_first(train->r)) return true;
  rt_checkpoint_point(train->r->out, "best", train->r->at.step);
  rt_checkpoint_rotate(train->r->out, train->r->at.step, rt_kept(train->r)); /* the one before */
  return true;
}

/* Everything between two steps. */
static bool after_step(Train *train, StepRecord *record, Stop stop, Fault *f) {
  int64_t step = train->r->at.step;
  bool ends = stop == DONE || stop == TIME_UP,
       evaluates = rt_train_evaluates(train) && (ends || due(step, train->eval_every));
  if (!train->writing && !settle(train, false, f)) return false;
  bool evaluated = !evaluates || stop == SIGNAL || evaluate(train, record, f);
  if (!evaluated && f->code / 100 == 2) {
    Fault unwritten;
    write_metrics(train, record, &unwritten);
    return keep_state(train, f);
  }
  bool best = evaluated && is_best(train, record);
  if (!evaluated || !write_metrics(train, record, f)) return false;
  if (!save_step(train, stop != GO_ON, best, f)) return false;
  rt_meter_step(&train->meter, record, train->steps, train->limit - rt_now(), stop != GO_ON);
  if (rt_is_first(train->r) && (evaluates || stop != GO_ON))
    return find_run(train, f) &&
           rt_metrics_picture(&train->metrics, train->r->out, train->r->p->model, f);
  return true;
}

static bool loop(Train *train, Stop *stop, Fault *f) {
  StepRecord record;
  for (bool filled; filled = fill(train, f), (*stop = why_stop(train, filled, NAN)) == GO_ON;) {
    if (!one_step(train, &record, f)) return false;
    if (rt_step_is_finite(train->r->p, &record)) train->skipped = 0;
    else if (!record.skipped && !handle_fault(train, &record, f)) return false;
    rt_tell_uncounted(train->r, &train->meter, &record, &train->told_uncounted);
    advance(train->r, &record);
    *stop = why_stop(train, true, record.milliseconds - record.waited);
    if (!after_step(train, &record, *stop, f)) return false;
    if (*stop != GO_ON) return true;
  }
  if (*stop == NO_DATA) return rt_data_lost(train->r, f), keep_state(train, f);
  return save(train, true, f); /* before the first step, or while one was evaluated */
}

static void conclude(const Train *train, Stop stop) {
  const Progress *progress = &train->r->at;
  char took[32];
  rt_text_seconds(took, rt_now() - train->r->started);
  printf("%s after %lld steps in %s",
         stop == SIGNAL    ? (train->saves ? "stopped and saved" : "stopped, nothing saved")
         : stop == TIME_UP ? "time is up"
                           : "done",
         (long long)progress->step, took);
  if (!isnan(progress->loss)) printf(": loss %.4f", progress->loss);
  else if (progress->step) printf(": all were left out, nothing is trained");
  if (!isnan(progress->valid_loss)) printf(", validation loss %.4f", progress->valid_loss);
  if (!isnan(progress->valid_loss) && train->evaluated) /* `eval` reads all of them */
    printf(" (%lld of %lld samples)", (long long)train->evaluated,
           (long long)train->r->data.valid.samples);
  rt_say(stdout, "\nrun directory: %s\n", train->r->out);
}

/* Peak rate of the plan's type per rank; 0: unknown. Ranks share a processor. */
static double peak_of(const Run *r) {
  char key[64];
  const char *type = rt_setting_of(r->p, "plan.precision"); /* fp8 is multiplied in bf16 */
  snprintf(key, sizeof key, "machine.node.%s", strcmp(type, "fp8") ? type : "bf16");
  const char *peak = rt_setting_of(r->p, key);
  return (peak ? strtod(peak, NULL) : 0) / (r->p->sm ? 1 : r->comm.launch.local_world);
}

int rt_train(Run *r) {
  Train *train = rt_alloc(sizeof *train);
  Fault f = {0};
  Stop stop = DONE;
  *train = (Train){.r = r, .saved = -1, .metrics = {.fd = -1, .csv = -1, .events = -1}};
  if (!rt_train_start(train, &f)) rt_forget_folder(r), rt_die_on_all(r, &f);
  rt_meter_start(&train->meter, r->o.at[OPT_quiet].given, rt_count_option(r, OPT_log_every, 0),
                 r->at.step);
  train->meter.tokens = r->data.tokens > 0;
  train->meter.per_step = r->data.batch * (r->data.tokens > 0 ? r->data.tokens : 1);
  train->meter.flop = train->step->flop, train->meter.peak = peak_of(r);
  const char *forecast = rt_setting_of(r->p, "made.forecast");
  train->meter.forecast = forecast ? strtod(forecast, NULL) : 0;
  bool ok = loop(train, &stop, &f);
  if (!ok && (f.everywhere || rt_comm_world(&r->comm) == 1)) finish_save(train);
  rt_meter_break(&train->meter);
  rt_metrics_close(&train->metrics), rt_metrics_port_close(train->port);
  if (!ok || !rt_finish(r, NULL, &f)) rt_die_on_all(r, &f);
  conclude(train, stop);
  rt_record_close(r->comm.record, r->out), r->comm.record = NULL;
  rt_saver_close(train->saver);
  free(train);
  return stop == SIGNAL ? 75 : 0;
}

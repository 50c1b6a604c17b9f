/* Code shared by the commands: settings and options, data, device, run directory, entries. Options
   override the compiled settings. */
#include "run.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include "runtime/device/measured.h"
#include "runtime/device/shard_piece.h"
#include "runtime/store/saver.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t rt_count_option(const Run *r, OptionId o, int64_t otherwise) {
  return r->o.at[o].given ? r->o.at[o].count : otherwise;
}

int64_t rt_count_setting(const Run *r, OptionId o, const char *key) {
  const char *text = rt_setting_of(r->p, key);
  bool digits = text && !text[strspn(text, "0123456789")];
  int64_t value = digits ? strtoll(text, NULL, 10) : text ? (int64_t)strtod(text, NULL) : 0;
  return rt_count_option(r, o, value);
}

int64_t rt_kept(const Run *r) { return rt_count_setting(r, OPT_keep, "train.save.keep"); }

double rt_save_seconds(const Run *r) {
  const char *text = rt_setting_of(r->p, "train.save.time");
  if (r->o.at[OPT_save_time].given) return r->o.at[OPT_save_time].real;
  return text ? strtod(text, NULL) : 0;
}

bool rt_saves_aside(const Run *r) {
  const char *async = rt_setting_of(r->p, "train.save.async");
  bool often = rt_count_setting(r, OPT_save_every, "train.save.every") || rt_save_seconds(r) > 0;
  return r->o.command == 't' && async && !strcmp(async, "on") && rt_kept(r) && often;
}

int64_t rt_seed(const Run *r) { return rt_count_setting(r, OPT_seed, "train.seed"); }

static const char *text_option(const Run *r, OptionId o) {
  return r->o.at[o].given ? r->o.at[o].text : NULL;
}

/* Ranks of several machines, or of several directories, may see several files of one name. */
static bool same_data(Run *r, Fault *f) {
  int world = rt_comm_world(&r->comm), other = 0;
  uint64_t mine = rt_data_identity(&r->data), *all = rt_alloc(sizeof mine * (size_t)world);
  rt_comm_gather(&r->comm, "what the data is", &mine, all, sizeof mine);
  for (int i = world - 1; i > 0; i--)
    if (all[i] != all[0]) other = i;
  free(all);
  if (!other) return true;
  rt_fault(f, 106, "rank %d reads other data than rank 0", other);
  rt_help(f, "files of the same names differ in size, or in what they hold at their begin or end: "
             "another directory, or a copy that is not complete?");
  return rt_everywhere(r, f);
}

bool rt_open_data(Run *r, Fault *f) {
  const char *shuffle = text_option(r, OPT_shuffle);
  DataOptions options = {text_option(r, OPT_data), text_option(r, OPT_valid),
                         text_option(r, OPT_format), -1, text_option(r, OPT_tokenizer)};
  if (shuffle) {
    options.shuffle = !strcmp(shuffle, "on");
    if (!options.shuffle && strcmp(shuffle, "off"))
      return rt_fault(f, 103, "--shuffle takes on or off, not `%s`", shuffle);
  }
  return rt_comm_all(&r->comm, "open the data", rt_data_open(&r->data, r->whole, &options, f), f) &&
         same_data(r, f);
}

bool rt_without_validation(const Run *r, Fault *f) {
  const char *option = r->o.at[OPT_keep_best].given          ? "--keep-best"
                       : r->o.at[OPT_eval_every].count > 0   ? "--eval-every"
                       : r->o.at[OPT_eval_batches].count > 0 ? "--eval-batches"
                                                             : NULL;
  if (!option) return true;
  rt_fault(f, 104, "%s, but the run has no validation data", option);
  rt_help(f, "--valid FILE, or --valid 10%% for the end of the training data");
  return rt_everywhere(r, f);
}

/* Rank 0 listens, and all know whether it can. */
bool rt_open_port(Run *r, int64_t steps, MetricsPort **port, Fault *f) {
  const char *place = text_option(r, OPT_metrics);
  if (!place) return true;
  int world = rt_comm_world(&r->comm);
  if (rt_is_first(r)) *port = rt_metrics_port(place, r->p->model, world, steps, f);
  return rt_comm_decide(&r->comm, "the port of --metrics", !rt_is_first(r) || *port, NULL, 0, f);
}

static bool debugging(const char *word) {
  const char *list = getenv("SHARDC_DEBUG");
  return list && strstr(list, word);
}

static bool start_trace(Run *r, Fault *f) {
  const char *text = text_option(r, OPT_trace);
  if (!text && !r->o.at[OPT_profile].given) return true;
  r->device.trace = rt_trace_open(r->p, text, rt_comm_world(&r->comm), f);
  if (r->device.trace) rt_trace_workers(r->device.trace, r->device.pool);
  if (r->device.trace && r->o.at[OPT_profile].given) rt_measured_open(r->device.trace, &r->comm);
  return r->device.trace != NULL;
}

/* Launchers may have bound this rank to processors; otherwise the ranks of a machine share all. */
static int own_cpus(const Run *r) {
  int cpus = rt_cpus(), ranks = r->comm.launch.local_world;
  return ranks > 1 && cpus == (int)sysconf(_SC_NPROCESSORS_ONLN) ? cpus / ranks : cpus;
}

/* --device cpu, gpu or gpu:N; number -1: by the rank's own number. */
static bool choose_device(const Run *r, DeviceOptions *options, Fault *f) {
  const char *text = text_option(r, OPT_device);
  bool gpu = text && !strncmp(text, "gpu", 3), cpu = text && !strcmp(text, "cpu");
  size_t digits = gpu && text[3] == ':' ? strspn(text + 4, "0123456789") : 0;
  options->number = digits ? (int)strtol(text + 4, NULL, 10) : -1;
  bool numbered = digits > 0 && digits < 6 && !text[4 + digits];
  if (text && !cpu && !numbered && strcmp(text, "gpu"))
    return rt_fault(f, 103, "--device takes cpu, gpu or gpu:N, not `%s`", text);
  if (!text || gpu == (r->p->sm > 0)) return true;
  rt_fault(f, 103, "--device %s: this executable was compiled for %s", text, r->p->target);
  return rt_help(f, "compile with --target %s", (gpu ? rt_device_gpu : rt_device_cpu).target);
}

/* Does the command run entry `logits` or `decode`? `eval` computes outputs for a dump. */
static bool samples(const Run *r) {
  return r->o.command == 's' || (r->o.command == 'e' && r->o.at[OPT_dump].given);
}

static bool has_no_gpu(const Run *r) {
  for (const rt_program *program = r->first; program; program = program->next)
    if (program->sm) return false;
  return true;
}

bool rt_start_device(Run *r, Fault *f) {
  int64_t threads = rt_count_option(r, OPT_threads, own_cpus(r));
  if (r->o.at[OPT_threads].given && (threads < 1 || threads > r->p->workers))
    return rt_fault(f, 103, "--threads %lld: this executable has room for 1 to %d workers",
                    (long long)threads, r->p->workers);
  if (threads > r->p->workers) threads = r->p->workers;
  bool check = r->o.at[OPT_check_memory].given || debugging("arena"),
       graphs = r->o.at[OPT_no_graph].given && has_no_gpu(r);
  if (graphs || (!r->p->sm && r->o.at[OPT_kernels].given))
    return rt_fault(f, 104, "--%s is about GPUs, and this program runs on a processor",
                    graphs ? "no-graph" : "kernels");
  DeviceOptions options = {.threads = threads > 1 ? (int)threads : 1,
                           .samples = samples(r),
                           .saves =
                               rt_saves_aside(r) && rt_saver_writes(r->p, rt_comm_rank(&r->comm)),
                           .check = check,
                           .no_graph = r->o.at[OPT_no_graph].given,
                           .careful = debugging("launch"),
                           .waited = debugging("waited"),
                           .kernels = text_option(r, OPT_kernels)};
  bool ok = choose_device(r, &options, f) &&
            rt_device_start(&r->device, r->p, &r->comm, &options, f) && start_trace(r, f);
  r->device.first = r->first;
  if (!rt_comm_all(&r->comm, "start the device", ok, f) || !rt_device_join(&r->device, f))
    return false;
  if (text_option(r, OPT_trace)) rt_trace_messages(r->device.trace, &r->comm);
  return true;
}

/* ---- the run directory ---- */

/* Does the directory have a run with a step? Without one there is nothing to overwrite. */
static bool holds_run(const char *folder) {
  char path[RT_PATH];
  struct stat metrics;
  CheckpointList l = rt_checkpoint_list(folder);
  free(l.step);
  rt_join(path, folder, "metrics.jsonl");
  return l.n > 0 || (!stat(path, &metrics) && metrics.st_size > 0);
}

static void numbered(const Run *r, char out[RT_PATH], int i) {
  snprintf(out, RT_PATH, "runs/%s-%03d", r->p->model, i);
}

/* The last existing runs/MODEL-NNN, or with `fresh` the first free one. */
static void default_folder(Run *r, bool fresh) {
  int i = 1;
  for (char next[RT_PATH]; numbered(r, next, i), rt_exists(next); i++) {}
  numbered(r, r->out, fresh || i == 1 ? i : i - 1);
}

static const char *resume_folder(const Run *r) {
  const char *text = text_option(r, OPT_resume);
  return text && *text && strcmp(text, "auto") ? text : NULL;
}

static bool held_already(const Run *r, Fault *f) {
  rt_fault(f, 402, "this directory holds a run already");
  rt_at(f, r->out, "", -1);
  return rt_help(f, "--resume continues it, --out DIR starts another");
}

static bool find_folder(Run *r, bool fresh, Fault *f) {
  const char *out = text_option(r, OPT_out), *from = resume_folder(r);
  if (out) snprintf(r->out, sizeof r->out, "%s", out);
  else if (from && rt_is_checkpoint(from)) snprintf(r->out, sizeof r->out, "%s/..", from);
  else if (from) snprintf(r->out, sizeof r->out, "%s", from);
  else default_folder(r, fresh);
  if (!*r->out) return rt_fault(f, 103, "--out needs the name of a directory");
  return !fresh || !holds_run(r->out) || held_already(r, f);
}

bool rt_run_folder(Run *r, bool fresh, Fault *f) {
  bool ok = !rt_is_first(r) || find_folder(r, fresh, f);
  return rt_comm_decide(&r->comm, "the run directory", ok, r->out, sizeof r->out, f);
}

/* Cuts the last name off a path of n characters; returns the new length. */
static size_t cut_name(char *path, size_t n) {
  while (n && path[n - 1] == '/') n--;
  while (n && path[n - 1] != '/') n--;
  path[n] = 0;
  return n;
}

/* The length of the part of a path that exists. */
static size_t existing(const char *path) {
  char part[RT_PATH];
  size_t n = (size_t)snprintf(part, sizeof part, "%s", path);
  while (n && !rt_exists(part)) n = cut_name(part, n);
  return n;
}

/* A run that nobody named takes the first number that it can make itself. */
static bool make_folder(Run *r, bool fresh, Fault *f) {
  r->there = existing(r->out);
  bool named = r->o.at[OPT_out].given || !fresh;
  for (int i = 1; !named && i < 1 << 20; i++) {
    if (!rt_make_folders("runs", f)) return false;
    numbered(r, r->out, i);
    if (!mkdir(r->out, 0777)) return rt_sync_folder("runs", f);
    named = errno != EEXIST;
  }
  return rt_make_folders(r->out, f);
}

/* Behind the lock it is looked at again: another run may have come and gone since. */
bool rt_hold_folder(Run *r, bool fresh, Fault *f) {
  bool ok = !rt_is_first(r) || (make_folder(r, fresh, f) && rt_lock_folder(r->out, &r->lock, f));
  if (ok && rt_is_first(r) && fresh && holds_run(r->out)) ok = held_already(r, f);
  if (ok && rt_is_first(r)) ok = rt_keep_folder(r, f);
  return rt_comm_decide(&r->comm, "the run directory", ok, r->out, sizeof r->out, f);
}

void rt_forget_folder(Run *r) {
  size_t n = strlen(r->out);
  if (!rt_is_first(r) || r->folder < 0 || n <= r->there) return;
  char path[RT_PATH], metrics[RT_PATH];
  struct stat file;
  rt_join(metrics, r->out, "metrics.jsonl");
  if (!stat(metrics, &file) && !file.st_size) unlink(metrics);
  rt_unlock_folder(r->out);
  memcpy(path, r->out, n + 1);
  while (n > r->there && !rmdir(path)) n = cut_name(path, n);
}

/* ---- tensors and entries ---- */

void rt_set_scalar(Run *r, const char *name, int64_t v) {
  const rt_tensor *tensor = rt_tensor_find(r->p, name);
  if (!tensor) return;
  void *data = rt_tensor_write(&r->device, tensor);
  if (tensor->elem == RT_I64) memcpy(data, &v, sizeof v); /* a double would not hold every seed */
  else rt_elem_put(tensor->elem, data, 0, (double)v);
}

double rt_get_output(const Run *r, const char *name) {
  const rt_tensor *tensor = rt_tensor_find(r->p, name);
  return tensor ? rt_elem_get(tensor->elem, rt_tensor_read(&r->device, tensor), 0) : NAN;
}

/* Weights of a step's loss (passes/math/tally.c), all together. */
double rt_counted(const Run *r) {
  double all = NAN, one;
  char name[32];
  for (int i = 0;
       snprintf(name, sizeof name, "loss.weight.%d", i), !isnan(one = rt_get_output(r, name)); i++)
    all = i ? all + one : one;
  return all;
}

int64_t rt_parameters(const rt_program *p) { /* of all ranks together */
  int64_t n = 0;
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_PARAM) n += rt_whole_count(p, &p->tensors[i]);
  return n;
}

const rt_entry *rt_need_entry(const Run *r, const char *name, Fault *f) {
  const rt_entry *entry = rt_entry_find(r->p, name);
  if (!entry) rt_fault(f, 801, "this executable has no entry `%s`", name);
  return entry;
}

/* Recomputes data that a program derives from its parameters after they were read. */
bool rt_refresh(Run *r, Fault *f) {
  const rt_entry *entry = rt_entry_find(r->p, "refresh");
  return !entry || rt_device_run(&r->device, entry, f);
}

bool rt_initialise(Run *r, Fault *f) {
  const rt_entry *entry = rt_need_entry(r, "init", f);
  rt_set_scalar(r, "seed", (int64_t)r->at.seed);
  rt_set_scalar(r, "step", 0);
  const char *noise = getenv("SHARDC_NOISE"); /* a program of `shardc verify` has such a scalar */
  rt_set_scalar(r, "noise.of.sums", noise ? strtoll(noise, NULL, 10) : 0);
  if (!entry || !rt_device_run(&r->device, entry, f)) return false;
  if (!r->o.at[OPT_init].given) return true;
  const char *from = r->o.at[OPT_init].text;
  bool of_run = rt_is_checkpoint(from) || (rt_holds_checkpoints(from) && !rt_holds_weights(from)),
       ok = of_run ? rt_checkpoint_parameters(from, &r->device, f)
                   : rt_weights_load(from, &r->device, f);
  return rt_comm_all(&r->comm, "read the weights", ok, f) && rt_refresh(r, f);
}

bool rt_load_weights(Run *r, Fault *f) {
  const char *from = resume_folder(r);
  r->at.seed = (uint64_t)rt_seed(r);
  r->at.averages = r->o.at[OPT_ema].given;
  if (r->at.averages && r->o.at[OPT_init].given) {
    rt_fault(f, 103, "--ema reads the averages of a run, and --init its parameters");
    return rt_help(f, "--resume=DIR or --out DIR names the run");
  }
  if (r->o.at[OPT_init].given) return rt_initialise(r, f);
  if (from && rt_is_checkpoint(from))
    return rt_checkpoint_load(from, &r->device, &r->at, f) && rt_refresh(r, f);
  if (!rt_run_folder(r, false, f)) return false;
  if (rt_checkpoint_load_newest(r->out, &r->device, &r->at, f)) return rt_refresh(r, f);
  return f->code == 501
             ? rt_help(f, "train first, or name weights: --out DIR, --resume=DIR, --init FILE")
             : false;
}

/* ---- the end ---- */

static void report_frame(const char *name, int64_t predicted, int64_t touched, int64_t live) {
  fprintf(stderr, "%-8s %14lld %14lld %14lld  %s\n", name, (long long)predicted, (long long)touched,
          (long long)live, round_up(touched, CACHE_LINE) >= predicted ? "exact" : "less");
}

static int64_t predicted_of(const rt_program *p, int row) { /* rows of Device.touched */
  const rt_entry *entry = &p->entries[row % p->nentries];
  return row < p->nentries ? entry->work_bytes : entry->host_bytes;
}

/* Replaces the touched bytes of entries by those of the rank with the most unused memory: programs
   of stages differ in it. Entries that did not run stay 0. */
static void find_least_touched(Run *r) {
  int64_t *touched = r->device.touched;
  int n = 2 * r->p->nentries; /* of this memory, then of the host's */
  int64_t *left = rt_alloc(sizeof *left * (size_t)n);
  for (int i = 0; i < n; i++) left[i] = touched[i] ? predicted_of(r->p, i) - touched[i] : 0;
  rt_comm_max_of(&r->comm, "touched bytes", left, n);
  for (int i = 0; i < n; i++)
    if (touched[i]) touched[i] = predicted_of(r->p, i) - left[i];
  free(left);
}

static void report_snapshot(const Device *d) {
  int64_t bytes = rt_arena_bytes(d, RT_SNAPSHOT),
          touched = rt_touched(d->ctx.arena[RT_SNAPSHOT], bytes);
  if (touched) report_frame("snapshot", bytes, touched, bytes);
}

/* Sizes are rounded to 64 bytes, so touched bytes that fill the last line are all that was
   predicted. More than predicted is R0702 on any rank. */
static void report_memory(Run *r) {
  int64_t *touched = r->device.touched, all = 0;
  find_least_touched(r);
  if (!rt_is_first(r)) return;
  fprintf(stderr, "%-8s %14s %14s %14s\n", "entry", "predicted", "touched", "live");
  for (int i = 0; i < r->p->nentries; i++) {
    const rt_entry *entry = &r->p->entries[i];
    if (touched[i]) report_frame(entry->name, entry->work_bytes, touched[i], entry->live_bytes);
    const int64_t *moved = &r->device.moved[2 * i];
    int64_t host = touched[i + r->p->nentries];
    if (host) report_frame("  host", entry->host_bytes, host, entry->host_live_bytes);
    if (moved[0] || moved[1])
      fprintf(stderr, "  %-6s %14lld bytes down, %lld up\n", "moved", (long long)moved[0],
              (long long)moved[1]);
  }
  report_snapshot(&r->device);
  for (int i = 0; i < RT_ARENAS; i++) all += rt_arena_bytes(&r->device, i);
  fprintf(stderr, "%-8s %14lld bytes of %s\n", "arenas", (long long)all,
          r->p->naxes ? "each rank" : "the process");
}

/* Outputs that nothing has computed are left out of a dump: zeros would look like numbers. */
static void tell_missing(const Run *r, const Outputs *outputs) {
  bool of_model = false;
  for (int i = 0; i < r->p->ntensors; i++) {
    const rt_tensor *tensor = &r->p->tensors[i];
    of_model |=
        !outputs && !strncmp(tensor->name, "out.", 4) && !rt_is_computed(&r->device, tensor);
  }
  if (of_model)
    rt_note("the model's outputs are not in the dump: `eval --dump FILE` computes "
            "them for the validation data");
  const rt_tensor *loss = rt_tensor_find(r->p, "loss");
  if (loss && r->o.command == 't' && !rt_is_computed(&r->device, loss))
    rt_note("no step was run: loss and gradients are not in the dump");
}

/* --profile: tables, and of a training the machine block that it measured, which the run directory
   gets as a file for `use`. A call of all ranks. */
static bool tell_profile(Run *r, Fault *f) {
  bool trains = r->o.command == 't', first = rt_is_first(r);
  if (first) rt_trace_table(r->device.trace), rt_comm_table(&r->comm);
  char path[RT_PATH], *text = trains ? rt_measured_text(r->device.trace, &r->comm) : NULL;
  if (!trains || !first) return true;
  if (!text) {
    rt_note("no machine block: a profile measures rates after the first two steps");
    return true;
  }
  rt_join(path, r->out, "measured.shard");
  fprintf(stderr, "\n%s", text);
  rt_say(stderr, "for the forecasts of `shardc plan`; also in %s\n", path);
  bool ok = rt_write_file(path, text, (int64_t)strlen(text), false, f);
  free(text);
  return ok;
}

static bool is_data(const DataSet *set, const char *path) {
  for (int i = 0; i < set->nstreams; i++)
    for (int k = 0; k < set->stream[i].nparts; k++)
      if (rt_same_file(set->stream[i].part[k].path, path)) return true;
  return false;
}

/* Does the run read this file, or need it later? */
static bool needs(const Run *r, const char *path) {
  char folder[RT_PATH], metrics[RT_PATH];
  const char *slash = strrchr(path, '/'), *init = text_option(r, OPT_init);
  bool weights = strstr(path, ".safetensors") != NULL;
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
  rt_join(metrics, r->out, "metrics.jsonl");
  return is_data(&r->data.train, path) || is_data(&r->data.valid, path) ||
         rt_same_file(path, "/proc/self/exe") || rt_same_file(path, metrics) ||
         (init && (rt_same_file(path, init) || (weights && rt_same_file(folder, init)))) ||
         (weights && rt_is_checkpoint(folder));
}

static bool can_replace(const Run *r, const char *option, const char *path, Fault *f) {
  if (!path || !rt_exists(path) || !needs(r, path)) return !path || rt_file_possible(path, f);
  rt_fault(f, 104, "--%s would replace a file that the run needs", option);
  return rt_at(f, path, "", -1);
}

/* The files that rt_finish writes: a path that cannot be written is told before the work. */
bool rt_can_finish(Run *r, Fault *f) {
  const char *dump = text_option(r, OPT_dump),
             *trace = text_option(r, OPT_trace) ? r->device.trace->path : NULL;
  bool ok =
      !rt_is_first(r) || (can_replace(r, "dump", dump, f) && can_replace(r, "trace", trace, f));
  return rt_comm_all(&r->comm, "look where results go", ok, f);
}

bool rt_finish(Run *r, const Outputs *outputs, Fault *f) {
  const char *dump = text_option(r, OPT_dump);
  if (r->device.check) report_memory(r);
  bool told = !r->o.at[OPT_profile].given || tell_profile(r, f);
  if (!rt_comm_all(&r->comm, "write the profile", told, f)) return false;
  if (text_option(r, OPT_trace) && !rt_trace_write(r->device.trace, &r->comm, f)) return false;
  if (dump && rt_is_first(r) && !r->o.at[OPT_quiet].given) tell_missing(r, outputs);
  bool ok = !dump || rt_dump(dump, &r->device, outputs, f);
  return rt_comm_all(&r->comm, "write the dump", ok, f);
}

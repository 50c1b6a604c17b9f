/* Which files feed which input: one array per input (`columns`), or one sequence of tokens of which
   a task makes them (data_task.c). Validation data is files of its own, or the end of every file.
   Everything is opened and checked before training begins; must not: read the numbers themselves
   (files may be huge). */
#include "data_fill.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool rt_is_logits(const rt_tensor *tensor) { return !strncmp(tensor->name, "logits.", 7); }

bool rt_is_data(const rt_tensor *tensor) {
  return tensor->kind == RT_INPUT && !rt_is_logits(tensor) &&
         strncmp(tensor->name, "decode.of.", 10);
}

static int64_t per_sample(const rt_tensor *tensor) {
  return rt_tensor_count(tensor) / (tensor->size[0] ? tensor->size[0] : 1);
}

static bool open_files(const char *pattern, const char *format, bool valid, Stream *stream,
                       Fault *f) {
  if (rt_parts_open(pattern, format, &stream->part, &stream->nparts, f)) return true;
  if (f->code != 201) return false;
  char folder[RT_PATH];
  bool known = *pattern != '/' && getcwd(folder, sizeof folder);
  return rt_help(f, "--%s data; paths count from the current directory%s%.300s",
                 valid ? "valid FILE names the validation" : "data FILE names the training",
                 known ? ", " : "", known ? folder : "");
}

/* ---- cutting files into samples ---- */

/* Numbers of a part that belong to the last `share` of its samples; windows are cut by tokens. */
static int64_t samples_of(const Stream *stream, int64_t numbers) {
  return numbers < stream->length ? 0 : (numbers - stream->length) / stream->stride + 1;
}

/* Cuts off the end of every part. The set `rest` gets it; both keep whole samples only. */
static void cut_documents(Stream *stream, Stream *rest, double share, DataFile *a, DataFile *b) {
  int64_t tail = (int64_t)((double)a->ndocuments * share), head = a->ndocuments - tail;
  *b = *a;
  a->first = stream->samples, b->first = rest->samples, b->low = head;
  stream->samples += head, rest->samples += tail;
}

static void cut(Stream *stream, Stream *rest, double share) {
  int64_t unit =
      stream->windows ? 1 : stream->stride; /* windows: any token; columns: whole samples */
  *rest = *stream;
  rest->shared = true;
  rest->part = rt_alloc(sizeof(DataFile) * (size_t)stream->nparts);
  stream->samples = rest->samples = 0;
  for (int i = 0; i < stream->nparts; i++) {
    DataFile *a = &stream->part[i], *b = &rest->part[i];
    if (a->document) {
      cut_documents(stream, rest, share, a, b);
      continue;
    }
    int64_t n = a->array.count / unit, head = (n - (int64_t)((double)n * share)) * unit;
    *b = *a;
    a->first = stream->samples, b->first = rest->samples, b->low = head;
    stream->samples += samples_of(stream, head);
    rest->samples += samples_of(stream, a->array.count - head);
  }
}

/* Numbers in a setting, spaces or commas between; repeats one number over all channels. NULL if
 * there is none. */
static double *number_list(const rt_program *program, const char *key, int64_t channels,
                           bool *good) {
  const char *text = rt_setting_of(program, key);
  if (!text) return NULL;
  double *v = rt_alloc(sizeof *v * (size_t)channels);
  int64_t n = 0;
  for (char *end; n < channels; n++, text = end + strspn(end, " ,")) {
    v[n] = strtod(text, &end);
    if (end == text) break;
  }
  for (int64_t i = 1; n == 1 && i < channels; i++) v[i] = v[0];
  *good = *good && (n == channels || n == 1) && !*text;
  return v;
}

bool rt_feed_of(const rt_program *program, const rt_tensor *tensor, int stream, int64_t shift,
                Feed *feed, Fault *f) {
  char key[RT_NAME];
  bool good = true;
  snprintf(key, sizeof key, "data.ignore.%s", tensor->name);
  const char *ignore = rt_setting_of(program, key), *raw = rt_setting_of(program, "data.raw");
  *feed = (Feed){.input = tensor, .stream = stream, .shift = shift, .count = per_sample(tensor)};
  feed->ignore = ignore ? strtoll(ignore, NULL, 10) : INT64_MIN;
  feed->scale = raw && !strcmp(raw, "on") ? 1 : 1.0 / 255;
  if (tensor->elem >= RT_I32) return true; /* no floats: nothing is scaled */
  feed->channels = tensor->rank > 1 ? tensor->size[tensor->rank - 1] : 1;
  feed->mean = number_list(program, "data.mean", feed->channels, &good);
  feed->std = number_list(program, "data.std", feed->channels, &good);
  for (int64_t i = 0; good && feed->std && i < feed->channels; i++) good = feed->std[i] != 0;
  return good || rt_fault(f, 205, "`mean` and `std` of input %s: one number, or %lld, std not 0",
                          tensor->name, (long long)feed->channels);
}

/* ---- columns and tasks ---- */

typedef struct Opening {
  const rt_program *p;
  const DataOptions *o;
  const rt_tensor *input[64];
  int ninputs;
  const char *train, *valid, *format;
  double share; /* of the end of each file that is validation data; 0: none */
  Data *d;
  Fault *f;
} Opening;

static bool open_tokens(const Opening *opening, const char *pattern, Stream *stream) {
  const char *said = opening->o->tokenizer,
             *tokenizer = said ? said : rt_task_tokenizer(opening->p);
  bool valid = stream == opening->d->valid.stream;
  return open_files(pattern, opening->format, valid, stream, opening->f) &&
         rt_tokens_fit(stream, opening->d->train.feed[0].input, tokenizer, opening->f) &&
         rt_task_documents(&opening->d->task, stream, opening->f);
}

/* Keeps all of `stream`: counts its samples. */
static void keep_all(Stream *stream) {
  Stream unused;
  cut(stream, &unused, 0);
  free(unused.part);
}

static bool open_task(Opening *opening) {
  Data *data = opening->d;
  data->tasked = true;
  if (!rt_task_read(&data->task, opening->p, opening->f) ||
      !rt_task_feeds(&data->task, opening->p, &data->train, opening->f) ||
      !rt_task_feeds(&data->task, opening->p, &data->valid, opening->f))
    return false;
  if (!opening->train) {
    rt_fault(opening->f, 205, "no training data is named");
    return rt_help(opening->f, "--data FILE, or a `data` line in the train block");
  }
  if (!open_tokens(opening, opening->train, data->train.stream)) return false;
  data->tokens = data->train.stream->stride;
  data->valid.asked = opening->valid || opening->share > 0;
  if (opening->share > 0) {
    cut(data->train.stream, data->valid.stream, opening->share);
    return true;
  }
  keep_all(data->train.stream);
  if (!opening->valid) return true;
  if (!open_tokens(opening, opening->valid, data->valid.stream)) return false;
  keep_all(data->valid.stream);
  return true;
}

/* The pattern of one column: from "--data a=x,b=y", else from the settings; in new memory, NULL if
 * none. */
static char *column_pattern(const Opening *opening, const char *given, const char *group,
                            const char *name) {
  size_t n = strlen(name);
  for (const char *c = given; c && *c; c += strcspn(c, ","), c += *c == ',')
    if (!strncmp(c, name, n) && c[n] == '=')
      return rt_copy_text(c + n + 1, strcspn(c + n + 1, ","));
  char key[RT_NAME];
  snprintf(key, sizeof key, "data.%s.%s", group, name);
  const char *value = given ? NULL : rt_setting_of(opening->p, key);
  return value ? rt_copy_text(value, strlen(value)) : NULL;
}

static bool open_column(Opening *opening, DataSet *set, int i, const char *given,
                        const char *group) {
  const rt_tensor *tensor = opening->input[i];
  Stream *stream = &set->stream[i];
  if (!rt_feed_of(opening->p, tensor, i, 0, &set->feed[i], opening->f)) return false;
  stream->stride = stream->length = per_sample(tensor);
  char *pattern = column_pattern(opening, given, group, tensor->name);
  if (!pattern) {
    rt_fault(opening->f, 205, "input %s has no %s data", tensor->name,
             set == &opening->d->train ? "training" : "validation");
    return rt_help(opening->f, "name a file for each input: --%s %s=FILE,..",
                   set == &opening->d->train ? "data" : "valid", tensor->name);
  }
  bool ok = open_files(pattern, opening->format, set == &opening->d->valid, stream, opening->f) &&
            rt_columns_fit(stream, tensor, opening->f);
  free(pattern);
  return ok;
}

static bool source_fits(const char *name, size_t n, const char *file, bool again, Fault *f) {
  if (!again && *file && *file != ',') return true;
  rt_fault(f, 205, again ? "input `%.*s` has two sources" : "input `%.*s` has no file", (int)n,
           name);
  return rt_help(f, "one file or pattern for each input: %.*s=FILE,..", (int)n, name);
}

/* "--data a=x,b=y": each name is that of an input, and given once. */
static bool check_names(const Opening *opening, const char *given, Fault *f) {
  bool seen[COUNT_OF(opening->input)] = {false};
  for (const char *c = given; c && *c; c += strcspn(c, ","), c += *c == ',') {
    size_t n = strcspn(c, "=,");
    int i = 0;
    while (i < opening->ninputs &&
           !(strlen(opening->input[i]->name) == n && !strncmp(opening->input[i]->name, c, n)))
      i++;
    if (c[n] != '=') continue;
    if (i < opening->ninputs) {
      if (!source_fits(c, n, c + n + 1, seen[i], f)) return false;
      seen[i] = true;
      continue;
    }
    rt_fault(f, 205, "the model has no input `%.*s`", (int)n, c);
    char names[240] = "";
    for (size_t at = 0; i-- > 0 && at < sizeof names;)
      at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                             opening->input[opening->ninputs - 1 - i]->name);
    return rt_help(f, "its inputs: %s", names);
  }
  return true;
}

static bool open_columns(Opening *opening, DataSet *set, const char *given, const char *group) {
  if (!check_names(opening, given, opening->f)) return false;
  set->nstreams = set->nfeeds = opening->ninputs;
  set->stream = rt_alloc(sizeof(Stream) * (size_t)opening->ninputs);
  set->feed = rt_alloc(sizeof(Feed) * (size_t)opening->ninputs);
  for (int i = 0; i < opening->ninputs; i++)
    if (!open_column(opening, set, i, given, group)) return false;
  return true;
}

static void cut_columns(Opening *opening, DataSet *set, DataSet *rest) {
  if (rest) {
    *rest = *set;
    rest->stream = rt_alloc(sizeof(Stream) * (size_t)opening->ninputs);
  }
  for (int i = 0; i < set->nstreams; i++) {
    Stream unused;
    cut(&set->stream[i], rest ? &rest->stream[i] : &unused, rest ? opening->share : 0);
    if (!rest) free(unused.part);
  }
}

static bool has_valid_columns(const Opening *opening) {
  char key[RT_NAME];
  snprintf(key, sizeof key, "data.valid.columns.%s",
           opening->ninputs ? opening->input[0]->name : "");
  return opening->valid || rt_setting_of(opening->p, key);
}

/* Tokens of a sample: those of the longest input [Batch, Seq] of indexes; 0: it has none. */
static int64_t tokens_of(const Opening *opening) {
  int64_t most = 0;
  for (int i = 0; i < opening->ninputs; i++) {
    const rt_tensor *tensor = opening->input[i];
    if (tensor->of && tensor->rank == 2 && per_sample(tensor) > most) most = per_sample(tensor);
  }
  return most;
}

static bool open_all_columns(Opening *opening) {
  Data *data = opening->d;
  data->tokens = tokens_of(opening);
  if (!open_columns(opening, &data->train, opening->train, "columns")) return false;
  cut_columns(opening, &data->train, opening->share > 0 ? &data->valid : NULL);
  data->valid.asked = opening->share > 0 || has_valid_columns(opening);
  if (opening->share > 0 || !has_valid_columns(opening)) return true;
  if (!open_columns(opening, &data->valid, opening->valid, "valid.columns")) return false;
  data->valid.asked = true;
  cut_columns(opening, &data->valid, NULL);
  return true;
}

/* ---- all of it ---- */

static bool uses_columns(const Opening *opening) {
  for (int i = 0; i < opening->p->nsettings; i++)
    if (!strncmp(opening->p->settings[i].key, "data.columns.", 13)) return true;
  return opening->train && strchr(opening->train, '=') && !rt_exists(opening->train);
}

static bool count_samples(DataSet *set, Fault *f) {
  set->samples = set->nstreams ? set->stream[0].samples : 0;
  for (int i = 1; i < set->nstreams; i++)
    if (set->stream[i].samples != set->samples)
      return rt_fault(f, 205, "input %s has %lld samples, input %s has %lld",
                      set->feed[0].input->name, (long long)set->samples, set->feed[i].input->name,
                      (long long)set->stream[i].samples);
  return true;
}

static bool find_inputs(Opening *opening) {
  for (int i = 0; i < opening->p->ntensors; i++) {
    const rt_tensor *tensor = &opening->p->tensors[i];
    if (!rt_is_data(tensor)) continue;
    if (!tensor->rank || strcmp(tensor->dim[0], "Batch"))
      return rt_fault(opening->f, 205, "input %s does not begin with dimension Batch",
                      tensor->name);
    if (opening->ninputs == 64) return rt_fault(opening->f, 205, "more than 64 inputs");
    opening->input[opening->ninputs++] = tensor;
    opening->d->batch = tensor->size[0];
  }
  return true;
}

static bool read_options(Opening *opening) {
  const char *shuffle = rt_setting_of(opening->p, "data.shuffle");
  opening->train = opening->o->train ? opening->o->train : rt_setting_of(opening->p, "data.train");
  opening->valid = opening->o->valid ? opening->o->valid : rt_setting_of(opening->p, "data.valid");
  opening->format =
      opening->o->format ? opening->o->format : rt_setting_of(opening->p, "data.format");
  opening->d->shuffle =
      opening->o->shuffle >= 0 ? opening->o->shuffle : !(shuffle && !strcmp(shuffle, "off"));
  if (opening->format && !rt_format_known(opening->format)) {
    rt_fault(opening->f, 103, "unknown data format `%s`", opening->format);
    return rt_help(opening->f, "formats: npy llmc megatron idx u16 u32 f32 bytes");
  }
  char *end;
  double percent = opening->valid ? strtod(opening->valid, &end) : 0;
  if (!opening->valid || end == opening->valid || strcmp(end, "%")) return true;
  if (!(percent >= 0 && percent < 100))
    return rt_fault(opening->f, 103, "validation data of `%s`: 0%% to 99%%", opening->valid);
  opening->share = percent / 100, opening->valid = NULL;
  return true;
}

static bool enough(const Opening *opening) {
  const DataSet *set = &opening->d->train;
  if (set->samples > 0 || opening->ninputs == 0) return true;
  const Task *task = &opening->d->task;
  if (task->documents)
    rt_fault(opening->f, 203, "no document has the %d tokens of a sample", task->mlm ? 1 : 2);
  else
    rt_fault(opening->f, 203, "the data holds no whole sample: one is %lld numbers long",
             (long long)set->stream[0].length);
  if (opening->share > 0)
    rt_help(opening->f, "%g %% of it is validation data; `--valid 0%%` takes all",
            100 * opening->share);
  return rt_at(opening->f, set->stream[0].part[0].path, "", -1);
}

static int64_t longest_sample(const Opening *opening) { /* bytes */
  int64_t most = 0;
  for (int i = 0; i < opening->ninputs; i++) {
    int64_t n = rt_tensor_count(opening->input[i]) / opening->d->batch *
                rt_elem_bytes((int)opening->input[i]->elem);
    if (n > most) most = n;
  }
  return most;
}

bool rt_data_open(Data *data, const rt_program *program, const DataOptions *options, Fault *f) {
  *data = (Data){.program = program, .batch = 1};
  Opening opening = {.p = program, .o = options, .d = data, .f = f};
  if (!find_inputs(&opening) || !read_options(&opening)) return false;
  bool ok = opening.ninputs == 0 ||
            (uses_columns(&opening) ? open_all_columns(&opening) : open_task(&opening));
  data->guard = rt_map_guard();
  data->longest = longest_sample(&opening), data->stage = rt_alloc((size_t)data->longest);
  return ok && count_samples(&data->train, f) && count_samples(&data->valid, f) && enough(&opening);
}

static void add_part(Hash *hash, const DataFile *file) {
  int64_t most = file->file.n < 4096 ? file->file.n : 4096,
          facts[] = {file->file.n, file->low, file->ndocuments};
  rt_hash_add(hash, facts, sizeof facts);
  rt_hash_add(hash, file->file.at, (size_t)most);
  rt_hash_add(hash, file->file.at + file->file.n - most, (size_t)most);
}

static void add_set(Hash *hash, const DataSet *set) {
  rt_hash_add(hash, &set->samples, sizeof set->samples);
  for (int i = 0; i < set->nstreams; i++) {
    const Stream *stream = &set->stream[i];
    int64_t facts[] = {stream->samples, stream->stride, stream->length, stream->nparts};
    rt_hash_add(hash, facts, sizeof facts);
    for (int k = 0; k < stream->nparts; k++) add_part(hash, &stream->part[k]);
  }
}

uint64_t rt_data_identity(const Data *data) {
  Hash hash;
  rt_hash_start(&hash);
  rt_hash_add(&hash, &data->shuffle, sizeof data->shuffle);
  add_set(&hash, &data->train), add_set(&hash, &data->valid);
  return rt_hash_end(&hash);
}

static void close_set(DataSet *set) {
  for (int i = 0; i < set->nstreams; i++) {
    Stream *stream = &set->stream[i];
    for (int k = 0; k < stream->nparts && !stream->shared; k++) rt_part_close(&stream->part[k]);
    free(stream->part);
  }
  free(set->stream);
}

static void close_feeds(const DataSet *set) {
  for (int i = 0; i < set->nfeeds; i++) free(set->feed[i].mean), free(set->feed[i].std);
  free(set->feed);
}

void rt_data_close(Data *data) {
  bool shared = data->valid.feed == data->train.feed;
  rt_data_ahead_close(data);
  close_set(&data->train), close_set(&data->valid);
  close_feeds(&data->train);
  if (!shared) close_feeds(&data->valid);
  free(data->stage), free(data->guard);
  *data = (Data){0};
}

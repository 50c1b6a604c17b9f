/* Which files feed which input: one array per input (`columns`), or one sequence of tokens of which
   a task makes them (data_task.c). Validation data is files of its own, or the end of every file.
   Everything is opened and checked before training begins; must not: read the numbers themselves
   (files may be huge). */
#include "data_fill.h"
#include "runtime/base/file.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rt_is_logits(const rt_tensor *t) { return !strncmp(t->name, "logits.", 7); }

bool rt_is_data(const rt_tensor *t) {
  return t->kind == RT_INPUT && !rt_is_logits(t) && strncmp(t->name, "decode.of.", 10);
}

static int64_t per_sample(const rt_tensor *t) {
  return rt_tensor_count(t) / (t->size[0] ? t->size[0] : 1);
}

static bool open_files(const char *pattern, const char *format, Stream *s, Fault *f) {
  if (rt_parts_open(pattern, format, &s->part, &s->nparts, f)) return true;
  return f->code != 201 ? false
                        : rt_help(f, "--data FILE names the training data; paths count from the "
                                     "current directory");
}

/* ---- cutting files into samples ---- */

/* Numbers of a part that belong to the last `share` of its samples; windows are cut by tokens. */
static int64_t samples_of(const Stream *s, int64_t numbers) {
  return numbers < s->length ? 0 : (numbers - s->length) / s->stride + 1;
}

/* Cuts off the end of every part. The set `rest` gets it; both keep whole samples only. */
static void cut_documents(Stream *s, Stream *rest, double share, DataFile *a, DataFile *b) {
  int64_t tail = (int64_t)((double)a->ndocuments * share), head = a->ndocuments - tail;
  *b = *a;
  a->first = s->samples, b->first = rest->samples, b->low = head;
  s->samples += head, rest->samples += tail;
}

static void cut(Stream *s, Stream *rest, double share) {
  int64_t unit = s->windows ? 1 : s->stride; /* windows: any token; columns: whole samples */
  *rest = *s;
  rest->shared = true;
  rest->part = rt_alloc(sizeof(DataFile) * (size_t)s->nparts);
  s->samples = rest->samples = 0;
  for (int i = 0; i < s->nparts; i++) {
    DataFile *a = &s->part[i], *b = &rest->part[i];
    if (a->document) {
      cut_documents(s, rest, share, a, b);
      continue;
    }
    int64_t n = a->array.count / unit, head = (n - (int64_t)((double)n * share)) * unit;
    *b = *a;
    a->first = s->samples, b->first = rest->samples, b->low = head;
    s->samples += samples_of(s, head);
    rest->samples += samples_of(s, a->array.count - head);
  }
}

static bool check_columns(const Stream *s, const rt_tensor *t, Fault *f) {
  for (int i = 0; i < s->nparts; i++) {
    const Array *a = &s->part[i].array;
    int64_t n = a->rank ? a->size[0] : 0;
    if (a->rank ? n && a->count / n == s->stride : a->count % s->stride == 0) continue;
    rt_fault(f, 205, "a sample of input %s has %lld numbers, the file has %lld in all%s%lld",
             t->name, (long long)s->stride, (long long)a->count, n ? ", rows of " : ", remainder ",
             (long long)(n ? a->count / n : a->count % s->stride));
    return rt_at(f, s->part[i].path, "", -1);
  }
  return true;
}

static bool check_tokens(const Stream *s, Fault *f) {
  for (int i = 0; i < s->nparts; i++) {
    const Array *a = &s->part[i].array;
    if (a->kind == NUMBER_FLOAT || a->rank > 1) {
      rt_fault(f, 202, "tokens are one sequence of whole numbers, this file holds %s",
               a->rank > 1 ? "an array of several dimensions" : "floats");
      return rt_at(f, s->part[i].path, "", -1);
    }
  }
  return true;
}

/* Numbers in a setting, spaces or commas between; repeats one number over all channels. NULL if
 * there is none. */
static double *number_list(const rt_program *p, const char *key, int64_t channels, bool *good) {
  const char *text = rt_setting_of(p, key);
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

bool rt_feed_of(const rt_program *p, const rt_tensor *t, int stream, int64_t shift, Feed *e,
                Fault *f) {
  char key[RT_NAME];
  bool good = true;
  snprintf(key, sizeof key, "data.ignore.%s", t->name);
  const char *ignore = rt_setting_of(p, key), *raw = rt_setting_of(p, "data.raw");
  *e = (Feed){.input = t, .stream = stream, .shift = shift, .count = per_sample(t)};
  e->ignore = ignore ? strtoll(ignore, NULL, 10) : INT64_MIN;
  e->scale = raw && !strcmp(raw, "on") ? 1 : 1.0 / 255;
  if (t->elem >= RT_I32) return true; /* no floats: nothing is scaled */
  e->channels = t->rank > 1 ? t->size[t->rank - 1] : 1;
  e->mean = number_list(p, "data.mean", e->channels, &good);
  e->std = number_list(p, "data.std", e->channels, &good);
  for (int64_t i = 0; good && e->std && i < e->channels; i++) good = e->std[i] != 0;
  return good || rt_fault(f, 205, "`mean` and `std` of input %s: one number, or %lld, std not 0",
                          t->name, (long long)e->channels);
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

static bool open_tokens(const Opening *q, const char *pattern, Stream *s) {
  return open_files(pattern, q->format, s, q->f) && check_tokens(s, q->f) &&
         rt_task_documents(&q->d->task, s, q->f);
}

/* Keeps all of `s`: counts its samples. */
static void keep_all(Stream *s) {
  Stream unused;
  cut(s, &unused, 0);
  free(unused.part);
}

static bool open_task(Opening *q) {
  Data *d = q->d;
  d->tasked = true;
  if (!rt_task_read(&d->task, q->p, q->f) || !rt_task_feeds(&d->task, q->p, &d->train, q->f) ||
      !rt_task_feeds(&d->task, q->p, &d->valid, q->f))
    return false;
  if (!q->train) {
    rt_fault(q->f, 205, "no training data is named");
    return rt_help(q->f, "--data FILE, or a `data` line in the train block");
  }
  if (!open_tokens(q, q->train, d->train.stream)) return false;
  d->tokens = d->train.stream->stride;
  d->valid.asked = q->valid || q->share > 0;
  if (q->share > 0) {
    cut(d->train.stream, d->valid.stream, q->share);
    return true;
  }
  keep_all(d->train.stream);
  if (!q->valid) return true;
  if (!open_tokens(q, q->valid, d->valid.stream)) return false;
  keep_all(d->valid.stream);
  return true;
}

/* The pattern of one column: from "--data a=x,b=y", else from the settings; in new memory, NULL if
 * none. */
static char *column_pattern(const Opening *q, const char *given, const char *group,
                            const char *name) {
  size_t n = strlen(name);
  for (const char *c = given; c && *c; c += strcspn(c, ","), c += *c == ',')
    if (!strncmp(c, name, n) && c[n] == '=')
      return rt_copy_text(c + n + 1, strcspn(c + n + 1, ","));
  char key[RT_NAME];
  snprintf(key, sizeof key, "data.%s.%s", group, name);
  const char *value = given ? NULL : rt_setting_of(q->p, key);
  return value ? rt_copy_text(value, strlen(value)) : NULL;
}

static bool open_column(Opening *q, DataSet *s, int i, const char *given, const char *group) {
  const rt_tensor *t = q->input[i];
  Stream *stream = &s->stream[i];
  if (!rt_feed_of(q->p, t, i, 0, &s->feed[i], q->f)) return false;
  stream->stride = stream->length = per_sample(t);
  char *pattern = column_pattern(q, given, group, t->name);
  if (!pattern) {
    rt_fault(q->f, 205, "input %s has no %s data", t->name,
             s == &q->d->train ? "training" : "validation");
    return rt_help(q->f, "name a file for each input: --%s %s=FILE,..",
                   s == &q->d->train ? "data" : "valid", t->name);
  }
  bool ok = open_files(pattern, q->format, stream, q->f) && check_columns(stream, t, q->f);
  free(pattern);
  return ok;
}

/* "--data a=x,b=y": every name is an input's. */
static bool check_names(const Opening *q, const char *given, Fault *f) {
  for (const char *c = given; c && *c; c += strcspn(c, ","), c += *c == ',') {
    size_t n = strcspn(c, "=,");
    int i = 0;
    while (i < q->ninputs && !(strlen(q->input[i]->name) == n && !strncmp(q->input[i]->name, c, n)))
      i++;
    if (i < q->ninputs || c[n] != '=') continue;
    rt_fault(f, 205, "the model has no input `%.*s`", (int)n, c);
    char names[240] = "";
    for (size_t at = 0; i-- > 0 && at < sizeof names;)
      at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                             q->input[q->ninputs - 1 - i]->name);
    return rt_help(f, "its inputs: %s", names);
  }
  return true;
}

static bool open_columns(Opening *q, DataSet *s, const char *given, const char *group) {
  if (!check_names(q, given, q->f)) return false;
  s->nstreams = s->nfeeds = q->ninputs;
  s->stream = rt_alloc(sizeof(Stream) * (size_t)q->ninputs);
  s->feed = rt_alloc(sizeof(Feed) * (size_t)q->ninputs);
  for (int i = 0; i < q->ninputs; i++)
    if (!open_column(q, s, i, given, group)) return false;
  return true;
}

static void cut_columns(Opening *q, DataSet *s, DataSet *rest) {
  if (rest) {
    *rest = *s;
    rest->stream = rt_alloc(sizeof(Stream) * (size_t)q->ninputs);
  }
  for (int i = 0; i < s->nstreams; i++) {
    Stream unused;
    cut(&s->stream[i], rest ? &rest->stream[i] : &unused, rest ? q->share : 0);
    if (!rest) free(unused.part);
  }
}

static bool has_valid_columns(const Opening *q) {
  char key[RT_NAME];
  snprintf(key, sizeof key, "data.valid.columns.%s", q->ninputs ? q->input[0]->name : "");
  return q->valid || rt_setting_of(q->p, key);
}

static bool open_all_columns(Opening *q) {
  Data *d = q->d;
  if (!open_columns(q, &d->train, q->train, "columns")) return false;
  cut_columns(q, &d->train, q->share > 0 ? &d->valid : NULL);
  d->valid.asked = q->share > 0 || has_valid_columns(q);
  if (q->share > 0 || !has_valid_columns(q)) return true;
  if (!open_columns(q, &d->valid, q->valid, "valid.columns")) return false;
  d->valid.asked = true;
  cut_columns(q, &d->valid, NULL);
  return true;
}

/* ---- all of it ---- */

static bool uses_columns(const Opening *q) {
  for (int i = 0; i < q->p->nsettings; i++)
    if (!strncmp(q->p->settings[i].key, "data.columns.", 13)) return true;
  return q->train && strchr(q->train, '=') && !rt_exists(q->train);
}

static bool count_samples(DataSet *s, Fault *f) {
  s->samples = s->nstreams ? s->stream[0].samples : 0;
  for (int i = 1; i < s->nstreams; i++)
    if (s->stream[i].samples != s->samples)
      return rt_fault(f, 205, "input %s has %lld samples, input %s has %lld",
                      s->feed[0].input->name, (long long)s->samples, s->feed[i].input->name,
                      (long long)s->stream[i].samples);
  return true;
}

static bool find_inputs(Opening *q) {
  for (int i = 0; i < q->p->ntensors; i++) {
    const rt_tensor *t = &q->p->tensors[i];
    if (!rt_is_data(t)) continue;
    if (!t->rank || strcmp(t->dim[0], "Batch"))
      return rt_fault(q->f, 205, "input %s does not begin with dimension Batch", t->name);
    if (q->ninputs == 64) return rt_fault(q->f, 205, "more than 64 inputs");
    q->input[q->ninputs++] = t;
    q->d->batch = t->size[0];
  }
  return true;
}

static bool read_options(Opening *q) {
  const char *shuffle = rt_setting_of(q->p, "data.shuffle");
  q->train = q->o->train ? q->o->train : rt_setting_of(q->p, "data.train");
  q->valid = q->o->valid ? q->o->valid : rt_setting_of(q->p, "data.valid");
  q->format = q->o->format ? q->o->format : rt_setting_of(q->p, "data.format");
  q->d->shuffle = q->o->shuffle >= 0 ? q->o->shuffle : !(shuffle && !strcmp(shuffle, "off"));
  if (q->format && !rt_format_known(q->format)) {
    rt_fault(q->f, 103, "unknown data format `%s`", q->format);
    return rt_help(q->f, "formats: npy llmc megatron idx u16 u32 f32 bytes");
  }
  char *end;
  double percent = q->valid ? strtod(q->valid, &end) : 0;
  if (!q->valid || end == q->valid || strcmp(end, "%")) return true;
  if (!(percent >= 0 && percent < 100))
    return rt_fault(q->f, 103, "validation data of `%s`: 0%% to 99%%", q->valid);
  q->share = percent / 100, q->valid = NULL;
  return true;
}

static bool enough(const Opening *q) {
  const DataSet *s = &q->d->train;
  if (s->samples > 0 || q->ninputs == 0) return true;
  rt_fault(q->f, 203, "the data holds no whole sample: one is %lld numbers long",
           (long long)s->stream[0].length);
  if (q->share > 0)
    rt_help(q->f, "%g %% of it are set apart for validation; `--valid 0%%` takes all",
            100 * q->share);
  return rt_at(q->f, s->stream[0].part[0].path, "", -1);
}

static int64_t longest_sample(const Opening *q) { /* bytes */
  int64_t most = 0;
  for (int i = 0; i < q->ninputs; i++) {
    int64_t n = rt_tensor_count(q->input[i]) / q->d->batch * rt_elem_bytes((int)q->input[i]->elem);
    if (n > most) most = n;
  }
  return most;
}

bool rt_data_open(Data *d, const rt_program *p, const DataOptions *o, Fault *f) {
  *d = (Data){.program = p, .batch = 1, .tokens = 1};
  Opening q = {.p = p, .o = o, .d = d, .f = f};
  if (!find_inputs(&q) || !read_options(&q)) return false;
  bool ok = q.ninputs == 0 || (uses_columns(&q) ? open_all_columns(&q) : open_task(&q));
  d->guard = rt_map_guard();
  d->longest = longest_sample(&q), d->stage = rt_alloc((size_t)d->longest);
  return ok && count_samples(&d->train, f) && count_samples(&d->valid, f) && enough(&q);
}

static void add_part(Hash *h, const DataFile *p) {
  int64_t most = p->file.n < 4096 ? p->file.n : 4096, facts[] = {p->file.n, p->low, p->ndocuments};
  rt_hash_add(h, facts, sizeof facts);
  rt_hash_add(h, p->file.at, (size_t)most);
  rt_hash_add(h, p->file.at + p->file.n - most, (size_t)most);
}

static void add_set(Hash *h, const DataSet *s) {
  rt_hash_add(h, &s->samples, sizeof s->samples);
  for (int i = 0; i < s->nstreams; i++) {
    const Stream *stream = &s->stream[i];
    int64_t facts[] = {stream->samples, stream->stride, stream->length, stream->nparts};
    rt_hash_add(h, facts, sizeof facts);
    for (int k = 0; k < stream->nparts; k++) add_part(h, &stream->part[k]);
  }
}

uint64_t rt_data_identity(const Data *d) {
  Hash h;
  rt_hash_start(&h);
  rt_hash_add(&h, &d->shuffle, sizeof d->shuffle);
  add_set(&h, &d->train), add_set(&h, &d->valid);
  return rt_hash_end(&h);
}

static void close_set(DataSet *s) {
  for (int i = 0; i < s->nstreams; i++) {
    Stream *stream = &s->stream[i];
    for (int k = 0; k < stream->nparts && !stream->shared; k++) rt_part_close(&stream->part[k]);
    free(stream->part);
  }
  free(s->stream);
}

static void close_feeds(const DataSet *s) {
  for (int i = 0; i < s->nfeeds; i++) free(s->feed[i].mean), free(s->feed[i].std);
  free(s->feed);
}

void rt_data_close(Data *d) {
  bool shared = d->valid.feed == d->train.feed;
  rt_data_ahead_close(d);
  close_set(&d->train), close_set(&d->valid);
  close_feeds(&d->train);
  if (!shared) close_feeds(&d->valid);
  free(d->stage), free(d->guard);
  *d = (Data){0};
}

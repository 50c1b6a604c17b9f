/* Reading checkpoints back. state.json carries a sum over itself and over every file; a checkpoint
   is verified completely before the first byte of it is used, so a damaged one is refused and never
   starts a run silently wrong. Tensors are filled by intersecting each slice's place with the
   logical tensor: how many files wrote them is no matter. */
#include "checkpoint.h"
#include "file.h"
#include "json.h"
#include "safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct StateFile {
  char name[RT_NAME], sum[32];
  int64_t bytes;
} StateFile;

typedef struct State {
  char model[RT_NAME], program[RT_NAME];
  int64_t schema, step, samples, tokens, seed;
  double loss, valid_loss;
  StateFile *file;
  int nfiles;
} State;

/* ---- state.json ---- */

/* The sum at the end covers everything in front of it. */
static bool sum_matches(Bytes b) {
  static const char mark[] = ",\"check\":\"";
  int64_t tail = (int64_t)sizeof mark - 1 + 16 + 3; /* 16 digits, quote, brace, newline */
  char sum[20];
  if (b.n < tail || memcmp(b.at + b.n - tail, mark, sizeof mark - 1)) return false;
  snprintf(sum, sizeof sum, "%016llx", (unsigned long long)rt_hash_of(b.at, (size_t)(b.n - tail)));
  return !memcmp(b.at + b.n - 19, sum, 16) && !memcmp(b.at + b.n - 3, "\"}\n", 3);
}

static void read_file(Json *j, StateFile *s) {
  char key[32];
  if (!rt_json_object(j)) return;
  while (rt_json_member(j, key, sizeof key)) {
    if (!strcmp(key, "name")) rt_json_string(j, s->name, sizeof s->name);
    else if (!strcmp(key, "bytes")) rt_json_int(j, &s->bytes);
    else if (!strcmp(key, "xxh64")) rt_json_string(j, s->sum, sizeof s->sum);
    else rt_json_skip(j);
  }
  if (!j->error && (!*s->name || strchr(s->name, '/')))
    rt_json_fail(j, "a file without a plain name");
}

static void read_files(Json *j, State *s, int64_t most) {
  if (!rt_json_array(j)) return;
  s->file = rt_alloc(sizeof(StateFile) * (size_t)most);
  while (rt_json_element(j)) {
    if (s->nfiles == most) rt_json_fail(j, "too many files");
    else read_file(j, &s->file[s->nfiles++]);
  }
}

static void read_member(Json *j, const char *key, State *s, int64_t size) {
  struct {
    const char *key;
    int64_t *whole;
    double *real;
  } rows[] = {
      {"schema", &s->schema, NULL},        {"step", &s->step, NULL}, {"samples", &s->samples, NULL},
      {"tokens", &s->tokens, NULL},        {"seed", &s->seed, NULL}, {"loss", NULL, &s->loss},
      {"valid_loss", NULL, &s->valid_loss}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(key, rows[i].key)) {
      if (rows[i].whole) rt_json_int(j, rows[i].whole);
      else rt_json_number(j, rows[i].real);
      return;
    }
  if (!strcmp(key, "model")) rt_json_string(j, s->model, sizeof s->model);
  else if (!strcmp(key, "program")) rt_json_string(j, s->program, sizeof s->program);
  else if (!strcmp(key, "files") && !s->file) read_files(j, s, size / 16 + 1);
  else rt_json_skip(j);
}

static bool read_state(Bytes b, State *s, Fault *f) {
  char key[64];
  *s = (State){.loss = NAN, .valid_loss = NAN, .step = -1};
  if (!sum_matches(b)) return rt_fault(f, 502, "the text does not match its own check sum");
  Json j = rt_json(b.at, b.n);
  if (rt_json_object(&j))
    while (rt_json_member(&j, key, sizeof key)) read_member(&j, key, s, b.n);
  if (!rt_json_done(&j)) {
    rt_fault(f, 502, "not the JSON that was expected: %s", j.error);
    return rt_at(f, "", "byte", j.p - j.begin);
  }
  if (s->schema != 1)
    return rt_fault(f, 502, "schema %lld is not known to this executable", (long long)s->schema);
  if (s->step < 0 || s->samples < 0 || !s->nfiles)
    return rt_fault(f, 502, "it lacks the step, the cursor or the files");
  return true;
}

bool rt_state_check(Bytes b, Fault *f) {
  State s;
  bool ok = read_state(b, &s, f);
  free(s.file);
  return ok;
}

/* ---- places ---- */

typedef struct Box {
  int64_t begin[RT_MAX_RANK], end[RT_MAX_RANK];
} Box;

/* begin:end/size of each dimension, comma between; whole if there is no text. */
static bool read_place(const char *text, const rt_tensor *t, Box *b) {
  for (int i = 0; i < t->rank; i++) {
    long long begin = 0, end = t->size[i], size = t->size[i];
    int n = 0;
    if (text && sscanf(text, "%lld:%lld/%lld%n", &begin, &end, &size, &n) != 3) return false;
    if (begin < 0 || end < begin || end > size || size != t->size[i]) return false;
    b->begin[i] = begin, b->end[i] = end;
    if (text) text += n, text += *text == ',';
  }
  return !text || !*text;
}

void rt_copy_box(int from_elem, const void *from, const int64_t *from_size, const rt_tensor *t,
                 void *to, const int64_t *start) {
  int64_t n = 1, row = t->rank ? from_size[t->rank - 1] : 1;
  for (int i = 0; i < t->rank; i++) n *= from_size[i];
  for (int64_t k = 0; k < n; k += row) { /* row by row along the last dimension */
    int64_t at = 0, rest = k / row, scale = t->rank ? t->size[t->rank - 1] : 1;
    for (int i = t->rank - 2; i >= 0; i--) {
      at += (rest % from_size[i] + start[i]) * scale;
      rest /= from_size[i], scale *= t->size[i];
    }
    if (t->rank) at += start[t->rank - 1];
    int bytes = rt_elem_bytes(t->elem);
    if (from_elem == (int)t->elem)
      memcpy((char *)to + at * bytes, (const char *)from + k * bytes, (size_t)(row * bytes));
    else
      for (int64_t i = 0; i < row; i++)
        rt_elem_put(t->elem, to, at + i, rt_elem_get(from_elem, from, k + i));
  }
}

/* ---- files of a checkpoint ---- */

typedef struct Open {
  Bytes bytes;
  SafeFile file;
} Open;

static bool open_file(const char *folder, const StateFile *s, Open *o, Fault *f) {
  char path[RT_PATH], sum[20];
  rt_join(path, folder, s->name);
  if (!rt_map_file(path, 502, &o->bytes, f)) return false;
  if (o->bytes.n != s->bytes) {
    rt_fault(f, 502, "the file has %lld bytes, it was written with %lld", (long long)o->bytes.n,
             (long long)s->bytes);
    return rt_at(f, path, "", -1);
  }
  snprintf(sum, sizeof sum, "%016llx",
           (unsigned long long)rt_hash_of(o->bytes.at, (size_t)o->bytes.n));
  if (strcmp(sum, s->sum)) {
    rt_fault(f, 502, "the bytes do not match the check sum in state.json");
    return rt_at(f, path, "", -1);
  }
  if (rt_safe_read(o->bytes, &o->file, f)) return true;
  f->code = 502;
  return rt_at(f, path, "", -1);
}

/* One tensor of one file against the program's: its place, or a fault. */
static bool place_of(const Open *o, const SafeTensor *s, const rt_tensor *t, Box *b, Fault *f) {
  char key[RT_NAME + 8];
  snprintf(key, sizeof key, "place.%s", t->name);
  bool fits = s->rank == t->rank && s->elem == (int)t->elem &&
              read_place(rt_safe_meta(&o->file, key), t, b);
  for (int i = 0; fits && i < t->rank; i++) fits = b->end[i] - b->begin[i] == s->size[i];
  if (fits) return true;
  rt_fault(f, 503, "%s has another shape or type than in this model", t->name);
  return rt_help(
      f, "resume with the executable that wrote it, or start with --init and a weights file");
}

static bool apart(const Box *a, const Box *b, int rank) {
  for (int i = 0; i < rank; i++)
    if (a->end[i] <= b->begin[i] || b->end[i] <= a->begin[i]) return true;
  return false;
}

/* Walks over all slices of a tensor: they lie apart and make it whole; copies them if `fill`. seen:
 * room for n. */
static bool tensor_from(const Open *o, int n, const Device *d, const rt_tensor *t, bool fill,
                        Box *seen, Fault *f) {
  int64_t have = 0;
  int slices = 0;
  for (int i = 0; i < n; i++) {
    const SafeTensor *s = rt_safe_find(&o[i].file, t->name);
    Box *b = &seen[slices];
    if (!s) continue;
    if (!place_of(&o[i], s, t, b, f)) return false;
    for (int k = 0; k < slices; k++)
      if (!apart(b, &seen[k], t->rank))
        return rt_fault(f, 502, "two slices of %s overlap", t->name);
    have += s->bytes / rt_elem_bytes(t->elem), slices++;
    if (fill) rt_copy_box(s->elem, s->data, s->size, t, rt_tensor_data(d, t), b->begin);
  }
  if (have == rt_tensor_count(t)) return true;
  rt_fault(f, 503, have ? "%s is there only in part" : "%s is not in the checkpoint", t->name);
  return rt_help(f,
                 "it belongs to another model; --init takes parameters alone from a weights file");
}

static bool load_tensors(const Open *o, int n, const Device *d, Fault *f) {
  Box *seen = rt_alloc(sizeof(Box) * (size_t)n);
  bool ok = true;
  for (int fill = 0; fill < 2; fill++)
    for (int i = 0; ok && i < d->program->ntensors; i++) {
      const rt_tensor *t = &d->program->tensors[i];
      if (t->kind == RT_PARAM || t->kind == RT_STATE) ok = tensor_from(o, n, d, t, fill, seen, f);
    }
  free(seen);
  return ok;
}

static bool load_files(const char *folder, const State *s, const Device *d, Fault *f) {
  Open *o = rt_alloc(sizeof(Open) * (size_t)s->nfiles);
  bool ok = true;
  for (int i = 0; ok && i < s->nfiles; i++) ok = open_file(folder, &s->file[i], &o[i], f);
  ok = ok && (load_tensors(o, s->nfiles, d, f) || rt_at(f, folder, "", -1));
  for (int i = 0; i < s->nfiles; i++) rt_safe_free(&o[i].file), rt_unmap_file(&o[i].bytes);
  free(o);
  return ok;
}

bool rt_checkpoint_load(const char *folder, const Device *d, Progress *p, Fault *f) {
  char path[RT_PATH];
  Bytes b;
  State s;
  rt_join(path, folder, "state.json");
  if (!rt_map_file(path, 502, &b, f)) return false;
  bool ok = read_state(b, &s, f) || rt_at(f, path, "", -1);
  rt_unmap_file(&b);
  ok = ok && load_files(folder, &s, d, f);
  if (ok && strcmp(s.program, d->program->hash))
    fprintf(stderr, "note: %s was written by another compilation of this model\n", folder);
  free(s.file);
  if (ok) *p = (Progress){s.step, s.samples, s.tokens, (uint64_t)s.seed, s.loss, s.valid_loss};
  return ok;
}

bool rt_checkpoint_load_newest(const char *run, const Device *d, Progress *p, Fault *f) {
  CheckpointList l = rt_checkpoint_list(run);
  bool ok = false;
  char folder[RT_PATH];
  if (!l.n) {
    rt_fault(f, 501, "no checkpoint here");
    rt_at(f, run, "", -1);
  }
  for (int i = 0; !ok && i < l.n; i++) {
    rt_checkpoint_path(folder, run, l.step[i]);
    ok = rt_checkpoint_load(folder, d, p, f);
    if (!ok && f->code != 502) break; /* of another model: an older one would be, too */
    if (!ok && i + 1 < l.n) rt_print_fault(f, "warning");
  }
  free(l.step);
  return ok;
}

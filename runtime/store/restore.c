/* Reading checkpoints back. state.json carries a sum over itself and over every file; a checkpoint
   is verified completely before the first byte of it is used, so a damaged one is refused and never
   starts a run silently wrong; with many ranks, each verifies its share of the files. Tensors are
   filled by intersecting what the files hold of the logical tensor with what this rank holds of it:
   how many ranks wrote it, under which plan, is no matter. */
#include "checkpoint.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/device/shard_piece.h"
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
  char model[RT_NAME], program[RT_NAME], data[32], optimizer[32];
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
  else if (!strcmp(key, "data")) rt_json_string(j, s->data, sizeof s->data);
  else if (!strcmp(key, "optimizer")) rt_json_string(j, s->optimizer, sizeof s->optimizer);
  else if (!strcmp(key, "files") && !s->file) read_files(j, s, size / 16 + 1);
  else rt_json_skip(j);
}

static bool read_state(Bytes b, State *s, Fault *f) {
  const int64_t most = (int64_t)1 << 60; /* sums with such counts do not overflow */
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
  if (s->step > most || s->samples > most || s->tokens > most || s->tokens < 0)
    return rt_fault(f, 502, "it counts more steps, samples or tokens than there can be");
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

/* begin:end/size of each dimension, comma between; behind a semicolon a range of the box's
   elements. The whole tensor if there is no text. */
static bool read_place(const char *text, const rt_program *p, const rt_tensor *t, Piece *b) {
  *b = rt_piece_whole(p, t);
  for (int i = 0; text && i < t->rank; i++) {
    long long begin, end, size;
    int n = 0;
    if (sscanf(text, "%lld:%lld/%lld%n", &begin, &end, &size, &n) != 3) return false;
    if (begin < 0 || end < begin || end > size || size != b->end[i]) return false;
    b->begin[i] = begin, b->end[i] = end;
    text += n, text += *text == ',';
  }
  long long from = 0, to = rt_piece_count(b), count = to;
  int n = 0;
  if (text && *text == ';') {
    if (sscanf(text, ";%lld:%lld%n", &from, &to, &n) != 2) return false;
    text += n;
  }
  b->from = from, b->to = to;
  return from >= 0 && from <= to && to <= count && (!text || !*text);
}

/* ---- files of a checkpoint ---- */

typedef struct OpenCheckpoint {
  Bytes bytes;
  SafeFile file;
} OpenCheckpoint;

static bool open_file(const char *folder, const StateFile *s, OpenCheckpoint *o, bool verify,
                      Fault *f) {
  char path[RT_PATH], sum[20];
  rt_join(path, folder, s->name);
  if (!rt_map_file(path, 502, &o->bytes, f)) return false;
  if (o->bytes.n != s->bytes) {
    rt_fault(f, 502, "the file has %lld bytes, it was written with %lld", (long long)o->bytes.n,
             (long long)s->bytes);
    return rt_at(f, path, "", -1);
  }
  if (verify)
    snprintf(sum, sizeof sum, "%016llx",
             (unsigned long long)rt_hash_of(o->bytes.at, (size_t)o->bytes.n));
  if (verify && strcmp(sum, s->sum)) {
    rt_fault(f, 502, "the bytes do not match the check sum in state.json");
    return rt_at(f, path, "", -1);
  }
  if (rt_safe_read(o->bytes, &o->file, f)) return true;
  f->code = 502;
  return rt_at(f, path, "", -1);
}

/* One item of a file against the program's tensor: its place, or a fault. An item that is a part of
   its box has one dimension, otherwise those of the box. */
static bool place_of(const OpenCheckpoint *o, const SafeTensor *s, const rt_program *p,
                     const rt_tensor *t, Piece *b, Fault *f) {
  char key[RT_NAME + 24];
  snprintf(key, sizeof key, "place.%s", s->name);
  const char *text = rt_safe_meta(&o->file, key);
  bool part = text && strchr(text, ';');
  bool fits =
      s->rank == (part ? 1 : t->rank) && s->elem == (int)t->elem && read_place(text, p, t, b);
  for (int i = 0; fits && !part && i < t->rank; i++) fits = b->end[i] - b->begin[i] == s->size[i];
  if (fits && part) fits = b->to - b->from == s->size[0];
  if (fits) return true;
  rt_fault(f, 503, "%s has another shape or type than in this model", t->name);
  return rt_help(
      f, "resume with the executable that wrote it, or start with --init and a weights file");
}

typedef struct RestoreFilling { /* one tensor, from all files */
  const OpenCheckpoint *o;
  int nfiles;
  const Device *d;
  const rt_tensor *t;
  bool fill;
  Piece *seen; /* pieces found so far */
  int nseen, room;
  int64_t have;
} RestoreFilling;

static bool take(RestoreFilling *l, const OpenCheckpoint *o, const SafeTensor *s, Fault *f) {
  if (l->nseen == l->room) {
    l->room = l->room * 2 + 8;
    if (!(l->seen = realloc(l->seen, sizeof(Piece) * (size_t)l->room))) rt_fail(701, "no memory");
  }
  Piece *b = &l->seen[l->nseen];
  if (!place_of(o, s, l->d->program, l->t, b, f)) return false;
  for (int k = 0; !l->fill && k < l->nseen; k++)
    if (!rt_piece_apart(b, &l->seen[k]))
      return rt_fault(f, 502, "two slices of %s overlap", l->t->name);
  l->nseen++, l->have += b->to - b->from;
  if (l->fill) rt_tensor_take(l->d, l->t, s->elem, s->data, b);
  return true;
}

/* NAME, or NAME:0, NAME:1, .. */
static bool take_all(RestoreFilling *l, const OpenCheckpoint *o, Fault *f) {
  char name[RT_NAME + 16];
  const SafeTensor *s = rt_safe_find(&o->file, l->t->name);
  if (s) return take(l, o, s, f);
  for (int k = 0;; k++) {
    snprintf(name, sizeof name, "%s:%d", l->t->name, k);
    if (!(s = rt_safe_find(&o->file, name))) return true;
    if (!take(l, o, s, f)) return false;
  }
}

/* Walks over all pieces of a tensor: they lie apart and make it whole; copies them if `fill`. */
static bool tensor_from(RestoreFilling *l, Fault *f) {
  l->nseen = 0, l->have = 0;
  for (int i = 0; i < l->nfiles; i++)
    if (!take_all(l, &l->o[i], f)) return false;
  if (l->have == rt_whole_count(l->d->program, l->t)) return true;
  rt_fault(f, 503, l->have ? "%s is there only in part" : "%s is not in the checkpoint",
           l->t->name);
  return rt_help(f,
                 "it belongs to another model; --init takes parameters alone from a weights file");
}

static bool load_tensors(const OpenCheckpoint *o, int n, const Device *d, bool fill, Fault *f) {
  RestoreFilling l = {.o = o, .nfiles = n, .d = d, .fill = fill};
  bool ok = true;
  for (int i = 0; ok && i < d->program->ntensors; i++) {
    l.t = &d->program->tensors[i];
    if (l.t->kind == RT_PARAM || l.t->kind == RT_STATE) ok = tensor_from(&l, f);
  }
  free(l.seen);
  return ok;
}

static bool load_files(const char *folder, const State *s, const Device *d, Fault *f) {
  OpenCheckpoint *o = rt_alloc(sizeof(OpenCheckpoint) * (size_t)s->nfiles);
  int rank = rt_comm_rank(d->comm), world = rt_comm_world(d->comm);
  bool ok = true;
  for (int i = 0; ok && i < s->nfiles; i++)
    ok = open_file(folder, &s->file[i], &o[i], i % world == rank, f);
  ok = ok && (load_tensors(o, s->nfiles, d, false, f) || rt_at(f, folder, "", -1));
  ok = rt_comm_all(d->comm, "use a checkpoint", ok, f);
  if (ok) load_tensors(o, s->nfiles, d, true, f);
  for (int i = 0; i < s->nfiles; i++) rt_safe_free(&o[i].file), rt_unmap_file(&o[i].bytes);
  free(o);
  return ok;
}

static bool open_state(const char *folder, State *s, Fault *f) {
  char path[RT_PATH];
  Bytes b;
  *s = (State){.step = -1};
  rt_join(path, folder, "state.json");
  if (!rt_map_file(path, 502, &b, f)) return false;
  bool ok = read_state(b, s, f) || rt_at(f, path, "", -1);
  rt_unmap_file(&b);
  return ok;
}

/* The programs of one executable are one compilation, for several targets. */
static bool of_this_executable(const State *s, const Device *d) {
  for (const rt_program *p = d->first; p; p = p->next)
    if (!strcmp(s->program, p->hash)) return true;
  return !strcmp(s->program, d->program->hash);
}

static void tell_other(const char *folder, const State *s, const Device *d) {
  if (strcmp(s->model, d->program->model))
    fprintf(stderr, "note: %s is of model %s, this is %s; all its tensors fit\n", folder, s->model,
            d->program->model);
  else fprintf(stderr, "note: %s was written by another compilation of this model\n", folder);
}

bool rt_checkpoint_load(const char *folder, const Device *d, Progress *p, Fault *f) {
  State s;
  bool ok = rt_comm_all(d->comm, "read a checkpoint", open_state(folder, &s, f), f) &&
            load_files(folder, &s, d, f);
  if (ok && !of_this_executable(&s, d) && rt_comm_rank(d->comm) == 0) tell_other(folder, &s, d);
  free(s.file);
  if (!ok) return false;
  *p = (Progress){.step = s.step,
                  .samples = s.samples,
                  .tokens = s.tokens,
                  .seed = (uint64_t)s.seed,
                  .loss = s.loss,
                  .valid_loss = s.valid_loss,
                  .data = strtoull(s.data, NULL, 16)};
  memcpy(p->optimizer, s.optimizer, sizeof p->optimizer);
  return true;
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
    if (!ok && i + 1 < l.n && !f->quiet) rt_print_fault(f, "warning");
  }
  free(l.step);
  return ok;
}

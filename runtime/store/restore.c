/* Reading checkpoints back. state.json carries a sum over itself and over every file; a checkpoint
   is verified completely before the first byte of it is used, so a damaged one is refused and never
   starts a run silently wrong; with many ranks, each verifies its share of the files. Tensors are
   filled by intersecting what the files hold of the logical tensor with what this rank holds of it:
   how many ranks wrote it, under which plan, is no matter. */
#include "checkpoint.h"
#include "weights.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/device/shard_piece.h"
#include "run_settings.h"
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
  char model[RT_NAME], program[RT_NAME], data[32], optimizer[32], source[32];
  char *settings, *given;
  int64_t schema, step, samples, tokens, seed;
  double loss, valid_loss;
  StateFile *file;
  int nfiles;
} State;

/* ---- state.json ---- */

/* The sum at the end covers everything before it. */
static bool sum_matches(Bytes bytes) {
  static const char mark[] = ",\"check\":\"";
  int64_t tail = (int64_t)sizeof mark - 1 + 16 + 3; /* 16 digits, quote, brace, newline */
  char sum[20];
  if (bytes.n < tail || memcmp(bytes.at + bytes.n - tail, mark, sizeof mark - 1)) return false;
  snprintf(sum, sizeof sum, "%016llx",
           (unsigned long long)rt_hash_of(bytes.at, (size_t)(bytes.n - tail)));
  return !memcmp(bytes.at + bytes.n - 19, sum, 16) && !memcmp(bytes.at + bytes.n - 3, "\"}\n", 3);
}

static void read_file(Json *json, StateFile *file) {
  char key[32];
  if (!rt_json_object(json)) return;
  while (rt_json_member(json, key, sizeof key)) {
    if (!strcmp(key, "name")) rt_json_string(json, file->name, sizeof file->name);
    else if (!strcmp(key, "bytes")) rt_json_int(json, &file->bytes);
    else if (!strcmp(key, "xxh64")) rt_json_string(json, file->sum, sizeof file->sum);
    else rt_json_skip(json);
  }
  if (!json->error && (!*file->name || strchr(file->name, '/')))
    rt_json_fail(json, "a file without a plain name");
}

static void read_files(Json *json, State *state, int64_t most) {
  if (!rt_json_array(json)) return;
  state->file = rt_alloc(sizeof(StateFile) * (size_t)most);
  while (rt_json_element(json)) {
    if (state->nfiles == most) rt_json_fail(json, "too many files");
    else read_file(json, &state->file[state->nfiles++]);
  }
}

static void read_member(Json *json, const char *key, State *state, int64_t size) {
  const JsonField rows[] = {{"schema", &state->schema, NULL},
                            {"step", &state->step, NULL},
                            {"samples", &state->samples, NULL},
                            {"tokens", &state->tokens, NULL},
                            {"seed", &state->seed, NULL},
                            {"loss", NULL, &state->loss},
                            {"valid_loss", NULL, &state->valid_loss}};
  if (rt_json_field(json, key, sizeof rows / sizeof *rows, rows)) return;
  if (!strcmp(key, "model")) rt_json_string(json, state->model, sizeof state->model);
  else if (!strcmp(key, "program")) rt_json_string(json, state->program, sizeof state->program);
  else if (!strcmp(key, "data")) rt_json_string(json, state->data, sizeof state->data);
  else if (!strcmp(key, "optimizer"))
    rt_json_string(json, state->optimizer, sizeof state->optimizer);
  else if (!strcmp(key, "source")) rt_json_string(json, state->source, sizeof state->source);
  else if (!strcmp(key, "settings") && !state->settings) state->settings = rt_read_settings(json);
  else if (!strcmp(key, "given") && !state->given) state->given = rt_read_settings(json);
  else if (!strcmp(key, "files") && !state->file) read_files(json, state, size / 16 + 1);
  else rt_json_skip(json);
}

static bool read_state(Bytes bytes, State *state, Fault *f) {
  const int64_t most = (int64_t)1 << 60; /* sums with such counts do not overflow */
  char key[64];
  *state = (State){.loss = NAN, .valid_loss = NAN, .step = -1};
  if (!sum_matches(bytes)) return rt_fault(f, 502, "the text does not match its own check sum");
  Json json = rt_json(bytes.at, bytes.n);
  if (rt_json_object(&json))
    while (rt_json_member(&json, key, sizeof key)) read_member(&json, key, state, bytes.n);
  if (!rt_json_done(&json)) {
    rt_fault(f, 502, "not the JSON that was expected: %s", json.error);
    return rt_at(f, "", "byte", json.p - json.begin);
  }
  if (state->schema != 1)
    return rt_fault(f, 502, "schema %lld is not known to this executable",
                    (long long)state->schema);
  if (state->step > most || state->samples > most || state->tokens > most || state->tokens < 0)
    return rt_fault(f, 502, "it counts more steps, samples or tokens than there can be");
  if (state->step < 0 || state->samples < 0 || !state->nfiles)
    return rt_fault(f, 502, "it lacks the step, the cursor or the files");
  return true;
}

bool rt_state_check(Bytes bytes, Fault *f) {
  State state;
  bool ok = read_state(bytes, &state, f);
  free(state.file), free(state.settings), free(state.given);
  return ok;
}

/* ---- places ---- */

/* begin:end/size of each dimension, separated by commas; after a semicolon a range of the box's
   elements. The whole tensor if there is no text. */
static bool read_place(const char *text, const rt_program *program, const rt_tensor *tensor,
                       Piece *piece) {
  *piece = rt_piece_whole(program, tensor);
  for (int i = 0; text && i < tensor->rank; i++) {
    long long begin, end, size;
    int n = 0;
    if (sscanf(text, "%lld:%lld/%lld%n", &begin, &end, &size, &n) != 3) return false;
    if (begin < 0 || end < begin || end > size || size != piece->end[i]) return false;
    piece->begin[i] = begin, piece->end[i] = end;
    text += n, text += *text == ',';
  }
  long long from = 0, to = rt_piece_count(piece), count = to;
  int n = 0;
  if (text && *text == ';') {
    if (sscanf(text, ";%lld:%lld%n", &from, &to, &n) != 2) return false;
    text += n;
  }
  piece->from = from, piece->to = to;
  return from >= 0 && from <= to && to <= count && (!text || !*text);
}

/* ---- files of a checkpoint ---- */

typedef struct OpenCheckpoint {
  Bytes bytes;
  SafeFile file;
} OpenCheckpoint;

static bool open_file(const char *folder, const StateFile *file, OpenCheckpoint *checkpoint,
                      bool verify, Fault *f) {
  char path[RT_PATH], sum[20];
  rt_join(path, folder, file->name);
  if (!rt_map_file(path, 502, &checkpoint->bytes, f)) return false;
  if (checkpoint->bytes.n != file->bytes) {
    rt_fault(f, 502, "the file has %lld bytes, it was written with %lld",
             (long long)checkpoint->bytes.n, (long long)file->bytes);
    return rt_at(f, path, "", -1);
  }
  if (verify)
    snprintf(sum, sizeof sum, "%016llx",
             (unsigned long long)rt_hash_of(checkpoint->bytes.at, (size_t)checkpoint->bytes.n));
  if (verify && strcmp(sum, file->sum)) {
    rt_fault(f, 502, "the bytes do not match the check sum in state.json");
    return rt_at(f, path, "", -1);
  }
  if (rt_safe_read(checkpoint->bytes, &checkpoint->file, f)) return true;
  f->code = 502;
  return rt_at(f, path, "", -1);
}

static bool is_float(int elem) { return elem == RT_F32 || elem == RT_BF16 || elem == RT_F16; }

/* Parameters that no update writes are stored in the compute type of the run that wrote them; the
   types of others, and of states, are the same in every precision. */
static bool readable(const SafeTensor *tensor, const rt_tensor *t) {
  return tensor->elem == (int)t->elem ||
         (t->kind == RT_PARAM && is_float(tensor->elem) && is_float((int)t->elem));
}

/* One item of a file against the program's tensor: its place, or a fault. An item that is a part of
   its box has one dimension, otherwise those of the box. */
static bool place_of(const OpenCheckpoint *checkpoint, const SafeTensor *tensor,
                     const rt_program *program, const rt_tensor *t, Piece *piece, Fault *f) {
  char *key = rt_format("place.%s", tensor->name);
  const char *text = rt_safe_meta(&checkpoint->file, key);
  free(key);
  bool part = text && strchr(text, ';');
  bool fits = tensor->rank == (part ? 1 : t->rank) && readable(tensor, t) &&
              read_place(text, program, t, piece);
  for (int i = 0; fits && !part && i < t->rank; i++)
    fits = piece->end[i] - piece->begin[i] == tensor->size[i];
  if (fits && part) fits = piece->to - piece->from == tensor->size[0];
  if (fits) return true;
  rt_fault(f, 503, "%s has another shape or type than in this model", t->name);
  return rt_help(
      f, "resume with the executable that wrote it, or start with --init and a weights file");
}

enum { ALL_KINDS = 1 << RT_PARAM | 1 << RT_STATE, OF_AVERAGES = 1 << 16 };

typedef struct RestoreFilling { /* one tensor, from all files */
  const OpenCheckpoint *o;
  int nfiles;
  const Device *d;
  const rt_tensor *t;
  bool fill, averages; /* averages: NAME.ema in place of each trained parameter */
  Piece *seen;         /* pieces found so far */
  int nseen, room;
  int64_t have;
  const rt_tensor *rounded; /* the first that the files hold in another type of 16 bits */
} RestoreFilling;

static bool take(RestoreFilling *filling, const OpenCheckpoint *checkpoint,
                 const SafeTensor *tensor, Fault *f) {
  if (filling->nseen == filling->room) {
    filling->room = filling->room * 2 + 8;
    if (!(filling->seen = realloc(filling->seen, sizeof(Piece) * (size_t)filling->room)))
      rt_fail(701, "no memory");
  }
  Piece *piece = &filling->seen[filling->nseen];
  if (!place_of(checkpoint, tensor, filling->d->program, filling->t, piece, f)) return false;
  for (int k = 0; !filling->fill && k < filling->nseen; k++)
    if (!rt_piece_apart(piece, &filling->seen[k]))
      return rt_fault(f, 502, "two slices of %s overlap", filling->t->name);
  bool narrow = tensor->elem != RT_F32 && tensor->elem != (int)filling->t->elem;
  if (narrow && !filling->rounded) filling->rounded = filling->t;
  filling->nseen++, filling->have += piece->to - piece->from;
  if (filling->fill) rt_tensor_take(filling->d, filling->t, tensor->elem, tensor->data, piece);
  return true;
}

static const char *average_of(const RestoreFilling *filling) {
  return filling->averages && filling->t->kind == RT_PARAM && !filling->t->frozen &&
                 !filling->t->ruled
             ? ".ema"
             : "";
}

/* NAME, or of a number NAME:0, NAME:1, .. Names can be longer than RT_NAME. */
static const SafeTensor *find_item(const OpenCheckpoint *checkpoint, const char *name,
                                   const char *more, int number) {
  char *item =
      number < 0 ? rt_format("%s%s", name, more) : rt_format("%s%s:%d", name, more, number);
  const SafeTensor *tensor = rt_safe_find(&checkpoint->file, item);
  free(item);
  return tensor;
}

static bool take_all(RestoreFilling *filling, const OpenCheckpoint *checkpoint, Fault *f) {
  const char *name = filling->t->name, *more = average_of(filling);
  const SafeTensor *tensor = find_item(checkpoint, name, more, -1);
  if (tensor) return take(filling, checkpoint, tensor, f);
  for (int k = 0; (tensor = find_item(checkpoint, name, more, k)); k++)
    if (!take(filling, checkpoint, tensor, f)) return false;
  return true;
}

/* Walks over all pieces of a tensor: checks that they are disjoint and complete; copies them if
   `fill`. */
static bool tensor_from(RestoreFilling *filling, Fault *f) {
  filling->nseen = 0, filling->have = 0;
  for (int i = 0; i < filling->nfiles; i++)
    if (!take_all(filling, &filling->o[i], f)) return false;
  if (filling->have == rt_whole_count(filling->d->program, filling->t)) return true;
  rt_fault(f, 503, filling->have ? "%s is incomplete" : "%s is not in the checkpoint",
           filling->t->name);
  if (*average_of(filling)) {
    rt_fault(f, 503, "the checkpoint has no average of %s", filling->t->name);
    return rt_help(f, "`ema 0.999` in the train block of the run keeps averages");
  }
  if (filling->t->kind == RT_STATE)
    return rt_help(f, "a state of another `optim`, `delay` or `precision` than that run had; "
                      "with --init a run starts from its parameters");
  return rt_help(f, "it belongs to another model; --init reads parameters from a weights file");
}

/* Parameters of a model without adapters, for --init of one with them: they keep their first
   values. */
static bool lacks_adapters(const OpenCheckpoint *checkpoint, int n, const Device *d,
                           unsigned kinds) {
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *tensor = &d->program->tensors[i];
    if (!rt_map_adapter(d->program, tensor)) continue;
    for (int k = 0; k < n; k++)
      if (find_item(&checkpoint[k], tensor->name, "", -1) ||
          find_item(&checkpoint[k], tensor->name, "", 0))
        return false;
  }
  return (kinds & ALL_KINDS) != ALL_KINDS;
}

/* The weights without them are another model than the checkpoint's. */
static bool has_adapters(const OpenCheckpoint *checkpoint, int n, const Device *d, Fault *f) {
  for (int k = 0; k < n; k++)
    for (int i = 0; i < checkpoint[k].file.ntensors; i++) {
      const char *name = checkpoint[k].file.tensor[i].name;
      if (!rt_lacks_adapter(d->program, name)) continue;
      rt_fault(f, 503, "the checkpoint has the adapter %.*s, and this model has none",
               (int)strcspn(name, ":"), name);
      return rt_help(f,
                     "`export --merge` of the executable that wrote it adds adapters to weights");
    }
  return true;
}

static bool load_tensors(const OpenCheckpoint *checkpoint, int n, const Device *d, unsigned kinds,
                         bool fill, Fault *f) {
  RestoreFilling filling = {
      .o = checkpoint, .nfiles = n, .d = d, .fill = fill, .averages = kinds & OF_AVERAGES};
  bool ok = has_adapters(checkpoint, n, d, f), base = lacks_adapters(checkpoint, n, d, kinds);
  for (int i = 0; ok && i < d->program->ntensors; i++) {
    filling.t = &d->program->tensors[i];
    if (base && rt_map_adapter(d->program, filling.t)) continue;
    if (kinds >> filling.t->kind & 1) ok = tensor_from(&filling, f);
  }
  free(filling.seen);
  if (ok && filling.rounded && fill && rt_comm_rank(d->comm) == 0)
    rt_note("%s and other frozen parameters keep the 16 bits of the checkpoint",
            filling.rounded->name);
  return ok;
}

static bool load_files(const char *folder, const State *state, const Device *d, unsigned kinds,
                       Fault *f) {
  OpenCheckpoint *checkpoint = rt_alloc(sizeof(OpenCheckpoint) * (size_t)state->nfiles);
  int rank = rt_comm_rank(d->comm), world = rt_comm_world(d->comm);
  bool ok = true;
  for (int i = 0; ok && i < state->nfiles; i++)
    ok = open_file(folder, &state->file[i], &checkpoint[i], i % world == rank, f);
  ok = ok &&
       (load_tensors(checkpoint, state->nfiles, d, kinds, false, f) || rt_at(f, folder, "", -1));
  ok = rt_comm_all(d->comm, "use a checkpoint", ok, f);
  if (ok) load_tensors(checkpoint, state->nfiles, d, kinds, true, f);
  for (int i = 0; i < state->nfiles; i++)
    rt_safe_free(&checkpoint[i].file), rt_unmap_file(&checkpoint[i].bytes);
  free(checkpoint);
  return ok;
}

static bool open_state(const char *folder, State *state, Fault *f) {
  char path[RT_PATH];
  Bytes bytes;
  *state = (State){.step = -1};
  rt_join(path, folder, "state.json");
  if (!rt_map_file(path, 502, &bytes, f)) return false;
  bool ok = read_state(bytes, state, f) || rt_at(f, path, "", -1);
  rt_unmap_file(&bytes);
  return ok;
}

char *rt_checkpoint_given(const char *folder) {
  State state;
  Fault unread = {0};
  open_state(folder, &state, &unread);
  free(state.file), free(state.settings);
  return state.given;
}

/* The programs of one executable are one compilation, for several targets. */
static bool of_this_executable(const State *state, const Device *d) {
  for (const rt_program *program = d->first; program; program = program->next)
    if (!strcmp(state->program, program->hash)) return true;
  return !strcmp(state->program, d->program->hash);
}

/* Programs of one model file differ in what settings say, or in ranks and the plan alone. */
static void tell_other(const char *folder, const State *state, const Device *d) {
  char source[32];
  snprintf(source, sizeof source, "%016llx",
           (unsigned long long)rt_source_hash(d->first ? d->first : d->program));
  if (strcmp(state->model, d->program->model))
    rt_note("%s is of model %s, this is %s; all its tensors fit", folder, state->model,
            d->program->model);
  else if (!*state->source) rt_note("%s was written by another compilation of this model", folder);
  else if (strcmp(state->source, source))
    rt_note("%s was written by another version of the model file", folder);
}

static bool load(const char *folder, const Device *d, unsigned kinds, Progress *progress,
                 Fault *f) {
  State state;
  if (progress->averages) kinds |= OF_AVERAGES;
  bool ok = rt_comm_all(d->comm, "read a checkpoint", open_state(folder, &state, f), f) &&
            load_files(folder, &state, d, kinds, f);
  if (ok && !of_this_executable(&state, d) && rt_comm_rank(d->comm) == 0)
    tell_other(folder, &state, d);
  free(state.file);
  if (!ok) return free(state.settings), free(state.given), false;
  *progress = (Progress){.step = state.step,
                         .samples = state.samples,
                         .tokens = state.tokens,
                         .seed = (uint64_t)state.seed,
                         .loss = state.loss,
                         .valid_loss = state.valid_loss,
                         .settings = state.settings,
                         .given = state.given,
                         .data = strtoull(state.data, NULL, 16)};
  memcpy(progress->optimizer, state.optimizer, sizeof progress->optimizer);
  return true;
}

bool rt_checkpoint_load(const char *folder, const Device *d, Progress *progress, Fault *f) {
  return load(folder, d, ALL_KINDS, progress, f);
}

static bool load_newest(const char *run, const Device *d, unsigned kinds, Progress *progress,
                        Fault *f) {
  CheckpointList list = rt_checkpoint_list(run);
  bool ok = false;
  char folder[RT_PATH];
  if (!list.n) {
    rt_fault(f, 501, "the folder has no checkpoint");
    rt_at(f, run, "", -1);
  }
  for (int i = 0; !ok && i < list.n; i++) {
    rt_checkpoint_path(folder, run, list.step[i]);
    ok = load(folder, d, kinds, progress, f);
    if (!ok && f->code != 502) break; /* of another model: an older one would also be */
    if (!ok && i + 1 < list.n && !f->quiet) rt_print_fault(f, "warning");
  }
  free(list.step);
  return ok;
}

bool rt_checkpoint_load_newest(const char *run, const Device *d, Progress *progress, Fault *f) {
  return load_newest(run, d, ALL_KINDS, progress, f);
}

bool rt_is_checkpoint(const char *folder) {
  char path[RT_PATH];
  rt_join(path, folder, "state.json");
  return rt_exists(path);
}

bool rt_checkpoint_parameters(const char *from, const Device *d, Fault *f) {
  Progress of_its_run = {0};
  unsigned kinds = 1 << RT_PARAM;
  bool ok = rt_is_checkpoint(from) ? load(from, d, kinds, &of_its_run, f)
                                   : load_newest(from, d, kinds, &of_its_run, f);
  if (ok) free(of_its_run.settings), free(of_its_run.given);
  return ok;
}

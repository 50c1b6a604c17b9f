/* Reads a trace (plan_trace.h): the boxes of the first rank of each stage, the kernels of rank 0. A
   file of another model or number of ranks, or one that lacks events, is refused. Must not: believe
   the file. */
#include "plan_trace.h"
#include "ir/shape/placement.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <math.h>
#include <stdlib.h>

/* ---- the file ---- */

static int kind_of(const char *word, const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(word, words[i])) return i;
  return -1;
}

static void read_arguments(Json *json, const Module *m, TraceBox *box) {
  static const char *const turns[] = {"forward", "backward", "weights"}; /* by TURN_.. */
  char key[64], word[32], axis[256];
  if (!rt_json_object(json)) return;
  while (rt_json_member(json, key, sizeof key))
    if (!strcmp(key, "axis") && rt_json_string(json, axis, sizeof axis))
      box->axis = mesh_find(m, intern(m->ctx->names, axis));
    else if (!strcmp(key, "part")) rt_json_int(json, &box->part);
    else if (!strcmp(key, "chunk")) rt_json_int(json, &box->chunk);
    else if (!strcmp(key, "step")) rt_json_int(json, &box->number);
    else if (!strcmp(key, "kind") && rt_json_string(json, word, sizeof word))
      box->turn = kind_of(word, turns, TURN_KINDS);
    else {
      box->sends |= !strcmp(key, "to"), box->receives |= !strcmp(key, "from");
      rt_json_skip(json);
    }
}

static TraceBox read_event(Json *json, const Module *m) {
  static const char *const categories[] = {"",        "step", "turn",
                                           "message", "wait", "kernel"}; /* by BoxKind */
  TraceBox box = {.turn = -1, .axis = -1};
  char key[64], word[32] = "", name[256] = "";
  double start = 0, duration = 0;
  if (!rt_json_object(json)) return box;
  while (rt_json_member(json, key, sizeof key))
    if (!strcmp(key, "pid")) rt_json_int(json, &box.rank);
    else if (!strcmp(key, "ts")) rt_json_number(json, &start);
    else if (!strcmp(key, "dur")) rt_json_number(json, &duration);
    else if (!strcmp(key, "args")) read_arguments(json, m, &box);
    else if (!strcmp(key, "name")) rt_json_string(json, name, sizeof name);
    else if (strcmp(key, "cat")) rt_json_skip(json);
    else if (rt_json_string(json, word, sizeof word)) {
      int kind = kind_of(word, categories, BOX_KINDS);
      box.kind = kind < 0 ? BOX_OTHER : (BoxKind)kind;
    }
  if (box.kind == BOX_KERNEL) box.name = intern(m->ctx->names, name);
  box.from = 1e-6 * start, box.to = 1e-6 * (start + duration);
  return box;
}

static void read_events(Json *json, TraceReading *reading) {
  TraceFile *file = &reading->file;
  if (!rt_json_array(json)) return;
  while (rt_json_element(json)) {
    TraceBox box = read_event(json, reading->planned->m);
    bool ours = box.rank >= 0 && box.rank % reading->stride == 0 &&
                box.rank / reading->stride < reading->stages;
    if (box.kind == BOX_OTHER || !ours || (box.kind == BOX_KERNEL && box.rank)) continue;
    if (!isfinite(box.from) || !isfinite(box.to) || box.to < box.from)
      rt_json_fail(json, "an event whose time cannot be");
    vec_push(reading->planned->m->arena, file->box, box);
    file->waits |= box.kind == BOX_WAIT;
  }
}

static void read_head(Json *json, TraceFile *file) {
  char key[64];
  if (!rt_json_object(json)) return;
  while (rt_json_member(json, key, sizeof key))
    if (!strcmp(key, "model")) rt_json_string(json, file->model, sizeof file->model);
    else if (!strcmp(key, "ranks")) rt_json_int(json, &file->ranks);
    else if (!strcmp(key, "flop")) rt_json_number(json, &file->flop);
    else if (!strcmp(key, "complete")) rt_json_bool(json, &file->complete);
    else if (!strcmp(key, "error_us")) rt_json_number(json, &file->error);
    else rt_json_skip(json);
}

bool trace_refuse(const TraceReading *reading, const char *why, const char *help) {
  Report *r =
      diag_at(reading->planned->m->ctx->diag, "E1403", (Span){0}, "`%s` %s", reading->path, why);
  diag_help(r, "%s", help);
  return false;
}

static bool read_file(TraceReading *reading) {
  Bytes bytes;
  Fault f = {0};
  char key[64];
  if (!rt_map_file(reading->path, 201, &bytes, &f)) {
    diag_at(reading->planned->m->ctx->diag, "E0001", (Span){0}, "`%s`: %s", reading->path, f.what);
    return false;
  }
  Json json = rt_json(bytes.at, bytes.n);
  for (rt_json_object(&json); rt_json_member(&json, key, sizeof key);)
    if (!strcmp(key, "otherData")) read_head(&json, &reading->file);
    else if (!strcmp(key, "traceEvents")) read_events(&json, reading);
    else rt_json_skip(&json);
  bool ok = rt_json_done(&json);
  Arena *arena = reading->planned->m->arena;
  const char *why =
      ok ? ""
         : arena_printf(arena, "is no trace: %s at byte %lld",
                        json.error ? json.error : "more text", (long long)(json.p - json.begin));
  rt_unmap_file(&bytes);
  return ok || trace_refuse(reading, why, "a file of `./model train --trace FILE`");
}

/* ---- does it fit the plan? ---- */

static bool check_head(const TraceReading *reading) {
  const TraceFile *file = &reading->file;
  const Planned *planned = reading->planned;
  Arena *arena = planned->m->arena;
  int64_t ranks = mesh_ranks(planned->m);
  if (strcmp(file->model, planned->m->model) || file->ranks != ranks)
    return trace_refuse(
        reading,
        arena_printf(arena, "is of model `%s` on %lld rank%s, and the plan of `%s` on %lld",
                     file->model, (long long)file->ranks, file->ranks > 1 ? "s" : "",
                     planned->m->model, (long long)ranks),
        "--plan NAME: the plan that the executable was compiled with");
  return file->complete || trace_refuse(reading, "does not hold all of its steps: it was full",
                                        "trace fewer: `./model train --trace FILE:2..2`");
}

bool trace_same_work(const TraceReading *reading) {
  double flop = reading->planned->class[0].flop;
  if (fabs(reading->file.flop - flop) <= 0.01 * flop) return true;
  const char *why = arena_printf(reading->planned->m->arena,
                                 "is of a step of %.4g FLOP per rank, and the plan's has %.4g",
                                 reading->file.flop, flop);
  return trace_refuse(reading, why, "the sizes that the executable was compiled with: -D, --set");
}

static bool is_step(const TraceBox *box, int64_t rank) {
  return box->kind == BOX_STEP && box->rank == rank;
}

static int by_time(const void *a, const void *b) {
  const TraceBox *x = *(const TraceBox *const *)a, *y = *(const TraceBox *const *)b;
  double s = x->to - x->from, t = y->to - y->from;
  return s < t ? -1 : s > t ? 1 : x < y ? -1 : x > y;
}

/* The step of median time on rank 0; of each other rank the one of that number. NULL: none. */
const TraceBox *trace_step(const TraceReading *reading, int64_t rank) {
  const TraceFile *file = &reading->file;
  for (uint32_t i = 0; i < file->box.n; i++)
    if (is_step(&file->box.at[i], rank) && file->box.at[i].number == reading->measured->step)
      return &file->box.at[i];
  return NULL;
}

bool trace_choose_step(TraceReading *reading) {
  const TraceFile *file = &reading->file;
  VEC(const TraceBox *) steps = {0};
  for (uint32_t i = 0; i < file->box.n; i++)
    if (is_step(&file->box.at[i], 0)) vec_push(reading->planned->m->arena, steps, &file->box.at[i]);
  if (!steps.n)
    return trace_refuse(reading, "holds no step",
                        "`./model train --trace FILE:A..B`: steps that the run takes");
  qsort(steps.at, steps.n, sizeof *steps.at, by_time);
  reading->measured->step = steps.at[steps.n / 2]->number, reading->measured->steps = steps.n;
  return true;
}

bool trace_within(const TraceBox *box, const TraceBox *outer) {
  return box->from >= outer->from - 1e-9 && box->from <= outer->to + 1e-9;
}

bool trace_read(TraceReading *reading) { return read_file(reading) && check_head(reading); }

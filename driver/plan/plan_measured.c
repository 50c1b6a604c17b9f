/* `shardc plan --measured FILE`: the measured timeline of the ranks of a pipeline in a step, from
   the trace of a run (`train --trace FILE`, runtime/device/trace_file.c), next to the table of the
   plan. It shows the first rank of each stage and the step of median time. Time of a turn in which
   the rank is not blocked is computation; blocked time and time between turns is idle. If the file
   has no blocked times (a GPU whose kernels are timed one by one), the rank's messages count as
   blocked time. A file of another model, mesh or schedule is refused. Must not: believe the file;
   draw a turn that the table does not have. */
#include "plan_report.h"
#include "ir/shape/placement.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <math.h>
#include <stdlib.h>

typedef enum BoxKind { BOX_OTHER, BOX_STEP, BOX_TURN, BOX_MESSAGE, BOX_WAIT } BoxKind;

typedef struct TraceBox { /* an event of the file */
  BoxKind kind;
  int64_t rank, number, part, chunk; /* number: of a step */
  int turn;                          /* its kind; -1: it is not said */
  bool sends, receives;              /* a message to or from a neighbour */
  double from, to;                   /* seconds */
} TraceBox;

typedef struct TraceFile {
  char model[256];
  int64_t ranks;
  bool complete, waits; /* waits: some are told */
  double error;
  VEC(TraceBox) box; /* of the ranks that are looked at, in the order of the file */
} TraceFile;

typedef struct TraceReading {
  const Planned *planned;
  const char *path;
  TraceFile file;
  int64_t stages, stride; /* rank of stage s: s * stride */
  Measured *measured;
} TraceReading;

/* ---- the file ---- */

static int kind_of(const char *word, const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(word, words[i])) return i;
  return -1;
}

static void read_arguments(Json *json, TraceBox *box) {
  static const char *const turns[] = {"forward", "backward", "weights"}; /* by TURN_.. */
  char key[64], word[32];
  if (!rt_json_object(json)) return;
  while (rt_json_member(json, key, sizeof key))
    if (!strcmp(key, "part")) rt_json_int(json, &box->part);
    else if (!strcmp(key, "chunk")) rt_json_int(json, &box->chunk);
    else if (!strcmp(key, "step")) rt_json_int(json, &box->number);
    else if (!strcmp(key, "kind") && rt_json_string(json, word, sizeof word))
      box->turn = kind_of(word, turns, TURN_KINDS);
    else {
      box->sends |= !strcmp(key, "to"), box->receives |= !strcmp(key, "from");
      rt_json_skip(json);
    }
}

static TraceBox read_event(Json *json) {
  static const char *const categories[] = {"", "step", "turn", "message", "wait"}; /* by BoxKind */
  TraceBox box = {.turn = -1};
  char key[64], word[32] = "";
  double start = 0, duration = 0;
  if (!rt_json_object(json)) return box;
  while (rt_json_member(json, key, sizeof key))
    if (!strcmp(key, "pid")) rt_json_int(json, &box.rank);
    else if (!strcmp(key, "ts")) rt_json_number(json, &start);
    else if (!strcmp(key, "dur")) rt_json_number(json, &duration);
    else if (!strcmp(key, "args")) read_arguments(json, &box);
    else if (strcmp(key, "cat")) rt_json_skip(json);
    else if (rt_json_string(json, word, sizeof word)) {
      int kind = kind_of(word, categories, BOX_WAIT + 1);
      box.kind = kind < 0 ? BOX_OTHER : (BoxKind)kind;
    }
  box.from = 1e-6 * start, box.to = 1e-6 * (start + duration);
  return box;
}

static void read_events(Json *json, TraceReading *reading) {
  TraceFile *file = &reading->file;
  if (!rt_json_array(json)) return;
  while (rt_json_element(json)) {
    TraceBox box = read_event(json);
    bool ours = box.rank >= 0 && box.rank % reading->stride == 0 &&
                box.rank / reading->stride < reading->stages;
    if (box.kind == BOX_OTHER || !ours) continue;
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
    else if (!strcmp(key, "complete")) rt_json_bool(json, &file->complete);
    else if (!strcmp(key, "error_us")) rt_json_number(json, &file->error);
    else rt_json_skip(json);
}

static bool refuse(const TraceReading *reading, const char *why, const char *help) {
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
  return ok || refuse(reading, why, "a file of `./model train --trace FILE`");
}

/* ---- does it fit the plan? ---- */

static bool check_head(const TraceReading *reading) {
  const TraceFile *file = &reading->file;
  const Planned *planned = reading->planned;
  Arena *arena = planned->m->arena;
  int64_t ranks = mesh_ranks(planned->m);
  if (strcmp(file->model, planned->m->model) || file->ranks != ranks)
    return refuse(
        reading,
        arena_printf(arena, "is of model `%s` on %lld ranks, and the plan of `%s` on %lld",
                     file->model, (long long)file->ranks, planned->m->model, (long long)ranks),
        "--plan NAME: the plan that the executable was compiled with");
  return file->complete || refuse(reading, "does not hold all of its steps: it was full",
                                  "trace fewer: `./model train --trace FILE:2..2`");
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
static const TraceBox *step_of(const TraceReading *reading, int64_t rank) {
  const TraceFile *file = &reading->file;
  for (uint32_t i = 0; i < file->box.n; i++)
    if (is_step(&file->box.at[i], rank) && file->box.at[i].number == reading->measured->step)
      return &file->box.at[i];
  return NULL;
}

static bool choose_step(TraceReading *reading) {
  const TraceFile *file = &reading->file;
  VEC(const TraceBox *) steps = {0};
  for (uint32_t i = 0; i < file->box.n; i++)
    if (is_step(&file->box.at[i], 0)) vec_push(reading->planned->m->arena, steps, &file->box.at[i]);
  if (!steps.n)
    return refuse(reading, "holds no step",
                  "`./model train --trace FILE:A..B`: steps that the run takes");
  qsort(steps.at, steps.n, sizeof *steps.at, by_time);
  reading->measured->step = steps.at[steps.n / 2]->number, reading->measured->steps = steps.n;
  return true;
}

/* ---- one stage ---- */

typedef VEC(const TraceBox *) BoxList;

typedef struct StageBoxes { /* of the step, in the order of time */
  const TraceBox *step;
  BoxList turns, still, hops;
} StageBoxes;

static bool within(const TraceBox *box, const TraceBox *outer) {
  return box->from >= outer->from - 1e-9 && box->from <= outer->to + 1e-9;
}

static void sort_out(const TraceReading *reading, StageBoxes *stage) {
  const TraceFile *file = &reading->file;
  Arena *arena = reading->planned->m->arena;
  BoxKind stands = file->waits ? BOX_WAIT : BOX_MESSAGE;
  for (uint32_t i = 0; i < file->box.n; i++) {
    const TraceBox *box = &file->box.at[i];
    StageBoxes *own = &stage[box->rank / reading->stride];
    if (!own->step || !within(box, own->step)) continue;
    if (box->kind == BOX_TURN) vec_push(arena, own->turns, box);
    if (box->kind == stands) vec_push(arena, own->still, box);
    if (box->kind == BOX_MESSAGE && box->turn >= 0 && (box->sends || box->receives))
      vec_push(arena, own->hops, box);
  }
}

/* Adds the computing spans of a turn: all but blocked times, from number *next on. */
static double add_spans(Arena *arena, GanttLane *lane, const StageBoxes *own, uint32_t *next,
                        TurnSpan turn) {
  double now = turn.from, still = 0;
  uint32_t before = lane->span.n;
  for (; *next < own->still.n && own->still.at[*next]->from < turn.to; ++*next) {
    const TraceBox *box = own->still.at[*next];
    if (box->to <= now) continue;
    if (box->from > now)
      vec_push(arena, lane->span, (TurnSpan){turn.loop, turn.part, now, box->from});
    double from = box->from > now ? box->from : now;
    now = box->to < turn.to ? box->to : turn.to, still += now - from;
  }
  if (turn.to > now || lane->span.n == before)
    vec_push(arena, lane->span, (TurnSpan){turn.loop, turn.part, now, turn.to});
  return still;
}

static bool other_schedule(const TraceReading *reading, int64_t stage, const char *found,
                           const char *planned) {
  return refuse(
      reading,
      arena_printf(reading->planned->m->arena,
                   "is of another schedule: stage %lld goes on with %s, and the plan with "
                   "%s",
                   (long long)stage, found, planned),
      "--plan NAME: the plan that the executable was compiled with");
}

static const char *turn_text(Arena *arena, int kind, int64_t part, int64_t chunk) {
  static const char *const words[] = {"forward", "backward", "gradients of weights"};
  return kind < 0 ? "something else"
                  : arena_printf(arena, "%s %lld of chunk %lld", words[kind], (long long)part,
                                 (long long)chunk);
}

/* The turns of the table, one after the other. */
static bool take_turns(TraceReading *reading, int64_t s, const StageBoxes *own, GanttLane *lane) {
  Arena *arena = reading->planned->m->arena;
  const ScheduleTable *table = &reading->measured->gantt.table;
  ScheduleState state = {{0}};
  double before = own->turns.n ? own->turns.at[0]->from : 0;
  uint32_t still = 0, i = 0;
  for (; !schedule_done(table, &state); i++) {
    int loop = schedule_next(table, s, &state), kind = schedule_loop_kind(table, loop);
    int64_t chunk = schedule_loop_chunk(table, loop), part = state.over[loop]++;
    const char *planned = turn_text(arena, kind, part, chunk);
    if (i == own->turns.n) return other_schedule(reading, s, "nothing", planned);
    const TraceBox *box = own->turns.at[i];
    if (box->turn != kind || box->part != part || box->chunk != chunk)
      return other_schedule(reading, s, turn_text(arena, box->turn, box->part, box->chunk),
                            planned);
    if (box->from < before - 1e-9) return other_schedule(reading, s, "two turns at once", planned);
    before = box->to;
    reading->measured->still[s] +=
        add_spans(arena, lane, own, &still, (TurnSpan){loop, part, box->from, box->to});
  }
  if (i < own->turns.n) return other_schedule(reading, s, "more turns", "none");
  for (uint32_t k = 0; k < own->hops.n; k++) {
    const TraceBox *box = own->hops.at[k];
    vec_push(arena, lane->mark, (GanttMark){box->sends, box->turn, box->part, box->from, box->to});
  }
  return true;
}

/* ---- all stages ---- */

/* From the first turn on. */
static void begin_at_zero(PlanGantt *gantt) {
  double first = INFINITY, last = 0;
  for (int64_t s = 0; s < gantt->table.stages; s++) {
    const GanttLane *lane = &gantt->lane[s];
    first = fmin(first, lane->span.at[0].from), last = fmax(last, vec_last(lane->span).to);
  }
  for (int64_t s = 0; s < gantt->table.stages; s++) {
    GanttLane *lane = &gantt->lane[s];
    for (uint32_t i = 0; i < lane->span.n; i++)
      lane->span.at[i].from -= first, lane->span.at[i].to -= first;
    for (uint32_t i = 0; i < lane->mark.n; i++)
      lane->mark.at[i].from -= first, lane->mark.at[i].to -= first;
  }
  gantt->total = last - first;
}

static bool measure(TraceReading *reading) {
  Measured *measured = reading->measured;
  Arena *arena = reading->planned->m->arena;
  StageBoxes *stage = ARENA_ARRAY(arena, StageBoxes, reading->stages);
  measured->error = 1e-6 * reading->file.error;
  if (!choose_step(reading)) return false;
  for (int64_t s = 0; s < reading->stages; s++)
    stage[s].step = step_of(reading, s * reading->stride);
  sort_out(reading, stage);
  for (int64_t s = 0; s < reading->stages; s++)
    if (!take_turns(reading, s, &stage[s], &measured->gantt.lane[s])) return false;
  begin_at_zero(&measured->gantt);
  return measured->gantt.total > 0 ||
         refuse(reading, "has turns that take no time", "a file of `./model train --trace FILE`");
}

bool plan_measure(Planned *planned, const char *path) {
  Arena *arena = planned->m->arena;
  PlanGantt gantt;
  TraceReading reading = {.planned = planned, .path = path, .measured = ARENA_NEW(arena, Measured)};
  if (!plan_gantt(planned, &gantt))
    return refuse(&reading, "cannot be compared: the plan has no pipeline schedule",
                  "name a plan with `pipeline`: `--measured` compares its schedule with a run");
  int axis = module_class(planned->m).axis;
  reading.stages = gantt.table.stages, reading.stride = 1;
  for (int i = 0; i < axis; i++) reading.stride *= planned->m->mesh.at[i].size;
  *reading.measured = (Measured){.path = path, .still = ARENA_ARRAY(arena, double, reading.stages)};
  reading.measured->gantt = (PlanGantt){
      .table = gantt.table, .lane = ARENA_ARRAY(arena, GanttLane, reading.stages), .second = 1};
  if (!read_file(&reading) || !check_head(&reading) || !measure(&reading)) return false;
  planned->measured = reading.measured;
  return true;
}

/* ---- the topic ---- */

/* The part of a schedule in which a stage computes nothing. */
double plan_idle(const PlanGantt *gantt, int64_t stage) {
  const GanttLane *lane = &gantt->lane[stage];
  double busy = 0;
  for (uint32_t i = 0; i < lane->span.n; i++) busy += lane->span.at[i].to - lane->span.at[i].from;
  return gantt->total > 0 ? 1 - busy / gantt->total : 0;
}

void plan_measured(Sheet *sheet, const Planned *planned, const PlanGantt *plan) {
  const Measured *measured = planned->measured;
  sheet_open(sheet, "measured");
  sheet_say(sheet, "measured: {seconds} from the first turn to the last, step {step} of {}; ",
            as_measured(measured->gantt.total), as_count((double)measured->step),
            as_text(measured->path));
  sheet_put(sheet, "{steps}", as_count((double)measured->steps));
  sheet_say_if(sheet, measured->error > 0, "times may be off by {error:.3}\n",
               as_measured(measured->error));
  sheet_say_if(sheet, measured->error <= 0, "all ranks on one clock\n");
  sheet_heads(sheet, EVERYWHERE, "  idle         by the table   measured   in turns");
  for (int64_t s = 0; s < plan->table.stages; s++)
    sheet_say(sheet, "[stages]  stage {:-5} {idle_planned:13} {idle:10} {still:10}\n",
              as_count((double)s), as_share(plan_idle(plan, s)),
              as_share(plan_idle(&measured->gantt, s)),
              as_share(measured->still[s] / measured->gantt.total));
  sheet_close(sheet);
}

/* `shardc plan --measured FILE`: the measured timeline of the ranks of a pipeline in a step, from
   the trace of a run (`train --trace FILE`, runtime/device/trace_file.c), next to the table of the
   plan. It shows the first rank of each stage and the step of median time. Time of a turn in which
   the rank is not blocked is computation; blocked time and time between turns is idle. If the file
   has no blocked times (a GPU whose kernels are timed one by one), the rank's messages count as
   blocked time. A file of another schedule is refused. Must not: draw a turn that the table does
   not have. */
#include "plan_compare.h"
#include <math.h>

/* ---- one stage ---- */

typedef VEC(const TraceBox *) BoxList;

typedef struct StageBoxes { /* of the step, in the order of time */
  const TraceBox *step;
  BoxList turns, still, hops;
} StageBoxes;

static void sort_out(const TraceReading *reading, StageBoxes *stage) {
  const TraceFile *file = &reading->file;
  Arena *arena = reading->planned->m->arena;
  BoxKind stands = file->waits ? BOX_WAIT : BOX_MESSAGE;
  for (uint32_t i = 0; i < file->box.n; i++) {
    const TraceBox *box = &file->box.at[i];
    StageBoxes *own = &stage[box->rank / reading->stride];
    if (!own->step || !trace_within(box, own->step)) continue;
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
  return trace_refuse(
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
  for (int64_t s = 0; s < reading->stages; s++)
    stage[s].step = trace_step(reading, s * reading->stride);
  sort_out(reading, stage);
  for (int64_t s = 0; s < reading->stages; s++)
    if (!take_turns(reading, s, &stage[s], &measured->gantt.lane[s])) return false;
  begin_at_zero(&measured->gantt);
  return measured->gantt.total > 0 || trace_refuse(reading, "has turns that take no time",
                                                   "a file of `./model train --trace FILE`");
}

/* The first rank of each stage. */
static void look_at_stages(TraceReading *reading, const PlanGantt *gantt) {
  Arena *arena = reading->planned->m->arena;
  const Module *m = reading->planned->m;
  int axis = module_class(m).axis;
  reading->stages = gantt->table.stages, reading->stride = 1;
  for (int i = 0; i < axis; i++) reading->stride *= m->mesh.at[i].size;
  reading->measured->still = ARENA_ARRAY(arena, double, reading->stages);
  reading->measured->gantt = (PlanGantt){
      .table = gantt->table, .lane = ARENA_ARRAY(arena, GanttLane, reading->stages), .second = 1};
}

bool plan_measure(Planned *planned, const char *path) {
  PlanGantt gantt;
  TraceReading reading = {.planned = planned, .path = path, .stages = 1, .stride = 1};
  reading.measured = ARENA_NEW(planned->m->arena, Measured);
  reading.measured->path = path, reading.measured->scheduled = plan_gantt(planned, &gantt);
  if (reading.measured->scheduled) look_at_stages(&reading, &gantt);
  if (!trace_read(&reading) || !trace_choose_step(&reading)) return false;
  reading.measured->error = 1e-6 * reading.file.error;
  if (reading.measured->scheduled && !measure(&reading)) return false;
  if (!plan_compare(&reading, reading.measured) || !trace_same_work(&reading)) return false;
  planned->measured = reading.measured;
  return true;
}

/* ---- the topic ---- */

/* The part of a schedule in which a stage computes nothing. */
static double plan_idle(const PlanGantt *gantt, int64_t stage) {
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

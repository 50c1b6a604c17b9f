/* The turns of a pipeline's stages in a step, by the table of its schedule (ir/cost/step.h), with
   the messages at their ends: for pictures. */
#include "plan_report.h"

/* Does a turn get what it works on from the stage next door, or hand on what it made? */
static bool is_handed(const ScheduleTable *table, int64_t s, int loop, bool on) {
  int kind = schedule_loop_kind(table, loop);
  int64_t chunk = schedule_loop_chunk(table, loop),
          chunks = schedule_has_chunks(table) ? table->chunks : 1;
  bool first = !s && !chunk, last = s + 1 == table->stages && chunk + 1 == chunks;
  if (kind == TURN_WEIGHTS) return false;
  return on == (kind == TURN_FORWARD) ? !last : !first;
}

/* Turns of a stage and, at their ends, its messages. */
static GanttLane lane_of(Arena *arena, const ScheduleTable *table, int64_t s, const TurnSpan *first,
                         int64_t n) {
  GanttLane lane = {0};
  for (const TurnSpan *turn = first; turn < first + n; turn++) {
    vec_push(arena, lane.span, *turn);
    if (is_handed(table, s, turn->loop, false))
      vec_push(arena, lane.mark,
               (GanttMark){false, schedule_loop_kind(table, turn->loop), turn->part, turn->from,
                           turn->from});
    if (is_handed(table, s, turn->loop, true))
      vec_push(
          arena, lane.mark,
          (GanttMark){true, schedule_loop_kind(table, turn->loop), turn->part, turn->to, turn->to});
  }
  return lane;
}

bool plan_gantt(const Planned *planned, PlanGantt *s) {
  Arena *arena = planned->m->arena;
  StageCosts costs;
  const Fn *step = ir_main_entry(planned->m);
  if (planned->programs.n < 2 || !step ||
      !stage_costs(planned->programs.at, planned->programs.n, step, &costs))
    return false;
  int64_t stages = costs.table.stages, each = schedule_loops(&costs.table) * costs.table.parts;
  TurnSpan *span = ARENA_ARRAY(arena, TurnSpan, each * stages);
  const PlanStep *work = &planned->step;
  *s = (PlanGantt){.table = costs.table,
                   .lane = ARENA_ARRAY(arena, GanttLane, stages),
                   .total = schedule_spans(&costs.table, costs.flop, span),
                   .second = work->flop > 0 ? work->time.compute / work->flop : 0};
  for (int64_t i = 0; i < stages; i++)
    s->lane[i] = lane_of(arena, &costs.table, i, &span[i * each], each);
  return s->total > 0;
}

/* The time that stages of a pipeline wait for each other in a step. The table of the schedule
   (pipeline_schedule.h) is simulated turn by turn; the cost of a turn is that of its loop for one
   micro-batch in the program of its stage's class: operations, and separately bytes between kernels
   and memory. Stages that gather or sum over their own axis in a turn (`zero 2` and `3` over it)
   synchronise in it. The waiting time of the busiest class is the time until the last stage is
   done, less its own work. Work outside of the loops, such as the update, runs on all stages at the
   same time. */
#include "plan_report.h"

typedef struct StageCosts { /* of a micro-batch, by stage and loop */
  ScheduleTable table;
  double *flop, *bytes;
} StageCosts;

static void add_class(StageCosts *costs, const Module *m, const ScheduleLoops *loops, const Fn *f) {
  StageClass c = module_class(m);
  for (int i = 0; i < loops->n; i++) {
    IrCount cost = ir_count(m, f->ops.at[loops->loop[i]].callee);
    for (int64_t s = c.first; s <= c.last; s++)
      costs->flop[s * TURN_LOOPS + i] = cost.flop, costs->bytes[s * TURN_LOOPS + i] = cost.bytes;
  }
}

/* Finds the loops in which all stages synchronise: they gather or sum over the axis of the stages.
   A collective before the loop over layers counts as at the start of the turn, one after it as at
   the end. */
static void add_meetings(ScheduleTable *table, const Module *m, const ScheduleLoops *loops,
                         const Fn *f) {
  const char *axis = m->mesh.at[module_class(m).axis].name;
  for (int i = 0; i < loops->n; i++) {
    const Fn *body = f->ops.at[loops->loop[i]].callee;
    bool behind = false;
    for (OpId k = 0; k < body->ops.n; k++) {
      const Op *o = &body->ops.at[k];
      behind |= o->code == OP_loop;
      if (!attr_int(&o->attrs, ATTR_keep_alive, 0)) continue;
      if (strcmp(attr_str(&o->attrs, ATTR_axis, ""), axis) != 0) continue;
      *(behind ? &table->meet_behind : &table->meet_before) |= 1u << i;
    }
  }
}

static void add_program(StageCosts *costs, const Module *m, const ScheduleLoops *loops,
                        const Fn *f) {
  uint32_t before = costs->table.meet_before, behind = costs->table.meet_behind;
  costs->table = loops->table;
  costs->table.meet_before = before, costs->table.meet_behind = behind;
  add_meetings(&costs->table, m, loops, f);
  add_class(costs, m, loops, f);
}

static double waits(const StageCosts *costs, const double *time, int64_t stage) {
  double busy = 0;
  for (int i = 0; i < TURN_LOOPS; i++) busy += time[stage * TURN_LOOPS + i];
  double wait = schedule_makespan(&costs->table, time) - busy * (double)costs->table.parts;
  return wait > 0 ? wait : 0;
}

static bool stage_costs(const Planned *planned, const Fn *entry, StageCosts *costs) {
  Arena *arena = planned->m->arena;
  int axis = module_class(planned->m).axis;
  int64_t stages = axis < 0 ? 1 : planned->m->mesh.at[axis].size;
  *costs = (StageCosts){.flop = ARENA_ARRAY(arena, double, stages *TURN_LOOPS)};
  costs->bytes = ARENA_ARRAY(arena, double, stages *TURN_LOOPS);
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const Module *own = planned->programs.at[i];
    const Fn *f = module_fn(own, intern(own->ctx->names, entry->name));
    ScheduleLoops loops;
    if (!f || !schedule_of_batch(arena, f, stages, &loops)) return false;
    add_program(costs, own, &loops, f);
  }
  return true;
}

IrCount plan_waits(const Planned *planned, const Fn *entry, uint32_t class) {
  StageCosts costs;
  if (!stage_costs(planned, entry, &costs)) return (IrCount){0};
  int64_t stage = module_class(planned->programs.at[class]).first;
  return (IrCount){.flop = waits(&costs, costs.flop, stage),
                   .bytes = waits(&costs, costs.bytes, stage)};
}

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
  if (planned->programs.n < 2 || !step || !stage_costs(planned, step, &costs)) return false;
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

double plan_makespan(const Programs *programs) {
  Planned planned = {.m = programs->at[0], .programs = *programs};
  PlanGantt gantt;
  return plan_gantt(&planned, &gantt) ? gantt.total : 0;
}

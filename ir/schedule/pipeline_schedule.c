/* Loops of a pipeline schedule (pipeline_schedule.h): finding them, and facts of their table. */
#include "pipeline_schedule.h"
#include "ir/loop.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/support/num.h"

bool op_is_scheduled(const Op *o) {
  return o->code == OP_loop && attr_get(&o->attrs, ATTR_turns) != NULL;
}

static bool is_forward(const Op *o) {
  return op_is_scheduled(o) && attr_get(&o->attrs, ATTR_axis) != NULL;
}

bool schedule_find(const Fn *f, OpId id, ScheduleLoops *loops) {
  const Op *o = &f->ops.at[id];
  if (!is_forward(o)) return false;
  *loops = (ScheduleLoops){.n = 1, .loop = {id}};
  for (OpId i = id + 1; i < f->ops.n && loops->n < TURN_LOOPS && !is_forward(&f->ops.at[i]); i++)
    if (op_is_scheduled(&f->ops.at[i])) loops->loop[loops->n++] = i;
  if (loops->n == 1) return false;
  const Attr *attr = attr_get(&o->attrs, ATTR_turns);
  int64_t chunks = attr_int(&o->attrs, ATTR_interleave, 1);
  bool weights = chunks < 2 && loops->n > 2;
  int64_t stages = weights ? attr->i / 2 : attr->i;
  loops->table = (ScheduleTable){.stages = stages,
                                 .parts = attr_int(&o->attrs, ATTR_trip, 0),
                                 .most = attr->list,
                                 .wait = weights ? attr->list + stages : NULL,
                                 .chunks = chunks};
  return true;
}

int schedule_loop_number(const ScheduleLoops *loops, OpId id) {
  for (int i = 0; i < loops->n; i++)
    if (loops->loop[i] == id) return i;
  return -1;
}

/* The loops of the schedule that op `id` belongs to. */
static bool schedule_of_loop(const Fn *f, OpId id, ScheduleLoops *loops) {
  if (!op_is_scheduled(&f->ops.at[id])) return false;
  for (OpId i = id + 1; i-- > 0;)
    if (is_forward(&f->ops.at[i]))
      return schedule_find(f, i, loops) && schedule_loop_number(loops, id) >= 0;
  return false;
}

OpId op_begins(const Fn *f, OpId id) {
  ScheduleLoops loops;
  return schedule_of_loop(f, id, &loops) ? loops.loop[0] : id;
}

OpId op_ends(const Fn *f, OpId id) {
  ScheduleLoops loops;
  return schedule_of_loop(f, id, &loops) ? schedule_end(&loops) : id;
}

int64_t schedule_stage(const Module *m, const Op *forward, int64_t rank) {
  int axis = mesh_find(m, attr_str(&forward->attrs, ATTR_axis, ""));
  return axis < 0 ? 0 : mesh_coordinate(m, rank, axis);
}

bool schedule_stages(const Module *m, const Fn *entry, ScheduleStages *stages) {
  StageClass class = module_class(m);
  OpId at = 0;
  while (at < entry->ops.n && !schedule_find(entry, at, &stages->loops)) at++;
  if (at == entry->ops.n) return false;
  Str axis = attr_str(&entry->ops.at[stages->loops.loop[0]].attrs, ATTR_axis, "");
  stages->axis = mesh_find(m, axis), stages->step = 1;
  for (int i = 0; i < stages->axis; i++) stages->step *= m->mesh.at[i].size;
  stages->first = *class.name ? class.first : 0,
  stages->last = *class.name ? class.last : stages->loops.table.stages - 1;
  return true;
}

int64_t loop_slots(const Op *loop, const Type *stacked) {
  if (!op_is_scheduled(loop)) return 0;
  int64_t size = type_size(stacked, loop->group[0].from[0]);
  return size < attr_int(&loop->attrs, ATTR_trip, 0) ? size : 0;
}

int64_t loop_slice(const Op *loop, const Type *stacked, int64_t counter) {
  int64_t slots = loop_slots(loop, stacked);
  return slots ? counter % slots : counter + loop_base(loop, stacked);
}

/* ---- tables ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

ScheduleTable schedule_one_f_one_b(Arena *arena, int64_t stages, int64_t parts) {
  int64_t *most = ARENA_ARRAY(arena, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) most[s] = least(stages - s, parts);
  return (ScheduleTable){.stages = stages, .parts = parts, .most = most, .chunks = 1};
}

ScheduleTable schedule_zero_bubble(Arena *arena, int64_t stages, int64_t parts, int64_t ahead) {
  int64_t *most = ARENA_ARRAY(arena, int64_t, stages), *wait = ARENA_ARRAY(arena, int64_t, stages);
  int64_t others = stages - 1, more = least(ahead * others, parts - 1); /* in addition to the
                                                                           oldest */
  if (more < others) more = others;
  for (int64_t s = 0; s < stages; s++) {
    most[s] = least(1 + (others ? more * (others - s) / others : 0), parts);
    wait[s] = least(others ? more * s / others : 0, parts);
  }
  return (ScheduleTable){.stages = stages, .parts = parts, .most = most, .wait = wait, .chunks = 1};
}

ScheduleTable schedule_gpipe(Arena *arena, int64_t stages, int64_t parts) {
  int64_t *most = ARENA_ARRAY(arena, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) most[s] = parts;
  return (ScheduleTable){.stages = stages, .parts = parts, .most = most, .chunks = 1};
}

/* As Megatron-LM fills its pipeline, and one more where the first one goes backward. */
ScheduleTable schedule_interleaved(Arena *arena, int64_t stages, int64_t parts, int64_t chunks) {
  int64_t *most = ARENA_ARRAY(arena, int64_t, stages), all = round_up(parts, stages) * chunks;
  for (int64_t s = 0; s < stages; s++)
    most[s] = least(2 * (stages - 1 - s) + (chunks - 1) * stages + 1, all);
  return (ScheduleTable){.stages = stages, .parts = parts, .most = most, .chunks = chunks};
}

/* ---- chunks ---- */

int schedule_loop_kind(const ScheduleTable *table, int loop) {
  return schedule_has_chunks(table) ? (loop < table->chunks ? TURN_FORWARD : TURN_BACKWARD) : loop;
}

int64_t schedule_loop_chunk(const ScheduleTable *table, int loop) {
  if (!schedule_has_chunks(table)) return 0;
  return loop < table->chunks ? loop : 2 * table->chunks - 1 - loop;
}

typedef struct ChunkTurn { /* a turn of one direction, possible once that many turns of all its
                              chunks are over */
  int64_t next;            /* in the order of its loops */
  int64_t number;          /* of that turn, if every group had as many parts as there are stages */
} ChunkTurn;

static ChunkTurn chunk_turn(const ScheduleTable *table, int64_t over) {
  int64_t group = over / (table->stages * table->chunks),
          in = over % (table->stages * table->chunks),
          before = group * table->stages * table->chunks,
          parts = least(table->stages, table->parts - group * table->stages);
  if (parts <= 0) return (ChunkTurn){0, before};
  return (ChunkTurn){in / parts, before + in / parts * table->stages + in % parts};
}

int schedule_next_chunk(const ScheduleTable *table, int64_t stage, const ScheduleState *state) {
  int64_t ahead = 0, back = 0;
  for (int i = 0; i < table->chunks; i++)
    ahead += state->over[i], back += state->over[table->chunks + i];
  ChunkTurn forward = chunk_turn(table, ahead), backward = chunk_turn(table, back);
  bool room = forward.number - backward.number < table->most[stage];
  return (int)(room && ahead < table->parts * table->chunks ? forward.next
                                                            : table->chunks + backward.next);
}

int64_t schedule_between(const ScheduleTable *table, int from, int to, int64_t first,
                         int64_t last) {
  int64_t most = 0;
  for (int64_t s = first; s <= last; s++)
    for (ScheduleState state = {{0}}; !schedule_done(table, &state);) {
      state.over[schedule_next(table, s, &state)]++;
      int64_t now = state.over[from] - state.over[to];
      most = now > most ? now : most;
    }
  return most;
}

bool schedule_in_order(const ScheduleTable *table) {
  for (int64_t s = 0; s < table->stages && schedule_has_chunks(table); s++)
    for (ScheduleState state = {{0}}; !schedule_done(table, &state);) {
      int loop = schedule_next(table, s, &state);
      if (schedule_loop_kind(table, loop) == TURN_BACKWARD &&
          state.over[loop] == state.over[schedule_loop_chunk(table, loop)])
        return false;
      state.over[loop]++;
    }
  return true;
}

int64_t schedule_ring_slots(const Module *m, const ScheduleTable *table, int from, int to) {
  StageClass c = module_class(m);
  bool all = c.axis < 0 || !*c.name;
  return schedule_between(table, from, to, all ? 0 : c.first, all ? table->stages - 1 : c.last);
}

typedef VEC(uint8_t) Turns; /* loops, in the order of a stage's turns */

static int take_next(const ScheduleTable *table, int64_t stage, ScheduleState *state) {
  int loop = schedule_next(table, stage, state);
  state->over[loop]++;
  return loop;
}

static bool all_over(const ScheduleTable *table, const ScheduleState *state, int64_t parts) {
  for (int i = 0; i < schedule_loops(table); i++)
    if (state->over[i] < parts) return false;
  return true;
}

/* Parts since then, of each loop; 0: not of each as many. */
static int64_t parts_since(const ScheduleTable *table, const ScheduleState *from,
                           const ScheduleState *to) {
  int64_t parts = to->over[0] - from->over[0];
  for (int i = 1; i < schedule_loops(table); i++)
    if (to->over[i] - from->over[i] != parts) return 0;
  return parts;
}

/* Further periods that take the same turns. */
static int64_t count_periods(const ScheduleTable *table, int64_t stage, ScheduleState *state,
                             const Turns *period) {
  for (int64_t n = 0;; n++)
    for (uint32_t i = 0; i < period->n; i++)
      if (schedule_done(table, state) || take_next(table, stage, state) != period->at[i]) return n;
}

ScheduleRepeat schedule_repeat(const ScheduleTable *table, int64_t stage, int64_t unit,
                               int64_t ahead) {
  Arena *arena = arena_new();
  ScheduleRepeat repeat = {0};
  ScheduleState state = {{0}}, first;
  Turns period = {0};
  for (; !schedule_done(table, &state) && !all_over(table, &state, 1 + ahead); repeat.from++)
    take_next(table, stage, &state);
  first = state;
  do {
    if (schedule_done(table, &state)) break;
    vec_push(arena, period, (uint8_t)take_next(table, stage, &state));
    repeat.parts = parts_since(table, &first, &state);
  } while (repeat.parts <= ahead || repeat.parts % unit);
  if (repeat.parts > ahead && repeat.parts % unit == 0)
    repeat.times = count_periods(table, stage, &state, &period) - 2;
  repeat.turns = period.n, repeat.from += 2 * repeat.turns;
  arena_free(arena);
  return repeat.times > 0 ? repeat : (ScheduleRepeat){0};
}

typedef struct TurnRun { /* of all stages */
  const ScheduleTable *t;
  const double *time;
  ScheduleState *at; /* by stage */
  double *clock;     /* by stage */
  int *behind;     /* by stage: the loop after whose turn it waits for the other stages; -1: none */
  double *came;    /* by loop, stage and part: when the stage had nothing else to do */
  double *arrives; /* by loop, stage and part: when it is over; below 0: not yet */
  TurnSpan *span;  /* NULL: not asked for */
} TurnRun;

static double *over_at(const TurnRun *run, int loop, int64_t stage, int64_t part) {
  return &run->arrives[(loop * run->t->stages + stage) * run->t->parts + part];
}

/* The time at which the previous stage delivers: across chunks, the last stage delivers to the
   first one's next chunk. */
static double forward_ready(const TurnRun *run, int loop, int64_t s, int64_t part) {
  if (s) return *over_at(run, loop, s - 1, part);
  return loop ? *over_at(run, loop - 1, run->t->stages - 1, part) : 0;
}

/* The time at which its operands have arrived; below 0: not yet. */
static double ready(const TurnRun *run, int loop, int64_t s, int64_t part) {
  int kind = schedule_loop_kind(run->t, loop);
  if (kind == TURN_FORWARD) return forward_ready(run, loop, s, part);
  bool chunks = schedule_has_chunks(run->t), first = !chunks || loop == run->t->chunks;
  double own = *over_at(run, chunks ? 2 * (int)run->t->chunks - 1 - loop : loop - 1, s, part);
  if (kind == TURN_WEIGHTS || own < 0) return own;
  if (s + 1 < run->t->stages) return *over_at(run, loop, s + 1, part);
  return first ? own : *over_at(run, loop - 1, 0, part);
}

/* The next one of the stage. */
static TurnSpan *span_of_turn(const TurnRun *run, int64_t s) {
  int64_t before = s * schedule_loops(run->t) * run->t->parts;
  for (int i = 0; i < TURN_LOOPS; i++) before += run->at[s].over[i];
  return &run->span[before];
}

static double *came_to(const TurnRun *run, int loop, int64_t stage, int64_t part) {
  return &run->came[(loop * run->t->stages + stage) * run->t->parts + part];
}

/* When the last stage is where all meet; below 0: not yet. */
static double all_at(const TurnRun *run, const double *times, int loop, int64_t part) {
  double last = 0;
  for (int64_t s = 0; s < run->t->stages && last >= 0; s++) {
    double at = times[(loop * run->t->stages + s) * run->t->parts + part];
    last = at < 0 ? at : at > last ? at : last;
  }
  return last;
}

/* False: the stage waits for others after its last turn. */
static bool goes_on(TurnRun *run, int64_t s) {
  int loop = run->behind[s];
  if (loop < 0) return true;
  double last = all_at(run, run->arrives, loop, run->at[s].over[loop] - 1);
  if (last < 0) return false;
  run->clock[s] = last, run->behind[s] = -1;
  return true;
}

/* The time of the stage's next turn; -1: its operands have not arrived, or all turns are over. */
static int come_to_next(TurnRun *run, int64_t s) {
  if (!goes_on(run, s) || schedule_done(run->t, &run->at[s])) return -1;
  int loop = schedule_next(run->t, s, &run->at[s]);
  *came_to(run, loop, s, run->at[s].over[loop]) = run->clock[s];
  return loop;
}

/* False: it waits, or all is over. */
static bool take_turn(TurnRun *run, int64_t s) {
  int loop = come_to_next(run, s);
  if (loop < 0) return false;
  int64_t part = run->at[s].over[loop];
  double from = ready(run, loop, s, part), met = 0;
  if (run->t->meet_before >> loop & 1) met = all_at(run, run->came, loop, part);
  if (from < 0 || met < 0) return false;
  if (from < met) from = met;
  if (from < run->clock[s]) from = run->clock[s];
  run->clock[s] = *over_at(run, loop, s, part) = from + run->time[s * TURN_LOOPS + loop];
  if (run->span) *span_of_turn(run, s) = (TurnSpan){loop, part, from, run->clock[s]};
  if (run->t->meet_after >> loop & 1) run->behind[s] = loop;
  return run->at[s].over[loop]++, true;
}

double schedule_spans(const ScheduleTable *table, const double *time, TurnSpan *span) {
  Arena *arena = arena_new();
  int64_t n = schedule_loops(table) * table->stages * table->parts;
  TurnRun run = {.t = table, .time = time, .span = span};
  run.at = ARENA_ARRAY(arena, ScheduleState, table->stages),
  run.clock = ARENA_ARRAY(arena, double, table->stages);
  run.arrives = ARENA_ARRAY(arena, double, n);
  run.came = ARENA_ARRAY(arena, double, n), run.behind = ARENA_ARRAY(arena, int, table->stages);
  for (int64_t i = 0; i < n; i++) run.arrives[i] = run.came[i] = -1;
  for (int64_t s = 0; s < table->stages; s++) run.behind[s] = -1;
  for (bool any = true; any;) {
    any = false;
    for (int64_t s = 0; s < table->stages; s++) come_to_next(&run, s);
    for (int64_t s = 0; s < table->stages; s++)
      while (take_turn(&run, s)) any = true;
  }
  double most = 0;
  for (int64_t s = 0; s < table->stages && most >= 0; s++)
    if (!schedule_done(table, &run.at[s])) most = -1;
    else most = run.clock[s] > most ? run.clock[s] : most;
  arena_free(arena);
  return most;
}

double schedule_makespan(const ScheduleTable *table, const double *time) {
  return schedule_spans(table, time, NULL);
}

static bool has_hop(const Op *o) {
  for (OpId i = 0; o->code == OP_loop && i < o->callee->ops.n; i++)
    if (op_is_p2p(o->callee->ops.at[i].code)) return true;
  return false;
}

/* Without turns, under `gpipe`: the first loop that sends and the last one. */
static bool find_apart(Arena *arena, const Fn *f, int64_t stages, ScheduleLoops *loops) {
  *loops = (ScheduleLoops){.n = 0};
  for (OpId i = 0; i < f->ops.n; i++)
    if (has_hop(&f->ops.at[i])) loops->loop[loops->n < 2 ? loops->n++ : 1] = i;
  if (loops->n < 2) return loops->n = 0, false;
  loops->table =
      schedule_gpipe(arena, stages, attr_int(&f->ops.at[loops->loop[0]].attrs, ATTR_trip, 1));
  return true;
}

bool schedule_of_batch(Arena *arena, const Fn *f, int64_t stages, ScheduleLoops *loops) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (schedule_find(f, i, loops)) return true;
  return find_apart(arena, f, stages, loops);
}

const char *schedule_text(Arena *arena, const ScheduleTable *table, int64_t stage, int64_t words) {
  const char *text = "";
  ScheduleState state = {{0}};
  for (; !schedule_done(table, &state) && words > 0; words--) {
    int loop = schedule_next(table, stage, &state);
    const char chunk[] = {
        schedule_has_chunks(table) ? (char)('a' + schedule_loop_chunk(table, loop)) : '\0', '\0'};
    text =
        arena_printf(arena, "%s%s%c%lld%s", text, *text ? " " : "",
                     "FBW"[schedule_loop_kind(table, loop)], (long long)state.over[loop]++, chunk);
  }
  return schedule_done(table, &state) ? text : arena_printf(arena, "%s ..", text);
}

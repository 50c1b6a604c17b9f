/* Loops that take turns (turns.h): which they are, and what follows from their table. */
#include "turns.h"
#include "placement.h"
#include "stage_class.h"

bool op_takes_turns(const Op *o) {
  return o->code == OP_loop && attr_get(&o->attrs, ATTR_turns) != NULL;
}

static bool is_forward(const Op *o) {
  return op_takes_turns(o) && attr_get(&o->attrs, ATTR_axis) != NULL;
}

bool turns_begin(const Fn *f, OpId id, TurnLoops *t) {
  const Op *o = &f->ops.at[id];
  if (!is_forward(o)) return false;
  *t = (TurnLoops){.n = 1, .loop = {id}};
  for (OpId i = id + 1; i < f->ops.n && t->n < TURN_LOOPS && !is_forward(&f->ops.at[i]); i++)
    if (op_takes_turns(&f->ops.at[i])) t->loop[t->n++] = i;
  if (t->n == 1) return false;
  const Attr *a = attr_get(&o->attrs, ATTR_turns);
  int64_t stages = t->n > 2 ? a->i / 2 : a->i;
  t->table = (TurnTable){stages, attr_int(&o->attrs, ATTR_trip, 0), a->list,
                         t->n > 2 ? a->list + stages : NULL};
  return true;
}

int turns_number(const TurnLoops *t, OpId id) {
  for (int i = 0; i < t->n; i++)
    if (t->loop[i] == id) return i;
  return -1;
}

/* The loops that op `id` takes turns with. */
static bool turns_of(const Fn *f, OpId id, TurnLoops *t) {
  if (!op_takes_turns(&f->ops.at[id])) return false;
  for (OpId i = id + 1; i-- > 0;)
    if (is_forward(&f->ops.at[i])) return turns_begin(f, i, t) && turns_number(t, id) >= 0;
  return false;
}

OpId op_begins(const Fn *f, OpId id) {
  TurnLoops t;
  return turns_of(f, id, &t) ? t.loop[0] : id;
}

OpId op_ends(const Fn *f, OpId id) {
  TurnLoops t;
  return turns_of(f, id, &t) ? turns_end(&t) : id;
}

int64_t turns_stage(const Module *m, const Op *forward, int64_t rank) {
  int axis = mesh_find(m, attr_str(&forward->attrs, ATTR_axis, ""));
  return axis < 0 ? 0 : mesh_coordinate(m, rank, axis);
}

int64_t loop_slots(const Op *loop, const Type *stacked) {
  if (!op_takes_turns(loop)) return 0;
  int64_t size = type_size(stacked, loop->group[0].from[0]);
  return size < attr_int(&loop->attrs, ATTR_trip, 0) ? size : 0;
}

/* ---- tables ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

TurnTable turns_one_f_one_b(Arena *a, int64_t stages, int64_t parts) {
  int64_t *most = ARENA_ARRAY(a, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) most[s] = least(stages - s, parts);
  return (TurnTable){stages, parts, most, NULL};
}

TurnTable turns_zero_bubble(Arena *a, int64_t stages, int64_t parts) {
  TurnTable t = turns_one_f_one_b(a, stages, parts);
  int64_t *wait = ARENA_ARRAY(a, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) wait[s] = least(s, parts);
  t.wait = wait;
  return t;
}

TurnTable turns_gpipe(Arena *a, int64_t stages, int64_t parts) {
  int64_t *most = ARENA_ARRAY(a, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) most[s] = parts;
  return (TurnTable){stages, parts, most, NULL};
}

int64_t turns_between(const TurnTable *t, int from, int to, int64_t first, int64_t last) {
  int64_t most = 0;
  for (int64_t s = first; s <= last; s++)
    for (TurnState x = {{0}}; !turns_over(t, &x);) {
      x.over[turn_next(t, s, &x)]++;
      int64_t now = x.over[from] - x.over[to];
      most = now > most ? now : most;
    }
  return most;
}

int64_t turns_ring(const Module *m, const TurnTable *t, int from, int to) {
  StageClass c = module_class(m);
  bool all = c.axis < 0 || !*c.name;
  return turns_between(t, from, to, all ? 0 : c.first, all ? t->stages - 1 : c.last);
}

typedef struct TurnRun { /* of all stages */
  const TurnTable *t;
  const double *time;
  TurnState *at;   /* by stage */
  double *clock;   /* by stage */
  double *arrives; /* by loop, stage and part: when it is over; below 0: not yet */
  TurnSpan *span;  /* NULL: nobody asks */
} TurnRun;

static double *over_at(const TurnRun *r, int loop, int64_t stage, int64_t part) {
  return &r->arrives[(loop * r->t->stages + stage) * r->t->parts + part];
}

/* When what it needs is there; below 0: not yet. */
static double ready(const TurnRun *r, int loop, int64_t s, int64_t part) {
  if (loop == TURN_FORWARD) return s ? *over_at(r, loop, s - 1, part) : 0;
  double own = *over_at(r, loop - 1, s, part);
  if (loop == TURN_WEIGHTS || s + 1 == r->t->stages || own < 0) return own;
  return *over_at(r, loop, s + 1, part);
}

/* The next one of the stage. */
static TurnSpan *span_of_turn(const TurnRun *r, int64_t s) {
  int64_t before = s * turns_loops(r->t) * r->t->parts;
  for (int i = 0; i < TURN_LOOPS; i++) before += r->at[s].over[i];
  return &r->span[before];
}

/* False: it waits, or all is over. */
static bool take_turn(TurnRun *r, int64_t s) {
  if (turns_over(r->t, &r->at[s])) return false;
  int loop = turn_next(r->t, s, &r->at[s]);
  int64_t part = r->at[s].over[loop];
  double from = ready(r, loop, s, part);
  if (from < 0) return false;
  if (from < r->clock[s]) from = r->clock[s];
  r->clock[s] = *over_at(r, loop, s, part) = from + r->time[s * TURN_LOOPS + loop];
  if (r->span) *span_of_turn(r, s) = (TurnSpan){loop, part, from, r->clock[s]};
  return r->at[s].over[loop]++, true;
}

double turns_spans(const TurnTable *t, const double *time, TurnSpan *span) {
  Arena *a = arena_new();
  int64_t n = TURN_LOOPS * t->stages * t->parts;
  TurnRun r = {.t = t, .time = time, .span = span};
  r.at = ARENA_ARRAY(a, TurnState, t->stages), r.clock = ARENA_ARRAY(a, double, t->stages);
  r.arrives = ARENA_ARRAY(a, double, n);
  for (int64_t i = 0; i < n; i++) r.arrives[i] = -1;
  for (bool any = true; any;) {
    any = false;
    for (int64_t s = 0; s < t->stages; s++)
      while (take_turn(&r, s)) any = true;
  }
  double most = 0;
  for (int64_t s = 0; s < t->stages && most >= 0; s++)
    if (!turns_over(t, &r.at[s])) most = -1;
    else most = r.clock[s] > most ? r.clock[s] : most;
  arena_free(a);
  return most;
}

double turns_makespan(const TurnTable *t, const double *time) { return turns_spans(t, time, NULL); }

const char *turns_text(Arena *a, const TurnTable *t, int64_t stage, int64_t words) {
  const char *text = "";
  TurnState x = {{0}};
  for (; !turns_over(t, &x) && words > 0; words--) {
    int loop = turn_next(t, stage, &x);
    text = arena_printf(a, "%s%s%c%lld", text, *text ? " " : "", "FBW"[loop],
                        (long long)x.over[loop]++);
  }
  return turns_over(t, &x) ? text : arena_printf(a, "%s ..", text);
}

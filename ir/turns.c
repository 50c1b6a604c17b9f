/* Loops that take turns (turns.h): which they are, and what follows from their table. */
#include "turns.h"
#include "placement.h"
#include "stage_class.h"
#include "ir/support/num.h"

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
  int64_t chunks = attr_int(&o->attrs, ATTR_interleave, 1);
  bool weights = chunks < 2 && t->n > 2;
  int64_t stages = weights ? a->i / 2 : a->i;
  t->table = (TurnTable){stages, attr_int(&o->attrs, ATTR_trip, 0), a->list,
                         weights ? a->list + stages : NULL, chunks};
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
  return (TurnTable){stages, parts, most, NULL, 1};
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
  return (TurnTable){stages, parts, most, NULL, 1};
}

/* As Megatron-LM fills its pipeline, and one more where the first one goes backward. */
TurnTable turns_interleaved(Arena *a, int64_t stages, int64_t parts, int64_t chunks) {
  int64_t *most = ARENA_ARRAY(a, int64_t, stages), all = round_up(parts, stages) * chunks;
  for (int64_t s = 0; s < stages; s++)
    most[s] = least(2 * (stages - 1 - s) + (chunks - 1) * stages + 1, all);
  return (TurnTable){stages, parts, most, NULL, chunks};
}

/* ---- chunks ---- */

int turn_kind(const TurnTable *t, int loop) {
  return turns_interleave(t) ? (loop < t->chunks ? TURN_FORWARD : TURN_BACKWARD) : loop;
}

int64_t turn_chunk(const TurnTable *t, int loop) {
  if (!turns_interleave(t)) return 0;
  return loop < t->chunks ? loop : 2 * t->chunks - 1 - loop;
}

typedef struct ChunkTurn { /* of one way, once so many of all its chunks are over */
  int64_t next;            /* in the order of its loops */
  int64_t number;          /* of that turn, if every group had as many parts as there are stages */
} ChunkTurn;

static ChunkTurn chunk_turn(const TurnTable *t, int64_t over) {
  int64_t group = over / (t->stages * t->chunks), in = over % (t->stages * t->chunks),
          before = group * t->stages * t->chunks,
          parts = least(t->stages, t->parts - group * t->stages);
  if (parts <= 0) return (ChunkTurn){0, before};
  return (ChunkTurn){in / parts, before + in / parts * t->stages + in % parts};
}

int turn_next_chunk(const TurnTable *t, int64_t stage, const TurnState *x) {
  int64_t ahead = 0, back = 0;
  for (int i = 0; i < t->chunks; i++) ahead += x->over[i], back += x->over[t->chunks + i];
  ChunkTurn forward = chunk_turn(t, ahead), backward = chunk_turn(t, back);
  bool room = forward.number - backward.number < t->most[stage];
  return (int)(room && ahead < t->parts * t->chunks ? forward.next : t->chunks + backward.next);
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

/* What the stage before hands on: of chunks the last one before the first one's next. */
static double forward_ready(const TurnRun *r, int loop, int64_t s, int64_t part) {
  if (s) return *over_at(r, loop, s - 1, part);
  return loop ? *over_at(r, loop - 1, r->t->stages - 1, part) : 0;
}

/* When what it needs is there; below 0: not yet. */
static double ready(const TurnRun *r, int loop, int64_t s, int64_t part) {
  int kind = turn_kind(r->t, loop);
  if (kind == TURN_FORWARD) return forward_ready(r, loop, s, part);
  bool chunks = turns_interleave(r->t), first = !chunks || loop == r->t->chunks;
  double own = *over_at(r, chunks ? 2 * (int)r->t->chunks - 1 - loop : loop - 1, s, part);
  if (kind == TURN_WEIGHTS || own < 0) return own;
  if (s + 1 < r->t->stages) return *over_at(r, loop, s + 1, part);
  return first ? own : *over_at(r, loop - 1, 0, part);
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
    const char chunk[] = {turns_interleave(t) ? (char)('a' + turn_chunk(t, loop)) : '\0', '\0'};
    text = arena_printf(a, "%s%s%c%lld%s", text, *text ? " " : "", "FBW"[turn_kind(t, loop)],
                        (long long)x.over[loop]++, chunk);
  }
  return turns_over(t, &x) ? text : arena_printf(a, "%s ..", text);
}

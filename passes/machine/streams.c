/* streams: every copy between a GPU and its host, and every operation of the host, gets its stream
   and its tokens (ir/schedule/stream_order.h); operations outside of entries get theirs
   (ir/schedule/background_order.h). Collectives in flight get the name of their stream; what waits
   for them is an op, so they need no tokens.

   Operations of each entry are issued in their order. One that needs an operation of another
   stream, and does not wait for it even by way of others, waits for just that one, and its op notes
   the round and the numbers that would do, of both kinds of tokens. A token is the line over the
   rounds that had to wait that waits for no less than these, and for the fewest operations more. It
   waits for no
   less than the walk did; numbers of rounds that are not listed are on a line between those that
   are. Then each token that the remaining ones imply is left out, so that every token of the result
   is needed by some operation. Must not: change the order of ops. */
#include "passes/pass.h"
#include "ir/schedule/background_order.h"
#include "ir/schedule/flight.h"
#include "ir/support/num.h"

typedef struct StreamPoint { /* what round n has to wait for, in numbers of a kind of token */
  int64_t n, number;         /* the largest */
  int64_t times, sum;        /* how many there were, and their sum */
} StreamPoint;

typedef struct StreamPoints {
  VEC(StreamPoint) list; /* by round, each once, in the order in which they came */
  uint32_t next;         /* the place after that of the last one noted */
  int64_t first, last;   /* the least and the greatest round */
} StreamPoints;

enum { LINES = 64 }; /* at most, that are compared */

typedef struct StreamOp {
  /* By kind of token, and stream that is waited for; STREAM_compute: uploads arrived. */
  StreamPoints points[2][STREAMS];
  int64_t noted[STREAMS], runs; /* how often it had to wait, and ran */
  int64_t last;                 /* round */
  StreamTokens tokens;
  OpStream stream;
} StreamOp;

typedef struct StreamPass {
  Module *m;
  StreamOrders orders;
  StreamOp *op; /* of the module */
  uint32_t nops;
  StreamClocks clocks;
} StreamPass;

/* ---- direct uploads ---- */

/* Those ops whose copies all go to parameters. */
static void mark_direct(Module *m) {
  VEC(Op *) ops = {0};
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (m->fns.at[i]->kind != FN_ENTRY) continue;
    EventList list = events_of(m, m->fns.at[i]);
    for (uint32_t k = 0; k < list.at.n; k++) {
      Op *o = (Op *)(uintptr_t)event_op(&list.at.at[k]);
      if (o->code != OP_move || list.at.at[k].kind != EVENT_RUN) continue;
      bool direct = event_to_parameter(m, &list, &list.at.at[k]);
      attr_set_int(m, &o->attrs, ATTR_direct, direct && attr_int(&o->attrs, ATTR_direct, 1));
      vec_push(m->arena, ops, o);
    }
  }
  for (uint32_t i = 0; i < ops.n; i++)
    if (!attr_int(&ops.at[i]->attrs, ATTR_direct, 0)) op_drop_attr(ops.at[i], ATTR_direct);
}

/* ---- what is needed ---- */

/* Rounds mostly come in the order in which they came first. */
static StreamPoint *point_of(const StreamPass *pass, StreamPoints *points, int64_t n) {
  uint32_t all = points->list.n, at = points->next;
  bool outside = !all || n < points->first || n > points->last;
  for (uint32_t i = 0; !outside && i < all; i++, at++) {
    if (at >= all) at = 0;
    if (points->list.at[at].n != n) continue;
    points->next = at + 1;
    return &points->list.at[at];
  }
  points->first = all ? min_i64(points->first, n) : n;
  points->last = all ? max_i64(points->last, n) : n;
  points->next = all + 1;
  vec_push(pass->m->arena, points->list, (StreamPoint){n, INT64_MIN, 0, 0});
  return &points->list.at[all];
}

static void note(const StreamPass *pass, StreamPoints *points, int64_t n, int64_t number) {
  StreamPoint *point = point_of(pass, points, n);
  point->number = max_i64(point->number, number);
  point->times++, point->sum += number;
}

static void issue(StreamPass *pass, const StreamEvent *event) {
  static const StreamTokens none;
  StreamOp *op = &pass->op[event->op];
  int64_t round = event->event->round == NO_ROUND ? 0 : event->event->round;
  clocks_wait(&pass->clocks, event, &none);
  for (StreamNeed need; (need = clocks_need(&pass->clocks, event)).missing;) {
    OpStream of = need.arrived ? STREAM_compute : need.of;
    int64_t back = event->issued[need.of] - need.number;
    note(pass, &op->points[0][of], round, -(back < MOST_BACK ? back : MOST_BACK));
    note(pass, &op->points[1][of], round, need.number - event->started[need.of]);
    op->noted[of]++;
    clocks_meet(&pass->clocks, event, &need);
  }
  op->runs++;
  if (round > op->last) op->last = round;
  if (event->stream != STREAM_compute) op->stream = event->stream;
  clocks_issue(&pass->clocks, event);
}

/* ---- tokens ---- */

typedef struct StreamLine {
  int64_t number, step, slack; /* slack: how many operations more than needed it waits for */
} StreamLine;

static StreamLine line_above(const StreamPoints *points, int64_t step) {
  const StreamPoint *point = points->list.at;
  StreamLine line = {point[0].number - step * point[0].n, step, 0};
  for (uint32_t i = 1; i < points->list.n; i++)
    line.number = max_i64(line.number, point[i].number - step * point[i].n);
  for (uint32_t i = 0; i < points->list.n; i++)
    line.slack += (line.number + step * point[i].n) * point[i].times - point[i].sum;
  return line;
}

/* The nearest line of those through two points one after the other, the first and the last point,
   or of one number for all rounds. Points of thousands of rounds have few steps. */
static StreamLine nearest_line(const StreamPoints *points) {
  StreamLine best = line_above(points, 0);
  int64_t tried[LINES] = {0};
  uint32_t tries = 1, n = points->list.n;
  for (uint32_t i = 0; n > 1 && i < n && tries < LINES; i++) {
    StreamPoint from = points->list.at[i], to = points->list.at[(i + 1) % n];
    int64_t step = (to.number - from.number) / (to.n - from.n);
    uint32_t k = 0;
    while (k < tries && tried[k] != step) k++;
    if (k < tries) continue;
    StreamLine line = line_above(points, tried[tries++] = step);
    if (line.slack < best.slack) best = line;
  }
  return best;
}

/* Where both kinds are as near, an op whose rounds need not wait each time counts from the start of
   the run: it waits for what is done already. */
static StreamToken fit(const StreamOp *op, OpStream of) {
  if (!op->noted[of]) return (StreamToken){0};
  StreamLine back = nearest_line(&op->points[0][of]), start = nearest_line(&op->points[1][of]);
  bool always = op->noted[of] * (op->last + 1) >= op->runs * (int64_t)op->points[0][of].list.n;
  bool since_start = start.slack < back.slack || (start.slack == back.slack && !always);
  int64_t first = op->points[0][of].first, last = op->points[0][of].last;
  if (last == op->last) last = -1;
  if (since_start) return (StreamToken){true, true, start.number, start.step, first, last};
  return (StreamToken){true, false, -back.number, -back.step, first, last};
}

static bool holds(StreamPass *pass) {
  for (uint32_t i = 0; i < pass->orders.n; i++) {
    const StreamOrder *order = &pass->orders.at[i];
    clocks_begin(&pass->clocks);
    for (uint32_t k = 0; k < order->at.n; k++) {
      const StreamEvent *event = &order->at.at[k];
      clocks_wait(&pass->clocks, event, &pass->op[event->op].tokens);
      if (clocks_need(&pass->clocks, event).missing) return false;
      clocks_issue(&pass->clocks, event);
    }
  }
  return true;
}

static void leave_out(StreamPass *pass, StreamToken *token) {
  if (!token->waits) return;
  token->waits = false;
  token->waits = !holds(pass);
}

static void write_tokens(const StreamPass *pass) {
  const StreamOp *op = pass->op;
  for (uint32_t i = 0; i < pass->m->fns.n; i++)
    for (OpId k = 0; k < pass->m->fns.at[i]->ops.n; k++, op++)
      op_set_tokens(pass->m, &pass->m->fns.at[i]->ops.at[k], op->stream, &op->tokens);
}

static void mark_messages(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Op *o = &m->fns.at[i]->ops.at[k];
      if (op_flies(o))
        attr_set_str(m, &o->attrs, ATTR_runs_on, intern(m->ctx->names, stream_messages));
    }
}

void pass_streams(Module *m) {
  if (module_has_streams(m)) mark_direct(m);
  StreamPass pass = {.m = m, .orders = stream_orders(m, false), .clocks = {.arena = m->arena}};
  background_of(m, &pass.orders, m->background);
  mark_messages(m);
  if (!pass.orders.n) return;
  for (uint32_t i = 0; i < m->fns.n; i++) pass.nops += m->fns.at[i]->ops.n;
  pass.op = ARENA_ARRAY(m->arena, StreamOp, pass.nops + 1);
  memset(pass.op, 0, sizeof *pass.op * pass.nops);
  for (uint32_t i = 0; i < pass.orders.n; i++) {
    clocks_begin(&pass.clocks);
    for (uint32_t k = 0; k < pass.orders.at[i].at.n; k++) issue(&pass, &pass.orders.at[i].at.at[k]);
  }
  for (uint32_t i = 0; i < pass.nops; i++) {
    StreamOp *op = &pass.op[i];
    for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
      op->tokens.after[stream] = fit(op, stream);
    op->tokens.arrived = fit(op, STREAM_compute);
  }
  for (uint32_t i = 0; i < pass.nops; i++) {
    for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
      leave_out(&pass, &pass.op[i].tokens.after[stream]);
    leave_out(&pass, &pass.op[i].tokens.arrived);
  }
  write_tokens(&pass);
}

/* streams: every copy between a GPU and its host, and every operation of the host, gets its stream
   and its tokens (ir/schedule/stream_order.h).

   Operations of each entry are issued in their order. One that needs an operation of another
   stream, and does not wait for it even by way of others, waits for just that one, and its op notes
   the round and the number d that would do. A token is the line over the rounds that is nowhere
   above these numbers, and that is nearest to them. It waits for no less than the walk did; numbers
   of rounds that are not listed are on a line between those that are. Then each token that the
   remaining ones imply is left out, so that every token of the result is needed by some operation.
   Must not: change the order of ops. */
#include "passes/pass.h"
#include "ir/schedule/stream_order.h"

typedef struct StreamPoint { /* round n need not wait for the latest `back` operations */
  int64_t n, back;
} StreamPoint;

typedef VEC(StreamPoint) StreamPoints;

typedef struct StreamOp {
  StreamPoints points[STREAMS]; /* by stream that is waited for; STREAM_compute: uploads arrived */
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

/* ---- what is needed ---- */

static void note(const StreamPass *pass, StreamPoints *points, int64_t n, int64_t back) {
  if (back > MOST_BACK) back = MOST_BACK;
  for (uint32_t i = 0; i < points->n; i++) {
    if (points->at[i].n != n) continue;
    if (back < points->at[i].back) points->at[i].back = back;
    return;
  }
  vec_push(pass->m->arena, *points, (StreamPoint){n, back});
}

static void issue(StreamPass *pass, const StreamEvent *event) {
  static const StreamTokens none;
  StreamOp *op = &pass->op[event->op];
  clocks_wait(&pass->clocks, event, &none);
  for (StreamNeed need; (need = clocks_need(&pass->clocks, event)).missing;) {
    int64_t round = event->event->round == NO_ROUND ? 0 : event->event->round;
    note(pass, &op->points[need.arrived ? STREAM_compute : need.of], round,
         event->issued[need.of] - need.number);
    clocks_meet(&pass->clocks, event, &need);
  }
  if (event->stream != STREAM_compute) op->stream = event->stream;
  clocks_issue(&pass->clocks, event);
}

/* ---- tokens ---- */

/* With that step; *slack: by how much it is below all points, together. */
static StreamToken line_below(const StreamPoints *points, int64_t step, int64_t *slack) {
  StreamToken token = {true, points->at[0].back - step * points->at[0].n, step};
  for (uint32_t i = 1; i < points->n; i++) {
    int64_t back = points->at[i].back - step * points->at[i].n;
    if (back < token.back) token.back = back;
  }
  *slack = 0;
  for (uint32_t i = 0; i < points->n; i++)
    *slack += points->at[i].back - token.back - step * points->at[i].n;
  return token;
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The nearest line of those through two points one after the other, the first and the last point,
   or of one number for all rounds. */
static StreamToken fit(const StreamPoints *points) {
  int64_t least, slack;
  if (!points->n) return (StreamToken){0};
  StreamToken best = line_below(points, 0, &least);
  for (uint32_t i = 0; points->n > 1 && i < points->n; i++) {
    StreamPoint from = points->at[i], to = points->at[(i + 1) % points->n];
    StreamToken token = line_below(points, floor_div(to.back - from.back, to.n - from.n), &slack);
    if (slack < least) best = token, least = slack;
  }
  return best;
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

void pass_streams(Module *m) {
  StreamPass pass = {.m = m, .orders = stream_orders(m, false), .clocks = {.arena = m->arena}};
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
      op->tokens.after[stream] = fit(&op->points[stream]);
    op->tokens.arrived = fit(&op->points[STREAM_compute]);
  }
  for (uint32_t i = 0; i < pass.nops; i++) {
    for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
      leave_out(&pass, &pass.op[i].tokens.after[stream]);
    leave_out(&pass, &pass.op[i].tokens.arrived);
  }
  write_tokens(&pass);
}

/* Clocks of the streams between a GPU and its host (timeline_host.h).

   A download is first copied into a slot on the kernels' stream, which then continues; `down` sends
   the slot to the host at the rate of the link. An upload is put into a slot by `up` as soon as a
   slot is free and the host has the data, and the kernels' stream copies it out. Host kernels have
   a stream of their own.

   Each stream does one thing after the other; an operation waits for those of other streams that
   its tokens name (ir/schedule/stream_order.h). Before pass `streams` there are no tokens: then it
   waits for all. Direct uploads to parameters use no slot, and kernels wait for them by tokens. */
#include "timeline_host.h"
#include "ir/support/num.h"

static double later(double a, double b) { return a > b ? a : b; }

/* When an operation of the stream, and so all before it, is done. */
static double by_token(const HostLane *lane, const StreamToken *token, const Event *event) {
  if (!token->waits) return 0;
  int64_t last = token_last(token, event->round, lane->n, lane->started),
          oldest = lane->n > MOST_BACK ? lane->n - MOST_BACK : 1;
  if (last < 1) return 0;
  return lane->over[((last < oldest ? oldest : last) - 1) % (MOST_BACK + 1)];
}

/* When a stream may do what the event does, as far as the others are concerned. */
static double after_others(const HostClocks *clocks, OpStream own, const Event *event) {
  static const StreamToken all = {.waits = true};
  const Op *o = event_op(event);
  StreamTokens tokens = op_tokens(o);
  bool known = op_stream(o) != STREAM_compute;
  double time = 0;
  for (OpStream other = STREAM_down; other < STREAMS; other++)
    if (other != own)
      time =
          later(time, by_token(&clocks->lane[other], known ? &tokens.after[other] : &all, event));
  return time;
}

/* An arrow from the end of an operation in this step to the one that waits for it. */
static void add_arrow(const HostClocks *clocks, OpStream from, OpStream to, double over,
                      double begin) {
  LaneArrow arrow = {stream_lane(from), stream_lane(to), over, later(over, begin), false};
  if (over > 0) vec_push(clocks->m->arena, clocks->lanes->arrow, arrow);
}

static void add_span(const HostClocks *clocks, OpStream stream, double from, const Event *event) {
  double to = clocks->lane[stream].free;
  StreamTokens tokens = op_tokens(event_op(event));
  if (to > from && to > 0)
    vec_push(clocks->m->arena, clocks->lanes->span,
             (LaneSpan){stream_lane(stream), later(from, 0), to, event, NULL});
  if (to > clocks->lanes->shown) clocks->lanes->shown = to;
  for (OpStream other = STREAM_down; other < STREAMS; other++)
    if (other != stream)
      add_arrow(clocks, other, stream, by_token(&clocks->lane[other], &tokens.after[other], event),
                from);
}

static void note(HostLane *lane, double over) {
  lane->free = over;
  lane->over[lane->n++ % (MOST_BACK + 1)] = over;
}

/* Between two places of the GPU's memory. */
static double copy_seconds(const HostClocks *clocks, double bytes) {
  return clocks->x->hbm > 0 ? 2 * bytes / clocks->x->hbm : 0;
}

static double piece_down(HostClocks *clocks, HostLane *lane, double *slot, double bytes,
                         double now) {
  double takes = clocks->x->copy + bytes / clocks->x->pcie;
  now = later(now, *slot) + copy_seconds(clocks, bytes);
  lane->busy += takes;
  *slot = lane->free = later(lane->free, now) + takes;
  return now;
}

static double piece_up(HostClocks *clocks, HostLane *lane, double *slot, double bytes, double now) {
  lane->free = later(lane->free, *slot) + clocks->x->copy + bytes / clocks->x->pcie;
  return *slot = later(now, lane->free) + copy_seconds(clocks, bytes);
}

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events) {
  HostClocks clocks = {.m = m, .x = x, .events = events, .bytes = module_move_slot(m)};
  for (int up = 0; up < 2; up++) clocks.slots[up] = module_move_slots(m, up);
  return clocks;
}

static void direct_up(HostClocks *clocks, const Event *event, double bytes, double now) {
  HostLane *lane = &clocks->lane[STREAM_up];
  double from = later(later(lane->free, after_others(clocks, STREAM_up, event)), now);
  note(lane, from + clocks->x->copy + bytes / clocks->x->pcie);
  add_span(clocks, STREAM_up, from, event);
}

double host_clock_arrived(const HostClocks *clocks, const Event *event, double now) {
  StreamTokens tokens = op_tokens(event_op(event));
  double over = by_token(&clocks->lane[STREAM_up], &tokens.arrived, event);
  add_arrow(clocks, STREAM_up, STREAM_compute, over, now);
  return over;
}

double host_clock_move(HostClocks *clocks, const Event *event, double bytes, bool up, double now) {
  OpStream stream = up ? STREAM_up : STREAM_down;
  HostLane *lane = &clocks->lane[stream];
  double room = (double)clocks->bytes;
  if (up && clocks->stays && attr_int(&event_op(event)->attrs, ATTR_direct, 0)) {
    direct_up(clocks, event, bytes, now);
    return now;
  }
  lane->free = later(lane->free, after_others(clocks, stream, event));
  double from = up ? lane->free : later(lane->free, now);
  while (bytes > 0) {
    double n = bytes < room ? bytes : room,
           *slot = &clocks->slot[up][clocks->taken[up]++ % clocks->slots[up]];
    now = up ? piece_up(clocks, lane, slot, n, now) : piece_down(clocks, lane, slot, n, now);
    bytes -= n;
  }
  note(lane, lane->free);
  add_span(clocks, stream, from, event);
  return now;
}

void host_clock_kernel(HostClocks *clocks, const Event *event, double seconds) {
  HostLane *lane = &clocks->lane[STREAM_host];
  double from = later(lane->free, after_others(clocks, STREAM_host, event));
  note(lane, from + seconds);
  add_span(clocks, STREAM_host, from, event);
}

static void put_back(HostLane *lane, double seconds) {
  lane->free -= seconds;
  for (int64_t i = 0; i <= MOST_BACK; i++) lane->over[i] -= seconds;
}

static void put_back_slots(HostClocks *clocks, OpStream stream, double seconds) {
  bool up = stream == STREAM_up;
  for (int i = 0; stream != STREAM_host && i < clocks->slots[up]; i++)
    clocks->slot[up][i] -= seconds;
}

HostAt host_clock_at(const HostClocks *clocks) {
  HostAt at;
  for (OpStream i = 0; i < STREAMS; i++)
    at.free[i] = clocks->lane[i].free, at.busy[i] = clocks->lane[i].busy,
    at.n[i] = clocks->lane[i].n;
  return at;
}

/* The stream does the operations since number `since` again, `periods` times, each time in `did`
   seconds. */
static void repeat(HostLane *lane, int64_t since, double did, double periods) {
  enum { ROOM = MOST_BACK + 1 };
  int64_t n = lane->n - since, all = n * (int64_t)periods, shown = min_i64(all, ROOM);
  double last[ROOM];
  if (n > ROOM) { /* the latest operations are all of one period */
    put_back(lane, -did * periods);
    return;
  }
  for (int64_t i = 0; i < n; i++) last[i] = lane->over[(since + i) % ROOM];
  for (int64_t i = all - shown; i < all; i++)
    lane->over[(lane->n + i) % ROOM] = last[i % n] + did * (double)(i / n + 1);
  lane->n += all, lane->free += did * periods;
}

void host_clock_skip(HostClocks *clocks, const HostAt *since, double kernels, double periods) {
  for (OpStream i = STREAM_down; i < STREAMS; i++) {
    HostLane *lane = &clocks->lane[i];
    double did = clocks->stays && i == STREAM_down ? lane->busy - since->busy[i]
                                                   : lane->free - since->free[i];
    repeat(lane, since->n[i], did, periods);
    put_back(lane, periods * kernels);
    if (did < kernels) put_back_slots(clocks, i, periods * (kernels - did));
  }
}

void host_clock_shift(HostClocks *clocks, double seconds) {
  for (OpStream i = STREAM_down; i < STREAMS; i++)
    put_back(&clocks->lane[i], seconds), put_back_slots(clocks, i, seconds),
        clocks->lane[i].started = clocks->lane[i].n;
}

double host_clock_over(const HostClocks *clocks) {
  double time = 0;
  for (OpStream i = STREAM_down; i < STREAMS; i++) time = later(time, clocks->lane[i].free);
  return time;
}

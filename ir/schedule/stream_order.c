/* Streams and their tokens (stream_order.h). The bytes of an operation determine its stream. It
   needs, of each other stream, the last operation that touches a byte of it, if one of the two
   writes that byte. Clocks hold which operations are done once those of a list of tokens are.

   The bytes of a stream's operations are kept by space, each range once with its last operation, by
   its length to a power of two, in the order of first bytes: a plan has as many ranges as layers,
   and each operation looks only at those that it meets, and at as many that end before it. */
#include "stream_order.h"
#include "flight.h"
#include "ir/support/num.h"
#include "pipeline_schedule.h"

typedef struct StreamTouch {
  EventBytes bytes;
  int64_t last; /* operation */
} StreamTouch;

typedef VEC(StreamTouch) StreamRanges; /* by their first bytes */

enum { LENGTHS = 62 };

typedef struct StreamTouches {
  StreamRanges *of; /* [LENGTHS]: those of 2^i bytes to the next power of two; NULL: none at all */
} StreamTouches;

typedef struct StreamWalk {
  const Module *m;
  Arena *arena;
  const EventList *list;
  StreamOrder *order;
  int64_t count[STREAMS];     /* operations so far */
  int64_t started[STREAMS];   /* the same, before the run of the entry */
  int64_t (*before)[STREAMS]; /* by event of the list */
  bool *direct;               /* by space: it is a parameter with direct uploads */
  StreamTouches
      *touched[STREAMS]; /* by space: of the host; by uploads to parameters, STREAM_compute */
} StreamWalk;

const char stream_messages[] = "messages";

const char *stream_name(OpStream stream) {
  static const char *const names[STREAMS] = {"compute", "down", "host", "up"};
  return names[stream];
}

bool module_has_streams(const Module *m) {
  for (uint32_t i = 0; module_on_gpu(m) && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (m->fns.at[i]->ops.at[k].code == OP_move) return true;
  return false;
}

/* ---- attributes ---- */

static const AttrKey after_keys[STREAMS] = {ATTR_arrived, ATTR_after_down, ATTR_after_host,
                                            ATTR_after_up};

int64_t token_last(const StreamToken *token, int64_t round, int64_t issued, int64_t started) {
  int64_t number = token->number + (round < 0 ? 0 : token->step * round);
  if (round >= 0 && (round < token->first || (token->last >= 0 && round > token->last))) return 0;
  if (token->since_start) return min_i64(started + number, issued);
  return issued - (number < 0 ? 0 : min_i64(number, MOST_BACK));
}

static StreamToken token_of(const Op *o, AttrKey key) {
  const Attr *numbers = attr_get(&o->attrs, key);
  int64_t list[] = {0, 0, 0, -1, 0};
  for (int64_t i = 0; numbers && i < numbers->i && i < 5; i++) list[i] = numbers->list[i];
  return (StreamToken){numbers != NULL, list[4], list[0], list[1], list[2], list[3]};
}

static void set_token(Module *m, Op *o, AttrKey key, const StreamToken *token) {
  const int64_t list[] = {token->number, token->step, token->first, token->last,
                          token->since_start};
  int n = token->since_start ? 5 : token->first || token->last >= 0 ? 4 : token->step ? 2 : 1;
  if (token->waits) attr_set_ints(m, &o->attrs, key, n, list);
}

StreamTokens op_tokens(const Op *o) {
  StreamTokens tokens = {.arrived = token_of(o, ATTR_arrived)};
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
    tokens.after[stream] = token_of(o, after_keys[stream]);
  return tokens;
}

OpStream op_stream(const Op *o) {
  const Attr *runs_on = attr_get(&o->attrs, ATTR_runs_on);
  for (OpStream stream = STREAM_down; runs_on && stream < STREAMS; stream++)
    if (!strcmp(runs_on->s, stream_name(stream))) return stream;
  return STREAM_compute;
}

void op_drop_attr(Op *o, AttrKey key) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->attrs.n; i++)
    if (o->attrs.at[i].key != key) o->attrs.at[n++] = o->attrs.at[i];
  o->attrs.n = n;
}

void op_set_tokens(Module *m, Op *o, OpStream stream, const StreamTokens *tokens) {
  if (!op_flies(o)) op_drop_attr(o, ATTR_runs_on);
  for (OpStream other = 0; other < STREAMS; other++) op_drop_attr(o, after_keys[other]);
  if (stream != STREAM_compute)
    attr_set_str(m, &o->attrs, ATTR_runs_on, intern(m->ctx->names, stream_name(stream)));
  for (OpStream other = STREAM_down; other < STREAMS; other++)
    set_token(m, o, after_keys[other], &tokens->after[other]);
  set_token(m, o, ATTR_arrived, &tokens->arrived);
}

static uint32_t op_number(const Module *m, const Fn *f, OpId op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n && m->fns.at[i] != f; i++) n += m->fns.at[i]->ops.n;
  return n + op;
}

/* ---- operations ---- */

static bool on_host(const Module *m, const EventBytes *bytes) {
  Tier t =
      bytes->space < TIERS ? (Tier)bytes->space : m->globals.at[bytes->space - TIERS]->type.tier;
  return t != TIER_device;
}

static const EventBytes *bytes_of(const EventList *list, const Event *event, uint32_t i) {
  return &list->bytes.at[event->bytes + i];
}

/* Copies of stores and loops: where their bytes go. */
static OpStream copy_stream(const Module *m, const EventList *list, const Event *event) {
  for (uint32_t i = 0; i < event->nbytes; i++)
    if (bytes_of(list, event, i)->written && on_host(m, bytes_of(list, event, i)))
      return STREAM_host;
  return STREAM_compute;
}

OpStream event_stream(const Module *m, const EventList *list, const Event *event) {
  const Op *o = event_op(event);
  if (event->kind != EVENT_RUN) return STREAM_compute;
  if (o->code == OP_move)
    return value_type(event->f, o->out)->tier == TIER_device ? STREAM_up : STREAM_down;
  if (o->code == OP_kernel) return kernel_on_host(m, o->callee) ? STREAM_host : STREAM_compute;
  return copy_stream(m, list, event);
}

static bool is_direct(const Event *event) {
  return event->kind == EVENT_RUN && attr_int(&event_op(event)->attrs, ATTR_direct, 0);
}

bool event_to_parameter(const Module *m, const EventList *list, const Event *event) {
  if (event_stream(m, list, event) != STREAM_up || !module_copies_stay(m)) return false;
  for (uint32_t i = 0; i < event->nbytes; i++) {
    const EventBytes *bytes = bytes_of(list, event, i);
    if (bytes->written && bytes->space >= TIERS &&
        m->globals.at[bytes->space - TIERS]->kind == GLOBAL_PARAM && !on_host(m, bytes))
      return true;
  }
  return false;
}

/* ---- needs ---- */

/* The first range that begins at this byte or after it. */
static uint32_t range_from(const StreamRanges *ranges, int64_t byte) {
  uint32_t low = 0, high = ranges->n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (ranges->at[middle].bytes.from < byte) low = middle + 1;
    else high = middle;
  }
  return low;
}

static void needs(const StreamTouches *touches, const EventBytes *bytes, int64_t *last) {
  for (int k = 0; touches->of && k < LENGTHS; k++) {
    const StreamRanges *ranges = &touches->of[k];
    uint32_t i = ranges->n ? range_from(ranges, bytes->from - (INT64_C(2) << k) + 1) : 0;
    for (; i < ranges->n && ranges->at[i].bytes.from < bytes->to; i++) {
      const StreamTouch *touch = &ranges->at[i];
      if (touch->last > *last && (touch->bytes.written || bytes->written) &&
          bytes_meet(&touch->bytes, bytes))
        *last = touch->last;
    }
  }
}

static bool same_bytes(const EventBytes *a, const EventBytes *b) {
  return a->from == b->from && a->to == b->to && a->of == b->of && a->written == b->written;
}

static StreamRanges *ranges_of(const StreamWalk *walk, StreamTouches *touches, int64_t length) {
  int k = 0;
  while (k < LENGTHS - 1 && length >> (k + 1)) k++;
  if (!touches->of) {
    touches->of = ARENA_ARRAY(walk->arena, StreamRanges, LENGTHS);
    memset(touches->of, 0, sizeof *touches->of * LENGTHS);
  }
  return &touches->of[k];
}

static void keep(const StreamWalk *walk, StreamTouches *touches, const EventBytes *bytes,
                 int64_t operation) {
  StreamRanges *ranges = ranges_of(walk, touches, bytes->to - bytes->from);
  uint32_t i = range_from(ranges, bytes->from);
  for (; i < ranges->n && ranges->at[i].bytes.from == bytes->from; i++)
    if (same_bytes(&ranges->at[i].bytes, bytes)) {
      ranges->at[i].last = operation;
      return;
    }
  vec_push(walk->arena, *ranges, (StreamTouch){0});
  StreamTouch *at = ranges->at + i;
  memmove(at + 1, at, sizeof *at * (ranges->n - 1 - i));
  *at = (StreamTouch){*bytes, operation};
}

static void find_needs(const StreamWalk *walk, StreamEvent *at) {
  for (uint32_t i = 0; i < at->event->nbytes; i++) {
    const EventBytes *bytes = bytes_of(walk->list, at->event, i);
    if (bytes->space >= TIERS + walk->m->globals.n) continue; /* a variable of the host program */
    if (!on_host(walk->m, bytes) && !at->direct)
      needs(&walk->touched[STREAM_compute][bytes->space], bytes, &at->needs_arrived);
    for (OpStream stream = STREAM_down; on_host(walk->m, bytes) && stream < STREAMS; stream++)
      if (stream != at->stream)
        needs(&walk->touched[stream][bytes->space], bytes, &at->needs[stream]);
  }
}

static void keep_all(const StreamWalk *walk, const StreamEvent *at) {
  for (uint32_t i = 0; at->stream != STREAM_compute && i < at->event->nbytes; i++) {
    const EventBytes *bytes = bytes_of(walk->list, at->event, i);
    int64_t number = at->issued[at->stream] + 1;
    if (bytes->space >= TIERS + walk->m->globals.n) continue;
    if (on_host(walk->m, bytes))
      keep(walk, &walk->touched[at->stream][bytes->space], bytes, number);
    else if (at->direct) keep(walk, &walk->touched[STREAM_compute][bytes->space], bytes, number);
  }
}

/* The period before them was done again. */
static void move_touches(StreamWalk *walk, StreamTouches *touches, int64_t since, int64_t skipped) {
  for (uint32_t space = 0; space < TIERS + walk->m->globals.n; space++)
    for (int k = 0; touches[space].of && k < LENGTHS; k++) {
      StreamRanges *ranges = &touches[space].of[k];
      for (uint32_t i = 0; i < ranges->n; i++)
        if (ranges->at[i].last > since) ranges->at[i].last += skipped;
    }
}

/* Rounds that are not listed do as many operations as the period before them, on the same bytes. */
static void skip(StreamWalk *walk, const Event *event) {
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++) {
    int64_t since = walk->before[event->since][stream],
            skipped = event->rounds / event->period * (walk->count[stream] - since);
    move_touches(walk, walk->touched[stream], since, skipped);
    if (stream == STREAM_up) move_touches(walk, walk->touched[STREAM_compute], since, skipped);
    walk->count[stream] += skipped;
  }
}

/* Does it use a parameter to which there are direct uploads? */
static bool uses_direct(const StreamWalk *walk, const Event *event) {
  for (uint32_t i = 0; i < event->nbytes; i++) {
    const EventBytes *bytes = bytes_of(walk->list, event, i);
    if (bytes->space < TIERS + walk->m->globals.n && walk->direct[bytes->space]) return true;
  }
  return false;
}

static void find_direct(StreamWalk *walk) {
  for (uint32_t i = 0; i < walk->list->at.n; i++) {
    const Event *event = &walk->list->at.at[i];
    bool direct = is_direct(event);
    for (uint32_t k = 0; direct && k < event->nbytes; k++) {
      const EventBytes *bytes = bytes_of(walk->list, event, k);
      if (bytes->written) walk->direct[bytes->space] = true;
    }
  }
}

static void add_operation(StreamWalk *walk, const Event *event) {
  StreamEvent at = {.event = event, .stream = event_stream(walk->m, walk->list, event)};
  bool computes = at.stream == STREAM_compute;
  if (event->kind == EVENT_SKIP) skip(walk, event);
  if (event->kind == EVENT_SKIP || event->kind == EVENT_END) return;
  if (computes && !uses_direct(walk, event)) return;
  at.op = op_number(walk->m, event->f, event->op);
  at.direct = is_direct(event);
  memcpy(at.issued, walk->count, sizeof at.issued);
  memcpy(at.started, walk->started, sizeof at.started);
  find_needs(walk, &at);
  keep_all(walk, &at);
  walk->count[at.stream]++;
  vec_push(walk->m->arena, walk->order->at, at);
}

/* Copies the events of its operations, of which a second run has the same, out of the full list. */
static void keep_events(const Module *m, const EventList *full, StreamOrder *order, uint32_t runs) {
  uint32_t n = order->at.n / runs;
  for (uint32_t i = 0; i < n; i++) {
    Event event = *order->at.at[i].event;
    uint32_t from = event.bytes;
    event.bytes = order->list.bytes.n;
    for (uint32_t k = 0; k < event.nbytes; k++)
      vec_push(m->arena, order->list.bytes, full->bytes.at[from + k]);
    vec_push(m->arena, order->list.at, event);
  }
  for (uint32_t i = 0; i < order->at.n; i++) order->at.at[i].event = &order->list.at.at[i % n];
}

static void walk_runs(StreamWalk *walk, int runs) {
  uint32_t spaces = TIERS + walk->m->globals.n;
  walk->direct = arena_alloc(walk->arena, spaces);
  memset(walk->direct, 0, spaces);
  find_direct(walk);
  walk->before = arena_alloc(walk->arena, sizeof *walk->before * (walk->list->at.n + 1));
  for (OpStream stream = 0; stream < STREAMS; stream++) {
    walk->touched[stream] = ARENA_ARRAY(walk->arena, StreamTouches, spaces);
    memset(walk->touched[stream], 0, sizeof *walk->touched[stream] * spaces);
  }
  for (int run = 0; run < runs; run++) {
    memcpy(walk->started, walk->count, sizeof walk->started);
    for (uint32_t i = 0; i < walk->list->at.n; i++) {
      memcpy(walk->before[i], walk->count, sizeof walk->count);
      add_operation(walk, &walk->list->at.at[i]);
    }
  }
}

static StreamOrder order_of(const Module *m, const Fn *entry, int64_t rank, bool every) {
  StreamOrder order = {.entry = entry, .rank = rank, .list.entry = entry};
  Arena *arena = arena_new();
  EventList full = events_in_periods(m, entry, rank, every, arena);
  StreamWalk walk = {.m = m, .arena = arena, .list = &full, .order = &order};
  int runs = module_copies_stay(m) ? 2 : 1;
  walk_runs(&walk, runs);
  keep_events(m, &full, &order, (uint32_t)runs);
  arena_free(arena);
  return order;
}

/* Does the stage take its turns as the one before it? */
static bool turns_alike(const ScheduleTable *table, int64_t stage) {
  return table->most[stage] == table->most[stage - 1] &&
         (!table->wait || table->wait[stage] == table->wait[stage - 1]);
}

static void add_orders(const Module *m, const Fn *entry, bool every, StreamOrders *orders) {
  ScheduleStages stages = {.first = 0, .last = 0};
  bool turns = schedule_stages(m, entry, &stages);
  for (int64_t s = stages.first; s <= stages.last; s++) {
    if (turns && s > stages.first && turns_alike(&stages.loops.table, s)) continue;
    vec_push(m->arena, *orders, order_of(m, entry, turns ? s * stages.step : 0, every));
  }
}

StreamOrders stream_orders(const Module *m, bool every) {
  StreamOrders orders = {0};
  for (uint32_t i = 0; module_has_streams(m) && i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) add_orders(m, m->fns.at[i], every, &orders);
  return orders;
}

bool stream_order_of(const Module *m, const Fn *entry, StreamOrder *out) {
  ScheduleStages stages;
  bool turns = schedule_stages(m, entry, &stages);
  if (!module_has_streams(m)) return false;
  *out = order_of(m, entry, turns ? stages.first * stages.step : 0, false);
  return true;
}

static int64_t back_in_all(const StreamToken *token, int64_t rounds) {
  if (!token->waits) return 0;
  if (token->since_start) return MOST_BACK;
  int64_t first = -token_last(token, token->first, 0, 0),
          last = -token_last(token, token->last < 0 ? rounds - 1 : token->last, 0, 0);
  return first > last ? first : last;
}

int64_t module_most_back(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; module_has_streams(m) && i < m->fns.n; i++) {
    int64_t rounds = body_rounds(m, m->fns.at[i]);
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      StreamTokens tokens = op_tokens(&m->fns.at[i]->ops.at[k]);
      tokens.after[STREAM_compute] = tokens.arrived;
      for (OpStream other = 0; other < STREAMS; other++) {
        int64_t back = back_in_all(&tokens.after[other], rounds);
        if (back > most) most = back;
      }
    }
  }
  return most;
}

/* ---- clocks ---- */

void clocks_begin(StreamClocks *clocks) {
  for (OpStream stream = 0; stream < STREAMS; stream++)
    clocks->now[stream] = (StreamClock){0}, clocks->issued[stream].n = 0;
}

static void add_done(StreamClock *to, const StreamClock *from) {
  for (OpStream stream = 0; stream < STREAMS; stream++)
    if (from->done[stream] > to->done[stream]) to->done[stream] = from->done[stream];
}

/* An operation that is not listed knows no less than the last listed one before it. */
static void wait_for(StreamClocks *clocks, OpStream waits, OpStream other, int64_t number) {
  uint32_t from = 0, to = clocks->issued[other].n;
  while (from < to) {
    uint32_t half = from + (to - from) / 2;
    if (clocks->issued[other].at[half].number <= number) from = half + 1;
    else to = half;
  }
  if (from) add_done(&clocks->now[waits], &clocks->issued[other].at[from - 1]);
  if (number > clocks->now[waits].done[other]) clocks->now[waits].done[other] = number;
}

static void wait_by(StreamClocks *clocks, const StreamEvent *event, OpStream waits, OpStream other,
                    const StreamToken *token) {
  if (!token->waits) return;
  wait_for(clocks, waits, other,
           token_last(token, event->event->round, event->issued[other], event->started[other]));
}

/* An order that holds without tokens. */
static void follow_compute(StreamClocks *clocks, const StreamEvent *event) {
  if (event->stream == STREAM_down || event->direct)
    add_done(&clocks->now[event->stream], &clocks->now[STREAM_compute]);
}

void clocks_wait(StreamClocks *clocks, const StreamEvent *event, const StreamTokens *tokens) {
  wait_by(clocks, event, STREAM_compute, STREAM_up, &tokens->arrived);
  follow_compute(clocks, event);
  for (OpStream stream = STREAM_down; event->stream != STREAM_compute && stream < STREAMS; stream++)
    if (stream != event->stream)
      wait_by(clocks, event, event->stream, stream, &tokens->after[stream]);
}

StreamNeed clocks_need(const StreamClocks *clocks, const StreamEvent *event) {
  if (event->needs_arrived > clocks->now[STREAM_compute].done[STREAM_up])
    return (StreamNeed){true, true, STREAM_up, event->needs_arrived};
  for (OpStream stream = STREAM_down; event->stream != STREAM_compute && stream < STREAMS; stream++)
    if (event->needs[stream] > clocks->now[event->stream].done[stream])
      return (StreamNeed){true, false, stream, event->needs[stream]};
  return (StreamNeed){0};
}

void clocks_meet(StreamClocks *clocks, const StreamEvent *event, const StreamNeed *need) {
  wait_for(clocks, need->arrived ? STREAM_compute : event->stream, need->of, need->number);
  if (need->arrived) follow_compute(clocks, event);
}

void clocks_issue(StreamClocks *clocks, const StreamEvent *event) {
  OpStream stream = event->stream;
  if (stream == STREAM_compute) return;
  StreamClock *now = &clocks->now[stream];
  now->number = now->done[stream] = event->issued[stream] + 1;
  vec_push(clocks->arena, clocks->issued[stream], *now);
  if (stream == STREAM_up && !event->direct) add_done(&clocks->now[STREAM_compute], now);
}

/* N ranks in one process (interp_ranks.h): one thread and one interpreter per rank, which meet at
   collectives. A rank shows its operand, waits for all, makes its result from the operands of its
   peers, and waits again before the operands may go. */
#include "interp_inside.h"
#include "interp_ranks_inside.h"
#include "ir/made.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"

static int64_t peer_of(const Ranks *ranks, int64_t rank, int axis, int64_t coordinate) {
  int64_t stride = 1;
  for (int i = 0; i < axis; i++) stride *= ranks->m->mesh.at[i].size;
  return rank + (coordinate - mesh_coordinate(ranks->m, rank, axis)) * stride;
}

/* Waits for all ranks that differ from this one along the axis alone, and unless `always` only
   until a rank fails. A rank that no longer waits is not counted, since its operand is gone. */
static bool wait_for_peers(Ranks *ranks, int64_t rank, int axis, bool always) {
  Meeting *meeting = &ranks->meeting[axis * ranks->n + peer_of(ranks, rank, axis, 0)];
  pthread_mutex_lock(&ranks->lock);
  int64_t turn = meeting->turn;
  if (++meeting->waiting == ranks->m->mesh.at[axis].size) {
    meeting->waiting = 0, meeting->turn++;
    pthread_cond_broadcast(&ranks->all);
  }
  while (meeting->turn == turn && (always || !ranks->failed))
    pthread_cond_wait(&ranks->all, &ranks->lock);
  bool met = meeting->turn != turn;
  if (!met) meeting->waiting--;
  pthread_mutex_unlock(&ranks->lock);
  return met;
}

static bool meet(Ranks *ranks, int64_t rank, int axis) {
  return wait_for_peers(ranks, rank, axis, false);
}

/* All peers have read this rank's operand. Each of them comes, since all have met. */
static void part(Ranks *ranks, int64_t rank, int axis) { wait_for_peers(ranks, rank, axis, true); }

static void fail(Ranks *ranks) {
  pthread_mutex_lock(&ranks->lock);
  ranks->failed = true;
  pthread_cond_broadcast(&ranks->all);
  pthread_mutex_unlock(&ranks->lock);
}

void ranks_lock(Ranks *ranks) {
  if (ranks) pthread_mutex_lock(&ranks->lock);
}

void ranks_unlock(Ranks *ranks) {
  if (ranks) pthread_mutex_unlock(&ranks->lock);
}

/* ---- collectives ---- */

typedef struct RankExchange {
  InterpRun *run;
  Ranks *ranks;
  int axis;
  int64_t ways, mine;  /* ranks of the axis; own coordinate */
  const Tensor **peer; /* by coordinate */
} RankExchange;

/* A tensor as [outer, dim, inner]. */
typedef struct Around {
  int64_t outer, size, inner;
} Around;

static Around around(const Type *t, Str dim) {
  Around a = {1, type_size(t, dim), stride_of(t, dim)};
  a.outer = type_count(t) / a.size / a.inner;
  return a;
}

/* Block `from` of dim in a is put to block `to` of dim in b; sizes of blocks are equal. */
static void move_block(const Tensor *a, int64_t from, Tensor *b, int64_t to, Str dim,
                       int64_t size) {
  Around x = around(&a->type, dim), y = around(&b->type, dim);
  for (int64_t o = 0; o < x.outer; o++)
    for (int64_t i = 0; i < size * x.inner; i++)
      b->at[(o * y.size + to * size) * y.inner + i] =
          a->at[(o * x.size + from * size) * x.inner + i];
}

static double reduced(const Op *o, bool field, double a, double b) {
  if (strcmp(attr_str(&o->attrs, ATTR_reduce, ""), "max")) return field ? field_add(a, b) : a + b;
  return (field ? field_less(a, b) : b > a) ? b : a;
}

/* The part of the operand of a peer that it sends to this rank: this rank's block, or all. */
static Tensor sent_here(const RankExchange *exchange, const Tensor *peer) {
  Str cut = collective_cuts(exchange->run->op);
  Type t = peer->type;
  if (!cut) return *peer;
  t.axis[type_find(&t, cut)].size /= exchange->ways;
  Tensor piece = tensor_new(exchange->run->arena, t);
  move_block(peer, exchange->mine, &piece, 0, cut, type_size(&t, cut));
  return piece;
}

/* The coordinate whose operand a rotation gets. */
static int64_t rotated_from(const Op *o, int64_t mine, int64_t ways) {
  return ((mine - attr_int(&o->attrs, ATTR_by, 0)) % ways + ways) % ways;
}

static void exchange_blocks(const RankExchange *exchange, Tensor *out) {
  const Op *op = exchange->run->op;
  if (op->code == OP_rotate) {
    const Tensor *got = exchange->peer[rotated_from(op, exchange->mine, exchange->ways)];
    memcpy(out->at, got->at, sizeof *out->at * (size_t)type_count(&out->type));
    return;
  }
  Str joined = collective_joins(op);
  bool adds = collective_adds(op->code), field = run_in_field(exchange->run, out->type.elem);
  for (int64_t k = 0; k < exchange->ways; k++) {
    const Tensor piece = sent_here(exchange, exchange->peer[k]);
    if (joined) move_block(&piece, 0, out, k, joined, type_size(&piece.type, joined));
    for (int64_t i = 0, n = type_count(&out->type); !joined && i < n && (adds || !k); i++)
      out->at[i] = k ? reduced(op, field, out->at[i], piece.at[i]) : piece.at[i];
  }
}

static void count(RankExchange *exchange, const Tensor *out) {
  Ranks *ranks = exchange->ranks;
  OpCode c = exchange->run->op->code;
  int64_t in = type_count(&run_in(exchange->run, 0)->type), n = type_count(&out->type);
  ranks->calls[exchange->axis][c]++;
  ranks->sent[exchange->axis][c] += (int64_t)collective_elements(c, in, n);
}

/* The operand with its dims in the order of the result's. */
static Tensor *in_step(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Type t = tensor->type;
  const Type *out = &run_out(run, 0)->type;
  for (int i = 0; i < out->rank; i++)
    t.axis[i] = (Axis){out->axis[i].dim, type_size(&tensor->type, out->axis[i].dim)};
  Tensor *same = ARENA_NEW(run->arena, Tensor);
  *same = tensor_in_order(run->arena, tensor, &t);
  return same;
}

/* ---- from neighbour to neighbour ---- */

/* The rank on the other side of a send or receive; -1: there is none. */
static int64_t neighbour(const Ranks *ranks, int64_t rank, int axis, const Op *o) {
  int64_t at = hop_peer(o, mesh_coordinate(ranks->m, rank, axis), ranks->m->mesh.at[axis].size);
  return at < 0 ? -1 : peer_of(ranks, rank, axis, at);
}

static Hop *hop_from(Ranks *ranks, int64_t rank, int axis, const Op *o) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  return &ranks->hop[(axis * 2 + back) * ranks->n + rank];
}

static HopMessage *hop_push(Ranks *ranks, Hop *hop, int64_t n) {
  if (hop->first == hop->end) hop->first = hop->end = 0;
  if (hop->end == hop->message.n) vec_push(ranks->arena, hop->message, (HopMessage){0});
  HopMessage *message = &hop->message.at[hop->end++];
  if (message->room < n) message->data = ARENA_ARRAY(ranks->arena, double, n), message->room = n;
  message->n = n;
  return message;
}

/* In the interpreter of placed values a message waits until the previous one has been taken, not
   for the neighbour. Before pass `turns`, where all micro-batches pass through a chunk of layers
   before the next chunk, the first stage takes no message until the last one has sent all: so no
   message waits. */
static bool hand_over(Ranks *ranks, Hop *hop, const double *data, int64_t n) {
  pthread_mutex_lock(&ranks->lock);
  while (ranks->placed && hop->first < hop->end && !ranks->failed)
    pthread_cond_wait(&ranks->all, &ranks->lock);
  bool free = !ranks->failed;
  HopMessage *message = free ? hop_push(ranks, hop, n) : NULL;
  for (int64_t i = 0; free && i < n; i++) message->data[i] = data[i];
  pthread_cond_broadcast(&ranks->all);
  pthread_mutex_unlock(&ranks->lock);
  return free;
}

static bool take(Ranks *ranks, Hop *hop, double *data, int64_t n) {
  pthread_mutex_lock(&ranks->lock);
  while (hop->first == hop->end && !ranks->failed) pthread_cond_wait(&ranks->all, &ranks->lock);
  bool came = hop->first < hop->end;
  const HopMessage *message = came ? &hop->message.at[hop->first++] : NULL;
  if (came && message->n != n) bug("send and receive of different sizes");
  for (int64_t i = 0; came && i < n; i++) data[i] = message->data[i];
  pthread_cond_broadcast(&ranks->all);
  pthread_mutex_unlock(&ranks->lock);
  return came;
}

/* The value that the rank gets: its own (NULL: 0) at the end of the line, 0 if it sends, else the
   value that its neighbour has sent. False: no neighbour came. */
static bool hop(Ranks *ranks, int64_t rank, int axis, const Op *o, const double *own, double *gets,
                int64_t n) {
  int64_t other = neighbour(ranks, rank, axis, o);
  bool sends = o->code == OP_send && other >= 0;
  for (int64_t i = 0; i < n; i++) gets[i] = sends || !own ? 0 : own[i];
  if (other < 0) return true;
  return sends ? hand_over(ranks, hop_from(ranks, rank, axis, o), own, n)
               : take(ranks, hop_from(ranks, other, axis, o), gets, n);
}

static void run_hop(InterpRun *run, int axis, const Tensor *own, Tensor *out) {
  Ranks *ranks = run->interp->ranks;
  int64_t rank = run->interp->rank, n = type_count(&out->type);
  bool came = hop(ranks, rank, axis, run->op, own ? own->at : NULL, out->at, n);
  for (int64_t i = 0; i < n; i++) run_put(run, out, i, came ? out->at[i] : 0);
  pthread_mutex_lock(&ranks->lock);
  if (rank == 0) ranks->calls[axis][run->op->code]++;
  if (rank == 0 && run->op->code == OP_send) ranks->sent[axis][OP_send] += n;
  pthread_mutex_unlock(&ranks->lock);
}

/* ---- collectives, whole ---- */

void run_collective(InterpRun *run) {
  Ranks *ranks = run->interp->ranks;
  Tensor *out = run_out(run, 0);
  if (!ranks) { /* above localize: placements change, numbers do not */
    *out = tensor_in_order(run->arena, run_in(run, 0), &out->type);
    return;
  }
  RankExchange exchange = {.run = run, .ranks = ranks};
  exchange.axis = mesh_find(ranks->m, attr_str(&run->op->attrs, ATTR_axis, ""));
  exchange.ways = ranks->m->mesh.at[exchange.axis].size;
  exchange.mine = mesh_coordinate(ranks->m, run->interp->rank, exchange.axis);
  exchange.peer = ARENA_ARRAY(run->arena, const Tensor *, exchange.ways);
  if (op_is_p2p(run->op->code)) {
    run_hop(run, exchange.axis, run->op->nin ? in_step(run) : NULL, out);
    return;
  }
  ranks->shown[run->interp->rank] = in_step(run);
  if (!meet(ranks, run->interp->rank, exchange.axis)) return;
  for (int64_t k = 0; k < exchange.ways; k++)
    exchange.peer[k] = ranks->shown[peer_of(ranks, run->interp->rank, exchange.axis, k)];
  exchange_blocks(&exchange, out);
  for (int64_t i = 0, n = type_count(&out->type); i < n; i++) run_put(run, out, i, out->at[i]);
  if (run->interp->rank == 0) count(&exchange, out);
  part(ranks, run->interp->rank, exchange.axis);
}

/* ---- in bytes ---- */

/* Message by message and block by block, as the runtime does it; sums in the order of coordinates.
 */
static void move_blocks(const Op *o, bool field, const Message *message, const double *const *peer,
                        int64_t mine, double *to) {
  bool joins = collective_joins(o), cuts = collective_cuts(o), adds = collective_adds(o->code);
  if (o->code == OP_rotate) {
    memcpy(to, peer[rotated_from(o, mine, message->ways)],
           sizeof *to * (size_t)(message->count * message->times));
    return;
  }
  for (int64_t n = 0; n < message->times * message->ways * message->count; n++) {
    int64_t j = n % message->count, k = n / message->count % message->ways,
            t = n / message->count / message->ways;
    double v = peer[k][t * message->send_step +
                       (cuts ? message_at(message, message->send_row, mine, j) : j)];
    double *p = &to[t * message->receive_step +
                    (joins ? message_at(message, message->receive_row, k, j) : j)];
    if (joins || !k) *p = v;
    else if (adds) *p = reduced(o, field, *p, v);
  }
}

bool ranks_exchange(const Interp *in, const Fn *f, const Op *o, const Message *message,
                    const double *send, double *receive) {
  Ranks *ranks = in->ranks;
  bool field = interp_in_field(in, value_type(f, o->out)->elem);
  int axis = mesh_find(ranks->m, attr_str(&o->attrs, ATTR_axis, ""));
  if (axis < 0 || message->ways != ranks->m->mesh.at[axis].size) return false;
  if (op_is_p2p(o->code))
    return hop(ranks, in->rank, axis, o, send, receive, message->count * message->times);
  ranks->sent_by[in->rank] = send, ranks->at[in->rank] = o, ranks->said[in->rank] = message;
  if (!meet(ranks, in->rank, axis)) return false;
  Arena *arena = arena_new();
  const double **peer = ARENA_ARRAY(arena, const double *, message->ways);
  bool same = true;
  for (int64_t k = 0; k < message->ways; k++) {
    int64_t rank = peer_of(ranks, in->rank, axis, k);
    peer[k] = ranks->sent_by[rank];
    same &= ranks->at[rank]->code == o->code && ranks->said[rank]->count == message->count &&
            ranks->said[rank]->times == message->times;
  }
  if (same)
    move_blocks(o, field, message, peer, mesh_coordinate(ranks->m, in->rank, axis), receive);
  arena_free(arena);
  part(ranks, in->rank, axis);
  return same;
}

/* ---- ranks ---- */

/* The program of the rank's class. */
static Module *module_of_rank(Module *const *classes, uint32_t n, int64_t rank) {
  for (uint32_t i = 0; i < n; i++) {
    StageClass class = module_class(classes[i]);
    int64_t at = class.axis < 0 ? 0 : mesh_coordinate(classes[i], rank, class.axis);
    if (at >= class.first && at <= class.last) return classes[i];
  }
  bug("no class has rank %lld", (long long)rank);
}

static void add_rank(Ranks *ranks, int64_t rank, Module *m) {
  ranks->rank[rank] = interp_new(m, ranks->arena);
  ranks->rank[rank]->ranks = ranks, ranks->rank[rank]->rank = rank;
  for (int k = 0; k < (int)m->mesh.n; k++) {
    const char *name = made_coordinate(m, m->mesh.at[k].name);
    if (interp_get(ranks->rank[rank], name))
      interp_set_all(ranks->rank[rank], name, (double)mesh_coordinate(m, rank, k));
  }
}

Ranks *ranks_new_classes(Module *const *classes, uint32_t n, Arena *arena) {
  Module *m = classes[0];
  Ranks *ranks = ARENA_NEW(arena, Ranks);
  ranks->m = m, ranks->arena = arena, ranks->n = mesh_ranks(m);
  ranks->rank = ARENA_ARRAY(arena, Interp *, ranks->n);
  ranks->shown = ARENA_ARRAY(arena, const Tensor *, ranks->n);
  ranks->sent_by = ARENA_ARRAY(arena, const double *, ranks->n),
  ranks->at = ARENA_ARRAY(arena, const Op *, ranks->n);
  ranks->said = ARENA_ARRAY(arena, const Message *, ranks->n);
  ranks->meeting = ARENA_ARRAY(arena, Meeting, ranks->n * m->mesh.n);
  ranks->hop = ARENA_ARRAY(arena, Hop, ranks->n * m->mesh.n * 2);
  pthread_mutex_init(&ranks->lock, NULL);
  pthread_cond_init(&ranks->all, NULL);
  for (int64_t i = 0; i < ranks->n; i++) add_rank(ranks, i, module_of_rank(classes, n, i));
  return ranks;
}

Ranks *ranks_new(Module *m, Arena *arena) { return ranks_new_classes(&m, 1, arena); }

void ranks_set_early(Ranks *ranks, bool on) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_early(ranks->rank[i], on);
}

void ranks_set_infinite(Ranks *ranks, bool on, double which) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_infinite(ranks->rank[i], on, which);
}

void ranks_set_work(Ranks *ranks, InterpWork *work) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_work(ranks->rank[i], work);
}

void ranks_set_field(Ranks *ranks, bool on) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_field(ranks->rank[i], on);
}

void ranks_set_round(Ranks *ranks, bool on) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_round(ranks->rank[i], on);
}

void ranks_set_exact_codes(Ranks *ranks, bool on) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_exact_codes(ranks->rank[i], on);
}

typedef struct Thread {
  Ranks *ranks;
  int64_t rank;
  bool fine;
  pthread_t id;
} Thread;

static void *run_rank(void *data) {
  Thread *thread = data;
  Ranks *ranks = thread->ranks;
  thread->fine =
      (ranks->placed ? interp_run_placed : interp_run)(ranks->rank[thread->rank], ranks->entry);
  if (!thread->fine) fail(ranks);
  return NULL;
}

static bool run_all(Ranks *ranks, const char *entry, bool placed) {
  Thread *thread = ARENA_ARRAY(ranks->arena, Thread, ranks->n);
  ranks->entry = entry, ranks->placed = placed, ranks->failed = false;
  memset(ranks->meeting, 0, sizeof *ranks->meeting * (size_t)(ranks->n * ranks->m->mesh.n));
  memset(ranks->hop, 0, sizeof *ranks->hop * (size_t)(ranks->n * ranks->m->mesh.n * 2));
  bool fine = true;
  for (int64_t i = 0; i < ranks->n; i++) {
    thread[i] = (Thread){.ranks = ranks, .rank = i};
    if (pthread_create(&thread[i].id, NULL, run_rank, &thread[i])) bug("cannot start a thread");
  }
  for (int64_t i = 0; i < ranks->n; i++) {
    pthread_join(thread[i].id, NULL);
    const char *why = thread[i].fine ? NULL : interp_error(ranks->rank[i]);
    if (why && (fine || strcmp(why, interp_alone))) ranks->error = why;
    fine &= thread[i].fine;
  }
  return fine;
}

bool ranks_run(Ranks *ranks, const char *entry) { return run_all(ranks, entry, false); }
bool ranks_run_placed(Ranks *ranks, const char *entry) { return run_all(ranks, entry, true); }
Interp *ranks_rank(const Ranks *ranks, int64_t rank) { return ranks->rank[rank]; }

const char *ranks_error(const Ranks *ranks) { return ranks->error; }
int64_t ranks_sent(const Ranks *ranks, int axis, OpCode c) { return ranks->sent[axis][c]; }
int64_t ranks_calls(const Ranks *ranks, int axis, OpCode c) { return ranks->calls[axis][c]; }

/* N ranks in one process (interp_ranks.h): one thread and one interpreter per rank, which meet at
   collectives. A rank shows its operand, waits for all, makes its result from the operands of its
   peers, and waits again before the operands may go. */
#include "interp_ranks.h"
#include "interp_inside.h"
#include "ir/placement.h"
#include "ir/stage_class.h"
#include <pthread.h>

typedef struct Meeting { /* of the ranks that differ along one axis alone */
  int64_t waiting, turn;
} Meeting;

typedef struct Hop { /* what a rank has sent to its neighbour, until that has taken it */
  double *data;
  int64_t n, room;
  bool full;
} Hop;

struct Ranks {
  Module *m; /* the first rank's: classes may have programs of their own */
  Arena *arena;
  int64_t n;
  Interp **rank;
  const Tensor **shown;   /* by rank: the operand of the collective in which all are */
  const double **sent_by; /* the same in bytes' order, */
  const Op **at;          /* and which collective that is, */
  const Message **said;   /* of which size */
  pthread_mutex_t lock;
  pthread_cond_t all;
  Meeting *meeting; /* by axis and rank: of the group whose first rank that is */
  Hop *hop;         /* by axis, direction and rank that sends */
  bool failed;      /* a rank has stopped: nobody waits for it */
  int64_t sent[MAX_MESH][OP_COUNT], calls[MAX_MESH][OP_COUNT];
  const char *entry, *error;
  bool placed;
};

static int64_t peer_of(const Ranks *r, int64_t rank, int axis, int64_t coordinate) {
  int64_t stride = 1;
  for (int i = 0; i < axis; i++) stride *= r->m->mesh.at[i].size;
  return rank + (coordinate - mesh_coordinate(r->m, rank, axis)) * stride;
}

/* With all ranks that differ from this one along the axis alone. */
static bool meet(Ranks *r, int64_t rank, int axis) {
  Meeting *g = &r->meeting[axis * r->n + peer_of(r, rank, axis, 0)];
  pthread_mutex_lock(&r->lock);
  int64_t turn = g->turn;
  if (++g->waiting == r->m->mesh.at[axis].size) {
    g->waiting = 0, g->turn++;
    pthread_cond_broadcast(&r->all);
  }
  while (g->turn == turn && !r->failed) pthread_cond_wait(&r->all, &r->lock);
  bool met = g->turn != turn;
  pthread_mutex_unlock(&r->lock);
  return met;
}

static void fail(Ranks *r) {
  pthread_mutex_lock(&r->lock);
  r->failed = true;
  pthread_cond_broadcast(&r->all);
  pthread_mutex_unlock(&r->lock);
}

void ranks_lock(Ranks *r) {
  if (r) pthread_mutex_lock(&r->lock);
}

void ranks_unlock(Ranks *r) {
  if (r) pthread_mutex_unlock(&r->lock);
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

/* Block `from` of dim in a is put, or added, to block `to` of dim in b; sizes of blocks are equal.
 */
static void move_block(const Tensor *a, int64_t from, Tensor *b, int64_t to, Str dim, int64_t size,
                       bool add) {
  Around x = around(&a->type, dim), y = around(&b->type, dim);
  for (int64_t o = 0; o < x.outer; o++)
    for (int64_t i = 0; i < size * x.inner; i++) {
      double *p = &b->at[(o * y.size + to * size) * y.inner + i];
      double v = a->at[(o * x.size + from * size) * x.inner + i];
      *p = add ? *p + v : v;
    }
}

static void sum_all(const RankExchange *x, Tensor *out) {
  bool most = !strcmp(attr_str(&x->run->op->attrs, ATTR_reduce, ""), "max");
  for (int64_t i = 0, n = type_count(&out->type); i < n; i++) {
    double sum = x->peer[0]->at[i];
    for (int64_t k = 1; k < x->ways; k++) {
      double v = x->peer[k]->at[i];
      sum = !most ? sum + v : v > sum ? v : sum;
    }
    out->at[i] = sum;
  }
}

static void exchange_blocks(const RankExchange *x, Tensor *out) {
  const Op *op = x->run->op;
  Str dim = op->group[0].from[0], cut = op->nout && op->group[0].nto ? op->group[0].to[0] : NULL;
  for (int64_t k = 0; k < x->ways; k++) {
    const Tensor *a = x->peer[k];
    if (op->code == OP_part) {
      if (k == x->mine) move_block(a, k, out, 0, dim, type_size(&out->type, dim), false);
    } else if (op->code == OP_reduce_scatter) {
      move_block(a, x->mine, out, 0, dim, type_size(&out->type, dim), true);
    } else if (op->code == OP_all_gather) {
      move_block(a, 0, out, k, dim, type_size(&a->type, dim), false);
    } else { /* the own block of `cut` of each peer, then along `dim` */
      Type t = a->type;
      t.axis[type_find(&t, cut)].size /= x->ways;
      Tensor piece = tensor_new(x->run->arena, t);
      move_block(a, x->mine, &piece, 0, cut, type_size(&t, cut), false);
      move_block(&piece, 0, out, k, dim, type_size(&t, dim), false);
    }
  }
}

static void count(RankExchange *x, const Tensor *out) {
  Ranks *r = x->ranks;
  OpCode c = x->run->op->code;
  int64_t in = type_count(&run_in(x->run, 0)->type), n = type_count(&out->type);
  r->calls[x->axis][c]++;
  r->sent[x->axis][c] += c == OP_all_reduce       ? 2 * n
                         : c == OP_reduce_scatter ? in
                         : c == OP_all_gather     ? n
                                                  : n; /* all_to_all: z / ways is what is held */
}

/* The operand with its dims in the order of the result's. */
static Tensor *in_step(InterpRun *r) {
  const Tensor *a = run_in(r, 0);
  Type t = a->type;
  const Type *out = &run_out(r, 0)->type;
  for (int i = 0; i < out->rank; i++)
    t.axis[i] = (Axis){out->axis[i].dim, type_size(&a->type, out->axis[i].dim)};
  Tensor *same = ARENA_NEW(r->arena, Tensor);
  *same = tensor_in_order(r->arena, a, &t);
  return same;
}

/* ---- from neighbour to neighbour ---- */

/* The rank on the other side of a send or receive; -1: there is none. */
static int64_t neighbour(const Ranks *r, int64_t rank, int axis, const Op *o) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0, sends = o->code == OP_send;
  int64_t at = mesh_coordinate(r->m, rank, axis) + (back == sends ? -1 : 1);
  return at < 0 || at >= r->m->mesh.at[axis].size ? -1 : peer_of(r, rank, axis, at);
}

static Hop *hop_from(Ranks *r, int64_t rank, int axis, const Op *o) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  return &r->hop[(axis * 2 + back) * r->n + rank];
}

/* A message waits for the one before to be taken, not for the neighbour. */
static bool hand_over(Ranks *r, Hop *h, const double *data, int64_t n) {
  pthread_mutex_lock(&r->lock);
  while (h->full && !r->failed) pthread_cond_wait(&r->all, &r->lock);
  bool free = !h->full;
  if (free && h->room < n) h->data = ARENA_ARRAY(r->arena, double, n), h->room = n;
  for (int64_t i = 0; free && i < n; i++) h->data[i] = data[i];
  if (free) h->n = n, h->full = true;
  pthread_cond_broadcast(&r->all);
  pthread_mutex_unlock(&r->lock);
  return free;
}

static bool take(Ranks *r, Hop *h, double *data, int64_t n) {
  pthread_mutex_lock(&r->lock);
  while (!h->full && !r->failed) pthread_cond_wait(&r->all, &r->lock);
  bool came = h->full;
  if (came && h->n != n) bug("send and receive of different sizes");
  for (int64_t i = 0; came && i < n; i++) data[i] = h->data[i];
  if (came) h->full = false;
  pthread_cond_broadcast(&r->all);
  pthread_mutex_unlock(&r->lock);
  return came;
}

/* What the rank gets: its own (NULL: 0) at the end of the line, 0 for what it sends, else what its
   neighbour has sent. False: nobody came. */
static bool hop(Ranks *r, int64_t rank, int axis, const Op *o, const double *own, double *gets,
                int64_t n) {
  int64_t other = neighbour(r, rank, axis, o);
  bool sends = o->code == OP_send && other >= 0;
  for (int64_t i = 0; i < n; i++) gets[i] = sends || !own ? 0 : own[i];
  if (other < 0) return true;
  return sends ? hand_over(r, hop_from(r, rank, axis, o), own, n)
               : take(r, hop_from(r, other, axis, o), gets, n);
}

static void run_hop(InterpRun *r, int axis, const Tensor *own, Tensor *out) {
  Ranks *ranks = r->interp->ranks;
  int64_t rank = r->interp->rank, n = type_count(&out->type);
  bool came = hop(ranks, rank, axis, r->op, own ? own->at : NULL, out->at, n);
  for (int64_t i = 0; i < n; i++) run_put(r, out, i, came ? out->at[i] : 0);
  pthread_mutex_lock(&ranks->lock);
  if (rank == 0) ranks->calls[axis][r->op->code]++;
  if (rank == 0 && r->op->code == OP_send) ranks->sent[axis][OP_send] += n;
  pthread_mutex_unlock(&ranks->lock);
}

/* ---- collectives, whole ---- */

void run_collective(InterpRun *r) {
  Ranks *ranks = r->interp->ranks;
  Tensor *out = run_out(r, 0);
  if (!ranks) { /* above localize: placements change, numbers do not */
    *out = tensor_in_order(r->arena, run_in(r, 0), &out->type);
    return;
  }
  RankExchange x = {.run = r, .ranks = ranks};
  x.axis = mesh_find(ranks->m, attr_str(&r->op->attrs, ATTR_axis, ""));
  x.ways = ranks->m->mesh.at[x.axis].size;
  x.mine = mesh_coordinate(ranks->m, r->interp->rank, x.axis);
  x.peer = ARENA_ARRAY(r->arena, const Tensor *, x.ways);
  if (op_is_hop(r->op->code)) {
    run_hop(r, x.axis, r->op->nin ? in_step(r) : NULL, out);
    return;
  }
  ranks->shown[r->interp->rank] = in_step(r);
  meet(ranks, r->interp->rank, x.axis);
  for (int64_t k = 0; k < x.ways; k++)
    x.peer[k] = ranks->shown[peer_of(ranks, r->interp->rank, x.axis, k)];
  if (r->op->code == OP_all_reduce) sum_all(&x, out);
  else exchange_blocks(&x, out);
  for (int64_t i = 0, n = type_count(&out->type); i < n; i++) run_put(r, out, i, out->at[i]);
  if (r->interp->rank == 0 && r->op->code != OP_part) count(&x, out);
  meet(ranks, r->interp->rank, x.axis);
}

/* ---- in bytes ---- */

static double joined(OpCode c, bool most, double a, double b) {
  if (c == OP_all_reduce && most) return b > a ? b : a;
  return a + b;
}

/* Message by message and block by block, as the runtime does it; sums in the order of coordinates.
 */
static void move_blocks(const Op *o, const Message *m, const double *const *peer, int64_t mine,
                        double *to) {
  bool most = !strcmp(attr_str(&o->attrs, ATTR_reduce, ""), "max"),
       sums = o->code == OP_all_reduce || o->code == OP_reduce_scatter;
  for (int64_t n = 0; n < m->times * m->ways * m->count; n++) {
    int64_t j = n % m->count, k = n / m->count % m->ways, t = n / m->count / m->ways;
    bool one = o->code == OP_all_reduce || o->code == OP_all_gather;
    double v = peer[k][t * m->send_step + (one ? j : message_at(m, m->send_row, mine, j))];
    double *p = &to[t * m->receive_step + (sums ? j : message_at(m, m->receive_row, k, j))];
    *p = sums && k ? joined(o->code, most, *p, v) : v;
  }
}

bool ranks_exchange(const Interp *in, const Op *o, const Message *m, const double *send,
                    double *receive) {
  Ranks *r = in->ranks;
  int axis = mesh_find(r->m, attr_str(&o->attrs, ATTR_axis, ""));
  if (axis < 0 || m->ways != r->m->mesh.at[axis].size) return false;
  if (op_is_hop(o->code)) return hop(r, in->rank, axis, o, send, receive, m->count * m->times);
  r->sent_by[in->rank] = send, r->at[in->rank] = o, r->said[in->rank] = m;
  if (!meet(r, in->rank, axis)) return false;
  Arena *a = arena_new();
  const double **peer = ARENA_ARRAY(a, const double *, m->ways);
  bool same = true;
  for (int64_t k = 0; k < m->ways; k++) {
    int64_t rank = peer_of(r, in->rank, axis, k);
    peer[k] = r->sent_by[rank];
    same &= r->at[rank]->code == o->code && r->said[rank]->count == m->count &&
            r->said[rank]->times == m->times;
  }
  if (same) move_blocks(o, m, peer, mesh_coordinate(r->m, in->rank, axis), receive);
  arena_free(a);
  return meet(r, in->rank, axis) && same;
}

/* ---- ranks ---- */

/* The program of the rank's class. */
static Module *module_of_rank(Module *const *classes, uint32_t n, int64_t rank) {
  for (uint32_t i = 0; i < n; i++) {
    StageClass c = module_class(classes[i]);
    int64_t at = c.axis < 0 ? 0 : mesh_coordinate(classes[i], rank, c.axis);
    if (at >= c.first && at <= c.last) return classes[i];
  }
  bug("no class has rank %lld", (long long)rank);
}

static void add_rank(Ranks *r, int64_t rank, Module *m) {
  r->rank[rank] = interp_new(m, r->arena);
  r->rank[rank]->ranks = r, r->rank[rank]->rank = rank;
  for (int k = 0; k < (int)m->mesh.n; k++) {
    const char *name = arena_printf(r->arena, "mesh.%s", m->mesh.at[k].name);
    if (interp_get(r->rank[rank], name))
      interp_set_all(r->rank[rank], name, (double)mesh_coordinate(m, rank, k));
  }
}

Ranks *ranks_new_classes(Module *const *classes, uint32_t n, Arena *a) {
  Module *m = classes[0];
  Ranks *r = ARENA_NEW(a, Ranks);
  r->m = m, r->arena = a, r->n = mesh_ranks(m);
  r->rank = ARENA_ARRAY(a, Interp *, r->n);
  r->shown = ARENA_ARRAY(a, const Tensor *, r->n);
  r->sent_by = ARENA_ARRAY(a, const double *, r->n), r->at = ARENA_ARRAY(a, const Op *, r->n);
  r->said = ARENA_ARRAY(a, const Message *, r->n);
  r->meeting = ARENA_ARRAY(a, Meeting, r->n * m->mesh.n);
  r->hop = ARENA_ARRAY(a, Hop, r->n * m->mesh.n * 2);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->all, NULL);
  for (int64_t i = 0; i < r->n; i++) add_rank(r, i, module_of_rank(classes, n, i));
  return r;
}

Ranks *ranks_new(Module *m, Arena *a) { return ranks_new_classes(&m, 1, a); }

void ranks_set_early(Ranks *r, bool on) {
  for (int64_t i = 0; i < r->n; i++) interp_set_early(r->rank[i], on);
}

void ranks_set_round(Ranks *r, bool on) {
  for (int64_t i = 0; i < r->n; i++) interp_set_round(r->rank[i], on);
}

static const Global *find_global(const Ranks *r, const char *name) {
  for (uint32_t i = 0; i < r->m->globals.n; i++)
    if (!strcmp(r->m->globals.at[i]->name, name)) return r->m->globals.at[i];
  return NULL;
}

static Type whole_type(const Ranks *r, const Global *g) {
  Type t = g->type;
  for (int i = 0; i < t.rank; i++)
    t.axis[i].size *= placement_ways(r->m, &g->placed, t.axis[i].dim);
  return t;
}

/* Calls with the offset in the whole tensor of every element that the rank holds, in its order. */
static int64_t *offsets_of(const Ranks *r, Arena *a, const Global *g, int64_t rank) {
  Type whole = whole_type(r, g);
  int64_t *list = ARENA_ARRAY(a, int64_t, type_count(&g->type)), index[MAX_RANK] = {0}, n = 0;
  do {
    int64_t at = 0;
    for (int i = 0; i < g->type.rank; i++) {
      Str dim = g->type.axis[i].dim;
      int64_t where = placement_index(r->m, &g->placed, &g->type.axis[i], rank, index[i],
                                      g->kind == GLOBAL_INPUT);
      at += where * stride_of(&whole, dim);
    }
    list[n++] = at;
  } while (walk_next(&g->type, index));
  return list;
}

void ranks_set(Ranks *r, const char *global, const double *data) {
  const Global *g = find_global(r, global);
  if (!g) bug("ranks_set: no global @%s", global);
  for (int64_t i = 0; i < r->n; i++) {
    Arena *a = arena_new();
    const int64_t *at = offsets_of(r, a, g, i);
    double *own = ARENA_ARRAY(a, double, type_count(&g->type));
    for (int64_t k = 0, n = type_count(&g->type); k < n; k++) own[k] = data[at[k]];
    interp_set(r->rank[i], global, own);
    arena_free(a);
  }
}

void ranks_set_all(Ranks *r, const char *global, double value) {
  for (int64_t i = 0; i < r->n; i++) interp_set_all(r->rank[i], global, value);
}

typedef struct Held { /* what one rank holds of a global: its own element `from` is element `at` */
  const double *own;
  int64_t n, *from, *at;
} Held;

static Held held_whole(const Ranks *r, const Global *g, int64_t rank) {
  Held h = {.own = interp_get(r->rank[rank], g->name)->at, .n = type_count(&g->type)};
  h.at = offsets_of(r, r->arena, g, rank);
  h.from = ARENA_ARRAY(r->arena, int64_t, h.n);
  for (int64_t k = 0; k < h.n; k++) h.from[k] = k;
  return h;
}

/* Of a member of a flat global: where the elements that the rank has of the flat one belong. */
static Held held_member(const Ranks *r, const Global *g, int64_t rank) {
  Held flat = held_whole(r, g->within, rank), h = {.own = flat.own};
  Type whole = whole_type(r, g->within);
  int64_t *at = offsets_of(r, r->arena, g, rank);
  int64_t rounds =
      g->type.rank && whole.axis[0].dim == g->type.axis[0].dim ? whole.axis[0].size : 1;
  int64_t round = type_count(&whole) / rounds, count = type_count(&g->type) / rounds;
  h.from = ARENA_ARRAY(r->arena, int64_t, flat.n), h.at = ARENA_ARRAY(r->arena, int64_t, flat.n);
  for (int64_t k = 0; k < flat.n; k++) {
    int64_t in_round = flat.at[k] % round - g->begin;
    if (in_round < 0 || in_round >= count) continue;
    h.from[h.n] = k, h.at[h.n++] = at[flat.at[k] / round * count + in_round];
  }
  return h;
}

/* The logical part of a tensor; NULL if its padding is not zero. */
static Tensor *without_padding(const Ranks *r, const Tensor *t) {
  Type logical = t->type;
  for (int i = 0; i < logical.rank; i++)
    logical.axis[i].size = placement_logical(r->m, logical.axis[i].dim, logical.axis[i].size);
  Tensor *out = ARENA_NEW(r->arena, Tensor);
  *out = tensor_new(r->arena, logical);
  int64_t index[MAX_RANK] = {0}, n = 0, at = 0;
  do {
    bool inside = true;
    for (int i = 0; i < logical.rank; i++) inside &= index[i] < logical.axis[i].size;
    if (inside) out->at[n++] = t->at[at];
    else if (t->at[at] != 0) return NULL;
    at++;
  } while (walk_next(&t->type, index));
  return out;
}

/* In a program of all stages others have something else there. */
static bool holds(const Ranks *r, const Global *g, int64_t rank) {
  int axis = module_class(r->m).axis;
  if (!g->stages || axis < 0) return true;
  int64_t end = r->m->mesh.at[axis].size - 1;
  return mesh_coordinate(r->m, rank, axis) == (g->stages == STAGES_FIRST ? 0 : end);
}

const Tensor *ranks_get(Ranks *r, const char *global) {
  const Global *g = find_global(r, global);
  if (!g) return NULL;
  Tensor *t = ARENA_NEW(r->arena, Tensor);
  *t = tensor_new(r->arena, whole_type(r, g));
  bool *seen = ARENA_ARRAY(r->arena, bool, type_count(&t->type));
  for (int64_t i = 0; i < r->n; i++) {
    if (!holds(r, g, i)) continue;
    Held h = g->within ? held_member(r, g, i) : held_whole(r, g, i);
    for (int64_t k = 0; k < h.n; k++) {
      double now = h.own[h.from[k]], *then = &t->at[h.at[k]];
      if (seen[h.at[k]] && *then != now && (*then == *then || now == now)) {
        r->error = arena_printf(r->arena, "ranks hold different values of @%s", global);
        return NULL;
      }
      *then = now, seen[h.at[k]] = true;
    }
  }
  if (g->kind != GLOBAL_PARAM && g->kind != GLOBAL_STATE) return t;
  t = without_padding(r, t);
  if (!t) r->error = arena_printf(r->arena, "the padding of @%s is not zero", global);
  return t;
}

typedef struct Thread {
  Ranks *ranks;
  int64_t rank;
  bool fine;
  pthread_t id;
} Thread;

static void *run_rank(void *data) {
  Thread *t = data;
  Ranks *r = t->ranks;
  t->fine = (r->placed ? interp_run_placed : interp_run)(r->rank[t->rank], r->entry);
  if (!t->fine) fail(r);
  return NULL;
}

static bool run_all(Ranks *r, const char *entry, bool placed) {
  Thread *t = ARENA_ARRAY(r->arena, Thread, r->n);
  r->entry = entry, r->placed = placed, r->failed = false;
  memset(r->meeting, 0, sizeof *r->meeting * (size_t)(r->n * r->m->mesh.n));
  memset(r->hop, 0, sizeof *r->hop * (size_t)(r->n * r->m->mesh.n * 2));
  bool fine = true;
  for (int64_t i = 0; i < r->n; i++) {
    t[i] = (Thread){.ranks = r, .rank = i};
    if (pthread_create(&t[i].id, NULL, run_rank, &t[i])) bug("cannot start a thread");
  }
  for (int64_t i = 0; i < r->n; i++) {
    pthread_join(t[i].id, NULL);
    const char *why = t[i].fine ? NULL : interp_error(r->rank[i]);
    if (why && (fine || strcmp(why, interp_alone))) r->error = why;
    fine &= t[i].fine;
  }
  return fine;
}

bool ranks_run(Ranks *r, const char *entry) { return run_all(r, entry, false); }
bool ranks_run_placed(Ranks *r, const char *entry) { return run_all(r, entry, true); }
Interp *ranks_rank(const Ranks *r, int64_t rank) { return r->rank[rank]; }

const char *ranks_error(const Ranks *r) { return r->error; }
int64_t ranks_sent(const Ranks *r, int axis, OpCode c) { return r->sent[axis][c]; }
int64_t ranks_calls(const Ranks *r, int axis, OpCode c) { return r->calls[axis][c]; }

/* Stand-in for libnccl.so.2: what operations do. An operation has two steps in its stream: what it
   receives is filled with bytes that are no number, then it is done; so who does not wait for it
   reads those, if the stream goes before (SHARDC_EMULATE_ORDER). Device memory is read and written
   by calls that the stand-in for the driver has for this library alone, because host functions must
   not call a driver. */
#include "nccl_standin.h"
#include "runtime/comm/reduce_ranks.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- device memory ---- */

static bool with_device(const char *name, CUdeviceptr at, void *host, size_t n) {
  bool (*f)(CUdeviceptr, void *, size_t);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&f = library ? dlsym(library, name) : NULL;
  return f && (!n || f(at, host, n));
}

static bool peek(CUdeviceptr at, void *to, size_t n) {
  return with_device("standin_peek", at, to, n);
}

static bool poke(CUdeviceptr at, void *from, size_t n) {
  return with_device("standin_poke", at, from, n);
}

/* ---- transfers ---- */

/* NCCL promises no room for what nobody receives yet: a send is over when all of it is taken. */
static bool step_out(Box *b, Transfer *t, uint32_t what) {
  size_t n = t->bytes - t->done < BOX ? t->bytes - t->done : BOX;
  if (atomic_load(&b->full)) return false;
  if (!n) return t->finished = true;
  memcpy(b->data, t->data + t->done, n);
  b->bytes = (uint32_t)n, b->what = what;
  atomic_store(&b->full, 1);
  t->done += n;
  return true;
}

static bool step_in(NcclComm c, Box *b, Transfer *t, uint32_t what) {
  if (!atomic_load(&b->full)) return false;
  if (b->what != what || t->done + b->bytes > t->bytes) {
    fprintf(stderr, "stand-in NCCL: rank %d and rank %d do different things\n", c->me, t->peer);
    atomic_store(&c->error, NCCL_USAGE);
    return false;
  }
  memcpy(t->data + t->done, b->data, b->bytes);
  t->done += b->bytes, t->finished = t->done == t->bytes;
  atomic_store(&b->full, 0);
  return true;
}

/* Is it the first that is left between the same two, in the same direction? */
static bool is_next(const Transfer *t, int i) {
  for (int k = 0; k < i; k++)
    if (!t[k].finished && t[k].peer == t[i].peer && t[k].sends == t[i].sends) return false;
  return !t[i].finished;
}

static bool step(NcclComm c, Transfer *t, int i, uint32_t what) {
  Box *box = c->shared->box;
  if (!is_next(t, i)) return false;
  return t[i].sends ? step_out(&box[c->me * c->world + t[i].peer], &t[i], what)
                    : step_in(c, &box[t[i].peer * c->world + c->me], &t[i], what);
}

bool standin_transfer(NcclComm c, Transfer *t, int n, uint32_t what) {
  const struct timespec nap = {.tv_nsec = 50000};
  int left = 0;
  for (int i = 0; i < n; i++) t[i].finished = t[i].bytes == 0, left += !t[i].finished;
  for (int idle = 0; left && !atomic_load(&c->aborted) && !atomic_load(&c->error);) {
    bool moved = false;
    left = 0;
    for (int i = 0; i < n; i++) {
      moved = step(c, t, i, what) || moved;
      left += !t[i].finished;
    }
    if (!moved && idle++ > 100) nanosleep(&nap, NULL);
    if (moved) idle = 0;
  }
  return !left;
}

/* ---- operations ---- */

static size_t bytes_of(const Work *w) { return w->count * w->size; }

static uint32_t mark_of(const Work *w) {
  bool pair = w->kind == SEND || w->kind == RECEIVE;
  return (uint32_t)(pair ? 0 : w->kind) * 2654435761u ^
         (uint32_t)(pair ? 0 : w->count * 40503u + (size_t)w->elem);
}

/* Everybody's `out` block for me into in[rank]: block i of mine goes to rank i, or all of it. */
static bool exchange(const Work *w, char *mine, bool blocks, char **in) {
  NcclComm c = w->comm;
  Transfer t[2 * MOST];
  int n = 0;
  for (int i = 0; i < c->world; i++) {
    char *out = mine + (blocks ? (size_t)i * bytes_of(w) : 0);
    if (i == c->me) memcpy(in[i], out, bytes_of(w));
    else {
      t[n++] = (Transfer){i, out, bytes_of(w), 0, true, false};
      t[n++] = (Transfer){i, in[i], bytes_of(w), 0, false, false};
    }
  }
  return standin_transfer(c, t, n, mark_of(w));
}

static bool collect(const Work *w) {
  NcclComm c = w->comm;
  bool blocks = w->kind == REDUCE_SCATTER, adds = w->kind != ALL_GATHER;
  size_t n = bytes_of(w), sent = blocks ? n * (size_t)c->world : n;
  char *mine = malloc(sent + 1), *all = malloc(n * (size_t)c->world + 1), *sum = malloc(n + 1);
  char *in[MOST];
  bool ok = mine && all && sum && peek(w->send, mine, sent);
  for (int i = 0; i < c->world; i++) in[i] = all + (size_t)i * n;
  ok = ok && exchange(w, mine, blocks, in);
  if (ok && adds)
    rt_reduce(w->elem, w->reduction, sum, (const void *const *)in, c->world, (int64_t)w->count);
  ok = ok && (adds ? poke(w->receive, sum, n) : poke(w->receive, all, n * (size_t)c->world));
  free(mine), free(all), free(sum);
  return ok;
}

static bool broadcast(const Work *w) {
  NcclComm c = w->comm;
  Transfer t[MOST];
  char *data = malloc(bytes_of(w) + 1);
  int n = 0;
  bool root = c->me == w->peer, ok = data && (!root || peek(w->send, data, bytes_of(w)));
  for (int i = 0; root && i < c->world; i++)
    if (i != c->me) t[n++] = (Transfer){i, data, bytes_of(w), 0, true, false};
  if (!root) t[n++] = (Transfer){w->peer, data, bytes_of(w), 0, false, false};
  ok = ok && standin_transfer(c, t, n, mark_of(w)) && poke(w->receive, data, bytes_of(w));
  free(data);
  return ok;
}

/* Messages of a rank to itself go from the n-th send to the n-th receive. */
static void to_myself(Transfer *t, int n, int me) {
  for (int i = 0, k = 0; i < n; i++) {
    if (!t[i].sends || t[i].peer != me) continue;
    while (k < n && (t[k].sends || t[k].peer != me)) k++;
    if (k == n) return;
    size_t bytes = t[i].bytes < t[k].bytes ? t[i].bytes : t[k].bytes;
    memcpy(t[k].data, t[i].data, bytes);
    t[i].bytes = t[k].bytes = 0, k++;
  }
}

static bool send_and_receive(const Work *w) {
  Transfer t[2 * MOST];
  int n = 0;
  bool ok = true;
  for (const Work *x = w; x && n < 2 * MOST; x = x->group, n++) {
    t[n] = (Transfer){x->peer, malloc(bytes_of(x) + 1), bytes_of(x), 0, x->kind == SEND, false};
    ok = ok && t[n].data && (x->kind == RECEIVE || peek(x->send, t[n].data, bytes_of(x)));
  }
  if (ok) to_myself(t, n, w->comm->me);
  ok = ok && standin_transfer(w->comm, t, n, mark_of(w));
  n = 0;
  for (const Work *x = w; x && n < 2 * MOST; x = x->group, n++) {
    if (ok && x->kind == RECEIVE) ok = poke(x->receive, t[n].data, bytes_of(x));
    free(t[n].data);
  }
  return ok;
}

/* Data sent from within the bytes of the receive is not moved. */
static void keep_sent(const Work *w, CUdeviceptr from, char *bytes, size_t n) {
  for (const Work *x = w; x; x = x->group) {
    size_t sent = x->kind == RECEIVE          ? 0
                  : x->kind == REDUCE_SCATTER ? bytes_of(x) * (size_t)x->comm->world
                                              : bytes_of(x);
    CUdeviceptr begin = x->send > from ? x->send : from,
                end = x->send + sent < from + n ? x->send + sent : from + n;
    if (begin < end) peek(begin, bytes + (begin - from), end - begin);
  }
}

void standin_poison(void *data) {
  const Work *w = data;
  for (const Work *x = w; x; x = x->group) {
    size_t n = x->kind == SEND         ? 0
               : x->kind == ALL_GATHER ? bytes_of(x) * (size_t)x->comm->world
                                       : bytes_of(x);
    char *bytes = malloc(n + 1);
    if (!bytes) abort();
    memset(bytes, 0xff, n);
    keep_sent(w, x->receive, bytes, n);
    poke(x->receive, bytes, n);
    free(bytes);
  }
}

void standin_work(void *data) {
  Work *w = data;
  bool ok = w->kind == SEND || w->kind == RECEIVE ? send_and_receive(w)
            : w->kind == BROADCAST                ? broadcast(w)
                                                  : collect(w);
  int none = 0;
  if (w->comm->fails && !--w->comm->fails)
    atomic_compare_exchange_strong(&w->comm->error, &none, NCCL_REMOTE);
  none = 0;
  if (!ok) atomic_compare_exchange_strong(&w->comm->error, &none, NCCL_SYSTEM);
}

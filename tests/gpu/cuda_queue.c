/* Stand-in for libcuda.so.1: queues of operations, and the order in which they are done.

   A queue is done in its order; between queues only waits for events order anything. So a program
   that lacks an event or a wait has a schedule in which it is wrong, and SHARDC_EMULATE_ORDER picks
   schedules: 0, a stream's operations when something waits for them, and of other streams no more
   than that needs; 1, other streams go first wherever they can; 2 and more, any operation that may
   go, by this seed. In a graph it is the stream that began the recording that is waited for. Must
   not: do operations of one queue out of order. */
#include "cuda_standin.h"
#include "ir/support/philox.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STREAMS = 64, EARLY = 1, SEEDED = 2 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- queues ---- */

bool standin_push(Queue *q, const Op *op) {
  if (q->n == q->room) {
    size_t room = q->room * 2 + 16;
    Op *more = realloc(q->at, sizeof *more * room);
    if (!more) return false;
    q->at = more, q->room = room;
  }
  q->at[q->n++] = *op;
  return true;
}

int64_t standin_end(const Queue *q) { return q->gone + (int64_t)q->n; }

int64_t standin_behind(const Queue *q) { return q->gone + (int64_t)q->done; }

static bool is_empty(const Queue *q) { return q->done == q->n; }

/* The queue whose operations the first one waits for; NULL: it may go. */
static Queue *blocks(const Queue *q) {
  const Op *op = &q->at[q->done];
  return op->kind == OP_WAIT && standin_behind(op->wait.queue) < op->wait.position ? op->wait.queue
                                                                                   : NULL;
}

static void free_op(Op *op) {
  if (op->kind == OP_LAUNCH) free((void *)op->launch.launch.params);
  if (op->kind == OP_COPY) free(op->copy.staged);
}

void standin_queue_free(Queue *q) {
  for (size_t i = q->done; i < q->n; i++) free_op(&q->at[i]);
  free(q->at);
  *q = (Queue){0};
}

/* ---- doing them ---- */

static CUresult run_copy(CUcontext c, const Op *op) {
  CuCopy2D x = op->copy.c;
  if (op->copy.staged) x.from_host = op->copy.staged;
  return standin_copy(c, &x);
}

/* Host functions run without the lock: they may wait for other processes. */
static CUresult call(const Op *op) {
  pthread_mutex_unlock(&driver->lock);
  op->call.f(op->call.data);
  pthread_mutex_lock(&driver->lock);
  return CU_SUCCESS;
}

static CUresult run(CUcontext c, const Op *op) {
  switch (op->kind) {
  case OP_LAUNCH: return standin_launch(c, &op->launch.launch, op->launch.function);
  case OP_COPY: return run_copy(c, op);
  case OP_SET: return standin_set(op->set.to, op->set.value, op->set.bytes, op->set.n);
  case OP_RECORD: return op->event->recorded = true, op->event->when = now(), CU_SUCCESS;
  case OP_WAIT: return CU_SUCCESS;
  case OP_GRAPH: return standin_graph(op->graph);
  case OP_CALL: return call(op);
  }
  return CU_UNKNOWN;
}

/* ---- which one goes ---- */

static uint32_t drawn(void) { return philox_word((uint64_t)driver->order, 0, 0, driver->drawn++); }

/* All operations that `wanted` waits for, transitively: an event covers the operations enqueued
   before it, so nothing waits for itself. */
static Queue *needed(Queue *wanted) {
  Queue *q = wanted;
  for (Queue *next; (next = blocks(q));) q = next;
  return q;
}

static Queue *any(Queue *const *q, int n) {
  Queue *able[MOST_STREAMS];
  int k = 0;
  for (int i = 0; i < n; i++)
    if (!is_empty(q[i]) && !blocks(q[i])) able[k++] = q[i];
  return able[drawn() % (uint32_t)k];
}

static Queue *another(Queue *const *q, int n, const Queue *than) {
  for (int i = 0; i < n; i++)
    if (q[i] != than && !is_empty(q[i]) && !blocks(q[i])) return q[i];
  return NULL;
}

/* One of n queues, to get on with `wanted`, which is among them. */
static Queue *choose(Queue *const *q, int n, Queue *wanted) {
  if (driver->order >= SEEDED) return any(q, n);
  Queue *early = driver->order == EARLY ? another(q, n, wanted) : NULL;
  return early ? early : needed(wanted);
}

/* ---- streams ---- */

static void do_one(CUcontext c, Queue *q) {
  Op op = q->at[q->done++];
  CUresult e = run(c, &op);
  if (e) c->sticky = e;
  free_op(&op);
  if (is_empty(q)) q->gone += (int64_t)q->n, q->done = q->n = 0;
}

/* Streams that wait for each other; one that does not goes alone. */
static int together(CUcontext c, Queue *wanted, Queue *out[MOST_STREAMS]) {
  int n = 0;
  out[n++] = wanted;
  for (CUstream s = c->streams; s && wanted->meets; s = s->next)
    if (&s->queue != wanted && s->queue.meets && n < MOST_STREAMS) out[n++] = &s->queue;
  return n;
}

CUresult standin_flush_to(CUstream s, int64_t position) {
  CUcontext c = s->context;
  Queue *q[MOST_STREAMS];
  while (standin_behind(&s->queue) < position && !is_empty(&s->queue) && !c->sticky) {
    int n = together(c, &s->queue, q);
    do_one(c, choose(q, n, &s->queue));
  }
  return c->sticky;
}

CUresult standin_flush(CUstream s) { return standin_flush_to(s, standin_end(&s->queue)); }

CUresult standin_flush_all(CUcontext c) {
  for (CUstream s = c->streams; s; s = s->next) standin_flush(s);
  return c->sticky;
}

/* Takes the operation's memory, whatever comes of it. */
CUresult standin_enqueue(CUstream s, const Op *given) {
  Op op = *given;
  CUresult e = s ? s->context->sticky : CU_INVALID_CONTEXT;
  CUgraph g = s ? s->capture : NULL;
  if (!e && !standin_push(g ? &g->queue[s->as] : &s->queue, &op)) e = CU_OUT_OF_MEMORY;
  if (e) free_op(&op);
  else if (g) g->knows[s->as][s->as] = standin_end(&g->queue[s->as]);
  return e || g || driver->late ? e : standin_flush(s);
}

/* ---- graphs ---- */

/* The next operation of the first queue that is not empty. */
static Queue *next_of(CUgraphExec g, Queue *const *q) {
  for (int i = 0; i < g->nqueues; i++)
    if (!is_empty(q[i])) return choose(q, g->nqueues, q[i]);
  return NULL;
}

CUresult standin_graph(CUgraphExec g) {
  Queue *q[MOST_QUEUES], *next;
  CUresult e = CU_SUCCESS;
  for (int i = 0; i < g->nqueues; i++) q[i] = &g->queue[i], q[i]->done = 0;
  g->runs = true;
  while (!e && (next = next_of(g, q))) e = run(g->context, &next->at[next->done++]);
  g->runs = false;
  if (g->dead) standin_graph_free(g);
  return e;
}

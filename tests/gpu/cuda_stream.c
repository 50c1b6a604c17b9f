/* Stand-in for libcuda.so.1: streams, events, graphs. An operation is done at once, or, under
   SHARDC_EMULATE_LATE, when something waits for it, in the order of its stream and behind the
   events that the stream waits for. A stream that is recorded does nothing: its operations go to
   the graph, those of streams that join it by an event, too. Must not: run operations of one stream
   out of order. */
#include "cuda_standin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

CUstream standin_stream(CUstream s) {
  CUcontext c = standin_context();
  return (uintptr_t)s > 2 ? s : c ? c->streams : NULL;
}

/* ---- lists of operations ---- */

static bool push(Ops *o, const Op *op) {
  if (o->n == o->room) {
    size_t room = o->room * 2 + 16;
    Op *more = realloc(o->at, sizeof *more * room);
    if (!more) return false;
    o->at = more, o->room = room;
  }
  o->at[o->n++] = *op;
  return true;
}

static void free_op(Op *op) {
  if (op->kind == OP_LAUNCH) free((void *)op->launch.launch.params);
  if (op->kind == OP_COPY) free(op->copy.staged);
}

void standin_ops_free(Ops *o) {
  for (size_t i = o->done; i < o->n; i++) free_op(&o->at[i]);
  free(o->at);
  *o = (Ops){0};
}

/* ---- doing them ---- */

static CUresult run(CUcontext c, const Op *op);

static CUresult run_graph(CUgraphExec g) {
  CUresult e = CU_SUCCESS;
  for (size_t i = 0; !e && i < g->ops.n; i++) e = run(g->context, &g->ops.at[i]);
  return e;
}

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

static CUresult record_event(CUevent e) {
  e->pending = NULL, e->recorded = true, e->when = now();
  return CU_SUCCESS;
}

static CUresult run(CUcontext c, const Op *op) {
  switch (op->kind) {
  case OP_LAUNCH: return standin_launch(c, &op->launch.launch, op->launch.function);
  case OP_COPY: return run_copy(c, op);
  case OP_SET: return standin_set(op->set.to, op->set.value, op->set.bytes, op->set.n);
  case OP_RECORD: return record_event(op->event);
  case OP_WAIT: return op->event->pending ? standin_flush(op->event->pending) : CU_SUCCESS;
  case OP_GRAPH: return run_graph(op->graph);
  case OP_CALL: return call(op);
  }
  return CU_UNKNOWN;
}

CUresult standin_flush(CUstream s) {
  CUcontext c = s->context;
  while (s->ops.done < s->ops.n && !c->sticky) {
    Op op = s->ops.at[s->ops.done++];
    CUresult e = run(c, &op);
    if (e) c->sticky = e;
    free_op(&op);
  }
  if (s->ops.done == s->ops.n) s->ops.done = s->ops.n = 0;
  return c->sticky;
}

CUresult standin_flush_all(CUcontext c) {
  for (CUstream s = c->streams; s; s = s->next) standin_flush(s);
  return c->sticky;
}

/* Takes the operation's memory, whatever comes of it. */
CUresult standin_enqueue(CUstream s, const Op *given) {
  Op op = *given;
  CUresult e = s ? s->context->sticky : CU_INVALID_CONTEXT;
  if (!e && !push(s->capture ? &s->capture->ops : &s->ops, &op)) e = CU_OUT_OF_MEMORY;
  if (e) free_op(&op);
  return e || s->capture || driver->late ? e : standin_flush(s);
}

/* ---- streams ---- */

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  CUcontext c = standin_context();
  (void)flags;
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  CUstream s = calloc(1, sizeof *s);
  if (!s) return CU_OUT_OF_MEMORY;
  standin_enter();
  s->context = c, s->next = c->streams->next, c->streams->next = s;
  *out = s;
  return standin_leave(CU_SUCCESS);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  (void)priority;
  return cuStreamCreate(out, flags);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
  if ((uintptr_t)s <= 2) return CU_INVALID_HANDLE;
  standin_enter();
  standin_flush(s);
  for (CUstream before = s->context->streams; before; before = before->next)
    if (before->next == s) before->next = s->next;
  standin_ops_free(&s->ops), free(s);
  return standin_leave(CU_SUCCESS);
}

static CUresult wait_for(CUstream s) {
  if (!s) return CU_INVALID_CONTEXT;
  if (s->capture) return s->capture->broken = true, CU_CAPTURE_UNSUPPORTED;
  return standin_flush(s);
}

EXPORT CUresult cuStreamSynchronize(CUstream s) {
  standin_enter();
  return standin_leave(wait_for(standin_stream(s)));
}

EXPORT CUresult cuStreamQuery(CUstream s) { return cuStreamSynchronize(s); }

EXPORT CUresult cuStreamGetCtx(CUstream s, CUcontext *c) {
  CUstream x = standin_stream(s);
  if (!x) return CU_INVALID_CONTEXT;
  *c = x->context;
  return CU_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream s, HostFunction *f, void *data) {
  standin_enter();
  Op op = {.kind = OP_CALL, .call = {f, data}};
  return standin_leave(standin_enqueue(standin_stream(s), &op));
}

/* ---- events ---- */

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
  (void)flags;
  if (!standin_context()) return CU_INVALID_CONTEXT;
  CUevent e = calloc(1, sizeof *e);
  if (!e) return CU_OUT_OF_MEMORY;
  e->context = standin_context();
  *out = e;
  return CU_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent e) {
  standin_enter();
  if (e->pending) standin_flush(e->pending);
  free(e);
  return standin_leave(CU_SUCCESS);
}

EXPORT CUresult cuEventRecord(CUevent e, CUstream stream) {
  standin_enter();
  CUstream s = standin_stream(stream);
  if (!s) return standin_leave(CU_INVALID_CONTEXT);
  if (s->capture) { /* an edge of the graph */
    e->capture = s->capture;
    return standin_leave(CU_SUCCESS);
  }
  Op op = {.kind = OP_RECORD, .event = e};
  if (e->pending) standin_flush(e->pending);
  e->pending = s, e->capture = NULL;
  return standin_leave(standin_enqueue(s, &op));
}

EXPORT CUresult cuEventSynchronize(CUevent e) {
  standin_enter();
  CUresult r = e->context->sticky;
  if (!r && e->pending) r = standin_flush(e->pending);
  return standin_leave(r);
}

EXPORT CUresult cuEventQuery(CUevent e) { return cuEventSynchronize(e); }

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  if (!from->recorded || !to->recorded) return CU_INVALID_HANDLE;
  if (from->pending || to->pending) return CU_NOT_READY;
  *milliseconds = (float)(1e3 * (to->when - from->when));
  return CU_SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags) {
  (void)flags;
  standin_enter();
  CUstream s = standin_stream(stream);
  if (!s) return standin_leave(CU_INVALID_CONTEXT);
  if (e->capture) { /* the stream joins the recording */
    if (!s->capture) s->capture = e->capture;
    return standin_leave(s->capture == e->capture ? CU_SUCCESS : CU_CAPTURE_INVALIDATED);
  }
  Op op = {.kind = OP_WAIT, .event = e};
  return standin_leave(standin_enqueue(s, &op));
}

/* ---- graphs ---- */

EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, int mode) {
  if ((uintptr_t)s <= 2) return CU_CAPTURE_UNSUPPORTED;
  if (mode < 0 || mode > 2) return CU_INVALID_VALUE;
  standin_enter();
  if (s->capture) return standin_leave(CU_CAPTURE_INVALIDATED);
  s->capture = calloc(1, sizeof *s->capture), s->origin = true, driver->captures++;
  return standin_leave(s->capture ? CU_SUCCESS : CU_OUT_OF_MEMORY);
}

EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
  *graph = NULL;
  if ((uintptr_t)s <= 2 || !s->capture || !s->origin) return CU_CAPTURE_INVALIDATED;
  standin_enter();
  CUgraph g = s->capture;
  for (CUstream x = s->context->streams; x; x = x->next)
    if (x->capture == g) x->capture = NULL;
  s->origin = false, driver->captures--;
  if (!g->broken) return *graph = g, standin_leave(CU_SUCCESS);
  standin_ops_free(&g->ops), free(g);
  return standin_leave(CU_CAPTURE_INVALIDATED);
}

EXPORT CUresult cuStreamIsCapturing(CUstream s, int *status) {
  CUstream x = standin_stream(s);
  *status = x && x->capture ? x->capture->broken ? 2 : 1 : 0;
  return x ? CU_SUCCESS : CU_INVALID_CONTEXT;
}

/* The executable graph owns copies: its graph may go. */
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
  (void)flags;
  CUgraphExec x = calloc(1, sizeof *x);
  if (!g || !x) return free(x), CU_INVALID_VALUE;
  standin_enter();
  x->context = standin_context();
  for (size_t i = 0; i < g->ops.n; i++) {
    Op op = g->ops.at[i];
    if (op.kind == OP_LAUNCH) {
      void *params = malloc((size_t)op.launch.launch.params_bytes + 1);
      if (!params) return standin_leave(CU_OUT_OF_MEMORY);
      memcpy(params, op.launch.launch.params, (size_t)op.launch.launch.params_bytes);
      op.launch.launch.params = params;
    }
    if (!push(&x->ops, &op)) return standin_leave(CU_OUT_OF_MEMORY);
  }
  *out = x;
  return standin_leave(CU_SUCCESS);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec x, CUstream stream) {
  if (!x) return CU_INVALID_VALUE;
  standin_enter();
  Op op = {.kind = OP_GRAPH, .graph = x};
  return standin_leave(standin_enqueue(standin_stream(stream), &op));
}

EXPORT CUresult cuGraphGetNodes(CUgraph g, void **nodes, size_t *n) {
  if (nodes) return CU_NOT_SUPPORTED;
  *n = g->ops.n;
  return CU_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec x) {
  standin_enter();
  CUresult e = standin_flush_all(x->context);
  standin_ops_free(&x->ops), free(x);
  return standin_leave(e);
}

EXPORT CUresult cuGraphDestroy(CUgraph g) {
  standin_enter();
  standin_ops_free(&g->ops), free(g);
  return standin_leave(CU_SUCCESS);
}

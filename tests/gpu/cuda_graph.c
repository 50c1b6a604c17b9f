/* Stand-in for libcuda.so.1: recording streams, and graphs. A stream that is recorded does nothing:
   its operations go to a queue of the graph. Another stream joins by waiting for an event that was
   recorded on the first one, and must be waited for before the recording ends. Must not: accept
   calls that a driver refuses. */
#include "cuda_standin.h"
#include <stdlib.h>
#include <string.h>

EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, int mode) {
  if ((uintptr_t)s <= 2) return CU_CAPTURE_UNSUPPORTED;
  if (mode < 0 || mode > 2) return CU_INVALID_VALUE;
  standin_enter();
  if (s->capture) return standin_leave(CU_CAPTURE_INVALIDATED);
  CUgraph g = s->capture = calloc(1, sizeof *g);
  if (!g) return standin_leave(CU_OUT_OF_MEMORY);
  g->number = ++driver->captured, g->nqueues = 1, s->as = 0, driver->captures++;
  return standin_leave(CU_SUCCESS);
}

/* Is the end of the first queue ordered after the ends of all? */
static bool is_joined(const struct CUgrph *g) {
  for (int i = 1; i < g->nqueues; i++)
    if (g->knows[0][i] < g->knows[i][i]) return false;
  return true;
}

static void free_graph(CUgraph g) {
  for (int i = 0; i < g->nqueues; i++) standin_queue_free(&g->queue[i]);
  free(g);
}

EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
  *graph = NULL;
  if ((uintptr_t)s <= 2 || !s->capture || s->as) return CU_CAPTURE_INVALIDATED;
  standin_enter();
  CUgraph g = s->capture;
  for (CUstream x = s->context->streams; x; x = x->next)
    if (x->capture == g) x->capture = NULL;
  driver->captures--;
  bool joined = is_joined(g), broken = g->broken;
  if (joined && !broken) return *graph = g, standin_leave(CU_SUCCESS);
  free_graph(g);
  return standin_leave(broken ? CU_CAPTURE_INVALIDATED : CU_CAPTURE_UNJOINED);
}

EXPORT CUresult cuStreamIsCapturing(CUstream s, int *status) {
  CUstream x = standin_stream(s);
  *status = x && x->capture ? x->capture->broken ? 2 : 1 : 0;
  return x ? CU_SUCCESS : CU_INVALID_CONTEXT;
}

/* An operation of a graph that is gone, for one that stays. */
static bool copied(Op *op, CUgraph g, CUgraphExec x) {
  if (op->kind == OP_WAIT) op->wait.queue = &x->queue[op->wait.queue - g->queue];
  if (op->kind != OP_LAUNCH) return true;
  size_t n = (size_t)op->launch.launch.params_bytes;
  void *params = malloc(n + 1);
  if (params) memcpy(params, op->launch.launch.params, n);
  op->launch.launch.params = params;
  return params != NULL;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags) {
  (void)flags;
  CUgraphExec x = calloc(1, sizeof *x);
  if (!g || !x) return free(x), CU_INVALID_VALUE;
  standin_enter();
  x->context = standin_context(), x->nqueues = g->nqueues;
  for (int k = 0; k < g->nqueues; k++)
    for (size_t i = 0; i < g->queue[k].n; i++) {
      Op op = g->queue[k].at[i];
      if (!copied(&op, g, x) || !standin_push(&x->queue[k], &op))
        return standin_leave(CU_OUT_OF_MEMORY);
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
  *n = 0;
  for (int k = 0; k < g->nqueues; k++)
    for (size_t i = 0; i < g->queue[k].n; i++) *n += g->queue[k].at[i].kind != OP_WAIT;
  return CU_SUCCESS;
}

void standin_graph_free(CUgraphExec x) {
  for (int i = 0; i < x->nqueues; i++) x->queue[i].done = 0, standin_queue_free(&x->queue[i]);
  free(x);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec x) {
  standin_enter();
  CUresult e = standin_flush_all(x->context);
  if (x->runs) x->dead = true;
  else standin_graph_free(x);
  return standin_leave(e);
}

EXPORT CUresult cuGraphDestroy(CUgraph g) {
  standin_enter();
  free_graph(g);
  return standin_leave(CU_SUCCESS);
}

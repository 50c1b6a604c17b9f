/* Stand-in for libcuda.so.1: streams and events. An event covers the operations that its stream was
   given before: a wait for it waits for these and no more, whatever is recorded later. Must not:
   let a wait see a record that comes after it. */
#include "cuda_standin.h"
#include <stdlib.h>
#include <string.h>

CUstream standin_stream(CUstream s) {
  CUcontext c = standin_context();
  return (uintptr_t)s > 2 ? s : c ? c->streams : NULL;
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
  standin_flush_all(s->context);
  for (CUstream before = s->context->streams; before; before = before->next)
    if (before->next == s) before->next = s->next;
  standin_queue_free(&s->queue), free(s);
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
  standin_flush_all(e->context);
  free(e);
  return standin_leave(CU_SUCCESS);
}

/* SHARDC_EMULATE_DROP: is this the call of that kind that does nothing? */
static bool is_dropped(const char *kind, int64_t *calls) {
  size_t n = strlen(kind);
  ++*calls;
  return driver->drops && !strncmp(driver->drops, kind, n) && driver->drops[n] == '=' &&
         atoll(driver->drops + n + 1) == *calls;
}

/* An edge of the graph. */
static void record_in_graph(CUevent e, CUstream s) {
  CUgraph g = s->capture;
  e->capture = g->number, e->as = s->as, e->position = standin_end(&g->queue[s->as]);
  memcpy(e->knows, g->knows[s->as], sizeof e->knows);
}

static CUresult record(CUevent e, CUstream s) {
  if (!s) return CU_INVALID_CONTEXT;
  if (is_dropped("record", &driver->records)) return CU_SUCCESS;
  if (s->capture) return record_in_graph(e, s), CU_SUCCESS;
  Op op = {.kind = OP_RECORD, .event = e};
  e->capture = 0, e->stream = s, e->position = standin_end(&s->queue) + 1;
  return standin_enqueue(s, &op);
}

EXPORT CUresult cuEventRecord(CUevent e, CUstream stream) {
  standin_enter();
  e->external = false;
  return standin_leave(record(e, standin_stream(stream)));
}

/* By whatever graph it becomes a part of, whenever that runs. */
static CUresult record_external(CUevent e, CUstream s) {
  if (!s || !s->capture) return CU_INVALID_VALUE;
  Op op = {.kind = OP_RECORD, .event = e};
  e->capture = 0, e->stream = NULL, e->external = true, e->recorded = false;
  return standin_enqueue(s, &op);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream stream, unsigned flags) {
  if (flags > 1) return CU_INVALID_VALUE;
  if (!flags) return cuEventRecord(e, stream);
  standin_enter();
  return standin_leave(record_external(e, standin_stream(stream)));
}

EXPORT CUresult cuEventSynchronize(CUevent e) {
  standin_enter();
  CUresult r = e->context->sticky;
  if (!r && e->stream) r = standin_flush_to(e->stream, e->position);
  return standin_leave(r);
}

EXPORT CUresult cuEventQuery(CUevent e) { return cuEventSynchronize(e); }

static bool is_over(CUevent e) {
  return e->external ? e->recorded : standin_behind(&e->stream->queue) >= e->position;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  if (!(from->stream || from->external) || !(to->stream || to->external)) return CU_INVALID_HANDLE;
  if (!is_over(from) || !is_over(to)) return CU_NOT_READY;
  *milliseconds = (float)(1e3 * (to->when - from->when));
  return CU_SUCCESS;
}

/* The recording of that number, if it still goes on. */
static CUgraph capture_of(CUcontext c, int number) {
  for (CUstream s = c->streams; s; s = s->next)
    if (s->capture && s->capture->number == number) return s->capture;
  return NULL;
}

static bool joins(CUstream s, CUgraph g) {
  if (s->capture) return s->capture == g;
  if (g->nqueues == MOST_QUEUES) return false;
  s->capture = g, s->as = g->nqueues++;
  return true;
}

static CUresult wait_in_graph(CUstream s, CUevent e) {
  CUgraph g = e->capture ? capture_of(s->context, e->capture) : NULL;
  if (!g) {
    if (s->capture) s->capture->broken = true;
    return CU_CAPTURE_ISOLATION;
  }
  if (!joins(s, g)) return CU_CAPTURE_INVALIDATED;
  int64_t *mine = g->knows[s->as];
  for (int i = 0; i < MOST_QUEUES; i++)
    if (i != s->as && e->knows[i] > mine[i]) mine[i] = e->knows[i];
  Op op = {.kind = OP_WAIT, .wait = {&g->queue[e->as], e->position}};
  return e->as == s->as || standin_push(&g->queue[s->as], &op) ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

static CUresult wait_on(CUstream s, CUevent e) {
  if (!s) return CU_INVALID_CONTEXT;
  if (is_dropped("wait", &driver->waits)) return CU_SUCCESS;
  if (s->capture || e->capture) return wait_in_graph(s, e);
  if (!e->stream || e->stream == s) return CU_SUCCESS;
  Op op = {.kind = OP_WAIT, .wait = {&e->stream->queue, e->position}};
  s->queue.meets = e->stream->queue.meets = true;
  return standin_enqueue(s, &op);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags) {
  (void)flags;
  standin_enter();
  return standin_leave(wait_on(standin_stream(stream), e));
}

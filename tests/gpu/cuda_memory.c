/* Stand-in for libcuda.so.1: memory of devices and pinned memory of the host, copies, fills. All
   copies are copies of rows; those with a stream become operations of it, the others wait for all
   that is under way. */
#include "cuda_standin.h"
#include <stdlib.h>
#include <string.h>

/* ---- device memory ---- */

static void space(const struct CUctx *c, size_t *have, size_t *all) {
  int64_t left = driver->memory - driver->used - c->allocated;
  *all = (size_t)driver->memory, *have = left > 0 ? (size_t)left : 0;
}

static CUresult allocate(CUdeviceptr *at, size_t bytes) {
  CUcontext c = standin_context();
  size_t have, all;
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  if (!bytes) return CU_INVALID_VALUE;
  CUresult e = standin_unsafe();
  if (e) return e;
  space(c, &have, &all);
  *at = bytes > have ? 0 : ptx_alloc(c->machine, (int64_t)bytes);
  if (*at) c->allocated += (int64_t)bytes;
  if (c->allocated > c->most) c->most = c->allocated;
  return *at ? CU_SUCCESS : CU_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  standin_enter();
  return standin_leave(allocate(at, bytes));
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t rows,
                                   unsigned element) {
  (void)element;
  *pitch = (width + 511) / 512 * 512;
  standin_enter();
  return standin_leave(allocate(at, *pitch * rows));
}

static CUresult release(CUdeviceptr at) {
  CUcontext c = standin_owner(at);
  if (!at) return CU_SUCCESS;
  if (!c) return CU_INVALID_VALUE;
  CUresult e = standin_unsafe();
  if (!e) e = standin_flush_all(c);
  uint64_t first = 0;
  int64_t n = 0;
  if (!ptx_range(c->machine, at, &first, &n) || !ptx_release(c->machine, at))
    return CU_INVALID_VALUE;
  c->allocated -= n;
  return e;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at) {
  standin_enter();
  return standin_leave(release(at));
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream s) {
  (void)s;
  return cuMemAlloc_v2(at, bytes);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream s) {
  (void)s;
  return cuMemFree_v2(at);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *have, size_t *all) {
  CUcontext c = standin_context();
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  space(c, have, all);
  return CU_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *first, size_t *bytes, CUdeviceptr at) {
  CUcontext c = standin_owner(at);
  uint64_t from;
  int64_t n;
  if (!c || !ptx_range(c->machine, at, &from, &n)) return CU_INVALID_VALUE;
  if (first) *first = from;
  if (bytes) *bytes = (size_t)n;
  return CU_SUCCESS;
}

/* ---- pinned memory ---- */

static CUresult pin(void *at, size_t n, bool own) {
  Range *more = realloc(driver->pinned, sizeof *more * (size_t)(driver->npinned + 1));
  if (!more) return CU_OUT_OF_MEMORY;
  driver->pinned = more;
  driver->pinned[driver->npinned++] = (Range){at, n, own};
  driver->host += (int64_t)n;
  if (driver->host > driver->most_host) driver->most_host = driver->host;
  return CU_SUCCESS;
}

static CUresult unpin(const void *at, bool own) {
  for (int i = 0; i < driver->npinned; i++) {
    Range r = driver->pinned[i];
    if (r.at != at || r.own != own) continue;
    driver->pinned[i] = driver->pinned[--driver->npinned], driver->host -= (int64_t)r.n;
    if (own) free(r.at);
    return CU_SUCCESS;
  }
  return CU_INVALID_VALUE;
}

bool standin_pinned(const void *at, size_t n) {
  for (int i = 0; i < driver->npinned; i++) {
    const Range *r = &driver->pinned[i];
    if ((const char *)at >= r->at && (const char *)at + n <= r->at + r->n) return true;
  }
  return false;
}

EXPORT CUresult cuMemHostRegister_v2(void *at, size_t n, unsigned flags) {
  (void)flags;
  standin_enter();
  bool twice = standin_pinned(at, 1);
  CUresult told = standin_told("cuMemHostRegister");
  return standin_leave(told                 ? told
                       : !standin_context() ? CU_INVALID_CONTEXT
                       : twice || !n        ? CU_INVALID_VALUE
                                            : pin(at, n, false));
}

EXPORT CUresult cuMemHostUnregister(void *at) {
  standin_enter();
  return standin_leave(unpin(at, false));
}

EXPORT CUresult cuMemHostAlloc(void **at, size_t n, unsigned flags) {
  (void)flags;
  if (!standin_context()) return CU_INVALID_CONTEXT;
  *at = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  if (!*at) return CU_OUT_OF_MEMORY;
  standin_enter();
  return standin_leave(pin(*at, n, true));
}

EXPORT CUresult cuMemAllocHost_v2(void **at, size_t n) { return cuMemHostAlloc(at, n, 0); }

EXPORT CUresult cuMemFreeHost(void *at) {
  standin_enter();
  return standin_leave(unpin(at, true));
}

/* ---- copies ---- */

static CUresult copy_row(CUdeviceptr to, int to_kind, CUdeviceptr from, int from_kind, size_t n) {
  CUcontext a = to_kind == DEVICE ? standin_owner(to) : NULL,
            b = from_kind == DEVICE ? standin_owner(from) : NULL;
  if ((to_kind == DEVICE && !a) || (from_kind == DEVICE && !b)) return CU_INVALID_VALUE;
  void *host_to = (void *)(uintptr_t)to, *host_from = (void *)(uintptr_t)from;
  bool ok = true;
  if (a && a == b) ok = ptx_copy(a->machine, to, from, (int64_t)n);
  else if (a && b) { /* between two devices */ char *way = malloc(n);
    ok = way && ptx_read(b->machine, way, from, (int64_t)n) &&
         ptx_write(a->machine, to, way, (int64_t)n);
    free(way);
  } else if (a) ok = ptx_write(a->machine, to, host_from, (int64_t)n);
  else if (b) ok = ptx_read(b->machine, host_to, from, (int64_t)n);
  else memmove(host_to, host_from, n);
  return ok ? CU_SUCCESS : CU_INVALID_VALUE;
}

static CUdeviceptr source_of(const CuCopy2D *x) {
  return x->from_kind == HOST ? (CUdeviceptr)(uintptr_t)x->from_host : x->from_device;
}

static CUdeviceptr target_of(const CuCopy2D *x) {
  return x->to_kind == HOST ? (CUdeviceptr)(uintptr_t)x->to_host : x->to_device;
}

static int kind_of(CUdeviceptr at, int kind) {
  return kind != EITHER ? kind : standin_owner(at) ? DEVICE : HOST;
}

CUresult standin_copy(CUcontext c, const CuCopy2D *x) {
  CUdeviceptr to = target_of(x) + x->to_y * x->to_pitch + x->to_x,
              from = source_of(x) + x->from_y * x->from_pitch + x->from_x;
  int to_kind = kind_of(to, x->to_kind), from_kind = kind_of(from, x->from_kind);
  (void)c;
  for (size_t i = 0; x->bytes && i < x->rows; i++) {
    CUresult e =
        copy_row(to + i * x->to_pitch, to_kind, from + i * x->from_pitch, from_kind, x->bytes);
    if (e) return e;
  }
  return CU_SUCCESS;
}

static CuCopy2D one_row(CUdeviceptr to, int to_kind, CUdeviceptr from, int from_kind, size_t n) {
  return (CuCopy2D){.from_kind = from_kind,
                    .from_host = (void *)(uintptr_t)from,
                    .from_device = from,
                    .to_kind = to_kind,
                    .to_host = (void *)(uintptr_t)to,
                    .to_device = to,
                    .bytes = n,
                    .rows = 1};
}

/* Now: after all pending operations. */
static CUresult copy_now(const CuCopy2D *x) {
  CUcontext c = standin_context();
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  standin_enter();
  CUresult e = standin_unsafe();
  if (!e) e = standin_flush_all(c);
  return standin_leave(e ? e : standin_copy(c, x));
}

/* Memory of the host that is not pinned is read at once, and written before the call returns. */
static CUresult copy_later(const CuCopy2D *x, CUstream stream) {
  CUcontext c = standin_context();
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  standin_enter();
  CUstream s = standin_stream(stream);
  Op op = {.kind = OP_COPY, .copy = {.c = *x}};
  bool plain = x->rows == 1 && !s->capture;
  if (x->from_kind == HOST && plain && !standin_pinned(x->from_host, x->bytes)) {
    op.copy.staged = malloc(x->bytes + 1);
    if (!op.copy.staged) return standin_leave(CU_OUT_OF_MEMORY);
    memcpy(op.copy.staged, x->from_host, x->bytes);
  }
  CUresult e = standin_enqueue(s, &op);
  if (!e && x->to_kind == HOST && plain && !standin_pinned(x->to_host, x->bytes))
    e = standin_flush(s);
  return standin_leave(e);
}

#define COPY(name, to_type, to_kind, from_type, from_kind)                                         \
  EXPORT CUresult name##_v2(to_type to, from_type from, size_t n) {                                \
    CuCopy2D x = one_row((CUdeviceptr)to, to_kind, (CUdeviceptr)from, from_kind, n);               \
    return copy_now(&x);                                                                           \
  }                                                                                                \
  EXPORT CUresult name##Async_v2(to_type to, from_type from, size_t n, CUstream s) {               \
    CuCopy2D x = one_row((CUdeviceptr)to, to_kind, (CUdeviceptr)from, from_kind, n);               \
    return copy_later(&x, s);                                                                      \
  }
COPY(cuMemcpyHtoD, CUdeviceptr, DEVICE, const void *, HOST)
COPY(cuMemcpyDtoH, void *, HOST, CUdeviceptr, DEVICE)
COPY(cuMemcpyDtoD, CUdeviceptr, DEVICE, CUdeviceptr, DEVICE)

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  CuCopy2D x = one_row(to, EITHER, from, EITHER, n);
  return copy_now(&x);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  standin_enter();
  CuCopy2D x = one_row(to, kind_of(to, EITHER), from, kind_of(from, EITHER), n);
  standin_leave(0);
  return copy_later(&x, s);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n) {
  CuCopy2D x = one_row(to, DEVICE, from, DEVICE, n);
  (void)a, (void)b;
  return copy_now(&x);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b,
                                  size_t n, CUstream s) {
  CuCopy2D x = one_row(to, DEVICE, from, DEVICE, n);
  (void)a, (void)b;
  return copy_later(&x, s);
}

EXPORT CUresult cuMemcpy2D_v2(const CuCopy2D *x) { return copy_now(x); }
EXPORT CUresult cuMemcpy2DAsync_v2(const CuCopy2D *x, CUstream s) { return copy_later(x, s); }

/* ---- fills ---- */

static CUresult set_host(CUdeviceptr to, uint32_t value, int bytes, size_t n) {
  for (size_t i = 0; i < n * (size_t)bytes; i++)
    ((char *)(uintptr_t)to)[i] = (char)(value >> (8 * (i % (size_t)bytes)));
  return CU_SUCCESS;
}

CUresult standin_set(CUdeviceptr to, uint32_t value, int bytes, size_t n) {
  CUcontext c = standin_owner(to);
  if (!n) return CU_SUCCESS;
  if (standin_pinned((void *)(uintptr_t)to, n * (size_t)bytes))
    return set_host(to, value, bytes, n);
  if (!c || to % (unsigned)bytes) return CU_INVALID_VALUE;
  bool ok = bytes == 1   ? ptx_set8(c->machine, to, (uint8_t)value, (int64_t)n)
            : bytes == 2 ? ptx_set16(c->machine, to, (uint16_t)value, (int64_t)n)
                         : ptx_set32(c->machine, to, value, (int64_t)n);
  return ok ? CU_SUCCESS : CU_INVALID_VALUE;
}

static CUresult set(CUdeviceptr to, uint32_t value, int bytes, size_t n, CUstream s, bool waits) {
  CUcontext c = standin_context();
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  standin_enter();
  Op op = {.kind = OP_SET, .set = {to, value, bytes, n}};
  CUresult e = waits ? standin_unsafe() : CU_SUCCESS;
  if (!e) e = standin_enqueue(standin_stream(s), &op);
  if (!e && waits) e = standin_flush_all(c);
  return standin_leave(e);
}

#define SET(bits, type)                                                                            \
  EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) {                     \
    return set(to, value, bits / 8, n, NULL, true);                                                \
  }                                                                                                \
  EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream s) {       \
    return set(to, value, bits / 8, n, s, false);                                                  \
  }
SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned)

/* ---- for the stand-in of NCCL: from inside a host function ---- */

EXPORT bool standin_peek(CUdeviceptr at, void *to, size_t n) {
  standin_enter();
  CUcontext c = standin_owner(at);
  bool ok = c && ptx_read(c->machine, to, at, (int64_t)n);
  return standin_leave(0), ok;
}

EXPORT bool standin_poke(CUdeviceptr at, const void *from, size_t n) {
  standin_enter();
  CUcontext c = standin_owner(at);
  bool ok = c && ptx_write(c->machine, at, from, (int64_t)n);
  return standin_leave(0), ok;
}

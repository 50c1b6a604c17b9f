/* Collectives by way of the host, for communicators that work there.

   Blocks come from the GPU end to end, are exchanged and go back, as many elements of each at a
   time as there is room planned for (rt_collective.piece, rt_program.host_messages): an element is
   added to the same others in the same order whatever the pieces are. The host waits in between, so
   entries with these are not recorded. Must not: allocate. */
#include "device_cuda.h"
#include "ir/support/num.h"

typedef struct Exchange { /* `count` elements, from element `at` on, of every block */
  const Cuda *c;
  const rt_collective *x;
  int64_t size, at, count;
} Exchange;

static void copy(const Exchange *e, CUdeviceptr there, int64_t apart, char *here, int64_t bytes,
                 int64_t rows, bool out) {
  CuCopy2D copy = {.from_kind = out ? CU_ON_DEVICE : CU_ON_HOST,
                   .from_device = there,
                   .from_host = here,
                   .from_pitch = (size_t)(out ? apart : bytes),
                   .to_kind = out ? CU_ON_HOST : CU_ON_DEVICE,
                   .to_device = there,
                   .to_host = here,
                   .to_pitch = (size_t)(out ? bytes : apart),
                   .bytes = (size_t)bytes,
                   .rows = (size_t)rows};
  rt_cuda_must(e->c, e->c->api.cuMemcpy2DAsync(&copy, e->c->stream), "copy");
}

static void copy_block(const Exchange *e, CUdeviceptr blocks, int64_t ways, int64_t i, int64_t row,
                       char *line, bool out) {
  for (BlockRuns b = {.row = row, .left = e->at, .end = e->at + e->count}; rt_block_run(&b);)
    copy(e, blocks + (CUdeviceptr)(rt_block_at(ways, i, row, b.from) * e->size),
         ways * row * e->size, line + (b.from - e->at) * e->size, b.count * e->size, b.rows, out);
}

/* A buffer with a block of every rank, or with one. */
static void copy_blocks(const Exchange *e, const void *buffer, char *lines, bool many, int64_t ways,
                        int64_t row, bool out) {
  int64_t n = many ? ways : 1;
  for (int64_t i = 0; i < n; i++)
    copy_block(e, (CUdeviceptr)(uintptr_t)buffer, n, i, many ? row : e->x->count,
               lines + i * e->count * e->size, out);
  rt_cuda_wait(e->c);
}

void rt_cuda_exchange(Device *d, const rt_collective *x, const void *send, void *receive) {
  const Cuda *c = d->inside;
  const rt_program *p = d->program;
  char *out = c->pinned + p->host_view + p->host_window, *in = out + p->host_messages / 2;
  bool all = x->kind == RT_ALL_TO_ALL, gives = all || x->kind == RT_REDUCE_SCATTER,
       takes = all || x->kind == RT_ALL_GATHER;
  int64_t ways = p->mesh[x->axis].size, piece = x->piece ? x->piece : x->count;
  for (int64_t at = 0; at < x->count; at += piece) {
    int64_t n = min_i64(x->count - at, piece);
    Exchange e = {c, x, rt_elem_bytes((int)x->elem), at, n};
    if (x->kind != RT_RECEIVE) copy_blocks(&e, send, out, gives, ways, x->send_row, true);
    rt_comm_piece(d->comm, x, n, out, in);
    copy_blocks(&e, receive, in, takes, ways, x->receive_row, false);
  }
}

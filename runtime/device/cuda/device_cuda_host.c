/* Collectives staged through the host, for communicators that work on host memory. Blocks are
   packed and copied from the GPU, exchanged and copied back, in pieces of as many elements as the
   planned buffer holds (rt_collective.piece, rt_program.host_messages): sums have the same order
   whatever the pieces are. The host waits in between, so entries with such collectives are not
   recorded. Must not: allocate. */
#include "device_cuda.h"
#include "ir/support/num.h"

typedef struct Exchange { /* `count` elements, from element `at` on, of every block */
  const Cuda *c;
  const rt_collective *x;
  int64_t size, at, count;
} Exchange;

static void copy(const Exchange *exchange, CUdeviceptr there, int64_t apart, char *here,
                 int64_t bytes, int64_t rows, bool out) {
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
  rt_cuda_must(exchange->c, exchange->c->api.cuMemcpy2DAsync(&copy, exchange->c->stream), "copy");
}

static void copy_block(const Exchange *exchange, CUdeviceptr blocks, int64_t ways, int64_t i,
                       int64_t row, char *line, bool out) {
  for (BlockRuns b = {.row = row, .left = exchange->at, .end = exchange->at + exchange->count};
       rt_block_run(&b);)
    copy(exchange, blocks + (CUdeviceptr)(rt_block_at(ways, i, row, b.from) * exchange->size),
         ways * row * exchange->size, line + (b.from - exchange->at) * exchange->size,
         b.count * exchange->size, b.rows, out);
}

/* A buffer with a block of every rank, or with one. */
static void copy_blocks(const Exchange *exchange, const void *buffer, char *lines, bool many,
                        int64_t ways, int64_t row, bool out) {
  int64_t n = many ? ways : 1;
  for (int64_t i = 0; i < n; i++)
    copy_block(exchange, (CUdeviceptr)(uintptr_t)buffer, n, i, many ? row : exchange->x->count,
               lines + i * exchange->count * exchange->size, out);
  rt_cuda_wait(exchange->c);
}

void rt_cuda_exchange(Device *d, const rt_collective *collective, const void *send, void *receive) {
  const Cuda *cuda = d->inside;
  const rt_program *program = d->program;
  char *out = cuda->pinned + program->host_view + program->host_window,
       *in = out + program->host_messages / 2;
  const CollectiveFacts *facts = &rt_collective_facts[collective->kind];
  int64_t ways = program->mesh[collective->axis].size,
          piece = collective->piece ? collective->piece : collective->count;
  for (int64_t at = 0; at < collective->count; at += piece) {
    int64_t n = min_i64(collective->count - at, piece);
    Exchange exchange = {cuda, collective, rt_elem_bytes((int)collective->elem), at, n};
    if (collective->kind != RT_RECEIVE)
      copy_blocks(&exchange, send, out, facts->gives, ways, collective->send_row, true);
    rt_comm_piece(d->comm, collective, n, out, in);
    copy_blocks(&exchange, receive, in, facts->takes, ways, collective->receive_row, false);
  }
}

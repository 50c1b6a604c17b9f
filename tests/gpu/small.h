/* Small kernels for the machine's tests: a body between a fixed head and tail, one launch.
 *
 * The kernel has two parameters, `in` (IN words, word i holds i * 3) and `out` (OUT words, never
 * written), and registers of all classes: %p0-9, %h0-39, %r0-59, %d0-39, %f0-39. On entry %r0 is
 * %tid.x, %r1 is %ctaid.x, %d0 is in, %d1 is out, %d2 is out + 4 * (thread in the launch), %d3 is
 * in + 4 * %tid.x; `sm` is dynamic shared memory.
 *
 * Must not: leak a device. */
#ifndef TESTS_GPU_SMALL_H
#define TESTS_GPU_SMALL_H
#include "ptx.h"

enum { IN = 1024, OUT = 4096 };
typedef struct Small {
  const char *body;
  const char *before; /* at module level; NULL: nothing */
  uint32_t threads, ctas, shared;
  PtxOptions options;
} Small;

char *small_text(const char *name, const char *before, const char *body); /* one entry, no head */
extern const char *const small_head;
/* false: error says why; out: OUT words, 0xffffffff where nothing was written */
bool small_run(const Small *s, uint32_t *out, char *error, int error_bytes);
#endif

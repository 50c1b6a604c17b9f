/* Test harness of kernels: text of kernel functions in, comparison with the interpreter out.

     Harness *h = harness_new("native");
     harness_add(h, "kernel @k%d(%%0 : f32[A:%d]) {\n  %%1 = exp %%0 : f32[A:%d]\n  return %%1\n}
   ..", ..); assert_int_equal(harness_run(h, 1e-5), 0);

   All kernels of a batch are tuned by their family, compiled in child processes, linked into one
   shared object and run: all chunks of a phase in a shuffled order, every buffer with the strides
   of its type between guards, scratch and workspace poisoned. Then results are compared with
   interp_call, and everything around their elements must be untouched. */
#ifndef SHARDC_TEST_HARNESS_H
#define SHARDC_TEST_HARNESS_H
#include "codegen/codegen.h"

typedef struct Running Running; /* harness_inside.h: one kernel and its buffers */

typedef struct Harness {
  Ctx *ctx;
  Arena *arena;
  const char *target;
  VEC(char) text;
  double low, high;          /* range of random floats, -2 .. 2 at first */
  int64_t int_low, int_high; /* of random ints, -1 .. 9 */
  bool whole;                /* random floats are whole numbers, results equal in every bit */
  VEC(int) inplace;          /* pairs argument, result: for every kernel of the batch */
  uint64_t random;           /* state */
  bool show;                 /* print tuned text of each kernel */
  bool relative;             /* tolerance * |x| + 1e-37 instead */
  int chunk;   /* setting target.chunk: small work per chunk, so that small shapes have many; 0: as
                  always */
  bool stream; /* caches that hold nothing: results are stored past them wherever they can be */
  int shift;   /* buffers begin this number of elements after a multiple of 64 bytes */
  bool vary;   /* cuts that a tuner may try instead of the rule's */
  bool pieces; /* the last dim of operands is contiguous, in pieces of 8 elements */
  bool quick;  /* all kernels as `compile --quick` makes them */
  bool unrun;  /* kernels are made, and that is all */
  const char *cut;      /* numbers of the cut of all kernels; NULL: the rule's */
  int64_t unit;         /* positions of long dims in such units, a bit each: numbers of operands */
  uint64_t near, asked; /* outside of near are NaN, results are compared in asked alone: what need
                           not be read is not; 0: all, all */
  bool most;            /* on a GPU: cuts for those that allow most shared memory */
  int multiprocessors;  /* of a GPU, for resident kernels; 0: those of its target */
  int spare;            /* multiprocessors besides, which kernels with `cut` leave to messages */
  bool unfilled; /* all places of experts are empty; on a GPU nobody has written argument 1 */
  int workers;   /* setting target.workers, 2 at first: more workers, more chunks */
  bool (*run)(Running *r);      /* all phases of a kernel; false: reported */
  void *library;                /* of the kernels, for run */
  struct GpuProducts *products; /* of the kernel that ran last on a GPU (harness_gpu.h); NULL: none
                                 */
} Harness;

/* Whether this target is by another name what the suite tests already ($SHARDC_TESTED names it):
   the seeds are the same, so would be the kernels. Says so; the test then ends with this status. */
enum { HARNESS_SKIPPED = 77 };
bool harness_tested(const char *target);

Harness *harness_new(const char *target);
void harness_free(Harness *h);
/* Appends text of a kernel function; the text contains attribute family. */
void harness_add(Harness *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Number of kernels whose results differ from the interpreter's by more than tolerance * (1 + |x|),
 * or that fail otherwise. */
int harness_run(Harness *h, double tolerance);
/* The same of n kernels with caches that hold nothing, so that results pass them wherever they can:
   in buffers that begin `shift` elements after a line, or the first two in those of operands. */
typedef void HarnessMake(Harness *h, int i);
int harness_streamed(const char *target, HarnessMake *make, int n, int shift, bool in_place,
                     double tolerance);
/* The same for the kernel functions of a module after `select` that is in h->ctx, with results in
   the buffers of operands wherever a caller shares them. */
int harness_check(Harness *h, Module *m, double tolerance);
/* Some other cuts than the rule's of the kernels of a module after `select`. */
void harness_vary(Harness *h, Module *m);
/* By the precision of the plan: a result that is rounded to 16 bits may be one unit off, factors of
   tf32 have ten bits. Sets the range of random floats. */
double harness_tolerance(Harness *h, const Module *m);
/* The numbers of a batch that harness_keep.h kept, from its settings. */
void harness_read_numbers(Harness *h, const Module *m, double *tolerance);
/* One kernel function of such a module by h->run, which the caller has set; how often it failed. */
int harness_kernel(Harness *h, Module *m, const Fn *k, double tolerance);
int64_t harness_random(Harness *h, int64_t low, int64_t high); /* inclusive */
/* A type such as "f32[A:3, B:5] {strides(8, 1)}" of an argument: dims sometimes in another order,
   sometimes padded strides; the same for the (first) result of an op; and plainly dense, of either.
 */
const char *harness_result(Harness *h, const char *elem, int n, const char *const *dim,
                           const int64_t *size);
const char *harness_type(Harness *h, const char *elem, int n, const char *const *dim,
                         const int64_t *size);
const char *harness_dense(Harness *h, const char *elem, int n, const char *const *dim,
                          const int64_t *size);
/* Kernel @k<i>: a product and, for norms of gradients, the sums over its rows of the squares of the
   stored results. */
void harness_squares(Harness *h, int i, const char *elem, int64_t width);
/* ns of processor time per call of all phases of a kernel, best of `times`; for benchmarks. The
 * kernel must be the only one. */
double harness_time(Harness *h, int times);
#endif

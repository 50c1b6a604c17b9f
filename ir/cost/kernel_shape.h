/* The shape of a kernel: all that a forecast of its seconds depends on, besides the machine. Tuning
   records hold it, so that shapes without a record are forecast by the nearest one with a record
   (kernel_record.h). */
#ifndef SHARDC_KERNEL_SHAPE_H
#define SHARDC_KERNEL_SHAPE_H
#include "ir/ir.h"

typedef enum KernelPart { /* of a kernel's time in a forecast */
                          PART_PRODUCTS,
                          PART_ATTENTION,
                          PART_MEMORY,
                          PART_LAUNCH,
                          KERNEL_PARTS
} KernelPart;

/* Sizes of a product; of attention. */
enum { SHAPE_BATCH, SHAPE_ROWS, SHAPE_COLUMNS, SHAPE_TERMS, SHAPE_SIZES };
/* Queries are those of all heads; block: columns of a tile by warpgroups, 1: there is none. */
enum { SHAPE_QUERIES, SHAPE_KEYS, SHAPE_WIDTH, SHAPE_BLOCK };

typedef struct KernelShape {
  KernelPart part; /* products, attention, or memory */
  bool grad;       /* attention, backward */
  Elem elem; /* of the first operand, u8: codes of 8 bits; of products and attention, as the sizes
              */
  double size[SHAPE_SIZES]; /* 1: not used */
  double flop, bytes;
  double functions, packed; /* of a product, not in records: numbers whose function takes many
                               instructions; numbers of the left operand, if they are packed */
  int spare;      /* not in records: multiprocessors that a kernel on a GPU leaves to messages */
  struct {        /* not in records: of a product by warpgroups, once it is cut */
    int by;       /* enum GemmBy, of attention as well; 0: another kernel */
    int columns;  /* of its tiles */
    int elements; /* per result, arguments that bulk copies bring; 1 for sums */
    bool shares;  /* multiprocessors have equal shares of the terms */
  } groups;
} KernelShape;

typedef struct KnownShape {
  const Fn *kernel;
  KernelShape shape;
} KnownShape;
typedef struct KnownWork {
  const Fn *kernel;
  double flop, bytes, codes; /* operations; of these on codes of 8 bits */
} KnownWork;
typedef struct KnownStretch {
  const Fn *kernel;
  int64_t threads;
  double stretch;
} KnownStretch;
typedef struct KernelShapes { /* of programs whose kernels do not change meanwhile */
  VEC(KnownShape) at;
  VEC(KnownStretch) stretch;
  VEC(KnownWork) work;
} KernelShapes;

KernelShape kernel_shape(const Module *m, const Fn *kernel);
/* The same, found once for each kernel; known: NULL: each time. */
KernelShape kernel_shape_once(const Module *m, KernelShapes *known, const Fn *kernel);
/* kernel_stretch of that number of threads (ir/kernel/chunks.h). */
double kernel_stretch_once(const Module *m, KernelShapes *known, const Fn *kernel, int64_t threads);
KnownWork kernel_work_once(const Module *m, KernelShapes *known, const Fn *kernel);
/* f32 1024 2304 ..: all but the family, in m's arena. */
const char *kernel_shape_text(Arena *arena, const KernelShape *shape);
/* family: contract, attention, attention_grad. False: it is no such text. */
bool kernel_shape_read(const char *family, const char *text, KernelShape *shape);
#endif

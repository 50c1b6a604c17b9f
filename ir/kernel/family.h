/* Kernel families: what must hold of the functions of each, and what follows from the cuts that
   `select` makes of them, for processors and for GPUs. The rules ask it (passes/tune), the verifier
   asks it, and the code generators believe it. One constant NAME_family per row of families.def, in
   a file of that name. */
#ifndef SHARDC_FAMILY_H
#define SHARDC_FAMILY_H
#include "gpu_plan.h"

/* A cut of a kernel for a processor, whose tile has as many numbers as its family says. */
typedef struct CpuCut {
  const Module *m;
  const Fn *k;
  int lanes;
  const int64_t *tile, *chunks;
} CpuCut;

typedef struct CpuPlan { /* what follows from it */
  bool none;             /* no kernel of this target can be made so */
  int phases;
  int64_t chunks[2]; /* 0: any number is right, for they cut units in even ranges */
  int64_t scratch, workspace;
} CpuPlan;

typedef struct FamilyShape {
  /* ops other than POINT and STRUCT ones: bits of op families; the one that makes a kernel (SCAN
     counts as REDUCE; ELEM: none), and how many of them: a row may have lost all, if they had no
     reader */
  unsigned beside;
  OpFamily heart;
  int least, most;
  const char *(*heart_fault)(const Fn *k, const Op *heart);        /* NULL: nothing more is asked */
  enum { REDUCES_NOTHING, REDUCES_ROWS, REDUCES_COLUMNS } reduces; /* row_share.c has the rules */
  /* whether a result may be computed in an operand's buffer: never, or only if that many results
     are as large as it is */
  int in_place;

  /* processors */
  int tile;                                 /* numbers of attribute tile */
  int (*count_tile)(Arena *a, const Fn *k); /* .. if they depend on the kernel */
  int needed;                               /* number of them from 1 on; 0: all */
  int unroll;                               /* index of the number that unrolls, like all after it;
                                               0: none */
  const char *variants[3];                  /* NULL: any */
  CpuPlan (*plan)(const CpuCut *c);
  void (*weigh)(const CpuCut *c, double *work); /* of each chunk of the last phase; NULL: of the
                                                   first one, all equal */

  /* GPUs; NULL: none are built yet */
  const char *gpu_variants; /* with spaces around each */
  void (*gpu_plan)(GpuCut *x);
} FamilyShape;

enum { IN_PLACE_NEVER = 0, IN_PLACE_ONE = 1, IN_PLACE_ANY = INT32_MAX, FAMILY_MANY = INT32_MAX };

const FamilyShape *family_shape(const Fn *k);    /* by attribute family; NULL: it is none's */
bool family_is_argument(const Fn *k, ValueId v); /* .. or one under a cast */
void gpu_plan_column(GpuCut *cut, const GpuRows *rows); /* for row kernels with this cut as well */

#endif

/* Families whose kernels have variants: the contents of a cut of a kernel, the legal cuts, and the
   cuts that a tuner should try in addition to the rule's. A family declares its own in its rules
   (tune.h).

   A cut is the list of numbers that attribute `tile` holds (on GPUs its first ones); variant,
   chunks, threads, shared and scratch follow from it and from the kernel. `select` takes the cut of
   the tuning records if there is one, else the rule's.

   A program that measures kernels works like this, for processors and GPUs alike
   (driver/tune/cmd_tune.c does): run the pipeline up to `order`; tune_kernels (tune_measure.h)
   lists the kernels, each key once; begin with rule(), let vary() offer neighbours for stages 0 ..
   TUNE_STAGES - 1, keep those that fits() accepts, put each cut on a copy of the kernel with
   apply(), build the copies with kernels_build. On a GPU the file of SYMBOL in DIR then has one
   entry SYMBOL_pN per phase, whose launch is in the attributes chunks (CTAs), threads, shared and
   workspace. `compile --tune-db` uses a TuneRecord (tune_db.h) of the best cut, with the name of
   the target and 1 as its workers. */
#ifndef SHARDC_VARIANTS_H
#define SHARDC_VARIANTS_H
#include "ir/ir.h"

enum { TILE_MOST = 12, TUNE_STAGES = 4 };

typedef struct KernelLimits { /* target properties that the rules read */
  double filled; /* share of the work of a product that is not skipped (ir/cost/count.h) */
  int64_t registers, l2, workers;
  int lanes;
  bool bf16_dot, bf16_dot_fast, amx;
} KernelLimits;

KernelLimits machine_of(const Module *m);

typedef struct Cut {
  int64_t at[TILE_MOST];
} Cut;

typedef VEC(Cut) CutList;

typedef struct Variants {
  const char *family, *alias; /* alias: the common name; NULL: no other name */
  int count;                  /* numbers of a cut */
  Cut (*rule)(const Module *m, const Fn *k);
  bool (*fits)(const Module *m, const Fn *k, const Cut *c); /* can a kernel be made with it? */
  void (*apply)(Module *m, Fn *k, const Cut *c);            /* sets the attributes */
  /* Cuts that differ from `from` in one decision. Decisions come in stages 0, 1, ..; wide: every
     choice worth a try, else the two or three next ones. Some may not fit. */
  void (*vary)(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out);
  const char *(*shape)(Module *m, const Fn *k); /* for people: m256-n2304-k768 */
} Variants;

/* By name or alias, of kernels for processors or for GPUs; NULL: it has none. */
const Variants *variants_find(const char *family, DeviceKind device);
const Variants *variants_row(int i, DeviceKind device); /* NULL after the last */

/* The key of a record: the shape and a hash of the kernel function's text without its name,
   attributes and positions, its dims named in order. */
Str variants_key(Module *m, const Variants *variants, const Fn *k);

/* The setting that holds the cut for kernels of that key: tune.FAMILY.KEY = "16 3 1 ..". */
const char *variants_setting(Module *m, const Variants *variants, Str key);
Str variants_text(Module *m, const Variants *variants, const Cut *cut);
bool variants_read(const Variants *variants, const char *text,
                   Cut *cut); /* exactly count whole numbers */
#endif

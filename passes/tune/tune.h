/* Tuning of kernels, called by pass `select`: per family one function that sets the attributes
   variant, tile, chunks, scratch and workspace of a kernel function. They read the function's
   types and strides and the settings target.*; emitters take these attributes as given. The result
   depends on the function alone: equal functions get equal attributes. Families with variants
   (variants.h) split this in two: the rule that chooses a cut, and the attributes that follow from
   a cut. */
#ifndef SHARDC_TUNE_H
#define SHARDC_TUNE_H
#include "ir/kernel/flash_gpu.h"
#include "ir/kernel/product.h"
#include "variants.h"

/* One constant NAME_rules per row of ir/kernel/families.def, in tune_NAME.c. */
typedef struct FamilyRules {
  void (*cpu)(Module *m, Fn *k);               /* sets the attributes of a cut for processors */
  void (*gpu)(Module *m, Fn *k);               /* .. for GPUs (gpu.h); NULL: not built yet */
  const Variants *cpu_variants, *gpu_variants; /* NULL: none */
  /* The best cut where a CTA may have `limit` bytes of shared memory; false: the rule's is as good;
     NULL: none depends on it. */
  bool (*larger)(const Module *m, const Fn *k, int64_t limit, Cut *best);
} FamilyRules;

const FamilyRules *family_rules(Str family); /* NULL: there is none of that name (families.c) */
/* Cuts k by the rule of its family for the target of m. False: a diagnostic was given. */
bool tune_by_rule(Module *m, Fn *k);

void tune_nontemporal(Module *m, Fn *k); /* for families elem, row and scatter */

/* E0311 at the word of a layout whose blocks do not fit in `who` (listed.c). */
void listed_refuse(Module *m, const Fn *f, const Op *attention, ValueId mask, const char *who,
                   const char *why);
/* The same for a kernel, if `too_many`: `what` names the list that exceeds the target's
   `listed`. */
void listed_check(Module *m, const Fn *k, const Flash *f, bool too_many, const char *what);

#define VARIANTS_OF(name)                                                                          \
  Cut name##_rule(const Module *m, const Fn *k);                                                   \
  bool name##_fits(const Module *m, const Fn *k, const Cut *c);                                    \
  void name##_apply(Module *m, Fn *k, const Cut *c);                                               \
  void name##_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out);   \
  const char *name##_shape(Module *m, const Fn *k);

VARIANTS_OF(contract)
/* The cut with as many chunks as the rule would choose for its tile, packing and blocks of k. */
Cut contract_chunked(const Module *m, const Fn *k, const Cut *from);
VARIANTS_OF(attention) /* and attention_grad */
VARIANTS_OF(gpu_contract)
VARIANTS_OF(gpu_attention) /* rule: {0} where none fits */
/* FamilyRules.larger */
bool gpu_contract_larger(const Module *m, const Fn *k, int64_t limit, Cut *best);
bool gpu_attention_larger(const Module *m, const Fn *k, int64_t limit, Cut *best);
enum {
  CONTRACT_COUNT = TILE_COUNT,
  ATTENTION_COUNT = FLASH_COUNT,
  GPU_CONTRACT_COUNT = GEMM_BY + 1,
  GPU_ATTENTION_COUNT = FLASH_GPU_STAGES + 1
};

#endif

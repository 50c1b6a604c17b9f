/* Loss scaling of plans in f16 (loss_scale.c). */
#ifndef SHARDC_LOSS_SCALE_H
#define SHARDC_LOSS_SCALE_H
#include "passes/base/rebuild.h"

/* The first gradient of backward: 1, or the scale of this step, f32[]. */
ValueId loss_scale_seed(Module *m, Fn *f, Elem e, Loc loc);

typedef struct LossScale { /* in entry step */
  ValueId now, inverse;    /* f32[]; NO_VALUE: there is none */
  ValueId skipped;         /* i32[]: steps left out before this one */
} LossScale;

LossScale loss_scale_load(Module *m, Fn *f);
/* The scale of the next step. loss, norm: bool[], whether they are finite; loss may be NO_VALUE. */
void loss_scale_step(Module *m, Fn *f, const LossScale *scale, ValueId loss, ValueId norm);
/* Entry init stores the first scale. */
void loss_scale_begin(Module *m);
#endif

/* Checks `states` of `optim` (passes/math/optimizer.c): the optimizer must keep moments, and the
   type must be able to represent their decay. bf16 has 8 significant bits and rounds to nearest: a
   moment that loses less than half of its last bit in a step, 1/256 to 1/512 of it, does not fall
   at all. Must not: judge the effect on the loss. */
#include "train.h"
#include "frontend/settings/settings.h"
#include "ir/plan/optimizers.h"

static void check_kept(Eval *e, const AstItem *train, const AstValue *states) {
  const AstValue *momentum = settings_value(train, "optim", "momentum");
  Report *r = eval_error(e, "E0602", states->span,
                         "`states` is how the velocity is kept, and `momentum = 0` keeps none");
  diag_help(r, "`momentum = 0.9` is usual; or leave `states` out");
  if (momentum) diag_edit(r, momentum->span, "0.9");
}

/* Checks the decay of a moment, which is element `at` of a list, or a single number. */
static void check_decay(Eval *e, const AstValue *states, double decay, Str which, Str instead) {
  enum { LAST_BIT = 256 }; /* bf16: half of it is at most so small a part of a number */
  if (1 - decay >= 1.0 / LAST_BIT) return;
  world_warn(e->w, "W0503", states->span,
             arena_printf(e->arena,
                          "%s can grow but never falls in bf16: a decay of %g subtracts %.2g of it "
                          "a step, and rounding undoes less than 1/%d",
                          which, decay, 1 - decay, LAST_BIT),
             arena_printf(e->arena, "a decay of at most 1 - 1/%d, such as `%s`; or `states = f32`",
                          LAST_BIT, instead));
}

void check_states(Eval *e, const AstItem *train) {
  const AstValue *states = train ? settings_value(train, "optim", "states") : NULL;
  if (!states || states->kind != VALUE_PATH) return;
  const OptimizerRow *row = block_optimizer(e, train);
  bool velocity = row && !strcmp(row->states, "momentum");
  double betas[2], momentum = settings_number(train, ITEM_TRAIN, "optim", "momentum");
  if (velocity && momentum <= 0) check_kept(e, train, states);
  if (strcmp(states->path->text, "bf16")) return;
  if (velocity) {
    check_decay(e, states, momentum, "the velocity", "momentum = 0.9");
    return;
  }
  if (settings_numbers(train, "optim", "betas", betas, 2) < 2) return;
  if (!strcmp(row->states, "m")) { /* betas[0] is a share of the step */
    check_decay(e, states, betas[1], "the momentum", "betas = [0.9, 0.99]");
    return;
  }
  check_decay(e, states, betas[0], "the first moment", "betas = [0.9, 0.95]");
  check_decay(e, states, betas[1], "the second moment", "betas = [0.9, 0.95]");
}

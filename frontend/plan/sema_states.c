/* What `states` of `optim` asks for (passes/math/optimizer.c): a moment to be kept, and one that
   its type can hold. bf16 has 8 significant bits, and rounding is to the nearest: a moment from
   which a step takes less than half of its last bit, a 256th to a 512th of it, does not fall at
   all. Must not: judge what that does to a loss. */
#include "sema_plan.h"

static void check_kept(Eval *e, const AstItem *train, const AstValue *states) {
  const AstValue *momentum = settings_value(train, "optim", "momentum");
  Report *r = eval_error(e, "E0602", states->span,
                         "`states` is how the velocity is kept, and `momentum = 0` keeps none");
  diag_help(r, "`momentum = 0.9` is usual; or leave `states` out");
  if (momentum) diag_edit(r, momentum->span, "0.9");
}

/* The decay of a moment, which stands at `at` of a list, or alone. */
static void check_decay(Eval *e, const AstValue *states, double decay, Str which, Str instead) {
  enum { LAST_BIT = 256 }; /* bf16: half of it is at most so small a part of a number */
  if (1 - decay >= 1.0 / LAST_BIT) return;
  world_warn(e->w, "W0503", states->span,
             arena_printf(e->arena,
                          "in bf16 %s with a decay of %g does not fall: a step takes %.2g of it, "
                          "and its last bit is up to 1/%d",
                          which, decay, 1 - decay, LAST_BIT / 2),
             arena_printf(e->arena, "a decay of at most 1 - 1/%d, such as `%s`; or `states = f32`",
                          LAST_BIT, instead));
}

void check_states(Eval *e, const AstItem *train) {
  const AstValue *states = train ? settings_value(train, "optim", "states") : NULL;
  if (!states || states->kind != VALUE_PATH) return;
  bool velocity = !strcmp(settings_word(e->ctx, train, ITEM_TRAIN, "optim", NULL), "sgd");
  double betas[2], momentum = settings_number(train, ITEM_TRAIN, "optim", "momentum");
  if (velocity && momentum <= 0) check_kept(e, train, states);
  if (strcmp(states->path->text, "bf16")) return;
  if (velocity) {
    check_decay(e, states, momentum, "the velocity", "momentum = 0.9");
    return;
  }
  if (settings_numbers(train, ITEM_TRAIN, "optim", "betas", betas, 2) < 2) return;
  check_decay(e, states, betas[0], "the first moment", "betas = [0.9, 0.95]");
  check_decay(e, states, betas[1], "the second moment", "betas = [0.9, 0.95]");
}

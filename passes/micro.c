/* micro: Batch is cut over time. Not needed when plan.micro is absent or the whole batch. */
#include "passes/internal.h"

void pass_micro(Module *m) {
  if (!module_setting(m, "plan.micro", NULL)) return;
  diag_at(m->ctx->diag, "E0901", (Span){0}, "`micro` below the batch is not built yet");
}

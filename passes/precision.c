/* precision: element types of compute, gradients and master weights, from setting plan.precision.

   f32 only: types stay as they are. Anything else is refused here, before a later pass could
   mistake it for f32. */
#include "passes/internal.h"
#include <string.h>

void pass_precision(Module *m) {
  Str p = module_setting(m, "plan.precision", "f32");
  if (!strcmp(p, "f32") || !strcmp(p, "tf32")) return; /* on a processor tf32 is f32 */
  Report *r = diag_at(m->ctx->diag, "E0901", (Span){0}, "precision `%s` is not built yet", p);
  diag_help(r, "`precision f32`, or no such line");
}

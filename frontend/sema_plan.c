/* Plans against the model. */
#include "frontend/lower_build.h"

void check_plan(Eval *e, const Choice *c, const AstItem *plan) { (void)e, (void)c, (void)plan; }

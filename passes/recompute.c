/* recompute: what a loop's backward body reads is kept as it is (keep = all). */
#include "passes/internal.h"

void pass_recompute(Module *m) { (void)m; }

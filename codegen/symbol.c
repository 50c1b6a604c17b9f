/* The name of a kernel's code, from the name of its function. In a file of its own, because
   programs that only run kernels ask too, and need no LLVM. */
#include "codegen.h"
#include "ir/word_patterns.h"

const char *kernel_symbol(Module *m, const Fn *k) {
  return arena_printf(m->arena, "k_%s", text_symbol(m->arena, k->name));
}

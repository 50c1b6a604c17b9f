/* The name of a kernel's code, from the name of its function. In a file of its own, because
   programs that only run kernels ask too, and need no LLVM. */
#include "codegen.h"

const char *kernel_symbol(Module *m, const Fn *k) {
  char *s = arena_strndup(m->arena, k->name, strlen(k->name));
  for (char *c = s; *c; c++) {
    bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    if (!plain) *c = '_';
  }
  return arena_printf(m->arena, "k_%s", s);
}

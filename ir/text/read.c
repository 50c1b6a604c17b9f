/* A file of textual IR to a module: for programs other than the compiler, which has inputs of more
   kinds (driver/cmd_load.c). Must not: run or check anything. */
#include "ir/ir.h"
#include "ir/support/input.h"
#include <errno.h>

Module *ir_read(Ctx *c, const char *path) {
  size_t n;
  char *text = text_read(c, path, &n);
  if (text) return ir_parse(c, path, text, n);
  diag_at(c->diag, "E0001", (Span){0}, "cannot read `%s`: %s", path, strerror(errno));
  return NULL;
}

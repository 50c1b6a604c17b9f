/* A file of textual IR to a module: for programs other than the compiler, which has inputs of more
   kinds (driver/cmd_load.c). Must not: run or check anything. */
#include "ir/ir.h"
#include "ir/support/input.h"
#include "ir/support/refused.h"

Module *ir_read(Ctx *c, const char *path) {
  size_t n;
  char *text = text_read(c, path, &n);
  if (text) return ir_parse(c, path, text, n);
  diag_refused(c->diag, "E0001", CANNOT_READ, path);
  return NULL;
}

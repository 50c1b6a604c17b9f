/* A file of textual IR to a module: for programs beside the compiler, which has inputs of other
   kinds too (frontend/cmd_load.c). Must not: run or check anything. */
#include "ir.h"
#include <errno.h>

static void *unreadable(Ctx *c, const char *path) {
  diag_at(c->diag, "E0001", (Span){0}, "cannot read `%s`: %s", path, strerror(errno));
  return NULL;
}

Module *ir_read(Ctx *c, const char *path) {
  VEC(char) text = {0};
  char part[4096];
  FILE *f = fopen(path, "rb");
  if (!f) return unreadable(c, path);
  for (size_t got; (got = fread(part, 1, sizeof part, f)) > 0;)
    for (size_t i = 0; i < got; i++) vec_push(c->arena, text, part[i]);
  bool failed = ferror(f);
  fclose(f);
  if (failed) return unreadable(c, path);
  vec_push(c->arena, text, 0);
  return ir_parse(c, path, text.at, text.n - 1);
}

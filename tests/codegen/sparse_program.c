/* See sparse_program.h. */
#include "sparse_program.h"
#include "frontend/lower.h"
#include <stdlib.h>
#include <unistd.h>

Module *sparse_program(Ctx *c, const char *text, const char *type) {
  char path[] = "/tmp/shardc-sparse-XXXXXX.shard";
  int fd = mkstemps(path, 6);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) return NULL;
  close(fd);
  const char *sets[] = {arena_printf(c->arena, "plan.precision=%s", type)};
  LowerOptions o = {.path = path, .sets = sets, .nsets = 1};
  Module *m = lower_program(c, &o);
  unlink(path);
  return m;
}

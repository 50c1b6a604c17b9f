/* The losses of the first steps of a dump after pass `optimizer`, by the interpreter: losses DUMP
   FOLDER STEPS. Inputs are read from FOLDER/NAME.f64 (dense doubles); the seed is 0. One line per
   step. */
#include "ir/interp/interp.h"
#include <stdlib.h>
#include <string.h>

static char *read_all(Ctx *c, const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) exit(2);
  size_t most = 1 << 22;
  char *text = arena_alloc(c->arena, most);
  *n = fread(text, 1, most - 1, f);
  fclose(f);
  return text;
}

int main(int argc, char **argv) {
  Ctx *c = ctx_new();
  size_t n;
  if (argc != 4) return 2;
  const char *text = read_all(c, argv[1], &n);
  Module *m = ir_parse(c, argv[1], text, n);
  if (!m) return 1;
  Interp *in = interp_new(m, c->arena);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    if (g->kind != GLOBAL_INPUT || !strncmp(g->name, "logits.", 7)) continue;
    const void *v = read_all(c, arena_printf(c->arena, "%s/%s.f64", argv[2], g->name), &n);
    if (n != sizeof(double) * (size_t)type_count(&g->type)) return 2;
    interp_set(in, g->name, v);
  }
  interp_set_all(in, "seed", 0);
  if (!interp_run(in, "init")) return fprintf(stderr, "%s\n", interp_error(in)), 1;
  for (int step = 0; step < atoi(argv[3]); step++) {
    interp_set_all(in, "step", step);
    if (!interp_run(in, "step")) return fprintf(stderr, "%s\n", interp_error(in)), 1;
    printf("%.9g\n", interp_get(in, "loss")->at[0]);
  }
  ctx_free(c);
  return 0;
}

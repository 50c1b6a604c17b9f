/* Trains a model in the interpreter: interpret FILE.shard VALUES STEPS. Runs every pass, verified,
   then `init` and STEPS times `step` in poisoned bytes by the placement, and prints the losses.
   VALUES holds the contents of globals after init: per global its name, the number of elements and
   the elements as doubles (interpret.py writes it). */
#include "frontend/lower.h"
#include "ir/interp/interp.h"
#include "passes/pass.h"
#include <stdlib.h>

static Module *compiled(Ctx *c, const char *path) {
  LowerOptions options = {.path = path};
  Module *m = lower_program(c, &options);
  if (!m) return NULL;
  m->target.l3 = 32 << 20, m->target.workers = 2;
  target_named(&m->target, intern(c->names, "x86_64_v3"));
  return pipeline_run(m, &(PipelineOptions){.verify = true}) ? m : NULL;
}

static bool set_values(Interp *in, Arena *a, const char *path) {
  char name[256];
  long n;
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  bool fine = true;
  while (fine && fscanf(f, "%255s%ld", name, &n) == 2) {
    double *x = ARENA_ARRAY(a, double, n);
    const Tensor *t = interp_get(in, name);
    fine = fgetc(f) == '\n' && fread(x, sizeof *x, (size_t)n, f) == (size_t)n && t &&
           type_count(&t->type) == n;
    if (fine) interp_set(in, name, x);
    else fprintf(stderr, "%s: %ld values do not fit\n", name, n);
  }
  fclose(f);
  return fine;
}

static bool train(Interp *in, int steps) {
  for (int s = 0; s < steps; s++) {
    if (interp_get(in, "step")) interp_set_all(in, "step", s);
    if (!interp_run_placed(in, "step")) return false;
    printf("%.9g\n", interp_get(in, "loss")->at[0]);
  }
  return true;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  Ctx *c = ctx_new();
  Module *m = compiled(c, argv[1]);
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  if (!m) return 1;
  Interp *in = interp_new(m, c->arena);
  bool fine = interp_run_placed(in, "init") && set_values(in, c->arena, argv[2]) &&
              train(in, atoi(argv[3]));
  if (interp_error(in)) fprintf(stderr, "%s\n", interp_error(in));
  ctx_free(c);
  return !fine;
}

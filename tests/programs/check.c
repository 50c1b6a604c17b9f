/* One random program, all the way down in the interpreter: check [PLANS] FILE...
   PLANS: how many random plans for each, 1 if there is no number.

   The module as lowered is the oracle. Against it: the loss and outputs after the whole pipeline,
   with micro-batches of one sample, and, pass by pass, under a plan drawn at random (micro-batches;
   what each stack keeps: all, inputs, nothing, the best within a budget, layers of a stack apart);
   the parameters after one step of plain SGD with rate 1, so that a parameter moves by its
   gradient; and that gradient against central differences of the lowered loss in doubles, a few
   elements per parameter, unless the program stops gradients. Each file runs in a process of its
   own: an internal error is one failure, not the end. */
#include "inputs.h"
#include "frontend/lower.h"
#include "ir/made.h"
#include "ir/interp/interp.h"
#include "passes/pass.h"
#include "tests/common/limit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROBES = 3 };

typedef struct Side { /* one module and its interpreter */
  const char *name;
  Ctx *c;
  Module *m;
  Interp *in;
} Side;

static void set_if_there(Interp *in, const char *name, const double *v) {
  if (interp_get(in, name)) interp_set(in, name, v);
}

static void set_inputs(const Side *side, int n) {
  const Module *m = side[0].m;
  static const double seed = 5, step = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t count = type_count(&g->type);
    double *v = ARENA_ARRAY(side[0].c->arena, double, count + 1);
    for (int64_t k = 0; k < count; k++) v[k] = g->kind == GLOBAL_INPUT ? input_value(m, g) : 0;
    for (int s = 0; s < n && g->kind == GLOBAL_INPUT; s++) set_if_there(side[s].in, g->name, v);
  }
  for (int s = 0; s < n; s++)
    set_if_there(side[s].in, "seed", &seed), set_if_there(side[s].in, "step", &step);
}

static bool fail(Ctx *c, const char *what) {
  printf("%s\n", what);
  diag_print(c->diag, stdout, DIAG_HUMAN, false);
  return false;
}

static void describe(Module *m) {
  m->target.workers = 2, m->target.join = true, m->target.sums = true;
  m->target.squares = 1;
}

static bool through_shardc(Side *s, const char *text, size_t n, const char *until,
                           const char *micro) {
  s->c = ctx_new();
  s->m = ir_parse(s->c, "copy", text, n);
  if (!s->m) return fail(s->c, "the dump does not read back");
  describe(s->m);
  if (micro) module_set(s->m, "plan.micro", "%s", micro);
  PipelineOptions o = {.verify = true, .until = until};
  if (!pipeline_run(s->m, &o)) return fail(s->c, "a pass failed");
  s->in = interp_new(s->m, s->c->arena);
  return true;
}

static bool same(const Side *a, const Side *b, Str name, double tolerance) {
  const Tensor *x = interp_get(a->in, name), *y = interp_get(b->in, name);
  double worst = 0, largest = 0;
  if (!y) return printf("%s: %s is missing\n", b->name, name), false;
  for (int64_t i = 0; i < type_count(&x->type); i++) {
    if (x->at[i] == y->at[i] || (isnan(x->at[i]) && isnan(y->at[i]))) continue;
    worst = fmax(worst, isnan(x->at[i] - y->at[i]) ? INFINITY : fabs(x->at[i] - y->at[i]));
    largest = fmax(largest, fabs(x->at[i]));
  }
  if (worst <= tolerance * (largest + 1e-3)) return true;
  return printf("%s: %s differs by %g of %g from %s\n", b->name, name, worst, largest, a->name),
         false;
}

static bool run_entries(const Side *s) {
  static const char *const entries[] = {"init", "eval", "logits", "step"};
  for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
    if (!interp_run(s->in, entries[e]))
      return printf("%s, %s: %s\n", s->name, entries[e], interp_error(s->in)), false;
  return true;
}

static bool run_all(const Side *side, int n) {
  for (int s = 0; s < n; s++)
    if (!run_entries(&side[s])) return false;
  return true;
}

static bool compare(const Side *lower, const Side *update, const Side *whole, const Side *micro) {
  bool good = true;
  for (uint32_t i = 0; i < lower->m->globals.n; i++) {
    const Global *g = lower->m->globals.at[i];
    if (g->kind == GLOBAL_OUTPUT && !made_rule(g->name))
      good &= same(lower, update, g->name, 1e-4) && same(lower, whole, g->name, 1e-4);
    if (g->kind == GLOBAL_OUTPUT && strstr(g->name, "loss"))
      good &= same(lower, micro, g->name, 1e-4);
    if (g->kind == GLOBAL_PARAM)
      good &= same(update, whole, g->name, 2e-4) && same(update, micro, g->name, 2e-4);
  }
  return good;
}

/* ---- gradients ---- */

static double loss_with(Interp *in, const char *name, double *v, int64_t at, double value) {
  double keep = v[at];
  v[at] = value;
  interp_set(in, name, v);
  interp_run(in, "step");
  v[at] = keep;
  interp_set(in, name, v);
  return interp_get(in, "loss")->at[0];
}

/* NAN where two distances disagree: a kink is near */
static double slope(Interp *in, const char *name, double *v, int64_t at) {
  static const double e[] = {3e-5, 1e-5};
  double d[2];
  for (int i = 0; i < 2; i++)
    d[i] = (loss_with(in, name, v, at, v[at] + e[i]) - loss_with(in, name, v, at, v[at] - e[i])) /
           (2 * e[i]);
  return fabs(d[0] - d[1]) <= 1e-4 * (fabs(d[0]) + 1e-3) ? d[1] : NAN;
}

static bool probe(Interp *exact, const Side *lower, const Side *update, const Global *g,
                  double norm) {
  const Tensor *before = interp_get(lower->in, g->name), *after = interp_get(update->in, g->name);
  int64_t n = type_count(&g->type);
  double *v = ARENA_ARRAY(lower->c->arena, double, n);
  bool good = true;
  memcpy(v, before->at, sizeof *v * (size_t)n);
  for (int i = 0; i < PROBES; i++) {
    int64_t at = (int64_t)draw((uint64_t)n);
    double want = slope(exact, g->name, v, at), have = before->at[at] - after->at[at];
    if (isnan(want) ||
        fabs(want - have) <= 2e-3 * fabs(want) + 2e-4 * (norm + 1e-3 * fabs(v[at])) + 1e-6)
      continue;
    printf("gradient of %s[%lld] is %g, differences say %g\n", g->name, (long long)at, have, want);
    good = false;
  }
  return good;
}

static double gradient_norm(const Side *lower, const Side *update) {
  double sum = 0;
  for (uint32_t i = 0; i < lower->m->globals.n; i++) {
    const Global *g = lower->m->globals.at[i];
    const Tensor *x = interp_get(lower->in, g->name), *y = interp_get(update->in, g->name);
    for (int64_t k = 0; g->kind == GLOBAL_PARAM && k < type_count(&g->type); k++)
      sum += (x->at[k] - y->at[k]) * (x->at[k] - y->at[k]);
  }
  return sqrt(sum);
}

/* Differences see through stop_gradient: gradients of such a file are compared between passes. */
static bool stops(const char *path) {
  char line[4096];
  bool found = false;
  FILE *f = fopen(path, "r");
  while (f && !found && fgets(line, sizeof line, f)) found = strstr(line, "stop_gradient(") != NULL;
  if (f) fclose(f);
  return found;
}

static bool check_gradients(Side *lower, const Side *update) {
  Side exact = *lower;
  bool good = true;
  exact.in = interp_new(lower->m, lower->c->arena);
  interp_set_round(exact.in, false);
  for (uint32_t i = 0; i < lower->m->globals.n; i++) {
    const Global *g = lower->m->globals.at[i];
    if (g->kind != GLOBAL_OUTPUT) interp_set(exact.in, g->name, interp_get(lower->in, g->name)->at);
  }
  double norm = gradient_norm(lower, update);
  for (uint32_t i = 0; i < lower->m->globals.n; i++)
    if (lower->m->globals.at[i]->kind == GLOBAL_PARAM && global_learns(lower->m->globals.at[i]))
      good &= probe(exact.in, lower, update, lower->m->globals.at[i], norm);
  return good;
}

/* ---- under a plan ---- */

static const char *random_keep(Module *m) {
  switch (draw(5)) {
  case 0: return "all";
  case 1: return "input";
  case 2: return "none";
  default: return arena_printf(m->arena, "auto budget = %d", 50 << draw(8));
  }
}

/* Kept values are split over an axis of the mesh, now and then. */
static const char *random_over(const Module *m) {
  if (!m->mesh.n || draw(3)) return "";
  return arena_printf(m->arena, " over %s", m->mesh.at[draw(m->mesh.n)].name);
}

/* One or two lines per stack, in the order of loops. */
static void random_lines(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      Str path = o->code == OP_loop ? attr_str(&o->attrs, ATTR_path, NULL) : NULL;
      if (!path || !draw(4)) continue;
      int64_t cut = (int64_t)draw((uint64_t)attr_int(&o->attrs, ATTR_trip, 1));
      ir_parse_line(m, arena_printf(m->arena, "recompute %s keep = %s%s", path, random_keep(m),
                                    random_over(m)));
      if (draw(2))
        ir_parse_line(m, arena_printf(m->arena, "recompute %s[0..%lld] keep = %s%s", path,
                                      (long long)cut, random_keep(m), random_over(m)));
    }
}

static void say_plan(const Module *m) {
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!strncmp(m->settings.at[i].key, "plan.", 5))
      printf("  %s = %s\n", m->settings.at[i].key, m->settings.at[i].value);
  for (uint32_t i = 0; i < m->recompute.n; i++)
    printf("  recompute %s\n", recompute_text(m->arena, &m->recompute.at[i]));
}

static bool too_small(Ctx *c) {
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  diag_print(c->diag, f, DIAG_SHORT, false);
  fclose(f);
  bool found = strstr(text, "E0710") != NULL;
  free(text);
  return found;
}

static void take_inputs(const Side *from, Side *to) {
  for (uint32_t i = 0; i < from->m->globals.n; i++) {
    const Global *g = from->m->globals.at[i];
    if (g->kind == GLOBAL_INPUT || g->kind == GLOBAL_SCALAR)
      set_if_there(to->in, g->name, interp_get(from->in, g->name)->at);
  }
}

static bool same_results(const Side *update, const Side *s) {
  bool good = true;
  for (uint32_t i = 0; i < update->m->globals.n; i++) {
    const Global *g = update->m->globals.at[i];
    if (g->kind == GLOBAL_PARAM || (g->kind == GLOBAL_OUTPUT && strstr(g->name, "loss")))
      good &= same(update, s, g->name, 2e-4);
  }
  return good;
}

/* Every pass of the pipeline by itself, the interpreter after each. */
static bool check_plan(const Side *update, const char *text, size_t n) {
  Side s = {.c = ctx_new()};
  s.m = ir_parse(s.c, "copy", text, n);
  describe(s.m);
  if (draw(3)) module_set(s.m, "plan.micro", "%d", 1 + (int)draw(2));
  if (draw(2)) s.m->target.block = 64 << draw(3);
  random_lines(s.m);
  uint32_t passes;
  bool updates = false;
  const Pass *list = pass_table(&passes);
  for (uint32_t i = 0; i < passes; i++) {
    PipelineOptions o = {.verify = true, .until = list[i].name};
    if (!list[i].run) continue;
    s.name = list[i].name;
    if (!pipeline_run(s.m, &o))
      return too_small(s.c) || (say_plan(s.m), fail(s.c, "a pass failed under a plan"));
    updates |= !strcmp(s.m->after, "optimizer");
    if (!updates) continue;
    s.in = interp_new(s.m, s.c->arena);
    take_inputs(update, &s);
    if (!run_entries(&s) || !same_results(update, &s)) return say_plan(s.m), false;
  }
  ctx_free(s.c);
  return true;
}

static bool check_plans(const Side *update, const char *text, size_t n, const char *path,
                        int plans) {
  uint64_t before = state;
  bool good = true;
  const char *slash = strrchr(path, '/');
  for (const char *p = slash ? slash : path; *p; p++) state = state * 31 + (unsigned char)*p;
  for (int i = 0; i < plans && good; i++) good = check_plan(update, text, n);
  state = before;
  return good;
}

static bool check_program_file(const char *path, int plans) {
  Side side[4] = {{.name = "lowered"},
                  {.name = "with updates"},
                  {.name = "after all passes"},
                  {.name = "in micro-batches"}};
  LowerOptions o = {.path = path};
  size_t n;
  side[0].c = ctx_new();
  side[0].m = lower_program(side[0].c, &o);
  if (!side[0].m || !ir_verify(side[0].m)) return fail(side[0].c, "not lowered");
  side[0].in = interp_new(side[0].m, side[0].c->arena);
  char *text = ir_print(side[0].m, &n);
  if (!through_shardc(&side[1], text, n, "optimizer", NULL) ||
      !through_shardc(&side[2], text, n, NULL, NULL) ||
      !through_shardc(&side[3], text, n, NULL, "1"))
    return false;
  set_inputs(side, 4);
  return run_all(side, 4) && compare(&side[0], &side[1], &side[2], &side[3]) &&
         check_plans(&side[1], text, n, path, plans) &&
         (stops(path) || check_gradients(&side[0], &side[1]));
}

int main(int argc, char **argv) {
  int failed = 0, status;
  int first = argc > 1 && atoi(argv[1]) ? 2 : 1, plans = first == 2 ? atoi(argv[1]) : 1;
  for (int i = first; i < argc; i++) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
      limit_processor_seconds(120);
      bool good = check_program_file(argv[i], plans);
      fflush(stdout);
      _exit(!good);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return 2;
    if (!status) continue;
    printf("%s: failed%s\n", argv[i], WIFSIGNALED(status) ? " by a signal" : "");
    failed++;
  }
  printf("%d programs, %d failed\n", argc - first, failed);
  return failed > 0;
}

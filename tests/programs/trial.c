/* One random program under its plans, all the way to numbers that kernels made: trial FILE...

   The oracle is the program under plan `one` with its gradients (pass `optimizer`), run by the
   interpreter in doubles: losses, outputs, and the parameters after one step of plain SGD with rate
   1, so that a parameter moves by its gradient. Every other plan of the file goes through all
   passes, each verified, and its kernels are compiled, all in this process. Then

     in doubles   the interpreter runs the module as it is after the last pass, its ranks as threads
                  where the plan has a mesh: this shows changes by passes, but no rounding, not even
                  that of messages in 8 bits (interp_set_exact_codes)
     by kernels   where the plan has no mesh, the same in bytes, as the executable would, every
                  kernel being the compiled one

   A difference within the accuracy of f32 is no fault: where kernels differ, the interpreter runs
   the very module with every result rounded to its element type, and the oracle with noise in its
   sums (passes/math/noise.h), and one of them must be off as far; a result without a significant
   digit in one of these runs (layers that norm equal numbers amplify rounding) is not compared.
   Plans that compute in 16 bits are equal if kernels are off at most twice as far as that.

   Plans run in a process of their own, which shares the compiled kernels; the end of a process is
   one failure, and the next plan gets a new one. A line `FILE PLAN OUTCOME` for each; OUTCOME is
   equal, refused (a diagnostic, no more), rounding, or wrong, which the exit status also tells.
   Where the oracle's plan is refused for samples that meet (E0706), the others must be refused.
   Terms of `aux` over the whole batch are those of each micro-batch: plans that cut the batch are
   proved equal in exact arithmetic alone. */
#include "inputs.h"
#include "tests/common/reported.h"
#include "codegen/codegen.h"
#include "frontend/lower.h"
#include "ir/interp/equal.h"
#include "ir/interp/interp_ranks.h"
#include "ir/plan/module_settings.h"
#include "jit.h"
#include "passes/math/noise.h"
#include "passes/pass.h"
#include "passes/simplify/simplify.h"
#include "tests/common/limit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 120, PLANS = 2, NOISES = 2 };
static const char *const plans[PLANS] = {"p0", "p1"};
static const double EXACT = 2e-5, CLOSE = 2e-4; /* folded constants are f32 in both */
static const double AMPLIFIED = 1e-2; /* errors of folded constants after layers that norm */
static const double NO_DIGIT = 0.1;   /* rounding of this size leaves none */
static const double NOISE = 0x1p-23;  /* the step between f32 numbers near 1 */

typedef enum Outcome { EQUAL, ROUNDING, REFUSED, WRONG, OUTCOMES } Outcome;
static const char *const words[] = {"equal", "rounding", "refused", "wrong"};

typedef struct Oracle {
  Ctx *c;
  Module *m;
  Interp *in;
  int noise; /* number of the noise in sums of the module; 0: none */
} Oracle;

/* ---- lowering, passes ---- */

/* Messages of shardc about itself: the verifier's, those of code generation, of broken passes. */
static bool is_internal(const char *text) {
  static const char *const codes[] = {"[E11", "[E13", "E1201", "E1202", "E1203", "internal error"};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (strstr(text, codes[i])) return true;
  return false;
}

static Outcome refused(Ctx *c) {
  const char *text = reported(c);
  bool internal = is_internal(text) || !strstr(text, "error[E");
  if (internal || getenv("SHOW_REFUSED")) printf("%s\n", text);
  else printf("because %.5s\n", strstr(text, "error[E") + strlen("error["));
  return internal ? WRONG : REFUSED;
}

static Module *lowered(Ctx *c, const char *path, const char *plan) {
  LowerOptions o = {.path = path, .plan = plan};
  Module *m = lower_program(c, &o);
  return m && ir_verify(m) ? m : NULL;
}

static bool make_oracle(Oracle *o, const char *path) {
  o->c = ctx_new();
  o->m = lowered(o->c, path, "one");
  PipelineOptions until = {.verify = true, .until = "optimizer"};
  if (!o->m || !pipeline_run(o->m, &until)) return false;
  return true;
}

/* ---- running ---- */

static const char *const entries[] = {"eval", "logits", "step"};

static const double *input_numbers(const Oracle *o, const Global *g) {
  int64_t n = type_count(&g->type);
  double *v = ARENA_ARRAY(o->c->arena, double, n + 1);
  for (int64_t k = 0; k < n; k++) v[k] = (float)input_value(o->m, g);
  return v;
}

/* Numbers of inputs are those of `like`, or drawn. */
static bool run_oracle(Oracle *o, bool rounded, const Interp *like) {
  o->in = interp_new(o->m, o->c->arena);
  interp_set_all(o->in, "seed", 5);
  if (o->noise) interp_set_all(o->in, NOISE_SCALAR, o->noise);
  interp_set_round(o->in, rounded);
  if (!interp_run(o->in, "init")) return false;
  interp_set_round(o->in, false);
  for (uint32_t i = 0; i < o->m->globals.n; i++) {
    const Global *g = o->m->globals.at[i];
    if (g->kind != GLOBAL_INPUT) continue;
    interp_set(o->in, g->name, like ? interp_get(like, g->name)->at : input_numbers(o, g));
  }
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
    if (module_fn(o->m, intern(o->c->names, entries[i])) && !interp_run(o->in, entries[i]))
      return false;
  return true;
}

typedef struct Runner { /* one rank, or many */
  Ranks *ranks;
  bool placed, round;
} Runner;

static bool is_there(Module *m, const char *name) {
  return module_global(m, intern(m->ctx->names, name)) != NULL;
}

static bool run_entry(const Runner *r, const char *entry) {
  bool fine = (r->placed ? ranks_run_placed : ranks_run)(r->ranks, entry);
  if (!fine) printf("%s: %s\n", entry, ranks_error(r->ranks));
  return fine;
}

static void set_inputs(const Oracle *o, Module *m, const Runner *r) {
  for (uint32_t i = 0; i < o->m->globals.n; i++) {
    const Global *g = o->m->globals.at[i];
    bool given = g->kind == GLOBAL_INPUT || g->kind == GLOBAL_SCALAR;
    if (!given || !is_there(m, g->name)) continue;
    const double *v = interp_get(o->in, g->name)->at;
    if (g->kind == GLOBAL_SCALAR) ranks_set_all(r->ranks, g->name, v[0]);
    else ranks_set(r->ranks, g->name, v);
  }
}

/* The oracle also starts from rounded parameters. */
static bool run_all(const Oracle *o, Module *m, const Runner *r, bool rounded) {
  set_inputs(o, m, r);
  ranks_set_round(r->ranks, rounded);
  if (!run_entry(r, "init")) return false;
  ranks_set_round(r->ranks, r->round);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
    if (module_fn(m, intern(m->ctx->names, entries[i])) && !run_entry(r, entries[i])) return false;
  return true;
}

/* ---- comparing ---- */

typedef struct Difference {
  double worst; /* share of the largest element */
  Str where;
} Difference;

static double share(const Tensor *x, const Tensor *y) {
  double worst = 0, largest = 1e-3;
  for (int64_t i = 0; i < type_count(&x->type); i++) {
    double a = x->at[i], b = y->at[i];
    if (fabs(a) > largest) largest = fabs(a);
    if (a == b || (isnan(a) && isnan(b))) continue;
    worst = fmax(worst, isnan(a - b) ? INFINITY : fabs(a - b));
  }
  return worst / largest;
}

static bool is_result(const Global *g) {
  return g->kind == GLOBAL_PARAM || (g->kind == GLOBAL_OUTPUT && strstr(g->name, "loss")) ||
         (g->kind == GLOBAL_OUTPUT && !strncmp(g->name, "out.", 4));
}

/* The same step where rounding differs: in bytes, and with noise in the sums. */
typedef struct Rounded {
  const Runner *bytes;
  Oracle noisy[NOISES];
} Rounded;

static double rounding_of(const Rounded *rounded, const Oracle *o, Str name) {
  const Tensor *x = interp_get(o->in, name);
  double most = share(x, ranks_get(rounded->bytes->ranks, name));
  for (int i = 0; i < NOISES; i++)
    most = fmax(most, share(x, interp_get(rounded->noisy[i].in, name)));
  return most;
}

/* `rounded`: results in which it leaves no digit are not compared, and the largest rounding of the
   others is in *rounding; or NULL. */
static Difference difference(const Oracle *o, Module *m, const Runner *r, const Rounded *rounded,
                             Difference *rounding) {
  Difference d = {0, NULL};
  for (uint32_t i = 0; i < o->m->globals.n; i++) {
    const Global *g = o->m->globals.at[i];
    if (!is_result(g) || (g->kind == GLOBAL_OUTPUT && !is_there(m, g->name))) continue;
    const Tensor *x = interp_get(o->in, g->name), *y = ranks_get(r->ranks, g->name);
    double noise = rounded ? rounding_of(rounded, o, g->name) : 0, s = y ? share(x, y) : INFINITY;
    if (noise > NO_DIGIT) continue;
    if (!y) printf("%s\n", ranks_error(r->ranks) ? ranks_error(r->ranks) : "it is lost");
    if (s > d.worst) d = (Difference){s, g->name};
    if (rounded && noise > rounding->worst) *rounding = (Difference){noise, g->name};
  }
  return d;
}

static Runner runner_of(const Programs *all, bool round) {
  Runner r = {.ranks = ranks_new_classes(all->at, all->n, all->at[0]->ctx->arena), .round = round};
  ranks_set_exact_codes(r.ranks, !round);
  return r;
}

/* Does the plan, or the optimizer, round to 16 bits or 8? */
static bool narrow(const Module *m) {
  Str precision = module_setting(m, "plan.precision", "f32");
  return strstr(precision, "16") || !strcmp(precision, "fp8") ||
         strcmp(module_setting(m, "train.optim.states", "f32"), "f32") != 0;
}

/* Compares in doubles. Constants that are folded to f32 are off by 1e-8, and layers may amplify
   that. */
static Outcome in_doubles(const Oracle *o, const Programs *all) {
  Module *m = all->at[0];
  Runner r = runner_of(all, false);
  Oracle begun = *o; /* `init` also makes 16-bit copies of weights: it must round nothing */
  if (narrow(m) && !run_oracle(&begun, false, o->in)) return WRONG;
  if (!run_all(&begun, m, &r, !narrow(m))) return WRONG;
  Difference d = difference(&begun, m, &r, NULL, NULL);
  if (d.worst <= EXACT) return EQUAL;
  printf("after all passes, in doubles: %s is off by %g of its size\n", d.where, d.worst);
  return d.worst <= AMPLIFIED ? ROUNDING : WRONG;
}

static bool run_kernel(void *jit, const Fn *k, void *const *buffers) {
  if (!jit_kernel(jit, k, buffers)) bug("kernel @%s is not there", k->name);
  return true;
}

static bool make_noisy(const Oracle *o, const char *path, int which, Oracle *noisy) {
  if (!make_oracle(noisy, path)) return false;
  noise_add(noisy->m, NOISE);
  noisy->noise = which + 1;
  return run_oracle(noisy, true, o->in);
}

/* Kernels differ by d: could rounding alone do that? */
static Outcome judge(const Oracle *o, const char *path, Module *m, const Runner *kernels,
                     const Runner *bytes, Difference d) {
  Rounded rounded = {.bytes = bytes};
  Difference e = {0, NULL};
  for (int i = 0; i < NOISES; i++)
    if (!make_noisy(o, path, i, &rounded.noisy[i])) return WRONG;
  Difference rest = difference(o, m, kernels, &rounded, &e);
  bool fine = rest.worst <= fmax(CLOSE, 8 * e.worst);
  printf(
      "kernels: %s is off by %g of its size; of results with digits, %s by %g; by rounding alone "
      "%s by %g\n",
      d.where, d.worst, rest.where ? rest.where : "nothing", rest.worst,
      e.where ? e.where : "nothing", e.worst);
  for (int i = 0; i < NOISES; i++) ctx_free(rounded.noisy[i].c);
  return fine ? ROUNDING : WRONG;
}

static Outcome by_kernels(const Oracle *o, const char *path, Module *m, Jit *jit) {
  Programs one = {.n = 1, .at = {m}};
  Runner r = runner_of(&one, true), rounded = runner_of(&one, true);
  r.placed = true;
  interp_set_kernels(ranks_rank(r.ranks, 0), run_kernel, jit);
  if (!run_all(o, m, &r, true)) return WRONG;
  Difference d = difference(o, m, &r, NULL, NULL);
  if (d.worst <= CLOSE) return EQUAL;
  if (!run_all(o, m, &rounded, true)) return WRONG;
  Difference e = difference(o, m, &rounded, NULL, NULL);
  if (narrow(m) && d.worst <= 2 * e.worst) return EQUAL;
  return judge(o, path, m, &r, &rounded, d);
}

/* ---- one plan ---- */

static bool compiled(Ctx *c, const char *path, const char *plan, Programs *programs) {
  PipelineOptions all = {.verify = true};
  Module *m = lowered(c, path, plan);
  if (!m) return false;
  target_describe(m, target_find(getenv("TARGET") ? getenv("TARGET") : "x86_64_v3"), 2);
  m->target.chunk = 2000;
  return pipeline_classes(m, &all, programs);
}

/* Compares in exact arithmetic, with values in bytes. */
static bool equal_in_field(const Oracle *o, const char *path, const char *plan,
                           const Programs *all) {
  EqualReport report = {0};
  PipelineOptions until = {.until = "micro"};
  Module *m = lowered(o->c, path, plan);
  if (!m || !pipeline_run(m, &until)) return false;
  simplify_module(m, true);
  EqualTask task = {.model = {.programs = &m, .n = 1, .whole = true},
                    .ranks = {all->at, all->n, false, true, state % 2},
                    .seed = state,
                    .steps = 2};
  if (programs_equal(&task, &report)) return true;
  printf("not equal: after @%s, %s, element %lld: %s\n", report.entry, report.global,
         (long long)report.element, report.why);
  return false;
}

/* Does `aux` have a term that is computed for each of several micro-batches? */
static bool own_terms(const Oracle *o, const Module *m) {
  int64_t micro = plan_micro(m);
  bool some = false;
  for (uint32_t i = 0; i < o->m->fns.n; i++)
    EACH_OP (o->m->fns.at[i], op) some |= op->code == OP_estimate;
  for (uint32_t i = 0; i < m->globals.n && some && micro; i++) {
    const Global *g = m->globals.at[i];
    int at = type_find(&g->type, intern(m->ctx->names, "Batch"));
    if (g->kind == GLOBAL_INPUT && at >= 0 && g->type.axis[at].size > micro) return true;
  }
  return false;
}

static Outcome try_plan(const Oracle *o, const char *path, const char *plan, Jit *jit) {
  Ctx *c = ctx_new();
  Programs programs;
  if (!compiled(c, path, plan, &programs)) return refused(c);
  if (!equal_in_field(o, path, plan, &programs)) return WRONG;
  if (own_terms(o, programs.at[0])) return EQUAL;
  Outcome doubles = in_doubles(o, &programs);
  if (doubles != EQUAL) return doubles;
  Module *m = programs.at[0];
  jit_add(jit, m);
  return m->mesh.n ? EQUAL : by_kernels(o, path, m, jit);
}

/* Plans from *at on, until one ends the process. */
static void try_plans(const Oracle *o, const char *path, int *at) {
  Jit *jit = jit_new(o->c->arena);
  bool failed = false;
  for (; *at < PLANS; ++*at) {
    limit_processor_seconds(SECONDS);
    Outcome out = try_plan(o, path, plans[*at], jit);
    printf("%s %s %s\n", path, plans[*at], words[out]);
    fflush(stdout);
    failed |= out == WRONG;
  }
  _exit(failed);
}

/* Rules that need each worker's gradient refuse models whose samples meet, under every plan. */
static bool try_without_oracle(const Oracle *o, const char *path) {
  const char *text = reported(o->c);
  bool meet = strstr(text, "error[E0706]"), good = meet;
  if (!meet) printf("%s", text);
  for (int i = 0; i < PLANS; i++) {
    Ctx *c = ctx_new();
    Programs programs;
    Outcome out = !meet || compiled(c, path, plans[i], &programs) ? WRONG : refused(c);
    printf("%s %s %s\n", path, plans[i], words[out]);
    good &= out == REFUSED;
    ctx_free(c);
  }
  return good;
}

static bool try_program(const char *path) {
  Oracle o;
  int status,
      *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) exit(2);
  if (!make_oracle(&o, path) || !run_oracle(&o, true, NULL)) return try_without_oracle(&o, path);
  bool bad = false;
  for (*at = 0; *at < PLANS; ++*at) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) try_plans(&o, path, at);
    if (pid < 0 || waitpid(pid, &status, 0) < 0) exit(2);
    bad |= status != 0;
    if (*at < PLANS) printf("signal %d\n%s %s wrong\n", WTERMSIG(status), path, plans[*at]);
  }
  munmap(at, sizeof *at);
  ctx_free(o.c);
  return !bad;
}

int main(int argc, char **argv) {
  bool good = true;
  for (int i = 1; i < argc; i++) {
    state = 1;
    for (const char *c = argv[i]; *c; c++) state = state * 31 + (unsigned char)*c;
    good &= try_program(argv[i]);
  }
  return !good;
}

/* Speed of family contract on the products of GPT-2's layers and head, as a share of this machine's
   peak.

     bench_gemm [tokens [f32|bf16 [shape [forward|input|weight ["cut" ..]]]]]

   A cut is the numbers of attribute tile (ir/kernel/product.h), as `shardc tune` prints them;
   without one the rule's is taken, with several each is measured, in turn.

   With bf16, activations and gradients are bf16, weights f32 that the kernel rounds while it packs
   them, as in a model with `precision bf16`.

   Per shape: forward (W stored [In, Out]; the head's tied embedding [Vocab, Embed]), gradient of
   the input, gradient of the weights. Kernels are tuned and compiled as for a model. The threads
   take chunks in order; weights change from call to call, so they come from memory. Peak: a loop of
   fused multiply-adds on registers (bf16: of what the target multiplies it with), on the same
   threads, before and after each call; the call before the one that is timed warms caches for all
   but the weights. Times are processor time of the threads, so that other processes on the machine
   count little. Medians of 7, of 21 where one call is short.
 */
#include "team.h"
#include "codegen/codegen.h"
#include "passes/tune/tune.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { REPEATS = 7, COLD_BYTES = 300000000 };

/* ---- kernels ---- */

typedef struct Shape {
  const char *name;
  int64_t in, out;
  bool tied; /* W is stored [Out, In] */
} Shape;

typedef enum Kind { FORWARD, INPUT, WEIGHT, KINDS } Kind;

static const char *const kind_name[] = {"forward", "input", "weight"};

/* buffers: X, W, Y in this order; a kernel reads two and writes the third */
static const int reads[KINDS][2] = {{0, 1}, {2, 1}, {0, 2}}, writes[KINDS] = {2, 0, 1};

static Fn *make_kernel(Module *m, const Shape *s, Kind kind, int64_t tokens, Elem e, int number) {
  Axis t = {intern(m->ctx->names, "Token"), tokens}, in = {intern(m->ctx->names, "In"), s->in},
       out = {intern(m->ctx->names, "Out"), s->out};
  Type type[] = {type_of(e, 2, (Axis[]){t, in}),
                 type_of(ELEM_f32, 2, s->tied ? (Axis[]){out, in} : (Axis[]){in, out}),
                 type_of(e, 2, (Axis[]){t, out})};
  Str sum = kind == FORWARD ? in.dim : kind == INPUT ? out.dim : t.dim;
  Fn *k = fn_new(m, FN_KERNEL,
                 intern_printf(m->ctx->names, "%s.%s.%d", s->name, kind_name[kind], number));
  ValueId a = fn_arg(m, k, type[reads[kind][0]]), b = fn_arg(m, k, type[reads[kind][1]]);
  b = ir_cast(m, k, b, e, (Loc){0});
  ValueId d = ir_dot(m, k, a, b, 1, &sum, (Loc){0});
  k->values.at[d].type = type_with_elem(type[writes[kind]], e);
  fn_result(m, k, d);
  attr_set_str(m, &k->attrs, ATTR_family, intern(m->ctx->names, "contract"));
  module_add(m, k);
  return k;
}

typedef struct Candidate { /* one cut of a kernel */
  Fn *k;
  Code code;
  double *share, *seconds;
} Candidate;

static void cut_as(Module *m, Candidate *v, const char *cut) {
  const Variants *row = variants_find("contract", DEVICE_CPU);
  Cut c = contract_rule(m, v->k);
  if (cut && (!variants_read(row, cut, &c) || !contract_fits(m, v->k, &c))) {
    fprintf(stderr, "`%s` is no cut of this kernel\n", cut);
    exit(1);
  }
  contract_apply(m, v->k, &c);
}

static void build(Module *m, Candidate *v, int n, const char *folder, int jobs) {
  const char *so = arena_printf(m->arena, "%s/%s.so", folder, kernel_symbol(m, v->k));
  if (!kernels_build(m, folder, jobs) || !kernels_link(m, folder, strrchr(so, '/') + 1)) exit(1);
  void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < n; i++) v[i].code = code_find(m, v[i].k, library);
}

typedef struct Task { /* one product of one layer, with the cuts to be compared */
  const Shape *shape;
  Kind kind;
  int64_t tokens, weight, copies; /* weight: bytes of one */
  Elem e;
  TeamLoop *peak;
  double flop;
  char *x, *y, *w, *work;
  int count, rounds;
  Candidate *candidate;
} Task;

static void report(Task *t, Candidate *v) {
  const Attr *tile = attr_get(&v->k->attrs, ATTR_tile);
  double share = bench_median(v->share, t->rounds), seconds = bench_median(v->seconds, t->rounds);
  printf("%-10s %-8s %5.1f %% of peak  %8.3f ms  %6.1f GFLOP/s  %s [", t->shape->name,
         kind_name[t->kind], 100 * share, 1e3 * seconds, 1e-9 * t->flop / seconds,
         attr_str(&v->k->attrs, ATTR_variant, ""));
  for (int64_t i = 0; i < tile->i; i++) printf("%s%lld", i ? " " : "", (long long)tile->list[i]);
  printf("]\n");
  fflush(stdout);
}

static double call(Team *team, const Task *t, Candidate *v, int copy) {
  char *all[] = {t->x, t->w + copy % t->copies * t->weight, t->y};
  void *buffers[] = {all[reads[t->kind][0]], all[reads[t->kind][1]], all[writes[t->kind]], t->work};
  return team_kernel(team, &v->code, buffers);
}

/* The first call is not timed: while a loop runs on registers, others on the host take the caches
   (measured: a product of 0.2 ms then takes 0.4), and a step has no such pauses. */
static void time_once(Team *team, const Task *t, Candidate *v, int round, int copy) {
  double before = team_rate(team, t->peak);
  call(team, t, v, copy);
  double seconds = call(team, t, v, copy + 1);
  double most = 2 / (1 / before + 1 / team_rate(team, t->peak));
  if (round >= 0) v->seconds[round] = seconds, v->share[round] = t->flop / seconds / most;
}

static void time_all(Team *team, Task *t) {
  const Fn *kernels[t->count];
  for (int i = 0; i < t->count; i++) kernels[i] = t->candidate[i].k;
  t->work = bench_memory(team_scratch(team, kernels, t->count), ELEM_f32);
  for (int round = -1, copy = 0; round < t->rounds; round++) /* the first one warms up */
    for (int i = 0; i < t->count; i++, copy += 2) time_once(team, t, &t->candidate[i], round, copy);
  free(t->work);
}

static void measure(Team *team, Task t, char *const *cuts, const char *folder) {
  Ctx *c = ctx_new();
  Module *m = module_new(c);
  t.weight = t.shape->in * t.shape->out * 4, t.copies = COLD_BYTES / t.weight + 1;
  t.flop = 2.0 * (double)t.tokens * (double)t.shape->in * (double)t.shape->out;
  t.rounds = t.flop > 4e9 ? REPEATS : 3 * REPEATS;
  t.candidate = calloc((size_t)t.count, sizeof *t.candidate);
  target_describe(m, team_target(), team_threads(team));
  for (int i = 0; i < t.count; i++) {
    Candidate *v = &t.candidate[i];
    v->k = make_kernel(m, t.shape, t.kind, t.tokens, t.e, i);
    v->share = calloc((size_t)t.rounds, sizeof(double));
    v->seconds = calloc((size_t)t.rounds, sizeof(double));
    cut_as(m, v, cuts ? cuts[i] : NULL);
  }
  build(m, t.candidate, t.count, folder, team_threads(team));
  t.x = bench_memory(t.tokens * t.shape->in * elem_bytes(t.e), t.e);
  t.y = bench_memory(t.tokens * t.shape->out * elem_bytes(t.e), t.e);
  t.w = bench_memory(t.weight * t.copies, ELEM_f32);
  time_all(team, &t);
  for (int i = 0; i < t.count; i++) report(&t, &t.candidate[i]);
  for (int i = 0; i < t.count; i++) free(t.candidate[i].share), free(t.candidate[i].seconds);
  free(t.candidate), free(t.x), free(t.y), free(t.w);
  ctx_free(c);
}

int main(int argc, char **argv) {
  static const Shape shapes[] = {{"768x768", 768, 768, false},
                                 {"768x2304", 768, 2304, false},
                                 {"768x3072", 768, 3072, false},
                                 {"3072x768", 3072, 768, false},
                                 {"768x50257", 768, 50257, true}};
  bool narrow = argc > 2 && !strcmp(argv[2], "bf16");
  Task t = {.tokens = argc > 1 ? atol(argv[1]) : 256, .e = narrow ? ELEM_bf16 : ELEM_f32};
  t.peak = loop_of(t.e);
  t.count = argc > 5 ? argc - 5 : 1;
  char folder[] = "/tmp/shardc-bench-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  Team *team = team_start();
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (t.kind = 0; t.kind < KINDS; t.kind++) {
      t.shape = &shapes[i];
      if (argc > 3 && strcmp(argv[3], "all") && strcmp(argv[3], t.shape->name)) continue;
      if (argc > 4 && strcmp(argv[4], kind_name[t.kind])) continue;
      measure(team, t, argc > 5 ? argv + 5 : NULL, folder);
    }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0;
}

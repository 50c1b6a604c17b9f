/* Speed of single kernels: of each kernel function in a file of textual IR (at stage `order` or
   before), as a share of what this machine's multiply-adds and its memory allow.

     bench_kernels [--apart] FILE [kernel ["cut" ..]]
     bench_kernels --turn ROUNDS FILE
     bench_kernels --ask FILE kernel

   Kernels are tuned and compiled as for a model; a cut, for families that have variants, is the
   numbers of attribute tile, and several are measured in turn. The threads take chunks as the pool
   does. Operands change from call to call, so they come from memory if the sets exceed the caches;
   a result uses the buffer of an operand where pass `order` may do so (--apart: never, as where a
   later kernel still reads the operand).

   --turn: all kernels of the file one after the other, ROUNDS times; prints each one's least time.
   --ask: for another program that measures in turn. The first line of output is the bytes that the
   kernel moves; then each line of input is answered with a triad over that number of bytes and a
   call: bytes per second of the triad, seconds of the call.

   With each call the same threads run a loop of multiply-adds and a triad a = b + s c with
   non-temporal stores (12 bytes per element). Bytes of a kernel: operands and results once. Times
   are processor time, so that other processes count little; medians, quartiles of the shares in
   brackets. Must not: report a figure that it did not measure in this run. */
#include "loops.h"
#include "team.h"
#include "codegen/codegen.h"
#include "ir/cost/count.h"
#include "ir/kernel/inplace.h"
#include "passes/tune/tune.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 15, MOST = 64, CUTS = 32 };
static const int64_t COLD = 400000000; /* bytes of a kernel's sets, at least */

/* ---- buffers ---- */

static int64_t value_bytes(const Fn *k, ValueId v) {
  const Value *x = &k->values.at[v];
  int64_t last = 0, count = 1;
  for (int i = 0; i < x->type.rank; i++) {
    count *= x->type.axis[i].size;
    if (x->storage.ordered) last += (x->type.axis[i].size - 1) * x->storage.stride[i];
  }
  return (x->storage.ordered ? last + 1 : count) * elem_bytes(x->type.elem);
}

static bool same_size(const Fn *k, ValueId a, ValueId b) {
  return value_bytes(k, a) == value_bytes(k, b);
}

/* The argument whose buffer holds result i; -1: none. */
static int shared_with(Arena *a, const Fn *k, uint32_t i, const bool *taken) {
  for (uint32_t j = 0; j < k->args.n; j++)
    if (!taken[j] && value_bytes(k, k->args.at[j]) > 1 << 16 &&
        same_size(k, k->args.at[j], k->results.at[i]) && kernel_in_place(a, k, j, i))
      return (int)j;
  return -1;
}

typedef struct Set { /* one set of buffers: operands, results */
  void *buffer[MOST];
} Set;

static void fill(Arena *a, const Fn *k, Set *s, int sets, bool apart) {
  bool taken[MOST] = {false};
  uint32_t n = k->args.n;
  for (uint32_t i = 0; i < n + k->results.n; i++) {
    ValueId v = i < n ? k->args.at[i] : k->results.at[i - n];
    int in = i < n || apart ? -1 : shared_with(a, k, i - n, taken);
    if (in >= 0) taken[in] = true;
    for (int j = 0; j < sets; j++)
      s[j].buffer[i] =
          in >= 0 ? s[j].buffer[in] : bench_memory(value_bytes(k, v), value_type(k, v)->elem);
  }
}

static double moved(const Fn *k) {
  double bytes = 0;
  for (uint32_t i = 0; i < k->args.n; i++) bytes += (double)value_bytes(k, k->args.at[i]);
  for (uint32_t i = 0; i < k->results.n; i++) bytes += (double)value_bytes(k, k->results.at[i]);
  return bytes;
}

/* ---- kernels ---- */

typedef struct Candidate { /* one cut of a kernel */
  Fn *k;
  Code code;
  double flop[ROUNDS], bytes[ROUNDS], seconds[ROUNDS]; /* shares, time */
} Candidate;

static void report(Candidate *c) {
  double flop = bench_median(c->flop, ROUNDS), bytes = bench_median(c->bytes, ROUNDS);
  int low = ROUNDS / 4, high = ROUNDS - 1 - low;
  printf("%-22s %9.3f ms  %5.1f %% of peak [%.1f %.1f]  %5.1f %% of triad [%.1f %.1f]  [",
         c->k->name, 1e3 * bench_median(c->seconds, ROUNDS), 100 * flop, 100 * c->flop[low],
         100 * c->flop[high], 100 * bytes, 100 * c->bytes[low], 100 * c->bytes[high]);
  const Attr *tile = attr_get(&c->k->attrs, ATTR_tile);
  for (int64_t i = 0; tile && i < tile->i; i++)
    printf("%s%lld", i ? " " : "", (long long)tile->list[i]);
  printf("]\n");
  fflush(stdout);
}

static void time_once(Team *team, Candidate *c, int round, void *const *buffers, double flop,
                      double bytes) {
  double p = team_rate(team, loop_wide), b = team_triad(team, 0);
  double seconds = team_kernel(team, &c->code, buffers);
  p = 2 / (1 / p + 1 / team_rate(team, loop_wide));
  b = 2 / (1 / b + 1 / team_triad(team, 0));
  if (round < 0) return;
  c->seconds[round] = seconds;
  c->flop[round] = flop / seconds / p, c->bytes[round] = bytes / seconds / b;
}

static void measure(Team *team, Module *m, Candidate *c, int n, bool apart) {
  const Fn *k = c->k, *kernels[CUTS];
  double flop = ir_count(m, k).flop, bytes = moved(k);
  int64_t cold = team_cold() > COLD ? team_cold() : COLD;
  int sets = (int)((double)cold / bytes) + 1;
  sets = sets > 8 ? 8 : sets;
  Set *set = calloc((size_t)sets, sizeof *set);
  fill(m->arena, k, set, sets, apart);
  for (int i = 0; i < n; i++) kernels[i] = c[i].k;
  void *all = bench_memory(team_scratch(team, kernels, n), ELEM_f32);
  for (int round = -1, call = 0; round < ROUNDS; round++)
    for (int i = 0; i < n; i++, call++) {
      void **buffers = set[call % sets].buffer;
      buffers[k->args.n + k->results.n] = all;
      time_once(team, &c[i], round, buffers, flop, bytes);
    }
  for (int i = 0; i < n; i++) report(&c[i]);
}

typedef struct Turn { /* a kernel with operands of its own */
  Code code;
  void **buffers;
  double least;
} Turn;

static void measure_in_turn(Team *team, Fn *const *kernels, const Code *code, int n, int rounds,
                            Arena *a) {
  Turn *t = ARENA_ARRAY(a, Turn, n);
  void *all = bench_memory(team_scratch(team, (const Fn *const *)kernels, n), ELEM_f32);
  for (int i = 0; i < n; i++) {
    Set *set = ARENA_NEW(a, Set);
    fill(a, kernels[i], set, 1, true);
    set->buffer[kernels[i]->args.n + kernels[i]->results.n] = all;
    t[i] = (Turn){code[i], set->buffer, 1e30};
  }
  for (int round = 0; round < rounds; round++)
    for (int i = 0; i < n; i++) {
      double seconds = team_kernel(team, &t[i].code, t[i].buffers);
      if (seconds < t[i].least) t[i].least = seconds;
    }
  for (int i = 0; i < n; i++) printf("%s %.6f\n", kernels[i]->name, t[i].least);
}

/* Answers while there are questions; operands are numbers of both signs. */
static void answer(Team *team, const Fn *k, const Code *code, Arena *a) {
  Set *set = ARENA_NEW(a, Set);
  int64_t bytes = (int64_t)moved(k);
  fill(a, k, set, 1, false);
  set->buffer[k->args.n + k->results.n] = bench_memory(team_scratch(team, &k, 1), ELEM_f32);
  printf("%lld\n", (long long)bytes);
  fflush(stdout);
  for (int c; (c = getchar()) != EOF;) {
    if (c != '\n') continue;
    double rate = team_triad(team, bytes);
    printf("%.6g %.6f\n", rate, team_kernel(team, code, set->buffer));
    fflush(stdout);
  }
}

/* Copies of a kernel, one for each cut that is asked for. */
static int copies(Module *m, Fn *k, char **cuts, int n, Candidate *c) {
  const Variants *v = variants_find(attr_str(&k->attrs, ATTR_family, ""), DEVICE_CPU);
  for (int i = 0; i < n; i++) {
    Fn *copy = ARENA_NEW(m->arena, Fn);
    Cut cut;
    *copy = *k, copy->name = intern_printf(m->ctx->names, "%s.%d", k->name, i);
    copy->attrs = (AttrList){0};
    attr_set_str(m, &copy->attrs, ATTR_family, attr_str(&k->attrs, ATTR_family, ""));
    if (!v || !variants_read(v, cuts[i], &cut) || !v->fits(m, k, &cut)) {
      fprintf(stderr, "`%s` is no cut of this kernel\n", cuts[i]);
      exit(1);
    }
    v->apply(m, copy, &cut);
    module_add(m, copy);
    c[i].k = copy;
  }
  return n;
}

static void *build(Module *m, const char *folder, int jobs) {
  void *library = NULL;
  if (kernels_build(m, folder, jobs) && kernels_link(m, folder, "kernels.so"))
    library = dlopen(arena_printf(m->arena, "%s/kernels.so", folder), RTLD_NOW | RTLD_LOCAL);
  if (!library) diag_print(m->ctx->diag, stderr, DIAG_HUMAN, false), exit(1);
  return library;
}

int main(int argc, char **argv) {
  static Candidate list[MOST][CUTS];
  char folder[] = "/tmp/shardc-bench-XXXXXX";
  bool apart = argc > 1 && !strcmp(argv[1], "--apart"), turn = !strcmp(argv[1 % argc], "--turn");
  bool ask = !strcmp(argv[1 % argc], "--ask");
  int rounds = turn && argc > 3 ? atoi(argv[2]) : 0;
  argc -= apart + ask + 2 * turn, argv += apart + ask + 2 * turn;
  if (argc < 2 || argc > 3 + CUTS || !mkdtemp(folder)) return 2;
  Ctx *ctx = ctx_new();
  Module *m = ir_read(ctx, argv[1]);
  if (!m) return diag_print(ctx->diag, stderr, DIAG_HUMAN, false), 1;
  Team *team = team_start();
  target_describe(m, team_target(), team_threads(team));
  int n = 0, count[MOST] = {0};
  for (uint32_t i = 0, all = m->fns.n; i < all && n < MOST; i++) {
    Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL) continue;
    tune_by_rule(m, k);
    if (argc > 2 && strcmp(k->name, argv[2])) continue;
    list[n][0].k = k, count[n] = 1;
    if (argc > 3) count[n] = copies(m, k, argv + 3, argc - 3, list[n]);
    n++;
  }
  void *library = build(m, folder, team_threads(team));
  if (turn) {
    Fn *kernels[MOST];
    Code code[MOST];
    for (int i = 0; i < n; i++)
      kernels[i] = list[i][0].k, code[i] = code_find(m, list[i][0].k, library);
    measure_in_turn(team, kernels, code, n, rounds, m->arena);
  }
  if (ask && n == 1) {
    Code code = code_find(m, list[0][0].k, library);
    answer(team, list[0][0].k, &code, m->arena);
  }
  for (int i = 0; i < n && !turn && !ask; i++) {
    for (int j = 0; j < count[i]; j++) list[i][j].code = code_find(m, list[i][j].k, library);
    measure(team, m, list[i], count[i], apart);
  }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0;
}

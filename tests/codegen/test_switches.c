/* Switches that change the code of kernels, on every target: test_switches [SEED [N [TARGET]]].

   N rounds (1) over each target x precision x optimized or `--quick`. Each compiles the kernels of
   a small random module, of products, of attention, and of sums over computed operands. Sizes are
   either odd or multiples that tensor cores need; cuts are the rule's or random ones that a tuner
   may try; CTAs may have more shared memory. Every kernel must compile: LLVM selects it, and ptxas,
   if installed, accepts it without spills and without serialised tensor instructions
   (codegen/nvptx/ptxas.c). Then kernels run on this processor or on the PTX machine and are
   compared with the interpreter; kernels for other processors are only compiled. */
#include "attention_text.h"
#include "harness.h"
#include "ir/support/num.h"
#include "passes/pass.h"
#include "tests/common/random_step.h"
#include <stdio.h>
#include <stdlib.h>

enum { OPS = 16, OF_A_FAMILY = 2 };

typedef struct Switches {
  const char *target, *precision;
  bool quick, vary, most, large;
} Switches;

static const char *const precisions[] = {"f32", "tf32", "bf16", "f16"};
static const int64_t odd[] = {1, 2, 3, 5, 7, 17, 33}, large[] = {1, 3, 8, 64, 72, 128, 136},
                     long_[] = {128, 136, 200, 256, 264};

static int targets(void) {
  int n = 0;
  while (target_name(n)) n++;
  return n;
}

/* Number i of all combinations; the rest by chance. */
static Switches switches_of(uint64_t i, uint64_t seed) {
  uint64_t n = (uint64_t)targets(), state = seed;
  Switches s = {.target = target_name((int)(i % n))};
  i /= n;
  s.precision = precisions[i % COUNT_OF(precisions)];
  i /= COUNT_OF(precisions);
  s.quick = i % 2;
  s.vary = random_number(&state) < 0.4, s.most = random_number(&state) < 0.3;
  s.large = random_number(&state) < 0.5;
  return s;
}

static void say(const Switches *s, uint64_t seed) {
  fprintf(stderr, "  seed %llu: %s, %s%s%s%s%s\n", (unsigned long long)seed, s->target,
          s->precision, s->quick ? ", quick" : "", s->vary ? ", another cut" : "",
          s->most ? ", most shared" : "", s->large ? ", large" : "");
}

static Harness *harness_of(const Switches *s, uint64_t seed) {
  Harness *h = harness_new(s->target);
  const Target *t = target_find(s->target);
  h->random += seed * 2654435761u, h->quick = s->quick, h->vary = s->vary, h->most = s->most;
  h->unrun = t->facts.device == DEVICE_CPU && !target_runs_here(t);
  h->chunk = 2000;
  return h;
}

/* ---- a random module ---- */

static Module *random_module(Harness *h, const Switches *s, uint64_t seed) {
  RandomSizes sizes = {.from = s->large ? large : odd, .typed = true};
  sizes.n = s->large ? COUNT_OF(large) : COUNT_OF(odd), sizes.most = s->large ? 1 << 16 : 1 << 12;
  Module *m = random_step_of(h->ctx, seed, OPS, &sizes);
  module_set(m, "plan.precision", "%s", s->precision);
  m->after = intern(h->ctx->names, "micro");
  return m;
}

/* The rest of its family are much the same. */
static void thin(Module *m) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    int alike = 0;
    for (uint32_t j = 0; j < n; j++)
      alike += !strcmp(attr_str(&m->fns.at[j]->attrs, ATTR_family, ""),
                       attr_str(&k->attrs, ATTR_family, ""));
    if (k->kind == FN_KERNEL && alike < OF_A_FAMILY) m->fns.at[n++] = k;
  }
  m->fns.n = n;
}

static int check_module(const Switches *s, uint64_t seed) {
  Harness *h = harness_of(s, seed);
  PipelineOptions o = {.verify = true, .until = "select"};
  Module *m = random_module(h, s, seed);
  target_describe(m, target_find(s->target), h->workers);
  m->target.chunk = h->chunk;
  if (s->most) m->target.shared = m->target.shared_most;
  int failed = !pipeline_run(m, &o);
  if (failed) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  if (!failed) thin(m);
  if (!failed && s->vary) harness_vary(h, m);
  if (!failed) failed = harness_check(h, m, harness_tolerance(h, m));
  harness_free(h);
  return failed;
}

/* ---- kernels as text ---- */

static int64_t size_of(Harness *h, bool wide) {
  if (wide) return long_[harness_random(h, 0, COUNT_OF(long_) - 1)];
  return odd[harness_random(h, 0, COUNT_OF(odd) - 1)];
}

static void add_product(Harness *h, int i, const char *elem, bool wide) {
  int64_t batch = harness_random(h, 1, 2), m = size_of(h, wide), n = size_of(h, wide),
          k = size_of(h, wide);
  const char *am[] = {"B", "M", "K"}, *ak[] = {"B", "K", "M"}, *bn[] = {"B", "K", "N"},
             *bk[] = {"B", "N", "K"}, *r[] = {"B", "M", "N"};
  int64_t sam[] = {batch, m, k}, sak[] = {batch, k, m}, sbn[] = {batch, k, n},
          sbk[] = {batch, n, k}, sr[] = {batch, m, n};
  bool a = harness_random(h, 0, 1), b = harness_random(h, 0, 1), add = harness_random(h, 0, 1);
  const char *out = harness_dense(h, "f32", 3, r, sr);
  harness_add(h, "kernel @p%d(%%0 : %s, %%1 : %s, %%2 : f32[N:%lld]) {family = \"contract\"} {\n",
              i, harness_dense(h, elem, 3, a ? ak : am, a ? sak : sam),
              harness_dense(h, elem, 3, b ? bk : bn, b ? sbk : sbn), (long long)n);
  harness_add(h, "  %%3 = dot[K] %%0, %%1 : %s\n  %%4 = %s : %s\n", out,
              add ? "add %3, %2" : "tanh %3", out);
  harness_add(h, "  %%5 = cast %%4 : %s\n  return %%5\n}\n", harness_dense(h, elem, 3, r, sr));
}

static void add_attention(Harness *h, int i, const char *elem, bool wide) {
  int64_t d = wide ? 8 * harness_random(h, 2, 16) : size_of(h, false), q = size_of(h, wide),
          k = harness_random(h, 0, 1) ? q : size_of(h, wide), head = size_of(h, false) % 4 + 1;
  AttentionShape s = {.nq = 3,
                      .nk = 3,
                      .qdim = {"H", "S", "D"},
                      .kdim = {"H", "T", "D"},
                      .qsize = {head, q, d},
                      .ksize = {head, k, d},
                      .queries = q,
                      .keys = k};
  attention_forward(h, 2 * i, elem, s, (AttentionMask){"", "", 0});
  attention_backward(h, 2 * i + 1, elem, s, (AttentionMask){"", "", 0}, false, -1);
}

/* Sums over some dims of a product of operands that have some of them each: the summed values have
   no buffer. */
static void add_sum(Harness *h, int i, const char *elem) {
  static const char *const dims[] = {"A", "B", "C"};
  int64_t size[] = {size_of(h, false), size_of(h, false), size_of(h, false)};
  int left = (int)harness_random(h, 1, 6), over = (int)harness_random(h, 1, 7), n = 0;
  const char *word[3] = {"", "", ""}, *kept[3], *sums = "";
  int64_t own[3][3], result[3];
  const char *name[3][3];
  int rank[2] = {0, 0};
  for (int d = 0; d < 3; d++) {
    int side = !(left >> d & 1);
    name[side][rank[side]] = dims[d], own[side][rank[side]++] = size[d];
    if (over >> d & 1) sums = arena_printf(h->arena, "%s%s%s", sums, *sums ? ", " : "", dims[d]);
    else kept[n] = dims[d], result[n++] = size[d];
  }
  for (int side = 0; side < 2; side++) {
    for (int d = 0; d < rank[1 - side]; d++)
      word[side] = arena_printf(h->arena, "%s%s%s", word[side], d ? ", " : "", name[1 - side][d]);
  }
  const char *whole[2];
  for (int side = 0; side < 2; side++) {
    const char *order[3];
    int64_t sizes[3];
    int r = 0;
    for (int d = 0; d < rank[1 - side]; d++)
      order[r] = name[1 - side][d], sizes[r++] = own[1 - side][d];
    for (int d = 0; d < rank[side]; d++) order[r] = name[side][d], sizes[r++] = own[side][d];
    whole[side] = harness_dense(h, elem, r, order, sizes);
  }
  harness_add(h, "kernel @s%d(%%0 : %s, %%1 : %s) {family = \"column\"} {\n", i,
              harness_dense(h, elem, rank[0], name[0], own[0]),
              harness_dense(h, elem, rank[1], name[1], own[1]));
  harness_add(h, "  %%2 = expand[%s] %%0 : %s\n  %%3 = expand[%s] %%1 : %s\n", word[0], whole[0],
              word[1], whole[1]);
  harness_add(h, "  %%4 = mul %%2, %%3 : %s\n  %%5 = sum[%s] %%4 : %s\n  return %%5\n}\n", whole[0],
              sums, harness_dense(h, elem, n, kept, result));
}

static int check_texts(const Switches *s, uint64_t seed) {
  Harness *h = harness_of(s, seed);
  bool half = strstr(s->precision, "16");
  const char *elem = half ? s->precision : "f32";
  harness_add(h, "set plan.precision = \"%s\"\n", s->precision);
  h->low = -1, h->high = 1;
  if (half) h->multiprocessors = 1; /* the largest tiles are best */
  add_product(h, 0, elem, false), add_product(h, 1, elem, s->large || half);
  add_attention(h, 0, elem, s->large);
  add_sum(h, 0, "f32"), add_sum(h, 1, elem);
  int failed = harness_run(h, half ? 2e-2 : 1e-2);
  harness_free(h);
  return failed;
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
           rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  uint64_t all = (uint64_t)targets() * COUNT_OF(precisions) * 2;
  int failed = 0, tried = 0;
  for (uint64_t i = 0; i < all * rounds; i++) {
    Switches s = switches_of(i, seed + i);
    if (argc > 3 && strcmp(argv[3], s.target)) continue;
    int bad = check_module(&s, seed + i) + check_texts(&s, seed + i);
    if (bad) say(&s, seed + i);
    failed += bad, tried++;
  }
  printf("%d combinations, %d kernels failed\n", tried, failed);
  return failed != 0;
}

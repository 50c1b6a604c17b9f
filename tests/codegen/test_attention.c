/* Families attention and attention_grad against the interpreter: random shapes, groups, strides,
   masks. The harness gives attention_grad the y and log-sum-exp that belong to its q, k and v. */
#include "attention_text.h"
#include "harness_gpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const int64_t lengths[] = {1,  2,  3,  5,  7,  8,  9,  15,  16,
                                  17, 31, 32, 33, 40, 64, 65, 100, 130};
static const int64_t widths[] = {1, 2, 3, 4, 8, 9, 16, 17, 20, 32, 48, 64, 65};

static int64_t pick(Harness *h, const int64_t *list, size_t n) {
  return list[harness_random(h, 0, (int64_t)n - 1)];
}

/* width 0: any */
static AttentionShape shape_of(Harness *h, int64_t width) {
  static const char *const batch[] = {"B", "H", "G"};
  AttentionShape s = {.queries = pick(h, lengths, sizeof lengths / sizeof *lengths),
                      .keys = pick(h, lengths, sizeof lengths / sizeof *lengths)};
  if (!width) width = pick(h, widths, sizeof widths / sizeof *widths);
  for (int i = 0, n = (int)harness_random(h, 0, 3); i < n; i++) {
    int64_t size = harness_random(h, 1, 3);
    s.qdim[s.nq] = batch[i], s.qsize[s.nq++] = size;
    if (i < 2 && harness_random(h, 0, 3)) s.kdim[s.nk] = batch[i], s.ksize[s.nk++] = size;
  }
  s.qdim[s.nq] = "S", s.qsize[s.nq++] = s.queries, s.kdim[s.nk] = "T", s.ksize[s.nk++] = s.keys;
  s.qdim[s.nq] = "D", s.qsize[s.nq++] = width, s.kdim[s.nk] = "D", s.ksize[s.nk++] = width;
  return s;
}

enum { ALL, CAUSAL, SLIDING, PADDED, GIVEN, BLOCKS, NEAR, PATTERN, MASKS };

/* Three values from %first on: positions of the queries, the same for all scores, positions of the
 * keys. */
static const char *positions(Harness *h, const AttentionShape *s, int first) {
  long long q = s->queries, k = s->keys;
  return arena_printf(h->arena,
                      "  %%%d = iota[S] : i32[S:%lld]\n  %%%d = expand[T] %%%d : i32[T:%lld, "
                      "S:%lld]\n  %%%d = iota[T] : i32[T:%lld]\n",
                      first, q, first + 1, first, k, q, first + 2, k);
}

static AttentionMask causal(Harness *h, const AttentionShape *s, int first, bool sliding) {
  long long q = s->queries, k = s->keys;
  Arena *a = h->arena;
  int at = first + 1;
  const char *t = arena_printf(a, "%s  %%%d = le %%%d, %%%d : bool[T:%lld, S:%lld]\n",
                               positions(h, s, first), at + 2, at + 1, at, k, q);
  if (!sliding) return (AttentionMask){"", t, 4};
  t = arena_printf(
      a, "%s  %%%d = const {value = %lld} : i32[]\n  %%%d = sub %%%d, %%%d : i32[T:%lld, S:%lld]\n",
      t, at + 3, (long long)harness_random(h, 0, 40), at + 4, at, at + 3, k, q);
  t = arena_printf(a,
                   "%s  %%%d = lt %%%d, %%%d : bool[T:%lld, S:%lld]\n  %%%d = and %%%d, %%%d : "
                   "bool[T:%lld, S:%lld]\n",
                   t, at + 5, at + 4, at + 1, k, q, at + 6, at + 5, at + 2, k, q);
  return (AttentionMask){"", t, 8};
}

/* Keys below a length per batch element (or one length), and causal. */
static AttentionMask padded(Harness *h, const AttentionShape *s, int arg, int first) {
  long long q = s->queries, k = s->keys;
  Arena *a = h->arena;
  AttentionMask m = causal(h, s, first, false);
  int at = first + 1;
  bool batched = s->nq > 2;
  const char *dims = batched ? arena_printf(a, "%s:%lld", s->qdim[0], (long long)s->qsize[0]) : "";
  const char *comma = batched ? ", " : "";
  m.arguments = arena_printf(a, ", %%%d : i32[%s]", arg, dims);
  m.ops = arena_printf(a, "%s  %%%d = expand[T] %%%d : i32[T:%lld%s%s]\n", m.ops, at + 3, arg, k,
                       comma, dims);
  m.ops = arena_printf(a, "%s  %%%d = lt %%%d, %%%d : bool[T:%lld%s%s]\n", m.ops, at + 4, at + 1,
                       at + 3, k, comma, dims);
  m.ops = arena_printf(a, "%s  %%%d = expand[S] %%%d : bool[S:%lld, T:%lld%s%s]\n", m.ops, at + 5,
                       at + 4, q, k, comma, dims);
  m.ops = arena_printf(a, "%s  %%%d = and %%%d, %%%d : bool[S:%lld, T:%lld%s%s]\n", m.ops, at + 6,
                       at + 5, at + 2, q, k, comma, dims);
  m.values = 8;
  return m;
}

/* Queries see the keys of their own block of 16 only. */
static AttentionMask blocks(Harness *h, const AttentionShape *s, int first) {
  long long q = s->queries, k = s->keys;
  int at = first + 1;
  const char *t = arena_printf(h->arena, "%s  %%%d = const {value = 16} : i32[]\n",
                               positions(h, s, first), at + 2);
  t = arena_printf(
      h->arena,
      "%s  %%%d = div %%%d, %%%d : i32[T:%lld, S:%lld]\n  %%%d = div %%%d, %%%d : i32[T:%lld]\n", t,
      at + 3, at, at + 2, k, q, at + 4, at + 1, at + 2, k);
  t = arena_printf(h->arena, "%s  %%%d = eq %%%d, %%%d : bool[T:%lld, S:%lld]\n", t, at + 5, at + 3,
                   at + 4, k, q);
  return (AttentionMask){"", t, 7};
}

/* |k - q| < n, as the front end writes it or with the larger of both signs; for `causal`, k <= q,
   too. */
static AttentionMask near(Harness *h, const AttentionShape *s, int first, long long n, bool causal,
                          bool abs) {
  const char *both =
      arena_printf(h->arena, "[T:%lld, S:%lld]", (long long)s->keys, (long long)s->queries);
  int far = first + 3;
  const char *t = arena_printf(h->arena, "%s  %%%d = sub %%%d, %%%d : i32%s\n",
                               positions(h, s, first), far, far - 2, far - 1, both);
  if (abs)
    t = arena_printf(h->arena, "%s  %%%d = neg %%%d : i32%s\n  %%%d = abs %%%d : i32%s\n", t,
                     far + 1, far, both, far + 2, far + 1, both);
  else
    t = arena_printf(h->arena, "%s  %%%d = neg %%%d : i32%s\n  %%%d = max %%%d, %%%d : i32%s\n", t,
                     far + 1, far, both, far + 2, far + 1, far, both);
  t = arena_printf(h->arena,
                   "%s  %%%d = const {value = %lld} : i32[]\n  %%%d = lt %%%d, %%%d : bool%s\n", t,
                   far + 3, n, far + 4, far + 2, far + 3, both);
  if (!causal) return (AttentionMask){"", t, 8};
  t = arena_printf(h->arena,
                   "%s  %%%d = le %%%d, %%%d : bool%s\n  %%%d = and %%%d, %%%d : bool%s\n", t,
                   far + 5, far - 1, far - 2, both, far + 6, far + 4, far + 5, both);
  return (AttentionMask){"", t, 10};
}

/* Blocks of n, as the front end writes patterns: every s-th diagonal of blocks, the first w
   columns, and those of a table. */
static AttentionMask pattern(Harness *h, const AttentionShape *s, int first, long long n,
                             long long w, long long step) {
  long long k = s->keys;
  const char *both = arena_printf(h->arena, "[T:%lld, S:%lld]", k, (long long)s->queries);
  const char *keys = arena_printf(h->arena, "[T:%lld]", k);
  const struct {
    const char *op, *shape;
    int a, b;
  } line[] = {
      {"div", both, 1, 3},  {"div", keys, 2, 3}, {"div", both, 6, 4},  {"mul", both, 8, 4},
      {"sub", both, 6, 9},  {"div", keys, 7, 4}, {"mul", keys, 11, 4}, {"sub", keys, 7, 12},
      {"eq", both, 10, 13}, {"lt", keys, 7, 5},  {"or", both, 14, 15}, {"lookup", both, 6, 7},
      {"or", both, 16, 17},
  };
  const char *t = positions(h, s, first);
  const long long number[] = {n, step, w};
  for (int i = 0; i < 3; i++)
    t = arena_printf(h->arena, "%s  %%%d = const {value = %lld} : i32[]\n", t, first + 3 + i,
                     number[i]);
  for (int i = 0; i < 13; i++)
    t = arena_printf(h->arena, "%s  %%%d = %s %%%d, %%%d%s : %s%s\n", t, first + 6 + i, line[i].op,
                     first + line[i].a, first + line[i].b,
                     i == 11 ? " {columns = 3, runs = [1, 1, 3, 2, 9, 1]}" : "",
                     i < 8 ? "i32" : "bool", line[i].shape);
  return (AttentionMask){"", t, 19};
}

static AttentionMask given(Harness *h, const AttentionShape *s, int arg) {
  const char *dim[] = {"S", "T", s->qdim[0]};
  int64_t size[] = {s->queries, s->keys, s->qsize[0]};
  int n = s->nq > 2 && harness_random(h, 0, 1) ? 3 : 2,
      from = n == 2 && harness_random(h, 0, 2) == 0;
  const char *t = harness_type(h, "bool", n - from, dim + from, size + from);
  return (AttentionMask){arena_printf(h->arena, ", %%%d : %s", arg, t), "", 0};
}

/* A mask by numbers of documents, which kernels read as data: queries see keys of their document.
   Numbers rise with the position after the first 40, so blocks of different documents are
   skipped. */
static AttentionMask documents(Harness *h, const AttentionShape *s, int arg) {
  const char *dim[] = {"S", "T"}, *t = "";
  long long size[] = {s->queries, s->keys};
  int at = arg + 2;
  for (int i = 0; i < 2; i++, at += 4) {
    t = arena_printf(h->arena, "%s  %%%d = iota[%s] : i32[%s:%lld]\n", t, at, dim[i], dim[i],
                     size[i]);
    t = arena_printf(h->arena, "%s  %%%d = max %%%d, %%%d : i32[%s:%lld]\n", t, at + 1, arg + i, at,
                     dim[i], size[i]);
    t = arena_printf(h->arena, "%s  %%%d = const {value = 16} : i32[]\n", t, at + 2);
    t = arena_printf(h->arena, "%s  %%%d = div %%%d, %%%d : i32[%s:%lld]\n", t, at + 3, at + 1,
                     at + 2, dim[i], size[i]);
  }
  const char *both = arena_printf(h->arena, "[T:%lld, S:%lld]", size[1], size[0]);
  t = arena_printf(h->arena, "%s  %%%d = expand[T] %%%d : i32%s\n", t, at, at - 5, both);
  t = arena_printf(h->arena, "%s  %%%d = eq %%%d, %%%d : bool%s\n", t, at + 1, at, at - 1, both);
  const char *arguments = arena_printf(h->arena, ", %%%d : i32[S:%lld], %%%d : i32[T:%lld]", arg,
                                       size[0], arg + 1, size[1]);
  return (AttentionMask){arguments, t, 11};
}

enum { DOCUMENT_VALUES = 12 };

/* The mask of documents and another mask, whose values follow. */
static AttentionMask documents_and(Harness *h, const AttentionShape *s, int arg,
                                   AttentionMask other) {
  AttentionMask m = documents(h, s, arg);
  int own = arg + DOCUMENT_VALUES - 1, last = own + other.values;
  m.ops = arena_printf(h->arena, "%s%s  %%%d = and %%%d, %%%d : bool[T:%lld, S:%lld]\n", m.ops,
                       other.ops, last + 1, own, last, (long long)s->keys, (long long)s->queries);
  m.values = DOCUMENT_VALUES + other.values;
  return m;
}

static AttentionMask random_documents(Harness *h, const AttentionShape *s, int arg) {
  int next = arg + DOCUMENT_VALUES;
  switch (harness_random(h, 0, 2)) {
  case 0: return documents_and(h, s, arg, causal(h, s, next, false));
  case 1: return documents_and(h, s, arg, near(h, s, next, 30, harness_random(h, 0, 1), true));
  default: return documents(h, s, arg);
  }
}

static AttentionMask random_mask(Harness *h, const AttentionShape *s, int kind, int arg) {
  switch (kind) {
  case CAUSAL:
  case SLIDING: return causal(h, s, arg, kind == SLIDING);
  case PADDED: return padded(h, s, arg, arg + 1);
  case GIVEN: return harness_random(h, 0, 1) ? given(h, s, arg) : random_documents(h, s, arg);
  case BLOCKS: return blocks(h, s, arg);
  case NEAR:
    return near(h, s, arg, harness_random(h, 1, 40), harness_random(h, 0, 1),
                harness_random(h, 0, 1));
  case PATTERN:
    return pattern(h, s, arg, harness_random(h, 1, 20), harness_random(h, 0, 2),
                   harness_random(h, 1, 4));
  default: return (AttentionMask){"", "", 0};
  }
}

static const char *machine = "native";

/* The PTX machine is slow. */
static bool gpu(void) { return !strncmp(machine, "sm_", 3); }

static void add_forward(Harness *h, int i, const char *elem, int64_t width) {
  AttentionShape s = shape_of(h, width);
  attention_forward(h, i, elem, s, random_mask(h, &s, i % MASKS, 3));
}

/* Keys as many as queries, no groups: gradients have one shape, and may be put together. */
static AttentionShape even(AttentionShape s) {
  s.keys = s.queries, s.nk = s.nq;
  for (int i = 0; i < s.nq; i++) s.kdim[i] = s.qdim[i], s.ksize[i] = s.qsize[i];
  s.kdim[s.nk - 2] = "T";
  return s;
}

static void add_backward(Harness *h, int i, const char *elem, int64_t width) {
  bool together = i % 4 == 3;
  AttentionShape s = shape_of(h, width);
  if (together) s = even(s);
  int summed = gpu() && i % 8 > 1 ? (int)harness_random(h, -1, s.nq - 2) : -1;
  attention_backward(h, i, elem, s, random_mask(h, &s, i % MASKS, 6), together, summed);
}

static void run_on(Harness *h, const char *elem, int count, bool grad, int workers,
                   double tolerance) {
  if (gpu()) count = (count + 5) / 6;
  h->workers = workers;
  h->int_low = 0, h->int_high = 40;
  h->random += (uint64_t)count * 977 + (uint64_t)grad;
  for (int i = 0; i < count; i++) (grad ? add_backward : add_forward)(h, i, elem, 0);
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

static void run_many(const char *target, const char *elem, int count, bool grad, int workers,
                     double tolerance) {
  run_on(harness_new(target), elem, count, grad, workers, tolerance);
}

static void forward(void **state) { (void)state, run_many(machine, "f32", 150, false, 2, 1e-5); }
static void forward_many_chunks(void **state) {
  (void)state, run_many(machine, "f32", 36, false, 400, 1e-5);
}
static void forward_bf16(void **state) {
  (void)state, run_many(machine, "bf16", gpu() ? 60 : 18, false, 2, gpu() ? 4e-3 : 1e-4);
}
static void backward(void **state) { (void)state, run_many(machine, "f32", 150, true, 2, 4e-5); }
static void backward_bf16(void **state) {
  double tolerance =
      gpu() ? 2e-2 : 2e-3; /* tensor cores take probabilities, and their gradients, in bf16 */
  (void)state, run_many(machine, "bf16", gpu() ? 60 : 18, true, 2, tolerance);
}
static void f16(void **state) {
  (void)state;
  run_many(machine, "f16", gpu() ? 60 : 18, false, 2, gpu() ? 1e-3 : 1e-4);
  run_many(machine, "f16", gpu() ? 60 : 18, true, 2, gpu() ? 2e-3 : 5e-4);
}
static void backward_many_chunks(void **state) {
  (void)state, run_many(machine, "f32", 36, true, 400, 4e-5);
}

/* Every cut that a tuner may measure gives the same numbers. */
static void variants(void **state) {
  (void)state;
  for (int grad = 0; grad < 2; grad++) {
    Harness *h = harness_new(machine);
    h->vary = true;
    run_on(h, "f32", 40, grad, 20, 4e-5);
  }
}

/* Scores of hundreds: the largest one of a query often comes late, and then is far above all
 * before.
 */
static void far_scores(void **state) {
  (void)state;
  for (int grad = 0; grad < 2; grad++) {
    Harness *h = harness_new(machine);
    h->workers = 2, h->int_low = 0, h->int_high = 40, h->high = grad ? 4 : 12, h->low = -h->high;
    for (int i = 0; i < (gpu() ? 6 : 30); i++) (grad ? add_backward : add_forward)(h, i, "f32", 48);
    assert_int_equal(harness_run(h, 2e-3), 0);
    harness_free(h);
  }
}

/* Heads up to 256 wide, where a GPU's tiles are small and a row has more pieces than threads. */
static void wide_with(bool most) {
  static const int64_t wide[] = {80, 96, 112, 128, 160, 192, 256};
  for (int half = 0; half < 2; half++)
    for (int grad = 0; grad < 2; grad++) {
      Harness *h = harness_new(machine);
      h->workers = 2, h->int_low = 0, h->int_high = 40, h->low = -0.5, h->high = 0.5;
      h->vary = h->most = most;
      for (int i = 0; i < (int)(sizeof wide / sizeof *wide); i++)
        (grad ? add_backward : add_forward)(h, i, half ? "bf16" : "f32", wide[i]);
      assert_int_equal(harness_run(h, half ? 2e-2 : 1e-4), 0);
      harness_free(h);
    }
}

static void wide_heads(void **state) { (void)state, wide_with(false); }
static void wide_heads_most_shared(void **state) {
  (void)state;
  if (!gpu()) skip();
  wide_with(true);
}

/* Blocks that a sliding mask excludes are not computed: their elements are NaN, which a factor of 0
   would spread. */
static void far_blocks(void **state) {
  (void)state;
  AttentionShape s = {2, 2, {"S", "D"}, {"T", "D"}, {832, 16}, {832, 16}, 832, 832};
  Harness *h = harness_new(machine);
  h->unit = 32, h->near = 0x7ffff8, h->asked = 3 << 12; /* 96 to 736, 384 to 448 */
  for (int i = 0; i < (gpu() ? 2 : 4); i++) {
    attention_forward(h, i, "f32", s, near(h, &s, 3, 16, i % 2, i < 2));
    attention_backward(h, i, "f32", s, near(h, &s, 6, 16, i % 2, i < 2), false, -1);
  }
  assert_int_equal(harness_run(h, 4e-5), 0);
  harness_free(h);
}

/* Masks of documents that skip blocks in which the other mask admits scores. */
static AttentionMask far_documents(Harness *h, const AttentionShape *s, int arg, int kind) {
  int next = arg + DOCUMENT_VALUES;
  if (kind == 0) return documents(h, s, arg);
  if (kind == 1) return documents_and(h, s, arg, causal(h, s, next, false));
  return documents_and(h, s, arg, near(h, s, next, 290, false, true));
}

static void document_blocks(void **state) {
  (void)state;
  AttentionShape s = {2, 2, {"S", "D"}, {"T", "D"}, {832, 16}, {832, 16}, 832, 832};
  for (int half = 0; half < 2; half++) {
    Harness *h = harness_new(machine);
    h->unit = 32, h->near = 0x7ffff8, h->asked = 3 << 12, h->int_low = 0, h->int_high = 40;
    for (int i = 0; i < 3; i++) {
      attention_forward(h, i, half ? "bf16" : "f32", s, far_documents(h, &s, 3, i));
      attention_backward(h, i, half ? "bf16" : "f32", s, far_documents(h, &s, 6, i), false, -1);
    }
    assert_int_equal(harness_run(h, half ? 2e-2 : 4e-5), 0);
    harness_free(h);
  }
}

/* Rows for two warpgroups, ragged, and widths of whole pieces of 16 bytes. */
static AttentionShape group_shape(Harness *h, int64_t width) {
  static const int64_t many[] = {65, 100, 128, 129, 200, 256, 300};
  AttentionShape s = shape_of(h, width);
  int64_t *queries = &s.qsize[s.nq - 2], *keys = &s.ksize[s.nk - 2];
  *queries = s.queries = pick(h, many, sizeof many / sizeof *many);
  *keys = s.keys = pick(h, many, sizeof many / sizeof *many);
  for (int i = 0; i < s.nq - 2; i++) s.qsize[i] = 1 + i % 2;
  for (int i = 0; i < s.nk - 2; i++) s.ksize[i] = 1 + (s.kdim[i][0] == 'H');
  return s;
}

/* Kernels of warpgroups, cut so or by the rule: few of a GPU's multiprocessors, so that a CTA has
   several tiles of rows. */
static int warpgroups_with(const char *elem, const char *cut, int64_t width, bool grad,
                           double tolerance) {
  Harness *h = harness_new(machine);
  h->cut = *cut ? cut : NULL, h->pieces = true, h->multiprocessors = grad ? 3 : 2, h->low = -1,
  h->high = 1;
  h->int_low = 0, h->int_high = 40, h->random += (uint64_t)width;
  h->spare = *cut && !grad;
  for (int i = 0; i < MASKS; i++) {
    AttentionShape s = group_shape(h, width);
    bool together = grad && i % 3 == 1;
    if (together) s = even(s);
    AttentionMask m = i == GIVEN ? given(h, &s, grad ? 6 : 3) : random_mask(h, &s, i, grad ? 6 : 3);
    if (grad) attention_backward(h, i, elem, s, m, together, (int)harness_random(h, -1, s.nq - 2));
    else attention_forward(h, i, elem, s, m);
  }
  int wrong = harness_run(h, tolerance);
  harness_free(h);
  return wrong;
}

static void warpgroups(void **state) {
  static const struct {
    const char *elem, *cut;
    int64_t width;
    bool grad;
  } of[] = {{"bf16", "128 128 3", 64, false}, {"f16", "", 128, false}, {"bf16", "", 256, false},
            {"f16", "128 32 2", 80, false},   {"bf16", "", 64, true},  {"f16", "", 128, true},
            {"bf16", "128 32 3", 40, true}};
  (void)state;
  if (strcmp(machine, "sm_90a")) skip();
  int wrong = 0;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    wrong +=
        warpgroups_with(of[i].elem, of[i].cut, of[i].width, of[i].grad, of[i].grad ? 2e-2 : 4e-3);
  assert_int_equal(wrong, 0);
}

/* ---- blocks of scores that each warpgroup computes ---- */

enum { GROUP_ROWS = 64, UNITS_LENGTH = 384, DOCUMENT = 16, WINDOW = 90 };

typedef enum Seen { SEES_BEFORE, SEES_NEAR, SEES_ALL, SEES_DOCUMENT, SEEN_KINDS } Seen;

static bool sees(Seen kind, int64_t query, int64_t key) {
  if (kind == SEES_ALL) return true;
  if (kind == SEES_DOCUMENT) return key <= query && key / DOCUMENT == query / DOCUMENT;
  return key <= query && (kind != SEES_NEAR || query - key < WINDOW);
}

static AttentionMask seen_mask(Harness *h, const AttentionShape *s, Seen kind, int arg) {
  if (kind == SEES_BEFORE) return causal(h, s, arg, false);
  if (kind == SEES_NEAR) return near(h, s, arg, WINDOW, true, false);
  if (kind == SEES_ALL) return (AttentionMask){"", "", 0};
  return documents_and(h, s, arg, causal(h, s, arg + DOCUMENT_VALUES, false));
}

static bool any_seen(Seen kind, bool keys, int64_t row0, int64_t column0, int64_t columns,
                     int64_t length) {
  for (int64_t r = row0; r < row0 + GROUP_ROWS && r < length; r++)
    for (int64_t c = column0; c < column0 + columns && c < length; c++)
      if (keys ? sees(kind, c, r) : sees(kind, r, c)) return true;
  return false;
}

/* Blocks with a score for a row of this warpgroup, over all tiles of rows. */
static int64_t seen_blocks(Seen kind, bool keys, int group, int64_t columns, int64_t length) {
  int64_t n = 0;
  for (int64_t row0 = group * GROUP_ROWS; row0 < length; row0 += 2 * GROUP_ROWS)
    for (int64_t c = 0; c < length; c += columns)
      n += any_seen(kind, keys, row0, c, columns, length);
  return n;
}

typedef struct CountedUnits {
  const char *cut;
  int64_t columns, width, length;
  bool grad;
} CountedUnits;

static void check_units(const CountedUnits *units, Seen kind) {
  enum { HEADS = 2, STEP = 16, WARPS = 4 };
  int64_t n = units->length, width = units->width, wide = width / STEP,
          high = units->columns / STEP;
  AttentionShape s = {3, 2, {"H", "S", "D"}, {"T", "D"}, {HEADS, n, width}, {n, width}, n, n};
  GpuProducts products = {{{0}}};
  Harness *h = harness_new("sm_90a");
  h->cut = units->cut, h->pieces = true, h->multiprocessors = 2, h->low = -1, h->high = 1;
  h->int_low = h->int_high = 0, h->products = &products;
  AttentionMask mask = seen_mask(h, &s, kind, units->grad ? 6 : 3);
  if (units->grad) attention_backward(h, 4, "bf16", s, mask, false, -1);
  else attention_forward(h, 4, "bf16", s, mask);
  assert_int_equal(harness_run(h, 2e-2), 0);
  for (int phase = 0; phase < (units->grad ? 2 : 1); phase++)
    for (int group = 0; group < 2; group++) {
      int64_t of_block = (units->grad ? 2 : 1) * wide + (phase + 1) * high,
              all = HEADS * of_block * WARPS;
      int64_t blocks = seen_blocks(kind, phase == 1, group, units->columns, n);
      assert_int_equal(products.of[phase][group + 1], all * blocks); /* the first one copies */
    }
  harness_free(h);
}

/* Each computes those with a score for a row of its own, and no other: under a causal mask, near
   the diagonal alone, in documents, and where the second one has no rows in the last tile. */
static void units_of_warpgroups(void **state) {
  static const CountedUnits of[] = {
      {"128 64 3", 64, 64, UNITS_LENGTH, false}, {"128 128 3", 128, 64, UNITS_LENGTH, false},
      {"128 32 2", 32, 80, UNITS_LENGTH, false}, {"128 32 2", 32, 32, 180, false},
      {"128 64 3", 64, 64, UNITS_LENGTH, true},  {"128 32 3", 32, 32, 180, true}};
  (void)state;
  if (strcmp(machine, "sm_90a")) skip();
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (int kind = 0; kind < SEEN_KINDS; kind++) check_units(&of[i], (Seen)kind);
}

int main(int argc, char **argv) {
  if (argc > 1) machine = argv[1];
  if (harness_tested(machine)) return HARNESS_SKIPPED;
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(forward),
                                     cmocka_unit_test(forward_many_chunks),
                                     cmocka_unit_test(forward_bf16),
                                     cmocka_unit_test(backward),
                                     cmocka_unit_test(backward_bf16),
                                     cmocka_unit_test(backward_many_chunks),
                                     cmocka_unit_test(variants),
                                     cmocka_unit_test(f16),
                                     cmocka_unit_test(wide_heads),
                                     cmocka_unit_test(wide_heads_most_shared),
                                     cmocka_unit_test(far_scores),
                                     cmocka_unit_test(far_blocks),
                                     cmocka_unit_test(document_blocks),
                                     cmocka_unit_test(warpgroups),
                                     cmocka_unit_test(units_of_warpgroups)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

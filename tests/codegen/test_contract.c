/* Family contract against the interpreter: random batches, rows, columns and summed dims, storage
   orders, strides, element types, epilogues; many chunks and few. */
#include "harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  13, 16, 17,
                                31, 32, 33, 48, 50, 64, 65, 96, 97, 130};

typedef struct Dims {
  int n;
  const char *dim[6];
  int64_t size[6];
} Dims;

typedef struct Product {
  Dims a, b, r, k;
  const char *elem; /* of operands, hence of the dot */
} Product;

static void add(Dims *d, const char *dim, int64_t size) {
  d->dim[d->n] = dim, d->size[d->n++] = size;
}

static int64_t pick(Harness *h, int most) { return sizes[harness_random(h, 0, most)]; }

static Product random_product(Harness *h) {
  static const char *const names[] = {"A", "B", "C", "D", "E", "F", "G", "H"};
  Product p = {0};
  int n[4]; /* batch, rows, columns, summed */
  bool plain = harness_random(h, 0, 1);
  for (int i = 0; i < 4; i++) n[i] = plain ? i > 0 : (int)harness_random(h, i == 3, 2);
  int total = n[0] + n[1] + n[2] + n[3], most = total <= 3 ? 20 : total <= 5 ? 10 : 5, at = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < n[i]; j++, at++) {
      int64_t size = pick(h, most);
      if (i != 2) add(&p.a, names[at], size);
      if (i != 1) add(&p.b, names[at], size);
      add(i == 3 ? &p.k : &p.r, names[at], size);
    }
  return p;
}

static const char *type(Harness *h, const char *elem, const Dims *d) {
  return harness_type(h, elem, d->n, d->dim, d->size);
}

static const char *dense(Harness *h, const char *elem, const Dims *d) {
  return harness_dense(h, elem, d->n, d->dim, d->size);
}

static const char *result(Harness *h, const char *elem, const Dims *d) {
  return harness_result(h, elem, d->n, d->dim, d->size);
}

static const char *names(Harness *h, const Dims *d) {
  const char *s = "";
  for (int i = 0; i < d->n; i++) s = arena_printf(h->arena, "%s%s%s", s, i ? ", " : "", d->dim[i]);
  return s;
}

/* Some of the result's dims, for a bias. */
static Dims some(Harness *h, const Dims *r) {
  Dims d = {0};
  for (int i = 0; i < r->n; i++)
    if (harness_random(h, 0, 1)) add(&d, r->dim[i], r->size[i]);
  return d;
}

typedef void Case(Harness *h, int i, const Product *p, const char *a, const char *b);

static void plain(Harness *h, int i, const Product *p, const char *a, const char *b) {
  bool cast = i % 3 == 0 && *p->elem == 'b';
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\"} {\n", i, a, b);
  harness_add(h, "  %%2 = dot[%s] %%0, %%1 : %s\n", names(h, &p->k),
              (cast ? dense : result)(h, p->elem, &p->r));
  if (cast) harness_add(h, "  %%3 = cast %%2 : %s\n", result(h, "f32", &p->r));
  harness_add(h, "  return %%%d\n}\n", 2 + cast);
}

/* tanh(dot + bias) + residual, and dot + bias itself in another order */
static void activation(Harness *h, int i, const Product *p, const char *a, const char *b) {
  Dims bias = some(h, &p->r);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s, %%3 : %s) {family = \"contract\"} {\n",
              i, a, b, type(h, "f32", &bias), type(h, "f32", &p->r));
  harness_add(h, "  %%4 = dot[%s] %%0, %%1 : %s\n", names(h, &p->k), dense(h, "f32", &p->r));
  harness_add(h, "  %%5 = add %%4, %%2 : %s\n", result(h, "f32", &p->r));
  harness_add(h, "  %%6 = tanh %%5 : %s\n", dense(h, "f32", &p->r));
  harness_add(h, "  %%7 = add %%6, %%3 : %s\n", result(h, "f32", &p->r));
  harness_add(h, "  return %%7, %%5\n}\n");
}

static void accumulate(Harness *h, int i, const Product *p, const char *a, const char *b) {
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"contract\"} {\n", i,
              dense(h, "f32", &p->r), a, b);
  harness_add(h, "  %%3 = dot[%s] %%1, %%2 : %s\n", names(h, &p->k), dense(h, "f32", &p->r));
  harness_add(h, "  %%4 = add %%0, %%3 : %s\n  return %%4\n}\n", dense(h, "f32", &p->r));
}

static void renamed(Harness *h, int i, const Product *p, const char *a, const char *b) {
  Dims r = p->r;
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\"} {\n", i, a, b);
  harness_add(h, "  %%2 = dot[%s] %%0, %%1 : %s\n", names(h, &p->k), dense(h, "f32", &p->r));
  if (r.n) {
    const char *from = r.dim[r.n / 2];
    r.dim[r.n / 2] = "Other";
    harness_add(h, "  %%3 = rename[%s -> Other] %%2 : %s\n  %%4 = neg %%3 : ", from,
                dense(h, "f32", &r));
    harness_add(h, "%s\n  return %%4\n}\n", result(h, "f32", &r));
  } else {
    harness_add(h, "  return %%2\n}\n");
  }
}

/* A product after pass precision: factors cast on the way in, f32 out, an epilogue, and its result
   rounded. */
static void narrowed(Harness *h, int i, const Product *p, const char *a, const char *b) {
  bool wide_a = i % 4 == 1, wide_b = i % 4 > 1;
  Dims bias = some(h, &p->r);
  if (wide_a) a = type(h, "f32", &p->a);
  if (wide_b) b = type(h, "f32", &p->b);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"contract\"} {\n", i, a, b,
              type(h, "f32", &bias));
  int x = 0, y = 1, n = 3;
  if (wide_a) harness_add(h, "  %%%d = cast %%0 : %s\n", x = n++, dense(h, p->elem, &p->a));
  if (wide_b) harness_add(h, "  %%%d = cast %%1 : %s\n", y = n++, dense(h, p->elem, &p->b));
  harness_add(h, "  %%%d = dot[%s] %%%d, %%%d : %s\n", n, names(h, &p->k), x, y,
              dense(h, "f32", &p->r));
  harness_add(h, "  %%%d = add %%%d, %%2 : %s\n", n + 1, n, dense(h, "f32", &p->r));
  harness_add(h, "  %%%d = cast %%%d : %s\n", n + 2, n + 1, result(h, p->elem, &p->r));
  harness_add(h, "  return %%%d\n}\n", n + 2);
}

static const char *machine = "native";

/* The PTX machine is slow. */
static bool gpu(void) { return !strncmp(machine, "sm_", 3); }
static int some_of(int count) { return gpu() ? count / 3 : count; }
/* An operand's sum over k together with the product: before or after it, widened or not. */
static void summed(Harness *h, int i, const Product *p, const char *a, const char *b) {
  const Dims *of = i % 3 ? &p->b : &p->a;
  bool widen = strcmp(p->elem, "f32") && i % 2;
  const char *elem = widen ? "f32" : p->elem, *k = names(h, &p->k);
  Dims kept = {0};
  for (int d = 0; d < of->n; d++) {
    bool over = false;
    for (int j = 0; j < p->k.n; j++) over |= p->k.dim[j] == of->dim[d];
    if (!over) add(&kept, of->dim[d], of->size[d]);
  }
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\"} {\n", i, a, b);
  harness_add(h, "  %%2 = dot[%s] %%0, %%1 : %s\n", k, result(h, p->elem, &p->r));
  if (widen) harness_add(h, "  %%3 = cast %%%d : %s\n", of == &p->b, dense(h, "f32", of));
  harness_add(h, "  %%%d = sum[%s] %%%d : %s\n", 3 + widen, k, widen ? 3 : of == &p->b,
              result(h, elem, &kept));
  harness_add(h, i % 2 ? "  return %%2, %%%d\n}\n" : "  return %%%d, %%2\n}\n", 3 + widen);
}

static void run_elem(Harness *h, Case *make, int count, int workers, const char *elem,
                     double tolerance) {
  count = some_of(count);
  h->workers = workers, h->random += (uint64_t)count * 31 + (uint64_t)workers;
  if (make == accumulate) {
    vec_push(h->arena, h->inplace, 0);
    vec_push(h->arena, h->inplace, 0);
  }
  for (int i = 0; i < count; i++) {
    Product p = random_product(h);
    p.elem = elem;
    const char *a = type(h, p.elem, &p.a), *b = type(h, p.elem, &p.b);
    make(h, i, &p, a, b);
  }
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

static void run_case(Case *make, int count, int workers, const char *elem, double tolerance) {
  run_elem(harness_new(machine), make, count, workers, elem, tolerance);
}

static void plain_dots(void **state) { (void)state, run_case(plain, 80, 2, "f32", 3e-5); }
static void many_chunks(void **state) { (void)state, run_case(plain, 40, 3000, "f32", 3e-5); }
static void bf16_operands(void **state) { (void)state, run_case(plain, 60, 2, "bf16", 8e-3); }
static void bf16_chunks(void **state) { (void)state, run_case(plain, 30, 3000, "bf16", 8e-3); }
static void bf16_narrowed(void **state) { (void)state, run_case(narrowed, 60, 2, "bf16", 3e-5); }
static void sums_on(int count, int workers, const char *elem, double tolerance) {
  if (gpu()) skip(); /* target.sums is 0 on that target */
  run_case(summed, count, workers, elem, tolerance);
}

static void with_sums(void **state) { (void)state, sums_on(90, 2, "f32", 3e-5); }
static void with_sums_chunks(void **state) { (void)state, sums_on(40, 3000, "f32", 3e-5); }
static void with_sums_bf16(void **state) { (void)state, sums_on(60, 2, "bf16", 8e-3); }
/* The same in f16, whose factors are widened while they are packed. */
static void f16_operands(void **state) {
  (void)state;
  run_case(plain, 40, 2, "f16", 2e-3), run_case(plain, 20, 3000, "f16", 2e-3);
}
static void f16_narrowed(void **state) {
  (void)state;
  run_case(narrowed, 40, 2, "f16", 3e-5);
  Harness *h = harness_new(machine);
  h->vary = true;
  run_elem(h, narrowed, 40, 2, "f16", 3e-5);
}
static void f16_sums(void **state) { (void)state, sums_on(40, 2, "f16", 2e-3); }
static void activations(void **state) { (void)state, run_case(activation, 60, 2, "f32", 3e-5); }
static void in_place(void **state) { (void)state, run_case(accumulate, 30, 40, "f32", 3e-5); }
static void new_names(void **state) { (void)state, run_case(renamed, 20, 2, "f32", 3e-5); }

/* Every cut that a tuner may measure gives the same numbers. */
static void variants(void **state) {
  (void)state;
  Case *const makes[] = {plain, activation, narrowed};
  for (int i = 0; i < 3; i++) {
    Harness *h = harness_new(machine);
    h->vary = true;
    run_elem(h, makes[i], 50, 2, i == 2 ? "bf16" : "f32", 3e-5);
  }
}

/* Fragments of the other types that tensor cores take. */
static void tensor_cores(void **state) {
  (void)state;
  if (!gpu()) skip();
  Harness *h = harness_new(machine);
  h->vary = true;
  run_elem(h, plain, 90, 2, "f16", 2e-3);
  h = harness_new(machine);
  h->vary = true;
  harness_add(h, "set plan.precision = \"tf32\"\n");
  h->low = -1, h->high = 1;
  run_elem(h, plain, 90, 2, "f32", 1e-2);
}

/* Sizes at which tuning blocks k, packs, prefetches and streams. */
static void large_with(bool vary, const char *elem, double tolerance) {
  static const int64_t shape[][3] = {
      {64, 1700, 100}, {129, 2001, 96}, {300, 41, 700}, {24, 3000, 24}, {9, 4999, 64}};
  Harness *h = harness_new(machine);
  h->low = -1, h->high = 1, h->vary = vary;
  for (int i = 0; i < 20; i += gpu() ? 3 : 1) {
    const int64_t *s = shape[i % 5];
    const char *an[] = {"M", "K"}, *bn[] = {"K", "N"}, *at[] = {"K", "M"}, *bt[] = {"N", "K"};
    const char *a = i / 5 & 1 ? harness_dense(h, elem, 2, at, (int64_t[]){s[1], s[0]})
                              : harness_dense(h, elem, 2, an, s);
    const char *b = i / 5 & 2 ? harness_dense(h, elem, 2, bt, (int64_t[]){s[2], s[1]})
                              : harness_dense(h, elem, 2, bn, s + 1);
    harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\"} {\n", i, a, b);
    harness_add(h, "  %%2 = dot[K] %%0, %%1 : f32[M:%lld, N:%lld]\n  return %%2\n}\n",
                (long long)s[0], (long long)s[2]);
  }
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

static void large(void **state) { (void)state, large_with(false, "f32", 1e-4); }
/* 128 x 256 and more, for GPUs whose CTAs may have that much shared memory. */
static void most_shared(void **state) {
  (void)state;
  if (!gpu()) skip();
  for (int i = 0; i < 3; i++) {
    Harness *h = harness_new(machine);
    h->vary = h->most = true;
    if (i == 1) harness_add(h, "set plan.precision = \"tf32\"\n");
    if (i == 1) h->low = -1, h->high = 1;
    run_elem(h, plain, 60, 2, i ? i == 1 ? "f32" : "f16" : "bf16", i == 1 ? 1e-2 : 2e-3);
  }
}
typedef struct CutCase {
  const char *elem, *cut;
  double tolerance;
  bool pieces; /* of 16 bytes: by elements it would not fit the registers */
} CutCase;

/* Whole tiles and ragged ones, asynchronous copies and such by elements, on the way out vectors of
   eight (16 bits) or four and single columns. */
static void run_cuts(const CutCase *of, int n) {
  for (int i = 0; i < n; i++) {
    bool tf32 = !strcmp(of[i].elem, "tf32");
    const char *elem = tf32 ? "f32" : of[i].elem;
    Harness *h = harness_new(machine);
    h->low = -1, h->high = 1, h->cut = of[i].cut;
    if (tf32) harness_add(h, "set plan.precision = \"tf32\"\n");
    for (int k = 0; k < 2; k++) {
      int rows = k ? 203 : 256, columns = k ? 143 + of[i].pieces : 256;
      harness_add(h,
                  "kernel @k%d(%%0 : %s[M:%d, K:72], %%1 : %s[K:72, N:%d], %%2 : f32[M:%d]) "
                  "{family = \"contract\"} {\n  %%3 = dot[K] %%0, %%1 : f32[M:%d, N:%d]\n"
                  "  %%4 = add %%3, %%2 : f32[M:%d, N:%d]\n  %%5 = cast %%4 : %s[M:%d, N:%d]\n"
                  "  return %%%d\n}\n",
                  k, elem, rows, elem, columns, rows, rows, columns, rows, columns,
                  strcmp(elem, "f32") ? elem : "bf16", rows, columns, strcmp(elem, "f32") ? 5 : 4);
    }
    assert_int_equal(harness_run(h, of[i].tolerance), 0);
    harness_free(h);
  }
}

/* Sums that leave in two and in four passes, splits too. */
static void passes_out(void **state) {
  static const CutCase of[] = {{"bf16", "128 256 32 64 64 2 1 1", 1e-3, true},
                               {"f16", "128 128 32 64 64 4 1 1", 1e-3, true},
                               {"bf16", "256 64 32 64 32 2 3 1", 1e-3, false},
                               {"tf32", "128 128 16 64 64 3 1 1", 1e-2, false},
                               {"f32", "128 128 16 64 32 2 1 1", 1e-4, false},
                               {"f32", "128 128 8 32 64 2 2 1", 1e-4, false}};
  (void)state;
  if (!gpu()) skip();
  run_cuts(of, sizeof of / sizeof *of);
}

/* Tiles of one step of k, two stages, more stages than tiles, a last split of one tile: where
   prefetched data arrives just in time, or does not exist. */
static void read_ahead(void **state) {
  static const CutCase of[] = {
      {"bf16", "64 64 16 32 32 3 1 1", 1e-3, false}, {"bf16", "64 64 16 32 32 2 1 1", 1e-3, false},
      {"f16", "64 64 64 32 32 2 1 1", 1e-3, false},  {"bf16", "32 64 32 16 32 6 2 1", 1e-3, false},
      {"tf32", "64 64 8 32 32 2 1 1", 1e-2, false},  {"tf32", "32 64 16 16 32 4 3 1", 1e-2, false}};
  (void)state;
  if (!gpu()) skip();
  run_cuts(of, sizeof of / sizeof *of);
}

/* One product in batches, of ragged sizes or whole tiles, k or the other dim contiguous. */
static void add_turned(Harness *h, int i, const char *elem, int64_t width) {
  bool whole = i & 4, a_turned = i & 1, b_turned = i & 2;
  int64_t m = whole ? 128 : 200, n = whole ? width : 136 + 8 * i,
          k = whole ? 320 : 72 + 40 * (i % 3), batch = 1 + i % 2;
  const char *am[] = {"B", "M", "K"}, *ak[] = {"B", "K", "M"}, *bn[] = {"B", "K", "N"},
             *bk[] = {"B", "N", "K"};
  const char *a = harness_dense(h, elem, 3, a_turned ? ak : am,
                                a_turned ? (int64_t[]){batch, k, m} : (int64_t[]){batch, m, k});
  const char *b = harness_dense(h, elem, 3, b_turned ? bn : bk,
                                b_turned ? (int64_t[]){batch, k, n} : (int64_t[]){batch, n, k});
  const char *r[] = {"B", "M", "N"};
  int64_t size[] = {batch, m, n};
  const char *out = harness_dense(h, "f32", 3, r, size);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : f32[N:%lld]) {family = \"contract\"} {\n",
              i, a, b, (long long)n);
  harness_add(h, "  %%3 = dot[K] %%0, %%1 : %s\n  %%4 = add %%3, %%2 : %s\n", out, out);
  harness_add(h, "  %%5 = cast %%4 : %s\n  return %%%d\n}\n", harness_dense(h, elem, 3, r, size),
              i % 3 ? 5 : 4);
}

/* Whole tiles and ragged ones, k or the other dim contiguous. The sum reads f32: the result in 16
   bits is rounded afterwards. */
static void add_columns(Harness *h, int i, const char *elem) {
  bool whole = i & 4, a_turned = i & 1, b_turned = i & 2;
  int64_t m = whole ? 256 : 200, n = whole ? 256 : 136 + 8 * i, k = whole ? 128 : 72 + 40 * (i % 3);
  const char *am[] = {"M", "K"}, *ak[] = {"K", "M"}, *bn[] = {"K", "N"}, *bk[] = {"N", "K"};
  const char *a = harness_dense(h, elem, 2, a_turned ? ak : am,
                                a_turned ? (int64_t[]){k, m} : (int64_t[]){m, k});
  const char *b = harness_dense(h, elem, 2, b_turned ? bn : bk,
                                b_turned ? (int64_t[]){k, n} : (int64_t[]){n, k});
  const char *dims = arena_printf(h->arena, "[M:%d, N:%d]", (int)m, (int)n);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s%s) {family = \"contract\"} {\n", i, a, b,
              elem, dims);
  harness_add(h, "  %%3 = dot[K] %%0, %%1 : f32%s\n  %%4 = cast %%2 : f32%s\n", dims, dims);
  harness_add(h, "  %%5 = add %%3, %%4 : f32%s\n  %%6 = sum[M] %%5 : f32[N:%d]\n", dims, (int)n);
  if (strcmp(elem, "f32")) harness_add(h, "  %%7 = cast %%5 : %s%s\n", elem, dims);
  harness_add(h, "  return %%%d, %%6\n}\n", strcmp(elem, "f32") ? 7 : 5);
}

static void with_columns(void **state) {
  static const CutCase of[] = {{"bf16", "128 256 32 64 64 2 1 1", 2e-3, false},
                               {"f16", "128 128 32 64 64 4 1 1", 2e-3, false},
                               {"bf16", "32 64 32 16 32 6 1 1", 2e-3, false},
                               {"f32", "128 128 16 64 32 2 1 1", 1e-4, false},
                               {"bf16", "128 256 64 64 256 4 1 1", 2e-3, true},
                               {"f16", "128 128 64 64 128 6 1 1", 2e-3, true},
                               {"bf16", "128 200 64 64 200 4 1 1", 2e-3, true}};
  (void)state;
  if (!gpu()) skip();
  for (size_t c = 0; c < sizeof of / sizeof *of; c++) {
    if (of[c].pieces && strcmp(machine, "sm_90a")) continue;
    Harness *h = harness_new(machine);
    h->low = -1, h->high = 1, h->cut = of[c].cut, h->multiprocessors = 3;
    for (int i = 0; i < 8; i++) add_columns(h, i, of[c].elem);
    for (int i = 8; i < 12; i++) harness_squares(h, i, of[c].elem, 256);
    assert_int_equal(harness_run(h, of[c].tolerance), 0);
    harness_free(h);
  }
}

/* ---- places of experts: many rows are zeros ---- */

typedef struct Routed {
  int64_t batch, experts, places, embed, mlp;
} Routed;

static const char *places_type(Harness *h, const char *elem, const Routed *r, int64_t last,
                               const char *dim) {
  const char *name[] = {"B", "E", "S", dim};
  return harness_dense(h, elem, 4, name, (int64_t[]){r->batch, r->experts, r->places, last});
}

static const char *weight_type(Harness *h, const char *elem, const Routed *r, bool turned) {
  const char *name[] = {"E", turned ? "N" : "K", turned ? "K" : "N"};
  int64_t size[] = {r->experts, turned ? r->mlp : r->embed, turned ? r->embed : r->mlp};
  return harness_dense(h, elem, 3, name, size);
}

/* Rows are places of experts. By form: the product alone, values that are 0 where the product is,
   or values of which some are not. */
static void add_routed(Harness *h, int i, const char *elem, const Routed *r, int form) {
  const char *out = places_type(h, "f32", r, r->mlp, "N");
  harness_add(h,
              "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"contract\", skips = \"S\"} "
              "{\n  %%3 = dot[K] %%0, %%1 : %s\n",
              i, places_type(h, elem, r, r->embed, "K"), weight_type(h, elem, r, i % 2), out, out);
  if (form == 1)
    harness_add(h, "  %%4 = tanh %%2 : %s\n  %%5 = mul %%4, %%3 : %s\n  %%6 = neg %%5 : %s\n", out,
                out, out);
  if (form == 2) harness_add(h, "  %%4 = add %%2, %%3 : %s\n  %%5 = mul %%4, %%3 : %s\n", out, out);
  harness_add(h, "  return %s\n}\n", form == 1 ? "%3, %6, %5" : form == 2 ? "%4, %5" : "%3");
}

/* The gradient of weights, a sum over places. */
static void add_summed_places(Harness *h, int i, const char *elem, const Routed *r) {
  harness_add(h,
              "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\", skips = \"S\"} {\n"
              "  %%2 = dot[B, S] %%0, %%1 : %s\n  return %%2\n}\n",
              i, places_type(h, elem, r, r->embed, "K"), places_type(h, elem, r, r->mlp, "N"),
              weight_type(h, "f32", r, i % 2));
}

/* Where all places are empty, a product reads no weights: nobody has written them. */
static void unfilled(const char *elem, const char *cut, int spare) {
  static const Routed routed = {2, 2, 128, 72, 136};
  Harness *h = harness_new(machine);
  h->unfilled = true, h->cut = cut, h->multiprocessors = 2, h->spare = spare;
  for (int i = 0; i < 3; i++) add_routed(h, i, elem, &routed, i);
  assert_int_equal(harness_run(h, 1e-6), 0);
  harness_free(h);
}

/* wgmma: tiles that a CTA takes one after the other, splits of k, stages more and fewer than tiles
   of k, tiles whose places are all empty; widths of whole panels and of others, which leave 32
   columns at a time or with a rest of 8, 16 or 24. */
static void warpgroups(void **state) {
  static const Routed routed = {2, 2, 256, 72, 136};
  static const struct {
    CutCase c;
    int64_t width;
  } of[] = {{{"bf16", "128 256 64 64 256 4 1 1", 1e-3, false}, 256},
            {{"f16", "128 128 64 64 128 6 1 1", 1e-3, false}, 128},
            {{"bf16", "128 128 64 64 128 3 2 1", 1e-3, false}, 128},
            {{"bf16", "128 200 64 64 200 4 1 1", 1e-3, false}, 200},
            {{"f16", "128 152 64 64 152 4 2 1", 1e-3, false}, 152},
            {{"bf16", "128 224 64 64 224 3 1 1", 1e-3, false}, 224},
            {{"bf16", "128 256 64 64 256 4 1 2", 1e-3, false}, 256},
            {{"f16", "128 128 64 64 128 6 1 2", 1e-3, false}, 128},
            {{"bf16", "128 136 64 64 136 3 2 2", 1e-3, false}, 136},
            {{"f16", "128 200 64 64 200 4 1 2", 1e-3, false}, 200}};
  (void)state;
  if (strcmp(machine, "sm_90a")) skip();
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const CutCase *c = &of[i].c;
    Harness *h = harness_new(machine);
    h->low = -1, h->high = 1, h->cut = c->cut, h->multiprocessors = 3 - (int)i % 3;
    h->spare = (int)i / 2;
    for (int k = 0; k < 8; k++) add_turned(h, k, c->elem, of[i].width);
    for (int k = 8; k < 12; k++) add_routed(h, k, c->elem, &routed, k % 3);
    assert_int_equal(harness_run(h, c->tolerance), 0);
    harness_free(h);
    unfilled(c->elem, c->cut, 1);
  }
}

/* wgmma in equal shares: CTAs that have parts of several tiles and of one, sums that two and more
   of them make, shares of whole tiles; sums of columns; the places of experts summed. */
static void equal_shares(void **state) {
  static const Routed routed = {2, 2, 256, 72, 136};
  static const struct {
    CutCase c;
    int64_t width, ctas;
  } of[] = {{{"bf16", "128 256 64 64 256 3 65536 1", 1e-3, false}, 256, 5},
            {{"f16", "128 128 64 64 128 6 65536 2", 1e-3, false}, 128, 7},
            {{"bf16", "128 200 64 64 200 4 65536 1", 1e-3, false}, 200, 4},
            {{"bf16", "128 136 64 64 136 3 65536 2", 1e-3, false}, 136, 3}};
  (void)state;
  if (strcmp(machine, "sm_90a")) skip();
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Harness *h = harness_new(machine);
    h->low = -1, h->high = 1, h->cut = of[i].c.cut, h->multiprocessors = (int)of[i].ctas;
    h->spare = (int)i % 2 * 16;
    for (int k = 0; k < 8; k++) add_turned(h, k, of[i].c.elem, of[i].width);
    for (int k = 8; k < 12; k++) add_columns(h, k, of[i].c.elem);
    add_summed_places(h, 12, of[i].c.elem, &routed);
    for (int k = 13; k < 17; k++) harness_squares(h, k, of[i].c.elem, of[i].width);
    assert_int_equal(harness_run(h, 2e-3), 0);
    harness_free(h);
  }
}

static void large_variants(void **state) {
  (void)state;
  large_with(true, "f32", 1e-4);
}
/* Packing once for all chunks, blocks of k, epilogues in parts: what only long products have. */
static void large_bf16_variants(void **state) {
  (void)state;
  large_with(true, "bf16", 1e-4);
}

/* Results of more than the second-level cache, which are stored past it: of f32, of bf16 whose sums
   are cast, and rows that do not begin on whole lines; or none of them does. */
static void stream_from(int shift) {
  Harness *h = harness_new(machine);
  h->low = -1, h->high = 1, h->shift = shift;
  for (int i = 0; i < 4; i++) {
    const char *elem = i % 2 ? "bf16" : "f32", *an[] = {"M", "K"}, *bn[] = {"K", "N"};
    int64_t m = i % 2 ? 1000 : 500, k = i < 2 ? 40 : 9, n = i < 3 ? 1056 : 1040;
    harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s) {family = \"contract\"} {\n", i,
                harness_dense(h, elem, 2, an, (int64_t[]){m, k}),
                harness_dense(h, elem, 2, bn, (int64_t[]){k, n}));
    harness_add(h, "  %%2 = dot[K] %%0, %%1 : f32[M:%lld, N:%lld]\n", (long long)m, (long long)n);
    if (i % 2)
      harness_add(h, "  %%3 = cast %%2 : bf16[M:%lld, N:%lld]\n", (long long)m, (long long)n);
    harness_add(h, "  return %%%d\n}\n", 2 + i % 2);
  }
  assert_int_equal(harness_run(h, 8e-3), 0);
  harness_free(h);
}

static void streamed(void **state) {
  (void)state;
  if (gpu()) skip();
  stream_from(0), stream_from(1);
}

/* ---- places of experts ---- */

static void run_places(const char *elem, bool vary, int workers, double tolerance) {
  static const int64_t width[] = {1, 7, 16, 33, 64, 100, 144, 500};
  static const Routed large = {2, 4, 144, 9, 1056}; /* results pass the caches */
  Harness *h = harness_new(machine);
  h->low = -1, h->high = 1, h->vary = vary, h->workers = workers;
  for (int i = 0; i < 35; i++) {
    Routed r = {harness_random(h, 1, 3), harness_random(h, 1, 4), width[harness_random(h, 0, 6)],
                width[harness_random(h, 0, 7)], width[harness_random(h, 0, 7)]};
    if (i % 4 == 3) add_summed_places(h, i, elem, &r);
    else add_routed(h, i, elem, i < 32 ? &r : &large, i % 4);
  }
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

static void places(void **state) {
  (void)state;
  run_places("f32", false, 2, 1e-4), run_places("f32", false, 300, 1e-4);
  run_places("f32", true, 2, 1e-4), run_places("bf16", true, 2, 8e-3);
}

static void empty_places(void **state) {
  (void)state;
  if (!gpu()) skip();
  unfilled("f32", NULL, 0), unfilled("bf16", NULL, 0);
  unfilled("f16", "64 64 32 32 32 3 2 1", 0);
}

static void large_f16(void **state) { (void)state, large_with(false, "f16", 1e-4); }
static void large_bf16(void **state) { (void)state, large_with(false, "bf16", 1e-4); }

int main(int argc, char **argv) {
  if (argc > 1) machine = argv[1];
  if (harness_tested(machine)) return HARNESS_SKIPPED;
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  const Target *target = target_find(machine);
  if (!gpu() && target && !target_runs_here(target)) { /* which also asks for AMX tiles */
    printf("skipped: this machine has not all instructions of %s\n", machine);
    return HARNESS_SKIPPED;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_dots),     cmocka_unit_test(many_chunks),
      cmocka_unit_test(bf16_operands),  cmocka_unit_test(activations),
      cmocka_unit_test(in_place),       cmocka_unit_test(new_names),
      cmocka_unit_test(large),          cmocka_unit_test(variants),
      cmocka_unit_test(large_variants), cmocka_unit_test(most_shared),
      cmocka_unit_test(bf16_chunks),    cmocka_unit_test(tensor_cores),
      cmocka_unit_test(bf16_narrowed),  cmocka_unit_test(large_bf16),
      cmocka_unit_test(with_sums),      cmocka_unit_test(with_sums_chunks),
      cmocka_unit_test(with_sums_bf16), cmocka_unit_test(f16_operands),
      cmocka_unit_test(f16_narrowed),   cmocka_unit_test(f16_sums),
      cmocka_unit_test(large_f16),      cmocka_unit_test(large_bf16_variants),
      cmocka_unit_test(streamed),       cmocka_unit_test(passes_out),
      cmocka_unit_test(warpgroups),     cmocka_unit_test(read_ahead),
      cmocka_unit_test(places),         cmocka_unit_test(empty_places),
      cmocka_unit_test(with_columns),   cmocka_unit_test(equal_shares)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Families row, column and scatter against the interpreter over random shapes and strides. */
#include "harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,   15,  16, 17,
                                31, 32, 33, 48, 64, 67, 100, 129, 257};

typedef struct Shape { /* kept dims A, B; reduced C, D */
  int kept, over;
  int64_t size[4];
  const char *dim[4];
} Shape;

/* Order of the full type: kept dims outside, inside, or around the reduced ones. */
static Shape random_shape(Harness *h, bool one_over) {
  static const char *const kept[] = {"A", "B"}, *const over[] = {"C", "D"};
  Shape s = {.kept = (int)harness_random(h, 0, 2),
             .over = one_over ? 1 : (int)harness_random(h, 1, 2)};
  int64_t room = 20000;
  int order = (int)harness_random(h, 0, 2), n = 0;
  bool large = harness_random(h, 0, 1); /* long enough for lanes */
  if (order == 1)
    for (int i = 0; i < s.over; i++) s.dim[n++] = over[i];
  for (int i = 0; i < (order == 2 && s.kept ? 1 : s.kept); i++) s.dim[n++] = kept[i];
  if (order != 1)
    for (int i = 0; i < s.over; i++) s.dim[n++] = over[i];
  if (order == 2 && s.kept == 2) s.dim[n++] = kept[1];
  for (int i = 0; i < n; i++) {
    s.size[i] =
        sizes[harness_random(h, large && i == n - 1 ? 8 : 0, sizeof sizes / sizeof *sizes - 1)];
    if (s.size[i] > room) s.size[i] = room;
    room /= s.size[i];
  }
  return s;
}

static bool is_over(const char *dim) { return *dim >= 'C'; }

/* Only the kept dims, or only the reduced ones. */
static const char *some(Harness *h, const char *elem, const Shape *s, bool over, bool result) {
  const char *dim[4];
  int64_t size[4];
  int n = 0;
  for (int i = 0; i < s->kept + s->over; i++)
    if (is_over(s->dim[i]) == over) dim[n] = s->dim[i], size[n++] = s->size[i];
  return result ? harness_result(h, elem, n, dim, size) : harness_type(h, elem, n, dim, size);
}

static const char *full(Harness *h, const char *elem, const Shape *s, bool result) {
  int n = s->kept + s->over;
  return result ? harness_result(h, elem, n, s->dim, s->size)
                : harness_type(h, elem, n, s->dim, s->size);
}

static const char *dense(Harness *h, const char *elem, const Shape *s) {
  return harness_dense(h, elem, s->kept + s->over, s->dim, s->size);
}

static const char *over_names(const Shape *s) { return s->over == 2 ? "C, D" : "C"; }

static int64_t over_size(const Shape *s, const char *dim) {
  for (int i = 0; i < s->kept + s->over; i++)
    if (*s->dim[i] == *dim) return s->size[i];
  return 1;
}

static void softmax(Harness *h, int i) {
  Shape s = random_shape(h, false);
  const char *c = over_names(&s), *f = dense(h, "f32", &s);
  harness_add(h, "kernel @softmax%d(%%0 : %s) {family = \"row\"} {\n  %%1 = rmax[%s] %%0 : %s\n", i,
              full(h, "f32", &s, false), c, some(h, "f32", &s, false, true));
  harness_add(h, "  %%2 = sub %%0, %%1 : %s\n  %%3 = exp %%2 : %s\n  %%4 = sum[%s] %%3 : %s\n", f,
              f, c, some(h, "f32", &s, false, true));
  harness_add(h, "  %%5 = div %%3, %%4 : %s\n  %%6 = log %%4 : %s\n  return %%5, %%6, %%1\n}\n",
              full(h, "f32", &s, true), some(h, "f32", &s, false, true));
}

static void layernorm(Harness *h, int i) {
  Shape s = random_shape(h, false);
  const char *c = over_names(&s), *f = dense(h, "f32", &s);
  const char *rows = some(h, "f32", &s, false, true), *m = some(h, "f32", &s, false, true);
  double n = (double)(over_size(&s, "C") * over_size(&s, "D"));
  harness_add(h, "kernel @norm%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"row\"} {\n", i,
              full(h, "f32", &s, false), full(h, "f32", &s, false),
              some(h, "f32", &s, true, false));
  harness_add(h,
              "  %%3 = add %%0, %%1 : %s\n  %%4 = sum[%s] %%3 : %s\n  %%5 = const {value = %.17g} "
              ": f32[]\n",
              full(h, "f32", &s, true), c, rows, 1 / n);
  harness_add(h,
              "  %%6 = mul %%4, %%5 : %s\n  %%7 = sub %%3, %%6 : %s\n  %%8 = mul %%7, %%7 : %s\n",
              m, f, f);
  harness_add(h,
              "  %%9 = sum[%s] %%8 : %s\n  %%10 = mul %%9, %%5 : %s\n  %%11 = add %%10, %%5 : %s\n",
              c, rows, rows, rows);
  harness_add(
      h, "  %%12 = rsqrt %%11 : %s\n  %%13 = mul %%7, %%12 : %s\n  %%14 = mul %%13, %%2 : %s\n",
      some(h, "f32", &s, false, true), f, full(h, "f32", &s, true));
  harness_add(h, "  return %%3, %%14, %%6, %%12\n}\n");
}

static const char *kept_names(const Shape *s) { return s->kept == 2 ? "A, B" : "A"; }

/* x - half the row's largest, times dy, summed up along columns, before and after the results of
 * rows; for a narrow type x itself, because registers do not round. */
static void columns_of_rows(Harness *h, int i, const char *elem) {
  Shape s = random_shape(h, false);
  if (!s.kept) s.kept = 1, s.dim[s.over] = "A", s.size[s.over] = 1;
  const char *f = dense(h, elem, &s), *rows = some(h, elem, &s, false, true);
  const char *c = over_names(&s), *k = kept_names(&s);
  harness_add(h, "kernel @both%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n", i,
              full(h, elem, &s, false), full(h, elem, &s, false));
  harness_add(h, "  %%2 = sum[%s] %%1 : %s\n  %%3 = rmax[%s] %%0 : %s\n", k,
              some(h, elem, &s, true, true), c, rows);
  harness_add(h, "  %%4 = const {value = 0.5} : %s[]\n  %%5 = mul %%3, %%4 : %s\n", elem, rows);
  harness_add(h, "  %%6 = sub %%0, %%5 : %s\n  %%7 = mul %%6, %%1 : %s\n", f, f);
  harness_add(h, "  %%8 = sum[%s] %%%d : %s\n  %%9 = add %%7, %%0 : %s\n", k,
              strcmp(elem, "f32") ? 0 : 7, some(h, elem, &s, true, true), full(h, elem, &s, true));
  harness_add(h, i % 3 ? "  return %%2, %%9, %%8\n}\n" : "  return %%8, %%5, %%2\n}\n");
}

static void columns_of_rows_f32(Harness *h, int i) { columns_of_rows(h, i, "f32"); }
static void columns_of_rows_half(Harness *h, int i) {
  columns_of_rows(h, i, i % 2 ? "f16" : "bf16");
}

static void columns_of_scans(Harness *h, int i) {
  int rows = 1 + i * 7 % 40, n = 1 + i * 37 % 130;
  const char *f = arena_printf(h->arena, "f32[A:%d, C:%d]", rows, n);
  harness_add(h, "kernel @scans%d(%%0 : %s) {family = \"row\"} {\n  %%1 = cumsum[C] %%0 : %s\n", i,
              f, f);
  harness_add(h, "  %%2 = sum[A] %%1 : f32[C:%d]\n  %%3 = sum[A] %%0 : f32[C:%d]\n", n, n);
  harness_add(h, i % 2 ? "  return %%2, %%3\n}\n" : "  return %%3, %%1\n}\n");
}

/* Too long for the registers of a CTA. */
static void columns_of_long_rows(Harness *h, int i) {
  int rows = 3 + i, n = (int[]){21000, 24577, 25600}[i];
  const char *f = arena_printf(h->arena, "f32[A:%d, C:%d]", rows, n);
  harness_add(h, "kernel @long%d(%%0 : %s) {family = \"row\"} {\n  %%1 = rmax[C] %%0 : f32[A:%d]\n",
              i, f, rows);
  harness_add(h, "  %%2 = sub %%0, %%1 : %s\n  %%3 = sum[A] %%2 : f32[C:%d]\n", f, n);
  harness_add(h, "  %%4 = sum[A] %%0 : f32[C:%d]\n  return %%3, %%4\n}\n", n);
}

/* Log-sum-exp, the logit of the target, the best index, a count. */
static void loss(Harness *h, int i) {
  Shape s = random_shape(h, true);
  const char *f = dense(h, "f32", &s), *rows = some(h, "f32", &s, false, true);
  harness_add(h,
              "kernel @loss%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n  %%2 = rmax[C] %%0 : %s\n",
              i, full(h, "f32", &s, false), some(h, "i32", &s, false, false), rows);
  harness_add(h,
              "  %%3 = sub %%0, %%2 : %s\n  %%4 = exp %%3 : %s\n  %%5 = sum[C] %%4 : %s\n  %%6 = "
              "log %%5 : %s\n",
              f, f, rows, rows);
  harness_add(h, "  %%7 = gather[C] %%3, %%1 : %s\n  %%8 = sub %%6, %%7 : %s\n", rows,
              some(h, "f32", &s, false, true));
  harness_add(h,
              "  %%9 = argmax[C] %%0 : %s\n  %%10 = cast %%0 : %s\n  %%11 = sum[C] %%10 : %s\n  "
              "%%12 = rmin[C] %%10 : %s\n",
              some(h, "i32", &s, false, true), dense(h, "i32", &s), some(h, "i32", &s, false, true),
              some(h, "i32", &s, false, true));
  harness_add(h, "  return %%8, %%9, %%11, %%12\n}\n");
}

/* A few numbers become NaN: the largest and the least of their rows must. */
static void invalid(Harness *h, int i) {
  Shape s = random_shape(h, true);
  const char *f = dense(h, "f32", &s);
  harness_add(h, "kernel @invalid%d(%%0 : %s) {family = \"row\"} {\n", i,
              full(h, "f32", &s, false));
  harness_add(h, "  %%1 = const {value = 1.99} : f32[]\n  %%2 = const {value = nan} : f32[]\n");
  harness_add(h, "  %%3 = lt %%1, %%0 : %s\n  %%4 = where %%3, %%2, %%0 : %s\n",
              dense(h, "bool", &s), f);
  harness_add(h, "  %%5 = rmax[C] %%4 : %s\n  %%6 = rmin[C] %%4 : %s\n  return %%5, %%6\n}\n",
              some(h, "f32", &s, false, true), some(h, "f32", &s, false, true));
}

/* Softmax and the score of a label, as `fuse` writes it: a sum of what one element is left of. */
static void picked(Harness *h, int i) {
  Shape s = random_shape(h, true);
  const char *dim[4] = {"C"}, *f = dense(h, "f32", &s), *rows = some(h, "f32", &s, false, true);
  int64_t size[4] = {over_size(&s, "C")};
  int n = 1;
  for (int k = 0; k < s.kept + 1; k++)
    if (!is_over(s.dim[k])) dim[n] = s.dim[k], size[n++] = s.size[k];
  const char *bools = harness_dense(h, "bool", n, dim, size);
  harness_add(h, "kernel @picked%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n", i,
              full(h, "f32", &s, false), some(h, "i32", &s, false, false));
  harness_add(h, "  %%2 = rmax[C] %%0 : %s\n  %%3 = sub %%0, %%2 : %s\n", rows, f);
  harness_add(h, "  %%4 = exp %%3 : %s\n  %%5 = sum[C] %%4 : %s\n", f, rows);
  harness_add(h, "  %%6 = iota[C] : i32[C:%lld]\n  %%7 = expand[C] %%1 : %s\n", (long long)size[0],
              harness_dense(h, "i32", n, dim, size));
  harness_add(h, "  %%8 = eq %s : %s\n  %%9 = const {value = 0} : f32[]\n",
              i % 2 ? "%7, %6" : "%6, %7", bools);
  harness_add(h, "  %%10 = where %%8, %%%d, %%9 : %s\n", i % 3 ? 0 : 3,
              harness_dense(h, "f32", n, dim, size));
  harness_add(h, "  %%11 = sum[C] %%10 : %s\n  %%12 = div %%4, %%5 : %s\n", rows,
              full(h, "f32", &s, true));
  harness_add(h, "  return %%11, %%12, %%5\n}\n");
}

static void scan(Harness *h, int i) {
  Shape s = random_shape(h, true);
  const char *f = dense(h, "f32", &s);
  harness_add(h, "kernel @scan%d(%%0 : %s) {family = \"row\"} {\n  %%1 = cumsum[C] %%0 : %s\n", i,
              full(h, "f32", &s, false), full(h, "f32", &s, true));
  harness_add(
      h,
      "  %%2 = cumsum[C] %%1 {inverse = 1} : %s\n  %%3 = abs %%2 : %s\n  %%4 = rmax[C] %%3 : %s\n",
      f, f, some(h, "f32", &s, false, true));
  harness_add(h, "  %%5 = add %%4, %%4 : %s\n  %%6 = div %%2, %%5 : %s\n  return %%1, %%6\n}\n",
              some(h, "f32", &s, false, true), full(h, "f32", &s, true));
}

/* Rows of whole lines and others, long enough for heads or not, two results of which one is narrow:
   written with non-temporal stores in every way that there is. */
static void streamed(Harness *h, int i) {
  static const int lengths[] = {512, 257, 1040, 1031, 2056, 96};
  int n = lengths[i % 6], rows = 1 + i % 4, gap = i % 5 ? 0 : 3;
  const char *one = i % 7 == 3 ? ", D:1" : "", *over = *one ? "B, D" : "B";
  const char *dims = arena_printf(h->arena, "[A:%d, B:%d%s]", rows, n, one);
  const char *f = arena_printf(h->arena, "f32%s", dims);
  if (gap && !*one) f = arena_printf(h->arena, "f32%s {0: strides(%d, 1)}", dims, n + gap);
  harness_add(h, "kernel @streamed%d(%%0 : f32%s, %%1 : f32[B:%d]) {family = \"row\"} {\n", i, dims,
              n);
  harness_add(h, "  %%2 = rmax[%s] %%0 : f32[A:%d]\n  %%3 = sub %%0, %%2 : f32%s\n", over, rows,
              dims);
  harness_add(h, "  %%4 = exp %%3 : f32%s\n  %%5 = sum[%s] %%4 : f32[A:%d]\n", dims, over, rows);
  harness_add(h, "  %%6 = div %%4, %%5 : f32%s\n  %%7 = add %%6, %%1 : %s\n", dims, f);
  harness_add(h, "  %%8 = cast %%7 : bf16%s\n", dims);
  harness_add(h, i % 3 ? "  return %%5, %%7\n}\n" : "  return %%8, %%7, %%5\n}\n");
}

/* The last walk also sums. */
static void streamed_sums(Harness *h, int i) {
  int n = i % 2 ? 1031 : 512;
  const char *f = arena_printf(h->arena, "f32[A:3, B:%d]", n);
  harness_add(h, "kernel @sums%d(%%0 : %s) {family = \"row\"} {\n  %%1 = sum[B] %%0 : f32[A:3]\n",
              i, f);
  harness_add(h, "  %%2 = sub %%0, %%1 : %s\n  %%3 = mul %%2, %%2 : %s\n", f, f);
  harness_add(h, "  %%4 = sum[B] %%3 : f32[A:3]\n  return %%2, %%4\n}\n");
}

/* ---- column ---- */

static void columns(Harness *h, int i) {
  Shape s = random_shape(h, false);
  const char *c = over_names(&s), *f = dense(h, "f32", &s);
  harness_add(h, "kernel @column%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"column\"} {\n", i,
              full(h, "f32", &s, false), full(h, "f32", &s, false),
              some(h, "f32", &s, true, false));
  harness_add(h, "  %%3 = mul %%0, %%1 : %s\n  %%4 = sub %%3, %%2 : %s\n  %%5 = sum[%s] %%4 : %s\n",
              f, f, c, some(h, "f32", &s, false, true));
  harness_add(h, "  %%6 = sum[%s] %%0 : %s\n  return %%5, %%6\n}\n", c,
              some(h, "f32", &s, false, true));
}

/* Sums of what no argument has all dims of: the mean of signs that several have sent. */
static void means(Harness *h, int i) {
  int from = 1 + i % 5, blocks = (int)harness_random(h, 1, 9);
  int bytes = (int)harness_random(h, 1, 12);
  const char *dims = arena_printf(h->arena, "[S:%d, B:%d, I:%d]", from, blocks, 8 * bytes);
  harness_add(h, "kernel @mean%d(%%0 : u8[S:%d, B:%d, E:%d], %%1 : f32[S:%d, B:%d]) ", i, from,
              blocks, bytes, from, blocks);
  harness_add(h, "{family = \"column\"} {\n  %%2 = unpack_bits[E -> I] %%0 : bool%s\n", dims);
  harness_add(h, "  %%3 = const {value = 1} : f32[]\n  %%4 = const {value = -1} : f32[]\n");
  harness_add(h, "  %%5 = where %%2, %%3, %%4 : f32%s\n  %%6 = mul %%5, %%1 : f32%s\n", dims, dims);
  harness_add(h, "  %%7 = sum[S] %%6 : f32[B:%d, I:%d]\n  return %%7\n}\n", blocks, 8 * bytes);
}

static void extremes(Harness *h, int i) {
  Shape s = random_shape(h, true);
  harness_add(h, "kernel @extreme%d(%%0 : %s, %%1 : %s) {family = \"column\"} {\n", i,
              full(h, "bf16", &s, false), full(h, "i64", &s, false));
  harness_add(h, "  %%2 = cast %%0 : %s\n  %%3 = rmax[C] %%2 : %s\n  %%4 = argmax[C] %%2 : %s\n",
              dense(h, "f32", &s), some(h, "f32", &s, false, true),
              some(h, "i32", &s, false, true));
  harness_add(h,
              "  %%5 = sum[C] %%1 : %s\n  %%6 = rmin[C] %%1 : %s\n  %%7 = cast %%5 : %s\n  return "
              "%%3, %%4, %%5, %%6, %%7\n}\n",
              some(h, "i64", &s, false, true), some(h, "i64", &s, false, true),
              some(h, "f32", &s, false, true));
}

/* ---- scatter: C (and D) go, V comes ---- */

static void scatter(Harness *h, int i) {
  Shape s = random_shape(h, false);
  const char *elem = i % 4 == 3 ? "i32" : "f32", *dim[4], *f = dense(h, elem, &s);
  int64_t size[4];
  int n = 0, at = (int)harness_random(h, 0, s.kept);
  for (int k = 0; k < s.kept + s.over; k++)
    if (!is_over(s.dim[k])) dim[n] = s.dim[k], size[n++] = s.size[k];
  for (int k = n; k > at; k--) dim[k] = dim[k - 1], size[k] = size[k - 1];
  dim[at] = "V", size[at] = harness_random(h, 1, 12), n++;
  bool batched = s.kept && harness_random(h, 0, 3) == 0; /* the index has all dims of x */
  harness_add(h, "kernel @scatter%d(%%0 : %s, %%1 : %s) {family = \"scatter\"} {\n", i,
              full(h, elem, &s, false),
              batched ? full(h, "i32", &s, false) : some(h, "i32", &s, true, false));
  harness_add(
      h, "  %%2 = mul %%0, %%0 : %s\n  %%3 = scatter[%s -> V] %%2, %%1 : %s\n  return %%3\n}\n", f,
      over_names(&s), harness_result(h, elem, n, dim, size));
}

/* Signs, and the elements above the mean of a row, packed: bytes along rows in any order. */
static void packed(Harness *h, int i) {
  Shape s = random_shape(h, true), bytes;
  for (int k = 0; k < s.kept + 1; k++)
    s.size[k] = is_over(s.dim[k]) ? 8 * harness_random(h, 1, i % 5 ? 9 : 70) : s.size[k] % 40 + 1;
  bytes = s;
  for (int k = 0; k < s.kept + 1; k++)
    if (is_over(s.dim[k])) bytes.dim[k] = "E", bytes.size[k] /= 8;
  const char *f = dense(h, "f32", &s), *bits = dense(h, "bool", &s);
  const char *rows = some(h, "f32", &s, false, true);
  harness_add(h, "kernel @packed%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n", i,
              full(h, "f32", &s, false), full(h, "f32", &s, false));
  harness_add(h, "  %%2 = mul %%0, %%1 : %s\n  %%3 = sum[C] %%2 : %s\n", f, rows);
  harness_add(h, "  %%4 = lt %%0, %%2 : %s\n  %%5 = pack_bits[C -> E] %%4 : %s\n", bits,
              i % 3 == 1 ? dense(h, "u8", &bytes) : full(h, "u8", &bytes, true));
  if (i % 3 == 2) {
    harness_add(h, "  return %%5\n}\n");
    return;
  }
  harness_add(h, "  %%6 = le %%3, %%2 : %s\n  %%7 = pack_bits[C -> E] %%6 : %s\n", bits,
              full(h, "u8", &bytes, true));
  if (i % 3 == 1) harness_add(h, "  return %%7\n}\n");
  else
    harness_add(h, "  %%8 = sub %%0, %%3 : %s\n  return %%5, %%8, %%7\n}\n",
                full(h, "f32", &s, true));
}

/* Few rows that are long: GPUs share each among CTAs, or read it again for every level. */
static void long_rows(Harness *h, int i) {
  int n = (int[]){16385, 20000, 33000, 65540}[i % 4], rows = 1 + i % 3;
  const char *f = arena_printf(h->arena, "f32[A:%d, B:%d]", rows, n);
  const char *r = arena_printf(h->arena, "f32[A:%d]", rows);
  harness_add(h, "kernel @long%d(%%0 : %s) {family = \"row\"} {\n  %%1 = mul %%0, %%0 : %s\n", i, f,
              f);
  harness_add(h,
              "  %%2 = sum[B] %%1 : %s\n  %%3 = argmax[B] %%0 : i32[A:%d]\n  %%4 = sqrt %%2 : %s\n",
              r, rows, r);
  if (i % 2) harness_add(h, "  return %%4, %%3\n}\n");
  else harness_add(h, "  %%5 = div %%0, %%4 : %s\n  return %%5, %%3\n}\n", f);
}

/* The loss and its gradient of long rows, as `grad`, `pad` and `fuse` write them: without padding,
   with padding by position, or where an operand says so. Labels may be in it, or outside. */
static void entropies(Harness *h, int i) {
  int n = (int[]){16392, 50304, 20004, 33000, 65544}[i % 5];
  const char *elem = i % 2 ? "bf16" : "f32", *c = (const char *[]){"%6", "%2", NULL}[i % 3];
  const char *dims = arena_printf(h->arena, "[A:2, V:%d]", n), *x = c ? "%9" : "%3";
  harness_add(h, "kernel @entropy%d(%%0 : %s%s, %%1 : i32[A:2], %%2 : bool[V:%d]) ", i, elem, dims,
              n);
  harness_add(h, "{family = \"row\"} {\n  %%3 = cast %%0 : f32%s\n  %%4 = iota[V] : i32[V:%d]\n",
              dims, n);
  harness_add(h, "  %%5 = const {value = %d} : i32[]\n  %%6 = lt %%4, %%5 : bool[V:%d]\n", n - 37,
              n);
  harness_add(h, "  %%7 = const {value = -inf} : f32[]\n  %%8 = const {value = 0} : f32[]\n");
  harness_add(h, "  %%9 = where %s, %%3, %%7 : f32%s\n", c ? c : "%6", dims);
  harness_add(h, "  %%10 = rmax[V] %s : f32[A:2]\n  %%11 = sub %%3, %%10 : f32%s\n", x, dims);
  harness_add(h, "  %%12 = exp %%11 : f32%s\n  %%13 = where %s, %%12, %%8 : f32%s\n", dims,
              c ? c : "%6", dims);
  harness_add(h, "  %%14 = sum[V] %s : f32[A:2]\n  %%15 = const {value = 6001} : i32[]\n",
              c ? "%13" : "%12");
  harness_add(h, "  %%16 = mul %%1, %%15 : i32[A:2]\n  %%17 = expand[V] %%16 : i32%s\n", dims);
  harness_add(h, "  %%18 = eq %%17, %%4 : bool%s\n  %%19 = const {value = -0.001} : f32[]\n", dims);
  harness_add(h, "  %%20 = where %%18, %%19, %%8 : f32%s\n  %%21 = div %%12, %%14 : f32%s\n", dims,
              dims);
  harness_add(h, "  %%34 = const {value = 10000} : f32[]\n  %%22 = add %%20, %%21 : f32%s\n", dims);
  harness_add(h, "  %%33 = mul %%22, %%34 : f32%s\n  %%23 = where %%6, %%33, %%8 : f32%s\n", dims,
              dims);
  harness_add(h, "  %%24 = cast %%23 : %s%s\n  %%25 = where %%18, %%3, %%8 : f32%s\n", elem, dims,
              dims);
  harness_add(h, "  %%26 = sum[V] %%25 : f32[A:2]\n  %%27 = log %%14 : f32[A:2]\n");
  harness_add(h, "  %%28 = add %%10, %%27 : f32[A:2]\n  %%29 = sub %%28, %%26 : f32[A:2]\n");
  harness_add(h, "  %%30 = where %%2, %%3, %%8 : f32%s\n  %%31 = rmin[V] %%30 : f32[A:2]\n", dims);
  harness_add(h, "  %%32 = argmax[V] %%0 : i32[A:2]\n  return %%24, %%29, %%31, %%32\n}\n");
}

/* 16-bit rows and columns together with f32: vectors of eight on a GPU. */
static void halves(Harness *h, int i) {
  const char *elem = i % 2 ? "f16" : "bf16";
  int rows = (int)harness_random(h, 1, 40), n = (int)harness_random(h, 1, 60) * (i % 3 ? 8 : 1);
  const char *dims = arena_printf(h->arena, "[A:%d, B:%d]", rows, n);
  harness_add(h, "kernel @half%d(%%0 : %s%s, %%1 : f32[B:%d]) {family = \"row\"} {\n", i, elem,
              dims, n);
  harness_add(h, "  %%2 = cast %%0 : f32%s\n  %%3 = sum[B] %%2 : f32[A:%d]\n", dims, rows);
  harness_add(h, "  %%4 = const {value = %d} : f32[]\n  %%5 = div %%3, %%4 : f32[A:%d]\n", n, rows);
  harness_add(h, "  %%6 = sub %%2, %%5 : f32%s\n  %%7 = mul %%6, %%1 : f32%s\n", dims, dims);
  harness_add(h, "  %%8 = cast %%7 : %s%s\n  return %%8, %%5\n}\n", elem, dims);
  harness_add(h, "kernel @hsum%d(%%0 : %s%s, %%1 : f32%s) {family = \"column\"} {\n", i, elem, dims,
              dims);
  harness_add(h, "  %%2 = cast %%0 : f32%s\n  %%3 = mul %%2, %%1 : f32%s\n", dims, dims);
  harness_add(h, "  %%4 = sum[A] %%3 : f32[B:%d]\n  %%5 = cast %%4 : %s[B:%d]\n", n, elem, n);
  harness_add(h, "  %%6 = rmax[A] %%2 : f32[B:%d]\n  return %%4, %%5, %%6\n}\n", n);
}

/* Norms of a table's rows, and of an operand under another name: arguments with dims that the
   kernel does not walk. */
static void tables(Harness *h, int i) {
  int n = (int)harness_random(h, 1, 70), heads = 1 + i % 3, rows = (int)harness_random(h, 1, 40);
  const char *f = arena_printf(h->arena, "f32[A:%d, H:%d, B:%d]", rows, heads, n);
  const char *r = arena_printf(h->arena, "f32[A:%d, H:%d]", rows, heads);
  harness_add(h, "kernel @table%d(%%0 : f32[V:11, H:%d, B:%d], %%1 : i32[A:%d], ", i, heads, n,
              rows);
  harness_add(h, "%%2 : f32[R:%d, H:%d, B:%d]) {family = \"row\"} {\n", rows, heads, n);
  harness_add(h, "  %%3 = gather[V] %%0, %%1 : %s\n  %%4 = rename[R -> A] %%2 : %s\n", f, f);
  harness_add(h, "  %%5 = mul %%3, %%4 : %s\n  %%6 = sum[B] %%5 : %s\n", f, r);
  harness_add(h, "  %%7 = mul %%3, %%6 : %s\n  return %%6, %%7\n}\n", f);
}

/* Squares of two tensors and a filling in one line, which is cut into pieces: no buffer has the dim
 * of the sum. */
static void sums_of_a_line(Harness *h, int i) {
  static const int64_t inner[] = {1, 3, 8, 16, 33, 64, 100};
  int64_t a = harness_random(h, 1, 40), b = inner[harness_random(h, 0, 6)],
          c = harness_random(h, 1, 300), pieces = harness_random(h, 1, 4),
          line = (a * b + c + pieces) / pieces * pieces;
  const char *elem = i % 2 ? "bf16" : "f16";
  harness_add(h, "kernel @line%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n", i,
              harness_type(h, elem, 2, (const char *[]){"A", "B"}, (int64_t[]){a, b}),
              harness_type(h, elem, 1, (const char *[]){"C"}, &c));
  harness_add(h, "  %%2 = cast %%0 : f32[A:%lld, B:%lld]\n", (long long)a, (long long)b);
  harness_add(h, "  %%3 = merge[A, B -> F] %%2 : f32[F:%lld]\n", (long long)(a * b));
  harness_add(h, "  %%4 = cast %%1 : f32[C:%lld]\n  %%5 = const {value = 0} : f32[]\n",
              (long long)c);
  harness_add(h, "  %%6 = expand[G] %%5 : f32[G:%lld]\n", (long long)(line - a * b - c));
  harness_add(h, "  %%7 = concat[F, C, G -> L] %%3, %%4, %%6 : f32[L:%lld]\n", (long long)line);
  harness_add(h, "  %%8 = split[L -> P, E] %%7 : f32[P:%lld, E:%lld]\n", (long long)pieces,
              (long long)(line / pieces));
  harness_add(h, "  %%9 = mul %%8, %%8 : f32[P:%lld, E:%lld]\n", (long long)pieces,
              (long long)(line / pieces));
  harness_add(h, "  %%10 = sum[E] %%9 : %s\n  return %%10\n}\n",
              harness_result(h, "f32", 1, (const char *[]){"P"}, &pieces));
}

static void run_shapes(const char *target, void (*make)(Harness *h, int i), int n, int chunk,
                       double tolerance) {
  Harness *h = harness_new(target);
  h->chunk = chunk;
  for (int i = 0; i < n; i++) make(h, i);
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

static void test_row(void **state) {
  run_shapes(*state, softmax, 70, 20000, 1e-5);
  run_shapes(*state, layernorm, 70, 20000, 5e-5);
  run_shapes(*state, loss, 70, 20000, 1e-5);
  run_shapes(*state, picked, 70, 20000, 1e-5);
  run_shapes(*state, packed, 80, 5000, 1e-4);
  run_shapes(*state, invalid, 70, 20000, 0);
  run_shapes(*state, scan, 40, 20000, 1e-4);
  run_shapes(*state, long_rows, 8, 20000, 1e-5);
  run_shapes(*state, halves, 40, 2000, 1e-4);
  run_shapes(*state, tables, 16, 2000, 1e-4);
  run_shapes(*state, sums_of_a_line, 40, 2000, 1e-4);
}

static void test_entropies(void **state) {
  for (int in_place = 0; in_place < 2; in_place++) {
    Harness *h = harness_new(*state);
    for (int i = 0; i < 10 && in_place; i++) vec_push(h->arena, h->inplace, 0);
    for (int i = 0; i < 10; i++) entropies(h, i);
    assert_int_equal(harness_run(h, 1e-4), 0);
    harness_free(h);
  }
}

static void test_streamed(void **state) {
  if (!strncmp(*state, "sm_", 3)) skip();
  for (int shift = 0; shift < 4; shift += 3) {
    assert_int_equal(harness_streamed(*state, streamed, 24, shift, false, 1e-5), 0);
    assert_int_equal(harness_streamed(*state, streamed_sums, 2, shift, false, 1e-4), 0);
    assert_int_equal(harness_streamed(*state, streamed_sums, 2, shift, true, 1e-4), 0);
    assert_int_equal(harness_streamed(*state, softmax, 20, shift, false, 1e-5), 0);
    assert_int_equal(harness_streamed(*state, columns_of_rows_half, 8, shift, false, 2e-2), 0);
    assert_int_equal(harness_streamed(*state, scatter, 20, shift, false, 1e-4), 0);
    assert_int_equal(harness_streamed(*state, columns, 30, shift, false, 1e-4), 0);
    assert_int_equal(harness_streamed(*state, means, 30, shift, false, 1e-5), 0);
  }
}

static void test_both(void **state) {
  run_shapes(*state, columns_of_rows_f32, 100, 5000, 1e-4);
  run_shapes(*state, columns_of_rows_half, 90, 5000, 2e-2);
  run_shapes(*state, columns_of_scans, 20, 5000, 1e-4);
  run_shapes(*state, columns_of_long_rows, 3, 90000, 1e-4);
}

static void test_column(void **state) {
  run_shapes(*state, columns, 140, 5000, 1e-4);
  run_shapes(*state, means, 40, 5000, 1e-5);
  run_shapes(*state, extremes, 70, 5000, 1e-4);
}

static void test_scatter(void **state) { run_shapes(*state, scatter, 210, 5000, 1e-4); }

/* Sums that start from an operand, in a buffer of its own or in the result's. */
static void scatter_onto(const char *target, bool in_place) {
  Harness *h = harness_new(target);
  static const int sizes[][3] = {{40, 96, 7}, {5, 33, 60}, {300, 8, 20}, {9, 1, 9}};
  for (int i = 0; i < 2 && in_place; i++) vec_push(h->arena, h->inplace, 0);
  for (int i = 0; i < 8; i++) {
    const int *n = sizes[i / 2];
    const char *r = arena_printf(h->arena, "[V:%d, A:%d]", n[0], n[1]);
    const char *base = i % 2 && !in_place ? "bf16" : "f32";
    harness_add(h, "kernel @onto%d(%%0 : %s%s, %%1 : f32[C:%d, A:%d], %%2 : i32[C:%d]) ", i, base,
                r, n[2], n[1], n[2]);
    harness_add(h, "{family = \"scatter\"} {\n  %%3 = cast %%0 : f32%s\n", r);
    harness_add(h, "  %%4 = scatter[C -> V] %%1, %%2 : f32%s\n", r);
    harness_add(h, "  %%5 = add %s, %%4 : f32%s\n  return %%5\n}\n", i % 2 ? "%3" : "%0", r);
  }
  assert_int_equal(harness_run(h, 1e-4), 0);
  harness_free(h);
}

static void test_scatter_onto(void **state) {
  scatter_onto(*state, false);
  scatter_onto(*state, true);
}

/* Many rows, which GPUs sort: one index, all different ones, a frequent one, some outside, in
   blocks of columns and alone; sums that start from an operand. */
static void many_rows(Harness *h, int i) {
  static const int rows[] = {512, 640, 1000, 4100, 577}, columns[] = {1, 8, 5, 3, 300};
  static const int table[] = {1, 20, 300, 5000, 70};
  int n = rows[i % 5], c = columns[i % 5], v = table[i / 5 % 4];
  const char *narrow = i % 3 ? "f32" : "bf16";
  if (n > 4000 && i > 5) n = 530;
  harness_add(h, "kernel @many%d(%%0 : %s[C:%d, A:%d], %%1 : i32[C:%d], %%2 : f32[V:%d, A:%d]) ", i,
              narrow, n, c, n, v, c);
  harness_add(h, "{family = \"scatter\"} {\n  %%3 = cast %%0 : f32[C:%d, A:%d]\n", n, c);
  harness_add(h, "  %%4 = mul %%3, %%3 : f32[C:%d, A:%d]\n  %%5 = iota[C] : i32[C:%d]\n", n, c, n);
  /* an index of every kind: every row's own, less than 8, 3 for rows from 100 on */
  harness_add(h, "  %%6 = const {value = %d} : i32[]\n", i % 4 == 1 ? 0 : 1 + i % 2);
  harness_add(h, "  %%7 = mul %%5, %%6 : i32[C:%d]\n  %%8 = const {value = 100} : i32[]\n", n);
  harness_add(h, "  %%9 = lt %%5, %%8 : bool[C:%d]\n  %%10 = const {value = 3} : i32[]\n", n);
  harness_add(h, "  %%11 = where %%9, %%1, %s : i32[C:%d]\n", i % 4 < 2 ? "%7" : "%10", n);
  harness_add(h, "  %%12 = scatter[C -> V] %%4, %s : f32[V:%d, A:%d]\n", i % 4 == 3 ? "%1" : "%11",
              v, c);
  harness_add(h, "  %%13 = add %%2, %%12 : f32[V:%d, A:%d]\n  return %%13\n}\n", v, c);
}

static void test_many_rows(void **state) { run_shapes(*state, many_rows, 20, 5000, 1e-4); }

/* Results in the buffers of operands: the full-size one, and one of rows. */
static void test_inplace(void **state) {
  Harness *h = harness_new(*state);
  static const int sizes_of[][2] = {{7, 100}, {33, 5}, {64, 257}, {1, 31}};
  for (int i = 0; i < 4; i++) vec_push(h->arena, h->inplace, (int[]){0, 0, 1, 1}[i]);
  for (int i = 0; i < 4; i++) {
    const char *f = arena_printf(h->arena, "f32[A:%d, B:%d]", sizes_of[i][0], sizes_of[i][1]);
    const char *r = arena_printf(h->arena, "f32[A:%d]", sizes_of[i][0]);
    harness_add(h, "kernel @inplace%d(%%0 : %s, %%1 : %s) {family = \"row\"} {\n", i, f, r);
    harness_add(h,
                "  %%2 = add %%0, %%1 : %s\n  %%3 = rmax[B] %%2 : %s\n  %%4 = sub %%2, %%3 : %s\n",
                f, r, f);
    harness_add(h, "  %%5 = exp %%4 : %s\n  %%6 = sum[B] %%5 : %s\n  %%7 = div %%5, %%6 : %s\n", f,
                r, f);
    harness_add(h, "  %%8 = add %%6, %%1 : %s\n  return %%7, %%8\n}\n", r);
  }
  assert_int_equal(harness_run(h, 1e-5), 0);
  harness_free(h);
}

/* e^x below a row's largest, down to e^-30: 2e-7 + 30 * 6e-8 of the function, as much again of the
 * difference */
static void test_far_softmax(void **state) {
  Harness *h = harness_new(*state);
  h->relative = true, h->low = -15, h->high = 15;
  for (int n = 16; n <= 400; n += 128) {
    harness_add(h, "kernel @far%d(%%0 : f32[A:9, B:%d]) {family = \"row\"} {\n", n, n);
    harness_add(h, "  %%1 = rmax[B] %%0 : f32[A:9]\n  %%2 = sub %%0, %%1 : f32[A:9, B:%d]\n", n);
    harness_add(h, "  %%3 = exp %%2 : f32[A:9, B:%d]\n  return %%3\n}\n", n);
  }
  assert_int_equal(harness_run(h, 3.8e-6), 0);
  harness_free(h);
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "native";
  if (harness_tested(target)) return HARNESS_SKIPPED;
#define TEST(f) cmocka_unit_test_prestate(f, (void *)target)
  const struct CMUnitTest tests[] = {
      TEST(test_row),       TEST(test_column),     TEST(test_scatter), TEST(test_scatter_onto),
      TEST(test_many_rows), TEST(test_entropies),  TEST(test_inplace), TEST(test_streamed),
      TEST(test_both),      TEST(test_far_softmax)};
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

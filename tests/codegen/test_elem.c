/* Family elem against the interpreter over random shapes: broadcasting, strides, several results,
   element types, every op that moves indexes; with lanes and without, in one chunk and in many. */
#include "harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

enum { SHAPES = 60 };

static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 67, 100};
static const char *const names[] = {"A", "B", "C", "D"};

static int64_t pick_size(Harness *h, int64_t *room) {
  int64_t s = sizes[harness_random(h, 0, sizeof sizes / sizeof *sizes - 1)];
  if (s > *room) s = *room;
  *room /= s;
  return s;
}

typedef struct Shape {
  int n;
  int64_t size[4];
} Shape;

static Shape random_shape(Harness *h, int least) {
  Shape s = {.n = (int)harness_random(h, least, 4)};
  int64_t room = 12000;
  for (int i = 0; i < s.n; i++) s.size[i] = pick_size(h, &room);
  return s;
}

/* An argument with a random part of the dims. */
static const char *part_type(Harness *h, const char *elem, const Shape *s) {
  const char *dim[4];
  int64_t size[4];
  int n = 0;
  for (int i = 0; i < s->n; i++)
    if (harness_random(h, 0, 2)) dim[n] = names[i], size[n++] = s->size[i];
  return harness_type(h, elem, n, dim, size);
}

static const char *part_dense(Harness *h, const char *elem, const Shape *s) {
  return harness_dense(h, elem, s->n, names, s->size);
}

static void arithmetic(Harness *h, int i) {
  Shape s = random_shape(h, 1);
  const char *full = part_dense(h, "f32", &s), *bits = part_dense(h, "bool", &s);
  harness_add(h, "kernel @arith%d(%%0 : %s, %%1 : %s, %%2 : %s, %%3 : %s) {family = \"elem\"} {\n",
              i, harness_type(h, "f32", s.n, names, s.size), part_type(h, "f32", &s),
              part_type(h, "f32", &s), harness_type(h, "i32", s.n, names, s.size));
  harness_add(h, "  %%4 = mul %%0, %%1 : %s\n  %%5 = exp %%4 : %s\n  %%6 = sub %%5, %%2 : %s\n",
              full, full, full);
  harness_add(
      h, "  %%7 = lt %%6, %%0 : %s\n  %%8 = const {value = 3} : i32[]\n  %%9 = eq %%3, %%8 : %s\n",
      bits, bits);
  harness_add(h, "  %%10 = or %%7, %%9 : %s\n  %%11 = where %%10, %%6, %%0 : %s\n", bits,
              harness_result(h, "f32", s.n, names, s.size));
  harness_add(h, "  %%12 = max %%6, %%0 : %s\n  %%13 = cast %%10 : %s\n",
              harness_result(h, "f32", s.n, names, s.size),
              harness_result(h, "f32", s.n, names, s.size));
  harness_add(h, "  %%14 = cast %%6 : %s\n  return %%11, %%12, %%13, %%14, %%7\n}\n",
              harness_result(h, "i32", s.n, names, s.size));
}

static void formats(Harness *h, int i) {
  Shape s = random_shape(h, 0);
  harness_add(h, "kernel @format%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"elem\"} {\n", i,
              harness_type(h, "bf16", s.n, names, s.size),
              harness_type(h, "f16", s.n, names, s.size),
              harness_type(h, "i64", s.n, names, s.size));
  const char *f = part_dense(h, "f32", &s);
  harness_add(h, "  %%3 = cast %%0 : %s\n  %%4 = cast %%1 : %s\n  %%5 = cast %%2 : %s\n", f, f, f);
  harness_add(h, "  %%6 = mul %%3, %%4 : %s\n  %%7 = add %%6, %%5 : %s\n", f, f);
  harness_add(h, "  %%8 = cast %%7 : %s\n  %%9 = cast %%7 : %s\n",
              harness_result(h, "bf16", s.n, names, s.size),
              harness_result(h, "f16", s.n, names, s.size));
  harness_add(h,
              "  %%10 = cast %%7 : %s\n  %%11 = mul %%2, %%10 : %s\n  return %%8, %%9, %%11\n}\n",
              part_dense(h, "i64", &s), harness_result(h, "i64", s.n, names, s.size));
}

/* Rounds to 8 bits by the largest number of a block: the number itself, or a much larger one. */
static void eights(Harness *h, int i) {
  Shape s = random_shape(h, 0);
  const char *f = part_dense(h, "f32", &s);
  harness_add(h, "kernel @eights%d(%%0 : %s, %%1 : %s) {family = \"elem\"} {\n", i,
              harness_type(h, "f32", s.n, names, s.size), part_type(h, "f32", &s));
  harness_add(h, "  %%2 = abs %%0 : %s\n  %%3 = mul %%1, %%1 : %s\n", f, f);
  harness_add(h, "  %%4 = const {value = %s} : f32[]\n", i % 3 ? i % 2 ? "1e4" : "1" : "1e32");
  harness_add(h, "  %%5 = mul %%3, %%4 : %s\n  %%6 = max %%2, %%5 : %s\n", f, f);
  harness_add(h, "  %%7 = quantize %%0, %%6 {format = \"%s\"} : %s\n  return %%7\n}\n",
              i % 2 ? "e4m3" : "e5m2", harness_result(h, "f32", s.n, names, s.size));
}

/* Bytes: to and from floats, whole numbers and bools, at the ends of their range; equal or not. */
static void bytes(Harness *h, int i) {
  Shape s = random_shape(h, 0);
  harness_add(h,
              "kernel @bytes%d(%%0 : %s, %%1 : %s, %%2 : %s, %%3 : %s, %%4 : %s) "
              "{family = \"elem\"} {\n",
              i, harness_type(h, "u8", s.n, names, s.size), part_type(h, "u8", &s),
              harness_type(h, "f32", s.n, names, s.size),
              harness_type(h, "i32", s.n, names, s.size),
              harness_type(h, "f64", s.n, names, s.size));
  const char *byte = part_dense(h, "u8", &s), *f = part_dense(h, "f32", &s);
  harness_add(h, "  %%5 = const {value = 100} : f32[]\n  %%6 = mul %%2, %%5 : %s\n", f);
  harness_add(h, "  %%7 = cast %%6 : %s\n  %%8 = cast %%3 : %s\n", byte, byte);
  harness_add(h, "  %%9 = eq %%0, %%1 : %s\n", part_dense(h, "bool", &s));
  harness_add(h, "  %%10 = where %%9, %%8, %%7 : %s\n  %%11 = cast %%0 : %s\n",
              harness_result(h, "u8", s.n, names, s.size),
              harness_result(h, "f32", s.n, names, s.size));
  harness_add(h, "  %%12 = cast %%0 : %s\n  %%13 = cast %%0 : %s\n",
              harness_result(h, "i32", s.n, names, s.size),
              harness_result(h, "bool", s.n, names, s.size));
  harness_add(h, "  %%14 = cast %%9 : %s\n  %%15 = cast %%4 : %s\n",
              harness_result(h, "u8", s.n, names, s.size),
              harness_result(h, "u8", s.n, names, s.size));
  harness_add(h, "  %%16 = cast %%0 : %s\n  return %%10, %%11, %%12, %%13, %%14, %%15, %%16\n}\n",
              harness_result(h, "bf16", s.n, names, s.size));
}

/* Two results of different sizes. */
static void uneven(Harness *h, int i) {
  Shape s = random_shape(h, 2);
  Shape less = s;
  less.n = (int)harness_random(h, 0, s.n - 1);
  harness_add(h, "kernel @uneven%d(%%0 : %s, %%1 : %s) {family = \"elem\"} {\n", i,
              harness_type(h, "f32", s.n, names, s.size),
              harness_type(h, "f32", less.n, names, less.size));
  harness_add(h, "  %%2 = add %%0, %%1 : %s\n  %%3 = neg %%1 : %s\n  return %%2, %%3\n}\n",
              harness_result(h, "f32", s.n, names, s.size),
              harness_result(h, "f32", less.n, names, less.size));
}

static void run_shapes(const char *target, void (*make)(Harness *h, int i), int n,
                       double tolerance) {
  Harness *h = harness_new(target);
  h->chunk = 20000;
  for (int i = 0; i < n; i++) make(h, i);
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

/* ---- ops that move indexes: operand over dims [X.., M..], where M is what the op changes ---- */

typedef struct Moved {
  Harness *h;
  int64_t x, y, m, k; /* sizes: two dims that stay, the moved one, another number */
  int i;
  bool inner; /* the moved dim is the innermost of the result */
} Moved;

static Moved moved(Harness *h, int i) {
  int64_t room = 3000;
  Moved v = {.h = h, .i = i, .inner = harness_random(h, 0, 1)};
  v.m = pick_size(h, &room), v.x = pick_size(h, &room), v.y = pick_size(h, &room);
  v.k = harness_random(h, 1, 6);
  return v;
}

/* Type over X, Y and one more dim; the last one innermost or not. */
static const char *with(const Moved *v, const char *elem, const char *dim, int64_t size,
                        bool result) {
  const char *inner[] = {"X", "Y", dim}, *outer[] = {dim, "X", "Y"};
  int64_t si[] = {v->x, v->y, size}, so[] = {size, v->x, v->y};
  if (result) return harness_result(v->h, elem, 3, v->inner ? inner : outer, v->inner ? si : so);
  return harness_type(v->h, elem, 3, v->inner ? inner : outer, v->inner ? si : so);
}

static const char *with2(const Moved *v, const char *a, int64_t sa, const char *b, int64_t sb,
                         bool result) {
  const char *inner[] = {"X", "Y", a, b}, *outer[] = {a, b, "X", "Y"};
  int64_t si[] = {v->x, v->y, sa, sb}, so[] = {sa, sb, v->x, v->y};
  if (result) return harness_result(v->h, "f32", 4, v->inner ? inner : outer, v->inner ? si : so);
  return harness_type(v->h, "f32", 4, v->inner ? inner : outer, v->inner ? si : so);
}

static void rename_split(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @split%d(%%0 : %s, %%1 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "M", v.m * v.k, false), with(&v, "f32", "Z", v.k, false));
  harness_add(h, "  %%2 = split[M -> P, Q] %%0 : f32[X:%d, Y:%d, P:%d, Q:%d]\n", (int)v.x, (int)v.y,
              (int)v.m, (int)v.k);
  harness_add(h, "  %%3 = rename[Z -> Q] %%1 : f32[X:%d, Y:%d, Q:%d]\n", (int)v.x, (int)v.y,
              (int)v.k);
  harness_add(h, "  %%4 = add %%2, %%3 : %s\n  return %%4\n}\n",
              with2(&v, "P", v.m, "Q", v.k, true));
}

static void merge(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @merge%d(%%0 : %s) {family = \"elem\"} {\n", i,
              with2(&v, "P", v.k, "Q", v.m, false));
  harness_add(h, "  %%1 = merge[P, Q -> M] %%0 : %s\n  return %%1\n}\n",
              with(&v, "f32", "M", v.m * v.k, true));
}

/* Bits into bytes and out of them, over all of a dim and from the middle of it; computed bits, and
   bits in memory. */
static void bits(Harness *h, int i) {
  Moved v = moved(h, i);
  int64_t bytes = (v.m + 7) / 8, n = bytes * 8, at = harness_random(h, 0, 9);
  int64_t some = n - at > 0 ? n - at : n, from = some < n ? at : 0;
  harness_add(h, "kernel @bits%d(%%0 : %s, %%1 : %s, %%2 : %s, ", i, with(&v, "f32", "D", n, false),
              with(&v, "u8", "E", bytes, false), with(&v, "f32", "D", n, false));
  harness_add(h, "%%3 : %s) {family = \"elem\"} {\n", with(&v, "bool", "D", n, false));
  const char *bit =
      harness_dense(h, "bool", 3, (const char *[]){"X", "Y", "D"}, (int64_t[]){v.x, v.y, n});
  const char *part =
      harness_dense(h, "bool", 3, (const char *[]){"X", "Y", "Z"}, (int64_t[]){v.x, v.y, some});
  harness_add(h, "  %%4 = le %%2, %%0 : %s\n  %%5 = pack_bits[D -> E] %%4 : %s\n", bit,
              with(&v, "u8", "E", bytes, true));
  harness_add(h, "  %%6 = unpack_bits[E -> D] %%1 : %s\n  %%7 = where %%6, %%0, %%2 : %s\n", bit,
              with(&v, "f32", "D", n, true));
  harness_add(h, "  %%8 = slice[D -> Z] %%6 {at = %d} : %s\n  %%9 = cast %%8 : %s\n", (int)from,
              part, with(&v, "f32", "Z", some, true));
  harness_add(h, "  %%10 = pack_bits[D -> E] %%3 : %s\n", with(&v, "u8", "E", bytes, true));
  harness_add(h, "  return %%5, %%7, %%9, %%10\n}\n");
}

static void slice_pad_shift(Harness *h, int i) {
  Moved v = moved(h, i);
  int64_t at = harness_random(h, 0, 5), by = harness_random(h, -4, 4);
  harness_add(h, "kernel @slice%d(%%0 : %s, %%1 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "L", v.m + at + v.k, false), with(&v, "f32", "S", v.k, false));
  const char *m = with(&v, "f32", "M", v.m, true);
  harness_add(h, "  %%2 = slice[L -> M] %%0 {at = %d} : %s\n", (int)at, m);
  harness_add(h, "  %%3 = shift[M] %%2 {by = %d, fill = 0.25} : %s\n", (int)by,
              with(&v, "f32", "M", v.m, true));
  harness_add(h, "  %%4 = pad[S -> P] %%1 {at = %d, fill = -3} : %s\n  return %%2, %%3\n}\n",
              (int)at,
              harness_dense(h, "f32", 3, (const char *[]){"X", "Y", "P"},
                            (int64_t[]){v.x, v.y, v.k + at + 2}));
}

static void pad(Harness *h, int i) {
  Moved v = moved(h, i);
  int64_t at = harness_random(h, 0, 5);
  harness_add(h, "kernel @pad%d(%%0 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "S", v.m, false));
  harness_add(h, "  %%1 = pad[S -> P] %%0 {at = %d, fill = -3} : %s\n  return %%1\n}\n", (int)at,
              with(&v, "f32", "P", v.m + at + v.k, true));
}

static void concat_stack(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @concat%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "M", v.m, false), with(&v, "f32", "K", v.k, false),
              with(&v, "f32", "K", v.k, false));
  harness_add(h, "  %%3 = concat[M, K, K -> P] %%0, %%1, %%2 : %s\n  return %%3\n}\n",
              with(&v, "f32", "P", v.m + 2 * v.k, true));
  harness_add(h, "kernel @stack%d(%%0 : %s, %%1 : %s, %%2 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "M", v.m, false), with(&v, "f32", "M", v.m, false),
              with(&v, "f32", "M", v.m, false));
  harness_add(h, "  %%3 = stack[T] %%0, %%1, %%2 : %s\n  return %%3\n}\n",
              with2(&v, "T", 3, "M", v.m, true));
}

/* Pieces, longer than a vector or not: facts of a piece do not hold after it, and a number is
   computed once. */
static void concat_many(Harness *h, int i) {
  Moved v = moved(h, i);
  int64_t all = v.m * 2 + v.k + 40;
  harness_add(h,
              "kernel @many%d(%%0 : %s, %%1 : %s, %%2 : %s, %%3 : f32[]) {family = \"elem\"} {\n",
              i, with(&v, "f32", "M", v.m, false), with(&v, "f32", "K", v.k, false),
              with(&v, "f32", "L", 40, false));
  const char *m =
      harness_dense(h, "f32", 3, (const char *[]){"X", "Y", "M"}, (int64_t[]){v.x, v.y, v.m});
  const char *p =
      harness_dense(h, "f32", 3, (const char *[]){"X", "Y", "P"}, (int64_t[]){v.x, v.y, all});
  harness_add(h, "  %%4 = abs %%3 : f32[]\n  %%5 = mul %%0, %%4 : %s\n", m);
  harness_add(h, "  %%6 = concat[M, K, M, L -> P] %%5, %%1, %%0, %%2 : %s\n", p);
  harness_add(h, "  %%7 = add %%6, %%4 : %s\n  return %%7\n}\n", with(&v, "f32", "P", all, true));
}

static void unstack_iota(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @unstack%d(%%0 : %s) {family = \"elem\"} {\n", i,
              with2(&v, "T", 2, "M", v.m, false));
  const char *m =
      harness_dense(h, "f32", 3, (const char *[]){"X", "Y", "M"}, (int64_t[]){v.x, v.y, v.m});
  harness_add(h,
              "  %%1, %%2 = unstack[T] %%0 : %s, %s\n  %%3 = iota[M] : i32[M:%d]\n  %%4 = cast %%3 "
              ": f32[M:%d]\n",
              m, m, (int)v.m, (int)v.m);
  harness_add(h, "  %%5 = mul %%2, %%4 : %s\n  %%6 = sub %%1, %%5 : %s\n  return %%6\n}\n", m,
              with(&v, "f32", "M", v.m, true));
}

/* Embedding rows, one element per row, and a gather with matched dims. */
static void gather(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @rows%d(%%0 : %s, %%1 : i32[X:%d]) {family = \"elem\"} {\n", i,
              harness_type(h, "f32", 2, (const char *[]){"V", "M"}, (int64_t[]){8, v.m}), (int)v.x);
  harness_add(h, "  %%2 = gather[V] %%0, %%1 : %s\n  return %%2\n}\n",
              harness_result(h, "f32", 2, (const char *[]){"X", "M"}, (int64_t[]){v.x, v.m}));
  harness_add(h, "kernel @pick%d(%%0 : %s, %%1 : i32[X:%d, Y:%d]) {family = \"elem\"} {\n", i,
              with(&v, "f32", "V", 8, false), (int)v.x, (int)v.y);
  harness_add(h, "  %%2 = gather[V] %%0, %%1 : %s\n  return %%2\n}\n",
              harness_result(h, "f32", 2, (const char *[]){"X", "Y"}, (int64_t[]){v.x, v.y}));
}

/* One row of a table that no cache holds: the space has the row alone. */
static void row_of_many(Harness *h, int i) {
  harness_add(h, "kernel @row%d(%%0 : f32[V:9000, M:1024], %%1 : i32[X:1]) {family = \"elem\"} {\n",
              i);
  harness_add(h, "  %%2 = gather[V] %%0, %%1 : f32[X:1, M:1024]\n  return %%2\n}\n");
}

static void rope(Harness *h, int i) {
  Moved v = moved(h, i);
  int64_t d = 2 * (harness_random(h, 0, 1) ? v.m : 16 * v.k);
  const char *dims[] = {"X", "S", "D"};
  int64_t size[] = {v.k, v.x, d};
  harness_add(h, "kernel @rope%d(%%0 : %s, %%1 : i32[S:%d]) {family = \"elem\"} {\n", i,
              harness_type(h, "f32", 3, dims, size), (int)v.x);
  harness_add(h, "  %%2 = rope[S; D] %%0 {theta = 10000} : %s\n",
              harness_result(h, "f32", 3, dims, size));
  harness_add(h,
              "  %%3 = rope[S; D] %%0, %%1 {theta = 500, factor = 8, original = 64, slow = 0.5, "
              "fast = 4, ramp = 1, "
              "inverse = 1} : %s\n  return %%2, %%3\n}\n",
              harness_result(h, "f32", 3, dims, size));
}

static void expand(Harness *h, int i) {
  Moved v = moved(h, i);
  harness_add(h, "kernel @expand%d(%%0 : %s) {family = \"elem\"} {\n", i,
              with(&v, "f32", "M", v.m, false));
  harness_add(h, "  %%1 = expand[K] %%0 : %s\n  return %%1\n}\n",
              with2(&v, "K", v.k, "M", v.m, true));
}

static void test_arithmetic(void **state) { run_shapes(*state, arithmetic, SHAPES, 2e-6); }
static void test_eights(void **state) { run_shapes(*state, eights, SHAPES, 0); }
static void test_formats(void **state) { run_shapes(*state, formats, SHAPES, 2e-6); }
static void test_bytes(void **state) { run_shapes(*state, bytes, SHAPES, 2e-6); }
static void test_uneven(void **state) { run_shapes(*state, uneven, SHAPES, 2e-6); }

/* Rows of whole lines, some of them with gaps, and results of every width. */
static void lines(Harness *h, int i) {
  int a = 1 + i % 5, b = i % 3 ? 96 * (1 + i % 7) : 67;
  const char *f = arena_printf(h->arena, "f32[A:%d, B:%d]", a, b), *dims = f + 3, *gaps = f;
  if (i % 2) gaps = arena_printf(h->arena, "%s {0: strides(%d, 1)}", f, b + 16 * (i % 4));
  harness_add(h, "kernel @lines%d(%%0 : %s, %%1 : f32[B:%d]) {family = \"elem\"} {\n", i, f, b);
  harness_add(h, "  %%2 = mul %%0, %%1 : %s\n  %%3 = add %%2, %%0 : %s\n", f, gaps);
  harness_add(h, "  %%4 = cast %%2 : bf16%s\n  %%5 = lt %%2, %%0 : bool%s\n", dims, dims);
  harness_add(h, "  %%6 = cast %%2 : f64%s\n  return %%2, %%3, %%4, %%5, %%6, %%1\n}\n", dims);
}

static void test_streamed(void **state) {
  if (!strncmp(*state, "sm_", 3)) skip();
  for (int shift = 0; shift < 4; shift += 3) {
    assert_int_equal(harness_streamed(*state, lines, 12, shift, false, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, lines, 12, shift, true, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, arithmetic, 12, shift, false, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, formats, 12, shift, false, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, uneven, 12, shift, false, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, concat_stack, 12, shift, false, 2e-6), 0);
    assert_int_equal(harness_streamed(*state, concat_many, 12, shift, false, 2e-6), 0);
  }
}

static void test_moved(void **state) {
  static void (*const makes[])(Harness *, int) = {
      rename_split, merge,  bits, slice_pad_shift, pad, concat_stack, concat_many,
      unstack_iota, gather, rope, expand};
  for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) run_shapes(*state, makes[i], 24, 1e-5);
  run_shapes(*state, row_of_many, 1, 0);
}

/* AdamW: results in the buffers of operands, with a schedule in f64. */
static void test_adamw(void **state) {
  Harness *h = harness_new(*state);
  h->low = 0.01, h->chunk = 20000;
  for (int i = 0; i < 4; i++) vec_push(h->arena, h->inplace, (int[]){0, 0, 1, 1}[i]);
  harness_add(h, "kernel @adam(%%0 : f32[A:129, B:67], %%1 : f32[A:129, B:67], %%2 : f32[A:129, "
                 "B:67], %%3 : f64[]) {family = \"elem\"} {\n"
                 "  %%4 = const {value = 0.9} : f32[]\n  %%5 = mul %%1, %%4 : f32[A:129, B:67]\n  "
                 "%%6 = add %%5, %%2 : f32[A:129, B:67]\n"
                 "  %%7 = cast %%3 : f32[]\n  %%8 = sqrt %%6 : f32[A:129, B:67]\n  %%9 = mul %%8, "
                 "%%7 : f32[A:129, B:67]\n"
                 "  %%10 = sub %%0, %%9 : f32[A:129, B:67]\n  return %%10, %%6\n}\n");
  assert_int_equal(harness_run(h, 1e-6), 0);
  harness_free(h);
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "native";
  if (harness_tested(target)) return HARNESS_SKIPPED;
#define TEST(f) cmocka_unit_test_prestate(f, (void *)target)
  const struct CMUnitTest tests[] = {TEST(test_arithmetic), TEST(test_formats), TEST(test_eights),
                                     TEST(test_bytes),      TEST(test_uneven),  TEST(test_moved),
                                     TEST(test_streamed),   TEST(test_adamw)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

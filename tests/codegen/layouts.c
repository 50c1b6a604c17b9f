/* Random layouts: see layouts.h. Expressions are as the front end writes patterns (positions
   divided by the size of a block), put together anew, so that kernels and lists are not tested
   against the code that makes layouts of the language. */
#include "layouts.h"

typedef struct Text { /* ops so far; the value that comes next */
  Harness *h;
  const AttentionShape *s;
  const char *ops, *arguments;
  int next;
  const char *both, *heads; /* dims [T, S], and the dim by which heads differ; NULL: none */
  int q, k, qb, kb, hb;     /* values: positions, of blocks, of heads */
} Text;

static int pick_of(Text *t, int low, int high) { return (int)harness_random(t->h, low, high); }

static int put(Text *t, const char *op, const char *elem, const char *dims) {
  t->ops = arena_printf(t->h->arena, "%s  %%%d = %s : %s[%s]\n", t->ops, t->next, op, elem, dims);
  return t->next++;
}

#define OP(t, elem, dims, ...) put(t, arena_printf((t)->h->arena, __VA_ARGS__), elem, dims)

static int number(Text *t, long long n) { return OP(t, "i32", "", "const {value = %lld}", n); }

static int two(Text *t, const char *op, int a, int b, bool truth) {
  return OP(t, truth ? "bool" : "i32", t->both, "%s %%%d, %%%d", op, a, b);
}

/* Positions of all scores, and their blocks of n. */
static void positions(Text *t, long long n) {
  Arena *a = t->h->arena;
  long long q = t->s->queries, k = t->s->keys;
  const char *rows = arena_printf(a, "S:%lld", q), *columns = arena_printf(a, "T:%lld", k);
  t->both = arena_printf(a, "T:%lld, S:%lld", k, q);
  int iq = OP(t, "i32", rows, "iota[S]"), ik = OP(t, "i32", columns, "iota[T]");
  t->q = OP(t, "i32", t->both, "expand[T] %%%d", iq);
  t->k = OP(t, "i32", arena_printf(a, "S:%lld, T:%lld", q, k), "expand[S] %%%d", ik);
  int size = number(t, n);
  t->qb = two(t, "div", t->q, size, false), t->kb = two(t, "div", t->k, size, false);
}

/* ---- patterns of blocks ---- */

static int window(Text *t) {
  int far = two(t, "sub", t->kb, t->qb, false);
  far = OP(t, "i32", t->both, "abs %%%d", far);
  return two(t, "le", far, number(t, pick_of(t, 0, 2)), true);
}

static int global(Text *t) {
  int first = two(t, "lt", t->kb, number(t, pick_of(t, 1, 2)), true);
  if (pick_of(t, 0, 1)) return first;
  return two(t, "or", first, two(t, "eq", t->qb, number(t, pick_of(t, 0, 4)), true), true);
}

static int table(Text *t) {
  const char *runs = "";
  for (int i = 0; i < 12; i++)
    runs = arena_printf(t->h->arena, "%s%s%d", runs, i ? ", " : "", pick_of(t, 1, 4));
  return OP(t, "bool", t->both, "lookup %%%d, %%%d {columns = %d, runs = [%s]}", t->qb, t->kb,
            pick_of(t, 3, 9), runs);
}

static int each(Text *t, int n) {
  int step = number(t, n), far = two(t, "sub", t->qb, t->kb, false);
  far = OP(t, "i32", t->both, "abs %%%d", far);
  int rest = two(t, "mul", two(t, "div", far, step, false), step, false);
  return two(t, "eq", rest, far, true);
}

static int strided(Text *t) { return each(t, pick_of(t, 2, 4)); }

static int fixed(Text *t) {
  int local = number(t, pick_of(t, 2, 3));
  return two(t, "eq", two(t, "div", t->qb, local, false), two(t, "div", t->kb, local, false), true);
}

static int pattern(Text *t) {
  static int (*const all[])(Text *) = {window, global, table, strided, fixed};
  return all[pick_of(t, 0, 4)](t);
}

static int patterns(Text *t) {
  int x = pattern(t);
  for (int n = pick_of(t, 0, 2); n > 0; n--) x = two(t, "or", x, pattern(t), true);
  return x;
}

/* ---- what cuts them ---- */

static int causal(Text *t) { return two(t, "le", t->k, t->q, true); }

static int sliding(Text *t) {
  int far = two(t, "sub", t->q, t->k, false);
  return two(t, "lt", far, number(t, pick_of(t, 1, 90)), true);
}

/* .. by numbers that nothing bounds without looking at each score */
static int float_causal(Text *t) {
  int q = OP(t, "f32", t->both, "cast %%%d", t->q), k = OP(t, "f32", t->both, "cast %%%d", t->k);
  return two(t, "le", k, q, true);
}

static int unseen(Text *t) { /* a block of queries sees nothing */
  int one = two(t, "eq", t->qb, number(t, pick_of(t, 0, 3)), true);
  return OP(t, "bool", t->both, "not %%%d", one);
}

/* The first dim of heads, if there is one: pattern a in its head 0, b in the others. */
static int by_head(Text *t, int a, int b) {
  Arena *m = t->h->arena;
  const AttentionShape *s = t->s;
  const char *dim = s->qdim[0], *one = arena_printf(m, "%s:%lld", dim, (long long)s->qsize[0]);
  int h = OP(t, "i32", one, "iota[%s]", dim), zero = number(t, 0);
  int is = OP(t, "bool", one, "eq %%%d, %%%d", h, zero);
  const char *with_t = arena_printf(m, "T:%lld, %s", (long long)s->keys, one);
  const char *all = arena_printf(m, "S:%lld, %s", (long long)s->queries, with_t);
  is = OP(t, "bool", with_t, "expand[T] %%%d", is), is = OP(t, "bool", all, "expand[S] %%%d", is);
  int not = OP(t, "bool", all, "not %%%d", is);
  a = OP(t, "bool", all, "and %%%d, %%%d", is, a), b = OP(t, "bool", all, "and %%%d, %%%d", not, b);
  t->heads = all;
  return OP(t, "bool", all, "or %%%d, %%%d", a, b);
}

/* Bools of keys as an argument. */
static int padding(Text *t, int x, int arg) {
  const char *keys = arena_printf(t->h->arena, "T:%lld", (long long)t->s->keys);
  t->arguments = arena_printf(t->h->arena, ", %%%d : bool[%s]", arg, keys);
  int all = OP(t, "bool", arena_printf(t->h->arena, "S:%lld, %s", (long long)t->s->queries, keys),
               "expand[S] %%%d", arg);
  return OP(t, "bool", t->heads ? t->heads : t->both, "and %%%d, %%%d", x, all);
}

/* ---- the whole ---- */

AttentionMask layout_mask(Harness *h, const AttentionShape *s, int arg) {
  static const int sizes[] = {16, 32, 64, 128, 7, 24, 48};
  bool padded = harness_random(h, 0, 3) == 0;
  Text t = {.h = h, .s = s, .ops = "", .arguments = "", .next = arg + padded};
  positions(&t, sizes[pick_of(&t, 0, 9) % 7]);
  int x = patterns(&t);
  if (pick_of(&t, 0, 2) == 0) x = two(&t, "and", x, causal(&t), true);
  if (pick_of(&t, 0, 3) == 0) x = two(&t, "and", x, sliding(&t), true);
  if (pick_of(&t, 0, 7) == 0) x = two(&t, "and", x, float_causal(&t), true);
  if (pick_of(&t, 0, 3) == 0) x = two(&t, "and", x, unseen(&t), true);
  if (s->nq > 2 && pick_of(&t, 0, 2) == 0) x = by_head(&t, x, patterns(&t));
  if (padded) padding(&t, x, arg);
  return (AttentionMask){t.arguments, t.ops, t.next - arg - padded};
}

AttentionMask layout_of_floats(Harness *h, const AttentionShape *s, int arg) {
  Text t = {.h = h, .s = s, .ops = "", .arguments = "", .next = arg};
  positions(&t, 64);
  two(&t, "and", two(&t, "eq", t.qb, t.kb, true), float_causal(&t), true);
  return (AttentionMask){"", t.ops, t.next - arg};
}

AttentionMask layout_of_others(Harness *h, const AttentionShape *s, int arg, int n, bool cut) {
  Text t = {.h = h, .s = s, .ops = "", .arguments = "", .next = arg};
  positions(&t, n);
  int x = each(&t, 2);
  if (cut) two(&t, "and", x, causal(&t), true);
  return (AttentionMask){"", t.ops, t.next - arg};
}

AttentionShape layout_shape(Harness *h, int64_t width) {
  static const int64_t widths[] = {16, 24, 32, 48, 64, 80, 128};
  static const char *const batch[] = {"B", "H"};
  AttentionShape s = {.queries = harness_random(h, 1, 260), .keys = harness_random(h, 1, 260)};
  if (harness_random(h, 0, 2)) s.keys = s.queries;
  if (!width) width = widths[harness_random(h, 0, 99) < 90 ? harness_random(h, 0, 4) : 6];
  for (int i = 0, n = (int)harness_random(h, 0, 2); i < n; i++) {
    s.qdim[s.nq] = batch[i], s.qsize[s.nq++] = 2;
    if (harness_random(h, 0, 1)) s.kdim[s.nk] = batch[i], s.ksize[s.nk++] = 2;
  }
  s.qdim[s.nq] = "S", s.qsize[s.nq++] = s.queries, s.kdim[s.nk] = "T", s.ksize[s.nk++] = s.keys;
  s.qdim[s.nq] = "D", s.qsize[s.nq++] = width, s.kdim[s.nk] = "D", s.ksize[s.nk++] = width;
  return s;
}

/* Block patterns: every pattern of docs/language.md, combined at random, against a plain definition
   of its own in this file: for each head which blocks are absent, partial and full. Also known
   numbers of blocks from other sources.

     frontend_test_patterns [FIRST COUNT]     COUNT random masks, 2,000 from 0 without arguments */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/lower.h"
#include "ir/mask/blocks.h"
#include "ir/support/philox.h" /* what is tried; draws of `random` are defined below */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTS = 5, MASKS = 8 };

typedef enum Kind {
  CAUSAL,
  SLIDING,
  WINDOW,
  GLOBAL,
  FIXED,
  VARIABLE,
  STRIDED,
  DILATED,
  RANDOM,
  TABLE,
  LEAVES,
  AND = LEAVES,
  OR,
  PER_HEAD
} Kind;

typedef struct Range {
  int from, to;
} Range;

typedef struct Node {
  Kind kind;
  int n, m, p;                     /* numbers of the pattern */
  bool rows, columns;              /* flags; `horizontal` is rows */
  Range list[LISTS];               /* blocks: [from, to) */
  int lists, windows[LISTS], many; /* many: of windows */
  const struct Node *at[3];
  int parts;
  uint8_t *bits; /* TABLE: [heads or 1][rows][columns]; m: heads differ; n: its type */
  char file[64];
} Node;

typedef struct Where { /* a score */
  int q, k, h, unit, queries, keys;
} Where;

/* ---- the plain definition ---- */

static bool in_list(const Node *x, int b) {
  for (int i = 0; i < x->lists; i++)
    if (b >= x->list[i].from && b < x->list[i].to) return true;
  return false;
}

/* Column b is global for `fixed`: marked window by window. */
static bool fixed_column(const Node *x, int b, int h, int columns) {
  bool mark[4096] = {0};
  int off = x->n - (1 + h % x->p) * x->m, full = columns / x->n;
  for (int w = 0; w < full; w++)
    for (int i = 0; i < x->m; i++) mark[w * x->n + off + i] = true;
  int start = full * x->n + off;
  if (start > columns - x->m) start = columns - x->m;
  for (int i = 0; i < x->m && columns % x->n; i++)
    if (start + i >= 0) mark[start + i] = true;
  return b < columns && mark[b];
}

static int window_of(const Node *x, int b) {
  int w = 0, end = x->windows[0];
  while (b >= end) w++, end += x->windows[w < x->many ? w : x->many - 1];
  return w;
}

/* The first word of Philox4x32-10 at counter (c, r, h, 0) and key (seed, 0), by its paper (Salmon
   et al., Parallel random numbers: as easy as 1, 2, 3, 2011), and not by the compiler's. */
static uint32_t word(const Node *x, int c, int r, int h) {
  uint32_t at[] = {(uint32_t)c, (uint32_t)r, (uint32_t)h, 0}, k0 = (uint32_t)x->p, k1 = 0;
  for (int round = 0; round < 10; round++, k0 += 0x9e3779b9, k1 += 0xbb67ae85) {
    uint64_t a = 0xd2511f53ull * at[0], b = 0xcd9e8d57ull * at[2];
    uint32_t next[] = {(uint32_t)(b >> 32) ^ at[1] ^ k0, (uint32_t)b,
                       (uint32_t)(a >> 32) ^ at[3] ^ k1, (uint32_t)a};
    memcpy(at, next, sizeof at);
  }
  return at[0];
}

/* Fewer than n columns have a smaller word, or the same and come before. */
static bool drawn(const Node *x, int r, int c, int h, int columns) {
  int may = x->rows && r + 1 < columns ? r + 1 : columns, before = 0;
  for (int i = 0; i < may; i++) {
    uint32_t a = word(x, i, r, h), b = word(x, c, r, h);
    before += a < b || (a == b && i < c);
  }
  return c < may && before < x->n;
}

static bool admits(const Node *x, const Where *s) {
  int r = s->q / s->unit, c = s->k / s->unit, far = abs(r - c);
  int columns = (s->keys + s->unit - 1) / s->unit;
  switch (x->kind) {
  case CAUSAL: return s->k <= s->q;
  case SLIDING: return abs(s->q - s->k) < x->n;
  case WINDOW: return far <= x->n / 2;
  case GLOBAL: return (x->rows && in_list(x, r)) || (x->columns && in_list(x, c));
  case FIXED:
    return r / x->n == c / x->n || fixed_column(x, c, s->h, columns) ||
           (x->rows && fixed_column(x, r, s->h, columns));
  case VARIABLE:
    return window_of(x, r) == window_of(x, c) || in_list(x, c) || (x->rows && in_list(x, r));
  case STRIDED: return far % x->n == 0;
  case DILATED: return far <= x->n / 2 * x->m && far % x->m == 0;
  case RANDOM: return drawn(x, r, c, s->h, columns);
  case TABLE: {
    int rows = (s->queries + s->unit - 1) / s->unit;
    return x->bits[((x->m ? s->h : 0) * rows + r) * columns + c];
  }
  case AND: return admits(x->at[0], s) && admits(x->at[1], s);
  case OR: return admits(x->at[0], s) || admits(x->at[1], s);
  case PER_HEAD: return admits(x->at[s->h % x->parts], s);
  }
  return false;
}

/* ---- as text ---- */

static const char *flag(bool on) { return on ? "on" : "off"; }

static const char *list_text(Arena *a, const Node *x) {
  const char *s = "";
  for (int i = 0; i < x->lists; i++) {
    Range l = x->list[i];
    const char *comma = i ? ", " : "";
    s = l.to == l.from + 1 ? arena_printf(a, "%s%s%d", s, comma, l.from)
                           : arena_printf(a, "%s%s[%d, %d]", s, comma, l.from, l.to);
  }
  return arena_printf(a, "[%s]", s);
}

static const char *windows_text(Arena *a, const Node *x) {
  const char *s = "";
  for (int i = 0; i < x->many; i++) s = arena_printf(a, "%s%s%d", s, i ? ", " : "", x->windows[i]);
  return s;
}

static const char *text_of(Arena *a, const Node *x) {
  switch (x->kind) {
  case CAUSAL: return "causal";
  case SLIDING: return arena_printf(a, "sliding(%d)", x->n);
  case WINDOW: return arena_printf(a, "window(%d)", x->n);
  case GLOBAL:
    return arena_printf(a, "global(%s, rows = %s, columns = %s)", list_text(a, x), flag(x->rows),
                        flag(x->columns));
  case FIXED:
    return arena_printf(a, "fixed(local = %d, global = %d, patterns = %d, horizontal = %s)", x->n,
                        x->m, x->p, flag(x->rows));
  case VARIABLE:
    return arena_printf(a, "variable(windows = [%s], globals = %s, horizontal = %s)",
                        windows_text(a, x), list_text(a, x), flag(x->rows));
  case STRIDED: return arena_printf(a, "strided(%d)", x->n);
  case DILATED: return arena_printf(a, "dilated(%d, %d)", x->n, x->m);
  case RANDOM:
    return arena_printf(a, "random(%d, seed = %d, lower = %s)", x->n, x->p, flag(x->rows));
  case TABLE: return arena_printf(a, "table(\"%s\")", x->file);
  case AND: return arena_printf(a, "(%s & %s)", text_of(a, x->at[0]), text_of(a, x->at[1]));
  case OR: return arena_printf(a, "(%s | %s)", text_of(a, x->at[0]), text_of(a, x->at[1]));
  default: break;
  }
  const char *s = "";
  for (int i = 0; i < x->parts; i++)
    s = arena_printf(a, "%s%s%s", s, i ? ", " : "", text_of(a, x->at[i]));
  return arena_printf(a, "per_head([%s])", s);
}

/* ---- random masks ---- */

typedef struct Random {
  Arena *a;
  uint64_t seed, at;
  int rows, columns, heads; /* of blocks; of the layout */
} Random;

static int upto(Random *r, int n) {
  return (int)(philox_word(r->seed, 0, 0, r->at++) % (uint32_t)n);
}

static void random_list(Random *r, Node *x) {
  x->lists = 1 + upto(r, LISTS - 1);
  for (int i = 0; i < x->lists; i++) {
    int from = upto(r, 12);
    x->list[i] = (Range){from, from + 1 + (upto(r, 2) ? upto(r, 4) : 0)};
  }
}

/* A .npy file of bools or whole numbers of 1, 2, 4, 8 bytes in either order. */
static void write_table(Arena *a, const Node *x, int heads, int rows, int columns) {
  static const char *const types[] = {"|b1", "|u1", "<i2", ">i4", "<u8"};
  static const int widths[] = {1, 1, 2, 4, 8};
  FILE *f = fopen(x->file, "wb");
  assert_non_null(f);
  const char *lead = x->m ? arena_printf(a, "%d, ", heads) : "";
  fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
  fprintf(f, "%-117s\n",
          arena_printf(a, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%d, %d), }",
                       types[x->n], lead, rows, columns));
  for (int i = 0; i < (x->m ? heads : 1) * rows * columns; i++)
    for (int b = 0; b < widths[x->n]; b++) {
      bool least = types[x->n][0] == '>' ? b == widths[x->n] - 1 : b == 0;
      putc(least && x->bits[i], f);
    }
  assert_int_equal(fclose(f), 0);
}

static int tables; /* files so far */

static void random_table(Random *r, Node *x) {
  int shares[] = {2, 3, 8, 1}, share = shares[upto(r, 4)]; /* of ones: a half, .. all */
  x->m = upto(r, 2), x->n = upto(r, 5);
  int n = (x->m ? r->heads : 1) * r->rows * r->columns;
  x->bits = arena_alloc(r->a, (size_t)n);
  for (int i = 0; i < n; i++) x->bits[i] = !upto(r, share);
  snprintf(x->file, sizeof x->file, "/tmp/shardc-patterns-%d-%d.npy", (int)getpid(), tables++);
  write_table(r->a, x, r->heads, r->rows, r->columns);
}

static void remove_tables(void) {
  char file[64];
  for (; tables; tables--) {
    snprintf(file, sizeof file, "/tmp/shardc-patterns-%d-%d.npy", (int)getpid(), tables - 1);
    unlink(file);
  }
}

static Node *random_leaf(Random *r) {
  Node *x = ARENA_NEW(r->a, Node);
  *x = (Node){.kind = (Kind)upto(r, LEAVES), .n = 1 + upto(r, 7), .m = 1 + upto(r, 4), .p = 1};
  x->rows = upto(r, 2), x->columns = upto(r, 4) || !x->rows;
  if (x->kind == SLIDING) x->n = 1 + upto(r, 40);
  if (x->kind == FIXED) x->n = x->m * (1 + upto(r, 4)), x->p = 1 + upto(r, x->n / x->m);
  if (x->kind == GLOBAL || x->kind == VARIABLE) random_list(r, x);
  if (x->kind == RANDOM) x->n = upto(r, r->columns < 5 ? r->columns + 1 : 5), x->p = upto(r, 99);
  if (x->kind == TABLE) random_table(r, x);
  x->many = 1 + upto(r, LISTS - 1);
  for (int i = 0; i < x->many; i++) x->windows[i] = 1 + upto(r, 5);
  return x;
}

static Node *random_mask(Random *r, int depth) {
  int pick = upto(r, 10);
  if (!depth || pick < 4) return random_leaf(r);
  Node *x = ARENA_NEW(r->a, Node);
  *x = (Node){.kind = pick < 6 ? AND : pick < 9 ? OR : PER_HEAD, .parts = 2 + (pick == 9)};
  for (int i = 0; i < x->parts; i++) x->at[i] = random_mask(r, depth - 1);
  return x;
}

/* ---- a program with some masks ---- */

typedef struct Program {
  int queries, keys, unit, heads, group, n;
  const char *mask[MASKS];
} Program;

static const char *program_text(Arena *a, const Program *p) {
  const char *s = arena_printf(
      a, "use \"std\"\ndims { Batch; Seq = %d; Key = %d; Heads = %d; Group = %d; Head = 2 }\n",
      p->queries, p->keys, p->heads, p->group);
  for (int i = 0; i < p->n; i++)
    s = arena_printf(a, "%slayout l%d [Heads, Group, Seq, Key] = blocks(%d) & (%s)\n", s, i,
                     p->unit, p->mask[i]);
  s = arena_printf(a,
                   "%smodel M {\n  input q [Batch, Heads, Group, Seq, Head] f32\n"
                   "  input k [Batch, Heads, Key, Head] f32\n  param w [Head] = 1\n  loss 0",
                   s);
  for (int i = 0; i < p->n; i++)
    s = arena_printf(a, "%s + mean[*](attention[Seq -> Key; Head](q * w, k, k, mask = l%d))", s, i);
  return arena_printf(a,
                      "%s\n}\ntrain t { batch 1; steps 1; optim sgd lr = 1; "
                      "data columns(q = \"q.npy\", k = \"k.npy\") }\n",
                      s);
}

static Module *lowered(Ctx *c, const char *text) {
  char path[] = "/tmp/shardc-patterns-XXXXXX.shard";
  int fd = mkstemps(path, 6);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  LowerOptions o = {.path = path};
  Module *m = lower_program(c, &o);
  unlink(path);
  if (!m || !ir_verify(m)) {
    diag_print(c->diag, stderr, DIAG_HUMAN, false);
    fail_msg("this does not compile:\n%s", text);
  }
  return m;
}

/* The mask of attention number n of entry step; NO_VALUE: it has none. */
static ValueId mask_number(const Fn *f, int n) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_attention && !n--)
      return f->ops.at[i].nin > 3 ? f->ops.at[i].in[3] : NO_VALUE;
  fail_msg("an attention is missing");
  return NO_VALUE;
}

static BlockMap blocks_of(Ctx *c, const Module *m, const Program *p, int n, int heads, int group) {
  const Fn *f = module_fn(m, intern(c->names, "step"));
  Str query = intern(c->names, "Seq"), key = intern(c->names, "Key");
  BlockHead at[] = {{intern(c->names, "Heads"), heads, NO_VALUE},
                    {intern(c->names, "Group"), group, NO_VALUE}};
  return mask_blocks(c->arena, f, mask_number(f, n), (Axis){query, p->queries},
                     (Axis){key, p->keys}, p->unit, p->unit, 2, at);
}

/* Scores of listed blocks, admitted ones, queries that see nothing: one score at a time. */
static void compare_counts(Ctx *c, const Module *m, const Program *p, int n, const Node *x, int h,
                           const BlockMap *map) {
  Where s = {.h = h, .unit = p->unit, .queries = p->queries, .keys = p->keys};
  double listed = 0, admitted = 0;
  int64_t blind = 0;
  for (s.q = 0; s.q < s.queries; s.q++) {
    double before = admitted;
    for (s.k = 0; s.k < s.keys; s.k++) {
      admitted += admits(x, &s);
      listed += map->state[s.q / s.unit * map->columns + s.k / s.unit] != BLOCK_ABSENT;
    }
    blind += admitted == before;
  }
  const BlockHead at[] = {{intern(c->names, "Heads"), h / p->group, NO_VALUE},
                          {intern(c->names, "Group"), h % p->group, NO_VALUE}};
  const Fn *f = module_fn(m, intern(c->names, "step"));
  BlockCount got = mask_count(f, mask_number(f, n), (Axis){intern(c->names, "Seq"), p->queries},
                              (Axis){intern(c->names, "Key"), p->keys}, map, 2, at);
  if (got.listed != listed || got.admitted != admitted || got.blind != blind)
    fail_msg("%s\n%d x %d in blocks of %d, head %d: %.0f listed, %.0f admitted, %lld blind; wanted "
             "%.0f, %.0f, %lld",
             p->mask[n], p->queries, p->keys, p->unit, h, got.listed, got.admitted,
             (long long)got.blind, listed, admitted, (long long)blind);
}

static BlockState plain_state(const Node *x, Where s, int r, int c) {
  bool some = false, all = true;
  for (s.q = r * s.unit; s.q < (r + 1) * s.unit && s.q < s.queries; s.q++)
    for (s.k = c * s.unit; s.k < (c + 1) * s.unit && s.k < s.keys; s.k++) {
      bool in = admits(x, &s);
      some |= in, all &= in;
    }
  return !some ? BLOCK_ABSENT : all ? BLOCK_FULL : BLOCK_PARTIAL;
}

static void compare(Ctx *c, const Module *m, const Program *p, int n, const Node *x) {
  for (int h = 0; h < p->heads * p->group; h++) {
    BlockMap b = blocks_of(c, m, p, n, h / p->group, h % p->group);
    Where s = {.h = h, .unit = p->unit, .queries = p->queries, .keys = p->keys};
    if (n % 4 == 0) compare_counts(c, m, p, n, x, h, &b);
    for (int64_t i = 0; i < b.rows * b.columns; i++) {
      int row = (int)(i / b.columns), column = (int)(i % b.columns);
      BlockState want = plain_state(x, s, row, column);
      if (want != b.state[i])
        fail_msg("%s\n%d x %d in blocks of %d, head %d, row %d, column %d: %d, wanted %d",
                 p->mask[n], p->queries, p->keys, p->unit, h, row, column, b.state[i], want);
    }
  }
}

static int first, count = 2000;

static void test_random(void **state) {
  (void)state;
  for (int at = first; at < first + count; at += MASKS) {
    Ctx *c = ctx_new();
    Random r = {.a = c->arena, .seed = (uint64_t)at};
    Program p = {.queries = 1 + upto(&r, 90), .unit = 1 + upto(&r, 12), .heads = 1 + upto(&r, 3)};
    p.keys = upto(&r, 3) ? p.queries : 1 + upto(&r, 90), p.group = 1 + upto(&r, 2), p.n = MASKS;
    const Node *mask[MASKS];
    r.columns = (p.keys + p.unit - 1) / p.unit, r.rows = (p.queries + p.unit - 1) / p.unit;
    r.heads = p.heads * p.group;
    for (int i = 0; i < MASKS; i++) {
      mask[i] = random_mask(&r, 2);
      p.mask[i] = text_of(c->arena, mask[i]);
    }
    Module *m = lowered(c, program_text(c->arena, &p));
    for (int i = 0; i < MASKS; i++) compare(c, m, &p, i, mask[i]);
    remove_tables();
    ctx_free(c);
  }
}

/* ---- numbers of blocks ---- */

static const struct {
  int positions, unit, count;
  const char *mask;
} golden[] = {
    {1024, 16, 1216, "fixed(local = 4, global = 1)"},
    {1024, 16, 640, "fixed(local = 4, global = 1) & causal"},
    {1024, 16, 640, "fixed(local = 4, global = 1, patterns = 4) & causal"},
    {1024, 16, 1936, "fixed(local = 4, global = 1, horizontal = on)"},
    {1024, 16, 316, "variable(windows = [4], globals = [0])"},
    {1024, 16, 314, "longformer()"},
    {1024, 16, 189, "longformer() & causal"},
    {1024, 16, 314, "bigbird(random = 0)"},
    {1024, 16, 189, "bigbird(random = 0) & causal"},
    {1024, 16, 192, "random(3, seed = 42)"},
    {1024, 16, 190, "window(3)"},
    {1024, 16, 127, "window(3) & causal"},
    {288, 16, 140, "fixed(local = 4, global = 1)"},
    {288, 16, 75, "fixed(local = 4, global = 1) & causal"},
    {256, 16, 96, "variable(windows = [2, 3], globals = [0, 5], horizontal = on)"},
    {1024, 16, 314, "window(3) | global(1)"},
    {1024, 16, 2080, "causal"},
    {65536, 64, 7156, "window(3) | global(2)"},
};

static void test_golden(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
    Ctx *c = ctx_new();
    Program p = {.queries = golden[i].positions,
                 .keys = golden[i].positions,
                 .unit = golden[i].unit,
                 .heads = 4,
                 .group = 1,
                 .n = 1,
                 .mask = {golden[i].mask}};
    Module *m = lowered(c, program_text(c->arena, &p));
    for (int h = 0; h < p.heads; h++) {
      BlockMap b = blocks_of(c, m, &p, 0, h, 0);
      if (b.partial + b.full != golden[i].count)
        fail_msg("%s has %lld blocks", golden[i].mask, (long long)(b.partial + b.full));
    }
    ctx_free(c);
  }
}

/* The draws that docs/language.md shows. */
static void test_draws(void **state) {
  static const int want[][3] = {{41, 47, 53}, {6, 7, 48}, {28, 53, 58}};
  (void)state;
  Ctx *c = ctx_new();
  Program p = {1024, 1024, 16, 1, 1, 1, {"random(3, seed = 42)"}};
  BlockMap b = blocks_of(c, lowered(c, program_text(c->arena, &p)), &p, 0, 0, 0);
  for (int r = 0; r < 3; r++)
    for (int i = 0; i < 3; i++) assert_int_equal(b.state[r * b.columns + want[r][i]], BLOCK_FULL);
  ctx_free(c);
}

/* A pattern that is true everywhere is no mask. */
static void test_everything(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Program p = {64, 64, 16, 1, 1, 3, {"all", "causal | blocks(16)", "all | window(3)"}};
  Module *m = lowered(c, program_text(c->arena, &p));
  for (int i = 0; i < p.n; i++)
    assert_int_equal(mask_number(module_fn(m, intern(c->names, "step")), i), NO_VALUE);
  ctx_free(c);
}

int main(int argc, char **argv) {
  if (argc > 2) first = atoi(argv[1]), count = atoi(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_draws),
      cmocka_unit_test(test_everything),
      cmocka_unit_test(test_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

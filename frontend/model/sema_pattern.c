/* Block patterns of masks: `window(3)`, `fixed(local = 4)`, .. Their operands are checked where
   they are written; where a mask gets axes, a pattern becomes the bool expression that says of
   block row r = q / n and block column c = k / n whether it lists their block. That expression is
   the definition: every target computes it, and whoever wants lists of blocks asks it over
   intervals (ir/mask/blocks.c).

   docs/language.md says what each pattern lists. Must not: know what kernels skip. */
#include "lower_emit.h"
#include "sema_mask.h"
#include "ir/support/philox.h"
#include <math.h>
#include <string.h>

/* ---- numbers over positions ---- */

static Val wider(Eval *e, Val a, const Val *b) {
  Dims all = a.dims;
  if (dims_subset(&b->dims, &a.dims) || dims_subset(&a.dims, &b->dims)) return a;
  for (int i = 0; i < b->dims.n; i++)
    if (!dims_has(&all, b->dims.at[i])) dims_add(&all, b->dims.at[i]);
  return lower_widened(e, &a, &all);
}

Val pattern_op(Eval *e, OpCode op, Val a, Val b) {
  double x;
  AstOp of = op == OP_add ? AST_ADD : op == OP_sub ? AST_SUB : AST_MUL;
  bool plain = op == OP_add || op == OP_sub || op == OP_mul;
  if (plain && a.kind == VAL_NUMBER && b.kind == VAL_NUMBER &&
      number_apply(of, a.number, b.number, &x))
    return val_number(x);
  a = wider(e, a, &b);
  const Val *in[] = {&a, &b};
  bool truth = op_flags(op) & BOOLR || op == OP_and || op == OP_or;
  Val out = val_tensor(truth ? VAL_BOOL : VAL_INT, dims_subset(&b.dims, &a.dims) ? a.dims : b.dims);
  lower_op(e, &out, 1, op, 2, in, 0, NULL);
  return out;
}

Val pattern_position(Eval *e, Str dim) {
  Val v = val_tensor(VAL_INT, (Dims){.n = 1, .at = {dim}});
  lower_iota(e, &v, dim);
  return v;
}

typedef struct Grid {
  Eval *e;
  const BlockGrid *of;
  Val r, c;             /* block row and column */
  double rows, columns; /* how many there are */
} Grid;

static Val op(const Grid *grid, OpCode code, Val a, Val b) {
  return pattern_op(grid->e, code, a, b);
}
static Val by(const Grid *grid, OpCode code, Val a, double b) {
  return op(grid, code, a, val_number(b));
}
static Val both(const Grid *grid, Val a, Val b) { return op(grid, OP_and, a, b); }
static Val either(const Grid *grid, Val a, Val b) { return op(grid, OP_or, a, b); }
static Val from_on(const Grid *grid, Val x, double least) {
  return op(grid, OP_le, val_number(least), x);
}

/* No block */
static Val none(const Grid *grid) {
  return val_flat(VAL_BOOL, (Dims){.n = 1, .at = {grid->of->k}}, 0);
}

static bool is_none(const Val *v) { return v->known; }

static Val join(const Grid *grid, Val a, Val b) {
  return is_none(&a) ? b : is_none(&b) ? a : either(grid, a, b);
}

static Val remainder_of(const Grid *grid, Val x, double n) {
  return op(grid, OP_sub, x, by(grid, OP_mul, by(grid, OP_div, x, n), n));
}

/* lo <= x < hi */
static Val within(const Grid *grid, Val x, double lo, double hi) {
  Val below = by(grid, OP_lt, x, hi);
  return lo > 0 ? both(grid, from_on(grid, x, lo), below) : below;
}

Val pattern_head(Eval *e, const BlockGrid *grid, double n) {
  Grid g = {.e = e, .of = grid};
  Val h = val_number(0);
  for (int i = 0; i < grid->heads.n && n > 1; i++) {
    Str dim = grid->heads.at[i];
    h = by(&g, OP_mul, h, (double)eval_size(e, dim));
    h = i ? op(&g, OP_add, h, pattern_position(e, dim)) : pattern_position(e, dim);
  }
  return h.kind == VAL_NUMBER ? h : remainder_of(&g, h, n);
}

/* ---- operands ---- */

static bool absent(const Val *v) { return v->kind == VAL_ABSENT; }
static double number_or(const Val *v, double otherwise) {
  return absent(v) ? otherwise : v->number;
}
static bool is_on(const Val *v, bool otherwise) { return absent(v) ? otherwise : v->number != 0; }

typedef enum Wanted { WANT_NUMBER, WANT_FLAG, WANT_WINDOWS, WANT_BLOCKS, WANT_SEED } Wanted;

typedef struct PatternRule {
  const char *name;
  struct {
    Wanted wanted;
    double least;
  } arg[4];
  Val (*values)(const Grid *g, const Mask *m);
  bool (*fits)(Eval *e, const Mask *m); /* operands together, where all are known */
} PatternRule;

static bool wrong(Eval *e, const Mask *mask, const AstExpr *expr, const char *wanted) {
  eval_error(e, "E0402", expr ? expr->span : mask->span, "`%s` takes %s", mask->name, wanted);
  return false;
}

static bool is_whole(const Val *v, double least) {
  return v->kind == VAL_NUMBER &&
         (!v->known || (v->number >= least && v->number == floor(v->number) && v->number <= 1e9));
}

static bool windows_fit(const Val *v) {
  if (v->kind != VAL_LIST || !v->nitems) return false;
  for (int i = 0; i < v->nitems; i++)
    if (!is_whole(&v->items[i], 1)) return false;
  return true;
}

/* A block, or the range [a, b]: a .. b - 1 */
static bool range_fits(const Val *v) {
  if (v->kind != VAL_LIST) return is_whole(v, 0);
  return v->nitems == 2 && is_whole(&v->items[0], 0) && is_whole(&v->items[1], 0) &&
         (!v->items[0].known || !v->items[1].known || v->items[0].number < v->items[1].number);
}

static bool blocks_fit(const Val *v, bool number) {
  if (number && v->kind == VAL_NUMBER) return is_whole(v, 0);
  for (int i = 0; i < v->nitems; i++)
    if (!range_fits(&v->items[i])) return false;
  return v->kind == VAL_LIST;
}

static bool operand_fits(Eval *e, const Mask *mask, Wanted wanted, double least, const Val *v,
                         const AstExpr *expr) {
  bool first = v == mask->arg && mask->name[0] == 'g'; /* global(g) */
  switch (wanted) {
  case WANT_NUMBER:
    return is_whole(v, least) ||
           wrong(e, mask, expr, least > 0 ? "a positive whole number" : "a whole number");
  case WANT_SEED:
    return (v->kind == VAL_NUMBER && (!v->known || (v->number >= 0 && v->number < 0x1p53 &&
                                                    v->number == floor(v->number)))) ||
           wrong(e, mask, expr, "a whole number");
  case WANT_FLAG: return v->kind == VAL_FLAG || wrong(e, mask, expr, "`on` or `off`");
  case WANT_WINDOWS:
    return windows_fit(v) || wrong(e, mask, expr, "a list of positive whole numbers, as `[2, 4]`");
  case WANT_BLOCKS:
    return blocks_fit(v, first) ||
           wrong(e, mask, expr,
                 first ? "a number of blocks or a list, as `[0, 5, [8, 12]]`"
                       : "a list of blocks and ranges, as `[0, 5, [8, 12]]`");
  }
  return false;
}

static bool fixed_fits(Eval *e, const Mask *mask) {
  double local = number_or(&mask->arg[0], 4), global = number_or(&mask->arg[1], 1),
         patterns = number_or(&mask->arg[2], 1);
  const char *why = fmod(local, global) != 0 ? "`local` is no multiple of `global`"
                    : patterns > local / global
                        ? "more `patterns` than windows of `global` blocks in `local` ones"
                        : NULL;
  if (!why) return true;
  Report *r = eval_error(e, "E0311", mask->span, "%s", why);
  diag_label(r, "local = %.0f, global = %.0f, patterns = %.0f", local, global, patterns);
  return false;
}

static bool global_fits(Eval *e, const Mask *mask) {
  if (is_on(&mask->arg[1], true) || is_on(&mask->arg[2], true)) return true;
  eval_error(e, "E0311", mask->span, "`global` with neither rows nor columns lists no block");
  return false;
}

static const PatternRule *rule_of(const Mask *m);

bool pattern_check(Eval *e, const Mask *mask, int n, const AstExpr *const *expr) {
  const PatternRule *rule = rule_of(mask);
  bool known = true;
  for (int i = 0; rule && i < n; i++) {
    if (absent(&mask->arg[i])) continue;
    if (!operand_fits(e, mask, rule->arg[i].wanted, rule->arg[i].least, &mask->arg[i], expr[i]))
      return false;
    known &= mask->arg[i].kind != VAL_NUMBER || mask->arg[i].known;
  }
  if (rule && rule->fits && known) return rule->fits(e, mask);
  return true;
}

/* ---- the patterns ---- */

/* |r - c| <= far */
static Val near(const Grid *grid, double far) {
  Val d = op(grid, OP_sub, grid->c, grid->r), distance = val_tensor(VAL_INT, d.dims);
  const Val *in[] = {&d};
  lower_op(grid->e, &distance, 1, OP_abs, 1, in, 0, NULL);
  return by(grid, OP_le, distance, far);
}

static Val same_remainder(const Grid *grid, double n) {
  return op(grid, OP_eq, remainder_of(grid, grid->r, n), remainder_of(grid, grid->c, n));
}

static Val window(const Grid *grid, const Mask *mask) {
  return near(grid, floor(mask->arg[0].number / 2));
}
static Val strided(const Grid *grid, const Mask *mask) {
  return same_remainder(grid, mask->arg[0].number);
}

static Val dilated(const Grid *grid, const Mask *mask) {
  double d = mask->arg[1].number;
  return both(grid, near(grid, floor(mask->arg[0].number / 2) * d), same_remainder(grid, d));
}

/* x is in a list of blocks and ranges. Entries past the end are no blocks. */
static Val among(const Grid *grid, const Val *list, Val x) {
  Val in = none(grid);
  if (list->kind == VAL_NUMBER) return list->number > 0 ? by(grid, OP_lt, x, list->number) : in;
  for (int i = 0; i < list->nitems; i++) {
    const Val *v = &list->items[i];
    Val one = v->kind == VAL_NUMBER ? by(grid, OP_eq, x, v->number)
                                    : within(grid, x, v->items[0].number, v->items[1].number);
    in = join(grid, in, one);
  }
  return in;
}

static Val global(const Grid *grid, const Mask *mask) {
  Val rows = is_on(&mask->arg[1], true) ? among(grid, mask->arg, grid->r) : none(grid);
  return join(grid, rows,
              is_on(&mask->arg[2], true) ? among(grid, mask->arg, grid->c) : none(grid));
}

/* The columns that `fixed` lists for every row, asked of x. */
static Val fixed_columns(const Grid *grid, const Mask *mask, Val x) {
  double local = number_or(&mask->arg[0], 4), global = number_or(&mask->arg[1], 1),
         patterns = number_or(&mask->arg[2], 1), full = floor(grid->columns / local) * local;
  Val h = pattern_head(grid->e, grid->of, patterns);
  Val first = op(grid, OP_sub, val_number(local - global), by(grid, OP_mul, h, global));
  Val at = remainder_of(grid, x, local), end = by(grid, OP_add, first, global);
  Val in = both(grid, op(grid, OP_le, first, at), op(grid, OP_lt, at, end));
  in = both(grid, in, by(grid, OP_lt, x, full));
  if (full == grid->columns) return in;
  Val start = by(grid, OP_add, first, full);
  double most = grid->columns - global;
  start = start.kind == VAL_NUMBER ? val_number(fmin(start.number, most))
                                   : by(grid, OP_min, start, most);
  end = by(grid, OP_add, start, global);
  return either(grid, in, both(grid, op(grid, OP_le, start, x), op(grid, OP_lt, x, end)));
}

static Val fixed(const Grid *grid, const Mask *mask) {
  double local = number_or(&mask->arg[0], 4);
  Val in = op(grid, OP_eq, by(grid, OP_div, grid->r, local), by(grid, OP_div, grid->c, local));
  in = either(grid, in, fixed_columns(grid, mask, grid->c));
  return is_on(&mask->arg[3], false) ? either(grid, in, fixed_columns(grid, mask, grid->r)) : in;
}

/* The last length of the list repeats from `first` on. */
static Val last_windows(const Grid *grid, double first, double length) {
  Val r = by(grid, OP_sub, grid->r, first), c = by(grid, OP_sub, grid->c, first);
  Val in = op(grid, OP_eq, by(grid, OP_div, r, length), by(grid, OP_div, c, length));
  if (first <= 0) return in;
  return both(grid, in, both(grid, from_on(grid, grid->r, first), from_on(grid, grid->c, first)));
}

static Val variable(const Grid *grid, const Mask *mask) {
  Val four = val_number(4), zero = val_number(0);
  Val windows =
      absent(&mask->arg[0]) ? (Val){.kind = VAL_LIST, .items = &four, .nitems = 1} : mask->arg[0];
  Val globals =
      absent(&mask->arg[1]) ? (Val){.kind = VAL_LIST, .items = &zero, .nitems = 1} : mask->arg[1];
  Val in = none(grid);
  double at = 0;
  for (int i = 0; i < windows.nitems && at < fmax(grid->rows, grid->columns); i++) {
    double n = windows.items[i].number;
    bool last = i + 1 == windows.nitems;
    Val here =
        last ? last_windows(grid, at, n)
             : both(grid, within(grid, grid->r, at, at + n), within(grid, grid->c, at, at + n));
    in = join(grid, in, here), at += n;
  }
  in = join(grid, in, among(grid, &globals, grid->c));
  return is_on(&mask->arg[2], false) ? join(grid, in, among(grid, &globals, grid->r)) : in;
}

/* Draws, from the columns that row r may draw, the k with the smallest (word, column). */
static void draw(uint64_t seed, int64_t h, int64_t r, int64_t columns, int64_t k, bool *set) {
  uint32_t key[] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint64_t least = 0;
  for (int64_t found = 0; found < k && found < columns; found++) {
    uint64_t next = UINT64_MAX;
    for (int64_t c = 0; c < columns; c++) {
      Philox at = {{(uint32_t)c, (uint32_t)r, (uint32_t)h, 0}};
      uint64_t x = (uint64_t)philox(at, key[0], key[1]).word[0] << 32 | (uint64_t)c;
      if (x >= least && x < next) next = x;
    }
    set[next & UINT32_MAX] = true, least = next + 1;
  }
}

static int64_t heads_of(const Grid *grid) {
  int64_t n = 1;
  for (int i = 0; i < grid->of->heads.n; i++) n *= eval_size(grid->e, grid->of->heads.at[i]);
  return n;
}

/* set[heads * rows][columns] at h * rows + r and c */
static Val looked_up(const Grid *grid, int64_t heads, const bool *set) {
  int64_t rows = (int64_t)grid->rows, columns = (int64_t)grid->columns;
  Val h = pattern_head(grid->e, grid->of, (double)heads);
  Val r = op(grid, OP_add, by(grid, OP_mul, h, (double)rows), grid->r),
      c = wider(grid->e, grid->c, &r);
  Val out = val_tensor(VAL_BOOL, dims_subset(&r.dims, &c.dims) ? c.dims : r.dims);
  const Val *in[] = {&r, &c};
  lower_lookup(grid->e, &out, in, heads * rows, columns, set);
  return out;
}

static Val random_columns(const Grid *grid, const Mask *mask) {
  int64_t heads = heads_of(grid), rows = (int64_t)grid->rows, columns = (int64_t)grid->columns;
  uint64_t seed = (uint64_t)number_or(&mask->arg[1], 0);
  bool lower = is_on(&mask->arg[2], false);
  if (mask->arg[0].number <= 0) return none(grid);
  bool *set = ARENA_ARRAY(grid->e->arena, bool, heads *rows *columns);
  for (int64_t i = 0; i < heads * rows; i++) {
    int64_t r = i % rows, may = lower && r + 1 < columns ? r + 1 : columns;
    draw(seed, i / rows, r, may, (int64_t)mask->arg[0].number, set + i * columns);
  }
  return looked_up(grid, heads, set);
}

static Val table(const Grid *grid, const Mask *mask) {
  return looked_up(grid, table_by_head(mask) ? heads_of(grid) : 1, table_set(mask));
}

static const PatternRule rules[] = {
    {"window", {{WANT_NUMBER, 1}}, window, NULL},
    {"global", {{WANT_BLOCKS, 0}, {WANT_FLAG, 0}, {WANT_FLAG, 0}}, global, global_fits},
    {"fixed",
     {{WANT_NUMBER, 1}, {WANT_NUMBER, 1}, {WANT_NUMBER, 1}, {WANT_FLAG, 0}},
     fixed,
     fixed_fits},
    {"variable", {{WANT_WINDOWS, 0}, {WANT_BLOCKS, 0}, {WANT_FLAG, 0}}, variable, NULL},
    {"strided", {{WANT_NUMBER, 1}}, strided, NULL},
    {"dilated", {{WANT_NUMBER, 1}, {WANT_NUMBER, 1}}, dilated, NULL},
    {"random", {{WANT_NUMBER, 0}, {WANT_SEED, 0}, {WANT_FLAG, 0}}, random_columns, NULL},
    {"table", {{WANT_NUMBER, 0}}, table, NULL},
};

static const PatternRule *rule_of(const Mask *mask) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!strcmp(rules[i].name, mask->name)) return &rules[i];
  return NULL;
}

Val pattern_values(Eval *e, const Mask *mask, const BlockGrid *grid) {
  const PatternRule *rule = rule_of(mask);
  Grid g = {.e = e, .of = grid};
  if (!rule) bug("a block pattern without a rule");
  g.rows = ceil((double)eval_size(e, grid->q) / grid->unit);
  g.columns = ceil((double)eval_size(e, grid->k) / grid->unit);
  Val q = pattern_position(e, grid->q), k = pattern_position(e, grid->k);
  Span here = e->here;
  if (grid->word.file) e->here = grid->word; /* where passes say what is wrong with the size */
  g.r = by(&g, OP_div, q, grid->unit), g.c = by(&g, OP_div, k, grid->unit);
  e->here = here;
  return rule->values(&g, mask);
}

/* ---- blocks beyond the end ---- */

/* One more than the largest block that an operand names. */
static double names_up_to(const Val *v) {
  if (v->kind == VAL_NUMBER) return v->number;
  double end = 0;
  for (int i = 0; i < v->nitems; i++)
    end = fmax(end, v->items[i].kind == VAL_NUMBER ? v->items[i].number + 1
                                                   : v->items[i].items[1].number);
  return end;
}

/* Where the last window of a list begins; the last length repeats. */
static double last_begins(const Val *v) {
  double at = 0;
  for (int i = 0; i + 1 < v->nitems; i++) at += v->items[i].number;
  return at;
}

bool pattern_beyond(const Mask *mask, double rows, double columns, double *named, double *there) {
  bool global = !strcmp(mask->name, "global"), variable = !strcmp(mask->name, "variable");
  if (!global && !variable) return false;
  const Val *list = &mask->arg[global ? 0 : 1];
  bool by_row = global ? is_on(&mask->arg[1], true) : is_on(&mask->arg[2], false),
       by_column = !global || is_on(&mask->arg[2], true);
  *there = fmax(by_row ? rows : 0, by_column ? columns : 0);
  *named = absent(list) ? 0 : names_up_to(list);
  if (*named > *there) return true;
  if (global || absent(&mask->arg[0])) return false;
  *there = fmax(rows, columns), *named = last_begins(&mask->arg[0]) + 1;
  return *named > *there;
}

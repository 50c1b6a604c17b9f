/* Sizes of dims and numbers.

   A size comes from the file, then from the variant, then from train block, entry or command line;
   the last one wins. Sizes are computed when first asked for, so the order of declarations does not
   matter; a dim that needs itself is E0202. An open dim makes everything that depends on it open,
   which is no error until code is generated. */
#include "sema.h"
#include "ir/support/num.h"
#include <math.h>
#include <string.h>

Str number_text(Ctx *c, double v) { return arena_printf(c->arena, "%.10g", v); }

Sizes *sizes_new(World *w, const AstItem *variant) {
  Sizes *sizes = ARENA_NEW(w->ctx->arena, Sizes);
  uint32_t at = 0;
  sizes->w = w;
  for (const Decl *d; (d = world_next(w, SPACE_DIM, &at));) sizes->n++;
  sizes->dim = ARENA_ARRAY(w->ctx->arena, DimInfo, sizes->n + 1);
  at = 0;
  uint32_t i = 0;
  for (const Decl *d; (d = world_next(w, SPACE_DIM, &at)); i++)
    sizes->dim[i] = (DimInfo){.decl = d, .def = d->dim};
  sizes->declared = sizes->n, sizes->index = names_new(w->ctx->arena);
  for (uint32_t k = sizes->n; k-- > 0;) names_put(sizes->index, 0, sizes->dim[k].decl->name, k);
  for (uint32_t k = 0; variant && k < variant->dims.n; k++) {
    const AstDim *d = &variant->dims.at[k];
    DimInfo *info = d->name.text ? sizes_find(sizes, d->name.text) : NULL;
    if (info) info->def = d;
    else if (d->name.text) explain_no_dim(w, d->name.span, d->name.text);
  }
  return sizes;
}

static Str without_prime(const Sizes *sizes, Str dim) {
  size_t n = strlen(dim), k = n;
  while (k && dim[k - 1] == '\'') k--;
  return k == n ? dim : intern_n(sizes->w->ctx->names, dim, k);
}

DimInfo *sizes_find(const Sizes *sizes, Str dim) {
  dim = without_prime(sizes, dim);
  uint32_t at;
  if (names_find(sizes->index, 0, dim, &at)) return &sizes->dim[at];
  for (uint32_t i = sizes->declared; i < sizes->n; i++)
    if (sizes->dim[i].decl->name == dim) return &sizes->dim[i];
  return NULL;
}

void sizes_give(Sizes *sizes, Str dim, int64_t size, Span where) {
  DimInfo *info = sizes_find(sizes, dim);
  if (!info) return;
  info->given = true, info->given_size = size, info->given_span = where;
  for (uint32_t i = 0; i < sizes->n; i++) sizes->dim[i].state = 0;
}

/* ---- constant expressions ---- */

bool number_apply(AstOp op, double a, double b, double *out) {
  switch (op) {
  case AST_ADD: return *out = a + b, true;
  case AST_SUB: return *out = a - b, true;
  case AST_MUL: return *out = a * b, true;
  case AST_DIV: return *out = a / b, true;
  case AST_POW: return *out = pow(a, b), true;
  default: return false;
  }
}

bool number_function(Str name, int n, const double *arg, double *out) {
  static const struct {
    const char *name;
    double (*run)(double);
  } one[] = {{"sqrt", sqrt}, {"log", log}, {"exp", exp}, {"floor", floor}, {"ceil", ceil},
             {"abs", fabs},  {"sin", sin}, {"cos", cos}, {"tanh", tanh},   {"erf", erf}};
  for (size_t i = 0; n == 1 && i < sizeof one / sizeof *one; i++)
    if (!strcmp(one[i].name, name)) return *out = one[i].run(arg[0]), true;
  if (n == 1 && !strcmp(name, "rsqrt")) return *out = 1 / sqrt(arg[0]), true;
  if (n == 1 && !strcmp(name, "sigmoid")) return *out = 1 / (1 + exp(-arg[0])), true;
  if (n == 1 && !strcmp(name, "sign")) return *out = (arg[0] > 0) - (arg[0] < 0), true;
  if (n == 1 && !strcmp(name, "float")) return *out = arg[0], true;
  if (n < 1 || (strcmp(name, "min") && strcmp(name, "max"))) return false;
  *out = arg[0];
  for (int i = 1; i < n; i++)
    if (isnan(arg[i]) || (!strcmp(name, "min") ? arg[i] < *out : arg[i] > *out)) *out = arg[i];
  return true;
}

static NumState number_name(Sizes *sizes, const AstExpr *expr, double *out) {
  Str n = expr->name.text;
  if (!strcmp(n, "pi")) return *out = 3.14159265358979323846, NUM_KNOWN;
  if (!strcmp(n, "inf")) return *out = INFINITY, NUM_KNOWN;
  const Decl *decl = world_find(sizes->w, SPACE_CONST, n, false);
  if (decl) return number_eval(sizes, decl->item->value, out);
  if (!sizes_find(sizes, n)) {
    const char *near = world_nearest(sizes->w, SPACE_DIM, n);
    if (world_lost(sizes->w, SPACE_DIM)) return NUM_BAD;
    if (!near) near = world_nearest(sizes->w, SPACE_CONST, n);
    Report *r =
        world_error(sizes->w, "E0201", expr->span, "no dimension or constant named `%s`", n);
    diag_near(r, "one", near);
    return NUM_BAD;
  }
  int64_t size = size_of(sizes, n);
  *out = (double)size;
  return size == SIZE_BAD ? NUM_BAD : size == SIZE_OPEN ? NUM_OPEN : NUM_KNOWN;
}

static NumState not_finite(Sizes *sizes, const AstExpr *expr, double v) {
  Report *r = world_error(sizes->w, "E0404", expr->span, "`%s` is not finite",
                          span_text(sizes->w->ctx, expr->span));
  diag_label(r, "%s", isnan(v) ? "not a number" : number_text(sizes->w->ctx, v));
  return NUM_BAD;
}

static NumState number_call(Sizes *sizes, const AstExpr *expr, double *out) {
  double arg[ARGS_MAX];
  NumState worst = NUM_KNOWN;
  int n = (int)expr->args.n;
  if (n > ARGS_MAX) n = 0;
  for (int i = 0; i < n; i++) {
    NumState state = number_eval(sizes, expr->args.at[i].value, &arg[i]);
    if (state > worst) worst = state;
  }
  if (worst != NUM_KNOWN) return worst;
  if (!expr->axes && number_function(expr->name.text, n, arg, out)) {
    bool finite = true;
    for (int i = 0; i < n; i++) finite &= isfinite(arg[i]);
    return finite && !isfinite(*out) ? not_finite(sizes, expr, *out) : NUM_KNOWN;
  }
  world_error(sizes->w, "E0201", expr->name.span,
              "no function of numbers named `%s` with %d operands", expr->name.text, n);
  return NUM_BAD;
}

static NumState number_binary(Sizes *sizes, const AstExpr *expr, double *out) {
  double a, b;
  NumState x = number_eval(sizes, expr->left, &a), y = number_eval(sizes, expr->right, &b);
  if (x == NUM_BAD || y == NUM_BAD) return NUM_BAD;
  if (x == NUM_OPEN || y == NUM_OPEN) return NUM_OPEN;
  bool is_number = number_apply(expr->op, a, b, out);
  if (is_number && isfinite(a) && isfinite(b) && !isfinite(*out))
    return not_finite(sizes, expr, *out);
  if (is_number) return NUM_KNOWN;
  world_error(sizes->w, "E0402", expr->op_span, "`%s` gives no number", ast_op_name(expr->op));
  return NUM_BAD;
}

/* A constant may use constants: the depth ends circles, which E0202 then names. */
static NumState number_walk(Sizes *sizes, const AstExpr *expr, double *out) {
  switch (expr->kind) {
  case EXPR_NUMBER: return *out = expr->number.value, expr->number.bad ? NUM_BAD : NUM_KNOWN;
  case EXPR_NAME: return number_name(sizes, expr, out);
  case EXPR_CALL: return number_call(sizes, expr, out);
  case EXPR_BINARY: return number_binary(sizes, expr, out);
  case EXPR_UNARY: {
    NumState state = number_eval(sizes, expr->right, out);
    *out = -*out;
    return state;
  }
  default: world_error(sizes->w, "E0402", expr->span, "a number is required"); return NUM_BAD;
  }
}

/* Said once per run: on the way back every number of the circle is bad. */
static NumState too_deep(Sizes *sizes, const AstExpr *expr) {
  if (sizes->w->said_deep) return sizes->w->errors++, NUM_BAD;
  sizes->w->said_deep = true;
  Report *r = world_error(sizes->w, "E0202", expr->span, "this number is defined by itself");
  diag_label(r, "or nested more than 200 deep");
  return NUM_BAD;
}

NumState number_eval(Sizes *sizes, const AstExpr *expr, double *out) {
  *out = 0;
  if (!expr) return NUM_BAD;
  if (sizes->depth > 200) return too_deep(sizes, expr);
  sizes->depth++;
  NumState state = number_walk(sizes, expr, out);
  sizes->depth--;
  return state;
}

/* ---- E0305 ---- */

/* The expression with numbers for names: `768 / 10`. */
static Str numbers_text(Sizes *sizes, const AstExpr *expr) {
  double v;
  if (expr->kind == EXPR_BINARY)
    return arena_printf(sizes->w->ctx->arena, "%s %s %s", numbers_text(sizes, expr->left),
                        ast_op_name(expr->op), numbers_text(sizes, expr->right));
  return number_eval(sizes, expr, &v) == NUM_KNOWN ? number_text(sizes->w->ctx, v) : "?";
}

static void help_divisors(Sizes *sizes, Report *r, const AstExpr *expr) {
  double a, b;
  if (expr->kind != EXPR_BINARY || expr->op != AST_DIV) return;
  if (number_eval(sizes, expr->left, &a) != NUM_KNOWN ||
      number_eval(sizes, expr->right, &b) != NUM_KNOWN)
    return;
  if (a != floor(a) || b != floor(b) || a < 1 || b < 1 || a > 1e12) return;
  if (b > a) b = a;
  int64_t n = (int64_t)a, below = divisor_to(n, (int64_t)b), above = divisor_from(n, (int64_t)b);
  if (above == below)
    diag_help(r, "divisors of %lld near %lld: %lld", (long long)n, (long long)b, (long long)below);
  else
    diag_help(r, "divisors of %lld near %lld: %lld, %lld", (long long)n, (long long)b,
              (long long)below, (long long)above);
}

/* The declaration on which the failed division depends most directly: that of the last name in it.
 */
static const AstExpr *last_name(const AstExpr *e) {
  if (e->kind == EXPR_NAME) return e;
  if (e->kind == EXPR_UNARY) return last_name(e->right);
  if (e->kind != EXPR_BINARY) return NULL;
  const AstExpr *r = last_name(e->right);
  return r ? r : last_name(e->left);
}

static void report_fraction(Sizes *sizes, const DimInfo *info, double v) {
  Ctx *c = sizes->w->ctx;
  const AstExpr *expr = info->def->value;
  Report *r = world_error(sizes->w, "E0305", expr->span, "`%s` is not a whole number (%s = %s)",
                          span_text(c, expr->span), numbers_text(sizes, expr), number_text(c, v));
  diag_label(r, "every dimension is an integer");
  const AstExpr *name = last_name(expr);
  DimInfo *by = name ? sizes_find(sizes, name->name.text) : NULL;
  if (by && by->given && by->given_span.file) diag_also(r, by->given_span, "set here");
  else if (by) diag_also(r, by->def->span, "set here");
  help_divisors(sizes, r, expr);
}

/* ---- sizes ---- */

void sizes_mend(const Sizes *sizes, Report *r, Str dim, int64_t size) {
  const DimInfo *info = sizes_find(sizes, dim);
  for (uint32_t steps = 0; info && !info->given && info->def->like.text && steps < sizes->n;
       steps++)
    info = sizes_find(sizes, info->def->like.text);
  if (!info) return;
  const AstExpr *value = info->def->value;
  Str name = info->decl->name;
  if (info->given && info->given_span.file) {
    diag_also(r, info->given_span, "the size of `%s`", name);
    diag_help(r, "write `%s = %lld`", name, (long long)size);
    diag_edit(r, info->given_span, "%s = %lld", name, (long long)size);
  } else if (info->given) diag_help(r, "write `-D %s=%lld`", name, (long long)size);
  else if (value) {
    diag_also(r, value->span, "the size of `%s`", name);
    if (value->kind != EXPR_NUMBER) return;
    diag_help(r, "write `%s = %lld`", name, (long long)size);
    diag_edit(r, value->span, "%lld", (long long)size);
  }
}

static int64_t whole(Sizes *sizes, const DimInfo *info, double v) {
  const AstExpr *expr = info->def->value;
  if (fabs(v) > 9e15) {
    Report *r = world_error(sizes->w, "E0305", expr->span, "dimension `%s` = %s is too large",
                            info->decl->name, number_text(sizes->w->ctx, v));
    diag_label(r, "sizes end at 9e15");
    return SIZE_BAD;
  }
  if (v != floor(v)) {
    report_fraction(sizes, info, v);
    return SIZE_BAD;
  }
  if (v < 1) {
    Report *r = world_error(sizes->w, "E0305", expr->span, "dimension `%s` = %s is less than 1",
                            info->decl->name, number_text(sizes->w->ctx, v));
    diag_label(r, "every dimension is a positive integer");
    return SIZE_BAD;
  }
  return (int64_t)v;
}

static const DimInfo *root_of(const Sizes *sizes, Str dim) {
  const DimInfo *info = sizes_find(sizes, dim);
  for (uint32_t steps = 0; info && info->def->like.text && steps < sizes->n; steps++) {
    const DimInfo *next = sizes_find(sizes, info->def->like.text);
    if (!next) break;
    info = next;
  }
  return info;
}

bool sizes_alike(const Sizes *sizes, Str a, Str b) {
  const DimInfo *info = root_of(sizes, a);
  return a == b || (info && info == root_of(sizes, b));
}

static int64_t size_like(Sizes *sizes, const DimInfo *info) {
  if (sizes_find(sizes, info->def->like.text)) return size_of(sizes, info->def->like.text);
  explain_no_dim(sizes->w, info->def->like.span, info->def->like.text);
  return SIZE_BAD;
}

static int64_t size_new(Sizes *sizes, DimInfo *info) {
  double v;
  if (info->given) return info->given_size;
  if (info->def->like.text) return size_like(sizes, info);
  if (!info->def->value) return SIZE_OPEN;
  NumState state = number_eval(sizes, info->def->value, &v);
  return state == NUM_BAD ? SIZE_BAD : state == NUM_OPEN ? SIZE_OPEN : whole(sizes, info, v);
}

/* Passes, kernels and checkpoints count along one dim in 31 bits. */
static int64_t within_range(Sizes *sizes, const DimInfo *info, int64_t size) {
  if (size <= INT32_MAX) return size;
  Span at = info->given        ? info->given_span
            : info->def->value ? info->def->value->span
                               : info->def->span;
  Report *r = world_error(sizes->w, "E0305", at, "dimension `%s` = %lld is too large",
                          info->decl->name, (long long)size);
  diag_label(r, "at most %d", INT32_MAX);
  return SIZE_BAD;
}

static int64_t padded(Sizes *sizes, const DimInfo *info) {
  const AstNumber *pad = info->def->pad ? info->def->pad : info->decl->dim->pad;
  if (info->size <= 0) return info->size;
  if (!pad && info->def->like.text && !info->given)
    return stored_size_of(sizes, info->def->like.text);
  if (!pad) return info->size;
  if (!pad->integer || pad->integral < 1 || pad->integral > 1 << 30) {
    world_error(sizes->w, "E0102", pad->span, "`pad` takes a positive whole number");
    return info->size;
  }
  return within_range(sizes, info, round_up(info->size, pad->integral));
}

static void compute(Sizes *sizes, DimInfo *info) {
  if (info->state == 2) return;
  if (info->state == 1) {
    world_error(sizes->w, "E0202", info->def->span, "dimension `%s` is defined by itself",
                info->decl->name);
    info->size = info->stored = SIZE_BAD, info->state = 2;
    return;
  }
  info->state = 1;
  int64_t size = size_new(sizes, info);
  if (info->state == 2) return; /* a circle */
  info->size = within_range(sizes, info, size), info->state = 2;
  info->stored = padded(sizes, info);
}

int64_t size_of(Sizes *sizes, Str dim) {
  DimInfo *info = sizes_find(sizes, dim);
  if (!info) return SIZE_BAD;
  compute(sizes, info);
  return info->size;
}

int64_t stored_size_of(Sizes *sizes, Str dim) {
  DimInfo *info = sizes_find(sizes, dim);
  if (!info) return SIZE_BAD;
  compute(sizes, info);
  return info->stored;
}

void sizes_compute(Sizes *sizes) {
  for (uint32_t i = 0; i < sizes->n && !diag_full(sizes->w->ctx->diag); i++)
    compute(sizes, &sizes->dim[i]);
}

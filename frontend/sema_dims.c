/* Sizes of dims and numbers.

   A size comes from the file, then from the variant, then from train block, entry or command line;
   the last one wins. Sizes are computed when first asked for, so the order of declarations does not
   matter; a dim that needs itself is E0202. An open dim makes everything that depends on it open,
   which is no error until code is generated. */
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

Str number_text(Ctx *c, double v) { return arena_printf(c->arena, "%.10g", v); }

Sizes *sizes_new(World *w, const AstItem *variant) {
  Sizes *s = ARENA_NEW(w->ctx->arena, Sizes);
  uint32_t at = 0;
  s->w = w;
  for (const Decl *d; (d = world_next(w, SPACE_DIM, &at));) s->n++;
  s->dim = ARENA_ARRAY(w->ctx->arena, DimInfo, s->n + 1);
  at = 0;
  uint32_t i = 0;
  for (const Decl *d; (d = world_next(w, SPACE_DIM, &at)); i++)
    s->dim[i] = (DimInfo){.decl = d, .def = d->dim};
  s->declared = s->n, s->index = names_new(w->ctx->arena);
  for (uint32_t k = s->n; k-- > 0;) names_put(s->index, 0, s->dim[k].decl->name, k);
  for (uint32_t k = 0; variant && k < variant->dims.n; k++) {
    const AstDim *d = &variant->dims.at[k];
    DimInfo *info = d->name.text ? sizes_find(s, d->name.text) : NULL;
    if (info) info->def = d;
    else if (d->name.text) explain_no_dim(w, d->name.span, d->name.text);
  }
  return s;
}

static Str without_prime(const Sizes *s, Str dim) {
  size_t n = strlen(dim), k = n;
  while (k && dim[k - 1] == '\'') k--;
  return k == n ? dim : intern_n(s->w->ctx->names, dim, k);
}

DimInfo *sizes_find(const Sizes *s, Str dim) {
  dim = without_prime(s, dim);
  uint32_t at;
  if (names_find(s->index, 0, dim, &at)) return &s->dim[at];
  for (uint32_t i = s->declared; i < s->n; i++)
    if (s->dim[i].decl->name == dim) return &s->dim[i];
  return NULL;
}

void sizes_give(Sizes *s, Str dim, int64_t size, Span where) {
  DimInfo *d = sizes_find(s, dim);
  if (!d) return;
  d->given = true, d->given_size = size, d->given_span = where;
  for (uint32_t i = 0; i < s->n; i++) s->dim[i].state = 0;
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

static NumState number_name(Sizes *s, const AstExpr *e, double *out) {
  Str n = e->name.text;
  if (!strcmp(n, "pi")) return *out = 3.14159265358979323846, NUM_KNOWN;
  if (!strcmp(n, "inf")) return *out = INFINITY, NUM_KNOWN;
  const Decl *d = world_find(s->w, SPACE_CONST, n, false);
  if (d) return number_eval(s, d->item->value, out);
  if (!sizes_find(s, n)) {
    const char *near = world_nearest(s->w, SPACE_DIM, n);
    if (world_lost(s->w, SPACE_DIM)) return NUM_BAD;
    if (!near) near = world_nearest(s->w, SPACE_CONST, n);
    Report *r = world_error(s->w, "E0201", e->span, "no dimension or constant named `%s`", n);
    diag_near(r, "one", near);
    return NUM_BAD;
  }
  int64_t size = size_of(s, n);
  *out = (double)size;
  return size == SIZE_BAD ? NUM_BAD : size == SIZE_OPEN ? NUM_OPEN : NUM_KNOWN;
}

static NumState number_call(Sizes *s, const AstExpr *e, double *out) {
  double arg[ARGS_MAX];
  NumState worst = NUM_KNOWN;
  int n = (int)e->args.n;
  if (n > ARGS_MAX) n = 0;
  for (int i = 0; i < n; i++) {
    NumState a = number_eval(s, e->args.at[i].value, &arg[i]);
    if (a > worst) worst = a;
  }
  if (worst != NUM_KNOWN) return worst;
  if (!e->axes && number_function(e->name.text, n, arg, out)) return NUM_KNOWN;
  world_error(s->w, "E0201", e->name.span, "no function of numbers named `%s` with %d operands",
              e->name.text, n);
  return NUM_BAD;
}

static NumState number_binary(Sizes *s, const AstExpr *e, double *out) {
  double a, b;
  NumState x = number_eval(s, e->left, &a), y = number_eval(s, e->right, &b);
  if (x == NUM_BAD || y == NUM_BAD) return NUM_BAD;
  if (x == NUM_OPEN || y == NUM_OPEN) return NUM_OPEN;
  bool is_number = number_apply(e->op, a, b, out);
  if (is_number && isfinite(a) && isfinite(b) && !isfinite(*out)) {
    Report *r =
        world_error(s->w, "E0404", e->span, "`%s` is not finite", span_text(s->w->ctx, e->span));
    diag_label(r, "%s", number_text(s->w->ctx, *out));
    return NUM_BAD;
  }
  if (is_number) return NUM_KNOWN;
  world_error(s->w, "E0402", e->op_span, "`%s` gives no number", ast_op_name(e->op));
  return NUM_BAD;
}

/* A constant may use constants: the depth ends circles, which E0202 then names. */
static NumState number_walk(Sizes *s, const AstExpr *e, double *out) {
  switch (e->kind) {
  case EXPR_NUMBER: return *out = e->number.value, e->number.bad ? NUM_BAD : NUM_KNOWN;
  case EXPR_NAME: return number_name(s, e, out);
  case EXPR_CALL: return number_call(s, e, out);
  case EXPR_BINARY: return number_binary(s, e, out);
  case EXPR_UNARY: {
    NumState a = number_eval(s, e->right, out);
    *out = -*out;
    return a;
  }
  default: world_error(s->w, "E0402", e->span, "a number is wanted here"); return NUM_BAD;
  }
}

/* Said once per run: on the way back every number of the circle is bad. */
static NumState too_deep(Sizes *s, const AstExpr *e) {
  if (s->w->said_deep) return s->w->errors++, NUM_BAD;
  s->w->said_deep = true;
  Report *r = world_error(s->w, "E0202", e->span, "this number is defined by itself");
  diag_label(r, "or nested more than 200 deep");
  return NUM_BAD;
}

NumState number_eval(Sizes *s, const AstExpr *e, double *out) {
  *out = 0;
  if (!e) return NUM_BAD;
  if (s->depth > 200) return too_deep(s, e);
  s->depth++;
  NumState r = number_walk(s, e, out);
  s->depth--;
  return r;
}

/* ---- E0305 ---- */

/* The expression with numbers for names: `768 / 10`. */
static Str numbers_text(Sizes *s, const AstExpr *e) {
  double v;
  if (e->kind == EXPR_BINARY)
    return arena_printf(s->w->ctx->arena, "%s %s %s", numbers_text(s, e->left), ast_op_name(e->op),
                        numbers_text(s, e->right));
  return number_eval(s, e, &v) == NUM_KNOWN ? number_text(s->w->ctx, v) : "?";
}

static void help_divisors(Sizes *s, Report *r, const AstExpr *e) {
  double a, b;
  if (e->kind != EXPR_BINARY || e->op != AST_DIV) return;
  if (number_eval(s, e->left, &a) != NUM_KNOWN || number_eval(s, e->right, &b) != NUM_KNOWN) return;
  if (a != floor(a) || b != floor(b) || a < 1 || b < 1 || a > 1e12) return;
  int64_t n = (int64_t)a, below = (int64_t)b, above = (int64_t)b;
  if (below > n) below = n;
  while (below > 1 && n % below) below--;
  while (above < n && n % above) above++;
  if (above > n || n % above)
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

static void report_fraction(Sizes *s, const DimInfo *d, double v) {
  Ctx *c = s->w->ctx;
  const AstExpr *e = d->def->value;
  Report *r = world_error(s->w, "E0305", e->span, "`%s` is not a whole number (%s = %s)",
                          span_text(c, e->span), numbers_text(s, e), number_text(c, v));
  diag_label(r, "every dimension is an integer");
  const AstExpr *name = last_name(e);
  DimInfo *by = name ? sizes_find(s, name->name.text) : NULL;
  if (by && by->given && by->given_span.file) diag_also(r, by->given_span, "set here");
  else if (by) diag_also(r, by->def->span, "set here");
  help_divisors(s, r, e);
}

/* ---- sizes ---- */

static int64_t whole(Sizes *s, const DimInfo *d, double v) {
  const AstExpr *e = d->def->value;
  if (fabs(v) > 9e15) {
    Report *r = world_error(s->w, "E0305", e->span, "dimension `%s` = %s is too large",
                            d->decl->name, number_text(s->w->ctx, v));
    diag_label(r, "sizes end at 9e15");
    return SIZE_BAD;
  }
  if (v != floor(v)) {
    report_fraction(s, d, v);
    return SIZE_BAD;
  }
  if (v < 1) {
    Report *r = world_error(s->w, "E0305", e->span, "dimension `%s` = %s is less than 1",
                            d->decl->name, number_text(s->w->ctx, v));
    diag_label(r, "every dimension is a positive integer");
    return SIZE_BAD;
  }
  return (int64_t)v;
}

static const DimInfo *root_of(const Sizes *s, Str dim) {
  const DimInfo *d = sizes_find(s, dim);
  for (uint32_t steps = 0; d && d->def->like.text && steps < s->n; steps++) {
    const DimInfo *next = sizes_find(s, d->def->like.text);
    if (!next) break;
    d = next;
  }
  return d;
}

bool sizes_alike(const Sizes *s, Str a, Str b) {
  const DimInfo *x = root_of(s, a);
  return a == b || (x && x == root_of(s, b));
}

static int64_t size_like(Sizes *s, const DimInfo *d) {
  if (sizes_find(s, d->def->like.text)) return size_of(s, d->def->like.text);
  explain_no_dim(s->w, d->def->like.span, d->def->like.text);
  return SIZE_BAD;
}

static int64_t size_new(Sizes *s, DimInfo *d) {
  double v;
  if (d->given) return d->given_size;
  if (d->def->like.text) return size_like(s, d);
  if (!d->def->value) return SIZE_OPEN;
  NumState n = number_eval(s, d->def->value, &v);
  return n == NUM_BAD ? SIZE_BAD : n == NUM_OPEN ? SIZE_OPEN : whole(s, d, v);
}

static int64_t padded(Sizes *s, const DimInfo *d) {
  const AstNumber *pad = d->def->pad ? d->def->pad : d->decl->dim->pad;
  if (d->size <= 0) return d->size;
  if (!pad && d->def->like.text && !d->given) return stored_size_of(s, d->def->like.text);
  if (!pad) return d->size;
  if (!pad->integer || pad->integral < 1 || pad->integral > 1 << 30) {
    world_error(s->w, "E0102", pad->span, "`pad` wants a positive whole number");
    return d->size;
  }
  return (d->size + pad->integral - 1) / pad->integral * pad->integral;
}

/* Passes, kernels and checkpoints count along one dim in 31 bits. */
static int64_t within_range(Sizes *s, const DimInfo *d, int64_t size) {
  if (size <= INT32_MAX) return size;
  Span at = d->given ? d->given_span : d->def->value ? d->def->value->span : d->def->span;
  Report *r = world_error(s->w, "E0305", at, "dimension `%s` = %lld is too large", d->decl->name,
                          (long long)size);
  diag_label(r, "at most %d", INT32_MAX);
  return SIZE_BAD;
}

static void compute(Sizes *s, DimInfo *d) {
  if (d->state == 2) return;
  if (d->state == 1) {
    world_error(s->w, "E0202", d->def->span, "dimension `%s` is defined by itself", d->decl->name);
    d->size = d->stored = SIZE_BAD, d->state = 2;
    return;
  }
  d->state = 1;
  int64_t size = size_new(s, d);
  if (d->state == 2) return; /* a circle */
  d->size = within_range(s, d, size), d->state = 2;
  d->stored = padded(s, d);
}

int64_t size_of(Sizes *s, Str dim) {
  DimInfo *d = sizes_find(s, dim);
  if (!d) return SIZE_BAD;
  compute(s, d);
  return d->size;
}

int64_t stored_size_of(Sizes *s, Str dim) {
  DimInfo *d = sizes_find(s, dim);
  if (!d) return SIZE_BAD;
  compute(s, d);
  return d->stored;
}

void sizes_compute(Sizes *s) {
  for (uint32_t i = 0; i < s->n && !diag_full(s->w->ctx->diag); i++) compute(s, &s->dim[i]);
}

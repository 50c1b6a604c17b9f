/* Shared by the tests of passes; see common.h. Made-up numbers depend on names and positions alone.
 */
#include "common.h"
#include "ir/made.h"
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Module *module_from(Ctx *c, const char *text) {
  Module *m = ir_parse(c, "test.ir", text, strlen(text));
  if (!m || !ir_verify(m)) fail_msg("%s\n%s", text, reported(c));
  return m;
}

Module *module_again(Ctx *c, Module *m) {
  size_t n;
  return module_from(c, ir_print(m, &n));
}

static char *file_text(const char *path) {
  enum { MOST = 1 << 16 };
  FILE *f = fopen(path, "r");
  char *text = malloc(MOST);
  if (!f || !text) fail_msg("no file %s", path);
  text[fread(text, 1, MOST - 1, f)] = 0;
  fclose(f);
  return text;
}

void each_golden(const char *pattern, GoldenRun *run) {
  char path[512];
  glob_t files;
  snprintf(path, sizeof path, "%s/%s.ir", GOLDEN_FOLDER, pattern);
  if (glob(path, 0, NULL, &files)) fail_msg("no files %s", path);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    char *text = file_text(files.gl_pathv[i]), *commands = strstr(text, "\n# run: ");
    if (!commands) fail_msg("%s has no command", files.gl_pathv[i]);
    *commands++ = 0;
    run(files.gl_pathv[i], text, commands);
    free(text);
  }
  globfree(&files);
}

void run_until(Module *m, const char *pass) {
  PipelineOptions o = {.until = pass, .verify = true};
  if (pipeline_run(m, &o)) return;
  size_t n;
  print_message("%s", ir_print(m, &n));
  fail_msg("pass %s: %s", pass, reported(m->ctx));
}

void expect_error(Module *m, const char *pass, const char *code, const char *words) {
  PipelineOptions o = {.until = pass, .verify = true};
  assert_false(pipeline_run(m, &o));
  const char *text = reported(m->ctx);
  if (!strstr(text, code) || !strstr(text, words))
    fail_msg("%s %s is missing in\n%s", code, words, text);
}

static uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

double filled(const Module *m, const Global *g, int64_t element) {
  uint32_t h = 17;
  for (const char *s = g->name; *s; s++) h = scrambled(h * 31 + (unsigned char)*s);
  h = scrambled(h + (uint32_t)element);
  if (elem_class(g->type.elem) == CLASS_FLOAT) return ((double)h + 0.5) / 2147483648.0 - 1;
  if (g->type.elem == ELEM_bool) return h & 1;
  (void)m;
  return h % 3;
}

static void fill(Interp *in, const Module *m, const Global *g) {
  int64_t n = type_count(&g->type);
  double *data = ARENA_ARRAY(m->arena, double, n);
  for (int64_t i = 0; i < n; i++) data[i] = filled(m, g, i);
  interp_set(in, g->name, data);
}

Interp *interp_filled(Module *m, bool exact) {
  Interp *in = interp_new(m, m->arena);
  interp_set_round(in, !exact);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind != GLOBAL_OUTPUT && !made_rest(m->globals.at[i]->name, MADE_SETTING))
      fill(in, m, m->globals.at[i]);
  return in;
}

void must_run(Interp *in, const char *entry) {
  if (!interp_run(in, entry)) fail_msg("%s: %s", entry, interp_error(in));
}

double output_of(Interp *in, const char *name) { return interp_get(in, name)->at[0]; }

int64_t same_element(const Type *a, const Type *b, int64_t i) {
  int64_t index[MAX_RANK], at = 0;
  for (int k = a->rank; k-- > 0; i /= a->axis[k].size) index[k] = i % a->axis[k].size;
  for (int k = 0; k < b->rank; k++) at = at * b->axis[k].size + index[type_find(a, b->axis[k].dim)];
  return at;
}

void expect_same(Interp *a, Interp *b, const char *name, double tolerance) {
  const Tensor *x = interp_get(a, name), *y = interp_get(b, name);
  assert_non_null(x);
  assert_non_null(y);
  assert_true(type_same_dims(&x->type, &y->type));
  for (int64_t i = 0; i < type_count(&x->type); i++) {
    double p = x->at[i], q = y->at[same_element(&x->type, &y->type, i)];
    if (p != q && !(fabs(p - q) <= tolerance * (1 + fabs(p))) && !(isnan(p) && isnan(q)))
      fail_msg("%s, element %d: %.12g and %.12g", name, (int)i, p, q);
  }
}

static ValueId weighted_sum(Module *m, Fn *f, ValueId y, uint32_t number) {
  Type t = *value_type(f, y);
  Str name = intern_printf(m->ctx->names, "weights%u", number);
  Global *g = module_add_global(m, GLOBAL_INPUT, name, t, (Loc){0});
  ValueId v = ir_binary(m, f, OP_mul, y, ir_load(m, f, g, (Loc){0}), (Loc){0});
  Str dims[MAX_RANK];
  for (int i = 0; i < t.rank; i++) dims[i] = t.axis[i].dim;
  return ir_reduce(m, f, OP_sum, v, t.rank, dims, (Loc){0});
}

void add_loss(Module *m) {
  Fn *f = module_fn(m, intern(m->ctx->names, "step"));
  ValueId sum = NO_VALUE;
  uint32_t n = f->ops.n;
  for (uint32_t i = 0; i < n; i++) {
    if (f->ops.at[i].code != OP_store) continue;
    ValueId s = weighted_sum(m, f, f->ops.at[i].in[0], i);
    sum = sum == NO_VALUE ? s : ir_binary(m, f, OP_add, sum, s, (Loc){0});
  }
  Type t = *value_type(f, sum);
  Global *loss = module_add_global(m, GLOBAL_OUTPUT, intern(m->ctx->names, "loss"), t, (Loc){0});
  ir_store(m, f, loss, sum, (Loc){0});
}

static double loss_with(Interp *in, const Global *g, double *data, int64_t i, double x) {
  double old = data[i];
  data[i] = x;
  interp_set(in, g->name, data);
  must_run(in, "step");
  data[i] = old;
  interp_set(in, g->name, data);
  return output_of(in, "loss");
}

/* Gradients of `with` (after grad or later) against differences of `m` (before). */
static void against_differences(Module *m, Module *with, double tolerance) {
  Interp *a = interp_filled(m, true), *b = interp_filled(with, true);
  must_run(b, "step");
  for (uint32_t n = 0; n < m->globals.n; n++) {
    const Global *g = m->globals.at[n];
    const char *name = arena_printf(m->arena, "grad.of.%s", g->name);
    if (g->kind != GLOBAL_PARAM || !interp_get(b, name)) continue;
    int64_t count = type_count(&g->type);
    double *data = ARENA_ARRAY(m->arena, double, count);
    for (int64_t i = 0; i < count; i++) data[i] = filled(m, g, i);
    for (int64_t i = 0; i < count; i++) {
      double h = 1e-5, up = loss_with(a, g, data, i, data[i] + h),
             down = loss_with(a, g, data, i, data[i] - h);
      double want = (up - down) / (2 * h), have = interp_get(b, name)->at[i];
      size_t length;
      if (!(fabs(want - have) <= tolerance * (1 + fabs(want))))
        fail_msg("%s, element %d: differences give %.9g, gradient is %.9g\n%s", name, (int)i, want,
                 have, ir_print(with, &length));
    }
  }
}

void check_gradients(const char *text, double tolerance) {
  Ctx *c = ctx_new();
  Module *m = module_from(c, text);
  if (!module_global(m, intern(c->names, "loss"))) add_loss(m);
  Module *derived = module_again(c, m), *clean = module_again(c, m);
  run_until(derived, "grad");
  against_differences(m, derived, tolerance);
  run_until(clean, "clean");
  against_differences(m, clean, tolerance);
  ctx_free(c);
}

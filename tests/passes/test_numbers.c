/* Golden files keep their numbers: each module (golden.py) is run by the interpreter before and
   after the passes that its commands name, and what its entries store must be the same. In exact
   numbers: types of 16 bits round nothing in this test, and run.int8 covers rounding to 8 bits.
   Modules with the sizes of one rank run on all ranks of the mesh; after `memory`, in poisoned
   bytes. */
#include "ir/codes.h"
#include "ir/made.h"
#include "common.h"
#include "codegen/codegen.h"
#include "frontend/settings/settings.h"
#include "ir/cost/count.h"
#include "ir/interp/interp_ranks.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include <math.h>
#include <string.h>

enum { MOST_PASSES = 16 };
static const double most_flop = 1e7; /* larger modules show tiles only */
static const char run_line[] = "# run: opt -p ";
static int files, compared; /* in which numbers were compared */

typedef struct Machine { /* one of them */
  Module *m;
  Interp *one;
  Ranks *many;
} Machine;

/* KEY=VALUE,.. up to the brace */
static const char *set_options(Module *m, const char *at) {
  while (*at != '}') {
    size_t key = strcspn(at, "="), value = strcspn(at + key + 1, ",}");
    module_set(m, arena_strndup(m->arena, at, key), "%.*s", (int)value, at + key + 1);
    at += key + 1 + value, at += *at == ',';
  }
  return at + 1;
}

/* The passes of a command, as `shardc opt` runs them; false: refused, as the golden file shows. */
static bool run_command(Module *m, const char *at) {
  const Pass *list[MOST_PASSES];
  uint32_t n = 0;
  for (; *at != ' '; at += *at == ',') {
    size_t length = strcspn(at, " ,{");
    assert_true(n < MOST_PASSES);
    list[n++] = pass_find(arena_strndup(m->arena, at, length));
    at += length;
    if (*at == '{') at = set_options(m, at + 1);
  }
  return settings_check_dump(m) && ir_verify(m) &&
         passes_run(m, n, list, &(PipelineOptions){.verify = true});
}

static bool is_local(const Module *m) {
  return m->mesh.n && pass_find(m->after) >= pass_find("localize");
}

static bool has_members(const Module *m) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within) return true;
  return false;
}

static const Global *global_named(const Module *m, const char *name) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (!strcmp(m->globals.at[i]->name, name)) return m->globals.at[i];
  return NULL;
}

/* For layers of a stack: the number of elements before them in the whole stack. */
static int64_t elements_before(const Module *m, const Global *part) {
  return layer_dim(m, part)->first * (type_count(&part->type) / part->type.axis[0].size);
}

/* The same numbers as the whole stack's. */
static double *content_of_part(const Module *before, const Module *m, const Global *part) {
  const Global *was = global_named(before, layer_whole(m, part->name));
  int64_t n = type_count(&part->type), first = elements_before(m, part);
  double *data = ARENA_ARRAY(m->arena, double, n);
  for (int64_t i = 0; i < n; i++) data[i] = filled(before, was, first + i);
  return data;
}

/* The contents of the whole of g in m, which passes made from `before`: the same numbers, and zeros
   in padding. */
static double *content(const Module *before, const Module *m, const Global *g) {
  const Global *was = global_named(before, g->name);
  if (!was && layer_dim(m, g)) return content_of_part(before, m, g);
  int64_t n = type_count(&g->type) * (is_local(m) ? mesh_ranks(m) : 1);
  double *data = ARENA_ARRAY(m->arena, double, n);
  bool padded = was && !is_local(m);
  for (int64_t i = 0; i < n; i++) data[i] = padded ? 0 : filled(m, g, i);
  for (int64_t i = 0; padded && i < type_count(&was->type); i++)
    data[same_element(&was->type, &g->type, i)] = filled(before, was, i);
  return data;
}

static void run_entry(Machine *k, const char *path, const char *entry) {
  bool placed = !strcmp(k->m->after, "memory");
  bool good = k->many  ? (placed ? ranks_run_placed : ranks_run)(k->many, entry)
              : placed ? interp_run_placed(k->one, entry)
                       : interp_run(k->one, entry);
  if (!good) fail_msg("%s: %s", path, k->many ? ranks_error(k->many) : interp_error(k->one));
}

static bool has_entry(const Module *m, const char *name) {
  const Fn *f = module_fn(m, intern(m->ctx->names, name));
  return f && f->kind == FN_ENTRY;
}

/* `flat`: all elements of parameters and states are one number, since ranks cannot set members of
   flat storage. Copies of parameters that a pass adds are computed from them. */
static Machine machine_of(const Module *before, Module *m, bool flat, const char *path) {
  Machine k = {m, NULL, NULL};
  if (is_local(m)) k.many = ranks_new(m, m->arena), ranks_set_round(k.many, false);
  else k.one = interp_filled(m, true);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    bool constant = flat && (g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE);
    if (g->kind == GLOBAL_OUTPUT || made_is_coordinate(g)) continue;
    if (k.one && constant) interp_set_all(k.one, g->name, 0.5);
    else if (k.one) interp_set(k.one, g->name, content(before, m, g));
    else if (constant) ranks_set_all(k.many, g->name, 0.5);
    else ranks_set(k.many, g->name, content(before, m, g));
  }
  if (has_entry(m, "refresh") && !has_entry(before, "refresh")) run_entry(&k, path, "refresh");
  return k;
}

static const Tensor *held(Machine *k, const char *path, const char *name) {
  const Tensor *t = k->many ? ranks_get(k->many, name) : interp_get(k->one, name);
  if (!t && k->many) fail_msg("%s, @%s: %s", path, name, ranks_error(k->many));
  return t;
}

static void compare(Machine *a, Machine *b, const char *path, const char *name) {
  const Tensor *x = held(a, path, name), *y = held(b, path, name);
  for (int64_t i = 0; i < type_count(&x->type); i++) {
    double p = x->at[i], q = y->at[same_element(&x->type, &y->type, i)];
    if (p != q && !(fabs(p - q) <= 1e-6 * (1 + fabs(p))) && !(isnan(p) && isnan(q)))
      fail_msg("%s, @%s, element %d: %.9g before, %.9g after", path, name, (int)i, p, q);
  }
}

/* A stack against its parts. */
static int compare_parts(Machine *a, Machine *b, const char *path, const char *name) {
  const Tensor *whole = held(a, path, name);
  int n = 0;
  for (uint32_t i = 0; i < b->m->globals.n; i++) {
    const Global *part = b->m->globals.at[i];
    if (!layer_dim(b->m, part) || strcmp(layer_whole(b->m, part->name), name)) continue;
    const double *x = whole->at + elements_before(b->m, part), *y = held(b, path, part->name)->at;
    for (int64_t k = 0; k < type_count(&part->type); k++)
      if (x[k] != y[k]) fail_msg("%s, @%s, element %d", path, part->name, (int)k);
    n++;
  }
  return n;
}

/* Globals that the entry stores before the passes and that have a name after them. */
static int compare_entry(Module *before, Module *after, const char *path, const Fn *f) {
  int n = 0;
  bool flat = has_members(after);
  Machine a = machine_of(before, before, flat, path), b = machine_of(before, after, flat, path);
  run_entry(&a, path, f->name), run_entry(&b, path, f->name);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_store) continue;
    if (global_named(after, o->global->name)) compare(&a, &b, path, o->global->name), n++;
    else n += compare_parts(&a, &b, path, o->global->name);
  }
  return n;
}

/* Does a kernel have codes of 8 bits, which round? */
static bool keeps_codes(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (kernel_has_codes(m->fns.at[i])) return true;
  return false;
}

static bool is_large(const char *module) {
  Ctx *c = ctx_new();
  bool large = module_count(module_from(c, module)).flop >= most_flop;
  ctx_free(c);
  return large;
}

static int check_command(const char *path, const char *module, const char *command) {
  Ctx *c = ctx_new();
  Module *before = module_from(c, module), *after = module_again(c, before);
  int n = 0;
  assert_true(target_complete(after));
  bool part = *module_class(before).name; /* its ranks alone give no numbers */
  bool rounds = plan_int8_gradients(before) || plan_int8_weights(before); /* see run.int8 */
  rounds |= keeps_codes(before);                                          /* see ir/test_placed */
  if (!part && !rounds && run_command(after, command))
    for (uint32_t i = 0; i < before->fns.n; i++)
      if (before->fns.at[i]->kind == FN_ENTRY)
        n += compare_entry(before, after, path, before->fns.at[i]);
  ctx_free(c);
  return n;
}

static void check_file(const char *path, const char *module, const char *commands) {
  int n = 0;
  if (is_large(module)) return;
  for (const char *at = commands; at; at = strstr(at + 1, run_line))
    n += check_command(path, module, at + strlen(run_line));
  files++, compared += n > 0;
}

static void files_keep_their_numbers(void **state) {
  (void)state;
  each_golden("*/*", check_file);
  print_message("%d of %d files\n", compared, files);
  assert_true(compared * 5 > files * 4); /* others show what is refused */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_keep_their_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

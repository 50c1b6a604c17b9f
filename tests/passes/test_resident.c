/* The values that zero leaves resident are compared with the stage's arithmetic: a group that fits
   passes; a group that holds too much, and a whole value that was never named, do not. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "passes/zero/zero.h"
#include <stdio.h>

static const char text[] =
    "shardc-ir 1\nmodel Test\nmesh data = 4\nparam @w : f32[A:100]\nparam @other : f32[A:8]\n"
    "state @w.m : f32[A:100]\nstate @other.m : f32[A:8]\n"
    "entry @step {\n  %0 = load @w : f32[A:100]\n  store @w, %0\n"
    "  %1 = load @other : f32[A:8]\n  store @other, %1\n}\n";

static Global *named(Module *m, const char *name) {
  return module_global(m, intern(m->ctx->names, name));
}

/* Stage 2 of `w`: 100 elements in one bucket of 128, 32 of them on a rank. */
typedef struct Made {
  Ctx *c;
  Zero z;
  ZeroGroup *g;
} Made;

static Made make(void) {
  Made x = {.c = ctx_new()};
  Module *m = ir_parse(x.c, "test", text, sizeof text - 1);
  if (!m) diag_print(x.c->diag, stderr, DIAG_HUMAN, false);
  assert_non_null(m);
  x.z = (Zero){.m = m, .stage = 2, .naxes = 1, .unit = 1};
  x.z.axis[0] = m->mesh.at[0].name, x.z.step = m->fns.at[0];
  ZeroGroup g = {.name = "zero.root", .ways = 4, .stage = 2, .buckets = 1, .piece = 32};
  g.gradient = 32, g.nstates = 1;
  Axis all = {"Flat", 128}, own = {"Piece", 32};
  g.param = module_add_global(m, GLOBAL_PARAM, "zero.root", type_of(ELEM_f32, 1, &all), (Loc){0});
  g.state[0] =
      module_add_global(m, GLOBAL_STATE, "zero.root.m", type_of(ELEM_f32, 1, &own), (Loc){0});
  ZeroMember w = {.param = named(m, "w"), .count = 100};
  w.param->within = g.param, named(m, "w.m")->within = g.state[0];
  vec_push(m->arena, g.member, w);
  vec_push(m->arena, x.z.group, g);
  x.g = x.z.group.at;
  vec_push(m->arena, x.z.named, named(m, "other"));
  return x;
}

static void wrong(Made *x, const char *with) {
  const Global *at;
  const char *said = zero_unaccounted(&x->z, &at);
  if (!said || !strstr(said, with)) fail_msg("`%s` instead of `%s`", said ? said : "", with);
  ctx_free(x->c);
}

static void what_fits_passes(void **state) {
  (void)state;
  Made x = make();
  const Global *at;
  assert_null(zero_unaccounted(&x.z, &at));
  ctx_free(x.c);
}

static void what_holds_too_much_is_told(void **state) {
  (void)state;
  Made x = make();
  x.g->state[0]->type.axis[0].size = 128;
  wrong(&x, "zero.root.m: elements 128, not 32");
  x = make(), x.g->sharded = true;
  wrong(&x, "zero.root: elements 128, not 32");
  x = make(), x.g->stage = 3;
  wrong(&x, "zero.root: stage 3, not 2");
  x = make(), x.g->gradient = 128;
  wrong(&x, "zero.root: elements of its gradient 128, not 32");
  x = make(), x.g->ways = 2, x.g->piece = 64, x.g->gradient = 64;
  x.g->state[0]->type.axis[0].size = 64;
  wrong(&x, "zero.root: shared by ranks 2, not 4");
  x = make(), x.g->buckets = 9, x.g->gradient = 288;
  x.g->param->type.axis[0].size = 1152, x.g->state[0]->type.axis[0].size = 288;
  x.g->member.at[0].begin = 1100;
  wrong(&x, "zero.root: members end at 1200, not 1152");
}

static void what_is_whole_is_named(void **state) {
  (void)state;
  Made x = make();
  x.z.named.n = 0;
  wrong(&x, "other: whole on every rank, unnamed, bytes 32, not 0");
  x = make();
  named(x.z.m, "w.m")->within = NULL;
  wrong(&x, "w.m: whole on every rank, unnamed, bytes 400, not 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_fits_passes),
                                     cmocka_unit_test(what_holds_too_much_is_told),
                                     cmocka_unit_test(what_is_whole_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

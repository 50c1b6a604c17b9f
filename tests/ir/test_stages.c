/* Classes of a pipeline's stages: how they are called, which stages they are, and what each has on
   the host of what a plan says of some layers. */
#include "common.h"
#include "ir/plan/stage_class.h"
#include "ir/plan/stage_offload.h"
#include <string.h>

/* 8 layers, or as many as `dim` says, over the given number of stages. */
static Module *pipeline(Ctx *c, int stages, const char *dim, const char *sets) {
  return sound_module(
      c, arena_printf(c->arena,
                      "shardc-ir 1\nmodel T\nafter combine\nset made.stages = \"pipe\"\n%s"
                      "mesh pipe = %d\ndim %s\nplace Layers -> pipe\n"
                      "param @h.*.attn.w : f32[Layers/pipe:2, E:4]\n"
                      "param @h.*.mlp.w : f32[Layers/pipe:2, E:4]\nparam @wte : f32[E:4]\n",
                      sets, stages, dim));
}

#define OFFLOAD(words, paths)                                                                      \
  "set plan.offload = \"" words "\"\nset plan.offload.optimizer = \"" paths "\"\n"

/* first 0, middle_1_2 1-2, last 3 */
static const char *classes(const Module *m) {
  StageClass class[STAGE_CLASSES];
  const char *text = "";
  int n = module_classes(m, class);
  for (int i = 0; i < n && i < STAGE_CLASSES; i++)
    text = arena_printf(m->arena, "%s%s%s %lld-%lld", text, i ? ", " : "", class[i].name,
                        (long long)class[i].first, (long long)class[i].last);
  return n > STAGE_CLASSES ? arena_printf(m->arena, "%d", n) : text;
}

static void check_classes(int stages, const char *dim, const char *sets, const char *expected) {
  Ctx *c = ctx_new();
  assert_string_equal(classes(pipeline(c, stages, dim, sets)), expected);
  ctx_free(c);
}

static void classes_are_ends_and_between(void **state) {
  (void)state;
  check_classes(4, "Layers = 8", "", "first 0-0, middle 1-2, last 3-3");
  check_classes(2, "Layers = 8", "", "first 0-0, last 1-1");
  check_classes(1, "Layers = 8", "", "");
  check_classes(4, "Layers = 8", "set made.class = \"last\"\n", "first 0-0, middle 1-2, last 3-3");
}

static void classes_differ_by_memory(void **state) {
  (void)state;
  const char *all = OFFLOAD("optimizer", "h.*, wte"), *first = OFFLOAD("optimizer", "h[0..1]"),
             *two = OFFLOAD("optimizer", "h[0..1], h.2, h[3..3].mlp, h.3.attn"),
             *part = OFFLOAD("optimizer", "h[2..3].attn, h[4..5].attn, h[8..9].mlp"),
             *others = OFFLOAD("optimizer, grads", "h[2..5]");
  check_classes(4, "Layers = 8", all, "first 0-0, middle 1-2, last 3-3");
  check_classes(4, "Layers = 8", first, "first 0-0, middle 1-2, last 3-3");
  check_classes(4, "Layers = 8", two, "first 0-0, middle_1 1-1, middle_2 2-2, last 3-3");
  check_classes(6, "Layers = 12", part,
                "first 0-0, middle_1_2 1-2, middle_3 3-3, middle_4 4-4, "
                "last 5-5");
  check_classes(4, "Layers = 8", others, "first 0-0, middle 1-2, last 3-3");
}

/* With two chunks stage 1 has layers 1 and 5. */
static void chunks_and_rooms_count(void **state) {
  (void)state;
  const char *chunks = "set made.chunks = \"2\"\n" OFFLOAD("optimizer", "h.1, h.5"),
             *rooms = OFFLOAD("optimizer", "h[6..6]");
  check_classes(4, "Layers = 8", chunks, "first 0-0, middle_1 1-1, middle_2 2-2, last 3-3");
  check_classes(4, "Layers = 7 pad 8", rooms, "first 0-0, middle 1-2, last 3-3");
  check_classes(4, "Layers = 7 pad 12", rooms,
                "first 0-0, middle_1 1-1, middle_2 2-2, "
                "last 3-3");
}

static void more_than_there_is_room_for(void **state) {
  (void)state;
  check_classes(20, "Layers = 20",
                OFFLOAD("optimizer", "h.2, h.4, h.6, h.8, h.10, h.12, h.14, h.16, h.18"), "20");
}

static bool has(const Module *m, const char *word, const char *param) {
  OffloadWord of = OFFLOAD_AUTO;
  assert_true(offload_find(word, &of));
  return class_offloads(m, of, intern(m->ctx->names, param));
}

static void a_class_has_what_its_stages_have(void **state) {
  (void)state;
  static const struct {
    const char *class;
    bool attn, mlp;
  } expected[] = {{"first", true, false},
                  {"middle_1", true, true},
                  {"middle_2", false, false},
                  {"last", false, false}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    Ctx *c = ctx_new();
    Module *m =
        pipeline(c, 4, "Layers = 8", OFFLOAD("optimizer", "h[0..3].attn, h[2..3].mlp, wte"));
    assert_true(has(m, "optimizer", "h.*.attn.w") && has(m, "optimizer", "h.*.mlp.w.m"));
    assert_true(module_choose_class(m, expected[i].class) && module_has_class(m));
    assert_int_equal(has(m, "optimizer", "h.*.attn.w"), expected[i].attn);
    assert_int_equal(has(m, "optimizer", "h.*.mlp.w.m"), expected[i].mlp);
    assert_true(has(m, "optimizer", "wte"));
    assert_false(has(m, "grads", "wte"));
    ctx_free(c);
  }
}

/* The last stage has no layer of its own: it is like the one before. */
static void rooms_without_layers_follow_the_last(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = pipeline(c, 4, "Layers = 6 pad 8", OFFLOAD("optimizer", "h[4..5]"));
  assert_true(module_choose_class(m, "last"));
  assert_true(has(m, "optimizer", "h.*.mlp.w"));
  ctx_free(c);
}

static void names_say_which_stages(void **state) {
  (void)state;
  static const char *const wrong[] = {"",           "middle_",      "middle_2_",
                                      "middle_3_2", "middle_1_2_3", "middle_x",
                                      "second",     "firsts",       "last_1"};
  Ctx *c = ctx_new();
  Module *m = pipeline(c, 8, "Layers = 8", OFFLOAD("optimizer", "h[2..3]"));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(module_choose_class(m, wrong[i]));
  assert_true(module_has_class(m));
  assert_true(module_choose_class(m, "middle_2_3") && module_has_class(m));
  assert_int_equal(module_class(m).first, 2), assert_int_equal(module_class(m).last, 3);
  assert_true(module_choose_class(m, "middle") && !module_has_class(m));
  assert_true(module_choose_class(m, "middle_2") && !module_has_class(m));
  ctx_free(c);
}

static void ends_hold_what_is_theirs(void **state) {
  (void)state;
  static const char *const class[] = {"first", "middle_1", "last"};
  for (unsigned i = 0; i < 3; i++) {
    Ctx *c = ctx_new();
    Module *m = pipeline(c, 4, "Layers = 8", OFFLOAD("optimizer", "h[0..3]"));
    Global *wte = module_global(m, intern(c->names, "wte"));
    assert_true(module_choose_class(m, class[i]));
    assert_true(global_is_held(m, wte));
    wte->stages = STAGES_FIRST;
    assert_int_equal(global_is_held(m, wte), i == 0);
    wte->stages = STAGES_LAST;
    assert_int_equal(global_is_held(m, wte), i == 2);
    wte->stages = STAGES_ENDS;
    assert_int_equal(global_is_held(m, wte), i != 1);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_are_ends_and_between),
      cmocka_unit_test(classes_differ_by_memory),
      cmocka_unit_test(chunks_and_rooms_count),
      cmocka_unit_test(more_than_there_is_room_for),
      cmocka_unit_test(a_class_has_what_its_stages_have),
      cmocka_unit_test(rooms_without_layers_follow_the_last),
      cmocka_unit_test(names_say_which_stages),
      cmocka_unit_test(ends_hold_what_is_theirs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

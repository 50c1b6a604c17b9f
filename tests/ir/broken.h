/* Shared declarations of the verifier's tests: every numbered constraint of docs/ir.md is broken
   once, by a module in a table, and must be named, with its code. Must not: hold modules; each file
   of tests has those of its subject. */
#ifndef SHARDC_TESTS_IR_BROKEN_H
#define SHARDC_TESTS_IR_BROKEN_H
#include "common.h"

#define BROKEN_HEAD "shardc-ir 1\nmodel T\nafter "

typedef struct Broken {
  const char *label, *code;
  const char *lines; /* from the name of the pass on */
} Broken;

static inline void must_say(Ctx *c, Module *m, const Broken *b, const char *text) {
  if (!m) fail_msg("%s\n%s", text, reported(c));
  if (ir_verify(m)) fail_msg("[%s] was not noticed in\n%s", b->label, text);
  const char *said = reported(c), *label = arena_printf(c->arena, "[%s]", b->label);
  if (!strstr(said, label) || !strstr(said, b->code))
    fail_msg("%s %s expected in\n%s%s", b->code, label, text, said);
}

static inline void broken_modules(const Broken *table, size_t n) {
  for (size_t i = 0; i < n; i++) {
    Ctx *c = ctx_new();
    const char *text = arena_printf(c->arena, BROKEN_HEAD "%s", table[i].lines);
    must_say(c, module_of(c, text), &table[i], text);
    ctx_free(c);
  }
}

static inline void sound_modules(const char *const *table, size_t n) {
  for (size_t i = 0; i < n; i++) {
    Ctx *c = ctx_new();
    sound_module(c, arena_printf(c->arena, BROKEN_HEAD "%s", table[i]));
    ctx_free(c);
  }
}

typedef struct VerifyTables {
  const Broken *broken;
  const char *const *sound; /* right modules, near the broken ones */
  size_t nbroken, nsound;
} VerifyTables;

static inline void wrong_modules(void **state) {
  const VerifyTables *tables = *state;
  broken_modules(tables->broken, tables->nbroken);
}

static inline void right_modules(void **state) {
  const VerifyTables *tables = *state;
  sound_modules(tables->sound, tables->nsound);
}

/* All tests of a file that has no others. */
static inline int verify_tests(const Broken *broken, size_t nbroken, const char *const *sound,
                               size_t nsound) {
  VerifyTables tables = {broken, sound, nbroken, nsound};
  const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(wrong_modules, &tables),
                                     cmocka_unit_test_prestate(right_modules, &tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif

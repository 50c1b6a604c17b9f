/* Shared helpers of the tests of ir/: a module from text, and the diagnostics it gave as one
   string. */
#ifndef SHARDC_TESTS_IR_COMMON_H
#define SHARDC_TESTS_IR_COMMON_H
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on
#include "ir/interp/interp.h"
#include "tests/common/reported.h"

static inline Module *module_of(Ctx *c, const char *text) {
  return ir_parse(c, "test.ir", text, strlen(text));
}

/* A module that must be right. */
static inline Module *sound_module(Ctx *c, const char *text) {
  Module *m = module_of(c, text);
  if (!m || !ir_verify(m)) fail_msg("%s\n%s", text, reported(c));
  return m;
}
#endif

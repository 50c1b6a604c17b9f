/* Shared helpers of the tests of passes: modules from text, running them on made-up numbers,
 * comparing what they store. */
#ifndef SHARDC_TESTS_PASSES_COMMON_H
#define SHARDC_TESTS_PASSES_COMMON_H
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
#include "passes/pass.h"

Module *module_from(Ctx *c, const char *text); /* fails the test unless it reads and verifies */
Module *module_again(Ctx *c, Module *m);       /* a second one, through its text */
void run_until(Module *m, const char *pass);   /* every pass up to this one, each verified */
/* Calls with every golden file (golden.py) of PASS/NAME.ir, by pattern: its path, the text of its
   module, and its commands with what they print. */
typedef void GoldenRun(const char *path, const char *module, const char *commands);
void each_golden(const char *pattern, GoldenRun *run);
void expect_error(Module *m, const char *pass, const char *code,
                  const char *words); /* running gives this diagnostic */

/* Values of every parameter, state, input: a function of name and element. Floats between -1 and 1,
   ints from 0 up to `ints` - 1 or, with `of`, addresses of that dim. */
Interp *interp_filled(Module *m, bool exact); /* exact: floats are doubles */
double filled(const Module *m, const Global *g, int64_t element);
void must_run(Interp *in, const char *entry);
/* Element of b that has the indexes of element i of a. */
int64_t same_element(const Type *a, const Type *b, int64_t i);
/* Fails unless output `name` is the same in both, dims in any order. */
void expect_same(Interp *a, Interp *b, const char *name, double tolerance);
double output_of(Interp *in, const char *name); /* first element */

/* Entry step stores some @y..: adds @loss, the sum of all of their elements times made-up numbers.
 */
void add_loss(Module *m);
/* Gradients of @loss by every parameter, against central differences; after grad, and again after
 * clean. */
void check_gradients(const char *text, double tolerance);
#endif

/* Guards keywords.def and operators.def: every operator of the checker, every mask and everything
   in std.shard has a row in operators.def, and every row is one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/syntax/keywords.h"
#include "frontend/syntax/operators.h"
#include "frontend/model/sema_mask.h"

static const Operator *row(const char *name, bool axes) {
  uint32_t n;
  const Operator *t = operator_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    size_t k = strlen(t[i].name);
    assert_false(strncmp(t[i].form, t[i].name, k));
    if (!strcmp(t[i].name, name) && (t[i].form[k] == '[') == axes) return &t[i];
  }
  return NULL;
}

static void expect_row(const char *name, bool axes) {
  if (!row(name, axes)) fail_msg("no row for %s%s in operators.def", name, axes ? "[..]" : "");
}

static void every_operator_has_a_row(void **state) {
  (void)state;
  uint32_t n;
  const Builtin *b = builtin_table(&n);
  for (uint32_t i = 0; i < n; i++) expect_row(b[i].name, b[i].axes == 1);
  Ctx *c = ctx_new();
  size_t length;
  const char *text = std_shard_text(&length);
  AstFile *std = ast_parse(c, "std.shard", text, length);
  for (uint32_t i = 0; i < std->items.n; i++)
    expect_row(std->items.at[i]->name.text, std->items.at[i]->axes != NULL);
  ctx_free(c);
}

static bool in_std(const AstFile *std, const char *name) {
  for (uint32_t i = 0; i < std->items.n; i++)
    if (!strcmp(std->items.at[i]->name.text, name)) return true;
  return false;
}

static bool is_start(const char *name) {
  return !strcmp(name, "normal") || !strcmp(name, "truncated_normal") || !strcmp(name, "uniform");
}

static void every_row_exists(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  size_t length;
  const char *text = std_shard_text(&length);
  AstFile *std = ast_parse(c, "std.shard", text, length);
  uint32_t n;
  const Operator *t = operator_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    Str name = intern(c->names, t[i].name);
    bool known =
        builtin_find(name, false) || mask_function(name) || in_std(std, name) || is_start(name);
    if (!known) fail_msg("operators.def has a row for %s, which does not exist", name);
  }
  ctx_free(c);
}

static void keywords(void **state) {
  (void)state;
  uint32_t n;
  const Keyword *k = keyword_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    const Keyword *found = keyword_find(k[i].word, strlen(k[i].word));
    assert_ptr_equal(found, k[i].token ? &k[i] : NULL);
  }
  assert_null(keyword_find("layers", 6));
  assert_null(keyword_find("f", 1));
  assert_null(keyword_find("use'", 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_operator_has_a_row),
                                     cmocka_unit_test(every_row_exists),
                                     cmocka_unit_test(keywords)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tuning records: merging, finding, files with errors in them, keys. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "passes/tune/tune.h"
#include "passes/tune/tune_db.h"
#include <stdio.h>

#define LINE(key, device, cut, ns, date)                                                           \
  "contract\t" key "\tx86_64_v4\t2\t" device "\tshardc 0.1\t" cut "\t" ns "\t900\t9\t" date "\n"
#define CUT_A "8 3 1 1 1 2 4 0 1 1"
#define CUT_B "9 3 1 1 1 2 4 0 1 1"

static DeviceKind kind_of(const char *target) {
  return strncmp(target, "sm_", 3) ? DEVICE_CPU : DEVICE_GPU;
}

static TuneDb read(Ctx *c, const char *text) {
  TuneDb db = {0};
  tune_db_read(c, "test.tune", text, strlen(text), kind_of, &db);
  return db;
}

static const TuneRecord *find(Ctx *c, const TuneDb *db, const char *key, const char *device) {
  return tune_db_find(db, intern(c->names, "contract"), intern(c->names, key),
                      intern(c->names, "x86_64_v4"), 2, intern(c->names, device));
}

/* Both orders of the lines give the same record. */
static void prefers(const char *x, const char *y, const char *device, int64_t rows) {
  for (int i = 0; i < 2; i++) {
    Ctx *c = ctx_new();
    TuneDb db = read(c, arena_printf(c->arena, "%s%s", i ? y : x, i ? x : y));
    const TuneRecord *r = find(c, &db, "k", device);
    assert_non_null(r);
    assert_int_equal(r->cut.at[TILE_ROWS], rows);
    ctx_free(c);
  }
}

static void newer_beats_faster(void **state) {
  (void)state;
  prefers(LINE("k", "me", CUT_A, "100", "2026-01-02"), LINE("k", "me", CUT_B, "200", "2026-03-01"),
          "me", 9);
}

static void of_one_day_the_faster(void **state) {
  (void)state;
  prefers(LINE("k", "me", CUT_A, "100", "2026-01-02"), LINE("k", "me", CUT_B, "200", "2026-01-02"),
          "me", 8);
}

static void the_own_machine_first(void **state) {
  (void)state;
  prefers(LINE("k", "me", CUT_A, "900", "2025-01-02"), LINE("k", "it", CUT_B, "1", "2026-01-02"),
          "me", 8);
  prefers(LINE("k", "you", CUT_A, "900", "2025-01-02"), LINE("k", "it", CUT_B, "1", "2026-01-02"),
          "me", 9); /* of two others the newer one */
}

static void machines_stay_apart(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  TuneDb db =
      read(c, LINE("k", "me", CUT_A, "1", "2026-01-02") LINE("k", "it", CUT_B, "1", "2026-01-02")
                  LINE("l", "me", CUT_B, "1", "2026-01-02"));
  assert_int_equal(db.n, 3);
  assert_null(find(c, &db, "m", "me"));
  assert_null(tune_db_find(&db, intern(c->names, "contract"), intern(c->names, "k"),
                           intern(c->names, "x86_64_v4"), 3, intern(c->names, "me")));
  ctx_free(c);
}

/* Written records read back to the same text, in any order. */
static void text_is_canonical(void **state) {
  (void)state;
  const char *a = LINE("k", "me", CUT_A, "100", "2026-01-02"),
             *b = LINE("a", "me", CUT_B, "200", "2026-01-02");
  Ctx *c = ctx_new();
  TuneDb one = read(c, arena_printf(c->arena, "%s%s", a, b)),
         two = read(c, arena_printf(c->arena, "# x\n\n%s\n%s%s", b, a, b));
  char *text = tune_db_text(c, &one);
  assert_string_equal(text, tune_db_text(c, &two));
  TuneDb again = read(c, text);
  assert_string_equal(text, tune_db_text(c, &again));
  assert_int_equal(diag_first_code(c->diag) != NULL, 0);
  ctx_free(c);
}

static void broken_lines_are_left_out(void **state) {
  (void)state;
  static const char *const bad[] = {
      "contract\tk\n",
      "contract\t\tx\t2\tm\td\t" CUT_A "\t1\t1\t1\t2026-01-01\n",
      "conv\tk\tx\t2\tm\td\t" CUT_A "\t1\t1\t1\t2026-01-01\n",
      "gemm\tk\tx\t2\tm\td\t" CUT_A "\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t0\tm\td\t" CUT_A "\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t8 3 1\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t" CUT_A " 1\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t-1 3 1 1 1 2 4 0 1 1\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t99999999999999999999 3 1 1 1 2 4 0 1 1\t1\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t" CUT_A "\tnan\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t" CUT_A "\t1e99\t1\t1\t2026-01-01\n",
      "contract\tk\tx\t2\tm\td\t" CUT_A "\t1\t1\t1\tyesterday\n",
      "contract\tk\tx\t2\tm\td\t" CUT_A "\t1\t1\t1\t2026-01-01\tmore\n",
      "\x01\x02\xff\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Ctx *c = ctx_new();
    TuneDb db =
        read(c, arena_printf(c->arena, "%s%s", bad[i], LINE("k", "me", CUT_A, "1", "2026-01-02")));
    if (db.n != 1 || !diag_given(c->diag, "W1206") || diag_errors(c->diag))
      fail_msg("read as a record, or no warning: %s", bad[i]);
    ctx_free(c);
  }
}

/* Bytes changed, cut and doubled at random: nothing is read outside of the text, nothing crashes,
   and what was read writes and reads back. */
static void mangled_files(void **state) {
  (void)state;
  static const char good[] =
      LINE("k", "me", CUT_A, "100", "2026-01-02") LINE("l", "it", CUT_B, "2.5", "2026-01-02");
  uint64_t x = 88172645463325252u;
  for (int round = 0; round < 20000; round++) {
    Ctx *c = ctx_new();
    char text[sizeof good];
    memcpy(text, good, sizeof good);
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    size_t n = x % 3 ? sizeof good - 1 : x / 8 % sizeof good;
    for (int i = 0; i < 1 + (int)(x % 4); i++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      text[x / 1024 % (sizeof good - 1)] =
          (char)(x & 1 ? x >> 20 : (uint64_t) "\t\n 90#"[x / 2 % 6]);
    }
    char *copy = arena_alloc(c->arena, n + 1);
    memcpy(copy, text, n);
    TuneDb db = {0};
    tune_db_read(c, "mangled.tune", copy, n, kind_of, &db);
    char *first = tune_db_text(c, &db);
    TuneDb again = read(c, first);
    assert_string_equal(first, tune_db_text(c, &again));
    ctx_free(c);
  }
}

static Fn *kernel_of(Ctx *c, const char *text, Module **m) {
  *m = ir_parse(c, "k.ir", text, strlen(text));
  assert_non_null(*m);
  return (*m)->fns.at[0];
}

static Str key_of(Ctx *c, const char *text) {
  Module *m;
  Fn *k = kernel_of(c, text, &m);
  return variants_key(m, variants_find("gemm", DEVICE_CPU), k);
}

/* Names and attributes do not matter, sizes, strides and ops do. */
static void keys(void **state) {
  (void)state;
#define DOT(name, A, B, C, size, more, end)                                                        \
  "shardc-ir 1\nmodel T\nafter order\nkernel @" name "(%0 : f32[" A ":4, " B ":" size              \
  "], %1 : f32[" B ":" size ", " C ":32]" more ") {family = \"contract\"} {\n  %2 = dot[" B        \
  "] %0, %1 : f32[" A ":4, " C ":32]\n" end "}\n"
  Ctx *c = ctx_new();
  Str key = key_of(c, DOT("k", "M", "K", "N", "8", "", "  return %2\n"));
  assert_ptr_equal(key, key_of(c, DOT("other", "X", "Y", "Z", "8", "", "  return %2\n")));
  assert_ptr_not_equal(key, key_of(c, DOT("k", "M", "K", "N", "16", "", "  return %2\n")));
  assert_ptr_not_equal(
      key, key_of(c, DOT("k", "M", "K", "N", "8", " {strides(64, 1)}", "  return %2\n")));
  assert_ptr_not_equal(key, key_of(c, DOT("k", "M", "K", "N", "8", "",
                                          "  %3 = neg %2 : f32[M:4, N:32]\n  return %3\n")));
  assert_non_null(strstr(key, "b1-m4-n32-k8"));
  ctx_free(c);
}

/* A rule's cut fits, and random numbers either fit or are refused. */
static void only_what_fits(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m;
  Fn *k = kernel_of(c, DOT("k", "M", "K", "N", "8", "", "  return %2\n"), &m);
  Cut cut = contract_rule(m, k);
  assert_true(contract_fits(m, k, &cut));
  uint64_t x = 5;
  for (int i = 0; i < 20000; i++) {
    for (int j = 0; j < CONTRACT_COUNT; j++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      cut.at[j] = (int64_t)(x >> 40) % (j < 2 ? 40 : 6);
    }
    if (contract_fits(m, k, &cut)) contract_apply(m, k, &cut);
  }
  ctx_free(c);
}

/* b in place or packed is tried first; a neighbour has the chunks that the rule gives it. */
static void neighbours(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m;
  Fn *k = kernel_of(c, DOT("k", "M", "K", "N", "512", "", "  return %2\n"), &m);
  Cut rule = contract_rule(m, k), same = contract_chunked(m, k, &rule);
  assert_memory_equal(&rule, &same, sizeof rule);
  CutList packing = {0};
  contract_vary(m, k, &rule, 1, false, &packing);
  assert_int_equal(packing.at[0].at[TILE_PACK_B], !rule.at[TILE_PACK_B]);
  assert_int_equal(packing.at[0].at[TILE_PACK_A], rule.at[TILE_PACK_A]);
  for (int stage = 0; stage < 3; stage++) {
    CutList near = {0};
    contract_vary(m, k, &rule, stage, true, &near);
    for (uint32_t i = 0; i < near.n / 2; i++) {
      same = contract_chunked(m, k, &near.at[i]);
      assert_memory_equal(&near.at[i], &same, sizeof same);
    }
  }
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(neighbours),
                                     cmocka_unit_test(newer_beats_faster),
                                     cmocka_unit_test(of_one_day_the_faster),
                                     cmocka_unit_test(the_own_machine_first),
                                     cmocka_unit_test(machines_stay_apart),
                                     cmocka_unit_test(text_is_canonical),
                                     cmocka_unit_test(broken_lines_are_left_out),
                                     cmocka_unit_test(mangled_files),
                                     cmocka_unit_test(keys),
                                     cmocka_unit_test(only_what_fits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The table of 1F1B, run slot by slot: a part goes forward on a stage one slot after the stage
   before it has done so, and backward one slot after the stage behind it. */
#include "ir/turns.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

enum { STAGES = 16, PARTS = 64 };

typedef struct Stage {
  int64_t ahead, done, most;               /* parts forward, backward; most in flight so far */
  int64_t forward[PARTS], backward[PARTS]; /* slots in which they are over */
} Stage;

static Stage stage[STAGES];

/* May stage s take its next turn in this slot? */
static bool may_go(int64_t s, int64_t stages, bool forward, int64_t slot) {
  if (forward && s)
    return stage[s].ahead < stage[s - 1].ahead && stage[s - 1].forward[stage[s].ahead] < slot;
  if (!forward && s + 1 < stages)
    return stage[s].done < stage[s + 1].done && stage[s + 1].backward[stage[s].done] < slot;
  return forward || stage[s].done < stage[s].ahead;
}

static bool step(const int64_t *most, int64_t stages, int64_t parts, int64_t slot) {
  bool any = false;
  for (int64_t s = 0; s < stages; s++) {
    Stage *x = &stage[s];
    if (x->done == parts) continue;
    bool forward = turn_is_forward(most[s], parts, x->ahead, x->done);
    if (!may_go(s, stages, forward, slot)) continue;
    if (forward) x->forward[x->ahead++] = slot;
    else x->backward[x->done++] = slot;
    if (x->ahead - x->done > x->most) x->most = x->ahead - x->done;
    any = true;
  }
  return any;
}

/* Slots until all is done; -1: stages wait for each other for ever. A slot in which nobody starts
   is the end, since every turn takes one. */
static int64_t makespan(const int64_t *most, int64_t stages, int64_t parts) {
  int64_t slot = 0;
  memset(stage, 0, sizeof stage);
  while (step(most, stages, parts, slot)) slot++;
  for (int64_t s = 0; s < stages; s++)
    if (stage[s].done < parts) return -1;
  return slot;
}

static void one_f_one_b(void **state) {
  (void)state;
  for (int64_t stages = 1; stages <= STAGES; stages++)
    for (int64_t parts = 1; parts <= PARTS; parts++) {
      int64_t most[STAGES];
      for (int64_t s = 0; s < stages; s++) most[s] = turns_one_f_one_b(stages, s, parts);
      assert_int_equal(makespan(most, stages, parts), 2 * (parts + stages - 1));
      for (int64_t s = 0; s < stages; s++)
        assert_int_equal(stage[s].most, stages - s < parts ? stages - s : parts);
    }
}

static void other_tables(void **state) {
  (void)state;
  assert_int_equal(makespan((int64_t[]){4, 4, 4}, 3, 4), 12); /* all forward, then all backward */
  assert_int_equal(makespan((int64_t[]){1, 1, 1}, 3, 4), 24); /* one at a time */
  assert_int_equal(makespan((int64_t[]){1, 2}, 2, 4), -1);    /* the second waits for more */
}

static void words(void **state) {
  (void)state;
  Arena *a = arena_new();
  assert_string_equal(turns_text(a, 2, 3, 99), "F0 F1 B0 F2 B1 B2");
  assert_string_equal(turns_text(a, 1, 2, 99), "F0 B0 F1 B1");
  assert_string_equal(turns_text(a, 2, 3, 6), "F0 F1 B0 F2 B1 B2");
  assert_string_equal(turns_text(a, 2, 9, 4), "F0 F1 B0 F2 ..");
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_f_one_b), cmocka_unit_test(other_tables),
                                     cmocka_unit_test(words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

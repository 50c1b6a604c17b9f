/* Schedules as tables, run turn by turn: makespans against the analytic ones, parts in flight. */
#include "ir/schedule/pipeline_schedule.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

enum { STAGES = 16, PARTS = 64 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* In slots: every loop takes one for a part. */
static int64_t slots(const ScheduleTable *t) {
  double time[STAGES * TURN_LOOPS];
  for (int i = 0; i < STAGES * TURN_LOOPS; i++) time[i] = 1;
  return (int64_t)schedule_makespan(t, time);
}

typedef ScheduleTable Schedule(Arena *a, int64_t stages, int64_t parts);
typedef void CheckTable(const ScheduleTable *t);

static void every_table(Schedule *schedule, CheckTable *check) {
  for (int64_t stages = 1; stages <= STAGES; stages++)
    for (int64_t parts = 1; parts <= PARTS; parts++) {
      Arena *a = arena_new();
      ScheduleTable t = schedule(a, stages, parts);
      check(&t);
      arena_free(a);
    }
}

static void check_one_f_one_b(const ScheduleTable *t) {
  assert_int_equal(slots(t), 2 * (t->parts + t->stages - 1));
  for (int64_t s = 0; s < t->stages; s++)
    assert_int_equal(schedule_between(t, TURN_FORWARD, TURN_BACKWARD, s, s),
                     least(t->stages - s, t->parts));
}

static void check_gpipe(const ScheduleTable *t) {
  assert_int_equal(slots(t), 2 * (t->parts + t->stages - 1));
  assert_int_equal(schedule_between(t, TURN_FORWARD, TURN_BACKWARD, 0, t->stages - 1), t->parts);
}

/* No schedule whose update waits for all stages is shorter: the last stage begins when a part has
   gone forward on all others, and has all turns of all parts to do; and the first one has all of
   them to go backward when the first is back. */
static double least_makespan(const ScheduleTable *t, double forward, double inputs,
                             double weights) {
  double others = (double)(t->stages - 1), parts = (double)t->parts;
  double last = others * forward + parts * (forward + inputs + weights),
         first = forward + others * (forward + inputs) + parts * (inputs + weights);
  return last > first ? last : first;
}

static void check_in_flight(const ScheduleTable *t, int64_t steep) {
  for (int64_t s = 0; s < t->stages; s++) {
    assert_int_equal(schedule_between(t, TURN_FORWARD, TURN_BACKWARD, s, s),
                     least(steep * (t->stages - 1 - s) + 1, t->parts));
    assert_true(schedule_between(t, TURN_FORWARD, TURN_WEIGHTS, s, s) <=
                least(steep * (t->stages - 1) + 1, t->parts));
    assert_int_equal(schedule_between(t, TURN_BACKWARD, TURN_WEIGHTS, s, s),
                     least(steep * s + 1, t->parts));
  }
}

/* At equal times nothing is to be had beyond ZB-H1: it takes the least there is, a third of the
   3 (P - 1) of 1F1B if it has P parts to send. */
static void check_zero_bubble(const ScheduleTable *t) {
  int64_t ahead = least(t->stages, t->parts);
  assert_int_equal(slots(t), 3 * t->parts + 2 * t->stages - 1 - ahead);
  assert_true((double)slots(t) == least_makespan(t, 1, 1, 1));
  check_in_flight(t, 1);
}

/* So more memory changes nothing in that case, except one slot if the micro-batches allow no even
   slope. */
static void check_two_memories(const ScheduleTable *t) {
  bool slope = t->parts > t->stages && t->parts < 2 * t->stages - 1;
  int64_t more = slots(t) - (int64_t)least_makespan(t, 1, 1, 1);
  assert_true(more == 0 || (slope && more == 1));
  if (!slope) check_in_flight(t, t->parts > t->stages ? 2 : 1);
  for (int64_t s = 0; s < t->stages; s++)
    assert_true(schedule_between(t, TURN_FORWARD, TURN_WEIGHTS, s, s) <=
                least(2 * t->stages - 1, t->parts));
}

static ScheduleTable one_memory(Arena *a, int64_t stages, int64_t parts) {
  return schedule_zero_bubble(a, stages, parts, 1);
}

static ScheduleTable two_memories(Arena *a, int64_t stages, int64_t parts) {
  return schedule_zero_bubble(a, stages, parts, 2);
}

static double at_times(const ScheduleTable *t, double forward, double inputs, double weights) {
  double time[STAGES * TURN_LOOPS] = {0};
  for (int64_t s = 0; s < t->stages; s++) {
    time[s * TURN_LOOPS + TURN_FORWARD] = forward, time[s * TURN_LOOPS + TURN_BACKWARD] = inputs;
    time[s * TURN_LOOPS + TURN_WEIGHTS] = weights;
  }
  return schedule_makespan(t, time);
}

/* Layers that go forward again (`recompute`) take two turns' time for gradients of inputs. ZB-H1
   waits P - 1 times that, less the time of weights, in addition to P - 1 forward turns; with twice
   its memory no stage does, from 2 P - 1 parts on. */
static void check_recomputed(const ScheduleTable *t) {
  Arena *a = arena_new();
  ScheduleTable h1 = schedule_zero_bubble(a, t->stages, t->parts, 1);
  double took = at_times(t, 1, 2, 1), h1_took = at_times(&h1, 1, 2, 1),
         limit = least_makespan(t, 1, 2, 1);
  assert_true(took >= limit && h1_took >= took);
  if (t->parts <= t->stages) assert_true(took == h1_took);
  if (t->parts >= 2 * t->stages - 1) {
    assert_true(took == limit);
    assert_true(h1_took == limit + (double)(t->stages - 1));
  }
  arena_free(a);
}

/* Groups of as many parts as stages: the bubble of 1F1B, of turns that are a chunk long. No part is
   at two stages at once, and gradients of every chunk come in the order of parts. */
static void check_interleaved(const ScheduleTable *t) {
  int64_t all = t->parts * t->chunks, took = slots(t);
  if (t->parts % t->stages == 0) assert_int_equal(took, 2 * (all + t->stages - 1));
  int64_t padded = (t->parts + t->stages - 1) / t->stages * t->stages;
  assert_true(took >= 2 * all && took <= 2 * (padded * t->chunks + t->stages - 1));
  int64_t ahead = least(t->stages * (t->chunks + 1) - 1, padded * t->chunks);
  for (int c = 0; c < t->chunks && t->stages > 1; c++)
    assert_true(schedule_between(t, c, 2 * (int)t->chunks - 1 - c, 0, 0) <= least(ahead, t->parts));
}

static ScheduleTable two_chunks(Arena *a, int64_t stages, int64_t parts) {
  return schedule_interleaved(a, stages, parts, 2);
}

static ScheduleTable three_chunks(Arena *a, int64_t stages, int64_t parts) {
  return schedule_interleaved(a, stages, parts, 3);
}

static void interleaved(void **state) {
  (void)state;
  every_table(two_chunks, check_interleaved);
  every_table(three_chunks, check_interleaved);
}

static void one_f_one_b(void **state) {
  (void)state;
  every_table(schedule_one_f_one_b, check_one_f_one_b);
}

static void gpipe(void **state) {
  (void)state;
  every_table(schedule_gpipe, check_gpipe);
}

static void zero_bubble(void **state) {
  (void)state;
  every_table(one_memory, check_zero_bubble);
  every_table(two_memories, check_two_memories);
  every_table(two_memories, check_recomputed);
}

static ScheduleTable table(int64_t stages, int64_t parts, const int64_t *most) {
  return (ScheduleTable){.stages = stages, .parts = parts, .most = most};
}

static void other_tables(void **state) {
  (void)state;
  ScheduleTable one = table(3, 4, (int64_t[]){1, 1, 1}), more = table(2, 4, (int64_t[]){1, 2});
  assert_int_equal(slots(&one), 24);  /* one at a time */
  assert_int_equal(slots(&more), -1); /* the second waits for more */
}

/* Unequal stages: the slow one is busy from its first part to its last one. */
static void unequal_times(void **state) {
  (void)state;
  Arena *a = arena_new();
  ScheduleTable t = schedule_one_f_one_b(a, 2, 4);
  double time[2 * TURN_LOOPS] = {1, 2};
  time[TURN_LOOPS] = 2, time[TURN_LOOPS + 1] = 4;
  assert_true(schedule_makespan(&t, time) == 1 + 4 * 6 + 2);
  arena_free(a);
}

/* If all stages sum after each backward pass, the last stage waits for the first: 1F1B hides
   nothing. Gathers before every part make `gpipe` as slow as one part at a time. */
static void meetings(void **state) {
  (void)state;
  Arena *a = arena_new();
  double time[PARTS * TURN_LOOPS];
  for (int i = 0; i < PARTS * TURN_LOOPS; i++) time[i] = 1;
  for (int64_t stages = 1; stages <= 8; stages++)
    for (int64_t parts = 1; parts <= 16; parts++) {
      ScheduleTable t = schedule_gpipe(a, stages, parts);
      t.meet_before = 1 << TURN_FORWARD | 1 << TURN_BACKWARD;
      assert_true(schedule_makespan(&t, time) == (double)(2 * stages * parts));
      t = schedule_gpipe(a, stages, parts), t.meet_after = 1 << TURN_BACKWARD;
      assert_true(schedule_makespan(&t, time) == (double)(parts + stages - 1 + stages * parts));
    }
  ScheduleTable t = schedule_one_f_one_b(a, 2, 2);
  time[TURN_BACKWARD] = time[TURN_LOOPS + TURN_BACKWARD] = 2;
  assert_true(schedule_makespan(&t, time) == 9);
  t.meet_after = 1 << TURN_BACKWARD;
  assert_true(schedule_makespan(&t, time) == 11);
  t = schedule_one_f_one_b(a, 2, 2), t.meet_before = 1 << TURN_BACKWARD | 1 << TURN_FORWARD;
  assert_true(schedule_makespan(&t, time) < 0); /* one is at another part */
  arena_free(a);
}

static void words(void **state) {
  (void)state;
  Arena *a = arena_new();
  ScheduleTable two = table(1, 3, (int64_t[]){2}), long_one = table(1, 9, (int64_t[]){2}),
                one = table(1, 2, (int64_t[]){1}), zero = schedule_zero_bubble(a, 2, 3, 1),
                chunks = schedule_interleaved(a, 2, 3, 2);
  assert_string_equal(schedule_text(a, &two, 0, 99), "F0 F1 B0 F2 B1 B2");
  assert_string_equal(schedule_text(a, &one, 0, 99), "F0 B0 F1 B1");
  assert_string_equal(schedule_text(a, &two, 0, 6), "F0 F1 B0 F2 B1 B2");
  assert_string_equal(schedule_text(a, &long_one, 0, 4), "F0 F1 B0 F2 ..");
  assert_string_equal(schedule_text(a, &zero, 0, 99), "F0 F1 B0 W0 F2 B1 W1 B2 W2");
  assert_string_equal(schedule_text(a, &zero, 1, 99), "F0 B0 F1 B1 W0 F2 B2 W1 W2");
  assert_string_equal(schedule_text(a, &chunks, 0, 99),
                      "F0a F1a F0b F1b F2a B0b B1b F2b B0a B1a B2b B2a");
  assert_string_equal(schedule_text(a, &chunks, 1, 99),
                      "F0a F1a F0b B0b F1b B1b F2a B0a B1a F2b B2b B2a");
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_f_one_b),  cmocka_unit_test(gpipe),
      cmocka_unit_test(zero_bubble),  cmocka_unit_test(interleaved),
      cmocka_unit_test(other_tables), cmocka_unit_test(unequal_times),
      cmocka_unit_test(meetings),     cmocka_unit_test(words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Schedules of pipelines that an edit has changed: the verifier and pass `prove` refuse each that
   is wrong, and no other one.

   Random stages and micro-batches, two loops or three; then one change is made: a number of the
   table, in all loops or in one; fewer slots of a ring; a message that is not sent, not received,
   or sent in the other direction. The test finds the wrong schedules by running the stages, each
   with one message between neighbours in each direction. */
#include "common.h"
#include "ir/schedule/pipeline_schedule.h"
#include <string.h>

enum { STAGES = 6, PARTS = 8, WRONG = 2000, EDITS = 6 };
enum { FORWARD_RECEIVE, FORWARD_SEND, BACKWARD_RECEIVE, BACKWARD_SEND, HOPS };
typedef enum HopEdit { AS_IT_WAS, GONE, TURNED } HopEdit;

typedef struct Schedule {
  int64_t most[STAGES], wait[STAGES],
      ring[2];         /* ring: of the forward loop, of the second of three */
  ScheduleTable table; /* of these */
  int64_t *other;      /* a number that the last loop has otherwise */
  int64_t is;          /* its value in that loop */
  HopEdit hop[HOPS];
} Schedule;

static uint64_t state = 1;

static int64_t draw(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- what is wrong ---- */

static int64_t slots_needed(const ScheduleTable *t, int from) {
  int64_t most = 1;
  for (int to = from + 1; to < schedule_loops(t); to++) {
    int64_t n = schedule_between(t, from, to, 0, t->stages - 1);
    most = n > most ? n : most;
  }
  return most;
}

typedef struct Running { /* of a stage */
  ScheduleState over;
  bool received;
  bool sent[2]; /* forward, backward: and not yet taken */
} Running;

/* One step of stage s; false: it waits, or is over. */
static bool step(const ScheduleTable *t, Running *x, int64_t s) {
  if (schedule_done(t, &x[s].over)) return false;
  int loop = schedule_next(t, s, &x[s].over);
  int64_t by = loop == TURN_FORWARD ? 1 : -1, before = s - by, after = s + by;
  bool works = loop != TURN_WEIGHTS, takes = works && before >= 0 && before < t->stages,
       gives = works && after >= 0 && after < t->stages;
  if (takes && !x[s].received) {
    if (!x[before].sent[loop]) return false;
    return x[before].sent[loop] = false, x[s].received = true;
  }
  if (gives && x[s].sent[loop]) return false;
  if (gives) x[s].sent[loop] = true;
  x[s].received = false, x[s].over.over[loop]++;
  return true;
}

static bool drains(const ScheduleTable *t) {
  Running x[STAGES] = {0};
  for (bool any = true; any;) {
    any = false;
    for (int64_t s = 0; s < t->stages; s++)
      while (step(t, x, s)) any = true;
  }
  for (int64_t s = 0; s < t->stages; s++)
    if (!schedule_done(t, &x[s].over)) return false;
  return true;
}

static bool is_cut(const Schedule *k) {
  for (int i = 0; i < HOPS; i++)
    if (k->hop[i] != AS_IT_WAS) return true;
  return false;
}

static bool is_wrong(const Schedule *k) {
  if (is_cut(k)) return true;
  for (int i = 0; i < schedule_loops(&k->table) - 1; i++)
    if (k->ring[i] < slots_needed(&k->table, i)) return true;
  return k->other || !drains(&k->table);
}

/* ---- as text ---- */

static const char *table_text(Arena *a, const Schedule *k, bool last) {
  const char *text = "";
  const int64_t *lists[] = {k->table.most, k->table.wait};
  for (int i = 0; i < schedule_loops(&k->table) - 1; i++)
    for (int64_t s = 0; s < k->table.stages; s++) {
      bool here = last && k->other == &lists[i][s];
      text = arena_printf(a, "%s%s%lld", text, *text ? ", " : "",
                          (long long)(here ? k->is : lists[i][s]));
    }
  return arena_printf(a, "turns = [%s]", text);
}

static const char *hop_text(Arena *a, const Schedule *k, int hop, const char *op, const char *of,
                            int to) {
  bool back = (hop >= BACKWARD_RECEIVE) != (k->hop[hop] == TURNED);
  if (k->hop[hop] == GONE)
    return arena_printf(a, "%%%d = kernel @mul, %s, %s : f32[E:8]\n", to, of, of);
  return arena_printf(a, "%%%d = %s %s {%saxis = \"pipe\", ranks = %lld} : f32[E:8]\n", to, op, of,
                      back ? "reverse = 1, " : "", (long long)k->table.stages);
}

static const char head[] =
    "kernel @mul(%0 : f32[E:8], %1 : f32[E:8]) {family = \"elem\", variant = \"vector\", "
    "tile = [8], chunks = [1]} {\n%2 = mul %0, %1 : f32[E:8]\nreturn %2\n}\n"
    "kernel @add(%0 : f32[E:8], %1 : f32[E:8]) {family = \"elem\", variant = \"vector\", "
    "tile = [8], chunks = [1]} {\n%2 = add %0, %1 : f32[E:8]\nreturn %2\n}\n";

static const char *bodies_text(Arena *a, const Schedule *k) {
  const char *forward = arena_printf(
      a,
      "body @f(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8]) {\n%s%%4 = kernel @mul, %%3, %%1 : "
      "f32[E:8]\n%sreturn %%3\n}\n",
      hop_text(a, k, FORWARD_RECEIVE, "receive", "%2", 3),
      hop_text(a, k, FORWARD_SEND, "send", "%4", 5));
  const char *receive = hop_text(a, k, BACKWARD_RECEIVE, "receive", "%2", 4),
             *send = hop_text(a, k, BACKWARD_SEND, "send", "%5", 6);
  if (!k->table.wait)
    return arena_printf(a,
                        "%sbody @b(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8], %%3 : f32[E:8]) "
                        "{\n%s%%5 = kernel @mul, %%4, %%3 : f32[E:8]\n%s%%7 = kernel @add, %%1, "
                        "%%5 : f32[E:8]\nreturn %%7\n}\n",
                        forward, receive, send);
  return arena_printf(a,
                      "%sbody @b(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8], %%3 : f32[E:8]) "
                      "{\n%s%%5 = kernel @mul, %%4, %%3 : f32[E:8]\n%sreturn %%4\n}\n"
                      "body @w(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8], %%3 : f32[E:8]) {\n"
                      "%%4 = kernel @mul, %%3, %%2 : f32[E:8]\n%%5 = kernel @add, %%1, %%4 : "
                      "f32[E:8]\nreturn %%5\n}\n",
                      forward, receive, send);
}

/* The backward loop adds up, or hands on to the third one, which does. */
static const char *loops_text(Arena *a, const Schedule *k) {
  long long parts = k->table.parts, f = k->ring[0], b = k->ring[1];
  const char *same = table_text(a, k, false), *last = table_text(a, k, true);
  const char *forward = arena_printf(
      a,
      "%%3 = loop[micro] @f, %%0, %%1 {carry = 0, invariant = 1, trip = %lld, axis = \"pipe\", "
      "%s} : f32[micro:%lld, E:8]\n",
      parts, same, f);
  if (!k->table.wait)
    return arena_printf(a,
                        "%s%%4 = loop[micro] @b, %%2, %%0, %%3 {carry = 1, invariant = 1, trip = "
                        "%lld, %s} : f32[E:8]\nstore @g, %%4\n",
                        forward, parts, last);
  return arena_printf(a,
                      "%s%%4 = loop[micro] @b, %%0, %%0, %%3 {carry = 0, invariant = 2, trip = "
                      "%lld, %s} : f32[micro:%lld, E:8]\n%%5 = loop[micro] @w, %%2, %%3, %%4 {"
                      "carry = 1, invariant = 0, trip = %lld, %s} : f32[E:8]\nstore @g, %%5\n",
                      forward, parts, same, b, parts, last);
}

static const char *schedule_summary(Arena *a, const Schedule *k) {
  return arena_printf(
      a,
      "shardc-ir 1\nmodel T\nafter turns\nmesh pipe = %lld\ninput @x : f32[micro:%lld, E:8]\n"
      "param @w : f32[E:8]\nstate @g : f32[E/pipe:8]\n%s%sentry @step {\n%%0 = load @w : f32[E:8]"
      "\n%%1 = load @x : f32[micro:%lld, E:8]\n%%2 = kernel @mul, %%0, %%0 : f32[E:8]\n%s}\n",
      (long long)k->table.stages, (long long)k->table.parts, head, bodies_text(a, k),
      (long long)k->table.parts, loops_text(a, k));
}

/* ---- edits ---- */

static Schedule schedule(Arena *a) {
  Schedule k = {.other = NULL};
  int64_t stages = 2 + draw(STAGES - 1), parts = 2 + draw(PARTS - 1);
  ScheduleTable t = draw(2) ? schedule_zero_bubble(a, stages, parts, 1 + draw(MOST_AHEAD))
                            : schedule_one_f_one_b(a, stages, parts);
  memcpy(k.most, t.most, sizeof *t.most * (size_t)stages);
  if (t.wait) memcpy(k.wait, t.wait, sizeof *t.wait * (size_t)stages);
  k.table = t;
  for (int i = 0; i < schedule_loops(&t) - 1; i++) k.ring[i] = slots_needed(&t, i);
  return k;
}

static void edit(Schedule *k) {
  ScheduleTable *t = &k->table;
  int64_t s = draw(t->stages), parts = t->parts, kind = draw(EDITS);
  bool of_wait = t->wait && draw(2);
  int64_t *number = of_wait ? &k->wait[s] : &k->most[s], was = *number;
  int64_t is = of_wait ? draw(parts + 1) : 1 + draw(parts);
  t->most = k->most, t->wait = t->wait ? k->wait : NULL;
  if (kind < 3) *number = is;
  else if (kind == 3 && is != was) k->other = number, k->is = is;
  else if (kind == 4) k->ring[t->wait && draw(2)] -= 1;
  else if (kind == 5) k->hop[draw(HOPS)] = draw(2) ? GONE : TURNED;
}

/* The verifier also detects messages without a peer; this test requires it of pass `prove`. */
static bool is_refused(Ctx *c, const Schedule *k, const char *text) {
  PipelineOptions o = {.until = "prove", .verify = !is_cut(k)};
  Module *m = ir_parse(c, "schedule", text, strlen(text));
  return !m || (o.verify && !ir_verify(m)) || !pipeline_run(m, &o);
}

static void schedules(void **unused) {
  (void)unused;
  int wrong = 0, right = 0, waiting = 0;
  while (wrong < WRONG) {
    Ctx *c = ctx_new();
    Schedule k = schedule(c->arena);
    bool whole = !draw(8);
    if (!whole) edit(&k);
    if (whole) k.table.most = k.most, k.table.wait = k.table.wait ? k.wait : NULL;
    const char *text = schedule_summary(c->arena, &k);
    bool bad = is_wrong(&k);
    if (is_refused(c, &k, text) != bad)
      fail_msg("%s\nis %s, and this is said:\n%s", text, bad ? "wrong" : "right", reported(c));
    *(bad ? &wrong : &right) += 1;
    waiting += bad && strstr(reported(c), "E1113") != NULL;
    ctx_free(c);
  }
  printf("%d wrong schedules refused, %d of them since stages wait for ever; %d right ones taken\n",
         wrong, waiting, right);
  assert_true(right > WRONG / 10 && waiting > WRONG / 4);
}

static ScheduleTable drawn_table(Arena *arena) {
  int64_t stages = 1 + draw(8), parts = 1 + draw(120);
  switch (draw(4)) {
  case 0: return schedule_one_f_one_b(arena, stages, parts);
  case 1: return schedule_zero_bubble(arena, stages, parts, 1 + draw(2));
  case 2: return schedule_gpipe(arena, stages, parts);
  default: return schedule_interleaved(arena, stages, parts, 2 + draw(3));
  }
}

static void assert_turn(const ScheduleTable *t, int64_t stage, ScheduleState *run, int loop) {
  assert_false(schedule_done(t, run));
  assert_int_equal(schedule_next(t, stage, run), loop);
  run->over[loop]++;
}

/* Checks that the turns of the shortened list, with their repeats, are all turns. False: nothing
   repeats. */
static bool repeats(const ScheduleTable *t, int64_t stage, int64_t unit, int64_t ahead) {
  ScheduleRepeat repeat = schedule_repeat(t, stage, unit, ahead);
  ScheduleState list = {{0}}, run = {{0}};
  int period[TURN_LOOPS * 256];
  if (!repeat.times) return false;
  assert_true(repeat.parts % unit == 0 && repeat.parts > ahead);
  assert_true(repeat.from >= 2 * repeat.turns && repeat.turns < TURN_LOOPS * 256);
  for (int64_t n = 0; !schedule_done(t, &list); n++) {
    for (int64_t i = 0; n == repeat.from && i < repeat.times * repeat.turns; i++)
      assert_turn(t, stage, &run, period[i % repeat.turns]);
    for (int i = 0; n == repeat.from && i < schedule_loops(t); i++)
      list.over[i] += repeat.times * repeat.parts;
    int loop = schedule_next(t, stage, &list);
    period[(n - repeat.from % repeat.turns + repeat.turns) % repeat.turns] = loop;
    list.over[loop]++;
    assert_turn(t, stage, &run, loop);
  }
  assert_true(schedule_done(t, &run));
  return true;
}

static void repeated_turns(void **unused) {
  (void)unused;
  int found = 0;
  for (int i = 0; i < 4000; i++) {
    Arena *arena = arena_new();
    ScheduleTable t = drawn_table(arena);
    found += repeats(&t, draw(t.stages), 1 + draw(6), draw(4));
    arena_free(arena);
  }
  printf("%d of 4000 stages repeat turns\n", found);
  assert_true(found > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules), cmocka_unit_test(repeated_turns)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

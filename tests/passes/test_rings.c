/* Schedules of chunks of layers, whose stages form a ring, over NCCL, where a send waits for its
   receive: pass `prove` runs each in the order of ir/schedule/send_order.h to its end, and refuses
   each that an edit has made wrong.

   Random stages, chunks and micro-batches; one time in four nothing is changed. Otherwise there is
   one change: a number of the table, after which stages may wait for each other for ever; or a
   message that is not sent, not received, or sent in the other direction. */
#include "common.h"
#include "ir/schedule/pipeline_schedule.h"
#include <string.h>

enum { STAGES = 5, PARTS = 9, CHUNKS = 3, WRONG = 2000 };

typedef struct RingEdit {
  int loop;     /* in which a message is otherwise; -1: in none */
  bool of_send; /* the one that leaves */
  bool gone;    /* else it goes the other way */
} RingEdit;

static uint64_t state = 7;

static int64_t draw(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- as text ---- */

static const char head[] =
    "kernel @mul(%0 : f32[E:8], %1 : f32[E:8]) {family = \"elem\", variant = \"vector\", "
    "tile = [8], chunks = [1]} {\n%2 = mul %0, %1 : f32[E:8]\nreturn %2\n}\n"
    "kernel @add(%0 : f32[E:8], %1 : f32[E:8]) {family = \"elem\", variant = \"vector\", "
    "tile = [8], chunks = [1]} {\n%2 = add %0, %1 : f32[E:8]\nreturn %2\n}\n";

static const char *hop_text(Arena *a, const ScheduleTable *t, RingEdit edit, int loop, bool send,
                            int from, int to) {
  bool back = loop >= t->chunks, here = edit.loop == loop && edit.of_send == send;
  int64_t chunk = schedule_loop_chunk(t, loop);
  bool wraps = back == send ? chunk > 0 : chunk < t->chunks - 1;
  if (here && edit.gone)
    return arena_printf(a, "%%%d = kernel @mul, %%%d, %%%d : f32[E:8]\n", to, from, from);
  return arena_printf(a, "%%%d = %s %%%d {%saxis = \"pipe\", ranks = %lld%s} : f32[E:8]\n", to,
                      send ? "send" : "receive", from, back != here ? "reverse = 1, " : "",
                      (long long)t->stages, wraps ? ", cyclic = 1" : "");
}

static const char *body_text(Arena *a, const ScheduleTable *t, RingEdit edit, int loop) {
  if (loop < t->chunks)
    return arena_printf(a,
                        "body @l%d(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8]) {\n%s%%4 = kernel "
                        "@mul, %%3, %%1 : f32[E:8]\n%sreturn %%3\n}\n",
                        loop, hop_text(a, t, edit, loop, false, 2, 3),
                        hop_text(a, t, edit, loop, true, 4, 5));
  return arena_printf(a,
                      "body @l%d(%%0 : i32[], %%1 : f32[E:8], %%2 : f32[E:8], %%3 : f32[E:8]) {\n"
                      "%s%%5 = kernel @mul, %%4, %%3 : f32[E:8]\n%s%%7 = kernel @add, %%1, %%5 : "
                      "f32[E:8]\nreturn %%7\n}\n",
                      loop, hop_text(a, t, edit, loop, false, 2, 4),
                      hop_text(a, t, edit, loop, true, 5, 6));
}

static const char *loop_text(Arena *a, const ScheduleTable *t, int loop) {
  const char *most = "";
  for (int64_t s = 0; s < t->stages; s++)
    most = arena_printf(a, "%s%s%lld", most, s ? ", " : "", (long long)t->most[s]);
  const char *same = arena_printf(a, "trip = %lld, turns = [%s], interleave = %lld",
                                  (long long)t->parts, most, (long long)t->chunks);
  int chunk = (int)schedule_loop_chunk(t, loop), kept = 3 + chunk;
  int64_t slots = schedule_between(t, chunk, 2 * (int)t->chunks - 1 - chunk, 0, t->stages - 1);
  if (loop < t->chunks)
    return arena_printf(a,
                        "%%%d = loop[micro] @l%d, %%0, %%1 {carry = 0, invariant = 1%s, %s} : "
                        "f32[micro:%lld, E:8]\n",
                        3 + loop, loop, loop ? "" : ", axis = \"pipe\"", same, (long long)slots);
  return arena_printf(a,
                      "%%%d = loop[micro] @l%d, %%2, %%0, %%%d {carry = 1, invariant = 1, %s} : "
                      "f32[E:8]\n",
                      3 + loop, loop, kept, same);
}

static const char *ring_text(Arena *a, const ScheduleTable *t, RingEdit edit) {
  const char *bodies = "", *loops = "", *states = "", *stores = "";
  for (int i = 0; i < schedule_loops(t); i++) {
    bodies = arena_printf(a, "%s%s", bodies, body_text(a, t, edit, i));
    loops = arena_printf(a, "%s%s", loops, loop_text(a, t, i));
    if (i < t->chunks) continue;
    states = arena_printf(a, "%sstate @g%d : f32[E:8]\n", states, i);
    stores = arena_printf(a, "%sstore @g%d, %%%d\n", stores, i, 3 + i);
  }
  return arena_printf(
      a,
      "shardc-ir 1\nmodel T\nafter turns\nmesh pipe = %lld\ninput @x : f32[micro:%lld, E:8]\n"
      "param @w : f32[E:8]\n%s%s%sentry @step {\n%%0 = load @w : f32[E:8]\n%%1 = load @x : "
      "f32[micro:%lld, E:8]\n%%2 = kernel @mul, %%0, %%0 : f32[E:8]\n%s%s}\n",
      (long long)t->stages, (long long)t->parts, states, head, bodies, (long long)t->parts, loops,
      stores);
}

/* ---- tests ---- */

/* Kernels are a processor's, and messages go as a GPU's. The verifier also detects messages without
   a peer; this test requires it of pass `prove`. */
static bool is_refused(Ctx *c, const char *text, bool cut) {
  PipelineOptions placed = {.until = "memory"}, proved = {.until = "prove"};
  Module *m = ir_parse(c, "ring", text, strlen(text));
  if (!m || (!cut && !ir_verify(m)) || !pipeline_run(m, &placed)) return true;
  m->target.device = DEVICE_GPU;
  return !pipeline_run(m, &proved);
}

static void rings(void **unused) {
  (void)unused;
  int wrong = 0, right = 0, waiting = 0;
  while (wrong < WRONG) {
    Ctx *c = ctx_new();
    ScheduleTable t =
        schedule_interleaved(c->arena, 2 + draw(STAGES - 1), 1 + draw(PARTS), 2 + draw(CHUNKS - 1));
    RingEdit edit = {.loop = -1, .of_send = draw(2), .gone = draw(2)};
    int64_t kind = draw(4);
    if (kind == 1) edit.loop = (int)draw(schedule_loops(&t));
    if (kind > 1) ((int64_t *)t.most)[draw(t.stages)] = 1 + draw(t.parts * t.chunks);
    double *time = ARENA_ARRAY(c->arena, double, t.stages *TURN_LOOPS);
    for (int64_t i = 0; i < t.stages * TURN_LOOPS; i++) time[i] = 1;
    bool stuck = schedule_makespan(&t, time) < 0, bad = stuck || edit.loop >= 0;
    const char *text = ring_text(c->arena, &t, edit);
    if (is_refused(c, text, edit.loop >= 0) != bad)
      printf("%s\nis %s, and this is said:\n%s", text, bad ? "wrong" : "right", reported(c)),
          fflush(stdout), abort();
    *(bad ? &wrong : &right) += 1;
    waiting += stuck && strstr(reported(c), "E1113") != NULL;
    ctx_free(c);
  }
  printf("%d wrong rings refused, %d of them since stages wait for ever; %d right ones taken\n",
         wrong, waiting, right);
  assert_true(right > WRONG / 10 && waiting > WRONG / 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pass prove, without the verifier before it: a message whose bytes somebody touches in flight, one
   that nobody waits for, a loop of many rounds that goes wrong in its last ones alone, and classes
   of ranks that disagree, or hang, are shown as they are. */
#include "common.h"
#include "passes/machine/prove.h"
#include <stdio.h>
#include <string.h>

#define HEAD "shardc-ir 1\nmodel T\nafter memory\nmesh data = 2, tensor = 2\n"
#define INPUTS "background read on data after take\nbackground take on compute after read\n"
#define KERNEL                                                                                     \
  "kernel @k(%0 : f32[O:2, P:8], %1 : f32[O:2, P:8]) {\n%2 = mul %0, %1 : f32[O:2, P:8]\nreturn "  \
  "%2\n}\n"

/* Nine rounds, each of which finds its weights gathered and adds to a stack of its own. */
static const char rounds[] = HEAD INPUTS KERNEL
    "param @w : f32[L:9, O/data:1, P:8] at(0)\ninput @x : f32[O:2, P:8] at(64)\n"
    "output @y : f32[O:2, P:8] at(0)\noutput @z : f32[L:9, O/data:1, P:8] at(128)\n"
    "body @h(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[O:2, P:8] {at(arg 1 + 0)}, %2 : f32[O:1, P:8] "
    "{at(arg 2 + 0)}) {frame = 64} {\n"
    "%3 = all_gather[O] %2 {axis = \"data\", ranks = 2, flight = -1} : f32[O:2, P:8] {0: at(ring 0 "
    "+ "
    "0)}\n"
    "%4 = wait %3, %2 : f32[O:2, P:8] {0: view(%3 + 0) at(ring 0 + 0)}\n"
    "%5 = kernel @k, %1, %4 : f32[O:2, P:8] {0: at(frame + 0)}\n"
    "%6 = kernel @k, %5, %4 : f32[O:2, P:8] {0: at(result 0 + 0)}\n"
    "%7 = kernel @k, %5, %5 : f32[O:2, P:8] {0: at(ring 1 + 0)}\n"
    "%8 = reduce_scatter[O] %7 {axis = \"data\", ranks = 2, flight = 1} : f32[O:1, P:8] {0: "
    "at(result 1 + 0)}\n"
    "return %6, %8\n}\n"
    "entry @step {frame = 448} {\n"
    "%0 = load @w : f32[L:9, O:1, P:8] {0: at(global @w + 0)}\n"
    "%1 = load @x : f32[O:2, P:8] {0: at(global @x + 0)}\n"
    "%2, %3 = loop[L] @h, %1, %0 {carry = 1, invariant = 0, trip = 9, work_at = 192, slots = "
    "[128], "
    "ring = [0, 64, 2, 256, 64, 2]} : f32[O:2, P:8], f32[L:9, O:1, P:8] {0: at(global @y + 0)} {1: "
    "at(global @z + 0)}\n"
    "store @y, %2\nstore @z, %3\n}\n";

static const char straight[] = HEAD INPUTS KERNEL
    "param @w : f32[O/data:1, P:8] at(0)\ninput @x : f32[O:2, P:8] at(64)\n"
    "output @y : f32[O:2, P:8] at(0)\n"
    "entry @step {frame = 128} {\n"
    "%0 = load @w : f32[O:1, P:8] {0: at(global @w + 0)}\n"
    "%1 = load @x : f32[O:2, P:8] {0: at(global @x + 0)}\n"
    "%2 = all_gather[O] %0 {axis = \"data\", ranks = 2, flight = 0} : f32[O:2, P:8] {0: at(frame + "
    "0)}\n"
    "%3 = kernel @k, %1, %1 : f32[O:2, P:8] {0: at(frame + 64)}\n"
    "%4 = wait %2, %0 : f32[O:2, P:8] {0: view(%2 + 0) at(frame + 0)}\n"
    "%5 = kernel @k, %3, %4 : f32[O:2, P:8] {0: at(global @y + 0)}\n"
    "store @y, %5\n}\n";

static const struct {
  const char *text, *from, *to; /* one thing is otherwise */
  const char *said;             /* NULL: nothing is wrong */
} cases[] = {
    {rounds, "trip", "trip", NULL},
    {rounds, "ring = [0, 64, 2,", "ring = [0, 64, 1,",
     "all_gather over data in @h, round 1 writes where bytes still arrive of all_gather over data "
     "in "
     "@h, round 0"},
    {rounds, "ring = [0, 64, 2,", "ring = [160, 64, 2,",
     "kernel @k in @h, round 0 writes where bytes still arrive of all_gather over data in @h, "
     "round "
     "1"},
    {rounds, "64, 2, 256, 64, 2]", "64, 2, 256, 64, 1]",
     "kernel @k in @h, round 1 writes what is still being sent by reduce_scatter over data in @h, "
     "round 0"},
    {rounds, "slots = [128]", "slots = [64]",
     "kernel @k in @h, round 2 reads what has not arrived of all_gather over data in @h, round 3"},
    {rounds, "{carry = 1", "{reverse = 1, carry = 1", NULL},
    {straight, "trip", "trip", NULL},
    {straight, "%1, %1 : f32[O:2, P:8] {0: at(frame + 64)}",
     "%1, %1 : f32[O:2, P:8] {0: at(frame + 32)}",
     "kernel @k in @step writes where bytes still arrive of all_gather over data in @step"},
    {straight, "kernel @k, %1, %1", "kernel @k, %1, %2",
     "kernel @k in @step reads what has not arrived of all_gather over data in @step"},
    {straight,
     "%4 = wait %2, %0 : f32[O:2, P:8] {0: view(%2 + 0) at(frame + 0)}\n%5 = kernel @k, %3, %4",
     "%5 = kernel @k, %3, %3", "all_gather over data in @step is started and never waited for"},
    {straight, "ranks = 2, flight = 0} : f32[O:2, P:8] {0: at(frame + 0)}\n",
     "ranks = 2} : f32[O:2, P:8] {0: at(frame + 0)}\n", NULL},
};

static Module *module_with(Ctx *c, const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  if (at) text = arena_printf(c->arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return ir_parse(c, "test.ir", text, strlen(text));
}

static void bytes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ctx *c = ctx_new();
    Module *m = module_with(c, cases[i].text, cases[i].from, cases[i].to);
    if (!m) fail_msg("case %zu: %s", i, reported(c));
    const Pass *prove = pass_find("prove");
    bool fine = passes_run(m, 1, &prove, &(PipelineOptions){.verify = false});
    const char *said = reported(c);
    if (fine != !cases[i].said ||
        (!fine && (!strstr(said, cases[i].said) || !strstr(said, "E1112"))))
      fail_msg("case %zu: %s\nexpected %s", i, said, cases[i].said ? cases[i].said : "nothing");
    ctx_free(c);
  }
}

/* ---- classes of ranks ---- */

#define LINES(first, second)                                                                       \
  HEAD "param @w : f32[O/data:1, P:8] at(0)\nparam @v : f32[O:2, P:8] at(64)\n"                    \
       "entry @step {frame = 256} {\n"                                                             \
       "%0 = load @w : f32[O:1, P:8] {0: at(global @w + 0)}\n"                                     \
       "%1 = load @v : f32[O:2, P:8] {0: at(global @v + 0)}\n" first second "}\n"
#define GATHER                                                                                     \
  "%2 = all_gather[O] %0 {axis = \"data\", ranks = 2} : f32[O:2, P:8] {0: at(frame + 0)}\n"
#define REDUCE                                                                                     \
  "%3 = all_reduce %1 {axis = \"tensor\", ranks = 2} : f32[O:2, P:8] {0: at(frame + 128)}\n"

static const struct {
  const char *first, *second;
  const char *said[3];
} classes[] = {
    {LINES(GATHER, REDUCE), LINES(GATHER, REDUCE), {0}},
    {LINES(GATHER, REDUCE),
     LINES(REDUCE, GATHER),
     {"ranks wait for each other for ever",
      "ranks 0 and 1 are at all_gather over data in @step, message 0 over that axis, and wait "
      "for "
      "ranks 2 and 3",
      "ranks 2 and 3 are at all_reduce over tensor in @step, message 0 over that axis, and wait "
      "for ranks 0 and 1"}},
    {LINES(GATHER, REDUCE),
     LINES(GATHER, ""),
     {"ranks do not agree on message 0 over tensor",
      "ranks 0 and 1: all_reduce over tensor in @step", "ranks 2 and 3: none"}},
};

static void order(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    Ctx *c = ctx_new();
    Module *a = module_with(c, classes[i].first, "#", ""),
           *b = module_with(c, classes[i].second, "#", "");
    if (!a || !b) fail_msg("case %zu: %s", i, reported(c));
    EventList x = events_of(a, a->fns.at[0]), y = events_of(b, b->fns.at[0]);
    const RankClass both[] = {{.name = "ranks 0 and 1", .events = &x},
                              {.name = "ranks 2 and 3", .events = &y}};
    bool fine = prove_order(a, both, 2);
    const char *said = reported(c);
    if (fine != !classes[i].said[0]) fail_msg("case %zu: %s", i, said);
    for (int k = 0; k < 3 && classes[i].said[k]; k++)
      if (!strstr(said, classes[i].said[k]) || !strstr(said, "E1113"))
        fail_msg("case %zu: %s\nexpected %s", i, said, classes[i].said[k]);
    ctx_free(c);
  }
}

/* ---- neighbours ---- */

#define HOPS(ops)                                                                                  \
  "shardc-ir 1\nmodel T\nafter memory\nmesh pipe = 3, data = 2\n"                                  \
  "param @v : f32[O:2, P:8] at(0)\nentry @step {frame = 256} {\n"                                  \
  "%0 = load @v : f32[O:2, P:8] {0: at(global @v + 0)}\n" ops "}\n"
#define MESSAGE(r, op, a, rest, at)                                                                \
  "%" r " = " op " %" a " {" rest ", ranks = 3} : f32[O:2, P:8] {0: at(frame + " at ")}\n"
#define RECEIVE MESSAGE("1", "receive", "0", "axis = \"pipe\"", "0")
#define SEND MESSAGE("2", "send", "1", "axis = \"pipe\"", "64")
#define SEND_BACK MESSAGE("2", "send", "1", "reverse = 1, axis = \"pipe\"", "64")
#define SEND_BACK_OF(r, a) MESSAGE(r, "send", a, "reverse = 1, axis = \"pipe\"", "128")
#define RECEIVE_INTO(r) MESSAGE(r, "receive", "0", "axis = \"pipe\"", "192")
#define SUM(a) MESSAGE("3", "all_reduce", a, "axis = \"pipe\"", "128")

static const struct {
  const char *text;
  const char *said[3]; /* NULL: all places come to an end */
} hops[] = {
    {HOPS(RECEIVE SEND SUM("2")), {0}},
    {HOPS(SEND_BACK SUM("2")),
     {"ranks wait for each other for ever", "ranks at pipe 0 are at all_reduce over pipe",
      "ranks at pipe 1 are at send over pipe"}},
    {HOPS(RECEIVE SUM("1") SEND),
     {"ranks wait for each other for ever", "ranks at pipe 0 are at all_reduce over pipe",
      "ranks at pipe 1 are at receive over pipe"}},
    {HOPS(RECEIVE SEND_BACK),
     {"ranks wait for each other for ever", "ranks at pipe 1 are at receive over pipe",
      "ranks at pipe 2 are at receive over pipe"}},
};

static void neighbours(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hops / sizeof *hops; i++) {
    Ctx *c = ctx_new();
    const char *text = hops[i].text;
    if (strstr(text, "%1 = ") == NULL) { /* a send of what is loaded */
      const char *at = strstr(text, "send %1");
      text = arena_printf(c->arena, "%.*ssend %%0%s", (int)(at - text), text, at + 7);
    }
    Module *m = module_with(c, text, "#", "");
    if (!m) fail_msg("case %zu: %s", i, reported(c));
    EventList l = events_of(m, m->fns.at[0]);
    bool fine = prove_hops(m, &(RankClass){.name = "all ranks", .events = &l}, 1);
    const char *said = reported(c);
    if (fine != !hops[i].said[0]) fail_msg("case %zu: %s", i, said);
    for (int k = 0; k < 3 && hops[i].said[k]; k++)
      if (!strstr(said, hops[i].said[k]))
        fail_msg("case %zu: %s\nexpected %s", i, said, hops[i].said[k]);
    ctx_free(c);
  }
}

/* Each send of the op, on all stages, is grouped with the receive after it. */
static void join(Module *m, SendOrder *order, const Op *send) {
  SendRuns *runs = ARENA_ARRAY(m->arena, SendRuns, 3);
  for (int s = 0; s < 3; s++) vec_push(m->arena, runs[s], (SendRun){9, {0, true}});
  vec_push(m->arena, order->rows, (SendRow){send, NULL, runs});
}

/* Both stages of a border send first: over NCCL that ends only if one of the sends is grouped with
   the receive after it. */
static void beside(void **state) {
  static const struct {
    bool pairs, up, down; /* over NCCL; does that send go alone? */
    bool fine;
  } cases[] = {{false, false, false, false},
               {true, false, false, true},
               {true, true, false, true},
               {true, false, true, true},
               {true, true, true, false}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ctx *c = ctx_new();
    Module *m = module_with(c,
                            HOPS(MESSAGE("1", "send", "0", "axis = \"pipe\"", "0")
                                     MESSAGE("2", "receive", "0", "reverse = 1, axis = \"pipe\"",
                                             "64") SEND_BACK_OF("3", "0") RECEIVE_INTO("4")),
                            "#", "");
    if (!m) fail_msg("%s", reported(c));
    EventList l = events_of(m, m->fns.at[0]);
    RankClass k = {.name = "all ranks", .events = &l, .turns = cases[i].pairs};
    k.sends = (SendOrder){.used = cases[i].pairs, .slots = 1};
    if (!cases[i].up) join(m, &k.sends, event_op(&l.at.at[0]));
    if (!cases[i].down) join(m, &k.sends, event_op(&l.at.at[2]));
    if (prove_hops(m, &k, 1) != cases[i].fine) fail_msg("case %zu: %s", i, reported(c));
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bytes), cmocka_unit_test(order),
                                     cmocka_unit_test(neighbours), cmocka_unit_test(beside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The verifier: frames, arenas, callers' bytes, and what lives in them at the same time. */
#include "broken.h"

#define EXP4 "kernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define PLACED_ENTRY(lines)                                                                        \
  "memory\nparam @p : f32[A:4] at(0)\nparam @q : f32[A:4] at(64)\n" EXP4                           \
  "entry @e {frame = 64} {\n" lines "\n}\n"
#define PLACED_LOOP_OF(frame, place, result, attributes)                                           \
  "memory\n" EXP4 "body @f(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}, "            \
  "%2 : f32[A:4] {at(arg 2 + 0)}) {frame = " frame "} {\n"                                         \
  "%3 = kernel @k, %1 : f32[A:4] {0: " place "}\nreturn " result                                   \
  "\n}\nbody @b(%0 : f32[A:4] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}) {frame = 64} {\n"    \
  "%2 = loop[L] @f, %0, %1 {carry = 1, invariant = 1, trip = 2, " attributes                       \
  "} : f32[A:4] {0: at(frame + 0)}\n}\n"
#define ORDERED_BODY(results)                                                                      \
  "order\n" EXP4 "body @f(%0 : i32[], %1 : f32[A:4], %2 : f32[A:4]) {\n"                           \
  "%3 = kernel @k, %1 : f32[A:4]\nreturn " results                                                 \
  "\n}\nbody @b(%0 : f32[A:4], %1 : f32[A:4]) {\n%2, %3 = loop[L] @f, %0, %1 "                     \
  "{carry = 1, invariant = 1, trip = 2} : f32[A:4], f32[L:2, A:4]\n}\n"
#define UPDATED(then)                                                                              \
  "order\nparam @p : f32[A:4]\nparam @q : f32[A:4]\n" EXP4                                         \
  "entry @e {\n%0 = load @p : f32[A:4]\n%1 = kernel @k, %0 : f32[A:4] {0: inplace(%0)}\n" then     \
  "\n}\n"
#define PLACED_BODY(place, result) PLACED_LOOP_OF("16", place, result, "work_at = 32, slots = [16]")
#define PLACED_LOOP(attributes) PLACED_LOOP_OF("16", "at(result 0 + 0)", "%3", attributes)

static const Broken modules[] = {
    {"place-c3", "E1108",
     "memory\nmesh x = 2\ntarget {device = gpu, ..}\nbody @b(%0 : f32[A:4, B:1] {at(arg 0 + 0)}) "
     "{frame = 64} {\n%1 = all_gather[B] %0 {axis = \"x\", ranks = 2, workspace = 64, work_at = 0} "
     ": "
     "f32[A:4, B:2] {0: at(frame + 0)}\nreturn %1\n}\n"},
    {"place-c1", "E1108", "memory\nbody @b(%0 : f32[]) {\n}\n"},
    {"place-c2", "E1108", "memory\nbody @b(%0 : f32[] {at(arg 0 + 2)}) {\n}\n"},
    {"place-c4", "E1108", "memory\nbody @b(%0 : f32[] {at(arg 1 + 0)}) {\n}\n"},
    {"place-c5", "E1108",
     "memory\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 15} {\n"
     "%1 = kernel @k, %0 : f32[A:4] {0: at(frame + 0)}\n}\n"},
    {"place-c7", "E1108",
     "memory\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {\n%1 = kernel @k, %0 : f32[A:4] {0: at(arg 0 + 0)}\n"
     "return %1\n}\n"},
    {"place-c6", "E1108",
     "memory\nbody @b(%0 : f32[A:4] {at(arg 0 + 0)}) {\n"
     "%1 = slice[A -> B] %0 {at = 2} : f32[B:2] {0: view(%0 + 2) at(arg 0 + 4)}\n}\n"},
    {"place-c3", "E1108",
     "memory\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 64} {\n%1 = kernel @k, %0 : f32[A:4] {0: "
     "at(frame + 0)}\n"
     "%2 = kernel @k, %1 : f32[A:4] {0: at(frame + 0)}\n}\n"},
    {"place-c3", "E1108",
     "memory\nkernel @k(%0 : f32[A:4]) {workspace = 8} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 64} {\n%1 = kernel @k, %0 {work_at = 0} : "
     "f32[A:4] {0: at(frame + 0)}\n}\n"},
    {"place-c3", "E1108",
     "memory\nparam @p : f32[A:4] at(0)\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : "
     "f32[A:4]\nreturn "
     "%1\n}\n"
     "entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
     "%1 = kernel @k, %0 : f32[A:4] {0: at(global @p + 0)}\nstore @p, %1\n}\n"},
    {"place-c3", "E1108",
     "memory\nparam @p : f32[A:4] at(0)\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : "
     "f32[A:4]\nreturn "
     "%1\n}\n"
     "entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n%1 = kernel @k, %0 "
     ": f32[A:4] {0: at(frame + 0)}\n"
     "store @p, %1\n%2 = kernel @k, %0 : f32[A:4] {0: at(frame + 16)}\n}\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4]\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(-64)\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(4)\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(9223372036854775744)\n"},
    {"arena-c2", "E1108", "memory\nparam @p : f32[A:32] at(0)\nparam @q : f32[A:4] at(64)\n"},
    {"arena-c3", "E1108",
     "memory\nparam @g : f32[F:4] at(0)\nparam @p : f32[A:2] in @g from 0 at(0)\n"},
    {"arena-c4", "E1108",
     "memory\nset made.stages = \"x\"\nset made.class = \"first\"\nmesh x = 2\n"
     "param @p : f32[A:4] {last} at(0)\nentry @e {frame = 0} {\n"
     "%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n}\n"},
    {"arena-c5", "E1108",
     "memory\nparam @p : f32[A:4] at(0)\noutput @out.y : f32[A:4] at(0)\n"
     "entry @step {frame = 0} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
     "store @out.y, %0\n}\n"},
    {"held-c2", "E1108", PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @q + 0)}")},
    {"held-c2", "E1108", PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(frame + 0)}")},
    {"held-c3", "E1108",
     PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
                  "%1 = kernel @k, %0 : f32[A:4] {0: at(global @q + 0)}")},
    {"held-c5", "E1107",
     PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
                  "%1 = kernel @k, %0 : f32[A:4] {0: inplace(%0) at(global @p + 0)}")},
    {"held-c5", "E1107", UPDATED("store @q, %1")},
    {"held-c5", "E1107", UPDATED("store @p, %1\n%2 = kernel @k, %1 : f32[A:4] {0: inplace(%1)}")},
    {"held-c4", "E1108",
     "memory\nparam @p : f32[A:4] at(0)\n" EXP4 "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {\n"
     "%1 = kernel @k, %0 : f32[A:4] {0: at(global @p + 0)}\n}\n"},
    {"place-c5", "E1108", "memory\nbody @b(%0 : f32[A:4] {at(arg 0 + 1048576)}) {\n}\n"},
    {"room-c1", "E1108", "memory\nbody @b(%0 : f32[A:4] {at(frame + 0)}) {frame = 16} {\n}\n"},
    {"place-c5", "E1108", PLACED_BODY("at(result 0 + 1048576)", "%3")},
    {"place-c5", "E1108", PLACED_BODY("at(result 0 + 9223372036854775804)", "%3")},
    {"room-c2", "E1108", PLACED_BODY("at(result 0 + 0)", "%1")},
    {"room-c3", "E1108", PLACED_BODY("at(frame + 0)", "%3")},
    {"room-c4", "E1107", PLACED_BODY("at(frame + 0)", "%2")},
    {"room-c4", "E1107", ORDERED_BODY("%3, %3")},
    {"room-c4", "E1107", ORDERED_BODY("%3, %2")},
    {"frame-c1", "E1108", "memory\nbody @b(%0 : f32[] {at(arg 0 + 0)}) {frame = -64} {\n}\n"},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = -64, slots = [16]")},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = 64, slots = [16]")},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = 9223372036854775792, slots = [16]")},
    {"frame-c4", "E1108", PLACED_LOOP("slots = [16]")},
    {"frame-c2", "E1108", PLACED_LOOP("work_at = 32")},
    {"frame-c2", "E1108", PLACED_LOOP("work_at = 32, slots = [-1]")},
    {"frame-c2", "E1108", PLACED_LOOP("work_at = 32, slots = [-16]")},
    {"frame-c2", "E1108", PLACED_LOOP("work_at = 32, slots = [64]")},
    {"frame-c3", "E1108",
     "memory\n" EXP4 "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 64} {\n"
     "%1 = kernel @k, %0 : f32[A:4] {0: at(frame + 4)}\n}\n"},
};

/* Right modules, near the broken ones. */
static const char *const sound[] = {
    ORDERED_BODY("%3, %1"), /* the carried value's buffers are the slices of the second result */
    UPDATED("store @p, %1"),
    "memory\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
    "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 32} {\n%1 = kernel @k, %0 : f32[A:4] {0: "
    "at(frame + 0)}\n"
    "%2 = kernel @k, %1 : f32[A:4] {0: at(frame + 16)}\n%3 = kernel @k, %2 : f32[A:4] {0: at(frame "
    "+ 0)}\n}\n",
    "memory\nparam @p : f32[A:4] at(0)\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn "
    "%1\n}\n"
    "entry @e {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
    "%1 = kernel @k, %0 : f32[A:4] {0: inplace(%0) at(global @p + 0)}\nstore @p, %1\n}\n",
    PLACED_BODY("at(result 0 + 0)", "%3"),
    PLACED_LOOP("work_at = 48, slots = [16]"),
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}

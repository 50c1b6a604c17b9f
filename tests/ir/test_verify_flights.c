/* The verifier: messages in flight, their waits, and the rings of those that fly over rounds. */
#include "broken.h"

#define EXP2 "kernel @k(%0 : f32[O:2, A:4]) {\n%1 = exp %0 : f32[O:2, A:4]\nreturn %1\n}\n"
#define LOCAL(lines)                                                                               \
  "prefetch\nmesh x = 2\n" EXP2 "body @b(%0 : f32[O:1, A:4], %1 : f32[O:2, A:4]) {\n" lines "\n}"  \
  "\n"
#define GATHER(attributes)                                                                         \
  "%2 = all_gather[O] %0 {axis = \"x\", ranks = 2" attributes "} : f32[O:2, A:4]\n"
#define WAIT "%3 = wait %2, %0 : f32[O:2, A:4] {0: view(%2 + 0)}\n"
#define RETURN "%4 = kernel @k, %3 : f32[O:2, A:4]\nreturn %4"

/* A body that gathers slices an iteration ahead, and one that reduces them late; the cases differ
   in `after` and its operands. */
#define FETCH_OF(body, loop)                                                                       \
  EXP2 "body @f(%0 : i32[], %1 : f32[O:2, A:4], %2 : f32[O:1, A:4]) {\n" body                      \
       "\n}\nbody @b(%0 : f32[O:2, A:4], %1 : f32[L:3, O:1, A:4], %2 : f32[O:1, A:4]) {\n" loop    \
       "\n}\n"
#define FETCH "%3 = all_gather[O] %2 {axis = \"x\", ranks = 2, flight = -1} : f32[O:2, A:4]\n"
#define FETCHED                                                                                    \
  FETCH "%4 = wait %3, %2 : f32[O:2, A:4] {0: view(%3 + 0)}\n%5 = kernel @k, %4 : f32[O:2, A:4]\n" \
        "return %5"
#define OVER(attributes)                                                                           \
  "%3 = loop[L] @f, %0, %1 {carry = 1, invariant = 0, trip = 3" attributes                         \
  "} : f32[O:2, A:4]\nreturn %3"
#define DRAIN_OF(body)                                                                             \
  "prefetch\nmesh x = 2\n" EXP2 "body @f(%0 : i32[], %1 : f32[O:2, A:4]) {\n" body                 \
  "\n}\nbody @b(%0 : f32[L:3, O:2, A:4]) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 0, trip "  \
  "= 3} : f32[L:3, O:1, A:4]\nreturn %1\n}\n"
#define REDUCE(operand, flight)                                                                    \
  "%3 = reduce_scatter[O] " operand " {axis = \"x\", ranks = 2, flight = " flight                  \
  "} : f32[O:1, A:4]\n"

#define CHAIN(flight, storage)                                                                     \
  "%2 = kernel @k, %1 : f32[O:2, A:4]\n" REDUCE(                                                   \
      "%2", "1") "%4 = all_reduce %3 {axis = \"x\", ranks = 2, flight = " flight                   \
                 "} : f32[O:1, A:4] " storage "\n"

#define PLACED(ring, wait, attributes)                                                             \
  "memory\nmesh x = 2\n" EXP2                                                                      \
  "body @f(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[O:2, A:4] {at(arg 1 + 0)}, %2 : f32[O:1, A:4] "    \
  "{at(arg 2 + 0)}) {frame = 32} {\n"                                                              \
  "%3 = all_gather[O] %2 {axis = \"x\", ranks = 2, flight = -1} : f32[O:2, A:4] {0: " ring "}\n"   \
  "%4 = wait %3, %2 : f32[O:2, A:4] {0: view(%3 + 0) " wait "}\n"                                  \
  "%5 = kernel @k, %4 : f32[O:2, A:4] {0: at(result 0 + 0)}\nreturn %5\n}\n"                       \
  "body @b(%0 : f32[O:2, A:4] {at(arg 0 + 0)}, %1 : f32[L:3, O:1, A:4] {at(arg 1 + 0)}) "          \
  "{frame = 192} {\n%2 = loop[L] @f, %0, %1 {carry = 1, invariant = 0, trip = 3, work_at = 64, "   \
  "slots = [128]" attributes "} : f32[O:2, A:4] {0: at(result 0 + 0)}\nreturn %2\n}\n"
#define RING "at(ring 0 + 0)"

static const Broken modules[] = {
    {"flight-c1", "E1111",
     "localize\nmesh x = 2\nbody @b(%0 : f32[O:1, A:4]) {\n%1 = all_gather[O] %0 {axis = \"x\", "
     "ranks = 2, flight = 0} : f32[O:2, A:4]\n}\n"},
    {"flight-c1", "E1111",
     "localize\nbody @b(%0 : f32[A:4]) {\n%1 = wait %0 : f32[A:4]\nreturn %1\n}\n"},
    {"flight-c1", "E1111", LOCAL(GATHER(", flight = 2") WAIT RETURN)},
    {"flight-c2", "E1111", LOCAL(GATHER(", flight = 0") "return %1")},
    {"flight-c2", "E1111",
     LOCAL(GATHER(", flight = 0") WAIT "%4 = kernel @k, %2 : f32[O:2, A:4]\nreturn %4")},
    {"flight-c2", "E1111",
     LOCAL(GATHER(", flight = 0") WAIT
           "%9 = wait %2, %0 : f32[O:2, A:4] {0: view(%2 + 0)}\n" RETURN)},
    {"flight-c2", "E1111", LOCAL(GATHER(", flight = 0") WAIT "return %2")},
    {"flight-c3", "E1111", LOCAL(GATHER("") WAIT RETURN)},
    {"flight-c3", "E1111",
     LOCAL(GATHER(", flight = 0") "%3 = wait %2 : f32[O:2, A:4] {0: view(%2 + 0)}\n" RETURN)},
    {"flight-c3", "E1111",
     LOCAL(GATHER(", flight = 0") "%3 = wait %2, %1 : f32[O:2, A:4] {0: view(%2 + 0)}\n" RETURN)},
    {"flight-c4", "E1111", /* what is gathered is made in the round */
     "prefetch\nmesh x = 2\n" FETCH_OF(
         "%3 = reduce_scatter[O] %1 {axis = \"x\", ranks = 2} : f32[O:1, A:4]\n"
         "%4 = all_gather[O] %3 {axis = \"x\", ranks = 2, flight = -1} : f32[O:2, A:4]\n"
         "%5 = wait %4, %3 : f32[O:2, A:4] {0: view(%4 + 0)}\n"
         "%6 = kernel @k, %5 : f32[O:2, A:4]\nreturn %6",
         OVER(""))},
    {"flight-c4", "E1111",
     DRAIN_OF("%2 = kernel @k, %1 : f32[O:2, A:4]\n" REDUCE(
         "%2", "1") "%4 = rename[A -> B] %3 : f32[O:1, B:4] {0: view(%3 + 0)}\nreturn %3")},
    {"flight-c4", "E1111",
     DRAIN_OF("%2 = reduce_scatter[O] %1 {axis = \"x\", ranks = 2} : f32[O:1, A:4]\n"
              "%3 = all_gather[O] %2 {axis = \"x\", ranks = 2, flight = 1} : f32[O:2, A:4]\n"
              "return %2")},
    /* what is sent on: in its place, by one op of 1, and read by nothing else */
    {"flight-c4", "E1111", DRAIN_OF(CHAIN("1", "") "return %4")},
    {"flight-c2", "E1111", DRAIN_OF(CHAIN("0", "{0: inplace(%3)}") "return %4")},
    {"order-c5", "E1107",
     DRAIN_OF(CHAIN("1", "{0: inplace(%3)}") "%6 = rename[A -> B] %3 : f32[O:1, B:4] "
                                             "{0: view(%3 + 0)}\nreturn %4")},
    {"flight-c4", "E1111", /* rings have no room for it */
     "prefetch\nmesh x = 2\n" FETCH_OF(
         "%3 = all_gather[O] %2 {axis = \"x\", ranks = 2, flight = -1, workspace = 64} : f32[O:2, "
         "A:4]\n%4 = wait %3, %2 : f32[O:2, A:4] {0: view(%3 + 0)}\n%5 = kernel @k, %4 : f32[O:2, "
         "A:4]\nreturn %5",
         OVER(""))},
    {"flight-c5", "E1111", DRAIN_OF(REDUCE("%1", "1") "return %3")},
    {"flight-c5", "E1111",
     "prefetch\nmesh x = 2\n" FETCH_OF(
         FETCH "%4 = wait %3, %2 : f32[O:2, A:4] {0: view(%3 + 0)}\nreturn %4", OVER(""))},
    {"flight-c6", "E1111",
     "prefetch\nmesh x = 2\n" FETCH_OF(FETCHED,
                                       "%3 = loop[L] @f, %0, %2 {carry = 1, invariant = 1, "
                                       "trip = 3} : f32[O:2, A:4]\nreturn %3")},
    {"flight-c7", "E1111", PLACED("at(frame + 0)", "at(frame + 0)", ", ring = [0, 32, 2]")},
    {"flight-c7", "E1111", PLACED("at(ring 0 + 16)", "at(ring 0 + 16)", ", ring = [0, 48, 2]")},
    {"flight-c8", "E1111", PLACED(RING, RING, "")},
    {"flight-c8", "E1111", PLACED(RING, RING, ", ring = [0, 32, 1]")},
    {"flight-c8", "E1111", PLACED(RING, RING, ", ring = [0, 16, 2]")},
    {"flight-c8", "E1111", PLACED(RING, RING, ", ring = [160, 32, 2]")},
    {"place-c4", "E1108", PLACED("at(ring 1 + 0)", "at(ring 1 + 0)", ", ring = [0, 32, 2]")},
    {"place-c3", "E1108", PLACED(RING, RING, ", ring = [96, 32, 2]")}, /* the second buffer of %0 */
    /* an operand that is written over before the wait: the wait reads it */
    {"order-c5", "E1107",
     "prefetch\nmesh x = 2\nkernel @k(%0 : f32[O:1, A:4]) {\n%1 = exp %0 : f32[O:1, A:4]\nreturn "
     "%1\n}\nbody @b(%0 : f32[O:1, A:4]) {\n%1 = kernel @k, %0 : f32[O:1, A:4]\n"
     "%2 = all_gather[O] %1 {axis = \"x\", ranks = 2, flight = 0} : f32[O:2, A:4]\n"
     "%3 = kernel @k, %1 : f32[O:1, A:4] {0: inplace(%1)}\n"
     "%4 = wait %2, %1 : f32[O:2, A:4] {0: view(%2 + 0)}\nreturn %3, %4\n}\n"},
};

static const char *const sound[] = {
    LOCAL(GATHER(", flight = 0") "%3 = kernel @k, %1 : f32[O:2, A:4]\n"
                                 "%4 = wait %2, %0 : f32[O:2, A:4] {0: view(%2 + 0)}\n%5 = kernel "
                                 "@k, %4 : f32[O:2, A:4]\n"
                                 "return %3, %5"),
    "prefetch\nmesh x = 2\n" FETCH_OF(FETCHED, OVER("")),
    DRAIN_OF("%2 = kernel @k, %1 : f32[O:2, A:4]\n" REDUCE("%2", "1") "return %3"),
    DRAIN_OF(CHAIN("1", "{0: inplace(%3)}") "return %4"),
    PLACED(RING, RING, ", ring = [0, 32, 2]"),
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}

/* The verifier: calls and loops, loads and stores, globals inside others. */
#include "broken.h"

#define FLAT_WITH(first, second)                                                                   \
  "zero\nparam @g : f32[F:8]\nparam @p : f32[A:4] in @g " first                                    \
  "\nparam @q : f32[A:4] in @g " second "\n"

/* Rounds over a part of five, their results stacked so. */
#define PART_LOOP(part, type)                                                                      \
  "lower\nbody @f(%0 : i32[], %1 : f32[A:2]) {\n%2 = exp %1 : f32[A:2]\nreturn %2\n}\n"            \
  "body @g(%0 : f32[L:5, A:2]) {\n"                                                                \
  "%1 = loop[L] @f, %0 {carry = 0, invariant = 0, " part "} : " type "\nreturn %1\n}\n"

/* One loop writes slices 0 and 1 of five, another one the given number of further slices. */
#define TWO_PARTS(trip, then)                                                                      \
  "lower\nbody @f(%0 : i32[]) {\n%1 = const {value = 1} : f32[]\n%2 = expand[A] %1 : "             \
  "f32[A:2]\nreturn %2\n}\nbody @h(%0 : i32[], %1 : f32[A:2]) {\n%2 = const {value = 1} : "        \
  "f32[]\n%3 = expand[A] %2 : f32[A:2]\nreturn %3\n}\nbody @r(%0 : i32[], %1 : f32[A:2]) {\n%2 = " \
  "exp %1 : f32[A:2]\nreturn %2\n}\nbody @g(%0 : f32[]) {\n%1 = loop[L] @f {carry = 0, invariant " \
  "= 0, trip = 2, stack_length = 5, continues = [-2]} : f32[L:5, A:2]\n%2 = loop[L] @h, %1 "       \
  "{carry = "                                                                                      \
  "0, "                                                                                            \
  "invariant = 0, trip = " trip ", stack_length = 5, continues = [0]} : f32[L:5, A:2]\n" then      \
  "}\n"

/* Two loops whose rounds take turns, three parts over two stages. */
#define TURNS(forward, between, backward, then)                                                    \
  "lower\nmesh x = 2\nbody @f(%0 : i32[], %1 : f32[]) {\n%2 = exp %1 : f32[]\nreturn %2\n}\n"      \
  "body @h(%0 : i32[], %1 : f32[], %2 : f32[]) {\n%3 = add %1, %2 : f32[]\nreturn %3\n}\n"         \
  "body @g(%0 : f32[]) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 1, trip = 3, " forward       \
  "} : f32[L:2]\n" between                                                                         \
  "%2 = loop[L] @h, %0, %1 {carry = 1, invariant = 0, trip = 3, " backward "} : f32[]" then        \
  "\n}\n"

#define ONE_EACH "turns = [1, 1], interleave = 2"

static const Broken modules[] = {
    {"fn-c2", "E1105", "lower\nentry @e(%0 : f32[]) {\n}\n"},
    {"call-c2", "E1104",
     "lower\nbody @f(%0 : f32[]) {\nreturn %0\n}\nbody @g(%0 : f32[]) {\n%1 = call @f, %0, %0 : "
     "f32[]\n}\n"},
    {"call-c3", "E1104",
     "lower\nbody @f(%0 : f32[]) {\nreturn %0\n}\nbody @g(%0 : i32[]) {\n%1 = call @f, %0 : "
     "f32[]\n}\n"},
    {"call-c4", "E1104",
     "lower\nbody @f(%0 : f32[]) {\nreturn %0\n}\nbody @g(%0 : f32[]) {\n%1 = kernel @f, %0 : "
     "f32[]\n}\n"},
    {"call-c5", "E1104", "lower\nbody @f(%0 : f32[]) {\n%1 = call @f, %0 : f32[]\nreturn %1\n}\n"},
    {"call-c6", "E1104",
     "lower\ninput @i : f32[]\nkernel @k() {\n%0 = load @i : f32[]\nreturn %0\n}\n"},
    {"loop-c1", "E1104",
     "lower\nbody @f(%0 : i32[]) {\n}\nbody @g() {\nloop[L] @f {carry = 0, invariant = 0, trip = "
     "0}\n}\n"},
    {"loop-c2", "E1104",
     "lower\nbody @f(%0 : i32[]) {\n}\nbody @g() {\nloop[L] @f {carry = 1, invariant = 0, trip = "
     "2}\n}\n"},
    {"loop-c3", "E1104",
     "lower\nbody @f() {\n}\nbody @g() {\nloop[L] @f {carry = 0, invariant = 0, trip = 2}\n}\n"},
    {"loop-c4", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[A:2]) {\n}\nbody @g(%0 : f32[]) {\n"
     "loop[L] @f, %0 {carry = 0, invariant = 1, trip = 2}\n}\n"},
    {"loop-c5", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[A:2]) {\n}\nbody @g(%0 : f32[L:3, A:2]) {\n"
     "loop[L] @f, %0 {carry = 0, invariant = 0, trip = 2}\n}\n"},
    {"loop-c6", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[A:2]) {\n%2 = sum[A] %1 : f32[]\nreturn %2\n}\n"
     "body @g(%0 : f32[A:2]) {\n%1 = loop[L] @f, %0 {carry = 1, invariant = 0, trip = 2} : "
     "f32[]\n}\n"},
    {"loop-c7", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[L:2]) {\nreturn %1\n}\nbody @g(%0 : f32[L:2]) {\n"
     "%1 = loop[L] @f, %0 {carry = 0, invariant = 1, trip = 2} : f32[L:2]\n}\n"},
    {"loop-c8", "E1104",
     "lower\nbody @f(%0 : i64[]) {\n}\nbody @g() {\nloop[L] @f {carry = 0, invariant = 0, trip = "
     "2}\n}\n"},
    {"loop-c9", "E1104", PART_LOOP("trip = 2, first = -1", "f32[L:2, A:2]")},
    {"loop-c9", "E1104", PART_LOOP("trip = 2, start = 2147483647", "f32[L:2, A:2]")},
    {"rounds-c1", "E1103", PART_LOOP("trip = 5, rounds = \"slices\"", "f32[L:5, A:2]")},
    {"rounds-c2", "E1103",
     PART_LOOP("trip = 5, path = \"h\", rounds = \"micro\"", "f32[L:5, A:2]")},
    {"loop-c10", "E1104", PART_LOOP("trip = 2, start = 4, stack_length = 5", "f32[L:2, A:2]")},
    {"loop-c10", "E1104", PART_LOOP("trip = 5, stack_length = 5", "f32[L:5, A:2]")},
    {"loop-c11", "E1104", PART_LOOP("trip = 5, continues = [-2]", "f32[L:5, A:2]")},
    {"loop-c11", "E1104", PART_LOOP("trip = 2, stack_length = 5, continues = []", "f32[L:2, A:2]")},
    {"loop-c12", "E1104",
     PART_LOOP("trip = 2, stack_length = 5, continues = [1]", "f32[L:5, A:2]")},
    {"loop-c12", "E1104",
     PART_LOOP("trip = 2, stack_length = 5, continues = [-3]", "f32[L:5, A:2]")},
    {"loop-c12", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[]) {\n%2 = expand[A] %1 : f32[A:2]\nreturn %2\n}\n"
     "body @g(%0 : f32[L:5]) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 0, trip = 2, "
     "stack_length = 5, "
     "continues = [0]} : f32[L:5, A:2]\n}\n"},
    {"loop-c12", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[]) {\nreturn %1, %1\n}\n"
     "body @g(%0 : f32[L:5]) {\n%1, %2 = loop[L] @f, %0 {carry = 0, invariant = 0, trip = 2, of = "
     "5, continues = [0, 0]} : f32[L:5], f32[L:5]\n}\n"},
    {"loop-c13", "E1104",
     PART_LOOP("trip = 2, stack_length = 5, continues = [-2]", "f32[L:5, A:2]")},
    {"loop-c13", "E1104", TWO_PARTS("3, start = 1", "%3 = exp %2 : f32[L:5, A:2]\n")},
    {"loop-c13", "E1104",
     TWO_PARTS("3, start = 2",
               "%3 = loop[L] @r, %1 {carry = 0, invariant = 0, trip = 3, stack_length = 5} : "
               "f32[L:3, A:2]\n")},
    {"turns-c1", "E1104", TURNS("axis = \"x\", turns = [4, 2]", "", "turns = [2, 1]", "")},
    {"turns-c1", "E1104", TURNS("axis = \"x\", turns = [2, 0]", "", "turns = [2, 1]", "")},
    {"turns-c2", "E1104", TURNS("axis = \"x\", turns = []", "", "turns = [2, 1]", "")},
    {"turns-c2", "E1104",
     TURNS("axis = \"x\", turns = [2, 1]", "", "reverse = 1, turns = [2, 1]", "")},
    {"turns-c3", "E1104", TURNS("axis = \"x\", turns = [2, 1]", "", "turns = [2, 2]", "")},
    {"turns-c4", "E1104", TURNS("axis = \"y\", turns = [2, 1]", "", "turns = [2, 1]", "")},
    {"turns-c4", "E1104", TURNS("axis = \"x\", turns = [2, 1, 1]", "", "turns = [2, 1, 1]", "")},
    {"turns-c5", "E1104",
     TURNS("axis = \"x\", turns = [2, 1]", "%9 = exp %0 : f32[]\n", "turns = [2, 1]", "")},
    {"turns-c6", "E1104",
     TURNS("axis = \"x\", turns = [2, 1]", "", "turns = [2, 1]", "\n%3 = exp %1 : f32[L:2]")},
    {"turns-c7", "E1104",
     TURNS("axis = \"x\", turns = [2, 1]", "", "turns = [2, 1]", " {0: inplace(%0)}")},
    {"turns-c9", "E1104",
     TURNS("axis = \"x\", turns = [2, 1], interleave = 9", "", "turns = [2, 1]", "")},
    {"turns-c10", "E1104",
     TURNS("axis = \"x\", turns = [2, 1], interleave = 2", "", "turns = [2, 1], interleave = 2",
           "")},
    {"turns-c11", "E1104",
     TURNS("axis = \"x\", " ONE_EACH,
           "%3 = loop[L] @f, %0 {carry = 0, invariant = 1, trip = 3, " ONE_EACH "} : f32[L:2]\n"
           "%4 = loop[L] @h, %0, %3 {carry = 1, invariant = 0, trip = 3, " ONE_EACH "} : f32[]\n",
           ONE_EACH, "")},
    {"turns-c8", "E1104", TURNS("axis = \"x\", turns = [3, 1]", "", "turns = [3, 1]", "")},
    {"global-c2", "E1105",
     "lower\noutput @o : f32[]\nentry @e {\n%0 = const {value = 1} : f64[]\nstore @o, %0\n}\n"},
    {"global-c4", "E1105", "lower\ninput @i : f32[] of Vocab\n"},
    {"global-c5", "E1105", "lower\ninput @i : f32[] {decay}\n"},
    {"global-c7", "E1105", "lower\ninput @i : f32[]\nbody @b() {\n%0 = load @i : f32[]\n}\n"},
    {"global-c8", "E1105",
     "lower\ninput @i : f32[]\nentry @e {\n%0 = load @i : f32[]\nstore @i, %0\n}\n"},
    {"global-c9", "E1105",
     "lower\noutput @o : f32[]\nentry @e {\n%0 = const {value = 1} : f32[]\nstore @o, %0\nstore "
     "@o, %0\n}\n"},
    {"global-c10", "E1105", "lower\nparam @g : f32[A:4]\nparam @p : f64[A:2] in @g from 0\n"},
    {"global-c11", "E1105",
     "lower\nparam @g : f32[A:4]\nparam @p : f32[A:2] in @g from 2\nentry @e {\n%0 = load @p : "
     "f32[A:2]\n}\n"},
    {"type-c3", "E1105", "lower\ninput @i : f32[A:2]\nentry @e {\n%0 = load @i : f32[]\n}\n"},
    {"flat-c1", "E1105", FLAT_WITH("from 1000000", "from 4")},
    {"flat-c1", "E1105", FLAT_WITH("from -64", "from 4")},
    {"flat-c1", "E1105", FLAT_WITH("from 9223372036854775807", "from 4")},
    {"flat-c2", "E1105", FLAT_WITH("from 0", "from 3")},
    {"trip-c1", "E1104",
     "lower\nbody @f(%0 : i32[]) {\n}\nbody @g() {\nloop[L] @f {carry = 0, invariant = 0, trip = "
     "2147483648}\n}\n"},
};

/* Right modules, near the broken ones. */
static const char *const sound[] = {
    FLAT_WITH("from 0", "from 4"),
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}

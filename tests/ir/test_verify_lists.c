/* The verifier: lists of blocks, by themselves and together with the masks that they follow
   from. */
#include "broken.h"

/* Blocks of 2 x 2 of 4 queries and 4 keys: the window of one block, whose name is the hash. */
#define SIZES "queries = 4, keys = 4, high = 2, wide = 2"
#define WINDOW "lists @x72d25e624396d58a {" SIZES ", listed = [0, 1, 2, 1], partial = []}\n"
#define ATTENDS(lists, compare, a, b)                                                              \
  "body @b(%0 : f32[S:4, D:2], %1 : f32[K:4, D:2]) {\n%2 = iota[S] : i32[S:4]\n"                   \
  "%3 = expand[K] %2 : i32[S:4, K:4]\n%4 = iota[K] : i32[K:4]\n"                                   \
  "%5 = expand[S] %4 : i32[S:4, K:4]\n%6 = const {value = 2} : i32[]\n"                            \
  "%7 = div %3, %6 : i32[S:4, K:4]\n%8 = div %5, %6 : i32[S:4, K:4]\n"                             \
  "%9 = " compare " " a ", " b " : bool[S:4, K:4]\n"                                               \
  "%10, %11 = attention[S -> K; D] %0, %1, %1, %9 {scale = 1, lists = \"" lists                    \
  "\"} : f32[S:4, D:2], f32[S:4]\n}\n"

static const Broken modules[] = {
    {"lists-c1", "E1103",
     "sparse\nlists @x {queries = 4, keys = 4, high = 2, listed = [], partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", listed = [0, 5], partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", listed = [1, 0], partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", listed = [0, 1], partial = [0, 2]}\n"},
    {"lists-c1", "E1103",
     "sparse\nlists @x {" SIZES ", classes = [0], listed = [], partial = []}\n"},
    {"lists-c1", "E1103",
     "sparse\nlists @x {" SIZES ", heads = [2], classes = [1, 0], listed = [], partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", steps = [2], listed = [], partial = []}\n"},
    {"lists-c1", "E1103", "sparse\nlists @x {" SIZES ", listed = [], partial = [], trip = 1}\n"},
    {"lists-c2", "E1103", "sparse\nlists @x {" SIZES ", listed = [0, 1], partial = []}\n"},
    {"lists-c2", "E1103", "sparse\n" WINDOW WINDOW},
    {"lists-c3", "E1103", "sparse\n" ATTENDS("none", "eq", "%7", "%8")},
    {"lists-c3", "E1103",
     "sparse\n" WINDOW "body @b(%0 : f32[S:4, D:2], %1 : f32[K:4, D:2]) {\n%2, %3 = attention[S -> "
     "K; D] %0, %1, %1 {scale = 1, lists = \"x72d25e624396d58a\"} : f32[S:4, D:2], f32[S:4]\n}\n"},
    {"lists-c4", "E1103",
     "sparse\n" WINDOW
     "body @b(%0 : f32[S:4, D:2], %1 : f32[K:5, D:2], %2 : bool[K:5]) {\n%3, %4 = "
     "attention[S -> K; D] %0, %1, %1, %2 {scale = 1, lists = \"x72d25e624396d58a\"} : f32[S:4, "
     "D:2], f32[S:4]\n}\n"},
    {"lists-c4", "E1103",
     "sparse\n" WINDOW "body @b(%0 : f32[H:2, S:4, D:2], %1 : f32[K:4, D:2]) {\n%2 = iota[H] : "
     "i32[H:2]\n%3 = iota[K] : i32[K:4]\n%4 = expand[H] %3 : i32[H:2, K:4]\n%5 = lt %4, %2 : "
     "bool[H:2, K:4]\n%6, %7 = attention[S -> K; D] %0, %1, %1, %5 {scale = 1, lists = "
     "\"x72d25e624396d58a\"} : f32[H:2, S:4, D:2], f32[H:2, S:4]\n}\n"},
    /* .. nor has a mask that was computed elsewhere any */
    {"lists-c4", "E1103",
     "sparse\nlists @x5836c45ffe6fa723 {queries = 6, keys = 5, high = 2, wide = 2, heads = [3], "
     "classes = [0, 1, 0], listed = [1, 2, 1, 3, 2, 1, 1, 4], partial = []}\n"
     "body @b(%0 : f32[H:3, S:6, D:2], %1 : f32[K:5, D:2], %2 : bool[H:3, S:6, K:5]) {\n"
     "%3, %4 = attention[S -> K; D] %0, %1, %1, %2 {scale = 1, lists = \"x5836c45ffe6fa723\"} : "
     "f32[H:3, S:6, D:2], f32[H:3, S:6]\n}\n"},
    {"lists-c5", "E1103", "sparse\n" WINDOW ATTENDS("x72d25e624396d58a", "lt", "%7", "%8")},
    {"lists-c5", "E1103", "sparse\n" WINDOW ATTENDS("x72d25e624396d58a", "eq", "%3", "%5")},
};

static const char *const sound[] = {
    "sparse\n" WINDOW ATTENDS("x72d25e624396d58a", "eq", "%7", "%8"),
    "sparse\n" WINDOW, /* nobody needs to name them */
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}

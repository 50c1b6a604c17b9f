/* The verifier: strides, views, results in place, what is laid into a concat. */
#include "broken.h"

#define ADDING_LOOP(inside, outside)                                                               \
  "order\nkernel @k(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n"   \
  "body @f(%0 : i32[], %1 : f32[A:4], %2 : f32[A:4]) {\n%3 = kernel @k, %1, %2 : f32[A:4]" inside  \
  "\nreturn %3\n}\nbody @b(%0 : f32[A:4], %1 : f32[L:2, A:4]) {\n%2 = loop[L] @f, %0, %1 "         \
  "{carry = 0, invariant = 1, trip = 2} : f32[L:2, A:4]" outside "\nreturn %2\n}\n"

/* exp of an argument, twice, and what puts both together */
#define LAID_AS(fence, frame, first, second, concat, end)                                          \
  fence "\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"                     \
        "body @b(%0 : f32[A:4]" frame "%1 = kernel @k, %0 : f32[A:4]" first "\n"                   \
        "%2 = kernel @k, %0 : f32[A:4]" second "\n%3 = concat[A, A -> D] " concat "\n" end "\n}\n"
#define LAID(concat, end) LAID_AS("order", ") {\n", "", "", concat, end)
#define LAID_AT(first, second)                                                                     \
  LAID_AS("memory", " {at(arg 0 + 0)}) {frame = 64} {\n", " {0: at(frame + " first ")}",           \
          " {0: at(frame + " second ")}", "%1, %2 : f32[D:8] {0: assembled at(frame + 0)}", "")

/* Both pieces of an argument, to which something is added */
#define LAID_OVER(more, end)                                                                       \
  "order\nkernel @k(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n"   \
  "body @b(%0 : f32[D:8], %1 : f32[A:4]) {\n"                                                      \
  "%2 = slice[D -> A] %0 {at = 0} : f32[A:4] {0: view(%0 + 0)}\n"                                  \
  "%3 = slice[D -> A] %0 {at = 4} : f32[A:4] {0: view(%0 + 4)}\n"                                  \
  "%4 = kernel @k, %2, %1 : f32[A:4] {0: inplace(%2)}\n"                                           \
  "%5 = kernel @k, %3, %1 : f32[A:4] {0: inplace(%3)}\n" more                                      \
  "\n%6 = concat[A, A -> D] %4, %5 : f32[D:8] {0: assembled}\nreturn " end "\n}\n"
#define PIECE(number, at)                                                                          \
  number " = slice[D -> A] %0 {at = " at "} : f32[A:4] {0: view(%0 + " at ")}\n"

/* A value that is shown by another one, or loaded twice, and then written over */
#define OVERWRITTEN(beside, end)                                                                   \
  "order\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"                      \
  "kernel @both(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n"       \
  "body @b(%0 : f32[A:4], %1 : f32[A:4]) {\n"                                                      \
  "%2 = slice[A -> A] %0 {at = 0} : f32[A:4] {0: view(%0 + 0)}\n"                                  \
  "%3 = kernel @both, %0, " beside " : f32[A:4] {0: inplace(%0)}\n" end "\n}\n"
#define OVERWRITTEN_LOAD(read)                                                                     \
  "order\nstate @p : f32[A:4]\noutput @y : f32[A:4]\n"                                             \
  "kernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"                             \
  "entry @e {\n%0 = load @p : f32[A:4]\n%1 = load @p : f32[A:4]\n"                                 \
  "%2 = kernel @k, %0 : f32[A:4] {0: inplace(%0)}\nstore @p, %2\n"                                 \
  "%3 = kernel @k, " read " : f32[A:4]\nstore @y, %3\n}\n"

static const Broken modules[] = {
    {"lay-c1", "E1106", LAID("%1, %2 : f32[D:8]", "return %3")},
    {"lay-c1", "E1106",
     LAID("%1, %2 : f32[D:8] {0: assembled}\n%4 = kernel @k, %0 : f32[A:4] {0: assembled}", "")},
    {"lay-c2", "E1107", LAID("%1, %2 : f32[D:8] {0: strides(2) laid}", "return %3")},
    {"lay-c2", "E1107",
     "order\nkernel @k(%0 : f32[B:3, A:4]) {\n%1 = exp %0 : f32[B:3, A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[B:3, A:4]) {\n%1 = kernel @k, %0 : f32[B:3, A:4]\n%2 = kernel @k, %0 : "
     "f32[B:3, A:4]\n%3 = concat[A, A -> D] %1, %2 : f32[B:3, D:8] {0: assembled}\nreturn %3\n}\n"},
    {"lay-c3", "E1107", LAID("%1, %0 : f32[D:8] {0: assembled}", "return %3")},
    {"lay-c3", "E1107",
     LAID(
         "%1, %2 : f32[D:8] {0: assembled}\n%4 = slice[D -> A] %3 {at = 0} : f32[A:4] {0: view(%3 "
         "+ 0)}"
         "\n%5 = kernel @k, %0 : f32[A:4]\n%6 = concat[A, A -> D] %5, %4 : f32[D:8] {0: assembled}",
         "return %6")},
    {"lay-c4", "E1107", LAID("%1, %1 : f32[D:8] {0: assembled}", "return %3")},
    {"lay-c4", "E1107",
     LAID("%1, %2 : f32[D:8] {0: assembled}\n%4 = kernel @k, %1 : f32[A:4]", "return %3")},
    {"lay-c4", "E1107", LAID("%1, %2 : f32[D:8] {0: assembled}", "return %2")},
    {"lay-c4", "E1107",
     LAID("%1, %2 : f32[D:8] {0: assembled}\n%4 = concat[A, D -> E] %2, %3 : f32[E:12] {0: "
          "assembled}",
          "return %4")},
    {"lay-c4", "E1107", LAID_OVER("%9 = kernel @k, %4, %1 : f32[A:4]", "%6")},
    {"lay-c5", "E1108", LAID_AT("0", "32")},
    {"lay-c6", "E1107", LAID_OVER(PIECE("%8", "2") "%9 = kernel @k, %8, %1 : f32[A:4]", "%6")},
    {"lay-c6", "E1107", LAID_OVER("", "%6, %0")},
    {"lay-c7", "E1107",
     LAID_OVER(PIECE("%7", "0") "%8 = kernel @k, %7, %1 : f32[A:4] {0: inplace(%7)}", "%6")},
    {"order-c2", "E1107", "order\nbody @b(%0 : f32[A:2, B:3] {strides(2, 1)}) {\n}\n"},
    {"order-c2", "E1107", "order\nkernel @b(%0 : f32[A:2, B:3] {strides(1, 1)}) {\n}\n"},
    {"order-c3", "E1107",
     "order\nbody @b(%0 : f32[A:2]) {\n%1 = rename[A -> B] %0 : f32[B:2] {0: view(%1 + 0)}\n}\n"},
    {"order-c4", "E1107",
     "order\nkernel @k(%0 : f32[]) {\n%1 = exp %0 : f32[]\nreturn %1\n}\n"
     "body @b(%0 : f32[], %1 : f32[]) {\n%2 = kernel @k, %0 : f32[] {0: inplace(%1)}\n}\n"},
    {"order-c5", "E1107",
     "order\nkernel @k(%0 : f32[]) {\n%1 = exp %0 : f32[]\nreturn %1\n}\n"
     "body @b(%0 : f32[]) {\n%2 = kernel @k, %0 : f32[] {0: inplace(%0)}\n%3 = kernel @k, %0 : "
     "f32[]\n}\n"},
    {"order-c5", "E1107", OVERWRITTEN("%1", "%4 = kernel @k, %2 : f32[A:4]")},
    {"order-c5", "E1107", OVERWRITTEN("%2", "")},
    {"order-c5", "E1107", OVERWRITTEN("%1", "return %2")},
    {"order-c5", "E1107", OVERWRITTEN_LOAD("%1")},
    {"order-c6", "E1107",
     "order\nkernel @k(%0 : f32[]) {\n%1 = expand[A] %0 : f32[A:2]\nreturn %1\n}\n"
     "body @b(%0 : f32[]) {\n%2 = kernel @k, %0 : f32[A:2] {0: inplace(%0)}\n}\n"},
    {"order-c7", "E1107",
     "order\nbody @b(%0 : f32[A:4]) {\n%1 = slice[A -> B] %0 {at = 2} : f32[B:2] {0: view(%0 + "
     "3)}\n}\n"},
    {"order-c8", "E1107",
     "order\nkernel @k(%0 : f32[A:2, B:3] {strides(1, 2)}) {\n%1 = exp %0 : f32[A:2, B:3]\nreturn "
     "%1\n}\n"
     "body @b(%0 : f32[A:2, B:3]) {\n%1 = kernel @k, %0 : f32[A:2, B:3]\n}\n"},
    {"order-c8", "E1107",
     "order\nbody @f(%0 : i32[], %1 : f32[B:3] {strides(2)}) {\n}\nbody @b(%0 : f32[A:2, B:3]) {\n"
     "loop[A] @f, %0 {carry = 0, invariant = 0, trip = 2}\n}\n"},
    {"order-c9", "E1107",
     "order\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4] {0: inplace(%0)}\nreturn %1\n}\n"},
    {"order-c10", "E1107",
     "order\nbody @b(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = rename[A -> B] %0 : f32[B:4] {0: "
     "view(%1 + "
     "0)}\nreturn %2\n}\n"},
    {"order-c11", "E1107",
     "order\nkernel @k(%0 : f32[A:4]) {\n%1 = cumsum[A] %0 : f32[A:4]\n%2 = shift[A] %1 {by = 1} : "
     "f32[A:4]\nreturn %2\n}\nkernel @s(%0 : f32[A:4]) {\n%1 = shift[A] %0 {by = 1} : "
     "f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4]) {\n%1 = kernel @s, %0 : f32[A:4] {0: inplace(%0)}\nreturn %1\n}\n"},
    {"order-c11", "E1107",
     "order\nkernel @k(%0 : f32[A:4, B:4]) {\n%1 = sum[A] %0 : f32[B:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4, B:4]) {\n%1 = kernel @k, %0 : f32[B:4] {0: inplace(%0)}\nreturn "
     "%1\n}\n"},
    {"order-c12", "E1107",
     "order\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[A:4]) {\n%1 = kernel @k, %0 : f32[A:4] {0: view(%0 + 0)}\nreturn %1\n}\n"},
    {"order-c12", "E1107",
     "order\nbody @f(%0 : i32[], %1 : f32[A:4]) {\nreturn %1\n}\nbody @b(%0 : f32[A:4]) {\n"
     "%1 = loop[L] @f, %0 {carry = 1, invariant = 0, trip = 2} : f32[A:4] {0: view(%0 + "
     "0)}\nreturn %1\n}\n"},
    {"order-c13", "E1107",
     "order\nbody @b(%0 : f32[A:4]) {\n%1 = rename[A -> B] %0 : f32[B:4]\nreturn %1\n}\n"},
    {"order-c18", "E1107",
     "order\nbody @b(%0 : f32[A:8]) {\n%1 = slice[A -> A] %0 {at = 1} : f32[A:4] {0: view(%0 + "
     "2)}\n}\n"},
    {"order-c18", "E1107",
     "order\nbody @b(%0 : f32[A:4, B:4]) {\n%1 = rename[A -> C] %0 : f32[C:4, B:4] {0: strides(1, "
     "4) "
     "view(%0 + 0)}\n}\n"},
    {"order-c18", "E1107",
     "order\nbody @b(%0 : f32[A:8, B:2]) {\n%1 = slice[A -> A] %0 {at = 4} : f32[A:4, B:2] {0: "
     "view(%0 + "
     "8)}\n%2 = slice[A -> A] %1 {at = 1} : f32[A:2, B:2] {0: view(%0 + 8)}\n}\n"},
    {"order-c14", "E1107", ADDING_LOOP(" {0: inplace(%2)}", "")},
    {"order-c15", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4, B:2]) {\n%1 = all_gather[A] %0 {axis = \"x\", "
     "ranks = 2} : f32[B:2, A:8]\nreturn %1\n}\n"},
    {"order-c15", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4, B:2]) {\n%1 = all_reduce %0 {axis = \"x\", ranks = "
     "2} : "
     "f32[A:4, B:2] {0: strides(3, 1)}\nreturn %1\n}\n"},
    {"order-c16", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = reduce_scatter[A] %0 {axis = \"x\", ranks "
     "= "
     "2} : f32[A:2] {0: inplace(%0)}\nreturn %1\n}\n"},
    {"order-c11", "E1107", ADDING_LOOP("", " {0: inplace(%1)}")},
    {"order-c17", "E1107",
     "order\nkernel @k() {family = \"elem\"} {\n%0 = const {value = 1} : f32[]\n%1 = expand[A] %0 "
     ": f32[A:2]\nreturn %1\n}\nbody @f(%0 : i32[], %1 : f32[A:2] {strides(2)}) {\n%2 = kernel @k "
     ": f32[A:2]\nreturn %2\n}\nbody @b(%0 : f32[L:2, A:2] {strides(4, 2)}) {\n%1 = loop[L] @f, %0 "
     "{carry = 0, invariant = 0, trip = 1, stack_length = 2, continues = [0]} : f32[L:2, "
     "A:2]\n}\n"},
    {"held-c1", "E1107",
     "order\nparam @p : f32[A:2, B:3]\nentry @e {\n%0 = load @p : f32[A:2, B:3] {0: strides(1, "
     "2)}\n}\n"},
};

/* Right modules, near the broken ones. */
static const char *const sound[] = {
    OVERWRITTEN("%1", "%4 = kernel @k, %3 : f32[A:4]"),
    OVERWRITTEN_LOAD("%2"),
    "order\nbody @b(%0 : f32[A:4]) {\n%1 = slice[A -> B] %0 {at = 1} : f32[B:2] {0: view(%0 + "
    "1)}\nreturn %1\n}\n",
    "order\nkernel @k(%0 : f32[]) {\n%1 = exp %0 : f32[]\nreturn %1\n}\n"
    "body @b(%0 : f32[]) {\n%2 = kernel @k, %0 : f32[] {0: inplace(%0)}\n}\n",
    "order\nbody @f(%0 : i32[], %1 : f32[B:3] {strides(2)}) {\n}\nbody @b(%0 : f32[A:2, B:3] "
    "{strides(1, 2)}) {\n"
    "loop[A] @f, %0 {carry = 0, invariant = 0, trip = 2}\n}\n",
};

int main(void) {
  return verify_tests(modules, sizeof modules / sizeof *modules, sound,
                      sizeof sound / sizeof *sound);
}

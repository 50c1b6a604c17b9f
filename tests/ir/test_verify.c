/* The verifier: every numbered constraint of docs/ir.md is broken once and must be named, with its
 * code. */
#include "common.h"

typedef struct Broken {
  const char *label, *code;
  const char *lines; /* of a body with the arguments below */
} Broken;

static const char head[] = "shardc-ir 1\nmodel T\nafter ";
static const char args[] = "body @b(%0 : f32[A:2, B:3], %1 : f32[B:3], %2 : i32[A:2], %3 : "
                           "bool[B:3], %4 : f64[A:2], %5 : f32[C:4], "
                           "%6 : i32[], %7 : f32[A:3], %8 : f32[S:4, D:2], %9 : f32[K:5, D:2], %10 "
                           ": bool[S:4, K:5], %11 : f32[S:4]) {\n";

#define ADDING_LOOP(inside, outside)                                                               \
  "order\nkernel @k(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n"   \
  "body @f(%0 : i32[], %1 : f32[A:4], %2 : f32[A:4]) {\n%3 = kernel @k, %1, %2 : f32[A:4]" inside  \
  "\nreturn %3\n}\nbody @b(%0 : f32[A:4], %1 : f32[L:2, A:4]) {\n%2 = loop[L] @f, %0, %1 "         \
  "{carry = 0, invariant = 1, trip = 2} : f32[L:2, A:4]" outside "\nreturn %2\n}\n"
#define ROWS(family, ops, last)                                                                    \
  "fuse\nkernel @k(%0 : f32[A:2, B:3, C:2]) {family = \"" family "\"} {\n%1 = " ops                \
  " : f32[A:2, B:3, C:2]\n%9 = " last " : f32[A:2]\nreturn %9\n}\n"
#define ELEM_WITH(attributes)                                                                      \
  "select\nkernel @k(%0 : f32[A:4]) {family = \"elem\", " attributes                               \
  "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define GPU_TILE(tile, attributes)                                                                 \
  "select\nset target.gpu = \"1\"\nset target.shared = \"101376\"\n"                               \
  "kernel @k(%0 : f32[A:4]) {family = \"elem\", variant = \"vector\", tile = " tile                 \
  ", " attributes "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define GPU_WITH(attributes) GPU_TILE("[4, 1]", attributes)
#define GPU_ONE "chunks = [1], threads = [32], shared = [0]"
#define GPU_OF(operand, attributes, op)                                                            \
  "select\nset target.gpu = \"1\"\nset target.shared = \"101376\"\n"                               \
  "kernel @k(" operand ") {" attributes "} {\n" op "\n}\n"
#define GPU_ROW(attributes)                                                                        \
  GPU_OF("%0 : f32[A:3, B:70]", "family = \"row\", " attributes,                                   \
         "%1 = sum[B] %0 : f32[A:3]\nreturn %1")
#define GPU_COLUMN(attributes)                                                                     \
  GPU_OF("%0 : f32[A:70, B:8]", "family = \"column\", " attributes,                                \
         "%1 = sum[A] %0 : f32[B:8]\nreturn %1")
#define GPU_DOT(attributes)                                                                        \
  GPU_OF("%0 : f32[A:40, K:8], %1 : f32[K:8, B:16]", "family = \"contract\", " attributes,         \
         "%2 = dot[K] %0, %1 : f32[A:40, B:16]\nreturn %2")
#define DOT_WITH(attributes)                                                                       \
  "select\nkernel @k(%0 : f32[A:2, K:8], %1 : f32[K:8, B:16]) {family = \"contract\", " attributes \
  "} {\n%2 = dot[K] %0, %1 : f32[A:2, B:16]\nreturn %2\n}\n"
#define ELEM_OF(attributes)                                                                        \
  "select\nkernel @k(%0 : f32[A:4]) {" attributes "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define SENDING(op, attributes, result)                                                            \
  "localize\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = " op " %0 {" attributes "} : f32[" result  \
  "]\n}\n"
#define FLAT_WITH(first, second)                                                                   \
  "zero\nparam @g : f32[F:8]\nparam @p : f32[A:4] in @g " first                                    \
  "\nparam @q : f32[A:4] in @g " second "\n"
#define EXP4 "kernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define PLACED_ENTRY(lines)                                                                        \
  "memory\nparam @p : f32[A:4] at(0)\nparam @q : f32[A:4] at(64)\n" EXP4                          \
  "entry @e {frame = 64} {\n" lines "\n}\n"
#define PLACED_LOOP_OF(frame, place, result, attributes)                                           \
  "memory\n" EXP4 "body @f(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}, "            \
  "%2 : f32[A:4] {at(arg 2 + 0)}) {frame = " frame "} {\n"                                         \
  "%3 = kernel @k, %1 : f32[A:4] {0: " place "}\nreturn " result                                   \
  "\n}\nbody @b(%0 : f32[A:4] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}) {frame = 64} {\n"   \
  "%2 = loop[L] @f, %0, %1 {carry = 1, invariant = 1, trip = 2, " attributes                       \
  "} : f32[A:4] {0: at(frame + 0)}\n}\n"
#define PLACED_BODY(place, result) PLACED_LOOP_OF("16", place, result, "work_at = 32, slots = [16]")
#define PLACED_LOOP(attributes) PLACED_LOOP_OF("16", "at(result 0 + 0)", "%3", attributes)

/* exp of an argument, twice, and what puts both together */
#define LAID_AS(fence, frame, first, second, concat, end)                                          \
  fence "\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"                     \
        "body @b(%0 : f32[A:4]" frame "%1 = kernel @k, %0 : f32[A:4]" first "\n"                   \
        "%2 = kernel @k, %0 : f32[A:4]" second "\n%3 = concat[A, A -> D] " concat "\n" end "\n}\n"
#define LAID(concat, end) LAID_AS("order", ") {\n", "", "", concat, end)
#define LAID_AT(first, second)                                                                     \
  LAID_AS("memory", " {at(arg 0 + 0)}) {frame = 64} {\n", " {0: at(frame + " first ")}",           \
          " {0: at(frame + " second ")}", "%1, %2 : f32[D:8] {0: laid at(frame + 0)}", "")

/* Both pieces of an argument, to which something is added */
#define LAID_OVER(more, end)                                                                       \
  "order\nkernel @k(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n"   \
  "body @b(%0 : f32[D:8], %1 : f32[A:4]) {\n"                                                      \
  "%2 = slice[D -> A] %0 {at = 0} : f32[A:4] {0: view(%0 + 0)}\n"                                  \
  "%3 = slice[D -> A] %0 {at = 4} : f32[A:4] {0: view(%0 + 4)}\n"                                  \
  "%4 = kernel @k, %2, %1 : f32[A:4] {0: inplace(%2)}\n"                                           \
  "%5 = kernel @k, %3, %1 : f32[A:4] {0: inplace(%3)}\n" more                                      \
  "\n%6 = concat[A, A -> D] %4, %5 : f32[D:8] {0: laid}\nreturn " end "\n}\n"
#define PIECE(number, at)                                                                          \
  number " = slice[D -> A] %0 {at = " at "} : f32[A:4] {0: view(%0 + " at ")}\n"

static const Broken types[] = {
    {"group-c1", "E1102", "%20 = add[A] %0, %0 : f32[A:2, B:3]"},
    {"group-c1", "E1102", "%20 = sum[A; B] %0 : f32[]"},
    {"group-c2", "E1102", "%20 = sum[A -> B] %0 : f32[B:3]"},
    {"group-c2", "E1102", "%20 = slice[A] %0 : f32[A:2, B:3]"},
    {"group-c3", "E1102", "%20 = argmax[A, B] %0 : i32[]"},
    {"group-c4", "E1102", "%20 = sum[A, A] %0 : f32[B:3]"},
    {"group-c5", "E1102", "%20 = sum[C] %0 : f32[A:2, B:3]"},
    {"elem-c1", "E1102", "%20 = add %1, %7 : f32[A:3, B:3]"},
    {"elem-c1", "E1102", "%20 = add %0, %7 : f32[A:2, B:3]"},
    {"elem-c2", "E1102", "%20 = add %0, %4 : f32[A:2, B:3]"},
    {"elem-c3", "E1102", "%20 = exp %2 : i32[A:2]"},
    {"elem-c3", "E1102", "%20 = add %3, %3 : bool[B:3]"},
    {"elem-c3", "E1102", "%20 = and %0, %0 : f32[A:2, B:3]"},
    {"elem-c4", "E1102", "%20 = where %1, %1, %1 : f32[B:3]"},
    {"type-c3", "E1102", "%20 = exp %0 : f32[B:3, A:2]"},
    {"type-c3", "E1102", "%20 = lt %0, %1 : f32[A:2, B:3]"},
    {"reduce-c1", "E1102", "%20 = sum %0 : f32[A:2, B:3]"},
    {"rope-c1", "E1102", "%20 = rope[S] %8 {theta = 10} : f32[S:4, D:2]"},
    {"rope-c2", "E1102", "%20 = rope[A; B] %0 {theta = 10} : f32[A:2, B:3]"},
    {"rope-c3", "E1102", "%20 = rope[S; D] %8, %6, %6 {theta = 10} : f32[S:4, D:2]"},
    {"rope-c4", "E1102", "%20 = rope[S; D] %8, %11 {theta = 10} : f32[S:4, D:2]"},
    {"same-c1", "E1102", "%20 = rope[S; D] {theta = 10} : f32[S:4, D:2]"},
    {"unstack-c1", "E1102", "%20 = unstack[A] %0 : f32[B:3]"},
    {"stack-c1", "E1102", "%20 = stack[N] : f32[N:0]"},
    {"stack-c2", "E1102", "%20 = stack[N] %0, %1 : f32[N:2, A:2, B:3]"},
    {"stack-c3", "E1102", "%20 = stack[A] %0, %0 : f32[A:2, B:3]"},
    {"dot-c1", "E1102", "%20 = dot[A] %0, %1 : f32[B:3]"},
    {"share-c1", "E1102", "%20 = dot %0, %7 : f32[A:2, B:3]"},
    {"gather-c1", "E1102", "%20 = gather[A] %0, %1 : f32[B:3]"},
    {"attention-c1", "E1102",
     "%20, %21 = attention[S; D] %8, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c2", "E1102",
     "%20, %21 = attention[S -> K; D] %9, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c3", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %8, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c4", "E1102",
     "%12 = expand[H] %9 : f32[H:2, K:5, D:2]\n"
     "%20, %21 = attention[S -> K; D] %8, %12, %12 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c5", "E1102",
     "%12 = expand[H] %9 : f32[H:2, K:5, D:2]\n"
     "%20, %21 = attention[S -> K; D] %8, %9, %12 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c6", "E1102",
     "%12 = cast %8 : f64[S:4, D:2]\n"
     "%20, %21 = attention[S -> K; D] %12, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c7", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %11 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c8", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c9", "E1102",
     "%20, %21, %22 = attention_grad[S -> K; D] %8, %9, %9, %8, %8, %8 {scale = 1} : "
     "f32[S:4, D:2], f32[K:5, D:2], f32[K:5, D:2]"},
    {"given-c1", "E1102", "%20 = rename[A -> C] %0 : f32[A:2, B:3]"},
    {"given-c1", "E1102", "%20 = expand[N] %1 : f32[N:2]"},
    {"given-c1", "E1102", "%20 = const {value = 1} : f32[A:2]"},
    {"given-c1", "E1102", "%20 = iota[A] : f32[A:2]"},
    {"type-c2", "E1102", "%20 = rename[A -> B] %0 : f32[B:2]"},
    {"rand-c1", "E1102", "%20 = rand[A] %6, %6, %2 {key = 1, strides = [1]} : f32[A:2]"},
    {"rand-c2", "E1102", "%20 = rand[A] %6, %6, %6 {key = 1} : f32[A:2]"},
    {"rename-c1", "E1102", "%20 = rename[A] %0 : f32[A:2, B:3]"},
    {"split-c1", "E1102", "%20 = split[C -> X] %5 : f32[X:4]"},
    {"split-c2", "E1102", "%20 = split[C -> X, Y] %5 : f32[X:2, Y:3]"},
    {"merge-c1", "E1102", "%20 = merge[A -> X] %0 : f32[X:2, B:3]"},
    {"part-c1", "E1102", "%20 = slice[C -> X] %5 {at = 3} : f32[X:2]"},
    {"part-c1", "E1102", "%20 = pad[C -> X] %5 {at = 2} : f32[X:5]"},
    {"concat-c1", "E1102", "%20 = concat[C -> X] %5, %5 : f32[X:8]"},
    {"concat-c2", "E1102", "%20 = concat[C, A -> X] %5, %0 : f32[X:6]"},
    {"scatter-c1", "E1102", "%20 = scatter[A -> X, Y] %0, %2 : f32[X:2, B:3]"},
    {"scatter-c2", "E1102", "%20 = scatter[A -> X] %0, %4 : f32[X:2, B:3]"},
    {"scatter-c3", "E1102", "%20 = scatter[A -> X] %1, %2 : f32[X:2, B:3]"},
    {"scatter-c4", "E1102", "%20 = scatter[A -> X] %2, %2 : i32[X:2]"},
    {"type-c1", "E1102",
     "%20 = expand[E, F, G, H, I, J, L] %0 : f32[A:2, B:3, E:1, F:1, G:1, H:1, I:1, J:1]"},
    {"attr-c1", "E1103", "%20 = pow %1 : f32[B:3]"},
    {"attr-c2", "E1103", "%20 = exp %1 {value = 2} : f32[B:3]"},
    {"attr-c4", "E1103", "%20 = cumsum[B] %1 {inverse = 2} : f32[B:3]"},
};

/* Rounds over a part of five, their results stacked so. */
#define PART_LOOP(part, type)                                                                      \
  "lower\nbody @f(%0 : i32[], %1 : f32[A:2]) {\n%2 = exp %1 : f32[A:2]\nreturn %2\n}\n"            \
  "body @g(%0 : f32[L:5, A:2]) {\n"                                                                \
  "%1 = loop[L] @f, %0 {carry = 0, invariant = 0, " part "} : " type "\nreturn %1\n}\n"

/* One loop writes slices 0 and 1 of five, another one so many more. */
#define TWO_PARTS(trip, then)                                                                      \
  "lower\nbody @f(%0 : i32[]) {\n%1 = const {value = 1} : f32[]\n%2 = expand[A] %1 : "             \
  "f32[A:2]\nreturn %2\n}\nbody @h(%0 : i32[], %1 : f32[A:2]) {\n%2 = const {value = 1} : "        \
  "f32[]\n%3 = expand[A] %2 : f32[A:2]\nreturn %3\n}\nbody @r(%0 : i32[], %1 : f32[A:2]) {\n%2 = " \
  "exp %1 : f32[A:2]\nreturn %2\n}\nbody @g(%0 : f32[]) {\n%1 = loop[L] @f {carry = 0, invariant " \
  "= 0, trip = 2, of = 5, into = [-2]} : f32[L:5, A:2]\n%2 = loop[L] @h, %1 {carry = 0, "          \
  "invariant = 0, trip = " trip ", of = 5, into = [0]} : f32[L:5, A:2]\n" then "}\n"

/* Whole modules: what follows the word `after`. */
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
    {"loop-c9", "E1104", PART_LOOP("trip = 2, first = 2147483647", "f32[L:2, A:2]")},
    {"loop-c10", "E1104", PART_LOOP("trip = 2, first = 4, of = 5", "f32[L:2, A:2]")},
    {"loop-c10", "E1104", PART_LOOP("trip = 5, of = 5", "f32[L:5, A:2]")},
    {"loop-c11", "E1104", PART_LOOP("trip = 5, into = [-2]", "f32[L:5, A:2]")},
    {"loop-c11", "E1104", PART_LOOP("trip = 2, of = 5, into = []", "f32[L:2, A:2]")},
    {"loop-c12", "E1104", PART_LOOP("trip = 2, of = 5, into = [1]", "f32[L:5, A:2]")},
    {"loop-c12", "E1104", PART_LOOP("trip = 2, of = 5, into = [-3]", "f32[L:5, A:2]")},
    {"loop-c12", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[]) {\n%2 = expand[A] %1 : f32[A:2]\nreturn %2\n}\n"
     "body @g(%0 : f32[L:5]) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 0, trip = 2, of = 5, "
     "into = [0]} : f32[L:5, A:2]\n}\n"},
    {"loop-c12", "E1104",
     "lower\nbody @f(%0 : i32[], %1 : f32[]) {\nreturn %1, %1\n}\n"
     "body @g(%0 : f32[L:5]) {\n%1, %2 = loop[L] @f, %0 {carry = 0, invariant = 0, trip = 2, of = "
     "5, into = [0, 0]} : f32[L:5], f32[L:5]\n}\n"},
    {"loop-c13", "E1104", PART_LOOP("trip = 2, of = 5, into = [-2]", "f32[L:5, A:2]")},
    {"loop-c13", "E1104", TWO_PARTS("3, first = 1", "%3 = exp %2 : f32[L:5, A:2]\n")},
    {"loop-c13", "E1104",
     TWO_PARTS("3, first = 2", "%3 = loop[L] @r, %1 {carry = 0, invariant = 0, trip = 3, of = 5} : "
                               "f32[L:3, A:2]\n")},
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
    {"attr-c2", "E1103", "lower\nbody @b() {family = \"row\"} {\n}\n"},
    {"fuse-c1", "E1106", "fuse\nbody @b(%0 : f32[]) {\n%1 = exp %0 : f32[]\n}\n"},
    {"fuse-c2", "E1106", ROWS("row", "sum[B] %0 : f32[A:2, C:2]\n%2 = sub %0, %1", "sum[B, C] %2")},
    {"fuse-c2", "E1106",
     ROWS("row", "rmax[A] %0 : f32[B:3, C:2]\n%2 = sub %0, %1", "rmax[B, C] %2")},
    {"fuse-c2", "E1106", ROWS("row", "cumsum[B] %0", "sum[B, C] %1")},
    {"fuse-c3", "E1106",
     ROWS("row", "rmax[B, C] %0 : f32[A:2]\n%2 = shift[A] %1 {by = 1} : f32[A:2]\n%3 = sub %0, %2",
          "sum[B, C] %3")},
    {"fuse-c4", "E1106",
     ROWS("column", "sum[B, C] %0 : f32[A:2]\n%2 = sub %0, %1", "sum[B, C] %2")},
    {"lay-c1", "E1106", LAID("%1, %2 : f32[D:8]", "return %3")},
    {"lay-c1", "E1106",
     LAID("%1, %2 : f32[D:8] {0: laid}\n%4 = kernel @k, %0 : f32[A:4] {0: laid}", "")},
    {"lay-c2", "E1107", LAID("%1, %2 : f32[D:8] {0: strides(2) laid}", "return %3")},
    {"lay-c2", "E1107",
     "order\nkernel @k(%0 : f32[B:3, A:4]) {\n%1 = exp %0 : f32[B:3, A:4]\nreturn %1\n}\n"
     "body @b(%0 : f32[B:3, A:4]) {\n%1 = kernel @k, %0 : f32[B:3, A:4]\n%2 = kernel @k, %0 : "
     "f32[B:3, A:4]\n%3 = concat[A, A -> D] %1, %2 : f32[B:3, D:8] {0: laid}\nreturn %3\n}\n"},
    {"lay-c3", "E1107", LAID("%1, %0 : f32[D:8] {0: laid}", "return %3")},
    {"lay-c3", "E1107",
     LAID("%1, %2 : f32[D:8] {0: laid}\n%4 = slice[D -> A] %3 {at = 0} : f32[A:4] {0: view(%3 + 0)}"
          "\n%5 = kernel @k, %0 : f32[A:4]\n%6 = concat[A, A -> D] %5, %4 : f32[D:8] {0: laid}",
          "return %6")},
    {"lay-c4", "E1107", LAID("%1, %1 : f32[D:8] {0: laid}", "return %3")},
    {"lay-c4", "E1107",
     LAID("%1, %2 : f32[D:8] {0: laid}\n%4 = kernel @k, %1 : f32[A:4]", "return %3")},
    {"lay-c4", "E1107", LAID("%1, %2 : f32[D:8] {0: laid}", "return %2")},
    {"lay-c4", "E1107",
     LAID("%1, %2 : f32[D:8] {0: laid}\n%4 = concat[A, D -> E] %2, %3 : f32[E:12] {0: laid}",
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
    {"collective-c1", "E1102",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2, B:4]) {\n%1 = all_to_all[A -> A] %0 {axis "
     "= \"x\"} : f32[A:2, B:4]\n}\n"},
    {"collective-c2", "E1102",
     "localize\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:3]) {\n%1 = reduce_scatter[A] %0 {axis = "
     "\"x\", ways = 2} : f32[A:1]\n}\n"},
    {"shard-c1", "E1109", "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A/x:3]) {\n}\n"},
    {"shard-c2", "E1109", "collect\nmesh x = 2, y = 2\nbody @b(%0 : i32[A:2] partial(x)) {\n}\n"},
    {"shard-c3", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A/x:2]) {\n%1 = exp %0 : f32[A:2]\n}\n"},
    {"shard-c3", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2] partial(x)) {\n%1 = exp %0 : f32[A:2] "
     "partial(x)\n}\n"},
    {"shard-c4", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2] partial(x)) {\n%1 = all_reduce %0 {axis = "
     "\"z\"} : f32[A:2]\n}\n"},
    {"shard-c5", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2] partial(x)) {\n%1 = all_reduce %0 {axis = "
     "\"y\"} : f32[A:2]\n}\n"},
    {"shard-c5", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2] partial(max x)) {\n%1 = all_reduce %0 "
     "{axis = \"x\"} : f32[A:2]\n}\n"},
    {"shard-c6", "E1109",
     "collect\nmesh x = 2, y = 2\nplace A -> x, y\nbody @b(%0 : f32[A/x/y:4]) {\n%1 = "
     "all_gather[A] %0 {axis = \"x\"} : f32[A/y:4]\n}\n"},
    {"shard-c7", "E1109",
     "collect\nmesh x = 2, y = 2\nparam @w : f32[A/x:4]\nentry @b {\n%0 = load @w : f32[A/x:4]\n%1 "
     "= all_gather[A] %0 {axis = \"x\"} : f32[A:4]\n}\n"},
    {"shard-c8", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @f(%0 : i32[], %1 : f32[A:4]) {\nreturn %1\n}\nbody @b(%0 : "
     "f32[A/x:4]) {\n%1 = loop[L] @f, %0 {carry = 1, invariant = 0, trip = 2} : f32[A:4]\n}\n"},
    {"shard-c8", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @f(%0 : i32[], %1 : f32[A:4]) {\n%2 = part[A] %1 {axis = "
     "\"x\"} "
     ": f32[A/x:4]\nreturn %2\n}\nbody @b(%0 : f32[L:2, A:4]) {\n%1 = loop[L] @f, %0 {carry = 0, "
     "invariant = 0, trip = 1, of = 2, into = [0]} : f32[L:2, A/x:4]\n}\n"},
    {"shard-c9", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @f(%0 : i32[], %1 : f32[A:4] partial(x)) {\nreturn "
     "%1\n}\nbody @b(%0 : f32[A:4] partial(x)) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 1, "
     "trip = 2} : f32[L:2, A:4] partial(x)\n}\n"},
    {"shard-c10", "E1109",
     "collect\nmesh x = 2, y = 2\nparam @w : f32[A/x:4]\nentry @b {\n%0 = load @w : f32[A:4]\n}\n"},
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
     "order\nbody @b(%0 : f32[A:8]) {\n%1 = slice[A -> A] %0 {at = 1} : f32[A:4] {0: view(%0 + 2)}\n}\n"},
    {"order-c18", "E1107",
     "order\nbody @b(%0 : f32[A:4, B:4]) {\n%1 = rename[A -> C] %0 : f32[C:4, B:4] {0: strides(1, 4) "
     "view(%0 + 0)}\n}\n"},
    {"order-c18", "E1107",
     "order\nbody @b(%0 : f32[A:8, B:2]) {\n%1 = slice[A -> A] %0 {at = 4} : f32[A:4, B:2] {0: view(%0 + "
     "8)}\n%2 = slice[A -> A] %1 {at = 1} : f32[A:2, B:2] {0: view(%0 + 8)}\n}\n"},
    {"order-c14", "E1107", ADDING_LOOP(" {0: inplace(%2)}", "")},
    {"order-c15", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4, B:2]) {\n%1 = all_gather[A] %0 {axis = \"x\", ways "
     "= "
     "2} : f32[B:2, A:8]\nreturn %1\n}\n"},
    {"order-c15", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4, B:2]) {\n%1 = all_reduce %0 {axis = \"x\", ways = "
     "2} : "
     "f32[A:4, B:2] {0: strides(3, 1)}\nreturn %1\n}\n"},
    {"order-c16", "E1107",
     "order\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = reduce_scatter[A] %0 {axis = \"x\", ways = "
     "2} : f32[A:2] {0: inplace(%0)}\nreturn %1\n}\n"},
    {"order-c11", "E1107", ADDING_LOOP("", " {0: inplace(%1)}")},
    {"order-c17", "E1107",
     "order\nkernel @k() {family = \"elem\"} {\n%0 = const {value = 1} : f32[]\n%1 = expand[A] %0 "
     ": f32[A:2]\nreturn %1\n}\nbody @f(%0 : i32[], %1 : f32[A:2] {strides(2)}) {\n%2 = kernel @k "
     ": f32[A:2]\nreturn %2\n}\nbody @b(%0 : f32[L:2, A:2] {strides(4, 2)}) {\n%1 = loop[L] @f, %0 "
     "{carry = 0, invariant = 0, trip = 1, of = 2, into = [0]} : f32[L:2, A:2]\n}\n"},
    {"select-c1", "E1110", ELEM_WITH("tile = [256], chunks = [0]")},
    {"select-c2", "E1110", ELEM_WITH("tile = [0], chunks = [1]")},
    {"select-c1", "E1110", ELEM_WITH("tile = [256]")},
    {"select-c2", "E1110",
     DOT_WITH("tile = [6, 2, 1, 1, 1, 1, 1, 0, 1], chunks = [1], scratch = 448")},
    {"select-c2", "E1110",
     DOT_WITH("tile = [6, 0, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [1], scratch = 448")},
    {"select-c2", "E1110",
     DOT_WITH("tile = [6, 2, 1, 9, 1, 1, 1, 0, 1, 1], chunks = [1], scratch = 448")},
    {"select-c2", "E1110",
     DOT_WITH("tile = [16, 4, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [1], scratch = 448")},
    {"select-c2", "E1110",
     "select\nkernel @k(%0 : f32[A:2, K:8], %1 : f32[K:8, B:12]) {family = \"contract\", tile = [6, 2, "
     "1, 1, 1, 1, 1, 0, 0, 1], chunks = [1]} {\n%2 = dot[K] %0, %1 : f32[A:2, B:12]\nreturn %2\n}\n"},
    {"select-c2", "E1110",
     "select\nset target.vector_registers = \"1024\"\nkernel @k(%0 : f32[A:64, K:8], %1 : f32[K:8, "
     "B:64]) {family = \"contract\", tile = [10, 4, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [1]} {\n%2 = "
     "dot[K] %0, %1 : f32[A:64, B:64]\nreturn %2\n}\n"},
    {"select-c2", "E1110",
     "select\nkernel @k(%0 : f32[Q:9, D:8], %1 : f32[K:9, D:8], %2 : f32[K:9, D:8]) {family = "
     "\"attention\", tile = [3, 4, 8, 24, 1, 1, 0], chunks = [1]} {\n%3, %4 = attention[Q -> K; D] %0, "
     "%1, %2 {scale = 1} : f32[Q:9, D:8], f32[Q:9]\nreturn %3\n}\n"},
    {"select-c3", "E1110",
     DOT_WITH("tile = [6, 2, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [2], scratch = 1408")},
    {"select-c4", "E1110",
     DOT_WITH("tile = [6, 2, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [1], scratch = 64")},
    {"select-c4", "E1110",
     "select\nkernel @k(%0 : f32[A:4, B:64]) {family = \"column\", tile = [32, 16, 2, 4], chunks = "
     "[2, 1], workspace = 64} {\n%1 = sum[A] %0 : f32[B:64]\nreturn %1\n}\n"},
    {"select-c5", "E1110", GPU_WITH("chunks = [0], threads = [32], shared = [0]")},
    {"select-c5", "E1110", GPU_WITH("chunks = [1], threads = [1056], shared = [0]")},
    {"select-c5", "E1110", GPU_WITH("chunks = [1], threads = [32], shared = [101377]")},
    {"select-c5", "E1110", GPU_WITH("chunks = [1, 1], threads = [32], shared = [0, 0]")},
    {"select-c6", "E1110", GPU_WITH(GPU_ONE ", instead = \"nothing\"")},
    {"select-c2", "E1110", GPU_TILE("[8, 1]", GPU_ONE)},
    {"select-c2", "E1110", GPU_TILE("[4, 9]", GPU_ONE)},
    {"select-c2", "E1110", GPU_WITH("align = [8, 16], " GPU_ONE)},
    {"select-c2", "E1110", GPU_WITH("chunks = [1], threads = [48], shared = [0]")},
    {"select-c3", "E1110", GPU_WITH("chunks = [2], threads = [32], shared = [0]")},
    {"select-c3", "E1110", GPU_WITH("chunks = [1, 1], threads = [32, 32], shared = [0, 0]")},
    {"select-c4", "E1110", GPU_WITH("chunks = [1], threads = [32], shared = [64]")},
    {"select-c2", "E1110",
     GPU_ROW("variant = \"held\", tile = [2, 32, 1], chunks = [1], threads = [128], shared = [0]")},
    {"select-c2", "E1110",
     GPU_ROW("variant = \"held\", tile = [1, 24, 3], chunks = [1], threads = [128], shared = [0]")},
    {"select-c2", "E1110",
     GPU_ROW("variant = \"rows\", tile = [1, 32, 4], chunks = [1], threads = [128], shared = [0]")},
    {"select-c4", "E1110",
     GPU_ROW("variant = \"held\", tile = [2, 64, 1], chunks = [3], threads = [64], shared = [0]")},
    {"select-c2", "E1110",
     GPU_COLUMN("variant = \"columns\", tile = [4, 2, 71, 4, 1], chunks = [71, 1], threads = [256, "
                "256], shared = [4096, 0], workspace = 4544")},
    {"select-c2", "E1110",
     GPU_COLUMN("variant = \"along\", tile = [1, 2, 1, 4, 1], chunks = [4], threads = [64], shared = "
                "[512]")},
    {"select-c4", "E1110",
     GPU_COLUMN("variant = \"columns\", tile = [4, 2, 1, 4, 1], chunks = [1], threads = [256], shared "
                "= [1024]")},
    {"select-c2", "E1110",
     GPU_DOT("variant = \"mma\", tile = [32, 32, 16, 16, 32, 3, 1, 3, 4, 4], chunks = [2], threads = "
             "[64], shared = [20736]")},
    {"select-c2", "E1110",
     GPU_DOT("variant = \"fma\", tile = [32, 32, 16, 16, 32, 3, 1, 2, 4, 4], chunks = [2], threads = "
             "[64], shared = [20736]")},
    {"select-c8", "E1110",
     "select\nset target.name = \"x86_64_v3\"\nkernel @k(%0 : f32[A:4]) {family = \"elem\"} {\n"
     "%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"},
    {"select-c7", "E1110",
     "select\nset target.gpu = \"1\"\nset target.shared = \"101376\"\n"
     "kernel @k(%0 : f32[A:3]) {family = \"elem\", variant = \"scalar\", tile = [1, 1], " GPU_ONE
     "} {\n%1 = exp %0 : f32[A:3]\nreturn %1\n}\nbody @b(%0 : f32[A:4]) {\n"
     "%1 = slice[A -> A] %0 {at = 1} : f32[A:3] {0: view(%0 + 1)}\n%2 = kernel @k, %1 : f32[A:3]\n"
     "return %2\n}\n"},
    {"message-c1", "E1110", "select\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = "
     "\"x\", ways = 2, times = 3} : f32[A:4]\nreturn %1\n}\n"},
    {"message-c2", "E1110",
     "select\nmesh x = 2\nset plan.zero.bucket = \"64\"\nbody @b(%0 : f32[B:4, O:2, Piece_0:8]) {\n"
     "%1 = reduce_scatter[O] %0 {axis = \"x\", ways = 2, times = 2} : f32[B:4, O:1, Piece_0:8]\n"
     "return %1\n}\n"},
    {"message-c3", "E1110",
     "select\nmesh x = 2\nset target.gpu = \"1\"\nbody @b(%0 : f32[A:4, B:1]) {\n"
     "%1 = all_gather[B] %0 {axis = \"x\", ways = 2, workspace = 64} : f32[A:4, B:2]\n"
     "%2 = all_gather[B] %0 {axis = \"x\", ways = 2} : f32[A:4, B:2]\nreturn %2\n}\n"},
    {"message-c4", "E1110", "select\nmesh x = 2\nset target.gpu = \"1\"\nset comm = \"local\"\nset "
     "plan.zero.bucket = \"8\"\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ways = 2} "
     ": f32[A:4]\nreturn %1\n}\n"},
    {"place-c3", "E1108",
     "memory\nmesh x = 2\nset target.gpu = \"1\"\nbody @b(%0 : f32[A:4, B:1] {at(arg 0 + 0)}) "
     "{frame = 64} {\n%1 = all_gather[B] %0 {axis = \"x\", ways = 2, workspace = 64, work_at = 0} "
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
    {"flat-c1", "E1105", FLAT_WITH("from 1000000", "from 4")},
    {"flat-c1", "E1105", FLAT_WITH("from -64", "from 4")},
    {"flat-c1", "E1105", FLAT_WITH("from 9223372036854775807", "from 4")},
    {"flat-c2", "E1105", FLAT_WITH("from 0", "from 3")},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4]\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(-64)\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(4)\n"},
    {"arena-c1", "E1108", "memory\nparam @p : f32[A:4] at(9223372036854775744)\n"},
    {"arena-c2", "E1108", "memory\nparam @p : f32[A:32] at(0)\nparam @q : f32[A:4] at(64)\n"},
    {"arena-c3", "E1108",
     "memory\nparam @g : f32[F:4] at(0)\nparam @p : f32[A:2] in @g from 0 at(0)\n"},
    {"held-c1", "E1107",
     "order\nparam @p : f32[A:2, B:3]\nentry @e {\n%0 = load @p : f32[A:2, B:3] {0: strides(1, "
     "2)}\n}\n"},
    {"held-c2", "E1108", PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @q + 0)}")},
    {"held-c2", "E1108", PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(frame + 0)}")},
    {"held-c3", "E1108",
     PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
                  "%1 = kernel @k, %0 : f32[A:4] {0: at(global @q + 0)}")},
    {"held-c3", "E1108",
     PLACED_ENTRY("%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
                  "%1 = kernel @k, %0 : f32[A:4] {0: inplace(%0) at(global @p + 0)}")},
    {"held-c4", "E1108",
     "memory\nparam @p : f32[A:4] at(0)\n" EXP4 "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {\n"
     "%1 = kernel @k, %0 : f32[A:4] {0: at(global @p + 0)}\n}\n"},
    {"name-c4", "E1101",
     "select\nbody @h_f.g(%0 : f32[]) {\nreturn %0\n}\nbody @h.f_g(%0 : f32[]) {\nreturn %0\n}\n"},
    {"name-c4", "E1101",
     "select\nkernel @k(%0 : f32[]) {\nreturn %0\n}\nkernel @k.p0(%0 : f32[]) {\nreturn %0\n}\n"},
    {"name-c4", "E1101",
     "select\nkernel @k.cubin_end(%0 : f32[]) {\nreturn %0\n}\nkernel @k(%0 : f32[]) {\nreturn "
     "%0\n}\n"},
    {"trip-c1", "E1104",
     "lower\nbody @f(%0 : i32[]) {\n}\nbody @g() {\nloop[L] @f {carry = 0, invariant = 0, trip = "
     "2147483648}\n}\n"},
    {"mesh-c1", "E1109", SENDING("all_reduce", "axis = \"x\", ways = 4", "A:4")},
    {"mesh-c1", "E1109",
     "collect\nmesh x = 2\nbody @b(%0 : f32[A:4] partial(x)) {\n%1 = all_reduce %0 {axis = \"x\", "
     "ways = 2} : f32[A:4]\n}\n"},
    {"mesh-c2", "E1109", SENDING("all_reduce", "axis = \"x\", reduce = \"y\", ways = 2", "A:4")},
    {"mesh-c3", "E1109",
     "localize\nmesh x = 2\nbody @b(%0 : i32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ways = "
     "2} : i32[A:4]\n}\n"},
    {"mesh-c4", "E1109", SENDING("part[A]", "axis = \"x\", ways = 2", "A:2")},
    {"shard-c4", "E1109",
     "localize\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ways = 2} : "
     "f32[A:4]\n}\n"},
    {"family-c1", "E1110",
     ELEM_OF("family = \"ele\", variant = \"scalar\", tile = [1], chunks = [1]")},
    {"select-c1", "E1110", ELEM_OF("family = \"elem\", variant = \"scalar\", chunks = [1]")},
    {"family-c1", "E1110", ELEM_OF("tile = [1], chunks = [1]")},
    {"family-c2", "E1110",
     ELEM_OF("family = \"column\", variant = \"row\", tile = [1, 1, 1, 1], chunks = [1]")},
    {"family-c2", "E1110",
     ELEM_OF("family = \"scatter\", variant = \"scalar\", tile = [1, 1, 1, 1], chunks = [1, 1]")},
    {"family-c2", "E1110", ELEM_OF("family = \"contract\", tile = [1], chunks = [1]")},
    {"family-c2", "E1110", ELEM_OF("family = \"attention\", tile = [1], chunks = [1]")},
    {"family-c3", "E1110",
     ELEM_OF("family = \"elem\", variant = \"rows\", tile = [1], chunks = [1]")},
    {"select-c2", "E1110",
     ELEM_OF("family = \"elem\", variant = \"vector\", tile = [1, 1], chunks = [1]")},
    {"select-c2", "E1110",
     "select\nkernel @k(%0 : f32[A:4, B:64]) {family = \"row\", variant = \"row\", tile = [128, "
     "9], "
     "chunks = [1]} {\n%1 = sum[B] %0 : f32[A:4]\nreturn %1\n}\n"},
    {"select-c3", "E1110",
     ELEM_OF("family = \"elem\", variant = \"vector\", tile = [1], chunks = [1, 1]")},
    {"select-c1", "E1110",
     ELEM_OF("family = \"elem\", variant = \"vector\", tile = [1], chunks = [2147483648]")},
    {"select-c4", "E1110",
     ELEM_OF("family = \"elem\", variant = \"vector\", tile = [1], chunks = [1], scratch = 64")},
    {"select-c4", "E1110",
     ELEM_OF("family = \"elem\", variant = \"vector\", tile = [1], chunks = [1], workspace = 64")},
    {"target-c1", "E1103", "lower\nset target.vector_bytes = \"3\"\n"},
    {"target-c1", "E1103", "lower\nset target.workers = \"-1\"\n"},
    {"target-c1", "E1103", "lower\nset target.l1 = \"1e300\"\n"},
    {"target-c1", "E1103", "lower\nset target.gpu = \"x\"\n"},
    {"setting-c1", "E1103", "lower\nset plan.zero = \"-64\"\n"},
    {"setting-c1", "E1103", "lower\nset plan.zero.bucket = \"0\"\n"},
    {"setting-c1", "E1103", "lower\nset train.batch = \"1.5\"\n"},
    {"place-c5", "E1108", "memory\nbody @b(%0 : f32[A:4] {at(arg 0 + 1048576)}) {\n}\n"},
    {"room-c1", "E1108", "memory\nbody @b(%0 : f32[A:4] {at(frame + 0)}) {frame = 16} {\n}\n"},
    {"place-c5", "E1108", PLACED_BODY("at(result 0 + 1048576)", "%3")},
    {"place-c5", "E1108", PLACED_BODY("at(result 0 + 9223372036854775804)", "%3")},
    {"room-c2", "E1108", PLACED_BODY("at(result 0 + 0)", "%1")},
    {"room-c3", "E1108", PLACED_BODY("at(frame + 0)", "%3")},
    {"room-c3", "E1108", PLACED_BODY("at(frame + 0)", "%2")},
    {"frame-c1", "E1108", "memory\nbody @b(%0 : f32[] {at(arg 0 + 0)}) {frame = -64} {\n}\n"},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = -64, slots = [16]")},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = 64, slots = [16]")},
    {"frame-c1", "E1108", PLACED_LOOP("work_at = 9223372036854775792, slots = [16]")},
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
    "order\nbody @b(%0 : f32[A:4]) {\n%1 = slice[A -> B] %0 {at = 1} : f32[B:2] {0: view(%0 + "
    "1)}\nreturn %1\n}\n",
    "order\nkernel @k(%0 : f32[]) {\n%1 = exp %0 : f32[]\nreturn %1\n}\n"
    "body @b(%0 : f32[]) {\n%2 = kernel @k, %0 : f32[] {0: inplace(%0)}\n}\n",
    "order\nbody @f(%0 : i32[], %1 : f32[B:3] {strides(2)}) {\n}\nbody @b(%0 : f32[A:2, B:3] "
    "{strides(1, 2)}) {\n"
    "loop[A] @f, %0 {carry = 0, invariant = 0, trip = 2}\n}\n",
    "memory\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
    "body @b(%0 : f32[A:4] {at(arg 0 + 0)}) {frame = 32} {\n%1 = kernel @k, %0 : f32[A:4] {0: "
    "at(frame + 0)}\n"
    "%2 = kernel @k, %1 : f32[A:4] {0: at(frame + 16)}\n%3 = kernel @k, %2 : f32[A:4] {0: at(frame "
    "+ 0)}\n}\n",
    "memory\nparam @p : f32[A:4] at(0)\nkernel @k(%0 : f32[A:4]) {\n%1 = exp %0 : f32[A:4]\nreturn "
    "%1\n}\n"
    "entry @e {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
    "%1 = kernel @k, %0 : f32[A:4] {0: inplace(%0) at(global @p + 0)}\nstore @p, %1\n}\n",
    FLAT_WITH("from 0", "from 4"),
    PLACED_BODY("at(result 0 + 0)", "%3"),
    PLACED_LOOP("work_at = 48, slots = [16]"),
};

static void must_say(Ctx *c, Module *m, const Broken *b, const char *text) {
  if (!m) fail_msg("%s\n%s", text, reported(c));
  if (ir_verify(m)) fail_msg("[%s] was not noticed in\n%s", b->label, text);
  const char *said = reported(c), *label = arena_printf(c->arena, "[%s]", b->label);
  if (!strstr(said, label) || !strstr(said, b->code))
    fail_msg("%s %s expected in\n%s%s", b->code, label, text, said);
}

static void wrong_types(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    Ctx *c = ctx_new();
    const char *lines = types[i].lines;
    if (!strcmp(types[i].label, "stack-c1"))
      lines = "%20 = stack[N] : f32[N:1]"; /* the text has no empty dims */
    const char *text = arena_printf(c->arena, "%slower\n%s%s\n}\n", head, args, lines);
    must_say(c, module_of(c, text), &types[i], text);
    ctx_free(c);
  }
}

static void wrong_modules(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
    Ctx *c = ctx_new();
    const char *text = arena_printf(c->arena, "%s%s", head, modules[i].lines);
    must_say(c, module_of(c, text), &modules[i], text);
    ctx_free(c);
  }
}

static void right_modules(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) {
    Ctx *c = ctx_new();
    sound_module(c, arena_printf(c->arena, "%s%s", head, sound[i]));
    ctx_free(c);
  }
}

/* What no text can say is broken by hand. */
typedef void Breaker(Module *m, Fn *f);

static void strange_dim(Module *m, Fn *f) {
  f->values.at[0].type.axis[0].dim = intern(m->ctx->names, "a-b");
}
static void strange_global(Module *m, Fn *f) {
  (void)f, m->globals.at[0]->name = intern(m->ctx->names, "a b");
}
static void strange_fn(Module *m, Fn *f) { f->name = intern(m->ctx->names, "1f"); }
static void twin_fn(Module *m, Fn *f) { module_add(m, fn_new(m, FN_BODY, f->name)); }
static void twin_global(Module *m, Fn *f) {
  (void)f,
      module_add_global(m, GLOBAL_OUTPUT, m->globals.at[0]->name, type_scalar(ELEM_f32), (Loc){0});
}
static void use_before(Module *m, Fn *f) { (void)m, f->ops.at[0].in[0] = f->ops.at[0].out; }
static void use_nothing(Module *m, Fn *f) { (void)m, f->ops.at[0].in[0] = 77; }
static void foreign_result(Module *m, Fn *f) { (void)m, f->ops.at[0].out = 0; }
static void no_argument(Module *m, Fn *f) { (void)m, f->args.at[0] = f->ops.at[0].out; }
static void no_result(Module *m, Fn *f) { fn_result(m, f, 99); }
static void many_operands(Module *m, Fn *f) { (void)m, f->ops.at[0].nin = 0; }
static void many_results(Module *m, Fn *f) { (void)m, f->ops.at[0].code = OP_store; }
static void strange_symbol(Module *m, Fn *f) { (void)m, f->ops.at[0].callee = f; }
static void empty_dim(Module *m, Fn *f) { (void)m, f->values.at[0].type.axis[0].size = 0; }
static void twin_attr(Module *m, Fn *f) {
  AttrList *l = &f->ops.at[0].attrs;
  attr_set_float(m, l, ATTR_value, 1), attr_set_float(m, l, ATTR_fill, 1);
  l->at[1] = l->at[0];
}
static void no_symbol(Module *m, Fn *f) {
  (void)m, f->ops.at[0].code = OP_copy, f->ops.at[1].global = NULL;
}
static void no_callee(Module *m, Fn *f) { (void)m, f->ops.at[0].code = OP_call; }
static void gone_global(Module *m, Fn *f) { (void)f, m->globals.n = 0; }
static void no_strides(Module *m, Fn *f) {
  m->after = intern(m->ctx->names, "order"), f->ops.n = 0, f->kind = FN_BODY;
}

static const struct {
  Breaker *breaker;
  Broken want;
} by_hand[] = {
    {strange_dim, {"name-c1", "E1101", 0}},   {strange_global, {"name-c2", "E1101", 0}},
    {strange_fn, {"name-c3", "E1101", 0}},    {twin_fn, {"fn-c1", "E1101", 0}},
    {twin_global, {"global-c3", "E1105", 0}}, {use_before, {"ssa-c1", "E1101", 0}},
    {use_nothing, {"ssa-c1", "E1101", 0}},    {foreign_result, {"ssa-c2", "E1101", 0}},
    {no_argument, {"ssa-c3", "E1101", 0}},    {no_result, {"ssa-c4", "E1101", 0}},
    {many_operands, {"op-c1", "E1102", 0}},   {many_results, {"op-c2", "E1105", 0}},
    {strange_symbol, {"op-c3", "E1101", 0}},  {empty_dim, {"type-c4", "E1102", 0}},
    {twin_attr, {"attr-c3", "E1103", 0}},     {no_symbol, {"global-c1", "E1105", 0}},
    {no_callee, {"call-c1", "E1104", 0}},     {gone_global, {"global-c6", "E1105", 0}},
    {no_strides, {"order-c1", "E1107", 0}},
};

static void broken_by_hand(void **state) {
  (void)state;
  static const char text[] = "lower\noutput @o : f32[A:2]\nkernel @f(%0 : f32[A:2]) {\n"
                             "%1 = exp %0 : f32[A:2]\nstore @o, %1\n}\n";
  for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
    Ctx *c = ctx_new();
    Module *m = module_of(c, arena_printf(c->arena, "%s%s", head, text));
    assert_non_null(m);
    by_hand[i].breaker(m, m->fns.at[0]);
    must_say(c, m, &by_hand[i].want, text);
    ctx_free(c);
  }
}

/* Errors point at the op in the text, or at its place in the user's file. */
static void points_at_the_op(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(
      c, arena_printf(c->arena, "%slower\n%s  %%20 = exp %%2 : i32[A:2]\n}\n", head, args));
  assert_false(ir_verify(m));
  assert_non_null(strstr(reported(c), "test.ir:5:3"));
  ctx_free(c);
  c = ctx_new();
  m = module_new(c);
  vec_push(m->arena, m->sources, (IrSource){.name = "user.shard", .text = "one\ntwo three\n"});
  Fn *f = fn_new(m, FN_BODY, "f");
  Type t = type_scalar(ELEM_i32);
  ValueId a = fn_arg(m, f, t);
  fn_op(m, f, OP_exp, 1, &a, 1, &t, (Loc){1, 2, 5, 5});
  module_add(m, f);
  assert_false(ir_verify(m));
  assert_non_null(strstr(reported(c), "user.shard:2:5"));
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_types),      cmocka_unit_test(wrong_modules),
      cmocka_unit_test(right_modules),    cmocka_unit_test(broken_by_hand),
      cmocka_unit_test(points_at_the_op),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The verifier: placements on a mesh, collectives and their messages. */
#include "broken.h"

#define SENDING(op, attributes, result)                                                            \
  "localize\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = " op " %0 {" attributes "} : f32[" result  \
  "]\n}\n"

static const Broken modules[] = {
    {"collective-c1", "E1102",
     "collect\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:2, B:4]) {\n%1 = all_to_all[A -> A] %0 {axis "
     "= \"x\"} : f32[A:2, B:4]\n}\n"},
    {"collective-c2", "E1102",
     "localize\nmesh x = 2, y = 2\nbody @b(%0 : f32[A:3]) {\n%1 = reduce_scatter[A] %0 {axis = "
     "\"x\", ranks = 2} : f32[A:1]\n}\n"},
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
     "invariant = 0, trip = 1, stack_length = 2, continues = [0]} : f32[L:2, A/x:4]\n}\n"},
    {"shard-c9", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @f(%0 : i32[], %1 : f32[A:4] partial(x)) {\nreturn "
     "%1\n}\nbody @b(%0 : f32[A:4] partial(x)) {\n%1 = loop[L] @f, %0 {carry = 0, invariant = 1, "
     "trip = 2} : f32[L:2, A:4] partial(x)\n}\n"},
    {"shard-c10", "E1109",
     "collect\nmesh x = 2, y = 2\nparam @w : f32[A/x:4]\nentry @b {\n%0 = load @w : f32[A:4]\n}\n"},
    {"shard-c11", "E1109",
     "collect\nmesh x = 2, y = 2\nbody @f(%0 : i32[], %1 : f32[A:4]) {\nreturn %1\n}\nbody @b(%0 : "
     "f32[A:4]) {\n%1 = loop[L] @f, %0 {carry = 1, invariant = 0, trip = 2, stages = \"x\"} : "
     "f32[A:4]\n}\n"},
    {"message-c1", "E1110",
     "select\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = "
     "\"x\", ranks = 2, messages = 3} : f32[A:4]\nreturn %1\n}\n"},
    {"message-c2", "E1110",
     "select\nmesh x = 2\nset plan.zero.bucket = \"64\"\nbody @b(%0 : f32[B:4, O:2, Piece'0:8]) {\n"
     "%1 = reduce_scatter[O] %0 {axis = \"x\", ranks = 2, messages = 2} : f32[B:4, O:1, "
     "Piece'0:8]\n"
     "return %1\n}\n"},
    {"message-c3", "E1110",
     "select\nmesh x = 2\ntarget {device = gpu, ..}\nbody @b(%0 : f32[A:4, B:1]) {\n"
     "%1 = all_gather[B] %0 {axis = \"x\", ranks = 2, workspace = 64} : f32[A:4, B:2]\n"
     "%2 = all_gather[B] %0 {axis = \"x\", ranks = 2} : f32[A:4, B:2]\nreturn %2\n}\n"},
    {"message-c4", "E1110",
     "select\nmesh x = 2\ntarget {device = gpu, ..}\nset comm = \"local\"\nset "
     "plan.zero.bucket = \"8\"\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ranks "
     "= "
     "2} "
     ": f32[A:4]\nreturn %1\n}\n"},
    {"mesh-c1", "E1109", SENDING("all_reduce", "axis = \"x\", ranks = 4", "A:4")},
    {"mesh-c1", "E1109",
     "collect\nmesh x = 2\nbody @b(%0 : f32[A:4] partial(x)) {\n%1 = all_reduce %0 {axis = \"x\", "
     "ranks = 2} : f32[A:4]\n}\n"},
    {"hop-c1", "E1109",
     "localize\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = receive %0 {axis = \"x\", ranks = 2} : "
     "f32[A:4]\n%2 = send %1 {reverse = 1, axis = \"x\", ranks = 2} : f32[A:4]\nreturn %2\n}\n"},
    {"hop-c2", "E1109",
     "localize\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = receive %0 {axis = \"x\", ranks = 2} : "
     "f32[A:4]\n%2 = sum[A] %1 : f32[]\n%3 = send %2 {axis = \"x\", ranks = 2} : f32[]\nreturn "
     "%3\n}\n"},
    {"hop-c3", "E1102",
     "localize\nmesh x = 2\nbody @b(%0 : f32[A:4]) {\n%1 = receive %0, %0 {axis = \"x\", ranks = "
     "2} "
     ": f32[A:4]\nreturn %1\n}\n"},
    {"mesh-c2", "E1109", SENDING("all_reduce", "axis = \"x\", reduce = \"y\", ranks = 2", "A:4")},
    {"mesh-c3", "E1109",
     "localize\nmesh x = 2\nbody @b(%0 : i32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ranks = "
     "2} : i32[A:4]\n}\n"},
    {"mesh-c4", "E1109", SENDING("part[A]", "axis = \"x\", ranks = 2", "A:2")},
    {"mesh-c6", "E1109", SENDING("rotate", "by = 2, axis = \"x\", ranks = 2", "A:4")},
    {"mesh-c5", "E1109",
     "localize\nmesh x = 2, y = 2\nparam @w : f32[A/x:4]\noutput @o : f32[]\nscalar @mesh.of.x : "
     "i32[]\nentry @e {\n%0 = load @w : f32[A:4]\n%1 = sum[A] %0 : f32[]\n%2 = all_reduce %1 {axis "
     "= \"y\", ranks = 2} : f32[]\nstore @o, %2\n}\n"},
    {"mesh-c5", "E1109",
     "localize\nmesh x = 2\nscalar @mesh.of.x : i32[]\noutput @o : i32[]\nbody @b(%0 : i32[], %1 : "
     "i32[], %2 : i32[]) {\n%3 = add %1, %2 : i32[]\nreturn %3\n}\nentry @e {\n%0 = const {value "
     "= 0} : i32[]\n%1 = load @mesh.of.x : i32[]\n%2 = loop[L] @b, %0, %1 {carry = 1, invariant = "
     "1, "
     "trip = 2} : i32[]\nstore @o, %2\n}\n"},
    {"shard-c4", "E1109",
     "localize\nbody @b(%0 : f32[A:4]) {\n%1 = all_reduce %0 {axis = \"x\", ranks = 2} : "
     "f32[A:4]\n}\n"},
};

int main(void) { return verify_tests(modules, sizeof modules / sizeof *modules, NULL, 0); }

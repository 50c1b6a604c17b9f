/* The verifier: what a kernel function holds, its family, and how it is cut. */
#include "broken.h"

#define ROWS(family, ops, last)                                                                    \
  "fuse\nkernel @k(%0 : f32[A:2, B:3, C:2]) {family = \"" family "\"} {\n%1 = " ops                \
  " : f32[A:2, B:3, C:2]\n%9 = " last " : f32[A:2]\nreturn %9\n}\n"
#define PACKS(family, over, left)                                                                  \
  "fuse\nkernel @k(%0 : f32[A:2, B:8, C:2]) {family = \"" family "\"} {\n%1 = sum[" over           \
  "] %0 : f32[" left "]\n%2 = lt %0, %0 : bool[A:2, B:8, C:2]\n"                                   \
  "%3 = pack_bits[B -> E] %2 : u8[A:2, C:2, E:1]\nreturn %1, %3\n}\n"
#define ELEM_WITH(attributes)                                                                      \
  "select\nkernel @k(%0 : f32[A:4]) {family = \"elem\", " attributes                               \
  "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define GPU_TILE(tile, attributes)                                                                 \
  "select\ntarget {device = gpu, ..}\n"                                                            \
  "kernel @k(%0 : f32[A:4]) {family = \"elem\", variant = \"vector\", tile = " tile                \
  ", " attributes "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
#define GPU_WITH(attributes) GPU_TILE("[4, 1]", attributes)
#define GPU_ONE "chunks = [1], threads = [32], shared = [0]"
#define GRADIENTS(ops)                                                                             \
  "fuse\nkernel @k(%0 : f32[N:6, M:2], %1 : f32[K:6, M:2], %2 : f32[N:6]) {family = "              \
  "\"attention_grad\"} {\n%4, %5, %6 = attention_grad[N -> K; M] %0, %1, %1, %0, %2, %0 {scale = " \
  "1} : f32[N:6, M:2], f32[K:6, M:2], f32[K:6, M:2]\n" ops "return %4, %5, %6, %8\n}\n"
#define APART(list, call)                                                                          \
  GPU_WITH(GPU_ONE ", apart = " list)                                                              \
  "body @b(%0 : f32[A:4]) {\n%1 = kernel @k, %0 : f32[A:4]\n" call "return %2\n}\n"
#define GPU_OF(operand, attributes, op)                                                            \
  "select\ntarget {device = gpu, ..}\n"                                                            \
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
#define GROUPS_WITH(attributes)                                                                    \
  "select\ntarget {device = gpu, sm = 90, wgmma = true, multiprocessors = 132, shared = 232448, "  \
  "..}\n"                                                                                          \
  "kernel @k(%0 : bf16[M:4224, K:64], %1 : bf16[K:64, N:1024]) {family = \"contract\", variant = " \
  "\"wgmma\", tile = [128, 256, 64, 64, 256, 3, 1, 1, 3, 4, 8], threads = [384], shared = "        \
  "[182272], " attributes "} {\n%2 = dot[K] %0, %1 : bf16[M:4224, N:1024]\nreturn %2\n}\n"
#define DOT_WITH(attributes)                                                                       \
  "select\nkernel @k(%0 : f32[A:2, K:8], %1 : f32[K:8, B:16]) {family = \"contract\", " attributes \
  "} {\n%2 = dot[K] %0, %1 : f32[A:2, B:16]\nreturn %2\n}\n"
#define ELEM_OF(attributes)                                                                        \
  "select\nkernel @k(%0 : f32[A:4]) {" attributes "} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"

static const Broken modules[] = {
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
    {"fuse-c5", "E1106", PACKS("row", "B, C", "A:2")},
    {"fuse-c5", "E1106", PACKS("column", "B", "A:2, C:2")},
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
     "select\nkernel @k(%0 : f32[A:2, K:8], %1 : f32[K:8, B:12]) {family = \"contract\", tile = "
     "[6, 2, "
     "1, 1, 1, 1, 1, 0, 0, 1], chunks = [1]} {\n%2 = dot[K] %0, %1 : f32[A:2, B:12]\nreturn "
     "%2\n}\n"},
    {"select-c2", "E1110",
     "select\ntarget {vector_registers = 1024, ..}\nkernel @k(%0 : f32[A:64, K:8], %1 : f32[K:8, "
     "B:64]) {family = \"contract\", tile = [10, 4, 1, 1, 1, 1, 1, 0, 1, 1], chunks = [1]} {\n%2 = "
     "dot[K] %0, %1 : f32[A:64, B:64]\nreturn %2\n}\n"},
    {"select-c2", "E1110",
     "select\nkernel @k(%0 : f32[Q:9, D:8], %1 : f32[K:9, D:8], %2 : f32[K:9, D:8]) {family = "
     "\"attention\", tile = [3, 4, 8, 24, 1, 1, 0], chunks = [1]} {\n%3, %4 = attention[Q -> K; D] "
     "%0, "
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
    {"select-c6", "E1110", GPU_WITH(GPU_ONE ", replaces = \"nothing\"")},
    {"select-c2", "E1110", GPU_WITH(GPU_ONE ", spare = 1")},
    {"select-c2", "E1110", GROUPS_WITH("chunks = [132], spare = 0")},
    {"select-c2", "E1110", GROUPS_WITH("chunks = [1], spare = 132")},
    {"select-c3", "E1110", GROUPS_WITH("chunks = [132], spare = 16")},
    {"select-c3", "E1110", GROUPS_WITH("chunks = [116]")},
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
     GPU_OF(
         "%0 : f32[A:3, B:64]",
         "family = \"row\", variant = \"held\", tile = [1, 4, 16], chunks = [1], threads = [128], "
         "shared = [0]",
         "%1 = sum[B] %0 : f32[A:3]\n%2 = lt %1, %0 : bool[A:3, B:64]\n"
         "%3 = pack_bits[B -> E] %2 : u8[A:3, E:8]\nreturn %3")},
    {"select-c2", "E1110",
     GPU_ROW("variant = \"rows\", tile = [1, 32, 4], chunks = [1], threads = [128], shared = [0]")},
    {"select-c4", "E1110",
     GPU_ROW("variant = \"held\", tile = [2, 64, 1], chunks = [3], threads = [64], shared = [0]")},
    {"select-c2", "E1110",
     GPU_COLUMN("variant = \"columns\", tile = [4, 2, 71, 4, 1], chunks = [71, 1], threads = [256, "
                "256], shared = [4096, 0], workspace = 4544")},
    {"select-c2", "E1110",
     GPU_COLUMN(
         "variant = \"along\", tile = [1, 2, 1, 4, 1], chunks = [4], threads = [64], shared = "
         "[512]")},
    {"select-c4", "E1110",
     GPU_COLUMN(
         "variant = \"columns\", tile = [4, 2, 1, 4, 1], chunks = [1], threads = [256], shared "
         "= [1024]")},
    {"select-c2", "E1110",
     GPU_DOT(
         "variant = \"mma\", tile = [32, 32, 16, 16, 32, 3, 1, 3, 4, 4], chunks = [2], threads = "
         "[64], shared = [20736]")},
    {"select-c2", "E1110",
     GPU_DOT(
         "variant = \"fma\", tile = [32, 32, 16, 16, 32, 3, 1, 2, 4, 4], chunks = [2], threads = "
         "[64], shared = [20736]")},
    {"select-c8", "E1110",
     "select\ntarget x86_64_v3 {..}\nkernel @k(%0 : f32[A:4]) {family = \"elem\"} {\n"
     "%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"},
    {"select-c7", "E1110",
     "select\ntarget {device = gpu, ..}\n"
     "kernel @k(%0 : f32[A:3]) {family = \"elem\", variant = \"scalar\", tile = [1, 1], " GPU_ONE
     "} {\n%1 = exp %0 : f32[A:3]\nreturn %1\n}\nbody @b(%0 : f32[A:4]) {\n"
     "%1 = slice[A -> A] %0 {at = 1} : f32[A:3] {0: view(%0 + 1)}\n%2 = kernel @k, %1 : f32[A:3]\n"
     "return %2\n}\n"},
    {"select-c9", "E1110", APART("[1]", "%2 = kernel @k, %1 : f32[A:4] {0: inplace(%1)}\n")},
    {"select-c9", "E1110", APART("[2]", "%2 = kernel @k, %1 : f32[A:4]\n")},
    {"select-c10", "E1110", GPU_WITH(GPU_ONE ", codes = [0, 0, 128]")},
    {"select-c10", "E1110", GPU_WITH(GPU_ONE ", codes = [1, 0, 128]")},
    {"select-c10", "E1110", GPU_WITH(GPU_ONE ", codes = [1, 0, 0]")},
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
    {"family-c2", "E1110",
     GRADIENTS("%7 = mul %4, %4 : f32[N:6, M:2]\n%8 = sum[N] %7 : f32[M:2]\n")},
    {"family-c2", "E1110",
     GRADIENTS("%7 = rename[M -> D] %4 : f32[N:6, D:2]\n%8 = sum[D] %7 : f32[N:6]\n")},
    {"family-c2", "E1110", GRADIENTS("%7 = sum[N] %4 : f32[M:2]\n%8 = mul %7, %7 : f32[M:2]\n")},
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
};

int main(void) { return verify_tests(modules, sizeof modules / sizeof *modules, NULL, 0); }

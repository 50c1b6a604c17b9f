/* The kernels of the double of NCCL (paced.c), as PTX. Entry `ready` writes the time at which a
   message could begin. Entry `move` is the message: it copies `bytes` bytes in repeats of `span`,
   by CTAs of MOVE_THREADS, and lets no CTA be ahead of the clock: chunk i of a CTA ends no earlier
   than start + i * pace / 1024 nanoseconds after the CTA began. The last CTA to end adds up in the
   message's row how long it was ready before it began, how far its CTAs began apart, and how long
   it took. */
#ifndef SHARDC_BENCH_PACED_KERNEL_H
#define SHARDC_BENCH_PACED_KERNEL_H
#include <stdint.h>

enum { MOVE_THREADS = 512, MOVE_AT_ONCE = 4 };

typedef struct PacedRow { /* on the device; nanoseconds of %globaltimer */
  uint64_t ready, first, last, end, done;
  uint64_t waited, apart, took, runs; /* sums over the runs of the message */
} PacedRow;

static const char paced_ready[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry ready(.param .u64 row)\n{\n.reg .b64 %d<3>;\n"
    "ld.param.u64 %d1, [row]; mov.u64 %d2, %globaltimer; st.global.u64 [%d1], %d2; ret;\n}\n";

/* The format of the kernel for accesses of one width. Its arguments: bytes of an access; bytes of a
   chunk, twice; bytes of an access; bytes of one, two and three accesses of all threads; the text
   of a chunk. */
#define PACED_MOVE                                                                                 \
  ".visible .entry move%d(.param .u64 row, .param .u64 to, .param .u64 from, .param .u64 bytes,\n" \
  ".param .u64 span, .param .u64 to_step, .param .u64 from_step, .param .u64 start,\n"             \
  ".param .u64 pace)\n.maxntid 512, 1, 1\n{\n"                                                     \
  ".reg .b64 %%d<40>; .reg .b32 %%r<8>; .reg .b32 %%x<16>; .reg .pred %%p<8>;\n"                   \
  "ld.param.u64 %%d1, [row]; ld.param.u64 %%d2, [to]; ld.param.u64 %%d3, [from];\n"                \
  "ld.param.u64 %%d4, [bytes]; ld.param.u64 %%d5, [span]; ld.param.u64 %%d6, [to_step];\n"         \
  "ld.param.u64 %%d7, [from_step]; ld.param.u64 %%d8, [start]; ld.param.u64 %%d9, [pace];\n"       \
  "mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%nctaid.x;\n"                    \
  "setp.ne.u32 %%p1, %%r1, 0; mov.u64 %%d10, %%globaltimer; @%%p1 bra BEGUN;\n"                    \
  "red.global.min.u64 [%%d1+8], %%d10; red.global.max.u64 [%%d1+16], %%d10;\n"                     \
  "BEGUN:\nadd.s64 %%d11, %%d10, %%d8; mov.u64 %%d12, 0;\n"                                        \
  "mul.wide.u32 %%d13, %%r2, %d; mul.wide.u32 %%d14, %%r3, %d; mul.wide.u32 %%d15, %%r1, %d;\n"    \
  "PLACE:\nsetp.ge.u64 %%p2, %%d13, %%d5; @%%p2 bra DONE;\n"                                       \
  "mov.u64 %%d16, 0; mov.u64 %%d17, %%d2; mov.u64 %%d18, %%d3;\n"                                  \
  "REPEAT:\nsetp.ge.u64 %%p2, %%d16, %%d4; @%%p2 bra NEXT;\n"                                      \
  "add.s64 %%d19, %%d13, %%d15; sub.s64 %%d20, %%d4, %%d16; min.u64 %%d20, %%d20, %%d5;\n"         \
  "add.s64 %%d21, %%d17, %%d19; add.s64 %%d22, %%d18, %%d19;\n"                                    \
  "add.s64 %%d23, %%d19, %d; add.s64 %%d24, %%d19, %d; add.s64 %%d25, %%d19, %d;\n"                \
  "setp.lt.u64 %%p3, %%d19, %%d20; setp.lt.u64 %%p4, %%d23, %%d20;\n"                              \
  "setp.lt.u64 %%p5, %%d24, %%d20; setp.lt.u64 %%p6, %%d25, %%d20;\n"                              \
  "%s"                                                                                             \
  "add.s64 %%d12, %%d12, 1; mul.lo.s64 %%d26, %%d12, %%d9; shr.u64 %%d26, %%d26, 10;\n"            \
  "add.s64 %%d26, %%d26, %%d11; @%%p1 bra PACED;\n"                                                \
  "WAIT:\nmov.u64 %%d27, %%globaltimer; setp.lt.u64 %%p7, %%d27, %%d26; @%%p7 bra WAIT;\n"         \
  "PACED:\nbar.sync 0;\n"                                                                          \
  "add.s64 %%d16, %%d16, %%d5; add.s64 %%d17, %%d17, %%d6; add.s64 %%d18, %%d18, %%d7;\n"          \
  "bra REPEAT;\nNEXT:\nadd.s64 %%d13, %%d13, %%d14; bra PLACE;\n"                                  \
  "DONE:\n@%%p1 bra END; mov.u64 %%d28, %%globaltimer; red.global.max.u64 [%%d1+24], %%d28;\n"     \
  "membar.gl; sub.s32 %%r4, %%r3, 1; atom.global.inc.u32 %%r5, [%%d1+32], %%r4;\n"                 \
  "setp.ne.u32 %%p2, %%r5, %%r4; @%%p2 bra END;\n"                                                 \
  "mov.u64 %%d29, -1; atom.global.exch.b64 %%d30, [%%d1+8], %%d29; mov.u64 %%d29, 0;\n"            \
  "atom.global.exch.b64 %%d31, [%%d1+16], %%d29; atom.global.exch.b64 %%d32, [%%d1+24], %%d29;\n"  \
  "ld.global.u64 %%d33, [%%d1]; sub.s64 %%d34, %%d30, %%d33; red.global.add.u64 [%%d1+40], "       \
  "%%d34;\n"                                                                                       \
  "sub.s64 %%d35, %%d31, %%d30; red.global.add.u64 [%%d1+48], %%d35;\n"                            \
  "sub.s64 %%d36, %%d32, %%d30; red.global.add.u64 [%%d1+56], %%d36; mov.u64 %%d37, 1;\n"          \
  "red.global.add.u64 [%%d1+64], %%d37;\nEND:\nret;\n}\n"
#endif

/* A program for a GPU written by hand, without the compiler: w [Vocab] learns the number 1 for
   every token that it meets, one token after the other. The kernel `learn` has two phases, a
   counter, work memory and more dynamic shared memory than a function has unasked. The environment
   makes it misbehave: TOY_FAULT=N adds N bytes to an address. */
#include "tests/common/by_hand.h"
#include <stdlib.h>

enum { VOCAB = 256, TOKENS = 64, IO_TOKENS = 0, IO_STEP = 256, IO_SEED = 264, IO_LOSS = 320 };
enum {
  IO_EVAL = 324,
  IO_ASK = 384,
  IO_OUT = 640,
  IO_TARGETS = 640 + 16 * 256 * 4,
  IO_BYTES = IO_TARGETS + 256,
  SHARED = 60000
};

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"
#define REGS                                                                                       \
  ".reg .b64 %rd<9>; .reg .b32 %r<6>; .reg .f32 %f<8>; .reg .pred %p;\n"                           \
  "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"                            \
  "mad.lo.s32 %r4, %r1, %r2, %r3;\n"

/* w[i] = i / 1024 */
static const char begin_ptx[] =
    HEAD ".visible .entry begin_p0(.param .u64 w)\n{\n" REGS "ld.param.u64 %rd1, [w];\n"
         "cvt.rn.f32.s32 %f1, %r4; mul.f32 %f1, %f1, 0f3A800000;\n"
         "mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n"
         "st.global.f32 [%rd3], %f1; ret;\n}\n";

/* One thread: for all tokens e = 1 - w[t]; work[i] = e * e; w[t] += rate * e. Phase 1 adds up. */
#define LOOP(rate)                                                                                 \
  "mov.u32 %r1, 0;\n"                                                                              \
  "NEXT:\n"                                                                                        \
  "mul.wide.s32 %rd4, %r1, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r2, [%rd5];\n"              \
  "mul.wide.s32 %rd6, %r2, 4; add.s64 %rd7, %rd2, %rd6; ld.global.f32 %f1, [%rd7];\n"              \
  "mov.f32 %f2, 0f3F800000; sub.f32 %f3, %f2, %f1; mul.f32 %f4, %f3, %f3;\n"                       \
  "fma.rn.f32 %f5, %f3, " rate ", %f1; st.global.f32 [%rd7], %f5;\n"                               \
  "add.s64 %rd8, %rd3, %rd4; st.global.f32 [%rd8], %f4;\n"                                         \
  "add.s32 %r1, %r1, 1; setp.lt.s32 %p, %r1, 64; @%p bra NEXT;\nret;\n}\n"
#define PARAMS                                                                                     \
  "(.param .u64 tokens, .param .u64 w, .param .u64 out, .param .u64 counter, .param .u64 work)"
#define LEARN(name, rate)                                                                          \
  HEAD ".extern .shared .align 16 .b8 room[];\n"                                                   \
       ".visible .entry " name "_p0" PARAMS "\n{\n" REGS                                           \
       "ld.param.u64 %rd1, [tokens]; ld.param.u64 %rd2, [w]; ld.param.u64 %rd3, [work];\n"         \
       "st.shared.u32 [room+59996], %r3;\n" LOOP(                                                  \
           rate) ".visible .entry " name "_p1" PARAMS "\n{\n" REGS                                 \
                 "ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, "     \
                 "[work];\n"                                                                       \
                 "ld.global.u32 %r5, [%rd1]; setp.ne.s32 %p, %r5, 2; @%p trap;\n"                  \
                 "mov.u32 %r1, 0; mov.f32 %f1, 0f00000000;\n"                                      \
                 "MORE:\n"                                                                         \
                 "mul.wide.s32 %rd4, %r1, 4; add.s64 %rd5, %rd3, %rd4; ld.global.f32 %f2, "        \
                 "[%rd5];\n"                                                                       \
                 "fma.rn.f32 %f1, %f2, 0f3C800000, %f1;\n"                                         \
                 "add.s32 %r1, %r1, 1; setp.lt.s32 %p, %r1, 64; @%p bra MORE;\n"                   \
                 "st.global.f32 [%rd2], %f1; ret;\n}\n"

static const char learn_ptx[] = LEARN("learn", "0f3D4CCCCD"),
                  judge_ptx[] = LEARN("judge", "0f00000000");

/* out[i, v] = w[v], 16 CTAs of 256 threads */
static const char show_ptx[] = HEAD
    ".visible .entry show_p0(.param .u64 w, .param .u64 out)\n{\n" REGS
    "ld.param.u64 %rd1, [w]; ld.param.u64 %rd2, [out];\n"
    "mul.wide.s32 %rd3, %r3, 4; add.s64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4];\n"
    "mul.wide.s32 %rd5, %r4, 4; add.s64 %rd6, %rd2, %rd5; st.global.f32 [%rd6], %f1; ret;\n}\n";

#define IMAGE(name)                                                                                \
  static const rt_image name##_image = {.text = name##_ptx,                                        \
                                        .text_end = name##_ptx + sizeof name##_ptx - 1}
IMAGE(begin);
IMAGE(learn);
IMAGE(judge);
IMAGE(show);

static const rt_kernel begin = {.name = "init.elem1",
                                .source = "toy.shard:4",
                                .phases = 1,
                                .phase = {{.entry = "begin_p0", .chunks = 4, .threads = 64}},
                                .image = &begin_image,
                                .nbuffers = 1};
#define TWO_PHASES(n)                                                                              \
  .phases = 2, .phase = {{.entry = n "_p0", .chunks = 1, .threads = 1, .shared = SHARED},          \
                         {.entry = n "_p1", .chunks = 1, .threads = 1}}
static const rt_kernel learn = {.name = "step.learn",
                                .source = "toy.shard:7",
                                TWO_PHASES("learn"),
                                .flop = 256,
                                .bytes = 1024,
                                .image = &learn_image,
                                .nbuffers = 5};
static const rt_kernel judge = {.name = "eval.judge",
                                .source = "toy.shard:7",
                                TWO_PHASES("judge"),
                                .image = &judge_image,
                                .nbuffers = 5};
static const rt_kernel show = {.name = "logits.show",
                               .source = "",
                               .phases = 1,
                               .phase = {{.entry = "show_p0", .chunks = 16, .threads = 256}},
                               .image = &show_image,
                               .nbuffers = 2};

static int64_t fault(void) {
  const char *text = getenv("TOY_FAULT");
  return text ? atoll(text) : 0;
}

static void init(rt_ctx *rt) {
  rt_launch(rt, &begin, (void *[]){rt->arena[RT_WEIGHTS]});
  rt_zero(rt, rt->arena[RT_STATES], VOCAB * 4);
}

static void pass(rt_ctx *rt, const rt_kernel *k, int loss) {
  char *io = rt->arena[RT_IO], *work = rt->arena[RT_WORK];
  rt_copy(rt, work + 256, rt->arena[RT_WEIGHTS], VOCAB * 4);
  rt_zero(rt, work, 256);
  rt_launch(rt, k,
            (void *[]){io + IO_TOKENS, rt->arena[RT_WEIGHTS] + fault(), io + loss,
                       rt_counter(rt, 2), work});
}

static void step(rt_ctx *rt) { pass(rt, &learn, IO_LOSS); }
static void eval(rt_ctx *rt) { pass(rt, &judge, IO_EVAL); }
static void logits(rt_ctx *rt) {
  rt_launch(rt, &show, (void *[]){rt->arena[RT_WEIGHTS], rt->arena[RT_IO] + IO_OUT});
}

#define SEEN(begin, n, at) AT(RT_IO, begin, n), .view = at
static const rt_tensor tensors[] = {
    VALUE("w", RT_PARAM, RT_F32, AT(RT_WEIGHTS, 0, VOCAB * 4), .view = -1, .rank = 1,
          .dim = {"Vocab"}, .size = {VOCAB}),
    VALUE("adam.m.w", RT_STATE, RT_F32, AT(RT_STATES, 0, VOCAB * 4), .view = -1, .rank = 1,
          .dim = {"Vocab"}, .size = {VOCAB}),
    INPUT("tokens", 4, 16, VOCAB, SEEN(IO_TOKENS, 256, 0)),
    INPUT("targets", 4, 16, VOCAB, SEEN(IO_TARGETS, 256, 256)),
    VALUE("step", RT_SCALAR, RT_I32, SEEN(IO_STEP, 4, 512)),
    VALUE("seed", RT_SCALAR, RT_I64, SEEN(IO_SEED, 8, 576)),
    VALUE("loss", RT_OUTPUT, RT_F32, SEEN(IO_LOSS, 4, 640)),
    VALUE("eval.loss", RT_OUTPUT, RT_F32, SEEN(IO_EVAL, 4, 704)),
    INPUT("logits.tokens", 1, 16, VOCAB, SEEN(IO_ASK, 64, 768)),
    VALUE("out.logits", RT_OUTPUT, RT_F32, AT(RT_IO, IO_OUT, 16 * VOCAB * 4), .view = -1, .rank = 3,
          .dim = {"Batch", "Seq", "Vocab"}, .size = {1, 16, VOCAB}),
};
static const rt_entry entries[] = {{.name = "init", .run = init},
                                   {.name = "step", .run = step, .work_bytes = 1280},
                                   {.name = "eval", .run = eval, .work_bytes = 1280},
                                   {.name = "logits", .run = logits}};
static const rt_kernel *const kernels[] = {&begin, &learn, &judge, &show};
static const rt_setting settings[] = {{"train.steps", "20"},
                                      {"train.batch", "4"},
                                      {"data.valid", "10%"},
                                      {"train.eval.batches", "2"}};
static const char *const sources[] = {"toy.shard", "# by hand\n", NULL};

const rt_program rt_the_program = {.abi = RT_ABI_VERSION,
                                   .model = "Toy",
                                   .compiler = "by hand",
                                   .hash = "00c0ffef",
                                   .target = "sm_80",
                                   .sm = 80,
                                   .workers = 1,
                                   .arena_bytes = {VOCAB * 4, VOCAB * 4, IO_BYTES + 128, 1280},
                                   .counters = 4,
                                   .counters_at = IO_BYTES,
                                   .host_view = 832,
                                   .host_window = 256, /* w passes through it in four */
                                   .tensors = tensors,
                                   .ntensors = sizeof tensors / sizeof *tensors,
                                   .entries = entries,
                                   .nentries = sizeof entries / sizeof *entries,
                                   .kernels = kernels,
                                   .nkernels = sizeof kernels / sizeof *kernels,
                                   .settings = settings,
                                   .nsettings = sizeof settings / sizeof *settings,
                                   .sources = sources};

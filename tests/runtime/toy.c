/* A program as the compiler would write it, by hand: a bigram model of bytes. Each row of w holds
   the logits of the byte that follows; one step is softmax, cross-entropy and SGD with momentum.
   Small, but it uses all services of the runtime: arenas, scratch, kernels of two phases, copies,
   counters, states, three scalars, four entries.

   Environment, for tests of faults: TOY_NAN=n the loss of step n is NaN; TOY_SLOW=ms a step takes
   that time, TOY_SLOW_EVAL=ms an evaluation, TOY_MARK=file is made when such a step or evaluation
   begins; TOY_ALLOC=1 a step allocates; TOY_OVERRUN=1 a kernel writes past the end of the work
   arena; TOY_STRAY=1 before its begin; TOY_CRASH=n kills the process in step n. */
#include "tests/common/by_hand.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef ASIDE
#define ASIDE 0
#endif

enum { BATCH = 8, SEQ = 16, VOCAB = 256, ROWS = BATCH * SEQ, CELLS = VOCAB * VOCAB };
enum { W_BYTES = CELLS * 4, TOKENS = ROWS * 4 };
enum {
  IO_TOKENS = 0,
  IO_TARGETS = TOKENS,
  IO_STEP = 2 * TOKENS,
  IO_SEED = IO_STEP + 64,
  IO_LOSS = IO_SEED + 64,
  IO_EVAL = IO_LOSS + 64,
  IO_LR = IO_EVAL + 64,
  IO_NORM = IO_LR + 64,
  IO_ASK = IO_NORM + 64,
  IO_OUT = IO_ASK + SEQ * 4,
  IO_BYTES = IO_OUT + SEQ * VOCAB * 4
};
enum {
  WORK_GRAD = 0,
  WORK_LOSS = ROWS * VOCAB * 4,
  WORK_BYTES = WORK_LOSS + ROWS * 4
}; /* gradient rows, loss per row */

static int knob(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : -1;
}

static void dawdle(const char *name) {
  int ms = knob(name);
  const char *mark = getenv("TOY_MARK");
  if (ms > 0 && mark) close(open(mark, O_WRONLY | O_CREAT, 0666));
  if (ms > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* buffers: tokens, targets, w, gradient rows, loss per row, loss. Phase 0: 16 positions a chunk;
 * phase 1: the mean. */
static void forward_p0(void *const *b, int64_t chunk, void *scratch) {
  const int32_t *tokens = b[0], *targets = b[1];
  float *e = scratch;
  for (int64_t i = chunk * 16; i < chunk * 16 + 16; i++) {
    const float *row = (const float *)b[2] + (int64_t)tokens[i] * VOCAB;
    float *grad = (float *)b[3] + i * VOCAB, most = row[0], sum = 0;
    for (int k = 1; k < VOCAB; k++) most = row[k] > most ? row[k] : most;
    for (int k = 0; k < VOCAB; k++) sum += e[k] = expf(row[k] - most);
    for (int k = 0; k < VOCAB; k++) grad[k] = (e[k] / sum - (float)(k == targets[i])) / ROWS;
    ((float *)b[4])[i] = logf(sum) + most - row[targets[i]];
  }
}

static void forward_p1(void *const *b, int64_t chunk, void *scratch) {
  float sum = 0;
  (void)chunk, (void)scratch;
  for (int i = 0; i < ROWS; i++) sum += ((float *)b[4])[i];
  *(float *)b[5] = sum / ROWS;
}

/* buffers: tokens, gradient rows, w, momentum, lr. A chunk is 16 rows of w. */
static void update_p0(void *const *b, int64_t chunk, void *scratch) {
  const int32_t *tokens = b[0];
  float lr = *(float *)b[4];
  (void)scratch;
  for (int64_t r = chunk * 16; r < chunk * 16 + 16; r++) {
    float *w = (float *)b[2] + r * VOCAB, *m = (float *)b[3] + r * VOCAB;
    for (int k = 0; k < VOCAB; k++) m[k] *= 0.9f;
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; tokens[i] == r && k < VOCAB; k++)
        m[k] += ((const float *)b[1])[i * VOCAB + k];
    for (int k = 0; k < VOCAB; k++) w[k] -= lr * m[k];
  }
}

/* buffers: tokens, w, logits. */
static void gather_p0(void *const *b, int64_t chunk, void *scratch) {
  (void)scratch;
  memcpy((float *)b[2] + chunk * VOCAB,
         (const float *)b[1] + (int64_t)((int32_t *)b[0])[chunk] * VOCAB, VOCAB * 4);
}

static const rt_kernel forward = {
    .name = "forward",
    .source = "toy.shard:7",
    .phases = 2,
    .phase = {{.run = forward_p0, .chunks = ROWS / 16}, {.run = forward_p1, .chunks = 1}},
    .flop = 1e5,
    .bytes = 3e5};
static const rt_kernel update = {.name = "update",
                                 .source = "toy.shard:9",
                                 .phases = 1,
                                 .phase = {{.run = update_p0, .chunks = VOCAB / 16}},
                                 .flop = 2e5,
                                 .bytes = 7e5};
static const rt_kernel gather = {.name = "gather",
                                 .source = "toy.shard:8",
                                 .phases = 1,
                                 .phase = {{.run = gather_p0, .chunks = SEQ}},
                                 .bytes = 3e4};

static void init(rt_ctx *rt) {
  float *w = (float *)rt->arena[RT_WEIGHTS];
  int64_t seed = *(int64_t *)(rt->arena[RT_IO] + IO_SEED);
  for (uint32_t i = 0; i < CELLS; i++)
    w[i] = 0.02f * ((float)((i * 2654435761u + (uint32_t)seed * 97u) >> 16) / 65536.0f - 0.5f);
  rt_zero(rt, rt->arena[RT_STATES], W_BYTES);
}

static void run_forward(rt_ctx *rt, int loss) {
  char *io = rt->arena[RT_IO], *work = rt->arena[RT_WORK];
  rt_launch(rt, &forward,
            (void *[]){io + IO_TOKENS, io + IO_TARGETS, rt->arena[RT_WEIGHTS], work + WORK_GRAD,
                       work + WORK_LOSS, io + loss});
}

static void misbehave(rt_ctx *rt, int step) {
  char *work = rt->arena[RT_WORK];
  if (knob("TOY_NAN") == step)
    *(float *)(rt->arena[RT_IO] + IO_LOSS) = NAN, ((float *)rt->arena[RT_STATES])[7] = NAN;
  if (knob("TOY_ALLOC") > 0) {
    void *volatile p = malloc(100); /* volatile: the pair must not be optimised away */
    free(p);
  }
  if (knob("TOY_OVERRUN") > 0) *(volatile float *)(work + WORK_BYTES) = 1;
  if (knob("TOY_STRAY") > 0) *(volatile float *)(work - 4) = 1;
  if (knob("TOY_CRASH") == step) abort();
  dawdle("TOY_SLOW");
}

static void step(rt_ctx *rt) {
  char *io = rt->arena[RT_IO], *work = rt->arena[RT_WORK];
  int32_t now = *(int32_t *)(io + IO_STEP);
  *(float *)(io + IO_LR) = 8.0f / (1 + *(int32_t *)rt_counter(rt, 1));
  *(float *)(io + IO_NORM) = 1;
  run_forward(rt, IO_LOSS);
  rt_launch(rt, &update,
            (void *[]){io + IO_TOKENS, work + WORK_GRAD, rt->arena[RT_WEIGHTS],
                       rt->arena[RT_STATES], io + IO_LR});
  misbehave(rt, now);
}

static void eval(rt_ctx *rt) {
  dawdle("TOY_SLOW_EVAL");
  run_forward(rt, IO_EVAL);
}

static void logits(rt_ctx *rt) {
  char *io = rt->arena[RT_IO];
  float *copy = (float *)rt->arena[RT_WORK];
  rt_launch(rt, &gather, (void *[]){io + IO_ASK, rt->arena[RT_WEIGHTS], copy});
  rt_copy(rt, io + IO_OUT, copy, SEQ * VOCAB * 4);
}

static const rt_tensor tensors[] = {
    VALUE("w", RT_PARAM, RT_F32, AT(RT_WEIGHTS, 0, W_BYTES), .rank = 2, .dim = {"Vocab", "Next"},
          .size = {VOCAB, VOCAB}),
    VALUE("w.momentum", RT_STATE, RT_F32, AT(RT_STATES, 0, W_BYTES), .rank = 2,
          .dim = {"Vocab", "Next"}, .size = {VOCAB, VOCAB}),
    INPUT("tokens", BATCH, SEQ, VOCAB, AT(RT_IO, IO_TOKENS, TOKENS)),
    INPUT("targets", BATCH, SEQ, VOCAB, AT(RT_IO, IO_TARGETS, TOKENS)),
    VALUE("step", RT_SCALAR, RT_I32, AT(RT_IO, IO_STEP, 4)),
    VALUE("seed", RT_SCALAR, RT_I64, AT(RT_IO, IO_SEED, 8)),
    VALUE("loss", RT_OUTPUT, RT_F32, AT(RT_IO, IO_LOSS, 4)),
    VALUE("eval.loss", RT_OUTPUT, RT_F32, AT(RT_IO, IO_EVAL, 4)),
    VALUE("lr", RT_OUTPUT, RT_F32, AT(RT_IO, IO_LR, 4)),
    VALUE("norm.of.gradients", RT_OUTPUT, RT_F32, AT(RT_IO, IO_NORM, 4)),
    INPUT("logits.tokens", 1, SEQ, VOCAB, AT(RT_IO, IO_ASK, SEQ * 4)),
    VALUE("out.logits", RT_OUTPUT, RT_F32, AT(RT_IO, IO_OUT, SEQ *VOCAB * 4), .rank = 3,
          .dim = {"Batch", "Seq", "Vocab"}, .size = {1, SEQ, VOCAB}),
};
static const rt_entry entries[] = {
    {"init", init, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"step", step, WORK_BYTES, WORK_BYTES, 3e5, 1e6, 0, 0, 0, 0, 0, 0},
    {"eval", eval, WORK_BYTES, WORK_BYTES, 1e5, 3e5, 0, 0, 0, 0, 0, 0},
    {"logits", logits, SEQ *VOCAB * 4, SEQ *VOCAB * 4, 0, 3e4, 0, 0, 0, 0, 0, 0}};
static const rt_kernel *const kernels[] = {&forward, &update, &gather};
static const rt_setting settings[] = {{"train.steps", "200"},
                                      {"train.batch", "8"},
                                      {"train.seed", "5"},
                                      {"data.valid", "10%"},
                                      {"train.eval.batches", "4"},
                                      {"train.save.keep", "2"},
                                      {"train.save.async", ASIDE ? "on" : "off"}};
/* ASIDE: training goes on while it is saved. */
static const rt_range snapshot[] = {{RT_WEIGHTS, 0, W_BYTES, 0}, {RT_STATES, 0, W_BYTES, W_BYTES}};
static const char *const sources[] = {"toy.shard", "# a bigram model, written by hand\n", NULL};

const rt_program rt_the_program = {
    .abi = RT_ABI_VERSION,
    .model = "Toy",
    .compiler = "by hand",
    .hash = "00c0ffee",
    .target = "c",
    .workers = 4,
    .scratch = VOCAB * 4,
    .arena_bytes = {W_BYTES, W_BYTES, IO_BYTES, WORK_BYTES, [RT_SNAPSHOT] = ASIDE * 2 * W_BYTES},
    .snapshot = snapshot,
    .nsnapshot = ASIDE * 2,
    .counters = 4,
    .tensors = tensors,
    .ntensors = sizeof tensors / sizeof *tensors,
    .entries = entries,
    .nentries = sizeof entries / sizeof *entries,
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof *kernels,
    .settings = settings,
    .nsettings = sizeof settings / sizeof *settings,
    .sources = sources};

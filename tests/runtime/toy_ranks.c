/* A program of many ranks as the compiler would write it, by hand: the bigram model of toy.c over a
   mesh data = DATA, tensor = TENSOR. Batch is split over data, the rows of w over tensor; with ZERO
   the momentum is a flat group of two buckets, each rank of data owning its share. One step:

     rows of w for the batch's tokens: every tensor rank gives those that it has; all-reduce
   (tensor) loss and gradient rows; loss all-reduce (data) dense gradient of the own rows of w;
   all-reduce (data), or a reduce-scatter per bucket (ZERO) momentum, update; with ZERO an
   all-gather per bucket

   Environment, for tests of faults: TOY_NAN=n the loss of step n is NaN; TOY_SLOW=ms a step takes
   so long; TOY_DIE=n:rank kills that rank in step n. */
#include "tests/common/by_hand.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef COMM
#define COMM NULL
#endif
enum { BATCH = 8, SEQ = 16, VOCAB = 256 };
enum {
  LOCAL_BATCH = BATCH / DATA,
  LOCAL_VOCAB = VOCAB / TENSOR,
  ROWS = LOCAL_BATCH * SEQ,
  CELLS = LOCAL_VOCAB * VOCAB,
  W_BYTES = CELLS * 4,
  BUCKET = CELLS / 2,
  OWN = BUCKET / DATA,
  M_CELLS = ZERO ? 2 * OWN : CELLS,
  TOKENS = ROWS * 4
};
enum {
  IO_TOKENS = 0,
  IO_TARGETS = IO_TOKENS + TOKENS,
  IO_STEP = IO_TARGETS + TOKENS,
  IO_SEED = IO_STEP + 64,
  IO_LOSS = IO_SEED + 64,
  IO_EVAL = IO_LOSS + 64,
  IO_LR = IO_EVAL + 64,
  IO_TENSOR = IO_LR + 64,
  IO_ASK = IO_TENSOR + 64,
  IO_OUT = IO_ASK + SEQ * 4,
  IO_BYTES = IO_OUT + SEQ * LOCAL_VOCAB * 4
};
enum {
  WORK_X = 0, /* rows, then their gradients */
  WORK_GRAD = WORK_X + ROWS * VOCAB * 4,
  WORK_OWN = WORK_GRAD + W_BYTES, /* ZERO: the own share of a bucket */
  WORK_BYTES = WORK_OWN + OWN * 4
};

enum { ROWS_IN, LOSS_SUM, EVAL_SUM, GRAD_SUM, GRAD_SHARE, W_WHOLE, LOGITS_IN };
#define SENT(n) .send_row = n, .receive_row = n
static const rt_axis mesh[] = {{"data", DATA, 1}, {"tensor", TENSOR, DATA}};
static const rt_collective table[] = {
    [ROWS_IN] =
        {.what = "rows of w", .source = "toy.shard:7", .axis = 1, .count = ROWS * VOCAB, SENT(1)},
    [LOSS_SUM] = {.what = "loss", .source = "toy.shard:8", .axis = 0, .count = 1, SENT(1)},
    [EVAL_SUM] =
        {.what = "loss of evaluation", .source = "toy.shard:8", .axis = 0, .count = 1, SENT(1)},
    [GRAD_SUM] =
        {.what = "w (gradient)", .source = "toy.shard:9", .axis = 0, .count = CELLS, SENT(1)},
    [GRAD_SHARE] = {.what = "w (gradient)",
                    .source = "toy.shard:9",
                    .kind = RT_REDUCE_SCATTER,
                    .axis = 0,
                    .count = OWN,
                    SENT(OWN)},
    [W_WHOLE] = {.what = "w",
                 .source = "toy.shard:9",
                 .kind = RT_ALL_GATHER,
                 .axis = 0,
                 .count = OWN,
                 SENT(OWN)},
    [LOGITS_IN] =
        {.what = "rows of w", .source = "toy.shard:7", .axis = 1, .count = SEQ * VOCAB, SENT(1)},
};

static void all_reduce(rt_ctx *rt, int row, void *data) {
  rt_collect(rt, &table[row], data, data, 0);
}

static void init(rt_ctx *rt) { /* by logical index */
  float *w = (float *)rt->arena[RT_WEIGHTS];
  int64_t seed = *(int64_t *)(rt->arena[RT_IO] + IO_SEED);
  uint32_t first = (uint32_t)rt_coordinate(rt, 1) * CELLS;
  for (uint32_t i = 0; i < CELLS; i++)
    w[i] = 0.02f *
           ((float)(((first + i) * 2654435761u + (uint32_t)seed * 97u) >> 16) / 65536.0f - 0.5f);
  rt_zero(rt, rt->arena[RT_STATES], M_CELLS * 4);
}

static void rows_of(rt_ctx *rt, const int32_t *tokens, int n, float *x, int row) {
  const float *w = (const float *)rt->arena[RT_WEIGHTS];
  int32_t first = *(int32_t *)(rt->arena[RT_IO] + IO_TENSOR) * LOCAL_VOCAB;
  for (int i = 0; i < n; i++) {
    int32_t r = tokens[i] - first;
    if (r >= 0 && r < LOCAL_VOCAB) memcpy(x + i * VOCAB, w + r * VOCAB, VOCAB * 4);
    else memset(x + i * VOCAB, 0, VOCAB * 4);
  }
  all_reduce(rt, row, x);
}

/* Turns rows into their gradients; the loss is the mean over the global batch. */
static void forward(rt_ctx *rt, int loss, int row) {
  char *io = rt->arena[RT_IO];
  const int32_t *targets = (const int32_t *)(io + IO_TARGETS);
  float *x = (float *)(rt->arena[RT_WORK] + WORK_X), *out = (float *)(io + loss), all = 0;
  rows_of(rt, (const int32_t *)(io + IO_TOKENS), ROWS, x, ROWS_IN);
  for (int i = 0; i < ROWS; i++, x += VOCAB) {
    float most = x[0], sum = 0, picked = x[targets[i]];
    for (int k = 1; k < VOCAB; k++) most = x[k] > most ? x[k] : most;
    for (int k = 0; k < VOCAB; k++) sum += x[k] = expf(x[k] - most);
    for (int k = 0; k < VOCAB; k++) x[k] = (x[k] / sum - (float)(k == targets[i])) / (ROWS * DATA);
    all += logf(sum) + most - picked;
  }
  *out = all / (ROWS * DATA);
  all_reduce(rt, row, out);
}

static void gradient(rt_ctx *rt) {
  char *work = rt->arena[RT_WORK], *io = rt->arena[RT_IO];
  const int32_t *tokens = (const int32_t *)(io + IO_TOKENS);
  const float *x = (const float *)(work + WORK_X);
  float *g = (float *)(work + WORK_GRAD);
  int32_t first = *(int32_t *)(io + IO_TENSOR) * LOCAL_VOCAB;
  memset(g, 0, W_BYTES);
  for (int i = 0; i < ROWS; i++) {
    int32_t r = tokens[i] - first;
    for (int k = 0; r >= 0 && r < LOCAL_VOCAB && k < VOCAB; k++)
      g[r * VOCAB + k] += x[i * VOCAB + k];
  }
}

static void update(float *w, float *m, const float *g, int n, float lr) {
  for (int i = 0; i < n; i++) m[i] = 0.9f * m[i] + g[i], w[i] -= lr * m[i];
}

static void update_all(rt_ctx *rt, float lr) {
  char *work = rt->arena[RT_WORK];
  float *w = (float *)rt->arena[RT_WEIGHTS], *m = (float *)rt->arena[RT_STATES];
  float *g = (float *)(work + WORK_GRAD), *own = (float *)(work + WORK_OWN);
  if (!ZERO) {
    all_reduce(rt, GRAD_SUM, g);
    update(w, m, g, CELLS, lr);
    return;
  }
  for (int b = 0; b < 2; b++) {
    float *mine = w + b * BUCKET + rt_coordinate(rt, 0) * OWN;
    rt_collect(rt, &table[GRAD_SHARE], g + b * BUCKET, own, 0);
    update(mine, m + b * OWN, own, OWN, lr);
    memcpy(own, mine, OWN * 4);
    rt_collect(rt, &table[W_WHOLE], own, w + b * BUCKET, 0);
  }
}

static void misbehave(rt_ctx *rt, int step) {
  const char *nan = getenv("TOY_NAN"), *slow = getenv("TOY_SLOW"), *die = getenv("TOY_DIE");
  int when = -1, who = -1, ms = slow ? atoi(slow) : 0;
  int64_t me = rt_coordinate(rt, 0) + rt_coordinate(rt, 1) * DATA;
  if (nan && atoi(nan) == step) *(float *)(rt->arena[RT_IO] + IO_LOSS) = NAN;
  if (die && sscanf(die, "%d:%d", &when, &who) == 2 && when == step && who == me) raise(SIGKILL);
  if (ms > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void step(rt_ctx *rt) {
  char *io = rt->arena[RT_IO];
  *(float *)(io + IO_LR) = 8;
  misbehave(rt, *(int32_t *)(io + IO_STEP) + 1000000);
  forward(rt, IO_LOSS, LOSS_SUM);
  gradient(rt);
  update_all(rt, 8);
  misbehave(rt, *(int32_t *)(io + IO_STEP));
}

static void eval(rt_ctx *rt) { forward(rt, IO_EVAL, EVAL_SUM); }

static void logits(rt_ctx *rt) { /* each rank of tensor keeps its columns */
  char *io = rt->arena[RT_IO];
  float *x = (float *)rt->arena[RT_WORK];
  rows_of(rt, (const int32_t *)(io + IO_ASK), SEQ, x, LOGITS_IN);
  x += rt_coordinate(rt, 1) * LOCAL_VOCAB;
  for (int i = 0; i < SEQ; i++)
    memcpy((float *)(io + IO_OUT) + i * LOCAL_VOCAB, x + i * VOCAB, LOCAL_VOCAB * 4);
}

#define BY_DATA .nsplits = 1, .split = {{0, 0}}
#define BY_TENSOR .nsplits = 1, .split = {{0, 1}}
static const rt_flat flat = {
    .bucket = BUCKET, .begin = 0, .rounds = 1, .shard = 2 * OWN, .naxes = 1, .axis = {0}};
static const rt_tensor tensors[] = {
    VALUE("w", RT_PARAM, RT_F32, AT(RT_WEIGHTS, 0, W_BYTES), .rank = 2, .dim = {"Vocab", "Next"},
          .size = {LOCAL_VOCAB, VOCAB}, BY_TENSOR),
    VALUE("w.momentum", RT_STATE, RT_F32, AT(RT_STATES, 0, M_CELLS * 4), .rank = 2,
          .dim = {"Vocab", "Next"}, .size = {LOCAL_VOCAB, VOCAB}, BY_TENSOR,
          .flat = ZERO ? &flat : NULL),
    INPUT("tokens", LOCAL_BATCH, SEQ, VOCAB, AT(RT_IO, IO_TOKENS, LOCAL_BATCH *SEQ * 4), BY_DATA),
    INPUT("targets", LOCAL_BATCH, SEQ, VOCAB, AT(RT_IO, IO_TARGETS, LOCAL_BATCH *SEQ * 4), BY_DATA),
    VALUE("step", RT_SCALAR, RT_I32, AT(RT_IO, IO_STEP, 4)),
    VALUE("seed", RT_SCALAR, RT_I64, AT(RT_IO, IO_SEED, 8)),
    VALUE("mesh.of.tensor", RT_SCALAR, RT_I32, AT(RT_IO, IO_TENSOR, 4)),
    VALUE("loss", RT_OUTPUT, RT_F32, AT(RT_IO, IO_LOSS, 4)),
    VALUE("eval.loss", RT_OUTPUT, RT_F32, AT(RT_IO, IO_EVAL, 4)),
    VALUE("lr", RT_OUTPUT, RT_F32, AT(RT_IO, IO_LR, 4)),
    INPUT("logits.tokens", 1, SEQ, VOCAB, AT(RT_IO, IO_ASK, SEQ * 4)),
    VALUE("out.logits", RT_OUTPUT, RT_F32, AT(RT_IO, IO_OUT, SEQ *LOCAL_VOCAB * 4), .rank = 3,
          .dim = {"Batch", "Seq", "Vocab"}, .size = {1, SEQ, LOCAL_VOCAB}, .nsplits = 1,
          .split = {{2, 1}}),
};
static const rt_entry entries[] = {
    {"init", init, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"step", step, WORK_BYTES, WORK_BYTES, 3e5, 1e6, 0, 0, 0, 0, 0, 0},
    {"eval", eval, WORK_BYTES, WORK_BYTES, 1e5, 3e5, 0, 0, 0, 0, 0, 0},
    {"logits", logits, SEQ *VOCAB * 4, SEQ *VOCAB * 4, 0, 3e4, 0, 0, 0, 0, 0, 0}};
static const rt_setting settings[] = {{"train.steps", "40"},       {"train.batch", "8"},
                                      {"train.seed", "5"},         {"data.valid", "10%"},
                                      {"train.eval.batches", "4"}, {"train.save.keep", "2"}};
static const char *const sources[] = {"toy.shard", "# a bigram model, written by hand\n", NULL};
static const rt_kernel *const no_kernels[] = {NULL};

const rt_program rt_the_program = {.abi = RT_ABI_VERSION,
                                   .model = "Toy",
                                   .compiler = "by hand",
                                   .hash = "00c0ffee",
                                   .target = "c",
                                   .workers = 1,
                                   .scratch = 64,
                                   .arena_bytes = {W_BYTES, M_CELLS * 4, IO_BYTES, WORK_BYTES},
                                   .counters = 4,
                                   .tensors = tensors,
                                   .ntensors = sizeof tensors / sizeof *tensors,
                                   .entries = entries,
                                   .nentries = sizeof entries / sizeof *entries,
                                   .kernels = no_kernels,
                                   .settings = settings,
                                   .nsettings = sizeof settings / sizeof *settings,
                                   .sources = sources,
                                   .mesh = mesh,
                                   .naxes = DATA * TENSOR > 1 ? 2 : 0,
                                   .communicator = COMM,
                                   .collectives = table,
                                   .ncollectives = sizeof table / sizeof *table};

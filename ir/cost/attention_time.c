/* Attention by warpgroups in a forecast (attention_time.h): a model, which no run has checked.

   Each phase (docs/kernels/gpu.md) walks tiles of GROUP_ROWS x `columns` scores. Its time is the
   sum of two parts, since a warpgroup's products wait for its softmax and the reverse:

   - products, at `groups.products` of the peak: the share that this compiler's products by wgmma
     reach; or, if bulk copies bring the operands, at that of products filled so. One whose left
     operand is in shared memory reads both operands of m64nNk16 from it, 128 bytes a cycle: with
     fewer than 64 columns that takes longer than the product;
   - softmax: an exponential for each score, 16 of them a cycle (CUDA C++ programming guide,
     throughput of arithmetic instructions, 9.0), or the instructions of the loop, 128 a cycle,
     whichever take longer.

   A multiprocessor has PEAK operations a cycle (H100 white paper), so cycles are written as
   operations of the peak. Instructions of a loop are counted in what ptxas 13.0 makes of it
   (tests/gpu/loops.py, widths of 64 to 256), and depend on the scores of a lane and on the width.

   Ends of a tile of rows take as long as ENDS keys: rates of FlashAttention-3 and of Triton's
   attention over 512 to 16,384 keys (H100, width 128, pytorch/benchmark, #2391) fall as with 200 to
   240. With a mask, kernels compute some scores that it leaves out, in tiles at its border: those
   of a causal mask are counted, one border. Rows that are fewer than multiprocessors leave some
   idle, and so do those that are left to messages; without a mask all tiles are equal, so they run
   in whole waves.

   With 0.8 of the peak for products, which cuBLAS reaches, the sum is within 3 % of published rates
   of kernels whose warpgroups do not alternate (FlashAttention-3, table 2: 570 and 582 TFLOP/s at
   width 128; 565 by the model), and 9 % below those that do (621). */
#include "attention_time.h"
#include "ir/kernel/gemm_gpu.h"
#include <math.h>

enum { PEAK = 4096, LANES = 128, SHARED_BYTES = 128, EXPONENTIAL = LANES / 16 };
enum { GROUP_ROWS = WGMMA_GROUPS * WGMMA_ROWS, ENDS = 230 };

typedef struct GroupPhase { /* instructions: of a lane in a tile, a score, a column of the width */
  int products, in_shared;  /* of these with the left operand in shared memory */
  double start, score, width;
} GroupPhase;

static const GroupPhase forward[] = {{2, 1, 115, 4, 0.66}},
                        backward[] = {{4, 2, 87, 4.6, 0.5}, {3, 2, 65, 3.75, 0.5}};

bool attention_by_groups(const Arch *reach, const KernelShape *shape) {
  return shape->part == PART_ATTENTION && shape->size[SHAPE_BLOCK] > 1 && reach->groups.unit > 0;
}

/* Cycles of m64nNk16 that loads of its operands take, for each cycle of its arithmetic. */
static double loads_of(double columns) {
  double bytes = 2. * 16 * (WGMMA_ROWS + columns), operations = 2. * 16 * WGMMA_ROWS * columns;
  double slower = bytes / SHARED_BYTES / (operations / PEAK);
  return slower > 1 ? slower : 1;
}

/* Operations of the peak for each score. */
static double of_score(const Arch *reach, const GroupPhase *phase, const KernelShape *shape) {
  double columns = shape->size[SHAPE_BLOCK], width = shape->size[SHAPE_WIDTH];
  double products = phase->products - phase->in_shared + phase->in_shared * loads_of(columns);
  double lane = columns * WGMMA_ROWS / WGMMA_THREADS; /* scores of it in a tile */
  double instructions = phase->score + (phase->start + phase->width * width) / lane;
  double slots = instructions > EXPONENTIAL ? instructions : EXPONENTIAL;
  bool bulk = shape->groups.by >= BY_BULK && reach->bulk.products > 0;
  double share = bulk ? reach->bulk.products : reach->groups.products;
  return products * 2 * width / share + slots * PEAK / LANES;
}

double attention_left_out(int64_t rows, int64_t columns) {
  int64_t divisor = columns;
  for (int64_t rest = rows, next; rest; rest = next) next = divisor % rest, divisor = rest;
  return (double)(rows + columns - divisor - 1) / 2;
}

/* Each warpgroup passes tiles without a score for its rows (flash_units.c); forward both compute
   the same ones if threads copy. */
static double left_out(const KernelShape *shape) {
  bool together = !shape->grad && shape->groups.by < BY_BULK;
  return attention_left_out(together ? GROUP_ROWS : WGMMA_ROWS, (int64_t)shape->size[SHAPE_BLOCK]);
}

/* How much longer the device takes than with every multiprocessor busy. */
static double idle(const Arch *reach, const KernelShape *shape, bool masked) {
  double tiles = ceil(shape->size[SHAPE_QUERIES] / GROUP_ROWS), all = reach->processors;
  double used = all - shape->spare, waves = ceil(tiles / used);
  if (masked) return tiles < used ? all / tiles : all / used;
  return waves * all / tiles;
}

double attention_groups_work(const Arch *reach, const KernelShape *shape) {
  const GroupPhase *phases = shape->grad ? backward : forward;
  double queries = shape->size[SHAPE_QUERIES],
         each = (shape->grad ? 10 : 4) * shape->size[SHAPE_WIDTH];
  double scores = shape->flop / each, sum = 0, busy = 1;
  if (reach->processors) {
    bool masked = scores < 0.999 * queries * shape->size[SHAPE_KEYS];
    scores += queries * (ENDS + (masked ? left_out(shape) : 0));
    busy = idle(reach, shape, masked);
  }
  for (int i = 0; i < (shape->grad ? 2 : 1); i++) sum += of_score(reach, &phases[i], shape);
  return reach->groups.unit * scores * sum * busy;
}

double attention_groups_bytes(const KernelShape *shape) {
  return shape->grad ? 4 * shape->size[SHAPE_QUERIES] * shape->size[SHAPE_WIDTH] : 0;
}

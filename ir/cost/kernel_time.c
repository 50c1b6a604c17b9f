/* Seconds of kernels (kernel_time.h).

   At the peaks a kernel takes as long as its operations or its bytes, whichever is longer.

   In a forecast a product is cut into tiles of the arch (arch.def), which multiprocessors
   compute in waves: a wave takes as long with one tile as with one for each of them. With fewer
   tiles than multiprocessors, sums are cut as well, into parts of PART_TERMS terms at least. If
   tiles may be wider than `columns`, the width is that of the kernel's tiles, or, before it is cut,
   the one that takes the least time; products of codes of 8 bits have `columns`, and CODES_RATE
   times the rate, which no run has checked. The ends of a tile (first loads, results) take as long
   as `ramp` terms. Products by warpgroups have rates of their own if bulk copies bring their
   operands, and shorter ends if bulk copies take their results (`bulk`). Multiprocessors that are
   left to messages (attribute spare) are idle. Multiprocessors may have equal shares of all terms
   instead of tiles (gemm_shares.c): sums that they leave for others, and those that they add, pass
   through the second-level cache. Products by warpgroups, and those of processors, also take time
   for the functions of their results (`function`), and processors for a left operand that they pack
   (`packing`).

   Attention has one share of the peak for the scores that its mask admits, and ends of its blocks
   of queries. Bytes move at the share of hbm that kernels reach, concurrently with the arithmetic.
   Attention by warpgroups has a model (attention_time.h). Programs that fuse less (`apart`) move
   those of other kernels more often, store scores, and work on signs in passes over all numbers.
   Rates of processors are those of threads that all compute; a thread that gets fewer chunks of a
   kernel waits for the others (ir/kernel/chunks.h). Tuning records take precedence
   (kernel_record.h). */
#include "kernel_time.h"
#include "attention_time.h"
#include "ir/codes.h"
#include "ir/kernel/gemm_gpu.h"
#include "ir/schedule/flight.h"
#include <math.h>
#include <stdlib.h>

double kernel_sum(const KernelTime *time) {
  double sum = 0;
  for (int i = 0; i < KERNEL_PARTS; i++) sum += time->part[i];
  return sum;
}

/* ---- products ---- */

enum { PART_TERMS = 512 };
static const double NARROW = 12, WORTH_SHARES = 0.98;

/* The time of `tiles` tiles, in that of their operations on a device that is never idle. */
static double waves_of(const Arch *reach, double tiles, double terms) {
  double waves = ceil(tiles / reach->processors);
  return waves * reach->processors / tiles * (terms + reach->ramp) / terms;
}

/* Tiles of that width; edges: their elements, for each of the result. */
static double tiles_of(const Arch *reach, const double *size, int width, double *edges) {
  double rows = ceil(size[SHAPE_ROWS] / reach->rows), columns = ceil(size[SHAPE_COLUMNS] / width);
  *edges = rows * reach->rows * columns * width / (size[SHAPE_ROWS] * size[SHAPE_COLUMNS]);
  return rows * columns * size[SHAPE_BATCH];
}

/* Operations that the device could have done meanwhile, for each that the product needs, in tiles
   of that width. If sums are cut, into as many parts as give each multiprocessor a tile, or one
   less, whichever takes less time. */
static double stretch_of(const Arch *reach, const double *size, int width) {
  double edges, tiles = tiles_of(reach, size, width, &edges), terms = size[SHAPE_TERMS];
  if (tiles >= reach->processors || terms <= PART_TERMS)
    return edges * waves_of(reach, tiles, terms);
  double parts = fmin(ceil(reach->processors / tiles), ceil(terms / PART_TERMS)),
         fewer = fmax(parts - 1, 1);
  return edges * fmin(waves_of(reach, tiles * parts, terms / parts),
                      waves_of(reach, tiles * fewer, terms / fewer));
}

/* The same in equal shares. To take a share, and sums of a tile of any width that leave or come,
   take as long as these terms: cycles of passes/tune/gpu_contract.c. */
static double shares_of(const Arch *reach, const double *size, int width) {
  enum { TAKE = 60, PIECE = 160 };
  double edges, tiles = tiles_of(reach, size, width, &edges), terms = size[SHAPE_TERMS];
  double share = tiles * terms / reach->processors, pieces = 1 + ceil(terms / share);
  double ends = ceil(tiles / reach->processors) * reach->ramp + TAKE + pieces * PIECE;
  return edges * (share + ends) / share;
}

/* Codes of 8 bits have narrow tiles alone. */
static double codes_stretch(const Arch *reach) {
  return (1 + NARROW / reach->columns) / (1 + NARROW / reach->widest) / CODES_RATE;
}

/* In tiles of that width, each of which takes as long as NARROW columns more. */
static double stretch_in(const Arch *reach, const double *size, int width, bool shares) {
  double slower = (1 + NARROW / width) / (1 + NARROW / reach->widest);
  return slower * (shares ? shares_of : stretch_of)(reach, size, width);
}

/* In the tiles of the kernel; before it is cut in those that take the least time. */
static double stretch_of_groups(const Arch *reach, const KernelShape *shape) {
  const double *size = shape->size;
  if (!reach->widest) return stretch_of(reach, size, reach->columns);
  int columns = shape->groups.columns;
  if (columns) return stretch_in(reach, size, columns, shape->groups.shares);
  double least = stretch_in(reach, size, reach->widest, false),
         shared = stretch_in(reach, size, reach->widest, true);
  for (int width = reach->columns; width <= WGMMA_NARROW; width += WGMMA_STEP) {
    least = fmin(least, stretch_in(reach, size, width, false));
    shared = fmin(shared, stretch_in(reach, size, width, true));
  }
  return shared < WORTH_SHARES * least ? shared : least;
}

static bool by_bulk(const Arch *arch, const KernelShape *shape) {
  return shape->groups.by >= BY_BULK && arch->bulk.products > 0;
}

/* At the rate of bulk copies, in the time of operations at that of other products. */
static double stretch(const Arch *reach, const KernelShape *shape) {
  bool codes = shape->elem == ELEM_u8, filled = by_bulk(reach, shape);
  double rate = filled ? reach->products / reach->bulk.products : 1;
  if (codes) rate = codes_stretch(reach);
  if (!reach->processors) return rate;
  Arch used = *reach;
  used.processors -= shape->spare;
  rate *= (double)reach->processors / used.processors;
  if (codes) return rate * stretch_of(&used, shape->size, reach->columns);
  double leave = reach->bulk.leave + shape->groups.elements * reach->bulk.element;
  if (filled) used.ramp = shape->groups.by == BY_BULK_ALL ? leave : reach->bulk.ramp;
  return rate * stretch_of_groups(&used, shape);
}

/* ---- a kernel ---- */

/* The operations that its mask admits, and on a GPU for each block of queries its ends, which take
   as long as `ramp` keys. */
static double attention_work(const Arch *reach, const KernelShape *shape) {
  if (attention_by_groups(reach, shape)) return attention_groups_work(reach, shape);
  if (!reach->processors) return shape->flop;
  double a_key = shape->size[SHAPE_QUERIES] * shape->size[SHAPE_WIDTH] * (shape->grad ? 10 : 4);
  return shape->flop + a_key * reach->ramp;
}

/* Seconds in which programs that store scores move them. */
static double scores_time(const Machine *machine, const KernelShape *shape) {
  double scores = shape->size[SHAPE_QUERIES] * shape->size[SHAPE_KEYS];
  return (shape->grad ? 2 : 1) * machine->reach->scores * scores / machine->hbm;
}

static KernelWork work_of(const Arch *reach, const KernelShape *shape) {
  if (shape->part == PART_MEMORY) return (KernelWork){.part = PART_MEMORY};
  if (shape->part == PART_ATTENTION)
    return (KernelWork){PART_ATTENTION, attention_work(reach, shape)};
  return (KernelWork){PART_PRODUCTS, shape->flop * stretch(reach, shape) +
                                         reach->function * shape->functions +
                                         reach->packing * shape->packed};
}

KernelWork kernel_work(const Module *m, const Arch *reach, const Fn *kernel) {
  KernelShape shape = kernel_shape(m, kernel);
  return work_of(reach, &shape);
}

/* Bytes that programs move in addition around kernels that pack or unpack signs. */
static double signs_moved(const Arch *reach, const Fn *f) {
  double bytes = 0;
  EACH_OP (f, o) {
    if (o->code == OP_pack_bits) bytes += reach->pack * (double)type_count(value_type(f, o->in[0]));
    if (o->code == OP_unpack_bits)
      bytes += reach->unpack * (double)type_count(value_type(f, o->out));
  }
  return bytes;
}

/* Products and attention, by the shares of the machine. */
static double model_seconds(const Machine *machine, const KernelShape *shape) {
  bool attention = shape->part == PART_ATTENTION;
  double share = attention ? machine->reach->attention : machine->reach->products,
         seconds = work_of(machine->reach, shape).flop / (machine->flops * share),
         bytes = shape->bytes / machine->hbm;
  if (attention_by_groups(machine->reach, shape))
    seconds += attention_groups_bytes(shape) / machine->hbm;
  else if (attention) seconds += scores_time(machine, shape);
  return seconds > bytes ? seconds : bytes;
}

static double results_of(const KernelShape *product) {
  const double *size = product->size;
  return size[SHAPE_BATCH] * size[SHAPE_ROWS] * size[SHAPE_COLUMNS];
}

/* Seconds by the record, for a rank of the machine. Records do not say how a product is cut and how
   many functions it computes: both are assumed to be as in the kernel, but no multiprocessor is
   left to messages. */
static double recorded_seconds(const Machine *machine, const KernelRecord *record,
                               const KernelShape *shape, bool same) {
  KernelShape other = record->shape;
  other.groups = shape->groups;
  same &= !shape->spare;
  if (shape->functions) other.functions = shape->functions / results_of(shape) * results_of(&other);
  double ratio = same ? 1 : model_seconds(machine, shape) / model_seconds(machine, &other);
  return record->seconds * machine->records->ranks * ratio;
}

/* Each phase is one on a GPU. A kernel that `select` has not cut yet has one at least. The time
   between kernels of processors is measured from kernel to kernel. */
static double launches_of(const Module *m, const Fn *kernel) {
  const Attr *chunks = attr_get(&kernel->attrs, ATTR_chunks);
  return module_on_gpu(m) && chunks && chunks->i > 1 ? (double)chunks->i : 1;
}

static KernelTime reached(const Module *m, const Machine *machine, const Fn *f) {
  const Arch *reach = machine->reach;
  KernelShape shape = kernel_shape_once(m, machine->shapes, f);
  double stretch = kernel_stretch_once(m, machine->shapes, f, machine->even ? 1 : machine->threads);
  KernelTime time = {.launches = launches_of(m, f)};
  time.part[PART_LAUNCH] = time.launches * reach->launch;
  KernelRecord record;
  bool same;
  if (shape.part == PART_MEMORY)
    time.part[PART_MEMORY] =
        stretch * (shape.bytes * reach->apart + signs_moved(reach, f)) / machine->hbm;
  else if (machine->records && kernel_record_near(machine->records, &shape, NULL, &record, &same)) {
    time.part[shape.part] = recorded_seconds(machine, &record, &shape, same);
    (same ? time.recorded : time.near)[shape.part] = time.part[shape.part];
  } else {
    time.part[shape.part] = stretch * model_seconds(machine, &shape);
    bool unchecked = shape.elem == ELEM_u8 || by_bulk(reach, &shape);
    if (unchecked || attention_by_groups(reach, &shape))
      time.modeled[shape.part] = time.part[shape.part];
  }
  return time;
}

KernelTime kernel_time(const Module *m, const Machine *machine, const Fn *kernel) {
  if (machine->reach) return reached(m, machine, kernel);
  KnownWork known = kernel_work_once(m, machine->shapes, kernel);
  double spared = known.codes * (1 - 1.0 / CODES_RATE),
         work = (known.flop - spared) / machine->flops,
         memory = machine->hbm > 0 ? known.bytes / machine->hbm : 0;
  return (KernelTime){
      .part = {
          [PART_PRODUCTS] = work > memory ? work : 0, [PART_MEMORY] = work > memory ? 0 : memory}};
}

/* ---- the error of records ---- */

typedef struct RecordError {
  double off, seconds; /* of the record */
} RecordError;

static int by_error(const void *a, const void *b) {
  double x = ((const RecordError *)a)->off, y = ((const RecordError *)b)->off;
  return (x > y) - (x < y);
}

/* The error that records with four of five of all their seconds are within. */
static double of_most(RecordError *error, uint32_t n) {
  double all = 0, within = 0;
  uint32_t i = 0;
  qsort(error, n, sizeof *error, by_error);
  for (uint32_t k = 0; k < n; k++) all += error[k].seconds;
  while (i < n && within < 0.8 * all) within += error[i++].seconds;
  return error[i - 1].off;
}

double records_error(const Machine *machine, Arena *arena) {
  enum { FEWEST = 4 };
  const KernelRecords *records = machine->records;
  RecordError *error = ARENA_ARRAY(arena, RecordError, records->at.n + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < records->at.n; i++) {
    const KernelRecord *own = &records->at.at[i];
    KernelRecord other;
    bool same;
    if (!kernel_record_near(records, &own->shape, own, &other, &same)) continue;
    double seconds = recorded_seconds(machine, &other, &own->shape, same) / records->ranks;
    error[n++] = (RecordError){fabs(seconds / own->seconds - 1), own->seconds};
  }
  return n < FEWEST ? -1 : of_most(error, n);
}

/* ---- a run of an entry ---- */

static double rounds_of(const Op *o) {
  return o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
}

KernelTime kernels_time(const Module *m, const Machine *machine, const Fn *f) {
  KernelTime sum = {0};
  EACH_OP (f, o) {
    if (!o->callee) continue;
    bool kernel = o->code == OP_kernel;
    if (kernel && kernel_on_host(m, o->callee)) continue;
    KernelTime one =
        kernel ? kernel_time(m, machine, o->callee) : kernels_time(m, machine, o->callee);
    sum.launches += rounds_of(o) * one.launches;
    for (int k = 0; k < KERNEL_PARTS; k++) {
      sum.part[k] += rounds_of(o) * one.part[k], sum.near[k] += rounds_of(o) * one.near[k];
      sum.recorded[k] += rounds_of(o) * one.recorded[k];
      sum.modeled[k] += rounds_of(o) * one.modeled[k];
    }
  }
  return sum;
}

double collectives_time(const Module *m, const Machine *machine, const Fn *f) {
  double sum = 0;
  EACH_OP (f, o) {
    if (o->code == OP_loop) sum += rounds_of(o) * collectives_time(m, machine, o->callee);
    if (op_family(o->code) != FAMILY_COLLECTIVE || op_is_p2p(o->code) || op_flies(o)) continue;
    sum += message_seconds(m, machine, f, o);
  }
  return sum;
}

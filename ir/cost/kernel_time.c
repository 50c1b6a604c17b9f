/* Seconds of kernels (kernel_time.h).

   At the peaks a kernel takes as long as its operations or its bytes, whichever is longer.

   In a forecast a product is cut into tiles of the arch (arch.def), which multiprocessors compute
   in waves: a wave takes as long with one tile as with one for each of them. If there are fewer
   tiles than multiprocessors, sums are cut as well, into parts of PART_TERMS terms at least. The
   ends of a tile (first loads, results) take as long as `ramp` terms. Attention has one share of
   the peak for the scores that its mask admits, and ends of its blocks of queries. Bytes move at
   the share of hbm that kernels reach, concurrently with the arithmetic. Programs that fuse less
   (`apart`) move those of other kernels more often, store scores, and work on signs in passes over
   all numbers. */
#include "kernel_time.h"
#include "count.h"
#include "ir/schedule/flight.h"

double kernel_sum(const KernelTime *time) {
  double sum = 0;
  for (int i = 0; i < KERNEL_PARTS; i++) sum += time->part[i];
  return sum;
}

/* ---- products ---- */

enum { PART_TERMS = 512 };

typedef struct ProductSizes {
  double batch, rows, columns, terms;
} ProductSizes;

static ProductSizes sizes_of(const Fn *f, const Op *dot) {
  const Type *a = value_type(f, dot->in[0]), *b = value_type(f, dot->in[1]),
             *sum = value_type(f, dot->out);
  ProductSizes sizes = {1, 1, 1, 1};
  for (int i = 0; i < a->rank; i++) {
    bool in_b = type_find(b, a->axis[i].dim) >= 0, stays = type_find(sum, a->axis[i].dim) >= 0;
    *(!in_b ? &sizes.rows : stays ? &sizes.batch : &sizes.terms) *= (double)a->axis[i].size;
  }
  for (int i = 0; i < b->rank; i++)
    if (type_find(a, b->axis[i].dim) < 0) sizes.columns *= (double)b->axis[i].size;
  return sizes;
}

static double whole(double x) { return (double)(int64_t)(x + 0.999999); }

/* Operations that the device could have done meanwhile, for each that the product needs. */
static double stretch(const Arch *reach, const ProductSizes *sizes) {
  if (!reach->processors) return 1;
  double rows = whole(sizes->rows / reach->rows), columns = whole(sizes->columns / reach->columns);
  double tiles = rows * columns * sizes->batch, terms = sizes->terms;
  if (tiles < reach->processors && terms > PART_TERMS) {
    double parts = whole(reach->processors / tiles), most = whole(terms / PART_TERMS);
    parts = parts < most ? parts : most, tiles *= parts, terms /= parts;
  }
  double waves = whole(tiles / reach->processors);
  double edges = rows * reach->rows * columns * reach->columns / (sizes->rows * sizes->columns);
  return edges * waves * reach->processors / tiles * (terms + reach->ramp) / terms;
}

/* ---- a kernel ---- */

/* The op that gives the kernel its family: a product or attention; NULL: it is neither. */
static const Op *anchor_of(const Fn *kernel) {
  for (OpId i = 0; i < kernel->ops.n; i++) {
    OpFamily family = op_family(kernel->ops.at[i].code);
    if (family == FAMILY_CONTRACT || family == FAMILY_ATTENTION) return &kernel->ops.at[i];
  }
  return NULL;
}

static bool is_grad(const Op *attention) { return attention->code == OP_attention_grad; }

/* Queries of all heads. */
static double rows_of(const Fn *f, const Op *attention) {
  const Type *q = value_type(f, attention->in[0]);
  return (double)type_count(q) / (double)type_size(q, attention->group[1].from[0]);
}

/* The operations that its mask admits, and for each block of queries its ends, which take as long
   as `ramp` keys. */
static double attention_work(const Module *m, const Arch *reach, const Fn *f, const Op *o) {
  double width = (double)type_size(value_type(f, o->in[0]), o->group[1].from[0]),
         a_key = rows_of(f, o) * width * (is_grad(o) ? 10 : 4); /* of all rows, for one key */
  return ir_op_flop(m, f, o) + a_key * reach->ramp;
}

/* Seconds in which programs that store scores move them. */
static double scores_time(const Machine *machine, const Fn *f, const Op *o) {
  double scores = rows_of(f, o) * (double)type_size(value_type(f, o->in[1]), o->group[0].to[0]);
  return (is_grad(o) ? 2 : 1) * machine->reach->scores * scores / machine->hbm;
}

KernelWork kernel_work(const Module *m, const Arch *reach, const Fn *kernel) {
  const Op *anchor = anchor_of(kernel);
  if (!anchor) return (KernelWork){.part = PART_MEMORY};
  if (op_family(anchor->code) == FAMILY_ATTENTION)
    return (KernelWork){PART_ATTENTION, attention_work(m, reach, kernel, anchor)};
  ProductSizes sizes = sizes_of(kernel, anchor);
  return (KernelWork){PART_PRODUCTS, ir_op_flop(m, kernel, anchor) * stretch(reach, &sizes)};
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

static KernelTime reached(const Module *m, const Machine *machine, const Fn *f,
                          const IrCount *count) {
  const Arch *reach = machine->reach;
  KernelWork work = kernel_work(m, reach, f);
  double bytes = count->bytes / machine->hbm;
  KernelTime time = {.part = {[PART_LAUNCH] = reach->launch}};
  if (work.part == PART_MEMORY) {
    time.part[PART_MEMORY] = bytes * reach->apart + signs_moved(reach, f) / machine->hbm;
    return time;
  }
  bool attention = work.part == PART_ATTENTION;
  double share = attention ? reach->attention : reach->products,
         seconds = work.flop / (machine->flops * share);
  if (attention) seconds += scores_time(machine, f, anchor_of(f));
  time.part[work.part] = seconds > bytes ? seconds : bytes;
  return time;
}

KernelTime kernel_time(const Module *m, const Machine *machine, const Fn *kernel) {
  IrCount count = ir_count(m, kernel);
  if (machine->reach) return reached(m, machine, kernel, &count);
  double work = count.flop / machine->flops,
         memory = machine->hbm > 0 ? count.bytes / machine->hbm : 0;
  return (KernelTime){
      .part = {
          [PART_PRODUCTS] = work > memory ? work : 0, [PART_MEMORY] = work > memory ? 0 : memory}};
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
    if (kernel && kernel_beside(m, o->callee)) continue;
    KernelTime one =
        kernel ? kernel_time(m, machine, o->callee) : kernels_time(m, machine, o->callee);
    for (int k = 0; k < KERNEL_PARTS; k++) sum.part[k] += rounds_of(o) * one.part[k];
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

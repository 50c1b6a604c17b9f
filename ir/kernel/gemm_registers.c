/* Registers of a product's threads on a GPU: see gemm_gpu.h.

   The assembler gives a thread at most 255 registers, fewer where a CTA has many threads, and
   spills the rest to memory, which is many times slower. The estimate is fitted to the fewest
   registers with which `ptxas` does not spill, in some 230 cuts of random products of 16 bits. */
#include "gemm_gpu.h"
#include "ir/support/num.h"

enum { REGISTER_FILE = 65536, MOST_REGISTERS = 255 };
enum { PIECE = 16 };
enum { ELEMENTS_FAR = 24 };                        /* .. of which each has its own address */
enum { ELEMENTS = 14, WIDE = 8, ALONG_MN = 16 };   /* of a piece; addresses along mn */
enum { GROUP_REGISTERS = 232, GROUP_OTHERS = 64 }; /* of a warpgroup's thread; addresses */
enum { RANDOM = 12 };                              /* random numbers: words of one */
enum { ELEMENTS_NOW = 32, WIDE_NOW = 16 };         /* of a piece that is not held */

int64_t gemm_registers_most(int64_t threads) {
  return min_i64(REGISTER_FILE / threads / 8 * 8, MOST_REGISTERS);
}

SidePieces gemm_pieces_of(const GemmSide *side, int64_t threads) {
  int64_t pieces = side->columns * side->elem / PIECE;
  SidePieces of = {.parts = 1};
  while (pieces % of.parts || pieces / of.parts > threads) of.parts++;
  of.across = pieces / of.parts, of.apart = threads / of.across;
  of.items = ceil_div(side->rows * of.parts, of.apart);
  return of;
}

int64_t gemm_held(const GemmSide *side, int64_t threads) {
  int64_t items = gemm_pieces_of(side, threads).items;
  if (side->wide) return items * WIDE;
  return items * (side->far ? ELEMENTS_FAR : ELEMENTS) + (side->along_k ? 0 : ALONG_MN);
}

static int64_t held(const GemmPlan *plan, const GemmSide *side) {
  return side->held ? gemm_held(side, plan->threads[0]) : 0;
}

static int64_t at_once(const GemmSide *side) {
  return !side->passes || side->held ? 0 : side->wide ? WIDE_NOW : ELEMENTS_NOW;
}

/* Sums; on tensor cores the words of two steps of k, of which one is read while the other is
   multiplied by the emitter; addresses; operands that pass through registers. */
int64_t gemm_registers(const GemmPlan *plan) {
  int64_t m = plan->tile[GEMM_WARP_M], n = plan->tile[GEMM_WARP_N], sums = m * n / 32;
  if (plan->math == GEMM_WGMMA) return gemm_registers_most(plan->threads[0]);
  int64_t passing =
      held(plan, &plan->a) + held(plan, &plan->b) + max_i64(at_once(&plan->a), at_once(&plan->b));
  return passing + (plan->math == GEMM_FMA ? sums + 64 : sums + 2 * (m + n) / 4 + 48);
}

static bool may_hold(const GemmPlan *plan, const GemmSide *side) {
  return side->passes && gemm_pieces_of(side, plan->threads[0]).items <= PIECES_UNROLLED;
}

/* Both, or only the operand that has fewer pieces, or none. */
void gemm_hold(GemmPlan *plan) {
  if (plan->math == GEMM_WGMMA) return;
  plan->a.held = may_hold(plan, &plan->a), plan->b.held = may_hold(plan, &plan->b);
  for (int i = 0; i < 2; i++) {
    if (gemm_registers(plan) <= gemm_registers_most(plan->threads[0])) return;
    bool drop_a = plan->a.held && (!plan->b.held || held(plan, &plan->a) >= held(plan, &plan->b));
    *(drop_a ? &plan->a.held : &plan->b.held) = false;
  }
}

/* How many numbers each result reads, in arguments that are no operands of the product. */
static int64_t numbers_read(const Fn *k, const Product *product) {
  ValueId a = k->args.at[product->arg_a], b = k->args.at[product->arg_b];
  int64_t reads = 0;
  EACH_OP (k, o) {
    if (o->code == OP_rand) reads += RANDOM;
    for (uint32_t i = 0; i < o->nin; i++)
      reads += k->values.at[o->in[i]].def == NO_OP && o->in[i] != a && o->in[i] != b;
  }
  return reads;
}

/* The sums of eight rows and WGMMA_OUT columns have left registers for shared memory. */
int gemm_out_at_once(const Fn *k, const Product *product, const GemmPlan *plan) {
  int64_t sums = plan->tile[GEMM_N] / 2 - WGMMA_OUT / 4;
  int64_t each = plan->tile[GEMM_LANES] * (1 + numbers_read(k, product));
  int64_t most = (GROUP_REGISTERS - GROUP_OTHERS - sums) / each;
  return (int)min_i64(max_i64(most, 1), GEMM_OUT_MOST);
}

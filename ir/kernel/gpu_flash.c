/* Which cuts of attention a GPU can run, and what is the same in all of them; see gpu_plan.h. */
#include "gpu_plan.h"
#include "ir/mask/lists.h"
#include "ir/mask/mask_range.h"
#include "ir/support/num.h"

enum { SLICE_MOST = 128 }; /* of the width, in the results of a CTA: sums of half of it per lane */
enum { REGISTERS = 176 };  /* for sums */
enum { OF_GRADIENTS = 160 };    /* of dk and dv: with 176 the assembler spills */
enum { OF_CAPPED = 176 };       /* .. and of the slopes of a cap, which are not needed as long */
enum { OF_ADDRESSES = 16 };     /* of elements, that have no pieces of 16 bytes */
enum { GROUP_REGISTERS = 200 }; /* of a warpgroup's thread, for these: of 232 */
enum { BULK_WIDTH = 128 };      /* of heads whose operands come by bulk copies */
enum { BLOCK_MOST = 256 };      /* rows, columns of a block of scores: multiples of 16 */

/* Rows of whole pieces, and heads that begin on them. */
static bool in_pieces(const Fn *k, ValueId v, Str dim) {
  const Value *value = &k->values.at[v];
  int64_t piece = 16 / elem_bytes(value->type.elem);
  for (int i = 0; i < value->type.rank; i++) {
    int64_t stride = buffer_stride(k, v, value->type.axis[i].dim);
    bool inner = value->type.axis[i].dim == dim;
    if (inner ? stride != 1 || value->type.axis[i].size % piece : stride % piece) return false;
  }
  return true;
}

static int64_t copies_of(const Fn *k, const Flash *f) {
  int64_t bits = 0;
  for (int i = 0; i < (f->grad ? FLASH_OPERANDS : FLASH_OPERANDS - 1); i++)
    for (uint32_t a = 0; a < k->args.n; a++) {
      bool own = k->args.at[a] == flash_operand(f, i);
      if (own && gpu_aligned(k, a) && in_pieces(k, k->args.at[a], f->dim)) bits |= 1 << i;
    }
  return bits + 1;
}

/* Do numbers come in for each score, from memory or from many instructions? */
static bool reads_scores(const Fn *k, const Flash *f) {
  ValueId part[MASK_REST];
  return f->kept != NO_VALUE || f->bias != NO_VALUE ||
         (f->mask != NO_VALUE && mask_rest(k, f->mask, 0, NULL, part));
}

/* All operands of warpgroups come by bulk copies, or none. Wide heads leave no registers to count
   laps of the ring. */
static bool in_bulk(const Module *m, const Fn *k, const Flash *flash, const int64_t *cut) {
  FlashMap map;
  bool all = m->target.bulk && cut[FLASH_GPU_STAGES] > 1 && flash->width <= BULK_WIDTH;
  for (int i = 0; all && i < (flash->grad ? FLASH_OPERANDS : FLASH_OPERANDS - 1); i++)
    all = flash_map(k, flash, i, cut[FLASH_GPU_COLUMNS], &map);
  return all;
}

FlashGpuPlan gpu_flash_plan(const Module *m, const Fn *k, const Flash *flash, const int64_t *cut) {
  int64_t tile[FLASH_GPU_COUNT] = {cut[FLASH_GPU_ROWS], cut[FLASH_GPU_COLUMNS],
                                   cut[FLASH_GPU_STAGES]};
  tile[FLASH_GPU_SLICES] = cut[FLASH_GPU_STAGES] > 1 ? 1 : ceil_div(flash->width, SLICE_MOST);
  tile[FLASH_GPU_COPY] = copies_of(k, flash) + (in_bulk(m, k, flash, cut) ? FLASH_COPY_BULK : 0);
  FlashGpuPlan plan = flash_gpu_plan(flash, value_type(k, flash->q)->elem, tile);
  for (int i = 0; i < plan.phases && plan.wgmma; i++)
    if (flash_gpu_scores(plan.phase[i])) plan.chunks[i] = min_i64(plan.tiles[i], gpu_ctas(m, k));
  return plan;
}

bool gpu_flash_by_element(const Flash *f, const FlashGpuPlan *p) {
  int64_t all = f->grad ? FLASH_COPY_Q | FLASH_COPY_K | FLASH_COPY_V | FLASH_COPY_DY
                        : FLASH_COPY_Q | FLASH_COPY_K | FLASH_COPY_V;
  return p->mma && ((p->tile[FLASH_GPU_COPY] - 1) & all) != all;
}

int64_t gpu_flash_registers(const Flash *f, const FlashGpuPlan *p) {
  int64_t columns = p->tile[FLASH_GPU_COLUMNS] / 2;
  if (!f->grad) return p->slice / 2 + columns;
  if (f->cap != 0) columns += columns / 2;
  return p->slice + 2 * columns + (gpu_flash_by_element(f, p) ? OF_ADDRESSES : 0);
}

bool gpu_flash_holds(const Flash *f, const FlashGpuPlan *p, const GemmSide *side) {
  int64_t threads = p->threads[0], each = gemm_held(side, threads);
  if (f->grad || gemm_pieces_of(side, threads).items > PIECES_UNROLLED) return false;
  return gpu_flash_registers(f, p) + FLASH_OTHERS + 2 * each <= gemm_registers_most(threads);
}

static bool is_side(int64_t n) { return n >= 16 && n <= BLOCK_MOST && n % 16 == 0; }

/* Those of a thread that multiplies: sums, scores, what is packed, and what is read or computed for
   each score. Forward a cap and a mask take the same ones, one after the other. In gradients P and
   dS are packed where dP is computed next, unless a score needs more than its place. */
static int64_t group_registers(const Fn *k, const Flash *f, const FlashGpuPlan *p) {
  int64_t scores = p->tile[FLASH_GPU_COLUMNS] / 2, extra = reads_scores(k, f) ? scores : 0;
  if (!f->grad) return p->width / 2 + scores + scores / 2 + (f->cap != 0 ? scores : extra);
  if (f->cap != 0) extra += scores;
  bool pattern = f->mask != NO_VALUE && mask_block_size(k, f->mask, f->query, f->key) > 0;
  return p->width + 2 * scores + (extra || pattern ? scores : scores / 4) + extra;
}

/* Rows of operands are whole pieces of 16 bytes. Half of a wide block of a gradient would be for
   nothing at the border of a mask. */
static bool groups_fit(const Module *m, const Fn *k, const Flash *f, const FlashGpuPlan *p) {
  int64_t columns = p->tile[FLASH_GPU_COLUMNS], stages = p->tile[FLASH_GPU_STAGES];
  if (!m->target.wgmma || !p->mma || gpu_flash_by_element(f, p)) return false;
  if (p->tile[FLASH_GPU_ROWS] != WGMMA_GROUPS * WGMMA_ROWS || p->width > 256) return false;
  if (columns != 32 && columns != 64 && (columns != 128 || f->grad)) return false;
  if (stages < (f->grad ? FLASH_STAGES_GRAD : FLASH_STAGES_FORWARD) || stages > FLASH_STAGES_MOST)
    return false;
  return group_registers(k, f, p) <= GROUP_REGISTERS;
}

bool gpu_flash_fits(const Module *m, const Fn *k, const int64_t *cut, int64_t limit) {
  if (!is_side(cut[FLASH_GPU_ROWS]) || !is_side(cut[FLASH_GPU_COLUMNS]) ||
      cut[FLASH_GPU_STAGES] < 1)
    return false;
  Flash flash = flash_of(k);
  FlashGpuPlan plan = gpu_flash_plan(m, k, &flash, cut);
  for (int i = 0; i < plan.phases; i++)
    if (plan.shared[i] > limit) return false;
  if (plan.wgmma) return groups_fit(m, k, &flash, &plan);
  int64_t most = !flash.grad ? REGISTERS : flash.cap != 0 ? OF_CAPPED : OF_GRADIENTS;
  if (flash.grad && flash.kept != NO_VALUE && flash.bias != NO_VALUE) /* both for each score */
    most -= plan.tile[FLASH_GPU_COLUMNS] / 2;
  return gpu_flash_registers(&flash, &plan) <= most;
}

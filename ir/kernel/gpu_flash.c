/* Which cuts of attention a GPU can run, and what is the same in all of them; see gpu_plan.h. */
#include "gpu_plan.h"

enum { SLICE_MOST = 128 }; /* of the width, in the results of a CTA: sums of half of it per lane */
enum { REGISTERS = 176 };  /* for sums */
enum { OF_GRADIENTS = 160 }; /* of dk and dv: with 176 the assembler spills */
enum { OF_ADDRESSES = 16 };  /* of elements, that have no pieces of 16 bytes */
enum { BLOCK_MOST = 256 };   /* rows, columns of a block of scores: multiples of 16 */

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
  const ValueId v[] = {f->q, f->k, f->v, f->dy};
  int64_t bits = 0;
  for (int i = 0; i < (f->grad ? 4 : 3); i++)
    for (uint32_t a = 0; a < k->args.n; a++)
      if (k->args.at[a] == v[i] && gpu_aligned(k, a) && in_pieces(k, v[i], f->dim)) bits |= 1 << i;
  return bits + 1;
}

FlashGpuPlan gpu_flash_plan(const Fn *k, const Flash *f, const int64_t *cut) {
  int64_t tile[FLASH_GPU_COUNT] = {cut[FLASH_GPU_ROWS], cut[FLASH_GPU_COLUMNS]};
  tile[FLASH_GPU_SLICES] = (f->width + SLICE_MOST - 1) / SLICE_MOST;
  tile[FLASH_GPU_COPY] = copies_of(k, f);
  return flash_gpu_plan(f, value_type(k, f->q)->elem, tile);
}

bool gpu_flash_by_element(const Flash *f, const FlashGpuPlan *p) {
  int64_t all = f->grad ? FLASH_COPY_Q | FLASH_COPY_K | FLASH_COPY_V | FLASH_COPY_DY
                        : FLASH_COPY_Q | FLASH_COPY_K | FLASH_COPY_V;
  return p->mma && p->tile[FLASH_GPU_COPY] - 1 != all;
}

int64_t gpu_flash_registers(const Flash *f, const FlashGpuPlan *p) {
  int64_t columns = p->tile[FLASH_GPU_COLUMNS] / 2;
  if (!f->grad) return p->slice / 2 + columns;
  return p->slice + 2 * columns + (gpu_flash_by_element(f, p) ? OF_ADDRESSES : 0);
}

static bool is_side(int64_t n) { return n >= 16 && n <= BLOCK_MOST && n % 16 == 0; }

bool gpu_flash_fits(const Fn *k, const int64_t *cut, int64_t limit) {
  if (!is_side(cut[FLASH_GPU_ROWS]) || !is_side(cut[FLASH_GPU_COLUMNS])) return false;
  Flash f = flash_of(k);
  FlashGpuPlan p = gpu_flash_plan(k, &f, cut);
  for (int i = 0; i < p.phases; i++)
    if (p.shared[i] > limit) return false;
  return gpu_flash_registers(&f, &p) <= (f.grad ? OF_GRADIENTS : REGISTERS);
}

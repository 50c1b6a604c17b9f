/* How attention is cut on a GPU: the largest blocks of scores whose tiles fit the shared memory of
   a CTA and whose sums fit the registers of a thread, and no more rows than there are.
   ir/flash_gpu.h says what the numbers mean. */
#include "ir/flash_gpu.h"
#include "passes/gpu.h"

enum { SLICE_MOST = 128 }; /* of the width, in the results of a CTA: sums of half of it per lane */

static const int64_t shapes[][2] = {{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}};

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

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

/* Sums of a lane: of results and of scores. */
static int64_t registers_of(const Flash *f, const FlashGpuPlan *p) {
  int64_t columns = p->tile[FLASH_GPU_COLUMNS] / 2;
  return f->grad ? p->slice + 2 * columns : p->slice / 2 + columns;
}

static bool fits(const Module *m, const Flash *f, const FlashGpuPlan *p) {
  int64_t limit = (int64_t)module_number(m, "target.shared", 101376);
  for (int i = 0; i < p->phases; i++)
    if (p->shared[i] > limit) return false;
  return registers_of(f, p) <= 176;
}

static void apply(Module *m, Fn *k, const FlashGpuPlan *p) {
  GpuPhases phases = {.n = p->phases};
  for (int i = 0; i < p->phases; i++)
    phases.ctas[i] = p->chunks[i], phases.threads[i] = p->threads[i],
    phases.shared[i] = p->shared[i];
  gpu_set(m, k, p->mma ? "mma" : "fma", FLASH_GPU_COUNT, p->tile, &phases);
  if (p->workspace) attr_set_int(m, &k->attrs, ATTR_workspace, p->workspace);
}

bool gpu_vary_attention(Module *m, Fn *k, int shape) {
  Flash f = flash_of(k);
  if (shape >= (int)(sizeof shapes / sizeof *shapes)) return false;
  int64_t rows = f.grad && f.keys > f.queries ? f.keys : f.queries, least = round_up(rows, 16);
  int64_t tile[FLASH_GPU_COUNT] = {[FLASH_GPU_SLICES] = (f.width + SLICE_MOST - 1) / SLICE_MOST};
  tile[FLASH_GPU_COPY] = copies_of(k, &f);
  tile[FLASH_GPU_ROWS] = shapes[shape][0] < least ? shapes[shape][0] : least;
  tile[FLASH_GPU_COLUMNS] = shapes[shape][1];
  FlashGpuPlan p = flash_gpu_plan(&f, value_type(k, f.q)->elem, tile);
  if (!fits(m, &f, &p)) return false;
  apply(m, k, &p);
  return true;
}

void gpu_tune_attention(Module *m, Fn *k) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (gpu_vary_attention(m, k, (int)i)) return;
  Report *r =
      diag_at(m->ctx->diag, "E0901", loc_span(m, k->loc),
              "attention over heads %lld wide is not built for GPUs", (long long)flash_of(k).width);
  diag_fact(r, "kernel `%s`: its tiles do not fit the shared memory of a CTA", k->name);
  diag_help(r, "use narrower heads, or compile for a processor: `--target native`");
}

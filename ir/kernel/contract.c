/* Family contract: one dot, as product.h reads it; gemm_gpu.h for GPUs. */
#include "family.h"
#include "ir/support/num.h"
#include "product.h"

static bool has(const Fn *k, ValueId v, Str dim) { return type_find(value_type(k, v), dim) >= 0; }

static bool is_read(const Fn *k, ValueId v) {
  for (OpId i = 0; i < k->ops.n; i++)
    for (uint32_t j = 0; j < k->ops.at[i].nin; j++)
      if (k->ops.at[i].in[j] == v) return true;
  return false;
}

bool product_sums_rows(const Fn *k, const Op *dot, const Op *sum) {
  const Type *all = value_type(k, dot->out);
  bool good = sum->code == OP_sum && type_same_dims(value_type(k, sum->in[0]), all);
  int rows = -1; /* the operand whose dims are summed */
  for (int i = 0; good && i < all->rank; i++) {
    Str dim = all->axis[i].dim;
    bool own[] = {has(k, dot->in[0], dim), has(k, dot->in[1], dim)}, kept = has(k, sum->out, dim);
    int side = own[0] == kept;
    if (rows < 0) rows = side;
    good = own[0] != own[1] && side == rows;
  }
  return good && value_type(k, sum->out)->rank && value_type(k, sum->out)->rank < all->rank;
}

/* A sum is of an operand (processors), or of the rows that are made of the product (GPUs). */
static const char *sum_fault(const Fn *k, const Op *dot) {
  int sums = 0;
  EACH_OP (k, o) {
    if (op_family(o->code) != FAMILY_REDUCE) continue;
    bool made = !family_is_argument(k, o->in[0]);
    if (sums++ || (made && (!product_sums_rows(k, dot, o) || is_read(k, o->out))))
      return "it sums neither an operand nor all rows of its product";
  }
  return NULL;
}

static const char *heart_fault(const Fn *k, const Op *o) {
  bool good =
      o->code != OP_dot || (family_is_argument(k, o->in[0]) && family_is_argument(k, o->in[1]));
  return good ? sum_fault(k, o) : "its dot's operands are no arguments";
}

static CpuPlan plan(const CpuCut *cut) {
  Product product = product_of(cut->k, cut->lanes);
  bool fits = product.columns == NO_VALUE && product_fits(cut->m, &product, cut->tile);
  if (!fits) return (CpuPlan){.none = true};
  ProductPlan q = product_plan(&product, cut->lanes, cut->tile);
  bool packs = q.pack_chunks > 0;
  return (CpuPlan){.phases = 1 + packs,
                   .chunks = {packs ? q.pack_chunks : q.chunks, q.chunks},
                   .scratch = q.a_bytes + q.b_bytes + q.c_bytes + q.s_bytes + q.e_bytes,
                   .workspace = q.w_bytes};
}

/* The work of a chunk is its number of multiply-adds. */
static void weigh(const CpuCut *cut, double *work) {
  Product product = product_of(cut->k, cut->lanes);
  ProductPlan plan = product_plan(&product, cut->lanes, cut->tile);
  int64_t rows = cut->tile[TILE_ROW], columns = cut->tile[TILE_COLUMN],
          batches = product.batch.outer * product.batch.inner;
  for (int64_t i = 0; i < plan.chunks; i++) {
    int64_t column = i % columns, row = i / columns % rows, batch = i / columns / rows, n[2], v[2],
            b[2];
    for (int end = 0; end < 2; end++) {
      n[end] = product_rows_before(&product, &plan, share_begin(plan.tiles, rows, row + end));
      v[end] = product_vectors_before(&plan, share_begin(plan.panels, columns, column + end));
      b[end] = share_begin(batches, cut->tile[TILE_BATCH], batch + end);
    }
    work[i] = (double)(b[1] - b[0]) * (double)(n[1] - n[0]) * (double)(v[1] - v[0]);
  }
}

/* ---- GPUs ---- */

static void plan_contract(GpuCut *cut) {
  bool half = elem_is_half(product_of(cut->k, 8).compute);
  GemmMath math = half ? GEMM_MMA : gpu_is_variant(cut, "tf32") ? GEMM_TF32 : GEMM_FMA;
  GpuProduct product = gpu_product_of(cut->m, cut->k, math, INT64_MAX);
  if (!gpu_need_tile(cut, GEMM_COUNT)) return;
  if (!gpu_need(cut, product.p.sum == NO_VALUE, "no product of a GPU sums an operand")) return;
  if (math == GEMM_MMA && gemm_of_warpgroups(cut->tile)) math = GEMM_WGMMA;
  if (!gpu_need(cut, gpu_is_variant(cut, gemm_variant[math]), "its variant multiplies other types"))
    return;
  if (!gpu_need(cut, gpu_product_fits(&product, cut->tile), "no CTA can have such a tile")) return;
  GemmPlan plan = gpu_product_plan(&product, cut->tile);
  for (int i = GEMM_COPY_A; i < GEMM_COUNT; i++)
    gpu_need(cut, cut->tile[i] == plan.tile[i],
             "its operands are not copied, or results not stored, so");
  int before = plan.seek_ctas > 0;
  if (before) cut->p.chunks[0] = plan.seek_ctas, cut->p.threads[0] = GEMM_SEEK_THREADS;
  cut->p.phases = before + plan.phases, cut->p.workspace = plan.workspace;
  for (int i = 0; i < plan.phases; i++)
    cut->p.chunks[before + i] = plan.chunks[i], cut->p.threads[before + i] = plan.threads[i],
                           cut->p.shared[before + i] = plan.shared[i];
}

const FamilyShape contract_family = {
    .beside = 1u << FAMILY_CONTRACT | 1u << FAMILY_REDUCE,
    .heart = FAMILY_CONTRACT,
    .least = 1,
    .most = 1,
    .heart_fault = heart_fault,
    .in_place = IN_PLACE_ANY,
    .tile = TILE_COUNT,
    .needed = TILE_PACK_A,
    .plan = plan,
    .weigh = weigh,
    .gpu_variants = " fma tf32 mma wgmma ",
    .gpu_plan = plan_contract,
};

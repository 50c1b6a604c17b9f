/* Family contract: one dot, as product.h reads it; gemm_gpu.h for GPUs. */
#include "family.h"
#include "product.h"

static const char *heart_fault(const Fn *k, const Op *o) {
  bool good =
      o->code != OP_dot || (family_is_argument(k, o->in[0]) && family_is_argument(k, o->in[1]));
  return good ? NULL : "its dot's operands are no arguments";
}

static CpuPlan plan(const CpuCut *cut) {
  Product product = product_of(cut->k, cut->lanes);
  if (!product_fits(cut->m, &product, cut->tile)) return (CpuPlan){.none = true};
  ProductPlan q = product_plan(&product, cut->lanes, cut->tile);
  bool packs = q.pack_chunks > 0;
  return (CpuPlan){.phases = 1 + packs,
                   .chunks = {packs ? q.pack_chunks : q.chunks, q.chunks},
                   .scratch = q.a_bytes + q.b_bytes + q.c_bytes + q.s_bytes + q.e_bytes,
                   .workspace = q.w_bytes};
}

/* ---- GPUs ---- */

static void plan_contract(GpuCut *cut) {
  bool half = elem_is_half(product_of(cut->k, 8).compute);
  GemmMath math = half ? GEMM_MMA : gpu_is_variant(cut, "tf32") ? GEMM_TF32 : GEMM_FMA;
  GpuProduct product = gpu_product_of(cut->m, cut->k, math, INT64_MAX);
  if (!gpu_need_tile(cut, GEMM_COUNT)) return;
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
    .gpu_variants = " fma tf32 mma wgmma ",
    .gpu_plan = plan_contract,
};

/* Families attention and attention_grad: see attention_shape.h, and flash_gpu.h for GPUs. */
#include "family.h"

static CpuPlan plan(const CpuCut *c) {
  Flash flash = flash_of(c->k);
  if (flash.columns.value != NO_VALUE) return (CpuPlan){.none = true};
  if (!flash_fits(c->m, &flash, c->tile)) return (CpuPlan){.none = true};
  FlashPlan p = flash_plan(&flash, c->lanes, c->tile);
  return (CpuPlan){.phases = p.phases, .chunks = {p.chunks[0], p.chunks[1]}, .scratch = p.scratch};
}

/* ---- GPUs ---- */

static void plan_attention(GpuCut *cut) {
  if (!gpu_need_tile(cut, FLASH_GPU_COUNT)) return;
  if (!gpu_need(cut, gpu_flash_fits(cut->m, cut->k, cut->tile, INT64_MAX),
                "no CTA can have such a tile"))
    return;
  Flash flash = flash_of(cut->k);
  FlashGpuPlan plan = gpu_flash_plan(cut->m, cut->k, &flash, cut->tile);
  gpu_need(cut, cut->tile[FLASH_GPU_SLICES] == plan.tile[FLASH_GPU_SLICES],
           "its slices are of another width");
  gpu_need(cut, cut->tile[FLASH_GPU_COPY] == plan.tile[FLASH_GPU_COPY],
           "its operands are not copied so");
  gpu_need(cut, gpu_is_variant(cut, flash_gpu_variant(&plan)),
           "its variant multiplies other types");
  cut->p.phases = plan.phases, cut->p.workspace = plan.workspace;
  for (int i = 0; i < plan.phases; i++)
    cut->p.chunks[i] = plan.chunks[i], cut->p.threads[i] = plan.threads[i],
    cut->p.shared[i] = plan.shared[i];
}

#define SHAPE                                                                                      \
  {                                                                                                \
    .beside = 1u << FAMILY_ATTENTION | 1u << FAMILY_REDUCE, .heart = FAMILY_ATTENTION, .least = 1, \
    .most = 1, .heart_fault = flash_columns_fault, .tile = FLASH_COUNT, .needed = FLASH_KEY_PARTS, \
    .plan = plan, .gpu_variants = " fma mma wgmma ", .gpu_plan = plan_attention,                   \
  }

const FamilyShape attention_family = SHAPE, attention_grad_family = SHAPE;

/* Families attention and attention_grad: see attention_shape.h, and flash_gpu.h for GPUs. */
#include "family.h"

static CpuPlan plan(const CpuCut *c) {
  Flash f = flash_of(c->k);
  if (!flash_fits(c->m, &f, c->tile)) return (CpuPlan){.none = true};
  FlashPlan p = flash_plan(&f, c->lanes, c->tile);
  return (CpuPlan){.phases = p.phases, .chunks = {p.chunks[0], p.chunks[1]}, .scratch = p.scratch};
}

/* ---- GPUs ---- */

static void plan_attention(GpuCut *x) {
  if (!gpu_need_tile(x, FLASH_GPU_COUNT)) return;
  if (!gpu_need(x, gpu_flash_fits(x->k, x->tile, INT64_MAX), "no CTA can have such a tile")) return;
  Flash f = flash_of(x->k);
  FlashGpuPlan p = gpu_flash_plan(x->k, &f, x->tile);
  gpu_need(x, x->tile[FLASH_GPU_SLICES] == p.tile[FLASH_GPU_SLICES],
           "its slices are of another width");
  gpu_need(x, x->tile[FLASH_GPU_COPY] == p.tile[FLASH_GPU_COPY], "its operands are not copied so");
  gpu_need(x, gpu_is_variant(x, p.mma ? "mma" : "fma"), "its variant multiplies other types");
  x->p.phases = p.phases, x->p.workspace = p.workspace;
  for (int i = 0; i < p.phases; i++)
    x->p.chunks[i] = p.chunks[i], x->p.threads[i] = p.threads[i], x->p.shared[i] = p.shared[i];
}

#define SHAPE                                                                                      \
  {                                                                                                \
    .beside = 1u << FAMILY_ATTENTION, .heart = FAMILY_ATTENTION, .least = 1, .most = 1,            \
    .tile = FLASH_COUNT, .needed = FLASH_KEY_PARTS, .plan = plan, .gpu_variants = " fma mma ",     \
    .gpu_plan = plan_attention,                                                                    \
  }

const FamilyShape attention_family = SHAPE, attention_grad_family = SHAPE;

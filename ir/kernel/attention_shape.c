/* Dims of attention and the arithmetic of its cut; see attention_shape.h. */
#include "attention_shape.h"
#include "ir/attention_operands.h"
#include "ir/support/num.h"

static OpId find_op(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (op_family(k->ops.at[i].code) == FAMILY_ATTENTION) return i;
  bug("kernel %s has no attention", k->name);
}

static void add_axis(FlashDims *d, Axis axis) { d->axis[d->n++] = axis, d->count *= axis.size; }

static void name_values(const Fn *kernel, Flash *flash, const Op *o) {
  flash->q = o->in[0], flash->k = o->in[1], flash->v = o->in[2];
  must(attention_sink(kernel, o) == NO_VALUE, "kernel %s: attention with a sink", kernel->name);
  flash->mask = attention_mask(kernel, o), flash->bias = attention_bias(kernel, o),
  flash->kept = attention_kept(kernel, o);
  flash->y = flash->grad ? o->in[3] : o->out, flash->lse = flash->grad ? o->in[4] : o->out + 1;
  flash->dy = flash->grad ? o->in[5] : NO_VALUE;
  flash->dq = o->out, flash->dk = o->out + 1, flash->dv = o->out + 2;
}

int64_t flash_index(const FlashDims *d, int64_t flat, Str dim) {
  for (int i = d->n; i-- > 0; flat /= d->axis[i].size)
    if (d->axis[i].dim == dim) return flat % d->axis[i].size;
  return -1;
}

Flash flash_of(const Fn *kernel) {
  Flash flash = {.op = find_op(kernel), .shared.count = 1, .group.count = 1};
  const Op *o = &kernel->ops.at[flash.op];
  flash.grad = o->code == OP_attention_grad;
  name_values(kernel, &flash, o);
  flash.query = o->group[0].from[0], flash.key = o->group[0].to[0], flash.dim = o->group[1].from[0];
  const Type *q = value_type(kernel, flash.q), *k = value_type(kernel, flash.k);
  flash.queries = type_size(q, flash.query), flash.keys = type_size(k, flash.key),
  flash.width = type_size(q, flash.dim);
  flash.scale = attr_float(&o->attrs, ATTR_scale, 1),
  flash.cap = attr_float(&o->attrs, ATTR_cap, 0),
  flash.larger = 1 / (1 - attr_float(&o->attrs, ATTR_drop, 0));
  flash.columns = flash_columns_of(kernel);
  for (int i = 0; i < q->rank; i++) {
    Axis axis = q->axis[i];
    if (axis.dim == flash.query || axis.dim == flash.dim) continue;
    add_axis(type_find(k, axis.dim) < 0 ? &flash.group : &flash.shared, axis);
  }
  return flash;
}

static int64_t forward_floats(const FlashPlan *plan) {
  int64_t keys = plan->tile[FLASH_KEY_BLOCK], block = plan->tile[FLASH_QUERY_BLOCK];
  return 2 * plan->keys * plan->width + (plan->width + keys + 2) * plan->tile_queries +
         2 * (plan->width + 1) * block;
}

static int64_t backward_floats(const FlashPlan *plan) {
  int64_t keys = plan->tile[FLASH_KEY_BLOCK], queries = plan->tile[FLASH_QUERY_BLOCK];
  return 4 * plan->keys * plan->width + 5 * plan->width * queries + 2 * keys * queries +
         2 * queries;
}

FlashPlan flash_plan(const Flash *flash, int lanes, const int64_t tile[FLASH_COUNT]) {
  FlashPlan plan = {.lanes = lanes, .tile_queries = tile[FLASH_VECTORS] * lanes, .phases = 1};
  memcpy(plan.tile, tile, sizeof plan.tile);
  plan.width = round_up(flash->width, lanes);
  plan.keys = round_up(flash->keys, tile[FLASH_ROWS]);
  plan.query_blocks = ceil_div(flash->queries, tile[FLASH_QUERY_BLOCK]);
  plan.key_blocks = ceil_div(flash->keys, tile[FLASH_KEY_BLOCK]);
  plan.chunks[0] = tile[FLASH_HEADS] * tile[FLASH_PARTS];
  if (flash->grad && tile[FLASH_KEY_PARTS]) {
    plan.phases = 2;
    plan.chunks[0] = flash->shared.count * tile[FLASH_KEY_PARTS];
    plan.chunks[1] = flash->shared.count * flash->group.count * tile[FLASH_PARTS];
  }
  plan.scratch = round_up(4 * (flash->grad ? backward_floats(&plan) : forward_floats(&plan)), 64);
  return plan;
}

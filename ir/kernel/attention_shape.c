/* Dims of attention and the arithmetic of its cut; see attention_shape.h. */
#include "attention_shape.h"
#include "ir/support/num.h"

static OpId find_op(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (op_family(k->ops.at[i].code) == FAMILY_ATTENTION) return i;
  bug("kernel %s has no attention", k->name);
}

static void add_axis(FlashDims *d, Axis a) { d->axis[d->n++] = a, d->count *= a.size; }

static void name_values(Flash *f, const Op *o) {
  uint32_t operands = f->grad ? 6 : 3;
  f->q = o->in[0], f->k = o->in[1], f->v = o->in[2];
  f->mask = o->nin > operands ? o->in[operands] : NO_VALUE;
  f->y = f->grad ? o->in[3] : o->out, f->lse = f->grad ? o->in[4] : o->out + 1;
  f->dy = f->grad ? o->in[5] : NO_VALUE;
  f->dq = o->out, f->dk = o->out + 1, f->dv = o->out + 2;
}

int64_t flash_index(const FlashDims *d, int64_t flat, Str dim) {
  for (int i = d->n; i-- > 0; flat /= d->axis[i].size)
    if (d->axis[i].dim == dim) return flat % d->axis[i].size;
  return -1;
}

Flash flash_of(const Fn *kernel) {
  Flash f = {.op = find_op(kernel), .shared.count = 1, .group.count = 1};
  const Op *o = &kernel->ops.at[f.op];
  f.grad = o->code == OP_attention_grad;
  name_values(&f, o);
  f.query = o->group[0].from[0], f.key = o->group[0].to[0], f.dim = o->group[1].from[0];
  const Type *q = value_type(kernel, f.q), *k = value_type(kernel, f.k);
  f.queries = type_size(q, f.query), f.keys = type_size(k, f.key), f.width = type_size(q, f.dim);
  f.scale = attr_float(&o->attrs, ATTR_scale, 1);
  for (int i = 0; i < q->rank; i++) {
    Axis a = q->axis[i];
    if (a.dim == f.query || a.dim == f.dim) continue;
    add_axis(type_find(k, a.dim) < 0 ? &f.group : &f.shared, a);
  }
  return f;
}

static int64_t forward_floats(const FlashPlan *p) {
  int64_t keys = p->tile[FLASH_KEY_BLOCK], block = p->tile[FLASH_QUERY_BLOCK];
  return 2 * p->keys * p->width + (p->width + keys + 2) * p->tile_queries +
         2 * (p->width + 1) * block;
}

static int64_t backward_floats(const FlashPlan *p) {
  int64_t keys = p->tile[FLASH_KEY_BLOCK], queries = p->tile[FLASH_QUERY_BLOCK];
  return 4 * p->keys * p->width + 5 * p->width * queries + 2 * keys * queries + 2 * queries;
}

FlashPlan flash_plan(const Flash *f, int lanes, const int64_t tile[FLASH_COUNT]) {
  FlashPlan p = {.lanes = lanes, .tile_queries = tile[FLASH_VECTORS] * lanes, .phases = 1};
  memcpy(p.tile, tile, sizeof p.tile);
  p.width = round_up(f->width, lanes);
  p.keys = round_up(f->keys, tile[FLASH_ROWS]);
  p.query_blocks = ceil_div(f->queries, tile[FLASH_QUERY_BLOCK]);
  p.key_blocks = ceil_div(f->keys, tile[FLASH_KEY_BLOCK]);
  p.chunks[0] = tile[FLASH_HEADS] * tile[FLASH_PARTS];
  if (f->grad && tile[FLASH_KEY_PARTS]) {
    p.phases = 2;
    p.chunks[0] = f->shared.count * tile[FLASH_KEY_PARTS];
    p.chunks[1] = f->shared.count * f->group.count * tile[FLASH_PARTS];
  }
  p.scratch = round_up(4 * (f->grad ? backward_floats(&p) : forward_floats(&p)), 64);
  return p;
}

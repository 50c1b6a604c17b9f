/* How many lanes a thread may take at once: see gpu_lanes.h.

   The lane dim is followed from the values that are evaluated back to the buffers, through ops that
   move indexes, as the expression generator will do it (codegen/expr_struct.c): lanes stay
   consecutive through renames, expands, even slices, and splits and merges whose pieces are
   multiples of the lanes; through others each lane would get an index of its own, and one point per
   thread is then the better way. */
#include "gpu_lanes.h"
#include "ir/support/num.h"

typedef struct GpuLane { /* of a value: which of its dims the lanes run over */
  Str dim;               /* NULL: none */
  int64_t multiple;      /* lane 0 is at a multiple of this */
} GpuLane;

typedef struct GpuLanes {
  const Fn *k;
  int n;
  GpuLane *known; /* per value: fits with this one */
  bool *checked;
} GpuLanes;

static bool fits(GpuLanes *x, ValueId v, GpuLane lane);

static bool whole(const GpuLanes *lanes, int64_t n) { return n % lanes->n == 0; }

static int64_t align_of(const Fn *k, ValueId v) {
  const Attr *a = attr_get(&k->attrs, ATTR_align);
  uint32_t at = k->values.at[v].result;
  if (k->values.at[v].def != NO_OP)
    for (at = 0; at < k->results.n && k->results.at[at] != v;) at++;
  if (k->values.at[v].def != NO_OP) at += k->args.n;
  return a && at < a->i ? a->list[at] : 16;
}

/* Vectors of a buffer are consecutive and aligned. */
static bool buffer_fits(const GpuLanes *lanes, ValueId v, GpuLane lane) {
  const Type *t = value_type(lanes->k, v);
  int64_t bytes = elem_bytes(t->elem) * lanes->n;
  if (bytes > 16) bytes = 16;
  if (!lane.dim) return true;
  if (buffer_stride(lanes->k, v, lane.dim) != 1 || !whole(lanes, lane.multiple)) return false;
  if (align_of(lanes->k, v) < bytes) return false;
  for (int a = 0; a < t->rank; a++) {
    int64_t step = buffer_stride(lanes->k, v, t->axis[a].dim) * elem_bytes(t->elem);
    if (t->axis[a].dim != lane.dim && t->axis[a].size > 1 && step % bytes) return false;
  }
  return true;
}

static GpuLane restricted(const GpuLanes *lanes, ValueId v, GpuLane lane) {
  return lane.dim && type_find(value_type(lanes->k, v), lane.dim) >= 0 ? lane : (GpuLane){0};
}

static bool same(GpuLanes *lanes, const Op *o, GpuLane lane) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (!fits(lanes, o->in[i], restricted(lanes, o->in[i], lane))) return false;
  return true;
}

/* Which group, and which of its dims, makes dim l.dim of the result; -1: none. */
static int group_to(const Op *o, Str dim, int *at) {
  for (int g = 0; g < o->ngroups; g++)
    for (*at = 0; *at < o->group[g].nto; ++*at)
      if (o->group[g].to[*at] == dim) return g;
  return -1;
}

static bool moved(GpuLanes *lanes, const Op *o, GpuLane lane) {
  int at = 0, g = lane.dim ? group_to(o, lane.dim, &at) : -1;
  if (g < 0) return fits(lanes, o->in[0], restricted(lanes, o->in[0], lane));
  const Group *group = &o->group[g];
  const Type *from = value_type(lanes->k, o->in[0]);
  switch (o->code) {
  case OP_rename: return fits(lanes, o->in[0], (GpuLane){group->from[at], lane.multiple});
  case OP_slice:
    lane = (GpuLane){group->from[0], gcd_i64(lane.multiple, attr_int(&o->attrs, ATTR_at, 0))};
    return fits(lanes, o->in[0], lane);
  case OP_split: {
    int64_t size = type_size(value_type(lanes->k, o->out), lane.dim);
    return at == group->nto - 1 &&
           fits(lanes, o->in[0], (GpuLane){group->from[0], gcd_i64(lane.multiple, size)});
  }
  case OP_merge: {
    Str inner = group->from[group->nfrom - 1];
    int64_t size = type_size(from, inner);
    return whole(lanes, size) &&
           fits(lanes, o->in[0], (GpuLane){inner, gcd_i64(lane.multiple, size)});
  }
  default: return false;
  }
}

static bool mentions(const Op *o, Str dim) {
  for (int g = 0; dim && g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (o->group[g].from[i] == dim) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (o->group[g].to[i] == dim) return true;
  }
  return false;
}

static bool rope_fits(GpuLanes *lanes, const Op *o, GpuLane lane) {
  Str dim = o->group[1].from[0];
  int64_t half = type_size(value_type(lanes->k, o->out), dim) / 2;
  if (lane.dim != dim) return same(lanes, o, lane);
  lane.multiple = gcd_i64(lane.multiple, half);
  return whole(lanes, half) && same(lanes, o, lane);
}

static bool op_fits(GpuLanes *lanes, const Op *o, GpuLane lane) {
  if (op_family(o->code) == FAMILY_ELEM || o->code == OP_expand) return same(lanes, o, lane);
  switch (o->code) {
  case OP_const:
  case OP_iota: return true;
  case OP_rand: return same(lanes, o, (GpuLane){0});
  case OP_rope: return rope_fits(lanes, o, lane);
  case OP_gather:
    return !restricted(lanes, o->in[1], lane).dim && fits(lanes, o->in[1], (GpuLane){0}) &&
           fits(lanes, o->in[0], restricted(lanes, o->in[0], lane));
  case OP_rename:
  case OP_slice:
  case OP_split:
  case OP_merge: return moved(lanes, o, lane);
  default: break;
  }
  /* Nothing is known of other moved indexes along the dims they name. Reductions: their operand is
     a root of its own. */
  if (op_family(o->code) == FAMILY_STRUCT) return !mentions(o, lane.dim) && same(lanes, o, lane);
  return true;
}

static bool fits(GpuLanes *lanes, ValueId v, GpuLane lane) {
  const Op *o = value_def(lanes->k, v);
  if (lanes->checked[v] && lanes->known[v].dim == lane.dim &&
      lanes->known[v].multiple == lane.multiple)
    return true;
  lanes->checked[v] = true, lanes->known[v] = lane;
  return o ? op_fits(lanes, o, lane) : buffer_fits(lanes, v, lane);
}

static bool is_result(const Fn *k, ValueId v) {
  for (uint32_t r = 0; r < k->results.n; r++)
    if (k->results.at[r] == v) return true;
  return false;
}

static bool all_fit(GpuLanes *lanes, Str dim, uint32_t nroots, const ValueId *root) {
  for (uint32_t i = 0; i < nroots; i++) {
    GpuLane lane = restricted(lanes, root[i], (GpuLane){dim, lanes->n});
    if (is_result(lanes->k, root[i]) && !buffer_fits(lanes, root[i], lane)) return false;
    if (!fits(lanes, root[i], lane)) return false;
  }
  return true;
}

static ValueId buffer(const Fn *k, uint32_t i) {
  return i < k->args.n ? k->args.at[i] : k->results.at[i - k->args.n];
}

/* Bytes of the widest element among the large buffers: those of which most is read and written. */
static int64_t widest(const Fn *k) {
  int64_t most = 2, largest = 0;
  uint32_t n = k->args.n + k->results.n;
  for (uint32_t i = 0; i < n; i++) {
    int64_t count = type_count(value_type(k, buffer(k, i)));
    if (count > largest) largest = count;
  }
  for (uint32_t i = 0; i < n; i++) {
    const Type *t = value_type(k, buffer(k, i));
    if (2 * type_count(t) > largest && elem_bytes(t->elem) > most) most = elem_bytes(t->elem);
  }
  return most;
}

int gpu_lanes(const Module *m, const Fn *k, const Nest *nest, uint32_t nroots,
              const ValueId *root) {
  Str dim = nest->n ? nest->dim[nest->n - 1].dim : NULL;
  for (int lanes = (int)(16 / widest(k)); dim && lanes > 1; lanes /= 2) {
    GpuLanes x = {.k = k, .n = lanes};
    x.known = ARENA_ARRAY(m->arena, GpuLane, k->values.n + 1);
    x.checked = ARENA_ARRAY(m->arena, bool, k->values.n + 1);
    if (nest_inner(nest) % lanes == 0 && all_fit(&x, dim, nroots, root)) return lanes;
  }
  return 1;
}

bool gpu_aligned(const Fn *k, uint32_t buffer) {
  const Attr *a = attr_get(&k->attrs, ATTR_align);
  return !a || buffer >= a->i || a->list[buffer] >= 16;
}

bool gpu_consecutive(const Fn *k, const Nest *nest, ValueId reference) {
  return nest->n && reference != NO_VALUE &&
         buffer_stride(k, reference, nest->dim[nest->n - 1].dim) == 1;
}

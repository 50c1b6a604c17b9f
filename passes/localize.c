/* localize: types of one rank. Sizes become those of a rank's blocks, placements leave the values,
   and what depends on where a rank stands does so through offsets alone: no shape does, so one
   program serves all ranks.

     iota, rand, rope along a cut dim    count from the block's first element
     gather of cut rows, scatter to such the index less the first row: others read 0, add nothing
     part                                gather by position
     keep_first                          0 but where the coordinate is 0, or the last one
     loop whose rounds an axis cuts      a block of the rounds, between a receive from the stage
                                         before and a send to the one behind; behind the last stage
                                         comes the first one, if the loop has a chunk of the layers

   Coordinates are scalars @mesh.AXIS, loaded by entries and handed to bodies; those that nobody
   reads go with `clean`. Samples of a step that is cut in time are dealt to the ranks part by part
   (Global inputs, placement_index). Globals keep their placement beside the sizes of one rank. */
#include "ir/placement.h"
#include "ir/stage_class.h"
#include "ir/turns.h"
#include "passes/internal.h"

typedef struct Done { /* bodies, written once */
  const Fn *from;
  Fn *to;
} Done;

typedef struct Localize {
  Module *m;
  VEC(Done) done;
  Global *scalar[MAX_MESH];
} Localize;

typedef struct Local { /* one function */
  Localize *l;
  Module *m;
  Rebuild r;
  ValueId coordinate[MAX_MESH];
  Loc loc;
} Local;

static const Placement *placed(const Local *k, ValueId v) {
  return &k->r.from->values.at[v].placed;
}

static Type local_type(const Local *k, ValueId v) {
  return placement_local(k->m, value_type(k->r.from, v), placed(k, v));
}

static ValueId bin(Local *k, OpCode c, ValueId a, ValueId b) {
  return ir_binary(k->m, k->r.to, c, a, b, k->loc);
}

static ValueId num(Local *k, Elem e, int64_t n) {
  return ir_const(k->m, k->r.to, e, (double)n, k->loc);
}

/* Number of the rank's block of dim, i32[]; NO_VALUE if dim is not cut. */
static ValueId block(Local *k, const Placement *p, Str dim) {
  int axes[MAX_MESH], n = mesh_order(k->m, axes);
  ValueId sum = NO_VALUE;
  for (int i = 0; i < n; i++) {
    if (p->on[axes[i]] != dim) continue;
    ValueId c = k->coordinate[axes[i]];
    if (sum != NO_VALUE) {
      sum = bin(k, OP_mul, sum, num(k, ELEM_i32, k->m->mesh.at[axes[i]].size));
      c = bin(k, OP_add, sum, c);
    }
    sum = c;
  }
  return sum;
}

/* The rank's first element of dim, of which it has `size`. */
static ValueId first(Local *k, const Placement *p, Str dim, int64_t size) {
  ValueId b = block(k, p, dim);
  return b == NO_VALUE ? b : bin(k, OP_mul, b, num(k, ELEM_i32, size));
}

/* Samples of a rank in one part of a step, if dim is dealt to the ranks part by part, layers in a
   chunk, if they are so; else 0. */
static int64_t dealt_part(const Local *k, const Placement *p, Str dim, int64_t size) {
  int64_t chunks = stage_chunks(k->m, p, dim);
  if (chunks > 1) return size / chunks;
  int64_t part = placement_part(k->m, p, dim);
  return part && part < size && placement_ways(k->m, p, dim) > 1 ? part : 0;
}

/* i + (i / step) * jump */
static ValueId jumps(Local *k, ValueId i, int64_t step, int64_t jump) {
  ValueId turn = bin(k, OP_div, i, num(k, ELEM_i32, step));
  return bin(k, OP_add, i, bin(k, OP_mul, turn, num(k, ELEM_i32, jump)));
}

/* Positions along a dim with `size` elements on each rank, for the cuts `p`: i32[dim]. */
static ValueId positions(Local *k, const Placement *p, Str dim, int64_t size, int64_t part) {
  ValueId i = ir_iota(k->m, k->r.to, (Axis){dim, size}, k->loc);
  ValueId at = first(k, p, dim, part ? part : size);
  if (at == NO_VALUE) return i;
  if (part) i = jumps(k, i, part, part * (placement_ways(k->m, p, dim) - 1));
  return bin(k, OP_add, i, at);
}

static ValueId own_positions(Local *k, const Placement *p, Str dim, int64_t size) {
  return positions(k, p, dim, size, dealt_part(k, p, dim, size));
}

static void finish(Local *k, const Op *o, const Op *made) {
  for (uint32_t i = 0; i < o->nout; i++) {
    Value *v = &k->r.to->values.at[made->out + i];
    v->type = local_type(k, o->out + i), v->placed = (Placement){0};
  }
}

static void copy_op(Local *k, const Op *o) { finish(k, o, rebuild_op(&k->r, o)); }

static void copy_with(Local *k, const Op *o, uint32_t operand, ValueId v) {
  Op *made = rebuild_op(&k->r, o);
  made->in[operand] = v;
  finish(k, o, made);
}

/* ---- ops that know where they are ---- */

static void local_iota(Local *k, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(k, o->out);
  k->r.map[o->out] = own_positions(k, placed(k, o->out), dim, type_size(&t, dim));
}

/* A dim that is dealt has no first element: its numbers are made for all ranks, and taken. */
static Str dealt_dim(const Local *k, const Op *o, const Type *t) {
  for (int i = 0; i < t->rank; i++)
    if (dealt_part(k, placed(k, o->out), t->axis[i].dim, t->axis[i].size)) return t->axis[i].dim;
  return NULL;
}

/* base + sum of first element * stride, where that of `dealt` is `at` */
static ValueId rand_base(Local *k, const Op *o, const Type *t, Str dealt, ValueId dealt_at) {
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  ValueId base = k->r.map[o->in[2]];
  Elem e = value_type(k->r.to, base)->elem;
  for (int i = 0; i < o->group[0].nfrom; i++) {
    Str dim = o->group[0].from[i];
    ValueId at = dim == dealt ? dealt_at : first(k, placed(k, o->out), dim, type_size(t, dim));
    if (at == NO_VALUE) continue;
    at = bin(k, OP_mul, ir_cast(k->m, k->r.to, at, e, k->loc), num(k, e, strides->list[i]));
    base = bin(k, OP_add, base, at);
  }
  return base;
}

static Str chunked_dim(const Local *k, const Op *o) {
  const Type *t = value_type(k->r.from, o->out);
  for (int i = 0; i < t->rank; i++)
    if (stage_chunks(k->m, placed(k, o->out), t->axis[i].dim) > 1) return t->axis[i].dim;
  return NULL;
}

/* Chunk by chunk, end to end. */
static void rand_chunks(Local *k, const Op *o, Str dim) {
  Type t = local_type(k, o->out);
  int axis = type_find(&t, dim);
  int64_t n = stage_chunks(k->m, placed(k, o->out), dim), size = t.axis[axis].size / n;
  Str name[MOST_CHUNKS];
  ValueId in[MOST_CHUNKS];
  for (int64_t j = 0; j < n; j++) {
    ValueId before = num(k, ELEM_i32, j * size * placement_ways(k->m, placed(k, o->out), dim)),
            at = bin(k, OP_add, first(k, placed(k, o->out), dim, size), before);
    copy_with(k, o, 2, rand_base(k, o, &t, dim, at));
    in[j] = k->r.map[o->out];
    k->r.to->values.at[in[j]].type.axis[axis].size = size;
    name[j] = intern_printf(k->m->ctx->names, "%s_%c", dim, (char)('a' + j));
    in[j] = ir_rename(k->m, k->r.to, in[j], dim, name[j], k->loc);
  }
  Group map = group_map((int)n, name, 1, &dim);
  k->r.map[o->out] = emit_typed(k->m, k->r.to, OP_concat, (uint32_t)n, in, &map, t, k->loc);
}

static void local_rand(Local *k, const Op *o) {
  Type t = local_type(k, o->out);
  Str chunked = chunked_dim(k, o), dealt = dealt_dim(k, o, &t);
  if (chunked) {
    rand_chunks(k, o, chunked);
    return;
  }
  copy_with(k, o, 2, rand_base(k, o, &t, dealt, NO_VALUE));
  if (!dealt) return;
  ValueId v = k->r.map[o->out];
  int axis = type_find(&t, dealt);
  ValueId at = own_positions(k, placed(k, o->out), dealt, t.axis[axis].size);
  k->r.to->values.at[v].type.axis[axis].size = type_size(value_type(k->r.from, o->out), dealt);
  k->r.map[o->out] = ir_gather(k->m, k->r.to, v, at, dealt, k->loc);
}

static void local_rope(Local *k, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(k, o->out);
  if (o->nin > 1 || block(k, placed(k, o->out), dim) == NO_VALUE) {
    copy_op(k, o);
    return;
  }
  ValueId in[] = {k->r.map[o->in[0]], own_positions(k, placed(k, o->out), dim, type_size(&t, dim))};
  Op *made = rebuild_op(&k->r, o);
  made->nin = 2, made->in = ARENA_ARRAY(k->m->arena, ValueId, 2);
  made->in[0] = in[0], made->in[1] = in[1];
  finish(k, o, made);
}

/* Index `operand` less the first row that the rank holds of dim of value `rows`. */
static void local_rows(Local *k, const Op *o, ValueId rows, Str dim, uint32_t operand) {
  Type t = local_type(k, rows);
  ValueId at = first(k, placed(k, rows), dim, type_size(&t, dim)), index = k->r.map[o->in[operand]];
  if (at == NO_VALUE) {
    copy_op(k, o);
    return;
  }
  at = ir_cast(k->m, k->r.to, at, value_type(k->r.to, index)->elem, k->loc);
  copy_with(k, o, operand, bin(k, OP_sub, index, at));
}

static void local_gather(Local *k, const Op *o) {
  local_rows(k, o, o->in[0], o->group[0].from[0], 1);
}

static void local_scatter(Local *k, const Op *o) { local_rows(k, o, o->out, o->group[0].to[0], 1); }

static int axis_of(const Local *k, const Op *o) {
  return mesh_find(k->m, attr_str(&o->attrs, ATTR_axis, NULL));
}

/* The operand's blocks are cut again: positions count from their begin. */
static void local_part(Local *k, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(k, o->out);
  int64_t size = type_size(&t, dim);
  Placement only = {0};
  only.on[axis_of(k, o)] = dim;
  ValueId at = positions(k, &only, dim, size, dealt_part(k, placed(k, o->out), dim, size));
  k->r.map[o->out] = ir_gather(k->m, k->r.to, k->r.map[o->in[0]], at, dim, k->loc);
}

static void local_keep(Local *k, const Op *o) {
  ValueId a = k->r.map[o->in[0]];
  k->r.map[o->out] = a;
  if (value_is_zero(k->r.to, a)) return;
  int axis = axis_of(k, o);
  ValueId none = emit_full(k->m, k->r.to, *value_type(k->r.to, a), 0, k->loc);
  bool last = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  ValueId kept = num(k, ELEM_i32, last ? k->m->mesh.at[axis].size - 1 : 0);
  ValueId is_kept = bin(k, OP_eq, k->coordinate[axis], kept);
  k->r.map[o->out] = ir_where(k->m, k->r.to, is_kept, a, none, k->loc);
}

/* Blocks of a dealt dim, end to end, hold part m of rank r at (r, m); in order it is at (m, r). `n`
   ranks, parts of `part`, `size` elements on one of them: the permutation from one to the other. */
static ValueId reordered(Local *k, ValueId v, Str dim, int64_t n, int64_t part, int64_t size,
                         bool joined) {
  ValueId i = ir_iota(k->m, k->r.to, (Axis){dim, n * size}, k->loc);
  int64_t outer = joined ? n : size / part, step = joined ? size : part * n;
  must(part > 0 && size % part == 0, "localize: %lld elements of %s in parts of %lld",
       (long long)size, dim, (long long)part);
  ValueId piece = bin(k, OP_div, i, num(k, ELEM_i32, part));     /* m * n + r, or r * parts + m */
  ValueId high = bin(k, OP_div, piece, num(k, ELEM_i32, outer)); /* m, or r */
  ValueId low = bin(k, OP_sub, piece, bin(k, OP_mul, high, num(k, ELEM_i32, outer)));
  ValueId rest = bin(k, OP_sub, i, bin(k, OP_mul, piece, num(k, ELEM_i32, part)));
  ValueId at = bin(k, OP_mul, low, num(k, ELEM_i32, step));
  at = bin(k, OP_add, at, bin(k, OP_mul, high, num(k, ELEM_i32, part)));
  return ir_gather(k->m, k->r.to, v, bin(k, OP_add, at, rest), dim, k->loc);
}

/* The dim that a collective joins, or that it cuts. */
static Str joined_dim(const Op *o) {
  return o->code == OP_all_gather || o->code == OP_all_to_all ? o->group[0].from[0] : NULL;
}

static Str cut_dim(const Op *o) {
  if (o->code == OP_reduce_scatter) return o->group[0].from[0];
  return o->code == OP_all_to_all ? o->group[0].to[0] : NULL;
}

static void local_collective(Local *k, const Op *o) {
  must(axis_of(k, o) >= 0, "localize: the mesh has no axis of %s", op_name(o->code));
  int64_t ways = k->m->mesh.at[axis_of(k, o)].size;
  Type in = local_type(k, o->in[0]), out = local_type(k, o->out);
  Str joined = joined_dim(o), cut = cut_dim(o);
  int64_t jsize = joined ? type_size(&in, joined) : 0, csize = cut ? type_size(&out, cut) : 0;
  int64_t jpart = joined ? dealt_part(k, placed(k, o->in[0]), joined, jsize) : 0;
  int64_t cpart = cut ? dealt_part(k, placed(k, o->out), cut, csize) : 0;
  ValueId a = k->r.map[o->in[0]];
  if (cpart) a = reordered(k, a, cut, ways, cpart, csize, false);
  Op *made = rebuild_op(&k->r, o);
  made->in[0] = a;
  attr_set_int(k->m, &made->attrs, ATTR_ranks, ways);
  finish(k, o, made);
  if (jpart) k->r.map[o->out] = reordered(k, k->r.map[o->out], joined, ways, jpart, jsize, true);
}

/* ---- loops ---- */

typedef struct Rounds { /* of a loop whose rounds axis `axis` cuts; -1: none does */
  int axis;
  int64_t held;          /* by a rank */
  int64_t chunk, chunks; /* of the layers */
} Rounds;

static Rounds rounds_of(const Module *m, const Op *o) {
  LoopShape s = loop_shape(o);
  Rounds r = {.axis = s.stages ? mesh_find(m, s.stages) : -1, .held = s.trip};
  must(!s.stages || r.axis >= 0, "localize: the mesh has no axis %s for stages", s.stages);
  must(r.axis < 0 || s.trip % m->mesh.at[r.axis].size == 0,
       "localize: %lld rounds over %lld stages", (long long)s.trip,
       (long long)m->mesh.at[r.axis].size);
  if (r.axis >= 0) r.held /= m->mesh.at[r.axis].size;
  r.chunks = s.stages && s.of ? s.of / s.trip : 1, r.chunk = r.chunks > 1 ? s.first / s.trip : 0;
  return r;
}

static Fn *local_fn(Localize *l, const Fn *f, uint32_t before, Rounds rounds);

static Fn *local_body(Localize *l, const Op *o) {
  LoopShape s = loop_shape(o);
  for (uint32_t i = 0; i < l->done.n; i++)
    if (l->done.at[i].from == o->callee) return l->done.at[i].to;
  Fn *to = local_fn(l, o->callee, 1 + s.carry + s.invariant, rounds_of(l->m, o));
  vec_push(l->m->arena, l->done, (Done){o->callee, to});
  return to;
}

/* To or from the neighbour along the axis of the stages. */
static ValueId hop(Local *k, OpCode c, const Op *loop, ValueId v, Rounds rounds) {
  const MeshAxis *a = &k->m->mesh.at[rounds.axis];
  bool back = attr_int(&loop->attrs, ATTR_reverse, 0) != 0;
  int64_t end = back == (c == OP_receive) ? rounds.chunks - 1 : 0;
  ValueId r = emit_typed(k->m, k->r.to, c, 1, &v, NULL, *value_type(k->r.to, v), k->loc);
  AttrList *l = &vec_last(k->r.to->ops).attrs;
  attr_set_str(k->m, l, ATTR_axis, a->name);
  attr_set_int(k->m, l, ATTR_ranks, a->size);
  if (back) attr_set_int(k->m, l, ATTR_reverse, 1);
  if (rounds.chunk != end) attr_set_int(k->m, l, ATTR_wrap, 1);
  return r;
}

/* Carried from stage to stage: no sum over rounds, of which each stage has its part. */
static bool is_handed_on(const Local *k, const Op *o, uint32_t i, int axis) {
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  return axis >= 0 && i < carry && !placed(k, o->in[i])->on[axis];
}

static void local_loop(Local *k, const Op *o) {
  LoopShape s = loop_shape(o);
  ValueList in = {0};
  Rounds rounds = rounds_of(k->m, o);
  ValueId *handed = ARENA_ARRAY(k->m->arena, ValueId, s.carry + 1);
  for (uint32_t i = 0; i < s.carry; i++)
    handed[i] = is_handed_on(k, o, i, rounds.axis)
                    ? hop(k, OP_receive, o, k->r.map[o->in[i]], rounds)
                    : NO_VALUE;
  for (uint32_t i = 0; i <= o->nin; i++) {
    for (uint32_t a = 0; i == s.carry + s.invariant && a < k->m->mesh.n; a++)
      vec_push(k->m->arena, in, k->coordinate[a]);
    if (i < o->nin)
      vec_push(k->m->arena, in,
               i < s.carry && handed[i] != NO_VALUE ? handed[i] : k->r.map[o->in[i]]);
  }
  s.invariant += k->m->mesh.n;
  s.trip = s.axis.size = rounds.held, s.stages = NULL, s.streams = false;
  if (rounds.chunks > 1) s.first = rounds.chunk * rounds.held, s.of = rounds.chunks * rounds.held;
  ValueId out = rebuild_loop(k->m, k->r.to, local_body(k->l, o), s, in.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++)
    k->r.map[o->out + i] =
        i < s.carry && handed[i] != NO_VALUE ? hop(k, OP_send, o, out + i, rounds) : out + i;
}

/* ---- functions ---- */

static void local_op(Local *k, const Op *o) {
  k->loc = o->loc;
  switch (o->code) {
  case OP_iota: local_iota(k, o); return;
  case OP_rand: local_rand(k, o); return;
  case OP_rope: local_rope(k, o); return;
  case OP_gather: local_gather(k, o); return;
  case OP_scatter: local_scatter(k, o); return;
  case OP_part: local_part(k, o); return;
  case OP_keep_first: local_keep(k, o); return;
  case OP_loop: local_loop(k, o); return;
  default: break;
  }
  if (op_family(o->code) == FAMILY_COLLECTIVE) local_collective(k, o);
  else copy_op(k, o);
}

static void add_coordinates(Local *k) {
  for (uint32_t a = 0; a < k->m->mesh.n; a++)
    k->coordinate[a] = k->r.from->kind == FN_ENTRY
                           ? ir_load(k->m, k->r.to, k->l->scalar[a], k->r.from->loc)
                           : fn_arg(k->m, k->r.to, type_scalar(ELEM_i32));
}

/* A stage counts its rounds from 0; what reads the counter wants the number of the layer. */
static void count_layers(Local *k, Rounds rounds) {
  if (rounds.axis < 0) return;
  ValueId *counter = &k->r.map[k->r.from->args.at[0]];
  ValueId first = bin(k, OP_mul, k->coordinate[rounds.axis], num(k, ELEM_i32, rounds.held));
  int64_t others = (k->m->mesh.at[rounds.axis].size - 1) * rounds.held;
  if (rounds.chunks > 1) *counter = jumps(k, *counter, rounds.held, others);
  *counter = bin(k, OP_add, *counter, first);
}

/* Coordinates stand in front of argument `before` of a body: the last invariant ones. */
static Fn *local_fn(Localize *l, const Fn *f, uint32_t before, Rounds rounds) {
  Local k = {.l = l, .m = l->m};
  k.r = (Rebuild){l->m, f, fn_new(l->m, f->kind, f->name), value_map(l->m, f)};
  k.r.to->loc = f->loc;
  for (uint32_t i = 0; i <= f->args.n; i++) {
    if (i == before) add_coordinates(&k);
    if (i < f->args.n) k.r.map[f->args.at[i]] = fn_arg(l->m, k.r.to, local_type(&k, f->args.at[i]));
  }
  count_layers(&k, rounds);
  for (uint32_t i = 0; i < f->ops.n; i++) local_op(&k, &f->ops.at[i]);
  rebuild_results(&k.r);
  return k.r.to;
}

static void add_scalars(Localize *l) {
  Module *m = l->m;
  for (uint32_t a = 0; a < m->mesh.n; a++) {
    Str name = intern_printf(m->ctx->names, "mesh.%s", m->mesh.at[a].name);
    l->scalar[a] = module_add_global(m, GLOBAL_SCALAR, name, type_scalar(ELEM_i32), (Loc){0});
  }
}

void pass_localize(Module *m) {
  Localize l = {.m = m};
  if (!m->mesh.n) return;
  add_scalars(&l);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *g = m->globals.at[i];
    g->type = placement_local(m, &g->type, &g->placed);
  }
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind == FN_ENTRY) module_replace(m, f, local_fn(&l, f, 0, (Rounds){.axis = -1}));
  }
  module_collect(m);
}

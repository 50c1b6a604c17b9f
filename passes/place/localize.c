/* localize: types of one rank. Sizes become those of a rank's blocks, and placements are removed
   from the values. The rank's position only enters through offsets: no shape depends on it, so one
   program serves all ranks.

     iota, rand, rope along a cut dim    count from the block's first element
     gather of cut rows, scatter to such the index less the first row: others read 0, add nothing
     part                                gather by position
     keep_first                          0 except where the coordinate is 0, or the last one
     loop whose rounds an axis cuts      a block of the rounds, between a receive from the previous
                                         stage and a send to the next; the stage after the last is
                                         the first one, if the loop has a chunk of the layers

   The pieces of a balanced dim (placement.h) are no block: positions are computed from the piece,
   and what is joined along it, or cut from it, is reordered. Only the entries that train and
   evaluate deal out positions; `logits` has blocks, as sampling continues a text.

   Coordinates are scalars @mesh.of.AXIS, loaded by entries and passed to bodies; `clean` removes
   the unused ones. Samples of a step that is cut in time are dealt to the ranks micro-batch by
   micro-batch (Global inputs, placement_index). Globals keep their placement in addition to the
   sizes of one rank. */
#include "ir/collective.h"
#include "ir/made.h"
#include "ir/plan/rank_slice.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"
#include "localize.h"
#include <string.h>

/* Number of the rank's block of dim, i32[]; NO_VALUE if dim is not cut. */
static ValueId block(Local *local, const Placement *placement, Str dim) {
  int axes[MAX_MESH], n = mesh_order(local->m, axes);
  ValueId sum = NO_VALUE;
  for (int i = 0; i < n; i++) {
    if (placement->on[axes[i]] != dim) continue;
    ValueId c = local->coordinate[axes[i]];
    if (sum != NO_VALUE) {
      sum = bin(local, OP_mul, sum, num(local, ELEM_i32, local->m->mesh.at[axes[i]].size));
      c = bin(local, OP_add, sum, c);
    }
    sum = c;
  }
  return sum;
}

/* The rank's first element of dim; the rank has `size` elements. */
static ValueId first(Local *local, const Placement *placement, Str dim, int64_t size) {
  ValueId b = block(local, placement, dim);
  return b == NO_VALUE ? b : bin(local, OP_mul, b, num(local, ELEM_i32, size));
}

/* ---- balanced dims ---- */

typedef struct DimPieces { /* of a dim, as a rank has them */
  int axis;                /* -1: it has one block */
  int64_t ranks, pieces;
  int64_t size; /* of a piece */
} DimPieces;

/* `all`: elements that a rank has where no other axis cuts them. */
static DimPieces pieces_of(const Local *local, Str dim, int64_t all) {
  Dealt dealt = local->deals ? dim_dealt(local->m, dim) : (Dealt){-1, 0};
  if (dealt.axis < 0) return (DimPieces){.axis = -1};
  must(all % dealt.pieces == 0, "localize: %lld elements of %s in %lld pieces", (long long)all, dim,
       (long long)dealt.pieces);
  return (DimPieces){dealt.axis, local->m->mesh.at[dealt.axis].size, dealt.pieces,
                     all / dealt.pieces};
}

static ValueId quotient(Local *local, ValueId i, int64_t by) {
  ValueId v = bin(local, OP_div, i, num(local, ELEM_i32, by));
  attr_set_int(local->m, &vec_last(local->r.to->ops).attrs, ATTR_dealt, 1);
  return v;
}

/* 1 for an odd number */
static ValueId odd(Local *local, ValueId i, int64_t most) {
  if (most <= 2) return i; /* 0 or 1 */
  return bin(local, OP_sub, i, bin(local, OP_mul, quotient(local, i, 2), num(local, ELEM_i32, 2)));
}

/* rank, or ranks - 1 - rank in an odd turn */
static ValueId turned(Local *local, ValueId rank, ValueId is_odd, int64_t ranks) {
  ValueId twice = bin(local, OP_mul, is_odd, num(local, ELEM_i32, 2)),
          last = bin(local, OP_mul, is_odd, num(local, ELEM_i32, ranks - 1)),
          by = bin(local, OP_sub, last, bin(local, OP_mul, twice, rank));
  return bin(local, OP_add, by, rank);
}

/* Position of element i of a rank: i + turn * size * (ranks - 1) + turned rank * size. Intervals
   know it exactly within a piece. */
static ValueId piece_position(Local *local, const DimPieces *pieces, ValueId i) {
  ValueId turn = quotient(local, i, pieces->size), rank = local->coordinate[pieces->axis];
  rank = turned(local, rank, odd(local, turn, pieces->pieces), pieces->ranks);
  ValueId before =
      bin(local, OP_mul, turn, num(local, ELEM_i32, pieces->size * (pieces->ranks - 1)));
  before = bin(local, OP_add, before, bin(local, OP_mul, rank, num(local, ELEM_i32, pieces->size)));
  return bin(local, OP_add, i, before);
}

/* All elements, from what the ranks have, one after the other (`joined`), or the reverse. */
static ValueId in_pieces(Local *local, ValueId v, Str dim, const DimPieces *pieces, bool joined) {
  int64_t n = pieces->ranks, held = pieces->pieces * pieces->size;
  ValueId i = ir_iota(local->m, local->r.to, (Axis){dim, n * held}, local->loc);
  ValueId piece = quotient(local, i, pieces->size);
  int64_t outer = joined ? n : pieces->pieces;
  ValueId high = quotient(local, piece, outer); /* the turn, or the rank */
  ValueId low = bin(local, OP_sub, piece, bin(local, OP_mul, high, num(local, ELEM_i32, outer)));
  ValueId turn = joined ? high : low,
          rank = turned(local, joined ? low : high, odd(local, turn, pieces->pieces), n);
  ValueId at = joined ? bin(local, OP_mul, rank, num(local, ELEM_i32, pieces->pieces))
                      : bin(local, OP_mul, turn, num(local, ELEM_i32, n));
  at = bin(local, OP_add, at, joined ? turn : rank);
  ValueId moved = bin(local, OP_sub, at, piece);
  moved = bin(local, OP_mul, moved, num(local, ELEM_i32, pieces->size));
  return ir_gather(local->m, local->r.to, v, bin(local, OP_add, i, moved), dim, local->loc);
}

/* ---- positions ---- */

static bool is_cut_in_pieces(const Local *local, const Placement *placement, Str dim) {
  Dealt dealt = dim_dealt(local->m, dim);
  return local->deals && dealt.axis >= 0 && placement->on[dealt.axis] == dim;
}

/* Samples of a rank in one part of a step, if dim is dealt to the ranks part by part, layers in a
   chunk, if they are so; else 0. */
static int64_t dealt_part(const Local *local, const Placement *placement, Str dim, int64_t size) {
  int64_t chunks = stage_chunks(local->m, placement, dim);
  if (chunks > 1) return size / chunks;
  int64_t part = placement_part(local->m, placement, dim);
  return part && part < size && placement_ways(local->m, placement, dim) > 1 ? part : 0;
}

/* i + (i / step) * jump */
static ValueId jumps(Local *local, ValueId i, int64_t step, int64_t jump) {
  ValueId turn = bin(local, OP_div, i, num(local, ELEM_i32, step));
  return bin(local, OP_add, i, bin(local, OP_mul, turn, num(local, ELEM_i32, jump)));
}

/* Positions along a dim with `size` elements on each rank, for the cuts `placement`: i32[dim]. */
static ValueId positions(Local *local, const Placement *placement, Str dim, int64_t size,
                         int64_t part) {
  ValueId i = ir_iota(local->m, local->r.to, (Axis){dim, size}, local->loc);
  ValueId at = first(local, placement, dim, part ? part : size);
  if (at == NO_VALUE) return i;
  if (part) i = jumps(local, i, part, part * (placement_ways(local->m, placement, dim) - 1));
  return bin(local, OP_add, i, at);
}

ValueId local_positions(Local *local, const Placement *placement, Str dim, int64_t size) {
  if (is_cut_in_pieces(local, placement, dim)) { /* its axis cuts coarsest */
    Placement others = *placement;
    others.on[dim_dealt(local->m, dim).axis] = NULL;
    DimPieces pieces = pieces_of(local, dim, size * placement_ways(local->m, &others, dim));
    return piece_position(local, &pieces, positions(local, &others, dim, size, 0));
  }
  return positions(local, placement, dim, size, dealt_part(local, placement, dim, size));
}

static void finish(Local *local, const Op *o, const Op *made) {
  for (uint32_t i = 0; i < o->nout; i++) {
    Value *v = &local->r.to->values.at[made->out + i];
    v->type = local_type(local, o->out + i), v->placed = (Placement){0};
  }
}

static void copy_op(Local *local, const Op *o) { finish(local, o, rebuild_op(&local->r, o)); }

static void copy_with(Local *local, const Op *o, uint32_t operand, ValueId v) {
  Op *made = rebuild_op(&local->r, o);
  made->in[operand] = v;
  finish(local, o, made);
}

/* ---- ops that know where they are ---- */

static void local_iota(Local *local, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(local, o->out);
  local->r.map[o->out] = local_positions(local, placed(local, o->out), dim, type_size(&t, dim));
}

/* Dims that are dealt have no first element: their numbers are made for all ranks, and taken. */
static int dealt_dims(const Local *local, const Op *o, const Type *t, Str *out) {
  const Placement *at = placed(local, o->out);
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (is_cut_in_pieces(local, at, t->axis[i].dim) ||
        dealt_part(local, at, t->axis[i].dim, t->axis[i].size))
      out[n++] = t->axis[i].dim;
  return n;
}

/* base + sum of first element * stride, where that of each of `dealt` is `at` */
static ValueId rand_base(Local *local, const Op *o, const Type *t, const Str *dealt, int n,
                         ValueId dealt_at) {
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  ValueId base = local->r.map[o->in[2]];
  Elem e = value_type(local->r.to, base)->elem;
  for (int i = 0; i < o->group[0].nfrom; i++) {
    Str dim = o->group[0].from[i];
    ValueId at = names_have(dealt, n, dim)
                     ? dealt_at
                     : first(local, placed(local, o->out), dim, type_size(t, dim));
    if (at == NO_VALUE) continue;
    at = bin(local, OP_mul, ir_cast(local->m, local->r.to, at, e, local->loc),
             num(local, e, strides->list[i]));
    base = bin(local, OP_add, base, at);
  }
  return base;
}

static Str chunked_dim(const Local *local, const Op *o) {
  const Type *t = value_type(local->r.from, o->out);
  for (int i = 0; i < t->rank; i++)
    if (stage_chunks(local->m, placed(local, o->out), t->axis[i].dim) > 1) return t->axis[i].dim;
  return NULL;
}

/* Chunk by chunk, end to end. */
static void rand_chunks(Local *local, const Op *o, Str dim) {
  Type t = local_type(local, o->out);
  int axis = type_find(&t, dim);
  int64_t n = stage_chunks(local->m, placed(local, o->out), dim), size = t.axis[axis].size / n;
  Str name[MOST_CHUNKS];
  ValueId in[MOST_CHUNKS];
  for (int64_t j = 0; j < n; j++) {
    ValueId before = num(local, ELEM_i32,
                         j * size * placement_ways(local->m, placed(local, o->out), dim)),
            at = bin(local, OP_add, first(local, placed(local, o->out), dim, size), before);
    copy_with(local, o, 2, rand_base(local, o, &t, &dim, 1, at));
    in[j] = local->r.map[o->out];
    local->r.to->values.at[in[j]].type.axis[axis].size = size;
    name[j] = name_made(local->m, "%s'%c", dim, (char)('a' + j));
    in[j] = ir_rename(local->m, local->r.to, in[j], dim, name[j], local->loc);
  }
  Group map = group_map((int)n, name, 1, &dim);
  local->r.map[o->out] =
      emit_typed(local->m, local->r.to, OP_concat, (uint32_t)n, in, &map, t, local->loc);
}

static void local_rand(Local *local, const Op *o) {
  Type t = local_type(local, o->out);
  Str chunked = chunked_dim(local, o), dealt[MAX_RANK];
  if (chunked) {
    rand_chunks(local, o, chunked);
    return;
  }
  int n = dealt_dims(local, o, &t, dealt);
  copy_with(local, o, 2, rand_base(local, o, &t, dealt, n, NO_VALUE));
  ValueId v = local->r.map[o->out];
  for (int i = 0; i < n; i++)
    local->r.to->values.at[v].type.axis[type_find(&t, dealt[i])].size =
        type_size(value_type(local->r.from, o->out), dealt[i]);
  for (int i = 0; i < n; i++) {
    ValueId at = local_positions(local, placed(local, o->out), dealt[i], type_size(&t, dealt[i]));
    local->r.map[o->out] =
        ir_gather(local->m, local->r.to, local->r.map[o->out], at, dealt[i], local->loc);
  }
}

static void local_rope(Local *local, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(local, o->out);
  if (o->nin > 1 || block(local, placed(local, o->out), dim) == NO_VALUE) {
    copy_op(local, o);
    return;
  }
  ValueId in[] = {local->r.map[o->in[0]],
                  local_positions(local, placed(local, o->out), dim, type_size(&t, dim))};
  Op *made = rebuild_op(&local->r, o);
  made->nin = 2, made->in = ARENA_ARRAY(local->m->arena, ValueId, 2);
  made->in[0] = in[0], made->in[1] = in[1];
  finish(local, o, made);
}

/* Index `operand` less the first row that the rank holds of dim of value `rows`. */
static void local_rows(Local *local, const Op *o, ValueId rows, Str dim) {
  Type t = local_type(local, rows);
  ValueId at = first(local, placed(local, rows), dim, type_size(&t, dim)),
          index = local->r.map[o->in[1]];
  must(!is_cut_in_pieces(local, placed(local, rows), dim), "localize: rows of %s in pieces", dim);
  if (at == NO_VALUE) {
    copy_op(local, o);
    return;
  }
  at = ir_cast(local->m, local->r.to, at, value_type(local->r.to, index)->elem, local->loc);
  copy_with(local, o, 1, bin(local, OP_sub, index, at));
}

static void local_gather(Local *local, const Op *o) {
  local_rows(local, o, o->in[0], o->group[0].from[0]);
}

static void local_scatter(Local *local, const Op *o) {
  local_rows(local, o, o->out, o->group[0].to[0]);
}

static int axis_of(const Local *local, const Op *o) {
  return mesh_find(local->m, attr_str(&o->attrs, ATTR_axis, NULL));
}

/* The operand's blocks are cut again: positions count from their begin. */
static void local_part(Local *local, const Op *o) {
  Str dim = o->group[0].from[0];
  Type t = local_type(local, o->out);
  int64_t size = type_size(&t, dim);
  Placement only = {0};
  only.on[axis_of(local, o)] = dim;
  ValueId at =
      is_cut_in_pieces(local, &only, dim)
          ? local_positions(local, &only, dim, size)
          : positions(local, &only, dim, size, dealt_part(local, placed(local, o->out), dim, size));
  local->r.map[o->out] =
      ir_gather(local->m, local->r.to, local->r.map[o->in[0]], at, dim, local->loc);
}

static void local_keep(Local *local, const Op *o) {
  ValueId a = local->r.map[o->in[0]];
  local->r.map[o->out] = a;
  if (value_is_zero(local->r.to, a)) return;
  int axis = axis_of(local, o);
  ValueId none = emit_full(local->m, local->r.to, *value_type(local->r.to, a), 0, local->loc);
  bool last = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  ValueId kept = num(local, ELEM_i32, last ? local->m->mesh.at[axis].size - 1 : 0);
  ValueId is_kept = bin(local, OP_eq, local->coordinate[axis], kept);
  local->r.map[o->out] = ir_where(local->m, local->r.to, is_kept, a, none, local->loc);
}

/* Blocks of a dealt dim, end to end, hold part m of rank r at (r, m); in order it is at (m, r). `n`
   ranks, parts of `part`, `size` elements on one of them: the permutation from one to the other. */
static ValueId reordered(Local *local, ValueId v, Str dim, int64_t n, int64_t part, int64_t size,
                         bool joined) {
  ValueId i = ir_iota(local->m, local->r.to, (Axis){dim, n * size}, local->loc);
  int64_t outer = joined ? n : size / part, step = joined ? size : part * n;
  must(part > 0 && size % part == 0, "localize: %lld elements of %s in parts of %lld",
       (long long)size, dim, (long long)part);
  ValueId piece =
      bin(local, OP_div, i, num(local, ELEM_i32, part)); /* m * n + r, or r * parts + m */
  ValueId high = bin(local, OP_div, piece, num(local, ELEM_i32, outer)); /* m, or r */
  ValueId low = bin(local, OP_sub, piece, bin(local, OP_mul, high, num(local, ELEM_i32, outer)));
  ValueId rest = bin(local, OP_sub, i, bin(local, OP_mul, piece, num(local, ELEM_i32, part)));
  ValueId at = bin(local, OP_mul, low, num(local, ELEM_i32, step));
  at = bin(local, OP_add, at, bin(local, OP_mul, high, num(local, ELEM_i32, part)));
  return ir_gather(local->m, local->r.to, v, bin(local, OP_add, at, rest), dim, local->loc);
}

/* The pieces of a dim that a collective over its axis joins or cuts. */
static DimPieces pieces_over(const Local *local, const Op *o, Str dim, int64_t size) {
  int axis = axis_of(local, o);
  if (!dim || !local->deals || dim_dealt(local->m, dim).axis != axis)
    return (DimPieces){.axis = -1};
  return pieces_of(local, dim, size);
}

static void local_collective(Local *local, const Op *o) {
  must(axis_of(local, o) >= 0, "localize: the mesh has no axis of %s", op_name(o->code));
  int64_t ways = local->m->mesh.at[axis_of(local, o)].size;
  Type in = local_type(local, o->in[0]), out = local_type(local, o->out);
  Str joined = collective_joins(o), cut = collective_cuts(o);
  int64_t jsize = joined ? type_size(&in, joined) : 0, csize = cut ? type_size(&out, cut) : 0;
  int64_t jpart = joined ? dealt_part(local, placed(local, o->in[0]), joined, jsize) : 0;
  int64_t cpart = cut ? dealt_part(local, placed(local, o->out), cut, csize) : 0;
  ValueId a = local->r.map[o->in[0]];
  DimPieces to_join = pieces_over(local, o, joined, jsize),
            to_cut = pieces_over(local, o, cut, csize);
  if (cpart) a = reordered(local, a, cut, ways, cpart, csize, false);
  if (to_cut.axis >= 0) a = in_pieces(local, a, cut, &to_cut, false);
  Op *made = rebuild_op(&local->r, o);
  made->in[0] = a;
  attr_set_int(local->m, &made->attrs, ATTR_ranks, ways);
  finish(local, o, made);
  if (jpart)
    local->r.map[o->out] = reordered(local, local->r.map[o->out], joined, ways, jpart, jsize, true);
  if (to_join.axis >= 0)
    local->r.map[o->out] = in_pieces(local, local->r.map[o->out], joined, &to_join, true);
}

/* ---- loops ---- */

typedef struct Rounds { /* of a loop whose rounds axis `axis` cuts; -1: none does */
  int axis;
  int64_t held;          /* by a rank */
  int64_t chunk, chunks; /* of the layers */
} Rounds;

static Rounds rounds_of(const Module *m, const Op *o) {
  LoopShape shape = loop_shape(o);
  Rounds rounds = {.axis = shape.stages ? mesh_find(m, shape.stages) : -1, .held = shape.trip};
  must(!shape.stages || rounds.axis >= 0, "localize: the mesh has no axis %s for stages",
       shape.stages);
  must(rounds.axis < 0 || shape.trip % m->mesh.at[rounds.axis].size == 0,
       "localize: %lld rounds over %lld stages", (long long)shape.trip,
       (long long)m->mesh.at[rounds.axis].size);
  if (rounds.axis >= 0) rounds.held /= m->mesh.at[rounds.axis].size;
  rounds.chunks = shape.stages && shape.of ? shape.of / shape.trip : 1,
  rounds.chunk = rounds.chunks > 1 ? shape.first / shape.trip : 0;
  return rounds;
}

static Fn *local_fn(Localize *localize, const Fn *f, uint32_t before, Rounds rounds, bool deals);

static Fn *local_body(const Local *local, const Op *o) {
  Localize *localize = local->l;
  LoopShape shape = loop_shape(o);
  for (uint32_t i = 0; i < localize->done.n; i++)
    if (localize->done.at[i].from == o->callee && localize->done.at[i].deals == local->deals)
      return localize->done.at[i].to;
  Fn *to = local_fn(localize, o->callee, 1 + shape.carry + shape.invariant,
                    rounds_of(localize->m, o), local->deals);
  vec_push(localize->m->arena, localize->done, (Done){o->callee, local->deals, to});
  return to;
}

/* To or from the neighbour along the axis of the stages. */
static ValueId hop(Local *local, OpCode c, const Op *loop, ValueId v, Rounds rounds) {
  const MeshAxis *axis = &local->m->mesh.at[rounds.axis];
  bool back = attr_int(&loop->attrs, ATTR_reverse, 0) != 0;
  int64_t end = back == (c == OP_receive) ? rounds.chunks - 1 : 0;
  ValueId r =
      emit_typed(local->m, local->r.to, c, 1, &v, NULL, *value_type(local->r.to, v), local->loc);
  AttrList *list = &vec_last(local->r.to->ops).attrs;
  attr_set_str(local->m, list, ATTR_axis, axis->name);
  attr_set_int(local->m, list, ATTR_ranks, axis->size);
  if (back) attr_set_int(local->m, list, ATTR_reverse, 1);
  if (rounds.chunk != end) attr_set_int(local->m, list, ATTR_cyclic, 1);
  return r;
}

/* Is it carried from stage to stage? A sum over rounds is not: each stage has its own term of
   it. */
static bool is_handed_on(const Local *local, const Op *o, uint32_t i, int axis) {
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  return axis >= 0 && i < carry && !placed(local, o->in[i])->on[axis];
}

static void local_loop(Local *local, const Op *o) {
  LoopShape shape = loop_shape(o);
  ValueList in = {0};
  Rounds rounds = rounds_of(local->m, o);
  ValueId *handed = ARENA_ARRAY(local->m->arena, ValueId, shape.carry + 1);
  for (uint32_t i = 0; i < shape.carry; i++)
    handed[i] = is_handed_on(local, o, i, rounds.axis)
                    ? hop(local, OP_receive, o, local->r.map[o->in[i]], rounds)
                    : NO_VALUE;
  for (uint32_t i = 0; i <= o->nin; i++) {
    for (uint32_t a = 0; i == shape.carry + shape.invariant && a < local->m->mesh.n; a++)
      vec_push(local->m->arena, in, local->coordinate[a]);
    if (i < o->nin)
      vec_push(local->m->arena, in,
               i < shape.carry && handed[i] != NO_VALUE ? handed[i] : local->r.map[o->in[i]]);
  }
  shape.invariant += local->m->mesh.n;
  shape.trip = shape.axis.size = rounds.held, shape.stages = NULL, shape.streams = false;
  if (rounds.chunks > 1)
    shape.first = rounds.chunk * rounds.held, shape.of = rounds.chunks * rounds.held;
  ValueId out =
      rebuild_loop(local->m, local->r.to, local_body(local, o), shape, in.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++)
    local->r.map[o->out + i] = i < shape.carry && handed[i] != NO_VALUE
                                   ? hop(local, OP_send, o, out + i, rounds)
                                   : out + i;
}

/* ---- functions ---- */

static void local_op(Local *local, const Op *o) {
  local->loc = o->loc;
  switch (o->code) {
  case OP_iota: local_iota(local, o); return;
  case OP_rand: local_rand(local, o); return;
  case OP_rope: local_rope(local, o); return;
  case OP_gather: local_gather(local, o); return;
  case OP_scatter: local_scatter(local, o); return;
  case OP_part: local_part(local, o); return;
  case OP_keep_first: local_keep(local, o); return;
  case OP_loop: local_loop(local, o); return;
  default: break;
  }
  int ring =
      op_family(o->code) == FAMILY_ATTENTION ? ring_axis(local->m, o, placed(local, o->in[1])) : -1;
  if (ring >= 0) {
    local_ring(local, o, ring);
    return;
  }
  if (op_family(o->code) == FAMILY_COLLECTIVE) local_collective(local, o);
  else copy_op(local, o);
}

static void add_coordinates(Local *local) {
  for (uint32_t a = 0; a < local->m->mesh.n; a++)
    local->coordinate[a] =
        local->r.from->kind == FN_ENTRY
            ? ir_load(local->m, local->r.to, local->l->scalar[a], local->r.from->loc)
            : fn_arg(local->m, local->r.to, type_scalar(ELEM_i32));
}

/* A stage counts its rounds from 0; ops that read the counter need the number of the layer. */
static void count_layers(Local *local, Rounds rounds) {
  if (rounds.axis < 0) return;
  ValueId *counter = &local->r.map[local->r.from->args.at[0]];
  ValueId first =
      bin(local, OP_mul, local->coordinate[rounds.axis], num(local, ELEM_i32, rounds.held));
  int64_t others = (local->m->mesh.at[rounds.axis].size - 1) * rounds.held;
  if (rounds.chunks > 1) *counter = jumps(local, *counter, rounds.held, others);
  *counter = bin(local, OP_add, *counter, first);
}

/* Coordinates are inserted before argument `before` of a body: they are the last invariant ones. */
static Fn *local_fn(Localize *localize, const Fn *f, uint32_t before, Rounds rounds, bool deals) {
  Local local = {.l = localize, .m = localize->m, .deals = deals};
  local.r = (Rebuild){localize->m, f, fn_like(localize->m, f), value_map(localize->m, f)};
  for (uint32_t i = 0; i <= f->args.n; i++) {
    if (i == before) add_coordinates(&local);
    if (i < f->args.n)
      local.r.map[f->args.at[i]] =
          fn_arg(localize->m, local.r.to, local_type(&local, f->args.at[i]));
  }
  count_layers(&local, rounds);
  for (uint32_t i = 0; i < f->ops.n; i++) local_op(&local, &f->ops.at[i]);
  rebuild_results(&local.r);
  return local.r.to;
}

static void add_scalars(Localize *localize) {
  Module *m = localize->m;
  for (uint32_t a = 0; a < m->mesh.n; a++) {
    Str name = made_coordinate(m, m->mesh.at[a].name);
    localize->scalar[a] =
        module_add_global(m, GLOBAL_SCALAR, name, type_scalar(ELEM_i32), (Loc){0});
  }
}

bool entry_deals(const Fn *f) { return f->kind == FN_ENTRY && strcmp(f->name, "logits") != 0; }

void pass_localize(Module *m) {
  Localize localize = {.m = m};
  if (!m->mesh.n) return;
  add_scalars(&localize);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    global->type = placement_local(m, &global->type, &global->placed);
  }
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind != FN_ENTRY) continue;
    module_replace(m, f, local_fn(&localize, f, 0, (Rounds){.axis = -1}, entry_deals(f)));
  }
  module_collect(m);
}

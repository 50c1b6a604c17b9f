/* ring: attention whose keys and values travel from rank to rank (`place Seq -> cp ring`).

   Pass `collect` leaves such attention with its keys cut over the axis, like its queries. Each rank
   begins with its own block of keys; in every further round it gets (op `rotate`) the block that
   the previous rank has just used. A round is one attention over one block, so that kernels and
   their lists are those of any attention:

     y_j, l_j = attention(q, k_j, v_j)          k_j+1, v_j+1 = rotate k_j, v_j     (concurrent)
     l' = log(e^l + e^l_j)    y = e^(l - l') y + e^(l_j - l') y_j       in f32, round by round

   Backward, attention_grad with the y and l of all keys gives the exact terms of one block. Terms
   of dq are added up on the rank. The sums of dk and dv travel with their block: they begin on the
   rank after its owner, and the last rank sends them home, where the owner's term is added. So a
   rank holds two blocks of keys, and sends as many bytes as a gather of keys and
   values, forward and backward, and a reduce-scatter of their gradients: n - 1 blocks of each. A
   reduce-scatter at the end would keep the gradients of all blocks until then.

   The order of all sums follows from the coordinates alone. Rounds in which the mask admits nothing
   on any rank, by positions, are left out with their messages: a window of one block takes two
   rounds. In each round the mask is the op's own, at the positions of the block: its ops are
   written again, and what data decides is read at these positions. */
#include "ir/attention_operands.h"
#include "ir/mask/mask_range.h"
#include "localize.h"
#include <math.h>

enum { BLOCKS_ASKED = 1 << 20, ATTENTION_FURTHER = 4 };

typedef struct KeyRing {
  Local *local;
  const Op *o;
  int axis;
  int64_t ranks;
  Str query, key;
  ValueId mask;                    /* of o; NO_VALUE: none */
  int64_t rounds, *before;         /* by round: ranks from the block's owner to its reader */
  ValueId *map, source, positions; /* values at a block, its owner, its positions */
} KeyRing;

int ring_axis(const Module *m, const Op *o, const Placement *key) {
  for (int a = 0; a < (int)m->mesh.n; a++)
    if (key->on[a] == o->group[0].to[0]) return a;
  return -1;
}

/* ---- which rounds there are ---- */

/* Piece `turn` of a rank, in the order of positions. */
static int64_t piece_of(const KeyRing *ring, int64_t rank, int64_t turn) {
  return turn * ring->ranks + (turn % 2 ? ring->ranks - 1 - rank : rank);
}

static int64_t whole_size(const KeyRing *ring, uint32_t operand, Str dim) {
  return type_size(value_type(ring->local->r.from, ring->o->in[operand]), dim);
}

/* Does the mask admit a score of the queries of one rank and the keys of another? */
static bool some_score(const KeyRing *ring, MaskQuestion *ask, int64_t pieces, int64_t queries,
                       int64_t keys) {
  int64_t high = whole_size(ring, 0, ring->query) / ring->ranks / pieces,
          wide = whole_size(ring, 1, ring->key) / ring->ranks / pieces;
  for (int64_t i = 0; i < pieces * pieces; i++) {
    int64_t q = piece_of(ring, queries, i / pieces) * high,
            k = piece_of(ring, keys, i % pieces) * wide;
    mask_range(ask, ring->query, q, q + high), mask_range(ask, ring->key, k, k + wide);
    if (mask_find(ask, ring->mask, false).some) return true;
  }
  return false;
}

static bool is_needed(const KeyRing *ring, MaskQuestion *ask, int64_t pieces, int64_t before) {
  for (int64_t rank = 0; rank < ring->ranks; rank++)
    if (some_score(ring, ask, pieces, rank, (rank + ring->ranks - before) % ring->ranks))
      return true;
  return false;
}

static void find_rounds(KeyRing *ring) {
  const Local *local = ring->local;
  Arena *arena = arena_new();
  MaskQuestion ask = mask_question(arena, local->r.from);
  Dealt dealt = local->deals ? dim_dealt(local->m, ring->query) : (Dealt){-1, 0};
  int64_t pieces = dealt.axis < 0 ? 1 : dealt.pieces, n = ring->ranks;
  bool all = ring->mask == NO_VALUE || n * n > BLOCKS_ASKED / (pieces * pieces);
  ring->before = ARENA_ARRAY(local->m->arena, int64_t, n);
  ring->rounds = 1;
  for (int64_t before = 1; before < n; before++)
    if (all || is_needed(ring, &ask, pieces, before)) ring->before[ring->rounds++] = before;
  arena_free(arena);
}

/* ---- the mask at a block ---- */

static ValueId block_positions(KeyRing *ring) {
  Local *local = ring->local;
  Placement cut = {0};
  cut.on[ring->axis] = ring->key;
  if (ring->positions != NO_VALUE) return ring->positions;
  ValueId own = local->coordinate[ring->axis];
  local->coordinate[ring->axis] = ring->source;
  ring->positions =
      local_positions(local, &cut, ring->key, whole_size(ring, 1, ring->key) / ring->ranks);
  local->coordinate[ring->axis] = own;
  return ring->positions;
}

static bool moves_no_keys(const KeyRing *ring, const Op *o, ValueId v) {
  if (op_family(o->code) == FAMILY_ELEM) return true;
  const Type *t = value_type(ring->local->r.from, v);
  return o->code == OP_expand && type_find(t, ring->key) >= 0;
}

static ValueId at_block(KeyRing *ring, ValueId v) {
  Local *local = ring->local;
  const Fn *from = local->r.from;
  const Op *o = value_def(from, v);
  Type t = local_type(local, v);
  int key = type_find(&t, ring->key);
  if (key < 0) return local->r.map[v];
  if (ring->map[v] != NO_VALUE) return ring->map[v];
  if (o && o->code == OP_iota) return ring->map[v] = block_positions(ring);
  if (!o || !moves_no_keys(ring, o, v))
    return ring->map[v] = ir_gather(local->m, local->r.to, local->r.map[v], block_positions(ring),
                                    ring->key, local->loc);
  for (uint32_t i = 0; i < o->nin; i++) ring->map[o->in[i]] = at_block(ring, o->in[i]);
  ValueId made = fn_clone_op(local->m, local->r.to, from, o, ring->map)->out;
  Value *value = &local->r.to->values.at[made];
  t.axis[key].size /= ring->ranks;
  value->type = t, value->placed = (Placement){0};
  return ring->map[v] = made;
}

/* (coordinate - before) mod ranks */
static ValueId owner(KeyRing *ring, int64_t before) {
  Local *local = ring->local;
  ValueId own = local->coordinate[ring->axis];
  if (!before) return own;
  ValueId n = num(local, ELEM_i32, ring->ranks),
          sum = bin(local, OP_add, own, num(local, ELEM_i32, ring->ranks - before));
  return bin(local, OP_sub, sum, bin(local, OP_mul, bin(local, OP_div, sum, n), n));
}

static void begin_block(KeyRing *ring, int64_t before) {
  const Fn *from = ring->local->r.from;
  ring->map = ARENA_ARRAY(ring->local->m->arena, ValueId, from->values.n + 1);
  for (uint32_t i = 0; i < from->values.n; i++) ring->map[i] = NO_VALUE;
  ring->source = owner(ring, before), ring->positions = NO_VALUE;
}

/* ---- rounds ---- */

typedef struct KeyBlock {
  ValueId k, v;
} KeyBlock;

static ValueId rotate(KeyRing *ring, ValueId v, int64_t by) {
  Local *local = ring->local;
  const MeshAxis *axis = &local->m->mesh.at[ring->axis];
  ValueId r = emit_typed(local->m, local->r.to, OP_rotate, 1, &v, NULL, *value_type(local->r.to, v),
                         local->loc);
  AttrList *list = &vec_last(local->r.to->ops).attrs;
  attr_set_int(local->m, list, ATTR_by, by);
  attr_set_str(local->m, list, ATTR_axis, axis->name);
  attr_set_int(local->m, list, ATTR_ranks, axis->size);
  return r;
}

static KeyBlock rotate_both(KeyRing *ring, KeyBlock block, int64_t by) {
  ValueId k = rotate(ring, block.k, by);
  return (KeyBlock){k, block.v == block.k ? k : rotate(ring, block.v, by)};
}

/* The op over one block; its first result. */
static ValueId of_block(KeyRing *ring, KeyBlock block, int64_t before) {
  Local *local = ring->local;
  ValueId further[ATTENTION_FURTHER];
  uint32_t fixed = attention_fixed(ring->o);
  begin_block(ring, before);
  for (uint32_t i = fixed; i < ring->o->nin; i++)
    further[i - fixed] = at_block(ring, ring->o->in[i]);
  Op *made = rebuild_op(&local->r, ring->o);
  made->in[1] = block.k, made->in[2] = block.v;
  for (uint32_t i = fixed; i < ring->o->nin; i++) made->in[i] = further[i - fixed];
  for (uint32_t i = 0; i < ring->o->nout; i++) {
    Value *v = &local->r.to->values.at[made->out + i];
    v->type = local_type(local, ring->o->out + i), v->placed = (Placement){0};
  }
  return made->out;
}

static ValueId wide(const KeyRing *ring, ValueId v) {
  const Fn *to = ring->local->r.to;
  Elem e = value_type(to, v)->elem == ELEM_f64 ? ELEM_f64 : ELEM_f32;
  return ir_cast(ring->local->m, ring->local->r.to, v, e, ring->local->loc);
}

/* The sum of a and b in f32, in the type of b; a NO_VALUE: b. */
static ValueId added(KeyRing *ring, ValueId a, ValueId b) {
  Local *local = ring->local;
  if (a == NO_VALUE) return b;
  Elem e = value_type(local->r.to, b)->elem;
  ValueId sum = bin(local, OP_add, wide(ring, a), wide(ring, b));
  return ir_cast(local->m, local->r.to, sum, e, local->loc);
}

/* A round ends with its result in memory, so that no terms of earlier rounds are kept. */
static ValueId in_memory(const KeyRing *ring, ValueId v, bool last) {
  const Local *local = ring->local;
  return last ? v : ir_unary(local->m, local->r.to, OP_copy, v, local->loc);
}

/* ---- forward ---- */

/* e^(l - joined) y; a row without keys has l -inf and adds 0. */
static ValueId scaled(KeyRing *ring, ValueId y, ValueId l, ValueId joined) {
  Local *local = ring->local;
  Module *m = local->m;
  Fn *to = local->r.to;
  y = wide(ring, y);
  Elem e = value_type(to, l)->elem;
  ValueId least = emit_full(m, to, *value_type(to, l), -INFINITY, local->loc),
          none = emit_full(m, to, *value_type(to, l), 0, local->loc);
  ValueId share = ir_unary(m, to, OP_exp, bin(local, OP_sub, l, joined), local->loc);
  share = ir_where(m, to, bin(local, OP_eq, l, least), none, share, local->loc);
  must(e == ELEM_f32, "localize: a log-sum-exp in %s", elem_name(e));
  share = ir_cast(m, to, share, value_type(to, y)->elem, local->loc);
  return bin(local, OP_mul, y, emit_spread(m, to, share, *value_type(to, y), local->loc));
}

static void forward(KeyRing *ring, KeyBlock block) {
  Local *local = ring->local;
  ValueId y = NO_VALUE, l = NO_VALUE;
  for (int64_t i = 0; i < ring->rounds; i++) {
    bool last = i + 1 == ring->rounds;
    KeyBlock next = block;
    if (!last) next = rotate_both(ring, block, ring->before[i + 1] - ring->before[i]);
    ValueId part = of_block(ring, block, ring->before[i]), of_part = part + 1;
    if (!i) {
      y = part, l = of_part;
    } else {
      ValueId joined = bin(local, OP_logaddexp, l, of_part);
      joined = in_memory(ring, joined, last);
      y = bin(local, OP_add, scaled(ring, y, l, joined), scaled(ring, part, of_part, joined));
      y = in_memory(ring, y, last), l = joined;
    }
    block = next;
  }
  Elem e = value_type(local->r.from, ring->o->out)->elem;
  local->r.map[ring->o->out] = ir_cast(local->m, local->r.to, y, e, local->loc);
  local->r.map[ring->o->out + 1] = l;
}

/* ---- backward ---- */

/* The terms of a round after the first, added to the sums that travel with its block. */
static KeyBlock travelling(KeyRing *ring, KeyBlock sum, ValueId terms, int64_t by) {
  if (sum.k == NO_VALUE) sum = (KeyBlock){terms + 1, terms + 2};
  else
    sum = (KeyBlock){in_memory(ring, added(ring, sum.k, terms + 1), false),
                     in_memory(ring, added(ring, sum.v, terms + 2), false)};
  return rotate_both(ring, sum, by);
}

/* The own block comes last, while the sums of its gradients come home. */
static void backward(KeyRing *ring, KeyBlock own) {
  Local *local = ring->local;
  KeyBlock sum = {NO_VALUE, NO_VALUE}, block = own;
  ValueId dq = NO_VALUE;
  if (ring->rounds > 1) block = rotate_both(ring, own, ring->before[1]);
  for (int64_t i = 1; i < ring->rounds; i++) {
    bool last = i + 1 == ring->rounds;
    int64_t by = (last ? ring->ranks : ring->before[i + 1]) - ring->before[i];
    KeyBlock next = last ? own : rotate_both(ring, block, by);
    ValueId terms = of_block(ring, block, ring->before[i]), term = wide(ring, terms);
    dq = dq == NO_VALUE ? term : in_memory(ring, bin(local, OP_add, dq, term), false);
    sum = travelling(ring, sum, terms, by); /* the last time home */
    block = next;
  }
  ValueId terms = of_block(ring, own, 0);
  Elem e = value_type(local->r.from, ring->o->out)->elem;
  ValueId *map = local->r.map, first = ring->o->out, term = wide(ring, terms);
  if (dq != NO_VALUE) term = bin(local, OP_add, dq, term);
  map[first] = ir_cast(local->m, local->r.to, term, e, local->loc);
  map[first + 1] = added(ring, sum.k, terms + 1), map[first + 2] = added(ring, sum.v, terms + 2);
}

void local_ring(Local *local, const Op *o, int axis) {
  KeyRing ring = {.local = local,
                  .o = o,
                  .axis = axis,
                  .ranks = local->m->mesh.at[axis].size,
                  .query = o->group[0].from[0],
                  .key = o->group[0].to[0],
                  .mask = attention_mask(local->r.from, o)};
  must(attention_sink(local->r.from, o) == NO_VALUE &&
           o->nin <= attention_fixed(o) + ATTENTION_FURTHER,
       "localize: a ring of attention with %u operands", o->nin);
  find_rounds(&ring);
  KeyBlock block = {local->r.map[o->in[1]], local->r.map[o->in[2]]};
  if (o->code == OP_attention) forward(&ring, block);
  else backward(&ring, block);
}

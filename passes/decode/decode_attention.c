/* Pass decode: causal attention of one query over cached keys and values, and its own.

   The op attention runs over the cache with the mask "before the position" and delivers the row's
   log-sum-exp l; the query's own key, which is not in the cache yet, gives the score s. With m =
   max(l, s), a = exp(l - m), b = exp(s - m) the result is (a y + b v) / (a + b): the same softmax,
   summed in another order. An empty cache has l = -inf and a = 0. If the rest of the mask hides
   the query's own key, s is UNSEEN, which no real score equals, and b = 0; a query that sees no
   key has a + b = 0, and its result is 0.

   If the entry computes a whole window, attention stays as it is and its keys and values are
   delivered. Must not: accept a mask that lets a query see later keys, since cached values would
   then change with every token. */
#include "decode.h"
#include "ir/attention_operands.h"

static const double UNSEEN = -3e38;

typedef struct DecodeHeads {
  const Op *o;
  ValueId mask, bias; /* bias NO_VALUE: none */
  Str q, k, d;
  bool plain; /* the mask is `causal` and nothing else */
} DecodeHeads;

/* ---- which masks are causal ---- */

static const Op *behind_expand(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  while (o && o->code == OP_expand) o = value_def(f, o->in[0]);
  return o;
}

static bool counts(const Fn *f, ValueId v, Str dim) {
  const Op *o = behind_expand(f, v);
  return o && o->code == OP_iota && o->group[0].from[0] == dim;
}

/* key <= query, or that and something else, or one of several such */
static bool is_causal(const Fn *f, const DecodeHeads *heads, ValueId mask, bool *plain) {
  const Op *o = behind_expand(f, mask);
  bool rest;
  *plain = false;
  if (!o) return false;
  if (o->code == OP_and)
    return is_causal(f, heads, o->in[0], &rest) || is_causal(f, heads, o->in[1], &rest);
  if (o->code == OP_or)
    return is_causal(f, heads, o->in[0], &rest) && is_causal(f, heads, o->in[1], &rest);
  *plain = o->code == OP_le && counts(f, o->in[0], heads->k) && counts(f, o->in[1], heads->q);
  return *plain;
}

/* ---- sites ---- */

static CacheSite *site_of(DecodeFrame *frame, const Op *o) {
  uint32_t at = (uint32_t)(o - frame->from->ops.at);
  Decode *d = frame->d;
  for (uint32_t i = 0; i < d->site.n; i++)
    if (d->site.at[i].fn == frame->from && d->site.at[i].op == at) return &d->site.at[i];
  return NULL;
}

static CacheSite *new_site(DecodeFrame *frame, const Op *o) {
  Decode *d = frame->d;
  if (site_of(frame, o)) return decode_fail(frame, o, "a stack that is used twice"), NULL;
  CacheSite s = {frame->from, (uint32_t)(o - frame->from->ops.at), {d->caches, d->caches + 1}};
  d->caches += 2;
  vec_push(d->m->arena, d->site, s);
  return &vec_last(d->site);
}

static void deliver(DecodeFrame *frame, const int *number, const ValueId *kv) {
  for (int i = 0; i < 2; i++)
    vec_push(frame->d->m->arena, frame->rows, (CacheRow){kv[i], number[i]});
}

/* ---- building ---- */

static ValueId bin(DecodeFrame *frame, OpCode c, ValueId a, ValueId b, Loc loc) {
  return ir_binary(frame->d->m, frame->to, c, a, b, loc);
}
static ValueId un(DecodeFrame *frame, OpCode c, ValueId a, Loc loc) {
  return ir_unary(frame->d->m, frame->to, c, a, loc);
}
static ValueId as(DecodeFrame *frame, ValueId a, Elem e, Loc loc) {
  return ir_cast(frame->d->m, frame->to, a, e, loc);
}

/* key < position, and the rest of the mask */
static ValueId cache_mask(DecodeFrame *frame, const DecodeHeads *heads, const DimSet *dims,
                          const Type *keys) {
  Module *m = frame->d->m;
  Loc loc = heads->o->loc;
  ValueId number = ir_iota(m, frame->to, (Axis){heads->k, type_size(keys, heads->k)}, loc);
  ValueId before = bin(frame, OP_lt, number, decode_position(frame), loc);
  if (heads->plain) return before;
  ValueId all = decode_get(frame, heads->mask, *dims);
  if (all == NO_VALUE) return all;
  return bin(frame, OP_and, all,
             emit_spread(m, frame->to, before, *value_type(frame->to, all), loc), loc);
}

/* Attention over the cache: y and l. */
static bool over_cache(DecodeFrame *frame, const DecodeHeads *heads, const DimSet *dims, ValueId q,
                       const int *number, ValueId out[2]) {
  Module *m = frame->d->m;
  const Type *keys = value_type(frame->from, heads->o->in[1]);
  ValueId in[5] = {q};
  uint32_t operands = 4;
  for (int i = 0; i < 2; i++)
    if ((in[1 + i] = decode_cache(frame, number[i], *value_type(frame->from, heads->o->in[1 + i]),
                                  heads->o->loc)) == NO_VALUE)
      return false;
  if ((in[3] = cache_mask(frame, heads, dims, keys)) == NO_VALUE) return false;
  if (heads->bias != NO_VALUE &&
      (in[operands++] = decode_get(frame, heads->bias, *dims)) == NO_VALUE)
    return false;
  Type types[2];
  for (uint32_t i = 0; i < 2; i++)
    types[i] = dims_cut(*value_type(frame->from, heads->o->out + i), dims);
  Op *op = fn_op(m, frame->to, OP_attention, operands, in, 2, types, heads->o->loc);
  for (int i = 0; i < heads->o->ngroups; i++) op_add_group(m, op, heads->o->group[i]);
  for (uint32_t i = 0; i < heads->o->attrs.n; i++)
    vec_push(m->arena, op->attrs, heads->o->attrs.at[i]);
  out[0] = op->out, out[1] = op->out + 1;
  return true;
}

/* Value `v` over the scores, of the query and its own key, which is not in `like`: whether the rest
   of the mask lets the query attend to it, or its bias. */
static ValueId own_of(DecodeFrame *frame, const DecodeHeads *heads, ValueId v, const DimSet *dims,
                      ValueId like) {
  Module *m = frame->d->m;
  DimSet both = *dims;
  Loc loc = heads->o->loc;
  dims_put(&both, heads->k);
  ValueId own = decode_get(frame, v, both);
  if (own == NO_VALUE) return own;
  Type t = *value_type(frame->to, own);
  if (type_find(&t, heads->k) >= 0) {
    Group group = group_dims(1, &heads->k);
    own =
        emit_typed(m, frame->to, OP_unstack, 1, &own, &group, type_without(&t, &heads->k, 1), loc);
  }
  return emit_spread(m, frame->to, own, *value_type(frame->to, like), loc);
}

/* `seen ? x : otherwise`; seen is NO_VALUE: all are seen. */
static ValueId where_seen(DecodeFrame *frame, ValueId seen, ValueId x, double otherwise, Loc loc) {
  if (seen == NO_VALUE) return x;
  return ir_where(frame->d->m, frame->to, seen, x,
                  ir_const(frame->d->m, frame->to, ELEM_f32, otherwise, loc), loc);
}

/* The divisor of the weights' sums: 1 if a query sees no key, since its sum is 0 and its row is to
   be 0. */
static ValueId divisor(DecodeFrame *frame, ValueId seen, ValueId sum, Loc loc) {
  Module *m = frame->d->m;
  if (seen == NO_VALUE) return sum;
  ValueId none = bin(frame, OP_eq, sum, ir_const(m, frame->to, ELEM_f32, 0, loc), loc);
  return ir_where(m, frame->to, none, ir_const(m, frame->to, ELEM_f32, 1, loc), sum, loc);
}

/* cap tanh(score / cap) */
static ValueId capped(DecodeFrame *frame, ValueId score, double cap, Loc loc) {
  if (cap == 0) return score;
  Module *m = frame->d->m;
  ValueId x = bin(frame, OP_mul, score, ir_const(m, frame->to, ELEM_f32, 1 / cap, loc), loc);
  return bin(frame, OP_mul, un(frame, OP_tanh, x, loc), ir_const(m, frame->to, ELEM_f32, cap, loc),
             loc);
}

/* The score of the query and its own key; NO_VALUE: it cannot be found. */
static ValueId own_score(DecodeFrame *frame, const DecodeHeads *heads, const DimSet *dims,
                         ValueId q, ValueId k) {
  Module *m = frame->d->m;
  Loc loc = heads->o->loc;
  ValueId score = as(frame, ir_dot(m, frame->to, q, k, 1, &heads->d, loc), ELEM_f32, loc);
  double scale = attr_float(&heads->o->attrs, ATTR_scale, 1);
  score = bin(frame, OP_mul, score, ir_const(m, frame->to, ELEM_f32, scale, loc), loc);
  score = capped(frame, score, attr_float(&heads->o->attrs, ATTR_cap, 0), loc);
  if (heads->bias == NO_VALUE) return score;
  ValueId bias = own_of(frame, heads, heads->bias, dims, score);
  if (bias == NO_VALUE) return bias;
  return bin(frame, OP_add, score, as(frame, bias, ELEM_f32, loc), loc);
}

static bool join(DecodeFrame *frame, const DecodeHeads *heads, const DimSet *dims, ValueId q,
                 const ValueId *kv, const ValueId *past) {
  Module *m = frame->d->m;
  Loc loc = heads->o->loc;
  Elem e = value_type(frame->to, q)->elem;
  ValueId k = ir_rename(m, frame->to, kv[0], heads->k, heads->q, loc),
          v = as(frame, ir_rename(m, frame->to, kv[1], heads->k, heads->q, loc), ELEM_f32, loc);
  ValueId score = own_score(frame, heads, dims, q, k);
  if (score == NO_VALUE) return false;
  ValueId seen = heads->plain ? NO_VALUE : own_of(frame, heads, heads->mask, dims, score);
  if (!heads->plain && seen == NO_VALUE) return false;
  score = where_seen(frame, seen, score, UNSEEN, loc);
  ValueId most = bin(frame, OP_max, past[1], score, loc);
  ValueId a = un(frame, OP_exp, bin(frame, OP_sub, past[1], most, loc), loc),
          b = un(frame, OP_exp, bin(frame, OP_sub, score, most, loc), loc);
  b = where_seen(frame, seen, b, 0, loc);
  ValueId sum = bin(frame, OP_add, a, b, loc), old = as(frame, past[0], ELEM_f32, loc);
  ValueId new =
      bin(frame, OP_mul, emit_spread(m, frame->to, v, *value_type(frame->to, old), loc), b, loc);
  ValueId y = bin(frame, OP_add, bin(frame, OP_mul, old, a, loc), new, loc);
  decode_remember(frame, heads->o->out, *dims,
                  as(frame, bin(frame, OP_div, y, divisor(frame, seen, sum, loc), loc), e, loc));
  ValueId l = bin(frame, OP_logaddexp, past[1], score, loc);
  if (seen != NO_VALUE) l = ir_where(m, frame->to, seen, l, past[1], loc);
  decode_remember(frame, heads->o->out + 1, *dims, l);
  return true;
}

static bool cached(DecodeFrame *frame, const DecodeHeads *heads, const DimSet *dims) {
  DimSet keys = *dims;
  dims_drop(&keys, heads->q), dims_put(&keys, heads->k);
  ValueId q = decode_get(frame, heads->o->in[0], *dims), kv[2], past[2];
  for (int i = 0; i < 2; i++) kv[i] = decode_get(frame, heads->o->in[1 + i], keys);
  if (frame->d->why) return false;
  CacheSite *site = new_site(frame, heads->o);
  if (!site || !over_cache(frame, heads, dims, q, site->number, past)) return false;
  deliver(frame, site->number, kv);
  return join(frame, heads, dims, q, kv, past);
}

/* The op as it is; its keys and values are delivered if they are cached. */
static bool whole(DecodeFrame *frame, const Op *o) {
  ValueId *in = ARENA_ARRAY(frame->d->m->arena, ValueId, o->nin);
  for (uint32_t i = 0; i < o->nin; i++)
    if ((in[i] = decode_get(frame, o->in[i], (DimSet){0})) == NO_VALUE) return false;
  decode_copy(frame, o, (DimSet){0}, in);
  const CacheSite *site = site_of(frame, o);
  if (site) deliver(frame, site->number, in + 1);
  return true;
}

bool decode_attention(DecodeFrame *frame, const Op *o, const DimSet *dims) {
  must(o->ngroups == 2, "decode: attention with %d groups of dims", o->ngroups);
  if (o->code != OP_attention) return decode_fail(frame, o, "a gradient"), false;
  DecodeHeads heads = {.o = o,
                       .mask = attention_mask(frame->from, o),
                       .bias = attention_bias(frame->from, o),
                       .q = o->group[0].from[0],
                       .k = o->group[0].to[0],
                       .d = o->group[1].from[0]};
  if (frame->d->fills) return whole(frame, o);
  if (!dims_hold(dims, heads.q))
    return decode_fail(frame, o, "attention along other dims than positions"), false;
  if (heads.mask == NO_VALUE || !is_causal(frame->from, &heads, heads.mask, &heads.plain))
    return decode_fail(frame, o, "attention looks ahead: its mask is not causal"), false;
  return cached(frame, &heads, dims);
}

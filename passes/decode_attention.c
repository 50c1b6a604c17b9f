/* Pass decode: causal attention of one query over cached keys and values, and its own.

   The op attention runs over the cache with the mask "before the position" and delivers the row's
   log-sum-exp l; the query's own key, which is not in the cache yet, gives the score s. With
   m = max(l, s), a = exp(l - m), b = exp(s - m) the result is (a y + b v) / (a + b): the same
   softmax, summed in another order. An empty cache has l = -inf and a = 0. Where the rest of the
   mask hides the query's own key s is UNSEEN, which no score is, and b = 0; a query that sees
   nothing has a + b = 0, and gives 0. Where the entry computes a whole window, attention stays as
   it is and its keys and values are delivered. Must not: accept a mask that lets a query see later
   keys, since then what is cached would change with every token. */
#include "passes/decode.h"

static const double UNSEEN = -3e38;

typedef struct DecodeHeads {
  const Op *o;
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

/* key <= query, or that and something else */
static bool is_causal(const Fn *f, const DecodeHeads *h, ValueId mask, bool *plain) {
  const Op *o = behind_expand(f, mask);
  bool rest;
  *plain = false;
  if (!o) return false;
  if (o->code == OP_and)
    return is_causal(f, h, o->in[0], &rest) || is_causal(f, h, o->in[1], &rest);
  *plain = o->code == OP_le && counts(f, o->in[0], h->k) && counts(f, o->in[1], h->q);
  return *plain;
}

/* ---- sites ---- */

static CacheSite *site_of(DecodeFrame *f, const Op *o) {
  uint32_t at = (uint32_t)(o - f->from->ops.at);
  Decode *d = f->d;
  for (uint32_t i = 0; i < d->site.n; i++)
    if (d->site.at[i].fn == f->from && d->site.at[i].op == at) return &d->site.at[i];
  return NULL;
}

static CacheSite *new_site(DecodeFrame *f, const Op *o) {
  Decode *d = f->d;
  if (site_of(f, o)) return decode_fail(f, o, "a stack that is used twice"), NULL;
  CacheSite s = {f->from, (uint32_t)(o - f->from->ops.at), {d->caches, d->caches + 1}};
  d->caches += 2;
  vec_push(d->m->arena, d->site, s);
  return &vec_last(d->site);
}

static void deliver(DecodeFrame *f, const int *number, const ValueId *kv) {
  for (int i = 0; i < 2; i++) vec_push(f->d->m->arena, f->rows, (CacheRow){kv[i], number[i]});
}

/* ---- building ---- */

static ValueId bin(DecodeFrame *f, OpCode c, ValueId a, ValueId b, Loc loc) {
  return ir_binary(f->d->m, f->to, c, a, b, loc);
}
static ValueId un(DecodeFrame *f, OpCode c, ValueId a, Loc loc) {
  return ir_unary(f->d->m, f->to, c, a, loc);
}
static ValueId as(DecodeFrame *f, ValueId a, Elem e, Loc loc) {
  return ir_cast(f->d->m, f->to, a, e, loc);
}

/* key < position, and what else the mask says */
static ValueId cache_mask(DecodeFrame *f, const DecodeHeads *h, const DimSet *n, const Type *keys) {
  Module *m = f->d->m;
  Loc loc = h->o->loc;
  ValueId number = ir_iota(m, f->to, (Axis){h->k, type_size(keys, h->k)}, loc);
  ValueId before = bin(f, OP_lt, number, decode_position(f), loc);
  if (h->plain) return before;
  ValueId all = decode_get(f, h->o->in[3], *n);
  if (all == NO_VALUE) return all;
  return bin(f, OP_and, all, emit_spread(m, f->to, before, *value_type(f->to, all), loc), loc);
}

/* Attention over the cache: y and l. */
static bool over_cache(DecodeFrame *f, const DecodeHeads *h, const DimSet *n, ValueId q,
                       const int *number, ValueId out[2]) {
  Module *m = f->d->m;
  const Type *keys = value_type(f->from, h->o->in[1]);
  ValueId in[4] = {q};
  for (int i = 0; i < 2; i++)
    if ((in[1 + i] = decode_cache(f, number[i], *value_type(f->from, h->o->in[1 + i]),
                                  h->o->loc)) == NO_VALUE)
      return false;
  if ((in[3] = cache_mask(f, h, n, keys)) == NO_VALUE) return false;
  Type types[2];
  for (uint32_t i = 0; i < 2; i++) types[i] = dims_cut(*value_type(f->from, h->o->out + i), n);
  Op *op = fn_op(m, f->to, OP_attention, 4, in, 2, types, h->o->loc);
  for (int i = 0; i < h->o->ngroups; i++) op_add_group(m, op, h->o->group[i]);
  for (uint32_t i = 0; i < h->o->attrs.n; i++) vec_push(m->arena, op->attrs, h->o->attrs.at[i]);
  out[0] = op->out, out[1] = op->out + 1;
  return true;
}

/* Whether the rest of the mask shows the query its own key, beside `like`. */
static ValueId own_seen(DecodeFrame *f, const DecodeHeads *h, const DimSet *n, ValueId like) {
  Module *m = f->d->m;
  DimSet both = *n;
  Loc loc = h->o->loc;
  dims_put(&both, h->k);
  ValueId mask = decode_get(f, h->o->in[3], both);
  if (mask == NO_VALUE) return mask;
  Type t = *value_type(f->to, mask);
  if (type_find(&t, h->k) >= 0) {
    Group g = group_dims(1, &h->k);
    mask = emit_typed(m, f->to, OP_unstack, 1, &mask, &g, type_without(&t, &h->k, 1), loc);
  }
  return emit_spread(m, f->to, mask, *value_type(f->to, like), loc);
}

/* x where `seen`, else a number; seen is NO_VALUE: everywhere. */
static ValueId where_seen(DecodeFrame *f, ValueId seen, ValueId x, double otherwise, Loc loc) {
  if (seen == NO_VALUE) return x;
  return ir_where(f->d->m, f->to, seen, x, ir_const(f->d->m, f->to, ELEM_f32, otherwise, loc), loc);
}

/* Sums of weights; where a query sees nothing they are 0, and its row is to be 0. */
static ValueId divisor(DecodeFrame *f, ValueId seen, ValueId sum, Loc loc) {
  Module *m = f->d->m;
  if (seen == NO_VALUE) return sum;
  ValueId none = bin(f, OP_eq, sum, ir_const(m, f->to, ELEM_f32, 0, loc), loc);
  return ir_where(m, f->to, none, ir_const(m, f->to, ELEM_f32, 1, loc), sum, loc);
}

static bool join(DecodeFrame *f, const DecodeHeads *h, const DimSet *n, ValueId q,
                 const ValueId *kv, const ValueId *past) {
  Module *m = f->d->m;
  Loc loc = h->o->loc;
  Elem e = value_type(f->to, q)->elem;
  ValueId k = ir_rename(m, f->to, kv[0], h->k, h->q, loc),
          v = as(f, ir_rename(m, f->to, kv[1], h->k, h->q, loc), ELEM_f32, loc);
  ValueId score = as(f, ir_dot(m, f->to, q, k, 1, &h->d, loc), ELEM_f32, loc);
  double scale = attr_float(&h->o->attrs, ATTR_scale, 1);
  score = bin(f, OP_mul, score, ir_const(m, f->to, ELEM_f32, scale, loc), loc);
  ValueId seen = h->plain ? NO_VALUE : own_seen(f, h, n, score);
  if (!h->plain && seen == NO_VALUE) return false;
  score = where_seen(f, seen, score, UNSEEN, loc);
  ValueId most = bin(f, OP_max, past[1], score, loc);
  ValueId a = un(f, OP_exp, bin(f, OP_sub, past[1], most, loc), loc),
          b = un(f, OP_exp, bin(f, OP_sub, score, most, loc), loc);
  b = where_seen(f, seen, b, 0, loc);
  ValueId sum = bin(f, OP_add, a, b, loc), old = as(f, past[0], ELEM_f32, loc);
  ValueId new = bin(f, OP_mul, emit_spread(m, f->to, v, *value_type(f->to, old), loc), b, loc);
  ValueId y = bin(f, OP_add, bin(f, OP_mul, old, a, loc), new, loc);
  decode_remember(f, h->o->out, *n,
                  as(f, bin(f, OP_div, y, divisor(f, seen, sum, loc), loc), e, loc));
  decode_remember(f, h->o->out + 1, *n, bin(f, OP_add, un(f, OP_log, sum, loc), most, loc));
  return true;
}

static bool cached(DecodeFrame *f, const DecodeHeads *h, const DimSet *n) {
  DimSet keys = *n;
  dims_drop(&keys, h->q), dims_put(&keys, h->k);
  ValueId q = decode_get(f, h->o->in[0], *n), kv[2], past[2];
  for (int i = 0; i < 2; i++) kv[i] = decode_get(f, h->o->in[1 + i], keys);
  if (f->d->why) return false;
  CacheSite *site = new_site(f, h->o);
  if (!site || !over_cache(f, h, n, q, site->number, past)) return false;
  deliver(f, site->number, kv);
  return join(f, h, n, q, kv, past);
}

/* The op as it is; its keys and values are delivered if they are cached. */
static bool whole(DecodeFrame *f, const Op *o) {
  Module *m = f->d->m;
  ValueId in[4];
  Type types[2] = {*value_type(f->from, o->out), *value_type(f->from, o->out + 1)};
  for (uint32_t i = 0; i < o->nin; i++)
    if ((in[i] = decode_get(f, o->in[i], (DimSet){0})) == NO_VALUE) return false;
  Op *op = fn_op(m, f->to, o->code, o->nin, in, 2, types, o->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(m, op, o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(m->arena, op->attrs, o->attrs.at[i]);
  for (uint32_t i = 0; i < 2; i++) decode_remember(f, o->out + i, (DimSet){0}, op->out + i);
  const CacheSite *site = site_of(f, o);
  if (site) deliver(f, site->number, in + 1);
  return true;
}

bool decode_attention(DecodeFrame *f, const Op *o, const DimSet *n) {
  must(o->ngroups == 2, "decode: attention with %d groups of dims", o->ngroups);
  if (o->code != OP_attention) return decode_fail(f, o, "a gradient"), false;
  DecodeHeads h = {o, o->group[0].from[0], o->group[0].to[0], o->group[1].from[0], false};
  if (f->d->fills) return whole(f, o);
  if (!dims_hold(n, h.q))
    return decode_fail(f, o, "attention along other dims than positions"), false;
  if (o->nin < 4 || !is_causal(f->from, &h, o->in[3], &h.plain))
    return decode_fail(f, o, "attention looks ahead: its mask is not causal"), false;
  return cached(f, &h, n);
}

/* Pass decode: ops restricted to one position. Most only pass on which dims are restricted, and get
   results of size 1 along them; positions themselves, tables, renamings and loops have rules. */
#include "passes/decode.h"
#include <string.h>

static bool fail(DecodeFrame *f, const Op *o, const char *why) {
  decode_fail(f, o, why);
  return false;
}

static bool gave(DecodeFrame *f, const Op *o, DimSet n, ValueId v) {
  if (v != NO_VALUE) decode_remember(f, o->out, n, v);
  return v != NO_VALUE;
}

/* The same op over these operands, results cut. */
static bool copy(DecodeFrame *f, const Op *o, DimSet n, const ValueId *in) {
  Module *m = f->d->m;
  Type *types = ARENA_ARRAY(m->arena, Type, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++) types[i] = dims_cut(*value_type(f->from, o->out + i), &n);
  Op *c = fn_op(m, f->to, o->code, o->nin, in, o->nout, types, o->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(m, c, o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(m->arena, c->attrs, o->attrs.at[i]);
  c->global = o->global;
  for (uint32_t i = 0; i < o->nout; i++) decode_remember(f, o->out + i, n, c->out + i);
  return true;
}

/* Operand i restricted to each[i], then the same op. */
static bool through_each(DecodeFrame *f, const Op *o, DimSet n, const DimSet *each) {
  ValueId *in = ARENA_ARRAY(f->d->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    if ((in[i] = decode_get(f, o->in[i], each[i])) == NO_VALUE) return false;
  return copy(f, o, n, in);
}

static bool through(DecodeFrame *f, const Op *o, DimSet n) {
  DimSet *each = ARENA_ARRAY(f->d->m->arena, DimSet, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) each[i] = n;
  return through_each(f, o, n, each);
}

static bool names_restricted(const Op *o, const DimSet *n) {
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (dims_hold(n, o->group[g].from[i])) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (dims_hold(n, o->group[g].to[i])) return true;
  }
  return false;
}

static bool not_along(DecodeFrame *f, const Op *o, DimSet n) {
  return names_restricted(o, &n) ? fail(f, o, "positions meet outside of attention")
                                 : through(f, o, n);
}

static bool source(DecodeFrame *f, const Op *o, DimSet n) {
  if (o->code == OP_rand) return fail(f, o, "random numbers");
  if (o->code == OP_iota && n.n)
    return gave(f, o, n, decode_position_along(f, o->group[0].from[0], o->loc));
  return copy(f, o, n, o->in);
}

static bool rename_dims(DecodeFrame *f, const Op *o, DimSet n) {
  DimSet before = n;
  for (int g = 0; g < o->ngroups; g++)
    for (int i = 0; i < o->group[g].nto; i++) dims_drop(&before, o->group[g].to[i]);
  for (int g = 0; g < o->ngroups; g++)
    for (int i = 0; i < o->group[g].nto; i++)
      if (dims_hold(&n, o->group[g].to[i])) dims_put(&before, o->group[g].from[i]);
  return through_each(f, o, n, &before);
}

/* The first elements of a dim: the position is the same in both. */
static bool slice(DecodeFrame *f, const Op *o, DimSet n) {
  Str from = o->group[0].from[0], to = o->group[0].nto ? o->group[0].to[0] : from;
  if (!dims_hold(&n, to)) return not_along(f, o, n);
  if (attr_int(&o->attrs, ATTR_at, 0)) return fail(f, o, "positions are moved");
  DimSet before = n;
  dims_drop(&before, to), dims_put(&before, from);
  ValueId v = decode_get(f, o->in[0], before);
  if (v == NO_VALUE || from == to) return gave(f, o, n, v);
  return gave(f, o, n, ir_rename(f->d->m, f->to, v, from, to, o->loc));
}

/* Without positions written, those are the numbers along S. */
static bool rope(DecodeFrame *f, const Op *o, DimSet n) {
  Str s = o->group[0].from[0];
  ValueId in[2];
  if (!dims_hold(&n, s) || o->nin == 2) return through(f, o, n);
  if ((in[0] = decode_get(f, o->in[0], n)) == NO_VALUE) return false;
  in[1] = decode_position_along(f, s, o->loc);
  Op turned = *o;
  turned.nin = 2;
  return copy(f, &turned, n, in);
}

static bool structural(DecodeFrame *f, const Op *o, DimSet n) {
  switch (o->code) {
  case OP_expand: return through(f, o, n);
  case OP_rename: return rename_dims(f, o, n);
  case OP_slice: return slice(f, o, n);
  case OP_rope: return rope(f, o, n);
  default: return not_along(f, o, n);
  }
}

static bool gather(DecodeFrame *f, const Op *o, DimSet n) {
  DimSet each[2] = {n, n};
  dims_drop(&each[0], o->group[0].from[0]);
  return through_each(f, o, n, each);
}

/* What dots sum is whole in both operands; so is what reductions reduce: results lack those dims.
 */
static bool contract(DecodeFrame *f, const Op *o, DimSet n) {
  for (int i = 0; o->ngroups && i < o->group[0].nfrom; i++) dims_drop(&n, o->group[0].from[i]);
  return through(f, o, n);
}

static bool input(DecodeFrame *f, const Op *o, DimSet n) {
  static const char prefix[] = "logits.";
  const Global *g = o->global;
  Module *m = f->d->m;
  if (f->d->fills) return copy(f, o, n, o->in);
  Type t = dims_cut(g->type, &n);
  if (!n.n || type_count(&t) != 1 || strncmp(g->name, prefix, sizeof prefix - 1))
    return fail(f, o, "it needs more than one token at a time");
  Str name = intern_printf(m->ctx->names, "decode.of.%s", g->name + sizeof prefix - 1);
  Global *one = decode_global(m, GLOBAL_INPUT, name, t, g->loc);
  one->of = g->of;
  return gave(f, o, n, ir_load(m, f->to, one, o->loc));
}

/* The rows of a table that positions number. */
static bool rows(DecodeFrame *f, const Op *o, DimSet n) {
  if (n.n > 1) return fail(f, o, "a table with two dims of positions");
  ValueId all = decode_get(f, o->out, (DimSet){0});
  if (all == NO_VALUE) return false;
  ValueId at = decode_position_along(f, n.at[0], o->loc);
  return gave(f, o, n, ir_gather(f->d->m, f->to, all, at, n.at[0], o->loc));
}

static bool load(DecodeFrame *f, const Op *o, DimSet n) {
  if (o->global->kind == GLOBAL_INPUT) return input(f, o, n);
  return n.n ? rows(f, o, n) : copy(f, o, n, o->in);
}

bool decode_op(DecodeFrame *f, const Op *o, DimSet n) {
  switch (op_family(o->code)) {
  case FAMILY_SOURCE: return source(f, o, n);
  case FAMILY_ELEM: return through(f, o, n);
  case FAMILY_REDUCE:
  case FAMILY_CONTRACT: return contract(f, o, n);
  case FAMILY_STRUCT: return structural(f, o, n);
  case FAMILY_SCAN:
  case FAMILY_SCATTER: return not_along(f, o, n);
  case FAMILY_GATHER: return gather(f, o, n);
  case FAMILY_ATTENTION: return decode_attention(f, o, &n);
  case FAMILY_GLOBAL: return o->code == OP_load && load(f, o, n);
  case FAMILY_MOVE: return n.n ? rows(f, o, n) : through(f, o, n);
  case FAMILY_CALL: return o->code == OP_loop ? decode_loop(f, o, n) : fail(f, o, "a call");
  default: return fail(f, o, "an op that runs over several ranks");
  }
}

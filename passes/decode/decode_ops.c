/* Pass decode: ops restricted to one position. Most only pass on which dims are restricted, and get
   results of size 1 along them; positions themselves, tables, renamings and loops have rules. */
#include "decode.h"
#include <string.h>

static bool fail(DecodeFrame *frame, const Op *o, const char *why) {
  decode_fail(frame, o, why);
  return false;
}

static bool gave(DecodeFrame *frame, const Op *o, DimSet dims, ValueId v) {
  if (v != NO_VALUE) decode_remember(frame, o->out, dims, v);
  return v != NO_VALUE;
}

/* The same op over these operands, results cut. */
bool decode_copy(DecodeFrame *frame, const Op *o, DimSet dims, const ValueId *in) {
  Module *m = frame->d->m;
  Type *types = ARENA_ARRAY(m->arena, Type, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++)
    types[i] = dims_cut(*value_type(frame->from, o->out + i), &dims);
  Op *c = fn_op(m, frame->to, o->code, o->nin, in, o->nout, types, o->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(m, c, o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(m->arena, c->attrs, o->attrs.at[i]);
  c->global = o->global;
  for (uint32_t i = 0; i < o->nout; i++) decode_remember(frame, o->out + i, dims, c->out + i);
  return true;
}

/* Operand i restricted to each[i], then the same op. */
bool decode_each(DecodeFrame *frame, const Op *o, DimSet dims, const DimSet *each) {
  ValueId *in = ARENA_ARRAY(frame->d->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    if ((in[i] = decode_get(frame, o->in[i], each[i])) == NO_VALUE) return false;
  return decode_copy(frame, o, dims, in);
}

static bool through(DecodeFrame *frame, const Op *o, DimSet dims) {
  DimSet *each = ARENA_ARRAY(frame->d->m->arena, DimSet, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) each[i] = dims;
  return decode_each(frame, o, dims, each);
}

static bool names_restricted(const Op *o, const DimSet *dims) {
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (dims_hold(dims, o->group[g].from[i])) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (dims_hold(dims, o->group[g].to[i])) return true;
  }
  return false;
}

static bool not_along(DecodeFrame *frame, const Op *o, DimSet dims) {
  return names_restricted(o, &dims) ? fail(frame, o, "positions meet outside of attention")
                                    : through(frame, o, dims);
}

static bool source(DecodeFrame *frame, const Op *o, DimSet dims) {
  if (o->code == OP_rand) return fail(frame, o, "random numbers");
  if (o->code == OP_iota && dims.n)
    return gave(frame, o, dims, decode_position_along(frame, o->group[0].from[0], o->loc));
  return decode_copy(frame, o, dims, o->in);
}

static bool rename_dims(DecodeFrame *frame, const Op *o, DimSet dims) {
  DimSet before = dims;
  for (int g = 0; g < o->ngroups; g++)
    for (int i = 0; i < o->group[g].nto; i++) dims_drop(&before, o->group[g].to[i]);
  for (int g = 0; g < o->ngroups; g++)
    for (int i = 0; i < o->group[g].nto; i++)
      if (dims_hold(&dims, o->group[g].to[i])) dims_put(&before, o->group[g].from[i]);
  return decode_each(frame, o, dims, &before);
}

/* The first elements of a dim: the position is the same in both. */
static bool slice(DecodeFrame *frame, const Op *o, DimSet dims) {
  Str from = o->group[0].from[0], to = o->group[0].nto ? o->group[0].to[0] : from;
  if (!dims_hold(&dims, to)) return not_along(frame, o, dims);
  if (attr_int(&o->attrs, ATTR_at, 0)) return fail(frame, o, "positions are moved");
  DimSet before = dims;
  dims_drop(&before, to), dims_put(&before, from);
  ValueId v = decode_get(frame, o->in[0], before);
  if (v == NO_VALUE || from == to) return gave(frame, o, dims, v);
  return gave(frame, o, dims, ir_rename(frame->d->m, frame->to, v, from, to, o->loc));
}

/* Without positions written, those are the numbers along S. */
static bool rope(DecodeFrame *frame, const Op *o, DimSet dims) {
  Str s = o->group[0].from[0];
  ValueId in[2];
  if (!dims_hold(&dims, s) || o->nin == 2) return through(frame, o, dims);
  if ((in[0] = decode_get(frame, o->in[0], dims)) == NO_VALUE) return false;
  in[1] = decode_position_along(frame, s, o->loc);
  Op turned = *o;
  turned.nin = 2;
  return decode_copy(frame, &turned, dims, in);
}

static bool structural(DecodeFrame *frame, const Op *o, DimSet dims) {
  switch (o->code) {
  case OP_expand: return through(frame, o, dims);
  case OP_rename: return rename_dims(frame, o, dims);
  case OP_slice: return slice(frame, o, dims);
  case OP_rope: return rope(frame, o, dims);
  default: return not_along(frame, o, dims);
  }
}

/* The summed dims of a dot are whole in both operands, and so are the reduced dims of a reduction:
   their results lack these dims. */
static bool contract(DecodeFrame *frame, const Op *o, DimSet dims) {
  for (int i = 0; o->ngroups && i < o->group[0].nfrom; i++) dims_drop(&dims, o->group[0].from[i]);
  return through(frame, o, dims);
}

static bool input(DecodeFrame *frame, const Op *o, DimSet dims) {
  static const char prefix[] = "logits.";
  const Global *global = o->global;
  Module *m = frame->d->m;
  if (frame->d->fills) return decode_copy(frame, o, dims, o->in);
  Type t = dims_cut(global->type, &dims);
  if (!dims.n || type_count(&t) != 1 || strncmp(global->name, prefix, sizeof prefix - 1))
    return fail(frame, o, "it needs more than one token at a time");
  Str name = intern_printf(m->ctx->names, "decode.of.%s", global->name + sizeof prefix - 1);
  Global *one = decode_global(m, GLOBAL_INPUT, name, t, global->loc);
  one->of = global->of;
  return gave(frame, o, dims, ir_load(m, frame->to, one, o->loc));
}

/* The rows of a table that positions number. */
static bool rows(DecodeFrame *frame, const Op *o, DimSet dims) {
  if (dims.n > 1) return fail(frame, o, "a table with two dims of positions");
  ValueId all = decode_get(frame, o->out, (DimSet){0});
  if (all == NO_VALUE) return false;
  ValueId at = decode_position_along(frame, dims.at[0], o->loc);
  return gave(frame, o, dims, ir_gather(frame->d->m, frame->to, all, at, dims.at[0], o->loc));
}

static bool load(DecodeFrame *frame, const Op *o, DimSet dims) {
  if (o->global->kind == GLOBAL_INPUT) return input(frame, o, dims);
  return dims.n ? rows(frame, o, dims) : decode_copy(frame, o, dims, o->in);
}

bool decode_op(DecodeFrame *frame, const Op *o, DimSet dims) {
  switch (op_family(o->code)) {
  case FAMILY_SOURCE: return source(frame, o, dims);
  case FAMILY_ELEM: return through(frame, o, dims);
  case FAMILY_REDUCE:
  case FAMILY_CONTRACT: return contract(frame, o, dims);
  case FAMILY_STRUCT: return structural(frame, o, dims);
  case FAMILY_SCAN: return not_along(frame, o, dims);
  case FAMILY_SCATTER: return decode_scatter(frame, o, dims);
  case FAMILY_GATHER: return decode_gather(frame, o, dims);
  case FAMILY_ATTENTION: return decode_attention(frame, o, &dims);
  case FAMILY_GLOBAL: return o->code == OP_load && load(frame, o, dims);
  case FAMILY_MOVE: return dims.n ? rows(frame, o, dims) : through(frame, o, dims);
  case FAMILY_CALL:
    return o->code == OP_loop ? decode_loop(frame, o, dims) : fail(frame, o, "a call");
  default: return fail(frame, o, "an op that runs over several ranks");
  }
}

/* The contents of padding, op by op. The padding of a value along a dim is KNOWN if all its
   elements are one number whatever the program reads, SAME if the value does not depend on the
   dim, so that logical elements hold the same numbers, and OTHER else. Zeros absorb SAME padding:
   a logical element that is not finite makes the step not finite anyway. Operands of contractions,
   sums and attention are never OTHER: pad.c has made them zero. Numbers are computed with those of
   constants, rounded to f32. Must not: answer KNOWN where a number could depend on data. */
#include "pad.h"
#include "ir/interp/interp.h"
#include <math.h>

static const PadFact other = {PAD_OTHER, 0}, same = {PAD_SAME, 0}, zero = {PAD_KNOWN, 0};

static PadFact known(double v) {
  v = (double)(float)v;
  return isnan(v) ? other : (PadFact){PAD_KNOWN, v};
}

int pad_find(const Pads *pads, const Type *t, Str dim) {
  int at = type_find(t, dim);
  for (int i = 0; i < pads->n && at >= 0; i++)
    if (pads->at[i].dim == dim && pads->at[i].size == t->axis[at].size) return i;
  return -1;
}

bool pad_is_zero(PadFact f) { return f.kind == PAD_KNOWN && f.value == 0; }

static bool equal(PadFact a, PadFact b) {
  return a.kind == b.kind && (a.kind != PAD_KNOWN || a.value == b.value);
}

PadFact pad_join(PadFact a, PadFact b) { return equal(a, b) ? a : other; }

static PadFact elem_fact(const Op *o, const PadFact *in) {
  double x[3] = {0};
  bool all_known = true, all_same = true;
  for (uint32_t i = 0; i < o->nin; i++) {
    x[i] = in[i].value;
    all_known &= in[i].kind == PAD_KNOWN, all_same &= in[i].kind == PAD_SAME;
  }
  if (all_known) return known(interp_scalar(o, x));
  if (all_same) return same;
  if (o->code == OP_where && in[0].kind == PAD_KNOWN) return x[0] != 0 ? in[1] : in[2];
  if (o->code == OP_where && in[1].kind == PAD_KNOWN) return pad_join(in[1], in[2]);
  if (o->nin != 2) return other;
  bool zero_a = pad_is_zero(in[0]), zero_b = pad_is_zero(in[1]);
  bool same_a = in[0].kind == PAD_SAME, same_b = in[1].kind == PAD_SAME;
  if (o->code == OP_mul && ((zero_a && same_b) || (same_a && zero_b))) return zero;
  if (o->code == OP_div && zero_a && same_b) return zero;
  if (o->code == OP_add && zero_a && same_b) return same;
  if ((o->code == OP_add || o->code == OP_sub) && same_a && zero_b) return same;
  return other;
}

/* Moves elements and nothing else. */
static bool only_moves(OpCode c) {
  return c == OP_rename || c == OP_split || c == OP_merge || c == OP_slice || c == OP_unstack ||
         c == OP_stack || c == OP_expand || c == OP_rmax || c == OP_rmin;
}

static PadFact moved_fact(const Op *o, const PadFact *in) {
  PadFact f = in[0];
  for (uint32_t i = 1; i < o->nin; i++) f = pad_join(f, in[i]);
  if (only_moves(o->code)) return f;
  bool fills = attr_float(&o->attrs, ATTR_fill, 0) != 0;
  return pad_is_zero(f) && !fills ? zero : other;
}

/* Operands without the dim are SAME, or KNOWN constants: they do not decide. */
static PadFact along(const Op *o, uint32_t result, Str dim, const PadFact *in) {
  switch (op_family(o->code)) {
  case FAMILY_ELEM: return elem_fact(o, in);
  case FAMILY_CONTRACT: return pad_is_zero(in[0]) || pad_is_zero(in[1]) ? zero : other;
  case FAMILY_GATHER: return o->group[0].from[0] != dim && pad_is_zero(in[0]) ? zero : other;
  case FAMILY_SCATTER: return o->group[0].to[0] == dim || pad_is_zero(in[0]) ? zero : other;
  case FAMILY_ATTENTION:
    if (o->code == OP_attention) return result == 0 && pad_is_zero(in[2]) ? zero : other;
    return pad_is_zero(in[5]) ? zero : other;
  case FAMILY_REDUCE: return o->code == OP_argmax ? other : moved_fact(o, in);
  case FAMILY_SCAN:
  case FAMILY_STRUCT: return moved_fact(o, in);
  default: return other;
  }
}

/* The dim under which a renamed one went in. */
static int before_rename(const Pads *pads, const Fn *f, const Op *o, int d) {
  for (int g = 0; o->code == OP_rename && g < o->ngroups; g++)
    if (o->group[g].to[0] == pads->at[d].dim)
      return pad_find(pads, value_type(f, o->in[0]), o->group[g].from[0]);
  return d;
}

/* Casts to whole numbers truncate. */
static PadFact cast_fact(PadFact fact, const Type *to) {
  ElemClass class = elem_class(to->elem);
  if (class == CLASS_INT || class == CLASS_BYTE) fact.value = trunc(fact.value);
  return fact;
}

PadFacts pad_result(const Pads *pads, const Fn *f, const Op *o, uint32_t result,
                    const PadFacts *in) {
  must(result < o->nout, "%s has no result %u", op_name(o->code), result);
  PadFacts facts;
  for (int d = 0; d < pads->n; d++) {
    PadFact each[8] = {{PAD_OTHER, 0}};
    int from = before_rename(pads, f, o, d);
    for (uint32_t i = 0; i < o->nin && i < 8 && from >= 0; i++) each[i] = in[i].of[from];
    bool has = pad_find(pads, value_type(f, o->out + result), pads->at[d].dim) == d;
    bool folds = op_family(o->code) == FAMILY_ELEM;
    if (o->code == OP_const) facts.of[d] = known(attr_float(&o->attrs, ATTR_value, 0));
    else if (o->nin > 8) facts.of[d] = has ? other : same;
    else if (has) facts.of[d] = along(o, result, pads->at[d].dim, each);
    else facts.of[d] = folds && elem_fact(o, each).kind == PAD_KNOWN ? elem_fact(o, each) : same;
    if (o->code == OP_cast) facts.of[d] = cast_fact(facts.of[d], value_type(f, o->out + result));
  }
  return facts;
}

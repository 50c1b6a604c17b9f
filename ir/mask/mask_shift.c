/* How the values of a mask change where query and key both move on by one (mask_shift.h): by rules
   for each op, in terms of its operands. Operands without positions, such as numbers of ranks,
   stay. Must not: guess. A value that no rule covers depends on more than the distance. */
#include "mask_shift.h"
#include <string.h>

typedef enum Shifting {
  SHIFT_UNKNOWN,
  SHIFT_NOT,   /* it stays */
  SHIFT_ALONG, /* it is one more */
  SHIFT_OTHERWISE
} Shifting;

static Shifting shift_of(MaskShifts *shifts, ValueId v);

static Shifting of_two(OpCode c, Shifting a, Shifting b) {
  bool stay = a == SHIFT_NOT && b == SHIFT_NOT, same = a == b && a != SHIFT_OTHERWISE;
  switch (c) {
  case OP_sub: return same ? SHIFT_NOT : b == SHIFT_NOT ? a : SHIFT_OTHERWISE;
  case OP_add: return stay ? SHIFT_NOT : a == SHIFT_NOT ? b : b == SHIFT_NOT ? a : SHIFT_OTHERWISE;
  case OP_min:
  case OP_max: return same ? a : SHIFT_OTHERWISE;
  case OP_lt:
  case OP_le:
  case OP_eq: return same ? SHIFT_NOT : SHIFT_OTHERWISE;
  default: return stay ? SHIFT_NOT : SHIFT_OTHERWISE;
  }
}

static Shifting of_op(MaskShifts *shifts, const Op *o) {
  switch (o->code) {
  case OP_const: return SHIFT_NOT;
  case OP_iota:
    return o->group[0].from[0] == shifts->query || o->group[0].from[0] == shifts->key ? SHIFT_ALONG
                                                                                      : SHIFT_NOT;
  case OP_expand:
  case OP_copy:
  case OP_stop:
  case OP_cast: return shift_of(shifts, o->in[0]);
  case OP_neg:
  case OP_abs:
  case OP_not: return shift_of(shifts, o->in[0]) == SHIFT_NOT ? SHIFT_NOT : SHIFT_OTHERWISE;
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_div:
  case OP_min:
  case OP_max:
  case OP_lt:
  case OP_le:
  case OP_eq:
  case OP_and:
  case OP_or: return of_two(o->code, shift_of(shifts, o->in[0]), shift_of(shifts, o->in[1]));
  default: return SHIFT_OTHERWISE;
  }
}

/* The interval of v in the rectangle; NULL: not computed. */
static const MaskInterval *found(const MaskQuestion *asked, ValueId v) {
  for (uint32_t at = 2 * v; at < 2 * v + 2; at++)
    if (asked->when[at] == asked->turn) return &asked->found[at];
  return NULL;
}

static bool is_one_number(const MaskShifts *shifts, ValueId v) {
  const MaskInterval *interval = shifts->asked ? found(shifts->asked, v) : NULL;
  return interval && interval->known && interval->lo == interval->hi;
}

static Shifting shift_of(MaskShifts *shifts, ValueId v) {
  if (shifts->of[v] != SHIFT_UNKNOWN) return shifts->of[v];
  const Op *o = value_def(shifts->f, v);
  const Type *t = value_type(shifts->f, v);
  bool still = type_find(t, shifts->query) < 0 && type_find(t, shifts->key) < 0;
  Shifting shifting = is_one_number(shifts, v) ? SHIFT_NOT
                      : o                      ? of_op(shifts, o)
                      : still                  ? SHIFT_NOT
                                               : SHIFT_OTHERWISE;
  return shifts->of[v] = (uint8_t)shifting, shifting;
}

MaskShifts mask_shifts(Arena *arena, const Fn *f, Str query, Str key) {
  return (MaskShifts){
      .f = f, .query = query, .key = key, .of = ARENA_ARRAY(arena, uint8_t, f->values.n + 1)};
}

bool mask_stays(MaskShifts *shifts, ValueId v) { return shift_of(shifts, v) == SHIFT_NOT; }

static bool is_comparison(OpCode c) { return c == OP_lt || c == OP_le || c == OP_eq; }

/* Adds two distances for each comparison, and for each bool that is not computed. */
static int add_distances(const MaskShifts *shifts, ValueId v, int64_t *out, int n) {
  const Op *o = value_def(shifts->f, v);
  const MaskInterval *interval = found(shifts->asked, v), none = {0}, *other = &none;
  bool compares = o && is_comparison(o->code);
  if (!interval || n < 0 || n + 2 > MASK_DISTANCES) return -1;
  if (o && !compares && o->code != OP_const && o->code != OP_lookup) {
    for (uint32_t i = 0; i < o->nin; i++) n = add_distances(shifts, o->in[i], out, n);
    return n;
  }
  if (compares) interval = found(shifts->asked, o->in[0]), other = found(shifts->asked, o->in[1]);
  bool known = interval && other && interval->known && other->known;
  if (compares && !known) return n; /* data: it admits all, or none */
  return out[n] = interval->lo - other->lo, out[n + 1] = interval->hi - other->hi, n + 2;
}

int mask_distances(MaskShifts *shifts, const MaskQuestion *asked, ValueId mask,
                   int64_t out[MASK_DISTANCES]) {
  memset(shifts->of, SHIFT_UNKNOWN, shifts->f->values.n);
  shifts->asked = asked;
  return mask_stays(shifts, mask) ? add_distances(shifts, mask, out, 0) : -1;
}

/* Moments of AdamW in 8 bits (`states = int8`): a code per element, on a grid of powers of 2^(1/3),
   without scales and blocks. So every plan that may cut a moment cuts its codes, and in exact
   arithmetic all plans have the same numbers.

     second moment   0: zero; 1 to 255: 2^-60 .. 2^24.6
     first moment    0: zero; k = 1 to 127: 2^-30 .. 2^12; 128 + k: their negatives

   In an update moments are f32. A moment x between two numbers of the grid, a and b = a 2^(1/3),
   is rounded to b with the probability (x - a) / (b - a) up to 0.1 %, so that means stay what
   they are: rounding to the nearest would never lower a moment that loses 1/1000 in a step. The
   grid falls with the decay of the moment, by the phase of the number of updates, and so an element
   without gradient decays without rounding: its code changes once in ln 2^(1/3) / -ln beta updates,
   and then by 1. A step rounds by less than 26 % of an element; the errors of steps are independent
   and of mean 0. Numbers below the grid become 0: their root is below 1e-9.

   The random number of an element is made of the last bits of its logarithm and of the number of
   updates, a state of its own, which steps that are left out do not count. Must not: read the
   number of the step; be used where a moment decides by itself, without a rate. */
#include "codes8.h"
#include <math.h>

#define UPDATES "moments.updates" /* a state: how many updates have been rounded */

static const double PER_OCTAVE = 3, GOLDEN = 0.61803398874989485, FINE = 64;
static const double NEGATIVE = 128, MOST[] = {126, 254}, LEAST_LOG2[] = {-30, -60}; /* by Codes8 */

static ValueId floor_of(Update *u, ValueId x) { return un(u, OP_floor, x); }

/* x - floor x, f64[] */
static ValueId fraction(Update *u, double factor, ValueId count) {
  ValueId x = schedule_binary(&u->s, OP_mul, count, schedule_number(&u->s, factor));
  return schedule_binary(&u->s, OP_sub, x, floor_of(u, x));
}

/* How far the grid of a moment of this decay has fallen after `count` updates, f32[]. */
static ValueId fallen(Update *u, double decay, ValueId count) {
  double steps = decay > 0 ? -log2(decay) * PER_OCTAVE : 0;
  return to_f32(u, fraction(u, steps - floor(steps), count));
}

void codes8_begin(Update *u) {
  if (u->states != ELEM_u8) return;
  bool counted = global_named(u->m, UPDATES) != NULL;
  Global *updates = update_state(u->m, UPDATES, type_scalar(ELEM_f32));
  ValueId before = load(u, updates), after = bin(u, OP_add, before, num(u, 1));
  ValueId was = ir_cast(u->m, u->f, before, ELEM_f64, u->loc),
          is = ir_cast(u->m, u->f, after, ELEM_f64, u->loc);
  for (int i = 0; i < 2; i++)
    u->phase_was[i] = fallen(u, u->betas[i], was), u->phase_is[i] = fallen(u, u->betas[i], is);
  u->dither = to_f32(u, fraction(u, GOLDEN, is));
  if (!counted) put(u, updates, after);
}

/* 0 <= index: its place on the grid, counted from its least number. */
static ValueId number_at(Update *u, Codes8 kind, ValueId index) {
  ValueId place = bin(u, OP_sub, index, u->phase_was[kind]);
  ValueId power =
      bin(u, OP_add, times(u, place, log(2) / PER_OCTAVE), num(u, LEAST_LOG2[kind] * log(2)));
  return un(u, OP_exp, power);
}

ValueId codes8_read(Update *u, Codes8 kind, ValueId codes) {
  ValueId code = to_f32(u, codes), negative = NO_VALUE;
  if (kind == CODES_FIRST) {
    negative = bin(u, OP_lt, num(u, NEGATIVE), code);
    code = pick(u, negative, bin(u, OP_sub, code, num(u, NEGATIVE)), code);
  }
  ValueId size = number_at(u, kind, bin(u, OP_sub, code, num(u, 1)));
  size = pick(u, bin(u, OP_le, code, num(u, 0)), num(u, 0), size);
  if (kind == CODES_SECOND) return size;
  return pick(u, negative, un(u, OP_neg, size), size);
}

/* place, rounded to a whole number below or above it */
static ValueId rounded(Update *u, ValueId place) {
  double ratio = log(2) / PER_OCTAVE, slope = ratio / expm1(ratio);
  ValueId below = floor_of(u, place), rest = bin(u, OP_sub, place, below);
  ValueId share = bin(u, OP_mul, rest, bin(u, OP_add, num(u, slope), times(u, rest, 1 - slope)));
  ValueId mixed = bin(u, OP_add, times(u, rest, FINE), u->dither);
  ValueId drawn = bin(u, OP_sub, mixed, floor_of(u, mixed));
  ValueId up = ir_cast(u->m, u->f, bin(u, OP_lt, drawn, share), ELEM_f32, u->loc);
  return bin(u, OP_add, below, up);
}

ValueId codes8_of(Update *u, Codes8 kind, ValueId moment) {
  bool first = kind == CODES_FIRST;
  double least = exp2(LEAST_LOG2[kind]);
  ValueId size = first ? un(u, OP_abs, moment) : moment;
  ValueId log_size = un(u, OP_log, bin(u, OP_max, size, num(u, least)));
  ValueId place = bin(u, OP_add, times(u, log_size, PER_OCTAVE / log(2)),
                      bin(u, OP_sub, u->phase_is[kind], num(u, LEAST_LOG2[kind] * PER_OCTAVE)));
  ValueId index = bin(u, OP_max, bin(u, OP_min, rounded(u, place), num(u, MOST[kind])), num(u, 0));
  ValueId code = bin(u, OP_add, index, num(u, 1)), is_zero = bin(u, OP_lt, size, num(u, least));
  code = pick(u, is_zero, num(u, 0), code);
  ValueId below = bin(u, OP_lt, moment, num(u, -least));
  if (first) code = pick(u, below, bin(u, OP_add, code, num(u, NEGATIVE)), code);
  /* casts to codes truncate, as those of messages (passes/precision/int8.c) */
  return ir_cast(u->m, u->f, bin(u, OP_add, code, num(u, 0.5)), ELEM_u8, u->loc);
}

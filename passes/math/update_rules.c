/* The update rules of the optimizers, except the frozen steps of 1-bit Adam (onebit.c): what is
   computed once per step, and the update of one parameter, as element-wise ops over all rounds of
   its stack. LAMB's norms are one number for every round. Must not: clip or guard. */
#include "codes8.h"
#include "guard_nonfinite.h"

/* ---- AdamW ---- */
void update_adamw_begin(Update *u) {
  codes8_begin(u);
  RateSchedule *schedule = &u->s;
  ValueId one = schedule_number(schedule, 1), t = u->count;
  ValueId b1 = schedule_power(schedule, u->betas[0], t),
          b2 = schedule_power(schedule, u->betas[1], t);
  u->rate = to_f32(
      u, schedule_binary(schedule, OP_div, u->lr, schedule_binary(schedule, OP_sub, one, b1)));
  u->root = to_f32(u, un(u, OP_sqrt, schedule_binary(schedule, OP_sub, one, b2)));
  ValueId decay = schedule_binary(schedule, OP_mul, u->lr, decay_number(u));
  u->shrink = to_f32(u, schedule_binary(schedule, OP_sub, one, decay));
}

/* beta2 v + (1 - beta2) d^2; for a step that represents several: beta2 to the power of their
   number */
static ValueId new_second(Update *u, ValueId v, ValueId d) {
  if (u->stays == NO_VALUE)
    return bin(u, OP_add, times(u, v, u->betas[1]),
               bin(u, OP_mul, times(u, d, 1 - u->betas[1]), d));
  return bin(u, OP_add, bin(u, OP_mul, v, u->stays),
             bin(u, OP_mul, bin(u, OP_mul, d, u->comes), d));
}

/* sqrt(v) / root + eps */
static ValueId root_of(Update *u, ValueId v) {
  ValueId root = bin(u, OP_div, un(u, OP_sqrt, v), u->root);
  return bin(u, OP_add, root, num(u, u->eps));
}

static ValueId kept_moment(Update *u, Codes8 kind, Global *moment) {
  return u->states == ELEM_u8 ? codes8_read(u, kind, load(u, moment)) : read_moment(u, moment);
}

static void keep_moment(Update *u, Codes8 kind, Global *moment, ValueId value) {
  put(u, moment, u->states == ELEM_u8 ? codes8_of(u, kind, value) : value);
}

static ValueId new_first(Update *u, ValueId m, ValueId d) {
  return bin(u, OP_add, m, times(u, bin(u, OP_sub, d, m), 1 - u->betas[0]));
}

/* x + decay w */
static ValueId with_decay(Update *u, const Global *global, ValueId x, ValueId w) {
  if (!decays(u, global)) return x;
  return bin(u, OP_add, x, bin(u, OP_mul, w, to_f32(u, decay_number(u))));
}

/* m += (d - m)(1 - beta1); v = beta2 v + (1 - beta2) d^2; w = w (1 - lr decay) - rate m / (sqrt(v)
 * / root + eps) */
void update_adamw(Update *u, Global *global, ValueId w, ValueId d) {
  Global *gm = moment(u, global, "m"), *gv = moment(u, global, "v");
  ValueId m = kept_moment(u, CODES_FIRST, gm), v = kept_moment(u, CODES_SECOND, gv);
  m = new_first(u, m, d);
  v = new_second(u, v, d);
  ValueId denominator = root_of(u, v);
  w = shrunk(u, global, w);
  w = bin(u, OP_sub, w, bin(u, OP_div, bin(u, OP_mul, m, u->rate), denominator));
  keep_moment(u, CODES_FIRST, gm, m);
  keep_moment(u, CODES_SECOND, gv, v);
  put(u, global, w);
}

/* ---- LAMB ---- */
void update_lamb_begin(Update *u) {
  RateSchedule *s = &u->s;
  ValueId one = schedule_number(s, 1), t = u->count;
  ValueId b2 = schedule_power(s, u->betas[1], t);
  u->fresh = to_f32(u, schedule_binary(s, OP_sub, one, schedule_power(s, u->betas[0], t)));
  u->root = to_f32(u, un(u, OP_sqrt, schedule_binary(s, OP_sub, one, b2)));
  u->rate = to_f32(u, u->lr);
}

/* sqrt(sum x^2) over the dims of one round */
static ValueId norm_of_round(Update *u, const Global *global, ValueId x) {
  return un(u, OP_sqrt, guard_squares(u->m, u->f, global, x));
}

/* |w| / |x|, 1 where a norm is 0 */
static ValueId trust(Update *u, const Global *global, ValueId w, ValueId x) {
  ValueId a = norm_of_round(u, global, w), b = norm_of_round(u, global, x);
  ValueId both = bin(u, OP_lt, num(u, 0), bin(u, OP_min, a, b));
  return pick(u, both, bin(u, OP_div, a, b), num(u, 1));
}

/* x = m / (1 - beta1^t) / (sqrt(v) / root + eps) + decay w; w = w - lr |w| / |x| x */
void update_lamb(Update *u, Global *global, ValueId w, ValueId d) {
  Global *gm = moment(u, global, "m"), *gv = moment(u, global, "v");
  ValueId m = read_moment(u, gm), v = read_moment(u, gv);
  m = new_first(u, m, d);
  v = new_second(u, v, d);
  ValueId denominator = root_of(u, v);
  ValueId x = bin(u, OP_div, bin(u, OP_div, m, u->fresh), denominator);
  x = with_decay(u, global, x, w);
  ValueId rate = global->decay ? bin(u, OP_mul, trust(u, global, w, x), u->rate) : u->rate;
  put(u, gm, m);
  put(u, gv, v);
  put(u, global, bin(u, OP_sub, w, bin(u, OP_mul, x, rate)));
}

/* ---- Lion ---- */
void update_decoupled(Update *u) {
  RateSchedule *s = &u->s;
  ValueId decay = schedule_binary(s, OP_mul, u->lr, decay_number(u));
  u->rate = to_f32(u, u->lr);
  u->shrink = to_f32(u, schedule_binary(s, OP_sub, schedule_number(s, 1), decay));
}

void update_lion_begin(Update *u) { update_decoupled(u); }

/* w = w (1 - lr decay) - lr sign(beta1 m + (1 - beta1) d); m = beta2 m + (1 - beta2) d */
void update_lion(Update *u, Global *global, ValueId w, ValueId d) {
  Global *gm = moment(u, global, "m");
  ValueId m = read_moment(u, gm);
  ValueId mean = bin(u, OP_add, times(u, m, u->betas[0]), times(u, d, 1 - u->betas[0]));
  ValueId sign = un(u, OP_sign, mean);
  w = shrunk(u, global, w);
  w = bin(u, OP_sub, w, bin(u, OP_mul, sign, u->rate));
  put(u, gm, bin(u, OP_add, times(u, m, u->betas[1]), times(u, d, 1 - u->betas[1])));
  put(u, global, w);
}

/* ---- schedule-free AdamW ("The Road Less Scheduled", A. Defazio et al.) ---- */
#define WEIGHTS "schedule_free.weights" /* a state: the sum of the weights of all steps */

static ValueId loaded_weights(Update *u, Global *weights) {
  EACH_OP (u->f, o)
    if (o->code == OP_load && o->global == weights) return o->out;
  return NO_VALUE;
}

/* A step weighs factor^2, so that those of a warm-up count less; all lines have one factor. */
void update_schedule_free_begin(Update *u) {
  RateSchedule *schedule = &u->s;
  Global *weights = update_state(u->m, WEIGHTS, type_scalar(ELEM_f32));
  ValueId before = loaded_weights(u, weights);
  ValueId b2 = schedule_power(schedule, u->betas[1], u->count);
  ValueId weight = to_f32(u, schedule_binary(schedule, OP_mul, u->factor, u->factor));
  bool first_line = before == NO_VALUE;
  if (first_line) before = load(u, weights);
  ValueId all = bin(u, OP_add, before, weight);
  u->share = bin(u, OP_div, weight, bin(u, OP_max, all, num(u, 1e-30)));
  u->fresh = to_f32(u, bin(u, OP_le, before, num(u, 0)));
  u->rate = to_f32(u, u->lr);
  u->root = to_f32(
      u, un(u, OP_sqrt, schedule_binary(schedule, OP_sub, schedule_number(schedule, 1), b2)));
  if (first_line) put(u, weights, all);
}

/* v = beta2 v + (1 - beta2) d^2; z = z - lr (d / (sqrt(v) / root + eps) + decay w);
   x = x + share (z - x); w = x + (1 - beta1)(z - x). z begins as w; x is state `ema` */
void update_schedule_free(Update *u, Global *global, ValueId w, ValueId d) {
  Global *gz = state(u, global, "z"), *gx = state(u, global, "ema"), *gv = state(u, global, "v");
  ValueId z = load(u, gz), x = load(u, gx);
  ValueId v = load(u, gv);
  v = new_second(u, v, d);
  d = bin(u, OP_div, d, root_of(u, v));
  d = with_decay(u, global, d, w);
  z = bin(u, OP_add, z, bin(u, OP_mul, w, u->fresh));
  z = bin(u, OP_sub, z, bin(u, OP_mul, d, u->rate));
  x = bin(u, OP_add, x, bin(u, OP_mul, bin(u, OP_sub, z, x), u->share));
  put(u, gz, z);
  put(u, gx, x);
  put(u, gv, v);
  put(u, global, bin(u, OP_add, x, times(u, bin(u, OP_sub, z, x), 1 - u->betas[0])));
}

/* ---- SGD ---- */
void update_sgd_begin(Update *u) { u->rate = to_f32(u, u->lr); }

/* PyTorch's first buffer is the gradient: the same as a buffer that starts at 0, since there is no
 * dampening. */
static ValueId with_momentum(Update *u, Global *g, ValueId d) {
  Global *s = moment(u, g, "momentum");
  ValueId b = bin(u, OP_add, times(u, read_moment(u, s), u->momentum), d);
  put(u, s, b);
  return u->nesterov ? bin(u, OP_add, d, times(u, b, u->momentum)) : b;
}

void update_sgd(Update *u, Global *global, ValueId w, ValueId d) {
  d = with_decay(u, global, d, w);
  if (u->momentum != 0) d = with_momentum(u, global, d);
  w = bin(u, OP_sub, w, bin(u, OP_mul, d, u->rate));
  put(u, global, w);
}

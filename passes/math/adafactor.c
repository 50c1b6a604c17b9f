/* Adafactor ("Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", N. Shazeer and
   M. Stern), as torch.optim.Adafactor. The second moment of a parameter with two sides A and B is
   kept as its means over each side, states `row` [A] and `column` [B]:

     row    <- row + (mean_B d^2 - row) t^-0.8      column likewise, over A
     v       = row column / mean row
     u       = d / sqrt(v)
     w      <- w (1 - lr decay) - min(lr, 1 / sqrt(t)) max(0.001, rms w) u / max(1, rms u)

   A matrix (matrix.h) has its inputs and outputs as sides; a parameter that something else reads,
   such as an embedding, its last dim and the others. One of one dim has the second moment itself,
   state `v`. Each round of a stack has norms of its own, and other dims of a parameter number
   matrices. Must not: clip or guard. */
#include "matrix.h"
#include "guard_nonfinite.h"
#include <math.h>

static const double least_mean = 1.1920928955078125e-07 /* 2^-23 */, least_scale = 1e-3;

typedef struct Sides {
  Str a[MAX_RANK], b[MAX_RANK];
  int na, nb;
} Sides;

/* ---- numbers of the step ---- */

void update_adafactor_begin(Update *u) {
  RateSchedule *schedule = &u->s;
  ValueId one = schedule_number(schedule, 1), log = un(u, OP_log, u->count);
  ValueId exponent = schedule_binary(schedule, OP_mul, log, schedule_number(schedule, -0.8));
  ValueId root = un(u, OP_sqrt, u->count);
  ValueId decay = schedule_binary(schedule, OP_mul, u->lr, decay_number(u));
  u->fresh = to_f32(u, un(u, OP_exp, exponent));
  u->rate = to_f32(
      u, schedule_binary(schedule, OP_min, u->lr, schedule_binary(schedule, OP_div, one, root)));
  u->shrink = to_f32(u, schedule_binary(schedule, OP_sub, one, decay));
}

/* ---- the second moment ---- */

static Sides sides_of(Update *u, const Global *global) {
  Sides sides = {0};
  UpdateMatrix matrix;
  int first = guard_stack_dims(global), n = global->type.rank;
  if (n - first < 2) return sides;
  if (matrix_find(u->m, global, &matrix)) {
    for (; sides.na < matrix.nin; sides.na++) sides.a[sides.na] = matrix.in[sides.na];
    for (; sides.nb < matrix.nout; sides.nb++) sides.b[sides.nb] = matrix.out[sides.nb];
    return sides;
  }
  for (int i = first; i < n - 1; i++) sides.a[sides.na++] = global->type.axis[i].dim;
  sides.b[sides.nb++] = global->type.axis[n - 1].dim;
  return sides;
}

static ValueId mean(Update *u, ValueId x, int n, const Str *dims) {
  const Type *t = value_type(u->f, x);
  double count = 1;
  for (int i = 0; i < n; i++) count *= (double)t->axis[type_find(t, dims[i])].size;
  return times(u, ir_reduce(u->m, u->f, OP_sum, x, n, dims, u->loc), 1 / count);
}

/* The state of this name, of the dims of `now`, a step closer to it. */
static ValueId lerped(Update *u, const Global *global, const char *name, ValueId now) {
  Global *mean_state = state(u, global, name);
  mean_state->type = *value_type(u->f, now);
  ValueId old = load(u, mean_state);
  ValueId new = bin(u, OP_add, old, bin(u, OP_mul, bin(u, OP_sub, now, old), u->fresh));
  put(u, mean_state, new);
  return new;
}

static ValueId second_moment(Update *u, const Global *global, ValueId d) {
  Sides sides = sides_of(u, global);
  ValueId square = bin(u, OP_mul, d, d);
  if (!sides.na) return lerped(u, global, "v", square);
  ValueId row = lerped(u, global, "row", mean(u, square, sides.nb, sides.b));
  ValueId column = lerped(u, global, "column", mean(u, square, sides.na, sides.a));
  ValueId all = bin(u, OP_max, mean(u, row, sides.na, sides.a), num(u, least_mean));
  Type t = *value_type(u->f, d);
  row = bin(u, OP_div, row, emit_spread(u->m, u->f, all, *value_type(u->f, row), u->loc));
  return bin(u, OP_mul, emit_spread(u->m, u->f, row, t, u->loc),
             emit_spread(u->m, u->f, column, t, u->loc));
}

/* ---- the rule ---- */

/* sqrt(mean x^2) over the dims of one round */
static ValueId root_mean(Update *u, const Global *global, ValueId x) {
  double count = 1;
  for (int i = guard_stack_dims(global); i < global->type.rank; i++)
    count *= (double)global->type.axis[i].size;
  ValueId squares = times(u, guard_squares(u->m, u->f, global, x), 1 / count);
  return un(u, OP_sqrt, squares);
}

void update_adafactor(Update *u, Global *global, ValueId w, ValueId d) {
  ValueId v = bin(u, OP_max, second_moment(u, global, d), num(u, least_mean * least_mean));
  ValueId x = bin(u, OP_div, d, un(u, OP_sqrt, v));
  ValueId scale = bin(u, OP_max, root_mean(u, global, w), num(u, least_scale));
  ValueId most = bin(u, OP_max, root_mean(u, global, x), num(u, 1));
  ValueId rate = bin(u, OP_mul, bin(u, OP_div, scale, most), u->rate);
  w = shrunk(u, global, w);
  put(u, global, bin(u, OP_sub, w, bin(u, OP_mul, x, rate)));
}

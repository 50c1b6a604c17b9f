/* bucket[Q -> K; B](far, both): relative positions as T5 has them, an index of B.

   With d = k - q, and n = B / 2 buckets for keys up to the query and as many for later ones (both =
   off: n = B, later ones count as the query's own):

     m = |d| < n / 2    m
     else               n / 2 + log(m / (n / 2)) / log(far / (n / 2)) n / 2, at most n - 1

   The second line is a step function of whole numbers. Its steps are found in f32, as
   transformers computes it, so programs count steps and take no logarithms. */
#include "lower_emit.h"
#include "sema_mask.h"
#include <math.h>

enum { FAR, BOTH, MOST_BUCKETS = 256 };

static bool axes_fit(Eval *e, const Call *call) {
  const AxisGroups *groups = &call->groups;
  if (groups->n == 2 && groups->at[0].arrow && !groups->at[1].arrow && groups->at[0].from.n == 1 &&
      groups->at[0].to.n == 1 && groups->at[1].from.n == 1 &&
      groups->at[0].from.at[0] != groups->at[0].to.at[0])
    return true;
  Report *r = eval_error(e, "E0204", call->axes ? call->axes->span : call->span,
                         "`bucket` takes `[Q -> K; B]`");
  diag_help(r, "for example `bias[Bucket = bucket[Seq -> Key; Bucket]()]`");
  return false;
}

static bool options_fit(Eval *e, const Call *call) {
  const Val *far = &call->arg[FAR], *both = &call->arg[BOTH];
  if (far->kind != VAL_ABSENT && far->kind != VAL_NUMBER) {
    eval_error(e, "E0402", call->expr[FAR]->span, "`far` is a number, not %s",
               kind_text(e->ctx, far));
    return false;
  }
  if (both->kind == VAL_ABSENT || both->kind == VAL_FLAG) return true;
  eval_error(e, "E0402", call->expr[BOTH]->span, "`both` is `on` or `off`, not %s",
             kind_text(e->ctx, both));
  return false;
}

static bool is_both(const Call *call) {
  return call->arg[BOTH].kind == VAL_ABSENT || call->arg[BOTH].number != 0;
}

static double far_of(const Call *call) {
  return call->arg[FAR].kind == VAL_ABSENT ? 128 : call->arg[FAR].number;
}

/* Buckets of one side: even, and few enough for `far`. */
static bool sizes_fit(Eval *e, const Call *call) {
  Str dim = call->groups.at[1].from.at[0];
  int64_t all = eval_size(e, dim), part = is_both(call) ? 4 : 2;
  if (all == SIZE_BAD) return false;
  if (all > 0 && (all % part || all > MOST_BUCKETS)) {
    Report *r = eval_error(e, "E0305", call->span,
                           "`bucket` takes a number of buckets that %d divides", (int)part);
    diag_label(r, "`%s` is %lld", dim, (long long)all);
    diag_fact(r, "half of each side's buckets have one distance each; at most %d in all",
              MOST_BUCKETS);
    return false;
  }
  const Val *far = &call->arg[FAR];
  double least = (double)(all / part);
  if (all <= 0 || (far->kind == VAL_NUMBER && !far->known)) return true;
  if (far_of(call) > least && far_of(call) <= 1 << 24) return true;
  Report *r =
      eval_error(e, "E0305", far->kind == VAL_ABSENT ? call->span : call->expr[FAR]->span,
                 "`far` of `bucket` is %g; it must be above %g, at most 2^24", far_of(call), least);
  diag_fact(r, "distances below %g have a bucket each", least);
  return false;
}

static Val times(Eval *e, Val truth, double factor) {
  Val n = val_tensor(VAL_INT, truth.dims);
  const Val *in[] = {&truth};
  lower_op(e, &n, 1, OP_cast, 1, in, 0, NULL);
  return factor == 1 ? n : pattern_op(e, OP_mul, n, val_number(factor));
}

/* The bucket of distance m on a side of n, as transformers rounds. */
static int64_t bucket_of(int64_t m, int64_t n, double far) {
  int64_t exact = n / 2;
  if (m < exact) return m;
  float over = logf((float)m / (float)exact) / (float)log(far / (double)exact);
  int64_t b = exact + (int64_t)(over * (float)(n - exact));
  return b < n - 1 ? b : n - 1;
}

/* min(m, n / 2), and one more from each distance on where a bucket begins. */
static Val side_buckets(Eval *e, Val m, int64_t n, double far) {
  Val sum = pattern_op(e, OP_min, m, val_number((double)(n / 2)));
  int64_t at = n / 2;
  for (int64_t b = n / 2 + 1; b < n; b++) {
    while (bucket_of(at, n, far) < b) at++;
    Val from = pattern_op(e, OP_le, val_number((double)at), m);
    sum = pattern_op(e, OP_add, sum, times(e, from, 1));
  }
  return sum;
}

Val op_bucket(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  if (!axes_fit(e, call) || !options_fit(e, call) || !sizes_fit(e, call)) return val_poison();
  Str q = call->groups.at[0].from.at[0], k = call->groups.at[0].to.at[0],
      dim = call->groups.at[1].from.at[0];
  eval_size(e, q), eval_size(e, k);
  Dims dims = {.n = 2, .at = {q, k}};
  Val out = val_tensor(VAL_INDEX, dims);
  out.of = dim;
  if (!e->build) return out;
  int64_t all = size_of(e->sizes, dim);
  Val from = pattern_position(e, q), to = lower_widened(e, &from, &dims);
  Val ahead = pattern_op(e, OP_sub, pattern_position(e, k), to), index;
  if (is_both(call)) {
    Val far = val_tensor(VAL_INT, dims);
    const Val *in[] = {&ahead};
    lower_op(e, &far, 1, OP_abs, 1, in, 0, NULL);
    Val later = times(e, pattern_op(e, OP_lt, val_number(0), ahead), (double)(all / 2));
    index = pattern_op(e, OP_add, side_buckets(e, far, all / 2, far_of(call)), later);
  } else {
    Val back = pattern_op(e, OP_sub, to, pattern_position(e, k));
    index = side_buckets(e, pattern_op(e, OP_max, back, val_number(0)), all, far_of(call));
  }
  index.kind = VAL_INDEX, index.of = dim;
  return index;
}

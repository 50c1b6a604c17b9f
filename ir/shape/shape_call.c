/* Signatures of calls, kernels and loops: operands against the callee's arguments, results from the
   callee's results.

   Dims are compared as sets; that their storage agrees from pass `order` on is checked by the
   verifier. The arguments of a loop's body are its counter, the carried values, the invariant ones
   and one slice of each stacked operand. The operands and results of a loop over a part of a stack
   are stacks of these rounds only, or of all; LoopSign.of is the length of the latter. */
#include "shape.h"
#include "ir/support/num.h"

static const char *differ(const Shape *shape, const char *label, const char *what, uint32_t i,
                          const Type *have, const Type *want) {
  return shape_why(shape, "[%s] %s %u is %s, @%s has %s", label, what, i, shape_text(shape, have),
                   shape->op->callee->name, shape_text(shape, want));
}

const char *shape_rule_call(Shape *shape) {
  const Op *op = shape->op;
  const Fn *callee = op->callee;
  if (!callee) return shape_why(shape, "[call-c1] no function is named");
  if (op->ngroups) return shape_why(shape, "[group-c1] %s takes no dims", op_name(op->code));
  if (op->nin != callee->args.n || op->nout != callee->results.n)
    return shape_why(shape, "[call-c2] %u operands and %u results, @%s has %u and %u", op->nin,
                     op->nout, callee->name, callee->args.n, callee->results.n);
  for (uint32_t i = 0; i < op->nin; i++) {
    const Type *want = value_type(callee, callee->args.at[i]);
    if (!shape_same(want, shape_in(shape, i)))
      return differ(shape, "call-c3", "operand", i, shape_in(shape, i), want);
  }
  for (uint32_t i = 0; i < op->nout; i++)
    shape->out[i] = *value_type(callee, callee->results.at[i]);
  return NULL;
}

typedef struct LoopSign {
  Axis axis;
  int64_t carried, invariant, of;
  bool turns; /* stacks may be rings of fewer slots */
} LoopSign;

static const char *loop_turns(const Shape *shape, LoopSign *sign) {
  const Attr *attr = attr_get(&shape->op->attrs, ATTR_turns);
  int64_t chunks = attr_int(&shape->op->attrs, ATTR_interleave, 1), most = sign->axis.size;
  sign->turns = attr != NULL;
  if (chunks < 1 || chunks > MOST_CHUNKS || (!attr && chunks > 1))
    return shape_why(shape, "[turns-c9] %lld chunks, of %d at most, with `turns`",
                     (long long)chunks, MOST_CHUNKS);
  if (chunks > 1 && attr->i) most = round_up(most, attr->i) * chunks;
  for (int64_t i = 0; attr && i < attr->i; i++)
    if (attr->list[i] < 0 || attr->list[i] > most)
      return shape_why(shape, "[turns-c1] %lld parts in flight, of %lld", (long long)attr->list[i],
                       (long long)most);
  bool other = attr_int(&shape->op->attrs, ATTR_reverse, 0) ||
               attr_get(&shape->op->attrs, ATTR_stack_length) ||
               attr_int(&shape->op->attrs, ATTR_start, 0);
  return !attr || (attr->i && !other)
             ? NULL
             : shape_why(shape, "[turns-c2] parts take turns from the first one on");
}

/* Is it the size of a ring? verify_turns.c checks that its slots are enough. */
static bool is_ring(const LoopSign *sign, int64_t size) {
  return sign->turns && size > 0 && size < sign->axis.size;
}

static const char *loop_part(const Shape *shape, LoopSign *sign) {
  int64_t trip = sign->axis.size, first = attr_int(&shape->op->attrs, ATTR_start, 0);
  const Attr *into = attr_get(&shape->op->attrs, ATTR_continues);
  sign->of = attr_int(&shape->op->attrs, ATTR_stack_length, trip);
  const char *why = loop_turns(shape, sign);
  if (why) return why;
  if (first < 0 || first > INT32_MAX - trip)
    return shape_why(shape, "[loop-c9] the first round has number %lld", (long long)first);
  if (attr_get(&shape->op->attrs, ATTR_stack_length) &&
      (sign->of <= trip || first > sign->of - trip))
    return shape_why(shape, "[loop-c10] rounds %lld .. %lld are no part of a stack of %lld",
                     (long long)first, (long long)(first + trip - 1), (long long)sign->of);
  if (into && (sign->of == trip || into->i != shape->op->nout - sign->carried))
    return shape_why(
        shape,
        "[loop-c11] `continues` is for parts of a stack, a number for each of its %lld "
        "stacked results",
        (long long)(shape->op->nout - sign->carried));
  return NULL;
}

static const char *loop_sign(const Shape *shape, LoopSign *sign) {
  const Op *op = shape->op;
  const char *why = shape_one_group(shape, 1, false);
  if (why) return why;
  sign->axis = (Axis){op->group[0].from[0], attr_int(&op->attrs, ATTR_trip, 0)};
  sign->carried = attr_int(&op->attrs, ATTR_carry, 0);
  sign->invariant = attr_int(&op->attrs, ATTR_invariant, 0);
  if (!op->callee) return shape_why(shape, "[call-c1] no function is named");
  if (sign->axis.size < 1) return shape_why(shape, "[loop-c1] trip is not positive");
  if (sign->axis.size > INT32_MAX)
    return shape_why(shape, "[trip-c1] a counter of 32 bits cannot run so far");
  if (sign->carried < 0 || sign->invariant < 0 || sign->carried > op->nin ||
      sign->invariant > op->nin - sign->carried)
    return shape_why(shape, "[loop-c2] fewer operands than carried and invariant ones");
  if (op->callee->args.n != op->nin + 1 || op->callee->results.n != op->nout ||
      op->nout < sign->carried)
    return shape_why(
        shape, "[loop-c3] %u operands and %u results, @%s has %u arguments and %u results", op->nin,
        op->nout, op->callee->name, op->callee->args.n, op->callee->results.n);
  return loop_part(shape, sign);
}

static const char *loop_operand(const Shape *shape, const LoopSign *sign, uint32_t i) {
  const Type *want = value_type(shape->op->callee, shape->op->callee->args.at[i + 1]);
  const Type *have = shape_in(shape, i);
  Type slice = *have;
  if (i >= sign->carried + sign->invariant) {
    int at = type_find(have, sign->axis.dim);
    int64_t size = at < 0 ? 0 : have->axis[at].size;
    if (at < 0 || (size != sign->axis.size && size != sign->of && !is_ring(sign, size)))
      return shape_why(shape, "[loop-c5] stacked operand %u is %s, without %s:%lld", i,
                       shape_text(shape, have), sign->axis.dim, (long long)sign->of);
    slice = type_without(have, &sign->axis.dim, 1);
  }
  return shape_same(&slice, want) ? NULL : differ(shape, "loop-c4", "operand", i, &slice, want);
}

/* The operand that result i continues is a stack of the result's type. */
static const char *loop_continued(const Shape *shape, const LoopSign *sign, uint32_t i,
                                  int64_t to) {
  int64_t stacked = (int64_t)shape->op->nin - sign->carried - sign->invariant;
  if (to < 0 || to >= stacked)
    return shape_why(shape, "[loop-c12] result %u continues stacked operand %lld of %lld", i,
                     (long long)to, (long long)stacked);
  const Type *have = shape_in(shape, (uint32_t)(sign->carried + sign->invariant + to));
  if (!shape_same(have, &shape->out[i]))
    return shape_why(shape, "[loop-c12] result %u is %s and continues %s", i,
                     shape_text(shape, &shape->out[i]), shape_text(shape, have));
  for (uint32_t k = (uint32_t)sign->carried; k < i; k++)
    if (attr_get(&shape->op->attrs, ATTR_continues)->list[k - sign->carried] == to)
      return shape_why(shape, "[loop-c12] results %u and %u continue one operand", k, i);
  return NULL;
}

static const char *loop_result(const Shape *shape, const LoopSign *sign, uint32_t i) {
  const Type *t = value_type(shape->op->callee, shape->op->callee->results.at[i]);
  Type *out = &shape->out[i];
  *out = *t;
  if (i < sign->carried)
    return shape_same(t, shape_in(shape, i))
               ? NULL
               : differ(shape, "loop-c6", "carried value", i, shape_in(shape, i), t);
  if (type_find(t, sign->axis.dim) >= 0 || t->rank == MAX_RANK)
    return shape_why(shape, "[loop-c7] result %u, %s, cannot be stacked along %s", i,
                     shape_text(shape, t), sign->axis.dim);
  const Attr *into = attr_get(&shape->op->attrs, ATTR_continues);
  int64_t to = into ? into->list[i - sign->carried] : INTO_OWN;
  int64_t size = to == INTO_OWN ? sign->axis.size : sign->of;
  const Type *said =
      value_type(shape->f, shape->op->out + i); /* perhaps with other dims, which is wrong */
  int at = type_find(said, sign->axis.dim);
  if (at >= 0 && is_ring(sign, said->axis[at].size)) size = said->axis[at].size;
  *out = (Type){.elem = t->elem, .rank = 1, .axis = {{sign->axis.dim, size}}, .tier = t->tier};
  for (int a = 0; a < t->rank; a++) out->axis[out->rank++] = t->axis[a];
  return to == INTO_OWN || to == INTO_NEW ? NULL : loop_continued(shape, sign, i, to);
}

const char *shape_rule_loop(Shape *shape) {
  LoopSign sign;
  const char *why = loop_sign(shape, &sign);
  if (why) return why;
  Type counter = type_scalar(ELEM_i32);
  if (!type_equal(value_type(shape->op->callee, shape->op->callee->args.at[0]), &counter))
    return shape_why(shape, "[loop-c8] the first argument of @%s is not i32[]",
                     shape->op->callee->name);
  for (uint32_t i = 0; i < shape->op->nin && !why; i++) why = loop_operand(shape, &sign, i);
  for (uint32_t i = 0; i < shape->op->nout && !why; i++) why = loop_result(shape, &sign, i);
  return why;
}

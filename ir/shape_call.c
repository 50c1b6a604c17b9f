/* Signatures of calls, kernels and loops: operands against the callee's arguments, results from the
   callee's results.

   Dims are compared as sets; that their storage agrees from pass `order` on is the verifier's
   business. The arguments of a loop's body are its counter, the carried values, the invariant ones
   and one slice of each stacked operand. Of a loop over a part of a stack the operands and results
   are stacks of the rounds alone or of all; LoopSign.of is the length of these. */
#include "shape.h"
#include "ir/support/num.h"
#include "turns.h"

static const char *differ(const Shape *s, const char *label, const char *what, uint32_t i,
                          const Type *have, const Type *want) {
  return shape_why(s, "[%s] %s %u is %s, @%s has %s", label, what, i, shape_text(s, have),
                   s->op->callee->name, shape_text(s, want));
}

const char *shape_rule_call(Shape *s) {
  const Op *op = s->op;
  const Fn *callee = op->callee;
  if (!callee) return shape_why(s, "[call-c1] no function is named");
  if (op->ngroups) return shape_why(s, "[group-c1] %s takes no dims", op_name(op->code));
  if (op->nin != callee->args.n || op->nout != callee->results.n)
    return shape_why(s, "[call-c2] %u operands and %u results, @%s has %u and %u", op->nin,
                     op->nout, callee->name, callee->args.n, callee->results.n);
  for (uint32_t i = 0; i < op->nin; i++) {
    const Type *want = value_type(callee, callee->args.at[i]);
    if (!shape_same(want, shape_in(s, i)))
      return differ(s, "call-c3", "operand", i, shape_in(s, i), want);
  }
  for (uint32_t i = 0; i < op->nout; i++) s->out[i] = *value_type(callee, callee->results.at[i]);
  return NULL;
}

typedef struct LoopSign {
  Axis axis;
  int64_t carried, invariant, of;
  bool turns; /* stacks may be rings of fewer slots */
} LoopSign;

static const char *loop_turns(const Shape *s, LoopSign *l) {
  const Attr *a = attr_get(&s->op->attrs, ATTR_turns);
  int64_t chunks = attr_int(&s->op->attrs, ATTR_interleave, 1), most = l->axis.size;
  l->turns = a != NULL;
  if (chunks < 1 || chunks > MOST_CHUNKS || (!a && chunks > 1))
    return shape_why(s, "[turns-c9] %lld chunks, of %d at most, with `turns`", (long long)chunks,
                     MOST_CHUNKS);
  if (chunks > 1 && a->i) most = round_up(most, a->i) * chunks;
  for (int64_t i = 0; a && i < a->i; i++)
    if (a->list[i] < 0 || a->list[i] > most)
      return shape_why(s, "[turns-c1] %lld parts in flight, of %lld", (long long)a->list[i],
                       (long long)most);
  bool other = attr_int(&s->op->attrs, ATTR_reverse, 0) || attr_get(&s->op->attrs, ATTR_of) ||
               attr_int(&s->op->attrs, ATTR_first, 0);
  return !a || (a->i && !other) ? NULL
                                : shape_why(s, "[turns-c2] parts take turns from the first one on");
}

/* Is it the size of a ring? How many slots it needs is the table's business (verify_turns.c). */
static bool is_ring(const LoopSign *l, int64_t size) {
  return l->turns && size > 0 && size < l->axis.size;
}

static const char *loop_part(const Shape *s, LoopSign *l) {
  int64_t trip = l->axis.size, first = attr_int(&s->op->attrs, ATTR_first, 0);
  const Attr *into = attr_get(&s->op->attrs, ATTR_into);
  l->of = attr_int(&s->op->attrs, ATTR_of, trip);
  const char *why = loop_turns(s, l);
  if (why) return why;
  if (first < 0 || first > INT32_MAX - trip)
    return shape_why(s, "[loop-c9] the first round has number %lld", (long long)first);
  if (attr_get(&s->op->attrs, ATTR_of) && (l->of <= trip || first > l->of - trip))
    return shape_why(s, "[loop-c10] rounds %lld .. %lld are no part of a stack of %lld",
                     (long long)first, (long long)(first + trip - 1), (long long)l->of);
  if (into && (l->of == trip || into->i != s->op->nout - l->carried))
    return shape_why(s,
                     "[loop-c11] `into` is for parts of a stack, a number for each of its %lld "
                     "stacked results",
                     (long long)(s->op->nout - l->carried));
  return NULL;
}

static const char *loop_sign(const Shape *s, LoopSign *l) {
  const Op *op = s->op;
  const char *why = shape_one_group(s, 1, false);
  if (why) return why;
  l->axis = (Axis){op->group[0].from[0], attr_int(&op->attrs, ATTR_trip, 0)};
  l->carried = attr_int(&op->attrs, ATTR_carry, 0);
  l->invariant = attr_int(&op->attrs, ATTR_invariant, 0);
  if (!op->callee) return shape_why(s, "[call-c1] no function is named");
  if (l->axis.size < 1) return shape_why(s, "[loop-c1] trip is not positive");
  if (l->axis.size > INT32_MAX)
    return shape_why(s, "[trip-c1] a counter of 32 bits cannot run so far");
  if (l->carried < 0 || l->invariant < 0 || l->carried > op->nin ||
      l->invariant > op->nin - l->carried)
    return shape_why(s, "[loop-c2] fewer operands than carried and invariant ones");
  if (op->callee->args.n != op->nin + 1 || op->callee->results.n != op->nout ||
      op->nout < l->carried)
    return shape_why(s, "[loop-c3] %u operands and %u results, @%s has %u arguments and %u results",
                     op->nin, op->nout, op->callee->name, op->callee->args.n,
                     op->callee->results.n);
  return loop_part(s, l);
}

static const char *loop_operand(const Shape *s, const LoopSign *l, uint32_t i) {
  const Type *want = value_type(s->op->callee, s->op->callee->args.at[i + 1]);
  const Type *have = shape_in(s, i);
  Type slice = *have;
  if (i >= l->carried + l->invariant) {
    int at = type_find(have, l->axis.dim);
    int64_t size = at < 0 ? 0 : have->axis[at].size;
    if (at < 0 || (size != l->axis.size && size != l->of && !is_ring(l, size)))
      return shape_why(s, "[loop-c5] stacked operand %u is %s, without %s:%lld", i,
                       shape_text(s, have), l->axis.dim, (long long)l->of);
    slice = type_without(have, &l->axis.dim, 1);
  }
  return shape_same(&slice, want) ? NULL : differ(s, "loop-c4", "operand", i, &slice, want);
}

/* What result i continues is a stack of its type. */
static const char *loop_continued(const Shape *s, const LoopSign *l, uint32_t i, int64_t to) {
  int64_t stacked = (int64_t)s->op->nin - l->carried - l->invariant;
  if (to < 0 || to >= stacked)
    return shape_why(s, "[loop-c12] result %u continues stacked operand %lld of %lld", i,
                     (long long)to, (long long)stacked);
  const Type *have = shape_in(s, (uint32_t)(l->carried + l->invariant + to));
  if (!shape_same(have, &s->out[i]))
    return shape_why(s, "[loop-c12] result %u is %s and continues %s", i, shape_text(s, &s->out[i]),
                     shape_text(s, have));
  for (uint32_t k = (uint32_t)l->carried; k < i; k++)
    if (attr_get(&s->op->attrs, ATTR_into)->list[k - l->carried] == to)
      return shape_why(s, "[loop-c12] results %u and %u continue one operand", k, i);
  return NULL;
}

static const char *loop_result(const Shape *s, const LoopSign *l, uint32_t i) {
  const Type *t = value_type(s->op->callee, s->op->callee->results.at[i]);
  Type *out = &s->out[i];
  *out = *t;
  if (i < l->carried)
    return shape_same(t, shape_in(s, i))
               ? NULL
               : differ(s, "loop-c6", "carried value", i, shape_in(s, i), t);
  if (type_find(t, l->axis.dim) >= 0 || t->rank == MAX_RANK)
    return shape_why(s, "[loop-c7] result %u, %s, cannot be stacked along %s", i, shape_text(s, t),
                     l->axis.dim);
  const Attr *into = attr_get(&s->op->attrs, ATTR_into);
  int64_t to = into ? into->list[i - l->carried] : INTO_OWN;
  int64_t size = to == INTO_OWN ? l->axis.size : l->of;
  const Type *said = value_type(s->f, s->op->out + i); /* perhaps with other dims, which is wrong */
  int at = type_find(said, l->axis.dim);
  if (at >= 0 && is_ring(l, said->axis[at].size)) size = said->axis[at].size;
  *out = (Type){.elem = t->elem, .rank = 1, .axis = {{l->axis.dim, size}}, .tier = t->tier};
  for (int a = 0; a < t->rank; a++) out->axis[out->rank++] = t->axis[a];
  return to == INTO_OWN || to == INTO_NEW ? NULL : loop_continued(s, l, i, to);
}

const char *shape_rule_loop(Shape *s) {
  LoopSign l;
  const char *why = loop_sign(s, &l);
  if (why) return why;
  Type counter = type_scalar(ELEM_i32);
  if (!type_equal(value_type(s->op->callee, s->op->callee->args.at[0]), &counter))
    return shape_why(s, "[loop-c8] the first argument of @%s is not i32[]", s->op->callee->name);
  for (uint32_t i = 0; i < s->op->nin && !why; i++) why = loop_operand(s, &l, i);
  for (uint32_t i = 0; i < s->op->nout && !why; i++) why = loop_result(s, &l, i);
  return why;
}

/* Checks of ops whose result type is part of the op (rule `given`): sources, moved indexes,
   scatter.

   The size of a new dim (a slice, a piece of a split, an expanded dim) appears only in the result's
   type, so the type is written with the op and each rule rebuilds it from the operands, taking new
   sizes from it. Result dims may have any order. */
#include "shape.h"
#include "ir/collective.h"

static int64_t carried_size(const Shape *shape, Str dim) {
  int at = type_find(shape_carried(shape), dim);
  return at < 0 ? 0 : shape_carried(shape)->axis[at].size;
}

static const char *push_axis(const Shape *shape, Type *t, Str dim, int64_t size) {
  if (type_find(t, dim) >= 0)
    return shape_why(shape, "[type-c2] dim %s would be in the result twice", dim);
  if (t->rank == MAX_RANK) return shape_why(shape, "[type-c1] a rank above %d", MAX_RANK);
  t->axis[t->rank++] = (Axis){dim, size};
  return NULL;
}

static const char *agree(const Shape *shape, const Type *expected) {
  Type t = type_in_tier(*expected, shape_carried(shape)->tier); /* shape.c looks at that */
  if (shape_same(&t, shape_carried(shape))) return NULL;
  return shape_why(shape, "[given-c1] the result is %s, expected %s",
                   shape_text(shape, shape_carried(shape)), shape_text(shape, expected));
}

static const char *given_const(const Shape *shape, Type *t) {
  *t = type_scalar(shape_carried(shape)->elem);
  return shape->op->ngroups ? shape_why(shape, "[group-c1] const takes no dims") : NULL;
}

static const char *given_iota(const Shape *shape, Type *t) {
  const char *why = shape_one_group(shape, 1, false);
  if (why) return why;
  Str dim = shape_group(shape, 0).from[0];
  *t = type_scalar(ELEM_i32);
  return push_axis(shape, t, dim, carried_size(shape, dim));
}

static const char *given_rand(const Shape *shape, Type *t) {
  static const char *const names[] = {"seed", "step", "base"};
  const char *why = shape_one_group(shape, -1, false);
  Group group = shape_group(shape, 0);
  for (uint32_t i = 0; i < 3 && !why; i++)
    if (shape_in(shape, i)->rank || elem_class(shape_in(shape, i)->elem) != CLASS_INT)
      why = shape_why(shape, "[rand-c1] %s is %s, not one int", names[i],
                      shape_text(shape, shape_in(shape, i)));
  const Attr *strides = attr_get(&shape->op->attrs, ATTR_strides);
  if (!why && (strides ? strides->i : 0) != group.nfrom)
    why = shape_why(shape, "[rand-c2] %d strides for %d dims", (int)(strides ? strides->i : 0),
                    group.nfrom);
  *t = type_scalar(ELEM_f32);
  for (int i = 0; i < group.nfrom && !why; i++)
    why = push_axis(shape, t, group.from[i], carried_size(shape, group.from[i]));
  return why;
}

static const char *given_expand(const Shape *shape, Type *t) {
  const char *why = shape_one_group(shape, -1, false);
  Group group = shape_group(shape, 0);
  *t = *shape_in(shape, 0);
  for (int i = 0; i < group.nfrom && !why; i++)
    why = push_axis(shape, t, group.from[i], carried_size(shape, group.from[i]));
  return why;
}

static const char *remove_dims(const Shape *shape, Type *t, int n, const Str *dims) {
  const char *why = NULL;
  for (int i = 0; i < n && !why; i++) {
    why = shape_has(shape, t, dims[i]);
    *t = type_without(t, &dims[i], 1);
  }
  return why;
}

/* The type without the old dims of all groups, each of which is `written` so. They go before any
   new dim comes, so that names may be exchanged. */
static const char *remove_groups(const Shape *shape, Type *t, const char *rule,
                                 const char *written) {
  const Op *op = shape->op;
  const char *why = op->ngroups ? NULL : shape_why(shape, "[%s] no dim is listed", rule);
  *t = *shape_in(shape, 0);
  for (int i = 0; i < op->ngroups && !why; i++) {
    const Group *group = &op->group[i];
    bool fits = op->code == OP_split   ? group->nfrom == 1 && group->nto > 1
                : op->code == OP_merge ? group->nfrom > 1 && group->nto == 1
                                       : group->nfrom > 0 && group->nfrom == group->nto;
    if (!fits) return shape_why(shape, "[%s] the dims are written %s", rule, written);
    why = remove_dims(shape, t, group->nfrom, group->from);
  }
  return why;
}

static const char *given_rename(const Shape *shape, Type *t) {
  const char *why = remove_groups(shape, t, "rename-c1", "[A -> B]");
  for (int i = 0; i < shape->op->ngroups && !why; i++) {
    const Group *group = &shape->op->group[i];
    for (int j = 0; j < group->nto && !why; j++)
      why = push_axis(shape, t, group->to[j], type_size(shape_in(shape, 0), group->from[j]));
  }
  return why;
}

static const char *split_group(const Shape *shape, Type *t, const Group *group, const Type *a) {
  int64_t product = 1;
  const char *why = NULL;
  for (int i = 0; i < group->nto && !why; i++) {
    int64_t size = carried_size(shape, group->to[i]);
    why = push_axis(shape, t, group->to[i], size);
    product *= size;
  }
  if (!why && product != type_size(a, group->from[0]))
    why = shape_why(shape, "[split-c2] the pieces of %s make %lld, not %lld", group->from[0],
                    (long long)product, (long long)type_size(a, group->from[0]));
  return why;
}

static const char *given_split(const Shape *shape, Type *t) {
  const char *why = remove_groups(shape, t, "split-c1", "[D -> A, B]");
  for (int i = 0; i < shape->op->ngroups && !why; i++)
    why = split_group(shape, t, &shape->op->group[i], shape_in(shape, 0));
  return why;
}

static const char *given_merge(const Shape *shape, Type *t) {
  const char *why = remove_groups(shape, t, "merge-c1", "[A, B -> D]");
  for (int i = 0; i < shape->op->ngroups && !why; i++) {
    const Group *group = &shape->op->group[i];
    int64_t product = 1;
    for (int j = 0; j < group->nfrom; j++) product *= type_size(shape_in(shape, 0), group->from[j]);
    why = push_axis(shape, t, group->to[0], product);
  }
  return why;
}

/* slice[D -> A] and pad[A -> D]: the short dim begins at `at` in the long one */
static const char *given_part(const Shape *shape, Type *t) {
  Group group = shape_group(shape, 0);
  const char *why = shape_one_group(shape, 1, true);
  if (!why && group.nto != 1) why = shape_why(shape, "[group-c3] one dim is expected after `->`");
  if (!why) why = shape_has(shape, shape_in(shape, 0), group.from[0]);
  if (why) return why;
  int64_t size = carried_size(shape, group.to[0]), at = attr_int(&shape->op->attrs, ATTR_at, 0);
  int64_t from = type_size(shape_in(shape, 0), group.from[0]);
  int64_t inner = shape->op->code == OP_slice ? size : from,
          outer = shape->op->code == OP_slice ? from : size;
  *t = type_without(shape_in(shape, 0), group.from, 1);
  why = push_axis(shape, t, group.to[0], size);
  if (!why && (at < 0 || at > outer || inner > outer - at))
    why = shape_why(shape, "[part-c1] elements %lld .. %lld of a dim of %lld", (long long)at,
                    (long long)(at + inner - 1), (long long)outer);
  return why;
}

static const char *given_concat(const Shape *shape, Type *t) {
  Group group = shape_group(shape, 0);
  const char *why = shape_one_group(shape, -1, true);
  if (!why && (group.nto != 1 || group.nfrom < 1 || shape->op->nin != (uint32_t)group.nfrom))
    why = shape_why(shape, "[concat-c1] the dims are written [A, B -> D], one for each operand");
  int64_t size = 0;
  for (int i = 0; i < group.nfrom && !why; i++) {
    const Type *a = shape_in(shape, (uint32_t)i);
    why = shape_has(shape, a, group.from[i]);
    if (why) return why;
    Type rest = type_without(a, &group.from[i], 1);
    if (i == 0) *t = rest;
    if (!shape_same(t, &rest))
      return shape_why(shape, "[concat-c2] the other dims differ: %s and %s", shape_text(shape, t),
                       shape_text(shape, &rest));
    size += type_size(a, group.from[i]);
  }
  return why ? why : push_axis(shape, t, group.to[0], size);
}

/* pack_bits[D -> E] and unpack_bits[E -> D]: eight elements of D are a byte of E. */
static const char *given_bits(const Shape *shape, Type *t) {
  bool packs = shape->op->code == OP_pack_bits;
  Elem want = packs ? ELEM_bool : ELEM_u8;
  Group group = shape_group(shape, 0);
  const Type *a = shape_in(shape, 0);
  const char *why = shape_one_group(shape, 1, true);
  if (!why && group.nto != 1) why = shape_why(shape, "[group-c3] one dim is expected after `->`");
  if (!why) why = shape_has(shape, a, group.from[0]);
  if (!why && a->elem != want)
    why = shape_why(shape, "[bits-c1] the operand is %s, not %s", shape_text(shape, a),
                    elem_name(want));
  if (why) return why;
  int64_t n = type_size(a, group.from[0]);
  if (packs && n % 8)
    return shape_why(shape, "[bits-c2] %lld bits of %s are no whole bytes", (long long)n,
                     group.from[0]);
  *t = type_with_elem(type_without(a, group.from, 1), packs ? ELEM_u8 : ELEM_bool);
  return push_axis(shape, t, group.to[0], packs ? n / 8 : n * 8);
}

static const char *given_scatter(const Shape *shape, Type *t) {
  const Type *x = shape_in(shape, 0), *index = shape_in(shape, 1);
  Group group = shape_group(shape, 0);
  const char *why = shape_one_group(shape, -1, true);
  if (!why && group.nto != 1)
    why = shape_why(shape, "[scatter-c1] the dims are written [A, B -> D]");
  for (int i = 0; i < group.nfrom && !why; i++) why = shape_has(shape, index, group.from[i]);
  if (!why && elem_class(index->elem) != CLASS_INT)
    why = shape_why(shape, "[scatter-c2] the index is %s, not an int", shape_text(shape, index));
  if (!why && !type_contains(x, index))
    why = shape_why(shape, "[scatter-c3] the index has dims that the operand has not: %s, %s",
                    shape_text(shape, index), shape_text(shape, x));
  if (!why && elem_class(x->elem) != CLASS_FLOAT && elem_class(x->elem) != CLASS_INT)
    why = shape_why(shape, "[scatter-c4] scatter adds numbers, not %s", elem_name(x->elem));
  *t = *x;
  if (!why) why = remove_dims(shape, t, group.nfrom, group.from);
  return why ? why : push_axis(shape, t, group.to[0], carried_size(shape, group.to[0]));
}

/* The listed dims exchange blocks of `ways` ranks: from loses them, to gains them. */
static const char *exchange(const Shape *shape, Type *t, Str joined, Str cut) {
  int64_t ways = attr_int(&shape->op->attrs, ATTR_ranks, 0);
  const char *why = joined ? shape_has(shape, t, joined) : NULL;
  if (!why && cut) why = shape_has(shape, t, cut);
  if (why || !ways) return why;
  if (joined) t->axis[type_find(t, joined)].size *= ways;
  if (cut && type_size(t, cut) % ways)
    why = shape_why(shape, "[collective-c2] %lld ranks do not divide %s of %s", (long long)ways,
                    cut, shape_text(shape, t));
  if (cut) t->axis[type_find(t, cut)].size /= ways;
  return why;
}

static const char *given_collective(const Shape *shape, Type *t) {
  Group group = shape_group(shape, 0);
  OpCode c = shape->op->code;
  bool joins = op_collective(c)->from == AXIS_CUT, cuts = op_collective(c)->to == AXIS_CUT;
  *t = shape->op->nin ? *shape_in(shape, 0) : *shape_carried(shape);
  if (shape->op->nin > 1)
    return shape_why(shape, "[hop-c3] receive has %u operands, at most one", shape->op->nin);
  if (!joins && !cuts)
    return shape->op->ngroups ? shape_why(shape, "[group-c1] %s takes no dims", op_name(c)) : NULL;
  const char *why = shape_one_group(shape, 1, joins && cuts);
  if (!why && joins && cuts && (group.nto != 1 || group.from[0] == group.to[0]))
    why = shape_why(shape, "[collective-c1] the dims are written [D -> E]");
  return why ? why : exchange(shape, t, collective_joins(shape->op), collective_cuts(shape->op));
}

typedef const char *GivenRule(const Shape *s, Type *expected);

static GivenRule *const given[OP_COUNT] = {
    [OP_const] = given_const,     [OP_iota] = given_iota,      [OP_rand] = given_rand,
    [OP_expand] = given_expand,   [OP_rename] = given_rename,  [OP_split] = given_split,
    [OP_merge] = given_merge,     [OP_slice] = given_part,     [OP_pad] = given_part,
    [OP_concat] = given_concat,   [OP_pack_bits] = given_bits, [OP_unpack_bits] = given_bits,
    [OP_scatter] = given_scatter,
#define COLLECTIVE(name, kind, words, from, to, passes, way, library)                              \
  [OP_##name] = given_collective,
#define PLACES(name, from, to) [OP_##name] = given_collective,
#include "ir/collectives.def"
};

const char *shape_rule_given(Shape *shape) {
  if (!given[shape->op->code])
    bug("op %s has no check for its given type", op_name(shape->op->code));
  Type expected;
  const char *why = given[shape->op->code](shape, &expected);
  if (!why) why = agree(shape, &expected);
  shape->out[0] = *shape_carried(shape);
  return why;
}

/* Result types of ops: one small function per rule of the column `shape` of ops.def.

   Rules compute with names: operands' dims are sets, and the order of the result is the natural one
   (that of the operand it follows). Ops of rule `given` carry their types and are checked
   (shape_given.c); calls and loops follow the signature of what they call (shape_call.c). Rules
   look at nothing but the op, so that any pass may ask at any time. */
#include "shape.h"
#include "ir/attention_operands.h"
#include "ir/rope.h"

const char *shape_why(const Shape *shape, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(shape->m->arena, format, args);
  va_end(args);
  return text;
}

const Type *shape_in(const Shape *shape, uint32_t i) {
  return value_type(shape->f, shape->op->in[i]);
}
const Type *shape_carried(const Shape *shape) { return value_type(shape->f, shape->op->out); }

Group shape_group(const Shape *shape, int i) {
  return i < shape->op->ngroups ? shape->op->group[i] : group_dims(0, NULL);
}

bool shape_same(const Type *a, const Type *b) {
  return a->elem == b->elem && a->tier == b->tier && type_same_dims(a, b);
}

const char *shape_text(const Shape *shape, const Type *t) { return type_text(shape->m, t); }

static bool repeats(int n, const Str *dims) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (dims[i] == dims[j]) return true;
  return false;
}

const char *shape_one_group(const Shape *shape, int n, bool arrow) {
  Group group = shape_group(shape, 0);
  if (shape->op->ngroups > 1) return shape_why(shape, "[group-c1] one group of dims is expected");
  if (group.arrow != arrow)
    return shape_why(shape, "[group-c2] the group %s `->`", arrow ? "needs" : "has no");
  if (n >= 0 && group.nfrom != n)
    return shape_why(shape, "[group-c3] %d dims are listed, %d expected", group.nfrom, n);
  if (!arrow && repeats(group.nfrom, group.from))
    return shape_why(shape, "[group-c4] a dim is listed twice");
  return NULL;
}

const char *shape_has(const Shape *shape, const Type *t, Str dim) {
  if (type_find(t, dim) >= 0) return NULL;
  return shape_why(shape, "[group-c5] dim %s is not in %s", dim, shape_text(shape, t));
}

enum {
  FLOATS = 1 << CLASS_FLOAT,
  INTS = 1 << CLASS_INT,
  BOOLS = 1 << CLASS_BOOL,
  BYTES = 1 << CLASS_BYTE
};
enum { NUMBERS = FLOATS | INTS, ALL = NUMBERS | BOOLS | BYTES };

/* Element types that an op admits, where that is not floats only. */
static const unsigned admitted[OP_COUNT] = {
    [OP_neg] = NUMBERS,   [OP_abs] = NUMBERS,  [OP_sign] = NUMBERS,   [OP_add] = NUMBERS,
    [OP_sub] = NUMBERS,   [OP_mul] = NUMBERS,  [OP_div] = NUMBERS,    [OP_min] = NUMBERS,
    [OP_max] = NUMBERS,   [OP_lt] = NUMBERS,   [OP_le] = NUMBERS,     [OP_eq] = ALL,
    [OP_where] = ALL,     [OP_copy] = ALL,     [OP_stop] = ALL,       [OP_not] = BOOLS,
    [OP_and] = BOOLS,     [OP_or] = BOOLS,     [OP_sum] = NUMBERS,    [OP_rmax] = NUMBERS,
    [OP_lookup] = INTS,   [OP_rmin] = NUMBERS, [OP_argmax] = NUMBERS, [OP_cumsum] = NUMBERS,
    [OP_shift] = NUMBERS,
};

static const char *check_elem(const Shape *shape, Elem e) {
  unsigned admits = admitted[shape->op->code] ? admitted[shape->op->code] : FLOATS;
  if (admits >> elem_class(e) & 1) return NULL;
  return shape_why(shape, "[elem-c3] %s does not take %s", op_name(shape->op->code), elem_name(e));
}

static const char *no_groups(const Shape *shape) {
  return shape->op->ngroups
             ? shape_why(shape, "[group-c1] %s takes no dims", op_name(shape->op->code))
             : NULL;
}

/* Operands that carry data have one element type; the first of where is its condition. */
static const char *check_data(const Shape *shape, uint32_t first) {
  if (first && shape_in(shape, 0)->elem != ELEM_bool)
    return shape_why(shape, "[elem-c4] the condition is %s, not bool",
                     shape_text(shape, shape_in(shape, 0)));
  for (uint32_t i = first + 1; i < shape->op->nin; i++)
    if (shape_in(shape, i)->elem != shape_in(shape, first)->elem)
      return shape_why(shape, "[elem-c2] element types differ: %s and %s",
                       shape_text(shape, shape_in(shape, first)),
                       shape_text(shape, shape_in(shape, i)));
  return check_elem(shape, shape_in(shape, first)->elem);
}

static const Type *largest_operand(const Shape *shape) {
  for (uint32_t i = 0; i < shape->op->nin; i++) {
    bool all = true;
    for (uint32_t j = 0; j < shape->op->nin; j++)
      all &= type_contains(shape_in(shape, i), shape_in(shape, j));
    if (all) return shape_in(shape, i);
  }
  return NULL;
}

static const char *rule_elem(Shape *shape) {
  const char *why = no_groups(shape);
  uint32_t first = shape->op->code == OP_where;
  if (!why) why = check_data(shape, first);
  if (why) return why;
  const Type *big = largest_operand(shape);
  if (!big)
    return shape_why(shape, "[elem-c1] no operand has the dims of all: %s, %s",
                     shape_text(shape, shape_in(shape, shape->op->nin > 2)),
                     shape_text(shape, shape_in(shape, shape->op->nin - 1)));
  bool boolean = op_flags(shape->op->code) & BOOLR;
  shape->out[0] = type_with_elem(*big, boolean ? ELEM_bool : shape_in(shape, first)->elem);
  return NULL;
}

static const char *rule_cast(Shape *shape) {
  shape->out[0] = type_with_elem(*shape_in(shape, 0), shape_carried(shape)->elem);
  return no_groups(shape);
}

static const char *rule_reduce(Shape *shape) {
  const Type *a = shape_in(shape, 0);
  Group group = shape_group(shape, 0);
  const char *why = shape_one_group(shape, -1, false);
  if (!why && !group.nfrom) why = shape_why(shape, "[reduce-c1] no dim is listed");
  for (int i = 0; i < group.nfrom && !why; i++) why = shape_has(shape, a, group.from[i]);
  if (!why) why = check_elem(shape, a->elem);
  if (!why) shape->out[0] = type_without(a, group.from, group.nfrom);
  return why;
}

static const char *rule_argmax(Shape *shape) {
  const char *why = shape_one_group(shape, 1, false);
  if (!why) why = rule_reduce(shape);
  if (!why) shape->out[0].elem = ELEM_i32;
  return why;
}

static const char *check_rope(const Shape *shape) {
  const Type *a = shape_in(shape, 0);
  Group seq = shape_group(shape, 0), dim = shape_group(shape, 1);
  if (shape->op->ngroups != 2 || seq.nfrom != 1 || dim.nfrom != 1 || seq.arrow || dim.arrow ||
      seq.from[0] == dim.from[0])
    return shape_why(shape, "[rope-c1] the dims are written [S; D]");
  const char *why = shape_has(shape, a, seq.from[0]);
  if (!why) why = shape_has(shape, a, dim.from[0]);
  if (why) return why;
  if (type_size(a, dim.from[0]) % 2) return shape_why(shape, "[rope-c2] D is not even");
  if (shape->op->nin < 1 || shape->op->nin > 2)
    return shape_why(shape, "[rope-c3] one or two operands");
  why = rope_wrong(shape->op);
  if (why) return shape_why(shape, "[rope-c5] %s", why);
  if (shape->op->nin == 1) return check_elem(shape, a->elem);
  const Type *pos = shape_in(shape, 1);
  Type rest = type_without(a, dim.from, 1);
  if (elem_class(pos->elem) != CLASS_INT || !type_contains(&rest, pos))
    return shape_why(shape,
                     "[rope-c4] positions are %s, not ints over dims of the operand without D",
                     shape_text(shape, pos));
  return check_elem(shape, a->elem);
}

static const char *rule_same(Shape *shape) {
  if (!shape->op->nin) return shape_why(shape, "[same-c1] an operand is missing");
  const Type *a = shape_in(shape, 0);
  shape->out[0] = *a;
  if (shape->op->code == OP_rope) return check_rope(shape);
  const char *why = shape_one_group(shape, 1, false);
  if (!why) why = shape_has(shape, a, shape_group(shape, 0).from[0]);
  return why ? why : check_elem(shape, a->elem);
}

static const char *rule_wait(Shape *shape) {
  if (!shape->op->nin) return shape_why(shape, "[same-c1] an operand is missing");
  shape->out[0] = *shape_in(shape, 0);
  return shape->op->ngroups ? shape_why(shape, "[group-c1] no group of dims is expected") : NULL;
}

static const char *rule_unstack(Shape *shape) {
  const Type *a = shape_in(shape, 0);
  Str dim = shape_group(shape, 0).from[0];
  const char *why = shape_one_group(shape, 1, false);
  if (!why) why = shape_has(shape, a, dim);
  if (why) return why;
  if (type_size(a, dim) != shape->op->nout)
    return shape_why(shape, "[unstack-c1] %u results of a dim of %lld", shape->op->nout,
                     (long long)type_size(a, dim));
  for (uint32_t i = 0; i < shape->op->nout; i++) shape->out[i] = type_without(a, &dim, 1);
  return NULL;
}

static const char *rule_stack(Shape *shape) {
  const char *why = shape_one_group(shape, 1, false);
  if (why) return why;
  Str dim = shape_group(shape, 0).from[0];
  if (!shape->op->nin) return shape_why(shape, "[stack-c1] an operand is missing");
  const Type *a = shape_in(shape, 0);
  for (uint32_t i = 1; i < shape->op->nin; i++)
    if (!shape_same(a, shape_in(shape, i)))
      return shape_why(shape, "[stack-c2] operands differ: %s and %s", shape_text(shape, a),
                       shape_text(shape, shape_in(shape, i)));
  if (type_find(a, dim) >= 0)
    return shape_why(shape, "[stack-c3] the operands have dim %s already", dim);
  if (a->rank == MAX_RANK) return shape_why(shape, "[type-c1] a rank above %d", MAX_RANK);
  shape->out[0] =
      (Type){.elem = a->elem, .rank = 1, .axis = {{dim, shape->op->nin}}, .tier = a->tier};
  for (int i = 0; i < a->rank; i++) shape->out[0].axis[shape->out[0].rank++] = a->axis[i];
  return NULL;
}

/* Axes of b that a does not have; those that both have must be equally long. */
static const char *append_rest(const Shape *shape, Type *out, const Type *a, const Type *b) {
  for (int i = 0; i < b->rank; i++) {
    int at = type_find(a, b->axis[i].dim);
    if (at >= 0 && a->axis[at].size != b->axis[i].size)
      return shape_why(shape, "[share-c1] dim %s differs: %s and %s", b->axis[i].dim,
                       shape_text(shape, a), shape_text(shape, b));
    if (at >= 0) continue;
    if (out->rank == MAX_RANK) return shape_why(shape, "[type-c1] a rank above %d", MAX_RANK);
    out->axis[out->rank++] = b->axis[i];
  }
  return NULL;
}

/* Sums are made in f32: narrow operands may deliver them unrounded. */
static bool delivers_f32(const Shape *shape) {
  const Value *out = &shape->f->values.at[shape->op->out];
  bool placed = out->def < shape->f->ops.n && &shape->f->ops.at[out->def] == shape->op;
  Elem e = shape_in(shape, 0)->elem;
  return placed && elem_is_half(e) && out->type.elem == ELEM_f32;
}

static const char *rule_dot(Shape *shape) {
  const Type *a = shape_in(shape, 0), *b = shape_in(shape, 1);
  Group group = shape_group(shape, 0);
  const char *why = shape_one_group(shape, -1, false);
  if (!why) why = check_data(shape, 0);
  for (int i = 0; i < group.nfrom && !why; i++)
    if (type_find(a, group.from[i]) < 0 || type_find(b, group.from[i]) < 0)
      why = shape_why(shape, "[dot-c1] dim %s is not in both: %s, %s", group.from[i],
                      shape_text(shape, a), shape_text(shape, b));
  if (why) return why;
  shape->out[0] = type_without(a, group.from, group.nfrom);
  if (delivers_f32(shape)) shape->out[0].elem = ELEM_f32;
  return append_rest(shape, &shape->out[0], a, b);
}

static const char *rule_gather(Shape *shape) {
  const Type *w = shape_in(shape, 0), *index = shape_in(shape, 1);
  Str dim = shape_group(shape, 0).from[0];
  const char *why = shape_one_group(shape, 1, false);
  if (!why) why = shape_has(shape, w, dim);
  if (why) return why;
  if (elem_class(index->elem) != CLASS_INT)
    return shape_why(shape, "[gather-c1] the index is %s, not an int", shape_text(shape, index));
  Type rest = type_without(w, &dim, 1);
  shape->out[0] = type_with_elem(*index, w->elem);
  return append_rest(shape, &shape->out[0], index, &rest);
}

/* attention[Q -> K; D] q, k, v: dims of q, and of k and v, which are q's with K for Q, maybe fewer.
 */
static const char *check_heads(const Shape *shape, Str query, Str key, Str dim) {
  const Type *q = shape_in(shape, 0), *k = shape_in(shape, 1), *v = shape_in(shape, 2);
  if (type_find(q, query) < 0 || type_find(q, dim) < 0 || type_find(q, key) >= 0)
    return shape_why(shape, "[attention-c2] q is %s: it has Q and D, not K", shape_text(shape, q));
  if (type_find(k, key) < 0 || type_find(k, dim) < 0 || type_find(k, query) >= 0)
    return shape_why(shape, "[attention-c3] k is %s: it has K and D, not Q", shape_text(shape, k));
  Type rest = type_without(k, &key, 1);
  if (!type_contains(q, &rest))
    return shape_why(shape, "[attention-c4] k has dims that q has not: %s, %s",
                     shape_text(shape, k), shape_text(shape, q));
  if (!shape_same(k, v)) return shape_why(shape, "[attention-c5] k and v have different types");
  if (q->elem != k->elem || elem_class(q->elem) != CLASS_FLOAT)
    return shape_why(shape, "[attention-c6] q, k, v are floats of one type");
  return NULL;
}

static Type lse_type(const Shape *shape) {
  Group group = shape_group(shape, 1);
  return type_with_elem(type_without(shape_in(shape, 0), group.from, 1), ELEM_f32);
}

/* Dims of the scores: those of the rows, and K. */
static bool over_scores(const Shape *shape, const Type *operand) {
  Str key = shape_group(shape, 0).to[0];
  Type rows = lse_type(shape), rest = type_without(operand, &key, 1);
  int at = type_find(operand, key);
  return type_contains(&rows, &rest) &&
         (at < 0 || operand->axis[at].size == type_size(shape_in(shape, 1), key));
}

static const char *check_role(const Shape *shape, AttentionRole role, const Type *operand) {
  bool fits = over_scores(shape, operand), real = elem_class(operand->elem) == CLASS_FLOAT;
  const char *text = shape_text(shape, operand);
  if (role == ATTENTION_MASK && !fits)
    return shape_why(shape, "[attention-c7] the mask is %s, not bool over dims of the scores",
                     text);
  if (role == ATTENTION_KEPT && !(fits && attr_get(&shape->op->attrs, ATTR_drop)))
    return shape_why(
        shape, "[attention-c14] what is kept is %s, not an int over dims of the scores", text);
  if (role == ATTENTION_BIAS && !(fits && real))
    return shape_why(shape, "[attention-c12] the bias is %s, not a float over dims of the scores",
                     text);
  if (role == ATTENTION_SINK && !(fits && real))
    return shape_why(shape, "[attention-c10] the sink is %s, not a float over dims of the rows",
                     text);
  return NULL;
}

/* A mask, what is kept, a bias, a sink: each at most once, in this order. */
static const char *check_further(const Shape *shape, uint32_t fixed) {
  int last = -1, most = fixed == 3 ? ATTENTION_SINK : ATTENTION_BIAS;
  for (uint32_t i = fixed; i < shape->op->nin; i++) {
    AttentionRole role = attention_role(shape->op, shape_in(shape, i));
    if ((int)role <= last || (int)role > most)
      return shape_why(shape,
                       "[attention-c13] operand %u is not the next of mask, kept, bias, sink", i);
    const char *why = check_role(shape, role, shape_in(shape, i));
    if (why) return why;
    last = (int)role;
  }
  return NULL;
}

static bool drops_a_share(const Op *o) {
  double share = attr_float(&o->attrs, ATTR_drop, 0);
  return share > 0 && share < 1 && !attr_get(&o->attrs, ATTR_cap);
}

static const char *check_attention(const Shape *shape, uint32_t operands) {
  Group g = shape_group(shape, 0), d = shape_group(shape, 1);
  if (shape->op->ngroups != 2 || g.nfrom != 1 || g.nto != 1 || d.nfrom != 1 || d.arrow ||
      g.from[0] == g.to[0] || g.from[0] == d.from[0] || g.to[0] == d.from[0])
    return shape_why(shape, "[attention-c1] the dims are written [Q -> K; D]");
  if (shape->op->nin < operands || shape->op->nin > operands + 3 + (operands == 3))
    return shape_why(shape, "[attention-c8] %u operands, %u and at most mask, kept, bias expected",
                     shape->op->nin, operands);
  if (attr_get(&shape->op->attrs, ATTR_cap) && !(attr_float(&shape->op->attrs, ATTR_cap, 0) > 0))
    return shape_why(shape, "[attention-c11] cap is not above 0");
  if (attr_get(&shape->op->attrs, ATTR_drop) && !drops_a_share(shape->op))
    return shape_why(shape, "[attention-c15] drop is not between 0 and 1, or beside a cap");
  const char *why = check_heads(shape, g.from[0], g.to[0], d.from[0]);
  return why ? why : check_further(shape, operands);
}

static const char *rule_attention(Shape *shape) {
  const char *why = check_attention(shape, 3);
  if (why) return why;
  shape->out[0] = *shape_in(shape, 0), shape->out[1] = lse_type(shape);
  return NULL;
}

static const char *rule_attention_grad(Shape *shape) {
  const char *why = check_attention(shape, 6);
  if (why) return why;
  Type lse = lse_type(shape);
  if (!shape_same(shape_in(shape, 3), shape_in(shape, 0)) ||
      !shape_same(shape_in(shape, 5), shape_in(shape, 0)) || !shape_same(shape_in(shape, 4), &lse))
    return shape_why(shape, "[attention-c9] y, lse, dy do not fit q");
  for (uint32_t i = 0; i < 3; i++) shape->out[i] = *shape_in(shape, i);
  return NULL;
}

static const char *rule_global(Shape *shape) {
  if (!shape->op->global) return shape_why(shape, "[global-c1] no global is named");
  shape->out[0] = shape->op->global->type;
  return no_groups(shape);
}

static const char *rule_none(Shape *shape) {
  const Global *global = shape->op->global;
  if (!global) return shape_why(shape, "[global-c1] no global is named");
  if (!shape_same(&global->type, shape_in(shape, 0)))
    return shape_why(shape, "[global-c2] %s is stored in @%s of type %s",
                     shape_text(shape, shape_in(shape, 0)), global->name,
                     shape_text(shape, &global->type));
  return no_groups(shape);
}

static const char *rule_move(Shape *shape) {
  const Type *a = shape_in(shape, 0), *have = shape_carried(shape);
  if (a->tier == have->tier)
    return shape_why(shape, "[move-c1] %s is in that memory already", shape_text(shape, a));
  shape->out[0] = type_in_tier(*a, have->tier);
  return shape->op->ngroups ? shape_why(shape, "[group-c1] no group of dims is expected") : NULL;
}

#define rule_given shape_rule_given
#define rule_call shape_rule_call
#define rule_loop shape_rule_loop
static ShapeRule *const rules[OP_COUNT] = {
#define OP(name, family, operands, results, flags, shape, needs, may, meaning)                     \
  [OP_##name] = rule_##shape,
#include "ir/ops.def"
#undef OP
};

/* All operands are in one memory, and so are all results. */
static const char *tiers(Shape *shape) {
  const Op *op = shape->op;
  OpFamily family = op_family(op->code);
  if (!op->nin || family == FAMILY_CALL || family == FAMILY_GLOBAL || family == FAMILY_MOVE)
    return NULL;
  Tier t = op_tier(shape->f, op->nin, op->in);
  for (uint32_t i = 0; i < op->nin; i++) {
    const Op *def = value_def(shape->f, op->in[i]);
    if (shape_in(shape, i)->tier != t && !(def && def->code == OP_const))
      return shape_why(shape, "[tier-c1] operand %u is %s, others are in the memory `%s`", i,
                       shape_text(shape, shape_in(shape, i)), tier_name(t));
  }
  for (uint32_t i = 0; i < op->nout; i++) shape->out[i].tier = t;
  return NULL;
}

const char *shape_infer(Module *m, const Fn *f, const Op *op, Type *out) {
  Shape shape = {m, f, op, out};
  int operands = op_arity(op->code), results = op_results(op->code);
  if (operands >= 0 && op->nin != (uint32_t)operands)
    return shape_why(&shape, "[op-c1] %u operands, %d expected", op->nin, operands);
  if (results >= 0 && op->nout != (uint32_t)results)
    return shape_why(&shape, "[op-c2] %u results, %d expected", op->nout, results);
  const char *why = rules[op->code](&shape);
  return why ? why : tiers(&shape);
}

/* Placements in the verifier: after `collect`, every op works on blocks that its operands hold, and
   partial sums reach only ops after which the sum can still be completed.

   Between `place` and `collect` placements say where values should be; nothing is proved about ops.
   After `localize` types are those of one rank and only globals have placements. */
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/collective.h"
#include "ir/loop.h"
#include "verify.h"

static void report(Verifier *v, const Op *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void report(Verifier *verifier, const Op *op, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(verifier->m->arena, format, args);
  va_end(args);
  verify_report(verifier, "E1109", op ? verify_at_op(op) : verify_at_fn(verifier), "%s", text);
}

static const Placement *placed(const Verifier *verifier, ValueId value) {
  return &verifier->fn->values.at[value].placed;
}

static const char *text_of(const Verifier *verifier, ValueId value) {
  return placed_text(verifier->m, value_type(verifier->fn, value), placed(verifier, value));
}

static void check_value(Verifier *verifier, const Op *op, ValueId value) {
  const Type *t = value_type(verifier->fn, value);
  if (!placement_fits(verifier->m, t, placed(verifier, value)))
    report(verifier, op, "[shard-c1] the blocks of %s are not equal", text_of(verifier, value));
  for (uint32_t i = 0; i < verifier->m->mesh.n; i++)
    if (is_partial(placed(verifier, value)->on[i]) && elem_class(t->elem) != CLASS_FLOAT)
      report(verifier, op, "[shard-c2] only floats are partial, not %s", text_of(verifier, value));
}

/* ---- ops on blocks ---- */

static bool all_states(const Verifier *verifier, const Op *op, int axis, Str state) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (placed(verifier, op->in[i])->on[axis] != state) return false;
  for (uint32_t i = 0; i < op->nout; i++)
    if (placed(verifier, op->out + i)->on[axis] != state) return false;
  return true;
}

static bool follows(const Verifier *verifier, const Op *op, int axis, const ShardIndex *x) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (placed(verifier, op->in[i])->on[axis] != x->in[i]) return false;
  for (uint32_t i = 0; i < op->nout; i++)
    if (placed(verifier, op->out + i)->on[axis] != (x->out[i] ? x->out[i] : x->lost)) return false;
  return true;
}

static bool passes_partial(const Verifier *verifier, const Op *op, int axis) {
  if (op->code == OP_add || op->code == OP_sub || op->code == OP_concat)
    return all_states(verifier, op, axis, PARTIAL_SUM);
  bool through = false;
  for (uint32_t i = 0; i < op->nin; i++) {
    Str state = placed(verifier, op->in[i])->on[axis];
    if (state == PARTIAL_SUM && shard_linear(verifier->m, verifier->fn, op, i)) through = true;
    else if (state) return false;
  }
  for (uint32_t i = 0; i < op->nout; i++)
    through &= placed(verifier, op->out + i)->on[axis] == PARTIAL_SUM;
  return through;
}

/* Chunks of layers, of which each stage has a block, end to end: each has one of all of them. */
static bool joins_chunks(const Verifier *verifier, const Op *op, int axis) {
  const Group *g = op->ngroups ? &op->group[0] : NULL;
  if (op->code != OP_concat || module_class(verifier->m).axis != axis ||
      module_chunks(verifier->m) != op->nin)
    return false;
  bool all = placed(verifier, op->out)->on[axis] == g->to[0];
  for (uint32_t i = 0; i < op->nin; i++) all &= placed(verifier, op->in[i])->on[axis] == g->from[i];
  return all;
}

static void check_blocks(Verifier *verifier, const Op *op) {
  ShardIndex *list;
  uint32_t n = shard_indexes(verifier->m, verifier->fn, op, &list);
  for (int axis = 0; axis < (int)verifier->m->mesh.n; axis++) {
    bool fine = all_states(verifier, op, axis, NULL) || passes_partial(verifier, op, axis) ||
                joins_chunks(verifier, op, axis);
    for (uint32_t i = 0; i < n && !fine; i++) fine = follows(verifier, op, axis, &list[i]);
    if (!fine)
      report(verifier, op, "[shard-c3] %s cannot work on these blocks over %s: %s to %s",
             op_name(op->code), verifier->m->mesh.at[axis].name,
             op->nin ? text_of(verifier, op->in[0]) : "-", text_of(verifier, op->out));
  }
}

/* ---- collectives ---- */

typedef struct AxisChange { /* of the state on the axis of a collective */
  Str from, to;
} AxisChange;

static bool known_change(const Op *op, AxisChange change) {
  const Collective *facts = op_collective(op->code);
  bool most = !strcmp(attr_str(&op->attrs, ATTR_reduce, ""), "max");
  Str from = facts->from != AXIS_PARTIAL ? collective_joins(op) : most ? PARTIAL_MAX : PARTIAL_SUM;
  Str to = facts->to == AXIS_PARTIAL ? PARTIAL_SUM : collective_cuts(op);
  return !op_is_p2p(op->code) && op->code != OP_rotate && change.from == from && change.to == to;
}

/* ---- below `localize`: what the runtime is told to do ---- */

static void check_sending(Verifier *verifier, const Op *op, int axis) {
  int64_t ways = attr_int(&op->attrs, ATTR_ranks, 0), size = verifier->m->mesh.at[axis].size;
  const Attr *reduce = attr_get(&op->attrs, ATTR_reduce);
  if (ways != size || module_is_collected(verifier->m))
    report(verifier, op,
           "[mesh-c1] `ways` is %lld, axis %s has %lld ranks; before `localize` it is not "
           "said",
           (long long)ways, verifier->m->mesh.at[axis].name, (long long)size);
  if (reduce && strcmp(reduce->s, "max"))
    report(verifier, op, "[mesh-c2] reduce = \"%s\": only max is allowed, or no attribute",
           reduce->s);
  if (collective_adds(op->code) && !value_is_float(verifier->fn, op->in[0]))
    report(verifier, op, "[mesh-c3] %s adds up floats", op_name(op->code));
  int64_t by = attr_int(&op->attrs, ATTR_by, 0);
  if (op->code == OP_rotate && (by < 1 || by >= size))
    report(verifier, op, "[mesh-c6] by = %lld over %lld ranks", (long long)by, (long long)size);
  if (op_collective(op->code)->way == SEND_NONE)
    report(verifier, op, "[mesh-c4] %s sends nothing and has no place below `localize`",
           op_name(op->code));
}

/* The k-th send of a way gives what the k-th receive gets, dims in one order. */
static void check_hops(Verifier *verifier, int axis, int64_t reverse) {
  VEC(const Op *) hop[2] = {{0}};
  EACH_OP (verifier->fn, o) {
    if (op_is_p2p(o->code) && attr_int(&o->attrs, ATTR_reverse, 0) == reverse &&
        mesh_find(verifier->m, attr_str(&o->attrs, ATTR_axis, "")) == axis)
      vec_push(verifier->m->arena, hop[o->code == OP_send], o);
  }
  for (uint32_t i = 0; i < hop[0].n || i < hop[1].n; i++) {
    const Op *get = i < hop[0].n ? hop[0].at[i] : NULL, *give = i < hop[1].n ? hop[1].at[i] : NULL;
    if (!get || !give) {
      report(verifier, get ? get : give, "[hop-c1] %s %u over %s has no other side",
             op_name(get ? get->code : give->code), i, verifier->m->mesh.at[axis].name);
      return;
    }
    const Type *t = value_type(verifier->fn, get->out), *u = value_type(verifier->fn, give->in[0]);
    if (!type_equal(t, u))
      report(verifier, give, "[hop-c2] sends %s where %s is received", type_text(verifier->m, u),
             type_text(verifier->m, t));
  }
}

/* Blocks are joined at the finest cut of a dim, and new cuts are finer than the existing ones. */
static bool is_finest(const Verifier *verifier, ValueId value, int axis) {
  const Placement *p = placed(verifier, value);
  int axes[MAX_MESH], n = mesh_order(verifier->m, axes);
  if (!is_split(p->on[axis])) return true;
  for (int i = n; i-- > 0 && axes[i] != axis;)
    if (p->on[axes[i]] == p->on[axis]) return false;
  return true;
}

static void check_collective(Verifier *verifier, const Op *op) {
  Str name = attr_str(&op->attrs, ATTR_axis, "");
  int axis = mesh_find(verifier->m, name);
  if (axis < 0) {
    report(verifier, op, "[shard-c4] the mesh has no axis `%s`", name);
    return;
  }
  if (attr_get(&op->attrs, ATTR_ranks)) {
    check_sending(verifier, op, axis);
    return;
  }
  const Placement *from = placed(verifier, op->in[0]), *to = placed(verifier, op->out);
  Placement rest = *to;
  rest.on[axis] = from->on[axis];
  bool fine =
      placement_equal(&rest, from) && known_change(op, (AxisChange){from->on[axis], to->on[axis]});
  if (!fine)
    report(verifier, op, "[shard-c5] %s over %s does not lead from %s to %s", op_name(op->code),
           name, text_of(verifier, op->in[0]), text_of(verifier, op->out));
  else if (!is_finest(verifier, op->in[0], axis) || !is_finest(verifier, op->out, axis))
    report(verifier, op, "[shard-c6] %s over %s is not at the finest cut of %s", op_name(op->code),
           name, text_of(verifier, op->in[0]));
  const Op *def = value_def(verifier->fn, op->in[0]);
  if (collective_joins(op) && def && def->code == OP_load && def->global->kind == GLOBAL_PARAM)
    report(verifier, op, "[shard-c7] parameter @%s is moved over axis %s, on which it was placed",
           def->global->name, name);
}

/* ---- borders ---- */

static bool has_maximum(const Placement *p) {
  for (int i = 0; i < MAX_MESH; i++)
    if (p->on[i] == PARTIAL_MAX) return true;
  return false;
}

static void same(Verifier *verifier, const Op *op, const char *what, uint32_t i, const Placement *a,
                 const Placement *b) {
  if (!placement_equal(a, b))
    report(verifier, op, "[shard-c8] %s %u is placed otherwise in @%s", what, i, op->callee->name);
}

static bool is_continued(const Op *loop, uint32_t operand) {
  for (uint32_t i = 0; i < loop->nout; i++)
    if (loop_continues(loop, i) == operand) return true;
  return false;
}

/* For a loop whose rounds an axis cuts: outside, stacks are cut along the rounds; carried values
   are whole before the loop, or partial as a sum over the rounds, and partial after it, or whole
   where the last stage keeps them. Inside, all are whole. */
static void check_stages(Verifier *verifier, const Op *op, int axis) {
  uint32_t carry = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0);
  Str dim = op->group[0].from[0];
  bool fine = true, streams = attr_int(&op->attrs, ATTR_streams, 0) != 0;
  for (uint32_t i = 0; i < op->nin; i++) {
    Str state = placed(verifier, op->in[i])->on[axis];
    fine &= state == (i < loop_whole(op) ? NULL : dim) || (i < carry && state == PARTIAL_SUM);
    fine &= !op->callee->values.at[op->callee->args.at[i + 1]].placed.on[axis];
  }
  for (uint32_t i = 0; i < op->nout; i++) {
    bool stays = i < carry && streams && !placed(verifier, op->in[i])->on[axis];
    fine &= placed(verifier, op->out + i)->on[axis] == (i >= carry ? dim
                                                        : stays    ? NULL
                                                                   : PARTIAL_SUM);
    fine &= !op->callee->values.at[op->callee->results.at[i]].placed.on[axis];
  }
  if (!fine)
    report(verifier, op, "[shard-c11] the rounds of a loop over %s are not cut over %s alone", dim,
           verifier->m->mesh.at[axis].name);
}

/* Inside of a loop and outside of it, but for the axis of its stages. */
static void same_but(Verifier *verifier, const Op *op, const char *what, uint32_t i, Placement a,
                     Placement b, int axis) {
  if (axis >= 0) a.on[axis] = b.on[axis] = NULL;
  same(verifier, op, what, i, &a, &b);
}

static void check_loop(Verifier *verifier, const Op *op) {
  const Fn *body = op->callee;
  uint32_t carry = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0),
           stacked = carry + (uint32_t)attr_int(&op->attrs, ATTR_invariant, 0);
  const Attr *stages = attr_get(&op->attrs, ATTR_stages);
  int axis = stages ? mesh_find(verifier->m, stages->s) : -1;
  if (stages && axis < 0) report(verifier, op, "[shard-c4] the mesh has no axis `%s`", stages->s);
  if (axis >= 0) check_stages(verifier, op, axis);
  for (uint32_t i = 0; i < op->nin; i++) {
    const Placement *arg = &body->values.at[body->args.at[i + 1]].placed;
    same_but(verifier, op, "operand", i, *placed(verifier, op->in[i]), *arg, axis);
    bool sums = i < carry || is_continued(op, i);
    for (uint32_t k = 0; k < verifier->m->mesh.n && !sums; k++)
      if (is_partial(arg->on[k]) && (i < stacked || arg->on[k] != PARTIAL_SUM))
        report(verifier, op, "[shard-c9] operand %u is partial", i);
  }
  for (uint32_t i = 0; i < op->nout; i++) {
    const Placement *result = &body->values.at[body->results.at[i]].placed;
    same_but(verifier, op, "result", i, *placed(verifier, op->out + i), *result, axis);
    if (i < carry)
      same_but(verifier, op, "carried", i, *placed(verifier, op->in[i]), *result, axis);
    uint32_t on = loop_continues(op, i);
    if (on != NO_VALUE) same(verifier, op, "continued", i, placed(verifier, op->in[on]), result);
    if (has_maximum(result)) report(verifier, op, "[shard-c9] result %u is a partial maximum", i);
  }
}

static void check_global(Verifier *verifier, const Op *op) {
  ValueId value = op->code == OP_load ? op->out : op->in[0];
  if (!placement_equal(placed(verifier, value), &op->global->placed))
    report(verifier, op, "[shard-c10] @%s is %s in this op and %s in its declaration",
           op->global->name, text_of(verifier, value),
           placed_text(verifier->m, &op->global->type, &op->global->placed));
}

static void check_op(Verifier *verifier, const Op *op) {
  for (uint32_t i = 0; i < op->nout; i++) check_value(verifier, op, op->out + i);
  if (op_family(op->code) == FAMILY_COLLECTIVE) check_collective(verifier, op);
  if (verifier->failed || !module_is_collected(verifier->m)) return;
  if (op->code == OP_loop) check_loop(verifier, op);
  else if (op_family(op->code) == FAMILY_GLOBAL) check_global(verifier, op);
  else if (op_family(op->code) != FAMILY_COLLECTIVE) check_blocks(verifier, op);
}

void verify_shards(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (uint32_t i = 0; i < f->args.n; i++) check_value(verifier, NULL, f->args.at[i]);
  for (uint32_t i = 0; i < f->ops.n; i++) check_op(verifier, &f->ops.at[i]);
  bool one_class = *module_class(verifier->m).name; /* the other side is another module's */
  for (int axis = 0; axis < (int)verifier->m->mesh.n && !verifier->failed; axis++)
    for (int64_t reverse = 0; !one_class && reverse < 2; reverse++)
      check_hops(verifier, axis, reverse);
}

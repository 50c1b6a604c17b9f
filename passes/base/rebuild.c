/* Rebuilding functions and modules: copying with a value map, loops by role, order and names of
   functions, positions.

   module_collect visits callees first, entries in their order, so the order of functions depends on
   the program alone. */
#include "rebuild.h"
#include "ir/phases.h"
#include "ir/support/room.h"
#include <string.h>

ValueId *value_map(Module *m, const Fn *from) {
  ValueId *map = ARENA_ARRAY(m->arena, ValueId, from->values.n + 1);
  for (uint32_t i = 0; i < from->values.n; i++) map[i] = NO_VALUE;
  return map;
}

/* Most functions stay as long, or become a little longer. */
static uint32_t room_for(uint32_t n) { return n + n / 8 + 4; }

Rebuild rebuild_begin(Module *m, const Fn *from) {
  Rebuild r = {.m = m, .from = from, .to = fn_like(m, from)};
  vec_reserve(m->arena, r.to->values, room_for(from->values.n));
  vec_reserve(m->arena, r.to->ops, room_for(from->ops.n));
  r.map = value_map(m, from);
  for (uint32_t i = 0; i < from->args.n; i++)
    r.map[from->args.at[i]] = fn_arg(m, r.to, *value_type(from, from->args.at[i]));
  return r;
}

Op *rebuild_op(Rebuild *r, const Op *o) { return fn_clone_op(r->m, r->to, r->from, o, r->map); }

void rebuild_results(Rebuild *r) {
  for (uint32_t i = 0; i < r->from->results.n; i++) {
    must(r->map[r->from->results.at[i]] != NO_VALUE, "result %u of %s is not in the new function",
         i, r->from->name);
    fn_result(r->m, r->to, r->map[r->from->results.at[i]]);
  }
}

typedef VEC(Fn *) FnList;

static bool listed(const FnList *list, const Fn *f) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i] == f) return true;
  return false;
}

static void collect(Module *m, FnList *list, Fn *f) {
  if (listed(list, f)) return;
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].callee) collect(m, list, f->ops.at[i].callee);
  vec_push(m->arena, *list, f);
}

static bool name_taken(const FnList *list, uint32_t n, Str name) {
  for (uint32_t i = 0; i < n; i++)
    if (list->at[i]->name == name) return true;
  return false;
}

static Str free_name(Module *m, const FnList *list, uint32_t n, Str name) {
  Str free = name;
  for (int i = 2; name_taken(list, n, free); i++)
    free = intern_printf(m->ctx->names, "%s.%d", name, i);
  return free;
}

/* Result types by the shape rules, front to back: an operand may have been replaced by an equal
   one whose dims are in another order, and the natural order follows the operands. */
static void natural_types(Module *m, Fn *f) {
  Type out[1];
  EACH_OP (f, o) {
    if (op_family(o->code) == FAMILY_CALL || !o->nout) continue;
    Type *types = o->nout == 1 ? out : ARENA_ARRAY(m->arena, Type, o->nout);
    const char *why = shape_infer(m, f, o, types);
    if (why) bug("%s in %s: %s", op_name(o->code), f->name, why);
    for (uint32_t k = 0; k < o->nout; k++) f->values.at[o->out + k].type = types[k];
  }
}

void module_collect(Module *m) {
  FnList list = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) collect(m, &list, m->fns.at[i]);
  for (uint32_t i = 0; i < list.n; i++) list.at[i]->name = free_name(m, &list, i, list.at[i]->name);
  m->fns.n = 0;
  for (uint32_t i = 0; i < list.n; i++) {
    vec_push(m->arena, m->fns, list.at[i]);
    natural_types(m, list.at[i]);
  }
}

static bool texts_equal(const char *a, const char *b) {
  return a == b || (a && b && !strcmp(a, b));
}

static bool attrs_may_equal(const AttrList *a, const AttrList *b) {
  bool equal = a->n == b->n;
  for (uint32_t i = 0; equal && i < a->n; i++) {
    const Attr *x = &a->at[i], *y = &b->at[i];
    equal = x->key == y->key && x->i == y->i && texts_equal(x->s, y->s);
  }
  return equal;
}

static bool groups_may_equal(const Group *a, const Group *b) {
  bool equal = a->nfrom == b->nfrom && a->nto == b->nto;
  for (int i = 0; equal && i < a->nfrom; i++) equal = texts_equal(a->from[i], b->from[i]);
  for (int i = 0; equal && i < a->nto; i++) equal = texts_equal(a->to[i], b->to[i]);
  return equal;
}

static bool types_may_equal(const Type *a, const Type *b) {
  bool equal = a->elem == b->elem && a->rank == b->rank;
  for (int i = 0; equal && i < a->rank; i++)
    equal = a->axis[i].size == b->axis[i].size && texts_equal(a->axis[i].dim, b->axis[i].dim);
  return equal;
}

static bool values_may_equal(const Fn *a, const Fn *b) {
  bool equal = true;
  for (ValueId v = 0; equal && v < a->values.n; v++)
    equal = types_may_equal(value_type(a, v), value_type(b, v));
  return equal;
}

static bool ops_may_equal(const Op *a, const Op *b) {
  bool equal = a->code == b->code && a->nin == b->nin && a->nout == b->nout &&
               a->ngroups == b->ngroups && attrs_may_equal(&a->attrs, &b->attrs);
  for (uint32_t i = 0; equal && i < a->nin; i++) equal = a->in[i] == b->in[i];
  for (int i = 0; equal && i < a->ngroups; i++)
    equal = groups_may_equal(&a->group[i], &b->group[i]);
  return equal;
}

bool fn_may_equal(const Fn *a, const Fn *b) {
  if (a->kind != b->kind || a->ops.n != b->ops.n || a->values.n != b->values.n ||
      a->args.n != b->args.n || a->results.n != b->results.n)
    return false;
  for (uint32_t i = 0; i < a->ops.n; i++)
    if (!ops_may_equal(&a->ops.at[i], &b->ops.at[i])) return false;
  return values_may_equal(a, b);
}

LoopShape loop_shape(const Op *o) {
  must(o->code == OP_loop && o->ngroups == 1 && o->group[0].nfrom == 1, "%s is no loop over a dim",
       op_name(o->code));
  LoopShape shape = {.carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0),
                     .invariant = (uint32_t)attr_int(&o->attrs, ATTR_invariant, 0),
                     .trip = attr_int(&o->attrs, ATTR_trip, 0),
                     .reverse = attr_int(&o->attrs, ATTR_reverse, 0) != 0,
                     .path = attr_str(&o->attrs, ATTR_path, NULL),
                     .rounds = loop_rounds(o),
                     .stages = attr_str(&o->attrs, ATTR_stages, NULL),
                     .layers = attr_int(&o->attrs, ATTR_layers, 0),
                     .streams = attr_int(&o->attrs, ATTR_streams, 0) != 0,
                     .over = attr_str(&o->attrs, ATTR_saved_axes, NULL),
                     .offload = attr_int(&o->attrs, ATTR_offload, 0) != 0};
  const Attr *into = attr_get(&o->attrs, ATTR_continues);
  must(shape.carry + shape.invariant <= o->nin,
       "a loop over %s carries %u and reads %u of %u operands", o->group[0].from[0], shape.carry,
       shape.invariant, o->nin);
  shape.stacked = o->nin - shape.carry - shape.invariant;
  shape.axis = (Axis){o->group[0].from[0], shape.trip};
  shape.first = loop_first(o), shape.of = attr_int(&o->attrs, ATTR_stack_length, 0);
  if (into) shape.into = into->list, shape.ninto = (uint32_t)into->i;
  return shape;
}

int64_t loop_into(const LoopShape *shape, uint32_t result) {
  must(result >= shape->carry, "result %u of a loop over %s is carried, and goes into no stack",
       result, shape->axis.dim);
  return result - shape->carry < shape->ninto ? shape->into[result - shape->carry] : INTO_OWN;
}

Axis loop_axis(const LoopShape *shape, uint32_t result) {
  return (Axis){shape->axis.dim, loop_into(shape, result) == INTO_OWN ? shape->trip : shape->of};
}

static void set_part(Module *m, Op *o, const LoopShape *shape) {
  uint32_t n = o->nout - shape->carry;
  int64_t *into = ARENA_ARRAY(m->arena, int64_t, n + 1);
  bool any = false;
  for (uint32_t i = 0; i < n; i++)
    any |= (into[i] = loop_into(shape, shape->carry + i)) != INTO_OWN;
  if (shape->first) attr_set_int(m, &o->attrs, ATTR_start, shape->first);
  if (shape->of) attr_set_int(m, &o->attrs, ATTR_stack_length, shape->of);
  if (any) attr_set_ints(m, &o->attrs, ATTR_continues, (int)n, into);
}

static Type stacked_type(Axis a, const Type *t) {
  Type r = type_in_tier(type_of(t->elem, 1, &a), t->tier);
  if (t->rank == MAX_RANK) bug("a loop over %s stacks a value of rank %d", a.dim, t->rank);
  for (int i = 0; i < t->rank; i++) r.axis[r.rank++] = t->axis[i];
  return r;
}

Op *rebuild_loop(Module *m, Fn *f, Fn *body, LoopShape shape, const ValueId *in, Loc loc) {
  uint32_t n = body->results.n;
  must(body->args.n == 1 + shape.carry + shape.invariant + shape.stacked && n >= shape.carry,
       "loop body %s takes %u and gives %u, a loop has %u + %u + %u", body->name, body->args.n, n,
       shape.carry, shape.invariant, shape.stacked);
  must(shape.trip > 0, "a loop over %s of %lld rounds", shape.axis.dim, (long long)shape.trip);
  Type *types = ARENA_ARRAY(m->arena, Type, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    const Type *t = value_type(body, body->results.at[i]);
    types[i] = i < shape.carry ? *value_type(f, in[i]) : stacked_type(loop_axis(&shape, i), t);
  }
  Op *o = fn_op(m, f, OP_loop, shape.carry + shape.invariant + shape.stacked, in, n, types, loc);
  op_add_group(m, o, group_dims(1, &shape.axis.dim));
  attr_set_int(m, &o->attrs, ATTR_carry, shape.carry);
  attr_set_int(m, &o->attrs, ATTR_invariant, shape.invariant);
  attr_set_int(m, &o->attrs, ATTR_trip, shape.trip);
  set_part(m, o, &shape);
  if (shape.reverse) attr_set_int(m, &o->attrs, ATTR_reverse, 1);
  if (shape.path) attr_set_str(m, &o->attrs, ATTR_path, shape.path);
  if (shape.rounds != ROUNDS_layers)
    attr_set_str(m, &o->attrs, ATTR_rounds, rounds_name(shape.rounds));
  if (shape.stages) attr_set_str(m, &o->attrs, ATTR_stages, shape.stages);
  if (shape.layers) attr_set_int(m, &o->attrs, ATTR_layers, shape.layers);
  if (shape.streams) attr_set_int(m, &o->attrs, ATTR_streams, 1);
  if (shape.over) attr_set_str(m, &o->attrs, ATTR_saved_axes, shape.over);
  if (shape.offload) attr_set_int(m, &o->attrs, ATTR_offload, 1);
  o->callee = body;
  return o;
}

ValueId emit_typed(Module *m, Fn *f, OpCode c, uint32_t nin, const ValueId *in, const Group *group,
                   Type t, Loc loc) {
  Op *o = fn_op(m, f, c, nin, in, 1, &t, loc);
  if (group) op_add_group(m, o, *group);
  return o->out;
}

ValueId emit_spread(Module *m, Fn *f, ValueId v, Type t, Loc loc) {
  const Type *have = value_type(f, v);
  must(type_contains(&t, have), "%%%u of %s has dims that it is not spread over", v, f->name);
  Str missing[MAX_RANK];
  int n = 0;
  for (int i = 0; i < t.rank; i++)
    if (type_find(have, t.axis[i].dim) < 0) missing[n++] = t.axis[i].dim;
  if (!n) return v;
  Group group = group_dims(n, missing);
  return emit_typed(m, f, OP_expand, 1, &v, &group, type_with_elem(t, have->elem), loc);
}

ValueId emit_full(Module *m, Fn *f, Type t, double value, Loc loc) {
  ValueId number = ir_const(m, f, t.elem, value, loc);
  f->values.at[number].type.tier = t.tier;
  return emit_spread(m, f, number, t, loc);
}

ValueId emit_sum_all(Module *m, Fn *f, ValueId v, Loc loc) {
  Type t = *value_type(f, v);
  Str dims[MAX_RANK];
  for (int i = 0; i < t.rank; i++) dims[i] = t.axis[i].dim;
  return ir_reduce(m, f, OP_sum, v, t.rank, dims, loc);
}

Span span_of(const Module *m, Loc at) { return at.line && at.column ? loc_span(m, at) : (Span){0}; }

/* Ops have names of the IR; the user's line has the language's. */
const char *op_said(const Module *m, const Op *o) {
  static const struct {
    OpCode code;
    const char *word;
  } words[] = {{OP_rmax, "max"}, {OP_rmin, "min"}, {OP_argmax, "max"}, {OP_argmax, "min"}};
  Span s = span_of(m, o->loc);
  const Source *file = s.file ? diag_source(m->ctx->diag, s.file) : NULL;
  const char *name = op_name(o->code);
  if (!file || s.offset + s.length > file->length) return name; /* IR without its source */
  const char *text = arena_strndup(m->ctx->arena, file->text + s.offset, s.length);
  if (strstr(text, name)) return name;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i].code == o->code && strstr(text, words[i].word)) return words[i].word;
  return NULL;
}

Fn *entry_of(const Module *m, const char *name) {
  return module_fn(m, intern(m->ctx->names, name));
}

bool entry_trains(const Fn *f) {
  return fn_is_step(f) || (f->kind == FN_ENTRY && phase_replaces(fn_phase(f)));
}

Global *global_named(const Module *m, const char *name) {
  return module_global(m, intern(m->ctx->names, name));
}

/* ---- readers of the values that loops keep ---- */

static bool reads_slices(const Op *o, uint32_t operand) {
  if (o->code != OP_loop || operand < loop_whole(o)) return false;
  for (uint32_t i = 0; i < o->nout; i++)
    if (loop_continues(o, i) == operand) return false;
  return true;
}

bool value_goes_by_slices(const Fn *f, ValueId v) {
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == v && !reads_slices(&f->ops.at[i], k)) return false;
  return true;
}

bool value_is_kept(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return false;
  return value_is_used(f, v) && value_goes_by_slices(f, v);
}

/* Which parameters form a group, and what their update looks like.

   A parameter's update is the backward slice of its store, and of the stores of the states it
   reads: element-wise ops over its dims, from the parameter, its states, numbers, and one gradient.
   The gradient is the complete one; behind it stand the all-reduces that complete it, of which the
   group's axis is one. Parameters whose slices read alike (same ops, same numbers), that the
   same axes cut, and whose gradients are summed over the same axes form a group, per stack and one
   for all outside of stacks. An update may also look at numbers of its parameter, one per round of
   a stack: functions of sums over all elements of the parameter and its states, such as norms.
   What is not of this form keeps its state on every rank; a warning says so, but for scalars. */
#include "ir/placement.h"
#include "ir/support/num.h"
#include "passes/guard_nonfinite.h"
#include "passes/zero.h"
#include <string.h>

typedef enum KnownAnswer { KNOWN_NOT_YET, KNOWN_NO, KNOWN_YES } KnownAnswer;

typedef struct GroupSlice { /* one parameter's update, being read */
  Zero *z;
  const Fn *f;
  ZeroMember member;
  uint32_t nstates;
  Axis rounds;      /* of the parameter's stack */
  ValueId gradient; /* whose squares the guard adds up; NO_VALUE: none */
  const char *why;  /* not of the form; NULL: it is so far */
  bool *in;         /* by value: made by the slice */
  KnownAnswer *own,
      *number; /* by value: does it look at the parameter or its states; is it one number
                          of a round that does */
  VEC(OpId) chain;
} GroupSlice;

/* The first reason is kept. */
static void need(GroupSlice *slice, bool good, const char *otherwise) {
  if (!slice->why && !good) slice->why = otherwise;
}

static bool is_scalar(const Fn *fn, ValueId value) { return value_type(fn, value)->rank == 0; }

static bool add_state(GroupSlice *slice, Global *global) {
  for (uint32_t i = 0; i < slice->nstates; i++)
    if (slice->member.state[i] == global) return true;
  if (slice->nstates == ZERO_STATES) return false;
  slice->member.state[slice->nstates++] = global;
  return true;
}

static bool spreads_number(const Fn *fn, const Op *op) {
  return op->code == OP_expand && is_scalar(fn, op->in[0]);
}

/* A gradient in the type in which the update reads it. */
static bool casts_gradient(const Fn *fn, const Op *op) {
  const Op *from = op->code == OP_cast ? value_def(fn, op->in[0]) : NULL;
  while (from && from->code == OP_cast) from = value_def(fn, from->in[0]);
  return from && op_family(from->code) != FAMILY_ELEM && from->code != OP_load &&
         !spreads_number(fn, from);
}

/* ---- numbers of a parameter ---- */

static bool is_elem(const Op *op) { return op && op_family(op->code) == FAMILY_ELEM; }

/* Is v made of the parameter or its states, element by element? */
static bool is_own(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  if (slice->own[value] != KNOWN_NOT_YET) return slice->own[value] == KNOWN_YES;
  bool own = value != slice->gradient && op && op->code == OP_load &&
             (op->global == slice->member.param || op->global->kind == GLOBAL_STATE);
  for (uint32_t i = 0; is_elem(op) && value != slice->gradient && !own && i < op->nin; i++)
    own = is_own(slice, op->in[i]);
  slice->own[value] = own ? KNOWN_YES : KNOWN_NO;
  return own;
}

static bool lists_dim(const Op *op, Str dim) {
  for (int i = 0; i < op->group[0].nfrom; i++)
    if (op->group[0].from[i] == dim) return true;
  return false;
}

/* A sum over all dims but the rounds. */
static bool sums_round(GroupSlice *slice, const Op *op) {
  const Type *type = value_type(slice->f, op->in[0]), *p = &slice->member.param->type;
  if (op->code != OP_sum || type->rank != p->rank || !is_own(slice, op->in[0])) return false;
  for (int i = 0; i < p->rank; i++)
    if (type_find(type, p->axis[i].dim) < 0 ||
        lists_dim(op, p->axis[i].dim) == (p->axis[i].dim == slice->rounds.dim))
      return false;
  return true;
}

/* Such as the loss, of which a penalty on the weights is a part: a number of the whole model. */
static bool is_stored(const Fn *fn, ValueId value) {
  for (uint32_t i = 0; i < fn->ops.n; i++)
    if (fn->ops.at[i].code == OP_store && fn->ops.at[i].in[0] == value) return true;
  return false;
}

/* One number, or one for every round: made of sums over all of a round's elements of what is made
   of the parameter and its states. The norm of all gradients is none: it looks at no parameter. */
static bool is_number(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  const Type *type = value_type(slice->f, value);
  if (slice->number[value] != KNOWN_NOT_YET) return slice->number[value] == KNOWN_YES;
  bool shape = (type->rank == 0 || (type->rank == 1 && type->axis[0].dim == slice->rounds.dim)) &&
               !is_stored(slice->f, value),
       number = op && shape && slice->member.param->type.rank > (slice->rounds.dim ? 1 : 0) &&
                sums_round(slice, op);
  if (op && shape && (is_elem(op) || op->code == OP_all_reduce))
    for (uint32_t i = 0; !number && i < op->nin; i++) number = is_number(slice, op->in[i]);
  slice->number[value] = number ? KNOWN_YES : KNOWN_NO;
  return number;
}

/* Beside the element-wise: what makes a number, and spreads one. */
static bool may_stand(GroupSlice *slice, const Op *op) {
  return is_elem(op) || is_number(slice, op->out) || spreads_number(slice->f, op) ||
         (op->code == OP_expand && is_number(slice, op->in[0]));
}

/* ---- the slice ---- */

/* What the guard takes for the parameter's gradient. What is added to it on every rank alike, such
   as the gradient of a penalty on the weights, belongs to it and not to the update. */
static ValueId guarded_gradient(const Fn *fn, const Global *global) {
  size_t n = strlen(guard_prefix);
  for (uint32_t i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (op->code != OP_store || strncmp(op->global->name, guard_prefix, n) ||
        strcmp(op->global->name + n, global->name))
      continue;
    op = value_def(fn, op->in[0]);
    while (op && (op->code == OP_sum || op->code == OP_cast || op->code == OP_all_reduce))
      op = value_def(fn, op->in[0]);
    return op && op->code == OP_mul && op->in[0] == op->in[1] ? op->in[0] : NO_VALUE;
  }
  return NO_VALUE;
}

static void read_value(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  bool number = is_number(slice, value);
  if (slice->why || slice->in[value] || (is_scalar(slice->f, value) && !number)) return;
  if (op && op->code == OP_load && op->global == slice->member.param) return;
  if (op && op->code == OP_load && op->global->kind == GLOBAL_STATE) {
    need(slice, add_state(slice, op->global), "its update reads more than four states");
    return;
  }
  if (!op || value == slice->gradient || (casts_gradient(slice->f, op) && !number) ||
      !may_stand(slice, op)) {
    need(slice, slice->member.leaf == NO_VALUE || slice->member.leaf == value,
         "its update is not element by element");
    slice->member.leaf = value;
    return;
  }
  for (uint32_t i = 0; i < op->nin; i++) read_value(slice, op->in[i]);
  slice->in[value] = true;
  vec_push(slice->z->m->arena, slice->chain, slice->f->values.at[value].def);
}

const Op *zero_store_of(const Fn *f, const Global *g) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].global == g) return &f->ops.at[i];
  return NULL;
}

/* ---- the gradient ---- */

static bool is_partitioned(const Zero *zero, Str axis) {
  for (int i = 0; i < zero->naxes; i++)
    if (zero->axis[i] == axis) return true;
  return false;
}

static bool add_axis(Str *list, int *n, Str axis) {
  if (*n == ZERO_AXES) return false;
  list[(*n)++] = axis;
  return true;
}

/* Axes in the order of the mesh; `met`: those over which the gradient is summed. An axis of one
   rank sums nothing, and is always among them. */
static bool take_axes(const Zero *zero, ZeroGroup *g, const bool *met) {
  bool good = true;
  g->ways = 1, g->naxes = g->nothers = 0;
  for (uint32_t i = 0; i < zero->m->mesh.n; i++) {
    Str name = zero->m->mesh.at[i].name;
    bool ours = is_partitioned(zero, name);
    if (!met[i] && !(ours && zero->m->mesh.at[i].size == 1)) continue;
    good = good &&
           (ours ? add_axis(g->axis, &g->naxes, name) : add_axis(g->others, &g->nothers, name));
    if (ours) g->ways *= zero->m->mesh.at[i].size;
  }
  return good && g->naxes;
}

/* Where the dims of the parameter stand in the gradient before it was renamed. */
static void rename_order(const ZeroMember *m, Str *order, const Op *op) {
  for (int g = 0; g < op->ngroups; g++)
    for (int k = 0; k < m->param->type.rank; k++)
      if (order[k] == op->group[g].to[0]) order[k] = op->group[g].from[0];
}

/* What stands between a partial gradient and the complete one. */
static bool completes(const Op *op) {
  return op->code == OP_rename || op->code == OP_all_reduce || op->code == OP_cast;
}

/* A gradient that is complete for other reasons (its pieces were gathered over another axis): over
   all axes on which the parameter is whole. */
static void take_complete(GroupSlice *slice, ZeroGroup *key) {
  bool met[MAX_MESH] = {false};
  ZeroMember *m = &slice->member;
  for (uint32_t i = 0; i < slice->z->m->mesh.n; i++)
    met[i] = is_partitioned(slice->z, slice->z->m->mesh.at[i].name) && !m->param->placed.on[i];
  m->sum = m->leaf, key->complete = true;
  for (int k = 0; k < m->param->type.rank; k++) m->order[k] = m->param->type.axis[k].dim;
  need(slice, take_axes(slice->z, key, met), "its gradient is summed over too many axes");
}

static void find_sum(GroupSlice *slice, ZeroGroup *key) {
  ZeroMember *m = &slice->member;
  bool met[MAX_MESH] = {false};
  const Type *type = &m->param->type;
  Str order[MAX_RANK];
  const Op *op;
  for (int k = 0; k < type->rank; k++) order[k] = m->order[k] = type->axis[k].dim;
  Elem narrowest = m->elem = value_type(slice->f, m->leaf)->elem;
  m->sum = m->leaf;
  for (ValueId value = m->leaf; (op = value_def(slice->f, value)) && completes(op);
       value = op->in[0]) {
    Elem e = value_type(slice->f, value)->elem;
    if (elem_bytes(e) < elem_bytes(narrowest)) narrowest = e;
    if (op->code == OP_rename) rename_order(m, order, op);
    if (op->code != OP_all_reduce) continue;
    met[mesh_find(slice->z->m, attr_str(&op->attrs, ATTR_axis, ""))] = true;
    m->sum = op->in[0], m->elem = narrowest;
    memcpy(m->order, order, sizeof order);
  }
  if (!take_axes(slice->z, key, met)) take_complete(slice, key);
  need(slice, type_count(value_type(slice->f, m->sum)) == type_count(type),
       "its gradient has another number of elements");
}

/* The one op that reads v, or NULL. */
static const Op *only_reader(const Fn *f, ValueId v) {
  const Op *reader = NULL;
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == v) {
        if (reader && reader != &f->ops.at[i]) return NULL;
        reader = &f->ops.at[i];
      }
  return reader;
}

/* The sum of leaf * leaf, one number or one per round, if the norm is asked for. */
static void find_square(GroupSlice *slice, const Op *op) {
  static const char norm[] = "the squares of its gradient are summed in another way than for clip";
  const Fn *fn = slice->f;
  ValueId leaf = slice->member.leaf;
  if (op->code != OP_mul || op->in[0] != leaf || op->in[1] != leaf || slice->in[op->out]) return;
  const Op *sum = only_reader(fn, op->out);
  if (sum && sum->code == OP_cast) sum = only_reader(fn, sum->out);
  need(slice, sum && sum->code == OP_sum && slice->member.square == NO_VALUE, norm);
  if (slice->why) return;
  const Type *type = value_type(fn, sum->out);
  need(slice,
       type->rank == 0 ||
           (type->rank == 1 && type->axis[0].dim == slice->member.param->type.axis[0].dim),
       norm);
  slice->member.square = sum->out;
}

static bool is_square(const Op *op, ValueId leaf) {
  return op->code == OP_mul && op->in[0] == leaf && op->in[1] == leaf;
}

/* Does o store the parameter, or a state of it? */
static bool stores_member(const GroupSlice *slice, const Op *op) {
  if (op->code != OP_store) return false;
  bool ours = op->global == slice->member.param;
  for (uint32_t i = 0; i < slice->nstates; i++) ours |= op->global == slice->member.state[i];
  return ours;
}

/* Nothing but these stores may see what the update makes, nothing but the norm the gradient. */
static void check_uses(GroupSlice *slice) {
  for (uint32_t i = 0; i < slice->f->ops.n; i++) {
    const Op *op = &slice->f->ops.at[i];
    bool inside = op->nout == 1 && slice->in[op->out];
    for (uint32_t k = 0; k < op->nin; k++) {
      if (slice->in[op->in[k]])
        need(slice, inside || stores_member(slice, op),
             "something else than its update reads what the update computes");
      if (op->in[k] == slice->member.leaf)
        need(slice, inside || is_square(op, slice->member.leaf),
             "something else than its update and the norm for clip reads its gradient");
    }
    find_square(slice, op);
  }
}

/* ---- in words ---- */

static Str operand_word(const GroupSlice *slice, ValueId value) {
  Arena *arena = slice->z->m->arena;
  const Op *op = value_def(slice->f, value);
  for (uint32_t i = 0; i < slice->chain.n; i++)
    if (slice->f->ops.at[slice->chain.at[i]].out == value) return arena_printf(arena, " #%u", i);
  if (value == slice->member.leaf) return " g";
  if (op && op->code == OP_load && op->global == slice->member.param) return " p";
  for (uint32_t i = 0; op && op->code == OP_load && i < slice->nstates; i++)
    if (op->global == slice->member.state[i]) return arena_printf(arena, " s%u", i);
  if (op && op->code == OP_const)
    return arena_printf(arena, " %s:%.17g", elem_name(value_type(slice->f, value)->elem),
                        attr_float(&op->attrs, ATTR_value, 0));
  return arena_printf(arena, " %%%u", value);
}

static Str chain_words(const GroupSlice *slice) {
  const Global *param = slice->member.param;
  Arena *arena = slice->z->m->arena;
  Str w = arena_printf(arena, "%s by %u", elem_name(param->type.elem), param->stages);
  for (uint32_t i = 0; i < slice->z->m->mesh.n; i++)
    w = arena_printf(arena, "%s%c", w, is_split(param->placed.on[i]) ? '/' : '.');
  for (uint32_t i = 0; i < slice->chain.n; i++) {
    const Op *op = &slice->f->ops.at[slice->chain.at[i]];
    w = arena_printf(arena, "%s;%s%s:%s{%.17g %s}", w,
                     slice->number[op->out] == KNOWN_YES ? "one " : "", op_name(op->code),
                     elem_name(value_type(slice->f, op->out)->elem),
                     attr_float(&op->attrs, ATTR_value, 0), attr_str(&op->attrs, ATTR_axis, ""));
    for (uint32_t k = 0; k < op->nin; k++)
      w = arena_printf(arena, "%s%s", w, operand_word(slice, op->in[k]));
  }
  w = arena_printf(arena, "%s of %s", w, elem_name(slice->member.elem));
  w = arena_printf(arena, "%s>%s", w, operand_word(slice, zero_store_of(slice->f, param)->in[0]));
  for (uint32_t i = 0; i < slice->nstates; i++)
    w = arena_printf(arena, "%s>%s", w,
                     operand_word(slice, zero_store_of(slice->f, slice->member.state[i])->in[0]));
  return w;
}

/* ---- who reads it ---- */

/* Between which stacks a value is read, as a set of epochs; views of it included. The update does
   not count. */
static uint64_t epochs_of(const GroupSlice *slice, const Fn *fn, ValueId value) {
  uint32_t *epoch;
  uint64_t set = 0;
  zero_epochs(slice->z, fn, &epoch);
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (fn == slice->f && op->nout == 1 && slice->in[op->out]) continue;
    for (uint32_t k = 0; k < op->nin; k++) {
      if (op->in[k] != value) continue;
      if (op->code == OP_rename || op->code == OP_cast) set |= epochs_of(slice, fn, op->out);
      else if (op->code == OP_loop && zero_is_micro(slice->z, op))
        set |= epochs_of(slice, op->callee, op->callee->args.at[k + 1]);
      else set |= (uint64_t)1 << (epoch[i] < 63 ? epoch[i] : 63);
    }
  }
  return set;
}

/* Is v, of any function, read by nothing but casts to one narrower float type? */
static bool only_cast(GroupSlice *slice, const Fn *fn, ValueId value) {
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (fn == slice->f && op->nout == 1 && slice->in[op->out] && op->code != OP_cast) continue;
    for (uint32_t k = 0; k < op->nin; k++) {
      if (op->in[k] != value) continue;
      if (op->code == OP_loop && !only_cast(slice, op->callee, op->callee->args.at[k + 1]))
        return false;
      if (op->code == OP_rename && !only_cast(slice, fn, op->out)) return false;
      if (op->code == OP_loop || op->code == OP_rename) continue;
      Elem e = op->code == OP_cast ? value_type(fn, op->out)->elem : ELEM_f32;
      if (elem_class(e) != CLASS_FLOAT || elem_bytes(e) >= elem_bytes(value_type(fn, value)->elem))
        return false;
      if (slice->member.copied && slice->member.narrow != e) return false;
      slice->member.copied = true, slice->member.narrow = e;
    }
  }
  return true;
}

static void find_copy(GroupSlice *slice) {
  Module *module = slice->z->m;
  bool good = true;
  for (uint32_t i = 0; i < module->fns.n; i++)
    for (OpId at = 0; module->fns.at[i]->kind == FN_ENTRY && at < module->fns.at[i]->ops.n; at++) {
      const Op *op = &module->fns.at[i]->ops.at[at];
      if (op->code == OP_load && op->global == slice->member.param)
        good = good && only_cast(slice, module->fns.at[i], op->out);
    }
  slice->member.copied = slice->member.copied && good;
  if (slice->member.copied || !slice->z->masters) return;
  slice->member.copied = true, slice->member.narrow = slice->member.param->type.elem;
}

static Str region_words(const GroupSlice *slice) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < slice->f->ops.n; i++) {
    const Op *op = &slice->f->ops.at[i];
    if (op->code == OP_load && op->global == slice->member.param)
      set |= epochs_of(slice, slice->f, op->out);
  }
  return arena_printf(slice->z->m->arena, "@%llx", (unsigned long long)set);
}

/* ---- groups ---- */

static bool read_update(GroupSlice *slice, ZeroGroup *key) {
  const Op *store = zero_store_of(slice->f, slice->member.param);
  must(store, "zero: no update stores @%s", slice->member.param->name);
  read_value(slice, store->in[0]);
  for (uint32_t i = 0; !slice->why && i < slice->nstates; i++) {
    const Op *kept = zero_store_of(slice->f, slice->member.state[i]);
    need(slice, kept && slice->member.state[i]->type.rank == slice->member.param->type.rank,
         "a state of its update has another shape, or is never written");
    if (!slice->why) read_value(slice, kept->in[0]);
  }
  need(slice, slice->member.leaf != NO_VALUE, "its update reads no gradient");
  if (slice->why) return false;
  find_sum(slice, key);
  check_uses(slice);
  return !slice->why;
}

/* Do several ranks of an axis hold it alike, all of which the plan wants partitioned? */
static bool is_repeated(const Zero *zero, const Global *global) {
  for (uint32_t i = 0; i < zero->m->mesh.n; i++)
    if (zero->m->mesh.at[i].size > 1 && is_partitioned(zero, zero->m->mesh.at[i].name) &&
        !global->placed.on[i])
      return true;
  return false;
}

static void note_whole(Zero *zero, const Global *global, const char *why) {
  if (!zero->stage || !is_repeated(zero, global)) return;
  if (!zero->named.n) zero->why = why;
  vec_push(zero->m->arena, zero->named, global);
}

/* What no update writes is in no group: stage 3 is about parameters, so it says so. */
static void note_unwritten(Zero *zero, const Global *global) {
  int64_t bytes = type_count(&global->type) * elem_bytes(global->type.elem);
  if (zero->stage == 3 && bytes > zero->persist)
    note_whole(zero, global,
               global->frozen ? "it is frozen, and no update writes it" : "no update writes it");
}

/* The dim of the stack that a parameter belongs to: paths of stacked ones have a star. */
static Axis rounds_of(const Global *global) {
  return strchr(global->name, '*') ? global->type.axis[0] : (Axis){0};
}

static Str region_of(const Zero *zero, const Global *global) {
  const char *star = strchr(global->name, '*');
  return star && star > global->name
             ? arena_strndup(zero->m->arena, global->name, (size_t)(star - global->name - 1))
             : "root";
}

static bool same_group(const ZeroGroup *a, const ZeroGroup *b) {
  if (a->rounds.dim != b->rounds.dim || a->naxes != b->naxes || a->nothers != b->nothers ||
      a->stage != b->stage || a->complete != b->complete || strcmp(a->name, b->name))
    return false;
  for (int i = 0; i < ZERO_AXES; i++)
    if (a->axis[i] != b->axis[i] || a->others[i] != b->others[i]) return false;
  return !strcmp(a->member.at[0].signature, b->member.at[0].signature);
}

static void add_member(Zero *zero, ZeroGroup key, ZeroMember m) {
  Arena *arena = zero->m->arena;
  must(m.leaf != NO_VALUE && m.sum != NO_VALUE, "zero: @%s has no gradient", m.param->name);
  vec_push(arena, key.member, m);
  for (uint32_t i = 0; i < zero->group.n; i++)
    if (same_group(&zero->group.at[i], &key)) {
      vec_push(arena, zero->group.at[i].member, m);
      return;
    }
  vec_push(arena, zero->group, key);
}

/* Small parameters stay whole. */
static int stage_of(const GroupSlice *slice, const ZeroGroup *g) {
  const Global *global = slice->member.param;
  int64_t count = type_count(&global->type) / (g->rounds.dim ? g->rounds.size : 1);
  int64_t bytes = count * elem_bytes(g->copied ? g->narrow : global->type.elem);
  return slice->z->stage == 3 && bytes <= slice->z->persist ? 2 : slice->z->stage;
}

static const bool *numbers_of(const GroupSlice *s, bool *any) {
  bool *number = ARENA_ARRAY(s->z->m->arena, bool, s->f->values.n + 1);
  for (ValueId v = 0; v < s->f->values.n; v++)
    *any |= number[v] = s->in[v] && s->number[v] == KNOWN_YES;
  return number;
}

static void read_param(Zero *zero, Global *global) {
  GroupSlice slice = {.z = zero, .f = zero->step, .rounds = rounds_of(global)};
  slice.gradient = guarded_gradient(zero->step, global);
  slice.member =
      (ZeroMember){.param = global, .leaf = NO_VALUE, .sum = NO_VALUE, .square = NO_VALUE};
  if (global->type.rank && !zero_store_of(zero->step, global)) note_unwritten(zero, global);
  if (!zero_store_of(zero->step, global) || global->type.rank == 0) return;
  slice.in = ARENA_ARRAY(zero->m->arena, bool, zero->step->values.n + 1);
  slice.own = ARENA_ARRAY(zero->m->arena, KnownAnswer, zero->step->values.n + 1);
  slice.number = ARENA_ARRAY(zero->m->arena, KnownAnswer, zero->step->values.n + 1);
  ZeroGroup key = {.name = region_of(zero, global), .rounds = slice.rounds};
  if (!read_update(&slice, &key)) {
    note_whole(zero, global, slice.why);
    return;
  }
  if (key.ways < zero_alike(zero, global))
    note_whole(zero, global, "its gradient is a sum over some of these axes alone");
  slice.member.chain = slice.chain.at, slice.member.nchain = slice.chain.n;
  slice.member.number = numbers_of(&slice, &key.measured);
  slice.member.signature = arena_printf(zero->m->arena, "%s of %s", chain_words(&slice),
                                        elem_name(value_type(slice.f, slice.member.sum)->elem));
  find_copy(&slice);
  key.copied = slice.member.copied, key.narrow = slice.member.narrow;
  if (key.copied)
    slice.member.signature =
        arena_printf(zero->m->arena, "%s as %s", slice.member.signature, elem_name(key.narrow));
  if (!key.rounds.dim)
    slice.member.signature =
        arena_printf(zero->m->arena, "%s%s", slice.member.signature, region_words(&slice));
  key.nstates = slice.nstates;
  key.stage = stage_of(&slice, &key);
  add_member(zero, key, slice.member);
}

/* Into so many buckets at least a group is cut whose members begin at buckets: what they waste is
   the members' number of these at most. */
enum { FINE = 1024 };

/* Bytes of an element on its way: of the gradient, or of the weight, whichever is the wider. */
static int64_t wire_bytes(const Zero *zero, const ZeroGroup *g) {
  const ZeroMember *m = &g->member.at[0];
  int64_t gradient = elem_bytes(zero->asked ? zero->reduce : m->elem),
          weight = elem_bytes(g->copied ? g->narrow : m->param->type.elem);
  return g->stage && weight > gradient ? weight : gradient;
}

/* The file's value was checked where it stands; that of the command line, or of a dump, is here. */
static void too_small(const Zero *zero, const ZeroGroup *g) {
  Report *report = diag_at(zero->m->ctx->diag, "E0602", (Span){0},
                           "`zero` cannot cut `%s` in buckets of %lld bytes over %lld ranks",
                           g->name, (long long)zero->bucket_bytes, (long long)g->ways);
  diag_help(report, "`plan.zero.bucket` is 64 for each rank at least: %lld",
            (long long)(64 * g->ways));
}

/* Pieces begin at multiples of 64 bytes. A bucket has at most `bucket_bytes` on its way. */
static void lay_out(Zero *zero, ZeroGroup *g) {
  must(g->member.n && g->ways > 0, "zero: group %s of %u members over %lld ranks", g->name,
       g->member.n, (long long)g->ways);
  int64_t unit = g->ways * (64 / elem_bytes(g->member.at[0].param->type.elem)),
          most = zero->bucket_bytes / wire_bytes(zero, g) / unit * unit, all = 0;
  for (uint32_t i = 0; i < g->member.n; i++) {
    ZeroMember *m = &g->member.at[i];
    m->count = type_count(&m->param->type) / (g->rounds.dim ? g->rounds.size : 1);
    all += m->count;
  }
  if (most < 1 && g == zero->group.at) too_small(zero, g);
  g->buckets = most > 0 ? ceil_div(all, most) : 1;
  if (g->measured && g->buckets < FINE) g->buckets = FINE;
  int64_t bucket = round_up(ceil_div(all, g->buckets), unit), at = 0;
  for (uint32_t i = 0; i < g->member.n; i++) {
    ZeroMember *m = &g->member.at[i];
    m->begin = at, at += g->measured ? round_up(m->count, bucket) : m->count;
  }
  if (g->measured) g->buckets = at / bucket;
  g->piece = bucket / g->ways;
  must(at <= g->buckets * bucket && bucket % g->ways == 0,
       "zero: %lld elements of %s in %lld buckets of %lld", (long long)at, g->name,
       (long long)g->buckets, (long long)bucket);
}

static void name_group(Zero *zero, ZeroGroup *g, uint32_t i) {
  Interner *n = zero->m->ctx->names;
  uint32_t same = 1;
  for (uint32_t k = 0; k < i; k++) same += !strcmp(zero->group.at[k].name, g->name);
  Str name = same > 1 ? arena_printf(zero->m->arena, "%s%u", g->name, same) : g->name;
  g->name = intern_printf(n, "zero.%s", name);
  g->flat = intern_printf(n, "Flat_%u", i), g->bucket = intern_printf(n, "Bucket_%u", i);
  g->part = intern_printf(n, "Piece_%u", i);
  for (int k = 0; k < g->naxes; k++) g->owner[k] = intern_printf(n, "Owner_%u_%s", i, g->axis[k]);
}

void zero_find_groups(Zero *zero) {
  for (uint32_t i = 0; i < zero->m->globals.n; i++)
    if (zero->m->globals.at[i]->kind == GLOBAL_PARAM) read_param(zero, zero->m->globals.at[i]);
  for (uint32_t i = 0; i < zero->group.n; i++) lay_out(zero, &zero->group.at[i]);
  for (uint32_t i = zero->group.n; i-- > 0;) name_group(zero, &zero->group.at[i], i);
}

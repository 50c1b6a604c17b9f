/* The form of one parameter's update, for partitioned states.

   A parameter's update is the backward slice of its store, and of the stores of the states it
   reads: element-wise ops over its dims, from the parameter, its states, numbers, and one
   gradient. The gradient is the complete one, i.e. the result of the all-reduces that complete it,
   one of which is over the group's axis. An update may also read numbers of its parameter, one per
   round of a stack: functions of sums over all elements of the parameter and its states, such as
   norms. One part of it may need whole matrices, whose dims have made names (muon.c).

   Must not: change anything, or know of groups. */
#include "zero_slice.h"
#include "ir/shape/placement.h"
#include "passes/base/matrix_part.h"
#include "passes/math/guard_nonfinite.h"
#include <string.h>

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

/* A sum over all dims but the rounds. */
static bool sums_round(GroupSlice *slice, const Op *op) {
  const Type *type = value_type(slice->f, op->in[0]), *p = &slice->member.param->type;
  if (op->code != OP_sum || type->rank != p->rank || !is_own(slice, op->in[0])) return false;
  for (int i = 0; i < p->rank; i++)
    if (type_find(type, p->axis[i].dim) < 0 ||
        op_lists(op, p->axis[i].dim) == (p->axis[i].dim == slice->rounds.dim))
      return false;
  return true;
}

/* A stored number, such as the loss, which includes a penalty on the weights, belongs to the whole
   model. */
static bool is_stored(const Fn *fn, ValueId value) {
  for (uint32_t i = 0; i < fn->ops.n; i++)
    if (fn->ops.at[i].code == OP_store && fn->ops.at[i].in[0] == value) return true;
  return false;
}

/* One number, or one for every round: made of sums over all of a round's elements of values made
   from the parameter and its states. The norm of all gradients is none: it belongs to no
   parameter. */
static bool is_number(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  const Type *type = value_type(slice->f, value);
  if (slice->number[value] != KNOWN_NOT_YET) return slice->number[value] == KNOWN_YES;
  bool shape = type->rank == 0 || (type->rank == 1 && type->axis[0].dim == slice->rounds.dim),
       number = op && shape && slice->member.param->type.rank > (slice->rounds.dim ? 1 : 0) &&
                sums_round(slice, op);
  if (op && shape && (is_elem(op) || op->code == OP_all_reduce))
    for (uint32_t i = 0; !number && i < op->nin; i++) number = is_number(slice, op->in[i]);
  number = number && !is_stored(slice->f, value);
  slice->number[value] = number ? KNOWN_YES : KNOWN_NO;
  return number;
}

/* ---- matrices ---- */

/* Is it made by an op over dims of matrices, or a number for each matrix from such ops? */
static bool is_whole(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  bool small = value_type(slice->f, value)->rank < slice->member.param->type.rank;
  if (slice->whole[value] != KNOWN_NOT_YET) return slice->whole[value] == KNOWN_YES;
  bool whole = op && op_on_matrices(slice->f, op);
  for (uint32_t i = 0; op && small && !whole && i < op->nin; i++)
    whole = is_whole(slice, op->in[i]);
  slice->whole[value] = whole ? KNOWN_YES : KNOWN_NO;
  return whole;
}

/* The part has one operand, besides constants, and one result, both of the parameter's dims. */
static void find_part(GroupSlice *slice) {
  ZeroMember *member = &slice->member;
  static const char why[] = "its update uses whole matrices in several places";
  for (uint32_t i = 0; i < slice->chain.n; i++) {
    const Op *op = &slice->f->ops.at[slice->chain.at[i]];
    bool inside = is_whole(slice, op->out);
    for (uint32_t k = 0; k < op->nin; k++) {
      bool from = is_whole(slice, op->in[k]);
      const Op *def = value_def(slice->f, op->in[k]);
      ValueId *to = inside ? &member->part : &member->made;
      if (inside == from || (def && def->code == OP_const)) continue;
      need(slice, *to == NO_VALUE || *to == op->in[k], why);
      *to = op->in[k];
    }
  }
  bool any = member->part != NO_VALUE, all = any && member->made != NO_VALUE;
  need(slice, any == (member->made != NO_VALUE), why);
  need(slice,
       !all || (type_same_dims(value_type(slice->f, member->part), &member->param->type) &&
                type_same_dims(value_type(slice->f, member->made), &member->param->type)),
       why);
}

/* May the op be in the slice: element-wise, or an op that makes a number or spreads one? */
static bool may_stand(GroupSlice *slice, const Op *op) {
  return is_elem(op) || is_whole(slice, op->out) || is_number(slice, op->out) ||
         spreads_number(slice->f, op) || (op->code == OP_expand && is_number(slice, op->in[0]));
}

/* ---- the slice ---- */

/* The value that the guard takes as the parameter's gradient. A term that every rank adds alike,
   such as the gradient of a penalty on the weights, belongs to it and not to the update. */
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

/* Does `value` depend on a load, other than of the parameter and its states, by a path that does
   not contain `gate`? */
static bool passes_by(GroupSlice *slice, ValueId value, ValueId gate, bool *seen) {
  const Op *op = value_def(slice->f, value);
  if (value == gate || seen[value] || is_scalar(slice->f, value)) return false;
  seen[value] = true;
  if (op && op->code == OP_load &&
      (op->global == slice->member.param || op->global->kind == GLOBAL_STATE))
    return false;
  if (!op || !may_stand(slice, op)) return true;
  for (uint32_t i = 0; i < op->nin; i++)
    if (passes_by(slice, op->in[i], gate, seen)) return true;
  return false;
}

/* If nothing takes the gradient's squares: the first value that every path to the update contains.
   A tied embedding has a gradient that is itself a sum, element by element. */
static ValueId gate_of(GroupSlice *slice, ValueId stored) {
  uint32_t n = slice->f->values.n;
  int64_t count = type_count(&slice->member.param->type);
  bool *seen = ARENA_ARRAY(slice->z->m->arena, bool, n + 1);
  ValueId gate = 0;
  for (; gate < n; gate++) {
    if (type_count(value_type(slice->f, gate)) != count || is_own(slice, gate)) continue;
    memset(seen, 0, n);
    if (!passes_by(slice, stored, gate, seen)) break;
  }
  memset(slice->own, 0, n * sizeof *slice->own);
  memset(slice->number, 0, n * sizeof *slice->number);
  return gate < n ? gate : NO_VALUE;
}

static void read_value(GroupSlice *slice, ValueId value) {
  const Op *op = value_def(slice->f, value);
  bool number = is_number(slice, value) || is_whole(slice, value);
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

/* ---- the gradient ---- */

bool zero_partitions(const Zero *zero, Str axis) {
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
   rank sums nothing, and is always among them. If the plan has no axis at all, groups exist for
   the parameters that `offload` moves, and each rank owns all of its own. */
static bool take_axes(const Zero *zero, ZeroGroup *group, const bool *met) {
  bool good = true;
  group->ways = 1, group->naxes = group->nothers = 0;
  for (uint32_t i = 0; i < zero->m->mesh.n; i++) {
    Str name = zero->m->mesh.at[i].name;
    bool ours = zero_partitions(zero, name);
    if (!met[i] && !(ours && zero->m->mesh.at[i].size == 1)) continue;
    good = good && (ours ? add_axis(group->axis, &group->naxes, name)
                         : add_axis(group->others, &group->nothers, name));
    if (ours) group->ways *= zero->m->mesh.at[i].size;
  }
  return good && (group->naxes || !zero->naxes);
}

/* The positions of the parameter's dims in the gradient before it was renamed. */
static void rename_order(const ZeroMember *member, Str *order, const Op *op) {
  for (int g = 0; g < op->ngroups; g++)
    for (int k = 0; k < member->param->type.rank; k++)
      if (order[k] == op->group[g].to[0]) order[k] = op->group[g].from[0];
}

bool zero_completes(const Op *op) {
  return op->code == OP_rename || op->code == OP_all_reduce || op->code == OP_cast;
}

/* Over all axes on which the parameter is whole. */
bool slice_take_alike(const GroupSlice *slice, ZeroGroup *key) {
  bool met[MAX_MESH] = {false};
  const Global *param = slice->member.param;
  for (uint32_t i = 0; i < slice->z->m->mesh.n; i++)
    met[i] = zero_partitions(slice->z, slice->z->m->mesh.at[i].name) && !param->placed.on[i];
  return take_axes(slice->z, key, met);
}

/* A gradient that is complete for other reasons: its pieces were gathered over another axis. */
static void take_complete(GroupSlice *slice, ZeroGroup *key) {
  ZeroMember *member = &slice->member;
  member->sum = member->leaf, key->complete = true;
  for (int k = 0; k < member->param->type.rank; k++)
    member->order[k] = member->param->type.axis[k].dim;
  need(slice, slice_take_alike(slice, key), "its gradient is summed over too many axes");
}

/* Does a gradient that one rank alone makes leave the round that makes it, unchanged? */
static bool leaves_rounds(const GroupSlice *slice) {
  return slice->z->stage >= 2 ||
         zero_is_alone(slice->z, zero_hosted(slice->z, slice->member.param));
}

static void find_sum(GroupSlice *slice, ZeroGroup *key) {
  ZeroMember *member = &slice->member;
  bool met[MAX_MESH] = {false};
  const Type *type = &member->param->type;
  Str order[MAX_RANK];
  const Op *op;
  for (int k = 0; k < type->rank; k++) order[k] = member->order[k] = type->axis[k].dim;
  Elem narrowest = member->elem = value_type(slice->f, member->leaf)->elem;
  member->sum = member->leaf;
  ValueId value = member->leaf;
  bool summed = false;
  for (; (op = value_def(slice->f, value)) && zero_completes(op); value = op->in[0]) {
    Elem e = value_type(slice->f, value)->elem;
    if (elem_bytes(e) < elem_bytes(narrowest)) narrowest = e;
    if (op->code == OP_rename) rename_order(member, order, op);
    if (op->code != OP_all_reduce) continue;
    met[mesh_find(slice->z->m, attr_str(&op->attrs, ATTR_axis, ""))] = true;
    member->sum = op->in[0], member->elem = narrowest, summed = true;
    memcpy(member->order, order, sizeof order);
  }
  if (!summed && leaves_rounds(slice)) {
    Elem made = value_type(slice->f, value)->elem;
    member->sum = value, member->elem = elem_bytes(made) < elem_bytes(narrowest) ? made : narrowest;
    memcpy(member->order, order, sizeof order);
  }
  if (!take_axes(slice->z, key, met)) take_complete(slice, key);
  need(slice, type_count(value_type(slice->f, member->sum)) == type_count(type),
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

bool slice_is_number(const GroupSlice *slice) {
  return slice->member.param->type.rank == (slice->rounds.dim ? 1 : 0);
}

/* For one number per round the squares are their sums. */
static ValueId square_of_number(const Fn *fn, const Op *square) {
  const Op *cast = only_reader(fn, square->out);
  return cast && cast->code == OP_cast ? cast->out : square->out;
}

/* The sum of leaf * leaf, one number or one per round, if the norm is needed. */
static void find_square(GroupSlice *slice, const Op *op) {
  static const char norm[] = "the squares of its gradient are summed in another way than for clip";
  const Fn *fn = slice->f;
  ValueId leaf = slice->member.leaf;
  if (op->code != OP_mul || op->in[0] != leaf || op->in[1] != leaf || slice->in[op->out]) return;
  if (slice_is_number(slice)) {
    need(slice, slice->member.square == NO_VALUE, norm);
    slice->member.square = square_of_number(fn, op);
    return;
  }
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

/* Only these stores may read results of the update, and only they and the norm may read the
   gradient. */
static void check_uses(GroupSlice *slice) {
  for (uint32_t i = 0; i < slice->f->ops.n; i++) {
    const Op *op = &slice->f->ops.at[i];
    bool inside = op->nout == 1 && slice->in[op->out];
    for (uint32_t k = 0; k < op->nin; k++) {
      if (slice->in[op->in[k]])
        need(slice, inside || stores_member(slice, op),
             "an op outside its update reads a value that the update computes");
      if (op->in[k] == slice->member.leaf)
        need(slice, inside || is_square(op, slice->member.leaf) || stores_member(slice, op),
             "an op other than its update and the norm for `clip` reads its gradient");
    }
    find_square(slice, op);
  }
}

GroupSlice slice_begin(Zero *zero, Global *param, Axis rounds) {
  Arena *arena = zero->m->arena;
  uint32_t n = zero->step->values.n;
  GroupSlice slice = {.z = zero, .f = zero->step, .rounds = rounds};
  slice.member = (ZeroMember){.param = param,
                              .leaf = NO_VALUE,
                              .sum = NO_VALUE,
                              .square = NO_VALUE,
                              .part = NO_VALUE,
                              .made = NO_VALUE};
  slice.gradient = guarded_gradient(zero->step, param);
  slice.in = ARENA_ARRAY(arena, bool, n + 1);
  slice.own = ARENA_ARRAY(arena, KnownAnswer, n + 1);
  slice.number = ARENA_ARRAY(arena, KnownAnswer, n + 1);
  slice.whole = ARENA_ARRAY(arena, KnownAnswer, n + 1);
  return slice;
}

/* A state of the parameter, by its name, that the op reads; NULL: none. */
static Global *own_state(const GroupSlice *slice, const Op *op) {
  const Global *param = slice->member.param;
  size_t n = strlen(param->name);
  Global *global = op->code == OP_load ? op->global : NULL;
  bool ours = global && global->kind == GLOBAL_STATE && !strncmp(global->name, param->name, n) &&
              global->name[n] == '.' && !strchr(global->name + n + 1, '.');
  return ours ? global : NULL;
}

/* States that the update of the parameter does not read itself, such as a moving average of it. A
   state that only other entries read, such as those of frozen steps of 1-bit Adam, is none. */
static void add_states(GroupSlice *slice) {
  for (OpId i = 0; i < slice->f->ops.n; i++) {
    Global *global = own_state(slice, &slice->f->ops.at[i]);
    need(slice, !global || add_state(slice, global), "its update is not element by element");
  }
}

bool slice_read_update(GroupSlice *slice) {
  const Op *store = fn_store_of(slice->f, slice->member.param);
  must(store, "zero: no update stores @%s", slice->member.param->name);
  if (slice->gradient == NO_VALUE) slice->gradient = gate_of(slice, store->in[0]);
  read_value(slice, store->in[0]), add_states(slice);
  for (uint32_t i = 0; !slice->why && i < slice->nstates; i++) {
    const Op *kept = fn_store_of(slice->f, slice->member.state[i]);
    need(slice, kept && slice->member.state[i]->type.rank == slice->member.param->type.rank,
         "a state of its update has another shape, or is never written");
    if (!slice->why) read_value(slice, kept->in[0]);
  }
  need(slice, slice->member.leaf != NO_VALUE, "its update reads no gradient");
  find_part(slice);
  return !slice->why;
}

/* ---- padding ---- */

/* Is the result 0 where these operands are? */
static bool keeps_zero(const Op *op, const bool *zero) {
  bool first = op->nin > 0 && zero[op->in[0]], second = op->nin > 1 && zero[op->in[1]];
  switch (op->code) {
  case OP_mul: return first || second;
  case OP_div: return first && !second;
  case OP_add:
  case OP_sub:
  case OP_min:
  case OP_max: return first && second;
  case OP_where: return second && zero[op->in[2]];
  case OP_neg:
  case OP_abs:
  case OP_sign:
  case OP_sqrt:
  case OP_cast:
  case OP_wide:
  case OP_expand: return first;
  case OP_const: return attr_float(&op->attrs, ATTR_value, 1) == 0;
  default: return false;
  }
}

/* A group is padded with zeros, which numbers of its parameters are sums over. Does the update
   leave them 0? */
static bool keeps_padding(GroupSlice *slice) {
  const ZeroMember *member = &slice->member;
  bool *zero = ARENA_ARRAY(slice->z->m->arena, bool, slice->f->values.n + 1), measured = false,
       kept = true;
  const bool *number = slice_numbers(slice, &measured);
  EACH_OP (slice->f, op) {
    if (stores_member(slice, op)) kept = kept && zero[op->in[0]];
    if (op->nout != 1 || number[op->out]) continue;
    bool own = op->code == OP_load && (op->global == member->param || own_state(slice, op));
    zero[op->out] = own || op->out == member->leaf || keeps_zero(op, zero);
  }
  return !measured || kept;
}

bool slice_read(GroupSlice *slice, ZeroGroup *key) {
  if (!slice_read_update(slice)) return false;
  find_sum(slice, key);
  check_uses(slice);
  need(slice, keeps_padding(slice), "its update would change the zeros that pad a group");
  return !slice->why;
}

const bool *slice_numbers(const GroupSlice *s, bool *any) {
  bool *number = ARENA_ARRAY(s->z->m->arena, bool, s->f->values.n + 1);
  for (ValueId v = 0; v < s->f->values.n; v++)
    *any |= number[v] = s->in[v] && s->number[v] == KNOWN_YES;
  return number;
}

const bool *slice_wholes(const GroupSlice *s) {
  bool *whole = ARENA_ARRAY(s->z->m->arena, bool, s->f->values.n + 1);
  for (ValueId v = 0; v < s->f->values.n; v++) whole[v] = s->in[v] && s->whole[v] == KNOWN_YES;
  return whole;
}

/* ---- in words ---- */

static Str operand_word(const GroupSlice *slice, ValueId value) {
  Arena *arena = slice->z->m->arena;
  const Op *op = value_def(slice->f, value);
  if (value == slice->member.made) return arena_printf(arena, " matrix");
  for (uint32_t i = 0, n = 0; i < slice->chain.n; i++) {
    ValueId out = slice->f->ops.at[slice->chain.at[i]].out;
    if (out == value) return arena_printf(arena, " #%u", n);
    n += slice->whole[out] != KNOWN_YES;
  }
  if (value == slice->member.leaf) return " g";
  if (op && op->code == OP_load && op->global == slice->member.param) return " p";
  for (uint32_t i = 0; op && op->code == OP_load && i < slice->nstates; i++)
    if (op->global == slice->member.state[i]) return arena_printf(arena, " s%u", i);
  if (op && op->code == OP_const)
    return arena_printf(arena, " %s:%.17g", elem_name(value_type(slice->f, value)->elem),
                        attr_float(&op->attrs, ATTR_value, 0));
  return arena_printf(arena, " %%%u", value);
}

Str slice_home(const GroupSlice *slice) {
  const Global *param = slice->member.param;
  Arena *arena = slice->z->m->arena;
  Str w = arena_printf(arena, "%s by %u", elem_name(param->type.elem), param->stages);
  for (uint32_t i = 0; i < slice->z->m->mesh.n; i++)
    w = arena_printf(arena, "%s%c", w, is_split(param->placed.on[i]) ? '/' : '.');
  return w;
}

Str slice_words(const GroupSlice *slice) {
  const Global *param = slice->member.param;
  Arena *arena = slice->z->m->arena;
  Str w = slice_home(slice);
  for (uint32_t i = 0; i < slice->chain.n; i++) {
    const Op *op = &slice->f->ops.at[slice->chain.at[i]];
    if (op->out == slice->member.made)
      w = arena_printf(arena, "%s;matrix%s", w, operand_word(slice, slice->member.part));
    if (slice->whole[op->out] == KNOWN_YES) continue;
    w = arena_printf(arena, "%s;%s%s:%s{%.17g %s}", w,
                     slice->number[op->out] == KNOWN_YES ? "one " : "", op_name(op->code),
                     elem_name(value_type(slice->f, op->out)->elem),
                     attr_float(&op->attrs, ATTR_value, 0), attr_str(&op->attrs, ATTR_axis, ""));
    for (uint32_t k = 0; k < op->nin; k++)
      w = arena_printf(arena, "%s%s", w, operand_word(slice, op->in[k]));
  }
  w = arena_printf(arena, "%s of %s", w, elem_name(slice->member.elem));
  w = arena_printf(arena, "%s>%s", w, operand_word(slice, fn_store_of(slice->f, param)->in[0]));
  for (uint32_t i = 0; i < slice->nstates; i++)
    w = arena_printf(arena, "%s>%s", w,
                     operand_word(slice, fn_store_of(slice->f, slice->member.state[i])->in[0]));
  return w;
}

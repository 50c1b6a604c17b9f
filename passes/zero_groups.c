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
static void need(GroupSlice *s, bool good, const char *otherwise) {
  if (!s->why && !good) s->why = otherwise;
}

static bool is_scalar(const Fn *f, ValueId v) { return value_type(f, v)->rank == 0; }

static bool add_state(GroupSlice *s, Global *g) {
  for (uint32_t i = 0; i < s->nstates; i++)
    if (s->member.state[i] == g) return true;
  if (s->nstates == ZERO_STATES) return false;
  s->member.state[s->nstates++] = g;
  return true;
}

static bool spreads_number(const Fn *f, const Op *o) {
  return o->code == OP_expand && is_scalar(f, o->in[0]);
}

/* A gradient in the type in which the update reads it. */
static bool casts_gradient(const Fn *f, const Op *o) {
  const Op *from = o->code == OP_cast ? value_def(f, o->in[0]) : NULL;
  while (from && from->code == OP_cast) from = value_def(f, from->in[0]);
  return from && op_family(from->code) != FAMILY_ELEM && from->code != OP_load &&
         !spreads_number(f, from);
}

/* ---- numbers of a parameter ---- */

static bool is_elem(const Op *o) { return o && op_family(o->code) == FAMILY_ELEM; }

/* Is v made of the parameter or its states, element by element? */
static bool is_own(GroupSlice *s, ValueId v) {
  const Op *o = value_def(s->f, v);
  if (s->own[v] != KNOWN_NOT_YET) return s->own[v] == KNOWN_YES;
  bool own = v != s->gradient && o && o->code == OP_load &&
             (o->global == s->member.param || o->global->kind == GLOBAL_STATE);
  for (uint32_t i = 0; is_elem(o) && v != s->gradient && !own && i < o->nin; i++)
    own = is_own(s, o->in[i]);
  s->own[v] = own ? KNOWN_YES : KNOWN_NO;
  return own;
}

static bool lists_dim(const Op *o, Str dim) {
  for (int i = 0; i < o->group[0].nfrom; i++)
    if (o->group[0].from[i] == dim) return true;
  return false;
}

/* A sum over all dims but the rounds. */
static bool sums_round(GroupSlice *s, const Op *o) {
  const Type *t = value_type(s->f, o->in[0]), *p = &s->member.param->type;
  if (o->code != OP_sum || t->rank != p->rank || !is_own(s, o->in[0])) return false;
  for (int i = 0; i < p->rank; i++)
    if (type_find(t, p->axis[i].dim) < 0 ||
        lists_dim(o, p->axis[i].dim) == (p->axis[i].dim == s->rounds.dim))
      return false;
  return true;
}

/* Such as the loss, of which a penalty on the weights is a part: a number of the whole model. */
static bool is_stored(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].in[0] == v) return true;
  return false;
}

/* One number, or one for every round: made of sums over all of a round's elements of what is made
   of the parameter and its states. The norm of all gradients is none: it looks at no parameter. */
static bool is_number(GroupSlice *s, ValueId v) {
  const Op *o = value_def(s->f, v);
  const Type *t = value_type(s->f, v);
  if (s->number[v] != KNOWN_NOT_YET) return s->number[v] == KNOWN_YES;
  bool shape = (t->rank == 0 || (t->rank == 1 && t->axis[0].dim == s->rounds.dim)) &&
               !is_stored(s->f, v),
       number =
           o && shape && s->member.param->type.rank > (s->rounds.dim ? 1 : 0) && sums_round(s, o);
  if (o && shape && (is_elem(o) || o->code == OP_all_reduce))
    for (uint32_t i = 0; !number && i < o->nin; i++) number = is_number(s, o->in[i]);
  s->number[v] = number ? KNOWN_YES : KNOWN_NO;
  return number;
}

/* Beside the element-wise: what makes a number, and spreads one. */
static bool may_stand(GroupSlice *s, const Op *o) {
  return is_elem(o) || is_number(s, o->out) || spreads_number(s->f, o) ||
         (o->code == OP_expand && is_number(s, o->in[0]));
}

/* ---- the slice ---- */

/* What the guard takes for the parameter's gradient. What is added to it on every rank alike, such
   as the gradient of a penalty on the weights, belongs to it and not to the update. */
static ValueId guarded_gradient(const Fn *f, const Global *p) {
  size_t n = strlen(guard_prefix);
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_store || strncmp(o->global->name, guard_prefix, n) ||
        strcmp(o->global->name + n, p->name))
      continue;
    o = value_def(f, o->in[0]);
    if (o && o->code == OP_sum) o = value_def(f, o->in[0]);
    if (o && o->code == OP_cast) o = value_def(f, o->in[0]);
    return o && o->code == OP_mul && o->in[0] == o->in[1] ? o->in[0] : NO_VALUE;
  }
  return NO_VALUE;
}

static void read_value(GroupSlice *s, ValueId v) {
  const Op *o = value_def(s->f, v);
  bool number = is_number(s, v);
  if (s->why || s->in[v] || (is_scalar(s->f, v) && !number)) return;
  if (o && o->code == OP_load && o->global == s->member.param) return;
  if (o && o->code == OP_load && o->global->kind == GLOBAL_STATE) {
    need(s, add_state(s, o->global), "its update reads more than four states");
    return;
  }
  if (!o || v == s->gradient || (casts_gradient(s->f, o) && !number) || !may_stand(s, o)) {
    need(s, s->member.leaf == NO_VALUE || s->member.leaf == v,
         "its update is not element by element");
    s->member.leaf = v;
    return;
  }
  for (uint32_t i = 0; i < o->nin; i++) read_value(s, o->in[i]);
  s->in[v] = true;
  vec_push(s->z->m->arena, s->chain, s->f->values.at[v].def);
}

const Op *zero_store_of(const Fn *f, const Global *g) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].global == g) return &f->ops.at[i];
  return NULL;
}

/* ---- the gradient ---- */

static bool is_partitioned(const Zero *z, Str axis) {
  for (int i = 0; i < z->naxes; i++)
    if (z->axis[i] == axis) return true;
  return false;
}

static bool add_axis(Str *list, int *n, Str axis) {
  if (*n == ZERO_AXES) return false;
  list[(*n)++] = axis;
  return true;
}

/* Axes in the order of the mesh; `met`: those over which the gradient is summed. An axis of one
   rank sums nothing, and is always among them. */
static bool take_axes(const Zero *z, ZeroGroup *g, const bool *met) {
  bool good = true;
  g->ways = 1, g->naxes = g->nothers = 0;
  for (uint32_t i = 0; i < z->m->mesh.n; i++) {
    Str name = z->m->mesh.at[i].name;
    bool ours = is_partitioned(z, name);
    if (!met[i] && !(ours && z->m->mesh.at[i].size == 1)) continue;
    good = good &&
           (ours ? add_axis(g->axis, &g->naxes, name) : add_axis(g->others, &g->nothers, name));
    if (ours) g->ways *= z->m->mesh.at[i].size;
  }
  return good && g->naxes;
}

/* Where the dims of the parameter stand in the gradient before it was renamed. */
static void rename_order(const ZeroMember *m, Str *order, const Op *o) {
  for (int g = 0; g < o->ngroups; g++)
    for (int k = 0; k < m->param->type.rank; k++)
      if (order[k] == o->group[g].to[0]) order[k] = o->group[g].from[0];
}

/* What stands between a partial gradient and the complete one. */
static bool completes(const Op *o) {
  return o->code == OP_rename || o->code == OP_all_reduce || o->code == OP_cast;
}

/* A gradient that is complete for other reasons (its pieces were gathered over another axis): over
   all axes on which the parameter is whole. */
static void take_complete(GroupSlice *s, ZeroGroup *key) {
  bool met[MAX_MESH] = {false};
  ZeroMember *m = &s->member;
  for (uint32_t i = 0; i < s->z->m->mesh.n; i++)
    met[i] = is_partitioned(s->z, s->z->m->mesh.at[i].name) && !m->param->placed.on[i];
  m->sum = m->leaf, key->complete = true;
  for (int k = 0; k < m->param->type.rank; k++) m->order[k] = m->param->type.axis[k].dim;
  need(s, take_axes(s->z, key, met), "its gradient is summed over too many axes");
}

static void find_sum(GroupSlice *s, ZeroGroup *key) {
  ZeroMember *m = &s->member;
  bool met[MAX_MESH] = {false};
  const Type *p = &m->param->type;
  Str order[MAX_RANK];
  const Op *o;
  for (int k = 0; k < p->rank; k++) order[k] = m->order[k] = p->axis[k].dim;
  Elem narrowest = m->elem = value_type(s->f, m->leaf)->elem;
  m->sum = m->leaf;
  for (ValueId v = m->leaf; (o = value_def(s->f, v)) && completes(o); v = o->in[0]) {
    Elem e = value_type(s->f, v)->elem;
    if (elem_bytes(e) < elem_bytes(narrowest)) narrowest = e;
    if (o->code == OP_rename) rename_order(m, order, o);
    if (o->code != OP_all_reduce) continue;
    met[mesh_find(s->z->m, attr_str(&o->attrs, ATTR_axis, ""))] = true;
    m->sum = o->in[0], m->elem = narrowest;
    memcpy(m->order, order, sizeof order);
  }
  if (!take_axes(s->z, key, met)) take_complete(s, key);
  need(s, type_count(value_type(s->f, m->sum)) == type_count(p),
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
static void find_square(GroupSlice *s, const Op *o) {
  static const char norm[] = "the squares of its gradient are summed in another way than for clip";
  const Fn *f = s->f;
  ValueId leaf = s->member.leaf;
  if (o->code != OP_mul || o->in[0] != leaf || o->in[1] != leaf || s->in[o->out]) return;
  const Op *sum = only_reader(f, o->out);
  if (sum && sum->code == OP_cast) sum = only_reader(f, sum->out);
  need(s, sum && sum->code == OP_sum && s->member.square == NO_VALUE, norm);
  if (s->why) return;
  const Type *t = value_type(f, sum->out);
  need(s, t->rank == 0 || (t->rank == 1 && t->axis[0].dim == s->member.param->type.axis[0].dim),
       norm);
  s->member.square = sum->out;
}

static bool is_square(const Op *o, ValueId leaf) {
  return o->code == OP_mul && o->in[0] == leaf && o->in[1] == leaf;
}

/* Does o store the parameter, or a state of it? */
static bool stores_member(const GroupSlice *s, const Op *o) {
  if (o->code != OP_store) return false;
  bool ours = o->global == s->member.param;
  for (uint32_t i = 0; i < s->nstates; i++) ours |= o->global == s->member.state[i];
  return ours;
}

/* Nothing but these stores may see what the update makes, nothing but the norm the gradient. */
static void check_uses(GroupSlice *s) {
  for (uint32_t i = 0; i < s->f->ops.n; i++) {
    const Op *o = &s->f->ops.at[i];
    bool inside = o->nout == 1 && s->in[o->out];
    for (uint32_t k = 0; k < o->nin; k++) {
      if (s->in[o->in[k]])
        need(s, inside || stores_member(s, o),
             "something else than its update reads what the update computes");
      if (o->in[k] == s->member.leaf)
        need(s, inside || is_square(o, s->member.leaf),
             "something else than its update and the norm for clip reads its gradient");
    }
    find_square(s, o);
  }
}

/* ---- in words ---- */

static Str operand_word(const GroupSlice *s, ValueId v) {
  Arena *a = s->z->m->arena;
  const Op *o = value_def(s->f, v);
  for (uint32_t i = 0; i < s->chain.n; i++)
    if (s->f->ops.at[s->chain.at[i]].out == v) return arena_printf(a, " #%u", i);
  if (v == s->member.leaf) return " g";
  if (o && o->code == OP_load && o->global == s->member.param) return " p";
  for (uint32_t i = 0; o && o->code == OP_load && i < s->nstates; i++)
    if (o->global == s->member.state[i]) return arena_printf(a, " s%u", i);
  if (o && o->code == OP_const)
    return arena_printf(a, " %s:%.17g", elem_name(value_type(s->f, v)->elem),
                        attr_float(&o->attrs, ATTR_value, 0));
  return arena_printf(a, " %%%u", v);
}

static Str chain_words(const GroupSlice *s) {
  Arena *a = s->z->m->arena;
  Str w = elem_name(s->member.param->type.elem);
  for (uint32_t i = 0; i < s->z->m->mesh.n; i++)
    w = arena_printf(a, "%s%c", w, is_split(s->member.param->placed.on[i]) ? '/' : '.');
  for (uint32_t i = 0; i < s->chain.n; i++) {
    const Op *o = &s->f->ops.at[s->chain.at[i]];
    w = arena_printf(a, "%s;%s%s:%s{%.17g %s}", w, s->number[o->out] == KNOWN_YES ? "one " : "",
                     op_name(o->code), elem_name(value_type(s->f, o->out)->elem),
                     attr_float(&o->attrs, ATTR_value, 0), attr_str(&o->attrs, ATTR_axis, ""));
    for (uint32_t k = 0; k < o->nin; k++) w = arena_printf(a, "%s%s", w, operand_word(s, o->in[k]));
  }
  const Op *last = zero_store_of(s->f, s->member.param);
  w = arena_printf(a, "%s>%s of %s", w, operand_word(s, last->in[0]), elem_name(s->member.elem));
  for (uint32_t i = 0; i < s->nstates; i++)
    w = arena_printf(a, "%s>%s", w,
                     operand_word(s, zero_store_of(s->f, s->member.state[i])->in[0]));
  return w;
}

/* ---- who reads it ---- */

/* Between which stacks a value is read, as a set of epochs; views of it included. The update does
   not count. */
static uint64_t epochs_of(const GroupSlice *s, const Fn *f, ValueId v) {
  uint32_t *epoch;
  uint64_t set = 0;
  zero_epochs(s->z, f, &epoch);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (f == s->f && o->nout == 1 && s->in[o->out]) continue;
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v) continue;
      if (o->code == OP_rename || o->code == OP_cast) set |= epochs_of(s, f, o->out);
      else if (o->code == OP_loop && zero_is_micro(s->z, o))
        set |= epochs_of(s, o->callee, o->callee->args.at[k + 1]);
      else set |= (uint64_t)1 << (epoch[i] < 63 ? epoch[i] : 63);
    }
  }
  return set;
}

/* Is v, of any function, read by nothing but casts to one narrower float type? */
static bool only_cast(GroupSlice *s, const Fn *f, ValueId v) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (f == s->f && o->nout == 1 && s->in[o->out] && o->code != OP_cast) continue;
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v) continue;
      if (o->code == OP_loop && !only_cast(s, o->callee, o->callee->args.at[k + 1])) return false;
      if (o->code == OP_rename && !only_cast(s, f, o->out)) return false;
      if (o->code == OP_loop || o->code == OP_rename) continue;
      Elem e = o->code == OP_cast ? value_type(f, o->out)->elem : ELEM_f32;
      if (elem_class(e) != CLASS_FLOAT || elem_bytes(e) >= elem_bytes(value_type(f, v)->elem))
        return false;
      if (s->member.copied && s->member.narrow != e) return false;
      s->member.copied = true, s->member.narrow = e;
    }
  }
  return true;
}

static void find_copy(GroupSlice *s) {
  Module *m = s->z->m;
  bool good = true;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; m->fns.at[i]->kind == FN_ENTRY && k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_load && o->global == s->member.param)
        good = good && only_cast(s, m->fns.at[i], o->out);
    }
  s->member.copied = s->member.copied && good;
  if (s->member.copied || !s->z->masters) return;
  s->member.copied = true, s->member.narrow = s->member.param->type.elem;
}

static Str region_words(const GroupSlice *s) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < s->f->ops.n; i++) {
    const Op *o = &s->f->ops.at[i];
    if (o->code == OP_load && o->global == s->member.param) set |= epochs_of(s, s->f, o->out);
  }
  return arena_printf(s->z->m->arena, "@%llx", (unsigned long long)set);
}

/* ---- groups ---- */

static bool read_update(GroupSlice *s, ZeroGroup *key) {
  const Op *store = zero_store_of(s->f, s->member.param);
  must(store, "zero: no update stores @%s", s->member.param->name);
  read_value(s, store->in[0]);
  for (uint32_t i = 0; !s->why && i < s->nstates; i++) {
    const Op *kept = zero_store_of(s->f, s->member.state[i]);
    need(s, kept && s->member.state[i]->type.rank == s->member.param->type.rank,
         "a state of its update has another shape, or is never written");
    if (!s->why) read_value(s, kept->in[0]);
  }
  need(s, s->member.leaf != NO_VALUE, "its update reads no gradient");
  if (s->why) return false;
  find_sum(s, key);
  check_uses(s);
  return !s->why;
}

/* Do several ranks of an axis hold it alike, all of which the plan wants partitioned? */
static bool is_repeated(const Zero *z, const Global *p) {
  for (uint32_t i = 0; i < z->m->mesh.n; i++)
    if (z->m->mesh.at[i].size > 1 && is_partitioned(z, z->m->mesh.at[i].name) && !p->placed.on[i])
      return true;
  return false;
}

static void note_whole(Zero *z, const Global *p, const char *why) {
  if (!z->stage || !is_repeated(z, p)) return;
  if (!z->named.n) z->why = why;
  vec_push(z->m->arena, z->named, p);
}

/* What no update writes is in no group: stage 3 is about parameters, so it says so. */
static void note_unwritten(Zero *z, const Global *p) {
  int64_t bytes = type_count(&p->type) * elem_bytes(p->type.elem);
  if (z->stage == 3 && bytes > z->persist)
    note_whole(z, p, p->frozen ? "it is frozen, and no update writes it" : "no update writes it");
}

/* The dim of the stack that a parameter belongs to: paths of stacked ones have a star. */
static Axis rounds_of(const Global *p) {
  return strchr(p->name, '*') ? p->type.axis[0] : (Axis){0};
}

static Str region_of(const Zero *z, const Global *p) {
  const char *star = strchr(p->name, '*');
  return star && star > p->name ? arena_strndup(z->m->arena, p->name, (size_t)(star - p->name - 1))
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

static void add_member(Zero *z, ZeroGroup key, ZeroMember m) {
  Arena *a = z->m->arena;
  must(m.leaf != NO_VALUE && m.sum != NO_VALUE, "zero: @%s has no gradient", m.param->name);
  vec_push(a, key.member, m);
  for (uint32_t i = 0; i < z->group.n; i++)
    if (same_group(&z->group.at[i], &key)) {
      vec_push(a, z->group.at[i].member, m);
      return;
    }
  vec_push(a, z->group, key);
}

/* Small parameters stay whole. */
static int stage_of(const GroupSlice *s, const ZeroGroup *g) {
  const Global *p = s->member.param;
  int64_t count = type_count(&p->type) / (g->rounds.dim ? g->rounds.size : 1);
  int64_t bytes = count * elem_bytes(g->copied ? g->narrow : p->type.elem);
  return s->z->stage == 3 && bytes <= s->z->persist ? 2 : s->z->stage;
}

static const bool *numbers_of(const GroupSlice *s, bool *any) {
  bool *number = ARENA_ARRAY(s->z->m->arena, bool, s->f->values.n + 1);
  for (ValueId v = 0; v < s->f->values.n; v++)
    *any |= number[v] = s->in[v] && s->number[v] == KNOWN_YES;
  return number;
}

static void read_param(Zero *z, Global *p) {
  GroupSlice s = {.z = z, .f = z->step, .rounds = rounds_of(p)};
  s.gradient = guarded_gradient(z->step, p);
  s.member = (ZeroMember){.param = p, .leaf = NO_VALUE, .sum = NO_VALUE, .square = NO_VALUE};
  if (p->type.rank && !zero_store_of(z->step, p)) note_unwritten(z, p);
  if (!zero_store_of(z->step, p) || p->type.rank == 0) return;
  s.in = ARENA_ARRAY(z->m->arena, bool, z->step->values.n + 1);
  s.own = ARENA_ARRAY(z->m->arena, KnownAnswer, z->step->values.n + 1);
  s.number = ARENA_ARRAY(z->m->arena, KnownAnswer, z->step->values.n + 1);
  ZeroGroup key = {.name = region_of(z, p), .rounds = s.rounds};
  if (!read_update(&s, &key)) {
    note_whole(z, p, s.why);
    return;
  }
  if (key.ways < zero_alike(z, p))
    note_whole(z, p, "its gradient is a sum over some of these axes alone");
  s.member.chain = s.chain.at, s.member.nchain = s.chain.n;
  s.member.number = numbers_of(&s, &key.measured);
  s.member.signature = arena_printf(z->m->arena, "%s of %s", chain_words(&s),
                                    elem_name(value_type(s.f, s.member.sum)->elem));
  find_copy(&s);
  key.copied = s.member.copied, key.narrow = s.member.narrow;
  if (key.copied)
    s.member.signature =
        arena_printf(z->m->arena, "%s as %s", s.member.signature, elem_name(key.narrow));
  if (!key.rounds.dim)
    s.member.signature = arena_printf(z->m->arena, "%s%s", s.member.signature, region_words(&s));
  key.nstates = s.nstates;
  key.stage = stage_of(&s, &key);
  add_member(z, key, s.member);
}

/* Into so many buckets at least a group is cut whose members begin at buckets: what they waste is
   the members' number of these at most. */
enum { FINE = 1024 };

/* Bytes of an element on its way: of the gradient, or of the weight, whichever is the wider. */
static int64_t wire_bytes(const Zero *z, const ZeroGroup *g) {
  const ZeroMember *m = &g->member.at[0];
  int64_t gradient = z->reduce_bytes ? z->reduce_bytes : elem_bytes(m->elem),
          weight = elem_bytes(g->copied ? g->narrow : m->param->type.elem);
  return g->stage && weight > gradient ? weight : gradient;
}

/* The file's value was checked where it stands; that of the command line, or of a dump, is here. */
static void too_small(const Zero *z, const ZeroGroup *g) {
  Report *r = diag_at(z->m->ctx->diag, "E0602", (Span){0},
                      "`zero` cannot cut `%s` in buckets of %lld bytes over %lld ranks", g->name,
                      (long long)z->bucket_bytes, (long long)g->ways);
  diag_help(r, "`plan.zero.bucket` is 64 for each rank at least: %lld", (long long)(64 * g->ways));
}

/* Pieces begin at multiples of 64 bytes. A bucket has at most `bucket_bytes` on its way. */
static void lay_out(Zero *z, ZeroGroup *g) {
  must(g->member.n && g->ways > 0, "zero: group %s of %u members over %lld ranks", g->name,
       g->member.n, (long long)g->ways);
  int64_t unit = g->ways * (64 / elem_bytes(g->member.at[0].param->type.elem)),
          most = z->bucket_bytes / wire_bytes(z, g) / unit * unit, all = 0;
  for (uint32_t i = 0; i < g->member.n; i++) {
    ZeroMember *m = &g->member.at[i];
    m->count = type_count(&m->param->type) / (g->rounds.dim ? g->rounds.size : 1);
    all += m->count;
  }
  if (most < 1 && g == z->group.at) too_small(z, g);
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

static void name_group(Zero *z, ZeroGroup *g, uint32_t i) {
  Interner *n = z->m->ctx->names;
  uint32_t same = 1;
  for (uint32_t k = 0; k < i; k++) same += !strcmp(z->group.at[k].name, g->name);
  Str name = same > 1 ? arena_printf(z->m->arena, "%s%u", g->name, same) : g->name;
  g->name = intern_printf(n, "zero.%s", name);
  g->flat = intern_printf(n, "Flat_%u", i), g->bucket = intern_printf(n, "Bucket_%u", i);
  g->part = intern_printf(n, "Piece_%u", i);
  for (int k = 0; k < g->naxes; k++) g->owner[k] = intern_printf(n, "Owner_%u_%s", i, g->axis[k]);
}

void zero_find_groups(Zero *z) {
  for (uint32_t i = 0; i < z->m->globals.n; i++)
    if (z->m->globals.at[i]->kind == GLOBAL_PARAM) read_param(z, z->m->globals.at[i]);
  for (uint32_t i = 0; i < z->group.n; i++) lay_out(z, &z->group.at[i]);
  for (uint32_t i = z->group.n; i-- > 0;) name_group(z, &z->group.at[i], i);
}

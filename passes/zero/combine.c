/* combine: sends short sums over one axis as one message.

   The norm of gradients is a sum per group of parameters and axis (zero, optimizer), the loss is
   one more: numbers that take a message's latency each. All-reduces of an entry over the same
   axis, of short values that differ along the same other axes, are replaced by one all-reduce of
   their concatenated elements, at the position of the last of them; their readers move after it.
   So none of them may need another one. An op that takes time may not wait for longer than it did:
   if it needs one of the sums and is not short itself, it must need the last sum as well.

   In a pipeline all sums of a message are over parameters that the same stages hold: a stage
   computes no norm of parameters that others hold, and has no bytes for it (pass `own`).

   Runs when values are those of one rank and have the type in which they are sent. An element is
   added up over ranks as before. Must not: touch gradients of parameters or sums of activations,
   which are not short, or messages that a loop sends in its rounds. */
#include "ir/made.h"
#include "ir/schedule/divergence.h"
#include "passes/base/rebuild.h"
#include <string.h>

enum { SHORT = 16384 }; /* bytes: a message of as many takes hardly longer than one of 4 */

typedef struct ShortSums { /* of an entry, one message in the making */
  const Fn *f;
  const AxisSet *differs; /* by value of f: along which axes */
  unsigned *holders;      /* by value of f: marks of stages that hold the parameters it depends
                             on */
  OpId at[MAX_RANK];
  bool *needs[MAX_RANK]; /* by op of f: it needs that sum */
  uint32_t n;
} ShortSums;

static bool is_short(const Fn *f, ValueId v) {
  const Type *t = value_type(f, v);
  return type_dense_bytes(t) <= SHORT;
}

/* Only these say no more than where and with how many. */
static bool is_plain(const Op *o) {
  return o->code == OP_all_reduce && !attr_get(&o->attrs, ATTR_reduce) &&
         !attr_get(&o->attrs, ATTR_gradient) && !attr_get(&o->attrs, ATTR_messages);
}

static bool is_alike(const ShortSums *sums, const Op *a, const Op *b) {
  const Fn *f = sums->f;
  return sums->differs[a->out] == sums->differs[b->out] &&
         sums->holders[a->out] == sums->holders[b->out] &&
         !strcmp(attr_str(&a->attrs, ATTR_axis, ""), attr_str(&b->attrs, ATTR_axis, "")) &&
         value_type(f, a->out)->elem == value_type(f, b->out)->elem;
}

/* Results of loops belong to all stages. */
static unsigned *holders_of(Module *m, const Fn *f) {
  unsigned *holders = ARENA_ARRAY(m->arena, unsigned, f->values.n + 1);
  EACH_OP (f, o) {
    unsigned of = o->code == OP_load && o->global->stages ? 1u << o->global->stages : 0;
    for (uint32_t k = 0; k < o->nin; k++) of |= holders[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) holders[o->out + k] = o->code == OP_loop ? 0 : of;
  }
  return holders;
}

static bool *needs_of(Module *m, const Fn *f, OpId at) {
  bool *needs = ARENA_ARRAY(m->arena, bool, f->ops.n + 1);
  needs[at] = true;
  for (OpId i = at + 1; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      OpId def = f->values.at[f->ops.at[i].in[k]].def;
      needs[i] |= def != NO_OP && needs[def];
    }
  needs[at] = false;
  return needs;
}

static bool takes_time(const Fn *f, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++)
    if (!is_short(f, o->out + i)) return true;
  return o->code == OP_loop;
}

/* May the ops that need the sums so far wait for one more, which the ops `last` need? */
static bool may_wait(const ShortSums *sums, const bool *last) {
  for (uint32_t s = 0; s < sums->n; s++)
    for (OpId i = sums->at[s] + 1; i < sums->f->ops.n; i++)
      if (sums->needs[s][i] && !last[i] && takes_time(sums->f, &sums->f->ops.at[i])) return false;
  return true;
}

static bool needs_one(const ShortSums *sums, OpId at) {
  for (uint32_t s = 0; s < sums->n; s++)
    if (sums->needs[s][at]) return true;
  return false;
}

static bool find_from(Module *m, ShortSums *sums, OpId first) {
  const Fn *f = sums->f;
  sums->n = 0;
  for (OpId i = first; i < f->ops.n && sums->n < MAX_RANK; i++) {
    const Op *o = &f->ops.at[i];
    if (!is_plain(o) || !is_short(f, o->out) || !is_alike(sums, &f->ops.at[first], o)) continue;
    if (needs_one(sums, i)) continue;
    bool *needs = needs_of(m, f, i);
    if (!may_wait(sums, needs)) continue;
    sums->at[sums->n] = i, sums->needs[sums->n++] = needs;
  }
  return sums->n > 1;
}

static bool find(Module *m, ShortSums *sums) {
  for (OpId i = 0; i < sums->f->ops.n; i++) {
    const Op *o = &sums->f->ops.at[i];
    if (is_plain(o) && is_short(sums->f, o->out) && find_from(m, sums, i)) return true;
  }
  return false;
}

/* ---- one message ---- */

/* The elements of v in the order of the dims of `like`, the type of the sum: v may have another. */
static ValueId in_line(Rebuild *rebuild, ValueId v, Str dim, const Type *like) {
  Type line = type_of(like->elem, 1, &(Axis){dim, type_count(like)});
  Str from[MAX_RANK];
  for (int i = 0; i < like->rank; i++) from[i] = like->axis[i].dim;
  Group map = like->rank ? group_map(like->rank, from, 1, &dim) : group_dims(1, &dim);
  OpCode code = like->rank > 1 ? OP_merge : like->rank ? OP_rename : OP_expand;
  return emit_typed(rebuild->m, rebuild->to, code, 1, &v, &map, line, (Loc){0});
}

static ValueId out_of_line(Rebuild *rebuild, ValueId line, int64_t at, Str dim, const Type *t) {
  Module *m = rebuild->m;
  Fn *f = rebuild->to;
  Type part = type_of(t->elem, 1, &(Axis){dim, type_count(t)});
  Str all = value_type(f, line)->axis[0].dim, to[MAX_RANK];
  Group cut = group_map(1, &all, 1, &dim);
  if (!t->rank)
    return ir_gather(m, f, line, ir_const(m, f, ELEM_i32, (double)at, (Loc){0}), all, (Loc){0});
  ValueId v = emit_typed(m, f, OP_slice, 1, &line, &cut, part, (Loc){0});
  attr_set_int(m, &vec_last(f->ops).attrs, ATTR_at, at);
  for (int i = 0; i < t->rank; i++) to[i] = t->axis[i].dim;
  Group map = group_map(1, &dim, t->rank, to);
  return emit_typed(m, f, t->rank > 1 ? OP_split : OP_rename, 1, &v, &map, *t, (Loc){0});
}

static void send_as_one(Rebuild *rebuild, const ShortSums *sums, uint32_t number) {
  Str all = name_made(rebuild->m, "sums'%u", number), dim[MAX_RANK];
  ValueId in[MAX_RANK];
  int64_t at = 0, size = 0;
  for (uint32_t i = 0; i < sums->n; i++) {
    const Op *o = &sums->f->ops.at[sums->at[i]];
    const Type *sum = value_type(sums->f, o->out);
    dim[i] = name_made(rebuild->m, "%s'%u", all, i);
    in[i] = in_line(rebuild, rebuild->map[o->in[0]], dim[i], sum);
    size += type_count(sum);
  }
  const Op *last = &sums->f->ops.at[sums->at[sums->n - 1]];
  Type t = type_of(value_type(sums->f, last->out)->elem, 1, &(Axis){all, size});
  Group join = group_map((int)sums->n, dim, 1, &all);
  ValueId line = emit_typed(rebuild->m, rebuild->to, OP_concat, sums->n, in, &join, t, (Loc){0});
  Op *made = rebuild_op(rebuild, last);
  ValueId sum = made->out;
  made->in[0] = line;
  rebuild->to->values.at[sum].type = t;
  for (uint32_t i = 0; i < sums->n; i++) {
    const Op *o = &sums->f->ops.at[sums->at[i]];
    const Type *own = value_type(sums->f, o->out);
    rebuild->map[o->out] = out_of_line(rebuild, sum, at, dim[i], own);
    at += type_count(own);
  }
}

/* ---- the entry ---- */

static bool is_one_of(const ShortSums *sums, OpId at) {
  for (uint32_t s = 0; s < sums->n; s++)
    if (sums->at[s] == at) return true;
  return false;
}

static Fn *combined(Module *m, const ShortSums *sums, uint32_t number) {
  const Fn *f = sums->f;
  Rebuild rebuild = rebuild_begin(m, f);
  OpId last = sums->at[sums->n - 1];
  bool *waits = ARENA_ARRAY(m->arena, bool, f->ops.n + 1);
  for (OpId i = 0; i < f->ops.n; i++) {
    waits[i] = i < last && needs_one(sums, i);
    if (!waits[i] && !is_one_of(sums, i)) rebuild_op(&rebuild, &f->ops.at[i]);
    if (i != last) continue;
    send_as_one(&rebuild, sums, number);
    for (OpId k = 0; k < last; k++)
      if (waits[k]) rebuild_op(&rebuild, &f->ops.at[k]);
  }
  return rebuild.to;
}

static bool has_several(const Fn *f) {
  uint32_t n = 0;
  for (OpId i = 0; i < f->ops.n; i++) n += is_plain(&f->ops.at[i]) && is_short(f, f->ops.at[i].out);
  return f->kind == FN_ENTRY && n > 1;
}

/* The first message of entry i that exists. */
static bool find_in(Module *m, uint32_t i, ShortSums *sums) {
  *sums = (ShortSums){.f = m->fns.at[i]};
  if (!has_several(sums->f)) return false;
  sums->differs = uniform_of(m).at[i], sums->holders = holders_of(m, sums->f);
  return find(m, sums);
}

void pass_combine(Module *m) {
  uint32_t number = 0;
  ShortSums sums;
  for (uint32_t i = 0; i < m->fns.n && m->mesh.n; i++)
    while (find_in(m, i, &sums)) module_replace(m, m->fns.at[i], combined(m, &sums, number++));
}

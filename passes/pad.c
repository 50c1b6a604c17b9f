/* pad: dims that mesh axes split, but only in their padded size (`Vocab = 50257 pad 128`), get that
   size. The mathematics stays that of the logical one: parameters and states hold zeros in the
   padding, from their first value on, and

     sum, dot        padding of operands is 0
     rmax, argmax    padding is the lowest number, for rmin the highest
     gather          a padded table is 0 there; scatter drops indexes that are no logical ones
     inputs, outputs have their logical size: padded behind the load, cut before the store
     other ops that work along the dim: on the logical part, which is cut out and padded again

   Where padding is zero already (pad_facts.c), nothing is added. So gradients of parameters are
   zero there too, and norms and updates need not know. Stands behind `recompute` and before
   `place`: derivatives are made of logical values. Does nothing to a dim whose logical size its
   axes divide; without axes, to one whose rows the target can read in whole pieces. */
#include "ir/placement.h"
#include "passes/tune/gpu.h"
#include "passes/pad.h"
#include <math.h>
#include <string.h>

enum { PIECE = 8 }; /* of 16 bits in what a GPU reads at once; other rows are read one by one */

typedef struct PadFn { /* one function */
  Pads *p;
  Module *m;
  Rebuild r;
  PadFacts *fact;        /* by old value */
  ValueId *zeroed[PADS]; /* by old value: with zeros in the padding of that dim; NO_VALUE */
  Loc loc;
} PadFn;

/* ---- which dims ---- */

/* Does a rule about `dim` speak of D: the dim itself, one like it, a primed one? */
static bool speaks_of(const Dim *d, Str dim) {
  size_t n = strlen(dim);
  return d->name == dim || d->like == dim || (!strncmp(d->name, dim, n) && d->name[n] == '\'');
}

static bool rule_names(const PlaceRule *r, const Dim *d) {
  for (uint32_t i = 0; i < r->dims.n; i++)
    if (speaks_of(d, r->dims.at[i])) return true;
  for (uint32_t i = 0; i < r->otherwise.n; i++)
    if (speaks_of(d, r->otherwise.at[i])) return true;
  return false;
}

static int64_t ways_of(const Module *m, const Dim *d) {
  int64_t ways = 1;
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; rule_names(&m->rules.at[i], d) && k < m->rules.at[i].axes.n; k++) {
      int axis = mesh_find(m, m->rules.at[i].axes.at[k]);
      if (axis >= 0) ways *= m->mesh.at[axis].size;
    }
  return ways;
}

static bool runs_over(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_loop && loop_shape(o).axis.dim == dim) return true;
    }
  return false;
}

/* Only what d is stored as. */
static bool divides(int64_t n, const Dim *d) { return d->size % n && d->stored % n == 0; }

static void find_dims(Pads *p) {
  Module *m = p->m;
  int64_t pieces = module_on_gpu(m) ? PIECE : 1;
  for (uint32_t i = 0; i < m->dims.n; i++) {
    const Dim *d = &m->dims.at[i];
    if (d->stored <= d->size || !(divides(ways_of(m, d), d) || divides(pieces, d))) continue;
    if (runs_over(m, d->name) || p->n == PADS) continue;
    p->at[p->n++] = (PadDim){d->name, d->size, d->stored};
  }
}

static Type padded(const Pads *p, Type t) {
  for (int i = 0; i < t.rank; i++) {
    int d = pad_find(p, &t, t.axis[i].dim);
    if (d >= 0) t.axis[i].size = p->at[d].stored;
  }
  return t;
}

static bool has(const PadFn *k, ValueId v, int d) {
  return pad_find(k->p, value_type(k->r.from, v), k->p->at[d].dim) == d;
}

/* ---- what padding holds ---- */

/* bool[D]: the index is a logical one */
static ValueId inside(PadFn *k, int d) {
  PadDim x = k->p->at[d];
  ValueId i = ir_iota(k->m, k->r.to, (Axis){x.dim, x.stored}, k->loc);
  ValueId n = ir_const(k->m, k->r.to, ELEM_i32, (double)x.size, k->loc);
  return ir_binary(k->m, k->r.to, OP_lt, i, n, k->loc);
}

static ValueId filled(PadFn *k, ValueId v, int d, double fill) {
  ValueId c = ir_const(k->m, k->r.to, value_type(k->r.to, v)->elem, fill, k->loc);
  return ir_where(k->m, k->r.to, inside(k, d), v, c, k->loc);
}

/* An operand, with zeros in the padding of dim d. */
static ValueId with_zeros(PadFn *k, ValueId old, ValueId v, int d, PadFacts *fact) {
  if (pad_is_zero(fact->of[d]) || !has(k, old, d)) return v;
  fact->of[d] = (PadFact){PAD_KNOWN, 0};
  if (v != k->r.map[old]) return filled(k, v, d, 0);
  if (k->zeroed[d][old] == NO_VALUE) k->zeroed[d][old] = filled(k, v, d, 0);
  return k->zeroed[d][old];
}

static double lowest(Elem e) {
  return elem_class(e) == CLASS_FLOAT ? -INFINITY
         : e == ELEM_i64              ? (double)INT64_MIN
                                      : (double)INT32_MIN;
}

/* The largest or smallest along d does not see the padding. */
static ValueId out_of_reach(PadFn *k, const Op *o, ValueId v, int d) {
  Elem e = value_type(k->r.to, v)->elem;
  double low = lowest(e), high = e == ELEM_i64 ? 9.2e18 : -low - (low > -INFINITY);
  return filled(k, v, d, o->code == OP_rmin ? high : low);
}

/* Indexes that are no logical ones are outside of the padded dim, too. */
static ValueId within(PadFn *k, ValueId index, int d) {
  Elem e = value_type(k->r.to, index)->elem;
  ValueId n = ir_const(k->m, k->r.to, e, (double)k->p->at[d].size, k->loc);
  ValueId fine = ir_binary(k->m, k->r.to, OP_lt, index, n, k->loc);
  return ir_where(k->m, k->r.to, fine, index, ir_const(k->m, k->r.to, e, -1, k->loc), k->loc);
}

/* ---- between the sizes ---- */

static ValueId resize(PadFn *k, OpCode c, ValueId v, int d, int64_t size) {
  Type t = *value_type(k->r.to, v);
  Str dim = k->p->at[d].dim;
  must(type_find(&t, dim) >= 0, "pad: %%%u of %s has no dim %s", v, k->r.to->name, dim);
  t.axis[type_find(&t, dim)].size = size;
  Op *o = fn_op(k->m, k->r.to, c, 1, &v, 1, &t, k->loc);
  ValueId out = o->out;
  op_add_group(k->m, o, group_map(1, &dim, 1, &dim));
  return out;
}

static ValueId cut(PadFn *k, ValueId v, int d) {
  return resize(k, OP_slice, v, d, k->p->at[d].size);
}

static ValueId grown(PadFn *k, ValueId v, int d) {
  return resize(k, OP_pad, v, d, k->p->at[d].stored);
}

/* ---- ops ---- */

static bool in_groups(const Op *o, Str dim) {
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (o->group[g].from[i] == dim) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (o->group[g].to[i] == dim) return true;
  }
  return false;
}

/* A dim renamed to another one that is padded alike. */
static bool renames_alike(const PadFn *k, const Op *o, int d) {
  const Type *in = value_type(k->r.from, o->in[0]), *out = value_type(k->r.from, o->out);
  for (int g = 0; g < o->ngroups; g++) {
    int a = pad_find(k->p, in, o->group[g].from[0]), b = pad_find(k->p, out, o->group[g].to[0]);
    if (a != d && b != d) continue;
    if (a < 0 || b < 0 || k->p->at[a].stored != k->p->at[b].stored) return false;
  }
  return true;
}

/* Can o not work on the padded dim? */
static bool needs_logical(const PadFn *k, const Op *o, int d) {
  if (!in_groups(o, k->p->at[d].dim)) return false;
  switch (op_family(o->code)) {
  case FAMILY_SOURCE:
  case FAMILY_REDUCE:
  case FAMILY_CONTRACT:
  case FAMILY_GATHER:
  case FAMILY_SCATTER: return false;
  case FAMILY_STRUCT:
    return !(o->code == OP_expand || (o->code == OP_rename && renames_alike(k, o, d)));
  default: return true;
  }
}

static bool sums(OpCode c) {
  return c == OP_sum || op_family(c) == FAMILY_CONTRACT || op_family(c) == FAMILY_ATTENTION ||
         op_family(c) == FAMILY_SCATTER;
}

/* Operand i of o as o may read it. */
static ValueId operand(PadFn *k, const Op *o, uint32_t i, PadFacts *fact) {
  ValueId old = o->in[i], v = k->r.map[old];
  bool number = elem_class(value_type(k->r.from, old)->elem) != CLASS_BOOL;
  for (int d = 0; d < k->p->n; d++) {
    Str dim = k->p->at[d].dim;
    bool table = o->code == OP_gather && i == 0 && o->group[0].from[0] == dim;
    bool index = o->code == OP_scatter && i == 1 && o->group[0].to[0] == dim;
    if (index && pad_find(k->p, value_type(k->r.from, o->out), dim) == d) v = within(k, v, d);
    if (!has(k, old, d)) continue;
    if (needs_logical(k, o, d)) v = cut(k, v, d);
    else if (table || (sums(o->code) && number && !(o->code == OP_scatter && i == 1)))
      v = with_zeros(k, old, v, d, fact);
    else if (op_family(o->code) == FAMILY_REDUCE && in_groups(o, dim)) v = out_of_reach(k, o, v, d);
  }
  return v;
}

static Type made_type(const PadFn *k, const Op *o, ValueId old) {
  Type t = *value_type(k->r.from, old), all = padded(k->p, t);
  for (int i = 0; i < t.rank; i++) {
    int d = pad_find(k->p, &t, t.axis[i].dim);
    if (d >= 0 && needs_logical(k, o, d)) all.axis[i].size = t.axis[i].size;
  }
  return all;
}

static void finish(PadFn *k, const Op *o, const PadFacts *in) {
  for (uint32_t i = 0; i < o->nout; i++) {
    ValueId old = o->out + i;
    k->fact[old] = pad_result(k->p, k->r.from, o, i, in);
    for (int d = 0; d < k->p->n; d++)
      if (has(k, old, d) && needs_logical(k, o, d))
        k->r.map[old] = grown(k, k->r.map[old], d), k->fact[old].of[d] = (PadFact){PAD_KNOWN, 0};
  }
}

static void plain_op(PadFn *k, const Op *o) {
  PadFacts *in = ARENA_ARRAY(k->m->arena, PadFacts, o->nin + 1);
  ValueId *operands = ARENA_ARRAY(k->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = k->fact[o->in[i]], operands[i] = operand(k, o, i, &in[i]);
  Op *made = rebuild_op(&k->r, o);
  ValueId out = made->out;
  memcpy(made->in, operands, sizeof *operands * o->nin);
  for (uint32_t i = 0; i < o->nout; i++)
    k->r.to->values.at[out + i].type = made_type(k, o, o->out + i);
  finish(k, o, in);
}

static void load_op(PadFn *k, const Op *o) {
  ValueId v = ir_load(k->m, k->r.to, o->global, o->loc);
  for (int d = 0; d < k->p->n; d++) {
    bool logical = pad_find(k->p, value_type(k->r.to, v), k->p->at[d].dim) == d;
    if (logical) v = grown(k, v, d);
    k->fact[o->out].of[d] = has(k, o->out, d) ? (PadFact){PAD_KNOWN, 0} : (PadFact){PAD_SAME, 0};
  }
  k->r.map[o->out] = v;
}

static void store_op(PadFn *k, const Op *o) {
  ValueId old = o->in[0], v = k->r.map[old];
  PadFacts fact = k->fact[old];
  for (int d = 0; d < k->p->n; d++) {
    bool logical = pad_find(k->p, &o->global->type, k->p->at[d].dim) == d;
    if (logical) v = cut(k, v, d);
    else v = with_zeros(k, old, v, d, &fact);
  }
  ir_store(k->m, k->r.to, o->global, v, o->loc);
}

/* ---- loops ---- */

static PadFn pad_fn(Pads *p, const Fn *f, const PadFacts *args);

static bool join_facts(const Pads *p, PadFacts *into, const PadFacts *more) {
  bool changed = false;
  for (int d = 0; d < p->n; d++) {
    PadFact f = pad_join(into->of[d], more->of[d]);
    changed |= f.kind != into->of[d].kind || f.value != into->of[d].value;
    into->of[d] = f;
  }
  return changed;
}

/* What carried values hold must hold of what the body makes of them. */
static PadFn settled_body(PadFn *k, const Op *o, PadFacts *args) {
  uint32_t carry = loop_shape(o).carry;
  for (;;) {
    PadFn body = pad_fn(k->p, o->callee, args);
    bool changed = false;
    for (uint32_t i = 0; i < carry; i++)
      changed |= join_facts(k->p, &args[1 + i], &body.fact[o->callee->results.at[i]]);
    if (!changed) return body;
  }
}

static void loop_op(PadFn *k, const Op *o) {
  PadFacts *args = ARENA_ARRAY(k->m->arena, PadFacts, o->nin + 1);
  ValueId *in = ARENA_ARRAY(k->m->arena, ValueId, o->nin + 1);
  for (int d = 0; d < k->p->n; d++) args[0].of[d] = (PadFact){PAD_SAME, 0};
  for (uint32_t i = 0; i < o->nin; i++) args[1 + i] = k->fact[o->in[i]], in[i] = k->r.map[o->in[i]];
  PadFn body = settled_body(k, o, args);
  ValueId out = rebuild_loop(k->m, k->r.to, body.r.to, loop_shape(o), in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    k->r.map[o->out + i] = out + i;
    k->fact[o->out + i] = body.fact[o->callee->results.at[i]];
    if (i < loop_shape(o).carry) k->fact[o->out + i] = args[1 + i];
    uint32_t on = loop_continues(o, i);
    if (on != NO_VALUE) join_facts(k->p, &k->fact[o->out + i], &args[1 + on]);
  }
}

/* ---- functions ---- */

static PadFn begin(Pads *p, const Fn *f) {
  PadFn k = {.p = p, .m = p->m, .loc = f->loc};
  k.r = (Rebuild){p->m, f, fn_new(p->m, f->kind, f->name), value_map(p->m, f)};
  k.r.to->loc = f->loc;
  for (uint32_t i = 0; i < f->attrs.n; i++) vec_push(p->m->arena, k.r.to->attrs, f->attrs.at[i]);
  k.fact = ARENA_ARRAY(p->m->arena, PadFacts, f->values.n + 1);
  for (int d = 0; d < p->n; d++) k.zeroed[d] = value_map(p->m, f);
  return k;
}

static PadFn pad_fn(Pads *p, const Fn *f, const PadFacts *args) {
  must(args || f->kind == FN_ENTRY, "pad: nothing is known of the arguments of %s", f->name);
  PadFn k = begin(p, f);
  for (uint32_t i = 0; i < f->args.n; i++) {
    k.r.map[f->args.at[i]] = fn_arg(p->m, k.r.to, padded(p, *value_type(f, f->args.at[i])));
    k.fact[f->args.at[i]] = args[i];
  }
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    k.loc = o->loc;
    if (o->code == OP_load) load_op(&k, o);
    else if (o->code == OP_store) store_op(&k, o);
    else if (o->code == OP_loop) loop_op(&k, o);
    else plain_op(&k, o);
  }
  rebuild_results(&k.r);
  return k;
}

void pass_pad(Module *m) {
  Pads p = {.m = m};
  if (m->mesh.n || module_on_gpu(m)) find_dims(&p);
  if (!p.n) return;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *g = m->globals.at[i];
    if (g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE) g->type = padded(&p, g->type);
  }
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind == FN_ENTRY) module_replace(m, f, pad_fn(&p, f, NULL).r.to);
  }
  module_collect(m);
}

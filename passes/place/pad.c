/* pad: dims that mesh axes split, but only in their padded size (`Vocab = 50257 pad 128`), get
   that size. The mathematics stays that of the logical one: parameters and states hold zeros in
   the padding, from their first value on, and

     sum, dot        padding of operands is 0
     rmax, argmax    padding is the lowest number, for rmin the highest
     gather          padding of the table is 0; scatter drops indexes beyond the logical size
     inputs, outputs have their logical size: padded after the load, cut before the store
     other ops that work along the dim: on the logical part, which is cut out and padded again
     loops over it   rounds after the last logical one pass their carried values on (pad_layers.c:
                     stages of different numbers of layers), and stacked results are 0, except those
                     for other loops

   Where padding is zero already (pad_facts.c), nothing is added. Hence gradients of parameters are
   zero in the padding, and norms and updates need not know. Runs after `recompute` and before
   `place`: derivatives are made of logical values. Does nothing to a dim whose logical size its
   axes divide; without axes, to one whose rows the target can read in whole vectors. */
#include "ir/made.h"
#include "ir/shape/placement.h"
#include "pad.h"
#include <math.h>
#include <string.h>

enum {
  PIECE = 8
}; /* elements of 16 bits in one vector of a GPU; other rows are read element by
                       element */

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
  return d->like == dim || dim_is_primed(d->name, dim);
}

static bool rule_names(const PlaceRule *r, const Dim *dim) {
  for (uint32_t i = 0; i < r->dims.n; i++)
    if (speaks_of(dim, r->dims.at[i])) return true;
  for (uint32_t i = 0; i < r->otherwise.n; i++)
    if (speaks_of(dim, r->otherwise.at[i])) return true;
  return false;
}

static int64_t ways_of(const Module *m, const Dim *dim) {
  int64_t ways = 1;
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; rule_names(&m->rules.at[i], dim) && k < m->rules.at[i].axes.n; k++) {
      int axis = mesh_find(m, m->rules.at[i].axes.at[k]);
      if (axis >= 0) ways *= m->mesh.at[axis].size;
    }
  return ways;
}

/* Does n only divide the stored size of dim? */
static bool divides(int64_t n, const Dim *dim) { return dim->size % n && dim->stored % n == 0; }

static void find_dims(Pads *pads) {
  Module *m = pads->m;
  int64_t pieces = module_on_gpu(m) ? PIECE : 1;
  for (uint32_t i = 0; i < m->dims.n; i++) {
    const Dim *dim = &m->dims.at[i];
    if (dim->stored <= dim->size || !(divides(ways_of(m, dim), dim) || divides(pieces, dim)))
      continue;
    if (pad_runs_over(m, dim->name) || pads->n == PADS) continue;
    pads->at[pads->n++] = (PadDim){dim->name, dim->size, dim->stored};
  }
}

static Type padded(const Pads *pads, Type t) {
  for (int i = 0; i < t.rank; i++) {
    int d = pad_find(pads, &t, t.axis[i].dim);
    if (d >= 0) t.axis[i].size = pads->at[d].stored;
  }
  return t;
}

static bool has(const PadFn *pad, ValueId v, int d) {
  return pad_find(pad->p, value_type(pad->r.from, v), pad->p->at[d].dim) == d;
}

/* ---- contents of padding ---- */

/* bool[D]: the index is a logical one */
static ValueId inside(PadFn *pad, int d) {
  PadDim x = pad->p->at[d];
  ValueId i = ir_iota(pad->m, pad->r.to, (Axis){x.dim, x.stored}, pad->loc);
  ValueId n = ir_const(pad->m, pad->r.to, ELEM_i32, (double)x.size, pad->loc);
  return ir_binary(pad->m, pad->r.to, OP_lt, i, n, pad->loc);
}

static ValueId filled(PadFn *pad, ValueId v, int d, double fill) {
  ValueId c = ir_const(pad->m, pad->r.to, value_type(pad->r.to, v)->elem, fill, pad->loc);
  return ir_where(pad->m, pad->r.to, inside(pad, d), v, c, pad->loc);
}

/* An operand, with zeros in the padding of dim d. */
static ValueId with_zeros(PadFn *pad, ValueId old, ValueId v, int d, PadFacts *fact) {
  if (pad_is_zero(fact->of[d]) || !has(pad, old, d)) return v;
  fact->of[d] = (PadFact){PAD_KNOWN, 0};
  if (v != pad->r.map[old]) return filled(pad, v, d, 0);
  if (pad->zeroed[d][old] == NO_VALUE) pad->zeroed[d][old] = filled(pad, v, d, 0);
  return pad->zeroed[d][old];
}

static double lowest(Elem e) {
  return elem_class(e) == CLASS_FLOAT ? -INFINITY
         : e == ELEM_i64              ? (double)INT64_MIN
                                      : (double)INT32_MIN;
}

/* The largest or smallest along d does not see the padding. */
static ValueId out_of_reach(PadFn *pad, const Op *o, ValueId v, int d) {
  Elem e = value_type(pad->r.to, v)->elem;
  double low = lowest(e), high = e == ELEM_i64 ? 9.2e18 : -low - (low > -INFINITY);
  return filled(pad, v, d, o->code == OP_rmin ? high : low);
}

/* Indexes beyond the logical size become indexes beyond the padded size. */
static ValueId within(PadFn *pad, ValueId index, int d) {
  Elem e = value_type(pad->r.to, index)->elem;
  ValueId n = ir_const(pad->m, pad->r.to, e, (double)pad->p->at[d].size, pad->loc);
  ValueId fine = ir_binary(pad->m, pad->r.to, OP_lt, index, n, pad->loc);
  return ir_where(pad->m, pad->r.to, fine, index, ir_const(pad->m, pad->r.to, e, -1, pad->loc),
                  pad->loc);
}

/* ---- between the sizes ---- */

static ValueId resize(PadFn *pad, OpCode c, ValueId v, int d, int64_t size) {
  Type t = *value_type(pad->r.to, v);
  Str dim = pad->p->at[d].dim;
  must(type_find(&t, dim) >= 0, "pad: %%%u of %s has no dim %s", v, pad->r.to->name, dim);
  t.axis[type_find(&t, dim)].size = size;
  Op *o = fn_op(pad->m, pad->r.to, c, 1, &v, 1, &t, pad->loc);
  ValueId out = o->out;
  op_add_group(pad->m, o, group_map(1, &dim, 1, &dim));
  return out;
}

static ValueId cut(PadFn *pad, ValueId v, int d) {
  return resize(pad, OP_slice, v, d, pad->p->at[d].size);
}

static ValueId grown(PadFn *pad, ValueId v, int d) {
  return resize(pad, OP_pad, v, d, pad->p->at[d].stored);
}

/* ---- ops ---- */

/* A dim renamed to another one that is padded alike. */
static bool renames_alike(const PadFn *pad, const Op *o, int d) {
  const Type *in = value_type(pad->r.from, o->in[0]), *out = value_type(pad->r.from, o->out);
  for (int g = 0; g < o->ngroups; g++) {
    int a = pad_find(pad->p, in, o->group[g].from[0]), b = pad_find(pad->p, out, o->group[g].to[0]);
    if (a != d && b != d) continue;
    if (a < 0 || b < 0 || pad->p->at[a].stored != pad->p->at[b].stored) return false;
  }
  return true;
}

/* Can o not work on the padded dim? */
static bool needs_logical(const PadFn *pad, const Op *o, int d) {
  if (!op_mentions(o, pad->p->at[d].dim)) return false;
  switch (op_family(o->code)) {
  case FAMILY_SOURCE:
  case FAMILY_REDUCE:
  case FAMILY_CONTRACT:
  case FAMILY_GATHER:
  case FAMILY_SCATTER: return false;
  case FAMILY_STRUCT:
    return !(o->code == OP_expand || (o->code == OP_rename && renames_alike(pad, o, d)));
  default: return true;
  }
}

static bool sums(OpCode c) {
  return c == OP_sum || op_family(c) == FAMILY_CONTRACT || op_family(c) == FAMILY_ATTENTION ||
         op_family(c) == FAMILY_SCATTER;
}

/* Operand i of o as o may read it. */
static ValueId operand(PadFn *pad, const Op *o, uint32_t i, PadFacts *fact) {
  ValueId old = o->in[i], v = pad->r.map[old];
  bool number = elem_class(value_type(pad->r.from, old)->elem) != CLASS_BOOL;
  for (int d = 0; d < pad->p->n; d++) {
    Str dim = pad->p->at[d].dim;
    bool table = o->code == OP_gather && i == 0 && o->group[0].from[0] == dim;
    bool index = o->code == OP_scatter && i == 1 && o->group[0].to[0] == dim;
    if (index && pad_find(pad->p, value_type(pad->r.from, o->out), dim) == d) v = within(pad, v, d);
    if (!has(pad, old, d)) continue;
    if (needs_logical(pad, o, d)) v = cut(pad, v, d);
    else if (table || (sums(o->code) && number && !(o->code == OP_scatter && i == 1)))
      v = with_zeros(pad, old, v, d, fact);
    else if (op_family(o->code) == FAMILY_REDUCE && op_mentions(o, dim))
      v = out_of_reach(pad, o, v, d);
  }
  return v;
}

static Type made_type(const PadFn *pad, const Op *o, ValueId old) {
  Type t = *value_type(pad->r.from, old), all = padded(pad->p, t);
  for (int i = 0; i < t.rank; i++) {
    int d = pad_find(pad->p, &t, t.axis[i].dim);
    if (d >= 0 && needs_logical(pad, o, d)) all.axis[i].size = t.axis[i].size;
  }
  return all;
}

static void finish(PadFn *pad, const Op *o, const PadFacts *in) {
  for (uint32_t i = 0; i < o->nout; i++) {
    ValueId old = o->out + i;
    pad->fact[old] = pad_result(pad->p, pad->r.from, o, i, in);
    for (int d = 0; d < pad->p->n; d++)
      if (has(pad, old, d) && needs_logical(pad, o, d))
        pad->r.map[old] = grown(pad, pad->r.map[old], d),
        pad->fact[old].of[d] = (PadFact){PAD_KNOWN, 0};
  }
}

static void plain_op(PadFn *pad, const Op *o) {
  PadFacts *in = ARENA_ARRAY(pad->m->arena, PadFacts, o->nin + 1);
  ValueId *operands = ARENA_ARRAY(pad->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = pad->fact[o->in[i]], operands[i] = operand(pad, o, i, &in[i]);
  Op *made = rebuild_op(&pad->r, o);
  ValueId out = made->out;
  memcpy(made->in, operands, sizeof *operands * o->nin);
  for (uint32_t i = 0; i < o->nout; i++)
    pad->r.to->values.at[out + i].type = made_type(pad, o, o->out + i);
  finish(pad, o, in);
}

static void load_op(PadFn *pad, const Op *o) {
  ValueId v = ir_load(pad->m, pad->r.to, o->global, o->loc);
  for (int d = 0; d < pad->p->n; d++) {
    bool logical = pad_find(pad->p, value_type(pad->r.to, v), pad->p->at[d].dim) == d;
    if (logical) v = grown(pad, v, d);
    pad->fact[o->out].of[d] =
        has(pad, o->out, d) ? (PadFact){PAD_KNOWN, 0} : (PadFact){PAD_SAME, 0};
  }
  pad->r.map[o->out] = v;
}

static void store_op(PadFn *pad, const Op *o) {
  ValueId old = o->in[0], v = pad->r.map[old];
  PadFacts fact = pad->fact[old];
  for (int d = 0; d < pad->p->n; d++) {
    bool logical = pad_find(pad->p, &o->global->type, pad->p->at[d].dim) == d;
    if (logical) v = cut(pad, v, d);
    else v = with_zeros(pad, old, v, d, &fact);
  }
  ir_store(pad->m, pad->r.to, o->global, v, o->loc);
}

/* ---- loops ---- */

static PadFn pad_fn(Pads *pads, const Fn *f, const PadFacts *args);

static bool join_facts(const Pads *pads, PadFacts *into, const PadFacts *more) {
  bool changed = false;
  for (int d = 0; d < pads->n; d++) {
    PadFact f = pad_join(into->of[d], more->of[d]);
    changed |= f.kind != into->of[d].kind || f.value != into->of[d].value;
    into->of[d] = f;
  }
  return changed;
}

/* Facts of carried values must also hold for the values that the body makes of them. */
static PadFn settled_body(PadFn *pad, const Op *o, PadFacts *args) {
  uint32_t carry = loop_shape(o).carry;
  for (;;) {
    PadFn body = pad_fn(pad->p, o->callee, args);
    bool changed = false;
    for (uint32_t i = 0; i < carry; i++)
      changed |= join_facts(pad->p, &args[1 + i], &body.fact[o->callee->results.at[i]]);
    if (!changed) return body;
  }
}

/* The padded dim that o runs over, or -1. */
static int rounds_of(const PadFn *pad, const LoopShape *shape) {
  for (int d = 0; d < pad->p->n; d++)
    if (pad->p->at[d].dim == shape->axis.dim && pad->p->at[d].size == shape->trip) return d;
  return -1;
}

/* Rounds after the last layer do nothing. */
static void skip_rounds(PadFn *pad, const Op *o, PadFn *body, int d) {
  Module *m = pad->m;
  Fn *f = body->r.to;
  uint32_t carry = loop_shape(o).carry;
  ValueId n = ir_const(m, f, ELEM_i32, (double)pad->p->at[d].size, o->loc);
  ValueId is = ir_binary(m, f, OP_lt, f->args.at[0], n, o->loc);
  for (uint32_t i = 0; i < o->nout; i++) {
    ValueId *v = &f->results.at[i];
    if (i < carry) *v = ir_where(m, f, is, *v, f->args.at[1 + i], o->loc);
    else if (!value_is_kept(pad->r.from, o->out + i))
      *v = ir_where(m, f, is, *v, ir_const(m, f, value_type(f, *v)->elem, 0, o->loc), o->loc);
  }
}

static void loop_op(PadFn *pad, const Op *o) {
  PadFacts *args = ARENA_ARRAY(pad->m->arena, PadFacts, o->nin + 1);
  ValueId *in = ARENA_ARRAY(pad->m->arena, ValueId, o->nin + 1);
  for (int d = 0; d < pad->p->n; d++) args[0].of[d] = (PadFact){PAD_SAME, 0};
  for (uint32_t i = 0; i < o->nin; i++)
    args[1 + i] = pad->fact[o->in[i]], in[i] = pad->r.map[o->in[i]];
  LoopShape shape = loop_shape(o);
  int rounds = rounds_of(pad, &shape);
  for (uint32_t i = shape.carry + shape.invariant; rounds >= 0 && i < o->nin; i++)
    args[1 + i].of[rounds] = (PadFact){PAD_SAME, 0};
  PadFn body = settled_body(pad, o, args);
  if (rounds >= 0)
    skip_rounds(pad, o, &body, rounds), shape.trip = pad->p->at[rounds].stored,
                                        shape.layers = pad->p->at[rounds].size;
  shape.axis.size = shape.trip;
  ValueId out = rebuild_loop(pad->m, pad->r.to, body.r.to, shape, in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    pad->r.map[o->out + i] = out + i;
    pad->fact[o->out + i] = body.fact[o->callee->results.at[i]];
    if (i < shape.carry) pad->fact[o->out + i] = args[1 + i];
    else if (rounds >= 0)
      pad->fact[o->out + i].of[rounds] =
          (PadFact){value_is_kept(pad->r.from, o->out + i) ? PAD_OTHER : PAD_KNOWN, 0};
    uint32_t on = loop_continues(o, i);
    if (on != NO_VALUE) join_facts(pad->p, &pad->fact[o->out + i], &args[1 + on]);
  }
}

/* ---- functions ---- */

static PadFn begin(Pads *pads, const Fn *f) {
  PadFn pad = {.p = pads, .m = pads->m, .loc = f->loc};
  pad.r = (Rebuild){pads->m, f, fn_like(pads->m, f), value_map(pads->m, f)};
  pad.fact = ARENA_ARRAY(pads->m->arena, PadFacts, f->values.n + 1);
  for (int d = 0; d < pads->n; d++) pad.zeroed[d] = value_map(pads->m, f);
  return pad;
}

static PadFn pad_fn(Pads *pads, const Fn *f, const PadFacts *args) {
  must(args || f->kind == FN_ENTRY, "pad: nothing is known of the arguments of %s", f->name);
  PadFn pad = begin(pads, f);
  for (uint32_t i = 0; i < f->args.n; i++) {
    pad.r.map[f->args.at[i]] =
        fn_arg(pads->m, pad.r.to, padded(pads, *value_type(f, f->args.at[i])));
    pad.fact[f->args.at[i]] = args[i];
  }
  EACH_OP (f, o) {
    pad.loc = o->loc;
    if (o->code == OP_load) load_op(&pad, o);
    else if (o->code == OP_store) store_op(&pad, o);
    else if (o->code == OP_loop) loop_op(&pad, o);
    else plain_op(&pad, o);
  }
  rebuild_results(&pad.r);
  return pad;
}

void pass_pad(Module *m) {
  Pads pads = {.m = m};
  if (m->mesh.n || module_on_gpu(m)) find_dims(&pads);
  pad_layers(&pads);
  if (!pads.n) return;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    if (global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE)
      global->type = padded(&pads, global->type);
  }
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind == FN_ENTRY) module_replace(m, f, pad_fn(&pads, f, NULL).r.to);
  }
  module_collect(m);
}

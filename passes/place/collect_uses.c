/* Facts about values that `collect` needs before it reshards anything: which are free to make
   wherever they are needed, which may stay partial sums, which are gradients and have the
   placement of their parameter, which are single terms of a longer sum.

   Gradients are found from the stores of parameters. Walking back from a store through
   element-wise ops and loads ends at the value that the update reads (a root). Every value that
   reaches only roots, through sums, copies and moved indexes, is a gradient. Bodies are examined
   from outside in. */
#include "collect.h"
#include "passes/base/matrix_part.h"

Uses uses_new(Module *m, const Fn *f) {
  uint32_t n = f->values.n + 1;
  Uses uses = {.arena = m->arena,
               .assigned = ARENA_ARRAY(m->arena, Placement, n),
               .free = ARENA_ARRAY(m->arena, bool, n)};
  uses.input = ARENA_ARRAY(m->arena, bool, n), uses.linear = ARENA_ARRAY(m->arena, bool, n);
  uses.root = ARENA_ARRAY(m->arena, bool, n), uses.gradient = ARENA_ARRAY(m->arena, bool, n);
  uses.inner = ARENA_ARRAY(m->arena, bool, n), uses.running = ARENA_ARRAY(m->arena, bool, n);
  uses.of = ARENA_ARRAY(m->arena, const Global *, n);
  uses.narrowed = ARENA_ARRAY(m->arena, bool, n);
  for (uint32_t i = 0; i < f->values.n; i++) uses.assigned[i] = f->values.at[i].placed;
  return uses;
}

bool sum_like(const Fn *f, const Op *o) {
  return (o->code == OP_add || o->code == OP_sub) && value_is_float(f, o->out);
}

static bool lets_through(const Module *m, const Fn *f, const Op *o, uint32_t i) {
  return sum_like(f, o) || shard_linear(m, f, o, i);
}

/* ---- free, of ---- */

static bool makes_for_free(const Op *o) {
  if (o->code == OP_load)
    return o->global->kind == GLOBAL_INPUT || o->global->kind == GLOBAL_SCALAR;
  return op_family(o->code) == FAMILY_SOURCE || (op_flags(o->code) & POINT && o->nin);
}

static void find_free(const Fn *f, Uses *uses) {
  EACH_OP (f, o) {
    bool free = makes_for_free(o), input = o->code == OP_load && o->global->kind == GLOBAL_INPUT;
    for (uint32_t k = 0; k < o->nin; k++)
      free &= uses->free[o->in[k]], input |= uses->input[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++)
      uses->free[o->out + k] = free, uses->input[o->out + k] = input;
    if (o->code == OP_load && o->global->kind == GLOBAL_PARAM) uses->of[o->out] = o->global;
    if (o->code == OP_cast) uses->of[o->out] = uses->of[o->in[0]];
  }
}

/* Element-wise results of weights, states and gradients, with their dims, have their placement and
   not that of the rules: a parameter that stays whole is updated, measured and rounded whole. */
void uses_follow_weights(const Fn *f, Uses *uses) {
  ValueId *as = ARENA_ARRAY(uses->arena, ValueId, f->values.n + 1);
  for (uint32_t i = 0; i < f->values.n; i++) {
    const Op *def = value_def(f, i);
    bool state = def && def->code == OP_load && def->global->kind == GLOBAL_STATE;
    bool weight = uses->of[i] && (!def || def->code == OP_load);
    as[i] = weight || state || uses->root[i] ? i : NO_VALUE;
  }
  EACH_OP (f, o)
    for (uint32_t i = 0; i < o->nin && op_family(o->code) == FAMILY_ELEM; i++) {
      ValueId v = as[o->in[i]];
      if (v == NO_VALUE || as[o->out] != NO_VALUE) continue;
      if (!type_same_dims(value_type(f, o->out), value_type(f, v))) continue;
      as[o->out] = v, uses->assigned[o->out] = uses->assigned[v];
    }
}

/* ---- gradients ---- */

/* Is v computed from a load of a parameter or state by element-wise ops of these dims alone? */
static bool from_state(const Fn *f, const Type *t, ValueId v, char *known) {
  enum { NO = 1, YES = 2 };
  const Op *o = value_def(f, v);
  if (!o || !type_same_dims(value_type(f, v), t)) return false;
  if (known[v]) return known[v] == YES;
  bool is = o->code == OP_load;
  if (op_family(o->code) == FAMILY_ELEM)
    for (uint32_t i = 0; i < o->nin; i++) is |= from_state(f, t, o->in[i], known);
  known[v] = is ? YES : NO;
  return is;
}

/* The one operand of an element-wise op that has the dims of t, the others being numbers. */
static ValueId only_operand(const Fn *f, const Type *t, const Op *o) {
  ValueId v = NO_VALUE;
  for (uint32_t i = 0; i < o->nin; i++) {
    if (!type_same_dims(value_type(f, o->in[i]), t)) continue;
    if (v != NO_VALUE) return NO_VALUE;
    v = o->in[i];
  }
  return v;
}

typedef struct GradientUpdate { /* of one parameter */
  const Global *g;
  bool *seen;
  char *known;
} GradientUpdate;

/* Walks from the value that is stored to the parameter back to the gradient that the update reads:
   sums of gradients stay one value, and the factor of clipping is passed over. */
static void find_roots(const Fn *f, Uses *uses, GradientUpdate *update, ValueId v) {
  const Op *o = value_def(f, v);
  const Type *t = &update->g->type;
  if (update->seen[v] || uses->free[v] || !type_same_dims(value_type(f, v), t)) return;
  update->seen[v] = true;
  uses->assigned[v] = update->g->placed;
  if (o && o->code == OP_load) return;
  ValueId read = matrix_part_reads(f, v);
  if (read != NO_VALUE) {
    find_roots(f, uses, update, read);
    return;
  }
  bool elem = o && op_family(o->code) == FAMILY_ELEM;
  if (elem && from_state(f, t, v, update->known)) {
    for (uint32_t i = 0; i < o->nin; i++) find_roots(f, uses, update, o->in[i]);
  } else if (elem && only_operand(f, t, o) != NO_VALUE) {
    find_roots(f, uses, update, only_operand(f, t, o));
  } else {
    uses->root[v] = uses->gradient[v] = true;
  }
}

static Str renamed_from(const Op *o, Str dim) {
  for (int i = 0; i < o->ngroups; i++)
    for (int k = 0; k < o->group[i].nto; k++)
      if (o->group[i].to[k] == dim) return o->code == OP_rename ? o->group[i].from[k] : NULL;
  return dim;
}

/* Where operand i belongs if the result belongs at p: cut along the same dims; along dims that are
   summed on the way (samples), as by the rules. */
static Placement before(const Module *m, const Fn *f, const Op *o, uint32_t i, const Placement *p) {
  Placement r = {0};
  const Type *t = value_type(f, o->in[i]), *end = value_type(f, o->out);
  const Placement *own = &f->values.at[o->in[i]].placed;
  for (int a = 0; a < MAX_MESH; a++) {
    Str dim = is_split(p->on[a]) ? renamed_from(o, p->on[a]) : NULL;
    bool summed = own->on[a] && type_find(end, own->on[a]) < 0;
    r.on[a] = dim && type_find(t, dim) >= 0 ? dim : summed ? own->on[a] : NULL;
    if (!placement_fits(m, t, &r)) r.on[a] = NULL;
  }
  return r;
}

typedef struct UseFlow { /* backwards, by value */
  bool *wanted, *other;  /* read by gradients; by something else */
} UseFlow;

static void want_gradient(Uses *uses, UseFlow *flow, ValueId v, const Placement *assigned) {
  if (uses->root[v]) return;
  if (flow->wanted[v] && !placement_equal(&uses->assigned[v], assigned)) flow->other[v] = true;
  if (!flow->wanted[v] && !flow->other[v]) flow->wanted[v] = true, uses->assigned[v] = *assigned;
}

/* The result of loop o that continues operand k, which its rounds do not read. */
static ValueId continued(const Op *o, uint32_t k) {
  for (uint32_t i = 0; o->code == OP_loop && i < o->nout; i++)
    if (loop_continues(o, i) == k && !value_is_used(o->callee, o->callee->args.at[k + 1]))
      return o->out + i;
  return NO_VALUE;
}

/* Ops from the last to the first: all readers of a value come before it. */
static void follow_gradients(Module *m, const Fn *f, Uses *uses, UseFlow *flow) {
  Placement *kept = ARENA_ARRAY(m->arena, Placement, f->values.n + 1);
  for (uint32_t i = 0; i < f->values.n; i++) kept[i] = f->values.at[i].placed;
  for (uint32_t i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nout; k++) {
      ValueId v = o->out + k;
      if (flow->wanted[v] && !flow->other[v]) uses->gradient[v] = true;
      else if (flow->wanted[v] && !uses->root[v]) uses->assigned[v] = kept[v];
    }
    for (uint32_t k = 0; k < o->nin; k++) {
      bool through = o->nout == 1 && uses->gradient[o->out] && lets_through(m, f, o, k);
      Placement placement = through ? before(m, f, o, k, &uses->assigned[o->out]) : (Placement){0};
      ValueId next = continued(o, k);
      if (next != NO_VALUE && (uses->gradient[next] || uses->root[next]))
        through = true, placement = uses->assigned[next];
      if (through) want_gradient(uses, flow, o->in[k], &placement);
      else flow->other[o->in[k]] = true;
    }
  }
}

/* ---- sums ---- */

typedef struct UseReader {
  uint32_t n; /* uses, results of the function included */
  const Op *op;
} UseReader;

static UseReader *readers(Module *m, const Fn *f) {
  UseReader *r = ARENA_ARRAY(m->arena, UseReader, f->values.n + 1);
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      UseReader *x = &r[f->ops.at[i].in[k]];
      x->n++, x->op = &f->ops.at[i];
    }
  for (uint32_t i = 0; i < f->results.n; i++) r[f->results.at[i]].n++;
  return r;
}

/* exp(s - lse) of scores with a bias: the logarithm is subtracted last. Another order would take
   the exponential of numbers that cancel, and exact arithmetic (ir/interp/field.h) knows the law of
   this one alone. */
static bool is_exponent(const UseReader *x) { return x->n == 1 && x->op && x->op->code == OP_exp; }

static void find_inner(const Fn *f, Uses *uses, const UseReader *r) {
  EACH_OP (f, o) {
    if (!sum_like(f, o) || uses->free[o->out] || uses->root[o->out]) continue;
    const UseReader *x = &r[o->out];
    uses->inner[o->out] = x->n == 1 && x->op && sum_like(f, x->op) && !uses->free[x->op->out] &&
                          !is_exponent(&r[x->op->out]) &&
                          type_same_dims(value_type(f, o->out), value_type(f, x->op->out));
  }
}

/* Does the argument reach body result `end` through sums alone? A sum in 16 bits has a cast before
   and after each addition. */
static bool runs_to(const Fn *f, const UseReader *reader, ValueId v, ValueId end) {
  while (v != end) {
    const Op *o = reader[v].op;
    if (reader[v].n != 1 || !o || (o->code == OP_sub && o->in[0] != v)) return false;
    if (!sum_like(f, o) && (o->code != OP_cast || !value_is_float(f, o->out))) return false;
    v = o->out;
  }
  return reader[end].n == 1;
}

/* The casts of a sum that runs from argument v to a result, except that of the argument. */
static void find_narrowed(const UseReader *reader, ValueId v, ValueId end, bool *narrowed) {
  for (bool first = true; v != end; first = false) {
    const Op *o = reader[v].op;
    v = o->out, narrowed[v] = o->code == OP_cast && !first;
  }
}

static void find_linear(Module *m, const Fn *f, Uses *uses) {
  for (uint32_t i = 0; i < f->values.n; i++) uses->linear[i] = !uses->free[i];
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (!lets_through(m, f, &f->ops.at[i], k) && continued(&f->ops.at[i], k) == NO_VALUE)
        uses->linear[f->ops.at[i].in[k]] = false;
}

/* ---- functions ---- */

static UseFlow flow_new(Module *m, const Fn *f) {
  return (UseFlow){ARENA_ARRAY(m->arena, bool, f->values.n + 1),
                   ARENA_ARRAY(m->arena, bool, f->values.n + 1)};
}

void uses_of_entry(Module *m, const Fn *f, Uses *uses) {
  UseFlow flow = flow_new(m, f);
  find_free(f, uses);
  EACH_OP (f, o) {
    if (o->code != OP_store || o->global->kind != GLOBAL_PARAM) continue;
    GradientUpdate update = {o->global, ARENA_ARRAY(m->arena, bool, f->values.n + 1),
                             ARENA_ARRAY(m->arena, char, f->values.n + 1)};
    find_roots(f, uses, &update, o->in[0]);
  }
  uses_follow_weights(f, uses);
  follow_gradients(m, f, uses, &flow);
  find_linear(m, f, uses);
  find_inner(f, uses, readers(m, f));
}

static Placement in_round(const Placement *p, Str dim) {
  Placement r = *p;
  for (int a = 0; a < MAX_MESH; a++)
    if (r.on[a] == dim) r.on[a] = NULL;
  return r;
}

static void body_arguments(const Fn *f, const Uses *outer, const Op *o, LoopShape shape,
                           const UseReader *reader, Uses *uses) {
  const Fn *body = o->callee;
  uses->free[body->args.at[0]] = true;
  for (uint32_t i = 0; i < o->nin; i++) {
    ValueId arg = body->args.at[i + 1];
    if (i < shape.carry) {
      uses->running[arg] =
          value_is_zero(f, o->in[i]) && runs_to(body, reader, arg, body->results.at[i]);
      if (uses->running[arg] && reader[arg].op && reader[arg].op->code == OP_cast)
        uses->running[reader[arg].op->out] = true;
      if (uses->running[arg]) find_narrowed(reader, arg, body->results.at[i], uses->narrowed);
    } else {
      uses->free[arg] = outer->free[o->in[i]], uses->input[arg] = outer->input[o->in[i]];
      uses->of[arg] = outer->of[o->in[i]];
    }
  }
}

void uses_of_body(Module *m, const Fn *f, const Uses *outer, const Op *o, Uses *uses) {
  const Fn *body = o->callee;
  must(body->args.n == o->nin + 1 && body->results.n == o->nout,
       "collect: loop body %s does not fit its call", body->name);
  LoopShape shape = loop_shape(o);
  UseFlow flow = flow_new(m, body);
  UseReader *reader = readers(m, body);
  body_arguments(f, outer, o, shape, reader, uses);
  find_free(body, uses);
  for (uint32_t i = 0; i < o->nout; i++) {
    ValueId v = body->results.at[i];
    Placement assigned = in_round(&outer->assigned[o->out + i], shape.axis.dim);
    bool runs = i >= shape.carry || uses->running[body->args.at[i + 1]];
    if (outer->gradient[o->out + i] && runs && !uses->free[v])
      want_gradient(uses, &flow, v, &assigned);
    else flow.other[v] = true;
  }
  follow_gradients(m, body, uses, &flow);
  find_linear(m, body, uses);
  find_inner(body, uses, reader);
  for (uint32_t i = 0; i < o->nout; i++) {
    ValueId v = body->results.at[i];
    bool sums = i < shape.carry && uses->running[body->args.at[i + 1]];
    if (!sums && !(i >= shape.carry && uses->gradient[v])) uses->linear[v] = false;
  }
}

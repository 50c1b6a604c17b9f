/* fuse, before grouping: what is added to values that a loop stacks is added by its rounds.

   A micro-batch's gradients of a stack of layers come out of the loop over the layers stacked, and
   are then added to those of the micro-batches before it. Where the sum so far is known before the
   loop, it goes in as a stacked operand, and round i adds slice i: the contraction that makes the
   slice then adds in its epilogue and in the operand's buffer (order_inplace.c), and no second set
   of gradients ever exists. The numbers are the same bit by bit. Must not: touch a loop whose body
   another one runs, too. */
#include "passes/fuse.h"

typedef struct Addend { /* to stacked result i of a loop */
  ValueId sum;          /* what the function adds it to; NO_VALUE: nothing */
  OpId add, cast;       /* cast: of the result to the sum's type, before; NO_OP: none */
} Addend;

static const Addend no_addend = {NO_VALUE, NO_OP, NO_OP};

static uint32_t callers_of(const Module *m, const Fn *body) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) n += m->fns.at[i]->ops.at[j].callee == body;
  return n;
}

static bool known_before(const Fn *f, ValueId v, OpId id) {
  const Value *x = &f->values.at[v];
  return x->def == NO_OP || x->def < id;
}

/* The one op that reads v, if it has this code. */
static OpId only_use(const Fn *f, const uint32_t *uses, ValueId v, OpCode c) {
  for (OpId i = f->values.at[v].def + 1; uses[v] == 1 && i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == v) return f->ops.at[i].code == c ? i : NO_OP;
  return NO_OP;
}

/* Is v, or v in another type, used once, by the sum of it and what is known before op `loop`? All
   have the same dims, in order, so that slices of one are slices of the other. */
static Addend addend_of(const Fn *f, const uint32_t *uses, OpId loop, ValueId v) {
  Addend a = {.cast = only_use(f, uses, v, OP_cast)};
  Type t = *value_type(f, v);
  if (a.cast != NO_OP) v = f->ops.at[a.cast].out, t.elem = value_type(f, v)->elem;
  a.add = only_use(f, uses, v, OP_add);
  if (a.add == NO_OP) return no_addend;
  const Op *o = &f->ops.at[a.add];
  a.sum = o->in[o->in[0] == v];
  bool alike = type_equal(value_type(f, v), &t) && type_equal(value_type(f, a.sum), &t) &&
               type_equal(value_type(f, o->out), &t);
  return alike && known_before(f, a.sum, loop) ? a : no_addend;
}

/* The body with an argument more for each addend. */
static Fn *adding_body(Module *m, const Fn *f, const Fn *body, LoopShape s, const Addend *addends) {
  Rebuild r = rebuild_begin(m, body);
  for (OpId i = 0; i < body->ops.n; i++) rebuild_op(&r, &body->ops.at[i]);
  for (uint32_t i = 0; i < body->results.n; i++) {
    ValueId v = r.map[body->results.at[i]];
    if (i >= s.carry && addends[i].sum != NO_VALUE) {
      Loc loc = value_def(r.to, v)->loc;
      Type t = type_with_elem(*value_type(r.to, v), value_type(f, addends[i].sum)->elem);
      ValueId both[2] = {fn_arg(m, r.to, t), ir_cast(m, r.to, v, t.elem, loc)};
      v = emit_typed(m, r.to, OP_add, 2, both, NULL, t, loc);
    }
    fn_result(m, r.to, v);
  }
  return r.to;
}

typedef struct Rounds {
  Rebuild r;
  Addend **addends; /* by OpId of a loop: by result; NULL: it stays as it is */
  bool *gone;       /* by OpId: sums that loops make */
} Rounds;

/* What of a loop's results takes part; NULL: nothing. */
static Addend *addends_of(Module *m, const Fn *f, const uint32_t *uses, OpId id) {
  const Op *o = &f->ops.at[id];
  uint32_t carry = loop_shape(o).carry, n = 0;
  Addend *a = ARENA_ARRAY(m->arena, Addend, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++) {
    a[i] = i < carry ? no_addend : addend_of(f, uses, id, o->out + i);
    if (a[i].sum != NO_VALUE && value_def(o->callee, o->callee->results.at[i]) == NULL)
      a[i].sum = NO_VALUE; /* an argument that is saved */
    n += a[i].sum != NO_VALUE;
  }
  return n && callers_of(m, o->callee) == 1 ? a : NULL;
}

static void adding_loop(Rounds *x, const Op *o, const Addend *addends) {
  LoopShape s = loop_shape(o);
  ValueId *in = ARENA_ARRAY(x->r.m->arena, ValueId, o->nin + o->nout);
  for (uint32_t k = 0; k < o->nin; k++) in[k] = x->r.map[o->in[k]];
  for (uint32_t i = s.carry; i < o->nout; i++)
    if (addends[i].sum != NO_VALUE)
      in[s.carry + s.invariant + s.stacked++] = x->r.map[addends[i].sum];
  const Op *c = rebuild_loop(x->r.m, x->r.to, o->callee, s, in, o->loc);
  for (uint32_t i = 0; i < o->nout; i++) {
    x->r.map[o->out + i] = c->out + i;
    if (addends[i].sum != NO_VALUE) x->r.map[x->r.from->ops.at[addends[i].add].out] = c->out + i;
  }
}

static Fn *adding_function(Rounds *x, const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (x->addends[i]) adding_loop(x, &f->ops.at[i], x->addends[i]);
    else if (!x->gone[i]) rebuild_op(&x->r, &f->ops.at[i]);
  rebuild_results(&x->r);
  return x->r.to;
}

static void add_in_rounds(Module *m, Fn *f) {
  const uint32_t *uses = fuse_uses(m->arena, f);
  Rounds x = {.addends = ARENA_ARRAY(m->arena, Addend *, f->ops.n + 1),
              .gone = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop || !(x.addends[i] = addends_of(m, f, uses, i))) continue;
    for (uint32_t k = 0; k < o->nout; k++) {
      const Addend *a = &x.addends[i][k];
      if (a->sum == NO_VALUE) continue;
      x.gone[a->add] = true;
      if (a->cast != NO_OP) x.gone[a->cast] = true;
    }
    module_replace(m, o->callee, adding_body(m, f, o->callee, loop_shape(o), x.addends[i]));
    any = true;
  }
  if (!any) return;
  x.r = rebuild_begin(m, f);
  module_replace(m, f, adding_function(&x, f));
}

/* Callers stand behind their bodies: a sum may sink through several loops. */
void fuse_rounds(Module *m) {
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) add_in_rounds(m, m->fns.at[i]);
}

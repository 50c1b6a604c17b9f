/* order: results of kernels, and of loops that add up, that take over the buffer of an operand.

   This is allowed if nothing reads the operand afterwards, it has a buffer of its own with the
   same strides, and the kernel reads each of its elements only at the point where it writes that
   element: never through an op that moves indexes, never as an operand of a contraction.

   A value that is stored to a global or is a body's result is written to that place, unless the
   operand is that global's old value, the carried argument of that result, or a stacked argument
   whose operand the loop's stacked result may take over in turn: then both share, and no copy is
   ever made. The operands of a concat that is assembled in place take over a value piece by piece,
   if all of their kernels can. */
#include "ir/bytes.h"
#include "ir/kernel/inplace.h"
#include "order.h"

typedef struct Inplace {
  Module *m;
  Fn *f;
  OpId *last;          /* by root: the last op that reads it; f->ops.n: after the end */
  const Global **goes; /* by root: the global that it is stored to, or NULL */
  uint32_t *result;    /* by root: its number among f's results + 1, 0: none */
  ValueId *next;       /* by value: the result of a loop that continues it, or NO_VALUE */
  uint32_t carry;      /* of a body: how many of its results are carried on */
} Inplace;

/* All loads of a global share its bytes: if there are two, neither is taken over. */
static void keep_loaded_twice(Inplace *inplace) {
  for (OpId i = 0; i < inplace->f->ops.n; i++)
    for (OpId j = 0; j < i; j++) {
      const Op *a = &inplace->f->ops.at[i], *b = &inplace->f->ops.at[j];
      if (a->code == OP_load && b->code == OP_load && a->global == b->global)
        inplace->last[a->out] = inplace->last[b->out] = inplace->f->ops.n;
    }
}

/* The global whose old value v is, or has taken over. */
static const Global *loaded(const Inplace *inplace, ValueId v) {
  while (inplace->f->values.at[v].storage.view == VIEW_INPLACE)
    v = inplace->f->values.at[v].storage.base;
  const Op *o = value_def(inplace->f, v);
  return o && o->code == OP_load ? o->global : NULL;
}

static uint32_t times_read(const Inplace *inplace, const Op *o, ValueId root) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->nin; i++) n += view_root(inplace->f, o->in[i]) == root;
  return n;
}

static void note_reads(Inplace *inplace) {
  uint32_t n = inplace->f->values.n + 1;
  inplace->carry = order_carry(inplace->m, inplace->f);
  inplace->last = ARENA_ARRAY(inplace->m->arena, OpId, n);
  inplace->goes = ARENA_ARRAY(inplace->m->arena, const Global *, n);
  inplace->result = ARENA_ARRAY(inplace->m->arena, uint32_t, n),
  inplace->next = value_map(inplace->m, inplace->f);
  for (OpId i = 0; i < inplace->f->ops.n; i++) {
    const Op *o = &inplace->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) inplace->last[view_root(inplace->f, o->in[k])] = i;
    for (uint32_t k = 0; o->code == OP_loop && k < o->nout; k++)
      if (loop_continues(o, k) != NO_VALUE) inplace->next[o->in[loop_continues(o, k)]] = o->out + k;
    if (o->code == OP_store) inplace->goes[view_root(inplace->f, o->in[0])] = o->global;
  }
  for (uint32_t i = 0; i < inplace->f->results.n; i++) {
    ValueId v = view_root(inplace->f, inplace->f->results.at[i]);
    inplace->last[v] = inplace->f->ops.n, inplace->result[v] = i + 1;
  }
  keep_loaded_twice(inplace);
}

static bool callers_give(const Inplace *inplace, uint32_t result, uint32_t arg);

/* The stack that v becomes part of, if loops continue it. */
static ValueId last_of_chain(const Inplace *inplace, ValueId v) {
  while (inplace->next[v] != NO_VALUE) v = inplace->next[v];
  return v;
}

static bool places_agree(const Inplace *inplace, ValueId r, ValueId a) {
  const Value *x = &inplace->f->values.at[a];
  const Op *made = value_def(inplace->f, a);
  if (made && inplace->next[a] == r) return made->code == OP_loop && !inplace->goes[a];
  r = last_of_chain(inplace, r);
  uint32_t result = inplace->result[r];
  if (result && x->def != NO_OP) return false;
  if (result)
    return result <= inplace->carry ? x->result == result
                                    : callers_give(inplace, result - 1, x->result);
  if (inplace->goes[r]) return loaded(inplace, a) == inplace->goes[r];
  const Op *o = value_def(inplace->f, a);
  return o && order_owns(o) && !inplace->goes[a];
}

static bool taken(const Inplace *inplace, const Op *o, uint32_t before, ValueId a) {
  for (uint32_t i = 0; i < before; i++) {
    const Storage *s = &inplace->f->values.at[o->out + i].storage;
    if (s->view == VIEW_INPLACE && s->base == a) return true;
  }
  return false;
}

static bool may_take(const Inplace *inplace, OpId id, uint32_t i, uint32_t arg) {
  const Op *o = &inplace->f->ops.at[id];
  ValueId r = o->out + i, a = o->in[arg];
  const Value *x = &inplace->f->values.at[a], *y = &inplace->f->values.at[r];
  if (x->storage.view == VIEW_OF || inplace->last[a] != id || inplace->result[a]) return false;
  if (times_read(inplace, o, a) != 1 || taken(inplace, o, i, a)) return false;
  if (!layout_same(x, y) || x->type.elem != y->type.elem || !places_agree(inplace, r, a))
    return false;
  return kernel_in_place(inplace->m->arena, o->callee, arg, i);
}

static void take(const Inplace *inplace, ValueId r, ValueId a) {
  Storage *s = &inplace->f->values.at[r].storage;
  must(s->view == VIEW_NONE && a < r, "%%%u of %s cannot take over the buffer of %%%u", r,
       inplace->f->name, a);
  s->view = VIEW_INPLACE, s->base = a;
}

/* May loop `id` leave result j in the buffer of operand k? */
static bool loop_may_take(const Inplace *inplace, OpId id, uint32_t j, uint32_t k) {
  const Op *o = &inplace->f->ops.at[id];
  ValueId a = o->in[k], r = o->out + j;
  const Value *x = &inplace->f->values.at[a];
  uint32_t on = loop_continues(o, j);
  if (on != NO_VALUE && on != k) return false;
  if (x->storage.view == VIEW_OF || inplace->last[a] != id || inplace->result[a]) return false;
  return times_read(inplace, o, a) == 1 && layout_same(x, &inplace->f->values.at[r]) &&
         places_agree(inplace, r, a);
}

/* A body's stacked result is written slice by slice into a stacked argument only if every loop over
   the body gives the operand away: nothing is copied into place for it. */
static bool callers_give(const Inplace *inplace, uint32_t result, uint32_t arg) {
  uint32_t loops = 0;
  for (uint32_t i = 0; i < inplace->m->fns.n; i++) {
    Inplace caller = {.m = inplace->m, .f = inplace->m->fns.at[i]};
    for (OpId id = 0; id < caller.f->ops.n; id++) {
      const Op *o = &caller.f->ops.at[id];
      if (o->callee != inplace->f) continue;
      LoopShape shape = loop_shape(o);
      if (o->code != OP_loop || arg < 1 + shape.carry + shape.invariant) return false;
      if (!caller.last) note_reads(&caller);
      if (!loop_may_take(&caller, id, result, arg - 1)) return false;
      loops++;
    }
  }
  return loops > 0;
}

static void try_loop(const Inplace *inplace, OpId id) {
  const Op *o = &inplace->f->ops.at[id];
  for (uint32_t j = 0; j < o->nout; j++) {
    uint32_t arg = body_stands_in(o->callee, j);
    uint32_t on = loop_continues(o, j), k = arg ? arg - 1 : on;
    if (k != NO_VALUE && loop_in_place(o, k, j) && loop_may_take(inplace, id, j, k))
      take(inplace, o->out + j, o->in[k]);
  }
}

/* A body's stacked result that is summed over one axis after another: each sum in its place. */
static bool is_summed_on(const Inplace *inplace, ValueId r, ValueId a) {
  const Op *made = value_def(inplace->f, a);
  return made && made->code == OP_reduce_scatter && inplace->result[r] > inplace->carry &&
         inplace->f->kind == FN_BODY;
}

/* The sum of all ranks takes over the buffer of this rank's term. */
static void try_all_reduce(const Inplace *inplace, OpId id) {
  const Op *o = &inplace->f->ops.at[id];
  ValueId a = o->in[0], r = o->out;
  const Value *x = &inplace->f->values.at[a];
  if (x->storage.view == VIEW_OF || inplace->last[a] != id || inplace->result[a]) return;
  if (layout_same(x, &inplace->f->values.at[r]) &&
      (places_agree(inplace, r, a) || is_summed_on(inplace, r, a)))
    take(inplace, r, a);
}

static bool is_taken(const Inplace *inplace, ValueId r) { /* by try_concat */
  return inplace->f->values.at[r].storage.view != VIEW_NONE;
}

/* ---- sums of concats that are laid out in place ---- */

/* The piece of a value that operand k of a concat may take over: its kernel must be the only
   reader. */
static ValueId piece_for(const Inplace *inplace, const Op *o, uint32_t k) {
  ValueId r = view_root(inplace->f, o->in[k]);
  const Value *y = &inplace->f->values.at[r];
  const Op *def = value_def(inplace->f, r);
  if (!def || def->code != OP_kernel || y->storage.view != VIEW_NONE) return NO_VALUE;
  for (uint32_t arg = 0; arg < def->nin; arg++) {
    ValueId a = def->in[arg];
    const Value *x = &inplace->f->values.at[a];
    if (x->storage.view != VIEW_OF || !layout_same(x, y) || x->type.elem != y->type.elem) continue;
    if (x->storage.offset * elem_bytes(x->type.elem) != laid_at(inplace->f, o, k)) continue;
    if (kernel_in_place(inplace->m->arena, def->callee, arg, r - def->out)) return a;
  }
  return NO_VALUE;
}

static uint32_t reads_of(const Inplace *inplace, ValueId root) {
  uint32_t n = 0;
  for (OpId i = 0; i < inplace->f->ops.n; i++)
    if (!(op_flags(inplace->f->ops.at[i].code) & VIEW))
      n += times_read(inplace, &inplace->f->ops.at[i], root);
  for (uint32_t i = 0; i < inplace->f->results.n; i++)
    n += view_root(inplace->f, inplace->f->results.at[i]) == root;
  return n;
}

/* A concat laid out in place takes over a value if its kernels read the pieces of that value, to
   add to them, and nothing else reads it. */
static void try_concat(const Inplace *inplace, const Op *o) {
  ValueId *piece = ARENA_ARRAY(inplace->m->arena, ValueId, o->nin + 1), over = NO_VALUE;
  for (uint32_t k = 0; k < o->nin; k++) {
    piece[k] = piece_for(inplace, o, k);
    if (piece[k] == NO_VALUE) return;
    ValueId base = inplace->f->values.at[piece[k]].storage.base;
    if (k && base != over) return;
    over = base;
  }
  const Value *x = &inplace->f->values.at[over], *y = &inplace->f->values.at[o->out];
  if (x->storage.view == VIEW_OF || !layout_is_dense(x) || x->type.elem != y->type.elem) return;
  if (type_count(&x->type) != type_count(&y->type) || reads_of(inplace, over) != o->nin) return;
  if (!places_agree(inplace, o->out, over)) return;
  for (uint32_t k = 0; k < o->nin; k++) take(inplace, view_root(inplace->f, o->in[k]), piece[k]);
}

static void try_kernel(const Inplace *inplace, OpId id) {
  const Op *o = &inplace->f->ops.at[id];
  for (uint32_t i = 0; i < o->nout; i++)
    for (uint32_t arg = 0; arg < o->nin && !is_taken(inplace, o->out + i); arg++)
      if (may_take(inplace, id, i, arg)) {
        take(inplace, o->out + i, o->in[arg]);
        break;
      }
}

void order_inplace(Module *m, Fn *f) {
  Inplace inplace = {.m = m, .f = f};
  note_reads(&inplace);
  for (OpId i = 0; i < f->ops.n; i++)
    if (op_lays(f, &f->ops.at[i])) try_concat(&inplace, &f->ops.at[i]);
  for (OpId i = 0; i < f->ops.n; i++) {
    if (f->ops.at[i].code == OP_kernel) try_kernel(&inplace, i);
    if (f->ops.at[i].code == OP_loop) try_loop(&inplace, i);
    if (f->ops.at[i].code == OP_all_reduce) try_all_reduce(&inplace, i);
  }
}

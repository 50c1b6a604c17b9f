/* fuse, before grouping: contractions whose result is larger than their operands move down to their
   first use.

   A gradient that is added to another one later (an embedding that is also the output layer) then
   is one kernel with the sum in its epilogue, and its large result does not lie in memory while the
   operands would do. Element-wise ops follow: they stand right before what needs them. Results of a
   body are made where they are: they lie in the caller's memory anyway. Scatters move, too, behind
   what they are added to: they start from that, in its buffer, and touch only the rows they take.

   A product that ends in the update of a parameter waits for other products that read the parameter
   and do not need it: then the new parameter takes the buffer of the old one. */
#include "passes/fuse.h"

typedef struct Sink {
  Rebuild r;
  bool *late;      /* by OpId: written when first needed */
  ValueList *wait; /* by OpId of a contraction: what must be written before, if it can */
  bool *busy;      /* by OpId: is being written */
} Sink;

static bool leaves(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return true;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].in[0] == v) return true;
  return false;
}

/* Is v added to what a contraction makes, and nothing else? */
static bool is_added(const Fn *f, ValueId v) {
  uint32_t uses = 0, sums = 0;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      const Op *other = o->code == OP_add ? value_def(f, o->in[1 - k]) : NULL;
      uses += o->in[k] == v;
      sums += o->in[k] == v && other && op_family(other->code) == FAMILY_CONTRACT;
    }
  }
  return uses == 1 && sums == 1 && !leaves(f, v);
}

static bool scatters(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  return o && o->code == OP_scatter;
}

static bool sinks(const Fn *f, const Op *o) {
  if (o->code == OP_scatter) return is_added(f, o->out);
  if (op_family(o->code) != FAMILY_CONTRACT) return op_flags(o->code) & POINT;
  return fuse_bytes(f, o->out) >= fuse_bytes(f, o->in[0]) + fuse_bytes(f, o->in[1]) &&
         !leaves(f, o->out);
}

/* ---- products that end in updates ---- */

typedef struct SunkUpdate {
  const Fn *f;
  OpId product;
  bool *own;     /* by ValueId: the product, and what element-wise ops make of it alone */
  bool *follows; /* by ValueId: depends on it in any way */
} SunkUpdate;

/* Does what element-wise ops make of the product end in a result or a global? */
static bool update_of(Arena *a, SunkUpdate *u) {
  const Fn *f = u->f;
  bool ends = false;
  u->own = ARENA_ARRAY(a, bool, f->values.n + 1),
  u->follows = ARENA_ARRAY(a, bool, f->values.n + 1);
  u->own[f->ops.at[u->product].out] = u->follows[f->ops.at[u->product].out] = true;
  for (OpId i = u->product + 1; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool own = op_family(o->code) == FAMILY_ELEM && fuse_reads(o, u->own),
         follows = fuse_reads(o, u->follows);
    for (uint32_t k = 0; k < o->nin; k++) own &= u->own[o->in[k]] || !u->follows[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++)
      u->own[o->out + k] = own, u->follows[o->out + k] = follows;
    ends |= own && leaves(f, o->out);
  }
  return ends;
}

/* May v be computed right before op `at`? Loads, loops and what ranks do together keep their order.
 */
static bool may_rise(const Fn *f, ValueId v, OpId at) {
  const Op *o = value_def(f, v);
  if (!o || f->values.at[v].def < at) return true;
  OpFamily family = op_family(o->code);
  if (family != FAMILY_ELEM && family != FAMILY_CONTRACT && !(op_flags(o->code) & POINT))
    return false;
  for (uint32_t k = 0; k < o->nin; k++)
    if (!may_rise(f, o->in[k], at)) return false;
  return true;
}

/* What other products make of v, or of what it is by element, if the update reads v. */
static void note_readers(Arena *a, const SunkUpdate *u, ValueId v, ValueList *wait) {
  const Fn *f = u->f;
  bool *same = ARENA_ARRAY(a, bool, f->values.n + 1), updates = false;
  uint32_t before = wait->n;
  same[v] = true;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!o->nout || i == u->product || !fuse_reads(o, same)) continue;
    if (op_family(o->code) == FAMILY_CONTRACT) {
      if (!u->follows[o->out] && may_rise(f, o->out, u->product)) vec_push(a, *wait, o->out);
    } else if (op_family(o->code) == FAMILY_ELEM) {
      updates |= u->own[o->out];
      same[o->out] = !u->own[o->out];
    }
  }
  if (!updates) wait->n = before;
}

static ValueList waits_for(Arena *a, const Fn *f, OpId product) {
  SunkUpdate u = {.f = f, .product = product};
  const Op *o = &f->ops.at[product];
  ValueList wait = {0};
  if (op_family(o->code) != FAMILY_CONTRACT || !update_of(a, &u)) return wait;
  for (ValueId v = 0; v < f->values.n; v++) {
    const Op *def = value_def(f, v);
    bool given = !def || def->code == OP_load;
    if (given && type_count(value_type(f, v)) == type_count(value_type(f, o->out)))
      note_readers(a, &u, v, &wait);
  }
  return wait;
}

static void need(Sink *s, ValueId v);

static void write(Sink *s, OpId i) {
  const Op *o = &s->r.from->ops.at[i];
  s->busy[i] = true; /* updates may wait for each other */
  for (uint32_t k = 0; k < s->wait[i].n; k++)
    if (!s->busy[s->r.from->values.at[s->wait[i].at[k]].def]) need(s, s->wait[i].at[k]);
  for (uint32_t k = 0; k < o->nin; k++)
    if (!scatters(s->r.from, o->in[k])) need(s, o->in[k]);
  for (uint32_t k = 0; k < o->nin; k++) need(s, o->in[k]);
  if (!o->nout || s->r.map[o->out] == NO_VALUE) rebuild_op(&s->r, o);
}

static void need(Sink *s, ValueId v) {
  if (s->r.map[v] == NO_VALUE) write(s, s->r.from->values.at[v].def);
}

Fn *fuse_sink(Module *m, const Fn *f) {
  Sink s = {rebuild_begin(m, f), ARENA_ARRAY(m->arena, bool, f->ops.n + 1),
            ARENA_ARRAY(m->arena, ValueList, f->ops.n + 1),
            ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  for (OpId i = 0; i < f->ops.n; i++)
    s.late[i] = sinks(f, &f->ops.at[i]), s.wait[i] = waits_for(m->arena, f, i);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!s.late[i] && (!o->nout || s.r.map[o->out] == NO_VALUE)) write(&s, i);
  }
  for (uint32_t i = 0; i < f->results.n; i++) need(&s, f->results.at[i]);
  rebuild_results(&s.r);
  return s.r.to;
}

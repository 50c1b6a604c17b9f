/* fuse, before grouping: contractions whose result is larger than their operands move to their
   first use.

   A gradient that is added to another one later (an embedding that is also the output layer) then
   is one kernel with the sum in its epilogue, and until then the smaller operands are kept in
   memory instead of its large result. Element-wise ops move as well, to just before the op that
   needs them, but copies stay. Results of a body are made where they are: their memory is the
   caller's anyway.
   Scatters move after the op that makes their addend: they start from it, in its buffer, and write
   only the rows that they take.

   A product that ends in the update of a parameter waits for other products that read the
   parameter and do not depend on it: then the new parameter takes the buffer of the old one. */
#include "fuse.h"

typedef struct Sink {
  Rebuild r;
  bool *late;      /* by OpId: written when first needed */
  ValueList *wait; /* by OpId of a contraction: values to write before it, if possible */
  bool *busy;      /* by OpId: is being written */
} Sink;

static bool leaves(const Fn *fn, ValueId value) {
  for (uint32_t i = 0; i < fn->results.n; i++)
    if (fn->results.at[i] == value) return true;
  for (OpId i = 0; i < fn->ops.n; i++)
    if (fn->ops.at[i].code == OP_store && fn->ops.at[i].in[0] == value) return true;
  return false;
}

/* Is v only used as an addend of a contraction's result? */
static bool is_added(const Fn *fn, ValueId value) {
  uint32_t uses = 0, sums = 0;
  EACH_OP (fn, op) {
    for (uint32_t k = 0; k < op->nin; k++) {
      const Op *other = op->code == OP_add ? value_def(fn, op->in[1 - k]) : NULL;
      uses += op->in[k] == value;
      sums += op->in[k] == value && other && op_family(other->code) == FAMILY_CONTRACT;
    }
  }
  return uses == 1 && sums == 1 && !leaves(fn, value);
}

static bool scatters(const Fn *fn, ValueId value) {
  const Op *op = value_def(fn, value);
  return op && op->code == OP_scatter;
}

static bool sinks(const Fn *fn, const Op *op) {
  if (op->code == OP_scatter) return is_added(fn, op->out);
  if (op->code == OP_copy) return false;
  if (op_family(op->code) != FAMILY_CONTRACT) return op_flags(op->code) & POINT;
  return value_dense_bytes(fn, op->out) >=
             value_dense_bytes(fn, op->in[0]) + value_dense_bytes(fn, op->in[1]) &&
         !leaves(fn, op->out);
}

/* ---- products that end in updates ---- */

typedef struct SunkUpdate {
  const Fn *f;
  OpId product;
  bool *own;     /* by ValueId: the product, and values made from it alone element by element */
  bool *follows; /* by ValueId: depends on it in any way */
} SunkUpdate;

/* Do the element-wise ops on the product end in a result or a global? */
static bool update_of(Arena *arena, SunkUpdate *update) {
  const Fn *fn = update->f;
  bool ends = false;
  update->own = ARENA_ARRAY(arena, bool, fn->values.n + 1),
  update->follows = ARENA_ARRAY(arena, bool, fn->values.n + 1);
  update->own[fn->ops.at[update->product].out] = update->follows[fn->ops.at[update->product].out] =
      true;
  for (OpId i = update->product + 1; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    bool own = op_family(op->code) == FAMILY_ELEM && fuse_reads(op, update->own),
         follows = fuse_reads(op, update->follows);
    for (uint32_t k = 0; k < op->nin; k++)
      own &= update->own[op->in[k]] || !update->follows[op->in[k]];
    for (uint32_t k = 0; k < op->nout; k++)
      update->own[op->out + k] = own, update->follows[op->out + k] = follows;
    ends |= own && leaves(fn, op->out);
  }
  return ends;
}

/* May v be computed right before op `at`? Loads, loops and collectives keep their order. */
static bool may_rise(const Fn *fn, ValueId value, OpId at) {
  const Op *op = value_def(fn, value);
  if (!op || fn->values.at[value].def < at) return true;
  OpFamily family = op_family(op->code);
  if (family != FAMILY_ELEM && family != FAMILY_CONTRACT && !(op_flags(op->code) & POINT))
    return false;
  for (uint32_t k = 0; k < op->nin; k++)
    if (!may_rise(fn, op->in[k], at)) return false;
  return true;
}

/* Products other than the update's that read v, or a value that is v element by element, if the
   update reads v. */
static void note_readers(Arena *arena, const SunkUpdate *update, ValueId value, ValueList *wait) {
  const Fn *fn = update->f;
  bool *same = ARENA_ARRAY(arena, bool, fn->values.n + 1), updates = false;
  uint32_t before = wait->n;
  same[value] = true;
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (!op->nout || i == update->product || !fuse_reads(op, same)) continue;
    if (op_family(op->code) == FAMILY_CONTRACT) {
      if (!update->follows[op->out] && may_rise(fn, op->out, update->product))
        vec_push(arena, *wait, op->out);
    } else if (op_family(op->code) == FAMILY_ELEM) {
      updates |= update->own[op->out];
      same[op->out] = !update->own[op->out];
    }
  }
  if (!updates) wait->n = before;
}

static ValueList waits_for(Arena *arena, const Fn *fn, OpId product) {
  SunkUpdate update = {.f = fn, .product = product};
  const Op *op = &fn->ops.at[product];
  ValueList wait = {0};
  if (op_family(op->code) != FAMILY_CONTRACT || !update_of(arena, &update)) return wait;
  for (ValueId value = 0; value < fn->values.n; value++) {
    const Op *def = value_def(fn, value);
    bool given = !def || def->code == OP_load;
    if (given && type_count(value_type(fn, value)) == type_count(value_type(fn, op->out)))
      note_readers(arena, &update, value, &wait);
  }
  return wait;
}

static void need(Sink *s, ValueId v);

static void write(Sink *sink, OpId i) {
  const Op *op = &sink->r.from->ops.at[i];
  sink->busy[i] = true; /* updates may wait for each other */
  for (uint32_t k = 0; k < sink->wait[i].n; k++)
    if (!sink->busy[sink->r.from->values.at[sink->wait[i].at[k]].def])
      need(sink, sink->wait[i].at[k]);
  for (uint32_t k = 0; k < op->nin; k++)
    if (!scatters(sink->r.from, op->in[k])) need(sink, op->in[k]);
  for (uint32_t k = 0; k < op->nin; k++) need(sink, op->in[k]);
  if (!op->nout || sink->r.map[op->out] == NO_VALUE) rebuild_op(&sink->r, op);
}

static void need(Sink *sink, ValueId value) {
  if (sink->r.map[value] == NO_VALUE) write(sink, sink->r.from->values.at[value].def);
}

Fn *fuse_sink(Module *module, const Fn *fn) {
  Sink sink = {rebuild_begin(module, fn), ARENA_ARRAY(module->arena, bool, fn->ops.n + 1),
               ARENA_ARRAY(module->arena, ValueList, fn->ops.n + 1),
               ARENA_ARRAY(module->arena, bool, fn->ops.n + 1)};
  for (OpId i = 0; i < fn->ops.n; i++)
    sink.late[i] = sinks(fn, &fn->ops.at[i]), sink.wait[i] = waits_for(module->arena, fn, i);
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (!sink.late[i] && (!op->nout || sink.r.map[op->out] == NO_VALUE)) write(&sink, i);
  }
  for (uint32_t i = 0; i < fn->results.n; i++) need(&sink, fn->results.at[i]);
  rebuild_results(&sink.r);
  return sink.r.to;
}

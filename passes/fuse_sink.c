/* fuse, before grouping: contractions whose result is larger than their operands move down to their
   first use.

   A gradient that is added to another one later (an embedding that is also the output layer) then
   is one kernel with the sum in its epilogue, and its large result does not lie in memory while the
   operands would do. Element-wise ops follow: they stand right before what needs them. Results of a
   body are made where they are: they lie in the caller's memory anyway. Scatters move, too, behind
   what they are added to: they start from that, in its buffer, and touch only the rows they take.
 */
#include "passes/fuse.h"

typedef struct Sink {
  Rebuild r;
  bool *late; /* by OpId: written when first needed */
} Sink;

static int64_t bytes_of(const Fn *f, ValueId v) {
  const Type *t = value_type(f, v);
  return type_count(t) * elem_bytes(t->elem);
}

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
  return bytes_of(f, o->out) >= bytes_of(f, o->in[0]) + bytes_of(f, o->in[1]) && !leaves(f, o->out);
}

static void need(Sink *s, ValueId v) {
  if (s->r.map[v] != NO_VALUE) return;
  const Op *o = value_def(s->r.from, v);
  for (uint32_t i = 0; i < o->nin; i++)
    if (!scatters(s->r.from, o->in[i])) need(s, o->in[i]);
  for (uint32_t i = 0; i < o->nin; i++) need(s, o->in[i]);
  if (s->r.map[v] == NO_VALUE) rebuild_op(&s->r, o);
}

Fn *fuse_sink(Module *m, const Fn *f) {
  Sink s = {rebuild_begin(m, f), ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  for (OpId i = 0; i < f->ops.n; i++) s.late[i] = sinks(f, &f->ops.at[i]);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (s.late[i]) continue;
    for (uint32_t k = 0; k < o->nin; k++) need(&s, o->in[k]);
    rebuild_op(&s.r, o);
  }
  for (uint32_t i = 0; i < f->results.n; i++) need(&s, f->results.at[i]);
  rebuild_results(&s.r);
  return s.r.to;
}

/* offload, part of gradients: which values move to the host where they are made.

   With `offload optimizer` alone a gradient is downloaded when the update needs it. With `offload
   grads` it is downloaded as soon as it is final, and its device buffer is free: results of
   collectives bucket by bucket, stacked results of a backward loop round by round, sums over
   micro-batches. Later readers, the norm for one, read it on the host.

   The search starts at the uses: an op that runs on the host reads a device value that has the
   shape of a state, or that it adds to a host value. From that value the search follows views,
   concats and element-wise ops on one value backwards, as long as that does not get wider, to the
   op that makes it. A result of a loop is downloaded in the loop (and so is the value that it
   continues, if it does); any other value is downloaded as soon as it exists. As a consequence
   more ops run on the host, so the search repeats until nothing changes. Must not: change the
   module; take scalars, which are copied separately. */
#include "passes/base/rebuild.h"
#include "offload.h"

typedef struct Search {
  const Module *m;
  const Fn *f;
  Tier *tier; /* by value */
  bool *to_host, changed;
  bool *hosted; /* by global: a state whose gradient is downloaded */
} Search;

static bool is_alike(const Type *a, const Type *b) {
  bool alike = a->rank == b->rank;
  for (int i = 0; alike && i < a->rank; i++) alike = a->axis[i].size == b->axis[i].size;
  return alike;
}

/* Has it the shape of a state on the host whose gradient is downloaded as well? */
static bool is_of_state(const Search *search, const Type *t) {
  for (uint32_t i = 0; t->rank && i < search->m->globals.n; i++) {
    const Global *g = search->m->globals.at[i];
    if (g->kind == GLOBAL_STATE && g->type.tier == TIER_host && search->hosted[i] &&
        is_alike(&g->type, t))
      return true;
  }
  return false;
}

static void send(Search *search, ValueId v) {
  search->changed |= !search->to_host[v];
  search->to_host[v] = true, search->tier[v] = TIER_host;
}

/* The one operand that a value is made of, byte for byte or number for number, and not wider. */
static ValueId made_of(const Search *search, const Op *o) {
  ValueId from = NO_VALUE;
  int64_t count = type_count(value_type(search->f, o->out));
  bool view = op_flags(o->code) & VIEW && o->nin == 1;
  if (o->nout != 1 || o->global || !(view || op_flags(o->code) & POINT)) return NO_VALUE;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Type *t = value_type(search->f, o->in[i]);
    if (t->rank && (from != NO_VALUE || type_count(t) != count)) return NO_VALUE;
    if (t->rank) from = o->in[i];
  }
  bool wider = from != NO_VALUE && elem_bytes(value_type(search->f, from)->elem) >
                                       elem_bytes(value_type(search->f, o->out)->elem);
  return wider ? NO_VALUE : from;
}

/* Downloads a result of a loop, and the operand that it carries or continues. */
static ValueId send_result(Search *search, const Op *loop, ValueId v) {
  uint32_t k = v - loop->out;
  LoopShape s = loop_shape(loop);
  uint32_t on = k < s.carry ? k : loop_continues(loop, k);
  send(search, v);
  return on == NO_VALUE ? NO_VALUE : loop->in[on];
}

static void trace(Search *search, ValueId v) {
  while (v != NO_VALUE && search->tier[v] == TIER_device) {
    const Op *o = value_def(search->f, v);
    if (!o || o->global || !o->nin) return; /* an argument, a parameter, a number */
    /* Gradients that no message joins: each is downloaded once it exists, in a round all as one. */
    if (o->code == OP_concat && search->f->kind == FN_ENTRY) {
      for (uint32_t i = 0; i < o->nin; i++) trace(search, o->in[i]);
      return;
    }
    ValueId next = o->code == OP_loop ? send_result(search, o, v) : made_of(search, o);
    if (next == NO_VALUE) send(search, v);
    v = next;
  }
}

static void visit_loop(Search *search, const Op *o) {
  LoopShape s = loop_shape(o);
  for (uint32_t i = 0; i < o->nout; i++) {
    uint32_t on = i < s.carry ? i : loop_continues(o, i);
    bool host = on != NO_VALUE && search->tier[o->in[on]] == TIER_host;
    if (host && is_of_state(search, value_type(search->f, o->out + i))) send(search, o->out + i);
  }
}

/* Added to a sum over micro-batches on the host: only a single rank has it in the shape of the
   parameter. */
static bool is_added(const Search *search, const Op *o, ValueId v) {
  for (uint32_t i = 0; value_type(search->f, v)->rank && i < o->nin && o->code == OP_add; i++)
    if (search->tier[o->in[i]] == TIER_host &&
        is_alike(value_type(search->f, o->in[i]), value_type(search->f, v)))
      return true;
  return false;
}

static void visit_op(Search *search, const Op *o) {
  bool param = o->code == OP_load && o->global->kind == GLOBAL_PARAM; /* uploaded */
  Tier t = param ? TIER_device : offload_op_tier(search->f, search->tier, o);
  if (o->code == OP_loop) {
    visit_loop(search, o);
    return;
  }
  if (op_family(o->code) == FAMILY_COLLECTIVE) return;
  for (uint32_t i = 0; i < o->nout; i++)
    search->tier[o->out + i] = search->to_host[o->out + i] ? TIER_host : t;
  for (uint32_t i = 0; i < o->nin && t == TIER_host; i++)
    if (is_of_state(search, value_type(search->f, o->in[i])) || is_added(search, o, o->in[i]))
      trace(search, o->in[i]);
}

bool *offload_gradients(const Module *m, const Fn *f, const Tier *used) {
  uint32_t n = f->values.n + 1;
  Search search = {.m = m, .f = f, .changed = true};
  search.tier = ARENA_ARRAY(m->arena, Tier, n), search.to_host = ARENA_ARRAY(m->arena, bool, n);
  for (uint32_t i = 0; i < f->args.n; i++) search.tier[f->args.at[i]] = used[f->args.at[i]];
  search.hosted = ARENA_ARRAY(m->arena, bool, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++)
    search.hosted[i] = offload_names(m, OFFLOAD_GRADS, m->globals.at[i]);
  while (search.changed) {
    search.changed = false;
    for (OpId i = 0; i < f->ops.n; i++) visit_op(&search, &f->ops.at[i]);
  }
  return search.to_host;
}

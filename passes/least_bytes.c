/* fuse, before anything is grouped: the bytes that no grouping into kernels can avoid moving.

   Contractions, attention, scatters and loops are kernels of their own; everything else may join
   any of them at no cost, whatever it is. In memory are arguments, loaded globals, and results of
   such ops. Then a function moves at least

     for each contraction, attention, scatter   the fewest bytes that its operands can be computed
                                                from: a minimum cut between memory and operands
     for each of their results                  the fewest bytes that it can be turned into before
                                                such an op, a loop, a store or the caller needs it
     for what is stored, returned or handed     its bytes, once
     to a loop, unless it is in memory anyway
     to compute the latter                      what of arguments, globals, results of loops has to
                                                be read for that and no contraction reads already
     for each loop                              what its body moves, times rounds

   Every number is a bound from below for its kernel, so their sum is one for the function under
   these rules. A value counts once per kernel that needs it, as if nothing stayed in a cache
   between kernels. The sum is the attribute `least` of entries and bodies. */
#include "passes/fuse.h"
#include "passes/flow.h"
#include <math.h>

typedef struct Least {
  Module *m;
  const Fn *f;
  bool *memory;  /* by value: is there */
  bool *written; /* by value: stored, returned or handed to a loop; not in memory otherwise */
  bool *read;    /* by value: a contraction or the like may read it */
} Least;

static double bytes_of(const Least *l, ValueId v) {
  const Type *t = value_type(l->f, v);
  return (double)type_count(t) * elem_bytes(t->elem);
}

static bool is_heavy(const Op *o) {
  OpFamily f = op_family(o->code);
  return f == FAMILY_CONTRACT || f == FAMILY_ATTENTION || f == FAMILY_SCATTER;
}

static bool joins(const Op *o) {
  return !is_heavy(o) && o->nout && op_family(o->code) != FAMILY_CALL && o->code != OP_load;
}

/* ---- nets: an `in` and an `out` node per value ---- */

static uint32_t node_in(ValueId v) { return FLOW_NODES + 2 * v; }
static uint32_t node_out(ValueId v) { return FLOW_NODES + 2 * v + 1; }

static Flow net_of(Least *l, const double *cost) {
  uint32_t arcs = 4 * l->f->values.n;
  for (OpId i = 0; i < l->f->ops.n; i++) arcs += l->f->ops.at[i].nin * l->f->ops.at[i].nout;
  Flow n = flow_new(l->m->arena, FLOW_NODES + 2 * l->f->values.n, arcs);
  for (ValueId v = 0; v < l->f->values.n; v++) flow_join(&n, node_in(v), node_out(v), cost[v]);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; joins(o) && k < o->nin; k++)
      for (uint32_t r = 0; r < o->nout; r++)
        flow_join(&n, node_out(o->in[k]), node_in(o->out + r), INFINITY);
  }
  return n;
}

static double *costs(const Least *l) {
  double *cost = ARENA_ARRAY(l->m->arena, double, l->f->values.n + 1);
  for (ValueId v = 0; v < l->f->values.n; v++) cost[v] = bytes_of(l, v);
  return cost;
}

/* ---- what is where ---- */

static void find_memory(Least *l) {
  for (ValueId v = 0; v < l->f->values.n; v++) {
    const Op *o = value_def(l->f, v);
    l->memory[v] = !o || !joins(o);
  }
}

static void write_down(Least *l, ValueId v) {
  const Op *o = value_def(l->f, v);
  if (o && (!l->memory[v] || is_heavy(o))) l->written[v] = true;
}

static void find_written(Least *l) {
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    bool hands_on = o->code == OP_store || op_family(o->code) == FAMILY_CALL;
    for (uint32_t k = 0; hands_on && k < o->nin; k++) write_down(l, o->in[k]);
  }
  for (uint32_t i = 0; i < l->f->results.n; i++) write_down(l, l->f->results.at[i]);
}

static void find_read(Least *l) {
  for (OpId i = l->f->ops.n; i-- > 0;) {
    const Op *o = &l->f->ops.at[i];
    bool any = is_heavy(o);
    for (uint32_t k = 0; joins(o) && k < o->nout; k++) any |= l->read[o->out + k];
    for (uint32_t k = 0; any && k < o->nin; k++) l->read[o->in[k]] = true;
  }
}

/* ---- the parts of the sum ---- */

static double reads(Least *l, const Op *o) {
  Flow n = net_of(l, costs(l));
  for (ValueId v = 0; v < l->f->values.n; v++)
    if (l->memory[v]) flow_join(&n, FLOW_SOURCE, node_in(v), INFINITY);
  for (uint32_t k = 0; k < o->nin; k++) flow_join(&n, node_out(o->in[k]), FLOW_SINK, INFINITY);
  return flow_run(&n);
}

static double writes(Least *l, ValueId v) {
  double *cost = costs(l);
  for (ValueId i = 0; i < l->f->values.n; i++)
    if (l->written[i]) cost[i] = 0;
  Flow n = net_of(l, cost);
  flow_join(&n, FLOW_SOURCE, node_in(v), INFINITY);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; is_heavy(o) && k < o->nin; k++)
      flow_join(&n, node_out(o->in[k]), FLOW_SINK, INFINITY);
  }
  return flow_run(&n);
}

static double reads_of_rest(Least *l) {
  double *cost = costs(l);
  for (ValueId v = 0; v < l->f->values.n; v++) {
    const Op *o = value_def(l->f, v);
    if (l->memory[v] && (l->read[v] || (o && is_heavy(o)))) cost[v] = 0;
    else if (!l->memory[v] && l->written[v]) cost[v] = INFINITY;
  }
  Flow n = net_of(l, cost);
  for (ValueId v = 0; v < l->f->values.n; v++) {
    if (l->memory[v]) flow_join(&n, FLOW_SOURCE, node_in(v), INFINITY);
    else if (l->written[v]) flow_join(&n, node_out(v), FLOW_SINK, INFINITY);
  }
  return flow_run(&n);
}

static double op_least(Least *l, const Op *o) {
  double sum = 0;
  if (op_family(o->code) == FAMILY_CALL)
    return attr_float(&o->callee->attrs, ATTR_least, 0) * (double)attr_int(&o->attrs, ATTR_trip, 1);
  if (!is_heavy(o)) return 0;
  for (uint32_t k = 0; k < o->nout; k++)
    if (!l->written[o->out + k]) sum += writes(l, o->out + k);
  return sum + reads(l, o);
}

void least_bytes(Module *m, Fn *f) {
  Least l = {.m = m, .f = f};
  uint32_t n = f->values.n + 1;
  l.memory = ARENA_ARRAY(m->arena, bool, n), l.written = ARENA_ARRAY(m->arena, bool, n);
  l.read = ARENA_ARRAY(m->arena, bool, n);
  find_memory(&l);
  find_written(&l);
  find_read(&l);
  double sum = reads_of_rest(&l);
  for (ValueId v = 0; v + 1 < n; v++)
    if (l.written[v]) sum += bytes_of(&l, v);
  for (OpId i = 0; i < f->ops.n; i++) sum += op_least(&l, &f->ops.at[i]);
  attr_set_float(m, &f->attrs, ATTR_least, sum);
}

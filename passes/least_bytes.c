/* fuse, before anything is grouped: the bytes that no grouping into kernels can avoid moving.

   Contractions, attention, scatters and loops are kernels of their own; everything else may join
   any of them at no cost, whatever it is. In memory are arguments, loaded globals, and results of
   such ops. Then a function moves at least

     for each contraction, attention, scatter   the least price of values from which its operands
                                                can be computed: a minimum cut between memory and
                                                operands
     for each of their results                  the fewest bytes that it can be turned into before
                                                such an op, a loop, a store or the caller needs it
     for what is stored, returned or handed     its bytes, once
     to a loop, unless it is in memory anyway
     to compute the latter                      what of arguments, globals, results of loops has to
                                                be read for that and no contraction reads already
     for each loop                              what its body moves, times rounds
     for results that must wait                 see below

   The price of a value is its bytes, with two exceptions. What is made of values in memory at the
   start alone, and read by n contractions at most, has to be written for them: that write is spread
   over their reads. What is needed as a whole, but stands in no cut (a saved value that is read
   beside a product), is read once by somebody: it is counted once and free in all cuts, if that
   makes the sum larger.

   One number may depend on many contractions and decide what becomes of their results (the norm of
   all gradients, the test for overflow). Whichever of them runs last may go on at once; of the
   others, what reaches the ops behind that number is written and read again.

   Every term is a bound from below for its kernel and counts bytes that no other counts, so their
   sum is one for the function under these rules. A value counts once per kernel that needs it, as
   if nothing stayed in a cache between kernels. The sum is the attribute
   `compulsory_bytes` of entries and bodies. */
#include "passes/fuse.h"
#include "passes/flow.h"
#include <math.h>

typedef struct Least {
  Module *m;
  const Fn *f;
  bool *memory;  /* by value: is there */
  bool *written; /* by value: stored, returned or handed to a loop; not in memory otherwise */
  bool *read;    /* by value: a contraction or the like may read it */
  bool *whole;   /* by value: all its elements are needed */
  bool *in_cut;  /* by value: the cut of some contraction reads it */
  double *price; /* by value: of a read */
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

static bool is_result(const Least *l, ValueId v) { /* of a contraction or the like */
  const Op *o = value_def(l->f, v);
  return o && is_heavy(o);
}

/* ---- nets: an `in` and an `out` node per value ---- */

static uint32_t node_in(ValueId v) { return FLOW_NODES + 2 * v; }
static uint32_t node_out(ValueId v) { return FLOW_NODES + 2 * v + 1; }

/* Of what is in memory, a gather or a slice reads no more than it takes. */
static double taken(const Least *l, const Op *o, uint32_t k) {
  bool takes = (o->code == OP_gather && !k) || o->code == OP_slice;
  return takes && l->memory[o->in[k]] ? bytes_of(l, o->out) : INFINITY;
}

static Flow net_of(Least *l, const double *cost) {
  uint32_t arcs = 4 * l->f->values.n;
  for (OpId i = 0; i < l->f->ops.n; i++) arcs += l->f->ops.at[i].nin * l->f->ops.at[i].nout;
  Flow n = flow_new(l->m->arena, FLOW_NODES + 2 * l->f->values.n, arcs);
  for (ValueId v = 0; v < l->f->values.n; v++) flow_join(&n, node_in(v), node_out(v), cost[v]);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; joins(o) && k < o->nin; k++)
      for (uint32_t r = 0; r < o->nout; r++)
        flow_join(&n, node_out(o->in[k]), node_in(o->out + r), taken(l, o, k));
  }
  return n;
}

/* ---- what is where ---- */

static void find_memory(Least *l) {
  for (ValueId v = 0; v < l->f->values.n; v++) {
    const Op *o = value_def(l->f, v);
    l->memory[v] = !o || !joins(o);
  }
}

static bool is_view(const Op *o) { return o && op_flags(o->code) & VIEW; }

/* Takes elements of its operand k without looking at the others. */
static bool takes_part(const Op *o, uint32_t k) {
  OpFamily f = op_family(o->code);
  bool moves = f == FAMILY_STRUCT && o->code != OP_expand && o->code != OP_rename &&
               o->code != OP_split && o->code != OP_merge && o->code != OP_rope;
  return moves || (f == FAMILY_GATHER && k == 0);
}

/* A view of what is in memory at the start is, too; of a view of something else, the latter is
   written, unless only a part of it is asked for. */
static void write_down(Least *l, ValueId v) {
  ValueId root = v;
  while (is_view(value_def(l->f, v)) && !takes_part(value_def(l->f, v), 0))
    v = value_def(l->f, v)->in[0];
  while (is_view(value_def(l->f, root))) root = value_def(l->f, root)->in[0];
  if (!l->memory[root] || is_result(l, root)) l->written[v] = true;
}

/* Parts of what is written as a whole stand there. */
static void drop_parts(Least *l) {
  for (ValueId v = 0; v < l->f->values.n; v++)
    for (ValueId w = v; l->written[v] && is_view(value_def(l->f, w));) {
      w = value_def(l->f, w)->in[0];
      l->written[v] = !l->written[w];
    }
}

static bool hands_on(const Op *o) {
  return o->code == OP_store || op_family(o->code) == FAMILY_CALL;
}

static void find_written(Least *l) {
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; hands_on(o) && k < o->nin; k++) write_down(l, o->in[k]);
  }
  for (uint32_t i = 0; i < l->f->results.n; i++) write_down(l, l->f->results.at[i]);
  drop_parts(l);
}

/* Everything that o may compute with in one kernel, o's operands first. */
static void mark_cone(const Least *l, const Op *o, bool *seen) {
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId v = o->in[k];
    if (seen[v]) continue;
    seen[v] = true;
    if (!l->memory[v]) mark_cone(l, value_def(l->f, v), seen);
  }
}

static void find_whole(Least *l) {
  for (ValueId v = 0; v < l->f->values.n; v++) l->whole[v] = !l->memory[v] && l->written[v];
  for (OpId i = l->f->ops.n; i-- > 0;) {
    const Op *o = &l->f->ops.at[i];
    bool any = is_heavy(o);
    for (uint32_t k = 0; joins(o) && k < o->nout; k++) any |= l->whole[o->out + k];
    for (uint32_t k = 0; any && k < o->nin; k++)
      if (is_heavy(o) || !takes_part(o, k)) l->whole[o->in[k]] = true;
  }
}

/* Parts of what is in memory are read there. */
static bool is_there(const Least *l, ValueId v) {
  while (!l->memory[v] && !l->written[v]) {
    const Op *o = value_def(l->f, v);
    if (!o->nin || (!takes_part(o, 0) && !is_view(o))) return false;
    v = o->in[0];
  }
  return true;
}

/* By value: how many contractions and the like may read it. */
static uint32_t *count_readers(Least *l) {
  uint32_t *n = ARENA_ARRAY(l->m->arena, uint32_t, l->f->values.n + 1);
  bool *seen = ARENA_ARRAY(l->m->arena, bool, l->f->values.n + 1);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    if (!is_heavy(&l->f->ops.at[i])) continue;
    memset(seen, 0, l->f->values.n);
    mark_cone(l, &l->f->ops.at[i], seen);
    for (ValueId v = 0; v < l->f->values.n; v++) n[v] += seen[v];
  }
  return n;
}

static void find_prices(Least *l) {
  const uint32_t *readers = count_readers(l);
  bool *made = ARENA_ARRAY(l->m->arena, bool, l->f->values.n + 1); /* of results of contractions */
  for (ValueId v = 0; v < l->f->values.n; v++) {
    const Op *o = value_def(l->f, v);
    made[v] = is_result(l, v);
    for (uint32_t k = 0; !l->memory[v] && k < o->nin; k++) made[v] |= made[o->in[k]];
    l->read[v] = readers[v] > 0, l->price[v] = bytes_of(l, v);
    if (l->read[v] && !made[v] && !is_there(l, v)) l->price[v] *= 1 + 1.0 / readers[v];
  }
}

/* ---- the parts of the sum ---- */

static double reads(Least *l, const Op *o) {
  Flow n = net_of(l, l->price);
  for (ValueId v = 0; v < l->f->values.n; v++)
    if (l->memory[v]) flow_join(&n, FLOW_SOURCE, node_in(v), INFINITY);
  for (uint32_t k = 0; k < o->nin; k++) flow_join(&n, node_out(o->in[k]), FLOW_SINK, INFINITY);
  double sum = flow_run(&n);
  for (ValueId v = 0; v < l->f->values.n; v++)
    l->in_cut[v] |= n.level[node_in(v)] && !n.level[node_out(v)];
  return sum;
}

static double all_reads(Least *l) {
  double sum = 0;
  for (OpId i = 0; i < l->f->ops.n; i++)
    if (is_heavy(&l->f->ops.at[i])) sum += reads(l, &l->f->ops.at[i]);
  return sum;
}

/* As they are, or with what no cut has read counted by itself. */
static double reads_of_all(Least *l) {
  double sum = all_reads(l), once = 0;
  for (ValueId v = 0; v < l->f->values.n; v++) {
    if (!l->memory[v] || is_result(l, v) || !l->read[v] || !l->whole[v] || l->in_cut[v]) continue;
    once += l->price[v], l->price[v] = 0;
  }
  return once > 0 ? fmax(sum, once + all_reads(l)) : sum;
}

/* From v to what `stops`: the values that are written cost `written` times their bytes. */
static double cut_below(Least *l, ValueId v, const bool *stops, double written) {
  double *cost = ARENA_ARRAY(l->m->arena, double, l->f->values.n + 1);
  for (ValueId i = 0; i < l->f->values.n; i++)
    cost[i] = bytes_of(l, i) * (l->written[i] ? written : 1);
  Flow n = net_of(l, cost);
  flow_join(&n, FLOW_SOURCE, node_in(v), INFINITY);
  for (OpId i = 0; i < l->f->ops.n; i++)
    for (uint32_t k = 0; stops[i] && k < l->f->ops.at[i].nin; k++)
      flow_join(&n, node_out(l->f->ops.at[i].in[k]), FLOW_SINK, INFINITY);
  return flow_run(&n);
}

/* What a scatter writes of a sum, if the other term's buffer is taken over: the rows it takes. */
static double taken_bytes(const Least *l, ValueId v) {
  const Op *o = value_def(l->f, v);
  bool added = false;
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *use = &l->f->ops.at[i];
    added |= use->code == OP_add && (use->in[0] == v || use->in[1] == v);
  }
  if (!added || o->code != OP_scatter) return INFINITY;
  return (double)type_count(value_type(l->f, o->in[0])) * elem_bytes(value_type(l->f, v)->elem);
}

static double writes(Least *l, ValueId v) {
  bool *stops = ARENA_ARRAY(l->m->arena, bool, l->f->ops.n + 1);
  for (OpId i = 0; i < l->f->ops.n; i++) stops[i] = is_heavy(&l->f->ops.at[i]);
  return l->written[v] ? 0 : fmin(cut_below(l, v, stops, 0), taken_bytes(l, v));
}

static double reads_of_rest(Least *l) {
  double *cost = ARENA_ARRAY(l->m->arena, double, l->f->values.n + 1);
  for (ValueId v = 0; v < l->f->values.n; v++) {
    cost[v] = bytes_of(l, v);
    if (l->memory[v] && (l->read[v] || is_result(l, v))) cost[v] = 0;
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
    return attr_float(&o->callee->attrs, ATTR_compulsory_bytes, 0) *
           (double)attr_int(&o->attrs, ATTR_trip, 1);
  for (uint32_t k = 0; is_heavy(o) && k < o->nout; k++) sum += writes(l, o->out + k);
  return sum;
}

/* ---- what waits for one number ---- */

/* Marks all ops that v depends on; how many are contractions and the like. */
static uint32_t mark_sources(const Least *l, ValueId v, bool *seen) {
  OpId id = l->f->values.at[v].def;
  if (id == NO_OP || seen[id]) return 0;
  const Op *o = &l->f->ops.at[id];
  uint32_t n = is_heavy(o);
  seen[id] = true;
  for (uint32_t k = 0; k < o->nin; k++) n += mark_sources(l, o->in[k], seen);
  return n;
}

/* The number that most of them lead to. */
static ValueId find_number(Least *l) {
  ValueId best = NO_VALUE;
  uint32_t most = 1;
  for (ValueId v = 0; v < l->f->values.n; v++) {
    if (value_type(l->f, v)->rank || l->memory[v]) continue;
    uint32_t n = mark_sources(l, v, ARENA_ARRAY(l->m->arena, bool, l->f->ops.n + 1));
    if (n > most) most = n, best = v;
  }
  return best;
}

/* By op: reads the number, or something made of it. */
static bool *find_behind(Least *l, ValueId number) {
  bool *behind = ARENA_ARRAY(l->m->arena, bool, l->f->ops.n + 1);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      OpId def = l->f->values.at[o->in[k]].def;
      behind[i] |= o->in[k] == number || (def != NO_OP && behind[def]);
    }
  }
  return behind;
}

static double waits(Least *l) {
  ValueId number = find_number(l);
  if (number == NO_VALUE) return 0;
  bool *before = ARENA_ARRAY(l->m->arena, bool, l->f->ops.n + 1), *behind = find_behind(l, number);
  double sum = 0, most = 0;
  mark_sources(l, number, before);
  for (OpId i = 0; i < l->f->ops.n; i++) {
    const Op *o = &l->f->ops.at[i];
    for (uint32_t k = 0; before[i] && is_heavy(o) && k < o->nout; k++) {
      if (writes(l, o->out + k) > 0) continue; /* somebody reads it already */
      double bytes = 2 * fmin(cut_below(l, o->out + k, behind, 0.5), taken_bytes(l, o->out + k));
      sum += bytes, most = fmax(most, bytes);
    }
  }
  return sum - most;
}

void least_bytes(Module *m, Fn *f) {
  Least l = {.m = m, .f = f};
  uint32_t n = f->values.n + 1;
  l.memory = ARENA_ARRAY(m->arena, bool, n), l.written = ARENA_ARRAY(m->arena, bool, n);
  l.read = ARENA_ARRAY(m->arena, bool, n), l.whole = ARENA_ARRAY(m->arena, bool, n);
  l.in_cut = ARENA_ARRAY(m->arena, bool, n), l.price = ARENA_ARRAY(m->arena, double, n);
  find_memory(&l);
  find_written(&l);
  find_whole(&l);
  find_prices(&l);
  double sum = reads_of_rest(&l) + reads_of_all(&l) + waits(&l);
  for (ValueId v = 0; v + 1 < n; v++)
    if (l.written[v]) sum += bytes_of(&l, v);
  for (OpId i = 0; i < f->ops.n; i++) sum += op_least(&l, &f->ops.at[i]);
  attr_set_float(m, &f->attrs, ATTR_compulsory_bytes, sum);
}

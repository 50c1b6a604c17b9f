/* fuse, before anything is grouped: a lower bound of the bytes that any grouping into kernels
   moves.

   Contractions, attention, scatters and loops are kernels of their own; every other op may join
   any of them at no cost. Arguments, loaded globals, and results of such ops are in memory. Then a
   function moves at least

     for each contraction, attention, scatter   the least price of values from which its operands
                                                can be computed: a minimum cut between memory and
                                                operands
     for each of their results                  the fewest bytes that it can be turned into before
                                                such an op, a loop, a store or the caller needs it
     for each value that is stored, returned    its bytes, once
     or an operand of a loop, unless it is in
     memory anyway
     to compute those values                    the arguments, globals and results of loops that
                                                must be read and that no contraction reads already
     for each loop                              the bytes that its body moves, times rounds
     for results that must wait                 see below

   The price of a value is its bytes, with two exceptions. A value that is made only of values in
   memory at the start, and that at most n contractions read, has to be written for them: that
   write is spread over their reads. A value that is needed as a whole but is in no cut (a saved
   value that a kernel reads in addition to its product) is read once by some kernel: it is counted
   once and free in all cuts, if that makes the sum larger.

   One number may depend on many contractions and decide how their results are used (the norm of
   all gradients, the test for overflow). Whichever of them runs last may continue at once; the
   results of the others that ops after that number need are written and read again.

   Every term is a lower bound for its kernel and counts bytes that no other term counts, so their
   sum is a lower bound for the function under these rules. A value counts once per kernel that
   needs it, as if nothing stayed in a cache between kernels. The sum is the attribute
   `compulsory_bytes` of entries and bodies. */
#include "fuse.h"
#include "passes/base/flow.h"
#include <math.h>

typedef struct Least {
  Module *m;
  const Fn *f;
  bool *memory;  /* by value: is in memory */
  bool *written; /* by value: stored, returned or handed to a loop; not in memory otherwise */
  bool *read;    /* by value: a contraction or the like may read it */
  bool *whole;   /* by value: all its elements are needed */
  bool *in_cut;  /* by value: the cut of some contraction reads it */
  double *price; /* by value: of a read */
} Least;

static double bytes_of(const Least *least, ValueId v) {
  const Type *t = value_type(least->f, v);
  return (double)type_dense_bytes(t);
}

static bool is_heavy(const Op *o) {
  OpFamily f = op_family(o->code);
  return f == FAMILY_CONTRACT || f == FAMILY_ATTENTION || f == FAMILY_SCATTER;
}

static bool joins(const Op *o) {
  return !is_heavy(o) && o->nout && op_family(o->code) != FAMILY_CALL && o->code != OP_load;
}

static bool is_result(const Least *least, ValueId v) { /* of a contraction or the like */
  const Op *o = value_def(least->f, v);
  return o && is_heavy(o);
}

/* ---- nets: an `in` and an `out` node per value ---- */

static uint32_t node_in(ValueId v) { return FLOW_NODES + 2 * v; }
static uint32_t node_out(ValueId v) { return FLOW_NODES + 2 * v + 1; }

/* A gather or a slice of a value in memory reads no more than it takes. */
static double taken(const Least *least, const Op *o, uint32_t k) {
  bool takes = (o->code == OP_gather && !k) || o->code == OP_slice;
  return takes && least->memory[o->in[k]] ? bytes_of(least, o->out) : INFINITY;
}

static Flow net_of(Least *least, const double *cost) {
  uint32_t arcs = 4 * least->f->values.n;
  for (OpId i = 0; i < least->f->ops.n; i++)
    arcs += least->f->ops.at[i].nin * least->f->ops.at[i].nout;
  Flow flow = flow_new(least->m->arena, FLOW_NODES + 2 * least->f->values.n, arcs);
  for (ValueId v = 0; v < least->f->values.n; v++)
    flow_join(&flow, node_in(v), node_out(v), cost[v]);
  EACH_OP (least->f, o) {
    for (uint32_t k = 0; joins(o) && k < o->nin; k++)
      for (uint32_t r = 0; r < o->nout; r++)
        flow_join(&flow, node_out(o->in[k]), node_in(o->out + r), taken(least, o, k));
  }
  return flow;
}

/* ---- values in memory ---- */

static void find_memory(Least *least) {
  for (ValueId v = 0; v < least->f->values.n; v++) {
    const Op *o = value_def(least->f, v);
    least->memory[v] = !o || !joins(o);
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

/* A view of a value that is in memory at the start is in memory as well; for a view of another
   value, that value is written, unless only a part of it is needed. */
static void write_down(Least *least, ValueId v) {
  ValueId root = v;
  while (is_view(value_def(least->f, v)) && !takes_part(value_def(least->f, v), 0))
    v = value_def(least->f, v)->in[0];
  while (is_view(value_def(least->f, root))) root = value_def(least->f, root)->in[0];
  if (!least->memory[root] || is_result(least, root)) least->written[v] = true;
}

/* Slices of a value that is written as a whole are not written again. */
static void drop_parts(Least *least) {
  for (ValueId v = 0; v < least->f->values.n; v++)
    for (ValueId w = v; least->written[v] && is_view(value_def(least->f, w));) {
      w = value_def(least->f, w)->in[0];
      least->written[v] = !least->written[w];
    }
}

static bool hands_on(const Op *o) {
  return o->code == OP_store || op_family(o->code) == FAMILY_CALL;
}

static void find_written(Least *least) {
  EACH_OP (least->f, o) {
    for (uint32_t k = 0; hands_on(o) && k < o->nin; k++) write_down(least, o->in[k]);
  }
  for (uint32_t i = 0; i < least->f->results.n; i++) write_down(least, least->f->results.at[i]);
  drop_parts(least);
}

/* Everything that o may compute with in one kernel, o's operands first. */
static void mark_cone(const Least *least, const Op *o, bool *seen) {
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId v = o->in[k];
    if (seen[v]) continue;
    seen[v] = true;
    if (!least->memory[v]) mark_cone(least, value_def(least->f, v), seen);
  }
}

static void find_whole(Least *least) {
  for (ValueId v = 0; v < least->f->values.n; v++)
    least->whole[v] = !least->memory[v] && least->written[v];
  for (OpId i = least->f->ops.n; i-- > 0;) {
    const Op *o = &least->f->ops.at[i];
    bool any = is_heavy(o);
    for (uint32_t k = 0; joins(o) && k < o->nout; k++) any |= least->whole[o->out + k];
    for (uint32_t k = 0; any && k < o->nin; k++)
      if (is_heavy(o) || !takes_part(o, k)) least->whole[o->in[k]] = true;
  }
}

/* Slices of a value in memory are read from that value. */
static bool is_there(const Least *least, ValueId v) {
  while (!least->memory[v] && !least->written[v]) {
    const Op *o = value_def(least->f, v);
    if (!o->nin || (!takes_part(o, 0) && !is_view(o))) return false;
    v = o->in[0];
  }
  return true;
}

/* By value: how many contractions and the like may read it. */
static uint32_t *count_readers(Least *least) {
  uint32_t *n = ARENA_ARRAY(least->m->arena, uint32_t, least->f->values.n + 1);
  bool *seen = ARENA_ARRAY(least->m->arena, bool, least->f->values.n + 1);
  for (OpId i = 0; i < least->f->ops.n; i++) {
    if (!is_heavy(&least->f->ops.at[i])) continue;
    memset(seen, 0, least->f->values.n);
    mark_cone(least, &least->f->ops.at[i], seen);
    for (ValueId v = 0; v < least->f->values.n; v++) n[v] += seen[v];
  }
  return n;
}

static void find_prices(Least *least) {
  const uint32_t *readers = count_readers(least);
  bool *made =
      ARENA_ARRAY(least->m->arena, bool, least->f->values.n + 1); /* of results of contractions */
  for (ValueId v = 0; v < least->f->values.n; v++) {
    const Op *o = value_def(least->f, v);
    made[v] = is_result(least, v);
    for (uint32_t k = 0; !least->memory[v] && k < o->nin; k++) made[v] |= made[o->in[k]];
    least->read[v] = readers[v] > 0, least->price[v] = bytes_of(least, v);
    if (least->read[v] && !made[v] && !is_there(least, v)) least->price[v] *= 1 + 1.0 / readers[v];
  }
}

/* ---- the parts of the sum ---- */

static double reads(Least *least, const Op *o) {
  Flow flow = net_of(least, least->price);
  for (ValueId v = 0; v < least->f->values.n; v++)
    if (least->memory[v]) flow_join(&flow, FLOW_SOURCE, node_in(v), INFINITY);
  for (uint32_t k = 0; k < o->nin; k++) flow_join(&flow, node_out(o->in[k]), FLOW_SINK, INFINITY);
  double sum = flow_run(&flow);
  for (ValueId v = 0; v < least->f->values.n; v++)
    least->in_cut[v] |= flow.level[node_in(v)] && !flow.level[node_out(v)];
  return sum;
}

static double all_reads(Least *least) {
  double sum = 0;
  for (OpId i = 0; i < least->f->ops.n; i++)
    if (is_heavy(&least->f->ops.at[i])) sum += reads(least, &least->f->ops.at[i]);
  return sum;
}

/* The sum of all reads, or of all reads with whole values that no cut reads counted once on their
   own. */
static double reads_of_all(Least *least) {
  double sum = all_reads(least), once = 0;
  for (ValueId v = 0; v < least->f->values.n; v++) {
    if (!least->memory[v] || is_result(least, v) || !least->read[v] || !least->whole[v] ||
        least->in_cut[v])
      continue;
    once += least->price[v], least->price[v] = 0;
  }
  return once > 0 ? fmax(sum, once + all_reads(least)) : sum;
}

/* The minimum cut between v and the values `stops`: a written value costs `written` times its
   bytes. */
static double cut_below(Least *least, ValueId v, const bool *stops, double written) {
  double *cost = ARENA_ARRAY(least->m->arena, double, least->f->values.n + 1);
  for (ValueId i = 0; i < least->f->values.n; i++)
    cost[i] = bytes_of(least, i) * (least->written[i] ? written : 1);
  Flow flow = net_of(least, cost);
  flow_join(&flow, FLOW_SOURCE, node_in(v), INFINITY);
  for (OpId i = 0; i < least->f->ops.n; i++)
    for (uint32_t k = 0; stops[i] && k < least->f->ops.at[i].nin; k++)
      flow_join(&flow, node_out(least->f->ops.at[i].in[k]), FLOW_SINK, INFINITY);
  return flow_run(&flow);
}

/* The bytes that a scatter writes of a sum if it takes over the other term's buffer: the rows it
   takes. */
static double taken_bytes(const Least *least, ValueId v) {
  const Op *o = value_def(least->f, v);
  bool added = false;
  EACH_OP (least->f, use) added |= use->code == OP_add && (use->in[0] == v || use->in[1] == v);
  if (!added || o->code != OP_scatter) return INFINITY;
  return (double)type_count(value_type(least->f, o->in[0])) *
         elem_bytes(value_type(least->f, v)->elem);
}

static double writes(Least *least, ValueId v) {
  bool *stops = ARENA_ARRAY(least->m->arena, bool, least->f->ops.n + 1);
  for (OpId i = 0; i < least->f->ops.n; i++) stops[i] = is_heavy(&least->f->ops.at[i]);
  return least->written[v] ? 0 : fmin(cut_below(least, v, stops, 0), taken_bytes(least, v));
}

static double reads_of_rest(Least *least) {
  double *cost = ARENA_ARRAY(least->m->arena, double, least->f->values.n + 1);
  for (ValueId v = 0; v < least->f->values.n; v++) {
    cost[v] = bytes_of(least, v);
    if (least->memory[v] && (least->read[v] || is_result(least, v))) cost[v] = 0;
    else if (!least->memory[v] && least->written[v]) cost[v] = INFINITY;
  }
  Flow flow = net_of(least, cost);
  for (ValueId v = 0; v < least->f->values.n; v++) {
    if (least->memory[v]) flow_join(&flow, FLOW_SOURCE, node_in(v), INFINITY);
    else if (least->written[v]) flow_join(&flow, node_out(v), FLOW_SINK, INFINITY);
  }
  return flow_run(&flow);
}

static double op_least(Least *least, const Op *o) {
  double sum = 0;
  if (op_family(o->code) == FAMILY_CALL)
    return attr_float(&o->callee->attrs, ATTR_compulsory_bytes, 0) *
           (double)attr_int(&o->attrs, ATTR_trip, 1);
  for (uint32_t k = 0; is_heavy(o) && k < o->nout; k++) sum += writes(least, o->out + k);
  return sum;
}

/* ---- results that wait for one number ---- */

/* Marks all ops that v depends on; how many are contractions and the like. */
static uint32_t mark_sources(const Least *least, ValueId v, bool *seen) {
  OpId id = least->f->values.at[v].def;
  if (id == NO_OP || seen[id]) return 0;
  const Op *o = &least->f->ops.at[id];
  uint32_t n = is_heavy(o);
  seen[id] = true;
  for (uint32_t k = 0; k < o->nin; k++) n += mark_sources(least, o->in[k], seen);
  return n;
}

/* The number that most of them lead to. */
static ValueId find_number(Least *least) {
  ValueId best = NO_VALUE;
  uint32_t most = 1;
  for (ValueId v = 0; v < least->f->values.n; v++) {
    if (value_type(least->f, v)->rank || least->memory[v]) continue;
    uint32_t n = mark_sources(least, v, ARENA_ARRAY(least->m->arena, bool, least->f->ops.n + 1));
    if (n > most) most = n, best = v;
  }
  return best;
}

/* By op: reads the number, or something made of it. */
static bool *find_behind(Least *least, ValueId number) {
  bool *behind = ARENA_ARRAY(least->m->arena, bool, least->f->ops.n + 1);
  for (OpId i = 0; i < least->f->ops.n; i++) {
    const Op *o = &least->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      OpId def = least->f->values.at[o->in[k]].def;
      behind[i] |= o->in[k] == number || (def != NO_OP && behind[def]);
    }
  }
  return behind;
}

static double waits(Least *least) {
  ValueId number = find_number(least);
  if (number == NO_VALUE) return 0;
  bool *before = ARENA_ARRAY(least->m->arena, bool, least->f->ops.n + 1),
       *behind = find_behind(least, number);
  double sum = 0, most = 0;
  mark_sources(least, number, before);
  for (OpId i = 0; i < least->f->ops.n; i++) {
    const Op *o = &least->f->ops.at[i];
    for (uint32_t k = 0; before[i] && is_heavy(o) && k < o->nout; k++) {
      if (writes(least, o->out + k) > 0) continue; /* some op reads it already */
      double bytes =
          2 * fmin(cut_below(least, o->out + k, behind, 0.5), taken_bytes(least, o->out + k));
      sum += bytes, most = fmax(most, bytes);
    }
  }
  return sum - most;
}

void least_bytes(Module *m, Fn *f) {
  Least least = {.m = m, .f = f};
  uint32_t n = f->values.n + 1;
  least.memory = ARENA_ARRAY(m->arena, bool, n), least.written = ARENA_ARRAY(m->arena, bool, n);
  least.read = ARENA_ARRAY(m->arena, bool, n), least.whole = ARENA_ARRAY(m->arena, bool, n);
  least.in_cut = ARENA_ARRAY(m->arena, bool, n), least.price = ARENA_ARRAY(m->arena, double, n);
  find_memory(&least);
  find_written(&least);
  find_whole(&least);
  find_prices(&least);
  double sum = reads_of_rest(&least) + reads_of_all(&least) + waits(&least);
  for (ValueId v = 0; v + 1 < n; v++)
    if (least.written[v]) sum += bytes_of(&least, v);
  for (OpId i = 0; i < f->ops.n; i++) sum += op_least(&least, &f->ops.at[i]);
  attr_set_float(m, &f->attrs, ATTR_compulsory_bytes, sum);
}

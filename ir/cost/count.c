/* Floating-point operations, bytes moved, peak of memory and kernels of one run of an entry.

   A contraction is two operations per term; attention is two contractions forward and five
   backward, over the keys that its mask admits to each query by their positions (mask_density.h):
   neither the few more that blocks of kernels compute, nor fewer where data decides. Where ranks
   differ, the one with the most counts. Processors skip the empty places of experts: of products
   over places the share that k choices of every token can fill counts. Every other
   float op is one operation per element of its result or, for reductions, of its operand.

   Bytes are the operands and results of each kernel, and of each op that computes outside of
   kernels, as if nothing stayed in a cache; of a table in a gather, only the gathered rows count.
   Loops multiply by their rounds; kernels are counted once per place that runs them.

   The peak is the entry's frame once `memory` has run; before, the largest sum of bytes alive at an
   op, where views have no bytes of their own. Must not: change the module. */
#include "count.h"
#include "ir/attention_operands.h"
#include "ir/phases.h"
#include "ir/mask/mask_density.h"
#include "ir/bytes.h"
#include "ir/codes.h"
#include "ir/mask/lists.h"
#include "ir/mask/mask_range.h"
#include <stdlib.h>
#include <string.h>

static double elements(const Fn *f, ValueId v) { return (double)type_count(value_type(f, v)); }

static double value_bytes(const Fn *f, ValueId v) {
  return elements(f, v) * elem_bytes(value_type(f, v)->elem);
}

/* Number of terms of a contraction: all dims of both operands. */
static double terms(const Fn *f, ValueId a, ValueId b) {
  const Type *x = value_type(f, a), *y = value_type(f, b);
  double n = (double)type_count(x);
  for (int i = 0; i < y->rank; i++)
    if (type_find(x, y->axis[i].dim) < 0) n *= (double)y->axis[i].size;
  return n;
}

/* Setting made.places.SLOT: filled / all. AMX tiles skip rows of places, not summed places. */
double ir_filled_share(const Module *m, const Fn *f, const Op *o) {
  const Type *t = value_type(f, o->in[0]), *result = value_type(f, o->out);
  bool amx = m->target.amx && t->elem == ELEM_bf16;
  for (int i = 0; i < t->rank && !module_on_gpu(m); i++) {
    if (amx && type_find(result, t->axis[i].dim) < 0) continue;
    const char *key = arena_printf(m->arena, "made.places.%s", t->axis[i].dim);
    Str text = module_setting(m, key, NULL);
    const char *all = text ? strchr(text, '/') : NULL;
    double share = all ? strtod(text, NULL) / strtod(all + 1, NULL) : 1;
    if (share < 1) return share;
  }
  return 1;
}

/* Scores of all queries and keys count as `all`. */
static ScoreShares attention_shares(const Module *m, const Fn *f, const Op *o, double *all) {
  bool grad = o->code == OP_attention_grad;
  ValueId mask = attention_mask(f, o);
  const Type *q = value_type(f, o->in[0]), *k = value_type(f, o->in[1]);
  *all = (grad ? 10 : 4) * terms(f, o->in[0], o->in[1]);
  if (mask == NO_VALUE) return (ScoreShares){1, 1, 1, 1};
  Str query = o->group[0].from[0], key = o->group[0].to[0];
  return mask_shares(m, f, mask, (Axis){query, type_size(q, query)}, (Axis){key, type_size(k, key)},
                     lists_of(m, o));
}

/* The rank with the most scores counts: the others wait for it. */
static double attention_flop(const Module *m, const Fn *f, const Op *o) {
  double all, most = attention_shares(m, f, o, &all).most;
  return all * most;
}

static double op_flop(const Module *m, const Fn *f, const Op *o) {
  switch (op_family(o->code)) {
  case FAMILY_CONTRACT: return 2 * terms(f, o->in[0], o->in[1]) * ir_filled_share(m, f, o);
  case FAMILY_ATTENTION: return attention_flop(m, f, o);
  case FAMILY_REDUCE:
  case FAMILY_SCAN:
  case FAMILY_SCATTER: return elements(f, o->in[0]);
  case FAMILY_ELEM: return value_is_float(f, o->out) ? elements(f, o->out) : 0;
  default: return 0;
  }
}

/* ---- the largest sum of bytes alive ---- */

/* The value whose bytes v uses; NO_VALUE: they are not in this function's frame. */
static ValueId root_of(const Fn *f, const ValueId *root, ValueId v) {
  const Value *x = &f->values.at[v];
  const Op *o = value_def(f, v);
  if (storage_has_base(&x->storage)) return root[x->storage.base];
  if (!o || o->code == OP_load) return NO_VALUE;
  return op_flags(o->code) & VIEW && o->nin ? root[o->in[0]] : v;
}

static void keep_until(int64_t *dies, const ValueId *root, ValueId v, int64_t when) {
  if (root[v] != NO_VALUE && dies[root[v]] < when) dies[root[v]] = when;
}

/* For each value: the op after which its bytes are free, -1 for values without bytes in this
   frame. */
static int64_t *lives(Arena *arena, const Fn *f) {
  ValueId *root = ARENA_ARRAY(arena, ValueId, f->values.n + 1);
  int64_t *dies = ARENA_ARRAY(arena, int64_t, f->values.n + 1);
  for (ValueId v = 0; v < f->values.n; v++) dies[v] = -1, root[v] = NO_VALUE;
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) keep_until(dies, root, o->in[k], i);
    for (uint32_t k = 0; k < o->nout; k++) {
      root[o->out + k] = root_of(f, root, o->out + k);
      keep_until(dies, root, o->out + k, i);
    }
  }
  for (uint32_t i = 0; i < f->results.n; i++) /* they are in the caller's memory */
    if (root[f->results.at[i]] != NO_VALUE) dies[root[f->results.at[i]]] = -1;
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    if (!op_lays(f, o)) continue;
    for (uint32_t k = 0; k < o->nin; k++)
      if (root[o->in[k]] != NO_VALUE) dies[root[o->in[k]]] = dies[o->out];
    dies[o->out] = -1; /* has no bytes but those */
  }
  return dies;
}

static int64_t peak_of(const Module *m, const Fn *f);

static int64_t callee_peak(const Module *m, const Op *o) {
  bool body = o->callee && o->callee->kind == FN_BODY;
  return body ? peak_of(m, o->callee) : 0;
}

static int64_t largest_sum(const Module *m, const Fn *f) {
  const int64_t *dies = lives(m->arena, f);
  int64_t *change = ARENA_ARRAY(m->arena, int64_t, f->ops.n + 2), sum = 0, peak = 0;
  memset(change, 0, sizeof *change * (f->ops.n + 2));
  for (ValueId v = 0; v < f->values.n; v++) {
    if (dies[v] < 0 || f->values.at[v].def == NO_OP) continue;
    int64_t bytes = (int64_t)value_bytes(f, v);
    change[f->values.at[v].def] += bytes, change[dies[v] + 1] -= bytes;
  }
  for (uint32_t i = 0; i < f->ops.n; i++) {
    sum += change[i];
    int64_t here = sum + callee_peak(m, &f->ops.at[i]);
    if (here > peak) peak = here;
  }
  return peak;
}

static int64_t peak_of(const Module *m, const Fn *f) {
  const Attr *frame = attr_get(&f->attrs, ATTR_frame);
  return frame ? frame->i : largest_sum(m, f);
}

/* ---- sums ---- */

/* If an argument has only gathers and slices as readers, a kernel reads only the elements it
   takes. */
static double read_bytes(const Fn *k, ValueId arg) {
  double all = value_bytes(k, arg), taken = 0;
  EACH_OP (k, o) {
    for (uint32_t j = 0; j < o->nin; j++) {
      if (o->in[j] != arg) continue;
      bool takes = (o->code == OP_gather && !j) || o->code == OP_slice;
      taken += takes ? value_bytes(k, o->out) : all;
    }
  }
  return taken < all ? taken : all;
}

static IrCount kernel_count(const Module *m, const Fn *k) {
  IrCount count = {.kernels = 1};
  for (OpId i = 0; i < k->ops.n; i++) count.flop += op_flop(m, k, &k->ops.at[i]);
  for (uint32_t i = 0; i < k->args.n + k->results.n; i++) {
    Codes codes;
    if (kernel_codes(k, i, &codes)) count.bytes += (double)codes_bytes(&codes);
    else if (i < k->args.n) count.bytes += read_bytes(k, k->args.at[i]);
    else count.bytes += value_bytes(k, k->results.at[i - k->args.n]);
  }
  return count;
}

/* A scatter into its operand's buffer reads and writes the rows that it takes. */
static double untouched_bytes(const Fn *f, const Op *o) {
  if (strcmp(attr_str(&o->callee->attrs, ATTR_family, ""), "scatter")) return 0;
  const Fn *k = o->callee;
  double all = value_bytes(f, o->out), taken = 0;
  for (OpId i = 0; i < k->ops.n; i++)
    if (k->ops.at[i].code == OP_scatter) taken = value_bytes(k, k->ops.at[i].in[0]);
  bool stays = f->values.at[o->out].storage.view == VIEW_INPLACE && taken < all;
  return stays ? 2 * (all - taken) : 0;
}

static IrCount called_count(const Module *m, const Fn *f, const Op *o) {
  IrCount count = kernel_count(m, o->callee);
  count.bytes -= untouched_bytes(f, o);
  return count;
}

static IrCount single_count(const Module *m, const Fn *f, const Op *o) {
  IrCount count = {.flop = op_flop(m, f, o)};
  if (op_flags(o->code) & VIEW || op_family(o->code) == FAMILY_GLOBAL || op_lays(f, o))
    return count;
  for (uint32_t k = 0; k < o->nin; k++) count.bytes += value_bytes(f, o->in[k]);
  for (uint32_t k = 0; k < o->nout; k++) count.bytes += value_bytes(f, o->out + k);
  return count;
}

static IrCount sum_of(const Module *m, const Fn *f);

static IrCount op_count(const Module *m, const Fn *f, const Op *o) {
  if (!o->callee) return single_count(m, f, o);
  if (o->callee->kind == FN_KERNEL) return called_count(m, f, o);
  IrCount count = sum_of(m, o->callee);
  double rounds = o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
  count.flop *= rounds, count.bytes *= rounds;
  return count;
}

/* All but the peak. */
static IrCount sum_of(const Module *m, const Fn *f) {
  IrCount sum = {0};
  for (OpId i = 0; i < f->ops.n; i++) {
    IrCount count = op_count(m, f, &f->ops.at[i]);
    sum.flop += count.flop, sum.bytes += count.bytes, sum.kernels += count.kernels;
  }
  return sum;
}

IrCount ir_count(const Module *m, const Fn *f) {
  if (f->kind == FN_KERNEL) return kernel_count(m, f);
  IrCount count = sum_of(m, f);
  count.peak = peak_of(m, f);
  return count;
}

double ir_codes_flop(const Module *m, const Fn *f) {
  double flop = 0;
  EACH_OP (f, o) {
    double rounds = o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
    if (o->callee) flop += rounds * ir_codes_flop(m, o->callee);
    if (o->code == OP_dot && kernel_has_codes(f)) flop += op_flop(m, f, o);
  }
  return flop;
}

double ir_op_flop(const Module *m, const Fn *f, const Op *o) { return op_count(m, f, o).flop; }

const Fn *ir_main_entry(const Module *m) {
  const Fn *step = module_step(m);
  for (uint32_t i = 0; !step && i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) return m->fns.at[i];
  return step;
}

IrCount module_count(const Module *m) {
  const Fn *f = ir_main_entry(m);
  return f ? ir_count(m, f) : (IrCount){0};
}

/* Do rounds of the body follow each other through the stages? Values go one way along an axis, and
   nothing is of all its ranks at once. */
static bool streams(const Fn *body) {
  const Op *hop = NULL;
  EACH_OP (body, o) {
    if (!op_is_p2p(o->code)) continue;
    if (hop && attr_int(&o->attrs, ATTR_reverse, 0) != attr_int(&hop->attrs, ATTR_reverse, 0))
      return false;
    hop = o;
  }
  for (OpId i = 0; hop && i < body->ops.n; i++) {
    const Op *o = &body->ops.at[i];
    if (op_family(o->code) == FAMILY_COLLECTIVE && !op_is_p2p(o->code) &&
        !strcmp(attr_str(&o->attrs, ATTR_axis, ""), attr_str(&hop->attrs, ATTR_axis, "")))
      return false;
  }
  return hop != NULL;
}

/* Where rounds stream, the others are waited for once. */
static void add_waited(const Module *m, const Fn *f, double times, IrCount *sum) {
  int64_t open = 0, others = 0;
  EACH_OP (f, o) {
    if (op_is_p2p(o->code)) {
      open += o->code == OP_receive ? 1 : -1, others = attr_int(&o->attrs, ATTR_ranks, 1) - 1;
    } else if (open > 0) {
      IrCount count = op_count(m, f, o);
      sum->flop += times * (double)others * count.flop,
          sum->bytes += times * (double)others * count.bytes;
    } else if (o->code == OP_loop) {
      double rounds = streams(o->callee) ? 1 : (double)attr_int(&o->attrs, ATTR_trip, 1);
      add_waited(m, o->callee, times * rounds, sum);
    }
  }
}

IrCount ir_waited(const Module *m, const Fn *f) {
  IrCount sum = {0};
  if (f) add_waited(m, f, 1, &sum);
  return sum;
}

static void add_on_host(const Module *m, const Fn *f, double times, IrCount *sum) {
  EACH_OP (f, o) {
    if (o->code == OP_loop)
      add_on_host(m, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), sum);
    if (o->code != OP_kernel || !kernel_on_host(m, o->callee)) continue;
    IrCount one = ir_count(m, o->callee);
    sum->flop += times * one.flop, sum->bytes += times * one.bytes;
  }
}

IrCount ir_count_on_host(const Module *m, const Fn *f) {
  IrCount sum = {0};
  if (f) add_on_host(m, f, 1, &sum);
  return sum;
}

static void add_scores(const Module *m, const Fn *f, double times, RankScores *sum) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool loop = o->code == OP_loop;
    if (o->callee)
      add_scores(m, o->callee, times * (double)(loop ? attr_int(&o->attrs, ATTR_trip, 1) : 1), sum);
    if (op_family(o->code) != FAMILY_ATTENTION) continue;
    double all;
    ScoreShares shares = attention_shares(m, f, o, &all);
    ValueId mask = attention_mask(f, o);
    sum->bound |= mask != NO_VALUE && mask_reads(f, mask);
    sum->least += times * all * shares.least, sum->mean += times * all * shares.mean;
    sum->most += times * all * shares.most;
  }
}

RankScores ir_rank_scores(const Module *m, const Fn *f) {
  RankScores sum = {0};
  if (f) add_scores(m, f, 1, &sum);
  return sum;
}

/* ---- as text ---- */

/* " (+12.5 %)", or nothing if there is no change to tell. */
static const char *change(const Module *m, double was, double is) {
  if (!m->was_known || was == is) return "";
  if (was == 0) return " (new)";
  return arena_printf(m->arena, " (%+.1f %%)", 100 * (is - was) / was);
}

const char *ir_head(const Module *m) {
  const Fn *f = ir_main_entry(m);
  if (!f) return "# no entry";
  IrCount count = ir_count(m, f), was = m->was;
  bool placed = attr_get(&f->attrs, ATTR_frame) != NULL;
  return arena_printf(m->arena,
                      "# %s: %.4g flop%s, %.4g bytes moved%s, peak %s%lld bytes%s, %u kernels%s",
                      f->name, count.flop, change(m, was.flop, count.flop), count.bytes,
                      change(m, was.bytes, count.bytes), placed ? "" : "about ",
                      (long long)count.peak, change(m, (double)was.peak, (double)count.peak),
                      count.kernels, change(m, was.kernels, count.kernels));
}

char *ir_dump(Module *m, size_t *length) { return ir_print_commented(m, ir_head(m), length); }

/* offload: the optimizer's states, master weights and update move to the host ("ZeRO-Offload:
   Democratizing Billion-Scale Model Training", section 4: the cut of the data flow that transfers
   the least).

   The plan names flat states of pass `zero`: moments, and master weights, of which it keeps one
   for every group (zero_groups.c). They get tier `host`, and every entry is rewritten so that ops
   run where their operands are:

   - A value is on the host if an operand is (states, and values that updates make of them).
     Scalars, such as the norm's factor, are the exception: they move to the tier of the tensors
     that they are combined with. Whole matrices of an update (muon.c), collectives, carried values,
     inputs, outputs and parameters are on the device; a loop's body is rewritten for the tiers of
     its operands.
   - A value that is needed in the other tier is copied once. A download takes the fewest bytes:
     the value, or the values from which it is made element by element (the operand of a cast of a
     gradient, of its product with a factor, of random initial values). So gradients are downloaded
     and parameters uploaded in the types that they have on the wire: 2 bytes each in bf16, only
     the rank's own shard from stage 1 on.
   - `grads`: gradients are downloaded as soon as they are final (offload_gradients.c).
   - `params`: a parameter stays on the host until device ops read it, a layer's until the round
     that does.
   - A value that a loop with the attribute `offload` keeps for other loops is downloaded at the
     end of its round and uploaded in the round that reads it, whose ops run on the device as
     before.
   - Parameters and kept values are uploaded before the first op that reads them, or before the
     product whose result is combined with them element by element: fuse then makes one kernel of
     both.

   Everything else follows from types: fuse makes no kernel over two tiers, `memory` gives each its
   arenas and frames, budgets count them apart. On a processor both are one memory: no bit changes.
   The pass runs after `wire`, so that messages have their types. Must not: change a number; move a
   value that is in no group (a refusal names it); compute on the host anything but element-wise
   work on states or for them. */
#include "passes/base/matrix_part.h"
#include "passes/base/rebuild.h"
#include "offload.h"
#include "ir/schedule/flight.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_offload.h"
#include "ir/word_patterns.h"
#include <string.h>

typedef VEC(ValueId) Needs;

typedef struct HostCopy { /* how a value gets to the host */
  uint32_t moves;         /* number of moves at which it becomes known, minus one */
  bool again;             /* recomputed on the host from `needs` */
  Needs needs;
} HostCopy;

typedef struct ArgTiers { /* an argument: its tier, and the tier of the ops that read it */
  Tier stored, used;
} ArgTiers;

typedef struct TierRewrite { /* a function being rewritten */
  Module *m;
  const Fn *from;
  Fn *to;
  Tier *tier;           /* by old value: where it is made */
  ValueId *copy[TIERS]; /* by old value: in `to`, in this memory; NO_VALUE: not yet */
  HostCopy *known;      /* by old value */
  uint32_t moves;       /* values that have got to the host */
  const bool *to_host;  /* by old value: to the host where it is made */
  bool *lazy; /* by old value: a parameter or kept by loops, on the host until device ops read
                  it */
} TierRewrite;

static double bytes_of(const Type *t) { return (double)type_dense_bytes(t); }

/* Element by element of its operands: the host computes the same result from the same operands.
   With a GPU it does so only if kernels run on the host at all. */
static bool may_repeat(const Module *m, const Op *o) {
  return o && (!module_on_gpu(m) || m->host_target.name) && o->nout == 1 &&
         op_flags(o->code) & POINT && op_family(o->code) != FAMILY_GLOBAL;
}

static void add_once(TierRewrite *tiers, Needs *to, ValueId v) {
  for (uint32_t i = 0; i < to->n; i++)
    if (to->at[i] == v) return;
  vec_push(tiers->m->arena, *to, v);
}

static double bytes_of_all(const TierRewrite *tiers, const Needs *needs) {
  double sum = 0;
  for (uint32_t i = 0; i < needs->n; i++) sum += bytes_of(value_type(tiers->from, needs->at[i]));
  return sum;
}

/* A round's flattened gradient is downloaded as one value, with its padding, unless its operands
   are narrower: then the host casts gradients from 16 bits to f32. */
static bool is_copied_whole(const TierRewrite *tiers, const Op *o, const Needs *made) {
  if (!o || o->code != OP_concat || tiers->from->kind != FN_BODY) return false;
  Elem e = value_type(tiers->from, o->out)->elem;
  for (uint32_t i = 0; i < made->n; i++)
    if (elem_bytes(value_type(tiers->from, made->at[i])->elem) < elem_bytes(e)) return false;
  return true;
}

/* The values to download for v: v itself, or fewer bytes. */
static const Needs *needs_of(TierRewrite *tiers, ValueId v) {
  HostCopy *copy = &tiers->known[v];
  const Op *o = value_def(tiers->from, v);
  if (copy->moves == tiers->moves + 1) return &copy->needs;
  *copy = (HostCopy){.moves = tiers->moves + 1};
  if (tiers->copy[TIER_host][v] != NO_VALUE) return &copy->needs;
  Needs made = {0};
  bool repeats = may_repeat(tiers->m, o);
  for (uint32_t i = 0; repeats && i < o->nin; i++) {
    const Needs *needs = needs_of(tiers, o->in[i]);
    for (uint32_t j = 0; j < needs->n; j++) add_once(tiers, &made, needs->at[j]);
  }
  copy->again = repeats && !is_copied_whole(tiers, o, &made) &&
                bytes_of_all(tiers, &made) < bytes_of(value_type(tiers->from, v));
  if (copy->again) copy->needs = made;
  else vec_push(tiers->m->arena, copy->needs, v);
  return &copy->needs;
}

/* ---- values on either side ---- */

static ValueId value_in(TierRewrite *tiers, ValueId v, Tier t);

static ValueId recompute_in(TierRewrite *tiers, const Op *o, Tier t) {
  for (uint32_t i = 0; i < o->nin; i++) value_in(tiers, o->in[i], t);
  Op *made = fn_clone_op(tiers->m, tiers->to, tiers->from, o, tiers->copy[t]);
  tiers->to->values.at[made->out].type.tier = t;
  return made->out;
}

static ValueId move_to(TierRewrite *tiers, ValueId v, Tier t) {
  const Op *o = value_def(tiers->from, v);
  Type moved = type_in_tier(*value_type(tiers->from, v), t);
  ValueId in = tiers->copy[t == TIER_host ? TIER_device : TIER_host][v];
  return fn_op(tiers->m, tiers->to, OP_move, 1, &in, 1, &moved, o ? o->loc : tiers->from->loc)->out;
}

static ValueId value_in(TierRewrite *tiers, ValueId v, Tier t) {
  ValueId *at = &tiers->copy[t][v];
  if (*at != NO_VALUE) return *at;
  if (t == TIER_host) needs_of(tiers, v);
  bool again = t == TIER_host && tiers->known[v].again;
  *at = again ? recompute_in(tiers, value_def(tiers->from, v), t) : move_to(tiers, v, t);
  tiers->moves++;
  return *at;
}

/* ---- loops ---- */

static Fn *rewrite(Module *m, Fn *from, const ArgTiers *args, const Tier *results);

static bool keeps_on_host(const Fn *f) {
  EACH_OP (f, o)
    if (o->code == OP_loop && (attr_get(&o->attrs, ATTR_offload) || keeps_on_host(o->callee)))
      return true;
  return false;
}

/* Does v of a body leave its loop for rounds of other loops? In a pipeline these are the kept
   values of a micro-batch. */
static bool is_kept_outside(const Fn *f, const Fn *body, ValueId v) {
  EACH_OP (f, o) {
    for (uint32_t k = 0; o->code == OP_loop && o->callee == body && k < o->nout; k++)
      if (body->results.at[k] == v && k >= loop_shape(o).carry && value_is_kept(f, o->out + k))
        return true;
  }
  return false;
}

/* Is stacked result k of the loop read only by rounds of other loops, either in this function or
   after an enclosing loop? */
static bool is_kept(const Module *m, const Fn *f, const Op *loop, uint32_t k) {
  ValueId v = loop->out + k;
  if (!attr_get(&loop->attrs, ATTR_offload) || k < loop_shape(loop).carry) return false;
  if (value_is_kept(f, v)) return true;
  for (uint32_t i = 0; value_goes_by_slices(f, v) && i < m->fns.n; i++)
    if (is_kept_outside(m->fns.at[i], f, v)) return true;
  return false;
}

/* For a loop around layers: does the body return kept values as result k? */
static bool leaves_kept(const Module *m, const Op *loop, uint32_t k) {
  ValueId v = loop->callee->results.at[k];
  const Op *made = value_def(loop->callee, v);
  return k >= loop_shape(loop).carry && made && made->code == OP_loop &&
         is_kept(m, loop->callee, made, v - made->out);
}

static void find_lazy(TierRewrite *tiers) {
  EACH_OP (tiers->from, o)
    for (uint32_t k = 0; o->code == OP_loop && k < o->nout; k++)
      tiers->lazy[o->out + k] = is_kept(tiers->m, tiers->from, o, k) || leaves_kept(tiers->m, o, k);
}

/* Does the operand stay on the host until a round reads its slice? An operand that rounds read
   whole is uploaded before the loop. */
static bool is_read_by_slices(const Op *loop, uint32_t operand) {
  const Fn *body = loop->callee;
  if (operand >= loop_whole(loop)) return true;
  if (operand < loop_shape(loop).carry) return false;
  EACH_OP (body, o)
    for (uint32_t k = 0; o->code == OP_loop && k < o->nin; k++)
      if (o->in[k] == body->args.at[operand + 1] && is_read_by_slices(o, k)) return true;
  return false;
}

/* Does the function store v itself, or a view of it, to a device parameter? Then it is uploaded
   round by round. */
static bool is_stored_on_device(const Fn *f, ValueId v) {
  EACH_OP (f, o) {
    bool reads = o->nin == 1 && o->in[0] == v;
    if (reads && o->code == OP_store) return o->global->type.tier == TIER_device;
    if (reads && op_flags(o->code) & VIEW) return is_stored_on_device(f, o->out);
  }
  return false;
}

/* Carried results, and results that continue a stack, return to the tier of that operand. */
static Tier wanted(const TierRewrite *tiers, const Op *o, uint32_t result) {
  LoopShape shape = loop_shape(o);
  if (tiers->to_host[o->out + result] || tiers->lazy[o->out + result]) return TIER_host;
  if (result < shape.carry) return TIER_device;
  uint32_t on = loop_continues(o, result);
  if (on != NO_VALUE) return tiers->tier[o->in[on]];
  return is_stored_on_device(tiers->from, o->out + result) ? TIER_device : TIERS;
}

static void copy_loop(TierRewrite *tiers, const Op *o) {
  LoopShape shape = loop_shape(o);
  Arena *arena = tiers->m->arena;
  ArgTiers *args = ARENA_ARRAY(arena, ArgTiers, o->nin + 2);
  Tier *results = ARENA_ARRAY(arena, Tier, o->nout + 1);
  ValueId *in = ARENA_ARRAY(arena, ValueId, o->nin + 1);
  bool host = keeps_on_host(o->callee);
  for (uint32_t i = 0; i < o->nout; i++) {
    results[i] = wanted(tiers, o, i);
    host |= results[i] == TIER_host;
  }
  for (uint32_t i = 0; i < o->nin; i++) {
    bool lazy = tiers->lazy[o->in[i]] && is_read_by_slices(o, i);
    Tier stored = lazy ? TIER_host : i < shape.carry ? results[i] : tiers->tier[o->in[i]];
    args[i + 1] = (ArgTiers){stored, lazy ? TIER_device : stored};
    in[i] = value_in(tiers, o->in[i], stored);
    host |= stored != TIER_device;
  }
  Fn *body = host ? rewrite(tiers->m, o->callee, args, results) : o->callee;
  Op *made = rebuild_loop(tiers->m, tiers->to, body, shape, in, o->loc);
  made->attrs = o->attrs;
  for (uint32_t i = 0; i < o->nout; i++) {
    tiers->tier[o->out + i] = value_type(tiers->to, made->out + i)->tier;
    tiers->copy[tiers->tier[o->out + i]][o->out + i] = made->out + i;
  }
}

/* ---- functions ---- */

Tier offload_op_tier(const Fn *f, const Tier *tier, const Op *o) {
  bool makes_scalar = o->nout && !value_type(f, o->out)->rank;
  if (o->global) return o->global->type.tier;
  if (op_on_matrices(f, o)) return TIER_device;
  for (uint32_t i = 0; i < o->nin && op_family(o->code) != FAMILY_COLLECTIVE; i++)
    if (tier[o->in[i]] == TIER_host && (makes_scalar || value_type(f, o->in[i])->rank))
      return TIER_host;
  return TIER_device;
}

/* ---- uploads for a product's epilogue ---- */

/* Uploads the kept values and parameters from which v is made element by element. */
static void upload_kept(TierRewrite *tiers, ValueId v, bool *seen) {
  const Op *o = value_def(tiers->from, v);
  if (seen[v]) return;
  seen[v] = true;
  bool known = tiers->lazy[v] && tiers->copy[TIER_host][v] != NO_VALUE;
  if (known && value_type(tiers->from, v)->rank) value_in(tiers, v, TIER_device);
  bool point = o && op_flags(o->code) & POINT;
  for (uint32_t i = 0; point && i < o->nin; i++) upload_kept(tiers, o->in[i], seen);
}

/* How a value is made, seen from a product: element by element of values that are known before it,
   of these and its result, or of results of later ops as well. */
typedef enum MadeFrom { FROM_BEFORE, FROM_PRODUCT, FROM_LATER } MadeFrom;

/* A product whose result is combined element by element with values of the host waits for them:
   fuse then makes the kernels that the plan without `offload` has, with sums in the same order. */
static void upload_for(TierRewrite *tiers, OpId product) {
  const Fn *f = tiers->from;
  MadeFrom *made = ARENA_ARRAY(tiers->m->arena, MadeFrom, f->values.n + 1);
  bool *seen = ARENA_ARRAY(tiers->m->arena, bool, f->values.n + 1);
  made[f->ops.at[product].out] = FROM_PRODUCT;
  for (OpId i = product + 1; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    MadeFrom last = op_flags(o->code) & POINT || !o->nin ? FROM_BEFORE : FROM_LATER;
    for (uint32_t k = 0; k < o->nin; k++)
      if (made[o->in[k]] > last) last = made[o->in[k]];
    for (uint32_t k = 0; last == FROM_PRODUCT && k < o->nin; k++)
      if (made[o->in[k]] == FROM_BEFORE) upload_kept(tiers, o->in[k], seen);
    for (uint32_t k = 0; k < o->nout; k++) made[o->out + k] = last;
  }
}

static bool uploads_any(const TierRewrite *tiers) {
  for (ValueId v = 0; v < tiers->from->values.n; v++)
    if (tiers->lazy[v]) return true;
  return false;
}

static void copy_op(TierRewrite *tiers, OpId id) {
  const Op *o = &tiers->from->ops.at[id];
  if (o->code == OP_loop) {
    copy_loop(tiers, o);
    return;
  }
  Tier t = offload_op_tier(tiers->from, tiers->tier, o);
  bool product = t == TIER_device && op_family(o->code) == FAMILY_CONTRACT;
  if (product && uploads_any(tiers)) upload_for(tiers, id);
  for (uint32_t i = 0; i < o->nin; i++) value_in(tiers, o->in[i], t);
  ValueId out = fn_clone_op(tiers->m, tiers->to, tiers->from, o, tiers->copy[t])->out;
  for (uint32_t i = 0; i < o->nout; i++)
    tiers->tier[o->out + i] = tiers->to->values.at[out + i].type.tier = t;
  if (o->code == OP_load && o->global->kind == GLOBAL_PARAM && t == TIER_host)
    tiers->lazy[o->out] = true, tiers->tier[o->out] = TIER_device;
  for (uint32_t i = 0; i < o->nout; i++)
    if (tiers->to_host[o->out + i])
      value_in(tiers, o->out + i, TIER_host), tiers->tier[o->out + i] = TIER_host;
}

/* results: where each is wanted; TIERS: where it is made. */
static Fn *rewrite(Module *m, Fn *from, const ArgTiers *args, const Tier *results) {
  TierRewrite tiers = {.m = m, .from = from, .to = fn_like(m, from)};
  uint32_t n = from->values.n;
  tiers.tier = ARENA_ARRAY(m->arena, Tier, n + 1),
  tiers.known = ARENA_ARRAY(m->arena, HostCopy, n + 1);
  tiers.lazy = ARENA_ARRAY(m->arena, bool, n + 1);
  find_lazy(&tiers);
  for (Tier t = 0; t < TIERS; t++) tiers.copy[t] = value_map(m, from);
  for (uint32_t i = 0; i < from->args.n; i++) {
    ValueId v = from->args.at[i];
    tiers.tier[v] = args[i].used, tiers.lazy[v] = args[i].stored != args[i].used;
    tiers.copy[args[i].stored][v] =
        fn_arg(m, tiers.to, type_in_tier(*value_type(from, v), args[i].stored));
  }
  tiers.to_host = plan_offloads_any(m, OFFLOAD_GRADS) ? offload_gradients(m, from, tiers.tier)
                                                      : ARENA_ARRAY(m->arena, bool, n + 1);
  for (OpId i = 0; i < from->ops.n; i++) copy_op(&tiers, i);
  for (uint32_t i = 0; i < from->results.n; i++) {
    ValueId v = from->results.at[i];
    fn_result(m, tiers.to, value_in(&tiers, v, results[i] == TIERS ? tiers.tier[v] : results[i]));
  }
  return tiers.to;
}

/* ---- values that are copied ---- */

/* The first parameter, or state of one, that a group has; of weights whose masters are apart, of
   these. NULL: it is no group. */
static const Global *first_member(const Module *m, const Global *group) {
  Str master = intern_printf(m->ctx->names, "%s.master", group->name);
  EACH_GLOBAL (m, global)
    if (global->within && (global->within == group || global->within->name == master))
      return global;
  return NULL;
}

bool offload_names(const Module *m, OffloadWord word, const Global *global) {
  const Global *member = first_member(m, global);
  return class_offloads(m, word, member ? member->name : global->name);
}

/* The state of a parameter that is in no group. */
static bool is_left(const Module *m, const Global *global) {
  return global->kind == GLOBAL_STATE && global->type.rank && !global->within &&
         !global_has_members(m, global);
}

/* The stack, sub or parameter at the top of the model that has it: h.*, wte. */
static Str top_of(const Module *m, const Global *global) {
  Str whole = layer_whole(m, global->name);
  size_t n = strcspn(whole, ".");
  if (!strncmp(whole + n, ".*", 2)) n += 2;
  return intern_n(m->ctx->names, whole, n);
}

/* Is all that `top` names, and that has states, in groups? */
static bool is_in_groups(const Module *m, Str top) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (is_left(m, m->globals.at[i]) && top_of(m, m->globals.at[i]) == top) return false;
  return true;
}

/* The names that a line may use. */
static Str in_groups(const Module *m) {
  enum { SHOWN = 8 };
  Str all = "";
  uint32_t n = 0;
  EACH_GLOBAL (m, global) {
    Str top = top_of(m, global);
    if (global->kind != GLOBAL_PARAM || !global->within) continue;
    if (text_lists(all, top) || !is_in_groups(m, top)) continue;
    if (n++ < SHOWN) all = arena_list(m->arena, all, "%s", top);
  }
  return n > SHOWN ? arena_printf(m->arena, "%s, ..", all) : all;
}

static bool refuse_left(Module *m) {
  EACH_GLOBAL (m, global) {
    if (!is_left(m, global) || !plan_offloads(m, OFFLOAD_OPTIMIZER, global->name)) continue;
    Str others = in_groups(m);
    Report *r =
        diag_at(m->ctx->diag, "E0712", plan_offload_at(m),
                "`offload optimizer` cannot move the state `%s`", layer_whole(m, global->name));
    diag_fact(r, "it moves states of parameters in groups of `zero`; this state is in none");
    if (*others)
      diag_help(r, "name only parameters in groups: `offload optimizer of %s -> host`", others);
    else diag_help(r, "leave it out, or name other parameters after `of`");
    return true;
  }
  return false;
}

/* For a loop whose line moves its kept values to the host: does it keep none? */
static bool keeps_nothing(const Module *m, const Fn *f, const Op *o) {
  if (o->code != OP_loop || !attr_get(&o->attrs, ATTR_offload)) return false;
  for (uint32_t k = 0; k < o->nout; k++)
    if (is_kept(m, f, o, k)) return false;
  return true;
}

static bool refuse_kept(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      if (!keeps_nothing(m, m->fns.at[i], o)) continue;
      Report *r = diag_at(m->ctx->diag, "E0901", plan_offload_at(m),
                          "`offload = host` of the values that these layers keep is not built yet");
      diag_fact(r, "ops other than loops over layers read the values that the loop over `%s` keeps",
                attr_str(&o->attrs, ATTR_path, o->callee->name));
      diag_help(r, "without `offload = host` the values stay on the device");
      return true;
    }
  return false;
}

/* A gather that starts rounds ahead needs its operand on the device. */
static bool refuse_ahead(Module *m) {
  Ahead a = flights_ahead(m);
  if (plan_zero_stage(m) < 3 || (a.layers <= 0 && a.bytes <= 0)) return false;
  Report *r = diag_at(m->ctx->diag, "E0901", plan_offload_at(m),
                      "`prefetch` with `offload params` is not built yet");
  diag_help(r, "leave out `prefetch`, or `params`");
  return true;
}

static bool any_kept(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (keeps_on_host(m->fns.at[i])) return true;
  return false;
}

void pass_offload(Module *m) {
  bool states = plan_offloads_any(m, OFFLOAD_OPTIMIZER),
       params = plan_offloads_any(m, OFFLOAD_PARAMS);
  if (!states && !params && !any_kept(m)) return;
  if ((states && refuse_left(m)) || (params && refuse_ahead(m)) || refuse_kept(m)) return;
  if (states) delayed_update(m);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    if ((states && global->kind == GLOBAL_STATE && global_has_members(m, global) &&
         offload_names(m, OFFLOAD_OPTIMIZER, global)) ||
        (params && global->kind == GLOBAL_PARAM && !global->within &&
         offload_names(m, OFFLOAD_PARAMS, global)))
      global->type.tier = TIER_host;
  }
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind == FN_ENTRY) module_replace(m, f, rewrite(m, f, NULL, NULL));
  }
  module_collect(m);
}

/* micro: the entries `step` and `eval` take the batch in parts of plan.micro samples per rank, one
   after the other.

     before   what the parts need and no part changes; counts and the like on the whole batch
     loop     [micro] over a body with everything that has Batch, forward and backward, on one
              part; inputs arrive cut in parts as stacked operands; every sum over Batch is carried
              and added up from 0
     after    the rest: it sees complete sums

   micro_states.c says where each value belongs and refuses what a cut would change (E0706). Bodies
   of loops inside are copied with the smaller Batch. Random numbers keep their logical index: the
   number of a part's first sample is passed down and times the stride of Batch added to the base of
   each `rand`; positions along Batch likewise. Nothing is done when plan.micro is absent or the
   whole batch. */
#include "passes/micro.h"
#include "ir/support/num.h"
#include "passes/workers.h"
#include "ir/placement.h"
#include "ir/module_settings.h"

typedef struct MicroCut {
  Micro c;
  const Fn *f;
  MicroState *state;            /* by value of f */
  bool *free;                   /* by value of f */
  bool *early;                  /* by op of f: done before the loop */
  Rebuild out;                  /* f -> new entry */
  Rebuild in;                   /* f -> body of the loop */
  ValueId first;                /* in the body: number of the part's first sample, i32[] */
  ValueList invariant, stacked; /* values of f that the body gets */
  ValueList sums, same,
      merged; /* that the loop delivers: added up; equal in all rounds; put together */
} MicroCut;

/* ---- ops on a part ---- */
static void shrink(const Micro *c, Type *t) {
  int at = type_find(t, c->batch);
  if (at >= 0) t->axis[at].size = c->part;
}

static Type part_type(const Micro *c, const Type *t) {
  Type r = *t;
  shrink(c, &r);
  return r;
}

/* base + first sample * stride of Batch */
static ValueId moved_base(Micro *c, Rebuild *r, const Op *o, ValueId first) {
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  ValueId base = r->map[o->in[2]];
  for (int i = 0; i < o->group[0].nfrom; i++) {
    if (o->group[0].from[i] != c->batch) continue;
    Elem e = value_type(r->to, base)->elem;
    ValueId stride = ir_const(c->m, r->to, e, (double)strides->list[i], o->loc);
    ValueId by =
        ir_binary(c->m, r->to, OP_mul, ir_cast(c->m, r->to, first, e, o->loc), stride, o->loc);
    base = ir_binary(c->m, r->to, OP_add, base, by, o->loc);
  }
  return base;
}

/* v in the first part, 0 in the others. */
static ValueId once(Micro *c, Fn *f, ValueId v, ValueId first, Loc loc) {
  Type t = *value_type(f, v);
  ValueId zero = ir_const(c->m, f, ELEM_i32, 0, loc);
  ValueId in[] = {ir_binary(c->m, f, OP_eq, first, zero, loc), v,
                  ir_const(c->m, f, t.elem, 0, loc)};
  return emit_typed(c->m, f, OP_where, 3, in, NULL, t, loc);
}

static void copy_op(Micro *c, Rebuild *r, const Op *o, const MicroState *s, ValueId first);

/* The body with a smaller Batch and one more invariant argument, the number of the first sample. */
static Fn *part_body(Micro *c, const Op *loop, const MicroState *inside) {
  const Fn *f = loop->callee;
  LoopShape s = loop_shape(loop);
  Rebuild r = {c->m, f, fn_new(c->m, FN_BODY, f->name), value_map(c->m, f)};
  ValueId first = NO_VALUE;
  r.to->loc = f->loc;
  for (uint32_t i = 0; i < f->args.n; i++) {
    if (i == 1 + s.carry + s.invariant) first = fn_arg(c->m, r.to, type_scalar(ELEM_i32));
    r.map[f->args.at[i]] = fn_arg(c->m, r.to, part_type(c, value_type(f, f->args.at[i])));
  }
  if (first == NO_VALUE) first = fn_arg(c->m, r.to, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < f->ops.n; i++) copy_op(c, &r, &f->ops.at[i], inside, first);
  rebuild_results(&r);
  return r.to;
}

/* A carried sum begins with what is whole in one part only. */
static ValueId carried_in(Micro *c, Rebuild *r, const Op *o, uint32_t i, MicroState before,
                          MicroState inside, ValueId first) {
  ValueId v = r->map[o->in[i]];
  return before == MICRO_WHOLE && inside == MICRO_PARTIAL ? once(c, r->to, v, first, o->loc) : v;
}

static void copy_loop(Micro *c, Rebuild *r, const Op *o, const MicroState *states, ValueId first) {
  LoopShape s = loop_shape(o);
  ValueList in = {0};
  const MicroState *inside = micro_body_states(c, o, states);
  for (uint32_t i = 0; i <= o->nin; i++) {
    if (i == s.carry + s.invariant) vec_push(c->m->arena, in, first);
    if (i == o->nin) break;
    ValueId v = i < s.carry ? carried_in(c, r, o, i, states[o->in[i]],
                                         inside[o->callee->args.at[i + 1]], first)
                            : r->map[o->in[i]];
    vec_push(c->m->arena, in, v);
  }
  s.invariant++;
  ValueId out = rebuild_loop(c->m, r->to, part_body(c, o, inside), s, in.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) r->map[o->out + i] = out + i;
}

/* s: states of the function that o stands in. */
static void copy_op(Micro *c, Rebuild *r, const Op *o, const MicroState *s, ValueId first) {
  if (o->code == OP_loop) {
    copy_loop(c, r, o, s, first);
    return;
  }
  ValueId *in = ARENA_ARRAY(c->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) {
    in[i] = r->map[o->in[i]];
    if (o->nout && micro_counts_once(o, s, i)) in[i] = once(c, r->to, in[i], first, o->loc);
  }
  if (o->code == OP_rand) in[2] = moved_base(c, r, o, first);
  Op *n = rebuild_op(r, o);
  for (uint32_t i = 0; i < o->nin; i++) n->in[i] = in[i];
  for (uint32_t i = 0; i < o->nout; i++) shrink(c, &r->to->values.at[n->out + i].type);
  if (o->code == OP_iota && o->group[0].from[0] == c->batch)
    r->map[o->out] = ir_binary(c->m, r->to, OP_add, n->out, first, o->loc);
}

/* ---- who belongs where ---- */
static bool sliced(const MicroCut *k, ValueId v) { return k->state[v] == MICRO_SLICED; }

static bool reads_sliced(const MicroCut *k, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (sliced(k, o->in[i])) return true;
  return false;
}

/* Made inside: sliced results, and ops that sum sliced operands, unless they are whole things done
 * before. */
static bool inside(const MicroCut *k, const Op *o) {
  if (!o->nout || o->code == OP_load || micro_joins_workers(&k->c, o)) return false;
  if (k->state[o->out] == MICRO_PARTIAL) return true;
  if (sliced(k, o->out)) return micro_works_on_parts(&k->c, o) || !k->free[o->out];
  return reads_sliced(k, o) && !k->free[o->out];
}

static void mark_early(MicroCut *k, ValueId v) {
  OpId def = k->f->values.at[v].def;
  must(def != NO_OP, "micro: entry %s has arguments", k->f->name);
  if (k->early[def]) return;
  k->early[def] = true;
  for (uint32_t i = 0; i < k->f->ops.at[def].nin; i++) mark_early(k, k->f->ops.at[def].in[i]);
}

static void list_once(MicroCut *k, ValueList *l, ValueId v) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i] == v) return;
  vec_push(k->c.m->arena, *l, v);
}

/* v is made inside, the op that reads it is not. */
static void deliver(MicroCut *k, ValueId v) {
  if (k->free[v]) mark_early(k, v);
  else if (k->state[v] == MICRO_PARTIAL) list_once(k, &k->sums, v);
  else list_once(k, sliced(k, v) ? &k->merged : &k->same, v);
}

/* What the body needs from outside, what others need from the body. */
static void find_borders(MicroCut *k) {
  for (uint32_t i = 0; i < k->f->ops.n; i++) {
    const Op *o = &k->f->ops.at[i];
    bool here = inside(k, o);
    for (uint32_t j = 0; j < o->nin; j++) {
      ValueId v = o->in[j];
      bool there = inside(k, value_def(k->f, v));
      if (here && !there) list_once(k, sliced(k, v) ? &k->stacked : &k->invariant, v);
      if (!here && there) deliver(k, v);
    }
  }
  for (uint32_t i = 0; i < k->invariant.n; i++) mark_early(k, k->invariant.at[i]);
  for (uint32_t i = 0; i < k->stacked.n; i++) mark_early(k, k->stacked.at[i]);
}

/* ---- the loop ---- */
static Axis rounds(const MicroCut *k) {
  return (Axis){intern(k->c.m->ctx->names, "micro"), k->c.size / k->c.part};
}

/* [Batch, ..] as [micro, Batch, ..] */
static ValueId in_parts(MicroCut *k, ValueId v) {
  Axis a = rounds(k);
  Str to[] = {a.dim, k->c.batch};
  Group g = group_map(1, &k->c.batch, 2, to);
  Type whole = *value_type(k->f, v), t = type_of(whole.elem, 1, &a);
  must(whole.rank < MAX_RANK && type_find(&whole, k->c.batch) >= 0,
       "micro: %%%u of %s cannot be cut along Batch", v, k->f->name);
  shrink(&k->c, &whole);
  for (int i = 0; i < whole.rank; i++) t.axis[t.rank++] = whole.axis[i];
  return emit_typed(k->c.m, k->out.to, OP_split, 1, &k->out.map[v], &g, t, (Loc){0});
}

static ValueId put_together(MicroCut *k, ValueId v, ValueId parts) {
  Str from[] = {rounds(k).dim, k->c.batch};
  Group g = group_map(2, from, 1, &k->c.batch);
  return emit_typed(k->c.m, k->out.to, OP_merge, 1, &parts, &g, *value_type(k->f, v), (Loc){0});
}

static void body_arguments(MicroCut *k, const ValueList *l, bool parts) {
  for (uint32_t i = 0; i < l->n; i++) {
    Type t = *value_type(k->f, l->at[i]);
    if (parts) shrink(&k->c, &t);
    k->in.map[l->at[i]] = fn_arg(k->c.m, k->in.to, t);
  }
}

static void body_results(MicroCut *k, const ValueId *sum) {
  Module *m = k->c.m;
  Fn *b = k->in.to;
  for (uint32_t i = 0; i < k->sums.n; i++)
    fn_result(m, b, ir_binary(m, b, OP_add, sum[i], k->in.map[k->sums.at[i]], (Loc){0}));
  for (uint32_t i = 0; i < k->same.n; i++) fn_result(m, b, k->in.map[k->same.at[i]]);
  for (uint32_t i = 0; i < k->merged.n; i++) fn_result(m, b, k->in.map[k->merged.at[i]]);
}

static Fn *loop_body(MicroCut *k) {
  Module *m = k->c.m;
  Fn *b = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.micro", k->f->name));
  ValueId *sum = ARENA_ARRAY(m->arena, ValueId, k->sums.n + 1);
  k->in = (Rebuild){m, k->f, b, value_map(m, k->f)};
  ValueId counter = fn_arg(m, b, type_scalar(ELEM_i32));
  body_arguments(k, &k->sums, false);
  body_arguments(k, &k->same, false);
  for (uint32_t i = 0; i < k->sums.n; i++) sum[i] = k->in.map[k->sums.at[i]];
  body_arguments(k, &k->invariant, false);
  body_arguments(k, &k->stacked, true);
  ValueId part = ir_const(m, b, ELEM_i32, (double)k->c.part, (Loc){0});
  k->first = ir_binary(m, b, OP_mul, counter, part, (Loc){0});
  for (uint32_t i = 0; i < k->f->ops.n; i++)
    if (inside(k, &k->f->ops.at[i])) copy_op(&k->c, &k->in, &k->f->ops.at[i], k->state, k->first);
  body_results(k, sum);
  return b;
}

static void start_at_zero(MicroCut *k, ValueList *in, const ValueList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    const Type *t = value_type(k->f, l->at[i]);
    vec_push(k->c.m->arena, *in, emit_full(k->c.m, k->out.to, *t, 0, (Loc){0}));
  }
}

static void emit_rounds(MicroCut *k) {
  Module *m = k->c.m;
  ValueList in = {0};
  start_at_zero(k, &in, &k->sums);
  start_at_zero(k, &in, &k->same);
  for (uint32_t i = 0; i < k->invariant.n; i++)
    vec_push(m->arena, in, k->out.map[k->invariant.at[i]]);
  for (uint32_t i = 0; i < k->stacked.n; i++) vec_push(m->arena, in, in_parts(k, k->stacked.at[i]));
  LoopShape s = {.carry = k->sums.n + k->same.n,
                 .invariant = k->invariant.n,
                 .stacked = k->stacked.n,
                 .trip = rounds(k).size,
                 .axis = rounds(k)};
  ValueId out = rebuild_loop(m, k->out.to, loop_body(k), s, in.at, k->f->loc)->out;
  for (uint32_t i = 0; i < k->sums.n; i++) k->out.map[k->sums.at[i]] = out++;
  for (uint32_t i = 0; i < k->same.n; i++) k->out.map[k->same.at[i]] = out++;
  for (uint32_t i = 0; i < k->merged.n; i++)
    k->out.map[k->merged.at[i]] = put_together(k, k->merged.at[i], out++);
}

static Fn *cut_entry(MicroCut *k) {
  must(k->c.part > 0 && k->c.size % k->c.part == 0, "micro: %lld samples in parts of %lld",
       (long long)k->c.size, (long long)k->c.part);
  k->early = ARENA_ARRAY(k->c.m->arena, bool, k->f->ops.n + 1);
  find_borders(k);
  k->out = rebuild_begin(k->c.m, k->f);
  for (uint32_t i = 0; i < k->f->ops.n; i++)
    if (k->early[i]) rebuild_op(&k->out, &k->f->ops.at[i]);
  emit_rounds(k);
  for (uint32_t i = 0; i < k->f->ops.n; i++)
    if (!k->early[i] && !inside(k, &k->f->ops.at[i])) rebuild_op(&k->out, &k->f->ops.at[i]);
  return k->out.to;
}

static int64_t batch_size(const Micro *c, const Fn *f) {
  for (uint32_t i = 0; i < f->values.n; i++) {
    const Type *t = &f->values.at[i].type;
    int at = type_find(t, c->batch);
    if (at >= 0 && (!c->worker || type_find(t, c->worker) >= 0)) return t->axis[at].size;
  }
  return 0;
}

static bool divides(Module *m, int64_t size, int64_t part) {
  if (part > 0 && size % part == 0) return true;
  Report *r =
      diag_at(m->ctx->diag, "E0703", (Span){0}, "batch %lld is not a multiple of micro %lld",
              (long long)size, (long long)part);
  int64_t near = part > size || part < 1 ? size : part;
  while (size % near) near--;
  diag_help(r, "nearest that divides: micro = %lld", (long long)near);
  return false;
}

static void cut(Module *m, const char *name, int64_t part, Str worker) {
  Fn *f = entry_of(m, name);
  MicroCut k = {.c = {.m = m, .batch = intern(m->ctx->names, "Batch"), .part = part}, .f = f};
  k.c.worker = worker;
  k.c.size = f ? batch_size(&k.c, f) : 0;
  if (!k.c.size || k.c.size == part || !divides(m, k.c.size, part)) return;
  k.state = micro_states(&k.c, f, NULL);
  if (k.c.failed) return;
  k.free = micro_free(&k.c, f);
  module_replace(m, f, cut_entry(&k));
}

/* The dim of the workers that optimizer gave all entries, or NULL; of the samples of all ranks in a
   part each worker has its share. */
static Str made_worker(Module *m, int64_t *part) {
  int64_t workers = made_workers(m);
  if (!workers) return NULL;
  if (*part % workers)
    diag_at(m->ctx->diag, "E0703", (Span){0}, "parts of %lld samples have no %lld equal shares",
            (long long)*part, (long long)workers);
  *part /= workers;
  return intern(m->ctx->names, WORKER_DIM);
}

void pass_micro(Module *m) {
  int64_t part = plan_micro(m) * mesh_batch_ranks(m);
  if (micro_separable(m)) module_set(m, "made.eval.separable", "on");
  if (!part) return;
  simplify_module(m, true);
  static const char *const entries[] = {"step", "step.frozen", "eval"};
  Str worker = made_worker(m, &part);
  for (size_t i = 0; i < COUNT_OF(entries) && !diag_errors(m->ctx->diag); i++)
    cut(m, entries[i], part, worker);
  module_collect(m);
}

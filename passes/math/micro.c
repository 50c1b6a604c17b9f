/* micro: the entries `step` and `eval` process the batch in micro-batches of plan.micro samples
   per rank, one after the other.

     before   values that micro-batches read and do not change; counts and the like on the whole
              batch
     loop     [micro] over a body with everything that has Batch, forward and backward, on one
              micro-batch; inputs are sliced into stacked operands; every sum over Batch is carried
              and added up from 0
     after    the rest: it reads complete sums

   micro_states.c assigns each value to one of the three and refuses values that a cut would change
   (E0706). Bodies of loops inside are copied with the smaller Batch. Random numbers keep their
   logical index: the number of the micro-batch's first sample is passed down and times the stride
   of Batch added to the base of each `rand`; positions along Batch likewise. Nothing is done if
   plan.micro is absent or the whole batch. */
#include "ir/made.h"
#include "passes/simplify/simplify.h"
#include "micro.h"
#include "ir/support/num.h"
#include "workers.h"
#include "ir/shape/placement.h"
#include "ir/plan/module_settings.h"

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
static void shrink(const Micro *micro, Type *t) {
  int at = type_find(t, micro->batch);
  if (at >= 0) t->axis[at].size = micro->part;
}

static Type part_type(const Micro *micro, const Type *t) {
  Type r = *t;
  shrink(micro, &r);
  return r;
}

/* base + first sample * stride of Batch */
static ValueId moved_base(Micro *micro, Rebuild *rebuild, const Op *o, ValueId first) {
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  ValueId base = rebuild->map[o->in[2]];
  for (int i = 0; i < o->group[0].nfrom; i++) {
    if (o->group[0].from[i] != micro->batch) continue;
    Elem e = value_type(rebuild->to, base)->elem;
    ValueId stride = ir_const(micro->m, rebuild->to, e, (double)strides->list[i], o->loc);
    ValueId by = ir_binary(micro->m, rebuild->to, OP_mul,
                           ir_cast(micro->m, rebuild->to, first, e, o->loc), stride, o->loc);
    base = ir_binary(micro->m, rebuild->to, OP_add, base, by, o->loc);
  }
  return base;
}

/* v in the first part, 0 in the others. */
static ValueId once(Micro *micro, Fn *f, ValueId v, ValueId first, Loc loc) {
  Type t = *value_type(f, v);
  ValueId zero = ir_const(micro->m, f, ELEM_i32, 0, loc);
  ValueId in[] = {ir_binary(micro->m, f, OP_eq, first, zero, loc), v,
                  ir_const(micro->m, f, t.elem, 0, loc)};
  return emit_typed(micro->m, f, OP_where, 3, in, NULL, t, loc);
}

static void copy_op(Micro *c, Rebuild *rebuild, const Op *o, const MicroState *s, ValueId first);

/* The body with a smaller Batch and one more invariant argument, the number of the first sample. */
static Fn *part_body(Micro *micro, const Op *loop, const MicroState *inside) {
  const Fn *f = loop->callee;
  LoopShape shape = loop_shape(loop);
  Rebuild rebuild = {micro->m, f, fn_new(micro->m, FN_BODY, f->name), value_map(micro->m, f)};
  ValueId first = NO_VALUE;
  rebuild.to->loc = f->loc;
  for (uint32_t i = 0; i < f->args.n; i++) {
    if (i == 1 + shape.carry + shape.invariant)
      first = fn_arg(micro->m, rebuild.to, type_scalar(ELEM_i32));
    rebuild.map[f->args.at[i]] =
        fn_arg(micro->m, rebuild.to, part_type(micro, value_type(f, f->args.at[i])));
  }
  if (first == NO_VALUE) first = fn_arg(micro->m, rebuild.to, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < f->ops.n; i++) copy_op(micro, &rebuild, &f->ops.at[i], inside, first);
  rebuild_results(&rebuild);
  return rebuild.to;
}

/* A carried sum begins with the term that is whole in one micro-batch only. */
static ValueId carried_in(Micro *micro, Rebuild *rebuild, const Op *o, uint32_t i,
                          MicroState before, MicroState inside, ValueId first) {
  ValueId v = rebuild->map[o->in[i]];
  return before == MICRO_WHOLE && inside == MICRO_PARTIAL
             ? once(micro, rebuild->to, v, first, o->loc)
             : v;
}

static void copy_loop(Micro *micro, Rebuild *rebuild, const Op *o, const MicroState *states,
                      ValueId first) {
  LoopShape shape = loop_shape(o);
  ValueList in = {0};
  const MicroState *inside = micro_body_states(micro, o, states);
  for (uint32_t i = 0; i <= o->nin; i++) {
    if (i == shape.carry + shape.invariant) vec_push(micro->m->arena, in, first);
    if (i == o->nin) break;
    ValueId v = i < shape.carry ? carried_in(micro, rebuild, o, i, states[o->in[i]],
                                             inside[o->callee->args.at[i + 1]], first)
                                : rebuild->map[o->in[i]];
    vec_push(micro->m->arena, in, v);
  }
  shape.invariant++;
  ValueId out =
      rebuild_loop(micro->m, rebuild->to, part_body(micro, o, inside), shape, in.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) rebuild->map[o->out + i] = out + i;
}

/* state: states of the function that contains o. */
static void copy_op(Micro *micro, Rebuild *rebuild, const Op *o, const MicroState *state,
                    ValueId first) {
  if (o->code == OP_loop) {
    copy_loop(micro, rebuild, o, state, first);
    return;
  }
  ValueId *in = ARENA_ARRAY(micro->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) {
    in[i] = rebuild->map[o->in[i]];
    if (o->nout && micro_counts_once(o, state, i))
      in[i] = once(micro, rebuild->to, in[i], first, o->loc);
  }
  if (o->code == OP_rand) in[2] = moved_base(micro, rebuild, o, first);
  Op *n = rebuild_op(rebuild, o);
  for (uint32_t i = 0; i < o->nin; i++) n->in[i] = in[i];
  for (uint32_t i = 0; i < o->nout; i++) shrink(micro, &rebuild->to->values.at[n->out + i].type);
  if (o->code == OP_iota && o->group[0].from[0] == micro->batch)
    rebuild->map[o->out] = ir_binary(micro->m, rebuild->to, OP_add, n->out, first, o->loc);
}

/* ---- assignment of values ---- */
static bool sliced(const MicroCut *micro, ValueId v) { return micro->state[v] == MICRO_SLICED; }

static bool reads_sliced(const MicroCut *micro, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (sliced(micro, o->in[i])) return true;
  return false;
}

/* Made inside: sliced results, and ops that sum sliced operands, unless they are whole things done
 * before. */
static bool inside(const MicroCut *micro, const Op *o) {
  if (!o->nout || o->code == OP_load || micro_joins_workers(&micro->c, o)) return false;
  if (micro->state[o->out] == MICRO_PARTIAL || micro->state[o->out] == MICRO_EACH) return true;
  if (sliced(micro, o->out)) return micro_works_on_parts(&micro->c, o) || !micro->free[o->out];
  return reads_sliced(micro, o) && !micro->free[o->out];
}

static void mark_early(MicroCut *micro, ValueId v) {
  OpId def = micro->f->values.at[v].def;
  must(def != NO_OP, "micro: entry %s has arguments", micro->f->name);
  if (micro->early[def]) return;
  micro->early[def] = true;
  for (uint32_t i = 0; i < micro->f->ops.at[def].nin; i++)
    mark_early(micro, micro->f->ops.at[def].in[i]);
}

static void list_once(MicroCut *micro, ValueList *list, ValueId v) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i] == v) return;
  vec_push(micro->c.m->arena, *list, v);
}

/* v is made inside, the op that reads it is not. */
static void deliver(MicroCut *micro, ValueId v) {
  if (micro->state[v] == MICRO_EACH) {
    if (!micro->c.failed)
      micro_report(
          &micro->c, value_def(micro->f, v),
          "`micro` changes this value: it is of each micro-batch, and something else reads it");
    micro->c.failed = true;
    return;
  }
  if (micro->free[v]) mark_early(micro, v);
  else if (micro->state[v] == MICRO_PARTIAL) list_once(micro, &micro->sums, v);
  else list_once(micro, sliced(micro, v) ? &micro->merged : &micro->same, v);
}

/* Finds the values of the function that the body reads, and the values of the body that the
   function reads. */
static void find_borders(MicroCut *micro) {
  EACH_OP (micro->f, o) {
    bool here = inside(micro, o);
    for (uint32_t j = 0; j < o->nin; j++) {
      ValueId v = o->in[j];
      bool there = inside(micro, value_def(micro->f, v));
      if (here && !there)
        list_once(micro, sliced(micro, v) ? &micro->stacked : &micro->invariant, v);
      if (!here && there) deliver(micro, v);
    }
  }
  for (uint32_t i = 0; i < micro->invariant.n; i++) mark_early(micro, micro->invariant.at[i]);
  for (uint32_t i = 0; i < micro->stacked.n; i++) mark_early(micro, micro->stacked.at[i]);
}

/* ---- the loop ---- */
static Axis rounds(const MicroCut *micro) {
  return (Axis){name_made(micro->c.m, MADE_MICRO), micro->c.size / micro->c.part};
}

/* [Batch, ..] as [micro, Batch, ..] */
static ValueId in_parts(MicroCut *micro, ValueId v) {
  Axis axis = rounds(micro);
  Str to[] = {axis.dim, micro->c.batch};
  Group group = group_map(1, &micro->c.batch, 2, to);
  Type whole = *value_type(micro->f, v), t = type_of(whole.elem, 1, &axis);
  must(whole.rank < MAX_RANK && type_find(&whole, micro->c.batch) >= 0,
       "micro: %%%u of %s cannot be cut along Batch", v, micro->f->name);
  shrink(&micro->c, &whole);
  for (int i = 0; i < whole.rank; i++) t.axis[t.rank++] = whole.axis[i];
  return emit_typed(micro->c.m, micro->out.to, OP_split, 1, &micro->out.map[v], &group, t,
                    (Loc){0});
}

static ValueId put_together(MicroCut *micro, ValueId v, ValueId parts) {
  Str from[] = {rounds(micro).dim, micro->c.batch};
  Group group = group_map(2, from, 1, &micro->c.batch);
  return emit_typed(micro->c.m, micro->out.to, OP_merge, 1, &parts, &group,
                    *value_type(micro->f, v), (Loc){0});
}

static void body_arguments(MicroCut *micro, const ValueList *list, bool parts) {
  for (uint32_t i = 0; i < list->n; i++) {
    Type t = *value_type(micro->f, list->at[i]);
    if (parts) shrink(&micro->c, &t);
    micro->in.map[list->at[i]] = fn_arg(micro->c.m, micro->in.to, t);
  }
}

static void body_results(MicroCut *micro, const ValueId *sum) {
  Module *m = micro->c.m;
  Fn *b = micro->in.to;
  for (uint32_t i = 0; i < micro->sums.n; i++)
    fn_result(m, b, ir_binary(m, b, OP_add, sum[i], micro->in.map[micro->sums.at[i]], (Loc){0}));
  for (uint32_t i = 0; i < micro->same.n; i++) fn_result(m, b, micro->in.map[micro->same.at[i]]);
  for (uint32_t i = 0; i < micro->merged.n; i++)
    fn_result(m, b, micro->in.map[micro->merged.at[i]]);
}

static Fn *loop_body(MicroCut *micro) {
  Module *m = micro->c.m;
  Fn *b = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.micro", micro->f->name));
  ValueId *sum = ARENA_ARRAY(m->arena, ValueId, micro->sums.n + 1);
  micro->in = (Rebuild){m, micro->f, b, value_map(m, micro->f)};
  ValueId counter = fn_arg(m, b, type_scalar(ELEM_i32));
  body_arguments(micro, &micro->sums, false);
  body_arguments(micro, &micro->same, false);
  for (uint32_t i = 0; i < micro->sums.n; i++) sum[i] = micro->in.map[micro->sums.at[i]];
  body_arguments(micro, &micro->invariant, false);
  body_arguments(micro, &micro->stacked, true);
  ValueId part = ir_const(m, b, ELEM_i32, (double)micro->c.part, (Loc){0});
  micro->first = ir_binary(m, b, OP_mul, counter, part, (Loc){0});
  for (uint32_t i = 0; i < micro->f->ops.n; i++)
    if (inside(micro, &micro->f->ops.at[i]))
      copy_op(&micro->c, &micro->in, &micro->f->ops.at[i], micro->state, micro->first);
  body_results(micro, sum);
  return b;
}

static void start_at_zero(MicroCut *micro, ValueList *in, const ValueList *list) {
  for (uint32_t i = 0; i < list->n; i++) {
    const Type *t = value_type(micro->f, list->at[i]);
    vec_push(micro->c.m->arena, *in, emit_full(micro->c.m, micro->out.to, *t, 0, (Loc){0}));
  }
}

static void emit_rounds(MicroCut *micro) {
  Module *m = micro->c.m;
  ValueList in = {0};
  start_at_zero(micro, &in, &micro->sums);
  start_at_zero(micro, &in, &micro->same);
  for (uint32_t i = 0; i < micro->invariant.n; i++)
    vec_push(m->arena, in, micro->out.map[micro->invariant.at[i]]);
  for (uint32_t i = 0; i < micro->stacked.n; i++)
    vec_push(m->arena, in, in_parts(micro, micro->stacked.at[i]));
  LoopShape shape = {.carry = micro->sums.n + micro->same.n,
                     .invariant = micro->invariant.n,
                     .stacked = micro->stacked.n,
                     .trip = rounds(micro).size,
                     .axis = rounds(micro),
                     .rounds = ROUNDS_micro};
  ValueId out = rebuild_loop(m, micro->out.to, loop_body(micro), shape, in.at, micro->f->loc)->out;
  for (uint32_t i = 0; i < micro->sums.n; i++) micro->out.map[micro->sums.at[i]] = out++;
  for (uint32_t i = 0; i < micro->same.n; i++) micro->out.map[micro->same.at[i]] = out++;
  for (uint32_t i = 0; i < micro->merged.n; i++)
    micro->out.map[micro->merged.at[i]] = put_together(micro, micro->merged.at[i], out++);
}

static Fn *cut_entry(MicroCut *micro) {
  must(micro->c.part > 0 && micro->c.size % micro->c.part == 0,
       "micro: %lld samples in parts of %lld", (long long)micro->c.size, (long long)micro->c.part);
  micro->early = ARENA_ARRAY(micro->c.m->arena, bool, micro->f->ops.n + 1);
  find_borders(micro);
  if (micro->c.failed) return NULL;
  micro->out = rebuild_begin(micro->c.m, micro->f);
  for (uint32_t i = 0; i < micro->f->ops.n; i++)
    if (micro->early[i]) rebuild_op(&micro->out, &micro->f->ops.at[i]);
  emit_rounds(micro);
  for (uint32_t i = 0; i < micro->f->ops.n; i++)
    if (!micro->early[i] && !inside(micro, &micro->f->ops.at[i]))
      rebuild_op(&micro->out, &micro->f->ops.at[i]);
  return micro->out.to;
}

static int64_t batch_size(const Micro *micro, const Fn *f) {
  for (uint32_t i = 0; i < f->values.n; i++) {
    const Type *t = &f->values.at[i].type;
    int at = type_find(t, micro->batch);
    if (at >= 0 && (!micro->worker || type_find(t, micro->worker) >= 0)) return t->axis[at].size;
  }
  return 0;
}

static bool divides(Module *m, int64_t size, int64_t part) {
  if (part > 0 && size % part == 0) return true;
  Report *r =
      diag_at(m->ctx->diag, "E0703", module_written(m, "plan.micro").word,
              "batch %lld is not a multiple of micro %lld", (long long)size, (long long)part);
  int64_t near = part < 1 ? size : divisor_to(size, part);
  diag_help(r, "nearest that divides: micro = %lld", (long long)near);
  return false;
}

/* The number of parts. */
static double cut(Module *m, Fn *f, int64_t part, Str worker) {
  MicroCut micro = {.c = {.m = m, .batch = intern(m->ctx->names, "Batch"), .part = part}, .f = f};
  micro.c.worker = worker;
  micro.c.size = batch_size(&micro.c, f);
  if (!micro.c.size || micro.c.size == part || !divides(m, micro.c.size, part)) return 1;
  micro.state = micro_states(&micro.c, f, NULL);
  if (micro.c.failed) return 1;
  micro.free = micro_free(&micro.c, f);
  Fn *entry = cut_entry(&micro);
  if (!entry) return 1;
  module_replace(m, f, entry);
  return (double)(micro.c.size / part);
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

static double cut_all(Module *m, int64_t part) {
  double parts = 1;
  simplify_module(m, true);
  Str worker = made_worker(m, &part);
  Fn *eval = entry_of(m, "eval");
  for (uint32_t i = 0; i < m->fns.n && !diag_errors(m->ctx->diag); i++)
    if (entry_trains(m->fns.at[i])) parts = cut(m, m->fns.at[i], part, worker);
  if (eval && !diag_errors(m->ctx->diag)) cut(m, eval, part, worker);
  module_collect(m);
  return parts;
}

void pass_micro(Module *m) {
  int64_t part = plan_micro(m) * mesh_batch_ranks(m);
  aux_finish(m, part ? cut_all(m, part) : 1);
}

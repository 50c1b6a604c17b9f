/* How each value relates to micro-batches: whole, sliced, a partial sum, or only known after the
   last micro-batch.

   Sliced values have dim Batch. A sum, dot or scatter over Batch makes a partial sum; inside
   bodies of loops a partial sum may only pass through linear ops. A whole value may be added to it
   in a body (the gradient of a regularizer): it counts in the first micro-batch and is 0 in the
   others.

   In an entry the sums are complete after the loop over micro-batches, so any op may read them
   after the loop, but no sliced value may depend on them: it would need all micro-batches before
   the first ends. This is what E0706 says. A value that no parameter influences (counts of tokens)
   is whole, even if it sums over Batch: it is computed before the loop.

   Terms of `aux` may be those of each micro-batch (aux_parts.c): `estimate` completes a sum in the
   micro-batch, `share` makes it a term of the mean over micro-batches. Values between the two, and
   gradients that depend on them, belong to the micro-batch and may not leave it. */
#include "micro.h"
#include <string.h>

static bool has_batch(const Micro *micro, const Fn *f, ValueId v) {
  const Type *t = value_type(f, v);
  return type_find(t, micro->batch) >= 0 && (!micro->worker || type_find(t, micro->worker) >= 0);
}

static bool names_batch(const Micro *micro, const Op *o, bool from) {
  for (int g = 0; g < o->ngroups; g++) {
    const Str *dims = from ? o->group[g].from : o->group[g].to;
    int n = from ? o->group[g].nfrom : o->group[g].nto;
    for (int i = 0; i < n; i++)
      if (dims[i] == micro->batch) return true;
  }
  return false;
}

/* Ops that treat every index of Batch alike, or whose indexes can be offset by the micro-batch's
   first. */
bool micro_works_on_parts(const Micro *micro, const Op *o) {
  if (names_batch(micro, o, false)) return false;
  if (!names_batch(micro, o, true)) return true;
  if (micro->asks && o->code != OP_expand) return false; /* it knows the number of the sample */
  return o->code == OP_expand || o->code == OP_rand || o->code == OP_iota;
}

/* Samples of all workers, end to end: for an output. */
bool micro_joins_workers(const Micro *micro, const Op *o) {
  return micro->worker && o->code == OP_merge && o->group[0].nfrom == 2 &&
         o->group[0].from[0] == micro->worker && o->group[0].from[1] == micro->batch;
}

/* Ops that turn sliced operands into a partial sum. */
static bool sums_over_batch(const Micro *micro, const Op *o) {
  return (o->code == OP_sum || o->code == OP_dot || o->code == OP_scatter) &&
         names_batch(micro, o, true);
}

Report *micro_report(Micro *micro, const Op *o, const char *headline) {
  const Module *m = micro->m;
  Span value = span_of(m, o->loc),
       word = module_written(m, micro->linear ? "train.optim" : "plan.micro").word;
  Report *r = diag_at(m->ctx->diag, "E0706", word.file ? word : value, "%s", headline);
  const char *said = op_said(m, o), *in = said ? arena_printf(m->arena, "in `%s`", said) : NULL;
  if (word.file && value.file) diag_also(r, value, "%s", in ? in : "this value");
  else if (in) diag_label(r, "%s", in);
  return r;
}

static MicroState refuse(Micro *micro, const Op *o, const char *what) {
  if (micro->failed) return MICRO_WHOLE;
  micro->failed = true;
  if (micro->quiet) return MICRO_WHOLE;
  Report *r = micro_report(micro, o,
                           arena_printf(micro->m->arena, "%s: %s",
                                        micro->linear ? "this value cannot be split by worker"
                                                      : "`micro` changes this value",
                                        what));
  diag_fact(r, "the batch of %lld would be cut into parts of %lld samples", (long long)micro->size,
            (long long)micro->part);
  if (micro->linear) {
    diag_help(r, "`optim adamw` needs only the gradient of all samples");
    return MICRO_WHOLE;
  }
  diag_help(r,
            "`micro %lld` takes the batch whole; or write it as a sum over `%s` that only the loss "
            "divides",
            (long long)micro->size, micro->batch);
  return MICRO_WHOLE;
}

static bool whole(MicroState s) { return s == MICRO_WHOLE || s == MICRO_ZERO; }

static bool sum_like(MicroState s) { return s == MICRO_PARTIAL || whole(s); }

static bool no_fill(const Op *o) { return attr_float(&o->attrs, ATTR_fill, 0) == 0; }

/* Does the op map partial sums to partial sums, where the first micro-batch adds the whole
   terms? */
static bool linear(const Op *o, const MicroState *s) {
  switch (o->code) {
  case OP_mul:
  case OP_dot: return whole(s[o->in[0]]) != whole(s[o->in[1]]);
  case OP_div:
  case OP_gather:
  case OP_scatter:
  case OP_rope: return o->nin == 1 || whole(s[o->in[1]]);
  case OP_where: return whole(s[o->in[0]]) && sum_like(s[o->in[1]]) && sum_like(s[o->in[2]]);
  default: break;
  }
  for (uint32_t i = 0; i < o->nin; i++)
    if (!sum_like(s[o->in[i]])) return false;
  return (op_flags(o->code) & LINEAR) && no_fill(o);
}

bool micro_counts_once(const Op *o, const MicroState *s, uint32_t i) {
  bool product = o->code == OP_mul || o->code == OP_dot || o->code == OP_div ||
                 o->code == OP_gather || o->code == OP_scatter || o->code == OP_rope;
  if (product || (o->code == OP_where && !i)) return false;
  return s[o->out] == MICRO_PARTIAL && s[o->in[i]] == MICRO_WHOLE;
}

typedef struct StateOperands {
  bool sliced, partial, each, after;
} StateOperands;

static StateOperands operands(const Op *o, const MicroState *s) {
  StateOperands found = {0};
  for (uint32_t i = 0; i < o->nin; i++) {
    found.sliced |= s[o->in[i]] == MICRO_SLICED;
    found.partial |= s[o->in[i]] == MICRO_PARTIAL;
    found.each |= s[o->in[i]] == MICRO_EACH;
    found.after |= s[o->in[i]] == MICRO_AFTER;
  }
  return found;
}

static bool is_zero(const Op *o, const MicroState *s) {
  if (o->code == OP_const) return attr_float(&o->attrs, ATTR_value, 0) == 0;
  return (o->code == OP_expand || o->code == OP_rename) && s[o->in[0]] == MICRO_ZERO;
}

/* ---- loops ---- */
static MicroState joined(Micro *micro, const Op *o, MicroState a, MicroState b) {
  if (a == b) return a;
  if (whole(a) && whole(b)) return MICRO_WHOLE;
  if ((whole(a) && b == MICRO_EACH) || (a == MICRO_EACH && whole(b))) return MICRO_EACH;
  if (sum_like(a) && (b == MICRO_PARTIAL || b == MICRO_ZERO)) return MICRO_PARTIAL;
  return refuse(micro, o, "a carried value is a sum over `Batch` in some rounds only");
}

MicroState *micro_body_states(Micro *micro, const Op *o, const MicroState *s) {
  LoopShape shape = loop_shape(o);
  const Fn *body = o->callee;
  must(body->args.n == o->nin + 1 && body->results.n == o->nout,
       "micro: loop body %s does not fit its call", body->name);
  MicroState *args = ARENA_ARRAY(micro->m->arena, MicroState, body->args.n + 1);
  for (uint32_t i = 0; i < o->nin; i++) args[i + 1] = s[o->in[i]];
  for (;;) {
    MicroState *all = micro_states(micro, body, args);
    bool again = false;
    for (uint32_t i = 0; i < shape.carry && !micro->failed; i++) {
      MicroState j = joined(micro, o, args[i + 1], all[body->results.at[i]]);
      again |= j != args[i + 1];
      args[i + 1] = j;
    }
    if (!again || micro->failed) return all;
  }
}

static void loop_states(Micro *micro, const Op *o, MicroState *s) {
  const MicroState *body = micro_body_states(micro, o, s);
  for (uint32_t i = 0; i < o->nout; i++) {
    MicroState r = body[o->callee->results.at[i]];
    s[o->out + i] = r == MICRO_ZERO ? MICRO_WHOLE : r;
  }
}

/* ---- ops ---- */
/* In an entry, sums of partial sums are made inside, so that one accumulator is enough. */
static bool adds_partials(const Op *o, const MicroState *s) {
  return (o->code == OP_add || o->code == OP_sub) && s[o->in[0]] == MICRO_PARTIAL &&
         s[o->in[1]] == MICRO_PARTIAL;
}

bool micro_estimates(const Micro *micro, const Fn *f, const Op *o, const MicroState *s) {
  StateOperands in = operands(o, s);
  if (!in.partial || in.after || o->nout != 1 || o->code == OP_loop) return false;
  return in.sliced || in.each || has_batch(micro, f, o->out) || !linear(o, s);
}

static MicroState result_state(Micro *micro, const Fn *f, const Op *o, const MicroState *s,
                               StateOperands in) {
  bool batched = o->nout && has_batch(micro, f, o->out);
  if ((in.partial || in.after) && (in.sliced || batched))
    return refuse(micro, o, "it depends on a sum over `Batch`, for every sample");
  if (in.after && in.each) return refuse(micro, o, "it joins a micro-batch's value and one of all");
  if (in.after || micro_joins_workers(micro, o)) return MICRO_AFTER;
  if (in.partial && in.each)
    return refuse(micro, o, "it joins a micro-batch's value and a sum over all of `Batch`");
  if (in.partial)
    return linear(o, s)
               ? MICRO_PARTIAL
               : refuse(micro, o, "a sum over `Batch` goes through an op that is not linear");
  if (batched)
    return micro_works_on_parts(micro, o) ? MICRO_SLICED
                                          : refuse(micro, o, "it moves samples along `Batch`");
  if (in.sliced && o->nout)
    return sums_over_batch(micro, o)
               ? MICRO_PARTIAL
               : refuse(micro, o, "it reduces over `Batch` by another op than a sum");
  if (in.each) return o->code == OP_share ? MICRO_PARTIAL : MICRO_EACH;
  return is_zero(o, s) ? MICRO_ZERO : MICRO_WHOLE;
}

/* An op that no parameter influences: done before, on the whole batch, where it loses Batch or
 * cannot be cut. */
static void before(Micro *micro, const Fn *f, const Op *o, MicroState *s) {
  for (uint32_t i = 0; i < o->nout; i++)
    s[o->out + i] = has_batch(micro, f, o->out + i) ? MICRO_SLICED
                    : is_zero(o, s)                 ? MICRO_ZERO
                                                    : MICRO_WHOLE;
}

static void op_states(Micro *micro, const Fn *f, const Op *o, MicroState *s, bool entry,
                      bool term) {
  StateOperands in = operands(o, s);
  bool estimate = o->code == OP_estimate && in.partial && !micro->linear;
  if (estimate || (micro->aux && term && micro_estimates(micro, f, o, s)))
    in.partial = false, in.each = true;
  bool goes_on = adds_partials(o, s) || (term && linear(o, s)) || (micro->linear && linear(o, s));
  if (entry && in.partial && !goes_on) in.after = true;
  if (o->code == OP_loop && !in.after) {
    if (loop_shape(o).axis.dim == micro->batch) refuse(micro, o, "a loop runs over `Batch`");
    else loop_states(micro, o, s);
  } else if (o->nout) {
    MicroState r = result_state(micro, f, o, s, in);
    for (uint32_t i = 0; i < o->nout; i++) s[o->out + i] = r;
  }
}

MicroState *micro_states(Micro *micro, const Fn *f, const MicroState *args) {
  must(args || f->kind == FN_ENTRY, "micro: nothing is known of the arguments of %s", f->name);
  MicroState *s = ARENA_ARRAY(micro->m->arena, MicroState, f->values.n + 1);
  bool *free = args || micro->all_sums ? NULL : micro_free(micro, f);
  bool *term = micro->linear ? NULL : aux_cone(micro->m, f);
  for (uint32_t i = 0; i < f->args.n; i++) s[f->args.at[i]] = args[i];
  for (uint32_t i = 0; i < f->ops.n && !micro->failed; i++) {
    const Op *o = &f->ops.at[i];
    if (free && o->nout && free[o->out]) before(micro, f, o, s);
    else op_states(micro, f, o, s, !args, term && term[i]);
  }
  return s;
}

bool *micro_free(Micro *micro, const Fn *f) {
  bool *free = ARENA_ARRAY(micro->m->arena, bool, f->values.n + 1);
  EACH_OP (f, o) {
    bool all =
        o->code != OP_load || o->global->kind == GLOBAL_INPUT || o->global->kind == GLOBAL_SCALAR;
    for (uint32_t j = 0; j < o->nin; j++) all &= free[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) free[o->out + j] = all;
  }
  return free;
}

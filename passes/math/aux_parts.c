/* Terms of `aux` with micro-batches. A term that is linear in sums over Batch, such as a mean over
   samples, is the same however the batch is cut. Another one, such as a product of two means over
   the batch, is computed for each micro-batch, and the loss has the mean over micro-batches.

     e = estimate p   where a sum over Batch enters an op that is not linear: the micro-batch's own
                      sum, times their number (of a mean: the micro-batch's mean)
     t = share a      of the term itself (lower_term writes it): its part of the mean

   With one micro-batch both are their operand. Both have themselves as gradient, so the gradient is
   that of the mean. Pass `tally` calls this before gradients exist; pass `micro` multiplies by the
   number and its inverse. `loss` itself has no such terms: E0706 says where it needs all samples.
   Must not: touch what `aux` does not depend on. */
#include "micro.h"

bool *aux_cone(Module *m, const Fn *f) {
  bool *cone = ARENA_ARRAY(m->arena, bool, f->ops.n + 1), any = false;
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    any |= cone[i] |= o->code == OP_share;
    for (uint32_t k = 0; cone[i] && k < o->nin; k++)
      if (f->values.at[o->in[k]].def != NO_OP) cone[f->values.at[o->in[k]].def] = true;
  }
  return any ? cone : NULL;
}

typedef struct AuxSite { /* one function */
  Micro *micro;
  const MicroState *state; /* by value of rebuild.from */
  const bool *cone;        /* by op of rebuild.from; NULL: none */
  Rebuild rebuild;
  ValueId *estimate; /* by value of rebuild.from, NO_VALUE: none yet */
} AuxSite;

static Fn *rewrite(Micro *micro, const Fn *f, const MicroState *state);

static ValueId estimated(AuxSite *site, ValueId v, Loc loc) {
  ValueId *at = &site->estimate[v];
  if (*at == NO_VALUE)
    *at = ir_unary(site->micro->m, site->rebuild.to, OP_estimate, site->rebuild.map[v], loc);
  return *at;
}

static void rewrite_loop(AuxSite *site, const Op *o) {
  Module *m = site->micro->m;
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = site->rebuild.map[o->in[i]];
  Fn *body = rewrite(site->micro, o->callee, micro_body_states(site->micro, o, site->state));
  ValueId out = rebuild_loop(m, site->rebuild.to, body, loop_shape(o), in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) site->rebuild.map[o->out + i] = out + i;
}

static void rewrite_op(AuxSite *site, const Op *o) {
  const MicroState *s = site->state;
  if (o->code == OP_loop) {
    rewrite_loop(site, o);
    return;
  }
  if (o->code == OP_share && s[o->in[0]] != MICRO_EACH) {
    site->rebuild.map[o->out] = site->rebuild.map[o->in[0]];
    return;
  }
  bool term = site->cone && site->cone[o - site->rebuild.from->ops.at] &&
              micro_estimates(site->micro, site->rebuild.from, o, s);
  ValueId *in = ARENA_ARRAY(site->micro->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = term && s[o->in[i]] == MICRO_PARTIAL ? estimated(site, o->in[i], o->loc)
                                                 : site->rebuild.map[o->in[i]];
  Op *made = rebuild_op(&site->rebuild, o);
  for (uint32_t i = 0; i < o->nin; i++) made->in[i] = in[i];
}

static Fn *rewrite(Micro *micro, const Fn *f, const MicroState *state) {
  AuxSite site = {micro, state, aux_cone(micro->m, f), rebuild_begin(micro->m, f),
                  value_map(micro->m, f)};
  for (OpId i = 0; i < f->ops.n; i++) rewrite_op(&site, &f->ops.at[i]);
  rebuild_results(&site.rebuild);
  return site.rebuild.to;
}

static bool has_parts(const Fn *f) {
  EACH_OP (f, o)
    if (o->code == OP_estimate || o->code == OP_share) return true;
  return false;
}

/* Values that need all samples otherwise stay: pass `micro` refuses them, if it cuts the batch. */
void aux_parts(Module *m, const char *entry) {
  Fn *f = entry_of(m, entry);
  Micro micro = {.m = m, .batch = intern(m->ctx->names, "Batch"), .quiet = true, .aux = true};
  bool any = false;
  for (uint32_t i = 0; i < m->fns.n; i++) any |= has_parts(m->fns.at[i]);
  if (!f || !any) return;
  const MicroState *state = micro_states(&micro, f, NULL);
  if (micro.failed) return;
  module_replace(m, f, rewrite(&micro, f, state));
  module_collect(m);
}

static Fn *finished(Module *m, const Fn *f, double parts) {
  Rebuild rebuild = rebuild_begin(m, f);
  EACH_OP (f, o) {
    bool up = o->code == OP_estimate;
    if (!up && o->code != OP_share) {
      rebuild_op(&rebuild, o);
      continue;
    }
    ValueId v = rebuild.map[o->in[0]];
    if (parts != 1) {
      ValueId by =
          ir_const(m, rebuild.to, value_type(rebuild.to, v)->elem, up ? parts : 1 / parts, o->loc);
      v = ir_binary(m, rebuild.to, OP_mul, v, by, o->loc);
    }
    rebuild.map[o->out] = v;
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}

void aux_finish(Module *m, double parts) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (has_parts(m->fns.at[i])) module_replace(m, m->fns.at[i], finished(m, m->fns.at[i], parts));
}

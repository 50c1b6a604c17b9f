/* eights: with `precision fp8`, marks the products that compute in 8 bits: those of a parameter and
   a value in the layers of a stack. Attribute `eights` says which operand is the parameter; `grad`
   marks both products of the gradient of a marked one, and pass `quantize` rounds the operands of
   all of them.

   Not marked: products outside of stacks (embeddings, patches, the head), of two values (scores of
   attention), of numbers computed from parameters, of parameters marked @f32, and those from whose
   result positions are chosen (routers). Products of values marked @f32 run in f32: pass `quantize`
   removes their mark. A plan that marks nothing is refused (E0602). Kernels multiply in bf16 what
   is rounded to 8 bits, but for GPUs with wgmma, where pass `order` chooses (order_codes.c): other
   GPUs have no faster products that are used, and it is said (W0709). Runs before `grad`. */
#include "ir/eights.h"
#include "ir/plan/module_settings.h"
#include "passes/base/rebuild.h"

static bool keeps_elements(const Op *o) {
  bool moves = op_family(o->code) == FAMILY_STRUCT && o->code != OP_rope && o->nin == 1;
  return moves || o->code == OP_cast || o->code == OP_copy;
}

/* ---- values that choose positions ---- */

static bool passes_on(const Op *o) {
  OpFamily family = op_family(o->code);
  return family == FAMILY_ELEM || family == FAMILY_STRUCT || family == FAMILY_REDUCE ||
         family == FAMILY_SCAN;
}

static bool *find_choosing(const Module *m, const Fn *f) {
  bool *chooses = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  for (OpId at = f->ops.n; at-- > 0;) {
    const Op *o = &f->ops.at[at];
    bool on = false;
    for (uint32_t i = 0; i < o->nout && passes_on(o); i++) on |= chooses[o->out + i];
    bool indexes = o->code == OP_gather || o->code == OP_scatter;
    for (uint32_t i = 0; i < o->nin; i++)
      chooses[o->in[i]] |= on || o->code == OP_argmax || (indexes && i == 1);
  }
  return chooses;
}

/* ---- products ---- */

static uint32_t mark_dot(Module *m, Op *o, const bool *weight, const bool *chooses) {
  bool first = weight[o->in[0]], second = weight[o->in[1]];
  if (first == second || chooses[o->out] || !o->ngroups || !o->group[0].nfrom) return 0;
  int64_t kinds[] = {first ? EIGHTS_WEIGHT : EIGHTS_VALUE, second ? EIGHTS_WEIGHT : EIGHTS_VALUE};
  attr_set_ints(m, &o->attrs, ATTR_eights, 2, kinds);
  return 1;
}

/* How many products are marked. */
static uint32_t mark(Module *m, Fn *f, const bool *args, bool layer);

static uint32_t mark_loop(Module *m, const Op *o, const bool *weight) {
  LoopShape shape = loop_shape(o);
  bool *args = ARENA_ARRAY(m->arena, bool, o->callee->args.n + 1);
  for (uint32_t i = shape.carry; i < o->nin; i++) args[i + 1] = weight[o->in[i]];
  return mark(m, o->callee, args, shape.rounds == ROUNDS_layers);
}

static uint32_t mark(Module *m, Fn *f, const bool *args, bool layer) {
  uint32_t marked = 0;
  bool *weight = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  const bool *chooses = find_choosing(m, f);
  for (uint32_t i = 0; i < f->args.n; i++) weight[f->args.at[i]] = args[i];
  EACH_OP (f, o) {
    bool is = o->code == OP_load ? o->global->kind == GLOBAL_PARAM
                                 : keeps_elements(o) && weight[o->in[0]];
    for (uint32_t i = 0; i < o->nout; i++) weight[o->out + i] = is;
    if (o->code == OP_dot && layer)
      marked += mark_dot(m, &f->ops.at[o - f->ops.at], weight, chooses);
    if (o->code == OP_loop) marked += mark_loop(m, o, weight);
  }
  return marked;
}

/* ---- what is said ---- */

static void refuse(const Module *m, Span at) {
  Report *r = diag_at(m->ctx->diag, "E0602", at, "`precision fp8` has no product to round");
  diag_label(r, "it rounds products of parameters in the layers of a `stack`");
  diag_help(r,
            "`precision bf16`, or make the layers a `stack`; products outside of it stay in bf16");
}

static void warn_no_faster(const Module *m, Span at) {
  Report *r =
      diag_at(m->ctx->diag, "W0709", at, "`precision fp8` saves no time on `%s`", m->target.name);
  diag_label(r, "operands are rounded to 8 bits and multiplied in bf16: the losses of fp8 alone");
  diag_help(r, "`precision bf16` is faster");
}

void pass_eights(Module *m) {
  if (!plan_eights(m)) return;
  Span at = module_written(m, "plan.precision").value;
  uint32_t marked = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) marked += mark(m, m->fns.at[i], NULL, false);
  if (!marked) refuse(m, at);
  else if (module_on_gpu(m) && !m->target.wgmma) warn_no_faster(m, at);
}

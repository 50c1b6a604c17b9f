/* inline: every `call` is replaced by the ops of its callee, everywhere, bodies of loops included.

   Callees come first in the list of functions, so a callee is free of calls when its caller is
   rebuilt; one walk is enough. Ops keep the position they have in the callee. Functions that no
   entry reaches any more are dropped. */
#include "passes/base/rebuild.h"

static void inline_call(Rebuild *rebuild, const Op *call) {
  const Fn *g = call->callee;
  must(g->args.n == call->nin && g->results.n == call->nout, "inline: @%s does not fit its call",
       g->name);
  ValueId *map = value_map(rebuild->m, g);
  for (uint32_t i = 0; i < call->nin; i++) map[g->args.at[i]] = rebuild->map[call->in[i]];
  for (uint32_t i = 0; i < g->ops.n; i++)
    fn_clone_op(rebuild->m, rebuild->to, g, &g->ops.at[i], map);
  for (uint32_t i = 0; i < call->nout; i++) rebuild->map[call->out + i] = map[g->results.at[i]];
}

static Fn *without_calls(Module *m, const Fn *f) {
  Rebuild rebuild = rebuild_begin(m, f);
  EACH_OP (f, o)
    if (o->code == OP_call) inline_call(&rebuild, o);
    else rebuild_op(&rebuild, o);
  rebuild_results(&rebuild);
  return rebuild.to;
}

static bool has_calls(const Fn *f) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_call) return true;
  return false;
}

void pass_inline(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (has_calls(m->fns.at[i])) module_replace(m, m->fns.at[i], without_calls(m, m->fns.at[i]));
  module_collect(m);
}

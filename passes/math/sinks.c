/* sinks: the sink of an attention becomes a factor on its results.

   With y and l of the attention without the sink s, the softmax over scores and sink has

     l' = log(e^l + e^s)    y' = e^(l - l') y

   attention_grad gets y' and l' from `grad`: with them its probabilities and sums are right. So no
   kernel knows sinks. Must not: divide by e^l, which is 0 for a query without keys. */
#include "ir/attention_operands.h"
#include "passes/base/rebuild.h"

static Op *without_sink(Rebuild *rebuild, const Op *o, ValueId sink) {
  Op plain = *o;
  plain.in = ARENA_ARRAY(rebuild->m->arena, ValueId, o->nin);
  plain.nin = 0;
  for (uint32_t i = 0; i < o->nin; i++)
    if (o->in[i] != sink) plain.in[plain.nin++] = o->in[i];
  return rebuild_op(rebuild, &plain);
}

static void write_attention(Rebuild *rebuild, const Op *o) {
  ValueId sink = attention_sink(rebuild->from, o);
  if (sink == NO_VALUE) {
    rebuild_op(rebuild, o);
    return;
  }
  Module *m = rebuild->m;
  ValueId y = without_sink(rebuild, o, sink)->out, l = y + 1;
  Type rows = *value_type(rebuild->to, l), all = *value_type(rebuild->to, y);
  ValueId s = ir_cast(m, rebuild->to, rebuild->map[sink], ELEM_f32, o->loc);
  s = emit_spread(m, rebuild->to, s, rows, o->loc);
  ValueId joined = ir_binary(m, rebuild->to, OP_logaddexp, l, s, o->loc);
  ValueId share = ir_unary(m, rebuild->to, OP_exp,
                           ir_binary(m, rebuild->to, OP_sub, l, joined, o->loc), o->loc);
  share =
      emit_spread(m, rebuild->to, ir_cast(m, rebuild->to, share, all.elem, o->loc), all, o->loc);
  rebuild->map[o->out] = ir_binary(m, rebuild->to, OP_mul, y, share, o->loc);
  rebuild->map[o->out + 1] = joined;
}

static bool has_sinks(const Fn *f) {
  EACH_OP (f, o)
    if (o->code == OP_attention && attention_sink(f, o) != NO_VALUE) return true;
  return false;
}

void pass_sinks(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (!has_sinks(f)) continue;
    Rebuild rebuild = rebuild_begin(m, f);
    EACH_OP (f, o)
      if (o->code == OP_attention) write_attention(&rebuild, o);
      else rebuild_op(&rebuild, o);
    rebuild_results(&rebuild);
    module_replace(m, f, rebuild.to);
  }
}

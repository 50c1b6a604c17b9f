/* Operands of attention; see attention_operands.h. */
#include "attention_operands.h"

uint32_t attention_fixed(const Op *attention) { return attention->code == OP_attention ? 3 : 6; }

AttentionRole attention_role(const Op *attention, const Type *operand) {
  if (operand->elem == ELEM_bool) return ATTENTION_MASK;
  if (elem_class(operand->elem) == CLASS_INT) return ATTENTION_KEPT;
  return type_find(operand, attention->group[0].to[0]) < 0 ? ATTENTION_SINK : ATTENTION_BIAS;
}

static ValueId further(const Fn *f, const Op *attention, AttentionRole role) {
  for (uint32_t i = attention_fixed(attention); i < attention->nin; i++)
    if (attention_role(attention, value_type(f, attention->in[i])) == role) return attention->in[i];
  return NO_VALUE;
}

ValueId attention_mask(const Fn *f, const Op *attention) {
  return further(f, attention, ATTENTION_MASK);
}
ValueId attention_kept(const Fn *f, const Op *attention) {
  return further(f, attention, ATTENTION_KEPT);
}
ValueId attention_bias(const Fn *f, const Op *attention) {
  return further(f, attention, ATTENTION_BIAS);
}
ValueId attention_sink(const Fn *f, const Op *attention) {
  return further(f, attention, ATTENTION_SINK);
}

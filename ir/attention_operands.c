/* Operands of attention; see attention_operands.h. */
#include "attention_operands.h"

uint32_t attention_fixed(const Op *attention) { return attention->code == OP_attention ? 3 : 6; }

static ValueId further(const Fn *f, const Op *attention, bool mask) {
  for (uint32_t i = attention_fixed(attention); i < attention->nin; i++)
    if ((value_type(f, attention->in[i])->elem == ELEM_bool) == mask) return attention->in[i];
  return NO_VALUE;
}

ValueId attention_mask(const Fn *f, const Op *attention) { return further(f, attention, true); }
ValueId attention_sink(const Fn *f, const Op *attention) { return further(f, attention, false); }

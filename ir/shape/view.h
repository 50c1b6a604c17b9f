/* Views: results that are their operand's bytes, seen with other dims. Pass `order` gives them
   these strides and this offset; the verifier holds a dump's against them. */
#ifndef SHARDC_VIEW_H
#define SHARDC_VIEW_H
#include "ir/ir.h"

/* Storage of result i, of that type, of a VIEW op whose operand has strides. False: no strides do
   it, a kernel must copy. */
bool view_layout(const Fn *f, const Op *o, uint32_t i, const Type *type, Storage *out);
#endif

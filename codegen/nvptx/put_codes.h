/* Numbers of 8 bits in memory (ir/codes.h): their codes, and how kernels write them. */
#ifndef SHARDC_NVPTX_PUT_CODES_H
#define SHARDC_NVPTX_PUT_CODES_H
#include "codegen/emit.h"
#include "ir/codes.h"

/* Where the scales of a buffer begin. */
LLVMValueRef emit_scales(Emit *e, uint32_t buffer, const Codes *codes);
/* The scale of a block whose largest number is `most`: f32 or some of them; NaN: the block has no
   codes. And 1 / scale, by which its numbers are multiplied. */
LLVMValueRef codes_scale(Emit *e, const EightsFormat *format, LLVMValueRef most);
LLVMValueRef codes_inverse(Emit *e, LLVMValueRef scale);
/* i16: codes of two f32 that were multiplied by it, the first one below. */
LLVMValueRef codes_pair(Emit *e, const EightsFormat *format, LLVMValueRef low, LLVMValueRef high);
/* The number of the point's (first) element of v in storage order. */
LLVMValueRef codes_offset(Emit *e, ValueId v, const Point *p);
/* Stores the scale of the element of that number, if a block begins with it. */
void codes_put_scale(Emit *e, uint32_t buffer, const Codes *codes, LLVMValueRef offset,
                     LLVMValueRef scale);
/* Stores result v, which is rounded to 8 bits, at a point, with the scale if a block begins. */
void nvptx_put_codes(Emit *e, ValueId v, uint32_t buffer, const Point *p);
#endif

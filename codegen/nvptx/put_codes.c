/* Codes of 8 bits and their scales: see put_codes.h. A scale is a power of two and follows from the
   bits of the block's largest number, as in eights.c; the instruction that converts rounds to the
   nearest, ties to even. Lanes of a vector are neighbours along the summed dim: they have one
   scale. Must not: write a scale twice. */
#include "put_codes.h"
#include "simt.h"
#include "space.h"
#include <math.h>

enum { BIAS = 127, FRACTION = 23, UP = 0x1FFFFF }; /* UP carries where 1.75 is exceeded */

static LLVMTypeRef byte(Emit *e) { return LLVMInt8TypeInContext(e->context); }

LLVMValueRef emit_scales(Emit *e, uint32_t buffer, const Codes *codes) {
  LLVMValueRef at = emit_i64(e, codes->count);
  return LLVMBuildInBoundsGEP2(e->builder, byte(e), emit_buffer(e, buffer), &at, 1, "");
}

static LLVMTypeRef words(Emit *e, LLVMValueRef x) {
  int lanes = emit_lanes_of(x);
  return lanes ? emit_vector(e, ELEM_i32, lanes) : LLVMInt32TypeInContext(e->context);
}

LLVMValueRef codes_scale(Emit *e, const EightsFormat *format, LLVMValueRef most) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef scale = LLVMBuildBitCast(builder, most, words(e, most), "");
  scale = LLVMBuildAdd(builder, scale, simt_i32_like(e, most, UP), "");
  scale = LLVMBuildAnd(builder, scale, simt_i32_like(e, most, 0xFFLL << FRACTION), "");
  int64_t least = (int64_t)(BIAS + EIGHTS_LEAST_SCALE + format->top) << FRACTION;
  LLVMValueRef lowest = simt_i32_like(e, most, least);
  LLVMValueRef below = LLVMBuildICmp(builder, LLVMIntULT, scale, lowest, "");
  scale = LLVMBuildSelect(builder, below, lowest, scale, "");
  scale =
      LLVMBuildSub(builder, scale, simt_i32_like(e, most, (int64_t)format->top << FRACTION), "");
  scale = LLVMBuildBitCast(builder, scale, LLVMTypeOf(most), "");
  LLVMValueRef fits = LLVMBuildFCmp(builder, LLVMRealOLE, most,
                                    simt_f32_like(e, most, ldexp(1, EIGHTS_LARGEST)), "");
  return LLVMBuildSelect(builder, fits, scale, simt_f32_like(e, most, NAN), "");
}

LLVMValueRef codes_inverse(Emit *e, LLVMValueRef scale) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef bits = LLVMBuildBitCast(builder, scale, words(e, scale), "");
  bits = LLVMBuildSub(builder, simt_i32_like(e, scale, 2LL * BIAS << FRACTION), bits, "");
  LLVMValueRef inverse = LLVMBuildBitCast(builder, bits, LLVMTypeOf(scale), "");
  LLVMValueRef none = LLVMBuildFCmp(builder, LLVMRealUNO, scale, scale, "");
  return LLVMBuildSelect(builder, none, scale, inverse, "");
}

LLVMValueRef codes_pair(Emit *e, const EightsFormat *format, LLVMValueRef low, LLVMValueRef high) {
  const char *text = arena_printf(e->arena, "cvt.rn.satfinite.%sx2.f32 $0, $1, $2;", format->name);
  LLVMValueRef args[] = {high, low};
  return simt_asm(e, text, "=h,f,f", LLVMInt16TypeInContext(e->context), 2, args, true);
}

/* Codes of a scalar: i8; of a vector: as many of them. */
static LLVMValueRef codes_of(Emit *e, const EightsFormat *format, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  int lanes = emit_lanes_of(x);
  if (!lanes) return LLVMBuildTrunc(builder, codes_pair(e, format, x, x), byte(e), "");
  LLVMTypeRef pair = LLVMInt16TypeInContext(e->context);
  LLVMValueRef all = LLVMGetPoison(LLVMVectorType(pair, (unsigned)lanes / 2));
  for (int i = 0; i < lanes / 2; i++) {
    LLVMValueRef two[2];
    for (int j = 0; j < 2; j++)
      two[j] = LLVMBuildExtractElement(builder, x, simt_i32(e, 2 * i + j), "");
    all = LLVMBuildInsertElement(builder, all, codes_pair(e, format, two[0], two[1]),
                                 simt_i32(e, i), "");
  }
  return LLVMBuildBitCast(builder, all, LLVMVectorType(byte(e), (unsigned)lanes), "");
}

LLVMValueRef codes_offset(Emit *e, ValueId v, const Point *p) {
  const Type *t = value_type(e->k, v);
  LLVMValueRef offset = emit_index(e, 0);
  for (int a = 0; a < t->rank; a++) {
    const Index *index = point_find(p, t->axis[a].dim);
    int64_t stride = expr_stride(e->k, v, a);
    must(index && !index->each, "kernel %s: codes at moved indexes", e->k->name);
    offset = index_mul_add(e, index->at, stride, offset);
  }
  return offset;
}

void codes_put_scale(Emit *e, uint32_t buffer, const Codes *codes, LLVMValueRef offset,
                     LLVMValueRef scale) {
  LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntEQ, index_rem(e, offset, EIGHTS_BLOCK),
                                     emit_index(e, 0), "");
  Branch branch = emit_if(e, first);
  LLVMValueRef block = index_div(e, index_rem(e, offset, codes->run), EIGHTS_BLOCK);
  LLVMValueRef at =
      index_mul_add(e, block, codes->count / codes->run, index_div(e, offset, codes->run));
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  LLVMValueRef to =
      LLVMBuildInBoundsGEP2(e->builder, f32, emit_scales(e, buffer, codes), &at, 1, "");
  LLVMSetAlignment(LLVMBuildStore(e->builder, scale, to), 4);
  emit_end_if(e, branch);
}

void nvptx_put_codes(Emit *e, ValueId v, uint32_t buffer, const Point *p) {
  Codes codes;
  const Op *quantize = codes_quantize(e->k, v);
  if (!kernel_codes(e->k, buffer, &codes) || !quantize)
    bug("kernel %s: its result is not rounded to 8 bits", e->k->name);
  LLVMValueRef x = expr_value(e, quantize->in[0], p), most = expr_value(e, quantize->in[1], p);
  if (emit_lanes_of(most)) most = LLVMBuildExtractElement(e->builder, most, simt_i32(e, 0), "");
  LLVMValueRef scale = codes_scale(e, codes.format, most);
  LLVMValueRef by = emit_splat(e, codes_inverse(e, scale), emit_lanes_of(x));
  LLVMValueRef bytes = codes_of(e, codes.format, LLVMBuildFMul(e->builder, x, by, ""));
  LLVMValueRef offset = codes_offset(e, v, p);
  LLVMValueRef to =
      LLVMBuildInBoundsGEP2(e->builder, byte(e), emit_buffer(e, buffer), &offset, 1, "");
  int lanes = emit_lanes_of(x);
  LLVMSetAlignment(LLVMBuildStore(e->builder, bytes, to), lanes ? (unsigned)lanes : 1);
  codes_put_scale(e, buffer, &codes, offset, scale);
}

/* Operands of the micro-kernel, 32 bits each: one f32, or, where the machine has dot products of
   bf16 pairs (VDPBF16PS: both products are added to an f32; tile depth 2), two neighbours along k,
   the first one in the lower half. A pair without a second element has a zero there.

   Operands in memory may be wider than the product's type: they are rounded here. Both halves of a
   product are added in f32; the machine's instruction takes denormals as zeros. */
#include "contract.h"

static LLVMTypeRef several(LLVMTypeRef type, int n) {
  return n > 1 ? LLVMVectorType(type, (unsigned)n) : type;
}

static LLVMTypeRef whole(Contract *c, int bits, int n) {
  return several(LLVMIntTypeInContext(c->e->context, (unsigned)bits), n);
}

static Elem elem_of(const Contract *c, ProductSide s) {
  return s == SIDE_A ? c->product.elem_a : c->product.elem_b;
}

/* n contiguous elements as they are in memory; those that mask excludes are zeros */
static LLVMValueRef load(Contract *c, Elem elem, LLVMValueRef address, int n, LLVMValueRef mask) {
  Emit *e = c->e;
  LLVMTypeRef type = several(contract_memory(e, elem), n);
  if (mask) {
    LLVMTypeRef types[] = {type, c->ptr};
    LLVMValueRef align =
        LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)elem_bytes(elem), 0);
    LLVMValueRef args[] = {address, align, mask, LLVMConstNull(type)};
    return emit_intrinsic_types(e, "llvm.masked.load", 2, types, 4, args);
  }
  LLVMValueRef x = LLVMBuildLoad2(e->builder, type, address, "");
  LLVMSetAlignment(x, (unsigned)elem_bytes(elem));
  return x;
}

/* .. as f32 that is rounded to the product's type */
static LLVMValueRef load_f32(Contract *c, Elem elem, LLVMValueRef address, int n,
                             LLVMValueRef mask) {
  LLVMValueRef x = expr_from_memory(c->e, elem, load(c, elem, address, n, mask));
  x = expr_convert(c->e, x, elem, ELEM_f32);
  return elem == c->product.compute ? x : expr_convert(c->e, x, ELEM_f32, c->product.compute);
}

/* .. as the 16 bits of the product's type */
static LLVMValueRef load_half(Contract *c, Elem elem, LLVMValueRef address, int n,
                              LLVMValueRef mask) {
  LLVMValueRef x = load(c, elem, address, n, mask);
  return elem == c->product.compute ? x : expr_to_memory(c->e, c->product.compute, x);
}

static LLVMValueRef joined(Contract *c, LLVMValueRef low, LLVMValueRef high, int n) {
  LLVMBuilderRef b = c->e->builder;
  LLVMTypeRef word = whole(c, 32, n);
  LLVMValueRef shift = LLVMConstInt(LLVMInt32TypeInContext(c->e->context), 16, 0);
  low = LLVMBuildZExt(b, low, word, "");
  if (high) {
    high = LLVMBuildZExt(b, high, word, "");
    high = LLVMBuildShl(b, high, n > 1 ? emit_splat(c->e, shift, n) : shift, "");
    low = LLVMBuildOr(b, low, high, "");
  }
  return LLVMBuildBitCast(b, low, several(c->f32, n), "");
}

/* Whether two vectors of f32 become one of bf16 by one instruction. */
static bool rounds_two(const Contract *c, Elem elem, int n) {
  bool has = c->e->target->facts.rounds && c->plan.lanes == 16;
  return has && n == c->plan.lanes && elem == ELEM_f32 && c->product.compute == ELEM_bf16;
}

/* 2 n elements: first those of low, then those of high */
static LLVMValueRef round_two(Contract *c, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef args[] = {high, low};
  return emit_intrinsic_types(c->e, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", 0, NULL, 2, args);
}

/* Element i of low beside element i of high */
static LLVMValueRef round_joined(Contract *c, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef x = round_two(c, low, high), index[64];
  LLVMTypeRef i32 = LLVMInt32TypeInContext(c->e->context);
  int n = c->plan.lanes;
  for (int i = 0; i < 2 * n; i++)
    index[i] = LLVMConstInt(i32, (unsigned)(i % 2 ? n + i / 2 : i / 2), 0);
  LLVMValueRef mix = LLVMConstVector(index, 2 * (unsigned)n);
  x = LLVMBuildShuffleVector(c->e->builder, x, LLVMGetPoison(LLVMTypeOf(x)), mix, "");
  return LLVMBuildBitCast(c->e->builder, x, c->vector, "");
}

LLVMValueRef contract_operand(Contract *c, ProductSide s, LLVMValueRef address, int n,
                              LLVMValueRef mask, bool half) {
  Elem elem = elem_of(c, s);
  if (!c->pairs) return load_f32(c, elem, address, n, mask);
  LLVMValueRef next = tile_elements(c->e, contract_memory(c->e, elem), address,
                                    emit_i64(c->e, contract_inner_stride(&c->product.k, s)));
  if (!half && rounds_two(c, elem, n))
    return round_joined(c, load(c, elem, address, n, mask), load(c, elem, next, n, mask));
  LLVMValueRef low = load_half(c, elem, address, n, mask);
  return joined(c, low, half ? NULL : load_half(c, elem, next, n, mask), n);
}

LLVMValueRef contract_run(Contract *c, ProductSide s, LLVMValueRef address, int n) {
  Elem elem = elem_of(c, s);
  LLVMTypeRef words = several(c->f32, n);
  if (!c->pairs) return load_f32(c, elem, address, n, NULL);
  if (rounds_two(c, elem, n)) {
    LLVMValueRef next = tile_elements(c->e, c->f32, address, emit_i64(c->e, n));
    LLVMValueRef low = load(c, elem, address, n, NULL), high = load(c, elem, next, n, NULL);
    return LLVMBuildBitCast(c->e->builder, round_two(c, low, high), c->vector, "");
  }
  return LLVMBuildBitCast(c->e->builder, load_half(c, elem, address, 2 * n, NULL), words, "");
}

LLVMValueRef contract_multiply(Contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum) {
  must(LLVMTypeOf(a) == LLVMTypeOf(b), "kernel %s: a product of two types", c->k->name);
  if (!c->pairs) return emit_fma(c->e, a, b, sum);
  LLVMBuilderRef r = c->e->builder;
  int lanes = c->plan.lanes;
  LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(c->e->context), 2 * (unsigned)lanes);
  LLVMValueRef args[] = {sum, LLVMBuildBitCast(r, a, pairs, ""), LLVMBuildBitCast(r, b, pairs, "")};
  return emit_intrinsic_types(c->e, "llvm.x86.avx512bf16.dpbf16ps.512", 0, NULL, 3, args);
}

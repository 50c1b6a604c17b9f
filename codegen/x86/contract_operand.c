/* Operands of the micro-kernel, 32 bits each: one f32, or, where the machine has dot products of
   bf16 pairs (VDPBF16PS: both products are added to an f32; tile depth 2), two neighbours along k,
   the first one in the lower half. A pair without a second element has a zero in its place.

   Operands in memory may be wider than the product's type: they are rounded when they are read.
   Both halves of a product are added in f32; the machine's instruction takes denormals as zeros. */
#include "contract.h"

static LLVMTypeRef whole(Contract *contract, int bits, int n) {
  return contract_vector(LLVMIntTypeInContext(contract->e->context, (unsigned)bits), n);
}

static Elem elem_of(const Contract *contract, ProductSide s) {
  return s == SIDE_A ? contract->product.elem_a : contract->product.elem_b;
}

/* n contiguous elements as they are in memory; those that mask excludes are zeros */
static LLVMValueRef load(Contract *contract, Elem elem, LLVMValueRef address, int n,
                         LLVMValueRef mask) {
  Emit *emit = contract->e;
  LLVMTypeRef type = contract_vector(contract_memory(emit, elem), n);
  if (mask) {
    LLVMTypeRef types[] = {type, contract->ptr};
    LLVMValueRef align =
        LLVMConstInt(LLVMInt32TypeInContext(emit->context), (unsigned)elem_bytes(elem), 0);
    LLVMValueRef args[] = {address, align, mask, LLVMConstNull(type)};
    return emit_intrinsic_types(emit, "llvm.masked.load", 2, types, 4, args);
  }
  LLVMValueRef x = LLVMBuildLoad2(emit->builder, type, address, "");
  LLVMSetAlignment(x, (unsigned)elem_bytes(elem));
  return x;
}

/* .. as f32 that is rounded to the product's type */
LLVMValueRef contract_load(Contract *contract, Elem elem, LLVMValueRef address, int n,
                           LLVMValueRef mask) {
  LLVMValueRef x = expr_from_memory(contract->e, elem, load(contract, elem, address, n, mask));
  x = expr_convert(contract->e, x, elem, ELEM_f32);
  return elem == contract->product.compute
             ? x
             : expr_convert(contract->e, x, ELEM_f32, contract->product.compute);
}

/* .. as the 16 bits of the product's type */
static LLVMValueRef load_half(Contract *contract, Elem elem, LLVMValueRef address, int n,
                              LLVMValueRef mask) {
  LLVMValueRef x = load(contract, elem, address, n, mask);
  return elem == contract->product.compute
             ? x
             : expr_to_memory(contract->e, contract->product.compute, x);
}

static LLVMValueRef joined(Contract *contract, LLVMValueRef low, LLVMValueRef high, int n) {
  LLVMBuilderRef builder = contract->e->builder;
  LLVMTypeRef word = whole(contract, 32, n);
  LLVMValueRef shift = LLVMConstInt(LLVMInt32TypeInContext(contract->e->context), 16, 0);
  low = LLVMBuildZExt(builder, low, word, "");
  if (high) {
    high = LLVMBuildZExt(builder, high, word, "");
    high = LLVMBuildShl(builder, high, n > 1 ? emit_splat(contract->e, shift, n) : shift, "");
    low = LLVMBuildOr(builder, low, high, "");
  }
  return LLVMBuildBitCast(builder, low, contract_vector(contract->f32, n), "");
}

/* Whether two vectors of f32 become one of bf16 by one instruction. */
static bool rounds_two(const Contract *contract, Elem elem, int n) {
  bool has = contract->e->target->facts.bf16_dot && contract->plan.lanes == 16;
  return has && n == contract->plan.lanes && elem == ELEM_f32 &&
         contract->product.compute == ELEM_bf16;
}

/* 2 n elements: first those of low, then those of high */
static LLVMValueRef round_two(Contract *contract, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef args[] = {high, low};
  return emit_intrinsic_types(contract->e, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", 0, NULL, 2,
                              args);
}

/* Element i of low next to element i of high */
static LLVMValueRef round_joined(Contract *contract, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef x = round_two(contract, low, high), index[64];
  LLVMTypeRef i32 = LLVMInt32TypeInContext(contract->e->context);
  int n = contract->plan.lanes;
  for (int i = 0; i < 2 * n; i++)
    index[i] = LLVMConstInt(i32, (unsigned)(i % 2 ? n + i / 2 : i / 2), 0);
  LLVMValueRef mix = LLVMConstVector(index, 2 * (unsigned)n);
  x = LLVMBuildShuffleVector(contract->e->builder, x, LLVMGetPoison(LLVMTypeOf(x)), mix, "");
  return LLVMBuildBitCast(contract->e->builder, x, contract->vector, "");
}

LLVMValueRef contract_operand(Contract *contract, ProductSide side, LLVMValueRef address, int n,
                              LLVMValueRef mask, bool half) {
  Elem elem = elem_of(contract, side);
  if (!contract->pairs) return contract_load(contract, elem, address, n, mask);
  LLVMValueRef next =
      tile_elements(contract->e, contract_memory(contract->e, elem), address,
                    emit_i64(contract->e, contract_inner_stride(&contract->product.k, side)));
  if (!half && rounds_two(contract, elem, n))
    return round_joined(contract, load(contract, elem, address, n, mask),
                        load(contract, elem, next, n, mask));
  LLVMValueRef low = load_half(contract, elem, address, n, mask);
  return joined(contract, low, half ? NULL : load_half(contract, elem, next, n, mask), n);
}

LLVMValueRef contract_run(Contract *contract, ProductSide side, LLVMValueRef address, int n) {
  Elem elem = elem_of(contract, side);
  LLVMTypeRef words = contract_vector(contract->f32, n);
  if (!contract->pairs) return contract_load(contract, elem, address, n, NULL);
  if (rounds_two(contract, elem, n)) {
    LLVMValueRef next =
        tile_elements(contract->e, contract->f32, address, emit_i64(contract->e, n));
    LLVMValueRef low = load(contract, elem, address, n, NULL),
                 high = load(contract, elem, next, n, NULL);
    return LLVMBuildBitCast(contract->e->builder, round_two(contract, low, high), contract->vector,
                            "");
  }
  return LLVMBuildBitCast(contract->e->builder, load_half(contract, elem, address, 2 * n, NULL),
                          words, "");
}

LLVMValueRef contract_multiply(Contract *contract, LLVMValueRef a, LLVMValueRef b,
                               LLVMValueRef sum) {
  must(LLVMTypeOf(a) == LLVMTypeOf(b), "kernel %s: a product of two types", contract->k->name);
  if (!contract->pairs) return emit_fma(contract->e, a, b, sum);
  LLVMBuilderRef builder = contract->e->builder;
  int lanes = contract->plan.lanes;
  LLVMTypeRef pairs =
      LLVMVectorType(LLVMBFloatTypeInContext(contract->e->context), 2 * (unsigned)lanes);
  LLVMValueRef args[] = {sum, LLVMBuildBitCast(builder, a, pairs, ""),
                         LLVMBuildBitCast(builder, b, pairs, "")};
  return emit_intrinsic_types(contract->e, "llvm.x86.avx512bf16.dpbf16ps.512", 0, NULL, 3, args);
}

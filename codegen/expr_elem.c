/* Element-wise ops of the expression generator: arithmetic, comparisons, casts, where and the
   mathematics of one operand, each computed from its operands' values at the same point.

   Arithmetic is plain IEEE, as the interpreter does it, but for two liberties: a division of many
   elements by one number multiplies by its reciprocal, and what is only ever seen rounded to
   16 bits (rounded.c) may be made by shorter mathematics, or fused in the epilogue of products.
   Must not: read memory. */
#include "expr.h"
#include "ir/eights.h"
#include "ir/mask/lookup.h"
#include <math.h>

static Rounding rounding_of(const Emit *e, ValueId v) {
  return e->expr->rounded ? e->expr->rounded[v] : ROUNDED_NOT;
}

/* A multiplication and an addition may become one instruction where the difference hardly matters
   and the number of instructions limits the kernel. Not in updates: moments in bf16 are
   to be the same bits whatever else a kernel makes, and on the host of the GPU. */
static LLVMValueRef fusible(const Emit *e, const Op *op, LLVMValueRef x) {
  if (e->expr->waits && rounding_of(e, op->out) && LLVMCanValueUseFastMathFlags(x))
    LLVMSetFastMathFlags(x, LLVMFastMathAllowContract);
  return x;
}

static LLVMValueRef arithmetic(Emit *e, OpCode c, ElemClass class, LLVMValueRef a, LLVMValueRef b) {
  bool f = class == CLASS_FLOAT;
  LLVMBuilderRef builder = e->builder;
  switch (c) {
  case OP_add: return f ? LLVMBuildFAdd(builder, a, b, "") : LLVMBuildAdd(builder, a, b, "");
  case OP_sub: return f ? LLVMBuildFSub(builder, a, b, "") : LLVMBuildSub(builder, a, b, "");
  case OP_mul: return f ? LLVMBuildFMul(builder, a, b, "") : LLVMBuildMul(builder, a, b, "");
  case OP_max:
    if (f) return math_max(e, a, b);
    return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSGT, b, a, ""), b, a, "");
  case OP_min:
    if (f) return math_min(e, a, b);
    return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSLT, b, a, ""), b, a, "");
  default: bug("%s is no arithmetic", op_name(c));
  }
}

/* The larger + log1p(e^-|a - b|). -inf is the logarithm of 0: an infinite sum is the larger, not
   the NaN of inf - inf. */
static LLVMValueRef log_add_exp(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef far = LLVMBuildFSub(e->builder, a, b, ""), most = math_max(e, a, b);
  far = LLVMBuildFNeg(e->builder, emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(far), 1, &far), "");
  LLVMValueRef rest = math_unary(e, OP_log1p, math_unary(e, OP_exp, far));
  LLVMValueRef size = emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(most), 1, &most);
  LLVMValueRef infinite = LLVMConstReal(LLVMTypeOf(most), INFINITY);
  infinite = LLVMBuildFCmp(e->builder, LLVMRealOEQ, size, infinite, "");
  return LLVMBuildSelect(e->builder, infinite, most, LLVMBuildFAdd(e->builder, most, rest, ""), "");
}

/* Many elements divided by one number: multiplied by its reciprocal, which the pipeline moves out
 * of loops. Differs by one unit in the last place at most, and where the reciprocal would leave the
 * range of normal numbers. Whether an operand is one number follows from types, not from how a
 * kernel is cut: an update has the same bits in all kernels, of the GPU and of its host. */
static LLVMValueRef by_number(Emit *e, const Op *op, LLVMValueRef a, LLVMValueRef b) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  bool one = value_type(e->k, op->out)->rank && !value_type(e->k, op->in[1])->rank;
  if (emit_lanes_of(b) || LLVMTypeOf(b) != f32 || (!one && !emit_lanes_of(a))) return NULL;
  LLVMValueRef inverse = LLVMBuildFDiv(e->builder, LLVMConstReal(f32, 1), b, "");
  int lanes = emit_lanes_of(a);
  return LLVMBuildFMul(e->builder, a, lanes ? emit_splat(e, inverse, lanes) : inverse, "");
}

/* Whole-number division truncates; by zero it gives 0, and the smallest number by -1 gives itself:
 * no trap. */
static LLVMValueRef divide(Emit *e, ElemClass class, LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef builder = e->builder;
  if (class == CLASS_FLOAT) return LLVMBuildFDiv(builder, a, b, "");
  LLVMTypeRef t = LLVMTypeOf(b);
  LLVMValueRef zero = LLVMConstNull(t), minus = LLVMConstAllOnes(t);
  LLVMValueRef by_zero = LLVMBuildICmp(builder, LLVMIntEQ, b, zero, "");
  LLVMValueRef by_minus = LLVMBuildICmp(builder, LLVMIntEQ, b, minus, "");
  LLVMValueRef odd = LLVMBuildOr(builder, by_zero, by_minus, "");
  LLVMValueRef one = LLVMBuildSub(builder, zero, minus, "");
  LLVMValueRef safe = LLVMBuildSDiv(builder, a, LLVMBuildSelect(builder, odd, one, b, ""), "");
  safe = LLVMBuildSelect(builder, by_minus, LLVMBuildSub(builder, zero, a, ""), safe, "");
  return LLVMBuildSelect(builder, by_zero, zero, safe, "");
}

static LLVMValueRef compare(Emit *e, OpCode c, ElemClass class, LLVMValueRef a, LLVMValueRef b) {
  if (class == CLASS_FLOAT) {
    LLVMRealPredicate p = c == OP_lt ? LLVMRealOLT : c == OP_le ? LLVMRealOLE : LLVMRealOEQ;
    return LLVMBuildFCmp(e->builder, p, a, b, "");
  }
  bool u = class == CLASS_BOOL;
  LLVMIntPredicate p = c == OP_lt   ? (u ? LLVMIntULT : LLVMIntSLT)
                       : c == OP_le ? (u ? LLVMIntULE : LLVMIntSLE)
                                    : LLVMIntEQ;
  return LLVMBuildICmp(e->builder, p, a, b, "");
}

static LLVMValueRef sign_of(Emit *e, LLVMValueRef x, Elem elem) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef t = LLVMTypeOf(x);
  int lanes = emit_lanes_of(x);
  LLVMValueRef zero = LLVMConstNull(t);
  LLVMValueRef one = emit_splat(e, emit_number(e, elem, 1), lanes);
  LLVMValueRef minus = emit_splat(e, emit_number(e, elem, -1), lanes);
  bool f = elem_class(elem) == CLASS_FLOAT;
  LLVMValueRef above = f ? LLVMBuildFCmp(builder, LLVMRealOGT, x, zero, "")
                         : LLVMBuildICmp(builder, LLVMIntSGT, x, zero, "");
  LLVMValueRef below = f ? LLVMBuildFCmp(builder, LLVMRealOLT, x, zero, "")
                         : LLVMBuildICmp(builder, LLVMIntSLT, x, zero, "");
  LLVMValueRef rest = f ? x : zero; /* 0 and NaN stay what they are */
  return LLVMBuildSelect(builder, above, one, LLVMBuildSelect(builder, below, minus, rest, ""), "");
}

/* Whether this is e^(a - max a), perhaps of the largest that is no padding. */
static bool below_largest(const Fn *k, const Op *exp) {
  const Op *d = value_def(k, exp->in[0]);
  const Op *most = d && d->code == OP_sub ? value_def(k, d->in[1]) : NULL;
  if (!most || most->code != OP_rmax) return false;
  const Op *inside = value_def(k, most->in[0]);
  return most->in[0] == d->in[0] ||
         (inside && inside->code == OP_where && inside->in[1] == d->in[0]);
}

static LLVMValueRef unary(Emit *e, const Op *op, Elem elem, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  bool f = elem_class(elem) == CLASS_FLOAT;
  switch (op->code) {
  case OP_copy:
  case OP_wide:
  case OP_stop: return x;
  case OP_neg: return f ? LLVMBuildFNeg(builder, x, "") : LLVMBuildNeg(builder, x, "");
  case OP_not: return LLVMBuildNot(builder, x, "");
  case OP_sign: return sign_of(e, x, elem);
  case OP_pow: return math_pow(e, x, attr_float(&op->attrs, ATTR_value, 1));
  case OP_abs:
    if (f) return emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(x), 1, &x);
    return LLVMBuildSelect(builder,
                           LLVMBuildICmp(builder, LLVMIntSLT, x, LLVMConstNull(LLVMTypeOf(x)), ""),
                           LLVMBuildNeg(builder, x, ""), x, "");
  case OP_floor: return f ? emit_intrinsic(e, "llvm.floor", LLVMTypeOf(x), 1, &x) : x;
  case OP_exp: return below_largest(e->k, op) ? math_exp_negative(e, x) : math_unary(e, OP_exp, x);
  case OP_tanh: return math_tanh_rounded(e, x, rounding_of(e, op->out));
  default: return math_unary(e, op->code, x);
  }
}

static Elem wider(Elem a, Elem b) {
  ElemClass ca = elem_class(a), cb = elem_class(b);
  if (ca != cb) return ca < cb ? a : b; /* float, int, bool */
  return elem_bytes(b) > elem_bytes(a) ? b : a;
}

static LLVMValueRef operand(Emit *e, const Op *op, uint32_t i, const Point *p) {
  return expr_value(e, op->in[i], p);
}

static LLVMValueRef operand_as(Emit *e, const Op *op, uint32_t i, Elem to, const Point *p) {
  return expr_convert(e, operand(e, op, i, p), value_type(e->k, op->in[i])->elem, to);
}

static LLVMValueRef whole_number(Emit *e, int64_t n, int lanes) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  return emit_splat(e, LLVMConstInt(i32, (unsigned long long)n, 0), lanes);
}

static LLVMValueRef larger_bits(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, LLVMIntUGT, a, b, ""), a, b, "");
}

/* a rounded to a step of 2^i: (a + 1.5 * 2^(i + 23)) - 1.5 * 2^(i + 23), in f32. The exponent of
   the step is that of a, or of the block's smallest normal number, which follows from `most`: both
   are read from the bits. */
static LLVMValueRef quantized(Emit *e, const Op *op, LLVMValueRef a, LLVMValueRef most) {
  enum { BIAS = 127, FRACTION = 23, UP = 0x1FFFFF }; /* UP carries where 1.75 is exceeded */
  const EightsFormat *format = eights_format_of(op);
  LLVMBuilderRef builder = e->builder;
  int lanes = emit_lanes_of(a), least = BIAS + EIGHTS_LEAST_SCALE + format->top;
  LLVMTypeRef bits = emit_vector(e, ELEM_i32, lanes ? lanes : 1);
  LLVMValueRef exponents = whole_number(e, 0xFFLL << FRACTION, lanes);
  LLVMValueRef of_a = LLVMBuildAnd(builder, LLVMBuildBitCast(builder, a, bits, ""), exponents, "");
  LLVMValueRef top = LLVMBuildBitCast(builder, most, bits, "");
  top = LLVMBuildAnd(builder, LLVMBuildAdd(builder, top, whole_number(e, UP, lanes), ""), exponents,
                     "");
  top = larger_bits(e, top, whole_number(e, (int64_t)least << FRACTION, lanes));
  top = LLVMBuildSub(builder, top, whole_number(e, (int64_t)format->range << FRACTION, lanes), "");
  LLVMValueRef magic = larger_bits(e, of_a, top);
  int64_t raise = (int64_t)(FRACTION - format->mantissa) << FRACTION | 1LL << (FRACTION - 1);
  magic = LLVMBuildAdd(builder, magic, whole_number(e, raise, lanes), "");
  magic = LLVMBuildBitCast(builder, magic, LLVMTypeOf(a), "");
  LLVMValueRef y = LLVMBuildFAdd(builder, a, magic, "");
  y = LLVMBuildFSub(builder, y, magic, "");
  LLVMValueRef limit = emit_splat(e, emit_number(e, ELEM_f32, ldexp(1, EIGHTS_LARGEST)), lanes);
  LLVMValueRef fits = LLVMBuildFCmp(builder, LLVMRealOLE, most, limit, "");
  return LLVMBuildSelect(builder, fits, y, emit_splat(e, emit_number(e, ELEM_f32, NAN), lanes), "");
}

static LLVMValueRef binary(Emit *e, const Op *op, Elem result, const Point *p) {
  Elem ea = value_type(e->k, op->in[0])->elem, eb = value_type(e->k, op->in[1])->elem;
  bool compares = op_flags(op->code) & BOOLR;
  Elem with = compares ? wider(ea, eb) : result;
  LLVMValueRef a = operand_as(e, op, 0, with, p), b = operand_as(e, op, 1, with, p);
  LLVMValueRef scaled = op->code == OP_div ? by_number(e, op, a, b) : NULL;
  if (scaled) return scaled;
  int lanes = emit_lanes_of(a) ? emit_lanes_of(a) : emit_lanes_of(b);
  a = emit_splat(e, a, lanes), b = emit_splat(e, b, lanes);
  if (compares) return compare(e, op->code, elem_class(with), a, b);
  if (op->code == OP_and) return LLVMBuildAnd(e->builder, a, b, "");
  if (op->code == OP_or) return LLVMBuildOr(e->builder, a, b, "");
  if (op->code == OP_logaddexp) return log_add_exp(e, a, b);
  if (op->code == OP_quantize) return quantized(e, op, a, b);
  if (op->code == OP_div) return divide(e, elem_class(with), a, b);
  return fusible(e, op, arithmetic(e, op->code, elem_class(with), a, b));
}

static LLVMValueRef where(Emit *e, const Op *op, Elem result, const Point *p) {
  LLVMValueRef c = operand(e, op, 0, p);
  LLVMValueRef a = operand_as(e, op, 1, result, p), b = operand_as(e, op, 2, result, p);
  int lanes = emit_lanes_of(c)   ? emit_lanes_of(c)
              : emit_lanes_of(a) ? emit_lanes_of(a)
                                 : emit_lanes_of(b);
  if (emit_lanes_of(c) || emit_lanes_of(a) || emit_lanes_of(b))
    a = emit_splat(e, a, lanes), b = emit_splat(e, b, lanes);
  return LLVMBuildSelect(e->builder, c, a, b, "");
}

/* The table as bytes of the module. Named after the kernel: one file may hold the code of several
   kernels. */
static LLVMValueRef lookup_bits(Emit *e, const Op *op, const LookupTable *table) {
  char *name = arena_printf(e->arena, "%s_table_%u", e->symbol, op->out);
  LLVMValueRef g = LLVMGetNamedGlobal(e->module, name);
  if (g) return g;
  unsigned n =
      (unsigned)(table->rows * table->pitch + 1); /* one more: an empty table has an address */
  LLVMValueRef bits = LLVMConstStringInContext(e->context, (const char *)table->bits, n, true);
  unsigned space = e->target->code->constant_space;
  g = LLVMAddGlobalInAddressSpace(e->module, LLVMTypeOf(bits), name, space);
  LLVMSetInitializer(g, bits), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

/* One byte; lanes one after the other, since no target gathers bytes. */
static LLVMValueRef load_byte(Emit *e, LLVMValueRef bytes, LLVMValueRef at) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context), i32 = LLVMInt32TypeInContext(e->context);
  int lanes = emit_lanes_of(at);
  LLVMValueRef all = lanes ? LLVMGetUndef(LLVMVectorType(i8, (unsigned)lanes)) : NULL;
  for (int i = 0; i < lanes; i++) {
    LLVMValueRef lane = LLVMConstInt(i32, (unsigned)i, 0);
    LLVMValueRef one = load_byte(e, bytes, LLVMBuildExtractElement(builder, at, lane, ""));
    all = LLVMBuildInsertElement(builder, all, one, lane, "");
  }
  if (lanes) return all;
  LLVMValueRef x = LLVMBuildLoad2(builder, i8, LLVMBuildGEP2(builder, i8, bytes, &at, 1, ""), "");
  return LLVMSetAlignment(x, 1), x;
}

LLVMValueRef expr_lookup(Emit *e, const Op *op, LLVMValueRef r, LLVMValueRef c) {
  LLVMBuilderRef builder = e->builder;
  LookupTable table = lookup_table(e->arena, op);
  int lanes = emit_lanes_of(r) ? emit_lanes_of(r) : emit_lanes_of(c);
  r = emit_splat(e, r, lanes), c = emit_splat(e, c, lanes);
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(r)), seven = whole_number(e, 7, lanes);
  LLVMValueRef in = LLVMBuildICmp(builder, LLVMIntULT, r, whole_number(e, table.rows, lanes), "");
  LLVMValueRef below =
      LLVMBuildICmp(builder, LLVMIntULT, c, whole_number(e, table.columns, lanes), "");
  in = LLVMBuildAnd(builder, in, below, "");
  LLVMValueRef byte = LLVMBuildMul(builder, r, whole_number(e, table.pitch, lanes), "");
  byte = LLVMBuildAdd(builder, byte, LLVMBuildLShr(builder, c, whole_number(e, 3, lanes), ""), "");
  byte = LLVMBuildSelect(builder, in, byte, zero, "");
  LLVMValueRef x = load_byte(e, lookup_bits(e, op, &table), byte);
  x = LLVMBuildLShr(builder, LLVMBuildZExt(builder, x, LLVMTypeOf(r), ""),
                    LLVMBuildAnd(builder, c, seven, ""), "");
  x = LLVMBuildAnd(builder, x, whole_number(e, 1, lanes), "");
  return LLVMBuildAnd(builder, in, LLVMBuildICmp(builder, LLVMIntNE, x, zero, ""), "");
}

LLVMValueRef expr_elem(Emit *e, const Op *op, ValueId v, const Point *p) {
  must(op->nin >= 1 && op->nin <= 3, "kernel %s: %s of %u operands", e->k->name, op_name(op->code),
       op->nin);
  Elem result = value_type(e->k, v)->elem;
  if (op->code == OP_cast) return operand_as(e, op, 0, result, p);
  if (op->code == OP_lookup)
    return expr_lookup(e, op, operand_as(e, op, 0, ELEM_i32, p), operand_as(e, op, 1, ELEM_i32, p));
  if (op->code == OP_where) return where(e, op, result, p);
  if (op->nin == 2) return binary(e, op, result, p);
  return unary(e, op, result, operand_as(e, op, 0, result, p));
}

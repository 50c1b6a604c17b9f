/* The expression generator: evaluates values of a kernel function at a point of its iteration
   space.

   A value is: bound by the family, or known from before at the same indexes of its own dims, or
   loaded from an argument, or computed from its operands at the same point (expr_elem.c) or at
   moved points (expr_struct.c). Elements outside a buffer are never loaded (indexes are clamped,
   lanes are masked), and then replaced by a select: the code is straight line, except for guarded
   loads and for concats of many operands (expr_concat.c).

   bf16 and f16 are f32 in registers; a cast to them and a store of them round to nearest even.
   Values in lanes that the mask excludes are arbitrary, but such lanes are neither loaded nor
   stored. */
#include "expr.h"
#include "ir/apart.h"
#include "ir/codes.h"

bool expr_is_argument(const Fn *k, ValueId v) { return k->values.at[v].def == NO_OP; }

int64_t expr_stride(const Fn *k, ValueId v, int axis) {
  must(v < k->values.n && axis >= 0 && axis < k->values.at[v].type.rank,
       "kernel %s: value %u has no axis %d", k->name, v, axis);
  const Value *value = &k->values.at[v];
  if (value->storage.ordered) return value->storage.stride[axis];
  int64_t s = 1;
  for (int a = value->type.rank - 1; a > axis; a--) s *= value->type.axis[a].size;
  return s;
}

/* ---- points ---- */

Index *point_find(const Point *p, Str dim) {
  for (int i = 0; i < p->n; i++)
    if (p->index[i].dim == dim) return (Index *)&p->index[i];
  return NULL;
}

void point_set(Point *p, Index index) {
  must(index.at || index.each, "a point without an index for %s", index.dim);
  Index *old = point_find(p, index.dim);
  if (!old && p->n == MAX_RANK * 2) bug("a point has too many dims");
  if (!old) old = &p->index[p->n++];
  *old = index;
}

static const Index *point_need(Emit *e, const Point *p, Str dim) {
  const Index *index = point_find(p, dim);
  if (!index) bug("kernel %s: a point has no index for %s", e->k->name, dim);
  return index;
}

Point point_restrict(Emit *e, ValueId v, const Point *p) {
  const Type *t = value_type(e->k, v);
  Point q = {.mask = p->mask, .guard = p->guard, .guard_moved = p->guard_moved};
  for (int a = 0; a < t->rank; a++) point_set(&q, *point_need(e, p, t->axis[a].dim));
  return q;
}

bool index_varies(const Index *index) { return index->lane || index->each; }

LLVMValueRef index_number(Emit *e, const Index *index) {
  if (index->each) return index->each;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef at = LLVMBuildTrunc(e->builder, index->at, i32, "");
  if (!index->lane) return at;
  LLVMValueRef numbers = emit_lane_numbers(e, i32, e->lanes, 1);
  return LLVMBuildAdd(e->builder, emit_splat(e, at, e->lanes), numbers, "");
}

/* ---- memo ---- */

void expr_reset(Emit *e) {
  uint32_t n = e->k->values.n;
  if (!e->expr) e->expr = ARENA_NEW(e->arena, ExprState);
  ExprState *state = e->expr;
  if (!state->bound) {
    state->bound = ARENA_ARRAY(e->arena, LLVMValueRef, n + 1);
    state->row = ARENA_ARRAY(e->arena, Row, n + 1);
    state->known = ARENA_ARRAY(e->arena, Known *, n + 1);
    state->rounded = e->target->code->tanh_rounded ? rounded_values(e->arena, e->k) : NULL;
    state->waits = kernel_has_products(e->k);
  }
  memset(state->bound, 0, sizeof *state->bound * n);
  memset(state->row, 0, sizeof *state->row * n);
  memset(state->known, 0, sizeof *state->known * n);
}

void expr_forget(Emit *e) { memset(e->expr->known, 0, sizeof *e->expr->known * e->k->values.n); }

Known **expr_known(Emit *e) {
  Known **known = ARENA_ARRAY(e->arena, Known *, e->k->values.n + 1);
  memcpy(known, e->expr->known, sizeof *known * e->k->values.n);
  return known;
}

void expr_known_again(Emit *e, Known *const *known) {
  memcpy(e->expr->known, known, sizeof *known * e->k->values.n);
}

void expr_bind(Emit *e, ValueId v, LLVMValueRef value) {
  must(e->expr && v < e->k->values.n, "kernel %s: value %u is bound to nothing", e->k->name, v);
  e->expr->bound[v] = value;
}

void expr_bind_row(Emit *e, ValueId v, LLVMValueRef base, Str dim, Elem elem) {
  must(!elem_is_half(elem), "kernel %s: rows are kept in f32", e->k->name);
  must(v < e->k->values.n, "kernel %s has no value %u", e->k->name, v);
  e->expr->row[v] = (Row){base, dim, elem};
}

static bool same_index(const Index *a, const Index *b) {
  return a->at == b->at && a->lane == b->lane && a->each == b->each;
}

static bool known_at(Emit *e, ValueId v, const Known *known, const Point *p) {
  const Type *t = value_type(e->k, v);
  if (known->mask != p->mask || known->guard != p->guard || known->lanes != e->lanes) return false;
  for (int a = 0; a < t->rank; a++)
    if (!same_index(&known->index[a], point_need(e, p, t->axis[a].dim))) return false;
  return true;
}

static void remember(Emit *e, ValueId v, const Point *p, LLVMValueRef value) {
  const Type *t = value_type(e->k, v);
  Known *known = ARENA_NEW(e->arena, Known);
  for (int a = 0; a < t->rank; a++) known->index[a] = *point_need(e, p, t->axis[a].dim);
  known->lanes = e->lanes;
  known->n = t->rank, known->mask = p->mask, known->guard = p->guard, known->value = value;
  known->older = e->expr->known[v];
  e->expr->known[v] = known;
}

/* ---- registers and memory ---- */

static LLVMTypeRef like(LLVMValueRef x, LLVMTypeRef scalar) {
  int lanes = emit_lanes_of(x);
  return lanes ? LLVMVectorType(scalar, (unsigned)lanes) : scalar;
}

static LLVMValueRef constant_like(LLVMValueRef x, LLVMTypeRef scalar, uint64_t v) {
  LLVMValueRef c = LLVMConstInt(scalar, v, 0), all[64];
  int lanes = emit_lanes_of(x);
  for (int i = 0; i < lanes; i++) all[i] = c;
  return lanes ? LLVMConstVector(all, (unsigned)lanes) : c;
}

static LLVMValueRef bf16_widen(Emit *e, LLVMValueRef x) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef wide = LLVMBuildZExt(e->builder, x, like(x, i32), "");
  LLVMValueRef bits = LLVMBuildShl(e->builder, wide, constant_like(x, i32, 16), "");
  return LLVMBuildBitCast(e->builder, bits, like(x, LLVMFloatTypeInContext(e->context)), "");
}

/* The bf16 value that was widened to x, if x is nothing else; NULL. */
static LLVMValueRef bf16_narrow(LLVMValueRef x) {
  LLVMValueRef bits = LLVMIsABitCastInst(x) ? LLVMGetOperand(x, 0) : NULL;
  if (!bits || !LLVMIsAInstruction(bits) || LLVMGetInstructionOpcode(bits) != LLVMShl) return NULL;
  LLVMValueRef wide = LLVMGetOperand(bits, 0);
  return LLVMIsAZExtInst(wide) ? LLVMGetOperand(wide, 0) : NULL;
}

/* The upper half of an f32, rounded to nearest even; a NaN stays a (quiet) NaN. */
static LLVMValueRef bf16_round(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef half = like(x, LLVMInt16TypeInContext(e->context));
  LLVMValueRef already = bf16_narrow(x);
  if (already && LLVMTypeOf(already) == half) return already;
  const DeviceCode *device = e->target->code;
  LLVMValueRef at_once = device->round_bf16 ? device->round_bf16(e, x) : NULL;
  if (at_once) return at_once;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef bits = LLVMBuildBitCast(builder, x, like(x, i32), "");
  LLVMValueRef upper = LLVMBuildLShr(builder, bits, constant_like(x, i32, 16), "");
  LLVMValueRef odd = LLVMBuildAnd(builder, upper, constant_like(x, i32, 1), "");
  LLVMValueRef tie = LLVMBuildAdd(builder, odd, constant_like(x, i32, 0x7fff), "");
  LLVMValueRef rounded =
      LLVMBuildLShr(builder, LLVMBuildAdd(builder, bits, tie, ""), constant_like(x, i32, 16), "");
  LLVMValueRef quiet = LLVMBuildOr(builder, upper, constant_like(x, i32, 0x40), "");
  LLVMValueRef nan = LLVMBuildFCmp(builder, LLVMRealUNO, x, x, "");
  LLVMValueRef chosen = LLVMBuildSelect(builder, nan, quiet, rounded, "");
  return LLVMBuildTrunc(builder, chosen, half, "");
}

LLVMValueRef expr_from_memory(Emit *e, Elem elem, LLVMValueRef x) {
  switch (elem) {
  case ELEM_bf16: return bf16_widen(e, x);
  case ELEM_f16:
    return LLVMBuildFPExt(e->builder, x, like(x, LLVMFloatTypeInContext(e->context)), "");
  case ELEM_bool:
    return LLVMBuildICmp(e->builder, LLVMIntNE, x,
                         constant_like(x, LLVMInt8TypeInContext(e->context), 0), "");
  default: return x;
  }
}

LLVMValueRef expr_to_memory(Emit *e, Elem elem, LLVMValueRef x) {
  switch (elem) {
  case ELEM_bf16: return bf16_round(e, x);
  case ELEM_f16:
    return LLVMBuildFPTrunc(e->builder, x, like(x, LLVMHalfTypeInContext(e->context)), "");
  case ELEM_bool:
    return LLVMBuildZExt(e->builder, x, like(x, LLVMInt8TypeInContext(e->context)), "");
  default: return x;
  }
}

/* ---- conversions ---- */

static double highest_whole(Elem from, Elem to) {
  if (to == ELEM_u8) return 255;
  if (to == ELEM_i64) return from == ELEM_f64 ? 9223372036854774784.0 : 9223371487098961920.0;
  return from == ELEM_f64 ? 2147483647.0 : 2147483520.0;
}

/* Truncation that is defined everywhere: out of range saturates, NaN gives 0. */
static LLVMValueRef float_to_int(Emit *e, LLVMValueRef x, Elem from, Elem to) {
  LLVMBuilderRef builder = e->builder;
  double high = highest_whole(from, to);
  double low = to == ELEM_u8 ? 0 : to == ELEM_i64 ? -9223372036854775808.0 : -2147483648.0;
  int lanes = emit_lanes_of(x);
  LLVMTypeRef scalar = emit_type(e, from);
  LLVMValueRef hi = emit_splat(e, LLVMConstReal(scalar, high), lanes);
  LLVMValueRef lo = emit_splat(e, LLVMConstReal(scalar, low), lanes);
  LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x));
  x = LLVMBuildSelect(builder, LLVMBuildFCmp(builder, LLVMRealOGT, x, hi, ""), hi, x, "");
  x = LLVMBuildSelect(builder, LLVMBuildFCmp(builder, LLVMRealOLT, x, lo, ""), lo, x, "");
  x = LLVMBuildSelect(builder, LLVMBuildFCmp(builder, LLVMRealUNO, x, x, ""), zero, x, "");
  LLVMTypeRef t = like(x, emit_type(e, to));
  return to == ELEM_u8 ? LLVMBuildFPToUI(builder, x, t, "") : LLVMBuildFPToSI(builder, x, t, "");
}

/* Out of range saturates. */
static LLVMValueRef int_to_byte(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef t = LLVMTypeOf(x);
  LLVMTypeRef scalar = emit_lanes_of(x) ? LLVMGetElementType(t) : t;
  LLVMValueRef none = LLVMConstNull(t), most = constant_like(x, scalar, 255);
  x = LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSGT, x, most, ""), most, x, "");
  x = LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSLT, x, none, ""), none, x, "");
  return LLVMBuildTrunc(builder, x, like(x, LLVMInt8TypeInContext(e->context)), "");
}

static LLVMValueRef float_to_float(Emit *e, LLVMValueRef x, Elem from, Elem to) {
  LLVMTypeRef t = like(x, emit_type(e, to));
  if (from == ELEM_f64 && to != ELEM_f64) x = LLVMBuildFPTrunc(e->builder, x, t, "");
  if (to == ELEM_f64 && from != ELEM_f64) x = LLVMBuildFPExt(e->builder, x, t, "");
  if (elem_is_half(to) && from != to) x = expr_from_memory(e, to, expr_to_memory(e, to, x));
  return x;
}

LLVMValueRef expr_convert(Emit *e, LLVMValueRef x, Elem from, Elem to) {
  ElemClass cf = elem_class(from), ct = elem_class(to);
  LLVMTypeRef t = like(x, emit_type(e, to));
  must(LLVMTypeOf(x) == like(x, emit_type(e, from)), "kernel %s: %s is no %s", e->k->name,
       LLVMPrintTypeToString(LLVMTypeOf(x)), elem_name(from));
  if (from == to) return x;
  if (cf == CLASS_FLOAT && ct == CLASS_FLOAT) return float_to_float(e, x, from, to);
  if (cf == CLASS_FLOAT && (ct == CLASS_INT || ct == CLASS_BYTE))
    return float_to_int(e, x, from, to);
  if (ct == CLASS_BOOL) {
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x));
    if (cf == CLASS_FLOAT) return LLVMBuildFCmp(e->builder, LLVMRealUNE, x, zero, "");
    return LLVMBuildICmp(e->builder, LLVMIntNE, x, zero, "");
  }
  if (ct == CLASS_FLOAT) {
    LLVMValueRef f = cf == CLASS_INT ? LLVMBuildSIToFP(e->builder, x, t, "")
                                     : LLVMBuildUIToFP(e->builder, x, t, "");
    return elem_is_half(to) ? float_to_float(e, f, ELEM_f32, to) : f;
  }
  if (cf == CLASS_INT && ct == CLASS_BYTE) return int_to_byte(e, x);
  if (cf == CLASS_BOOL || cf == CLASS_BYTE) return LLVMBuildZExt(e->builder, x, t, "");
  return elem_bytes(from) < elem_bytes(to) ? LLVMBuildSExt(e->builder, x, t, "")
                                           : LLVMBuildTrunc(e->builder, x, t, "");
}

/* ---- loads and stores ---- */

typedef enum Reach { REACH_SCALAR, REACH_VECTOR, REACH_SPREAD } Reach;

typedef struct Addressed { /* elements of a buffer that a point addresses */
  Reach reach;
  LLVMValueRef pointer; /* SPREAD: base of the offsets */
  LLVMValueRef offset;  /* SPREAD: element offsets per lane */
  unsigned align;       /* bytes that `pointer` is a multiple of */
} Addressed;

static uint32_t result_number(const Emit *e, ValueId v) {
  for (uint32_t r = 0; r < e->k->results.n; r++)
    if (e->k->results.at[r] == v) return r;
  bug("kernel %s: value %u has no buffer", e->k->name, v);
}

static uint32_t buffer_number(const Emit *e, ValueId v) {
  const Value *value = &e->k->values.at[v];
  return value->def == NO_OP ? value->result : e->k->args.n + result_number(e, v);
}

/* Bytes that the buffer spans, to choose 32-bit lane offsets. */
static int64_t span(const Emit *e, ValueId v) {
  const Type *t = value_type(e->k, v);
  int64_t s = 1;
  for (int a = 0; a < t->rank; a++) s += (t->axis[a].size - 1) * expr_stride(e->k, v, a);
  return s;
}

static LLVMValueRef lane_offsets(Emit *e, ValueId v, const Point *p) {
  const Type *t = value_type(e->k, v);
  bool wide = span(e, v) > INT32_MAX / 2;
  LLVMTypeRef scalar =
      wide ? LLVMInt64TypeInContext(e->context) : LLVMInt32TypeInContext(e->context);
  LLVMValueRef sum = LLVMConstNull(LLVMVectorType(scalar, (unsigned)e->lanes));
  for (int a = 0; a < t->rank; a++) {
    const Index *index = point_find(p, t->axis[a].dim);
    int64_t stride = expr_stride(e->k, v, a);
    LLVMValueRef part = NULL;
    if (index->each) {
      part = wide ? LLVMBuildSExt(e->builder, index->each, LLVMTypeOf(sum), "") : index->each;
      LLVMValueRef by = emit_splat(e, LLVMConstInt(scalar, (uint64_t)stride, 1), e->lanes);
      part = LLVMBuildMul(e->builder, part, by, "");
    } else if (index->lane) {
      part = emit_lane_numbers(e, scalar, e->lanes, stride);
    }
    if (part) sum = LLVMBuildAdd(e->builder, sum, part, "");
  }
  return sum;
}

/* That narrow offsets do not wrap lets LLVM put constant parts into the instruction. */
static LLVMValueRef offset_mul(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return e->target->code->narrow_indexes ? LLVMBuildNSWMul(e->builder, a, b, "")
                                         : LLVMBuildMul(e->builder, a, b, "");
}

static LLVMValueRef offset_add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return e->target->code->narrow_indexes ? LLVMBuildNSWAdd(e->builder, a, b, "")
                                         : LLVMBuildAdd(e->builder, a, b, "");
}

static LLVMValueRef element_pointer(Emit *e, ValueId v, uint32_t buffer, const Point *p) {
  const Type *t = value_type(e->k, v);
  LLVMValueRef offset = emit_index(e, 0);
  for (int a = 0; a < t->rank; a++) {
    const Index *index = point_need(e, p, t->axis[a].dim);
    int64_t stride = expr_stride(e->k, v, a);
    if (index->each || stride == 0) continue;
    offset = offset_add(e, offset, offset_mul(e, index->at, emit_index(e, stride)));
  }
  LLVMTypeRef memory = emit_memory_type(e, t->elem);
  return LLVMBuildGEP2(e->builder, memory, emit_buffer(e, buffer), &offset, 1, "");
}

/* The largest power of two, up to 16, that divides n. */
static int64_t power_in(int64_t n) { return n ? n & -n : 16; }

/* Bytes that the address of p's (first) element is surely a multiple of. */
static unsigned address_align(Emit *e, ValueId v, uint32_t buffer, const Point *p) {
  const Type *t = value_type(e->k, v);
  int64_t bytes = elem_bytes(t->elem), align = emit_buffer_align(e, buffer);
  for (int a = 0; e->target->code->aligned && a < t->rank; a++) {
    const Index *index = point_need(e, p, t->axis[a].dim);
    int64_t step = expr_stride(e->k, v, a) * bytes;
    if (t->axis[a].size == 1 || (!index->each && index->at == emit_index(e, 0))) continue;
    if (!index->each && index->multiple) step *= index->multiple;
    if (power_in(step) < align) align = power_in(step);
  }
  return (unsigned)(align > bytes ? align : bytes);
}

static Addressed locate(Emit *e, ValueId v, uint32_t buffer, const Point *p) {
  const Type *t = value_type(e->k, v);
  Addressed addressed = {.pointer = element_pointer(e, v, buffer, p),
                         .align = address_align(e, v, buffer, p)};
  for (int a = 0; a < t->rank; a++) {
    const Index *index = point_need(e, p, t->axis[a].dim);
    int64_t stride = expr_stride(e->k, v, a);
    if (!index_varies(index) || stride == 0) continue;
    bool plain = index->lane && !index->each && stride == 1 && addressed.reach == REACH_SCALAR;
    addressed.reach = plain ? REACH_VECTOR : REACH_SPREAD;
  }
  if (addressed.reach == REACH_SPREAD) addressed.offset = lane_offsets(e, v, p);
  return addressed;
}

LLVMValueRef expr_address(Emit *e, ValueId arg_or_result, const Point *p) {
  return element_pointer(e, arg_or_result, buffer_number(e, arg_or_result), p);
}

static void mark_invariant(Emit *e, ValueId v, LLVMValueRef load) {
  if (!expr_is_argument(e->k, v) || !kernel_buffer_apart(e->k, buffer_number(e, v))) return;
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "invariant.load", 14);
  LLVMValueRef node = LLVMMDNodeInContext(e->context, NULL, 0);
  LLVMSetMetadata(load, kind, node);
}

static LLVMValueRef all_lanes(Emit *e) {
  LLVMTypeRef i1 = LLVMInt1TypeInContext(e->context);
  return LLVMConstAllOnes(LLVMVectorType(i1, (unsigned)e->lanes));
}

static LLVMValueRef spread_pointers(Emit *e, Elem elem, const Addressed *addressed) {
  LLVMValueRef offset = addressed->offset;
  return LLVMBuildGEP2(e->builder, emit_memory_type(e, elem), addressed->pointer, &offset, 1, "");
}

static LLVMValueRef load_spread(Emit *e, Elem elem, const Addressed *addressed, LLVMValueRef mask) {
  LLVMTypeRef vector = LLVMVectorType(emit_memory_type(e, elem), (unsigned)e->lanes);
  LLVMValueRef pointers = spread_pointers(e, elem, addressed);
  LLVMTypeRef types[] = {vector, LLVMTypeOf(pointers)};
  LLVMValueRef args[] = {pointers, emit_align(e, elem), mask ? mask : all_lanes(e),
                         LLVMConstNull(vector)};
  return emit_intrinsic_types(e, "llvm.masked.gather", 2, types, 4, args);
}

static LLVMValueRef load_masked(Emit *e, Elem elem, LLVMValueRef pointer, LLVMValueRef mask) {
  LLVMTypeRef vector = LLVMVectorType(emit_memory_type(e, elem), (unsigned)e->lanes);
  LLVMTypeRef types[] = {vector, LLVMTypeOf(pointer)};
  LLVMValueRef args[] = {pointer, emit_align(e, elem), mask, LLVMConstNull(vector)};
  return emit_intrinsic_types(e, "llvm.masked.load", 2, types, 4, args);
}

static LLVMValueRef load_argument(Emit *e, const void *from, const Point *p) {
  ValueId arg = *(const ValueId *)from;
  Elem elem = value_type(e->k, arg)->elem;
  Addressed addressed = locate(e, arg, buffer_number(e, arg), p);
  LLVMTypeRef memory = emit_memory_type(e, elem);
  if (addressed.reach == REACH_VECTOR) memory = LLVMVectorType(memory, (unsigned)e->lanes);
  LLVMValueRef x;
  if (addressed.reach == REACH_SPREAD) {
    x = load_spread(e, elem, &addressed, p->mask);
  } else if (addressed.reach == REACH_VECTOR && p->mask) {
    x = load_masked(e, elem, addressed.pointer, p->mask);
  } else {
    x = LLVMBuildLoad2(e->builder, memory, addressed.pointer, "");
    LLVMSetAlignment(x, addressed.align);
    mark_invariant(e, arg, x);
  }
  return expr_from_memory(e, elem, x);
}

typedef LLVMValueRef Load(Emit *e, const void *from, const Point *p);

/* Loads where the point's guard holds; elsewhere the value is zero. */
static LLVMValueRef guarded(Emit *e, Load *load, const void *from, const Point *p) {
  if (!p->guard) return load(e, from, p);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
  Branch b = emit_if(e, p->guard);
  LLVMValueRef x = load(e, from, p);
  LLVMBasicBlockRef made_in = LLVMGetInsertBlock(e->builder);
  emit_end_if(e, b);
  return emit_if_value(e, before, made_in, x);
}

LLVMValueRef expr_load(Emit *e, ValueId arg, const Point *p) {
  return guarded(e, load_argument, &arg, p);
}

static void store_spread(Emit *e, Elem elem, const Addressed *addressed, LLVMValueRef x,
                         LLVMValueRef mask) {
  LLVMValueRef pointers = spread_pointers(e, elem, addressed);
  LLVMTypeRef types[] = {LLVMTypeOf(x), LLVMTypeOf(pointers)};
  LLVMValueRef args[] = {x, pointers, emit_align(e, elem), mask ? mask : all_lanes(e)};
  emit_intrinsic_types(e, "llvm.masked.scatter", 2, types, 4, args);
}

static void store_masked(Emit *e, Elem elem, LLVMValueRef pointer, LLVMValueRef x,
                         LLVMValueRef mask) {
  LLVMTypeRef types[] = {LLVMTypeOf(x), LLVMTypeOf(pointer)};
  LLVMValueRef args[] = {x, pointer, emit_align(e, elem), mask};
  emit_intrinsic_types(e, "llvm.masked.store", 2, types, 4, args);
}

static void store_at(Emit *e, ValueId v, uint32_t buffer, const Point *p, LLVMValueRef value) {
  Elem elem = value_type(e->k, v)->elem;
  Addressed addressed = locate(e, v, buffer, p);
  if (addressed.reach != REACH_SCALAR) value = emit_splat(e, value, e->lanes);
  LLVMValueRef x = expr_to_memory(e, elem, value);
  if (addressed.reach == REACH_SCALAR && emit_lanes_of(x))
    bug("kernel %s: a vector for a scalar", e->k->name);
  if (addressed.reach == REACH_SPREAD) {
    store_spread(e, elem, &addressed, x, p->mask);
  } else if (addressed.reach == REACH_VECTOR && p->mask) {
    store_masked(e, elem, addressed.pointer, x, p->mask);
  } else if (addressed.reach == REACH_VECTOR && e->nontemporal >> (buffer - e->k->args.n) & 1) {
    e->target->code->nontemporal_store(e, addressed.pointer, x);
  } else {
    LLVMSetAlignment(LLVMBuildStore(e->builder, x, addressed.pointer), addressed.align);
  }
}

void expr_put(Emit *e, ValueId v, const Point *p, LLVMValueRef value) {
  must(value && v < e->k->values.n, "kernel %s: nothing is stored as value %u", e->k->name, v);
  Branch branch = {0};
  if (p->guard) branch = emit_if(e, p->guard);
  for (uint32_t r = 0; r < e->k->results.n; r++) {
    if (e->k->results.at[r] != v) continue;
    uint32_t buffer = e->k->args.n + r;
    if (kernel_codes(e->k, buffer, &(Codes){0})) e->target->code->put_codes(e, v, buffer, p);
    else store_at(e, v, buffer, p, value);
  }
  if (p->guard) emit_end_if(e, branch);
}

/* The one index decides; other dims are those of the current row. */
static LLVMValueRef load_row(Emit *e, const void *from, const Point *p) {
  const Row *row = from;
  const Index *index = point_need(e, p, row->dim);
  LLVMTypeRef type = emit_type(e, row->elem);
  Addressed addressed = {.pointer = row->base};
  if (index->each) {
    addressed.offset = index->each;
    return load_spread(e, row->elem, &addressed, p->mask);
  }
  LLVMValueRef at = index->at, pointer = LLVMBuildGEP2(e->builder, type, row->base, &at, 1, "");
  if (index->lane && p->mask) return load_masked(e, row->elem, pointer, p->mask);
  if (index->lane) type = LLVMVectorType(type, (unsigned)e->lanes);
  LLVMValueRef v = LLVMBuildLoad2(e->builder, type, pointer, "");
  LLVMSetAlignment(v, (unsigned)elem_bytes(row->elem));
  return v;
}

static LLVMValueRef compute(Emit *e, ValueId v, const Point *p) {
  const Op *op = value_def(e->k, v);
  if (e->expr->row[v].base) return guarded(e, load_row, &e->expr->row[v], p);
  if (!op) return expr_load(e, v, p);
  if (!(op_flags(op->code) & POINT))
    bug("kernel %s: %s is not bound at this point", e->k->name, op_name(op->code));
  if (op->code == OP_const)
    return emit_number(e, value_type(e->k, v)->elem, attr_float(&op->attrs, ATTR_value, 0));
  if (op_family(op->code) == FAMILY_ELEM) return expr_elem(e, op, v, p);
  return expr_moved(e, op, v, p);
}

/* A guard that is about dims which v does not have says nothing about v. */
static bool guard_is_idle(const Emit *e, ValueId v, const Point *p) {
  if (!p->guard || p->guard_moved || !e->guarded) return false;
  for (int a = 0; a < value_type(e->k, v)->rank; a++)
    if (axes_have(e->guarded, value_type(e->k, v)->axis[a].dim)) return false;
  return true;
}

LLVMValueRef expr_value(Emit *e, ValueId v, const Point *outer) {
  must(e->expr && v < e->k->values.n, "kernel %s has no value %u", e->k->name, v);
  if (e->expr->bound[v]) return e->expr->bound[v];
  Point free;
  const Point *p = outer;
  if (guard_is_idle(e, v, outer)) free = *outer, free.guard = NULL, p = &free;
  for (const Known *known = e->expr->known[v]; known; known = known->older)
    if (known_at(e, v, known, p)) return known->value;
  LLVMValueRef x = compute(e, v, p);
  remember(e, v, p, x);
  return x;
}

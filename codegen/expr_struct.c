/* Ops that move indexes, in the expression generator: each is evaluated by evaluating its operand
   at a moved point.

   An index is a scalar, or consecutive per lane, or one number per lane (`each`). Moving keeps the
   cheapest of these forms: a split or merge of the lane dim stays consecutive when a vector is
   known not to cross a border (Index.multiple). Where an op may read outside its operand (pad,
   shift, concat, gather), scalar indexes are clamped into the operand and lanes outside are masked,
   so that nothing outside is read; a select then inserts the fill.

   The indexed ops that compute numbers from positions (iota, rope, rand) are in this file as
   well. */
#include "expr.h"
#include "ir/rope.h"
#include "ir/support/num.h"
#include <math.h>

static LLVMTypeRef i32_type(Emit *e) { return LLVMInt32TypeInContext(e->context); }

/* ---- arithmetic of indexes ---- */

static LLVMValueRef each_constant(Emit *e, int64_t v) {
  return emit_splat(e, LLVMConstInt(i32_type(e), (uint64_t)v, 1), e->lanes);
}

Index expr_index_add(Emit *e, Index index, int64_t d) {
  if (d == 0) return index;
  if (index.each) index.each = LLVMBuildAdd(e->builder, index.each, each_constant(e, d), "");
  else index.at = LLVMBuildAdd(e->builder, index.at, emit_index(e, d), "");
  index.multiple = index.multiple ? gcd_i64(index.multiple, d) : 0;
  return index;
}

static Index index_constant(Emit *e, int64_t v) {
  return (Index){.at = emit_index(e, v), .multiple = v};
}

/* All lanes as numbers. */
static LLVMValueRef index_each(Emit *e, const Index *index) {
  return emit_splat(e, index_number(e, index), e->lanes);
}

/* Whether a vector of this index stays within one run of `run` indexes that starts at a multiple of
 * `run`. */
static bool stays_within(const Emit *e, const Index *index, int64_t run) {
  return index->lane && !index->each && index->multiple && index->multiple % e->lanes == 0 &&
         run % e->lanes == 0;
}

/* slow * size + fast */
static Index index_join(Emit *e, const Index *slow, const Index *fast, int64_t size) {
  Index index = {0};
  if (index_varies(slow) || fast->each) {
    LLVMValueRef a = LLVMBuildMul(e->builder, index_each(e, slow), each_constant(e, size), "");
    index.each = LLVMBuildAdd(e->builder, a, index_each(e, fast), "");
    return index;
  }
  LLVMValueRef a = LLVMBuildMul(e->builder, slow->at, emit_index(e, size), "");
  index.at = LLVMBuildAdd(e->builder, a, fast->at, "");
  index.lane = fast->lane;
  index.multiple = gcd_i64(size, fast->multiple);
  return index;
}

/* index / size and index % size */
static void index_cut(Emit *e, const Index *index, int64_t size, Index *slow, Index *fast) {
  LLVMBuilderRef builder = e->builder;
  *slow = *fast = (Index){0};
  if (!index_varies(index) || stays_within(e, index, size)) {
    slow->at = LLVMBuildUDiv(builder, index->at, emit_index(e, size), "");
    fast->at = LLVMBuildURem(builder, index->at, emit_index(e, size), "");
    fast->lane = index->lane;
    fast->multiple = gcd_i64(index->multiple, size);
    return;
  }
  LLVMValueRef numbers = index_each(e, index);
  slow->each = LLVMBuildUDiv(builder, numbers, each_constant(e, size), "");
  fast->each = LLVMBuildURem(builder, numbers, each_constant(e, size), "");
}

/* 0 <= index < size: one bit, or one per lane */
LLVMValueRef expr_inside(Emit *e, const Index *index, int64_t size) {
  if (index_varies(index))
    return LLVMBuildICmp(e->builder, LLVMIntULT, index_each(e, index), each_constant(e, size),
                         "inside");
  return LLVMBuildICmp(e->builder, LLVMIntULT, index->at, emit_index(e, size), "inside");
}

/* Puts the index of `dim` into p such that nothing outside of the operand is read where
 * `inside` does not hold. */
void expr_guarded(Emit *e, Point *p, Str dim, Index index, LLVMValueRef inside) {
  index.dim = dim;
  if (index_varies(&index)) {
    p->mask = p->mask ? LLVMBuildAnd(e->builder, p->mask, inside, "") : inside;
  } else {
    index.at = LLVMBuildSelect(e->builder, inside, index.at, emit_index(e, 0), "");
    index.multiple = 0;
  }
  point_set(p, index);
}

LLVMValueRef expr_choose(Emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b) {
  int lanes = emit_lanes_of(c)   ? emit_lanes_of(c)
              : emit_lanes_of(a) ? emit_lanes_of(a)
                                 : emit_lanes_of(b);
  return LLVMBuildSelect(e->builder, c, emit_splat(e, a, lanes), emit_splat(e, b, lanes), "");
}

/* ---- one function per op ---- */

Index point_taken(const Point *p, Str dim) {
  const Index *index = point_find(p, dim);
  if (!index) bug("no index for %s", dim);
  return *index;
}

void point_remove(Point *p, Str dim) {
  Index *index = point_find(p, dim);
  if (index) *index = p->index[--p->n];
}

static Elem elem_of(Emit *e, ValueId v) { return value_type(e->k, v)->elem; }

static void remove_to(const Op *op, Point *p) {
  for (int g = 0; g < op->ngroups; g++)
    for (int i = 0; i < op->group[g].nto; i++) point_remove(p, op->group[g].to[i]);
}

/* All new names go before an old one comes, so that names may be exchanged. */
static LLVMValueRef renamed(Emit *e, const Op *op, const Point *p) {
  Point q = *p;
  remove_to(op, &q);
  for (int g = 0; g < op->ngroups; g++)
    for (int i = 0; i < op->group[g].nto; i++) {
      Index index = point_taken(p, op->group[g].to[i]);
      index.dim = op->group[g].from[i];
      point_set(&q, index);
    }
  return expr_value(e, op->in[0], &q);
}

/* D -> A, B: D = A * |B| + B */
static LLVMValueRef split(Emit *e, const Op *op, ValueId v, const Point *p) {
  Point q = *p;
  remove_to(op, &q);
  for (int g = 0; g < op->ngroups; g++) {
    const Group *group = &op->group[g];
    Index index = point_taken(p, group->to[0]);
    for (int i = 1; i < group->nto; i++) {
      Index fast = point_taken(p, group->to[i]);
      index = index_join(e, &index, &fast, type_size(value_type(e->k, v), group->to[i]));
    }
    index.dim = group->from[0];
    point_set(&q, index);
  }
  return expr_value(e, op->in[0], &q);
}

/* A, B -> D: A = D / |B|, B = D % |B| */
static LLVMValueRef merge(Emit *e, const Op *op, const Point *p) {
  Point q = *p;
  const Type *from = value_type(e->k, op->in[0]);
  remove_to(op, &q);
  for (int g = 0; g < op->ngroups; g++) {
    const Group *group = &op->group[g];
    Index index = point_taken(p, group->to[0]);
    for (int i = group->nfrom - 1; i > 0; i--) {
      Index slow, fast;
      index_cut(e, &index, type_size(from, group->from[i]), &slow, &fast);
      fast.dim = group->from[i];
      point_set(&q, fast);
      index = slow;
    }
    index.dim = group->from[0];
    point_set(&q, index);
  }
  return expr_value(e, op->in[0], &q);
}

static LLVMValueRef slice(Emit *e, const Op *op, const Point *p) {
  Point q = *p;
  int64_t at = attr_int(&op->attrs, ATTR_at, 0);
  remove_to(op, &q);
  for (int g = 0; g < op->ngroups; g++) {
    Index index = expr_index_add(e, point_taken(p, op->group[g].to[0]), at);
    index.dim = op->group[g].from[0];
    point_set(&q, index);
  }
  return expr_value(e, op->in[0], &q);
}

/* pad and shift: the operand's index is the result's minus a constant; outside is `fill` */
static LLVMValueRef offset_or_fill(Emit *e, const Op *op, ValueId v, const Point *p, int64_t by) {
  const Group *group = op->group;
  const Type *from = value_type(e->k, op->in[0]);
  Point q = *p;
  LLVMValueRef inside = NULL;
  remove_to(op, &q);
  for (int g = 0; g < op->ngroups; g++) {
    Str source = group[g].from[0];
    Index index = expr_index_add(e, point_taken(p, group[g].arrow ? group[g].to[0] : source), -by);
    LLVMValueRef in = expr_inside(e, &index, type_size(from, source));
    expr_guarded(e, &q, source, index, in);
    int lanes = inside && emit_lanes_of(inside) ? emit_lanes_of(inside) : emit_lanes_of(in);
    inside = inside ? LLVMBuildAnd(e->builder, emit_splat(e, inside, lanes),
                                   emit_splat(e, in, lanes), "")
                    : in;
  }
  LLVMValueRef fill = emit_number(e, elem_of(e, v), attr_float(&op->attrs, ATTR_fill, 0));
  return expr_choose(e, inside, expr_value(e, op->in[0], &q), fill);
}

static LLVMValueRef stack(Emit *e, const Op *op, const Point *p) {
  Index index = point_taken(p, op->group[0].from[0]);
  Point q = *p;
  point_remove(&q, index.dim);
  LLVMValueRef number = index_number(e, &index);
  LLVMValueRef result = expr_value(e, op->in[0], &q);
  for (uint32_t i = 1; i < op->nin; i++) {
    LLVMValueRef is = emit_splat(e, LLVMConstInt(i32_type(e), i, 0), emit_lanes_of(number));
    LLVMValueRef here = LLVMBuildICmp(e->builder, LLVMIntEQ, number, is, "");
    result = expr_choose(e, here, expr_value(e, op->in[i], &q), result);
  }
  return result;
}

static LLVMValueRef unstack(Emit *e, const Op *op, ValueId v, const Point *p) {
  Point q = *p;
  Index index = index_constant(e, v - op->out);
  index.dim = op->group[0].from[0];
  point_set(&q, index);
  return expr_value(e, op->in[0], &q);
}

/* Where indexes are i32, a wider number that does not fit becomes -1: outside, as it was. */
static LLVMValueRef scalar_index(Emit *e, LLVMValueRef number, Elem elem) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef from = LLVMTypeOf(number);
  if (from == e->index) return number;
  if (elem != ELEM_i64) return LLVMBuildSExt(builder, number, e->index, "");
  LLVMValueRef limit = LLVMConstInt(from, 1ull << 31, 0),
               low = LLVMBuildTrunc(builder, number, e->index, "");
  return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntULT, number, limit, ""), low,
                         LLVMConstAllOnes(e->index), "");
}

/* The index that an i32 value gives: scalar, or one per lane. */
static Index index_of_value(Emit *e, LLVMValueRef number, Elem elem) {
  Index index = {0};
  if (emit_lanes_of(number)) {
    index.each = elem == ELEM_i64
                     ? LLVMBuildTrunc(e->builder, number,
                                      LLVMVectorType(i32_type(e), (unsigned)e->lanes), "")
                     : number;
  } else {
    index.at = scalar_index(e, number, elem);
  }
  return index;
}

static Point point_of_operand(Emit *e, ValueId operand, const Point *p, Str but) {
  const Type *t = value_type(e->k, operand);
  Point q = {.mask = p->mask, .guard = p->guard, .guard_moved = p->guard_moved};
  for (int a = 0; a < t->rank; a++) {
    const Index *index = point_find(p, t->axis[a].dim);
    if (index && t->axis[a].dim != but) point_set(&q, *index);
  }
  return q;
}

static LLVMValueRef gather(Emit *e, const Op *op, ValueId v, const Point *p) {
  Str dim = op->group[0].from[0];
  LLVMValueRef number = expr_value(e, op->in[1], p);
  Index index = index_of_value(e, number, elem_of(e, op->in[1]));
  LLVMValueRef inside = expr_inside(e, &index, type_size(value_type(e->k, op->in[0]), dim));
  Point q = point_of_operand(e, op->in[0], p, dim);
  expr_guarded(e, &q, dim, index, inside);
  LLVMValueRef found = expr_value(e, op->in[0], &q);
  return expr_choose(e, inside, found, emit_number(e, elem_of(e, v), 0));
}

/* ---- bits in bytes ---- */

/* Element k of byte x. */
static Index bit_of(Emit *e, const Index *x, int k) {
  Index r = {.multiple = gcd_i64(BYTE_BITS * x->multiple, k)};
  if (index_varies(x)) {
    r.each = LLVMBuildMul(e->builder, index_each(e, x), each_constant(e, BYTE_BITS), "");
    r.each = LLVMBuildAdd(e->builder, r.each, each_constant(e, k), "");
  } else {
    r.at = LLVMBuildMul(e->builder, x->at, emit_index(e, BYTE_BITS), "");
    r.at = LLVMBuildAdd(e->builder, r.at, emit_index(e, k), "");
  }
  return r;
}

/* One byte, or one per lane: each bit on its own. */
static LLVMValueRef pack_apart(Emit *e, const Op *op, const Index *index, Point *point) {
  LLVMValueRef all = NULL;
  for (int k = 0; k < BYTE_BITS; k++) {
    Index bit = bit_of(e, index, k);
    bit.dim = op->group[0].from[0];
    point_set(point, bit);
    LLVMValueRef b = expr_convert(e, expr_value(e, op->in[0], point), ELEM_bool, ELEM_u8);
    LLVMTypeRef t = LLVMTypeOf(b);
    LLVMValueRef by = LLVMConstInt(emit_type(e, ELEM_u8), (uint64_t)k, 0);
    b = LLVMBuildShl(e->builder, b, emit_splat(e, by, emit_lanes_of(b)), "");
    must(!all || LLVMTypeOf(all) == t, "kernel %s: bits of a byte differ in form", e->k->name);
    all = all ? LLVMBuildOr(e->builder, all, b, "") : b;
  }
  return all;
}

static LLVMValueRef pack_bits(Emit *e, const Op *op, const Point *p) {
  Index index = point_taken(p, op->group[0].to[0]);
  Point q = *p;
  remove_to(op, &q);
  bool along = index.lane && !index.each && e->lanes % BYTE_BITS == 0;
  return along ? expr_pack_along(e, op, &index, &q) : pack_apart(e, op, &index, &q);
}

static LLVMValueRef unpack_bits(Emit *e, const Op *op, const Point *p) {
  Str dim = op->group[0].from[0];
  Index index = point_taken(p, op->group[0].to[0]), at, bit;
  Point q = *p;
  remove_to(op, &q);
  if (e->lanes % BYTE_BITS == 0 && stays_within(e, &index, e->lanes))
    return expr_unpack_along(e, op, &index, &q);
  index_cut(e, &index, BYTE_BITS, &at, &bit);
  at.dim = dim;
  point_set(&q, at);
  LLVMValueRef byte = expr_value(e, op->in[0], &q), by = index_number(e, &bit);
  int lanes = emit_lanes_of(byte) ? emit_lanes_of(byte) : emit_lanes_of(by);
  by = expr_convert(e, by, ELEM_i32, ELEM_u8);
  byte = LLVMBuildLShr(e->builder, emit_splat(e, byte, lanes), emit_splat(e, by, lanes), "");
  LLVMTypeRef bits = LLVMInt1TypeInContext(e->context);
  return LLVMBuildTrunc(e->builder, byte, lanes ? LLVMVectorType(bits, (unsigned)lanes) : bits, "");
}

/* ---- numbers from positions ---- */

/* The frequencies of i < D/2, as constants of the module. Named after the kernel and the
   attributes: one file may hold the code of several kernels. */
static LLVMValueRef frequency_table(Emit *e, const Op *rope, int64_t half) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  static const AttrKey told[] = {ATTR_theta, ATTR_factor, ATTR_original, ATTR_slow, ATTR_fast};
  char *name = arena_printf(e->arena, "%s_frequencies_%lld_%lld", e->symbol, (long long)half,
                            (long long)attr_int(&rope->attrs, ATTR_ramp, 0));
  for (size_t i = 0; i < sizeof told / sizeof *told && attr_get(&rope->attrs, told[i]); i++) {
    double x = attr_float(&rope->attrs, told[i], 0);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    name = arena_printf(e->arena, "%s_%llx", name, (unsigned long long)bits);
  }
  LLVMValueRef table = LLVMGetNamedGlobal(e->module, name);
  if (table) return table;
  LLVMValueRef *numbers = ARENA_ARRAY(e->arena, LLVMValueRef, half);
  for (int64_t i = 0; i < half; i++)
    numbers[i] = LLVMConstReal(f32, (float)rope_frequency(rope, i, 2 * half));
  table = LLVMAddGlobalInAddressSpace(e->module, LLVMArrayType2(f32, (uint64_t)half), name,
                                      e->target->code->constant_space);
  LLVMSetInitializer(table, LLVMConstArray2(f32, numbers, (uint64_t)half));
  LLVMSetGlobalConstant(table, 1);
  LLVMSetLinkage(table, LLVMPrivateLinkage);
  LLVMSetAlignment(table, 64);
  return table;
}

/* Table entry for an index below its length. Lanes past the end of D may ask for more: those wrap
 * around. */
static LLVMValueRef frequency(Emit *e, LLVMValueRef table, const Index *index, int64_t half) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  LLVMBuilderRef builder = e->builder;
  if (!index->each && (!index->lane || stays_within(e, index, half))) {
    LLVMValueRef at = index->at;
    LLVMTypeRef t = index->lane ? LLVMVectorType(f32, (unsigned)e->lanes) : f32;
    LLVMValueRef x = LLVMBuildLoad2(builder, t, LLVMBuildGEP2(builder, f32, table, &at, 1, ""), "");
    LLVMSetAlignment(x, 4);
    return x;
  }
  LLVMValueRef at = LLVMBuildURem(builder, index_each(e, index), each_constant(e, half), "");
  LLVMValueRef pointers = LLVMBuildGEP2(builder, f32, table, &at, 1, "");
  LLVMTypeRef vector = LLVMVectorType(f32, (unsigned)e->lanes);
  LLVMTypeRef types[] = {vector, LLVMTypeOf(pointers)};
  LLVMValueRef on =
      LLVMConstAllOnes(LLVMVectorType(LLVMInt1TypeInContext(e->context), (unsigned)e->lanes));
  LLVMValueRef args[] = {pointers, LLVMConstInt(i32_type(e), 4, 0), on, LLVMConstNull(vector)};
  return emit_intrinsic_types(e, "llvm.masked.gather", 2, types, 4, args);
}

/* For index d of D: d mod half, the partner d +- half, and whether d is in the lower half. */
static void rope_indexes(Emit *e, const Index *d, int64_t half, Index *i, Index *partner,
                         LLVMValueRef *low) {
  LLVMBuilderRef builder = e->builder;
  bool simple = !index_varies(d) || stays_within(e, d, half);
  Index slow;
  index_cut(e, d, half, &slow, i);
  *partner = *d;
  if (simple) {
    LLVMValueRef h = emit_index(e, half);
    *low = LLVMBuildICmp(builder, LLVMIntULT, d->at, h, "");
    partner->at = LLVMBuildSelect(builder, *low, LLVMBuildAdd(builder, d->at, h, ""),
                                  LLVMBuildSub(builder, d->at, h, ""), "");
    partner->multiple = gcd_i64(d->multiple, half);
    return;
  }
  LLVMValueRef n = index_each(e, d), h = each_constant(e, half);
  *low = LLVMBuildICmp(builder, LLVMIntULT, n, h, "");
  partner->each = LLVMBuildSelect(builder, *low, LLVMBuildAdd(builder, n, h, ""),
                                  LLVMBuildSub(builder, n, h, ""), "");
}

static LLVMValueRef rope_angle(Emit *e, const Op *op, const Point *p, const Index *i,
                               int64_t half) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  LLVMValueRef position;
  if (op->nin > 1) {
    position = expr_convert(e, expr_value(e, op->in[1], p), elem_of(e, op->in[1]), ELEM_f32);
  } else {
    Index s = point_taken(p, op->group[0].from[0]);
    LLVMValueRef n = index_number(e, &s);
    int lanes = emit_lanes_of(n);
    position =
        LLVMBuildSIToFP(e->builder, n, lanes ? LLVMVectorType(f32, (unsigned)lanes) : f32, "");
  }
  LLVMValueRef table = frequency_table(e, op, half);
  LLVMValueRef f = frequency(e, table, i, half);
  int lanes = emit_lanes_of(f) ? emit_lanes_of(f) : emit_lanes_of(position);
  return LLVMBuildFMul(e->builder, emit_splat(e, position, lanes), emit_splat(e, f, lanes),
                       "angle");
}

/* y[i] = x[i] cos a - x[i + h] sin a, y[i + h] = x[i + h] cos a + x[i] sin a; backwards with -a */
static LLVMValueRef rope(Emit *e, const Op *op, ValueId v, const Point *p) {
  LLVMBuilderRef builder = e->builder;
  Str dim = op->group[1].from[0];
  int64_t half = type_size(value_type(e->k, v), dim) / 2;
  Index d = point_taken(p, dim), i, partner;
  LLVMValueRef low;
  rope_indexes(e, &d, half, &i, &partner, &low);
  LLVMValueRef angle = rope_angle(e, op, p, &i, half);
  LLVMValueRef sine = math_unary(e, OP_sin, angle), cosine = math_unary(e, OP_cos, angle);
  LLVMValueRef negative = LLVMBuildFNeg(builder, sine, "");
  bool back = attr_int(&op->attrs, ATTR_inverse, 0) != 0;
  sine = expr_choose(e, low, back ? sine : negative, back ? negative : sine);
  Point q = *p;
  point_set(&q, partner);
  LLVMValueRef x = expr_value(e, op->in[0], p), y = expr_value(e, op->in[0], &q);
  int lanes = emit_lanes_of(x)      ? emit_lanes_of(x)
              : emit_lanes_of(sine) ? emit_lanes_of(sine)
                                    : emit_lanes_of(y);
  x = emit_splat(e, x, lanes), y = emit_splat(e, y, lanes);
  LLVMValueRef straight = LLVMBuildFMul(builder, x, emit_splat(e, cosine, lanes), "");
  return LLVMBuildFAdd(builder, straight, LLVMBuildFMul(builder, y, emit_splat(e, sine, lanes), ""),
                       "");
}

/* base + sum of index * stride, as i64 */
static LLVMValueRef logical_index(Emit *e, const Op *op, const Point *p) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  Elem elem = elem_of(e, op->in[2]);
  LLVMValueRef sum = expr_convert(e, expr_value(e, op->in[2], p), elem, ELEM_i64);
  const Attr *strides = attr_get(&op->attrs, ATTR_strides);
  for (int d = 0; op->ngroups && d < op->group[0].nfrom; d++) {
    Index index = point_taken(p, op->group[0].from[d]);
    LLVMValueRef n = index_number(e, &index);
    int lanes = emit_lanes_of(n);
    n = LLVMBuildSExt(builder, n, lanes ? LLVMVectorType(i64, (unsigned)lanes) : i64, "");
    LLVMValueRef part =
        LLVMBuildMul(builder, n, emit_splat(e, emit_i64(e, strides->list[d]), lanes), "");
    if (emit_lanes_of(sum)) lanes = emit_lanes_of(sum);
    sum = LLVMBuildAdd(builder, emit_splat(e, sum, lanes), emit_splat(e, part, lanes), "");
  }
  return sum;
}

static LLVMValueRef low_word(Emit *e, LLVMValueRef x) {
  int lanes = emit_lanes_of(x);
  LLVMTypeRef t = lanes ? LLVMVectorType(i32_type(e), (unsigned)lanes) : i32_type(e);
  return LLVMBuildTrunc(e->builder, x, t, "");
}

static LLVMValueRef high_word(Emit *e, LLVMValueRef x) {
  LLVMValueRef by = emit_splat(e, emit_i64(e, 32), emit_lanes_of(x));
  return low_word(e, LLVMBuildLShr(e->builder, x, by, ""));
}

static LLVMValueRef rand_op(Emit *e, const Op *op, ValueId v, const Point *p) {
  LLVMValueRef index = logical_index(e, op, p);
  LLVMValueRef seed = expr_convert(e, expr_value(e, op->in[0], p), elem_of(e, op->in[0]), ELEM_i64);
  LLVMValueRef step = expr_convert(e, expr_value(e, op->in[1], p), elem_of(e, op->in[1]), ELEM_i32);
  int lanes = emit_lanes_of(index);
  uint64_t tensor = (uint32_t)attr_int(&op->attrs, ATTR_key, 0);
  LLVMValueRef counter[] = {low_word(e, index), high_word(e, index), emit_splat(e, step, lanes),
                            emit_splat(e, high_word(e, seed), lanes)};
  LLVMValueRef key[] = {emit_splat(e, low_word(e, seed), lanes),
                        emit_splat(e, LLVMConstInt(i32_type(e), tensor, 0), lanes)};
  return expr_convert(e, math_uniform(e, counter, key), ELEM_f32, elem_of(e, v));
}

LLVMValueRef expr_moved(Emit *e, const Op *op, ValueId v, const Point *outer) {
  must(op->ngroups || op->code == OP_where, "kernel %s: %s names no dims", e->k->name,
       op_name(op->code));
  Point p = point_restrict(e, v, outer);
  if (op->code != OP_expand) p.guard_moved = p.guard != NULL;
  switch (op->code) {
  case OP_expand: return expr_value(e, op->in[0], &p);
  case OP_iota: {
    Index index = point_taken(&p, op->group[0].from[0]);
    return index_number(e, &index);
  }
  case OP_rand: return rand_op(e, op, v, &p);
  case OP_rename: return renamed(e, op, &p);
  case OP_split: return split(e, op, v, &p);
  case OP_merge: return merge(e, op, &p);
  case OP_slice: return slice(e, op, &p);
  case OP_pad: return offset_or_fill(e, op, v, &p, attr_int(&op->attrs, ATTR_at, 0));
  case OP_shift: return offset_or_fill(e, op, v, &p, attr_int(&op->attrs, ATTR_by, 0));
  case OP_concat: return expr_concat(e, op, &p);
  case OP_stack: return stack(e, op, &p);
  case OP_unstack: return unstack(e, op, v, &p);
  case OP_gather: return gather(e, op, v, &p);
  case OP_rope: return rope(e, op, v, &p);
  case OP_pack_bits: return pack_bits(e, op, &p);
  case OP_unpack_bits: return unpack_bits(e, op, &p);
  default: bug("the expression generator does not know %s", op_name(op->code));
  }
}

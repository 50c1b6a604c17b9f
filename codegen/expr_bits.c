/* Bits in bytes along the lanes of vectors, in the expression generator: bit k of a byte is element
   8 b + k, so that a vector of bits is a word, and words are the bytes.

   On processors with mask registers a vector of 64 bytes that are bools, compared with 0, becomes
   such a word by one move; on those without, by one move of the signs of 32. Bools in memory are
   converted in groups of that size, also in kernels whose vectors have fewer lanes; bytes of bits
   are read by the word. Must not: read past the last byte. */
#include "expr.h"

enum { BITS = BYTE_BITS };

static LLVMTypeRef i32_type(Emit *e) { return LLVMInt32TypeInContext(e->context); }

/* Lanes k * lanes .. of BITS times as many: which of the bytes' lanes each belongs to. */
static LLVMValueRef mask_of_bits(Emit *e, LLVMValueRef mask, int k, int lanes) {
  LLVMValueRef at[64];
  if (!mask) return NULL;
  for (int i = 0; i < lanes; i++)
    at[i] = LLVMConstInt(i32_type(e), (uint64_t)((k * lanes + i) / BITS), 0);
  return LLVMBuildShuffleVector(e->builder, mask, LLVMGetPoison(LLVMTypeOf(mask)),
                                LLVMConstVector(at, (unsigned)lanes), "");
}

/* For a vector of e->lanes bytes, the number of bits that fit one register: of bools in memory,
   which are bytes, the number of its bytes, of others the number of lanes of the kernel's
   vectors. */
static int bits_at_once(const Emit *e, const Op *op) {
  int widest = 0, all = BITS * e->lanes;
  if (!value_def(e->k, op->in[0])) widest = e->target->facts.vector_bytes;
  if (widest > 64) widest = 64;
  return widest > e->lanes && all % widest == 0 ? widest : e->lanes;
}

/* One stream of bools is read, an eighth of it written: what the processor fetches of one stream by
   itself keeps memory busy for two thirds of the time. */
static void fetch_ahead(Emit *e, const Op *op, const Point *p) {
  enum { AHEAD = 1024 };
  Point place = *p;
  Index bit = *point_find(p, op->group[0].from[0]);
  bit.at = LLVMBuildAdd(e->builder, bit.at, emit_index(e, AHEAD), "");
  point_set(&place, bit);
  emit_prefetch(e, expr_address(e, op->in[0], &place), false);
}

/* Consecutive bytes: a vector of bits is a word of its own, and these words are the bytes. */
LLVMValueRef expr_pack_along(Emit *e, const Op *op, const Index *index, Point *point) {
  LLVMBuilderRef builder = e->builder;
  int bytes = e->lanes, wide = bits_at_once(e, op), words = BITS * bytes / wide;
  LLVMTypeRef word = LLVMIntTypeInContext(e->context, (unsigned)wide);
  LLVMValueRef all = LLVMGetPoison(LLVMVectorType(word, (unsigned)words)), mask = point->mask,
               first = LLVMBuildMul(builder, index->at, emit_index(e, BITS), "");
  int64_t step = index->multiple && BITS * index->multiple % wide == 0 ? wide : BITS;
  e->lanes = wide;
  for (int k = 0; k < words; k++) {
    LLVMValueRef bit = LLVMBuildAdd(builder, first, emit_index(e, k * wide), "");
    point_set(point,
              (Index){.dim = op->group[0].from[0], .at = bit, .lane = true, .multiple = step});
    point->mask = mask_of_bits(e, mask, k, wide);
    if (wide > bytes) fetch_ahead(e, op, point);
    LLVMValueRef v = emit_splat(e, expr_value(e, op->in[0], point), wide);
    v = LLVMBuildBitCast(builder, v, word, "");
    all = LLVMBuildInsertElement(builder, all, v, LLVMConstInt(i32_type(e), (uint64_t)k, 0), "");
  }
  e->lanes = bytes;
  LLVMTypeRef byte = LLVMInt8TypeInContext(e->context);
  return LLVMBuildBitCast(builder, all, LLVMVectorType(byte, (unsigned)bytes), "");
}

/* The bytes of a vector of bits, one by one: lanes after the last byte are masked. */
static LLVMValueRef bytes_apart(Emit *e, const Op *op, LLVMValueRef first, Point *point) {
  int n = e->lanes / BITS;
  int64_t bytes = type_size(value_type(e->k, op->in[0]), op->group[0].from[0]);
  LLVMTypeRef byte = LLVMInt8TypeInContext(e->context);
  LLVMValueRef all = LLVMGetPoison(LLVMVectorType(byte, (unsigned)n));
  for (int k = 0; k < n; k++) {
    Index at = {.at = LLVMBuildAdd(e->builder, first, emit_index(e, k), "")};
    expr_guarded(e, point, op->group[0].from[0], at, expr_inside(e, &at, bytes));
    LLVMValueRef one = expr_value(e, op->in[0], point);
    all =
        LLVMBuildInsertElement(e->builder, all, one, LLVMConstInt(i32_type(e), (uint64_t)k, 0), "");
  }
  return all;
}

/* All of them in one load; no lane is masked. */
static LLVMValueRef bytes_together(Emit *e, const Op *op, LLVMValueRef first, Point *point) {
  int lanes = e->lanes, n = lanes / BITS;
  point_set(point, (Index){.dim = op->group[0].from[0], .at = first, .lane = true, .multiple = n});
  e->lanes = n;
  LLVMValueRef all = emit_splat(e, expr_value(e, op->in[0], point), n);
  e->lanes = lanes;
  return all;
}

/* Consecutive bits from the first of a byte on: the bytes are the vector of bits. */
LLVMValueRef expr_unpack_along(Emit *e, const Op *op, const Index *index, Point *point) {
  LLVMValueRef first = LLVMBuildUDiv(e->builder, index->at, emit_index(e, BITS), "");
  bool together = e->lanes > BITS && !point->mask && !value_def(e->k, op->in[0]);
  LLVMValueRef all =
      together ? bytes_together(e, op, first, point) : bytes_apart(e, op, first, point);
  LLVMTypeRef bits = LLVMVectorType(LLVMInt1TypeInContext(e->context), (unsigned)e->lanes);
  return LLVMBuildBitCast(e->builder, all, bits, "");
}

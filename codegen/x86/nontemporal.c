/* Results that are written with non-temporal stores: see nontemporal.h. Must not: decide which are
   worth it; that is `select` (passes/tune/tune_nontemporal.c) or the family. */
#include "nontemporal.h"

enum { LINE = 64, LONG_ROW = 1024, LEAST_VECTOR = 16 };

/* ---- which ---- */

static bool wanted(const Emit *e, uint32_t result) {
  const Attr *a = attr_get(&e->k->attrs, ATTR_nontemporal);
  for (int64_t i = 0; a && i < a->i; i++)
    if (a->list[i] == result) return true;
  return false;
}

static ValueId value_of(const Emit *e, uint32_t result) { return e->k->results.at[result]; }

static int64_t bytes_of(const Emit *e, uint32_t result) {
  return elem_bytes(value_type(e->k, value_of(e, result))->elem);
}

static bool whole_vectors(const Emit *e, const NontemporalSpace *s, uint32_t result) {
  int64_t vector = e->lanes * bytes_of(e, result);
  return buffer_stride(e->k, value_of(e, result), s->inner) == 1 && vector >= LEAST_VECTOR &&
         vector <= e->target->facts.vector_bytes;
}

/* Bytes between neighbours in outer dim i; 0: the result lacks it, and is stored once for all. */
static int64_t step(const Emit *e, const NontemporalSpace *s, uint32_t result, int i) {
  return buffer_stride(e->k, value_of(e, result), s->outer[i].dim) * bytes_of(e, result);
}

static bool has_rows(const Emit *e, const NontemporalSpace *s, uint32_t result) {
  for (int i = 0; i < s->n; i++)
    if (s->outer[i].size > 1 && !step(e, s, result, i)) return false;
  return true;
}

static bool is_ragged(const Emit *e, const NontemporalSpace *s, uint32_t result) {
  for (int i = 0; i < s->n; i++)
    if (step(e, s, result, i) % LINE) return true;
  return false;
}

/* A head of the first result's row is then one of this one's. */
static bool same_steps(const Emit *e, const NontemporalSpace *s, uint32_t result, uint32_t first) {
  for (int i = 0; i < s->n; i++)
    if ((step(e, s, result, i) - step(e, s, first, i)) % LINE) return false;
  return bytes_of(e, result) == bytes_of(e, first);
}

/* Ops that take vectors apart where they do not begin at a multiple of their length */
static bool moves(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++) {
    OpCode c = k->ops.at[i].code;
    if (op_family(c) == FAMILY_STRUCT && c != OP_expand && c != OP_rename) return true;
  }
  return false;
}

static void choose(Emit *e, const NontemporalSpace *space, Nontemporal *nontemporal) {
  must(e->k->results.n <= 64, "kernel %s: stores of %u results have a bit each", e->k->name,
       e->k->results.n);
  bool heads = space->heads && !moves(e->k);
  for (uint32_t r = 0; r < e->k->results.n; r++) {
    if (!wanted(e, r) || !whole_vectors(e, space, r) || !has_rows(e, space, r)) continue;
    bool ragged = is_ragged(e, space, r);
    if (ragged && (!heads || space->length * bytes_of(e, r) < LONG_ROW)) continue;
    if (!nontemporal->results) nontemporal->first = r, nontemporal->ragged = ragged;
    if (ragged == nontemporal->ragged && same_steps(e, space, r, nontemporal->first))
      nontemporal->results |= 1ull << r;
  }
}

/* ---- whether ---- */

LLVMValueRef nontemporal_aligned(Emit *e, LLVMValueRef address, int64_t bytes) {
  must(bytes > 0 && !(bytes & (bytes - 1)), "kernel %s: aligned to %lld bytes", e->k->name,
       (long long)bytes);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef at = LLVMBuildPtrToInt(e->builder, address, i64, "");
  at = LLVMBuildAnd(e->builder, at, emit_i64(e, bytes - 1), "");
  return LLVMBuildICmp(e->builder, LLVMIntEQ, at, emit_i64(e, 0), "");
}

static LLVMValueRef both(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return a ? LLVMBuildAnd(e->builder, a, b, "") : b;
}

static LLVMValueRef in_no_operand(Emit *e, uint32_t result, LLVMValueRef all) {
  const Fn *k = e->k;
  LLVMValueRef own = emit_buffer(e, k->args.n + result);
  for (uint32_t i = 0; i < k->args.n; i++)
    if (value_dense_bytes(k, k->args.at[i]) == value_dense_bytes(k, value_of(e, result)))
      all = both(e, all, LLVMBuildICmp(e->builder, LLVMIntNE, own, emit_buffer(e, i), ""));
  return all;
}

/* Ragged rows begin where they like, but all results' at the same place of a line. */
static LLVMValueRef on_lines(Emit *e, const Nontemporal *nontemporal, uint32_t result,
                             LLVMValueRef all) {
  LLVMTypeRef byte = LLVMInt8TypeInContext(e->context), i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef at = emit_buffer(e, e->k->args.n + result);
  if (nontemporal->ragged) {
    LLVMValueRef first = emit_buffer(e, e->k->args.n + nontemporal->first);
    LLVMValueRef back = LLVMBuildNeg(e->builder, LLVMBuildPtrToInt(e->builder, first, i64, ""), "");
    at = LLVMBuildGEP2(e->builder, byte, at, &back, 1, "");
  }
  return both(e, all, nontemporal_aligned(e, at, LINE));
}

Nontemporal nontemporal_of(Emit *e, const NontemporalSpace *space) {
  Nontemporal nontemporal = {0};
  if (!e->quick) choose(e, space, &nontemporal);
  for (uint32_t r = 0; r < e->k->results.n; r++)
    if (nontemporal.results >> r & 1)
      nontemporal.holds = on_lines(e, &nontemporal, r, in_no_operand(e, r, nontemporal.holds));
  return nontemporal;
}

LLVMValueRef nontemporal_head(Emit *e, const Nontemporal *nontemporal, const Point *p) {
  int64_t bytes = bytes_of(e, nontemporal->first);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef at =
      LLVMBuildPtrToInt(e->builder, expr_address(e, value_of(e, nontemporal->first), p), i64, "");
  LLVMValueRef left = LLVMBuildNeg(e->builder, at, "");
  left = LLVMBuildAnd(e->builder, left, emit_i64(e, e->lanes * bytes - 1), "");
  return LLVMBuildUDiv(e->builder, left, emit_i64(e, bytes), "head");
}

/* ---- code ---- */

void nontemporal_either(Emit *e, uint64_t results, LLVMValueRef holds, NontemporalBody *body,
                        void *state) {
  if (!results) {
    body(state);
    return;
  }
  Branch branch = emit_if(e, holds);
  e->nontemporal = results;
  body(state);
  e->nontemporal = 0;
  emit_end_if(e, branch);
  branch = emit_if(e, LLVMBuildNot(e->builder, holds, ""));
  body(state);
  emit_end_if(e, branch);
}

void nontemporal_end(Emit *e, uint64_t results) {
  if (results) emit_intrinsic_types(e, "llvm.x86.sse.sfence", 0, NULL, 0, NULL);
}

/* ---- stores ---- */

/* As machine code, because passes turn the vector back into one of bfloat, for which the mark on a
   store does nothing; of f16 in the form of words, which every target has registers for. */
void emit_nontemporal_store(Emit *e, LLVMValueRef pointer, LLVMValueRef vector) {
  static const char text[] = "vmovntps $1, ($0)", where[] = "r,v,~{memory}";
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context), was = LLVMTypeOf(vector);
  if (LLVMGetTypeKind(LLVMGetElementType(was)) == LLVMHalfTypeKind)
    vector = LLVMBuildBitCast(e->builder, vector, LLVMVectorType(i16, LLVMGetVectorSize(was)), "");
  LLVMTypeRef t[] = {LLVMTypeOf(pointer), LLVMTypeOf(vector)};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), t, 2, 0);
  LLVMValueRef code = LLVMGetInlineAsm(type, text, sizeof text - 1, where, sizeof where - 1, 1, 0,
                                       LLVMInlineAsmDialectATT, 0);
  LLVMBuildCall2(e->builder, type, code, (LLVMValueRef[]){pointer, vector}, 2, "");
}

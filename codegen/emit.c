/* Shared vocabulary of the kernel emitters: life of an Emit, phases, loops, branches, constants,
   intrinsics.

   Each device defines how a phase begins (device_code.h). Loops test at the top and carry values in
   phis; the pipeline rotates them. Nothing in this file depends on a kernel family.

   Vectors wider than a register are legal everywhere but slow: families that emit them choose
   e->lanes. The attribute min-legal-vector-width is never written: without it LLVM uses 512-bit
   registers on every AVX-512 machine. */
#include "device_code.h"
#include <llvm-c/DebugInfo.h>
#include <stdio.h>

/* Whether 31 bits hold every index, every offset into a buffer and every number of a point. */
static bool small_indexes(const Fn *k) {
  for (ValueId v = 0; v < k->values.n; v++) {
    const Type *t = value_type(k, v);
    int64_t span = 1;
    for (int a = 0; a < t->rank; a++) span += (t->axis[a].size - 1) * expr_stride(k, v, a);
    if (span >= 1 << 30 || type_count(t) >= 1 << 30) return false;
  }
  return true;
}

Emit *emit_new(Module *m, const Fn *k, const Target *target, const char *symbol, Arena *arena) {
  must(k->kind == FN_KERNEL, "@%s is compiled as a kernel, and is none", k->name);
  must(target->triple && target->code, "kernel %s: its target has no code generator", k->name);
  Emit *e = ARENA_NEW(arena, Emit);
  e->m = m, e->k = k, e->target = target, e->arena = arena;
  e->symbol = symbol;
  e->context = LLVMContextCreate();
  e->module = LLVMModuleCreateWithNameInContext(e->symbol, e->context);
  e->builder = LLVMCreateBuilderInContext(e->context);
  e->lanes = target->facts.vector_bytes / 4;
  e->index = target->code->narrow_indexes && small_indexes(k) ? LLVMInt32TypeInContext(e->context)
                                                              : LLVMInt64TypeInContext(e->context);
  LLVMSetTarget(e->module, target->triple);
  return e;
}

void emit_free(Emit *e) {
  LLVMDisposeBuilder(e->builder);
  LLVMDisposeModule(e->module);
  LLVMContextDispose(e->context);
}

static const int64_t *positive_list(Emit *e, AttrKey key, int64_t n) {
  const Attr *a = attr_get(&e->k->attrs, key);
  if (!a || a->i < n)
    bug("kernel %s: attribute %s has not %lld entries", e->k->name, attr_name(key), (long long)n);
  for (int64_t i = 0; i < a->i; i++)
    if (a->list[i] < 1)
      bug("kernel %s: attribute %s has an entry below 1", e->k->name, attr_name(key));
  return a->list;
}

const int64_t *emit_tile(Emit *e, int64_t n) { return positive_list(e, ATTR_tile, n); }
const int64_t *emit_chunks(Emit *e, int64_t n) { return positive_list(e, ATTR_chunks, n); }

/* ---- types and constants ---- */

LLVMTypeRef emit_type(Emit *e, Elem elem) {
  switch (elem) {
  case ELEM_f64: return LLVMDoubleTypeInContext(e->context);
  case ELEM_i32: return LLVMInt32TypeInContext(e->context);
  case ELEM_i64: return LLVMInt64TypeInContext(e->context);
  case ELEM_bool: return LLVMInt1TypeInContext(e->context);
  case ELEM_u8: return LLVMInt8TypeInContext(e->context);
  default: return LLVMFloatTypeInContext(e->context); /* f32, bf16, f16 */
  }
}

LLVMTypeRef emit_memory_type(Emit *e, Elem elem) {
  switch (elem) {
  case ELEM_bf16: return LLVMInt16TypeInContext(e->context);
  case ELEM_f16: return LLVMHalfTypeInContext(e->context);
  case ELEM_bool: return LLVMInt8TypeInContext(e->context);
  default: return emit_type(e, elem);
  }
}

LLVMTypeRef emit_vector(Emit *e, Elem elem, int lanes) {
  must(lanes >= 1 && lanes <= 64, "kernel %s: a vector of %d lanes", e->k->name, lanes);
  return lanes > 1 ? LLVMVectorType(emit_type(e, elem), (unsigned)lanes) : emit_type(e, elem);
}

LLVMValueRef emit_i64(Emit *e, int64_t v) {
  return LLVMConstInt(LLVMInt64TypeInContext(e->context), (uint64_t)v, 1);
}

LLVMValueRef emit_index(Emit *e, int64_t v) { return LLVMConstInt(e->index, (uint64_t)v, 1); }

LLVMValueRef emit_f32(Emit *e, double v) {
  return LLVMConstReal(LLVMFloatTypeInContext(e->context), v);
}

LLVMValueRef emit_number(Emit *e, Elem elem, double v) {
  LLVMTypeRef t = emit_type(e, elem);
  if (elem == ELEM_bool) return LLVMConstInt(t, v != 0, 0);
  if (elem_class(elem) == CLASS_FLOAT) return LLVMConstReal(t, elem == ELEM_f64 ? v : (float)v);
  return LLVMConstInt(t, (uint64_t)(int64_t)v, 1);
}

int emit_lanes_of(LLVMValueRef v) {
  LLVMTypeRef t = LLVMTypeOf(v);
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(t) : 0;
}

LLVMValueRef emit_splat(Emit *e, LLVMValueRef scalar, int lanes) {
  int have = emit_lanes_of(scalar);
  must(!have || have == lanes, "kernel %s: %d lanes for %d", e->k->name, have, lanes);
  if (lanes <= 1 || emit_lanes_of(scalar)) return scalar;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMTypeRef vector = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
  LLVMValueRef poison = LLVMGetPoison(vector);
  LLVMValueRef one =
      LLVMBuildInsertElement(e->builder, poison, scalar, LLVMConstInt(i32, 0, 0), "");
  LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(i32, (unsigned)lanes));
  return LLVMBuildShuffleVector(e->builder, one, poison, zeros, "");
}

LLVMValueRef emit_lane_numbers(Emit *e, LLVMTypeRef scalar_type, int lanes, int64_t step) {
  must(lanes >= 1 && lanes <= 64, "kernel %s: %d lanes", e->k->name, lanes);
  LLVMValueRef number[64];
  for (int i = 0; i < lanes; i++) number[i] = LLVMConstInt(scalar_type, (uint64_t)(i * step), 1);
  return LLVMConstVector(number, (unsigned)lanes);
}

LLVMValueRef emit_min_i64(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  must(LLVMTypeOf(a) == LLVMTypeOf(b), "kernel %s: the least of two types", e->k->name);
  LLVMValueRef less = LLVMBuildICmp(e->builder, LLVMIntSLT, a, b, "");
  return LLVMBuildSelect(e->builder, less, a, b, "");
}

LLVMValueRef emit_tail_mask(Emit *e, LLVMValueRef i, LLVMValueRef end, int lanes) {
  must(LLVMTypeOf(i) == LLVMTypeOf(end), "kernel %s: a mask of two types", e->k->name);
  must(!emit_lanes_of(i), "kernel %s: a mask counts from a vector", e->k->name);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef left = LLVMBuildSub(e->builder, end, i, "left");
  LLVMValueRef most = LLVMConstInt(LLVMTypeOf(left), (uint64_t)lanes, 0);
  LLVMValueRef some = LLVMBuildTrunc(e->builder, emit_min_i64(e, left, most), i32, "");
  LLVMValueRef numbers = emit_lane_numbers(e, i32, lanes, 1);
  return LLVMBuildICmp(e->builder, LLVMIntSLT, numbers, emit_splat(e, some, lanes), "mask");
}

/* ---- phases ---- */

uint32_t emit_buffers(const Emit *e) {
  uint32_t n = e->k->args.n + e->k->results.n;
  if (attr_get(&e->k->attrs, ATTR_workspace)) n++;
  if (n > sizeof e->pointer / sizeof *e->pointer) bug("kernel %s: too many buffers", e->k->name);
  return n;
}

void emit_begin_phase(Emit *e, int phase) { e->target->code->begin_phase(e, phase); }

void emit_end_phase(Emit *e) { LLVMBuildRetVoid(e->builder); }

LLVMValueRef emit_buffer(Emit *e, uint32_t operand_or_result) {
  must(operand_or_result < emit_buffers(e), "kernel %s has no buffer %u", e->k->name,
       operand_or_result);
  return e->pointer[operand_or_result];
}

int64_t emit_buffer_align(Emit *e, uint32_t operand_or_result) {
  const Attr *a = attr_get(&e->k->attrs, ATTR_align);
  if (!e->target->code->aligned) return 1;
  return a && operand_or_result < a->i ? a->list[operand_or_result] : 16;
}

/* Units are dealt out so that sizes differ by at most one; chunk and units are constants except the
 * chunk's number. */
void emit_chunk_range(Emit *e, int64_t units, int64_t chunks, LLVMValueRef *from,
                      LLVMValueRef *to) {
  must(chunks >= 1 && units >= 0, "kernel %s: %lld units in %lld chunks", e->k->name,
       (long long)units, (long long)chunks);
  LLVMValueRef n = emit_i64(e, units), d = emit_i64(e, chunks);
  LLVMValueRef next = LLVMBuildAdd(e->builder, e->chunk, emit_i64(e, 1), "");
  *from = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, e->chunk, n, ""), d, "from");
  *to = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, next, n, ""), d, "to");
}

/* ---- control flow ---- */

Loop emit_loop(Emit *e, LLVMValueRef from, LLVMValueRef to, int64_t step, int carried,
               const LLVMValueRef *initial) {
  if (carried > MAX_CARRIED) bug("a loop carries %d values", carried);
  must(step >= 1, "kernel %s: a loop in steps of %lld", e->k->name, (long long)step);
  must(LLVMTypeOf(from) == LLVMTypeOf(to), "kernel %s: a loop from one type to another",
       e->k->name);
  Loop loop = {.carried = carried, .step = step};
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
  loop.head = LLVMAppendBasicBlockInContext(e->context, e->function, "head");
  loop.body = LLVMAppendBasicBlockInContext(e->context, e->function, "body");
  loop.exit = LLVMAppendBasicBlockInContext(e->context, e->function, "exit");
  LLVMBuildBr(e->builder, loop.head);
  LLVMPositionBuilderAtEnd(e->builder, loop.head);
  loop.i = LLVMBuildPhi(e->builder, LLVMTypeOf(from), "i");
  LLVMAddIncoming(loop.i, &from, &before, 1);
  for (int c = 0; c < carried; c++) {
    loop.phi[c] = LLVMBuildPhi(e->builder, LLVMTypeOf(initial[c]), "carried");
    LLVMValueRef first = initial[c];
    LLVMAddIncoming(loop.phi[c], &first, &before, 1);
  }
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, loop.i, to, "more");
  LLVMBuildCondBr(e->builder, more, loop.body, loop.exit);
  LLVMPositionBuilderAtEnd(e->builder, loop.body);
  return loop;
}

/* Metadata of a loop names itself first. */
void emit_keep_rolled(Emit *e, LLVMValueRef back) {
  static const char word[] = "llvm.loop.unroll.disable", kind[] = "llvm.loop";
  LLVMMetadataRef text = LLVMMDStringInContext2(e->context, word, sizeof word - 1),
                  operand[] = {LLVMTemporaryMDNode(e->context, NULL, 0),
                               LLVMMDNodeInContext2(e->context, &text, 1)},
                  node = LLVMMDNodeInContext2(e->context, operand, 2);
  LLVMMetadataReplaceAllUsesWith(operand[0], node);
  LLVMSetMetadata(back, LLVMGetMDKindIDInContext(e->context, kind, sizeof kind - 1),
                  LLVMMetadataAsValue(e->context, node));
}

void emit_loop_end(Emit *e, Loop *loop) {
  LLVMValueRef step = LLVMConstInt(LLVMTypeOf(loop->i), (uint64_t)loop->step, 1);
  LLVMValueRef next = LLVMBuildNSWAdd(e->builder, loop->i, step, "next");
  LLVMBasicBlockRef last = LLVMGetInsertBlock(e->builder);
  LLVMValueRef back = LLVMBuildBr(e->builder, loop->head);
  if (loop->rolled) emit_keep_rolled(e, back);
  LLVMAddIncoming(loop->i, &next, &last, 1);
  for (int c = 0; c < loop->carried; c++) {
    LLVMValueRef v = loop->next[c] ? loop->next[c] : loop->phi[c];
    must(LLVMTypeOf(v) == LLVMTypeOf(loop->phi[c]), "kernel %s: carried value %d changes its type",
         e->k->name, c);
    LLVMAddIncoming(loop->phi[c], &v, &last, 1);
  }
  LLVMPositionBuilderAtEnd(e->builder, loop->exit);
}

Branch emit_if(Emit *e, LLVMValueRef condition) {
  Branch branch;
  must(LLVMTypeOf(condition) == LLVMInt1TypeInContext(e->context),
       "kernel %s: a branch by a number", e->k->name);
  LLVMBasicBlockRef then = LLVMAppendBasicBlockInContext(e->context, e->function, "then");
  branch.rest = LLVMAppendBasicBlockInContext(e->context, e->function, "rest");
  LLVMBuildCondBr(e->builder, condition, then, branch.rest);
  LLVMPositionBuilderAtEnd(e->builder, then);
  return branch;
}

Branch emit_if_apart(Emit *e, uint32_t operand) {
  LLVMValueRef apart = LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0);
  uint32_t result = e->k->args.n;
  if (operand < result)
    apart = LLVMBuildICmp(e->builder, LLVMIntNE, emit_buffer(e, operand), emit_buffer(e, result),
                          "apart");
  return emit_if(e, apart);
}

void emit_end_if(Emit *e, Branch branch) {
  LLVMBuildBr(e->builder, branch.rest);
  LLVMPositionBuilderAtEnd(e->builder, branch.rest);
}

LLVMValueRef emit_if_value(Emit *e, LLVMBasicBlockRef before, LLVMBasicBlockRef made_in,
                           LLVMValueRef made) {
  must(before != made_in, "kernel %s: both ways of a branch come from one block", e->k->name);
  LLVMValueRef x = LLVMBuildPhi(e->builder, LLVMTypeOf(made), ""),
               zero = LLVMConstNull(LLVMTypeOf(made));
  LLVMAddIncoming(x, &zero, &before, 1);
  LLVMAddIncoming(x, &made, &made_in, 1);
  return x;
}

/* ---- intrinsics ---- */

LLVMValueRef emit_intrinsic_types(Emit *e, const char *name, int ntypes, LLVMTypeRef *types, int n,
                                  LLVMValueRef *args) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  if (!id) bug("LLVM has no intrinsic %s", name);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->module, id, types, (size_t)ntypes);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, types, (size_t)ntypes);
  must(LLVMCountParamTypes(type) == (unsigned)n, "kernel %s: %s has %u arguments, not %d",
       e->k->name, name, LLVMCountParamTypes(type), n);
  return LLVMBuildCall2(e->builder, type, f, args, (unsigned)n, "");
}

LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef type, int n,
                            LLVMValueRef *args) {
  return emit_intrinsic_types(e, name, 1, &type, n, args);
}

void emit_prefetch(Emit *e, LLVMValueRef address, bool write) {
  if (e->quick) return;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef args[] = {address, LLVMConstInt(i32, write, 0), LLVMConstInt(i32, write ? 3 : 2, 0),
                         LLVMConstInt(i32, 1, 0)};
  emit_intrinsic(e, "llvm.prefetch", LLVMPointerTypeInContext(e->context, 0), 4, args);
}

LLVMValueRef emit_fma(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  must(LLVMTypeOf(a) == LLVMTypeOf(b) && LLVMTypeOf(b) == LLVMTypeOf(c),
       "kernel %s: a multiply-add of several types", e->k->name);
  LLVMValueRef args[] = {a, b, c};
  return emit_intrinsic(e, "llvm.fma", LLVMTypeOf(a), 3, args);
}

LLVMValueRef emit_align(Emit *e, Elem elem) {
  return LLVMConstInt(LLVMInt32TypeInContext(e->context), (uint64_t)elem_bytes(elem), 0);
}

LLVMValueRef emit_load(Emit *e, Elem elem, LLVMValueRef pointer, int lanes, LLVMValueRef mask) {
  LLVMTypeRef type = emit_vector(e, elem, lanes);
  must(elem != ELEM_bool, "kernel %s: in memory a bool is a byte", e->k->name);
  if (mask && lanes > 1) {
    must(emit_lanes_of(mask) == lanes, "kernel %s: a mask of %d lanes for %d", e->k->name,
         emit_lanes_of(mask), lanes);
    LLVMTypeRef types[] = {type, LLVMTypeOf(pointer)};
    LLVMValueRef args[] = {pointer, emit_align(e, elem), mask, LLVMConstNull(type)};
    return emit_intrinsic_types(e, "llvm.masked.load", 2, types, 4, args);
  }
  LLVMValueRef x = LLVMBuildLoad2(e->builder, type, pointer, "");
  LLVMSetAlignment(x, (unsigned)elem_bytes(elem));
  return x;
}

void emit_store(Emit *e, Elem elem, LLVMValueRef pointer, LLVMValueRef value, LLVMValueRef mask) {
  must(elem != ELEM_bool, "kernel %s: in memory a bool is a byte", e->k->name);
  if (mask && emit_lanes_of(value)) {
    must(emit_lanes_of(mask) == emit_lanes_of(value), "kernel %s: a mask of %d lanes for %d",
         e->k->name, emit_lanes_of(mask), emit_lanes_of(value));
    LLVMTypeRef types[] = {LLVMTypeOf(value), LLVMTypeOf(pointer)};
    LLVMValueRef args[] = {value, pointer, emit_align(e, elem), mask};
    emit_intrinsic_types(e, "llvm.masked.store", 2, types, 4, args);
    return;
  }
  LLVMSetAlignment(LLVMBuildStore(e->builder, value, pointer), (unsigned)elem_bytes(elem));
}

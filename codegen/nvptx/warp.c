/* Vocabulary of warps: see warp.h. Intrinsics of LLVM 19 are used where they exist; the rest is
   inline assembly, marked convergent where threads synchronize. */
#include "warp.h"
#include "simt.h"

static LLVMValueRef special(Warp *w, const char *name) {
  return emit_intrinsic_types(w->e, name, 0, NULL, 0, NULL);
}

/* `.extern .shared` memory; its size is the launch's. */
static LLVMValueRef shared_memory(Warp *w) {
  LLVMValueRef g = LLVMGetNamedGlobal(w->e->module, "shared");
  if (g) return g;
  LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(w->e->context), 0);
  g = LLVMAddGlobalInAddressSpace(w->e->module, type, "shared", 3);
  LLVMSetLinkage(g, LLVMExternalLinkage);
  LLVMSetAlignment(g, 128);
  return g;
}

/* {function, "minctasm", 1}: without it ptxas spills a few registers to fit more CTAs on a
   multiprocessor than their shared memory allows. */
static void keep_registers(Warp *w) {
  LLVMContextRef c = w->e->context;
  LLVMMetadataRef words[] = {LLVMValueAsMetadata(w->e->function),
                             LLVMMDStringInContext2(c, "minctasm", 8),
                             LLVMValueAsMetadata(warp_i32(w, 1))};
  LLVMMetadataRef node = LLVMMDNodeInContext2(c, words, 3);
  LLVMAddNamedMetadataOperand(w->e->module, "nvvm.annotations", LLVMMetadataAsValue(c, node));
}

Warp warp_begin(Emit *e) {
  Warp w = {.e = e,
            .f32 = emit_type(e, ELEM_f32),
            .i32 = emit_type(e, ELEM_i32),
            .i64 = emit_type(e, ELEM_i64)};
  w.near = LLVMPointerTypeInContext(e->context, 3);
  w.far = LLVMPointerTypeInContext(e->context, 1);
  w.shared = shared_memory(&w);
  keep_registers(&w);
  w.cta = simt_cta(e);
  w.thread = special(&w, "llvm.nvvm.read.ptx.sreg.tid.x");
  w.lane = warp_rem(&w, w.thread, 32);
  w.warp = warp_div(&w, w.thread, 32);
  return w;
}

/* ---- i32 ---- */

LLVMValueRef warp_i32(Warp *w, int64_t x) { return LLVMConstInt(w->i32, (uint64_t)x, 1); }
LLVMValueRef warp_add(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildNSWAdd(w->e->builder, a, b, "");
}
LLVMValueRef warp_sub(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildNSWSub(w->e->builder, a, b, "");
}
LLVMValueRef warp_plus(Warp *w, LLVMValueRef a, int64_t b) {
  return b ? warp_add(w, a, warp_i32(w, b)) : a;
}
LLVMValueRef warp_times(Warp *w, LLVMValueRef a, int64_t b) {
  return b == 1 ? a : LLVMBuildNSWMul(w->e->builder, a, warp_i32(w, b), "");
}
LLVMValueRef warp_div(Warp *w, LLVMValueRef a, int64_t b) {
  must(b >= 1, "kernel %s: a division by %lld", w->e->k->name, (long long)b);
  return b == 1 ? a : LLVMBuildUDiv(w->e->builder, a, warp_i32(w, b), "");
}
LLVMValueRef warp_rem(Warp *w, LLVMValueRef a, int64_t b) {
  must(b >= 1, "kernel %s: a remainder by %lld", w->e->k->name, (long long)b);
  return b == 1 ? warp_i32(w, 0) : LLVMBuildURem(w->e->builder, a, warp_i32(w, b), "");
}
LLVMValueRef warp_xor(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildXor(w->e->builder, a, b, "");
}
LLVMValueRef warp_less(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(w->e->builder, LLVMIntSLT, a, b, "");
}
LLVMValueRef warp_min(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(w->e->builder, warp_less(w, a, b), a, b, "");
}
LLVMValueRef warp_wide(Warp *w, LLVMValueRef a) {
  return LLVMBuildZExt(w->e->builder, a, w->i64, "");
}
LLVMValueRef warp_wide_times(Warp *w, LLVMValueRef a, int64_t b) {
  return LLVMBuildNSWMul(w->e->builder, warp_wide(w, a), emit_i64(w->e, b), "");
}

/* ---- registers ---- */

Registers warp_registers(Warp *w, LLVMTypeRef type, int n) {
  must(n >= 0, "kernel %s: a list of %d registers", w->e->k->name, n);
  Emit *e = w->e;
  Registers r = {n, type, ARENA_ARRAY(e->arena, LLVMValueRef, n + 1)};
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->function);
  LLVMPositionBuilderBefore(e->builder, LLVMGetFirstInstruction(entry));
  for (int i = 0; i < n; i++) r.at[i] = LLVMBuildAlloca(e->builder, type, "");
  LLVMPositionBuilderAtEnd(e->builder, here);
  return r;
}

LLVMValueRef warp_get(Warp *w, const Registers *r, int i) {
  must(i >= 0 && i < r->n, "kernel %s: register %d of %d", w->e->k->name, i, r->n);
  return LLVMBuildLoad2(w->e->builder, r->type, r->at[i], "");
}

void warp_set(Warp *w, const Registers *r, int i, LLVMValueRef x) {
  must(i >= 0 && i < r->n, "kernel %s: register %d of %d", w->e->k->name, i, r->n);
  must(LLVMTypeOf(x) == r->type, "kernel %s: a register of another type", w->e->k->name);
  LLVMBuildStore(w->e->builder, x, r->at[i]);
}

void warp_fill(Warp *w, const Registers *r, LLVMValueRef x) {
  for (int i = 0; i < r->n; i++) warp_set(w, r, i, x);
}

/* ---- shared memory ---- */

static LLVMValueRef warp_at(Warp *w, LLVMValueRef offset) {
  return LLVMBuildInBoundsGEP2(w->e->builder, LLVMInt8TypeInContext(w->e->context), w->shared,
                               &offset, 1, "");
}

LLVMValueRef warp_load(Warp *w, LLVMTypeRef type, LLVMValueRef offset, int align) {
  LLVMValueRef x = LLVMBuildLoad2(w->e->builder, type, warp_at(w, offset), "");
  LLVMSetAlignment(x, (unsigned)align);
  return x;
}

void warp_store(Warp *w, LLVMValueRef x, LLVMValueRef offset, int align) {
  LLVMSetAlignment(LLVMBuildStore(w->e->builder, x, warp_at(w, offset)), (unsigned)align);
}

void warp_barrier(Warp *w) { special(w, "llvm.nvvm.barrier0"); }

void warp_barrier_lanes(Warp *w) {
  LLVMValueRef all = warp_i32(w, -1);
  emit_intrinsic_types(w->e, "llvm.nvvm.bar.warp.sync", 0, NULL, 1, &all);
}

/* ---- asynchronous copies ---- */

/* Offsets in shared memory as addresses of 32 bits: LLVM's own are 64 bits wide and cost twice the
 * arithmetic. */
static LLVMValueRef near_address(Warp *w, LLVMValueRef offset) {
  return warp_add(w, LLVMBuildPtrToInt(w->e->builder, w->shared, w->i32, ""), offset);
}

void warp_copy(Warp *w, LLVMValueRef to, LLVMValueRef from, int bytes, LLVMValueRef valid) {
  must(bytes == 4 || bytes == 8 || bytes == 16, "kernel %s: cp.async of %d bytes", w->e->k->name,
       bytes);
  const char *text = arena_printf(w->e->arena, "cp.async.%s.shared.global [$0], [$1], %d%s;",
                                  bytes == 16 ? "cg" : "ca", bytes, valid ? ", $2" : "");
  LLVMValueRef args[] = {near_address(w, to),
                         LLVMBuildAddrSpaceCast(w->e->builder, from, w->far, ""), NULL};
  if (valid)
    args[2] = LLVMBuildSelect(w->e->builder, valid, warp_i32(w, bytes), warp_i32(w, 0), "");
  simt_asm(w->e, text, valid ? "r,l,r,~{memory}" : "r,l,~{memory}",
           LLVMVoidTypeInContext(w->e->context), valid ? 3 : 2, args, false);
}

/* Compares at each copy: the results of the comparisons of many copies would fill registers. */
void warp_copy_more(Warp *w, LLVMValueRef to, int64_t to_more, LLVMValueRef from, int64_t from_more,
                    int64_t number, LLVMValueRef left) {
  Emit *e = w->e;
  if (from_more != (int32_t)from_more) { /* no offset of an instruction */
    LLVMValueRef more = emit_i64(e, from_more);
    from = LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), from, &more, 1, "");
    from_more = 0;
  }
  const char *copy = arena_printf(e->arena, "cp.async.cg.shared.global [$0+%lld], [$1+%lld], 16",
                                  (long long)to_more, (long long)from_more);
  const char *text = arena_printf(e->arena, "%s;", copy);
  if (left)
    text = arena_printf(e->arena,
                        "{ .reg .pred p; .reg .b32 n; setp.gt.s32 p, $2, %lld; "
                        "selp.b32 n, 16, 0, p; %s, n; }",
                        (long long)number, copy);
  LLVMValueRef args[] = {near_address(w, to), LLVMBuildAddrSpaceCast(e->builder, from, w->far, ""),
                         left};
  simt_asm(e, text, left ? "r,l,r,~{memory}" : "r,l,~{memory}", LLVMVoidTypeInContext(e->context),
           left ? 3 : 2, args, false);
}

void warp_commit(Warp *w) { special(w, "llvm.nvvm.cp.async.commit.group"); }

void warp_wait(Warp *w, int groups) {
  LLVMValueRef n = warp_i32(w, groups);
  emit_intrinsic_types(w->e, "llvm.nvvm.cp.async.wait.group", 0, NULL, 1, &n);
}

/* ---- lanes ---- */

LLVMValueRef warp_from(Warp *w, LLVMValueRef x, int distance) {
  LLVMValueRef args[] = {warp_i32(w, -1), x, warp_i32(w, distance), warp_i32(w, 31)};
  return emit_intrinsic_types(w->e, "llvm.nvvm.shfl.sync.bfly.f32", 0, NULL, 4, args);
}

LLVMValueRef warp_extreme(Emit *e, LLVMValueRef x, bool most) {
  const char *name = most ? "llvm.nvvm.redux.sync.max" : "llvm.nvvm.redux.sync.min";
  LLVMValueRef args[] = {x, LLVMConstInt(emit_type(e, ELEM_i32), UINT32_MAX, 0)};
  return emit_intrinsic_types(e, name, 0, NULL, 2, args);
}

/* ---- fragments ---- */

void warp_matrices(Warp *w, LLVMValueRef offset, int64_t more, bool transposed,
                   LLVMValueRef out[4]) {
  LLVMTypeRef types[] = {w->i32, w->i32, w->i32, w->i32};
  LLVMTypeRef four = LLVMStructTypeInContext(w->e->context, types, 4, 0);
  LLVMValueRef at = near_address(w, offset);
  const char *text = arena_printf(
      w->e->arena, "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {$0, $1, $2, $3}, [$4+%lld];",
      transposed ? ".trans" : "", (long long)more);
  LLVMValueRef v = simt_asm(w->e, text, "=r,=r,=r,=r,r,~{memory}", four, 1, &at, false);
  for (unsigned i = 0; i < 4; i++) out[i] = LLVMBuildExtractValue(w->e->builder, v, i, "");
}

void warp_put_matrices(Warp *w, LLVMValueRef offset, const LLVMValueRef word[4]) {
  LLVMValueRef args[5] = {near_address(w, offset), word[0], word[1], word[2], word[3]};
  simt_asm(w->e, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};",
           "r,r,r,r,r,~{memory}", LLVMVoidTypeInContext(w->e->context), 5, args, false);
}

LLVMValueRef warp_word(Warp *w, LLVMValueRef offset, int64_t more) {
  LLVMValueRef at = near_address(w, offset);
  const char *text = arena_printf(w->e->arena, "ld.shared.b32 $0, [$1+%lld];", (long long)more);
  return simt_asm(w->e, text, "=r,r,~{memory}", w->i32, 1, &at, false);
}

static const char *multiply_name(Elem elem) {
  if (elem == ELEM_bf16) return "llvm.nvvm.mma.m16n8k16.row.col.bf16";
  return elem == ELEM_f16 ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                          : "llvm.nvvm.mma.m16n8k8.row.col.tf32";
}

static LLVMValueRef fragment(Warp *w, Elem elem, LLVMValueRef word) {
  if (elem != ELEM_f16) return word;
  LLVMTypeRef half = LLVMHalfTypeInContext(w->e->context);
  return LLVMBuildBitCast(w->e->builder, word, LLVMVectorType(half, 2), "");
}

void warp_multiply(Warp *w, Elem elem, const LLVMValueRef *a, const LLVMValueRef *b,
                   const Registers *c, int at) {
  LLVMValueRef args[10];
  for (int i = 0; i < 4; i++) args[i] = fragment(w, elem, a[i]);
  for (int i = 0; i < 2; i++) args[4 + i] = fragment(w, elem, b[i]);
  for (int i = 0; i < 4; i++) args[6 + i] = warp_get(w, c, at + i);
  LLVMValueRef d = emit_intrinsic_types(w->e, multiply_name(elem), 0, NULL, 10, args);
  for (int i = 0; i < 4; i++)
    warp_set(w, c, at + i, LLVMBuildExtractValue(w->e->builder, d, (unsigned)i, ""));
}

LLVMValueRef warp_tf32(Warp *w, LLVMValueRef word) {
  LLVMValueRef x = LLVMBuildBitCast(w->e->builder, word, w->f32, "");
  return simt_asm(w->e, "cvt.rna.tf32.f32 $0, $1;", "=r,f", w->i32, 1, &x, true);
}

LLVMValueRef warp_pack(Warp *w, Elem elem, LLVMValueRef low, LLVMValueRef high) {
  LLVMValueRef args[] = {high, low};
  const char *text =
      elem == ELEM_bf16 ? "cvt.rn.bf16x2.f32 $0, $1, $2;" : "cvt.rn.f16x2.f32 $0, $1, $2;";
  return simt_asm(w->e, text, "=r,f,f", w->i32, 2, args, true);
}

/* ---- loops ---- */

WarpLoop warp_loop(Warp *w) {
  Emit *e = w->e;
  WarpLoop l = {.head = LLVMAppendBasicBlockInContext(e->context, e->function, "while"),
                .exit = LLVMAppendBasicBlockInContext(e->context, e->function, "done")};
  LLVMBuildBr(e->builder, l.head);
  LLVMPositionBuilderAtEnd(e->builder, l.head);
  return l;
}

void warp_loop_while(Warp *w, WarpLoop *l, LLVMValueRef condition) {
  Emit *e = w->e;
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->context, e->function, "do");
  LLVMBuildCondBr(e->builder, condition, body, l->exit);
  LLVMPositionBuilderAtEnd(e->builder, body);
}

void warp_loop_end(Warp *w, WarpLoop *l) {
  LLVMValueRef back = LLVMBuildBr(w->e->builder, l->head);
  if (l->rolled) emit_keep_rolled(w->e, back);
  LLVMPositionBuilderAtEnd(w->e->builder, l->exit);
}

/* ---- mathematics ---- */

LLVMValueRef warp_exp2(Warp *w, LLVMValueRef x) {
  return emit_intrinsic_types(w->e, "llvm.nvvm.ex2.approx.ftz.f", 0, NULL, 1, &x);
}

LLVMValueRef warp_max(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef args[] = {a, b};
  return emit_intrinsic(w->e, "llvm.maxnum", w->f32, 2, args);
}

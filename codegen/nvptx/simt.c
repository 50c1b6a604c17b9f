/* Words of GPU kernels: see simt.h. Barriers and exchanges are intrinsics of LLVM, which are
   convergent by themselves. */
#include "simt.h"

static int64_t entry(Emit *e, AttrKey key, int phase) {
  const Attr *a = attr_get(&e->k->attrs, key);
  if (!a || phase >= a->i)
    bug("kernel %s: attribute %s has no entry %d", e->k->name, attr_name(key), phase);
  return a->list[phase];
}

int64_t simt_threads(Emit *e, int phase) { return entry(e, ATTR_threads, phase); }
int64_t simt_ctas(Emit *e, int phase) { return entry(e, ATTR_chunks, phase); }

/* ---- who a thread is ---- */

LLVMValueRef simt_i32(Emit *e, int64_t v) {
  return LLVMConstInt(LLVMInt32TypeInContext(e->context), (uint64_t)v, 1);
}

LLVMValueRef simt_i32_like(Emit *e, LLVMValueRef x, int64_t v) {
  return emit_splat(e, simt_i32(e, v), emit_lanes_of(x));
}

LLVMValueRef simt_f32_like(Emit *e, LLVMValueRef x, double v) {
  return emit_splat(e, emit_f32(e, v), emit_lanes_of(x));
}

LLVMValueRef simt_intrinsic(Emit *e, const char *name, int n, LLVMValueRef *args) {
  return emit_intrinsic_types(e, name, 0, NULL, n, args);
}

/* A call whose result is in 0 .. most - 1: branches around what always runs go away. */
static LLVMValueRef below(Emit *e, LLVMValueRef x, int64_t most) {
  LLVMMetadataRef ends[] = {LLVMValueAsMetadata(simt_i32(e, 0)),
                            LLVMValueAsMetadata(simt_i32(e, most))};
  LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, ends, 2);
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "range", 5);
  LLVMSetMetadata(x, kind, LLVMMetadataAsValue(e->context, node));
  return x;
}

LLVMValueRef simt_thread(Emit *e) {
  LLVMValueRef x = simt_intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", 0, NULL);
  return below(e, x, simt_threads(e, e->phase));
}

LLVMValueRef simt_cta(Emit *e) {
  LLVMValueRef x = simt_intrinsic(e, "llvm.nvvm.read.ptx.sreg.ctaid.x", 0, NULL);
  return below(e, x, simt_ctas(e, e->phase));
}

LLVMValueRef simt_lane(Emit *e) {
  return LLVMBuildAnd(e->builder, simt_thread(e), simt_i32(e, WARP - 1), "lane");
}

LLVMValueRef simt_warp(Emit *e) {
  LLVMValueRef w = LLVMBuildLShr(e->builder, simt_thread(e), simt_i32(e, 5), "warp");
  int64_t warps = (simt_threads(e, e->phase) + WARP - 1) / WARP;
  return below(e, simt_shuffle_from(e, w, simt_i32(e, 0)), warps);
}

LLVMValueRef simt_index(Emit *e, LLVMValueRef number) {
  if (e->index == LLVMTypeOf(number)) return number;
  return LLVMBuildZExt(e->builder, number, e->index, "");
}

/* ---- together ---- */

void simt_barrier(Emit *e) { simt_intrinsic(e, "llvm.nvvm.barrier0", 0, NULL); }

void simt_warp_barrier(Emit *e) {
  LLVMValueRef all = simt_i32(e, -1);
  simt_intrinsic(e, "llvm.nvvm.bar.warp.sync", 1, &all);
}

LLVMValueRef simt_shared_at(Emit *e, LLVMValueRef byte) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  LLVMValueRef all = LLVMGetNamedGlobal(e->module, "shared");
  if (!all) {
    all = LLVMAddGlobalInAddressSpace(e->module, LLVMArrayType2(i8, 0), "shared", SHARED_SPACE);
    LLVMSetAlignment(all, 1024);
  }
  return LLVMBuildInBoundsGEP2(e->builder, i8, all, &byte, 1, "");
}

/* One 32-bit word through a shuffle. */
static LLVMValueRef shuffle_word(Emit *e, const char *how, LLVMValueRef x, LLVMValueRef with,
                                 int64_t clamp) {
  LLVMValueRef args[] = {simt_i32(e, -1), x, with, simt_i32(e, clamp)};
  return simt_intrinsic(e, how, 4, args);
}

static LLVMValueRef shuffle_wide(Emit *e, const char *how, LLVMValueRef x, LLVMValueRef with,
                                 int64_t clamp) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef low = LLVMBuildTrunc(builder, x, i32, "");
  LLVMValueRef high =
      LLVMBuildTrunc(builder, LLVMBuildLShr(builder, x, emit_i64(e, 32), ""), i32, "");
  low = LLVMBuildZExt(builder, shuffle_word(e, how, low, with, clamp), i64, "");
  high = LLVMBuildZExt(builder, shuffle_word(e, how, high, with, clamp), i64, "");
  return LLVMBuildOr(builder, low, LLVMBuildShl(builder, high, emit_i64(e, 32), ""), "");
}

static LLVMValueRef shuffle(Emit *e, const char *how, LLVMValueRef x, LLVMValueRef with,
                            int64_t clamp) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef t = LLVMTypeOf(x), i32 = LLVMInt32TypeInContext(e->context),
              i64 = LLVMInt64TypeInContext(e->context);
  if (t == i32) return shuffle_word(e, how, x, with, clamp);
  if (t == i64) return shuffle_wide(e, how, x, with, clamp);
  if (LLVMGetTypeKind(t) == LLVMIntegerTypeKind)
    return LLVMBuildTrunc(
        builder, shuffle_word(e, how, LLVMBuildZExt(builder, x, i32, ""), with, clamp), t, "");
  if (t == LLVMDoubleTypeInContext(e->context))
    return LLVMBuildBitCast(
        builder, shuffle_wide(e, how, LLVMBuildBitCast(builder, x, i64, ""), with, clamp), t, "");
  return LLVMBuildBitCast(
      builder, shuffle_word(e, how, LLVMBuildBitCast(builder, x, i32, ""), with, clamp), t, "");
}

LLVMValueRef simt_shuffle_xor(Emit *e, LLVMValueRef x, int mask) {
  must(mask > 0 && mask < WARP, "kernel %s: lanes %d apart", e->k->name, mask);
  return shuffle(e, "llvm.nvvm.shfl.sync.bfly.i32", x, simt_i32(e, mask), WARP - 1);
}

LLVMValueRef simt_shuffle_up(Emit *e, LLVMValueRef x, int by) {
  return shuffle(e, "llvm.nvvm.shfl.sync.up.i32", x, simt_i32(e, by), 0);
}

LLVMValueRef simt_shuffle_from(Emit *e, LLVMValueRef x, LLVMValueRef lane) {
  return shuffle(e, "llvm.nvvm.shfl.sync.idx.i32", x, lane, WARP - 1);
}

LLVMValueRef simt_ballot(Emit *e, LLVMValueRef bit) {
  LLVMValueRef args[] = {simt_i32(e, -1), bit};
  return simt_intrinsic(e, "llvm.nvvm.vote.ballot.sync", 2, args);
}

/* ---- machine code ---- */

static void call_attribute(Emit *e, LLVMValueRef call, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAttributeRef a = LLVMCreateEnumAttribute(e->context, kind, 0);
  LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

static void simt_convergent(Emit *e, LLVMValueRef call) { call_attribute(e, call, "convergent"); }

LLVMValueRef simt_asm(Emit *e, const char *text, const char *constraints, LLVMTypeRef result, int n,
                      LLVMValueRef *args, bool pure) {
  LLVMTypeRef params[160];
  if (n > (int)(sizeof params / sizeof *params)) bug("machine code with %d arguments", n);
  for (int i = 0; i < n; i++) params[i] = LLVMTypeOf(args[i]);
  LLVMTypeRef type = LLVMFunctionType(result, params, (unsigned)n, 0);
  LLVMValueRef code = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints),
                                       !pure, 0, LLVMInlineAsmDialectATT, 0);
  LLVMValueRef call = LLVMBuildCall2(e->builder, type, code, args, (unsigned)n, "");
  call_attribute(e, call, "nounwind");
  if (pure) {
    call_attribute(e, call, "willreturn");
    call_attribute(e, call, "memory");
  } else {
    simt_convergent(e, call);
  }
  return call;
}

LLVMValueRef simt_read_now(Emit *e, LLVMValueRef number) {
  LLVMTypeRef type = LLVMTypeOf(number);
  bool wide = LLVMGetIntTypeWidth(type) == 64;
  return simt_asm(e, wide ? "mov.b64 $0, $1;" : "mov.b32 $0, $1;", wide ? "=l,l" : "=r,r", type, 1,
                  &number, false);
}

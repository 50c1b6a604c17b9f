/* The start of a phase on a GPU: a kernel with one global pointer per buffer.

   Pointers of operands that no result can overwrite are noalias and readonly, so that LLVM may load
   them through the read-only path; nothing is promised for the others (ir/apart.h). */
#include "phase.h"
#include "simt.h"
#include "ir/apart.h"

enum { KERNEL_CONVENTION = 71 /* ptx_kernel */ };

static void attribute(Emit *e, unsigned at, const char *name, uint64_t value) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(e->function, at, LLVMCreateEnumAttribute(e->context, kind, value));
}

static void describe_buffers(Emit *e, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    attribute(e, i + 1, "align", (uint64_t)emit_buffer_align(e, i));
    if (!kernel_buffer_apart(e->k, i)) continue;
    attribute(e, i + 1, "noalias", 0);
    if (i < e->k->args.n) attribute(e, i + 1, "readonly", 0);
  }
}

/* {function, "reqntidx", threads}: LLVM writes .reqntid */
static void fix_threads(Emit *e, int64_t threads) {
  LLVMMetadataRef words[] = {LLVMValueAsMetadata(e->function),
                             LLVMMDStringInContext2(e->context, "reqntidx", 8),
                             LLVMValueAsMetadata(simt_i32(e, threads))};
  LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, words, 3);
  LLVMAddNamedMetadataOperand(e->module, "nvvm.annotations", LLVMMetadataAsValue(e->context, node));
}

void nvptx_begin_phase(Emit *e, int phase) {
  uint32_t n = emit_buffers(e);
  LLVMTypeRef *params = ARENA_ARRAY(e->arena, LLVMTypeRef, n + 1);
  for (uint32_t i = 0; i < n; i++) params[i] = LLVMPointerTypeInContext(e->context, GLOBAL_SPACE);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, n, 0);
  e->phase = phase;
  e->function =
      LLVMAddFunction(e->module, arena_printf(e->arena, "%s_p%d", e->symbol, phase), type);
  LLVMSetFunctionCallConv(e->function, KERNEL_CONVENTION);
  attribute(e, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
  describe_buffers(e, n);
  fix_threads(e, simt_threads(e, phase));
  for (uint32_t i = 0; i < n; i++) e->pointer[i] = LLVMGetParam(e->function, i);
  LLVMPositionBuilderAtEnd(e->builder,
                           LLVMAppendBasicBlockInContext(e->context, e->function, "entry"));
  expr_reset(e);
}

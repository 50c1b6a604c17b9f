/* The start of a phase on a GPU: a kernel with one global pointer per buffer, then its tensor maps
   by value, whose address bulk copies take.

   Pointers of operands that no result can overwrite are noalias and readonly, so that LLVM may load
   them through the read-only path; nothing is promised for the others (ir/apart.h). */
#include "phase.h"
#include "simt.h"
#include "ir/apart.h"
#include "ir/kernel/tensor_map.h"

enum { KERNEL_CONVENTION = 71 /* ptx_kernel */ };
_Static_assert(sizeof((Emit *)0)->map == KERNEL_MAPS * sizeof(LLVMValueRef), "one for each map");

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

/* {function, word, value} */
static void annotate(Emit *e, const char *word, LLVMMetadataRef value) {
  LLVMMetadataRef words[] = {LLVMValueAsMetadata(e->function),
                             LLVMMDStringInContext2(e->context, word, strlen(word)), value};
  LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, words, 3);
  LLVMAddNamedMetadataOperand(e->module, "nvvm.annotations", LLVMMetadataAsValue(e->context, node));
}

/* LLVM writes .reqntid */
static void fix_threads(Emit *e, int64_t threads) {
  annotate(e, "reqntidx", LLVMValueAsMetadata(simt_i32(e, threads)));
}

/* Parameters from number n on. Annotated, they are not copied where their address is taken. */
static void describe_maps(Emit *e, uint32_t n, int maps, LLVMTypeRef type) {
  LLVMMetadataRef numbers[KERNEL_MAPS];
  unsigned kind = LLVMGetEnumAttributeKindForName("byval", 5);
  for (int i = 0; i < maps; i++) {
    unsigned at = n + (unsigned)i + 1;
    LLVMAddAttributeAtIndex(e->function, at, LLVMCreateTypeAttribute(e->context, kind, type));
    attribute(e, at, "align", MAP_ALIGN);
    numbers[i] = LLVMValueAsMetadata(simt_i32(e, at));
    e->map[i] = LLVMGetParam(e->function, at - 1);
  }
  if (maps) annotate(e, "grid_constant", LLVMMDNodeInContext2(e->context, numbers, (size_t)maps));
}

void nvptx_begin_phase(Emit *e, int phase) {
  uint32_t n = emit_buffers(e);
  TensorMap map[KERNEL_MAPS];
  uint32_t maps = (uint32_t)kernel_maps(e->m, e->k, map);
  LLVMTypeRef *params = ARENA_ARRAY(e->arena, LLVMTypeRef, n + maps + 1);
  LLVMTypeRef room = LLVMArrayType2(LLVMInt8TypeInContext(e->context), MAP_BYTES);
  for (uint32_t i = 0; i < n + maps; i++)
    params[i] = LLVMPointerTypeInContext(e->context, i < n ? GLOBAL_SPACE : 0);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, n + maps, 0);
  e->phase = phase;
  e->function =
      LLVMAddFunction(e->module, arena_printf(e->arena, "%s_p%d", e->symbol, phase), type);
  LLVMSetFunctionCallConv(e->function, KERNEL_CONVENTION);
  attribute(e, (unsigned)LLVMAttributeFunctionIndex, "nounwind", 0);
  describe_buffers(e, n), describe_maps(e, n, (int)maps, room);
  fix_threads(e, simt_threads(e, phase));
  for (uint32_t i = 0; i < n; i++) e->pointer[i] = LLVMGetParam(e->function, i);
  LLVMPositionBuilderAtEnd(e->builder,
                           LLVMAppendBasicBlockInContext(e->context, e->function, "entry"));
  expr_reset(e);
}

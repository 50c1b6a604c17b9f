/* The device-specific functions of processors of the x86-64 family: see codegen/device_code.h.

   Every phase is a function `void SYMBOL_pN(ptr buffers, i64 chunk, ptr scratch)`. Its entry block
   loads all buffer pointers once; those that stay unused are removed by the pass pipeline. */
#include "codegen/device_code.h"
#include "math.h"
#include "nontemporal.h"
#include "object_names.h"
#include <llvm-c/Comdat.h>
#include <llvm-c/Target.h>
#include <stdio.h>
#include <string.h>

static const char *const passes =
    "function(mem2reg,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-rotate,"
    "licm),"
    "early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";

static void init(void) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeX86AsmParser(); /* emit_nontemporal_store */
}

static void function_attribute(Emit *e, const char *key, const char *value) {
  LLVMAttributeRef a = LLVMCreateStringAttribute(e->context, key, (unsigned)strlen(key), value,
                                                 (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

static void enum_attribute(Emit *e, unsigned at, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(e->function, at, LLVMCreateEnumAttribute(e->context, kind, 0));
}

static void load_pointers(Emit *e) {
  uint32_t n = emit_buffers(e);
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
  for (uint32_t i = 0; i < n; i++) {
    LLVMValueRef at = emit_i64(e, i);
    LLVMValueRef p = LLVMBuildInBoundsGEP2(e->builder, ptr, e->buffers, &at, 1, "");
    e->pointer[i] = LLVMBuildLoad2(e->builder, ptr, p, "buffer");
  }
}

/* A COMDAT group of its own: programs of one executable share phases that are the same (link.c). */
static void begin_phase(Emit *e, int phase) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0);
  LLVMTypeRef params[] = {ptr, LLVMInt64TypeInContext(e->context), ptr};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 3, 0);
  const char *name = arena_printf(e->arena, "%s_p%d", e->symbol, phase);
  e->function = LLVMAddFunction(e->module, name, type);
  LLVMSetComdat(e->function, LLVMGetOrInsertComdat(e->module, name));
  function_attribute(e, "target-cpu", e->target->cpu);
  if (*e->target->tune) function_attribute(e, "tune-cpu", e->target->tune);
  if (*e->target->features) function_attribute(e, "target-features", e->target->features);
  enum_attribute(e, (unsigned)LLVMAttributeFunctionIndex, "nounwind");
  enum_attribute(e, 1, "noalias");
  enum_attribute(e, 1, "readonly");
  enum_attribute(e, 3, "noalias");
  e->buffers = LLVMGetParam(e->function, 0);
  e->chunk = LLVMGetParam(e->function, 1);
  e->scratch = LLVMGetParam(e->function, 2);
  LLVMPositionBuilderAtEnd(e->builder,
                           LLVMAppendBasicBlockInContext(e->context, e->function, "entry"));
  load_pointers(e);
  expr_reset(e);
}

const DeviceCode x86_code = {
    .init = init,
    .family = x86_family,
    .passes = passes,
    .file = LLVMObjectFile,
    .ending = ".o",
    .comment = "#",
    .named = object_named,
    .branches = true,
    .begin_phase = begin_phase,
    .nontemporal_store = emit_nontemporal_store,
    .exp2 = x86_exp2,
    .exp_negative = x86_exp_negative,
    .scale_by_power = x86_scale_by_power,
    .tanh_rounded = x86_tanh_rounded,
    .round_bf16 = x86_round_bf16,
};

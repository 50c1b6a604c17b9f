/* The device-specific functions of GPUs of the NVPTX family: see codegen/device_code.h. They have
   instructions for f32 mathematics that processors compute by polynomials (math.c); there is no
   libm (math_f64.c). */
#include "codegen/arith.h"
#include "codegen/device_code.h"
#include "put_codes.h"
#include "families.h"
#include "math.h"
#include "phase.h"
#include "ptxas.h"
#include "text_names.h"
#include <llvm-c/Target.h>

/* After it the machine's own passes share addresses, merge loads, and give every lane its register.
 */
static const char *const passes =
    "function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-rotate,"
    "licm),early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,gvn,"
    "instcombine<no-verify-fixpoint>,simplifycfg)";

static void init(void) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

/* max.NaN and min.NaN */
static LLVMValueRef extreme(Emit *e, bool greater, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef args[] = {a, b};
  return emit_intrinsic(e, greater ? "llvm.maximum" : "llvm.minimum", LLVMTypeOf(a), 2, args);
}

/* Two by two, because the instruction for one works at a quarter of the rate. */
static LLVMValueRef bf16_pairs(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  int words = emit_lanes_of(x) / 2;
  LLVMValueRef all = LLVMGetPoison(LLVMVectorType(i32, (unsigned)words));
  for (int i = 0; i < words; i++) {
    LLVMValueRef two[2]; /* the first argument is the upper half */
    for (int j = 0; j < 2; j++)
      two[1 - j] =
          LLVMBuildExtractElement(builder, x, LLVMConstInt(i32, (uint64_t)(2 * i + j), 0), "");
    LLVMValueRef word = emit_intrinsic_types(e, "llvm.nvvm.ff2bf16x2.rn", 0, NULL, 2, two);
    word = LLVMBuildBitCast(builder, word, i32, "");
    all = LLVMBuildInsertElement(builder, all, word, LLVMConstInt(i32, (uint64_t)i, 0), "");
  }
  LLVMTypeRef half = shaped(x, LLVMInt16TypeInContext(e->context));
  return LLVMBuildBitCast(builder, all, half, "");
}

static LLVMValueRef round_bf16(Emit *e, LLVMValueRef x) {
  bool pairs = emit_lanes_of(x) && emit_lanes_of(x) % 2 == 0;
  return pairs ? bf16_pairs(e, x) : truncate_bf16(e, x);
}

const DeviceCode nvptx_code = {
    .init = init,
    .family = nvptx_family,
    .passes = passes,
    .file = LLVMAssemblyFile,
    .ending = ".ptx",
    .assembled = ".cubin",
    .comment = "//",
    .head_end = ".address_size",
    .images = true,
    .record = "cudaEventRecord",
    .await = "cudaStreamWaitEvent",
    .assembler = ptxas_find,
    .named = text_named,
    .narrow_indexes = true,
    .aligned = true,
    .constant_space = GLOBAL_SPACE,
    .begin_phase = nvptx_begin_phase,
    .put_codes = nvptx_put_codes,
    .exp = nvptx_exp,
    .exp_negative = nvptx_exp_negative,
    .reciprocal = nvptx_reciprocal,
    .rsqrt = nvptx_rsqrt,
    .tanh_rounded = nvptx_tanh_rounded,
    .extreme = extreme,
    .round_bf16 = round_bf16,
    .f64 = nvptx_f64,
};

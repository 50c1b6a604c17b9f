/* Targets of the NVPTX family: one row per generation of GPUs. All get the same code; rows differ
   in the options of the assembler and in the PTX version that knows the generation. GPUs newer than
   sm_90 get its PTX, which LLVM and all their drivers know, and machine code of their own: what
   only they have (tcgen05) is not used.

   Vector lanes are the points that one thread may take at once: 16 bytes of the narrowest type.
   Dynamic shared memory is the most that the smallest members of a generation allow a CTA, so that
   a kernel runs on all of them; some allow more, which larger variants of kernels may use
   (passes/tune/gpu_larger.c). With the letter a, code uses instructions that one generation has and
   no newer one (wgmma): it runs only on that generation, and its CTAs may have all of its shared
   memory. The letter of newer rows is that of their machine code, which one generation runs.

   Memory is that of a common member (an A100, an A10 or RTX 3090, an RTX 4090, an H100, a B200, a
   B300, an RTX 5090), and the executable reports before the first step if the actual GPU has less;
   the number of multiprocessors, and the shared memory of each, influence the choice of tiles, and
   any other number runs as well. Cache sizes mean nothing to GPU kernels. */
#include "codegen/device_code.h"
#include "codegen/target.h"

/* NCCL on H100s has 16 over NVSwitch (NVLS_NCHANNELS_SM90 of its transport nvls), and 16 in a node
   with eight network cards by its developers (NVIDIA/nccl, issue 689), who also say that its CTAs
   share their multiprocessors with no others. Only kernels by wgmma stay on multiprocessors, so
   other targets need no number. */
enum { CHANNELS = 16 };
enum { SHARED = 99 << 10, SHARED_A100 = 163 << 10, SHARED_H100 = 227 << 10 };
enum { MMA, WGMMA }; /* instructions of products; wgmma is sm_90a's alone, no newer GPU's */
#define GIB ((int64_t)1 << 30)

/* clang-format off */
#define GPU(number, letter, code_of, math, ptx, memory, least, most, all, count)                   \
  {                                                                                                \
    .name = "sm_" #number letter, .code = &nvptx_code, .triple = "nvptx64-nvidia-cuda",            \
    .cpu = code_of, .alone = sizeof(letter) > 1, .tune = "", .features = ptx,                      \
    .facts = {.device = DEVICE_GPU,                                                                \
              .vector_bytes = 16,                                                                  \
              .vector_registers = 255,                                                             \
              .l2 = 4 << 20,                                                                       \
              .l3 = 4 << 20,                                                                       \
              .join = true,                                                                        \
              .sums = true,                                                                        \
              .narrow_from = 512,                                                                  \
              .squares = 8 << 20,                                                                  \
              .listed = 1 << 19,                                                                   \
              .sm = number,                                                                        \
              .wgmma = (math) == WGMMA,                                                            \
              .shared = (least),                                                                   \
              .shared_most = (most),                                                               \
              .shared_per_multiprocessor = (int64_t)(all) << 10,                                   \
              .multiprocessors = (count),                                                          \
              .channels = (math) == WGMMA ? CHANNELS : 0,                                         \
              .shares = (math) == WGMMA,                                                          \
              .bulk = (math) == WGMMA,                                                            \
              .bulk_results = (math) == WGMMA,                                                    \
              .bulk_elements = (math) == WGMMA,                                                   \
              .widths = (math) == WGMMA,                                                          \
              .wgmma_attention = (math) == WGMMA},                                                \
    .memory_bytes = (memory)*GIB,                                                                  \
  }
/* clang-format on */

static const Target rows[] = {
    GPU(80, "", "sm_80", MMA, "+ptx70", 40, SHARED, SHARED_A100, 164, 108),
    GPU(86, "", "sm_86", MMA, "+ptx71", 24, SHARED, SHARED, 100, 82),
    GPU(89, "", "sm_89", MMA, "+ptx78", 24, SHARED, SHARED, 100, 128),
    GPU(90, "", "sm_90", MMA, "+ptx78", 80, SHARED, SHARED_H100, 228, 132),
    GPU(90, "a", "sm_90a", WGMMA, "+ptx80", 80, SHARED_H100, SHARED_H100, 228, 132),
    GPU(100, "a", "sm_90", MMA, "+ptx78", 168, SHARED_H100, SHARED_H100, 228, 148),
    GPU(103, "a", "sm_90", MMA, "+ptx78", 252, SHARED_H100, SHARED_H100, 228, 148),
    GPU(120, "a", "sm_90", MMA, "+ptx78", 32, SHARED, SHARED, 100, 170)};

const Target *nvptx_target(int i) {
  return i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}

/* Code generation: what targets and kernel families are, and the calls of the driver.

   After pass `memory` every decision is in the module: codegen decides nothing. Each kernel
   function becomes one kernel (one object file) made by its family; entries and bodies become
   readable C (host.c); both are linked with the runtime.

   A kernel receives buffers[]: pointers to its operands (kernel function arguments, in order), then
   its results, then its workspace if it has attribute `workspace`. Every value's dims, sizes and
   strides are compile-time constants: types of the kernel function's arguments and results carry
   the storage order and strides of the caller's values. Scalars (rank 0) are passed by address like
   all others. A result may have the buffer of an operand (in place) only where pass order said so:
   same strides, and each element of the operand is read before that element of the result is
   written. */
#ifndef SHARDC_CODEGEN_H
#define SHARDC_CODEGEN_H
#include "ir/ir.h"
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#define SHARDC_VERSION "0.1" /* of the compiler; executables, tuning records and doctor say it */

/* One row per machine. Its facts are part of the module (ir/target_facts.def), written by
   target_describe before the pipeline runs; only the names that LLVM uses stay in this table. */
typedef struct Target {
  const char *name;                           /* x86_64_v3, x86_64_v4, ..: what --target takes */
  TargetFacts facts;                          /* 0: as the table of facts has it */
  const struct DeviceCode *code;              /* codegen/device_code.h */
  const char *triple, *cpu, *tune, *features; /* for LLVM */
  bool alone;           /* GPU: its programs run on that generation and no newer one */
  const char *needs;    /* what a processor must have, in LLVM's words: "+avx2,+fma," */
  int64_t l1_bytes;     /* of a core; nothing is decided by it */
  int64_t memory_bytes; /* GPU: of a common one; plans without a machine are fitted into it */
} Target;

const Target *target_find(const char *name); /* "native": what this machine can do; NULL: unknown */
/* The row whose programs run on a GPU newer than all rows, such as sm_130; NULL: none. */
const Target *target_for_newer(const char *name);
/* Whether this process may run its kernels. Asks the system for registers that it hands out on
   request only. */
bool target_runs_here(const Target *t);
const Target *target_first(DeviceKind device); /* the poorest one */
const char *target_name(int i); /* of all targets, NULL after the last: for messages */
void target_describe(Module *m, const Target *target, int workers);
bool target_edited(const Module *m); /* has a dump other facts than its target's row? */
void target_describe_beside(Module *m, const Target *target,
                            int workers); /* of the host of a GPU */
const Target *target_of(const Module *m); /* of the name in its target line */
DeviceKind target_kind(const char *name); /* of an unknown one: a CPU */
/* A module from a dump may name a target, and leave the facts of its row out by `..`: these are
   added. False if it is none, or has other facts than those that the code will be made by: E1103
   was given. */
bool target_complete(Module *m);

/* Facts about a kernel while its module is built. */
typedef struct Emit
    Emit; /* codegen/emit.h: LLVM context, module, builder, target, the kernel function */

/* One row per family of ir/kernel/families.def. The ops that a family admits are decided by `fuse`
   from families.def, tile sizes, chunks and scratch by `select` (passes/tune/); emit only follows
   the attributes family, variant, tile, chunks, scratch, workspace. */
typedef struct KernelFamily {
  const char *name;
  void (*emit)(
      Emit *e); /* writes functions SYMBOL_p0 .. SYMBOL_pN, each an rt_chunk (runtime/rt.h) */
} KernelFamily;

/* Where libshardrt.a and rt.h are; NULL: nowhere. `looked`: the first place that was tried. */
const char *library_folder(Arena *arena, const char **looked);

typedef struct BuildOptions {
  const char *output;   /* executable */
  const char *keep_dir; /* folder that keeps host.c and objects; NULL: a temporary folder,
                           removed */
  /* NULL, or one of c, llvm, asm: write that to output instead ("-" = stdout); others: as asm */
  const char *emit;
  bool verbose; /* print the commands that run */
  bool quick;   /* kernels_build_as */
  int jobs;
  int part, parts; /* of an executable for several plans or targets: output is an object for
                      targets_join */
} BuildOptions;

/* Module after `memory` -> files. False if diagnostics were given. */
bool codegen_build(Module *m, const BuildOptions *options);
/* The same of an executable or a part of one, in halves: the host program is compiled while kernels
   are, also those of what begins before it ends. */
typedef struct Linking Linking;
Linking *codegen_begin(Module *m, const BuildOptions *options);
bool codegen_end(Linking *linking);

/* The objects of codegen_build for 0 .. parts - 1, in this order, as one executable. m: any of
 * them. */
bool targets_join(Module *m, const BuildOptions *options, const char *const *objects);

/* Text of the host program, in m's arena (host.c). */
char *host_write(Module *m);
/* Compiles every kernel function of m to DIR/SYMBOL and the ending of the device's files, and where
   its assembler is on PATH, also to that of assembled files, in child processes, through the kernel
   cache (kernel_objects.c). */
bool kernels_build(Module *m, const char *dir, int jobs);
/* quick: with the fewest passes of LLVM, for tests that are not about kernels. */
bool kernels_build_as(Module *m, const char *dir, int jobs, bool quick);
/* The objects of all kernels in DIR as one shared library DIR/NAME (link.c). */
bool kernels_link(Module *m, const char *dir, const char *name);
/* A new temporary folder, NULL: E1310 was given; and away with it and the files in it. */
char *work_folder(Ctx *c);
void remove_folder(Arena *arena, const char *folder);
/* Object code of one kernel, compiled in this process: what LLVM cannot select ends it. quick: with
   next to none of LLVM's passes; what this code generator wrote gives the same numbers. */
LLVMMemoryBufferRef kernel_object(Module *m, const Fn *k, bool quick);
/* LLVM IR or assembly of one kernel, in m's arena. */
char *kernel_text(Module *m, const Fn *k, bool assembly);
/* Symbol of a kernel: its name with every character that C does not allow replaced by _. */
const char *kernel_symbol(Module *m, const Fn *k);
#endif

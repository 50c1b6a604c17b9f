/* The functions in which kinds of devices differ, for the shared emitters: one constant struct in
   the folder of each device, to which its rows of targets point. If a function is NULL, or returns
   NULL, the device has no special code for this shape, and the shared code is used. Must not: be
   asked for its name. */
#ifndef SHARDC_DEVICE_CODE_H
#define SHARDC_DEVICE_CODE_H
#include "assemble.h"
#include "cache.h"
#include "emit.h"

/* The symbol of a kernel's code before it belongs to a kernel: in the cache, where the code serves
   all kernels of the same text. Other symbols of its file are this, `_` and more. */
#define NEUTRAL_SYMBOL "k"

typedef struct DeviceCode {
  /* ---- kernels as files ---- */
  void (*init)(void);                              /* LLVM's parts for it */
  const KernelFamily *(*family)(const char *name); /* NULL: it has none of that name */
  const char *passes;                              /* LLVM's pass pipeline */
  LLVMCodeGenFileType file;                        /* the output of LLVM for a kernel */
  const char *ending;                              /* of the names of such files */
  const char *assembled;                           /* of the names of its assembler's files */
  const char *comment;                             /* begins a comment in its assembly */
  const char *head_end;       /* a word of the last line of a file's head; NULL: it has no head */
  bool images;                /* kernels are data of the executable, not linked into it */
  const char *record, *await; /* calls of its library at the start and the wait of a message */
  const Assembler *(*assembler)(Arena *a);
  /* A file of NEUTRAL_SYMBOL as that of another symbol. */
  CacheBytes (*named)(Arena *arena, CacheBytes code, const char *symbol);

  /* ---- memory ---- */
  bool narrow_indexes;     /* i32 where all sizes allow it; they never wrap */
  bool aligned;            /* it pays to know more of an address than its element's size */
  bool branches;           /* an expression may branch by an index */
  unsigned constant_space; /* address space of constant tables */
  /* Declares SYMBOL_pN, sets function, buffers, and leaves the builder at its start. */
  void (*begin_phase)(Emit *e, int phase);
  /* Stores a result that is kept as codes of 8 bits (ir/codes.h); GPUs only. */
  void (*put_codes)(Emit *e, ValueId v, uint32_t buffer, const Point *p);
  void (*nontemporal_store)(Emit *e, LLVMValueRef pointer, LLVMValueRef vector);

  /* ---- mathematics: scalars and vectors of f32 ---- */
  LLVMValueRef (*exp)(Emit *e, LLVMValueRef x);
  LLVMValueRef (*exp2)(Emit *e, LLVMValueRef x);         /* right over its whole range */
  LLVMValueRef (*exp_negative)(Emit *e, LLVMValueRef x); /* x is at most 0 */
  LLVMValueRef (*scale_by_power)(Emit *e, LLVMValueRef x, LLVMValueRef n); /* x 2^n, n whole */
  LLVMValueRef (*reciprocal)(Emit *e, LLVMValueRef x);
  LLVMValueRef (*rsqrt)(Emit *e, LLVMValueRef x);
  LLVMValueRef (*tanh_rounded)(Emit *e, LLVMValueRef x, Rounding to); /* not ROUNDED_NOT */
  /* the greater, or the lesser; NaN of either survives */
  LLVMValueRef (*extreme)(Emit *e, bool greater, LLVMValueRef a, LLVMValueRef b);
  LLVMValueRef (*round_bf16)(Emit *e, LLVMValueRef x); /* to nearest even, as whole numbers */
  /* exp, log, sin, .. of f64 by its name in C, pow of two; NULL: libm is linked */
  LLVMValueRef (*f64)(Emit *e, const char *name, LLVMValueRef x, LLVMValueRef second);
} DeviceCode;

#define DEVICE(name) extern const DeviceCode name##_code;
#include "devices.def"
#undef DEVICE

#endif

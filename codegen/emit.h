/* Shared vocabulary of the kernel emitters: one Emit per kernel, LLVM-C helpers, the expression generator.

   Expressions: a kernel function's POINT ops are evaluated at a point of the iteration space. A point gives each dim an index:
   a scalar i64 or, for at most one dim (the lane dim), `lanes` consecutive indexes starting at a scalar. expr_value returns an
   LLVM value: scalar, or vector of e->lanes when it depends on the lane dim. Operands are loaded from their buffers (vector
   load when the lane dim has stride 1, splat when absent, otherwise a gather of scalars); moved indexes (rename, slice, shift,
   pad, concat, split, merge, gather, rope) are evaluated by changing the point. Values that the family computed itself (the
   accumulator of a dot, a reduction's result) are bound with expr_bind and found before anything is evaluated. */
#ifndef SHARDC_EMIT_H
#define SHARDC_EMIT_H
#include "codegen.h"

typedef struct Index { /* index of one dim at a point */
  Str dim;
  LLVMValueRef at; /* i64: scalar index, or index of lane 0 */
  bool lane;       /* this dim runs over the lanes: at, at + 1, .. */
} Index;

typedef struct Point {
  int n;
  Index index[MAX_RANK * 2];
  LLVMValueRef mask; /* <lanes x i1> of valid lanes, or NULL: all valid. Loads and stores outside are not done */
} Point;

struct Emit {
  Module *m;
  const Fn *k; /* the kernel function */
  const Target *target;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMValueRef function, buffers, chunk, scratch; /* of the phase being written */
  int lanes;                                      /* f32 lanes of a vector in this kernel */
  struct ExprState *expr;                         /* bindings and memo of the expression generator */
  Arena *arena;
};

/* phases and loops (emit.c) */
void emit_begin_phase(Emit *e, int phase); /* declares SYMBOL_pN, sets function, buffers, chunk, scratch, builder at its start */
void emit_end_phase(Emit *e);              /* ret void */
LLVMValueRef emit_i64(Emit *e, int64_t v);
LLVMTypeRef emit_type(Emit *e, Elem elem);                 /* scalar in registers: bool is i1, in memory i8 */
LLVMTypeRef emit_vector(Emit *e, Elem elem, int lanes);
typedef struct Loop {
  LLVMValueRef i;
  LLVMBasicBlockRef head, body, exit;
  LLVMValueRef phi[8], next[8]; /* carried values */
  int carried;
} Loop;
/* for (i = from; i < to; i += step) with carried values: initial values in, read loop->phi, set loop->next, after emit_loop_end
   loop->phi are the final values. Bodies may create blocks of their own. */
Loop emit_loop(Emit *e, LLVMValueRef from, LLVMValueRef to, int64_t step, int carried, const LLVMValueRef *initial);
void emit_loop_end(Emit *e, Loop *l);
LLVMValueRef emit_buffer(Emit *e, uint32_t operand_or_result); /* operands first, then results, then workspace: a ptr */
LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef type, int n, LLVMValueRef *args); /* overloaded on type */

/* expressions (expr.c, math.c) */
void expr_reset(Emit *e);                                    /* forget bindings and memo: at each new point */
void expr_bind(Emit *e, ValueId v, LLVMValueRef value);      /* v has this value at the current point */
LLVMValueRef expr_value(Emit *e, ValueId v, const Point *p); /* of kernel function value v at p */
void expr_store(Emit *e, ValueId v, const Point *p);         /* evaluates v and stores it to its result buffers (all of them) */
LLVMValueRef expr_address(Emit *e, ValueId arg_or_result, const Point *p); /* ptr to the element (lane 0) */
/* vector mathematics without libm: f32 scalars and vectors */
LLVMValueRef math_unary(Emit *e, OpCode c, LLVMValueRef x);

#endif

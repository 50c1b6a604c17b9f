/* Shared vocabulary of the kernel emitters: one Emit per kernel, LLVM-C helpers, the expression
   generator.

   Expressions: a kernel function's POINT ops are evaluated at a point of the iteration space. A
   point gives each dim an index: a scalar i64 or, for at most one dim (the lane dim), `lanes`
   consecutive indexes starting at a scalar. expr_value returns an LLVM value: scalar, or vector of
   e->lanes when it depends on the lane dim. Operands are loaded from their buffers (vector load
   when the lane dim has stride 1, splat when absent, otherwise a gather of scalars); moved indexes
   (rename, slice, shift, pad, concat, split, merge, gather, rope) are evaluated by changing the
   point. Values that the family computed itself (the accumulator of a dot, a reduction's result)
   are bound with expr_bind and found before anything is evaluated. */
#ifndef SHARDC_EMIT_H
#define SHARDC_EMIT_H
#include "codegen.h"
#include "ir/kernel/nest.h"

/* The 16-bit type to which all readers of a value round it (rounded.c): the finest first. */
typedef enum Rounding { ROUNDED_NOT, ROUNDED_f16, ROUNDED_bf16 } Rounding;

typedef struct Index { /* index of one dim at a point */
  Str dim;
  LLVMValueRef at; /* of type e->index: scalar index, or index of lane 0 */
  bool lane;       /* this dim runs over the lanes: at, at + 1, .. */
  LLVMValueRef
      each; /* or one index per lane, <lanes x i32>; made by moved indexes, NULL otherwise */
  int64_t multiple; /* `at` is known to be a multiple of this; 0: nothing known */
} Index;

typedef struct Point {
  int n;
  Index index[MAX_RANK * 2];
  LLVMValueRef mask; /* <lanes x i1> of valid lanes, or NULL: all valid. Loads and stores outside
                        are not done */
  LLVMValueRef
      guard;        /* GPU: one bit, or NULL: where it does not hold nothing is loaded or stored */
  bool guard_moved; /* index names are no longer those of Emit.guarded: it is asked everywhere */
} Point;

struct Emit {
  Module *m;
  const Fn *k; /* the kernel function */
  const Target *target;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMValueRef function, buffers, chunk,
      scratch;            /* of the phase being written; GPU: function only */
  LLVMTypeRef index;      /* of indexes and offsets: i64; on a GPU i32 where all sizes allow it */
  int lanes;              /* f32 lanes of a vector in this kernel */
  struct ExprState *expr; /* bindings and memo of the expression generator */
  Arena *arena;
  /* one bit per result: its whole vectors are written with non-temporal stores; they are aligned
     (nontemporal.h) */
  uint64_t nontemporal;
  int phase;           /* GPU: number of the phase being written */
  const Axes *guarded; /* GPU: values without these dims do not ask Point.guard; NULL: all ask it */
  const char *symbol;  /* of the kernel, in C: phases are SYMBOL_p0, .. */
  bool quick;          /* leave out what only saves time: unrolled loops, prefetches */
  LLVMValueRef pointer[MAX_RESULTS * 4]; /* buffers of this phase, loaded at its start */
  LLVMValueRef map[6]; /* GPU: its tensor maps (ir/kernel/tensor_map.h); NULL: none */
};

/* life of an Emit (emit.c); the caller sets the module's data layout before emitting */
Emit *emit_new(Module *m, const Fn *k, const Target *target, const char *symbol, Arena *arena);
void emit_free(Emit *e); /* LLVM parts */

/* phases and loops (emit.c) */
uint32_t emit_buffers(const Emit *e);      /* operands, results and workspace */
void emit_begin_phase(Emit *e, int phase); /* declares SYMBOL_pN, sets function, buffers, chunk,
                                              scratch, builder at its start */
void emit_end_phase(Emit *e);              /* ret void */
/* entries of attributes tile and chunks, all >= 1; at least n of them, else an internal error */
const int64_t *emit_tile(Emit *e, int64_t n);
const int64_t *emit_chunks(Emit *e, int64_t n);
LLVMValueRef emit_i64(Emit *e, int64_t v);
LLVMValueRef emit_index(Emit *e, int64_t v); /* a constant of e->index */
LLVMTypeRef emit_type(Emit *e, Elem elem);   /* scalar in registers: bool is i1, in memory i8 */
LLVMTypeRef emit_vector(Emit *e, Elem elem, int lanes);
LLVMTypeRef emit_memory_type(Emit *e, Elem elem); /* bool is i8, bf16 is i16 */
LLVMValueRef emit_f32(Emit *e, double v);
LLVMValueRef emit_number(Emit *e, Elem elem, double v); /* constant of emit_type */
LLVMValueRef emit_splat(Emit *e, LLVMValueRef scalar, int lanes);
LLVMValueRef emit_lane_numbers(Emit *e, LLVMTypeRef scalar_type, int lanes,
                               int64_t step);                       /* 0, step, 2 step, .. */
int emit_lanes_of(LLVMValueRef v);                                  /* 0: scalar */
LLVMValueRef emit_min_i64(Emit *e, LLVMValueRef a, LLVMValueRef b); /* of any integer type */
/* mask of lanes i, i + 1, .. that are below `end` */
LLVMValueRef emit_tail_mask(Emit *e, LLVMValueRef i, LLVMValueRef end, int lanes);
/* first and one past the last of `units` equal units that this chunk of `chunks` does */
void emit_chunk_range(Emit *e, int64_t units, int64_t chunks, LLVMValueRef *from, LLVMValueRef *to);
typedef struct Loop {
  LLVMValueRef i;
  LLVMBasicBlockRef head, body, exit;
  LLVMValueRef phi[MAX_CARRIED], next[MAX_CARRIED]; /* carried values; next not set: stays */
  int carried;
  int64_t step;
  bool rolled; /* set by the caller: LLVM does not unroll it */
} Loop;
/* for (i = from; i < to; i += step), i of the type of `from`, with carried values: initial values
   in, read loop->phi, set loop->next, after emit_loop_end loop->phi are the final values. Bodies
   may create blocks of their own. */
Loop emit_loop(Emit *e, LLVMValueRef from, LLVMValueRef to, int64_t step, int carried,
               const LLVMValueRef *initial);
void emit_loop_end(Emit *e, Loop *loop);
/* The loop of that branch back is not unrolled, by LLVM or the assembler. */
void emit_keep_rolled(Emit *e, LLVMValueRef back);
LLVMValueRef
emit_buffer(Emit *e,
            uint32_t operand_or_result); /* operands first, then results, then workspace: a ptr */
/* Bytes that its first element is aligned to; on a GPU attribute `align`, 16 without it. */
int64_t emit_buffer_align(Emit *e, uint32_t operand_or_result);
LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef type, int n,
                            LLVMValueRef *args); /* overloaded on type */
/* overloaded on several types, or on none (machine intrinsics) */
LLVMValueRef emit_intrinsic_types(Emit *e, const char *name, int ntypes, LLVMTypeRef *types, int n,
                                  LLVMValueRef *args);
void emit_prefetch(Emit *e, LLVMValueRef address, bool write); /* soon read, or soon written */
LLVMValueRef emit_fma(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* plain memory: `lanes` consecutive elements of emit_type(elem) (1: a scalar), masked if mask is
 * not NULL */
LLVMValueRef emit_align(Emit *e, Elem elem); /* that of elements, as an i32 */
LLVMValueRef emit_load(Emit *e, Elem elem, LLVMValueRef pointer, int lanes, LLVMValueRef mask);
void emit_store(Emit *e, Elem elem, LLVMValueRef pointer, LLVMValueRef value, LLVMValueRef mask);
typedef struct Branch {
  LLVMBasicBlockRef rest;
} Branch;
Branch
emit_if(Emit *e,
        LLVMValueRef condition); /* what follows is done only if it holds, up to emit_end_if */
void emit_end_if(Emit *e, Branch branch);
/* .. only if the (first) result does not have this operand's buffer; args.n: in any case */
Branch emit_if_apart(Emit *e, uint32_t operand);
/* After emit_end_if: `made` where the branch, entered from block `before`, was taken, else zero. */
LLVMValueRef emit_if_value(Emit *e, LLVMBasicBlockRef before, LLVMBasicBlockRef made_in,
                           LLVMValueRef made);

/* expressions (expr.c, math.c) */
void expr_reset(Emit *e);  /* forget bindings and memo: at each new point */
void expr_forget(Emit *e); /* forget the memo, keep bindings: at each new block of code */
void expr_bind(Emit *e, ValueId v, LLVMValueRef value); /* v has this value at the current point */
/* v has the values of this memory along `dim`, one f32 (or elem, if that is no 16-bit float) each,
 * at the current point */
void expr_bind_row(Emit *e, ValueId v, LLVMValueRef base, Str dim, Elem elem);
LLVMValueRef expr_value(Emit *e, ValueId v, const Point *p); /* of kernel function value v at p */
/* The bit of an op lookup at row r and column c, of i32 or lanes of them. */
LLVMValueRef expr_lookup(Emit *e, const Op *op, LLVMValueRef r, LLVMValueRef c);
LLVMValueRef expr_address(Emit *e, ValueId arg_or_result,
                          const Point *p); /* ptr to the element (lane 0) */
LLVMValueRef
expr_load(Emit *e, ValueId arg,
          const Point *p); /* of an argument or result: from its buffer, whatever is bound */
void expr_put(Emit *e, ValueId v, const Point *p,
              LLVMValueRef value); /* stores a computed value of v to its result buffers */
/* .. and to those of larger results that are put together from v (deliver.c) */
void expr_deliver(Emit *e, ValueId v, const Point *p, LLVMValueRef value);
LLVMValueRef expr_convert(Emit *e, LLVMValueRef x, Elem from,
                          Elem to); /* registers to registers; to bf16, f16: rounds */
LLVMValueRef expr_from_memory(Emit *e, Elem elem, LLVMValueRef x);
LLVMValueRef expr_to_memory(Emit *e, Elem elem, LLVMValueRef x);
int64_t expr_stride(const Fn *k, ValueId v,
                    int axis); /* of an argument or result; dense where storage says nothing */
bool expr_is_argument(const Fn *k, ValueId v);
Index *point_find(const Point *p, Str dim); /* NULL if absent */
void point_set(Point *p, Index index);      /* replaces or appends */
/* vector mathematics without libm: f32 scalars and vectors */
LLVMValueRef math_unary(Emit *e, OpCode c, LLVMValueRef x);
/* Shorter for values that are rounded to 16 bits (rounded.c). */
LLVMValueRef math_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to);
LLVMValueRef math_pow(Emit *e, LLVMValueRef x, double exponent);
/* 2^x of a vector, relative error 2e-7; 0 below about -126, at least 2^126 above that; NaN stays */
LLVMValueRef math_exp2(Emit *e, LLVMValueRef x);
/* e^x where x is at most 0: relative error 2e-7 + |x| 6e-8 where that is cheaper than e^x */
LLVMValueRef math_exp_negative(Emit *e, LLVMValueRef x);
LLVMValueRef math_max(Emit *e, LLVMValueRef a, LLVMValueRef b); /* floats; NaN of either survives */
LLVMValueRef math_min(Emit *e, LLVMValueRef a, LLVMValueRef b);
/* sum, OP_rmax or OP_rmin over the lanes of a vector, in a fixed order: OP_sum, OP_rmax, OP_rmin */
LLVMValueRef math_across(Emit *e, OpCode c, LLVMValueRef x);
LLVMValueRef math_combine(Emit *e, OpCode c, LLVMValueRef a,
                          LLVMValueRef b); /* one step of such a reduction */
/* Philox4x32-10, first word, as a number in (0, 1): scalars or vectors of i32; see ir/interp */
LLVMValueRef math_uniform(Emit *e, const LLVMValueRef counter[4], const LLVMValueRef key[2]);

#endif

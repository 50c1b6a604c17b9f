/* Vocabulary of the kernels that work on tiles in shared memory: numbers of threads, 32-bit
   arithmetic, registers, asynchronous copies, matrix fragments.

   Indexes are i32: sizes of dims fit, and 64-bit divisions are slow. Registers are allocas of
   scalars that the pipeline turns into SSA values; they are never addressed by a variable. */
#ifndef SHARDC_WARP_H
#define SHARDC_WARP_H
#include "codegen/emit.h"

typedef struct Warp { /* of the phase being written */
  Emit *e;
  LLVMTypeRef f32, i32, i64, near, far; /* pointers to shared and to global memory */
  LLVMValueRef shared;                  /* dynamic shared memory */
  LLVMValueRef cta, thread, lane, warp; /* i32 */
} Warp;

Warp warp_begin(Emit *e); /* after emit_begin_phase */

/* ---- i32; b is a constant where it is an int64_t ---- */
LLVMValueRef warp_i32(Warp *w, int64_t x);
LLVMValueRef warp_add(Warp *w, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef warp_sub(Warp *w, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef warp_plus(Warp *w, LLVMValueRef a, int64_t b);
LLVMValueRef warp_times(Warp *w, LLVMValueRef a, int64_t b);
LLVMValueRef warp_div(Warp *w, LLVMValueRef a, int64_t b); /* of numbers that are not negative */
LLVMValueRef warp_rem(Warp *w, LLVMValueRef a, int64_t b);
LLVMValueRef warp_xor(Warp *w, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef warp_min(Warp *w, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef warp_less(Warp *w, LLVMValueRef a, LLVMValueRef b); /* i1 */
LLVMValueRef warp_wide(Warp *w, LLVMValueRef a);                 /* as i64 */
LLVMValueRef warp_wide_times(Warp *w, LLVMValueRef a, int64_t b);

/* ---- registers ---- */
typedef struct Registers {
  int n;
  LLVMTypeRef type;
  LLVMValueRef *at;
} Registers;
Registers warp_registers(Warp *w, LLVMTypeRef type, int n);
LLVMValueRef warp_get(Warp *w, const Registers *r, int i);
void warp_set(Warp *w, const Registers *r, int i, LLVMValueRef x);
void warp_fill(Warp *w, const Registers *r, LLVMValueRef x);

/* ---- shared memory: offsets in bytes ---- */
LLVMValueRef warp_load(Warp *w, LLVMTypeRef type, LLVMValueRef offset, int align);
void warp_store(Warp *w, LLVMValueRef x, LLVMValueRef offset, int align);
void warp_barrier(Warp *w);       /* of the CTA */
void warp_barrier_lanes(Warp *w); /* of the warp */

/* ---- asynchronous copies ---- */
/* 4 or 16 bytes from global to shared memory; zeros where `valid` does not hold (NULL: it does) */
void warp_copy(Warp *w, LLVMValueRef to, LLVMValueRef from, int bytes, LLVMValueRef valid);
/* 16 bytes from `from` + from_more to `to` + to_more; zeros unless number < left (NULL: it is). */
void warp_copy_more(Warp *w, LLVMValueRef to, int64_t to_more, LLVMValueRef from, int64_t from_more,
                    int64_t number, LLVMValueRef left);
void warp_commit(Warp *w);
void warp_wait(Warp *w, int groups); /* until at most that many groups are in flight */

/* ---- lanes ---- */
LLVMValueRef warp_from(Warp *w, LLVMValueRef x, int distance); /* f32 of lane ^ distance */
/* i32: the least or the largest of all lanes */
LLVMValueRef warp_extreme(Emit *e, LLVMValueRef x, bool most);

/* ---- fragments ---- */
/* Four 8 x 8 matrices of 16-bit elements, rows at the offsets that the lanes give, plus `more` */
void warp_matrices(Warp *w, LLVMValueRef offset, int64_t more, bool transposed,
                   LLVMValueRef out[4]);
/* The other way: words as warp_matrices gives them, not transposed; instruction of sm_90 */
void warp_put_matrices(Warp *w, LLVMValueRef offset, const LLVMValueRef word[4]);
/* The word at offset plus `more`, read at this point: a load that the compiler may move would be
 * where it is used. */
LLVMValueRef warp_word(Warp *w, LLVMValueRef offset, int64_t more);
/* c (4 f32) += a (4 words) b (2 words): m16n8k16 of bf16 or f16, m16n8k8 of tf32 (elem f32) */
void warp_multiply(Warp *w, Elem elem, const LLVMValueRef *a, const LLVMValueRef *b,
                   const Registers *c, int at);
LLVMValueRef warp_tf32(Warp *w, LLVMValueRef word); /* f32 bits rounded to tf32 */
/* Two f32 rounded to bf16 or f16 in one word, the first one below */
LLVMValueRef warp_pack(Warp *w, Elem elem, LLVMValueRef low, LLVMValueRef high);

/* ---- loops of any condition: begin, what it depends on, test, body, end ---- */
typedef struct WarpLoop {
  LLVMBasicBlockRef head, exit;
  bool rolled; /* set by the caller: it is not unrolled */
} WarpLoop;
WarpLoop warp_loop(Warp *w);
void warp_loop_while(Warp *w, WarpLoop *l, LLVMValueRef condition);
void warp_loop_end(Warp *w, WarpLoop *l);

/* ---- mathematics: one instruction each ---- */
LLVMValueRef warp_exp2(Warp *w, LLVMValueRef x);
LLVMValueRef warp_max(Warp *w, LLVMValueRef a, LLVMValueRef b);
#endif

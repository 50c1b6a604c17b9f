/* Inside of the attention families: what forward and backward share. See attention.c for the
 * formulation. */
#ifndef SHARDC_ATTENTION_H
#define SHARDC_ATTENTION_H
#include "tile.h"
#include "ir/flash.h"

/* A register tile's shape: C[rows][vectors] (+)= A[rows][n] B[n][vectors], strides in elements. */
typedef struct TileShape {
  int rows, vectors;
  int64_t a_row, a_step, b_step, c_row;
  bool most; /* the largest of each column goes into a row of maxima that stands already */
} TileShape;

typedef struct TileCode { /* one function per shape */
  struct TileCode *next;
  TileShape shape;
  LLVMValueRef function;
} TileCode;

typedef struct Attention {
  Emit *e;
  Flash f;
  FlashPlan p;
  LLVMTypeRef f32, vector, ptr, i64;
  TileCode *tiles;
  LLVMValueRef next_scratch;  /* what is not given out yet */
  LLVMValueRef shared, group; /* flat indexes of the head being worked on */
} Attention;

Attention attention_new(Emit *e);

/* ---- tiles and buffers in scratch (attention_tile.c) ---- */
LLVMValueRef attention_scratch(Attention *a, int64_t floats); /* at the start of a phase */
LLVMValueRef attention_at(Attention *a, LLVMValueRef base, LLVMValueRef row, int64_t row_floats);
typedef struct Operands { /* of a product; most: the row of maxima, NULL: none */
  LLVMValueRef A, B, C, most;
} Operands;
/* All tiles of a product: rows from 0 to `rows` in steps of the shape's rows, `vectors` in all; n
 * steps; more: adds to C. A constant number of rows ends with a smaller tile, any other with a
 * whole one, for which operands have room. */
void attention_product(Attention *a, TileShape s, int64_t vectors, Operands x, LLVMValueRef rows,
                       LLVMValueRef n, bool more);
/* Row from which a range of keys [k0, end) needs no more for queries [q0, q1): behind the last key
 * that the mask may admit, in whole register tiles */
LLVMValueRef attention_last_key(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                                LLVMValueRef end);
void attention_zero(Attention *a, LLVMValueRef base, LLVMValueRef floats); /* a multiple of lanes */
LLVMValueRef attention_load(Attention *a, LLVMValueRef base, LLVMValueRef offset);
void attention_store(Attention *a, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset);
/* dst[columns][to_row] = src[rows][columns] transposed; rows, columns multiples of lanes; rows at
 * distance from_row */
void attention_transpose(Attention *a, LLVMValueRef src, int64_t from_row, LLVMValueRef dst,
                         int64_t to_row, int64_t rows, int64_t columns);

/* ---- tensors (attention_rows.c) ---- */
Point attention_point(Attention *a); /* indexes of the head */
/* Rows first .. of value v (dim `row`, of size `total`) into dst[count][width] times factor; what
 * is outside becomes 0 */
void attention_read(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                    LLVMValueRef count, LLVMValueRef dst, double factor);
void attention_write(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                     LLVMValueRef count, LLVMValueRef src, double factor);
/* Point of the lanes of queries q .. q + lanes - 1, with their mask */
Point attention_queries(Attention *a, LLVMValueRef q);

/* ---- masks (attention_mask.c) ---- */
typedef struct MaskFacts {
  LLVMValueRef some, all; /* i1: a key may be admitted; all are, surely */
} MaskFacts;
/* for queries q0 .. q1 - 1 and keys k0 .. k1 - 1 */
MaskFacts attention_facts(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef k1);
LLVMValueRef attention_admitted(Attention *a, const Point *queries,
                                LLVMValueRef key); /* <lanes x i1> */

/* ---- mathematics (attention_exp.c) ---- */
LLVMValueRef attention_exp2(Emit *e, LLVMValueRef x); /* x at most about 126; 2^-126 below that */
LLVMValueRef attention_splat(Attention *a, double x);
LLVMValueRef attention_max(Emit *e, LLVMValueRef a, LLVMValueRef b);
#endif

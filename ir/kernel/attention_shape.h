/* A kernel function with one attention or attention_grad op: its dims and how its work is cut.
   `select` decides the cut and writes it as attributes; the code generator reads it back. Both ask
   flash_of and flash_plan.

   Heads: an index over all dims of q except Q and D. Dims that k and v share are `shared`; those
   only q has are `group` (grouped queries): heads of one group share keys and values. A flat head
   number counts shared dims outside, group inside. */
#ifndef SHARDC_ATTENTION_SHAPE_H
#define SHARDC_ATTENTION_SHAPE_H
#include "gradient_columns.h"

/* Position in `dim` of a flat index over d; -1: d does not have it. */
int64_t flash_index(const FlashDims *d, int64_t flat, Str dim);

typedef struct Flash {
  OpId op;
  bool grad;
  ValueId q, k, v, y, lse, dy; /* y and lse: results of attention, operands of attention_grad */
  ValueId dq, dk, dv;          /* of attention_grad */
  ValueId mask, kept, bias;    /* NO_VALUE: none */
  Str query, key, dim;
  int64_t queries, keys, width; /* sizes of Q, K, D */
  double scale, cap, larger;    /* cap 0: none; 1 / (1 - drop) */
  FlashDims shared, group;
  FlashColumns columns; /* of attention_grad, on GPUs */
} Flash;

Flash flash_of(const Fn *kernel);

enum FlashTile {                    /* entries of attribute tile */
                 FLASH_VECTORS,     /* vectors of queries in a register tile */
                 FLASH_ROWS,        /* rows of it */
                 FLASH_KEY_BLOCK,   /* keys of one block of scores, a multiple of rows */
                 FLASH_QUERY_BLOCK, /* queries of one block of scores, a multiple of vectors * lanes
                                     */
                 FLASH_HEADS, /* chunks over heads (attention) or shared heads (attention_grad) */
                 FLASH_PARTS, /* chunks over the queries of a head; more than 1 only if every head
                                 is a chunk */
                 FLASH_KEY_PARTS, /* attention_grad: chunks over the keys; not 0: dk and dv first,
                                     then dq in a second phase */
                 FLASH_COUNT
};

typedef struct FlashPlan {
  int64_t tile[FLASH_COUNT];
  int lanes;
  int64_t tile_queries;             /* vectors * lanes */
  int64_t width;                    /* D rounded up to whole vectors and rows */
  int64_t keys;                     /* K rounded up to whole tiles */
  int64_t query_blocks, key_blocks; /* of the whole length */
  int phases;
  int64_t chunks[2];
  int64_t scratch; /* bytes */
} FlashPlan;

enum { FLASH_WIDE = 4 };                                /* vectors of the widest register tile */
int64_t flash_rows(int64_t registers, int64_t vectors); /* of a register tile */
/* Whether the target of m has kernels with that cut (product_fits.c). Nothing is believed about it.
 */
bool flash_fits(const Module *m, const Flash *f, const int64_t tile[FLASH_COUNT]);
FlashPlan flash_plan(const Flash *flash, int lanes, const int64_t tile[FLASH_COUNT]);
#endif

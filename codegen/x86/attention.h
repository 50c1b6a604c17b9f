/* Inside of the attention families: what forward and backward share. See attention.c for the
 * formulation. */
#ifndef SHARDC_ATTENTION_H
#define SHARDC_ATTENTION_H
#include "codegen/attention_head.h"
#include "ir/kernel/attention_list.h"
#include "tile.h"

/* With what the sums of a tile begin, and what becomes of them before they are stored. */
typedef enum TileStart {
  START_ZERO,
  START_SUMS, /* the contents of C */
  START_ROW   /* one row under all rows: Operands.row */
} TileStart;

typedef enum TileEnd {
  END_SUMS,
  END_MOST,         /* the largest of each column joins a row of maxima: Operands.most */
  END_POWERS,       /* 2^sum; capped: that times the slope of the cap to Operands.factor */
  END_ADDED_POWERS, /* 2^sum; each column's total joins a row: Operands.added */
  END_TIMES         /* times Operands.factor, which has the layout of C */
} TileEnd;

/* A register tile's shape: C[rows][vectors] = start + A[rows][n] B[n][vectors], strides in
 * elements. */
typedef struct TileShape {
  int rows, vectors;
  int64_t a_row, a_step, b_step, c_row;
  TileStart start;
  TileEnd end;
  bool capped; /* sums are capped before the start is added */
} TileShape;

typedef struct TileCode { /* one function per shape */
  struct TileCode *next;
  TileShape shape;
  LLVMValueRef function;
} TileCode;

/* Rows that are asked for while tiles are computed: a list of equally many of several values */
enum { PREFETCH_MOST = 4 };
typedef enum PrefetchList { PREFETCH_HEAD, PREFETCH_BLOCK, PREFETCH_LISTS } PrefetchList;

typedef struct PrefetchRows {
  LLVMValueRef first;
  int64_t distance; /* bytes from row to row */
  int lines;        /* of a row */
  bool write;
} PrefetchRows;

typedef struct Prefetch {
  LLVMValueRef done, rows; /* variable of the phase: rows asked for; how many there are */
  int n;
  PrefetchRows at[PREFETCH_MOST];
} Prefetch;

/* Constants of what is worked on: attention_lists.c */
typedef struct AttentionLists {
  bool present;
  LLVMValueRef starts, rects, classes, chunks[2]; /* classes NULL: one */
  int64_t units[2];                               /* of a head, by phase */
  ListsShape shape;
  ListsHeads heads; /* by which the mask differs */
  ValueId rest;     /* what data decides in rectangles that positions admit; NO_VALUE: nothing */
  bool by_key;      /* that does not depend on the query */
} AttentionLists;

typedef struct Attention {
  Emit *e;
  Flash f;
  FlashPlan p;
  LLVMTypeRef f32, vector, ptr, i64;
  TileCode **tiles;                  /* list of those made; copies of this struct share it */
  LLVMValueRef next_scratch;         /* what is not given out yet */
  LLVMValueRef shared, group;        /* flat indexes of the head being worked on */
  Prefetch prefetch[PREFETCH_LISTS]; /* of this phase */
  AttentionLists lists;
} Attention;

Attention attention_new(Emit *e);
/* Vectors of queries that are worked on at once where the mask admits some of their keys. */
int attention_mixed_vectors(const Attention *a);

/* ---- tiles and buffers in scratch (attention_tile.c) ---- */
LLVMValueRef attention_scratch(Attention *a, int64_t floats); /* at the start of a phase */
LLVMValueRef attention_at(Attention *a, LLVMValueRef base, LLVMValueRef row, int64_t row_floats);
typedef struct Operands { /* of a product */
  LLVMValueRef A, B, C;
  LLVMValueRef row; /* START_ROW, else NULL */
  union {           /* as the shape's end asks, else NULL */
    LLVMValueRef most, added, factor;
  };
} Operands;
/* All tiles of a product: rows from 0 to `rows` in steps of the shape's rows, `vectors` in all; n
 * steps. A constant number of rows ends with a smaller tile, any other with a whole one, for which
 * operands have room. */
void attention_product(Attention *a, TileShape shape, int64_t vectors, Operands operands,
                       LLVMValueRef rows, LLVMValueRef n);
void attention_zero(Attention *a, LLVMValueRef base, LLVMValueRef floats); /* a multiple of lanes */
LLVMValueRef attention_load(Attention *a, LLVMValueRef base, LLVMValueRef offset);
void attention_store(Attention *a, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset);
/* dst[columns][to_row] = src[rows][columns] transposed; rows, columns multiples of lanes; rows at
 * distance from_row */
void attention_transpose(Attention *a, LLVMValueRef src, int64_t from_row, LLVMValueRef dst,
                         int64_t to_row, int64_t rows, int64_t columns);

/* ---- tensors (attention_rows.c) ---- */
AttentionHead attention_head(const Attention *a); /* good as long as a is where it is */
Point attention_point(Attention *a);              /* indexes of the head */
/* Rows first .. of value v (dim `row`, of size `total`) into dst[count][width] times factor; what
 * is outside becomes 0 */
void attention_read(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                    LLVMValueRef count, LLVMValueRef dst, double factor);
void attention_write(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                     LLVMValueRef count, LLVMValueRef src, double factor);
/* Point of the lanes of queries q .. q + lanes - 1, with their mask */
Point attention_queries(Attention *a, LLVMValueRef q);

/* ---- memory asked for early (attention_prefetch.c) ---- */
void attention_prefetch_start(Attention *a, Prefetch *list, LLVMValueRef rows);
/* Rows first .. of v, if their layout in memory allows it. write: they will be results. */
void attention_prefetch_add(Attention *a, Prefetch *list, ValueId v, Str row, const Point *head,
                            LLVMValueRef first, bool write);
void attention_prefetch_keys(Attention *a, Attention *next); /* keys and values of the next head */
void attention_prefetch(Attention *a); /* one row of each list, if one is left */

/* ---- masks (attention_mask.c) ---- */
/* for queries q0 .. q1 - 1 and keys k0 .. k1 - 1 */
MaskFacts attention_facts(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef k1);
LLVMValueRef attention_admitted(Attention *a, const Point *queries,
                                LLVMValueRef key); /* <lanes x i1> */
/* Those of keys [k0, end), in whole register tiles, from the first to the last that the mask may
   admit for queries [q0, q1); none: to is not above from */
Range attention_seen_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef end);
/* .. the end of the leading keys that it admits to all of them */
LLVMValueRef attention_whole_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                                  LLVMValueRef end);
/* Where sums of rows [0, count) and columns from `to` on begin, for some vectors of queries from
   q0: the number of `row` (NULL: 0) and the bias of key k0 + row; masked: where the mask admits it,
   else so low that their powers are 0, as in further rows up to a whole tile. */
void attention_fill(Attention *a, LLVMValueRef q0, int vectors, LLVMValueRef k0, LLVMValueRef count,
                    LLVMValueRef row, bool masked, LLVMValueRef to, int64_t row_floats);

/* Dropout: probabilities of rows [0, count) times its factor, for some vectors of queries from q0;
   with dp (else NULL) first ds = p (factor dp + minus) in its place, minus a row, also in further
   rows up to a whole tile. */
void attention_drop(Attention *a, LLVMValueRef q0, int vectors, LLVMValueRef k0, LLVMValueRef count,
                    LLVMValueRef p, LLVMValueRef dp, LLVMValueRef minus, int64_t row_floats);

/* ---- rectangles of scores (attention_lists.c) ---- */
typedef struct AttentionRect {
  Loop loop;
  Range queries, keys; /* queries: whole tiles, from the first of the block */
  LLVMValueRef kind;
} AttentionRect;
void attention_make_lists(Attention *attention);
/* Begins a loop over the rectangles of the block that begins at query s0, by rising keys;
   emit_loop_end(e, &rect.loop) ends it. */
AttentionRect attention_rects(Attention *attention, LLVMValueRef s0);
/* A rectangle that is worked on: what data says of it. */
void attention_ask_data(Attention *attention, AttentionRect *rect);
LLVMValueRef attention_rect_is(Attention *attention, const AttentionRect *rect,
                               AttentionRunKind kind);
/* The units of this call's chunk; their heads; those of one of these heads. */
Range attention_chunk(Attention *attention, int phase);
Range attention_chunk_heads(Attention *attention, int phase, Range units);
Range attention_chunk_units(Attention *attention, int phase, Range units, LLVMValueRef head);

extern const double attention_nothing; /* a score whose power is 0 */
LLVMValueRef attention_splat(Attention *a, double x);
LLVMValueRef attention_max(Emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef attention_any(Emit *e, LLVMValueRef lanes); /* of i1 */
#endif

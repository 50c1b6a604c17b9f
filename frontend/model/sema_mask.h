/* Attention masks as values of the evaluator: words and functions of masks, the operators that join
   them, block patterns, and patterns read from files. */
#ifndef SHARDC_SEMA_MASK_H
#define SHARDC_SEMA_MASK_H
#include "sema.h"

/* sema_mask.c */
bool mask_word(Str name);          /* causal, all */
bool mask_function(Str name);      /* sliding, window, .. */
const char *mask_name(uint32_t i); /* the functions in turn, then NULL */
Val mask_of_word(Eval *e, Str name, Span at);
Val mask_call(Eval *e, const Call *c);
Val mask_combine(Eval *e, AstOp op, const Val *a, const Val *b, Span at);
typedef struct MaskAxes {
  Str q, k;
  bool alike; /* queries and keys are the same positions: one tensor may speak for both */
} MaskAxes;
bool mask_check(Eval *e, const Mask *m, const Dims *scores, const MaskAxes *a, Span at);
double mask_unit(const Mask *m);             /* n of its blocks(n), 0: it has none */
const Mask *mask_part(const Mask *m, int i); /* what it is made of in turn, then NULL */
/* Without what is true everywhere and only says something else, such as `blocks(n)`. */
const Mask *mask_reduced(Eval *e, const Mask *m);
Val mask_values(Eval *e, const Mask *m, Str q, Str k);

/* sema_pattern.c: block patterns */
typedef struct BlockGrid { /* what patterns are counted in */
  Str q, k;
  double unit; /* elements of a block's side */
  Dims heads;  /* those by which the layout differs */
  Span word;   /* its `blocks(n)` */
} BlockGrid;
bool pattern_check(Eval *e, const Mask *m, int n, const AstExpr *const *x); /* its operands */
Val pattern_values(Eval *e, const Mask *m, const BlockGrid *g); /* where it lists a block */
/* Does the pattern name blocks after the last one of a grid of rows and columns? `named` - 1 is the
   largest named block, `there` the number of blocks. */
bool pattern_beyond(const Mask *mask, double rows, double columns, double *named, double *there);
Val pattern_head(Eval *e, const BlockGrid *g, double n); /* h mod n */
/* a op b, widened until one has the dims of both; of two numbers, the number */
Val pattern_op(Eval *e, OpCode op, Val a, Val b);
Val pattern_position(Eval *e, Str dim);
/* sema_mask.c: what a part of a mask counts in, and its values */
BlockGrid mask_grid(const Mask *m, const BlockGrid *outer);
Val mask_values_on(Eval *e, const Mask *m, const BlockGrid *g);
void mask_note(Eval *e, const MaskUse *use); /* for figures; when checking */

/* sema_table.c: the block pattern of a file */
bool table_read(Eval *e, Mask *mask, Str name, Span at);           /* E0314 */
bool table_fits(Eval *e, const Mask *mask, const BlockGrid *grid); /* E0314 */
const bool *table_set(const Mask *mask);                           /* [heads * rows][columns] */
bool table_by_head(const Mask *mask);
#endif

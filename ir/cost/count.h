/* The cost of one run of an entry, counted from the IR at any stage: for the heads of dumps, for
   the statistics of passes, and for the table of entries in the executable. */
#ifndef SHARDC_IR_COUNT_H
#define SHARDC_IR_COUNT_H
#include "ir/ir.h"

/* For one run of an entry, body or kernel, loops with all their rounds. */
double ir_op_flop(const Module *m, const Fn *f, const Op *o); /* of one op, callees included */
IrCount ir_count(const Module *m, const Fn *f);
/* .. of its products of numbers that are kept as codes of 8 bits (ir/codes.h) */
double ir_codes_flop(const Module *m, const Fn *f);
/* The share of the work of a product that remains where it skips empty places of experts. */
double ir_filled_share(const Module *m, const Fn *f, const Op *o);

/* The entry that the head of a dump speaks about: `step`, else the first; NULL if there is none. */
const Fn *ir_main_entry(const Module *m);
IrCount module_count(const Module *m); /* of that entry; zeros without one */
/* The part of that which host kernels of a GPU module compute. */
IrCount ir_count_on_host(const Module *m, const Fn *f);
/* Work of other stages for which a rank waits in a run of f: the ops between a receive and a send,
   once for every other rank of the axis. */
IrCount ir_waited(const Module *m, const Fn *f);

/* Operations of all attentions in a run of f: on the ranks with the fewest scores, on all in the
   mean, and with the most. Differences come from the positions and heads that ranks have. */
typedef struct RankScores {
  double least, mean, most;
  bool bound; /* kernels may skip more by numbers that a mask reads: see mask_reads */
} RankScores;
RankScores ir_rank_scores(const Module *m, const Fn *f);

/* One line without its end: the numbers of that entry, and the change against m->was. */
const char *ir_head(const Module *m);
char *ir_dump(Module *m,
              size_t *length); /* the text of m with that line as a comment; in m's arena */
#endif

/* The work of an attention kernel on a processor, from the module's lists of blocks
   (ir/mask/lists.h): rectangles of scores, and chunks of about equal work.

   A block of queries has a list of rectangles in the order of their keys. A rectangle is a range of
   queries and one of keys, and says whether positions admit all of its scores. Neighbouring tiles
   of queries with the same keys are one rectangle, so that a block of several tiles is computed
   like a dense one. Neighbouring blocks of keys are one range, which ends where a block of keys of
   the kernel ends. The kernel evaluates the mask inside of partial blocks. A chunk is a range of
   units; a unit is a block of a head or a whole head (attention_chunks.c).

   Must not: hold absent blocks, or as many entries as there are scores. The lists are constants of
   the kernel, so `select` counts them, and refuses more than the target's `listed`. */
#ifndef SHARDC_ATTENTION_LIST_H
#define SHARDC_ATTENTION_LIST_H
#include "attention_shape.h"
#include "ir/mask/lists.h"

enum { RECT_WORDS = 3 };

typedef VEC(uint32_t) AttentionWords;

typedef enum AttentionRunKind {
  RUN_MIXED, /* some are admitted */
  RUN_WHOLE, /* all are, in whole register tiles */
  RUN_REST,  /* all are: fewer than a register tile has rows */
  RUN_DATA   /* by positions all are: data decides (made by kernels) */
} AttentionRunKind;

typedef struct AttentionList {
  bool present;  /* false: the kernel asks the mask over intervals */
  bool too_many; /* because there are more rectangles than that */
  ListsShape shape;
  ListsHeads heads;         /* by which the mask differs */
  AttentionWords starts;    /* [classes][query blocks] and the end: the first rectangle */
  AttentionWords rects;     /* [][RECT_WORDS]: tiles, first key, end * 4 + kind */
  AttentionWords classes;   /* by head and rank; empty: there is one */
  AttentionWords chunks[2]; /* of a phase, [ranks][chunks][2]: first unit, end; the longest first */
  int64_t units[2];         /* of a head, of each phase */
} AttentionList;

AttentionList attention_list(Arena *arena, const Module *m, const Fn *k, const Flash *flash,
                             const FlashPlan *plan);
/* The share of a rank's listed blocks that belongs to the head of keys and values with the most;
   the largest over all ranks. */
double attention_heaviest(const Module *m, const Fn *k, const Flash *flash);

/* ---- parts of it (attention_chunks.c) ---- */
typedef struct AttentionWork { /* scores that are worked on */
  const Flash *f;
  const BlockLists *lists;
  const ListsShape *shape;
  const ListsHeads *heads;
  double *queries, *keys; /* by class and block of queries, of keys */
} AttentionWork;
/* Chunks of all phases. */
void attention_cut(Arena *arena, const AttentionWork *attention_work, const FlashPlan *plan,
                   AttentionList *list);
#endif

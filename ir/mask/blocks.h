/* The blocks of scores that a mask lists: absent ones, in which no score is admitted; full ones, in
   which all are; partial ones. */
#ifndef SHARDC_IR_BLOCKS_H
#define SHARDC_IR_BLOCKS_H
#include "ir/ir.h"

typedef enum BlockState { BLOCK_ABSENT, BLOCK_PARTIAL, BLOCK_FULL } BlockState;

typedef struct BlockMap {
  int64_t rows, columns; /* of blocks; the last of a side may be shorter */
  int64_t high, wide;    /* queries and keys of a block */
  uint8_t *state;        /* [rows][columns] of BlockState */
  int64_t partial, full; /* how many there are */
} BlockMap;

typedef struct BlockHead { /* a position of another dim, by which the mask may differ */
  Str dim;                 /* NULL: what `scalar` is */
  int64_t at;
  ValueId scalar;
} BlockHead;

struct MaskQuestion;
void blocks_set_heads(struct MaskQuestion *x, int heads, const BlockHead *head);

/* Blocks of high x wide. Data may make a full block partial, but never an absent one present. */
BlockMap mask_blocks(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key, int64_t high,
                     int64_t wide, int heads, const BlockHead *head);
/* The same by positions alone: data makes no full block partial; what it decides is mask_rest. */
BlockMap mask_places(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key, int64_t high,
                     int64_t wide, int heads, const BlockHead *head);
/* A block, of `samples` that are spread over all, that positions do not state as `map` does; -1:
   none. */
int64_t mask_contradicts(const Fn *f, ValueId mask, Axis query, Axis key, const BlockMap *map,
                         int heads, const BlockHead *head, int64_t samples);

typedef struct BlockCount { /* of one or several heads */
  int64_t partial, full;    /* blocks */
  double listed, admitted;  /* scores in those; of these, what the mask admits */
  int64_t blind;            /* queries to which it admits nothing */
} BlockCount;

/* Scores that only data decides count as admitted. */
BlockCount mask_count(const Fn *f, ValueId mask, Axis query, Axis key, const BlockMap *map,
                      int heads, const BlockHead *head);

/* Questions about single rectangles of scores, by positions alone. */
typedef struct MaskPlaces MaskPlaces;
MaskPlaces *mask_places_ask(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key,
                            int heads, const BlockHead *head);
BlockState mask_rectangle(MaskPlaces *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1);
#endif

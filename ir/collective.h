/* Facts of the ops of family COLLECTIVE, from the table collectives.def. */
#ifndef SHARDC_IR_COLLECTIVE_H
#define SHARDC_IR_COLLECTIVE_H
#include "ir/ir.h"

/* A value over the axis of a collective. */
typedef enum AxisState { AXIS_WHOLE, AXIS_CUT, AXIS_PARTIAL } AxisState;
typedef enum SendWay { SEND_NONE, SEND_RING, SEND_EACH, SEND_SHIFT, SEND_NEXT } SendWay;

typedef struct Collective {
  const char *kind, *words, *library; /* NULL: it sends nothing */
  AxisState from, to;
  int passes;
  SendWay way;
} Collective;

const Collective *op_collective(OpCode c); /* c is of that family */
/* The op that leads from one state to another; false: none does. */
bool collective_between(AxisState from, AxisState to, OpCode *c);
/* The dim along which it joins the blocks of all ranks, that of which each rank keeps its block;
   NULL: none. */
Str collective_joins(const Op *o);
Str collective_cuts(const Op *o);
/* Elements that each rank sends, as papers count; `in`, `out`: elements of operand and result. */
double collective_elements(OpCode c, int64_t in, int64_t out);

static inline bool collective_adds(OpCode c) { return op_collective(c)->from == AXIS_PARTIAL; }
/* Involves all ranks of the axis at once, in messages. */
static inline bool collective_meets(OpCode c) {
  SendWay way = op_collective(c)->way;
  return way == SEND_RING || way == SEND_EACH || way == SEND_SHIFT;
}
/* The share of the elements counted by papers that each of n ranks sends. */
static inline double collective_share(OpCode c, double n) {
  return op_collective(c)->way == SEND_SHIFT ? 1 : (n - 1) / n;
}
/* Messages one after the other, the longest way. */
static inline double collective_hops(OpCode c, double n) {
  return op_collective(c)->way == SEND_SHIFT ? 1 : op_collective(c)->passes * (n - 1);
}
#endif

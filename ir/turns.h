/* One forward, one backward: two loops over the parts of a batch whose rounds take turns.

   The forward loop of a pipeline has the attributes `turns` and `axis`, the backward loop behind it
   has `turns`; between them stand views alone. `turns` is the table of the schedule, a number per
   stage: how many parts may be forward and not yet backward there. A stage goes on as it says:

     forward   the next part, while it has fewer than that in flight and a part is left
     backward  else, the oldest one in flight

   With turns[s] = min(P - s, M) this is 1F1B of M parts over P stages ("PipeDream: Fast and
   Efficient Pipeline Parallel DNN Training", non-interleaved as in Megatron-LM). Parts go backward
   in their order on every stage, so sums have one order. What crosses from forward to backward lies
   in rings of as many slots as the table's largest number; part i takes slot i mod that. */
#ifndef SHARDC_TURNS_H
#define SHARDC_TURNS_H
#include "ir.h"

typedef struct TurnPair {
  OpId forward, backward;
  int64_t stages, parts, depth; /* depth: slots of the rings */
  const int64_t *most;          /* by stage */
} TurnPair;

bool op_takes_turns(const Op *o);
int64_t turns_most(const Module *m, const Op *forward, int64_t rank); /* its stage's number */
bool turns_begin(const Fn *f, OpId id,
                 TurnPair *t); /* is op `id` a forward loop with its partner? */
/* Of a loop that takes turns: the forward one, the backward one; of others, the op itself. */
OpId op_begins(const Fn *f, OpId id), op_ends(const Fn *f, OpId id);
/* Slots that its rounds take in turn in a stack of that type; 0: each has its own slice. */
int64_t loop_slots(const Op *loop, const Type *stacked);

/* Does a stage go forward next, after so many forward and backward? */
static inline bool turn_is_forward(int64_t most, int64_t parts, int64_t forward, int64_t backward) {
  return forward < parts && forward - backward < most;
}
int64_t turns_one_f_one_b(int64_t stages, int64_t stage, int64_t parts); /* its table */
/* F0 F1 B0 F2 B1 B2, at most `words` of them */
const char *turns_text(Arena *a, int64_t most, int64_t parts, int64_t words);
#endif

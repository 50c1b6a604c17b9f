/* Loops over an iteration space (ir/kernel/nest.h), shared by the families that are not
   contractions.

   A space is cut into units: one index of the outer dims and one block of the innermost dim. A
   range of units is walked, and within a unit the innermost dim in steps: `unroll` vectors at once,
   then single vectors, then a masked one; or one index at a time. The body gets the points; it may
   contain walks of its own. */
#ifndef SHARDC_WALK_H
#define SHARDC_WALK_H
#include "emit.h"
#include "ir/kernel/nest.h"

enum { WALK_UNROLL = 8 };

/* n points: consecutive vectors of the innermost dim. start: flat index, in the whole space, of the
 * first one (lane 0). */
typedef void WalkBody(void *state, const Point *p, int n, LLVMValueRef start);

typedef struct Walk {
  const Nest *nest;
  int64_t block;     /* indexes of the innermost dim in a unit; the last one may be shorter */
  bool lanes;        /* the innermost dim runs over the lanes */
  int unroll;        /* points per call of the body at most, >= 1 */
  const Point *base; /* indexes of dims outside of this space; NULL: none */
  LLVMValueRef head; /* number of indexes, fewer than lanes, that come first, in a masked vector;
                        NULL: none. The innermost dim is one block */
  WalkBody *body;
  void *state;
} Walk;

int64_t walk_units(const Walk *walk);
void walk_space(Emit *e, const Walk *walk, LLVMValueRef from,
                LLVMValueRef to); /* units from .. to - 1 */
void walk_all(Emit *e, const Walk *walk);

/* Stores n values to their result buffers: all are evaluated at p before any is stored, because a
   result may have the buffer of an operand. A value that lacks dims of the spaces a or b (NULL:
   none) is stored where those are 0. */
void walk_store(Emit *e, const Nest *a, const Nest *b, const Point *p, uint32_t n,
                const ValueId *v);

/* The same in two steps, for values that were evaluated before; value[i] is that of v[i] at p. */
void walk_put(Emit *e, const Nest *a, const Nest *b, const Point *p, uint32_t n, const ValueId *v,
              const LLVMValueRef *value);

/* Variables: memory in the entry block that the pass pipeline turns into registers; for sums over
 * nested loops. */
LLVMValueRef emit_variable(Emit *e, LLVMTypeRef type);
LLVMValueRef emit_get(Emit *e, LLVMTypeRef type, LLVMValueRef variable);
void emit_set(Emit *e, LLVMValueRef variable, LLVMValueRef value);

/* Packed bits along a row, byte after byte: `packed` are results of op pack_bits, over one dim. */
void walk_store_packed(Emit *e, const Nest *kept, const Point *row, uint32_t n,
                       const ValueId *packed);
#endif

/* One parameter's update, as analysed for partitioned states: its backward slice (zero_slice.c),
   and the other readers of the parameter (zero_readers.c). zero_groups.c puts parameters with like
   slices into groups. */
#ifndef SHARDC_PASSES_ZERO_SLICE_H
#define SHARDC_PASSES_ZERO_SLICE_H
#include "zero.h"

typedef enum KnownAnswer { KNOWN_NOT_YET, KNOWN_NO, KNOWN_YES } KnownAnswer;

typedef struct GroupSlice { /* one parameter's update, being read */
  Zero *z;
  const Fn *f;
  ZeroMember member;
  uint32_t nstates;
  Axis rounds;         /* of the parameter's stack */
  ValueId gradient;    /* the guard adds up its squares, or all paths contain it; NO_VALUE: none */
  const char *why;     /* the reason why it is not of the form; NULL: it is, so far */
  bool *in;            /* by value: made by the slice */
  KnownAnswer *own;    /* by value: is it made of the parameter or its states, element by element */
  KnownAnswer *number; /* by value: is it a number that a round's update uses */
  KnownAnswer *whole;  /* by value: is it in the part that needs whole matrices */
  VEC(OpId) chain;
} GroupSlice;

/* rounds: of the parameter's stack. */
GroupSlice slice_begin(Zero *z, Global *param, Axis rounds);
/* Which gradient, states and ops the update of slice->member.param has; false: not of the form. */
bool slice_read_update(GroupSlice *slice);
/* Reads the update of slice->member.param, which entry step stores, and fills slice and key (axes
   of its gradient); false: not of the form, slice->why says why. */
bool slice_read(GroupSlice *slice, ZeroGroup *key);
/* Is the parameter one number, or one per round? */
bool slice_is_number(const GroupSlice *slice);
/* By value of `step`: is in the slice and is one number per round; any: is there one? */
const bool *slice_numbers(const GroupSlice *slice, bool *any);
/* By value of `step`: is in the slice and needs whole matrices. */
const bool *slice_wholes(const GroupSlice *slice);
/* The placement and type of the parameter, in words. */
Str slice_home(const GroupSlice *slice);
/* The update in words: parameters with equal words can be updated as one. */
Str slice_words(const GroupSlice *slice);

/* ---- readers of the parameter (zero_readers.c) ---- */
/* Fills member.copied and member.narrow: is it read in one narrower type alone? */
void slice_find_copy(GroupSlice *slice);
/* The axes over which a parameter without a gradient is held alike. */
bool slice_take_alike(const GroupSlice *slice, ZeroGroup *key);
/* Between which stacks it is read, in words. */
Str slice_region(const GroupSlice *slice);
#endif

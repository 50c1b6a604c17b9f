/* Messages in 8 bits: numbers as codes with a scale for each block (int8.c), and sums of such
   messages (int8_sum.c). Passes `wire` and `zero` choose the messages. */
#ifndef SHARDC_PASSES_INT8_H
#define SHARDC_PASSES_INT8_H
#include "passes/base/rebuild.h"

typedef struct Int8 {
  Module *m;
  Fn *f;         /* to which ops are appended */
  int64_t block; /* numbers that share a scale */
  Loc loc;
} Int8;

typedef struct Int8Packed { /* u8 [.., block, in], f32 [.., block] */
  ValueId codes, scale;
} Int8Packed;

Str int8_dim(const Int8 *int8, const char *name); /* block, in, and those of int8_sum.c */
/* [.., line] as [.., block, in], and the reverse. */
ValueId int8_blocks(Int8 *int8, ValueId v, Str line);
ValueId int8_line(Int8 *int8, ValueId v, Str line);
Int8Packed int8_pack(Int8 *int8, ValueId v); /* v: floats [.., block, in] */
ValueId int8_unpack(Int8 *int8, Int8Packed packed);

ValueId int8_split(Int8 *int8, ValueId v, Str from, int n, const Axis *to);
ValueId int8_merge(Int8 *int8, ValueId v, int n, const Str *from, Str to);

/* The sum o in 8 bits, in place of it; false: that would be no shorter, and nothing was done. */
bool int8_add_up(Rebuild *rebuild, const Op *o, int64_t block);
#endif

/* Shared by the files of pass decode: walking a function backwards from the values needed, with
   some dims restricted to the current position. */
#ifndef SHARDC_DECODE_H
#define SHARDC_DECODE_H
#include "passes/base/rebuild.h"

typedef struct DimSet { /* dims that are restricted: size 1, the element at the position */
  int n;
  Str at[2 * MAX_RANK];
} DimSet;

typedef struct DecodeWanted { /* memo: value `old`, restricted to `dims` of its own, is `new` */
  ValueId old, new;
  DimSet dims;
} DecodeWanted;

typedef struct CacheSite { /* an attention whose keys and values are kept */
  const Fn *fn;
  uint32_t op;
  int number[2]; /* caches of k and v */
} CacheSite;

typedef struct Decode {
  Module *m;
  Str dim;         /* positions */
  bool fills;      /* the entry that computes a whole window also delivers all keys and values */
  const char *why; /* the reason that no entry can be made; NULL so far */
  Loc where;
  int caches;
  int64_t bytes;
  VEC(CacheSite) site;
} Decode;

typedef struct CacheRow { /* a row to be stored in a cache, passed outwards */
  ValueId value;
  int cache;
} CacheRow;

typedef struct DecodeFrame {
  Decode *d;
  struct DecodeFrame *up;
  const Fn *from;
  Fn *to;
  const Op *loop; /* in up->from, whose body this is; NULL: an entry */
  LoopShape shape;
  DimSet carried;
  ValueId position; /* i32[], or NO_VALUE so far */
  VEC(DecodeWanted) memo;
  VEC(ValueId) inner, outer;    /* invariant arguments, and their values outside */
  VEC(ValueId) sliced, stacked; /* stacked arguments, likewise */
  VEC(CacheRow) rows;
} DecodeFrame;

bool dims_hold(const DimSet *s, Str dim);
void dims_put(DimSet *s, Str dim);
void dims_drop(DimSet *s, Str dim);
Type dims_cut(Type t, const DimSet *s); /* t with size 1 for them */

ValueId decode_fail(DecodeFrame *f, const Op *o, const char *why);
ValueId decode_get(DecodeFrame *f, ValueId v, DimSet n); /* NO_VALUE if it cannot be done */
void decode_remember(DecodeFrame *f, ValueId old, DimSet n, ValueId new);
ValueId decode_position(DecodeFrame *f);
ValueId decode_position_along(DecodeFrame *f, Str dim, Loc loc); /* i32[dim:1] */
ValueId decode_cache(DecodeFrame *f, int number, Type t, Loc loc);
Global *decode_global(Module *m, GlobalKind kind, Str name, Type t, Loc loc);

bool decode_loop(DecodeFrame *f, const Op *o, DimSet n);
bool decode_op(DecodeFrame *frame, const Op *o, DimSet dims); /* decode_ops.c */
/* The same op, its operands restricted to each[i] and its results to dims; over these operands. */
bool decode_each(DecodeFrame *frame, const Op *o, DimSet dims, const DimSet *each);
bool decode_copy(DecodeFrame *frame, const Op *o, DimSet dims, const ValueId *in);
bool decode_scatter(DecodeFrame *frame, const Op *o, DimSet dims); /* decode_route.c */
bool decode_gather(DecodeFrame *frame, const Op *o, DimSet dims);
bool decode_attention(DecodeFrame *frame, const Op *o, const DimSet *dims); /* decode_attention.c */
#endif

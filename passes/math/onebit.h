/* 1-bit Adam, internal declarations: the layout of the exchanged values (onebit_flat.c), their
   messages (onebit_buckets.c), and the step (onebit.c). */
#ifndef SHARDC_PASSES_ONEBIT_H
#define SHARDC_PASSES_ONEBIT_H
#include "update.h"

typedef struct Onebit {
  Update u;
  ValueId *gradient; /* by global: with the dim of the workers, NO_VALUE */
  bool keeps_units;  /* the divisors of momenta are states, since v is sharded */
  int64_t count;     /* elements of all parameters */
  Str flat;          /* all of them end to end, with padding */
  Axis worker, chunk, block, in, byte;
  Str sender, owner, all; /* names of the dims: worker as the sender, chunk as its owner, chunk as
                             all chunks */
} Onebit;

/* Values of all parameters, one after the other, value[i] of global i; [chunk, block, in], the
   padding 0. `each`: with the dim of the workers in front. */
ValueId onebit_flatten(Onebit *onebit, const ValueId *value, bool each);
/* The piece of each parameter of a value [all, block, in]. */
void onebit_pieces(Onebit *onebit, ValueId flat, ValueId *value);

enum { ONEBIT_BUCKETS = MAX_RANK };

typedef struct OnebitBucket {
  int64_t at; /* the first of its blocks, in each chunk */
  Axis block; /* the number of blocks, and the name of their dim in values of the bucket */
} OnebitBucket;

/* How many: 1 to ONEBIT_BUCKETS. */
int onebit_buckets(const Onebit *onebit, OnebitBucket *bucket);
/* The blocks of the bucket, from a value with all blocks. */
ValueId onebit_part(Onebit *onebit, const OnebitBucket *bucket, ValueId v);
/* A value with all blocks, of the parts of all buckets. */
ValueId onebit_join(Onebit *onebit, const OnebitBucket *bucket, const ValueId *part, int n);
#endif

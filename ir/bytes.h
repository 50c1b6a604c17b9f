/* Which values of a function share bytes, as their storage says: a value shares them with its
   views, with values computed in place of it, and with the concat that it is aliased into. */
#ifndef SHARDC_BYTES_H
#define SHARDC_BYTES_H
#include "ir.h"

typedef struct SharedBytes { /* by value */
  ValueId *of; /* the value that names its class: no view, in place of nothing and laid
                  into nothing */
  int64_t *at; /* bytes from that one's first to its own */
} SharedBytes;

/* For a function whose views have their base defined before them. */
SharedBytes shared_bytes(Arena *arena, const Fn *f);
/* Does an operand or a result of the op share bytes with v? class: by value, shared_bytes */
bool op_touches(const Op *o, const ValueId *class, ValueId v);

/* A concat whose operands are made at their places in its result: nothing runs for it. */
bool op_lays(const Fn *f, const Op *o);

/* Bytes from the first element of an op that lays to that of operand k. */
int64_t laid_at(const Fn *f, const Op *o, uint32_t k);

/* The value whose bytes hold all operands of an aliasing concat, each in place of the corresponding
   slice; NO_VALUE: the operands have buffers of their own. */
ValueId laid_over(const Fn *f, const Op *o);

/* The view whose bytes the operand, or its base, takes; NO_VALUE: none. */
ValueId laid_for(const Fn *f, ValueId operand);

/* Bytes that an op needs in the frame of a tier in addition to its results: a body's frame, a
   workspace. */
int64_t op_work(const Op *o, Tier t);

/* From a value's first byte to its last, gaps between rows included. */
int64_t value_span_bytes(const Value *v);
/* The same, but of codes of 8 bits (codes.h) those that they take. */
int64_t value_room(const Fn *f, ValueId v);

/* The arena that holds a global while a program runs: arenas.def. */
typedef enum GlobalArena {
#define ARENA(name, word, tier, globals) IN_##name,
#include "arenas.def"
#undef ARENA
  IN_ARENAS
} GlobalArena;

GlobalArena global_arena(const Global *g);
bool global_is_sampled(const Global *g); /* entries `logits` and `decode` alone use it */
/* False for inputs, scalars and outputs that are not on the device. */
bool global_has_arena(const Global *g);
GlobalArena arena_of_frames(Tier t);
Tier arena_tier(GlobalArena a);
const char *arena_word(GlobalArena a);     /* weights, .. */
const char *arena_constant(GlobalArena a); /* RT_WEIGHTS, .. */
#endif

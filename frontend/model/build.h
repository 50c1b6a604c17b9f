/* Functions under construction. A frame is the entry or the body of a loop; a body learns its
   arguments while it is written, from what it uses. */
#ifndef SHARDC_BUILD_H
#define SHARDC_BUILD_H
#include "sema.h"

typedef struct Capture { /* a value of the parent, the same in every round */
  ValueId outer, inner;
} Capture;

typedef struct Stacked { /* a value of the parent, one slice per round */
  const void *key;       /* the parameter's path, or the list of numbers */
  ValueId outer, inner;
} Stacked;

typedef struct WeightLoad {
  Global *global;
  ValueId id;
} WeightLoad;

struct Frame {
  Fn *fn;
  Frame *parent; /* NULL: the entry */
  const Stack *stack;
  int64_t trip;
  ValueId counter, carried; /* carried: in the parent */
  VEC(Capture) captures;
  VEC(Stacked) stacked;
  VEC(WeightLoad) loads; /* of the entry */
  bool has_aux;
  Val aux; /* sum of the `aux` of this function */
  Span here;
};

struct Build {
  Module *m;
  Frame *root, *frame;
  uint32_t rands;           /* random tensors so far: makes their keys differ */
  const uint32_t *files;    /* file number of the module per number of the diagnostics */
  const Adapters *adapters; /* NULL: none */
};

Loc build_loc(const Build *build, Span s);
Type lower_type(Eval *e, Elem elem, const Dims *dims);
ValueId emit_use(Eval *e, const Val *v); /* its id in the function that is being written */
ValueId emit_rounds(Module *m, Fn *fn, const Val *v, Loc loc);
uint32_t random_key(const char *path); /* of the numbers of an op rand, by its name */
#endif

/* Inside of the interpreter: interp.c (API, functions, calls, loops, globals), interp_elem.c
   (sources, element-wise), interp_reduce.c, interp_struct.c (moved indexes), interp_index.c (dot,
   gather, scatter), interp_attention.c. One function per op family; each reads its operands and
   fills its results through a Run. */
#ifndef SHARDC_INTERP_INSIDE_H
#define SHARDC_INTERP_INSIDE_H
#include "field.h"
#include "interp.h"
#include "ir/schedule/message.h"

typedef struct Store {
  uint32_t global;
  Tensor value;
} Store;

struct Interp {
  Module *m;
  Arena *arena;
  bool round, early, exact_codes, field, infinite;
  double infinite_number; /* NAN: all */
  double noise;
  uint64_t drawn; /* noise so far */
  const char *error;
  Tensor *global; /* by index in m->globals */
  VEC(Store) stores;
  struct Ranks *ranks;           /* of a mesh (interp_ranks.h), or NULL */
  struct PlacedStreams *streams; /* of an entry whose steps overlap, after its last run */
  int64_t rank;
  InterpWork *work;     /* NULL: no limit */
  InterpKernel *kernel; /* NULL: kernels are run by their mathematics */
  void *kernel_state;
};

/* One rank's part of a collective of its axis: dense elements of its buffers in and out. False: the
   ranks did not meet, since one of them has failed or is at another op. */
bool ranks_exchange(const Interp *in, const Fn *f, const Op *o, const Message *m,
                    const double *send, double *receive);
extern const char interp_alone[]; /* the error of a rank whose peers did not come */
/* Serialises actions that ranks may not do concurrently, such as print: NULL for one rank. */
void ranks_lock(struct Ranks *r);
void ranks_unlock(struct Ranks *r);

/* Is the work within the budget? */
bool interp_spend(const Interp *in, int64_t work);
/* NULL: there is none, and in->error says so. Interns nothing, since ranks ask concurrently. */
const Fn *interp_entry(Interp *in, const char *name);
/* Runs f; results in arena `out`. */
void interp_fn(Interp *in, const Fn *f, const Tensor *args, Arena *out, Tensor *results);
Tensor tensor_new(Arena *arena, Type t);
Tensor tensor_in_order(Arena *arena, const Tensor *t,
                       const Type *type); /* a copy in the order of `type` */

typedef struct InterpRun { /* one op of one function */
  Interp *interp;
  Arena *arena; /* lives as long as the call of the function */
  const Fn *f;
  const Op *op;
  Tensor *value; /* by ValueId */
} InterpRun;

typedef void RunFamily(InterpRun *r);
RunFamily run_source, run_elem, run_reduce, run_scan, run_struct, run_contract, run_gather,
    run_scatter;
RunFamily run_attention, run_collective;

const Tensor *run_in(const InterpRun *run, uint32_t i);
Tensor *run_out(const InterpRun *run, uint32_t i); /* zero at first */
/* Are numbers of that type elements of a field? */
bool interp_in_field(const Interp *in, Elem e);
bool run_in_field(const InterpRun *run, Elem e);
double real_logaddexp(double a, double b);                   /* log(e^a + e^b) */
double field_logaddexp(double a, double b);                  /* by the law of logarithms */
double run_constant(const InterpRun *run, Elem e, double x); /* a real number as the type has it */
void run_put(const InterpRun *run, Tensor *tensor, int64_t i, double x); /* rounded */

/* Walking a space of dims: `index` counts through it, the last axis fastest. Steps say how far one
   step along each axis of the space moves in a tensor: 0 where the tensor has no such dim. */
typedef struct Steps {
  int64_t step[MAX_RANK];
} Steps;

int64_t stride_of(const Type *t, Str dim); /* in the dense order of t; 0 if absent */
Steps steps_in(const Type *space, const Type *t);
static inline int64_t steps_at(const Type *space, const Steps *s, const int64_t *index) {
  int64_t at = 0;
  for (int i = 0; i < space->rank; i++) at += index[i] * s->step[i];
  return at;
}
/* The next point of the first `rank` axes; false after the last; index begins as zeros. */
static inline bool walk_axes(const Type *space, int rank, int64_t *index) {
  for (int i = rank; i-- > 0;) {
    if (++index[i] < space->axis[i].size) return true;
    index[i] = 0;
  }
  return false;
}
static inline bool walk_next(const Type *space, int64_t *index) {
  return walk_axes(space, space->rank, index);
}
/* The same by rows, of the last axis. */
static inline bool walk_next_row(const Type *space, int64_t *index) {
  return walk_axes(space, space->rank - 1, index);
}
static inline int64_t walk_row(const Type *space) {
  return space->rank ? space->axis[space->rank - 1].size : 1;
}
static inline int64_t steps_in_row(const Type *space, const Steps *s) {
  return space->rank ? s->step[space->rank - 1] : 0;
}
/* Offsets in t of all points of a space, in walking order. */
int64_t *walk_offsets(Arena *arena, const Type *space, const Type *t);
Type type_of_dims(const Type *t, int n, const Str *dims); /* only those axes, in the order listed */
#endif

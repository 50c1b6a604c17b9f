/* The values of a number on the ranks of the mesh: the first position of a rank, the first of its
   heads. Such a number is arithmetic over coordinates (scalars @mesh.of.AXIS, localize.c), which
   entries load and pass to bodies of loops. It is computed for each rank; lists need values 0,
   step, 2 step, .., so that a kernel finds its lists by a division. Must not: guess. An argument
   with two different values, and any value that does not follow from coordinates, is data. */
#include "ir/made.h"
#include "ir/loop.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "sparse.h"

enum { DEEP = 64 };

typedef struct AskedRank {
  const Module *m;
  int64_t rank;
} AskedRank;

static bool number_of(const AskedRank *x, const Fn *f, ValueId v, int deep, int64_t *out);

static bool of_coordinate(const AskedRank *rank, const Global *g, int64_t *out) {
  for (uint32_t a = 0; a < rank->m->mesh.n; a++)
    if (g->name == made_coordinate(rank->m, rank->m->mesh.at[a].name))
      return *out = mesh_coordinate(rank->m, rank->rank, (int)a), true;
  return false;
}

/* The value that every caller passes as argument i of a body, for an argument that is the same in
   all rounds. */
static bool of_argument(const AskedRank *rank, const Fn *f, uint32_t i, int deep, int64_t *out) {
  bool found = false;
  EACH_FN (rank->m, from) {
    EACH_OP (from, o) {
      int64_t here;
      if (o->callee != f) continue;
      if (o->code != OP_loop) return false;
      LoopShape shape = loop_shape(o);
      bool same = i > shape.carry && i <= shape.carry + shape.invariant;
      if (!same || !number_of(rank, from, o->in[i - 1], deep + 1, &here)) return false;
      if (found && here != *out) return false;
      *out = here, found = true;
    }
  }
  return found;
}

static bool of_arithmetic(const AskedRank *rank, const Fn *f, const Op *o, int deep, int64_t *out) {
  int64_t a, b;
  if (o->nin != 2 || !number_of(rank, f, o->in[0], deep, &a) ||
      !number_of(rank, f, o->in[1], deep, &b))
    return false;
  switch (o->code) {
  case OP_add: return *out = a + b, true;
  case OP_sub: return *out = a - b, true;
  case OP_mul: return *out = a * b, true;
  case OP_div: return b > 0 && a >= 0 ? (*out = a / b, true) : false;
  default: return false;
  }
}

static bool number_of(const AskedRank *rank, const Fn *f, ValueId v, int deep, int64_t *out) {
  const Op *o = value_def(f, v);
  if (deep > DEEP) return false;
  if (!o) return of_argument(rank, f, f->values.at[v].result, deep, out);
  switch (o->code) {
  case OP_const: return *out = (int64_t)attr_float(&o->attrs, ATTR_value, 0), true;
  case OP_load: return of_coordinate(rank, o->global, out);
  case OP_copy:
  case OP_stop: return number_of(rank, f, o->in[0], deep + 1, out);
  default: return of_arithmetic(rank, f, o, deep + 1, out);
  }
}

bool sparse_number(const Module *m, const Fn *f, ValueId v, int64_t *values, int64_t *step) {
  int64_t ranks = mesh_ranks(m), most = 0, least = INT64_MAX;
  if (!m->mesh.n) return false;
  for (AskedRank rank = {m, 0}; rank.rank < ranks; rank.rank++) {
    int64_t n;
    if (!number_of(&rank, f, v, 0, &n) || n < 0) return false;
    most = max_i64(most, n);
    if (n) least = min_i64(least, n);
  }
  *step = most ? least : 1, *values = most / *step + 1;
  for (AskedRank rank = {m, 0}; rank.rank < ranks; rank.rank++) {
    int64_t n;
    if (!number_of(&rank, f, v, 0, &n) || n % *step) return false;
  }
  return true;
}

/* Finds the part of an update that needs whole matrices (matrix_part.h). Must not: know how the
   part computes. */
#include "matrix_part.h"
#include "ir/made.h"

static bool type_has_matrix(const Type *type) {
  for (int i = 0; i < type->rank; i++)
    if (made_rest(type->axis[i].dim, MADE_MATRIX)) return true;
  return false;
}

bool op_on_matrices(const Fn *f, const Op *o) {
  bool on = o->nout && type_has_matrix(value_type(f, o->out));
  for (uint32_t i = 0; i < o->nin; i++) on |= type_has_matrix(value_type(f, o->in[i]));
  return on;
}

/* Every path back through such dims ends at what the part reads. */
static ValueId before(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  for (uint32_t i = 0; o && i < o->nin; i++)
    if (type_has_matrix(value_type(f, o->in[i]))) return o->in[i];
  return NO_VALUE;
}

ValueId matrix_part_reads(const Fn *f, ValueId v) {
  ValueId first = before(f, v);
  if (first == NO_VALUE || type_has_matrix(value_type(f, v))) return NO_VALUE;
  for (ValueId next; (next = before(f, first)) != NO_VALUE;) first = next;
  return value_def(f, first)->in[0];
}

/* Uniformity over the mesh, after pass `localize`: a value that an entry leaves in a global that an
   axis does not cut is the same on all ranks of that axis (ir/schedule/divergence.h).

   Types of one rank say nothing about axes, so a collective that has been moved to another axis of
   equal size is found only by this check. */
#include "ir/made.h"
#include "ir/schedule/divergence.h"
#include "verify.h"
#include <string.h>

static void check_store(Verifier *verifier, const Uniform *uniform, const Op *o, AxisSet stored) {
  AxisSet wrong = stored & (AxisSet) ~*uniform_held(uniform, o->global);
  for (uint32_t a = 0; a < verifier->m->mesh.n; a++)
    if (wrong >> a & 1 && verifier->m->mesh.at[a].size > 1) {
      verify_report(verifier, "E1109", verify_at_op(o),
                    "[mesh-c5] ranks along %s do not cut @%s, and may store different values",
                    verifier->m->mesh.at[a].name, o->global->name);
      return;
    }
}

/* Pass `localize` makes the coordinates of ranks, all of them, and no pass takes them away. */
static bool is_local(const Module *m) {
  for (uint32_t i = 0; m->mesh.n && i < m->globals.n; i++)
    if (made_is_coordinate(m->globals.at[i])) return true;
  return false;
}

void verify_uniform(Verifier *verifier) {
  if (!is_local(verifier->m)) return;
  Uniform uniform = uniform_of(verifier->m);
  for (uint32_t i = 0; i < verifier->m->fns.n; i++)
    for (OpId k = 0; uniform.at[i] && k < verifier->m->fns.at[i]->ops.n; k++) {
      const Op *o = &verifier->m->fns.at[i]->ops.at[k];
      verifier->fn = verifier->m->fns.at[i];
      if (o->code == OP_store) check_store(verifier, &uniform, o, uniform.at[i][o->in[0]]);
    }
}

/* Along which axes of the mesh values may differ from rank to rank: see divergence.h.

   A forward dataflow over sets of mesh axes (divergence analysis, as for the lanes of a GPU):
   coordinates and cut globals differ, results differ where an operand does. A collective whose
   result is whole (ir/collectives.def) makes a value the same again, any other makes it differ.
   Loops are walked until the sets of their carried values no longer change, bodies and kernels with
   the sets of their arguments. */
#include "ir/collective.h"
#include "ir/made.h"
#include "divergence.h"
#include "ir/loop.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include <string.h>

_Static_assert(MAX_MESH <= 8, "sets of axes have eight bits");

AxisSet *uniform_held(const Uniform *uniform, const Global *g) {
  uint32_t i = 0;
  while (uniform->m->globals.at[i] != g) i++;
  return &uniform->held[i];
}

static AxisSet cut_by(const Module *m, const Global *g) {
  AxisSet s = 0;
  for (uint32_t a = 0; a < m->mesh.n; a++)
    if (is_split(g->placed.on[a])) s |= (AxisSet)(1u << a);
  int stages = g->stages ? module_class(m).axis : -1; /* others than its holders have anything */
  return stages < 0 ? s : s | (AxisSet)(1u << stages);
}

/* The axes that cut a global or one of its members; coordinates differ along their axis. */
static AxisSet declared(const Module *m, const Global *g) {
  AxisSet s = cut_by(m, g);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == g) s |= cut_by(m, m->globals.at[i]);
  const char *axis = made_rest(g->name, MADE_COORDINATE);
  for (uint32_t a = 0; axis && a < m->mesh.n; a++)
    if (!strcmp(axis, m->mesh.at[a].name)) s |= (AxisSet)(1u << a);
  return s;
}

static AxisSet collected(const Module *m, const Op *o, AxisSet in) {
  int axis = mesh_find(m, attr_str(&o->attrs, ATTR_axis, ""));
  AxisSet own = axis < 0 ? 0 : (AxisSet)(1u << axis);
  bool joins = collective_meets(o->code) && op_collective(o->code)->way != SEND_SHIFT &&
               op_collective(o->code)->to == AXIS_WHOLE;
  return joins ? in & (AxisSet)~own : in | own;
}

static void walk(const Uniform *u, const Fn *f, AxisSet *at);

/* The sets of its body or kernel: args are the first ones of `at`, by argument. */
static void call(const Uniform *uniform, const Fn *f, const AxisSet *args, AxisSet *results) {
  AxisSet *at = ARENA_ARRAY(uniform->m->arena, AxisSet, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) at[f->args.at[i]] = args[i];
  walk(uniform, f, at);
  for (uint32_t i = 0; i < f->results.n; i++) results[i] = at[f->results.at[i]];
}

static void loop(const Uniform *uniform, const Op *o, const AxisSet *in, AxisSet *out) {
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  AxisSet *args = ARENA_ARRAY(uniform->m->arena, AxisSet, o->nin + 1);
  memcpy(args + 1, in, o->nin * sizeof *in);
  for (bool more = true; more;) {
    more = false;
    call(uniform, o->callee, args, out);
    for (uint32_t i = 0; i < carry; i++)
      if (out[i] & (AxisSet)~args[i + 1]) args[i + 1] |= out[i], more = true;
  }
  for (uint32_t i = carry; i < o->nout; i++)
    if (loop_continues(o, i) != NO_VALUE) out[i] |= in[loop_continues(o, i)];
}

static void step(const Uniform *uniform, const Op *o, AxisSet *at) {
  AxisSet *in = ARENA_ARRAY(uniform->m->arena, AxisSet, o->nin + 1), *out = at + o->out, any = 0;
  for (uint32_t i = 0; i < o->nin; i++) in[i] = at[o->in[i]], any |= in[i];
  if (o->code == OP_loop) loop(uniform, o, in, out);
  else if (o->callee) call(uniform, o->callee, in, out);
  else if (o->code == OP_load) *out = *uniform_held(uniform, o->global);
  else if (o->code == OP_wait) *out = in[0]; /* not what was sent */
  else if (op_family(o->code) == FAMILY_COLLECTIVE) *out = collected(uniform->m, o, any);
  else memset(out, any, o->nout);
}

static void walk(const Uniform *uniform, const Fn *f, AxisSet *at) {
  for (OpId i = 0; i < f->ops.n; i++) step(uniform, &f->ops.at[i], at);
}

/* A global that follows from a state has no declared set: it may differ as the values stored to
   it. */
static bool derive(const Uniform *uniform, const Op *o, AxisSet stored) {
  if (!o->global->derived) return false;
  AxisSet *s = uniform_held(uniform, o->global), before = *s;
  *s |= stored;
  return *s != before;
}

/* One walk over all entries; true: a set has grown. */
static bool walk_entries(const Uniform *uniform) {
  bool more = false;
  for (uint32_t i = 0; i < uniform->m->fns.n; i++) {
    const Fn *f = uniform->m->fns.at[i];
    if (f->kind != FN_ENTRY) continue;
    walk(uniform, f, uniform->at[i] = ARENA_ARRAY(uniform->m->arena, AxisSet, f->values.n + 1));
    for (OpId k = 0; k < f->ops.n; k++)
      if (f->ops.at[k].code == OP_store)
        more |= derive(uniform, &f->ops.at[k], uniform->at[i][f->ops.at[k].in[0]]);
  }
  return more;
}

Uniform uniform_of(const Module *m) {
  Uniform uniform = {m, ARENA_ARRAY(m->arena, AxisSet, m->globals.n + 1),
                     ARENA_ARRAY(m->arena, AxisSet *, m->fns.n + 1)};
  for (uint32_t i = 0; i < m->globals.n; i++) uniform.held[i] = declared(m, m->globals.at[i]);
  while (walk_entries(&uniform)) {}
  return uniform;
}

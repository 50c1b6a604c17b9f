/* Lines `project NAME = value` of the model: the frontend lowers the value as ops on the parameter
   before the step and stores it to the output MADE_PROJECTED NAME. The update leaves these ops and
   the store out, and repeats the ops on what it is about to write (update.h, put): so averages,
   copies in 16 bits and the test for finite numbers see the projected value. Later passes see ops
   on a weight like those of LAMB's norms. A line is about one layer of a stack: where `ranges` cut
   the stack, layers of its other ranges are read as they were. Must not: know optimizers. */
#include "ir/made.h"
#include "update.h"
#include <string.h>

static bool any(const bool *marks, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++)
    if (marks[o->out + i]) return true;
  return false;
}

static void mark_operands(bool *marks, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++) marks[o->in[i]] = true;
}

/* The parameter whose value the op stores; NULL: it stores none. */
static const char *projected_name(const Op *o) {
  if (o->code != OP_store || o->global->kind != GLOBAL_OUTPUT) return NULL;
  return made_rest(o->global->name, MADE_PROJECTED);
}

bool *projected_alone(Module *m, const Fn *step) {
  bool *read = ARENA_ARRAY(m->arena, bool, step->values.n + 1),
       *live = ARENA_ARRAY(m->arena, bool, step->values.n + 1),
       *alone = ARENA_ARRAY(m->arena, bool, step->ops.n + 1);
  for (uint32_t i = 0; i < step->results.n; i++) live[step->results.at[i]] = true;
  for (uint32_t i = step->ops.n; i-- > 0;) {
    const Op *o = &step->ops.at[i];
    bool store = projected_name(o) != NULL, ours = store || any(read, o);
    alone[i] = ours && (store || !any(live, o));
    if (ours) mark_operands(read, o);
    if (!alone[i]) mark_operands(live, o);
  }
  return alone;
}

/* The stored value of the line; NO_VALUE: it has none. */
static ValueId line_of(const Fn *step, const Global *global) {
  EACH_OP (step, o) {
    const char *name = projected_name(o);
    if (name && !strcmp(name, global->name)) return o->in[0];
  }
  return NO_VALUE;
}

bool projected_is(const Update *u, const Global *global) {
  return u->model && global->kind == GLOBAL_PARAM && line_of(u->model, global) != NO_VALUE;
}

ValueId projected_value(Update *u, const Global *global, ValueId updated) {
  const Fn *step = u->model;
  ValueId value = line_of(step, global);
  bool *read = ARENA_ARRAY(u->m->arena, bool, step->values.n + 1);
  ValueId *map = value_map(u->m, step);
  read[value] = true;
  for (uint32_t i = step->ops.n; i-- > 0;)
    if (any(read, &step->ops.at[i])) mark_operands(read, &step->ops.at[i]);
  EACH_OP (step, o) {
    if (!any(read, o)) continue;
    must(!o->callee, "%s in the projection of @%s", op_name(o->code), global->name);
    if (o->code == OP_load && o->global == global) map[o->out] = updated;
    else fn_clone_op(u->m, u->f, step, o, map);
  }
  return map[value];
}

/* Facts of collectives by op: see collective.h. Must not: know one by its name. */
#include "collective.h"

static const Collective facts[OP_COUNT] = {
#define COLLECTIVE(name, kind, words, from, to, passes, way, library)                              \
  [OP_##name] = {#kind, words, library, AXIS_##from, AXIS_##to, passes, SEND_##way},
#define PLACES(name, from, to)                                                                     \
  [OP_##name] = {NULL, NULL, NULL, AXIS_##from, AXIS_##to, 0, SEND_NONE},
#include "collectives.def"
};

const Collective *op_collective(OpCode c) {
  if (op_family(c) != FAMILY_COLLECTIVE) bug("%s is no collective", op_name(c));
  return &facts[c];
}

bool collective_between(AxisState from, AxisState to, OpCode *c) {
  for (*c = 0; *c < OP_COUNT; (*c)++)
    if (op_family(*c) == FAMILY_COLLECTIVE && facts[*c].way != SEND_NEXT &&
        facts[*c].way != SEND_SHIFT && facts[*c].from == from && facts[*c].to == to)
      return true;
  return false;
}

Str collective_joins(const Op *o) {
  return o->ngroups && op_collective(o->code)->from == AXIS_CUT ? o->group[0].from[0] : NULL;
}

Str collective_cuts(const Op *o) {
  if (!o->ngroups || op_collective(o->code)->to != AXIS_CUT) return NULL;
  return collective_joins(o) ? o->group[0].to[0] : o->group[0].from[0];
}

double collective_elements(OpCode c, int64_t in, int64_t out) {
  return op_collective(c)->passes * (double)(in > out ? in : out);
}

/* Loops that take turns (turns.h): the pair, and how long both are at work. */
#include "turns.h"
#include "placement.h"

bool op_takes_turns(const Op *o) {
  return o->code == OP_loop && attr_get(&o->attrs, ATTR_turns) != NULL;
}

static bool is_forward(const Op *o) {
  return op_takes_turns(o) && attr_get(&o->attrs, ATTR_axis) != NULL;
}

static int64_t largest(const Attr *a) {
  int64_t most = 0;
  for (int64_t i = 0; i < a->i; i++) most = a->list[i] > most ? a->list[i] : most;
  return most;
}

OpId op_begins(const Fn *f, OpId id) {
  if (!op_takes_turns(&f->ops.at[id]) || is_forward(&f->ops.at[id])) return id;
  for (OpId i = id; i-- > 0;)
    if (op_takes_turns(&f->ops.at[i])) return i;
  return id;
}

OpId op_ends(const Fn *f, OpId id) {
  if (!is_forward(&f->ops.at[id])) return id;
  for (OpId i = id + 1; i < f->ops.n; i++)
    if (op_takes_turns(&f->ops.at[i])) return i;
  return id;
}

bool turns_begin(const Fn *f, OpId id, TurnPair *t) {
  const Op *o = &f->ops.at[id];
  if (!is_forward(o)) return false;
  const Attr *a = attr_get(&o->attrs, ATTR_turns);
  *t = (TurnPair){id, op_ends(f, id), a->i, attr_int(&o->attrs, ATTR_trip, 0), largest(a), a->list};
  return t->backward != id;
}

int64_t turns_most(const Module *m, const Op *forward, int64_t rank) {
  const Attr *a = attr_get(&forward->attrs, ATTR_turns);
  int axis = mesh_find(m, attr_str(&forward->attrs, ATTR_axis, ""));
  return a->list[axis < 0 ? 0 : mesh_coordinate(m, rank, axis)];
}

int64_t loop_slots(const Op *loop, const Type *stacked) {
  if (!op_takes_turns(loop)) return 0;
  int64_t size = type_size(stacked, loop->group[0].from[0]);
  return size < attr_int(&loop->attrs, ATTR_trip, 0) ? size : 0;
}

int64_t turns_one_f_one_b(int64_t stages, int64_t stage, int64_t parts) {
  return stages - stage < parts ? stages - stage : parts;
}

const char *turns_text(Arena *a, int64_t most, int64_t parts, int64_t words) {
  const char *text = "";
  int64_t forward = 0, backward = 0;
  while (backward < parts && forward + backward < words) {
    bool on = turn_is_forward(most, parts, forward, backward);
    text = arena_printf(a, "%s%s%c%lld", text, *text ? " " : "", on ? 'F' : 'B',
                        (long long)(on ? forward++ : backward++));
  }
  return backward < parts ? arena_printf(a, "%s ..", text) : text;
}

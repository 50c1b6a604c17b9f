/* Facts about loop ops: see loop.h. */
#include "loop.h"
#include "made.h"

static uint32_t carried(const Op *loop) { return (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0); }

static const char *const rounds_names[] = {
#define ROUNDS(name, meaning) #name,
#include "rounds.def"
#undef ROUNDS
};

const char *rounds_name(LoopRounds rounds) { return rounds_names[rounds]; }

LoopRounds rounds_find(const char *name) {
  LoopRounds rounds = 0;
  while (rounds < ROUNDS_COUNT && strcmp(rounds_names[rounds], name) != 0) rounds++;
  return rounds;
}

LoopRounds loop_rounds(const Op *loop) {
  return rounds_find(attr_str(&loop->attrs, ATTR_rounds, rounds_names[ROUNDS_layers]));
}

bool loop_has_stages(const Op *op) {
  return op->code == OP_loop && attr_get(&op->attrs, ATTR_stages);
}

bool loop_is_micro(const Op *op) { return op->code == OP_loop && loop_rounds(op) == ROUNDS_micro; }

int64_t body_rounds(const Module *m, const Fn *f) {
  int64_t most = 1;
  EACH_FN (m, caller)
    EACH_OP (caller, o) {
      int64_t rounds = o->callee == f && o->code == OP_loop ? attr_int(&o->attrs, ATTR_trip, 0) : 0;
      if (rounds > most) most = rounds;
    }
  return most;
}

void loops_of_names(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Op *op = &m->fns.at[i]->ops.at[k];
      if (op->code == OP_loop && op->ngroups && op->group[0].nfrom &&
          !attr_get(&op->attrs, ATTR_rounds) && !strcmp(op->group[0].from[0], MADE_MICRO))
        attr_set_str(m, &op->attrs, ATTR_rounds, rounds_names[ROUNDS_micro]);
    }
}

uint32_t loop_whole(const Op *loop) {
  return carried(loop) + (uint32_t)attr_int(&loop->attrs, ATTR_invariant, 0);
}

int64_t loop_first(const Op *loop) { return attr_int(&loop->attrs, ATTR_start, 0); }

int64_t loop_length(const Op *loop) {
  return attr_int(&loop->attrs, ATTR_stack_length, attr_int(&loop->attrs, ATTR_trip, 0));
}

static int64_t into(const Op *loop, uint32_t result) {
  const Attr *a = attr_get(&loop->attrs, ATTR_continues);
  return a && result >= carried(loop) && result - carried(loop) < a->i
             ? a->list[result - carried(loop)]
             : INTO_OWN;
}

uint32_t loop_continues(const Op *loop, uint32_t result) {
  int64_t k = into(loop, result);
  return k >= 0 ? loop_whole(loop) + (uint32_t)k : NO_VALUE;
}

bool loop_begins(const Op *loop, uint32_t result) { return into(loop, result) == INTO_NEW; }

int64_t loop_base(const Op *loop, const Type *stacked) {
  bool all = type_size(stacked, loop->group[0].from[0]) == loop_length(loop);
  return attr_get(&loop->attrs, ATTR_stack_length) && all ? 0 : -loop_first(loop);
}

uint32_t value_uses(const Fn *f, ValueId v) {
  uint32_t n = 0;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) n += f->ops.at[i].in[k] == v;
  for (uint32_t i = 0; i < f->results.n; i++) n += f->results.at[i] == v;
  return n;
}

bool loop_returns_arg(const Op *loop, uint32_t result, uint32_t argument) {
  const Storage *storage = &loop->callee->values.at[loop->callee->results.at[result]].storage;
  return storage->place == PLACE_ARG && storage->slot == argument;
}

uint32_t loop_saved(const Op *loop, uint32_t j) {
  for (uint32_t i = carried(loop); i < loop->nout; i++)
    if (loop_returns_arg(loop, i, j + 1)) return i;
  return 0;
}

int64_t loop_second_at(const Op *loop, uint32_t j) {
  const Attr *slots = attr_get(&loop->attrs, ATTR_slots);
  return slots && (int64_t)j < slots->i ? slots->list[j] : -1;
}

bool value_is_read(const Fn *f, ValueId v) {
  EACH_OP (f, o)
    if (op_reads(o, v)) return true;
  return false;
}

bool value_is_result(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return true;
  return false;
}

bool value_is_used(const Fn *f, ValueId v) { return value_uses(f, v) > 0; }

bool value_is_zero(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  if (o && (o->code == OP_expand || o->code == OP_rename || o->code == OP_cast))
    return value_is_zero(f, o->in[0]);
  return o && o->code == OP_const && attr_float(&o->attrs, ATTR_value, 1) == 0;
}

static ValueId before_cast(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  return o && o->code == OP_cast ? o->in[0] : v;
}

bool running_sum(const Fn *body, ValueId argument, ValueId result, RunningSum *sum) {
  ValueId total = before_cast(body, result);
  const Op *o = value_def(body, total);
  if (!o || o->code != OP_add || value_uses(body, argument) != 1) return false;
  for (int i = 0; i < 2; i++) {
    ValueId wide = o->in[i];
    if (before_cast(body, wide) != argument || value_uses(body, wide) != 1) continue;
    *sum = (RunningSum){wide, total, o->in[1 - i]};
    return true;
  }
  return false;
}

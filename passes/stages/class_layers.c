/* Layers of one class of stages, if stages have different numbers of them (pad_layers.c).

   All stages have room for the same number of layers, and loops over them run the same number of
   rounds; the rounds after the model's last layer do nothing. A class that is one stage, or
   several equal stages, knows its number of layers: its loops become loops over a layer range of
   the stack (docs/ir.md, `stack_length`). A stacked result that only loops over the same layers
   read keeps the stack's size, without values in the rest; for other readers the rest is 0. A loop
   without layers is removed: its carried operands are its results. Must not: be used for chunks of
   layers that take turns on a stage, whose rounds are not the stage's only ones. */
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "classes.h"

static int64_t layers_of(const LoopShape *shape, int64_t stage) {
  int64_t left = shape->layers - stage * shape->trip;
  return left < 0 ? 0 : left < shape->trip ? left : shape->trip;
}

/* Rounds of the loop that do something on each stage of the class; -1: they differ. */
static int64_t rounds_of(const Module *m, const LoopShape *shape) {
  StageClass class = module_class(m);
  bool known = *class.name && shape->layers && !shape->of && plan_chunks(m) < 2;
  if (!known || layers_of(shape, class.first) != layers_of(shape, class.last)) return -1;
  return layers_of(shape, class.first);
}

bool class_layers_full(const Module *m, const Op *loop) {
  LoopShape shape = loop_shape(loop);
  return rounds_of(m, &shape) >= 0;
}

/* ---- readers of a stack ---- */

static bool by_layers_alone(const Module *m, const Fn *f, ValueId v, Str dim);

static bool operand_by_layers_alone(const Module *m, const Op *o, uint32_t k, Str dim) {
  if (o->code != OP_loop) return false;
  LoopShape shape = loop_shape(o);
  if (k < shape.carry) return false;
  if (shape.axis.dim == dim) return k >= shape.carry + shape.invariant;
  return by_layers_alone(m, o->callee, o->callee->args.at[k + 1], dim);
}

/* Result r of body f, of whatever loop runs it. */
static bool result_by_layers_alone(const Module *m, const Fn *f, uint32_t r, Str dim) {
  bool alone = f->kind != FN_ENTRY;
  for (uint32_t i = 0; alone && i < m->fns.n; i++)
    for (OpId k = 0; alone && k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code != OP_loop || o->callee != f) continue;
      alone = r >= loop_shape(o).carry && by_layers_alone(m, m->fns.at[i], o->out + r, dim);
    }
  return alone;
}

/* Do only loops over dim read v, slice by slice, in f and in the functions that v is passed to? */
static bool by_layers_alone(const Module *m, const Fn *f, ValueId v, Str dim) {
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == v && !operand_by_layers_alone(m, &f->ops.at[i], k, dim))
        return false;
  for (uint32_t r = 0; r < f->results.n; r++)
    if (f->results.at[r] == v && !result_by_layers_alone(m, f, r, dim)) return false;
  return true;
}

/* ---- the loop ---- */

static void leave_out(Rebuild *rebuild, const Op *o, const LoopShape *shape) {
  for (uint32_t i = 0; i < o->nout; i++)
    rebuild->map[o->out + i] =
        i < shape->carry
            ? rebuild->map[o->in[i]]
            : emit_full(rebuild->m, rebuild->to, *value_type(rebuild->from, o->out + i), 0, o->loc);
}

/* A stack of the rounds, padded with zeros at the end. */
static ValueId with_zeros(Rebuild *rebuild, const Op *o, ValueId v, Type all) {
  Str dim = o->group[0].from[0];
  Group same = group_map(1, &dim, 1, &dim);
  return emit_typed(rebuild->m, rebuild->to, OP_pad, 1, &v, &same, all, o->loc);
}

static void take_part(Rebuild *rebuild, const Op *o, LoopShape shape, int64_t rounds) {
  int64_t *into = ARENA_ARRAY(rebuild->m->arena, int64_t, o->nout + 1);
  ValueId *in = ARENA_ARRAY(rebuild->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = rebuild->map[o->in[i]];
  for (uint32_t i = shape.carry; i < o->nout; i++)
    into[i - shape.carry] = by_layers_alone(rebuild->m, rebuild->from, o->out + i, shape.axis.dim)
                                ? INTO_NEW
                                : INTO_OWN;
  shape.of = shape.trip, shape.trip = shape.axis.size = rounds;
  shape.into = into, shape.ninto = o->nout - shape.carry, shape.layers = 0;
  ValueId out = rebuild_loop(rebuild->m, rebuild->to, o->callee, shape, in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    bool part = i >= shape.carry && into[i - shape.carry] == INTO_OWN;
    rebuild->map[o->out + i] =
        part ? with_zeros(rebuild, o, out + i, *value_type(rebuild->from, o->out + i)) : out + i;
  }
}

bool class_layers(Rebuild *rebuild, const Op *o) {
  LoopShape shape = loop_shape(o);
  int64_t rounds = rounds_of(rebuild->m, &shape);
  if (rounds < 0 || rounds == shape.trip) return false;
  if (rounds) take_part(rebuild, o, shape, rounds);
  else leave_out(rebuild, o, &shape);
  return true;
}

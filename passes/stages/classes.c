/* classes: a module for all stages of a pipeline becomes one for the stages of one class
   (ir/plan/stage_class.h), by what is known about their coordinate.

     load @mesh.of.AXIS      a constant, if the class is one stage
     compared with a number  false, if no stage of the class has that number
     store                   removed, if no stage of the class holds the global (pass `own`)
     receive                 on the first stage: the value itself; else without an operand
     send                    on the last stage: the value itself; else its result is 0
     both, if `cyclic`       as on all others: from chunk to chunk there is no first or last stage
     rounds of layers        fewer, if the class has fewer layers than room (class_layers.c)
     another collective      stays, with its operands, even if its result is needed on other stages
                             alone, such as the sum of a tied embedding's gradient over three of
                             them (attribute `keep_alive`): all ranks must take part in it

   The rest follows by folding and dead code (`clean`): ops that only another stage needs, the
   embedding, the head and the values saved for them, are not computed elsewhere. A module that
   names no class does not change. Must not: drop a message of the axis, nor let classes disagree
   about one: `prove` compares them. */
#include "ir/made.h"
#include "ir/schedule/flight.h"
#include "ir/plan/stage_class.h"
#include "classes.h"
#include <string.h>

typedef struct ClassPass {
  Module *m;
  StageClass c;
  bool together;
  Str scalar;     /* the coordinate's global */
  bool **known;   /* by function and value: it is the coordinate */
  ValueId *alive; /* by function: true in each round that does something; NO_VALUE */
} ClassPass;

typedef struct ClassFn { /* one function */
  const ClassPass *k;
  Rebuild r;
  const bool *known;
  ValueId alive;
} ClassFn;

/* ---- which values are the coordinate ---- */

static bool is_coordinate(const ClassPass *pass, const Op *o) {
  return o->code == OP_load && o->global->name == pass->scalar;
}

/* An argument is, if it is in every loop that runs the body. */
static void see_loop(const ClassPass *pass, const bool *known, const Op *o, bool first) {
  bool *body = pass->known[fn_index(pass->m, o->callee)];
  for (uint32_t i = 0; i < o->nin; i++) {
    bool *arg = &body[o->callee->args.at[i + 1]];
    bool invariant = i >= (uint32_t)attr_int(&o->attrs, ATTR_carry, 0) && i < loop_whole(o);
    *arg = (first || *arg) && invariant && known[o->in[i]];
  }
}

/* The condition by which rounds after the last layer select their carried value (pad.c). */
static ValueId chosen_by(const Fn *body) {
  const Op *o = body->results.n ? value_def(body, body->results.at[0]) : NULL;
  return o && o->code == OP_where ? o->in[0] : NO_VALUE;
}

/* Callers come after callees. */
static void find_coordinates(ClassPass *pass) {
  Module *m = pass->m;
  bool *met = ARENA_ARRAY(m->arena, bool, m->fns.n + 1);
  pass->known = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  pass->alive = ARENA_ARRAY(m->arena, ValueId, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    pass->alive[i] = NO_VALUE,
    pass->known[i] = ARENA_ARRAY(m->arena, bool, m->fns.at[i]->values.n + 1);
  for (uint32_t i = m->fns.n; i-- > 0;)
    EACH_OP (m->fns.at[i], o) {
      if (is_coordinate(pass, o)) pass->known[i][o->out] = true;
      if (o->code != OP_loop) continue;
      uint32_t callee = fn_index(m, o->callee);
      see_loop(pass, pass->known[i], o, !met[callee]);
      if (class_layers_full(m, o)) pass->alive[callee] = chosen_by(o->callee);
      met[callee] = true;
    }
}

/* ---- outcome of an op ---- */

static bool is_one_stage(const StageClass *c) { return c->first == c->last; }

/* Is the number that the coordinate is compared with none of the class's? */
static bool is_outside(const ClassFn *copy, ValueId v) {
  const Op *o = value_def(copy->r.from, v);
  if (!o || o->code != OP_const) return false;
  double at = attr_float(&o->attrs, ATTR_value, 0);
  return at < (double)copy->k->c.first || at > (double)copy->k->c.last;
}

static bool is_false(const ClassFn *copy, const Op *o) {
  if (o->code != OP_eq) return false;
  return (copy->known[o->in[0]] && is_outside(copy, o->in[1])) ||
         (copy->known[o->in[1]] && is_outside(copy, o->in[0]));
}

static bool is_hop_of_stages(const ClassFn *copy, const Op *o) {
  return op_is_p2p(o->code) &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), copy->k->m->mesh.at[copy->k->c.axis].name);
}

/* The stage that receives from no stage, or sends to none. */
static int64_t end_of_line(const ClassFn *copy, const Op *o) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  bool at_last = back == (o->code == OP_receive);
  return at_last ? copy->k->m->mesh.at[copy->k->c.axis].size - 1 : 0;
}

static void class_hop(ClassFn *copy, const Op *o) {
  int64_t end = end_of_line(copy, o);
  bool cyclic = attr_int(&o->attrs, ATTR_cyclic, 0) != 0;
  ValueId *to = &copy->r.map[o->out];
  if (!cyclic && copy->k->c.first == end && copy->k->c.last == end) {
    *to = copy->r.map[o->in[0]];
    return;
  }
  must(cyclic || end < copy->k->c.first || end > copy->k->c.last,
       "classes: stage %lld is one of several", (long long)end);
  Op *made = rebuild_op(&copy->r, o);
  if (o->code == OP_receive) made->nin = 0;
  else *to = emit_full(copy->k->m, copy->r.to, *value_type(copy->r.from, o->out), 0, o->loc);
}

/* Does it wait for ranks of other classes? */
static bool is_of_all_stages(const ClassFn *copy, const Op *o) {
  Str axis = copy->k->m->mesh.at[copy->k->c.axis].name;
  return copy->k->together && op_can_fly(o) && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), axis);
}

static void class_op(ClassFn *copy, const Op *o) {
  Module *m = copy->k->m;
  if (is_hop_of_stages(copy, o)) class_hop(copy, o);
  else if (is_of_all_stages(copy, o))
    attr_set_int(m, &rebuild_op(&copy->r, o)->attrs, ATTR_keep_alive, 1);
  else if (is_coordinate(copy->k, o) && is_one_stage(&copy->k->c))
    copy->r.map[o->out] = ir_const(m, copy->r.to, ELEM_i32, (double)copy->k->c.first, o->loc);
  else if (o->nout && o->out == copy->alive)
    copy->r.map[o->out] = ir_const(m, copy->r.to, ELEM_bool, 1, o->loc);
  else if (o->code == OP_loop && class_layers(&copy->r, o)) return;
  else if (o->code == OP_store && !global_is_held(m, o->global)) return; /* its owner does */
  else if (is_false(copy, o)) copy->r.map[o->out] = ir_const(m, copy->r.to, ELEM_bool, 0, o->loc);
  else rebuild_op(&copy->r, o);
}

static void class_fn(const ClassPass *pass, uint32_t number) {
  Fn *f = pass->m->fns.at[number];
  ClassFn copy = {pass, rebuild_begin(pass->m, f), pass->known[number], pass->alive[number]};
  for (OpId i = 0; i < f->ops.n; i++) class_op(&copy, &f->ops.at[i]);
  rebuild_results(&copy.r);
  module_replace(pass->m, f, copy.r.to);
}

void classes_apart(Module *m, bool together) {
  ClassPass pass = {.m = m, .c = module_class(m), .together = together};
  if (pass.c.axis < 0 || !*pass.c.name) return;
  pass.scalar = made_coordinate(m, m->mesh.at[pass.c.axis].name);
  find_coordinates(&pass);
  for (uint32_t i = 0; i < m->fns.n; i++) class_fn(&pass, i);
  module_collect(m);
}

void pass_classes(Module *m) { classes_apart(m, true); }

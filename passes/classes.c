/* classes: a module for all stages of a pipeline becomes one for the stages of one class
   (ir/stage_class.h), by what is known of their coordinate.

     load @mesh.AXIS         a constant, where the class is one stage
     compared with a number  false, where no stage of the class is it
     store                   goes, of what no stage of the class holds (pass `own`)
     receive                 where the line begins: the value itself; else without an operand
     send                    where the line ends: the value itself; else its result is 0
     both, where they wrap   as on all others: from chunk to chunk the line has no end

   The rest follows by folding and dead code (`clean`): what only another stage needs, the
   embedding, the head and what is saved for them, is computed nowhere else. A module that names no
   class stays as it is. Must not: drop a message of the axis, nor let classes disagree about one:
   `prove` compares them. */
#include "ir/stage_class.h"
#include "passes/internal.h"
#include <string.h>

typedef struct ClassPass {
  Module *m;
  StageClass c;
  Str scalar;   /* the coordinate's global */
  bool **known; /* by function and value: it is the coordinate */
} ClassPass;

typedef struct ClassFn { /* one function */
  const ClassPass *k;
  Rebuild r;
  const bool *known;
} ClassFn;

/* ---- which values are the coordinate ---- */

static uint32_t number_of(const Module *m, const Fn *f) {
  uint32_t i = 0;
  while (m->fns.at[i] != f) i++;
  return i;
}

static bool is_coordinate(const ClassPass *k, const Op *o) {
  return o->code == OP_load && o->global->name == k->scalar;
}

/* An argument is, if it is in every loop that runs the body. */
static void see_loop(const ClassPass *k, const bool *known, const Op *o, bool first) {
  bool *body = k->known[number_of(k->m, o->callee)];
  for (uint32_t i = 0; i < o->nin; i++) {
    bool *arg = &body[o->callee->args.at[i + 1]];
    bool invariant = i >= (uint32_t)attr_int(&o->attrs, ATTR_carry, 0) && i < loop_whole(o);
    *arg = (first || *arg) && invariant && known[o->in[i]];
  }
}

/* Callers stand behind callees. */
static void find_coordinates(ClassPass *k) {
  Module *m = k->m;
  bool *met = ARENA_ARRAY(m->arena, bool, m->fns.n + 1);
  k->known = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    k->known[i] = ARENA_ARRAY(m->arena, bool, m->fns.at[i]->values.n + 1);
  for (uint32_t i = m->fns.n; i-- > 0;)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) {
      const Op *o = &m->fns.at[i]->ops.at[j];
      if (is_coordinate(k, o)) k->known[i][o->out] = true;
      if (o->code != OP_loop) continue;
      uint32_t callee = number_of(m, o->callee);
      see_loop(k, k->known[i], o, !met[callee]);
      met[callee] = true;
    }
}

/* ---- what becomes of an op ---- */

static bool is_one_stage(const StageClass *c) { return c->first == c->last; }

/* Is the number that the coordinate is compared with none of the class's? */
static bool is_outside(const ClassFn *x, ValueId v) {
  const Op *o = value_def(x->r.from, v);
  if (!o || o->code != OP_const) return false;
  double at = attr_float(&o->attrs, ATTR_value, 0);
  return at < (double)x->k->c.first || at > (double)x->k->c.last;
}

static bool is_false(const ClassFn *x, const Op *o) {
  if (o->code != OP_eq) return false;
  return (x->known[o->in[0]] && is_outside(x, o->in[1])) ||
         (x->known[o->in[1]] && is_outside(x, o->in[0]));
}

static bool is_hop_of_stages(const ClassFn *x, const Op *o) {
  return op_is_hop(o->code) &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), x->k->m->mesh.at[x->k->c.axis].name);
}

/* The stage that has nobody to receive from, or to send to. */
static int64_t end_of_line(const ClassFn *x, const Op *o) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  bool at_last = back == (o->code == OP_receive);
  return at_last ? x->k->m->mesh.at[x->k->c.axis].size - 1 : 0;
}

static void class_hop(ClassFn *x, const Op *o) {
  int64_t end = end_of_line(x, o);
  bool wraps = attr_int(&o->attrs, ATTR_wrap, 0) != 0;
  ValueId *to = &x->r.map[o->out];
  if (!wraps && x->k->c.first == end && x->k->c.last == end) {
    *to = x->r.map[o->in[0]];
    return;
  }
  must(wraps || end < x->k->c.first || end > x->k->c.last, "classes: stage %lld is one of several",
       (long long)end);
  Op *made = rebuild_op(&x->r, o);
  if (o->code == OP_receive) made->nin = 0;
  else *to = emit_full(x->k->m, x->r.to, *value_type(x->r.from, o->out), 0, o->loc);
}

static void class_op(ClassFn *x, const Op *o) {
  Module *m = x->k->m;
  if (is_hop_of_stages(x, o)) class_hop(x, o);
  else if (is_coordinate(x->k, o) && is_one_stage(&x->k->c))
    x->r.map[o->out] = ir_const(m, x->r.to, ELEM_i32, (double)x->k->c.first, o->loc);
  else if (o->code == OP_store && !global_is_held(m, o->global)) return; /* its owner does */
  else if (is_false(x, o)) x->r.map[o->out] = ir_const(m, x->r.to, ELEM_bool, 0, o->loc);
  else rebuild_op(&x->r, o);
}

static void class_fn(const ClassPass *k, Fn *f, const bool *known) {
  ClassFn x = {k, rebuild_begin(k->m, f), known};
  for (OpId i = 0; i < f->ops.n; i++) class_op(&x, &f->ops.at[i]);
  rebuild_results(&x.r);
  module_replace(k->m, f, x.r.to);
}

void pass_classes(Module *m) {
  ClassPass k = {.m = m, .c = module_class(m)};
  if (k.c.axis < 0 || !*k.c.name) return;
  k.scalar = intern_printf(m->ctx->names, "mesh.%s", m->mesh.at[k.c.axis].name);
  find_coordinates(&k);
  for (uint32_t i = 0; i < m->fns.n; i++) class_fn(&k, m->fns.at[i], k.known[i]);
  module_collect(m);
}

/* grad: reverse mode for the entry `step`, which stores @loss.

   Walks the ops from the last to the first; each op's rule (grad.def) turns gradients of results
   into gradients of operands. Contributions to one value are added in one flat chain, in the order
   in which they were found. Only values that depend on a parameter which is not frozen get a
   gradient.

   The backward ops are built in a scratch function first, because the loops of the forward part
   must return more once it is known which values backward reads (grad_loop.c); then forward and
   backward are joined. The gradient of parameter NAME is stored to the output grad.NAME, from
   which `optimizer` takes it. Shapes, decay and the update are not decided here. */
#include "ir/made.h"
#include "grad.h"
#include "loss_scale.h"

static GradRule *const rules[OP_COUNT] = {
#define GRAD(op, rule) [OP_##op] = rule,
#include "grad.def"
#undef GRAD
};

bool grad_differentiable(const Type *t) { return elem_class(t->elem) == CLASS_FLOAT; }

static bool any_varied(const Op *o, const bool *varied) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (varied[o->in[i]]) return true;
  return false;
}

/* Arguments of a loop's body that depend on parameters. A carried one does if its first value or
   that of the next round does: repeated until it stays, each time with one more at least. */
bool *varied_body(Module *m, const Fn *f, const Op *loop, const bool *varied) {
  (void)f;
  const Fn *body = loop->callee;
  LoopShape shape = loop_shape(loop);
  bool *args = ARENA_ARRAY(m->arena, bool, body->args.n + 1);
  for (uint32_t i = 0; i < loop->nin; i++) args[i + 1] = varied[loop->in[i]];
  for (;;) {
    bool *values = varied_values(m, body, args), again = false;
    for (uint32_t i = 0; i < shape.carry; i++)
      if (values[body->results.at[i]] && !args[i + 1]) args[i + 1] = again = true;
    if (!again) return values;
  }
}

static void vary_loop(Module *m, const Fn *f, const Op *o, bool *varied) {
  const bool *body = varied_body(m, f, o, varied);
  LoopShape shape = loop_shape(o);
  for (uint32_t i = 0; i < o->nout; i++) {
    varied[o->out + i] = body[o->callee->results.at[i]];
    if (i < shape.carry) varied[o->out + i] |= body[o->callee->args.at[i + 1]];
  }
}

static void vary_op(Module *m, const Fn *f, const Op *o, bool *varied) {
  if (o->code == OP_load) {
    varied[o->out] = o->global->kind == GLOBAL_PARAM && global_learns(o->global);
  } else if (o->code == OP_loop) {
    vary_loop(m, f, o, varied);
  } else if (!(op_flags(o->code) & NODIFF) && any_varied(o, varied)) {
    for (uint32_t i = 0; i < o->nout; i++)
      varied[o->out + i] = grad_differentiable(value_type(f, o->out + i));
  }
}

bool *varied_values(Module *m, const Fn *f, const bool *args) {
  bool *varied = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  for (uint32_t i = 0; args && i < f->args.n; i++) varied[f->args.at[i]] = args[i];
  for (uint32_t i = 0; i < f->ops.n; i++) vary_op(m, f, &f->ops.at[i], varied);
  return varied;
}

Back *back_new(Module *m, const Fn *f, const bool *varied) {
  Back *back = ARENA_NEW(m->arena, Back);
  back->m = m, back->f = f, back->varied = varied;
  back->b = fn_new(m, FN_BODY, f->name);
  back->parts = ARENA_ARRAY(m->arena, ValueList, f->values.n + 1);
  back->total = value_map(m, f), back->readable = value_map(m, f);
  back->extended = ARENA_ARRAY(m->arena, Extended, f->ops.n + 1);
  return back;
}

/* Constants and positions are made again rather than kept. */
static bool made_again(const Op *def) {
  return def && (def->code == OP_const || def->code == OP_iota);
}

ValueId back_read(Back *back, ValueId v) {
  must(v < back->f->values.n, "grad reads %%%u of %s", v, back->f->name);
  if (back->readable[v] != NO_VALUE) return back->readable[v];
  const Op *def = value_def(back->f, v);
  if (made_again(def)) {
    fn_clone_op(back->m, back->b, back->f, def, back->readable);
  } else {
    back->readable[v] = fn_arg(back->m, back->b, *value_type(back->f, v));
    vec_push(back->m->arena, back->reads, (Read){v, NO_OP, 0, back->readable[v]});
  }
  return back->readable[v];
}

ValueId back_read_extra(Back *back, OpId loop, uint32_t extra, Type t) {
  ValueId arg = fn_arg(back->m, back->b, t);
  vec_push(back->m->arena, back->reads, (Read){NO_VALUE, loop, extra, arg});
  return arg;
}

void back_seed(Back *back, ValueId v, ValueId g) {
  if (!type_same_dims(value_type(back->b, g), value_type(back->f, v)))
    bug("gradient of %%%u in %s has other dims", v, back->f->name);
  must(back->total[v] == NO_VALUE, "the gradient of %%%u of %s has been added up already", v,
       back->f->name);
  must(value_type(back->b, g)->elem == value_type(back->f, v)->elem,
       "the gradient of %%%u of %s has another type", v, back->f->name);
  vec_push(back->m->arena, back->parts[v], g);
}

/* Starts the chain with a part that has the value's own order of dims, if one does: the sum takes
 * it over. */
static uint32_t first_part(const Back *back, ValueId v) {
  const ValueList *l = &back->parts[v];
  for (uint32_t i = 0; i < l->n; i++)
    if (type_equal(value_type(back->b, l->at[i]), value_type(back->f, v))) return i;
  return 0;
}

ValueId back_total(Back *back, ValueId v) {
  if (back->total[v] != NO_VALUE || !back->parts[v].n) return back->total[v];
  uint32_t first = first_part(back, v);
  ValueId sum = back->parts[v].at[first];
  for (uint32_t i = 0; i < back->parts[v].n; i++)
    if (i != first) sum = grad_binary(back, OP_add, sum, back->parts[v].at[i]);
  return back->total[v] = sum;
}

static bool gradients_of_results(Back *back, const Op *o, ValueId *dy) {
  bool any = false;
  for (uint32_t i = 0; i < o->nout; i++)
    dy[i] = back_total(back, o->out + i), any |= dy[i] != NO_VALUE;
  return any;
}

static void back_op(Back *back, const Op *o) {
  if (o->code == OP_load || !o->nout) return;
  back->loc = o->loc;
  ValueId *dy = ARENA_ARRAY(back->m->arena, ValueId, o->nout);
  if (!gradients_of_results(back, o, dy)) return;
  bool part = attr_get(&o->attrs, ATTR_stack_length) !=
              NULL; /* a layer range, made by recompute after grad */
  if (rules[o->code] && !part) {
    rules[o->code](back, o, dy);
    return;
  }
  Report *r =
      diag_at(back->m->ctx->diag, "E0901", span_of(back->m, o->loc), "no gradient rule for `%s`%s",
              op_name(o->code), part ? " over a layer range" : "");
  diag_help(r, "put `stop_gradient` around it if its gradient is not needed");
}

void back_run(Back *back) {
  for (uint32_t i = back->f->ops.n; i-- > 0;) back_op(back, &back->f->ops.at[i]);
}

static void clone_extended(Back *back, Rebuild *rebuild, OpId id) {
  const Op *o = &back->f->ops.at[id];
  if (!back->extended[id].body) {
    rebuild_op(rebuild, o);
    return;
  }
  ValueId *in = ARENA_ARRAY(back->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = rebuild->map[o->in[i]];
  const Op *n =
      rebuild_loop(back->m, rebuild->to, back->extended[id].body, loop_shape(o), in, o->loc);
  for (uint32_t i = 0; i < o->nout; i++) rebuild->map[o->out + i] = n->out + i;
}

/* Where extended loops ended up is found again by following their first result. */
Fn *extended_forward(Back *back, Rebuild *rebuild) {
  *rebuild = rebuild_begin(back->m, back->f);
  for (OpId i = 0; i < back->f->ops.n; i++) clone_extended(back, rebuild, i);
  rebuild_results(rebuild);
  return rebuild->to;
}

static ValueId extra_value(const Back *back, const Rebuild *rebuild, const Read *d) {
  const Op *o = &back->f->ops.at[d->loop];
  ValueId first = rebuild->map[o->out];
  return first + o->nout + d->extra;
}

ValueId *map_reads(Back *back, const Rebuild *rebuild) {
  ValueId *map = value_map(back->m, back->b);
  for (uint32_t i = 0; i < back->reads.n; i++) {
    const Read *d = &back->reads.at[i];
    map[d->arg] = d->value != NO_VALUE ? rebuild->map[d->value] : extra_value(back, rebuild, d);
  }
  return map;
}

/* The gradient of a parameter that several loads read is the sum over them. */
static ValueId parameter_gradient(Back *back, const Global *global) {
  ValueId sum = NO_VALUE;
  EACH_OP (back->f, o) {
    if (o->code != OP_load || o->global != global) continue;
    ValueId d = back_total(back, o->out);
    if (d != NO_VALUE) sum = sum == NO_VALUE ? d : grad_binary(back, OP_add, sum, d);
  }
  return sum;
}

/* A parameter that no entry but init reads was warned of where it is declared. */
static bool is_read(Module *m, const Global *global) {
  const Fn *init = entry_of(m, "init");
  for (uint32_t n = 0; n < m->fns.n; n++)
    for (uint32_t i = 0; m->fns.at[n] != init && i < m->fns.at[n]->ops.n; i++) {
      const Op *o = &m->fns.at[n]->ops.at[i];
      if (o->code == OP_load && o->global == global) return true;
    }
  return false;
}

static void warn_unused(Module *m, const Global *global) {
  if (!is_read(m, global)) return;
  Report *r = diag_at(m->ctx->diag, "W0501", span_of(m, global->loc),
                      "parameter `%s` gets no gradient", global->name);
  diag_label(r, "the loss does not depend on it");
  diag_help(r, "mark it `@frozen` if that is intended");
}

static Global *gradient_output(Module *m, const Global *global) {
  Str name = name_made(m, MADE_GRADIENT "%s", global->name);
  Global *out = module_global(m, name);
  return out ? out : module_add_global(m, GLOBAL_OUTPUT, name, global->type, global->loc);
}

static void store_gradients(Module *m, Fn *to, const ValueId *map, const ValueId *of) {
  uint32_t n = m->globals.n;
  for (uint32_t i = 0; i < n; i++) {
    Global *global = m->globals.at[i];
    if (global->kind != GLOBAL_PARAM || !global_learns(global)) continue;
    if (of[i] == NO_VALUE) warn_unused(m, global);
    else ir_store(m, to, gradient_output(m, global), map[of[i]], global->loc);
  }
}

static void differentiate_step(Module *m, Fn *step, const Op *loss) {
  Back *back = back_new(m, step, varied_values(m, step, NULL));
  back->loc = loss->loc;
  if (back->varied[loss->in[0]])
    back_seed(back, loss->in[0],
              loss_scale_seed(m, back->b, value_type(step, loss->in[0])->elem, loss->loc));
  back_run(back);
  ValueId *of = ARENA_ARRAY(m->arena, ValueId, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) of[i] = parameter_gradient(back, m->globals.at[i]);
  if (diag_errors(m->ctx->diag)) return;
  Rebuild rebuild;
  Fn *to = extended_forward(back, &rebuild);
  ValueId *map = map_reads(back, &rebuild);
  for (uint32_t i = 0; i < back->b->ops.n; i++)
    fn_clone_op(m, to, back->b, &back->b->ops.at[i], map);
  store_gradients(m, to, map, of);
  module_replace(m, step, to);
  module_collect(m);
}

/* Only in IR by hand, or whose `after` line is lost. */
static bool has_gradients(Module *m, const Fn *step) {
  EACH_OP (step, o) {
    if (o->code != OP_store || !made_rest(o->global->name, MADE_GRADIENT)) continue;
    Span at = o->span.file ? o->span : span_of(m, o->loc);
    Report *r =
        diag_at(m->ctx->diag, "E1105", at, "[global-c9] @%s is stored twice", o->global->name);
    diag_help(r, "the step has gradients already: this module must say `after grad`");
    return true;
  }
  return false;
}

/* Only of IR by hand. At the last op that has a source line; none is left if nothing is stored. */
static void refuse_no_loss(Module *m, const Fn *step) {
  Span at = m->globals.n ? m->globals.at[0]->span : step->span;
  EACH_OP (step, o)
    if (o->span.file || o->loc.file) at = o->span.file ? o->span : loc_span(m, o->loc);
  Report *r = diag_at(m->ctx->diag, "E1105", at, "entry @step stores no @loss");
  diag_help(r, "gradients are those of @loss: `store @loss, ..`");
}

void pass_grad(Module *m) {
  Fn *step = entry_of(m, "step");
  if (!step) return;
  const Op *loss = fn_store_of(step, global_named(m, "loss"));
  if (!loss) {
    refuse_no_loss(m, step);
    return;
  }
  if (has_gradients(m, step)) return;
  differentiate_step(m, step, loss);
}

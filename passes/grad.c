/* grad: reverse mode for the entry `step`, which stores @loss.

   Walks the ops from the last to the first; each op's rule (grad.def) turns gradients of results
   into gradients of operands. Contributions to one value are added in one flat chain, in the order
   in which they were found. Only values that depend on a parameter which is not frozen get a
   gradient. The backward ops are built in a scratch function first, because loops of the forward
   part must deliver more once it is known what backward reads (grad_loop.c); then forward and
   backward are put together. The gradient of parameter NAME is stored to the output grad.NAME:
   `optimizer` takes it from there. Shapes, decay and the update are not decided here. */
#include "passes/grad.h"
#include "passes/loss_scale.h"

static GradRule *const rules[OP_COUNT] = {
#define GRAD(op, rule) [OP_##op] = rule,
#include "passes/grad.def"
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
  LoopShape s = loop_shape(loop);
  bool *args = ARENA_ARRAY(m->arena, bool, body->args.n + 1);
  for (uint32_t i = 0; i < loop->nin; i++) args[i + 1] = varied[loop->in[i]];
  for (;;) {
    bool *values = varied_values(m, body, args), again = false;
    for (uint32_t i = 0; i < s.carry; i++)
      if (values[body->results.at[i]] && !args[i + 1]) args[i + 1] = again = true;
    if (!again) return values;
  }
}

static void vary_loop(Module *m, const Fn *f, const Op *o, bool *varied) {
  const bool *body = varied_body(m, f, o, varied);
  LoopShape s = loop_shape(o);
  for (uint32_t i = 0; i < o->nout; i++) {
    varied[o->out + i] = body[o->callee->results.at[i]];
    if (i < s.carry) varied[o->out + i] |= body[o->callee->args.at[i + 1]];
  }
}

static void vary_op(Module *m, const Fn *f, const Op *o, bool *varied) {
  if (o->code == OP_load) {
    varied[o->out] = o->global->kind == GLOBAL_PARAM && !o->global->frozen;
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
  Back *k = ARENA_NEW(m->arena, Back);
  k->m = m, k->f = f, k->varied = varied;
  k->b = fn_new(m, FN_BODY, f->name);
  k->parts = ARENA_ARRAY(m->arena, ValueList, f->values.n + 1);
  k->total = value_map(m, f), k->readable = value_map(m, f);
  k->extended = ARENA_ARRAY(m->arena, Extended, f->ops.n + 1);
  return k;
}

/* Constants and positions are made again rather than kept. */
static bool made_again(const Op *def) {
  return def && (def->code == OP_const || def->code == OP_iota);
}

ValueId back_read(Back *k, ValueId v) {
  must(v < k->f->values.n, "grad reads %%%u of %s", v, k->f->name);
  if (k->readable[v] != NO_VALUE) return k->readable[v];
  const Op *def = value_def(k->f, v);
  if (made_again(def)) {
    fn_clone_op(k->m, k->b, k->f, def, k->readable);
  } else {
    k->readable[v] = fn_arg(k->m, k->b, *value_type(k->f, v));
    vec_push(k->m->arena, k->reads, (Read){v, NO_OP, 0, k->readable[v]});
  }
  return k->readable[v];
}

ValueId back_read_extra(Back *k, OpId loop, uint32_t extra, Type t) {
  ValueId arg = fn_arg(k->m, k->b, t);
  vec_push(k->m->arena, k->reads, (Read){NO_VALUE, loop, extra, arg});
  return arg;
}

void back_seed(Back *k, ValueId v, ValueId g) {
  if (!type_same_dims(value_type(k->b, g), value_type(k->f, v)))
    bug("gradient of %%%u in %s has other dims", v, k->f->name);
  must(k->total[v] == NO_VALUE, "the gradient of %%%u of %s has been added up already", v,
       k->f->name);
  must(value_type(k->b, g)->elem == value_type(k->f, v)->elem,
       "the gradient of %%%u of %s has another type", v, k->f->name);
  vec_push(k->m->arena, k->parts[v], g);
}

/* Starts the chain with a part that has the value's own order of dims, if one does: the sum takes
 * it over. */
static uint32_t first_part(const Back *k, ValueId v) {
  const ValueList *l = &k->parts[v];
  for (uint32_t i = 0; i < l->n; i++)
    if (type_equal(value_type(k->b, l->at[i]), value_type(k->f, v))) return i;
  return 0;
}

ValueId back_total(Back *k, ValueId v) {
  if (k->total[v] != NO_VALUE || !k->parts[v].n) return k->total[v];
  uint32_t first = first_part(k, v);
  ValueId sum = k->parts[v].at[first];
  for (uint32_t i = 0; i < k->parts[v].n; i++)
    if (i != first) sum = grad_binary(k, OP_add, sum, k->parts[v].at[i]);
  return k->total[v] = sum;
}

static bool gradients_of_results(Back *k, const Op *o, ValueId *dy) {
  bool any = false;
  for (uint32_t i = 0; i < o->nout; i++)
    dy[i] = back_total(k, o->out + i), any |= dy[i] != NO_VALUE;
  return any;
}

static void back_op(Back *k, const Op *o) {
  if (o->code == OP_load || !o->nout) return;
  k->loc = o->loc;
  ValueId *dy = ARENA_ARRAY(k->m->arena, ValueId, o->nout);
  if (!gradients_of_results(k, o, dy)) return;
  bool part = attr_get(&o->attrs, ATTR_of) != NULL; /* of a stack: made by recompute, behind grad */
  if (rules[o->code] && !part) {
    rules[o->code](k, o, dy);
    return;
  }
  Report *r =
      diag_at(k->m->ctx->diag, "E0901", span_of(k->m, o->loc), "no gradient rule for `%s`%s",
              op_name(o->code), part ? " over a part of a stack" : "");
  diag_help(r, "`stop_gradient` around it, if its gradient is not wanted");
}

void back_run(Back *k) {
  for (uint32_t i = k->f->ops.n; i-- > 0;) back_op(k, &k->f->ops.at[i]);
}

static void clone_extended(Back *k, Rebuild *r, OpId id) {
  const Op *o = &k->f->ops.at[id];
  if (!k->extended[id].body) {
    rebuild_op(r, o);
    return;
  }
  ValueId *in = ARENA_ARRAY(k->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = r->map[o->in[i]];
  const Op *n = rebuild_loop(k->m, r->to, k->extended[id].body, loop_shape(o), in, o->loc);
  for (uint32_t i = 0; i < o->nout; i++) r->map[o->out + i] = n->out + i;
}

/* Where extended loops ended up is found again by following their first result. */
Fn *extended_forward(Back *k, Rebuild *r) {
  *r = rebuild_begin(k->m, k->f);
  for (OpId i = 0; i < k->f->ops.n; i++) clone_extended(k, r, i);
  rebuild_results(r);
  return r->to;
}

static ValueId extra_value(const Back *k, const Rebuild *r, const Read *d) {
  const Op *o = &k->f->ops.at[d->loop];
  ValueId first = r->map[o->out];
  return first + o->nout + d->extra;
}

ValueId *map_reads(Back *k, const Rebuild *r) {
  ValueId *map = value_map(k->m, k->b);
  for (uint32_t i = 0; i < k->reads.n; i++) {
    const Read *d = &k->reads.at[i];
    map[d->arg] = d->value != NO_VALUE ? r->map[d->value] : extra_value(k, r, d);
  }
  return map;
}

static const Op *loss_store(Module *m, const Fn *step) {
  Global *loss = global_named(m, "loss");
  for (uint32_t i = 0; i < step->ops.n; i++)
    if (step->ops.at[i].code == OP_store && step->ops.at[i].global == loss) return &step->ops.at[i];
  return NULL;
}

/* The gradient of a parameter that several loads read is the sum over them. */
static ValueId parameter_gradient(Back *k, const Global *g) {
  ValueId sum = NO_VALUE;
  for (uint32_t i = 0; i < k->f->ops.n; i++) {
    const Op *o = &k->f->ops.at[i];
    if (o->code != OP_load || o->global != g) continue;
    ValueId d = back_total(k, o->out);
    if (d != NO_VALUE) sum = sum == NO_VALUE ? d : grad_binary(k, OP_add, sum, d);
  }
  return sum;
}

/* A parameter that no entry but init reads was warned of where it is declared. */
static bool is_read(Module *m, const Global *g) {
  const Fn *init = entry_of(m, "init");
  for (uint32_t n = 0; n < m->fns.n; n++)
    for (uint32_t i = 0; m->fns.at[n] != init && i < m->fns.at[n]->ops.n; i++) {
      const Op *o = &m->fns.at[n]->ops.at[i];
      if (o->code == OP_load && o->global == g) return true;
    }
  return false;
}

static void warn_unused(Module *m, const Global *g) {
  if (!is_read(m, g)) return;
  Report *r = diag_at(m->ctx->diag, "W0501", span_of(m, g->loc), "parameter `%s` gets no gradient",
                      g->name);
  diag_label(r, "the loss does not depend on it");
  diag_help(r, "mark it `@frozen` if that is intended");
}

static Global *gradient_output(Module *m, const Global *g) {
  Str name = intern_printf(m->ctx->names, "grad.%s", g->name);
  Global *out = module_global(m, name);
  return out ? out : module_add_global(m, GLOBAL_OUTPUT, name, g->type, g->loc);
}

static void store_gradients(Module *m, Fn *to, const ValueId *map, const ValueId *of) {
  uint32_t n = m->globals.n;
  for (uint32_t i = 0; i < n; i++) {
    Global *g = m->globals.at[i];
    if (g->kind != GLOBAL_PARAM || g->frozen) continue;
    if (of[i] == NO_VALUE) warn_unused(m, g);
    else ir_store(m, to, gradient_output(m, g), map[of[i]], g->loc);
  }
}

static void differentiate_step(Module *m, Fn *step, const Op *loss) {
  Back *k = back_new(m, step, varied_values(m, step, NULL));
  k->loc = loss->loc;
  if (k->varied[loss->in[0]])
    back_seed(k, loss->in[0],
              loss_scale_seed(m, k->b, value_type(step, loss->in[0])->elem, loss->loc));
  back_run(k);
  ValueId *of = ARENA_ARRAY(m->arena, ValueId, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) of[i] = parameter_gradient(k, m->globals.at[i]);
  if (diag_errors(m->ctx->diag)) return;
  Rebuild r;
  Fn *to = extended_forward(k, &r);
  ValueId *map = map_reads(k, &r);
  for (uint32_t i = 0; i < k->b->ops.n; i++) fn_clone_op(m, to, k->b, &k->b->ops.at[i], map);
  store_gradients(m, to, map, of);
  module_replace(m, step, to);
  module_collect(m);
}

/* Only in IR by hand, or whose `after` line is lost. */
static bool has_gradients(Module *m, const Fn *step) {
  for (uint32_t i = 0; i < step->ops.n; i++) {
    const Op *o = &step->ops.at[i];
    if (o->code != OP_store || strncmp(o->global->name, "grad.", 5)) continue;
    Span at = o->span.file ? o->span : span_of(m, o->loc);
    Report *r =
        diag_at(m->ctx->diag, "E1105", at, "[global-c9] @%s is stored twice", o->global->name);
    diag_help(r, "the step holds gradients already: its module goes on with `after grad`");
    return true;
  }
  return false;
}

void pass_grad(Module *m) {
  Fn *step = entry_of(m, "step");
  if (!step) return;
  const Op *loss = loss_store(m, step);
  if (!loss) bug("entry step stores no @loss");
  if (has_gradients(m, step)) return;
  differentiate_step(m, step, loss);
}

/* Writing ops: a number that meets a tensor becomes a constant, values of outer functions become
   arguments of the loop bodies that use them, stacked parameters are passed as one slice per
   round. */
#include "lower_emit.h"
#include "ir/made.h"
#include "ir/support/num.h"
#include "build.h"
#include "ir/mask/lookup.h"
#include <string.h>

Loc build_loc(const Build *build, Span s) {
  Loc l = {0};
  if (!s.file || !build->files[s.file]) return l;
  diag_line_column(build->m->ctx->diag, s, &l.line, &l.column);
  l.file = build->files[s.file], l.length = s.length;
  return l;
}

static Loc here(Eval *e) { return build_loc(e->build, e->here); }

static Elem elem_of(const Val *v) {
  if (v->kind == VAL_INDEX || v->kind == VAL_INT) return ELEM_i32;
  return v->kind == VAL_BOOL ? ELEM_bool : ELEM_f32;
}

Type lower_type(Eval *e, Elem elem, const Dims *dims) {
  Type t = type_scalar(elem);
  for (int i = 0; i < dims->n; i++) {
    int64_t size = eval_size(e, dims->at[i]);
    if (size <= 0) bug("dimension %s has no size while lowering", dims->at[i]);
    if (t.rank == MAX_RANK) bug("rank above %d while lowering", MAX_RANK);
    t.axis[t.rank++] = (Axis){dims->at[i], size};
  }
  return t;
}

/* ---- values of outer functions ---- */

static ValueId add_capture(Eval *e, Frame *frame, ValueId outer) {
  Capture c = {outer, fn_arg(e->build->m, frame->fn, *value_type(frame->parent->fn, outer))};
  vec_push(e->arena, frame->captures, c);
  return c.inner;
}

/* A value of function `from` in function `to`, which is `from` or a loop body inside it. */
static ValueId bring(Eval *e, Frame *to, Frame *from, ValueId id) {
  if (to == from) return id;
  if (!to->parent) bug("a value is used outside of its function");
  ValueId outer = bring(e, to->parent, from, id);
  for (uint32_t i = 0; i < to->captures.n; i++)
    if (to->captures.at[i].outer == outer) return to->captures.at[i].inner;
  return add_capture(e, to, outer);
}

static ValueId add_stacked(Eval *e, Frame *frame, const void *key, ValueId outer) {
  Str dim = frame->stack->dim;
  Type t = type_without(value_type(frame->parent->fn, outer), &dim, 1);
  Stacked s = {key, outer, fn_arg(e->build->m, frame->fn, t)};
  vec_push(e->arena, frame->stacked, s);
  return s.inner;
}

static ValueId find_stacked(const Frame *frame, const void *key) {
  for (uint32_t i = 0; i < frame->stacked.n; i++)
    if (frame->stacked.at[i].key == key) return frame->stacked.at[i].inner;
  return NO_VALUE;
}

/* ---- globals ---- */

static ValueId load_global(Eval *e, Global *global, Loc loc) {
  Frame *root = e->build->root;
  for (uint32_t i = 0; i < root->loads.n; i++)
    if (root->loads.at[i].global == global) return root->loads.at[i].id;
  ValueId id = ir_load(e->build->m, root->fn, global, loc);
  vec_push(e->arena, root->loads, (WeightLoad){global, id});
  return id;
}

static ValueId load_scalar(Eval *e, const char *name, Elem elem) {
  Module *m = e->build->m;
  Str key = intern(m->ctx->names, name);
  Global *global = module_global(m, key);
  if (!global) global = module_add_global(m, GLOBAL_SCALAR, key, type_scalar(elem), (Loc){0});
  return bring(e, e->build->frame, e->build->root, load_global(e, global, (Loc){0}));
}

static ValueId param_in(Eval *e, Frame *frame, const Param *param) {
  if (!frame->parent) {
    Global *global = module_global(e->build->m, param->path);
    if (!global) bug("parameter %s has no global", param->path);
    return load_global(e, global, here(e));
  }
  if ((uint32_t)param->lead.n < frame->stack->depth)
    return bring(e, frame, frame->parent, param_in(e, frame->parent, param));
  ValueId id = find_stacked(frame, param->path);
  return id != NO_VALUE ? id
                        : add_stacked(e, frame, param->path, param_in(e, frame->parent, param));
}

static Global *input_global(Eval *e, const Val *v) {
  Module *m = e->build->m;
  Str name = v->input->name;
  if (e->mode == MODE_LOGITS) name = intern_printf(m->ctx->names, "logits.%s", name);
  Global *global = module_global(m, name);
  if (global) return global;
  global = module_add_global(m, GLOBAL_INPUT, name, lower_type(e, elem_of(v), &v->dims),
                             build_loc(e->build, v->input->span));
  global->of = v->of;
  return global;
}

/* One number per round: a constant with the stack's dim, of which each round sees its own. */
static ValueId rounds_in(Eval *e, Frame *frame, const Val *v) {
  if (!frame->parent) bug("a value per round is used outside of its stack");
  if (frame->stack != v->rounds)
    return bring(e, frame, frame->parent, rounds_in(e, frame->parent, v));
  ValueId id = find_stacked(frame, v->items);
  return id != NO_VALUE ? id
                        : add_stacked(e, frame, v->items,
                                      emit_rounds(e->build->m, frame->parent->fn, v, here(e)));
}

ValueId emit_rounds(Module *m, Fn *fn, const Val *v, Loc loc) {
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, v->nitems + 1);
  Elem elem = v->kind == VAL_BOOL ? ELEM_bool : ELEM_f32;
  for (int i = 0; i < v->nitems; i++) in[i] = ir_const(m, fn, elem, v->items[i].number, loc);
  Axis axis = {v->rounds->dim, v->nitems};
  Type t = type_of(elem, 1, &axis);
  Op *op = fn_op(m, fn, OP_stack, (uint32_t)v->nitems, in, 1, &t, loc);
  op_add_group(m, op, group_dims(1, &axis.dim));
  return op->out;
}

/* ---- operands ---- */

static ValueId constant(Eval *e, const Val *v, Elem elem) {
  Module *m = e->build->m;
  Fn *f = e->build->frame->fn;
  ValueId id = ir_const(m, f, elem, v->number, here(e));
  Type t = lower_type(e, elem, &v->dims);
  return ir_expand(m, f, id, t.rank, t.axis, here(e));
}

static ValueId use(Eval *e, const Val *v, Elem elem) {
  Frame *frame = e->build->frame;
  if (v->id != NO_VALUE) return bring(e, frame, v->frame, v->id);
  if (v->param) {
    ValueId id = param_in(e, frame, v->param);
    return v->param->f32 ? ir_unary(e->build->m, frame->fn, OP_wide, id, here(e)) : id;
  }
  if (v->input) return bring(e, frame, e->build->root, load_global(e, input_global(e, v), here(e)));
  if (v->rounds) return rounds_in(e, frame, v);
  if (v->known) return constant(e, v, elem);
  bug("a value without elements while lowering");
}

ValueId emit_use(Eval *e, const Val *v) { return use(e, v, elem_of(v)); }

static void settle(Eval *e, Val *v, ValueId id) {
  v->id = id, v->frame = e->build->frame;
  v->param = NULL, v->input = NULL, v->rounds = NULL, v->known = false;
}

/* ---- ops ---- */

/* The element type of operands whose own type is only a number's. */
static Elem data_elem(OpCode code, int nin, const Val *const *in) {
  for (int i = code == OP_where; i < nin; i++)
    if (in[i]->kind != VAL_NUMBER) return elem_of(in[i]);
  return ELEM_f32;
}

static Group group_of(const AxisGroup *g) {
  return g->arrow ? group_map(g->from.n, g->from.at, g->to.n, g->to.at)
                  : group_dims(g->from.n, g->from.at);
}

Op *lower_op(Eval *e, Val *outs, int nout, OpCode code, int nin, const Val *const *in, int ngroups,
             const AxisGroup *groups) {
  ValueId ids[ARGS_MAX];
  Type types[MAX_RESULTS];
  if (!e->build) return NULL;
  Elem data = data_elem(code, nin, in);
  for (int i = 0; i < nin; i++)
    ids[i] = use(e, in[i], in[i]->kind == VAL_NUMBER ? data : elem_of(in[i]));
  for (int i = 0; i < nout; i++) types[i] = lower_type(e, elem_of(&outs[i]), &outs[i].dims);
  Op *op = fn_op(e->build->m, e->build->frame->fn, code, (uint32_t)nin, ids, (uint32_t)nout, types,
                 here(e));
  for (int i = 0; i < ngroups; i++) op_add_group(e->build->m, op, group_of(&groups[i]));
  for (int i = 0; i < nout; i++) settle(e, &outs[i], op->out + (ValueId)i);
  return op;
}

Op *lower_dims(Eval *e, Val *out, OpCode code, const Val *a, const Dims *dims) {
  AxisGroup g = {.from = *dims};
  return lower_op(e, out, 1, code, 1, &a, 1, &g);
}

void lower_rename(Eval *e, Val *out, const Val *a, Str from, Str to) {
  AxisGroup g = {.from = {.n = 1, .at = {from}}, .to = {.n = 1, .at = {to}}, .arrow = true};
  if (!a->known) lower_op(e, out, 1, OP_rename, 1, &a, 1, &g);
}

void lower_iota(Eval *e, Val *out, Str dim) {
  AxisGroup g = {.from = {.n = 1, .at = {dim}}};
  lower_op(e, out, 1, OP_iota, 0, NULL, 1, &g);
}

void lower_lookup(Eval *e, Val *out, const Val *const r_and_c[2], int64_t rows, int64_t columns,
                  const bool *set) {
  Op *op = lower_op(e, out, 1, OP_lookup, 2, r_and_c, 0, NULL);
  if (op) lookup_set(e->build->m, op, rows, columns, set);
}

void lower_float(Eval *e, Op *op, AttrKey k, double v) {
  if (op) attr_set_float(e->build->m, &op->attrs, k, v);
}

void lower_int(Eval *e, Op *op, AttrKey k, int64_t v) {
  if (op) attr_set_int(e->build->m, &op->attrs, k, v);
}

Val lower_widened(Eval *e, const Val *a, const Dims *big) {
  Dims missing = dims_without(big, &a->dims);
  Val out = val_tensor(a->kind == VAL_NUMBER ? VAL_FLOAT : a->kind, a->dims);
  if (!missing.n) return *a;
  for (int i = 0; i < missing.n; i++) dims_add(&out.dims, missing.at[i]);
  out.of = a->of, out.known = a->known, out.number = a->number;
  if (!a->known) lower_dims(e, &out, OP_expand, a, &missing);
  return out;
}

/* ---- random numbers ---- */

/* FNV-1a, 32 bits */
uint32_t random_key(const char *path) {
  uint32_t h = 2166136261u;
  for (; *path; path++) h = (h ^ (unsigned char)*path) * 16777619u;
  return h;
}

/* Logical index of the first element: the round's number times the elements of one round. */
static ValueId random_base(Eval *e, int64_t elements) {
  Module *m = e->build->m;
  Fn *fn = e->build->frame->fn;
  ValueId at = NO_VALUE;
  Frame *chain[MAX_RANK + 1];
  int n = 0;
  for (Frame *frame = e->build->frame; frame->parent && n <= MAX_RANK; frame = frame->parent)
    chain[n++] = frame;
  while (n-- > 0) {
    ValueId round =
        ir_cast(m, fn, bring(e, e->build->frame, chain[n], chain[n]->counter), ELEM_i64, here(e));
    ValueId trip = ir_const(m, fn, ELEM_i64, (double)chain[n]->trip, here(e));
    at = at == NO_VALUE ? round
                        : ir_binary(m, fn, OP_add, ir_binary(m, fn, OP_mul, at, trip, here(e)),
                                    round, here(e));
  }
  if (at == NO_VALUE) return ir_const(m, fn, ELEM_i64, 0, here(e));
  return ir_binary(m, fn, OP_mul, at, ir_const(m, fn, ELEM_i64, (double)elements, here(e)),
                   here(e));
}

void lower_rand(Eval *e, Val *out) {
  if (!e->build) return;
  Build *build = e->build;
  Type t = lower_type(e, ELEM_f32, &out->dims);
  ValueId in[] = {load_scalar(e, "seed", ELEM_i64), load_scalar(e, "step", ELEM_i32),
                  random_base(e, type_count(&t))};
  Str path = arena_printf(e->arena, "%srand.%u", e->self ? e->self->path : "", build->rands++);
  settle(e, out, ir_rand(build->m, build->frame->fn, in, &t, random_key(path), here(e)));
}

/* ---- loss terms ---- */

/* With micro-batches: the mean over them, where the term is none over samples. */
void lower_term(Eval *e, const Val *v) {
  if (!e->build) return;
  Val term = val_tensor(VAL_FLOAT, (Dims){0});
  if (v->known) term = *v;
  else lower_op(e, &term, 1, OP_share, 1, &v, 0, NULL);
  lower_aux(e, &term);
}

void lower_aux(Eval *e, const Val *v) {
  if (!e->build) return;
  Frame *frame = e->build->frame;
  Val sum = val_tensor(VAL_FLOAT, (Dims){0});
  const Val *in[] = {&frame->aux, v};
  if (!frame->has_aux) {
    settle(e, &sum, emit_use(e, v));
    frame->aux = sum, frame->has_aux = true;
    return;
  }
  lower_op(e, &sum, 1, OP_add, 2, in, 0, NULL);
  frame->aux = sum;
}

/* ---- loops ---- */

/* As parameters name it: h.*.sub */
static Str stack_path(Eval *e, const Stack *stack) {
  Str path = stack->body[0]->path;
  size_t n = strlen(path);
  const char *star =
      n >= 3 ? strstr(path + (n >= 5 && path[n - 2] != '*' ? n - 5 : n - 3), ".*.") : NULL;
  return intern_n(e->ctx->names, path, star ? (size_t)(star - path) : n);
}

static Str body_name(Eval *e, const Stack *stack) {
  static const char *const words[] = {"check", "forward", "eval", "logits"};
  _Static_assert(COUNT_OF(words) == MODE_LOGITS + 1, "a word per Mode");
  Module *m = e->build->m;
  Str base = intern_printf(m->ctx->names, "%s.%s", stack_path(e, stack), words[e->mode]),
      name = base;
  for (int i = 1; module_fn(m, name); i++) name = intern_printf(m->ctx->names, "%s.%d", base, i);
  return name;
}

void lower_loop_begin(Eval *e, const Stack *stack, int n, Val *args) {
  Build *build = e->build;
  Frame *frame = ARENA_NEW(e->arena, Frame);
  frame->fn = fn_new(build->m, FN_BODY, body_name(e, stack)), frame->parent = build->frame,
  frame->stack = stack;
  frame->fn->loc = build_loc(build, stack->span);
  frame->trip = eval_size(e, stack->dim);
  frame->counter = fn_arg(build->m, frame->fn, type_scalar(ELEM_i32));
  frame->carried = emit_use(e, &args[0]);
  for (int i = 0; i < n; i++) {
    ValueId outer = i ? emit_use(e, &args[i]) : frame->carried;
    ValueId inner =
        i ? NO_VALUE : fn_arg(build->m, frame->fn, *value_type(build->frame->fn, outer));
    if (i) inner = add_capture(e, frame, outer);
    Val v = val_tensor(args[i].kind == VAL_NUMBER ? VAL_FLOAT : args[i].kind, args[i].dims);
    v.of = args[i].of, v.free = args[i].free, v.id = inner, v.frame = frame;
    args[i] = v;
  }
  frame->here = e->here;
  build->frame = frame;
}

static void order_args(Eval *e, Frame *frame) {
  Fn *fn = frame->fn;
  ValueId carried = fn->args.at[1];
  fn->args.n = 0;
  vec_push(e->arena, fn->args, frame->counter);
  vec_push(e->arena, fn->args, carried);
  for (uint32_t i = 0; i < frame->captures.n; i++)
    vec_push(e->arena, fn->args, frame->captures.at[i].inner);
  for (uint32_t i = 0; i < frame->stacked.n; i++)
    vec_push(e->arena, fn->args, frame->stacked.at[i].inner);
  for (uint32_t i = 0; i < fn->args.n; i++) fn->values.at[fn->args.at[i]].result = i;
}

/* Results after the carried value are stacked. */
static ValueId loop_op(Eval *e, const Frame *frame) {
  Module *m = e->build->m;
  uint32_t n = 1 + frame->captures.n + frame->stacked.n, nout = frame->fn->results.n, k = 0;
  ValueId *in = ARENA_ARRAY(e->arena, ValueId, n);
  in[k++] = frame->carried;
  for (uint32_t i = 0; i < frame->captures.n; i++) in[k++] = frame->captures.at[i].outer;
  for (uint32_t i = 0; i < frame->stacked.n; i++) in[k++] = frame->stacked.at[i].outer;
  Axis axis = {frame->stack->dim, frame->trip};
  Type *out = ARENA_ARRAY(e->arena, Type, nout);
  for (uint32_t i = 0; i < nout; i++) {
    Type t = *value_type(frame->fn, frame->fn->results.at[i]);
    out[i] = i ? type_of(t.elem, 1, &axis) : t;
    must(!i || t.rank < MAX_RANK, "a result of rank %d of a loop", t.rank);
    for (int a = 0; i && a < t.rank; a++) out[i].axis[out[i].rank++] = t.axis[a];
  }
  Op *op = fn_op(m, frame->parent->fn, OP_loop, n, in, nout, out, build_loc(e->build, frame->here));
  op->callee = frame->fn;
  op_add_group(m, op, group_dims(1, &axis.dim));
  attr_set_int(m, &op->attrs, ATTR_carry, 1);
  attr_set_int(m, &op->attrs, ATTR_invariant, frame->captures.n);
  attr_set_int(m, &op->attrs, ATTR_trip, frame->trip);
  attr_set_str(m, &op->attrs, ATTR_path, stack_path(e, frame->stack));
  return op->out;
}

Val lower_loop_end(Eval *e, const Val *carried, const RuleValues *rules) {
  Build *build = e->build;
  Frame *frame = build->frame;
  Val out = *carried, terms = val_tensor(VAL_FLOAT, (Dims){.n = 1, .at = {frame->stack->dim}});
  if (carried->kind == VAL_POISON) bug("a poisoned value while lowering");
  fn_result(build->m, frame->fn, emit_use(e, carried));
  if (frame->has_aux) fn_result(build->m, frame->fn, emit_use(e, &frame->aux));
  for (uint32_t i = 0; i < rules->n; i++)
    fn_result(build->m, frame->fn, emit_use(e, rules->at[i].val));
  order_args(e, frame);
  module_add(build->m, frame->fn);
  build->frame = frame->parent;
  ValueId id = loop_op(e, frame);
  settle(e, &out, id++);
  if (frame->has_aux) settle(e, &terms, id++);
  for (uint32_t i = 0; i < rules->n; i++)
    settle(e, rules->at[i].val, id++), rules->at[i].val->dims = rules->at[i].dims;
  if (!frame->has_aux) return out;
  Val sum = val_tensor(VAL_FLOAT, (Dims){0});
  lower_dims(e, &sum, OP_sum, &terms, &terms.dims);
  lower_aux(e, &sum);
  return out;
}

void lower_next(Eval *e, const Param *param, const Val *v) {
  Module *m = e->build->m;
  Loc loc = here(e);
  const Global *global = module_global(m, param->path);
  Str name = param->projected ? name_made(m, MADE_PROJECTED "%s", param->path)
                              : name_made(m, MADE_NEXT "%s", param->path);
  Global *out = module_add_global(m, GLOBAL_OUTPUT, name, global->type, loc);
  ir_store(m, e->build->frame->fn, out, emit_use(e, v), loc);
}

/* ranges: a stack of which a plan puts some layers on the host (`offload optimizer of h[0..3]`)
   becomes several consecutive stacks, before gradients and states exist. All later passes see
   stacks as if the model had declared them: each has loops, updates, groups and a tier of its own,
   and no pass has to know of rounds in another tier.

     parameters   h.*.w becomes h.0_3.*.w and h.4_11.*.w, with dims Layers'0_3 and Layers'4_11 that
                  give their range in Layers (layer_range.h)
     loops        over `h` become loops over the layer ranges, the carried value passing from one to
                  the next; in their bodies the counter begins at the first layer of the range
     rules        of states (frontend/model/sema_rule.c) read joined parameters, and store layers of
                  the value they stored
     init         stores rounds of the values it stored: random numbers, and values made of them
                  element by element, are made for these rounds alone, and are the same

   The executable joins the ranges again: checkpoints, weights files and everything that a user
   reads contain h.*.w (host_tables.c). A stack is cut between two layers if some setting covers
   one and not the other. The exception is a stack whose layers pipeline stages share: either all
   layers of a stage are on the host or none, so the stage's program has one stack
   (ir/plan/stage_offload.h).

   Must not: change a number; cut a stack that no line names; know the tier of a value. */
#include "ir/made.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_offload.h"
#include "ir/support/num.h"
#include "passes/base/rebuild.h"
#include <string.h>

typedef struct LayerRun {
  int64_t first, count;
  Axis axis;
} LayerRun;

typedef struct CutStack {
  Str path;   /* h */
  Axis whole; /* its layers */
  VEC(int64_t) begin;
  VEC(LayerRun) part;
} CutStack;

typedef struct Ranges {
  Module *m;
  VEC(CutStack) stack;
} Ranges;

typedef struct RangeFn { /* a function being rewritten */
  Ranges *ranges;
  Rebuild r;
  const LayerRun *part;
  ValueId *rounds; /* by old value: its layers of `part`; NO_VALUE: not made yet */
} RangeFn;

/* ---- which stacks ---- */

/* A parameter of the stack, h.*.., or its next value by a rule of its own. */
static bool is_of(const Global *global, Str path) {
  size_t n = strlen(path);
  const char *name = global->kind == GLOBAL_PARAM    ? global->name
                     : global->kind == GLOBAL_OUTPUT ? made_rule(global->name)
                                                     : NULL;
  return name && !strncmp(name, path, n) && !strncmp(name + n, ".*", 2);
}

static CutStack *stack_of(Ranges *ranges, Str path) {
  for (uint32_t i = 0; i < ranges->stack.n; i++)
    if (ranges->stack.at[i].path == path) return &ranges->stack.at[i];
  EACH_GLOBAL (ranges->m, global) {
    if (!is_of(global, path)) continue;
    CutStack stack = {.path = path, .whole = global->type.axis[0]};
    vec_push(ranges->m->arena, stack.begin, 0);
    vec_push(ranges->m->arena, ranges->stack, stack);
    return &ranges->stack.at[ranges->stack.n - 1];
  }
  return NULL;
}

/* Kept in order. */
static void cut_at(const Ranges *ranges, CutStack *stack, int64_t layer) {
  uint32_t i = 0;
  if (layer <= 0 || layer >= stack->whole.size) return;
  while (i < stack->begin.n && stack->begin.at[i] < layer) i++;
  if (i < stack->begin.n && stack->begin.at[i] == layer) return;
  vec_push(ranges->m->arena, stack->begin, layer);
  for (uint32_t k = stack->begin.n - 1; k > i; k--) stack->begin.at[k] = stack->begin.at[k - 1];
  stack->begin.at[i] = layer;
}

/* Has any line something of this layer and not of the one before, or the other way round? */
static bool differs(const Ranges *ranges, const CutStack *stack, int64_t layer) {
  const Module *m = ranges->m;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Str name = m->globals.at[i]->name;
    if (!is_of(m->globals.at[i], stack->path)) continue;
    for (OffloadWord k = 0; k < OFFLOAD_WORDS; k++)
      if (plan_offloads(m, k, layer_named(m, name, layer - 1, layer - 1)) !=
          plan_offloads(m, k, layer_named(m, name, layer, layer)))
        return true;
  }
  return false;
}

/* Joins adjacent ranges that have the same settings. */
static void join_alike(const Ranges *ranges, CutStack *stack) {
  uint32_t n = 1;
  for (uint32_t i = 1; i < stack->begin.n; i++)
    if (differs(ranges, stack, stack->begin.at[i])) stack->begin.at[n++] = stack->begin.at[i];
  stack->begin.n = n;
}

static void read_paths(Ranges *ranges) {
  const Module *m = ranges->m;
  LayerPath layers;
  for (uint32_t i = 0; i < m->offload.n; i++) {
    Str path = m->offload.at[i].path;
    if (!path || !layer_path(path, strlen(path), &layers)) continue;
    CutStack *stack = stack_of(ranges, intern_n(m->ctx->names, path, layers.stack));
    if (!stack) continue;
    cut_at(ranges, stack, layers.first);
    cut_at(ranges, stack, layers.last + 1);
  }
}

/* A dim for each part, whose name no other one has. */
static void name_parts(Ranges *ranges, CutStack *stack) {
  Module *m = ranges->m;
  for (uint32_t i = 0; i < stack->begin.n; i++) {
    int64_t first = stack->begin.at[i],
            end = i + 1 < stack->begin.n ? stack->begin.at[i + 1] : stack->whole.size;
    Str name = name_made(m, "%s'%lld_%lld", stack->whole.dim, (long long)first, (long long)end - 1);
    while (dim_find(m, name)) name = name_made(m, "%s'", name);
    LayerRun part = {first, end - first, {name, end - first}};
    vec_push(m->arena, stack->part, part);
    vec_push(m->arena, m->dims,
             ((Dim){.name = name,
                    .size = part.count,
                    .stored = part.count,
                    .part = stack->whole.dim,
                    .first = first}));
  }
}

/* All layers of a stage are on the host or none: nothing is cut (ir/plan/stage_offload.h). */
static bool is_on_stages(const Ranges *ranges, const CutStack *stack) {
  for (uint32_t i = 0; i < ranges->m->globals.n; i++)
    if (is_of(ranges->m->globals.at[i], stack->path))
      return layers_ranks(ranges->m, ranges->m->globals.at[i]) > 1;
  return false;
}

static bool find_stacks(Ranges *ranges) {
  bool any = false;
  read_paths(ranges);
  for (uint32_t i = 0; i < ranges->stack.n; i++) {
    join_alike(ranges, &ranges->stack.at[i]);
    bool cut = ranges->stack.at[i].begin.n > 1 && !is_on_stages(ranges, &ranges->stack.at[i]);
    if (cut) name_parts(ranges, &ranges->stack.at[i]);
    any |= cut;
  }
  return any;
}

/* The stack that the parameter is of, if it is cut. */
static const CutStack *cut_of(const Ranges *ranges, const Global *global) {
  for (uint32_t i = 0; i < ranges->stack.n; i++)
    if (ranges->stack.at[i].part.n && is_of(global, ranges->stack.at[i].path))
      return &ranges->stack.at[i];
  return NULL;
}

/* ---- parameters ---- */

static Str part_name(const Ranges *ranges, const Global *global, const LayerRun *part) {
  return layer_named(ranges->m, global->name, part->first, part->first + part->count - 1);
}

/* Replaces the whole global by its layer ranges; the whole one is removed once no function reads
   it. */
static void cut_globals(Ranges *ranges) {
  Module *m = ranges->m;
  VEC(Global *) all = {0};
  uint32_t n = m->globals.n;
  for (uint32_t i = 0; i < n; i++) {
    Global *global = m->globals.at[i];
    const CutStack *stack = cut_of(ranges, global);
    if (!stack) vec_push(m->arena, all, global);
    for (uint32_t k = 0; stack && k < stack->part.n; k++) {
      Global *part = ARENA_NEW(m->arena, Global);
      *part = *global;
      part->name = part_name(ranges, global, &stack->part.at[k]);
      part->type.axis[0] = stack->part.at[k].axis;
      vec_push(m->arena, all, part);
    }
  }
  m->globals.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(m->arena, m->globals, all.at[i]);
}

/* ---- rounds of values ---- */

static Type rounds_type(const Type *whole, const CutStack *stack, const LayerRun *part) {
  Type t = *whole;
  t.axis[type_find(&t, stack->whole.dim)] = part->axis;
  return t;
}

static ValueId rounds_of(RangeFn *fn, ValueId v, const CutStack *stack, const LayerRun *part);

static ValueId take_rounds(RangeFn *fn, ValueId v, const CutStack *stack, const LayerRun *part) {
  Module *m = fn->r.m;
  ValueId whole = fn->r.map[v];
  Type t = rounds_type(value_type(fn->r.to, whole), stack, part);
  Group map = group_map(1, &stack->whole.dim, 1, &part->axis.dim);
  ValueId out = emit_typed(m, fn->r.to, OP_slice, 1, &whole, &map, t, (Loc){0});
  attr_set_int(m, &fn->r.to->ops.at[fn->r.to->ops.n - 1].attrs, ATTR_at, part->first);
  return out;
}

/* base + first layer * stride */
static ValueId random_base(RangeFn *fn, const Op *o, const CutStack *stack, const LayerRun *part) {
  Module *m = fn->r.m;
  ValueId base = fn->r.map[o->in[2]];
  Elem e = value_type(fn->r.to, base)->elem;
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  for (int i = 0; i < o->group[0].nfrom; i++)
    if (o->group[0].from[i] == stack->whole.dim) {
      ValueId by = ir_const(m, fn->r.to, e, (double)(part->first * strides->list[i]), o->loc);
      base = ir_binary(m, fn->r.to, OP_add, base, by, o->loc);
    }
  return base;
}

/* The same op over the part's layers. */
static ValueId again(RangeFn *fn, const Op *o, const CutStack *stack, const LayerRun *part) {
  Module *m = fn->r.m;
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1),
          *map = ARENA_ARRAY(m->arena, ValueId, fn->r.from->values.n + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = rounds_of(fn, o->in[i], stack, part);
  if (o->code == OP_rand) in[2] = random_base(fn, o, stack, part);
  memcpy(map, fn->r.map, sizeof *map * fn->r.from->values.n);
  Op *made = fn_clone_op(m, fn->r.to, fn->r.from, o, map);
  for (uint32_t i = 0; i < o->nin; i++) made->in[i] = in[i];
  for (int g = 0; g < made->ngroups; g++)
    for (int i = 0; i < made->group[g].nfrom; i++)
      if (made->group[g].from[i] == stack->whole.dim) made->group[g].from[i] = part->axis.dim;
  Type *t = &fn->r.to->values.at[made->out].type;
  *t = rounds_type(t, stack, part);
  return made->out;
}

/* The layers of the part, of a value of the old function. */
static ValueId rounds_of(RangeFn *fn, ValueId v, const CutStack *stack, const LayerRun *part) {
  const Op *o = value_def(fn->r.from, v);
  if (type_find(value_type(fn->r.from, v), stack->whole.dim) < 0) return fn->r.map[v];
  if (o && o->code == OP_load && cut_of(fn->ranges, o->global) == stack) {
    Str name = part_name(fn->ranges, o->global, part);
    return ir_load(fn->r.m, fn->r.to, module_global(fn->r.m, name), o->loc);
  }
  if (fn->part != part) fn->part = part, fn->rounds = value_map(fn->r.m, fn->r.from);
  if (fn->rounds[v] != NO_VALUE) return fn->rounds[v];
  bool made = o && o->nout == 1 &&
              (o->code == OP_rand || o->code == OP_expand ||
               (op_flags(o->code) & POINT && op_family(o->code) == FAMILY_ELEM));
  return fn->rounds[v] = made ? again(fn, o, stack, part) : take_rounds(fn, v, stack, part);
}

/* ---- loops ---- */

/* The body, whose counter begins at the part's first layer. */
static Fn *body_of(RangeFn *fn, const Fn *body, const LayerRun *part) {
  Module *m = fn->r.m;
  Rebuild rebuild = rebuild_begin(m, body);
  ValueId counter = body->args.at[0];
  if (part->first && value_is_used(body, counter)) {
    ValueId first = ir_const(m, rebuild.to, ELEM_i32, (double)part->first, body->loc);
    rebuild.map[counter] = ir_binary(m, rebuild.to, OP_add, rebuild.map[counter], first, body->loc);
  }
  for (OpId i = 0; i < body->ops.n; i++) rebuild_op(&rebuild, &body->ops.at[i]);
  rebuild_results(&rebuild);
  return rebuild.to;
}

static const Op *part_loop(RangeFn *fn, const Op *o, const CutStack *stack, const LayerRun *part,
                           ValueId *carried) {
  Module *m = fn->r.m;
  LoopShape shape = loop_shape(o);
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  uint32_t whole = shape.carry + shape.invariant;
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = i < shape.carry ? carried[i]
            : i < whole     ? fn->r.map[o->in[i]]
                            : rounds_of(fn, o->in[i], stack, part);
  shape.trip = part->count, shape.axis = part->axis;
  shape.path = intern_printf(m->ctx->names, "%s.%lld_%lld", stack->path, (long long)part->first,
                             (long long)(part->first + part->count - 1));
  const Op *made = rebuild_loop(m, fn->r.to, body_of(fn, o->callee, part), shape, in, o->loc);
  for (uint32_t i = 0; i < shape.carry; i++) carried[i] = made->out + i;
  return made;
}

/* Joins the stacked results of the loops into one value. */
static ValueId joined(RangeFn *fn, const CutStack *stack, const ValueId *part, Type whole) {
  Module *m = fn->r.m;
  ValueId v = part[0];
  Axis have = stack->part.at[0].axis;
  for (uint32_t i = 1; i < stack->part.n; i++) {
    Axis next = stack->part.at[i].axis,
         both = {i + 1 < stack->part.n ? name_made(m, "%s'to_%u", stack->whole.dim, i)
                                       : stack->whole.dim,
                 have.size + next.size};
    ValueId in[2] = {v, part[i]};
    Str from[2] = {have.dim, next.dim};
    Group map = group_map(2, from, 1, &both.dim);
    Type t = whole;
    t.axis[type_find(&t, stack->whole.dim)] = both;
    v = emit_typed(m, fn->r.to, OP_concat, 2, in, &map, t, (Loc){0}), have = both;
  }
  return v;
}

static void cut_loop(RangeFn *fn, const Op *o, const CutStack *stack) {
  Arena *arena = fn->r.m->arena;
  LoopShape shape = loop_shape(o);
  ValueId *carried = ARENA_ARRAY(arena, ValueId, shape.carry + 1),
          *made = ARENA_ARRAY(arena, ValueId, stack->part.n);
  must(shape.trip == stack->whole.size && !shape.reverse, "ranges: a loop of %lld rounds over %s",
       (long long)shape.trip, stack->path);
  for (uint32_t i = 0; i < shape.carry; i++) carried[i] = fn->r.map[o->in[i]];
  for (uint32_t p = 0; p < stack->part.n; p++)
    made[p] = part_loop(fn, o, stack, &stack->part.at[p], carried)->out;
  for (uint32_t k = 0; k < o->nout; k++) {
    ValueId *stacked = ARENA_ARRAY(arena, ValueId, stack->part.n);
    for (uint32_t p = 0; p < stack->part.n; p++) stacked[p] = made[p] + k;
    fn->r.map[o->out + k] = k < shape.carry
                                ? carried[k]
                                : joined(fn, stack, stacked, *value_type(fn->r.from, o->out + k));
  }
}

/* ---- functions ---- */

static const CutStack *looped(const Ranges *ranges, const Op *o) {
  Str path = o->code == OP_loop ? attr_str(&o->attrs, ATTR_path, NULL) : NULL;
  for (uint32_t i = 0; path && i < ranges->stack.n; i++)
    if (ranges->stack.at[i].part.n && ranges->stack.at[i].path == path) return &ranges->stack.at[i];
  return NULL;
}

/* A whole parameter, for a rule that reads it outside of the loops. */
static void join_load(RangeFn *fn, const Op *o, const CutStack *stack) {
  bool whole = false;
  EACH_OP (fn->r.from, reader)
    for (uint32_t i = 0; i < reader->nin; i++)
      whole |= reader->in[i] == o->out && !looped(fn->ranges, reader);
  if (!whole) return;
  ValueId *part = ARENA_ARRAY(fn->r.m->arena, ValueId, stack->part.n);
  for (uint32_t i = 0; i < stack->part.n; i++)
    part[i] = rounds_of(fn, o->out, stack, &stack->part.at[i]);
  fn->r.map[o->out] = joined(fn, stack, part, *value_type(fn->r.from, o->out));
}

static void cut_op(RangeFn *fn, const Op *o) {
  const CutStack *stack = looped(fn->ranges, o);
  if (stack) {
    cut_loop(fn, o, stack);
    return;
  }
  stack = o->global ? cut_of(fn->ranges, o->global) : NULL;
  if (!stack) {
    rebuild_op(&fn->r, o);
    return;
  }
  if (o->code == OP_load) join_load(fn, o, stack);
  for (uint32_t i = 0; o->code == OP_store && i < stack->part.n; i++) {
    const LayerRun *part = &stack->part.at[i];
    Global *global = module_global(fn->r.m, part_name(fn->ranges, o->global, part));
    ir_store(fn->r.m, fn->r.to, global, rounds_of(fn, o->in[0], stack, part), o->loc);
  }
}

static bool is_cut(const Ranges *ranges, const Fn *f) {
  EACH_OP (f, o)
    if (looped(ranges, o) || (o->global && cut_of(ranges, o->global))) return true;
  return false;
}

void pass_ranges(Module *m) {
  Ranges ranges = {.m = m};
  if (!find_stacks(&ranges)) return;
  VEC(Fn *) fns = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (is_cut(&ranges, m->fns.at[i])) vec_push(m->arena, fns, m->fns.at[i]);
  cut_globals(&ranges);
  for (uint32_t i = 0; i < fns.n; i++) {
    RangeFn fn = {.ranges = &ranges, .r = rebuild_begin(m, fns.at[i])};
    for (OpId k = 0; k < fns.at[i]->ops.n; k++) cut_op(&fn, &fns.at[i]->ops.at[k]);
    rebuild_results(&fn.r);
    module_replace(m, fns.at[i], fn.r.to);
  }
  module_collect(m);
}

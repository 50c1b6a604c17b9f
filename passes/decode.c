/* decode: an entry that continues a text by one position, beside `logits`, which computes a window.

   For models whose positions meet in causal attention only. The entry `decode` is `logits` walked
   backwards from what it stores, every value restricted to one position: dims that run over
   positions have size 1, positions are the scalar decode.of.position, tables give the row of it.
   What is computed from parameters alone can be had whole or restricted; what depends on the tokens
   can only be had at the position, and a model that needs more of it is left alone (setting
   sample.cache says why). Attention sees the keys and values of the positions before in caches,
   globals that the runtime fills: `logits` delivers them for a whole window, `decode` one row each
   time (decode_attention.c). Inside of loops a cache is one more stacked operand, a row one more
   stacked result. Must not: change what `logits` stores in the outputs of the model. */
#include "passes/decode.h"
#include <string.h>

/* ---- sets of dims ---- */

bool dims_hold(const DimSet *s, Str dim) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i] == dim) return true;
  return false;
}

void dims_put(DimSet *s, Str dim) {
  if (!dims_hold(s, dim) && s->n < 2 * MAX_RANK) s->at[s->n++] = dim;
}

void dims_drop(DimSet *s, Str dim) {
  int n = 0;
  for (int i = 0; i < s->n; i++)
    if (s->at[i] != dim) s->at[n++] = s->at[i];
  s->n = n;
}

/* In the order of the type, so that equal sets are equal lists. */
DimSet dims_of(const DimSet *s, const Type *t) {
  DimSet r = {0};
  for (int i = 0; i < t->rank; i++)
    if (dims_hold(s, t->axis[i].dim)) dims_put(&r, t->axis[i].dim);
  return r;
}

static bool dims_equal(const DimSet *a, const DimSet *b) {
  if (a->n != b->n) return false;
  for (int i = 0; i < a->n; i++)
    if (a->at[i] != b->at[i]) return false;
  return true;
}

Type dims_cut(Type t, const DimSet *s) {
  for (int i = 0; i < t.rank; i++)
    if (dims_hold(s, t.axis[i].dim)) t.axis[i].size = 1;
  return t;
}

/* ---- values ---- */

ValueId decode_fail(DecodeFrame *f, const Op *o, const char *why) {
  if (!f->d->why) f->d->why = why, f->d->where = o ? o->loc : (Loc){0};
  return NO_VALUE;
}

void decode_remember(DecodeFrame *f, ValueId old, DimSet n, ValueId new) {
  must(new < f->to->values.n, "decode: %%%u of %s is remembered as nothing", old, f->from->name);
  vec_push(f->d->m->arena, f->memo,
           (DecodeWanted){old, new, dims_of(&n, value_type(f->from, old))});
}

static ValueId remembered(const DecodeFrame *f, ValueId v, const DimSet *n) {
  for (uint32_t i = 0; i < f->memo.n; i++)
    if (f->memo.at[i].old == v && dims_equal(&f->memo.at[i].dims, n)) return f->memo.at[i].new;
  return NO_VALUE;
}

static ValueId add_invariant(DecodeFrame *f, ValueId outer) {
  for (uint32_t i = 0; i < f->outer.n; i++)
    if (f->outer.at[i] == outer) return f->inner.at[i];
  ValueId inner = fn_arg(f->d->m, f->to, *value_type(f->up->to, outer));
  vec_push(f->d->m->arena, f->outer, outer);
  vec_push(f->d->m->arena, f->inner, inner);
  return inner;
}

static ValueId add_stacked(DecodeFrame *f, ValueId outer) {
  for (uint32_t i = 0; i < f->stacked.n; i++)
    if (f->stacked.at[i] == outer) return f->sliced.at[i];
  Str round = f->shape.axis.dim;
  ValueId inner = fn_arg(f->d->m, f->to, type_without(value_type(f->up->to, outer), &round, 1));
  vec_push(f->d->m->arena, f->stacked, outer);
  vec_push(f->d->m->arena, f->sliced, inner);
  return inner;
}

/* An argument of a loop's body. The counter and what is carried are remembered from the start. */
static ValueId argument(DecodeFrame *f, ValueId v, DimSet n) {
  uint32_t i = f->from->values.at[v].result, fixed = 1 + f->shape.carry;
  if (i < fixed)
    return decode_fail(f, f->loop,
                       "a layer reads other positions than through causal `attention` with keys "
                       "and values of one shape");
  if (dims_hold(&n, f->shape.axis.dim)) return decode_fail(f, f->loop, "a loop over positions");
  ValueId outer = decode_get(f->up, f->loop->in[i - 1], n);
  if (outer == NO_VALUE) return outer;
  return i < fixed + f->shape.invariant ? add_invariant(f, outer) : add_stacked(f, outer);
}

ValueId decode_get(DecodeFrame *f, ValueId v, DimSet n) {
  n = dims_of(&n, value_type(f->from, v));
  ValueId have = f->d->why ? NO_VALUE : remembered(f, v, &n);
  if (have != NO_VALUE || f->d->why) return have;
  const Op *o = value_def(f->from, v);
  if (!o) {
    have = argument(f, v, n);
    if (have != NO_VALUE) decode_remember(f, v, n, have);
    return have;
  }
  return decode_op(f, o, n) ? remembered(f, v, &n) : NO_VALUE;
}

Global *decode_global(Module *m, GlobalKind kind, Str name, Type t, Loc loc) {
  Global *g = module_global(m, name);
  return g ? g : module_add_global(m, kind, name, t, loc);
}

ValueId decode_position(DecodeFrame *f) {
  Module *m = f->d->m;
  if (f->position != NO_VALUE) return f->position;
  if (f->up) return f->position = add_invariant(f, decode_position(f->up));
  Global *g = decode_global(m, GLOBAL_SCALAR, intern(m->ctx->names, "decode.of.position"),
                            type_scalar(ELEM_i32), (Loc){0});
  return f->position = ir_load(m, f->to, g, (Loc){0});
}

ValueId decode_position_along(DecodeFrame *f, Str dim, Loc loc) {
  return emit_spread(f->d->m, f->to, decode_position(f), type_of(ELEM_i32, 1, &(Axis){dim, 1}),
                     loc);
}

/* ---- caches ---- */

ValueId decode_cache(DecodeFrame *f, int number, Type t, Loc loc) {
  Module *m = f->d->m;
  if (f->up) {
    Type all = type_of(t.elem, 1, &f->shape.axis);
    for (int i = 0; i < t.rank && all.rank < MAX_RANK; i++) all.axis[all.rank++] = t.axis[i];
    if (all.rank != t.rank + 1) return decode_fail(f, f->loop, "a cache of too many dims");
    ValueId outer = decode_cache(f->up, number, all, loc);
    return outer == NO_VALUE ? outer : add_stacked(f, outer);
  }
  Str name = intern_printf(m->ctx->names, "decode.of.cache.%d", number);
  f->d->bytes += type_count(&t) * elem_bytes(t.elem);
  return ir_load(m, f->to, decode_global(m, GLOBAL_INPUT, name, t, loc), loc);
}

static void store_row(DecodeFrame *f, const CacheRow *r) {
  Module *m = f->d->m;
  Str name =
      intern_printf(m->ctx->names, "decode.of.%s.%d", f->d->fills ? "fill" : "row", r->cache);
  ir_store(m, f->to, decode_global(m, GLOBAL_OUTPUT, name, *value_type(f->to, r->value), (Loc){0}),
           r->value, (Loc){0});
}

/* ---- loops ---- */

static void order_arguments(DecodeFrame *f) {
  Fn *fn = f->to;
  Arena *a = f->d->m->arena;
  fn->args.n = 1 + f->shape.carry;
  for (uint32_t i = 0; i < f->inner.n; i++) vec_push(a, fn->args, f->inner.at[i]);
  for (uint32_t i = 0; i < f->sliced.n; i++) vec_push(a, fn->args, f->sliced.at[i]);
  for (uint32_t i = 0; i < fn->args.n; i++) fn->values.at[fn->args.at[i]].result = i;
}

static bool begin_body(DecodeFrame *b, ValueId *in, DimSet n) {
  Decode *d = b->d;
  const Fn *f = b->from;
  decode_remember(b, f->args.at[0], n, fn_arg(d->m, b->to, type_scalar(ELEM_i32)));
  for (uint32_t i = 0; i < b->shape.carry; i++) {
    in[i] = decode_get(b->up, b->loop->in[i], n);
    if (in[i] == NO_VALUE) return false;
    decode_remember(b, f->args.at[1 + i], n, fn_arg(d->m, b->to, *value_type(b->up->to, in[i])));
  }
  return true;
}

static bool walk_body(DecodeFrame *b, DimSet n) {
  for (uint32_t i = 0; i < b->from->results.n; i++) {
    ValueId v = decode_get(b, b->from->results.at[i], n);
    if (v == NO_VALUE) return false;
    fn_result(b->d->m, b->to, v);
  }
  for (uint32_t i = 0; i < b->rows.n; i++) fn_result(b->d->m, b->to, b->rows.at[i].value);
  order_arguments(b);
  return true;
}

static void end_loop(DecodeFrame *f, DecodeFrame *b, ValueId *in, DimSet n) {
  Arena *a = f->d->m->arena;
  uint32_t k = b->shape.carry, nout = b->loop->nout;
  for (uint32_t i = 0; i < b->outer.n; i++) in[k++] = b->outer.at[i];
  for (uint32_t i = 0; i < b->stacked.n; i++) in[k++] = b->stacked.at[i];
  LoopShape s = b->shape;
  s.invariant = b->outer.n, s.stacked = b->stacked.n;
  ValueId out = rebuild_loop(f->d->m, f->to, b->to, s, in, b->loop->loc)->out;
  for (uint32_t i = 0; i < nout; i++) decode_remember(f, b->loop->out + i, n, out + i);
  for (uint32_t i = 0; i < b->rows.n; i++)
    vec_push(a, f->rows, (CacheRow){out + nout + i, b->rows.at[i].cache});
}

bool decode_loop(DecodeFrame *f, const Op *o, DimSet n) {
  Decode *d = f->d;
  must(o->callee->args.n == o->nin + 1, "decode: loop body %s has %u arguments for %u operands",
       o->callee->name, o->callee->args.n, o->nin);
  DecodeFrame *b = ARENA_NEW(d->m->arena, DecodeFrame);
  *b = (DecodeFrame){.d = d,
                     .up = f,
                     .from = o->callee,
                     .loop = o,
                     .shape = loop_shape(o),
                     .carried = n,
                     .position = NO_VALUE};
  if (dims_hold(&n, b->shape.axis.dim)) return decode_fail(f, o, "a loop over positions"), false;
  if (b->shape.of) return decode_fail(f, o, "a loop over a part of a stack"), false;
  b->to = fn_new(d->m, FN_BODY,
                 d->fills ? o->callee->name
                          : intern_printf(d->m->ctx->names, "%s.decode", o->callee->name));
  b->to->loc = o->callee->loc;
  ValueId *in = ARENA_ARRAY(d->m->arena, ValueId, o->nin + 4096);
  if (!begin_body(b, in, n) || !walk_body(b, n)) return false;
  if (b->outer.n + b->stacked.n > 4000) return decode_fail(f, o, "too many operands"), false;
  end_loop(f, b, in, n);
  return true;
}

/* ---- entries ---- */

/* The dim of positions: the last of an input of indexes, as `sample` takes it. */
static Str position_dim(const Fn *logits) {
  for (uint32_t i = 0; i < logits->ops.n; i++) {
    const Op *o = &logits->ops.at[i];
    if (o->code == OP_load && o->global->kind == GLOBAL_INPUT && o->global->of &&
        o->global->type.rank >= 2)
      return o->global->type.axis[o->global->type.rank - 1].dim;
  }
  return NULL;
}

static DecodeFrame frame_of(Decode *d, const Fn *from, const char *name) {
  DecodeFrame f = {.d = d, .from = from, .position = NO_VALUE};
  f.to = fn_new(d->m, FN_ENTRY, intern(d->m->ctx->names, name));
  f.to->loc = from->loc;
  return f;
}

static void store_outputs(DecodeFrame *f, DimSet n) {
  Module *m = f->d->m;
  int stored = 0;
  for (uint32_t i = 0; i < f->from->ops.n && !f->d->why; i++) {
    const Op *o = &f->from->ops.at[i];
    if (o->code != OP_store) continue;
    DimSet own = dims_of(&n, &o->global->type);
    if (n.n && !own.n) continue;
    ValueId v = decode_get(f, o->in[0], own);
    if (v == NO_VALUE) return;
    Str name = intern_printf(m->ctx->names, "decode.of.%s", o->global->name);
    Global *g = f->d->fills ? o->global
                            : decode_global(m, GLOBAL_OUTPUT, name, dims_cut(o->global->type, &own),
                                            o->global->loc);
    ir_store(m, f->to, g, v, o->loc);
    stored++;
  }
  if (!stored) decode_fail(f, NULL, "no output has positions");
  for (uint32_t i = 0; i < f->rows.n && !f->d->why; i++) store_row(f, &f->rows.at[i]);
}

static void say(Module *m, const Decode *d) {
  if (!d->why)
    module_set(m, "sample.cache", "%d tensors, %lld bytes", d->caches, (long long)d->bytes);
  else if (!d->where.file || d->where.file > m->sources.n)
    module_set(m, "sample.cache", "none: %s", d->why);
  else
    module_set(m, "sample.cache", "none: %s (%s:%u)", d->why, m->sources.at[d->where.file - 1].name,
               d->where.line);
}

void pass_decode(Module *m) {
  Fn *logits = entry_of(m, "logits");
  Str dim = logits ? position_dim(logits) : NULL;
  Decode d = {.m = m};
  uint32_t globals = m->globals.n;
  if (!logits || m->mesh.n) return; /* over a mesh sampling computes all positions */
  DecodeFrame one = frame_of(&d, logits, "decode"), whole = frame_of(&d, logits, "logits");
  if (!dim) decode_fail(&one, NULL, "no input of tokens in a row");
  else store_outputs(&one, (DimSet){1, {dim}});
  if (!d.why && !d.caches) decode_fail(&one, NULL, "no attention");
  d.fills = true;
  if (!d.why) store_outputs(&whole, (DimSet){0});
  say(m, &d);
  if (d.why) {
    m->globals.n = globals; /* what was made on the way */
    return;
  }
  module_replace(m, logits, whole.to);
  module_add(m, one.to);
  module_collect(m);
}

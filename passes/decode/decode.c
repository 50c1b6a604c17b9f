/* decode: an entry that continues a text by one position, in addition to `logits`, which computes
   a window.

   It is made only for models whose positions interact through causal attention alone. The entry
   `decode` is `logits` walked backwards from its stores, with every value restricted to one
   position: dims that run over positions have size 1, positions are the scalar decode.of.position,
   and tables give the row of that position.

   A value computed from parameters alone is available whole or restricted. A value that depends on
   the tokens is available at the position only; a model that needs more of it is left unchanged
   (setting sample.cache says why). Attention reads the keys and values of earlier positions from
   caches, which are globals that the runtime fills: `logits` delivers them for a whole window,
   `decode` one row per call (decode_attention.c). Inside loops a cache is one more stacked
   operand, a row one more stacked result.

   Must not: change what `logits` stores in the outputs of the model. */
#include "decode.h"
#include "ir/made.h"
#include <string.h>

/* ---- sets of dims ---- */

bool dims_hold(const DimSet *dims, Str dim) {
  for (int i = 0; i < dims->n; i++)
    if (dims->at[i] == dim) return true;
  return false;
}

void dims_put(DimSet *dims, Str dim) {
  if (!dims_hold(dims, dim) && dims->n < 2 * MAX_RANK) dims->at[dims->n++] = dim;
}

void dims_drop(DimSet *dims, Str dim) {
  int n = 0;
  for (int i = 0; i < dims->n; i++)
    if (dims->at[i] != dim) dims->at[n++] = dims->at[i];
  dims->n = n;
}

/* In the order of the type, so that equal sets are equal lists. */
static DimSet dims_of(const DimSet *s, const Type *t) {
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

Type dims_cut(Type t, const DimSet *dims) {
  for (int i = 0; i < t.rank; i++)
    if (dims_hold(dims, t.axis[i].dim)) t.axis[i].size = 1;
  return t;
}

/* ---- values ---- */

ValueId decode_fail(DecodeFrame *frame, const Op *o, const char *why) {
  if (!frame->d->why) frame->d->why = why, frame->d->where = o ? o->loc : (Loc){0};
  return NO_VALUE;
}

void decode_remember(DecodeFrame *frame, ValueId old, DimSet dims, ValueId new) {
  must(new < frame->to->values.n, "decode: %%%u of %s is remembered as nothing", old,
       frame->from->name);
  vec_push(frame->d->m->arena, frame->memo,
           (DecodeWanted){old, new, dims_of(&dims, value_type(frame->from, old))});
}

static ValueId remembered(const DecodeFrame *frame, ValueId v, const DimSet *dims) {
  for (uint32_t i = 0; i < frame->memo.n; i++)
    if (frame->memo.at[i].old == v && dims_equal(&frame->memo.at[i].dims, dims))
      return frame->memo.at[i].new;
  return NO_VALUE;
}

static ValueId add_invariant(DecodeFrame *frame, ValueId outer) {
  for (uint32_t i = 0; i < frame->outer.n; i++)
    if (frame->outer.at[i] == outer) return frame->inner.at[i];
  ValueId inner = fn_arg(frame->d->m, frame->to, *value_type(frame->up->to, outer));
  vec_push(frame->d->m->arena, frame->outer, outer);
  vec_push(frame->d->m->arena, frame->inner, inner);
  return inner;
}

static ValueId add_stacked(DecodeFrame *frame, ValueId outer) {
  for (uint32_t i = 0; i < frame->stacked.n; i++)
    if (frame->stacked.at[i] == outer) return frame->sliced.at[i];
  Str round = frame->shape.axis.dim;
  ValueId inner =
      fn_arg(frame->d->m, frame->to, type_without(value_type(frame->up->to, outer), &round, 1));
  vec_push(frame->d->m->arena, frame->stacked, outer);
  vec_push(frame->d->m->arena, frame->sliced, inner);
  return inner;
}

/* An argument of a loop's body. The counter and carried arguments are mapped from the start. */
static ValueId argument(DecodeFrame *frame, ValueId v, DimSet dims) {
  uint32_t i = frame->from->values.at[v].result, fixed = 1 + frame->shape.carry;
  if (i < fixed)
    return decode_fail(frame, frame->loop,
                       "a layer reads other positions than through causal `attention` with keys "
                       "and values of one shape");
  if (dims_hold(&dims, frame->shape.axis.dim))
    return decode_fail(frame, frame->loop, "a loop over positions");
  ValueId outer = decode_get(frame->up, frame->loop->in[i - 1], dims);
  if (outer == NO_VALUE) return outer;
  return i < fixed + frame->shape.invariant ? add_invariant(frame, outer)
                                            : add_stacked(frame, outer);
}

ValueId decode_get(DecodeFrame *frame, ValueId v, DimSet dims) {
  dims = dims_of(&dims, value_type(frame->from, v));
  ValueId have = frame->d->why ? NO_VALUE : remembered(frame, v, &dims);
  if (have != NO_VALUE || frame->d->why) return have;
  const Op *o = value_def(frame->from, v);
  if (!o) {
    have = argument(frame, v, dims);
    if (have != NO_VALUE) decode_remember(frame, v, dims, have);
    return have;
  }
  return decode_op(frame, o, dims) ? remembered(frame, v, &dims) : NO_VALUE;
}

Global *decode_global(Module *m, GlobalKind kind, Str name, Type t, Loc loc) {
  Global *global = module_global(m, name);
  return global ? global : module_add_global(m, kind, name, t, loc);
}

ValueId decode_position(DecodeFrame *frame) {
  Module *m = frame->d->m;
  if (frame->position != NO_VALUE) return frame->position;
  if (frame->up) return frame->position = add_invariant(frame, decode_position(frame->up));
  Global *global = decode_global(m, GLOBAL_SCALAR, intern(m->ctx->names, "decode.of.position"),
                                 type_scalar(ELEM_i32), (Loc){0});
  return frame->position = ir_load(m, frame->to, global, (Loc){0});
}

ValueId decode_position_along(DecodeFrame *frame, Str dim, Loc loc) {
  return emit_spread(frame->d->m, frame->to, decode_position(frame),
                     type_of(ELEM_i32, 1, &(Axis){dim, 1}), loc);
}

/* ---- caches ---- */

ValueId decode_cache(DecodeFrame *frame, int number, Type t, Loc loc) {
  Module *m = frame->d->m;
  if (frame->up) {
    Type all = type_of(t.elem, 1, &frame->shape.axis);
    for (int i = 0; i < t.rank && all.rank < MAX_RANK; i++) all.axis[all.rank++] = t.axis[i];
    if (all.rank != t.rank + 1) return decode_fail(frame, frame->loop, "a cache of too many dims");
    ValueId outer = decode_cache(frame->up, number, all, loc);
    return outer == NO_VALUE ? outer : add_stacked(frame, outer);
  }
  Str name = intern_printf(m->ctx->names, MADE_CACHE "%d", number);
  frame->d->bytes += type_dense_bytes(&t);
  return ir_load(m, frame->to, decode_global(m, GLOBAL_INPUT, name, t, loc), loc);
}

static void store_row(DecodeFrame *frame, const CacheRow *row) {
  Module *m = frame->d->m;
  Str name =
      intern_printf(m->ctx->names, "decode.of.%s.%d", frame->d->fills ? "fill" : "row", row->cache);
  ir_store(m, frame->to,
           decode_global(m, GLOBAL_OUTPUT, name, *value_type(frame->to, row->value), (Loc){0}),
           row->value, (Loc){0});
}

/* ---- loops ---- */

static void order_arguments(DecodeFrame *frame) {
  Fn *fn = frame->to;
  Arena *arena = frame->d->m->arena;
  fn->args.n = 1 + frame->shape.carry;
  for (uint32_t i = 0; i < frame->inner.n; i++) vec_push(arena, fn->args, frame->inner.at[i]);
  for (uint32_t i = 0; i < frame->sliced.n; i++) vec_push(arena, fn->args, frame->sliced.at[i]);
  for (uint32_t i = 0; i < fn->args.n; i++) fn->values.at[fn->args.at[i]].result = i;
}

static bool begin_body(DecodeFrame *frame, ValueId *in, DimSet dims) {
  Decode *decode = frame->d;
  const Fn *f = frame->from;
  decode_remember(frame, f->args.at[0], dims, fn_arg(decode->m, frame->to, type_scalar(ELEM_i32)));
  for (uint32_t i = 0; i < frame->shape.carry; i++) {
    in[i] = decode_get(frame->up, frame->loop->in[i], dims);
    if (in[i] == NO_VALUE) return false;
    decode_remember(frame, f->args.at[1 + i], dims,
                    fn_arg(decode->m, frame->to, *value_type(frame->up->to, in[i])));
  }
  return true;
}

static bool walk_body(DecodeFrame *frame, DimSet dims) {
  for (uint32_t i = 0; i < frame->from->results.n; i++) {
    ValueId v = decode_get(frame, frame->from->results.at[i], dims);
    if (v == NO_VALUE) return false;
    fn_result(frame->d->m, frame->to, v);
  }
  for (uint32_t i = 0; i < frame->rows.n; i++)
    fn_result(frame->d->m, frame->to, frame->rows.at[i].value);
  order_arguments(frame);
  return true;
}

static void end_loop(DecodeFrame *f, DecodeFrame *b, ValueId *in, DimSet dims) {
  Arena *arena = f->d->m->arena;
  uint32_t k = b->shape.carry, nout = b->loop->nout;
  for (uint32_t i = 0; i < b->outer.n; i++) in[k++] = b->outer.at[i];
  for (uint32_t i = 0; i < b->stacked.n; i++) in[k++] = b->stacked.at[i];
  LoopShape shape = b->shape;
  shape.invariant = b->outer.n, shape.stacked = b->stacked.n;
  ValueId out = rebuild_loop(f->d->m, f->to, b->to, shape, in, b->loop->loc)->out;
  for (uint32_t i = 0; i < nout; i++) decode_remember(f, b->loop->out + i, dims, out + i);
  for (uint32_t i = 0; i < b->rows.n; i++)
    vec_push(arena, f->rows, (CacheRow){out + nout + i, b->rows.at[i].cache});
}

bool decode_loop(DecodeFrame *f, const Op *o, DimSet dims) {
  Decode *decode = f->d;
  must(o->callee->args.n == o->nin + 1, "decode: loop body %s has %u arguments for %u operands",
       o->callee->name, o->callee->args.n, o->nin);
  DecodeFrame *b = ARENA_NEW(decode->m->arena, DecodeFrame);
  *b = (DecodeFrame){.d = decode,
                     .up = f,
                     .from = o->callee,
                     .loop = o,
                     .shape = loop_shape(o),
                     .carried = dims,
                     .position = NO_VALUE};
  if (dims_hold(&dims, b->shape.axis.dim)) return decode_fail(f, o, "a loop over positions"), false;
  if (b->shape.of) return decode_fail(f, o, "a loop over a layer range"), false;
  b->to =
      fn_new(decode->m, FN_BODY,
             decode->fills ? o->callee->name
                           : intern_printf(decode->m->ctx->names, "%s.decode", o->callee->name));
  b->to->loc = o->callee->loc;
  ValueId *in = ARENA_ARRAY(decode->m->arena, ValueId, o->nin + 4096);
  if (!begin_body(b, in, dims) || !walk_body(b, dims)) return false;
  if (b->outer.n + b->stacked.n > 4000) return decode_fail(f, o, "too many operands"), false;
  end_loop(f, b, in, dims);
  return true;
}

/* ---- entries ---- */

/* The dim of positions: the last of an input of indexes, as `sample` takes it. */
static Str position_dim(const Fn *logits) {
  EACH_OP (logits, o) {
    if (o->code == OP_load && o->global->kind == GLOBAL_INPUT && o->global->of &&
        o->global->type.rank >= 2)
      return o->global->type.axis[o->global->type.rank - 1].dim;
  }
  return NULL;
}

static DecodeFrame frame_of(Decode *decode, const Fn *from, const char *name) {
  DecodeFrame frame = {.d = decode, .from = from, .position = NO_VALUE};
  frame.to = fn_new(decode->m, FN_ENTRY, intern(decode->m->ctx->names, name));
  frame.to->loc = from->loc;
  return frame;
}

static void store_outputs(DecodeFrame *frame, DimSet dims) {
  Module *m = frame->d->m;
  int stored = 0;
  for (uint32_t i = 0; i < frame->from->ops.n && !frame->d->why; i++) {
    const Op *o = &frame->from->ops.at[i];
    if (o->code != OP_store) continue;
    DimSet own = dims_of(&dims, &o->global->type);
    if (dims.n && !own.n) continue;
    ValueId v = decode_get(frame, o->in[0], own);
    if (v == NO_VALUE) return;
    Str name = intern_printf(m->ctx->names, "decode.of.%s", o->global->name);
    Global *global = frame->d->fills
                         ? o->global
                         : decode_global(m, GLOBAL_OUTPUT, name, dims_cut(o->global->type, &own),
                                         o->global->loc);
    ir_store(m, frame->to, global, v, o->loc);
    stored++;
  }
  if (!stored) decode_fail(frame, NULL, "no output has positions");
  for (uint32_t i = 0; i < frame->rows.n && !frame->d->why; i++)
    store_row(frame, &frame->rows.at[i]);
}

static void say(Module *m, const Decode *decode) {
  if (!decode->why)
    module_set(m, "sample.cache", "%d tensors, %lld bytes", decode->caches,
               (long long)decode->bytes);
  else if (!decode->where.file || decode->where.file > m->sources.n)
    module_set(m, "sample.cache", "none: %s", decode->why);
  else
    module_set(m, "sample.cache", "none: %s (%s:%u)", decode->why,
               m->sources.at[decode->where.file - 1].name, decode->where.line);
}

void pass_decode(Module *m) {
  Fn *logits = entry_of(m, "logits");
  Str dim = logits ? position_dim(logits) : NULL;
  Decode decode = {.m = m, .dim = dim};
  uint32_t globals = m->globals.n;
  if (!logits || m->mesh.n) return; /* over a mesh sampling computes all positions */
  DecodeFrame one = frame_of(&decode, logits, "decode"),
              whole = frame_of(&decode, logits, "logits");
  if (!dim) decode_fail(&one, NULL, "no input of tokens in a row");
  else store_outputs(&one, (DimSet){1, {dim}});
  if (!decode.why && !decode.caches) decode_fail(&one, NULL, "no attention");
  decode.fills = true;
  if (!decode.why) store_outputs(&whole, (DimSet){0});
  say(m, &decode);
  if (decode.why) {
    m->globals.n = globals; /* globals that were made before the failure */
    return;
  }
  module_replace(m, logits, whole.to);
  module_add(m, one.to);
  module_collect(m);
}

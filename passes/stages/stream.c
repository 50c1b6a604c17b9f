/* pipeline: micro-batches stream through the stages, instead of one at a time.

   Pass `collect` leaves the carried value of a loop over layers that `stream` on the stage where
   the loop ends, as a value that is whole in type but valid on this stage alone: the last one
   forward, the first one backward. Values computed from it, such as the head and the loss, or the
   gradient of the embedding, are valid on that stage alone; all stages compute them, and the
   results of the other stages are unused:

     loop of stages           each stage receives, except the one where the loop begins, which has
                              the value itself
     sums over micro-batches  kept from that stage, so partial over stages, and completed once,
                              after the loop
     first plus last          (tied embeddings) each kept from its stage: partial as well

   So within a micro-batch nothing needs all stages at once, and stages may be at different
   micro-batches. Then the loop of `step` is cut after the forward layers (loop_split.c): all
   micro-batches forward, then all backward ("GPipe: Efficient Training of Giant Neural Networks
   using Pipeline Parallelism"). Under `zero_bubble` the backward loop is cut once more
   (stream_weights.c); under `interleaved` both loops are cut at each chunk of layers
   (stream_chunks.c). Entries with a forward pass alone stay one loop, or none: the values they
   store are completed.

   A plan that would make stages wait for each other inside a micro-batch is refused at the place
   line (E0901). Without a loop over micro-batches the pass does nothing. Must not: change a number
   beyond the order of sums over stages. */
#include "passes/place/place.h"
#include "classes.h"
#include "stream.h"
#include "ir/collective.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/message.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include <string.h>

/* Which stages have the right value; SPREAD: it is the sum of the stages' values. */
typedef enum ValidAt { EVERYWHERE, AT_FIRST, AT_LAST, SPREAD } ValidAt;

typedef struct StageStream {
  Module *m;
  const Op *loop; /* over micro-batches; NULL: the body is the entry itself */
  const Fn *body;
  Str name; /* axis of the stages */
  int axis;
  OpId forward; /* the op of the body whose rounds stream, forward */
  ValidAt *at;  /* by value of the body */
  bool *kept;   /* by result of the loop: a sum over stages because of this pass */
  Chunks chunks;
  bool failed;
} StageStream;

static void refuse_for(StageStream *stream, const char *why, const char *help) {
  if (!stream->failed) stages_refuse(stream->m, stream->name, why, help);
  stream->failed = true;
}

static void refuse(StageStream *stream, const char *why) {
  refuse_for(stream, why,
             "`pipeline sequential`: one micro-batch at a time, all other stages wait");
}

/* ---- stages that have a value ---- */

static Str state_of(const StageStream *stream, ValueId v) {
  return stream->body->values.at[v].placed.on[stream->axis];
}

/* A slice of a value that all stages have, such as an option per layer, is not sent. */
static bool goes_over(const StageStream *stream, const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE && op_collective(o->code)->way != SEND_NONE &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), stream->name);
}

static bool any_goes_over(const StageStream *stream, const Fn *f) {
  EACH_OP (f, o)
    if (goes_over(stream, o) || (o->code == OP_loop && any_goes_over(stream, o->callee)))
      return true;
  return false;
}

static bool is_at_one(ValidAt w) { return w == AT_FIRST || w == AT_LAST; }

/* A second loop over layers cannot stream after the first. */
static void refuse_twice(StageStream *stream, const Op *first, const Op *second) {
  const char *of = attr_str(&first->attrs, ATTR_path, "");
  bool again = *of && !strcmp(of, attr_str(&second->attrs, ATTR_path, ""));
  if (again)
    refuse_for(stream, "layers that keep nothing run forward twice (`recompute .. keep = none`)",
               "`keep = input` in its place; or `pipeline sequential`, slower");
  else refuse(stream, "stages pass on values of several stacks of layers");
}

/* With `memory = 2` a stage may still send forward while its neighbour sends backward. Among
   processors there is room for one message per direction (comm_local.c): with two in a pass, both
   would wait for ever. */
static void see_room(StageStream *stream, const Op *o, uint32_t carry) {
  uint32_t handed = 0;
  for (uint32_t i = 0; i < carry; i++) handed += !state_of(stream, o->in[i]);
  if (handed < 2 || plan_ahead(stream->m) < 2 || message_needs_line(stream->m)) return;
  if (!stream->loop || loop_shape(stream->loop).trip <= stream->m->mesh.at[stream->axis].size)
    return;
  refuse_for(stream,
             "with `memory = 2`, and an operand of all layers whose gradient is sent as well",
             "`pipeline zero_bubble` without `memory = 2`, or GPUs");
}

/* Layers: the carried value comes from the previous stage, except on the first stage of the
   line. */
static void see_stages(StageStream *stream, OpId id) {
  const Op *o = &stream->body->ops.at[id];
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < o->nin; i++) {
    ValidAt w = stream->at[o->in[i]];
    bool begins = i < carry && w == (back ? AT_LAST : AT_FIRST);
    if (is_at_one(w) && !begins) refuse(stream, "layers read a value that only one stage has");
  }
  for (uint32_t i = 0; i < carry; i++)
    stream->at[o->out + i] = state_of(stream, o->out + i) ? SPREAD : back ? AT_FIRST : AT_LAST;
  see_room(stream, o, carry);
  if (back) return;
  if (stream->forward != NO_OP) refuse_twice(stream, &stream->body->ops.at[stream->forward], o);
  stream->forward = id;
}

/* If the operands are sums of the stages' values, is the result one as well? */
static bool is_sum(const Op *o) {
  return o->code == OP_add || o->code == OP_sub || o->code == OP_keep_first ||
         (o->nin == 1 && (op_flags(o->code) & LINEAR));
}

/* Over another axis it is an op like any other: its operand may be valid on one stage alone. */
static bool keeps_a_stage(const StageStream *stream, const Op *o) {
  return o->code == OP_keep_first && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), stream->name);
}

static ValidAt joined(StageStream *stream, const Op *o) {
  ValidAt all = EVERYWHERE;
  for (uint32_t i = 0; i < o->nin; i++) {
    ValidAt w = stream->at[o->in[i]];
    if (w == EVERYWHERE || w == all) continue;
    all = all == EVERYWHERE ? w : SPREAD;
  }
  return all;
}

static ValidAt where_of(StageStream *stream, const Op *o, ValueId result) {
  ValidAt w = joined(stream, o);
  Str state = state_of(stream, result);
  if (keeps_a_stage(stream, o)) return SPREAD;
  if (is_at_one(w) && !state) return w;
  if (w == EVERYWHERE && !is_partial(state)) return w;
  if (state == PARTIAL_SUM && !is_at_one(w)) return SPREAD;
  if (!state && w == SPREAD && is_sum(o)) return SPREAD;
  refuse(stream,
         "values of the first and of the last stage are combined by an op other than a sum");
  return w;
}

static void see(StageStream *stream, OpId id) {
  const Op *o = &stream->body->ops.at[id];
  if (loop_has_stages(o)) {
    see_stages(stream, id);
    return;
  }
  bool over = goes_over(stream, o) || (o->code == OP_loop && any_goes_over(stream, o->callee));
  if (over && o->code == OP_all_reduce && plan_chunks(stream->m) > 1)
    refuse_for(stream,
               "all layers read one operand, whose gradient chunks would have to pass on as well",
               "`pipeline one_f_one_b` passes it on");
  else if (over)
    refuse(stream, "an op outside the layers needs all stages at the same micro-batch");
  for (uint32_t i = 0; i < o->nout; i++) stream->at[o->out + i] = where_of(stream, o, o->out + i);
}

/* If v is the carried `sum` plus a term, it is a sum of the stages' values, and so is each value
   between the two. */
static bool adds_up(StageStream *stream, ValueId sum, ValueId v) {
  RunningSum r;
  if (!running_sum(stream->body, sum, v, &r)) return false;
  stream->at[r.wide] = stream->at[r.total] = stream->at[v] = SPREAD;
  return true;
}

static void find_kept(StageStream *stream) {
  uint32_t carry = (uint32_t)attr_int(&stream->loop->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < stream->body->results.n; i++) {
    ValueId v = stream->body->results.at[i];
    if (stream->at[v] == EVERYWHERE || state_of(stream, v)) continue;
    stream->kept[i] = true;
    if (!value_is_float(stream->body, v))
      refuse(stream, "a result that only one stage has is not a float");
    if (i >= carry) continue;
    ValueId arg = stream->body->args.at[i + 1];
    if (!adds_up(stream, arg, v) && value_is_used(stream->body, arg))
      refuse(stream, "a value carried from micro-batch to micro-batch is not a sum");
    stream->at[arg] = SPREAD;
  }
}

/* ---- the body ---- */

/* v after an op over the axis of the stages. */
static ValueId over_stages(StageStream *stream, Fn *f, OpCode c, ValueId v, Str placed) {
  ValueId r = emit_typed(stream->m, f, c, 1, &v, NULL, *value_type(f, v), (Loc){0});
  attr_set_str(stream->m, &vec_last(f->ops).attrs, ATTR_axis, stream->name);
  f->values.at[r].placed = f->values.at[v].placed;
  f->values.at[r].placed.on[stream->axis] = placed;
  return r;
}

static ValueId keep(StageStream *stream, Fn *f, ValueId v, bool last) {
  ValueId r = over_stages(stream, f, OP_keep_first, v, PARTIAL_SUM);
  if (last) attr_set_int(stream->m, &vec_last(f->ops).attrs, ATTR_reverse, 1);
  return r;
}

/* v of the body as a sum over stages. For a scatter, its operand is kept: it is smaller. */
static ValueId spread(StageStream *stream, Rebuild *rebuild, ValueId v) {
  const Op *o = value_def(stream->body, v);
  ValidAt w = stream->at[v];
  if (w == SPREAD) return rebuild->map[v];
  if (!o || o->code != OP_scatter || stream->at[o->in[0]] != w ||
      stream->at[o->in[1]] != EVERYWHERE)
    return keep(stream, rebuild->to, rebuild->map[v], w != AT_FIRST);
  ValueId rows = keep(stream, rebuild->to, rebuild->map[o->in[0]], w != AT_FIRST),
          whole = rebuild->map[v];
  Op *made = rebuild_op(rebuild, o);
  made->in[0] = rows;
  rebuild->to->values.at[made->out].placed.on[stream->axis] = PARTIAL_SUM;
  rebuild->map[v] = whole;
  return made->out;
}

static ValueId completed(StageStream *s, Fn *f, ValueId v);

/* In an entry all ranks store one value. */
static void copy_store(StageStream *stream, Rebuild *rebuild, const Op *o) {
  ValueId v = o->in[0], all = rebuild->map[v];
  if (stream->at[v] != EVERYWHERE && !state_of(stream, v)) {
    if (!value_is_float(stream->body, v))
      refuse(stream, "a result that only one stage has is not a float");
    all = completed(stream, rebuild->to, spread(stream, rebuild, v));
  }
  ir_store(stream->m, rebuild->to, o->global, all, o->loc);
}

static void copy_op(StageStream *stream, Rebuild *rebuild, const Op *o) {
  if (o->code == OP_store) {
    copy_store(stream, rebuild, o);
    return;
  }
  bool sum = o->nout == 1 && stream->at[o->out] == SPREAD && !keeps_a_stage(stream, o) &&
             !loop_has_stages(o) && !state_of(stream, o->out);
  ValueId *in = ARENA_ARRAY(stream->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = sum ? spread(stream, rebuild, o->in[i]) : rebuild->map[o->in[i]];
  Op *made = rebuild_op(rebuild, o);
  for (uint32_t i = 0; i < o->nin; i++) made->in[i] = in[i];
  if (sum) rebuild->to->values.at[made->out].placed.on[stream->axis] = PARTIAL_SUM;
  if (keeps_a_stage(stream, o) && stream->at[o->in[0]] == AT_LAST)
    attr_set_int(stream->m, &made->attrs, ATTR_reverse, 1);
}

static Fn *apart(StageStream *stream) {
  Rebuild rebuild = rebuild_begin(stream->m, stream->body);
  uint32_t carry = stream->loop ? (uint32_t)attr_int(&stream->loop->attrs, ATTR_carry, 0) : 0;
  for (uint32_t i = 0; i < stream->body->args.n; i++) {
    Placement *placement = &rebuild.to->values.at[rebuild.to->args.at[i]].placed;
    *placement = stream->body->values.at[stream->body->args.at[i]].placed;
    if (i && i <= carry && stream->kept[i - 1]) placement->on[stream->axis] = PARTIAL_SUM;
  }
  for (OpId i = 0; i < stream->body->ops.n; i++)
    copy_op(stream, &rebuild, &stream->body->ops.at[i]);
  for (uint32_t i = 0; i < stream->body->results.n; i++) {
    ValueId v = stream->body->results.at[i];
    fn_result(stream->m, rebuild.to,
              stream->kept[i] ? spread(stream, &rebuild, v) : rebuild.map[v]);
  }
  return rebuild.to;
}

/* ---- the entry ---- */

static ValueId completed(StageStream *stream, Fn *f, ValueId v) {
  ValueId r = over_stages(stream, f, OP_all_reduce, v, NULL);
  if (value_type(f, v)->rank) attr_set_int(stream->m, &vec_last(f->ops).attrs, ATTR_gradient, 1);
  return r;
}

static OpId op_in(const Fn *f, const Op *like) {
  OpId at = NO_OP;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop && f->ops.at[i].callee == like->callee) at = i;
  must(at != NO_OP, "pipeline: @%s has lost its layers", f->name);
  return at;
}

/* Forward, then backward. */
static void copy_split(StageStream *stream, Rebuild *rebuild, Op loop, ValueId *in, ValueId *out) {
  bool *first = ARENA_ARRAY(stream->m->arena, bool, loop.callee->ops.n + 1);
  first[op_in(loop.callee, &stream->body->ops.at[stream->forward])] = true;
  LoopSplit split = {
      .m = stream->m, .f = rebuild->to, .loop = &loop, .in = in, .first = first, .out = out};
  split.names[0] = "forward", split.names[1] = "backward";
  loop_split(&split);
}

static void copy_whole(StageStream *stream, Rebuild *rebuild, Op loop, const ValueId *in,
                       ValueId *out) {
  Op *o = rebuild_loop(stream->m, rebuild->to, loop.callee, loop_shape(&loop), in, loop.loc);
  for (uint32_t i = 0; i < o->nout; i++) {
    out[i] = o->out + i;
    rebuild->to->values.at[out[i]].placed = rebuild->from->values.at[stream->loop->out + i].placed;
    if (stream->kept[i]) rebuild->to->values.at[out[i]].placed.on[stream->axis] = PARTIAL_SUM;
  }
}

static Op with_carry(Module *m, Op loop, uint32_t carry, uint32_t more) {
  AttrList attrs = {0};
  for (uint32_t i = 0; i < loop.attrs.n; i++) vec_push(m->arena, attrs, loop.attrs.at[i]);
  attr_set_int(m, &attrs, ATTR_carry, carry + more);
  loop.attrs = attrs, loop.nin += more, loop.nout += more;
  return loop;
}

/* A sum over an axis is zero as well if its term is. */
static bool is_zero(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  return o && o->code == OP_keep_first ? is_zero(f, o->in[0]) : value_is_zero(f, v);
}

static ValueId zero_piece(StageStream *stream, Fn *f, ValueId v, Type t) {
  const Op *o = value_def(f, v);
  ValueId r;
  if (o->code == OP_keep_first) {
    AttrList attrs = o->attrs;
    r = zero_piece(stream, f, o->in[0], t);
    r = emit_typed(stream->m, f, OP_keep_first, 1, &r, NULL, t, (Loc){0});
    vec_last(f->ops).attrs = attrs;
  } else {
    r = emit_full(stream->m, f, t, 0, (Loc){0});
  }
  f->values.at[r].placed = f->values.at[v].placed;
  return r;
}

/* Operands of a loop in which carried sums are pieces: zeros in place of zeros. */
static ValueId *chunk_operands(StageStream *stream, Rebuild *rebuild, const Op *loop,
                               const ValueId *in, const bool *split, uint32_t more) {
  ValueId *own = ARENA_ARRAY(stream->m->arena, ValueId, loop->nin + more + 1);
  for (uint32_t i = 0, k = 0; i < loop->nin; i++) {
    Type t = *value_type(rebuild->to, in[i]);
    bool pieces = i < (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0) && split[i];
    if (!pieces) own[k++] = in[i];
    else t.axis[type_find(&t, stream->chunks.dim)].size /= stream->chunks.n;
    for (int64_t j = 0; pieces && j < stream->chunks.n; j++)
      own[k++] = zero_piece(stream, rebuild->to, in[i], t);
  }
  return own;
}

static void copy_chunks(StageStream *stream, Rebuild *rebuild, Op loop, const ValueId *in,
                        ValueId *out) {
  uint32_t carry = (uint32_t)attr_int(&loop.attrs, ATTR_carry, 0), more = 0, k = 0;
  bool *split = ARENA_ARRAY(stream->m->arena, bool, carry + 1), step = entry_trains(rebuild->from);
  for (uint32_t i = 0; i < carry; i++) {
    split[i] = step && is_zero(rebuild->to, in[i]) && chunks_sum(loop.callee, i);
    more += split[i] ? (uint32_t)stream->chunks.n - 1 : 0;
  }
  Op cut = with_carry(stream->m, loop, carry, more);
  const ValueId *own = chunk_operands(stream, rebuild, &loop, in, split, more);
  ValueId *all = ARENA_ARRAY(stream->m->arena, ValueId, cut.nout + 1);
  cut.callee = chunks_body(&stream->chunks, loop.callee, split, carry);
  if (step) chunks_parts(&stream->chunks, rebuild->to, &cut, own, all);
  else copy_whole(stream, rebuild, cut, own, all);
  for (uint32_t i = 0; i < loop.nout; i++) {
    bool pieces = i < carry && split[i];
    out[i] =
        pieces ? chunks_join(&stream->chunks, rebuild->to, &all[k], value_type(rebuild->to, in[i]))
               : all[k];
    k += pieces ? (uint32_t)stream->chunks.n : 1;
  }
}

static void copy_parts(StageStream *stream, Rebuild *rebuild) {
  Op loop = *stream->loop;
  uint32_t carry = (uint32_t)attr_int(&loop.attrs, ATTR_carry, 0);
  ValueId *in = ARENA_ARRAY(stream->m->arena, ValueId, loop.nin + 1),
          *out = ARENA_ARRAY(stream->m->arena, ValueId, loop.nout + 1);
  loop.callee = apart(stream);
  for (uint32_t i = 0; i < loop.nin; i++) {
    in[i] = rebuild->map[loop.in[i]];
    if (i < carry && stream->kept[i]) in[i] = keep(stream, rebuild->to, in[i], true);
  }
  if (stream->chunks.n > 1) copy_chunks(stream, rebuild, loop, in, out);
  else if (!entry_trains(rebuild->from)) copy_whole(stream, rebuild, loop, in, out);
  else copy_split(stream, rebuild, loop, in, out);
  for (uint32_t i = 0; i < loop.nout; i++)
    rebuild->map[loop.out + i] = stream->kept[i] ? completed(stream, rebuild->to, out[i]) : out[i];
}

/* For a plan in a file the frontend reports the same, with an edit. */
static void check_chunks(StageStream *stream, int64_t layers) {
  int64_t pieces = stream->chunks.n * stream->m->mesh.at[stream->axis].size;
  if (stream->chunks.n > MOST_CHUNKS || layers % pieces)
    refuse(stream,
           arena_printf(stream->m->arena, "%lld layers in %lld chunks, of %d at most on a stage",
                        (long long)layers, (long long)pieces, MOST_CHUNKS));
}

static bool find_stages(StageStream *stream) {
  EACH_OP (stream->body, o) {
    if (!loop_has_stages(o) || !loop_shape(o).streams) continue;
    stream->name = attr_str(&o->attrs, ATTR_stages, NULL);
    stream->axis = mesh_find(stream->m, stream->name);
    stream->chunks = (Chunks){stream->m, o->group[0].from[0], stream->axis, plan_chunks(stream->m)};
    check_chunks(stream, loop_shape(o).trip);
    return !stream->failed;
  }
  return false;
}

/* False: refused. */
static bool see_all(StageStream *stream) {
  stream->at = ARENA_ARRAY(stream->m->arena, ValidAt, stream->body->values.n + 1);
  stream->kept = ARENA_ARRAY(stream->m->arena, bool, stream->body->results.n + 1);
  for (uint32_t i = 0; i < stream->body->args.n; i++)
    if (is_partial(state_of(stream, stream->body->args.at[i])))
      stream->at[stream->body->args.at[i]] = SPREAD;
  for (OpId i = 0; i < stream->body->ops.n; i++) see(stream, i);
  if (stream->loop) find_kept(stream);
  return !stream->failed;
}

static Fn *with_parts(StageStream *stream, Fn *f) {
  Rebuild rebuild = rebuild_begin(stream->m, f);
  for (OpId i = 0; i < f->ops.n; i++)
    if (&f->ops.at[i] == stream->loop) copy_parts(stream, &rebuild);
    else rebuild_op(&rebuild, &f->ops.at[i]);
  return rebuild.to;
}

/* The axis of its stages; NULL: it has none that stream, or a reason was given. */
static Str stream_entry(Module *m, Fn *f) {
  StageStream stream = {.m = m, .loop = parts_loop(f), .forward = NO_OP};
  stream.body = stream.loop ? stream.loop->callee : f;
  if (!find_stages(&stream) || !see_all(&stream)) return NULL;
  Fn *to = stream.loop ? with_parts(&stream, f) : apart(&stream);
  if (!stream.loop && stream.chunks.n > 1) to = chunks_body(&stream.chunks, to, NULL, 0);
  if (stream.failed) return NULL;
  module_replace(m, f, to);
  bool weights = stream.loop && !strcmp(plan_schedule(m), "zero_bubble");
  if (weights && entry_trains(f)) stream_weights(m, to);
  return stream.name;
}

static void stream_entries(Module *m) {
  Str axis = NULL;
  for (uint32_t i = 0, n = m->mesh.n ? m->fns.n : 0; i < n; i++) {
    Str own = m->fns.at[i]->kind == FN_ENTRY ? stream_entry(m, m->fns.at[i]) : NULL;
    if (own) axis = own;
    if (diag_errors(m->ctx->diag)) return;
  }
  if (!axis) return;
  module_collect(m);
  module_set_stages(m, axis, plan_chunks(m));
}

void pass_pipeline(Module *m) {
  stream_entries(m);
  if (!diag_errors(m->ctx->diag)) stage_tiers_check(m);
}

/* pipeline: micro-batches stream through the stages, instead of one at a time.

   Above (`collect`) loops over layers that `stream` leave what they carry on the stage where it
   ends, as a value that is whole in type and that this stage alone has: the last one forward, the
   first one backward. What follows from it, the head and the loss, the gradient of the embedding,
   is right on that stage alone; all stages compute it, and nobody looks at what the others get:

     loop of stages           each stage receives, but the one where the line begins, which has the
                              value itself
     sums over micro-batches  kept from that stage, so partial over stages, and completed once,
                              behind the loop
     first plus last          (tied embeddings) each kept from its stage: partial, too

   So nothing inside of a micro-batch is of all stages at once, and stages may be at different ones.
   Then the loop of `step` is cut behind the forward layers (loop_split.c): all micro-batches
   forward, then all backward ("GPipe: Efficient Training of Giant Neural Networks using Pipeline
   Parallelism"); under `zero_bubble` what goes backward once more (stream_weights.c); under
   `interleaved` at each chunk of layers, both ways (stream_chunks.c). Entries that
   go forward alone stay one loop, or none: what they store is completed.

   What would make stages meet inside of a micro-batch is refused at the place line (E0901). Without
   a loop over micro-batches there is nothing to stream. Must not: change a number beyond the order
   of sums over stages. */
#include "passes/stream.h"
#include "ir/module_settings.h"
#include "ir/placement.h"
#include "ir/stage_class.h"
#include <string.h>

/* Which stages have the right value; SPREAD: it is the sum of what they have. */
typedef enum ValidAt { EVERYWHERE, AT_FIRST, AT_LAST, SPREAD } ValidAt;

typedef struct StageStream {
  Module *m;
  const Op *loop; /* over parts of the batch; NULL: the body is the entry itself */
  const Fn *body;
  Str name; /* axis of the stages */
  int axis;
  OpId forward; /* the op of the body whose rounds stream, forward */
  ValidAt *at;  /* by value of the body */
  bool *kept;   /* by result of the loop: a sum over stages because of this pass */
  Chunks chunks;
  bool failed;
} StageStream;

static void refuse(StageStream *s, const char *why) {
  if (s->failed) return;
  s->failed = true;
  stages_refuse(s->m, s->name, why,
                "`pipeline sequential`: one micro-batch at a time, all other stages wait");
}

/* ---- what is where ---- */

static Str state_of(const StageStream *s, ValueId v) {
  return s->body->values.at[v].placed.on[s->axis];
}

static bool is_stages(const Op *o) {
  return o->code == OP_loop && attr_get(&o->attrs, ATTR_stages);
}

static bool goes_over(const StageStream *s, const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE && o->code != OP_keep_first &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), s->name);
}

static bool any_goes_over(const StageStream *s, const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (goes_over(s, o) || (o->code == OP_loop && any_goes_over(s, o->callee))) return true;
  }
  return false;
}

static bool is_at_one(ValidAt w) { return w == AT_FIRST || w == AT_LAST; }

/* Why a second loop over layers cannot stream behind the first. */
static const char *why_twice(const Op *first, const Op *second) {
  const char *of = attr_str(&first->attrs, ATTR_path, "");
  bool again = *of && !strcmp(of, attr_str(&second->attrs, ATTR_path, ""));
  return again ? "layers that keep nothing go forward twice (`recompute .. keep = none`)"
               : "several stacks of layers hand on values";
}

/* Layers: what is handed on comes from the stage before, but where the line begins. */
static void see_stages(StageStream *s, OpId id) {
  const Op *o = &s->body->ops.at[id];
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0;
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < o->nin; i++) {
    ValidAt w = s->at[o->in[i]];
    bool begins = i < carry && w == (back ? AT_LAST : AT_FIRST);
    if (is_at_one(w) && !begins) refuse(s, "layers read what one stage alone has");
  }
  for (uint32_t i = 0; i < carry; i++)
    s->at[o->out + i] = state_of(s, o->out + i) ? SPREAD : back ? AT_FIRST : AT_LAST;
  if (back) return;
  if (s->forward != NO_OP) refuse(s, why_twice(&s->body->ops.at[s->forward], o));
  s->forward = id;
}

/* May the result be the sum of what stages have, if the operands are? */
static bool is_sum(const Op *o) {
  return o->code == OP_add || o->code == OP_sub || (o->nin == 1 && (op_flags(o->code) & LINEAR));
}

static ValidAt joined(StageStream *s, const Op *o) {
  ValidAt all = EVERYWHERE;
  for (uint32_t i = 0; i < o->nin; i++) {
    ValidAt w = s->at[o->in[i]];
    if (w == EVERYWHERE || w == all) continue;
    all = all == EVERYWHERE ? w : SPREAD;
  }
  return all;
}

static ValidAt where_of(StageStream *s, const Op *o, ValueId result) {
  ValidAt w = joined(s, o);
  Str state = state_of(s, result);
  if (o->code == OP_keep_first) return SPREAD;
  if (is_at_one(w) && !state) return w;
  if (w == EVERYWHERE && !is_partial(state)) return w;
  if (state == PARTIAL_SUM && !is_at_one(w)) return SPREAD;
  if (!state && w == SPREAD && is_sum(o)) return SPREAD;
  refuse(s, "what the last stage makes and what the first one makes are not added up alone");
  return w;
}

static void see(StageStream *s, OpId id) {
  const Op *o = &s->body->ops.at[id];
  if (is_stages(o)) {
    see_stages(s, id);
    return;
  }
  if (goes_over(s, o) || (o->code == OP_loop && any_goes_over(s, o->callee)))
    refuse(s, "what is around the layers is shared over their axis, too");
  for (uint32_t i = 0; i < o->nout; i++) s->at[o->out + i] = where_of(s, o, o->out + i);
}

/* If v is the carried `sum` and something more, it is a sum of what stages have like that: so is
   each value between the two. */
static bool adds_up(StageStream *s, ValueId sum, ValueId v) {
  RunningSum r;
  if (!running_sum(s->body, sum, v, &r)) return false;
  s->at[r.wide] = s->at[r.total] = s->at[v] = SPREAD;
  return true;
}

static void find_kept(StageStream *s) {
  uint32_t carry = (uint32_t)attr_int(&s->loop->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < s->body->results.n; i++) {
    ValueId v = s->body->results.at[i];
    if (s->at[v] == EVERYWHERE || state_of(s, v)) continue;
    s->kept[i] = true;
    if (elem_class(value_type(s->body, v)->elem) != CLASS_FLOAT)
      refuse(s, "one stage alone delivers something that is no float");
    if (i >= carry) continue;
    ValueId arg = s->body->args.at[i + 1];
    if (!adds_up(s, arg, v) && value_is_used(s->body, arg))
      refuse(s, "what is carried from part to part is no sum");
    s->at[arg] = SPREAD;
  }
}

/* ---- the body ---- */

static ValueId keep(StageStream *s, Fn *f, ValueId v, bool last) {
  ValueId r = emit_typed(s->m, f, OP_keep_first, 1, &v, NULL, *value_type(f, v), (Loc){0});
  AttrList *l = &vec_last(f->ops).attrs;
  attr_set_str(s->m, l, ATTR_axis, s->name);
  if (last) attr_set_int(s->m, l, ATTR_reverse, 1);
  f->values.at[r].placed = f->values.at[v].placed;
  f->values.at[r].placed.on[s->axis] = PARTIAL_SUM;
  return r;
}

/* v of the body as a sum over stages. Of a scatter, what is scattered is kept: it is smaller. */
static ValueId spread(StageStream *s, Rebuild *r, ValueId v) {
  const Op *o = value_def(s->body, v);
  ValidAt w = s->at[v];
  if (w == SPREAD) return r->map[v];
  if (!o || o->code != OP_scatter || s->at[o->in[0]] != w || s->at[o->in[1]] != EVERYWHERE)
    return keep(s, r->to, r->map[v], w != AT_FIRST);
  ValueId rows = keep(s, r->to, r->map[o->in[0]], w != AT_FIRST), whole = r->map[v];
  Op *made = rebuild_op(r, o);
  made->in[0] = rows;
  r->to->values.at[made->out].placed.on[s->axis] = PARTIAL_SUM;
  r->map[v] = whole;
  return made->out;
}

static ValueId completed(StageStream *s, Fn *f, ValueId v);

/* In an entry all ranks store one value. */
static void copy_store(StageStream *s, Rebuild *r, const Op *o) {
  ValueId v = o->in[0], all = r->map[v];
  if (s->at[v] != EVERYWHERE && !state_of(s, v)) {
    if (elem_class(value_type(s->body, v)->elem) != CLASS_FLOAT)
      refuse(s, "one stage alone delivers something that is no float");
    all = completed(s, r->to, spread(s, r, v));
  }
  ir_store(s->m, r->to, o->global, all, o->loc);
}

static void copy_op(StageStream *s, Rebuild *r, const Op *o) {
  if (o->code == OP_store) {
    copy_store(s, r, o);
    return;
  }
  bool sum = o->nout == 1 && s->at[o->out] == SPREAD && o->code != OP_keep_first && !is_stages(o) &&
             !state_of(s, o->out);
  ValueId *in = ARENA_ARRAY(s->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = sum ? spread(s, r, o->in[i]) : r->map[o->in[i]];
  Op *made = rebuild_op(r, o);
  for (uint32_t i = 0; i < o->nin; i++) made->in[i] = in[i];
  if (sum) r->to->values.at[made->out].placed.on[s->axis] = PARTIAL_SUM;
  if (o->code == OP_keep_first && s->at[o->in[0]] == AT_LAST)
    attr_set_int(s->m, &made->attrs, ATTR_reverse, 1);
}

static Fn *apart(StageStream *s) {
  Rebuild r = rebuild_begin(s->m, s->body);
  uint32_t carry = s->loop ? (uint32_t)attr_int(&s->loop->attrs, ATTR_carry, 0) : 0;
  for (uint32_t i = 0; i < s->body->args.n; i++) {
    Placement *p = &r.to->values.at[r.to->args.at[i]].placed;
    *p = s->body->values.at[s->body->args.at[i]].placed;
    if (i && i <= carry && s->kept[i - 1]) p->on[s->axis] = PARTIAL_SUM;
  }
  for (OpId i = 0; i < s->body->ops.n; i++) copy_op(s, &r, &s->body->ops.at[i]);
  for (uint32_t i = 0; i < s->body->results.n; i++) {
    ValueId v = s->body->results.at[i];
    fn_result(s->m, r.to, s->kept[i] ? spread(s, &r, v) : r.map[v]);
  }
  return r.to;
}

/* ---- the entry ---- */

static ValueId completed(StageStream *s, Fn *f, ValueId v) {
  ValueId r = emit_typed(s->m, f, OP_all_reduce, 1, &v, NULL, *value_type(f, v), (Loc){0});
  AttrList *l = &vec_last(f->ops).attrs;
  attr_set_str(s->m, l, ATTR_axis, s->name);
  if (value_type(f, v)->rank) attr_set_int(s->m, l, ATTR_gradient, 1);
  f->values.at[r].placed = f->values.at[v].placed;
  f->values.at[r].placed.on[s->axis] = NULL;
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
static void copy_split(StageStream *s, Rebuild *r, Op loop, ValueId *in, ValueId *out) {
  bool *first = ARENA_ARRAY(s->m->arena, bool, loop.callee->ops.n + 1);
  first[op_in(loop.callee, &s->body->ops.at[s->forward])] = true;
  LoopSplit split = {.m = s->m, .f = r->to, .loop = &loop, .in = in, .first = first, .out = out};
  split.names[0] = "forward", split.names[1] = "backward";
  loop_split(&split);
}

static void copy_whole(StageStream *s, Rebuild *r, Op loop, const ValueId *in, ValueId *out) {
  Op *o = rebuild_loop(s->m, r->to, loop.callee, loop_shape(&loop), in, loop.loc);
  for (uint32_t i = 0; i < o->nout; i++) {
    out[i] = o->out + i;
    r->to->values.at[out[i]].placed = r->from->values.at[s->loop->out + i].placed;
    if (s->kept[i]) r->to->values.at[out[i]].placed.on[s->axis] = PARTIAL_SUM;
  }
}

static Op with_carry(Module *m, Op loop, uint32_t carry, uint32_t more) {
  AttrList attrs = {0};
  for (uint32_t i = 0; i < loop.attrs.n; i++) vec_push(m->arena, attrs, loop.attrs.at[i]);
  attr_set_int(m, &attrs, ATTR_carry, carry + more);
  loop.attrs = attrs, loop.nin += more, loop.nout += more;
  return loop;
}

/* As a sum over an axis, too. */
static bool is_zero(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  return o && o->code == OP_keep_first ? is_zero(f, o->in[0]) : value_is_zero(f, v);
}

static ValueId zero_piece(StageStream *s, Fn *f, ValueId v, Type t) {
  const Op *o = value_def(f, v);
  ValueId r;
  if (o->code == OP_keep_first) {
    AttrList attrs = o->attrs;
    r = zero_piece(s, f, o->in[0], t);
    r = emit_typed(s->m, f, OP_keep_first, 1, &r, NULL, t, (Loc){0});
    vec_last(f->ops).attrs = attrs;
  } else {
    r = emit_full(s->m, f, t, 0, (Loc){0});
  }
  f->values.at[r].placed = f->values.at[v].placed;
  return r;
}

/* Operands of a loop in which carried sums are pieces: zeros in place of zeros. */
static ValueId *chunk_operands(StageStream *s, Rebuild *r, const Op *loop, const ValueId *in,
                               const bool *split, uint32_t more) {
  ValueId *own = ARENA_ARRAY(s->m->arena, ValueId, loop->nin + more + 1);
  for (uint32_t i = 0, k = 0; i < loop->nin; i++) {
    Type t = *value_type(r->to, in[i]);
    bool pieces = i < (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0) && split[i];
    if (!pieces) own[k++] = in[i];
    else t.axis[type_find(&t, s->chunks.dim)].size /= s->chunks.n;
    for (int64_t j = 0; pieces && j < s->chunks.n; j++) own[k++] = zero_piece(s, r->to, in[i], t);
  }
  return own;
}

static void copy_chunks(StageStream *s, Rebuild *r, Op loop, const ValueId *in, ValueId *out) {
  uint32_t carry = (uint32_t)attr_int(&loop.attrs, ATTR_carry, 0), more = 0, k = 0;
  bool *split = ARENA_ARRAY(s->m->arena, bool, carry + 1), step = !strcmp(r->from->name, "step");
  for (uint32_t i = 0; i < carry; i++) {
    split[i] = step && is_zero(r->to, in[i]) && chunks_sum(loop.callee, i);
    more += split[i] ? (uint32_t)s->chunks.n - 1 : 0;
  }
  Op cut = with_carry(s->m, loop, carry, more);
  const ValueId *own = chunk_operands(s, r, &loop, in, split, more);
  ValueId *all = ARENA_ARRAY(s->m->arena, ValueId, cut.nout + 1);
  cut.callee = chunks_body(&s->chunks, loop.callee, split, carry);
  if (step) chunks_parts(&s->chunks, r->to, &cut, own, all);
  else copy_whole(s, r, cut, own, all);
  for (uint32_t i = 0; i < loop.nout; i++) {
    bool pieces = i < carry && split[i];
    out[i] = pieces ? chunks_join(&s->chunks, r->to, &all[k], value_type(r->to, in[i])) : all[k];
    k += pieces ? (uint32_t)s->chunks.n : 1;
  }
}

static void copy_parts(StageStream *s, Rebuild *r) {
  Op loop = *s->loop;
  uint32_t carry = (uint32_t)attr_int(&loop.attrs, ATTR_carry, 0);
  ValueId *in = ARENA_ARRAY(s->m->arena, ValueId, loop.nin + 1),
          *out = ARENA_ARRAY(s->m->arena, ValueId, loop.nout + 1);
  loop.callee = apart(s);
  for (uint32_t i = 0; i < loop.nin; i++) {
    in[i] = r->map[loop.in[i]];
    if (i < carry && s->kept[i]) in[i] = keep(s, r->to, in[i], true);
  }
  if (s->chunks.n > 1) copy_chunks(s, r, loop, in, out);
  else if (strcmp(r->from->name, "step")) copy_whole(s, r, loop, in, out);
  else copy_split(s, r, loop, in, out);
  for (uint32_t i = 0; i < loop.nout; i++)
    r->map[loop.out + i] = s->kept[i] ? completed(s, r->to, out[i]) : out[i];
}

/* Of a plan the frontend says so, with an edit. */
static void check_chunks(StageStream *s, int64_t layers) {
  int64_t pieces = s->chunks.n * s->m->mesh.at[s->axis].size;
  if (s->chunks.n > MOST_CHUNKS || layers % pieces)
    refuse(s, arena_printf(s->m->arena, "%lld layers in %lld chunks, of %d at most on a stage",
                           (long long)layers, (long long)pieces, MOST_CHUNKS));
}

static bool find_stages(StageStream *s) {
  for (OpId i = 0; i < s->body->ops.n; i++) {
    const Op *o = &s->body->ops.at[i];
    if (!is_stages(o) || !loop_shape(o).streams) continue;
    s->name = attr_str(&o->attrs, ATTR_stages, NULL);
    s->axis = mesh_find(s->m, s->name);
    s->chunks = (Chunks){s->m, o->group[0].from[0], s->axis, plan_chunks(s->m)};
    check_chunks(s, loop_shape(o).trip);
    return !s->failed;
  }
  return false;
}

/* False: refused. */
static bool see_all(StageStream *s) {
  s->at = ARENA_ARRAY(s->m->arena, ValidAt, s->body->values.n + 1);
  s->kept = ARENA_ARRAY(s->m->arena, bool, s->body->results.n + 1);
  for (uint32_t i = 0; i < s->body->args.n; i++)
    if (is_partial(state_of(s, s->body->args.at[i]))) s->at[s->body->args.at[i]] = SPREAD;
  for (OpId i = 0; i < s->body->ops.n; i++) see(s, i);
  if (s->loop) find_kept(s);
  return !s->failed;
}

static Fn *with_parts(StageStream *s, Fn *f) {
  Rebuild r = rebuild_begin(s->m, f);
  for (OpId i = 0; i < f->ops.n; i++)
    if (&f->ops.at[i] == s->loop) copy_parts(s, &r);
    else rebuild_op(&r, &f->ops.at[i]);
  return r.to;
}

/* The axis of its stages; NULL: it has none that stream, or a reason was given. */
static Str stream_entry(Module *m, Fn *f) {
  StageStream s = {.m = m, .loop = parts_loop(m, f), .forward = NO_OP};
  s.body = s.loop ? s.loop->callee : f;
  if (!find_stages(&s) || !see_all(&s)) return NULL;
  Fn *to = s.loop ? with_parts(&s, f) : apart(&s);
  if (!s.loop && s.chunks.n > 1) to = chunks_body(&s.chunks, to, NULL, 0);
  if (s.failed) return NULL;
  module_replace(m, f, to);
  bool weights = s.loop && !strcmp(plan_schedule(m), "zero_bubble");
  if (weights && !strcmp(f->name, "step")) stream_weights(m, to);
  return s.name;
}

void pass_pipeline(Module *m) {
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

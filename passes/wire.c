/* wire: the element types of messages that add. Runs behind `zero`, whose messages are the last.

   Partial sums of activations, which a plan in bf16 or f16 would round where they lie in memory,
   are rounded before they are sent: each rank's term once, to the compute type; the collective adds
   them in f32 and rounds the sum once (rt.h; NCCL adds in its own way). Such are sums of products
   of that type, looked for through what is linear, and what all readers cast to it. Statistics
   (sums of a softmax, losses, norms) stay f32, as pass `precision` has them: they are short.

   Gradients of parameters (attribute `gradient`, from `collect` and `zero`) travel in the type of
   setting plan.precision.reduce; without it, as they are. What is read behind the message has the
   type that it had. 8 bits are another way to send (int8_sum.c). Must not: change what a rank
   keeps, or messages that only move numbers. */
#include "passes/precision.h"
#include "passes/int8.h"
#include "ir/module_settings.h"

typedef enum WireAnswer { NOT_ASKED, NO, YES } WireAnswer;

typedef struct Wire {
  Module *m;
  Elem compute, reduce;
  bool narrow, asked; /* compute is 16 bits wide; reduce is given */
  bool int8;          /* gradients travel in 8 bits */
} Wire;

typedef struct Body { /* a function */
  const Wire *w;
  const Fn *f;
  char *rounded; /* by value: an Answer */
} Body;

static bool is_float(const Fn *f, ValueId v) {
  return elem_class(value_type(f, v)->elem) == CLASS_FLOAT;
}

static bool is_rounded(Body *b, ValueId v);

/* Of a product: factors of the compute type. Of a sum: all terms; of other ops that are linear in
   one operand: that one. Numbers and constants say nothing. */
static bool every_operand(Body *b, const Op *o, bool product) {
  bool any = false;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Op *d = value_def(b->f, o->in[i]);
    if (!is_float(b->f, o->in[i]) || (d && d->code == OP_const)) continue;
    bool good =
        product ? value_type(b->f, o->in[i])->elem == b->w->compute : is_rounded(b, o->in[i]);
    if (!good) return false;
    any = true;
  }
  return any;
}

static bool any_operand(Body *b, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (is_float(b->f, o->in[i]) && is_rounded(b, o->in[i])) return true;
  return false;
}

static bool makes_rounded(Body *b, const Op *o) {
  switch (o->code) {
  case OP_add:
  case OP_sub: return every_operand(b, o, false);
  case OP_neg:
  case OP_cast:
  case OP_copy:
  case OP_mul:
  case OP_where: return any_operand(b, o);
  case OP_div: return is_rounded(b, o->in[0]);
  default: break;
  }
  if (precision_is_product(o)) return every_operand(b, o, true);
  return op_family(o->code) == FAMILY_STRUCT && every_operand(b, o, false);
}

static bool is_rounded(Body *b, ValueId v) {
  if (value_type(b->f, v)->elem == b->w->compute) return true;
  if (b->rounded[v] != NOT_ASKED) return b->rounded[v] == YES;
  const Op *o = value_def(b->f, v);
  bool is = o && o->code != OP_loop && makes_rounded(b, o);
  b->rounded[v] = is ? YES : NO;
  return is;
}

/* Do all who read v cast it to the compute type? */
static bool read_rounded(const Body *b, ValueId v) {
  uint32_t readers = 0;
  for (uint32_t i = 0; i < b->f->results.n; i++)
    if (b->f->results.at[i] == v) return false;
  for (OpId i = 0; i < b->f->ops.n; i++) {
    const Op *o = &b->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v) continue;
      if (o->code != OP_cast || value_type(b->f, o->out)->elem != b->w->compute) return false;
      readers++;
    }
  }
  return readers > 0;
}

static Elem wire_type(Body *b, const Op *o) {
  const Wire *w = b->w;
  Elem e = value_type(b->f, o->in[0])->elem;
  bool adds = o->code == OP_reduce_scatter ||
              (o->code == OP_all_reduce && !attr_get(&o->attrs, ATTR_reduce));
  if (!adds || elem_class(e) != CLASS_FLOAT) return e;
  if (attr_int(&o->attrs, ATTR_gradient, 0)) return w->asked ? w->reduce : e;
  bool may = w->narrow && e == ELEM_f32 && value_type(b->f, o->in[0])->rank;
  return may && (is_rounded(b, o->in[0]) || read_rounded(b, o->out)) ? w->compute : e;
}

/* The collective o, between casts to its type and back. */
static void send_as(Rebuild *r, const Op *o, Elem e) {
  must(elem_class(e) == CLASS_FLOAT && o->nin == 1, "wire: %s in %s", op_name(o->code),
       elem_name(e));
  ValueId in = r->map[o->in[0]], was = o->out;
  Elem back = value_type(r->from, was)->elem;
  ValueId narrow = ir_cast(r->m, r->to, in, e, o->loc);
  Op *made = rebuild_op(r, o);
  ValueId out = made->out;
  made->in[0] = narrow;
  r->to->values.at[out].type.elem = e;
  r->map[was] = ir_cast(r->m, r->to, out, back, o->loc);
}

static bool in_int8(const Wire *w, const Fn *f, const Op *o) {
  return w->int8 && attr_int(&o->attrs, ATTR_gradient, 0) &&
         elem_class(value_type(f, o->in[0])->elem) == CLASS_FLOAT;
}

static Fn *rewritten(const Wire *w, const Fn *f) {
  Body b = {w, f, ARENA_ARRAY(w->m->arena, char, f->values.n + 1)};
  Rebuild r = rebuild_begin(w->m, f);
  int64_t block = plan_int8_block(w->m);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool sends = op_family(o->code) == FAMILY_COLLECTIVE && o->nin;
    Elem e = sends ? wire_type(&b, o) : ELEM_f32;
    if (sends && in_int8(w, f, o) && int8_add_up(&r, o, block)) continue;
    if (sends && e != value_type(f, o->in[0])->elem) send_as(&r, o, e);
    else rebuild_op(&r, o);
  }
  rebuild_results(&r);
  return r.to;
}

void pass_wire(Module *m) {
  Wire w = {.m = m};
  Str reduce = plan_message_type(m);
  w.narrow = elem_find(plan_precision(m), &w.compute) && elem_bytes(w.compute) == 2;
  w.asked = reduce && elem_find(reduce, &w.reduce);
  w.int8 = plan_int8_gradients(m);
  if (!m->mesh.n || !(w.narrow || w.asked || w.int8)) return;
  if (w.asked && w.reduce == ELEM_f16 && w.compute != ELEM_f16) {
    Report *r =
        diag_at(m->ctx->diag, "E0602", (Span){0}, "gradients in messages of f16 want a scale");
    diag_label(r, "below 6e-8 they would be 0");
    diag_help(r, "`reduce = bf16`, or `precision f16`, which scales them");
    return;
  }
  for (uint32_t i = 0; i < m->fns.n; i++)
    module_replace(m, m->fns.at[i], rewritten(&w, m->fns.at[i]));
}

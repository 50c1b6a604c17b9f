/* wire: the element types of messages that add, and of all-to-alls of products. Runs after `zero`,
   which makes the last messages.

   Partial sums of activations that a plan in bf16 or f16 would round in memory are rounded before
   they are sent: each rank's term once, to the compute type; the collective adds them in f32 and
   rounds the sum once (rt.h; a library of GPUs has its own order). This applies to sums of products
   of that type, found through linear ops, and to values that all readers cast to it. Statistics
   (sums of a softmax, losses, norms) stay f32, as pass `precision` has them: they are short. An
   all-to-all of such products, which are f32 only because their reader adds them up (the results of
   experts), sends what a product writes to memory: the compute type.

   Gradients of parameters (attribute `gradient`, from `collect` and `zero`) are sent in the type of
   setting plan.precision.reduce; without it, unchanged. Readers of the message's result see the
   type that it had. 8 bits are another way to send (int8_sum.c). Must not: change the values that a
   rank keeps, or other messages that only move numbers. */
#include "precision.h"
#include "int8.h"
#include "ir/collective.h"
#include "ir/plan/module_settings.h"

typedef enum WireAnswer { NOT_ASKED, NO, YES } WireAnswer;

typedef struct Wire {
  Module *m;
  Elem compute, reduce;
  bool narrow, asked; /* compute is 16 bits wide; reduce is given */
  bool int8;          /* gradients are sent in 8 bits */
} Wire;

typedef struct Body { /* a function */
  const Wire *w;
  const Fn *f;
  char *rounded; /* by value: an Answer */
} Body;

static bool is_rounded(Body *body, ValueId v);

/* For a product: factors of the compute type. For a sum: all terms; for other ops that are linear
   in one operand: that one. Scalars and constants do not count. */
static bool every_operand(Body *body, const Op *o, bool product) {
  bool any = false;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Op *d = value_def(body->f, o->in[i]);
    if (!value_is_float(body->f, o->in[i]) || (d && d->code == OP_const)) continue;
    bool good = product ? value_type(body->f, o->in[i])->elem == body->w->compute
                        : is_rounded(body, o->in[i]);
    if (!good) return false;
    any = true;
  }
  return any;
}

static bool any_operand(Body *body, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (value_is_float(body->f, o->in[i]) && is_rounded(body, o->in[i])) return true;
  return false;
}

static bool makes_rounded(Body *body, const Op *o) {
  switch (o->code) {
  case OP_add:
  case OP_sub: return every_operand(body, o, false);
  case OP_neg:
  case OP_cast:
  case OP_copy:
  case OP_mul:
  case OP_where: return any_operand(body, o);
  case OP_div: return is_rounded(body, o->in[0]);
  default: break;
  }
  if (precision_is_product(o)) return every_operand(body, o, true);
  return op_family(o->code) == FAMILY_STRUCT && every_operand(body, o, false);
}

static bool is_rounded(Body *body, ValueId v) {
  if (value_type(body->f, v)->elem == body->w->compute) return true;
  if (body->rounded[v] != NOT_ASKED) return body->rounded[v] == YES;
  const Op *o = value_def(body->f, v);
  bool is = o && o->code != OP_loop && makes_rounded(body, o);
  body->rounded[v] = is ? YES : NO;
  return is;
}

/* Do all readers of v cast it to the compute type? */
static bool read_rounded(const Body *body, ValueId v) {
  uint32_t readers = 0;
  for (uint32_t i = 0; i < body->f->results.n; i++)
    if (body->f->results.at[i] == v) return false;
  EACH_OP (body->f, o) {
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v) continue;
      if (o->code != OP_cast || value_type(body->f, o->out)->elem != body->w->compute) return false;
      readers++;
    }
  }
  return readers > 0;
}

static Elem wire_type(Body *body, const Op *o) {
  const Wire *wire = body->w;
  Elem e = value_type(body->f, o->in[0])->elem;
  bool adds = collective_adds(o->code) && !attr_get(&o->attrs, ATTR_reduce);
  if (elem_class(e) != CLASS_FLOAT) return e;
  if (o->code == OP_all_to_all && wire->narrow && e == ELEM_f32)
    return is_rounded(body, o->in[0]) ? wire->compute : e;
  if (!adds) return e;
  if (attr_int(&o->attrs, ATTR_gradient, 0)) return wire->asked ? wire->reduce : e;
  bool may = wire->narrow && e == ELEM_f32 && value_type(body->f, o->in[0])->rank;
  return may && (is_rounded(body, o->in[0]) || read_rounded(body, o->out)) ? wire->compute : e;
}

/* The collective o, between casts to its type and back. */
static void send_as(Rebuild *rebuild, const Op *o, Elem e) {
  must(elem_class(e) == CLASS_FLOAT && o->nin == 1, "wire: %s in %s", op_name(o->code),
       elem_name(e));
  ValueId in = rebuild->map[o->in[0]], was = o->out;
  Elem back = value_type(rebuild->from, was)->elem;
  ValueId narrow = ir_cast(rebuild->m, rebuild->to, in, e, o->loc);
  Op *made = rebuild_op(rebuild, o);
  ValueId out = made->out;
  made->in[0] = narrow;
  rebuild->to->values.at[out].type.elem = e;
  rebuild->map[was] = ir_cast(rebuild->m, rebuild->to, out, back, o->loc);
}

static bool in_int8(const Wire *wire, const Fn *f, const Op *o) {
  return wire->int8 && attr_int(&o->attrs, ATTR_gradient, 0) && value_is_float(f, o->in[0]);
}

static Fn *rewritten(const Wire *wire, const Fn *f) {
  Body body = {wire, f, ARENA_ARRAY(wire->m->arena, char, f->values.n + 1)};
  Rebuild rebuild = rebuild_begin(wire->m, f);
  int64_t block = plan_int8_block(wire->m);
  EACH_OP (f, o) {
    bool sends = op_family(o->code) == FAMILY_COLLECTIVE && o->nin;
    Elem e = sends ? wire_type(&body, o) : ELEM_f32;
    if (sends && in_int8(wire, f, o) && int8_add_up(&rebuild, o, block)) continue;
    if (sends && e != value_type(f, o->in[0])->elem) send_as(&rebuild, o, e);
    else rebuild_op(&rebuild, o);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}

void pass_wire(Module *m) {
  Wire wire = {.m = m};
  Str reduce = plan_message_type(m);
  wire.narrow = elem_find(plan_precision(m), &wire.compute) && elem_bytes(wire.compute) == 2;
  wire.asked = reduce && elem_find(reduce, &wire.reduce);
  wire.int8 = plan_int8_gradients(m);
  if (!m->mesh.n || !(wire.narrow || wire.asked || wire.int8)) return;
  if (wire.asked && wire.reduce == ELEM_f16 && wire.compute != ELEM_f16) {
    Report *r = diag_at(m->ctx->diag, "E0602", (Span){0}, "gradients in f16 messages need a scale");
    diag_label(r, "below 6e-8 they would be 0");
    diag_help(r, "`reduce = bf16`, or `precision f16`, which scales them");
    return;
  }
  for (uint32_t i = 0; i < m->fns.n; i++)
    module_replace(m, m->fns.at[i], rewritten(&wire, m->fns.at[i]));
}

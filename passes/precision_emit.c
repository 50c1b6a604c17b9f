/* precision, second half: writes a function by its plan.

   Every value stands in the element type that the plan gives it; casts are made when somebody needs
   another one, once per value and type. Op `wide` leaves nothing behind. */
#include "passes/precision.h"

typedef struct PrecisionWriter {
  Precision *p;
  const FnPlan *plan;
  Rebuild r; /* map: values in the type of the plan */
  ValueId
      *other; /* by ValueId: the value in f32 where the plan rounds it, or the other way round */
} PrecisionWriter;

static Elem was_elem(const PrecisionWriter *w, ValueId v) { return value_type(w->r.from, v)->elem; }

/* v in element type e */
static ValueId in_elem(PrecisionWriter *w, ValueId v, Elem e, Loc loc) {
  ValueId have = w->r.map[v];
  must(have != NO_VALUE, "precision: %%%u of %s is read before it is written", v, w->r.from->name);
  if (value_type(w->r.to, have)->elem == e) return have;
  if (w->other[v] == NO_VALUE) w->other[v] = ir_cast(w->p->m, w->r.to, have, e, loc);
  return w->other[v];
}

/* The element type in which op o reads operand i. */
static Elem operand_elem(const PrecisionWriter *w, const Op *o, uint32_t i) {
  const FnPlan *x = w->plan;
  Elem was = was_elem(w, o->in[i]);
  bool moves = (op_family(o->code) == FAMILY_STRUCT && o->code != OP_rope) || o->code == OP_gather;
  if (was != ELEM_f32) return was;
  if (moves) return o->nout ? x->info[o->out].elem : was;
  if (!precision_is_product(o) || (o->code == OP_attention_grad && i == 4)) return was;
  for (uint32_t k = 0; k < o->nin; k++)
    if (x->info[o->in[k]].wide) return was;
  return w->p->compute;
}

static void write_op(PrecisionWriter *w, const Op *o) {
  Module *m = w->p->m;
  const FnPlan *x = w->plan;
  ValueId *was = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) {
    was[i] = w->r.map[o->in[i]];
    w->r.map[o->in[i]] = in_elem(w, o->in[i], operand_elem(w, o, i), o->loc);
  }
  ValueId out = rebuild_op(&w->r, o)->out;
  for (uint32_t i = o->nin; i-- > 0;) w->r.map[o->in[i]] = was[i];
  for (uint32_t i = 0; i < o->nout; i++)
    if (!x->rounded[o->out + i]) w->r.to->values.at[out + i].type.elem = x->info[o->out + i].elem;
    else w->r.map[o->out + i] = ir_cast(m, w->r.to, out + i, w->p->compute, o->loc);
}

/* Carried operands come in the type that goes round, others as they are. */
static void write_loop(PrecisionWriter *w, const Op *o) {
  Module *m = w->p->m;
  BodyPlan *b = w->plan->body[o - w->r.from->ops.at];
  must(b, "precision: the body of a loop in %s has no plan", w->r.from->name);
  LoopShape s = loop_shape(o);
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = in_elem(w, o->in[i], b->args[i + 1].elem, o->loc);
  ValueId out = rebuild_loop(m, w->r.to, precision_made(w->p, b), s, in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) w->r.map[o->out + i] = out + i;
}

static void write_store(PrecisionWriter *w, const Op *o) {
  ValueId v = in_elem(w, o->in[0], o->global->type.elem, o->loc);
  ir_store(w->p->m, w->r.to, o->global, v, o->loc);
}

static void write(PrecisionWriter *w, const Op *o) {
  if (o->code == OP_wide) w->r.map[o->out] = in_elem(w, o->in[0], was_elem(w, o->out), o->loc);
  else if (o->code == OP_loop) write_loop(w, o);
  else if (o->code == OP_store) write_store(w, o);
  else if (o->code == OP_cast && value_type(w->r.from, o->out)->elem != ELEM_f32 &&
           value_type(w->r.to, w->r.map[o->in[0]])->elem == was_elem(w, o->out))
    w->r.map[o->out] = w->r.map[o->in[0]]; /* is in that type already */
  else write_op(w, o);
}

/* The types of results are the plan's: carried ones those of the operands. */
static void write_results(PrecisionWriter *w, const BodyPlan *b) {
  const Fn *f = w->r.from;
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId v = f->results.at[i];
    Elem e = i < b->carry ? b->args[i + 1].elem : w->plan->info[v].elem;
    fn_result(w->p->m, w->r.to, in_elem(w, v, e, f->loc));
  }
}

Fn *precision_write(Precision *p, const FnPlan *plan, const BodyPlan *body) {
  PrecisionWriter w = {p, plan, rebuild_begin(p->m, plan->f), value_map(p->m, plan->f)};
  for (uint32_t i = 0; i < plan->f->args.n; i++) {
    ValueId arg = w.r.map[plan->f->args.at[i]];
    w.r.to->values.at[arg].type.elem = plan->info[plan->f->args.at[i]].elem;
  }
  for (uint32_t i = 0; i < plan->f->ops.n; i++) write(&w, &plan->f->ops.at[i]);
  if (body) write_results(&w, body);
  return w.r.to;
}

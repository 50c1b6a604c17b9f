/* precision, second half: writes a function by its plan.

   Every value has the element type that the plan gives it; casts to other types are made on
   demand, once per value and type. Op `wide` is removed. */
#include "ir/attention_operands.h"
#include "precision.h"

typedef struct PrecisionWriter {
  Precision *p;
  const FnPlan *plan;
  Rebuild r;      /* map: values in the type of the plan */
  ValueId *other; /* by ValueId: the f32 value if the plan rounds it, else the rounded one */
} PrecisionWriter;

static Elem was_elem(const PrecisionWriter *writer, ValueId v) {
  return value_type(writer->r.from, v)->elem;
}

/* v in element type e */
static ValueId in_elem(PrecisionWriter *writer, ValueId v, Elem e, Loc loc) {
  ValueId have = writer->r.map[v];
  must(have != NO_VALUE, "precision: %%%u of %s is read before it is written", v,
       writer->r.from->name);
  if (value_type(writer->r.to, have)->elem == e) return have;
  if (writer->other[v] == NO_VALUE)
    writer->other[v] = ir_cast(writer->p->m, writer->r.to, have, e, loc);
  return writer->other[v];
}

/* The element type in which op o reads operand i. */
static Elem operand_elem(const PrecisionWriter *writer, const Op *o, uint32_t i) {
  const FnPlan *plan = writer->plan;
  Elem was = was_elem(writer, o->in[i]);
  bool moves = (op_family(o->code) == FAMILY_STRUCT && o->code != OP_rope) || o->code == OP_gather;
  if (was != ELEM_f32) return was;
  if (moves) return o->nout ? plan->info[o->out].elem : was;
  bool attention = op_family(o->code) == FAMILY_ATTENTION;
  if (!precision_is_product(o) || (o->code == OP_attention_grad && i == 4)) return was;
  if (attention && i >= attention_fixed(o)) return was;
  for (uint32_t k = 0; k < o->nin; k++)
    if (plan->info[o->in[k]].wide) return was;
  return writer->p->compute;
}

static void write_op(PrecisionWriter *writer, const Op *o) {
  Module *m = writer->p->m;
  const FnPlan *plan = writer->plan;
  ValueId *was = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) {
    was[i] = writer->r.map[o->in[i]];
    writer->r.map[o->in[i]] = in_elem(writer, o->in[i], operand_elem(writer, o, i), o->loc);
  }
  ValueId out = rebuild_op(&writer->r, o)->out;
  for (uint32_t i = o->nin; i-- > 0;) writer->r.map[o->in[i]] = was[i];
  for (uint32_t i = 0; i < o->nout; i++)
    if (!plan->rounded[o->out + i])
      writer->r.to->values.at[out + i].type.elem = plan->info[o->out + i].elem;
    else writer->r.map[o->out + i] = ir_cast(m, writer->r.to, out + i, writer->p->compute, o->loc);
}

/* Carried operands get the type of the carried value, others keep theirs. */
static void write_loop(PrecisionWriter *writer, const Op *o) {
  Module *m = writer->p->m;
  BodyPlan *plan = writer->plan->body[o - writer->r.from->ops.at];
  must(plan, "precision: the body of a loop in %s has no plan", writer->r.from->name);
  LoopShape shape = loop_shape(o);
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = in_elem(writer, o->in[i], plan->args[i + 1].elem, o->loc);
  ValueId out =
      rebuild_loop(m, writer->r.to, precision_made(writer->p, plan), shape, in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) writer->r.map[o->out + i] = out + i;
}

static void write_store(PrecisionWriter *writer, const Op *o) {
  ValueId v = in_elem(writer, o->in[0], o->global->type.elem, o->loc);
  ir_store(writer->p->m, writer->r.to, o->global, v, o->loc);
}

static void write(PrecisionWriter *writer, const Op *o) {
  if (o->code == OP_wide)
    writer->r.map[o->out] = in_elem(writer, o->in[0], was_elem(writer, o->out), o->loc);
  else if (o->code == OP_loop) write_loop(writer, o);
  else if (o->code == OP_store) write_store(writer, o);
  else if (o->code == OP_cast && value_type(writer->r.from, o->out)->elem != ELEM_f32 &&
           value_type(writer->r.to, writer->r.map[o->in[0]])->elem == was_elem(writer, o->out))
    writer->r.map[o->out] = writer->r.map[o->in[0]]; /* is in that type already */
  else write_op(writer, o);
}

/* The types of results are the plan's: carried ones those of the operands. */
static void write_results(PrecisionWriter *writer, const BodyPlan *plan) {
  const Fn *f = writer->r.from;
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId v = f->results.at[i];
    Elem e = i < plan->carry ? plan->args[i + 1].elem : writer->plan->info[v].elem;
    fn_result(writer->p->m, writer->r.to, in_elem(writer, v, e, f->loc));
  }
}

Fn *precision_write(Precision *precision, const FnPlan *plan, const BodyPlan *body) {
  PrecisionWriter writer = {precision, plan, rebuild_begin(precision->m, plan->f),
                            value_map(precision->m, plan->f)};
  for (uint32_t i = 0; i < plan->f->args.n; i++) {
    ValueId arg = writer.r.map[plan->f->args.at[i]];
    writer.r.to->values.at[arg].type.elem = plan->info[plan->f->args.at[i]].elem;
  }
  for (uint32_t i = 0; i < plan->f->ops.n; i++) write(&writer, &plan->f->ops.at[i]);
  if (body) write_results(&writer, body);
  return writer.r.to;
}

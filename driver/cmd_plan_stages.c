/* How long stages of a pipeline wait for each other in a step.

   The table of the schedule (ir/turns.h) is run turn by turn; a turn takes what its loop costs for
   one micro-batch in the program of its stage's class: operations, and bytes between kernels and
   memory apart. What the busiest class does not do until the last stage is over, it waits. What
   stands outside of the loops, such as the update, all stages do at once. */
#include "cmd_plan.h"

static bool has_hop(const Op *o) {
  for (OpId i = 0; o->code == OP_loop && i < o->callee->ops.n; i++)
    if (op_is_hop(o->callee->ops.at[i].code)) return true;
  return false;
}

/* Without turns, under `gpipe`: the first loop that sends and the last one. */
static bool find_apart(Arena *a, const Fn *f, int64_t stages, TurnLoops *t) {
  *t = (TurnLoops){.n = 0};
  for (OpId i = 0; i < f->ops.n; i++)
    if (has_hop(&f->ops.at[i])) t->loop[t->n < 2 ? t->n++ : 1] = i;
  if (t->n < 2) return false;
  t->table = turns_gpipe(a, stages, attr_int(&f->ops.at[t->loop[0]].attrs, ATTR_trip, 1));
  return true;
}

static bool find_schedule(Arena *a, const Fn *f, int64_t stages, TurnLoops *t) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (turns_begin(f, i, t)) return true;
  return find_apart(a, f, stages, t);
}

typedef struct StageCosts { /* of a micro-batch, by stage and loop */
  TurnTable table;
  double *flop, *bytes;
} StageCosts;

static void add_class(StageCosts *k, const Module *m, const TurnLoops *t, const Fn *f) {
  StageClass c = module_class(m);
  for (int i = 0; i < t->n; i++) {
    IrCount cost = ir_count(m, f->ops.at[t->loop[i]].callee);
    for (int64_t s = c.first; s <= c.last; s++)
      k->flop[s * TURN_LOOPS + i] = cost.flop, k->bytes[s * TURN_LOOPS + i] = cost.bytes;
  }
}

static double waits(const StageCosts *k, const double *time, int64_t stage) {
  double busy = 0;
  for (int i = 0; i < TURN_LOOPS; i++) busy += time[stage * TURN_LOOPS + i];
  double wait = turns_makespan(&k->table, time) - busy * (double)k->table.parts;
  return wait > 0 ? wait : 0;
}

static bool stage_costs(const Planned *p, const Fn *entry, StageCosts *k) {
  Arena *a = p->m->arena;
  int axis = module_class(p->m).axis;
  int64_t stages = axis < 0 ? 1 : p->m->mesh.at[axis].size;
  k->flop = ARENA_ARRAY(a, double, stages *TURN_LOOPS);
  k->bytes = ARENA_ARRAY(a, double, stages *TURN_LOOPS);
  for (uint32_t i = 0; i < p->programs.n; i++) {
    const Module *own = p->programs.at[i];
    const Fn *f = module_fn(own, intern(own->ctx->names, entry->name));
    TurnLoops t;
    if (!f || !find_schedule(a, f, stages, &t)) return false;
    k->table = t.table;
    add_class(k, own, &t, f);
  }
  return true;
}

IrCount plan_waits(const Planned *p, const Fn *entry, uint32_t class) {
  StageCosts k;
  if (!stage_costs(p, entry, &k)) return (IrCount){0};
  int64_t stage = module_class(p->programs.at[class]).first;
  return (IrCount){.flop = waits(&k, k.flop, stage), .bytes = waits(&k, k.bytes, stage)};
}

bool plan_gantt(const Planned *p, PlanGantt *s) {
  StageCosts k;
  const Fn *step = ir_main_entry(p->m);
  if (p->programs.n < 2 || !step || !stage_costs(p, step, &k)) return false;
  int64_t each = turns_loops(&k.table) * k.table.parts;
  *s = (PlanGantt){k.table, ARENA_ARRAY(p->m->arena, TurnSpan, each * k.table.stages), each, 0};
  s->total = turns_spans(&k.table, k.flop, s->span);
  return s->total > 0;
}

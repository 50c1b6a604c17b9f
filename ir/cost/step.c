/* The step of a plan (step.h): reads the programs of its classes. Must not: print. */
#include "step.h"
#include "ir/loop.h"
#include "ir/plan/module_settings.h"
#include "ir/cost/count.h"
#include "ir/codes.h"
#include "ir/plan/stage_class.h"
#include "ir/shape/placement.h"
#include <string.h>

/* ---- stages that wait for each other ---- */

static double turn_seconds(const Module *m, const Machine *machine, const Fn *body) {
  KernelTime kernels = kernels_time(m, machine, body);
  return kernel_sum(&kernels) + collectives_time(m, machine, body);
}

static void add_class(StageCosts *costs, const Module *m, const Machine *machine,
                      const ScheduleLoops *loops, const Fn *f) {
  StageClass class = module_class(m);
  for (int i = 0; i < loops->n; i++) {
    const Fn *body = f->ops.at[loops->loop[i]].callee;
    IrCount cost = ir_count(m, body);
    double seconds = costs->seconds ? turn_seconds(m, machine, body) : 0;
    for (int64_t s = class.first; s <= class.last; s++) {
      int64_t at = s * TURN_LOOPS + i;
      costs->flop[at] = cost.flop, costs->bytes[at] = cost.bytes;
      if (costs->seconds) costs->seconds[at] = seconds;
    }
  }
}

/* Finds the loops in which all stages synchronise: they gather or sum over the axis of the stages.
   A collective before the loop over layers counts as at the start of the turn, one after it as at
   the end. */
static void add_meetings(ScheduleTable *table, const Module *m, const ScheduleLoops *loops,
                         const Fn *f) {
  const char *axis = m->mesh.at[module_class(m).axis].name;
  for (int i = 0; i < loops->n; i++) {
    const Fn *body = f->ops.at[loops->loop[i]].callee;
    bool after = false;
    EACH_OP (body, o) {
      after |= o->code == OP_loop;
      if (!attr_int(&o->attrs, ATTR_keep_alive, 0)) continue;
      if (strcmp(attr_str(&o->attrs, ATTR_axis, ""), axis) != 0) continue;
      *(after ? &table->meet_after : &table->meet_before) |= 1u << i;
    }
  }
}

static void add_program(StageCosts *costs, const Module *m, const Machine *machine,
                        const ScheduleLoops *loops, const Fn *f) {
  uint32_t before = costs->table.meet_before, behind = costs->table.meet_after;
  costs->table = loops->table;
  costs->table.meet_before = before, costs->table.meet_after = behind;
  add_meetings(&costs->table, m, loops, f);
  add_class(costs, m, machine, loops, f);
}

static double waits(const StageCosts *costs, const Machine *machine, const double *time,
                    int64_t stage) {
  double busy = 0;
  for (int i = 0; i < TURN_LOOPS; i++) busy += time[stage * TURN_LOOPS + i];
  busy *= (double)costs->table.parts;
  double wait = schedule_makespan(&costs->table, time) - busy;
  return wait > 0 ? machine_waits(machine, busy, wait) : 0;
}

static bool costs_on(const Machine *machine, Module *const *programs, uint32_t n, const Fn *entry,
                     StageCosts *costs) {
  Module *any = programs[0];
  int axis = module_class(any).axis;
  int64_t stages = axis < 0 ? 1 : any->mesh.at[axis].size;
  *costs = (StageCosts){.flop = ARENA_ARRAY(any->arena, double, stages *TURN_LOOPS)};
  costs->bytes = ARENA_ARRAY(any->arena, double, stages *TURN_LOOPS);
  if (machine && machine->reach)
    costs->seconds = ARENA_ARRAY(any->arena, double, stages *TURN_LOOPS);
  for (uint32_t i = 0; i < n; i++) {
    const Module *own = programs[i];
    const Fn *f = module_fn(own, intern(own->ctx->names, entry->name));
    ScheduleLoops loops;
    if (!f || !schedule_of_batch(any->arena, f, stages, &loops)) return false;
    add_program(costs, own, machine, &loops, f);
  }
  return true;
}

bool stage_costs(Module *const *programs, uint32_t n, const Fn *entry, StageCosts *costs) {
  return costs_on(NULL, programs, n, entry, costs);
}

static IrCount class_waits(const Machine *machine, Module *const *programs, uint32_t n,
                           const Fn *entry, uint32_t class) {
  StageCosts costs;
  if (!stage_costs(programs, n, entry, &costs)) return (IrCount){0};
  int64_t stage = module_class(programs[class]).first;
  return (IrCount){.flop = waits(&costs, machine, costs.flop, stage),
                   .bytes = waits(&costs, machine, costs.bytes, stage)};
}

double stages_makespan(Module *const *programs, uint32_t n) {
  StageCosts costs;
  const Fn *step = ir_main_entry(programs[0]);
  if (n < 2 || !step || !stage_costs(programs, n, step, &costs)) return 0;
  return schedule_makespan(&costs.table, costs.flop);
}

/* ---- what classes send ---- */

static Traffic *row_for(Arena *a, TrafficList *list, const Traffic *like) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i].axis == like->axis && list->at[i].kind == like->kind) return &list->at[i];
  vec_push(a, *list, *like);
  return &vec_last(*list);
}

static TrafficList sent_by(const Module *m, const Fn *entry) {
  return entry_traffic(m, module_fn(m, intern(m->ctx->names, entry->name)));
}

static TrafficList most_sent(Module *const *programs, uint32_t n, const Fn *entry) {
  TrafficList all = sent_by(programs[0], entry);
  for (uint32_t i = 1; i < n; i++) {
    TrafficList own = sent_by(programs[i], entry);
    for (uint32_t k = 0; k < own.n; k++) {
      Traffic *traffic = row_for(programs[0]->arena, &all, &own.at[k]);
      if (own.at[k].bytes > traffic->bytes) *traffic = own.at[k];
    }
  }
  return all;
}

/* ---- the step ---- */

/* spared: the part of the operations that codes of 8 bits take no time for. */
static void time_at_peaks(PlanStep *step, const Machine *machine, const IrCount *others,
                          const IrCount *on_host, double spared) {
  double flop = step->flop + others->flop - on_host->flop,
         bytes = step->moved + others->bytes - on_host->bytes;
  if (machine->flops > 0) step->time.compute = (1 - spared) * flop / machine->flops;
  if (machine->hbm > 0) step->time.memory = bytes / machine->hbm;
}

/* Times of turns where one stage is on a slow rank. */
static double *slow_on(Arena *arena, const StageCosts *costs, double balance, int64_t slow) {
  int64_t stages = costs->table.stages;
  double left = (double)stages - 1 / balance, others = left > 0 ? left / (double)(stages - 1) : 0,
         *time = ARENA_ARRAY(arena, double, stages *TURN_LOOPS);
  for (int64_t i = 0; i < stages * TURN_LOOPS; i++)
    time[i] = costs->seconds[i] * (i / TURN_LOOPS == slow ? 1 / balance : others);
  return time;
}

/* Seconds in which equal ranks become unequal ones: any stage may be on the slow rank, and takes
   the longest where there is a pipeline for each. */
static double uneven_makespan(const Module *m, const StageCosts *costs, double balance) {
  int64_t stages = costs->table.stages;
  double sum = 0, most = 0;
  for (int64_t slow = 0; slow < stages; slow++) {
    double takes = schedule_makespan(&costs->table, slow_on(m->arena, costs, balance, slow));
    sum += takes, most = takes > most ? takes : most;
  }
  return mesh_ranks(m) > stages ? most : sum / (double)stages;
}

/* Waits by seconds of turns; where stages have no table, as long as for the same operations. */
static double bubble_of(const PlanStep *step, const Machine *machine, Module *const *programs,
                        uint32_t n, const Fn *entry, uint32_t at) {
  StageCosts costs;
  bool uneven = machine->balance > 0 && machine->balance < 1;
  if (n <= 1 || !costs_on(machine, programs, n, entry, &costs))
    return step->flop > 0 ? kernel_sum(&step->kernels) * step->waited / step->flop : 0;
  int64_t stage = module_class(programs[at]).first;
  double waited = waits(&costs, machine, costs.seconds, stage);
  if (!uneven || costs.table.stages < 2) return waited;
  return waited + uneven_makespan(programs[at], &costs, machine->balance) -
         schedule_makespan(&costs.table, costs.seconds);
}

/* Seconds for which kernels wait, where programs offload in turn (Arch.offload_in_turn). */
static double waits_in_turn(const Module *m, const Machine *machine, const Fn *entry) {
  enum { NORM_AND_SCALE = 12 }; /* bytes of each f32 number that the host reads, and writes again */
  Moves moves = entry_moves(entry);
  double parts = 1, in_parts = moves.down, updated = ir_count_on_host(m, entry).bytes;
  EACH_OP (entry, o) {
    double down = o->code == OP_loop && loop_is_micro(o) ? entry_moves(o->callee).down : 0;
    if (down <= 0) continue;
    parts = (double)attr_int(&o->attrs, ATTR_trip, 1), in_parts = parts * down;
    updated -= parts * ir_count_on_host(m, o->callee).bytes;
  }
  double numbers = in_parts / parts / (strcmp(plan_precision(m), "f32") ? 2 : 4),
         update = updated / machine->dram, up = moves.up / machine->pcie;
  return 2 * in_parts / machine->pcie + NORM_AND_SCALE * numbers / machine->dram +
         (update > up ? update : up);
}

static PlanStep step_of(const Machine *machine, Module *const *programs, uint32_t n,
                        const Fn *entry, uint32_t at) {
  PlanStep step = {0};
  const Module *m = programs[at];
  entry = module_fn(m, intern(m->ctx->names, entry->name));
  IrCount work = ir_count(m, entry),
          others = n > 1 ? class_waits(machine, programs, n, entry, at) : ir_waited(m, entry);
  if (n == 1)
    others.flop = machine_waits(machine, work.flop, others.flop),
    others.bytes = machine_waits(machine, work.bytes, others.bytes);
  step.traffic = most_sent(programs, n, entry);
  step.flop = work.flop, step.moved = work.bytes, step.waited = others.flop;
  Moves moves = entry_moves(entry);
  IrCount on_host = ir_count_on_host(m, entry);
  double codes = ir_codes_flop(m, entry) / (work.flop > 0 ? work.flop : 1);
  time_at_peaks(&step, machine, &others, &on_host, codes * (1 - 1.0 / CODES_RATE));
  if (machine->reach) {
    step.kernels = kernels_time(m, machine, entry);
    step.bubble = bubble_of(&step, machine, programs, n, entry, at);
    step.time.compute = kernel_sum(&step.kernels) + step.bubble, step.time.memory = 0;
  }
  step.time =
      plan_time(m, machine, &step.traffic, &moves, &on_host, step.time.compute, step.time.memory);
  step.lanes = plan_lanes(m, machine, entry);
  lanes_hide(&step.lanes, m, &step.time);
  bool in_turn = machine->reach && machine->reach->offload_in_turn && machine->pcie > 0 &&
                 machine->dram > 0 && plan_offloads_any(m, OFFLOAD_GRADS);
  if (step.time.total <= 0 || !in_turn) return step;
  step.time.total -= step.time.away, step.time.away = waits_in_turn(m, machine, entry);
  step.time.total += step.time.away;
  return step;
}

/* The slowest class has the most operations; if any class waits for its host, it takes the
   longest. */
PlanStep plan_step_on(const Machine *machine, Module *const *programs, uint32_t n,
                      const Fn *entry) {
  uint32_t slowest = 0;
  int64_t host = 0;
  double most = -1;
  if (!entry) return (PlanStep){0};
  if (n == 1) return step_of(machine, programs, n, entry, 0);
  for (uint32_t i = 0; i < n; i++) {
    double flop = module_count(programs[i]).flop;
    if (flop > most) most = flop, slowest = i;
    host += module_budget(programs[i]).host;
  }
  PlanStep step = step_of(machine, programs, n, entry, slowest);
  for (uint32_t i = 0; host && i < n; i++) {
    PlanStep other = step_of(machine, programs, n, entry, i);
    if (other.time.total > step.time.total) step = other;
  }
  return step;
}

PlanStep plan_step(Module *const *programs, uint32_t n, const Fn *entry) {
  Machine machine = plan_machine(programs[0]);
  return plan_step_on(&machine, programs, n, entry);
}

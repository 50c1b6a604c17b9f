/* Budgets and traffic of a module after `memory` (budget.h).

   A buffer is a class of values that share bytes: a value, its views and the values computed in
   place of it. Its purpose follows from its readers and writers:
     gradient   read by a kernel that computes parameters or states, not computed from these alone
     saved      leaves one loop stacked and enters another one stacked
     buffer     exists only to be sent or received: values of collectives, workspaces in which their
                blocks are made contiguous, parts of weights made for a gather. Also flat
                groups between unreduced gradients and the reduction, or between the gather and the
                weights
     working    every other one
   The figure of a kind is the largest sum of such buffers that are alive at once, bodies of loops
   included. Traffic is counted as papers do (ir/collectives.def). */
#include "ir/made.h"
#include "budget.h"
#include "ir/phases.h"
#include "ir/plan/stage_class.h"
#include "ir/support/num.h"
#include "ir/loop.h"
#include "count.h"
#include "ir/schedule/message.h"
#include "ir/schedule/send_order.h"
#include "ir/shape/placement.h"
#include "ir/plan/module_settings.h"
#include <string.h>
#include <stdlib.h>

enum { LARGEST_SLOT = 32 << 20 }; /* bytes: what a copy takes the longer, its start is nothing to */

typedef struct Buffers { /* of one function and memory, by the value that names the class */
  const Module *m;
  const Fn *f;
  Tier tier;
  ValueId *root;
  Use *use;
  int64_t *bytes, *born, *dies;
} Buffers;

/* ---- classes ---- */

static bool in_frame(const Buffers *buffers, ValueId v) {
  const Value *x = &buffers->f->values.at[v];
  return x->storage.place == PLACE_FRAME && x->type.tier == buffers->tier;
}

static void find_buffers(Buffers *buffers) {
  buffers->root = shared_bytes(buffers->m->arena, buffers->f).of;
  for (ValueId v = 0; v < buffers->f->values.n; v++)
    buffers->born[v] = buffers->f->ops.n, buffers->dies[v] = -1;
  for (ValueId v = 0; v < buffers->f->values.n; v++) {
    const Value *x = &buffers->f->values.at[v];
    ValueId r = buffers->root[v];
    int64_t born = x->def == NO_OP ? -1 : (int64_t)x->def;
    if (born < buffers->born[r]) buffers->born[r] = born;
    int64_t bytes =
        x->storage.view == VIEW_OF || !in_frame(buffers, v) ? 0 : value_room(buffers->f, v);
    if (bytes > buffers->bytes[r]) buffers->bytes[r] = bytes;
    if (x->def != NO_OP && (int64_t)x->def > buffers->dies[r]) buffers->dies[r] = x->def;
  }
  for (OpId i = 0; i < buffers->f->ops.n; i++)
    for (uint32_t k = 0; k < buffers->f->ops.at[i].nin; k++) {
      int64_t *dies = &buffers->dies[buffers->root[buffers->f->ops.at[i].in[k]]];
      if (i > *dies) *dies = i;
    }
}

/* ---- what for ---- */

static void mark(Buffers *buffers, ValueId v, Use use) {
  ValueId r = buffers->root[v];
  if (buffers->use[r] == USE_WORKING && in_frame(buffers, v)) buffers->use[r] = use;
}

static bool is_kept(const Buffers *buffers, ValueId v) {
  const Storage *s = &buffers->f->values.at[v].storage;
  if (s->place != PLACE_GLOBAL) return false;
  GlobalKind k = buffers->m->globals.at[s->slot]->kind;
  return k == GLOBAL_PARAM || k == GLOBAL_STATE;
}

/* Is the value stored to a parameter or state, directly or by a copy? */
static bool is_update(const Buffers *buffers, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++) {
    if (is_kept(buffers, o->out + i)) return true;
    EACH_OP (buffers->f, s)
      if (s->code == OP_store && s->in[0] == o->out + i && s->global->kind == GLOBAL_STATE)
        return true;
  }
  return false;
}

/* A part of a parameter taken out for its update is no gradient. */
static bool made_of_kept(const Buffers *buffers, ValueId v) {
  const Op *o = value_def(buffers->f, v);
  while (o && op_flags(o->code) & VIEW && o->nin == 1) o = value_def(buffers->f, o->in[0]);
  if (!o || o->code != OP_kernel) return false;
  for (uint32_t i = 0; i < o->nin; i++)
    if (in_frame(buffers, o->in[i]) && value_type(buffers->f, o->in[i])->rank) return false;
  return true;
}

/* Is it a flat group of parameters (pass zero), or a value of its element numbers? */
static bool is_flat(const Type *t) {
  for (int i = 0; i < t->rank; i++)
    if (made_rest(t->axis[i].dim, MADE_OWNER)) return true;
  return false;
}

/* Gradients are read by an update in this function or in a called one, or row by row in a loop of
   their own: then they are flat. */
static void mark_gradients(Buffers *buffers, const Op *o) {
  bool leaves = o->code == OP_move && value_type(buffers->f, o->out)->tier != TIER_device;
  bool loop = o->code == OP_loop;
  if (buffers->f->kind != FN_ENTRY) return;
  if (!leaves && !((o->code == OP_kernel || loop) && is_update(buffers, o))) return;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Type *t = value_type(buffers->f, o->in[i]);
    bool is = loop ? i >= loop_whole(o) && is_flat(t) : t->rank && !made_of_kept(buffers, o->in[i]);
    if (is) mark(buffers, o->in[i], USE_GRADIENT);
  }
}

/* Slices of a stack that the body reads; a stack that the body only continues is no saved value. */
static void mark_saved(Buffers *buffers, const Op *o) {
  for (uint32_t i = loop_whole(o); i < o->nin; i++) {
    if (!value_is_used(o->callee, o->callee->args.at[i + 1])) continue;
    const Op *from = value_def(buffers->f, buffers->root[o->in[i]]);
    if (from && from->code == OP_loop && from != o) mark(buffers, o->in[i], USE_SAVED);
  }
}

/* Where gradients stay whole until the end of the step, they are the operands of its
   reduce-scatter. */
static void mark_whole(Buffers *buffers, const Op *o) {
  if (o->code != OP_all_reduce && o->code != OP_reduce_scatter) return;
  if (buffers->use[buffers->root[o->out]] != USE_GRADIENT) return;
  int stage = plan_zero_stage(buffers->m);
  bool full = stage <= 1 || plan_accumulates_full(buffers->m);
  if (!full || o->code != (stage < 1 ? OP_all_reduce : OP_reduce_scatter)) return;
  if (buffers->root[o->in[0]] == buffers->root[o->out]) return;
  mark(buffers, o->in[0], USE_GRADIENT);
  buffers->use[buffers->root[o->out]] = USE_WORKING;
}

static int64_t workspace_of(const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE ? attr_int(&o->attrs, ATTR_workspace, 0) : 0;
}

/* A part of updated weights in the narrower type that all ranks read, made to be gathered. */
static bool is_published(const Buffers *buffers, const Op *o) {
  const Storage *s = &buffers->f->values.at[o->out].storage;
  bool sent = o->code == OP_all_gather && is_flat(value_type(buffers->f, o->in[0])) &&
              in_frame(buffers, o->in[0]);
  return sent && (s->place == PLACE_GLOBAL ? buffers->m->globals.at[s->slot]->derived
                                           : s->place == PLACE_RESULT);
}

static void find_uses(Buffers *buffers) {
  for (OpId i = 0; i < buffers->f->ops.n; i++) mark_gradients(buffers, &buffers->f->ops.at[i]);
  for (OpId i = 0; i < buffers->f->ops.n; i++) mark_whole(buffers, &buffers->f->ops.at[i]);
  for (OpId i = 0; i < buffers->f->ops.n; i++)
    if (buffers->f->ops.at[i].code == OP_loop) mark_saved(buffers, &buffers->f->ops.at[i]);
  EACH_OP (buffers->f, o) {
    if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
    if (is_published(buffers, o)) mark(buffers, o->in[0], USE_BUFFER);
    if (is_flat(value_type(buffers->f, o->in[0]))) continue;
    bool whole = o->code == OP_all_reduce && attr_get(&o->attrs, ATTR_gradient); /* in no group */
    if (buffers->root[o->out] != buffers->root[o->in[0]]) mark(buffers, o->out, USE_BUFFER);
    mark(buffers, o->in[0], whole ? USE_GRADIENT : USE_BUFFER); /* counted once */
  }
}

static Buffers buffers_of(const Module *m, const Fn *f, Tier t) {
  uint32_t n = f->values.n + 1;
  Buffers buffers = {.m = m, .f = f, .tier = t};
  buffers.use = ARENA_ARRAY(m->arena, Use, n);
  buffers.bytes = ARENA_ARRAY(m->arena, int64_t, n),
  buffers.born = ARENA_ARRAY(m->arena, int64_t, n);
  buffers.dies = ARENA_ARRAY(m->arena, int64_t, n);
  find_buffers(&buffers);
  find_uses(&buffers);
  return buffers;
}

/* Ops in order, with the bytes of the buffers that are alive at each, by use. */
typedef struct AliveSweep {
  const Buffers *buffers;
  int64_t (*change)[USE_COUNT]; /* by op */
  int64_t now[USE_COUNT];
} AliveSweep;

static AliveSweep sweep_of(const Buffers *buffers) {
  OpId n = buffers->f->ops.n;
  AliveSweep sweep = {.buffers = buffers};
  sweep.change = arena_alloc(buffers->m->arena, sizeof *sweep.change * (n + 2));
  memset(sweep.change, 0, sizeof *sweep.change * (n + 2));
  for (ValueId v = 0; v < buffers->f->values.n; v++) {
    if (buffers->root[v] != v || buffers->dies[v] < buffers->born[v] || buffers->dies[v] < 0)
      continue;
    int64_t from = buffers->born[v] < 0 ? 0 : buffers->born[v];
    sweep.change[from][buffers->use[v]] += buffers->bytes[v];
    sweep.change[buffers->dies[v] + 1][buffers->use[v]] -= buffers->bytes[v];
  }
  return sweep;
}

static void sweep_to(AliveSweep *sweep, OpId op) { /* the op after the last one */
  for (int use = 0; use < USE_COUNT; use++) sweep->now[use] += sweep->change[op][use];
}

/* The largest sum of buffers of that use that live at once. */
static int64_t peak(const Module *m, const Fn *f, Use use, Tier t) {
  Buffers buffers = buffers_of(m, f, t);
  AliveSweep sweep = sweep_of(&buffers);
  int64_t most = 0;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    sweep_to(&sweep, i);
    int64_t sum = sweep.now[use];
    if (o->code == OP_loop) sum += peak(m, o->callee, use, t);
    if (use == USE_BUFFER) sum += workspace_of(o); /* of the device */
    if (sum > most) most = sum;
  }
  return most;
}

/* ---- the timeline ---- */

typedef struct BudgetPlace { /* the position of a walk: an op of a function, and of its callers */
  const struct BudgetPlace *outer;
  const Buffers *b;
  OpId op;
  int64_t work;
} BudgetPlace;

typedef struct FrameWalk {
  const Module *m;
  Timeline *out;
  int64_t most;
} FrameWalk;

/* Bytes of an op other than its results: workspace of a kernel, second buffers of a loop. */
static int64_t work_of(const Fn *f, const Op *o) {
  if (o->code != OP_loop) return op_work(o, TIER_device);
  const Attr *slots = attr_get(&o->attrs, ATTR_slots);
  int64_t sum = 0;
  for (int64_t k = 0; slots && k < slots->i; k++)
    if (slots->list[k] >= 0 && value_type(f, o->out + k)->tier == TIER_device)
      sum += value_span_bytes(&f->values.at[o->out + k]);
  return sum;
}

static bool is_alive(const Buffers *buffers, ValueId v, OpId when) {
  return buffers->root[v] == v && buffers->bytes[v] && buffers->born[v] <= when &&
         buffers->dies[v] >= when;
}

static void list_alive(const FrameWalk *frame_walk, const BudgetPlace *place) {
  for (frame_walk->out->alive.n = 0; place; place = place->outer) {
    const Fn *f = place->b->f;
    for (ValueId v = 0; v < f->values.n; v++)
      if (is_alive(place->b, v, place->op))
        vec_push(frame_walk->m->arena, frame_walk->out->alive,
                 (Alive){f, v, place->b->use[v], place->b->bytes[v]});
    Use use = workspace_of(&f->ops.at[place->op]) ? USE_BUFFER : USE_WORKING;
    if (place->work)
      vec_push(frame_walk->m->arena, frame_walk->out->alive,
               (Alive){f, NO_VALUE, use, place->work});
  }
}

static bool is_moment(const Op *o) {
  return o->code == OP_kernel || op_family(o->code) == FAMILY_COLLECTIVE;
}

static void walk(FrameWalk *frame_walk, const Fn *f, const BudgetPlace *outer, const Moment *base) {
  Buffers buffers = buffers_of(frame_walk->m, f, TIER_device);
  AliveSweep sweep = sweep_of(&buffers);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    sweep_to(&sweep, i);
    BudgetPlace here = {outer, &buffers, i, work_of(f, o)};
    Moment now = *base;
    if (o->code != OP_loop && !is_moment(o)) continue;
    now.f = f, now.op = i;
    now.alive[workspace_of(o) ? USE_BUFFER : USE_WORKING] += here.work;
    for (int use = 0; use < USE_COUNT; use++) now.alive[use] += sweep.now[use];
    if (o->code == OP_loop) {
      now.times *= (double)attr_int(&o->attrs, ATTR_trip, 1);
      walk(frame_walk, o->callee, &here, &now);
      continue;
    }
    int64_t sum = 0;
    for (int u = 0; u < USE_COUNT; u++) sum += now.alive[u];
    vec_push(frame_walk->m->arena, frame_walk->out->moment, now);
    if (sum <= frame_walk->most) continue;
    frame_walk->most = sum, frame_walk->out->peak = frame_walk->out->moment.n - 1;
    list_alive(frame_walk, &here);
  }
}

static int larger_first(const void *a, const void *b) {
  const Alive *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  int name = strcmp(x->f->name, y->f->name);
  return name ? name : x->value < y->value ? -1 : x->value > y->value;
}

Timeline module_timeline(const Module *m) {
  Timeline t = {0};
  FrameWalk frame_walk = {m, &t, -1};
  const Fn *step = ir_main_entry(m);
  if (step) walk(&frame_walk, step, NULL, &(Moment){.times = 1});
  if (t.alive.n) qsort(t.alive.at, t.alive.n, sizeof *t.alive.at, larger_first);
  return t;
}

/* ---- the sum ---- */

int64_t module_frame(const Module *m, Tier t) {
  int64_t most = 0;
  EACH_FN (m, f) {
    int64_t n = f->kind == FN_ENTRY ? attr_int(&f->attrs, tier_frame(t), 0) : 0;
    if (n > most) most = n;
  }
  return most;
}

static int64_t take(int64_t *from, int64_t wanted) {
  int64_t n = wanted < *from ? wanted : *from;
  *from -= n;
  return n;
}

int64_t module_counters(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      int64_t n = o->code == OP_loop ? loop_first(o) + attr_int(&o->attrs, ATTR_trip, 0) : 0;
      if (n > most) most = n;
    }
  return most;
}

int64_t module_move_slot(const Module *m) {
  double most = 0;
  for (uint32_t i = 0; module_on_gpu(m) && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Moves x = op_moves(m->fns.at[i], &m->fns.at[i]->ops.at[k]);
      if (x.down + x.up > most) most = x.down + x.up;
    }
  return most < LARGEST_SLOT ? round_up((int64_t)most, CACHE_LINE) : LARGEST_SLOT;
}

/* Does it run kernels on the GPU, concurrently with which copies may wait in slots? */
static bool computes_here(const Module *m, const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_kernel && !kernel_on_host(m, f->ops.at[i].callee)) return true;
  return false;
}

/* Slots that a body needs for moves in one direction, and a delayed step for the downloads before
   its first loop, which may have to wait for the host to end the step before. */
static int64_t slots_of(const Module *m, const Fn *f, int64_t slot, bool up) {
  int64_t n = 0;
  bool delayed = !up && fn_phase(f) == PHASE_late;
  if ((f->kind != FN_BODY && !delayed) || !computes_here(m, f)) return 0;
  for (OpId i = 0; i < f->ops.n && !(delayed && f->ops.at[i].code == OP_loop); i++) {
    Moves moves = op_moves(f, &f->ops.at[i]);
    n += ceil_div((int64_t)(up ? moves.up : moves.down), slot);
  }
  return n;
}

int64_t module_move_slots(const Module *m, bool up) {
  int64_t slot = module_move_slot(m), most = 2;
  for (uint32_t i = 0; slot && i < m->fns.n; i++) {
    int64_t n = slots_of(m, m->fns.at[i], slot, up);
    if (n > most) most = n;
  }
  return !slot ? 0 : most < MOVE_SLOTS ? most : MOVE_SLOTS;
}

static int64_t move_slots(const Module *m) {
  return (module_move_slots(m, false) + module_move_slots(m, true)) * module_move_slot(m);
}

/* In which what is sent to neighbours waits. */
static int64_t send_slots(const Module *m) { return module_send_slots(m) * module_send_slot(m); }

int64_t module_slots(const Module *m) {
  return module_on_gpu(m) ? send_slots(m) + move_slots(m) : 0;
}

int64_t module_device_words(const Module *m) {
  int64_t counters = round_up(4 * module_counters(m), CACHE_LINE);
  return module_on_gpu(m) ? counters + 64 + module_slots(m) + module_ahead(m) : 0;
}

HostBudget module_host(const Module *m) {
  const Fn *step = ir_main_entry(m);
  HostBudget budget = {.working = module_frame(m, TIER_host), .snapshot = module_snapshot(m)};
  budget.gradients = step ? take(&budget.working, peak(m, step, USE_GRADIENT, TIER_host)) : 0;
  EACH_GLOBAL (m, global) {
    int64_t bytes = round_up(global_bytes(m, global), CACHE_LINE);
    if (!global->within && global->type.tier == TIER_host)
      *(global->kind == GLOBAL_PARAM ? &budget.weights : &budget.optimizer) += bytes;
  }
  budget.saved = step ? take(&budget.working, peak(m, step, USE_SAVED, TIER_host)) : 0;
  budget.total = budget.weights + budget.gradients + budget.optimizer + budget.saved +
                 budget.working + budget.snapshot;
  return budget;
}

/* ---- traffic ---- */

Budget module_budget(const Module *m) {
  Budget budget = {0};
  const Fn *step = ir_main_entry(m);
  int64_t other = module_device_words(m), frame = module_frame(m, TIER_device);
  EACH_GLOBAL (m, global) {
    int64_t bytes = round_up(global_bytes(m, global), CACHE_LINE);
    if (global->within || global->type.tier != TIER_device) continue;
    *(global->kind == GLOBAL_PARAM        ? &budget.weights
      : global->kind == GLOBAL_STATE      ? &budget.optimizer
      : step && global_is_sampled(global) ? &budget.sampling
                                          : &other) += bytes;
  }
  budget.total = budget.weights + budget.optimizer + other + frame;
  budget.gradients = take(&frame, step ? peak(m, step, USE_GRADIENT, TIER_device) : 0);
  budget.buffers = take(&frame, step ? peak(m, step, USE_BUFFER, TIER_device) : 0);
  budget.buffers += take(&other, module_slots(m));
  budget.saved = take(&frame, step ? peak(m, step, USE_SAVED, TIER_device) : 0);
  budget.working = frame + other;
  budget.host = module_host(m).total, budget.apart = module_on_gpu(m);
  return budget;
}

Moves op_moves(const Fn *f, const Op *o) {
  if (o->code != OP_move) return (Moves){0};
  const Type *t = value_type(f, o->out);
  double bytes = (double)type_count(t) * elem_bytes(t->elem);
  return t->tier == TIER_device ? (Moves){.up = bytes, .calls = 1}
                                : (Moves){.down = bytes, .calls = 1};
}

static void add_moves(const Fn *f, double times, Moves *sum) {
  EACH_OP (f, o) {
    if (o->code == OP_loop)
      add_moves(o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), sum);
    Moves one = op_moves(f, o);
    sum->down += times * one.down, sum->up += times * one.up, sum->calls += times * one.calls;
  }
}

Moves entry_moves(const Fn *entry) {
  Moves sum = {0};
  if (entry) add_moves(entry, 1, &sum);
  return sum;
}

Moves module_moves(const Module *m) { return entry_moves(ir_main_entry(m)); }

double message_traffic(const Fn *f, const Op *o) {
  int64_t out = type_count(value_type(f, o->out));
  return collective_elements(o->code, o->nin ? type_count(value_type(f, o->in[0])) : out, out);
}

static Traffic *row_for(const Module *m, TrafficList *list, OpCode kind, int axis) {
  uint32_t at = 0;
  while (at < list->n &&
         (list->at[at].axis < axis || (list->at[at].axis == axis && list->at[at].kind < kind)))
    at++;
  if (at < list->n && list->at[at].axis == axis && list->at[at].kind == kind) return &list->at[at];
  vec_push(m->arena, *list, (Traffic){0});
  for (uint32_t i = list->n - 1; i > at; i--) list->at[i] = list->at[i - 1];
  list->at[at] = (Traffic){.kind = kind, .axis = axis};
  return &list->at[at];
}

static void add_traffic(const Module *m, const Fn *f, double times, TrafficList *list) {
  EACH_OP (f, o) {
    if (o->code == OP_loop)
      add_traffic(m, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), list);
    if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
    Traffic *traffic = row_for(m, list, o->code, mesh_find(m, attr_str(&o->attrs, ATTR_axis, "")));
    double n = times * message_traffic(f, o);
    Message message = message_of(f, o);
    traffic->calls += times * (double)(message.times * message.pieces), traffic->elements += n;
    traffic->bytes += n * elem_bytes(value_type(f, o->out)->elem);
    if (message.bytes > traffic->largest) traffic->largest = message.bytes;
  }
}

TrafficList entry_traffic(const Module *m, const Fn *entry) {
  TrafficList list = {0};
  if (entry) add_traffic(m, entry, 1, &list);
  return list;
}

TrafficList module_traffic(const Module *m) { return entry_traffic(m, ir_main_entry(m)); }

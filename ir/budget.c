/* Budgets and traffic of a module after `memory` (budget.h).

   A buffer is a class of values that share bytes: a value and the views and in-place values of it.
   What it is for follows from who uses it:
     gradient   read by a kernel that makes parameters or states, and not made of these alone
     saved      leaves one loop stacked and enters another one stacked
     buffer     what is there to be sent or received alone: values of collectives, workspaces in
                which their blocks are put end to end, parts of weights made for a gather. Flat
                groups go from unreduced gradients and into gathered weights, where these lie
   The figure of a kind is the largest sum of such buffers that live at once, bodies of loops
   included. Paper counting: all_reduce 2z, reduce_scatter and all_gather z, all_to_all what a rank
   holds of the result (placement.h says z). */
#include "budget.h"
#include "stage_class.h"
#include "ir/support/num.h"
#include "loop.h"
#include "count.h"
#include "message.h"
#include "send_pairs.h"
#include "placement.h"
#include "module_settings.h"
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

static bool in_frame(const Buffers *b, ValueId v) {
  const Value *x = &b->f->values.at[v];
  return x->storage.place == PLACE_FRAME && x->type.tier == b->tier;
}

static void find_buffers(Buffers *b) {
  b->root = shared_bytes(b->m->arena, b->f).of;
  for (ValueId v = 0; v < b->f->values.n; v++) b->born[v] = b->f->ops.n, b->dies[v] = -1;
  for (ValueId v = 0; v < b->f->values.n; v++) {
    const Value *x = &b->f->values.at[v];
    ValueId r = b->root[v];
    int64_t born = x->def == NO_OP ? -1 : (int64_t)x->def;
    if (born < b->born[r]) b->born[r] = born;
    int64_t bytes = x->storage.view == VIEW_OF || !in_frame(b, v) ? 0 : value_span_bytes(x);
    if (bytes > b->bytes[r]) b->bytes[r] = bytes;
    if (x->def != NO_OP && (int64_t)x->def > b->dies[r]) b->dies[r] = x->def;
  }
  for (OpId i = 0; i < b->f->ops.n; i++)
    for (uint32_t k = 0; k < b->f->ops.at[i].nin; k++) {
      int64_t *dies = &b->dies[b->root[b->f->ops.at[i].in[k]]];
      if (i > *dies) *dies = i;
    }
}

/* ---- what for ---- */

static void mark(Buffers *b, ValueId v, Use use) {
  ValueId r = b->root[v];
  if (b->use[r] == USE_WORKING && in_frame(b, v)) b->use[r] = use;
}

static bool is_kept(const Buffers *b, ValueId v) {
  const Storage *s = &b->f->values.at[v].storage;
  if (s->place != PLACE_GLOBAL) return false;
  GlobalKind k = b->m->globals.at[s->slot]->kind;
  return k == GLOBAL_PARAM || k == GLOBAL_STATE;
}

/* Stored to a parameter or state, there or by a copy. */
static bool is_update(const Buffers *b, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++) {
    if (is_kept(b, o->out + i)) return true;
    for (OpId k = 0; k < b->f->ops.n; k++) {
      const Op *s = &b->f->ops.at[k];
      if (s->code == OP_store && s->in[0] == o->out + i && s->global->kind == GLOBAL_STATE)
        return true;
    }
  }
  return false;
}

/* A part of a parameter taken out for its update is no gradient. */
static bool made_of_kept(const Buffers *b, ValueId v) {
  const Op *o = value_def(b->f, v);
  while (o && op_flags(o->code) & VIEW && o->nin == 1) o = value_def(b->f, o->in[0]);
  if (!o || o->code != OP_kernel) return false;
  for (uint32_t i = 0; i < o->nin; i++)
    if (in_frame(b, o->in[i]) && value_type(b->f, o->in[i])->rank) return false;
  return true;
}

/* An update reads them here, or there. */
static void mark_gradients(Buffers *b, const Op *o) {
  bool leaves = o->code == OP_move && value_type(b->f, o->out)->tier != TIER_device;
  if (b->f->kind != FN_ENTRY || !(leaves || (o->code == OP_kernel && is_update(b, o)))) return;
  for (uint32_t i = 0; i < o->nin; i++)
    if (value_type(b->f, o->in[i])->rank && !made_of_kept(b, o->in[i]))
      mark(b, o->in[i], USE_GRADIENT);
}

/* What the body reads of a stack; one that it only goes on with is no saved value. */
static void mark_saved(Buffers *b, const Op *o) {
  for (uint32_t i = loop_whole(o); i < o->nin; i++) {
    if (!value_is_used(o->callee, o->callee->args.at[i + 1])) continue;
    const Op *from = value_def(b->f, b->root[o->in[i]]);
    if (from && from->code == OP_loop && from != o) mark(b, o->in[i], USE_SAVED);
  }
}

/* Where gradients stay whole until the end of the step, they are what is scattered there. */
static void mark_whole(Buffers *b, const Op *o) {
  int stage = plan_zero_stage(b->m);
  bool full = stage <= 1 || plan_accumulates_full(b->m);
  bool sums = o->code == (stage < 1 ? OP_all_reduce : OP_reduce_scatter);
  if (!full || !sums || b->use[b->root[o->out]] != USE_GRADIENT) return;
  if (b->root[o->in[0]] == b->root[o->out]) return;
  mark(b, o->in[0], USE_GRADIENT);
  b->use[b->root[o->out]] = USE_WORKING;
}

static int64_t workspace_of(const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE ? attr_int(&o->attrs, ATTR_workspace, 0) : 0;
}

/* Of a flat group of parameters (pass zero), or numbers of one? */
static bool is_flat(const Type *t) {
  for (int i = 0; i < t->rank; i++)
    if (!strncmp(t->axis[i].dim, "Owner_", 6)) return true;
  return false;
}

/* A part of updated weights in the narrower type that all ranks read, made to be gathered. */
static bool is_published(const Buffers *b, const Op *o) {
  const Storage *s = &b->f->values.at[o->out].storage;
  bool sent =
      o->code == OP_all_gather && is_flat(value_type(b->f, o->in[0])) && in_frame(b, o->in[0]);
  return sent &&
         (s->place == PLACE_GLOBAL ? b->m->globals.at[s->slot]->derived : s->place == PLACE_RESULT);
}

static void find_uses(Buffers *b) {
  for (OpId i = 0; i < b->f->ops.n; i++) mark_gradients(b, &b->f->ops.at[i]);
  for (OpId i = 0; i < b->f->ops.n; i++) mark_whole(b, &b->f->ops.at[i]);
  for (OpId i = 0; i < b->f->ops.n; i++)
    if (b->f->ops.at[i].code == OP_loop) mark_saved(b, &b->f->ops.at[i]);
  for (OpId i = 0; i < b->f->ops.n; i++) {
    const Op *o = &b->f->ops.at[i];
    if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
    if (is_published(b, o)) mark(b, o->in[0], USE_BUFFER);
    if (!is_flat(value_type(b->f, o->in[0])))
      mark(b, o->in[0], USE_BUFFER), mark(b, o->out, USE_BUFFER);
  }
}

static Buffers buffers_of(const Module *m, const Fn *f, Tier t) {
  uint32_t n = f->values.n + 1;
  Buffers b = {.m = m, .f = f, .tier = t};
  b.use = ARENA_ARRAY(m->arena, Use, n);
  b.bytes = ARENA_ARRAY(m->arena, int64_t, n), b.born = ARENA_ARRAY(m->arena, int64_t, n);
  b.dies = ARENA_ARRAY(m->arena, int64_t, n);
  find_buffers(&b);
  find_uses(&b);
  return b;
}

/* The largest sum of buffers of that use that live at once. */
static int64_t peak(const Module *m, const Fn *f, Use use, Tier t) {
  Buffers b = buffers_of(m, f, t);
  int64_t most = 0;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    int64_t sum = o->code == OP_loop ? peak(m, o->callee, use, t) : 0;
    if (use == USE_BUFFER) sum += workspace_of(o); /* of the device */
    for (ValueId v = 0; v < f->values.n; v++)
      if (b.root[v] == v && b.use[v] == use && b.born[v] <= i && b.dies[v] >= i) sum += b.bytes[v];
    if (sum > most) most = sum;
  }
  return most;
}

/* ---- the timeline ---- */

typedef struct
    BudgetPlace { /* where a walk stands: an op of a function, and of those that call it */
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

/* What an op has beside its results: workspace of a kernel, second buffers of a loop. */
static int64_t work_of(const Fn *f, const Op *o) {
  if (o->code != OP_loop) return op_work(o, TIER_device);
  const Attr *slots = attr_get(&o->attrs, ATTR_slots);
  int64_t sum = 0;
  for (int64_t k = 0; slots && k < slots->i; k++)
    if (slots->list[k] >= 0 && value_type(f, o->out + k)->tier == TIER_device)
      sum += value_span_bytes(&f->values.at[o->out + k]);
  return sum;
}

static bool is_alive(const Buffers *b, ValueId v, OpId when) {
  return b->root[v] == v && b->bytes[v] && b->born[v] <= when && b->dies[v] >= when;
}

static void list_alive(const FrameWalk *w, const BudgetPlace *p) {
  for (w->out->alive.n = 0; p; p = p->outer) {
    const Fn *f = p->b->f;
    for (ValueId v = 0; v < f->values.n; v++)
      if (is_alive(p->b, v, p->op))
        vec_push(w->m->arena, w->out->alive, (Alive){f, v, p->b->use[v], p->b->bytes[v]});
    Use use = workspace_of(&f->ops.at[p->op]) ? USE_BUFFER : USE_WORKING;
    if (p->work) vec_push(w->m->arena, w->out->alive, (Alive){f, NO_VALUE, use, p->work});
  }
}

static bool is_moment(const Op *o) {
  return o->code == OP_kernel || op_family(o->code) == FAMILY_COLLECTIVE;
}

static void walk(FrameWalk *w, const Fn *f, const BudgetPlace *outer, const Moment *base) {
  Buffers b = buffers_of(w->m, f, TIER_device);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    BudgetPlace here = {outer, &b, i, work_of(f, o)};
    Moment now = *base;
    if (o->code != OP_loop && !is_moment(o)) continue;
    now.f = f, now.op = i;
    now.alive[workspace_of(o) ? USE_BUFFER : USE_WORKING] += here.work;
    for (ValueId v = 0; v < f->values.n; v++)
      if (is_alive(&b, v, i)) now.alive[b.use[v]] += b.bytes[v];
    if (o->code == OP_loop) {
      now.times *= (double)attr_int(&o->attrs, ATTR_trip, 1);
      walk(w, o->callee, &here, &now);
      continue;
    }
    int64_t sum = 0;
    for (int u = 0; u < USE_COUNT; u++) sum += now.alive[u];
    vec_push(w->m->arena, w->out->moment, now);
    if (sum <= w->most) continue;
    w->most = sum, w->out->peak = w->out->moment.n - 1;
    list_alive(w, &here);
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
  FrameWalk w = {m, &t, -1};
  const Fn *step = ir_main_entry(m);
  if (step) walk(&w, step, NULL, &(Moment){.times = 1});
  if (t.alive.n) qsort(t.alive.at, t.alive.n, sizeof *t.alive.at, larger_first);
  return t;
}

/* ---- the sum ---- */

int64_t module_frame(const Module *m, Tier t) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
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
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) {
      const Op *o = &m->fns.at[i]->ops.at[j];
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

/* Of what its ops move one way. */
static int64_t slots_of(const Fn *f, int64_t slot, bool up) {
  int64_t n = 0;
  for (OpId i = 0; f->kind == FN_BODY && i < f->ops.n; i++) {
    Moves x = op_moves(f, &f->ops.at[i]);
    n += ceil_div((int64_t)(up ? x.up : x.down), slot);
  }
  return n;
}

int64_t module_move_slots(const Module *m, bool up) {
  int64_t slot = module_move_slot(m), most = 2;
  for (uint32_t i = 0; slot && i < m->fns.n; i++) {
    int64_t n = slots_of(m->fns.at[i], slot, up);
    if (n > most) most = n;
  }
  return !slot ? 0 : most < MOVE_SLOTS ? most : MOVE_SLOTS;
}

static int64_t move_slots(const Module *m) {
  return (module_move_slots(m, false) + module_move_slots(m, true)) * module_move_slot(m);
}

int64_t module_device_words(const Module *m) {
  int64_t counters = round_up(4 * module_counters(m), CACHE_LINE);
  int64_t slots = module_send_slot(m) + move_slots(m);
  return module_on_gpu(m) ? counters + 64 + slots + module_ahead(m) : 0;
}

HostBudget module_host(const Module *m) {
  const Fn *step = ir_main_entry(m);
  HostBudget b = {.working = module_frame(m, TIER_host)};
  b.gradients = step ? take(&b.working, peak(m, step, USE_GRADIENT, TIER_host)) : 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t bytes = round_up(global_bytes(m, g), CACHE_LINE);
    if (!g->within && g->type.tier == TIER_host)
      *(g->kind == GLOBAL_PARAM ? &b.weights : &b.optimizer) += bytes;
  }
  b.saved = step ? take(&b.working, peak(m, step, USE_SAVED, TIER_host)) : 0;
  b.total = b.weights + b.gradients + b.optimizer + b.saved + b.working;
  return b;
}

/* ---- traffic ---- */

Budget module_budget(const Module *m) {
  Budget b = {0};
  const Fn *step = ir_main_entry(m);
  int64_t other = module_device_words(m), frame = module_frame(m, TIER_device);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t bytes = round_up(global_bytes(m, g), CACHE_LINE);
    if (g->within || g->type.tier != TIER_device) continue;
    *(g->kind == GLOBAL_PARAM        ? &b.weights
      : g->kind == GLOBAL_STATE      ? &b.optimizer
      : step && global_is_sampled(g) ? &b.sampling
                                     : &other) += bytes;
  }
  b.total = b.weights + b.optimizer + other + frame;
  b.gradients = take(&frame, step ? peak(m, step, USE_GRADIENT, TIER_device) : 0);
  b.buffers = take(&frame, step ? peak(m, step, USE_BUFFER, TIER_device) : 0);
  b.buffers += take(&other, module_send_slot(m) + move_slots(m));
  b.saved = take(&frame, step ? peak(m, step, USE_SAVED, TIER_device) : 0);
  b.working = frame + other;
  b.host = module_host(m).total, b.apart = module_on_gpu(m);
  return b;
}

Moves op_moves(const Fn *f, const Op *o) {
  if (o->code != OP_move) return (Moves){0};
  const Type *t = value_type(f, o->out);
  double bytes = (double)type_count(t) * elem_bytes(t->elem);
  return t->tier == TIER_device ? (Moves){.up = bytes, .calls = 1}
                                : (Moves){.down = bytes, .calls = 1};
}

static void add_moves(const Fn *f, double times, Moves *sum) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
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
  double out = (double)type_count(value_type(f, o->out));
  return o->code == OP_all_reduce       ? 2 * out
         : o->code == OP_reduce_scatter ? (double)type_count(value_type(f, o->in[0]))
         : o->code == OP_receive        ? 0 /* counted where it is sent */
                                        : out;
}

static Traffic *row_for(const Module *m, TrafficList *l, OpCode kind, int axis) {
  uint32_t at = 0;
  while (at < l->n && (l->at[at].axis < axis || (l->at[at].axis == axis && l->at[at].kind < kind)))
    at++;
  if (at < l->n && l->at[at].axis == axis && l->at[at].kind == kind) return &l->at[at];
  vec_push(m->arena, *l, (Traffic){0});
  for (uint32_t i = l->n - 1; i > at; i--) l->at[i] = l->at[i - 1];
  l->at[at] = (Traffic){.kind = kind, .axis = axis};
  return &l->at[at];
}

static void add_traffic(const Module *m, const Fn *f, double times, TrafficList *l) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop)
      add_traffic(m, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), l);
    if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
    Traffic *t = row_for(m, l, o->code, mesh_find(m, attr_str(&o->attrs, ATTR_axis, "")));
    double n = times * message_traffic(f, o);
    Message x = message_of(f, o);
    t->calls += times * (double)(x.times * x.pieces), t->elements += n;
    t->bytes += n * elem_bytes(value_type(f, o->out)->elem);
    if (x.bytes > t->largest) t->largest = x.bytes;
  }
}

TrafficList entry_traffic(const Module *m, const Fn *entry) {
  TrafficList l = {0};
  if (entry) add_traffic(m, entry, 1, &l);
  return l;
}

TrafficList module_traffic(const Module *m) { return entry_traffic(m, ir_main_entry(m)); }

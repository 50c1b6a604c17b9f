/* Messages of one function in flight (ir/flight.h): which can, from where to where, and the
   function with its starts and waits.

   `zero prefetch = n`: a body's all-gathers of what the loop hands it slice by slice, which are the
   gathers of stage 3, are started n rounds before the round that reads them; n + 1 buffers of each.
   `zero overlap`: a body's reduce-scatters that go straight into stacked results are waited for one
   round later, and what they leave is sent on meanwhile; any other collective with a kernel or loop
   between the op that makes what it sends, and the first one that needs what it receives, flies in
   between. A gather of weights, whose operand is there from the start, starts in front of the last
   loop before it, or with the function: further up it would only need memory for longer. A sum in
   place starts where its operand was last touched: that costs no memory.

   Runs behind `schedule`: order is final, and views stand right before their first reader, so the
   first reader of a result is where its wait belongs. The kernels are not touched, so no bit of a
   number depends on the two words. Must not: move kernels; choose by anything but the module. */
#include "passes/prefetch.h"
#include "ir/message.h"
#include "ir/stage_class.h"
#include "ir/view.h"

typedef struct Plan { /* for one collective */
  bool flies;
  int64_t rounds;
  OpId from, to;   /* it starts before op `from`, and is waited for before op `to` */
  const char *why; /* it does not, where messages may; NULL: it does, or they may not */
} Plan;

typedef struct PrefetchPass {
  Module *m;
  const Fn *f, *as; /* as it was; what stands in the module */
  const ValueId *class;
  int64_t ahead; /* rounds */
  bool overlap;
  const bool *stays;
  Plan *plan; /* by op */
} PrefetchPass;

static const Value *value(const PrefetchPass *p, ValueId v) { return &p->f->values.at[v]; }

/* ---- over rounds ---- */

/* Is that operand (of the first `whole`: no slice), or result, a slice in all loops over f? */
static bool is_slice(const PrefetchPass *p, bool operand, uint32_t number) {
  bool any = false;
  for (uint32_t i = 0; i < p->m->fns.n; i++)
    for (OpId k = 0; k < p->m->fns.at[i]->ops.n; k++) {
      const Op *o = &p->m->fns.at[i]->ops.at[k];
      if (o->callee != p->as || o->code != OP_loop) continue;
      LoopShape s = loop_shape(o);
      if (number < (operand ? s.carry + s.invariant : s.carry)) return false;
      any |= s.trip > 1;
    }
  return any;
}

static bool in_caller(const PrefetchPass *p, ValueId v) {
  return flight_in_caller(p->f, p->class, v);
}

static bool can_fetch(const PrefetchPass *p, const Op *o) {
  const Value *from = value(p, o->in[0]);
  return o->code == OP_all_gather && op_can_cross(o) && from->def == NO_OP && from->result > 0 &&
         is_slice(p, true, from->result - 1) && p->class[o->out] == o->out && !in_caller(p, o->out);
}

/* Does an op write into the bytes of that class? */
static bool writes(const PrefetchPass *p, const Op *o, ValueId class) {
  for (uint32_t k = 0; k < o->nout; k++)
    if (p->class[o->out + k] == class && value(p, o->out + k)->storage.view != VIEW_OF) return true;
  return false;
}

static bool is_inplace(const PrefetchPass *p, const Op *o) {
  return value(p, o->out)->storage.view == VIEW_INPLACE;
}

/* The reduce-scatter or all-reduce in place that sends on what o leaves; NULL: none does. */
static const Op *sender_on(const PrefetchPass *p, const Op *o) {
  for (OpId i = (OpId)(o - p->f->ops.at) + 1; i < p->f->ops.n; i++) {
    const Op *q = &p->f->ops.at[i];
    bool sums = q->code == OP_reduce_scatter || (q->code == OP_all_reduce && is_inplace(p, q));
    if (sums && op_can_cross(q) && q->in[0] == o->out) return q;
  }
  return NULL;
}

/* Nothing but the ops of its chain lies in the bytes of v. */
static bool is_alone(const PrefetchPass *p, const Op *o, const Op *next) {
  for (ValueId w = 0; w < p->f->values.n; w++)
    if (w != o->out && p->class[w] == p->class[o->out] && (!next || w != next->out) &&
        !(is_inplace(p, o) && w == o->in[0]))
      return false;
  return true;
}

static uint32_t count_readers(const PrefetchPass *p, ValueId v) {
  uint32_t n = 0;
  for (OpId i = 0; i < p->f->ops.n; i++)
    for (uint32_t k = 0; k < p->f->ops.at[i].nin; k++) n += p->f->ops.at[i].in[k] == v;
  return n;
}

/* Does o leave its value, alone, in a stacked result, or send it on to one that does? */
static bool leaves(const PrefetchPass *p, const Op *o) {
  const Op *next = sender_on(p, o);
  uint32_t returned = UINT32_MAX, times = 0;
  for (uint32_t i = 0; i < p->f->results.n; i++)
    if (p->f->results.at[i] == o->out) returned = i, times++;
  if (count_readers(p, o->out) != (next ? 1 : 0) || !is_alone(p, o, next)) return false;
  return next ? !times && leaves(p, next) : times == 1 && is_slice(p, false, returned);
}

static bool can_drain(const PrefetchPass *p, OpId id) {
  const Op *o = &p->f->ops.at[id], *before = value_def(p->f, o->in[0]);
  bool behind = before && before < o && sender_on(p, before) == o &&
                p->plan[before - p->f->ops.at].rounds == 1;
  if (!p->overlap || !op_can_cross(o) || !leaves(p, o)) return false;
  if (behind) return true;
  for (OpId i = id + 1; i < p->f->ops.n; i++)
    if (writes(p, &p->f->ops.at[i], p->class[o->in[0]])) return false;
  return o->code == OP_reduce_scatter && !in_caller(p, o->in[0]);
}

/* ---- in one function ---- */

static bool reads(const Op *o, ValueId v) {
  for (uint32_t k = 0; k < o->nin; k++)
    if (o->in[k] == v) return true;
  return false;
}

/* Does the store copy over the global whose value is sent from where it lies? */
static bool stores_over(const PrefetchPass *p, const Op *o, ValueId sent) {
  const Op *load = value_def(p->f, p->class[sent]);
  return o->code == OP_store && load && load->code == OP_load && load->global == o->global;
}

static OpId needed_at(const PrefetchPass *p, OpId id) {
  const Op *o = &p->f->ops.at[id];
  for (OpId i = id + 1; i < p->f->ops.n; i++) {
    const Op *next = &p->f->ops.at[i];
    if (reads(next, o->out) || writes(p, next, p->class[o->in[0]]) ||
        stores_over(p, next, o->in[0]))
      return i;
  }
  return p->f->ops.n;
}

static bool touches(const PrefetchPass *p, const Op *o, ValueId class) {
  for (uint32_t k = 0; k < o->nin; k++)
    if (p->class[o->in[k]] == class) return true;
  for (uint32_t k = 0; k < o->nout; k++)
    if (p->class[o->out + k] == class) return true;
  return false;
}

/* Is there something before op `at` that flies and lets go of these bytes just in front of it? */
static bool lets_go(const PrefetchPass *p, OpId at, ValueId class) {
  for (OpId i = 0; i < at; i++)
    if (p->plan[i].flies && p->plan[i].to == at && touches(p, &p->f->ops.at[i], class)) return true;
  return false;
}

/* What is sent is there from the start: the gather may begin before the loop in front of it. */
static OpId ready_at(const PrefetchPass *p, OpId id) {
  const Op *o = &p->f->ops.at[id], *def = value_def(p->f, o->in[0]);
  ValueId class = p->class[o->in[0]];
  if (is_inplace(p, o)) {
    while (id && !touches(p, &p->f->ops.at[id - 1], class) && !lets_go(p, id, class)) id--;
    return id;
  }
  if (o->code != OP_all_gather || (def && def->code != OP_load)) return id;
  for (OpId i = id; i-- > 0;)
    if (p->f->ops.at[i].code == OP_loop) return i;
  return 0;
}

static bool hides(const PrefetchPass *p, OpId id, OpId from, OpId to) {
  for (OpId i = from; i < to; i++)
    if (i != id && (p->f->ops.at[i].code == OP_kernel || p->f->ops.at[i].code == OP_loop))
      return true;
  return false;
}

static bool asked_ahead(const PrefetchPass *p) {
  Ahead a = flights_ahead(p->m);
  return a.layers > 0 || a.bytes > 0;
}

/* Classes of stages are different programs: what all stages send each other has to keep its order
   in all of them, so it stays where it stands. */
static bool between_classes(const PrefetchPass *p, const Op *o) {
  StageClass c = module_class(p->m);
  return *c.name && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), p->m->mesh.at[c.axis].name);
}

static Plan plan_for(const PrefetchPass *p, OpId id) {
  const Op *o = &p->f->ops.at[id];
  if (!op_can_fly(o)) return (Plan){0};
  if (between_classes(p, o))
    return (Plan){.why = p->overlap ? "stages have programs of their own" : NULL};
  Plan x = {true, 0, id, needed_at(p, id), NULL};
  if (p->stays && p->stays[id]) return (Plan){.why = "hides nothing"};
  if (can_drain(p, id)) return x.rounds = 1, x;
  if (p->ahead > 0 && can_fetch(p, o)) return x.rounds = -p->ahead, x;
  x.from = ready_at(p, id);
  x.flies = p->overlap && hides(p, id, x.from, x.to);
  if (!x.flies && asked_ahead(p) && can_fetch(p, o)) x.why = "hides nothing";
  else if (!x.flies && p->overlap) x.why = "needed at once";
  return x;
}

/* ---- the function with starts and waits ---- */

static void add_start(Rebuild *r, const Op *o, const Plan *x) {
  must(x->flies && op_can_fly(o), "prefetch: %s cannot fly", op_name(o->code));
  const Op *from = value_def(r->from, o->in[0]);
  if (r->map[o->in[0]] == NO_VALUE) rebuild_op(r, from); /* a load that stood further down */
  Op *start = rebuild_op(r, o);
  attr_set_int(r->m, &start->attrs, ATTR_flight, x->rounds);
}

/* From here on the wait stands for the result. */
static void add_wait(Rebuild *r, const Op *o) {
  must(r->map[o->out] != NO_VALUE, "prefetch: %s is waited for before it is started",
       op_name(o->code));
  ValueId out = r->map[o->out], in[2] = {out, r->map[o->in[0]]};
  bool inplace = r->to->values.at[out].storage.view == VIEW_INPLACE;
  Type t = r->to->values.at[out].type;
  Op *wait = fn_op(r->m, r->to, OP_wait, inplace ? 1 : 2, in, 1, &t, o->loc);
  Value *v = &r->to->values.at[wait->out];
  if (!view_layout(r->to, wait, 0, &v->type, &v->storage)) bug("prefetch: a wait is no view");
  r->map[o->out] = wait->out;
}

static void add_starts_and_waits(const PrefetchPass *p, Rebuild *r, OpId at) {
  for (OpId i = 0; i < p->f->ops.n; i++)
    if (p->plan[i].flies && p->plan[i].from == at && i != at)
      add_start(r, &p->f->ops.at[i], &p->plan[i]);
  for (OpId i = 0; i < p->f->ops.n; i++)
    if (p->plan[i].flies && p->plan[i].rounds <= 0 && p->plan[i].to == at)
      add_wait(r, &p->f->ops.at[i]);
}

static void add_op(const PrefetchPass *p, Rebuild *r, OpId id) {
  const Op *o = &p->f->ops.at[id];
  const Plan *x = &p->plan[id];
  if (x->flies && x->from != id) return;
  if (x->flies) add_start(r, o, x);
  else if (o->code != OP_load || r->map[o->out] == NO_VALUE) {
    Op *copy = rebuild_op(r, o);
    if (x->why) attr_set_str(r->m, &copy->attrs, ATTR_blocking, intern(r->m->ctx->names, x->why));
  }
}

/* Views of what a wait shows show the value itself, as those of other views do. */
static void root_views(Fn *f) {
  for (ValueId v = 0; v < f->values.n; v++) {
    Storage *s = &f->values.at[v].storage;
    const Op *def = s->view == VIEW_OF ? value_def(f, s->base) : NULL;
    if (def && def->code == OP_wait) s->base = def->in[0];
  }
}

/* Which op each one is, by what it makes: an op without results is no message. */
static OpId *origins(const Rebuild *r) {
  OpId *of = ARENA_ARRAY(r->m->arena, OpId, r->to->ops.n + 1);
  for (OpId i = 0; i < r->to->ops.n; i++) of[i] = NO_OP;
  for (OpId i = 0; i < r->from->ops.n; i++) {
    const Op *o = &r->from->ops.at[i];
    const Op *to = o->nout && r->map[o->out] != NO_VALUE ? value_def(r->to, r->map[o->out]) : NULL;
    if (to && to->code == OP_wait) to = value_def(r->to, to->in[0]);
    if (to) of[to - r->to->ops.at] = i;
  }
  return of;
}

static Flown with_flights(const PrefetchPass *p) {
  Rebuild r = rebuild_begin(p->m, p->f);
  for (uint32_t i = 0; i < p->f->args.n; i++)
    r.to->values.at[r.map[p->f->args.at[i]]] = p->f->values.at[p->f->args.at[i]];
  for (OpId i = 0; i < p->f->ops.n; i++) add_starts_and_waits(p, &r, i), add_op(p, &r, i);
  add_starts_and_waits(p, &r, p->f->ops.n);
  rebuild_results(&r);
  root_views(r.to);
  return (Flown){r.to, origins(&r)};
}

static PrefetchPass prefetch_of(Module *m, const Fn *f, const Fn *as) {
  return (PrefetchPass){.m = m, .f = f, .as = as, .class = shared_bytes(m->arena, f).of};
}

int64_t prefetch_rounds(const Module *m, const Fn *f) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      int64_t rounds = o->callee == f && o->code == OP_loop ? loop_shape(o).trip - 1 : 0;
      if (rounds > most) most = rounds;
    }
  return most;
}

static int64_t round_bytes(Module *m, const Fn *f, const Fn *as) {
  PrefetchPass p = prefetch_of(m, f, as);
  int64_t bytes = 0;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (can_fetch(&p, o)) bytes += value_span_bytes(&f->values.at[o->out]);
  }
  return bytes;
}

int64_t prefetch_round_bytes(Module *m, const Fn *f) { return round_bytes(m, f, f); }

static int64_t rounds_ahead(Module *m, const Fn *f, const Fn *as, const FlightsAsked *w) {
  int64_t bytes = w->ahead.bytes ? round_bytes(m, f, as) : 0, most = prefetch_rounds(m, as);
  int64_t n = w->ahead.layers < most ? w->ahead.layers : most;
  return bytes && w->ahead.bytes / bytes < n ? w->ahead.bytes / bytes : n;
}

Flown prefetch_function(Module *m, const Fn *f, const Fn *as, const FlightsAsked *w) {
  must(w->ahead.layers >= 0 && w->ahead.bytes >= 0, "prefetch: %lld layers ahead",
       (long long)w->ahead.layers);
  PrefetchPass p = prefetch_of(m, f, as);
  p.ahead = rounds_ahead(m, f, as, w), p.overlap = w->overlap, p.stays = w->stays;
  p.plan = ARENA_ARRAY(m->arena, Plan, f->ops.n + 1);
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    p.plan[i] = plan_for(&p, i);
    any |= p.plan[i].flies || p.plan[i].why;
  }
  return any ? with_flights(&p) : (Flown){0};
}

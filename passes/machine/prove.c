/* prove: no schedule of the program can hang or read too early.

   (a) Bytes: in the order of the host program, between the start of a message and its end no op
   accesses the bytes that it receives, and no op writes the bytes that it sends. Ops are kernels,
   copies, other messages, and the next message in the same buffer of a ring. Every start has one
   end.

   (b) A channel is an axis of the mesh. A rank's messages start in one order and complete in that
   order, one after the other (runtime/comm/flight.c; on a GPU one stream), so message k of a
   channel meets message k of all other ranks of the group: these must be of one kind and size.

   (c) A message is complete once all classes of ranks have reached it, and a class reaches it once
   all messages before it, over whatever axis, are complete. So the graph of messages, with an edge
   from each to the next of every class, must have no cycle. It is executed as in Kahn's algorithm:
   a message that is first in every class is complete. If none is, the remaining messages are a
   deadlock, and the report shows where each rank waits. With one class, all ranks running one
   program, (b) and (c) hold by construction. Ranks that exchange values with their neighbours are
   at different points of that program, or run programs of their own: (d) prove_hops.c, for all
   classes at once.

   (e) Copies from and to the host, and operations of the host, on streams of their own:
   prove_streams.c.

   The pass changes nothing. Must not: rely on the verifier; it derives bytes and order
   independently. */
#include "prove.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/message.h"
#include "ir/schedule/pipeline_schedule.h"
#include "passes/base/rebuild.h"

/* ---- words ---- */

static const char *axis_of(const Op *o) { return attr_str(&o->attrs, ATTR_axis, ""); }

/* all_gather over data in @h.forward, round 2 */
const char *prove_said(const Module *m, const Event *event) {
  const Op *o = event_op(event);
  bool sends = op_family(o->code) == FAMILY_COLLECTIVE;
  const char *what = sends ? arena_printf(m->arena, "%s over %s", op_name(o->code), axis_of(o))
                     : o->callee
                         ? arena_printf(m->arena, "%s @%s", op_name(o->code), o->callee->name)
                         : op_name(o->code);
  const char *round = event->round == NO_ROUND
                          ? ""
                          : arena_printf(m->arena, ", round %lld", (long long)event->round);
  return arena_printf(m->arena, "%s in @%s%s", what, event->f->name, round);
}

Report *prove_wrong(Module *m, const Event *event, const char *code, const char *words) {
  const Op *o = event_op(event);
  Span at = o->span.file ? o->span : loc_span(m, o->loc);
  Report *r = diag_at(m->ctx->diag, code, at, "%s", words);
  diag_help(r, "an error of shardc, if the IR is as its passes have made it");
  return r;
}

/* ---- bytes ---- */

typedef VEC(uint32_t) Open; /* starts that have not ended yet */

/* Messages complete in the order of their starts: a message may send the bytes that the previous
   one receives. */
static bool sends_on(const Event *start, const Event *event) {
  return event->kind == EVENT_START && event->f == start->f && event->round == start->round &&
         flight_before(event->f, event_op(event)) == event_op(start);
}

enum { SENT, RECEIVED, WORKSPACE }; /* bytes of a start, in their order */

/* The access to the message's bytes that the event must not do; NULL: it does none. */
static const char *collides(const EventList *list, const Event *start, const Event *event) {
  for (uint32_t i = 0; i < start->nbytes; i++)
    for (uint32_t k = 0; k < event->nbytes; k++) {
      const EventBytes *a = &list->bytes.at[start->bytes + i],
                       *b = &list->bytes.at[event->bytes + k];
      if ((!a->written && !b->written) || !bytes_meet(a, b)) continue;
      if (i == RECEIVED && sends_on(start, event)) continue;
      if (i == WORKSPACE) return "touches the workspace of";
      if (!a->written) return "writes what is still being sent by";
      return b->written ? "writes where bytes still arrive of" : "reads what has not arrived of";
    }
  return NULL;
}

static bool check_event(Module *m, const EventList *list, const Open *open, const Event *event) {
  for (uint32_t i = 0; i < open->n; i++) {
    const Event *start = &list->at.at[open->at[i]];
    const char *how = collides(list, start, event);
    if (!how) continue;
    Report *r = prove_wrong(
        m, event, "E1112",
        arena_printf(m->arena, "%s %s %s", prove_said(m, event), how, prove_said(m, start)));
    diag_fact(r, "in entry @%s: the wait for it comes only after this op", list->entry->name);
    return false;
  }
  return true;
}

static bool end_start(Module *m, Open *open, const Event *event) {
  uint32_t i = 0;
  while (i < open->n && open->at[i] != event->start) i++;
  if (i == open->n)
    return prove_wrong(m, event, "E1112",
                       arena_printf(m->arena, "a wait for %s, which nothing has started",
                                    prove_said(m, event))),
           false;
  for (open->n--; i < open->n; i++) open->at[i] = open->at[i + 1];
  return true;
}

/* Every message that starts is waited for, once, and until then no op touches the bytes that it
   receives or writes the bytes that it sends. False: a diagnostic names the op (E1112). */
static bool prove_bytes(Module *m, const EventList *list) {
  Open open = {0};
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Event *event = &list->at.at[i];
    bool fine =
        event->kind == EVENT_END ? end_start(m, &open, event) : check_event(m, list, &open, event);
    if (!fine) return false;
    if (event->kind == EVENT_START) vec_push(m->arena, open, i);
  }
  if (open.n)
    prove_wrong(m, &list->at.at[open.at[0]], "E1112",
                arena_printf(m->arena, "%s is started and never waited for",
                             prove_said(m, &list->at.at[open.at[0]])));
  return !open.n;
}

/* ---- order ---- */

typedef struct Line { /* the messages of a class, in its order */
  const RankClass *of;
  VEC(const Event *) at;
  uint32_t over;           /* number of complete messages */
  uint32_t done[MAX_MESH]; /* of them over each axis */
} Line;

/* By name: classes may be modules of their own. */
static int channel(const Module *m, const Event *event) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (!strcmp(m->mesh.at[i].name, axis_of(event_op(event)))) return (int)i;
  bug("prove: the mesh has no axis %s", axis_of(event_op(event)));
}

static int next_axis(const Type *t, int i) {
  while (i < t->rank && t->axis[i].size == 1) i++;
  return i;
}

/* Do both have their elements in one order? They may be of modules with different names tables. */
static bool same_order(const Type *a, const Type *b) {
  int i = next_axis(a, 0), k = next_axis(b, 0);
  for (; i < a->rank && k < b->rank; i = next_axis(a, i + 1), k = next_axis(b, k + 1))
    if (strcmp(a->axis[i].dim, b->axis[k].dim) || a->axis[i].size != b->axis[k].size) return false;
  return i == a->rank && k == b->rank;
}

bool prove_alike(const Event *a, const Event *b) {
  const Op *o = event_op(a), *p = event_op(b);
  Message x = message_of(a->f, o), y = message_of(b->f, p);
  return o->code == p->code && x.count == y.count && x.times == y.times && x.pieces == y.pieces &&
         value_type(a->f, o->out)->elem == value_type(b->f, p->out)->elem &&
         same_order(value_type(a->f, o->out), value_type(b->f, p->out)) &&
         !strcmp(attr_str(&o->attrs, ATTR_reduce, ""), attr_str(&p->attrs, ATTR_reduce, ""));
}

static void report_pair(Module *m, const Line *l, const Line *k, const Event *a, const Event *b,
                        uint32_t number) {
  const Event *at = a ? a : b;
  Report *r = prove_wrong(m, at, "E1113",
                          arena_printf(m->arena, "ranks do not agree on message %u over %s", number,
                                       axis_of(event_op(at))));
  diag_fact(r, "%s: %s", l->of->name, a ? prove_said(m, a) : "none");
  diag_fact(r, "%s: %s", k->of->name, b ? prove_said(m, b) : "none");
}

/* Messages over an axis, pair by pair: the first k of a class are those of the other. */
static bool agree_over(Module *m, const Line *l, const Line *k, int axis) {
  uint32_t i = 0, j = 0, number = 0;
  for (;; i++, j++, number++) {
    while (i < l->at.n && channel(m, l->at.at[i]) != axis) i++;
    while (j < k->at.n && channel(m, k->at.at[j]) != axis) j++;
    const Event *a = i < l->at.n ? l->at.at[i] : NULL, *b = j < k->at.n ? k->at.at[j] : NULL;
    if (!a && !b) return true;
    if (a && b && prove_alike(a, b)) continue;
    report_pair(m, l, k, a, b, number);
    return false;
  }
}

static bool is_first(const Module *m, const Line *line, int axis, uint32_t k) {
  return line->over < line->at.n && channel(m, line->at.at[line->over]) == axis &&
         line->done[axis] == k;
}

/* Completes the message that is next in line `at`, if it is next in all lines. */
static bool advance(const Module *m, Line *lines, uint32_t n, uint32_t at) {
  if (lines[at].over == lines[at].at.n) return false;
  int axis = channel(m, lines[at].at.at[lines[at].over]);
  uint32_t k = lines[at].done[axis];
  for (uint32_t i = 0; i < n; i++)
    if (!is_first(m, &lines[i], axis, k)) return false;
  for (uint32_t i = 0; i < n; i++) lines[i].over++, lines[i].done[axis]++;
  return true;
}

/* A class that has not reached the message that is next in line `at`. */
static uint32_t missing(const Module *m, const Line *lines, uint32_t n, uint32_t at) {
  int axis = channel(m, lines[at].at.at[lines[at].over]);
  for (uint32_t i = 0; i < n; i++)
    if (!is_first(m, &lines[i], axis, lines[at].done[axis])) return i;
  bug("prove: no class is missing");
}

/* Reports the cycle: from each class to the class it waits for, until one repeats. */
static void report_cycle(Module *m, const Line *lines, uint32_t n) {
  uint32_t at = 0, steps = 0;
  while (lines[at].over == lines[at].at.n) at++;
  for (uint32_t i = 0; i < n; i++) at = missing(m, lines, n, at); /* now it is in the cycle */
  uint32_t first = at;
  Report *r = prove_wrong(m, lines[at].at.at[lines[at].over], "E1113",
                          "ranks wait for each other for ever");
  do {
    const Event *event = lines[at].at.at[lines[at].over];
    uint32_t next = missing(m, lines, n, at);
    diag_fact(r, "%s are at %s, message %u over that axis, and wait for %s", lines[at].of->name,
              prove_said(m, event), lines[at].done[channel(m, event)], lines[next].of->name);
    at = next;
  } while (at != first && ++steps < n);
}

static Line line_of(const Module *m, const RankClass *c) {
  Line line = {.of = c};
  for (uint32_t i = 0; i < c->events->at.n; i++)
    if (event_sends(&c->events->at.at[i])) vec_push(m->arena, line.at, &c->events->at.at[i]);
  return line;
}

bool prove_order(Module *m, const RankClass *classes, uint32_t n) {
  Line *lines = ARENA_ARRAY(m->arena, Line, n + 1);
  uint32_t left = 0;
  for (uint32_t i = 0; i < n; i++) lines[i] = line_of(m, &classes[i]);
  for (uint32_t i = 1; i < n; i++)
    for (int axis = 0; axis < (int)m->mesh.n; axis++)
      if (!agree_over(m, &lines[0], &lines[i], axis)) return false;
  for (bool any = true; any;) {
    any = false;
    for (uint32_t i = 0; i < n; i++)
      while (advance(m, lines, n, i)) any = true;
  }
  for (uint32_t i = 0; i < n; i++) left += lines[i].at.n - lines[i].over;
  if (left) report_cycle(m, lines, n);
  return !left;
}

typedef VEC(RankClass) RankClasses;

static void add_class(RankClasses *all, Module *m, RankClass c, const EventList *events) {
  c.name = *c.stages.name ? c.stages.name : "all ranks", c.events = events;
  vec_push(m->arena, *all, c);
}

/* With the messages of a rank over the axis of its stages. */
static void add_messages(RankClasses *all, Module *m, const Fn *entry, RankClass c, int64_t rank) {
  EventList *list = ARENA_NEW(m->arena, EventList);
  messages_of_rank(m, entry, rank, m->mesh.at[c.stages.axis].name, list);
  add_class(all, m, c, list);
}

static RankClass program_of(const Module *m) {
  return (RankClass){.stages = module_class(m), .sends = send_order(m)};
}

/* Is a message of a loop in flight from one of its rounds to another? */
static bool crosses_rounds(const Module *m, const Fn *entry, const ScheduleLoops *t) {
  for (int i = 0; i < t->n; i++)
    if (flights_over(m->arena, entry->ops.at[t->loop[i]].callee).n) return true;
  return false;
}

/* Pipeline stages run the same rounds in different orders. Messages in flight while the stages
   run, but not across rounds, overlap with all rounds: one order shows that nothing touches their
   bytes. */
static bool prove_turns(Module *m, const Fn *entry, const ScheduleStages *stages) {
  int64_t last = crosses_rounds(m, entry, &stages->loops) ? stages->last : stages->first;
  for (int64_t s = stages->first; s <= last; s++) {
    Arena *arena = arena_new();
    EventList list = events_of_rank(m, entry, s * stages->step, arena);
    bool fine = prove_bytes(m, &list);
    arena_free(arena);
    if (!fine) return false;
  }
  return true;
}

/* The messages of each stage over the axis of the stages. */
static void add_stages(RankClasses *all, Module *m, const Fn *entry, RankClass c,
                       const ScheduleStages *stages) {
  c.turns = true, c.stages.axis = stages->axis;
  for (int64_t s = stages->first; s <= stages->last; s++) {
    c.stages.first = c.stages.last = s;
    add_messages(all, m, entry, c, s * stages->step);
  }
}

/* The program of one class of stages does not show which ranks wait for each other. */
static bool prove_entry(Module *m, const Fn *entry) {
  RankClasses all = {0};
  ScheduleStages stages;
  bool class = *module_class(m).name;
  if (schedule_stages(m, entry, &stages)) {
    if (!prove_turns(m, entry, &stages)) return false;
    if (!class) add_stages(&all, m, entry, program_of(m), &stages);
    return class || prove_hops(m, all.at, all.n);
  }
  EventList list = events_of(m, entry);
  if (!prove_bytes(m, &list)) return false;
  if (!class) add_class(&all, m, program_of(m), &list);
  return class || (prove_order(m, all.at, 1) && prove_hops(m, all.at, 1));
}

void pass_prove(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY && !prove_entry(m, m->fns.at[i])) return;
  prove_streams(m);
}

/* The program of one class: without a schedule of its rounds, all of its stages send alike. */
static void add_program(RankClasses *all, Module *m, const Fn *entry, RankClass c) {
  ScheduleStages stages;
  if (schedule_stages(m, entry, &stages)) add_stages(all, m, entry, c, &stages);
  else add_messages(all, m, entry, c, 0);
}

static bool prove_together(Module *const *classes, const RankClass *programs, uint32_t n,
                           const char *name) {
  RankClasses all = {0};
  for (uint32_t i = 0; i < n; i++) {
    const Fn *f = entry_of(classes[i], name);
    must(f, "prove: ranks of class %s have no entry %s", module_class(classes[i]).name, name);
    add_program(&all, classes[i], f, programs[i]);
  }
  return prove_hops(classes[0], all.at, all.n);
}

bool prove_classes(Module *const *classes, uint32_t n) {
  const Module *m = classes[0];
  RankClass *programs = ARENA_ARRAY(m->arena, RankClass, n);
  for (uint32_t i = 0; i < n; i++) programs[i] = program_of(classes[i]);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY && !prove_together(classes, programs, n, m->fns.at[i]->name))
      return false;
  return true;
}

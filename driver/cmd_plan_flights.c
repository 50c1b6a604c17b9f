/* What `plan` says of messages in flight: how far ahead each stack is gathered, and why a message
   is waited for where it stands (attribute `blocking`, pass prefetch); and the refusal of a
   `prefetch` in bytes that holds no layer. All of it is read from the module after pass `memory`.
   Must not: choose anything. */
#include "cmd_plan.h"
#include "ir/count.h"
#include "ir/flight.h"
#include "ir/placement.h"
#include "passes/prefetch.h"

typedef struct Standing { /* messages of one kind over one axis that stand for one reason */
  const Op *like;
  double calls, seconds;
} Standing;
typedef VEC(Standing) StandingList;

static const char *word_of(const Op *o, AttrKey key) { return attr_str(&o->attrs, key, ""); }

static bool is_like(const Op *a, const Op *b) {
  return a->code == b->code && !strcmp(word_of(a, ATTR_axis), word_of(b, ATTR_axis)) &&
         !strcmp(word_of(a, ATTR_blocking), word_of(b, ATTR_blocking));
}

static Standing *row_for(const Planned *p, StandingList *l, const Op *o) {
  for (uint32_t i = 0; i < l->n; i++)
    if (is_like(l->at[i].like, o)) return &l->at[i];
  vec_push(p->m->arena, *l, (Standing){.like = o});
  return &vec_last(*l);
}

static void add_standing(const Planned *p, const Fn *f, double times, StandingList *l) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop)
      add_standing(p, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), l);
    if (!*word_of(o, ATTR_blocking)) continue;
    Standing *row = row_for(p, l, o);
    row->calls += times, row->seconds += times * message_seconds(p->m, &p->machine, f, o);
  }
}

static StandingList standing(const Planned *p) {
  StandingList l = {0};
  const Fn *step = ir_main_entry(p->m);
  if (step) add_standing(p, step, 1, &l);
  return l;
}

/* ---- layers ahead ---- */

typedef struct Gathered { /* a loop whose body's gathers start rounds before */
  const char *stack;
  int64_t layers, bytes;
} Gathered;
typedef VEC(Gathered) GatheredList;

static Gathered gathered_by(const Planned *p, const Op *loop) {
  Gathered g = {.stack = attr_str(&loop->attrs, ATTR_path, loop->callee->name)};
  FlightList l = flights_over(p->m->arena, loop->callee);
  for (uint32_t i = 0; i < l.n; i++) {
    if (l.at[i].rounds >= 0) continue;
    if (-l.at[i].rounds > g.layers) g.layers = -l.at[i].rounds;
    g.bytes += loop_ring(loop, i).bytes * loop_ring(loop, i).buffers;
  }
  return g;
}

/* Forward and backward, and parts of a stack, each once. */
static void add_gathered(const Planned *p, const Fn *f, GatheredList *l) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop) continue;
    Gathered g = gathered_by(p, o);
    bool there = !g.layers;
    for (uint32_t k = 0; k < l->n; k++)
      there |= !strcmp(l->at[k].stack, g.stack) && l->at[k].layers == g.layers;
    if (!there) vec_push(p->m->arena, *l, g);
    add_gathered(p, o->callee, l);
  }
}

static GatheredList gathered(const Planned *p) {
  GatheredList l = {0};
  const Fn *step = ir_main_entry(p->m);
  if (step) add_gathered(p, step, &l);
  return l;
}

/* ---- text ---- */

static const char *asked_text(const Planned *p, Ahead a) {
  if (a.bytes) return plan_amount(p->m->arena, (double)a.bytes);
  return arena_printf(p->m->arena, "%lld", (long long)a.layers);
}

void plan_say_flights(const Planned *p) {
  Ahead asked = flights_ahead(p->m);
  GatheredList l = gathered(p);
  StandingList s = standing(p);
  bool weighed = machine_is_known(p->m, &p->machine);
  for (uint32_t i = 0; i < l.n; i++)
    printf("  %s: %lld layer%s gathered ahead, %s of buffers\n", l.at[i].stack,
           (long long)l.at[i].layers, l.at[i].layers > 1 ? "s" : "",
           plan_amount(p->m->arena, (double)l.at[i].bytes));
  if ((asked.layers > flights_depth(p->m) || asked.bytes) && weighed)
    printf("  prefetch = %s: %s\n", asked_text(p, asked),
           l.n ? "more layers ahead would not fit, or hide nothing more"
               : "a layer gathered ahead would hide nothing");
  if (s.n) printf("waited for where they stand          calls%s\n", weighed ? "    seconds" : "");
  for (uint32_t i = 0; i < s.n; i++) {
    const Standing *x = &s.at[i];
    printf("  over %-8s %-16s %12.0f", word_of(x->like, ATTR_axis), op_name(x->like->code),
           x->calls);
    if (weighed) printf(" %10.3g", x->seconds);
    printf("  %s\n", word_of(x->like, ATTR_blocking));
  }
}

void plan_put_flights(const Planned *p) {
  GatheredList l = gathered(p);
  StandingList s = standing(p);
  if (!l.n && !s.n) return;
  printf("\"flights\":{\"ahead\":[");
  for (uint32_t i = 0; i < l.n; i++)
    printf("%s{\"stack\":\"%s\",\"layers\":%lld,\"bytes\":%lld}", i ? "," : "", l.at[i].stack,
           (long long)l.at[i].layers, (long long)l.at[i].bytes);
  printf("],\"blocking\":[");
  for (uint32_t i = 0; i < s.n; i++)
    printf("%s{\"axis\":\"%s\",\"kind\":\"%s\",\"calls\":%.0f,\"seconds\":%.6g,\"why\":\"%s\"}",
           i ? "," : "", word_of(s.at[i].like, ATTR_axis), op_name(s.at[i].like->code),
           s.at[i].calls, s.at[i].seconds, word_of(s.at[i].like, ATTR_blocking));
  printf("]},");
}

/* ---- a prefetch that holds nothing ---- */

bool flights_check(Cli *o, Module *m) {
  Ahead asked = flights_ahead(m);
  int64_t least = 0;
  const Fn *of = NULL;
  for (uint32_t i = 0; asked.bytes && i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    int64_t bytes = f->kind == FN_BODY ? prefetch_round_bytes(m, f) : 0;
    if (bytes > 0 && (!of || bytes < least)) least = bytes, of = f;
  }
  if (!of || asked.bytes >= least) return true;
  Report *r = diag_at(o->c->diag, "E0602", o->facts ? o->facts->ahead : (Span){0},
                      "`prefetch = %s` holds no layer: one of @%s takes %s",
                      plan_amount(m->arena, (double)asked.bytes), of->name,
                      plan_amount(m->arena, (double)least));
  diag_help(r, "`prefetch = 1` gathers one layer ahead, whatever it takes");
  if (o->facts && o->facts->ahead.file) diag_edit(r, o->facts->ahead, "1");
  return false;
}

/* The part of `plan` about asynchronous messages: how far ahead each stack is gathered, and why a
   message blocks (attribute `blocking`, pass prefetch). All facts are read from the module after
   pass `memory`. Must not: choose anything. */
#include "plan_report.h"
#include "ir/cost/count.h"
#include "ir/schedule/flight.h"
#include "ir/shape/placement.h"
#include "passes/machine/prefetch.h"

typedef struct Standing { /* messages of one kind over one axis that block for one reason */
  const Op *like;
  double calls, seconds;
} Standing;
typedef VEC(Standing) StandingList;

static const char *word_of(const Op *o, AttrKey key) { return attr_str(&o->attrs, key, ""); }

static bool is_like(const Op *a, const Op *b) {
  return a->code == b->code && !strcmp(word_of(a, ATTR_axis), word_of(b, ATTR_axis)) &&
         !strcmp(word_of(a, ATTR_stall_reason), word_of(b, ATTR_stall_reason));
}

static Standing *row_for(const Planned *planned, StandingList *list, const Op *o) {
  for (uint32_t i = 0; i < list->n; i++)
    if (is_like(list->at[i].like, o)) return &list->at[i];
  vec_push(planned->m->arena, *list, (Standing){.like = o});
  return &vec_last(*list);
}

static void add_standing(const Planned *planned, const Fn *f, double times, StandingList *list) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop)
      add_standing(planned, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), list);
    if (!*word_of(o, ATTR_stall_reason)) continue;
    Standing *row = row_for(planned, list, o);
    row->calls += times,
        row->seconds += times * message_seconds(planned->m, &planned->machine, f, o);
  }
}

static StandingList standing(const Planned *planned) {
  StandingList list = {0};
  const Fn *step = ir_main_entry(planned->m);
  if (step) add_standing(planned, step, 1, &list);
  return list;
}

/* ---- layers ahead ---- */

typedef struct Gathered { /* a loop whose body's gathers start rounds before */
  const char *stack;
  int64_t layers, bytes;
} Gathered;
typedef VEC(Gathered) GatheredList;

static Gathered gathered_by(const Planned *planned, const Op *loop) {
  Gathered gathered = {.stack = attr_str(&loop->attrs, ATTR_path, loop->callee->name)};
  FlightList list = flights_over(planned->m->arena, loop->callee);
  for (uint32_t i = 0; i < list.n; i++) {
    if (list.at[i].rounds >= 0) continue;
    if (-list.at[i].rounds > gathered.layers) gathered.layers = -list.at[i].rounds;
    gathered.bytes += loop_ring(loop, i).bytes * loop_ring(loop, i).buffers;
  }
  return gathered;
}

/* Forward and backward, and parts of a stack, each once. */
static void add_gathered(const Planned *planned, const Fn *f, GatheredList *list) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop) continue;
    Gathered gathered = gathered_by(planned, o);
    bool there = !gathered.layers;
    for (uint32_t k = 0; k < list->n; k++)
      there |= !strcmp(list->at[k].stack, gathered.stack) && list->at[k].layers == gathered.layers;
    if (!there) vec_push(planned->m->arena, *list, gathered);
    add_gathered(planned, o->callee, list);
  }
}

static GatheredList gathered(const Planned *planned) {
  GatheredList list = {0};
  const Fn *step = ir_main_entry(planned->m);
  if (step) add_gathered(planned, step, &list);
  return list;
}

/* ---- text ---- */

static const char *asked_text(const Planned *planned, Ahead a) {
  if (a.bytes) return arena_amount(planned->m->arena, (double)a.bytes);
  return arena_printf(planned->m->arena, "%lld", (long long)a.layers);
}

void plan_say_flights(const Planned *planned) {
  Ahead asked = flights_ahead(planned->m);
  GatheredList list = gathered(planned);
  StandingList standing_list = standing(planned);
  bool weighed = machine_is_known(planned->m, &planned->machine);
  for (uint32_t i = 0; i < list.n; i++)
    printf("  %s: %lld layer%s gathered ahead, %s of buffers\n", list.at[i].stack,
           (long long)list.at[i].layers, list.at[i].layers > 1 ? "s" : "",
           arena_amount(planned->m->arena, (double)list.at[i].bytes));
  if ((asked.layers > flights_depth(planned->m) || asked.bytes) && weighed)
    printf("  prefetch = %s: %s\n", asked_text(planned, asked),
           list.n ? "more layers ahead would not fit, or hide nothing more"
                  : "a layer gathered ahead would hide nothing");
  if (standing_list.n)
    printf("blocking messages                    calls%s\n", weighed ? "    seconds" : "");
  for (uint32_t i = 0; i < standing_list.n; i++) {
    const Standing *x = &standing_list.at[i];
    printf("  over %-8s %-16s %12.0f", word_of(x->like, ATTR_axis), op_name(x->like->code),
           x->calls);
    if (weighed) printf(" %10.3g", x->seconds);
    printf("  %s\n", word_of(x->like, ATTR_stall_reason));
  }
}

void plan_put_flights(const Planned *planned) {
  GatheredList list = gathered(planned);
  StandingList standing_list = standing(planned);
  if (!list.n && !standing_list.n) return;
  printf("\"flights\":{\"ahead\":[");
  for (uint32_t i = 0; i < list.n; i++)
    printf("%s{\"stack\":\"%s\",\"layers\":%lld,\"bytes\":%lld}", i ? "," : "", list.at[i].stack,
           (long long)list.at[i].layers, (long long)list.at[i].bytes);
  printf("],\"blocking\":[");
  for (uint32_t i = 0; i < standing_list.n; i++)
    printf("%s{\"axis\":\"%s\",\"kind\":\"%s\",\"calls\":%.0f,\"seconds\":%.6g,\"why\":\"%s\"}",
           i ? "," : "", word_of(standing_list.at[i].like, ATTR_axis),
           op_name(standing_list.at[i].like->code), standing_list.at[i].calls,
           standing_list.at[i].seconds, word_of(standing_list.at[i].like, ATTR_stall_reason));
  printf("]},");
}

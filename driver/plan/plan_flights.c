/* The part of `plan` about asynchronous messages: how far ahead each stack is gathered, and why a
   message blocks (attribute `blocking`, pass prefetch). All facts are read from the module after
   pass `memory`. Must not: choose anything. */
#include "plan_report.h"
#include "ir/cost/count.h"
#include "ir/schedule/flight.h"

typedef struct Blocking { /* messages of one kind over one axis that block for one reason */
  const Op *like;
  double calls, seconds;
} Blocking;
typedef VEC(Blocking) BlockingList;

static const char *word_of(const Op *o, AttrKey key) { return attr_str(&o->attrs, key, ""); }

static bool is_like(const Op *a, const Op *b) {
  return a->code == b->code && !strcmp(word_of(a, ATTR_axis), word_of(b, ATTR_axis)) &&
         !strcmp(word_of(a, ATTR_stall_reason), word_of(b, ATTR_stall_reason));
}

static Blocking *row_for(const Planned *planned, BlockingList *list, const Op *o) {
  for (uint32_t i = 0; i < list->n; i++)
    if (is_like(list->at[i].like, o)) return &list->at[i];
  vec_push(planned->m->arena, *list, (Blocking){.like = o});
  return &vec_last(*list);
}

static void add_blocking(const Planned *planned, const Fn *f, double times, BlockingList *list) {
  EACH_OP (f, o) {
    if (o->code == OP_loop)
      add_blocking(planned, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), list);
    if (!*word_of(o, ATTR_stall_reason)) continue;
    Blocking *row = row_for(planned, list, o);
    row->calls += times,
        row->seconds += times * message_seconds(planned->m, &planned->machine, f, o);
  }
}

static BlockingList blocking_messages(const Planned *planned) {
  BlockingList list = {0};
  const Fn *step = ir_main_entry(planned->m);
  if (step) add_blocking(planned, step, 1, &list);
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
  EACH_OP (f, o) {
    if (o->code != OP_loop) continue;
    Gathered gathered = gathered_by(planned, o);
    bool listed = !gathered.layers;
    for (uint32_t k = 0; k < list->n; k++)
      listed |= !strcmp(list->at[k].stack, gathered.stack) && list->at[k].layers == gathered.layers;
    if (!listed) vec_push(planned->m->arena, *list, gathered);
    add_gathered(planned, o->callee, list);
  }
}

static GatheredList gathered(const Planned *planned) {
  GatheredList list = {0};
  const Fn *step = ir_main_entry(planned->m);
  if (step) add_gathered(planned, step, &list);
  return list;
}

/* ---- the topic ---- */

static const char *asked_text(const Planned *planned, Ahead a) {
  if (a.bytes) return arena_amount(planned->m->arena, (double)a.bytes);
  return arena_printf(planned->m->arena, "%lld", (long long)a.layers);
}

void topic_flights(Sheet *sheet, const Planned *planned) {
  Ahead asked = flights_ahead(planned->m);
  GatheredList list = gathered(planned);
  BlockingList blocking = blocking_messages(planned);
  bool weighed = machine_is_known(planned->m, &planned->machine);
  if (list.n || blocking.n)
    sheet_list(sheet, "flights.ahead"), sheet_list(sheet, "flights.blocking");
  for (uint32_t i = 0; i < list.n; i++)
    sheet_say(sheet,
              "[flights.ahead]  {stack}: {layers} layer{} gathered ahead, {bytes} of buffers\n",
              as_text(list.at[i].stack), as_count((double)list.at[i].layers),
              as_text(list.at[i].layers > 1 ? "s" : ""), as_bytes((double)list.at[i].bytes));
  if ((asked.layers > flights_depth(planned->m) || asked.bytes) && weighed)
    sheet_say(sheet, "  prefetch = {}: {}\n", as_text(asked_text(planned, asked)),
              as_text(list.n ? "more layers ahead would not fit, or hide nothing more"
                             : "a layer gathered ahead would hide nothing"));
  if (blocking.n)
    sheet_heads(sheet, EVERYWHERE,
                weighed ? "blocking messages                    calls    seconds"
                        : "blocking messages                    calls");
  for (uint32_t i = 0; i < blocking.n; i++) {
    const Blocking *row = &blocking.at[i];
    sheet_open(sheet, "flights.blocking[]");
    sheet_say(sheet, "  over {axis:-8} {kind:-16} {calls:12}",
              as_text(word_of(row->like, ATTR_axis)), as_text(op_name(row->like->code)),
              as_count(row->calls));
    sheet_say_if(sheet, weighed, " {seconds:10}", as_number(row->seconds));
    sheet_say(sheet, "  {why:-}\n", as_text(word_of(row->like, ATTR_stall_reason)));
    sheet_close(sheet);
  }
}

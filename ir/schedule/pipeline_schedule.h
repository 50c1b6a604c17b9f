/* Schedules of pipelines: two or three loops over the micro-batches of a step whose rounds are
   interleaved in time ("take turns"). In this file a part is a micro-batch.

   A forward loop has the attributes `turns` and `axis`; one or two loops with the same `turns`
   follow it: backward; or gradients of inputs, then gradients of weights. Between them are only
   views. `turns` is the table of the schedule: for each stage of the axis

     most   how many parts may be forward and not yet backward
     wait   with three loops: how many may be backward and without gradients of weights

   and a stage takes the next turn by the rule of schedule_next.

   With most[s] = min(P - s, M) it is 1F1B of M parts over P stages ("PipeDream: Fast and Efficient
   Pipeline Parallel DNN Training", non-interleaved as in Megatron-LM). With wait[s] = min(s, M) in
   addition it is ZB-H1 ("Zero Bubble Pipeline Parallelism"): gradients of weights fill the slots in
   which 1F1B waits, and every stage keeps min(P, M) parts, as the first stage of 1F1B does.

   With twice the slope, most[s] = 2 (P - 1 - s) + 1 and wait[s] = 2 s, up to 2 P - 1 parts are
   kept, and stages continue forward while gradients of inputs take longer than those of weights:
   the paper's ZB-2p in a step whose update waits for all stages; with fewer parts, the slope is as
   large as these allow. It is never larger: a message waits between neighbours, and the next
   message waits until that one is received.

   Each loop takes the parts in their order on every stage, so sums have one order. Values that
   cross from loop to loop are in rings: part i takes slot i mod their number.

   Interleaved ("Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
   section 2.2): with `interleave = n` a stage has n chunks of layers, and the loops are 2 n:
   forward of chunk 0 to n - 1, then backward of chunk n - 1 to 0. P parts at a time pass through
   all chunks, so that the last stage sends to the first. `most` then counts parts of chunks, as if
   the last group of parts had P as well. */
#ifndef SHARDC_PIPELINE_SCHEDULE_H
#define SHARDC_PIPELINE_SCHEDULE_H
#include "ir/ir.h"

enum { TURN_FORWARD, TURN_BACKWARD, TURN_WEIGHTS, TURN_KINDS };
enum { TURN_LOOPS = 2 * MOST_CHUNKS };

typedef struct ScheduleTable {
  int64_t stages, parts;
  const int64_t *most, *wait; /* by stage; wait NULL: no loop of weights */
  int64_t chunks;             /* of layers on a stage; 0 as 1 */
  /* By loop, a bit: all stages meet before a part of it, to gather weights over them, or after it,
     to sum gradients. Not set in tables of a program: only simulations of a schedule's time set
     it. */
  uint32_t meet_before, meet_after;
} ScheduleTable;

typedef struct ScheduleState { /* of a stage: how many parts are over, by loop */
  int64_t over[TURN_LOOPS];
} ScheduleState;

typedef struct ScheduleLoops {
  ScheduleTable table;
  int n;
  OpId loop[TURN_LOOPS];
} ScheduleLoops;

bool op_is_scheduled(const Op *o);
/* Is op `id` a forward loop, with the other loops of its schedule? */
bool schedule_find(const Fn *f, OpId id, ScheduleLoops *loops);
static inline OpId schedule_end(const ScheduleLoops *t) { return t->loop[t->n - 1]; }
int schedule_loop_number(const ScheduleLoops *loops, OpId id); /* -1: it is none of these loops */
/* For a loop of a schedule: the first and the last loop of it; for others, the op itself. */
OpId op_begins(const Fn *f, OpId id), op_ends(const Fn *f, OpId id);
int64_t schedule_stage(const Module *m, const Op *forward, int64_t rank);
typedef struct ScheduleStages { /* the stages of a program whose rounds follow a schedule */
  ScheduleLoops loops;
  int axis;
  int64_t first, last, step; /* step: from the rank of one to that of the next */
} ScheduleStages;

bool schedule_stages(const Module *m, const Fn *entry, ScheduleStages *stages);
/* Slots that its rounds take in turn in a stack of that type; 0: each has its own slice. */
int64_t loop_slots(const Op *loop, const Type *stacked);
/* The slice that a round with that counter has in a stack of that type. */
int64_t loop_slice(const Op *loop, const Type *stacked, int64_t counter);

/* ---- the table ---- */

static inline bool schedule_has_chunks(const ScheduleTable *t) { return t->chunks > 1; }

static inline int schedule_loops(const ScheduleTable *t) {
  return schedule_has_chunks(t) ? 2 * (int)t->chunks : t->wait ? 3 : 2;
}

int schedule_loop_kind(const ScheduleTable *table, int loop);      /* TURN_FORWARD .. */
int64_t schedule_loop_chunk(const ScheduleTable *table, int loop); /* of the stage's layers */
int schedule_next_chunk(const ScheduleTable *table, int64_t stage, const ScheduleState *state);

/* Which loop goes on: weights that have waited long enough, else forward while there is room, else
   backward. The last loop has no more parts: it is all over. */
static inline int schedule_next(const ScheduleTable *t, int64_t stage, const ScheduleState *x) {
  if (schedule_has_chunks(t)) return schedule_next_chunk(t, stage, x);
  int64_t back = x->over[TURN_BACKWARD], waiting = back - x->over[TURN_WEIGHTS];
  if (t->wait && (back == t->parts || waiting > t->wait[stage])) return TURN_WEIGHTS;
  bool room = x->over[TURN_FORWARD] - back < t->most[stage];
  return room && x->over[TURN_FORWARD] < t->parts ? TURN_FORWARD : TURN_BACKWARD;
}

static inline bool schedule_done(const ScheduleTable *t, const ScheduleState *x) {
  return x->over[schedule_loops(t) - 1] == t->parts;
}

/* Turns of a stage that repeat those before them: from turn `from` on, `times` periods of `turns`
   turns and `parts` parts of each loop. Two of these periods precede them, and one follows. */
typedef struct ScheduleRepeat {
  int64_t from, turns, parts, times; /* times 0: nothing repeats as often */
} ScheduleRepeat;

/* With periods of a multiple of `unit` parts, after `ahead` parts of all loops. */
ScheduleRepeat schedule_repeat(const ScheduleTable *table, int64_t stage, int64_t unit,
                               int64_t ahead);
ScheduleTable schedule_one_f_one_b(Arena *arena, int64_t stages, int64_t parts);
enum { MOST_AHEAD = 2 };
/* ZB-H1; `ahead` 2: up to twice as steep, which takes more than P parts. */
ScheduleTable schedule_zero_bubble(Arena *arena, int64_t stages, int64_t parts, int64_t ahead);
ScheduleTable schedule_gpipe(Arena *arena, int64_t stages, int64_t parts);
ScheduleTable schedule_interleaved(Arena *arena, int64_t stages, int64_t parts, int64_t chunks);
/* The most parts that loop `from` has done and loop `to` has not, on the stages first .. last. */
int64_t schedule_between(const ScheduleTable *table, int from, int to, int64_t first, int64_t last);
/* Does each part of a chunk pass forward through a stage before it passes backward through it? */
bool schedule_in_order(const ScheduleTable *table);
/* Slots that a ring between the two needs on the stages that run m. */
int64_t schedule_ring_slots(const Module *m, const ScheduleTable *table, int from, int to);
/* The time at which all stages are done, if a part takes `time[stage * TURN_LOOPS + loop]` on a
   stage and a message no time; below 0: they wait for each other for ever. */
double schedule_makespan(const ScheduleTable *table, const double *time);
/* The schedule of the parts of a batch in `f`: loops that take turns or, under `gpipe`, those that
   send: all parts forward, then all backward. */
bool schedule_of_batch(Arena *arena, const Fn *f, int64_t stages, ScheduleLoops *loops);
typedef struct TurnSpan { /* one turn of a stage, in time */
  int loop;
  int64_t part;
  double from, to;
} TurnSpan;
/* The same; `span` gets the turns of each stage in their order, parts times the number of loops. */
double schedule_spans(const ScheduleTable *table, const double *time, TurnSpan *span);
/* F0 F1 B0 F2 B1 B2, with W0 .. between, F0a F1a F0b of chunks, at most `words` of them */
const char *schedule_text(Arena *arena, const ScheduleTable *table, int64_t stage, int64_t words);
#endif

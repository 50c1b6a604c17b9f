/* Lower bounds of the plans of a space (plan_space.h): seconds of a step by the forecast, and bytes
   of a rank. A plan gets its bounds without being compiled, and no compiled plan is below them.

   Small programs of the same model are compiled, with two layers and as if with three, on the ranks
   of one copy of the model. Their differences give the cost of one layer, and that of one more
   micro-batch. All plans with the same split of the layers share them in every order of the mesh:
   they tell the messages inside of a copy of the model, and how many seconds of kernels these
   messages can hide (bound_small.c). Before a split is measured, a layer costs its share of one
   rank's work, in whole tiles and without launches, and the gathers and sums of the smallest split
   of its kind.

   The messages of ZeRO between copies of the model are counted from the parameters, for each of its
   axes, at least one per layer. Those that overlap are hidden by kernels, never by other messages,
   because messages take turns. A plan that is likely to win gets small programs of its own, with
   its copies and its ZeRO, which give all of its messages.

   Values saved for micro-batches in flight follow from the table of the pipeline's schedule. It is
   simulated with the seconds of the bodies of the loops over layers (layer_cost.c, bound_stages.c).
   Bounds leave out padding, and copies from and to the host.

   A compiled plan also bounds the bytes of plans that differ from it only by the order of the mesh;
   its saved values and temporaries bound those of plans that differ only in what they shard or
   send. */
#ifndef SHARDC_BOUND_H
#define SHARDC_BOUND_H
#include "plan_space.h"

typedef struct LayerCost {              /* of one sample on a rank */
  double computes, saved;               /* of a layer: seconds; bytes */
  double least;                         /* `computes` in any smaller micro-batch, at least */
  double outside;                       /* seconds outside of the stack */
  double head, first_stage;             /* of these, on the last stage and on the first one */
  double least_head, least_first_stage; /* both in any smaller micro-batch, at least */
  double first, first_outside;          /* both in the first micro-batch, which adds no gradients */
  double working;                       /* bytes of temporaries that grow with the micro-batch */
} LayerCost;

typedef enum StepPart { OF_LAYER_AND_PART, OF_PART, OF_LAYER, ONCE, STEP_PARTS } StepPart;
typedef struct SmallSent { /* messages of a kind over an axis, by part of the step */
  SpaceField axis;
  OpCode kind;
  double calls[STEP_PARTS], bytes[STEP_PARTS];
} SmallSent;
typedef struct SmallCost { /* of small programs */
  SpacePlan plan;          /* with those numbers by which their plans differ from others alone */
  int32_t micro;
  bool inside; /* of all plans with this split: messages inside of a copy of the model alone */
  bool known;
  LayerCost cost;
  /* Seconds of a layer, and of all else with the update, in a step of one micro-batch. */
  double single, single_outside;
  /* Seconds of kernels during which a message can be in flight; .. that `least` counts. */
  double hidden[STEP_PARTS], least_hidden[STEP_PARTS];
  double seconds[STEP_PARTS]; /* of a plan without stages, with its mesh: all */
  uint32_t n;
  SmallSent sent[MOST_SENT];
  CostLayer layer; /* its axes are fields of a plan */
} SmallCost;

typedef struct SentSeconds { /* of a plan's messages */
  uint32_t of;               /* PlanBounds.small, from 1 */
  SpacePlan plan;
  double seconds;
} SentSeconds;

typedef enum KeptUntil { UNTIL_BACKWARD, UNTIL_WEIGHTS, BETWEEN_BOTH, KEPT_KINDS } KeptUntil;
typedef enum StageKind { STAGE_FIRST, STAGE_LAST, STAGE_MIDDLE, STAGE_KINDS } StageKind;
typedef struct KeptParts { /* micro-batches whose values a layer keeps */
  int64_t key;
  double kept;                           /* on the first stage */
  double until[STAGE_KINDS][KEPT_KINDS]; /* with gradients of weights in turns of their own */
} KeptParts;
enum { KEPT_SLOTS = 1 << 12 }; /* and as many SentSeconds */

enum { TURNS_OF = STAGE_KINDS * TURN_KINDS };
typedef struct TurnsDone { /* seconds until all stages are done */
  int64_t key;
  double time[TURNS_OF], seconds;
} TurnsDone;

typedef struct KnownBytes { /* of a plan that was compiled */
  SpacePlan plan;
  double bytes, saved; /* without its buckets; its saved values */
  double share;        /* of these to those that its bound counted */
  double working;      /* its temporaries without whole layers */
} KnownBytes;

typedef struct AlikeBound {
  SpacePlan plan;
  double seconds, bytes;
} AlikeBound;

typedef struct PlanBounds {
  const PlanSpace *space;
  ChangeSearch search; /* of small programs */
  Machine machine;     /* of the forecast; if there is none (`reach` NULL), of the bound */
  LayerCost whole[2];  /* on one rank, by KEEP_ALL, KEEP_INPUT */
  double weights, gradients, optimizer; /* bytes of a rank that has all */
  double parameters, of_layers;         /* numbers; of a layer, or a round of several kinds */
  double wire;                          /* bytes of an element in messages, at least */
  bool bytes;                           /* gradients or parameters are sent in 8 bits */
  VEC(SmallCost) small;
  VEC(KnownBytes) known;
  KeptParts *flying; /* by hash of the key: those that were asked for last */
  TurnsDone *turns;  /* likewise */
  AlikeBound *alike; /* of the plan that was asked for last */
  SentSeconds *sent; /* likewise */
  uint32_t compiled;
} PlanBounds;

typedef struct Bound {
  double seconds, bytes;
  double guess; /* seconds; no bound: which of several to try first */
} Bound;

bool bounds_open(const PlanSpace *space, const ChangeSearch *search, PlanBounds *out);
/* True: small programs of the plan are known now that were not before. next: a plan that is likely
   to want others next, which are compiled at the same time; NULL: none is. */
bool bounds_refine(PlanBounds *bounds, const SpacePlan *plan, const SpacePlan *next);
/* Which programs it would measure: equal for plans that want the same. False: none. */
bool bounds_wants(const PlanBounds *bounds, const SpacePlan *plan, SpacePlan *program);
/* Its plan was compiled. */
void bounds_learn(PlanBounds *bounds, const SpacePlan *plan, const Cost *cost);
Bound bound_of(const PlanBounds *bounds, const SpacePlan *plan);
/* The same, or another one with at least `enough` seconds, and no bytes. */
Bound bound_below(const PlanBounds *bounds, const SpacePlan *plan, double enough);
/* A bound of all plans that differ from this one by ZeRO, offload and the order of the mesh alone:
   what these do not change. Its guess is one of this plan, which promises no more. */
Bound bound_of_alike(const PlanBounds *bounds, const SpacePlan *plan);

int64_t bound_parts(const PlanSpace *space, const SpacePlan *plan); /* micro-batches */

/* ---- bound_measure.c ---- */

/* The program of a plan with this number of layers, 0: all, and this batch. */
Change bound_change(const PlanBounds *bounds, const SpacePlan *copy, int layers, int batch);
/* Programs of two layers and of three, in a step of `parts` micro-batches on each copy of the
   model. */
bool bound_measure_layers(PlanBounds *bounds, const SpacePlan *copy, int parts, Cost *two,
                          Cost *three);
LayerCost bound_cost_between(const Cost *two, const Cost *three, double micro); /* of one sample */

/* ---- bound_small.c ---- */

/* The plan of its programs, of one copy of the model (inside) or its own; and the numbers by which
   they differ from others, but for the micro-batch. */
SpacePlan bound_copy(const PlanBounds *bounds, const SpacePlan *plan, bool inside, int micro);
SpacePlan bound_key(const PlanBounds *bounds, const SpacePlan *plan, bool inside);
/* In programs inside of a copy: gradients are shards of those of many copies, or whole. */
void bound_set_copies(const PlanBounds *bounds, SpacePlan *plan, bool shards);
bool bound_is_known(const PlanBounds *bounds, const SpacePlan *key, int micro); /* likewise */
SpaceField bound_field(const int axis[SPACE_AXES], int of);
/* Does it split samples? Messages over such an axis are not those inside of a copy. */
bool bound_of_copies(SpaceField axis);
/* With the smallest axes `tensor` and `context` that split the same dims, and the whole batch in a
   micro-batch: what is known of messages inside of its copies, NULL: nothing. */
SpacePlan bound_smallest_key(const PlanBounds *bounds, const SpacePlan *plan);
const SmallCost *bound_smallest(const PlanBounds *bounds, const SpacePlan *plan);
/* Seconds of a step of a plan whose own split is not known, by messages of the smallest one. */
double bound_larger_split(const PlanBounds *bounds, const SpacePlan *plan, double layers,
                          double parts, double busy);
/* NULL: none is known. With the plan's micro-batch, or the nearest larger one. inside: those that
   all plans with its split share. */
const SmallCost *bound_small(const PlanBounds *bounds, const SpacePlan *plan, bool inside);
bool bound_splits_backward(const SpacePlan *plan);
/* Seconds of messages of one layer in a turn for which its kernels wait, at least. */
void bound_turn_sent(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                     double out[TURN_KINDS]);
/* Seconds of messages inside of a copy in layers for which kernels wait, in a step. */
double bound_blocking(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                      double layers, double parts);
/* Seconds of messages of these turns that their kernels do not hide; below 0: they hide more. */
double bound_later(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                   double layers, double parts);
/* Seconds of all its messages in a step, at least. */
double bound_sent(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                  double layers, double parts);
/* Seconds of one more micro-batch of a plan without stages, with its messages, if its layers follow
   each other as those of its own programs do; 0: not known. */
double bound_more(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost);
/* .. of kernels during which one can be in flight, at most; of those that LayerCost.least counts,
   unless it is the plan's micro-batch. */
double bound_hidden(const SpacePlan *plan, const SmallCost *cost, double layers, double parts);
/* Seconds of messages of gradients after the turns of a pipeline: all, and returned those that
   nothing hides. */
double bound_after(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                   double layers, double *all);

/* ---- bound_stages.c ---- */

int64_t bound_layers(const PlanSpace *space, const SpacePlan *plan); /* of the largest stage */
bool bound_uneven(const PlanSpace *space, const SpacePlan *plan);
ScheduleTable bound_schedule(Arena *arena, const SpacePlan *plan, int64_t parts);
/* Differs for plans of other schedules, stages or micro-batches. */
int64_t bound_schedule_key(const PlanSpace *space, const SpacePlan *plan);
/* Seconds of the messages between stages, for which they wait. */
double bound_handed(const PlanBounds *bounds, const SpacePlan *plan);
/* Seconds until all stages are done with their turns, with messages for which these wait: at least.
   small: NULL, or programs that do not know its turns: only its layers and a bubble. */
double bound_turns(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                   const LayerCost *layer);
#endif

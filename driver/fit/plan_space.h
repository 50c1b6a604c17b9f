/* The space of plans that `shardc plan --search` looks at: for one model, one train block and one
   machine, every mesh of all ranks over the axes below, with ZeRO, micro-batches, recomputation,
   pipelines and offload. A plan of the space is a row of numbers; its text is a plan block, and the
   compiler reads that text: a plan is found as it is printed (change.c, key `written`). */
#ifndef SHARDC_PLAN_SPACE_H
#define SHARDC_PLAN_SPACE_H
#include "search.h"
#include "ir/cost/machine.h"

typedef enum SpaceField { /* of a row; the first ones are the sizes of axes, in the mesh's order */
                          FIELD_TENSOR,
                          FIELD_CONTEXT,
                          FIELD_EXPERT, /* splits experts, and the samples of all other layers */
                          FIELD_DATA,
                          FIELD_REPLICA, /* `zero` does not shard over it */
                          FIELD_PIPE,
                          SPACE_AXES,
                          FIELD_ORDER = SPACE_AXES, /* of the axes: a permutation's number */
                          FIELD_SEQUENCE,           /* tensor: `else Seq` */
                          FIELD_WAY,                /* context: how attention gets keys */
                          FIELD_ZERO,
                          FIELD_OVER,    /* 1: zero over data and context */
                          FIELD_OVERLAP, /* 1: overlap, in stage 3 with
                                             prefetch; 2: with prefetch in stages 1, 2 */
                          FIELD_FULL,    /* accumulate = full */
                          FIELD_MICRO,
                          FIELD_RECOMPUTE,
                          FIELD_PIPELINE,
                          FIELD_OFFLOAD,
                          SPACE_FIELDS
} SpaceField;
/* FIELD_RECOMPUTE; KEEP_AUTO + N: `keep = auto` with a budget of N MiB. */
enum { KEEP_ALL, KEEP_INPUT, KEEP_SPLIT, KEEP_AUTO };
enum { WAY_GATHER, WAY_BALANCED, WAY_RING, WAY_EXCHANGE, WAYS }; /* FIELD_WAY */
enum { LAST_ZERO = 3, OVERLAP_AHEAD = 2 };                       /* of FIELD_ZERO, FIELD_OVERLAP */

typedef struct SpacePlan {
  int32_t at[SPACE_FIELDS];
} SpacePlan;
typedef void SpaceVisit(void *visitor, const SpacePlan *plan);
typedef struct SpaceFix { /* what `--fix` says of a field */
  const char *list;       /* NULL: nothing */
  uint32_t words;         /* of a field with words: a bit for each value that it admits */
} SpaceFix;

typedef struct PlanSpace {
  Cli *o;
  Module *m; /* lowered, with a mesh of all ranks that splits nothing */
  Machine machine;
  int64_t ranks, nodes, batch;
  const char *name;                       /* of a plan that no file has */
  PlanText base;                          /* `on`, and lines that the search does not choose */
  const char *tensor, *sequence, *layers; /* dims, "": none */
  const char *stack;                      /* "h.*"; "": none or several */
  const char *experts;                    /* the dim of experts that tokens choose, "": none */
  const char *tensor_beside;              /* `tensor`, where another axis splits the experts */
  double handed;                          /* numbers that a layer hands on, of a sample */
  int64_t layer_count, sequence_size, expert_count;
  double first_parameters;    /* numbers that ops before the layers read */
  double largest;             /* part of a round's numbers that its largest kind of layer has */
  double expert_parameters;   /* numbers with the dim of experts */
  bool masked;                /* attention over the sequence has a mask */
  const char *heads;          /* its heads, which an exchange splits; NULL: none */
  SpaceFix fix[SPACE_FIELDS]; /* read when plans are listed */
  SpaceVisit *visit;          /* by space_list */
  bool only_over;             /* .. plans that shard over data and context alone */
  void *visitor;
} PlanSpace;

/* False: said why, as wrong use. */
Exit space_open(Cli *o, PlanSpace *out);
const char *space_fixed(const Cli *o, const char *key); /* the values of `--fix KEY=..`, or NULL */
void space_find_dims(PlanSpace *space, Module *simple); /* from the model, to be simplified */
/* The dims that its axis `tensor` splits. */
const char *space_tensor(const PlanSpace *space, const SpacePlan *plan);
/* Ranks that split the samples. */
int64_t space_copies(const SpacePlan *plan);
/* .. with those over which ZeRO shards. */
int64_t space_shards(const SpacePlan *plan);
/* The same axes, whatever their order in the mesh. */
bool space_same_mesh(const SpacePlan *a, const SpacePlan *b);
/* The line of the machine block without which no time is known, "link intra": neither it nor the
   arch gives the rate. NULL: none. */
const char *space_lacks_rate(const PlanSpace *space);
/* Visits all plans that the machine and `--fix` admit, in the order of simplicity: millions. */
void space_list(const PlanSpace *space, SpaceVisit *visit, void *visitor);
/* ---- plans that no space has, which a search tries for the best one that it found ---- */

/* The plan with its micro-batch multiplied by `times`, and `keep = auto` with a budget of these
   bytes; 0: `keep = input`. False: the model or `--fix` does not admit it. */
bool space_keeping(const PlanSpace *space, const SpacePlan *plan, int times, double bytes,
                   SpacePlan *out);
/* With another way of its context axis; false: it is not legal, or `--fix` has `way`, and then the
   space has all of them. */
bool space_with_way(const PlanSpace *space, const SpacePlan *plan, int way, SpacePlan *out);
const char *space_text(const PlanSpace *space, const SpacePlan *plan, const char *name);
const char *space_value(Arena *arena, const SpacePlan *plan,
                        SpaceField field); /* "interleaved 2" */
const char *space_key(SpaceField field);   /* of `--fix` */
int space_word_count(SpaceField field);    /* its values, if they are words; 0: they are numbers */
/* All of its values; for FIELD_ORDER, the words between dashes; "": whole numbers above 0. */
const char *space_words(Arena *arena, SpaceField field);
/* Those of another value of the field than the plan's. */
const char *space_unlike(const PlanSpace *space, const SpacePlan *plan, const SpacePlan *than);
Change space_change(const PlanSpace *space, const SpacePlan *plan);
/* The same, without what kernels and messages of a GPU wait for each other. */
Change space_change_compared(const PlanSpace *space, const SpacePlan *plan);
/* The mesh of a plan, in this storage, with the space's other facts: for times of messages. `axis`
   gets the place of each axis in it, -1: it has one rank. */
Module space_mesh(const PlanSpace *space, const SpacePlan *plan, MeshAxis mesh[SPACE_AXES],
                  int axis[SPACE_AXES]);
/* Is `data` before `context` in the mesh? Parameters are whole over the first of ZeRO's axes, and
   shards of them over the second. */
enum { ORDER_CONTEXT_FIRST = 0, ORDER_DATA_FIRST = 2 };
bool space_data_first(const SpacePlan *plan);
/* The links of the axes, as far as times of messages depend on them: the same for orders that cost
   the same, but for plans that shard over both data and context. */
typedef struct SpaceLinks {
  double rate[SPACE_AXES];
  int32_t joined[SPACE_AXES]; /* ranks of a ring in one node */
  bool crosses[SPACE_AXES];   /* between nodes */
  bool data_first;            /* of these two axes: no link */
} SpaceLinks;
SpaceLinks space_links(const PlanSpace *space, const SpacePlan *plan);
bool space_same_links(const SpaceLinks *a, const SpaceLinks *b);
#endif

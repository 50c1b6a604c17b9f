/* A function being rewritten for partitioned states (zero_rewrite.c, zero_loops.c,
   zero_gradients.c). */
#ifndef SHARDC_PASSES_ZERO_SITE_H
#define SHARDC_PASSES_ZERO_SITE_H
#include "zero.h"

enum { REF_VIEWS = 2 };

typedef struct Ref { /* an old value that is a member of a group */
  int group;         /* -1: it is none */
  uint32_t member;
  bool all; /* with the rounds of its stack */
  int nviews;
  const Op *view[REF_VIEWS]; /* renamed so, in this order */
} Ref;

typedef struct PullLink { /* a loop that a part's gradient leaves */
  const Op *loop;
  ValueId *out;   /* its results, by member */
  ValueId *inner; /* the values that its body adds up or stacks */
} PullLink;

typedef struct Pull { /* how the gradient of a part of a group leaves */
  bool wanted;
  ValueId *sum;   /* old values by member */
  Elem elem;      /* of the group's, to which they are cast */
  const Op *loop; /* that all of them are results of, or NULL; the last one of `link` */
  ValueId *out;   /* its results, before a cast */
  bool carried;
  VEC(PullLink) link; /* loops that write a part of the stack each, in order */
} Pull;

typedef struct Claim { /* the gradient of a parameter, and the result that it is further out */
  ValueId sum, out;
} Claim;

typedef struct GatheredRounds { /* the stack of a group's rounds that a loop has gathered */
  uint32_t group;
  int64_t first, trip;
  ValueId value;
} GatheredRounds;

typedef struct ZeroSite {
  Zero *z;
  const Fn *from;
  Fn *to;
  ValueId *map; /* by old value */
  Ref *ref;     /* by old value */
  bool *narrow; /* by old value: the new one has the narrow type already that readers cast it to */
  ValueId *kept[2], *flat[2]; /* by group; [1]: all rounds; as stored, and whole */
  ValueId *scale[2];          /* of kept, if these are codes of 8 bits; NO_VALUE */
  bool *whole;                /* by group: kept is whole, as a loop before has gathered it */
  VEC(GatheredRounds) rounds;
  Pull *pull;        /* by part of a group's gradient */
  ValueId *reduced;  /* by part */
  uint32_t *claimed; /* by old value: its reads that are those of gradients of groups */
  VEC(Claim) claim;
  bool *finished;  /* by part: reduced is the value that leaves the function */
  bool *copied;    /* by op: a loop that is copied already */
  bool *staged;    /* by op: a loop that was seen with its receives and sends */
  OpId hops;       /* sends and receives before this op of `from` are copied, in their order */
  uint32_t *epoch; /* by op: stacks that ran before it */
  uint32_t epochs;
  ValueId *again; /* by epoch and group: gathered again; by epoch and value: sliced from it */
  ValueId *member;
} ZeroSite;

ZeroSite site_begin(Zero *z, const Fn *from, Fn *to);
/* The new value of an old one, made if need be; and as op o of the old function reads it. */
ValueId site_value(ZeroSite *s, ValueId v);
ValueId site_operand(ZeroSite *s, const Op *o, ValueId v);
/* The member of a group, or the view of one, that an old value is. */
Ref site_ref(ZeroSite *s, ValueId v);
/* Has the new value the narrow type already that readers of the old one cast it to? */
bool site_is_narrow(ZeroSite *s, ValueId v);
/* Sends and receives of `from` before op `end`, including those that no copied op reads: the rank
   on the other side waits for them in the order that they had. */
void site_hops(ZeroSite *s, OpId end);

/* In the body of a stack: a round of a group, whole. */
ValueId site_round(ZeroSite *s, uint32_t group);

/* ---- loops (zero_loops.c) ---- */
void site_loop(ZeroSite *s, const Op *loop); /* copied, unless it is already */
/* The loop over layers between a receive and a send; NULL: another op. */
const Op *site_stages_of(const ZeroSite *s, const Op *hop);
/* Copies such a loop with its receive and its send. False: it has none, or is being copied. */
bool site_stages(ZeroSite *s, const Op *loop);
bool zero_holds_hops(const Op *o);

/* ---- gradients (zero_gradients.c) ---- */
void zero_gradients(ZeroSite *s);                   /* of all parts, in entry step */
ValueId zero_gradient(ZeroSite *s, uint32_t group); /* of all rounds, as site_reduced */
/* Says which old values are the gradients of a part of a group, which `out` of the function around
   are made of; NULL: they leave no loop. Then, of all of them, which leave their loops with their
   groups. Both before anything of the function is copied. */
void site_gradient(ZeroSite *s, uint32_t part, const ValueId *sum, const ValueId *out, Elem elem);
void site_gradients_leave(ZeroSite *s);
/* The part's gradient as it leaves this function: flat, or in an entry, or if it is reduced at
   once, the sum over the axis: this rank's shard, or without sharding all of it. */
ValueId site_reduced(ZeroSite *s, uint32_t part);
/* Is a gradient reduced as soon as it is final, or whole until the end of the step? */
bool zero_reduces_at_once(const Zero *z, const ZeroGroup *group);

/* In entry step: the update of a group on this rank's own shard. Stores the new states, returns
   the new parameters (zero_update.c). */
ValueId zero_update(ZeroSite *s, uint32_t group, ValueId param, ValueId gradient);
#endif

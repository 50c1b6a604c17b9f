/* A function being rewritten for partitioned states (zero_rewrite.c). */
#ifndef SHARDC_PASSES_ZERO_SITE_H
#define SHARDC_PASSES_ZERO_SITE_H
#include "passes/zero.h"

enum { REF_VIEWS = 2 };

typedef struct Ref { /* an old value that is a member of a group */
  int group;         /* -1: it is none */
  uint32_t member;
  bool all; /* with the rounds of its stack */
  int nviews;
  const Op *view[REF_VIEWS]; /* renamed so, in this order */
} Ref;

typedef struct PullLink { /* a loop that a group's gradient leaves */
  const Op *loop;
  ValueId *out;   /* its results, by member */
  ValueId *inner; /* what its body adds up or stacks */
} PullLink;

typedef struct Pull { /* how a group's gradient leaves */
  bool wanted;
  ValueId *sum;   /* old values by member */
  Elem elem;      /* of the group's, to which they are cast */
  const Op *loop; /* that all of them are results of, or NULL; the last one of `link` */
  ValueId *out;   /* its results, before a cast */
  bool carried;
  VEC(PullLink) link; /* loops that write a part of the stack each, in order */
} Pull;

typedef struct ZeroSite {
  Zero *z;
  const Fn *from;
  Fn *to;
  ValueId *map; /* by old value */
  Ref *ref;     /* by old value */
  bool *narrow; /* by old value: the new one has the narrow type already that readers cast it to */
  ValueId *kept[2], *flat[2]; /* by group; [1]: all rounds; as stored, and whole */
  Pull *pull;
  ValueId *reduced; /* by group */
  bool *finished;   /* by group: reduced is what leaves the function */
  bool *copied;     /* by op: a loop that is there already */
  bool *staged;     /* by op: a loop that was seen with its receives and sends */
  OpId hops;        /* sends and receives before this op of `from` are there, in their order */
  uint32_t *epoch;  /* by op: stacks that ran before it */
  uint32_t epochs;
  ValueId *again; /* by epoch and group: gathered anew there; by epoch and value: taken from that */
  ValueId *member;
} ZeroSite;

ZeroSite site_begin(Zero *z, const Fn *from, Fn *to);
ValueId site_value(ZeroSite *s, ValueId v);
/* Sends and receives of `from` before op `end`, also those that nothing here reads: the rank on
   the other side waits for them in the order that they had. */
void site_hops(ZeroSite *s, OpId end); /* the new value of an old one, made if need be */
/* Says which old values are the gradients of a group; before anything of the function is copied. */
void site_gradient(ZeroSite *s, uint32_t group, const ValueId *sum, Elem elem);
ValueId site_reduced(ZeroSite *s, uint32_t group);
/* In entry step: the update of a group on what this rank owns of it. Stores the new states, returns
   the new parameters (zero_update.c). */
ValueId zero_update(ZeroSite *s, uint32_t group, ValueId param, ValueId gradient);
#endif

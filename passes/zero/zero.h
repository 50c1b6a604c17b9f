/* Partitioning of states (ZeRO), internal declarations: the groups of parameters that one axis
   shares (zero_groups.c), their flat layout (zero_flat.c), the rewriting of functions
   (zero_rewrite.c, zero_loops.c, zero_gradients.c), and of updates (zero_update.c).

   An update by matrices (muon.c) needs members whole: rounds are dealt to ranks for it
   (zero_matrices.c).

   A group has a flat layout, one round of its stack after the other: the local blocks of its
   members are concatenated in the order of declaration (dim flat) and cut in buckets of equal
   length, the last one padded with zeros: [rounds, flat] = [rounds, buckets, owners, piece]. If
   updates use norms of members, buckets are short and each member is padded to whole ones, so that
   a member's sum is one of its buckets' (zero_update.c).

   Rank i of the axis owns the i-th piece of every bucket, so a bucket's reduce-scatter ends at its
   owners. With several axes each has a dim of owners, the first axis of the mesh the coarsest:
   sums are scattered over it first and whole values gathered over it last, so messages over the
   later axes, whose ranks are farther apart, are already reduced to a shard. */
#ifndef SHARDC_PASSES_ZERO_H
#define SHARDC_PASSES_ZERO_H
#include "passes/base/rebuild.h"

enum { ZERO_STATES = 4, ZERO_AXES = 4 };

typedef struct ZeroMember {
  Global *param, *state[ZERO_STATES];
  ValueId leaf;        /* of `step`: the complete gradient, as the update reads it */
  ValueId sum;         /* of `step`: the partial gradient, before the first all_reduce */
  Elem elem;           /* of the gradient where it is summed: the narrowest up to `leaf` */
  Str order[MAX_RANK]; /* dims of `sum` in the order of the parameter's */
  ValueId square;      /* of `step`: sum of squares of leaf, for the norm; NO_VALUE: none */
  OpId *chain;         /* ops of the update, in order */
  uint32_t nchain;
  const bool *number; /* by value of `step`: of the chain, and one number per round */
  const bool *whole;  /* by value of `step`: of the chain, in the part that needs whole matrices */
  ValueId part, made; /* what this part reads, and its result; NO_VALUE: there is no such part */
  bool copied; /* there is a master; every reader casts it to `narrow`, if that is another type */
  Elem narrow;
  Str signature;        /* the chain in words: equal ones can be done as one */
  int64_t begin, count; /* elements of one round: where in the flat dim, how many */
} ZeroMember;

typedef struct ZeroGroup {
  Str name;
  Axis rounds; /* the stack's dim; no dim: parameters outside of stacks */
  VEC(ZeroMember) member;
  uint32_t nstates;
  int naxes, nothers;    /* naxes = 0: each rank owns all of its own, for `offload` */
  Str axis[ZERO_AXES];   /* over which it is partitioned, in the order of the mesh */
  Str others[ZERO_AXES]; /* further axes over which the gradient is a partial sum */
  int64_t ways;          /* parts: ranks of all its axes */
  int stage;             /* the plan's, or 2 for parameters that stay whole */
  bool sharded;          /* parameters are also one rank's shard between steps (zero_sharded.c), */
  bool keeps_rounds;     /* and in a step whole from the loop that gathers them first to the last */
  unsigned hosted;       /* offload words that cover all members: bits of `zero_hosted` */
  bool frozen; /* no update writes it: there is neither gradient nor state, stage 3 alone has it */
  bool complete; /* nothing sums the gradient over these axes last: every rank takes its part */
  bool summed_inside; /* also over `others`, round by round as soon as it is final */
  bool measured;      /* the update uses numbers of each member: a bucket belongs to one member */
  bool gathers_all;   /* of a stack: all rounds are whole at once, in a stage against that */
  bool sums_all;      /* the same of gradients */
  int64_t buckets, piece; /* of one round; elements of one rank's part of a bucket */
  Str flat, bucket, owner[ZERO_AXES], part; /* names of the dims; an owner for each axis */
  Global *param, *state[ZERO_STATES];
  /* Parameters that are read only after a cast to a narrower type, `narrow`, are kept in it; param
     is this copy then, and `master` the parameters themselves, one rank's shard from stage 1 on. */
  bool copied;
  Elem narrow;
  Global *master;
  int64_t gradient; /* elements that a rank holds of its sum */
} ZeroGroup;

/* Elements of the flat value, its padding included. */
static inline int64_t zero_padded(const ZeroGroup *group) {
  return group->buckets * group->piece * group->ways;
}

/* The piece of a group's gradient that is added up by itself: all rounds, or those of a chunk of
   layers, each of which has loops of its own (stream_chunks.c). */
typedef struct ZeroPart {
  uint32_t group, chunk, chunks;
} ZeroPart;

/* Is it read in another type than that of its master weights? */
static inline bool zero_narrows(const ZeroGroup *g) {
  return g->copied && g->narrow != g->member.at[0].param->type.elem;
}

typedef struct Zero {
  Module *m;
  const Fn *step;
  int naxes;
  Str axis[ZERO_AXES]; /* in the order of the mesh */
  int stage;
  int64_t persist;    /* stage 3: parameters of at most this many bytes a round stay whole */
  bool keep_root;     /* stage 3: parameters outside of stacks stay gathered after use */
  bool keep_gathered; /* stage 3: parameters are gathered once, where an entry begins */
  bool full;          /* stage 2: gradients stay whole until the end of the step */
  int64_t bucket_bytes;
  bool asked; /* by the plan: the type in which gradients are sent */
  Elem reduce;
  bool int8_weights; /* stage 3 gathers in 8 bits */
  int64_t unit;      /* elements: pieces are multiples of it, as blocks of 8 bits require */
  VEC(ZeroGroup) group;
  VEC(ZeroPart) part;        /* pieces of one group are adjacent */
  VEC(const Global *) named; /* parameters that no group takes, though ranks hold them alike */
  const char *why;           /* of the first of them */
  bool hosts;                /* updates are on the host, of these parameters or those */
} Zero;

/* By op: how many stacks ran before it; returns how many there are in all, plus one. */
uint32_t zero_epochs(const Zero *z, const Fn *f, uint32_t **epoch);
/* Writes entry step anew: parameters that have one gradient get values of their own. */
void zero_unshare(Zero *z);
bool zero_completes(const Op *o); /* is it an op between a partial gradient and the whole one? */
Axis zero_rounds_of(const Global *g); /* the dim of the stack of a parameter; no dim: it has none */
/* Fills z->group from entry step. */
void zero_find_groups(Zero *z);
void zero_find_sharded(Zero *z);                         /* sets g->sharded, g->keeps_rounds */
void zero_find_parts(Zero *z);                           /* of their gradients: fills z->part */
ZeroGroup zero_part_group(const Zero *z, uint32_t part); /* with as many rounds as the part has */
/* Compares resident bytes with the stage's arithmetic, once globals and functions are final; NULL:
   all is accounted for (zero_check.c). */
const char *zero_unaccounted(const Zero *zero, const Global **at);
int64_t zero_alike(const Zero *z,
                   const Global *g);       /* ranks of the plan's axes that hold it alike */
int64_t zero_round_bytes(const Global *g); /* of one layer, or of a parameter outside of stacks */
bool zero_waits_for_stages(const Zero *z, const ZeroGroup *group); /* with sums, to the end */
void zero_warn(Zero *z); /* of values that stay whole although the stage shards them */
bool zero_partitions(const Zero *z, Str axis); /* does the plan, over this axis of the mesh? */
/* The `offload` words that cover a parameter, a bit for each; the first one is the update's: such
   a parameter is kept apart from the result of the update, in whatever type. */
enum { HOSTED_UPDATE = 1, HOSTED_GRADS = 2 };
unsigned zero_hosted(const Zero *zero, const Global *param);
bool zero_is_alone(const Zero *zero, unsigned hosted); /* one rank's, downloaded to the host */
int64_t zero_ways(const Zero *z, Str axis);            /* ranks of a mesh axis */

/* ---- flat values (zero_flat.c); `all`: with the rounds in front ---- */
Type zero_flat_type(const ZeroGroup *group, Elem e, bool all); /* [rounds, flat] */
/* [rounds, buckets, owners, piece]: of all owners, or of one rank. */
Type zero_owned_type(const Zero *z, const ZeroGroup *group, Elem e, bool all, bool whole);
/* Members, or their gradients, end to end with the padding. */
ValueId zero_flatten(Zero *z, Fn *f, const ZeroGroup *group, const ValueId *member, bool all,
                     bool gradient);
ValueId zero_member(Zero *z, Fn *f, const ZeroGroup *group, uint32_t i, ValueId flat, bool all);
ValueId zero_cut(Zero *z, Fn *f, const ZeroGroup *group, ValueId flat, bool all); /* flat: owned */
ValueId zero_join(Zero *z, Fn *f, const ZeroGroup *group, ValueId owned,
                  bool all); /* owned: flat */
ValueId zero_own(Zero *z, Fn *f, const ZeroGroup *group,
                 ValueId owned);                       /* this rank's part of it */
ValueId zero_sum(Zero *z, Fn *f, Str axis, ValueId v); /* all_reduce over a mesh axis */
ValueId zero_sum_gradient(Zero *z, Fn *f, Str axis, ValueId v);
/* Over the group's axes: the sum, of which each rank keeps its shard, or without partitioning all
   of it; and the shards of all ranks. */
ValueId zero_reduce(Zero *z, Fn *f, const ZeroGroup *group, ValueId owned);
ValueId zero_gather(Zero *z, Fn *f, const ZeroGroup *group, ValueId owned);
/* Parameters of stage 3 that are gathered in 8 bits: a rank's piece as codes, which layers get with
   their scales in place of it, and the parts of all ranks. */
bool zero_packs(const Zero *z, const ZeroGroup *group);
ValueId zero_pack(Zero *z, Fn *f, const ZeroGroup *group, ValueId owned, ValueId *scale);
ValueId zero_gather_packed(Zero *z, Fn *f, const ZeroGroup *group, ValueId codes, ValueId scale);
/* The part of a group's update that needs whole matrices (zero_matrices.c). own: the rank's shard
   of the values that this part reads; the result is its shard of those that the part makes. */
ValueId zero_matrices(Zero *z, Fn *f, const ZeroGroup *group, ValueId own);
/* Numbers of a rank's own shard, as those of all owners. */
ValueId zero_numbers(Zero *z, Fn *f, const ZeroGroup *group, ValueId own);
/* The number of messages of a value if c sends it over `ways` ranks: 1 if it is no group's. */
int64_t zero_messages(const Zero *z, OpCode c, const Type *in, int64_t ways);
/* The rank's own shard of the parameters, in the form and type in which they are read
   (zero_publish.c). */
ValueId zero_publish(Zero *z, Fn *f, const ZeroGroup *group, ValueId owned);
#endif

/* Inside of the ranks of one process: interp_ranks.c (collectives, runs), interp_ranks_globals.c
   (what they hold of a global). */
#ifndef SHARDC_INTERP_RANKS_INSIDE_H
#define SHARDC_INTERP_RANKS_INSIDE_H
#include "interp_ranks.h"
#include "ir/schedule/message.h"
#include <pthread.h>

typedef struct Meeting { /* of the ranks that differ along one axis alone */
  int64_t waiting, turn;
} Meeting;

typedef struct HopMessage {
  double *data;
  int64_t n, room;
} HopMessage;

typedef struct Hop { /* what a rank has sent to its neighbour, until that has taken it */
  VEC(HopMessage) message;
  uint32_t first, end; /* of those that wait */
} Hop;

struct Ranks {
  Module *m; /* the first rank's: classes may have programs of their own */
  Arena *arena;
  int64_t n;
  Interp **rank;
  const Tensor **shown;   /* by rank: the operand of the collective in which all are */
  const double **sent_by; /* the same in bytes' order, */
  const Op **at;          /* and which collective that is, */
  const Message **said;   /* of which size */
  pthread_mutex_t lock;
  pthread_cond_t all;
  Meeting *meeting; /* by axis and rank: of the group whose first rank that is */
  Hop *hop;         /* by axis, direction and rank that sends */
  bool failed;      /* a rank has stopped: no other waits for it */
  int64_t sent[MAX_MESH][OP_COUNT], calls[MAX_MESH][OP_COUNT];
  const char *entry, *error;
  bool placed;
};

#endif

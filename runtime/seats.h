/* What the ranks of one machine share besides tensors: a table of seats, one per rank, in memory
   that all have mapped. Each rank writes its own seat; the others read how it is and what it does.

   meet.c brings the ranks together, guard.c watches over them, comm_local.c moves data. */
#ifndef SHARDC_RT_SEATS_H
#define SHARDC_RT_SEATS_H
#include "comm.h"
#include <pthread.h>
#include <stdatomic.h>

enum { SEAT_TEXT = 160 };

typedef enum SeatState { SEAT_RUNS, SEAT_WAITS, SEAT_LEFT } SeatState;
typedef enum Trouble {
  TROUBLE_NONE,
  TROUBLE_DIED,
  TROUBLE_ENDED,
  TROUBLE_SILENT,
  TROUBLE_LATE,
  TROUBLE_DISAGREES
} Trouble;

typedef struct Seat {
  char host[64];
  int64_t pid;
  atomic_int state, status; /* status: of the exit, when it has left */
  atomic_int inside;        /* of a collective, between the first and the last touch */
  atomic_uint beat;         /* counts up while the process lives */
  atomic_ullong moves;      /* counts up with every step of a collective */
  atomic_ullong call;       /* seat_call: number of the call << 32 | row + 1 */
  char text[SEAT_TEXT];     /* of calls that are in no table */
} Seat;

typedef struct Table {
  _Alignas(64)
      atomic_ullong trouble; /* the first that went wrong: Trouble << 32 | rank; 0: nothing */
  atomic_ullong against;     /* TROUBLE_DISAGREES: another rank */
  Seat seat[];
} Table;

typedef struct Hello { /* what ranks tell when they meet; all but rank, pid and host must be equal
                        */
  char magic[8];
  int32_t rank, world, abi, nothing;
  int64_t pid;
  uint64_t program, options, layout;
  char host[64];
} Hello;

typedef struct Meeting {
  int *peer; /* rank 0: sockets of all others; else of rank 0 at [0]. They close when a process ends
              */
  int npeers;
  int memory;   /* file descriptor of the shared memory */
  Hello *hello; /* rank 0: of all */
} Meeting;

bool rt_meet(Meeting *m, const Launch *l, const Hello *mine, int64_t bytes, double seconds,
             Fault *f);

typedef struct Guard {
  Comm *comm;
  Table *table;
  Meeting *meeting;
  double late, silent; /* seconds */
  _Atomic double waits_since,
      patience;       /* of this rank: when it began to wait, how long it may last */
  atomic_int missing; /* the rank waited for */
  pthread_t thread;
} Guard;

bool rt_guard_start(Guard *g, Fault *f);
void rt_guard_trouble(Guard *g, Trouble what, int rank, int against); /* all ranks end */
#endif

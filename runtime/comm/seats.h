/* What ranks know of each other besides tensors: a table of seats, one per rank. Each rank writes
   its own seat; the others read how it is and what it does. On one machine all have the table
   mapped; between machines each process has its own, and post.c carries seats to and from rank 0.

   meet.c brings the ranks together, guard.c watches over them, comm_local.c and comm_tcp.c move
   data. */
#ifndef SHARDC_RT_SEATS_H
#define SHARDC_RT_SEATS_H
#include "comm.h"
#include "ir/sha256.h"
#include <pthread.h>
#include <stdatomic.h>

enum { SEAT_TEXT = 160, NONCE = 16 };

/* ON_DEVICE: its main thread waits for the GPU, which may wait for those of other ranks. */
typedef enum SeatState { SEAT_RUNS, SEAT_WAITS, SEAT_LEFT, SEAT_ON_DEVICE } SeatState;
typedef enum Trouble {
  TROUBLE_NONE,
  TROUBLE_DIED,
  TROUBLE_ENDED,
  TROUBLE_SILENT,
  TROUBLE_LATE,
  TROUBLE_DISAGREES,
  TROUBLE_STUCK,
  TROUBLE_LAST = TROUBLE_STUCK
} Trouble;

typedef struct Seat {
  char host[64];
  int64_t pid;
  atomic_int state, status; /* status: of the exit, when it has left */
  atomic_int inside;        /* of a collective, between the first and the last touch */
  atomic_uint beat;         /* counts up while the process lives */
  atomic_ullong moves;      /* counts up with every step of a collective */
  atomic_uint runs;         /* entries that a GPU has been given */
  atomic_ullong call;       /* seat_call: number of the call << 32 | row + 1 */
  char text[SEAT_TEXT];     /* of calls that are in no table */
} Seat;

/* The first that went wrong, in one word: what << 56 | another rank << 28 | rank. 0: nothing. */
typedef unsigned long long Verdict;

static inline Verdict verdict(Trouble what, int rank, int against) {
  return (Verdict)what << 56 | (Verdict)(unsigned)against << 28 | (Verdict)(unsigned)rank;
}
static inline Trouble verdict_what(Verdict v) { return (Trouble)(v >> 56); }
static inline int verdict_rank(Verdict v) { return (int)(v & 0xfffffff); }
static inline int verdict_against(Verdict v) { return (int)(v >> 28 & 0xfffffff); }

typedef struct Table {
  _Alignas(64) atomic_ullong trouble; /* a Verdict */
  Seat seat[];
} Table;

typedef struct Hello { /* what ranks tell when they meet; rank, line, pid, host differ */
  char magic[8];
  int32_t rank, world, abi, line; /* line: which of its connections this is */
  int64_t pid;
  uint64_t program, options, layout;
  char host[64];
  uint8_t nonce[NONCE], proof[SHA256_BYTES]; /* between machines: of the secret (meet_tcp.c) */
} Hello;

typedef struct Meeting {
  int *peer; /* rank 0: sockets of all others; else of rank 0 at [0]. They close when a process ends
              */
  int npeers;
  int *talk;      /* between machines: a second one to each, the main thread's; else NULL */
  int memory;     /* file descriptor of the shared memory; -1: there is none */
  Hello *hello;   /* rank 0: of all */
  int listens;    /* rank 0 */
  uint64_t token; /* between machines: ranks of one job know the same number */
} Meeting;

typedef struct Visitor { /* of rank 0: a connection whose hello has not all come */
  int s;
  uint8_t nonce[NONCE]; /* told to it */
  double since;
  size_t have;
  Hello hello;
} Visitor;

typedef struct Answer {  /* of rank 0, when all have come or something is wrong */
  int32_t code, nothing; /* 0: welcome */
  char what[640], help[640];
} Answer;

/* How ranks reach rank 0: over a socket of one machine, which hands out shared memory
   (meet_unix.c), or over TCP (meet_tcp.c). */
typedef struct Way {
  int lines; /* connections of each rank */
  bool (*open)(Meeting *m, const Launch *l, int64_t bytes, double end, Fault *f);
  void (*close)(Meeting *m, const Launch *l);
  bool (*greets)(Visitor *v);                   /* rank 0, before it listens to a connection */
  bool (*proves)(Visitor *v, const Meeting *m); /* rank 0: is its hello one of this job? */
  /* A connection to rank 0, which has the hello; -1: time is over, or a fault. */
  int (*reach)(Meeting *m, const Launch *l, const Hello *mine, double end, Fault *f);
  bool (*answer)(int s, const Answer *a, int memory);
  bool (*hear)(int s, Answer *a, int *memory);
} Way;

extern const Way rt_way_unix, rt_way_tcp;

void rt_plain(char *text, size_t size); /* what came from afar, for a terminal */
bool rt_meet(Meeting *m, const Way *way, const Comm *c, int64_t bytes, Fault *f);
bool rt_send_all(int s, const void *data, size_t n);
bool rt_receive_all(int s, void *data, size_t n, double seconds); /* seconds: for all of it */

typedef struct Post Post;

typedef struct Guard {
  Comm *comm;
  Table *table;
  Meeting *meeting;
  Post *post;          /* NULL: the table is shared */
  Seat *seat;          /* of this rank */
  unsigned calls;      /* collectives so far */
  double ended;        /* the last of them */
  double late, silent; /* seconds */
  _Atomic double waits_since,
      patience;       /* of this rank: when it began to wait, how long it may last */
  atomic_int missing; /* the rank waited for */
  double device_since;
  _Atomic double device_longest; /* that this rank has waited for its GPU, seconds */
  int wake;                      /* an eventfd: look now; -1: none */
  atomic_uint looks;             /* counts up when the guard has looked, and sent what it had to */
  pthread_t thread;
} Guard;

bool rt_guard_start(Guard *g, Comm *c, Meeting *m, Table *table, Fault *f);
void rt_guard_trouble(Guard *g, Trouble what, int rank, int against); /* all ranks end */
_Noreturn void rt_guard_end(void); /* waits: the guard ends the process */

/* Around a collective. The mark is the same on ranks whose calls fit together. */
unsigned long long rt_guard_enter(Guard *g, const rt_collective *what);
void rt_guard_exit(Guard *g);
void rt_guard_wait(Guard *g, int rank); /* around waiting for a rank */
void rt_guard_go_on(Guard *g);
void rt_guard_leave(Guard *g, int status); /* this process ends */

/* post.c: seats and troubles between machines, over the lines that tell the end of a process. */
Post *rt_post_open(const Guard *g);
void rt_post_send(Guard *g);
bool rt_post_receive(Guard *g, int line); /* false: the line has ended */
#endif

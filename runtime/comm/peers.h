/* The peer table: liveness and progress of every rank. Each rank writes its own entry; the others
   read it. Its machine and process are told before: by the hello messages to rank 0, and by rank
   0's answer, so that a rank which ends early has a name. On one machine the table is shared
   memory; between machines each process has its own, and heartbeat.c carries entries to and from
   rank 0.

   rendezvous.c connects the ranks, watchdog.c watches them, comm_local.c and comm_tcp.c move data.
 */
#ifndef SHARDC_RT_PEERS_H
#define SHARDC_RT_PEERS_H
#include "comm.h"
#include "ir/support/sha256.h"
#include <pthread.h>
#include <stdatomic.h>

enum { PEER_TEXT = 160, NONCE = 16 };

/* ON_DEVICE: its main thread waits for the GPU, which may wait for those of other ranks. */
typedef enum PeerState { PEER_RUNS, PEER_WAITS, PEER_LEFT, PEER_ON_DEVICE } PeerState;
typedef enum FailureKind {
  FAILURE_NONE,
  FAILURE_DIED,
  FAILURE_ENDED,
  FAILURE_SILENT,
  FAILURE_LATE,
  FAILURE_DISAGREES,
  FAILURE_STUCK,
  FAILURE_LAST = FAILURE_STUCK
} FailureKind;

typedef struct Peer {
  char host[64];
  int64_t pid;
  atomic_int state, status; /* status: of the exit, when it has left */
  atomic_int inside;        /* of a collective, between the first and the last touch */
  atomic_uint beat;         /* counts up while the process lives */
  atomic_ullong moves;      /* counts up with every step of a collective */
  atomic_uint runs;         /* entries that a GPU has been given */
  atomic_ullong call;       /* number of the call << 32 | row + 1 */
  char text[PEER_TEXT];     /* of calls that are in no table */
} Peer;

/* The first that went wrong, in one word: what << 56 | another rank << 28 | rank. 0: nothing. */
typedef unsigned long long Failure;

static inline Failure failure_of(FailureKind what, int rank, int against) {
  return (Failure)what << 56 | (Failure)(unsigned)against << 28 | (Failure)(unsigned)rank;
}
static inline FailureKind failure_kind(Failure v) { return (FailureKind)(v >> 56); }
static inline int failure_rank(Failure v) { return (int)(v & 0xfffffff); }
static inline int failure_against(Failure v) { return (int)(v >> 28 & 0xfffffff); }

typedef struct PeerTable {
  _Alignas(64) atomic_ullong failure; /* a Failure */
  Peer peer[];
} PeerTable;

typedef struct Hello { /* what ranks send at the rendezvous; rank, line, pid, host differ */
  char magic[8];
  int32_t rank, world, abi, line; /* line: which of its connections this is */
  int64_t pid;
  uint64_t program, options, layout;
  char host[64];
  uint8_t nonce[NONCE], proof[SHA256_BYTES]; /* of the secret (rendezvous_tcp.c) */
} Hello;

typedef struct Rendezvous {
  int *sockets; /* rank 0: to all others; else to rank 0 at [0]; one closes when a process ends */
  int npeers;
  int *talk;      /* between machines: a second one to each, the main thread's; else NULL */
  int memory;     /* file descriptor of the shared memory; -1: there is none */
  Hello *hello;   /* rank 0: of all; else host and pid of rank 0 at [0] */
  int listens;    /* rank 0 */
  uint64_t token; /* between machines: ranks of one job know the same number */
} Rendezvous;

typedef struct PendingPeer { /* of rank 0: a connection whose hello has not all come */
  int s;
  uint8_t nonce[NONCE]; /* told to it */
  double since;
  size_t have;
  Hello hello;
} PendingPeer;

typedef struct Welcome { /* of rank 0, when all have come or something is wrong */
  int32_t code, nothing; /* 0: welcome */
  int64_t pid;
  char host[64], what[640], help[640];
} Welcome;

_Static_assert(sizeof(Hello) == 56 + 64 + NONCE + SHA256_BYTES, "no gap travels or is hashed");
_Static_assert(sizeof(Welcome) == 16 + 64 + 2 * 640, "no gap travels");

/* How ranks reach rank 0: over a socket of one machine, which hands out shared memory
   (rendezvous_unix.c), or over TCP (rendezvous_tcp.c). */
typedef struct RendezvousKind {
  int lines; /* connections of each rank */
  bool (*open)(Rendezvous *m, const Launch *l, int64_t bytes, double end, Fault *f);
  void (*close)(Rendezvous *m, const Launch *l);
  bool (*greets)(PendingPeer *v); /* rank 0, before it listens to a connection */
  bool (*proves)(PendingPeer *v, const Rendezvous *m); /* rank 0: is its hello one of this job? */
  /* A connection to rank 0, which has the hello; -1: time is over, or a fault. */
  int (*reach)(Rendezvous *m, const Launch *l, const Hello *mine, double end, Fault *f);
  bool (*answer)(int s, const Welcome *a, int memory);
  bool (*hear)(int s, Welcome *a, int *memory);
} RendezvousKind;

extern const RendezvousKind rt_rendezvous_unix, rt_rendezvous_tcp;

void rt_plain(char *text, size_t size); /* what came from afar, for a terminal */
bool rt_rendezvous(Rendezvous *m, const RendezvousKind *way, const Comm *c, int64_t bytes,
                   Fault *f);
bool rt_send_all(int s, const void *data, size_t n);
bool rt_receive_all(int s, void *data, size_t n, double seconds); /* seconds: for all of it */

typedef struct Heartbeat Heartbeat;

typedef struct Watchdog {
  Comm *comm;
  PeerTable *table;
  Rendezvous *meeting;
  Heartbeat *heartbeat;          /* NULL: the table is shared */
  Peer *peer;                    /* of this rank */
  unsigned calls;                /* collectives so far */
  unsigned met[RT_MAX_AXES + 1]; /* of them by axis, and over all ranks; no sends, receives */
  double ended;                  /* the last of them */
  double late, silent;           /* seconds */
  _Atomic double waits_since, patience; /* of this rank: since when, for how long at most */
  atomic_int missing;                   /* the rank waited for */
  double device_since;
  _Atomic double device_longest; /* that this rank has waited for its GPU, seconds */
  int wake;                      /* an eventfd: poll now; -1: none */
  atomic_uint polls;             /* counts the watchdog's polls, each with what it had to send */
  pthread_t thread;
} Watchdog;

bool rt_watchdog_start(Watchdog *watchdog, Comm *c, Rendezvous *rendezvous, PeerTable *table,
                       Fault *f);
void rt_watchdog_fail(Watchdog *watchdog, FailureKind what, int rank,
                      int against);   /* all ranks end */
_Noreturn void rt_watchdog_end(void); /* waits: the watchdog ends the process */

/* Around a collective. The mark is the same on ranks whose calls fit together. */
unsigned long long rt_watchdog_enter(Watchdog *watchdog, const rt_collective *what);
void rt_watchdog_exit(Watchdog *watchdog);
void rt_watchdog_wait(Watchdog *watchdog, int rank); /* around waiting for a rank */
void rt_watchdog_go_on(Watchdog *watchdog);
void rt_watchdog_leave(Watchdog *watchdog, int status); /* this process ends */

/* heartbeat.c: entries of the peer table and failures between machines, over the connections whose
   end tells the end of a process. */
Heartbeat *rt_heartbeat_open(const Watchdog *watchdog);
void rt_heartbeat_send(Watchdog *watchdog);
bool rt_heartbeat_receive(Watchdog *watchdog, int line); /* false: the line has ended */
#endif

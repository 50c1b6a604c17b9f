/* Communicators: how the ranks of a job exchange tensors. One table of functions per kind: self
   (one rank), local (processes of one machine over shared memory), mpi, and tcp, which carries what
   the runtime itself asks between the machines of a program whose devices send its tensors.

   Ranks are numbered over the mesh (rt_axis: coordinate = rank / stride % size). A group is the
   ranks that differ in one coordinate alone, or all of them. Everything that ranks tell each other
   goes through rt_comm_collect, the runtime's own questions (agree, gather) over all ranks too: so
   there is one order of calls, the same on every rank. A rank that dies, is late or calls something
   else ends the job on all ranks, with a message that names it. Where a program starts messages
   before it waits for them, one thread of the rank communicates (flight.c), and nobody else. Must
   not: allocate after the start. */
#ifndef SHARDC_RT_COMM_H
#define SHARDC_RT_COMM_H
/* Relative paths: with comm_mpi.c this header is installed, in the same folders, for mpicc. */
#include "../base/base.h"
#include "../rt.h"

typedef struct Comm Comm;
typedef struct RtFlight RtFlight;

typedef struct RankGroup { /* ranks first, first + stride, .. */
  int n, me;
  int64_t first, stride;
} RankGroup;

typedef struct CommKind {
  const char *name;
  bool (*join)(Comm *c, Fault *f); /* meets the other ranks; they run the same program */
  /* channel: the axis, or naxes for all ranks. Group sizes are above 1; who sends or receives has
     somebody to send to or receive from. */
  void (*collect)(Comm *c, const RankGroup *g, int channel, const rt_collective *what,
                  const void *send, void *receive);
  void (*leave)(Comm *c, int status); /* at the end of the process, whatever the reason */
  bool one_thread;                    /* the thread that joins makes all calls */
} CommKind;

typedef struct Launch { /* who am I (launch.c) */
  int rank, world, local_rank, local_world;
  const char *from; /* the variable that told the rank, NULL: single */
  char job[256];    /* the same for all ranks of a job, another one for other jobs */
  bool named;       /* the launcher named it: it is the same on all machines */
  bool counted;     /* the launcher counts the ranks of a machine */
  bool apart;       /* not all ranks are known to be on this machine */
  char place[1024]; /* where ranks of several machines meet: HOST:PORT or a file; empty: unknown */
  const char *place_from; /* what told the place */
  int ports;              /* from PORT on; what others use is passed over */
} Launch;

typedef struct CommCount { /* of one collective, or of the runtime's own exchanges */
  int64_t calls;
  double elements, bytes, seconds; /* elements and bytes each rank sends in paper counting */
  double waited;                   /* seconds that the main thread was blocked by it */
  double late; /* of `seconds`: until the last rank had begun it, where the communicator knows */
} CommCount;

/* Reports the time of a message for a trace: collective `row` of the table took from .. to. With
   `stood`, the main thread was blocked during this time; otherwise the communicating thread,
   possibly another one, worked on the message. Rows after the table are messages of the runtime
   itself. */
typedef void CommWatch(void *watcher, int row, double from, double to, bool stood);

struct Comm {
  const rt_program *program, *first; /* first: of all that the executable holds, for messages */
  const CommKind *kind;
  Launch launch;
  uint64_t options; /* sum over the command line: ranks must be started with the same */
  const char *meet; /* --meet: the place; NULL: as the launcher says */
  RankGroup group[RT_MAX_AXES + 1];
  CommCount *count;             /* per row of the table, then the runtime's own */
  void *inside;                 /* the kind's */
  bool on_device;               /* the program's collectives are the device's work */
  bool over;                    /* all ranks are done: leaving is no failure */
  RtFlight *flight;             /* the thread that communicates; NULL: whoever calls does */
  _Atomic int leaving;          /* exit status + 1 of a process that ends while it communicates */
  struct Watchdog *watchdog;    /* NULL: the launcher watches */
  void (*let_go)(void *device); /* before a failed job ends: stops operations that wait on the
                                   GPU */
  void *device;
  const char *library_help; /* how to see what its library does; NULL: it has no library */
  CommWatch *watch;         /* NULL: nobody */
  void *watcher;
  struct Record *record; /* the flight recorder; NULL: none */
  uint32_t recorded;     /* messages of this rank so far */
  double late;           /* of the call that runs: CommCount.late */
};

int64_t rt_mesh_ranks(const rt_program *program);
/* The program of the executable that `rank` runs, given that this rank runs p. */
const rt_program *rt_class_program(const rt_program *first, const rt_program *p, int rank);
bool rt_launch_find(Launch *launch, Fault *f); /* from the environment of launchers */
/* Are ranks on nodes as in the plan? Says so, once, where they are not and it does no harm. */
bool rt_nodes_fit(const rt_program *program, const Launch *launch, Fault *f);
double rt_seconds_of(const char *name, double otherwise); /* a variable of the environment */

/* Decides the kind and joins. */
bool rt_comm_open(Comm *c, const rt_program *program, Fault *f);
void rt_comm_close(Comm *c); /* waits for all ranks; afterwards each may exit with any status */
void rt_comm_collect(Comm *c, const rt_collective *what, const void *send, void *receive);
/* The same collective on `count` elements of each block, with contiguous blocks. */
void rt_comm_piece(Comm *c, const rt_collective *what, int64_t count, const void *send,
                   void *receive);
/* rt_comm_start starts a collective, which runs concurrently with the caller and after all earlier
   requests. rt_comm_await waits for the n oldest starts of that row that were not waited for. */
void rt_comm_start(Comm *c, const rt_collective *what, const void *send, void *receive);
void rt_comm_await(Comm *c, const rt_collective *what, int64_t n);
/* A device has sent it without the communicator. */
void rt_comm_count(Comm *c, const rt_collective *what, double seconds);

/* Seconds that the main thread was blocked by messages; NaN: unknown, or no messages. */
double rt_comm_waited(const Comm *c);

/* The letter of its state in /proc, T: stopped; 0: no such process of this machine. */
char rt_process_state(int64_t pid);
int rt_comm_rank(const Comm *c);
int rt_comm_world(const Comm *c);

/* The runtime's own, over all ranks; `what` is for messages. Without a communicator: one rank. */
int64_t rt_comm_max(Comm *c, const char *what, int64_t v); /* an all-reduce of one number */
void rt_comm_gather(Comm *c, const char *what, const void *mine, void *all, int64_t bytes);
void rt_comm_broadcast(Comm *c, const char *what, void *data, int64_t bytes); /* from rank 0 */
void rt_comm_wait(Comm *c, const char *what); /* until all ranks have called it */
void rt_comm_max_of(Comm *c, const char *what, int64_t *v, int64_t n); /* of each of n */
/* Do all ranks say ok? Otherwise each has a fault: its own, or a quiet one that says whose. */
bool rt_comm_all(Comm *c, const char *what, bool ok, Fault *f);
/* Rank 0's answer and fault on every rank; data: what rank 0 has found out, n bytes. */
bool rt_comm_decide(Comm *c, const char *what, bool ok, void *data, int64_t n, Fault *f);

/* Called around submitting work to a GPU and waiting for it; `at`, from any thread, reports the
   progress of the GPU. A rank whose GPU does not reach the collective that the other GPUs wait for
   ends the job like a late rank. */
void rt_comm_device_begins(Comm *c, bool new_run);
void rt_comm_device_ends(Comm *c);
void rt_comm_device_at(Comm *c, unsigned position, unsigned row); /* row from 1; 0: none */

void rt_comm_table(const Comm *c); /* what this rank sent, on stderr */
/* Bytes per second of a processor that carries this rank's messages, 0: no thread does, or none was
   sent. Comparable with `link per_core` of a machine. */
double rt_comm_per_core(const Comm *c);

typedef struct CollectiveFacts { /* of a kind: ir/collectives.def */
  const char *words;             /* all-reduce, .. */
  bool gives, takes;             /* the buffer that is sent, received, has a block of each rank */
  int passes;                    /* of the value that is whole: what each rank sends, as counted */
  bool hop;                      /* from neighbour to neighbour */
  bool shifts;                   /* one message to a rank, and one from a rank */
} CollectiveFacts;
extern const CollectiveFacts rt_collective_facts[RT_COLLECTIVES];

static inline bool rt_is_hop(rt_collective_kind kind) { return rt_collective_facts[kind].hop; }
/* The rank of the group on the other side of a send or receive; -1: this is the end of the line. */
int rt_hop_peer(const rt_collective *collective, const RankGroup *group);

/* For a rotation, the ranks of the group that this one sends to and receives from. */
int rt_rotate_to(const rt_collective *collective, const RankGroup *group);
int rt_rotate_from(const rt_collective *collective, const RankGroup *group);

/* Elements that each rank sends, as papers count. */
double rt_comm_elements(const rt_collective *collective, int n);
/* The position of element e of block i if n blocks are cut into rows that are stored
   interleaved. */
int64_t rt_block_at(int64_t n, int64_t i, int64_t row, int64_t e);
/* Elements left .. end - 1 of a block, in runs that are one copy each: the rest of a row, whole
   rows, the begin of one. `from` is the first element of a run of `rows` times `count`. */
typedef struct BlockRuns {
  int64_t row, left, end, from, count, rows;
} BlockRuns;
bool rt_block_run(BlockRuns *b);
/* Copies between a buffer of n blocks cut in rows and elements from .. from + count - 1 of block i
   lying end to end. */
void rt_block_out(int elem, void *to, const void *blocks, int n, int i, int64_t row, int64_t from,
                  int64_t count);
void rt_block_in(int elem, void *blocks, const void *source, int n, int i, int64_t row,
                 int64_t from, int64_t count);

extern const CommKind rt_comm_self, rt_comm_local, rt_comm_tcp;
extern const CommKind rt_comm_mpi __attribute__((weak)); /* set if it was linked */
#endif

/* Shared declarations of the PTX machine: registers, decoded instructions, warps, memory.
 *
 * A register of a warp is an array of its 32 lanes (a predicate: one word of 32 bits), so that an
 * instruction is one loop over 32 values. Constants and special registers are registers that are
 * filled beforehand: every operand is an offset into the warp's register file.
 *
 * Must not: be included outside tests/gpu/ptx*.c. */
#ifndef TESTS_GPU_PTX_INSIDE_H
#define TESTS_GPU_PTX_INSIDE_H
#include "ptx.h"
#include <stddef.h>

enum { LANES = 32, MAX_WARPS = 32, MAX_BARRIERS = 16, MAX_ARGS = 16, MAX_SIGNALS = 64 };
/* Owners of intervals: warps, then bulk copies into shared memory, those out of it, and products of
 * each warp. */
enum { MAX_OWNERS = 2 * MAX_WARPS + 2 };
enum { SIGNAL_WAIT = MAX_BARRIERS + 1 }; /* Warp.waits of the first mbarrier */
#define ALL_LANES 0xffffffffu
#define NO_SLOT INT32_MIN

/* Windows of the generic address space; inside them, addresses of the spaces themselves. */
#define SHARED_WINDOW UINT64_C(0x010000000000)
#define LOCAL_WINDOW UINT64_C(0x020000000000)
#define PARAM_WINDOW UINT64_C(0x030000000000)
#define WINDOW_BYTES UINT64_C(0x001000000000)
#define SHARED_FIRST 0x400 /* the first 1 KiB of a CTA's shared memory is the system's */

typedef enum RegKind { REG_PRED, REG_16, REG_32, REG_64, REG_NONE } RegKind;
typedef enum Space {
  SPACE_GENERIC,
  SPACE_GLOBAL,
  SPACE_SHARED,
  SPACE_LOCAL,
  SPACE_PARAM, /* of the kernel: read only */
  SPACE_CONST
} Space;

typedef struct Arena Arena;
void *arena_get(Arena **a, size_t bytes); /* zeroed */
void arena_drop(Arena **a);

/* ---- decoded instructions ---- */
typedef struct Op Op;
typedef struct Warp Warp;
typedef void Lanes(void *d, const void *a, const void *b, const void *c, const void *e);
typedef enum Went {
  WENT_ON,     /* to w->pc */
  WENT_APART,  /* lanes have places of their own: choose again */
  WENT_WAITING /* the warp waits, is done, or the launch failed */
} Went;
typedef Went Step(Warp *w, const Op *op, uint32_t mask);

struct Op {
  Lanes *lanes; /* the same for each lane, no other effect; else NULL */
  Step *step;
  int32_t guard; /* predicate; NO_SLOT: none */
  uint32_t flip; /* xor for @! */
  int32_t d, a, b, c, e;
  uint32_t target; /* of a jump */
  uint32_t line, loc;
  RegKind kind;      /* of d */
  uint8_t kind_a;    /* of a, where it varies */
  uint8_t space, n;  /* memory: elements of the vector */
  uint8_t bytes;     /* of one element */
  uint8_t sub, flag; /* what of its family */
  bool is_signed;
  int64_t imm;
  const int32_t *list;  /* registers of vectors */
  const uint8_t *kinds; /* and their kinds */
};

typedef enum Which {
  TID,
  NTID = TID + 3,
  CTAID = NTID + 3,
  NCTAID = CTAID + 3, /* .x .y .z each */
  LANEID = NCTAID + 3,
  WARPID,
  NWARPID,
  MASK_EQ,
  MASK_LT,
  MASK_LE,
  MASK_GT,
  MASK_GE,
  SMID,
  NSMID,
  GRIDID,
  DYNAMIC_SHARED,
  DYNAMIC_BASE
} Which;
typedef struct Special { /* a register filled when its warp starts */
  int32_t slot;
  Which which;
  RegKind kind; /* 32 or 64 bits */
} Special;

typedef struct Param {
  int offset, bytes;
} Param;

typedef struct Function {
  const char *name;
  struct PtxModule *module;
  Op *ops;
  int nops;
  int32_t below,
      above; /* bytes of a warp's register file: constants below its origin, registers above */
  const uint8_t *fill; /* the constants */
  const Special *special;
  int nspecial;
  const Param *params;
  int nparams, params_bytes;
  int64_t static_shared, local_bytes;
  uint32_t dynamic_align;   /* of dynamic shared memory */
  uint32_t max[3], need[3]; /* .maxntid, .reqntid */
  struct Function *next;
} Function;

typedef struct Variable {
  const char *name;
  uint64_t at;
  int64_t bytes;
  struct Variable *next;
} Variable;

struct PtxModule {
  PtxDevice *device;
  Arena *arena;
  Function *functions; /* entries */
  Variable *variables;
  const char **lines; /* the text, for reports */
  int nlines;
};

/* ---- memory ---- */
/* The last access to a word. A stamp names an interval of one warp between two synchronisations;
 * stamps only grow. who = stamp << 5 | lane; 0: nobody. */
typedef struct Cell {
  uint32_t wrote, wrote2, read, read2;
  uint32_t constant;               /* stamp of the last ld.global.nc */
  uint8_t wrote_bytes, read_bytes; /* of the word: the first's in bits 0-3, the second's in 4-7 */
  uint8_t atomic;                  /* bit 0: wrote was an atomic write, bit 1: wrote2 */
  uint8_t flying;                  /* bytes that an asynchronous copy has yet to bring; bit 4: an
                                      mbarrier has all of them */
  uint8_t constant_bytes;          /* bytes of the word that ld.global.nc read */
} Cell;

typedef struct Block {
  uint64_t at;
  int64_t bytes, room;
  bool constant;
} Block;

typedef struct Plane { /* bytes with their shadows */
  uint8_t *data;
  uint8_t *written; /* one bit per byte; NULL: not kept */
  Cell *cells;      /* one per word; NULL: not kept */
} Plane;

struct PtxDevice {
  PtxOptions o;
  Plane plane;
  int64_t plane_bytes;
  Block *blocks; /* ascending */
  int nblocks, room;
  uint32_t stamp;
  uint64_t warp_steps, lane_steps, products[PTX_GROUPS];
};
int device_block(const PtxDevice *d, uint64_t at); /* its index, or -1 - where it would be */
bool device_cells(PtxDevice *d);                   /* race shadows exist from now on */
void bits_set(uint8_t *bits, int64_t from, int64_t n, bool value);
bool bits_all(const uint8_t *bits, int64_t from, int64_t n);

/* ---- a launch ---- */
typedef struct Flight Flight;   /* an asynchronous copy under way */
typedef struct Product Product; /* a product of a warpgroup under way */
typedef struct Copy Copy;       /* a bulk copy under way */
typedef struct Post Post;       /* a release of a word for other CTAs */
typedef struct Taken Taken;     /* an acquire of such a word */
typedef struct Launch Launch;
typedef struct Cta Cta;

struct Warp {
  Cta *cta;
  uint8_t *regs;
  uint32_t pc, limit; /* of the lanes that run; the nearest place of others */
  uint32_t mask;      /* lanes that run */
  uint32_t alive, parked;
  uint32_t lane_pc[LANES];
  uint32_t index; /* in its CTA */
  uint32_t stamp; /* of this interval */
  uint32_t carry; /* condition code of add.cc */
  uint32_t slice; /* jumps until others get their turn */
  int waits;      /* barrier id + 1; SIGNAL_WAIT + number of an mbarrier; 0: it runs */
  const Op *red;  /* bar.red that waits for its result */
  uint32_t red_mask;
  Flight *flights;            /* oldest first */
  uint32_t groups[LANES];     /* groups of asynchronous copies that each lane has committed */
  uint32_t leaving[LANES];    /* groups of bulk copies to global memory, likewise */
  Product *products;          /* oldest first */
  uint32_t product_groups;    /* groups of products that it has committed */
  uint64_t polled;            /* address of the word that it acquired last */
  uint32_t polls;             /* how often it acquired `polled` since it acquired another word */
  uint32_t fenced;            /* its last fence.proxy.async began this interval */
  uint32_t left[LANES];       /* copies out of shared memory that are over for a lane */
  uint32_t known[MAX_OWNERS]; /* intervals that are over for all its lanes, of the warp itself those
                                 before its last barrier; a lane knows all of its own */
};

typedef struct Barrier {
  uint32_t arrived, expected; /* threads */
  uint32_t waiting, came;     /* warps that wait; warps that came, bar.arrive included */
  bool fixed;                 /* a count was given */
  uint32_t stamps[MAX_WARPS]; /* the next interval of each warp that came */
  uint32_t ones, threads;     /* bar.red: predicates that were true, all */
} Barrier;

typedef struct Signal {       /* an mbarrier */
  uint32_t at;                /* in shared memory */
  uint32_t expected, pending; /* arrivals of a phase; of these, those to come */
  int64_t bytes;              /* bytes that copies have yet to bring */
  uint32_t phase, by;         /* number; the thread that initialised it */
  uint8_t fences;             /* FENCE_INIT, FENCE_ASYNC: those after its init */
  uint32_t came[MAX_OWNERS];  /* intervals that are over for who came in this phase */
  uint32_t known[MAX_OWNERS]; /* intervals that are over for whoever waits for the last phase */
  uint32_t seen[MAX_WARPS];   /* phases that had ended when a warp last waited */
} Signal;
enum { FENCE_INIT = 1, FENCE_ASYNC = 2 };

struct Cta {
  Launch *launch;
  uint32_t at[3], index;
  Warp *warps;
  uint32_t nwarps, live;
  Plane shared; /* indexed by shared address */
  uint32_t shared_end;
  uint8_t *local; /* of all threads */
  Barrier barriers[MAX_BARRIERS];
  Signal signals[MAX_SIGNALS];
  uint32_t nsignals;
  Copy *copies;  /* into shared memory, newest first */
  Copy *leaving; /* out of shared memory, not waited for; oldest first */
  Taken *taken;
  uint32_t first_stamp;
  uint8_t *owner; /* of stamp - first_stamp: its warp; owner_in, owner_out: a bulk copy */
  uint32_t nowner, owner_room;
};

static inline uint32_t owner_in(const Cta *c) { return c->nwarps; }
static inline uint32_t owner_out(const Cta *c) { return c->nwarps + 1; }
static inline uint32_t owner_product(const Warp *w) { return w->cta->nwarps + 2 + w->index; }
static inline uint32_t owners(const Cta *c) { return 2 * c->nwarps + 2; }

struct Launch {
  PtxDevice *device;
  const Function *f;
  const PtxLaunch *given;
  uint32_t threads;
  uint32_t first_stamp;
  int *cache; /* block that an instruction touched last */
  Cta cta;
  Post *posts;
  uint64_t random;
  int64_t budget;
  bool failed;
  char *error;
  int error_bytes;
};

static inline void *reg_at(const Warp *w, int32_t slot) { return w->regs + slot; }
static inline uint64_t reg_get(const Warp *w, int32_t slot, RegKind kind, int lane) {
  const uint8_t *r = w->regs + slot;
  switch (kind) {
  case REG_PRED: return *(const uint32_t *)r >> lane & 1;
  case REG_16: return ((const uint16_t *)r)[lane];
  case REG_32: return ((const uint32_t *)r)[lane];
  default: return ((const uint64_t *)r)[lane];
  }
}
static inline void reg_set(Warp *w, int32_t slot, RegKind kind, int lane, uint64_t v) {
  uint8_t *r = w->regs + slot;
  uint32_t bit = UINT32_C(1) << lane;
  switch (kind) {
  case REG_PRED: *(uint32_t *)r = (*(uint32_t *)r & ~bit) | (v & 1 ? bit : 0); break;
  case REG_16: ((uint16_t *)r)[lane] = (uint16_t)v; break;
  case REG_32: ((uint32_t *)r)[lane] = (uint32_t)v; break;
  default: ((uint64_t *)r)[lane] = v; break;
  }
}
static inline int first_lane(uint32_t mask) { return __builtin_ctz(mask); }

/* Ends the launch with the first report. */
Went fault(Warp *w, const Op *op, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ptx_run.c: lanes that must come together. True: all of `need` have arrived; else *went says what
   to do. */
bool together(Warp *w, const Op *op, uint32_t mask, uint32_t need, Went *went);
void warp_keep(Warp *w); /* notes w->pc for the lanes that run */
/* With a seed, sometimes ends the warp's turn where it told others to go on: true. */
bool warp_pause(Warp *w);
Step step_jump, step_exit, step_trap;
uint32_t launch_draw(Launch *l, uint32_t below); /* a random number; 0 without a seed */

/* parse.c */
const Function *find_entry(const PtxModule *m, const char *name);

/* ptx_sync.c */
bool barrier_try(Cta *c, int id); /* whom the barrier holds goes on, if all came */
/* All live lanes of every membermask (register `slot`) among `mask` have arrived; else *went. */
bool members_here(Warp *w, const Op *op, int32_t slot, uint32_t mask, Went *went);

/* check.c */
void warp_interval(Warp *w); /* begins: what each lane did so far can be told from what follows */
void warp_meets(Warp *w);    /* .. and at a barrier is over for the other lanes */
uint32_t interval_apart(Cta *c, uint32_t owner); /* of copies, of products; returns its stamp */
void races_forget(PtxDevice *d);
typedef struct Touch { /* one access of one lane */
  Plane *plane;
  uint64_t offset;
  uint32_t bytes;
  bool write, atomic;
  bool constant;  /* ld.global.nc */
  bool signal;    /* by an instruction of mbarriers */
  bool product;   /* by a product of the warp */
  uint32_t stamp; /* of the interval; 0: that of the warp */
  Space space;
} Touch;
bool touch(Warp *w, const Op *op, int lane, const Touch *t); /* false: reported */

/* ptx_async.c */
void flights_drop(Warp *w);

/* ptx_signal.c */
Signal *signal_find(Warp *w, const Op *op, int lane, uint32_t at); /* NULL: reported */
void signal_test(Cta *c, Signal *s); /* ends its phase, if nothing is missing */
void signals_fence(Warp *w, uint32_t mask, uint8_t fence);
void signals_drop(Cta *c);

/* ptx_bulk.c */
bool copies_bring(Cta *c); /* one copy arrives; false: there is none */
void copies_leave(Cta *c); /* some copies out of shared memory are done */
void copies_drop(Cta *c);

/* ptx_wgmma.c */
void products_drop(Warp *w);
/* Whoever wrote the word for ordinary reads has fenced it for asynchronous ones; else false. */
bool check_fenced(Warp *w, const Op *op, int lane, uint32_t at);
#endif

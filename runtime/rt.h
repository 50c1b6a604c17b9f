/* The interface between generated host code and the runtime: the program's description as constant
   tables, kernels, and the calls of rt_abi.def. Generated code includes only this header. Shapes
   are in elements, sizes in bytes, offsets from the start of an arena. Everything that generated
   code passes is constant and lives as long as the process. */
#ifndef SHARDC_RT_H
#define SHARDC_RT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RT_ABI_VERSION = 21, RT_MAX_RANK = 8, RT_MAX_PHASES = 4, RT_MAX_AXES = 8 };

typedef struct rt_ctx rt_ctx;

/* One chunk of one phase. Chunks of a phase may run in any order on any worker; phases run one
   after the other. scratch is the worker's own, 64-byte aligned, rt_program.scratch bytes. */
typedef void rt_chunk(void *const *buffers, int64_t chunk, void *scratch);

/* Code of one kernel for a GPU. Its entries take one address per buffer, nothing else. */
typedef struct rt_image {
  const char *text, *text_end;     /* assembled by the driver; a zero byte at text_end */
  const char *binary, *binary_end; /* for one architecture alone; equal: there is none */
} rt_image;

typedef enum rt_part { /* of a step's time: by which rate of a machine block a kernel is forecast */
                       RT_PART_MEMORY,
                       RT_PART_PRODUCTS,
                       RT_PART_ATTENTION
} rt_part;

/* How bulk copies of a kernel see a buffer: a parameter of 128 bytes that the driver encodes
   (cuTensorMapEncodeTiled), after the addresses of all buffers. Dims begin with the contiguous one;
   elements, distances in bytes, elements of the box that a copy brings. */
enum { RT_MAP_RANK = 5, RT_KERNEL_MAPS = 6 };
typedef struct rt_tensor_map {
  int buffer, elem_bytes, rank;
  int64_t size[RT_MAP_RANK], stride[RT_MAP_RANK], box[RT_MAP_RANK];
} rt_tensor_map;

typedef struct rt_kernel {
  const char *name;   /* such as h.forward.dot3 */
  const char *source; /* where in the model file, such as gpt2.shard:19 */
  int phases;
  struct {
    rt_chunk *run;     /* NULL on a GPU */
    int64_t chunks;    /* compiled in: results never depend on the number of workers */
    const char *entry; /* on a GPU: the name in the image; chunks are CTAs */
    int threads;       /* of this many threads, with */
    int64_t shared;    /* bytes of dynamic shared memory */
  } phase[RT_MAX_PHASES];
  double flop, bytes; /* per launch, counted from the IR; 0: not known */
  rt_part part;
  double work;           /* flop of products and attention with the ends of their tiles */
  const rt_image *image; /* NULL: code for a CPU */
  int nbuffers;          /* in a program for a GPU */
  /* On a GPU: a variant with more shared memory, which runs instead if a CTA may have that much. */
  const struct rt_kernel *larger;
  const rt_tensor_map *maps;
  int nmaps;
} rt_kernel;

/* The arenas, each allocated once at start. Arenas named HOST are host memory; on a CPU all arenas
   are, and those bytes are counted separately. WORK and HOST_WORK are poisoned and end at a guard
   page in debug runs. SAMPLING exists if entries `logits` and `decode` run, SNAPSHOT while a
   program with `save async = on` trains. */
typedef enum rt_arena {
  RT_WEIGHTS,
  RT_STATES,
  RT_IO,
  RT_WORK,
  RT_SAMPLING,
  RT_HOST_WEIGHTS,
  RT_HOST_STATES,
  RT_HOST_WORK,
  RT_SNAPSHOT,
  RT_ARENAS
} rt_arena;

typedef enum rt_elem {
  RT_F32,
  RT_BF16,
  RT_F16,
  RT_F64,
  RT_I32,
  RT_I64,
  RT_BOOL,
  RT_U8
} rt_elem; /* as ir/dtypes.def */
typedef enum rt_kind {
  RT_PARAM,
  RT_STATE,
  RT_INPUT,
  RT_SCALAR,
  RT_OUTPUT,
  RT_REST  /* more of the layers of a parameter or state before it: rt_tensor.rest */
} rt_kind; /* as GlobalKind */

/* ---- many ranks ---- */

/* Axis of the mesh, in the plan's order. Ranks have coordinate (rank / stride) % size on it. */
typedef struct rt_axis {
  const char *name;
  int64_t size, stride;
} rt_axis;

/* A broadcast is from coordinate 0. Send and receive are from neighbour to neighbour, from
   coordinate 0 up, or down with `back`: a send leaves what was sent on the last, 0 on the others; a
   receive gets what the one before sends, on the first its own. A rotation gets what the rank `by`
   places before sends, round the axis. */
typedef enum rt_collective_kind {
#define COLLECTIVE(name, kind, words, from, to, passes, way, library) RT_##kind,
#define RUNTIME_COLLECTIVE COLLECTIVE
#include "ir/collectives.def"
} rt_collective_kind;
enum {
  RT_COLLECTIVES = 0 /* of them */
#define COLLECTIVE(name, kind, words, from, to, passes, way, library) +1
#define RUNTIME_COLLECTIVE COLLECTIVE
#include "ir/collectives.def"
};
/* As pipeline_schedule.h; with WEIGHTS turns, BACKWARD computes the gradients of inputs alone. */
typedef enum rt_turn_kind {
  RT_TURN_FORWARD,
  RT_TURN_BACKWARD,
  RT_TURN_WEIGHTS,
  RT_TURN_NONE
} rt_turn_kind;
/* Streams of a GPU and its host, and ways between their memories (ir/schedule/stream_order.h). */
typedef enum rt_stream {
  RT_STREAM_COMPUTE, /* kernels of the GPU */
  RT_STREAM_DOWN,    /* copies to the host */
  RT_STREAM_HOST,    /* kernels and copies of the host */
  RT_STREAM_UP,      /* copies to the GPU */
  RT_STREAMS
} rt_stream;
typedef enum rt_way { RT_WAY_DOWN, RT_WAY_UP, RT_WAY_DIRECT } rt_way;
typedef enum rt_reduction { RT_SUM, RT_MAX } rt_reduction;
typedef enum rt_stages { RT_STAGES_ALL, RT_STAGES_FIRST, RT_STAGES_LAST, RT_STAGES_ENDS } rt_stages;

/* Describes `n` consecutive sends of a row in a run of an entry, over a library of GPUs in which a
   send waits for its receive: each send is passed to it `later` messages after its position in the
   program, counted over all messages of this rank with its neighbours; with `joins`, in one group
   with the following receive (send_queue.h). */
typedef struct rt_sends {
  int64_t n, later;
  int joins;
} rt_sends;

/* One collective of the program, over the n ranks that differ in one coordinate only. The value is
   handled in blocks of `count` elements: the sent and the received buffer hold one or n, as the
   kind says (ir/collectives.def). Where a buffer holds n blocks, each is cut in rows: row r of
   block i begins at element (r * n + i) * row. So row = count makes blocks contiguous, and a
   smaller row splits a dim that is not the first in storage order: row is the number of elements of
   one block of that dim and of all later dims. */
typedef struct rt_collective {
  const char *what;   /* the tensor in the user's words, such as h.*.attn.c_proj_b (gradient) */
  const char *source; /* where in the model file, such as gpt2.shard:19 */
  rt_collective_kind kind;
  int axis; /* of rt_program.mesh */
  rt_reduction reduction;
  rt_elem elem; /* bf16 and f16 are added in f32 and rounded once */
  int64_t count;
  int64_t send_row, receive_row; /* of the buffers that hold n blocks; divide count */
  /* If a buffer for packing is planned: the number of elements of each block that are sent at a
     time. 0: all of them. */
  int64_t piece;
  /* For a row that rt_start starts: the number of messages of one flight, which are started and
     waited for together, and the largest number of flights at the same time. 0: the collective is
     blocking. */
  int64_t times, flights;
  int back;   /* RT_SEND, RT_RECEIVE: towards coordinate 0 */
  int cyclic; /* the last and the first rank are also neighbours */
  int by;     /* RT_ROTATE: coordinates from the sender to the receiver, round the axis */
  /* RT_SEND from memory of a GPU: when it goes, by stage from rt_program.stage_first on. NULL: at
     once. */
  const rt_sends *const *sends;
} rt_collective;

/* A dim of a tensor is cut in equal blocks over an axis. Several splits of one dim: major first. */
typedef struct rt_split {
  int dim, axis;
} rt_split;

/* A tensor that is part of a flat group: the members' local blocks are contiguous, this one starts
   at element `begin`; the group is cut in buckets of `bucket` elements, and rank i of n on the axes
   owns the i-th n-th of every bucket, the first axis counting coarsest; no axes: every rank has all
   of it. Shards of the buckets are contiguous at the tensor's offset. A stacked tensor may have a
   group per round: `rounds` equal parts, their shards `shard` elements apart; otherwise rounds is
   1. */
typedef struct rt_flat {
  int64_t bucket, begin, rounds, shard;
  int naxes, axis[RT_MAX_AXES];
} rt_flat;

typedef struct rt_tensor { /* a global: parameter, state, input, scalar, output; dense in declared
                              order */
  const char *name;        /* path: h.*.attn.c_attn (first dim is the stacked one) */
  rt_kind kind;
  rt_elem elem;
  int rank;
  const char *dim[RT_MAX_RANK];
  int64_t size[RT_MAX_RANK]; /* of this rank's block: the same on all ranks */
  const char *of;            /* inputs that are indexes: the dim addressed, else NULL */
  int64_t of_size;           /* its size: ids must be below */
  rt_arena arena;
  int64_t offset, bytes;
  int nsplits; /* 0: every rank holds all of it */
  rt_split split[RT_MAX_AXES];
  const rt_flat *flat; /* NULL: it is dense at offset */
  int64_t part; /* inputs: samples are dealt to the ranks round robin in parts of this size; 0: one
                   block for each */
  /* Size of a dim over all ranks without the padding at its end, which is zero; 0: no padding. */
  int64_t logical[RT_MAX_RANK];
  int64_t view; /* on a GPU: where in the view that the host has of it; -1: through the window */
  /* On a GPU, of an input: where among those that are sent while the last step runs; -1: it is sent
     when its step begins. */
  int64_t ahead;
  rt_stages stages; /* of rt_program.stage_axis, whose ranks hold it; the others have no bytes */
  /* Number of chunks of a dim that is split over rt_program.stage_axis: chunk i of all stages
     precedes chunk i + 1 of any; 0: one chunk. */
  int64_t chunks;
  /* For a stack that is stored in several parts: the first layer of this part, and the number of
     layers of the stack, which is dim 0 of the logical tensor; 0: one part. The first part
     represents the tensor; the next part is `rest` rows after it in the table; 0: this is the last
     part. */
  int64_t first, layers;
  int rest;
  bool frozen; /* a parameter that no update writes */
  bool ruled;  /* a parameter without gradient that a rule of its own updates */
} rt_tensor;

typedef enum rt_phase { /* of training: ir/phases.def */
                        RT_PHASE_none,
#define PHASE(name, entry, replaces, meaning) RT_PHASE_##name,
#include "ir/phases.def"
#undef PHASE
} rt_phase;

typedef struct rt_entry {
  const char *name; /* init, step, eval, logits */
  void (*run)(rt_ctx *rt);
  int64_t work_bytes; /* predicted high-water of WORK while it runs, scratch not included */
  int64_t live_bytes; /* largest sum of live bytes: the lower bound of any packing */
  double flop, bytes; /* per run, counted from the IR */
  double least_bytes; /* that no grouping into kernels could avoid; docs/ir.md */
  int64_t host_bytes, host_live_bytes; /* as work_bytes, live_bytes, of HOST_WORK */
  rt_phase phase;
  int64_t from;  /* if it replaces `step`: its first step; -1: a state holds it once it is known */
  int64_t every; /* of phase look: number of steps between its runs */
} rt_entry;

/* Bytes of an arena that a checkpoint stores, and the place of their copy in SNAPSHOT. */
typedef struct rt_range {
  rt_arena arena;
  int64_t from, bytes, at;
} rt_range;

/* Operations outside of entries (ir/background.def), and what each waits for: the latest operation
   of these names, all that these streams were given. */
typedef enum rt_background_op {
#define BACKGROUND(name, stream, reads, writes, meaning) RT_BACKGROUND_##name,
#include "ir/background.def"
#undef BACKGROUND
  RT_BACKGROUNDS
} rt_background_op;

typedef struct rt_background {
  bool there;
  unsigned after;   /* 1 << rt_background_op */
  unsigned streams; /* 1 << rt_stream */
} rt_background;

typedef struct rt_setting {
  const char *key, *value;
} rt_setting;

typedef struct rt_program {
  int abi;                             /* RT_ABI_VERSION */
  const char *model, *compiler, *hash; /* hash of the canonical IR, hexadecimal */
  const char *equal;  /* to the model, in exact arithmetic: on what grounds; NULL: not compared */
  const char *target; /* such as x86_64_v4 */
  const char *needs;  /* of the processor: "+avx2,+fma,", in LLVM's words; NULL: nothing special */
  int sm;             /* of a GPU's target, such as 80; 0: a CPU */
  bool alone;         /* its code runs on that capability and no newer one */
  int workers;        /* of the processor, at most, compiled in */
  int64_t scratch;    /* bytes per worker, the largest of all kernels */
  int64_t arena_bytes[RT_ARENAS];
  int64_t counters; /* rt_counter is asked for 0 .. counters - 1 */
  /* On a GPU: position of the counters in IO. The next multiple of 64 bytes after them holds a word
     with the progress of the device. */
  int64_t counters_at;
  int64_t send_slot;  /* after its line of 64 bytes: bytes of a slot for a message to a
                         neighbour, */
  int64_t send_slots; /* number of these slots */
  int64_t move_slot;  /* after these, bytes of a slot for copies between host and device: */
  int move_slots[2];  /* number of slots per direction */
  int64_t most_back;  /* operations of a stream that rt_after and rt_until count back, at most */
  int64_t ahead_at;   /* and where inputs of the next step wait for it */
  /* On a GPU: all pinned memory of the host, allocated once at start: the view of inputs, scalars
     and small outputs; a window through which all other tensors come and go; room for what the
     host sends for the GPU and receives, where no library does that; the inputs of the next step,
     as many bytes as wait for it on the GPU. */
  int64_t host_view, host_window, host_messages, host_ahead;
  const rt_tensor *tensors;
  int ntensors;
  const rt_range *snapshot; /* of `save async = on` */
  int nsnapshot;
  rt_background background[RT_BACKGROUNDS];
  const rt_entry *entries;
  int nentries;
  const rt_kernel *const *kernels;
  int nkernels;
  const rt_setting *settings; /* resolved train and plan settings: train.steps, data.train, .. */
  int nsettings;
  const char *const *sources; /* name, text, name, text, .., NULL */
  const char *communicator;   /* of ir/communicators.def; NULL: local. One rank needs none */
  const rt_axis *mesh;
  int naxes; /* 0: one rank */
  const rt_collective *collectives;
  int ncollectives;
  bool flies; /* some are started by rt_start */
  /* In a pipeline: the class of ranks that run this program (first, middle, last), and their
     coordinates on an axis of the mesh; NULL: all ranks run it. The programs of all classes have
     the same hash. */
  const char *stages;
  int stage_axis;
  int64_t stage_first, stage_last;
  const struct rt_program *next; /* the same model for other ranks; NULL: none */
} rt_program;

extern const rt_program rt_the_program; /* defined by generated code */

/* An executable for several targets holds several programs; all but the first are called otherwise.
 */
#ifndef RT_PROGRAM
#define RT_PROGRAM rt_the_program
#endif
#ifdef RT_NEXT
extern const rt_program RT_PROGRAM, RT_NEXT;
#endif

/* First bytes of the context, the only part that generated code reads: where each arena starts. */
struct rt_ctx {
  char *arena[RT_ARENAS];
  struct rt_state *state; /* the runtime's own */
};

#define RT_CALL(result, name, arguments, what) result name arguments;
#include "rt_abi.def"
#undef RT_CALL

#endif

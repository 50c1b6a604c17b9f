/* Inside of the verifier: verify.c (names, SSA, types, attributes, globals), verify_parts.c (what
   loops over parts of a stack leave unwritten), verify_turns.c (loops that take turns),
   verify_shard.c (placements on a mesh),
   verify_uniform.c (where ranks of one program hold the same),
   verify_storage.c (what fuse, order and memory promise), verify_laid.c (concats outside of
   kernels), verify_bytes.c (arenas, frames, callers' memory), verify_kernel.c (kernel functions, by
   family), verify_gpu.c (how they are cut for GPUs), verify_flight.c (messages in flight),
   verify_lists.c (lists of blocks), verify_layers.c (parts of stacks). A check
   reports and goes on, so that one run shows every broken rule. */
#ifndef SHARDC_IR_VERIFY_H
#define SHARDC_IR_VERIFY_H
#include "ir/word_patterns.h"

typedef struct Verifier {
  Module *m;
  const Fn *fn;
  Fence fence;
  bool failed;
} Verifier;

typedef struct
    VerifyPlace { /* the text it was read from, else the source; looked up when it is shown */
  Span span;
  Loc loc;
} VerifyPlace;

void verify_report(Verifier *verifier, const char *code, VerifyPlace at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
VerifyPlace verify_at_op(const Op *op);
VerifyPlace verify_at_fn(const Verifier *verifier);
VerifyPlace verify_at_value(const Verifier *verifier, ValueId v); /* where it is made */
/* Strides of its type; the base of the views that it is of. */
bool verify_is_dense(const Value *v);
ValueId verify_base(const Fn *f, ValueId v);

void verify_lists(Verifier *verifier);                       /* of the module */
void verify_listed(Verifier *verifier, const Op *attention); /* its lists */
void verify_layers(Verifier *verifier);      /* dims and globals that are parts of stacks */
void verify_parts(Verifier *verifier);       /* of the module: loops over parts of stacks */
void verify_turns(Verifier *verifier);       /* loops that take turns */
void verify_shards(Verifier *verifier);      /* placements of a function, collectives */
void verify_uniform(Verifier *verifier);     /* what ranks leave in globals, below localize */
void verify_fused(Verifier *v);              /* after fuse */
void verify_laid(Verifier *verifier);        /* after fuse */
void verify_laid_order(Verifier *verifier);  /* after order */
void verify_laid_places(Verifier *verifier); /* after memory */
void verify_shared_rows(Verifier *verifier); /* kernel functions after fuse */
void verify_ordered(Verifier *v);            /* after order */
void verify_family(Verifier *verifier);      /* kernel functions after fuse */
void verify_selected(Verifier *verifier);    /* kernel functions after select */
void verify_gpu(Verifier *verifier);         /* the same for a GPU */
void verify_buffers(Verifier *verifier);     /* all of a GPU's kernels after select */
void verify_coded(Verifier *verifier);       /* kernels that name codes of 8 bits, after order */
void verify_codes(Verifier *verifier);       /* .. buffers of codes of 8 bits */
void verify_messages(Verifier *v);           /* collectives after select */
void verify_landed(Verifier *verifier);      /* nothing flies before select */
void verify_flights(Verifier *verifier);     /* messages in flight, after select */
void verify_rings(Verifier *verifier);       /* and their places, after memory */
void verify_placed(Verifier *v);             /* after memory */
void verify_flats(Verifier *v);              /* members of flat globals, wherever there are any */
void verify_arenas(Verifier *v);             /* globals after memory */
void verify_bytes(Verifier *v);              /* of a function after memory: verify_bytes.c */
void verify_declared_order(Verifier *v, OpId id); /* loads and stores after order */
void verify_tiers(Verifier *verifier);            /* one function: verify_tiers.c */
void verify_global_tiers(Verifier *verifier);     /* globals, and the target */
void verify_rooms(Verifier *v);                   /* globals and callers' bytes after order */

/* Are `bytes` bytes from `at` on inside the room? Correct for any numbers. */
bool verify_fits(int64_t at, int64_t bytes, int64_t room);
/* Bytes of the place that s names; -1: it does not exist. */
int64_t verify_room(const Verifier *v, const Value *x);

/* Elements from the first to the last that the value touches; -1 if its strides are wrong. */
int64_t verify_extent(const Value *v);
#endif

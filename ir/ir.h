/* The IR: modules, globals, functions, values, ops. It has one form from lowering to code
   generation and one text format (docs/ir.md). Every fact that a later stage needs is part of it,
   hence visible in every dump.

   A function is one straight list of ops in SSA form; values and ops are named by index, never by
   pointer. Passes do not edit lists in place: they build a new function from the old one (fn_new,
   value maps) and replace it in the module.

   A type is an element type and a list of distinct named dims with their sizes. Until pass `order`
   the list's order says nothing for intermediates (dims are a set; rules keep the natural order);
   after it the list is the storage order and `stride` says where elements are. Parameters, inputs
   and outputs always keep the declared order. */
#ifndef SHARDC_IR_H
#define SHARDC_IR_H
#include "background.h"
#include "ir/support/ctx.h"
#include "ir/support/vec.h"
#include "target_facts.h"

enum {
  MAX_RANK = 8,
  MAX_GROUPS = 4,
  MAX_RESULTS = 64
};                         /* results: calls and loops may have more */
enum { MAX_MESH = 6 };     /* axes of a mesh */
enum { MOST_CHUNKS = 8 };  /* chunks of layers that a pipeline stage interleaves */
enum { MAX_CARRIED = 40 }; /* values that a loop of generated code carries */

typedef enum Elem {
#define DTYPE(name, bytes, class) ELEM_##name,
#include "dtypes.def"
#undef DTYPE
  ELEM_COUNT
} Elem;

typedef enum Tier {
#define TIER(name, frame, live, work, where) TIER_##name,
#include "tiers.def"
#undef TIER
  TIERS
} Tier;

typedef enum ElemClass { CLASS_FLOAT, CLASS_INT, CLASS_BOOL, CLASS_BYTE } ElemClass;

typedef enum OpCode {
#define OP(name, family, operands, results, flags, shape, needs, may, meaning) OP_##name,
#include "ops.def"
#undef OP
  OP_COUNT
} OpCode;

typedef enum OpFamily {
  FAMILY_SOURCE,
  FAMILY_ELEM,
  FAMILY_REDUCE,
  FAMILY_SCAN,
  FAMILY_STRUCT,
  FAMILY_CONTRACT,
  FAMILY_GATHER,
  FAMILY_SCATTER,
  FAMILY_ATTENTION,
  FAMILY_GLOBAL,
  FAMILY_CALL,
  FAMILY_COLLECTIVE,
  FAMILY_FLIGHT,
  FAMILY_MOVE
} OpFamily;

enum OpFlags { POINT = 1, VIEW = 2, LINEAR = 4, BOOLR = 8, SIDE = 16, NODIFF = 32, SLOW = 64 };

typedef enum AttrKey {
#define ATTR(name, kind, meaning) ATTR_##name,
#include "attrs.def"
#undef ATTR
  ATTR_COUNT
} AttrKey;

typedef unsigned __int128 AttrMask; /* by AttrKey */

typedef struct OpAttrs { /* attributes that an op must have, and that it may have */
  AttrMask needed, allowed;
} OpAttrs;

/* Where a stacked result of a loop goes (attribute `continues`), if not to the stacked operand of
   that number: a stack of its rounds alone, a new one of all rounds of which this loop writes its
   own. */
enum { INTO_OWN = -1, INTO_NEW = -2 };

typedef enum AttrKind { ATTR_INT, ATTR_FLOAT, ATTR_STR, ATTR_INTS } AttrKind;

typedef struct Axis {
  Str dim;
  int64_t size;
} Axis;

typedef struct Type {
  Elem elem;
  int rank;
  Axis axis[MAX_RANK];
  Tier tier; /* the memory that holds it */
} Type;

/* Where a value is on the mesh: one state per mesh axis (placement.h). NULL: the same on all ranks
   of the axis; a dim of the type: cut along it into equal blocks; PARTIAL_SUM, PARTIAL_MAX: the
   value is the sum, the maximum, over the axis. All NULL without a mesh and below pass `localize`,
   where types have the sizes that one rank holds. */
typedef struct Placement {
  Str on[MAX_MESH];
} Placement;
extern const char PARTIAL_SUM[], PARTIAL_MAX[];

/* `[A, B -> C; D]` is two groups: {from A, B; to C} and {from D; no arrow}. */
typedef struct Group {
  int nfrom, nto;
  bool arrow;
  Str from[MAX_RANK], to[MAX_RANK];
} Group;

typedef struct Attr {
  AttrKey key;
  int64_t i; /* INT; INTS: number of entries */
  double f;
  Str s;
  int64_t *list;
} Attr;

typedef VEC(Attr) AttrList;

typedef uint32_t ValueId; /* index in Fn.values */
typedef uint32_t OpId;    /* index in Fn.ops */
enum { NO_VALUE = UINT32_MAX, NO_OP = UINT32_MAX };
typedef VEC(ValueId) ValueList;

typedef struct Loc { /* where in the user's source; file 0: nowhere */
  uint32_t file, line, column, length;
} Loc;

/* Where a value's bytes are. Set by `order` (stride, view) and `memory` (place). */
typedef enum ViewKind {
  VIEW_NONE,
  VIEW_OF,
  VIEW_INPLACE,
  VIEW_ASSEMBLED
} ViewKind; /* INPLACE: overwrites base, which has no later use; ASSEMBLED: the operands of its
               concat are written next to each other into its bytes, so the concat copies nothing */
typedef enum PlaceKind {
  PLACE_NONE,
  PLACE_GLOBAL,
  PLACE_FRAME,
  PLACE_ARG,
  PLACE_RESULT,
  PLACE_RING
} PlaceKind; /* RING: of a body, in one of several buffers that its loop takes in turn (flight.h) */

typedef struct Storage {
  bool ordered;             /* strides are valid */
  int64_t stride[MAX_RANK]; /* in elements, per axis of the type */
  ViewKind view;
  ValueId base;   /* of a view or in-place value */
  int64_t offset; /* elements from base's first element */
  PlaceKind place;
  /* PLACE_GLOBAL: index in Module.globals; PLACE_ARG, PLACE_RESULT, PLACE_RING: which one. */
  uint32_t slot;
  int64_t at; /* bytes from the start of that place (frame, global, argument) */
} Storage;

/* Is base valid: is the value a view, or computed in place of another value? */
static inline bool storage_has_base(const Storage *s) {
  return s->view == VIEW_OF || s->view == VIEW_INPLACE;
}

typedef struct Value {
  Type type;
  OpId def;        /* the op that makes it, NO_OP for arguments */
  uint32_t result; /* which result of def, or which argument */
  Storage storage;
  Placement placed;
} Value;

struct Fn;
struct Global;

typedef struct Op {
  OpCode code;
  uint32_t nin, nout;
  ValueId *in;
  ValueId out; /* results are out, out + 1, .. */
  int ngroups;
  Group *group; /* ngroups of them; of 0 an empty one, which may be read */
  AttrList attrs;
  struct Fn *callee;     /* call, kernel, loop */
  struct Global *global; /* load, store */
  Loc loc;
  Span span; /* in the IR text that it was read from */
} Op;

typedef enum FnKind { FN_ENTRY, FN_BODY, FN_KERNEL } FnKind;

typedef struct Fn {
  FnKind kind;
  Str name;
  VEC(Value) values;
  VEC(Op) ops;
  VEC(ValueId) args;    /* bodies of loops: args[0] is the counter, i32[] */
  VEC(ValueId) results; /* entries have none: they store */
  AttrList attrs;
  Loc loc;
  Span span;
} Fn;
typedef VEC(Fn *) FnVec;

typedef enum GlobalKind {
  GLOBAL_PARAM,  /* weights; live from init to the end, in checkpoints */
  GLOBAL_STATE,  /* optimizer states, in checkpoints */
  GLOBAL_INPUT,  /* filled by the data reader before an entry runs */
  GLOBAL_SCALAR, /* set by the runtime: seed (i64), step (i32, from 0) */
  GLOBAL_OUTPUT  /* read by the runtime after an entry has run: loss, logits, .. */
} GlobalKind;

enum { STAGES_FIRST = 1, STAGES_LAST = 2, STAGES_ENDS = 3 }; /* masks */

typedef struct Global {
  GlobalKind kind;
  Str name;        /* path, such as h.*.attn.c_attn; the * is the first, stacked dim */
  Type type;       /* declared order */
  Str of;          /* inputs: the dim that an index addresses, or NULL */
  int decay;       /* parameters: weight decay applies */
  int frozen;      /* parameters: no gradient, no states */
  int ruled;       /* parameters: no gradient, no states; a rule of its own updates it */
  Storage storage; /* place: offset in the arena of its kind */
  Placement placed;
  struct Global *within; /* a member of this flat one, made by pass zero: never loaded or stored */
  int64_t begin;         /* its first element in the flat global, of one round */
  bool derived;          /* follows from a state: no part of checkpoints */
  unsigned stages;       /* of a pipeline, those that hold it (STAGES_..); 0: all */
  Loc loc;
  Span span;
} Global;

/* A parameter that has a gradient. */
static inline bool global_learns(const Global *global) { return !global->frozen && !global->ruled; }

typedef struct Dim { /* every dim of the model, for readers of dumps, data binding, files */
  Str name;
  int64_t size;   /* 0: open */
  int64_t stored; /* padded size, = size without `pad` */
  Str like;       /* `K like D`: D; else NULL */
  Str part; /* layers of a stack, from `first` on: the stack's dim (layer_range.h); else NULL */
  int64_t first;
} Dim;

typedef struct MeshAxis {
  Str name;
  int64_t size;
} MeshAxis;

/* A `place` line: dims, or tensors by path, over mesh axes, the first axis cutting coarsest;
   tensors with none of `dims` answer with `otherwise`. Without axes: the tensors stay whole.
   With `pieces` a rank has that many pieces of each dim of `dims`, not one block (placement.h);
   with `activations` parameters with such a dim, and their states, stay whole over these axes;
   with `ring` attention passes its keys and values from rank to rank (passes/place/ring.c). */
typedef VEC(Str) StrList;

typedef struct PlaceRule {
  StrList dims, otherwise, paths, axes;
  int64_t pieces; /* even; 0: one block */
  bool activations, ring;
  Loc loc;
} PlaceRule;

/* A line `recompute` of the plan; later lines win, layer by layer. */
typedef enum KeepWord { KEEPS_ALL, KEEPS_INPUT, KEEPS_NONE, KEEPS_AUTO, KEEPS_NAMES } KeepWord;

typedef struct LayerRange { /* h, h.*.sub, h[0..5] */
  Str stack;
  int64_t first, last; /* last -1: to the end */
} LayerRange;

typedef struct RecomputeLine {
  VEC(LayerRange) stacks;
  KeepWord keep;
  StrList names; /* of the kept values, for KEEPS_NAMES: h.*.attn.q */
  double budget; /* bytes, for KEEPS_AUTO */
  bool offload;  /* kept values wait on the host */
  Str over;      /* mesh axes that split kept values, "tensor, node"; NULL: none */
  Loc loc, over_loc, offload_loc;
} RecomputeLine;

/* A word of a line `offload` of the plan with one of its paths: values in host memory. */
typedef enum OffloadWord {
  OFFLOAD_OPTIMIZER,
  OFFLOAD_GRADS,
  OFFLOAD_PARAMS,
  OFFLOAD_AUTO, /* the driver replaces it by lines of its choice */
  OFFLOAD_WORDS = OFFLOAD_AUTO
} OffloadWord;

typedef struct OffloadLine {
  OffloadWord word;
  Str path; /* h[0..3].attn, wte; NULL: all parameters */
  Loc loc, path_loc;
} OffloadLine;

typedef struct Setting { /* resolved train, plan and machine settings that passes and the executable
                            read */
  Str key, value; /* such as train.optim = adamw, train.optim.lr = 0.0006, data.train = "a.bin" */
} Setting;

/* Positions in files and in --set, for messages of later stages; no text of a module has them. */
typedef struct WrittenSetting {
  Str key;               /* plan.zero, plan.zero.prefetch; plan.mesh.data */
  Span all, word, value; /* zero 3 prefetch = 1: the line; or prefetch = 1 */
} WrittenSetting;

typedef struct WrittenBlocks {
  Str plan, plan_left; /* the plan's name; one that would do where none is asked for; or NULL */
  Str train;           /* the train block's name, if the model has several; or NULL */
  Span plan_at;
  VEC(WrittenSetting) settings;
} WrittenBlocks;

typedef struct IrSource { /* embedded model files: what loc(f1:..) points into */
  Str name, text; /* name: from the folder of the model's file on, whatever path was typed */
  Str path;       /* as the diagnostics know it; NULL: by its name */
} IrSource;

typedef struct BlockLists { /* blocks of scores that attention works on (lists.h) */
  Str name;
  AttrList attrs;
  Span span; /* where it was read */
} BlockLists;

typedef struct IrCount { /* what one run of an entry costs (count.h) */
  double flop, bytes;    /* bytes: moved between memory and kernels */
  int64_t peak;          /* bytes of work alive at once */
  uint32_t kernels;
} IrCount;

typedef struct MaskShares { /* made and read by mask_density.c alone */
  VEC(struct KnownShare) known;
} MaskShares;

typedef struct Module {
  Ctx *ctx;
  Arena *arena;
  MaskShares *shares; /* of scores that masks admit, as far as they are known (mask_density.h) */
  Str model;          /* name of the model or variant */
  Str after;      /* name of the last pass that ran, "lower" at first: where compiling goes on */
  bool unread;    /* it is never printed: passes leave out counts that only readers need */
  bool was_known; /* the numbers of the main entry before the last pass; for readers only */
  IrCount was;
  const char
      *compared; /* the answer of exact arithmetic, for `info`; NULL: none. No part of the IR */
  VEC(Dim) dims;
  VEC(MeshAxis) mesh;      /* none: one rank; the first varies fastest from rank to rank */
  VEC(PlaceRule) rules;    /* in the order of the plan */
  TargetFacts target;      /* what it is compiled for */
  TargetFacts host_target; /* on a GPU: the processor that runs host kernels; no name: there are
                              no host kernels */
  VEC(Setting) settings;
  const WrittenBlocks *written; /* never NULL */
  VEC(RecomputeLine) recompute; /* in the order of the plan, as those below */
  VEC(OffloadLine) offload;
  VEC(IrSource) sources; /* file numbers of Loc start at 1 */
  VEC(BlockLists) lists;
  VEC(Global *) globals;
  Background background[BACKGROUNDS]; /* after pass `streams` */
  VEC(Fn *) fns;                      /* callees before callers */
} Module;

/* ---- all of a module: EACH_OP(f, o) { .. } runs with each op of f in order, as a const Op *o. The
   body adds none to what it runs over. ---- */
#define EACH_OP(f, o) for (const Op *o = (f)->ops.at, *o##_end = o + (f)->ops.n; o < o##_end; o++)
#define EACH_FN(m, f)                                                                              \
  for (Fn **f##_at = (m)->fns.at, **f##_end = f##_at + (m)->fns.n, *f;                             \
       f##_at < f##_end && (f = *f##_at); f##_at++)
#define EACH_GLOBAL(m, g)                                                                          \
  for (Global **g##_at = (m)->globals.at, **g##_end = g##_at + (m)->globals.n, *g;                 \
       g##_at < g##_end && (g = *g##_at); g##_at++)

/* ---- facts from the tables (tables.c) ---- */
const char *elem_name(Elem e);
int elem_bytes(Elem e);
ElemClass elem_class(Elem e);
bool elem_is_half(Elem e); /* a float of 16 bits: f32 in registers and sums */
const char *op_name(OpCode c);
OpFamily op_family(OpCode c);
unsigned op_flags(OpCode c);
/* Works outside of kernels, from one buffer to another. */
static inline bool op_between_buffers(OpCode c) {
  return op_family(c) == FAMILY_COLLECTIVE || op_family(c) == FAMILY_MOVE;
}
/* Goes from neighbour to neighbour. */
static inline bool op_is_p2p(OpCode c) { return c == OP_send || c == OP_receive; }
int op_arity(OpCode c);
OpAttrs op_attrs(OpCode c);
const char *op_meaning(OpCode c);
int op_results(OpCode c); /* -1: any */
bool op_find(const char *name, OpCode *c);
bool elem_find(const char *name, Elem *e);
bool attr_find(const char *name, AttrKey *k);
const char *tier_name(Tier t);
bool tier_find(const char *name, Tier *t);
/* Attributes of functions: the bytes of their frame in a tier, and the bytes alive at once; of ops:
   the offset of their work in the caller's frame. */
AttrKey tier_frame(Tier t);
AttrKey tier_live(Tier t);
AttrKey tier_work(Tier t);
const char *attr_name(AttrKey k);
AttrKind attr_kind(AttrKey k);

/* ---- types (tables.c) ---- */
Type type_scalar(Elem e);
Type type_of(Elem e, int rank, const Axis *axes);
bool names_have(const Str *names, int n, Str name);
int type_find(const Type *t, Str dim);     /* axis index or -1 */
int64_t type_size(const Type *t, Str dim); /* bug() if absent */
int64_t type_count(const Type *t);         /* number of elements */
int64_t type_dense_bytes(const Type *t);   /* of all of them, without gaps */
bool type_contains(const Type *big,
                   const Type *small);         /* every axis of small is in big with equal size */
bool type_equal(const Type *a, const Type *b); /* same element type, same axes in the same order */
bool type_same_dims(const Type *a, const Type *b); /* same axes in any order */
Type type_without(const Type *t, const Str *dims, int n);
Type type_with_elem(Type t, Elem e);
Type type_in_tier(Type t, Tier tier);

/* ---- building (module_build.c) ---- */
Module *module_new(Ctx *c);
Fn *fn_new(Module *m, FnKind kind, Str name); /* not yet in m->fns */
Fn *fn_like(Module *m, const Fn *f);          /* without its arguments, values and ops */
void module_add(Module *m, Fn *f);            /* appends; callees must have been added before */
void module_replace(Module *m, Fn *old,
                    Fn *with);        /* same place; every callee pointer to old is redirected */
void module_remove_unused(Module *m); /* functions that no entry reaches */
Fn *module_fn(const Module *m, Str name);
uint32_t fn_index(const Module *m, const Fn *f); /* in m->fns */
Global *module_global(const Module *m, Str name);
uint32_t global_index(const Module *m, const Global *global);   /* in m->globals */
bool global_has_members(const Module *m, const Global *global); /* flat storage of others */
Global *module_add_global(Module *m, GlobalKind kind, Str name, Type type, Loc loc);
Str module_setting(const Module *m, const char *key, const char *otherwise);
/* The user's word for a setting. */
/* The last that is written of a setting; no key, and no positions: nothing is. */
WrittenSetting module_written(const Module *m, const char *key);
double module_number(const Module *m, const char *key, double otherwise);
void module_set(Module *m, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Where its kernels run: the one question about the kind of device. */
static inline bool module_on_gpu(const Module *m) { return m->target.device == DEVICE_GPU; }

ValueId fn_arg(Module *m, Fn *f, Type t);
/* The tier of an op's result, by the tiers of its operands. A const is in any. */
Tier op_tier(const Fn *f, uint32_t nin, const ValueId *in);
Tier module_tiers(const Module *m); /* one more than the last tier that holds a value */
Tier kernel_tier(const Fn *kernel); /* where its operands, results and work are */
/* The module for which one of its kernels is compiled: for a host kernel of a GPU module, a copy
   whose target is the processor. Functions and everything else are those of the module. */
Module *module_for_kernel(Module *m, const Fn *kernel);
bool module_has(const Module *m, bool is(const Op *o)); /* such an op */
uint32_t module_calls(const Module *m, const Fn *f);    /* ops that call it */
bool kernel_on_host(const Module *m, const Fn *kernel); /* a host kernel of a GPU module */
/* Do entries of a GPU leave copies and host kernels under way? */
bool module_copies_stay(const Module *m);
Op *fn_op(Module *m, Fn *f, OpCode c, uint32_t nin, const ValueId *in, uint32_t nout,
          const Type *out, Loc loc);
/* appends; the pointer is valid until the next append. Results are in the tier of the operands,
   except those of moves, calls, loads and sources. */
void op_add_group(Module *m, Op *op, Group g);
void fn_result(Module *m, Fn *f, ValueId v);
const Type *value_type(const Fn *f, ValueId v);
bool value_is_float(const Fn *f, ValueId v);
int64_t value_dense_bytes(const Fn *f, ValueId v); /* of all its elements, without gaps */
void value_dense(Value *v); /* ordered, strides dense in the order of the type */
bool value_is_dense(const Value *v);
const Op *value_def(const Fn *f, ValueId v); /* NULL for arguments */
const Op *fn_store_of(const Fn *f,
                      const Global *global); /* the op that stores it; NULL: none does */

Group group_dims(int n, const Str *dims);                            /* [A, B] */
Group group_map(int nfrom, const Str *from, int nto, const Str *to); /* [A -> B, C] */
bool op_lists(const Op *o, Str dim);    /* in its first group, before an arrow */
bool op_mentions(const Op *o, Str dim); /* in any of its groups */
bool op_reads(const Op *o, ValueId v);

/* Shorthand of the builders: result types by the shape rules. */
ValueId ir_const(Module *m, Fn *f, Elem e, double value, Loc loc);
ValueId ir_iota(Module *m, Fn *f, Axis axis, Loc loc);
ValueId ir_unary(Module *m, Fn *f, OpCode c, ValueId a, Loc loc);
ValueId ir_binary(Module *m, Fn *f, OpCode c, ValueId a, ValueId b, Loc loc);
ValueId ir_where(Module *m, Fn *f, ValueId c, ValueId a, ValueId b, Loc loc);
ValueId ir_cast(Module *m, Fn *f, ValueId a, Elem e, Loc loc); /* a itself if it has that type */
ValueId ir_pow(Module *m, Fn *f, ValueId a, double exponent, Loc loc);
/* Numbers in [0, 1): in: seed, step, first element; all elements in the order of the type. */
ValueId ir_rand(Module *m, Fn *f, const ValueId *in, const Type *t, int64_t key, Loc loc);
ValueId ir_reduce(Module *m, Fn *f, OpCode c, ValueId a, int n, const Str *dims, Loc loc);
ValueId ir_expand(Module *m, Fn *f, ValueId a, int n, const Axis *axes,
                  Loc loc); /* new dims first */
ValueId ir_rename(Module *m, Fn *f, ValueId a, Str from, Str to, Loc loc);
ValueId ir_dot(Module *m, Fn *f, ValueId a, ValueId b, int n, const Str *dims, Loc loc);
ValueId ir_gather(Module *m, Fn *f, ValueId w, ValueId index, Str dim, Loc loc);
ValueId ir_load(Module *m, Fn *f, Global *g, Loc loc);
void ir_store(Module *m, Fn *f, Global *g, ValueId a, Loc loc);

void attr_set_int(Module *m, AttrList *l, AttrKey k, int64_t i);
void attr_set_float(Module *m, AttrList *l, AttrKey k, double f);
void attr_set_str(Module *m, AttrList *l, AttrKey k, Str s);
void attr_set_ints(Module *m, AttrList *l, AttrKey k, int n, const int64_t *list);
const Attr *attr_get(const AttrList *l, AttrKey k); /* NULL if absent */
int64_t attr_int(const AttrList *l, AttrKey k, int64_t otherwise);
double attr_float(const AttrList *l, AttrKey k, double otherwise);
Str attr_str(const AttrList *l, AttrKey k, Str otherwise);

/* Copies op `o` of `from` to the end of `to`, operands through map (indexed by ValueId of from);
   fills map for its results. Returns the copy. */
Op *fn_clone_op(Module *m, Fn *to, const Fn *from, const Op *o, ValueId *map);

/* ---- shape rules (shape.c) ---- */
/* Computes the result types of an op from its operands, groups and attributes. Returns NULL, or why
   it cannot be (text in m's arena). Ops whose rule is `given` are checked against the types that
   the op carries. */
const char *shape_infer(Module *m, const Fn *f, const Op *op, Type *out /* [op->nout] */);

/* Which invariants hold, by the name of the last pass that ran. */
typedef enum Fence { FENCE_NONE, FENCE_FUSED, FENCE_ORDERED, FENCE_SELECTED, FENCE_PLACED } Fence;
Fence module_fence(const Module *m);
bool module_is_typed(const Module *m); /* element types are final: from pass `precision` on */
/* Between passes `collect` and `localize`: sizes are those of all ranks, and each op has operands
   that it can work on. */
bool module_is_collected(const Module *m);

/* The location l for diagnostics: a span in the source of that name, which is added if it is
   new. */
Span loc_span(const Module *m, Loc l);

/* ---- text (print.c, parse.c) ---- */
char *ir_print(Module *m, size_t *length);                                /* in m's arena */
char *ir_print_commented(Module *m, const char *comment, size_t *length); /* "# .." after line 1 */
char *ir_print_fn(Module *m, const Fn *f);
const char *type_text(Module *m, const Type *t); /* f32[Batch:16, Embed:64] */
Module *ir_parse(Ctx *c, const char *name, const char *text,
                 size_t n); /* NULL: diagnostics were given, codes E1xxx */
/* By its text, so a copy is what a dump has; name: of the copy, in diagnostics. */
Module *ir_copy(Module *m, const char *name);
bool ir_parse_line(Module *m,
                   const char *line); /* one more declaration, `recompute h keep = all` */
/* Settings, and the lines of the plan as settings: for readers of programs and of dumps in JSON. */
typedef VEC(Setting) SettingRows;
SettingRows module_rows(const Module *m);
const char *offload_word(OffloadWord word);
bool offload_find(const char *text, OffloadWord *word);
bool keep_find(const char *word, KeepWord *keep);
const char *recompute_text(Arena *a, const RecomputeLine *line); /* without its positions */
Module *ir_read(Ctx *c, const char *path); /* a file; NULL: the same, or E0001 (read.c) */

/* ---- verifier (verify.c) ---- */
/* Checks every rule that holds after pass m->after; reports through the diagnostics with numbered
   constraints (E1101 [elem-c1] ..). True if nothing is wrong. */
bool ir_verify(Module *m);

#endif

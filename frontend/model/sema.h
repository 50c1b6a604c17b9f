/* Semantic analysis: the world (every file read), sizes of dims, values with named dims, layers as
   instances, and the evaluator that walks bodies.

   One evaluator serves checking and lowering. It walks the body of a model with values that have
   their kind, their dims and, for numbers, the number. With a Build it also writes each operation
   into the IR (lower_*.c); without one it only checks. So the checked program is the compiled one,
   and lowering may assume that it is correct. A mistake gives one diagnostic per position and a
   poisoned value, which causes no further diagnostics.
 */
#ifndef SHARDC_SEMA_H
#define SHARDC_SEMA_H
#include "frontend/syntax/ast.h"
#include "ir/ir.h"
#include "ir/support/names.h"

enum { DIMS_MAX = 16, ARGS_MAX = 16 };

/* ---- the world: all files, one list of names per kind (sema_world.c) ---- */

typedef enum Space {
  SPACE_DIM,
  SPACE_CONST,
  SPACE_LAYER,
  SPACE_FN,
  SPACE_GRAD,
  SPACE_MODEL,
  SPACE_TRAIN,
  SPACE_PLAN,
  SPACE_MACHINE,
  SPACE_WEIGHTS,
  SPACE_COUNT
} Space;

typedef struct Decl {
  Space space;
  Str name;
  Span span;           /* of the name */
  const AstItem *item; /* NULL for dims */
  const AstDim *dim;
  bool std; /* declared by the standard library */
} Decl;

typedef struct Seen { /* a diagnostic that was given already */
  const char *code;
  Span span;
} Seen;

typedef struct Warning {
  const char *code;
  Span span;
  Str headline, help;
} Warning;

/* Notes of the checker for an editor: the values at a place of FILE, and the sizes of dims. */
typedef struct WatchNote {
  Span span; /* of the expression or name that has the place in it */
  Str text;  /* of its value, as a reader wants it */
} WatchNote;
typedef struct WatchSize {
  Str model, dim;
  int64_t size, stored;
} WatchSize;
typedef struct PlaceWatch {
  uint32_t offset;      /* the place */
  VEC(WatchNote) notes; /* of the smallest span; each text once */
  VEC(WatchSize) sizes;
} PlaceWatch;

typedef struct World {
  Ctx *ctx;
  PlaceWatch *watch; /* NULL: none */
  VEC(AstFile *) files;
  VEC(Str) loaded; /* paths, as the system names them */
  uint32_t top;    /* number of FILE itself */
  uint32_t std;    /* number of the library, 0: not used */
  VEC(Decl) decls;
  VEC(uint32_t) of[SPACE_COUNT]; /* numbers in decls */
  NameMap *index;                /* (space, library or not; name) -> number in decls */
  NameMap *warned;               /* places with a warning */
  VEC(Seen) seen;
  uint32_t errors; /* reported so far, repeated ones included */
  VEC(Warning) warnings;
  Diag *scratch;              /* takes repeated diagnostics */
  VEC(const AstItem *) wrong; /* settings blocks with mistakes */
  NameMap *walked;            /* layers of which an instance was made */
  bool lost;                  /* a used file could not be read: its names are not known */
  bool checking;              /* nothing is compiled: what is not built yet is a note */
  const AstFile *library;     /* the standard library where no file uses it, for messages */
  VEC(const struct PatternTable *) tables; /* files of block patterns that were read */
  uint32_t deep;     /* files that are being read, each used by the one before */
  bool said_deep;    /* that a number is defined by itself */
  bool said_library; /* that `use "std"` is missing */
} World;

void world_add(World *w, const char *text, const char *from); /* a text as if `from` used it */
World *world_load(Ctx *c,
                  const char *path); /* NULL: FILE cannot be read; other mistakes are in c->diag */
void report_unread(Ctx *c, const char *path); /* E0001 by errno; names an example of that name */
const Decl *world_find(const World *w, Space s, Str name, bool std_only);
const Decl *world_next(const World *w, Space s, uint32_t *at); /* all of a kind, in order */
const char *world_nearest(const World *w, Space s, const char *name);
Str world_file_name(const World *w, uint32_t file);
bool world_has_bad(const World *w); /* an item with a mistake of syntax */
Str world_place(const World *w, Span from,
                Span s); /* "line 7", or "gpt2.shard:7" seen from another file */
Report *world_error(World *w, const char *code, Span s, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* `pipelines are` -> "pipelines are not built yet": E0901, or N0902 where nothing is compiled. */
Report *world_unbuilt(World *w, Span at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An unknown name of this kind may have been declared by something that could not be read: nothing
   more is said about it, but it counts as an error. */
bool world_lost(World *w, Space s);
/* True if the library has the name but no file uses it: then that is said, once. */
bool world_misses_library(World *w, Space s, Span at, Str name);
void world_warn(World *w, const char *code, Span s, Str headline, Str help);
void world_flush_warnings(World *w); /* only if there is no error; nor are notes on plans then */

/* ---- sizes of dims, numbers (sema_dims.c) ---- */

enum { SIZE_OPEN = 0, SIZE_BAD = -1 };

typedef struct DimInfo {
  const Decl *decl;
  const AstDim *def; /* the one in force: of the file or of the variant */
  bool met;          /* a value of the model has it */
  bool given;        /* by the train block, the command line or an entry */
  int64_t given_size;
  Span given_span;
  int64_t size, stored;
  int state; /* 0: not computed, 1: being computed, 2: done */
} DimInfo;

typedef struct Sizes {
  World *w;
  DimInfo *dim;
  uint32_t n;
  uint32_t declared; /* of these, dims of files; the others are axes of a layer */
  NameMap *index;    /* of the declared ones */
  int depth;         /* of the number being computed: constants in circles */
} Sizes;

Sizes *sizes_new(World *w, const AstItem *variant);
void sizes_give(Sizes *s, Str dim, int64_t size, Span where); /* the last one wins */
/* Shows where the size of the dim is set, with the edit that makes it `size`. */
void sizes_mend(const Sizes *s, Report *r, Str dim, int64_t size);
DimInfo *sizes_find(const Sizes *s, Str dim);   /* a prime is ignored; NULL: no such dim */
bool sizes_alike(const Sizes *s, Str a, Str b); /* `like` leads from both to one dim */
int64_t size_of(Sizes *s, Str dim);             /* > 0, SIZE_OPEN or SIZE_BAD */
int64_t stored_size_of(Sizes *s, Str dim);
void sizes_compute(Sizes *s); /* all of them, for their mistakes */

typedef enum NumState { NUM_KNOWN, NUM_OPEN, NUM_BAD } NumState;
NumState number_eval(Sizes *s, const AstExpr *e, double *out);
Str number_text(Ctx *c, double v);                            /* 76.8, 768, 1e-05 */
bool number_apply(AstOp op, double a, double b, double *out); /* arithmetic only */
bool number_function(Str name, int n, const double *arg, double *out);

/* ---- values (sema_value.c) ---- */

typedef struct Dims {
  int n;
  Str at[DIMS_MAX];
} Dims;

typedef enum Kind {
  VAL_POISON,
  VAL_ABSENT,
  VAL_NUMBER,
  VAL_FLOAT,
  VAL_INDEX,
  VAL_INT,
  VAL_BOOL,
  VAL_MASK,
  VAL_NONE,
  VAL_FLAG,
  VAL_STRING,
  VAL_LIST,
  VAL_INIT,
  VAL_SUB
} Kind;

typedef enum MaskKind {
  MASK_ALL,
  MASK_CAUSAL,
  MASK_SLIDING,
  MASK_PADDING,
  MASK_SAME,
  MASK_TENSOR,
  MASK_BLOCKS,
  MASK_PATTERN,
  MASK_AND,
  MASK_OR
} MaskKind;

typedef struct Val Val;
typedef struct PatternTable PatternTable;
typedef struct Mask {
  MaskKind kind;
  double number;     /* SLIDING, BLOCKS; PATTERN: its first operand, if that is a number */
  const Val *tensor; /* PADDING, SAME, TENSOR */
  Str name;          /* PATTERN */
  const Val *arg;    /* PATTERN: its operands, in the order of its formals */
  const struct Mask *a, *b;
  const struct Mask *const *items; /* PATTERN per_head: what the heads have in turn */
  int nitems;
  const PatternTable *table; /* PATTERN table */
  Dims layout;               /* dims of the named layout that it is, if any */
  Span span;
} Mask;

typedef enum InitKind { INIT_CONSTANT, INIT_NORMAL, INIT_TRUNCATED, INIT_UNIFORM } InitKind;
typedef struct Init {
  InitKind kind;
  const Val *a, *b; /* std, mean; low, high; numbers, or one per round */
} Init;

typedef struct Param Param;
typedef struct Input Input;
typedef struct Instance Instance;
typedef struct Stack Stack;
typedef struct Frame Frame;

struct Val {
  Kind kind;
  bool
      known; /* NUMBER: its value is known; FLOAT, BOOL: every element is `number`; LIST: repeats */
  bool free; /* INDEX made by iota: may address any dim at least as large */
  double number;
  Dims dims;
  Str of;           /* INDEX */
  Str string;       /* STRING */
  const Mask *mask; /* MASK */
  const Init *init; /* INIT */
  Instance *sub;    /* SUB */
  const Val *items; /* LIST, and operators with several results */
  int nitems;
  const Stack *rounds; /* FLOAT, BOOL: one of `items` per round of this stack */
  Param *param;        /* FLOAT, not yet loaded */
  const Input *input;  /* not yet loaded */
  ValueId id;          /* when building */
  Frame *frame;
};

bool dims_has(const Dims *d, Str name);
bool dims_subset(const Dims *small, const Dims *big);
bool dims_same(const Dims *a, const Dims *b);
Dims dims_without(const Dims *a, const Dims *cut);
bool dims_add(Dims *d, Str name);      /* false: full */
Str dims_repeated(const Dims *d);      /* a name that occurs twice, or NULL */
Str dims_text(Ctx *c, const Dims *d);  /* [Batch, Seq], "no dimension" if empty */
Str dims_names(Ctx *c, const Dims *d); /* Batch, Seq */
Val val_poison(void);
Val val_number(double v);
Val val_open_number(void);
Val val_tensor(Kind k, Dims d);
Val val_flat(Kind k, Dims d, double v); /* every element is v */
bool val_is_tensor(const Val *v);       /* has elements: FLOAT, INDEX, INT, BOOL, and NUMBER */
bool val_is_real(const Val *v);         /* FLOAT or NUMBER */
Str kind_text(Ctx *c, const Val *v);    /* "an index of `Vocab`", for messages */

/* ---- axes, environments, instances ---- */

typedef struct AxisBind { /* formal axis and the dims bound to it */
  Str formal;
  Dims dims;
} AxisBind;
typedef VEC(AxisBind) AxisMap;

typedef struct AxisGroup {
  Dims from, to;
  bool arrow;
  const AstGroup *ast;
} AxisGroup;
typedef struct AxisGroups {
  int n;
  AxisGroup at[MAX_GROUPS];
} AxisGroups;

typedef struct Binding {
  Str name;
  Val val;
} Binding;

typedef struct Env { /* names of one body */
  VEC(Binding) vars;
  NameMap *index; /* name -> the last in vars; NULL while there are few */
  AxisMap axes;
  bool std; /* a body of the library: names mean the library's */
} Env;

struct Param {
  Str path;  /* h.*.ln_1.gain */
  Dims dims; /* without those of the stacks around it */
  Dims lead; /* dims of the stacks, outermost first */
  Val init;
  bool nodecay, frozen, f32;
  bool ruled;              /* an `update` line gives its next value; frozen for optimizers */
  bool projected;          /* a `project` line gives its value after each update */
  bool used;               /* by some expression that the loss, an aux or an output needs */
  bool seen;               /* by some expression */
  uint32_t uses, products; /* expressions that name it; `dot`s that read it as it is */
  const Param *adapts;     /* an adapter: the weight that it adapts; else NULL */
  Param *low[2];           /* the adapters of this weight, or NULL */
  Span span;               /* where the user reads about it */
  const AstStmt *decl;
};

typedef struct Adapters { /* the line `lora` of the train block */
  Str rank;               /* a dim */
  double alpha, dropout;
  const struct AstValue **path; /* of the weights */
  uint32_t n;
  Span span;
} Adapters;

struct Input {
  Str name;
  Val type; /* kind, dims, of */
  Span span;
};

struct Stack {
  Str dim, name;
  Span span;
  const Stack *outer;
  Instance **body;
  uint32_t n;
  uint32_t depth; /* 1: outermost */
};

struct Instance {
  Str name, path;    /* path ends in a dot */
  const Decl *layer; /* NULL: a stack */
  Stack *stack;
  Env env; /* options, parameters, subs */
  Span span;
};

/* ---- the evaluator ---- */

typedef struct Build Build; /* lower.h: writes IR */
typedef enum Mode { MODE_CHECK, MODE_STEP, MODE_EVAL, MODE_LOGITS } Mode;

typedef struct Site { /* a use of a function or layer that is being walked */
  const Decl *decl;
  Span span;
  const struct Site *up;
} Site;

typedef struct ModelOutput {
  Str name;
  Span span;
  Val val;
} ModelOutput;

typedef struct MaskUse { /* a named layout, or what an attention is masked with */
  Str name;              /* NULL: none */
  const Mask *mask;
  Str q, k;
  Span span;
} MaskUse;

typedef struct Ignored { /* the label of an input that a loss leaves out */
  Str input;
  int64_t label;
} Ignored;

typedef struct KnownNumber { /* what operators compute with, by its name in config.json */
  const char *key;
  double number;
  Span at;
} KnownNumber;

typedef struct Rule Rule;  /* sema_rule.c */
typedef struct RuleValue { /* what a rule reads of a loop; its dims after it */
  Val *val;
  Dims dims;
} RuleValue;
typedef VEC(RuleValue) RuleValues;

typedef struct Eval {
  World *w;
  Ctx *ctx;
  Arena *arena;
  Sizes *sizes;
  Mode mode;
  Build *build;             /* NULL: checking only */
  bool sized;               /* every dim that is used must have a size */
  const AstItem *train;     /* that gives sizes, for messages; may be NULL */
  const Adapters *adapters; /* NULL: none */
  const Site *site;
  Str path;           /* of the instance being made, "" at the top */
  const Stack *stack; /* around the instance being made */
  Dims lead;
  VEC(Param *) params;
  VEC(Input *) inputs;
  VEC(ModelOutput) outputs;
  VEC(Ignored) ignored;
  VEC(KnownNumber) known;
  VEC(MaskUse) masks; /* once each */
  Val loss;
  Span loss_span;
  bool has_loss;
  uint32_t steps;         /* expressions so far */
  Span here;              /* where new ops point: in library bodies, the user's line */
  int depth;              /* of expressions and bodies being walked */
  Dims running;           /* dims of the stacks whose rounds are being walked */
  Str mask_q, mask_k;     /* inside the definition of attention: its axes */
  bool idle;              /* nothing needs the statement that is walked */
  bool mask_alike;        /* whose positions are the same ones */
  const AstExpr *product; /* the last a * b and its operands, for W0302 */
  Val factor[2];
  VEC(Str) assigned;      /* h.*.attn.q: what layers of stacks assign, when checking */
  const Instance *self;   /* whose body is being walked, NULL: the model's */
  const NameMap *updated; /* of lines `update`, `project` of the body that is being read; or NULL */
  VEC(Rule *) rules;
  const Dims *ruled; /* dims of the stacks of the state whose rule is evaluated, else NULL */
  bool projects;     /* it is that of a trained parameter */
} Eval;

typedef struct Call { /* operands of a call, evaluated */
  const AstExpr *site;
  Str name;
  Span span; /* the whole call */
  Span name_span;
  const AstAxes *axes;
  AxisGroups groups;
  int n;
  Str arg_name[ARGS_MAX]; /* NULL: by place */
  Val arg[ARGS_MAX];
  const AstExpr *expr[ARGS_MAX];
  Span arg_span[ARGS_MAX], arg_name_span[ARGS_MAX];
} Call;

Eval *eval_new(World *w, Sizes *s, Mode mode, Build *build);
void eval_model(Eval *e, const AstItem *model); /* fills params, inputs, outputs, loss */
Val eval_expr(Eval *e, Env *env, const AstExpr *expr);
void eval_notes_option(Eval *e, const Instance *instance, Str option, const Val *v);
void eval_knows(Eval *e, const char *key, double number, Span at);
/* The one number with which all operators of a kind compute; NULL: none, or several. */
const KnownNumber *eval_known(const Eval *e, const char *key);
/* Can these dims, in every round of those, be counted? Else E0313 was given. */
bool eval_is_countable(Eval *e, const Dims *dims, const Dims *rounds, Span at, const char *what);
/* Checkpoints, traces and exported files have room for this path. Else E0103 was given. */
bool eval_is_short(Eval *e, Str path, Span at);
Report *eval_error(Eval *e, const char *code, Span s, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Span eval_users_span(const Eval *e, Span s);   /* in a body of the library: of what uses it */
int64_t eval_size(Eval *e, Str dim);           /* with E0308 where a size is needed */
int64_t eval_sizes(Eval *e, const Dims *dims); /* product; SIZE_OPEN, SIZE_BAD */

/* sema_axes.c */
bool axes_resolve(Eval *e, const Env *env, const AstAxes *axes,
                  AxisGroups *out); /* names checked, formals replaced */
bool dims_resolve(Eval *e, const Env *env, const AstNames *names, Dims *out);
bool axes_bind(Eval *e, const AstAxes *formal, const AxisGroups *actual, Span where, Str what,
               bool primes, AxisMap *out);
const Dims *axis_find(const AxisMap *m, Str formal);

/* sema_call.c */
Dims dims_of_star(const Eval *e, const Val *v); /* `*` of an operand */
/* `pipe`: what `x` is the right side of, x |> f; NULL: nothing. */
Val eval_call(Eval *e, Env *env, const AstExpr *x, const AstExpr *pipe);
Val call_function(Eval *e, const Decl *d, Call *c);
/* E0404 where a known number is not `good` */
bool number_in(Eval *e, const Val *v, const AstExpr *expr, bool good, const char *what,
               const char *wanted);
bool bind_operands(Eval *e, const Call *c, int nformals, const Str *formals, int required, Val *out,
                   const AstExpr **exprs);
Val eval_layout(Eval *e, const Decl *decl);
const Val *env_find(const Env *env, Str name);
void env_set(Eval *e, Env *env, Str name, Val v);

bool call_is_initialiser(Str name);                     /* normal, truncated_normal, uniform */
void check_unused_function(World *w, const Decl *decl); /* sema_unused.c: E0201 */
bool eval_inside(Eval *e, const Decl *d, Span at); /* E0202 if that body is being walked already */

/* sema_layer.c */
bool stmt_declares(const AstStmt *s); /* param, sub, stack */
void eval_declare(Eval *e, Env *env, const AstStmt *s);
Val call_instance(Eval *e, Instance *i, const Call *c);
void eval_layer(Eval *e, const Decl *d); /* by itself, its axes being dims */
bool type_resolve(Eval *e, const Env *env, const AstType *t, Val *out);

/* sema_watch.c: nothing without a watch */
void watch_value(Eval *e, Span at, const Val *v);
void watch_params(Eval *e, const AstStmt *stmt,
                  uint32_t first); /* that it has declared: from number `first` on */
void watch_sizes(Eval *e, Str model);

/* sema_attrs.c: of a parameter; of a sub or stack, whose parameters are those from `first` on. */
void attrs_of_param(Eval *e, const AstAttrs *attrs, Param *param);
void attrs_of_sub(Eval *e, const AstAttrs *attrs, uint32_t first);

/* sema_adapt.c: adapters of low rank. All other parameters are frozen. */
void adapt_param(const Eval *e, Param *param); /* when it is declared */
void adapt_dot(Eval *e, const Call *call, Val *product);

/* sema_body.c */
void eval_names(NameMap *out, const AstExpr *x); /* all names in it */
Val eval_body(Eval *e, Env *env, const AstStmts *body,
              Span *returned); /* assignments, return, aux */

/* sema_ops*.c: operators of the language */
typedef struct Builtin Builtin;
typedef Val BuiltinFn(Eval *e, const Builtin *b, const Call *c);
struct Builtin {
  const char *name;
  BuiltinFn *run;
  int code;            /* OpCode where one op does it */
  const char *formals; /* "x at value"; `*`: any number */
  int required;
  int axes; /* 0: none, 1: needed, 2: may have */
};
const Builtin *builtin_find(Str name, bool has_axes);
const Builtin *builtin_table(uint32_t *n);
Val eval_binary(Eval *e, Env *env, const AstExpr *x, const Val *a, const Val *b);
Val eval_negate(Eval *e, const AstExpr *x, const Val *a);
Val eval_gather(Eval *e, Env *env, const AstExpr *x);
Val eval_iota(Eval *e, Env *env, const AstExpr *x);
Val eval_attention(Eval *e, const Call *call);
BuiltinFn op_unary, op_minmax, op_where, op_not, op_float, op_stop, op_rand;
BuiltinFn op_reduce, op_over_one;
BuiltinFn op_expand, op_rename, op_split, op_merge, op_unstack, op_concat, op_slice, op_pad,
    op_shift;
BuiltinFn op_rope, op_bucket, op_numeric;
BuiltinFn op_top, op_route; /* sema_route.c */
bool need_dims(Eval *e, const Call *c, const Dims *want, const Val *x,
               const AstExpr *expr); /* E0303 */

/* sema_rounds.c: options of a stack that differ by layer */
typedef struct RoundChoice {
  int n;
  const Val *item, *has; /* the different values; for each a bool per layer: the layer has it */
} RoundChoice;
RoundChoice rounds_choice(Eval *e, const Val *list);
BuiltinFn op_repeat;
void rounds_option(Eval *e, Val *val, Str name, Span at, const Stack *stack);

/* sema_explain.c: the longer messages */
void explain_elementwise(Eval *e, const Env *env, const AstExpr *expr, const Val *a, const Val *b);
void explain_contract(Eval *e, const Call *c, Str dim);
void explain_missing(Eval *e, const Call *c, Str dim, const Val *x, const AstExpr *expr);
void explain_no_axes(Eval *e, const Call *call); /* E0204: dot(x, w) */
void explain_no_dim(World *w, Span at, Str name);
Str expr_text(Ctx *c, const AstExpr *expr,
              const char *otherwise); /* the source text if it is short */

#endif

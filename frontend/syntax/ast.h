/* The syntax tree of one `.shard` file: the constructs that the grammar accepts, before any
   analysis.

   Every node and every name carries its own span, so that a message can point at exactly the word
   that is wrong. Nodes live in the arena of the context. Names are interned. Absent parts are NULL
   (pointers), n = 0 (lists) or text = NULL (names). After a syntax error the tree holds all parts
   that could be read: a statement, setting or dim with an error is left out, and the item around it
   has `bad` set, so that no warning need be given about it. */
#ifndef SHARDC_AST_H
#define SHARDC_AST_H
#include "ir/support/ctx.h"
#include "ir/support/vec.h"

typedef struct AstExpr AstExpr;
typedef struct AstStmt AstStmt;
typedef struct AstItem AstItem;
typedef struct AstValue AstValue;
typedef struct AstBlock AstBlock;

/* ---- names, numbers, paths ---- */

/* Longest name, and longest path of a parameter or name in a weights file: the buffers of the
   runtime hold 256 bytes with what is put around them. */
enum { NAME_BYTES = 100, PATH_BYTES = 200 };

typedef struct AstName {
  Str text;
  Span span;
} AstName;
typedef VEC(AstName) AstNames;

/* Units come in four kinds; a number is kept in the kind's base unit. */
typedef enum AstUnit {
  UNIT_NONE,
  UNIT_SHARE,            /* 20%: 0.2 */
  UNIT_BYTES,            /* 25MiB: 26214400; 25MB: 25000000 */
  UNIT_BYTES_PER_SECOND, /* 300GB/s */
  UNIT_FLOPS,            /* 312TFLOPS: 3.12e14 operations per second */
  UNIT_SECONDS           /* 10min, 5ms, 3us, 2h, 7s */
} AstUnit;

typedef struct AstNumber {
  double value; /* in the base unit: bytes, FLOP/s, seconds, a share of 1 */
  AstUnit unit;
  bool integer;     /* written with digits only, before any unit; then i is exact */
  bool bad;         /* it was reported and represents an unknown number */
  int64_t integral; /* the value as an integer, when `integer` (unit included for bytes) */
  Str text;         /* as written, a leading `-` of a setting's value included */
  Span span;
} AstNumber;

/* Path in a settings block: h.*.attn.c_attn, h[0..5], h.0.1, layers.gain */
typedef enum AstPartKind { PART_NAME, PART_INDEX, PART_ANY, PART_RANGE } AstPartKind;
typedef struct AstPart {
  AstPartKind kind;
  Str name;            /* NAME */
  int64_t first, last; /* INDEX: first; RANGE: both ends are inside */
  Span span;
} AstPart;
typedef struct AstPath {
  VEC(AstPart) parts; /* the first one is a NAME */
  Str text;           /* as written, without blanks */
  Span span;
} AstPath;

/* ---- axes and types ---- */

typedef struct AstGroup { /* `A, B -> C`; the axis `*` has the text "*" */
  AstNames from, to;
  bool arrow;
  Span span;
} AstGroup;
typedef struct AstAxes { /* `[group; group]` */
  VEC(AstGroup) groups;
  Span span; /* brackets included */
} AstAxes;

typedef struct AstType { /* `[Batch, Seq] of Vocab`, `[Batch, Key] bool`, `[*, D]` */
  AstAxes *axes;
  AstName of;   /* of Vocab */
  AstName elem; /* f32, bool, i32, .. */
  Span span;
} AstType;

/* ---- expressions ---- */

typedef enum AstExprKind {
  EXPR_NUMBER, /* number */
  EXPR_STRING, /* string */
  EXPR_NAME,   /* name */
  EXPR_FIELD,  /* base . name */
  EXPR_LIST,   /* [args]; no argument has a name unless the user wrote one */
  EXPR_GATHER, /* name [index_dim = index] */
  EXPR_AXES,   /* name axes, without operands: right of |>, or as a value */
  EXPR_CALL,   /* name axes? (args) */
  EXPR_UNARY,  /* - right */
  EXPR_BINARY, /* left op right */
  EXPR_PIPE    /* left |> right; right is a NAME, FIELD, AXES or CALL if the user wrote it well */
} AstExprKind;

typedef enum AstOp {
  AST_OR,
  AST_AND,
  AST_LT,
  AST_LE,
  AST_GT,
  AST_GE,
  AST_EQ,
  AST_NE,
  AST_ADD,
  AST_SUB,
  AST_MUL,
  AST_DIV,
  AST_POW,
  AST_NEG
} AstOp;

typedef struct AstArg {
  AstName name; /* text NULL: by place */
  AstExpr *value;
  Span span;
} AstArg;
typedef VEC(AstArg) AstArgs;

struct AstExpr {
  AstExprKind kind;
  uint32_t depth;    /* of the tree below; limited by the parser, so that recursion is safe */
  AstOp op;          /* UNARY (AST_NEG), BINARY */
  Span span;         /* without parentheses around it, with those around its parts */
  Span op_span;      /* UNARY, BINARY, PIPE: the operator itself */
  AstNumber number;  /* NUMBER */
  Str string;        /* STRING, without quotes */
  AstName name;      /* NAME, FIELD (the part after the dot), GATHER, AXES, CALL */
  AstExpr *base;     /* FIELD */
  AstAxes *axes;     /* AXES, CALL (NULL if none) */
  AstArgs args;      /* CALL, LIST */
  AstName index_dim; /* GATHER */
  AstExpr *index;    /* GATHER */
  AstExpr *left;     /* BINARY, PIPE */
  AstExpr *right;    /* UNARY, BINARY, PIPE */
};

/* ---- statements of layers, models and function bodies ---- */

typedef struct AstAttr { /* @nodecay, @f32, @frozen */
  AstName name;
  AstArgs args;
  Span span;
} AstAttr;
typedef VEC(AstAttr) AstAttrs;

typedef struct AstOption { /* with init = normal(0.02); default of a fn's operand */
  AstName name;
  AstExpr *value; /* NULL: an operand of a fn without default */
  Span span;
} AstOption;
typedef VEC(AstOption) AstOptions;

typedef enum AstStmtKind {
  STMT_PARAM,  /* param name axes (~|=) value attrs */
  STMT_SUB,    /* sub name = of[0] axes? with attrs */
  STMT_STACK,  /* stack name axes of (of..) with attrs */
  STMT_INPUT,  /* input names type */
  STMT_OUTPUT, /* output names */
  STMT_ASSIGN, /* names = value attrs */
  STMT_RETURN, /* return value */
  STMT_LOSS,   /* loss value */
  STMT_AUX,    /* aux value */
  STMT_UPDATE, /* update name = value */
  STMT_PROJECT /* project name = value */
} AstStmtKind;

typedef VEC(AstAxes *) AstAxesList;

typedef struct AstUses { /* Block[Embed -> Mlp], Block */
  AstNames names;
  AstAxesList axes; /* of each; NULL: none */
} AstUses;

struct AstStmt {
  AstStmtKind kind;
  Span span;
  Span word;      /* the keyword, or the first name of an assignment */
  AstNames names; /* PARAM, SUB, STACK, UPDATE, PROJECT: one; INPUT, OUTPUT, ASSIGN: one or more */
  AstAxes *axes;  /* PARAM, STACK; SUB: NULL if none */
  bool random;    /* PARAM: initialised with ~ */
  AstExpr *value; /* PARAM, ASSIGN, RETURN, LOSS, AUX, UPDATE, PROJECT */
  AstAttrs attrs; /* PARAM, ASSIGN */
  AstNames of;    /* SUB: one; STACK: one or more */
  AstAxesList of_axes; /* STACK: axes of each, NULL: none */
  AstOptions with;     /* SUB, STACK */
  AstType *type;       /* INPUT */
};
typedef VEC(AstStmt *) AstStmts;

/* ---- settings blocks: `{ path [(expr)] values [-> values] [<- values [as axes]] [{...}] }` ----
 */

typedef enum AstValueKind {
  VALUE_NUMBER, /* number, the sign folded in */
  VALUE_STRING,
  VALUE_PATH, /* a word or path */
  VALUE_CALL, /* path(args -> to): next(tokens -> targets, doc = doc), columns(x = "a", y = "b") */
  VALUE_LIST, /* [items] */
  VALUE_OBJECT, /* [args]: [rope_type = "llama3", factor = 8] */
  VALUE_EXPR    /* (expression) */
} AstValueKind;

typedef struct AstPair { /* one word of a line: a value, or key = value */
  AstPath *key;          /* NULL: a bare value */
  AstValue *value;
  Span span;
} AstPair;
typedef VEC(AstPair) AstPairs;

struct AstValue {
  AstValueKind kind;
  Span span;
  AstNumber number;
  Str string;
  AstPath *path;         /* PATH, CALL */
  AstPairs args, to;     /* CALL, OBJECT; to: after the arrow */
  bool arrow;            /* CALL */
  VEC(AstValue *) items; /* LIST */
  AstExpr *expr;         /* EXPR */
};

typedef enum AstArrow { ARROW_NONE, ARROW_RIGHT, ARROW_LEFT } AstArrow;

typedef struct AstSetting {
  AstPath *path;  /* the word: zero, mesh, lr; in weights blocks the parameter's path */
  AstExpr *paren; /* (expr) right after the path, or NULL */
  AstPairs values;
  AstArrow arrow;
  Span arrow_span;
  AstPairs target; /* after the arrow */
  AstAxes *as;
  AstBlock *block; /* nested settings, or NULL */
  Span span;       /* the whole line, nested block included */
} AstSetting;

struct AstBlock {
  VEC(AstSetting *) settings;
  Span span; /* braces included */
};

/* ---- items of a file ---- */

typedef struct AstDim { /* A, B  |  A = value pad n  |  B like A */
  AstName name;
  AstExpr *value; /* NULL: open; `A, B = 3` makes two dims that share the expression */
  AstNumber *pad; /* NULL: none */
  AstName like;
  Span span; /* the whole declaration */
} AstDim;
typedef VEC(AstDim) AstDims;

typedef struct AstFormal { /* x: [Batch, Seq] of Vocab */
  AstName name;
  AstType *type;
  Span span;
} AstFormal;
typedef VEC(AstFormal) AstFormals;

typedef enum AstItemKind {
  ITEM_USE,     /* use "file" */
  ITEM_DIMS,    /* dims { .. } */
  ITEM_CONST,   /* const name = value */
  ITEM_FN,      /* fn name axes? (operands) body */
  ITEM_GRAD,    /* grad name (names) body */
  ITEM_LAYOUT,  /* layout name axes = value */
  ITEM_LAYER,   /* layer name axes? (formals) -> type with body */
  ITEM_MODEL,   /* model name body */
  ITEM_VARIANT, /* variant name of base { dims } */
  ITEM_TRAIN,   /* train|plan|machine|weights name for base? settings */
  ITEM_PLAN,
  ITEM_MACHINE,
  ITEM_WEIGHTS
} AstItemKind;

struct AstItem {
  AstItemKind kind;
  bool bad; /* a syntax error inside */
  Span span;
  Span word;           /* the keyword */
  AstName name;        /* all but USE and DIMS */
  AstName base;        /* VARIANT: of; settings blocks: for (text NULL if none) */
  Str file;            /* USE */
  Span file_span;      /* USE: the string, quotes included */
  AstDims dims;        /* DIMS, VARIANT */
  AstAxes *axes;       /* FN, LAYOUT, LAYER; NULL if none */
  AstOptions operands; /* FN: names with defaults; GRAD: names */
  AstFormals formals;  /* LAYER */
  AstType *result;     /* LAYER */
  AstOptions with;     /* LAYER */
  AstExpr *value;      /* CONST, LAYOUT; FN, GRAD with `= expr` */
  bool has_body;       /* FN, GRAD with a block; LAYER and MODEL always */
  AstStmts body;
  AstBlock *block; /* settings blocks */
};

typedef struct AstFile {
  Str name;
  uint32_t file; /* number of the source in the diagnostics */
  VEC(AstItem *) items;
  bool lost;      /* an item could not be read at all: what it declared is not known */
  bool lost_dims; /* the same of a dim */
} AstFile;

/* Parses one file. The text is copied. Mistakes are in c->diag (E01xx); the tree holds what could
   be read. NULL only if nothing could be. */
AstFile *ast_parse(Ctx *c, const char *name, const char *text, size_t n);

/* The place at the end of a text: which tokens may follow by the grammar, and what is around it. */
enum { MOST_EXPECTED = 64 };
typedef struct AstCursor {
  const char *expected[MOST_EXPECTED]; /* as the grammar names them: "a name", "with", "->" */
  int n;
  bool settings;      /* inside a settings block */
  bool fresh;         /* at the beginning of a line of a file or block */
  bool dims;          /* in a list of dims */
  const char *item;   /* the keyword of the item, or "" */
  const char *line;   /* the first word of the line, or "" */
  const char *before; /* the last token, or "" */
} AstCursor;
/* False: no token would fit, as in a line with a mistake, a comment or a string. */
bool ast_cursor(Ctx *c, const char *text, size_t n, AstCursor *out);

/* Value and unit of a number's text, such as 25MiB, 15%, 1e-4, 312TFLOPS. False: no such number or
   unit. `text` of the result is not set. */
bool ast_number_unit(const char *text, size_t n, AstNumber *out);

/* The standard library, embedded in the compiler. */
const char *std_shard_text(size_t *n);
/* The example files whose weights blocks are built in. */
const char *gpt2_shard_text(size_t *n);
const char *llama_shard_text(size_t *n);
const char *bert_shard_text(size_t *n);

const char *ast_op_name(AstOp op);           /* "+" .. */
const char *ast_item_word(AstItemKind kind); /* "layer" .. */
const char *ast_unit_name(AstUnit unit);     /* "bytes" .. for messages */
Span span_join(Span a, Span b);              /* from the start of a to the end of b */
const char *span_text(Ctx *c, Span s);       /* the source text, copied */

/* The tree as text for --emit=ast (ast_print.c): one node per line, indented; stable. */
void ast_print(Ctx *c, const AstFile *f, FILE *out);
/* The same without positions: equal for two files that say the same. */
void ast_print_plain(Ctx *c, const AstFile *f, FILE *out);

#endif

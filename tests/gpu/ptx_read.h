/* Declarations for reading PTX text: tokens, symbols in scopes, instructions before they are
 *decoded.
 *
 * Errors leave by read_error (one longjmp): callers hold nothing but the module's arena.
 *
 * Must not: live longer than one ptx_parse. */
#ifndef TESTS_GPU_PTX_READ_H
#define TESTS_GPU_PTX_READ_H
#include "ptx_inside.h"
#include <setjmp.h>

enum { MAX_PARTS = 16, MAX_VECTOR = 128, MAX_INLINE = 16 };

typedef enum TokenKind {
  T_END,
  T_WORD,
  T_INT,
  T_FLOAT32,
  T_FLOAT64,
  T_DECIMAL,
  T_STRING,
  T_MARK
} TokenKind;
typedef struct Token {
  TokenKind kind;
  const char *text;
  int n;
  uint64_t value; /* of numbers; bits of floats */
  int line;
} Token;

typedef enum SymbolKind {
  SYM_REG, /* one register, or `count` of them with a number after the name */
  SYM_LABEL,
  SYM_GLOBAL, /* value: device address; .const too */
  SYM_SHARED, /* value: shared address, or dynamic */
  SYM_LOCAL,  /* value: offset in the thread's local memory; .param of bodies too */
  SYM_PARAM   /* value: offset in the kernel's parameters */
} SymbolKind;
typedef struct Symbol {
  const char *name;
  SymbolKind kind;
  RegKind reg;
  int64_t count; /* registers of a range; -1: a single one */
  int32_t *slots;
  uint64_t value;
  int64_t bytes, align;
  bool dynamic, constant;
  struct Symbol *next;
} Symbol;
typedef struct Jump { /* a branch whose label is still to come */
  int op;
  const char *label;
  int line;
  struct Jump *next;
} Jump;
typedef struct Scope {
  Symbol *symbols;
  Jump *jumps;
  struct Scope *up;
} Scope;

typedef enum ArgKind {
  ARG_NONE,
  ARG_REG,
  ARG_INT,
  ARG_FLOAT,
  ARG_VECTOR,
  ARG_MEMORY,
  ARG_SYMBOL,
  ARG_SINK
} ArgKind;
typedef struct Arg {
  ArgKind kind;
  RegKind reg; /* of ARG_REG, and of the base of ARG_MEMORY (REG_NONE: no register) */
  int32_t slot;
  TokenKind number; /* how a float was written */
  uint64_t value;
  int64_t offset;
  const Symbol *symbol;
  bool negated;      /* !p */
  struct Arg *parts; /* of a vector; of memory: coordinates, [a, {x, y}] */
  int nparts;
} Arg;
typedef struct Ins {
  const char *opcode;
  const char *part[MAX_PARTS]; /* the opcode at its dots */
  int nparts;
  Arg args[MAX_ARGS];
  int nargs;
  Arg pair; /* second of `p|q` */
  int32_t guard;
  uint32_t flip;
  int line;
} Ins;

typedef struct Text { /* a function body before it is read */
  const char *name;
  const char *at;
  int line;
  bool entry, body;
  Symbol *results, *params; /* in order */
  uint32_t max[3], need[3];
  struct Text *next;
} Text;

typedef struct Constant {
  RegKind kind;
  uint64_t value;
  int32_t slot;
} Constant;

typedef struct Reader {
  PtxModule *m;
  const char *at; /* next character */
  int line;
  Token t; /* the token at hand */
  jmp_buf out;
  char *error;
  int error_bytes;
  Text *texts, *body; /* all functions; the one being read */
  Scope *scope;
  Function *f;
  int op_room;
  uint32_t loc;
  int32_t above, below; /* used bytes of the register file */
  int32_t pred_left, pred_at;
  Constant *constants;
  int nconstants, constant_room;
  Special *specials;
  int nspecials;
  int64_t shared, local;  /* used bytes */
  Symbol *modules_shared; /* variables of the module that this kernel uses */
  int depth;
  int *returns; /* jumps of inlined bodies to patch */
  int nreturns;
} Reader;

_Noreturn void read_error(Reader *r, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *get(Reader *r, size_t bytes);
char *text_of(Reader *r, const Token *t);
/* A larger array where `have` elements fill it; sizes double. */
void *grown(Reader *r, void *old, int have, size_t size);

/* lex.c */
void next_token(Reader *r);
bool is_mark(const Reader *r, char c);
bool is_word(const Reader *r, const char *word);
bool take_mark(Reader *r, char c);
bool take_word(Reader *r, const char *word);
void need_mark(Reader *r, char c);
const char *need_word(Reader *r);
int64_t need_int(Reader *r);

/* ptx_slots.c */
int reg_bytes(RegKind k);
RegKind type_kind(const char *type); /* REG_NONE: not a type of registers */
int type_bytes(const char *type);    /* 0: not a type */
int32_t new_slot(Reader *r, RegKind k);
int32_t constant(Reader *r, RegKind k, uint64_t value);
int32_t special(Reader *r, Which which, RegKind kind);
int32_t dynamic_shared(Reader *r, const Symbol *y, RegKind kind);
void constants_close(Reader *r);

/* ptx_body.c */
void read_body(Reader *r);
Symbol *find_symbol(Reader *r, const char *name);
Symbol *add_symbol(Reader *r, SymbolKind kind, const char *name);
Symbol *read_variable(Reader *r, const char *space);
void read_call(Reader *r, int32_t guard, uint32_t flip, int line);
void scope_open(Reader *r);
void scope_close(Reader *r, int line);
void read_arg(Reader *r, Arg *a);

/* decode.c */
void decode(Reader *r, const Ins *ins);
Op *emit(Reader *r, const Ins *ins);
int32_t source(Reader *r, const Ins *ins, int i, RegKind kind); /* an operand that is read */
int32_t result(Reader *r, const Ins *ins, int i, RegKind kind); /* one that is written */
int32_t source_arg(Reader *r, const Ins *ins, const Arg *a, RegKind kind);
int32_t result_arg(Reader *r, const Ins *ins, const Arg *a, RegKind kind);
bool has_part(const Ins *ins, const char *part);
void need_args(Reader *r, const Ins *ins, int low, int high);
void emit_lanes(Reader *r, const Ins *ins, const char *key, int32_t d, int32_t a, int32_t b,
                int32_t c);
void decode_lanes(Reader *r, const Ins *ins);
_Noreturn void unknown(Reader *r, const Ins *ins);

typedef void Decoder(Reader *r, const Ins *ins);
Decoder decode_bulk; /* ptx_bulk.c: cp.async.bulk */
#define OPCODE(NAME, FN) Decoder FN;
#include "ptx_ops.def"
#undef OPCODE
#endif

/* The body of a function: scopes, declarations, labels, guards, instructions, variables.
 *
 * Names live in scopes: a block in braces (inline assembly makes them) has registers and labels of
 * its own. A branch to a label still to come waits in its scope and moves outward when the scope
 * ends without that label.
 *
 * Must not: decode; that is ptx_decode.c and the decoders of ptx_ops.def. */
#include "ptx_read.h"
#include <stdlib.h>
#include <string.h>

enum { RANGE_LIMIT = 1 << 18 };

/* ---- scopes ---- */
void scope_open(Reader *r) {
  Scope *s = get(r, sizeof *s);
  s->up = r->scope, r->scope = s;
}

static Symbol *in_scope(const Scope *s, const char *name) {
  for (Symbol *y = s->symbols; y; y = y->next)
    if (y->count < 0 && !strcmp(y->name, name)) return y;
  return NULL;
}

/* %r12 of `%r<40>` */
static Symbol *in_ranges(const Scope *s, const char *name, int64_t *number) {
  for (Symbol *y = s->symbols; y; y = y->next) {
    size_t n = strlen(y->name);
    if (y->count < 0 || strncmp(y->name, name, n) ||
        strspn(name + n, "0123456789") != strlen(name + n))
      continue;
    if (!name[n] || strlen(name + n) > 9) continue;
    *number = atol(name + n);
    if (*number < y->count) return y;
  }
  return NULL;
}

Symbol *find_symbol(Reader *r, const char *name) {
  for (const Scope *s = r->scope; s; s = s->up) {
    Symbol *y = in_scope(s, name);
    if (y) return y;
  }
  return NULL;
}

Symbol *add_symbol(Reader *r, SymbolKind kind, const char *name) {
  if (in_scope(r->scope, name)) read_error(r, r->t.line, "`%s` is declared twice", name);
  Symbol *y = get(r, sizeof *y);
  y->kind = kind, y->name = name, y->count = -1;
  y->next = r->scope->symbols, r->scope->symbols = y;
  return y;
}

void scope_close(Reader *r, int line) {
  Scope *s = r->scope, *up = s->up;
  for (Jump *j = s->jumps, *next; j; j = next) {
    next = j->next;
    const Symbol *label = in_scope(s, j->label);
    if (label && label->kind == SYM_LABEL) r->f->ops[j->op].target = (uint32_t)label->value;
    else if (!up || !r->f || up->up == NULL) read_error(r, j->line, "no label `%s`", j->label);
    else j->next = up->jumps, up->jumps = j;
  }
  (void)line;
  r->scope = up;
}

/* ---- declarations ---- */
static void declare_reg(Reader *r, RegKind kind) {
  const char *name = need_word(r);
  if (take_mark(r, '<')) {
    int64_t n = need_int(r);
    if (n < 0 || n > RANGE_LIMIT) read_error(r, r->t.line, "`%s`: too many registers", name);
    need_mark(r, '>');
    Symbol *y = add_symbol(r, SYM_REG, name);
    y->count = n, y->reg = kind;
    y->slots = get(r, sizeof *y->slots * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) y->slots[i] = NO_SLOT;
    return;
  }
  Symbol *y = add_symbol(r, SYM_REG, name);
  y->reg = kind, y->slots = get(r, sizeof *y->slots), *y->slots = new_slot(r, kind);
}

static void read_regs(Reader *r) {
  const char *type = need_word(r);
  RegKind kind = type_kind(type + (*type == '.'));
  if (kind == REG_NONE) read_error(r, r->t.line, "registers of type `%s` are not known", type);
  do declare_reg(r, kind);
  while (take_mark(r, ','));
  need_mark(r, ';');
}

/* ---- variables ---- */
static void write_number(Reader *r, uint8_t *data, int64_t *at, int64_t limit, int width) {
  bool minus = take_mark(r, '-');
  uint64_t v = r->t.value;
  if (r->t.kind != T_INT && r->t.kind != T_FLOAT32 && r->t.kind != T_FLOAT64)
    read_error(r, r->t.line, "an initial value must be a number");
  if (minus) v = r->t.kind == T_FLOAT32 ? v ^ 0x80000000u : 0 - v;
  if (*at + width > limit) read_error(r, r->t.line, "too many initial values");
  memcpy(data + *at, &v, (size_t)width);
  *at += width;
  next_token(r);
}

static void read_values(Reader *r, uint8_t *data, int64_t *at, int64_t limit, int width,
                        int depth) {
  if (!take_mark(r, '{')) {
    write_number(r, data, at, limit, width);
    return;
  }
  if (depth > 8) read_error(r, r->t.line, "initial values nested too deeply");
  if (!is_mark(r, '}')) do
      read_values(r, data, at, limit, width, depth + 1);
    while (take_mark(r, ','));
  need_mark(r, '}');
}

static int64_t read_dims(Reader *r, int64_t width, bool *open) {
  int64_t n = width;
  *open = false;
  while (take_mark(r, '[')) {
    int64_t m = is_mark(r, ']') ? 0 : need_int(r);
    if (m < 0 || m > INT64_C(1) << 30 || n > INT64_C(1) << 30)
      read_error(r, r->t.line, "array too large");
    *open |= m == 0, n *= m;
    need_mark(r, ']');
  }
  if (n > INT64_C(1) << 30) read_error(r, r->t.line, "array too large");
  return n;
}

/* .global and .const have device addresses at once; their bytes without value are zero. */
static void place_global(Reader *r, Symbol *y, int width) {
  PtxDevice *d = r->m->device;
  uint64_t where = ptx_alloc(d, y->bytes ? y->bytes : 1);
  if (!where) read_error(r, r->t.line, "no device memory for `%s`", y->name);
  Variable *v = get(r, sizeof *v);
  *v = (Variable){y->name, where, y->bytes, r->m->variables};
  r->m->variables = v;
  uint8_t *data = get(r, (size_t)y->bytes + 8);
  int64_t at = 0;
  if (take_mark(r, '=')) read_values(r, data, &at, y->bytes, width, 0);
  ptx_write(d, where, data, y->bytes);
  y->value = where;
  if (y->constant) d->blocks[device_block(d, where)].constant = true;
}

static void place_inside(Reader *r, Symbol *y) {
  int64_t *used = y->kind == SYM_SHARED ? &r->shared : &r->local;
  *used = (*used + y->align - 1) & -y->align;
  y->value = (uint64_t)*used;
  *used += y->bytes;
  if (*used > INT64_C(1) << 24) read_error(r, r->t.line, "`%s`: too much memory", y->name);
}

/* After the word of the space: [.align n] .type name[dims] [= values] ; */
Symbol *read_variable(Reader *r, const char *space) {
  int64_t align = 0, width = 0;
  while (r->t.kind == T_WORD && *r->t.text == '.') {
    const char *word = need_word(r);
    if (!strcmp(word, ".align")) align = need_int(r);
    else if (type_bytes(word + 1)) width = type_bytes(word + 1);
    else read_error(r, r->t.line, "unknown `%s` of a variable", word);
  }
  bool open, shared = !strcmp(space, ".shared");
  bool global = !strcmp(space, ".global") || !strcmp(space, ".const");
  Symbol *y = add_symbol(r, global ? SYM_GLOBAL : shared ? SYM_SHARED : SYM_LOCAL, need_word(r));
  if (!width) read_error(r, r->t.line, "variable `%s` has no type", y->name);
  y->bytes = read_dims(r, width, &open), y->align = align ? align : width;
  if (y->align < 1 || y->align > 1 << 16 || (y->align & (y->align - 1)))
    read_error(r, r->t.line, "`%s`: bad alignment", y->name);
  y->constant = !strcmp(space, ".const"), y->dynamic = shared && open;
  if (global) place_global(r, y, (int)width);
  else if (!y->dynamic && r->f) place_inside(r, y);
  need_mark(r, ';');
  return y;
}

/* A .shared variable of the module gets its place in each kernel that names it. */
static const Symbol *here(Reader *r, Symbol *y) {
  if (y->kind != SYM_SHARED || y->dynamic || in_scope(r->scope, y->name)) return y;
  const Scope *outer = r->scope;
  while (outer->up) outer = outer->up;
  if (in_scope(outer, y->name) != y) return y;
  for (Symbol *s = r->modules_shared; s; s = s->next)
    if (!strcmp(s->name, y->name)) return s;
  Symbol *s = get(r, sizeof *s);
  *s = *y;
  s->next = r->modules_shared, r->modules_shared = s;
  place_inside(r, s);
  return s;
}

/* ---- operands ---- */
static const struct {
  const char *name;
  Which which;
} specials[] = {
    {"%tid.x", TID},           {"%tid.y", TID + 1},       {"%tid.z", TID + 2},
    {"%ntid.x", NTID},         {"%ntid.y", NTID + 1},     {"%ntid.z", NTID + 2},
    {"%ctaid.x", CTAID},       {"%ctaid.y", CTAID + 1},   {"%ctaid.z", CTAID + 2},
    {"%nctaid.x", NCTAID},     {"%nctaid.y", NCTAID + 1}, {"%nctaid.z", NCTAID + 2},
    {"%laneid", LANEID},       {"%warpid", WARPID},       {"%nwarpid", NWARPID},
    {"%lanemask_eq", MASK_EQ}, {"%lanemask_lt", MASK_LT}, {"%lanemask_le", MASK_LE},
    {"%lanemask_gt", MASK_GT}, {"%lanemask_ge", MASK_GE}, {"%smid", SMID},
    {"%nsmid", NSMID},         {"%gridid", GRIDID},       {"%dynamic_smem_size", DYNAMIC_SHARED},
};

static bool find_special(Reader *r, const char *name, Arg *a) {
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
    if (!strcmp(name, specials[i].name)) {
      a->kind = ARG_REG, a->reg = REG_32, a->slot = special(r, specials[i].which, REG_32);
      return true;
    }
  return false;
}

static void name_arg(Reader *r, const char *name, Arg *a) {
  if (!strcmp(name, "_")) {
    a->kind = ARG_SINK;
    return;
  }
  if (!strcmp(name, "WARP_SZ")) {
    a->kind = ARG_INT, a->value = LANES;
    return;
  }
  for (const Scope *s = r->scope; s; s = s->up) {
    int64_t i = 0;
    Symbol *y = in_scope(s, name);
    Symbol *range = y ? NULL : in_ranges(s, name, &i);
    if (range || (y && y->kind == SYM_REG)) {
      y = range ? range : y;
      if (y->slots[i] == NO_SLOT) y->slots[i] = new_slot(r, y->reg);
      a->kind = ARG_REG, a->reg = y->reg, a->slot = y->slots[i];
      return;
    }
    if (y) {
      a->kind = ARG_SYMBOL, a->symbol = here(r, y);
      return;
    }
  }
  if (!find_special(r, name, a))
    a->kind = ARG_SYMBOL, a->symbol = NULL, a->value = (uint64_t)(uintptr_t)name;
}

static void read_offset(Reader *r, Arg *a) {
  while (is_mark(r, '+') || is_mark(r, '-')) {
    bool minus = is_mark(r, '-');
    next_token(r);
    int64_t v = need_int(r);
    a->offset = (int64_t)((uint64_t)a->offset + (uint64_t)(minus ? -v : v));
  }
}

static void read_number(Reader *r, Arg *a) {
  bool minus = take_mark(r, '-');
  if (r->t.kind != T_INT && r->t.kind != T_FLOAT32 && r->t.kind != T_FLOAT64 &&
      r->t.kind != T_DECIMAL)
    read_error(r, r->t.line, "expected an operand");
  a->kind = r->t.kind == T_INT ? ARG_INT : ARG_FLOAT, a->number = r->t.kind, a->value = r->t.value;
  if (minus)
    a->value = r->t.kind == T_INT       ? 0 - a->value
               : r->t.kind == T_FLOAT32 ? a->value ^ 0x80000000u
                                        : a->value ^ UINT64_C(1) << 63;
  next_token(r);
}

static void read_vector(Reader *r, Arg *a) {
  a->kind = ARG_VECTOR;
  do {
    if (a->nparts == MAX_VECTOR) read_error(r, r->t.line, "too many elements in braces");
    a->parts = grown(r, a->parts, a->nparts, sizeof *a->parts);
    Arg *part = &a->parts[a->nparts++];
    if (is_mark(r, '{') || is_mark(r, '[')) read_error(r, r->t.line, "expected a register");
    read_arg(r, part);
  } while (take_mark(r, ','));
  need_mark(r, '}');
}

static void read_memory(Reader *r, Arg *a) {
  Arg base = {0};
  if (is_mark(r, '[') || is_mark(r, '{')) read_error(r, r->t.line, "expected an address");
  read_arg(r, &base);
  *a = base;
  a->kind = ARG_MEMORY, a->reg = base.kind == ARG_REG ? base.reg : REG_NONE;
  if (base.kind == ARG_INT) a->offset = (int64_t)base.value;
  else if (base.kind != ARG_REG && base.kind != ARG_SYMBOL)
    read_error(r, r->t.line, "expected an address");
  if (base.kind == ARG_SYMBOL && !base.symbol)
    read_error(r, r->t.line, "`%s` is not declared", (const char *)(uintptr_t)base.value);
  read_offset(r, a);
  if (take_mark(r, ',')) {
    Arg list = {0};
    need_mark(r, '{');
    read_vector(r, &list);
    a->parts = list.parts, a->nparts = list.nparts;
  }
  need_mark(r, ']');
}

void read_arg(Reader *r, Arg *a) {
  *a = (Arg){0};
  if (take_mark(r, '{')) read_vector(r, a);
  else if (take_mark(r, '[')) read_memory(r, a);
  else if (take_mark(r, '!')) read_arg(r, a), a->negated = true;
  else if (r->t.kind == T_WORD) {
    name_arg(r, need_word(r), a);
    if (a->kind == ARG_SYMBOL && a->symbol) read_offset(r, a);
  } else read_number(r, a);
}

/* ---- instructions ---- */
static void split_opcode(Reader *r, Ins *ins, const char *opcode) {
  char *s = get(r, strlen(opcode) + 1);
  ins->opcode = opcode;
  strcpy(s, opcode);
  while (s) {
    if (ins->nparts == MAX_PARTS)
      read_error(r, ins->line, "opcode `%s` has too many parts", opcode);
    ins->part[ins->nparts++] = s;
    s = strchr(s, '.');
    if (s) *s++ = 0;
  }
}

static void read_instruction(Reader *r, Ins *ins, const char *opcode) {
  split_opcode(r, ins, opcode);
  if (!strcmp(ins->part[0], "call")) {
    read_call(r, ins->guard, ins->flip, ins->line);
    return;
  }
  if (!is_mark(r, ';')) do {
      if (ins->nargs == MAX_ARGS) read_error(r, ins->line, "too many operands");
      read_arg(r, &ins->args[ins->nargs++]);
      if (ins->nargs == 1 && take_mark(r, '|')) read_arg(r, &ins->pair);
    } while (take_mark(r, ','));
  need_mark(r, ';');
  decode(r, ins);
}

static void read_guard(Reader *r, Ins *ins) {
  Arg p;
  bool negated = take_mark(r, '!');
  if (r->t.kind != T_WORD) read_error(r, r->t.line, "expected a predicate");
  read_arg(r, &p);
  if (p.kind != ARG_REG || p.reg != REG_PRED)
    read_error(r, r->t.line, "the guard is not a predicate");
  ins->guard = p.slot, ins->flip = negated ? ALL_LANES : 0;
}

static void read_loc(Reader *r) {
  int line = r->t.line;
  need_int(r);
  r->loc = (uint32_t)need_int(r);
  need_int(r);
  while (take_mark(r, ',')) /* function_name label, inlined_at file line column */
    while (!is_mark(r, ',') && r->t.kind != T_END && r->t.line == line) next_token(r);
}

static void skip_statement(Reader *r) {
  while (r->t.kind != T_END && !is_mark(r, ';')) next_token(r);
  need_mark(r, ';');
}

static void read_word(Reader *r, Ins *ins) {
  if (take_word(r, ".reg")) read_regs(r);
  else if (is_word(r, ".local") || is_word(r, ".shared") || is_word(r, ".param")) {
    const char *space = need_word(r);
    read_variable(r, space);
  } else if (take_word(r, ".loc")) read_loc(r);
  else if (take_word(r, ".pragma")) skip_statement(r);
  else {
    const char *word = need_word(r);
    if (*word == '.') read_error(r, ins->line, "unknown directive `%s`", word);
    if (!take_mark(r, ':')) read_instruction(r, ins, word);
    else add_symbol(r, SYM_LABEL, word)->value = (uint64_t)r->f->nops;
  }
}

/* Between braces; the opening one is the token at hand. */
void read_body(Reader *r) {
  int start = r->t.line;
  if (++r->depth > 64) read_error(r, start, "blocks or calls nested too deeply");
  need_mark(r, '{');
  scope_open(r);
  while (!is_mark(r, '}')) {
    Ins ins = {.line = r->t.line, .guard = NO_SLOT};
    if (r->t.kind == T_END) read_error(r, start, "`{` without its `}`");
    if (is_mark(r, '{')) read_body(r);
    else if (take_mark(r, ';')) continue;
    else if (r->t.kind == T_WORD) read_word(r, &ins);
    else if (take_mark(r, '@')) {
      read_guard(r, &ins);
      read_instruction(r, &ins, need_word(r));
    } else read_error(r, r->t.line, "expected an instruction");
  }
  need_mark(r, '}');
  scope_close(r, start);
  r->depth--;
}

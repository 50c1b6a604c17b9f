/* From an instruction's text to its decoded form: operands to registers, opcode to function.
 *
 * An opcode with a row in ptx_ops.def has a decoder; any other one is looked up in the tables of
 * lane-wise instructions under its whole spelling (`.rn`, the default of arithmetic, left out).
 * Kinds of registers must be those of the instruction.
 *
 * Must not: guess. An opcode without a row is an error that names opcode and line. */
#include "ptx_read.h"
#include "ptx_lanes.h"
#include <stdio.h>

_Noreturn void unknown(Reader *r, const Ins *ins) {
  read_error(r, ins->line, "instruction `%s` is not known to this machine", ins->opcode);
}

bool has_part(const Ins *ins, const char *part) {
  for (int i = 1; i < ins->nparts; i++)
    if (!strcmp(ins->part[i], part)) return true;
  return false;
}

void need_args(Reader *r, const Ins *ins, int low, int high) {
  if (ins->nargs < low || ins->nargs > high)
    read_error(r, ins->line, "`%s` has %d operands here", ins->opcode, ins->nargs);
}

Op *emit(Reader *r, const Ins *ins) {
  Function *f = r->f;
  if (f->nops > 4000000) read_error(r, ins->line, "too many instructions");
  f->ops = grown(r, f->ops, f->nops, sizeof *f->ops);
  Op *op = &f->ops[f->nops++];
  *op = (Op){.guard = ins->guard, .flip = ins->flip, .line = (uint32_t)ins->line, .loc = r->loc};
  op->kind = REG_NONE;
  op->d = op->a = op->b = op->c = op->e = NO_SLOT;
  return op;
}

/* ---- operands ---- */
static const char *kind_name(RegKind k) {
  static const char *const names[] = {"a predicate", "16 bits", "32 bits", "64 bits", "nothing"};
  return names[k];
}

static int32_t source_symbol(Reader *r, const Ins *ins, const Arg *a, RegKind kind) {
  const Symbol *y = a->symbol;
  if (!y) read_error(r, ins->line, "`%s` is not declared", (const char *)(uintptr_t)a->value);
  if (kind != REG_32 && kind != REG_64) read_error(r, ins->line, "an address has 32 or 64 bits");
  if (!y->dynamic) return constant(r, kind, y->value + (uint64_t)a->offset);
  if (a->offset) read_error(r, ins->line, "an offset on `%s` needs brackets", y->name);
  return dynamic_shared(r, y, kind);
}

static uint64_t float_bits(Reader *r, const Ins *ins, const Arg *a, RegKind kind) {
  double d;
  memcpy(&d, &a->value, 8);
  if (a->number == T_FLOAT32 && kind == REG_32) return a->value;
  if (a->number != T_FLOAT32 && kind == REG_64) return a->value;
  if (a->number == T_DECIMAL && kind == REG_32) return bits_of((float)d);
  read_error(r, ins->line, "a float of another size than `%s` takes", ins->opcode);
}

int32_t source_arg(Reader *r, const Ins *ins, const Arg *a, RegKind kind) {
  switch (a->kind) {
  case ARG_REG:
    if (a->reg == kind) return a->slot;
    read_error(r, ins->line, "`%s` takes %s here, the register has %s", ins->opcode,
               kind_name(kind), kind_name(a->reg));
  case ARG_INT: return constant(r, kind, a->value);
  case ARG_FLOAT: return constant(r, kind, float_bits(r, ins, a, kind));
  case ARG_SYMBOL: return source_symbol(r, ins, a, kind);
  default: read_error(r, ins->line, "`%s` cannot take this operand", ins->opcode);
  }
}

int32_t source(Reader *r, const Ins *ins, int i, RegKind kind) {
  if (i >= ins->nargs) read_error(r, ins->line, "`%s` needs more operands", ins->opcode);
  return source_arg(r, ins, &ins->args[i], kind);
}

int32_t result_arg(Reader *r, const Ins *ins, const Arg *a, RegKind kind) {
  if (a->kind == ARG_SINK) return new_slot(r, kind);
  if (a->kind != ARG_REG || a->slot < 0)
    read_error(r, ins->line, "`%s` needs a register for its result", ins->opcode);
  if (a->reg != kind)
    read_error(r, ins->line, "`%s` gives %s, the register has %s", ins->opcode, kind_name(kind),
               kind_name(a->reg));
  return a->slot;
}

int32_t result(Reader *r, const Ins *ins, int i, RegKind kind) {
  if (i >= ins->nargs) read_error(r, ins->line, "`%s` needs more operands", ins->opcode);
  return result_arg(r, ins, &ins->args[i], kind);
}

/* ---- lane-wise instructions ---- */
static const LaneRow *const tables[] = {int_rows,    pred_rows, compare_rows, float_rows,
                                        double_rows, half_rows, round_rows,   convert_rows};

static const LaneRow *find_row(const char *key) {
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const LaneRow *row = tables[t]; row->key; row++)
      if (!strcmp(row->key, key)) return row;
  return NULL;
}

static void join_parts(const Ins *ins, bool drop_nearest, char out[64]) {
  size_t n = 0;
  for (int i = 0; i < ins->nparts; i++) {
    if (drop_nearest && i && !strcmp(ins->part[i], "rn")) continue;
    int wrote = snprintf(out + n, 64 - n, "%s%s", i ? "_" : "", ins->part[i]);
    n = n + (size_t)wrote < 63 ? n + (size_t)wrote : 63;
  }
}

void decode_lanes(Reader *r, const Ins *ins) {
  char key[64];
  join_parts(ins, true, key);
  const LaneRow *row = find_row(key);
  if (!row || ins->pair.kind != ARG_NONE) unknown(r, ins);
  need_args(r, ins, row->args + 1, row->args + 1);
  int32_t in[4] = {NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT};
  for (int i = 0; i < row->args; i++) {
    if (ins->args[i + 1].negated) read_error(r, ins->line, "`%s` takes no `!`", ins->opcode);
    in[i] = source(r, ins, i + 1, row->kinds[i + 1]);
  }
  int32_t d = result(r, ins, 0, row->kinds[0]);
  Op *op = emit(r, ins);
  op->lanes = row->run, op->kind = row->kinds[0];
  op->d = d, op->a = in[0], op->b = in[1], op->c = in[2], op->e = in[3];
}

/* A lane-wise instruction that a decoder makes itself; unused operands are NO_SLOT. */
void emit_lanes(Reader *r, const Ins *ins, const char *key, int32_t d, int32_t a, int32_t b,
                int32_t c) {
  const LaneRow *row = find_row(key);
  if (!row) unknown(r, ins);
  Op *op = emit(r, ins);
  op->lanes = row->run, op->kind = row->kinds[0];
  op->d = d, op->a = a, op->b = b, op->c = c;
}

/* ---- all ---- */
void decode(Reader *r, const Ins *ins) {
  static const struct {
    const char *name;
    Decoder *decode;
  } rows[] = {
#define OPCODE(NAME, FN) {NAME, FN},
#include "ptx_ops.def"
#undef OPCODE
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(ins->part[0], rows[i].name)) {
      rows[i].decode(r, ins);
      return;
    }
  decode_lanes(r, ins);
}

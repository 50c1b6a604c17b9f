/* Decoders of jumps, ends and instructions that have no effect on this machine.
 *
 * Fences order accesses that this machine runs in order anyway; the race check does not count them.
 *
 * Must not: accept indirect branches. */
#include "ptx_read.h"
#include <string.h>

/* bra{.uni} label */
void decode_bra(Reader *r, const Ins *ins) {
  need_args(r, ins, 1, 1);
  const Arg *a = &ins->args[0];
  if (a->kind != ARG_SYMBOL) read_error(r, ins->line, "a branch needs a label");
  if (a->symbol && a->symbol->kind != SYM_LABEL)
    read_error(r, ins->line, "`%s` is no label", a->symbol->name);
  Op *op = emit(r, ins);
  op->step = step_jump;
  if (a->symbol) {
    op->target = (uint32_t)a->symbol->value;
    return;
  }
  Jump *j = get(r, sizeof *j);
  *j = (Jump){r->f->nops - 1, (const char *)(uintptr_t)a->value, ins->line, r->scope->jumps};
  r->scope->jumps = j;
}

/* exit, and ret of a kernel; ret of a called function jumps to the end of its body */
void decode_exit(Reader *r, const Ins *ins) {
  need_args(r, ins, 0, 0);
  Op *op = emit(r, ins);
  if (r->body->entry || !strcmp(ins->part[0], "exit")) {
    op->step = step_exit;
    return;
  }
  op->step = step_jump;
  r->returns = grown(r, r->returns, r->nreturns, sizeof *r->returns);
  r->returns[r->nreturns++] = r->f->nops - 1;
}

void decode_trap(Reader *r, const Ins *ins) {
  need_args(r, ins, 0, 0);
  emit(r, ins)->step = step_trap;
}

void decode_nothing(Reader *r, const Ins *ins) { (void)r, (void)ins; }

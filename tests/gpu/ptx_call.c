/* Calls: the body of the function is read again at the place of the call.
 *
 * Parameters of a function are bytes in the thread's local memory: the caller's `.param` variables
 * are known inside under the names of the function's parameters. `ret` inside becomes a jump to the
 * end of the body. So no call stack exists, and lanes that went apart come together as anywhere
 * else. Recursion and calls through registers are refused.
 *
 * Must not: let an inlined body see the caller's names. */
#include "ptx_read.h"
#include <string.h>

typedef struct Passed {
  const Symbol *symbols[MAX_ARGS];
  int n;
} Passed;

static void read_passed(Reader *r, Passed *p) {
  need_mark(r, '(');
  if (!is_mark(r, ')')) do {
      const char *name = need_word(r);
      const Symbol *y = find_symbol(r, name);
      if (!y || y->kind != SYM_LOCAL)
        read_error(r, r->t.line, "`%s` is no .param variable: others cannot be passed", name);
      if (p->n == MAX_ARGS) read_error(r, r->t.line, "too many parameters");
      p->symbols[p->n++] = y;
    } while (take_mark(r, ','));
  need_mark(r, ')');
}

static void bind(Reader *r, const char *function, const Symbol *formals, const Passed *p,
                 int line) {
  int i = 0;
  for (const Symbol *s = formals; s; s = s->next, i++) {
    if (i >= p->n) read_error(r, line, "call of `%s`: too few parameters", function);
    if (p->symbols[i]->bytes < s->bytes)
      read_error(r, line, "call of `%s`: parameter %d is too small", function, i + 1);
    Symbol *y = add_symbol(r, SYM_LOCAL, s->name);
    y->value = p->symbols[i]->value, y->bytes = s->bytes;
  }
  if (i != p->n) read_error(r, line, "call of `%s`: too many parameters", function);
}

static Text *find_text(Reader *r, const char *name, int line) {
  for (Text *x = r->texts; x; x = x->next)
    if (x->body && !x->entry && !strcmp(x->name, name)) return x;
  read_error(r, line, "call of `%s`, which this text does not define", name);
}

static void call_body(Reader *r, Text *x, const Passed *results, const Passed *params, int line) {
  Reader kept = *r;
  Scope *outer = r->scope;
  while (outer->up) outer = outer->up;
  r->scope = outer;
  scope_open(r);
  bind(r, x->name, x->results, results, line);
  bind(r, x->name, x->params, params, line);
  r->returns = NULL, r->nreturns = 0, r->body = x;
  r->at = x->at, r->line = x->line;
  next_token(r);
  read_body(r);
  scope_close(r, line);
  for (int i = 0; i < r->nreturns; i++) r->f->ops[r->returns[i]].target = (uint32_t)r->f->nops;
  r->scope = kept.scope, r->returns = kept.returns, r->nreturns = kept.nreturns;
  r->body = kept.body, r->at = kept.at, r->line = kept.line, r->t = kept.t, r->loc = kept.loc;
}

/* After the opcode: [(results),] name [, (parameters)] ; */
void read_call(Reader *r, int32_t guard, uint32_t flip, int line) {
  Passed results = {0}, params = {0};
  if (is_mark(r, '(')) {
    read_passed(r, &results);
    need_mark(r, ',');
  }
  const char *name = need_word(r);
  if (take_mark(r, ',') && is_mark(r, '(')) read_passed(r, &params);
  if (!is_mark(r, ';')) read_error(r, line, "only direct calls are known");
  need_mark(r, ';');
  Text *x = find_text(r, name, line);
  int skip = -1;
  if (guard != NO_SLOT) { /* lanes without the guard jump over it */
    Ins ins = {.opcode = "bra", .nparts = 1, .guard = guard, .flip = ~flip, .line = line};
    ins.part[0] = "bra";
    ins.args[0] = (Arg){.kind = ARG_SYMBOL, .value = (uint64_t)(uintptr_t) "behind the call"};
    ins.nargs = 1;
    decode_bra(r, &ins);
    r->scope->jumps = r->scope->jumps->next;
    skip = r->f->nops - 1;
  }
  call_body(r, x, &results, &params, line);
  if (skip >= 0) r->f->ops[skip].target = (uint32_t)r->f->nops;
}

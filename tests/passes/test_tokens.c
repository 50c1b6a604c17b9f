/* Tokens of pass `streams`: test_tokens DUMP.. [-- DUMP..] of modules after that pass. They hold
   in lists of events that have every round of every loop, of which the pass has seen only
   those that show all; and pass `prove` refuses each program in which one token is left out.
   In the dumps after `--`, the interpreter finds each of them, in two runs of every entry: an
   operation touches bytes of another stream without waiting for it. */
#include "ir/interp/interp_ranks.h"
#include "ir/schedule/stream_order.h"
#include "passes/machine/prove.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const AttrKey keys[] = {ATTR_after_down, ATTR_after_host, ATTR_after_up, ATTR_arrived};
enum { KEYS = 4 };

static char *contents(const char *path, size_t *n) {
  FILE *file = fopen(path, "rb");
  char *text = malloc(1 << 24);
  if (!file || !text) exit(2);
  *n = fread(text, 1, 1 << 24, file);
  fclose(file);
  return text;
}

static Module *module_of(Ctx *c, const char *text, size_t n) {
  Module *m = ir_parse(c, "dump", text, n);
  if (!m) printf("a dump that cannot be read\n"), exit(1);
  return m;
}

static bool holds(const Module *m, const StreamOrder *order) {
  StreamClocks clocks = {.arena = m->arena};
  for (uint32_t i = 0; i < order->at.n; i++) {
    StreamTokens tokens = op_tokens(event_op(order->at.at[i].event));
    clocks_wait(&clocks, &order->at.at[i], &tokens);
    if (clocks_need(&clocks, &order->at.at[i]).missing) return false;
    clocks_issue(&clocks, &order->at.at[i]);
  }
  return true;
}

static void all_rounds(const char *path, const char *text, size_t n) {
  Ctx *c = ctx_new();
  Module *m = module_of(c, text, n);
  StreamOrders orders = stream_orders(m, true);
  for (uint32_t i = 0; i < orders.n; i++)
    if (!holds(m, &orders.at[i]))
      printf("%s: entry %s, with all rounds\n", path, orders.at[i].entry->name), exit(1);
  ctx_free(c);
}

/* Leaves out token `number`; false: there are fewer tokens. */
static bool leave_out(Module *m, int number) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      for (int j = 0; j < KEYS; j++) {
        Op *o = &m->fns.at[i]->ops.at[k];
        if (!attr_get(&o->attrs, keys[j]) || number--) continue;
        op_drop_attr(o, keys[j]);
        return true;
      }
  return false;
}

/* The fault that the interpreter reports; NULL: none. */
static const char *fault_of(Module *m) {
  Ranks *ranks = ranks_new(m, m->arena);
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (int run = 0; m->fns.at[i]->kind == FN_ENTRY && run < 2; run++)
      if (!ranks_run_placed(ranks, m->fns.at[i]->name)) return ranks_error(ranks);
  return NULL;
}

static int each_left_out(const char *path, const char *text, size_t n, bool runs) {
  for (int number = 0;; number++) {
    Ctx *c = ctx_new();
    Module *m = module_of(c, text, n);
    if (!leave_out(m, number)) {
      ctx_free(c);
      return number;
    }
    if (prove_streams(m)) printf("%s: token %d is left out\n", path, number), exit(1);
    const char *fault = runs ? fault_of(m) : "without waiting";
    if (!fault || !strstr(fault, "without waiting"))
      printf("%s: without token %d: %s\n", path, number, fault ? fault : "nothing"), exit(1);
    ctx_free(c);
  }
}

static void runs_well(const char *path, const char *text, size_t n) {
  Ctx *c = ctx_new();
  const char *fault = fault_of(module_of(c, text, n));
  if (fault) printf("%s: %s\n", path, fault), exit(1);
  ctx_free(c);
}

int main(int argc, char **argv) {
  int tokens = 0;
  bool runs = false;
  for (int i = 1; i < argc; i++) {
    size_t n;
    if (!strcmp(argv[i], "--")) {
      runs = true;
      continue;
    }
    char *text = contents(argv[i], &n);
    all_rounds(argv[i], text, n);
    if (runs) runs_well(argv[i], text, n);
    tokens += each_left_out(argv[i], text, n, runs);
    free(text);
  }
  printf("%d tokens of %d programs, none can be left out\n", tokens, argc - 1 - runs);
  return tokens ? 0 : 1;
}

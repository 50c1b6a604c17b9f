/* The runner of the pass table: checks what each pass needs, times it, verifies after it, dumps
   after it.

   It starts after the pass named by m->after, so a module read from a dump goes on where it was
   written. Facts are replayed from the masks of the passes before that point. A broken mask or a
   module that no longer verifies after a pass is a mistake of the compiler; a diagnostic is a
   mistake of the user: both stop the run. */
#include "passes/internal.h"
#include <errno.h>
#include <string.h>
#include <time.h>

static const Pass passes[] = {
#define PASS(name, run, needs, makes, breaks, help) {#name, run, needs, makes, breaks, help},
#include "passes/passes.def"
#undef PASS
};

enum { PASSES = sizeof passes / sizeof *passes };

const Pass *pass_table(uint32_t *n) { return *n = PASSES, passes; }

const Pass *pass_find(const char *name) {
  for (uint32_t i = 0; i < PASSES; i++)
    if (!strcmp(passes[i].name, name)) return &passes[i];
  return NULL;
}

static unsigned facts_after(unsigned facts, const Pass *p) {
  return p->run ? (facts & ~p->breaks) | p->makes : facts;
}

/* Number of passes up to this one, it included. */
static uint32_t end_of(const char *until) {
  const Pass *p = until ? pass_find(until) : NULL;
  return p ? (uint32_t)(p - passes) + 1 : PASSES;
}

/* Index of the first pass to run. */
static uint32_t start(const Module *m, unsigned *facts) {
  *facts = 0;
  if (!strcmp(m->after, "lower")) return 0;
  for (uint32_t i = 0; i < PASSES; i++) {
    *facts = facts_after(*facts, &passes[i]);
    if (!strcmp(passes[i].name, m->after)) return i + 1;
  }
  return PASSES + 1;
}

static void dump(Module *m, const PipelineOptions *o, uint32_t number, const char *name) {
  if (!o->dump_dir) return;
  size_t n;
  const char *text = ir_print(m, &n);
  const char *path = arena_printf(m->arena, "%s/%02u-%s.ir", o->dump_dir, number, name);
  FILE *f = fopen(path, "w");
  bool ok = f && fwrite(text, 1, n, f) == n;
  if (f && fclose(f)) ok = false;
  if (!ok)
    diag_at(m->ctx->diag, "E1201", (Span){0}, "cannot write `%s`: %s", path, strerror(errno));
}

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void run_pass(Module *m, const Pass *p, unsigned facts, const PipelineOptions *o) {
  if (p->needs & ~facts)
    bug("pass %s needs facts %#x that do not hold", p->name, p->needs & ~facts);
  double begin = milliseconds();
  p->run(m);
  m->after = intern(m->ctx->names, p->name);
  if (o->timings) fprintf(stderr, "%-10s %8.2f ms\n", p->name, milliseconds() - begin);
}

bool pipeline_run(Module *m, const PipelineOptions *o) {
  unsigned facts;
  uint32_t first = start(m, &facts), end = end_of(o->until);
  if (first > PASSES)
    diag_at(m->ctx->diag, "E1202", (Span){0}, "no pass is called `%s` (`after` line)", m->after);
  else if (!first) dump(m, o, 0, "lower");
  for (uint32_t i = first; i < end && !diag_errors(m->ctx->diag); i++) {
    const Pass *p = &passes[i];
    if (!p->run) continue;
    run_pass(m, p, facts, o);
    facts = facts_after(facts, p);
    if (diag_errors(m->ctx->diag)) break;
    dump(m, o, i + 1, p->name);
    if (o->verify && !ir_verify(m)) break;
  }
  return diag_errors(m->ctx->diag) == 0;
}

/* Compiled kernels on a team's threads, which take chunks as the pool does; see team.h. Must not:
   be needed by programs that run without the compiler. */
#include "loops.h"
#include "team.h"
#include "codegen/codegen.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const Target *team_target(void) {
  const char *name = getenv("BENCH_TARGET");
  const Target *t = target_find(name ? name : "native");
  if (!t || !target_runs_here(t)) team_fail("BENCH_TARGET is a target that runs on this processor");
  return t;
}

TeamLoop *loop_of(Elem e) {
  const Target *here = team_target();
  if (e != ELEM_bf16 || !(here->facts.amx || here->facts.bf16_dot_fast)) return loop_wide;
  return here->facts.amx ? loop_matrix : loop_narrow;
}

typedef struct Job { /* one phase */
  Team *team;
  Chunk *run;
  void *const *buffers;
  int64_t chunks;
  atomic_long next[TEAM_MOST];
} Job;

static void take_chunks(void *context, int number) { /* its own share, then the others' */
  Job *j = context;
  int threads = team_threads(j->team);
  for (int k = 0; k < threads; k++) {
    int share = (number + k) % threads;
    int64_t end = (share + 1) * j->chunks / threads;
    for (int64_t i; (i = atomic_fetch_add(&j->next[share], 1)) < end;)
      j->run(j->buffers, i, team_scratches(j->team)[number]);
  }
}

double team_kernel(Team *t, const Code *code, void *const *buffers) {
  double seconds = 0;
  int threads = team_threads(t);
  for (int p = 0; p < code->phases; p++) {
    Job j = {t, code->run[p], buffers, code->chunks[p], {0}};
    for (int i = 0; i < threads; i++) atomic_store(&j.next[i], i * j.chunks / threads);
    seconds += team_run(t, take_chunks, &j);
  }
  return seconds;
}

int64_t team_scratch(Team *t, const Fn *const *kernels, int n) {
  int64_t scratch = 64, workspace = 64;
  char **own = team_scratches(t);
  for (int i = 0; i < n; i++) {
    int64_t own = attr_int(&kernels[i]->attrs, ATTR_scratch, 0);
    int64_t shared = attr_int(&kernels[i]->attrs, ATTR_workspace, 0);
    scratch = own > scratch ? own : scratch, workspace = shared > workspace ? shared : workspace;
  }
  for (int i = 0; i < team_threads(t); i++) free(own[i]), own[i] = bench_memory(scratch, ELEM_f32);
  return workspace;
}

Code code_find(Module *m, const Fn *k, void *library) {
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks);
  Code c = {.phases = (int)chunks->i};
  memcpy(c.chunks, chunks->list, sizeof *chunks->list * (size_t)chunks->i);
  for (int p = 0; p < c.phases; p++) {
    const char *symbol = arena_printf(m->arena, "%s_p%d", kernel_symbol(m, k), p);
    *(void **)&c.run[p] = library ? dlsym(library, symbol) : NULL;
    if (!c.run[p]) team_fail(symbol);
  }
  return c;
}

/* Reading mapped files that may fail under the reader: one that became shorter, or a disk that does
   not answer, is a SIGBUS at the touch of a page. While a MapGuard stands, this thread comes back
   from there with the address. The guard lies at the bottom of the alternate signal stack, where
   the handler finds it: no global. Must not: allocate. */
#include "file.h"
#include <setjmp.h>
#include <signal.h>

struct MapGuard {
  sigjmp_buf back;
  const void *volatile lost;
  struct sigaction before;
  stack_t stack_before;
};

enum { STACK_BYTES = 1 << 16 };

MapGuard *rt_map_guard(void) { return rt_alloc(STACK_BYTES); }

static void on_bus(int number, siginfo_t *info, void *context) {
  stack_t s;
  (void)context;
  if (sigaltstack(NULL, &s) || !(s.ss_flags & SS_ONSTACK)) { /* another thread's */
    signal(number, SIG_DFL);
    return; /* it comes again */
  }
  MapGuard *g = s.ss_sp;
  g->lost = info->si_addr;
  siglongjmp(g->back, 1);
}

static void stand(MapGuard *g) {
  struct sigaction s = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  g->lost = NULL;
  sigaltstack(&(stack_t){.ss_sp = g, .ss_size = STACK_BYTES}, &g->stack_before);
  sigaction(SIGBUS, &s, &g->before);
}

static void stand_down(MapGuard *g) {
  sigaction(SIGBUS, &g->before, NULL);
  sigaltstack(&g->stack_before, NULL);
}

bool rt_map_read(MapGuard *g, bool (*read)(void *), void *argument, const void **lost) {
  volatile bool ok = false;
  stand(g);
  if (!sigsetjmp(g->back, 0)) ok = read(argument);
  stand_down(g);
  *lost = g->lost;
  return ok && !g->lost;
}

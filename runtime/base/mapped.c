/* Reading mapped files that may fail under the reader: one that became shorter, or a disk that does
   not answer, is a SIGBUS at the touch of a page. While a MapGuard is active, the signal handler
   returns this thread to the guard with the address. The guard is stored at the bottom of the
   alternate signal stack, where the handler finds it without a global. Must not: allocate. */
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
  MapGuard *guard = s.ss_sp;
  guard->lost = info->si_addr;
  siglongjmp(guard->back, 1);
}

static void stand(MapGuard *guard) {
  struct sigaction s = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  guard->lost = NULL;
  sigaltstack(&(stack_t){.ss_sp = guard, .ss_size = STACK_BYTES}, &guard->stack_before);
  sigaction(SIGBUS, &s, &guard->before);
}

static void stand_down(MapGuard *guard) {
  sigaction(SIGBUS, &guard->before, NULL);
  sigaltstack(&guard->stack_before, NULL);
}

bool rt_map_read(MapGuard *guard, bool (*read)(void *), void *argument, const void **lost) {
  volatile bool ok = false;
  stand(guard);
  if (!sigsetjmp(guard->back, 0)) ok = read(argument);
  stand_down(guard);
  *lost = guard->lost;
  return ok && !guard->lost;
}

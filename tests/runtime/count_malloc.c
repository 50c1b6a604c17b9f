/* Linked before libc: counts allocations, so that the runtime can check that a step makes none. */
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
size_t rt_allocations(void);

static atomic_size_t calls;

size_t rt_allocations(void) { return atomic_load(&calls); }

void *malloc(size_t n) {
  atomic_fetch_add(&calls, 1);
  return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
  atomic_fetch_add(&calls, 1);
  return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
  atomic_fetch_add(&calls, 1);
  return __libc_realloc(p, n);
}

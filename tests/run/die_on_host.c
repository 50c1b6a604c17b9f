/* Preloaded into an executable of a plan with `offload`: it kills itself, as kill -9 would, in the
   middle of a copy from or to the host's memory, or of an update on the host. The instant follows
   from a count and from no clock. DIE_AT=copy:N is half way through the Nth copy with an end in an
   arena of the host; DIE_AT=update:N:P has the page that is P thousandths into the host's states
   out of bounds from the end of the Nth copy on, so the next access to it is killed: kernels of the
   update, or the code that saves. DIE_ARENAS has the bytes of the host's arenas, of states first,
   by which their mappings are known. DIE_RANK names the rank (default: all); DIE_NOTE is a file for
   the number of copies: at the death, or at the end. Must not: be linked into anything. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARENAS = 8, PAGE = 4096 };
typedef struct Range {
  uintptr_t at;
  size_t bytes;
} Range;
static Range arena[ARENAS]; /* where the mapping of the same place in DIE_ARENAS is */
static long copies;

static bool is_victim(void) {
  const char *who = getenv("DIE_RANK"), *me = getenv("RANK");
  return !who || (me && !strcmp(who, me));
}

static void note(void) {
  char words[32];
  FILE *f = getenv("DIE_NOTE") && is_victim() && copies ? fopen(getenv("DIE_NOTE"), "w") : NULL;
  snprintf(words, sizeof words, "%ld\n", copies);
  if (f) fputs(words, f), fclose(f);
}

static void die(int number) {
  (void)number;
  note();
  kill(getpid(), SIGKILL);
}

/* A mapping of one of the arenas: as long as this one, or a guard page longer. */
static void remember(uintptr_t at, size_t bytes) {
  const char *text = getenv("DIE_ARENAS");
  for (int i = 0; text && i < ARENAS && *text; i++) {
    char *end;
    size_t wanted = strtoull(text, &end, 10), pages = (wanted + PAGE - 1) / PAGE * PAGE;
    if (end == text) return;
    bool same = wanted && (bytes == wanted || bytes == pages || bytes == pages + PAGE);
    if (same && !arena[i].at) {
      arena[i] = (Range){at, pages};
      return;
    }
    text = end;
  }
}

void *mmap(void *at, size_t bytes, int may, int how, int file, off_t from) {
  void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
  void *got = real(at, bytes, may, how, file, from);
  if (got != MAP_FAILED && how & MAP_ANONYMOUS) remember((uintptr_t)got, bytes);
  return got;
}

static bool is_there(const void *at) {
  for (int i = 0; i < ARENAS; i++)
    if (arena[i].at && (uintptr_t)at - arena[i].at < arena[i].bytes) return true;
  return false;
}

/* Does the Nth copy end in a death, N a number after `word` and a colon? */
static bool is_told(const char *word, long n) {
  const char *at = getenv("DIE_AT");
  size_t len = strlen(word);
  return at && is_victim() && !strncmp(at, word, len) && at[len] == ':' && atol(at + len + 1) == n;
}

static void forbid(void) {
  const char *thousandths = strrchr(getenv("DIE_AT"), ':') + 1;
  size_t pages = arena[0].bytes / PAGE, page = pages * strtoull(thousandths, NULL, 10) / 1000;
  signal(SIGSEGV, die);
  mprotect((char *)arena[0].at + page * PAGE, PAGE, PROT_NONE);
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  if (!is_there(to) && !is_there(from)) return memmove(to, from, bytes);
  long n = __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
  if (is_told("copy", n)) {
    memmove(to, from, bytes / 2);
    die(0);
  }
  memmove(to, from, bytes);
  if (is_told("update", n)) forbid();
  return to;
}

__attribute__((destructor)) static void tell(void) {
  if (!getenv("DIE_AT")) note();
}

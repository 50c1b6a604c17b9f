/* Every kernel against the interpreter: random operands, poisoned results between guards, twice for
   the same bits. Kernels come in folders kernels/NAME: kernels.ir with their functions, and
   SYMBOL.ptx.

   A few processes share the folders. A kernel that faults or hangs ends its process; it is told,
   and the next process goes on behind it. The harness is the one of tests/codegen. */
#include "bundle.h"
#include "codegen/codegen.h"
#include "tests/codegen/harness_inside.h"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, KERNEL_SECONDS = 60, FIRST_POISON = 0x5A, BROKEN = 3, ROOM = 256 << 20 };

typedef struct Place { /* shared with the process that works there */
  volatile int pack, kernel;
  volatile int64_t good, bad, skipped;
  char name[200];
} Place;

typedef struct Session {
  Bundle *b;
  Gpu gpu;
  CUdeviceptr room;
  CUmodule module;
  Place *place;
  char *folder;
  bool broken; /* the context: nothing runs in it any more */
} Session;

/* ---- one kernel on the GPU ---- */

typedef struct Block { /* a buffer with its guards */
  char *at;
  size_t bytes;
  CUdeviceptr device;
  bool result;
} Block;

static bool failed(Session *s, const char *what) {
  fprintf(stderr, "  %s: %s\n", s->place->name, what);
  return false;
}

static int blocks_of(Session *s, Running *r, Block *block, CUdeviceptr *at) {
  CUdeviceptr next = s->room;
  int n = (int)(r->nargs + r->nresults);
  for (int i = 0; i < n; i++) {
    int same = i < (int)r->nargs ? -1 : running_same(r->h, (uint32_t)i - r->nargs);
    Buffer *x = &r->buffer[i];
    block[i] = (Block){x->block, (size_t)(x->bytes + 2 * GUARD), next, i >= (int)r->nargs};
    if (same >= 0) block[i] = block[same], block[i].result = block[same].result = true;
    else next += (block[i].bytes + 255) / 256 * 256;
    at[i] = block[i].device + GUARD;
  }
  if (!r->workspace_bytes) return next > s->room + ROOM ? -1 : n;
  block[n] = (Block){r->workspace, (size_t)r->workspace_bytes + GUARD, next, true};
  at[n] = next;
  return next + block[n].bytes > s->room + ROOM ? -1 : n + 1;
}

static bool copy_all(Session *s, const Block *block, int n, bool back) {
  for (int i = 0; i < n; i++) {
    const CudaApi *a = &s->gpu.api;
    CUresult e =
        back ? a->cuMemcpyDtoHAsync(block[i].at, block[i].device, block[i].bytes, s->gpu.stream)
             : a->cuMemcpyHtoDAsync(block[i].device, block[i].at, block[i].bytes, s->gpu.stream);
    if (!gpu_ok(&s->gpu, e, "copy")) return false;
  }
  return gpu_wait(&s->gpu);
}

static bool launch_all(Session *s, Running *r, CUdeviceptr *at, int n) {
  const Attr *ctas = attr_get(&r->k->attrs, ATTR_chunks),
             *threads = attr_get(&r->k->attrs, ATTR_threads),
             *shared = attr_get(&r->k->attrs, ATTR_shared);
  for (int64_t p = 0; p < ctas->i; p++) {
    char entry[300];
    CUfunction f;
    snprintf(entry, sizeof entry, "%s_p%d", kernel_symbol(r->m, r->k), (int)p);
    if (!gpu_function(&s->gpu, s->module, entry, shared->list[p], &f) ||
        !gpu_launch(&s->gpu, f, ctas->list[p], (int)threads->list[p], shared->list[p], at, n) ||
        !gpu_wait(&s->gpu))
      return false;
  }
  return true;
}

/* The first run finds other bytes in results than the second, and what it made is kept. */
static bool run_once(Session *s, Running *r, bool first, Block *block, int n, CUdeviceptr *at) {
  bool own = true;
  for (int i = 0; first && i < n; i++) {
    own = block[i].result && i >= (int)r->nargs;
    for (int k = 0; k < (int)r->nargs; k++) own &= block[k].at != block[i].at;
    if (own) memset(block[i].at, FIRST_POISON, block[i].bytes);
  }
  return copy_all(s, block, n, false) && launch_all(s, r, at, n) && copy_all(s, block, n, true);
}

static bool same_bytes(const char *first, const char *second, size_t n, bool result) {
  for (size_t i = 0; i < n; i++) {
    bool untouched = first[i] == FIRST_POISON && (unsigned char)second[i] == POISON;
    if (first[i] != second[i] && !(result && untouched)) return false;
  }
  return true;
}

/* Operands as they were, results of both runs the same. `before`, `first`: copies of the blocks. */
static bool compare(Session *s, const Running *r, const Block *block, char **before, char **first) {
  for (uint32_t i = 0; i < r->nargs + r->nresults; i++) {
    char *other = block[i].result ? first[i] : before[i];
    if (!same_bytes(other, block[i].at, block[i].bytes, block[i].result))
      return failed(s, block[i].result ? "two runs give different bits" : "an operand was changed");
  }
  return true;
}

static char *copy_of(const Block *x) {
  char *p = malloc(x->bytes);
  return p ? memcpy(p, x->at, x->bytes) : NULL;
}

static bool run_twice(Session *s, Running *r, Block *block, int n, CUdeviceptr *at, char **before,
                      char **first) {
  for (int i = 0; i < n; i++) before[i] = copy_of(&block[i]);
  bool ok = run_once(s, r, true, block, n, at);
  for (int i = 0; i < n; i++) first[i] = copy_of(&block[i]);
  for (int i = 0; i < n; i++) memcpy(block[i].at, before[i], block[i].bytes);
  ok = ok && run_once(s, r, false, block, n, at);
  if (!ok) s->broken = true, failed(s, s->gpu.why);
  return ok && compare(s, r, block, before, first);
}

static bool run_on_gpu(Running *r) {
  enum { MOST = 64 };
  Session *s = r->h->library;
  Block block[MOST];
  CUdeviceptr at[MOST];
  char *before[MOST] = {0}, *first[MOST] = {0};
  int n = blocks_of(s, r, block, at);
  if (n < 0) return failed(s, "its buffers are larger than the room for them");
  bool ok = run_twice(s, r, block, n, at, before, first);
  for (int i = 0; i < n; i++) free(before[i]), free(first[i]);
  return ok;
}

/* ---- one folder ---- */

static char *text_of(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  char *text = NULL;
  FILE *all = open_memstream(&text, n);
  if (!f || !all) return NULL;
  for (int c; (c = getc(f)) != EOF;) putc(c, all);
  fclose(f), fclose(all);
  return text;
}

static bool too_much_shared(const Session *s, const Fn *k) {
  const Attr *shared = attr_get(&k->attrs, ATTR_shared);
  for (int64_t p = 0; p < shared->i; p++)
    if (shared->list[p] > s->gpu.device.shared_limit) return true;
  return false;
}

static void note(Session *s, const Fn *k, const char *state) {
  if (!strcmp(state, "good")) return;
  put_row(s->b, "{\"name\": %s, \"family\": \"%s\", \"state\": %s}", quoted(s->place->name),
          attr_str(&k->attrs, ATTR_family, "?"), quoted(state));
}

static void check(Session *s, Harness *h, Module *m, const Fn *k, double tolerance) {
  size_t n;
  snprintf(s->place->name, sizeof s->place->name, "%s %s", strrchr(s->folder, '/') + 1, k->name);
  if (too_much_shared(s, k)) {
    s->place->skipped++, note(s, k, "needs more shared memory than this GPU has");
    return;
  }
  char *path = arena_printf(h->arena, "%s/%s.ptx", s->folder, kernel_symbol(m, k));
  char *text = text_of(path, &n);
  alarm(KERNEL_SECONDS);
  bool loaded = text && gpu_load(&s->gpu, text, &s->module);
  if (!loaded) failed(s, text ? s->gpu.why : "its code is not there");
  bool ok = loaded && !harness_kernel(h, m, k, tolerance);
  alarm(0);
  free(text);
  if (loaded && !s->broken) s->gpu.api.cuModuleUnload(s->module);
  if (ok) s->place->good++;
  else s->place->bad++;
  note(s, k, ok ? "good" : !loaded ? s->gpu.why : s->broken ? s->gpu.why : "wrong");
  if (s->broken) _exit(BROKEN);
}

static void check_folder(Session *s) {
  double tolerance;
  Harness *h = harness_new("gpu");
  char *path = arena_printf(h->arena, "%s/kernels.ir", s->folder);
  Module *m = ir_read(h->ctx, path);
  if (!m) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  if (!m) s->place->bad++, put_row(s->b, "{\"name\": %s, \"state\": \"unreadable\"}", quoted(path));
  h->run = run_on_gpu, h->library = s;
  if (m) harness_read_numbers(h, m, &tolerance);
  int number = 0;
  for (uint32_t i = 0; m && i < m->fns.n; i++) {
    if (m->fns.at[i]->kind != FN_KERNEL) continue;
    if (number++ < s->place->kernel) continue;
    s->place->kernel = number;
    check(s, h, m, m->fns.at[i], tolerance);
  }
  harness_free(h);
}

/* ---- all of them ---- */

typedef struct Folders {
  char **at;
  int n;
} Folders;

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static Folders list_folders(const Bundle *b) {
  char *within = bundle_path(b, "kernels");
  Folders f = {rt_alloc(sizeof(char *) * 4096), 0};
  DIR *d = opendir(within);
  for (struct dirent *e; d && (e = readdir(d)) && f.n < 4096;)
    if (*e->d_name != '.') f.at[f.n++] = bundle_path(b, "kernels/%s", e->d_name);
  if (d) closedir(d);
  qsort(f.at, (size_t)f.n, sizeof *f.at, by_name);
  return f;
}

static _Noreturn void work(Bundle *b, const Folders *f, Place *place, int step) {
  Session s = {.b = b, .place = place};
  snprintf(place->name, sizeof place->name, "start");
  if (!gpu_open(&s.gpu) || !gpu_ok(&s.gpu, s.gpu.api.cuMemAlloc(&s.room, ROOM), "allocate"))
    failed(&s, s.gpu.why), _exit(PART_BAD);
  for (; place->pack < f->n; place->pack += step, place->kernel = 0) {
    s.folder = f->at[place->pack];
    check_folder(&s);
  }
  _exit(PART_GOOD);
}

static pid_t start(Bundle *b, const Folders *f, Place *place, int step) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) work(b, f, place, step);
  return pid;
}

/* What ended without saying so: a signal, or a time-out. True: another process may go on. */
static bool ended(Bundle *b, Place *place, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == BROKEN) return true;
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status)) place->bad++;
    return false;
  }
  bool hung = WTERMSIG(status) == SIGALRM;
  place->bad++;
  put_row(b, "{\"name\": %s, \"state\": \"%s\"}", quoted(place->name),
          hung ? "took too long" : "ended the process");
  return strcmp(place->name, "start") != 0;
}

static void wait_all(Bundle *b, const Folders *f, Place *place, int n) {
  pid_t pid[WORKERS];
  for (int i = 0; i < n; i++) pid[i] = start(b, f, &place[i], n);
  for (int left = n, status; left > 0;) {
    pid_t done = wait(&status);
    for (int i = 0; i < n; i++)
      if (pid[i] == done) pid[i] = ended(b, &place[i], status) ? start(b, f, &place[i], n) : 0;
    left = 0;
    for (int i = 0; i < n; i++) left += pid[i] > 0;
  }
}

int part_kernels(Bundle *b) {
  Folders f = list_folders(b);
  int n = (int)sysconf(_SC_NPROCESSORS_ONLN), good = 0, bad = 0, skipped = 0;
  n = n < 1 ? 1 : n < WORKERS ? n : WORKERS;
  Place *place = mmap(NULL, sizeof *place * WORKERS, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return PART_BAD;
  for (int i = 0; i < n; i++) place[i].pack = i;
  wait_all(b, &f, place, n);
  for (int i = 0; i < n; i++)
    good += (int)place[i].good, bad += (int)place[i].bad, skipped += (int)place[i].skipped;
  put_row(b, "{\"name\": \"all\", \"good\": %d, \"bad\": %d, \"skipped\": %d}", good, bad, skipped);
  say(b, "%d kernels of %d batches: %d good, %d bad, %d not for this GPU\n", good + bad + skipped,
      f.n, good, bad, skipped);
  return good && !bad ? PART_GOOD : PART_BAD;
}

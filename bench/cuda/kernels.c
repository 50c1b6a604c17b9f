/* Every kernel against the interpreter: random operands, poisoned results between guards, twice for
   the same bits. Kernels come in folders kernels/NAME: kernels.ir with their functions,
   SYMBOL.ptx, and SYMBOL.cubin where one was assembled.

   A few processes share the folders, each taking the next one that nobody has. A kernel that faults
   or hangs ends its process; it is reported, and the next process continues after that kernel. A
   process that gets no context or no memory leaves its share to the others. Folders come in an
   order that mixes what they hold, so that a run that is out of time has seen something of
   everything. The harness is the one of tests/codegen. */
#include "bundle.h"
#include "codegen/codegen.h"
#include "tests/codegen/harness_inside.h"
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, KERNEL_SECONDS = 60, FIRST_POISON = 0x5A, BROKEN = 3, ROOM = 256 << 20 };

typedef struct Place { /* shared with the process of that slot */
  volatile int pack, kernel;
  volatile int64_t good, bad, skipped;
  volatile bool taken; /* a folder, and it is not done yet */
  volatile bool began; /* a process of this place had a context once */
  char name[200], why[1000];
} Place;

typedef struct Shared { /* by all processes */
  int next;             /* folder that nobody has */
  Place place[WORKERS];
} Shared;

typedef struct Session {
  Bundle *b;
  Gpu gpu;
  CUdeviceptr room;
  CUmodule module;
  Place *place;
  char *folder;
  bool broken; /* the context: nothing runs in it any more */
  double last; /* rt_now() after which no kernel is begun */
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
  GpuMaps maps = gpu_maps_of(r->m, r->k);
  for (int64_t p = 0; p < ctas->i; p++) {
    char entry[300];
    CUfunction f;
    snprintf(entry, sizeof entry, "%s_p%d", kernel_symbol(r->m, r->k), (int)p);
    if (!gpu_function(&s->gpu, s->module, entry, shared->list[p], &f) ||
        !gpu_launch(&s->gpu, f, ctas->list[p], (int)threads->list[p], shared->list[p], at, n,
                    &maps) ||
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
  snprintf(s->place->name, sizeof s->place->name, "%s %s", strrchr(s->folder, '/') + 1, k->name);
  if (too_much_shared(s, k)) {
    s->place->skipped++, note(s, k, "needs more shared memory than this GPU has");
    return;
  }
  alarm(KERNEL_SECONDS);
  bool loaded = gpu_load_file(&s->gpu, s->folder, kernel_symbol(m, k), &s->module);
  if (!loaded) failed(s, s->gpu.why);
  bool ok = loaded && !harness_kernel(h, m, k, tolerance);
  alarm(0);
  if (loaded && !s->broken) s->gpu.api.cuModuleUnload(s->module);
  if (ok) s->place->good++;
  else s->place->bad++;
  note(s, k, ok ? "good" : !loaded ? s->gpu.why : s->broken ? s->gpu.why : "wrong");
  if (s->broken) _exit(BROKEN);
}

/* False: there is no time for all of it. */
static bool check_folder(Session *s) {
  double tolerance;
  bool done = true;
  Harness *h = harness_new("gpu");
  char *path = arena_printf(h->arena, "%s/kernels.ir", s->folder);
  Module *m = ir_read(h->ctx, path);
  if (!m) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  if (!m) s->place->bad++, put_row(s->b, "{\"name\": %s, \"state\": \"unreadable\"}", quoted(path));
  h->run = run_on_gpu, h->library = s;
  if (m) harness_read_numbers(h, m, &tolerance);
  int number = 0;
  for (uint32_t i = 0; m && done && i < m->fns.n; i++) {
    if (m->fns.at[i]->kind != FN_KERNEL) continue;
    if (number++ < s->place->kernel) continue;
    done = rt_now() < s->last;
    if (!done) break;
    s->place->kernel = number;
    check(s, h, m, m->fns.at[i], tolerance);
  }
  harness_free(h);
  return done;
}

/* ---- all of them ---- */

typedef struct Folders {
  char **at;
  int n, kernels; /* that are in them */
} Folders;

/* Behind the last '-'; -1: none. */
static long number_of(const char *path) {
  const char *dash = strrchr(path, '-');
  return dash && dash > strrchr(path, '/') ? strtol(dash + 1, NULL, 10) : -1;
}

static int mixed(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  long i = number_of(x), j = number_of(y);
  return i != j ? (i > j) - (i < j) : strcmp(x, y);
}

static int count_code(const char *folder) {
  int n = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, ".ptx") != NULL;
  if (d) closedir(d);
  return n;
}

static Folders list_folders(const Bundle *b) {
  char *within = bundle_path(b, "kernels");
  Folders f = {rt_alloc(sizeof(char *) * 4096), 0, 0};
  DIR *d = opendir(within);
  for (struct dirent *e; d && (e = readdir(d)) && f.n < 4096;)
    if (*e->d_name != '.') f.at[f.n++] = bundle_path(b, "kernels/%s", e->d_name);
  if (d) closedir(d);
  for (int i = 0; i < f.n; i++) f.kernels += count_code(f.at[i]);
  qsort(f.at, (size_t)f.n, sizeof *f.at, mixed);
  return f;
}

static _Noreturn void work(Bundle *b, const Folders *f, Shared *all, Place *place) {
  Session s = {.b = b, .place = place, .last = b->ends - fmin(5, 0.1 * (b->ends - rt_now()))};
  snprintf(place->name, sizeof place->name, "start");
  if (!gpu_open(&s.gpu, 0) || !gpu_ok(&s.gpu, s.gpu.api.cuMemAlloc(&s.room, ROOM), "allocate")) {
    snprintf(place->why, sizeof place->why, "%s", s.gpu.why);
    failed(&s, s.gpu.why), _exit(PART_BAD);
  }
  place->began = true;
  for (;; place->taken = false) {
    if (!place->taken)
      place->pack = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED), place->kernel = 0;
    if (place->pack >= f->n) break;
    place->taken = true, s.folder = f->at[place->pack];
    if (!check_folder(&s)) break;
  }
  _exit(PART_GOOD);
}

static pid_t start(Bundle *b, const Folders *f, Shared *all, Place *place) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) work(b, f, all, place);
  return pid;
}

/* A process ended without a report: a signal, or a time-out. True: another process may go on. */
static bool ended(Bundle *b, Place *place, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status) == BROKEN;
  bool hung = WTERMSIG(status) == SIGALRM, begun = strcmp(place->name, "start") != 0;
  place->bad++;
  put_row(b, "{\"name\": %s, \"state\": \"%s\"}", quoted(place->name),
          hung ? "took too long" : "ended the process");
  return begun;
}

static void wait_all(Bundle *b, const Folders *f, Shared *all, int n) {
  pid_t pid[WORKERS];
  for (int i = 0; i < n; i++) pid[i] = start(b, f, all, &all->place[i]);
  for (int left = n, status; left > 0;) {
    pid_t done = wait(&status);
    for (int i = 0; i < n; i++)
      if (pid[i] == done)
        pid[i] = ended(b, &all->place[i], status) ? start(b, f, all, &all->place[i]) : 0;
    left = 0;
    for (int i = 0; i < n; i++) left += pid[i] > 0;
  }
}

static int show(Bundle *b, const Folders *f, const Shared *all, int n) {
  int good = 0, bad = 0, skipped = 0, began = 0;
  for (int i = 0; i < n; i++) {
    const Place *p = &all->place[i];
    good += (int)p->good, bad += (int)p->bad, skipped += (int)p->skipped, began += p->began;
    if (!p->began) say(b, "one process less: %s\n", p->why);
  }
  int rest = f->kernels - good - bad - skipped;
  if (rest < 0) rest = 0; /* a process that died before its first kernel also counts as bad */
  put_row(b,
          "{\"name\": \"all\", \"good\": %d, \"bad\": %d, \"skipped\": %d, \"not_reached\": "
          "%d}",
          good, bad, skipped, rest);
  say(b, "%d kernels of %d batches: %d good, %d bad, %d not for this GPU, %d not reached\n",
      f->kernels, f->n, good, bad, skipped, rest);
  if (bad || !began) return PART_BAD;
  return rest ? PART_SHORT : good ? PART_GOOD : PART_BAD;
}

int part_kernels(Bundle *b) {
  Folders f = list_folders(b);
  int n = (int)sysconf(_SC_NPROCESSORS_ONLN);
  n = n < 1 ? 1 : n < WORKERS ? n : WORKERS;
  Shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return PART_BAD;
  wait_all(b, &f, all, n);
  return show(b, &f, all, n);
}

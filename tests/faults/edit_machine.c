/* Changed kernels on their machines: see edit_machine.h.

   Buffers that begin at one address are one (a result in place of an operand). On a processor a
   buffer ends at a page that nobody may touch, but for what aligns its beginning to 16 bytes, as
   the least aligned value of a frame; these bytes, and those in front, must stay as they were. */
#include "edit_machine.h"
#include "codegen/codegen.h"
#include "ir/kernel/nest.h"
#include "tests/common/kernel_params.h"
#include "tests/gpu/ptx.h"
#include "tests/programs/jit.h"
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_KERNELS = 3, ALIGN = 16, MARK = 0xa5, BUDGET = 20000000 };

struct Machines {
  Module *m;
  const Fn *changed[MOST_KERNELS];
  char *text[MOST_KERNELS]; /* of a GPU's: PTX */
  int n;
  Jit *jit;
  bool gpu, here, ran; /* this processor can run them */
  const char *error;
  pthread_mutex_t lock; /* ranks are threads */
};

typedef struct Buffer {
  unsigned char *from; /* in the interpreter's memory */
  int64_t bytes;
  unsigned char *at, *page; /* its address, in `pages` bytes */
  int64_t pages;
  uint64_t device;
  bool result;
} Buffer;

typedef VEC(Buffer) Buffers;

/* ---- buffers ---- */

static int64_t extent(const Fn *k, ValueId v) {
  const Type *t = value_type(k, v);
  int64_t last = 0;
  for (int i = 0; i < t->rank; i++)
    last += (t->axis[i].size - 1) * buffer_stride(k, v, t->axis[i].dim);
  return (last + 1) * elem_bytes(t->elem);
}

/* Its place in the list: the entry that begins at that address, or a new one. */
static uint32_t add_buffer(Machines *x, Buffers *list, void *from, int64_t bytes, bool result) {
  uint32_t i = 0;
  while (i < list->n && list->at[i].from != from) i++;
  if (i == list->n) vec_push(x->m->arena, *list, ((Buffer){.from = from}));
  Buffer *b = &list->at[i];
  if (bytes > b->bytes) b->bytes = bytes;
  b->result |= result;
  return i;
}

static Buffers buffers_of(Machines *x, const Fn *k, void *const *given, uint32_t *which) {
  Buffers list = {0};
  int64_t workspace = attr_int(&k->attrs, ATTR_workspace, 0);
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->args.n; i++, n++)
    which[n] = add_buffer(x, &list, given[n], extent(k, k->args.at[i]), false);
  for (uint32_t i = 0; i < k->results.n; i++, n++)
    which[n] = add_buffer(x, &list, given[n], extent(k, k->results.at[i]), true);
  if (workspace) { /* whatever begins there is another value's */
    vec_push(x->m->arena, list, ((Buffer){.from = given[n], .bytes = workspace}));
    which[n] = list.n - 1;
  }
  return list;
}

/* ---- on this processor ---- */

static void fence_in(Buffer *b) {
  int64_t page = sysconf(_SC_PAGESIZE), room = (b->bytes + ALIGN - 1) / ALIGN * ALIGN;
  b->pages = (room + page - 1) / page * page + page;
  b->page =
      mmap(NULL, (size_t)b->pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (b->page == MAP_FAILED) bug("no memory for a buffer");
  memset(b->page, MARK, (size_t)(b->pages - page));
  b->at = b->page + (b->pages - page - room);
  memcpy(b->at, b->from, (size_t)b->bytes);
  mprotect(b->page + (b->pages - page), (size_t)page, PROT_NONE);
}

static bool unmarked(const unsigned char *from, const unsigned char *to) {
  for (; from < to; from++)
    if (*from != MARK) return true;
  return false;
}

static void take_back(Machines *x, Buffer *b, const Fn *k) {
  unsigned char *end = b->page + (b->pages - sysconf(_SC_PAGESIZE));
  if (unmarked(b->page, b->at) || unmarked(b->at + b->bytes, end))
    x->error = arena_printf(x->m->arena, "@%s writes outside of a buffer", k->name);
  if (b->result) memcpy(b->from, b->at, (size_t)b->bytes);
  munmap(b->page, (size_t)b->pages);
}

static void run_here(Machines *x, const Fn *k, Buffers *list, const uint32_t *which, uint32_t n) {
  void **at = ARENA_ARRAY(x->m->arena, void *, n + 1);
  for (uint32_t i = 0; i < list->n; i++) fence_in(&list->at[i]);
  for (uint32_t i = 0; i < n; i++) at[i] = list->at[which[i]].at;
  if (!jit_kernel(x->jit, k, at)) bug("kernel @%s is not there", k->name);
  for (uint32_t i = 0; i < list->n; i++) take_back(x, &list->at[i], k);
}

/* ---- on the machine of tests/gpu ---- */

static bool launch(Machines *x, PtxModule *p, const Fn *k, const uint64_t *at, uint32_t n) {
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks),
             *threads = attr_get(&k->attrs, ATTR_threads),
             *shared = attr_get(&k->attrs, ATTR_shared);
  char error[1000] = "", entry[300];
  for (int64_t i = 0; i < chunks->i; i++) {
    snprintf(entry, sizeof entry, "%s_p%d", kernel_symbol(x->m, k), (int)i);
    PtxLaunch l = {.entry = entry,
                   .grid = {(uint32_t)chunks->list[i], 1, 1},
                   .block = {(uint32_t)threads->list[i], 1, 1},
                   .shared = (uint32_t)shared->list[i]};
    l.params = kernel_params(x->m, k, at, (int)n, &l.params_bytes);
    if (ptx_launch(p, &l, error, sizeof error)) continue;
    x->error = arena_printf(x->m->arena, "@%s: %s", k->name, error);
    return false;
  }
  return true;
}

static void run_there(Machines *x, const Fn *k, const char *text, Buffers *list,
                      const uint32_t *which, uint32_t n) {
  char error[1000] = "";
  PtxOptions o = {.check = true, .sm = (int)x->m->target.sm, .budget = BUDGET};
  o.shared_limit = x->m->target.shared_most;
  PtxDevice *d = ptx_device_new(&o);
  PtxModule *p = ptx_parse(d, text, error, sizeof error);
  if (!p) x->error = arena_printf(x->m->arena, "@%s: %s", k->name, error);
  uint64_t *at = ARENA_ARRAY(x->m->arena, uint64_t, n + 1);
  for (uint32_t i = 0; i < list->n; i++) {
    Buffer *b = &list->at[i];
    b->device = ptx_alloc(d, b->bytes);
    if (!b->device) bug("no device memory");
    ptx_write(d, b->device, b->from, b->bytes);
  }
  for (uint32_t i = 0; i < n; i++) at[i] = list->at[which[i]].device;
  bool ran = p && launch(x, p, k, at, n);
  for (uint32_t i = 0; ran && i < list->n; i++)
    if (list->at[i].result) ptx_read(d, list->at[i].from, list->at[i].device, list->at[i].bytes);
  if (p) ptx_module_free(p);
  ptx_device_free(d);
}

/* ---- kernels ---- */

static bool has_kernel(const Module *sound, Module *m, const Fn *k) {
  for (uint32_t i = 0; i < sound->fns.n; i++) {
    Fn *f = sound->fns.at[i];
    if (!strcmp(f->name, k->name) && !strcmp(ir_print_fn((Module *)sound, f), ir_print_fn(m, k)))
      return true;
  }
  return false;
}

Machines *machines_new(Module *m, const Module *sound) {
  Machines *x = ARENA_NEW(m->arena, Machines);
  x->m = m, x->gpu = module_on_gpu(m), x->jit = jit_new(m->arena);
  pthread_mutex_init(&x->lock, NULL);
  if (!m->target.name) return x;
  x->here = !x->gpu && target_runs_here(target_of(m));
  for (uint32_t i = 0; i < m->fns.n && x->n < MOST_KERNELS; i++) {
    const Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || !attr_get(&k->attrs, ATTR_tile) || has_kernel(sound, m, k))
      continue;
    if (!x->here) x->text[x->n] = kernel_text(m, k, x->gpu);
    else jit_add_kernel(x->jit, m, k);
    x->changed[x->n++] = k;
  }
  return x;
}

static void run(Machines *x, int i, void *const *given) {
  const Fn *k = x->changed[i];
  uint32_t n = k->args.n + k->results.n + (attr_int(&k->attrs, ATTR_workspace, 0) != 0);
  uint32_t *which = ARENA_ARRAY(x->m->arena, uint32_t, n + 1);
  Buffers list = buffers_of(x, k, given, which);
  if (x->gpu) run_there(x, k, x->text[i], &list, which, n);
  else run_here(x, k, &list, which, n);
  x->ran = true;
}

/* The kernel, or one that takes its place on some GPUs. */
bool machines_kernel(void *machines, const Fn *k, void *const *buffers) {
  Machines *x = machines;
  bool ran = false;
  pthread_mutex_lock(&x->lock);
  for (int i = 0; i < x->n && !x->error && !ran && (x->gpu || x->here); i++) {
    const Fn *f = x->changed[i];
    ran = f == k || !strcmp(attr_str(&f->attrs, ATTR_replaces, ""), k->name);
    if (ran) run(x, i, buffers);
  }
  pthread_mutex_unlock(&x->lock);
  return ran;
}

bool machines_ran(const Machines *x) { return x->ran; }
const char *machines_error(const Machines *x) { return x->error; }

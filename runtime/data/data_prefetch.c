/* The next batch is read while kernels compute: a thread fills a copy of the inputs, and when the
   step begins the copy is moved into them. The copy that a GPU has of them is filled likewise: the
   thread sends the batch there as soon as it is read (DeviceAhead).

   One batch ahead, asked for by its place in the data; who asks for another place reads as without.
   What is read, and in which order, does not depend on it, so the numbers are the same to the bit,
   and the cursor of a checkpoint counts samples that were used, not those that were read. What goes
   wrong is said when the batch is asked for; then it may never be. Only one thread reads mapped
   files at a time, since a guard of theirs (runtime/base/mapped.c) is the process's.

   Signals are for the other threads, but for those that the thread itself causes. Must not:
   allocate after the start; speak with other ranks. */
#include "data_fill.h"
#include "runtime/base/file.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct Batch { /* of a set, from a sample on */
  const DataSet *s;
  int64_t cursor;
  bool seeded;
  uint64_t seed;
} Batch;

struct DataAhead {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  const Data *d;
  const Device *device;
  Batch batch;
  bool asked, read, ends; /* asked: it is being read; read: it is there */
  bool used;              /* by the last fill */
  bool ok;
  Fault fault;
  double begin, end; /* of reading it, rt_now() */
  char **to;         /* by feed: own memory, or the device's for what is sent ahead */
  char *stage;
  struct MapGuard *guard;
  int nfeeds;
};

static bool is_same(const Batch *a, const Batch *b) {
  return a->s == b->s && a->cursor == b->cursor && a->seeded == b->seeded && a->seed == b->seed;
}

static Batch batch_of(const DataSet *s, int64_t cursor, const uint64_t *seed) {
  return (Batch){s, cursor, seed != NULL, seed ? *seed : 0};
}

/* Of the device, for what it is sent ahead; NULL: the feed has memory of the thread's own. */
static char *sent_from(const DataAhead *x, int feed) {
  const DeviceAhead *ahead = x->device->kind->ahead;
  return ahead ? ahead->at(x->device, rt_data_local(x->d, x->device, &x->d->train.feed[feed]))
               : NULL;
}

static bool read_one(DataAhead *x, const Batch *b) {
  const DeviceAhead *ahead = x->device->kind->ahead;
  if (ahead) ahead->begin(x->device);
  bool ok = rt_data_read((Filling){.d = x->d,
                                   .s = b->s,
                                   .device = x->device,
                                   .to = x->to,
                                   .stage = x->stage,
                                   .guard = x->guard,
                                   .first = b->cursor,
                                   .seed = b->seeded ? &b->seed : NULL,
                                   .f = &x->fault});
  if (ahead && ok) ahead->send(x->device);
  return ok;
}

static void *read_batches(void *ahead) {
  DataAhead *x = ahead;
  pthread_mutex_lock(&x->lock);
  for (;;) {
    while (!x->asked && !x->ends) pthread_cond_wait(&x->changed, &x->lock);
    if (x->ends) break;
    Batch b = x->batch;
    pthread_mutex_unlock(&x->lock);
    double begin = rt_now();
    bool ok = read_one(x, &b);
    pthread_mutex_lock(&x->lock);
    x->ok = ok, x->begin = begin, x->end = rt_now();
    x->asked = false, x->read = true;
    pthread_cond_broadcast(&x->changed);
  }
  pthread_mutex_unlock(&x->lock);
  return NULL;
}

static bool begin(DataAhead *x) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGBUS), sigdelset(&all, SIGSEGV), sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool begun = !pthread_create(&x->thread, NULL, read_batches, x);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return begun;
}

static void free_ahead(DataAhead *x) {
  for (int i = 0; i < x->nfeeds; i++)
    if (!sent_from(x, i)) free(x->to[i]);
  free(x->to), free(x->stage), free(x->guard), free(x);
}

bool rt_data_beside(Data *d, const Device *device, Fault *f) {
  DataAhead *x = rt_alloc(sizeof *x);
  *x = (DataAhead){.d = d, .device = device, .nfeeds = d->train.nfeeds};
  x->to = rt_alloc(sizeof *x->to * (size_t)(x->nfeeds + 1));
  for (int i = 0; i < x->nfeeds; i++) {
    char *sent = sent_from(x, i);
    x->to[i] = sent ? sent : rt_alloc((size_t)rt_data_local(d, device, &d->train.feed[i])->bytes);
  }
  x->stage = rt_alloc((size_t)d->longest), x->guard = rt_map_guard();
  pthread_mutex_init(&x->lock, NULL), pthread_cond_init(&x->changed, NULL);
  if (begin(x)) return d->ahead = x, true;
  free_ahead(x);
  return rt_fault(f, 704, "cannot start the thread that reads the next batch");
}

void rt_data_settle(const Data *d) {
  DataAhead *x = d->ahead;
  if (!x) return;
  pthread_mutex_lock(&x->lock);
  while (x->asked) pthread_cond_wait(&x->changed, &x->lock);
  pthread_mutex_unlock(&x->lock);
}

void rt_data_ahead(const Data *d, const DataSet *s, int64_t cursor, const uint64_t *seed) {
  DataAhead *x = d->ahead;
  if (!x) return;
  rt_data_settle(d);
  pthread_mutex_lock(&x->lock);
  x->batch = batch_of(s, cursor, seed), x->fault.code = 0, x->fault.help[0] = 0;
  x->asked = true, x->read = false;
  pthread_cond_broadcast(&x->changed);
  pthread_mutex_unlock(&x->lock);
}

bool rt_data_take(const Data *d, const DataSet *s, int64_t cursor, const uint64_t *seed, bool *ok,
                  Fault *f) {
  DataAhead *x = d->ahead;
  Batch wanted = batch_of(s, cursor, seed);
  rt_data_settle(d);
  if (x) x->used = x->read && is_same(&wanted, &x->batch);
  if (!x || !x->used) return false;
  x->read = false, *ok = x->ok;
  if (!x->ok) return *f = x->fault, true;
  rt_ahead_take(x->device);
  for (int i = 0; i < s->nfeeds; i++) {
    const rt_tensor *local = rt_data_local(d, x->device, &s->feed[i]);
    if (!sent_from(x, i)) memcpy(rt_tensor_write(x->device, local), x->to[i], (size_t)local->bytes);
  }
  return true;
}

bool rt_data_read_at(const Data *d, double *begin, double *end) {
  if (!d->ahead || !d->ahead->used) return false;
  return *begin = d->ahead->begin, *end = d->ahead->end, true;
}

void rt_data_ahead_close(Data *d) {
  DataAhead *x = d->ahead;
  if (!x) return;
  pthread_mutex_lock(&x->lock);
  x->ends = true;
  pthread_cond_broadcast(&x->changed);
  pthread_mutex_unlock(&x->lock);
  pthread_join(x->thread, NULL);
  free_ahead(x);
  d->ahead = NULL;
}

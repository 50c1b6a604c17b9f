/* The next batch is read while kernels compute: a thread fills a copy of the inputs, and when the
   step begins the copy is moved into them. A GPU's copy of the inputs is filled likewise: the
   thread sends the batch to the GPU as soon as it is read (background.def). It reads one batch
   ahead, requested by its position in the data; a request for another position reads
   synchronously. The samples and their order do not depend on prefetching, so results are
   bitwise the same, and the cursor of a checkpoint counts samples that were used, not read. A
   failure is reported when the batch is requested, which may never happen. Only one thread
   reads mapped files at a time, since a guard of mapped files (runtime/base/mapped.c) belongs
   to the process. Other threads handle signals, except those that this thread causes. Must not:
   allocate after the start; communicate with other ranks. */
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
  bool asked, read, ends; /* asked: it is being read; read: it is complete */
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

static Batch batch_of(const DataSet *data, int64_t cursor, const uint64_t *seed) {
  return (Batch){data, cursor, seed != NULL, seed ? *seed : 0};
}

/* The device's buffer for inputs sent ahead; NULL: the feed uses memory of the thread. */
static char *sent_from(const DataAhead *data_ahead, int feed) {
  const Device *d = data_ahead->device;
  const rt_tensor *local = rt_data_local(data_ahead->d, d, &data_ahead->d->train.feed[feed]);
  return d->kind->ahead_at ? d->kind->ahead_at(d, local) : NULL;
}

static bool read_one(DataAhead *data_ahead, const Batch *batch) {
  const Device *d = data_ahead->device;
  d->kind->background(d, RT_BACKGROUND_read);
  bool ok = rt_data_read((Filling){.d = data_ahead->d,
                                   .s = batch->s,
                                   .device = data_ahead->device,
                                   .to = data_ahead->to,
                                   .stage = data_ahead->stage,
                                   .guard = data_ahead->guard,
                                   .first = batch->cursor,
                                   .seed = batch->seeded ? &batch->seed : NULL,
                                   .f = &data_ahead->fault});
  if (ok) d->kind->background(d, RT_BACKGROUND_send);
  return ok;
}

static void *read_batches(void *ahead) {
  DataAhead *data_ahead = ahead;
  pthread_mutex_lock(&data_ahead->lock);
  for (;;) {
    while (!data_ahead->asked && !data_ahead->ends)
      pthread_cond_wait(&data_ahead->changed, &data_ahead->lock);
    if (data_ahead->ends) break;
    Batch batch = data_ahead->batch;
    pthread_mutex_unlock(&data_ahead->lock);
    double begin = rt_now();
    bool ok = read_one(data_ahead, &batch);
    pthread_mutex_lock(&data_ahead->lock);
    data_ahead->ok = ok, data_ahead->begin = begin, data_ahead->end = rt_now();
    data_ahead->asked = false, data_ahead->read = true;
    pthread_cond_broadcast(&data_ahead->changed);
  }
  pthread_mutex_unlock(&data_ahead->lock);
  return NULL;
}

static bool begin(DataAhead *data_ahead) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGBUS), sigdelset(&all, SIGSEGV), sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool begun = !pthread_create(&data_ahead->thread, NULL, read_batches, data_ahead);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return begun;
}

static void free_ahead(DataAhead *data_ahead) {
  for (int i = 0; i < data_ahead->nfeeds; i++)
    if (!sent_from(data_ahead, i)) free(data_ahead->to[i]);
  free(data_ahead->to), free(data_ahead->stage), free(data_ahead->guard), free(data_ahead);
}

bool rt_data_beside(Data *data, const Device *device, Fault *f) {
  DataAhead *data_ahead = rt_alloc(sizeof *data_ahead);
  *data_ahead = (DataAhead){.d = data, .device = device, .nfeeds = data->train.nfeeds};
  data_ahead->to = rt_alloc(sizeof *data_ahead->to * (size_t)(data_ahead->nfeeds + 1));
  for (int i = 0; i < data_ahead->nfeeds; i++) {
    char *sent = sent_from(data_ahead, i);
    data_ahead->to[i] =
        sent ? sent : rt_alloc((size_t)rt_data_local(data, device, &data->train.feed[i])->bytes);
  }
  data_ahead->stage = rt_alloc((size_t)data->longest), data_ahead->guard = rt_map_guard();
  pthread_mutex_init(&data_ahead->lock, NULL), pthread_cond_init(&data_ahead->changed, NULL);
  if (begin(data_ahead)) return data->ahead = data_ahead, true;
  free_ahead(data_ahead);
  return rt_fault(f, 704, "cannot start the thread that reads the next batch");
}

void rt_data_settle(const Data *data) {
  DataAhead *data_ahead = data->ahead;
  if (!data_ahead) return;
  pthread_mutex_lock(&data_ahead->lock);
  while (data_ahead->asked) pthread_cond_wait(&data_ahead->changed, &data_ahead->lock);
  pthread_mutex_unlock(&data_ahead->lock);
}

void rt_data_ahead(const Data *data, const DataSet *data_set, int64_t cursor,
                   const uint64_t *seed) {
  DataAhead *data_ahead = data->ahead;
  if (!data_ahead) return;
  rt_data_settle(data);
  pthread_mutex_lock(&data_ahead->lock);
  data_ahead->batch = batch_of(data_set, cursor, seed), data_ahead->fault.code = 0,
  data_ahead->fault.help[0] = 0;
  data_ahead->asked = true, data_ahead->read = false;
  pthread_cond_broadcast(&data_ahead->changed);
  pthread_mutex_unlock(&data_ahead->lock);
}

bool rt_data_take(const Data *data, const DataSet *data_set, int64_t cursor, const uint64_t *seed,
                  bool *ok, Fault *f) {
  DataAhead *data_ahead = data->ahead;
  Batch wanted = batch_of(data_set, cursor, seed);
  rt_data_settle(data);
  if (data_ahead) data_ahead->used = data_ahead->read && is_same(&wanted, &data_ahead->batch);
  if (!data_ahead || !data_ahead->used) return false;
  data_ahead->read = false, *ok = data_ahead->ok;
  if (!data_ahead->ok) return *f = data_ahead->fault, true;
  rt_ahead_take(data_ahead->device);
  for (int i = 0; i < data_set->nfeeds; i++) {
    const rt_tensor *local = rt_data_local(data, data_ahead->device, &data_set->feed[i]);
    if (!sent_from(data_ahead, i))
      memcpy(rt_tensor_write(data_ahead->device, local), data_ahead->to[i], (size_t)local->bytes);
  }
  return true;
}

bool rt_data_read_at(const Data *data, double *begin, double *end) {
  if (!data->ahead || !data->ahead->used) return false;
  return *begin = data->ahead->begin, *end = data->ahead->end, true;
}

void rt_data_ahead_close(Data *data) {
  DataAhead *data_ahead = data->ahead;
  if (!data_ahead) return;
  pthread_mutex_lock(&data_ahead->lock);
  data_ahead->ends = true;
  pthread_cond_broadcast(&data_ahead->changed);
  pthread_mutex_unlock(&data_ahead->lock);
  pthread_join(data_ahead->thread, NULL);
  free_ahead(data_ahead);
  data->ahead = NULL;
}

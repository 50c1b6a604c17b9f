/* The CPU device: arenas, workers, and the running of entries. */
#ifndef SHARDC_RT_DEVICE_H
#define SHARDC_RT_DEVICE_H
#include "comm.h"
#include "memory.h"
#include "pool.h"
#include "trace.h"

typedef struct Device {
  const rt_program *program;
  rt_ctx ctx; /* what generated code gets; ctx.state points at the holder of this struct */
  Region arena[RT_ARENAS];
  Pool *pool;
  Comm *comm;   /* NULL: one rank */
  Trace *trace; /* NULL: off */
  int32_t *counters;
  bool check;       /* poison WORK before each entry and measure it */
  int64_t *touched; /* per entry: the most bytes of WORK touched, in check runs */
} Device;

bool rt_device_start(Device *d, const rt_program *p, Comm *comm, int threads, bool check,
                     Fault *f); /* comm: NULL for one rank */
void rt_device_stop(Device *d);
bool rt_device_run(Device *d, const rt_entry *e, Fault *f);
const rt_entry *rt_entry_find(const rt_program *p, const char *name);
const rt_tensor *rt_tensor_find(const rt_program *p, const char *name);
void *rt_tensor_data(const Device *d, const rt_tensor *t);
int64_t rt_tensor_count(const rt_tensor *t);
#endif

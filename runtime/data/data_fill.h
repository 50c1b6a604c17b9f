/* Filling inputs, for the files that do: data.c, and the thread of data_prefetch.c. */
#ifndef SHARDC_RT_DATA_FILL_H
#define SHARDC_RT_DATA_FILL_H
#include "data.h"

typedef struct Filling { /* of a batch; what is read of mapped files, for a guard to call */
  const Data *d;
  const DataSet *s;
  const Device *device;
  char *const *to; /* by feed: where; NULL: the tensors themselves */
  char *stage;     /* room for one sample of an input */
  struct MapGuard *guard;
  int64_t first, count, rounds;
  const uint64_t *seed;
  Fault *f;
} Filling;

bool rt_data_read(Filling l); /* samples first .. first + batch - 1, as rt_data_fill does */
const rt_tensor *rt_data_local(const Data *d, const Device *device, const Feed *e);

typedef struct DataAhead DataAhead;
/* Waits until a read in progress is over; afterwards no other thread reads. */
void rt_data_settle(const Data *data);
/* Has this batch been read already? Then it is in the inputs, or f says why not (*ok). */
bool rt_data_take(const Data *data, const DataSet *data_set, int64_t cursor, const uint64_t *seed,
                  bool *ok, Fault *f);
void rt_data_ahead_close(Data *data);
#endif

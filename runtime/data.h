/* Data sets: files as samples, samples as the contents of a model's inputs. */
#ifndef SHARDC_RT_DATA_H
#define SHARDC_RT_DATA_H
#include "device.h"
#include "formats.h"

typedef struct Part { /* one file, or the part of it that belongs to the set */
  const char *path;
  Bytes file;
  Array array;
  int64_t low;   /* number of the array where the part begins */
  int64_t first; /* index of its first sample in the set */
} Part;

typedef struct Stream { /* files in name order; sample s of a part begins at number low + s * stride
                         */
  Part *part;
  int nparts;
  int64_t samples, stride, length;
  bool shared; /* another stream opened the files */
} Stream;

typedef struct Feed { /* fills one input */
  const rt_tensor *input;
  int stream;
  int64_t shift, count; /* numbers of a sample: shift .. shift + count - 1 */
  int64_t ignore;       /* a label that is no index; INT64_MIN: none */
  double scale;         /* of unsigned bytes that feed floats */
  double *mean, *std;   /* over the last dim, `channels` of each; NULL: left as they are */
  int64_t channels;
} Feed;

typedef struct Set {
  Stream *stream;
  Feed *feed;
  int nstreams, nfeeds;
  int64_t samples;
} Set;

typedef struct DataOptions {
  const char *train, *valid, *format; /* NULL: from the program's settings */
  int shuffle;                        /* 0, 1; -1: from the settings */
} DataOptions;

typedef struct Data {
  Set train, valid;
  int64_t batch,
      tokens; /* samples per step; numbers of the first input per sample, 1 if it is no sequence */
  bool shuffle;
} Data;

bool rt_data_open(Data *d, const rt_program *p, const DataOptions *o, Fault *f);
/* Fills every input with samples cursor .. cursor + batch - 1; in the epoch's order if `seed` is
   not NULL and the data is shuffled. */
bool rt_data_fill(const Data *d, const Set *s, const Device *device, int64_t cursor,
                  const uint64_t *seed, Fault *f);
void rt_data_close(Data *d);
bool rt_is_logits(const rt_tensor *t);                           /* an input of entry logits */
const char *rt_setting_of(const rt_program *p, const char *key); /* NULL if absent */
#endif

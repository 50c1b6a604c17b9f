/* Data sets: files as samples, samples as the contents of a model's inputs. */
#ifndef SHARDC_RT_DATA_H
#define SHARDC_RT_DATA_H
#include "runtime/device/device.h"
#include "data_file.h"
#include "runtime/base/setting.h"

typedef struct Stream { /* files in name order; sample s of a part begins at number low + s * stride
                         */
  DataFile *part;
  int nparts;
  int64_t samples, stride, length;
  bool windows; /* of tokens; else rows of a column */
  bool shared;  /* another stream opened the files */
} Stream;

typedef enum Role {               /* what an input gets of a sample */
                    ROLE_NUMBERS, /* the numbers themselves */
                    ROLE_MASKED,  /* mlm: tokens, some of them masked or replaced */
                    ROLE_LABELS,  /* mlm: the true token where one was chosen, else the label to
                                     ignore */
                    ROLE_DOC,     /* number of the document within the sample */
                    ROLE_POS,   /* position in the document, from the beginning of the sample on */
                    ROLE_TYPES, /* 0 */
                    ROLE_VALID  /* false on padding */
} Role;

typedef struct Feed { /* fills one input */
  const rt_tensor *input;
  Role role;
  int64_t pad; /* after the end of a document */
  int stream;
  int64_t shift, count; /* numbers of a sample: shift .. shift + count - 1 */
  int64_t ignore;       /* a label that is no index; INT64_MIN: none */
  double scale;         /* of unsigned bytes that feed floats */
  double *mean, *std;   /* over the last dim, `channels` of each; NULL: left as they are */
  int64_t channels;
} Feed;

typedef struct DataSet {
  Stream *stream;
  Feed *feed;
  int nstreams, nfeeds;
  int64_t samples;
  bool asked; /* it was asked for, there may be none of it */
} DataSet;

typedef struct DataOptions {
  const char *train, *valid, *format; /* NULL: from the program's settings */
  int shuffle;                        /* 0, 1; -1: from the settings */
  const char *tokenizer;              /* NULL: from the settings */
} DataOptions;

typedef struct Task { /* what is made of a sequence of tokens; ids: -1 where there is none */
  bool mlm,
      documents; /* documents: one per sample, cut and padded; else windows over all of them */
  int64_t eot, mask_id, pad_id;
  double rate, mask, random; /* of mlm: chosen positions, and what becomes of them */
  int64_t special[64];       /* never chosen */
  int nspecial;
} Task;

typedef struct Data {
  const rt_program *program; /* logical sizes */
  DataSet train, valid;
  bool tasked; /* inputs are made of tokens by `task`; else a column each */
  Task task;
  int64_t batch,
      tokens; /* samples per step; tokens per sample, 0: the model has none, as with images */
  bool shuffle;
  int64_t longest; /* bytes of a sample of an input */
  char *stage;     /* room for one */
  struct MapGuard *guard;
  struct DataAhead *ahead; /* the thread that reads the next batch; NULL: none does */
} Data;

bool rt_data_open(Data *d, const rt_program *p, const DataOptions *o, Fault *f);
/* Fills every input, as far as this rank holds it, with samples cursor .. cursor + batch - 1; in
   the epoch's order if `seed` is not NULL and the data is shuffled. */
bool rt_data_fill(const Data *d, const DataSet *s, const Device *device, int64_t cursor,
                  const uint64_t *seed, Fault *f);
/* For evaluation: `count` samples from `first` on, in file order, `rounds` times, then the first of
   them as often as a batch has room. */
bool rt_data_fill_rows(const Data *d, const DataSet *s, const Device *device, int64_t first,
                       int64_t count, int64_t rounds, Fault *f);
/* Fills the inputs of entry `logits`, of one sample. */
bool rt_data_fill_one(const Data *d, const DataSet *s, const Device *device, int64_t sample,
                      Fault *f);
/* Afterwards rt_data_ahead reads concurrently with the computation (data_prefetch.c). */
bool rt_data_beside(Data *data, const Device *device, Fault *f);
/* Starts reading the batch that rt_data_fill will need at this cursor; the step in between hides
   the time. */
void rt_data_ahead(const Data *data, const DataSet *data_set, int64_t cursor, const uint64_t *seed);
/* The times at which the batch of the last rt_data_fill was read; false: it was not read ahead. */
bool rt_data_read_at(const Data *data, double *begin, double *end);
void rt_data_close(Data *d);
/* A number that differs where other files, or in another order, are read: sizes, begins and ends of
   all files, samples, shuffling. Not their names. */
uint64_t rt_data_identity(const Data *d);
/* The files against the input, or the first input of the task (data_fits.c). */
bool rt_columns_fit(const Stream *stream, const rt_tensor *input, Fault *f);
bool rt_tokens_fit(const Stream *stream, const rt_tensor *input, const char *tokenizer, Fault *f);
/* Tasks (data_task.c, data_window.c). */
typedef struct Window { /* a sample of tokens */
  const DataFile *part;
  int64_t at, count;            /* tokens at .. at + count - 1 of the part's array */
  uint64_t seed, epoch, sample; /* name the random numbers */
} Window;

const char *rt_task_tokenizer(const rt_program *program); /* its file, NULL: none is said */
bool rt_task_read(Task *task, const rt_program *program, Fault *f);
/* Gives every input of the task its role in `data`; false: an input without one, or of another
 * shape. */
bool rt_task_feeds(const Task *task, const rt_program *program, DataSet *data, Fault *f);
bool rt_task_documents(const Task *task, Stream *stream,
                       Fault *f); /* finds them, where they are samples */
bool rt_window_fill(const Task *task, const Feed *feed, const Window *window, void *to, Fault *f);
bool rt_feed_of(const rt_program *p, const rt_tensor *t, int stream, int64_t shift, Feed *e,
                Fault *f);
/* Numbers i .. i + n - 1 as indexes of the input, each checked. */
bool rt_copy_index(const Feed *e, const DataFile *p, int64_t i, int64_t n, int32_t *to, Fault *f);
/* An input of the entries step and eval. */
bool rt_is_data(const rt_tensor *t);
bool rt_is_logits(const rt_tensor *t); /* an input of entry logits */
#endif

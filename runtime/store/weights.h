/* Parameters of the program against the tensors of weights files.

   A Map says under which names, and in which order of dims, a file holds each parameter. There are
   two: the one that was compiled in (settings weights.*), and the plain one, by the parameters' own
   paths. A stacked parameter is one tensor per round in the file, one of experts perhaps one per
   expert: each star of a name is an index; plain files may hold it whole.
   Everything that is copied goes through a Slice: one round of a parameter, seen in the file's
   order. */
#ifndef SHARDC_RT_WEIGHTS_H
#define SHARDC_RT_WEIGHTS_H
#include "runtime/device/device.h"
#include "runtime/base/setting.h"
#include "safetensors.h"

typedef struct Map {
  const rt_program *program;
  bool plain;
  const char *prefix, *ignore; /* ignore: names with blanks between */
} Map;

typedef struct Slice { /* size, stride: in elements, in the file's order */
  int elem, rank;
  int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK];
  bool joined[RT_MAX_RANK]; /* to the dim before, when written */
  char *data;
} Slice;

Map rt_map(const rt_program *p, bool plain);
bool rt_map_there(const rt_program *p); /* was one compiled in? */
/* The weight that an adapter (line `lora` of the train block) adapts; NULL: it is no adapter. */
const char *rt_map_adapter(const rt_program *program, const rt_tensor *tensor);
bool rt_has_adapters(const rt_program *program);
/* Is `item` of a checkpoint an adapter that the model does not have? */
bool rt_lacks_adapter(const rt_program *program, const char *item);
/* Number of tensors of a file that hold it under the names of this choice; 0: no such choice. */
int64_t rt_rounds(const Map *map, const rt_tensor *tensor, int choice);
/* The name of round `round` in files: choice 0 is the one that is written. False: no more names. */
bool rt_map_name(const Map *map, const rt_tensor *tensor, int64_t round, int choice, bool prefixed,
                 char out[RT_NAME]);
/* Is it the name of some round, in some choice, with the prefix or without? */
bool rt_map_takes(const Map *map, const rt_tensor *tensor, const char *name);
bool rt_map_ignores(const Map *map, const char *name);
Slice rt_slice(const Map *map, const Device *d, const rt_tensor *tensor, int choice, int64_t round);
Slice rt_slice_whole(const Device *d,
                     const rt_tensor *tensor); /* with the stacked dims, as declared */
/* The file's shape is the slice's, or joins neighbours of it. */
bool rt_slice_fits(const Slice *slice, const int64_t *size, int rank);
void rt_slice_read(const Slice *slice, int from,
                   const void *data);                /* from: element type of the file */
void rt_slice_write(const Slice *slice, void *data); /* in the slice's own type */
int rt_slice_shape(const Slice *slice,
                   int64_t size[RT_MAX_RANK]); /* when written; returns the rank */
bool rt_slice_dense(const Slice *slice);       /* its data has the order of the file */

/* One file, the files that an index names, or those of a directory. */
typedef struct WeightFiles {
  int n;
  char (*path)[RT_PATH];
  Bytes *bytes;
  SafeFile *file;
} WeightFiles;

/* The files that an index names, each once; true if there are any. */
bool rt_index_read(Bytes text, const char *folder, WeightFiles *files, Fault *f);
/* --init DIR: config.json of the folder says nothing else than the program (config_compare.c). */
bool rt_weights_same_model(const char *path, const rt_program *program, Fault *f);
bool rt_weights_open(const char *path, WeightFiles *files, Fault *f);
void rt_weights_close(WeightFiles *files);
const SafeTensor *rt_weights_find(const WeightFiles *files, const char *name, int *file);
#endif

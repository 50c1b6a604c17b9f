/* The program of tools/gpu-bundle: shared declarations of its parts.

   A part writes rows (JSON, one object a line, to OUT/PART.jsonl) and a table for people (to
   OUT/PART.txt and stdout) as it goes, so its results remain when it fails or is ended. The program
   compiles nothing: the bundle holds PTX, executables and the interpreter. */
#ifndef SHARDC_BENCH_BUNDLE_H
#define SHARDC_BENCH_BUNDLE_H
#include "ir/kernel/tensor_map.h"
#include "runtime/device/cuda/cuda.h"
#include <stdio.h>

typedef struct Child { /* another program */
  int pid, in, out;    /* pipes to its stdin and from its stdout, -1: none */
} Child;

typedef struct Bundle {
  char folder[RT_PATH]; /* folder of the bundle */
  char out[RT_PATH];    /* where results go */
  bool quick;           /* small sizes and few of everything: to try the bundle itself */
  double ends;          /* rt_now() at which the running part is ended */
  FILE *rows, *table;
  Child clocks;     /* nvidia-smi */
  long clocks_read; /* of what it wrote */
} Bundle;

#define PART(name, seconds, what) int part_##name(Bundle *b);
#include "parts.def"
#undef PART

/* Results of parts. SHORT: no fault was found, but the part did not finish. */
enum { PART_GOOD = 0, PART_BAD = 1, PART_SKIPPED = 77, PART_SHORT = 78 };

/* ---- results (results.c) ---- */

/* One row: ROW(b, "{\"kernel\": %s}", QUOTED(name)) */
void put_row(Bundle *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void say(Bundle *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *quoted(const char *text); /* as a JSON string, in new memory */
/* A number of the row of OUT/PART.jsonl whose member `name` is `which`; NaN: there is none. */
double found(const Bundle *b, const char *part, const char *which, const char *member);
char *bundle_path(const Bundle *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool fresh_folder(const Bundle *b, const char *name); /* in OUT; what an earlier run left goes */
char *out_path(const Bundle *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Lines of a file of the bundle without comments, words by spaces, at most 12; n: how many lines.
   NULL: no such file. */
enum { WORDS = 12 };
typedef struct Line {
  char *word[WORDS];
} Line;
Line *read_list(const Bundle *b, const char *name, int *n);

/* ---- other programs (child.c) ---- */

/* Sets the variables by which a launcher tells a child its rank; for a single rank none. */
void child_rank(int rank, int ranks);
/* Its messages go to the file `log`. pipes: with pipes. */
bool child_start(Child *c, char *const *words, const char *folder, const char *log, bool pipes);
/* 0: it ended well; else its status, 128 + signal, or -1 after it was ended at `until`. */
int child_wait(Child *c, double until);
bool child_line(Child *c, char *line, int size, double until); /* false: none came */
void child_stop(Child *c);
void last_words(const char *log, char *out,
                int size); /* the last line of a log that says something */

/* ---- the GPU (gpu.c) ---- */

enum { NEEDS_SM = 80 }; /* the bundle's code needs this or a newer one */

typedef struct Gpu {
  CudaApi api;
  CudaDevice device;
  CUcontext context;
  CUstream stream;
  CUevent from, to;
  char why[1000]; /* of the last failure */
  CUresult last;  /* its result */
} Gpu;

bool gpu_open(Gpu *g, int number);                 /* parts see one, number 0 */
bool gpu_ok(Gpu *g, CUresult e, const char *what); /* fills why */
bool gpu_load(Gpu *g, const char *ptx, CUmodule *m);
/* Loads FOLDER/SYMBOL.cubin, or FOLDER/SYMBOL.ptx if there is no cubin or it is for other GPUs. */
bool gpu_load_file(Gpu *g, const char *folder, const char *symbol, CUmodule *m);
bool gpu_function(Gpu *g, CUmodule m, const char *entry, int64_t shared, CUfunction *f);
typedef struct GpuMaps { /* tensor maps of buffers: a kernel's parameters after addresses */
  int n;
  rt_tensor_map at[RT_KERNEL_MAPS];
} GpuMaps;
/* Each parameter is an address or, after these, a map. maps: NULL if there are none. */
bool gpu_launch(Gpu *g, CUfunction f, int64_t ctas, int threads, int64_t shared, CUdeviceptr *at,
                int n, const GpuMaps *maps);
GpuMaps gpu_maps_of(const Module *m, const Fn *k);
bool gpu_wait(Gpu *g);
void gpu_begin(Gpu *g);
double gpu_end(Gpu *g);          /* seconds since gpu_begin, as the GPU counts; NaN: failed */
double median(double *x, int n); /* sorts x */

/* ---- clocks (clocks.c) ---- */

/* Begins to ask nvidia-smi for clocks, heat and why they are held back, into OUT/clocks.csv. */
void clocks_start(Bundle *b, const char *gpu);
void clocks_stop(Bundle *b);
/* Its readings since the last call, as words for the table and as members of a JSON object ("" if
   there is no nvidia-smi). */
void clocks_since(Bundle *b, char *words, char *members, int size);
#endif

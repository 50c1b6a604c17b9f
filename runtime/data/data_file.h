/* Data files on disk: mapped, and opened as arrays. */
#ifndef SHARDC_RT_DATA_FILE_H
#define SHARDC_RT_DATA_FILE_H
#include "formats.h"

typedef struct Document { /* tokens at .. at + count - 1 of a file */
  int64_t at, count;
} Document;

typedef struct DataFile { /* one file, or the part of it that belongs to the set */
  const char *path;
  Bytes file, index; /* index: Megatron's */
  Array array;
  int64_t low; /* number of the array where the part begins; of `document`: the first of the set */
  int64_t first;      /* index of its first sample in the set */
  Document *document; /* where a document is a sample; NULL: windows */
  int64_t ndocuments;
} DataFile;

/* One file, or Megatron's pair; then all files of a pattern, in name order (data_file.c). Opened
   files must be closed, also after a failure. */
bool rt_part_open(const char *path, const char *format, DataFile *file, Fault *f);
bool rt_parts_open(const char *pattern, const char *format, DataFile **parts, int *n, Fault *f);
void rt_part_close(DataFile *file);
#endif

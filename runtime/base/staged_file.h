/* A large file written once, from beginning to end, with little processor time: bytes are collected
   in an aligned buffer and written past the page cache (O_DIRECT), so that the kernel copies
   nothing while other threads compute. A file system that cannot (tmpfs) gets ordinary writes. */
#ifndef SHARDC_RUNTIME_BASE_STAGED_FILE_H
#define SHARDC_RUNTIME_BASE_STAGED_FILE_H
#include "base.h"

typedef struct StagedFile {
  int fd;         /* the caller's: open for writing, at offset 0; synced and closed by the caller */
  uint8_t *bytes; /* the buffer */
  size_t have;
  bool direct;
} StagedFile;

void rt_stage_begin(StagedFile *file, int fd);
bool rt_stage_put(StagedFile *file, const void *data, int64_t n, Fault *f);
/* Writes the rest if ok, and frees the buffer. False: `ok` was, or the rest cannot be written. */
bool rt_stage_end(StagedFile *file, bool ok, Fault *f);
#endif

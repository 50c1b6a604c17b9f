/* Files: mapped for reading, written completely or not at all. */
#ifndef SHARDC_RT_FILE_H
#define SHARDC_RT_FILE_H
#include "base.h"
#include <stdio.h>

/* Maps a file for reading; code: of the fault if that fails. Empty files give n = 0. */
bool rt_map_file(const char *path, int code, Bytes *bytes, Fault *f);
void rt_unmap_file(Bytes *bytes);
/* Reads what is mapped; false if read() says so or a page cannot be had, *lost is its address. */
typedef struct MapGuard MapGuard;
MapGuard *rt_map_guard(void); /* by rt_alloc */
bool rt_map_read(MapGuard *guard, bool (*read)(void *), void *argument, const void **lost);
bool rt_exists(const char *path);
bool rt_is_folder(const char *path);
bool rt_same_file(const char *a, const char *b); /* by inode; both exist */

bool rt_write_all(int fd, const void *data, int64_t n, Fault *f);
bool rt_make_folders(const char *path, Fault *f); /* and those above it */
bool rt_sync_folder(const char *path, Fault *f);
/* A file being written. A regular or missing file is written under an unpredictable temporary name,
   synced on request, and renamed when it is complete. Any other kind of file (a device, a FIFO, a
   link) is never replaced but written directly. */
typedef struct NewFile {
  int fd;
  const char *path;
  char part[RT_PATH + 32]; /* the temporary file; "": it is written in place */
} NewFile;
bool rt_file_possible(const char *path, Fault *f); /* found out before long work */
bool rt_file_begin(NewFile *file, const char *path, int mode, Fault *f);
/* ok: all was written. False: the temporary file is removed, f has the reason. */
bool rt_file_end(NewFile *file, bool ok, bool sync, Fault *f);
/* All of it at once. */
bool rt_write_file(const char *path, const void *data, int64_t n, bool sync, Fault *f);
void rt_remove_tree(const char *path);

void rt_say(FILE *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));        /* rt_show */
void rt_json_write(FILE *file, const char *text); /* a string in quotes */
void rt_json_real(FILE *file, double v); /* shortest that reads back as float; null if not finite */
#endif

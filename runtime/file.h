/* Files: mapped for reading, written completely or not at all. */
#ifndef SHARDC_RT_FILE_H
#define SHARDC_RT_FILE_H
#include "base.h"
#include <stdio.h>

/* Maps a file for reading; code: of the fault if that fails. Empty files give n = 0. */
bool rt_map_file(const char *path, int code, Bytes *b, Fault *f);
void rt_unmap_file(Bytes *b);
bool rt_exists(const char *path);
bool rt_is_folder(const char *path);

bool rt_write_all(int fd, const void *data, int64_t n, Fault *f);
bool rt_make_folders(const char *path, Fault *f); /* and those above it */
bool rt_sync_folder(const char *path, Fault *f);
/* Writes path by way of a temporary file, sync and rename. */
bool rt_write_file(const char *path, const void *data, int64_t n, bool sync, Fault *f);
void rt_remove_tree(const char *path);

void rt_json_write(FILE *o, const char *text); /* a string in quotes */
void rt_json_real(FILE *o, double v); /* shortest that reads back as float; null if not finite */
#endif

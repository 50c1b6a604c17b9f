/* Packed files of text: gzip and zstd, by the libraries of these formats. */
#ifndef SHARDC_CMD_UNPACK_H
#define SHARDC_CMD_UNPACK_H
#include "runtime/base/base.h"

/* Replaces the bytes of a mapped file by what they unpack to, and cuts the extension off `name`;
   files that are not packed stay as they are. False: damaged, or this build has no such library. */
bool unpack_text(const char *path, Bytes *bytes, char name[RT_PATH], Fault *f);
#endif

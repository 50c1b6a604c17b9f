/* Output files: at any time the file has either its old content or all of the new one. A regular or
   new file is written under an unpredictable temporary name and renamed; a file that is not regular
   (a device, a FIFO, a link) is never replaced but written in place. */
#ifndef SHARDC_OUTPUT_H
#define SHARDC_OUTPUT_H
#include "arena.h"
#include <stdbool.h>
#include <stdio.h>

typedef struct Output {
  int fd;           /* to write to; -1: errno says why there is none */
  const char *path; /* of the user */
  const char *part; /* the temporary file; NULL: it is written in place */
} Output;

/* mode: before the umask, 0666 or 0777. */
bool output_open(Output *output, Arena *arena, const char *path, int mode);
/* good: everything was written. False: errno says why there is no file; no temporary file
   remains. */
bool output_close(Output *output, bool good);
bool output_write(Arena *arena, const char *path, const void *data, size_t n, int mode);
bool output_possible(Arena *arena,
                     const char *path); /* found out before long work; writes nothing */
/* Names, paths and values are other people's bytes: what a terminal would obey is shown as `?`.
   `output_say` does that with all it prints. */
void output_shown(FILE *out, const char *text, size_t n);
void output_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif

/* A line about the work of a command that may take minutes. */
#ifndef SHARDC_PROGRESS_LINE_H
#define SHARDC_PROGRESS_LINE_H
#include "cmd.h"

typedef struct ProgressLine {
  double begun, said; /* seconds of the clock; 0: not yet */
} ProgressLine;

/* Replaces the line, once a second, from the second second on: on a terminal, unless --quiet. */
void progress_say(const Cli *o, ProgressLine *progress, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(const ProgressLine *progress); /* leaves an empty line to what follows */
#endif

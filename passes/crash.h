/* Writes the module that a pass was given if that pass crashes. */
#ifndef SHARDC_PASSES_CRASH_H
#define SHARDC_PASSES_CRASH_H
#include "ir/ir.h"
#include <signal.h>

enum { CRASH_SIGNALS = 5 };

typedef struct CrashNote {
  char path[600], said[1600]; /* file that gets the IR, and the message about it */
  const char *text;           /* the IR before the pass */
  size_t n;
  struct sigaction before[CRASH_SIGNALS];
  stack_t stack_before;
} CrashNote;

CrashNote *crash_begin(Arena *a); /* from now on a signal writes the note */
void crash_note(CrashNote *note, const char *dir, const char *pass, const char *text, size_t n);
bool crash_write(const CrashNote *note);          /* the file, by hand; false: not written */
const char *crash_command(const CrashNote *note); /* shardc opt -p PASS FILE */
void crash_end(CrashNote *note);
#endif

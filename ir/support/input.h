/* Whole text files of unknown origin; names of files in a folder. */
#ifndef SHARDC_INPUT_H
#define SHARDC_INPUT_H
#include "ctx.h"
#include <stdbool.h>

/* The text, in c's arena, with a zero after it; NULL: errno says why. "-" is standard input. A pipe
   is read once, and remembered. */
char *text_read(Ctx *c, const char *path, size_t *n);
bool text_was_read(const Ctx *c, const char *path); /* or noted; under any name */
void text_note(Ctx *c, const char *path);           /* it will be read */

typedef VEC(const char *) FolderNames;
/* The files of the folder whose names end so, in order and without the ending. */
FolderNames files_ending(Arena *a, const char *folder, const char *ending);
#endif

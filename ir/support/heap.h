/* Memory outside of arenas, which its owner frees: for what libc fills. Out of memory ends the
   process with a message, as in arenas. */
#ifndef SHARDC_HEAP_H
#define SHARDC_HEAP_H
#include <stddef.h>
#include <stdio.h>

void *heap_new(size_t n, size_t bytes);    /* zeroed; free() */
FILE *heap_stream(char **text, size_t *n); /* open_memstream */
#endif

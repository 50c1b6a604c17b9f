/* A map from (number, name) to a number: open addressing over the text, so that it does not depend
   on addresses. Entries are never taken out. */
#ifndef SHARDC_NAMES_H
#define SHARDC_NAMES_H
#include "arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct NameMap NameMap;

NameMap *names_new(Arena *a);
void names_put(NameMap *m, uint32_t kind, const char *name, uint32_t value); /* the last one wins */
bool names_find(const NameMap *m, uint32_t kind, const char *name, uint32_t *value);
#endif

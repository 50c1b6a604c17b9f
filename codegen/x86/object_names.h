/* Objects of kernels under another name (object_names.c). */
#ifndef SHARDC_OBJECT_NAMES_H
#define SHARDC_OBJECT_NAMES_H
#include "codegen/device_code.h"

CacheBytes object_named(Arena *arena, CacheBytes code, const char *symbol);
#endif

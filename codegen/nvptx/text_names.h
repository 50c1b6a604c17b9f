/* PTX of kernels under another name (text_names.c). */
#ifndef SHARDC_TEXT_NAMES_H
#define SHARDC_TEXT_NAMES_H
#include "codegen/device_code.h"

CacheBytes text_named(Arena *arena, CacheBytes code, const char *symbol);
#endif

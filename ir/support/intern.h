/* Interned names: equal text, equal pointer. A Str is never freed before its interner's arena and
   is NUL-terminated. Compare with ==, but never order or hash by pointer: output must not depend on
   addresses. */
#ifndef SHARDC_INTERN_H
#define SHARDC_INTERN_H
#include "arena.h"

typedef const char *Str;
typedef struct Interner Interner;

Str intern(Interner *in, const char *text);
Str intern_n(Interner *in, const char *text, size_t n);
Str intern_printf(Interner *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif

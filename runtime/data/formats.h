/* Data formats: pure functions over the bytes of a file. Everything becomes an Array: numbers of
 * one type in rows. */
#ifndef SHARDC_RT_FORMATS_H
#define SHARDC_RT_FORMATS_H
#include "runtime/base/base.h"
#include "runtime/rt.h"

typedef enum NumberKind { NUMBER_UINT, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL } NumberKind;

typedef struct Array {
  const char *format; /* row of formats.def by name */
  const uint8_t *at;  /* first number, not aligned */
  NumberKind kind;
  int width; /* bytes of a number: 1, 2, 4, 8 */
  bool big;  /* big-endian */
  int rank;  /* 0: a plain sequence, whoever uses it gives the shape */
  int64_t size[RT_MAX_RANK], count;
  bool guessed; /* from the name, or as nothing else fits: no header and nobody says it */
  int64_t head; /* bytes before the first number: for positions in messages */
  /* Megatron: bytes where sequences begin; first sequence of each document, and their end */
  const uint8_t *place, *document;
  int64_t sequences, documents; /* entries of the two */
} Array;

/* name: decides between bare formats (.bin, .f32); format: NULL, or the one that the user insists
 * on. */
bool rt_array_open(Bytes file, const char *name, const char *format, Array *array, Fault *f);
/* foreign.c: no magic number of another format, which all formats but `bytes` contradict; and the
 * content is what was guessed. */
bool rt_not_foreign(Bytes file, const char *format, Fault *f);
bool rt_text_holds(Bytes file, const char *name, Fault *f); /* neither numbers, JSON nor UTF-16 */
bool rt_guess_holds(Bytes file, const char *name, const Array *array, Fault *f);
bool rt_megatron_is(Bytes index);
bool rt_megatron_open(Bytes index, Bytes tokens, Array *array, Fault *f); /* megatron.c */
int64_t rt_array_document(const Array *array,
                          int64_t d); /* first number of document d < documents */
bool rt_array_ends(const Array *array,
                   int64_t i); /* does a document end with number i? By the index */
bool rt_format_known(const char *format);
int64_t rt_array_int(const Array *array, int64_t i);
double rt_array_real(const Array *array, int64_t i);
#endif

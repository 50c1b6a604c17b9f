/* Basics for every file of the runtime: faults, names, hashing, time. Knows nothing of models,
   devices or files.

   Functions that can fail return false and fill a Fault; only the commands (train.c, eval.c, ..)
   end the process, with rt_die. So readers stay pure functions over bytes that a fuzzer can call,
   and writers can clean up after a failure. */
#ifndef SHARDC_RT_BASE_H
#define SHARDC_RT_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RT_PATH = 4096, RT_NAME = 256 };

typedef struct Fault {
  int code;                                  /* row of errors.def; 0: no fault */
  int64_t position;                          /* in `unit`s from the start of the file; -1: none */
  const char *unit;                          /* such as byte, token */
  char where[RT_PATH], what[640], help[640]; /* where: file; may be empty */
  bool everywhere,
      quiet; /* all ranks have a fault at this point; this one leaves the words to another */
} Fault;

/* Fills f and returns false, so that a failing function ends with `return rt_fault(..)`. */
bool rt_fault(Fault *f, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool rt_help(Fault *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool rt_at(Fault *f, const char *where, const char *unit,
           int64_t position); /* keeps a position that is already set */
void rt_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line on stderr */
/* Names and values are other people's bytes: what a terminal obeys becomes `?`, in place. */
char *rt_show(char *text);
void rt_print_fault(const Fault *f, const char *severity);
_Noreturn void rt_die(const Fault *f);
_Noreturn void rt_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int rt_exit_status(int code);

/* A range of bytes that it does not own. */
typedef struct Bytes {
  const uint8_t *at;
  int64_t n;
} Bytes;

void *rt_alloc(
    size_t bytes); /* zeroed; ends the process when there is none. Never called inside a step */
bool rt_text_ends(const char *text, const char *end);
char *rt_copy_text(const char *s, size_t n);
char *rt_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* in new memory */
void rt_join(char out[RT_PATH], const char *folder, const char *name);          /* "" if too long */
double rt_now(void);                           /* seconds, monotonic */
int rt_utf8_put(int32_t c, char *out);         /* a character in UTF-8: 1 to 4 bytes */
int rt_distance(const char *a, const char *b); /* edit distance, for "did you mean" */

/* Checksum of files: XXH64 with seed 0, fed in pieces. */
typedef struct Hash {
  uint64_t lane[4], total;
  uint8_t rest[32];
} Hash;
void rt_hash_start(Hash *hash);
void rt_hash_add(Hash *hash, const void *data, size_t n);
uint64_t rt_hash_end(const Hash *hash);
uint64_t rt_hash_of(const void *data, size_t n);

/* Little-endian and big-endian loads from bytes that need not be aligned. */
uint64_t rt_load_le(const uint8_t *p, int bytes);
uint64_t rt_load_be(const uint8_t *p, int bytes);

/* Facts of element types and their arithmetic with doubles; elem is an rt_elem of rt.h. */
int rt_elem_bytes(int elem);
const char *rt_elem_name(int elem);        /* f32, .. */
const char *rt_elem_safetensors(int elem); /* F32, .. */
double rt_elem_get(int elem, const void *base, int64_t i);
void rt_elem_put(int elem, void *base, int64_t i, double v);
#endif

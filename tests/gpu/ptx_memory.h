/* One access of the lanes of a warp, for the instructions that touch memory.
 *
 * Must not: be used before `place` said yes. */
#ifndef TESTS_GPU_PTX_MEMORY_H
#define TESTS_GPU_PTX_MEMORY_H
#include "ptx_read.h"
#include <stdio.h>

typedef struct Access {
  uint64_t address[LANES]; /* of the space */
  uint64_t offset[LANES];  /* into the plane */
  uint8_t *at[LANES];
  Plane *plane; /* NULL: private memory, nothing to check */
  Space space;
  uint32_t bytes; /* of one lane, a power of two */
  bool write, atomic, constant;
  /* results of `place`: all lanes take part, at consecutive addresses or all at the same */
  bool row, same;
  uint64_t low, high; /* addresses of the lowest and highest lane */
} Access;

bool place(Warp *w, const Op *op, uint32_t mask, Access *x); /* false: reported */
/* Lanes in the window of the first one; their addresses and their space into *x. */
uint32_t one_window(uint32_t mask, Access *x, const uint64_t generic[LANES]);
void addresses(const Warp *w, const Op *op, uint64_t out[LANES]);
void decode_address(Reader *r, const Ins *ins, const Arg *a, int32_t *slot, RegKind *kind,
                    int64_t *offset);
bool known_space(const char *part, Space *out);
bool is_ordering(const char *part);
/* check.c: the common cases of touch() for all lanes at once; false: some lane needs the slow way
 */
bool touch_all(Warp *w, const Op *op, uint32_t mask, const Access *x);
void set_written(const Access *x, uint32_t mask);
#endif

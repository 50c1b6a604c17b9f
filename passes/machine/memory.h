/* Shared by the files of pass `memory`. */
#ifndef SHARDC_PASSES_MEMORY_H
#define SHARDC_PASSES_MEMORY_H
#include "passes/base/rebuild.h"

enum { MEMORY_ALIGN = 64 };

typedef struct Block { /* bytes that are needed from op `born` to op `dies`, both included */
  int64_t bytes, born, dies;
  int64_t at; /* the answer */
} Block;

/* Gives every block a place, no two that live at once overlapping. Returns the bytes taken in all.
   Block sizes are rounded up to MEMORY_ALIGN first. */
int64_t memory_pack(Arena *arena, Block *blocks, uint32_t n);
int64_t memory_live(Arena *arena, const Block *blocks,
                    uint32_t n); /* the largest sum of bytes alive at once */

static inline int64_t memory_round(int64_t bytes) {
  return (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}
#endif

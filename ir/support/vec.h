/* Growable arrays that live in an arena: VEC(int) v = {0}; vec_push(arena, v, 3); v.at[0]; v.n.
   Growing copies and leaves the old block to the arena: who pointed into it must not look again
   (the stress build overwrites it). */
#ifndef SHARDC_VEC_H
#define SHARDC_VEC_H
#include "arena.h"
#include <stdint.h>
#include <string.h>

#define VEC(T)                                                                                     \
  struct {                                                                                         \
    T *at;                                                                                         \
    uint32_t n, cap;                                                                               \
  }

/* A larger array for n elements of `bytes` bytes, with the old elements copied. */
void *vec_grown(Arena *arena, void *at, uint32_t n, uint32_t *cap, size_t bytes);

#define vec_push(arena, v, ...)                                                                    \
  do {                                                                                             \
    if ((v).n == (v).cap) (v).at = vec_grown((arena), (v).at, (v).n, &(v).cap, sizeof *(v).at);    \
    (v).at[(v).n++] = (__VA_ARGS__);                                                               \
  } while (0)

#define vec_last(v) ((v).at[(v).n - 1])
#endif

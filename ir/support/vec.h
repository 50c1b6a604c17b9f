/* Growable arrays that live in an arena: VEC(int) v = {0}; vec_push(arena, v, 3); v.at[0]; v.n.
   Growing copies and leaves the old block to the arena. */
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

#define vec_push(arena, v, ...)                                                                    \
  do {                                                                                             \
    if ((v).n == (v).cap) {                                                                        \
      uint32_t cap_ = (v).cap ? (v).cap * 2 : 8;                                                   \
      void *new_ = arena_alloc((arena), sizeof *(v).at * cap_);                                    \
      if ((v).n) memcpy(new_, (v).at, (v).n * sizeof *(v).at);                                     \
      (v).at = new_, (v).cap = cap_;                                                               \
    }                                                                                              \
    (v).at[(v).n++] = (__VA_ARGS__);                                                               \
  } while (0)

#define vec_last(v) ((v).at[(v).n - 1])
#endif

/* Reserves room in a growable array of vec.h. Must not: matter for results; in the stress build
   arrays begin empty, so that they move as they grow. */
#ifndef SHARDC_ROOM_H
#define SHARDC_ROOM_H
#include "vec.h"

/* An array for n elements of `bytes` bytes. */
void *vec_room(Arena *arena, uint32_t n, uint32_t *cap, size_t bytes);

/* For an empty list. */
#define vec_reserve(arena, v, most) ((v).at = vec_room((arena), (most), &(v).cap, sizeof *(v).at))
#endif

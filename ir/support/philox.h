/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers:
   as easy as 1, 2, 3, 2011). A leaf of pure inline functions that the compiler and the runtime
   share; it must not keep state.

   Every random number of a model is a function of seed, key of the tensor, step and logical index
   only, so it does not depend on layout, rank or thread. */
#ifndef SHARDC_PHILOX_H
#define SHARDC_PHILOX_H
#include <stdint.h>

typedef struct Philox {
  uint32_t word[4];
} Philox;

static inline Philox philox_round(Philox c, uint32_t key0, uint32_t key1) {
  uint64_t a = (uint64_t)0xD2511F53u * c.word[0], b = (uint64_t)0xCD9E8D57u * c.word[2];
  return (Philox){{(uint32_t)(b >> 32) ^ c.word[1] ^ key0, (uint32_t)b,
                   (uint32_t)(a >> 32) ^ c.word[3] ^ key1, (uint32_t)a}};
}

static inline Philox philox(Philox counter, uint32_t key0, uint32_t key1) {
  for (int i = 0; i < 10; i++) {
    counter = philox_round(counter, key0, key1);
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return counter;
}

/* Op `rand`: word 0 of the block that belongs to one element. */
static inline uint32_t philox_word(uint64_t seed, uint32_t key, uint32_t step, uint64_t index) {
  Philox counter = {{(uint32_t)index, (uint32_t)(index >> 32), step, (uint32_t)(seed >> 32)}};
  return philox(counter, (uint32_t)seed, key).word[0];
}

/* Uniform in (0, 1): 23 bits and a half, exact in f32, never 0 or 1. */
static inline float philox_uniform(uint64_t seed, uint32_t key, uint32_t step, uint64_t index) {
  return ((float)(philox_word(seed, key, step, index) >> 9) + 0.5f) * 0x1p-23f;
}
#endif

/* Philox4x32-10 and a permutation by a Feistel network over it.

   The permutation of n numbers walks in circles through one of 4^k >= n: six rounds, each half
   xored with a Philox word of the other half; results >= n go round again (fewer than four times on
   average). No table, so 100 GB of tokens cost nothing, and the place of one sample can be asked
   alone: resuming needs the cursor only. */
#include "shuffle.h"

void rt_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int i = 0; i < 10; i++) {
    uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0, c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1, c3 = (uint32_t)a;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

int64_t rt_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i) {
  int bits = 1;
  while (bits < 31 && (int64_t)1 << 2 * bits < n) bits++;
  uint32_t mask = ((uint32_t)1 << bits) - 1;
  do {
    uint32_t left = (uint32_t)(i >> bits) & mask, right = (uint32_t)i & mask;
    for (uint32_t round = 0; round < 6; round++) {
      uint32_t counter[4] = {right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)}, out[4];
      rt_philox(seed, counter, out);
      uint32_t next = left ^ (out[0] & mask);
      left = right, right = next;
    }
    i = (int64_t)left << bits | right;
  } while (i >= n);
  return i;
}

double rt_uniform(uint64_t seed, uint64_t stream, uint64_t i) {
  uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream,
                         (uint32_t)(stream >> 32)},
           out[4];
  rt_philox(seed, counter, out);
  return (double)((uint64_t)out[0] << 21 | out[1] >> 11) / 9007199254740992.0;
}

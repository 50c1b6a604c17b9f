/* XXH64 with seed 0, fed in pieces: four lanes over blocks of 32 bytes, then the rest, then an
   avalanche. Chosen because it keeps up with memory, so that checking a checkpoint costs no more
   than reading it. */
#include "base.h"
#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotate(uint64_t v, int n) { return v << n | v >> (64 - n); }
static uint64_t mix(uint64_t lane, uint64_t word) { return rotate(lane + word * P2, 31) * P1; }
static uint64_t merge(uint64_t h, uint64_t lane) { return (h ^ mix(0, lane)) * P1 + P4; }

static uint64_t word(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

void rt_hash_start(Hash *hash) { *hash = (Hash){.lane = {P1 + P2, P2, 0, -P1}}; }

static const uint8_t *blocks(Hash *hash, const uint8_t *p, size_t n) {
  for (; n >= 32; n -= 32, p += 32)
    for (int i = 0; i < 4; i++) hash->lane[i] = mix(hash->lane[i], word(p + 8 * i));
  return p;
}

void rt_hash_add(Hash *hash, const void *data, size_t n) {
  const uint8_t *p = data;
  size_t have = hash->total % 32;
  hash->total += n;
  if (have) {
    size_t take = n < 32 - have ? n : 32 - have;
    memcpy(hash->rest + have, p, take);
    if (have + take < 32) return;
    blocks(hash, hash->rest, 32);
    p += take, n -= take;
  }
  p = blocks(hash, p, n);
  if (n % 32) memcpy(hash->rest, p, n % 32);
}

uint64_t rt_hash_end(const Hash *hash) {
  uint64_t v = P5;
  if (hash->total >= 32) {
    v = rotate(hash->lane[0], 1) + rotate(hash->lane[1], 7) + rotate(hash->lane[2], 12) +
        rotate(hash->lane[3], 18);
    for (int i = 0; i < 4; i++) v = merge(v, hash->lane[i]);
  }
  v += hash->total;
  const uint8_t *p = hash->rest;
  size_t n = hash->total % 32;
  for (; n >= 8; n -= 8, p += 8) v = rotate(v ^ mix(0, word(p)), 27) * P1 + P4;
  if (n >= 4) v = rotate(v ^ rt_load_le(p, 4) * P1, 23) * P2 + P3, p += 4, n -= 4;
  for (; n; n--, p++) v = rotate(v ^ *p * P5, 11) * P1;
  v = (v ^ v >> 33) * P2;
  v = (v ^ v >> 29) * P3;
  return v ^ v >> 32;
}

uint64_t rt_hash_of(const void *data, size_t n) {
  Hash hash;
  rt_hash_start(&hash);
  rt_hash_add(&hash, data, n);
  return rt_hash_end(&hash);
}

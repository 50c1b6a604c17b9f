/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104) with it, as pure inline functions: keys of the kernel
   cache, and the proof that a process knows a job's secret. Not made for many bytes. */
#ifndef SHARDC_SHA256_H
#define SHARDC_SHA256_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t total;
  uint8_t rest[SHA256_BLOCK];
} Sha256;

static inline uint32_t sha256_turn(uint32_t v, int n) { return v >> n | v << (32 - n); }

static inline void sha256_block(uint32_t state[8], const uint8_t *p) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++, p += 4)
    w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (sha256_turn(a, 7) ^ sha256_turn(a, 18) ^ a >> 3) + w[i - 7] +
           (sha256_turn(b, 17) ^ sha256_turn(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t e = s[4], a = s[0];
    uint32_t t = s[7] + (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25)) +
                 ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
    uint32_t u = (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22)) +
                 ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t, s[0] = t + u;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

static inline Sha256 sha256_begin(void) {
  return (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

static inline void sha256_add(Sha256 *sha256, const void *data, size_t n) {
  const uint8_t *p = data;
  size_t held = sha256->total % SHA256_BLOCK;
  sha256->total += n;
  for (; n; held = 0) {
    size_t part = n < SHA256_BLOCK - held ? n : SHA256_BLOCK - held;
    memcpy(sha256->rest + held, p, part);
    p += part, n -= part;
    if (held + part < SHA256_BLOCK) return;
    sha256_block(sha256->state, sha256->rest);
  }
}

static inline void sha256_end(Sha256 sha256, uint8_t out[SHA256_BYTES]) {
  uint8_t pad[SHA256_BLOCK + 8] = {0x80}, length[8];
  uint64_t bits = sha256.total * 8;
  size_t held = sha256.total % SHA256_BLOCK, fill = held < 56 ? 56 - held : 120 - held;
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(&sha256, pad, fill);
  sha256_add(&sha256, length, sizeof length);
  for (int i = 0; i < SHA256_BYTES; i++)
    out[i] = (uint8_t)(sha256.state[i / 4] >> (24 - 8 * (i % 4)));
}

/* The HMAC of two texts, a followed by b. */
static inline void hmac_sha256(const uint8_t key[SHA256_BYTES], const void *a, size_t na,
                               const void *b, size_t nb, uint8_t out[SHA256_BYTES]) {
  uint8_t inner[SHA256_BLOCK], outer[SHA256_BLOCK];
  memset(inner, 0x36, sizeof inner), memset(outer, 0x5c, sizeof outer);
  for (int i = 0; i < SHA256_BYTES; i++) inner[i] ^= key[i], outer[i] ^= key[i];
  Sha256 sha256 = sha256_begin();
  sha256_add(&sha256, inner, sizeof inner), sha256_add(&sha256, a, na), sha256_add(&sha256, b, nb);
  sha256_end(sha256, out);
  sha256 = sha256_begin();
  sha256_add(&sha256, outer, sizeof outer), sha256_add(&sha256, out, SHA256_BYTES);
  sha256_end(sha256, out);
}
#endif

/* Rounding between f32 and the 16-bit floats, to nearest even. A leaf of pure inline functions that
   the compiler and the runtime share. NaN stays NaN (quiet), values that are too large become
   infinite, subnormal f16 are kept. */
#ifndef SHARDC_NUMBERS_H
#define SHARDC_NUMBERS_H
#include <stdint.h>
#include <string.h>

typedef union NumberBits { /* a number of any element type, as it is in memory */
  float f;
  double d;
  uint16_t h;
  int32_t i;
  int64_t l;
  uint8_t b;
} NumberBits;

static inline uint32_t f32_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float f32_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline uint16_t bf16_from_f32(float f) {
  uint32_t u = f32_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float f32_from_bf16(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }

static inline uint16_t f16_from_f32(float f) {
  uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
  if (a < 0x38800000u) /* below 2^-14: the float adder rounds to multiples of 2^-24 */
    return (uint16_t)(sign | (f32_bits(f32_of_bits(a) + 0.5f) - f32_bits(0.5f)));
  return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13));
}

static inline float f32_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return f32_of_bits(sign | 0x7f800000u | m << 13);
  if (e == 0) return f32_of_bits(f32_bits((float)m * 0x1p-24f) | sign);
  return f32_of_bits(sign | (e + 112) << 23 | m << 13);
}
#endif

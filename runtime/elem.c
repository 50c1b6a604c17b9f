/* Element types: sizes, names, and reading and writing one element as a double (readers, dumps,
 * guards; never kernels). */
#include "base.h"
#include "rt.h"
#include <math.h>
#include <string.h>

static const struct {
  int bytes;
  const char *name, *safetensors;
} elems[] = {
    [RT_F32] = {4, "f32", "F32"},    [RT_BF16] = {2, "bf16", "BF16"}, [RT_F16] = {2, "f16", "F16"},
    [RT_F64] = {8, "f64", "F64"},    [RT_I32] = {4, "i32", "I32"},    [RT_I64] = {8, "i64", "I64"},
    [RT_BOOL] = {1, "bool", "BOOL"},
};

int rt_elem_bytes(int elem) { return elems[elem].bytes; }
const char *rt_elem_name(int elem) { return elems[elem].name; }
const char *rt_elem_safetensors(int elem) { return elems[elem].safetensors; }

static float from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint32_t to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static double half_get(uint16_t h) {
  int exponent = h >> 10 & 31;
  double fraction = h & 1023, sign = h >> 15 ? -1 : 1;
  if (exponent == 31)
    return from_bits((uint32_t)(h >> 15) << 31 | 0x7f800000 | (uint32_t)(h & 1023) << 13);
  double v = exponent ? 1 + fraction / 1024 : fraction / 512;
  for (; exponent > 15; exponent--) v *= 2;
  for (; exponent < 15; exponent++) v /= 2;
  return sign * v;
}

/* Round to nearest even, by the bits of the float. */
static uint16_t half_put(float f) {
  uint32_t b = to_bits(f), sign = b >> 16 & 0x8000, m = b & 0x7fffffff;
  if (m > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (m >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (m < 0x38800000) return (uint16_t)(sign | (to_bits(from_bits(m) + 0.5f) - 0x3f000000));
  return (uint16_t)(sign | ((m + 0xfff + (m >> 13 & 1) - 0x38000000) >> 13));
}

static uint16_t bfloat_put(float f) {
  uint32_t b = to_bits(f);
  if ((b & 0x7fffffff) > 0x7f800000) return (uint16_t)(b >> 16 | 64);
  return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

double rt_elem_get(int elem, const void *base, int64_t i) {
  const char *p = (const char *)base + i * elems[elem].bytes;
  union {
    float f;
    double d;
    uint16_t h;
    int32_t i;
    int64_t l;
    uint8_t b;
  } u;
  memcpy(&u, p, (size_t)elems[elem].bytes);
  switch ((rt_elem)elem) {
  case RT_F32: return u.f;
  case RT_BF16: return from_bits((uint32_t)u.h << 16);
  case RT_F16: return half_get(u.h);
  case RT_F64: return u.d;
  case RT_I32: return u.i;
  case RT_I64: return (double)u.l;
  case RT_BOOL: return u.b != 0;
  }
  return 0;
}

void rt_elem_put(int elem, void *base, int64_t i, double v) {
  char *p = (char *)base + i * elems[elem].bytes;
  union {
    float f;
    double d;
    uint16_t h;
    int32_t i;
    int64_t l;
    uint8_t b;
  } u = {.d = 0};
  switch ((rt_elem)elem) {
  case RT_F32: u.f = (float)v; break;
  case RT_BF16: u.h = bfloat_put((float)v); break;
  case RT_F16: u.h = half_put((float)v); break;
  case RT_F64: u.d = v; break;
  case RT_I32: u.i = (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, v)); break;
  case RT_I64: u.l = (int64_t)fmax(-9e18, fmin(9e18, v)); break;
  case RT_BOOL: u.b = v != 0; break;
  }
  memcpy(p, &u, (size_t)elems[elem].bytes);
}

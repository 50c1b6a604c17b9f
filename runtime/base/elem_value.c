/* Element types: sizes, names, and reading and writing one element as a double (readers, dumps,
 * guards; never kernels). */
#include "base.h"
#include "ir/support/numbers.h"
#include "ir/support/num.h"
#include "runtime/rt.h"
#include <math.h>
#include <string.h>

static const struct {
  int bytes;
  const char *name, *safetensors;
} elems[] = {
    [RT_F32] = {4, "f32", "F32"},    [RT_BF16] = {2, "bf16", "BF16"}, [RT_F16] = {2, "f16", "F16"},
    [RT_F64] = {8, "f64", "F64"},    [RT_I32] = {4, "i32", "I32"},    [RT_I64] = {8, "i64", "I64"},
    [RT_BOOL] = {1, "bool", "BOOL"}, [RT_U8] = {1, "u8", "U8"},
};
_Static_assert(COUNT_OF(elems) == RT_U8 + 1, "a row per rt_elem");
_Static_assert(sizeof(NumberBits) == 8, "an element of any type fits");

int rt_elem_bytes(int elem) { return elems[elem].bytes; }
const char *rt_elem_name(int elem) { return elems[elem].name; }
const char *rt_elem_safetensors(int elem) { return elems[elem].safetensors; }

double rt_elem_get(int elem, const void *base, int64_t i) {
  const char *p = (const char *)base + i * elems[elem].bytes;
  NumberBits bits;
  memcpy(&bits, p, (size_t)elems[elem].bytes);
  switch ((rt_elem)elem) {
  case RT_F32: return bits.f;
  case RT_BF16: return f32_from_bf16(bits.h);
  case RT_F16: return f32_from_f16(bits.h);
  case RT_F64: return bits.d;
  case RT_I32: return bits.i;
  case RT_I64: return (double)bits.l;
  case RT_BOOL: return bits.b != 0;
  case RT_U8: return bits.b;
  }
  return 0;
}

void rt_elem_put(int elem, void *base, int64_t i, double v) {
  char *p = (char *)base + i * elems[elem].bytes;
  NumberBits bits = {.d = 0};
  switch ((rt_elem)elem) {
  case RT_F32: bits.f = (float)v; break;
  case RT_BF16: bits.h = bf16_from_f32((float)v); break;
  case RT_F16: bits.h = f16_from_f32((float)v); break;
  case RT_F64: bits.d = v; break;
  case RT_I32: bits.i = (int32_t)fmax(INT32_MIN, fmin(INT32_MAX, v)); break;
  case RT_I64: bits.l = (int64_t)fmax(-9e18, fmin(9e18, v)); break;
  case RT_BOOL: bits.b = v != 0; break;
  case RT_U8: bits.b = (unsigned char)(v > 0 ? fmin(v, 255) : 0); break;
  }
  memcpy(p, &bits, (size_t)elems[elem].bytes);
}

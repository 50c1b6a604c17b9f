/* Reductions of communicators that compute for themselves (local). Tiles keep the running sums in
   the first cache. A maximum with NaN is NaN. Must not: reorder; the order of ranks is the order of
   additions, that is what makes results the same everywhere and every time. */
#include "reduce_ranks.h"
#include "ir/support/numbers.h"
#include "runtime/rt.h"
#include <string.h>

enum { TILE = 2048 };

#define REDUCE_OF(name, type, larger)                                                              \
  static void name(type *out, const void *const *in, int n, int64_t from, int64_t count,           \
                   int largest) {                                                                  \
    memcpy(out, (const type *)in[0] + from, (size_t)count * sizeof *out);                          \
    for (int k = 1; k < n; k++) {                                                                  \
      const type *x = (const type *)in[k] + from;                                                  \
      if (largest)                                                                                 \
        for (int64_t i = 0; i < count; i++) out[i] = (larger) ? x[i] : out[i];                     \
      else                                                                                         \
        for (int64_t i = 0; i < count; i++) out[i] = (type)(out[i] + x[i]);                        \
    }                                                                                              \
  }
REDUCE_OF(reduce_f32, float, x[i] > out[i] || x[i] != x[i])
REDUCE_OF(reduce_f64, double, x[i] > out[i] || x[i] != x[i])
REDUCE_OF(reduce_i32, int32_t, x[i] > out[i])
REDUCE_OF(reduce_i64, int64_t, x[i] > out[i])
REDUCE_OF(reduce_u8, uint8_t, x[i] > out[i])
#undef REDUCE_OF

typedef float Widen(uint16_t);
typedef uint16_t Narrow(float);

static void reduce_16(uint16_t *out, const void *const *in, int n, int64_t from, int64_t count,
                      int largest, Widen *widen, Narrow *narrow) {
  float sum[TILE];
  for (int64_t i = 0; i < count; i++) sum[i] = widen(((const uint16_t *)in[0])[from + i]);
  for (int k = 1; k < n; k++)
    for (int64_t i = 0; i < count; i++) {
      float x = widen(((const uint16_t *)in[k])[from + i]);
      sum[i] = !largest ? sum[i] + x : x > sum[i] || x != x ? x : sum[i];
    }
  for (int64_t i = 0; i < count; i++) out[i] = narrow(sum[i]);
}

static void reduce_tile(int elem, int largest, char *out, const void *const *in, int n,
                        int64_t from, int64_t count) {
  switch ((rt_elem)elem) {
  case RT_F32: reduce_f32((float *)out + from, in, n, from, count, largest); break;
  case RT_F64: reduce_f64((double *)out + from, in, n, from, count, largest); break;
  case RT_I32: reduce_i32((int32_t *)out + from, in, n, from, count, largest); break;
  case RT_I64: reduce_i64((int64_t *)out + from, in, n, from, count, largest); break;
  case RT_BOOL: reduce_u8((uint8_t *)out + from, in, n, from, count, 1); break;
  case RT_U8: reduce_u8((uint8_t *)out + from, in, n, from, count, largest); break;
  case RT_BF16:
    reduce_16((uint16_t *)out + from, in, n, from, count, largest, f32_from_bf16, bf16_from_f32);
    break;
  case RT_F16:
    reduce_16((uint16_t *)out + from, in, n, from, count, largest, f32_from_f16, f16_from_f32);
    break;
  }
}

void rt_reduce(int elem, int reduction, void *out, const void *const *in, int n, int64_t count) {
  for (int64_t i = 0; i < count; i += TILE)
    reduce_tile(elem, reduction == RT_MAX, out, in, n, i, count - i < TILE ? count - i : TILE);
}

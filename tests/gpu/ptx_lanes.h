/* Tools to write lane-wise instructions: one row, one loop over the lanes of a warp.
 *
 * A row's name is its spelling in PTX with `_` for `.`; its registers' kinds follow from its C
 * types. Loops have no dependence between lanes (a register that is read and written is read and
 * written at the same lane), which the compiler is told.
 *
 * Must not: know masks. The caller blends. */
#ifndef TESTS_GPU_PTX_LANES_H
#define TESTS_GPU_PTX_LANES_H
#include <math.h>
#include "ptx_inside.h"
#include <string.h>

typedef struct LaneRow {
  const char *key; /* spelling with _ for . */
  Lanes *run;
  uint8_t args;
  uint8_t kinds[5]; /* of the result, then of the operands */
} LaneRow;

/* The tables, each ended by a row without key. */
extern const LaneRow int_rows[], pred_rows[], compare_rows[], float_rows[], double_rows[],
    half_rows[], round_rows[], convert_rows[];

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

#define KIND(T) (sizeof(T) == 2 ? REG_16 : sizeof(T) == 4 ? REG_32 : REG_64)
#ifdef __clang__
#define EACH_LANE _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < LANES; i++)
#else
#define EACH_LANE _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#endif
#define LANE_ARGS void *dp, const void *ap, const void *bp, const void *cp, const void *ep
#define UNUSED_ARGS (void)ap, (void)bp, (void)cp, (void)ep

/* Functions of lanes: result type, operand types, expression over a, b, c, e. */
#define LANE_FN1(NAME, D, A, EXPR)                                                                 \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    D *dv = dp;                                                                                    \
    const A *av = ap;                                                                              \
    EACH_LANE {                                                                                    \
      A a = av[i];                                                                                 \
      dv[i] = (D)(EXPR);                                                                           \
    }                                                                                              \
  }
#define LANE_FN2(NAME, D, A, B, EXPR)                                                              \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    D *dv = dp;                                                                                    \
    const A *av = ap;                                                                              \
    const B *bv = bp;                                                                              \
    EACH_LANE {                                                                                    \
      A a = av[i];                                                                                 \
      B b = bv[i];                                                                                 \
      dv[i] = (D)(EXPR);                                                                           \
    }                                                                                              \
  }
#define LANE_FN3(NAME, D, A, B, C, EXPR)                                                           \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    D *dv = dp;                                                                                    \
    const A *av = ap;                                                                              \
    const B *bv = bp;                                                                              \
    const C *cv = cp;                                                                              \
    EACH_LANE {                                                                                    \
      A a = av[i];                                                                                 \
      B b = bv[i];                                                                                 \
      C c = cv[i];                                                                                 \
      dv[i] = (D)(EXPR);                                                                           \
    }                                                                                              \
  }
#define LANE_FN4(NAME, D, A, B, C, E, EXPR)                                                        \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    D *dv = dp;                                                                                    \
    const A *av = ap;                                                                              \
    const B *bv = bp;                                                                              \
    const C *cv = cp;                                                                              \
    const E *ev = ep;                                                                              \
    EACH_LANE {                                                                                    \
      A a = av[i];                                                                                 \
      B b = bv[i];                                                                                 \
      C c = cv[i];                                                                                 \
      E e = ev[i];                                                                                 \
      dv[i] = (D)(EXPR);                                                                           \
    }                                                                                              \
  }
/* A comparison: bits of a predicate. */
#define LANE_TEST(NAME, A, EXPR)                                                                   \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    const A *av = ap, *bv = bp ? bp : ap;                                                          \
    u32 bits = 0;                                                                                  \
    for (int i = 0; i < LANES; i++) {                                                              \
      A a = av[i], b = bv[i];                                                                      \
      bits |= (u32)(EXPR) << i;                                                                    \
    }                                                                                              \
    *(u32 *)dp = bits;                                                                             \
  }
#define ROW1(NAME, D, A, KEY) {KEY, NAME, 1, {KIND(D), KIND(A)}},
#define ROW2(NAME, D, A, B, KEY) {KEY, NAME, 2, {KIND(D), KIND(A), KIND(B)}},
#define ROW3(NAME, D, A, B, C, KEY) {KEY, NAME, 3, {KIND(D), KIND(A), KIND(B), KIND(C)}},
#define ROW4(NAME, D, A, B, C, E, KEY)                                                             \
  {KEY, NAME, 4, {KIND(D), KIND(A), KIND(B), KIND(C), KIND(E)}},
#define ROW_TEST(NAME, A, KEY) {KEY, NAME, 2, {REG_PRED, KIND(A), KIND(A)}},

static inline float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static inline uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}
/* Subnormals to zero of their sign. */
static inline float flushed(float f) {
  uint32_t u = bits_of(f);
  return float_of((u & 0x7f800000u) ? u : u & 0x80000000u);
}
static inline float bf16_to_float(uint16_t h) { return float_of((uint32_t)h << 16); }
static inline uint16_t float_to_bf16(float f) {
  uint32_t u = bits_of(f);
  uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}
/* e4m3: 8 bits, of which four are exponent and three fraction; no infinities; NaN is 0x7f. */
static inline float e4m3_to_float(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  float size =
      exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
  if ((code & 0x7f) == 0x7f) size = NAN;
  return code & 0x80 ? -size : size;
}
/* The code of the nearest number, ties to even. The smallest normal number is 2^least; `most`: the
 * code of the largest. */
static inline uint8_t float_to_eights(float f, int mantissa, int least, uint8_t most) {
  uint8_t sign = bits_of(f) >> 24 & 0x80;
  if (f != f) return sign | 0x7f;
  if (!(fabsf(f) < 65536)) return sign | most;
  int exponent = f != 0 && ilogbf(f) > least ? ilogbf(f) : least;
  int units = (int)nearbyintf(ldexpf(fabsf(f), mantissa - exponent));
  int code = ((exponent - least) << mantissa) + units;
  return sign | (uint8_t)(code < most ? code : most);
}
static inline uint8_t float_to_e4m3(float f) { return float_to_eights(f, 3, -6, 0x7e); }
static inline uint8_t float_to_e5m2(float f) { return float_to_eights(f, 2, -14, 0x7b); }
static inline float f16_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  float small = (float)mantissa * 0x1p-24f;
  uint32_t bits = exponent == 31 ? 0x7f800000 | mantissa << 13
                  : exponent     ? (exponent + 112) << 23 | mantissa << 13
                                 : bits_of(small);
  return float_of(bits | sign);
}
/* Nearest, ties to even. Below 2^-14 the sum with 0.5 rounds at the last bit of a half. */
static inline uint16_t float_to_f16(float f) {
  uint32_t all = bits_of(f), sign = all >> 16 & 0x8000, x = all & 0x7fffffff;
  uint32_t low = bits_of(float_of(x) + 0.5f) - 0x3f000000;
  uint32_t normal = (x - 0x38000000 + 0xfff + (x >> 13 & 1)) >> 13;
  uint32_t h = x > 0x7f800000    ? 0x7fff
               : x >= 0x47800000 ? 0x7c00 | sign
               : x < 0x38800000  ? low | sign
                                 : normal | sign;
  return (uint16_t)h;
}
#endif

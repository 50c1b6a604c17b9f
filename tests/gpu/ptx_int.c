/* Lane-wise instructions on integers, bits and predicates: the functions and tables of ptx_int.def.
 *
 * Semantics that bite: shifts clamp their counts, shf.wrap masks them; bfe and bfi read 8 bits of
 * position and length; division by zero gives all ones; prmt replicates a sign by bit 3 of a
 * selector. Arithmetic is unsigned wherever it may wrap.
 *
 * Must not: touch memory or masks. */
#include "ptx_lanes.h"

#define U64S(x) ((u64)(x))
static inline u64 reversed(u64 v) {
  u64 r = 0;
  for (int i = 0; i < 64; i++) r |= (v >> i & 1) << (63 - i);
  return r;
}
static inline u32 highest(u64 v) { return v ? 63 - (u32)__builtin_clzll(v) : ~0u; }

static inline u64 extracted(u64 a, u32 b, u32 c, int width, bool sign) {
  u32 from = b & 255, n = c & 255, last = (u32)width - 1;
  if (n == 0) return 0;
  u32 top = from + n - 1 < last ? from + n - 1 : last;
  u64 fill = sign && a >> top & 1 ? ~U64S(0) : 0;
  u64 low = from > last ? 0 : a >> from;
  u32 have = from > last ? 0 : top - from + 1;
  if (have == 0) return fill;
  u64 keep = have > 63 ? ~U64S(0) : (U64S(1) << have) - 1;
  return (low & keep) | (fill & ~keep);
}

static inline u64 inserted(u64 a, u64 b, u32 c, u32 e, int width) {
  u32 at = c & 255, n = e & 255;
  if (n == 0 || at >= (u32)width) return b;
  if (at + n > (u32)width) n = (u32)width - at;
  u64 keep = (n > 63 ? ~U64S(0) : (U64S(1) << n) - 1) << at;
  return (b & ~keep) | (a << at & keep);
}

static inline u32 permuted(u64 bytes, u32 select) {
  u32 r = 0;
  for (int i = 0; i < 4; i++) {
    u32 s = select >> 4 * i & 15, byte = (u32)(bytes >> 8 * (s & 7)) & 255;
    r |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return r;
}

static inline u32 nth_set(u32 mask, u32 base, s32 offset) {
  int step = offset < 0 ? -1 : 1, left = offset < 0 ? -offset : offset;
  if (offset == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  for (int p = (int)(base & 31); p >= 0 && p < 32; p += step)
    if ((mask >> p & 1) && --left == 0) return (u32)p;
  return ~0u;
}

static inline u32 looked_up(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  for (int k = 0; k < 8; k++)
    if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return r;
}

static inline u32 dot4(u32 a, u32 b, s32 c) {
  u32 r = (u32)c;
  for (int k = 0; k < 4; k++) r += (u32)((s8)(a >> 8 * k) * (s8)(b >> 8 * k));
  return r;
}

/* ---- the functions ---- */
#define TYPED1(NAME, X, Y, WIDTH, DOUBLE, EXPR)                                                    \
  static inline X NAME##_lane(X a) {                                                               \
    typedef Y U;                                                                                   \
    (void)sizeof(U);                                                                               \
    return (X)(EXPR);                                                                              \
  }                                                                                                \
  LANE_FN1(NAME, X, X, NAME##_lane(a))
#define TYPED2(NAME, X, Y, WIDTH, DOUBLE, EXPR)                                                    \
  static inline X NAME##_lane(X a, X b) {                                                          \
    typedef X T;                                                                                   \
    typedef Y U;                                                                                   \
    typedef DOUBLE WIDE;                                                                           \
    enum { W = WIDTH };                                                                            \
    (void)sizeof(T), (void)sizeof(U), (void)sizeof(WIDE), (void)W;                                 \
    return (X)(EXPR);                                                                              \
  }                                                                                                \
  LANE_FN2(NAME, X, X, X, NAME##_lane(a, b))
#define TYPED3(NAME, X, Y, WIDTH, DOUBLE, EXPR)                                                    \
  static inline X NAME##_lane(X a, X b, X c) {                                                     \
    typedef Y U;                                                                                   \
    typedef DOUBLE WIDE;                                                                           \
    enum { W = WIDTH };                                                                            \
    (void)sizeof(U), (void)sizeof(WIDE), (void)W;                                                  \
    return (X)(EXPR);                                                                              \
  }                                                                                                \
  LANE_FN3(NAME, X, X, X, X, NAME##_lane(a, b, c))
#define SAME(N, OP, EXPR)                                                                          \
  TYPED##N(OP##_u16, u16, u16, 16, u32, EXPR) TYPED##N(OP##_u32, u32, u32, 32, u64, EXPR)          \
      TYPED##N(OP##_u64, u64, u64, 64, unsigned __int128, EXPR)
#define SIGN(N, OP, EXPR)                                                                          \
  SAME(N, OP, EXPR)                                                                                \
  TYPED##N(OP##_s16, s16, u16, 16, s32, EXPR) TYPED##N(OP##_s32, s32, u32, 32, s64, EXPR)          \
      TYPED##N(OP##_s64, s64, u64, 64, __int128, EXPR)
#define BITS(N, OP, EXPR)                                                                          \
  TYPED##N(OP##_b16, u16, u16, 16, u32, EXPR) TYPED##N(OP##_b32, u32, u32, 32, u64, EXPR)          \
      TYPED##N(OP##_b64, u64, u64, 64, unsigned __int128, EXPR)
#define ONE1(NAME, D, A, EXPR) LANE_FN1(NAME, D, A, EXPR)
#define ONE2(NAME, D, A, B, EXPR) LANE_FN2(NAME, D, A, B, EXPR)
#define ONE3(NAME, D, A, B, C, EXPR) LANE_FN3(NAME, D, A, B, C, EXPR)
#define ONE4(NAME, D, A, B, C, E, EXPR) LANE_FN4(NAME, D, A, B, C, E, EXPR)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits" /* abs and division of both signs share a text */
#include "ptx_int.def"
#pragma GCC diagnostic pop
#undef SAME
#undef SIGN
#undef BITS
#undef ONE1
#undef ONE2
#undef ONE3
#undef ONE4

/* ---- the table ---- */
#define PLAIN1(NAME, X, KEY) ROW1(NAME, X, X, KEY)
#define PLAIN2(NAME, X, KEY) ROW2(NAME, X, X, X, KEY)
#define PLAIN3(NAME, X, KEY) ROW3(NAME, X, X, X, X, KEY)
#define UNSIGNED_ROWS(N, OP)                                                                       \
  PLAIN##N(OP##_u16, u16, #OP "_u16") PLAIN##N(OP##_u32, u32, #OP "_u32")                          \
      PLAIN##N(OP##_u64, u64, #OP "_u64")
#define SAME(N, OP, EXPR)                                                                          \
  UNSIGNED_ROWS(N, OP)                                                                             \
  PLAIN##N(OP##_u16, u16, #OP "_s16") PLAIN##N(OP##_u32, u32, #OP "_s32")                          \
      PLAIN##N(OP##_u64, u64, #OP "_s64")
#define SIGN(N, OP, EXPR)                                                                          \
  UNSIGNED_ROWS(N, OP)                                                                             \
  PLAIN##N(OP##_s16, s16, #OP "_s16") PLAIN##N(OP##_s32, s32, #OP "_s32")                          \
      PLAIN##N(OP##_s64, s64, #OP "_s64")
#define BITS(N, OP, EXPR)                                                                          \
  PLAIN##N(OP##_b16, u16, #OP "_b16") PLAIN##N(OP##_b32, u32, #OP "_b32")                          \
      PLAIN##N(OP##_b64, u64, #OP "_b64")
#define ONE1(NAME, D, A, EXPR) ROW1(NAME, D, A, #NAME)
#define ONE2(NAME, D, A, B, EXPR) ROW2(NAME, D, A, B, #NAME)
#define ONE3(NAME, D, A, B, C, EXPR) ROW3(NAME, D, A, B, C, #NAME)
#define ONE4(NAME, D, A, B, C, E, EXPR) ROW4(NAME, D, A, B, C, E, #NAME)
const LaneRow int_rows[] = {
#include "ptx_int.def"
    {0}};

/* ---- predicates: one word for all lanes ---- */
#define PREDICATE(NAME, EXPR)                                                                      \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    u32 a = *(const u32 *)ap, b = bp ? *(const u32 *)bp : 0;                                       \
    (void)b;                                                                                       \
    *(u32 *)dp = (EXPR);                                                                           \
  }
PREDICATE(and_pred, a &b)
PREDICATE(or_pred, a | b)
PREDICATE(xor_pred, a ^ b)
PREDICATE(not_pred, ~a)
PREDICATE(mov_pred, a)
#define CHOOSE(T, NAME)                                                                            \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    T *dv = dp;                                                                                    \
    const T *av = ap, *bv = bp;                                                                    \
    u32 p = *(const u32 *)cp;                                                                      \
    EACH_LANE { dv[i] = p >> i & 1 ? av[i] : bv[i]; }                                              \
  }
CHOOSE(u16, selp_16)
CHOOSE(u32, selp_32)
CHOOSE(u64, selp_64)
#define SELP(T, W, KEY) {KEY, selp_##W, 3, {KIND(T), KIND(T), KIND(T), REG_PRED}},
#define PRED2(NAME) {#NAME, NAME, 2, {REG_PRED, REG_PRED, REG_PRED}},
#define PRED1(NAME) {#NAME, NAME, 1, {REG_PRED, REG_PRED}},
const LaneRow pred_rows[] = {
    PRED2(and_pred) PRED2(or_pred) PRED2(xor_pred) PRED1(not_pred) PRED1(mov_pred)
    /* clang-format off */
    SELP(u16, 16, "selp_b16") SELP(u16, 16, "selp_u16") SELP(u16, 16, "selp_s16")
    SELP(u32, 32, "selp_b32") SELP(u32, 32, "selp_u32") SELP(u32, 32, "selp_s32")
    SELP(u32, 32, "selp_f32")
    SELP(u64, 64, "selp_b64") SELP(u64, 64, "selp_u64") SELP(u64, 64, "selp_s64")
    SELP(u64, 64, "selp_f64")
    /* clang-format on */
    {0}};

/* Exact arithmetic for the interpreter: see field.h. */
#include "field.h"
#include <math.h>
#include <string.h>

enum { BITS = 51, REST = 129 }; /* the prime is 2^51 - 129 */
static const uint64_t PRIME = ((uint64_t)1 << BITS) - REST;

static bool is_element(double x) { return isfinite(x); }
static uint64_t number(double x) { return (uint64_t)x; }

/* 2^51 is REST modulo the prime. */
static uint64_t reduce(unsigned __int128 x) {
  while (x >> BITS) x = (x & (((uint64_t)1 << BITS) - 1)) + (x >> BITS) * REST;
  return (uint64_t)x >= PRIME ? (uint64_t)x - PRIME : (uint64_t)x;
}

static uint64_t product(uint64_t a, uint64_t b) { return reduce((unsigned __int128)a * b); }

static uint64_t power(uint64_t a, uint64_t n) {
  uint64_t result = 1;
  for (; n; n >>= 1, a = product(a, a))
    if (n & 1) result = product(result, a);
  return result;
}

/* x 2^e modulo the prime; for a negative e by Montgomery's reduction: a multiple of the prime makes
   the last digits 0, which are then cut off. */
static uint64_t scaled(uint64_t x, int e) {
  const uint64_t against = 0x790603f80fe03f81u; /* -1 / PRIME modulo 2^64 */
  for (int n; e > 0; e -= n) n = e < BITS ? e : BITS - 1, x = product(x, (uint64_t)1 << n);
  for (int n; e < 0; e += n) {
    n = -e < BITS ? -e : BITS - 1;
    uint64_t times = x * against & (((uint64_t)1 << n) - 1);
    x = reduce(((unsigned __int128)times * PRIME + x) >> n);
  }
  return x;
}

/* By Euclid's algorithm: a = factor_a x and b = factor_b x modulo the prime; 0 for 0. */
static uint64_t inverse(uint64_t x) {
  int64_t a = (int64_t)PRIME, b = (int64_t)x, factor_a = 0, factor_b = 1;
  while (b) {
    int64_t times = a / b, rest = a - times * b, factor = factor_a - times * factor_b;
    a = b, b = rest, factor_a = factor_b, factor_b = factor;
  }
  return (uint64_t)(factor_a < 0 ? factor_a + (int64_t)PRIME : factor_a) % PRIME;
}

static uint64_t mixed(uint64_t z) { /* splitmix64 */
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double field_random(uint64_t seed, uint64_t i) {
  return (double)reduce(mixed(mixed(seed + 0x9E3779B97F4A7C15u) + i * 0xD1B54A32D192ED03u));
}

double field_of(double x) {
  if (!is_element(x)) return x;
  int exponent;
  double part = frexp(fabs(x), &exponent);
  uint64_t element = scaled(reduce((uint64_t)ldexp(part, 53)), exponent - 53);
  return (double)(x < 0 && element ? PRIME - element : element);
}

double field_add(double a, double b) {
  if (!is_element(a) || !is_element(b)) return a + b;
  uint64_t sum = number(a) + number(b);
  return (double)(sum >= PRIME ? sum - PRIME : sum);
}

static double negative(double a) { return a == 0 ? 0 : (double)(PRIME - number(a)); }

double field_sub(double a, double b) {
  return is_element(a) && is_element(b) ? field_add(a, negative(b)) : a - b;
}

double field_mul(double a, double b) {
  return is_element(a) && is_element(b) ? (double)product(number(a), number(b)) : a * b;
}

double field_div(double a, double b) {
  if (!is_element(a) || !is_element(b) || b == 0) return a / b;
  return (double)product(number(a), inverse(number(b)));
}

double field_power(double a, int64_t n) {
  if (!is_element(a) || (a == 0 && n < 0)) return pow(a, (double)n);
  uint64_t size = power(number(a), (uint64_t)(n < 0 ? -n : n));
  return (double)(n < 0 ? inverse(size) : size);
}

double field_function(uint64_t which, double x, double (*real)(double)) {
  double exact = !is_element(x) || x == 0 || x == 1 ? real(x) : 0.5;
  if (!is_element(exact)) return exact;
  if (exact == trunc(exact)) return field_of(exact);
  return field_random(which, number(x));
}

/* Elements are below 2^BITS, logarithms are not. */
double field_log(double x) { return x + (double)((uint64_t)1 << BITS); }
double field_unlog(double log) { return log - (double)((uint64_t)1 << BITS); }
bool field_is_log(double x) { return is_element(x) && x >= (double)((uint64_t)1 << BITS); }

/* ---- the order ---- */

static uint64_t rank_of(double x) { return mixed(number(x) + 0x2545F4914F6CDD1Du); }

enum { DIGITS = 24, MOST = 126 }; /* of constants: digits, exponents */

/* Does a constant's pattern occur in the digits? If 2^e x is small modulo the prime, then 2^e x /
   PRIME is close to a whole number: after digit e of the binary fraction x / PRIME, 26 digits are
   alike. They are written in blocks of BITS from 2^-MOST x on: x 2^51 / PRIME is x, and 129 x /
   PRIME. */
static bool may_be_constant(uint64_t x) {
  const uint64_t start = 0xb71cb89ad240; /* 2^-MOST modulo the prime */
  uint64_t rest = product(x, start), before = 0;
  for (int block = 0; block * BITS < 2 * MOST + BITS; block++) {
    uint64_t more = rest * REST, whole = more / PRIME, digits = rest + whole;
    unsigned __int128 both = (unsigned __int128)before << BITS | digits, same = ~(both ^ both >> 1);
    same &= same >> 1, same &= same >> 2, same &= same >> 4, same &= same >> 8, same &= same >> 9;
    if (block && same << (128 - (2 * BITS - 25)) != 0) return true;
    rest = more - whole * PRIME, before = digits;
  }
  return false;
}

/* Is the element m 2^e with |m| < 2^24, a number that f32 holds? About one random element of 2^18
   is. */
static bool is_constant(double x, double *real) {
  const uint64_t least = (uint64_t)1 << DIGITS;
  uint64_t up = number(x), down = number(x);
  if (!may_be_constant(up)) return false;
  for (int e = 0; e <= MOST; e++) {
    if (up < least) return *real = ldexp((double)up, -e), true;
    if (PRIME - up < least) return *real = -ldexp((double)(PRIME - up), -e), true;
    if (down < least) return *real = ldexp((double)down, e), true;
    if (PRIME - down < least) return *real = -ldexp((double)(PRIME - down), e), true;
    up = up >= PRIME - up ? up - (PRIME - up) : 2 * up;
    down = down % 2 ? (down + PRIME) / 2 : down / 2;
  }
  return false;
}

/* Where the element is in the order: constants at their value, others anywhere between them, of a
   magnitude from 2^-32 to 2^32. No constant has as many digits. */
static double place_of(double x) {
  enum { FRACTION = 52, EXPONENTS = 6, MIDDLE = 32 };
  double real;
  if (is_constant(x, &real)) return real;
  uint64_t random = rank_of(x), digits = (random & (((uint64_t)1 << FRACTION) - 1)) | 1,
           exponent = random >> FRACTION & ((1 << EXPONENTS) - 1);
  double size = ldexp(1 + ldexp((double)digits, -FRACTION), (int)exponent - MIDDLE);
  return random >> 63 ? size : -size;
}

bool field_less(double a, double b) {
  if (!is_element(a) || !is_element(b)) return a < b;
  double left = place_of(a), right = place_of(b);
  return left == right ? number(a) < number(b) : left < right;
}

double field_sign(double a) {
  if (!is_element(a)) return a > 0 ? 1 : a < 0 ? -1 : a;
  if (a == 0) return 0;
  return field_less(negative(a), a) ? 1 : (double)(PRIME - 1);
}

void field_sum_add(FieldSum *sum, double a, double b) {
  if (is_element(a) && is_element(b)) {
    sum->products += (unsigned __int128)number(a) * number(b); /* below 2^128 for 2^26 terms */
    if (sum->products >> 126) sum->products = reduce(sum->products);
  } else {
    sum->others += a * b;
  }
}

double field_sum(const FieldSum *sum) {
  double elements = (double)reduce(sum->products);
  return isnan(sum->others) || isinf(sum->others) ? sum->others : elements;
}

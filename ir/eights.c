/* Floats of 8 bits with a scale: see eights.h. Must not: know how kernels compute them. */
#include "ir/eights.h"
#include <math.h>
#include <string.h>

static const EightsFormat formats[] = {
#define FORMAT8(name, mantissa, top, range) {#name, mantissa, top, range},
#include "ir/formats8.def"
#undef FORMAT8
};

const EightsFormat *eights_format(const char *name) {
  for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, name)) return &formats[i];
  return NULL;
}

const EightsFormat *eights_format_of(const Op *quantize) {
  return eights_format(attr_str(&quantize->attrs, ATTR_format, NULL));
}

const EightsFormat *eights_format_at(int64_t number) {
  bool is = number >= 0 && number < (int64_t)(sizeof formats / sizeof *formats);
  return is ? &formats[number] : NULL;
}

int64_t eights_format_number(const EightsFormat *format) { return format - formats; }

/* That of the number halfway between 1 and the next one, half above 1. */
double eights_error(const EightsFormat *format) {
  double half = ldexp(1, -format->mantissa - 1);
  return half / (1 + half);
}

int eights_scale(const EightsFormat *format, double most) {
  int exponent;
  double fraction = frexp(most, &exponent); /* 0.5 to 1: the largest code has 0.875 */
  int scale = exponent - 1 - format->top + (fraction > 0.875);
  return most && scale > EIGHTS_LEAST_SCALE ? scale : EIGHTS_LEAST_SCALE;
}

double eights_round(const EightsFormat *format, double x, double most) {
  if (!(most <= ldexp(1, EIGHTS_LARGEST))) return NAN;
  int exponent, least = eights_scale(format, most) + format->top - format->range;
  frexp(x, &exponent);
  exponent = x && exponent - 1 > least ? exponent - 1 : least;
  double step = ldexp(1, exponent - format->mantissa);
  return nearbyint(x / step) * step;
}

/* Sign, exponent, fraction; the exponent of 2^(top - range) has the bits 1, smaller numbers 0. */
unsigned char eights_code(const EightsFormat *format, double units) {
  unsigned sign = signbit(units) ? 0x80 : 0;
  if (isnan(units)) return 0x7F;
  int least = format->top - format->range, exponent;
  frexp(units, &exponent);
  exponent = units && exponent - 1 > least ? exponent - 1 : least;
  unsigned fraction = (unsigned)ldexp(fabs(units), format->mantissa - exponent);
  /* a normal number has the bit of 1 in `fraction`, which counts as one exponent */
  return (unsigned char)(sign | (((unsigned)(exponent - least) << format->mantissa) + fraction));
}

double eights_units(const EightsFormat *format, unsigned char code) {
  unsigned one = 1u << format->mantissa, exponent = (code & 0x7Fu) >> format->mantissa;
  unsigned fraction = (code & (one - 1)) | (exponent ? one : 0);
  int power = format->top - format->range + (exponent ? (int)exponent - 1 : 0) - format->mantissa;
  double units = (code & 0x7F) == 0x7F ? NAN : ldexp((double)fraction, power);
  return code & 0x80 ? -units : units;
}

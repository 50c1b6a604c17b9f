/* Frequencies of rotary positions; see rope.h. */
#include "rope.h"
#include <math.h>

typedef struct Scaling {
  double theta, factor, slow, fast, original;
  RopeRamp ramp;
} Scaling;

static Scaling scaling_of(const Op *rope) {
  return (Scaling){attr_float(&rope->attrs, ATTR_theta, 10000),
                   attr_float(&rope->attrs, ATTR_factor, 1),
                   attr_float(&rope->attrs, ATTR_slow, 1),
                   attr_float(&rope->attrs, ATTR_fast, 1),
                   attr_float(&rope->attrs, ATTR_original, 1),
                   (RopeRamp)attr_int(&rope->attrs, ATTR_ramp, ROPE_ALL)};
}

static double limited(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

/* The pair, counted in fractions, that turns that often over the original positions. */
static double pair_of(const Scaling *scaling, double turns, double size) {
  return size * log(scaling->original / (turns * 2 * M_PI)) / (2 * log(scaling->theta));
}

/* The weight of the unchanged frequency. */
static double kept(const Scaling *scaling, double plain, int64_t i, int64_t size) {
  if (scaling->ramp == ROPE_ALL) return 0;
  if (scaling->ramp == ROPE_TURNS)
    return limited((scaling->original * plain / (2 * M_PI) - scaling->slow) /
                   (scaling->fast - scaling->slow));
  double first = pair_of(scaling, scaling->fast, (double)size),
         last = pair_of(scaling, scaling->slow, (double)size);
  if (scaling->ramp == ROPE_ROUNDED) first = floor(first), last = ceil(last);
  first = fmax(first, 0), last = fmin(last, (double)size - 1);
  if (first == last) last += 0.001;
  return 1 - limited(((double)i - first) / (last - first));
}

double rope_frequency(const Op *rope, int64_t i, int64_t size) {
  Scaling scaling = scaling_of(rope);
  double plain = pow(scaling.theta, -2.0 * (double)i / (double)size);
  if (!attr_get(&rope->attrs, ATTR_factor)) return plain;
  double weight = kept(&scaling, plain, i, size);
  return weight * plain + (1 - weight) * plain / scaling.factor;
}

const char *rope_wrong(const Op *rope) {
  Scaling scaling = scaling_of(rope);
  if (!(scaling.theta > 0) || !(scaling.factor > 0)) return "theta and factor are above 0";
  if ((unsigned)scaling.ramp >= ROPE_RAMPS) return "there is no such ramp";
  if (scaling.ramp == ROPE_ALL) return NULL;
  if (!(scaling.slow > 0) || !(scaling.fast > scaling.slow)) return "0 < slow < fast";
  if (!(scaling.original > 0)) return "original is above 0";
  return scaling.ramp == ROPE_TURNS || scaling.theta > 1
             ? NULL
             : "pairs are counted where theta is above 1";
}

void rope_copy_attrs(Module *m, Op *to, const Op *from) {
  static const AttrKey numbers[] = {ATTR_theta, ATTR_factor, ATTR_slow, ATTR_fast, ATTR_original};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const Attr *a = attr_get(&from->attrs, numbers[i]);
    if (a) attr_set_float(m, &to->attrs, numbers[i], a->f);
  }
  const Attr *ramp = attr_get(&from->attrs, ATTR_ramp);
  if (ramp) attr_set_int(m, &to->attrs, ATTR_ramp, ramp->i);
}

/* Regions of memory: one mapping each, made once, ended by a page that cannot be touched. */
#ifndef SHARDC_RT_REGION_H
#define SHARDC_RT_REGION_H
#include "runtime/base/base.h"

enum { RT_POISON = 0x7fa0dead }; /* a signalling NaN in f32 */

typedef struct Region {
  char *map, *base; /* base: multiple of 64 */
  size_t mapped;    /* guard page included */
  int64_t bytes;    /* usable */
} Region;

/* tight: the region ends right at the guard page (up to rounding to 64); else it starts at the
   mapping, in huge pages where the system has them. */
bool rt_region_map(Region *region, int64_t bytes, bool tight, Fault *f);
void rt_region_unmap(Region *region);

/* Debug runs: where an entry that needs `bytes` begins so that it ends at the guard page; poison;
 * what was touched. */
char *rt_region_end(const Region *region, int64_t bytes);
void rt_poison(char *base, int64_t bytes);
int64_t rt_touched(const char *base,
                   int64_t bytes); /* bytes up to and with the last that is not poison */
#endif

/* Arenas. A region is a mapping that ends at a guard page. Poison is a pattern of signalling NaN: a
   kernel that reads unwritten memory produces NaN, and the last word that is not poison shows how
   much memory an entry used. Must not: map anything after the start of the run. */
#include "region.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

bool rt_region_map(Region *region, int64_t bytes, bool tight, Fault *f) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), huge = (size_t)2 << 20;
  size_t space = round_up((size_t)bytes + !bytes, page), slack = space >= huge ? huge : 0;
  region->mapped = space + slack + page;
  region->bytes = bytes;
  region->map = mmap(NULL, region->mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region->map == MAP_FAILED) {
    region->map = NULL;
    return rt_fault(f, 701, "no memory for %lld bytes: %s", (long long)bytes, strerror(errno));
  }
  char *start = (char *)round_up((size_t)region->map, slack ? huge : page), *guard = start + space;
  region->base = tight ? guard - round_up((size_t)bytes, 64) : start;
  if (slack) madvise(start, space, MADV_HUGEPAGE);
  mprotect(guard, (size_t)(region->map + region->mapped - guard) / page * page, PROT_NONE);
  return true;
}

void rt_region_unmap(Region *region) {
  if (region->map) munmap(region->map, region->mapped);
  *region = (Region){0};
}

char *rt_region_end(const Region *region, int64_t bytes) {
  return region->base + (round_up((size_t)region->bytes, 64) - round_up((size_t)bytes, 64));
}

void rt_poison(char *base, int64_t bytes) {
  uint32_t *word = (uint32_t *)base;
  for (size_t i = 0; i < round_up((size_t)bytes, 64) / 4; i++) word[i] = RT_POISON;
}

int64_t rt_touched(const char *base, int64_t bytes) {
  const uint32_t *word = (const uint32_t *)base;
  size_t n = round_up((size_t)bytes, 64) / 4;
  while (n && word[n - 1] == RT_POISON) n--;
  return (int64_t)n * 4;
}

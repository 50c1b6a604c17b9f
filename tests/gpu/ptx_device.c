/* Memory of a device: allocations in a large reserved range, with their shadows.
 *
 * Data, written bits and race cells are three mappings without backing until touched. Allocations
 * are at least 256 bytes apart, and freed addresses are reused as late as possible, so that an
 * address past an end or of freed memory belongs to nobody.
 *
 * Must not: give a host pointer away. */
#include "ptx_inside.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 256 };

static void *reserve(int64_t bytes) {
  void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* Zeros in memory of reserve(): whole pages go back to the system, which gives zeros for them. */
static void clear(void *from, int64_t bytes) {
  enum { PAGE = 4096, FEW = 64 * PAGE };
  uintptr_t first = ((uintptr_t)from + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
  uintptr_t end = ((uintptr_t)from + (uintptr_t)bytes) & ~(uintptr_t)(PAGE - 1);
  if (bytes < FEW || madvise((void *)first, end - first, MADV_DONTNEED)) {
    memset(from, 0, (size_t)bytes);
    return;
  }
  memset(from, 0, first - (uintptr_t)from);
  memset((void *)end, 0, (uintptr_t)from + (uintptr_t)bytes - end);
}

static void defaults(PtxOptions *o) {
  if (o->shared_limit <= 0) o->shared_limit = 101376;
  if (o->sm <= 0) o->sm = 80;
  if (!o->base) o->base = UINT64_C(0x7f0000000000);
  if (o->memory <= 0) o->memory = INT64_C(16) << 30;
  if (o->budget <= 0) o->budget = INT64_C(1) << 36;
  o->memory = (o->memory + 4095) & ~INT64_C(4095);
}

PtxDevice *ptx_device_new(const PtxOptions *o) {
  PtxDevice *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  if (o) d->o = *o;
  defaults(&d->o);
  d->plane_bytes = d->o.memory;
  d->plane.data = reserve(d->plane_bytes);
  d->plane.written = reserve(d->plane_bytes / 8);
  if (d->plane.data && d->plane.written) return d;
  ptx_device_free(d);
  return NULL;
}

void ptx_device_free(PtxDevice *d) {
  if (!d) return;
  if (d->plane.data) munmap(d->plane.data, (size_t)d->plane_bytes);
  if (d->plane.written) munmap(d->plane.written, (size_t)(d->plane_bytes / 8));
  if (d->plane.cells) munmap(d->plane.cells, (size_t)(d->plane_bytes / 4) * sizeof(Cell));
  free(d->blocks);
  free(d);
}

void ptx_device_options(PtxDevice *d, const PtxOptions *o) {
  PtxOptions n = *o;
  defaults(&n);
  d->o.shared_limit = n.shared_limit, d->o.budget = n.budget;
  d->o.late = n.late, d->o.check = n.check, d->o.seed = n.seed;
}

bool device_cells(PtxDevice *d) {
  if (!d->plane.cells) d->plane.cells = reserve(d->plane_bytes / 4 * (int64_t)sizeof(Cell));
  return d->plane.cells != NULL;
}

/* ---- bits ---- */
void bits_set(uint8_t *bits, int64_t from, int64_t n, bool value) {
  for (; n > 0 && (from & 7); from++, n--)
    bits[from >> 3] =
        (uint8_t)(value ? bits[from >> 3] | 1 << (from & 7) : bits[from >> 3] & ~(1 << (from & 7)));
  if (n >= 8) memset(bits + (from >> 3), value ? 255 : 0, (size_t)(n >> 3));
  from += n & ~INT64_C(7), n &= 7;
  for (; n > 0; from++, n--)
    bits[from >> 3] =
        (uint8_t)(value ? bits[from >> 3] | 1 << (from & 7) : bits[from >> 3] & ~(1 << (from & 7)));
}

bool bits_all(const uint8_t *bits, int64_t from, int64_t n) {
  for (; n > 0 && (from & 7); from++, n--)
    if (!(bits[from >> 3] >> (from & 7) & 1)) return false;
  for (; n >= 8; from += 8, n -= 8)
    if (bits[from >> 3] != 255) return false;
  for (; n > 0; from++, n--)
    if (!(bits[from >> 3] >> (from & 7) & 1)) return false;
  return true;
}

/* ---- allocations ---- */
/* The block that holds the address; else -1 - the number of blocks below it. */
int device_block(const PtxDevice *d, uint64_t at) {
  int low = 0, high = d->nblocks;
  while (low < high) {
    int mid = (low + high) / 2;
    if (d->blocks[mid].at <= at) low = mid + 1;
    else high = mid;
  }
  if (low > 0 && at - d->blocks[low - 1].at < (uint64_t)d->blocks[low - 1].bytes) return low - 1;
  return -1 - low;
}

static uint64_t find_room(const PtxDevice *d, int64_t need) {
  uint64_t end = d->o.base + (uint64_t)d->plane_bytes;
  const Block *last = d->nblocks ? &d->blocks[d->nblocks - 1] : NULL;
  uint64_t at = last ? last->at + (uint64_t)last->room : d->o.base;
  if (at + (uint64_t)need <= end) return at;
  at = d->o.base;
  for (int i = 0; i < d->nblocks; i++) {
    if (d->blocks[i].at - at >= (uint64_t)need) return at;
    at = d->blocks[i].at + (uint64_t)d->blocks[i].room;
  }
  return 0;
}

/* Facts of an allocation: n and from are multiples of ALIGN. */
static void forget(uint8_t *bits, Cell *cells, int64_t from, int64_t n) {
  clear(bits + from / 8, n / 8);
  if (cells) clear(cells + from / 4, n / 4 * (int64_t)sizeof *cells);
}

uint64_t ptx_alloc(PtxDevice *d, int64_t bytes) {
  if (bytes < 1 || bytes > d->plane_bytes) return 0;
  int64_t need = (bytes + 2 * ALIGN - 1) & -ALIGN;
  uint64_t at = find_room(d, need);
  if (!at) return 0;
  if (d->nblocks == d->room) {
    int room = d->room ? 2 * d->room : 64;
    Block *more = realloc(d->blocks, sizeof *more * (size_t)room);
    if (!more) return 0;
    d->blocks = more, d->room = room;
  }
  int i = -1 - device_block(d, at);
  memmove(d->blocks + i + 1, d->blocks + i, sizeof *d->blocks * (size_t)(d->nblocks++ - i));
  d->blocks[i] = (Block){.at = at, .bytes = bytes, .room = need};
  forget(d->plane.written, d->plane.cells, (int64_t)(at - d->o.base), need);
  return at;
}

/* Whole pages of a range go back to the system and read as zero afterwards. */
static void give_back(uint8_t *base, int64_t from, int64_t n) {
  int64_t first = (from + 4095) & ~INT64_C(4095), end = (from + n) & ~INT64_C(4095);
  if (end > first) madvise(base + first, (size_t)(end - first), MADV_DONTNEED);
}

bool ptx_release(PtxDevice *d, uint64_t at) {
  int i = device_block(d, at);
  if (i < 0 || d->blocks[i].at != at) return false;
  int64_t from = (int64_t)(at - d->o.base), room = d->blocks[i].room;
  if (room > 1 << 16) {
    give_back(d->plane.data, from, room);
    if (d->plane.cells)
      give_back((uint8_t *)d->plane.cells, from / 4 * (int64_t)sizeof(Cell),
                room / 4 * (int64_t)sizeof(Cell));
  }
  memmove(d->blocks + i, d->blocks + i + 1, sizeof *d->blocks * (size_t)(--d->nblocks - i));
  return true;
}

bool ptx_range(const PtxDevice *d, uint64_t at, uint64_t *first, int64_t *bytes) {
  int i = device_block(d, at);
  if (i < 0) return false;
  *first = d->blocks[i].at, *bytes = d->blocks[i].bytes;
  return true;
}

/* ---- access from the host ---- */
static int64_t inside(const PtxDevice *d, uint64_t at, int64_t bytes) {
  int i = device_block(d, at);
  if (i < 0 || bytes < 0) return -1;
  uint64_t from = at - d->blocks[i].at;
  return (uint64_t)bytes <= (uint64_t)d->blocks[i].bytes - from ? (int64_t)(at - d->o.base) : -1;
}

bool ptx_write(PtxDevice *d, uint64_t to, const void *from, int64_t bytes) {
  if (bytes == 0) return true;
  int64_t at = inside(d, to, bytes);
  if (at < 0) return false;
  memcpy(d->plane.data + at, from, (size_t)bytes);
  bits_set(d->plane.written, at, bytes, true);
  return true;
}

bool ptx_read(PtxDevice *d, void *to, uint64_t from, int64_t bytes) {
  if (bytes == 0) return true;
  int64_t at = inside(d, from, bytes);
  if (at < 0) return false;
  memcpy(to, d->plane.data + at, (size_t)bytes);
  return true;
}

static void copy_bits(uint8_t *bits, int64_t to, int64_t from, int64_t n) {
  if (bits_all(bits, from, n)) {
    bits_set(bits, to, n, true);
    return;
  }
  bool down = to > from; /* ranges may overlap */
  for (int64_t k = 0; k < n; k++) {
    int64_t i = down ? n - 1 - k : k;
    bits_set(bits, to + i, 1, bits[(from + i) >> 3] >> ((from + i) & 7) & 1);
  }
}

bool ptx_copy(PtxDevice *d, uint64_t to, uint64_t from, int64_t bytes) {
  if (bytes == 0) return true;
  int64_t t = inside(d, to, bytes), f = inside(d, from, bytes);
  if (t < 0 || f < 0) return false;
  memmove(d->plane.data + t, d->plane.data + f, (size_t)bytes);
  copy_bits(d->plane.written, t, f, bytes);
  return true;
}

static bool set(PtxDevice *d, uint64_t to, const void *value, int64_t width, int64_t count) {
  const uint32_t zero = 0;
  if (count == 0) return true;
  int64_t at = count < 0 || count > d->plane_bytes ? -1 : inside(d, to, count * width);
  if (at < 0 || at % width) return false;
  uint8_t *to_host = d->plane.data + at;
  if (!memcmp(value, &zero, (size_t)width)) clear(to_host, count * width);
  else
    for (int64_t i = 0; i < count; i++) memcpy(to_host + i * width, value, (size_t)width);
  bits_set(d->plane.written, at, count * width, true);
  return true;
}
bool ptx_set8(PtxDevice *d, uint64_t to, uint8_t value, int64_t count) {
  return set(d, to, &value, 1, count);
}
bool ptx_set16(PtxDevice *d, uint64_t to, uint16_t value, int64_t count) {
  return set(d, to, &value, 2, count);
}
bool ptx_set32(PtxDevice *d, uint64_t to, uint32_t value, int64_t count) {
  return set(d, to, &value, 4, count);
}

int64_t ptx_unwritten(const PtxDevice *d, uint64_t at, int64_t bytes) {
  int64_t from = inside(d, at, bytes);
  if (from < 0) return 0;
  for (int64_t i = 0; i < bytes; i++)
    if (!(d->plane.written[(from + i) >> 3] >> ((from + i) & 7) & 1)) return i;
  return -1;
}

void ptx_counts(const PtxDevice *d, uint64_t *warp_steps, uint64_t *lane_steps) {
  *warp_steps = d->warp_steps, *lane_steps = d->lane_steps;
}

uint64_t ptx_products(const PtxDevice *d, int i) { return d->products[i]; }

/* Shadows: which bytes were written, and who touched a word last.
 *
 * A stamp names an interval: what one warp does between two synchronisations. Each warp knows up to
 * which stamp the intervals of every warp are over for all its lanes, its own included; a barrier
 * hands that knowledge round. A lane also knows what it did itself. Two accesses of different
 * threads, one of them a write, race when the earlier one's interval is not over for the later one:
 * for global memory also when it belongs to another CTA of this launch. A word remembers its last
 * writer and two readers, which suffices to see any race at barriers of the whole CTA (a writer can
 * be at most one of two readers itself), and two writers of different bytes.
 *
 * Must not: report what is ordered. It may miss a race between readers forgotten at partial
 * barriers, and it takes fences for nothing: of flags in memory it knows st.release and ld.acquire.
 */
#include "ptx_memory.h"
#include "ptx_post.h"
#include <stdlib.h>
#include <string.h>

/* ---- intervals ---- */
static uint32_t new_stamp(Cta *c, uint32_t owner) {
  PtxDevice *d = c->launch->device;
  if (!d->o.check) return 0;
  if (d->stamp >= (UINT32_C(1) << 27) - 2) {
    fault(&c->warps[0], c->launch->f->ops, 0,
          "the race check has no numbers left: too many barriers in one launch");
    return 0;
  }
  if (c->nowner == c->owner_room) {
    uint32_t room = c->owner_room ? 2 * c->owner_room : 256;
    uint8_t *more = realloc(c->owner, room);
    if (!more) abort();
    c->owner = more, c->owner_room = room;
  }
  c->owner[c->nowner++] = (uint8_t)owner;
  return ++d->stamp;
}

void warp_interval(Warp *w) {
  uint32_t stamp = new_stamp(w->cta, w->index);
  if (stamp) w->stamp = stamp;
}

void warp_meets(Warp *w) {
  uint32_t *known = &w->known[owner_out(w->cta)];
  warp_interval(w);
  w->known[w->index] = w->stamp;
  for (int i = 0; i < LANES; i++)
    if (w->left[i] > *known) *known = w->left[i];
}

uint32_t interval_apart(Cta *c, uint32_t owner) { return new_stamp(c, owner); }

/* Stamps run out: who touched what in earlier launches is forgotten. */
void races_forget(PtxDevice *d) {
  if (!d->plane.cells) return;
  for (int i = 0; i < d->nblocks; i++) {
    int64_t from = (int64_t)(d->blocks[i].at - d->o.base);
    memset(d->plane.cells + from / 4, 0, (size_t)(d->blocks[i].room / 4) * sizeof(Cell));
  }
  d->stamp = 0;
}

/* ---- races ---- */
typedef struct Me {
  const Warp *w;
  uint32_t who;    /* stamp << 5 | lane */
  uint32_t since;  /* older stamps are over for everybody */
  uint32_t before; /* a stamp that is over for this warp: of most cells of an access, or 0 */
  bool product;    /* of all lanes together, each of which has fenced its writes */
} Me;

/* The warp of a stamp of this CTA; -1: another CTA's. */
static int owner_of(const Cta *c, uint32_t stamp) {
  uint32_t i = stamp - c->first_stamp;
  return i < c->nowner ? c->owner[i] : -1;
}

static inline bool unordered(Me *me, uint32_t who) {
  uint32_t stamp = who >> 5;
  if (stamp < me->since || who == me->who || stamp == me->before) return false;
  if (stamp == me->who >> 5) return true; /* same interval of the same warp, another lane */
  int v = owner_of(me->w->cta, stamp);
  if (v < 0) return !post_orders(me->w, me->who, who);
  const Warp *w = me->w;
  bool own = (uint32_t)v == w->index && (me->product || !((who ^ me->who) & (LANES - 1)));
  if (own) return false;
  bool before = stamp < w->known[v];
  if ((uint32_t)v == owner_out(w->cta) && stamp < w->left[me->who & (LANES - 1)]) return false;
  if (before) me->before = stamp;
  return !before;
}

static bool report_race(Warp *w, const Op *op, int lane, const Touch *t, uint32_t who,
                        const char *they) {
  const char *i = t->atomic ? "an atomic access" : t->write ? "a write" : "a read";
  const char *space = t->space == SPACE_SHARED ? "shared" : "global";
  int v = owner_of(w->cta, who >> 5);
  if (v < 0)
    fault(w, op, lane, "race on %s memory: %s of bytes that another CTA %s in this launch", space,
          i, they);
  else if ((uint32_t)v >= w->cta->nwarps)
    fault(w, op, lane,
          "race on %s memory at %#llx: %s of bytes that a bulk copy %s, without a wait", space,
          (unsigned long long)t->offset, i, they);
  else
    fault(w, op, lane,
          "race on %s memory at %#llx: %s of bytes that thread %u %s, without a barrier", space,
          (unsigned long long)t->offset, i, (uint32_t)v * LANES + (who & 31), they);
  return false;
}

static inline void note_read(Me *me, Cell *c, uint8_t bytes) {
  if (c->read == me->who) {
    c->read_bytes |= bytes;
    return;
  }
  if (unordered(me, c->read) && c->read >> 5 != c->read2 >> 5)
    c->read2 = c->read, c->read_bytes = (uint8_t)(c->read_bytes << 4);
  c->read = me->who, c->read_bytes = (uint8_t)((c->read_bytes & 0xf0) | bytes);
}

/* Does a write of the cell clash with this access? Both writers are asked. */
static inline bool clashes(const Touch *t, Me *me, const Cell *c, uint8_t bytes, uint32_t *who) {
  if (c->wrote_bytes & bytes && unordered(me, c->wrote) && !(t->atomic && c->atomic & 1))
    *who = c->wrote;
  else if (c->wrote_bytes >> 4 & bytes && unordered(me, c->wrote2) && !(t->atomic && c->atomic & 2))
    *who = c->wrote2;
  else return false;
  return true;
}

/* Read by ld.global.nc in this launch: then nobody may write it, also later. */
static inline bool is_constant(Me *me, const Cell *c, uint8_t bytes) {
  return c->constant_bytes & bytes && c->constant >= me->w->cta->launch->first_stamp;
}

static void note_constant(Me *me, Cell *c, uint8_t bytes) {
  uint8_t before = is_constant(me, c, 15) ? c->constant_bytes : 0;
  c->constant = me->who >> 5, c->constant_bytes = (uint8_t)(before | bytes);
}

static bool read_cell(Warp *w, const Op *op, int lane, const Touch *t, Me *me, Cell *c,
                      uint8_t bytes) {
  uint32_t who;
  if (clashes(t, me, c, bytes, &who)) return report_race(w, op, lane, t, who, "wrote");
  if (t->constant && c->wrote_bytes & bytes && c->wrote >> 5 >= w->cta->launch->first_stamp) {
    fault(w, op, lane, "ld.global.nc of memory written in this launch");
    return false;
  }
  if (t->constant) note_constant(me, c, bytes);
  if (!t->atomic) note_read(me, c, bytes); /* atomic writes may follow an atomic read */
  return true;
}

/* The new writer takes the place of those whose bytes it covers, else that of the second. */
static void note_write(Me *me, const Touch *t, Cell *c, uint8_t bytes) {
  if (c->wrote == me->who) {
    if (!t->atomic) c->atomic &= 2;
    c->wrote_bytes |= bytes;
    return;
  }
  c->wrote_bytes &= (uint8_t) ~(bytes | bytes << 4);
  if (!(c->wrote_bytes & 15)) {
    c->wrote = me->who, c->wrote_bytes |= bytes;
    c->atomic = (uint8_t)((c->atomic & 2) | t->atomic);
  } else {
    c->wrote2 = me->who, c->wrote_bytes = (uint8_t)((c->wrote_bytes & 15) | bytes << 4);
    c->atomic = (uint8_t)((c->atomic & 1) | t->atomic << 1);
  }
}

static bool write_cell(Warp *w, const Op *op, int lane, const Touch *t, Me *me, Cell *c,
                       uint8_t bytes) {
  uint32_t who;
  if (clashes(t, me, c, bytes, &who)) return report_race(w, op, lane, t, who, "wrote");
  if (c->read_bytes & bytes && unordered(me, c->read))
    return report_race(w, op, lane, t, c->read, "read");
  if (c->read_bytes >> 4 & bytes && unordered(me, c->read2))
    return report_race(w, op, lane, t, c->read2, "read");
  if (is_constant(me, c, bytes)) {
    fault(w, op, lane, "a write of memory read by ld.global.nc in this launch");
    return false;
  }
  note_write(me, t, c, bytes);
  if (!t->atomic) c->read_bytes = (uint8_t)(c->read_bytes & ~bytes & ~(bytes << 4));
  return true;
}

static bool race(Warp *w, const Op *op, int lane, const Touch *t) {
  const Launch *l = w->cta->launch;
  Me me = {w, (t->stamp ? t->stamp : w->stamp) << 5 | (uint32_t)lane, 0, 0, t->product};
  me.since = t->space == SPACE_SHARED ? w->cta->first_stamp : l->first_stamp;
  for (uint64_t at = t->offset & ~UINT64_C(3); at < t->offset + t->bytes; at += 4) {
    Cell *c = &t->plane->cells[at >> 2];
    uint8_t bytes = 15;
    if (t->bytes < 4) bytes = (uint8_t)(((1 << t->bytes) - 1) << (t->offset & 3));
    if (c->flying & bytes && !t->signal) {
      fault(w, op, lane,
            c->flying >> 4 ? "shared memory at %#llx is an mbarrier"
                           : "shared memory at %#llx awaits an asynchronous copy that was not "
                             "waited for",
            (unsigned long long)t->offset);
      return false;
    }
    if (!(t->write ? write_cell : read_cell)(w, op, lane, t, &me, c, bytes)) return false;
  }
  return true;
}

/* ---- written bytes ---- */
static bool written(Warp *w, const Op *op, int lane, const Touch *t) {
  const uint8_t *bits = t->plane->written;
  if (bits_all(bits, (int64_t)t->offset, t->bytes)) return true;
  uint64_t at = t->offset;
  while (bits[at >> 3] >> (at & 7) & 1) at++;
  uint64_t base = t->space == SPACE_GLOBAL ? w->cta->launch->device->o.base : 0;
  fault(w, op, lane, "reads %u bytes at %#llx: nobody wrote the byte at %#llx", t->bytes,
        (unsigned long long)(t->offset + base), (unsigned long long)(at + base));
  return false;
}

bool touch(Warp *w, const Op *op, int lane, const Touch *t) {
  if (t->plane->cells && !race(w, op, lane, t)) return false;
  if (t->plane->written && (!t->write || t->atomic) && !written(w, op, lane, t)) return false;
  if (t->plane->written && t->write)
    bits_set(t->plane->written, (int64_t)t->offset, t->bytes, true);
  return true;
}

/* ---- the common cases, all lanes at once ---- */
static bool all_written(const Access *x, uint32_t mask) {
  const uint8_t *bits = x->plane->written;
  if (x->row) return bits_all(bits, (int64_t)x->offset[0], (int64_t)x->bytes * LANES);
  if (x->same) return bits_all(bits, (int64_t)x->offset[first_lane(mask)], x->bytes);
  uint32_t need = (UINT32_C(1) << x->bytes) - 1, have = need; /* at most 16 bytes, aligned */
  for (int i = 0; i < LANES; i++) {
    uint16_t sixteen;
    memcpy(&sixteen, bits + (x->offset[i] >> 4) * 2, 2);
    have &= (uint32_t)sixteen >> (x->offset[i] & 15);
  }
  return have == need;
}

/* Kept also when nothing is checked, for launches that are checked later. */
void set_written(const Access *x, uint32_t mask) {
  uint8_t *bits = x->plane->written;
  if (x->row) bits_set(bits, (int64_t)x->offset[0], (int64_t)x->bytes * LANES, true);
  else
    for (int i = 0; i < LANES; i++) {
      if (!(mask >> i & 1)) continue;
      uint16_t sixteen;
      uint8_t *at = bits + (x->offset[i] >> 4) * 2;
      memcpy(&sixteen, at, 2);
      sixteen |= (uint16_t)(((UINT32_C(1) << x->bytes) - 1) << (x->offset[i] & 15));
      memcpy(at, &sixteen, 2);
    }
}

/* Nobody else's write or flight is in the way. */
static inline bool quiet(Me *me, const Cell *c) {
  if (c->flying || (c->wrote_bytes & 15 && c->wrote != me->who && unordered(me, c->wrote)))
    return false;
  return c->wrote_bytes < 16 || c->wrote2 == me->who || !unordered(me, c->wrote2);
}

static inline bool quick_read(Me *me, Cell *c, uint8_t bytes) {
  if (!quiet(me, c)) return false;
  uint32_t stamp = me->who >> 5;
  bool twice = c->read >> 5 == stamp && c->read2 >> 5 == stamp &&
               c->read != c->read2; /* enough to see a write */
  if (!twice || (c->read_bytes & bytes) != bytes || (c->read_bytes >> 4 & bytes) != bytes)
    note_read(me, c, bytes);
  return true;
}

static inline bool quick_write(Me *me, const Touch *t, Cell *c, uint8_t bytes) {
  if (!quiet(me, c) || is_constant(me, c, bytes)) return false;
  if (c->read_bytes & 15 && unordered(me, c->read)) return false;
  if (c->read_bytes >> 4 && unordered(me, c->read2)) return false;
  note_write(me, t, c, bytes);
  c->read_bytes = (uint8_t)(c->read_bytes & ~bytes & ~(bytes << 4));
  return true;
}

/* Two lanes at one address are enough: more readers are not remembered. */
static uint32_t two_of(uint32_t mask) {
  uint32_t first = mask & -mask, rest = mask & ~first;
  return first | (rest & -rest);
}

bool touch_all(Warp *w, const Op *op, uint32_t mask, const Access *x) {
  (void)op;
  if (x->atomic || x->constant) return false;
  Touch t = {.plane = x->plane, .write = x->write, .space = x->space};
  Me me = {w, w->stamp << 5, 0, 0, false};
  me.since = x->space == SPACE_SHARED ? w->cta->first_stamp : w->cta->launch->first_stamp;
  if (!x->write && !all_written(x, mask)) return false;
  uint32_t lanes = x->same && !x->write ? two_of(mask) : mask;
  for (; lanes; lanes &= lanes - 1) {
    int i = first_lane(lanes);
    uint64_t at = x->offset[i];
    Cell *c = &x->plane->cells[at >> 2];
    uint8_t bytes = x->bytes < 4 ? (uint8_t)(((1 << x->bytes) - 1) << (at & 3)) : 15;
    me.who = w->stamp << 5 | (uint32_t)i;
    for (uint32_t k = 0; k < x->bytes; k += 4, c++)
      if (!(x->write ? quick_write(&me, &t, c, bytes) : quick_read(&me, c, bytes))) return false;
  }
  if (x->write) set_written(x, mask);
  return true;
}

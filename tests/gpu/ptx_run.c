/* A launch: CTAs one after the other, their warps in turns, the lanes of a warp together.
 *
 * Lanes of a warp that are at the same place run as one. When they part, those at the lowest place
 * run first and the others join when they are reached: blocks of PTX come in an order in which that
 * brings lanes together again. Instructions that need several lanes at once park the first comers.
 * A warp runs until it waits at a barrier, ends, or used up its turn. With a seed, CTAs and warps
 * come in random order.
 *
 * Must not: run lanes of two CTAs concurrently: memory shared by CTAs of one launch is only right
 * when their order does not matter, which the race check watches. */
#include "ptx_inside.h"
#include "ptx_post.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE = 20000 }; /* jumps of a turn */

/* ---- reports ---- */
static const char *line_text(const PtxModule *m, uint32_t line) {
  const char *s = line >= 1 && line <= (uint32_t)m->nlines ? m->lines[line] : "";
  return s + strspn(s, " \t");
}

Went fault(Warp *w, const Op *op, int lane, const char *format, ...) {
  Launch *l = w->cta->launch;
  if (l->failed) return WENT_WAITING;
  l->failed = true;
  char what[512], place[64] = "", text[100];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (op->loc) snprintf(place, sizeof place, ", source line %u", op->loc);
  snprintf(text, sizeof text, "%s", line_text(l->f->module, op->line));
  for (char *s = text; *s; s++)
    if (*s == '\t') *s = ' ';
  const uint32_t *c = w->cta->at;
  snprintf(l->error, (size_t)l->error_bytes,
           "kernel `%s`, PTX line %u (`%s`)%s, CTA %u,%u,%u, thread %u (warp %u, lane %d): %s",
           l->f->name, op->line, text, place, c[0], c[1], c[2], w->index * LANES + (uint32_t)lane,
           w->index, lane, what);
  return WENT_WAITING;
}

static bool refuse(Launch *l, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int n = snprintf(l->error, (size_t)l->error_bytes, "kernel `%s`: ", l->given->entry);
  if (n < l->error_bytes) vsnprintf(l->error + n, (size_t)(l->error_bytes - n), format, list);
  va_end(list);
  l->failed = true;
  return false;
}

/* ---- lanes ---- */
void warp_keep(Warp *w) {
  for (int i = 0; i < LANES; i++)
    if (w->mask >> i & 1) w->lane_pc[i] = w->pc;
}

/* The lanes at the lowest place where any can move. False: none can. */
static bool choose(Warp *w) {
  uint32_t low = UINT32_MAX, next = UINT32_MAX, mask = 0;
  for (int i = 0; i < LANES; i++)
    if ((w->alive & ~w->parked) >> i & 1 && w->lane_pc[i] < low) low = w->lane_pc[i];
  if (low == UINT32_MAX) return false;
  for (int i = 0; i < LANES; i++) {
    if (!(w->alive >> i & 1)) continue;
    if (w->lane_pc[i] == low) mask |= 1u << i;
    else if (w->lane_pc[i] > low && w->lane_pc[i] < next) next = w->lane_pc[i];
  }
  w->pc = low, w->mask = mask, w->limit = next, w->parked &= ~mask;
  return true;
}

bool together(Warp *w, const Op *op, uint32_t mask, uint32_t need, Went *went) {
  need &= w->alive;
  if ((mask & need) == need) return true;
  uint32_t skip = w->mask & ~mask; /* guarded out: they go on */
  w->pc--;
  warp_keep(w);
  for (int i = 0; i < LANES; i++)
    if (skip >> i & 1) w->lane_pc[i]++;
  w->parked |= mask;
  *went = WENT_APART;
  (void)op;
  return false;
}

static Went report_parted(Warp *w) {
  const Launch *l = w->cta->launch;
  int here = first_lane(w->parked);
  const Op *op = &l->f->ops[w->lane_pc[here]];
  uint32_t others = w->alive;
  for (int i = 0; i < LANES; i++)
    if (w->lane_pc[i] == w->lane_pc[here]) others &= ~(1u << i);
  if (!others)
    return fault(w, op, here,
                 "only lanes %08x of %08x execute an instruction that all must execute together",
                 w->parked, w->alive);
  int away = first_lane(others);
  return fault(w, op, here, "divergent: lanes %08x are here, lane %d waits at PTX line %u",
               w->alive & ~others, away, l->f->ops[w->lane_pc[away]].line);
}

static void blend(void *d, const void *t, RegKind kind, uint32_t mask) {
  if (kind == REG_PRED) {
    uint32_t *o = d;
    *o = (*o & ~mask) | (*(const uint32_t *)t & mask);
  } else if (kind == REG_32) {
    uint32_t *o = d;
    const uint32_t *n = t;
    for (int i = 0; i < LANES; i++) o[i] = mask >> i & 1 ? n[i] : o[i];
  } else if (kind == REG_16) {
    uint16_t *o = d;
    const uint16_t *n = t;
    for (int i = 0; i < LANES; i++) o[i] = mask >> i & 1 ? n[i] : o[i];
  } else {
    uint64_t *o = d;
    const uint64_t *n = t;
    for (int i = 0; i < LANES; i++) o[i] = mask >> i & 1 ? n[i] : o[i];
  }
}

static inline const void *operand(const uint8_t *regs, int32_t slot) {
  return slot == NO_SLOT ? NULL : regs + slot;
}

static void run_lanes(Warp *w, const Op *op, uint32_t mask) {
  uint8_t *g = w->regs;
  const void *a = operand(g, op->a), *b = operand(g, op->b), *c = operand(g, op->c),
             *e = operand(g, op->e);
  if (mask == ALL_LANES) {
    op->lanes(g + op->d, a, b, c, e);
  } else if (mask) {
    _Alignas(64) uint8_t t[8 * LANES];
    op->lanes(t, a, b, c, e);
    blend(g + op->d, t, op->kind, mask);
  }
}

/* Runs the chosen lanes until they part from the others, or the warp stops. */
static Went run_together(Warp *w) {
  Launch *l = w->cta->launch;
  const Op *ops = l->f->ops;
  uint64_t steps = 0, lanes = 0;
  Went went = WENT_ON;
  do {
    const Op *op = &ops[w->pc++];
    uint32_t mask = w->mask;
    if (op->guard != NO_SLOT) mask &= *(const uint32_t *)(w->regs + op->guard) ^ op->flip;
    steps++, lanes += (uint64_t)__builtin_popcount(mask);
    if (op->lanes) run_lanes(w, op, mask);
    else if (mask) went = op->step(w, op, mask);
  } while (went == WENT_ON && w->pc < w->limit);
  l->device->warp_steps += steps, l->device->lane_steps += lanes;
  l->budget -= (int64_t)steps;
  return went;
}

/* A turn: until the warp waits, ends or used up its jumps. */
static void run_warp(Warp *w) {
  Launch *l = w->cta->launch;
  w->slice = SLICE;
  while (!l->failed && w->alive && !w->waits && w->slice) {
    if (l->budget < 0) {
      fault(w, &l->f->ops[w->lane_pc[first_lane(w->alive)]], first_lane(w->alive),
            "the launch used up its %lld instructions: does a loop never end?",
            (long long)l->device->o.budget);
      return;
    }
    if (!choose(w)) {
      report_parted(w);
      return;
    }
    if (run_together(w) == WENT_ON) warp_keep(w);
  }
}

bool warp_pause(Warp *w) {
  if (!launch_draw(w->cta->launch, 2)) return false;
  w->slice = 0;
  return true;
}

/* ---- jumps and ends ---- */
Went step_jump(Warp *w, const Op *op, uint32_t mask) {
  bool back = op->target < w->pc;
  if (back) w->slice--;
  /* after a jump back, parked lanes may be ahead that were not before */
  bool again = back && (!w->slice || w->mask != w->alive);
  if (mask == w->mask && !again) {
    w->pc = op->target;
    return WENT_ON;
  }
  warp_keep(w);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) w->lane_pc[i] = op->target;
  return WENT_APART;
}

Went step_exit(Warp *w, const Op *op, uint32_t mask) {
  (void)op;
  warp_keep(w);
  w->alive &= ~mask;
  w->parked = 0; /* perhaps those are all now */
  if (!w->alive) {
    Cta *c = w->cta;
    c->live--;
    for (int i = 0; i < MAX_BARRIERS; i++) barrier_try(c, i);
    return WENT_WAITING;
  }
  return WENT_APART;
}

Went step_trap(Warp *w, const Op *op, uint32_t mask) {
  return fault(w, op, first_lane(mask), "trap");
}

/* ---- a CTA ---- */
uint32_t launch_draw(Launch *l, uint32_t below) {
  if (!l->random) return 0;
  l->random = l->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((l->random >> 33) % below);
}

static uint32_t dynamic_base(const Function *f) {
  uint32_t align = f->dynamic_align < 16 ? 16 : f->dynamic_align;
  return (SHARED_FIRST + (uint32_t)f->static_shared + align - 1) & ~(align - 1);
}

static uint32_t special_value(const Warp *w, Which which, int lane) {
  const PtxLaunch *g = w->cta->launch->given;
  uint32_t t = w->index * LANES + (uint32_t)lane, bit = UINT32_C(1) << lane;
  switch ((int)which) {
  case TID: return t % g->block[0];
  case TID + 1: return t / g->block[0] % g->block[1];
  case TID + 2: return t / g->block[0] / g->block[1];
  case LANEID: return (uint32_t)lane;
  case WARPID: return w->index;
  case NWARPID: return w->cta->nwarps;
  case MASK_EQ: return bit;
  case MASK_LT: return bit - 1;
  case MASK_LE: return (bit - 1) | bit;
  case MASK_GT: return ~((bit - 1) | bit);
  case MASK_GE: return ~(bit - 1);
  case NSMID: return 4;
  case SMID: return w->cta->index % 4;
  case GRIDID: return 0;
  case DYNAMIC_SHARED: return g->shared;
  case DYNAMIC_BASE: return dynamic_base(w->cta->launch->f);
  default: break;
  }
  if (which < CTAID) return g->block[which - NTID];
  return which < NCTAID ? w->cta->at[which - CTAID] : g->grid[which - NCTAID];
}

static void fill_special(Warp *w, const Special *s) {
  uint8_t *r = w->regs + s->slot;
  for (int i = 0; i < LANES; i++) {
    uint32_t v = special_value(w, s->which, i);
    if (s->kind == REG_64) ((uint64_t *)r)[i] = v;
    else ((uint32_t *)r)[i] = v;
  }
}

static void start_warp(Cta *c, uint32_t i, uint8_t *regs) {
  Warp *w = &c->warps[i];
  const Function *f = c->launch->f;
  uint32_t threads = c->launch->threads - i * LANES;
  *w = (Warp){.cta = c, .regs = regs, .index = i, .limit = UINT32_MAX};
  w->alive = threads >= LANES ? ALL_LANES : (1u << threads) - 1;
  for (int k = 0; k < f->nspecial; k++) fill_special(w, &f->special[k]);
}

static void start_cta(Cta *c, uint32_t index) {
  const PtxLaunch *g = c->launch->given;
  c->index = index;
  c->at[0] = index % g->grid[0], c->at[1] = index / g->grid[0] % g->grid[1];
  c->at[2] = index / g->grid[0] / g->grid[1];
  c->live = c->nwarps, c->nowner = 0, c->nsignals = 0,
  c->first_stamp = c->launch->device->stamp + 1;
  memset(c->barriers, 0, sizeof c->barriers);
  if (c->shared.written) memset(c->shared.written, 0, c->shared_end / 8 + 1);
  for (uint32_t i = 0; i < c->nwarps; i++) start_warp(c, i, c->warps[i].regs);
  for (uint32_t i = 0; i < c->nwarps; i++) {
    warp_interval(&c->warps[i]);
    for (uint32_t k = 0; k < owners(c); k++) c->warps[i].known[k] = c->first_stamp;
  }
}

static void report_waiting(Warp *first, const Op *op, const char *text) {
  const Cta *c = first->cta;
  int lane = first_lane(first->alive);
  if (first->waits >= SIGNAL_WAIT) {
    const Signal *s = &c->signals[first->waits - SIGNAL_WAIT];
    fault(first, op, lane, "deadlock: the mbarrier at %#x waits for %u arrivals and %lld bytes;%s",
          s->at, s->pending, (long long)s->bytes, text);
    return;
  }
  const Barrier *b = &c->barriers[first->waits - 1];
  fault(first, op, lane, "deadlock: %u of %u threads came to barrier %d;%s", b->arrived,
        b->expected, first->waits - 1, text);
}

static bool report_deadlock(Cta *c) {
  char text[400];
  int n = 0;
  Warp *first = NULL;
  for (uint32_t i = 0; i < c->nwarps; i++) {
    Warp *w = &c->warps[i];
    if (!w->alive) continue;
    if (!first) first = w;
    const Op *op = &c->launch->f->ops[w->lane_pc[first_lane(w->alive)]];
    if (n < 300)
      n += snprintf(text + n, sizeof text - (size_t)n, "%s warp %u %sbarrier %d at PTX line %u",
                    n ? "," : "", i, w->waits < SIGNAL_WAIT ? "" : "m",
                    w->waits < SIGNAL_WAIT ? w->waits - 1 : w->waits - SIGNAL_WAIT, op->line);
  }
  const Op *op = &c->launch->f->ops[first->lane_pc[first_lane(first->alive)]];
  report_waiting(first, op, text);
  return false;
}

static bool run_cta(Cta *c, uint32_t index) {
  Launch *l = c->launch;
  start_cta(c, index);
  while (c->live && !l->failed) {
    bool ran = false;
    uint32_t turn = launch_draw(l, c->nwarps);
    if (launch_draw(l, 3) == 1) copies_bring(c), copies_leave(c);
    for (uint32_t k = 0; k < c->nwarps && !l->failed; k++) {
      Warp *w = &c->warps[(turn + k) % c->nwarps];
      if (!w->alive || w->waits) continue;
      run_warp(w);
      ran = true;
    }
    if (!ran && c->live && !copies_bring(c)) return report_deadlock(c);
  }
  copies_drop(c), signals_drop(c), posts_forget(c);
  for (uint32_t i = 0; i < c->nwarps; i++) flights_drop(&c->warps[i]), products_drop(&c->warps[i]);
  return !l->failed;
}

/* ---- the launch ---- */
static bool check_launch(Launch *l) {
  const PtxLaunch *g = l->given;
  const Function *f = l->f;
  uint64_t threads = 1, ctas = 1;
  for (int i = 0; i < 3; i++) {
    if (!g->grid[i] || !g->block[i] || g->block[i] > 1024)
      return refuse(l, "grid or block out of range");
    threads *= g->block[i], ctas *= g->grid[i];
    if (f->need[0] && g->block[i] != f->need[i])
      return refuse(l, "a block of %u in direction %d, .reqntid says %u", g->block[i], i,
                    f->need[i]);
    if (ctas > UINT32_MAX) return refuse(l, "too many CTAs");
  }
  if (threads > 1024)
    return refuse(l, "%llu threads in a CTA, at most 1024", (unsigned long long)threads);
  uint64_t max = (uint64_t)f->max[0] * f->max[1] * f->max[2];
  if (max && threads > max)
    return refuse(l, "%llu threads in a CTA, .maxntid says %llu", (unsigned long long)threads,
                  (unsigned long long)max);
  int64_t shared = f->static_shared + g->shared, limit = l->device->o.shared_limit;
  if (shared > limit || f->static_shared > 49152)
    return refuse(l, "%lld bytes of shared memory, the limit is %lld", (long long)shared,
                  (long long)limit);
  if (g->params_bytes < f->params_bytes || (f->params_bytes && !g->params))
    return refuse(l, "%d bytes of parameters, it takes %d", g->params_bytes, f->params_bytes);
  l->threads = (uint32_t)threads;
  return true;
}

static size_t file_bytes(const Function *f) {
  return (size_t)(f->below + f->above + 127) & ~(size_t)63;
}

/* One piece of memory for a CTA at a time: register files, shared and local memory, shadows. */
static bool set_up(Launch *l, void **held) {
  Cta *c = &l->cta;
  const Function *f = l->f;
  PtxDevice *d = l->device;
  size_t shared = dynamic_base(f) + (size_t)l->given->shared;
  size_t words = shared / 4 + 2, file = file_bytes(f);
  c->launch = l, c->nwarps = (l->threads + LANES - 1) / LANES;
  c->shared_end = SHARED_FIRST + (uint32_t)f->static_shared;
  if (l->given->shared) c->shared_end = dynamic_base(f) + l->given->shared;
  bool check = d->o.check;
  size_t total = sizeof(Warp) * c->nwarps + 64 + file * c->nwarps + shared + 64 +
                 (size_t)f->local_bytes * c->nwarps * LANES + sizeof(int) * (size_t)f->nops + 64 +
                 (check ? words * sizeof(Cell) + shared / 8 + 128 : 0);
  uint8_t *p = *held = calloc(1, total);
  if (!p) return refuse(l, "no memory for %zu bytes", total);
  uint8_t *regs = (uint8_t *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
  p = regs + file * c->nwarps;
  c->warps = (Warp *)p, p += sizeof(Warp) * c->nwarps;
  c->shared.data = p, p += (shared + 63) & ~(size_t)63;
  if (check) c->shared.cells = (Cell *)p, p += words * sizeof(Cell);
  c->local = p, p += (size_t)f->local_bytes * c->nwarps * LANES;
  l->cache = (int *)p, p += sizeof(int) * (size_t)f->nops;
  if (check) c->shared.written = p;
  for (uint32_t i = 0; i < c->nwarps; i++) {
    uint8_t *r = regs + i * file;
    memcpy(r, f->fill, (size_t)f->below);
    memset(r + f->below, 0xa5, (size_t)f->above);
    c->warps[i].regs = r + f->below;
  }
  return true;
}

static void run_all(Launch *l) {
  const PtxLaunch *g = l->given;
  uint32_t n = g->grid[0] * g->grid[1] * g->grid[2];
  if (!l->random) {
    for (uint32_t i = 0; i < n && run_cta(&l->cta, i);) i++;
    return;
  }
  uint32_t *order = malloc(sizeof *order * n);
  if (!order) {
    refuse(l, "no memory for the order of %u CTAs", n);
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = launch_draw(l, i + 1);
    order[i] = order[k], order[k] = i;
  }
  for (uint32_t i = 0; i < n && run_cta(&l->cta, order[i]);) i++;
  free(order);
}

bool ptx_launch(PtxModule *m, const PtxLaunch *given, char *error, int error_bytes) {
  PtxDevice *d = m->device;
  void *held = NULL;
  Launch l = {.device = d,
              .given = given,
              .f = find_entry(m, given->entry),
              .error = error,
              .error_bytes = error_bytes,
              .budget = d->o.budget};
  l.random = d->o.seed ? d->o.seed * UINT64_C(0x9e3779b97f4a7c15) | 1 : 0;
  if (!l.f) return refuse(&l, "this module has no such entry");
  if (d->stamp > UINT32_C(1) << 26) races_forget(d);
  l.first_stamp = d->stamp + 1;
  if (d->o.check && !device_cells(d)) return refuse(&l, "no address space for the race check");
  if (!check_launch(&l) || !set_up(&l, &held)) return false;
  run_all(&l);
  for (uint32_t i = 0; i < l.cta.nwarps; i++) flights_drop(&l.cta.warps[i]);
  posts_drop(&l);
  free(l.cta.owner);
  free(held);
  return !l.failed;
}

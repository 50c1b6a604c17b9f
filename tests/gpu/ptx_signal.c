/* mbarriers: init, arrive, arrive.expect_tx, try_wait.parity, and the fences after init.
 *
 * A phase ends when all arrivals came and copies have brought all bytes that were announced. Until
 * then a warp that waits sleeps; when it wakes up, the test that it made says no, so that it must
 * test again. Accesses of the arriving warps are then over for those whose test says yes
 * (ptx_check.c). State is kept outside of shared memory, whose words only mbarrier instructions may
 * touch.
 *
 * Must not: let a warp miss a phase, forgive an arrival too many, bytes that nobody announced, or a
 * copy that uses an mbarrier without both fences after its init. */
#include "ptx_memory.h"
#include <string.h>

enum { MOST_BYTES = (1 << 20) - 1, TAKEN = 31 };

/* ---- places ---- */
static Signal *find(Cta *c, uint32_t at) {
  for (uint32_t i = 0; i < c->nsignals; i++)
    if (c->signals[i].at == at) return &c->signals[i];
  return NULL;
}

Signal *signal_find(Warp *w, const Op *op, int lane, uint32_t at) {
  Signal *s = find(w->cta, at);
  if (!s) fault(w, op, lane, "no mbarrier was initialised at %#x", at);
  return s;
}

static bool touch_signal(Warp *w, const Op *op, int lane, uint32_t at, bool begins) {
  Touch t = {.plane = &w->cta->shared,
             .offset = at,
             .bytes = 8,
             .write = true,
             .atomic = !begins,
             .space = SPACE_SHARED,
             .signal = true};
  return !w->cta->launch->device->o.check || touch(w, op, lane, &t);
}

static void mark(Cta *c, uint32_t at, uint8_t flying) {
  for (uint32_t i = at >> 2; c->shared.cells && i < (at + 8) >> 2; i++)
    c->shared.cells[i].flying = flying;
}

void signals_drop(Cta *c) {
  for (uint32_t i = 0; i < c->nsignals; i++) mark(c, c->signals[i].at, 0);
  c->nsignals = 0;
}

static bool inside(Warp *w, const Op *op, int lane, uint32_t at) {
  if (at % 8) return fault(w, op, lane, "an mbarrier at %#x is misaligned", at), false;
  if (at < SHARED_FIRST || at + 8 > w->cta->shared_end)
    return fault(w, op, lane, "an mbarrier at %#x is out of bounds of shared memory", at), false;
  return true;
}

/* ---- phases ---- */
static void know(uint32_t *to, const uint32_t *from, uint32_t n) {
  for (uint32_t v = 0; v < n; v++)
    if (from[v] > to[v]) to[v] = from[v];
}

/* Ends the phase if nothing is missing. */
void signal_test(Cta *c, Signal *s) {
  if (s->pending || s->bytes) return;
  s->phase++, s->pending = s->expected;
  know(s->known, s->came, owners(c));
  for (uint32_t i = 0; i < c->nwarps; i++)
    if (c->warps[i].waits == SIGNAL_WAIT + (int)(s - c->signals)) c->warps[i].waits = 0;
}

/* all: every lane of the warp arrives now, not only this one */
static bool arrive(Warp *w, const Op *op, int lane, Signal *s, bool all) {
  if (!s->pending)
    return fault(w, op, lane, "the mbarrier at %#x has all its %u arrivals of this phase", s->at,
                 s->expected),
           false;
  s->pending--;
  know(s->came, w->known, owners(w->cta));
  if (all) s->came[w->index] = w->stamp;
  uint32_t *left = &s->came[owner_out(w->cta)];
  if (w->left[lane] > *left) *left = w->left[lane];
  return true;
}

static bool expect(Warp *w, const Op *op, int lane, Signal *s, uint32_t bytes) {
  s->bytes += bytes;
  if (bytes <= MOST_BYTES && s->bytes <= MOST_BYTES) return true;
  return fault(w, op, lane, "an mbarrier expects at most %d bytes", MOST_BYTES), false;
}

/* ---- instructions ---- */
enum { BEGIN, ARRIVE, EXPECT, WAIT };

/* b: the number of arrivals */
static bool begin(Warp *w, const Op *op, int lane, uint32_t at) {
  Cta *c = w->cta;
  uint32_t n = (uint32_t)reg_get(w, op->b, REG_32, lane);
  Signal *s = find(c, at);
  if (s) return fault(w, op, lane, "the mbarrier at %#x is initialised twice", at), false;
  if (!inside(w, op, lane, at) || !touch_signal(w, op, lane, at, true)) return false;
  if (n < 1 || n > MOST_BYTES) return fault(w, op, lane, "%u arrivals cannot be", n), false;
  if (c->nsignals == MAX_SIGNALS) return fault(w, op, lane, "too many mbarriers"), false;
  c->signals[c->nsignals++] =
      (Signal){.at = at, .expected = n, .pending = n, .by = w->index * LANES + (uint32_t)lane};
  mark(c, at, TAKEN);
  return true;
}

static bool act(Warp *w, const Op *op, int lane, uint32_t at, bool all) {
  if (op->sub == BEGIN) return begin(w, op, lane, at);
  Signal *s = signal_find(w, op, lane, at);
  if (!s || !touch_signal(w, op, lane, at, false)) return false;
  if (op->sub == EXPECT && !expect(w, op, lane, s, (uint32_t)reg_get(w, op->b, REG_32, lane)))
    return false;
  if (!arrive(w, op, lane, s, all)) return false;
  signal_test(w->cta, s);
  return true;
}

static Went step_act(Warp *w, const Op *op, uint32_t mask) {
  uint64_t at[LANES];
  addresses(w, op, at);
  if (mask == w->alive) warp_interval(w);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && !act(w, op, i, (uint32_t)at[i], mask == w->alive)) return WENT_WAITING;
  if (!warp_pause(w)) return WENT_ON;
  warp_keep(w);
  return WENT_APART;
}

/* Lanes wait together, for one phase. */
static Went step_wait(Warp *w, const Op *op, uint32_t mask) {
  uint64_t at[LANES];
  int first = first_lane(mask);
  addresses(w, op, at);
  uint64_t parity = reg_get(w, op->b, REG_32, first);
  for (int i = first; i < LANES; i++)
    if (mask >> i & 1 && (at[i] != at[first] || reg_get(w, op->b, REG_32, i) != parity))
      return fault(w, op, i, "lanes wait for several mbarriers or phases at once");
  if (parity > 1) return fault(w, op, first, "a parity of %llu", (unsigned long long)parity);
  Signal *s = signal_find(w, op, first, (uint32_t)at[first]);
  if (!s || !touch_signal(w, op, first, s->at, false)) return WENT_WAITING;
  bool over = (s->phase & 1) != parity;
  for (int i = first; i < LANES; i++)
    if (mask >> i & 1) reg_set(w, op->d, REG_PRED, i, over);
  if (over) {
    if (s->phase > s->seen[w->index] + 1)
      return fault(w, op, first,
                   "%u phases of the mbarrier at %#x ended since this warp waited for it: a parity "
                   "does not tell them apart",
                   s->phase - s->seen[w->index], s->at);
    s->seen[w->index] = s->phase;
    know(w->known, s->known, owners(w->cta));
    return WENT_ON;
  }
  if (w->alive & ~w->parked & ~mask) { /* the warp's other lanes first */
    Went went;
    together(w, op, mask, ALL_LANES, &went);
    return went;
  }
  if (mask != w->alive) { /* others wait for these: the warp must not sleep */
    copies_bring(w->cta);
    return WENT_ON;
  }
  w->waits = SIGNAL_WAIT + (int)(s - w->cta->signals);
  warp_keep(w);
  return WENT_WAITING;
}

/* ---- fences ---- */
void signals_fence(Warp *w, uint32_t mask, uint8_t fence) {
  for (uint32_t i = 0; i < w->cta->nsignals; i++) {
    Signal *s = &w->cta->signals[i];
    if (s->by / LANES == w->index && mask >> s->by % LANES & 1) s->fences |= fence;
  }
}

/* ---- decoding ---- */
static bool names_shared(const char *part) {
  return !strcmp(part, "shared") || !strcmp(part, "shared::cta");
}

static void decode_sink(Reader *r, const Ins *ins) {
  if (ins->args[0].kind != ARG_SINK)
    read_error(r, ins->line, "`%s` gives no state: write `_`", ins->opcode);
}

/* mbarrier.init.space.b64 [a], n; .arrive.space.b64 _, [a]; .arrive.expect_tx.space.b64 _, [a], n;
 * .try_wait.parity.space.b64 p, [a], parity */
void decode_mbarrier(Reader *r, const Ins *ins) {
  static const struct {
    const char *word, *more;
    int address, args;
  } rows[] = {[BEGIN] = {"init", NULL, 0, 2},
              [ARRIVE] = {"arrive", NULL, 1, 2},
              [EXPECT] = {"arrive", "expect_tx", 1, 3},
              [WAIT] = {"try_wait", "parity", 1, 3}};
  int which = -1;
  for (int i = 0; i < 4; i++) {
    int more = rows[i].more != NULL;
    if (ins->nparts == 4 + more && !strcmp(ins->part[1], rows[i].word) &&
        (!more || !strcmp(ins->part[2], rows[i].more)) && names_shared(ins->part[2 + more]) &&
        !strcmp(ins->part[3 + more], "b64"))
      which = i;
  }
  if (which < 0) unknown(r, ins);
  need_args(r, ins, rows[which].args, rows[which].args);
  if (which == ARRIVE || which == EXPECT) decode_sink(r, ins);
  int32_t a, b = NO_SLOT, d = NO_SLOT;
  RegKind kind;
  int64_t offset;
  decode_address(r, ins, &ins->args[rows[which].address], &a, &kind, &offset);
  if (which != ARRIVE) b = source(r, ins, rows[which].args - 1, REG_32);
  if (which == WAIT) d = result(r, ins, 0, REG_PRED);
  Op *op = emit(r, ins);
  op->step = which == WAIT ? step_wait : step_act, op->sub = (uint8_t)which;
  op->a = a, op->kind_a = (uint8_t)kind, op->imm = offset, op->b = b, op->d = d;
}

/* Instructions of several lanes: barriers, shuffles, votes, active masks.
 *
 * A barrier counts threads in whole warps and lets bar.arrive pass. Accesses of the warps before it
 * are ordered before the next ones of the released warps (ptx_check.c keeps the intervals).
 * Instructions with a membermask wait until all of its live lanes arrive.
 *
 * Must not: release anybody early: a wrong count shows as a deadlock. */
#include "ptx_read.h"
#include "ptx_lanes.h"

enum { BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR };

/* ---- barriers ---- */
static void deliver(Warp *w, const Barrier *b) {
  const Op *op = w->red;
  if (!op) return;
  uint64_t v = op->sub == BAR_POPC  ? b->ones
               : op->sub == BAR_AND ? b->ones == b->threads
                                    : b->ones > 0;
  for (int i = 0; i < LANES; i++)
    if (w->red_mask >> i & 1) reg_set(w, op->d, op->kind, i, v);
  w->red = NULL;
}

/* The released warps know of all that the comers did. */
static void meet(Cta *c, const Barrier *b) {
  uint32_t joined[MAX_OWNERS] = {0};
  for (uint32_t s = 0; s < c->nwarps; s++) {
    if (!(b->came >> s & 1)) continue;
    for (uint32_t v = 0; v < owners(c); v++) {
      uint32_t k = v == s ? b->stamps[s] : c->warps[s].known[v];
      if (k > joined[v]) joined[v] = k;
    }
  }
  for (uint32_t r = 0; r < c->nwarps; r++)
    for (uint32_t v = 0; b->waiting >> r & 1 && v < owners(c); v++)
      if (joined[v] > c->warps[r].known[v]) c->warps[r].known[v] = joined[v];
}

bool barrier_try(Cta *c, int id) {
  Barrier *b = &c->barriers[id];
  if (!b->arrived) return false;
  if (!b->fixed) b->expected = c->live * LANES;
  if (b->arrived < b->expected) return false;
  meet(c, b);
  for (uint32_t i = 0; i < c->nwarps; i++)
    if (b->waiting >> i & 1) {
      c->warps[i].waits = 0;
      deliver(&c->warps[i], b);
    }
  *b = (Barrier){0};
  return true;
}

static bool check_count(Warp *w, const Op *op, Barrier *b, int lane, uint32_t id, bool fixed,
                        uint32_t count) {
  if (id >= MAX_BARRIERS) return fault(w, op, lane, "barrier %u: there are 0 to 15", id), false;
  if (fixed && (count % LANES || count == 0))
    return fault(w, op, lane, "barrier %u: a count of %u threads is no multiple of 32", id, count),
           false;
  if (fixed && count > w->cta->nwarps * LANES)
    return fault(w, op, lane, "barrier %u waits for %u threads, the CTA has %u", id, count,
                 w->cta->nwarps * LANES),
           false;
  if (b->arrived && (b->fixed != fixed || (fixed && b->expected != count)))
    return fault(w, op, lane, "barrier %u: others wait there with another count", id), false;
  if (b->came >> w->index & 1)
    return fault(w, op, lane, "barrier %u: this warp came to it before and it is not complete", id),
           false;
  return true;
}

static Went step_bar(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!together(w, op, mask, ALL_LANES, &went)) return went;
  int lane = first_lane(mask);
  Cta *c = w->cta;
  uint32_t id = (uint32_t)reg_get(w, op->a, REG_32, lane);
  bool fixed = op->b != NO_SLOT;
  uint32_t count = fixed ? (uint32_t)reg_get(w, op->b, REG_32, lane) : 0;
  Barrier *b = &c->barriers[id < MAX_BARRIERS ? id : 0];
  if (!check_count(w, op, b, lane, id, fixed, count)) return WENT_WAITING;
  warp_meets(w);
  b->fixed = fixed, b->expected = fixed ? count : 0;
  b->arrived += LANES, b->came |= 1u << w->index, b->stamps[w->index] = w->stamp;
  if (op->c != NO_SLOT) {
    uint32_t p = *(uint32_t *)reg_at(w, op->c) ^ (op->flag ? ALL_LANES : 0);
    b->ones += (uint32_t)__builtin_popcount(p & mask);
    b->threads += (uint32_t)__builtin_popcount(mask);
    w->red = op, w->red_mask = mask;
  }
  if (op->sub != BAR_ARRIVE) b->waiting |= 1u << w->index, w->waits = (int)id + 1;
  barrier_try(c, (int)id);
  if (!w->waits) warp_pause(w);
  warp_keep(w);
  return w->waits ? WENT_WAITING : WENT_APART;
}

static Went step_warp_sync(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  uint32_t members = (uint32_t)reg_get(w, op->a, REG_32, first_lane(mask));
  if (mask & ~members)
    return fault(w, op, first_lane(mask & ~members), "this lane is not in the membermask %08x",
                 members);
  if (!together(w, op, mask, members, &went)) return went;
  if ((mask & w->alive) == w->alive) warp_meets(w);
  return WENT_ON;
}

/* bar{.cta}.sync{.aligned} a{, b}; .arrive a, b; .red.op{.aligned} d, a{, b}, {!}p; bar.warp.sync m
 */
void decode_bar(Reader *r, const Ins *ins) {
  static const char *const names[] = {"sync", "arrive"};
  int at = ins->nparts > 1 && !strcmp(ins->part[1], "cta") ? 2 : 1;
  if (ins->nparts == 3 && !strcmp(ins->part[1], "warp") && !strcmp(ins->part[2], "sync")) {
    need_args(r, ins, 1, 1);
    int32_t m = source(r, ins, 0, REG_32);
    Op *op = emit(r, ins);
    op->step = step_warp_sync, op->a = m;
    return;
  }
  int sub = -1, first = 0;
  for (int i = 0; i < 2; i++)
    if (at < ins->nparts && !strcmp(ins->part[at], names[i])) sub = i;
  if (at + 2 < ins->nparts && !strcmp(ins->part[at], "red")) {
    const char *how = ins->part[at + 1];
    sub = !strcmp(how, "popc")  ? BAR_POPC
          : !strcmp(how, "and") ? BAR_AND
          : !strcmp(how, "or")  ? BAR_OR
                                : -1;
    first = 1;
  }
  if (sub < 0 || has_part(ins, "cluster")) unknown(r, ins);
  RegKind kind = sub == BAR_POPC ? REG_32 : REG_PRED;
  need_args(r, ins, first ? 3 : 1 + (sub == BAR_ARRIVE), first ? 4 : 2);
  int32_t a = source(r, ins, first, REG_32), b = NO_SLOT, c = NO_SLOT, d = NO_SLOT;
  if (ins->nargs == first + 2 + (first > 0)) b = source(r, ins, first + 1, REG_32);
  if (first) c = source(r, ins, ins->nargs - 1, REG_PRED), d = result(r, ins, 0, kind);
  Op *op = emit(r, ins);
  op->step = step_bar, op->sub = (uint8_t)sub, op->a = a, op->b = b, op->c = c, op->d = d;
  op->kind = kind, op->flag = first && ins->args[ins->nargs - 1].negated;
}

/* ---- membermasks ---- */
/* All lanes of every membermask among `mask` have arrived. */
bool members_here(Warp *w, const Op *op, int32_t slot, uint32_t mask, Went *went) {
  uint32_t left = mask;
  const uint32_t *members = reg_at(w, slot);
  while (left) {
    int lane = first_lane(left);
    uint32_t m = members[lane], same = 0;
    for (int i = 0; i < LANES; i++)
      if (left >> i & 1 && members[i] == m) same |= 1u << i;
    if (same & ~m) {
      *went = fault(w, op, first_lane(same & ~m), "this lane is not in its membermask %08x", m);
      return false;
    }
    if ((same & m & w->alive) != (m & w->alive) && !together(w, op, mask, mask | m, went))
      return false;
    left &= ~same;
  }
  return true;
}

/* ---- shuffles ---- */
enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };

/* Where lane reads; *ok: inside its segment. */
static int shuffled(int mode, int lane, uint32_t b, uint32_t c, bool *ok) {
  int segment = (int)(c >> 8 & 31), clamp = (int)(c & 31), step = (int)(b & 31);
  int top = (lane & segment) | (clamp & ~segment & 31), low = lane & segment, j;
  switch (mode) {
  case SHFL_UP: j = lane - step, *ok = j >= top; break;
  case SHFL_DOWN: j = lane + step, *ok = j <= top; break;
  case SHFL_BFLY: j = lane ^ step, *ok = j <= top; break;
  default: j = low | (step & ~segment & 31), *ok = j <= top; break;
  }
  return *ok ? j : lane;
}

static Went step_shfl(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!members_here(w, op, op->e, mask, &went)) return went;
  const uint32_t *a = reg_at(w, op->a), *b = reg_at(w, op->b), *c = reg_at(w, op->c);
  const uint32_t *members = reg_at(w, op->e);
  uint32_t value[LANES], in = 0;
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    bool ok;
    int j = shuffled(op->sub, i, b[i], c[i], &ok);
    if (!(mask >> j & 1) || !(members[i] >> j & 1))
      return fault(w, op, i, "the shuffle reads lane %d, which takes no part in it", j);
    value[i] = a[j], in |= (uint32_t)ok << i;
  }
  uint32_t *d = reg_at(w, op->d);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) d[i] = value[i];
  if (op->imm != NO_SLOT) {
    uint32_t *p = reg_at(w, (int32_t)op->imm);
    *p = (*p & ~mask) | in;
  }
  return WENT_ON;
}

/* shfl.sync.mode.b32 d{|p}, a, b, c, membermask */
void decode_shfl(Reader *r, const Ins *ins) {
  static const char *const modes[] = {"up", "down", "bfly", "idx"};
  int mode = -1;
  for (int i = 0; i < 4; i++)
    if (ins->nparts == 4 && !strcmp(ins->part[2], modes[i])) mode = i;
  if (mode < 0 || strcmp(ins->part[1], "sync") || strcmp(ins->part[3], "b32")) unknown(r, ins);
  need_args(r, ins, 5, 5);
  int32_t a = source(r, ins, 1, REG_32), b = source(r, ins, 2, REG_32),
          c = source(r, ins, 3, REG_32);
  int32_t e = source(r, ins, 4, REG_32), d = result(r, ins, 0, REG_32), p = NO_SLOT;
  if (ins->pair.kind != ARG_NONE) p = result_arg(r, ins, &ins->pair, REG_PRED);
  Op *op = emit(r, ins);
  op->step = step_shfl, op->sub = (uint8_t)mode, op->imm = p;
  op->a = a, op->b = b, op->c = c, op->e = e, op->d = d;
}

/* ---- votes ---- */
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

static uint32_t vote(int mode, uint32_t yes, uint32_t members) {
  switch (mode) {
  case VOTE_ALL: return yes == members;
  case VOTE_ANY: return yes != 0;
  case VOTE_UNI: return yes == members || yes == 0;
  default: return yes;
  }
}

static Went step_vote(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!members_here(w, op, op->e, mask, &went)) return went;
  uint32_t p = *(const uint32_t *)reg_at(w, op->a) ^ (op->flag ? ALL_LANES : 0);
  const uint32_t *members = reg_at(w, op->e);
  uint32_t result[LANES];
  for (int i = 0; i < LANES; i++) {
    uint32_t with = members[i] & mask;
    result[i] = vote(op->sub, p & with, with);
  }
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) reg_set(w, op->d, op->kind, i, result[i]);
  return WENT_ON;
}

/* vote.sync.mode.{pred,b32} d, {!}a, membermask */
void decode_vote(Reader *r, const Ins *ins) {
  static const char *const modes[] = {"all", "any", "uni", "ballot"};
  int mode = -1;
  for (int i = 0; i < 4; i++)
    if (ins->nparts == 4 && !strcmp(ins->part[2], modes[i])) mode = i;
  RegKind kind = mode == VOTE_BALLOT ? REG_32 : REG_PRED;
  if (mode < 0 || strcmp(ins->part[1], "sync") || type_kind(ins->part[3]) != kind) unknown(r, ins);
  need_args(r, ins, 3, 3);
  int32_t a = source(r, ins, 1, REG_PRED), e = source(r, ins, 2, REG_32),
          d = result(r, ins, 0, kind);
  Op *op = emit(r, ins);
  op->step = step_vote, op->sub = (uint8_t)mode, op->flag = ins->args[1].negated;
  op->a = a, op->e = e, op->d = d, op->kind = kind;
}

static Went step_activemask(Warp *w, const Op *op, uint32_t mask) {
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) reg_set(w, op->d, REG_32, i, mask);
  return WENT_ON;
}

void decode_activemask(Reader *r, const Ins *ins) {
  need_args(r, ins, 1, 1);
  int32_t d = result(r, ins, 0, REG_32);
  Op *op = emit(r, ins);
  op->step = step_activemask, op->d = d;
}

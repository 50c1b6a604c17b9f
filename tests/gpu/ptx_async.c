/* Asynchronous copies: cp.async, its groups and waits.
 *
 * A copy is noted at its issue and counts as done when its thread has waited for its group. In
 * eager mode the bytes arrive at once, in late mode only at that wait; in both, the words are
 * marked as in flight in between and touching them is reported (ptx_check.c). When it is done, the
 * copy counts as a write of its thread in that thread's interval at the wait: others need a barrier
 * after it.
 *
 * Must not: deliver a byte later than its wait. */
#include "ptx_memory.h"
#include <stdlib.h>
#include <string.h>

struct Flight {
  Flight *next;
  const Op *op;
  uint32_t mask; /* lanes that have not waited yet */
  uint32_t bytes;
  uint32_t to[LANES], group[LANES], have[LANES]; /* have: bytes read, the rest is zero */
  const uint8_t *from[LANES];
};

/* ---- words in flight ---- */
static void mark(Warp *w, uint32_t at, uint32_t bytes, bool flying) {
  Cell *cells = w->cta->shared.cells;
  for (uint32_t i = at >> 2; cells && i < (at + bytes) >> 2; i++) cells[i].flying = flying ? 15 : 0;
}

static void bring(Warp *w, const Flight *f, int lane) {
  uint8_t *to = w->cta->shared.data + f->to[lane];
  if (f->have[lane]) memcpy(to, f->from[lane], f->have[lane]);
  memset(to + f->have[lane], 0, f->bytes - f->have[lane]);
}

static bool deliver(Warp *w, const Flight *f, int lane) {
  if (w->cta->launch->device->o.late) bring(w, f, lane);
  mark(w, f->to[lane], f->bytes, false);
  Touch t = {.plane = &w->cta->shared,
             .offset = f->to[lane],
             .bytes = f->bytes,
             .write = true,
             .space = SPACE_SHARED};
  return touch(w, f->op, lane, &t);
}

/* Delivers what lane waits for: groups below `until`. */
static bool arrive(Warp *w, int lane, uint32_t until) {
  for (Flight **at = &w->flights; *at;) {
    Flight *f = *at;
    if (f->mask >> lane & 1 && f->group[lane] < until) {
      f->mask &= ~(1u << lane);
      if (!deliver(w, f, lane)) return false;
    }
    if (f->mask) {
      at = &f->next;
      continue;
    }
    *at = f->next;
    free(f);
  }
  return true;
}

void flights_drop(Warp *w) {
  while (w->flights) {
    Flight *f = w->flights;
    for (int i = 0; i < LANES; i++)
      if (f->mask >> i & 1) mark(w, f->to[i], f->bytes, false);
    w->flights = f->next;
    free(f);
  }
}

/* ---- the copy ---- */
/* Bytes to read of each lane: all, src-size, or none where ignore-src is set. */
static void read_sizes(Warp *w, const Op *op, Flight *f) {
  for (int i = 0; i < LANES; i++) {
    f->have[i] = f->bytes;
    if (op->c == NO_SLOT) continue;
    uint64_t v = reg_get(w, op->c, op->kind, i);
    f->have[i] = op->kind == REG_PRED ? (v ? 0 : f->bytes) : (uint32_t)v;
  }
}

/* A lane that reads fewer bytes than it writes: byte by byte. */
static bool place_short(Warp *w, const Op *op, int lane, const uint64_t from[LANES], Flight *f) {
  Access x = {.space = SPACE_GLOBAL, .bytes = 1};
  if (f->have[lane] > f->bytes)
    return fault(w, op, lane, "src-size %u is larger than cp-size %u", f->have[lane], f->bytes),
           false;
  if (from[lane] & (f->bytes - 1)) return fault(w, op, lane, "misaligned source"), false;
  for (uint32_t k = f->have[lane]; k-- > 0;) {
    x.address[lane] = from[lane] + k;
    if (!place(w, op, 1u << lane, &x)) return false;
    f->from[lane] = x.at[lane];
  }
  return true;
}

static bool place_source(Warp *w, const Op *op, uint32_t mask, Flight *f) {
  Op address = *op; /* the source: register b, offset of its own */
  uint64_t from[LANES];
  uint32_t whole = 0;
  address.a = op->b, address.imm = op->target, address.kind_a = op->sub;
  address.imm = (int64_t)(int32_t)op->target;
  addresses(w, &address, from);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && f->have[i] == f->bytes) whole |= 1u << i;
  Access x = {.space = SPACE_GLOBAL, .bytes = f->bytes};
  memcpy(x.address, from, sizeof from);
  if (whole && !place(w, op, whole, &x)) return false;
  for (int i = 0; i < LANES; i++) {
    if (whole >> i & 1) f->from[i] = x.at[i];
    else if (mask >> i & 1 && f->have[i] && !place_short(w, op, i, from, f)) return false;
  }
  return true;
}

static bool place_target(Warp *w, const Op *op, uint32_t mask, Flight *f) {
  Access x = {.space = SPACE_SHARED, .bytes = f->bytes, .write = true};
  addresses(w, op, x.address);
  if (!place(w, op, mask, &x)) return false;
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    f->to[i] = (uint32_t)x.address[i], f->group[i] = w->groups[i];
    mark(w, f->to[i], f->bytes, true);
  }
  return true;
}

static Went step_copy(Warp *w, const Op *op, uint32_t mask) {
  Flight *f = calloc(1, sizeof *f), **last = &w->flights;
  if (!f) return fault(w, op, first_lane(mask), "the host has no memory for this copy");
  f->op = op, f->bytes = op->bytes;
  read_sizes(w, op, f);
  if (!place_source(w, op, mask, f) || !place_target(w, op, mask, f)) {
    free(f);
    return WENT_WAITING;
  }
  f->mask = mask;
  for (int i = 0; i < LANES && !w->cta->launch->device->o.late; i++)
    if (mask >> i & 1) bring(w, f, i);
  while (*last) last = &(*last)->next;
  *last = f;
  return WENT_ON;
}

static Went step_commit(Warp *w, const Op *op, uint32_t mask) {
  (void)op;
  for (int i = 0; i < LANES; i++) w->groups[i] += mask >> i & 1;
  return WENT_ON;
}

/* imm: groups that may stay under way; -1: wait_all */
static Went step_wait(Warp *w, const Op *op, uint32_t mask) {
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    uint32_t keep = (uint32_t)op->imm, done = w->groups[i];
    uint32_t until = op->imm < 0 ? UINT32_MAX : done > keep ? done - keep : 0;
    if (!arrive(w, i, until)) return WENT_WAITING;
  }
  return WENT_ON;
}

/* ---- decoding ---- */
static void decode_group(Reader *r, const Ins *ins) {
  const char *what = ins->part[2];
  bool wait = !strcmp(what, "wait_group");
  int64_t keep = -1;
  if (ins->nparts != 3 || (!wait && strcmp(what, "commit_group") && strcmp(what, "wait_all")))
    unknown(r, ins);
  need_args(r, ins, wait, wait);
  if (wait) {
    if (ins->args[0].kind != ARG_INT)
      read_error(r, ins->line, "the number of groups is a constant");
    keep = (int64_t)ins->args[0].value;
    if (keep < 0 || keep > 1 << 20) read_error(r, ins->line, "that many groups cannot be");
  }
  Op *op = emit(r, ins);
  op->step = *what == 'c' ? step_commit : step_wait, op->imm = keep;
}

/* cp.async.{ca,cg}.shared.global{.L2::hint} [to], [from], size{, src-size or ignore-src} */
static void decode_copy(Reader *r, const Ins *ins) {
  bool shared = !strcmp(ins->part[3], "shared") || !strcmp(ins->part[3], "shared::cta");
  if (!shared || strcmp(ins->part[4], "global")) unknown(r, ins);
  for (int i = 5; i < ins->nparts; i++)
    if (strncmp(ins->part[i], "L2::", 4) || !strcmp(ins->part[i], "L2::cache_hint"))
      unknown(r, ins);
  need_args(r, ins, 3, 4);
  uint64_t bytes = ins->args[2].value;
  bool cg = !strcmp(ins->part[2], "cg");
  if (ins->args[2].kind != ARG_INT || (bytes != 16 && (cg || (bytes != 4 && bytes != 8))))
    read_error(r, ins->line, "`%s` copies 16 bytes%s", ins->opcode, cg ? "" : ", 8 or 4");
  int32_t to, from, c = NO_SLOT;
  RegKind kind_to, kind_from, kind_c = REG_32;
  int64_t offset_to, offset_from;
  decode_address(r, ins, &ins->args[0], &to, &kind_to, &offset_to);
  decode_address(r, ins, &ins->args[1], &from, &kind_from, &offset_from);
  if (offset_from != (int32_t)offset_from) read_error(r, ins->line, "offset out of range");
  if (ins->nargs == 4) {
    if (ins->args[3].kind == ARG_REG) kind_c = ins->args[3].reg;
    c = source(r, ins, 3, kind_c);
  }
  Op *op = emit(r, ins);
  op->step = step_copy, op->a = to, op->kind_a = (uint8_t)kind_to, op->imm = offset_to;
  op->b = from, op->sub = (uint8_t)kind_from, op->target = (uint32_t)offset_from;
  op->c = c, op->kind = kind_c, op->bytes = (uint8_t)bytes;
}

void decode_cp(Reader *r, const Ins *ins) {
  if (ins->nparts < 3 || strcmp(ins->part[1], "async")) unknown(r, ins);
  if (!strcmp(ins->part[2], "bulk")) {
    decode_bulk(r, ins);
    return;
  }
  if (ins->nparts >= 5 && (!strcmp(ins->part[2], "ca") || !strcmp(ins->part[2], "cg")))
    decode_copy(r, ins);
  else decode_group(r, ins);
}

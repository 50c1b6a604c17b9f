/* Operations outside of entries (ir/background.def). They alternate for as long as a program runs:
   so of two that share a byte each waits for the latest of the other. Kernels read the inputs and
   change what is saved in the order of `compute`; `keep` also waits for the streams of the host's
   memory that touch what it copies, and these begin again after it. Must not: know how the runtime
   waits. */
#include "background_order.h"
#include "ir/phases.h"
#include "ir/plan/module_settings.h"
#include <string.h>

enum { NOTHING = 0, STAGED = 1, WAITING = 2, INPUTS = 4, SAVED = 8, SNAPSHOT = 16 };

static const struct {
  const char *name, *stream;
  unsigned reads, writes;
} rows[] = {
#define BACKGROUND(name, stream, reads, writes, meaning) {#name, #stream, reads, writes},
#include "ir/background.def"
#undef BACKGROUND
};

const char *background_name(BackgroundOp op) { return rows[op].name; }
const char *background_stream(BackgroundOp op) { return rows[op].stream; }

/* Inputs in the memory of a processor wait in that of the thread. */
static unsigned reads(const Module *m, BackgroundOp op) {
  return op == BACKGROUND_take && !module_on_gpu(m) ? STAGED : rows[op].reads;
}

/* Must it wait for the other: do both touch a byte, one of them writing, on different streams? */
static bool background_meets(const Module *m, BackgroundOp op, BackgroundOp other) {
  return strcmp(rows[op].stream, rows[other].stream) &&
         ((reads(m, op) & rows[other].writes) || (rows[op].writes & reads(m, other)));
}

bool global_is_read_ahead(const Module *m, const Global *global) {
  const Fn *step = global->kind == GLOBAL_INPUT ? module_step(m) : NULL;
  for (OpId i = 0; step && i < step->ops.n; i++)
    if (step->ops.at[i].code == OP_load && step->ops.at[i].global == global) return true;
  return false;
}

bool global_is_kept(const Module *m, const Global *global) {
  bool changes = global->kind == GLOBAL_STATE || (global->kind == GLOBAL_PARAM && !global->frozen);
  return changes && !global->within && !global->derived && module_step(m) &&
         module_on(m, "train.save.async");
}

static bool is_there(const Module *m, BackgroundOp op) {
  bool inputs = rows[op].writes & (STAGED | WAITING | INPUTS);
  if (op == BACKGROUND_send && !module_on_gpu(m)) return false;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (inputs ? global_is_read_ahead(m, m->globals.at[i]) : global_is_kept(m, m->globals.at[i]))
      return true;
  return false;
}

/* The streams of the host's memory whose operations touch what is saved. */
static unsigned saved_streams(const Module *m, const StreamOrders *orders) {
  unsigned streams = 0;
  for (uint32_t i = 0; i < orders->n; i++)
    for (uint32_t k = 0; k < orders->at[i].at.n; k++) {
      const StreamEvent *event = &orders->at[i].at.at[k];
      const EventBytes *bytes = &orders->at[i].list.bytes.at[event->event->bytes];
      for (uint32_t n = 0; event->stream != STREAM_compute && n < event->event->nbytes; n++)
        if (bytes[n].written && bytes[n].space >= TIERS && bytes[n].space < TIERS + m->globals.n &&
            global_is_kept(m, m->globals.at[bytes[n].space - TIERS]))
          streams |= 1u << event->stream;
    }
  return streams;
}

void background_of(const Module *m, const StreamOrders *orders, Background *out) {
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++)
    out[op] = (Background){.there = is_there(m, op)};
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++)
    for (BackgroundOp other = 0; out[op].there && other < BACKGROUNDS; other++)
      if (out[other].there && background_meets(m, op, other)) out[op].after |= 1u << other;
  if (out[BACKGROUND_keep].there) out[BACKGROUND_keep].streams = saved_streams(m, orders);
}

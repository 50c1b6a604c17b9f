/* Pinned memory of the host in a program for a GPU: what the runtime reads and writes there
   (runtime/device/device.h), decided at compile time and allocated once.

     view       inputs and scalars, which the host writes from anywhere, and small outputs, one
                behind the other
     window     for all other tensors, of which the host has a part at a time
     messages   as sent and as received, where collectives go by way of the host
     ahead      the inputs of the next step, as they are sent while this one runs; as much lies on
                the GPU, where they wait for it

   Must not: count what lies on the GPU, that is budget.c's. */
#include "budget.h"
#include "message.h"
#include "stage_class.h"
#include "ir/support/num.h"
#include <string.h>

enum { SMALL = 4096, WINDOW = 16 << 20 }; /* bytes */

static int64_t bytes_of(const Module *m, const Global *g) {
  return round_up(global_bytes(m, g), CACHE_LINE);
}

/* Flat globals, and copies in a narrower type, are none: their members are. */
bool global_is_tensor(const Module *m, const Global *g) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == g) return false;
  return !g->derived;
}

/* Keys and values are inputs that the runtime fills on the device (runtime/kv_cache.c). */
static bool is_cache(const Global *g) { return !strncmp(g->name, "decode.of.cache.", 16); }

static bool is_viewed(const Module *m, const Global *g) {
  return (g->kind == GLOBAL_INPUT && !is_cache(g)) || g->kind == GLOBAL_SCALAR ||
         (g->kind == GLOBAL_OUTPUT && bytes_of(m, g) <= SMALL);
}

int64_t module_view_at(const Module *m, const Global *g) {
  int64_t at = 0;
  if (!module_on_gpu(m) || !is_viewed(m, g)) return -1;
  for (uint32_t i = 0; m->globals.at[i] != g; i++)
    if (is_viewed(m, m->globals.at[i])) at += bytes_of(m, m->globals.at[i]);
  return at;
}

/* Is it filled with samples? Then step reads it, and the next samples are sent ahead. */
static bool is_sent_ahead(const Module *m, const Global *g) {
  for (uint32_t i = 0; g->kind == GLOBAL_INPUT && i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    if (f->kind != FN_ENTRY || strcmp(f->name, "step")) continue;
    for (OpId k = 0; k < f->ops.n; k++)
      if (f->ops.at[k].code == OP_load && f->ops.at[k].global == g) return true;
  }
  return false;
}

int64_t module_ahead_at(const Module *m, const Global *g) {
  int64_t at = 0;
  if (!module_on_gpu(m) || !is_sent_ahead(m, g)) return -1;
  for (uint32_t i = 0; m->globals.at[i] != g; i++)
    if (is_sent_ahead(m, m->globals.at[i])) at += bytes_of(m, m->globals.at[i]);
  return at;
}

int64_t module_ahead(const Module *m) {
  int64_t bytes = 0;
  for (uint32_t i = 0; module_on_gpu(m) && i < m->globals.n; i++)
    if (is_sent_ahead(m, m->globals.at[i])) bytes += bytes_of(m, m->globals.at[i]);
  return bytes;
}

static int64_t largest_message(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n && message_by_host(m); i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
      int64_t bytes = message_host_bytes(m->fns.at[i], o);
      if (bytes > most) most = bytes;
    }
  return most;
}

Pinned module_pinned(const Module *m) {
  Pinned p = {0};
  for (uint32_t i = 0; i < m->globals.n && module_on_gpu(m); i++) {
    const Global *g = m->globals.at[i];
    if (is_viewed(m, g)) p.view += bytes_of(m, g);
    else if (!is_cache(g) && global_is_tensor(m, g) && bytes_of(m, g) > p.window)
      p.window = bytes_of(m, g);
  }
  if (p.window > WINDOW) p.window = WINDOW;
  p.messages = 2 * largest_message(m);
  p.ahead = module_ahead(m);
  return p;
}

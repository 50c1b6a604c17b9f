/* Pinned memory of the host in a program for a GPU, which the runtime reads and writes
   (runtime/device/device.h); its layout is decided at compile time and it is allocated once.

     view       inputs and scalars, which the host writes from any address, and small outputs,
                contiguous
     window     for all other tensors, of which the host has a part at a time
     messages   as sent and as received, where collectives are staged through the host
     ahead      the inputs of the next step, which are uploaded during the present one; a buffer of
                the same size on the GPU holds them until then

   Must not: count memory of the GPU; that is the task of budget.c. */
#include "budget.h"
#include "ir/made.h"
#include "ir/schedule/background_order.h"
#include "ir/schedule/message.h"
#include "ir/plan/stage_class.h"
#include "ir/support/num.h"

enum { SMALL = 4096, WINDOW = 16 << 20 }; /* bytes */

static int64_t bytes_of(const Module *m, const Global *global) {
  return round_up(global_bytes(m, global), CACHE_LINE);
}

/* Flat globals, and copies in a narrower type, are none: their members are. */
bool global_is_tensor(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == global) return false;
  return !global->derived;
}

/* Keys and values are inputs that the runtime fills on the device (runtime/kv_cache.c). */
static bool is_cache(const Global *global) { return made_rest(global->name, MADE_CACHE) != NULL; }

static bool is_viewed(const Module *m, const Global *global) {
  return (global->kind == GLOBAL_INPUT && !is_cache(global)) || global->kind == GLOBAL_SCALAR ||
         (global->kind == GLOBAL_OUTPUT && bytes_of(m, global) <= SMALL);
}

int64_t module_view_at(const Module *m, const Global *global) {
  int64_t at = 0;
  if (!module_on_gpu(m) || !is_viewed(m, global)) return -1;
  for (uint32_t i = 0; m->globals.at[i] != global; i++)
    if (is_viewed(m, m->globals.at[i])) at += bytes_of(m, m->globals.at[i]);
  return at;
}

int64_t module_ahead_at(const Module *m, const Global *global) {
  int64_t at = 0;
  if (!module_on_gpu(m) || !global_is_read_ahead(m, global)) return -1;
  for (uint32_t i = 0; m->globals.at[i] != global; i++)
    if (global_is_read_ahead(m, m->globals.at[i])) at += bytes_of(m, m->globals.at[i]);
  return at;
}

int64_t module_ahead(const Module *m) {
  int64_t bytes = 0;
  for (uint32_t i = 0; module_on_gpu(m) && i < m->globals.n; i++)
    if (global_is_read_ahead(m, m->globals.at[i])) bytes += bytes_of(m, m->globals.at[i]);
  return bytes;
}

static int64_t largest_message(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n && message_by_host(m); i++)
    EACH_OP (m->fns.at[i], o) {
      if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
      int64_t bytes = message_host_bytes(m->fns.at[i], o);
      if (bytes > most) most = bytes;
    }
  return most;
}

Pinned module_pinned(const Module *m) {
  Pinned pinned = {0};
  for (uint32_t i = 0; i < m->globals.n && module_on_gpu(m); i++) {
    const Global *global = m->globals.at[i];
    if (is_viewed(m, global)) pinned.view += bytes_of(m, global);
    else if (!is_cache(global) && global_is_tensor(m, global) &&
             bytes_of(m, global) > pinned.window)
      pinned.window = bytes_of(m, global);
  }
  if (pinned.window > WINDOW) pinned.window = WINDOW;
  pinned.messages = 2 * largest_message(m);
  pinned.ahead = module_ahead(m);
  return pinned;
}

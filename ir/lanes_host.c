/* Clocks of the lanes between a GPU and its host (lanes_host.h).

   What goes down the kernels' stream copies into a slot, and goes on; a lane takes it from there at
   the rate of the link. What comes up a lane puts into a slot as soon as one is free and the host
   has it, and the kernels' stream copies it out. Kernels of the host are a lane of their own. Each
   does one thing after the other; what touches the same bytes of the host's memory as another
   lane's waits for that. Before pass `memory` nobody knows the bytes: then it waits for all. */
#include "lanes_host.h"
#include "ir/support/num.h"

static double later(double a, double b) { return a > b ? a : b; }

static bool on_host(const Module *m, const EventBytes *b) {
  return b->space < TIERS ? b->space == TIER_host
                          : m->globals.at[b->space - TIERS]->type.tier == TIER_host;
}

static bool meet(const HostClocks *h, const Event *a, const Event *b) {
  const EventList *l = h->events;
  bool known = a->nbytes && b->nbytes;
  for (uint32_t i = 0; i < a->nbytes; i++)
    for (uint32_t k = 0; k < b->nbytes; k++) {
      const EventBytes *x = &l->bytes.at[a->bytes + i], *y = &l->bytes.at[b->bytes + k];
      if ((x->written || y->written) && on_host(h->m, x) && bytes_meet(x, y)) return true;
    }
  return !known;
}

/* When a lane may do what the event does, as far as the others are concerned. */
static double behind_others(const HostClocks *h, int lane, const Event *e) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) {
    const HostLane *l = &h->lane[k];
    int64_t oldest = l->n > HOST_TOUCHES ? l->n - HOST_TOUCHES : 0, i = l->n - 1;
    if (k == lane || !l->n) continue;
    while (i > oldest && !meet(h, l->touch[i % HOST_TOUCHES].event, e)) i--;
    if (i > oldest || oldest || meet(h, l->touch[i % HOST_TOUCHES].event, e))
      time = later(time, l->touch[i % HOST_TOUCHES].over);
  }
  return time;
}

static void note(HostLane *l, const Event *e, double over) {
  l->free = over;
  l->touch[l->n % HOST_TOUCHES].event = e, l->touch[l->n++ % HOST_TOUCHES].over = over;
}

/* Between two places of the GPU's memory. */
static double copy_seconds(const HostClocks *h, double bytes) {
  return h->x->hbm > 0 ? 2 * bytes / h->x->hbm : 0;
}

static double piece_down(HostClocks *h, HostLane *l, double *slot, double bytes, double now) {
  now = later(now, *slot) + copy_seconds(h, bytes);
  *slot = l->free = later(l->free, now) + h->x->copy + bytes / h->x->pcie;
  return now;
}

static double piece_up(HostClocks *h, HostLane *l, double *slot, double bytes, double now) {
  l->free = later(l->free, *slot) + h->x->copy + bytes / h->x->pcie;
  return *slot = later(now, l->free) + copy_seconds(h, bytes);
}

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events) {
  HostClocks h = {.m = m, .x = x, .events = events, .bytes = module_move_slot(m)};
  for (int up = 0; up < 2; up++) h.slots[up] = module_move_slots(m, up);
  return h;
}

double host_clock_move(HostClocks *h, const Event *e, double bytes, bool up, double now) {
  int lane = up ? HOST_UP : HOST_DOWN;
  HostLane *l = &h->lane[lane];
  double room = (double)h->bytes;
  l->free = later(l->free, behind_others(h, lane, e));
  while (bytes > 0) {
    double n = bytes < room ? bytes : room, *slot = &h->slot[up][h->taken[up]++ % h->slots[up]];
    now = up ? piece_up(h, l, slot, n, now) : piece_down(h, l, slot, n, now);
    bytes -= n;
  }
  note(l, e, l->free);
  return now;
}

void host_clock_kernel(HostClocks *h, const Event *e, double seconds) {
  HostLane *l = &h->lane[HOST_KERNELS];
  note(l, e, later(l->free, behind_others(h, HOST_KERNELS, e)) + seconds);
}

double host_clock_over(const HostClocks *h) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) time = later(time, h->lane[k].free);
  return time;
}

/* Clocks of the lanes between a GPU and its host (lanes_host.h).

   What goes down the kernels' stream copies into a slot, and goes on; a lane takes it from there at
   the rate of the link. What comes up a lane puts into a slot as soon as one is free and the host
   has it, and the kernels' stream copies it out. Kernels of the host are a lane of their own. Each
   does one thing after the other; what touches the same bytes of the host's memory as another
   lane's waits for that. Before pass `memory` nobody knows the bytes: then it waits for all. */
#include "lanes_host.h"
#include "ir/support/num.h"

static double later(double a, double b) { return a > b ? a : b; }

static bool on_host(const Module *m, const EventBytes *bytes) {
  return bytes->space < TIERS ? bytes->space == TIER_host
                              : m->globals.at[bytes->space - TIERS]->type.tier == TIER_host;
}

static bool meet(const HostClocks *clocks, const Event *a, const Event *b) {
  const EventList *list = clocks->events;
  bool known = a->nbytes && b->nbytes;
  for (uint32_t i = 0; i < a->nbytes; i++)
    for (uint32_t k = 0; k < b->nbytes; k++) {
      const EventBytes *x = &list->bytes.at[a->bytes + i], *y = &list->bytes.at[b->bytes + k];
      if ((x->written || y->written) && on_host(clocks->m, x) && bytes_meet(x, y)) return true;
    }
  return !known;
}

/* When a lane may do what the event does, as far as the others are concerned. */
static double behind_others(const HostClocks *clocks, int lane, const Event *event) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) {
    const HostLane *host_lane = &clocks->lane[k];
    int64_t oldest = host_lane->n > HOST_TOUCHES ? host_lane->n - HOST_TOUCHES : 0,
            i = host_lane->n - 1;
    if (k == lane || !host_lane->n) continue;
    while (i > oldest && !meet(clocks, host_lane->touch[i % HOST_TOUCHES].event, event)) i--;
    if (i > oldest || oldest || meet(clocks, host_lane->touch[i % HOST_TOUCHES].event, event))
      time = later(time, host_lane->touch[i % HOST_TOUCHES].over);
  }
  return time;
}

static void note(HostLane *host_lane, const Event *event, double over) {
  host_lane->free = over;
  host_lane->touch[host_lane->n % HOST_TOUCHES].event = event,
                                  host_lane->touch[host_lane->n++ % HOST_TOUCHES].over = over;
}

/* Between two places of the GPU's memory. */
static double copy_seconds(const HostClocks *clocks, double bytes) {
  return clocks->x->hbm > 0 ? 2 * bytes / clocks->x->hbm : 0;
}

static double piece_down(HostClocks *clocks, HostLane *host_lane, double *slot, double bytes,
                         double now) {
  now = later(now, *slot) + copy_seconds(clocks, bytes);
  *slot = host_lane->free = later(host_lane->free, now) + clocks->x->copy + bytes / clocks->x->pcie;
  return now;
}

static double piece_up(HostClocks *clocks, HostLane *host_lane, double *slot, double bytes,
                       double now) {
  host_lane->free = later(host_lane->free, *slot) + clocks->x->copy + bytes / clocks->x->pcie;
  return *slot = later(now, host_lane->free) + copy_seconds(clocks, bytes);
}

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events) {
  HostClocks clocks = {.m = m, .x = x, .events = events, .bytes = module_move_slot(m)};
  for (int up = 0; up < 2; up++) clocks.slots[up] = module_move_slots(m, up);
  return clocks;
}

double host_clock_move(HostClocks *clocks, const Event *event, double bytes, bool up, double now) {
  int lane = up ? HOST_UP : HOST_DOWN;
  HostLane *host_lane = &clocks->lane[lane];
  double room = (double)clocks->bytes;
  host_lane->free = later(host_lane->free, behind_others(clocks, lane, event));
  while (bytes > 0) {
    double n = bytes < room ? bytes : room,
           *slot = &clocks->slot[up][clocks->taken[up]++ % clocks->slots[up]];
    now = up ? piece_up(clocks, host_lane, slot, n, now)
             : piece_down(clocks, host_lane, slot, n, now);
    bytes -= n;
  }
  note(host_lane, event, host_lane->free);
  return now;
}

void host_clock_kernel(HostClocks *clocks, const Event *event, double seconds) {
  HostLane *host_lane = &clocks->lane[HOST_KERNELS];
  note(host_lane, event,
       later(host_lane->free, behind_others(clocks, HOST_KERNELS, event)) + seconds);
}

static void catch_up(HostClocks *clocks, int lane, double seconds) {
  HostLane *host_lane = &clocks->lane[lane];
  host_lane->free -= seconds;
  for (int i = 0; i < HOST_TOUCHES; i++) host_lane->touch[i].over -= seconds;
  for (int i = 0; lane != HOST_KERNELS && i < clocks->slots[lane == HOST_UP]; i++)
    clocks->slot[lane == HOST_UP][i] -= seconds;
}

void host_clock_skip(HostClocks *clocks, const double *free, double kernels, double periods) {
  for (int k = 0; k < HOST_LANES; k++) {
    double idle = kernels - (clocks->lane[k].free - free[k]);
    catch_up(clocks, k, periods * idle);
  }
}

double host_clock_over(const HostClocks *clocks) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) time = later(time, clocks->lane[k].free);
  return time;
}

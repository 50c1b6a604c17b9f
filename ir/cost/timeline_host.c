/* Clocks of the lanes between a GPU and its host (timeline_host.h).

   A download is first copied into a slot on the kernels' stream, which then continues; a lane sends
   the slot to the host at the rate of the link. An upload is put into a slot by its lane as soon as
   a slot is free and the host has the data, and the kernels' stream copies it out. Host kernels
   have a lane of their own.

   Each lane does one thing after the other; an operation waits for those of other lanes that touch
   the same bytes of the host's memory. Before pass `memory` these bytes are not known: then it
   waits for all.

   If lanes continue into the next step, parameters are uploaded directly to their place, and
   kernels wait for those that they read. */
#include "timeline_host.h"
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

static bool same_op(const LaneTouch *a, const LaneTouch *b) {
  return a->event->f == b->event->f && a->event->op == b->event->op;
}

/* When operation i of the lane, which conflicts with the event, is over. An event that conflicts
   with two rounds of an op also conflicts with the skipped rounds. */
static double over_of(const HostClocks *clocks, const HostLane *lane, int64_t i,
                      const Event *event) {
  const LaneTouch *last = &lane->touch[i % LANE_TOUCHES];
  int64_t oldest = lane->n > LANE_TOUCHES ? lane->n - LANE_TOUCHES : 0;
  for (int64_t k = i; last->all > last->over && k-- > oldest;) {
    const LaneTouch *one = &lane->touch[k % LANE_TOUCHES];
    if (same_op(one, last)) return meet(clocks, one->event, event) ? last->all : last->over;
  }
  return last->over;
}

/* When a lane may do what the event does, as far as the others are concerned. */
static double behind_others(const HostClocks *clocks, int kind, const Event *event) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) {
    const HostLane *lane = &clocks->lane[k];
    int64_t oldest = lane->n > LANE_TOUCHES ? lane->n - LANE_TOUCHES : 0, i = lane->n - 1;
    if (k == kind || !lane->n) continue;
    while (i > oldest && !meet(clocks, lane->touch[i % LANE_TOUCHES].event, event)) i--;
    if (i > oldest || oldest || meet(clocks, lane->touch[i % LANE_TOUCHES].event, event))
      time = later(time, over_of(clocks, lane, i, event));
  }
  return time;
}

static void note(HostLane *lane, const Event *event, double over) {
  lane->free = over;
  lane->touch[lane->n++ % LANE_TOUCHES] = (LaneTouch){event, over, 0};
}

/* Between two places of the GPU's memory. */
static double copy_seconds(const HostClocks *clocks, double bytes) {
  return clocks->x->hbm > 0 ? 2 * bytes / clocks->x->hbm : 0;
}

static double piece_down(HostClocks *clocks, HostLane *lane, double *slot, double bytes,
                         double now) {
  double takes = clocks->x->copy + bytes / clocks->x->pcie;
  now = later(now, *slot) + copy_seconds(clocks, bytes);
  lane->busy += takes;
  *slot = lane->free = later(lane->free, now) + takes;
  return now;
}

static double piece_up(HostClocks *clocks, HostLane *lane, double *slot, double bytes, double now) {
  lane->free = later(lane->free, *slot) + clocks->x->copy + bytes / clocks->x->pcie;
  return *slot = later(now, lane->free) + copy_seconds(clocks, bytes);
}

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events) {
  HostClocks clocks = {.m = m, .x = x, .events = events, .bytes = module_move_slot(m)};
  for (int up = 0; up < 2; up++) clocks.slots[up] = module_move_slots(m, up);
  return clocks;
}

/* To a parameter of the device: what kernels read in the next step, if not before. */
static bool is_parameter(const HostClocks *clocks, const Event *event) {
  for (uint32_t i = 0; i < event->nbytes; i++) {
    const EventBytes *bytes = &clocks->events->bytes.at[event->bytes + i];
    const Global *global =
        bytes->space < TIERS ? NULL : clocks->m->globals.at[bytes->space - TIERS];
    if (bytes->written && global && global->kind == GLOBAL_PARAM && !on_host(clocks->m, bytes))
      return true;
  }
  return false;
}

static void note_arrival(HostClocks *clocks, const Event *event, double over) {
  for (uint32_t i = 0; i < clocks->arrival.n; i++)
    if (clocks->arrival.at[i].event == event) { /* of the step before */
      clocks->arrival.at[i] = (LaneTouch){event, over, 0};
      return;
    }
  vec_push(clocks->m->arena, clocks->arrival, ((LaneTouch){event, over, 0}));
}

static void straight_up(HostClocks *clocks, const Event *event, double bytes, double now) {
  HostLane *lane = &clocks->lane[HOST_UP];
  double from = later(later(lane->free, behind_others(clocks, HOST_UP, event)), now);
  note(lane, event, from + clocks->x->copy + bytes / clocks->x->pcie);
  note_arrival(clocks, event, lane->free);
}

static bool meet_here(const HostClocks *clocks, const Event *a, const Event *b) {
  for (uint32_t i = 0; i < a->nbytes; i++)
    for (uint32_t k = 0; k < b->nbytes; k++) {
      const EventBytes *x = &clocks->events->bytes.at[a->bytes + i],
                       *y = &clocks->events->bytes.at[b->bytes + k];
      if (x->written && x->space >= TIERS && bytes_meet(x, y)) return true;
    }
  return false;
}

double host_clock_arrived(const HostClocks *clocks, const Event *event) {
  double time = 0;
  const LaneTouch *before = NULL;
  for (uint32_t i = 0; i < clocks->arrival.n; i++) {
    const LaneTouch *arrival = &clocks->arrival.at[i];
    if (!meet_here(clocks, arrival->event, event)) continue;
    time = later(time, before && same_op(before, arrival) ? later(arrival->over, arrival->all)
                                                          : arrival->over);
    before = arrival;
  }
  return time;
}

double host_clock_move(HostClocks *clocks, const Event *event, double bytes, bool up, double now) {
  int kind = up ? HOST_UP : HOST_DOWN;
  HostLane *lane = &clocks->lane[kind];
  double room = (double)clocks->bytes;
  if (up && clocks->stays && is_parameter(clocks, event)) {
    straight_up(clocks, event, bytes, now);
    return now;
  }
  lane->free = later(lane->free, behind_others(clocks, kind, event));
  while (bytes > 0) {
    double n = bytes < room ? bytes : room,
           *slot = &clocks->slot[up][clocks->taken[up]++ % clocks->slots[up]];
    now = up ? piece_up(clocks, lane, slot, n, now) : piece_down(clocks, lane, slot, n, now);
    bytes -= n;
  }
  note(lane, event, lane->free);
  return now;
}

void host_clock_kernel(HostClocks *clocks, const Event *event, double seconds) {
  HostLane *lane = &clocks->lane[HOST_KERNELS];
  note(lane, event, later(lane->free, behind_others(clocks, HOST_KERNELS, event)) + seconds);
}

static void put_back(HostClocks *clocks, int kind, double seconds) {
  HostLane *lane = &clocks->lane[kind];
  lane->free -= seconds;
  for (int i = 0; i < LANE_TOUCHES; i++)
    lane->touch[i].over -= seconds, lane->touch[i].all -= seconds;
  for (int i = 0; kind != HOST_KERNELS && i < clocks->slots[kind == HOST_UP]; i++)
    clocks->slot[kind == HOST_UP][i] -= seconds;
}

static void put_back_arrivals(HostClocks *clocks, double seconds) {
  for (uint32_t i = 0; i < clocks->arrival.n; i++)
    clocks->arrival.at[i].over -= seconds, clocks->arrival.at[i].all -= seconds;
}

HostAt host_clock_at(const HostClocks *clocks) {
  HostAt at;
  for (int k = 0; k < HOST_LANES; k++)
    at.free[k] = clocks->lane[k].free, at.busy[k] = clocks->lane[k].busy,
    at.n[k] = clocks->lane[k].n;
  return at;
}

/* The operations of the remaining rounds stand in for the skipped ones. */
static void fall_behind(HostClocks *clocks, int kind, int64_t n, double seconds) {
  HostLane *lane = &clocks->lane[kind];
  lane->free += seconds;
  for (int64_t i = n; i < lane->n; i++) lane->touch[i % LANE_TOUCHES].all = lane->free;
  for (int64_t i = n; kind == HOST_UP && i < lane->n; i++)
    for (uint32_t k = 0; k < clocks->arrival.n; k++)
      if (clocks->arrival.at[k].event == lane->touch[i % LANE_TOUCHES].event)
        clocks->arrival.at[k].all = lane->free;
}

void host_clock_skip(HostClocks *clocks, const HostAt *since, double kernels, double periods) {
  put_back_arrivals(clocks, periods * kernels);
  for (int k = 0; k < HOST_LANES; k++) {
    double did = clocks->stays && k == HOST_DOWN ? clocks->lane[k].busy - since->busy[k]
                                                 : clocks->lane[k].free - since->free[k];
    double idle = kernels - did;
    if (idle > 0) put_back(clocks, k, periods * idle);
    else fall_behind(clocks, k, since->n[k], -periods * idle);
  }
}

void host_clock_shift(HostClocks *clocks, double seconds) {
  for (int k = 0; k < HOST_LANES; k++) put_back(clocks, k, seconds);
  put_back_arrivals(clocks, seconds);
}

double host_clock_over(const HostClocks *clocks) {
  double time = 0;
  for (int k = 0; k < HOST_LANES; k++) time = later(time, clocks->lane[k].free);
  return time;
}

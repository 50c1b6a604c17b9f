/* Clocks of operations outside of entries (timeline_background.h).

   `take` moves the inputs of a step in the memory of the device, before its kernels. `send`, which
   follows it, copies those of the next step over the link from the host, concurrently with the
   step; the next step begins when both are done. `keep` copies parameters and states to the host
   after a step that saves, once the streams that change them are done; so only such a step is
   longer. A processor has all this in one memory, and sends nothing. Threads read inputs and write
   files at rates that no machine block gives: their operations have no time. */
#include "timeline_background.h"
#include "count.h"
#include "ir/plan/stage_class.h"
#include "ir/phases.h"
#include "ir/schedule/background_order.h"

static double later(double a, double b) { return a > b ? a : b; }

static double input_bytes(const Module *m) {
  double bytes = 0;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (global_is_read_ahead(m, m->globals.at[i]))
      bytes += (double)global_bytes(m, m->globals.at[i]);
  return bytes;
}

static double moved_inside(const Machine *machine, double bytes) {
  return machine->hbm > 0 ? 2 * bytes / machine->hbm : 0;
}

static double sent_over(const Machine *machine, double bytes) {
  return machine->pcie > 0 ? machine->copy + bytes / machine->pcie : 0;
}

/* Into pinned memory; that of the host is copied within the host. */
static double kept(const Module *m, const Machine *machine) {
  SnapshotRanges ranges = module_snapshot_ranges(m);
  double sent = 0, device = 0, host = 0;
  for (uint32_t i = 0; i < ranges.n; i++) {
    double bytes = (double)ranges.at[i].bytes;
    bool on_host = arena_tier(ranges.at[i].arena) != TIER_device;
    *(on_host ? &host : module_on_gpu(m) ? &sent : &device) += bytes;
  }
  return (sent > 0 ? sent_over(machine, sent) : 0) + moved_inside(machine, device) +
         (machine->dram > 0 ? 2 * host / machine->dram : 0);
}

BackgroundClocks background_clocks(const Module *m, const Machine *machine, const Fn *entry) {
  const Background *background = m->background;
  BackgroundClocks clocks = {.m = m};
  if (entry != ir_main_entry(m) && entry != module_later_step(m)) return clocks;
  if (background[BACKGROUND_take].there) clocks.takes = moved_inside(machine, input_bytes(m));
  if (background[BACKGROUND_send].there) clocks.sends = sent_over(machine, (double)module_ahead(m));
  if (background[BACKGROUND_keep].there)
    clocks.keeps = kept(m, machine), clocks.streams = background[BACKGROUND_keep].streams;
  return clocks;
}

static void add_span(const BackgroundClocks *clocks, BackgroundOp op, double from, double to) {
  LaneSpan span = {background_lane(op), from, to, NULL, background_name(op)};
  if (to > from) vec_push(clocks->m->arena, clocks->lanes->span, span);
  clocks->lanes->shown = later(clocks->lanes->shown, to);
}

double background_begin(BackgroundClocks *clocks, double now) {
  double taken = now + clocks->takes;
  clocks->sent = taken + clocks->sends;
  add_span(clocks, BACKGROUND_take, now, taken);
  add_span(clocks, BACKGROUND_send, taken, clocks->sent);
  LaneArrow arrow = {LANE_KERNELS, background_lane(BACKGROUND_send), taken, taken, false};
  if (clocks->sends > 0 && clocks->takes > 0)
    vec_push(clocks->m->arena, clocks->lanes->arrow, arrow);
  clocks->lanes->sends = clocks->sends, clocks->lanes->inputs = clocks->takes;
  return taken;
}

double background_end(BackgroundClocks *clocks, double now) {
  double begins = clocks->sends > 0 ? later(now, clocks->sent) : now;
  clocks->lanes->inputs += begins - now;
  return begins;
}

void background_save(BackgroundClocks *clocks, double now, double over) {
  double from = clocks->streams ? later(now, over) : now;
  if (clocks->keeps <= 0) return;
  add_span(clocks, BACKGROUND_keep, from, from + clocks->keeps);
  clocks->lanes->snapshot = from + clocks->keeps - now;
}

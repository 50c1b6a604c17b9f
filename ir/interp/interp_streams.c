/* Streams, of the interpreter after pass `streams` (interp_placed.c).

   Operations run in the order in which the host program issues them, but a GPU may run those of
   different streams in any order that tokens allow (ir/schedule/stream_order.h). So every byte of
   the host's memory, and of parameters that are uploaded directly, remembers which operation of
   each stream read it last and which wrote it last. An operation that touches a byte after one of
   another stream, one of the two writing, must have waited for that one, by its tokens or by those
   of operations that it waits for (FastTrack, Flanagan and Freund, 2009). So a missing token is
   found in one run, whatever the order. Runs of an entry whose steps overlap continue each other.
   Must not: ask which bytes an op should touch; it sees those that are touched. */
#include "interp_placed.h"
#include "ir/schedule/stream_order.h"

struct StreamByte {
  int32_t read[STREAMS], wrote[STREAMS]; /* numbers of operations; 0: none */
};

struct PlacedStreams {
  Arena *arena;
  const Fn *entry;
  StreamClocks clocks;
  int64_t issued[STREAMS], started[STREAMS];
  StreamByte **global; /* by index; NULL: not asked for */
  StreamByte *frame[TIERS];
  bool runs; /* an operation */
  StreamEvent operation;
  Event event;
  OpStream missing; /* compute: none */
};

static bool has_tokens(const Module *m) {
  for (uint32_t i = 0; module_has_streams(m) && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (op_stream(&m->fns.at[i]->ops.at[k]) != STREAM_compute) return true;
  return false;
}

static PlacedStreams *streams_new(const Interp *in, Arena *arena, const Fn *entry) {
  PlacedStreams *streams = ARENA_NEW(arena, PlacedStreams);
  *streams = (PlacedStreams){.arena = arena, .entry = entry, .clocks = {.arena = arena}};
  streams->global = ARENA_ARRAY(arena, StreamByte *, in->m->globals.n + 1);
  return streams;
}

void placed_begin_streams(PlacedMachine *machine, const Fn *entry) {
  Interp *in = machine->in;
  bool stays = module_copies_stay(in->m);
  if (!has_tokens(in->m)) return;
  ranks_lock(in->ranks);
  if (!stays) machine->streams = streams_new(in, machine->arena, entry);
  else if (!in->streams || in->streams->entry != entry)
    in->streams = streams_new(in, in->arena, entry);
  ranks_unlock(in->ranks);
  if (stays) machine->streams = in->streams;
  memcpy(machine->streams->started, machine->streams->issued, sizeof machine->streams->started);
}

static StreamByte *bytes_new(const PlacedMachine *machine, StreamByte **bytes, int64_t n) {
  ranks_lock(machine->in->ranks);
  if (!*bytes) *bytes = ARENA_ARRAY(machine->streams->arena, StreamByte, n + 1);
  ranks_unlock(machine->in->ranks);
  return *bytes;
}

void placed_share_global(PlacedMachine *machine, uint32_t slot) {
  const Global *global = machine->in->m->globals.at[slot];
  Memory *memory = &machine->global[slot];
  PlacedStreams *streams = machine->streams;
  memory->host = global->type.tier != TIER_device;
  if (!streams || (!memory->host && global->kind != GLOBAL_PARAM)) return;
  memory->streams = streams, memory->shared = bytes_new(machine, &streams->global[slot], memory->n);
}

void placed_share_frame(PlacedMachine *machine, Memory *memory, Tier tier) {
  PlacedStreams *streams = machine->streams;
  memory->host = tier != TIER_device;
  if (!streams || !memory->host) return;
  memory->streams = streams, memory->shared = bytes_new(machine, &streams->frame[tier], memory->n);
}

/* ---- operations ---- */

void placed_begin_operation(PlacedCall *call, const Op *op, OpStream stream, int64_t round) {
  PlacedStreams *streams = call->x->streams;
  if (!streams) return;
  StreamTokens tokens = op_tokens(op);
  StreamEvent *operation = &streams->operation;
  streams->runs = true, streams->missing = STREAM_compute;
  streams->event = (Event){.round = round};
  *operation = (StreamEvent){.event = &streams->event, .stream = stream};
  operation->direct = attr_int(&op->attrs, ATTR_direct, 0);
  memcpy(operation->issued, streams->issued, sizeof operation->issued);
  memcpy(operation->started, streams->started, sizeof operation->started);
  clocks_wait(&streams->clocks, operation, &tokens);
}

void placed_end_operation(PlacedCall *call, const Op *op) {
  PlacedStreams *streams = call->x->streams;
  if (!streams) return;
  OpStream stream = streams->operation.stream;
  streams->runs = false;
  if (streams->missing != STREAM_compute)
    placed_error(call, op,
                 arena_printf(call->x->arena, "on `%s` touches bytes of `%s` without waiting",
                              stream_name(stream), stream_name(streams->missing)),
                 NO_VALUE);
  ranks_lock(call->x->in->ranks);
  clocks_issue(&streams->clocks, &streams->operation);
  ranks_unlock(call->x->in->ranks);
  if (stream != STREAM_compute) streams->issued[stream]++;
}

bool placed_in_operation(const PlacedCall *call) {
  return !call->x->streams || call->x->streams->runs;
}

/* Copies by way of a slot touch the GPU's memory on `compute`. */
void placed_touch_shared(PlacedAddress address, int64_t bytes, bool written) {
  PlacedStreams *streams = address.memory->streams;
  if (!streams->runs) return;
  const StreamEvent *operation = &streams->operation;
  bool apart = address.memory->host || operation->direct;
  OpStream own = apart ? operation->stream : STREAM_compute;
  int32_t number = (int32_t)(operation->issued[own] + 1);
  for (int64_t i = 0; i < bytes; i++) {
    StreamByte *byte = &address.memory->shared[address.at + i];
    for (OpStream other = STREAM_down; other < STREAMS; other++) {
      int32_t last = byte->wrote[other];
      if (written && byte->read[other] > last) last = byte->read[other];
      if (other != own && last > streams->clocks.now[own].done[other]) streams->missing = other;
    }
    if (own == STREAM_compute) continue;
    if (written) byte->wrote[own] = number;
    else byte->read[own] = number;
  }
}

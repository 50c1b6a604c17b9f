/* memory: the address of every byte of every value, at compile time.

   Values share their bytes if one is a view of the other, is made in place of the other, or is
   laid out inside a concat; such a set is a class (ir/bytes.h).

   A class is in the caller's memory if it holds an argument or a result of a body, in a global if
   it holds a loaded value or can be written to the stored global directly, and otherwise in the
   function's frame. memory_pack.c packs the frame together with the kernels' workspaces, the
   frames of bodies, and the second buffers of carried values. Bodies come before their callers, so
   a body's frame is one block of known size.

   Messages in flight across the rounds of a loop (flight.h) use rings: blocks in the frame of the
   loop's function, alive as long as the loop runs. Entries' frames are the WORK arena, one at a
   time. The attribute `live` is the lower bound of any packing, bodies included. All of this is
   done once for each tier (ir/tiers.def). */
#include "ir/bytes.h"
#include "memory.h"
#include "ir/cost/budget.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/pipeline_schedule.h"

typedef struct BufferClass {
  int64_t bytes, born, dies;
  PlaceKind place;
  uint32_t slot;
  uint32_t block; /* number of its block + 1 */
} BufferClass;

typedef struct Room { /* of a function in one tier */
  VEC(Block) blocks, live;
  uint32_t *work; /* by op: number of its work's block + 1 */
} Room;

typedef struct MemoryFrame {
  Module *m;
  Fn *f;
  ValueId *class_of;    /* by value: the value that names its class */
  int64_t *within;      /* by value: its place in the bytes of its class */
  BufferClass *classes; /* by that value */
  Room room[TIERS];
  uint32_t **slot; /* by op: numbers of its second buffers' blocks + 1 */
  uint32_t *ring;  /* and of its first ring's */
} MemoryFrame;

static Value *value(const MemoryFrame *frame, ValueId v) { return &frame->f->values.at[v]; }
static BufferClass *class_at(const MemoryFrame *frame, ValueId v) {
  return &frame->classes[frame->class_of[v]];
}

/* ---- classes and their lives ---- */

static void find_classes(MemoryFrame *frame) {
  SharedBytes s = shared_bytes(frame->m->arena, frame->f);
  frame->class_of = s.of, frame->within = s.at;
  for (ValueId v = 0; v < frame->f->values.n; v++)
    frame->classes[v] = (BufferClass){.born = frame->f->ops.n, .dies = -1};
  for (ValueId v = 0; v < frame->f->values.n; v++) {
    BufferClass *class = class_at(frame, v);
    bool arg = value(frame, v)->def == NO_OP, view = value(frame, v)->storage.view == VIEW_OF;
    OpId def = value(frame, v)->def;
    int64_t born = arg ? -1 : (int64_t)op_begins(frame->f, def),
            dies = arg ? -1 : (int64_t)op_ends(frame->f, def);
    if (arg) class->place = PLACE_ARG, class->slot = value(frame, v)->result;
    int64_t bytes = view ? 0 : frame->within[v] + value_room(frame->f, v);
    if (bytes > class->bytes) class->bytes = bytes;
    if (born < class->born) class->born = born;
    if (dies > class->dies) class->dies = dies;
  }
}

static void use(MemoryFrame *frame, ValueId v, int64_t when) {
  BufferClass *class = class_at(frame, v);
  if (when > class->dies) class->dies = when;
}

static void find_uses(MemoryFrame *frame) {
  for (OpId i = 0; i < frame->f->ops.n; i++) {
    const Op *o = &frame->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) use(frame, o->in[k], op_ends(frame->f, i));
    for (uint32_t k = 0; k < o->nout; k++) use(frame, o->out + k, op_ends(frame->f, i));
    if (o->code == OP_load) {
      BufferClass *class = class_at(frame, o->out);
      class->born = -1, class->place = PLACE_GLOBAL,
      class->slot = global_index(frame->m, o->global);
    }
  }
  for (uint32_t i = 0; i < frame->f->results.n; i++) {
    BufferClass *class = class_at(frame, frame->f->results.at[i]);
    class->dies = frame->f->ops.n;
    if (class->place == PLACE_NONE) class->place = PLACE_RESULT, class->slot = i;
  }
}

/* Buffers that are alive across rounds are not part of the frame of a round. */
static void find_rings(MemoryFrame *frame) {
  FlightList list = flights_over(frame->m->arena, frame->f);
  for (uint32_t i = 0; i < list.n; i++) {
    if (list.at[i].crosses == NO_VALUE) continue;
    BufferClass *class = class_at(frame, list.at[i].crosses);
    class->place = PLACE_RING, class->slot = i;
  }
}

/* ---- stores ---- */

/* Is the old value of g still read when a class born at `born` is written? Another class in g
 * counts too. */
static bool global_busy(const MemoryFrame *frame, uint32_t slot, int64_t born) {
  for (ValueId v = 0; v < frame->f->values.n; v++) {
    const BufferClass *class = class_at(frame, v);
    if (class->place == PLACE_GLOBAL && class->slot == slot &&
        (class->born >= 0 || class->dies >= born))
      return true;
  }
  return false;
}

static uint32_t stores_to(const MemoryFrame *frame, const Global *global) {
  uint32_t n = 0;
  for (OpId i = 0; i < frame->f->ops.n; i++)
    n += frame->f->ops.at[i].code == OP_store && frame->f->ops.at[i].global == global;
  return n;
}

/* Has v all bytes of its class, in their order? */
static bool shows_all(MemoryFrame *frame, ValueId v) {
  const Value *a = value(frame, v);
  if (a->storage.view != VIEW_OF) return true;
  const Value *root = value(frame, frame->class_of[v]);
  return value_is_dense(a) && value_is_dense(root) && a->type.elem == root->type.elem &&
         type_count(&a->type) == type_count(&root->type);
}

/* Is another value made in place of v later? Then the store copies v before that. */
static bool written_over(const MemoryFrame *frame, ValueId v) {
  while (value(frame, v)->storage.view == VIEW_OF) v = value(frame, v)->storage.base;
  for (ValueId w = 0; w < frame->f->values.n; w++)
    if (frame->class_of[w] == frame->class_of[v] && value(frame, w)->storage.view != VIEW_OF &&
        value(frame, w)->def != NO_OP && value(frame, w)->def > value(frame, v)->def)
      return true;
  return false;
}

/* A value that only has to be in the global at the end is made in the global, if nothing reads the
   old value any more. */
static void place_stored(MemoryFrame *frame, const Op *store) {
  ValueId v = store->in[0];
  BufferClass *class = class_at(frame, v);
  uint32_t slot = global_index(frame->m, store->global);
  if (class->place == PLACE_GLOBAL && class->slot == slot) class->dies = frame->f->ops.n;
  if (class->place != PLACE_NONE || !shows_all(frame, v) || written_over(frame, v)) return;
  if (class->bytes != global_bytes(frame->m, store->global) || stores_to(frame, store->global) != 1)
    return;
  if (global_busy(frame, slot, class->born)) return;
  class->place = PLACE_GLOBAL, class->slot = slot, class->dies = frame->f->ops.n;
}

/* ---- the frame ---- */

static uint32_t add_block(MemoryFrame *frame, Tier t, int64_t bytes, int64_t live, int64_t born,
                          int64_t dies) {
  Room *room = &frame->room[t];
  vec_push(frame->m->arena, room->blocks, (Block){bytes, born, dies, 0});
  vec_push(frame->m->arena, room->live, (Block){memory_round(live), born, dies, 0});
  return room->blocks.n;
}

/* A block that is live as long as the op runs; loops that are interleaved count as one op. */
static uint32_t add_op_block(MemoryFrame *frame, Tier t, int64_t bytes, int64_t live, OpId id) {
  return add_block(frame, t, bytes, live, op_begins(frame->f, id), op_ends(frame->f, id));
}

static int64_t block_at(const MemoryFrame *frame, Tier t, uint32_t number) {
  return frame->room[t].blocks.at[number - 1].at;
}

/* Carried value j of a body is updated in its argument's buffer, or its buffers are the slices of a
 * saved result. */
static bool needs_slot(const Op *loop, uint32_t j) {
  const Fn *body = loop->callee;
  for (uint32_t i = 0; i < body->results.n; i++) {
    const Storage *storage = &body->values.at[body->results.at[i]].storage;
    if (storage->place == PLACE_ARG && storage->slot == j + 1 &&
        (i == j || i >= loop_shape(loop).carry))
      return false;
  }
  return loop_shape(loop).trip > 1;
}

static void add_rings(MemoryFrame *frame, OpId id) {
  const Op *o = &frame->f->ops.at[id];
  FlightList list = flights_over(frame->m->arena, o->callee);
  for (uint32_t i = 0; i < list.n; i++) {
    int64_t bytes = memory_round(flight_bytes(o->callee, i)) * flight_buffers(o, &list.at[i]);
    uint32_t b = add_op_block(frame, TIER_device, bytes, bytes, id);
    if (!i) frame->ring[id] = b;
  }
}

static void write_rings(MemoryFrame *frame, OpId id) {
  Op *o = &frame->f->ops.at[id];
  FlightList flight_list = flights_over(frame->m->arena, o->callee);
  int64_t *list = ARENA_ARRAY(frame->m->arena, int64_t, 3 * flight_list.n + 1);
  for (uint32_t i = 0; i < flight_list.n; i++) {
    list[3 * i] = block_at(frame, TIER_device, frame->ring[id] + i);
    list[3 * i + 1] = memory_round(flight_bytes(o->callee, i));
    list[3 * i + 2] = flight_buffers(o, &flight_list.at[i]);
  }
  if (flight_list.n) attr_set_ints(frame->m, &o->attrs, ATTR_ring, (int)(3 * flight_list.n), list);
}

static void add_loop(MemoryFrame *frame, OpId id) {
  const Op *o = &frame->f->ops.at[id];
  const AttrList *list = &o->callee->attrs;
  must(attr_get(list, ATTR_frame), "memory: body %s is placed after its caller", o->callee->name);
  for (Tier t = 0; t < TIERS; t++)
    if (op_work(o, t))
      frame->room[t].work[id] =
          add_op_block(frame, t, op_work(o, t), attr_int(list, tier_live(t), 0), id);
  frame->slot[id] = ARENA_ARRAY(frame->m->arena, uint32_t, loop_shape(o).carry + 1);
  for (uint32_t j = 0; j < loop_shape(o).carry; j++) {
    const Value *v = value(frame, o->out + j);
    int64_t bytes = needs_slot(o, j) ? value_span_bytes(v) : 0;
    frame->slot[id][j] = add_op_block(frame, v->type.tier, bytes, bytes, id);
  }
  add_rings(frame, id);
}

static void add_work(MemoryFrame *frame, OpId id) {
  const Op *o = &frame->f->ops.at[id];
  if (o->code == OP_loop) add_loop(frame, id);
  for (Tier t = 0; t < TIERS && o->code != OP_loop; t++) {
    int64_t bytes = op_work(o, t);
    if (bytes)
      frame->room[t].work[id] = add_block(frame, t, bytes, bytes, id, flight_end(frame->f, id));
  }
}

static void add_classes(MemoryFrame *frame) {
  for (ValueId v = 0; v < frame->f->values.n; v++) {
    BufferClass *class = class_at(frame, v);
    if (frame->class_of[v] != v || class->place != PLACE_NONE) continue;
    class->place = PLACE_FRAME;
    class->block = add_block(frame, value(frame, v)->type.tier, class->bytes, class->bytes,
                             class->born, class->dies);
  }
}

/* ---- the answer, written into the function ---- */

static void write_value(MemoryFrame *frame, ValueId v) {
  const BufferClass *class = class_at(frame, v);
  must(class->place != PLACE_NONE, "memory: %%%u of %s has no place", v, frame->f->name);
  Storage *storage = &value(frame, v)->storage;
  storage->place = class->place, storage->slot = class->place == PLACE_FRAME ? 0 : class->slot;
  bool framed = class->place == PLACE_FRAME;
  storage->at =
      (framed ? block_at(frame, value(frame, v)->type.tier, class->block) : 0) + frame->within[v];
}

static void write_op(MemoryFrame *frame, OpId id) {
  Op *o = &frame->f->ops.at[id];
  for (Tier t = 0; t < TIERS; t++)
    if (frame->room[t].work[id])
      attr_set_int(frame->m, &o->attrs, tier_work(t), block_at(frame, t, frame->room[t].work[id]));
  if (o->code == OP_loop) write_rings(frame, id);
  if (o->code != OP_loop || !loop_shape(o).carry) return;
  uint32_t carry = loop_shape(o).carry;
  int64_t *slots = ARENA_ARRAY(frame->m->arena, int64_t, carry);
  for (uint32_t j = 0; j < carry; j++) {
    const Room *room = &frame->room[value(frame, o->out + j)->type.tier];
    const Block *block = &room->blocks.at[frame->slot[id][j] - 1];
    slots[j] = block->bytes ? block->at : -1;
  }
  attr_set_ints(frame->m, &o->attrs, ATTR_slots, (int)carry, slots);
}

/* Tiers other than the device are reported only if they hold something. */
static void pack_room(MemoryFrame *memory_frame, Tier t) {
  Room *room = &memory_frame->room[t];
  int64_t live = memory_live(memory_frame->m->arena, room->live.at, room->live.n);
  int64_t frame = memory_pack(memory_frame->m->arena, room->blocks.at, room->blocks.n);
  if (t != TIER_device && !frame) return;
  attr_set_int(memory_frame->m, &memory_frame->f->attrs, tier_frame(t), frame);
  attr_set_int(memory_frame->m, &memory_frame->f->attrs, tier_live(t), live);
}

static void place_function(Module *m, Fn *f) {
  for (ValueId v = 0; v < f->values.n; v++)
    must(f->values.at[v].storage.ordered, "memory: %%%u of %s has no strides", v, f->name);
  MemoryFrame frame = {.m = m, .f = f};
  frame.classes = ARENA_ARRAY(m->arena, BufferClass, f->values.n + 1);
  for (Tier t = 0; t < TIERS; t++)
    frame.room[t].work = ARENA_ARRAY(m->arena, uint32_t, f->ops.n + 1);
  frame.slot = ARENA_ARRAY(m->arena, uint32_t *, f->ops.n + 1);
  frame.ring = ARENA_ARRAY(m->arena, uint32_t, f->ops.n + 1);
  find_classes(&frame);
  find_uses(&frame);
  find_rings(&frame);
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store) place_stored(&frame, &f->ops.at[i]);
  for (OpId i = 0; i < f->ops.n; i++) add_work(&frame, i);
  add_classes(&frame);
  for (Tier t = 0; t < TIERS; t++) pack_room(&frame, t);
  for (ValueId v = 0; v < f->values.n; v++) write_value(&frame, v);
  for (OpId i = 0; i < f->ops.n; i++) write_op(&frame, i);
}

/* ---- globals ---- */

static void place_globals(Module *m) {
  int64_t end[IN_ARENAS] = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    if (global->within) continue;
    int64_t *at = &end[global_arena(global)];
    global->storage.place = PLACE_GLOBAL, global->storage.slot = i, global->storage.at = *at;
    *at += memory_round(global_bytes(m, global));
  }
}

void pass_memory(Module *m) {
  place_globals(m);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) place_function(m, m->fns.at[i]);
}

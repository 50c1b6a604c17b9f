/* memory: every byte of every value, at compile time.

   Values that are views of one another, stand in each other's place, or are laid into a concat,
   share their bytes: a class (ir/bytes.h).
   A class is in the caller's memory if it holds an argument or a result of a body, in a global if
   it holds a loaded value or can be written to the stored global directly, and otherwise in the
   function's frame, which is packed by memory_pack.c together with the kernels' workspaces, the
   frames of bodies, and the second buffers of carried values. Bodies come before their callers, so
   a body's frame is one block of known size. What flies over the rounds of a loop (ir/flight.h) is
   in rings: blocks of the loop's function, as long as the loop runs. Entries' frames are the WORK
   arena, one at a time. The attribute `live` is the lower bound that no packing can beat, bodies
   included. All this once for each memory that values lie in (ir/tiers.def). */
#include "ir/bytes.h"
#include "passes/memory.h"
#include "ir/budget.h"
#include "ir/stage_class.h"
#include "ir/flight.h"
#include "ir/turns.h"

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

static Value *value(const MemoryFrame *x, ValueId v) { return &x->f->values.at[v]; }
static BufferClass *class_at(const MemoryFrame *x, ValueId v) {
  return &x->classes[x->class_of[v]];
}

static uint32_t global_slot(const Module *m, const Global *g) {
  uint32_t i = 0;
  while (m->globals.at[i] != g) i++;
  return i;
}

/* ---- classes and their lives ---- */

static void find_classes(MemoryFrame *x) {
  SharedBytes s = shared_bytes(x->m->arena, x->f);
  x->class_of = s.of, x->within = s.at;
  for (ValueId v = 0; v < x->f->values.n; v++)
    x->classes[v] = (BufferClass){.born = x->f->ops.n, .dies = -1};
  for (ValueId v = 0; v < x->f->values.n; v++) {
    BufferClass *c = class_at(x, v);
    bool arg = value(x, v)->def == NO_OP, view = value(x, v)->storage.view == VIEW_OF;
    OpId def = value(x, v)->def;
    int64_t born = arg ? -1 : (int64_t)op_begins(x->f, def),
            dies = arg ? -1 : (int64_t)op_ends(x->f, def);
    if (arg) c->place = PLACE_ARG, c->slot = value(x, v)->result;
    int64_t bytes = view ? 0 : x->within[v] + value_span_bytes(value(x, v));
    if (bytes > c->bytes) c->bytes = bytes;
    if (born < c->born) c->born = born;
    if (dies > c->dies) c->dies = dies;
  }
}

static void use(MemoryFrame *x, ValueId v, int64_t when) {
  BufferClass *c = class_at(x, v);
  if (when > c->dies) c->dies = when;
}

static void find_uses(MemoryFrame *x) {
  for (OpId i = 0; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) use(x, o->in[k], op_ends(x->f, i));
    for (uint32_t k = 0; k < o->nout; k++) use(x, o->out + k, op_ends(x->f, i));
    if (o->code == OP_load) {
      BufferClass *c = class_at(x, o->out);
      c->born = -1, c->place = PLACE_GLOBAL, c->slot = global_slot(x->m, o->global);
    }
  }
  for (uint32_t i = 0; i < x->f->results.n; i++) {
    BufferClass *c = class_at(x, x->f->results.at[i]);
    c->dies = x->f->ops.n;
    if (c->place == PLACE_NONE) c->place = PLACE_RESULT, c->slot = i;
  }
}

/* What crosses rounds is in no frame of one round. */
static void find_rings(MemoryFrame *x) {
  FlightList l = flights_over(x->m->arena, x->f);
  for (uint32_t i = 0; i < l.n; i++) {
    if (l.at[i].crosses == NO_VALUE) continue;
    BufferClass *c = class_at(x, l.at[i].crosses);
    c->place = PLACE_RING, c->slot = i;
  }
}

/* ---- stores ---- */

/* Is the old value of g still read when a class born at `born` is written? Another class in g
 * counts too. */
static bool global_busy(const MemoryFrame *x, uint32_t slot, int64_t born) {
  for (ValueId v = 0; v < x->f->values.n; v++) {
    const BufferClass *c = class_at(x, v);
    if (c->place == PLACE_GLOBAL && c->slot == slot && (c->born >= 0 || c->dies >= born))
      return true;
  }
  return false;
}

static uint32_t stores_to(const MemoryFrame *x, const Global *g) {
  uint32_t n = 0;
  for (OpId i = 0; i < x->f->ops.n; i++)
    n += x->f->ops.at[i].code == OP_store && x->f->ops.at[i].global == g;
  return n;
}

/* Has v all bytes of its class, in their order? */
static bool shows_all(MemoryFrame *x, ValueId v) {
  const Value *a = value(x, v);
  if (a->storage.view != VIEW_OF) return true;
  const Value *root = value(x, x->class_of[v]);
  return value_is_dense(a) && value_is_dense(root) && a->type.elem == root->type.elem &&
         type_count(&a->type) == type_count(&root->type);
}

/* Does something stand in v's place later? Then the store copies v away before that. */
static bool written_over(const MemoryFrame *x, ValueId v) {
  while (value(x, v)->storage.view == VIEW_OF) v = value(x, v)->storage.base;
  for (ValueId w = 0; w < x->f->values.n; w++)
    if (x->class_of[w] == x->class_of[v] && value(x, w)->storage.view != VIEW_OF &&
        value(x, w)->def != NO_OP && value(x, w)->def > value(x, v)->def)
      return true;
  return false;
}

/* A value that only has to be in the global at the end is made there, if nothing reads the old
 * value any more. */
static void place_stored(MemoryFrame *x, const Op *store) {
  ValueId v = store->in[0];
  BufferClass *c = class_at(x, v);
  uint32_t slot = global_slot(x->m, store->global);
  if (c->place == PLACE_GLOBAL && c->slot == slot) c->dies = x->f->ops.n;
  if (c->place != PLACE_NONE || !shows_all(x, v) || written_over(x, v)) return;
  if (c->bytes != global_bytes(x->m, store->global) || stores_to(x, store->global) != 1) return;
  if (global_busy(x, slot, c->born)) return;
  c->place = PLACE_GLOBAL, c->slot = slot, c->dies = x->f->ops.n;
}

/* ---- the frame ---- */

static uint32_t add_block(MemoryFrame *x, Tier t, int64_t bytes, int64_t live, int64_t born,
                          int64_t dies) {
  Room *r = &x->room[t];
  vec_push(x->m->arena, r->blocks, (Block){bytes, born, dies, 0});
  vec_push(x->m->arena, r->live, (Block){memory_round(live), born, dies, 0});
  return r->blocks.n;
}

/* As long as the op runs: loops that take turns do so together. */
static uint32_t add_op_block(MemoryFrame *x, Tier t, int64_t bytes, int64_t live, OpId id) {
  return add_block(x, t, bytes, live, op_begins(x->f, id), op_ends(x->f, id));
}

static int64_t block_at(const MemoryFrame *x, Tier t, uint32_t number) {
  return x->room[t].blocks.at[number - 1].at;
}

/* Carried value j of a body is updated in its argument's buffer, or its buffers are the slices of a
 * saved result. */
static bool needs_slot(const Op *loop, uint32_t j) {
  const Fn *body = loop->callee;
  for (uint32_t i = 0; i < body->results.n; i++) {
    const Storage *s = &body->values.at[body->results.at[i]].storage;
    if (s->place == PLACE_ARG && s->slot == j + 1 && (i == j || i >= loop_shape(loop).carry))
      return false;
  }
  return loop_shape(loop).trip > 1;
}

static void add_rings(MemoryFrame *x, OpId id) {
  const Op *o = &x->f->ops.at[id];
  FlightList l = flights_over(x->m->arena, o->callee);
  for (uint32_t i = 0; i < l.n; i++) {
    int64_t bytes = memory_round(flight_bytes(o->callee, i)) * flight_buffers(o, &l.at[i]);
    uint32_t b = add_op_block(x, TIER_device, bytes, bytes, id);
    if (!i) x->ring[id] = b;
  }
}

static void write_rings(MemoryFrame *x, OpId id) {
  Op *o = &x->f->ops.at[id];
  FlightList l = flights_over(x->m->arena, o->callee);
  int64_t *list = ARENA_ARRAY(x->m->arena, int64_t, 3 * l.n + 1);
  for (uint32_t i = 0; i < l.n; i++) {
    list[3 * i] = block_at(x, TIER_device, x->ring[id] + i);
    list[3 * i + 1] = memory_round(flight_bytes(o->callee, i));
    list[3 * i + 2] = flight_buffers(o, &l.at[i]);
  }
  if (l.n) attr_set_ints(x->m, &o->attrs, ATTR_ring, (int)(3 * l.n), list);
}

static void add_loop(MemoryFrame *x, OpId id) {
  const Op *o = &x->f->ops.at[id];
  const AttrList *a = &o->callee->attrs;
  must(attr_get(a, ATTR_frame), "memory: body %s is placed after its caller", o->callee->name);
  for (Tier t = 0; t < TIERS; t++)
    if (op_work(o, t))
      x->room[t].work[id] = add_op_block(x, t, op_work(o, t), attr_int(a, tier_live(t), 0), id);
  x->slot[id] = ARENA_ARRAY(x->m->arena, uint32_t, loop_shape(o).carry + 1);
  for (uint32_t j = 0; j < loop_shape(o).carry; j++) {
    const Value *v = value(x, o->out + j);
    int64_t bytes = needs_slot(o, j) ? value_span_bytes(v) : 0;
    x->slot[id][j] = add_op_block(x, v->type.tier, bytes, bytes, id);
  }
  add_rings(x, id);
}

static void add_work(MemoryFrame *x, OpId id) {
  const Op *o = &x->f->ops.at[id];
  if (o->code == OP_loop) add_loop(x, id);
  for (Tier t = 0; t < TIERS && o->code != OP_loop; t++) {
    int64_t bytes = op_work(o, t);
    if (bytes) x->room[t].work[id] = add_block(x, t, bytes, bytes, id, flight_end(x->f, id));
  }
}

static void add_classes(MemoryFrame *x) {
  for (ValueId v = 0; v < x->f->values.n; v++) {
    BufferClass *c = class_at(x, v);
    if (x->class_of[v] != v || c->place != PLACE_NONE) continue;
    c->place = PLACE_FRAME;
    c->block = add_block(x, value(x, v)->type.tier, c->bytes, c->bytes, c->born, c->dies);
  }
}

/* ---- the answer, written into the function ---- */

static void write_value(MemoryFrame *x, ValueId v) {
  const BufferClass *c = class_at(x, v);
  must(c->place != PLACE_NONE, "memory: %%%u of %s has no place", v, x->f->name);
  Storage *s = &value(x, v)->storage;
  s->place = c->place, s->slot = c->place == PLACE_FRAME ? 0 : c->slot;
  bool framed = c->place == PLACE_FRAME;
  s->at = (framed ? block_at(x, value(x, v)->type.tier, c->block) : 0) + x->within[v];
}

static void write_op(MemoryFrame *x, OpId id) {
  Op *o = &x->f->ops.at[id];
  for (Tier t = 0; t < TIERS; t++)
    if (x->room[t].work[id])
      attr_set_int(x->m, &o->attrs, tier_work(t), block_at(x, t, x->room[t].work[id]));
  if (o->code == OP_loop) write_rings(x, id);
  if (o->code != OP_loop || !loop_shape(o).carry) return;
  uint32_t carry = loop_shape(o).carry;
  int64_t *slots = ARENA_ARRAY(x->m->arena, int64_t, carry);
  for (uint32_t j = 0; j < carry; j++) {
    const Room *r = &x->room[value(x, o->out + j)->type.tier];
    const Block *b = &r->blocks.at[x->slot[id][j] - 1];
    slots[j] = b->bytes ? b->at : -1;
  }
  attr_set_ints(x->m, &o->attrs, ATTR_slots, (int)carry, slots);
}

/* Of other tiers only what is there is said. */
static void pack_room(MemoryFrame *x, Tier t) {
  Room *r = &x->room[t];
  int64_t live = memory_live(x->m->arena, r->live.at, r->live.n);
  int64_t frame = memory_pack(x->m->arena, r->blocks.at, r->blocks.n);
  if (t != TIER_device && !frame) return;
  attr_set_int(x->m, &x->f->attrs, tier_frame(t), frame);
  attr_set_int(x->m, &x->f->attrs, tier_live(t), live);
}

static void place_function(Module *m, Fn *f) {
  for (ValueId v = 0; v < f->values.n; v++)
    must(f->values.at[v].storage.ordered, "memory: %%%u of %s has no strides", v, f->name);
  MemoryFrame x = {.m = m, .f = f};
  x.classes = ARENA_ARRAY(m->arena, BufferClass, f->values.n + 1);
  for (Tier t = 0; t < TIERS; t++) x.room[t].work = ARENA_ARRAY(m->arena, uint32_t, f->ops.n + 1);
  x.slot = ARENA_ARRAY(m->arena, uint32_t *, f->ops.n + 1);
  x.ring = ARENA_ARRAY(m->arena, uint32_t, f->ops.n + 1);
  find_classes(&x);
  find_uses(&x);
  find_rings(&x);
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store) place_stored(&x, &f->ops.at[i]);
  for (OpId i = 0; i < f->ops.n; i++) add_work(&x, i);
  add_classes(&x);
  for (Tier t = 0; t < TIERS; t++) pack_room(&x, t);
  for (ValueId v = 0; v < f->values.n; v++) write_value(&x, v);
  for (OpId i = 0; i < f->ops.n; i++) write_op(&x, i);
}

/* ---- globals ---- */

static void place_globals(Module *m) {
  int64_t end[IN_ARENAS] = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *g = m->globals.at[i];
    if (g->within) continue;
    int64_t *at = &end[global_arena(g)];
    g->storage.place = PLACE_GLOBAL, g->storage.slot = i, g->storage.at = *at;
    *at += memory_round(global_bytes(m, g));
  }
}

void pass_memory(Module *m) {
  place_globals(m);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) place_function(m, m->fns.at[i]);
}

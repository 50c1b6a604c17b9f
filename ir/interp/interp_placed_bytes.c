/* The interpreter in bytes: memories, marks, elements (interp_placed.h). */
#include "interp_placed.h"
#include "ir/bytes.h"
#include "ir/codes.h"
#include "ir/support/numbers.h"
#include "ir/support/num.h"
#include <math.h>

void placed_error(PlacedCall *call, const Op *op, const char *what, ValueId v) {
  if (call->x->error) return;
  Module *m = call->x->in->m;
  ranks_lock(call->x->in->ranks);
  call->x->error = arena_printf(call->x->in->arena, "@%s, %s%s%s: %s %s", call->f->name,
                                op ? op_name(op->code) : "return", op && op->callee ? " @" : "",
                                op && op->callee ? op->callee->name : "", what,
                                v == NO_VALUE ? "" : type_text(m, value_type(call->f, v)));
  ranks_unlock(call->x->in->ranks);
}

/* ---- bytes ---- */

Memory placed_memory(PlacedMachine *x, const char *name, int64_t n) {
  Memory m = {.name = name, .n = n};
  m.byte = ARENA_ARRAY(x->arena, unsigned char, n + 2 * CACHE_LINE);
  m.mark = ARENA_ARRAY(x->arena, Mark, n + 1);
  if (x->in->field) m.element = ARENA_ARRAY(x->arena, double, n + 1);
  m.byte += -(uintptr_t)m.byte % CACHE_LINE;
  memset(m.byte, 0xff, (size_t)n);
  return m;
}

bool placed_inside(PlacedAddress address, int64_t bytes) {
  return address.at >= 0 && bytes >= 0 && address.at <= address.memory->n - bytes;
}

void placed_spoil(PlacedAddress address, int64_t bytes, Mark mark) {
  if (!placed_inside(address, bytes)) return;
  placed_touch(address, bytes, true);
  memset(address.memory->byte + address.at, 0xff, (size_t)bytes);
  for (int64_t i = 0; i < bytes; i++) address.memory->mark[address.at + i] = mark;
  for (int64_t i = 0; address.memory->element && i < bytes; i++)
    address.memory->element[address.at + i] = NAN;
}

bool placed_marked(PlacedAddress address, int64_t bytes, Mark mark) {
  if (!placed_inside(address, bytes)) return false;
  for (int64_t i = 0; i < bytes; i++)
    if (address.memory->mark[address.at + i] != mark) return false;
  return true;
}

static void encode(unsigned char *to, Elem e, double x) {
  float f = (float)x;
  uint16_t h = e == ELEM_bf16 ? bf16_from_f32(f) : f16_from_f32(f);
  int32_t i = elem_class(e) == CLASS_INT ? (int32_t)(int64_t)x : 0;
  int64_t l = elem_class(e) == CLASS_INT ? (int64_t)x : 0;
  unsigned char b = x != 0, byte = elem_class(e) == CLASS_BYTE ? (unsigned char)x : 0;
  const void *from[] = {[ELEM_f32] = &f, [ELEM_bf16] = &h, [ELEM_f16] = &h,  [ELEM_f64] = &x,
                        [ELEM_i32] = &i, [ELEM_i64] = &l,  [ELEM_bool] = &b, [ELEM_u8] = &byte};
  memcpy(to, from[e], (size_t)elem_bytes(e));
}

static double decode(const unsigned char *from, Elem e) {
  NumberBits bits;
  memcpy(&bits, from, (size_t)elem_bytes(e));
  switch (e) {
  case ELEM_f32: return bits.f;
  case ELEM_bf16: return f32_from_bf16(bits.h);
  case ELEM_f16: return f32_from_f16(bits.h);
  case ELEM_f64: return bits.d;
  case ELEM_i32: return bits.i;
  case ELEM_i64: return (double)bits.l;
  case ELEM_u8: return bits.b;
  default: return bits.b != 0;
  }
}

static bool has_elements(PlacedAddress address, Elem e) {
  return address.memory->element && (elem_class(e) == CLASS_FLOAT || e == ELEM_u8);
}

void placed_write(PlacedAddress to, Elem e, const double *x, int64_t n) {
  int64_t size = elem_bytes(e);
  bool elements = has_elements(to, e);
  placed_touch(to, n * size, true);
  for (int64_t i = 0; i < n; i++, to.at += size)
    if (elements) to.memory->element[to.at] = x[i];
    else encode(to.memory->byte + to.at, e, x[i]);
}

void placed_read(PlacedAddress from, Elem e, double *x, int64_t n) {
  int64_t size = elem_bytes(e);
  bool elements = has_elements(from, e);
  placed_touch(from, n * size, false);
  for (int64_t i = 0; i < n; i++, from.at += size)
    x[i] = elements ? from.memory->element[from.at] : decode(from.memory->byte + from.at, e);
}

/* ---- values ---- */

PlacedAddress placed_offset(PlacedAddress address, int64_t bytes) {
  return (PlacedAddress){address.memory, address.at + bytes};
}

PlacedAddress placed_address(const PlacedCall *call, ValueId v) {
  const Storage *storage = &call->f->values.at[v].storage;
  switch (storage->place) {
  case PLACE_FRAME: return placed_offset(call->frame[value_type(call->f, v)->tier], storage->at);
  case PLACE_GLOBAL: return (PlacedAddress){&call->x->global[storage->slot], storage->at};
  case PLACE_ARG: return placed_offset(call->in[storage->slot], storage->at);
  case PLACE_RESULT: return placed_offset(call->out[storage->slot], storage->at);
  case PLACE_RING: return placed_offset(call->ring[storage->slot], storage->at);
  default: bug("value %u of @%s has no place", v, call->f->name);
  }
}

bool placed_same(PlacedAddress a, PlacedAddress b) { return a.memory == b.memory && a.at == b.at; }

static bool visit_element(PlacedAddress address, Elem e, Mark mark, double *x, Access access) {
  int64_t size = elem_bytes(e);
  if (!placed_inside(address, size)) return false;
  bool own = placed_marked(address, size, mark);
  if (access == READ && x) placed_read(address, e, x, 1);
  else placed_touch(address, size, access != READ);
  if (access == WRITE) placed_write(address, e, x, 1);
  if (access == SPOIL) memset(address.memory->byte + address.at, 0xff, (size_t)size);
  if (access == SPOIL && address.memory->element) address.memory->element[address.at] = NAN;
  for (int64_t i = 0; access != READ && i < size; i++) address.memory->mark[address.at + i] = mark;
  return own || access != READ;
}

/* In elements from a value's first. */
static int64_t number_at(const Value *value, const int64_t *index) {
  int64_t at = 0;
  for (int k = 0; k < value->type.rank; k++) at += index[k] * value->storage.stride[k];
  return at;
}

static PlacedAddress element_at(const PlacedCall *call, ValueId v, const int64_t *index) {
  const Value *value = &call->f->values.at[v];
  return placed_offset(placed_address(call, v),
                       number_at(value, index) * elem_bytes(value->type.elem));
}

/* ---- codes of 8 bits ---- */

static void write_codes(const Codes *codes, PlacedAddress at, const Value *value,
                        const Tensor *tensor) {
  int64_t index[MAX_RANK] = {0}, i = 0;
  Arena *arena = arena_new();
  double *numbers = ARENA_ARRAY(arena, double, codes->count);
  do numbers[number_at(value, index)] = tensor->at[i++];
  while (walk_next(&value->type, index));
  if (has_elements(at, value->type.elem))
    memcpy(at.memory->element + at.at, numbers, (size_t)codes->count * sizeof *numbers);
  else codes_write(codes, at.memory->byte + at.at, numbers);
  arena_free(arena);
}

static void read_codes(const Codes *codes, PlacedAddress at, const Value *value, Tensor *tensor) {
  int64_t index[MAX_RANK] = {0}, i = 0;
  do {
    int64_t number = number_at(value, index);
    tensor->at[i++] = has_elements(at, value->type.elem)
                          ? at.memory->element[at.at + number]
                          : codes_read(codes, at.memory->byte + at.at, number);
  } while (walk_next(&value->type, index));
}

/* All of a buffer at once: scales belong to many codes. */
static bool visit_codes(const PlacedCall *call, ValueId v, const Codes *codes, Tensor *tensor,
                        Access access) {
  const Value *value = &call->f->values.at[v];
  PlacedAddress at = placed_address(call, v);
  int64_t bytes = codes_bytes(codes);
  if (!placed_inside(at, bytes)) return false;
  bool own = placed_marked(at, bytes, call->mark[v]);
  placed_touch(at, bytes, access != READ);
  if (access == READ && tensor) read_codes(codes, at, value, tensor);
  if (access == WRITE) write_codes(codes, at, value, tensor);
  if (access == SPOIL) placed_spoil(at, bytes, call->mark[v]);
  for (int64_t i = 0; access != READ && i < bytes; i++) at.memory->mark[at.at + i] = call->mark[v];
  return own || access != READ;
}

bool placed_visit(const PlacedCall *call, ValueId v, Tensor *tensor, Access access) {
  const Value *value = &call->f->values.at[v];
  Codes codes;
  if (value_codes(call->f, v, &codes)) return visit_codes(call, v, &codes, tensor, access);
  const Type *space = &value->type;
  int64_t index[MAX_RANK] = {0}, i = 0, n = walk_row(space);
  int64_t step = space->rank ? value->storage.stride[space->rank - 1] * elem_bytes(space->elem) : 0;
  bool fine = true;
  do {
    PlacedAddress at = element_at(call, v, index);
    for (int64_t j = 0; j < n; j++, i++, at.at += step)
      fine &= visit_element(at, space->elem, call->mark[v], tensor ? &tensor->at[i] : NULL, access);
  } while (walk_next_row(space, index));
  return fine;
}

void placed_hand_over(PlacedCall *call, const Op *op, ValueId v, Mark mark) {
  if (!placed_visit(call, v, NULL, READ))
    placed_error(call, op, "not all bytes are its own any more of", v);
  call->mark[v] = mark;
  placed_visit(call, v, NULL, OWN);
}

void placed_spoil_rest(PlacedCall *call, ValueId v, Mark left) {
  const Value *value = &call->f->values.at[v];
  int64_t index[MAX_RANK] = {0}, size = elem_bytes(value->type.elem);
  do {
    PlacedAddress at = element_at(call, v, index);
    if (placed_inside(at, size) && placed_marked(at, size, left))
      placed_spoil(at, size, call->mark[v]);
  } while (walk_next(&value->type, index));
}

Mark placed_new_mark(PlacedCall *call) { return ++call->x->last; }

static void copy(PlacedCall *call, const Op *op, PlacedAddress to, ValueId v, Mark to_mark) {
  PlacedAddress from = placed_address(call, v);
  int64_t n = value_span_bytes(&call->f->values.at[v]);
  if (!placed_visit(call, v, NULL, READ))
    placed_error(call, op, "copies bytes that are another value's", v);
  if (!placed_inside(to, n) || !placed_inside(from, n))
    placed_error(call, op, "copies outside of its memory", op->in[0]);
  if (to.memory == from.memory && to.at < from.at + n && from.at < to.at + n)
    placed_error(call, op, "copies onto another value's bytes, its own:", v);
  if (call->x->error) return;
  placed_spoil(to, n, to_mark);
  memmove(to.memory->byte + to.at, from.memory->byte + from.at, (size_t)n);
  if (to.memory->element)
    memmove(to.memory->element + to.at, from.memory->element + from.at, (size_t)n * sizeof(double));
}

/* A move is an operation already; a copy of a store or of a loop becomes one. */
void placed_copy(PlacedCall *call, const Op *op, PlacedAddress to, ValueId v, Mark to_mark) {
  bool alone = !placed_in_operation(call);
  if (alone)
    placed_begin_operation(call, op, to.memory->host ? STREAM_host : STREAM_compute, call->round);
  copy(call, op, to, v, to_mark);
  if (alone) placed_end_operation(call, op);
}

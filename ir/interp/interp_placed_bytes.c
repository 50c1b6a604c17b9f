/* The interpreter in bytes: memories, marks, elements (interp_placed.h). */
#include "interp_placed.h"
#include "ir/numbers.h"
#include "ir/support/num.h"

void placed_error(PlacedCall *c, const Op *op, const char *what, ValueId v) {
  if (c->x->error) return;
  Module *m = c->x->in->m;
  ranks_lock(c->x->in->ranks);
  c->x->error = arena_printf(c->x->in->arena, "@%s, %s%s%s: %s %s", c->f->name,
                             op ? op_name(op->code) : "return", op && op->callee ? " @" : "",
                             op && op->callee ? op->callee->name : "", what,
                             v == NO_VALUE ? "" : type_text(m, value_type(c->f, v)));
  ranks_unlock(c->x->in->ranks);
}

/* ---- bytes ---- */

Memory placed_memory(PlacedMachine *x, const char *name, int64_t n) {
  Memory m = {name, ARENA_ARRAY(x->arena, unsigned char, n + 2 * CACHE_LINE),
              ARENA_ARRAY(x->arena, Mark, n + 1), n};
  m.byte += -(uintptr_t)m.byte % CACHE_LINE;
  memset(m.byte, 0xff, (size_t)n);
  return m;
}

bool placed_inside(PlacedAddress a, int64_t bytes) {
  return a.at >= 0 && bytes >= 0 && a.at <= a.memory->n - bytes;
}

void placed_spoil(PlacedAddress a, int64_t bytes, Mark mark) {
  if (!placed_inside(a, bytes)) return;
  memset(a.memory->byte + a.at, 0xff, (size_t)bytes);
  for (int64_t i = 0; i < bytes; i++) a.memory->mark[a.at + i] = mark;
}

bool placed_marked(PlacedAddress a, int64_t bytes, Mark mark) {
  if (!placed_inside(a, bytes)) return false;
  for (int64_t i = 0; i < bytes; i++)
    if (a.memory->mark[a.at + i] != mark) return false;
  return true;
}

void placed_encode(unsigned char *to, Elem e, double x) {
  float f = (float)x;
  uint16_t h = e == ELEM_bf16 ? bf16_from_f32(f) : f16_from_f32(f);
  int32_t i = elem_class(e) == CLASS_INT ? (int32_t)(int64_t)x : 0;
  int64_t l = elem_class(e) == CLASS_INT ? (int64_t)x : 0;
  unsigned char b = x != 0, byte = elem_class(e) == CLASS_BYTE ? (unsigned char)x : 0;
  const void *from[] = {[ELEM_f32] = &f, [ELEM_bf16] = &h, [ELEM_f16] = &h,  [ELEM_f64] = &x,
                        [ELEM_i32] = &i, [ELEM_i64] = &l,  [ELEM_bool] = &b, [ELEM_u8] = &byte};
  memcpy(to, from[e], (size_t)elem_bytes(e));
}

double placed_decode(const unsigned char *from, Elem e) {
  NumberBits u;
  memcpy(&u, from, (size_t)elem_bytes(e));
  switch (e) {
  case ELEM_f32: return u.f;
  case ELEM_bf16: return f32_from_bf16(u.h);
  case ELEM_f16: return f32_from_f16(u.h);
  case ELEM_f64: return u.d;
  case ELEM_i32: return u.i;
  case ELEM_i64: return (double)u.l;
  case ELEM_u8: return u.b;
  default: return u.b != 0;
  }
}

/* ---- values ---- */

PlacedAddress placed_offset(PlacedAddress a, int64_t bytes) {
  return (PlacedAddress){a.memory, a.at + bytes};
}

PlacedAddress placed_address(const PlacedCall *c, ValueId v) {
  const Storage *s = &c->f->values.at[v].storage;
  switch (s->place) {
  case PLACE_FRAME: return placed_offset(c->frame[value_type(c->f, v)->tier], s->at);
  case PLACE_GLOBAL: return (PlacedAddress){&c->x->global[s->slot], s->at};
  case PLACE_ARG: return placed_offset(c->in[s->slot], s->at);
  case PLACE_RESULT: return placed_offset(c->out[s->slot], s->at);
  case PLACE_RING: return placed_offset(c->ring[s->slot], s->at);
  default: bug("value %u of @%s has no place", v, c->f->name);
  }
}

bool placed_same(PlacedAddress a, PlacedAddress b) { return a.memory == b.memory && a.at == b.at; }

static bool visit_element(const PlacedCall *c, ValueId v, PlacedAddress a, double *x,
                          Access access) {
  Elem e = value_type(c->f, v)->elem;
  int64_t size = elem_bytes(e);
  if (!placed_inside(a, size)) return false;
  unsigned char *byte = a.memory->byte + a.at;
  bool own = placed_marked(a, size, c->mark[v]);
  if (access == READ && x) *x = placed_decode(byte, e);
  if (access == WRITE) placed_encode(byte, e, *x);
  if (access == SPOIL) memset(byte, 0xff, (size_t)size);
  for (int64_t i = 0; access != READ && i < size; i++) a.memory->mark[a.at + i] = c->mark[v];
  return own || access != READ;
}

bool placed_visit(const PlacedCall *c, ValueId v, Tensor *t, Access access) {
  const Value *value = &c->f->values.at[v];
  PlacedAddress base = placed_address(c, v);
  int64_t index[MAX_RANK] = {0}, size = elem_bytes(value->type.elem), i = 0;
  bool fine = true;
  do {
    int64_t at = 0;
    for (int k = 0; k < value->type.rank; k++) at += index[k] * value->storage.stride[k];
    fine &= visit_element(c, v, placed_offset(base, at * size), t ? &t->at[i] : NULL, access);
    i++;
  } while (walk_next(&value->type, index));
  return fine;
}

void placed_hand_over(PlacedCall *c, const Op *op, ValueId v, Mark mark) {
  if (!placed_visit(c, v, NULL, READ))
    placed_error(c, op, "not all bytes are its own any more of", v);
  c->mark[v] = mark;
  placed_visit(c, v, NULL, OWN);
}

Mark placed_new_mark(PlacedCall *c) { return ++c->x->last; }

static int64_t placed_span(const Value *v) {
  int64_t last = 0;
  for (int i = 0; i < v->type.rank; i++) last += (v->type.axis[i].size - 1) * v->storage.stride[i];
  return (last + 1) * elem_bytes(v->type.elem);
}

void placed_copy(PlacedCall *c, const Op *op, PlacedAddress to, ValueId v, Mark to_mark) {
  PlacedAddress from = placed_address(c, v);
  int64_t n = placed_span(&c->f->values.at[v]);
  if (!placed_visit(c, v, NULL, READ))
    placed_error(c, op, "copies bytes that are another value's", v);
  if (!placed_inside(to, n) || !placed_inside(from, n))
    placed_error(c, op, "copies outside of its memory", op->in[0]);
  if (to.memory == from.memory && to.at < from.at + n && from.at < to.at + n)
    placed_error(c, op, "copies onto another value's bytes, its own:", v);
  if (c->x->error) return;
  placed_spoil(to, n, to_mark);
  memmove(to.memory->byte + to.at, from.memory->byte + from.at, (size_t)n);
}

/* See placed.h. Frames end in guard bytes; poison is a NaN for floats and large numbers for the
   rest, so that a value read before it is written, or after its bytes were given away, changes what
   comes out. */
#include "placed.h"
#include <math.h>
#include <string.h>

enum { GUARD = 256, POISON = 0xff };

struct Placed {
  Module *m;
  Arena *arena;
  Interp *interp;
  char **global; /* bytes of each */
  bool broken;
};

typedef struct Activation {
  Placed *p;
  const Fn *f;
  char *frame;
  char *const *in, *const *out;
} Activation;

static int64_t bytes_of(const Type *t) { return type_count(t) * elem_bytes(t->elem); }

static int64_t span_of(const Value *v) {
  int64_t last = 0;
  for (int i = 0; i < v->type.rank; i++) last += (v->type.axis[i].size - 1) * v->storage.stride[i];
  return (last + 1) * elem_bytes(v->type.elem);
}

static double get(const char *at, Elem e) {
  float f;
  double d;
  int32_t i;
  int64_t l;
  switch (e) {
  case ELEM_f32: return memcpy(&f, at, 4), f;
  case ELEM_f64: return memcpy(&d, at, 8), d;
  case ELEM_i32: return memcpy(&i, at, 4), i;
  case ELEM_i64: return memcpy(&l, at, 8), (double)l;
  default: return *(const unsigned char *)at;
  }
}

static void put(char *at, Elem e, double x) {
  float f = (float)x;
  int32_t i = (int32_t)x;
  int64_t l = (int64_t)x;
  switch (e) {
  case ELEM_f32: memcpy(at, &f, 4); return;
  case ELEM_f64: memcpy(at, &x, 8); return;
  case ELEM_i32: memcpy(at, &i, 4); return;
  case ELEM_i64: memcpy(at, &l, 8); return;
  default: *at = x != 0;
  }
}

/* Byte offset of element n, counted in the order of the type. */
static int64_t offset_of(const Value *v, int64_t n) {
  int64_t at = 0;
  for (int i = v->type.rank; i-- > 0; n /= v->type.axis[i].size)
    at += n % v->type.axis[i].size * v->storage.stride[i];
  return at * elem_bytes(v->type.elem);
}

Placed *placed_new(Module *m, Arena *a) {
  Placed *p = ARENA_NEW(a, Placed);
  *p = (Placed){.m = m, .arena = a, .interp = interp_new(m, a)};
  p->global = ARENA_ARRAY(a, char *, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    p->global[i] = arena_alloc(a, (size_t)bytes_of(&m->globals.at[i]->type));
    memset(p->global[i], POISON, (size_t)bytes_of(&m->globals.at[i]->type));
  }
  return p;
}

static uint32_t slot_of(const Module *m, const Global *g) {
  uint32_t i = 0;
  while (m->globals.at[i] != g) i++;
  return i;
}

void placed_set(Placed *p, const Global *g, const double *data) {
  char *at = p->global[slot_of(p->m, g)];
  for (int64_t i = 0; i < type_count(&g->type); i++)
    put(at + i * elem_bytes(g->type.elem), g->type.elem, data[i]);
}

double *placed_get(Placed *p, const Global *g) {
  double *data = ARENA_ARRAY(p->arena, double, type_count(&g->type));
  const char *at = p->global[slot_of(p->m, g)];
  for (int64_t i = 0; i < type_count(&g->type); i++)
    data[i] = get(at + i * elem_bytes(g->type.elem), g->type.elem);
  return data;
}

static char *address(const Activation *a, ValueId v) {
  const Storage *s = &a->f->values.at[v].storage;
  switch (s->place) {
  case PLACE_FRAME: return a->frame + s->at;
  case PLACE_GLOBAL: return a->p->global[s->slot] + s->at;
  case PLACE_ARG: return a->in[s->slot] + s->at;
  case PLACE_RESULT: return a->out[s->slot] + s->at;
  default: bug("no place");
  }
}

static void run_kernel(Activation *a, const Op *o) {
  Placed *p = a->p;
  Tensor *args = ARENA_ARRAY(p->arena, Tensor, o->nin + 1),
         *results = ARENA_ARRAY(p->arena, Tensor, o->nout + 1);
  for (uint32_t i = 0; i < o->nin; i++) {
    const Value *v = &o->callee->values.at[o->callee->args.at[i]];
    args[i] = (Tensor){v->type, ARENA_ARRAY(p->arena, double, type_count(&v->type))};
    for (int64_t n = 0; n < type_count(&v->type); n++)
      args[i].at[n] = get(address(a, o->in[i]) + offset_of(v, n), v->type.elem);
  }
  interp_call(p->interp, o->callee, args, results);
  for (uint32_t i = 0; i < o->nout; i++) {
    const Value *v = &o->callee->values.at[o->callee->results.at[i]];
    for (int64_t n = 0; n < type_count(&v->type); n++)
      put(address(a, o->out + i) + offset_of(v, n), v->type.elem, results[i].at[n]);
  }
}

static void run_function(Activation *a);

static bool is_arg(const Op *o, uint32_t result, uint32_t arg) {
  const Storage *s = &o->callee->values.at[o->callee->results.at[result]].storage;
  return s->place == PLACE_ARG && s->slot == arg;
}

static uint32_t saved_as(const Op *o, uint32_t carry, uint32_t j) {
  for (uint32_t i = carry; i < o->nout; i++)
    if (is_arg(o, i, j + 1)) return i;
  return 0;
}

static char *slice(const Activation *a, const Op *o, ValueId v, int64_t i) {
  const Value *x = &a->f->values.at[v];
  return address(a, v) +
         i * x->storage.stride[type_find(&x->type, o->group[0].from[0])] * elem_bytes(x->type.elem);
}

/* Where carried value j is read (step = 0) or written (step = 1) in round n. */
static char *carried(const Activation *a, const Op *o, uint32_t carry, uint32_t j, int64_t n,
                     int step) {
  int64_t trip = attr_int(&o->attrs, ATTR_trip, 0), reverse = attr_int(&o->attrs, ATTR_reverse, 0);
  char *result = address(a, o->out + j);
  uint32_t saved = saved_as(o, carry, j);
  const Attr *slots = attr_get(&o->attrs, ATTR_slots);
  if (is_arg(o, j, j + 1) || n + step == trip) return result;
  if (saved) return slice(a, o, o->out + saved, reverse ? trip - 1 - n - step : n + step);
  if (n + step == 0) return address(a, o->in[j]);
  return (trip - n - step) & 1 ? a->frame + slots->list[j] : result;
}

static void run_round(Activation *a, const Op *o, int64_t n) {
  int64_t trip = attr_int(&o->attrs, ATTR_trip, 0);
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  uint32_t whole = carry + (uint32_t)attr_int(&o->attrs, ATTR_invariant, 0);
  int64_t i = attr_int(&o->attrs, ATTR_reverse, 0) ? trip - 1 - n : n;
  int32_t counter = (int32_t)i;
  char **in = ARENA_ARRAY(a->p->arena, char *, o->nin + 1),
       **out = ARENA_ARRAY(a->p->arena, char *, o->nout + 1);
  in[0] = (char *)&counter;
  for (uint32_t k = 0; k < o->nin; k++)
    in[k + 1] = k < carry   ? carried(a, o, carry, k, n, 0)
                : k < whole ? address(a, o->in[k])
                            : slice(a, o, o->in[k], i);
  for (uint32_t k = 0; k < o->nout; k++)
    out[k] = k < carry ? carried(a, o, carry, k, n, 1) : slice(a, o, o->out + k, i);
  Activation body = {a->p, o->callee, a->frame + attr_int(&o->attrs, ATTR_work_at, 0), in, out};
  memset(body.frame, POISON, (size_t)attr_int(&o->callee->attrs, ATTR_frame, 0));
  run_function(&body);
}

static void run_loop(Activation *a, const Op *o) {
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  int64_t trip = attr_int(&o->attrs, ATTR_trip, 0);
  for (uint32_t j = 0; j < carry; j++) {
    char *to = carried(a, o, carry, j, 0, 0), *from = address(a, o->in[j]);
    if (to != from) memmove(to, from, (size_t)span_of(&a->f->values.at[o->in[j]]));
  }
  for (int64_t n = 0; n < trip; n++) run_round(a, o, n);
}

static void run_function(Activation *a) {
  for (OpId i = 0; i < a->f->ops.n; i++) {
    const Op *o = &a->f->ops.at[i];
    if (o->code == OP_kernel) run_kernel(a, o);
    if (o->code == OP_loop) run_loop(a, o);
    if (o->code != OP_store) continue;
    char *to = a->p->global[slot_of(a->p->m, o->global)], *from = address(a, o->in[0]);
    if (to != from) memmove(to, from, (size_t)bytes_of(&o->global->type));
  }
}

bool placed_run(Placed *p, const char *entry) {
  const Fn *f = module_fn(p->m, intern(p->m->ctx->names, entry));
  size_t n = (size_t)attr_int(&f->attrs, ATTR_frame, 0);
  char *frame = arena_alloc(p->arena, n + GUARD);
  memset(frame, POISON, n + GUARD);
  Activation a = {p, f, frame, NULL, NULL};
  run_function(&a);
  for (int i = 0; i < GUARD; i++)
    if ((unsigned char)frame[n + (size_t)i] != POISON) return false;
  return true;
}

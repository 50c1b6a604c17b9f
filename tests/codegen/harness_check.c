/* Kernels against the interpreter: random operands, poisoned buffers between guards, comparison.
   Harness.run is the function that runs the kernel. Must not: know how kernels are made. */
#include "exact.h"
#include "harness_inside.h"
#include "ir/interp/interp.h"
#include "ir/support/numbers.h"
#include <math.h>
#include <stdlib.h>

/* ---- a batch ---- */

Harness *harness_new(const char *target) {
  Ctx *c = ctx_new();
  Harness *h = ARENA_NEW(c->arena, Harness);
  h->ctx = c, h->arena = c->arena, h->target = target;
  h->low = -2, h->high = 2, h->int_low = -1, h->int_high = 9;
  h->random = 88172645463325252u, h->workers = 2;
  harness_add(h, "shardc-ir 1\nmodel Test\nafter select\n");
  return h;
}

void harness_free(Harness *h) { ctx_free(h->ctx); }

void harness_add(Harness *h, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *s = arena_vprintf(h->arena, format, args);
  va_end(args);
  for (; *s; s++) vec_push(h->arena, h->text, *s);
}

uint64_t harness_next(Harness *h) {
  h->random ^= h->random << 13, h->random ^= h->random >> 7, h->random ^= h->random << 17;
  return h->random;
}

int64_t harness_random(Harness *h, int64_t low, int64_t high) {
  return low + (int64_t)(harness_next(h) % (uint64_t)(high - low + 1));
}

static const char *shape_words(Harness *h, const char *elem, int n, const char *const *dim,
                               const int64_t *size, const int *order, bool padded,
                               const char *which) {
  const char *axes = "", *strides = "";
  int64_t stride[MAX_RANK], s = 1;
  bool dense = true;
  for (int i = n - 1; i >= 0; i--) {
    if (padded && (!h->pieces || i < n - 1) && harness_random(h, 0, 5) == 0)
      s += h->pieces ? 8 * harness_random(h, 1, 3) : harness_random(h, 1, 17), dense = false;
    stride[i] = s;
    s *= size[order[i]];
  }
  for (int i = 0; i < n; i++) {
    const char *comma = i ? ", " : "";
    axes = arena_printf(h->arena, "%s%s%s:%lld", axes, comma, dim[order[i]],
                        (long long)size[order[i]]);
    strides = arena_printf(h->arena, "%s%s%lld", strides, comma, (long long)stride[i]);
  }
  if (dense) return arena_printf(h->arena, "%s[%s]", elem, axes);
  return arena_printf(h->arena, "%s[%s] {%sstrides(%s)}", elem, axes, which, strides);
}

const char *harness_dense(Harness *h, const char *elem, int n, const char *const *dim,
                          const int64_t *size) {
  int order[MAX_RANK];
  for (int i = 0; i < n; i++) order[i] = i;
  return shape_words(h, elem, n, dim, size, order, false, "");
}

static const char *random_type(Harness *h, const char *elem, int n, const char *const *dim,
                               const int64_t *size, const char *which) {
  int order[MAX_RANK];
  for (int i = 0; i < n; i++) order[i] = i;
  for (int i = n - 1 - h->pieces; i > 0 && harness_random(h, 0, 2) == 0; i--) {
    int j = (int)harness_random(h, 0, i), t = order[i];
    order[i] = order[j], order[j] = t;
  }
  return shape_words(h, elem, n, dim, size, order, true, which);
}

const char *harness_type(Harness *h, const char *elem, int n, const char *const *dim,
                         const int64_t *size) {
  return random_type(h, elem, n, dim, size, "");
}

const char *harness_result(Harness *h, const char *elem, int n, const char *const *dim,
                           const int64_t *size) {
  return random_type(h, elem, n, dim, size, "0: ");
}

void harness_read_numbers(Harness *h, const Module *m, double *tolerance) {
  *tolerance = module_number(m, "check.tolerance", 1e-4);
  h->relative = module_number(m, "check.relative", 0) != 0;
  h->low = module_number(m, "check.low", -2), h->high = module_number(m, "check.high", 2);
  h->int_low = (int64_t)module_number(m, "check.int_low", -1);
  h->int_high = (int64_t)module_number(m, "check.int_high", 9);
  char *end;
  for (const char *text = module_setting(m, "check.inplace", ""); *text; text = end) {
    long at = strtol(text, &end, 10);
    if (end == text) break;
    vec_push(h->arena, h->inplace, (int)at);
  }
}

/* ---- buffers ---- */

static int64_t stride_at(const Fn *k, ValueId v, int axis) {
  const Value *value = &k->values.at[v];
  if (value->storage.ordered) return value->storage.stride[axis];
  int64_t s = 1;
  for (int a = value->type.rank - 1; a > axis; a--) s *= value->type.axis[a].size;
  return s;
}

static Buffer buffer_new(const Harness *h, const Fn *k, ValueId v) {
  const Type *t = value_type(k, v);
  int64_t n = 1;
  for (int a = 0; a < t->rank; a++) n += (t->axis[a].size - 1) * stride_at(k, v, a);
  Buffer b = {.k = k, .v = v, .bytes = n * elem_bytes(t->elem)};
  int64_t shift = h->shift * elem_bytes(t->elem),
          all = (b.bytes + shift + 2 * GUARD + 63) / 64 * 64;
  b.block = aligned_alloc(64, (size_t)all);
  memset(b.block, POISON, (size_t)all);
  b.at = b.block + GUARD + shift;
  return b;
}

/* Offset in bytes of element i in the dense order of the type. */
static int64_t offset_of(const Buffer *b, int64_t i) {
  const Type *t = value_type(b->k, b->v);
  int64_t at = 0;
  for (int a = t->rank - 1; a >= 0; a--) {
    at += i % t->axis[a].size * stride_at(b->k, b->v, a);
    i /= t->axis[a].size;
  }
  return at * elem_bytes(t->elem);
}

static void put(const Buffer *b, int64_t i, double x) {
  char *p = b->at + offset_of(b, i);
  float f = (float)x;
  uint16_t half;
  int32_t i32 = (int32_t)x;
  int64_t i64 = (int64_t)x;
  switch (value_type(b->k, b->v)->elem) {
  case ELEM_f32: memcpy(p, &f, 4); break;
  case ELEM_bf16: half = bf16_from_f32(f), memcpy(p, &half, 2); break;
  case ELEM_f16: half = f16_from_f32(f), memcpy(p, &half, 2); break;
  case ELEM_f64: memcpy(p, &x, 8); break;
  case ELEM_i32: memcpy(p, &i32, 4); break;
  case ELEM_i64: memcpy(p, &i64, 8); break;
  case ELEM_u8: *(unsigned char *)p = (unsigned char)i32; break;
  default: *p = x != 0; break;
  }
}

static double get(const Buffer *b, int64_t i) {
  const char *p = b->at + offset_of(b, i);
  float f;
  uint16_t half;
  int32_t i32;
  int64_t i64;
  double d;
  switch (value_type(b->k, b->v)->elem) {
  case ELEM_f32: memcpy(&f, p, 4); return f;
  case ELEM_bf16: memcpy(&half, p, 2); return f32_from_bf16(half);
  case ELEM_f16: memcpy(&half, p, 2); return f32_from_f16(half);
  case ELEM_f64: memcpy(&d, p, 8); return d;
  case ELEM_i32: memcpy(&i32, p, 4); return i32;
  case ELEM_i64: memcpy(&i64, p, 8); return (double)i64;
  default: return *(const unsigned char *)p;
  }
}

static bool of_dot(const Fn *k, ValueId v) {
  EACH_OP (k, op)
    if (op->code == OP_dot && (op->in[0] == v || op->in[1] == v)) return true;
  return false;
}

/* Operands over places of experts (attribute skips) have many zeros. In each row of places, places
   from `fill` on are zeros; if it is -1, every third place; if -2, all elements but the last of
   each place. */
typedef struct Places {
  int64_t size, stride; /* of the dim of places; 0: v has none */
  int64_t *fill;        /* of each row of places */
} Places;

static Places places_of(Harness *h, const Fn *k, ValueId v) {
  const Type *t = value_type(k, v);
  Str dim = attr_str(&k->attrs, ATTR_skips, NULL);
  int at = dim && of_dot(k, v) ? type_find(t, dim) : -1;
  Places places = {0};
  if (at < 0) return places;
  places.size = t->axis[at].size, places.stride = 1;
  for (int i = at + 1; i < t->rank; i++) places.stride *= t->axis[i].size;
  int64_t rows = type_count(t) / (places.size * places.stride);
  places.fill = ARENA_ARRAY(h->arena, int64_t, rows + 1);
  for (int64_t i = 0; i < rows; i++) {
    int64_t way = h->unfilled ? 0 : harness_random(h, 0, 5);
    places.fill[i] = way > 2 ? harness_random(h, 0, places.size) : -way;
  }
  return places;
}

static bool is_empty(const Places *places, int64_t i) {
  if (!places->size) return false;
  int64_t at = i / places->stride, fill = places->fill[at / places->size];
  if (fill == -1) return at % 3 == 0;
  if (fill == -2) return i % places->stride < places->stride - 1;
  return at % places->size >= fill;
}

/* Random numbers that the element type holds exactly. */
Tensor running_random(Harness *h, const Fn *k, ValueId v, const Buffer *b) {
  Places places = places_of(h, k, v);
  const Type *t = value_type(k, v);
  int64_t n = type_count(t);
  Tensor x = {*t, ARENA_ARRAY(h->arena, double, n)};
  for (int64_t i = 0; i < n; i++) {
    double u = (double)(harness_next(h) >> 11) * 0x1p-53, f = h->low + (h->high - h->low) * u;
    if (h->whole && exact_is_scored(k, v)) f *= (double)EXACT_SCORED / EXACT_MOST;
    if (h->whole) f = nearbyint(f);
    if (is_empty(&places, i)) f = 0;
    ElemClass class = elem_class(t->elem);
    put(b, i,
        class == CLASS_FLOAT  ? f
        : class == CLASS_BOOL ? u < 0.5
        : class == CLASS_BYTE ? (double)harness_random(h, 0, 255)
                              : (double)harness_random(h, h->int_low, h->int_high));
    x.at[i] = get(b, i);
  }
  return x;
}

/* Whether all bytes that are no elements still hold the poison. */
static bool clean_around(Harness *h, const Buffer *b) {
  const Type *t = value_type(b->k, b->v);
  int64_t before = b->at - b->block, all = before + b->bytes + GUARD;
  char *used = arena_alloc(h->arena, (size_t)all);
  for (int64_t i = 0, n = type_count(t); i < n; i++)
    memset(used + before + offset_of(b, i), 1, (size_t)elem_bytes(t->elem));
  for (int64_t i = 0; i < all; i++)
    if (!used[i] && (unsigned char)b->block[i] != POISON) return false;
  return true;
}

/* ---- running one kernel ---- */

static char *poisoned(int64_t bytes) {
  int64_t all = (bytes + GUARD + 63) / 64 * 64;
  char *p = aligned_alloc(64, (size_t)all);
  memset(p, POISON, (size_t)all);
  return p;
}

int running_same(Harness *h, uint32_t result) {
  for (uint32_t i = 0; i + 1 < h->inplace.n; i += 2)
    if (h->inplace.at[i + 1] == (int)result) return h->inplace.at[i];
  return -1;
}

Running running_new(Harness *h, Module *m, const Fn *k) {
  Running r = {.h = h, .m = m, .k = k, .nargs = k->args.n, .nresults = k->results.n};
  r.buffer = ARENA_ARRAY(h->arena, Buffer, r.nargs + r.nresults);
  r.pointer = ARENA_ARRAY(h->arena, void *, r.nargs + r.nresults + 1);
  for (uint32_t i = 0; i < r.nargs; i++) r.buffer[i] = buffer_new(h, k, k->args.at[i]);
  for (uint32_t i = 0; i < r.nresults; i++) {
    Buffer *b = &r.buffer[r.nargs + i];
    int a = running_same(h, i);
    *b = buffer_new(h, k, k->results.at[i]);
    if (a < 0) continue;
    free(b->block);
    b->at = r.buffer[a].at, b->block = r.buffer[a].block;
  }
  for (uint32_t i = 0; i < r.nargs + r.nresults; i++) r.pointer[i] = r.buffer[i].at;
  r.scratch_bytes = attr_int(&k->attrs, ATTR_scratch, 0);
  r.workspace_bytes = attr_int(&k->attrs, ATTR_workspace, 0);
  r.scratch = poisoned(r.scratch_bytes), r.workspace = poisoned(r.workspace_bytes);
  r.pointer[r.nargs + r.nresults] = r.workspace;
  return r;
}

void running_free(Running *r) {
  for (uint32_t i = 0; i < r->nargs + r->nresults; i++)
    if (i < r->nargs || running_same(r->h, i - r->nargs) < 0) free(r->buffer[i].block);
  free(r->scratch), free(r->workspace);
}

static bool guard_kept(const char *p, int64_t bytes) {
  for (int i = 0; i < GUARD; i++)
    if ((unsigned char)p[bytes + i] != POISON) return false;
  return true;
}

/* A sum halfway between two numbers of 16 bits may be rounded to either: these are at most so far
   apart, relative to the smaller one. */
static double step_of(Elem e) { return e == ELEM_bf16 ? 0x1p-7 : e == ELEM_f16 ? 0x1p-10 : 0; }

/* usual: the size of neighbouring numbers. */
static bool equal(const Harness *h, double got, double want, double usual, double tolerance,
                  Elem e) {
  if (isnan(want) || isnan(got)) return isnan(want) && (isnan(got) || h->near);
  if (got == want || (h->whole && tolerance <= 0)) return got == want;
  if (tolerance > 0 && fabs(got - want) <= step_of(e) * fmin(fabs(got), fabs(want))) return true;
  if (e == ELEM_bf16) tolerance += 0x1p-8;
  if (e == ELEM_f16) tolerance += 0x1p-10;
  double base = h->relative ? fabs(want) + 1e-37 / tolerance : usual + fabs(want);
  return elem_class(e) == CLASS_FLOAT && fabs(got - want) <= tolerance * base;
}

/* A kernel of attention rounds the terms of a sum of gradients. So the error of the sum is that of
   its terms, also where they nearly cancel. */
static double usual_size(const Running *r, ValueId v, const Tensor *want) {
  const Op *op = value_def(r->k, v);
  double squares = 0, n = (double)type_count(&want->type);
  if (!op || op->code != OP_sum ||
      strcmp(attr_str(&r->k->attrs, ATTR_family, ""), "attention_grad"))
    return 1;
  for (int64_t e = 0; e < (int64_t)n; e++) squares += want->at[e] * want->at[e];
  return fmax(1, sqrt(squares / n));
}

static bool compare_result(Running *r, uint32_t i, const Tensor *want, double tolerance) {
  const Buffer *b = &r->buffer[r->nargs + i];
  const Type *t = value_type(r->k, b->v);
  int64_t wrong = 0;
  double usual = usual_size(r, b->v, want);
  if (r->h->whole && exact_is_attended(r->k, b->v)) tolerance = 1e-6;
  for (int64_t e = 0, n = type_count(t); e < n; e++) {
    double got = get(b, e);
    if (equal(r->h, got, want->at[e], usual, tolerance, t->elem)) continue;
    if (wrong++ < 3)
      fprintf(stderr, "  @%s result %u element %lld: %.9g, expected %.9g\n", r->k->name, i,
              (long long)e, got, want->at[e]);
  }
  if (!clean_around(r->h, b))
    wrong++, fprintf(stderr, "  @%s result %u: bytes around it were written\n", r->k->name, i);
  return !wrong;
}

static uint32_t argument_of(const Fn *k, ValueId v) {
  for (uint32_t i = 0; i < k->args.n; i++)
    if (k->args.at[i] == v) return i;
  return UINT32_MAX;
}

/* The gradient of attention reads what the forward op delivered: k with that op instead, run on the
   same arguments, gives the y and lse that belong to them. */
static void consistent(Running *r, Tensor *args) {
  const Fn *k = r->k;
  Fn *f = fn_new(r->m, FN_KERNEL, k->name);
  ValueId *map = ARENA_ARRAY(r->h->arena, ValueId, k->values.n + 1);
  for (uint32_t i = 0; i < k->args.n; i++)
    map[k->args.at[i]] = fn_arg(r->m, f, *value_type(k, k->args.at[i]));
  for (uint32_t i = 0; i < k->ops.n; i++) {
    const Op *o = &k->ops.at[i];
    if (o->code != OP_attention_grad) {
      fn_clone_op(r->m, f, k, o, map);
      continue;
    }
    ValueId in[6] = {map[o->in[0]], map[o->in[1]], map[o->in[2]]};
    for (uint32_t j = 6; j < o->nin; j++) in[j - 3] = map[o->in[j]];
    uint32_t arg[] = {argument_of(k, o->in[3]), argument_of(k, o->in[4])};
    Type types[] = {*value_type(k, o->in[3]), *value_type(k, o->in[4])};
    Op *n = fn_op(r->m, f, OP_attention, o->nin - 3, in, 2, types, o->loc);
    n->ngroups = o->ngroups, n->group = o->group, n->attrs = o->attrs;
    Tensor out[2];
    fn_result(r->m, f, n->out), fn_result(r->m, f, n->out + 1);
    interp_call(interp_new(r->m, r->h->arena), f, args, out);
    for (int j = 0; j < 2; j++)
      for (int64_t x = 0, count = type_count(&types[j]); x < count; x++) {
        put(&r->buffer[arg[j]], x, out[j].at[x]);
        args[arg[j]].at[x] = get(&r->buffer[arg[j]], x);
      }
    return;
  }
}

static bool within(const Type *t, int64_t element, int64_t unit, uint64_t units) {
  for (int a = t->rank - 1; a >= 0; element /= t->axis[a].size, a--) {
    int64_t i = element % t->axis[a].size / unit;
    if (t->axis[a].size >= 2 * unit && !(units >> i & 1)) return false;
  }
  return true;
}

/* Elements far from the requested results become NaN; the others may be anything. */
static void spoil_far(Running *r, Tensor *want) {
  Harness *h = r->h;
  if (!h->near) return;
  for (uint32_t i = 0; i < r->nargs; i++) {
    const Type *t = value_type(r->k, r->buffer[i].v);
    bool spoils = elem_class(t->elem) == CLASS_FLOAT;
    for (int64_t e = 0, n = type_count(t); spoils && e < n; e++)
      if (!within(t, e, h->unit, h->near)) put(&r->buffer[i], e, NAN);
  }
  for (uint32_t i = 0; i < r->nresults; i++)
    for (int64_t e = 0, n = type_count(&want[i].type); e < n; e++)
      if (!within(&want[i].type, e, h->unit, h->asked)) want[i].at[e] = NAN;
}

static bool check_once(Harness *h, Module *m, const Fn *k, double tolerance) {
  Running r = running_new(h, m, k);
  Tensor *args = ARENA_ARRAY(h->arena, Tensor, r.nargs + 1),
         *want = ARENA_ARRAY(h->arena, Tensor, r.nresults + 1);
  for (uint32_t i = 0; i < r.nargs; i++)
    args[i] = running_random(h, k, k->args.at[i], &r.buffer[i]);
  consistent(&r, args);
  interp_call(interp_new(m, h->arena), k, args, want);
  spoil_far(&r, want);
  bool ok = h->run(&r);
  if (!ok) fprintf(stderr, "  @%s: a phase did not run\n", k->name);
  for (uint32_t i = 0; ok && i < r.nresults; i++) ok &= compare_result(&r, i, &want[i], tolerance);
  if (!guard_kept(r.scratch, r.scratch_bytes))
    ok = false, fprintf(stderr, "  @%s: wrote past its scratch\n", k->name);
  if (!guard_kept(r.workspace, r.workspace_bytes))
    ok = false, fprintf(stderr, "  @%s: wrote past its workspace\n", k->name);
  if (!ok) fputs(ir_print_fn(m, k), stderr);
  running_free(&r);
  return ok;
}

/* Pairs argument, result of kernel k that callers keep in one buffer. */
static bool shared_buffers(Harness *h, Module *m, const Fn *k) {
  h->inplace.n = 0;
  for (uint32_t f = 0; f < m->fns.n; f++)
    for (uint32_t i = 0; i < m->fns.at[f]->ops.n; i++) {
      const Op *o = &m->fns.at[f]->ops.at[i];
      if (o->callee != k || h->inplace.n) continue;
      for (uint32_t r = 0; r < o->nout; r++)
        for (uint32_t a = 0; a < o->nin; a++) {
          const Storage *s = &m->fns.at[f]->values.at[o->out + r].storage;
          if (s->view != VIEW_INPLACE || s->base != o->in[a]) continue;
          vec_push(h->arena, h->inplace, (int)a);
          vec_push(h->arena, h->inplace, (int)r);
        }
    }
  return h->inplace.n > 0;
}

int harness_kernel(Harness *h, Module *m, const Fn *k, double tolerance) {
  bool asked = h->inplace.n > 0;
  int failed = !check_once(h, m, k, tolerance);
  if (!asked && shared_buffers(h, m, k)) failed += !check_once(h, m, k, tolerance);
  if (!asked) h->inplace.n = 0;
  return failed;
}

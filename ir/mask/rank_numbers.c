/* The values of a number on the ranks of the mesh: the first position of a rank, the first of its
   heads. Such a number is arithmetic over coordinates (scalars @mesh.of.AXIS, pass localize), which
   entries load and pass to bodies of loops and to kernels. Must not: guess. An argument with two
   different values, and any value that does not follow from coordinates, is data. */
#include "rank_numbers.h"
#include "ir/made.h"
#include "ir/support/num.h"
#include <string.h>

enum { DEEP = 64 };

typedef struct AskedNumber {
  const RankWorld *world;
  const int64_t *coordinate;
  const RankCall *call; /* of the kernel that is asked about; NULL: its callers agree */
} AskedNumber;

RankWorld rank_world(Arena *arena, const Module *m) {
  RankWorld world = {.m = m};
  for (uint32_t k = 0; k < m->fns.n; k++)
    for (OpId n = 0; n < m->fns.at[k]->ops.n; n++) {
      const Op *o = &m->fns.at[k]->ops.at[n];
      if (o->callee) vec_push(arena, world.calls, ((RankCall){m->fns.at[k], o}));
    }
  return world;
}

static bool number_of(const AskedNumber *asked, const Fn *f, ValueId v, int deep, int64_t *out);

static bool of_coordinate(const AskedNumber *asked, const Global *g, int64_t *out) {
  const Module *m = asked->world->m;
  for (uint32_t a = 0; a < m->mesh.n; a++)
    if (g->name == made_coordinate(m, m->mesh.at[a].name)) return *out = asked->coordinate[a], true;
  return false;
}

/* The operand that is argument i; NO_VALUE: it is not the same in all rounds. */
static ValueId operand_for(const Op *o, uint32_t i) {
  if (o->code == OP_kernel) return o->in[i];
  if (o->code != OP_loop) return NO_VALUE;
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0),
           same_until = carry + (uint32_t)attr_int(&o->attrs, ATTR_invariant, 0);
  bool same = i > carry && i <= same_until;
  return same ? o->in[i - 1] : NO_VALUE;
}

/* The value that every caller passes as argument i. */
static bool of_argument(const AskedNumber *asked, const Fn *f, uint32_t i, int deep, int64_t *out) {
  bool found = false;
  for (uint32_t k = 0; k < asked->world->calls.n; k++) {
    const RankCall *call = &asked->world->calls.at[k];
    int64_t here;
    if (call->op->callee != f) continue;
    if (asked->call && asked->call->op->callee == f && asked->call != call) continue;
    ValueId v = operand_for(call->op, i);
    if (v == NO_VALUE || !number_of(asked, call->from, v, deep + 1, &here)) return false;
    if (found && here != *out) return false;
    *out = here, found = true;
  }
  return found;
}

static bool of_arithmetic(const AskedNumber *asked, const Fn *f, const Op *o, int deep,
                          int64_t *out) {
  int64_t a, b;
  if (o->nin != 2 || !number_of(asked, f, o->in[0], deep, &a) ||
      !number_of(asked, f, o->in[1], deep, &b))
    return false;
  switch (o->code) {
  case OP_add: return *out = a + b, true;
  case OP_sub: return *out = a - b, true;
  case OP_mul: return *out = a * b, true;
  case OP_div: return b > 0 && a >= 0 ? (*out = a / b, true) : false;
  default: return false;
  }
}

static bool number_of(const AskedNumber *asked, const Fn *f, ValueId v, int deep, int64_t *out) {
  const Op *o = value_def(f, v);
  if (deep > DEEP) return false;
  if (!o) return of_argument(asked, f, f->values.at[v].result, deep, out);
  switch (o->code) {
  case OP_const: return *out = (int64_t)attr_float(&o->attrs, ATTR_value, 0), true;
  case OP_load: return of_coordinate(asked, o->global, out);
  case OP_kernel:
    return number_of(asked, o->callee, o->callee->results.at[v - o->out], deep + 1, out);
  case OP_copy:
  case OP_stop: return number_of(asked, f, o->in[0], deep + 1, out);
  default: return of_arithmetic(asked, f, o, deep + 1, out);
  }
}

bool rank_number(const RankWorld *world, const Fn *f, ValueId v, const int64_t *coordinate,
                 int64_t *out) {
  return number_of(&(AskedNumber){world, coordinate, NULL}, f, v, 0, out);
}

/* ---- several numbers on all ranks ---- */

typedef struct AskedCalls {
  const RankWorld *world;
  const Fn *f;
  int n; /* numbers */
  const ValueId *v;
  int64_t calls;
  const RankCall *call[CALLS_ASKED];
} AskedCalls;

/* The calls of a kernel. */
static AskedCalls calls_of(const RankWorld *world, const Fn *f, int n, const ValueId *v) {
  AskedCalls asked = {.world = world, .f = f, .n = n, .v = v};
  int64_t all = 0, at = 0;
  for (uint32_t k = 0; k < world->calls.n; k++)
    all += world->calls.at[k].op->callee == f && f->kind == FN_KERNEL;
  asked.calls = min_i64(max_i64(all, 1), CALLS_ASKED);
  for (uint32_t k = 0; all > 1 && k < world->calls.n; k++) {
    if (world->calls.at[k].op->callee != f) continue;
    asked.call[at++ * asked.calls / all] = &world->calls.at[k];
  }
  return asked;
}

static bool numbers_at(const AskedCalls *asked, const int64_t *coordinate, int64_t *out) {
  for (int64_t c = 0; c < asked->calls; c++)
    for (int i = 0; i < asked->n; i++)
      if (!number_of(&(AskedNumber){asked->world, coordinate, asked->call[c]}, asked->f,
                     asked->v[i], 0, &out[c * asked->n + i]))
        return false;
  return true;
}

/* Does a number differ along the axis? */
static bool differs(const AskedCalls *asked, uint32_t axis, const int64_t *first) {
  int64_t coordinate[MAX_MESH] = {0}, at[CALLS_ASKED * MASK_SCALARS];
  size_t bytes = sizeof *at * (size_t)(asked->calls * asked->n);
  for (int64_t c = 1; c < min_i64(asked->world->m->mesh.at[axis].size, RANKS_ASKED); c++) {
    coordinate[axis] = c;
    if (!numbers_at(asked, coordinate, at) || memcmp(at, first, bytes) != 0) return true;
  }
  return false;
}

bool rank_numbers(const RankWorld *world, const Fn *f, int n, const ValueId *v, RankNumbers *out) {
  int64_t coordinate[MAX_MESH] = {0}, all = 1;
  bool along[MAX_MESH] = {0};
  AskedCalls asked = calls_of(world, f, n, v);
  if (!world->m->mesh.n || !n || !numbers_at(&asked, coordinate, out->value)) return false;
  for (uint32_t a = 0; a < world->m->mesh.n; a++) {
    along[a] = differs(&asked, a, out->value);
    all *= along[a] ? world->m->mesh.at[a].size : 1;
  }
  out->ranks = min_i64(all, RANKS_ASKED), out->calls = asked.calls;
  for (int64_t r = 0; r < out->ranks; r++) {
    int64_t rest = out->ranks > 1 ? r * (all - 1) / (out->ranks - 1) : 0;
    for (uint32_t a = 0; a < world->m->mesh.n; a++) {
      coordinate[a] = along[a] ? rest % world->m->mesh.at[a].size : 0;
      rest /= along[a] ? world->m->mesh.at[a].size : 1;
    }
    if (!numbers_at(&asked, coordinate, out->value + r * asked.calls * n)) return false;
  }
  return true;
}

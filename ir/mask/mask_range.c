/* Interval arithmetic over mask expressions, as the kernels do it of their blocks while they run
   (codegen/x86/attention_mask.c). A difference of independent positions, its absolute value and
   quotients by constants are exact; a value that is used twice (x - x / n * n) is wider than what
   it takes, unless its range is one number. So an answer may be `some, not all` where exactly
   nothing or all is admitted, never the other way round. */
#include "mask_range.h"
#include "ir/support/num.h"
#include "lookup.h"

typedef MaskInterval Interval;
typedef MaskQuestion Question;

static Interval number(int64_t lo, int64_t hi) { return (Interval){true, lo, hi}; }
static Interval unknown(void) { return (Interval){0}; }

static Interval ask(Question *flight, ValueId v, bool denied);

static Interval of_position(const Question *question, Str dim) {
  for (int i = 0; i < question->n; i++)
    if (question->dim[i] == dim) return number(question->from[i], question->to[i] - 1);
  return unknown();
}

static Interval product(Interval a, Interval b) {
  int64_t x[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  return number(min_i64(min_i64(x[0], x[1]), min_i64(x[2], x[3])),
                max_i64(max_i64(x[0], x[1]), max_i64(x[2], x[3])));
}

static Interval arithmetic(OpCode c, Interval a, Interval b) {
  if (!a.known || !b.known) return unknown();
  switch (c) {
  case OP_add: return number(a.lo + b.lo, a.hi + b.hi);
  case OP_sub: return number(a.lo - b.hi, a.hi - b.lo);
  case OP_min: return number(min_i64(a.lo, b.lo), min_i64(a.hi, b.hi));
  case OP_max: return number(max_i64(a.lo, b.lo), max_i64(a.hi, b.hi));
  case OP_mul: return product(a, b);
  case OP_div: return b.lo == b.hi && b.lo > 0 ? number(a.lo / b.lo, a.hi / b.lo) : unknown();
  default: return unknown();
  }
}

static Interval compared(OpCode c, Interval a, Interval b, bool denied) {
  if (!a.known || !b.known) return number(!denied, !denied);
  if (c == OP_lt) return number(a.lo < b.hi, a.hi < b.lo);
  if (c == OP_le) return number(a.lo <= b.hi, a.hi <= b.lo);
  return number(a.lo <= b.hi && b.lo <= a.hi, a.lo == b.hi && b.lo == a.hi);
}

static Interval reflected(OpCode c, Interval interval) {
  if (!interval.known) return interval;
  if (c == OP_neg) return number(-interval.hi, -interval.lo);
  return number(max_i64(0, max_i64(interval.lo, -interval.hi)), max_i64(-interval.lo, interval.hi));
}

typedef struct MaskTable {
  LookupTable of;
  uint32_t *sums;
} MaskTable;

static MaskTable *table_of(Question *question, const Op *o) {
  MaskTable **table = &question->table[o->out];
  if (*table) return *table;
  *table = ARENA_NEW(question->arena, MaskTable);
  (*table)->of = lookup_table(question->arena, o),
  (*table)->sums = lookup_sums(question->arena, &(*table)->of);
  return *table;
}

/* Set bits of the rectangle, by sums over those above and left of its corners. */
static Interval looked_up(Question *question, const Op *o, bool denied) {
  Interval r = ask(question, o->in[0], denied), c = ask(question, o->in[1], denied);
  if (!r.known || !c.known) return number(!denied, !denied);
  const MaskTable *table = table_of(question, o);
  int64_t wide = table->of.columns + 1, area = (r.hi - r.lo + 1) * (c.hi - c.lo + 1);
  int64_t r0 = max_i64(r.lo, 0), r1 = min_i64(r.hi + 1, table->of.rows), c0 = max_i64(c.lo, 0),
          c1 = min_i64(c.hi + 1, table->of.columns);
  if (r0 >= r1 || c0 >= c1) return number(0, 0);
  int64_t set = (int64_t)table->sums[r1 * wide + c1] - table->sums[r0 * wide + c1] -
                table->sums[r1 * wide + c0] + table->sums[r0 * wide + c0];
  return number(set > 0, set == area);
}

static Interval constant(const Question *question, const Op *o) {
  double c = attr_float(&o->attrs, ATTR_value, 0);
  return value_is_float(question->f, o->out) ? unknown() : number((int64_t)c, (int64_t)c);
}

static Interval of_bool(Question *question, const Op *o, bool denied) {
  if (o->code == OP_not) {
    Interval in = ask(question, o->in[0], !denied);
    return number(!in.hi, !in.lo);
  }
  Interval a = ask(question, o->in[0], denied), b = ask(question, o->in[1], denied);
  return o->code == OP_and ? number(a.lo && b.lo, a.hi && b.hi)
                           : number(a.lo || b.lo, a.hi || b.hi);
}

static Interval of_op(Question *question, const Op *o, bool denied) {
  bool whole = o->nin && elem_class(value_type(question->f, o->in[0])->elem) == CLASS_INT;
  switch (o->code) {
  case OP_const: return constant(question, o);
  case OP_iota: return of_position(question, o->group[0].from[0]);
  case OP_expand:
  case OP_copy:
  case OP_stop: return ask(question, o->in[0], denied);
  case OP_cast: return whole ? ask(question, o->in[0], denied) : unknown();
  case OP_neg:
  case OP_abs: return whole ? reflected(o->code, ask(question, o->in[0], denied)) : unknown();
  case OP_not:
  case OP_and:
  case OP_or: return of_bool(question, o, denied);
  case OP_lookup: return looked_up(question, o, denied);
  case OP_lt:
  case OP_le:
  case OP_eq:
    return compared(o->code, whole ? ask(question, o->in[0], denied) : unknown(),
                    whole ? ask(question, o->in[1], denied) : unknown(), denied);
  default: break;
  }
  if (o->nin != 2 || !whole) return unknown();
  return arithmetic(o->code, ask(question, o->in[0], denied), ask(question, o->in[1], denied));
}

/* Each value once for a rectangle: expressions share parts. */
static Interval ask(Question *question, ValueId v, bool denied) {
  uint32_t at = 2 * v + denied;
  if (question->when[at] == question->turn) return question->found[at];
  const Op *o = value_def(question->f, v);
  Interval interval = unknown();
  for (int i = 0; i < question->scalars; i++)
    if (question->scalar[i] == v) interval = number(question->number[i], question->number[i]);
  if (!interval.known && o && o->nout == 1) interval = of_op(question, o, denied);
  bool truth = elem_class(value_type(question->f, v)->elem) == CLASS_BOOL;
  if (truth && !interval.known) interval = number(!denied, !denied);
  question->when[at] = question->turn, question->found[at] = interval;
  return interval;
}

MaskQuestion mask_question(Arena *a, const Fn *f) {
  return (MaskQuestion){.f = f,
                        .arena = a,
                        .table = ARENA_ARRAY(a, struct MaskTable *, f->values.n + 1),
                        .found = ARENA_ARRAY(a, MaskInterval, 2 * f->values.n + 2),
                        .when = ARENA_ARRAY(a, uint32_t, 2 * f->values.n + 2)};
}

int mask_range(MaskQuestion *x, Str dim, int64_t from, int64_t to) {
  int i = 0;
  while (i < x->n && x->dim[i] != dim) i++;
  if (i == MASK_DIMS) bug("a mask over more than %d dims", MASK_DIMS);
  x->n = i == x->n ? i + 1 : x->n;
  return x->dim[i] = dim, x->from[i] = from, x->to[i] = to, i;
}

void mask_scalar(MaskQuestion *x, ValueId v, int64_t number) {
  int i = 0;
  while (i < x->scalars && x->scalar[i] != v) i++;
  if (i == MASK_SCALARS) bug("a mask with more than %d numbers", MASK_SCALARS);
  x->scalars = i == x->scalars ? i + 1 : x->scalars;
  x->scalar[i] = v, x->number[i] = number;
}

MaskFinding mask_find(MaskQuestion *x, ValueId mask, bool least) {
  x->turn++;
  Interval interval = ask(x, mask, least);
  return (MaskFinding){interval.lo != 0, interval.hi != 0};
}

MaskInterval mask_interval(MaskQuestion *x, ValueId v) {
  x->turn++;
  return ask(x, v, false);
}

static int add_heads(const Fn *f, ValueId v, Str q, Str k, Axis *out, int n, bool *seen) {
  const Op *o = value_def(f, v);
  if (!o || seen[v]) return n;
  seen[v] = true;
  Str dim = o->code == OP_iota ? o->group[0].from[0] : NULL;
  for (int i = 0; dim && i < n; i++)
    if (out[i].dim == dim) dim = NULL;
  if (dim && dim != q && dim != k && n < MASK_DIMS) out[n++] = value_type(f, v)->axis[0];
  for (uint32_t i = 0; i < o->nin; i++) n = add_heads(f, o->in[i], q, k, out, n, seen);
  return n;
}

int mask_heads(const Fn *f, ValueId mask, Str q, Str k, Axis *out) {
  Arena *a = arena_new();
  int n = add_heads(f, mask, q, k, out, 0, ARENA_ARRAY(a, bool, f->values.n + 1));
  arena_free(a);
  return n;
}

static bool is_number(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  const Type *t = value_type(f, v);
  return t->rank == 0 && elem_class(t->elem) == CLASS_INT && !(o && o->code == OP_const);
}

static int add_scalars(const Fn *f, ValueId v, ValueId *out, int n, bool *seen) {
  const Op *o = value_def(f, v);
  if (n < 0 || seen[v]) return n;
  seen[v] = true;
  if (is_number(f, v)) {
    if (n == MASK_SCALARS) return -1;
    return out[n] = v, n + 1;
  }
  for (uint32_t i = 0; o && i < o->nin; i++) n = add_scalars(f, o->in[i], out, n, seen);
  return n;
}

int mask_scalars(const Fn *f, ValueId mask, ValueId out[MASK_SCALARS]) {
  Arena *a = arena_new();
  int n = add_scalars(f, mask, out, 0, ARENA_ARRAY(a, bool, f->values.n + 1));
  arena_free(a);
  return n;
}

static bool is_positive(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  while (o && o->code == OP_expand) o = value_def(f, o->in[0]);
  return o && o->code == OP_const && attr_float(&o->attrs, ATTR_value, 0) >= 1;
}

/* Whether of_op is as sure of a result as of its operands. */
static bool is_bounded(const Fn *f, const Op *o) {
  bool whole = o->nin && elem_class(value_type(f, o->in[0])->elem) == CLASS_INT;
  switch (o->code) {
  case OP_const: return !value_is_float(f, o->out);
  case OP_iota:
  case OP_expand:
  case OP_copy:
  case OP_stop:
  case OP_not:
  case OP_and:
  case OP_or:
  case OP_lookup: return true;
  case OP_cast:
  case OP_neg:
  case OP_abs:
  case OP_lt:
  case OP_le:
  case OP_eq:
  case OP_add:
  case OP_sub:
  case OP_min:
  case OP_max:
  case OP_mul: return whole;
  case OP_div: return whole && is_positive(f, o->in[1]);
  default: return false;
  }
}

enum { DATA_UNSEEN, DATA_NO, DATA_YES };

/* .. or what intervals do not bound: it is asked score by score as well. */
static bool reads_data(const Fn *f, ValueId v, uint8_t *seen) {
  const Op *o = value_def(f, v);
  if (seen[v]) return seen[v] == DATA_YES;
  bool data = !o || !is_bounded(f, o);
  for (uint32_t i = 0; o && i < o->nin; i++) data |= reads_data(f, o->in[i], seen);
  return seen[v] = data ? DATA_YES : DATA_NO, data;
}

static int add_rest(const Fn *f, ValueId v, uint8_t *seen, ValueId *out, int n) {
  const Op *o = value_def(f, v);
  while (o && o->code == OP_expand) o = value_def(f, v = o->in[0]);
  if (n < 0 || !reads_data(f, v, seen)) return n;
  if (o && o->code == OP_and)
    return add_rest(f, o->in[1], seen, out, add_rest(f, o->in[0], seen, out, n));
  if (n == MASK_REST) return -1;
  return out[n] = v, n + 1;
}

int mask_rest(const Fn *f, ValueId mask, int n, const ValueId *known, ValueId out[MASK_REST]) {
  Arena *a = arena_new();
  uint8_t *seen = ARENA_ARRAY(a, uint8_t, f->values.n + 1);
  for (int i = 0; i < n; i++) seen[known[i]] = DATA_NO;
  int rest = add_rest(f, mask, seen, out, 0);
  arena_free(a);
  if (rest < 0) out[0] = mask;
  return rest < 0 ? 1 : rest;
}

static bool reads_numbers(const Fn *f, ValueId v, uint8_t *seen) {
  const Op *o = value_def(f, v);
  const Type *t = value_type(f, v);
  if (seen[v]) return seen[v] == DATA_YES;
  bool yes = !o && t->rank && elem_class(t->elem) == CLASS_INT;
  bool passes = o && (o->code == OP_rename || is_bounded(f, o));
  for (uint32_t i = 0; passes && i < o->nin; i++) yes |= reads_numbers(f, o->in[i], seen);
  return seen[v] = yes ? DATA_YES : DATA_NO, yes;
}

bool mask_reads(const Fn *f, ValueId mask) {
  Arena *a = arena_new();
  bool yes = reads_numbers(f, mask, ARENA_ARRAY(a, uint8_t, f->values.n + 1));
  arena_free(a);
  return yes;
}

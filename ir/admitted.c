/* The share of the scores that a mask admits, for counting operations.

   The mask is a bool expression over positions. A rectangle of queries and keys is asked over
   intervals, as the kernels ask of their blocks (codegen/x86/attention_mask.c): admitted wholly,
   not at all, or cut in four and asked again, down to single scores. So a causal mask of N
   positions costs a few N questions, not N * N. Above FINEST positions a side the last rectangles
   count half.

   What data or a rank's number decides (operands, scalars, other dims) counts as admitted: such a
   part is true where that admits more, and false behind `not`. Must not: depend on tiles, so that a
   model counts the same at each pass and for each target. */
#include "admitted.h"
#include "ir/support/num.h"

enum { FINEST = 8192 };

typedef struct Interval {
  bool known;
  int64_t lo, hi; /* inclusive; of a bool: may be true, is true */
} Interval;

typedef struct Question {
  const Fn *f;
  Axis axis[2]; /* of queries, of keys */
  int64_t from[2], to[2];
  Interval *found; /* by value, twice: as it stands, and behind an odd number of `not` */
  uint32_t *when, turn;
} Question;

static Interval number(int64_t lo, int64_t hi) { return (Interval){true, lo, hi}; }
static Interval unknown(void) { return (Interval){0}; }

static Interval ask(Question *x, ValueId v, bool denied);

static Interval of_position(const Question *x, Str dim) {
  for (int i = 0; i < 2; i++)
    if (x->axis[i].dim == dim) return number(x->from[i], x->to[i] - 1);
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

static Interval reflected(OpCode c, Interval x) {
  if (!x.known) return x;
  if (c == OP_neg) return number(-x.hi, -x.lo);
  return number(max_i64(0, max_i64(x.lo, -x.hi)), max_i64(-x.lo, x.hi));
}

static Interval constant(const Question *x, const Op *o) {
  double c = attr_float(&o->attrs, ATTR_value, 0);
  return elem_class(value_type(x->f, o->out)->elem) == CLASS_FLOAT ? unknown()
                                                                   : number((int64_t)c, (int64_t)c);
}

static Interval of_bool(Question *x, const Op *o, bool denied) {
  if (o->code == OP_not) {
    Interval in = ask(x, o->in[0], !denied);
    return number(!in.hi, !in.lo);
  }
  Interval a = ask(x, o->in[0], denied), b = ask(x, o->in[1], denied);
  return o->code == OP_and ? number(a.lo && b.lo, a.hi && b.hi)
                           : number(a.lo || b.lo, a.hi || b.hi);
}

static Interval of_op(Question *x, const Op *o, bool denied) {
  bool whole = o->nin && elem_class(value_type(x->f, o->in[0])->elem) == CLASS_INT;
  switch (o->code) {
  case OP_const: return constant(x, o);
  case OP_iota: return of_position(x, o->group[0].from[0]);
  case OP_expand:
  case OP_copy:
  case OP_stop: return ask(x, o->in[0], denied);
  case OP_cast: return whole ? ask(x, o->in[0], denied) : unknown();
  case OP_neg:
  case OP_abs: return whole ? reflected(o->code, ask(x, o->in[0], denied)) : unknown();
  case OP_not:
  case OP_and:
  case OP_or: return of_bool(x, o, denied);
  case OP_lt:
  case OP_le:
  case OP_eq:
    return compared(o->code, whole ? ask(x, o->in[0], denied) : unknown(),
                    whole ? ask(x, o->in[1], denied) : unknown(), denied);
  default: break;
  }
  if (o->nin != 2 || !whole) return unknown();
  return arithmetic(o->code, ask(x, o->in[0], denied), ask(x, o->in[1], denied));
}

/* Each value once for a rectangle: expressions share parts. */
static Interval ask(Question *x, ValueId v, bool denied) {
  uint32_t at = 2 * v + denied;
  if (x->when[at] == x->turn) return x->found[at];
  const Op *o = value_def(x->f, v);
  Interval s = o && o->nout == 1 ? of_op(x, o, denied) : unknown();
  bool truth = elem_class(value_type(x->f, v)->elem) == CLASS_BOOL;
  if (truth && !s.known) s = number(!denied, !denied);
  x->when[at] = x->turn, x->found[at] = s;
  return s;
}

/* Admitted scores of the rectangle. */
static double admitted(Question *x, ValueId mask) {
  int64_t q0 = x->from[0], q1 = x->to[0], k0 = x->from[1], k1 = x->to[1];
  if (q0 >= q1 || k0 >= k1) return 0;
  x->turn++;
  Interval s = ask(x, mask, false);
  double area = (double)(q1 - q0) * (double)(k1 - k0), sum = 0;
  if (!s.lo || s.hi) return s.lo ? area : 0;
  int64_t fine = 1 + max_i64(x->axis[0].size, x->axis[1].size) / (FINEST + 1);
  if (q1 - q0 <= fine && k1 - k0 <= fine) return area / 2;
  int64_t q = (q0 + q1) / 2, k = (k0 + k1) / 2;
  for (int i = 0; i < 4; i++) {
    x->from[0] = i / 2 ? q : q0, x->to[0] = i / 2 ? q1 : q;
    x->from[1] = i % 2 ? k : k0, x->to[1] = i % 2 ? k1 : k;
    sum += admitted(x, mask);
  }
  return sum;
}

double mask_share(const Fn *f, ValueId mask, Axis query, Axis key) {
  Question x = {.f = f, .axis = {query, key}, .to = {query.size, key.size}};
  Arena *a = arena_new();
  x.found = ARENA_ARRAY(a, Interval, 2 * f->values.n + 2);
  x.when = ARENA_ARRAY(a, uint32_t, 2 * f->values.n + 2);
  double sum = admitted(&x, mask);
  arena_free(a);
  return sum / ((double)query.size * (double)key.size);
}

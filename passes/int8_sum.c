/* int8, sums of gradients (qgZ of "ZeRO++", int8.c):

     reduce_scatter   codes of each rank's part go to that rank (all_to_all), which unpacks and adds
                      them in f32, in the order of ranks: rounded once, however many ranks there are
     all_reduce       the same for a part of a rank each, and the sums are packed and gathered: all
                      ranks have the same bits

   Blocks lie along the last dim where it is a multiple of them, else along all dims as one, padded
   with zeros. Must not: send anything that would be no shorter. */
#include "ir/support/num.h"
#include "passes/int8.h"

/* pad or slice: a dim at the begin of a longer one, or the reverse. */
static ValueId part(Int8 *k, OpCode c, ValueId v, Str from, Axis to) {
  Type t = *value_type(k->f, v);
  t.axis[type_find(&t, from)] = to;
  Group g = group_map(1, &from, 1, &to.dim);
  v = emit_typed(k->m, k->f, c, 1, &v, &g, t, k->loc);
  AttrList *l = &vec_last(k->f->ops).attrs;
  attr_set_int(k->m, l, ATTR_at, 0);
  if (c == OP_pad) attr_set_float(k->m, l, ATTR_fill, 0);
  return v;
}

/* ---- blocks ---- */

typedef struct Blocked { /* how a value came to end in [block, in] */
  Type was;              /* before */
  Str line;              /* the dim that was cut */
  int64_t count; /* of all dims as one: its elements without padding; 0: it is one of `was` */
} Blocked;

static bool of_ranks(const Int8 *k, Str name) {
  return name == int8_dim(k, "from") || name == int8_dim(k, "to");
}

/* Of the last dim but those of ranks; NULL: there is none. */
static const Axis *last_axis(const Int8 *k, const Type *t) {
  int at = t->rank - 1;
  while (at >= 0 && of_ranks(k, t->axis[at].dim)) at--;
  return at < 0 ? NULL : &t->axis[at];
}

/* All dims but those of ranks as one. */
static ValueId as_line(Int8 *k, ValueId v, Str line) {
  const Type *t = value_type(k->f, v);
  Str from[MAX_RANK];
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (!of_ranks(k, t->axis[i].dim)) from[n++] = t->axis[i].dim;
  return n == 1 ? ir_rename(k->m, k->f, v, from[0], line, k->loc) : int8_merge(k, v, n, from, line);
}

static ValueId as_it_was(Int8 *k, ValueId v, Str line, const Type *was) {
  Axis to[MAX_RANK];
  int n = 0;
  for (int i = 0; i < was->rank; i++)
    if (!of_ranks(k, was->axis[i].dim)) to[n++] = was->axis[i];
  return n == 1 ? ir_rename(k->m, k->f, v, line, to[0].dim, k->loc) : int8_split(k, v, line, n, to);
}

/* [.., from, to, block, in], where `ways` ranks share each line, or [.., block, in]. */
static ValueId blocked(Int8 *k, ValueId v, int64_t ways, Blocked *b) {
  int64_t unit = k->block * (ways ? ways : 1);
  *b = (Blocked){.was = *value_type(k->f, v)};
  Axis line = *last_axis(k, &b->was);
  if (line.size % unit) {
    line.dim = int8_dim(k, "line");
    v = as_line(k, v, line.dim);
    b->count = type_size(value_type(k->f, v), line.dim), line.size = round_up(b->count, unit);
    Axis full = {int8_dim(k, "padded"), line.size};
    if (line.size > b->count) v = part(k, OP_pad, v, line.dim, full), line = full;
  }
  b->line = line.dim;
  Axis to[] = {{int8_dim(k, "from"), 1},
               {int8_dim(k, "to"), ways},
               {int8_dim(k, "block"), line.size / unit},
               {int8_dim(k, "in"), k->block}};
  return ways ? int8_split(k, v, line.dim, 4, to) : int8_split(k, v, line.dim, 2, to + 2);
}

/* The reverse, of [.., to, block, in], or [.., block, in]. */
static ValueId unblocked(Int8 *k, ValueId v, bool shared, const Blocked *b) {
  Str from[] = {int8_dim(k, "to"), int8_dim(k, "block"), int8_dim(k, "in")};
  v = shared ? int8_merge(k, v, 3, from, b->line) : int8_merge(k, v, 2, from + 1, b->line);
  if (!b->count) return v;
  Axis line = {int8_dim(k, "line"), b->count};
  if (b->line != line.dim) v = part(k, OP_slice, v, b->line, line);
  return as_it_was(k, v, line.dim, &b->was);
}

/* ---- messages ---- */

static int64_t ways_of(const Op *o) { return attr_int(&o->attrs, ATTR_ranks, 1); }

/* Along o's axis; in as many messages as o, where rows lie as there. */
static ValueId message(Int8 *k, const Op *o, OpCode c, ValueId v, bool rows) {
  Str from = int8_dim(k, "from"), to = int8_dim(k, "to");
  Type t = *value_type(k->f, v);
  int64_t times = rows ? attr_int(&o->attrs, ATTR_messages, 1) : 1;
  Group g = c == OP_all_gather ? group_dims(1, &to) : group_map(1, &from, 1, &to);
  if (c == OP_all_gather) t.axis[type_find(&t, to)].size *= ways_of(o);
  else t.axis[type_find(&t, from)].size *= ways_of(o), t.axis[type_find(&t, to)].size /= ways_of(o);
  v = emit_typed(k->m, k->f, c, 1, &v, &g, t, k->loc);
  AttrList *l = &vec_last(k->f->ops).attrs;
  attr_set_str(k->m, l, ATTR_axis, attr_str(&o->attrs, ATTR_axis, NULL));
  attr_set_int(k->m, l, ATTR_ranks, ways_of(o));
  if (times > 1) attr_set_int(k->m, l, ATTR_messages, times);
  return v;
}

static Int8Packed sent(Int8 *k, const Op *o, OpCode c, Int8Packed p, bool rows) {
  return (Int8Packed){message(k, o, c, p.codes, rows), message(k, o, c, p.scale, false)};
}

/* [.., from, to, .., block, in] of one rank: the sums of its own part, [.., to, .., block, in]. */
static ValueId own_sums(Int8 *k, const Op *o, ValueId v, bool rows) {
  Str from = int8_dim(k, "from");
  Int8Packed p = sent(k, o, OP_all_to_all, int8_pack(k, v), rows);
  return ir_reduce(k->m, k->f, OP_sum, int8_unpack(k, p), 1, &from, k->loc);
}

static ValueId all_reduce(Int8 *k, const Op *o, ValueId v) {
  Blocked b;
  v = blocked(k, v, ways_of(o), &b);
  v = own_sums(k, o, v, !b.count);
  v = int8_unpack(k, sent(k, o, OP_all_gather, int8_pack(k, v), !b.count));
  return unblocked(k, v, true, &b);
}

static ValueId reduce_scatter(Int8 *k, const Op *o, ValueId v) {
  Blocked b;
  Str cut = o->group[0].from[0], both[] = {int8_dim(k, "to"), cut};
  int64_t own = type_size(value_type(k->f, v), cut) / ways_of(o);
  Axis to[] = {{int8_dim(k, "from"), 1}, {both[0], ways_of(o)}, {cut, own}};
  v = blocked(k, int8_split(k, v, cut, 3, to), 0, &b);
  v = own_sums(k, o, v, !b.count);
  return int8_merge(k, unblocked(k, v, false, &b), 2, both, cut);
}

/* ---- what is worth it ---- */

/* Elements that would travel, with padding. */
static int64_t elements(const Int8 *k, const Op *o, const Type *t) {
  const Axis *last = last_axis(k, t);
  int64_t ways = ways_of(o), n = type_count(t);
  if (o->code == OP_all_reduce)
    return last->size % (k->block * ways) ? round_up(n, k->block * ways) : n;
  int64_t size = last->size / (last->dim == o->group[0].from[0] ? ways : 1);
  return size % k->block ? ways * round_up(n / ways, k->block) : n;
}

static bool is_shorter(const Int8 *k, const Op *o, const Type *t) {
  if (!t->rank || ways_of(o) < 2) return false;
  int64_t n = elements(k, o, t);
  return n + n / k->block * elem_bytes(ELEM_f32) < type_count(t) * elem_bytes(t->elem);
}

bool int8_add_up(Rebuild *r, const Op *o, int64_t block) {
  must(o->code == OP_all_reduce || o->code == OP_reduce_scatter, "int8: %s", op_name(o->code));
  Int8 k = {r->m, r->to, block, o->loc};
  const Type *t = value_type(r->from, o->in[0]);
  if (!is_shorter(&k, o, t)) return false;
  ValueId v = r->map[o->in[0]];
  v = o->code == OP_all_reduce ? all_reduce(&k, o, v) : reduce_scatter(&k, o, v);
  r->map[o->out] = ir_cast(r->m, r->to, v, t->elem, o->loc);
  return true;
}

/* int8, sums of gradients (qgZ of "ZeRO++", int8.c):

     reduce_scatter   codes of each rank's shard are sent to that rank (all_to_all), which unpacks
                      and adds them in f32, in the order of ranks: rounded once, however many ranks
                      there are
     all_reduce       the same for one shard per rank, and the sums are packed and gathered: all
                      ranks have the same bits

   Blocks run along the last dim if its size is a multiple of them, else along all dims as one,
   padded with zeros. Must not: use codes for a message that they would not shorten. */
#include "ir/support/num.h"
#include "int8.h"

/* pad or slice: a dim at the begin of a longer one, or the reverse. */
static ValueId part(Int8 *int8, OpCode c, ValueId v, Str from, Axis to) {
  Type t = *value_type(int8->f, v);
  t.axis[type_find(&t, from)] = to;
  Group group = group_map(1, &from, 1, &to.dim);
  v = emit_typed(int8->m, int8->f, c, 1, &v, &group, t, int8->loc);
  AttrList *list = &vec_last(int8->f->ops).attrs;
  attr_set_int(int8->m, list, ATTR_at, 0);
  if (c == OP_pad) attr_set_float(int8->m, list, ATTR_fill, 0);
  return v;
}

/* ---- blocks ---- */

typedef struct Blocked { /* how a value came to end in [block, in] */
  Type was;              /* before */
  Str line;              /* the dim that was cut */
  int64_t count; /* of all dims as one: its elements without padding; 0: it is one of `was` */
} Blocked;

static bool of_ranks(const Int8 *int8, Str name) {
  return name == int8_dim(int8, "from") || name == int8_dim(int8, "to");
}

/* The last dim other than those of ranks; NULL: there is none. */
static const Axis *last_axis(const Int8 *int8, const Type *t) {
  int at = t->rank - 1;
  while (at >= 0 && of_ranks(int8, t->axis[at].dim)) at--;
  return at < 0 ? NULL : &t->axis[at];
}

/* All dims but those of ranks as one. */
static ValueId as_line(Int8 *int8, ValueId v, Str line) {
  const Type *t = value_type(int8->f, v);
  Str from[MAX_RANK];
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (!of_ranks(int8, t->axis[i].dim)) from[n++] = t->axis[i].dim;
  return n == 1 ? ir_rename(int8->m, int8->f, v, from[0], line, int8->loc)
                : int8_merge(int8, v, n, from, line);
}

static ValueId as_it_was(Int8 *int8, ValueId v, Str line, const Type *was) {
  Axis to[MAX_RANK];
  int n = 0;
  for (int i = 0; i < was->rank; i++)
    if (!of_ranks(int8, was->axis[i].dim)) to[n++] = was->axis[i];
  return n == 1 ? ir_rename(int8->m, int8->f, v, line, to[0].dim, int8->loc)
                : int8_split(int8, v, line, n, to);
}

/* [.., from, to, block, in], where `ways` ranks share each line, or [.., block, in]. */
static ValueId blocked(Int8 *int8, ValueId v, int64_t ways, Blocked *b) {
  int64_t unit = int8->block * (ways ? ways : 1);
  *b = (Blocked){.was = *value_type(int8->f, v)};
  Axis line = *last_axis(int8, &b->was);
  if (line.size % unit) {
    line.dim = int8_dim(int8, "line");
    v = as_line(int8, v, line.dim);
    b->count = type_size(value_type(int8->f, v), line.dim), line.size = round_up(b->count, unit);
    Axis full = {int8_dim(int8, "padded"), line.size};
    if (line.size > b->count) v = part(int8, OP_pad, v, line.dim, full), line = full;
  }
  b->line = line.dim;
  Axis to[] = {{int8_dim(int8, "from"), 1},
               {int8_dim(int8, "to"), ways},
               {int8_dim(int8, "block"), line.size / unit},
               {int8_dim(int8, "in"), int8->block}};
  return ways ? int8_split(int8, v, line.dim, 4, to) : int8_split(int8, v, line.dim, 2, to + 2);
}

/* The reverse, of [.., to, block, in], or [.., block, in]. */
static ValueId unblocked(Int8 *int8, ValueId v, bool shared, const Blocked *blocked) {
  Str from[] = {int8_dim(int8, "to"), int8_dim(int8, "block"), int8_dim(int8, "in")};
  v = shared ? int8_merge(int8, v, 3, from, blocked->line)
             : int8_merge(int8, v, 2, from + 1, blocked->line);
  if (!blocked->count) return v;
  Axis line = {int8_dim(int8, "line"), blocked->count};
  if (blocked->line != line.dim) v = part(int8, OP_slice, v, blocked->line, line);
  return as_it_was(int8, v, line.dim, &blocked->was);
}

/* ---- messages ---- */

static int64_t ways_of(const Op *o) { return attr_int(&o->attrs, ATTR_ranks, 1); }

/* A collective along o's axis; split into as many messages as o if its rows have the layout of
   o's. */
static ValueId message(Int8 *int8, const Op *o, OpCode c, ValueId v, bool rows) {
  Str from = int8_dim(int8, "from"), to = int8_dim(int8, "to");
  Type t = *value_type(int8->f, v);
  int64_t times = rows ? attr_int(&o->attrs, ATTR_messages, 1) : 1;
  Group group = c == OP_all_gather ? group_dims(1, &to) : group_map(1, &from, 1, &to);
  if (c == OP_all_gather) t.axis[type_find(&t, to)].size *= ways_of(o);
  else t.axis[type_find(&t, from)].size *= ways_of(o), t.axis[type_find(&t, to)].size /= ways_of(o);
  v = emit_typed(int8->m, int8->f, c, 1, &v, &group, t, int8->loc);
  AttrList *list = &vec_last(int8->f->ops).attrs;
  attr_set_str(int8->m, list, ATTR_axis, attr_str(&o->attrs, ATTR_axis, NULL));
  attr_set_int(int8->m, list, ATTR_ranks, ways_of(o));
  if (times > 1) attr_set_int(int8->m, list, ATTR_messages, times);
  return v;
}

static Int8Packed sent(Int8 *int8, const Op *o, OpCode c, Int8Packed p, bool rows) {
  return (Int8Packed){message(int8, o, c, p.codes, rows), message(int8, o, c, p.scale, false)};
}

/* [.., from, to, .., block, in] of one rank: the sums of its own part, [.., to, .., block, in]. */
static ValueId own_sums(Int8 *int8, const Op *o, ValueId v, bool rows) {
  Str from = int8_dim(int8, "from");
  Int8Packed p = sent(int8, o, OP_all_to_all, int8_pack(int8, v), rows);
  return ir_reduce(int8->m, int8->f, OP_sum, int8_unpack(int8, p), 1, &from, int8->loc);
}

static ValueId all_reduce(Int8 *int8, const Op *o, ValueId v) {
  Blocked b;
  v = blocked(int8, v, ways_of(o), &b);
  v = own_sums(int8, o, v, !b.count);
  v = int8_unpack(int8, sent(int8, o, OP_all_gather, int8_pack(int8, v), !b.count));
  return unblocked(int8, v, true, &b);
}

static ValueId reduce_scatter(Int8 *int8, const Op *o, ValueId v) {
  Blocked b;
  Str cut = o->group[0].from[0], both[] = {int8_dim(int8, "to"), cut};
  int64_t own = type_size(value_type(int8->f, v), cut) / ways_of(o);
  Axis to[] = {{int8_dim(int8, "from"), 1}, {both[0], ways_of(o)}, {cut, own}};
  v = blocked(int8, int8_split(int8, v, cut, 3, to), 0, &b);
  v = own_sums(int8, o, v, !b.count);
  return int8_merge(int8, unblocked(int8, v, false, &b), 2, both, cut);
}

/* ---- messages that are worth it ---- */

/* Elements to send, with padding. */
static int64_t elements(const Int8 *int8, const Op *o, const Type *t) {
  const Axis *last = last_axis(int8, t);
  int64_t ways = ways_of(o), n = type_count(t);
  if (o->code == OP_all_reduce)
    return last->size % (int8->block * ways) ? round_up(n, int8->block * ways) : n;
  int64_t size = last->size / (last->dim == o->group[0].from[0] ? ways : 1);
  return size % int8->block ? ways * round_up(n / ways, int8->block) : n;
}

static bool is_shorter(const Int8 *int8, const Op *o, const Type *t) {
  if (!t->rank || ways_of(o) < 2) return false;
  int64_t n = elements(int8, o, t);
  return n + n / int8->block * elem_bytes(ELEM_f32) < type_dense_bytes(t);
}

bool int8_add_up(Rebuild *rebuild, const Op *o, int64_t block) {
  must(o->code == OP_all_reduce || o->code == OP_reduce_scatter, "int8: %s", op_name(o->code));
  Int8 int8 = {rebuild->m, rebuild->to, block, o->loc};
  const Type *t = value_type(rebuild->from, o->in[0]);
  if (!is_shorter(&int8, o, t)) return false;
  ValueId v = rebuild->map[o->in[0]];
  v = o->code == OP_all_reduce ? all_reduce(&int8, o, v) : reduce_scatter(&int8, o, v);
  rebuild->map[o->out] = ir_cast(rebuild->m, rebuild->to, v, t->elem, o->loc);
  return true;
}

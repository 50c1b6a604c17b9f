/* Blocks and rows of collectives (message.h). */
#include "message.h"

/* Elements of one of `ways` blocks of dim and of all that lies behind it in storage. */
static int64_t row_of(const Type *t, Str dim, int64_t ways) {
  int at = type_find(t, dim);
  int64_t row = t->axis[at].size / ways;
  for (int i = at + 1; i < t->rank; i++) row *= t->axis[i].size;
  return row;
}

Message message_of(const Fn *f, const Op *o) {
  const Type *in = value_type(f, o->in[0]), *out = value_type(f, o->out);
  Message m = {.ways = attr_int(&o->attrs, ATTR_ways, 1), .count = type_count(in)};
  Str dim = o->ngroups ? o->group[0].from[0] : NULL;
  if (o->code == OP_reduce_scatter) m.count = type_count(out);
  if (o->code == OP_all_to_all) m.count /= m.ways;
  m.send_row = m.receive_row = m.count;
  if (o->code == OP_reduce_scatter) m.send_row = row_of(in, dim, m.ways);
  if (o->code == OP_all_gather || o->code == OP_all_to_all)
    m.receive_row = row_of(out, dim, m.ways);
  if (o->code == OP_all_to_all) m.send_row = row_of(in, o->group[0].to[0], m.ways);
  return m;
}

int64_t message_at(const Message *m, int64_t row, int64_t i, int64_t j) {
  return (j / row * m->ways + i) * row + j % row;
}

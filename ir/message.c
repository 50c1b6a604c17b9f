/* Blocks, rows and messages of collectives (message.h). */
#include "message.h"
#include "ir/support/num.h"
#include <string.h>

/* Elements of one of `ways` blocks of dim and of all that lies behind it in storage. */
static int64_t row_of(const Type *t, Str dim, int64_t ways) {
  int at = type_find(t, dim);
  int64_t row = t->axis[at].size / ways;
  for (int i = at + 1; i < t->rank; i++) row *= t->axis[i].size;
  return row;
}

/* The collective as one message. What is received without an operand has its result's type. */
static Message whole(const Fn *f, const Op *o) {
  const Type *out = value_type(f, o->out), *in = o->nin ? value_type(f, o->in[0]) : out;
  Message m = {.ways = attr_int(&o->attrs, ATTR_ranks, 1), .count = type_count(in)};
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

Message message_of(const Fn *f, const Op *o) {
  Message m = whole(f, o);
  bool sums = o->code == OP_all_reduce || op_is_hop(o->code); /* of one block */
  m.rows = sums ? m.count : m.count / min_i64(m.send_row, m.receive_row);
  m.times = attr_int(&o->attrs, ATTR_messages, 1);
  m.count /= m.times;
  m.send_row = min_i64(m.send_row, m.count), m.receive_row = min_i64(m.receive_row, m.count);
  bool all = o->code == OP_all_to_all;
  m.send_step = m.count * (all || o->code == OP_reduce_scatter ? m.ways : 1);
  m.receive_step = m.count * (all || o->code == OP_all_gather ? m.ways : 1);
  m.piece = attr_int(&o->attrs, ATTR_piece, m.count);
  m.pieces = m.piece > 0 ? (m.count + m.piece - 1) / m.piece : 1;
  m.bytes = m.piece * (sums ? 1 : m.ways) * elem_bytes(value_type(f, o->out)->elem);
  return m;
}

int64_t hop_peer(const Op *o, int64_t at, int64_t n) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0, wraps = attr_int(&o->attrs, ATTR_wrap, 0);
  int64_t other = at + (back == (o->code == OP_send) ? -1 : 1);
  if (wraps) return (other + n) % n;
  return other < n ? other : -1;
}

int64_t message_at(const Message *m, int64_t row, int64_t i, int64_t j) {
  return (j / row * m->ways + i) * row + j % row;
}

int64_t message_workspace(const Fn *f, const Op *o) {
  Message m = message_of(f, o);
  int64_t lines = (m.send_row < m.count) + (m.receive_row < m.count);
  return lines * round_up(m.bytes, CACHE_LINE);
}

bool message_needs_line(const Module *m) {
  return module_on_gpu(m) && !strcmp(module_setting(m, "comm", "nccl"), "nccl");
}

bool message_by_host(const Module *m) {
  return module_on_gpu(m) && m->mesh.n > 0 && !message_needs_line(m);
}

int64_t message_host_bytes(const Fn *f, const Op *o) {
  Message m = message_of(f, o);
  return m.ways > 1 ? round_up(m.bytes, CACHE_LINE) : 0;
}

int64_t message_fewest(int64_t rows, int64_t row_bytes, int64_t most) {
  int64_t times = 1;
  while (times < rows && (rows % times || rows / times * row_bytes > most)) times++;
  return times;
}

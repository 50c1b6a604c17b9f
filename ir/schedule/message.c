/* Blocks, rows and messages of collectives (message.h). */
#include "message.h"
#include "ir/communicator.h"
#include "ir/support/num.h"

/* Elements of one of `ways` blocks of dim and of all dims after it in storage. */
static int64_t row_of(const Type *t, Str dim, int64_t ways) {
  int at = type_find(t, dim);
  int64_t row = t->axis[at].size / ways;
  for (int i = at + 1; i < t->rank; i++) row *= t->axis[i].size;
  return row;
}

/* The collective as one message. A received value without an operand has its result's type. */
static Message whole(const Fn *f, const Op *o) {
  const Type *out = value_type(f, o->out), *in = o->nin ? value_type(f, o->in[0]) : out;
  Message message = {.ways = attr_int(&o->attrs, ATTR_ranks, 1), .count = type_count(in)};
  Str joins = collective_joins(o), cuts = collective_cuts(o);
  if (cuts) message.count = joins ? message.count / message.ways : type_count(out);
  message.send_row = cuts ? row_of(in, cuts, message.ways) : message.count;
  message.receive_row = joins ? row_of(out, joins, message.ways) : message.count;
  return message;
}

Message message_of(const Fn *f, const Op *o) {
  Message message = whole(f, o);
  int64_t sent = collective_cuts(o) ? message.ways : 1, /* blocks */
      received = collective_joins(o) ? message.ways : 1;
  bool one = !collective_cuts(o) && !collective_joins(o);
  message.rows =
      one ? message.count : message.count / min_i64(message.send_row, message.receive_row);
  message.times = attr_int(&o->attrs, ATTR_messages, 1);
  message.count /= message.times;
  message.send_row = min_i64(message.send_row, message.count),
  message.receive_row = min_i64(message.receive_row, message.count);
  message.send_step = message.count * sent, message.receive_step = message.count * received;
  message.piece = attr_int(&o->attrs, ATTR_piece, message.count);
  message.pieces = message.piece > 0 ? (message.count + message.piece - 1) / message.piece : 1;
  message.bytes =
      message.piece * (one ? 1 : message.ways) * elem_bytes(value_type(f, o->out)->elem);
  return message;
}

int64_t hop_peer(const Op *o, int64_t at, int64_t n) {
  bool back = attr_int(&o->attrs, ATTR_reverse, 0) != 0,
       cyclic = attr_int(&o->attrs, ATTR_cyclic, 0);
  int64_t other = at + (back == (o->code == OP_send) ? -1 : 1);
  if (cyclic) return (other + n) % n;
  return other < n ? other : -1;
}

int64_t message_at(const Message *message, int64_t row, int64_t i, int64_t j) {
  return (j / row * message->ways + i) * row + j % row;
}

int64_t message_workspace(const Fn *f, const Op *o) {
  Message message = message_of(f, o);
  int64_t lines = (message.send_row < message.count) + (message.receive_row < message.count);
  return lines * round_up(message.bytes, CACHE_LINE);
}

bool message_needs_line(const Module *m) {
  return module_on_gpu(m) && module_communicator(m)->on_device;
}

bool message_by_host(const Module *m) {
  return module_on_gpu(m) && m->mesh.n > 0 && !message_needs_line(m);
}

int64_t message_host_bytes(const Fn *f, const Op *o) {
  Message message = message_of(f, o);
  return message.ways > 1 ? round_up(message.bytes, CACHE_LINE) : 0;
}

int64_t message_fewest(int64_t rows, int64_t row_bytes, int64_t most) {
  if (rows < 2 || row_bytes < 1) return 1;
  int64_t together = most / row_bytes; /* rows of a message */
  return together < 1 ? rows : divisor_from(rows, ceil_div(rows, together));
}

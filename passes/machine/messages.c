/* select, for collectives: over a library that only knows contiguous blocks, it decides the
   number of messages of each collective, and the workspace in which blocks that consist of several
   rows are made contiguous.

   Long rows are sent one by one, from where they are stored; short rows are sent together, in
   messages of at most a bucket, which bounds the workspace. Blocks that all ranks exchange are
   sent in messages that hold a piece of each block, and so is, from a GPU by way of the host,
   every value larger than a bucket. Collectives that pass zero has already split into messages are
   unchanged. Must not: change the data that is sent; touch other targets, whose communicators
   accept rows. */
#include "ir/schedule/message.h"
#include "messages.h"
#include "ir/plan/module_settings.h"

/* Bytes; a copy of less costs less than a message. */
enum { LONG_ROW = 1 << 20 };

/* Pieces of a bucket, and of whole lines of memory. */
static void cut_blocks(Module *m, const Fn *f, Op *o, int64_t most) {
  Message message = message_of(f, o);
  must(message.count > 0, "select: %s in %s sends blocks of nothing", op_name(o->code), f->name);
  int64_t one = message.bytes / message.count, line = 64 / elem_bytes(value_type(f, o->out)->elem);
  if (message.bytes <= most) return;
  int64_t piece = most / one > line ? most / one / line * line : most / one;
  attr_set_int(m, &o->attrs, ATTR_piece, piece > 0 ? piece : 1);
}

static void select_message(Module *m, const Fn *f, Op *o) {
  int64_t most = plan_zero_bucket(m);
  must(most > 0, "select: messages of at most %lld bytes", (long long)most);
  bool joins = collective_joins(o), cuts = collective_cuts(o);
  Message message = message_of(f, o);
  if (joins != cuts && message.times == 1 && message.rows > 1) {
    int64_t bytes = message.bytes / message.rows;
    int64_t times = bytes >= LONG_ROW ? message.rows : message_fewest(message.rows, bytes, most);
    if (times > 1) attr_set_int(m, &o->attrs, ATTR_messages, times);
  }
  if (joins && cuts && message_workspace(f, o)) cut_blocks(m, f, o, most);
  int64_t work = message_workspace(f, o);
  if (work) attr_set_int(m, &o->attrs, ATTR_workspace, work);
}

void select_messages(Module *m) {
  bool line = message_needs_line(m), host = message_by_host(m);
  for (uint32_t i = 0; i < m->fns.n && (line || host); i++)
    for (OpId k = 0; m->fns.at[i]->kind != FN_KERNEL && k < m->fns.at[i]->ops.n; k++) {
      Op *o = &m->fns.at[i]->ops.at[k];
      if (op_family(o->code) != FAMILY_COLLECTIVE) continue;
      if (line) select_message(m, m->fns.at[i], o);
      else cut_blocks(m, m->fns.at[i], o, plan_zero_bucket(m));
    }
}

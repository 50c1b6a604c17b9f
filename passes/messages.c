/* select, of collectives: over a library that knows blocks end to end only (NCCL), in how many
   messages a value of the graph goes, and the room in which blocks that are cut in rows are put
   end to end. Long rows go one by one, from where they lie; short ones together, in messages of at
   most a bucket, so that the room is no larger. What pass zero cut in messages stays as it is.
   Must not: change what is sent; touch other targets, whose communicators take rows. */
#include "ir/message.h"
#include "passes/internal.h"

enum { LONG_ROW = 1 << 20, BUCKET = 25 << 20 }; /* bytes; a copy of less costs less than a message */

static void select_message(Module *m, const Fn *f, Op *o) {
  int64_t most = (int64_t)module_number(m, "plan.zero.bucket", BUCKET);
  bool rows = o->code == OP_reduce_scatter || o->code == OP_all_gather;
  Message x = message_of(f, o);
  if (rows && x.times == 1 && x.rows > 1) {
    int64_t bytes = x.bytes / x.rows;
    int64_t times = bytes >= LONG_ROW ? x.rows : message_fewest(x.rows, bytes, most);
    if (times > 1) attr_set_int(m, &o->attrs, ATTR_times, times);
  }
  int64_t work = message_workspace(f, o);
  if (work) attr_set_int(m, &o->attrs, ATTR_workspace, work);
}

void select_messages(Module *m) {
  if (!message_needs_line(m)) return;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; m->fns.at[i]->kind != FN_KERNEL && k < m->fns.at[i]->ops.n; k++)
      if (op_family(m->fns.at[i]->ops.at[k].code) == FAMILY_COLLECTIVE)
        select_message(m, m->fns.at[i], &m->fns.at[i]->ops.at[k]);
}

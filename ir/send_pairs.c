/* Which sends go with the receive behind them (send_pairs.h): read off the messages of each stage
   in the order of its schedule (events.h). Must not: ask what lies between two messages over other
   axes, all ranks of which stand at the same place. */
#include "send_pairs.h"
#include "bytes.h"
#include "events.h"
#include "message.h"
#include "placement.h"
#include "stage_class.h"
#include "ir/support/num.h"
#include <string.h>

bool send_is_alone(const SendPairs *pairs, const Op *send) {
  for (uint32_t i = 0; i < pairs->alone.n; i++)
    if (pairs->alone.at[i] == send) return true;
  return false;
}

/* Of one rank, over one axis. */
static void add_alone(const Module *m, SendPairs *pairs, const EventList *list) {
  for (uint32_t i = 0; i + 1 < list->at.n; i++) {
    const Op *o = event_op(&list->at.at[i]), *next = event_op(&list->at.at[i + 1]);
    if (o->code == OP_send && next->code == OP_send && !send_is_alone(pairs, o))
      vec_push(m->arena, pairs->alone, o);
  }
}

static bool sends_over(const Module *m, Str axis) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_send && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), axis)) return true;
    }
  return false;
}

static void add_axis(const Module *m, SendPairs *pairs, int axis) {
  StageClass class = module_class(m);
  bool one = *class.name && class.axis == axis;
  int64_t step = 1, first = one ? class.first : 0,
          last = one ? class.last : m->mesh.at[axis].size - 1;
  for (int i = 0; i < axis; i++) step *= m->mesh.at[i].size;
  EventList list = {0};
  for (int64_t s = first; s <= last; s++)
    for (uint32_t i = 0; i < m->fns.n; i++) {
      if (m->fns.at[i]->kind != FN_ENTRY) continue;
      messages_of_rank(m, m->fns.at[i], s * step, m->mesh.at[axis].name, &list);
      add_alone(m, pairs, &list);
    }
}

SendPairs send_pairs(const Module *m) {
  SendPairs pairs = {.used = message_needs_line(m)};
  for (uint32_t i = 0; pairs.used && i < m->mesh.n; i++)
    if (sends_over(m, m->mesh.at[i].name)) add_axis(m, &pairs, (int)i);
  return pairs;
}

int64_t entry_receives(const Fn *f) {
  int64_t n = 0;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    n += o->code == OP_receive;
    if (o->code == OP_loop) n += attr_int(&o->attrs, ATTR_trip, 0) * entry_receives(o->callee);
  }
  return n;
}

int64_t module_send_slot(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; message_needs_line(m) && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Fn *f = m->fns.at[i];
      const Op *o = &f->ops.at[k];
      if (o->code != OP_send) continue;
      int64_t bytes = message_of(f, o).count * elem_bytes(value_type(f, o->in[0])->elem);
      if (bytes > most) most = bytes;
    }
  return round_up(most, CACHE_LINE);
}

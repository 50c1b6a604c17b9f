/* prove, (e): operations of different streams that touch a common byte, one of them writing, are
   ordered by the tokens of the program (ir/schedule/stream_order.h): an operation begins when those
   that it needs are done, by its own tokens or by those of operations that it waits for. */
#include "prove.h"
#include "ir/schedule/stream_order.h"

/* The operation, or the last listed one before it. */
static const Event *needed(const StreamOrder *order, const StreamNeed *need) {
  const Event *event = NULL;
  for (uint32_t i = 0; i < order->at.n; i++) {
    const StreamEvent *at = &order->at.at[i];
    if (at->stream == need->of && at->issued[need->of] < need->number) event = at->event;
  }
  return event;
}

static void report_missing(Module *m, const StreamOrder *order, const StreamEvent *event,
                           const StreamNeed *need) {
  Report *r =
      prove_wrong(m, event->event, "E1112",
                  arena_printf(m->arena, "%s does not wait for %s", prove_said(m, event->event),
                               prove_said(m, needed(order, need))));
  diag_fact(r,
            "in entry @%s: both use the same bytes, the first on stream `%s`, the second on `%s`",
            order->entry->name, stream_name(need->arrived ? STREAM_compute : event->stream),
            stream_name(need->of));
}

static bool prove_one(Module *m, const StreamOrder *order) {
  StreamClocks clocks = {.arena = m->arena};
  for (uint32_t i = 0; i < order->at.n; i++) {
    const StreamEvent *event = &order->at.at[i];
    StreamTokens tokens = op_tokens(event_op(event->event));
    clocks_wait(&clocks, event, &tokens);
    StreamNeed need = clocks_need(&clocks, event);
    if (need.missing) {
      report_missing(m, order, event, &need);
      return false;
    }
    clocks_issue(&clocks, event);
  }
  return true;
}

bool prove_streams(Module *m) {
  StreamOrders orders = stream_orders(m, false);
  for (uint32_t i = 0; i < orders.n; i++)
    if (!prove_one(m, &orders.at[i])) return false;
  return true;
}

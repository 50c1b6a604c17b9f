/* prove, (e): operations of different streams that touch a common byte, one of them writing, are
   ordered by the tokens of the program (ir/schedule/stream_order.h): an operation begins when those
   that it needs are done, by its own tokens or by those of operations that it waits for. */
#include "prove.h"
#include "ir/schedule/background_order.h"

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

/* The name of the first operation or stream of a set. */
static const char *background_said(unsigned after, unsigned streams) {
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++)
    if (after >> op & 1) return background_name(op);
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
    if (streams >> stream & 1) return stream_name(stream);
  return "";
}

static Span global_span(const Module *m, const Global *global) {
  return global->span.file ? global->span : loc_span(m, global->loc);
}

/* `save async = on`, or the first of the inputs; a dump does not have that line: the first tensor
   that is saved. */
static Span asked_by(const Module *m, BackgroundOp op) {
  bool saves = op == BACKGROUND_keep || op == BACKGROUND_write;
  Span line = module_written(m, "train.save.async").all;
  if (saves && line.file) return line;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (saves ? global_is_kept(m, global) : global_is_read_ahead(m, global))
      return global_span(m, global);
  }
  return (Span){0};
}

static Report *report_background(Module *m, BackgroundOp op, const char *what, const char *other) {
  const char *quote = *other ? "`" : "";
  Span own = m->background[op].span, asked = asked_by(m, op);
  Report *r =
      diag_at(m->ctx->diag, "E1112", own.file ? own : asked, "background operation `%s` %s%s%s%s",
              background_name(op), what, quote, other, quote);
  if (own.file && asked.file)
    diag_also(r, asked, op >= BACKGROUND_keep ? "it saves this" : "it is for these inputs");
  return r;
}

/* An operation outside of entries waits for those with which it shares bytes, and no other. */
static bool prove_background(Module *m, const StreamOrders *orders) {
  Background needed[BACKGROUNDS];
  background_of(m, orders, needed);
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++) {
    Background has = m->background[op], needs = needed[op];
    unsigned missing = needs.after & ~has.after, streams = needs.streams & ~has.streams,
             more = has.after & ~needs.after, more_streams = has.streams & ~needs.streams;
    if (has.there != needs.there) {
      report_background(m, op, has.there ? "is not part of this program" : "is missing", "");
    } else if (missing | streams) {
      Report *r = report_background(m, op, "does not wait for ", background_said(missing, streams));
      diag_fact(r, "both use the same bytes, on different streams");
    } else if (more | more_streams) {
      Report *r = report_background(m, op, "waits for ", background_said(more, more_streams));
      diag_fact(r, "they share no byte, or run on one stream");
    } else {
      continue;
    }
    return false;
  }
  return true;
}

bool prove_streams(Module *m) {
  StreamOrders orders = stream_orders(m, false);
  if (!prove_background(m, &orders)) return false;
  for (uint32_t i = 0; i < orders.n; i++)
    if (!prove_one(m, &orders.at[i])) return false;
  return true;
}

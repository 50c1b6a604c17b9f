/* Host writer: the waits of an operation for other streams, by the tokens of its op
   (ir/schedule/stream_order.h). */
#include "host.h"
#include "ir/schedule/stream_order.h"

static const char *const stream_words[STREAMS] = {"RT_STREAM_COMPUTE", "RT_STREAM_DOWN",
                                                  "RT_STREAM_HOST", "RT_STREAM_UP"};

const char *host_stream_word(OpStream stream) { return stream_words[stream]; }

/* Before the operations of an op; `round`: what has the number of the round. */
static void put_after(HostWriter *writer, const char *indent, OpStream stream, OpStream other,
                      const StreamToken *token, const char *round) {
  if (!token->waits) return;
  host_put(writer, "%s", indent);
  if (token->first && token->last == token->first)
    host_put(writer, "if (%s == %lld) ", round, (long long)token->first);
  else if (token->first) host_put(writer, "if (%s >= %lld) ", round, (long long)token->first);
  if (token->last >= 0 && token->last != token->first)
    host_put(writer, "if (%s <= %lld) ", round, (long long)token->last);
  else if (!token->first && !token->last) host_put(writer, "if (%s == 0) ", round);
  host_call(writer, "", token->since_start ? CALL_rt_until : CALL_rt_after);
  host_put(writer, "%s, %s, %lld", stream_words[stream], stream_words[other],
           (long long)token->number);
  if (token->step)
    host_put(writer, " %c %lld * %s", token->step < 0 ? '-' : '+',
             (long long)(token->step < 0 ? -token->step : token->step), round);
  host_put(writer, ");\n");
}

void host_put_tokens(HostWriter *writer, const char *indent, const Op *o, const char *round) {
  StreamTokens tokens = op_tokens(o);
  put_after(writer, indent, STREAM_compute, STREAM_up, &tokens.arrived, round);
  for (OpStream other = STREAM_down; other < STREAMS; other++)
    put_after(writer, indent, op_stream(o), other, &tokens.after[other], round);
}

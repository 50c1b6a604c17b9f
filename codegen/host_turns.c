/* Host writer: what loops that take turns (ir/turns.h) go by: the table of the schedule, and of
   chunks of layers which one is next. Must not: write a round. */
#include "host.h"
#include "ir/placement.h"

enum { SHOWN_TURNS = 24, SHOWN_STAGES = 16 };

/* The table of the schedule, a row per stage. */
void host_put_turn_table(HostWriter *h, const TurnTable *t, const char *axis) {
  host_put(h,
           "  static const struct { int in_flight%s; } table[%lld] = {"
           " /* most parts, by stage along %s */\n",
           t->wait ? ", waiting" : "", (long long)t->stages, axis);
  for (int64_t s = 0; s < t->stages; s++) {
    host_put(h, "      {%lld", (long long)t->most[s]);
    if (t->wait) host_put(h, ", %lld", (long long)t->wait[s]);
    host_put(h, "},");
    if (s < SHOWN_STAGES) host_put(h, " /* %s */", turns_text(h->m->arena, t, s, SHOWN_TURNS));
    host_put(h, "\n");
  }
  host_put(h, "  };\n  const int stage = ");
  host_call(h, "", CALL_rt_coordinate);
  host_put(h, "%d);\n", mesh_find(h->m, axis));
}

/* `stages` parts at a time go through all chunks, forward and backward. A turn is counted as if the
   last of these groups had as many. */
void host_put_next_chunk(HostWriter *h, const TurnTable *t) {
  long long parts = t->parts, chunks = t->chunks, stages = t->stages,
            rest = parts % stages ? parts % stages : stages;
  host_put(h, "  int64_t over[%lld] = {0};\n", 2 * chunks);
  host_put(h, "  for (int64_t ahead = 0, back = 0; back < %lld;) {\n", parts * chunks);
  for (int i = 0; i < 2; i++) {
    const char *of = i ? "back" : "ahead", *at = i ? "b" : "f";
    host_put(h, "    const int64_t %s = %s %% %lld, %s_parts = %s / %lld < %lld ? %lld : %lld;\n",
             at, of, stages * chunks, at, of, stages * chunks, parts / stages, stages, rest);
  }
  host_put(h,
           "    const int64_t in_flight = ahead - f + f / f_parts * %lld + f %% f_parts -"
           " (back - b + b / b_parts * %lld + b %% b_parts);\n"
           "    switch (ahead < %lld && in_flight < table[stage].in_flight ? (ahead++, f / f_parts)"
           " : (back++, %lld + b / b_parts)) {\n",
           stages, stages, parts * chunks, chunks);
}

/* Host writer: what loops that take turns (pipeline_schedule.h) go by: the table of the schedule,
   and of chunks of layers which one is next; and what tells whoever measures which turn it is.
   Must not:
   write a round. */
#include "host.h"
#include "ir/shape/placement.h"

enum { SHOWN_TURNS = 24, SHOWN_STAGES = 16 };

/* The table of the schedule, a row per stage. */
void host_put_turn_table(HostWriter *writer, const ScheduleTable *table, const char *axis) {
  host_put(writer,
           "  static const struct { int in_flight%s; } table[%lld] = {"
           " /* most parts, by stage along %s */\n",
           table->wait ? ", waiting" : "", (long long)table->stages, axis);
  for (int64_t s = 0; s < table->stages; s++) {
    host_put(writer, "      {%lld", (long long)table->most[s]);
    if (table->wait) host_put(writer, ", %lld", (long long)table->wait[s]);
    host_put(writer, "},");
    if (s < SHOWN_STAGES)
      host_put(writer, " /* %s */", schedule_text(writer->m->arena, table, s, SHOWN_TURNS));
    host_put(writer, "\n");
  }
  host_put(writer, "  };\n  const int stage = ");
  host_call(writer, "", CALL_rt_coordinate);
  host_put(writer, "%d);\n", mesh_find(writer->m, axis));
}

/* `stages` parts at a time go through all chunks, forward and backward. A turn is counted as if the
   last of these groups had as many. */
void host_put_next_chunk(HostWriter *writer, const ScheduleTable *table) {
  long long parts = table->parts, chunks = table->chunks, stages = table->stages,
            rest = parts % stages ? parts % stages : stages;
  host_put(writer, "  int64_t over[%lld] = {0};\n", 2 * chunks);
  host_put(writer, "  for (int64_t ahead = 0, back = 0; back < %lld;) {\n", parts * chunks);
  for (int i = 0; i < 2; i++) {
    const char *of = i ? "back" : "ahead", *at = i ? "b" : "f";
    host_put(writer,
             "    const int64_t %s = %s %% %lld, %s_parts = %s / %lld < %lld ? %lld : %lld;\n", at,
             of, stages * chunks, at, of, stages * chunks, parts / stages, stages, rest);
  }
  host_put(writer,
           "    const int64_t in_flight = ahead - f + f / f_parts * %lld + f %% f_parts -"
           " (back - b + b / b_parts * %lld + b %% b_parts);\n"
           "    switch (ahead < %lld && in_flight < table[stage].in_flight ? (ahead++, f / f_parts)"
           " : (back++, %lld + b / b_parts)) {\n",
           stages, stages, parts * chunks, chunks);
}

void host_put_turn(HostWriter *writer, const ScheduleTable *table, int loop) {
  static const char *const words[TURN_KINDS] = {"RT_TURN_FORWARD", "RT_TURN_BACKWARD",
                                                "RT_TURN_WEIGHTS"};
  host_call(writer, "    ", CALL_rt_turn);
  host_put(writer, "%s, %lld, n);\n", words[schedule_loop_kind(table, loop)],
           (long long)schedule_loop_chunk(table, loop));
}

void host_put_turns_end(HostWriter *writer) {
  host_call(writer, "  ", CALL_rt_turn);
  host_put(writer, "RT_TURN_NONE, 0, 0);\n");
}

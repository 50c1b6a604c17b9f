/* The time of a step by a schedule's table, as the compiler makes it (pipeline_schedule.h), if each
   turn takes a given time and messages take none.

     bench_pipeline_table SCHEDULE STAGES PARTS CHUNKS FORWARD BACKWARD WEIGHTS [FACTOR ..]

   Times are of all layers of a stage, WEIGHTS a part of BACKWARD; a factor for each stage,
   1 without it. Must not: know schedules of its own. */
#include "ir/schedule/pipeline_schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ScheduleTable table_of(Arena *arena, const char *name, int64_t stages, int64_t parts,
                              int64_t chunks) {
  if (!strcmp(name, "gpipe")) return schedule_gpipe(arena, stages, parts);
  if (!strcmp(name, "interleaved")) return schedule_interleaved(arena, stages, parts, chunks);
  if (!strcmp(name, "zero_bubble")) return schedule_zero_bubble(arena, stages, parts, 1);
  if (!strcmp(name, "zero_bubble_2")) return schedule_zero_bubble(arena, stages, parts, 2);
  return schedule_one_f_one_b(arena, stages, parts);
}

static double time_of(const ScheduleTable *table, int loop, double forward, double backward,
                      double weights) {
  double chunks = (double)table->chunks;
  if (schedule_has_chunks(table))
    return (schedule_loop_kind(table, loop) == TURN_FORWARD ? forward : backward) / chunks;
  if (loop == TURN_FORWARD) return forward;
  if (loop == TURN_WEIGHTS) return weights;
  return table->wait ? backward - weights : backward;
}

int main(int argc, char **argv) {
  if (argc < 8) return 2;
  Arena *arena = arena_new();
  int64_t stages = atoll(argv[2]);
  ScheduleTable table = table_of(arena, argv[1], stages, atoll(argv[3]), atoll(argv[4]));
  double *time = ARENA_ARRAY(arena, double, stages *TURN_LOOPS);
  for (int64_t s = 0; s < stages; s++)
    for (int i = 0; i < schedule_loops(&table); i++)
      time[s * TURN_LOOPS + i] = time_of(&table, i, atof(argv[5]), atof(argv[6]), atof(argv[7])) *
                                 (argc > 8 + s ? atof(argv[8 + s]) : 1);
  printf("%.6f\n", schedule_makespan(&table, time));
  arena_free(arena);
  return 0;
}

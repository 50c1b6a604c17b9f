/* The check of plans: layers over an axis, their stages and schedule (E0602, E0704, W0702, W0706).

   Each refusal has an edit, or a number that works; passes refuse the same in hand-written IR with
   fewer details. Must not: know more of a schedule than the waiting time of equal stages. */
#include "sema_plan.h"
#include "ir/schedule/pipeline_schedule.h"
#include <string.h>

/* The number of chunks of layers per stage: 1 if the schedule is not interleaved. */
static int64_t chunks_of(const PlanCheck *check) {
  Str kind = settings_word(check->e->ctx, check->item, ITEM_PLAN, "pipeline", NULL);
  if (!kind || strcmp(kind, "interleaved") != 0) return 1;
  return settings_integer(check->item, ITEM_PLAN, "pipeline", "chunks");
}

static int64_t largest_divisor(int64_t size, int64_t most) {
  while (size % most) most--;
  return most;
}

static bool uneven_is_on(const PlanCheck *check) {
  Str word = settings_word(check->e->ctx, check->item, ITEM_PLAN, "pipeline", "uneven");
  return word && strcmp(word, "off") != 0;
}

/* The edit that lets stages differ, where the plan has the line. */
static void offer_uneven(const PlanCheck *check, Report *r) {
  const AstValue *schedule = settings_value(check->item, "pipeline", NULL);
  Str word = settings_word(check->e->ctx, check->item, ITEM_PLAN, "pipeline", NULL);
  diag_help(r, "`pipeline %s uneven = on`: stages of different numbers of layers", word);
  if (schedule && !settings_value(check->item, "pipeline", "uneven"))
    diag_edit(r, schedule->span, "%s uneven = on", word);
}

static void uneven_stages(PlanCheck *check, const Placed *placed, int64_t size, int64_t ranks) {
  Report *r = world_error(check->w, "E0704", placed->span, "%lld layers over %lld stages",
                          (long long)size, (long long)ranks);
  diag_label(r, "`%s` is not a multiple of %lld", placed->dim, (long long)ranks);
  if (size > ranks) offer_uneven(check, r);
  diag_help(r, "as many stages as divide the layers, such as %lld",
            (long long)largest_divisor(size, ranks));
}

/* A stage without layers would only pass on what it gets. */
static void too_many_stages(PlanCheck *check, const Placed *placed, int64_t size, int64_t ranks,
                            int64_t chunks) {
  Report *r = world_error(
      check->w, "E0704", placed->span, "%lld layers over %lld stages%s", (long long)size,
      (long long)ranks,
      chunks > 1 ? arena_printf(check->e->arena, " of %lld chunks each", (long long)chunks) : "");
  diag_label(r, "some would have none");
  diag_help(r, "%s: %lld at most", chunks > 1 ? "stages times chunks" : "as many stages as layers",
            (long long)size);
}

static void uneven_chunks(PlanCheck *check, const Placed *placed, int64_t size, int64_t ranks,
                          int64_t chunks) {
  int64_t near = largest_divisor(size / ranks, chunks);
  Report *r = world_error(check->w, "E0704", placed->span,
                          "%lld layers over %lld stages of %lld chunks each", (long long)size,
                          (long long)ranks, (long long)chunks);
  diag_label(r, "`%s` is not a multiple of %lld", placed->dim, (long long)(ranks * chunks));
  if (near > 1)
    diag_help(r, "`chunks = %lld` divides the %lld layers of a stage", (long long)near,
              (long long)(size / ranks));
  else diag_help(r, "`pipeline one_f_one_b`: one chunk of layers on each stage");
}

void check_layers(PlanCheck *check, const Placed *placed, int64_t size, int64_t ranks) {
  int64_t chunks = chunks_of(check);
  if (size <= 0) return;
  if (uneven_is_on(check)) {
    if (size < ranks * chunks) too_many_stages(check, placed, size, ranks, chunks);
  } else if (size % ranks) uneven_stages(check, placed, size, ranks);
  else if (chunks > 0 && size % (ranks * chunks)) uneven_chunks(check, placed, size, ranks, chunks);
}

/* From 2 to as many as a schedule can have. */
static void check_chunks(PlanCheck *check) {
  const AstSetting *line = settings_line(check->item, "pipeline");
  const AstValue *option = line ? setting_option(line, "chunks") : NULL;
  int64_t chunks = chunks_of(check);
  if (!option || (chunks > 1 && chunks <= MOST_CHUNKS)) return;
  Report *r = world_error(check->w, "E0602", option->span, "%lld chunks of layers on a stage",
                          (long long)chunks);
  diag_label(r, "between 2 and %d", MOST_CHUNKS);
  if (chunks < 2) diag_help(r, "`pipeline one_f_one_b`: one chunk of layers on each stage");
  if (chunks > MOST_CHUNKS) diag_edit(r, option->span, "%d", MOST_CHUNKS);
}

/* The line that cuts layers into stages; NULL: none does. */
static const PlaceLine *stage_rule(PlanCheck *check) {
  const PlaceLine *cut = NULL;
  for (uint32_t i = 0; i < check->rules.n; i++)
    for (uint32_t k = 0; k < check->rules.at[i].dims.n; k++)
      if (plan_is_stack_dim(check, check->rules.at[i].dims.at[k].dim)) cut = &check->rules.at[i];
  return cut;
}

/* The waiting time of equal stages, in forward and backward passes of a micro-batch; for ZB-H1,
   whose backward pass has two turns, and which `auto` may choose, in thirds of that (makespan in
   tests/ir/test_turns.c), whatever its memory. */
static double stages_wait(Str schedule, int64_t stages, int64_t parts) {
  bool least = schedule && (!strcmp(schedule, "zero_bubble") || !strcmp(schedule, "auto"));
  if (!least) return (double)(stages - 1);
  int64_t ahead = stages < parts ? stages : parts;
  return (double)(2 * stages - 1 - ahead) / 3;
}

static void warn_no_stages(PlanCheck *check) {
  const AstSetting *line = settings_line(check->item, "pipeline");
  if (!line) return;
  world_warn(check->w, "W0706", line->span, "`pipeline` changes nothing: the plan has no stages",
             "`place DIM -> AXIS`, with the dimension of a stack, makes stages of its layers");
}

/* 0: not known yet. */
static int64_t count_micro_batches(const PlanCheck *check) {
  const AstItem *train = check->c->train ? check->c->train->item : NULL;
  int64_t batch = settings_integer(train, ITEM_TRAIN, "batch", NULL);
  int64_t micro = settings_integer(check->item, ITEM_PLAN, "micro", NULL);
  if (batch < 1) return 0;
  return micro < 1 ? 1 : batch / (plan_batch_ranks(check) * micro);
}

static void warn_ahead(PlanCheck *check, const AstValue *option) {
  int64_t count = count_micro_batches(check);
  const PlaceLine *cut = stage_rule(check);
  if (!cut || count < 1 || count > plan_ranks_of(cut)) return;
  world_warn(check->w, "W0706", option->span,
             arena_printf(check->e->arena,
                          "`memory` changes nothing: %lld micro-batch%s over %lld stages",
                          (long long)count, count > 1 ? "es" : "", (long long)plan_ranks_of(cut)),
             "more micro-batches than stages (a smaller `micro`)");
}

/* More would wait for the one message between two stages (ir/schedule/pipeline_schedule.h). */
static void check_ahead(PlanCheck *check) {
  const AstSetting *line = settings_line(check->item, "pipeline");
  const AstValue *option = line ? setting_option(line, "memory") : NULL;
  int64_t ahead = option ? settings_integer(check->item, ITEM_PLAN, "pipeline", "memory") : 1;
  if (ahead > 1 && ahead <= MOST_AHEAD) warn_ahead(check, option);
  if (ahead >= 1 && ahead <= MOST_AHEAD) return;
  Report *r = world_error(check->w, "E0602", option->span,
                          "`memory = %lld`: `zero_bubble` keeps 1 or %d times the stages",
                          (long long)ahead, MOST_AHEAD);
  diag_label(r, "micro-batches kept, as a multiple of the number of stages");
  diag_help(r, "write `%d`", MOST_AHEAD);
  diag_edit(r, option->span, "%d", MOST_AHEAD);
}

/* The axis of the stages among the axes after `over` of `zero`; NULL: not among them. */
static const AstValue *zero_over_stages(const PlanCheck *check, const PlaceLine *cut) {
  const AstSetting *zero = settings_line(check->item, "zero");
  const AstValue **over;
  uint32_t n = zero ? setting_over(check->e->ctx, zero, &over) : 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; over[i]->kind == VALUE_PATH && k < cut->axes.n; k++)
      if (!strcmp(over[i]->path->text, cut->axes.at[k]->name)) return over[i];
  return NULL;
}

/* Where stages go forward and backward in turns of their own, none of them can wait in a turn for
   the others: for weights that are gathered in it. */
static void check_zero_of_stages(PlanCheck *check) {
  const PlaceLine *cut = stage_rule(check);
  const AstValue *over = cut ? zero_over_stages(check, cut) : NULL;
  Str kind = settings_word(check->e->ctx, check->item, ITEM_PLAN, "pipeline", NULL);
  int64_t stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  bool turns = kind && strcmp(kind, "sequential") != 0 && strcmp(kind, "gpipe") != 0;
  if (!over || !turns || stage != 3 || count_micro_batches(check) < 2) return;
  Report *r = world_error(check->w, "E0602", over->span,
                          "`zero 3` over `%s`, whose ranks are stages", over->path->text);
  diag_label(r,
             "weights are gathered in every turn, and stages are at other micro-batches of a time");
  diag_help(r,
            "leave `%s` out: data that only one end reads is held only by that stage; or "
            "`pipeline gpipe`",
            over->path->text);
}

/* Where `zero` shares gradients, or weights, over the stages, all of them meet in every part (the
   loops of ScheduleTable.meet_after, meet_before): how long equal stages then wait, in passes as
   above; 0: they do not. Backward takes twice as long as forward. */
static double meetings_wait(PlanCheck *check, const PlaceLine *cut, Str schedule, int64_t parts) {
  Arena *a = check->e->arena;
  int64_t stages = plan_ranks_of(cut),
          stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  Str full = settings_word(check->e->ctx, check->item, ITEM_PLAN, "zero", "accumulate");
  bool bubble = schedule && (!strcmp(schedule, "zero_bubble") || !strcmp(schedule, "auto"));
  bool gpipe = schedule && !strcmp(schedule, "gpipe");
  if (stage < 2 || parts < 2 || !zero_over_stages(check, cut) || (full && !strcmp(full, "full")))
    return 0;
  ScheduleTable table = bubble  ? schedule_zero_bubble(a, stages, parts, 1)
                        : gpipe ? schedule_gpipe(a, stages, parts)
                                : schedule_one_f_one_b(a, stages, parts);
  table.meet_after = 1u << (bubble ? TURN_WEIGHTS : TURN_BACKWARD);
  if (stage == 3) table.meet_before = 1u << TURN_FORWARD | 1u << TURN_BACKWARD;
  double *time = ARENA_ARRAY(a, double, stages *TURN_LOOPS);
  for (int64_t s = 0; s < stages; s++) {
    double *of = time + s * TURN_LOOPS;
    of[TURN_FORWARD] = 1, of[TURN_BACKWARD] = bubble ? 1 : 2, of[TURN_WEIGHTS] = bubble;
  }
  double all = schedule_makespan(&table, time);
  return all < 0 ? 0 : all / 3 - (double)parts;
}

static void warn_bubble(PlanCheck *check) {
  int64_t count = count_micro_batches(check), stages = 1;
  Str kind = settings_word(check->e->ctx, check->item, ITEM_PLAN, "pipeline", NULL);
  int64_t chunks = chunks_of(check);
  const PlaceLine *cut = stage_rule(check);
  if (!cut) warn_no_stages(check);
  if (!cut || count < 1 || chunks < 1) return;
  stages = plan_ranks_of(cut);
  bool alone = kind && !strcmp(kind, "sequential"); /* one micro-batch at a time */
  if (count == 1) chunks = 1;                       /* no other chunk can overlap with it */
  double wait = count == 1 ? (double)(stages - 1) : stages_wait(kind, stages, count);
  double meeting = chunks > 1 || alone ? 0 : meetings_wait(check, cut, kind, count);
  if (meeting > wait) wait = meeting;
  double idle = wait / ((double)(alone ? 1 : count * chunks) + wait);
  if (idle <= 0.2) return;
  if (alone) {
    world_warn(
        check->w, "W0702", cut->target,
        arena_printf(check->e->arena,
                     "%.0f %% of the time of the layers is a bubble: %lld stages, one at work",
                     100 * idle, (long long)stages),
        "fewer stages: `pipeline sequential` is for memory, no rank makes it faster");
    return;
  }
  world_warn(check->w, "W0702", cut->target,
             arena_printf(check->e->arena,
                          "%.0f %% of the time is a bubble: %lld stages, %lld micro-batch%s",
                          100 * idle, (long long)stages, (long long)count, count > 1 ? "es" : ""),
             meeting >= wait
                 ? "`zero` over another axis, or `accumulate = full`: with this plan all stages "
                   "synchronise in every micro-batch"
                 : "more micro-batches (a smaller `micro`), or fewer stages");
}

void check_stages(PlanCheck *check) {
  check_chunks(check);
  check_ahead(check);
  check_zero_of_stages(check);
  warn_bubble(check);
}

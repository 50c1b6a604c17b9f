/* The rows of the space of plans (plan_space.h): every one that the numbers and `--fix` allow. A
   row that the compiler refuses is no plan; it says so when it is tried. Must not: compile, or
   judge. */
#include "plan_space.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_CONTEXT = 64, MOST_STAGES = 256, ORDERS = 24 };

const char *space_tensor(const PlanSpace *space, const SpacePlan *plan) {
  return plan->at[FIELD_EXPERT] > 1 ? space->tensor_beside : space->tensor;
}

int64_t space_copies(const SpacePlan *plan) {
  return (int64_t)plan->at[FIELD_EXPERT] * plan->at[FIELD_DATA] * plan->at[FIELD_REPLICA];
}

int64_t space_shards(const SpacePlan *plan) {
  return (int64_t)plan->at[FIELD_EXPERT] * plan->at[FIELD_DATA] *
         (plan->at[FIELD_OVER] ? plan->at[FIELD_CONTEXT] : 1);
}

bool space_same_mesh(const SpacePlan *a, const SpacePlan *b) {
  return !memcmp(a->at, b->at, SPACE_AXES * sizeof *a->at);
}

const char *space_lacks_rate(const PlanSpace *space) {
  const char *name = machine_arch(space->m);
  const Arch *arch = name ? arch_find(name) : NULL;
  if (!arch && space->machine.flops <= 0)
    return arena_printf(space->o->c->arena, "node %s", plan_precision(space->m));
  double intra = fmax(space->machine.intra, module_amount(space->m, "machine.reached.intra")),
         inter = fmax(space->machine.inter, module_amount(space->m, "machine.reached.inter"));
  if (space->ranks > 1 && intra <= 0 && !(arch && arch->intra > 0)) return "link intra";
  return space->nodes > 1 && inter <= 0 ? "link inter" : NULL;
}

/* ---- rows ---- */

/* The words that `--fix` admits, by value; numbers and orders are looked up in its text. */
static void read_fixes(PlanSpace *space) {
  Arena *arena = space->o->c->arena;
  for (SpaceField f = 0; f < SPACE_FIELDS; f++) {
    SpacePlan plan = {{0}};
    SpaceFix *fix = &space->fix[f];
    *fix = (SpaceFix){.list = space->o->fixes.n ? space_fixed(space->o, space_key(f)) : NULL};
    for (; fix->list && plan.at[f] < space_word_count(f); plan.at[f]++)
      if (text_lists(fix->list, space_value(arena, &plan, f))) fix->words |= 1u << plan.at[f];
  }
}

static bool lists_number(const char *list, int32_t number) {
  for (char *end; *list; list = end + strspn(end, ", "))
    if (strtoll(list, &end, 10) == number) return true;
  return false;
}

static bool admits_value(const PlanSpace *space, const SpacePlan *plan, SpaceField f) {
  const SpaceFix *fix = &space->fix[f];
  int32_t n = plan->at[f];
  if (!fix->list) return true;
  if (f == FIELD_ORDER) return text_lists(fix->list, space_value(space->o->c->arena, plan, f));
  if (!space_word_count(f)) return lists_number(fix->list, n);
  return fix->words >> n & 1;
}

/* The fields before `first`, in the order of the enum. */
static bool admits_first(const PlanSpace *space, const SpacePlan *plan, SpaceField first) {
  bool all = true;
  for (SpaceField f = 0; all && f < first; f++) all = admits_value(space, plan, f);
  return all;
}

static bool admits(const PlanSpace *space, const SpacePlan *plan) {
  return admits_first(space, plan, SPACE_FIELDS);
}

bool space_keeping(const PlanSpace *space, const SpacePlan *plan, int times, double bytes,
                   SpacePlan *out) {
  const int32_t *at = plan->at;
  int64_t share = space->batch / space_copies(plan), micro = times * at[FIELD_MICRO];
  *out = *plan;
  out->at[FIELD_MICRO] = (int32_t)micro;
  if (micro == share) out->at[FIELD_FULL] = 0;
  out->at[FIELD_RECOMPUTE] = bytes > 0 ? KEEP_AUTO + (int32_t)(bytes / (1 << 20)) : KEEP_INPUT;
  PlanSpace own = *space;
  SpacePlan said = *out;
  said.at[FIELD_RECOMPUTE] = KEEP_AUTO, read_fixes(&own);
  return *space->stack && bytes < 1e15 && share % micro == 0 && admits(&own, &said);
}

static void put(const PlanSpace *space, const SpacePlan *plan) {
  if (admits(space, plan)) space->visit(space->visitor, plan);
}

/* Stage 2 that adds up whole gradients is stage 1: the same program. */
static bool repeats_first(const PlanSpace *space, const SpacePlan *plan) {
  SpacePlan first = *plan;
  first.at[FIELD_ZERO] = 1, first.at[FIELD_FULL] = 0;
  return plan->at[FIELD_ZERO] == 2 && plan->at[FIELD_FULL] && admits(space, &first);
}

static void put_offload(const PlanSpace *space, SpacePlan plan) {
  bool ahead = plan.at[FIELD_OVERLAP] == OVERLAP_AHEAD; /* of parameters that devices update */
  int most = space->machine.host > 0 && !ahead ? OFFLOAD_PARAMS + 1 : 0;
  for (int n = 0; n <= most; n++) {
    plan.at[FIELD_OFFLOAD] = n;
    if (!n && repeats_first(space, &plan)) continue;
    if (n <= OFFLOAD_PARAMS || !plan.at[FIELD_OVERLAP]) put(space, &plan);
  }
}

/* In a pipeline nothing is gathered ahead of the first turn. */
static int most_overlap(const PlanSpace *space, const SpacePlan *plan, int stage) {
  if (!space->machine.gpus) return 0;
  return (stage == 1 || stage == 2) && plan->at[FIELD_PIPE] == 1 ? OVERLAP_AHEAD : 1;
}

static void put_zero(const PlanSpace *space, SpacePlan plan) {
  int32_t *at = plan.at;
  bool copies = at[FIELD_DATA] > 1 || at[FIELD_EXPERT] > 1;
  bool shards = copies || at[FIELD_CONTEXT] > 1;
  int64_t parts = space->batch / space_copies(&plan) / at[FIELD_MICRO];
  for (int stage = at[FIELD_REPLICA] > 1; stage <= (shards ? LAST_ZERO : 0); stage++)
    for (int over = space->only_over; over <= (stage && at[FIELD_CONTEXT] > 1); over++)
      for (int full = 0; full <= (stage > 1 && parts > 1); full++)
        for (int overlap = most_overlap(space, &plan, stage); overlap >= 0; overlap--) {
          at[FIELD_ZERO] = stage, at[FIELD_OVER] = over;
          at[FIELD_FULL] = full, at[FIELD_OVERLAP] = overlap;
          if (!over && stage && !copies) continue;
          put_offload(space, plan);
        }
}

/* With all micro-batches that divide the share of a rank. */
static void put_micro(const PlanSpace *space, SpacePlan plan) {
  int32_t *at = plan.at;
  int64_t share = space->batch / space_copies(&plan);
  for (int64_t micro = 1;; micro = divisor_from(share, micro + 1)) {
    at[FIELD_MICRO] = (int32_t)micro;
    for (int keep = 0; keep <= KEEP_SPLIT; keep++) {
      bool splits = at[FIELD_TENSOR] > 1 && !at[FIELD_SEQUENCE];
      at[FIELD_RECOMPUTE] = keep;
      if (!keep || (*space->stack && (keep == KEEP_INPUT || splits))) put_zero(space, plan);
    }
    if (micro == share) return;
  }
}

/* one_f_one_b, zero_bubble with both memories, interleaved: 1, 2, 3, then chunks + 2. */
static void put_pipeline(const PlanSpace *space, SpacePlan plan) {
  int64_t stages = plan.at[FIELD_PIPE], layers = space->layer_count;
  if (stages == 1) put_micro(space, plan);
  for (int n = 1; stages > 1 && n <= MOST_CHUNKS + 2; n++) {
    plan.at[FIELD_PIPELINE] = n;
    if (n <= 3 || layers % (stages * (n - 2)) == 0) put_micro(space, plan);
  }
}

static bool has_way(const PlanSpace *space, const SpacePlan *plan, int way) {
  int64_t ranks = plan->at[FIELD_CONTEXT];
  if (way == WAY_GATHER) return true;
  if (ranks == 1 || !space->heads) return false;
  if (way == WAY_BALANCED) return space->masked && space->sequence_size % (2 * ranks) == 0;
  if (way == WAY_RING) return true;
  const Dim *heads = dim_find(space->m, intern(space->m->ctx->names, space->heads));
  if (text_lists(space_tensor(space, plan), space->heads)) ranks *= plan->at[FIELD_TENSOR];
  return heads && heads->stored % ranks == 0;
}

/* Without `--fix way` one: more would be most of a space. */
static void put_ways(const PlanSpace *space, SpacePlan plan) {
  bool all = space_fixed(space->o, "way") != NULL;
  int first = !all && has_way(space, &plan, WAY_BALANCED) ? WAY_BALANCED : WAY_GATHER;
  for (int way = first; way < (all ? WAYS : first + 1); way++) {
    plan.at[FIELD_WAY] = way;
    if (has_way(space, &plan, way)) put_pipeline(space, plan);
  }
}

bool space_with_way(const PlanSpace *space, const SpacePlan *plan, int way, SpacePlan *out) {
  *out = *plan, out->at[FIELD_WAY] = way;
  return way != plan->at[FIELD_WAY] && !space_fixed(space->o, "way") && has_way(space, plan, way) &&
         plan->at[FIELD_CONTEXT] > 1;
}

/* Which of the axes `data` and `context` is first matters to plans that shard over both alone. */
static void put_orders(PlanSpace space, SpacePlan plan) {
  SpaceLinks seen[ORDERS];
  for (int order = 0; order < ORDERS; order++) {
    bool same = false;
    plan.at[FIELD_ORDER] = order, seen[order] = space_links(&space, &plan);
    space.only_over = false;
    for (int i = 0; i < order; i++) {
      if (!space_same_links(&seen[i], &seen[order])) continue;
      same |= seen[i].data_first == seen[order].data_first, space.only_over = true;
    }
    for (int sequence = 0; !same && sequence <= (plan.at[FIELD_TENSOR] > 1 && *space.sequence);
         sequence++) {
      plan.at[FIELD_SEQUENCE] = sequence;
      put_ways(&space, plan);
    }
  }
}

static bool divides_dims(const PlanSpace *space, const SpacePlan *plan) {
  const char *dims = space_tensor(space, plan);
  bool all = plan->at[FIELD_TENSOR] == 1 || *dims;
  for (uint32_t i = 0; i < space->m->dims.n; i++)
    if (text_lists(dims, space->m->dims.at[i].name))
      all &= space->m->dims.at[i].stored % plan->at[FIELD_TENSOR] == 0;
  return all;
}

/* ZeRO inside a node, copies over the nodes. */
static void put_data(const PlanSpace *space, SpacePlan plan, int64_t ranks) {
  int64_t inside = space->machine.in_node / plan.at[FIELD_TENSOR] / plan.at[FIELD_CONTEXT];
  if (space->batch % (ranks * plan.at[FIELD_EXPERT]) || !divides_dims(space, &plan)) return;
  plan.at[FIELD_DATA] = (int32_t)ranks, plan.at[FIELD_REPLICA] = 1;
  if (admits_first(space, &plan, SPACE_AXES)) put_orders(*space, plan);
  if (inside < 2 || inside >= ranks || ranks % inside || plan.at[FIELD_EXPERT] > 1) return;
  plan.at[FIELD_DATA] = (int32_t)inside, plan.at[FIELD_REPLICA] = (int32_t)(ranks / inside);
  if (admits_first(space, &plan, SPACE_AXES)) put_orders(*space, plan);
}

/* Experts have ranks of their own, or the axes of all others. */
static void put_experts(const PlanSpace *space, SpacePlan plan, int64_t ranks) {
  int64_t most = *space->experts && space->expert_count < ranks ? space->expert_count : ranks;
  for (int64_t n = 1; n <= (*space->experts ? most : 1); n++) {
    if (ranks % n || (n > 1 && space->expert_count % n)) continue;
    plan.at[FIELD_EXPERT] = (int32_t)n;
    put_data(space, plan, ranks / n);
  }
}

void space_list(const PlanSpace *all, SpaceVisit *visit, void *visitor) {
  PlanSpace own = *all, *space = &own;
  int64_t ranks = space->ranks;
  own.visit = visit, own.visitor = visitor;
  read_fixes(&own);
  for (int64_t t = 1; t <= ranks; t++) {
    if (ranks % t || (t > 1 && !*space->tensor)) continue;
    for (int64_t c = 1; t * c <= ranks && c <= MOST_CONTEXT; c++) {
      if (ranks / t % c || (c > 1 && (!*space->sequence || space->sequence_size % c))) continue;
      for (int64_t p = 1; t * c * p <= ranks && p <= MOST_STAGES; p++) {
        if (ranks / t / c % p || (p > 1 && (!*space->layers || p > space->layer_count))) continue;
        SpacePlan plan = {.at = {(int32_t)t, (int32_t)c}};
        plan.at[FIELD_PIPE] = (int32_t)p;
        put_experts(space, plan, ranks / t / c / p);
      }
    }
  }
}

/* A row of the space of plans as text: the plan block, the words of its fields (plan_space.h).
   Must not: list rows. */
#include "plan_space.h"
#include "ir/support/num.h"
#include <stdarg.h>

static const char *const axis_names[SPACE_AXES] = {"tensor", "context", "expert",
                                                   "data",   "replica", "pipe"};
static const char *const schedules[] = {"none", "one_f_one_b", "zero_bubble",
                                        "zero_bubble memory = 2"};
static const char *const kept[] = {"none", "input", "split", "auto"};
static const char *const ways[WAYS] = {"gather", "balanced", "ring", "exchange"};
static const char *const hosted[] = {"none", "optimizer", "optimizer+grads",
                                     "optimizer+grads+params"};

const char *space_key(SpaceField field) {
  static const char *const names[SPACE_FIELDS] = {
      [FIELD_ORDER] = "order",       [FIELD_SEQUENCE] = "sequence", [FIELD_WAY] = "way",
      [FIELD_ZERO] = "zero",         [FIELD_OVER] = "over",         [FIELD_OVERLAP] = "overlap",
      [FIELD_FULL] = "accumulate",   [FIELD_MICRO] = "micro",       [FIELD_RECOMPUTE] = "recompute",
      [FIELD_PIPELINE] = "pipeline", [FIELD_OFFLOAD] = "offload",
  };
  return field < SPACE_AXES ? axis_names[field] : names[field];
}

static const char *schedule_of(Arena *arena, int n, const char *between) {
  return n <= 3 ? schedules[n] : arena_printf(arena, "interleaved%s%d", between, n - 2);
}

/* ---- the order of the axes ---- */

/* Permutation `number` of tensor, context, data with experts and replicas, pipe. */
static void order_of(int number, SpaceField out[SPACE_AXES]) {
  SpaceField left[] = {FIELD_TENSOR, FIELD_CONTEXT, FIELD_DATA, FIELD_PIPE};
  int n = (int)COUNT_OF(left), weight = 6, filled = 0;
  for (int i = n; i > 0; i--) {
    int at = number / weight;
    number %= weight, weight /= i > 1 ? i - 1 : 1;
    SpaceField field = left[at];
    memmove(left + at, left + at + 1, sizeof *left * (size_t)(i - at - 1));
    if (field == FIELD_DATA) out[filled++] = FIELD_EXPERT;
    out[filled++] = field;
    if (field == FIELD_DATA) out[filled++] = FIELD_REPLICA;
  }
}

Module space_mesh(const PlanSpace *space, const SpacePlan *plan, MeshAxis mesh[SPACE_AXES],
                  int axis[SPACE_AXES]) {
  SpaceField order[SPACE_AXES];
  Module m = *space->m;
  order_of(plan->at[FIELD_ORDER], order);
  m.mesh.at = mesh, m.mesh.n = 0;
  for (int i = 0; i < SPACE_AXES; i++) {
    axis[order[i]] = -1;
    if (plan->at[order[i]] == 1) continue;
    axis[order[i]] = (int)m.mesh.n;
    m.mesh.at[m.mesh.n++] = (MeshAxis){axis_names[order[i]], plan->at[order[i]]};
  }
  return m;
}

bool space_data_first(const SpacePlan *plan) {
  SpaceField order[SPACE_AXES];
  int i = 0;
  order_of(plan->at[FIELD_ORDER], order);
  while (order[i] != FIELD_DATA && order[i] != FIELD_CONTEXT) i++;
  return order[i] == FIELD_DATA;
}

SpaceLinks space_links(const PlanSpace *space, const SpacePlan *plan) {
  const Machine *machine = &space->machine;
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(space, plan, storage, axis);
  bool both = plan->at[FIELD_CONTEXT] > 1 && space_copies(plan) > 1;
  SpaceLinks links = {.data_first = both && space_data_first(plan)};
  for (int i = 0; i < SPACE_AXES; i++) {
    if (axis[i] < 0) continue;
    links.joined[i] = (int32_t)axis_joined(&mesh, machine, axis[i]);
    links.crosses[i] = axis_crosses(&mesh, machine, axis[i]);
    links.rate[i] = axis_rate(&mesh, machine, axis[i]);
  }
  return links;
}

bool space_same_links(const SpaceLinks *a, const SpaceLinks *b) {
  bool same = true;
  for (int i = 0; i < SPACE_AXES; i++)
    same &=
        a->joined[i] == b->joined[i] && a->crosses[i] == b->crosses[i] && a->rate[i] == b->rate[i];
  return same;
}

static const char *mesh_text(Arena *arena, const SpacePlan *plan, const char *between) {
  SpaceField order[SPACE_AXES];
  const char *text = "";
  order_of(plan->at[FIELD_ORDER], order);
  for (int i = 0; i < SPACE_AXES; i++)
    if (plan->at[order[i]] > 1)
      text = arena_list(arena, text, "%s%s%d", axis_names[order[i]], between, plan->at[order[i]]);
  return text;
}

/* ---- words of fields ---- */

static const char *order_text(Arena *arena, const SpacePlan *plan) {
  SpaceField order[SPACE_AXES];
  const char *text = "";
  order_of(plan->at[FIELD_ORDER], order);
  for (int i = 0; i < SPACE_AXES; i++)
    if (plan->at[order[i]] > 1)
      text = arena_printf(arena, "%s%s%s", text, *text ? "-" : "", axis_names[order[i]]);
  return *text ? text : "none";
}

const char *space_value(Arena *arena, const SpacePlan *plan, SpaceField field) {
  int n = plan->at[field];
  switch (field) {
  case FIELD_ORDER: return order_text(arena, plan);
  case FIELD_OVER: return n ? "data+context" : "data";
  case FIELD_SEQUENCE: return n ? "on" : "off";
  case FIELD_WAY: return ways[n];
  case FIELD_OVERLAP: return n == 2 ? "prefetch" : n ? "on" : "off";
  case FIELD_FULL: return n ? "full" : "shard";
  case FIELD_RECOMPUTE: return kept[n < KEEP_AUTO ? n : KEEP_AUTO];
  case FIELD_PIPELINE: return n == 3 ? "zero_bubble-2" : schedule_of(arena, n, "-");
  case FIELD_OFFLOAD: return hosted[n];
  default: return arena_printf(arena, "%d", n);
  }
}

int space_word_count(SpaceField field) {
  static const int counts[SPACE_FIELDS] = {
      [FIELD_SEQUENCE] = 2,
      [FIELD_WAY] = WAYS,
      [FIELD_ZERO] = LAST_ZERO + 1,
      [FIELD_OVER] = 2,
      [FIELD_OVERLAP] = OVERLAP_AHEAD + 1,
      [FIELD_FULL] = 2,
      [FIELD_RECOMPUTE] = COUNT_OF(kept),
      [FIELD_PIPELINE] = MOST_CHUNKS + 3,
      [FIELD_OFFLOAD] = COUNT_OF(hosted),
  };
  return counts[field];
}

const char *space_words(Arena *arena, SpaceField field) {
  SpacePlan plan = {{0}};
  const char *text = "";
  if (field == FIELD_ORDER) {
    text = "none";
    for (int i = 0; i < SPACE_AXES; i++) text = arena_list(arena, text, "%s", axis_names[i]);
  }
  for (; plan.at[field] < space_word_count(field); plan.at[field]++)
    text = arena_list(arena, text, "%s", space_value(arena, &plan, field));
  return text;
}

const char *space_unlike(const PlanSpace *space, const SpacePlan *plan, const SpacePlan *than) {
  Arena *arena = space->o->c->arena;
  const char *text = "";
  for (int f = 0; f < SPACE_FIELDS; f++) {
    const char *value = space_value(arena, plan, f);
    if (f == FIELD_OVER && plan->at[f] == than->at[f]) continue;
    if (strcmp(value, space_value(arena, than, f)) != 0)
      text = arena_list(arena, text, "%s = %s", space_key(f), value);
  }
  return text;
}

/* ---- the block ---- */

typedef struct BlockText { /* that is written */
  Arena *arena;
  const char *text;
} BlockText;

__attribute__((format(printf, 2, 3))) static void add(BlockText *block, const char *format, ...) {
  va_list args;
  va_start(args, format);
  block->text =
      arena_printf(block->arena, "%s%s", block->text, arena_vprintf(block->arena, format, args));
  va_end(args);
}

/* A ring has balanced pieces where they make ranks equal. */
static void add_context(BlockText *block, const PlanSpace *space, int64_t ranks, int way) {
  bool deals = space->masked && space->sequence_size % (2 * ranks) == 0 && way != WAY_GATHER;
  if (way == WAY_EXCHANGE)
    add(block, "  place     %s -> context activations else %s\n", space->heads, space->sequence);
  else
    add(block, "  place     %s -> context%s%s\n", space->sequence, deals ? " balanced" : "",
        way == WAY_RING ? " ring" : "");
}

static void add_places(BlockText *block, const PlanSpace *space, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  if (at[FIELD_DATA] > 1 || at[FIELD_REPLICA] > 1)
    add(block, "  place     Batch -> %s%s%s\n", at[FIELD_REPLICA] > 1 ? "replica" : "",
        at[FIELD_REPLICA] > 1 && at[FIELD_DATA] > 1 ? ", " : "", at[FIELD_DATA] > 1 ? "data" : "");
  if (at[FIELD_EXPERT] > 1) add(block, "  place     %s -> expert else Batch\n", space->experts);
  if (at[FIELD_TENSOR] > 1)
    add(block, "  place     %s -> tensor%s%s\n", space_tensor(space, plan),
        at[FIELD_SEQUENCE] ? " else " : "", at[FIELD_SEQUENCE] ? space->sequence : "");
  if (at[FIELD_CONTEXT] > 1) add_context(block, space, at[FIELD_CONTEXT], at[FIELD_WAY]);
  if (at[FIELD_PIPE] > 1) add(block, "  place     %s -> pipe\n", space->layers);
}

static void add_zero(BlockText *block, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  bool ahead = at[FIELD_OVERLAP] == 2 || (at[FIELD_ZERO] == 3 && at[FIELD_OFFLOAD] < 3);
  if (!at[FIELD_ZERO] && !at[FIELD_OVERLAP]) return;
  add(block, "  zero      %d", at[FIELD_ZERO]);
  const char *over = at[FIELD_DATA] > 1 ? "data" : "";
  if (at[FIELD_EXPERT] > 1) over = arena_list(block->arena, over, "expert");
  if (at[FIELD_OVER]) over = arena_list(block->arena, over, "context");
  if (*over) add(block, " over %s", over);
  if (at[FIELD_OVERLAP]) add(block, "%s overlap = on", ahead ? " prefetch = 1" : "");
  add(block, "%s\n", at[FIELD_FULL] ? " accumulate = full" : "");
}

const char *space_text(const PlanSpace *space, const SpacePlan *plan, const char *name) {
  BlockText block = {space->o->c->arena, ""};
  const int32_t *at = plan->at;
  add(&block, "plan %s for %s {\n  on        %s\n", name, space->m->model, space->base.on);
  const char *mesh = mesh_text(block.arena, plan, " = ");
  if (*mesh) add(&block, "  mesh      %s\n", mesh);
  add_places(&block, space, plan), add_zero(&block, plan);
  add(&block, "  micro     %d\n", at[FIELD_MICRO]);
  if (at[FIELD_PIPELINE])
    add(&block, "  pipeline  %s%s\n", schedule_of(block.arena, at[FIELD_PIPELINE], " chunks = "),
        space->layer_count % at[FIELD_PIPE] ? " uneven = on" : "");
  if (at[FIELD_RECOMPUTE] >= KEEP_AUTO)
    add(&block, "  recompute %s keep = auto budget = %dMiB\n", space->stack,
        at[FIELD_RECOMPUTE] - KEEP_AUTO);
  else if (at[FIELD_RECOMPUTE])
    add(&block, "  recompute %s keep = input%s\n", space->stack,
        at[FIELD_RECOMPUTE] == KEEP_SPLIT ? " over tensor" : "");
  if (at[FIELD_OFFLOAD]) {
    static const char *const words[] = {"", "optimizer", "optimizer, grads",
                                        "optimizer, grads, params"};
    add(&block, "  offload   %s -> host\n", words[at[FIELD_OFFLOAD]]);
  }
  add(&block, "%s}\n", space->base.rest);
  return block.text;
}

Change space_change(const PlanSpace *space, const SpacePlan *plan) {
  return change_with(space->o->c->arena, (Change){0}, "written", "%s",
                     space_text(space, plan, space->name));
}

Change space_change_compared(const PlanSpace *space, const SpacePlan *plan) {
  return change_with(space->o->c->arena, space_change(space, plan), "made.compared", "on");
}

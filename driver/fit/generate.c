/* The changes of a plan that a search tries (search.h), by generator: the settings that it varies,
   from the least change to the largest. Must not: compile, or judge. */
#include "fit.h"
#include "ways.h"
#include "ir/cost/bucket.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"

enum { LAST_STAGE = 3, MOST_TIMES = 1024, MOST_CUTTING = 3, MOST_BUCKET = 16 /* GiB */ };

#define ADD(...)                                                                                   \
  vec_push(search->o->c->arena, *out, change_with(search->o->c->arena, search->base, __VA_ARGS__))
/* .. which varies this as well. */
#define AND(...) vec_last(*out) = change_with(search->o->c->arena, vec_last(*out), __VA_ARGS__)

/* ---- facts ---- */

int64_t rank_share(const Module *m) { return train_batch(m) / mesh_batch_ranks(m); }

int64_t rank_micro(const Module *m) { return plan_micro(m) ? plan_micro(m) : rank_share(m); }

const char *batch_axes(const Module *m) {
  const char *text = "";
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; rule_cuts_batch(&m->rules.at[i]) && k < m->rules.at[i].axes.n; k++)
      text = arena_list(m->arena, text, "%s", m->rules.at[i].axes.at[k]);
  return text;
}

static const char *zero_axes(const Module *m) {
  return *plan_zero_axes(m) ? plan_zero_axes(m) : batch_axes(m);
}

static int last_stage(const Module *m) { return train_freezes(m) ? 1 : LAST_STAGE; }

const char *stack_paths(const Module *m) {
  const char *text = "";
  EACH_GLOBAL (m, global) {
    const char *path = layer_whole(m, global->name),
               *star = global->kind == GLOBAL_PARAM ? layer_star(path) : NULL;
    const char *name = star ? arena_strndup(m->arena, path, (size_t)(star - path) + 2) : text;
    if (star && !text_lists(text, name)) text = arena_list(m->arena, text, "%s", name);
  }
  return text;
}

/* ---- memory ---- */

static void list_prefetch(const ChangeSearch *search, Changes *out) {
  for (int64_t depth = flights_depth(search->m); depth > 0; depth--)
    ADD("plan.zero.prefetch", "%lld", (long long)depth - 1);
}

static void list_overlap(const ChangeSearch *search, Changes *out) {
  if (!plan_overlaps(search->m)) return;
  ADD("plan.zero.overlap", "off");
  if (flights_depth(search->m) > 0) AND("plan.zero.prefetch", "0");
}

static void list_sync(const ChangeSearch *search, Changes *out) {
  if (module_snapshot(search->m)) ADD("train.save.async", "off");
}

static void list_zero(const ChangeSearch *search, Changes *out) {
  for (int i = plan_zero_stage(search->m) + 1; *batch_axes(search->m) && i <= last_stage(search->m);
       i++) {
    ADD("plan.zero", "%d", i);
    AND("plan.zero.over", "%s", zero_axes(search->m));
  }
}

static void list_micro(const ChangeSearch *search, Changes *out) {
  int64_t share = rank_share(search->m), now = rank_micro(search->m);
  for (int64_t d = 1; d < now && d <= share; d = divisor_from(share, d + 1)) {
    ADD("plan.micro", "%lld", (long long)d);
    if (d == share) break;
  }
}

static void list_input(const ChangeSearch *search, Changes *out) {
  const char *stacks = stack_paths(search->m);
  if (*stacks) ADD("plan.recompute", "%s keep = input", stacks);
}

static void list_split(const ChangeSearch *search, Changes *out) {
  const char *stacks = stack_paths(search->m);
  for (uint32_t i = 0; *stacks && i < search->m->mesh.n; i++)
    if (search->m->mesh.at[i].size > 1)
      ADD("plan.recompute", "%s keep = input over %s", stacks, search->m->mesh.at[i].name);
}

static void list_wider(const ChangeSearch *search, Changes *out) {
  const char *had = zero_axes(search->m);
  for (uint32_t i = 0; i < search->m->mesh.n; i++) {
    const MeshAxis *axis = &search->m->mesh.at[i];
    if (axis->size < 2 || text_lists(had, axis->name)) continue;
    int last = *batch_axes(search->m) ? last_stage(search->m) : LAST_STAGE;
    ADD("plan.zero", "%d", last);
    AND("plan.zero.over", "%s%s%s", had, *had ? ", " : "", axis->name);
  }
}

static bool chooses_offload(const Cli *o) {
  return o->chosen && change_value(o->chosen, "plan.offload");
}

static void list_offload(const ChangeSearch *search, Changes *out) {
  const Module *m = search->m;
  OffloadUnits units = offload_units(m);
  OffloadChoice choice = {{"", "", ""}};
  if (search->host == INT64_MAX || m->offload.n || chooses_offload(search->o)) return;
  for (int word = 0; word < OFFLOAD_WORDS; word++) {
    const char **paths = &choice.paths[word];
    for (uint32_t i = 0; i < units.n; i++)
      if (*units.at[i].updated) *paths = arena_list(m->arena, *paths, "%s", units.at[i].updated);
    vec_push(search->o->c->arena, *out, offload_change(m, search->base, &choice));
  }
}

/* A schedule with fewer micro-batches in flight. */
static void list_steady(const ChangeSearch *search, Changes *out) {
  const char *word = module_word(search->m, "plan.pipeline");
  if (!strcmp(word, "gpipe") || !strcmp(word, "zero_bubble") || !strcmp(word, "interleaved"))
    ADD("plan.pipeline", "one_f_one_b");
}

/* With as many ranks on a node as before: they share its memory; GPUs that are idle come first. */
static void list_ranks(const ChangeSearch *search, Changes *out) {
  const Module *m = search->m;
  const char *axes = batch_axes(m);
  Machine machine = plan_machine(m);
  int64_t each = machine.gpus ? module_whole(m, "machine.node.gpus") : machine.in_node;
  for (int64_t times = 2; !search->o->here && times <= MOST_TIMES; times *= 2) {
    int64_t nodes = ceil_div(mesh_ranks(m) * times, each);
    for (uint32_t i = 0; i < m->mesh.n; i++) {
      if (!text_lists(axes, m->mesh.at[i].name)) continue;
      ADD(arena_printf(m->arena, "plan.mesh.%s", m->mesh.at[i].name), "%lld",
          (long long)(m->mesh.at[i].size * times));
      if (machine.memory && nodes > module_whole(m, "plan.on.nodes"))
        AND("plan.on.nodes", "%lld", (long long)nodes);
    }
  }
}

/* ---- what a plan leaves open ---- */

static void list_schedule(const ChangeSearch *search, Changes *out) {
  ADD("plan.pipeline", "one_f_one_b");
  ADD("plan.pipeline", "zero_bubble");
  ADD("plan.pipeline", "zero_bubble");
  AND("plan.pipeline.memory", "%d", MOST_AHEAD);
  for (int chunks = 2; chunks <= MOST_CHUNKS; chunks++) {
    ADD("plan.pipeline", "interleaved");
    AND("plan.pipeline.chunks", "%d", chunks);
  }
}

/* Layers and stages of the first `place` line that splits layers into stages; false: none. */
static bool find_stages(const Module *m, int64_t *layers, int64_t *stages) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n && m->rules.at[i].axes.n; k++)
      for (uint32_t d = 0; d < m->dims.n; d++) {
        const Dim *dim = &m->dims.at[d];
        int axis = mesh_find(m, m->rules.at[i].axes.at[0]);
        if (dim->name != m->rules.at[i].dims.at[k] || axis < 0) continue;
        *layers = dim->size, *stages = m->mesh.at[axis].size;
        if (dim_counts_layers(m, dim->name)) return true;
      }
  return false;
}

/* All numbers: saved values of layers take the room of n layers, except on a stage that has none of
   them, and equal stages need no padding; so bytes are not monotonic in n. */
static void list_layers(const ChangeSearch *search, Changes *out) {
  int64_t layers, stages;
  if (plan_chunks(search->m) > 1 || !find_stages(search->m, &layers, &stages)) return;
  for (int64_t n = ceil_div(layers, stages); stage_room_fits(layers, stages, n); n++)
    ADD("made.stage_layers", "%lld", (long long)n);
}

/* ---- other sizes, orders, forms ---- */

/* Numbers of n digits to the base n, each digit once: the permutations of two or three axes. */
static bool permutation(int number, int n, int *digit) {
  bool once = true;
  for (int i = n - 1; i >= 0; i--) {
    digit[i] = number % n, number /= n;
    for (int k = i + 1; k < n; k++) once &= digit[i] != digit[k];
  }
  return once;
}

/* Axes that cut Batch change places with each other, others stay. */
static void list_order(const ChangeSearch *search, Changes *out) {
  static const int last[MOST_CUTTING + 1] = {0, 0, 4, 27}; /* n to the power of n */
  const Module *m = search->m;
  int cutting[MAX_MESH], digit[MAX_MESH], n = 0;
  for (int i = 0; i < (int)m->mesh.n; i++)
    if (text_lists(batch_axes(m), m->mesh.at[i].name)) cutting[n++] = i;
  for (int number = 0; n <= MOST_CUTTING && number < last[n]; number++) {
    const char *text = "";
    bool same = true;
    if (!permutation(number, n, digit)) continue;
    for (int i = 0, next = 0; i < (int)m->mesh.n; i++) {
      int at = next < n && cutting[next] == i ? cutting[digit[next++]] : i;
      same &= at == i;
      text = arena_list(m->arena, text, "%s", m->mesh.at[at].name);
    }
    if (!same) ADD("mesh", "%s", text);
  }
}

/* The nearest smaller and larger one of which the plan's is a multiple, or that is one of it. */
static void list_near(const ChangeSearch *search, Changes *out) {
  int64_t share = rank_share(search->m), now = rank_micro(search->m);
  if (now < 1 || share % now) return;
  if (now > 1) ADD("plan.micro", "%lld", (long long)(now / divisor_from(now, 2)));
  if (share > now) ADD("plan.micro", "%lld", (long long)(now * divisor_from(share / now, 2)));
}

/* Where links have latency: a quarter, and four times as much or what suits the links. */
static void list_bucket(const ChangeSearch *search, Changes *out) {
  int64_t now = plan_zero_bucket(search->m), better = bucket_default(search->m);
  if (fit_latency(search->m, now) <= 0) return;
  if (now / 4) ADD("plan.zero.bucket", "%lld", (long long)now / 4);
  if (now >> 30 < MOST_BUCKET)
    ADD("plan.zero.bucket", "%lld", (long long)(better > now ? better : now * 4));
}

static void list_accumulate(const ChangeSearch *search, Changes *out) {
  ADD("plan.zero.accumulate", "shard");
  ADD("plan.zero.accumulate", "full");
}

static void list_way(const ChangeSearch *search, Changes *out) {
  static const char *const ways[] = {"gather", "ring", "exchange"};
  AttentionWay way;
  if (!attention_way(search->m, &way)) return;
  for (size_t i = 0; i < COUNT_OF(ways); i++) {
    bool legal = strcmp(ways[i], "exchange") != 0 || way.heads;
    if (legal && strcmp(ways[i], way.now) != 0) ADD("way", "%s", ways[i]);
  }
}

TryOrder search_list(const ChangeSearch *search, Generator generator, Changes *out) {
  static const struct {
    TryOrder order;
    void (*list)(const ChangeSearch *, Changes *);
  } rows[GENERATORS] = {[TRY_PREFETCH] = {ORDER_FIRST, list_prefetch},
                        [TRY_OVERLAP] = {ORDER_FIRST, list_overlap},
                        [TRY_SYNC] = {ORDER_FIRST, list_sync},
                        [TRY_ZERO] = {ORDER_FIRST, list_zero},
                        [TRY_MICRO] = {ORDER_LARGEST, list_micro},
                        [TRY_INPUT] = {ORDER_FIRST, list_input},
                        [TRY_SPLIT] = {ORDER_ALL, list_split},
                        [TRY_WIDER] = {ORDER_ALL, list_wider},
                        [TRY_OFFLOAD] = {ORDER_FIRST, list_offload},
                        [TRY_STEADY] = {ORDER_FIRST, list_steady},
                        [TRY_RANKS] = {ORDER_FIRST, list_ranks},
                        [TRY_SCHEDULE] = {ORDER_ALL, list_schedule},
                        [TRY_LAYERS] = {ORDER_ALL, list_layers},
                        [TRY_ORDER] = {ORDER_ALL, list_order},
                        [TRY_NEAR] = {ORDER_ALL, list_near},
                        [TRY_BUCKET] = {ORDER_ALL, list_bucket},
                        [TRY_WAY] = {ORDER_ALL, list_way},
                        [TRY_ACCUMULATE] = {ORDER_ALL, list_accumulate}};
  rows[generator].list(search, out);
  return rows[generator].order;
}

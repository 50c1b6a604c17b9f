/* The units of parameters that a plan may offload, and the lines `offload` for them (search.h): a
   stack is a unit, and all parameters outside of stacks are one; if the plan names paths, its paths
   are the units. A change of a plan has a list of paths for each word; it replaces the lines
   `offload`, but not the offload of saved values of layers. Must not: run passes. */
#include "search.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_offload.h"
#include "ir/word_patterns.h"

static const char *add(Arena *arena, const char *list, const char *path) {
  if (text_lists(list, path)) return list;
  return arena_list(arena, list, "%s", path);
}

/* The sub around a parameter, if it contains no stack. */
static const char *outermost(const Module *m, const char *name) {
  size_t n = strcspn(name, ".");
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const char *other = m->globals.at[i]->name;
    if (!strncmp(other, name, n) && other[n] == '.' && layer_star(other)) return name;
  }
  return arena_strndup(m->arena, name, n);
}

/* Layers of a stack that go together: where all stages have a block of as many, these are one. */
static int64_t grain_of(const Module *m, const Global *global, int64_t layers) {
  int64_t ranks = layers_ranks(m, global);
  if (ranks == 1 || plan_uneven(m) || layers % ranks) return 1;
  return plan_chunks(m) > 1 ? layers : layers / ranks;
}

static OffloadUnit *unit_of(const Module *m, OffloadUnits *units, const char *stack) {
  for (uint32_t i = 0; i < units->n; i++)
    if (!strcmp(units->at[i].stack, stack)) return &units->at[i];
  vec_push(m->arena, *units, ((OffloadUnit){stack, "", "", 1, 1}));
  return &vec_last(*units);
}

OffloadUnits offload_units(const Module *m) {
  OffloadUnits units = {0};
  OffloadUnit rest = {"", "", "", 1, 1};
  EACH_GLOBAL (m, global) {
    if (global->kind != GLOBAL_PARAM || !global_is_tensor(m, global)) continue;
    Str name = layer_whole(m, global->name);
    const char *star = layer_star(name), *path = outermost(m, name);
    if (star) path = arena_printf(m->arena, "%.*s.*", (int)(star - name), name);
    OffloadUnit *unit = star ? unit_of(m, &units, path) : &rest;
    unit->paths = add(m->arena, unit->paths, path);
    if (global_learns(global)) unit->updated = add(m->arena, unit->updated, path);
    if (!star || strcmp(name, global->name) != 0) continue;
    unit->layers = global->type.axis[0].size;
    if (unit->grain == 1) unit->grain = grain_of(m, global, unit->layers);
  }
  if (*rest.paths) vec_push(m->arena, units, rest);
  return units;
}

const char *offload_paths(const Module *m, OffloadWord word) {
  const char *list = "";
  OffloadUnits units = {0};
  if (plan_offloads_all(m, word)) units = offload_units(m);
  for (uint32_t i = 0; i < units.n; i++) list = arena_list(m->arena, list, "%s", units.at[i].paths);
  for (uint32_t i = 0; !units.n && i < m->offload.n; i++)
    if (m->offload.at[i].word == word)
      list = arena_list(m->arena, list, "%s", m->offload.at[i].path);
  return list;
}

/* `list` without what is under one of `paths`. */
const char *offload_without(Arena *arena, const char *list, const char *paths) {
  const char *left = "";
  for (size_t n; *list; list += n + strspn(list + n, ", ")) {
    n = strcspn(list, ",");
    bool under = false;
    for (const char *p = paths; *p; p += strcspn(p, ","), p += strspn(p, ", ")) {
      size_t k = strcspn(p, ",");
      under |= k <= n && !strncmp(list, p, k) && (k == n || list[k] == '.');
    }
    if (!under) left = arena_list(arena, left, "%.*s", (int)n, list);
  }
  return left;
}

const char *offload_text(Arena *arena, const OffloadChoice *choice) {
  const char *text = "";
  bool grads = !strcmp(choice->paths[OFFLOAD_OPTIMIZER], choice->paths[OFFLOAD_GRADS]);
  for (OffloadWord i = 0; i < OFFLOAD_WORDS; i++) {
    if (!*choice->paths[i] || (i == OFFLOAD_GRADS && grads)) continue;
    text = arena_printf(arena, "%s%s%s%s of %s", text, *text ? "; " : "", offload_word(i),
                        i == OFFLOAD_OPTIMIZER && grads ? ", grads" : "", choice->paths[i]);
  }
  return *text ? text : "nothing";
}

Change offload_change(const Module *m, Change change, const OffloadChoice *choice) {
  const char *text = "";
  for (OffloadWord i = 0; i < OFFLOAD_WORDS; i++) {
    if (!*choice->paths[i]) continue;
    const char *key = arena_printf(m->arena, "plan.offload.%s", offload_word(i));
    text = arena_list(m->arena, text, "%s", offload_word(i));
    change = change_with(m->arena, change, key, "%s", choice->paths[i]);
  }
  return change_with(m->arena, change, "plan.offload", "%s", *text ? text : "none");
}

/* Drops the lines of these words, bits 1 << OFFLOAD_.. */
static void drop_lines(Module *m, unsigned words) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->offload.n; i++)
    if (!(words & 1u << m->offload.at[i].word)) m->offload.at[n++] = m->offload.at[i];
  m->offload.n = n;
}

static void drop_others(Module *m, const char *words) {
  unsigned others = 0;
  for (OffloadWord i = 0; i <= OFFLOAD_AUTO; i++)
    if (!text_lists(words, offload_word(i))) others |= 1u << i;
  drop_lines(m, others);
}

void offload_set(Module *m, const PlanLine *change) {
  static const char prefix[] = "plan.offload";
  OffloadLine line = {.loc = m->offload.n ? m->offload.at[0].loc : (Loc){0}};
  const char *list = change->value;
  const char *word = change->key + sizeof prefix - 1;
  if (*word != '.') {
    drop_others(m, list);
    return;
  }
  must(offload_find(word + 1, &line.word), "`%s`", change->key);
  drop_lines(m, 1u << line.word);
  for (size_t k; *list; list += k + strspn(list + k, ", ")) {
    line.path = intern_n(m->ctx->names, list, k = strcspn(list, ","));
    vec_push(m->arena, m->offload, line);
  }
}

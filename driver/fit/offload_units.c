/* The units of parameters that a plan may offload, and the `offload` lines for them (fit.h): each
   stack is a unit, and all parameters outside of stacks are one; if the plan names paths, its paths
   are the units. A change of a plan has a list of paths for each word; it replaces the lines
   `offload`, but not the offload of saved values of layers. Must not: run passes. */
#include "fit.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"

static bool is_group(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == global) return true;
  return global->derived;
}

static const char *add(Arena *arena, const char *list, const char *path) {
  if (text_lists(list, path)) return list;
  return arena_printf(arena, "%s%s%s", list, *list ? ", " : "", path);
}

/* The sub around a parameter, if it contains no stack. */
static const char *outermost(const Module *m, const char *name) {
  size_t n = strcspn(name, ".");
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const char *other = m->globals.at[i]->name;
    if (!strncmp(other, name, n) && other[n] == '.' && strstr(other, ".*.")) return name;
  }
  return arena_strndup(m->arena, name, n);
}

OffloadUnits offload_units(const Module *m) {
  OffloadUnits units = {0};
  const char *rest = "";
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind != GLOBAL_PARAM || is_group(m, global)) continue;
    Str name = layer_whole(m, global->name);
    const char *star = strstr(name, ".*."), *path;
    if (!star) {
      rest = add(m->arena, rest, outermost(m, name));
      continue;
    }
    path = arena_printf(m->arena, "%.*s.*", (int)(star - name), name);
    bool had = false;
    for (uint32_t k = 0; k < units.n; k++) had |= !strcmp(units.at[k], path);
    if (!had) vec_push(m->arena, units, path);
  }
  if (*rest) vec_push(m->arena, units, rest);
  return units;
}

static bool is_under(const char *name, const char *path, size_t n) {
  return !strncmp(name, path, n) && (!name[n] || name[n] == '.');
}

static bool is_updated(const Module *m, const char *path, size_t n) {
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind == GLOBAL_PARAM && !global->frozen && is_under(global->name, path, n))
      return true;
  }
  return false;
}

const char *offload_updated(const Module *m, const char *unit) {
  const char *list = "";
  for (size_t n; *unit; unit += n + strspn(unit + n, ", ")) {
    n = strcspn(unit, ",");
    if (is_updated(m, unit, n)) list = add(m->arena, list, arena_strndup(m->arena, unit, n));
  }
  return list;
}

int64_t offload_layers(const Module *m, const char *unit) {
  size_t n = strlen(unit);
  for (uint32_t i = 0; i < m->globals.n && unit[n - 1] == '*'; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind == GLOBAL_PARAM && !strncmp(global->name, unit, n) && global->name[n] == '.')
      return global->type.axis[0].size;
  }
  return 1;
}

const char *offload_paths(const Module *m, int word) {
  if (!text_lists(plan_offload(m), offload_words[word])) return "";
  const char *said = module_said(m, arena_printf(m->arena, "plan.offload.%s", offload_words[word]));
  if (said) return said;
  OffloadUnits units = offload_units(m);
  const char *all = "";
  for (uint32_t i = 0; i < units.n; i++)
    all = arena_printf(m->arena, "%s%s%s", all, i ? ", " : "", units.at[i]);
  return all;
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
    if (!under) left = arena_printf(arena, "%s%s%.*s", left, *left ? ", " : "", (int)n, list);
  }
  return left;
}

const char *offload_text(Arena *arena, const OffloadChoice *choice) {
  const char *text = "";
  bool grads = !strcmp(choice->paths[0], choice->paths[1]);
  for (int i = 0; i < OFFLOAD_WORDS; i++) {
    if (!*choice->paths[i] || (i == 1 && grads)) continue;
    text = arena_printf(arena, "%s%s%s%s of %s", text, *text ? "; " : "", offload_words[i],
                        i == 0 && grads ? ", grads" : "", choice->paths[i]);
  }
  return *text ? text : "nothing";
}

void offload_set(Module *m, const OffloadChoice *choice) {
  const char *had = plan_offload(m), *at = strstr(had, " loc("),
             *text = text_lists(had, "saved") ? "saved" : "";
  for (int i = OFFLOAD_WORDS - 1; i >= 0; i--) {
    if (!*choice->paths[i]) continue;
    text = arena_printf(m->arena, "%s%s%s", offload_words[i], *text ? ", " : "", text);
    module_set(m, arena_printf(m->arena, "plan.offload.%s", offload_words[i]), "%s",
               choice->paths[i]);
  }
  module_set(m, "plan.offload", "%s%s", *text ? text : "none", at ? at : "");
}

/* The help of E0701 for key/value heads that are fewer than the ranks of a tensor axis: groups of
   query heads are split over the ranks that share a key/value head. The result is what other tools
   do by repeating such heads. Must not: report anything of its own. */
#include "sema_plan.h"
#include "ir/support/num.h"
#include <string.h>

/* Are the dims of `less` those of `more` without `dim`, in the same order? */
static bool is_without(const Dims *more, const Dims *less, Str dim) {
  if (more->n != less->n + 1) return false;
  int k = 0;
  for (int i = 0; i < more->n; i++) {
    if (more->at[i] == dim) continue;
    if (k == less->n || less->at[k++] != more->at[i]) return false;
  }
  return k == less->n;
}

static bool has_both(const Param *param, Str a, Str b) {
  return dims_has(&param->dims, a) && dims_has(&param->dims, b);
}

/* Query heads of `group` share one index of `heads`: a parameter of queries has both, one of keys
   is the same without the group, and no parameter has the group alone. */
static bool is_group(const PlanCheck *check, Str group, Str heads) {
  const Eval *e = check->e;
  bool found = false;
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Dims *dims = &e->params.at[i]->dims;
    if (!dims_has(dims, group)) continue;
    if (!dims_has(dims, heads)) return false;
    for (uint32_t k = 0; k < e->params.n; k++)
      found |= is_without(dims, &e->params.at[k]->dims, group);
  }
  return found;
}

/* May the group be split next to the other dims of the line? Not where a line has it already, nor
   where a parameter would be cut twice over one axis. */
static bool is_free(const PlanCheck *check, const PlaceLine *rule, const Placed *heads, Str group) {
  for (uint32_t i = 0; i < check->rules.n; i++)
    for (uint32_t k = 0; k < check->rules.at[i].dims.n; k++)
      if (check->rules.at[i].dims.at[k].dim == group) return false;
  for (uint32_t k = 0; k < rule->dims.n; k++)
    for (uint32_t i = 0; &rule->dims.at[k] != heads && i < check->e->params.n; i++)
      if (has_both(check->e->params.at[i], group, rule->dims.at[k].dim)) return false;
  return true;
}

static Str find_group(const PlanCheck *check, const PlaceLine *rule, const Placed *heads,
                      int64_t ranks) {
  const Eval *e = check->e;
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Dims *dims = &e->params.at[i]->dims;
    for (int k = 0; dims_has(dims, heads->dim) && k < dims->n; k++) {
      int64_t size = stored_size_of(e->sizes, dims->at[k]);
      if (dims->at[k] != heads->dim && size > 0 && size % ranks == 0 &&
          is_group(check, dims->at[k], heads->dim) && is_free(check, rule, heads, dims->at[k]))
        return dims->at[k];
    }
  }
  return NULL;
}

/* All other dims of the line divide by its ranks, and none needs a schedule or a batch. */
static bool others_divide(const PlanCheck *check, const PlaceLine *rule, const Placed *heads) {
  int64_t ranks = plan_ranks_of(rule);
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *other = &rule->dims.at[i];
    int64_t size = stored_size_of(check->e->sizes, other->dim);
    if (other == heads) continue;
    if (plan_is_stack_dim(check, other->dim) || !strcmp(other->dim, "Batch")) return false;
    if (size > 0 && size % ranks) return false;
  }
  return true;
}

/* Kv, Vocab -> tensor else Seq, with another name for the heads. */
static Str line_with(const PlanCheck *check, const PlaceLine *rule, const Placed *heads, Str name,
                     Str axis) {
  Arena *arena = check->e->arena;
  Str before = "", after = "";
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *placed = &rule->dims.at[i];
    Str *list = placed->otherwise ? &after : &before;
    *list = arena_list(arena, *list, "%s", placed == heads ? name : placed->dim);
  }
  return arena_printf(arena, "place %s -> %s%s%s", before, axis, *after ? " else " : "", after);
}

/* A name that no axis of the mesh has. */
static Str new_axis(const PlanCheck *check) {
  Str name = "rep";
  for (uint32_t n = 2, i = 0; i < check->mesh.n; i++)
    if (!strcmp(check->mesh.at[i].name, name))
      name = arena_printf(check->e->arena, "rep%u", n++), i = UINT32_MAX;
  return name;
}

static Str mesh_with(const PlanCheck *check, const PlanAxis *axis, int64_t size, Str added,
                     int64_t ranks) {
  Str text = "mesh";
  for (uint32_t i = 0; i < check->mesh.n; i++) {
    const PlanAxis *at = &check->mesh.at[i];
    text = arena_printf(check->e->arena, "%s%s %s = %lld", text, i ? "," : "", at->name,
                        (long long)(at == axis ? size : at->size));
    if (at == axis)
      text = arena_printf(check->e->arena, "%s, %s = %lld", text, added, (long long)ranks);
  }
  return text;
}

/* Behind the line: on one of its own where the plan has several. */
static void edit_after(PlanCheck *check, Report *r, const PlaceLine *rule, Str text) {
  const Diag *diag = check->e->ctx->diag;
  Span line = rule->line->span, item = check->item->block->span;
  uint32_t at, column, first;
  diag_line_column(diag, item, &first, &column);
  diag_line_column(diag, line, &at, &column);
  Span end = {line.file, line.offset + line.length, 0};
  if (at == first) diag_edit(r, end, "; %s", text);
  else diag_edit(r, end, "\n%*s%s", (int)column - 1, "", text);
}

void help_heads(PlanCheck *check, Report *r, const PlaceLine *rule, const Placed *heads) {
  int64_t ranks = plan_ranks_of(rule), size = stored_size_of(check->e->sizes, heads->dim);
  if (rule->axes.n != 1 || heads->otherwise || !others_divide(check, rule, heads)) return;
  const PlanAxis *axis = rule->axes.at[0];
  int64_t part = gcd_i64(size, ranks), rest = ranks / part;
  Str group = find_group(check, rule, heads, rest);
  if (!group) return;
  if (part == 1) {
    diag_help(r, "or split `%s`, whose indexes share one of `%s`, and keep `%s` whole: `%s`", group,
              heads->dim, heads->dim, line_with(check, rule, heads, group, axis->name));
    diag_edit(r, heads->span, "%s", group);
    return;
  }
  Str added = new_axis(check), line = line_with(check, rule, heads, group, added);
  diag_help(r, "or let %lld ranks share an index of `%s` and split its `%s`, with two axes: `%s`",
            (long long)rest, heads->dim, group, mesh_with(check, axis, part, added, rest));
  diag_help(r, "and the lines `%s` and `%s`: Megatron and vLLM repeat such heads",
            line_with(check, rule, heads, heads->dim, axis->name), line);
  diag_edit(r, axis->value, "%lld, %s = %lld", (long long)part, added, (long long)rest);
  edit_after(check, r, rule, line);
}

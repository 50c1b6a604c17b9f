/* Changes of a plan (search.h): their lines, their words, and the programs that they make. Must
   not: choose. */
#include "fit.h"
#include "ways.h"
#include "ir/support/num.h"
#include <stdarg.h>

static uint32_t line_of(const Change *change, const char *key) {
  uint32_t i = 0;
  while (i < change->n && strcmp(change->line[i].key, key) != 0) i++;
  return i;
}

const char *change_value(const Change *change, const char *key) {
  uint32_t i = line_of(change, key);
  return i < change->n ? change->line[i].value : NULL;
}

static void put(Change *change, const char *key, const char *value) {
  uint32_t i = line_of(change, key);
  if (i == MOST_LINES) bug("a change of more than %d lines", MOST_LINES);
  if (i == change->n) change->n++;
  change->line[i] = (PlanLine){key, value};
}

Change change_with(Arena *arena, Change change, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put(&change, key, arena_vprintf(arena, format, args));
  va_end(args);
  return change;
}

/* its lines win */
static Change change_join(Change change, const Change *more) {
  for (uint32_t i = 0; i < more->n; i++) put(&change, more->line[i].key, more->line[i].value);
  return change;
}

/* ---- words ---- */

const char *change_words(Arena *arena, const Change *change) {
  static const struct {
    const char *key, *format; /* the key, or what it begins with */
  } said[] = {{"plan.mesh.", "mesh %s = %s"},
              {"plan.on.nodes", "nodes = %s"},
              {"plan.zero", "zero %s over %s"},
              {"plan.zero.prefetch", "prefetch = %s"},
              {"plan.zero.overlap", "overlap = %s"},
              {"plan.pipeline", "pipeline %s"},
              {"plan.micro", "micro %s"},
              {"plan.recompute", "recompute %s"},
              {"plan.offload", "offload %s -> host"},
              {"train.save.async", "save async = %s"}};
  const char *text = "", *over = change_value(change, "plan.zero.over");
  for (size_t i = 0; i < COUNT_OF(said); i++)
    for (uint32_t k = 0; k < change->n; k++) {
      const char *key = change->line[k].key, *value = change->line[k].value;
      size_t n = strlen(said[i].key);
      bool mesh = !i && !strncmp(key, said[i].key, n);
      if (!mesh && strcmp(key, said[i].key) != 0) continue;
      const char *words =
          arena_printf(arena, said[i].format, mesh ? key + n : value, mesh ? value : over);
      text = arena_printf(arena, "%s%s`%s`", text, *text ? " with " : "", words);
    }
  return text;
}

/* ---- programs ---- */

/* Axes in the order of the list. */
static void order_mesh(Module *m, const char *list) {
  for (uint32_t i = 0; i < m->mesh.n && *list; i++) {
    size_t n = strcspn(list, ",");
    for (uint32_t k = i + 1; k < m->mesh.n; k++) {
      const char *name = m->mesh.at[k].name;
      if (strncmp(name, list, n) != 0 || name[n]) continue;
      MeshAxis other = m->mesh.at[i];
      m->mesh.at[i] = m->mesh.at[k], m->mesh.at[k] = other;
    }
    list += n, list += strspn(list, ", ");
  }
}

/* dec.*, enc.* keep = input over data */
static void keep_inputs(Module *m, const char *value) {
  const char *over = strstr(value, " over ");
  RecomputeLine line = {.keep = KEEPS_INPUT};
  if (over) line.over = intern(m->ctx->names, over + strlen(" over "));
  for (size_t n; strncmp(value, "keep =", 6) != 0; value += n + strspn(value + n, ", ")) {
    n = strcspn(value, ", ");
    Str stack = intern_n(m->ctx->names, value, n - strlen(".*"));
    vec_push(m->arena, line.stacks, ((LayerRange){.stack = stack, .last = -1}));
  }
  vec_push(m->arena, m->recompute, line);
}

enum { CUT_DIM = sizeof "dim." - 1 };

/* Does the command line give it: a size of a dim, or a whole plan? */
static bool is_given(const char *key) {
  return !strcmp(key, "written") || !strncmp(key, "dim.", CUT_DIM);
}

/* Does `--set` give the line? */
static bool is_set(const char *key) {
  if (!strcmp(key, "train.save.async") || !strcmp(key, "train.batch")) return true;
  return !strncmp(key, "plan.", 5) && strncmp(key, "plan.recompute", 14) != 0 &&
         strncmp(key, "plan.offload", 12) != 0;
}

static void set_line(Module *m, const PlanLine *line) {
  if (!strcmp(line->key, "mesh")) order_mesh(m, line->value);
  else if (!strcmp(line->key, "way")) way_set(m, line->value);
  else if (!strcmp(line->key, "plan.recompute")) keep_inputs(m, line->value);
  else if (!strncmp(line->key, "plan.offload", 12)) offload_set(m, line);
  else module_set(m, line->key, "%s", line->value);
}

static Change with_chosen(const Cli *o, const Change *change) {
  return change_join(o->chosen ? *o->chosen : (Change){0}, change);
}

void change_choose(Cli *o, Module *m, const Change *change) {
  Change *all = ARENA_NEW(o->c->arena, Change);
  *all = with_chosen(o, change), o->chosen = all;
  for (uint32_t i = 0; i < change->n; i++) set_line(m, &change->line[i]);
}

/* The plan is the last item of the text: `plan NAME for ..`. */
static void give(Cli *one, const PlanLine *line) {
  Arena *arena = one->c->arena;
  if (line->key[CUT_DIM - 1] == '.') {
    vec_push(arena, one->dims, arena_printf(arena, "%s=%s", line->key + CUT_DIM, line->value));
    return;
  }
  const char *name = line->value + strlen("plan ");
  one->written = line->value, one->value[OPT_PLAN] = arena_strndup(arena, name, strcspn(name, " "));
}

/* o with the lines of the change that the command line gives, in a context of its own. */
static Cli changed(const Cli *o, const Change *all) {
  Cli one = cli_again(o);
  one.sets = one.dims = (Strings){0};
  for (uint32_t i = 0; i < o->dims.n; i++) vec_push(one.c->arena, one.dims, o->dims.at[i]);
  for (uint32_t i = 0; i < all->n; i++)
    if (is_given(all->line[i].key)) give(&one, &all->line[i]);
  one.value[OPT_TARGET] = fit_target(o);
  for (uint32_t i = 0; i < o->sets.n; i++) vec_push(one.c->arena, one.sets, o->sets.at[i]);
  for (uint32_t i = 0; i < all->n; i++)
    if (is_set(all->line[i].key))
      vec_push(one.c->arena, one.sets,
               arena_printf(one.c->arena, "%s=%s", all->line[i].key, all->line[i].value));
  return one;
}

static Change without_sets(const Change *all) {
  Change rest = {0};
  for (uint32_t i = 0; i < all->n; i++)
    if (!is_set(all->line[i].key) && !is_given(all->line[i].key))
      rest.line[rest.n++] = all->line[i];
  return rest;
}

static bool makes_programs(Cli *one, Module *m, Programs *out) {
  PipelineOptions options = {.until = "streams", .unread = true};
  return m && describe_target(one, m) == EXIT_FINE && pipeline_classes(m, &options, out) &&
         !diag_errors(one->c->diag);
}

bool change_programs(const Cli *o, const Change *change, Ctx **c, Programs *out) {
  Change all = with_chosen(o, change), rest = without_sets(&all);
  Cli one = changed(o, &all);
  *c = one.c;
  Module *m = load_shard(&one, o->operands.at[0]);
  for (uint32_t i = 0; m && i < rest.n; i++) set_line(m, &rest.line[i]);
  if (m) fit_set_bucket(m);
  bool good = makes_programs(&one, m, out);
  if (!good) ctx_free(one.c);
  return good;
}

bool change_anew(const Cli *o, const Change *change, Ctx **c, Programs *out, const char **why) {
  Change rest = without_sets(change);
  Cli one = changed(o, change);
  *c = one.c, one.chosen = NULL;
  Module *m = load_shard(&one, o->operands.at[0]);
  if (m) change_choose(&one, m, &rest), fit_choose(&one, m);
  bool good = makes_programs(&one, m, out);
  if (!good && why) *why = arena_printf(o->c->arena, "%s", diag_first_error(one.c->diag));
  if (!good) ctx_free(one.c);
  return good;
}

void change_explain(const Cli *o, const Change *change) {
  Programs programs;
  Cli one = changed(o, change);
  if (!makes_programs(&one, load_shard(&one, o->operands.at[0]), &programs))
    diag_print(one.c->diag, stderr, o->format, o->colour);
  ctx_free(one.c);
}

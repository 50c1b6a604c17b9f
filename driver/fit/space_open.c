/* Opens the space of plans (plan_space.h): checks `--fix` and `--on`, lowers the model for the
   machine, and takes lines that the search does not choose from a plan of the file. */
#include "plan_space.h"
#include "fit.h"
#include "frontend/plan/plan.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"
#include <stdlib.h>

static Module *lower(PlanSpace *space) {
  Cli *one = ARENA_NEW(space->o->c->arena, Cli);
  *one = cli_again(space->o), one->value[OPT_TUNE_DB] = NULL; /* bounds know no records */
  const char *model = one->value[OPT_MODEL] ? one->value[OPT_MODEL] : space->base.model;
  one->written = arena_printf(
      one->c->arena, "plan %s %s%s {\n  on %s\n  mesh all_ranks = %lld\n%s}\n", space->name,
      *model ? "for " : "", model, space->base.on, (long long)space->ranks, space->base.rest);
  one->value[OPT_PLAN] = space->name;
  Module *m = load_shard(one, one->operands.at[0]);
  if (!m || diag_errors(one->c->diag)) {
    diag_print(one->c->diag, stderr, one->format, one->colour);
    return NULL;
  }
  return m;
}

const char *space_fixed(const Cli *o, const char *key) {
  size_t n = strlen(key);
  for (uint32_t i = 0; i < o->fixes.n; i++)
    if (!strncmp(o->fixes.at[i], key, n) && o->fixes.at[i][n] == '=') return o->fixes.at[i] + n + 1;
  return NULL;
}

static bool is_number(const char *word) {
  return *word >= '1' && *word <= '9' && !word[strspn(word, "0123456789")];
}

/* No value twice, and none that is empty; all of `--fix zero=` is told by its words. */
static Exit check_list(const Cli *o, const char *key, const char *list) {
  Arena *arena = o->c->arena;
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ", ");
    const char *word = arena_strndup(arena, at, n);
    if (text_lists(arena_strndup(arena, list, (size_t)(at - list)), word))
      return cli_usage("`--fix %s=%s` has `%s` twice", key, list, word);
    at += n;
    size_t between = strspn(at, ", ");
    if (between && !at[between])
      return cli_usage("`--fix %s=%s` ends with a comma: no value follows it", key, list);
    at += between;
  }
  return EXIT_FINE;
}

/* Is every value one that plans may have? */
static Exit check_values(const Cli *o, SpaceField field) {
  Arena *arena = o->c->arena;
  const char *between = field == FIELD_ORDER ? ", -" : ", ", *key = space_key(field),
             *words = space_words(arena, field), *at = space_fixed(o, key);
  if (!at) return EXIT_FINE;
  if (field == FIELD_RECOMPUTE && !strcmp(at, "auto"))
    return cli_usage("`--fix recompute=auto` needs another value as well: a budget is tried for "
                     "the best plan of the others");
  do {
    const char *word = arena_strndup(arena, at, strcspn(at, between));
    if (*words && !text_lists(words, word))
      return cli_usage("`--fix %s` takes one of %s, not `%s`", key, words, word);
    if (!*words && !is_number(word))
      return cli_usage("`--fix %s` takes whole numbers above 0, not `%s`", key, word);
    at += strlen(word), at += strspn(at, between);
  } while (*at);
  return check_list(o, key, space_fixed(o, key));
}

static Exit check_fixes(const Cli *o) {
  Exit e = EXIT_FINE;
  const char *names = "ranks";
  for (int f = 0; f < SPACE_FIELDS; f++)
    names = arena_printf(o->c->arena, "%s, %s", names, space_key(f));
  for (uint32_t i = 0; i < o->fixes.n; i++) {
    const char *key = arena_strndup(o->c->arena, o->fixes.at[i], strcspn(o->fixes.at[i], "="));
    if (!text_lists(names, key)) return cli_usage("`--fix` takes %s, not `%s`", names, key);
  }
  for (SpaceField f = 0; f < SPACE_FIELDS && e == EXIT_FINE; f++) e = check_values(o, f);
  return e;
}

/* With GPUs all of the nodes' have a rank. */
static Exit count_ranks(PlanSpace *space) {
  const Module *m = space->m;
  const char *text = space_fixed(space->o, "ranks");
  int64_t gpus = module_whole(m, "machine.node.gpus");
  char *end = "";
  space->nodes = module_whole(m, "plan.on.nodes");
  space->ranks = text ? strtoll(text, &end, 10) : gpus * space->nodes;
  if (*end || (text && space->ranks < 1) || space->ranks > 1 << 20)
    return cli_usage("`--fix ranks` takes a whole number from 1 to %d, not `%s`", 1 << 20, text);
  return space->ranks ? EXIT_FINE
                      : cli_usage("`--search` over processors needs their number of ranks: "
                                  "`--fix ranks=N`");
}

static const char *unused_name(const char *names, Arena *arena) {
  const char *name = "found";
  while (names && text_lists(names, name)) name = arena_printf(arena, "%s_", name);
  return name;
}

/* The lines of `--plan`, or of the first plan for the model; false: there is no such plan. */
static bool read_base(PlanSpace *space, const char *names) {
  const Cli *o = space->o;
  Arena *arena = o->c->arena;
  const char *path = o->operands.at[0], *plan = o->value[OPT_PLAN], *model = o->value[OPT_MODEL];
  const char *own = arena_printf(arena, "on, mesh, %s", plan_searched_lines);
  if (plan) return program_plan_text(o->c, path, plan, own, &space->base);
  for (size_t n; *names; names += n + strspn(names + n, ", ")) {
    PlanText base = {"", "", ""};
    n = strcspn(names, ",");
    if (!program_plan_text(o->c, path, arena_strndup(arena, names, n), own, &base)) continue;
    if (model && *base.model && strcmp(base.model, model) != 0) continue;
    space->base = base;
    return true;
  }
  return false;
}

/* Where no plan says a precision: that in which GPUs train. */
static bool has_bf16(const Module *m) {
  const Arch *arch = machine_arch(m) ? arch_find(machine_arch(m)) : NULL;
  bool published = arch && arch->processors > 0 && arch->bf16 > 0;
  return module_said(m, "machine.node.bf16") || published;
}

Exit space_open(Cli *o, PlanSpace *out) {
  const char *path = o->operands.at[0], *on = o->value[OPT_ON];
  Exit e = check_fixes(o);
  if (e != EXIT_FINE) return e;
  const char *names = program_plans(o->c, path);
  if (!names) return EXIT_INPUT;
  *out = (PlanSpace){
      .o = o, .ranks = 1, .base = {"", "", ""}, .name = unused_name(names, o->c->arena)};
  bool planned = read_base(out, names);
  if (!planned && o->value[OPT_PLAN])
    return cli_usage("no plan `%s` in `%s`", o->value[OPT_PLAN], path);
  if (on && strpbrk(on, ";{}"))
    return cli_usage("`--on` takes a machine and its options, `--on \"MACHINE nodes = 2\"`; "
                     "`--fix` has settings of plans");
  if (on) out->base.on = on;
  if (on && !program_has_machine(o->c, path, on)) return EXIT_INPUT;
  if (!*out->base.on)
    return cli_usage("`--search` needs a machine: `--on MACHINE`, or a plan with a line `on`");
  if (!(out->m = lower(out))) return EXIT_INPUT;
  if (!planned && has_bf16(out->m)) out->base.rest = "  precision bf16 master = f32\n";
  e = count_ranks(out);
  if (e != EXIT_FINE) return e;
  if (!(out->m = lower(out))) return EXIT_INPUT;
  out->batch = train_batch(out->m), out->machine = plan_machine(out->m);
  Module *simple = lower(out);
  if (simple) space_find_dims(out, simple);
  return simple ? EXIT_FINE : EXIT_INPUT;
}

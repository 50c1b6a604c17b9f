/* `shardc opt`: runs named passes over a module, IR in and IR out. The pass runner checks the
   requirements of each pass; --run-to shortens the list, so that a wrong pass is found by
   bisection. Passes read their parameters from the settings of the module: PASS{KEY=VALUE,..}
   writes them, so they also appear in the result. */
#include "driver/cmd.h"
#include "ir/text/renamed.h"
#include "passes/pass.h"

typedef VEC(const Pass *) PassList;

/* KEY=VALUE,.. of n characters. */
static Exit read_options(Cli *o, const char *text, size_t n, Strings *options) {
  const char *all = arena_strndup(o->c->arena, text, n);
  for (size_t length; *all; all += length + (all[length] == ',')) {
    length = strcspn(all, ",");
    const char *one = arena_strndup(o->c->arena, all, length), *equals = strchr(one, '=');
    if (!equals || equals == one) return cli_usage("`%s` is not of the form KEY=VALUE", one);
    vec_push(o->c->arena, *options, one);
  }
  return EXIT_FINE;
}

static Exit read_list(Cli *o, const char *text, PassList *list, Strings *options) {
  for (const char *at = text;;) {
    size_t n = strcspn(at, ",{"), end = at[n] == '{' ? strcspn(at, "}") : n;
    const char *name = arena_strndup(o->c->arena, at, n);
    const Pass *pass = pass_find(name);
    if (!pass) return unknown_pass(o, name);
    vec_push(o->c->arena, *list, pass);
    if (at[n] == '{' && !at[end]) return cli_usage("`%s` has no `}`", at);
    if (at[n] == '{' && read_options(o, at + n + 1, end - n - 1, options) != EXIT_FINE)
      return EXIT_USAGE;
    at += end + (at[n] == '{');
    if (!*at) return EXIT_FINE;
    if (*at++ != ',') return cli_usage("a comma between passes, not `%s`", at - 1);
  }
}

/* Sets a fact by target.FACT=VALUE. */
static Exit set_fact(Module *m, const char *name, const char *value) {
  TargetFact f;
  int64_t number;
  if (!target_fact_find(name, &f)) return cli_usage("targets have no fact named `%s`", name);
  if (!target_fact_read(f, value, &number) || !target_fact_allows(f, number))
    return cli_usage("`%s` is no %s of a target", value, name);
  target_set(&m->target, f, number);
  return EXIT_FINE;
}

static Exit set_options(Module *m, const Strings *options) {
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; i < options->n && e == EXIT_FINE; i++) {
    const char *text = options->at[i], *equals = strchr(text, '=');
    const char *key = arena_strndup(m->arena, text, (size_t)(equals - text));
    if (!strncmp(key, "target.", 7))
      e = set_fact(m, renamed_word(RENAMED_FACT, key + 7), equals + 1);
    else module_set(m, renamed_word(RENAMED_SETTING, key), "%s", equals + 1);
  }
  return e;
}

/* Every pass that is left after m->after. */
static void rest_of_table(Cli *o, const Module *m, PassList *list) {
  uint32_t n;
  const Pass *table = pass_table(&n), *last = pass_find(m->after);
  for (uint32_t i = last ? (uint32_t)(last - table) + 1 : 0; i < n; i++)
    if (table[i].run) vec_push(o->c->arena, *list, &table[i]);
}

static Exit cut_list(const Cli *o, PassList *list) {
  int64_t n = list->n;
  Exit e = cli_whole(o, OPT_RUN_TO, 0, list->n, &n);
  list->n = (uint32_t)n;
  return e;
}

/* `before`: the text of the module that the passes got, NULL to show the result whole */
static Exit put_result(Cli *o, Module *m, const char *before) {
  const char *output = o->value[OPT_OUTPUT] ? o->value[OPT_OUTPUT] : "-";
  const Fn *f;
  size_t n;
  Exit e = find_function(o, m, &f);
  if (e != EXIT_FINE) return e;
  if (!f && !before) return emit_ir(o, m, output);
  char *text = f ? ir_print_fn(m, f) : text_changes(o->c->arena, before, ir_print(m, NULL), &n);
  return write_text(o->c, output, text, strlen(text));
}

Exit cmd_opt(Cli *o) {
  PassList list = {0};
  Strings options = {0};
  PipelineOptions p = {0};
  Module *m;
  const char *names = o->value[OPT_PASSES], *before = NULL;
  Exit e = names ? read_list(o, names, &list, &options) : EXIT_FINE;
  if (o->value[OPT_CHANGES] && o->value[OPT_FUNC])
    return cli_usage("`--changes` and `--func` cannot both be given");
  if (o->value[OPT_VERIFY_EACH] && o->value[OPT_NO_VERIFY])
    return cli_usage("`--verify-each` and `--no-verify` cannot both be given");
  if (e != EXIT_FINE) return e;
  e = load_module(o, &m);
  if (e == EXIT_FINE && !names) rest_of_table(o, m, &list);
  if (e == EXIT_FINE) e = set_options(m, &options);
  if (e == EXIT_FINE) e = cut_list(o, &list);
  if (e == EXIT_FINE) e = pipeline_options(o, m, &p);
  if (e == EXIT_FINE && o->value[OPT_CHANGES]) before = ir_print(m, NULL);
  if (e == EXIT_FINE && !passes_run(m, list.n, list.at, &p)) e = EXIT_INPUT;
  if (e == EXIT_FINE) e = put_result(o, m, before);
  return cli_report(o, e);
}

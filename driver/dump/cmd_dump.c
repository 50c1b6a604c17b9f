/* `shardc dump`: the IR of a file after any pass: all of it or one function, as text, JSON or a
   graph, or the changes between passes. The printed text is again a module. */
#include "driver/cmd.h"
#include "ir/cost/count.h"
#include "frontend/lower.h"
#include "ir/support/num.h"
#include "passes/pass.h"

Exit pipeline_options(Cli *o, Module *m, PipelineOptions *p) {
  Exit e = describe_target(o, m);
  p->dump_dir = o->value[OPT_DUMP_IR];
  p->crash_dir = p->dump_dir ? p->dump_dir : ".";
  p->verify = !o->value[OPT_NO_VERIFY];
  p->timings = o->value[OPT_TIMINGS] != NULL, p->stats = o->value[OPT_STATS] != NULL;
  if (e == EXIT_FINE && p->dump_dir && !make_folder(o->c, p->dump_dir)) return EXIT_ENVIRONMENT;
  return e;
}

Exit run_pipeline(Cli *o, Module *m, const char *until) {
  PipelineOptions p = {.until = until};
  Exit e = pipeline_options(o, m, &p);
  if (e != EXIT_FINE) return e;
  return pipeline_run(m, &p) ? EXIT_FINE : EXIT_INPUT;
}

Exit emit_ir(Cli *o, Module *m, const char *output) {
  size_t n;
  char *text = ir_dump(m, &n);
  return write_text(o->c, output, text, n);
}

Exit unknown_pass(Cli *o, const char *name) {
  Strings names = {0};
  uint32_t n;
  const Pass *p = pass_table(&n);
  for (uint32_t i = 0; i < n; i++) vec_push(o->c->arena, names, p[i].name);
  const char *near = diag_nearest(name, names.at, names.n);
  if (near) return cli_usage("no pass `%s`; did you mean `%s`?", name, near);
  return cli_usage("no pass `%s`; `shardc dump --list` shows them", name);
}

static Exit list_passes(const Cli *o) {
  static const CliOption list = OPT_LIST;
  Exit e = cli_only(o, &list, 1, "`--list` shows the passes alone");
  uint32_t n;
  if (e != EXIT_FINE) return e;
  if (o->operands.n) return cli_usage("`--list` takes no file: the passes are those of any file");
  const Pass *table = pass_table(&n);
  for (uint32_t i = 0; i < n; i++)
    printf("%-10s %s%s\n", table[i].name, table[i].help, table[i].run ? "" : " (not built yet)");
  return EXIT_FINE;
}

/* ---- going on to a pass ---- */

static bool is_lower(const char *name) { return !strcmp(name, "lower"); }

static Exit known_pass(Cli *o, const char *name) {
  return !name || is_lower(name) || pass_find(name) ? EXIT_FINE : unknown_pass(o, name);
}

static Exit go_on_to(Cli *o, Module *m, const char *after) {
  if (!after || !strcmp(after, m->after)) return EXIT_FINE;
  if (pass_number(after) < pass_number(m->after))
    return cli_usage("`%s` is IR after `%s` already; `%s` comes before", o->operands.at[0],
                     m->after, after);
  return run_pipeline(o, m, after);
}

/* ---- forms ---- */

static const char *const formats[] = {"text", "json", "dot", "html", "svg"};
enum { FORM_TEXT, FORM_JSON, FORM_DOT, FORM_HTML, FORM_SVG, FORMS };
_Static_assert(COUNT_OF(formats) == FORMS, "a name per form");

static Exit find_form(const Cli *o, int *form) {
  const char *name = o->value[OPT_FORMAT] ? o->value[OPT_FORMAT] : "text";
  for (*form = 0; *form < FORMS; ++*form)
    if (!strcmp(name, formats[*form])) return EXIT_FINE;
  return cli_usage("`--format` is one of text, json, dot, html, svg, not `%s`", name);
}

Exit find_function(const Cli *o, Module *m, const Fn **f) {
  const char *name = o->value[OPT_FUNC];
  Strings names = {0};
  *f = NULL;
  if (!name) return EXIT_FINE;
  if (*name == '@') name++;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (!strcmp(m->fns.at[i]->name, name)) return *f = m->fns.at[i], EXIT_FINE;
    vec_push(o->c->arena, names, m->fns.at[i]->name);
  }
  const char *near = diag_nearest(name, names.at, names.n);
  if (near)
    return cli_usage("no function `%s` after `%s`; did you mean `%s`?", name, m->after, near);
  return cli_usage("no function `%s` after `%s`", name, m->after);
}

/* The text of the module or of the function that was asked for. */
static Exit text_of(Cli *o, Module *m, char **text) {
  const Fn *f;
  size_t n;
  Exit e = find_function(o, m, &f);
  if (e == EXIT_FINE) *text = f ? ir_print_fn(m, f) : ir_dump(m, &n);
  return e;
}

static Exit put_form(Cli *o, Module *m, int form, const char *output) {
  const Fn *f;
  char *text = NULL;
  size_t n = 0;
  Exit e = find_function(o, m, &f);
  if (e != EXIT_FINE) return e;
  if (form == FORM_JSON) text = module_json(m, f, &n);
  else if (form == FORM_DOT) text = module_dot(m, f, &n);
  else if ((e = text_of(o, m, &text)) == EXIT_FINE) n = strlen(text);
  return write_text(o->c, output, text, n);
}

/* ---- --diff FIRST SECOND ---- */

/* Without the lines that differ always, and without sources: they are one long line each. */
static char *without_head(Cli *o, char *text) {
  static const char *const left_out[] = {"# ", "after ", "was ", "source "};
  VEC(char) kept = {0};
  for (size_t n; *text; text += n) {
    bool keep = true;
    for (int i = 0; i < 4; i++) keep = keep && strncmp(text, left_out[i], strlen(left_out[i]));
    n = strcspn(text, "\n"), n += text[n] == '\n';
    for (size_t i = 0; i < n && keep; i++) vec_push(o->c->arena, kept, text[i]);
  }
  vec_push(o->c->arena, kept, 0);
  return kept.at;
}

static Exit put_diff(Cli *o, Module *m, const char *output) {
  const char *both = o->value[OPT_DIFF], *names[2];
  char *text[2] = {"", ""};
  Exit e = EXIT_FINE;
  names[0] = arena_strndup(o->c->arena, both, strcspn(both, " "));
  names[1] = both + strlen(names[0]) + 1;
  for (int i = 0; i < 2 && e == EXIT_FINE; i++) e = known_pass(o, names[i]);
  if (e == EXIT_FINE && pass_number(names[0]) >= pass_number(names[1]))
    return cli_usage("`--diff %s`: `%s` is not before `%s`; `shardc dump --list` shows the order",
                     both, names[0], names[1]);
  for (int i = 0; i < 2 && e == EXIT_FINE; i++) {
    e = go_on_to(o, m, names[i]);
    if (e == EXIT_FINE) e = text_of(o, m, &text[i]);
    if (e == EXIT_FINE) text[i] = without_head(o, text[i]);
  }
  if (e != EXIT_FINE) return e;
  size_t n;
  char *diff = text_diff(o->c->arena, text[0], text[1], names, &n);
  return write_text(o->c, output, diff, n);
}

static Exit check_picture(const Cli *o, int form) {
  bool layout = o->value[OPT_LAYOUT] != NULL;
  if (layout && form != FORM_TEXT && form != FORM_SVG)
    return cli_usage("`--layout` is drawn as text or svg, not %s", formats[form]);
  if (!layout && form == FORM_SVG) return cli_usage("`--format svg` draws a layout: --layout NAME");
  if (layout && (o->value[OPT_AFTER] || o->value[OPT_DIFF] || o->value[OPT_FUNC]))
    return cli_usage("`--layout` draws the layout of the model, before all passes");
  return EXIT_FINE;
}

/* Options that say how passes run, where none does. */
static Exit check_runs(const Cli *o, int form) {
  static const struct {
    CliOption option;
    const char *word;
  } of_passes[] = {{OPT_STATS, "stats"},
                   {OPT_TIMINGS, "timings"},
                   {OPT_NO_VERIFY, "no-verify"},
                   {OPT_WORKERS, "workers"},
                   {OPT_REQUIRE_TUNED, "require-tuned"}};
  const char *after = o->value[OPT_AFTER];
  if ((after && !is_lower(after)) || o->value[OPT_DIFF] || form == FORM_HTML) return EXIT_FINE;
  for (size_t i = 0; i < COUNT_OF(of_passes); i++)
    if (o->value[of_passes[i].option])
      return cli_usage("`--%s` is about passes, and none runs: add `--after PASS`",
                       of_passes[i].word);
  return EXIT_FINE;
}

static Exit check_forms(const Cli *o, int form) {
  static const CliOption of_one_pass[] = {OPT_AFTER, OPT_DIFF, OPT_FUNC}, after = OPT_AFTER;
  if (form == FORM_HTML)
    return cli_idle(o, of_one_pass, COUNT_OF(of_one_pass),
                    "`--format html` shows all functions after all passes");
  if (!o->value[OPT_DIFF]) return EXIT_FINE;
  if (form != FORM_TEXT) return cli_usage("`--diff` is text, not %s", formats[form]);
  return cli_idle(o, &after, 1, "`--diff PASS PASS` names both passes");
}

Exit cmd_dump(Cli *o) {
  const char *after = o->value[OPT_AFTER], *output = o->value[OPT_OUTPUT];
  Module *m;
  int form;
  if (o->value[OPT_LIST]) return list_passes(o);
  Exit e = find_form(o, &form);
  if (e == EXIT_FINE) e = check_picture(o, form);
  if (e == EXIT_FINE) e = known_pass(o, after);
  if (e == EXIT_FINE) e = check_runs(o, form);
  if (e == EXIT_FINE) e = check_forms(o, form);
  if (e != EXIT_FINE) return e;
  if (!output) output = "-";
  if (o->value[OPT_LAYOUT]) return dump_layout(o, form == FORM_SVG, output);
  if (form == FORM_HTML) o->layouts = ARENA_NEW(o->c->arena, LayoutDrawings);
  e = load_module(o, &m);
  if (e == EXIT_FINE && o->value[OPT_DIFF]) e = put_diff(o, m, output);
  else if (e == EXIT_FINE && form == FORM_HTML) e = dump_html(o, m, output);
  else if (e == EXIT_FINE && (e = go_on_to(o, m, after)) == EXIT_FINE)
    e = put_form(o, m, form, output);
  return cli_report(o, e);
}

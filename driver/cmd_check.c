/* `shardc check`: all checks that need no output files; prints messages, one line per model and one
   for the plans, or one JSON object on stdout (--json). It checks that each plan of FILE fits its
   machine as `plan` does, by running the passes up to `memory`: a tenth of a second per plan, and
   only if there are no other errors. */
#include "cmd.h"
#include "ir/support/num.h"
#include "codegen/codegen.h"
#include "driver/fit/fit.h"
#include "driver/layout/layout_drawing.h"
#include "frontend/lower.h"
#include "passes/pass.h"
#include <stdlib.h>

typedef enum Fits { FITS_UNKNOWN, FITS, FITS_NOT, FITS_LATER } Fits; /* LATER: not built yet */
static const char *const fits_words[] = {"", " (fits)", " (does not fit)", " (not checked)"};
_Static_assert(COUNT_OF(fits_words) == FITS_LATER + 1, "words per Fits");

/* 124439808 -> 124,439,808 */
static const char *grouped(Ctx *c, long long n) {
  if (n < 1000) return arena_printf(c->arena, "%lld", n);
  return arena_printf(c->arena, "%s,%03lld", grouped(c, n / 1000), n % 1000);
}

/* " with small", if the same name has another row. */
static const char *with_train(const Cli *o, bool several, Str train) {
  return several && train ? arena_printf(o->c->arena, " with %s", train) : "";
}

static bool same_model(const CheckResult *result, uint32_t i, uint32_t k) {
  return k < result->models.n && result->models.at[i].name == result->models.at[k].name;
}

/* M: 124,439,808 parameters */
static void say_model(const Cli *o, Sheet *sheet, const CheckResult *result, uint32_t at) {
  const CheckedModel *model = &result->models.at[at];
  bool later = at && same_model(result, at, at - 1);
  sheet_say(
      sheet, "[models]{name}{}: {} parameters\n{!parameters}{!train}", as_text(model->name),
      as_text(with_train(o, later || same_model(result, at, at + 1), model->train)),
      as_text(model->counted ? grouped(o->c, (long long)model->parameters) : "an open number of"),
      model->counted ? as_count((double)model->parameters) : as_json("null"),
      as_text(model->train));
  if (later) return;
  for (uint32_t i = 0; i < result->layouts.n; i++) {
    const CheckedLayout *layout = &result->layouts.at[i];
    if (layout->model != model->name) continue;
    sheet_open(sheet, "layouts[]");
    sheet_say(sheet, "  layout {}: {}\n{!model}", as_text(layout->figures.name),
              as_text(layout_words(o->c->arena, &layout->figures)), as_text(layout->model));
    layout_figures(sheet, &layout->figures);
    sheet_close(sheet);
  }
}

/* ---- plans ---- */

static bool same_plan(const CheckResult *result, uint32_t i, uint32_t k) {
  return k < result->plans.n && result->plans.at[i].name == result->plans.at[k].name;
}

/* 4 plans: cpu (fits), zero2 (fits), .. */
static void say_plans(const Cli *o, Sheet *sheet, const CheckResult *result, const Fits *fits) {
  static const char *const json[] = {"null", "true", "false", "null"}; /* by Fits */
  uint32_t n = 0;
  for (uint32_t i = 0; i < result->plans.n; i++) n += !i || !same_plan(result, i, i - 1);
  if (n) sheet_say(sheet, "{} plan{}: ", as_count(n), as_text(n > 1 ? "s" : ""));
  for (uint32_t i = 0; i < result->plans.n; i++) {
    const CheckedPlan *plan = &result->plans.at[i];
    bool several = (i && same_plan(result, i, i - 1)) || same_plan(result, i, i + 1);
    sheet_say(sheet, "[plans]{}{name}{}{}{!train}{!fits}", as_text(i ? ", " : ""),
              as_text(plan->name), as_text(with_train(o, several, plan->train)),
              as_text(fits_words[fits[i]]), as_text(plan->train), as_json(json[fits[i]]));
  }
  if (n) sheet_say(sheet, "\n");
}

static void not_judged(Cli *o, const CheckedPlan *plan) {
  Report *r = diag_at(o->c->diag, "N0801", plan->span, "the memory of plan `%s` is not checked",
                      plan->name);
  diag_label(r, "the plan has a word that is not built yet");
}

/* The same as `plan` does; its errors become those of the check. */
static Fits judge(Cli *o, const char *path, const CheckedPlan *plan) {
  Cli one = cli_again(o);
  Module *m;
  one.planning = true, one.operands = (Strings){0};
  vec_push(one.c->arena, one.operands, path);
  one.value[OPT_PLAN] = plan->name, one.value[OPT_TRAIN] = plan->train;
  PipelineOptions until = {.until = "prove", .verify = true};
  Programs all;
  bool fits = load_module(&one, &m) == EXIT_FINE && describe_target(&one, m) == EXIT_FINE &&
              pipeline_classes(m, &until, &all) && programs_fit(&one, &all);
  if (fits) {
    nodes_warn(&one, &all);
    static const char *const notes[] = {"W0701",
                                        "N0702"}; /* given by passes, which only `one` has run */
    bool any = false;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
      if (!diag_given(one.c->diag, notes[i]) || diag_given(o->c->diag, notes[i])) continue;
      diag_take(o->c->diag, one.c->diag, notes[i]), any = true;
    }
    if (!any) ctx_free(one.c);
    return plan->sized ? FITS : FITS_UNKNOWN;
  }
  /* A pass says where a plan asks for what is not built; the frontend has said so in N0902. */
  if (diag_given(one.c->diag, "E0901") && diag_given(o->c->diag, "N0902"))
    return ctx_free(one.c), not_judged(o, plan), FITS_LATER;
  bool small = diag_given(one.c->diag, "E0801");
  diag_take(o->c->diag, one.c->diag, "E"); /* they live on in the context */
  return small ? FITS_NOT : FITS_UNKNOWN;
}

static Fits *judge_plans(Cli *o, const char *path, const CheckResult *result) {
  Fits *fits = ARENA_ARRAY(o->c->arena, Fits, result->plans.n + 1);
  bool good = !diag_errors(o->c->diag);
  for (uint32_t i = 0; i < result->plans.n; i++)
    fits[i] =
        good && result->plans.at[i].judged ? judge(o, path, &result->plans.at[i]) : FITS_UNKNOWN;
  return fits;
}

void check_beyond(Cli *o, const char *path) {
  CheckResult result = {0};
  if (!check_program(o->c, path, &result)) return;
  if (!diag_errors(o->c->diag)) check_data_files(o, &result);
  judge_plans(o, path, &result);
}

static Exit check_shard(Cli *o, const char *path, Sheet *sheet) {
  CheckResult result = {0};
  if (!check_program(o->c, path, &result)) return EXIT_ENVIRONMENT;
  if (!diag_errors(o->c->diag)) check_data_files(o, &result);
  bool said = !diag_errors(o->c->diag) && !o->value[OPT_QUIET] && !o->value[OPT_JSON];
  const Fits *fits = judge_plans(o, path, &result);
  for (uint32_t i = 0; i < result.models.n; i++) say_model(o, sheet, &result, i);
  say_plans(o, sheet, &result, fits);
  if (said) sheet_text(stdout, sheet);
  return EXIT_FINE;
}

static Exit check_file(Cli *o, const char *path, Sheet *sheet) {
  FileKind kind = file_kind(o->c, path);
  size_t n = 0;
  const char *text = kind == FILE_SHARD ? "" : file_read(o->c, path, &n);
  if (!text) return EXIT_ENVIRONMENT;
  if (kind == FILE_SHARD) return check_shard(o, path, sheet);
  Module *m = ir_parse(o->c, path, text, n);
  return m && target_complete(m) && ir_verify(m) ? EXIT_FINE : EXIT_INPUT;
}

/* Every file is checked for itself: what one declares means nothing to the next. In JSON the
   messages of all are in one list. */
static Exit check_all(Cli *o, Sheet *all, FILE *messages) {
  Exit worst = EXIT_FINE;
  bool any = false;
  for (uint32_t i = 0; i < o->operands.n; i++) {
    Cli one = *o;
    one.c = ctx_new();
    Exit e = check_file(&one, o->operands.at[i], all ? all : sheet_new(one.c->arena));
    e = all ? exit_of(&one, e) : cli_report(&one, e);
    if (all) any |= diag_print_list(one.c->diag, messages, any);
    if (e > worst) worst = e;
    ctx_free(one.c);
  }
  return worst;
}

static Exit check_json(Cli *o) {
  char *text = NULL;
  size_t n;
  Sheet *sheet = sheet_new(o->c->arena);
  FILE *messages = heap_stream(&text, &n);
  sheet_put(sheet, "{schema}", as_count(1));
  sheet_list(sheet, "models"), sheet_list(sheet, "plans"), sheet_list(sheet, "layouts");
  Exit e = check_all(o, sheet, messages);
  fclose(messages);
  sheet_put(sheet, "{diagnostics}", as_json(arena_printf(o->c->arena, "[%s]", text)));
  sheet_json(stdout, sheet);
  free(text);
  return e;
}

Exit cmd_check(Cli *o) { return o->value[OPT_JSON] ? check_json(o) : check_all(o, NULL, NULL); }

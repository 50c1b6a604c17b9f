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

typedef struct Found { /* over all files, for --json */
  FILE *models, *plans, *layouts, *messages;
  bool any_model, any_plan, any_layout, any_message;
} Found;

typedef enum Fits { FITS_UNKNOWN, FITS, FITS_NOT, FITS_LATER } Fits; /* LATER: not built yet */
static const char *const fits_words[] = {"", " (fits)", " (does not fit)", " (not judged)"};
_Static_assert(COUNT_OF(fits_words) == FITS_LATER + 1, "words per Fits");

/* 124439808 -> 124,439,808 */
static const char *grouped(Ctx *c, long long n) {
  if (n < 1000) return arena_printf(c->arena, "%lld", n);
  return arena_printf(c->arena, "%s,%03lld", grouped(c, n / 1000), n % 1000);
}

static void say_model(const Cli *o, const CheckedModel *m) {
  const char *count = m->counted ? grouped(o->c, (long long)m->parameters) : "an open number of";
  printf("%s: %s parameters\n", m->name, count);
}

static void list_model(Found *found, const CheckedModel *m) {
  fputs(found->any_model ? ",{\"name\":" : "{\"name\":", found->models);
  json_put_string(found->models, m->name);
  fputs(",\"parameters\":", found->models);
  if (m->counted) fprintf(found->models, "%lld}", (long long)m->parameters);
  else fputs("null}", found->models);
  found->any_model = true;
}

static void say_layouts(const Cli *o, const CheckResult *result, Str model) {
  for (uint32_t i = 0; i < result->layouts.n; i++)
    if (result->layouts.at[i].model == model)
      printf("  layout %s: %s\n", result->layouts.at[i].figures.name,
             layout_words(o->c->arena, &result->layouts.at[i].figures));
}

static void list_layout(Found *found, const CheckedLayout *l) {
  if (found->any_layout) putc(',', found->layouts);
  layout_json(found->layouts, &l->figures, l->model);
  found->any_layout = true;
}

/* ---- plans ---- */

static void list_plan(Found *found, const CheckedPlan *plan, Fits fits) {
  fputs(found->any_plan ? ",{\"name\":" : "{\"name\":", found->plans);
  json_put_string(found->plans, plan->name);
  fprintf(found->plans, ",\"fits\":%s}",
          fits == FITS       ? "true"
          : fits == FITS_NOT ? "false"
                             : "null");
  found->any_plan = true;
}

/* 4 plans: cpu (fits), zero2 (fits), .. */
static void say_plans(const CheckResult *result, const Fits *fits) {
  if (result->plans.n) printf("%u plan%s: ", result->plans.n, result->plans.n > 1 ? "s" : "");
  for (uint32_t i = 0; i < result->plans.n; i++)
    printf("%s%s%s", i ? ", " : "", result->plans.at[i].name, fits_words[fits[i]]);
  if (result->plans.n) printf("\n");
}

static void not_judged(Cli *o, const CheckedPlan *plan) {
  Report *r =
      diag_at(o->c->diag, "N0801", plan->span, "the memory of plan `%s` is not judged", plan->name);
  diag_label(r, "it asks for what is not built yet");
}

/* The same as `plan` does; its errors become those of the check. */
static Fits judge(Cli *o, const char *path, const CheckedPlan *plan) {
  Cli one = *o;
  Module *m;
  one.c = ctx_new(), one.planning = true;
  one.c->input = o->c->input, one.c->input_length = o->c->input_length; /* of a pipe */
  one.c->input_path = o->c->input_path;
  one.operands = (Strings){0};
  vec_push(one.c->arena, one.operands, path);
  one.value[OPT_PLAN] = plan->name;
  PipelineOptions until = {.until = "prove", .verify = true};
  Programs all;
  bool fits = load_module(&one, &m) == EXIT_FINE && describe_target(&one, m) == EXIT_FINE &&
              pipeline_classes(m, &until, &all) && programs_fit(&one, &all);
  if (fits) {
    nodes_warn(&one, &all);
    if (diag_given(one.c->diag, "W0701")) diag_take(o->c->diag, one.c->diag, "W0701");
    else ctx_free(one.c);
    return FITS;
  }
  if (diag_given(one.c->diag, "E0901")) return ctx_free(one.c), not_judged(o, plan), FITS_LATER;
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

static Exit check_shard(Cli *o, const char *path, Found *found) {
  CheckResult result = {0};
  if (!check_program(o->c, path, &result)) return EXIT_ENVIRONMENT;
  if (!diag_errors(o->c->diag)) check_data_files(o, &result);
  bool said = !found && !diag_errors(o->c->diag) && !o->value[OPT_QUIET];
  const Fits *fits = judge_plans(o, path, &result);
  for (uint32_t i = 0; i < result.models.n; i++)
    if (found) list_model(found, &result.models.at[i]);
    else if (said)
      say_model(o, &result.models.at[i]), say_layouts(o, &result, result.models.at[i].name);
  for (uint32_t i = 0; found && i < result.layouts.n; i++)
    list_layout(found, &result.layouts.at[i]);
  for (uint32_t i = 0; found && i < result.plans.n; i++)
    list_plan(found, &result.plans.at[i], fits[i]);
  if (said) say_plans(&result, fits);
  return EXIT_FINE;
}

static Exit check_file(Cli *o, const char *path, Found *found) {
  FileKind kind = file_kind(o->c, path);
  size_t n = 0;
  const char *text = kind == FILE_SHARD ? "" : file_read(o->c, path, &n);
  if (!text) return EXIT_ENVIRONMENT;
  if (kind == FILE_SHARD) return check_shard(o, path, found);
  Module *m = ir_parse(o->c, path, text, n);
  return m && target_complete(m) && ir_verify(m) ? EXIT_FINE : EXIT_INPUT;
}

/* Every file is checked for itself: what one declares means nothing to the next. */
static Exit check_all(Cli *o, Found *found) {
  Exit worst = EXIT_FINE;
  for (uint32_t i = 0; i < o->operands.n; i++) {
    Cli one = *o;
    one.c = ctx_new();
    Exit e = check_file(&one, o->operands.at[i], found);
    e = found ? exit_of(&one, e) : cli_report(&one, e);
    if (found)
      found->any_message |= diag_print_list(one.c->diag, found->messages, found->any_message);
    if (e > worst) worst = e;
    ctx_free(one.c);
  }
  return worst;
}

static Exit check_json(Cli *o) {
  char *models = NULL, *plans = NULL, *layouts = NULL, *messages = NULL;
  size_t n;
  Found found = {.models = heap_stream(&models, &n),
                 .plans = heap_stream(&plans, &n),
                 .layouts = heap_stream(&layouts, &n),
                 .messages = heap_stream(&messages, &n)};
  if (!found.models || !found.plans || !found.layouts || !found.messages) bug("no memory");
  Exit e = check_all(o, &found);
  fclose(found.models), fclose(found.plans), fclose(found.layouts), fclose(found.messages);
  printf("{\"schema\":1,\"models\":[%s],\"plans\":[%s],\"layouts\":[%s],\"diagnostics\":[%s]}\n",
         models, plans, layouts, messages);
  free(models), free(plans), free(layouts), free(messages);
  return e;
}

Exit cmd_check(Cli *o) { return o->value[OPT_JSON] ? check_json(o) : check_all(o, NULL); }

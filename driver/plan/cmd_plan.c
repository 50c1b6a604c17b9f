/* `shardc plan`: the cost of a plan before anything runs. The passes run up to `memory`, no kernel
   is compiled; the figures are those of the program, not estimates, except for the time of a step,
   which is a lower bound from the machine block: arithmetic at its peak, concurrent with the
   traffic of its links. Ranks of a class run one program, so the command takes as long for a
   thousand ranks as for two. */
#include "plan_report.h"
#include "plan_search.h"
#include "driver/layout/layout_drawing.h"
#include "ir/cost/count.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <stdlib.h>

/* ---- the figures ---- */

static Exit find_programs(Cli *o, Planned *planned) {
  PipelineOptions until = {.until = "prove", .verify = !o->value[OPT_NO_VERIFY]};
  Module *all;
  Exit e = load_module(o, &all);
  if (e == EXIT_FINE) e = describe_target(o, all);
  if (e == EXIT_FINE && !pipeline_classes(all, &until, &planned->programs)) e = EXIT_INPUT;
  for (uint32_t i = 0; e == EXIT_FINE && i < planned->programs.n; i++)
    if (!flights_check(o, planned->programs.at[i])) e = EXIT_INPUT;
  return e;
}

static void find_later(Planned *planned) {
  const Fn *later = module_later_step(planned->m);
  planned->later = plan_step(planned->programs.at, planned->programs.n, later),
  planned->steps = train_steps(planned->m);
  planned->later_forecast = plan_forecast(planned->programs.at, planned->programs.n, later);
  planned->phase = later ? fn_phase(later) : PHASE_none;
  planned->from = later ? fmax((double)fn_phase_from(later), 0) : 0;
}

static Module *hosting_class(const Planned *planned) {
  Module *most = planned->m;
  for (uint32_t i = 0; i < planned->programs.n; i++)
    if (module_host(planned->programs.at[i]).total > module_host(most).total)
      most = planned->programs.at[i];
  return most;
}

static Exit find_plan(Cli *o, Planned *planned) {
  Exit e = find_programs(o, planned);
  if (e != EXIT_FINE) return e;
  plan_classes(planned);
  planned->hosting = hosting_class(planned), planned->need = module_budget(planned->m);
  planned->host = module_host(planned->hosting);
  EACH_FN (planned->m, f) {
    int64_t n = f->kind == FN_ENTRY ? attr_int(&f->attrs, ATTR_frame, 0) : 0;
    if (n > planned->frame) planned->frame = n;
  }
  planned->machine = plan_machine(planned->m), planned->checkpoint = plan_checkpoint(o);
  planned->step = plan_step(planned->programs.at, planned->programs.n, ir_main_entry(planned->m));
  planned->forecast =
      plan_forecast(planned->programs.at, planned->programs.n, ir_main_entry(planned->m));
  find_later(planned);
  planned->fits = !planned->machine.memory || fit_check(o, planned->m);
  planned->fits = fit_hosts(o, &planned->programs) && planned->fits;
  if (planned->fits) nodes_warn(o, &planned->programs);
  plan_offload_tries(o, planned);
  plan_alternative_tries(o, planned);
  const char *trace = o->value[OPT_MEASURED];
  if (trace && !plan_measure(planned, trace)) return EXIT_INPUT;
  return EXIT_FINE;
}

/* ---- the topics ---- */

void topic_head(Sheet *sheet, const Planned *planned) {
  long long ranks = (long long)mesh_ranks(planned->m);
  sheet_title(sheet, arena_printf(planned->m->arena, "plan %s for %s: %lld rank%s (%s)",
                                  *planned->name ? planned->name : "(none written)",
                                  planned->m->model, ranks, ranks == 1 ? "" : "s",
                                  planned->m->mesh.n ? mesh_words(planned->m) : "one rank"));
  sheet_put(sheet, "{schema}{plan}{model}{ranks}", as_count(1), as_text(planned->name),
            as_text(planned->m->model), as_count((double)ranks));
}

/* Attention over the sequence: whether its operations are a bound, and how the ranks that the
   others wait for compare with the mean. */
static void put_scores(Sheet *sheet, const Module *m) {
  RankScores scores = ir_rank_scores(m, ir_main_entry(m));
  double mean = scores.mean > 0 ? scores.mean : 1;
  bool dealt = false;
  for (uint32_t i = 0; i < m->rules.n; i++) dealt |= m->rules.at[i].pieces > 0;
  sheet_say_if(sheet, scores.bound,
               "FLOP of attention are a bound: kernels skip blocks of scores between documents "
               "(numbers that a mask compares)\n");
  if (scores.most <= 1.0005 * scores.least) return;
  sheet_say(sheet, "attention of a rank: {attention.least:.2} to {attention.most:.2} of the mean",
            as_number(scores.least / mean), as_number(scores.most / mean));
  sheet_say_if(sheet, !dealt && scores.most > 1.05 * mean,
               " (`balanced` after the axis in the `place` line deals positions out evenly)");
  sheet_say(sheet, "\n");
}

void topic_work(Sheet *sheet, const Planned *planned) {
  const PlanStep *step = &planned->step;
  double bubble = step->waited > 0 ? step->waited / (step->flop + step->waited) : 0;
  sheet_say(sheet,
            "a step: {flop_per_step} FLOP per rank{}, {memory_bytes_per_step} between kernels and "
            "memory\n",
            as_flop(step->flop), as_text(planned->programs.n > 1 ? " of the busiest class" : ""),
            as_bytes(step->moved));
  put_scores(sheet, planned->m);
  sheet_say_if(sheet, step->waited > 0,
               "and {waited_flop_per_step} FLOP of other stages, for which it waits: a bubble of "
               "{bubble:.0}\n",
               as_flop(step->waited), as_share(bubble));
}

void topic_layouts(Sheet *sheet, const Planned *planned) {
  const Module *m = planned->m;
  LayoutList all = module_layouts(m);
  for (uint32_t i = 0; i < all.n; i++) {
    sheet_say(sheet, "layout {}: {}\n", as_text(all.at[i].name),
              as_text(layout_words(m->arena, &all.at[i])));
    sheet_open(sheet, "layouts[]"), layout_figures(sheet, &all.at[i]), sheet_close(sheet);
  }
  for (uint32_t i = 0; i < m->lists.n; i++) lists_figures(sheet, m->arena, &m->lists.at[i]);
}

void topic_step_time(Sheet *sheet, const Planned *planned) {
  plan_time_of(sheet, planned, &planned->step);
}

void topic_step_traffic(Sheet *sheet, const Planned *planned) {
  plan_traffic_of(sheet, planned, &planned->step);
}

static Sheet *plan_sheet(const Planned *planned) {
  Sheet *sheet = sheet_new(planned->m->arena);
#define TOPIC(name, contents) topic_##name(sheet, planned);
#include "plan_topics.def"
#undef TOPIC
  return sheet;
}

/* ---- the command ---- */

/* State shared by all plans of a call. */
typedef struct Planning {
  Cli *o;
  PlanPage *page; /* NULL: none is wanted */
  const char *model;
  bool array;     /* their JSON is one array */
  uint32_t shown; /* of its items */
} Planning;

static Exit draw(Planning *planning, const Planned *planned, const Sheet *sheet) {
  const char *path = planning->o->value[OPT_SVG];
  char *text = NULL;
  size_t n;
  planning->model = arena_printf(planning->o->c->arena, "%s", planned->m->model);
  if (planning->page) plan_page_add(planning->page, planned, sheet);
  if (!path) return EXIT_FINE;
  FILE *out = heap_stream(&text, &n);
  plan_svg(out, planned);
  fclose(out);
  Exit e = write_text(planned->m->ctx, path, text, n);
  free(text);
  return e;
}

static bool to_stdout(const char *path) { return path && !strcmp(path, "-"); }

static Exit plan_one(Planning *planning, const char *name) {
  Cli one = cli_again(planning->o);
  one.planning = true;
  one.value[OPT_PLAN] = *name ? name : NULL;
  Planned planned = {.name = name, .fits = true};
  Exit e = find_plan(&one, &planned);
  bool quiet = to_stdout(one.value[OPT_HTML]) || to_stdout(one.value[OPT_SVG]);
  if (e == EXIT_FINE) {
    if (planning->page || one.value[OPT_SVG]) planned.timeline = module_timeline(planned.m);
    const Sheet *sheet = plan_sheet(&planned);
    if (planning->array) putchar(planning->shown++ ? ',' : '[');
    if (one.value[OPT_JSON] || !quiet) sheet_show(sheet, one.value[OPT_JSON]);
    e = draw(planning, &planned, sheet);
  }
  e = cli_report(&one, e);
  ctx_free(one.c);
  return e;
}

static bool lacks_name(const char *list) {
  size_t n = strlen(list);
  return *list == ',' || (n && list[n - 1] == ',') || strstr(list, ",,");
}

/* Plans by name, separated by commas; without --plan, those of FILE for the model, or the one of a
   dump. */
Exit cmd_plan(Cli *o) {
  const char *names = o->value[OPT_PLAN], *page = o->value[OPT_HTML];
  if ((o->value[OPT_JSON] != NULL) + to_stdout(page) + to_stdout(o->value[OPT_SVG]) > 1)
    return cli_usage("one of `--json`, `--html -` and `--svg -`: each writes to stdout");
  Exit options = check_search_options(o);
  if (options != EXIT_FINE) return options;
  if (names && lacks_name(names))
    return cli_usage("`--plan %s`: a name is missing before or after a comma", names);
  FileKind kind = file_kind(o->c, o->operands.at[0]); /* reads standard input for all plans */
  if (o->value[OPT_SEARCH] && kind == FILE_SHARD) return plan_search(o);
  if (o->value[OPT_SEARCH] && kind == FILE_IR)
    return cli_usage("`--search` needs a model file, not a dump");
  if (!names) names = kind == FILE_IR ? "" : program_plans(o->c, o->operands.at[0]);
  if (!names) return cli_report(o, EXIT_ENVIRONMENT);
  if (o->value[OPT_SVG] && strchr(names, ','))
    return cli_usage("`--svg` draws one plan: --plan NAME");
  if (o->value[OPT_MEASURED] && strchr(names, ','))
    return cli_usage("`--measured` is about one plan: --plan NAME");
  Planning planning = {.o = o, .page = page ? plan_page_new(o->c->arena) : NULL, .model = ""};
  planning.array = o->value[OPT_JSON] && strchr(names, ',');
  Exit worst = EXIT_FINE;
  do {
    size_t n = strcspn(names, ",");
    Exit e = plan_one(&planning, arena_strndup(o->c->arena, names, n));
    if (e == EXIT_USAGE) return e; /* so it is for all of them */
    if (e > worst) worst = e;
    names += n, names += *names == ',';
    if (*names && !o->value[OPT_JSON] && !to_stdout(page)) putchar('\n');
  } while (*names);
  if (planning.array && !planning.shown) putchar('[');
  if (planning.array) putchar(']'), putchar('\n');
  if (!page) return worst;
  Exit e = cli_report(o, plan_page_write(planning.page, o->c, planning.model, page));
  return e == EXIT_FINE ? worst : e;
}

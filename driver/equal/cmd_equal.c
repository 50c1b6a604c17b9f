/* `shardc equal`: shows in exact arithmetic that the programs of all ranks compute the model
   (ir/interp/equal.h). The model is the program of one rank after pass `micro`; the programs are
   those of every class of ranks after pass `prove`, in bytes. They run with messages that arrive as
   late as they may, and once more as early as they may, in small buckets of `zero`, at the small
   sizes of equal_sizes.c, with the layers and the lines of the plan. If they differ, the passes in
   between are tried one by one, and the first after which the programs differ is named. With
   two dumps the first is the model, and sizes are as written. */
#include "driver/sheet/sheet.h"
#include "driver/fit/fit.h"
#include "equal_sizes.h"
#include "ir/interp/equal.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "passes/pass.h"
#include "passes/simplify/simplify.h"

enum { STEPS = 2 };

typedef struct EqualRun {
  Cli *o; /* with the sizes that are compared */
  const char *sizes;
  bool buckets; /* the plan has some */
  bool made;    /* both sides could be made */
  int64_t ranks;
  uint32_t classes;
  EqualReport report;
} EqualRun;

static bool refuse_class(EqualRun *run, const Module *m, const char *path) {
  Report *r = diag_at(run->o->c->diag, "E1207", (Span){0},
                      "`%s` is the program of class `%s` alone", path, module_class_name(m));
  diag_help(r, "programs of all classes are compared: a dump from before `offload`");
  return false;
}

/* Operand number i, run to that pass, NULL: as it is; false: diagnostics were given. */
static bool make_side(EqualRun *run, uint32_t i, const char *until, EqualSide *side) {
  Cli *one = ARENA_NEW(run->o->c->arena, Cli);
  Programs *all = ARENA_NEW(run->o->c->arena, Programs);
  PipelineOptions options = {.until = until, .verify = true};
  Module *m = NULL;
  *one = cli_again(run->o), one->planning = true, one->operands = (Strings){0};
  vec_push(run->o->c->arena, one->operands, run->o->operands.at[i]);
  bool made = load_module(one, &m) == EXIT_FINE && describe_target(one, m) == EXIT_FINE;
  if (made && *module_class_name(m)) return refuse_class(run, m, one->operands.at[0]);
  if (made && !until) *all = (Programs){1, {m}};
  made = made && (!until || pipeline_classes(m, &options, all));
  diag_take(run->o->c->diag, one->c->diag, "E");
  if (!made) return false;
  if (pass_number(m->after) <= pass_number("micro")) simplify_module(m, true);
  *side = (EqualSide){.programs = all->at, .n = all->n};
  side->whole = pass_number(m->after) < pass_number("localize");
  side->placed = pass_number(m->after) >= pass_number("memory");
  return true;
}

/* Are the programs equal after that pass? False also if they could not be made. */
static bool compare_after(EqualRun *run, const char *pass, bool early) {
  run->made = false;
  uint32_t last = run->o->operands.n - 1;
  EqualTask task = {.seed = 1, .steps = STEPS};
  if (!make_side(run, 0, last ? NULL : "micro", &task.model) ||
      !make_side(run, last, pass, &task.ranks))
    return false;
  task.ranks.early = early, run->made = true;
  run->ranks = mesh_ranks(task.ranks.programs[0]), run->classes = task.ranks.n;
  return programs_equal(&task, &run->report);
}

/* ---- differences ---- */

/* The first pass after which the programs differ. */
static const char *first_fault(EqualRun *run) {
  uint32_t n;
  const Pass *table = pass_table(&n);
  EqualReport shown = run->report;
  const char *found = "prove";
  for (uint32_t i = pass_number("micro"); i < n && !diag_errors(run->o->c->diag); i++)
    if (table[i].run && !compare_after(run, table[i].name, false)) {
      found = table[i].name;
      break;
    }
  run->report = shown;
  return found;
}

static const char *repeated(const EqualRun *run) {
  static const struct {
    CliOption option;
    const char *words;
  } choices[] = {{OPT_MODEL, "model"}, {OPT_TRAIN, "train"}, {OPT_PLAN, "plan"}};
  const Cli *o = run->o;
  const char *text = arena_printf(o->c->arena, "shardc equal %s", o->operands.at[0]);
  for (size_t i = 0; i < COUNT_OF(choices); i++)
    if (o->value[choices[i].option])
      text = arena_printf(o->c->arena, "%s --%s %s", text, choices[i].words,
                          o->value[choices[i].option]);
  return text;
}

static Exit say_difference(EqualRun *run) {
  Diag *diag = run->o->c->diag;
  const EqualReport *report = &run->report;
  bool two = run->o->operands.n > 1;
  const char *pass = two ? NULL : first_fault(run);
  Report *r =
      diag_at(diag, "E1208", (Span){0}, "%s",
              two ? "the programs compute other values" : "the plan computes another model");
  if (report->global)
    diag_fact(r, "after @%s `%s`, element %lld: %s", report->entry, report->global,
              (long long)report->element, report->why);
  else diag_fact(r, "in @%s: %s", report->entry, report->why);
  if (*run->sizes) diag_fact(r, "at %s", run->sizes);
  if (pass) diag_fact(r, "the programs differ from pass `%s` on: an error of shardc", pass);
  if (pass) diag_help(r, "this repeats it: %s", repeated(run));
  return two ? EXIT_NO : EXIT_BUG;
}

/* ---- the command ---- */

static Exit find_sizes(EqualRun *run, bool strict) {
  LowerFacts facts;
  Cli one = cli_again(run->o);
  if (file_kind(run->o->c, run->o->operands.at[0]) != FILE_SHARD) return EXIT_FINE;
  Module *m = load_shard(&one, run->o->operands.at[0], &facts);
  diag_take(run->o->c->diag, one.c->diag, "E");
  if (!m) return EXIT_INPUT;
  run->buckets = module_whole(m, "plan.zero") > 0;
  equal_sizes(run->o, m, strict, &run->sizes);
  return EXIT_FINE;
}

static void say_equal(const EqualRun *run) {
  Sheet *sheet = sheet_new(run->o->c->arena);
  sheet_put(sheet, "{schema}", as_count(1));
  sheet_say(sheet, "equal: {ranks} rank{}, {classes} program{}; {steps} steps and an evaluation\n",
            as_count((double)run->ranks), as_text(run->ranks > 1 ? "s" : ""),
            as_count(run->classes), as_text(run->classes > 1 ? "s" : ""), as_count(STEPS));
  sheet_say_if(sheet, *run->sizes, "  at the sizes {sizes}\n", as_text(run->sizes));
  sheet_say(sheet, "  a wrong program passes with a chance below {}\n", as_text("2^-40"));
  sheet_show(sheet, run->o->value[OPT_JSON] != NULL);
}

/* Small groups of parameters fill one bucket of `zero`, where those of the plan fill many. So the
   second run has buckets of a few numbers, unless the plan allows none. */
static bool compare_early(EqualRun *run) {
  Cli small = cli_again(run->o);
  EqualRun again = *run;
  if (!run->buckets) return compare_after(run, "prove", true);
  again.o = &small;
  vec_push(run->o->c->arena, small.sets, "plan.zero.bucket=256");
  bool equal = compare_after(&again, "prove", true), refused = diag_errors(small.c->diag);
  if (refused) return compare_after(run, "prove", true);
  run->o->sets = small.sets, run->report = again.report, run->made = again.made;
  return equal;
}

/* In a context of its own. False: the sizes do not meet a rule of a pass. */
static bool try_sizes(const Cli *o, bool strict, Exit *e) {
  Cli one = cli_again(o);
  EqualRun run = {.o = &one, .sizes = ""};
  *e = find_sizes(&run, strict);
  bool equal = *e == EXIT_FINE && compare_after(&run, "prove", false) && compare_early(&run);
  bool refused = diag_errors(one.c->diag);
  if (refused && !strict) return ctx_free(one.c), false;
  bool differs = !equal && run.made;
  if (!equal && !refused && !run.made && *e == EXIT_FINE) *e = EXIT_USAGE; /* that was said */
  if (differs) *e = say_difference(&run);
  if (equal && !o->value[OPT_QUIET]) say_equal(&run);
  Exit reported = cli_report(&one, *e);
  if (!differs) *e = reported;
  return ctx_free(one.c), true;
}

/* A dump of ranks alone would be compared with itself, and a file has other sizes than a dump. */
static Exit check_operands(const Cli *o) {
  bool file = file_kind(o->c, o->operands.at[0]) == FILE_SHARD;
  if (o->operands.n > 1 && (file || file_kind(o->c, o->operands.at[1]) == FILE_SHARD))
    return cli_usage("two operands of `equal` are dumps: `dump --after micro` writes the model");
  if (o->operands.n > 1 || file) return EXIT_FINE;
  Cli one = cli_again(o);
  Module *m;
  Exit loaded = load_module(&one, &m);
  bool local = loaded == EXIT_FINE && pass_number(m->after) >= pass_number("localize");
  ctx_free(one.c);
  if (loaded == EXIT_USAGE || !local) return loaded == EXIT_USAGE ? loaded : EXIT_FINE;
  return cli_usage("`%s` has the programs of ranks: `equal MODEL.ir %s`, with a dump of the model "
                   "after `micro`",
                   o->operands.at[0], o->operands.at[0]);
}

Exit cmd_equal(Cli *o) {
  Exit e = check_operands(o);
  if (e != EXIT_FINE) return e;
  if (!try_sizes(o, false, &e)) try_sizes(o, true, &e);
  return e;
}

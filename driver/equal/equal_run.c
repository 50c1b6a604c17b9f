/* The comparison of `shardc equal` and of every compile: shows in exact arithmetic that the
   programs of all ranks compute the model (ir/interp/equal.h). The model is the program of one rank
   after pass `micro`; the programs are those of every class of ranks after pass `prove`, in bytes.
   They run with messages that arrive as late as they may, and once more as early as they may, in
   small buckets of `zero`, at the small sizes of equal_sizes.c, with the layers and lines of the
   plan. If they differ, the passes in between are tried one by one, and the first after which the
   programs differ is named. With two dumps the first is the model, and sizes are as written; the
   second runs as it is, and after the passes that it has not been through.

   A limit of seconds is counted as work, so that the same file gives the same answer on every
   machine. Must not: change the module that is compiled. */
#include "equal_run.h"
#include "driver/fit/fit.h"
#include "equal_sizes.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"
#include "passes/pass.h"
#include "passes/simplify/simplify.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORK_PER_SECOND = 50000000, LEAST_BLOCK = 16 };

static bool refuse_class(EqualRun *run, const Module *m, const char *path) {
  Report *r = diag_at(run->o->c->diag, "E1207", (Span){0},
                      "`%s` is the program of class `%s` alone", path, module_class_name(m));
  diag_help(r, "programs of all classes are compared: a dump from before `offload`");
  return false;
}

/* Operand number i in the context of `one`, run to that pass, NULL: as it is; false: diagnostics
   were given. */
static bool make_side(EqualRun *run, Cli *one, uint32_t i, const char *until, EqualSide *side) {
  Programs *all = ARENA_NEW(run->o->c->arena, Programs);
  PipelineOptions options = {.until = until, .verify = true};
  Module *m = NULL;
  *one = cli_again(run->o), one->planning = true, one->operands = (Strings){0};
  one->value[OPT_TUNE_DB] = one->value[OPT_REQUIRE_TUNED] = NULL; /* of kernels of other sizes */
  vec_push(run->o->c->arena, one->operands, run->o->operands.at[i]);
  bool made = load_module(one, &m) == EXIT_FINE && describe_target(one, m) == EXIT_FINE;
  if (made && run->tight) module_set(m, "made.tight", "on");
  if (made && *module_class_name(m)) return refuse_class(run, m, one->operands.at[0]);
  if (made && !until) *all = (Programs){1, {m}};
  made = made && (!until || pipeline_classes(m, &options, all));
  diag_take(run->o->c->diag, one->c->diag, "E");
  if (!made) return false;
  *side = (EqualSide){.programs = all->at, .n = all->n};
  side->whole = pass_number(m->after) < pass_number("localize");
  if (side->whole) simplify_module(m, true); /* constants are rounded where they are folded */
  side->placed = pass_number(m->after) >= pass_number("memory");
  return true;
}

static const char *kept_text(const EqualRun *run, const char *text) {
  return text ? arena_strndup(run->o->c->arena, text, strlen(text)) : NULL;
}

/* Are the programs equal after that pass? False also if they could not be made. */
static bool compare_after(EqualRun *run, const char *pass, bool early) {
  uint32_t last = run->o->operands.n - 1;
  EqualTask task = {
      .seed = run->seed + early, .steps = run->steps, .work = run->limited ? &run->work : NULL};
  Cli model, ranks;
  run->made = false;
  if (!make_side(run, &model, 0, last ? NULL : "micro", &task.model)) return false;
  if (!make_side(run, &ranks, last, pass, &task.ranks)) return false; /* messages live on */
  task.ranks.early = run->early = early, run->made = true;
  run->ranks = mesh_ranks(task.ranks.programs[0]), run->classes = task.ranks.n;
  bool equal = programs_equal(&task, &run->report);
  run->report.why = kept_text(run, run->report.why);
  run->report.global = kept_text(run, run->report.global);
  run->report.entry = kept_text(run, run->report.entry);
  run->report.compared = kept_text(run, run->report.compared);
  run->report.left = kept_text(run, run->report.left);
  ctx_free(model.c), ctx_free(ranks.c);
  return equal;
}

/* ---- differences ---- */

/* The first pass after which the programs differ. */
static const char *first_fault(EqualRun *run) {
  uint32_t n;
  const Pass *table = pass_table(&n);
  EqualReport shown = run->report;
  bool early = run->early; /* as the run that differed */
  run->limited = false;
  const char *found = "prove";
  for (uint32_t i = pass_number("micro"); i < n && !diag_errors(run->o->c->diag); i++)
    if (table[i].run && !compare_after(run, table[i].name, early)) {
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

/* ---- one comparison ---- */

static Exit find_sizes(EqualRun *run, bool strict) {
  Cli one = cli_again(run->o);
  if (file_kind(run->o->c, run->o->operands.at[0]) != FILE_SHARD) return EXIT_FINE;
  Module *m = load_shard(&one, run->o->operands.at[0]);
  diag_take(run->o->c->diag, one.c->diag, "E");
  if (!m) return EXIT_INPUT;
  run->buckets = module_whole(m, "plan.zero") > 0, run->blocks = plan_int8_block(m) > LEAST_BLOCK;
  equal_sizes(run->o, m, strict, &run->sizes);
  return EXIT_FINE;
}

/* Small groups of parameters fill one bucket of `zero`, where those of the plan fill many. So the
   second run has buckets of a few numbers, unless the plan allows none, and each rank's piece has
   some of them; messages in 8 bits have the smallest blocks, which no piece cuts. */
static bool compare_early(EqualRun *run) {
  Cli small = cli_again(run->o);
  EqualRun again = *run;
  if (!run->buckets) return compare_after(run, "prove", true);
  again.o = &small, again.tight = true;
  vec_push(run->o->c->arena, small.sets, "plan.zero.bucket=256");
  if (run->blocks)
    vec_push(run->o->c->arena, small.sets,
             arena_printf(run->o->c->arena, "plan.precision.block=%d", LEAST_BLOCK));
  bool equal = compare_after(&again, "prove", true), refused = diag_errors(small.c->diag);
  if (refused) return compare_after(run, "prove", true);
  run->o->sets = small.sets, run->report = again.report, run->made = again.made,
  run->early = again.early, run->tight = true;
  return equal;
}

/* Passes may mend what a dump says, such as the norm that pass `zero` writes anew: so a dump of
   ranks is also run as it is. */
static bool compare_written(EqualRun *run) {
  return run->o->operands.n < 2 || compare_after(run, NULL, false);
}

bool equal_try(EqualRun *run, const Cli *o, bool strict, double seconds, Exit *e) {
  Cli *one = ARENA_NEW(o->c->arena, Cli);
  *one = cli_again(o);
  *run = (EqualRun){.o = one, .sizes = "", .limited = seconds > 0, .steps = 2, .seed = 1};
  if (cli_whole(one, OPT_STEPS, 1, MOST_NUMBER, &run->steps) != EXIT_FINE ||
      cli_whole(one, OPT_SEED, 1, MOST_NUMBER, &run->seed) != EXIT_FINE)
    return *e = EXIT_USAGE, true;
  run->work.left = (int64_t)(seconds * WORK_PER_SECOND);
  *e = find_sizes(run, strict);
  bool equal = *e == EXIT_FINE && compare_written(run) && compare_after(run, "prove", false) &&
               compare_early(run);
  bool refused = diag_errors(one->c->diag);
  if (refused && !strict) return ctx_free(one->c), false;
  bool unsaid = !equal && !refused && !run->made;
  if (unsaid && *e == EXIT_FINE) *e = EXIT_USAGE; /* the reason was reported */
  run->differs = !equal && run->made && !run->report.spent;
  if (run->differs) *e = say_difference(run);
  return true;
}

/* ---- of every compile ---- */

/* Entries of the module that were not compared: small sizes may have other ones, as where `decode`
   needs as many places as positions. */
static const char *left_entries(const EqualRun *run, const Module *m, Arena *arena) {
  const char *left = run->report.left;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const char *name = m->fns.at[i]->name;
    if (m->fns.at[i]->kind == FN_ENTRY && !text_lists(run->report.compared, name) &&
        !text_lists(left, name))
      left = arena_printf(arena, "%s%s%s", left, *left ? ", " : "", name);
  }
  return left;
}

static const char *equal_words(const EqualRun *run, Arena *arena, const Module *m) {
  long long ranks = (long long)mesh_ranks(m);
  const char *of = ranks == run->ranks ? "" : arena_printf(arena, " of %lld", ranks),
             *left = left_entries(run, m, arena);
  if (*left) left = arena_printf(arena, " (not %s)", left);
  return arena_printf(arena,
                      "%lld%s rank%s, %u program%s, %u entries%s; two runs over 2^51 numbers",
                      (long long)run->ranks, of, ranks > 1 ? "s" : "", run->classes,
                      run->classes > 1 ? "s" : "", run->report.entries, left);
}

/* False: reported. 0: off. */
static bool read_seconds(const Cli *o, double *seconds) {
  enum { USUAL = 5, MOST = 100000 };
  const char *given = o->value[OPT_EQUAL], *set = getenv("SHARDC_EQUAL"),
             *text = given         ? given
                     : set && *set ? set
                                   : NULL;
  char *end;
  *seconds = USUAL;
  if (!text) return true;
  *seconds = 0;
  if (!strcmp(text, "off")) return true;
  *seconds = strtod(text, &end);
  if (*text >= '0' && *text <= '9' && !*end && *seconds > 0 && *seconds <= MOST) return true;
  cli_usage("%s takes a number of seconds, up to %d, or `off`, not `%s`",
            given ? "`--equal`" : "SHARDC_EQUAL", MOST, text);
  return false;
}

/* stderr: where a difference is reported; all else is not said. */
static Exit show(const Cli *o, const Module *m, double seconds, int report, const char **words) {
  EqualRun run;
  Exit e = EXIT_FINE;
  if (!equal_try(&run, o, false, seconds, &e)) equal_try(&run, o, true, seconds, &e);
  if (run.differs) {
    *words = "differs", dup2(report, STDERR_FILENO);
    cli_report(run.o, e);
    return EXIT_BUG;
  }
  if (diag_errors(run.o->c->diag))
    *words =
        arena_printf(o->c->arena, "not shown: no small sizes meet the rules of the passes (%s)",
                     diag_first_code(run.o->c->diag));
  else if (run.report.spent) *words = arena_printf(o->c->arena, "not shown within %g s", seconds);
  else *words = equal_words(&run, o->c->arena, m);
  return EXIT_FINE;
}

static _Noreturn void show_and_end(const Cli *o, const Module *m, double seconds, int line) {
  const char *words = "";
  int report = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDERR_FILENO);
  Exit e = show(o, m, seconds, report, &words);
  if (write(line, words, strlen(words)) < 0) e = EXIT_ENVIRONMENT;
  _exit(e);
}

/* In a process of its own: an internal error of a pass at small sizes ends no compilation. */
static Exit show_apart(const Cli *o, const Module *m, double seconds, const char **words) {
  char text[512];
  int line[2], status;
  size_t n = 0;
  if (pipe2(line, O_CLOEXEC)) return EXIT_FINE;
  fflush(stdout), fflush(stderr);
  pid_t pid = fork();
  if (!pid) show_and_end(o, m, seconds, line[1]);
  close(line[1]);
  for (ssize_t got; pid > 0 && n < sizeof text; n += (size_t)got)
    if ((got = read(line[0], text + n, sizeof text - n)) <= 0) break;
  close(line[0]);
  bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && n;
  if (ended && WEXITSTATUS(status) == EXIT_BUG) return EXIT_BUG;
  if (ended && WEXITSTATUS(status) == EXIT_FINE) *words = arena_strndup(o->c->arena, text, n);
  return EXIT_FINE;
}

Exit equal_show(const Cli *o, const Module *m, const char **words) {
  double seconds;
  *words = NULL;
  if (!read_seconds(o, &seconds)) return EXIT_USAGE;
  if (seconds <= 0) return EXIT_FINE;
  *words = "not shown: compiled from IR";
  if (file_kind(o->c, o->operands.at[0]) != FILE_SHARD) return EXIT_FINE;
  *words = "not shown: the comparison failed; `shardc equal` says why";
  return show_apart(o, m, seconds, words);
}

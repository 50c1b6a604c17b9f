/* `shardc equal`: one comparison in exact arithmetic (equal_run.h), of a file and a plan, or of two
   dumps. Must not: compare. */
#include "driver/sheet/sheet.h"
#include "equal_run.h"
#include "passes/pass.h"

static void say_equal(const EqualRun *run) {
  Sheet *sheet = sheet_new(run->o->c->arena);
  sheet_put(sheet, "{schema}", as_count(1));
  sheet_say(sheet, "equal: {ranks} rank{}, {classes} program{}; {steps} steps\n",
            as_count((double)run->ranks), as_text(run->ranks > 1 ? "s" : ""),
            as_count(run->classes), as_text(run->classes > 1 ? "s" : ""),
            as_count((double)run->steps));
  sheet_say(sheet, "  entries: {entries}\n", as_text(run->report.compared));
  sheet_say_if(sheet, *run->report.left, "  not compared: {not_compared}\n",
               as_text(run->report.left));
  sheet_say_if(sheet, *run->sizes, "  at the sizes {sizes}\n", as_text(run->sizes));
  sheet_say(sheet, "  two runs over a field of 2^51 numbers\n");
  sheet_show(sheet, run->o->value[OPT_JSON] != NULL);
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
  EqualRun run;
  if (!equal_try(&run, o, false, 0, &e)) equal_try(&run, o, true, 0, &e);
  bool equal = e == EXIT_FINE && !diag_errors(run.o->c->diag);
  if (equal && !o->value[OPT_QUIET]) say_equal(&run);
  Exit reported = cli_report(run.o, e);
  ctx_free(run.o->c);
  return run.differs ? e : reported;
}

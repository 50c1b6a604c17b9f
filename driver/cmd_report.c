/* `shardc report RUN...`: one HTML page about run directories, written by the runtime, which reads
   its own files. With --follow the page is written again after each second in which a run goes on,
   until a signal ends that. */
#include "cmd.h"
#include "ir/support/input.h"
#include "ir/support/output.h"
#include "runtime/chart.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { RELOAD_SECONDS = 5 };

static bool has_flights(const Cli *o) {
  bool any = false;
  for (uint32_t i = 0; i < o->operands.n; i++) any |= rt_report_flights(stdout, o->operands.at[i]);
  return any;
}

static Exit write_report(Cli *o, const char *output, bool flights, int seconds) {
  char *text = NULL;
  size_t n = 0;
  Fault f = {0};
  FILE *page = heap_stream(&text, &n);
  bool good = rt_report(page, o->operands.at, (int)o->operands.n, seconds, &f);
  fclose(page);
  Exit e = EXIT_ENVIRONMENT;
  if (good) e = write_text(o->c, output, text, n);
  else if (flights && f.code / 100 == 2) e = EXIT_FINE; /* the job was lost before its first step */
  else
    diag_help(diag_at(o->c->diag, "E0001", (Span){0}, "`%s`: %s", f.where, f.what),
              "a run is the folder that `train --out FOLDER` wrote");
  free(text);
  if (good && e == EXIT_FINE && seconds != RELOAD_SECONDS && !o->value[OPT_OUTPUT] &&
      !o->value[OPT_QUIET])
    output_say(stderr, "%s: a page about %u run%s\n", output, o->operands.n,
               o->operands.n > 1 ? "s" : "");
  return e;
}

/* Changes whenever a run writes a step. */
static int64_t length_of_runs(const Cli *o) {
  int64_t sum = 0;
  struct stat info;
  for (uint32_t i = 0; i < o->operands.n; i++)
    if (!stat(arena_printf(o->c->arena, "%s/metrics.jsonl", o->operands.at[i]), &info))
      sum += info.st_size;
  return sum;
}

static Exit follow(Cli *o, const char *output) {
  sigset_t ends;
  sigemptyset(&ends), sigaddset(&ends, SIGINT), sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  Exit e = EXIT_FINE;
  const struct timespec second = {1, 0};
  for (int64_t before = -1; e == EXIT_FINE && sigtimedwait(&ends, NULL, &second) < 0;) {
    int64_t now = length_of_runs(o);
    if (now != before) e = write_report(o, output, false, RELOAD_SECONDS);
    before = now;
  }
  return e == EXIT_FINE ? write_report(o, output, false, 0) : e;
}

Exit cmd_report(Cli *o) {
  const char *output = o->value[OPT_OUTPUT] ? o->value[OPT_OUTPUT] : "report.html";
  if (o->value[OPT_FOLLOW] && !strcmp(output, "-"))
    return cli_usage("`--follow` writes a page again and again: it needs a file");
  bool flights = has_flights(o);
  for (uint32_t i = 0; i < o->operands.n; i++)
    text_note(o->c, arena_printf(o->c->arena, "%s/metrics.jsonl", o->operands.at[i]));
  if (!can_write(o->c, output)) return cli_report(o, EXIT_ENVIRONMENT);
  Exit e = o->value[OPT_FOLLOW] ? follow(o, output) : write_report(o, output, flights, 0);
  return cli_report(o, e);
}

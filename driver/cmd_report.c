/* `shardc report RUN...`: one HTML page about run directories, written by the runtime, which reads
   its own files. */
#include "cmd.h"
#include "runtime/chart.h"
#include <stdlib.h>

Exit cmd_report(Cli *o) {
  const char *output = o->value[OPT_OUTPUT] ? o->value[OPT_OUTPUT] : "report.html";
  char *text = NULL;
  size_t n = 0;
  Fault f = {0};
  bool flights = false;
  for (uint32_t i = 0; i < o->operands.n; i++)
    flights |= rt_report_flights(stdout, o->operands.at[i]);
  if (!can_write(o->c, output)) return cli_report(o, EXIT_ENVIRONMENT);
  FILE *page = heap_stream(&text, &n);
  if (!page) bug("no memory");
  bool good = rt_report(page, o->operands.at, (int)o->operands.n, &f);
  fclose(page);
  Exit e = EXIT_ENVIRONMENT;
  if (good) e = write_text(o->c, output, text, n);
  else if (flights && f.code / 100 == 2) e = EXIT_FINE; /* the job was lost before its first step */
  else diag_at(o->c->diag, "E0001", (Span){0}, "`%s`: %s", f.where, f.what);
  free(text);
  return cli_report(o, e);
}

/* Progress of a command (progress_line.h). Files do not replace lines, so only terminals get it.
   Must not: write to stdout. */
#include "progress_line.h"
#include "ir/support/output.h"
#include "runtime/base/base.h"
#include <stdarg.h>
#include <unistd.h>

void progress_say(const Cli *o, ProgressLine *progress, const char *format, ...) {
  double now = rt_now();
  if (progress->begun == 0) progress->begun = now;
  if (now - progress->begun < 1 || now - progress->said < 1) return;
  if (!isatty(STDERR_FILENO) || o->value[OPT_QUIET]) return;
  va_list list;
  va_start(list, format);
  const char *text = arena_vprintf(o->c->arena, format, list);
  va_end(list);
  progress->said = now;
  fputs("\r\033[K", stderr);
  output_say(stderr, "%s", text);
}

void progress_end(const ProgressLine *progress) {
  if (progress->said > 0) fputs("\r\033[K", stderr);
}

/* Where things are: from the places that ops carry to spans that the diagnostics can show, and how
   far a module has come.

   A Loc counts files in Module.sources; the diagnostics count their own. The two meet by the file's
   path, or its name: the front end has added the file already, a module read from a dump brings its
   text along.
 */
#include "ir.h"

static uint32_t diag_file(Module *m, const IrSource *s) {
  Diag *d = m->ctx->diag;
  const char *name = s->path ? s->path : s->name;
  for (uint32_t i = 1; i <= diag_source_count(d); i++)
    if (!strcmp(diag_source(d, i)->name, name)) return i;
  return diag_add_source(d, name, s->text, strlen(s->text));
}

Span loc_span(Module *m, Loc l) {
  if (!l.file || l.file > m->sources.n) return (Span){0};
  uint32_t file = diag_file(m, &m->sources.at[l.file - 1]);
  const Source *s = diag_source(m->ctx->diag, file);
  size_t at = 0;
  for (uint32_t line = 1; line < l.line && at < s->length; at++) line += s->text[at] == '\n';
  at += l.column ? l.column - 1 : 0;
  if (at > s->length) at = s->length;
  size_t rest = s->length - at;
  return (Span){file, (uint32_t)at, l.length < rest ? l.length : (uint32_t)rest};
}

/* Words of a module's first line from which a fence holds: the last rows of passes.def, in its
   order (tests/meta/house.py seam). */
static const struct {
  const char *pass;
  Fence fence;
} fences[] = {
    {"fuse", FENCE_FUSED},        {"order", FENCE_ORDERED},     {"select", FENCE_SELECTED},
    {"schedule", FENCE_SELECTED}, {"prefetch", FENCE_SELECTED}, {"memory", FENCE_PLACED},
    {"prove", FENCE_PLACED},
};

Fence module_fence(const Module *m) {
  for (size_t i = 0; i < sizeof fences / sizeof *fences; i++)
    if (!strcmp(m->after, fences[i].pass)) return fences[i].fence;
  return FENCE_NONE;
}

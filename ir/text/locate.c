/* Where things are: from the places that ops carry to spans that the diagnostics can show, and how
   far a module has come.

   A Loc counts files in Module.sources; the diagnostics count their own. The two meet by the file's
   path, or its name: the front end has added the file already, a module read from a dump brings its
   text along.
 */
#include "ir/ir.h"
#include "ir/support/num.h"

static uint32_t diag_file(const Module *m, const IrSource *s) {
  Diag *d = m->ctx->diag;
  const char *name = s->path ? s->path : s->name;
  for (uint32_t i = 1; i <= diag_source_count(d); i++)
    if (!strcmp(diag_source(d, i)->name, name)) return i;
  return diag_add_source(d, name, s->text, strlen(s->text));
}

Span loc_span(const Module *m, Loc l) {
  if (!l.file || l.file > m->sources.n) return (Span){0};
  uint32_t file = diag_file(m, &m->sources.at[l.file - 1]);
  const Source *source = diag_source(m->ctx->diag, file);
  size_t at = 0;
  for (uint32_t line = 1; line < l.line && at < source->length; at++)
    line += source->text[at] == '\n';
  at += l.column ? l.column - 1 : 0;
  if (at > source->length) at = source->length;
  size_t rest = source->length - at;
  return (Span){file, (uint32_t)at, l.length < rest ? l.length : (uint32_t)rest};
}

/* A module's first line names the last pass that ran; the table of passes says what that one and
   those before it have made, and the table of facts what the verifier then asks for. */
enum FactNumber {
#define FACT(name, word, fence, meaning) FACT_NUMBER_##name,
#include "passes/facts.def"
#undef FACT
};
enum FactMask {
#define FACT(name, word, fence, meaning) FACT_##name = 1 << FACT_NUMBER_##name,
#include "passes/facts.def"
#undef FACT
};

static const Fence fences[] = {
#define FACT(name, word, fence, meaning) fence,
#include "passes/facts.def"
#undef FACT
};

static const struct {
  const char *pass;
  unsigned makes, breaks;
} stages[] = {
#define PASS(name, run, needs, makes, breaks, help) {#name, makes, breaks},
#include "passes/passes.def"
#undef PASS
};

static unsigned facts_of(const Module *m) {
  unsigned facts = 0;
  for (size_t i = 0; i < COUNT_OF(stages); i++) {
    facts = (facts & ~stages[i].breaks) | stages[i].makes;
    if (!strcmp(m->after, stages[i].pass)) return facts;
  }
  return 0;
}

Fence module_fence(const Module *m) {
  Fence fence = FENCE_NONE;
  for (unsigned left = facts_of(m); left; left &= left - 1)
    if (fences[__builtin_ctz(left)] > fence) fence = fences[__builtin_ctz(left)];
  return fence;
}

bool module_is_typed(const Module *m) { return facts_of(m) & FACT_TYPED; }

bool module_is_collected(const Module *m) { return facts_of(m) & FACT_COLLECTED; }

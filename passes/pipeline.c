/* The runner of passes: checks the facts that each pass needs, times it, verifies after it, dumps
   after it.

   pipeline_run starts after the pass named by m->after, so a module read from a dump continues
   where it was written; passes_run takes a list. Facts are replayed from the masks of the passes
   before that point. A module that no longer verifies after a pass, and a signal inside of a pass,
   are errors of the compiler: the IR before the pass is written with the command that reproduces
   it. A diagnostic is an error of the user. All of them stop the run. */
#include "ir/cost/count.h"
#include "ir/plan/stage_class.h"
#include "ir/plan/stage_offload.h"
#include "crash.h"
#include "passes/base/rebuild.h"
#include "passes/machine/prove.h"
#include <errno.h>
#include <string.h>
#include <time.h>

static const Pass passes[] = {
#define PASS(name, run, needs, makes, breaks, help) {#name, run, needs, makes, breaks, help},
#include "passes.def"
#undef PASS
};

enum { PASSES = sizeof passes / sizeof *passes };
_Static_assert(FACT_COUNT < 32, "masks of properties have 32 bits, of which one is the sign");

static const struct {
  const char *word, *meaning;
} facts_table[] = {
#define FACT(name, word, fence, meaning) {word, meaning},
#include "facts.def"
#undef FACT
};

const Pass *pass_table(uint32_t *n) { return *n = PASSES, passes; }

const Pass *pass_find(const char *name) {
  for (uint32_t i = 0; i < PASSES; i++)
    if (!strcmp(passes[i].name, name)) return &passes[i];
  return NULL;
}

static unsigned facts_after(unsigned facts, const Pass *pass) {
  return pass->run ? (facts & ~pass->breaks) | pass->makes : facts;
}

/* Its place in the table, from 1; 0 for `lower` and for passes that are not of the table. */
uint32_t pass_number(const char *name) {
  const Pass *pass = pass_find(name);
  return pass ? (uint32_t)(pass - passes) + 1 : 0;
}

static bool replay_facts(const Module *m, unsigned *facts) {
  uint32_t done = pass_number(m->after);
  *facts = 0;
  for (uint32_t i = 0; i < done; i++) *facts = facts_after(*facts, &passes[i]);
  if (done || !strcmp(m->after, "lower")) return true;
  diag_at(m->ctx->diag, "E1202", (Span){0}, "no pass is called `%s` (`after` line)", m->after);
  return false;
}

/* ---- may it run? ---- */

static const char *maker_of(unsigned fact) {
  for (uint32_t i = 0; i < PASSES; i++)
    if (passes[i].run && passes[i].makes & fact) return passes[i].name;
  return NULL;
}

static bool has_needs(Module *m, const Pass *pass, unsigned facts) {
  unsigned missing = pass->needs & ~facts;
  if (!missing) return true;
  int first = __builtin_ctz(missing);
  Report *r = diag_at(m->ctx->diag, "E1203", (Span){0}, "pass `%s` needs a module that is `%s`",
                      pass->name, facts_table[first].word);
  diag_fact(r, "%s: %s", facts_table[first].word, facts_table[first].meaning);
  const char *maker = maker_of(1u << first);
  if (maker) diag_help(r, "run pass `%s` first", maker);
  return false;
}

/* A pass whose place is past runs again only if all it does is to clean up, and before `fuse`. */
static bool is_due(Module *m, const Pass *pass, unsigned facts) {
  bool past = pass_number(pass->name) && pass_number(pass->name) <= pass_number(m->after);
  bool cleans = pass->makes && !(pass->makes & ~(unsigned)(FACT_CLEAN | FACT_LOCAL));
  if (!past || (cleans && !(facts & FACT_FUSED))) return true;
  Report *r = diag_at(m->ctx->diag, "E1203", (Span){0}, "pass `%s` cannot run after `%s`",
                      pass->name, m->after);
  diag_fact(r, "its place is before; `shardc dump --list` shows the order");
  return false;
}

static bool may_run(Module *m, const Pass *pass, unsigned facts) {
  if (pass->run) return is_due(m, pass, facts) && has_needs(m, pass, facts);
  diag_at(m->ctx->diag, "E1203", (Span){0}, "pass `%s` is not built yet", pass->name);
  return false;
}

/* ---- IR that is written ---- */

typedef struct Text {
  const char *text;
  size_t n;
} Text;

static Text text_of(Module *m) {
  Text text;
  text.text = ir_dump(m, &text.n);
  return text;
}

static void dump(Module *m, const PipelineOptions *options, Text text, uint32_t number,
                 const char *name) {
  if (!options->dump_dir) return;
  const char *path = arena_printf(m->arena, "%s/%02u-%s.ir", options->dump_dir, number, name);
  FILE *f = fopen(path, "w");
  bool ok = f && fwrite(text.text, 1, text.n, f) == text.n;
  if (f && fclose(f)) ok = false;
  if (!ok)
    diag_at(m->ctx->diag, "E1201", (Span){0}, "cannot write `%s`: %s", path, strerror(errno));
}

static double milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void say_stats(Module *m, const char *name) {
  uint32_t kernels = 0, ops = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    ops += m->fns.at[i]->ops.n;
    kernels += m->fns.at[i]->kind == FN_KERNEL;
  }
  fprintf(stderr, "%-10s %4u functions (%u kernels), %5u ops  %s\n", name, m->fns.n, kernels, ops,
          ir_head(m));
}

/* ---- running ---- */

static void broken(Module *m, const Pass *pass, const CrashNote *note) {
  Report *r = diag_at(m->ctx->diag, "E1204", (Span){0},
                      "pass `%s` made IR that breaks the rules: an error of shardc", pass->name);
  if (!note || !crash_write(note)) return;
  diag_fact(r, "the IR before the pass is in %s", note->path);
  diag_help(r, "this repeats it: %.*s", (int)strcspn(crash_command(note), "\n"),
            crash_command(note));
}

static void run_pass(Module *m, const Pass *pass, const PipelineOptions *options) {
  must(pass->run, "pass %s is not built", pass->name);
  double begin = milliseconds();
  pass->run(m);
  if (pass_number(pass->name) > pass_number(m->after)) m->after = intern(m->ctx->names, pass->name);
  if (options->timings) fprintf(stderr, "%-10s %8.2f ms\n", pass->name, milliseconds() - begin);
}

/* Runs list while `note`, if there is one, holds the IR before each pass. */
static void run_list(Module *m, uint32_t n, const Pass *const *list, unsigned facts,
                     const PipelineOptions *options, CrashNote *note) {
  bool texts = options->dump_dir || note;
  Text text = texts ? text_of(m) : (Text){0};
  if (!pass_number(m->after)) dump(m, options, text, 0, "lower");
  for (uint32_t i = 0; i < n && !diag_errors(m->ctx->diag); i++) {
    const Pass *pass = list[i];
    if (!may_run(m, pass, facts)) return;
    if (note) crash_note(note, options->crash_dir, pass->name, text.text, text.n);
    bool last = i + 1 == n && !options->unread;
    if (texts || options->stats || last) m->was = module_count(m), m->was_known = true;
    run_pass(m, pass, options);
    facts = facts_after(facts, pass);
    if (diag_errors(m->ctx->diag)) return;
    if (texts) text = text_of(m);
    dump(m, options, text, pass_number(pass->name) ? pass_number(pass->name) : i + 1, pass->name);
    if (options->stats) say_stats(m, pass->name);
    if (options->verify && !ir_verify(m)) broken(m, pass, note);
  }
}

bool passes_run(Module *m, uint32_t n, const Pass *const *list, const PipelineOptions *options) {
  unsigned facts;
  if (!replay_facts(m, &facts)) return false;
  m->unread = options->unread;
  CrashNote *note = options->crash_dir ? crash_begin(m->arena) : NULL;
  run_list(m, n, list, facts, options, note);
  if (note) crash_end(note);
  return diag_errors(m->ctx->diag) == 0;
}

bool pipeline_run(Module *m, const PipelineOptions *options) {
  const Pass *list[PASSES];
  uint32_t n = 0,
           end = options->until && pass_find(options->until) ? pass_number(options->until) : PASSES;
  for (uint32_t i = pass_number(m->after); i < end; i++)
    if (passes[i].run) list[n++] = &passes[i];
  return passes_run(m, n, list, options);
}

/* ---- a program for each class of ranks ---- */

/* Until `parts` all ranks run one program; a dump may cover all ranks until `ends`; after that it
   needs a class. */
static const char parts[] = "combine", ends[] = "decode";

static bool is_between(const Module *m) {
  return pass_number(m->after) > pass_number(parts) && pass_number(m->after) <= pass_number(ends);
}

/* IR of all ranks holds one offload setting for all layers, so it cannot express a plan for some
   stages (class_offloads). */
static bool refuse_between(Module *m) {
  bool alike = true;
  StageClass end[STAGE_ENDS];
  int n = module_ends(m, end);
  for (int64_t s = 1; n && s <= end[n - 1].last; s++) alike &= stages_offload_alike(m, 0, s);
  if (!is_between(m) || alike) return false;
  Report *r = diag_at(m->ctx->diag, "E1207", (Span){0},
                      "IR after `%s` of ranks whose memories differ is of one class", m->after);
  diag_help(r, "`dump --class NAME`, or IR after `%s`", parts);
  return true;
}

bool pipeline_classes(Module *m, const PipelineOptions *options, Programs *out) {
  PipelineOptions before = *options;
  before.until = parts;
  StageClass class[STAGE_CLASSES];
  *out = (Programs){.n = 1, .at = {m}};
  uint32_t end = options->until ? pass_number(options->until) : PASSES;
  if (end <= pass_number(parts) || pass_number(m->after) > pass_number(ends) ||
      *module_class_name(m))
    return pipeline_run(m, options);
  if (!is_between(m) && !pipeline_run(m, &before)) return false;
  int n = module_classes(m, class);
  if (!n) return pipeline_run(m, options);
  must(n <= STAGE_CLASSES, "pipeline: %d classes of ranks", n);
  if (refuse_between(m)) return false;
  for (int i = 0; i < n; i++) {
    out->at[i] = ir_copy(m, arena_printf(m->arena, "stages %s", class[i].name));
    module_choose_class(out->at[i], class[i].name);
    if (!pipeline_run(out->at[i], options)) return false;
  }
  out->n = (uint32_t)n;
  return end < pass_number("prove") || prove_classes(out->at, out->n);
}

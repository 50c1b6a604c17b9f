/* `--tune-db` and `--require-tuned`: records from a file become settings of the module.

   The keys of kernels are known after `order`, so a copy of the module runs that far first; then
   only the records that its kernels ask for are written into the module, where every dump shows
   them and where a dump that is compiled later finds them again. Whatever is wrong with a record,
   the kernel falls back to the rule of its family. */
#include "tune_measure.h"
#include "codegen/codegen.h"
#include "ir/cost/kernel_record.h"
#include "ir/word_patterns.h"
#include "passes/tune/gpu.h"
#include "passes/pass.h"
#include <llvm-c/Core.h>
#include <stdlib.h>

/* ---- this machine ---- */

static char *plain(Ctx *c, const char *text, size_t n) { /* no tabs, nothing unprintable */
  char *s = arena_strndup(c->arena, text, n);
  for (char *p = s; *p; p++)
    if ((unsigned char)*p < 32) *p = ' ';
  return s;
}

Str tune_device(Ctx *c) {
  static const char mark[] = "model name\t: ";
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  Str name = NULL;
  while (file && !name && fgets(line, sizeof line, file))
    if (!strncmp(line, mark, sizeof mark - 1) && line[sizeof mark - 1] != '\n') {
      const char *at = line + sizeof mark - 1;
      name = intern(c->names, plain(c, at, strcspn(at, "\n")));
    }
  if (file) fclose(file);
  return name ? name : intern(c->names, "unknown");
}

Str tune_driver(Ctx *c) {
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  return intern_printf(c->names, "shardc %s LLVM %u.%u.%u", SHARDC_VERSION, major, minor, patch);
}

/* ---- files ---- */

bool tune_load(Cli *o, const char *path, TuneDb *db) {
  size_t n;
  char *text = file_read(o->c, path, &n);
  if (text) tune_db_read(o->c, path, text, n, target_kind, db);
  return text != NULL;
}

/* ---- kernels ---- */

static bool asked_for(const char *only, const Variants *variants) {
  for (size_t n; only && *only; only += n + (only[n] == ',')) {
    n = strcspn(only, ",");
    const char *names[] = {variants->family, variants->alias ? variants->alias : variants->family};
    for (int i = 0; i < 2; i++)
      if (strlen(names[i]) == n && !strncmp(names[i], only, n)) return true;
  }
  return !only;
}

/* NULL: no kernel, one of the host, or one of a family without variants. */
static const Variants *variants_of(const Module *m, const Fn *k) {
  if (k->kind != FN_KERNEL || kernel_on_host(m, k)) return NULL;
  return variants_find(attr_str(&k->attrs, ATTR_family, ""), m->target.device);
}

Tunables tune_kernels(Module *m, const char *only) {
  Tunables list = {0};
  if (module_on_gpu(m)) gpu_align(m); /* keys and cuts depend on it */
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    const Variants *variants = variants_of(m, k);
    if (!variants || !asked_for(only, variants)) continue;
    Tunable tunable = {variants, k, variants_key(m, variants, k)};
    uint32_t j = 0;
    while (j < list.n && (list.at[j].v != variants || list.at[j].key != tunable.key)) j++;
    if (j == list.n) vec_push(m->arena, list, tunable);
  }
  return list;
}

/* ---- into the module ---- */

static void lacking(Module *m, const Fn *k, const char *family, const char *key) {
  Report *r = diag_at(m->ctx->diag, "E1206", loc_span(m, k->loc),
                      "no tuning record for kernel `%s`: %s %s", k->name, family, key);
  diag_fact(r, "target %s, %s workers", m->target.name,
            arena_printf(m->arena, "%lld", (long long)m->target.workers));
  diag_help(r, "`shardc tune FILE` measures it; without --require-tuned the family's rule is used");
}

static void does_not_fit(Module *m, const Tunable *tunable, const TuneRecord *record) {
  Report *w =
      diag_at(m->ctx->diag, "W1207", loc_span(m, tunable->k->loc),
              "the tuning record of kernel `%s` does not fit it and is left out", tunable->k->name);
  diag_fact(w, "%s %s: %s", record->family, record->key,
            variants_text(m, tunable->v, &record->cut));
}

/* Settings for kernels of `of`, a module after `order`, go into `to`. */
static void write_settings(Module *to, Module *of, const TuneDb *db) {
  Tunables list = tune_kernels(of, NULL);
  int64_t workers = of->target.workers;
  for (uint32_t i = 0; i < list.n; i++) {
    const Tunable *tunable = &list.at[i];
    const TuneRecord *record =
        tune_db_find(db, intern(of->ctx->names, tunable->v->family), tunable->key, of->target.name,
                     workers, tune_device(of->ctx));
    if (record && tunable->v->fits(of, tunable->k, &record->cut))
      module_set(to, variants_setting(of, tunable->v, tunable->key), "%s",
                 variants_text(of, tunable->v, &record->cut));
    else if (record) does_not_fit(of, tunable, record);
  }
}

/* All records of the target, for the forecast: also those of other kernels, of which one may be the
   nearest. */
static void write_times(Module *to, const Module *of, const TuneDb *db) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < db->n; i++) {
    const TuneRecord *record = &db->at[i];
    if (record->target != of->target.name || record->workers != of->target.workers) continue;
    if (record->shape.bytes > 0 &&
        record == tune_db_find(db, record->family, record->key, record->target, record->workers,
                               tune_device(of->ctx)))
      kernel_record_set(to, n++, record->family, &record->shape, record->ns);
  }
}

/* Says so where no record is one of the target: the file changes nothing. */
static void check_any(Ctx *c, const char *path, const TuneDb *db, const TargetFacts *target) {
  const char *others = "", *lacks = db->n ? "none is of this target" : "it has none";
  for (uint32_t i = 0; i < db->n; i++) {
    const TuneRecord *record = &db->at[i];
    if (record->target == target->name && record->workers == target->workers) return;
    if (record->target == target->name) lacks = "none is of as many workers";
    const char *of = arena_printf(c->arena, "%s with %lld worker%s", record->target,
                                  (long long)record->workers, record->workers == 1 ? "" : "s");
    if (!text_lists(others, of)) others = arena_list(c->arena, others, "%s", of);
  }
  Report *r = diag_at(c->diag, "W1209", (Span){0}, "no record of `%s` is used: %s", path, lacks);
  diag_fact(r, "the target is %s with %lld worker%s", target->name, (long long)target->workers,
            target->workers == 1 ? "" : "s");
  if (db->n) diag_fact(r, "%u record%s of %s", db->n, db->n == 1 ? "" : "s", others);
  diag_help(r, "`shardc tune FILE -o %s` measures kernels for this target", path);
}

static void check_gaps(Module *settings, Module *of) {
  Tunables list = tune_kernels(of, NULL);
  for (uint32_t i = 0; i < list.n; i++) {
    const Tunable *tunable = &list.at[i];
    if (!module_setting(settings, variants_setting(of, tunable->v, tunable->key), NULL))
      lacking(settings, tunable->k, tunable->v->family, tunable->key);
  }
}

/* A copy that has run up to `order`; the module itself if that is where it is. NULL: diagnostics.
 */
static Module *ordered(Module *m) {
  if (!strcmp(m->after, "order")) return m;
  Module *copy = ir_copy(m, "copy for tuning");
  return pipeline_run(copy, &(PipelineOptions){.until = "order"}) ? copy : NULL;
}

static Exit check_selected(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    const Variants *variants = variants_of(m, k);
    if (variants && !attr_get(&k->attrs, ATTR_tuned))
      lacking(m, k, variants->family, variants_key(m, variants, k));
  }
  return diag_errors(m->ctx->diag) ? EXIT_INPUT : EXIT_FINE;
}

Exit use_records(Cli *o, Module *m) {
  const char *path = o->value[OPT_TUNE_DB];
  TuneDb db = {0};
  if (!path && !o->value[OPT_REQUIRE_TUNED]) return EXIT_FINE;
  if (module_fence(m) >= FENCE_ORDERED && strcmp(m->after, "order")) {
    if (path)
      return cli_usage("`%s` is IR after `%s`: its kernels are chosen already", o->operands.at[0],
                       m->after);
    return check_selected(m);
  }
  Exit e = describe_target(o, m);
  if (e != EXIT_FINE) return e;
  if (path && !tune_load(o, path, &db)) return EXIT_ENVIRONMENT;
  if (path) check_any(o->c, path, &db, &m->target);
  Module *of = ordered(m);
  if (!of) return EXIT_INPUT;
  if (path) write_settings(m, of, &db), write_times(m, of, &db);
  if (o->value[OPT_REQUIRE_TUNED]) check_gaps(m, of);
  return diag_errors(o->c->diag) ? EXIT_INPUT : EXIT_FINE;
}

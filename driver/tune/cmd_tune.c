/* `shardc tune`: measures variants of a model's kernels on this machine and writes records.

   A kernel starts with the cut of its family's rule. Decisions are taken one after the other, each
   between a few cuts that differ from the best one so far in that alone; all of them are measured
   in turn in one process. At last the best one meets the rule's cut once more, and replaces it only
   where it is clearly faster: a record never makes a kernel slower by the noise of a measurement.
   With --candidates=0 the cuts are every combination of all choices. */
#include "tune_measure.h"
#include "codegen/codegen.h"
#include "ir/support/output.h"
#include "passes/pass.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CANDIDATES = 12, ROUNDS = 9, BATCH = 24 };
static const double CLEARLY = 0.99;               /* of the rule's time */
static const double CONTEST = 0.4, LAST_WORD = 2; /* seconds */

static bool equal_cuts(const Cut *a, const Cut *b) { return !memcmp(a->at, b->at, sizeof a->at); }

static bool listed(const CutList *l, const Cut *c) {
  for (uint32_t i = 0; i < l->n; i++)
    if (equal_cuts(&l->at[i], c)) return true;
  return false;
}

bool tune_is_new(const TuneSearch *tune_search, const Cut *c) {
  return tune_search->t->v->fits(tune_search->m, tune_search->t->k, c) &&
         !listed(&tune_search->seen, c);
}

/* The fastest of the cuts that give the right numbers; cut 0 always does. */
static uint32_t fastest(const CutList *cuts, const Timing *timing) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < cuts->n; i++)
    if (timing[i].good && timing[i].share < timing[best].share) best = i;
  return best;
}

bool tune_contest(TuneSearch *tune_search, const CutList *cuts) {
  Timing timing[BATCH + 1];
  for (uint32_t from = 0; from < cuts->n; from += BATCH) {
    CutList batch = {0};
    vec_push(tune_search->m->arena, batch, tune_search->best);
    for (uint32_t i = from; i < cuts->n && i < from + BATCH; i++)
      vec_push(tune_search->m->arena, batch, cuts->at[i]);
    if (!tune_measure(tune_search->m, tune_search->t, &batch,
                      (TuneEffort){tune_search->rounds, tune_search->hurry ? 0 : CONTEST}, timing))
      return false;
    tune_search->best = batch.at[fastest(&batch, timing)];
  }
  return true;
}

/* The share of a stage in what may still be measured; the stages after it get theirs. */
static uint32_t share(const TuneSearch *tune_search, int stage) {
  uint32_t left =
      tune_search->most > tune_search->seen.n ? tune_search->most - tune_search->seen.n : 0;
  uint32_t stages = (uint32_t)(TUNE_STAGES - stage);
  return (left + stages - 1) / stages;
}

static bool by_stages(TuneSearch *tune_search) {
  for (int stage = 0; stage < TUNE_STAGES; stage++) {
    CutList near = {0}, chosen = {0};
    uint32_t most =
        share(tune_search, stage) + (stage ? 0 : 1); /* the first decision weighs most */
    tune_search->t->v->vary(tune_search->m, tune_search->t->k, &tune_search->best, stage, false,
                            &near);
    for (uint32_t i = 0; i < near.n && chosen.n < most; i++) {
      if (!tune_is_new(tune_search, &near.at[i])) continue;
      vec_push(tune_search->m->arena, chosen, near.at[i]);
      vec_push(tune_search->m->arena, tune_search->seen, near.at[i]);
    }
    if (chosen.n && !tune_contest(tune_search, &chosen)) return false;
  }
  return true;
}

static bool by_all(TuneSearch *tune_search) {
  for (int stage = 0; stage < TUNE_STAGES; stage++)
    for (uint32_t i = 0, n = tune_search->seen.n; i < n; i++) {
      CutList wide = {0};
      tune_search->t->v->vary(tune_search->m, tune_search->t->k, &tune_search->seen.at[i], stage,
                              true, &wide);
      for (uint32_t j = 0; j < wide.n; j++)
        if (tune_is_new(tune_search, &wide.at[j]))
          vec_push(tune_search->m->arena, tune_search->seen, wide.at[j]);
    }
  CutList rest = {.at = tune_search->seen.at + 1, .n = tune_search->seen.n - 1};
  return tune_contest(tune_search, &rest);
}

static Str today(Ctx *c) {
  char text[16];
  time_t now = time(NULL);
  struct tm day;
  strftime(text, sizeof text, "%Y-%m-%d", gmtime_r(&now, &day));
  return intern(c->names, text);
}

TuneEffort tune_last_effort(const TuneSearch *tune_search) {
  return (TuneEffort){4 * tune_search->rounds + 1, tune_search->hurry ? 0 : LAST_WORD};
}

/* The rule's cut against the best one. */
static bool decide(TuneSearch *tune_search, const Cut *rule, TuneRecord *record) {
  CutList both = {0};
  Timing timing[2];
  vec_push(tune_search->m->arena, both, *rule);
  if (!equal_cuts(rule, &tune_search->best))
    vec_push(tune_search->m->arena, both, tune_search->best);
  if (!tune_measure(tune_search->m, tune_search->t, &both, tune_last_effort(tune_search), timing))
    return false;
  uint32_t chosen = both.n > 1 && timing[1].good && timing[1].share < CLEARLY;
  record->cut = both.at[chosen], record->ns = timing[chosen].share * timing[0].ns,
  record->rule_ns = timing[0].ns;
  record->rounds = timing[0].rounds;
  return true;
}

static bool search(TuneSearch *tune_search, TuneRecord *record) {
  Cut rule = tune_search->t->v->rule(tune_search->m, tune_search->t->k);
  tune_search->best = rule;
  vec_push(tune_search->m->arena, tune_search->seen, rule);
  if (!(tune_search->most ? by_stages(tune_search) : by_all(tune_search)) ||
      !decide(tune_search, &rule, record))
    return false;
  Ctx *c = tune_search->o->c;
  record->family = intern(c->names, tune_search->t->v->family), record->key = tune_search->t->key;
  record->kind = tune_search->m->target.device, record->target = tune_search->m->target.name,
  record->device = tune_device(c);
  record->workers = tune_search->m->target.workers;
  record->driver = tune_driver(c), record->date = today(c);
  record->shape = kernel_shape(tune_search->m, tune_search->t->k);
  return true;
}

/* ---- the command ---- */

static void say(const TuneSearch *tune_search, uint32_t number, uint32_t all,
                const TuneRecord *record) {
  if (tune_search->o->value[OPT_QUIET]) return;
  output_say(stderr,
             "%u/%u  %-24s %s %s\n        rule %.1f us, best %.1f us, gain %.1f %%: %s (%u cuts)\n",
             number, all, tune_search->t->k->name, record->family, record->key,
             1e-3 * record->rule_ns, 1e-3 * record->ns, 100 * (record->rule_ns / record->ns - 1),
             variants_text(tune_search->m, tune_search->t->v, &record->cut), tune_search->seen.n);
}

static bool known(const TuneDb *db, const TuneRecord *record) {
  const TuneRecord *found = tune_db_find(db, record->family, record->key, record->target,
                                         record->workers, record->device);
  return found && found->device == record->device && found->shape.bytes > 0;
}

static bool has_record(Cli *o, Module *m, const TuneDb *db, const Tunable *t) {
  TuneRecord record = {.family = intern(o->c->names, t->v->family), .key = t->key};
  record.target = m->target.name, record.device = tune_device(o->c);
  record.workers = m->target.workers;
  return known(db, &record);
}

static Exit put_records(Cli *o, TuneDb *db, const char *output) {
  char *text = tune_db_text(o->c, db);
  return write_text(o->c, output, text, strlen(text));
}

static Exit check_only(Cli *o) {
  const char *only = o->value[OPT_ONLY];
  for (size_t n; only && *only; only += n + (only[n] == ',')) {
    n = strcspn(only, ",");
    const char *name = arena_strndup(o->c->arena, only, n);
    if (variants_find(name, DEVICE_CPU)) continue;
    return cli_usage("no family with variants is called `%s`; there are gemm, attention, "
                     "attention_grad",
                     name);
  }
  return EXIT_FINE;
}

/* Reports how the record's cut compares with n others. */
static void say_rivals(const TuneSearch *tune_search, const TuneRecord *record, long n) {
  TuneCheck c;
  if (!n || !tune_check(tune_search, &record->cut, (uint32_t)n, &c) ||
      tune_search->o->value[OPT_QUIET])
    return;
  output_say(
      stderr,
      "        rivals: %.1f us, best of %u cuts %.1f us, reached %.1f %% (%.1f .. %.1f): %s\n",
      1e-3 * c.pick_ns, c.cuts, 1e-3 * c.best_ns, 100 * c.reached, 100 * c.low, 100 * c.high,
      variants_text(tune_search->m, tune_search->t->v, &c.best));
}

typedef struct Limits { /* numbers of the command line */
  int64_t candidates, rounds, rivals;
} Limits;

static Exit measure_all(Cli *o, Module *m, TuneDb *db, const Limits *limits, const char *output) {
  Tunables list = tune_kernels(m, o->value[OPT_ONLY]);
  uint32_t done = 0;
  for (uint32_t i = 0; i < list.n; i++) {
    TuneSearch tune_search = {o,
                              m,
                              &list.at[i],
                              (int)limits->rounds,
                              o->value[OPT_ROUNDS] != NULL,
                              (uint32_t)limits->candidates,
                              {0},
                              {{0}}};
    TuneRecord record = {0};
    if (!o->value[OPT_AGAIN] && has_record(o, m, db, tune_search.t)) continue;
    if (!search(&tune_search, &record)) continue;
    tune_db_add(o->c, db, &record);
    say(&tune_search, i + 1, list.n, &record), done++;
    say_rivals(&tune_search, &record, limits->rivals);
    if (strcmp(output, "-") && put_records(o, db, output) != EXIT_FINE) return EXIT_ENVIRONMENT;
  }
  if (!o->value[OPT_QUIET])
    output_say(stderr, "%u of %u kernels measured, %u records in %s\n", done, list.n, db->n,
               strcmp(output, "-") ? output : "all");
  return EXIT_FINE;
}

static const char *records_of(Cli *o) { /* gpt2.tune for dir/gpt2.shard */
  const char *path = o->operands.at[0], *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  if (o->value[OPT_OUTPUT]) return o->value[OPT_OUTPUT];
  return arena_printf(o->c->arena, "%.*s.tune", (int)strcspn(name, "."), name);
}

/* Reads the records of the output, which stay; a file with other contents is not replaced. */
static Exit read_records(Cli *o, const char *output, TuneDb *db) {
  if (!strcmp(output, "-") || access(output, F_OK)) return EXIT_FINE;
  if (!tune_load(o, output, db)) return EXIT_ENVIRONMENT;
  if (db->n || !diag_given(o->c->diag, "W1206")) return EXIT_FINE;
  Report *r = diag_at(o->c->diag, "E0002", (Span){0},
                      "cannot write `%s`: it has lines, and none is a tuning record", output);
  diag_help(r, "remove it, or name another file");
  return EXIT_ENVIRONMENT;
}

Exit cmd_tune(Cli *o) {
  const char *output = records_of(o);
  TuneDb db = {0};
  Module *m;
  Limits limits = {CANDIDATES, ROUNDS, 0};
  Exit e = check_only(o);
  if (e == EXIT_FINE) e = cli_whole(o, OPT_CANDIDATES, 0, MOST_NUMBER, &limits.candidates);
  if (e == EXIT_FINE) e = cli_whole(o, OPT_ROUNDS, 1, MOST_NUMBER, &limits.rounds);
  if (e == EXIT_FINE) e = cli_whole(o, OPT_RIVALS, 0, MOST_NUMBER, &limits.rivals);
  if (e != EXIT_FINE) return e;
  if (!can_write(o->c, output)) return cli_report(o, EXIT_ENVIRONMENT);
  e = load_module(o, &m);
  if (e == EXIT_FINE) e = read_records(o, output, &db);
  if (e == EXIT_FINE && strcmp(m->after, "order")) e = run_pipeline(o, m, "order");
  if (e == EXIT_FINE && strcmp(m->after, "order"))
    e = cli_usage("`%s` is IR after `%s`: its kernels are chosen already", o->operands.at[0],
                  m->after);
  if (e == EXIT_FINE && !target_runs_here(target_of(m)))
    e = cli_usage("this machine cannot run kernels for %s", m->target.name);
  if (e == EXIT_FINE) e = measure_all(o, m, &db, &limits, output);
  if (e == EXIT_FINE) e = put_records(o, &db, output);
  return cli_report(o, e);
}

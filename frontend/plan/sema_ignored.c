/* Words of a plan that would change nothing (W0706), read against the rest of the plan: options of
   `zero` below the stage that they belong to, what concerns messages where one rank sends none,
   copies of weights in 32 bits.
   `precision f32 grad = bf16` is refused (E0602): it promises bytes that f32 does not save. A word
   that repeats its default, and `zero 0 over ..`, are let be. Must not: judge what other files do
   (`prefetch` and `overlap`: sema_flight.c; stages: sema_stages.c). */
#include "sema_plan.h"
#include "ir/support/num.h"
#include <string.h>

typedef struct NeedsStage { /* an option of `zero`, and the stages at which it says something */
  Str key;
  int64_t stage;
  Str what;
} NeedsStage;

static const NeedsStage needs[] = {
    {"accumulate", 2, "keeps whole gradients between micro-batches"},
    {"keep_root", 3, "keeps whole parameters"},
    {"keep_gathered", 3, "keeps whole parameters"},
    {"persist", 3, "keeps whole parameters"},
};

static void say_ignored(PlanCheck *check, Span at, Str text, Str help) {
  world_warn(check->w, "W0706", at, text, help);
}

/* Written, and another value than without it. */
static bool differs(const PlanCheck *check, Str key, Span *at) {
  const AstSetting *zero = settings_line(check->item, "zero");
  const AstValue *value = setting_option(zero, key);
  if (!value) return false;
  *at = value->span;
  if (!strcmp(key, "persist")) return settings_integer(check->item, ITEM_PLAN, "zero", key) > 0;
  if (!strcmp(key, "accumulate"))
    return !strcmp(settings_word(check->e->ctx, check->item, ITEM_PLAN, "zero", key), "full");
  return settings_on(check->item, ITEM_PLAN, "zero", key) != !strcmp(key, "keep_root");
}

static void check_stages_of_words(PlanCheck *check) {
  int64_t stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    Span at = {0};
    if (stage >= needs[i].stage || !differs(check, needs[i].key, &at)) continue;
    say_ignored(check, at,
                arena_printf(check->e->arena, "`%s` changes nothing: stage %lld %s", needs[i].key,
                             (long long)stage, needs[i].what),
                arena_printf(check->e->arena,
                             "it needs stage %lld or higher; otherwise leave it out",
                             (long long)needs[i].stage));
  }
}

/* Does the host update parameters? Groups larger than a bucket are uploaded row by row. */
static bool updates_there(const PlanCheck *check) {
  bool updates = false;
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *line = check->item->block->settings.at[i];
    const AstValue **word;
    uint32_t n =
        strcmp(line->path->text, "offload") != 0 ? 0 : setting_operands(check->e->ctx, line, &word);
    for (uint32_t k = 0; k < n; k++)
      updates |= !strcmp(word[k]->path->text, "optimizer") || !strcmp(word[k]->path->text, "auto");
  }
  return updates;
}

/* Checks settings about messages in a plan of one rank, which behaves as with `zero 0`. */
static void check_one_rank(PlanCheck *check) {
  if (plan_mesh_ranks(check) > 1) return;
  const AstValue *word[] = {settings_value(check->item, "zero", "bucket"),
                            settings_value(check->item, "precision", "reduce")};
  static const Str names[] = {"bucket", "reduce"};
  for (size_t i = 0; i < sizeof word / sizeof *word; i++)
    if (word[i] && (strcmp(names[i], "bucket") != 0 || !updates_there(check)))
      say_ignored(check, word[i]->span,
                  arena_printf(check->e->arena, "`%s` changes nothing: one rank sends no message",
                               names[i]),
                  "leave it out, or give the plan a `mesh`");
}

static bool is_narrow(Str type) {
  static const char *const words[] = {"bf16", "f16", "fp8"};
  for (size_t i = 0; type && i < COUNT_OF(words); i++)
    if (!strcmp(type, words[i])) return true;
  return false;
}

static void check_wide_gradients(PlanCheck *check) {
  const AstValue *grad = settings_value(check->item, "precision", "grad");
  Str type = settings_word(check->e->ctx, check->item, ITEM_PLAN, "precision", NULL);
  bool narrow = is_narrow(type);
  if (!grad || narrow || grad->kind != VALUE_PATH || !strcmp(grad->path->text, "f32")) return;
  Report *r = world_error(check->w, "E0602", grad->span, "`precision %s` keeps gradients in f32",
                          type ? type : "f32");
  diag_label(r, "they are summed and wait in 32 bits");
  diag_help(r, "`precision %s` computes, and keeps gradients, in 16 bits", grad->path->text);
}

/* Master weights are the only ones in 32 bits. */
static void check_copies(PlanCheck *check) {
  const AstValue *copies = settings_value(check->item, "precision", "copies");
  Str type = settings_word(check->e->ctx, check->item, ITEM_PLAN, "precision", NULL);
  if (!copies || is_narrow(type)) return;
  say_ignored(check, copies->span,
              arena_printf(check->e->arena,
                           "`copies` changes nothing: `precision %s` reads the "
                           "weights that the update writes",
                           type ? type : "f32"),
              "leave it out, or compute in 16 bits: `precision bf16`");
}

void check_ignored(PlanCheck *check) {
  if (settings_line(check->item, "zero")) check_stages_of_words(check);
  check_one_rank(check);
  check_wide_gradients(check);
  check_copies(check);
}

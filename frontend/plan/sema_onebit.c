/* Checks the requirements of 1-bit Adam on train blocks and plans (passes/math/onebit.c): blocks of
   whole bytes, an equal share of the batch for each worker, a freeze before the end; ranks must
   divide the workers, and parts of the batch must have shares for all. It supports ZeRO stage 1:
   from stage 2 on no rank has the gradients from which its worker's error is computed. */
#include "frontend/model/sema_rule.h"
#include "sema_plan.h"
#include "ir/support/num.h"
#include <math.h>

static bool is_onebit(Eval *e, const AstItem *train) {
  Str optim = train ? settings_word(e->ctx, train, ITEM_TRAIN, "optim", NULL) : NULL;
  return optim && !strcmp(optim, "onebit_adam");
}

static int64_t option(const AstItem *train, const char *key) {
  return settings_integer(train, ITEM_TRAIN, "optim", key);
}

/* The size that counts, from wherever it was given. */
static int64_t batch_of(Eval *e, const AstItem *train) {
  int64_t batch = size_of(e->sizes, intern(e->ctx->names, "Batch"));
  return batch > 0 ? batch : settings_integer(train, ITEM_TRAIN, "batch", NULL);
}

static void check_block(Eval *e, const AstItem *train) {
  enum { MOST = 1 << 24 }; /* parameters are padded to whole blocks of each worker */
  const AstValue *block = settings_value(train, "optim", "block");
  int64_t n = option(train, "block");
  if (!block || n < 1 || (n % 8 == 0 && n <= MOST)) return;
  if (n > MOST) {
    Report *r = eval_error(e, "E0602", block->span, "a block of %lld signs", (long long)n);
    diag_help(r, "2048 is usual, %d the most: one scale says less of more elements", MOST);
    return;
  }
  Report *r =
      eval_error(e, "E0602", block->span, "a block of %lld signs is no whole bytes", (long long)n);
  diag_help(r, "a multiple of 8: `block = %lld`", (long long)(n + 8 - n % 8));
  diag_edit(r, block->span, "%lld", (long long)(n + 8 - n % 8));
}

static void check_share(Eval *e, const AstItem *train) {
  const AstValue *workers = settings_value(train, "optim", "workers");
  int64_t n = option(train, "workers"), batch = batch_of(e, train);
  if (!workers || n < 1 || batch < 1 || batch % n == 0) return;
  int64_t near = divisor_to(batch, n);
  Report *r = eval_error(e, "E0703", workers->span, "batch %lld has no %lld equal shares",
                         (long long)batch, (long long)n);
  diag_help(r, "each worker has its own samples: `workers = %lld` divides the batch",
            (long long)near);
  diag_edit(r, workers->span, "%lld", (long long)near);
}

/* Steps before any is compressed: -1: `freeze = auto` finds them. */
static int64_t steps_before(const AstItem *train, int64_t steps) {
  const AstValue *freeze = settings_value(train, "optim", "freeze");
  double share = freeze ? freeze->number.value : 0.2;
  if (freeze && freeze->kind != VALUE_NUMBER) return -1;
  return share < 1 ? (int64_t)ceil(share * (double)steps - 1e-9) : (int64_t)share;
}

/* A share of few steps may round to all of them. */
static void check_freeze(Eval *e, const AstItem *train) {
  const AstValue *freeze = settings_value(train, "optim", "freeze"),
                 *optim = settings_value(train, "optim", NULL);
  int64_t steps = settings_integer(train, ITEM_TRAIN, "steps", NULL);
  if (steps < 1 || steps_before(train, steps) < steps) return;
  Report *r = eval_error(e, "E0602", freeze ? freeze->span : optim->span,
                         "`freeze = %s`, and the run has %lld steps: nothing would be compressed",
                         freeze ? freeze->number.text : "20%", (long long)steps);
  diag_help(r, "15%% to 25%% of the steps are usual; `optim adamw` freezes nothing");
}

static void check_renew(Eval *e, const AstItem *train) {
  const AstValue *renew = settings_value(train, "optim", "renew");
  int64_t n = option(train, "renew"), steps = settings_integer(train, ITEM_TRAIN, "steps", NULL);
  int64_t before = steps_before(train, steps);
  if (!renew || n < 1 || steps < 1 || n + (before < 0 ? 0 : before) < steps) return;
  Report *r = eval_error(e, "E0602", renew->span,
                         "`renew = %lld` updates the second moment in each of the %lld steps after "
                         "the freeze: nothing would be compressed",
                         (long long)n, (long long)(steps - (before < 0 ? 0 : before)));
  diag_help(r, "the number of such steps in a row, then as many 2, 4, 8 .. steps apart: 4 or 8 is "
               "usual");
}

static bool is_auto(const AstValue *freeze) { return freeze && freeze->kind == VALUE_PATH; }

/* Checks options that only `freeze = auto` reads. */
static void check_unread(Eval *e, const AstItem *train) {
  static const char *const keys[] = {"ratio", "window"};
  if (is_auto(settings_value(train, "optim", "freeze"))) return;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const AstValue *value = settings_value(train, "optim", keys[i]);
    if (!value) continue;
    Report *r = eval_error(e, "E0602", value->span, "`%s` is for `freeze = auto`", keys[i]);
    diag_help(r, "leave it out: the step of the freeze is written");
  }
}

/* The first step after which a freeze is possible: after two measurements, the first one after the
   warm-up. */
static void check_auto(Eval *e, const AstItem *train) {
  const AstValue *freeze = settings_value(train, "optim", "freeze"),
                 *window = settings_value(train, "optim", "window"),
                 *betas = settings_value(train, "optim", "betas");
  int64_t steps = settings_integer(train, ITEM_TRAIN, "steps", NULL),
          each = option(train, "window"),
          warmup = settings_integer(train, ITEM_TRAIN, "lr", "warmup");
  double beta = betas && betas->items.n == 2 ? betas->items.at[1]->number.value : 0.999;
  if (!is_auto(freeze) || steps < 1) return;
  if (each < 1) each = (int64_t)round(1 / (1 - beta));
  int64_t looks = (warmup > each ? (warmup + each - 1) / each : 1) + 1;
  if (looks <= steps / each && looks * each + 1 < steps) return;
  Report *r =
      eval_error(e, "E0602", window ? window->span : freeze->span,
                 "two norms %lld steps apart, after %lld of warm-up: none of %lld steps would "
                 "be compressed",
                 (long long)each, (long long)(warmup > 0 ? warmup : 0), (long long)steps);
  diag_help(r, "a smaller `window`, or a number of steps for `freeze`");
}

/* Its frozen steps are an entry of their own, from which no next values are taken. */
static void refuse_rules(Eval *e, const AstItem *train) {
  const AstStmt *update = rule_line(e, STMT_UPDATE), *project = rule_line(e, STMT_PROJECT);
  if (!update && !project) return;
  Report *r = eval_error(e, "E0602", (update ? update : project)->word,
                         update ? "`optim onebit_adam` with states that `update` changes"
                                : "`optim onebit_adam` with weights that `project` changes");
  diag_also(r, train->name.span, "train block `%s`", train->name.text);
  diag_help(r, "`optim adamw` supports them");
}

void check_onebit(Eval *e, const AstItem *train) {
  if (!is_onebit(e, train)) return;
  refuse_rules(e, train);
  check_block(e, train);
  check_share(e, train);
  check_freeze(e, train);
  check_renew(e, train);
  check_unread(e, train);
  check_auto(e, train);
}

/* Stage 1 keeps 8/N of 8 bytes of moments per parameter on N ranks, and 4 more for frozen steps. */
static void warn_unsaved(PlanCheck *check, Span at) {
  enum { WORTH = 3 };
  int64_t ranks = plan_zero_ranks(check);
  if (ranks == 1 || ranks >= WORTH) return;
  world_warn(
      check->w, "W0703", at,
      arena_printf(check->e->arena, "`zero 1` with `onebit_adam` saves nothing over %lld ranks",
                   (long long)ranks),
      "after the freeze every rank needs all second moments: 3 ranks are the fewest that save");
}

static void check_zero(PlanCheck *check) {
  int64_t stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  const AstValue *zero = settings_value(check->item, "zero", NULL);
  if (!zero || stage < 1) return;
  if (stage == 1) {
    warn_unsaved(check, zero->span);
    return;
  }
  Report *r = world_error(check->w, "E0602", zero->span, "`zero %lld` keeps no whole gradient",
                          (long long)stage);
  diag_label(r, "1-bit Adam's workers each compress all of theirs");
  diag_help(r, "`zero 1`, or `optim adamw`");
  diag_edit(r, zero->span, "1");
}

/* Ranks that cut Batch have whole workers. */
static void check_ranks(PlanCheck *check) {
  int64_t workers = option(check->c->train->item, "workers"), ranks = 1;
  for (uint32_t i = 0; i < check->rules.n; i++) {
    const PlaceLine *line = &check->rules.at[i];
    if (!plan_cuts_batch(line) || workers < 1) continue;
    ranks = times_i64(ranks, plan_ranks_of(line));
    if (workers % ranks == 0) continue;
    Report *d = world_error(check->w, "E0703", line->target, "%lld ranks for %lld workers",
                            (long long)ranks, (long long)workers);
    diag_fact(d, "a rank computes all samples of one worker or of several");
    diag_help(d, "a number of ranks that divides %lld; or `workers = %lld`, which changes results",
              (long long)workers, (long long)ranks);
    return;
  }
}

/* The workers of a rank have equal shares of each part of its samples. */
static void check_parts(PlanCheck *check) {
  const AstValue *micro = settings_value(check->item, "micro", NULL);
  int64_t n = settings_integer(check->item, ITEM_PLAN, "micro", NULL),
          workers = option(check->c->train->item, "workers"), ranks = plan_batch_ranks(check);
  int64_t each = workers / ranks; /* workers of a rank */
  if (!micro || n < 1 || each < 2 || workers % ranks || n % each == 0) return;
  Report *r =
      world_error(check->w, "E0703", micro->span, "`micro %lld`, and a rank has %lld workers",
                  (long long)n, (long long)each);
  diag_fact(r, "a micro-batch has the same number of samples of each worker");
  diag_help(r, "a multiple of %lld", (long long)each);
  diag_edit(r, micro->span, "%lld", (long long)(n + each - n % each));
}

void check_onebit_plan(PlanCheck *check) {
  if (!check->c->train || !is_onebit(check->e, check->c->train->item)) return;
  check_zero(check);
  check_ranks(check);
  check_parts(check);
}

/* In which types a plan lets messages travel: f16 wants the scale that only `precision f16` has;
   8 bits (passes/precision/int8.c) change numbers, which is said (W0707), want blocks that lines of
   memory divide, and of weights that `zero 3` gathers them. */
#include "sema_plan.h"

static const AstValue *option(const PlanCheck *check, const char *key) {
  return settings_value(check->item, "precision", key);
}

/* Pass `wire` says so of what --set asks for. */
static void check_f16(PlanCheck *check) {
  Str type = settings_word(check->e->ctx, check->item, ITEM_PLAN, "precision", NULL);
  const char *const words[] = {"reduce", "grad"};
  for (int i = 0; i < 2; i++) {
    const AstValue *value = option(check, words[i]);
    if (!settings_is_word(value, "f16") || (type && !strcmp(type, "f16"))) continue;
    bool brain = type && (!strcmp(type, "bf16") || !strcmp(type, "fp8"));
    if (i && !brain) continue; /* those have gradients of f32 alone */
    Report *r = world_error(check->w, "E0602", value->span, "gradients %s f16 want a scale",
                            i ? "that wait in" : "in messages of");
    diag_label(r, "below 6e-8 they would be 0");
    diag_help(r, "`%s = bf16`, or `precision f16`, which scales them", words[i]);
    diag_edit(r, value->span, "bf16");
  }
}

/* The scale falls from the first one to the smallest. */
static void check_scales(PlanCheck *check) {
  const AstValue *least = option(check, "min_scale");
  double first = settings_number(check->item, ITEM_PLAN, "precision", "init_scale"),
         min = settings_number(check->item, ITEM_PLAN, "precision", "min_scale");
  if (!least || min <= first) return;
  Report *r = world_error(check->w, "E0602", least->span, "the smallest scale is above the first");
  diag_label(r, "`init_scale` is %g", first);
  diag_help(r, "%g at most", first);
}

/* ---- 8 bits ---- */

static bool any_int8(const PlanCheck *check) {
  return settings_is_word(option(check, "reduce"), "int8") ||
         settings_is_word(option(check, "gather"), "int8");
}

int64_t plan_int8_numbers(const PlanCheck *check) {
  return any_int8(check) ? settings_integer(check->item, ITEM_PLAN, "precision", "block") : 0;
}

static void check_block(PlanCheck *check) {
  enum { LINE = 16 };
  const AstValue *block = option(check, "block");
  int64_t n = settings_integer(check->item, ITEM_PLAN, "precision", "block");
  if (!block) return;
  if (!any_int8(check)) {
    Report *r =
        world_error(check->w, "E0602", block->span, "`block` of messages that have no scale");
    diag_help(r, "it is for `reduce = int8` and `gather = int8`");
  } else if (n % LINE) {
    int64_t near = n + LINE - n % LINE;
    Report *r = world_error(check->w, "E0602", block->span,
                            "blocks of %lld numbers do not divide what ranks share", (long long)n);
    diag_label(r, "a rank's piece begins at a multiple of 64 bytes");
    diag_help(r, "a multiple of %d: `block = %lld`", LINE, (long long)near);
    diag_edit(r, block->span, "%lld", (long long)near);
  }
}

static void check_gather(PlanCheck *check) {
  const AstValue *gather = option(check, "gather");
  int64_t stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  if (!gather || stage == 3) return;
  Report *r = world_error(check->w, "E0602", gather->span,
                          "`gather = int8`, and `zero %lld` gathers no weights", (long long)stage);
  diag_label(r, "ranks keep whole ones, which each step would round again");
  diag_help(r, "`zero 3` keeps a part of them on each rank in full, and gathers them for a layer");
}

static void warn_rounded(PlanCheck *check, const char *key, const char *what) {
  const AstValue *value = option(check, key);
  long long n = settings_integer(check->item, ITEM_PLAN, "precision", "block");
  if (!settings_is_word(value, "int8")) return;
  world_warn(
      check->w, "W0707", value->span,
      !check->mesh.n
          ? arena_printf(check->e->arena, "`%s = int8` changes nothing: one rank sends nothing",
                         key)
          : arena_printf(
                check->e->arena,
                "`%s = int8` changes numbers: a message rounds %s by up to 0.394 %% of the "
                "largest of %lld",
                key, what, n),
      check->mesh.n
          ? "`shardc plan` tells what it saves; compare the loss with that of a run without it"
          : "leave it out, or give the plan a `mesh`");
}

void check_messages(PlanCheck *check) {
  check_f16(check);
  check_scales(check);
  check_block(check);
  check_gather(check);
  warn_rounded(check, "reduce", "gradients");
  warn_rounded(check, "gather", "weights");
}

/* Exact equality of the programs of all ranks with the model: see equal.h. */
#include "equal.h"
#include "equal_decode.h"
#include "equal_side.h"
#include "field.h"
#include "ir/made.h"
#include "ir/phases.h"
#include "ir/support/num.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <stdint.h>

typedef struct Equal {
  const EqualTask *task;
  EqualReport *report;
  Module *m; /* of the model */
  Runner model, ranks;
  const char *entry; /* that ran last */
  bool infinite;     /* in a step that is left out: its outputs are nonsense */
  StrList compared;  /* entries of the ranks */
} Equal;

static bool differs(Equal *equal, Str global, int64_t element, const char *why) {
  *equal->report = (EqualReport){.why = why,
                                 .global = global,
                                 .entry = equal->entry,
                                 .element = element,
                                 .spent = why == interp_spent};
  return false;
}

/* ---- inputs ---- */

static uint64_t drawn(uint64_t seed, uint64_t i) { return (uint64_t)field_random(seed, i); }

/* Some indexes are absent: -100, as labels that do not count. */
static double input_number(const Module *m, const Global *g, uint64_t seed, uint64_t i) {
  enum { ABSENT = -100, ONE_OF = 7, SMALL = 5 };
  uint64_t r = drawn(seed, i);
  if (g->of) return r % ONE_OF ? (double)(r / ONE_OF % (uint64_t)dim_find(m, g->of)->size) : ABSENT;
  if (g->type.elem == ELEM_bool) return r % ONE_OF != 0;
  return elem_class(g->type.elem) == CLASS_FLOAT ? (double)r : (double)(r % SMALL);
}

static void set_input(Equal *equal, const Global *g, uint64_t seed) {
  int64_t n = type_count(&g->type);
  double *data = ARENA_ARRAY(equal->m->arena, double, n + 1);
  for (int64_t k = 0; k < n; k++) data[k] = input_number(equal->m, g, seed, (uint64_t)k);
  runner_set(&equal->model, g->name, data), runner_set(&equal->ranks, g->name, data);
}

static void set_scalar(Equal *equal, const Global *g, uint64_t seed, int step) {
  double value = !strcmp(g->name, "step")                  ? step
                 : elem_class(g->type.elem) == CLASS_FLOAT ? (double)drawn(seed, 0)
                                                           : (double)equal->task->seed;
  runner_set_all(&equal->model, g->name, value), runner_set_all(&equal->ranks, g->name, value);
}

/* Which rank it is, a program knows already. */
static bool is_coordinate(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (!strcmp(name, made_coordinate(m, m->mesh.at[i].name))) return true;
  return false;
}

/* Scalars are those of the run, inputs those of the step. */
static void set_all(Equal *equal, int step) {
  for (uint32_t i = 0; i < equal->m->globals.n; i++) {
    const Global *g = equal->m->globals.at[i];
    uint64_t seed = drawn((uint64_t)equal->task->seed, i);
    if (g->kind == GLOBAL_INPUT) set_input(equal, g, drawn(seed, (uint64_t)step));
    if (g->kind == GLOBAL_SCALAR && !is_coordinate(equal->m, g->name))
      set_scalar(equal, g, seed, step);
  }
}

/* ---- comparing ---- */

static bool compare(Equal *equal, const Global *global) {
  const Tensor *model = runner_get(&equal->model, global->name),
               *ranks = runner_get(&equal->ranks, global->name);
  if (!model || !ranks)
    return differs(equal, global->name, 0, runner_error(model ? &equal->ranks : &equal->model));
  if (type_count(&model->type) != type_count(&ranks->type))
    return differs(equal, global->name, 0, "another size");
  for (int64_t i = 0, n = type_count(&model->type); i < n; i++)
    if (model->at[i] != ranks->at[i] &&
        (model->at[i] == model->at[i] || ranks->at[i] == ranks->at[i]))
      return differs(equal, global->name, i, "another value");
  return true;
}

/* The parts of flat storage are compared by their own names. */
static bool compare_all(Equal *equal) {
  EACH_GLOBAL (equal->m, global) {
    bool output = !equal->infinite && global->kind == GLOBAL_OUTPUT &&
                  runner_has(&equal->ranks, global->name);
    bool kept = (global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE) &&
                !global_has_members(equal->m, global);
    if (!output && !kept) continue;
    if (!compare(equal, global)) return false;
  }
  return true;
}

/* The entry of the step's phase. That of 1-bit Adam's frozen steps follows by itself. */
static const char *entry_at(const Runner *runner, const char *entry, int step) {
  const Fn *later = step ? module_later_step(runner->side->programs[0]) : NULL;
  bool begun = later && fn_phase(later) == PHASE_late && step >= fn_phase_from(later);
  return begun ? later->name : entry;
}

static bool is_compared(const Equal *equal, Str entry) {
  for (uint32_t i = 0; i < equal->compared.n; i++)
    if (!strcmp(equal->compared.at[i], entry)) return true;
  return false;
}

static void note_compared(Equal *equal, const char *entry) {
  Str name = intern(equal->m->ctx->names, entry);
  if (!is_compared(equal, name)) vec_push(equal->m->arena, equal->compared, name);
}

/* step 0: it is no step. */
static bool run_both(Equal *equal, const char *entry, int step) {
  const Runner *side[] = {&equal->model, &equal->ranks};
  equal->entry = entry;
  for (int i = 0; i < 2; i++)
    if (!runner_run(side[i], entry_at(side[i], entry, step)))
      return differs(equal, NULL, 0, runner_error(side[i]));
  note_compared(equal, entry_at(&equal->ranks, entry, step));
  return compare_all(equal);
}

/* Where both sides have the entry. */
static bool run_other(Equal *equal, const char *entry) {
  bool known = runner_has_entry(&equal->model, entry) && runner_has_entry(&equal->ranks, entry);
  return !known || run_both(equal, entry, 0);
}

/* Frozen steps of 1-bit Adam, evaluation, and the values that samples are drawn from. */
static bool run_others(Equal *equal) {
  static const Phase phases[] = {PHASE_derive, PHASE_freeze, PHASE_frozen, PHASE_frozen,
                                 PHASE_thaw};
  for (size_t i = 0; i < COUNT_OF(phases); i++)
    if (!run_other(equal, phase_entry_name(phases[i]))) return false;
  if (!run_other(equal, "eval") || !run_other(equal, "logits")) return false;
  if (!runner_has_entry(&equal->ranks, "decode")) return true;
  note_compared(equal, "decode");
  return decode_equal(&equal->model, &equal->ranks, equal->task->seed, equal->report);
}

/* Number i from 1 on: the first; one after the warm-up of rates, where the run has one; the last;
   those after the second. */
static int step_of(const Module *m, int i) {
  int64_t steps = module_whole(m, "train.steps"), half = steps / 2;
  if (i == 1 || half <= i || steps > INT32_MAX) return i;
  return (int)(i == 2 ? half : i == 3 ? steps - 1 : half + i - 2);
}

/* Two dumps may have other sizes. */
static bool same_sizes(Equal *equal) {
  equal->entry = "init";
  EACH_GLOBAL (equal->m, global) {
    if (global->kind != GLOBAL_INPUT && global->kind != GLOBAL_PARAM) continue;
    const Tensor *model = runner_get(&equal->model, global->name),
                 *ranks = runner_get(&equal->ranks, global->name);
    if (model && ranks && type_count(&model->type) != type_count(&ranks->type))
      return differs(equal, global->name, 0, "another size");
  }
  return true;
}

/* Entry `refresh` computes again the states that a resumed run derives from others. */
static bool run_refresh(Equal *equal) {
  if (!runner_has_entry(&equal->ranks, "refresh")) return true;
  equal->entry = "refresh";
  if (!runner_run(&equal->ranks, equal->entry))
    return differs(equal, NULL, 0, runner_error(&equal->ranks));
  note_compared(equal, equal->entry);
  return compare_all(equal);
}

static bool is_constant(const Tensor *tensor) {
  for (int64_t i = 1, n = type_count(&tensor->type); i < n; i++)
    if (tensor->at[i] != tensor->at[0]) return false;
  return true;
}

/* Parameters that start as a constant, gains and biases and the second factor of an adapter, hide
   what depends on their elements: they are drawn. */
static bool draw_constants(Equal *equal) {
  for (uint32_t g = 0; g < equal->m->globals.n; g++) {
    const Global *global = equal->m->globals.at[g];
    const Tensor *tensor =
        global->kind == GLOBAL_PARAM ? runner_get(&equal->model, global->name) : NULL;
    if (!tensor || !is_constant(tensor) || global_has_members(equal->m, global)) continue;
    int64_t n = type_count(&tensor->type);
    double *data = ARENA_ARRAY(equal->m->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++)
      data[i] = field_random(drawn((uint64_t)equal->task->seed, g), (uint64_t)i);
    runner_put(&equal->model, global->name, data), runner_put(&equal->ranks, global->name, data);
  }
  return run_refresh(equal);
}

/* A step in which that number does not count as finite; NAN: in which none does. */
static bool run_not_finite(Equal *equal, int step, double which) {
  set_all(equal, step), equal->infinite = true;
  runner_set_infinite(&equal->model, true, which);
  runner_set_infinite(&equal->ranks, true, which);
  bool same = run_both(equal, "step", step);
  runner_set_infinite(&equal->model, false, which);
  runner_set_infinite(&equal->ranks, false, which);
  equal->infinite = false;
  return same;
}

/* The branch that leaves a step out if numbers are not finite: all of them, then the loss alone and
   the norm alone. The step that was left out changed nothing, so that these numbers are the same;
   one with `delay` made the update that waited, so that a second one is left out. */
static bool run_infinite(Equal *equal) {
  static const char *const alone[] = {"loss", "norm.of.gradients"};
  int step = step_of(equal->m, (int)equal->task->steps + 1);
  for (int i = 0; i <= (module_whole(equal->m, "train.delay.after") > 0); i++)
    if (!run_not_finite(equal, step, NAN)) return false;
  for (size_t i = 0; i < COUNT_OF(alone); i++) {
    const Tensor *number =
        runner_has(&equal->model, alone[i]) ? runner_get(&equal->model, alone[i]) : NULL;
    if (number && !number->type.rank && !run_not_finite(equal, step, number->at[0])) return false;
  }
  return true;
}

/* Steps after those, in which updates are late: from the first such step on. */
static bool run_late(Equal *equal) {
  enum { LATE_STEPS = 3 };
  int64_t after = module_whole(equal->m, "train.delay.after");
  int last = step_of(equal->m, (int)equal->task->steps);
  for (int i = 0; i < LATE_STEPS && after > 0 && after < INT32_MAX - LATE_STEPS; i++) {
    int step = (after > last ? (int)after : last + 1) + i;
    set_all(equal, step);
    if (!run_both(equal, "step", step)) return false;
  }
  return true;
}

/* They are spoiled before. Those of 1-bit Adam follow in an entry of their own. */
static bool run_derived(Equal *equal) {
  enum { SPOILED = 12345 };
  if (!runner_has_entry(&equal->ranks, "refresh")) return true;
  for (uint32_t i = 0; i < equal->ranks.side->n; i++) {
    const Module *m = equal->ranks.side->programs[i];
    const Fn *refresh = module_fn(m, intern(m->ctx->names, "refresh"));
    EACH_GLOBAL (m, global)
      if (global->derived && refresh && fn_store_of(refresh, global))
        runner_set_all(&equal->ranks, global->name, SPOILED);
  }
  return run_refresh(equal);
}

/* Names of the entries of the ranks that were compared, and of those that were not. */
static void say_entries(Equal *equal) {
  Arena *arena = equal->m->arena;
  EqualReport *report = equal->report;
  const EqualSide *ranks = equal->ranks.side;
  report->compared = report->left = "", report->entries = equal->compared.n;
  for (uint32_t i = 0; i < equal->compared.n; i++)
    report->compared =
        arena_printf(arena, "%s%s%s", report->compared, i ? ", " : "", equal->compared.at[i]);
  for (uint32_t i = 0; i < ranks->n; i++)
    for (uint32_t f = 0; f < ranks->programs[i]->fns.n; f++) {
      const Fn *entry = ranks->programs[i]->fns.at[f];
      if (entry->kind != FN_ENTRY || is_compared(equal, entry->name)) continue;
      report->left =
          arena_printf(arena, "%s%s%s", report->left, *report->left ? ", " : "", entry->name);
      note_compared(equal, entry->name); /* once for each name */
    }
}

bool programs_equal(const EqualTask *task, EqualReport *report) {
  Equal equal = {.task = task, .report = report, .m = task->model.programs[0]};
  *report = (EqualReport){0};
  equal.model = runner_of(&task->model, task->work);
  equal.ranks = runner_of(&task->ranks, task->work);
  if (!same_sizes(&equal)) return false;
  set_all(&equal, 0);
  if (!run_both(&equal, "init", 0)) return false;
  if (task->ranks.early && !draw_constants(&equal)) return false;
  for (int i = 1; i <= (int)task->steps; i++) {
    int step = step_of(equal.m, i);
    set_all(&equal, step);
    if (!run_both(&equal, "step", step)) return false;
  }
  if (!run_late(&equal)) return false;
  if (task->ranks.early && !run_infinite(&equal)) return false;
  if (!run_derived(&equal)) return false;
  set_all(&equal, (int)task->steps + 2);
  if (!run_others(&equal)) return false;
  say_entries(&equal);
  return true;
}

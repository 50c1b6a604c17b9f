/* place: loops whose rounds an axis of the mesh cuts are the stages of a pipeline.

   If a place line puts the dim that counts the layers of a stack on an axis X, every loop over it
   gets the attribute `stages = "X"`. Each rank of X then has a block of the rounds, and of all
   values that are stacked over them; ranks pass the carried value on to each other (pass
   `localize`). Inside such a loop nothing is placed on X, whatever the rules say of other dims:
   its ranks are at different layers. Pipelines that are not built yet are refused, at the
   place line (E0901). Must not: examine the ops of the rounds. */
#include "ir/loop.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "place.h"
#include "ir/plan/module_settings.h"
#include <string.h>

typedef struct Stages {
  Module *m;
  bool failed;
} Stages;

/* The line that puts layers on the axis. */
static const PlaceRule *axis_rule(const Module *m, Str axis) {
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *rule = &m->rules.at[i];
    for (uint32_t k = 0; rule->axes.n && rule->axes.at[0] == axis && k < rule->dims.n; k++)
      if (dim_counts_layers(m, rule->dims.at[k])) return rule;
  }
  return NULL;
}

void stages_refuse(Module *m, Str axis, const char *why, const char *help) {
  const PlaceRule *rule = axis_rule(m, axis);
  Report *r = diag_at(m->ctx->diag, "E0901", rule ? span_of(m, rule->loc) : (Span){0},
                      "`pipeline %s` of this model is not built yet", plan_schedule(m));
  diag_label(r, "%s", why);
  diag_help(r, "%s", help);
}

static Report *refuse(Stages *stages, const PlaceRule *rule, const char *what) {
  stages->failed = true;
  return diag_at(stages->m->ctx->diag, "E0901", span_of(stages->m, rule->loc), "%s not built yet",
                 what);
}

/* Several axes in one line, or in several lines. */
static bool over_several_axes(Stages *stages, const PlaceRule *rule, Str dim) {
  uint32_t axes = 0;
  for (uint32_t i = 0; i < stages->m->rules.n; i++)
    for (uint32_t k = 0; k < stages->m->rules.at[i].dims.n; k++)
      if (stages->m->rules.at[i].dims.at[k] == dim) axes += stages->m->rules.at[i].axes.n;
  if (axes < 2) return false;
  Report *r = refuse(stages, rule, "a pipeline over several axes is");
  diag_label(r, "all stages must be on one axis");
  diag_help(r, "use one axis with the same number of ranks");
  return true;
}

/* Removes axis `at` from all placements inside. */
static void clear(Fn *body, int at) {
  for (uint32_t i = 0; i < body->values.n; i++) body->values.at[i].placed.on[at] = NULL;
  for (OpId i = 0; i < body->ops.n; i++)
    if (body->ops.at[i].code == OP_loop) clear(body->ops.at[i].callee, at);
}

static bool has_stages(const Fn *f) {
  EACH_OP (f, o)
    if (o->code == OP_loop && (attr_get(&o->attrs, ATTR_stages) || has_stages(o->callee)))
      return true;
  return false;
}

static void mark(Stages *stages, Op *o) {
  must(o->ngroups == 1 && o->callee, "place: a loop over %d dims", o->ngroups);
  Str dim = o->group[0].from[0];
  const PlaceRule *rule = dim_counts_layers(stages->m, dim) ? rule_of_dim(stages->m, dim) : NULL;
  int at = rule ? mesh_find(stages->m, rule->axes.at[0]) : -1;
  if (at < 0) return;
  if (over_several_axes(stages, rule, dim)) return;
  if (stages->m->mesh.at[at].size == 1) return;
  if (attr_get(&o->attrs, ATTR_stack_length) || loop_first(o)) {
    Report *d = refuse(stages, rule, "a pipeline of layers that keep different values is");
    diag_help(d, "recompute all layers alike, e.g. `h.*`");
  } else if (has_stages(o->callee)) {
    diag_label(refuse(stages, rule, "a pipeline inside of a pipeline is"),
               "a stack inside of a stack");
  } else {
    attr_set_str(stages->m, &o->attrs, ATTR_stages, stages->m->mesh.at[at].name);
    clear(o->callee, at);
  }
}

const Op *parts_loop(const Fn *f) {
  for (OpId i = 0; f && i < f->ops.n; i++)
    if (loop_is_micro(&f->ops.at[i])) return &f->ops.at[i];
  return NULL;
}

static void let_loops_stream(Module *m, Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    Op *o = &f->ops.at[i];
    if (o->code == OP_loop && attr_get(&o->attrs, ATTR_stages))
      attr_set_int(m, &o->attrs, ATTR_streams, 1);
  }
}

/* Micro-batches need not wait for each other at the end of the pipeline; nor do all stages of
   other entries need the value that the last one has. */
static void let_stream(Module *m) {
  if (!parts_loop(entry_of(m, "step")) || !strcmp(plan_schedule(m), "sequential")) return;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (m->fns.at[i]->kind != FN_ENTRY) continue;
    const Op *parts = parts_loop(m->fns.at[i]);
    let_loops_stream(m, parts ? parts->callee : m->fns.at[i]);
  }
}

/* Callees come before callers, so inner loops are marked first. */
void place_stages(Module *m) {
  Stages stages = {.m = m};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n && !stages.failed; k++)
      if (m->fns.at[i]->ops.at[k].code == OP_loop) mark(&stages, &m->fns.at[i]->ops.at[k]);
  if (!stages.failed) let_stream(m);
}

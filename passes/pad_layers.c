/* Stages of different numbers of layers, as pass `pad` makes them: `pipeline .. uneven`.

   Each stage has room for n layers, the last one has fewer: n is the least number with which the
   slowest stage takes as little as can be. Stages but the last one do nothing but layers, of equal
   FLOP; the last one has the head, too. So no other partition into consecutive layers is faster:
   with n layers at most on a stage, whoever has fewer leaves more to the last one. Where one stage
   works at a time the head makes no difference, nor does it among chunks of layers: their blocks
   are as equal as can be. The dim is padded to n layers for every stage, and rounds behind the last
   layer do nothing (pad.c). Must not: look at what an axis other than that of the stages does. */
#include "ir/count.h"
#include "ir/module_settings.h"
#include "ir/placement.h"
#include "ir/stage_class.h"
#include "ir/support/num.h"
#include "passes/pad.h"
#include <string.h>

bool pad_runs_over(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_loop && loop_shape(o).axis.dim == dim) return true;
    }
  return false;
}

/* Parts of a stack, by what layers keep, are no stages; `place` says so. */
static bool runs_over_parts(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_loop && loop_shape(o).axis.dim == dim && loop_shape(o).of) return true;
    }
  return false;
}

typedef struct StageWork { /* FLOP of a micro-batch, or of whatever f is */
  double layers, rest;
} StageWork;

/* Outside of layers products count, the head's; an update is on every stage. */
static bool is_product(const Op *o) {
  return op_family(o->code) == FAMILY_CONTRACT || op_family(o->code) == FAMILY_ATTENTION;
}

static StageWork work_of(const Module *m, const Fn *f, Str dim) {
  StageWork work = {0};
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop) work.rest += is_product(o) ? ir_op_flop(m, f, o) : 0;
    else if (loop_shape(o).axis.dim == dim) work.layers += ir_op_flop(m, f, o);
    else {
      StageWork inner = work_of(m, o->callee, dim);
      work.layers += inner.layers * (double)loop_shape(o).trip;
      work.rest += inner.rest * (double)loop_shape(o).trip;
    }
  }
  return work;
}

/* With n layers on all stages but the last one. */
static double slowest(const StageWork *work, int64_t layers, int64_t stages, int64_t n) {
  double each = work->layers / (double)layers;
  int64_t left = layers - n * (stages - 1);
  double last = (double)(left > 0 ? left : 0) * each + work->rest;
  return (double)n * each > last ? (double)n * each : last;
}

/* Every stage but the last one has a layer. */
static int64_t layers_of_stage(const StageWork *work, int64_t layers, int64_t stages) {
  int64_t best = ceil_div(layers, stages);
  for (int64_t n = best; n <= layers && n * (stages - 2) < layers; n++)
    if (slowest(work, layers, stages, n) < slowest(work, layers, stages, best)) best = n;
  return best;
}

/* The line that makes stages of the dim, or NULL. */
static const PlaceRule *stages_rule(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n; k++)
      if (m->rules.at[i].axes.n && m->rules.at[i].dims.at[k] == dim && dim_counts_layers(m, dim))
        return &m->rules.at[i];
  return NULL;
}

static int64_t room_of(const Module *m, const Fn *step, const Dim *dim, int64_t stages) {
  int64_t chunks = plan_chunks(m);
  StageWork work = work_of(m, step, dim->name);
  if (!parts_loop(m, step) || !strcmp(plan_schedule(m), "sequential")) work.rest = 0;
  return chunks > 1 ? ceil_div(dim->size, stages * chunks) * chunks
                    : layers_of_stage(&work, dim->size, stages);
}

static void warn_even(const Module *m, const PlaceRule *rule, int64_t n) {
  Report *r = diag_at(m->ctx->diag, "W0706", span_of(m, rule->loc),
                      "`uneven` changes nothing: each stage has %lld layers", (long long)n);
  diag_help(r, "leave it out: `pipeline %s`", plan_schedule(m));
}

void pad_layers(Pads *pads) {
  Module *m = pads->m;
  const Fn *step = ir_main_entry(m);
  for (uint32_t i = 0; step && plan_uneven(m) && i < m->dims.n && pads->n < PADS; i++) {
    Dim *dim = &m->dims.at[i];
    const PlaceRule *rule = stages_rule(m, dim->name);
    int axis = rule ? mesh_find(m, rule->axes.at[0]) : -1;
    if (axis < 0 || !pad_runs_over(m, dim->name) || runs_over_parts(m, dim->name)) continue;
    int64_t stages = m->mesh.at[axis].size, n = room_of(m, step, dim, stages);
    if (n * stages == dim->size) {
      warn_even(m, rule, n);
      continue;
    }
    dim->stored = n * stages;
    pads->at[pads->n++] = (PadDim){dim->name, dim->size, dim->stored};
  }
}

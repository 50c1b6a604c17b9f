/* Stages of different numbers of layers, as pass `pad` makes them: `pipeline .. uneven`.

   Consecutive layers are assigned to the stages, each with room for n of them, so all stages but
   the last ones are full: n is the least number that minimises the time of the slowest stage. Ops
   before the stack are work of the first stage, ops after it of the last one.

   With nothing before the stack no partition into consecutive layers is faster: with n layers at
   most on a stage, a stage with fewer leaves more to the last one. With ops before the stack, the
   first stage should have fewer layers, and the slowest stage takes at most that work longer;
   made.stage_flop holds the result of the best partition in addition to that of the chosen one,
   for `plan` to show.

   If only one stage works at a time this makes no difference, nor does it among chunks of layers:
   their blocks are as equal as possible. `uneven = memory` is a choice of the driver, which tries
   all n (made.stage_layers). The dim is padded to n layers for every stage, and rounds after the
   last layer do nothing (pad.c). Must not: depend on any axis other than that of the stages. */
#include "place.h"
#include "ir/cost/count.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/support/num.h"
#include "pad.h"
#include <math.h>
#include <string.h>

static bool runs_over(const Module *m, Str dim, bool parts) {
  EACH_FN (m, f)
    EACH_OP (f, o)
      if (o->code == OP_loop && loop_shape(o).axis.dim == dim && (!parts || loop_shape(o).of))
        return true;
  return false;
}

bool pad_runs_over(const Module *m, Str dim) { return runs_over(m, dim, false); }

typedef struct StageWork {    /* FLOP of a step */
  double layers, first, last; /* of all layers; outside the layers, of the first and of the last
                                 stage */
} StageWork;

static bool runs_layers(const Op *o, Str dim) {
  return o->code == OP_loop && loop_shape(o).axis.dim == dim;
}

/* The last loop over the layers in f; f->ops.n: none. */
static OpId last_loop(const Fn *f, Str dim) {
  OpId last = f->ops.n;
  for (OpId i = 0; i < f->ops.n; i++)
    if (runs_layers(&f->ops.at[i], dim)) last = i;
  return last;
}

/* By op of f: it depends on the result of the last loop over the layers. In a step that is the
   backward pass, and ends on the first stage. */
static bool *behind_last(const Module *m, const Fn *f, OpId last) {
  bool *made = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  bool *behind = ARENA_ARRAY(m->arena, bool, f->ops.n + 1);
  for (OpId i = last; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) behind[i] |= made[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) made[o->out + k] = behind[i] || i == last;
  }
  return behind;
}

static bool of_layers(const Fn *f, const Op *o, Str dim) {
  return runs_layers(o, dim) || (o->nout && type_find(value_type(f, o->out), dim) >= 0);
}

/* Adds the work of a function that runs over the layers, and of the ops outside its layers. */
static void add_beside(const Module *m, const Fn *f, Str dim, StageWork *work) {
  const bool *behind = behind_last(m, f, last_loop(f, dim));
  bool before = true;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    before &= !runs_layers(o, dim);
    *(of_layers(f, o, dim)  ? &work->layers
      : before || behind[i] ? &work->first
                            : &work->last) += ir_op_flop(m, f, o);
  }
}

static StageWork work_of(const Module *m, const Fn *f, Str dim) {
  StageWork work = {0};
  bool runs = last_loop(f, dim) < f->ops.n;
  if (runs) add_beside(m, f, dim, &work);
  for (OpId i = 0; !runs && i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop) continue;
    StageWork inner = work_of(m, o->callee, dim);
    double trip = (double)loop_shape(o).trip;
    work.layers += inner.layers * trip;
    work.first += inner.first * trip, work.last += inner.last * trip;
  }
  return work;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* With room for n layers on every stage. */
static double slowest(const StageWork *work, int64_t layers, int64_t stages, int64_t n) {
  double each = work->layers / (double)layers;
  int64_t left = layers - n * (stages - 1);
  double last = (double)(left > 0 ? left : 0) * each + work->last;
  return larger((double)n * each + work->first, last);
}

static int64_t layers_of_stage(const StageWork *work, int64_t layers, int64_t stages) {
  int64_t best = ceil_div(layers, stages);
  for (int64_t n = best; stage_room_fits(layers, stages, n); n++)
    if (slowest(work, layers, stages, n) < slowest(work, layers, stages, best)) best = n;
  return best;
}

/* Layers that a stage with that much else to do can have within `time`. */
static int64_t layers_within(double time, double other, double each, int64_t layers) {
  double n = floor((time * (1 + 1e-12) - other) / each);
  return n < 0 ? 0 : n > (double)layers ? layers : (int64_t)n;
}

/* The least time of the slowest stage over all partitions: the time of a stage is that of some
   number of layers plus that of its other ops, so only these sums are tried. */
static double least(const StageWork *work, int64_t layers, int64_t stages) {
  double each = work->layers / (double)layers, best = INFINITY,
         beside[] = {0, work->first, work->last};
  for (int64_t n = 0; n <= layers; n++)
    for (int i = 0; i < 3; i++) {
      double time = (double)n * each + beside[i];
      int64_t most = layers_within(time, work->first, each, layers) +
                     layers_within(time, work->last, each, layers) +
                     (stages - 2) * layers_within(time, 0, each, layers);
      if (most >= layers && time < best && time >= larger(work->first, work->last)) best = time;
    }
  return best;
}

static int64_t room_of(Module *m, const Fn *step, const Dim *dim, int64_t stages) {
  int64_t chunks = plan_chunks(m), chosen = (int64_t)module_number(m, "made.stage_layers", 0);
  if (chunks > 1) return ceil_div(dim->size, stages * chunks) * chunks;
  StageWork work = work_of(m, step, dim->name);
  if (!parts_loop(step) || !strcmp(plan_schedule(m), "sequential")) work.first = work.last = 0;
  int64_t n = stage_room_fits(dim->size, stages, chosen)
                  ? chosen
                  : layers_of_stage(&work, dim->size, stages);
  module_set(m, "made.stage_flop", "%.17g %.17g", slowest(&work, dim->size, stages, n),
             least(&work, dim->size, stages));
  return n;
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
    const PlaceRule *rule = dim_counts_layers(m, dim->name) ? rule_of_dim(m, dim->name) : NULL;
    int axis = rule ? mesh_find(m, rule->axes.at[0]) : -1;
    if (axis < 0 || !pad_runs_over(m, dim->name)) continue;
    if (runs_over(m, dim->name, true)) continue; /* no stages: reported by `place` */
    int64_t stages = m->mesh.at[axis].size, n = room_of(m, step, dim, stages);
    if (n * stages == dim->size) {
      warn_even(m, rule, n);
      continue;
    }
    dim->stored = n * stages;
    pads->at[pads->n++] = (PadDim){dim->name, dim->size, dim->stored};
  }
}

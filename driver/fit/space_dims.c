/* Facts of the model for the space of plans (plan_space.h): its stack of layers, dims that axes may
   split, experts, and numbers of parameters outside of layers. They are read from the simplified
   program, in which a table that is read at all positions in order is a slice, whose positions no
   axis splits. */
#include "plan_space.h"
#include "ways.h"
#include "ir/cost/count.h"
#include "ir/plan/layer_range.h"
#include "ir/shape/placement.h"
#include "ir/word_patterns.h"
#include <math.h>
#include <stdlib.h>

static bool has_dim(const Fn *f, const Op *o, Str dim) {
  bool has = false;
  for (uint32_t i = 0; i < o->nin; i++) has |= type_find(value_type(f, o->in[i]), dim) >= 0;
  for (uint32_t i = 0; i < o->nout; i++) has |= type_find(value_type(f, o->out + i), dim) >= 0;
  return has;
}

/* A table that is read at all positions in order: its rows are those of the sequence. */
static bool op_renames(const Fn *f, const Op *o, Str dim) {
  return o->code == OP_rename && type_find(value_type(f, o->in[0]), dim) >= 0 &&
         type_find(value_type(f, o->out), dim) < 0;
}

static bool op_splits(Module *m, const Fn *f, const Op *o, Str dim) {
  ShardIndex *list;
  if (o->callee || o->code == OP_load || o->code == OP_store || !has_dim(f, o, dim)) return true;
  if (op_renames(f, o, dim)) return false;
  uint32_t n = shard_indexes(m, f, o, &list);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < o->nin; k++)
      if (list[i].in[k] == dim) return true;
    for (uint32_t k = 0; k < o->nout; k++)
      if (list[i].out[k] == dim) return true;
  }
  return false;
}

static bool all_split(Module *m, Str dim) {
  const Fn *step = ir_main_entry(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    for (OpId k = 0; k < f->ops.n; k++)
      if ((f->kind == FN_BODY || f == step) && !op_splits(m, f, &f->ops.at[k], dim)) return false;
  }
  return true;
}

/* The type of the values that layers hand on; NULL: the model has no stack. */
static const Type *stream_of(const Module *m) {
  const Fn *step = ir_main_entry(m);
  for (OpId k = 0; step && k < step->ops.n; k++)
    if (step->ops.at[k].code == OP_loop && step->ops.at[k].nout)
      return value_type(step, step->ops.at[k].out);
  return NULL;
}

static uint32_t parameters_with(const Module *m, Str dim) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->globals.n; i++)
    n += m->globals.at[i]->kind == GLOBAL_PARAM && type_find(&m->globals.at[i]->type, dim) >= 0;
  return n;
}

/* The dim of parameters that says for whom a gather chooses rows: that of experts, which choose
   tokens or are chosen by them. NULL: the model has none. */
static Str experts_of(const Module *m, const Type *stream, Str layers) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      const Type *rows = o->code == OP_gather ? value_type(m->fns.at[i], o->in[1]) : NULL;
      for (int k = 0; rows && k < rows->rank; k++) {
        Str dim = rows->axis[k].dim;
        if (parameters_with(m, dim) && dim != layers && type_find(stream, dim) < 0) return dim;
      }
    }
  return NULL;
}

/* The dim of a parameter that the most parameters have, of those that layers do not hand on, but
   these. */
static Str dim_of(Module *m, const Global *global, const Type *stream, Str layers, Str experts) {
  Str best = NULL;
  uint32_t most = 0;
  for (int i = 0; i < global->type.rank; i++) {
    Str dim = global->type.axis[i].dim;
    uint32_t n = parameters_with(m, dim);
    bool other = dim == layers || dim == experts || type_find(stream, dim) >= 0;
    if (other || n <= most || !all_split(m, dim)) continue;
    best = dim, most = n;
  }
  return best;
}

/* Ops on which the first loop over layers depends. */
static void find_before(const Fn *step, bool *before) {
  OpId loop = 0;
  while (loop < step->ops.n && step->ops.at[loop].code != OP_loop) loop++;
  for (OpId i = loop + 1; i-- > 0 && loop < step->ops.n;)
    for (uint32_t k = 0; (i == loop || before[i]) && k < step->ops.at[i].nin; k++) {
      OpId def = step->values.at[step->ops.at[i].in[k]].def;
      if (def != NO_OP) before[def] = true;
    }
}

/* Numbers of parameters outside of layers that the first stage of a pipeline reads. */
static double first_parameters(const Module *m) {
  const Fn *step = ir_main_entry(m);
  double numbers = 0;
  if (!step) return 0;
  bool *before = ARENA_ARRAY(m->arena, bool, step->ops.n + 1);
  find_before(step, before);
  EACH_GLOBAL (m, global) {
    bool reads = false;
    for (OpId i = 0; i < step->ops.n; i++)
      reads |= before[i] && step->ops.at[i].code == OP_load && step->ops.at[i].global == global;
    if (reads && global->kind == GLOBAL_PARAM && global_learns(global) && !layer_star(global->name))
      numbers += (double)type_count(&global->type);
  }
  return numbers;
}

/* The dims of the most parameters; without those of experts, if these are given. */
static const char *tensor_dims(Module *m, const Type *stream, Str layers, Str experts) {
  const char *dims = "";
  for (uint32_t i = 0; stream && i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    Str dim = global->kind == GLOBAL_PARAM ? dim_of(m, global, stream, layers, experts) : NULL;
    if (dim && !text_lists(dims, dim)) dims = arena_list(m->arena, dims, "%s", dim);
  }
  return dims;
}

static void find_experts(PlanSpace *space, Module *m, const Type *stream, Str layers) {
  Str experts = stream && *space->layers ? experts_of(m, stream, layers) : NULL;
  space->experts = "", space->tensor_beside = space->tensor;
  if (!experts) return;
  space->experts = experts, space->expert_count = dim_find(m, experts)->stored;
  space->tensor_beside = tensor_dims(m, stream, layers, experts);
  EACH_GLOBAL (m, global)
    if (global->kind == GLOBAL_PARAM && global_learns(global) &&
        type_find(&global->type, experts) >= 0)
      space->expert_parameters += (double)type_count(&global->type);
}

/* A stack of (Dense, Sparse) names weights h.*.0.w and h.*.1.w: each kind is gathered by itself. */
static double largest_kind(const Module *m) {
  enum { KINDS = 64 };
  double numbers[KINDS] = {0}, all = 0, most = 0;
  EACH_GLOBAL (m, global) {
    const char *star = global->kind == GLOBAL_PARAM ? layer_star(global->name) : NULL;
    long kind = star ? strtol(star + 3, NULL, 10) : 0;
    if (star) numbers[kind % KINDS] += (double)type_count(&global->type);
  }
  for (int i = 0; i < KINDS; i++) all += numbers[i], most = fmax(most, numbers[i]);
  return all > 0 ? most / all : 1;
}

static void find_stack(PlanSpace *space) {
  const Module *m = space->m;
  space->stack = stack_paths(m), space->layers = "", space->largest = largest_kind(m);
  for (uint32_t i = 0; !strchr(space->stack, ',') && i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind != GLOBAL_PARAM || !layer_star(global->name)) continue;
    space->layers = global->type.axis[0].dim, space->layer_count = global->type.axis[0].size;
  }
}

void space_find_dims(PlanSpace *space, Module *m) {
  pipeline_run(m, &(PipelineOptions){.until = "simplify"});
  find_stack(space);
  const Type *stream = stream_of(m);
  Str batch = intern(m->ctx->names, "Batch"), layers = intern(m->ctx->names, space->layers);
  space->sequence = "", space->first_parameters = first_parameters(m);
  space->tensor = tensor_dims(m, stream, layers, NULL);
  find_experts(space, m, stream, layers);
  space->handed = stream && type_find(stream, batch) >= 0 ? 1 : 0;
  for (int i = 0; stream && i < stream->rank; i++)
    if (stream->axis[i].dim != batch) space->handed *= (double)stream->axis[i].size;
  for (int i = 0; stream && i < stream->rank; i++)
    if (stream->axis[i].dim != batch && !parameters_with(m, stream->axis[i].dim))
      space->sequence = stream->axis[i].dim, space->sequence_size = stream->axis[i].size;
  if (*space->sequence)
    space->heads = attention_heads(m, intern(m->ctx->names, space->sequence), &space->masked);
}

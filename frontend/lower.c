/* From files to a module: choose, check, then walk the model once per entry with a pen in hand.

   The model is walked first without writing, with every size fixed; only if nothing is wrong is it
   written, as `init` (from the parameters' initial values), `step` (with dropout), `eval` (without)
   and `logits` (one sample, what `output` names). Gradients and updates are added by passes. */
#include "lower.h"
#include "frontend/model/lower_emit.h"
#include "lower_build.h"
#include "frontend/settings/settings.h"
#include <string.h>

/* ---- parts of a module other than its functions ---- */

static bool is_read(const World *w, uint32_t file) {
  for (uint32_t i = 0; i < w->files.n; i++)
    if (w->files.at[i]->file == file) return file != w->std;
  return false;
}

/* A file's name relative to the folder of the model's file; for files elsewhere only the last part.
   * The compiled program must not depend on how the path was typed. */
static const char *name_of_file(const World *w, const char *path) {
  const char *top = diag_source(w->ctx->diag, w->top)->name, *end = strrchr(top, '/');
  size_t folder = end ? (size_t)(end - top) + 1 : 0;
  if (!strncmp(path, top, folder) && path[folder] != '/') return path + folder;
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static const uint32_t *write_sources(Module *m, const World *w) {
  uint32_t n = diag_source_count(w->ctx->diag);
  uint32_t *files = ARENA_ARRAY(m->arena, uint32_t, n + 1);
  for (uint32_t i = 1; i <= n; i++) {
    const Source *source = diag_source(w->ctx->diag, i);
    if (!is_read(w, i)) continue; /* ops of the library's bodies point at the user's line */
    Str name = intern(m->ctx->names, name_of_file(w, source->name));
    vec_push(m->arena, m->sources,
             (IrSource){.name = name, .text = source->text, .path = source->name});
    files[i] = m->sources.n;
  }
  return files;
}

static void write_dims(Module *m, Sizes *sizes) {
  for (uint32_t i = 0; i < sizes->n; i++) {
    if (sizes->dim[i].decl->std) continue;
    int64_t size = size_of(sizes, sizes->dim[i].decl->name),
            stored = stored_size_of(sizes, sizes->dim[i].decl->name);
    vec_push(m->arena, m->dims,
             (Dim){.name = sizes->dim[i].decl->name,
                   .size = size > 0 ? size : 0,
                   .stored = stored > 0 ? stored : 0});
  }
}

static void write_params(Build *build, Eval *e) {
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *param = e->params.at[i];
    Dims all = param->lead;
    for (int k = 0; k < param->dims.n; k++) dims_add(&all, param->dims.at[k]);
    Global *global =
        module_add_global(build->m, GLOBAL_PARAM, param->path, lower_type(e, ELEM_f32, &all),
                          build_loc(build, param->span));
    global->decay = !param->nodecay && !param->ruled, global->ruled = param->ruled;
    global->frozen = param->frozen && !param->ruled;
  }
}

/* ---- entries ---- */

static Frame *begin_entry(Build *build, const char *name) {
  Frame *frame = ARENA_NEW(build->m->arena, Frame);
  frame->fn = fn_new(build->m, FN_ENTRY, intern(build->m->ctx->names, name));
  build->root = build->frame = frame, build->rands = 0;
  return frame;
}

static void store_output(Build *build, Eval *e, Str name, const Val *v, Span at) {
  ValueId id = emit_use(e, v);
  Global *global = module_add_global(build->m, GLOBAL_OUTPUT, name,
                                     *value_type(build->frame->fn, id), build_loc(build, at));
  ir_store(build->m, build->frame->fn, global, id, build_loc(build, at));
}

/* loss + every aux */
static void entry_of_loss(Build *build, World *w, Sizes *sizes, const AstItem *model, Mode mode,
                          const char *name, const char *output) {
  Eval *e = eval_new(w, sizes, mode, build);
  e->adapters = build->adapters;
  Frame *frame = begin_entry(build, name);
  eval_model(e, model);
  e->here = e->loss_span;
  Val loss = e->loss;
  if (frame->has_aux) {
    lower_aux(e, &loss);
    loss = frame->aux;
  }
  store_output(build, e, intern(build->m->ctx->names, output), &loss, e->loss_span);
  module_add(build->m, frame->fn);
}

static void entry_of_outputs(Build *build, World *w, Sizes *sizes, const AstItem *model) {
  Eval *e = eval_new(w, sizes, MODE_LOGITS, build);
  e->adapters = build->adapters;
  Frame *frame = begin_entry(build, "logits");
  eval_model(e, model);
  for (uint32_t i = 0; i < e->outputs.n; i++) {
    ModelOutput *output = &e->outputs.at[i];
    e->here = output->span;
    store_output(build, e, intern_printf(build->m->ctx->names, "out.%s", output->name),
                 &output->val, output->span);
  }
  if (e->outputs.n) module_add(build->m, frame->fn);
}

static void add_inputs(Build *build, Eval *checked) {
  for (uint32_t i = 0; i < checked->inputs.n; i++) {
    const Input *in = checked->inputs.at[i];
    Elem elem = in->type.kind == VAL_FLOAT  ? ELEM_f32
                : in->type.kind == VAL_BOOL ? ELEM_bool
                                            : ELEM_i32;
    Global *global =
        module_add_global(build->m, GLOBAL_INPUT, in->name,
                          lower_type(checked, elem, &in->type.dims), build_loc(build, in->span));
    global->of = in->type.of;
  }
}

Module *lower_inputs(World *w, Eval *checked, const Choice *choice) {
  Module *m = module_new(w->ctx);
  Build build = {.m = m, .files = write_sources(m, w)};
  m->model = choice->model->name;
  write_dims(m, checked->sizes);
  write_train(m, checked, choice);
  add_inputs(&build, checked);
  return m;
}

static Module *write_module(World *w, const LowerOptions *options, const Choice *choice,
                            Sizes *sizes, Eval *checked, const LayoutList *layouts) {
  Module *m = module_new(w->ctx);
  Build build = {.m = m, .files = write_sources(m, w), .adapters = checked->adapters};
  m->model = choice->model->name;
  write_dims(m, sizes);
  if (choice->plan) write_mesh(&build, sizes, choice->plan->item);
  write_settings(m, checked, choice, options);
  write_written_blocks(m, w, choice);
  write_recompute(&build, checked, choice->plan ? choice->plan->item : NULL);
  write_offload(&build, choice->plan ? choice->plan->item : NULL);
  write_weights(m, checked,
                choice); /* after the sources: built-in blocks are none of the program's */
  write_lora(m, checked);
  for (uint32_t i = 0; i < layouts->n; i++)
    module_set(m, arena_printf(m->arena, "layout.%s", layouts->at[i].name), "%s",
               layout_line(m->arena, &layouts->at[i]));
  write_params(&build, checked);
  add_inputs(&build, checked);
  lower_init(&build, checked);
  entry_of_loss(&build, w, sizes, choice->base, MODE_STEP, "step", "loss");
  entry_of_loss(&build, w, sizes, choice->base, MODE_EVAL, "eval", "eval.loss");
  Sizes *one = choice_sizes(w, choice);
  give_command_line(w, one, options);
  Str batch = intern(w->ctx->names, "Batch");
  if (sizes_find(one, batch)) sizes_give(one, batch, 1, (Span){0});
  entry_of_outputs(&build, w, one, choice->base);
  return m;
}

/* ---- */

static void check_blocks(World *w, const Choice *choice) {
  const Decl *machine = plan_machine_of(w, choice->plan);
  if (machine && settings_check(w->ctx, machine->item)) check_machine_block(w, machine->item);
  if (choice->train) settings_check(w->ctx, choice->train->item);
  if (choice->plan) settings_check(w->ctx, choice->plan->item);
  const AstItem *weights = choose_weights(w, choice);
  if (weights) settings_check(w->ctx, weights);
}

/* One name space in the executable: parameters, inputs, outputs, and what the runtime itself sets
 * and reads. */
typedef VEC(AstName) Taken;

static void take(World *w, Taken *taken, Str name, Span at) {
  for (uint32_t i = 0; i < taken->n; i++) {
    if (taken->at[i].text != name) continue;
    Report *r = world_error(w, "E0203", at, "`%s` is already a name of the executable", name);
    if (taken->at[i].span.file) diag_also(r, taken->at[i].span, "here");
    diag_help(r, "give it another name");
    return;
  }
  vec_push(w->ctx->arena, *taken, (AstName){name, at});
}

static void check_names(World *w, const Eval *e) {
  static const char *const reserved[] = {"seed",
                                         "step",
                                         "loss",
                                         "eval.loss",
                                         "lr",
                                         "norm.of.gradients",
                                         "onebit.root",
                                         "onebit.error",
                                         "onebit.error.of.owner",
                                         "onebit.norm",
                                         "onebit.frozen",
                                         "onebit.begun",
                                         "onebit.renewed",
                                         "onebit.momentum",
                                         "onebit.momentum.scale",
                                         "ema.begun",
                                         "schedule_free.weights"};
  Interner *names = w->ctx->names;
  Taken taken = {0};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    take(w, &taken, intern(names, reserved[i]), (Span){0});
  for (uint32_t i = 0; i < e->params.n; i++)
    take(w, &taken, e->params.at[i]->path, e->params.at[i]->span);
  for (uint32_t i = 0; i < e->inputs.n; i++) {
    const Input *in = e->inputs.at[i];
    take(w, &taken, in->name, in->span);
    take(w, &taken, intern_printf(names, "logits.%s", in->name), in->span);
  }
  for (uint32_t i = 0; i < e->outputs.n; i++)
    take(w, &taken, intern_printf(names, "out.%s", e->outputs.at[i].name), e->outputs.at[i].span);
}

static void no_train(World *w, const Choice *choice) {
  Report *r = world_error(w, "E0603", choice->model->span, "no train block for model `%s`",
                          choice->model->name);
  diag_help(r, "add `train NAME for %s { batch 8; steps 100; optim adamw; ... }`",
            choice->model->name);
}

static bool is_searched(World *w, const Choice *choice, const LowerOptions *options) {
  SearchedPlan found = {0};
  found.word = plan_is_searched(choice->plan->item, &found.at);
  if (!found.word) return false;
  if (options->searched) *options->searched = found;
  else world_error(w, "E0602", found.at, "`%s` is chosen by commands that compile", found.word);
  return true;
}

Module *lower_program(Ctx *c, const LowerOptions *options) {
  Choice choice;
  World *w = world_load(c, options->path);
  if (w && options->written) world_add(w, options->written, options->path);
  if (!w || world_has_bad(w) || diag_errors(c->diag) || !choose_program(w, options, &choice))
    return NULL;
  if (!choice.train) no_train(w, &choice);
  apply_command_line(w, &choice, options);
  check_blocks(w, &choice);
  Sizes *sizes = choice_sizes(w, &choice);
  give_command_line(w, sizes, options);
  sizes_compute(sizes);
  if (diag_errors(c->diag)) return NULL;
  Eval *e = eval_new(w, sizes, MODE_CHECK, NULL);
  e->sized = true;
  e->adapters = read_lora(c, choice.train ? choice.train->item : NULL);
  eval_model(e, choice.base);
  if (!diag_errors(c->diag)) check_data(e, &choice), check_names(w, e);
  if (!diag_errors(c->diag) && choice.plan) check_plan(e, &choice, choice.plan->item);
  if (choice.plan && is_searched(w, &choice, options)) return NULL;
  if (!diag_errors(c->diag)) check_built(w, &choice);
  const AstItem *weights = choose_weights(w, &choice);
  if (!diag_errors(c->diag) && weights) check_weights(e, weights);
  LayoutList layouts = {0};
  if (!diag_errors(c->diag)) layouts_of(e, &layouts);
  if (!diag_errors(c->diag) && options->layouts) draw_layouts(e, options->layouts);
  world_flush_warnings(w);
  if (diag_errors(c->diag)) return NULL;
  return write_module(w, options, &choice, sizes, e, &layouts);
}

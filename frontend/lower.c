/* From files to a module: choose, check, then walk the model once per entry with a pen in hand.

   The model is walked first without writing, with every size fixed; only if nothing is wrong is it
   written, as `init` (from the parameters' initial values), `step` (with dropout), `eval` (without)
   and `logits` (one sample, what `output` names). Gradients and updates are added by passes. */
#include "frontend/lower.h"
#include "frontend/lower_emit.h"
#include "frontend/lower_build.h"
#include "frontend/settings.h"
#include <string.h>

Loc build_loc(const Build *b, Span s) {
  Loc l = {0};
  if (!s.file || !b->files[s.file]) return l;
  diag_line_column(b->m->ctx->diag, s, &l.line, &l.column);
  l.file = b->files[s.file], l.length = s.length;
  return l;
}

/* ---- what a module says beside its functions ---- */

static bool is_read(const World *w, uint32_t file) {
  for (uint32_t i = 0; i < w->files.n; i++)
    if (w->files.at[i]->file == file) return file != w->std;
  return false;
}

/* A file's name from the folder of the model's file on; elsewhere its last part. What is compiled
 * must not depend on how the path was typed. */
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
    const Source *s = diag_source(w->ctx->diag, i);
    if (!is_read(w, i)) continue; /* ops of the library's bodies point at the user's line */
    Str name = intern(m->ctx->names, name_of_file(w, s->name));
    vec_push(m->arena, m->sources, (IrSource){.name = name, .text = s->text, .path = s->name});
    files[i] = m->sources.n;
  }
  return files;
}

static void write_dims(Module *m, Sizes *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    if (s->dim[i].decl->std) continue;
    int64_t size = size_of(s, s->dim[i].decl->name),
            stored = stored_size_of(s, s->dim[i].decl->name);
    vec_push(m->arena, m->dims,
             (Dim){.name = s->dim[i].decl->name,
                   .size = size > 0 ? size : 0,
                   .stored = stored > 0 ? stored : 0});
  }
}

static void write_params(Build *b, Eval *e) {
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *p = e->params.at[i];
    Dims all = p->lead;
    for (int k = 0; k < p->dims.n; k++) dims_add(&all, p->dims.at[k]);
    Global *g = module_add_global(b->m, GLOBAL_PARAM, p->path, lower_type(e, ELEM_f32, &all),
                                  build_loc(b, p->span));
    g->decay = !p->nodecay, g->frozen = p->frozen;
  }
}

/* ---- entries ---- */

static Frame *begin_entry(Build *b, const char *name) {
  Frame *f = ARENA_NEW(b->m->arena, Frame);
  f->fn = fn_new(b->m, FN_ENTRY, intern(b->m->ctx->names, name));
  b->root = b->frame = f, b->rands = 0;
  return f;
}

static void store_output(Build *b, Eval *e, Str name, const Val *v, Span at) {
  ValueId id = emit_use(e, v);
  Global *g =
      module_add_global(b->m, GLOBAL_OUTPUT, name, *value_type(b->frame->fn, id), build_loc(b, at));
  ir_store(b->m, b->frame->fn, g, id, build_loc(b, at));
}

/* loss + every aux */
static void entry_of_loss(Build *b, World *w, Sizes *s, const AstItem *model, Mode mode,
                          const char *name, const char *output) {
  Eval *e = eval_new(w, s, mode, b);
  Frame *f = begin_entry(b, name);
  eval_model(e, model);
  e->here = e->loss_span;
  Val loss = e->loss;
  if (f->has_aux) {
    lower_aux(e, &loss);
    loss = f->aux;
  }
  store_output(b, e, intern(b->m->ctx->names, output), &loss, e->loss_span);
  module_add(b->m, f->fn);
}

static void entry_of_outputs(Build *b, World *w, Sizes *s, const AstItem *model) {
  Eval *e = eval_new(w, s, MODE_LOGITS, b);
  Frame *f = begin_entry(b, "logits");
  eval_model(e, model);
  for (uint32_t i = 0; i < e->outputs.n; i++) {
    ModelOutput *o = &e->outputs.at[i];
    e->here = o->span;
    store_output(b, e, intern_printf(b->m->ctx->names, "out.%s", o->name), &o->val, o->span);
  }
  if (e->outputs.n) module_add(b->m, f->fn);
}

static void add_inputs(Build *b, Eval *checked) {
  for (uint32_t i = 0; i < checked->inputs.n; i++) {
    const Input *in = checked->inputs.at[i];
    Elem elem = in->type.kind == VAL_FLOAT  ? ELEM_f32
                : in->type.kind == VAL_BOOL ? ELEM_bool
                                            : ELEM_i32;
    Global *g =
        module_add_global(b->m, GLOBAL_INPUT, in->name, lower_type(checked, elem, &in->type.dims),
                          build_loc(b, in->span));
    g->of = in->type.of;
  }
}

static Module *write_module(World *w, const LowerOptions *o, const Choice *c, Sizes *s,
                            Eval *checked, const LayoutList *layouts) {
  Module *m = module_new(w->ctx);
  Build b = {.m = m, .files = write_sources(m, w)};
  m->model = c->model->name;
  write_dims(m, s);
  if (c->plan) write_mesh(&b, s, c->plan->item);
  write_settings(m, checked, c, o);
  write_recompute(&b, checked, c->plan ? c->plan->item : NULL);
  write_offload(&b, c->plan ? c->plan->item : NULL);
  write_weights(m, checked, c); /* after the sources: built-in blocks are none of the program's */
  for (uint32_t i = 0; i < layouts->n; i++)
    module_set(m, arena_printf(m->arena, "layout.%s", layouts->at[i].name), "%s",
               layout_line(m->arena, &layouts->at[i]));
  write_params(&b, checked);
  add_inputs(&b, checked);
  lower_init(&b, checked);
  entry_of_loss(&b, w, s, c->base, MODE_STEP, "step", "loss");
  entry_of_loss(&b, w, s, c->base, MODE_EVAL, "eval", "eval.loss");
  Sizes *one = choice_sizes(w, c);
  give_command_line(w, one, o);
  Str batch = intern(w->ctx->names, "Batch");
  if (sizes_find(one, batch)) sizes_give(one, batch, 1, (Span){0});
  entry_of_outputs(&b, w, one, c->base);
  return m;
}

/* ---- */

static void check_blocks(World *w, const Choice *c) {
  const Decl *machine = plan_machine_of(w, c->plan);
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_FN, &at));)
    if (d->item->kind == ITEM_EXTERN && d->item->block) settings_check(w->ctx, d->item);
  if (machine && settings_check(w->ctx, machine->item)) check_machine_block(w, machine->item);
  if (c->train) settings_check(w->ctx, c->train->item);
  if (c->plan) settings_check(w->ctx, c->plan->item);
  const AstItem *weights = choose_weights(w, c);
  if (weights) settings_check(w->ctx, weights);
}

/* One name space in the executable: parameters, inputs, outputs, and what the runtime itself sets
 * and reads. */
typedef VEC(AstName) Taken;

static void take(World *w, Taken *t, Str name, Span at) {
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->at[i].text != name) continue;
    Report *r = world_error(w, "E0203", at, "`%s` is already a name of the executable", name);
    if (t->at[i].span.file) diag_also(r, t->at[i].span, "here");
    diag_help(r, "give it another name");
    return;
  }
  vec_push(w->ctx->arena, *t, (AstName){name, at});
}

static void check_names(World *w, const Eval *e) {
  static const char *const reserved[] = {"seed",        "step",         "loss",
                                         "eval.loss",   "lr",           "norm.of.gradients",
                                         "onebit.root", "onebit.error", "onebit.error.of.owner",
                                         "onebit.norm", "onebit.frozen"};
  Interner *names = w->ctx->names;
  Taken t = {0};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    take(w, &t, intern(names, reserved[i]), (Span){0});
  for (uint32_t i = 0; i < e->params.n; i++)
    take(w, &t, e->params.at[i]->path, e->params.at[i]->span);
  for (uint32_t i = 0; i < e->inputs.n; i++) {
    const Input *in = e->inputs.at[i];
    take(w, &t, in->name, in->span);
    take(w, &t, intern_printf(names, "logits.%s", in->name), in->span);
  }
  for (uint32_t i = 0; i < e->outputs.n; i++)
    take(w, &t, intern_printf(names, "out.%s", e->outputs.at[i].name), e->outputs.at[i].span);
}

static bool bad_item(const World *w) {
  for (uint32_t i = 0; i < w->files.n; i++)
    for (uint32_t k = 0; k < w->files.at[i]->items.n; k++)
      if (w->files.at[i]->items.at[k]->bad) return true;
  return false;
}

static void no_train(World *w, const Choice *c) {
  Report *r =
      world_error(w, "E0603", c->model->span, "no train block for model `%s`", c->model->name);
  diag_help(r, "add `train NAME for %s { batch 8; steps 100; optim adamw; ... }`", c->model->name);
}

/* The word that lets messages fly; else the whole line. */
static Span flight_word(const AstSetting *zero) {
  const AstValue *ahead = setting_option(zero, "prefetch"),
                 *overlap = setting_option(zero, "overlap");
  return overlap ? overlap->span : ahead ? ahead->span : zero->span;
}

/* Where the words of a plan stand that the caller may have to speak of. */
static LowerFacts plan_facts(const Decl *plan) {
  LowerFacts facts = {.plan = plan->span, .plan_name = plan->name};
  const AstValue *micro = settings_value(plan->item, "micro", NULL);
  if (micro) facts.micro = true, facts.micro_at = micro->span;
  const AstValue *on = settings_value(plan->item, "on", NULL);
  if (on) facts.on = on->span;
  const AstSetting *zero = settings_line(plan->item, "zero");
  if (zero) facts.zero = zero->span, facts.flight = flight_word(zero);
  const AstValue *ahead = setting_option(zero, "prefetch");
  if (ahead) facts.ahead = ahead->span;
  return facts;
}

Module *lower_program(Ctx *c, const LowerOptions *o) {
  Choice choice;
  World *w = world_load(c, o->path);
  if (!w || bad_item(w) || diag_errors(c->diag) || !choose_program(w, o, &choice)) return NULL;
  if (!choice.train) no_train(w, &choice);
  apply_command_line(w, &choice, o);
  if (o->facts)
    *o->facts = choice.plan ? plan_facts(choice.plan)
                            : (LowerFacts){.plan_left = choose_plan_left(w, &choice)};
  check_blocks(w, &choice);
  Sizes *s = choice_sizes(w, &choice);
  give_command_line(w, s, o);
  sizes_compute(s);
  if (diag_errors(c->diag)) return NULL;
  Eval *e = eval_new(w, s, MODE_CHECK, NULL);
  e->sized = e->compile = true;
  eval_model(e, choice.base);
  if (!diag_errors(c->diag)) check_data(e, &choice), check_names(w, e);
  if (!diag_errors(c->diag) && choice.plan) check_plan(e, &choice, choice.plan->item);
  if (!diag_errors(c->diag)) check_built(w, &choice);
  const AstItem *weights = choose_weights(w, &choice);
  if (!diag_errors(c->diag) && weights) check_weights(e, weights);
  LayoutList layouts = {0};
  if (!diag_errors(c->diag)) layouts_of(e, &layouts);
  if (!diag_errors(c->diag) && o->layouts) draw_layouts(e, o->layouts);
  world_flush_warnings(w);
  if (diag_errors(c->diag)) return NULL;
  return write_module(w, o, &choice, s, e, &layouts);
}

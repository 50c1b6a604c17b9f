/* own: a parameter that only one end of a pipeline reads belongs to that end.

   A parameter outside of the layers is read where its dependents are needed: the embedding on the
   first stage, the head on the last one. To find the stages that read it, apart from its own
   update, the pass builds the future programs of the classes: each is made from a copy (pass
   `classes`), and live loads in it show the parameters. A parameter that only the first stage
   reads, or only the last, is marked so (Global.stages), with its states: other stages have no
   bytes for it, and no update.

     gradient, a sum over stages   the owner's value: the others add 0, so nothing is sent
     numbers of it, such as its    the owner's, for all: a sum over stages to which the others
     part of the norm              add 0
     init, the update              stored by all in this program; `classes` leaves it to the owner

   A parameter that both ends read, such as a tied embedding, and no stage between, is held by
   both: the sum of its gradient is over all stages, and those between discard it. If any op other
   than its update and such numbers reads a gradient, all stages keep the parameter. So they do
   with `zero` over the axis of the stages. Must not: change the value of a number; sums over
   stages lose terms that are 0. */
#include "ir/made.h"
#include "classes.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/word_patterns.h"
#include "passes/simplify/simplify.h"
#include <string.h>

enum { NEED_ALL = 1 << 7 }; /* in addition to masks of stages that hold */

typedef struct Own {
  Module *m;
  StageClass class[STAGE_ENDS];
  int n;
  Str axis;
  Global *scalar;  /* the coordinate */
  unsigned *reads; /* by global: classes that read it, as a mask of their numbers */
} Own;

/* The parameter of a state, whose name extends the parameter's; a parameter's is itself; NULL:
   neither. */
static Global *param_of(const Module *m, Global *g) {
  Global *best = g->kind == GLOBAL_PARAM ? g : NULL;
  for (uint32_t i = 0; g->kind == GLOBAL_STATE && i < m->globals.n; i++) {
    Global *p = m->globals.at[i];
    size_t n = strlen(p->name);
    if (p->kind != GLOBAL_PARAM || strncmp(g->name, p->name, n) || g->name[n] != '.') continue;
    if (!best || n > strlen(best->name)) best = p;
  }
  return best;
}

static bool may_be_owned(const Own *own, Global *g) {
  const Global *p = param_of(own->m, g);
  return p && p->type.rank && g->type.rank && !p->placed.on[own->class[0].axis] &&
         !g->placed.on[own->class[0].axis];
}

/* ---- readers by stage ---- */

typedef struct ClassReads { /* in the program of one class */
  const Own *k;
  const Module *m;
  bool *needed; /* by global of the plan's module */
} ClassReads;

static Global *global_like(const Own *own, const Global *global) {
  return module_global(own->m, intern(own->m->ctx->names, global->name));
}

static bool acts(const ClassReads *reads, const Op *o) {
  if (o->code != OP_store) return op_acts(o);
  Global *global = global_like(reads->k, o->global);
  return !may_be_owned(reads->k, global) || reads->needed[global_index(reads->k->m, global)];
}

/* Do live ops load a global that was not seen before? */
static bool see_entry(ClassReads *reads, const Fn *f) {
  bool *live = ARENA_ARRAY(reads->m->arena, bool, f->values.n + 1), more = false;
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    bool is = acts(reads, o);
    for (uint32_t j = 0; j < o->nout; j++) is |= live[o->out + j];
    for (uint32_t j = 0; is && j < o->nin; j++) live[o->in[j]] = true;
    if (!is || o->code != OP_load) continue;
    bool *needed = &reads->needed[global_index(reads->k->m, global_like(reads->k, o->global))];
    more |= !*needed, *needed = true;
  }
  return more;
}

/* A parameter needs its states, which its update reads; a state that is read, its parameter. */
static bool join_states(ClassReads *reads) {
  bool more = false;
  for (uint32_t i = 0; i < reads->k->m->globals.n; i++) {
    const Global *global = param_of(reads->k->m, reads->k->m->globals.at[i]);
    uint32_t at = global ? global_index(reads->k->m, global) : i;
    if (reads->needed[i] == reads->needed[at]) continue;
    reads->needed[i] = reads->needed[at] = more = true;
  }
  return more;
}

static bool counts(const Fn *f) { return f->kind == FN_ENTRY && strcmp(f->name, "init") != 0; }

static void see_class(Own *own, int number) {
  Module *m = ir_copy(own->m, "stages");
  must(module_choose_class(m, own->class[number].name), "own: no class of that name");
  classes_apart(m, false);
  simplify_module(m, true);
  ClassReads reads = {own, m, ARENA_ARRAY(own->m->arena, bool, own->m->globals.n + 1)};
  for (bool more = true; more;) {
    more = join_states(&reads);
    for (uint32_t i = 0; i < m->fns.n; i++)
      if (counts(m->fns.at[i])) more |= see_entry(&reads, m->fns.at[i]);
  }
  for (uint32_t i = 0; i < own->m->globals.n; i++)
    if (reads.needed[i]) own->reads[i] |= 1u << number;
}

static void see_classes(Own *own) {
  own->reads = ARENA_ARRAY(own->m->arena, unsigned, own->m->globals.n + 1);
  for (int i = 0; i < own->n; i++) see_class(own, i);
}

static void mark(Own *own) {
  unsigned last = 1u << (own->n - 1);
  for (uint32_t i = 0; i < own->m->globals.n; i++) {
    Global *global = own->m->globals.at[i];
    if (!may_be_owned(own, global)) continue;
    unsigned reads = own->reads[i];
    bool ends = reads == (1 | last) && own->n == STAGE_ENDS;
    global->stages = reads == 1      ? STAGES_FIRST
                     : reads == last ? STAGES_LAST
                     : ends          ? STAGES_ENDS
                                     : 0;
  }
}

/* ---- the step ---- */

typedef struct OwnStep {
  Own *k;
  Fn *f;
  unsigned *need; /* by value: masks of the owners whose stores it reaches, or NEED_ALL; a sum of
                     it over all dims counts separately */
  unsigned *at;   /* by value: the stages that have it; 0: all */
} OwnStep;

static bool is_number(const Fn *f, ValueId v) { return value_type(f, v)->rank == 0; }

static bool completes(const OwnStep *step, const Op *o) {
  return o->code == OP_all_reduce && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), step->k->axis) &&
         !is_number(step->f, o->out);
}

/* Sums of gradients that their owner alone needs. */
static bool is_owned(const OwnStep *step, const Op *o) {
  unsigned need = step->need[o->out];
  return completes(step, o) && (need == STAGES_FIRST || need == STAGES_LAST);
}

static bool of_stages(const OwnStep *step, const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), step->k->axis);
}

static unsigned need_of(const OwnStep *step, const Op *o) {
  unsigned need = 0;
  if (o->code == OP_store) return o->global->stages ? o->global->stages : NEED_ALL;
  if (o->code == OP_loop || (of_stages(step, o) && !is_owned(step, o))) return NEED_ALL;
  for (uint32_t i = 0; i < o->nout; i++) need |= step->need[o->out + i];
  return need;
}

static void find_needs(OwnStep *step) {
  for (OpId i = step->f->ops.n; i-- > 0;) {
    const Op *o = &step->f->ops.at[i];
    unsigned need = need_of(step, o);
    for (uint32_t j = 0; j < o->nin; j++)
      if (!o->nout || !is_number(step->f, o->out) || is_number(step->f, o->in[j]))
        step->need[o->in[j]] |= need;
  }
}

/* Is v a number that all stages need and only some compute? */
static bool is_told(const OwnStep *step, const Op *o, unsigned at) {
  return at && o->nout == 1 && is_number(step->f, o->out) && step->need[o->out] != at;
}

/* The stages that have results of o; *bad: an op on them reads a value of other stages. A loop
   over micro-batches keeps values of one stage apart itself (pass `pipeline`). */
static unsigned place(const OwnStep *step, const Op *o, bool *bad) {
  unsigned at = o->code == OP_load ? o->global->stages : is_owned(step, o) ? step->need[o->out] : 0;
  bool acts = o->code == OP_store || (of_stages(step, o) && !is_owned(step, o));
  if (o->code == OP_loop) return 0;
  for (uint32_t i = 0; i < o->nin; i++) {
    unsigned in = step->at[o->in[i]];
    if (!in) continue;
    *bad |= at && at != in;
    *bad |= acts && !(o->code == OP_store && o->global->stages == in);
    at = in;
  }
  return at;
}

/* False: stages cannot be separated in this way. */
static bool find_places(OwnStep *step) {
  bool bad = false;
  EACH_OP (step->f, o) {
    unsigned at = place(step, o, &bad);
    for (uint32_t j = 0; j < o->nout; j++) step->at[o->out + j] = is_told(step, o, at) ? 0 : at;
  }
  return !bad;
}

/* v of one stage on all of them. */
static ValueId tell(const OwnStep *step, Fn *f, ValueId v, unsigned at) {
  Module *m = step->k->m;
  const StageClass *class = &step->k->class[at == STAGES_FIRST ? 0 : step->k->n - 1];
  Type t = *value_type(f, v);
  ValueId here = ir_load(m, f, step->k->scalar, (Loc){0});
  ValueId owner = ir_const(m, f, ELEM_i32, (double)class->first, (Loc){0});
  ValueId is = ir_binary(m, f, OP_eq, here, owner, (Loc){0});
  ValueId none = ir_const(m, f, t.elem, 0, (Loc){0});
  v = ir_where(m, f, is, v, none, (Loc){0});
  v = emit_typed(m, f, OP_all_reduce, 1, &v, NULL, t, (Loc){0});
  AttrList *list = &vec_last(f->ops).attrs;
  attr_set_str(m, list, ATTR_axis, step->k->axis);
  attr_set_int(m, list, ATTR_ranks, m->mesh.at[class->axis].size);
  return v;
}

static Fn *rewritten(const OwnStep *step) {
  Rebuild rebuild = rebuild_begin(step->k->m, step->f);
  bool bad = false;
  EACH_OP (step->f, o) {
    unsigned at = place(step, o, &bad);
    if (is_owned(step, o)) {
      rebuild.map[o->out] = rebuild.map[o->in[0]];
      continue;
    }
    ValueId made = rebuild_op(&rebuild, o)->out;
    if (is_told(step, o, at)) rebuild.map[o->out] = tell(step, rebuild.to, made, at);
  }
  return rebuild.to;
}

static OwnStep see_step(Own *own, Fn *f) {
  OwnStep step = {.k = own, .f = f};
  step.need = ARENA_ARRAY(own->m->arena, unsigned, f->values.n + 1);
  step.at = ARENA_ARRAY(own->m->arena, unsigned, f->values.n + 1);
  find_needs(&step);
  return step;
}

/* False: some step updates owned parameters in an unknown way. Then no step is changed. */
static bool own_steps(Own *own) {
  VEC(OwnStep) steps = {0};
  for (uint32_t i = 0; i < own->m->fns.n; i++)
    if (entry_trains(own->m->fns.at[i]))
      vec_push(own->m->arena, steps, see_step(own, own->m->fns.at[i]));
  for (uint32_t i = 0; i < steps.n; i++)
    if (!find_places(&steps.at[i])) return false;
  for (uint32_t i = 0; i < steps.n; i++)
    module_replace(own->m, steps.at[i].f, rewritten(&steps.at[i]));
  return true;
}

/* If a sum of gradients is needed by an owner and by other stages, no parameter has an owner. */
static void disown_all(Own *own) {
  for (uint32_t i = 0; i < own->m->globals.n; i++) own->m->globals.at[i]->stages = 0;
}

void pass_own(Module *m) {
  Own own = {.m = m};
  own.n = module_ends(m, own.class);
  if (!own.n || !entry_of(m, "step")) return;
  own.axis = m->mesh.at[own.class[0].axis].name;
  if (text_lists(plan_zero_axes(m), own.axis)) return;
  own.scalar = module_global(m, made_coordinate(m, own.axis));
  must(own.scalar, "own: ranks do not know where they are along %s", own.axis);
  see_classes(&own);
  mark(&own);
  if (!own_steps(&own)) disown_all(&own);
  module_collect(m);
}

/* own: what one end of a pipeline alone reads belongs to it.

   A parameter outside of the layers is read where what follows from it is needed: the embedding on
   the first stage, the head on the last one. Which stages read it, apart from its own update, is
   found as the programs of the classes will be: each is made from a copy (pass `classes`), and what
   is alive in it loads parameters. What the first stage alone reads, or the last, is marked so
   (Global.stages), with its states: other stages have no bytes for it, and no update.

     gradient, a sum over stages   what its owner has: the others add 0, so nothing is sent
     numbers of it, such as its    the owner's, for all: a sum over stages to which the others
     part of the norm              add 0
     init, the update              stored by all in this program; `classes` leaves it to the owner

   What both ends read, such as a tied embedding, and none between, both hold: the sum of its
   gradient is of all stages, and those between forget it. Where anything else than its update and
   such numbers reads a gradient, all stages keep the parameter. So they do with `zero` over the
   axis of the stages. Must not: change what a number is; sums over stages lose terms that are 0. */
#include "ir/module_settings.h"
#include "ir/placement.h"
#include "ir/stage_class.h"
#include "ir/text.h"
#include "passes/internal.h"
#include <string.h>

enum { NEED_ALL = 1 << 7 }; /* beside masks of stages that hold */

typedef struct Own {
  Module *m;
  StageClass class[STAGE_CLASSES];
  int n;
  Str axis;
  Global *scalar;  /* the coordinate */
  unsigned *reads; /* by global: classes that read it, as a mask of their numbers */
} Own;

static uint32_t number_of(const Module *m, const Global *g) {
  uint32_t i = 0;
  while (m->globals.at[i] != g) i++;
  return i;
}

/* The parameter of a state, whose name goes on from its own; of itself; NULL: it is neither. */
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

static bool may_be_owned(const Own *k, Global *g) {
  const Global *p = param_of(k->m, g);
  return p && p->type.rank && g->type.rank && !p->placed.on[k->class[0].axis] &&
         !g->placed.on[k->class[0].axis];
}

/* ---- who reads what ---- */

typedef struct ClassReads { /* in the program of one class */
  const Own *k;
  const Module *m;
  bool *needed; /* by global of the plan's module */
} ClassReads;

static Global *global_like(const Own *k, const Global *g) {
  return module_global(k->m, intern(k->m->ctx->names, g->name));
}

static bool acts(const ClassReads *c, const Op *o) {
  if (o->code != OP_store) return op_acts(o);
  Global *g = global_like(c->k, o->global);
  return !may_be_owned(c->k, g) || c->needed[number_of(c->k->m, g)];
}

/* Does what is alive load something new? */
static bool see_entry(ClassReads *c, const Fn *f) {
  bool *live = ARENA_ARRAY(c->m->arena, bool, f->values.n + 1), more = false;
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    bool is = acts(c, o);
    for (uint32_t j = 0; j < o->nout; j++) is |= live[o->out + j];
    for (uint32_t j = 0; is && j < o->nin; j++) live[o->in[j]] = true;
    if (!is || o->code != OP_load) continue;
    bool *needed = &c->needed[number_of(c->k->m, global_like(c->k, o->global))];
    more |= !*needed, *needed = true;
  }
  return more;
}

/* A parameter needs its states, which its update reads; a state that is read, its parameter. */
static bool join_states(ClassReads *c) {
  bool more = false;
  for (uint32_t i = 0; i < c->k->m->globals.n; i++) {
    const Global *p = param_of(c->k->m, c->k->m->globals.at[i]);
    uint32_t at = p ? number_of(c->k->m, p) : i;
    if (c->needed[i] == c->needed[at]) continue;
    c->needed[i] = c->needed[at] = more = true;
  }
  return more;
}

static bool counts(const Fn *f) { return f->kind == FN_ENTRY && strcmp(f->name, "init") != 0; }

static void see_class(Own *k, int number, const char *text, size_t n) {
  Module *m = ir_parse(k->m->ctx, "stages", text, n);
  must(m && module_choose_class(m, k->class[number].name), "own: a module cannot be read back");
  pass_classes(m);
  simplify_module(m, true);
  ClassReads c = {k, m, ARENA_ARRAY(k->m->arena, bool, k->m->globals.n + 1)};
  for (bool more = true; more;) {
    more = join_states(&c);
    for (uint32_t i = 0; i < m->fns.n; i++)
      if (counts(m->fns.at[i])) more |= see_entry(&c, m->fns.at[i]);
  }
  for (uint32_t i = 0; i < k->m->globals.n; i++)
    if (c.needed[i]) k->reads[i] |= 1u << number;
}

static void see_classes(Own *k) {
  size_t n;
  const char *text = ir_print(k->m, &n);
  k->reads = ARENA_ARRAY(k->m->arena, unsigned, k->m->globals.n + 1);
  for (int i = 0; i < k->n; i++) see_class(k, i, text, n);
}

static void mark(Own *k) {
  unsigned last = 1u << (k->n - 1);
  for (uint32_t i = 0; i < k->m->globals.n; i++) {
    Global *g = k->m->globals.at[i];
    if (!may_be_owned(k, g)) continue;
    unsigned reads = k->reads[i];
    bool ends = reads == (1 | last) && k->n == STAGE_CLASSES;
    g->stages = reads == 1 ? STAGES_FIRST : reads == last ? STAGES_LAST : ends ? STAGES_ENDS : 0;
  }
}

/* ---- the step ---- */

typedef struct OwnStep {
  Own *k;
  Fn *f;
  unsigned *need; /* by value: masks of the owners whose stores it reaches, or NEED_ALL; what is
                     made of it by a sum over all dims counts for itself */
  unsigned *at;   /* by value: the stages that have it; 0: all */
} OwnStep;

static bool is_number(const Fn *f, ValueId v) { return value_type(f, v)->rank == 0; }

static bool completes(const OwnStep *s, const Op *o) {
  return o->code == OP_all_reduce && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), s->k->axis) &&
         !is_number(s->f, o->out);
}

/* Sums of gradients that their owner alone needs. */
static bool is_owned(const OwnStep *s, const Op *o) {
  unsigned need = s->need[o->out];
  return completes(s, o) && (need == STAGES_FIRST || need == STAGES_LAST);
}

static bool of_stages(const OwnStep *s, const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE &&
         !strcmp(attr_str(&o->attrs, ATTR_axis, ""), s->k->axis);
}

static unsigned need_of(const OwnStep *s, const Op *o) {
  unsigned need = 0;
  if (o->code == OP_store) return o->global->stages ? o->global->stages : NEED_ALL;
  if (o->code == OP_loop || (of_stages(s, o) && !is_owned(s, o))) return NEED_ALL;
  for (uint32_t i = 0; i < o->nout; i++) need |= s->need[o->out + i];
  return need;
}

static void find_needs(OwnStep *s) {
  for (OpId i = s->f->ops.n; i-- > 0;) {
    const Op *o = &s->f->ops.at[i];
    unsigned need = need_of(s, o);
    for (uint32_t j = 0; j < o->nin; j++)
      if (!o->nout || !is_number(s->f, o->out) || is_number(s->f, o->in[j]))
        s->need[o->in[j]] |= need;
  }
}

/* Is v a number that all stages need, of what some have? */
static bool is_told(const OwnStep *s, const Op *o, unsigned at) {
  return at && o->nout == 1 && is_number(s->f, o->out) && s->need[o->out] != at;
}

/* Where results of o are; *bad: something reads there what other stages have. A loop over
   micro-batches keeps what is of one stage apart itself (pass `pipeline`). */
static unsigned place(const OwnStep *s, const Op *o, bool *bad) {
  unsigned at = o->code == OP_load ? o->global->stages : is_owned(s, o) ? s->need[o->out] : 0;
  bool acts = o->code == OP_store || (of_stages(s, o) && !is_owned(s, o));
  if (o->code == OP_loop) return 0;
  for (uint32_t i = 0; i < o->nin; i++) {
    unsigned in = s->at[o->in[i]];
    if (!in) continue;
    *bad |= at && at != in;
    *bad |= acts && !(o->code == OP_store && o->global->stages == in);
    at = in;
  }
  return at;
}

/* False: it cannot be told apart so. */
static bool find_places(OwnStep *s) {
  bool bad = false;
  for (OpId i = 0; i < s->f->ops.n; i++) {
    const Op *o = &s->f->ops.at[i];
    unsigned at = place(s, o, &bad);
    for (uint32_t j = 0; j < o->nout; j++) s->at[o->out + j] = is_told(s, o, at) ? 0 : at;
  }
  return !bad;
}

/* v of one stage on all of them. */
static ValueId tell(const OwnStep *s, Fn *f, ValueId v, unsigned at) {
  Module *m = s->k->m;
  const StageClass *c = &s->k->class[at == STAGES_FIRST ? 0 : s->k->n - 1];
  Type t = *value_type(f, v);
  ValueId here = ir_load(m, f, s->k->scalar, (Loc){0});
  ValueId owner = ir_const(m, f, ELEM_i32, (double)c->first, (Loc){0});
  ValueId is = ir_binary(m, f, OP_eq, here, owner, (Loc){0});
  ValueId none = ir_const(m, f, t.elem, 0, (Loc){0});
  v = ir_where(m, f, is, v, none, (Loc){0});
  v = emit_typed(m, f, OP_all_reduce, 1, &v, NULL, t, (Loc){0});
  AttrList *l = &vec_last(f->ops).attrs;
  attr_set_str(m, l, ATTR_axis, s->k->axis);
  attr_set_int(m, l, ATTR_ranks, m->mesh.at[c->axis].size);
  return v;
}

static Fn *rewritten(const OwnStep *s) {
  Rebuild r = rebuild_begin(s->k->m, s->f);
  bool bad = false;
  for (OpId i = 0; i < s->f->ops.n; i++) {
    const Op *o = &s->f->ops.at[i];
    unsigned at = place(s, o, &bad);
    if (is_owned(s, o)) {
      r.map[o->out] = r.map[o->in[0]];
      continue;
    }
    ValueId made = rebuild_op(&r, o)->out;
    if (is_told(s, o, at)) r.map[o->out] = tell(s, r.to, made, at);
  }
  return r.to;
}

/* Of owned parameters, those that are updated otherwise than is known here: of all again. */
static bool own_step(Own *k) {
  Fn *f = entry_of(k->m, "step");
  OwnStep s = {.k = k, .f = f};
  s.need = ARENA_ARRAY(k->m->arena, unsigned, f->values.n + 1);
  s.at = ARENA_ARRAY(k->m->arena, unsigned, f->values.n + 1);
  find_needs(&s);
  if (!find_places(&s)) return false;
  module_replace(k->m, f, rewritten(&s));
  return true;
}

/* Does some sum of gradients go to an owner and to others, too? Then nobody owns what it is of. */
static void disown_all(Own *k) {
  for (uint32_t i = 0; i < k->m->globals.n; i++) k->m->globals.at[i]->stages = 0;
}

void pass_own(Module *m) {
  Own k = {.m = m};
  k.n = module_classes(m, k.class);
  if (!k.n || !entry_of(m, "step")) return;
  k.axis = m->mesh.at[k.class[0].axis].name;
  if (text_lists(plan_zero_axes(m), k.axis)) return;
  k.scalar = module_global(m, intern_printf(m->ctx->names, "mesh.%s", k.axis));
  must(k.scalar, "own: ranks do not know where they are along %s", k.axis);
  see_classes(&k);
  mark(&k);
  if (!own_step(&k)) disown_all(&k);
  module_collect(m);
}

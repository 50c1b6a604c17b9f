/* One model on one rank and on a mesh, in the interpreter (check.h). Both are taken after `clean`,
   whose folded constants are rounded. All floats are doubles: differences come only from the order
   of sums. Messages in 8 bits are also exact (interp_set_exact_codes).

   Results that rounding alone decides are not compared: from a gradient that is mathematically zero
   LAMB makes a step of full length, in a direction that depends on the order of sums. After a
   difference, one rank runs again with noise in every result, far above a double's rounding, and a
   tensor counts only if it differs by more than this noise causes.

   A placed trial takes the ranks' program after `memory` instead. It then runs twice more, with
   floats rounded to their types: by the mathematics, and in byte arenas where every byte knows
   whose it is. These two must agree on every rank, bit by bit; with messages in flight, whether
   they arrive late or early. */
#include "check.h"
#include "tests/common/reported.h"
#include "passes/base/rebuild.h"
#include "frontend/lower.h"
#include "ir/cost/budget.h"
#include "ir/phases.h"
#include "ir/schedule/flight.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t z) { /* splitmix64 */
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static int64_t size_named(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (m->dims.at[i].name == name) return m->dims.at[i].size;
  return 1;
}

/* Every sixth label is absent, every fifth position is padding: losses and counts differ by
   rank. */
static double input_value(const Module *m, const Global *g, uint64_t step, int64_t i) {
  uint64_t r = mix(step * 1000003 + (uint64_t)i * 7919 + (uint64_t)g->name[0]);
  if (g->of && !strcmp(g->name, "labels") && r % 6 == 0) return -100;
  if (g->of) return (double)(r / 64 % (uint64_t)size_named(m, g->of));
  if (g->type.elem == ELEM_bool) return r % 5 > 0 || i % 8 == 0;
  return elem_class(g->type.elem) == CLASS_INT ? (double)(r % 5) : (double)(r % 4001) / 1000 - 2;
}

/* `K like D` as lowering writes it where a plan has a mesh. */
static const char *with_mesh(Ctx *c, Module *m, const Plan *p) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (!strcmp(m->dims.at[i].name, "Key")) m->dims.at[i].like = intern(c->names, "Seq");
  for (uint32_t i = 0; p->pad && i < m->dims.n; i++) {
    Dim *d = &m->dims.at[i];
    if (strcmp(d->name, "Batch")) d->stored = (d->size + p->pad - 1) / p->pad * p->pad;
  }
  const char *text = ir_print(m, NULL), *at = strstr(text, "\nset ") + 1;
  return arena_printf(c->arena, "%.*smesh %s\n%s%s", (int)(at - text), text, p->mesh, p->rules, at);
}

static void set_all(Ctx *c, Module *m, const char *settings) {
  while (settings && *settings) {
    size_t key = strcspn(settings, "="), value = strcspn(settings + key, " ");
    if (!strncmp(settings, "plan.offload", 12)) /* lines of the plan, as old dumps write them */
      ir_parse_line(m, arena_printf(c->arena, "set %.*s = \"%.*s\"", (int)key, settings,
                                    (int)value - 1, settings + key + 1));
    else
      module_set(m, arena_printf(c->arena, "%.*s", (int)key, settings), "%.*s", (int)value - 1,
                 settings + key + 1);
    settings += key + value, settings += *settings == ' ';
  }
}

static void set_recompute(Ctx *c, Module *m, const char *lines) {
  while (lines && *lines) {
    size_t length = strcspn(lines, ";");
    ir_parse_line(m, arena_printf(c->arena, "recompute %.*s", (int)length, lines));
    lines += length, lines += *lines == ';';
  }
}

/* The facts of the target that `select` needs. */
static void describe_target(Ctx *c, Module *m) {
  m->target.l3 = 32 << 20, m->target.workers = 2, m->target.join = true, m->target.sums = true;
  target_named(&m->target, intern(c->names, "x86_64_v3"));
}

/* Not all of them: a step trains something. */
static void freeze(Module *m, uint64_t by) {
  Global *trained = NULL;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *g = m->globals.at[i];
    if (g->kind != GLOBAL_PARAM || g->frozen) continue;
    g->frozen = trained && mix(by + i) % 2;
    if (!g->frozen) trained = g;
  }
}

/* Counts products that read v; false: something else does. */
static bool products_read(const Fn *f, ValueId v, int *n) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      const Op *o = &f->ops.at[i];
      if (o->in[k] != v) continue;
      if (o->code == OP_dot) ++*n;
      else if (o->code != OP_loop || !products_read(o->callee, o->callee->args.at[k + 1], n))
        return false;
    }
  return true;
}

static bool is_matrix(const Module *m, const Global *g) {
  int n = 0;
  bool good = true;
  const Fn *f = entry_of(m, "eval");
  for (uint32_t i = 0; f && i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_load && f->ops.at[i].global == g)
      good &= products_read(f, f->ops.at[i].out, &n);
  return good && n == 1;
}

/* By SGD with momentum, LAMB, or Muon; not all of them. */
static void group(Module *m, uint64_t by) {
  static const char *const rules[] = {"sgd", "lamb", "muon"};
  const char *names = "", *rule = rules[by % 3];
  uint32_t left = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    if (g->kind != GLOBAL_PARAM || g->frozen) continue;
    bool takes = by % 3 != 2 ? mix(by + 7 * i) % 3 == 0 : is_matrix(m, g) && mix(by + i) % 3;
    if (!left++ || !takes) continue;
    names = arena_printf(m->arena, "%s%s%s", names, *names ? ", " : "", g->name);
  }
  if (!*names) return;
  module_set(m, "train.optim.1", "%s", rule);
  module_set(m, "train.optim.1.lr", "0.03");
  if (by % 3 == 0) module_set(m, "train.optim.1.momentum", "0.5");
  module_set(m, "train.optim.1.of", "%s", names);
}

static Module *lowered(Ctx *c, const Trial *t) {
  const char *batch = arena_printf(c->arena, "train.batch=%lld", (long long)t->batch);
  LowerOptions options = {.path = t->file, .dims = &t->dim, .ndims = t->dim != NULL};
  options.sets = &batch, options.nsets = t->batch != 0;
  Module *m = lower_program(c, &options);
  if (!m) return NULL;
  if (t->placed) describe_target(c, m);
  if (t->frozen) freeze(m, t->frozen);
  if (t->groups) group(m, t->groups);
  if (t->rate) module_set(m, "train.optim.lr", "%s", t->rate);
  if (t->plan.zero) module_set(m, "plan.zero", "%d", t->plan.zero);
  set_all(c, m, t->plan.settings);
  set_all(c, m, t->train);
  if (t->plan.micro) module_set(m, "plan.micro", "%lld", (long long)t->plan.micro);
  if (t->plan.mesh) {
    const char *text = with_mesh(c, m, &t->plan);
    m = ir_parse(c, "meshed.ir", text, strlen(text));
  }
  if (m) set_recompute(c, m, t->plan.recompute); /* its axes are in the mesh */
  return m;
}

Module *trial_module(Ctx *c, const Trial *t, const char *last) {
  Module *m = lowered(c, t);
  return m && pipeline_run(m, &(PipelineOptions){.verify = true, .until = last}) ? m : NULL;
}

/* A program for each class of ranks. */
static bool trial_programs(Ctx *c, const Trial *t, const char *last, Programs *out) {
  Module *m = lowered(c, t);
  return m && pipeline_classes(m, &(PipelineOptions){.verify = true, .until = last}, out);
}

enum { DOUBTS = 3 };
static const double NOISE = 0x1p-46, DOUBTED = 1e-10, BEYOND = 10;

typedef struct Pair {
  Ctx *c;
  Module *one, *many; /* many: of rank 0 */
  Programs programs;
  Interp *a;
  Ranks *b;
  Interp *doubt[DOUBTS]; /* one rank with noise; NULL: not asked */
  Outcome *out;
} Pair;

/* The entry that samples token by token is made for one rank alone. */
static bool in_both(const Pair *p, const Global *g) {
  for (uint32_t i = 0; i < p->many->globals.n; i++)
    if (!strcmp(p->many->globals.at[i]->name, g->name)) return true;
  return false;
}

static void set_rank_inputs(Ranks *r, const Module *one, Module *many, Arena *a, int step) {
  for (uint32_t i = 0; i < one->globals.n; i++) {
    const Global *g = one->globals.at[i];
    if (g->kind != GLOBAL_INPUT || !module_global(many, intern(many->ctx->names, g->name)))
      continue;
    int64_t n = type_count(&g->type);
    double *v = ARENA_ARRAY(a, double, n);
    for (int64_t k = 0; k < n; k++) v[k] = input_value(one, g, (uint64_t)step, k);
    ranks_set(r, g->name, v);
  }
}

static void set_inputs(Pair *p, int step) {
  for (uint32_t i = 0; i < p->one->globals.n; i++) {
    const Global *g = p->one->globals.at[i];
    if (g->kind != GLOBAL_INPUT || !in_both(p, g)) continue;
    int64_t n = type_count(&g->type);
    double *v = ARENA_ARRAY(p->c->arena, double, n);
    for (int64_t k = 0; k < n; k++) v[k] = input_value(p->one, g, (uint64_t)step, k);
    interp_set(p->a, g->name, v);
    for (int k = 0; k < DOUBTS && p->doubt[k]; k++) interp_set(p->doubt[k], g->name, v);
  }
  set_rank_inputs(p->b, p->one, p->many, p->c->arena, step);
  if (!interp_get(p->a, "step")) return;
  interp_set_all(p->a, "step", step), ranks_set_all(p->b, "step", step);
  for (int k = 0; k < DOUBTS && p->doubt[k]; k++) interp_set_all(p->doubt[k], "step", step);
}

/* Differences against the size of the whole tensor: gradients that are zero but for rounding do not
   count. */
static double difference(const Tensor *x, const Tensor *y) {
  double difference = 0, size = 1e-9;
  for (int64_t i = 0, n = type_count(&x->type); i < n; i++) {
    difference += (x->at[i] - y->at[i]) * (x->at[i] - y->at[i]), size += x->at[i] * x->at[i];
    if (isnan(y->at[i])) difference = INFINITY;
  }
  return sqrt(difference / size);
}

static bool is_doubtful(const Pair *p, const Global *g, double share) {
  double most = 0;
  for (int k = 0; k < DOUBTS && p->doubt[k]; k++)
    most = fmax(most, difference(interp_get(p->a, g->name), interp_get(p->doubt[k], g->name)));
  return share <= BEYOND * most;
}

/* Parameters and states of a stack in several parts are put together (ranks_get). */
static void compare(Pair *p, const Global *g) {
  const Tensor *x = interp_get(p->a, g->name), *y = ranks_get(p->b, g->name);
  if (!y && g->derived) return; /* a copy of a parameter: not every plan has it */
  if (!y) {
    p->out->error = ranks_error(p->b);
    if (!p->out->error) p->out->error = arena_printf(p->c->arena, "no rank has @%s", g->name);
    return;
  }
  double share = difference(x, y);
  if (share > p->out->worst && !is_doubtful(p, g, share))
    p->out->worst = share, p->out->where = g->name;
}

static void run_doubts(Pair *p, const char *entry) {
  for (int k = 0; k < DOUBTS && p->doubt[k]; k++)
    if (!interp_run(p->doubt[k], entry)) p->out->error = interp_error(p->doubt[k]);
}

static bool both(Pair *p, const char *entry) {
  if (!interp_run(p->a, entry)) p->out->error = interp_error(p->a);
  else if (!ranks_run(p->b, entry)) p->out->error = ranks_error(p->b);
  run_doubts(p, entry);
  return !p->out->error;
}

static void compare_all(Pair *p) {
  for (uint32_t i = 0; i < p->one->globals.n && !p->out->error; i++) {
    GlobalKind k = p->one->globals.at[i]->kind;
    bool kept = k == GLOBAL_PARAM || k == GLOBAL_STATE;
    if (kept || (k == GLOBAL_OUTPUT && in_both(p, p->one->globals.at[i])))
      compare(p, p->one->globals.at[i]);
  }
}

/* The messages sent are those of the program, to the element. */
static void check_sent(Pair *p, int steps) {
  int64_t planned[MAX_MESH][OP_COUNT] = {0};
  TrafficList l = module_traffic(p->many);
  for (uint32_t i = 0; i < l.n; i++)
    planned[l.at[i].axis][l.at[i].kind] = (int64_t)l.at[i].elements * steps;
  for (int a = 0; a < (int)p->many->mesh.n; a++)
    for (int c = 0; c < OP_COUNT; c++) {
      int64_t sent = p->out->sent[a][c] = ranks_sent(p->b, a, (OpCode)c);
      if (sent != planned[a][c])
        p->out->error = arena_printf(p->c->arena, "%s over %s: %lld elements sent, %lld planned",
                                     op_name((OpCode)c), p->many->mesh.at[a].name, (long long)sent,
                                     (long long)planned[a][c]);
    }
}

/* Where states are on the host late steps are a program of their own. */
static const char *step_of(const Module *m, int step) {
  const Fn *later = module_later_step(m);
  return later && step >= fn_phase_from(later) ? later->name : "step";
}

static bool both_step(Pair *p, int step) {
  if (!interp_run(p->a, step_of(p->one, step))) p->out->error = interp_error(p->a);
  else if (!ranks_run(p->b, step_of(p->many, step))) p->out->error = ranks_error(p->b);
  run_doubts(p, step_of(p->one, step));
  return !p->out->error;
}

/* For every step; weights and states are those at the end. */
static void compare_loss(Pair *p) {
  const Global *loss = module_global(p->one, intern(p->c->names, "loss"));
  if (loss && in_both(p, loss)) compare(p, loss);
}

static Interp *one_rank(const Pair *p) {
  Interp *in = interp_new(p->one, p->c->arena);
  interp_set_round(in, false);
  interp_set_all(in, "seed", 11);
  return in;
}

static void begin_pair(Pair *p, bool doubts) {
  p->a = one_rank(p);
  p->b = ranks_new_classes(p->programs.at, p->programs.n, p->c->arena);
  ranks_set_round(p->b, false), ranks_set_all(p->b, "seed", 11);
  ranks_set_exact_codes(p->b, true);
  for (int k = 0; k < DOUBTS && doubts; k++)
    p->doubt[k] = one_rank(p), interp_set_noise(p->doubt[k], NOISE, (uint64_t)k);
}

static void run_pair(Pair *p, int steps, bool doubts) {
  p->out->worst = 0, p->out->where = "-";
  begin_pair(p, doubts);
  if (!both(p, "init")) return;
  for (int i = 0; i < steps; i++) {
    set_inputs(p, i);
    if (!both_step(p, i)) return;
    compare_loss(p);
  }
  if (!p->out->error) check_sent(p, steps);
  if (p->out->error) return;
  if (both(p, "eval") && both(p, "logits")) compare_all(p);
}

/* ---- in bytes ---- */

/* The first rank and global of which two runs hold other numbers. */
static const char *first_difference(Pair *p, const Ranks *x, const Ranks *y) {
  for (int64_t r = 0; r < mesh_ranks(p->many); r++)
    for (uint32_t i = 0; i < p->many->globals.n; i++) {
      const Global *g = p->many->globals.at[i];
      const Tensor *a = interp_get(ranks_rank(x, r), g->name),
                   *b = interp_get(ranks_rank(y, r), g->name);
      for (int64_t k = 0, n = g->within ? 0 : type_count(&g->type); k < n; k++)
        if (a->at[k] != b->at[k] && !(isnan(a->at[k]) && isnan(b->at[k])))
          return arena_printf(p->c->arena, "in bytes, rank %lld, @%s element %lld: %.9g, not %.9g",
                              (long long)r, g->name, (long long)k, b->at[k], a->at[k]);
    }
  return NULL;
}

static void run_both_ways(Pair *p, Ranks *x, Ranks *y, const char *entry) {
  if (p->out->error || !module_fn(p->many, intern(p->c->names, entry))) return;
  if (!ranks_run(x, entry)) p->out->error = ranks_error(x);
  else if (!ranks_run_placed(y, entry))
    p->out->error = arena_printf(p->c->arena, "in bytes, %s: %s", entry, ranks_error(y));
  else p->out->error = first_difference(p, x, y);
}

/* Messages in flight arrive when they are waited for, or, `early`, when they start. */
static void run_placed(Pair *p, int steps, bool early) {
  Ranks *x = ranks_new_classes(p->programs.at, p->programs.n, p->c->arena),
        *y = ranks_new_classes(p->programs.at, p->programs.n, p->c->arena);
  ranks_set_early(y, early);
  ranks_set_all(x, "seed", 11), ranks_set_all(y, "seed", 11);
  run_both_ways(p, x, y, "init");
  run_both_ways(p, x, y, "refresh");
  for (int i = 0; i < steps && !p->out->error; i++) {
    set_rank_inputs(x, p->one, p->many, p->c->arena, i);
    set_rank_inputs(y, p->one, p->many, p->c->arena, i);
    if (interp_get(p->a, "step")) ranks_set_all(x, "step", i), ranks_set_all(y, "step", i);
    run_both_ways(p, x, y, step_of(p->many, i));
  }
  run_both_ways(p, x, y, "eval");
  run_both_ways(p, x, y, "logits");
}

Outcome trial_run(Ctx *c, const Trial *t) {
  Outcome out = {0};
  Trial alone = *t;
  alone.plan = (Plan){0};
  Pair p = {.c = c, .one = trial_module(c, &alone, "clean"), .out = &out};
  if (!p.one || !trial_programs(c, t, t->placed ? "prove" : "clean", &p.programs)) {
    out.error = reported(c);
    return out;
  }
  p.many = p.programs.at[0];
  if (t->print) printf("%s\n", ir_print(p.many, NULL));
  out.m = p.many;
  run_pair(&p, t->steps, false);
  if (!out.error && out.worst > DOUBTED) run_pair(&p, t->steps, true);
  if (t->placed && !out.error) run_placed(&p, t->steps, false);
  if (t->placed && !out.error && module_has(p.many, op_flies)) run_placed(&p, t->steps, true);
  return out;
}

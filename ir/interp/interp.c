/* The interpreter's frame: globals, functions, calls, loops, and how to walk a tensor. See
   interp.h.

   Each call of a function has an arena of its own that is freed when it returns, so a long training
   run in the interpreter stays small. Stores are collected and take effect when the entry ends:
   loads see the state of its start, wherever they are in the entry. */
#include "interp_inside.h"
#include "ir/loop.h"
#include "ir/plan/module_settings.h"
#include "ir/support/numbers.h"
#include "ir/schedule/pipeline_schedule.h"
#include <math.h>
#include <stdatomic.h>

/* ---- walking ---- */

int64_t stride_of(const Type *t, Str dim) {
  int64_t stride = 1;
  for (int i = t->rank; i-- > 0;) {
    if (t->axis[i].dim == dim) return stride;
    stride *= t->axis[i].size;
  }
  return 0;
}

Steps steps_in(const Type *space, const Type *t) {
  Steps s = {{0}};
  for (int i = 0; i < space->rank; i++) s.step[i] = stride_of(t, space->axis[i].dim);
  return s;
}

int64_t *walk_offsets(Arena *arena, const Type *space, const Type *t) {
  int64_t *offsets = ARENA_ARRAY(arena, int64_t, type_count(space)), index[MAX_RANK] = {0}, n = 0;
  Steps steps = steps_in(space, t);
  int64_t row = walk_row(space), step = steps_in_row(space, &steps);
  do {
    int64_t at = steps_at(space, &steps, index);
    for (int64_t i = 0; i < row; i++) offsets[n++] = at + i * step;
  } while (walk_next_row(space, index));
  return offsets;
}

Type type_of_dims(const Type *t, int n, const Str *dims) {
  Type r = {.elem = t->elem, .rank = n};
  for (int i = 0; i < n; i++) r.axis[i] = (Axis){dims[i], type_size(t, dims[i])};
  return r;
}

Tensor tensor_new(Arena *arena, Type t) {
  return (Tensor){t, ARENA_ARRAY(arena, double, type_count(&t))};
}

static bool same_order(const Type *a, const Type *b) {
  bool same = a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++)
    same = a->axis[i].dim == b->axis[i].dim && a->axis[i].size == b->axis[i].size;
  return same;
}

Tensor tensor_in_order(Arena *arena, const Tensor *t, const Type *type) {
  Tensor r = tensor_new(arena, *type);
  if (same_order(&t->type, type)) {
    memcpy(r.at, t->at, sizeof *r.at * (size_t)type_count(type));
    return r;
  }
  const int64_t *from = walk_offsets(arena, type, &t->type);
  for (int64_t i = 0, n = type_count(type); i < n; i++) r.at[i] = t->at[from[i]];
  return r;
}

/* ---- numbers ---- */

static double whole(double x, double least, double most) {
  if (isnan(x)) return 0;
  x = trunc(x);
  return x < least ? least : x > most ? most : x;
}

static double rounded(Elem e, double x) {
  switch (e) {
  case ELEM_f32: return (float)x;
  case ELEM_bf16: return f32_from_bf16(bf16_from_f32((float)x));
  case ELEM_f16: return f32_from_f16(f16_from_f32((float)x));
  default: return x;
  }
}

bool interp_in_field(const Interp *in, Elem e) {
  return in->field && (elem_class(e) == CLASS_FLOAT || e == ELEM_u8);
}

bool run_in_field(const InterpRun *run, Elem e) { return interp_in_field(run->interp, e); }

double run_constant(const InterpRun *run, Elem e, double x) {
  return run_in_field(run, e) ? field_of((float)x) : x;
}

static double code(const InterpRun *run, double x) {
  if (run->interp->field)
    return run->op && run->op->code == OP_cast ? field_sub(x, field_of(0.5)) : x;
  if (!run->interp->exact_codes) return whole(x, 0, 255);
  return run->op->code == OP_cast ? x - 0.5 : x;
}

static double noisy(Interp *in, double x) {
  if (in->noise == 0 || x == trunc(x)) return x;
  uint64_t z = (in->drawn += 0x9E3779B97F4A7C15u); /* splitmix64 */
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return x * (1 + in->noise * ((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1));
}

/* x as element type e can hold it */
static double run_round(const InterpRun *run, Elem e, double x) {
  if (e == ELEM_bool) return x != 0;
  if (e == ELEM_u8) return code(run, x);
  if (e == ELEM_i32) return whole(x, INT32_MIN, INT32_MAX);
  if (e == ELEM_i64) return whole(x, (double)INT64_MIN, (double)INT64_MAX);
  if (run->interp->field) return x;
  return noisy(run->interp, run->interp->round ? rounded(e, x) : x);
}

void run_put(const InterpRun *run, Tensor *tensor, int64_t i, double x) {
  tensor->at[i] = run_round(run, tensor->type.elem, x);
}

/* ---- functions ---- */

const Tensor *run_in(const InterpRun *run, uint32_t i) { return &run->value[run->op->in[i]]; }
Tensor *run_out(const InterpRun *run, uint32_t i) { return &run->value[run->op->out + i]; }

static void run_global(InterpRun *run) {
  Interp *in = run->interp;
  uint32_t g = global_index(in->m, run->op->global);
  if (run->op->code == OP_load) {
    Tensor *out = run_out(run, 0);
    *out = tensor_in_order(run->arena, &in->global[g], &out->type);
  } else {
    Tensor kept = tensor_in_order(in->arena, run_in(run, 0), &in->global[g].type);
    vec_push(in->arena, in->stores, (Store){g, kept});
  }
}

/* Part i of tensor along dim, in the order of `part`. */
static Tensor slice_of(Arena *arena, const Tensor *tensor, Str dim, int64_t i, const Type *part) {
  Tensor whole = {tensor->type, tensor->at + i * stride_of(&tensor->type, dim)};
  return tensor_in_order(arena, &whole, part);
}

static void put_slice(Arena *arena, Tensor *tensor, Str dim, int64_t i, const Tensor *part) {
  const int64_t *to = walk_offsets(arena, &part->type, &tensor->type);
  double *base = tensor->at + i * stride_of(&tensor->type, dim);
  for (int64_t k = 0, n = type_count(&part->type); k < n; k++) base[to[k]] = part->at[k];
}

typedef struct InterpRounds { /* a loop while it runs */
  uint32_t carried, whole;    /* operands that are carried; carried or invariant */
  Str dim;
  Tensor *args, *results;
} InterpRounds;

static Tensor slice_in(InterpRun *run, const InterpRounds *rounds, uint32_t k, int64_t i,
                       Arena *arena) {
  const Tensor *all = run_in(run, k);
  const Fn *body = run->op->callee;
  return slice_of(arena, all, rounds->dim, loop_slice(run->op, &all->type, i),
                  value_type(body, body->args.at[k + 1]));
}

/* Stacked results that other loops write as well start with the slices written before; before the
   first of these loops, with values that are recognised if they are read. */
static void start_results(InterpRun *run, const InterpRounds *rounds) {
  for (uint32_t k = rounds->carried; k < run->op->nout; k++) {
    uint32_t on = loop_continues(run->op, k);
    Tensor *tensor = run_out(run, k);
    int64_t n = type_count(&tensor->type);
    if (on != NO_VALUE) {
      Tensor have = tensor_in_order(run->arena, run_in(run, on), &tensor->type);
      memcpy(tensor->at, have.at, sizeof(double) * (size_t)n);
    }
    for (int64_t i = 0; loop_begins(run->op, k) && i < n; i++) run_put(run, tensor, i, NAN);
  }
}

static void loop_round(InterpRun *run, InterpRounds *rounds, int64_t i) {
  Arena *arena = arena_new();
  const Fn *body = run->op->callee;
  double counter = (double)i;
  rounds->args[0] = (Tensor){type_scalar(ELEM_i32), &counter};
  for (uint32_t k = rounds->whole; k < run->op->nin; k++)
    rounds->args[k + 1] = slice_in(run, rounds, k, i, arena);
  interp_fn(run->interp, body, rounds->args, arena, rounds->results);
  for (uint32_t k = 0; k < rounds->carried; k++) { /* out of the round's arena */
    Tensor tensor = tensor_in_order(arena, &rounds->results[k], &run_out(run, k)->type);
    memcpy(run_out(run, k)->at, tensor.at, sizeof(double) * (size_t)type_count(&tensor.type));
    rounds->args[k + 1] = *run_out(run, k);
  }
  for (uint32_t k = rounds->carried; k < run->op->nout; k++)
    put_slice(arena, run_out(run, k), rounds->dim, loop_slice(run->op, &run_out(run, k)->type, i),
              &rounds->results[k]);
  arena_free(arena);
}

static InterpRounds begin_rounds(InterpRun *run) {
  const Op *op = run->op;
  InterpRounds rounds = {.carried = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0),
                         .dim = op->group[0].from[0]};
  rounds.whole = loop_whole(op);
  rounds.args = ARENA_ARRAY(run->arena, Tensor, op->nin + 1);
  rounds.results = ARENA_ARRAY(run->arena, Tensor, op->nout + 1);
  for (uint32_t k = 0; k < rounds.whole; k++) rounds.args[k + 1] = *run_in(run, k);
  start_results(run, &rounds);
  return rounds;
}

static void run_loop(InterpRun *run) {
  const Op *op = run->op;
  int64_t trip = attr_int(&op->attrs, ATTR_trip, 0), first = loop_first(op),
          reverse = attr_int(&op->attrs, ATTR_reverse, 0);
  InterpRounds rounds = begin_rounds(run);
  for (int64_t i = 0; i < trip; i++) loop_round(run, &rounds, first + (reverse ? trip - 1 - i : i));
}

static void run_call(InterpRun *run) {
  if (run->op->code == OP_loop) {
    run_loop(run);
    return;
  }
  Tensor *args = ARENA_ARRAY(run->arena, Tensor, run->op->nin + 1);
  Tensor *results = ARENA_ARRAY(run->arena, Tensor, run->op->nout + 1);
  for (uint32_t i = 0; i < run->op->nin; i++) args[i] = *run_in(run, i);
  interp_fn(run->interp, run->op->callee, args, run->arena, results);
  for (uint32_t i = 0; i < run->op->nout; i++)
    *run_out(run, i) = tensor_in_order(run->arena, &results[i], &run_out(run, i)->type);
}

/* Here a collective is over when it is started, and one memory is as good as another. */
static void run_wait(InterpRun *run) {
  *run_out(run, 0) = tensor_in_order(run->arena, run_in(run, 0), &run_out(run, 0)->type);
}

static RunFamily *const families[] = {
    [FAMILY_SOURCE] = run_source,       [FAMILY_ELEM] = run_elem,
    [FAMILY_REDUCE] = run_reduce,       [FAMILY_SCAN] = run_scan,
    [FAMILY_STRUCT] = run_struct,       [FAMILY_CONTRACT] = run_contract,
    [FAMILY_GATHER] = run_gather,       [FAMILY_SCATTER] = run_scatter,
    [FAMILY_ATTENTION] = run_attention, [FAMILY_GLOBAL] = run_global,
    [FAMILY_CALL] = run_call,           [FAMILY_COLLECTIVE] = run_collective,
    [FAMILY_FLIGHT] = run_wait,         [FAMILY_MOVE] = run_wait,
};

/* ---- the budget of work ---- */

enum { OP_WORK = 16 }; /* of an op of no numbers */
const char interp_spent[] = "the budget of work is spent";

bool interp_spend(const Interp *in, int64_t work) {
  return !in->work || atomic_fetch_sub(&in->work->left, work) >= work;
}

/* Terms of sums count; those of attention as the scores, which are no operand. */
static int64_t work_of(const InterpRun *run) {
  const Op *op = run->op;
  int64_t n = OP_WORK;
  for (uint32_t i = 0; i < op->nin; i++) n += type_count(&run_in(run, i)->type);
  for (uint32_t i = 0; i < op->nout; i++) n += type_count(&run_out(run, i)->type);
  if (op_family(op->code) == FAMILY_CONTRACT && op->ngroups) {
    Type summed = type_of_dims(&run_in(run, 0)->type, op->group[0].nfrom, op->group[0].from);
    n += type_count(&run_out(run, 0)->type) * type_count(&summed);
  }
  if (op_family(op->code) == FAMILY_ATTENTION)
    n += type_count(&run_in(run, 0)->type) * type_size(&run_in(run, 1)->type, op->group[0].to[0]);
  return n;
}

static void run_op(InterpRun *run, const Fn *f, OpId i) {
  run->op = &f->ops.at[i];
  if (!interp_spend(run->interp, run->interp->work ? work_of(run) : 0)) return;
  families[op_family(run->op->code)](run);
}

/* Views between the loops show what a round has left. */
static void run_turns(InterpRun *run, const Fn *f, const ScheduleLoops *loops) {
  int64_t stage = schedule_stage(run->interp->m, &f->ops.at[loops->loop[0]], run->interp->rank);
  InterpRounds rounds[TURN_LOOPS];
  for (int i = 0; i < loops->n; i++)
    run->op = &f->ops.at[loops->loop[i]], rounds[i] = begin_rounds(run);
  for (ScheduleState state = {{0}}; !schedule_done(&loops->table, &state);) {
    int next = schedule_next(&loops->table, stage, &state);
    run->op = &f->ops.at[loops->loop[next]];
    loop_round(run, &rounds[next], state.over[next]++);
    for (OpId i = loops->loop[0] + 1; i < schedule_end(loops); i++)
      if (schedule_loop_number(loops, i) < 0) run_op(run, f, i);
  }
}

void interp_fn(Interp *in, const Fn *f, const Tensor *args, Arena *out, Tensor *results) {
  InterpRun run = {in, arena_new(), f, NULL, NULL};
  run.value = ARENA_ARRAY(run.arena, Tensor, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++)
    run.value[f->args.at[i]] = tensor_in_order(run.arena, &args[i], value_type(f, f->args.at[i]));
  for (ValueId v = 0; v < f->values.n; v++)
    if (f->values.at[v].def != NO_OP) run.value[v] = tensor_new(run.arena, *value_type(f, v));
  for (OpId i = 0; i < f->ops.n; i++) {
    ScheduleLoops t;
    if (!schedule_find(f, i, &t)) run_op(&run, f, i);
    else run_turns(&run, f, &t), i = schedule_end(&t);
  }
  for (uint32_t i = 0; i < f->results.n; i++) {
    const Tensor *t = &run.value[f->results.at[i]];
    results[i] = tensor_in_order(out, t, &t->type);
  }
  arena_free(run.arena);
}

/* ---- API ---- */

Interp *interp_new(Module *m, Arena *arena) {
  Interp *in = ARENA_NEW(arena, Interp);
  in->m = m, in->arena = arena, in->round = true;
  in->global = ARENA_ARRAY(arena, Tensor, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    in->global[i] = tensor_new(arena, m->globals.at[i]->type);
    int64_t n = type_count(&in->global[i].type);
    for (int64_t k = 0; k < n; k++) in->global[i].at[k] = 0; /* as the bytes of a fresh arena */
    module_setting_scalar(m, m->globals.at[i], in->global[i].at);
  }
  return in;
}

void interp_set_round(Interp *in, bool on) { in->round = on; }
void interp_set_noise(Interp *in, double share, uint64_t seed) {
  in->noise = share, in->drawn = seed;
}
void interp_set_exact_codes(Interp *in, bool on) { in->exact_codes = on; }
void interp_set_field(Interp *in, bool on) { in->field = on; }
void interp_set_infinite(Interp *in, bool on, double which) {
  in->infinite = on, in->infinite_number = which;
}
void interp_set_early(Interp *in, bool on) { in->early = on; }

void interp_set_work(Interp *in, InterpWork *work) { in->work = work; }

void interp_set_kernels(Interp *in, InterpKernel *run, void *state) {
  in->kernel = run, in->kernel_state = state;
}

static Tensor *find_global(const Interp *in, const char *name) {
  for (uint32_t i = 0; i < in->m->globals.n; i++)
    if (!strcmp(in->m->globals.at[i]->name, name)) return &in->global[i];
  return NULL;
}

void interp_set(Interp *in, const char *global, const double *data) {
  Tensor *tensor = find_global(in, global);
  if (!tensor) bug("interp_set: no global @%s", global);
  InterpRun run = {.interp = in};
  for (int64_t i = 0, n = type_count(&tensor->type); i < n; i++) run_put(&run, tensor, i, data[i]);
}

void interp_set_all(Interp *in, const char *global, double value) {
  Tensor *tensor = find_global(in, global);
  if (!tensor) bug("interp_set_all: no global @%s", global);
  InterpRun run = {.interp = in};
  for (int64_t i = 0, n = type_count(&tensor->type); i < n; i++) run_put(&run, tensor, i, value);
}

const Tensor *interp_get(const Interp *in, const char *global) { return find_global(in, global); }

const char *interp_error(const Interp *in) { return in->error; }

const Fn *interp_entry(Interp *in, const char *name) {
  const Fn *f = NULL;
  for (uint32_t i = 0; i < in->m->fns.n; i++)
    if (in->m->fns.at[i]->kind == FN_ENTRY && !strcmp(in->m->fns.at[i]->name, name))
      f = in->m->fns.at[i];
  in->error = f ? NULL : arena_printf(in->arena, "no entry is called @%s", name);
  return f;
}

bool interp_run(Interp *in, const char *entry) {
  const Fn *f = interp_entry(in, entry);
  if (!f) return false;
  Interp run = *in;
  run.arena = arena_new(), memset(&run.stores, 0, sizeof run.stores);
  interp_fn(&run, f, NULL, run.arena, NULL);
  if (!interp_spend(in, 0)) in->error = interp_spent;
  for (uint32_t i = 0; i < run.stores.n; i++) {
    Tensor *to = &in->global[run.stores.at[i].global];
    memcpy(to->at, run.stores.at[i].value.at, sizeof(double) * (size_t)type_count(&to->type));
  }
  arena_free(run.arena);
  return !in->error;
}

void interp_call(Interp *in, const Fn *f, const Tensor *args, Tensor *results) {
  interp_fn(in, f, args, in->arena, results);
}

/* Whether a program fits into the memory of its machine.

   What a step needs is known once pass `memory` has run, and the passes take a fraction of a second
   even for large models. So it is tried, not estimated: where no plan says `micro`, the largest
   divisor of the batch with which the program fits is taken (N0601); a plan that does not fit is
   E0801, with the largest `micro` that would. Tries have a context of their own, and nothing of
   them is written. The machine is that of the plan, or this one, of whose memory an eighth is left
   to others. */
#include "cmd.h"
#include "frontend/fit.h"
#include "frontend/lower.h"
#include "ir/count.h"
#include "passes/pass.h"
#include <unistd.h>

typedef struct Need { /* bytes */
  int64_t weights, states, other, work, all;
} Need;

static Need need_of(const Module *m) {
  Need n = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t bytes = type_count(&g->type) * elem_bytes(g->type.elem);
    *(g->kind == GLOBAL_PARAM   ? &n.weights
      : g->kind == GLOBAL_STATE ? &n.states
                                : &n.other) += bytes;
  }
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    int64_t frame = f->kind == FN_ENTRY ? attr_int(&f->attrs, ATTR_frame, 0) : 0;
    if (frame > n.work) n.work = frame;
  }
  n.all = n.weights + n.states + n.other + n.work;
  return n;
}

static int64_t capacity_of(const Module *m) {
  double memory = module_number(m, "machine.node.memory", 0);
  double reserve = module_number(m, "machine.node.reserve", 0);
  if (memory > 0) return (int64_t)(memory - reserve);
  return (int64_t)sysconf(_SC_PHYS_PAGES) / 8 * 7 * (int64_t)sysconf(_SC_PAGESIZE);
}

static const char *gib(Ctx *c, int64_t bytes) {
  return arena_printf(c->arena, "%.1f", (double)bytes / (1 << 30));
}

/* ---- tries ---- */

/* True if the program with this micro-batch can be made; what it needs is in `out`. */
static bool try_micro(const Cli *o, int64_t micro, Need *out) {
  Cli one = *o;
  LowerFacts facts;
  one.c = ctx_new();
  one.sets = (Strings){0};
  for (uint32_t i = 0; i < o->sets.n; i++) vec_push(one.c->arena, one.sets, o->sets.at[i]);
  vec_push(one.c->arena, one.sets, arena_printf(one.c->arena, "plan.micro=%lld", (long long)micro));
  Module *m = load_shard(&one, o->operands.at[0], &facts);
  PipelineOptions p = {.until = "memory"};
  bool good = m && describe_target(&one, m) == EXIT_FINE && pipeline_run(m, &p) &&
              !diag_errors(one.c->diag);
  if (good) *out = need_of(m);
  ctx_free(one.c);
  return good;
}

/* The largest divisor of the batch, below `limit`, with which it fits; 0: none. */
static int64_t largest_micro(const Cli *o, int64_t batch, int64_t limit, int64_t capacity,
                             Need *out) {
  VEC(int64_t) divisors = {0};
  for (int64_t d = 1; d < limit; d++)
    if (batch % d == 0) vec_push(o->c->arena, divisors, d);
  int64_t best = 0;
  uint32_t low = 0, high = divisors.n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    Need n;
    if (!try_micro(o, divisors.at[middle], &n)) return 0;
    if (n.all <= capacity) best = divisors.at[middle], *out = n, low = middle + 1;
    else high = middle;
  }
  return best;
}

/* ---- where no micro is written ---- */

/* A bound that needs no passes: every value of the forward part several times. */
static bool surely_fits(const Module *m, int64_t capacity) {
  const Fn *step = ir_main_entry(m);
  double moved = step ? ir_count(m, step).bytes : 0;
  return 8 * moved + 4 * (double)need_of(m).all < (double)capacity;
}

int64_t fit_micro(Cli *o, const Module *m, const LowerFacts *facts) {
  int64_t capacity = capacity_of(m), batch = (int64_t)module_number(m, "train.batch", 0);
  Need need = {0}, whole;
  if (facts->micro || m->mesh.n || batch < 2 || surely_fits(m, capacity)) return 0;
  if (!try_micro(o, batch, &whole) || whole.all <= capacity) return 0;
  int64_t micro = largest_micro(o, batch, batch, capacity, &need);
  if (!micro) return 0;
  Report *r =
      diag_at(o->c->diag, "N0601", facts->plan, "micro = %lld was chosen", (long long)micro);
  diag_fact(r, "needs %s GiB; the whole batch of %lld would need %s GiB, there are %s GiB",
            gib(o->c, need.all), (long long)batch, gib(o->c, whole.all), gib(o->c, capacity));
  diag_help(r, "another one: `--set plan.micro=N`, or `micro N` in a plan");
  return micro;
}

/* ---- a program that does not fit ---- */

static void add_part(Ctx *c, const char **text, const char *name, int64_t bytes) {
  if (bytes >= (1 << 30) / 20)
    *text = arena_printf(c->arena, "%s%s%s %s", *text, **text ? ", " : "", name, gib(c, bytes));
}

bool fit_check(Cli *o, const Module *m, const LowerFacts *facts) {
  Need n = need_of(m), smaller;
  int64_t capacity = capacity_of(m), batch = (int64_t)module_number(m, "train.batch", 0);
  if (n.all <= capacity) return true;
  const char *parts = "", *name = facts->plan_name ? facts->plan_name : "";
  const char *who = *name ? arena_printf(o->c->arena, "plan `%s`", name) : "the program";
  Report *r =
      diag_at(o->c->diag, "E0801", facts->plan, "%s needs %s GiB on rank 0, capacity is %s GiB",
              who, gib(o->c, n.all), gib(o->c, capacity));
  add_part(o->c, &parts, "weights", n.weights), add_part(o->c, &parts, "optimizer", n.states);
  add_part(o->c, &parts, "data", n.other), add_part(o->c, &parts, "saved and working", n.work);
  if (*parts) diag_fact(r, "%s (GiB)", parts);
  if (module_number(m, "machine.node.memory", 0) <= 0)
    diag_fact(
        r, "capacity: seven eighths of this machine's memory; a `machine` block says it otherwise");
  int64_t micro = (int64_t)module_number(m, "plan.micro", (double)batch);
  micro = file_kind(o->operands.at[0]) == FILE_SHARD && !m->mesh.n
              ? largest_micro(o, batch, micro, capacity, &smaller)
              : 0;
  if (micro) {
    diag_help(r, "`micro %lld` would need %s GiB", (long long)micro, gib(o->c, smaller.all));
    if (facts->micro) diag_edit(r, facts->plan, "%lld", (long long)micro);
  } else if (n.weights + n.states > capacity)
    diag_help(r, "weights and optimizer alone are too large: a smaller model, or more memory");
  return false;
}

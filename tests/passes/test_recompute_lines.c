/* recompute, by lines of a plan: what layers keep changes nothing in what is computed, and `auto`
   finds the best there is.

   Small random nets: a stack of three layers of products, activations, sums, random masks. Every
   set of kept values is tried through the pass itself (`keep = [names]`), its bytes and operations
   are read from the IR, and the best pair of sets within a budget is compared with what `keep =
   auto` makes of it. */
#include "common.h"
#include "ir/cost/count.h"
#include <math.h>
#include <string.h>

enum { LAYERS = 3, MOST_OPS = 7, NETS = 50, BUDGETS = 4 };

static uint32_t state = 1;
static uint32_t draw(uint32_t n) {
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % n;
}

/* ---- a random net ---- */

typedef struct Net {
  char text[8000];
  int ops; /* that may be kept: v0, v1, .. */
} Net;

typedef struct Builder {
  char body[4000], params[2000], args[1000], loads[2000], in[500];
  int value[MOST_OPS + 1]; /* ids of values */
  bool wide[MOST_OPS + 1]; /* [B, F], not [B, E] */
  int n, next, weights;
} Builder;

#define ADD(buffer, ...)                                                                           \
  snprintf((buffer) + strlen(buffer), sizeof(buffer) - strlen(buffer), __VA_ARGS__)

static const char *type_of_value(bool wide) { return wide ? "f32[B:2, F:5]" : "f32[B:2, E:3]"; }

static int pick(const Builder *b, bool wide) {
  int i;
  do i = (int)draw((uint32_t)b->n);
  while (b->wide[i] != wide);
  return b->value[i];
}

/* Argument number of a new weight; arguments precede all ops: %0 counter, %1 carried, .. */
static int weight(Builder *b, bool wide) {
  int at = b->weights++;
  const char *t = wide ? "F:5, E:3" : "E:3, F:5";
  ADD(b->params, "param @w%d : f32[L:%d, %s]\n", at, LAYERS, t);
  ADD(b->args, ", %%%d : f32[%s]", at + 2, t);
  ADD(b->loads, "%%%d = load @w%d : f32[L:%d, %s]\n", at + 1, at, LAYERS, t);
  ADD(b->in, ", %%%d", at + 1);
  return at + 2;
}

static void add_op(Builder *b, bool last) {
  static const char *const unary[] = {"tanh", "sigmoid", "exp", "sin"};
  int from = (int)draw((uint32_t)b->n), id = b->next++;
  bool wide = last ? false : b->wide[from];
  uint32_t kind = last ? 1 : draw(4);
  if (kind == 0) {
    ADD(b->body, "%%%d = %s %%%d {names = \"v%d\"} : %s\n", id, unary[draw(4)], b->value[from],
        b->n - 1, type_of_value(wide));
  } else if (kind == 1) {
    ADD(b->body, "%%%d = %s %%%d, %%%d {names = \"v%d\"} : %s\n", id, draw(2) ? "mul" : "add",
        pick(b, wide), pick(b, wide), b->n - 1, type_of_value(wide));
  } else {
    int w = weight(b, wide);
    ADD(b->body, "%%%d = dot[%s] %%%d, %%%d {names = \"v%d\"} : %s\n", id, wide ? "F" : "E",
        b->value[from], w, b->n - 1, type_of_value(!wide));
    wide = !wide;
  }
  b->value[b->n] = id, b->wide[b->n++] = wide;
}

static void make_net(Net *net) {
  static Builder b;
  enum { FIRST = 40 }; /* ids of ops: above those of all arguments */
  b = (Builder){.n = 1, .next = FIRST};
  b.value[0] = 1;
  net->ops = 3 + (int)draw(MOST_OPS - 2);
  for (int i = 0; i < net->ops; i++) add_op(&b, i + 1 == net->ops);
  int n = snprintf(
      net->text, sizeof net->text,
      "shardc-ir 1\nmodel T\nafter lower\nparam @x : f32[B:2, E:3]\n%soutput @y : f32[B:2, "
      "E:3]\nbody @h(%%0 : i32[], %%1 : f32[B:2, E:3]%s) {\n%sreturn %%%d\n}\nentry @step "
      "{\n%%0 = load @x : f32[B:2, E:3]\n%s%%90 = loop[L] @h, %%0%s {carry = 1, invariant = "
      "0, trip = %d, path = \"h\"} : f32[B:2, E:3]\nstore @y, %%90\n}\n",
      b.params, b.args, b.body, b.value[b.n - 1], b.loads, b.in, LAYERS);
  assert_true(n > 0 && n < (int)sizeof net->text);
}

/* ---- a net under a plan ---- */

typedef struct Cost {
  double flop, bytes;
} Cost;

/* The values saved by forward loops for backward loops that a later op reads. */
static double saved_bytes(const Module *m) {
  const Fn *f = ir_main_entry(m);
  double sum = 0;
  for (OpId j = 0; j < f->ops.n; j++) {
    const Op *o = &f->ops.at[j];
    if (o->code != OP_loop || !attr_int(&o->attrs, ATTR_reverse, 0)) continue;
    for (uint32_t i = 0; i < o->nin; i++) {
      const Op *from = value_def(f, o->in[i]);
      if (from && from->code == OP_loop && !attr_int(&from->attrs, ATTR_reverse, 0))
        sum += (double)type_count(value_type(f, o->in[i])) * 4;
    }
  }
  return sum;
}

static Module *planned(Ctx *c, const char *text, const char *line, const char *until) {
  Module *m = module_from(c, text);
  if (!module_global(m, intern(c->names, "loss"))) add_loss(m);
  if (line) ir_parse_line(m, arena_printf(m->arena, "recompute %s", line));
  run_until(m, until);
  return m;
}

static Cost cost_of(const char *text, const char *line) {
  Ctx *c = ctx_new();
  Module *m = planned(c, text, line, "recompute");
  Cost cost = {module_count(m).flop, saved_bytes(m)};
  ctx_free(c);
  return cost;
}

static const char *keep_line(char *out, size_t room, const char *path, int ops, unsigned set) {
  snprintf(out, room, "%s keep = [", path);
  for (int i = 0, n = 0; i < ops; i++)
    if (set >> i & 1) snprintf(out + strlen(out), room - strlen(out), "%sv%d", n++ ? ", " : "", i);
  snprintf(out + strlen(out), room - strlen(out), "]");
  return out;
}

static double best_within(const Cost *set, unsigned n, double base, double budget) {
  double best = INFINITY;
  for (unsigned x = 0; x < n; x++)
    for (unsigned y = 0; y <= x; y++)
      for (int k = 0; k <= LAYERS; k++) {
        double bytes = (k * set[x].bytes + (LAYERS - k) * set[y].bytes) / LAYERS;
        double flop = (k * (set[x].flop - base) + (LAYERS - k) * (set[y].flop - base)) / LAYERS;
        if (bytes <= budget) best = fmin(best, flop);
      }
  return best;
}

static void check_net(const Net *net) {
  static Cost set[1u << MOST_OPS];
  char line[400];
  unsigned n = 1u << net->ops;
  double base = cost_of(net->text, NULL).flop, least = INFINITY, most = 0;
  for (unsigned s = 0; s < n; s++) {
    set[s] = cost_of(net->text, keep_line(line, sizeof line, "h", net->ops, s));
    least = fmin(least, set[s].bytes), most = fmax(most, set[s].bytes);
  }
  for (int k = 0; k < BUDGETS; k++) {
    double budget = least + floor((most - least) * k / BUDGETS) + draw(30);
    snprintf(line, sizeof line, "h keep = auto budget = %.0f", budget);
    Cost is = cost_of(net->text, line);
    double best = best_within(set, n, base, budget);
    if (is.bytes > budget || is.flop - base != best)
      fail_msg("%s\n%s: %.0f bytes, %.0f operations again, best %.0f", net->text, line, is.bytes,
               is.flop - base, best);
  }
}

static void auto_is_best(void **unused) {
  (void)unused;
  static Net net;
  for (int i = 0; i < NETS; i++) {
    make_net(&net);
    check_net(&net);
  }
}

/* ---- nothing changes in what is computed ---- */

static void check_same(const char *text, const char *line, const char *until) {
  Ctx *c = ctx_new();
  Module *all = planned(c, text, "h keep = all", "clean"), *m = planned(c, text, line, until);
  Interp *a = interp_filled(all, true), *b = interp_filled(m, true);
  must_run(a, "step"), must_run(b, "step");
  for (uint32_t i = 0; i < all->globals.n; i++)
    if (all->globals.at[i]->kind == GLOBAL_OUTPUT) expect_same(a, b, all->globals.at[i]->name, 0);
  ctx_free(c);
}

static const char *const lines[] = {
    "h keep = all",        "h keep = input",       "h keep = none",
    "h[0..0] keep = none", "h[1..2] keep = input", "h[1..1] keep = none",
    "h[0..1] keep = [v0]", "h keep = [v1, v2]",    "h[2..2] keep = input"};

static void results_stay(void **unused) {
  (void)unused;
  static Net net;
  for (int i = 0; i < 10; i++) {
    make_net(&net);
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
      check_same(net.text, lines[k], "clean");
  }
}

/* A mask of random numbers that differ by layer, and a sum of every layer, stacked; also in bytes.
   */
static void check_masks(const char *path, const char *module, const char *commands) {
  (void)path, (void)commands;
  for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) check_same(module, lines[k], "memory");
  for (int budget = 120; budget < 800; budget += 60) {
    char line[80];
    snprintf(line, sizeof line, "h keep = auto budget = %d", budget);
    check_same(module, line, "clean");
  }
}

static void masks_stay(void **unused) {
  (void)unused;
  each_golden("recompute/random_masks", check_masks);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_stay),
      cmocka_unit_test(masks_stay),
      cmocka_unit_test(auto_is_best),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

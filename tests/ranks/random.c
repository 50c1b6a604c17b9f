/* Random programs under random plans: random SEED PLANS FILE..., or random @N FILE, where N is what
   a trial that failed calls its seed. Each file runs under PLANS plans:
   one to three axes with random place lines, samples over two axes, every stage of `zero`, buckets
   from one number to all, what layers keep, parts of the batch, padding, precision, layers over
   ranks, states on the host, frozen parameters, groups with their own optimizer. It must equal one
   rank, and in poisoned bytes itself (check.h); what the compiler refuses with a diagnostic counts
   as refused. Each trial runs in a process of its own. */
#include "check.h"
#include "tests/common/limit.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const dims[] = {"Batch", "A", "B", "C", "D", "E", "F", "G", "K", "H", "W"};
enum { DIMS = sizeof dims / sizeof *dims, EQUAL = 0, WRONG = 1, REFUSED = 2 };

static uint64_t state;

static uint32_t draw(uint32_t n) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) % n);
}

/* A number below n for one question about a seed, of those of add_offload: answers are independent
   of each other and of `draw`. */
static uint32_t answer(uint64_t seed, uint64_t question, uint32_t n) {
  uint64_t kept = state;
  state = seed * 31 + question;
  uint32_t number = draw(n);
  state = kept;
  return number;
}

static const char *some_dims(Ctx *c, uint32_t most) {
  const char *list = "";
  bool used[DIMS] = {false};
  for (uint32_t n = 1 + draw(most); n; n--) {
    uint32_t d = draw(DIMS);
    if (!used[d]) list = arena_printf(c->arena, "%s%s%s", list, *list ? ", " : "", dims[d]);
    used[d] = true;
  }
  return list;
}

static const char *some(const char *const *list, uint32_t n) { return list[draw(n)]; }
#define SOME(...)                                                                                  \
  some((const char *const[]){__VA_ARGS__}, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *))

/* Samples over two axes, of which one or both share the states: hybrid sharding. */
static bool add_hybrid(Ctx *c, Plan *p, uint32_t axes) {
  if (axes < 2 || draw(3)) return false;
  p->rules = "place Batch -> y, x\n";
  p->settings =
      arena_printf(c->arena, "%s%s", p->settings,
                   SOME("", "plan.zero.over=x ", "plan.zero.over=y ", "plan.zero.over=x,y "));
  return true;
}

static void add_mesh(Ctx *c, Plan *p) {
  static const char *const names[] = {"x", "y", "z"};
  uint32_t axes = 1 + draw(3);
  for (uint32_t i = 0; i < axes; i++)
    p->mesh =
        arena_printf(c->arena, "%s%s%s = %u", p->mesh, i ? ", " : "", names[i], 2 + (draw(4) == 0));
  bool hybrid = add_hybrid(c, p, axes), together = !hybrid && axes > 1 && draw(3) == 0;
  for (uint32_t i = hybrid ? 2 : 0; i < axes; i++) {
    const char *more = i == 0 && together ? ", y" : "";
    if (i == 1 && together) continue;
    const char *otherwise = draw(3) ? "" : arena_printf(c->arena, " else %s", some_dims(c, 2));
    p->rules = arena_printf(c->arena, "%splace %s -> %s%s%s\n", p->rules, some_dims(c, 4), names[i],
                            more, otherwise);
  }
  if (!hybrid && !draw(5)) p->settings = arena_printf(c->arena, "%splan.zero.over=x ", p->settings);
}

static void add_settings(Ctx *c, Plan *p) {
  p->zero = (int)draw(4);
  const char *list[] = {
      draw(2) ? SOME("plan.zero.bucket=512", "plan.zero.bucket=600", "plan.zero.bucket=1000",
                     "plan.zero.bucket=4096", "plan.zero.bucket=1000000")
              : "",
      SOME("", "", "", "plan.zero.accumulate=full"),
      SOME("", "", "", "plan.zero.keep_root=off"),
      SOME("", "", "", "", "plan.zero.keep_gathered=on"),
      SOME("", "", "", "", "", "plan.zero.persist=64"),
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (*list[i]) p->settings = arena_printf(c->arena, "%s%s ", p->settings, list[i]);
}

/* The path of stack `number` of the file. Stacks are named s0, s1, .., and have two or three
   layers; some are inside of a sub a0, a1, .. of the same number. NULL: there is no such stack. */
static const char *stack_named(Ctx *c, const char *file, int number) {
  const char *path = arena_printf(c->arena, "s%d", number),
             *stack = arena_printf(c->arena, " stack %s [", path),
             *sub = arena_printf(c->arena, " sub a%d = A", number);
  FILE *f = fopen(file, "r");
  char line[4096];
  bool has_stack = false, has_sub = false;
  while (f && fgets(line, sizeof line, f))
    has_stack |= strstr(line, stack) != NULL, has_sub |= strstr(line, sub) != NULL;
  if (f) fclose(f);
  return !has_stack ? NULL : has_sub ? arena_printf(c->arena, "a%d.%s", number, path) : path;
}

/* By a number of its own, as below: what some plans keep waits on the host. */
static void add_recompute(Ctx *c, Plan *p, const char *file, uint64_t seed) {
  FILE *f = fopen(file, "r");
  char line[4096];
  p->recompute = "";
  while (f && fgets(line, sizeof line, f)) {
    int stack;
    if (sscanf(line, " stack s%d [", &stack) != 1 || !draw(3)) continue;
    const char *keep = draw(4) ? SOME("input", "none", "all")
                               : arena_printf(c->arena, "auto budget = %u",
                                              (uint32_t[]){1, 300, 2000, 9000}[draw(4)]);
    p->recompute =
        arena_printf(c->arena, "%s%s%s%s keep = %s%s", p->recompute, *p->recompute ? ";" : "",
                     stack_named(c, file, stack), SOME("", "[0..0]", "[1..1]"), keep,
                     answer(seed, 5, 4) == 0 && strcmp(keep, "none") ? " offload = host" : "");
  }
  if (f) fclose(f);
}

/* By a number of its own: every plan is as it was, and some have their states on the host, and some
   of these their gradients; and some their parameters; and some have this of one stack alone, or of
   some of its layers: of stages, where these share it. */
static void add_offload(Ctx *c, Plan *p, const char *file, uint64_t seed) {
  static const char *const words[] = {"optimizer", "optimizer,grads", "optimizer,grads,params",
                                      "optimizer,params", "params"};
  static const char *const layers[] = {".*", "[0..0]", "[1..1]", "[0..1]"};
  const char *first = stack_named(c, file, 0), *second = stack_named(c, file, 1);
  uint32_t word = answer(seed, 0, 10);
  if (word < 5)
    p->settings = arena_printf(c->arena, "%splan.offload=%s ", p->settings, words[word]);
  if (word < 4 && first && answer(seed, 1, 2))
    p->settings = arena_printf(c->arena, "%splan.offload.optimizer=%s%s ", p->settings, first,
                               layers[answer(seed, 2, 4)]);
  if (word >= 2 && word < 5 && second && answer(seed, 3, 3) == 0)
    p->settings = arena_printf(c->arena, "%splan.offload.params=%s%s ", p->settings, second,
                               answer(seed, 4, 2) ? ".1" : ".*");
}

/* Stages of different numbers of layers: 4, 3 or 2 of them. */
static bool add_uneven(Ctx *c, Plan *p, uint64_t seed) {
  static const char *const axes[][2] = {{"N5", "3"}, {"N3", "2"}, {"N5", "3"}};
  if (seed / 270 % 3) return false;
  const char *const *a = axes[seed / 3 % (sizeof axes / sizeof *axes)];
  p->mesh = arena_printf(c->arena, "%s, pipe = %s", p->mesh, a[1]);
  p->rules = arena_printf(c->arena, "%splace %s -> pipe\n", p->rules, a[0]);
  p->settings = arena_printf(c->arena, "%splan.pipeline.uneven=%s ", p->settings,
                             seed / 810 % 2 ? "on" : "memory made.stage_layers=3");
  return true;
}

/* Layers over ranks: the numbers of layers of generate.py, by an axis that divides them, or not. */
static void add_stages(Ctx *c, Plan *p, uint64_t seed) {
  static const char *const axes[][2] = {
      {"N2, N4", "2"}, {"N3", "3"}, {"N5", "4"}, {"N5", "2"}, {"N2", "2"}};
  if (seed % 3) return;
  if (!add_uneven(c, p, seed)) {
    const char *const *a = axes[seed / 3 % (sizeof axes / sizeof *axes)];
    p->mesh = arena_printf(c->arena, "%s, pipe = %s", p->mesh, a[1]);
    p->rules = arena_printf(c->arena, "%splace %s -> pipe\n", p->rules, a[0]);
  }
  static const char *const schedules[] = {"sequential",  "gpipe", "one_f_one_b",
                                          "interleaved", "gpipe", "zero_bubble"};
  p->settings =
      arena_printf(c->arena, "%splan.pipeline=%s %s", p->settings, schedules[seed / 15 % 6],
                   seed / 90 % 2 ? "plan.pipeline.memory=2 " : ""); /* of `zero_bubble` */
}

/* Messages in 8 bits, of gradients and of weights; in doubles their codes are exact (check.c). */
static void add_int8(Ctx *c, Plan *p, uint64_t seed) {
  if (seed / 17 % 5 != 2) return;
  p->settings = arena_printf(c->arena, "%splan.precision.reduce=int8 plan.precision.block=%s %s",
                             p->settings, seed / 85 % 2 ? "16" : "32",
                             p->zero == 3 && seed / 170 % 2 ? "plan.precision.gather=int8 " : "");
}

static Plan random_plan(Ctx *c, const char *file, uint64_t seed) {
  Plan p = {.mesh = "", .rules = "", .settings = ""};
  add_mesh(c, &p);
  add_settings(c, &p);
  add_recompute(c, &p, file, seed);
  p.micro = (int64_t[]){0, 0, 1, 2}[draw(4)];
  p.pad = draw(2) ? 12 : 0;
  add_stages(c, &p, seed), add_offload(c, &p, file, seed);
  add_int8(c, &p, seed);
  return p;
}

static void print_plan(const char *file, const Plan *p) {
  printf("%s, mesh %s, micro %lld, pad %lld, zero %d, %s, %s\n%s", file, p->mesh,
         (long long)p->micro, (long long)p->pad, p->zero, p->settings, p->recompute, p->rules);
}

/* Splits that do not divide, budgets and buckets that are too small. */
static bool is_refusal(const char *error) {
  if (strstr(error, "E0602") && strstr(error, "in buckets of")) return true;
  if (strstr(error, "E0901") && strstr(error, "pipeline")) return true;
  if (strstr(error, "E0602") && strstr(error, "cannot hold a budget")) return true;
  if (strstr(error, "E0901") && strstr(error, "of some layers of a stage")) return true;
  if (strstr(error, "E0901") && (strstr(error, "these layers keep is not") ||
                                 strstr(error, "`prefetch` with `offload params`")))
    return true;
  if (strstr(error, "updates matrices")) return true;
  return strstr(error, "error[E07") && !strstr(error, "E0706");
}

static int run_one(const char *file, uint64_t seed) {
  Ctx *c = ctx_new();
  state = seed;
  bool delays = seed / 7 % 4 == 1; /* by a number of its own: the third step's update is late */
  Trial t = {.file = file, .plan = random_plan(c, file, seed), .placed = true};
  t.steps = delays ? 3 : 2;
  t.rate = "0.01";                          /* large steps blow rounding up */
  t.frozen = seed / 19 % 3 == 1 ? seed : 0; /* by a number of its own */
  t.groups = seed / 23 % 3 == 1 ? seed : 0;
  t.train = arena_printf(
      c->arena, "%s%s%s%s%s", delays ? "train.delay.after=1 " : "",
      seed / 11 % 3 == 1 ? "train.on_nan=off " : "", /* no norm is waited for */
      seed / 13 % 4 == 1 ? "train.optim.states=bf16 " : "", draw(3) ? "" : "train.optim=lamb ",
      SOME("", "", "", "", "", "plan.precision=bf16",
           "plan.precision=bf16 plan.precision.reduce=bf16",
           "plan.precision=bf16 plan.precision.reduce=f32", "plan.precision=f16"));
  t.plan.settings = arena_printf(
      c->arena, "%s%s%s", t.plan.settings,
      SOME("", "", "plan.zero.prefetch=1 ", "plan.zero.prefetch=2 ", "plan.zero.prefetch=4KiB "),
      SOME("", "plan.zero.overlap=on "));
  if (*t.plan.recompute)
    t.plan.recompute =
        arena_printf(c->arena, "%s%s", t.plan.recompute,
                     SOME("", " over x", strstr(t.plan.mesh, "y = ") ? " over y" : ""));
  Outcome o = trial_run(c, &t);
  if (o.error && is_refusal(o.error)) {
    if (getenv("SHOW_REFUSED")) print_plan(file, &t.plan), printf("%s\n", o.error);
    return REFUSED;
  }
  if (!o.error && o.worst < 1e-6) return EQUAL;
  printf("seed %llu: %s%s", (unsigned long long)seed, t.train,
         t.groups   ? "groups "
         : t.frozen ? "frozen "
                    : "");
  print_plan(file, &t.plan);
  if (o.error) printf("%s\n", o.error);
  else printf("%g at %s\n", o.worst, o.where);
  return WRONG;
}

static int in_child(const char *file, uint64_t seed) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    limit_processor_seconds(60);
    int code = run_one(file, seed);
    fflush(stdout);
    _exit(code);
  }
  int status;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  printf("%s, seed %llu: signal %d\n", file, (unsigned long long)seed, WTERMSIG(status));
  return WRONG;
}

int main(int argc, char **argv) {
  if (argc == 3 && *argv[1] == '@') return in_child(argv[2], strtoull(argv[1] + 1, NULL, 10));
  if (argc < 4) return 2;
  uint64_t seed = strtoull(argv[1], NULL, 10);
  int plans = atoi(argv[2]), count[3] = {0};
  for (int i = 3; i < argc; i++)
    for (int k = 0; k < plans; k++) {
      int code = in_child(argv[i], seed * 1000003 + (uint64_t)i * 101 + (uint64_t)k);
      count[code == EQUAL || code == REFUSED ? code : WRONG]++;
    }
  printf("%d equal, %d refused, %d wrong\n", count[EQUAL], count[REFUSED], count[WRONG]);
  return count[WRONG] || !count[EQUAL];
}

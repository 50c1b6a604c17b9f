/* Random programs on random meshes: random SEED PLANS FILE... Each file runs under PLANS plans, one
   to three axes with random place lines, and must equal one rank; what the compiler refuses with a
   diagnostic counts as refused. Each trial runs in a process of its own. */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const dims[] = {"Batch", "A", "B", "C", "D", "E", "F", "G", "K"};
enum { DIMS = sizeof dims / sizeof *dims, EQUAL = 0, WRONG = 1, REFUSED = 2 };

static uint64_t state;

static uint32_t draw(uint32_t n) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) % n);
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

static Plan random_plan(Ctx *c) {
  static const char *const names[] = {"x", "y", "z"};
  Plan p = {.mesh = "", .rules = "", .micro = 0};
  uint32_t axes = 1 + draw(3), together = axes > 1 && draw(3) == 0;
  for (uint32_t i = 0; i < axes; i++)
    p.mesh =
        arena_printf(c->arena, "%s%s%s = %u", p.mesh, i ? ", " : "", names[i], 2 + (draw(4) == 0));
  for (uint32_t i = 0; i < axes; i++) {
    const char *more = i == 0 && together ? ", y" : "";
    if (i == 1 && together) continue;
    const char *otherwise = draw(3) ? "" : arena_printf(c->arena, " else %s", some_dims(c, 2));
    p.rules = arena_printf(c->arena, "%splace %s -> %s%s%s\n", p.rules, some_dims(c, 4), names[i],
                           more, otherwise);
  }
  return p;
}

static void print_plan(const char *file, const Plan *p) {
  printf("%s, mesh %s, micro %lld, pad %lld, zero %d\n%s", file, p->mesh, (long long)p->micro,
         (long long)p->pad, p->zero, p->rules);
}

static int run_one(const char *file, uint64_t seed) {
  Ctx *c = ctx_new();
  state = seed;
  Trial t = {.file = file, .plan = random_plan(c), .steps = 2};
  t.rate = "0.01"; /* large steps blow rounding up */
  if (draw(4) == 0) t.plan.micro = 1;
  if (draw(2)) t.plan.pad = 12;
  t.plan.zero = (int)draw(5) - 1;
  if (t.plan.zero < 0) t.plan.zero = 3, t.plan.settings = "plan.zero.over=x plan.zero.bucket=64";
  if (draw(3) == 0) t.train = "train.optim=lamb";
  Outcome o = trial_run(c, &t);
  if (o.error && strstr(o.error, "error[E07") && !strstr(o.error, "E0706")) {
    if (getenv("SHOW_REFUSED")) print_plan(file, &t.plan), printf("%s\n", o.error);
    return REFUSED;
  }
  if (!o.error && o.worst < 1e-6) return EQUAL;
  print_plan(file, &t.plan);
  if (o.error) printf("%s\n", o.error);
  else printf("%g at %s\n", o.worst, o.where);
  return WRONG;
}

static int in_child(const char *file, uint64_t seed) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    alarm(60);
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

/* `shardc plan`: what a plan costs before anything runs. The passes run to `memory`, nothing is
   compiled; the figures are those of the program, not estimates, but for the time of a step, which
   is a bound from the machine block: arithmetic at its peak beside what its links carry. Ranks of a
   module are one class: it takes as long for a thousand as for two. */
#include "cmd.h"
#include "frontend/lower.h"
#include "ir/budget.h"
#include "ir/count.h"
#include "ir/placement.h"
#include "passes/pass.h"

typedef struct Planned {
  const char *name; /* of the plan; "" for the default one */
  Module *m;
  Budget need;
  int64_t reserve, capacity; /* capacity 0: the machine does not say */
  TrafficList traffic;
  double flop;
} Planned;

/* ---- the figures ---- */

static bool plan_module(Cli *o, Planned *p) {
  PipelineOptions until = {.until = "memory", .verify = !o->value[OPT_NO_VERIFY]};
  if (load_module(o, &p->m) != EXIT_FINE || describe_target(o, p->m) != EXIT_FINE ||
      !pipeline_run(p->m, &until))
    return false;
  p->need = module_budget(p->m);
  p->reserve = (int64_t)module_number(p->m, "machine.node.reserve", 0);
  p->capacity = (int64_t)module_number(p->m, "machine.node.memory", 0);
  p->traffic = module_traffic(p->m);
  p->flop = module_count(p->m).flop;
  return true;
}

static bool fits(const Planned *p) {
  return !p->capacity || p->need.total + p->reserve <= p->capacity;
}

/* Bytes that a ring really sends, of those in paper counting. */
static double ring_share(const Planned *p, int axis) {
  double n = (double)p->m->mesh.at[axis].size;
  return (n - 1) / n;
}

/* FLOP/s of the compute type, 0: unknown. */
static double peak_flops(const Planned *p) {
  const char *type = module_setting(p->m, "plan.precision", "f32");
  return module_number(p->m, arena_printf(p->m->arena, "machine.node.%s", type), 0);
}

static double seconds_of(const Planned *p) {
  double flops = peak_flops(p), link = module_number(p->m, "machine.link.intra", 0), bytes = 0;
  for (uint32_t i = 0; i < p->traffic.n; i++)
    bytes += p->traffic.at[i].bytes * ring_share(p, p->traffic.at[i].axis);
  if (flops <= 0 || (bytes > 0 && link <= 0)) return 0;
  return p->flop / flops + (bytes > 0 ? bytes / link : 0);
}

/* ---- text ---- */

static const char *amount(Arena *a, double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
  return arena_printf(a, u ? "%.2f %s" : "%.0f %s", bytes, units[u]);
}

static const char *mesh_words(const Planned *p) {
  const char *s = "";
  for (uint32_t i = 0; i < p->m->mesh.n; i++)
    s = arena_printf(p->m->arena, "%s%s%s = %lld", s, i ? ", " : "", p->m->mesh.at[i].name,
                     (long long)p->m->mesh.at[i].size);
  return *s ? s : "one rank";
}

static void say_bytes(const Planned *p) {
  const Budget *b = &p->need;
  const struct {
    const char *name;
    int64_t bytes;
  } rows[] = {{"weights", b->weights}, {"gradients", b->gradients}, {"optimizer", b->optimizer},
              {"saved", b->saved},     {"working", b->working},     {"buffers", b->buffers},
              {"reserve", p->reserve}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    printf("  %-10s %12s  %5.1f %%\n", rows[i].name, amount(p->m->arena, (double)rows[i].bytes),
           100 * (double)rows[i].bytes / (double)(b->total + p->reserve));
  printf("  %-10s %12s", "total", amount(p->m->arena, (double)(b->total + p->reserve)));
  if (p->capacity)
    printf("  of %s: %s", amount(p->m->arena, (double)p->capacity),
           fits(p) ? "fits" : "does not fit");
  printf("\n");
}

static void say_traffic(const Planned *p) {
  if (!p->traffic.n) return;
  printf("each rank sends per step          elements        bytes     calls\n");
  for (uint32_t i = 0; i < p->traffic.n; i++) {
    const Traffic *t = &p->traffic.at[i];
    printf("  over %-8s %-16s %12.0f %12s %9.0f\n", p->m->mesh.at[t->axis].name, op_name(t->kind),
           t->elements, amount(p->m->arena, t->bytes), t->calls);
  }
}

static void say_plan(const Planned *p) {
  int64_t ranks = mesh_ranks(p->m);
  printf("plan %s for %s: %lld rank%s (%s)\n", *p->name ? p->name : "(none written)", p->m->model,
         (long long)ranks, ranks == 1 ? "" : "s", mesh_words(p));
  printf("bytes of %s\n", ranks == 1 ? "the rank" : "each rank");
  say_bytes(p);
  say_traffic(p);
  printf("a step: %.4g FLOP per rank", p->flop);
  if (seconds_of(p) > 0) printf(", at least %.3g s at the machine's peak and links", seconds_of(p));
  printf("\n");
}

/* ---- JSON ---- */

static void put_axis(const Planned *p, uint32_t axis, bool *any) {
  double elements = 0, bytes = 0;
  for (uint32_t i = 0; i < p->traffic.n; i++)
    if (p->traffic.at[i].axis == (int)axis)
      elements += p->traffic.at[i].elements, bytes += p->traffic.at[i].bytes;
  printf("%s{\"axis\":\"%s\",\"elements_per_step\":%.0f,\"bytes_per_step\":%.0f,\"collectives\":[",
         *any ? "," : "", p->m->mesh.at[axis].name, elements, bytes);
  *any = true;
  bool first = true;
  for (uint32_t i = 0; i < p->traffic.n; i++) {
    const Traffic *t = &p->traffic.at[i];
    if (t->axis != (int)axis) continue;
    printf("%s{\"kind\":\"%s\",\"calls\":%.0f,\"elements\":%.0f,\"bytes\":%.0f}", first ? "" : ",",
           op_name(t->kind), t->calls, t->elements, t->bytes);
    first = false;
  }
  printf("]}");
}

static void put_json(const Planned *p) {
  const Budget *b = &p->need;
  long long ranks = (long long)mesh_ranks(p->m);
  bool any = false;
  printf("{\"schema\":1,\"plan\":\"%s\",\"model\":\"%s\",\"ranks\":%lld,\"classes\":[{\"ranks\":\"",
         p->name, p->m->model, ranks);
  printf(ranks > 1 ? "0-%lld" : "%lld", ranks - 1);
  printf("\",\"bytes\":{\"weights\":%lld,\"gradients\":%lld,\"optimizer\":%lld,\"saved\":%lld,"
         "\"working\":%lld,\"buffers\":%lld,\"reserve\":%lld,\"total\":%lld}}],\"communication\":[",
         (long long)b->weights, (long long)b->gradients, (long long)b->optimizer,
         (long long)b->saved, (long long)b->working, (long long)b->buffers, (long long)p->reserve,
         (long long)(b->total + p->reserve));
  for (uint32_t i = 0; i < p->m->mesh.n; i++) put_axis(p, i, &any);
  printf("],\"flop_per_step\":%.17g,", p->flop);
  if (seconds_of(p) > 0) printf("\"seconds_per_step\":%.6g,", seconds_of(p));
  if (p->capacity) printf("\"capacity\":%lld,", (long long)p->capacity);
  printf("\"fits\":%s}\n", fits(p) ? "true" : "false");
}

/* ---- the command ---- */

static Exit plan_one(Cli *o, const char *name) {
  Cli one = *o;
  one.c = ctx_new();
  one.planning = true;
  one.value[OPT_TARGET] = "native"; /* whatever the plan's machine is: that moves workspaces only */
  one.value[OPT_PLAN] = *name ? name : NULL;
  Planned p = {.name = name};
  bool made = plan_module(&one, &p);
  Exit e = report(&one, made ? EXIT_FINE : EXIT_INPUT);
  if (made && e == EXIT_FINE) {
    if (o->value[OPT_JSON]) put_json(&p);
    else say_plan(&p);
    if (!fits(&p)) e = EXIT_NO;
  }
  ctx_free(one.c);
  return e;
}

/* Plans by name, separated by commas; without --plan, those of FILE for the model. */
Exit cmd_plan(Cli *o) {
  const char *names = o->value[OPT_PLAN];
  if (!names) names = program_plans(o->c, o->operands.at[0]);
  if (!names) return report(o, EXIT_ENVIRONMENT);
  Exit worst = EXIT_FINE;
  do {
    size_t n = strcspn(names, ",");
    Exit e = plan_one(o, arena_strndup(o->c->arena, names, n));
    if (e > worst) worst = e;
    names += n, names += *names == ',';
    if (*names && !o->value[OPT_JSON]) printf("\n");
  } while (*names);
  return worst;
}

/* `shardc plan`: what a plan costs before anything runs. The passes run to `memory`, nothing is
   compiled; the figures are those of the program, not estimates, but for the time of a step, which
   is a bound from the machine block: arithmetic at its peak beside what its links carry. Ranks of a
   class run one program: it takes as long for a thousand as for two. */
#include "cmd_plan.h"
#include "driver/layout_drawing.h"
#include "ir/count.h"
#include "ir/placement.h"
#include "passes/pass.h"
#include "ir/module_settings.h"
#include <stdlib.h>

/* ---- the figures ---- */

/* Is there a loop over micro-batches? */
static bool adds_up(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_loop && o->group[0].nfrom && !strcmp(o->group[0].from[0], "micro"))
        return true;
    }
  return false;
}

static void plan_accumulation(const Cli *o, Planned *p) {
  static const char *const names[ACCUMULATIONS] = {"shard", "full"};
  bool full = plan_accumulates_full(p->m);
  /* A micro-batch that was chosen stands in the module alone: both choices are told for it. */
  int64_t micro = o->facts->micro ? 0 : plan_micro(p->m);
  if (plan_zero_stage(p->m) < 2 || !p->step.traffic.n || !adds_up(p->m)) return;
  for (int i = 0; i < ACCUMULATIONS; i++) {
    Accumulation *a = &p->accumulate[i];
    *a = (Accumulation){.name = names[i], .taken = (i == 1) == full};
    if (!fit_cost(o, &(FitChange){.micro = micro, .accumulate = a->name}, &a->cost)) return;
  }
  p->naccumulate = ACCUMULATIONS;
}

static Exit plan_programs(Cli *o, Planned *p) {
  PipelineOptions until = {.until = "prove", .verify = !o->value[OPT_NO_VERIFY]};
  Module *all;
  Exit e = load_module(o, &all);
  if (e == EXIT_FINE) e = describe_target(o, all);
  if (e == EXIT_FINE && !pipeline_classes(all, &until, &p->programs)) e = EXIT_INPUT;
  for (uint32_t i = 0; e == EXIT_FINE && i < p->programs.n; i++)
    if (!flights_check(o, p->programs.at[i])) e = EXIT_INPUT;
  return e;
}

static Exit plan_module(Cli *o, Planned *p) {
  Exit e = plan_programs(o, p);
  if (e != EXIT_FINE) return e;
  plan_classes(p);
  p->facts = o->facts;
  p->host = module_host(p->m), p->moves = module_moves(p->m);
  p->need = module_budget(p->m), p->pinned = module_pinned(p->m);
  for (uint32_t i = 0; i < p->m->fns.n; i++) {
    const Fn *f = p->m->fns.at[i];
    int64_t n = f->kind == FN_ENTRY ? attr_int(&f->attrs, ATTR_frame, 0) : 0;
    if (n > p->frame) p->frame = n;
  }
  p->machine = plan_machine(p->m);
  p->step = plan_step(p, ir_main_entry(p->m)), p->frozen = plan_step(p, ir_frozen_entry(p->m));
  p->freezes = ir_frozen_entry(p->m) != NULL;
  p->freeze = atof(module_setting(p->m, "made.freeze", "0")), p->steps = train_steps(p->m);
  p->fits = !p->machine.memory || fit_check(o, p->m, o->facts);
  for (uint32_t i = 0; i < p->programs.n; i++)
    p->fits = fit_host(o, p->programs.at[i], o->facts) && p->fits;
  plan_accumulation(o, p);
  return EXIT_FINE;
}

void plan_parts(const Planned *p, const Budget *b, PlanPart *out) {
  const PlanPart parts[PLAN_PARTS] = {{"weights", b->weights},        {"gradients", b->gradients},
                                      {"optimizer", b->optimizer},    {"saved", b->saved},
                                      {"working", b->working},        {"buffers", b->buffers},
                                      {"reserve", p->machine.reserve}};
  memcpy(out, parts, sizeof parts);
}

const char *plan_buffer(const Planned *p, const Alive *x) {
  const Op *def = x->value == NO_VALUE ? NULL : value_def(x->f, x->value);
  const char *of = !def ? x->f->name : def->callee ? def->callee->name : op_name(def->code);
  if (x->value == NO_VALUE) return arena_printf(p->m->arena, "workspace in %s", of);
  Loc at = def ? def->loc : (Loc){0};
  const char *where =
      at.file && at.file <= p->m->sources.n ? p->m->sources.at[at.file - 1].name : NULL;
  const char *file = where && strrchr(where, '/') ? strrchr(where, '/') + 1 : where;
  return arena_printf(p->m->arena, "%s of %s%s", type_text(p->m, value_type(x->f, x->value)), of,
                      file ? arena_printf(p->m->arena, " (%s:%u)", file, at.line) : "");
}

static int64_t all_bytes(const Planned *p) { return p->need.total + p->machine.reserve; }

/* ---- text ---- */

const char *plan_amount(Arena *a, double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
  return arena_printf(a, u ? "%.2f %s" : "%.0f %s", bytes, units[u]);
}

const char *plan_mesh(const Planned *p) {
  const char *s = "";
  for (uint32_t i = 0; i < p->m->mesh.n; i++)
    s = arena_printf(p->m->arena, "%s%s%s = %lld", s, i ? ", " : "", p->m->mesh.at[i].name,
                     (long long)p->m->mesh.at[i].size);
  return *s ? s : "one rank";
}

const char *plan_title(const Planned *p) {
  long long ranks = (long long)mesh_ranks(p->m);
  return arena_printf(p->m->arena, "plan %s for %s: %lld rank%s (%s)",
                      *p->name ? p->name : "(none written)", p->m->model, ranks,
                      ranks == 1 ? "" : "s", plan_mesh(p));
}

static void say_bytes(const Planned *p) {
  PlanPart parts[PLAN_PARTS];
  printf("bytes of %s\n", mesh_ranks(p->m) == 1 ? "the rank" : "each rank");
  plan_parts(p, &p->need, parts);
  for (int i = 0; i < PLAN_PARTS; i++)
    printf("  %-10s %12s  %5.1f %%%s\n", parts[i].name,
           plan_amount(p->m->arena, (double)parts[i].bytes),
           100 * (double)parts[i].bytes / (double)all_bytes(p),
           plan_formula(p->m, i, parts[i].bytes));
  printf("  %-10s %12s", "total", plan_amount(p->m->arena, (double)all_bytes(p)));
  if (p->machine.memory)
    printf("  of %s: %s", plan_amount(p->m->arena, (double)p->machine.memory),
           p->fits ? "fits" : "does not fit");
  printf("\n");
  if (p->need.sampling)
    printf("  to sample, %s more\n", plan_amount(p->m->arena, (double)p->need.sampling));
}

void plan_host_parts(const HostBudget *h, PlanPart out[HOST_PARTS]) {
  const PlanPart parts[HOST_PARTS] = {{"weights", h->weights},
                                      {"gradients", h->gradients},
                                      {"optimizer", h->optimizer},
                                      {"saved", h->saved},
                                      {"working", h->working}};
  memcpy(out, parts, sizeof parts);
}

void plan_pinned_parts(const Pinned *h, PlanPart out[PINNED_PARTS]) {
  const PlanPart parts[PINNED_PARTS] = {
      {"view", h->view}, {"window", h->window}, {"messages", h->messages}, {"ahead", h->ahead}};
  memcpy(out, parts, sizeof parts);
}

int64_t plan_sum(const PlanPart *part, int n) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) sum += part[i].bytes;
  return sum;
}

/* = optimizer 3.00 MiB + working 1.00 MiB */
static void say_sum(Arena *a, const PlanPart *part, int n) {
  const char *sign = " =";
  for (int i = 0; i < n; i++) {
    if (!part[i].bytes) continue;
    printf("%s %s %s", sign, part[i].name, plan_amount(a, (double)part[i].bytes));
    sign = " +";
  }
}

/* in the host's memory, here the same, 4.00 MiB
     = optimizer 3.00 MiB + working 1.00 MiB */
static void say_host(const Planned *p) {
  Arena *a = p->m->arena;
  PlanPart parts[HOST_PARTS];
  if (!p->host.total) return;
  plan_host_parts(&p->host, parts);
  printf("in the host's memory, %s%s\n ", p->need.apart ? "" : "here the same, ",
         plan_amount(a, (double)p->host.total));
  say_sum(a, parts, HOST_PARTS);
  printf("\n  a step moves %s down and %s up, in %.0f copies\n", plan_amount(a, p->moves.down),
         plan_amount(a, p->moves.up), p->moves.calls);
}

/* host, pinned     1.04 MiB  = view 12.00 KiB + window 1.00 MiB + next inputs 8.00 KiB */
static void say_pinned(const Planned *p) {
  Arena *a = p->m->arena;
  PlanPart parts[PINNED_PARTS];
  plan_pinned_parts(&p->pinned, parts), parts[PINNED_AHEAD].name = "next inputs";
  int64_t all = plan_sum(parts, PINNED_PARTS);
  if (!all) return;
  printf("host, pinned %12s ", plan_amount(a, (double)all));
  say_sum(a, parts, PINNED_PARTS);
  printf("\n");
  if (p->machine.host)
    printf("host, in all %12s  of %s for a rank\n", plan_amount(a, (double)(all + p->host.total)),
           plan_amount(a, (double)p->machine.host));
  else if (p->host.total) printf("host: its machine does not say how much memory there is\n");
}

static void say_accumulation(const Planned *p) {
  if (!p->naccumulate) return;
  printf("gradients between micro-batches       total    gradients   sent per step\n");
  for (int i = 0; i < p->naccumulate; i++) {
    const Accumulation *c = &p->accumulate[i];
    Arena *a = p->m->arena;
    printf("  accumulate = %-5s %-7s %14s %12s %15s\n", c->name, c->taken ? "(taken)" : "",
           plan_amount(a, (double)(c->cost.need.total + p->machine.reserve)),
           plan_amount(a, (double)c->cost.need.gradients), plan_amount(a, c->cost.bytes));
  }
}

static void say_layouts(const Planned *p) {
  LayoutList all = module_layouts(p->m);
  for (uint32_t i = 0; i < all.n; i++)
    printf("layout %s: %s\n", all.at[i].name, layout_words(p->m->arena, &all.at[i]));
  for (uint32_t i = 0; i < p->m->lists.n; i++) {
    const char *words = lists_words(p->m->arena, &p->m->lists.at[i]);
    if (words) printf("%s\n", words);
  }
}

static void put_layouts(const Planned *p) {
  LayoutList all = module_layouts(p->m);
  if (p->m->lists.n) lists_json(stdout, p->m), putchar(',');
  if (!all.n) return;
  printf("\"layouts\":[");
  for (uint32_t i = 0; i < all.n; i++) {
    if (i) putchar(',');
    layout_json(stdout, &all.at[i], NULL);
  }
  printf("],");
}

double plan_bubble(const PlanStep *s) {
  return s->waited > 0 ? s->waited / (s->flop + s->waited) : 0;
}

static void say_plan(const Planned *p) {
  printf("%s\n", plan_title(p));
  if (p->programs.n > 1) plan_say_classes(p);
  else say_bytes(p);
  say_host(p);
  say_pinned(p);
  plan_say_traffic(p, &p->step);
  plan_say_int8(p);
  say_accumulation(p);
  printf("a step: %.4g FLOP per rank%s, %s between kernels and memory\n", p->step.flop,
         p->programs.n > 1 ? " of the busiest class" : "", plan_amount(p->m->arena, p->step.moved));
  if (p->step.waited > 0)
    printf("and %.4g FLOP of other stages, for which it waits: a bubble of %.0f %%\n",
           p->step.waited, 100 * plan_bubble(&p->step));
  say_layouts(p);
  plan_say_time(p, &p->step);
  plan_say_flights(p);
  plan_say_frozen(p);
}

/* ---- JSON ---- */

static void put_accumulation(const Planned *p) {
  if (!p->naccumulate) return;
  printf("\"accumulate\":[");
  for (int i = 0; i < p->naccumulate; i++) {
    const Accumulation *a = &p->accumulate[i];
    printf("%s{\"choice\":\"%s\",\"taken\":%s,\"total\":%lld,\"gradients\":%lld,"
           "\"elements_per_step\":%.0f,\"bytes_per_step\":%.0f}",
           i ? "," : "", a->name, a->taken ? "true" : "false",
           (long long)(a->cost.need.total + p->machine.reserve), (long long)a->cost.need.gradients,
           a->cost.elements, a->cost.bytes);
  }
  printf("],");
}

static void put_json(const Planned *p) {
  long long ranks = (long long)mesh_ranks(p->m);
  printf("{\"schema\":1,\"plan\":\"%s\",\"model\":\"%s\",\"ranks\":%lld,\"classes\":", p->name,
         p->m->model, ranks);
  plan_put_classes(p);
  printf(",");
  plan_put_communication(p, &p->step);
  plan_put_int8(p);
  printf("\"flop_per_step\":%.17g,\"bubble\":%.6g,", p->step.flop, plan_bubble(&p->step));
  put_layouts(p);
  plan_put_time(p, &p->step);
  plan_put_frozen(p);
  plan_put_flights(p);
  put_accumulation(p);
  if (p->machine.memory) printf("\"capacity\":%lld,", (long long)p->machine.memory);
  if (p->machine.host) printf("\"host_capacity\":%lld,", (long long)p->machine.host);
  printf("\"fits\":%s}\n", p->fits ? "true" : "false");
}

/* ---- the command ---- */

/* What all plans of a call share. */
typedef struct Planning {
  Cli *o;
  PlanPage *page; /* NULL: none is wanted */
  const char *model;
} Planning;

static Exit draw(Planning *x, Planned *p) {
  const char *path = x->o->value[OPT_SVG];
  if (!path && !x->page) return EXIT_FINE;
  p->timeline = module_timeline(p->m);
  x->model = arena_printf(x->o->c->arena, "%s", p->m->model);
  if (x->page) plan_page_add(x->page, p);
  if (!path) return EXIT_FINE;
  char *text = NULL;
  size_t n;
  FILE *out = heap_stream(&text, &n);
  if (!out) bug("no memory");
  plan_svg(out, p);
  fclose(out);
  Exit e = write_text(p->m->ctx, path, text, n);
  free(text);
  return e;
}

static bool to_stdout(const char *path) { return path && !strcmp(path, "-"); }

static Exit plan_one(Planning *x, const char *name) {
  Cli one = *x->o;
  one.c = ctx_new();
  one.planning = true;
  one.value[OPT_PLAN] = *name ? name : NULL;
  Planned p = {.name = name, .fits = true};
  Exit e = plan_module(&one, &p);
  bool quiet = to_stdout(one.value[OPT_HTML]) || to_stdout(one.value[OPT_SVG]);
  if (e == EXIT_FINE && one.value[OPT_JSON]) put_json(&p);
  else if (e == EXIT_FINE && !quiet) say_plan(&p);
  fflush(stdout);
  if (e == EXIT_FINE) e = draw(x, &p);
  e = cli_report(&one, e);
  ctx_free(one.c);
  return e;
}

/* Plans by name, separated by commas; without --plan, those of FILE for the model. */
Exit cmd_plan(Cli *o) {
  const char *names = o->value[OPT_PLAN], *page = o->value[OPT_HTML];
  if (!names) names = program_plans(o->c, o->operands.at[0]);
  if (!names) return cli_report(o, EXIT_ENVIRONMENT);
  if (o->value[OPT_SVG] && strchr(names, ','))
    return cli_usage("`--svg` draws one plan: --plan NAME");
  Planning x = {.o = o, .page = page ? plan_page_new(o->c->arena) : NULL, .model = ""};
  Exit worst = EXIT_FINE;
  do {
    size_t n = strcspn(names, ",");
    Exit e = plan_one(&x, arena_strndup(o->c->arena, names, n));
    if (e == EXIT_USAGE) return e; /* so it is for all of them */
    if (e > worst) worst = e;
    names += n, names += *names == ',';
    if (*names && !o->value[OPT_JSON] && !to_stdout(page)) printf("\n");
  } while (*names);
  if (!page) return worst;
  Exit e = cli_report(o, plan_page_write(x.page, o->c, x.model, page));
  return e == EXIT_FINE ? worst : e;
}

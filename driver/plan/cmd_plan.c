/* `shardc plan`: the cost of a plan before anything runs. The passes run up to `memory`, no kernel
   is compiled; the figures are those of the program, not estimates, except for the time of a step,
   which is a lower bound from the machine block: arithmetic at its peak, concurrent with the
   traffic of its links. Ranks of a class run one program, so the command takes as long for a
   thousand ranks as for two. */
#include "ir/made.h"
#include "plan_report.h"
#include "driver/layout/layout_drawing.h"
#include "ir/cost/count.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"
#include "ir/plan/module_settings.h"
#include <stdlib.h>

/* ---- the figures ---- */

/* Is there a loop over micro-batches? */
static bool adds_up(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->code == OP_loop && o->group[0].nfrom && !strcmp(o->group[0].from[0], MADE_MICRO))
        return true;
    }
  return false;
}

static void plan_accumulation(const Cli *o, Planned *planned) {
  static const char *const names[ACCUMULATIONS] = {"shard", "full"};
  bool full = plan_accumulates_full(planned->m);
  /* A micro-batch that was chosen is only in the module: both choices are reported for it. */
  int64_t micro = o->facts->micro ? 0 : plan_micro(planned->m);
  if (plan_zero_stage(planned->m) < 2 || !planned->step.traffic.n || !adds_up(planned->m)) return;
  for (int i = 0; i < ACCUMULATIONS; i++) {
    Accumulation *accumulation = &planned->accumulate[i];
    *accumulation = (Accumulation){.name = names[i], .taken = (i == 1) == full};
    if (!fit_cost(o, &(FitChange){.micro = micro, .accumulate = accumulation->name},
                  &accumulation->cost))
      return;
  }
  planned->naccumulate = ACCUMULATIONS;
}

static Exit plan_programs(Cli *o, Planned *planned) {
  PipelineOptions until = {.until = "prove", .verify = !o->value[OPT_NO_VERIFY]};
  Module *all;
  Exit e = load_module(o, &all);
  if (e == EXIT_FINE) e = describe_target(o, all);
  if (e == EXIT_FINE && !pipeline_classes(all, &until, &planned->programs)) e = EXIT_INPUT;
  for (uint32_t i = 0; e == EXIT_FINE && i < planned->programs.n; i++)
    if (!flights_check(o, planned->programs.at[i])) e = EXIT_INPUT;
  return e;
}

static void plan_later(Planned *planned) {
  const Fn *later = ir_phase_entry(planned->m);
  planned->later = plan_step(planned->programs.at, planned->programs.n, later),
  planned->steps = train_steps(planned->m);
  planned->kind = later ? strchr(later->name, '.') + 1 : NULL;
  planned->from = plan_freezes(planned) ? atof(module_setting(planned->m, "made.freeze", "0"))
                                        : module_amount(planned->m, "train.delay.after");
}

static Module *hosting_class(const Planned *planned) {
  Module *most = planned->m;
  for (uint32_t i = 0; i < planned->programs.n; i++)
    if (module_host(planned->programs.at[i]).total > module_host(most).total)
      most = planned->programs.at[i];
  return most;
}

static Exit plan_module(Cli *o, Planned *planned) {
  Exit e = plan_programs(o, planned);
  if (e != EXIT_FINE) return e;
  plan_classes(planned);
  planned->facts = o->facts;
  planned->hosting = hosting_class(planned), planned->need = module_budget(planned->m);
  planned->host = module_host(planned->hosting), planned->moves = module_moves(planned->hosting);
  planned->pinned = module_pinned(planned->hosting);
  for (uint32_t i = 0; i < planned->m->fns.n; i++) {
    const Fn *f = planned->m->fns.at[i];
    int64_t n = f->kind == FN_ENTRY ? attr_int(&f->attrs, ATTR_frame, 0) : 0;
    if (n > planned->frame) planned->frame = n;
  }
  planned->machine = plan_machine(planned->m);
  planned->step = plan_step(planned->programs.at, planned->programs.n, ir_main_entry(planned->m));
  plan_later(planned);
  planned->fits = !planned->machine.memory || fit_check(o, planned->m, o->facts);
  planned->fits = fit_hosts(o, &planned->programs, o->facts) && planned->fits;
  if (planned->fits) nodes_warn(o, &planned->programs);
  plan_accumulation(o, planned);
  plan_offload_pays(o, planned);
  plan_alternatives(o, planned);
  const char *trace = o->value[OPT_MEASURED];
  if (trace && !plan_measure(planned, trace)) return EXIT_INPUT;
  return EXIT_FINE;
}

void plan_parts(const Planned *planned, const Budget *b, PlanPart *out) {
  const PlanPart parts[PLAN_PARTS] = {{"weights", b->weights},
                                      {"gradients", b->gradients},
                                      {"optimizer", b->optimizer},
                                      {"saved", b->saved},
                                      {"working", b->working},
                                      {"buffers", b->buffers},
                                      {"reserve", planned->machine.reserve}};
  memcpy(out, parts, sizeof parts);
}

const char *plan_buffer(const Planned *planned, const Alive *alive) {
  const Op *def = alive->value == NO_VALUE ? NULL : value_def(alive->f, alive->value);
  const char *of = !def ? alive->f->name : def->callee ? def->callee->name : op_name(def->code);
  if (alive->value == NO_VALUE) return arena_printf(planned->m->arena, "workspace in %s", of);
  Loc at = def ? def->loc : (Loc){0};
  const char *where =
      at.file && at.file <= planned->m->sources.n ? planned->m->sources.at[at.file - 1].name : NULL;
  const char *file = where && strrchr(where, '/') ? strrchr(where, '/') + 1 : where;
  return arena_printf(planned->m->arena, "%s of %s%s",
                      type_text(planned->m, value_type(alive->f, alive->value)), of,
                      file ? arena_printf(planned->m->arena, " (%s:%u)", file, at.line) : "");
}

static int64_t all_bytes(const Planned *planned) {
  return planned->need.total + planned->machine.reserve;
}

/* ---- text ---- */

const char *plan_mesh(const Planned *planned) {
  const char *s = "";
  for (uint32_t i = 0; i < planned->m->mesh.n; i++)
    s = arena_printf(planned->m->arena, "%s%s%s = %lld", s, i ? ", " : "",
                     planned->m->mesh.at[i].name, (long long)planned->m->mesh.at[i].size);
  return *s ? s : "one rank";
}

const char *plan_title(const Planned *planned) {
  long long ranks = (long long)mesh_ranks(planned->m);
  return arena_printf(planned->m->arena, "plan %s for %s: %lld rank%s (%s)",
                      *planned->name ? planned->name : "(none written)", planned->m->model, ranks,
                      ranks == 1 ? "" : "s", plan_mesh(planned));
}

static void say_bytes(const Planned *planned) {
  PlanPart parts[PLAN_PARTS];
  printf("bytes of %s\n", mesh_ranks(planned->m) == 1 ? "the rank" : "each rank");
  plan_parts(planned, &planned->need, parts);
  for (int i = 0; i < PLAN_PARTS; i++)
    printf("  %-10s %12s  %5.1f %%%s\n", parts[i].name,
           arena_amount(planned->m->arena, (double)parts[i].bytes),
           100 * (double)parts[i].bytes / (double)all_bytes(planned),
           plan_formula(planned->m, i, parts[i].bytes));
  printf("  %-10s %12s", "total", arena_amount(planned->m->arena, (double)all_bytes(planned)));
  if (planned->machine.memory)
    printf("  of %s: %s", arena_amount(planned->m->arena, (double)planned->machine.memory),
           planned->fits ? "fits" : "does not fit");
  printf("\n");
  if (planned->need.sampling)
    printf("  to sample, %s more\n",
           arena_amount(planned->m->arena, (double)planned->need.sampling));
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
static void say_sum(Arena *arena, const PlanPart *part, int n) {
  const char *sign = " =";
  for (int i = 0; i < n; i++) {
    if (!part[i].bytes) continue;
    printf("%s %s %s", sign, part[i].name, arena_amount(arena, (double)part[i].bytes));
    sign = " +";
  }
}

/* The class of ranks that has the host memory: ` on a rank of middle_1`. */
static const char *whose_host(const Planned *planned) {
  if (planned->programs.n < 2) return "";
  return arena_printf(planned->m->arena, " on a rank of %s", module_class_name(planned->hosting));
}

/* in the host's memory, the same memory, 4.00 MiB = optimizer 3.00 MiB + working 1.00
   MiB */
static void say_host(const Planned *planned) {
  Arena *arena = planned->m->arena;
  PlanPart parts[HOST_PARTS];
  if (!planned->host.total) return;
  plan_host_parts(&planned->host, parts);
  printf("in the host's memory, %s%s%s\n ", planned->need.apart ? "" : "the same memory, ",
         arena_amount(arena, (double)planned->host.total), whose_host(planned));
  say_sum(arena, parts, HOST_PARTS);
  printf("\n  a step copies %s to the host and %s to the device, in %.0f copies\n",
         arena_amount(arena, planned->moves.down), arena_amount(arena, planned->moves.up),
         planned->moves.calls);
}

/* host, pinned     1.04 MiB  = view 12.00 KiB + window 1.00 MiB + next inputs 8.00 KiB */
static void say_pinned(const Planned *planned) {
  Arena *arena = planned->m->arena;
  PlanPart parts[PINNED_PARTS];
  plan_pinned_parts(&planned->pinned, parts), parts[PINNED_AHEAD].name = "next inputs";
  int64_t all = plan_sum(parts, PINNED_PARTS);
  if (!all) return;
  printf("host, pinned %12s ", arena_amount(arena, (double)all));
  say_sum(arena, parts, PINNED_PARTS);
  printf("\n");
  if (planned->machine.host)
    printf("host, in all %12s  of %s for a rank\n",
           arena_amount(arena, (double)(all + planned->host.total)),
           arena_amount(arena, (double)planned->machine.host));
  else if (planned->host.total) printf("host: its machine does not say how much memory there is\n");
}

static void say_accumulation(const Planned *planned) {
  if (!planned->naccumulate) return;
  printf("gradients between micro-batches       total    gradients   sent per step\n");
  for (int i = 0; i < planned->naccumulate; i++) {
    const Accumulation *accumulation = &planned->accumulate[i];
    Arena *arena = planned->m->arena;
    printf("  accumulate = %-5s %-7s %14s %12s %15s\n", accumulation->name,
           accumulation->taken ? "(taken)" : "",
           arena_amount(arena, (double)(accumulation->cost.need.total + planned->machine.reserve)),
           arena_amount(arena, (double)accumulation->cost.need.gradients),
           arena_amount(arena, accumulation->cost.bytes));
  }
}

static void say_layouts(const Planned *planned) {
  LayoutList all = module_layouts(planned->m);
  for (uint32_t i = 0; i < all.n; i++)
    printf("layout %s: %s\n", all.at[i].name, layout_words(planned->m->arena, &all.at[i]));
  for (uint32_t i = 0; i < planned->m->lists.n; i++) {
    const char *words = lists_words(planned->m->arena, &planned->m->lists.at[i]);
    if (words) printf("%s\n", words);
  }
}

static void put_layouts(const Planned *planned) {
  LayoutList all = module_layouts(planned->m);
  if (planned->m->lists.n) lists_json(stdout, planned->m), putchar(',');
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

static void say_plan(const Planned *planned) {
  printf("%s\n", plan_title(planned));
  if (planned->programs.n > 1) plan_say_classes(planned);
  else say_bytes(planned);
  say_host(planned);
  say_pinned(planned);
  plan_say_traffic(planned, &planned->step);
  plan_say_bucket(planned);
  plan_say_int8(planned);
  plan_say_nodes(planned);
  say_accumulation(planned);
  printf("a step: %.4g FLOP per rank%s, %s between kernels and memory\n", planned->step.flop,
         planned->programs.n > 1 ? " of the busiest class" : "",
         arena_amount(planned->m->arena, planned->step.moved));
  if (planned->step.waited > 0)
    printf("and %.4g FLOP of other stages, for which it waits: a bubble of %.0f %%\n",
           planned->step.waited, 100 * plan_bubble(&planned->step));
  say_layouts(planned);
  plan_say_time(planned, &planned->step);
  plan_say_alternatives(planned);
  plan_say_offload(planned);
  plan_say_flights(planned);
  plan_say_later(planned);
  plan_say_measured(planned);
}

/* ---- JSON ---- */

static void put_accumulation(const Planned *planned) {
  if (!planned->naccumulate) return;
  printf("\"accumulate\":[");
  for (int i = 0; i < planned->naccumulate; i++) {
    const Accumulation *accumulation = &planned->accumulate[i];
    printf("%s{\"choice\":\"%s\",\"taken\":%s,\"total\":%lld,\"gradients\":%lld,"
           "\"elements_per_step\":%.0f,\"bytes_per_step\":%.0f}",
           i ? "," : "", accumulation->name, accumulation->taken ? "true" : "false",
           (long long)(accumulation->cost.need.total + planned->machine.reserve),
           (long long)accumulation->cost.need.gradients, accumulation->cost.elements,
           accumulation->cost.bytes);
  }
  printf("],");
}

static void put_json(const Planned *planned) {
  long long ranks = (long long)mesh_ranks(planned->m);
  printf("{\"schema\":1,\"plan\":\"%s\",\"model\":\"%s\",\"ranks\":%lld,\"classes\":",
         planned->name, planned->m->model, ranks);
  plan_put_classes(planned);
  printf(",");
  plan_put_stages(planned);
  plan_put_communication(planned, &planned->step);
  plan_put_bucket(planned);
  plan_put_int8(planned);
  plan_put_nodes(planned);
  printf("\"flop_per_step\":%.17g,\"bubble\":%.6g,", planned->step.flop,
         plan_bubble(&planned->step));
  put_layouts(planned);
  plan_put_time(planned, &planned->step);
  plan_put_offload(planned);
  plan_put_later(planned);
  plan_put_flights(planned);
  plan_put_measured(planned);
  put_accumulation(planned);
  plan_put_alternatives(planned);
  if (planned->machine.memory) printf("\"capacity\":%lld,", (long long)planned->machine.memory);
  if (planned->machine.host) printf("\"host_capacity\":%lld,", (long long)planned->machine.host);
  printf("\"fits\":%s}\n", planned->fits ? "true" : "false");
}

/* ---- the command ---- */

/* State shared by all plans of a call. */
typedef struct Planning {
  Cli *o;
  PlanPage *page; /* NULL: none is wanted */
  const char *model;
} Planning;

static Exit draw(Planning *planning, Planned *planned) {
  const char *path = planning->o->value[OPT_SVG];
  if (!path && !planning->page) return EXIT_FINE;
  planned->timeline = module_timeline(planned->m);
  planning->model = arena_printf(planning->o->c->arena, "%s", planned->m->model);
  if (planning->page) plan_page_add(planning->page, planned);
  if (!path) return EXIT_FINE;
  char *text = NULL;
  size_t n;
  FILE *out = heap_stream(&text, &n);
  if (!out) bug("no memory");
  plan_svg(out, planned);
  fclose(out);
  Exit e = write_text(planned->m->ctx, path, text, n);
  free(text);
  return e;
}

static bool to_stdout(const char *path) { return path && !strcmp(path, "-"); }

static Exit plan_one(Planning *planning, const char *name) {
  Cli one = *planning->o;
  one.c = ctx_new();
  one.planning = true;
  one.value[OPT_PLAN] = *name ? name : NULL;
  Planned planned = {.name = name, .fits = true};
  Exit e = plan_module(&one, &planned);
  bool quiet = to_stdout(one.value[OPT_HTML]) || to_stdout(one.value[OPT_SVG]);
  if (e == EXIT_FINE && one.value[OPT_JSON]) put_json(&planned);
  else if (e == EXIT_FINE && !quiet) say_plan(&planned);
  fflush(stdout);
  if (e == EXIT_FINE) e = draw(planning, &planned);
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
  if (o->value[OPT_MEASURED] && strchr(names, ','))
    return cli_usage("`--measured` is about one plan: --plan NAME");
  Planning planning = {.o = o, .page = page ? plan_page_new(o->c->arena) : NULL, .model = ""};
  Exit worst = EXIT_FINE;
  do {
    size_t n = strcspn(names, ",");
    Exit e = plan_one(&planning, arena_strndup(o->c->arena, names, n));
    if (e == EXIT_USAGE) return e; /* so it is for all of them */
    if (e > worst) worst = e;
    names += n, names += *names == ',';
    if (*names && !o->value[OPT_JSON] && !to_stdout(page)) printf("\n");
  } while (*names);
  if (!page) return worst;
  Exit e = cli_report(o, plan_page_write(planning.page, o->c, planning.model, page));
  return e == EXIT_FINE ? worst : e;
}

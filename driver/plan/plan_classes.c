/* Part of `shardc plan`: classes of ranks (stage_class.h), each with a program of its own: a
   column of bytes for each, in JSON a list. One class, all ranks alike, is told the same way.
   Must not: judge; the largest class is the one that has to fit (cmd_plan.c). */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/schedule/send_order.h"
#include "ir/plan/stage_class.h"

/* ---- which ranks ---- */

static bool has_rank(const Module *m, const StageClass *class, int64_t rank) {
  int64_t at = class->axis < 0 ? 0 : mesh_coordinate(m, rank, class->axis);
  return at >= class->first && at <= class->last;
}

/* 0-7, 16-23 */
static void name_ranks(const Module *m, PlannedClass *planned_class) {
  StageClass class = module_class(m);
  planned_class->name = class.name, planned_class->ranks = "", planned_class->count = 0;
  for (int64_t from = 0, all = mesh_ranks(m), to; from < all; from = to) {
    bool there = has_rank(m, &class, from);
    for (to = from + 1; to < all && has_rank(m, &class, to) == there;) to++;
    if (!there) continue;
    planned_class->ranks =
        arena_printf(m->arena, to - from > 1 ? "%s%s%lld-%lld" : "%s%s%lld", planned_class->ranks,
                     *planned_class->ranks ? ", " : "", (long long)from, (long long)to - 1);
    planned_class->count += to - from;
  }
}

void plan_classes(Planned *planned) {
  planned->m = planned->programs.at[0];
  int64_t most = -1;
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    Module *m = planned->programs.at[i];
    PlannedClass *class = &planned->class[i];
    IrCount work = module_count(m);
    name_ranks(m, class);
    class->need = module_budget(m), class->flop = work.flop, class->moved = work.bytes;
    if (budget_all(&class->need) > most) most = budget_all(&class->need), planned->m = m;
  }
}

/* ---- text ---- */

static void say_row(const Planned *planned, int part) {
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    PlanPart parts[PLAN_PARTS];
    plan_parts(planned, &planned->class[i].need, parts);
    if (!i) printf("  %-10s", parts[part].name);
    printf(" %16s", arena_amount(planned->m->arena, (double)parts[part].bytes));
  }
  printf("\n");
}

/* The numbers of layers of stages of a class, if they differ: 3, 3, 2 */
static const char *layers_text(Module *m) {
  StageClass class = module_class(m);
  const char *text = "";
  bool alike = stage_layers(m, class.first) == stage_layers(m, class.last);
  for (int64_t s = class.first; s <= (alike ? class.first : class.last); s++)
    text =
        arena_printf(m->arena, "%s%s%lld", text, *text ? ", " : "", (long long)stage_layers(m, s));
  return text;
}

/* For `uneven`: FLOP of the slowest stage, and of the slowest stage in the best partition of the
   layers. */
static bool stage_flop(const Module *m, double *slowest, double *least) {
  Str text = module_setting(m, "made.stage_flop", NULL);
  return text && sscanf(text, "%lf %lf", slowest, least) == 2;
}

static void say_layers(const Planned *planned) {
  double slowest, least;
  printf("  %-10s", "layers");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(" %16s", layers_text(planned->programs.at[i]));
  printf("\n");
  if (stage_flop(planned->m, &slowest, &least))
    printf("  the slowest stage computes %.4g FLOP; with any numbers of layers %.4g at least\n",
           slowest, least);
}

/* The part of `buffers` for sends on GPUs over NCCL: 3 x 2.00 KiB */
static void say_send_slots(const Planned *planned) {
  if (!module_send_slots(planned->m)) return;
  printf("  send slots");
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const Module *m = planned->programs.at[i];
    const char *each = arena_amount(m->arena, (double)module_send_slot(m));
    printf(" %16s", arena_printf(m->arena, "%lld x %s", (long long)module_send_slots(m), each));
  }
  printf("  in buffers\n");
}

/* Prints host memory if any class uses it. */
static void say_host(const Planned *planned) {
  if (!planned->host.total) return;
  printf("  %-10s", "host");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(" %16s", arena_amount(planned->m->arena, (double)planned->class[i].need.host));
  printf("\n");
}

void plan_say_classes(const Planned *planned) {
  printf("bytes of a rank of");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(i ? "%17s" : "%11s", planned->class[i].name);
  printf("\n  %-10s", "ranks");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(" %16lld", (long long)planned->class[i].count);
  printf("\n");
  if (planned->programs.n > 1) say_layers(planned);
  for (int part = 0; part < PLAN_PARTS; part++) say_row(planned, part);
  printf("  %-10s", "total");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(" %16s", arena_amount(planned->m->arena, (double)(planned->class[i].need.total +
                                                             planned->machine.reserve)));
  if (planned->machine.memory)
    printf("  of %s: %s", arena_amount(planned->m->arena, (double)planned->machine.memory),
           planned->fits ? "fits" : "does not fit");
  printf("\n");
  say_send_slots(planned);
  say_host(planned);
  printf("  %-10s", "to sample");
  for (uint32_t i = 0; i < planned->programs.n; i++)
    printf(" %16s", arena_amount(planned->m->arena, (double)planned->class[i].need.sampling));
  printf("\n  %-10s", "FLOP");
  for (uint32_t i = 0; i < planned->programs.n; i++) printf(" %16.4g", planned->class[i].flop);
  printf("\n");
}

/* ---- JSON ---- */

static void put_parts(const char *what, const PlanPart *part, int n, int64_t total) {
  printf("\"%s\":{", what);
  for (int i = 0; i < n; i++) printf("\"%s\":%lld,", part[i].name, (long long)part[i].bytes);
  printf("\"total\":%lld}", (long long)total);
}

static void put_host(const Module *m) {
  HostBudget host = module_host(m);
  Moves moves = module_moves(m);
  Pinned pinned = module_pinned(m);
  PlanPart parts[HOST_PARTS], fixed[PINNED_PARTS];
  plan_host_parts(&host, parts), plan_pinned_parts(&pinned, fixed);
  put_parts("host", parts, HOST_PARTS, host.total);
  printf(",\"moved_per_step\":{\"down\":%.0f,\"up\":%.0f,\"copies\":%.0f},", moves.down, moves.up,
         moves.calls);
  put_parts("host_pinned", fixed, PINNED_PARTS, plan_sum(fixed, PINNED_PARTS));
  printf(",\"send_slots\":{\"count\":%lld,\"bytes\":%lld}", (long long)module_send_slots(m),
         (long long)module_send_slot(m));
}

static void add_sends(const Module *m, const Fn *entry, int axis, double *elements, double *bytes) {
  TrafficList list = entry ? entry_traffic(m, entry) : (TrafficList){0};
  for (uint32_t i = 0; i < list.n; i++)
    if (list.at[i].axis == axis) *elements += list.at[i].elements, *bytes += list.at[i].bytes;
}

/* By axis, of one entry or of two; `communication` has the most of any class. */
static void put_sends(const char *key, const Module *m, const Fn *entry, const Fn *more) {
  printf("\"%s\":{", key);
  for (int axis = 0; axis < (int)m->mesh.n; axis++) {
    double elements = 0, bytes = 0;
    add_sends(m, entry, axis, &elements, &bytes), add_sends(m, more, axis, &elements, &bytes);
    printf("%s\"%s\":{\"elements\":%.0f,\"bytes\":%.0f}", axis ? "," : "", m->mesh.at[axis].name,
           elements, bytes);
  }
  printf("},");
}

static void put_class(const Planned *planned, uint32_t i) {
  const PlannedClass *class = &planned->class[i];
  PlanPart parts[PLAN_PARTS];
  plan_parts(planned, &class->need, parts);
  printf("%s{", i ? "," : "");
  if (*class->name)
    printf("\"stages\":\"%s\",\"layers\":[%s],", class->name, layers_text(planned->programs.at[i]));
  printf("\"ranks\":\"%s\",", class->ranks);
  put_parts("bytes", parts, PLAN_PARTS, class->need.total + planned->machine.reserve);
  printf(",\"sampling\":%lld,\"flop_per_step\":%.17g,", (long long)class->need.sampling,
         class->flop);
  const Module *m = planned->programs.at[i];
  put_sends("sends_per_step", m, ir_main_entry(m), NULL);
  if (plan_freezes(planned)) {
    put_sends("sends_per_frozen_step", m, ir_phase_entry(m), NULL);
    put_sends("sends_at_freeze", m, plan_entry(m, "step.unit"), plan_entry(m, "step.freeze"));
    if (plan_entry(m, "step.thaw"))
      put_sends("sends_at_renewal", m, plan_entry(m, "step.thaw"), NULL);
  }
  put_host(planned->programs.at[i]);
  putchar('}');
}

void plan_put_stages(const Planned *planned) {
  double slowest, least;
  if (planned->programs.n > 1 && stage_flop(planned->m, &slowest, &least))
    printf("\"stage_flop\":{\"slowest\":%.17g,\"least\":%.17g},", slowest, least);
}

void plan_put_classes(const Planned *planned) {
  putchar('[');
  for (uint32_t i = 0; i < planned->programs.n; i++) put_class(planned, i);
  putchar(']');
}

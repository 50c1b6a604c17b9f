/* Part of `shardc plan`: classes of ranks (ir/stage_class.h), each with a program of its own: a
   column of bytes for each, in JSON a list. One class, all ranks alike, is told the same way.
   Must not: judge; the largest class is the one that has to fit (cmd_plan.c). */
#include "cmd_plan.h"
#include "ir/placement.h"

/* ---- which ranks ---- */

static bool has_rank(const Module *m, const StageClass *c, int64_t rank) {
  int64_t at = c->axis < 0 ? 0 : mesh_coordinate(m, rank, c->axis);
  return at >= c->first && at <= c->last;
}

/* 0-7, 16-23 */
static void name_ranks(const Module *m, PlannedClass *p) {
  StageClass c = module_class(m);
  p->name = c.name, p->ranks = "", p->count = 0;
  for (int64_t from = 0, all = mesh_ranks(m), to; from < all; from = to) {
    bool there = has_rank(m, &c, from);
    for (to = from + 1; to < all && has_rank(m, &c, to) == there;) to++;
    if (!there) continue;
    p->ranks = arena_printf(m->arena, to - from > 1 ? "%s%s%lld-%lld" : "%s%s%lld", p->ranks,
                            *p->ranks ? ", " : "", (long long)from, (long long)to - 1);
    p->count += to - from;
  }
}

void plan_classes(Planned *p) {
  p->m = p->programs.at[0];
  int64_t most = -1;
  for (uint32_t i = 0; i < p->programs.n; i++) {
    Module *m = p->programs.at[i];
    PlannedClass *c = &p->class[i];
    IrCount work = module_count(m);
    name_ranks(m, c);
    c->need = module_budget(m), c->flop = work.flop, c->moved = work.bytes;
    if (budget_all(&c->need) > most) most = budget_all(&c->need), p->m = m;
  }
}

/* ---- what they send ---- */

static Traffic *row_for(Arena *a, TrafficList *l, const Traffic *like) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i].axis == like->axis && l->at[i].kind == like->kind) return &l->at[i];
  vec_push(a, *l, *like);
  return &vec_last(*l);
}

TrafficList plan_traffic(const Planned *p) {
  TrafficList all = module_traffic(p->programs.at[0]);
  for (uint32_t i = 1; i < p->programs.n; i++) {
    TrafficList own = module_traffic(p->programs.at[i]);
    for (uint32_t k = 0; k < own.n; k++) {
      Traffic *t = row_for(p->m->arena, &all, &own.at[k]);
      if (own.at[k].bytes > t->bytes) *t = own.at[k];
    }
  }
  return all;
}

/* ---- text ---- */

static void say_row(const Planned *p, int part) {
  for (uint32_t i = 0; i < p->programs.n; i++) {
    PlanPart parts[PLAN_PARTS];
    plan_parts(p, &p->class[i].need, parts);
    if (!i) printf("  %-10s", parts[part].name);
    printf(" %16s", plan_amount(p->m->arena, (double)parts[part].bytes));
  }
  printf("\n");
}

void plan_say_classes(const Planned *p) {
  printf("bytes of a rank of");
  for (uint32_t i = 0; i < p->programs.n; i++) printf(i ? "%17s" : "%11s", p->class[i].name);
  printf("\n  %-10s", "ranks");
  for (uint32_t i = 0; i < p->programs.n; i++) printf(" %16lld", (long long)p->class[i].count);
  printf("\n");
  for (int part = 0; part < PLAN_PARTS; part++) say_row(p, part);
  printf("  %-10s", "total");
  for (uint32_t i = 0; i < p->programs.n; i++)
    printf(" %16s",
           plan_amount(p->m->arena, (double)(p->class[i].need.total + p->machine.reserve)));
  if (p->machine.memory)
    printf("  of %s: %s", plan_amount(p->m->arena, (double)p->machine.memory),
           p->fits ? "fits" : "does not fit");
  printf("\n  %-10s", "to sample");
  for (uint32_t i = 0; i < p->programs.n; i++)
    printf(" %16s", plan_amount(p->m->arena, (double)p->class[i].need.sampling));
  printf("\n  %-10s", "FLOP");
  for (uint32_t i = 0; i < p->programs.n; i++) printf(" %16.4g", p->class[i].flop);
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
}

/* By axis; `communication` has the most of any class. */
static void put_sends(Module *m) {
  TrafficList l = module_traffic(m);
  printf("\"sends_per_step\":{");
  for (int axis = 0; axis < (int)m->mesh.n; axis++) {
    double elements = 0, bytes = 0;
    for (uint32_t i = 0; i < l.n; i++)
      if (l.at[i].axis == axis) elements += l.at[i].elements, bytes += l.at[i].bytes;
    printf("%s\"%s\":{\"elements\":%.0f,\"bytes\":%.0f}", axis ? "," : "", m->mesh.at[axis].name,
           elements, bytes);
  }
  printf("},");
}

static void put_class(const Planned *p, uint32_t i) {
  const PlannedClass *c = &p->class[i];
  PlanPart parts[PLAN_PARTS];
  plan_parts(p, &c->need, parts);
  printf("%s{", i ? "," : "");
  if (*c->name) printf("\"stages\":\"%s\",", c->name);
  printf("\"ranks\":\"%s\",", c->ranks);
  put_parts("bytes", parts, PLAN_PARTS, c->need.total + p->machine.reserve);
  printf(",\"sampling\":%lld,\"flop_per_step\":%.17g,", (long long)c->need.sampling, c->flop);
  put_sends(p->programs.at[i]);
  put_host(p->programs.at[i]);
  putchar('}');
}

void plan_put_classes(const Planned *p) {
  putchar('[');
  for (uint32_t i = 0; i < p->programs.n; i++) put_class(p, i);
  putchar(']');
}

/* What is resident after zero is what the stage's arithmetic says, to the byte.

   A group of Ψ parameters, padded to whole buckets, over N ranks: stage 1 keeps 1/N of every
   state, 2 of the gradient, 3 of the parameters ("ZeRO: Memory Optimizations Toward Training
   Trillion Parameter Models", section 5). Everything else that ranks hold alike must have been
   named by W0703, or be none of the stage's business: scalars, frozen parameters below stage 3,
   what `persist` keeps. Must not: look at how functions were rewritten; that is what it checks. */
#include "ir/placement.h"
#include "ir/support/num.h"
#include "passes/zero.h"
#include <string.h>

static int64_t bytes_of(const Global *global) {
  return type_count(&global->type) * elem_bytes(global->type.elem);
}

static const char *say(const Zero *z, const char *name, const char *what, int64_t have,
                       int64_t want) {
  return arena_printf(z->m->arena, "%s: %s %lld, not %lld", name, what, (long long)have,
                      (long long)want);
}

/* ---- groups ---- */

static int64_t padded(const ZeroGroup *g) { return g->buckets * g->piece * g->ways; }

static int64_t held(const ZeroGroup *g, int from) {
  int64_t rounds = g->rounds.dim ? g->rounds.size : 1;
  return rounds * padded(g) / (g->stage >= from ? g->ways : 1);
}

/* Less than a unit of every bucket, or where members begin at buckets, a bucket of each. */
static const char *check_members(const Zero *z, const ZeroGroup *g) {
  int64_t at = 0, all = 0, unit = g->ways * round_up(z->unit, 64), bucket = g->piece * g->ways;
  for (uint32_t i = 0; i < g->member.n; i++) {
    const ZeroMember *m = &g->member.at[i];
    int64_t rounds = g->rounds.dim ? g->rounds.size : 1, have = type_count(&m->param->type);
    if (m->begin < at) return say(z, m->param->name, "begins at", m->begin, at);
    if (m->count * rounds != have)
      return say(z, m->param->name, "elements", m->count * rounds, have);
    at = m->begin + m->count, all += m->count;
  }
  int64_t most = all + g->buckets * (unit + 1) + (g->measured ? g->member.n * bucket : 0);
  if (at > padded(g)) return say(z, g->name, "members end at", at, padded(g));
  return padded(g) > most ? say(z, g->name, "padded to", padded(g), most) : NULL;
}

static const char *check_held(const Zero *z, const ZeroGroup *g) {
  const struct {
    const Global *of;
    int from; /* the stage that shares it */
  } kept[] = {{g->param, 3}, {g->master, 1}};
  for (int i = 0; i < 2; i++)
    if (kept[i].of && type_count(&kept[i].of->type) != held(g, kept[i].from))
      return say(z, kept[i].of->name, "elements", type_count(&kept[i].of->type),
                 held(g, kept[i].from));
  for (uint32_t i = 0; i < g->nstates; i++)
    if (type_count(&g->state[i]->type) != held(g, 1))
      return say(z, g->state[i]->name, "elements", type_count(&g->state[i]->type), held(g, 1));
  return g->gradient != held(g, 1)
             ? say(z, g->name, "elements of its gradient", g->gradient, held(g, 1))
             : NULL;
}

static bool is_named(const Zero *zero, const Global *global) {
  for (uint32_t i = 0; i < zero->named.n; i++)
    if (zero->named.at[i] == global) return true;
  return false;
}

int64_t zero_alike(const Zero *zero, const Global *global) {
  int64_t ranks = 1;
  for (int i = 0; i < zero->naxes; i++) {
    int at = mesh_find(zero->m, zero->axis[i]);
    must(at >= 0, "zero: the mesh has no axis %s", zero->axis[i]);
    if (!global->placed.on[at]) ranks *= zero->m->mesh.at[at].size;
  }
  return ranks;
}

/* Over all ranks that held it alike; in the plan's stage, but for what is small. */
static const char *check_stage(const Zero *z, const ZeroGroup *g) {
  const Global *first = g->member.at[0].param;
  if (g->ways != zero_alike(z, first) && z->stage && !is_named(z, first))
    return say(z, g->name, "shared by ranks", g->ways, zero_alike(z, first));
  bool small = z->stage == 3 && g->stage == 2 && z->persist > 0;
  return g->stage == z->stage || small ? NULL : say(z, g->name, "stage", g->stage, z->stage);
}

/* ---- what is in none ---- */

/* The parameter whose state it is, by its name; NULL: none's. */
static const Global *owner_of(const Zero *z, const Global *state) {
  for (uint32_t i = 0; i < z->m->globals.n; i++) {
    const Global *p = z->m->globals.at[i];
    size_t n = strlen(p->name);
    if (p->kind == GLOBAL_PARAM && !strncmp(state->name, p->name, n) && state->name[n] == '.' &&
        !strchr(state->name + n + 1, '.'))
      return p;
  }
  return NULL;
}

static const char *check_other(const Zero *z, const Global *g) {
  const Global *p = g->kind == GLOBAL_STATE ? owner_of(z, g) : g;
  if (!z->stage || !g->type.rank || !p || zero_alike(z, g) == 1 || is_named(z, p)) return NULL;
  bool passed = g->kind == GLOBAL_PARAM && !zero_store_of(z->step, g) &&
                (z->stage < 3 || bytes_of(g) <= z->persist);
  return passed ? NULL : say(z, g->name, "whole on every rank, unnamed, bytes", bytes_of(g), 0);
}

static bool is_kept(const Global *global) {
  return (global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE) && !global->within;
}

static bool is_of(const ZeroGroup *g, const Global *global) {
  bool ours = global == g->param || global == g->master;
  for (uint32_t i = 0; i < g->nstates; i++) ours |= global == g->state[i];
  return ours;
}

const char *zero_unaccounted(const Zero *z) {
  const char *wrong = NULL;
  for (uint32_t i = 0; !wrong && i < z->group.n; i++) {
    const ZeroGroup *g = &z->group.at[i];
    wrong = check_members(z, g);
    if (!wrong) wrong = check_held(z, g);
    if (!wrong) wrong = check_stage(z, g);
  }
  for (uint32_t i = 0; !wrong && i < z->m->globals.n; i++) {
    const Global *x = z->m->globals.at[i];
    bool grouped = !is_kept(x);
    for (uint32_t k = 0; k < z->group.n; k++) grouped |= is_of(&z->group.at[k], x);
    if (!grouped) wrong = check_other(z, x);
  }
  return wrong;
}

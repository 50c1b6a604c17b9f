/* Checks that the resident bytes after zero are those of the stage's arithmetic, to the byte.

   A group of Ψ parameters, padded to whole buckets, over N ranks: stage 1 keeps 1/N of every
   state, 2 of the gradient, 3 of the parameters ("ZeRO: Memory Optimizations Toward Training
   Trillion Parameter Models", section 5); with `prefetch` any of them may keep 1/N of the
   parameters. Every other value that ranks hold alike must have been named by W0703, or be outside
   the scope of the stage: scalars, states with rules, frozen parameters below stage 3, parameters
   that `persist` keeps, values that follow from states and are no part of them. Must not: look at
   how functions were rewritten, which is the subject of the check. */
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "zero.h"
#include <string.h>

static int64_t bytes_of(const Global *global) { return type_dense_bytes(&global->type); }

int64_t zero_round_bytes(const Global *global) {
  return bytes_of(global) / (strchr(global->name, '*') ? global->type.axis[0].size : 1);
}

static const char *say(const Zero *zero, const char *name, const char *what, int64_t have,
                       int64_t want) {
  return arena_printf(zero->m->arena, "%s: %s %lld, not %lld", name, what, (long long)have,
                      (long long)want);
}

/* ---- groups ---- */

static int64_t held(const ZeroGroup *group, bool shard) {
  int64_t rounds = group->rounds.dim ? group->rounds.size : 1;
  return rounds * zero_padded(group) / (shard ? group->ways : 1);
}

/* Padding is less than a unit of every bucket; if members begin at buckets, less than a bucket of
   each member. */
static const char *check_members(const Zero *zero, const ZeroGroup *group) {
  int64_t at = 0, all = 0, unit = group->ways * round_up(zero->unit, 64),
          bucket = group->piece * group->ways;
  for (uint32_t i = 0; i < group->member.n; i++) {
    const ZeroMember *member = &group->member.at[i];
    int64_t rounds = group->rounds.dim ? group->rounds.size : 1,
            have = type_count(&member->param->type);
    if (member->begin < at) return say(zero, member->param->name, "begins at", member->begin, at);
    if (member->count * rounds != have)
      return say(zero, member->param->name, "elements", member->count * rounds, have);
    at = member->begin + member->count, all += member->count;
  }
  int64_t most =
      all + group->buckets * (unit + 1) + (group->measured ? group->member.n * bucket : 0);
  if (at > zero_padded(group))
    return say(zero, group->name, "members end at", at, zero_padded(group));
  return zero_padded(group) > most ? say(zero, group->name, "padded to", zero_padded(group), most)
                                   : NULL;
}

static const char *check_held(const Zero *zero, const ZeroGroup *group) {
  bool shard = group->stage > 0;
  const struct {
    const Global *of;
    bool shard;
  } kept[] = {{group->param, group->sharded}, {group->master, shard}};
  for (int i = 0; i < 2; i++)
    if (kept[i].of && type_count(&kept[i].of->type) != held(group, kept[i].shard))
      return say(zero, kept[i].of->name, "elements", type_count(&kept[i].of->type),
                 held(group, kept[i].shard));
  for (uint32_t i = 0; i < group->nstates; i++)
    if (type_count(&group->state[i]->type) != held(group, shard))
      return say(zero, group->state[i]->name, "elements", type_count(&group->state[i]->type),
                 held(group, shard));
  return group->gradient != (group->frozen ? 0 : held(group, shard))
             ? say(zero, group->name, "elements of its gradient", group->gradient,
                   held(group, shard))
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

/* Is the group shared by all ranks that held it alike, and in the plan's stage, except small
   ones? */
static const char *check_stage(const Zero *zero, const ZeroGroup *group) {
  const Global *first = group->member.at[0].param;
  if (group->ways != zero_alike(zero, first) && zero->stage && !is_named(zero, first))
    return say(zero, group->name, "shared by ranks", group->ways, zero_alike(zero, first));
  bool small = zero->stage == 3 && group->stage == 2 && zero->persist > 0;
  return group->stage == zero->stage || small
             ? NULL
             : say(zero, group->name, "stage", group->stage, zero->stage);
}

/* ---- parameters in no group ---- */

/* The parameter whose state it is, by its name; NULL: none's. */
static const Global *owner_of(const Zero *zero, const Global *state) {
  EACH_GLOBAL (zero->m, global) {
    size_t n = strlen(global->name);
    if (global->kind == GLOBAL_PARAM && !strncmp(state->name, global->name, n) &&
        state->name[n] == '.' && !strchr(state->name + n + 1, '.'))
      return global;
  }
  return NULL;
}

static const char *check_other(const Zero *zero, const Global *g) {
  const Global *p = g->kind == GLOBAL_STATE ? owner_of(zero, g) : g;
  if (!zero->stage || !g->type.rank || !p || zero_alike(zero, g) == 1 || is_named(zero, p) ||
      g->derived || g->ruled)
    return NULL;
  bool passed = g->kind == GLOBAL_PARAM && !fn_store_of(zero->step, g) &&
                (zero->stage < 3 || zero_round_bytes(g) <= zero->persist);
  return passed ? NULL : say(zero, g->name, "whole on every rank, unnamed, bytes", bytes_of(g), 0);
}

static bool is_kept(const Global *global) {
  return (global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE) && !global->within;
}

static bool is_of(const ZeroGroup *group, const Global *global) {
  bool ours = global == group->param || global == group->master;
  for (uint32_t i = 0; i < group->nstates; i++) ours |= global == group->state[i];
  return ours;
}

const char *zero_unaccounted(const Zero *zero, const Global **at) {
  const char *wrong = NULL;
  for (uint32_t i = 0; !wrong && i < zero->group.n; i++) {
    const ZeroGroup *group = &zero->group.at[i];
    *at = group->member.at[0].param;
    wrong = check_members(zero, group);
    if (!wrong) wrong = check_held(zero, group);
    if (!wrong) wrong = check_stage(zero, group);
  }
  for (uint32_t i = 0; !wrong && i < zero->m->globals.n; i++) {
    const Global *global = zero->m->globals.at[i];
    bool grouped = !is_kept(global);
    for (uint32_t k = 0; k < zero->group.n; k++) grouped |= is_of(&zero->group.at[k], global);
    if (!grouped) wrong = check_other(zero, *at = global);
  }
  return wrong;
}

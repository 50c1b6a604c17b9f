/* Rewriting functions for partitioned states: how the gradient of a group leaves a function.

   Where all members' gradients are results of one loop, carried or stacked, or of a chain of loops
   that write parts of one stack, the group's gradient leaves that loop in their place, flat; else
   its members are put flat where they come to light. It is reduced there, or where the entry has
   all of it (zero_rewrite.c).

   Must not: copy anything of a loop but through zero_loops.c. */
#include "passes/zero_site.h"
#include <string.h>

/* The value that round after round is added to a carried one; NO_VALUE if it is no sum from 0. */
static ValueId added(const Fn *fn, const Op *loop, uint32_t result) {
  const Fn *body = loop->callee;
  RunningSum r;
  bool is = value_is_zero(fn, loop->in[result]) &&
            running_sum(body, body->args.at[1 + result], body->results.at[result], &r);
  return is ? r.added : NO_VALUE;
}

/* The op that makes v, if v is read once. */
static const Op *only_read(const Fn *f, ValueId v) {
  return value_uses(f, v) == 1 ? value_def(f, v) : NULL;
}

/* The stacks that results `out` of the loop go on with, if they do: NULL, no loop writes them. */
static ValueId *continued(const ZeroSite *site, const ZeroGroup *zero_group, const Op *loop,
                          const ValueId *out, bool *broken) {
  ValueId *before = ARENA_ARRAY(site->z->m->arena, ValueId, zero_group->member.n);
  uint32_t n = 0;
  for (uint32_t i = 0; i < zero_group->member.n; i++) {
    uint32_t on = loop_continues(loop, out[i] - loop->out);
    if (on == NO_VALUE) continue;
    before[i] = loop->in[on], n++;
    *broken |= value_is_used(loop->callee, loop->callee->args.at[on + 1]);
  }
  *broken |= n && n < zero_group->member.n;
  return n ? before : NULL;
}

/* The loops that write the group's gradient, the first one first, and what their bodies make. */
static bool find_links(const ZeroSite *site, const ZeroGroup *zero_group, Pull *pull,
                       const Op *loop, ValueId *out) {
  bool broken = false;
  PullLink link = {loop, out, ARENA_ARRAY(site->z->m->arena, ValueId, zero_group->member.n)};
  for (uint32_t i = 0; i < zero_group->member.n; i++) {
    uint32_t result = out[i] - loop->out;
    link.inner[i] =
        pull->carried ? added(site->from, loop, result) : loop->callee->results.at[result];
    if (link.inner[i] == NO_VALUE) return false;
  }
  ValueId *before = continued(site, zero_group, loop, out, &broken);
  for (uint32_t i = 0; before && !broken && i < zero_group->member.n; i++) {
    const Op *op = only_read(site->from, before[i]);
    broken = !op || op->code != OP_loop || op != value_def(site->from, before[0]);
  }
  if (broken) return false;
  if (before && !find_links(site, zero_group, pull, value_def(site->from, before[0]), before))
    return false;
  vec_push(site->z->m->arena, pull->link, link);
  return true;
}

/* Do all gradients of the group leave one loop, or a chain of them, so that the group can leave it
 * instead? */
static bool leaves_loop(const ZeroSite *site, const ZeroGroup *zero_group, Pull *pull) {
  for (uint32_t i = 0; i < zero_group->member.n; i++) {
    const Op *op = only_read(site->from, pull->sum[i]);
    bool casts = op && op->code == OP_cast;
    pull->out[i] = casts ? op->in[0] : pull->sum[i];
    if (casts) op = only_read(site->from, pull->out[i]);
    if (!op || op->code != OP_loop || (pull->loop && pull->loop != op)) return false;
    LoopShape shape = loop_shape(op);
    uint32_t result = pull->out[i] - op->out;
    bool carried = result < shape.carry;
    if ((pull->loop && carried != pull->carried) || (carried && casts)) return false;
    pull->loop = op, pull->carried = carried;
    if (!carried && shape.axis.dim != zero_group->rounds.dim) return false;
  }
  return find_links(site, zero_group, pull, pull->loop, pull->out);
}

/* Is a gradient reduced where it comes to light, or whole until the end of the step? */
bool zero_reduces_at_once(const Zero *zero, const ZeroGroup *zero_group) {
  return zero_group->stage >= 2 && !zero->full;
}

void site_gradient(ZeroSite *site, uint32_t group, const ValueId *sum, Elem elem) {
  must(!site->pull[group].wanted, "zero: the gradient of group %u is asked for twice", group);
  Arena *arena = site->z->m->arena;
  const ZeroGroup *zero_group = &site->z->group.at[group];
  Pull pull = {.wanted = true, .elem = elem};
  pull.out = ARENA_ARRAY(arena, ValueId, zero_group->member.n),
  pull.sum = ARENA_ARRAY(arena, ValueId, zero_group->member.n);
  memcpy(pull.sum, sum, sizeof *sum * zero_group->member.n);
  if (zero_group->complete || !leaves_loop(site, zero_group, &pull)) pull.loop = NULL;
  if (site->from->kind == FN_ENTRY)
    site->z->group.at[group].summed_inside =
        pull.loop && !pull.carried && zero_reduces_at_once(site->z, zero_group);
  site->pull[group] = pull;
}

/* ---- what leaves the function ---- */

static ValueId reduce(ZeroSite *site, const ZeroGroup *zero_group, ValueId flat, bool all) {
  Zero *zero = site->z;
  ValueId v = zero_cut(zero, site->to, zero_group, flat, all);
  if (!zero_group->complete) {
    v = zero_reduce(zero, site->to, zero_group, v);
    for (int i = 0;
         i < zero_group->nothers && zero_group->summed_inside && site->from->kind == FN_BODY; i++)
      v = zero_sum_gradient(zero, site->to, zero_group->others[i], v);
    return v;
  }
  return zero_group->stage ? zero_own(zero, site->to, zero_group, v) : v;
}

static ValueId flatten_here(ZeroSite *site, uint32_t group, bool *all) {
  const ZeroGroup *zero_group = &site->z->group.at[group];
  ValueId *value = ARENA_ARRAY(site->z->m->arena, ValueId, zero_group->member.n);
  const Pull *pull = &site->pull[group];
  for (uint32_t i = 0; i < zero_group->member.n; i++)
    value[i] = ir_cast(site->z->m, site->to, site_value(site, pull->sum[i]), pull->elem, (Loc){0});
  *all = zero_group->rounds.dim &&
         type_find(value_type(site->to, value[0]), zero_group->rounds.dim) >= 0;
  return zero_flatten(site->z, site->to, zero_group, value, *all, true);
}

/* The group's gradient as it leaves this function: flat, or in an entry, or where it is reduced at
   once, the sum over the axis: this rank's shard, or without sharding all of it. */
ValueId site_reduced(ZeroSite *site, uint32_t group) {
  must(site->pull[group].wanted, "zero: nobody said which the gradient of group %u is", group);
  const Zero *zero = site->z;
  const ZeroGroup *zero_group = &zero->group.at[group];
  bool all = zero_group->rounds.dim != NULL, entry = site->from->kind == FN_ENTRY,
       at_once = zero_reduces_at_once(zero, zero_group);
  if (site->finished[group]) return site->reduced[group];
  site->finished[group] = true;
  if (site->pull[group].loop) {
    site_loop(site, site->pull[group].loop);
    if (!at_once && entry)
      site->reduced[group] = reduce(site, zero_group, site->reduced[group], all);
    return site->reduced[group];
  }
  ValueId flat = flatten_here(site, group, &all);
  site->z->group.at[group].sums_all |= at_once && all;
  return site->reduced[group] = at_once || entry ? reduce(site, zero_group, flat, all) : flat;
}

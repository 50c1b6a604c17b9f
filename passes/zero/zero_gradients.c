/* Rewriting functions for partitioned states: how the gradient of a group leaves a function.

   If all members' gradients are results of one loop, carried or stacked, or of a chain of loops
   that write ranges of one stack, the group's gradient leaves that loop in their place, flat; else
   its members are flattened where they are final. It is reduced in that place, or once the entry
   has all of it (zero_rewrite.c). With one rank there is nothing to reduce, and the same is done
   if the stage, or the download to the host, needs a gradient round by round.

   Must not: copy any part of a loop except through zero_loops.c. */
#include "ir/made.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"
#include "zero_site.h"
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

/* The stacks that results `out` of the loop continue; NULL: none. */
static ValueId *continued(const ZeroSite *site, const ZeroGroup *group, const Op *loop,
                          const ValueId *out, bool *broken) {
  ValueId *before = ARENA_ARRAY(site->z->m->arena, ValueId, group->member.n);
  uint32_t n = 0;
  for (uint32_t i = 0; i < group->member.n; i++) {
    uint32_t on = loop_continues(loop, out[i] - loop->out);
    if (on == NO_VALUE) continue;
    before[i] = loop->in[on], n++;
    *broken |= value_is_used(loop->callee, loop->callee->args.at[on + 1]);
  }
  *broken |= n && n < group->member.n;
  return n ? before : NULL;
}

/* The loops that write the group's gradient, in order, and the values that their bodies make. */
static bool find_links(const ZeroSite *site, const ZeroGroup *group, Pull *pull, const Op *loop,
                       ValueId *out) {
  bool broken = false;
  PullLink link = {loop, out, ARENA_ARRAY(site->z->m->arena, ValueId, group->member.n)};
  for (uint32_t i = 0; i < group->member.n; i++) {
    uint32_t result = out[i] - loop->out;
    link.inner[i] =
        pull->carried ? added(site->from, loop, result) : loop->callee->results.at[result];
    if (link.inner[i] == NO_VALUE) return false;
  }
  ValueId *before = continued(site, group, loop, out, &broken);
  for (uint32_t i = 0; before && !broken && i < group->member.n; i++) {
    const Op *op = only_read(site->from, before[i]);
    broken = !op || op->code != OP_loop || op != value_def(site->from, before[0]);
  }
  if (broken) return false;
  if (before && !find_links(site, group, pull, value_def(site->from, before[0]), before))
    return false;
  vec_push(site->z->m->arena, pull->link, link);
  return true;
}

/* Is the sum over stages, which may work on different chunks and micro-batches at a time? The
   order of their schedules differs, so such a sum would deadlock inside the schedule. */
bool zero_waits_for_stages(const Zero *zero, const ZeroGroup *group) {
  int axis = module_class(zero->m).axis;
  bool over = false;
  for (int i = 0; i < group->naxes && module_chunks(zero->m) > 1; i++)
    over |= mesh_find(zero->m, group->axis[i]) == axis;
  return over;
}

/* For a plan without `zero`: a gradient that is downloaded to the host waits for no message. */
bool zero_is_alone(const Zero *zero, unsigned hosted) {
  return !zero->naxes && hosted & HOSTED_GRADS;
}

/* Is a gradient reduced as soon as it is final, or whole until the end of the step? In stage 1 if
   parameters are gathered round by round: there is one micro-batch, so both send the same. */
bool zero_reduces_at_once(const Zero *zero, const ZeroGroup *group) {
  bool rounds = group->stage >= 2 || (group->stage == 1 && group->sharded) ||
                zero_is_alone(zero, group->hosted);
  return rounds && !zero->full && !zero_waits_for_stages(zero, group);
}

/* The op that makes v, if nothing but groups read it: once for each gradient that it is. */
static const Op *claimed(const ZeroSite *site, ValueId v) {
  return value_uses(site->from, v) == site->claimed[v] ? value_def(site->from, v) : NULL;
}

/* Or a gradient that one rank alone makes: the update and the norm read it (zero_slice.c). */
static const Op *read_by_group(const ZeroSite *site, const ZeroGroup *group, uint32_t i,
                               ValueId v) {
  bool leaf = site->from == site->z->step && zero_reduces_at_once(site->z, group) &&
              v == group->member.at[i].leaf;
  return leaf ? value_def(site->from, v) : claimed(site, v);
}

/* Do all gradients of the group leave one loop, or a chain of them, so that the group can leave it
 * instead? */
static bool leaves_loop(const ZeroSite *site, const ZeroGroup *group, Pull *pull) {
  for (uint32_t i = 0; i < group->member.n; i++) {
    const Op *op = read_by_group(site, group, i, pull->sum[i]);
    bool casts = op && op->code == OP_cast;
    pull->out[i] = casts ? op->in[0] : pull->sum[i];
    if (casts) op = claimed(site, pull->out[i]);
    if (!op || op->code != OP_loop || (pull->loop && pull->loop != op)) return false;
    LoopShape shape = loop_shape(op);
    uint32_t result = pull->out[i] - op->out;
    bool carried = result < shape.carry;
    if ((pull->loop && carried != pull->carried) || (carried && casts)) return false;
    pull->loop = op, pull->carried = carried;
    if (!carried && shape.axis.dim != group->rounds.dim) return false;
  }
  return find_links(site, group, pull, pull->loop, pull->out);
}

/* ---- parts ---- */

ZeroGroup zero_part_group(const Zero *zero, uint32_t part) {
  ZeroGroup group = zero->group.at[zero->part.at[part].group];
  group.rounds.size /= zero->part.at[part].chunks;
  return group;
}

/* The gradient that chunks of the rounds are joined to, each made by loops of its own: of how many;
   1: it is not. */
static uint32_t count_chunks(const Fn *step, const ZeroGroup *group, ValueId sum) {
  const Op *joined = only_read(step, sum);
  if (!joined || joined->code != OP_concat || joined->group[0].to[0] != group->rounds.dim) return 1;
  for (uint32_t i = 0; i < joined->nin; i++) {
    const Op *renamed = only_read(step, joined->in[i]);
    if (!renamed || renamed->code != OP_rename) return 1;
    const Axis *rounds = value_type(step, renamed->in[0])->axis;
    int at = type_find(value_type(step, renamed->in[0]), group->rounds.dim);
    if (at < 0 || rounds[at].size * joined->nin != group->rounds.size) return 1;
  }
  return joined->nin;
}

void zero_find_parts(Zero *zero) {
  for (uint32_t g = 0; g < zero->group.n; g++) {
    const ZeroGroup *group = &zero->group.at[g];
    if (group->frozen) continue;
    uint32_t n = count_chunks(zero->step, group, group->member.at[0].sum);
    for (uint32_t i = 1; i < group->member.n; i++)
      if (count_chunks(zero->step, group, group->member.at[i].sum) != n) n = 1;
    if (group->complete) n = 1;
    for (uint32_t i = 0; i < n; i++) vec_push(zero->m->arena, zero->part, (ZeroPart){g, i, n});
  }
}

static ValueId part_sum(const Zero *zero, const ZeroPart *part, ValueId sum) {
  if (part->chunks == 1) return sum;
  return value_def(zero->step, value_def(zero->step, sum)->in[part->chunk])->in[0];
}

void zero_gradients(ZeroSite *site) {
  const Zero *zero = site->z;
  for (uint32_t p = 0; p < zero->part.n; p++) {
    const ZeroPart *part = &zero->part.at[p];
    const ZeroGroup *group = &zero->group.at[part->group];
    ValueId *sum = ARENA_ARRAY(zero->m->arena, ValueId, group->member.n);
    for (uint32_t i = 0; i < group->member.n; i++)
      sum[i] = part_sum(zero, part, group->member.at[i].sum);
    site_gradient(site, p, sum, NULL, group->member.at[0].elem);
  }
  site_gradients_leave(site);
}

ValueId zero_gradient(ZeroSite *site, uint32_t group) {
  const Zero *zero = site->z;
  Module *m = zero->m;
  const ZeroGroup *whole = &zero->group.at[group];
  Str name[MOST_CHUNKS];
  ValueId in[MOST_CHUNKS];
  uint32_t first = 0;
  while (zero->part.at[first].group != group) first++;
  uint32_t n = zero->part.at[first].chunks;
  if (n == 1) return site_reduced(site, first);
  for (uint32_t i = 0; i < n; i++) in[i] = site_reduced(site, first + i);
  for (uint32_t i = 0; i < n; i++) {
    name[i] = name_made(m, "%s'%c", whole->rounds.dim, (char)('a' + i));
    in[i] = ir_rename(m, site->to, in[i], whole->rounds.dim, name[i], (Loc){0});
  }
  Type type = *value_type(site->to, in[0]);
  type.axis[type_find(&type, name[0])] = whole->rounds;
  Group map = group_map((int)n, name, 1, &whole->rounds.dim);
  return emit_typed(m, site->to, OP_concat, n, in, &map, type, (Loc){0});
}

/* ---- gradients that a function returns ---- */

/* The value of v before a cast. */
static ValueId before_cast(const ZeroSite *site, ValueId v) {
  const Op *op = value_def(site->from, v);
  return op && op->code == OP_cast ? op->in[0] : NO_VALUE;
}

/* Several parameters may have one gradient: in an entry each reads it by an op of its own
   (zero_unshare.c), in a body each result of the loop does. */
static void claim(ZeroSite *site, ValueId sum, ValueId out) {
  bool news = true;
  for (uint32_t i = 0; i < site->claim.n; i++) {
    if (site->claim.at[i].sum != sum) continue;
    if (out != NO_VALUE && site->claim.at[i].out == out) return;
    news = false;
  }
  vec_push(site->z->m->arena, site->claim, ((Claim){sum, out}));
  site->claimed[sum]++;
  if (news && before_cast(site, sum) != NO_VALUE) site->claimed[before_cast(site, sum)]++;
}

void site_gradient(ZeroSite *site, uint32_t part, const ValueId *sum, const ValueId *out,
                   Elem elem) {
  must(!site->pull[part].wanted, "zero: the gradient of part %u is requested twice", part);
  Arena *arena = site->z->m->arena;
  const ZeroGroup *group = &site->z->group.at[site->z->part.at[part].group];
  Pull pull = {.wanted = true, .elem = elem};
  pull.out = ARENA_ARRAY(arena, ValueId, group->member.n),
  pull.sum = ARENA_ARRAY(arena, ValueId, group->member.n);
  memcpy(pull.sum, sum, sizeof *sum * group->member.n);
  for (uint32_t i = 0; i < group->member.n; i++) claim(site, sum[i], out ? out[i] : NO_VALUE);
  site->pull[part] = pull;
}

/* Does a part whose gradient leaves no loop need a value that leaves the loop of this part? */
static bool is_needed(const ZeroSite *site, uint32_t part) {
  const Pull *pull = &site->pull[part];
  for (uint32_t p = 0; p < site->z->part.n; p++) {
    const Pull *other = &site->pull[p];
    uint32_t members = site->z->group.at[site->z->part.at[p].group].member.n;
    for (uint32_t i = 0; other->wanted && !other->loop && i < members; i++)
      for (uint32_t k = 0; k < site->z->group.at[site->z->part.at[part].group].member.n; k++)
        if (other->sum[i] == pull->out[k] || before_cast(site, other->sum[i]) == pull->out[k])
          return true;
  }
  return false;
}

void site_gradients_leave(ZeroSite *site) {
  const Zero *zero = site->z;
  for (uint32_t p = 0; p < zero->part.n; p++) {
    const ZeroGroup *group = &zero->group.at[zero->part.at[p].group];
    Pull *pull = &site->pull[p];
    if (pull->wanted && (group->complete || !leaves_loop(site, group, pull))) pull->loop = NULL;
  }
  for (bool again = true; again;) {
    again = false;
    for (uint32_t p = 0; p < zero->part.n; p++)
      if (site->pull[p].loop && is_needed(site, p)) site->pull[p].loop = NULL, again = true;
  }
  for (uint32_t p = 0; site->from->kind == FN_ENTRY && p < zero->part.n; p++) {
    ZeroGroup *group = &site->z->group.at[zero->part.at[p].group];
    const Pull *pull = &site->pull[p];
    group->summed_inside = pull->loop && !pull->carried && zero_reduces_at_once(zero, group);
  }
}

/* ---- results of the function ---- */

static ValueId reduce(ZeroSite *site, const ZeroGroup *group, ValueId flat, bool all) {
  Zero *zero = site->z;
  ValueId v = zero_cut(zero, site->to, group, flat, all);
  if (!group->complete) {
    v = zero_reduce(zero, site->to, group, v);
    for (int i = 0; i < group->nothers && group->summed_inside && site->from->kind == FN_BODY; i++)
      v = zero_sum_gradient(zero, site->to, group->others[i], v);
    return v;
  }
  return group->stage ? zero_own(zero, site->to, group, v) : v;
}

static ValueId flatten_here(ZeroSite *site, uint32_t part, bool *all) {
  ZeroGroup group = zero_part_group(site->z, part);
  ValueId *value = ARENA_ARRAY(site->z->m->arena, ValueId, group.member.n);
  const Pull *pull = &site->pull[part];
  for (uint32_t i = 0; i < group.member.n; i++)
    value[i] = ir_cast(site->z->m, site->to, site_value(site, pull->sum[i]), pull->elem, (Loc){0});
  *all = group.rounds.dim && type_find(value_type(site->to, value[0]), group.rounds.dim) >= 0;
  return zero_flatten(site->z, site->to, &group, value, *all, true);
}

/* The part's gradient as it leaves this function: flat, or in an entry, or if it is reduced at
   once, the sum over the axis: this rank's shard, or without sharding all of it. */
ValueId site_reduced(ZeroSite *site, uint32_t part) {
  must(site->pull[part].wanted, "zero: the gradient of part %u is not known", part);
  const Zero *zero = site->z;
  ZeroGroup group = zero_part_group(zero, part);
  bool all = group.rounds.dim != NULL, entry = site->from->kind == FN_ENTRY,
       at_once = zero_reduces_at_once(zero, &group);
  if (site->finished[part]) return site->reduced[part];
  site->finished[part] = true;
  if (site->pull[part].loop) {
    site_loop(site, site->pull[part].loop);
    if (!at_once && entry) site->reduced[part] = reduce(site, &group, site->reduced[part], all);
    return site->reduced[part];
  }
  ValueId flat = flatten_here(site, part, &all);
  site->z->group.at[zero->part.at[part].group].sums_all |= at_once && all;
  return site->reduced[part] = at_once || entry ? reduce(site, &group, flat, all) : flat;
}

/* Rewriting functions for partitioned states: members of a group become parts of one flat value.

   A function is written anew from its stores and results backwards, so that only what is needed is
   copied. Three things move:

     parameters   a loop that gets members gets their group instead, and its body takes them out of
                  it. What is kept in shards (stage 3) is gathered where it is taken apart: once per
                  round of the stack, or per part of the batch; so never more than a round is whole.
     gradients    members that leave a loop as its results, carried or stacked, are put flat inside
                  of its body and leave as one reduce-scattered shard; else it is done where they
                  come to light.
     updates      the chain of one member stands for all, on flat values (zero.c).

   Must not: change what is computed, beyond the order in which ranks are summed. */
#include "passes/zero_site.h"
#include <string.h>

bool zero_is_micro(const Zero *zero, const Op *loop) {
  return loop_shape(loop).axis.dim == intern(zero->m->ctx->names, "micro");
}

uint32_t zero_epochs(const Zero *zero, const Fn *fn, uint32_t **epoch) {
  uint32_t n = 0;
  *epoch = ARENA_ARRAY(zero->m->arena, uint32_t, fn->ops.n + 1);
  for (OpId i = 0; i < fn->ops.n; i++) {
    (*epoch)[i] = n;
    n += fn->ops.at[i].code == OP_loop && !zero_is_micro(zero, &fn->ops.at[i]);
  }
  return n + 1;
}

/* ---- sites ---- */

ZeroSite site_begin(Zero *zero, const Fn *from, Fn *to) {
  Arena *arena = zero->m->arena;
  uint32_t n = zero->group.n;
  ZeroSite s = {.z = zero, .from = from, .to = to, .map = value_map(zero->m, from)};
  s.ref = ARENA_ARRAY(arena, Ref, from->values.n + 1);
  s.narrow = ARENA_ARRAY(arena, bool, from->values.n + 1);
  for (uint32_t i = 0; i < from->values.n; i++) s.ref[i].group = -1;
  for (int all = 0; all < 2; all++) {
    s.kept[all] = ARENA_ARRAY(arena, ValueId, n + 1),
    s.flat[all] = ARENA_ARRAY(arena, ValueId, n + 1);
    for (uint32_t g = 0; g < n; g++) s.kept[all][g] = s.flat[all][g] = NO_VALUE;
  }
  s.pull = ARENA_ARRAY(arena, Pull, n + 1);
  s.reduced = ARENA_ARRAY(arena, ValueId, n + 1), s.finished = ARENA_ARRAY(arena, bool, n + 1);
  s.copied = ARENA_ARRAY(arena, bool, from->ops.n + 1);
  s.staged = ARENA_ARRAY(arena, bool, from->ops.n + 1);
  for (uint32_t g = 0; g < n; g++) s.reduced[g] = NO_VALUE;
  s.epochs = zero_epochs(zero, from, &s.epoch);
  s.again = ARENA_ARRAY(arena, ValueId, s.epochs * n + 1);
  s.member = ARENA_ARRAY(arena, ValueId, s.epochs * from->values.n + 1);
  for (uint32_t i = 0; i < s.epochs * n; i++) s.again[i] = NO_VALUE;
  for (uint32_t i = 0; i < s.epochs * from->values.n; i++) s.member[i] = NO_VALUE;
  return s;
}

static uint32_t uses_of(const Fn *fn, ValueId value) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < fn->ops.n; i++)
    for (uint32_t k = 0; k < fn->ops.at[i].nin; k++) n += fn->ops.at[i].in[k] == value;
  for (uint32_t i = 0; i < fn->results.n; i++) n += fn->results.at[i] == value;
  return n;
}

/* The value that round after round is added to a carried one; NO_VALUE if it is no sum from 0. */
static ValueId added(const Fn *fn, const Op *loop, uint32_t result) {
  const Fn *body = loop->callee;
  const Op *op = value_def(body, body->results.at[result]),
           *first = value_def(fn, loop->in[result]);
  ValueId sum = body->args.at[1 + result];
  if (first && first->code == OP_expand) first = value_def(fn, first->in[0]);
  bool zero = first && first->code == OP_const && attr_float(&first->attrs, ATTR_value, 0) == 0;
  if (!zero || !op || op->code != OP_add || uses_of(body, sum) != 1) return NO_VALUE;
  return op->in[0] == sum ? op->in[1] : op->in[1] == sum ? op->in[0] : NO_VALUE;
}

/* The op that makes v, if v is read once. */
static const Op *only_read(const Fn *f, ValueId v) {
  return uses_of(f, v) == 1 ? value_def(f, v) : NULL;
}

/* The stacks that results `out` of the loop go on with, if they do: NULL, no loop writes them. */
static ValueId *continued(const ZeroSite *site, const ZeroGroup *g, const Op *loop,
                          const ValueId *out, bool *broken) {
  ValueId *before = ARENA_ARRAY(site->z->m->arena, ValueId, g->member.n);
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->member.n; i++) {
    uint32_t on = loop_continues(loop, out[i] - loop->out);
    if (on == NO_VALUE) continue;
    before[i] = loop->in[on], n++;
    *broken |= value_is_used(loop->callee, loop->callee->args.at[on + 1]);
  }
  *broken |= n && n < g->member.n;
  return n ? before : NULL;
}

/* The loops that write the group's gradient, the first one first, and what their bodies make. */
static bool find_links(const ZeroSite *site, const ZeroGroup *g, Pull *p, const Op *loop,
                       ValueId *out) {
  bool broken = false;
  PullLink link = {loop, out, ARENA_ARRAY(site->z->m->arena, ValueId, g->member.n)};
  for (uint32_t i = 0; i < g->member.n; i++) {
    uint32_t result = out[i] - loop->out;
    link.inner[i] = p->carried ? added(site->from, loop, result) : loop->callee->results.at[result];
    if (link.inner[i] == NO_VALUE) return false;
  }
  ValueId *before = continued(site, g, loop, out, &broken);
  for (uint32_t i = 0; before && !broken && i < g->member.n; i++) {
    const Op *op = only_read(site->from, before[i]);
    broken = !op || op->code != OP_loop || op != value_def(site->from, before[0]);
  }
  if (broken) return false;
  if (before && !find_links(site, g, p, value_def(site->from, before[0]), before)) return false;
  vec_push(site->z->m->arena, p->link, link);
  return true;
}

/* Do all gradients of the group leave one loop, or a chain of them, so that the group can leave it
 * instead? */
static bool leaves_loop(const ZeroSite *site, const ZeroGroup *g, Pull *p) {
  for (uint32_t i = 0; i < g->member.n; i++) {
    const Op *op = only_read(site->from, p->sum[i]);
    bool casts = op && op->code == OP_cast;
    p->out[i] = casts ? op->in[0] : p->sum[i];
    if (casts) op = only_read(site->from, p->out[i]);
    if (!op || op->code != OP_loop || (p->loop && p->loop != op)) return false;
    LoopShape shape = loop_shape(op);
    uint32_t result = p->out[i] - op->out;
    bool carried = result < shape.carry;
    if ((p->loop && carried != p->carried) || (carried && casts)) return false;
    p->loop = op, p->carried = carried;
    if (!carried && shape.axis.dim != g->rounds.dim) return false;
  }
  return find_links(site, g, p, p->loop, p->out);
}

/* Is a gradient reduced where it comes to light, or whole until the end of the step? */
static bool reduces_at_once(const Zero *zero, const ZeroGroup *g) {
  return g->stage >= 2 && !zero->full;
}

void site_gradient(ZeroSite *site, uint32_t group, const ValueId *sum, Elem elem) {
  must(!site->pull[group].wanted, "zero: the gradient of group %u is asked for twice", group);
  Arena *arena = site->z->m->arena;
  const ZeroGroup *g = &site->z->group.at[group];
  Pull p = {.wanted = true, .elem = elem};
  p.out = ARENA_ARRAY(arena, ValueId, g->member.n),
  p.sum = ARENA_ARRAY(arena, ValueId, g->member.n);
  memcpy(p.sum, sum, sizeof *sum * g->member.n);
  if (g->complete || !leaves_loop(site, g, &p)) p.loop = NULL;
  if (site->from->kind == FN_ENTRY)
    site->z->group.at[group].summed_inside = p.loop && !p.carried && reduces_at_once(site->z, g);
  site->pull[group] = p;
}

/* ---- parameters ---- */

/* Kept in shards, and gathered where it is read? */
static bool is_gathered(const Zero *zero, uint32_t group) {
  return zero->group.at[group].stage == 3 && !zero->keep_gathered;
}

/* Dropped while a stack runs, gathered again behind it? */
static bool is_gathered_anew(const Zero *zero, uint32_t group) {
  return is_gathered(zero, group) && !zero->keep_root && !zero->group.at[group].rounds.dim;
}

static ValueId site_flat(ZeroSite *site, uint32_t group, bool all, uint32_t epoch) {
  Zero *zero = site->z;
  const ZeroGroup *g = &zero->group.at[group];
  bool anew = is_gathered_anew(zero, group);
  ValueId *memo = anew ? &site->again[epoch * zero->group.n + group] : &site->flat[all][group];
  if (*memo != NO_VALUE) return *memo;
  ValueId value = site->kept[all][group];
  zero->group.at[group].gathers_all |= is_gathered(zero, group) && all && g->rounds.dim;
  if (is_gathered(zero, group))
    value = zero_join(zero, site->to, g, zero_gather(zero, site->to, g, value), all);
  return *memo = value;
}

/* Is the member, cast so, what is kept of it? */
static bool is_copy(const ZeroSite *site, Ref r, const Op *cast) {
  const ZeroGroup *g = &site->z->group.at[r.group];
  return g->copied && value_type(site->from, cast->out)->elem == g->narrow;
}

/* What an old value is, if it is a member of a group or a view of one. */
static Ref ref_of(ZeroSite *site, ValueId value) {
  const Op *op = value_def(site->from, value);
  bool casts = op && op->code == OP_cast;
  if (site->ref[value].group >= 0 || !op || (op->code != OP_rename && !casts))
    return site->ref[value];
  Ref r = ref_of(site, op->in[0]);
  if (casts)
    return r.group >= 0 && is_copy(site, r, op) ? (site->ref[value] = r) : site->ref[value];
  if (r.group < 0 || r.nviews == REF_VIEWS) return site->ref[value];
  r.view[r.nviews++] = op;
  return site->ref[value] = r;
}

static ValueId take_member(ZeroSite *site, Ref r, uint32_t epoch) {
  Zero *zero = site->z;
  must(epoch < site->epochs && r.member < zero->group.at[r.group].member.n,
       "zero: member %u of group %d, stack %u of %u", r.member, r.group, epoch, site->epochs);
  ValueId v = zero_member(zero, site->to, &zero->group.at[r.group], r.member,
                          site_flat(site, (uint32_t)r.group, r.all, epoch), r.all);
  for (int i = 0; i < r.nviews; i++)
    v = ir_rename(zero->m, site->to, v, r.view[i]->group[0].from[0], r.view[i]->group[0].to[0],
                  r.view[i]->loc);
  return v;
}

/* The new value that op o of the old function reads as v. */
static ValueId site_operand(ZeroSite *site, const Op *op, ValueId value) {
  Ref r = ref_of(site, value);
  if (r.group < 0 || !is_gathered_anew(site->z, (uint32_t)r.group)) return site_value(site, value);
  uint32_t epoch = site->epoch[op - site->from->ops.at];
  ValueId *memo = &site->member[epoch * site->from->values.n + value];
  if (*memo == NO_VALUE) *memo = take_member(site, r, epoch);
  return site->map[value] = *memo;
}

static bool is_narrow(ZeroSite *site, ValueId value) {
  Ref r = ref_of(site, value);
  return site->narrow[value] || (r.group >= 0 && zero_narrows(&site->z->group.at[r.group]));
}

/* ---- loops ---- */

typedef enum ZeroRole { ROLE_PLAIN, ROLE_MEMBER, ROLE_DROPPED } ZeroRole;

typedef struct ZeroCopy { /* a loop being copied */
  ZeroSite *s;
  const Op *o;
  LoopShape old, new;
  ZeroSite body;
  ZeroRole *role; /* by operand */
  bool *gone;     /* by result: a gradient that leaves within its group */
  ValueList in;
  uint32_t *begun;   /* by group: the stacked operand that its gradient goes on with, NO_VALUE */
  VEC(int64_t) into; /* of the new loop */
} ZeroCopy;

/* What the group has to do with the loop; NULL: nothing. */
static const PullLink *through(const ZeroCopy *c, uint32_t group) {
  const Pull *p = &c->s->pull[group];
  for (uint32_t k = 0; p->wanted && p->loop && k < p->link.n; k++)
    if (p->link.at[k].loop == c->o) return &p->link.at[k];
  return NULL;
}

static void mark_results(ZeroCopy *copy) {
  Zero *zero = copy->s->z;
  for (uint32_t g = 0; g < zero->group.n; g++) {
    const PullLink *l = through(copy, g);
    for (uint32_t i = 0; l && i < zero->group.at[g].member.n; i++)
      copy->gone[l->out[i] - copy->o->out] = true;
  }
}

static bool carries_on(const ZeroCopy *copy, uint32_t operand) {
  for (uint32_t i = copy->old.carry; i < copy->o->nout; i++)
    if (copy->gone[i] && loop_continues(copy->o, i) == operand) return true;
  return false;
}

static ZeroRole role_of(ZeroCopy *copy, uint32_t i) {
  if (i < copy->old.carry) return copy->gone[i] ? ROLE_DROPPED : ROLE_PLAIN;
  if (carries_on(copy, i)) return ROLE_DROPPED;
  Ref r = ref_of(copy->s, copy->o->in[i]);
  if (r.group < 0) return ROLE_PLAIN;
  const ZeroGroup *g = &copy->s->z->group.at[r.group];
  if (i < copy->old.carry + copy->old.invariant)
    return zero_is_micro(copy->s->z, copy->o) ? ROLE_MEMBER : ROLE_PLAIN;
  bool rounds = r.all && !r.nviews && g->rounds.dim == copy->old.axis.dim;
  return rounds ? ROLE_MEMBER : ROLE_PLAIN;
}

static void pass_plain(ZeroCopy *copy, uint32_t i) {
  ValueId arg = copy->o->callee->args.at[1 + i];
  Type type = *value_type(copy->o->callee, arg);
  vec_push(copy->s->z->m->arena, copy->in, site_operand(copy->s, copy->o, copy->o->in[i]));
  copy->body.narrow[arg] = is_narrow(copy->s, copy->o->in[i]);
  if (copy->body.narrow[arg])
    type.elem = value_type(copy->s->to, copy->in.at[copy->in.n - 1])->elem;
  copy->body.map[arg] = fn_arg(copy->s->z->m, copy->body.to, type);
}

static void pass_range(ZeroCopy *copy, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    if (copy->role[i] == ROLE_PLAIN) pass_plain(copy, i);
}

/* Groups of which operands from .. to - 1 are members go in as one operand each. */
static uint32_t pass_groups(ZeroCopy *copy, uint32_t from, uint32_t to, bool stacked) {
  ZeroSite *site = copy->s;
  uint32_t n = 0;
  for (uint32_t g = 0; g < site->z->group.n; g++) {
    bool used = false;
    for (uint32_t i = from; i < to; i++) {
      Ref r = ref_of(site, copy->o->in[i]);
      if (copy->role[i] != ROLE_MEMBER || r.group != (int)g) continue;
      used = true;
      r.all = r.all && !stacked;
      copy->body.ref[copy->o->callee->args.at[1 + i]] = r;
    }
    if (!used) continue;
    bool all = site->z->group.at[g].rounds.dim != NULL;
    ValueId value = site->kept[all][g];
    Type type = *value_type(site->to, value);
    if (stacked) type = type_without(&type, &site->z->group.at[g].rounds.dim, 1);
    vec_push(site->z->m->arena, copy->in, value);
    copy->body.kept[all && !stacked][g] = fn_arg(site->z->m, copy->body.to, type);
    n++;
  }
  return n;
}

static uint32_t count_role(const ZeroCopy *copy, uint32_t from, uint32_t to, ZeroRole r) {
  uint32_t n = 0;
  for (uint32_t i = from; i < to; i++) n += copy->role[i] == r;
  return n;
}

static uint32_t pass_sums(ZeroCopy *copy) {
  ZeroSite *site = copy->s;
  Zero *zero = site->z;
  uint32_t n = 0;
  for (uint32_t g = 0; g < zero->group.n; g++) {
    if (!through(copy, g) || !site->pull[g].carried) continue;
    Elem e = site->pull[g].elem;
    const ZeroGroup *group = &zero->group.at[g];
    Type type = reduces_at_once(zero, group) ? zero_owned_type(zero, group, e, true, false)
                                             : zero_flat_type(group, e, true);
    vec_push(zero->m->arena, copy->in, emit_full(zero->m, site->to, type, 0, (Loc){0}));
    copy->body.reduced[g] = fn_arg(zero->m, copy->body.to, type); /* until its sum is made */
    n++;
  }
  return n;
}

/* Group gradients that loops before this one began. */
static void pass_stacks(ZeroCopy *copy) {
  ZeroSite *site = copy->s;
  for (uint32_t g = 0; g < site->z->group.n; g++) {
    const PullLink *l = through(copy, g);
    copy->begun[g] = NO_VALUE;
    if (!l || site->pull[g].carried || l == site->pull[g].link.at) continue;
    ValueId value = site->reduced[g];
    Type type = type_without(value_type(site->to, value), &copy->old.axis.dim, 1);
    copy->begun[g] = copy->new.stacked++;
    vec_push(site->z->m->arena, copy->in, value);
    fn_arg(site->z->m, copy->body.to, type);
  }
}

static void pass_operands(ZeroCopy *copy) {
  uint32_t carry = copy->old.carry, rest = carry + copy->old.invariant;
  fn_arg(copy->s->z->m, copy->body.to, type_scalar(ELEM_i32));
  copy->body.map[copy->o->callee->args.at[0]] = copy->body.to->args.at[0];
  pass_range(copy, 0, carry);
  copy->new.carry = count_role(copy, 0, carry, ROLE_PLAIN) + pass_sums(copy);
  pass_range(copy, carry, rest);
  copy->new.invariant =
      count_role(copy, carry, rest, ROLE_PLAIN) + pass_groups(copy, carry, rest, false);
  pass_range(copy, rest, copy->o->nin);
  copy->new.stacked = count_role(copy, rest, copy->o->nin, ROLE_PLAIN) +
                      pass_groups(copy, rest, copy->o->nin, true);
  pass_stacks(copy);
}

/* Attribute `into` of an old result: plain operands stay in their order. */
static int64_t old_stack(const ZeroCopy *copy, uint32_t result) {
  uint32_t on = loop_continues(copy->o, result);
  if (on == NO_VALUE) return loop_into(&copy->old, result);
  return count_role(copy, copy->old.carry + copy->old.invariant, on, ROLE_PLAIN);
}

static int64_t group_stack(const ZeroCopy *copy, uint32_t g) {
  if (copy->begun[g] != NO_VALUE) return copy->begun[g];
  return copy->s->pull[g].link.n > 1 ? INTO_NEW : INTO_OWN;
}

static void old_results(ZeroCopy *copy, uint32_t from, uint32_t to, ValueList *order) {
  const Fn *body = copy->o->callee;
  for (uint32_t i = from; i < to; i++) {
    if (copy->gone[i]) continue;
    fn_result(copy->s->z->m, copy->body.to, site_value(&copy->body, body->results.at[i]));
    vec_push(copy->s->z->m->arena, *order, copy->o->out + i);
    if (i >= copy->old.carry) vec_push(copy->s->z->m->arena, copy->into, old_stack(copy, i));
  }
}

static void group_results(ZeroCopy *copy, bool carried, ValueId *sums) {
  Zero *zero = copy->s->z;
  for (uint32_t g = 0; g < zero->group.n; g++) {
    if (!through(copy, g) || copy->s->pull[g].carried != carried) continue;
    ValueId value = site_reduced(&copy->body, g);
    if (carried) value = ir_binary(zero->m, copy->body.to, OP_add, sums[g], value, (Loc){0});
    else vec_push(zero->m->arena, copy->into, group_stack(copy, g));
    fn_result(zero->m, copy->body.to, value);
  }
}

/* Gradients are made in the old order, whatever their groups: so fuse finds the same neighbours,
   and all stages get the same bits. */
static void make_in_order(ZeroCopy *copy) {
  const Zero *zero = copy->s->z;
  bool *wanted = ARENA_ARRAY(zero->m->arena, bool, copy->body.from->values.n + 1);
  for (uint32_t g = 0; g < zero->group.n; g++)
    for (uint32_t i = 0;
         through(copy, g) && !copy->body.pull[g].loop && i < zero->group.at[g].member.n; i++)
      wanted[copy->body.pull[g].sum[i]] = true;
  for (ValueId value = 0; value < copy->body.from->values.n; value++)
    if (wanted[value]) site_value(&copy->body, value);
}

static void copy_results(ZeroCopy *copy) {
  Zero *zero = copy->s->z;
  ValueId *sums = copy->body.reduced;
  copy->body.reduced = ARENA_ARRAY(zero->m->arena, ValueId, zero->group.n + 1);
  for (uint32_t g = 0; g < zero->group.n; g++) copy->body.reduced[g] = NO_VALUE;
  for (uint32_t g = 0; g < zero->group.n; g++)
    if (through(copy, g))
      site_gradient(&copy->body, g, through(copy, g)->inner, copy->s->pull[g].elem);
  ValueList carried = {0}, stacked = {0};
  site_hops(&copy->body, copy->body.from->ops.n);
  make_in_order(copy);
  old_results(copy, 0, copy->old.carry, &carried);
  group_results(copy, true, sums);
  old_results(copy, copy->old.carry, copy->o->nout, &stacked);
  group_results(copy, false, sums);
  copy->new.into = copy->into.at, copy->new.ninto = copy->into.n;
  Op *op = rebuild_loop(zero->m, copy->s->to, copy->body.to, copy->new, copy->in.at, copy->o->loc);
  ValueId out = op->out;
  for (uint32_t i = 0; i < carried.n; i++) copy->s->map[carried.at[i]] = out++;
  for (uint32_t g = 0; g < zero->group.n; g++)
    if (through(copy, g) && copy->s->pull[g].carried) copy->s->reduced[g] = out++;
  for (uint32_t i = 0; i < stacked.n; i++) copy->s->map[stacked.at[i]] = out++;
  for (uint32_t g = 0; g < zero->group.n; g++)
    if (through(copy, g) && !copy->s->pull[g].carried) copy->s->reduced[g] = out++;
}

static void copy_loop(ZeroSite *s, const Op *o);
static bool copy_stages(ZeroSite *site, const Op *loop);

/* Loops that begin what this one goes on with stand before it. */
static void copy_links_before(ZeroCopy *copy) {
  for (uint32_t g = 0; g < copy->s->z->group.n; g++) {
    const PullLink *l = through(copy, g);
    if (l && l != copy->s->pull[g].link.at) copy_loop(copy->s, l[-1].loop);
  }
}

static bool holds_hops(const Op *op) {
  if (op->code != OP_loop) return op_is_hop(op->code);
  for (OpId i = 0; i < op->callee->ops.n; i++)
    if (holds_hops(&op->callee->ops.at[i])) return true;
  return false;
}

static void copy_loop(ZeroSite *site, const Op *op) {
  Module *module = site->z->m;
  ZeroCopy copy = {.s = site, .o = op, .old = loop_shape(op)};
  if (site->copied[op - site->from->ops.at] || copy_stages(site, op)) return;
  site->copied[op - site->from->ops.at] = true;
  if (holds_hops(op)) site_hops(site, (OpId)(op - site->from->ops.at));
  copy.begun = ARENA_ARRAY(module->arena, uint32_t, site->z->group.n + 1);
  copy_links_before(&copy);
  Fn *body = fn_new(module, FN_BODY, op->callee->name);
  body->loc = op->callee->loc;
  copy.new = copy.old;
  copy.body = site_begin(site->z, op->callee, body);
  copy.role = ARENA_ARRAY(module->arena, ZeroRole, op->nin + 1),
  copy.gone = ARENA_ARRAY(module->arena, bool, op->nout + 1);
  mark_results(&copy);
  for (uint32_t i = 0; i < op->nin; i++) copy.role[i] = role_of(&copy, i);
  pass_operands(&copy);
  copy_results(&copy);
}

/* ---- values ---- */

static const Op *received(const ZeroSite *site, ValueId value) {
  const Op *def = value_def(site->from, value);
  return def && def->code == OP_receive ? def : NULL;
}

/* The loop over layers between a receive and a send; NULL: another op. */
static const Op *stages_of(const ZeroSite *site, const Op *hop) {
  const Op *made = hop->code == OP_send ? value_def(site->from, hop->in[0]) : NULL;
  if (made && made->code == OP_loop) return made;
  for (OpId i = 0; hop->code == OP_receive && i < site->from->ops.n; i++)
    for (uint32_t k = 0; k < site->from->ops.at[i].nin; k++)
      if (site->from->ops.at[i].in[k] == hop->out && site->from->ops.at[i].code == OP_loop)
        return &site->from->ops.at[i];
  return NULL;
}

/* A stage receives, works and sends, and nothing else between: a message of all stages would wait
   there for those that wait for the send. So what its layers read besides is made before. */
static bool copy_stages(ZeroSite *site, const Op *loop) {
  OpId at = (OpId)(loop - site->from->ops.at), first = at;
  if (site->staged[at]) return false;
  site->staged[at] = true;
  for (uint32_t i = 0; i < loop->nin; i++) {
    const Op *from = received(site, loop->in[i]);
    if (from && from - site->from->ops.at < first) first = (OpId)(from - site->from->ops.at);
  }
  if (first == at) return false;
  for (uint32_t i = 0; i < loop->nin; i++)
    if (!received(site, loop->in[i]) && ref_of(site, loop->in[i]).group < 0)
      site_value(site, loop->in[i]);
  site_hops(site, first);
  copy_loop(site, loop);
  for (OpId i = at + 1; i < site->from->ops.n; i++) {
    const Op *op = &site->from->ops.at[i];
    if (op->code == OP_send && value_def(site->from, op->in[0]) == loop) site_value(site, op->out);
  }
  return true;
}

static void copy_op(ZeroSite *site, const Op *op) {
  const Op *stages = op_is_hop(op->code) ? stages_of(site, op) : NULL;
  if (stages && copy_stages(site, stages)) return;
  if (op->code == OP_loop) {
    copy_loop(site, op);
    return;
  }
  if (op_is_hop(op->code)) site_hops(site, (OpId)(op - site->from->ops.at));
  for (uint32_t i = 0; i < op->nin; i++) site_operand(site, op, op->in[i]);
  for (uint32_t i = 0; i < op->nin; i++)
    site_operand(site, op, op->in[i]); /* as of this op's place */
  if (op->code == OP_cast && is_narrow(site, op->in[0])) {
    site->map[op->out] = site->map[op->in[0]];
    return;
  }
  fn_clone_op(site->z->m, site->to, site->from, op, site->map);
}

ValueId site_value(ZeroSite *site, ValueId value) {
  if (site->map[value] != NO_VALUE) return site->map[value];
  Ref r = ref_of(site, value);
  if (r.group >= 0) return site->map[value] = take_member(site, r, site->epochs - 1);
  const Op *op = value_def(site->from, value);
  if (!op) bug("%%%u of %s is an argument without a value", value, site->from->name);
  copy_op(site, op);
  return site->map[value];
}

void site_hops(ZeroSite *site, OpId end) {
  while (site->hops < end) {
    const Op *op = &site->from->ops.at[site->hops++];
    if (holds_hops(op)) site_value(site, op->out);
  }
}

static ValueId reduce(ZeroSite *site, const ZeroGroup *g, ValueId flat, bool all) {
  Zero *zero = site->z;
  ValueId v = zero_cut(zero, site->to, g, flat, all);
  if (!g->complete) {
    v = zero_reduce(zero, site->to, g, v);
    for (int i = 0; i < g->nothers && g->summed_inside && site->from->kind == FN_BODY; i++)
      v = zero_sum_gradient(zero, site->to, g->others[i], v);
    return v;
  }
  return g->stage ? zero_own(zero, site->to, g, v) : v;
}

static ValueId flatten_here(ZeroSite *site, uint32_t group, bool *all) {
  const ZeroGroup *g = &site->z->group.at[group];
  ValueId *value = ARENA_ARRAY(site->z->m->arena, ValueId, g->member.n);
  const Pull *p = &site->pull[group];
  for (uint32_t i = 0; i < g->member.n; i++)
    value[i] = ir_cast(site->z->m, site->to, site_value(site, p->sum[i]), p->elem, (Loc){0});
  *all = g->rounds.dim && type_find(value_type(site->to, value[0]), g->rounds.dim) >= 0;
  return zero_flatten(site->z, site->to, g, value, *all, true);
}

/* The group's gradient as it leaves this function: flat, or in an entry, or where it is reduced at
   once, the sum over the axis: this rank's shard, or without sharding all of it. */
ValueId site_reduced(ZeroSite *site, uint32_t group) {
  must(site->pull[group].wanted, "zero: nobody said which the gradient of group %u is", group);
  const Zero *zero = site->z;
  const ZeroGroup *g = &zero->group.at[group];
  bool all = g->rounds.dim != NULL, entry = site->from->kind == FN_ENTRY,
       at_once = reduces_at_once(zero, g);
  if (site->finished[group]) return site->reduced[group];
  site->finished[group] = true;
  if (site->pull[group].loop) {
    copy_loop(site, site->pull[group].loop);
    if (!at_once && entry) site->reduced[group] = reduce(site, g, site->reduced[group], all);
    return site->reduced[group];
  }
  ValueId flat = flatten_here(site, group, &all);
  site->z->group.at[group].sums_all |= at_once && all;
  return site->reduced[group] = at_once || entry ? reduce(site, g, flat, all) : flat;
}

/* Rewriting functions for partitioned states: a loop whose operands are groups instead of their
   members, and whose results are the gradients of groups instead of those of members
   (zero_rewrite.c).

   Operands come in the order of a loop: carried ones, followed by the sums of groups; those of all
   rounds, with groups; stacked ones, with groups, and with stacks that loops before this one
   began. Results are in the same order, and a loop between a stage's receive and its send is
   copied together with them.

   Must not: look into updates (zero_update.c). */
#include "ir/loop.h"
#include "zero_site.h"

typedef enum ZeroRole { ROLE_PLAIN, ROLE_MEMBER, ROLE_DROPPED } ZeroRole;

typedef struct ZeroCopy { /* a loop being copied */
  ZeroSite *s;
  const Op *o;
  LoopShape old, new;
  ZeroSite body;
  ZeroRole *role; /* by operand */
  bool *gone;     /* by result: a gradient that leaves within its group */
  bool *keeps;    /* by group: its gathered rounds are results, for later loops */
  ValueList in;
  uint32_t *begun;   /* by part: the stacked operand that its gradient continues, NO_VALUE */
  VEC(int64_t) into; /* of the new loop */
} ZeroCopy;

static const ZeroGroup *group_of(const Zero *zero, uint32_t part) {
  return &zero->group.at[zero->part.at[part].group];
}

/* The link of the gradient's part that belongs to the loop; NULL: none. */
static const PullLink *through(const ZeroCopy *c, uint32_t part) {
  const Pull *p = &c->s->pull[part];
  for (uint32_t k = 0; p->wanted && p->loop && k < p->link.n; k++)
    if (p->link.at[k].loop == c->o) return &p->link.at[k];
  return NULL;
}

static void mark_results(ZeroCopy *copy) {
  Zero *zero = copy->s->z;
  for (uint32_t part = 0; part < zero->part.n; part++) {
    const PullLink *pull_link = through(copy, part);
    for (uint32_t i = 0; pull_link && i < group_of(zero, part)->member.n; i++)
      copy->gone[pull_link->out[i] - copy->o->out] = true;
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
  Ref ref = site_ref(copy->s, copy->o->in[i]);
  if (ref.group < 0) return ROLE_PLAIN;
  const ZeroGroup *group = &copy->s->z->group.at[ref.group];
  if (i < copy->old.carry + copy->old.invariant)
    return loop_is_micro(copy->o) ? ROLE_MEMBER : ROLE_PLAIN;
  bool rounds = ref.all && !ref.nviews && group->rounds.dim == copy->old.axis.dim;
  return rounds ? ROLE_MEMBER : ROLE_PLAIN;
}

static void pass_plain(ZeroCopy *copy, uint32_t i) {
  ValueId arg = copy->o->callee->args.at[1 + i];
  Type type = *value_type(copy->o->callee, arg);
  vec_push(copy->s->z->m->arena, copy->in, site_operand(copy->s, copy->o, copy->o->in[i]));
  copy->body.narrow[arg] = site_is_narrow(copy->s, copy->o->in[i]);
  if (copy->body.narrow[arg])
    type.elem = value_type(copy->s->to, copy->in.at[copy->in.n - 1])->elem;
  copy->body.map[arg] = fn_arg(copy->s->z->m, copy->body.to, type);
}

static void pass_range(ZeroCopy *copy, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    if (copy->role[i] == ROLE_PLAIN) pass_plain(copy, i);
}

/* The group as it is kept: stacked, or all of it for every round. */
static ValueId pass_group(ZeroCopy *copy, uint32_t g, ValueId value, bool stacked) {
  ZeroSite *site = copy->s;
  Type type = *value_type(site->to, value);
  if (stacked) type = type_without(&type, &site->z->group.at[g].rounds.dim, 1);
  vec_push(site->z->m->arena, copy->in, value);
  return fn_arg(site->z->m, copy->body.to, type);
}

/* The rounds of this loop, gathered by one before it; NULL: none has. */
static const GatheredRounds *gathered_before(const ZeroCopy *copy, uint32_t g) {
  for (uint32_t i = 0; i < copy->s->rounds.n; i++) {
    const GatheredRounds *rounds = &copy->s->rounds.at[i];
    if (rounds->group == g && rounds->first == copy->old.first && rounds->trip == copy->old.trip)
      return rounds;
  }
  return NULL;
}

/* As a loop before has gathered them; else as they are kept, to be stacked for later loops. */
static void pass_gathered(ZeroCopy *copy, uint32_t g) {
  ZeroSite *site = copy->s;
  const GatheredRounds *before = gathered_before(copy, g);
  if (before) copy->body.whole[g] = true;
  else copy->keeps[g] = site->from == site->z->step && site->z->group.at[g].keeps_rounds;
  copy->body.kept[0][g] = pass_group(copy, g, before ? before->value : site->kept[1][g], true);
}

/* Groups that have operands from .. to - 1 as members become one operand each, or one with
   scales. */
static uint32_t pass_groups(ZeroCopy *copy, uint32_t from, uint32_t to, bool stacked) {
  ZeroSite *site = copy->s;
  uint32_t n = 0;
  for (uint32_t g = 0; g < site->z->group.n; g++) {
    bool used = false;
    for (uint32_t i = from; i < to; i++) {
      Ref ref = site_ref(site, copy->o->in[i]);
      if (copy->role[i] != ROLE_MEMBER || ref.group != (int)g) continue;
      used = true;
      ref.all = ref.all && !stacked;
      copy->body.ref[copy->o->callee->args.at[1 + i]] = ref;
    }
    if (!used) continue;
    bool all = site->z->group.at[g].rounds.dim != NULL;
    ValueId scale = site->scale[all][g];
    if (stacked) pass_gathered(copy, g);
    else copy->body.kept[all][g] = pass_group(copy, g, site->kept[all][g], stacked);
    n++;
    if (scale == NO_VALUE || copy->body.whole[g]) continue;
    copy->body.scale[all && !stacked][g] = pass_group(copy, g, scale, stacked);
    n++;
  }
  return n;
}

static uint32_t count_plain(const ZeroCopy *copy, uint32_t from, uint32_t to) {
  uint32_t n = 0;
  for (uint32_t i = from; i < to; i++) n += copy->role[i] == ROLE_PLAIN;
  return n;
}

static uint32_t pass_sums(ZeroCopy *copy) {
  ZeroSite *site = copy->s;
  Zero *zero = site->z;
  uint32_t n = 0;
  for (uint32_t part = 0; part < zero->part.n; part++) {
    if (!through(copy, part) || !site->pull[part].carried) continue;
    Elem e = site->pull[part].elem;
    ZeroGroup group = zero_part_group(zero, part);
    Type type = zero_reduces_at_once(zero, &group) ? zero_owned_type(zero, &group, e, true, false)
                                                   : zero_flat_type(&group, e, true);
    vec_push(zero->m->arena, copy->in, emit_full(zero->m, site->to, type, 0, (Loc){0}));
    copy->body.reduced[part] = fn_arg(zero->m, copy->body.to, type); /* until its sum is made */
    n++;
  }
  return n;
}

/* Group gradients that loops before this one began. */
static void pass_stacks(ZeroCopy *copy) {
  ZeroSite *site = copy->s;
  for (uint32_t part = 0; part < site->z->part.n; part++) {
    const PullLink *pull_link = through(copy, part);
    copy->begun[part] = NO_VALUE;
    if (!pull_link || site->pull[part].carried || pull_link == site->pull[part].link.at) continue;
    ValueId value = site->reduced[part];
    Type type = type_without(value_type(site->to, value), &copy->old.axis.dim, 1);
    copy->begun[part] = copy->new.stacked++;
    vec_push(site->z->m->arena, copy->in, value);
    fn_arg(site->z->m, copy->body.to, type);
  }
}

static void pass_operands(ZeroCopy *copy) {
  uint32_t carry = copy->old.carry, rest = carry + copy->old.invariant;
  fn_arg(copy->s->z->m, copy->body.to, type_scalar(ELEM_i32));
  copy->body.map[copy->o->callee->args.at[0]] = copy->body.to->args.at[0];
  pass_range(copy, 0, carry);
  copy->new.carry = count_plain(copy, 0, carry) + pass_sums(copy);
  pass_range(copy, carry, rest);
  copy->new.invariant = count_plain(copy, carry, rest) + pass_groups(copy, carry, rest, false);
  pass_range(copy, rest, copy->o->nin);
  copy->new.stacked =
      count_plain(copy, rest, copy->o->nin) + pass_groups(copy, rest, copy->o->nin, true);
  pass_stacks(copy);
}

/* Attribute `continues` of an old result: plain operands stay in their order. */
static int64_t old_stack(const ZeroCopy *copy, uint32_t result) {
  uint32_t on = loop_continues(copy->o, result);
  if (on == NO_VALUE) return loop_into(&copy->old, result);
  return count_plain(copy, copy->old.carry + copy->old.invariant, on);
}

static int64_t group_stack(const ZeroCopy *copy, uint32_t part) {
  if (copy->begun[part] != NO_VALUE) return copy->begun[part];
  return copy->s->pull[part].link.n > 1 ? INTO_NEW : INTO_OWN;
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
  for (uint32_t part = 0; part < zero->part.n; part++) {
    if (!through(copy, part) || copy->s->pull[part].carried != carried) continue;
    ValueId value = site_reduced(&copy->body, part);
    if (carried) value = ir_binary(zero->m, copy->body.to, OP_add, sums[part], value, (Loc){0});
    else vec_push(zero->m->arena, copy->into, group_stack(copy, part));
    fn_result(zero->m, copy->body.to, value);
  }
}

/* Copies, since a message in flight for a later round has a buffer of its own. */
static void kept_results(ZeroCopy *copy) {
  Zero *zero = copy->s->z;
  for (uint32_t g = 0; g < zero->group.n; g++) {
    if (!copy->keeps[g]) continue;
    ValueId whole = site_round(&copy->body, g);
    fn_result(zero->m, copy->body.to, ir_unary(zero->m, copy->body.to, OP_copy, whole, (Loc){0}));
    vec_push(zero->m->arena, copy->into, INTO_OWN);
  }
}

static void take_kept(ZeroCopy *copy, ValueId out) {
  for (uint32_t g = 0; g < copy->s->z->group.n; g++) {
    if (!copy->keeps[g]) continue;
    GatheredRounds rounds = {g, copy->old.first, copy->old.trip, out++};
    vec_push(copy->s->z->m->arena, copy->s->rounds, rounds);
  }
}

/* Gradients are made in the old order, whatever their groups: so fuse finds the same neighbours,
   and all stages get the same bits. */
static void make_in_order(ZeroCopy *copy) {
  const Zero *zero = copy->s->z;
  bool *wanted = ARENA_ARRAY(zero->m->arena, bool, copy->body.from->values.n + 1);
  for (uint32_t part = 0; part < zero->part.n; part++)
    for (uint32_t i = 0;
         through(copy, part) && !copy->body.pull[part].loop && i < group_of(zero, part)->member.n;
         i++)
      wanted[copy->body.pull[part].sum[i]] = true;
  for (ValueId value = 0; value < copy->body.from->values.n; value++)
    if (wanted[value]) site_value(&copy->body, value);
}

static void copy_results(ZeroCopy *copy) {
  Zero *zero = copy->s->z;
  ValueId *sums = copy->body.reduced;
  copy->body.reduced = ARENA_ARRAY(zero->m->arena, ValueId, zero->part.n + 1);
  for (uint32_t part = 0; part < zero->part.n; part++) copy->body.reduced[part] = NO_VALUE;
  for (uint32_t part = 0; part < zero->part.n; part++)
    if (through(copy, part))
      site_gradient(&copy->body, part, through(copy, part)->inner, through(copy, part)->out,
                    copy->s->pull[part].elem);
  site_gradients_leave(&copy->body);
  ValueList carried = {0}, stacked = {0};
  site_hops(&copy->body, copy->body.from->ops.n);
  make_in_order(copy);
  old_results(copy, 0, copy->old.carry, &carried);
  group_results(copy, true, sums);
  old_results(copy, copy->old.carry, copy->o->nout, &stacked);
  group_results(copy, false, sums);
  kept_results(copy);
  copy->new.into = copy->into.at, copy->new.ninto = copy->into.n;
  Op *op = rebuild_loop(zero->m, copy->s->to, copy->body.to, copy->new, copy->in.at, copy->o->loc);
  ValueId out = op->out;
  for (uint32_t i = 0; i < carried.n; i++) copy->s->map[carried.at[i]] = out++;
  for (uint32_t part = 0; part < zero->part.n; part++)
    if (through(copy, part) && copy->s->pull[part].carried) copy->s->reduced[part] = out++;
  for (uint32_t i = 0; i < stacked.n; i++) copy->s->map[stacked.at[i]] = out++;
  for (uint32_t part = 0; part < zero->part.n; part++)
    if (through(copy, part) && !copy->s->pull[part].carried) copy->s->reduced[part] = out++;
  take_kept(copy, out);
}

/* Loops that begin the stacks which this one continues come before it. */
static void copy_links_before(ZeroCopy *copy) {
  for (uint32_t part = 0; part < copy->s->z->part.n; part++) {
    const PullLink *pull_link = through(copy, part);
    if (pull_link && pull_link != copy->s->pull[part].link.at)
      site_loop(copy->s, pull_link[-1].loop);
  }
}

bool zero_holds_hops(const Op *op) {
  if (op->code != OP_loop) return op_is_p2p(op->code);
  for (OpId i = 0; i < op->callee->ops.n; i++)
    if (zero_holds_hops(&op->callee->ops.at[i])) return true;
  return false;
}

void site_loop(ZeroSite *site, const Op *op) {
  Module *module = site->z->m;
  ZeroCopy copy = {.s = site, .o = op, .old = loop_shape(op)};
  if (site->copied[op - site->from->ops.at] || site_stages(site, op)) return;
  site->copied[op - site->from->ops.at] = true;
  if (zero_holds_hops(op)) site_hops(site, (OpId)(op - site->from->ops.at));
  copy.begun = ARENA_ARRAY(module->arena, uint32_t, site->z->part.n + 1);
  copy_links_before(&copy);
  Fn *body = fn_new(module, FN_BODY, op->callee->name);
  body->loc = op->callee->loc;
  copy.new = copy.old;
  copy.body = site_begin(site->z, op->callee, body);
  copy.role = ARENA_ARRAY(module->arena, ZeroRole, op->nin + 1),
  copy.gone = ARENA_ARRAY(module->arena, bool, op->nout + 1);
  copy.keeps = ARENA_ARRAY(module->arena, bool, site->z->group.n + 1);
  mark_results(&copy);
  for (uint32_t i = 0; i < op->nin; i++) copy.role[i] = role_of(&copy, i);
  pass_operands(&copy);
  copy_results(&copy);
}

/* ---- stages ---- */

static const Op *received(const ZeroSite *site, ValueId value) {
  const Op *def = value_def(site->from, value);
  return def && def->code == OP_receive ? def : NULL;
}

/* The loop over layers between a receive and a send; NULL: another op. */
const Op *site_stages_of(const ZeroSite *site, const Op *hop) {
  const Op *made = hop->code == OP_send ? value_def(site->from, hop->in[0]) : NULL;
  if (made && made->code == OP_loop) return made;
  for (OpId i = 0; hop->code == OP_receive && i < site->from->ops.n; i++)
    for (uint32_t k = 0; k < site->from->ops.at[i].nin; k++)
      if (site->from->ops.at[i].in[k] == hop->out && site->from->ops.at[i].code == OP_loop)
        return &site->from->ops.at[i];
  return NULL;
}

/* A stage does nothing between receive, work and send: a message of all stages in between would
   wait for ranks that wait for the send. So the other operands of its layers are made before. */
bool site_stages(ZeroSite *site, const Op *loop) {
  OpId at = (OpId)(loop - site->from->ops.at), first = at;
  if (site->staged[at]) return false;
  site->staged[at] = true;
  for (uint32_t i = 0; i < loop->nin; i++) {
    const Op *from = received(site, loop->in[i]);
    if (from && from - site->from->ops.at < first) first = (OpId)(from - site->from->ops.at);
  }
  if (first == at) return false;
  for (uint32_t i = 0; i < loop->nin; i++)
    if (!received(site, loop->in[i]) && site_ref(site, loop->in[i]).group < 0)
      site_value(site, loop->in[i]);
  site_hops(site, first);
  site_loop(site, loop);
  for (OpId i = at + 1; i < site->from->ops.n; i++) {
    const Op *op = &site->from->ops.at[i];
    if (op->code == OP_send && value_def(site->from, op->in[0]) == loop) site_value(site, op->out);
  }
  return true;
}

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

bool zero_is_micro(const Zero *z, const Op *loop) {
  return loop_shape(loop).axis.dim == intern(z->m->ctx->names, "micro");
}

uint32_t zero_epochs(const Zero *z, const Fn *f, uint32_t **epoch) {
  uint32_t n = 0;
  *epoch = ARENA_ARRAY(z->m->arena, uint32_t, f->ops.n + 1);
  for (OpId i = 0; i < f->ops.n; i++) {
    (*epoch)[i] = n;
    n += f->ops.at[i].code == OP_loop && !zero_is_micro(z, &f->ops.at[i]);
  }
  return n + 1;
}

/* ---- sites ---- */

ZeroSite site_begin(Zero *z, const Fn *from, Fn *to) {
  Arena *a = z->m->arena;
  uint32_t n = z->group.n;
  ZeroSite s = {.z = z, .from = from, .to = to, .map = value_map(z->m, from)};
  s.ref = ARENA_ARRAY(a, Ref, from->values.n + 1);
  s.narrow = ARENA_ARRAY(a, bool, from->values.n + 1);
  for (uint32_t i = 0; i < from->values.n; i++) s.ref[i].group = -1;
  for (int all = 0; all < 2; all++) {
    s.kept[all] = ARENA_ARRAY(a, ValueId, n + 1), s.flat[all] = ARENA_ARRAY(a, ValueId, n + 1);
    for (uint32_t g = 0; g < n; g++) s.kept[all][g] = s.flat[all][g] = NO_VALUE;
  }
  s.pull = ARENA_ARRAY(a, Pull, n + 1);
  s.reduced = ARENA_ARRAY(a, ValueId, n + 1), s.finished = ARENA_ARRAY(a, bool, n + 1);
  s.copied = ARENA_ARRAY(a, bool, from->ops.n + 1);
  for (uint32_t g = 0; g < n; g++) s.reduced[g] = NO_VALUE;
  s.epochs = zero_epochs(z, from, &s.epoch);
  s.again = ARENA_ARRAY(a, ValueId, s.epochs * n + 1);
  s.member = ARENA_ARRAY(a, ValueId, s.epochs * from->values.n + 1);
  for (uint32_t i = 0; i < s.epochs * n; i++) s.again[i] = NO_VALUE;
  for (uint32_t i = 0; i < s.epochs * from->values.n; i++) s.member[i] = NO_VALUE;
  return s;
}

static uint32_t uses_of(const Fn *f, ValueId v) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) n += f->ops.at[i].in[k] == v;
  for (uint32_t i = 0; i < f->results.n; i++) n += f->results.at[i] == v;
  return n;
}

/* The value that round after round is added to a carried one; NO_VALUE if it is no sum from 0. */
static ValueId added(const Fn *f, const Op *loop, uint32_t result) {
  const Fn *body = loop->callee;
  const Op *o = value_def(body, body->results.at[result]), *first = value_def(f, loop->in[result]);
  ValueId sum = body->args.at[1 + result];
  if (first && first->code == OP_expand) first = value_def(f, first->in[0]);
  bool zero = first && first->code == OP_const && attr_float(&first->attrs, ATTR_value, 0) == 0;
  if (!zero || !o || o->code != OP_add || uses_of(body, sum) != 1) return NO_VALUE;
  return o->in[0] == sum ? o->in[1] : o->in[1] == sum ? o->in[0] : NO_VALUE;
}

/* The op that makes v, if v is read once. */
static const Op *only_read(const Fn *f, ValueId v) {
  return uses_of(f, v) == 1 ? value_def(f, v) : NULL;
}

/* The stacks that results `out` of the loop go on with, if they do: NULL, no loop writes them. */
static ValueId *continued(const ZeroSite *s, const ZeroGroup *g, const Op *loop, const ValueId *out,
                          bool *broken) {
  ValueId *before = ARENA_ARRAY(s->z->m->arena, ValueId, g->member.n);
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
static bool find_links(const ZeroSite *s, const ZeroGroup *g, Pull *p, const Op *loop,
                       ValueId *out) {
  bool broken = false;
  PullLink link = {loop, out, ARENA_ARRAY(s->z->m->arena, ValueId, g->member.n)};
  for (uint32_t i = 0; i < g->member.n; i++) {
    uint32_t result = out[i] - loop->out;
    link.inner[i] = p->carried ? added(s->from, loop, result) : loop->callee->results.at[result];
    if (link.inner[i] == NO_VALUE) return false;
  }
  ValueId *before = continued(s, g, loop, out, &broken);
  for (uint32_t i = 0; before && !broken && i < g->member.n; i++) {
    const Op *o = only_read(s->from, before[i]);
    broken = !o || o->code != OP_loop || o != value_def(s->from, before[0]);
  }
  if (broken) return false;
  if (before && !find_links(s, g, p, value_def(s->from, before[0]), before)) return false;
  vec_push(s->z->m->arena, p->link, link);
  return true;
}

/* Do all gradients of the group leave one loop, or a chain of them, so that the group can leave it
 * instead? */
static bool leaves_loop(const ZeroSite *s, const ZeroGroup *g, Pull *p) {
  for (uint32_t i = 0; i < g->member.n; i++) {
    const Op *o = only_read(s->from, p->sum[i]);
    bool casts = o && o->code == OP_cast;
    p->out[i] = casts ? o->in[0] : p->sum[i];
    if (casts) o = only_read(s->from, p->out[i]);
    if (!o || o->code != OP_loop || (p->loop && p->loop != o)) return false;
    LoopShape shape = loop_shape(o);
    uint32_t result = p->out[i] - o->out;
    bool carried = result < shape.carry;
    if ((p->loop && carried != p->carried) || (carried && casts)) return false;
    p->loop = o, p->carried = carried;
    if (!carried && shape.axis.dim != g->rounds.dim) return false;
  }
  return find_links(s, g, p, p->loop, p->out);
}

/* Is a gradient reduced where it comes to light, or whole until the end of the step? */
static bool reduces_at_once(const Zero *z, const ZeroGroup *g) { return g->stage >= 2 && !z->full; }

void site_gradient(ZeroSite *s, uint32_t group, const ValueId *sum, Elem elem) {
  must(!s->pull[group].wanted, "zero: the gradient of group %u is asked for twice", group);
  Arena *a = s->z->m->arena;
  const ZeroGroup *g = &s->z->group.at[group];
  Pull p = {.wanted = true, .elem = elem};
  p.out = ARENA_ARRAY(a, ValueId, g->member.n), p.sum = ARENA_ARRAY(a, ValueId, g->member.n);
  memcpy(p.sum, sum, sizeof *sum * g->member.n);
  if (g->complete || !leaves_loop(s, g, &p)) p.loop = NULL;
  if (s->from->kind == FN_ENTRY)
    s->z->group.at[group].summed_inside = p.loop && !p.carried && reduces_at_once(s->z, g);
  s->pull[group] = p;
}

/* ---- parameters ---- */

/* Kept in shards, and gathered where it is read? */
static bool is_gathered(const Zero *z, uint32_t group) {
  return z->group.at[group].stage == 3 && !z->keep_gathered;
}

/* Dropped while a stack runs, gathered again behind it? */
static bool is_gathered_anew(const Zero *z, uint32_t group) {
  return is_gathered(z, group) && !z->keep_root && !z->group.at[group].rounds.dim;
}

static ValueId site_flat(ZeroSite *s, uint32_t group, bool all, uint32_t epoch) {
  Zero *z = s->z;
  const ZeroGroup *g = &z->group.at[group];
  bool anew = is_gathered_anew(z, group);
  ValueId *memo = anew ? &s->again[epoch * z->group.n + group] : &s->flat[all][group];
  if (*memo != NO_VALUE) return *memo;
  ValueId v = s->kept[all][group];
  z->group.at[group].gathers_all |= is_gathered(z, group) && all && g->rounds.dim;
  if (is_gathered(z, group)) v = zero_join(z, s->to, g, zero_gather(z, s->to, g, v), all);
  return *memo = v;
}

/* Is the member, cast so, what is kept of it? */
static bool is_copy(const ZeroSite *s, Ref r, const Op *cast) {
  const ZeroGroup *g = &s->z->group.at[r.group];
  return g->copied && value_type(s->from, cast->out)->elem == g->narrow;
}

/* What an old value is, if it is a member of a group or a view of one. */
static Ref ref_of(ZeroSite *s, ValueId v) {
  const Op *o = value_def(s->from, v);
  bool casts = o && o->code == OP_cast;
  if (s->ref[v].group >= 0 || !o || (o->code != OP_rename && !casts)) return s->ref[v];
  Ref r = ref_of(s, o->in[0]);
  if (casts) return r.group >= 0 && is_copy(s, r, o) ? (s->ref[v] = r) : s->ref[v];
  if (r.group < 0 || r.nviews == REF_VIEWS) return s->ref[v];
  r.view[r.nviews++] = o;
  return s->ref[v] = r;
}

static ValueId take_member(ZeroSite *s, Ref r, uint32_t epoch) {
  Zero *z = s->z;
  must(epoch < s->epochs && r.member < z->group.at[r.group].member.n,
       "zero: member %u of group %d, stack %u of %u", r.member, r.group, epoch, s->epochs);
  ValueId v = zero_member(z, s->to, &z->group.at[r.group], r.member,
                          site_flat(s, (uint32_t)r.group, r.all, epoch), r.all);
  for (int i = 0; i < r.nviews; i++)
    v = ir_rename(z->m, s->to, v, r.view[i]->group[0].from[0], r.view[i]->group[0].to[0],
                  r.view[i]->loc);
  return v;
}

/* The new value that op o of the old function reads as v. */
static ValueId site_operand(ZeroSite *s, const Op *o, ValueId v) {
  Ref r = ref_of(s, v);
  if (r.group < 0 || !is_gathered_anew(s->z, (uint32_t)r.group)) return site_value(s, v);
  uint32_t epoch = s->epoch[o - s->from->ops.at];
  ValueId *memo = &s->member[epoch * s->from->values.n + v];
  if (*memo == NO_VALUE) *memo = take_member(s, r, epoch);
  return s->map[v] = *memo;
}

static bool is_narrow(ZeroSite *s, ValueId v) {
  Ref r = ref_of(s, v);
  return s->narrow[v] || (r.group >= 0 && zero_narrows(&s->z->group.at[r.group]));
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

static void mark_results(ZeroCopy *c) {
  Zero *z = c->s->z;
  for (uint32_t g = 0; g < z->group.n; g++) {
    const PullLink *l = through(c, g);
    for (uint32_t i = 0; l && i < z->group.at[g].member.n; i++)
      c->gone[l->out[i] - c->o->out] = true;
  }
}

static bool carries_on(const ZeroCopy *c, uint32_t operand) {
  for (uint32_t i = c->old.carry; i < c->o->nout; i++)
    if (c->gone[i] && loop_continues(c->o, i) == operand) return true;
  return false;
}

static ZeroRole role_of(ZeroCopy *c, uint32_t i) {
  if (i < c->old.carry) return c->gone[i] ? ROLE_DROPPED : ROLE_PLAIN;
  if (carries_on(c, i)) return ROLE_DROPPED;
  Ref r = ref_of(c->s, c->o->in[i]);
  if (r.group < 0) return ROLE_PLAIN;
  const ZeroGroup *g = &c->s->z->group.at[r.group];
  if (i < c->old.carry + c->old.invariant)
    return zero_is_micro(c->s->z, c->o) ? ROLE_MEMBER : ROLE_PLAIN;
  bool rounds = r.all && !r.nviews && g->rounds.dim == c->old.axis.dim;
  return rounds ? ROLE_MEMBER : ROLE_PLAIN;
}

static void pass_plain(ZeroCopy *c, uint32_t i) {
  ValueId arg = c->o->callee->args.at[1 + i];
  Type t = *value_type(c->o->callee, arg);
  vec_push(c->s->z->m->arena, c->in, site_operand(c->s, c->o, c->o->in[i]));
  c->body.narrow[arg] = is_narrow(c->s, c->o->in[i]);
  if (c->body.narrow[arg]) t.elem = value_type(c->s->to, c->in.at[c->in.n - 1])->elem;
  c->body.map[arg] = fn_arg(c->s->z->m, c->body.to, t);
}

static void pass_range(ZeroCopy *c, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    if (c->role[i] == ROLE_PLAIN) pass_plain(c, i);
}

/* Groups of which operands from .. to - 1 are members go in as one operand each. */
static uint32_t pass_groups(ZeroCopy *c, uint32_t from, uint32_t to, bool stacked) {
  ZeroSite *s = c->s;
  uint32_t n = 0;
  for (uint32_t g = 0; g < s->z->group.n; g++) {
    bool used = false;
    for (uint32_t i = from; i < to; i++) {
      Ref r = ref_of(s, c->o->in[i]);
      if (c->role[i] != ROLE_MEMBER || r.group != (int)g) continue;
      used = true;
      r.all = r.all && !stacked;
      c->body.ref[c->o->callee->args.at[1 + i]] = r;
    }
    if (!used) continue;
    bool all = s->z->group.at[g].rounds.dim != NULL;
    ValueId v = s->kept[all][g];
    Type t = *value_type(s->to, v);
    if (stacked) t = type_without(&t, &s->z->group.at[g].rounds.dim, 1);
    vec_push(s->z->m->arena, c->in, v);
    c->body.kept[all && !stacked][g] = fn_arg(s->z->m, c->body.to, t);
    n++;
  }
  return n;
}

static uint32_t count_role(const ZeroCopy *c, uint32_t from, uint32_t to, ZeroRole r) {
  uint32_t n = 0;
  for (uint32_t i = from; i < to; i++) n += c->role[i] == r;
  return n;
}

static uint32_t pass_sums(ZeroCopy *c) {
  ZeroSite *s = c->s;
  Zero *z = s->z;
  uint32_t n = 0;
  for (uint32_t g = 0; g < z->group.n; g++) {
    if (!through(c, g) || !s->pull[g].carried) continue;
    Elem e = s->pull[g].elem;
    const ZeroGroup *group = &z->group.at[g];
    Type t = reduces_at_once(z, group) ? zero_owned_type(z, group, e, true, false)
                                       : zero_flat_type(group, e, true);
    vec_push(z->m->arena, c->in, emit_full(z->m, s->to, t, 0, (Loc){0}));
    c->body.reduced[g] = fn_arg(z->m, c->body.to, t); /* until its sum is made */
    n++;
  }
  return n;
}

/* Group gradients that loops before this one began. */
static void pass_stacks(ZeroCopy *c) {
  ZeroSite *s = c->s;
  for (uint32_t g = 0; g < s->z->group.n; g++) {
    const PullLink *l = through(c, g);
    c->begun[g] = NO_VALUE;
    if (!l || s->pull[g].carried || l == s->pull[g].link.at) continue;
    ValueId v = s->reduced[g];
    Type t = type_without(value_type(s->to, v), &c->old.axis.dim, 1);
    c->begun[g] = c->new.stacked++;
    vec_push(s->z->m->arena, c->in, v);
    fn_arg(s->z->m, c->body.to, t);
  }
}

static void pass_operands(ZeroCopy *c) {
  uint32_t carry = c->old.carry, rest = carry + c->old.invariant;
  fn_arg(c->s->z->m, c->body.to, type_scalar(ELEM_i32));
  c->body.map[c->o->callee->args.at[0]] = c->body.to->args.at[0];
  pass_range(c, 0, carry);
  c->new.carry = count_role(c, 0, carry, ROLE_PLAIN) + pass_sums(c);
  pass_range(c, carry, rest);
  c->new.invariant = count_role(c, carry, rest, ROLE_PLAIN) + pass_groups(c, carry, rest, false);
  pass_range(c, rest, c->o->nin);
  c->new.stacked =
      count_role(c, rest, c->o->nin, ROLE_PLAIN) + pass_groups(c, rest, c->o->nin, true);
  pass_stacks(c);
}

/* Attribute `into` of an old result: plain operands stay in their order. */
static int64_t old_stack(const ZeroCopy *c, uint32_t result) {
  uint32_t on = loop_continues(c->o, result);
  if (on == NO_VALUE) return loop_into(&c->old, result);
  return count_role(c, c->old.carry + c->old.invariant, on, ROLE_PLAIN);
}

static int64_t group_stack(const ZeroCopy *c, uint32_t g) {
  if (c->begun[g] != NO_VALUE) return c->begun[g];
  return c->s->pull[g].link.n > 1 ? INTO_NEW : INTO_OWN;
}

static void old_results(ZeroCopy *c, uint32_t from, uint32_t to, ValueList *order) {
  const Fn *body = c->o->callee;
  for (uint32_t i = from; i < to; i++) {
    if (c->gone[i]) continue;
    fn_result(c->s->z->m, c->body.to, site_value(&c->body, body->results.at[i]));
    vec_push(c->s->z->m->arena, *order, c->o->out + i);
    if (i >= c->old.carry) vec_push(c->s->z->m->arena, c->into, old_stack(c, i));
  }
}

static void group_results(ZeroCopy *c, bool carried, ValueId *sums) {
  Zero *z = c->s->z;
  for (uint32_t g = 0; g < z->group.n; g++) {
    if (!through(c, g) || c->s->pull[g].carried != carried) continue;
    ValueId v = site_reduced(&c->body, g);
    if (carried) v = ir_binary(z->m, c->body.to, OP_add, sums[g], v, (Loc){0});
    else vec_push(z->m->arena, c->into, group_stack(c, g));
    fn_result(z->m, c->body.to, v);
  }
}

/* Gradients are made in the old order, whatever their groups: so fuse finds the same neighbours,
   and all stages get the same bits. */
static void make_in_order(ZeroCopy *c) {
  const Zero *z = c->s->z;
  bool *wanted = ARENA_ARRAY(z->m->arena, bool, c->body.from->values.n + 1);
  for (uint32_t g = 0; g < z->group.n; g++)
    for (uint32_t i = 0; through(c, g) && !c->body.pull[g].loop && i < z->group.at[g].member.n; i++)
      wanted[c->body.pull[g].sum[i]] = true;
  for (ValueId v = 0; v < c->body.from->values.n; v++)
    if (wanted[v]) site_value(&c->body, v);
}

static void copy_results(ZeroCopy *c) {
  Zero *z = c->s->z;
  ValueId *sums = c->body.reduced;
  c->body.reduced = ARENA_ARRAY(z->m->arena, ValueId, z->group.n + 1);
  for (uint32_t g = 0; g < z->group.n; g++) c->body.reduced[g] = NO_VALUE;
  for (uint32_t g = 0; g < z->group.n; g++)
    if (through(c, g)) site_gradient(&c->body, g, through(c, g)->inner, c->s->pull[g].elem);
  ValueList carried = {0}, stacked = {0};
  site_hops(&c->body, c->body.from->ops.n);
  make_in_order(c);
  old_results(c, 0, c->old.carry, &carried);
  group_results(c, true, sums);
  old_results(c, c->old.carry, c->o->nout, &stacked);
  group_results(c, false, sums);
  c->new.into = c->into.at, c->new.ninto = c->into.n;
  Op *o = rebuild_loop(z->m, c->s->to, c->body.to, c->new, c->in.at, c->o->loc);
  ValueId out = o->out;
  for (uint32_t i = 0; i < carried.n; i++) c->s->map[carried.at[i]] = out++;
  for (uint32_t g = 0; g < z->group.n; g++)
    if (through(c, g) && c->s->pull[g].carried) c->s->reduced[g] = out++;
  for (uint32_t i = 0; i < stacked.n; i++) c->s->map[stacked.at[i]] = out++;
  for (uint32_t g = 0; g < z->group.n; g++)
    if (through(c, g) && !c->s->pull[g].carried) c->s->reduced[g] = out++;
}

static void copy_loop(ZeroSite *s, const Op *o);

/* Loops that begin what this one goes on with stand before it. */
static void copy_links_before(ZeroCopy *c) {
  for (uint32_t g = 0; g < c->s->z->group.n; g++) {
    const PullLink *l = through(c, g);
    if (l && l != c->s->pull[g].link.at) copy_loop(c->s, l[-1].loop);
  }
}

static bool holds_hops(const Op *o) {
  if (o->code != OP_loop) return op_is_hop(o->code);
  for (OpId i = 0; i < o->callee->ops.n; i++)
    if (holds_hops(&o->callee->ops.at[i])) return true;
  return false;
}

static void copy_loop(ZeroSite *s, const Op *o) {
  Module *m = s->z->m;
  ZeroCopy c = {.s = s, .o = o, .old = loop_shape(o)};
  if (s->copied[o - s->from->ops.at]) return;
  s->copied[o - s->from->ops.at] = true;
  if (holds_hops(o)) site_hops(s, (OpId)(o - s->from->ops.at));
  c.begun = ARENA_ARRAY(m->arena, uint32_t, s->z->group.n + 1);
  copy_links_before(&c);
  Fn *body = fn_new(m, FN_BODY, o->callee->name);
  body->loc = o->callee->loc;
  c.new = c.old;
  c.body = site_begin(s->z, o->callee, body);
  c.role = ARENA_ARRAY(m->arena, ZeroRole, o->nin + 1),
  c.gone = ARENA_ARRAY(m->arena, bool, o->nout + 1);
  mark_results(&c);
  for (uint32_t i = 0; i < o->nin; i++) c.role[i] = role_of(&c, i);
  pass_operands(&c);
  copy_results(&c);
}

/* ---- values ---- */

static void copy_op(ZeroSite *s, const Op *o) {
  if (o->code == OP_loop) {
    copy_loop(s, o);
    return;
  }
  if (op_is_hop(o->code)) site_hops(s, (OpId)(o - s->from->ops.at));
  for (uint32_t i = 0; i < o->nin; i++) site_operand(s, o, o->in[i]);
  for (uint32_t i = 0; i < o->nin; i++) site_operand(s, o, o->in[i]); /* as of this op's place */
  if (o->code == OP_cast && is_narrow(s, o->in[0])) {
    s->map[o->out] = s->map[o->in[0]];
    return;
  }
  fn_clone_op(s->z->m, s->to, s->from, o, s->map);
}

ValueId site_value(ZeroSite *s, ValueId v) {
  if (s->map[v] != NO_VALUE) return s->map[v];
  Ref r = ref_of(s, v);
  if (r.group >= 0) return s->map[v] = take_member(s, r, s->epochs - 1);
  const Op *o = value_def(s->from, v);
  if (!o) bug("%%%u of %s is an argument without a value", v, s->from->name);
  copy_op(s, o);
  return s->map[v];
}

void site_hops(ZeroSite *s, OpId end) {
  while (s->hops < end) {
    const Op *o = &s->from->ops.at[s->hops++];
    if (holds_hops(o)) site_value(s, o->out);
  }
}

static ValueId reduce(ZeroSite *s, const ZeroGroup *g, ValueId flat, bool all) {
  Zero *z = s->z;
  ValueId v = zero_cut(z, s->to, g, flat, all);
  if (!g->complete) {
    v = zero_reduce(z, s->to, g, v);
    for (int i = 0; i < g->nothers && g->summed_inside && s->from->kind == FN_BODY; i++)
      v = zero_sum_gradient(z, s->to, g->others[i], v);
    return v;
  }
  return g->stage ? zero_own(z, s->to, g, v) : v;
}

static ValueId flatten_here(ZeroSite *s, uint32_t group, bool *all) {
  const ZeroGroup *g = &s->z->group.at[group];
  ValueId *v = ARENA_ARRAY(s->z->m->arena, ValueId, g->member.n);
  const Pull *p = &s->pull[group];
  for (uint32_t i = 0; i < g->member.n; i++)
    v[i] = ir_cast(s->z->m, s->to, site_value(s, p->sum[i]), p->elem, (Loc){0});
  *all = g->rounds.dim && type_find(value_type(s->to, v[0]), g->rounds.dim) >= 0;
  return zero_flatten(s->z, s->to, g, v, *all, true);
}

/* The group's gradient as it leaves this function: flat, or in an entry, or where it is reduced at
   once, the sum over the axis: this rank's shard, or without sharding all of it. */
ValueId site_reduced(ZeroSite *s, uint32_t group) {
  must(s->pull[group].wanted, "zero: nobody said which the gradient of group %u is", group);
  const Zero *z = s->z;
  const ZeroGroup *g = &z->group.at[group];
  bool all = g->rounds.dim != NULL, entry = s->from->kind == FN_ENTRY,
       at_once = reduces_at_once(z, g);
  if (s->finished[group]) return s->reduced[group];
  s->finished[group] = true;
  if (s->pull[group].loop) {
    copy_loop(s, s->pull[group].loop);
    if (!at_once && entry) s->reduced[group] = reduce(s, g, s->reduced[group], all);
    return s->reduced[group];
  }
  ValueId flat = flatten_here(s, group, &all);
  s->z->group.at[group].sums_all |= at_once && all;
  return s->reduced[group] = at_once || entry ? reduce(s, g, flat, all) : flat;
}

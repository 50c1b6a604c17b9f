/* fuse: every function of entries and bodies becomes loads, stores, loops, views and kernels.

   First, element-wise work on what loops stack goes into their rounds (fuse_rounds.c), what is too
   large is cut into blocks (fuse_blocks.c), contractions with large results sink to where they
   are used (fuse_sink.c), and what is put together is made in its place (fuse_lay.c). One walk over
   the ops in program order puts each op into a group (fuse_group.c). Contractions, attention,
   scatters and reductions open groups; element-wise ops join the group that makes their last
   operand when its family admits them after its anchor (families.def), and otherwise stay
   expressions that their users compute on the way in. Then a minimum cut per group decides which
   values are written to memory (fuse_cut.c), and the groups are written as kernel functions
   (fuse_emit.c). The pass changes no number and never orders by address. */
#include "passes/fuse.h"
#include "ir/support/num.h"

#define F(family) (1u << FAMILY_##family)
#define BUFFERS(from, to)                                                                          \
  { from, to }

static const struct {
  const char *name;
  unsigned anchors, neighbours; /* bits of op families */
  uint32_t buffers[2];
} families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what)                                  \
  [GROUP_##name] = {#name, anchors, neighbours, buffers},
#include "ir/kernel/families.def"
#undef FAMILY
    [GROUP_LOOP] = {.name = "loop"},
};
_Static_assert(COUNT_OF(families) == GROUP_LOOP + 1, "a row per GroupKind");

const char *group_name(GroupKind k) { return families[k].name; }
unsigned group_neighbours(GroupKind k) { return families[k].neighbours; }

void group_buffers(GroupKind k, uint32_t *from, uint32_t *to) {
  *from = families[k].buffers[0], *to = families[k].buffers[1];
}

GroupKind group_anchored(const Op *o) {
  GroupKind first = GROUP_LOOP;
  for (GroupKind k = GROUP_LOOP; k-- > 0;) {
    if (!(families[k].anchors >> op_family(o->code) & 1)) continue;
    if (!strcmp(families[k].name, op_name(o->code))) return k;
    first = k;
  }
  return first;
}

uint32_t *fuse_uses(Arena *a, const Fn *f) {
  uint32_t *uses = ARENA_ARRAY(a, uint32_t, f->values.n + 1);
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) uses[f->ops.at[i].in[k]]++;
  for (uint32_t i = 0; i < f->results.n; i++) uses[f->results.at[i]]++;
  return uses;
}

bool fuse_reads(const Op *o, const bool *values) {
  for (uint32_t k = 0; k < o->nin; k++)
    if (values[o->in[k]]) return true;
  return false;
}

int64_t fuse_bytes(const Fn *f, ValueId v) {
  const Type *t = value_type(f, v);
  return type_count(t) * elem_bytes(t->elem);
}

/* Types are one rank's from pass localize on. */
static bool is_local(const Placement *p) {
  for (int i = 0; i < MAX_MESH; i++)
    if (p->on[i]) return false;
  return true;
}

static Fn *fuse_function(Module *m, const Fn *given, FnVec *kernels) {
  for (ValueId v = 0; v < given->values.n; v++)
    must(is_local(&given->values.at[v].placed), "fuse: %%%u of %s is the value of several ranks", v,
         given->name);
  const Fn *f = fuse_lay(m, fuse_sink(m, given));
  Fuse u = {.m = m, .f = f, .arena = m->arena, .stamp = 1};
  u.value = ARENA_ARRAY(m->arena, FuseValue, f->values.n + 1);
  u.narrow_from = m->target.narrow_from;
  u.uses = fuse_uses(m->arena, f), u.joins = m->target.join;
  u.seen = ARENA_ARRAY(m->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++)
    u.value[f->args.at[i]] = (FuseValue){.where = INPUT, .stored = true};
  fuse_sums(&u);
  for (OpId i = 0; i < f->ops.n; i++) fuse_visit(&u, i);
  for (uint32_t i = 0; i < f->results.n; i++) fuse_store(&u, f->results.at[i]);
  fuse_cut(&u);
  return fuse_emit(&u, kernels);
}

static void cut_into_blocks(Module *m) {
  FnVec all = {0};
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *old = m->fns.at[i], *body = NULL;
    Fn *with = old->kind == FN_KERNEL ? old : fuse_blocks(m, old, &body);
    if (body) vec_push(m->arena, all, body);
    if (with != old) module_replace(m, old, with);
    vec_push(m->arena, all, with);
  }
  m->fns.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(m->arena, m->fns, all.at[i]);
}

void pass_fuse(Module *m) {
  fuse_rounds(m);
  for (uint32_t i = 0; i < m->fns.n; i++) least_bytes(m, m->fns.at[i]);
  cut_into_blocks(m);
  FnVec all = {0};
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *old = m->fns.at[i];
    if (old->kind != FN_KERNEL) {
      Fn *with = fuse_function(m, old, &all);
      module_replace(m, old, with);
    }
    vec_push(m->arena, all, m->fns.at[i]);
  }
  m->fns.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(m->arena, m->fns, all.at[i]);
}

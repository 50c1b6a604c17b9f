/* fuse: every function of entries and bodies becomes loads, stores, loops, views and kernels.

   Seven rewrites come first. Sums of squares begin where products are made (fuse_squares.c),
   element-wise work on stacked results of loops moves into their rounds (loop_sinking.c), values
   that are too large are computed in blocks (fuse_blocks.c), products that views show keep their
   type (fuse_narrow.c), rounds of a ring end early (fuse_early.c), contractions with large results
   sink to their first use (fuse_sink.c), and operands of concats are made in place
   (fuse_concat.c).

   One walk over the ops in program order puts each op into a group (fuse_group.c). Contractions,
   attention, scatters and reductions open groups. An element-wise op joins the group that makes
   its last operand if the family of that group admits it after its anchor (families.def), and
   otherwise stays an expression that its users compute while they read. Then a minimum cut per
   group decides which values are written to memory (fuse_cut.c), and the groups are written as
   kernel functions (fuse_emit.c). The pass changes no number and never orders by address. */
#include "fuse.h"
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

GroupKind group_anchored(const Op *op) {
  GroupKind first = GROUP_LOOP;
  for (GroupKind k = GROUP_LOOP; k-- > 0;) {
    if (!(families[k].anchors >> op_family(op->code) & 1)) continue;
    if (!strcmp(families[k].name, op_name(op->code))) return k;
    first = k;
  }
  return first;
}

uint32_t *fuse_uses(Arena *arena, const Fn *fn) {
  uint32_t *uses = ARENA_ARRAY(arena, uint32_t, fn->values.n + 1);
  for (OpId i = 0; i < fn->ops.n; i++)
    for (uint32_t k = 0; k < fn->ops.at[i].nin; k++) uses[fn->ops.at[i].in[k]]++;
  for (uint32_t i = 0; i < fn->results.n; i++) uses[fn->results.at[i]]++;
  return uses;
}

bool fuse_reads(const Op *op, const bool *values) {
  for (uint32_t k = 0; k < op->nin; k++)
    if (values[op->in[k]]) return true;
  return false;
}

/* Types are one rank's from pass localize on. */
static bool is_local(const Placement *placement) {
  for (int i = 0; i < MAX_MESH; i++)
    if (placement->on[i]) return false;
  return true;
}

static Fn *fuse_function(Module *module, const Fn *given, FnVec *kernels) {
  for (ValueId value = 0; value < given->values.n; value++)
    must(is_local(&given->values.at[value].placed),
         "fuse: %%%u of %s is the value of several ranks", value, given->name);
  const Fn *fn =
      fuse_lay(module, fuse_sink(module, fuse_early(module, fuse_narrow(module, given))));
  Fuse fuse = {.m = module, .f = fn, .arena = module->arena, .stamp = 1};
  fuse.value = ARENA_ARRAY(module->arena, FuseValue, fn->values.n + 1);
  fuse.narrow_from = module->target.narrow_from;
  fuse.uses = fuse_uses(module->arena, fn), fuse.joins = module->target.join;
  fuse.in_memory = fuse_in_memory(module->arena, fn);
  fuse.seen = ARENA_ARRAY(module->arena, uint32_t, fn->values.n + 1);
  for (uint32_t i = 0; i < fn->args.n; i++)
    fuse.value[fn->args.at[i]] = (FuseValue){.where = INPUT, .stored = true};
  fuse_sums(&fuse);
  for (OpId i = 0; i < fn->ops.n; i++) fuse_visit(&fuse, i);
  for (uint32_t i = 0; i < fn->results.n; i++) fuse_store(&fuse, fn->results.at[i]);
  fuse_cut(&fuse);
  return fuse_emit(&fuse, kernels);
}

static void cut_into_blocks(Module *module) {
  FnVec all = {0};
  for (uint32_t i = 0; i < module->fns.n; i++) {
    Fn *old = module->fns.at[i], *body = NULL;
    Fn *with = old->kind == FN_KERNEL ? old : fuse_blocks(module, old, &body);
    if (body) vec_push(module->arena, all, body);
    if (with != old) module_replace(module, old, with);
    vec_push(module->arena, all, with);
  }
  module->fns.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(module->arena, module->fns, all.at[i]);
}

void pass_fuse(Module *module) {
  fuse_squares(module);
  fuse_rounds(module);
  fuse_feed(module);
  for (uint32_t i = 0; i < module->fns.n && !module->unread; i++)
    least_bytes(module, module->fns.at[i]);
  cut_into_blocks(module);
  FnVec all = {0};
  for (uint32_t i = 0; i < module->fns.n; i++) {
    Fn *old = module->fns.at[i];
    if (old->kind != FN_KERNEL) {
      Fn *with = fuse_function(module, old, &all);
      module_replace(module, old, with);
    }
    vec_push(module->arena, all, module->fns.at[i]);
  }
  module->fns.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(module->arena, module->fns, all.at[i]);
}

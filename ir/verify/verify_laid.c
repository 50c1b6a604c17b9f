/* Concats outside of kernels. Such a concat runs no code, so its operands must be written into the
   bytes of its result.

   After fuse its storage says so. After order the result is dense, its operands follow each other
   in it, and each is the whole result of an op, which is not read once it is part of the concat; or
   all operands take the places of the slices of one value, which has no other reader. After memory
   they have these places. Rule place-c3 checks that nothing else writes those bytes meanwhile: they
   are one class (bytes.h), alive from the first operand's definition. Must not: trust pass
   `order`. */
#include "ir/bytes.h"
#include "verify.h"

void verify_laid(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (ValueId i = 0; i < f->values.n; i++) {
    const Op *def = value_def(f, i);
    bool laid = f->values.at[i].storage.view == VIEW_ASSEMBLED,
         concat = def && def->code == OP_concat && f->kind != FN_KERNEL;
    if (laid != concat)
      verify_report(verifier, "E1106", def ? verify_at_op(def) : verify_at_fn(verifier),
                    "[lay-c1] %s",
                    concat ? "concat outside of a kernel, and nothing is laid into it"
                           : "only into a concat outside of a kernel are values laid");
  }
}

/* ---- order ---- */

typedef struct Laid {
  Verifier *v;
  const Fn *f;
  OpId at;
  const Op *op;
  ValueId *class; /* by value: without any concat */
} Laid;

static const Value *value(const Laid *laid, ValueId v) { return &laid->f->values.at[v]; }

static ValueId root_of(const Fn *f, ValueId v) {
  while (f->values.at[v].storage.view == VIEW_OF) v = f->values.at[v].storage.base;
  return v;
}

/* The next dim of more than one element, from `from` on; the rank: none is left. */
static int next_dim(const Type *t, int from) {
  while (from < t->rank && t->axis[from].size == 1) from++;
  return from;
}

/* Are all elements of operand k contiguous in the result, and in the same order? */
static bool stands_together(const Laid *laid, uint32_t k) {
  const Value *part = value(laid, laid->op->in[k]), *all = value(laid, laid->op->out);
  const Group *group = &laid->op->group[0];
  bool fine = verify_is_dense(part), first = true;
  int i = next_dim(&part->type, 0), n = 0;
  for (; fine && n < all->type.rank; n++) {
    Axis axis = all->type.axis[n];
    bool joined = axis.dim == group->to[0];
    Str dim = joined ? group->from[k] : axis.dim;
    if (joined && !first) return false;
    first &= axis.size == 1;
    if (type_size(&part->type, dim) == 1) continue;
    fine = i < part->type.rank && part->type.axis[i].dim == dim;
    i = next_dim(&part->type, i + 1);
  }
  return fine && i == part->type.rank;
}

/* Is v all of what an op has written, or what another concat is? */
static bool is_whole(const Laid *laid, ValueId v) {
  int64_t extent = verify_extent(value(laid, v));
  for (const Storage *storage; storage = &value(laid, v)->storage, storage_has_base(storage);
       v = storage->base)
    if (storage->offset || verify_extent(value(laid, storage->base)) != extent) return false;
  const Op *def = value_def(laid->f, v);
  if (!def) return false;
  return def->code == OP_kernel || def->code == OP_loop || op_lays(laid->f, def) ||
         op_between_buffers(def->code);
}

/* Does the concat read these bytes once, and nothing else afterwards? */
static bool ends_here(const Laid *laid, ValueId class) {
  uint32_t times = 0;
  for (OpId i = laid->at; i < laid->f->ops.n; i++)
    for (uint32_t k = 0; k < laid->f->ops.at[i].nin; k++)
      times += laid->class[laid->f->ops.at[i].in[k]] == class;
  for (uint32_t i = 0; i < laid->f->results.n; i++)
    times += laid->class[laid->f->results.at[i]] == class;
  return times == 1;
}

/* For a value in place of a slice: is the concat its only reader, once? */
static bool read_once(const Laid *laid, ValueId root) {
  uint32_t times = 0;
  for (OpId i = 0; i < laid->f->ops.n; i++)
    for (uint32_t k = 0; k < laid->f->ops.at[i].nin; k++)
      times += !(op_flags(laid->f->ops.at[i].code) & VIEW) &&
               root_of(laid->f, laid->f->ops.at[i].in[k]) == root;
  for (uint32_t i = 0; i < laid->f->results.n; i++)
    times += root_of(laid->f, laid->f->results.at[i]) == root;
  return times == 1;
}

/* Operands that are written over a value take its slices: each slice is read by the kernel that
   writes its place, and the value has no other reader. */
static void check_over(const Laid *laid, ValueId over) {
  for (OpId i = 0; i < laid->f->ops.n; i++) {
    const Op *o = &laid->f->ops.at[i];
    for (uint32_t j = 0; j < o->nin && o != laid->op && !(op_flags(o->code) & VIEW); j++) {
      bool own = laid->class[o->in[j]] != laid->class[over];
      for (uint32_t k = 0; k < laid->op->nin && !own; k++) {
        ValueId v = root_of(laid->f, laid->op->in[k]);
        own = laid->f->values.at[v].storage.base == o->in[j] && laid->f->values.at[v].def == i;
      }
      if (!own)
        verify_report(laid->v, "E1107", verify_at_op(o),
                      "[lay-c6] reads a value whose slices are overwritten by others");
    }
  }
  for (uint32_t i = 0; i < laid->f->results.n; i++)
    if (laid->f->results.at[i] != laid->op->out &&
        laid->class[laid->f->results.at[i]] == laid->class[over])
      verify_report(laid->v, "E1107", verify_at_fn(laid->v),
                    "[lay-c6] returns a value whose slices are overwritten by others");
}

static void check_op(const Laid *laid) {
  ValueId over = laid_over(laid->f, laid->op);
  if (over != NO_VALUE) check_over(laid, over);
  for (uint32_t k = 0; k < laid->op->nin; k++) {
    ValueId v = laid->op->in[k];
    if (!verify_is_dense(value(laid, laid->op->out)) || !stands_together(laid, k))
      verify_report(laid->v, "E1107", verify_at_op(laid->op),
                    "[lay-c2] operand %u is not contiguous in the result", k);
    else if (over == NO_VALUE && !is_whole(laid, v))
      verify_report(laid->v, "E1107", verify_at_op(laid->op),
                    "[lay-c3] operand %u is not the whole result of an op", k);
    else if (over == NO_VALUE ? !ends_here(laid, laid->class[v])
                              : !read_once(laid, root_of(laid->f, v)))
      verify_report(laid->v, "E1107", verify_at_op(laid->op),
                    "[lay-c4] operand %u has a reader other than the concat", k);
  }
}

/* Only what is laid over a value takes pieces of it. */
static void check_pieces(const Laid *laid) {
  for (ValueId i = 0; i < laid->f->values.n; i++) {
    if (laid_for(laid->f, i) == NO_VALUE || root_of(laid->f, i) != i) continue;
    bool found = false;
    for (OpId k = 0; k < laid->f->ops.n && !found; k++) {
      const Op *o = &laid->f->ops.at[k];
      for (uint32_t j = 0; op_lays(laid->f, o) && j < o->nin && !found; j++)
        found = root_of(laid->f, o->in[j]) == i && laid_over(laid->f, o) != NO_VALUE;
    }
    if (!found)
      verify_report(laid->v, "E1107", verify_at_op(value_def(laid->f, i)),
                    "[lay-c7] takes the place of a slice of a value over which no concat is laid");
  }
}

void verify_laid_order(Verifier *verifier) {
  const Fn *f = verifier->fn;
  Laid laid = {
      .v = verifier, .f = f, .class = ARENA_ARRAY(verifier->m->arena, ValueId, f->values.n + 1)};
  for (ValueId i = 0; i < f->values.n; i++) {
    const Storage *storage = &f->values.at[i].storage;
    laid.class[i] = storage_has_base(storage) ? laid.class[storage->base] : i;
  }
  for (OpId i = 0; i < f->ops.n; i++) {
    laid.at = i, laid.op = &f->ops.at[i];
    if (op_lays(f, laid.op)) check_op(&laid);
  }
  check_pieces(&laid);
}

/* ---- memory ---- */

void verify_laid_places(Verifier *verifier) {
  const Fn *f = verifier->fn;
  EACH_OP (f, op) {
    for (uint32_t k = 0; op_lays(f, op) && k < op->nin; k++) {
      const Storage *storage = &f->values.at[op->in[k]].storage,
                    *all = &f->values.at[op->out].storage;
      if (storage->place != all->place || storage->slot != all->slot ||
          storage->at - all->at != laid_at(f, op, k))
        verify_report(verifier, "E1108", verify_at_op(op),
                      "[lay-c5] operand %u is not at its place in the result", k);
    }
  }
}

/* Checks what the late passes promise: after fuse only kernels compute; after order every value's
   strides are known and agree across calls; after memory every value has its bytes and no two live
   values share any.

   Values that are views of one another, computed in place of one another, or aliased into a concat
   share bytes on purpose and form a class (bytes.h). A class lives from its first definition to its
   last use. Two classes conflict if they are alive at the same op and have a common byte in the
   same space (the frame, a global). A loaded global is alive from the start of the entry, a stored
   one to its end. */
#include "ir/codes.h"
#include "ir/made.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/schedule/flight.h"
#include "ir/kernel/inplace.h"
#include "ir/schedule/message.h"
#include "ir/shape/view.h"
#include "verify.h"
#include "ir/plan/module_settings.h"
#include <string.h>

void verify_fused(Verifier *verifier) {
  verify_laid(verifier);
  if (verifier->fn->kind == FN_KERNEL) {
    verify_shared_rows(verifier);
    return;
  }
  EACH_OP (verifier->fn, op) {
    OpFamily family = op_family(op->code);
    bool fine = family == FAMILY_GLOBAL || op_between_buffers(op->code) || op->code == OP_loop ||
                op->code == OP_kernel || op->code == OP_concat; /* lay-c1 */
    if (!fine && !(op_flags(op->code) & VIEW))
      verify_report(verifier, "E1106", verify_at_op(op), "[fuse-c1] %s outside of a kernel",
                    op_name(op->code));
  }
}

/* ---- order ---- */

/* Elements must not overlap: by growing stride, each axis steps over the span of all smaller
 * ones. */
int64_t verify_extent(const Value *v) {
  bool used[MAX_RANK] = {false};
  int64_t extent = 1;
  for (int n = 0; n < v->type.rank; n++) {
    int least = -1;
    for (int i = 0; i < v->type.rank; i++)
      if (!used[i] && (least < 0 || v->storage.stride[i] < v->storage.stride[least])) least = i;
    used[least] = true;
    int64_t size = v->type.axis[least].size, stride = v->storage.stride[least], step;
    if (size == 1) continue;
    if (stride < extent || __builtin_mul_overflow(stride, size - 1, &step) ||
        __builtin_add_overflow(extent, step, &extent) || extent > INT64_MAX / 16)
      return -1;
  }
  return extent;
}

static void check_strides(Verifier *verifier, ValueId id) {
  const Value *value = &verifier->fn->values.at[id];
  if (!value->storage.ordered)
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c1] a value has no strides");
  else if (verify_extent(value) < 0)
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c2] by these strides elements overlap");
}

/* Does v show elements of base? All loads of a global show that global's. */
static bool shows(const Fn *f, ValueId v, ValueId base) {
  ValueId root = verify_base(f, v);
  const Op *a = value_def(f, root), *b = value_def(f, base);
  bool loads = a && b && a->code == OP_load && b->code == OP_load && a->global == b->global;
  return v == base || root == base || loads;
}

/* Is base used after op `id`, by itself or by what shows it, or by that op once more? */
static bool used_after(const Fn *f, ValueId base, OpId id) {
  for (OpId i = id; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if ((i > id || f->ops.at[i].in[k] != base) && shows(f, f->ops.at[i].in[k], base)) return true;
  for (uint32_t k = 0; k < f->results.n; k++)
    if (shows(f, f->results.at[k], base)) return true;
  return false;
}

/* Every element at the same offset, when dim `skip` of a is left out. */
static bool same_storage(const Value *a, const Value *b, Str skip) {
  for (int i = 0; i < a->type.rank; i++) {
    int j = type_find(&b->type, a->type.axis[i].dim);
    if (a->type.axis[i].dim == skip || a->type.axis[i].size == 1) continue;
    if (j < 0 || a->storage.stride[i] != b->storage.stride[j]) return false;
  }
  return true;
}

/* A kernel that writes into the buffer of an operand reads each element of it first. */
static void check_callee_inplace(Verifier *verifier, ValueId id, const Value *value,
                                 const Value *base) {
  const Op *op = &verifier->fn->ops.at[value->def];
  if (!op->callee) return;
  bool fine = value->type.elem == base->type.elem && type_same_dims(&value->type, &base->type) &&
              same_storage(value, base, NULL);
  for (uint32_t i = 0; i < op->nin && fine; i++)
    if (op->in[i] == value->storage.base)
      fine = op->code == OP_loop
                 ? loop_in_place(op, i, value->result)
                 : kernel_in_place(verifier->m->arena, op->callee, i, value->result);
  if (!fine)
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c11] @%s cannot write into the buffer of that operand", op->callee->name);
}

static void check_inplace(Verifier *verifier, ValueId id, const Value *value, const Value *base) {
  const Fn *f = verifier->fn;
  VerifyPlace at = verify_at_value(verifier, id);
  if (value->def == NO_OP || !op_reads(&f->ops.at[value->def], value->storage.base))
    verify_report(verifier, "E1107", at, "[order-c4] in place of a value that is no operand");
  else if (used_after(f, value->storage.base, value->def))
    verify_report(verifier, "E1107", at, "[order-c5] in place of a value that is used later");
  else if (op_between_buffers(f->ops.at[value->def].code) &&
           f->ops.at[value->def].code != OP_all_reduce)
    verify_report(verifier, "E1107", at,
                  "[order-c16] only an all_reduce sends what it receives into");
  else if (elem_bytes(base->type.elem) * verify_extent(base) <
           elem_bytes(value->type.elem) * verify_extent(value))
    verify_report(verifier, "E1107", at, "[order-c6] in place of a smaller value");
  else check_callee_inplace(verifier, id, value, base);
}

/* A view shows its op's operand, itself or where that one is a view of. */
static bool of_operand(const Fn *f, const Value *value) {
  const Op *op = value->def == NO_OP ? NULL : &f->ops.at[value->def];
  for (uint32_t i = 0; op && i < op->nin; i++)
    if (verify_base(f, op->in[i]) == verify_base(f, value->storage.base)) return true;
  return false;
}

/* Only an op that writes nothing itself may leave its operand's bytes to its result: for any other
 * op a view would claim that its result had been computed already. */
static bool may_view(const Fn *f, const Value *value) {
  return op_flags(f->ops.at[value->def].code) & VIEW;
}

static int64_t offset_in_root(const Fn *f, const Storage *storage) {
  int64_t offset = 0;
  for (; storage->view == VIEW_OF; storage = &f->values.at[storage->base].storage)
    offset += storage->offset;
  return offset;
}

/* A view op computes nothing: which elements its result is, the strides alone say. */
static bool shows_elements(const Fn *f, const Value *value) {
  const Op *op = &f->ops.at[value->def];
  Storage want;
  if (!view_layout(f, op, value->result, &value->type, &want)) return false;
  for (int i = 0; i < value->type.rank; i++)
    if (value->type.axis[i].size > 1 && value->storage.stride[i] != want.stride[i]) return false;
  return offset_in_root(f, &value->storage) == offset_in_root(f, &want);
}

static void check_view(Verifier *verifier, ValueId id) {
  const Value *value = &verifier->fn->values.at[id];
  const Storage *storage = &value->storage;
  if (!storage_has_base(storage)) {
    if (value->def != NO_OP && may_view(verifier->fn, value))
      verify_report(verifier, "E1107", verify_at_value(verifier, id),
                    "[order-c13] nobody writes the result of %s",
                    op_name(verifier->fn->ops.at[value->def].code));
    return;
  }
  if (storage->base >= id) {
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c3] a view of a value that is not defined above");
    return;
  }
  const Value *base = &verifier->fn->values.at[storage->base];
  if (storage->view == VIEW_INPLACE) {
    check_inplace(verifier, id, value, base);
  } else if (storage->offset < 0 || storage->offset > verify_extent(base) - verify_extent(value) ||
             value->type.elem != base->type.elem) {
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c7] a view reaches outside of its base");
  } else if (!of_operand(verifier->fn, value)) {
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c10] a view of what is no operand");
  } else if (!may_view(verifier->fn, value)) {
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c12] %s does not make views",
                  op_name(verifier->fn->ops.at[value->def].code));
  } else if (!shows_elements(verifier->fn, value)) {
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c18] a view of other elements than %s takes",
                  op_name(verifier->fn->ops.at[value->def].code));
  }
}

static void differs(Verifier *verifier, const Op *op, const char *what, uint32_t i) {
  verify_report(verifier, "E1107", verify_at_op(op),
                "[order-c8] %s %u of %s @%s is stored in another order in the function", what, i,
                op_name(op->code), op->callee->name);
}

/* A round that writes its slice of a result into an argument's slice does so in the operand. */
static void check_taken(Verifier *verifier, const Op *op) {
  if (op->code != OP_loop) return;
  for (uint32_t j = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0); j < op->nout; j++) {
    const Value *result = &verifier->fn->values.at[op->out + j];
    uint32_t arg = body_stands_in(op->callee, j);
    bool there = arg && arg <= op->nin && result->storage.view == VIEW_INPLACE &&
                 result->storage.base == op->in[arg - 1];
    if (arg && loop_in_place(op, arg - 1, j) && !there)
      verify_report(verifier, "E1107", verify_at_value(verifier, op->out + j),
                    "[order-c14] @%s writes this into operand %u, whose bytes it does not use",
                    op->callee->name, arg - 1);
  }
}

static void check_boundary(Verifier *verifier, const Op *op) {
  const Fn *c = op->callee;
  if (!c) return;
  bool loop = op->code == OP_loop;
  uint32_t whole = loop ? (uint32_t)(attr_int(&op->attrs, ATTR_carry, 0) +
                                     attr_int(&op->attrs, ATTR_invariant, 0))
                        : op->nin;
  uint32_t carry = loop ? (uint32_t)attr_int(&op->attrs, ATTR_carry, 0) : op->nout;
  Str dim = loop ? op->group[0].from[0] : NULL;
  for (uint32_t i = 0; i < op->nin; i++)
    if (!same_storage(&verifier->fn->values.at[op->in[i]], &c->values.at[c->args.at[i + loop]],
                      i < whole ? NULL : dim))
      differs(verifier, op, "operand", i);
  for (uint32_t i = 0; i < op->nout; i++)
    if (!same_storage(&verifier->fn->values.at[op->out + i], &c->values.at[c->results.at[i]],
                      i < carry ? NULL : dim))
      differs(verifier, op, "result", i);
  check_taken(verifier, op);
  for (uint32_t i = carry; loop && i < op->nout; i++) {
    uint32_t on = loop_continues(op, i);
    if (on != NO_VALUE && !same_storage(&verifier->fn->values.at[op->in[on]],
                                        &verifier->fn->values.at[op->out + i], NULL))
      verify_report(verifier, "E1107", verify_at_op(op),
                    "[order-c17] result %u is stored in another order than operand %u, with which "
                    "it goes on",
                    i, on);
  }
}

/* In the order of its type; an axis of one element steps nowhere. */
/* The runtime takes its two buffers as blocks of rows, in the order of their types (message.h). */
static void check_message(Verifier *verifier, const Op *op) {
  if (!op_between_buffers(op->code)) return;
  const Value *out = &verifier->fn->values.at[op->out],
              *in = op->nin ? &verifier->fn->values.at[op->in[0]] : out;
  bool fine = verify_is_dense(in) && verify_is_dense(out) && in->type.rank == out->type.rank;
  for (int i = 0; fine && i < in->type.rank; i++)
    fine = in->type.axis[i].dim == out->type.axis[i].dim;
  if (!fine)
    verify_report(verifier, "E1107", verify_at_op(op),
                  "[order-c15] %s between buffers that are not dense in one order",
                  op_name(op->code));
}

/* Values of a kernel function are elements in registers: only callers know what shares bytes. */
static void check_inside(Verifier *verifier, ValueId id) {
  const Storage *storage = &verifier->fn->values.at[id].storage;
  if (storage->view != VIEW_NONE || storage->place != PLACE_NONE)
    verify_report(verifier, "E1107", verify_at_value(verifier, id),
                  "[order-c9] a place or view inside of a kernel");
}

void verify_ordered(Verifier *verifier) {
  const Fn *f = verifier->fn;
  if (f->kind == FN_KERNEL) {
    for (ValueId i = 0; i < f->values.n; i++) check_inside(verifier, i);
    for (uint32_t i = 0; i < f->args.n; i++) check_strides(verifier, f->args.at[i]);
    for (uint32_t i = 0; i < f->results.n; i++) check_strides(verifier, f->results.at[i]);
    return;
  }
  for (ValueId i = 0; i < f->values.n; i++) check_strides(verifier, i);
  for (ValueId i = 0; i < f->values.n && !verifier->failed; i++) check_view(verifier, i);
  for (OpId i = 0; i < f->ops.n && !verifier->failed; i++) {
    check_boundary(verifier, &f->ops.at[i]);
    check_message(verifier, &f->ops.at[i]);
    verify_declared_order(verifier, i);
  }
  if (!verifier->failed) verify_laid_order(verifier);
  if (!verifier->failed) verify_rooms(verifier);
}

/* ---- memory ---- */

typedef struct Tenancy { /* bytes and time that something takes */
  PlaceKind space;       /* FRAME or GLOBAL */
  uint32_t slot;         /* of a global; of a frame, its tier */
  int64_t from, to;      /* bytes, to is outside */
  int64_t born, dies;    /* op indexes, both inclusive */
  ValueId class;         /* first value of the class, NO_VALUE: workspace and the like */
  const Op *op;          /* for the report */
} Tenancy;

static int64_t taken_by(const Fn *f, ValueId v) {
  Codes codes;
  if (value_codes(f, v, &codes)) return codes_bytes(&codes);
  const Value *value = &f->values.at[v];
  return verify_extent(value) * elem_bytes(value->type.elem);
}

typedef struct Places {
  Verifier *v;
  VEC(Tenancy) spans;
  ValueId *class;
  int64_t *born, *dies; /* by class */
} Places;

static void touch(Places *places, ValueId id, int64_t when) {
  ValueId c = places->class[id];
  if (when > places->dies[c]) places->dies[c] = when;
}

static void find_lives(Places *places) {
  const Fn *f = places->v->fn;
  int64_t end = f->ops.n;
  places->class = shared_bytes(places->v->m->arena, f).of;
  for (ValueId i = 0; i < f->values.n; i++) places->born[i] = end, places->dies[i] = -1;
  for (ValueId i = 0; i < f->values.n; i++) {
    const Value *value = &f->values.at[i];
    bool early = value->def == NO_OP || f->ops.at[value->def].code == OP_load;
    int64_t born = early ? -1 : (int64_t)op_begins(f, value->def),
            *first = &places->born[places->class[i]];
    if (born < *first) *first = born;
    touch(places, i, value->def == NO_OP ? -1 : (int64_t)op_ends(f, value->def));
  }
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      touch(places, f->ops.at[i].in[k], op_ends(f, i));
  for (uint32_t i = 0; i < f->results.n; i++) touch(places, f->results.at[i], end);
  EACH_OP (f, op) {
    if (op->code != OP_store) continue;
    const Storage *storage = &f->values.at[op->in[0]].storage;
    if (storage->place == PLACE_GLOBAL && places->v->m->globals.at[storage->slot] == op->global)
      touch(places, op->in[0], end);
  }
}

static void add_span(Places *places, Tenancy tenancy) {
  vec_push(places->v->m->arena, places->spans, tenancy);
}

static void add_value(Places *places, ValueId id) {
  const Value *value = &places->v->fn->values.at[id];
  const Storage *storage = &value->storage;
  ValueId c = places->class[id];
  if (storage->place != PLACE_FRAME && storage->place != PLACE_GLOBAL) return;
  add_span(places, (Tenancy){storage->place,
                             storage->place == PLACE_GLOBAL ? storage->slot : value->type.tier,
                             storage->at, storage->at + taken_by(places->v->fn, id),
                             places->born[c], places->dies[c], c, value_def(places->v->fn, id)});
}

static void add_work(Places *places, OpId id) {
  const Op *op = &places->v->fn->ops.at[id];
  bool sends = op_family(op->code) == FAMILY_COLLECTIVE;
  if (!op->callee && !sends) return;
  OpId born = op_begins(places->v->fn, id), ends = op_ends(places->v->fn, id);
  OpId dies = ends == id ? flight_end(places->v->fn, id) : ends;
  for (Tier t = 0; t < TIERS; t++) {
    int64_t bytes = op_work(op, t), at = attr_int(&op->attrs, tier_work(t), 0);
    if (bytes > 0)
      add_span(places, (Tenancy){PLACE_FRAME, t, at, at + bytes, born, dies, NO_VALUE, op});
  }
  const Attr *slots = attr_get(&op->attrs, ATTR_slots);
  for (int64_t i = 0; slots && i < slots->i && i < op->nout; i++)
    if (slots->list[i] >= 0)
      add_span(places,
               (Tenancy){PLACE_FRAME, value_type(places->v->fn, op->out + i)->tier, slots->list[i],
                         slots->list[i] + taken_by(places->v->fn, op->out + i), born, dies,
                         NO_VALUE, op});
}

/* Alive from before the first round until after the last. */
static void add_rings(Places *places, OpId id) {
  const Op *op = &places->v->fn->ops.at[id];
  const Attr *rings = attr_get(&op->attrs, ATTR_ring);
  for (uint32_t i = 0; rings && 3 * (int64_t)i + 2 < rings->i; i++) {
    Ring ring = loop_ring(op, i);
    add_span(places,
             (Tenancy){PLACE_FRAME, 0, ring.at, ring.at + ring.bytes * ring.buffers,
                       op_begins(places->v->fn, id), op_ends(places->v->fn, id), NO_VALUE, op});
  }
}

/* A store copies unless its value is in the global already. */
static void add_store(Places *places, OpId id) {
  const Op *op = &places->v->fn->ops.at[id];
  if (op->code != OP_store) return;
  const Value *value = &places->v->fn->values.at[op->in[0]];
  uint32_t slot = 0;
  while (places->v->m->globals.at[slot] != op->global) slot++;
  if (value->storage.place == PLACE_GLOBAL && value->storage.slot == slot) return;
  int64_t bytes = type_dense_bytes(&op->global->type);
  add_span(places, (Tenancy){PLACE_GLOBAL, slot, 0, bytes, id, places->v->fn->ops.n, NO_VALUE, op});
}

static bool conflict(const Tenancy *a, const Tenancy *b) {
  if (a->class == b->class && a->class != NO_VALUE) return false;
  if (a->space != b->space || a->slot != b->slot) return false;
  if (a->space == PLACE_GLOBAL && a->born < 0 && b->born < 0) return false; /* two loads */
  return a->from < b->to && b->from < a->to && a->born <= b->dies && b->born <= a->dies;
}

static void check_conflicts(Places *places) {
  for (uint32_t i = 0; i < places->spans.n; i++)
    for (uint32_t j = 0; j < i; j++) {
      const Tenancy *a = &places->spans.at[i], *b = &places->spans.at[j];
      if (conflict(a, b))
        verify_report(places->v, "E1108", a->op ? verify_at_op(a->op) : verify_at_fn(places->v),
                      "[place-c3] bytes %lld .. %lld and %lld .. %lld are in use at the same time",
                      (long long)a->from, (long long)a->to, (long long)b->from, (long long)b->to);
    }
}

static void check_place(Verifier *verifier, ValueId id) {
  const Value *value = &verifier->fn->values.at[id];
  const Storage *storage = &value->storage;
  VerifyPlace at = verify_at_value(verifier, id);
  if (storage->place == PLACE_NONE)
    verify_report(verifier, "E1108", at, "[place-c1] a value has no bytes");
  if (storage->at < 0 || storage->at % elem_bytes(value->type.elem))
    verify_report(verifier, "E1108", at, "[place-c2] offset %lld", (long long)storage->at);
  int64_t room = verify_room(verifier, value), bytes = taken_by(verifier->fn, id);
  if (room < 0)
    verify_report(verifier, "E1108", at, "[place-c4] there is no place number %u", storage->slot);
  else if (storage->place != PLACE_NONE && !verify_fits(storage->at, bytes, room))
    verify_report(verifier, "E1108", at,
                  "[place-c5] %lld bytes at offset %lld do not fit into %lld", (long long)bytes,
                  (long long)storage->at, (long long)room);
}

/* A value in an argument's bytes is that argument, a view of it, or computed in place of it. */
static bool of_argument(const Fn *f, const ValueId *class, ValueId v, uint32_t arg) {
  for (uint32_t i = 0; i < f->args.n; i++)
    if (f->values.at[f->args.at[i]].result == arg && class[f->args.at[i]] == class[v]) return true;
  return false;
}

static void check_shared(Verifier *verifier, const ValueId *class, ValueId id) {
  const Storage *storage = &verifier->fn->values.at[id].storage;
  if (storage->place == PLACE_ARG && !of_argument(verifier->fn, class, id, storage->slot))
    verify_report(verifier, "E1108", verify_at_value(verifier, id),
                  "[place-c7] in the bytes of argument %u", storage->slot);
  if (!storage_has_base(storage)) return;
  const Value *base = &verifier->fn->values.at[storage->base];
  int64_t offset = storage->view == VIEW_OF ? storage->offset * elem_bytes(base->type.elem) : 0;
  if (storage->place != base->storage.place || storage->slot != base->storage.slot ||
      storage->at != base->storage.at + offset)
    verify_report(verifier, "E1108", verify_at_value(verifier, id),
                  "[place-c6] a view is not placed in its base");
}

/* ---- messages ---- */

static bool is_shard(const Type *t) { /* of a flat group of parameters (pass zero) */
  return t->rank && made_rest(t->axis[t->rank - 1].dim, MADE_PIECE);
}

/* Is what goes at a time put somewhere else, whatever it is? */
static bool needs_room(const Verifier *verifier, const Op *op) {
  return message_by_host(verifier->m) ||
         (op->code == OP_all_to_all && message_needs_line(verifier->m) &&
          message_workspace(verifier->fn, op));
}

static void check_messages(Verifier *verifier, const Op *op) {
  int64_t times = attr_int(&op->attrs, ATTR_messages, 1), bucket = plan_zero_bucket(verifier->m);
  Message message = times < 1 ? (Message){0} : message_of(verifier->fn, op);
  if (times < 1 || message.rows % times)
    verify_report(verifier, "E1110", verify_at_op(op),
                  "[message-c1] %lld messages of blocks of %lld rows", (long long)times,
                  (long long)message.rows);
  else if (bucket > 0 && !op_is_p2p(op->code) && is_shard(value_type(verifier->fn, op->in[0])) &&
           message.bytes > bucket)
    verify_report(verifier, "E1110", verify_at_op(op),
                  "[message-c2] a message of %lld bytes, and buckets of %lld",
                  (long long)message.bytes, (long long)bucket);
  else if (message.piece < 1 || message.piece > message.count)
    verify_report(verifier, "E1110", verify_at_op(op),
                  "[message-c4] pieces of %lld elements of %lld", (long long)message.piece,
                  (long long)message.count);
  else if (bucket > 0 && needs_room(verifier, op) && message.bytes > bucket && message.piece > 1)
    verify_report(verifier, "E1110", verify_at_op(op),
                  "[message-c4] pieces of %lld bytes, buckets of %lld", (long long)message.bytes,
                  (long long)bucket);
  else if (message_needs_line(verifier->m) &&
           attr_int(&op->attrs, ATTR_workspace, 0) != message_workspace(verifier->fn, op))
    verify_report(verifier, "E1110", verify_at_op(op),
                  "[message-c3] workspace of %lld bytes, not %lld",
                  (long long)attr_int(&op->attrs, ATTR_workspace, 0),
                  (long long)message_workspace(verifier->fn, op));
}

void verify_messages(Verifier *verifier) {
  if (verifier->fn->kind == FN_KERNEL) return;
  for (OpId i = 0; i < verifier->fn->ops.n && !verifier->failed; i++)
    if (op_family(verifier->fn->ops.at[i].code) == FAMILY_COLLECTIVE)
      check_messages(verifier, &verifier->fn->ops.at[i]);
}

void verify_placed(Verifier *verifier) {
  const Fn *f = verifier->fn;
  if (f->kind == FN_KERNEL) return;
  const ValueId *class = shared_bytes(verifier->m->arena, f).of;
  for (ValueId i = 0; i < f->values.n; i++)
    check_place(verifier, i), check_shared(verifier, class, i);
  if (!verifier->failed) verify_laid_places(verifier);
  if (!verifier->failed) verify_bytes(verifier);
  if (!verifier->failed) verify_rings(verifier);
  if (verifier->failed) return;
  Arena *arena = verifier->m->arena;
  uint32_t n = f->values.n + 1;
  Places places = {
      verifier, {0}, NULL, ARENA_ARRAY(arena, int64_t, n), ARENA_ARRAY(arena, int64_t, n)};
  find_lives(&places);
  for (ValueId i = 0; i < f->values.n; i++) add_value(&places, i);
  for (OpId i = 0; i < f->ops.n; i++)
    add_work(&places, i), add_rings(&places, i), add_store(&places, i);
  check_conflicts(&places);
}

/* What the late passes promise, checked: after fuse only kernels compute; after order every value's
   strides are known and agree across calls; after memory every value has its bytes and no two
   living ones share any.

   Values that are views of, stand in place of, or are laid into one another share bytes on purpose
   and form a class (bytes.h). A class lives from its first definition to its last use. Two
   classes conflict if they live at the same op and touch a common byte of the same space (the
   frame, a global). A loaded global lives from the start of the entry, a stored one to its end. */
#include "ir/turns.h"
#include "ir/flight.h"
#include "ir/kernel/inplace.h"
#include "ir/message.h"
#include "ir/view.h"
#include "verify.h"
#include "ir/module_settings.h"
#include <string.h>

void verify_fused(Verifier *v) {
  verify_laid(v);
  if (v->fn->kind == FN_KERNEL) {
    verify_shared_rows(v);
    return;
  }
  for (OpId i = 0; i < v->fn->ops.n; i++) {
    const Op *op = &v->fn->ops.at[i];
    OpFamily family = op_family(op->code);
    bool fine = family == FAMILY_GLOBAL || op_between_buffers(op->code) || op->code == OP_loop ||
                op->code == OP_kernel || op->code == OP_concat; /* lay-c1 */
    if (!fine && !(op_flags(op->code) & VIEW))
      verify_report(v, "E1106", verify_at_op(op), "[fuse-c1] %s outside of a kernel",
                    op_name(op->code));
  }
}

/* ---- order ---- */

static VerifyPlace value_at(Verifier *v, ValueId id) {
  const Op *def = value_def(v->fn, id);
  return def ? verify_at_op(def) : verify_at_fn(v);
}

/* Elements must not lie on each other: by growing stride, each axis steps over all that the smaller
 * ones span. */
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

static void check_strides(Verifier *v, ValueId id) {
  const Value *value = &v->fn->values.at[id];
  if (!value->storage.ordered)
    verify_report(v, "E1107", value_at(v, id), "[order-c1] a value has no strides");
  else if (verify_extent(value) < 0)
    verify_report(v, "E1107", value_at(v, id), "[order-c2] strides let elements lie on each other");
}

static ValueId root_of(const Fn *f, ValueId v) {
  while (f->values.at[v].storage.view == VIEW_OF) v = f->values.at[v].storage.base;
  return v;
}

/* Does v show elements of base? All loads of a global show that global's. */
static bool shows(const Fn *f, ValueId v, ValueId base) {
  ValueId root = root_of(f, v);
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

static bool is_operand(const Op *op, ValueId id) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (op->in[i] == id) return true;
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

/* A kernel that writes into the buffer of an operand reads each element there first. */
static void check_callee_inplace(Verifier *v, ValueId id, const Value *value, const Value *base) {
  const Op *op = &v->fn->ops.at[value->def];
  if (!op->callee) return;
  bool fine = value->type.elem == base->type.elem && type_same_dims(&value->type, &base->type) &&
              same_storage(value, base, NULL);
  for (uint32_t i = 0; i < op->nin && fine; i++)
    if (op->in[i] == value->storage.base)
      fine = op->code == OP_loop ? loop_in_place(op, i, value->result)
                                 : kernel_in_place(v->m->arena, op->callee, i, value->result);
  if (!fine)
    verify_report(v, "E1107", value_at(v, id),
                  "[order-c11] @%s cannot write into the buffer of that operand", op->callee->name);
}

static void check_inplace(Verifier *v, ValueId id, const Value *value, const Value *base) {
  const Fn *f = v->fn;
  VerifyPlace at = value_at(v, id);
  if (value->def == NO_OP || !is_operand(&f->ops.at[value->def], value->storage.base))
    verify_report(v, "E1107", at, "[order-c4] in place of a value that is no operand");
  else if (used_after(f, value->storage.base, value->def))
    verify_report(v, "E1107", at, "[order-c5] in place of a value that is used later");
  else if (op_between_buffers(f->ops.at[value->def].code) &&
           f->ops.at[value->def].code != OP_all_reduce)
    verify_report(v, "E1107", at, "[order-c16] only an all_reduce sends what it receives into");
  else if (elem_bytes(base->type.elem) * verify_extent(base) <
           elem_bytes(value->type.elem) * verify_extent(value))
    verify_report(v, "E1107", at, "[order-c6] in place of a smaller value");
  else check_callee_inplace(v, id, value, base);
}

/* A view shows its op's operand, itself or where that one is a view of. */
static bool of_operand(const Fn *f, const Value *value) {
  const Op *op = value->def == NO_OP ? NULL : &f->ops.at[value->def];
  for (uint32_t i = 0; op && i < op->nin; i++)
    if (root_of(f, op->in[i]) == root_of(f, value->storage.base)) return true;
  return false;
}

/* Only an op that writes nothing itself may leave its operand's bytes to its result: of any other
 * one a view would say that what it computes is there already. */
static bool may_view(const Fn *f, const Value *value) {
  return op_flags(f->ops.at[value->def].code) & VIEW;
}

static int64_t offset_in_root(const Fn *f, const Storage *s) {
  int64_t offset = 0;
  for (; s->view == VIEW_OF; s = &f->values.at[s->base].storage) offset += s->offset;
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

static void check_view(Verifier *v, ValueId id) {
  const Value *value = &v->fn->values.at[id];
  const Storage *s = &value->storage;
  if (!storage_has_base(s)) {
    if (value->def != NO_OP && may_view(v->fn, value))
      verify_report(v, "E1107", value_at(v, id), "[order-c13] nobody writes the result of %s",
                    op_name(v->fn->ops.at[value->def].code));
    return;
  }
  if (s->base >= id) {
    verify_report(v, "E1107", value_at(v, id),
                  "[order-c3] a view of a value that is not defined above");
    return;
  }
  const Value *base = &v->fn->values.at[s->base];
  if (s->view == VIEW_INPLACE) {
    check_inplace(v, id, value, base);
  } else if (s->offset < 0 || s->offset > verify_extent(base) - verify_extent(value) ||
             value->type.elem != base->type.elem) {
    verify_report(v, "E1107", value_at(v, id), "[order-c7] a view reaches outside of its base");
  } else if (!of_operand(v->fn, value)) {
    verify_report(v, "E1107", value_at(v, id), "[order-c10] a view of what is no operand");
  } else if (!may_view(v->fn, value)) {
    verify_report(v, "E1107", value_at(v, id), "[order-c12] %s does not make views",
                  op_name(v->fn->ops.at[value->def].code));
  } else if (!shows_elements(v->fn, value)) {
    verify_report(v, "E1107", value_at(v, id), "[order-c18] a view of other elements than %s takes",
                  op_name(v->fn->ops.at[value->def].code));
  }
}

static void differs(Verifier *v, const Op *op, const char *what, uint32_t i) {
  verify_report(v, "E1107", verify_at_op(op),
                "[order-c8] %s %u of %s @%s is stored in another order there", what, i,
                op_name(op->code), op->callee->name);
}

/* A round that writes its slice of a result into an argument's slice does so in the operand. */
static void check_taken(Verifier *v, const Op *op) {
  if (op->code != OP_loop) return;
  for (uint32_t j = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0); j < op->nout; j++) {
    const Value *result = &v->fn->values.at[op->out + j];
    uint32_t arg = body_stands_in(op->callee, j);
    bool there = arg && arg <= op->nin && result->storage.view == VIEW_INPLACE &&
                 result->storage.base == op->in[arg - 1];
    if (arg && loop_in_place(op, arg - 1, j) && !there)
      verify_report(v, "E1107", value_at(v, op->out + j),
                    "[order-c14] @%s writes this into operand %u, where it does not stand",
                    op->callee->name, arg - 1);
  }
}

static void check_boundary(Verifier *v, const Op *op) {
  const Fn *c = op->callee;
  if (!c) return;
  bool loop = op->code == OP_loop;
  uint32_t whole = loop ? (uint32_t)(attr_int(&op->attrs, ATTR_carry, 0) +
                                     attr_int(&op->attrs, ATTR_invariant, 0))
                        : op->nin;
  uint32_t carry = loop ? (uint32_t)attr_int(&op->attrs, ATTR_carry, 0) : op->nout;
  Str dim = loop ? op->group[0].from[0] : NULL;
  for (uint32_t i = 0; i < op->nin; i++)
    if (!same_storage(&v->fn->values.at[op->in[i]], &c->values.at[c->args.at[i + loop]],
                      i < whole ? NULL : dim))
      differs(v, op, "operand", i);
  for (uint32_t i = 0; i < op->nout; i++)
    if (!same_storage(&v->fn->values.at[op->out + i], &c->values.at[c->results.at[i]],
                      i < carry ? NULL : dim))
      differs(v, op, "result", i);
  check_taken(v, op);
  for (uint32_t i = carry; loop && i < op->nout; i++) {
    uint32_t on = loop_continues(op, i);
    if (on != NO_VALUE &&
        !same_storage(&v->fn->values.at[op->in[on]], &v->fn->values.at[op->out + i], NULL))
      verify_report(v, "E1107", verify_at_op(op),
                    "[order-c17] result %u is stored in another order than operand %u, with which "
                    "it goes on",
                    i, on);
  }
}

/* In the order of its type; an axis of one element steps nowhere. */
static bool lies_dense(const Value *v) {
  int64_t dense = 1;
  for (int i = v->type.rank; i-- > 0; dense *= v->type.axis[i].size)
    if (v->type.axis[i].size > 1 && v->storage.stride[i] != dense) return false;
  return true;
}

/* The runtime takes its two buffers as blocks of rows, in the order of their types (message.h). */
static void check_message(Verifier *v, const Op *op) {
  if (!op_between_buffers(op->code)) return;
  const Value *out = &v->fn->values.at[op->out], *in = op->nin ? &v->fn->values.at[op->in[0]] : out;
  bool fine = lies_dense(in) && lies_dense(out) && in->type.rank == out->type.rank;
  for (int i = 0; fine && i < in->type.rank; i++)
    fine = in->type.axis[i].dim == out->type.axis[i].dim;
  if (!fine)
    verify_report(v, "E1107", verify_at_op(op),
                  "[order-c15] %s between buffers that are not dense in one order",
                  op_name(op->code));
}

/* Values of a kernel function are elements in registers: only callers know what shares bytes. */
static void check_inside(Verifier *v, ValueId id) {
  const Storage *s = &v->fn->values.at[id].storage;
  if (s->view != VIEW_NONE || s->place != PLACE_NONE)
    verify_report(v, "E1107", value_at(v, id), "[order-c9] a place or view inside of a kernel");
}

void verify_ordered(Verifier *v) {
  const Fn *f = v->fn;
  if (f->kind == FN_KERNEL) {
    for (ValueId i = 0; i < f->values.n; i++) check_inside(v, i);
    for (uint32_t i = 0; i < f->args.n; i++) check_strides(v, f->args.at[i]);
    for (uint32_t i = 0; i < f->results.n; i++) check_strides(v, f->results.at[i]);
    return;
  }
  for (ValueId i = 0; i < f->values.n; i++) check_strides(v, i);
  for (ValueId i = 0; i < f->values.n && !v->failed; i++) check_view(v, i);
  for (OpId i = 0; i < f->ops.n && !v->failed; i++) {
    check_boundary(v, &f->ops.at[i]);
    check_message(v, &f->ops.at[i]);
    verify_declared_order(v, i);
  }
  if (!v->failed) verify_laid_order(v);
  if (!v->failed) verify_rooms(v);
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

typedef struct Places {
  Verifier *v;
  VEC(Tenancy) spans;
  ValueId *class;
  int64_t *born, *dies; /* by class */
} Places;

static int64_t bytes_of(const Value *v) { return verify_extent(v) * elem_bytes(v->type.elem); }

static void touch(Places *p, ValueId id, int64_t when) {
  ValueId c = p->class[id];
  if (when > p->dies[c]) p->dies[c] = when;
}

static void find_lives(Places *p) {
  const Fn *f = p->v->fn;
  int64_t end = f->ops.n;
  p->class = shared_bytes(p->v->m->arena, f).of;
  for (ValueId i = 0; i < f->values.n; i++) p->born[i] = end, p->dies[i] = -1;
  for (ValueId i = 0; i < f->values.n; i++) {
    const Value *value = &f->values.at[i];
    bool early = value->def == NO_OP || f->ops.at[value->def].code == OP_load;
    int64_t born = early ? -1 : (int64_t)op_begins(f, value->def), *first = &p->born[p->class[i]];
    if (born < *first) *first = born;
    touch(p, i, value->def == NO_OP ? -1 : (int64_t)op_ends(f, value->def));
  }
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) touch(p, f->ops.at[i].in[k], op_ends(f, i));
  for (uint32_t i = 0; i < f->results.n; i++) touch(p, f->results.at[i], end);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *op = &f->ops.at[i];
    if (op->code != OP_store) continue;
    const Storage *s = &f->values.at[op->in[0]].storage;
    if (s->place == PLACE_GLOBAL && p->v->m->globals.at[s->slot] == op->global)
      touch(p, op->in[0], end);
  }
}

static void add_span(Places *p, Tenancy s) { vec_push(p->v->m->arena, p->spans, s); }

static void add_value(Places *p, ValueId id) {
  const Value *value = &p->v->fn->values.at[id];
  const Storage *s = &value->storage;
  ValueId c = p->class[id];
  if (s->place != PLACE_FRAME && s->place != PLACE_GLOBAL) return;
  add_span(p,
           (Tenancy){s->place, s->place == PLACE_GLOBAL ? s->slot : value->type.tier, s->at,
                     s->at + bytes_of(value), p->born[c], p->dies[c], c, value_def(p->v->fn, id)});
}

static void add_work(Places *p, OpId id) {
  const Op *op = &p->v->fn->ops.at[id];
  bool sends = op_family(op->code) == FAMILY_COLLECTIVE;
  if (!op->callee && !sends) return;
  OpId born = op_begins(p->v->fn, id), ends = op_ends(p->v->fn, id);
  OpId dies = ends == id ? flight_end(p->v->fn, id) : ends;
  for (Tier t = 0; t < TIERS; t++) {
    int64_t bytes = op_work(op, t), at = attr_int(&op->attrs, tier_work(t), 0);
    if (bytes > 0) add_span(p, (Tenancy){PLACE_FRAME, t, at, at + bytes, born, dies, NO_VALUE, op});
  }
  const Attr *slots = attr_get(&op->attrs, ATTR_slots);
  for (int64_t i = 0; slots && i < slots->i && i < op->nout; i++)
    if (slots->list[i] >= 0)
      add_span(p, (Tenancy){PLACE_FRAME, value_type(p->v->fn, op->out + i)->tier, slots->list[i],
                            slots->list[i] + bytes_of(&p->v->fn->values.at[op->out + i]), born,
                            dies, NO_VALUE, op});
}

/* From before the first round until behind the last. */
static void add_rings(Places *p, OpId id) {
  const Op *op = &p->v->fn->ops.at[id];
  const Attr *rings = attr_get(&op->attrs, ATTR_ring);
  for (uint32_t i = 0; rings && 3 * (int64_t)i + 2 < rings->i; i++) {
    Ring r = loop_ring(op, i);
    add_span(p, (Tenancy){PLACE_FRAME, 0, r.at, r.at + r.bytes * r.buffers, op_begins(p->v->fn, id),
                          op_ends(p->v->fn, id), NO_VALUE, op});
  }
}

/* A store copies unless its value stands in the global already. */
static void add_store(Places *p, OpId id) {
  const Op *op = &p->v->fn->ops.at[id];
  if (op->code != OP_store) return;
  const Value *value = &p->v->fn->values.at[op->in[0]];
  uint32_t slot = 0;
  while (p->v->m->globals.at[slot] != op->global) slot++;
  if (value->storage.place == PLACE_GLOBAL && value->storage.slot == slot) return;
  int64_t bytes = type_count(&op->global->type) * elem_bytes(op->global->type.elem);
  add_span(p, (Tenancy){PLACE_GLOBAL, slot, 0, bytes, id, p->v->fn->ops.n, NO_VALUE, op});
}

static bool conflict(const Tenancy *a, const Tenancy *b) {
  if (a->class == b->class && a->class != NO_VALUE) return false;
  if (a->space != b->space || a->slot != b->slot) return false;
  if (a->space == PLACE_GLOBAL && a->born < 0 && b->born < 0) return false; /* two loads */
  return a->from < b->to && b->from < a->to && a->born <= b->dies && b->born <= a->dies;
}

static void check_conflicts(Places *p) {
  for (uint32_t i = 0; i < p->spans.n; i++)
    for (uint32_t j = 0; j < i; j++) {
      const Tenancy *a = &p->spans.at[i], *b = &p->spans.at[j];
      if (conflict(a, b))
        verify_report(p->v, "E1108", a->op ? verify_at_op(a->op) : verify_at_fn(p->v),
                      "[place-c3] bytes %lld .. %lld and %lld .. %lld are in use at the same time",
                      (long long)a->from, (long long)a->to, (long long)b->from, (long long)b->to);
    }
}

static void check_place(Verifier *v, ValueId id) {
  const Value *value = &v->fn->values.at[id];
  const Storage *s = &value->storage;
  VerifyPlace at = value_at(v, id);
  if (s->place == PLACE_NONE) verify_report(v, "E1108", at, "[place-c1] a value has no bytes");
  if (s->at < 0 || s->at % elem_bytes(value->type.elem))
    verify_report(v, "E1108", at, "[place-c2] offset %lld", (long long)s->at);
  int64_t room = verify_room(v, value);
  if (room < 0) verify_report(v, "E1108", at, "[place-c4] there is no place number %u", s->slot);
  else if (s->place != PLACE_NONE && !verify_fits(s->at, bytes_of(value), room))
    verify_report(v, "E1108", at, "[place-c5] %lld bytes at %lld of %lld",
                  (long long)bytes_of(value), (long long)s->at, (long long)room);
}

/* What lies in an argument's bytes is that argument, shows it or took its place. */
static bool of_argument(const Fn *f, const ValueId *class, ValueId v, uint32_t arg) {
  for (uint32_t i = 0; i < f->args.n; i++)
    if (f->values.at[f->args.at[i]].result == arg && class[f->args.at[i]] == class[v]) return true;
  return false;
}

static void check_shared(Verifier *v, const ValueId *class, ValueId id) {
  const Storage *s = &v->fn->values.at[id].storage;
  if (s->place == PLACE_ARG && !of_argument(v->fn, class, id, s->slot))
    verify_report(v, "E1108", value_at(v, id), "[place-c7] in the bytes of argument %u", s->slot);
  if (!storage_has_base(s)) return;
  const Value *base = &v->fn->values.at[s->base];
  int64_t offset = s->view == VIEW_OF ? s->offset * elem_bytes(base->type.elem) : 0;
  if (s->place != base->storage.place || s->slot != base->storage.slot ||
      s->at != base->storage.at + offset)
    verify_report(v, "E1108", value_at(v, id), "[place-c6] a view is not placed in its base");
}

/* ---- messages ---- */

static bool is_shard(const Type *t) { /* of a flat group of parameters (pass zero) */
  return t->rank && !strncmp(t->axis[t->rank - 1].dim, "Piece_", 6);
}

/* Is what goes at a time put somewhere else, whatever it is? */
static bool needs_room(const Verifier *v, const Op *op) {
  return message_by_host(v->m) ||
         (op->code == OP_all_to_all && message_needs_line(v->m) && message_workspace(v->fn, op));
}

static void check_messages(Verifier *v, const Op *op) {
  int64_t times = attr_int(&op->attrs, ATTR_messages, 1), bucket = plan_zero_bucket(v->m);
  Message x = times < 1 ? (Message){0} : message_of(v->fn, op);
  if (times < 1 || x.rows % times)
    verify_report(v, "E1110", verify_at_op(op), "[message-c1] %lld messages of blocks of %lld rows",
                  (long long)times, (long long)x.rows);
  else if (bucket > 0 && is_shard(value_type(v->fn, op->in[0])) && x.bytes > bucket)
    verify_report(v, "E1110", verify_at_op(op),
                  "[message-c2] a message of %lld bytes, and buckets of %lld", (long long)x.bytes,
                  (long long)bucket);
  else if (x.piece < 1 || x.piece > x.count)
    verify_report(v, "E1110", verify_at_op(op), "[message-c4] pieces of %lld elements of %lld",
                  (long long)x.piece, (long long)x.count);
  else if (bucket > 0 && needs_room(v, op) && x.bytes > bucket && x.piece > 1)
    verify_report(v, "E1110", verify_at_op(op),
                  "[message-c4] pieces of %lld bytes, buckets of %lld", (long long)x.bytes,
                  (long long)bucket);
  else if (message_needs_line(v->m) &&
           attr_int(&op->attrs, ATTR_workspace, 0) != message_workspace(v->fn, op))
    verify_report(v, "E1110", verify_at_op(op), "[message-c3] workspace of %lld bytes, not %lld",
                  (long long)attr_int(&op->attrs, ATTR_workspace, 0),
                  (long long)message_workspace(v->fn, op));
}

void verify_messages(Verifier *v) {
  if (v->fn->kind == FN_KERNEL) return;
  for (OpId i = 0; i < v->fn->ops.n && !v->failed; i++)
    if (op_family(v->fn->ops.at[i].code) == FAMILY_COLLECTIVE) check_messages(v, &v->fn->ops.at[i]);
}

void verify_placed(Verifier *v) {
  const Fn *f = v->fn;
  if (f->kind == FN_KERNEL) return;
  const ValueId *class = shared_bytes(v->m->arena, f).of;
  for (ValueId i = 0; i < f->values.n; i++) check_place(v, i), check_shared(v, class, i);
  if (!v->failed) verify_laid_places(v);
  if (!v->failed) verify_bytes(v);
  if (!v->failed) verify_rings(v);
  if (v->failed) return;
  Arena *a = v->m->arena;
  uint32_t n = f->values.n + 1;
  Places p = {v, {0}, NULL, ARENA_ARRAY(a, int64_t, n), ARENA_ARRAY(a, int64_t, n)};
  find_lives(&p);
  for (ValueId i = 0; i < f->values.n; i++) add_value(&p, i);
  for (OpId i = 0; i < f->ops.n; i++) add_work(&p, i), add_rings(&p, i), add_store(&p, i);
  check_conflicts(&p);
}

/* Checks what a dump says about bytes: the places of globals in their arenas, of members in flat
   globals, of a body's values in its caller's memory, and of the values that loops read and write.
   The host program and the runtime trust all of these numbers: an offset outside an arena is a
   write outside it.

   Every sum is compared with the remaining room instead of being formed, so that no number of 64
   bits can overflow. The rules about bytes in use at the same time are in verify_storage.c. */
#include "ir/schedule/flight.h"
#include "ir/shape/placement.h"
#include "ir/bytes.h"
#include "ir/plan/stage_class.h"
#include "verify.h"

enum { LINE = 64, ALIGNED = 16 }; /* globals begin with a cache line; GPUs count on 16 bytes */
static const uint32_t NOWHERE = UINT32_MAX; /* in no global */
static const int64_t ARENA_MOST =
    1ll << 60; /* bytes: small enough that ends of values cannot overflow */

bool verify_fits(int64_t at, int64_t bytes, int64_t room) {
  return at >= 0 && bytes >= 0 && bytes <= room && at <= room - bytes;
}

static int64_t bytes_of(const Value *v) { return verify_extent(v) * elem_bytes(v->type.elem); }

/* ---- arenas ---- */

static VerifyPlace global_at(const Global *global) {
  return (VerifyPlace){global->span, global->loc};
}

static bool stands(const Module *m, const Global *global) {
  return !global->within && global->storage.place == PLACE_GLOBAL && global_is_held(m, global);
}

static void check_arena_place(Verifier *verifier, const Global *global) {
  if (global->within) {
    if (global->storage.place != PLACE_NONE)
      verify_report(verifier, "E1108", global_at(global),
                    "[arena-c3] @%s is in @%s and has no place itself", global->name,
                    global->within->name);
  } else if (global->storage.place != PLACE_GLOBAL || global->storage.at % LINE ||
             !verify_fits(global->storage.at, global_bytes(verifier->m, global), ARENA_MOST)) {
    verify_report(verifier, "E1108", global_at(global),
                  "[arena-c1] @%s has no place, or one that is no multiple of %d of an arena",
                  global->name, LINE);
  }
}

static bool overlap(const Module *m, const Global *a, const Global *b) {
  return global_arena(a) == global_arena(b) && a->storage.at < b->storage.at + global_bytes(m, b) &&
         b->storage.at < a->storage.at + global_bytes(m, a);
}

static bool samples(const Fn *f) {
  return f->kind == FN_ENTRY && (!strcmp(f->name, "logits") || !strcmp(f->name, "decode"));
}

static void check_held(Verifier *verifier, const Fn *f) {
  for (OpId i = 0; i < f->ops.n && !verifier->failed; i++) {
    const Op *o = &f->ops.at[i];
    if (o->global && !global_is_held(verifier->m, o->global))
      verify_report(verifier, "E1108", verify_at_op(o),
                    "[arena-c4] no stage of this class holds @%s", o->global->name);
    if (o->global && global_is_sampled(o->global) && !samples(f))
      verify_report(verifier, "E1108", verify_at_op(o),
                    "[arena-c5] @%s is only for entries logits and decode", o->global->name);
  }
}

void verify_arenas(Verifier *verifier) {
  const Module *m = verifier->m;
  verifier->fn = NULL;
  for (uint32_t i = 0; i < m->globals.n; i++) check_arena_place(verifier, m->globals.at[i]);
  for (uint32_t i = 0; i < m->fns.n; i++) check_held(verifier, m->fns.at[i]);
  for (uint32_t i = 0; i < m->globals.n && !verifier->failed; i++)
    for (uint32_t j = 0; j < i; j++) {
      const Global *a = m->globals.at[i], *b = m->globals.at[j];
      if (stands(m, a) && stands(m, b) && overlap(m, a, b))
        verify_report(verifier, "E1108", global_at(a), "[arena-c2] @%s and @%s share bytes",
                      a->name, b->name);
    }
}

/* ---- flat globals ---- */

typedef struct Flat {    /* [rounds, all that one round has on all ranks that share it] */
  int64_t rounds, count; /* count: -1 if it cannot be */
} Flat;

/* A member that has the flat global's first dim is one of a stack. */
static Flat flat_of(const Module *m, const Global *global) {
  const Type *t = &global->within->type;
  bool stacked = global->type.rank && t->rank && t->axis[0].dim == global->type.axis[0].dim;
  Flat flat = {stacked ? t->axis[0].size : 1, 0};
  flat.count = type_count(t) / flat.rounds;
  if (stacked && t->axis[0].size != global->type.axis[0].size) return flat.count = -1, flat;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (is_split(global->within->placed.on[i]) &&
        __builtin_mul_overflow(flat.count, m->mesh.at[i].size, &flat.count))
      flat.count = -1;
  return flat;
}

static int64_t member_count(const Module *m, const Global *global) {
  return type_count(&global->type) / flat_of(m, global).rounds;
}

static bool members_meet(const Module *m, const Global *a, const Global *b) {
  return a->within == b->within && a->begin < b->begin + member_count(m, b) &&
         b->begin < a->begin + member_count(m, a);
}

static void check_member(Verifier *verifier, uint32_t index) {
  const Global *global = verifier->m->globals.at[index];
  if (!verify_fits(global->begin, member_count(verifier->m, global),
                   flat_of(verifier->m, global).count)) {
    verify_report(verifier, "E1105", global_at(global), "[flat-c1] @%s is not inside @%s",
                  global->name, global->within->name);
    return;
  }
  for (uint32_t i = 0; i < index; i++) {
    const Global *other = verifier->m->globals.at[i];
    if (other->within && verify_fits(other->begin, member_count(verifier->m, other), INT64_MAX) &&
        members_meet(verifier->m, global, other))
      verify_report(verifier, "E1105", global_at(global),
                    "[flat-c2] @%s and @%s share elements of @%s", global->name, other->name,
                    global->within->name);
  }
}

void verify_flats(Verifier *verifier) {
  for (uint32_t i = 0; i < verifier->m->globals.n; i++)
    if (verifier->m->globals.at[i]->within) check_member(verifier, i);
}

/* ---- a body in its caller's memory ---- */

int64_t verify_room(const Verifier *verifier, const Value *x) {
  const Fn *f = verifier->fn;
  const Storage *storage = &x->storage;
  Tier tier = x->type.tier;
  switch (storage->place) {
  case PLACE_FRAME: return attr_int(&f->attrs, tier_frame(tier), 0);
  case PLACE_GLOBAL:
    return storage->slot < verifier->m->globals.n
               ? global_bytes(verifier->m, verifier->m->globals.at[storage->slot])
               : -1;
  case PLACE_ARG:
    return storage->slot < f->args.n ? bytes_of(&f->values.at[f->args.at[storage->slot]]) : -1;
  case PLACE_RESULT:
    return storage->slot < f->results.n ? bytes_of(&f->values.at[f->results.at[storage->slot]])
                                        : -1;
  case PLACE_RING:
    return storage->slot < flights_over(verifier->m->arena, f).n ? ARENA_MOST : -1; /* flight-c8 */
  default: return 0;
  }
}

static bool stands_in(const Storage *storage, PlaceKind place, uint32_t slot) {
  return storage->place == place && storage->slot == slot && storage->at == 0;
}

static void check_caller_bytes(Verifier *verifier, const ValueId *class, ValueId id) {
  const Fn *f = verifier->fn;
  const Value *x = &f->values.at[id];
  const Storage *storage = &x->storage;
  if (x->def == NO_OP && !stands_in(storage, PLACE_ARG, x->result))
    verify_report(verifier, "E1108", verify_at_value(verifier, id),
                  "[room-c1] argument %u is not at the place that its caller uses", x->result);
  if (storage->place == PLACE_RESULT && storage->slot < f->results.n &&
      class[f->results.at[storage->slot]] != class[id])
    verify_report(verifier, "E1108", verify_at_value(verifier, id),
                  "[room-c2] in the bytes of result %u", storage->slot);
  if (storage->place == PLACE_FRAME && !storage_has_base(storage) && storage->at % ALIGNED)
    verify_report(verifier, "E1108", verify_at_value(verifier, id),
                  "[frame-c3] %lld of the frame is no multiple of %d", (long long)storage->at,
                  ALIGNED);
}

/* ---- globals in entries ---- */

static bool in_declared_order(const Value *x, const Global *global) {
  int64_t stride = 1;
  for (int i = global->type.rank; i-- > 0;) {
    int at = type_find(&x->type, global->type.axis[i].dim);
    if (at < 0) return false;
    if (global->type.axis[i].size > 1 && x->storage.stride[at] != stride) return false;
    stride *= global->type.axis[i].size;
  }
  return true;
}

void verify_declared_order(Verifier *verifier, OpId id) {
  const Op *op = &verifier->fn->ops.at[id];
  if (op_family(op->code) != FAMILY_GLOBAL) return;
  ValueId x = op->code == OP_load ? op->out : op->in[0];
  if (!in_declared_order(&verifier->fn->values.at[x], op->global))
    verify_report(verifier, "E1107", verify_at_op(op),
                  "[held-c1] @%s is stored in the order of its declaration, this is not",
                  op->global->name);
}

/* The value of which x shows elements, without changing any. */
/* Is the last value written to global number `slot` the one that the entry stores in it? */
static bool stored_at_end(const Verifier *verifier, const uint32_t *held, ValueId written,
                          uint32_t slot) {
  const Fn *f = verifier->fn;
  EACH_OP (f, op)
    if (op->code == OP_store && verifier->m->globals.at[slot] == op->global)
      return held[op->in[0]] == slot && verify_base(f, op->in[0]) == written;
  return false;
}

static bool is_load(const Fn *f, ValueId v) {
  const Op *def = value_def(f, v);
  return def && def->code == OP_load;
}

/* A value that an op writes into a global must still be in it at the end: nothing else says that
   the global changes. `held`: for each value, the global whose bytes it uses, or NOWHERE. */
static void check_written(Verifier *verifier, const uint32_t *held, const char *code,
                          const char *label) {
  const Fn *f = verifier->fn;
  ValueId *last = ARENA_ARRAY(verifier->m->arena, ValueId, verifier->m->globals.n + 1);
  for (uint32_t g = 0; g < verifier->m->globals.n; g++) last[g] = NO_VALUE;
  for (ValueId i = 0; i < f->values.n; i++)
    if (held[i] != NOWHERE && f->values.at[i].storage.view != VIEW_OF && !is_load(f, i))
      last[held[i]] = i;
  for (uint32_t g = 0; g < verifier->m->globals.n; g++)
    if (last[g] != NO_VALUE && !stored_at_end(verifier, held, last[g], g))
      verify_report(verifier, code, verify_at_value(verifier, last[g]),
                    "[%s] written into @%s, which the entry does not store", label,
                    verifier->m->globals.at[g]->name);
}

/* Before `memory`, a value that shares its bytes with a loaded value is in a global. */
static void check_loaded(Verifier *verifier, const SharedBytes *bytes) {
  const Fn *f = verifier->fn;
  uint32_t *of = ARENA_ARRAY(verifier->m->arena, uint32_t, f->values.n + 1),
           *held = ARENA_ARRAY(verifier->m->arena, uint32_t, f->values.n + 1);
  for (ValueId i = 0; i < f->values.n; i++) of[i] = NOWHERE;
  for (ValueId i = 0; i < f->values.n; i++)
    if (is_load(f, i)) of[bytes->of[i]] = global_index(verifier->m, value_def(f, i)->global);
  for (ValueId i = 0; i < f->values.n; i++) held[i] = of[bytes->of[i]];
  check_written(verifier, held, "E1107", "held-c5");
}

static void check_globals_of(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (ValueId i = 0; i < f->values.n; i++) {
    const Value *x = &f->values.at[i];
    if (is_load(f, i) &&
        !stands_in(&x->storage, PLACE_GLOBAL, global_index(verifier->m, value_def(f, i)->global)))
      verify_report(verifier, "E1108", verify_at_value(verifier, i),
                    "[held-c2] @%s is loaded from elsewhere", value_def(f, i)->global->name);
    bool inside = x->storage.place == PLACE_GLOBAL;
    if (inside && (f->kind != FN_ENTRY || verifier->m->globals.at[x->storage.slot]->within))
      verify_report(verifier, "E1108", verify_at_value(verifier, i),
                    "[held-c4] a value cannot use the bytes of @%s at this op",
                    verifier->m->globals.at[x->storage.slot]->name);
  }
  if (verifier->failed) return;
  uint32_t *held = ARENA_ARRAY(verifier->m->arena, uint32_t, f->values.n + 1);
  for (ValueId i = 0; i < f->values.n; i++) {
    const Storage *at = &f->values.at[i].storage;
    held[i] = at->place == PLACE_GLOBAL ? at->slot : NOWHERE;
  }
  check_written(verifier, held, "E1108", "held-c3");
}

/* ---- loops and workspaces ---- */

/* By the shared bytes, a result is in an argument's bytes, or in those of the first result that
   shares them. */
static Storage result_stands(const Fn *body, const SharedBytes *bytes, uint32_t j) {
  ValueId r = body->results.at[j];
  for (uint32_t i = 0; i < body->args.n; i++)
    if (bytes->of[body->args.at[i]] == bytes->of[r])
      return (Storage){.place = PLACE_ARG, .slot = i, .at = bytes->at[r]};
  uint32_t first = 0;
  while (bytes->of[body->results.at[first]] != bytes->of[r]) first++;
  return (Storage){.place = PLACE_RESULT, .slot = first, .at = bytes->at[r]};
}

static Storage *results_stand(Arena *arena, const Fn *body) {
  SharedBytes bytes = shared_bytes(arena, body);
  Storage *at = ARENA_ARRAY(arena, Storage, body->results.n + 1);
  for (uint32_t j = 0; j < body->results.n; j++) at[j] = result_stands(body, &bytes, j);
  return at;
}

typedef struct LoopBytes {
  const Op *op;
  const Storage *at;     /* by result of the body */
  uint32_t carry, whole; /* operands: carried ones, and those that are no stacks */
} LoopBytes;

static LoopBytes loop_bytes(const Verifier *verifier, const Op *op) {
  uint32_t carry = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0);
  return (LoopBytes){op, results_stand(verifier->m->arena, op->callee), carry, loop_whole(op)};
}

static bool returns_arg(const LoopBytes *bytes, uint32_t result, uint32_t arg) {
  return stands_in(&bytes->at[result], PLACE_ARG, arg);
}

/* The stacked result whose slices are the buffers of carried value j, 0: none, op->nout: several */
static uint32_t saved_as(const LoopBytes *bytes, uint32_t j) {
  uint32_t found = 0;
  for (uint32_t i = bytes->carry; i < bytes->op->nout; i++)
    if (returns_arg(bytes, i, j + 1)) found = found ? bytes->op->nout : i;
  return found;
}

/* The rule under "Loops" in docs/ir.md: a result has its own bytes, those of the carried value
   whose next value it is, or those of an argument that is stacked (in the operand: order-c14) or
   carried (then the slices are its buffers). */
static bool may_stand(const LoopBytes *bytes, uint32_t j) {
  const Storage *storage = &bytes->at[j];
  if (stands_in(storage, PLACE_RESULT, j)) return true;
  if (storage->place != PLACE_ARG || storage->at) return false;
  uint32_t operand = storage->slot - 1;
  if (j < bytes->carry) return operand == j;
  if (operand < bytes->carry)
    return !returns_arg(bytes, operand, operand + 1) && saved_as(bytes, operand) == j;
  return operand >= bytes->whole && operand < bytes->op->nin;
}

void verify_rooms(Verifier *verifier) {
  SharedBytes s = shared_bytes(verifier->m->arena, verifier->fn);
  check_loaded(verifier, &s);
  EACH_OP (verifier->fn, op) {
    if (op->code != OP_loop) continue;
    LoopBytes bytes = loop_bytes(verifier, op);
    for (uint32_t j = 0; j < op->nout; j++)
      if (!may_stand(&bytes, j))
        verify_report(
            verifier, "E1107", verify_at_op(op),
            "[room-c4] result %u of @%s has no bytes of its own, nor those of an argument "
            "that it may take over",
            j, op->callee->name);
  }
}

static bool needs_buffer(const LoopBytes *bytes, uint32_t j) {
  return attr_int(&bytes->op->attrs, ATTR_trip, 0) > 1 && !returns_arg(bytes, j, j + 1) &&
         !saved_as(bytes, j);
}

static void check_slots(Verifier *verifier, const LoopBytes *bytes) {
  const Op *op = bytes->op;
  const Attr *slots = attr_get(&op->attrs, ATTR_slots);
  if ((slots ? slots->i : 0) != (int64_t)bytes->carry) {
    verify_report(verifier, "E1108", verify_at_op(op), "[frame-c2] %u carried values, %lld slots",
                  bytes->carry, (long long)(slots ? slots->i : 0));
    return;
  }
  for (uint32_t j = 0; j < bytes->carry; j++) {
    const Value *x = &verifier->fn->values.at[op->out + j];
    int64_t at = slots->list[j],
            frame = attr_int(&verifier->fn->attrs, tier_frame(x->type.tier), 0);
    bool inside = verify_fits(at, bytes_of(x), frame);
    if (at == -1 ? needs_buffer(bytes, j) : !inside || at % ALIGNED)
      verify_report(verifier, "E1108", verify_at_op(op),
                    "[frame-c2] carried value %u has no second buffer in the frame", j);
  }
}

static void check_loop(Verifier *verifier, const Op *op) {
  const Fn *body = op->callee;
  LoopBytes bytes = loop_bytes(verifier, op);
  for (uint32_t j = 0; j < op->nout; j++) {
    const Storage *storage = &body->values.at[body->results.at[j]].storage;
    if (storage->place != bytes.at[j].place || storage->slot != bytes.at[j].slot ||
        storage->at != bytes.at[j].at)
      verify_report(verifier, "E1108", verify_at_op(op),
                    "[room-c3] @%s leaves result %u where nobody looks for it", body->name, j);
  }
  check_slots(verifier, &bytes);
}

static void check_work(Verifier *verifier, const Op *op, Tier t) {
  int64_t frame = attr_int(&verifier->fn->attrs, tier_frame(t), 0);
  int64_t bytes = op_work(op, t), at = attr_int(&op->attrs, tier_work(t), 0);
  if (bytes && !attr_get(&op->attrs, tier_work(t)))
    verify_report(verifier, "E1108", verify_at_op(op), "[frame-c4] %lld bytes of work without `%s`",
                  (long long)bytes, attr_name(tier_work(t)));
  if ((bytes && !verify_fits(at, bytes, frame)) || at % ALIGNED)
    verify_report(verifier, "E1108", verify_at_op(op),
                  "[frame-c1] %lld bytes of work at %lld, in a frame of %lld", (long long)bytes,
                  (long long)at, (long long)frame);
}

void verify_bytes(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (Tier t = 0; t < TIERS; t++) {
    int64_t frame = attr_int(&f->attrs, tier_frame(t), 0);
    if (verify_fits(0, frame, ARENA_MOST)) continue;
    verify_report(verifier, "E1108", verify_at_fn(verifier),
                  "[frame-c1] @%s has a frame of %lld bytes", f->name, (long long)frame);
    return;
  }
  SharedBytes bytes = shared_bytes(verifier->m->arena, f);
  for (ValueId i = 0; i < f->values.n; i++) check_caller_bytes(verifier, bytes.of, i);
  check_globals_of(verifier);
  EACH_OP (f, op) {
    bool works = op->callee || op_family(op->code) == FAMILY_COLLECTIVE;
    for (Tier t = 0; t < TIERS && works; t++) check_work(verifier, op, t);
    if (op->code == OP_loop) check_loop(verifier, op);
  }
}

/* 1-bit Adam (Tang et al., 2021), as the optimizer pass makes it.

   `step` is AdamW: the warm-up. `step.frozen` is a second entry made from the same gradients. In
   it the second moments v are constant, and ranks exchange the sign of the momentum. With W
   workers, blocks b of concatenated parameters, a chunk of blocks for each worker, and per block

     rms(y) = sqrt(sum y^2 / number of its live elements),  C(y) = rms(y) sign(y), sign(0) = +
     d = sqrt(v) / root + eps,  [x] = x within +- the root of a block's length

   worker i    y_i = beta1 u + [(1 - beta1) W g_i / d] + e_i
               sends C(y_i);  e_i = y_i - C(y_i)
   owner       z = mean_i C(y_i) + E;  sends C(z);  E = z - C(z)
   all ranks   u = C(z);  w = w (1 - lr decay) - lr / (1 - beta1^t) u

   u = m / d is the momentum. From the first frozen step on bits and scales represent all of it:
   these are its state, and m keeps the value from the warm-up. Before that step u is 0, and the
   entry `step.freeze`, run once, accounts for the momentum: e_i = beta1 m / d. With `zero 1` a
   rank holds only its shard of v, so d is a state of its own, whole on each rank: it follows from
   v, and the entry `step.unit` gathers it before the first frozen step of a process.

   Unlike in the paper, the compressed values are in units of the step, y / d: otherwise, of the
   elements that share a scale, one whose v is small would be moved by a multiple of any update it
   ever had. d is constant, so a mean of quotients is the quotient of the mean. The bound [] lets a
   gradient that was almost 0 in warm-up and grows later raise its block's scale to 1 at most, a
   step's size. AdamW's v would limit it to W / sqrt(1 - beta2); but rare tokens reach so low a
   bound as well, and their gradients would then be too small.

   With `renew`, v is updated in steps that are AdamW's, at growing intervals ("0/1 Adam", Lu et
   al., 2022, its policy for the variance). The g^2 of such a step represents all k steps since the
   last one: v = beta2^k v + (1 - beta2^k) g^2. The entry `step.thaw` makes m = u d for it, and
   converts errors from units of d; `step.freeze` converts both into units of the new d.

   g_i is worker i's term of the gradient (workers.c), W times it is the gradient of its own
   samples; root is AdamW's sqrt(1 - beta2^t) of the last warm-up step, kept as a state. An element
   is live if its v is not 0: one that never had a gradient keeps momentum, errors, and value,
   since one bit cannot encode 0; padding is such an element, so neither takes part in the scale.

   The number of workers is part of the mathematics, whatever the mesh: e_i are a state over the
   workers, E is one over the owners of the chunks. Placement assigns the work (B cuts Batch:
   worker and owner get its axes), and the collectives derive themselves: [worker/B, chunk] becomes
   [sender, owner/B], an all-to-all of packed bits and of scales; [owner/B] becomes whole, an
   all-gather of both. Messages that overlap with kernels are cut in buckets of blocks
   (onebit_buckets.c).

   Clipping ends with the warm-up: no rank has the whole gradient afterwards; norm.of.gradients is
   the root of the sum of all workers' squares. */
#include "ir/made.h"
#include "ir/phases.h"
#include "onebit.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "guard_nonfinite.h"
#include "workers.h"
#include <math.h>
#include <string.h>

enum { BITS = 8 };

/* ---- states ---- */
static Global *root_state(Module *m) {
  return update_state(m, "onebit.root", type_scalar(ELEM_f32));
}

/* Number of consecutive steps after the freeze that refresh second moments, before they become
   rarer; 0: none does. */
static int64_t renews(const Module *m) { return module_whole(m, "train.optim.renew"); }

/* A step with full gradients represents all steps since the previous one: beta2 to the power of
   their number. */
static void begin_renewal(Update *u) {
  RateSchedule *s = &u->s;
  Global *last = update_state(u->m, "onebit.renewed", type_scalar(ELEM_i32));
  ValueId before = ir_cast(u->m, u->f, ir_load(u->m, u->f, last, (Loc){0}), ELEM_f64, (Loc){0});
  ValueId stays = schedule_power(s, u->betas[1], schedule_binary(s, OP_sub, u->count, before));
  u->comes = to_f32(u, schedule_binary(s, OP_sub, schedule_number(s, 1), stays));
  u->stays = to_f32(u, stays);
  put(u, last, u->count);
}

void update_onebit_adam_begin(Update *u) {
  update_adamw_begin(u);
  put(u, root_state(u->m), u->root);
  if (renews(u->m)) begin_renewal(u);
}

/* During the warm-up. */
void update_onebit_adam(Update *u, Global *global, ValueId w, ValueId d) {
  update_adamw(u, global, w, d);
}

/* ---- compression ---- */
static ValueId renamed(Onebit *onebit, ValueId v, int n, const Str *from, const Str *to) {
  Group group = group_map(n, from, n, to);
  Type t = *value_type(onebit->u.f, v);
  for (int i = 0; i < n; i++) {
    int at = type_find(value_type(onebit->u.f, v), from[i]);
    must(at >= 0, "onebit: %%%u has no %s", v, from[i]);
    t.axis[at].dim = to[i];
  }
  return emit_typed(onebit->u.m, onebit->u.f, OP_rename, 1, &v, &group, t, (Loc){0});
}

static ValueId choose(Onebit *onebit, ValueId c, ValueId a, ValueId b) {
  return ir_where(onebit->u.m, onebit->u.f, c, a, b, (Loc){0});
}

static ValueId zero_unless(Onebit *onebit, ValueId live, ValueId v) {
  return choose(onebit, live, v, num(&onebit->u, 0));
}

/* A product, so that nothing but the scale itself is ever sent. */
static ValueId signed_scale(Onebit *onebit, ValueId plus, ValueId scale) {
  return bin(&onebit->u, OP_mul, choose(onebit, plus, num(&onebit->u, 1), num(&onebit->u, -1)),
             scale);
}

typedef struct Packed {
  ValueId bits, scale; /* u8 [.., byte], f32 [.., block] */
} Packed;

/* C(y) in the form that is sent; y becomes y - C(y). live: bool; share: f32, 1 / the live elements
   of a block. The share is the first factor, since it is known first: one kernel then makes scale
   and error. */
static Packed pack(Onebit *onebit, ValueId *y, ValueId live, ValueId share) {
  Module *m = onebit->u.m;
  Fn *f = onebit->u.f;
  ValueId squares =
      ir_reduce(m, f, OP_sum, bin(&onebit->u, OP_mul, *y, *y), 1, &onebit->in.dim, (Loc){0});
  Packed packed = {.scale =
                       ir_unary(m, f, OP_sqrt, bin(&onebit->u, OP_mul, share, squares), (Loc){0})};
  ValueId plus = bin(&onebit->u, OP_le, num(&onebit->u, 0), *y);
  Group group = group_map(1, &onebit->in.dim, 1, &onebit->byte.dim);
  Type t = type_with_elem(*value_type(f, plus), ELEM_u8);
  t.axis[type_find(&t, onebit->in.dim)] = onebit->byte;
  packed.bits = emit_typed(m, f, OP_pack_bits, 1, &plus, &group, t, (Loc){0});
  *y = zero_unless(onebit, live,
                   bin(&onebit->u, OP_sub, *y, signed_scale(onebit, plus, packed.scale)));
  return packed;
}

static ValueId unpack(Onebit *onebit, Packed packed) {
  Group group = group_map(1, &onebit->byte.dim, 1, &onebit->in.dim);
  Type t = type_with_elem(*value_type(onebit->u.f, packed.bits), ELEM_bool);
  t.axis[type_find(&t, onebit->byte.dim)] = onebit->in;
  ValueId plus =
      emit_typed(onebit->u.m, onebit->u.f, OP_unpack_bits, 1, &packed.bits, &group, t, (Loc){0});
  return signed_scale(onebit, plus, packed.scale);
}

static Packed sent(Onebit *onebit, Packed packed, int n, const Str *from, const Str *to) {
  return (Packed){renamed(onebit, packed.bits, n, from, to),
                  renamed(onebit, packed.scale, n, from, to)};
}

/* ---- the exchange ---- */
static ValueId of_chunks(Onebit *onebit, ValueId v) {
  return renamed(onebit, v, 1, &onebit->all, &onebit->chunk.dim);
}

/* The value from which unit_of derives the unit, positive where an element is live: the unit
   itself, if ranks keep it, and else v. */
static ValueId second_of(Onebit *onebit, uint32_t i) {
  Update *u = &onebit->u;
  return ir_load(u->m, u->f, state(u, u->m->globals.at[i], onebit->keeps_units ? "unit" : "v"),
                 (Loc){0});
}

static ValueId is_live(Onebit *onebit, uint32_t i) {
  return bin(&onebit->u, OP_lt, num(&onebit->u, 0), second_of(onebit, i));
}

static ValueId live_elements(Onebit *onebit) {
  Update *u = &onebit->u;
  ValueId *v = ARENA_ARRAY(u->m->arena, ValueId, u->globals + 1);
  for (uint32_t i = 0; i < u->globals; i++)
    v[i] = onebit->gradient[i] == NO_VALUE ? NO_VALUE : is_live(onebit, i);
  return onebit_flatten(onebit, v, false);
}

/* The divisor of momentum i in the step. */
static ValueId unit_of(Onebit *onebit, uint32_t i) {
  Update *u = &onebit->u;
  ValueId v = second_of(onebit, i);
  if (onebit->keeps_units) return v;
  ValueId root = bin(u, OP_div, un(u, OP_sqrt, v), u->root);
  return bin(u, OP_add, root, num(u, u->eps));
}

static ValueId within(Update *u, ValueId v, double most) {
  return bin(u, OP_max, bin(u, OP_min, v, num(u, most)), num(u, -most));
}

/* within((1 - beta1) W g_i / d) */
static ValueId new_terms(Onebit *onebit) {
  Module *m = onebit->u.m;
  Update *u = &onebit->u;
  ValueId *y = ARENA_ARRAY(m->arena, ValueId, u->globals + 1);
  double share = (1 - u->betas[0]) * (double)onebit->worker.size;
  for (uint32_t i = 0; i < u->globals; i++) {
    y[i] = NO_VALUE;
    if (onebit->gradient[i] == NO_VALUE) continue;
    ValueId d = onebit->gradient[i];
    if (u->coefficient != NO_VALUE) d = bin(u, OP_mul, d, u->coefficient);
    d = bin(u, OP_div, times(u, d, share), unit_of(onebit, i));
    d = within(u, d, sqrt((double)onebit->in.size));
    y[i] = zero_unless(onebit, is_live(onebit, i), d);
  }
  return onebit_flatten(onebit, y, true);
}

/* A state of chunks of blocks: `first` before their dims; each block has elements, bytes, or one
   number. */
static Global *block_state(Onebit *onebit, const char *name, Elem e, const Axis *first, int n,
                           const Axis *each) {
  Type t = type_of(e, n, first);
  t.axis[t.rank++] = onebit->block;
  if (each) t.axis[t.rank++] = *each;
  return update_state(onebit->u.m, name, t);
}

static Axis all_chunks(const Onebit *onebit) { return (Axis){onebit->all, onebit->chunk.size}; }

static Global *errors_of_workers(Onebit *onebit) {
  Axis sides[] = {onebit->worker, onebit->chunk};
  return block_state(onebit, "onebit.error", ELEM_f32, sides, 2, &onebit->in);
}

static Global *errors_of_owners(Onebit *onebit) {
  Axis owners = {onebit->owner, onebit->chunk.size};
  return block_state(onebit, "onebit.error.of.owner", ELEM_f32, &owners, 1, &onebit->in);
}

typedef struct Momentum { /* as all ranks received it: bits, and a scale per block */
  Global *bits, *scale;
} Momentum;

static Momentum momentum_state(Onebit *onebit) {
  Axis all = all_chunks(onebit);
  return (Momentum){block_state(onebit, "onebit.momentum", ELEM_u8, &all, 1, &onebit->byte),
                    block_state(onebit, "onebit.momentum.scale", ELEM_f32, &all, 1, NULL)};
}

typedef enum Made { NEW_ERROR, NEW_ERROR_OF_OWNER, NEW_BITS, NEW_SCALE, NEW_MOMENTUM, MADE } Made;

typedef struct SignExchange { /* [chunk, block, in] of everything, a bucket of blocks at a time */
  Momentum momentum;
  Global *mine, *servers;
  ValueId live, terms;
  int n;
  OnebitBucket bucket[ONEBIT_BUCKETS];
  ValueId live_of[ONEBIT_BUCKETS], share_of[ONEBIT_BUCKETS];
  Packed sent[ONEBIT_BUCKETS]; /* as owners get it */
  ValueId made[MADE][ONEBIT_BUCKETS];
} SignExchange;

static ValueId part_of(Onebit *onebit, const SignExchange *signs, int i, Global *state) {
  ValueId all = ir_load(onebit->u.m, onebit->u.f, state, (Loc){0});
  return onebit_part(onebit, &signs->bucket[i], all);
}

/* The new value of a part of the state, if the step is fine. */
static ValueId new_part(Onebit *onebit, const SignExchange *signs, int i, Global *state,
                        ValueId v) {
  ValueId fine = onebit->u.fine;
  return fine == NO_VALUE ? v : choose(onebit, fine, v, part_of(onebit, signs, i, state));
}

static ValueId whole_of(Onebit *onebit, const SignExchange *signs, Made made) {
  return onebit_join(onebit, signs->bucket, signs->made[made], signs->n);
}

static void keep(Onebit *onebit, const SignExchange *signs, Global *state, Made made) {
  ir_store(onebit->u.m, onebit->u.f, state, whole_of(onebit, signs, made), (Loc){0});
}

static ValueId old_momentum(Onebit *onebit, const SignExchange *signs, int i) {
  Packed packed = {.bits = part_of(onebit, signs, i, signs->momentum.bits),
                   .scale = part_of(onebit, signs, i, signs->momentum.scale)};
  return times(&onebit->u, of_chunks(onebit, unpack(onebit, packed)), onebit->u.betas[0]);
}

/* Workers send the signs of bucket i to its owners. */
static void send_signs(Onebit *onebit, SignExchange *signs, int i) {
  Update *u = &onebit->u;
  Str from[] = {onebit->worker.dim, onebit->chunk.dim}, to[] = {onebit->sender, onebit->owner};
  ValueId live = onebit_part(onebit, &signs->bucket[i], signs->live), one = num(u, 1);
  ValueId many = ir_reduce(u->m, u->f, OP_sum, to_f32(u, live), 1, &onebit->in.dim, (Loc){0});
  ValueId share = bin(u, OP_div, one, bin(u, OP_max, many, one));
  ValueId old = zero_unless(onebit, live, old_momentum(onebit, signs, i)),
          y = bin(u, OP_add, onebit_part(onebit, &signs->bucket[i], signs->terms), old);
  y = bin(u, OP_add, y, part_of(onebit, signs, i, signs->mine));
  signs->sent[i] = sent(onebit, pack(onebit, &y, live, share), 2, from, to);
  signs->live_of[i] = live, signs->share_of[i] = share;
  signs->made[NEW_ERROR][i] = new_part(onebit, signs, i, signs->mine, y);
}

/* Owners send all ranks the signs of the mean of the received values. */
static void send_means(Onebit *onebit, SignExchange *signs, int i) {
  Update *u = &onebit->u;
  Str from = onebit->chunk.dim, to = onebit->owner;
  ValueId mean =
      ir_reduce(u->m, u->f, OP_sum, unpack(onebit, signs->sent[i]), 1, &onebit->sender, (Loc){0});
  mean = times(u, mean, 1.0 / (double)onebit->worker.size);
  ValueId own = renamed(onebit, signs->live_of[i], 1, &from, &to),
          share = renamed(onebit, signs->share_of[i], 1, &from, &to);
  ValueId z =
      zero_unless(onebit, own, bin(u, OP_add, mean, part_of(onebit, signs, i, signs->servers)));
  Packed packed = sent(onebit, pack(onebit, &z, own, share), 1, &to, &onebit->all);
  signs->made[NEW_ERROR_OF_OWNER][i] = new_part(onebit, signs, i, signs->servers, z);
  packed.bits = new_part(onebit, signs, i, signs->momentum.bits, packed.bits);
  packed.scale = new_part(onebit, signs, i, signs->momentum.scale, packed.scale);
  signs->made[NEW_BITS][i] = packed.bits, signs->made[NEW_SCALE][i] = packed.scale;
  /* Read as it is kept: one message of bits, one of scales. */
  signs->made[NEW_MOMENTUM][i] = unpack(onebit, packed);
}

static ValueId said(Onebit *onebit, Momentum momentum) {
  Update *u = &onebit->u;
  Packed packed = {.bits = ir_load(u->m, u->f, momentum.bits, (Loc){0}),
                   .scale = ir_load(u->m, u->f, momentum.scale, (Loc){0})};
  return unpack(onebit, packed);
}

/* The new momentum of all parameters in units of the step, [all, block, in], of live elements. */
static ValueId exchange(Onebit *onebit) {
  SignExchange signs = {.momentum = momentum_state(onebit), .mine = errors_of_workers(onebit)};
  signs.servers = errors_of_owners(onebit);
  signs.n = onebit_buckets(onebit, signs.bucket);
  signs.live = live_elements(onebit), signs.terms = new_terms(onebit);
  for (int i = 0; i < signs.n; i++) send_signs(onebit, &signs, i);
  for (int i = 0; i < signs.n; i++) send_means(onebit, &signs, i);
  keep(onebit, &signs, signs.mine, NEW_ERROR);
  keep(onebit, &signs, signs.servers, NEW_ERROR_OF_OWNER);
  keep(onebit, &signs, signs.momentum.bits, NEW_BITS);
  keep(onebit, &signs, signs.momentum.scale, NEW_SCALE);
  return whole_of(onebit, &signs, NEW_MOMENTUM);
}

static void apply(Onebit *onebit, const ValueId *momentum) {
  Update *u = &onebit->u;
  for (uint32_t i = 0; i < u->globals; i++) {
    if (momentum[i] == NO_VALUE) continue;
    Global *global = u->m->globals.at[i];
    u->loc = global->loc;
    ValueId w = load(u, global);
    w = shrunk(u, global, w);
    ValueId step = bin(u, OP_mul, zero_unless(onebit, is_live(onebit, i), momentum[i]), u->rate);
    put(u, global, bin(u, OP_sub, w, step));
  }
}

/* ---- from warm-up to frozen ---- */
/* An entry of the same parameters that knows no gradients. */
static Onebit beside(const Onebit *onebit, Phase phase) {
  Module *m = onebit->u.m;
  Onebit other = *onebit;
  other.u = (Update){.m = m, .globals = onebit->u.globals, .f = fn_new(m, FN_ENTRY, NULL)};
  phase_mark(m, other.u.f, phase, -1);
  update_begin(&other.u);
  other.u.root = ir_load(m, other.u.f, root_state(m), (Loc){0});
  return other;
}

/* d as states, -1 for elements that are not live. */
static void add_unit_entry(const Onebit *onebit) {
  Onebit entry = beside(onebit, PHASE_derive);
  Update *u = &entry.u;
  entry.keeps_units = false;
  for (uint32_t i = 0; i < u->globals; i++) {
    if (entry.gradient[i] == NO_VALUE) continue;
    Global *unit = state(u, u->m->globals.at[i], "unit");
    unit->derived = true;
    ir_store(u->m, u->f, unit, choose(&entry, is_live(&entry, i), unit_of(&entry, i), num(u, -1)),
             (Loc){0});
  }
  module_add(u->m, u->f);
}

/* The momentum of all parameters to be sent, beta1 m / d. */
static ValueId momentum_to_say(Onebit *entry) {
  Update *u = &entry->u;
  ValueId *y = ARENA_ARRAY(u->m->arena, ValueId, u->globals + 1);
  for (uint32_t i = 0; i < u->globals; i++) {
    y[i] = NO_VALUE;
    if (entry->gradient[i] == NO_VALUE) continue;
    ValueId m = ir_load(u->m, u->f, state(u, u->m->globals.at[i], "m"), (Loc){0});
    y[i] = bin(u, OP_div, times(u, m, u->betas[0]), unit_of(entry, i));
  }
  return onebit_flatten(entry, y, false);
}

static void set_begun(Update *u, int begun) {
  ir_store(u->m, u->f, update_state(u->m, "onebit.begun", type_scalar(ELEM_i32)),
           ir_const(u->m, u->f, ELEM_i32, begun, (Loc){0}), (Loc){0});
}

/* The live elements of all parameters, and their units, as blocks of workers or of owners. */
typedef struct UnitLine {
  ValueId live, unit;
} UnitLine;

static UnitLine unit_line(Onebit *entry) {
  Update *u = &entry->u;
  ValueId *unit = ARENA_ARRAY(u->m->arena, ValueId, u->globals + 1);
  for (uint32_t i = 0; i < u->globals; i++)
    unit[i] = entry->gradient[i] == NO_VALUE ? NO_VALUE : unit_of(entry, i);
  return (UnitLine){live_elements(entry), onebit_flatten(entry, unit, false)};
}

static UnitLine of_owners(Onebit *entry, UnitLine line) {
  return (UnitLine){renamed(entry, line.live, 1, &entry->chunk.dim, &entry->owner),
                    renamed(entry, line.unit, 1, &entry->chunk.dim, &entry->owner)};
}

/* Errors out of the units that they are in (mul), or into those of now (div). */
static ValueId turned(Onebit *entry, Global *errors, OpCode c, UnitLine line) {
  Update *u = &entry->u;
  ValueId e = ir_load(u->m, u->f, errors, (Loc){0});
  return zero_unless(entry, line.live, bin(u, c, e, line.unit));
}

/* onebit.error: beta1 m / d, of each worker; onebit.begun: 1, steps are frozen ones from now on.
   If second moments are refreshed, errors from before exist as well, and the momentum is in m. */
static void add_freeze_entry(const Onebit *onebit) {
  Onebit entry = beside(onebit, PHASE_freeze);
  Update *u = &entry.u;
  Global *mine = errors_of_workers(&entry), *scale = momentum_state(&entry).scale;
  ValueId one = zero_unless(&entry, live_elements(&entry), momentum_to_say(&entry));
  one = emit_spread(u->m, u->f, one, mine->type, (Loc){0});
  if (renews(u->m)) {
    UnitLine line = unit_line(&entry);
    Global *servers = errors_of_owners(&entry);
    one = bin(u, OP_add, one, turned(&entry, mine, OP_div, line));
    ir_store(u->m, u->f, servers, turned(&entry, servers, OP_div, of_owners(&entry, line)),
             (Loc){0});
    ir_store(u->m, u->f, scale, emit_full(u->m, u->f, scale->type, 0, (Loc){0}), (Loc){0});
  }
  ir_store(u->m, u->f, mine, one, (Loc){0});
  set_begun(u, 1);
  module_add(u->m, u->f);
}

/* Runs before a step that refreshes second moments: m = u d from the exchanged u, errors times d,
   since the step changes d. */
static void add_thaw_entry(const Onebit *onebit) {
  Onebit entry = beside(onebit, PHASE_thaw);
  Update *u = &entry.u;
  Momentum momentum = momentum_state(&entry);
  ValueId *m = ARENA_ARRAY(u->m->arena, ValueId, u->globals + 1);
  UnitLine line = unit_line(&entry);
  Global *mine = errors_of_workers(&entry), *servers = errors_of_owners(&entry);
  onebit_pieces(&entry, said(&entry, momentum), m);
  for (uint32_t i = 0; i < u->globals; i++) {
    if (entry.gradient[i] == NO_VALUE) continue;
    ValueId whole = bin(u, OP_mul, m[i], unit_of(&entry, i));
    ir_store(u->m, u->f, state(u, u->m->globals.at[i], "m"),
             zero_unless(&entry, is_live(&entry, i), whole), (Loc){0});
  }
  ir_store(u->m, u->f, mine, turned(&entry, mine, OP_mul, line), (Loc){0});
  ir_store(u->m, u->f, servers, turned(&entry, servers, OP_mul, of_owners(&entry, line)), (Loc){0});
  set_begun(u, 0);
  module_add(u->m, u->f);
}

/* ---- the entry ---- */
static ValueId norm_of_terms(Onebit *onebit) {
  Update *u = &onebit->u;
  ValueId all = NO_VALUE;
  for (uint32_t i = 0; i < u->globals; i++) {
    if (onebit->gradient[i] == NO_VALUE) continue;
    ValueId d = onebit->gradient[i], one = emit_sum_all(u->m, u->f, bin(u, OP_mul, d, d), u->loc);
    all = all == NO_VALUE ? one : bin(u, OP_add, all, one);
  }
  return all == NO_VALUE ? all : un(u, OP_sqrt, all);
}

static int64_t batch_of(const Fn *f, Str batch) {
  for (uint32_t i = 0; i < f->values.n; i++) {
    int at = type_find(&f->values.at[i].type, batch);
    if (at >= 0) return f->values.at[i].type.axis[at].size;
  }
  return 0;
}

/* The workers answer to the rules of Batch, before it. */
static void lead_batch(Onebit *onebit, StrList *dims) {
  Module *m = onebit->u.m;
  StrList all = {0};
  for (uint32_t i = 0; i < dims->n; i++) {
    if (!strcmp(dims->at[i], "Batch")) {
      vec_push(m->arena, all, onebit->worker.dim);
      vec_push(m->arena, all, onebit->owner);
    }
    vec_push(m->arena, all, dims->at[i]);
  }
  *dims = all;
}

static void place_workers(Onebit *onebit) {
  for (uint32_t i = 0; i < onebit->u.m->rules.n; i++) {
    lead_batch(onebit, &onebit->u.m->rules.at[i].dims);
    lead_batch(onebit, &onebit->u.m->rules.at[i].otherwise);
  }
}

static Str dim_named(Module *m, const char *name) { return name_made(m, "%s", name); }

static void lay_out(Onebit *onebit) {
  Module *m = onebit->u.m;
  int64_t in = module_whole(m, "train.optim.block"), w = onebit->worker.size;
  for (uint32_t i = 0; i < onebit->u.globals; i++)
    if (onebit->gradient[i] != NO_VALUE) onebit->count += type_count(&m->globals.at[i]->type);
  onebit->in = (Axis){dim_named(m, "onebit'in"), in};
  onebit->byte = (Axis){dim_named(m, "onebit'byte"), in / BITS};
  onebit->chunk = (Axis){dim_named(m, "onebit'chunk"), w};
  onebit->block = (Axis){dim_named(m, "onebit'block"), (onebit->count + in * w - 1) / (in * w)};
  onebit->sender = dim_named(m, "onebit'sender"), onebit->owner = dim_named(m, "onebit'owner");
  onebit->all = dim_named(m, "onebit'all"), onebit->flat = dim_named(m, "onebit'flat");
  onebit->keeps_units = plan_zero_stage(m) && mesh_ranks(m) > 1;
}

/* The first frozen step, if it is known: a number of steps, or a share of all. */
static int64_t frozen_from(const Module *m) {
  double steps = train_steps(m), freeze = module_amount(m, "train.optim.freeze");
  return onebit_window(m) ? -1 : (int64_t)(freeze < 1 ? ceil(freeze * steps - 1e-9) : freeze);
}

/* The workers and the batch that they share; false: E0703 was given. */
static bool find_workers(Module *m, const Fn *step, Axis *worker, int64_t *batch) {
  int64_t w = module_whole(m, "train.optim.workers");
  if (!w) w = mesh_batch_ranks(m);
  *batch = batch_of(step, intern(m->ctx->names, "Batch"));
  *worker = (Axis){dim_named(m, WORKER_DIM), w};
  if (*batch >= 1 && *batch % w == 0) return true;
  diag_at(m->ctx->diag, "E0703", (Span){0}, "a batch of %lld has no equal shares for %lld workers",
          (long long)*batch, (long long)w);
  return false;
}

Fn *onebit_warm_up(Module *m, const Fn *step, ValueId *gradient, ValueId *loss) {
  Axis worker;
  int64_t batch;
  if (!find_workers(m, step, &worker, &batch)) return NULL;
  Fn *eval = entry_of(m, "eval"),
     *f = workers_entry(m, step, "step", batch, worker, gradient, loss);
  Fn *parts = f && eval ? workers_entry(m, eval, "eval", batch, worker, NULL, NULL) : NULL;
  if (!f || (eval && !parts)) return NULL;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (gradient[i] != NO_VALUE)
      gradient[i] = ir_reduce(m, f, OP_sum, gradient[i], 1, &worker.dim, (Loc){0});
  if (eval) module_replace(m, eval, parts);
  module_set(m, "made.workers", "%lld", (long long)worker.size);
  return f;
}

static void freeze(Onebit *onebit) {
  ValueId *momentum = ARENA_ARRAY(onebit->u.m->arena, ValueId, onebit->u.globals + 1);
  onebit->u.root = ir_load(onebit->u.m, onebit->u.f, root_state(onebit->u.m), (Loc){0});
  onebit_pieces(onebit, exchange(onebit), momentum);
  apply(onebit, momentum);
  add_freeze_entry(onebit);
  if (renews(onebit->u.m)) add_thaw_entry(onebit);
  if (onebit->keeps_units) add_unit_entry(onebit);
}

Fn *onebit_entry(Module *m, const Fn *step) {
  int64_t batch;
  Onebit onebit = {.u = {.m = m, .globals = m->globals.n, .loss = NO_VALUE}};
  if (!find_workers(m, step, &onebit.worker, &batch)) return NULL;
  onebit.gradient = ARENA_ARRAY(m->arena, ValueId, m->globals.n + 1);
  onebit.u.f = workers_entry(m, step, phase_entry_name(PHASE_frozen), batch, onebit.worker,
                             onebit.gradient, &onebit.u.loss);
  if (!onebit.u.f) return NULL;
  phase_mark(m, onebit.u.f, PHASE_frozen, frozen_from(m));
  update_begin(&onebit.u);
  lay_out(&onebit);
  place_workers(&onebit);
  if (onebit_window(m)) onebit_look(m, onebit.u.globals, onebit.gradient);
  for (uint32_t i = 0; i < onebit.u.globals; i++)
    if (onebit.gradient[i] != NO_VALUE)
      onebit.gradient[i] = update_delivered(&onebit.u, onebit.gradient[i]);
  if (update_wants_norm(&onebit.u)) update_guarded(&onebit.u, norm_of_terms(&onebit), false);
  update_adamw_begin(&onebit.u);
  if (onebit.count) freeze(&onebit);
  guard_output(m, onebit.u.f, "lr", to_f32(&onebit.u, onebit.u.lr));
  return onebit.u.f;
}

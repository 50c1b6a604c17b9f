/* Noise in the operands of sums, by which `shardc verify` measures the effect of rounding (CESTAC,
   Vignes, 1993). In f32, every op that adds up (sums, products, attention, scatters) reads each
   operand as x + x (2 r - 1) share, where r is a random number of the operand's own sequence. An
   exact 0 stays 0; a sum whose terms cancel deviates by as much as another order of its terms
   could cause. Two runs of the same step with different noise differ by the part of the model's
   numbers that is due to rounding alone.

   Loop bodies get the scalar as an invariant operand; each body is written once. */
#include "noise.h"
#include "passes/base/rebuild.h"

typedef struct NoisyBody {
  const Fn *from;
  Fn *to;
} NoisyBody;

typedef struct Noise {
  Module *m;
  Global *seed;
  double share;
  int64_t sites; /* number of operands so far; each has a random sequence of its own */
  VEC(NoisyBody) bodies;
} Noise;

typedef struct NoisyFn { /* a function that is written */
  Noise *all;
  Rebuild r;
  ValueId seed;
} NoisyFn;

static bool adds_up(const Op *o) {
  OpFamily family = op_family(o->code);
  return o->code == OP_sum || family == FAMILY_SCAN || family == FAMILY_CONTRACT ||
         family == FAMILY_SCATTER || family == FAMILY_ATTENTION;
}

static ValueId random_of(NoisyFn *fn, const Type *t, Loc loc) {
  Module *m = fn->all->m;
  ValueId in[] = {fn->seed, ir_const(m, fn->r.to, ELEM_i32, 0, loc),
                  ir_const(m, fn->r.to, ELEM_i64, 0, loc)};
  return ir_rand(m, fn->r.to, in, t, ++fn->all->sites, loc);
}

static ValueId noisy(NoisyFn *fn, ValueId value, Loc loc) {
  Module *m = fn->all->m;
  Fn *f = fn->r.to;
  Type t = *value_type(f, value);
  if (t.elem != ELEM_f32 || !t.rank) return value;
  ValueId width = ir_const(m, f, ELEM_f32, 2 * fn->all->share, loc),
          least = ir_const(m, f, ELEM_f32, fn->all->share, loc),
          off = ir_binary(m, f, OP_mul, random_of(fn, &t, loc), width, loc);
  off = ir_binary(m, f, OP_mul, ir_binary(m, f, OP_sub, off, least, loc), value, loc);
  return ir_binary(m, f, OP_add, value, off, loc);
}

static Fn *noisy_body(Noise *noise, const Fn *from, uint32_t carried);

static void write_loop(NoisyFn *fn, const Op *o) {
  Module *m = fn->all->m;
  LoopShape shape = loop_shape(o);
  ValueId *in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i + (i >= shape.carry)] = fn->r.map[o->in[i]];
  in[shape.carry] = fn->seed;
  shape.invariant++;
  Fn *body = noisy_body(fn->all, o->callee, shape.carry);
  ValueId out = rebuild_loop(m, fn->r.to, body, shape, in, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) fn->r.map[o->out + i] = out + i;
}

static void write_sum(NoisyFn *fn, const Op *o) {
  ValueId *in = ARENA_ARRAY(fn->all->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = noisy(fn, fn->r.map[o->in[i]], o->loc);
  Op *copy = rebuild_op(&fn->r, o);
  for (uint32_t i = 0; i < o->nin; i++) copy->in[i] = in[i];
}

static void write_ops(NoisyFn *fn) {
  const Fn *from = fn->r.from;
  EACH_OP (from, o) {
    if (o->code == OP_loop) write_loop(fn, o);
    else if (adds_up(o)) write_sum(fn, o);
    else rebuild_op(&fn->r, o);
  }
}

/* Its arguments are the round, the carried values, now the scalar, and the others. */
static Fn *noisy_body(Noise *noise, const Fn *from, uint32_t carried) {
  for (uint32_t i = 0; i < noise->bodies.n; i++)
    if (noise->bodies.at[i].from == from) return noise->bodies.at[i].to;
  Module *m = noise->m;
  NoisyFn fn = {noise, {m, from, fn_like(m, from), value_map(m, from)}, NO_VALUE};
  for (uint32_t i = 0; i <= from->args.n; i++) {
    if (i == carried + 1) fn.seed = fn_arg(m, fn.r.to, noise->seed->type);
    if (i == from->args.n) break;
    ValueId arg = from->args.at[i];
    fn.r.map[arg] = fn_arg(m, fn.r.to, *value_type(from, arg));
  }
  write_ops(&fn);
  rebuild_results(&fn.r);
  vec_push(m->arena, noise->bodies, ((NoisyBody){from, fn.r.to}));
  return fn.r.to;
}

void noise_add(Module *m, double share) {
  Noise noise = {.m = m, .share = share};
  noise.seed = module_add_global(m, GLOBAL_SCALAR, intern(m->ctx->names, NOISE_SCALAR),
                                 type_scalar(ELEM_i64), (Loc){0});
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (!entry_trains(f)) continue;
    NoisyFn fn = {&noise, rebuild_begin(m, f), NO_VALUE};
    fn.seed = ir_load(m, fn.r.to, noise.seed, (Loc){0});
    write_ops(&fn);
    module_replace(m, f, fn.r.to);
  }
  module_collect(m);
}

/* Entry `init`: the value of every parameter before the first step. Normal numbers come from
   uniform ones through the inverse error function, one uniform number per element, keyed by the
   parameter's path and counted by the element's logical index: the same on any mesh. */
#include "lower_build.h"
#include <math.h>

typedef struct Maker {
  Module *m;
  Fn *f;
  ValueId seed, step, base;
  Loc loc;
  Type type;
} Maker;

static ValueId num(Maker *maker, double v) {
  return ir_const(maker->m, maker->f, ELEM_f32, v, maker->loc);
}
static ValueId bin(Maker *maker, OpCode c, ValueId a, ValueId b) {
  return ir_binary(maker->m, maker->f, c, a, b, maker->loc);
}

/* A number times `factor`, or one number per round. */
static ValueId scaled(Maker *maker, const Val *v, double factor) {
  if (!v->rounds) return num(maker, v->number * factor);
  ValueId all = emit_rounds(maker->m, maker->f, v, maker->loc);
  return factor == 1 ? all : bin(maker, OP_mul, all, num(maker, factor));
}

static bool zero(const Val *v) { return !v->rounds && v->number == 0; }

static ValueId uniform(Maker *maker, const char *path) {
  const ValueId in[] = {maker->seed, maker->step, maker->base};
  return ir_rand(maker->m, maker->f, in, &maker->type, random_key(path), maker->loc);
}

/* u in (0, 1) -> 2u - 1 */
static ValueId centred(Maker *maker, ValueId u) {
  return bin(maker, OP_sub, bin(maker, OP_mul, u, num(maker, 2)), num(maker, 1));
}

static ValueId shifted(Maker *maker, ValueId v, const Val *by) {
  return zero(by) ? v : bin(maker, OP_add, v, scaled(maker, by, 1));
}

static ValueId random_value(Maker *maker, const Init *init, const char *path) {
  ValueId u = uniform(maker, path);
  if (init->kind == INIT_UNIFORM) {
    ValueId low = scaled(maker, init->a, 1),
            width = bin(maker, OP_sub, scaled(maker, init->b, 1), low);
    return bin(maker, OP_add, bin(maker, OP_mul, u, width), low);
  }
  ValueId c = centred(maker, u);
  if (init->kind == INIT_TRUNCATED) c = bin(maker, OP_mul, c, num(maker, erf(sqrt(2))));
  ValueId normal = ir_unary(maker->m, maker->f, OP_erfinv, c, maker->loc);
  return shifted(maker, bin(maker, OP_mul, normal, scaled(maker, init->a, sqrt(2))), init->b);
}

static ValueId constant_value(Maker *maker, const Val *v) {
  ValueId id = scaled(maker, v, 1);
  const Type *have = value_type(maker->f, id);
  Axis missing[MAX_RANK];
  int n = 0;
  for (int i = 0; i < maker->type.rank; i++)
    if (type_find(have, maker->type.axis[i].dim) < 0) missing[n++] = maker->type.axis[i];
  return ir_expand(maker->m, maker->f, id, n, missing, maker->loc);
}

static Global *scalar(Module *m, const char *name, Elem e) {
  Str key = intern(m->ctx->names, name);
  Global *global = module_global(m, key);
  return global ? global : module_add_global(m, GLOBAL_SCALAR, key, type_scalar(e), (Loc){0});
}

void lower_init(Build *build, Eval *e) {
  Module *m = build->m;
  Maker maker = {.m = m, .f = fn_new(m, FN_ENTRY, intern(m->ctx->names, "init"))};
  maker.seed = ir_load(m, maker.f, scalar(m, "seed", ELEM_i64), (Loc){0});
  maker.step = ir_const(m, maker.f, ELEM_i32, 0, (Loc){0});
  maker.base = ir_const(m, maker.f, ELEM_i64, 0, (Loc){0});
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *param = e->params.at[i];
    Global *global = module_global(m, param->path);
    maker.loc = global->loc, maker.type = global->type;
    ValueId v = param->init.kind == VAL_INIT ? random_value(&maker, param->init.init, param->path)
                                             : constant_value(&maker, &param->init);
    ir_store(m, maker.f, global, v, maker.loc);
  }
  module_add(m, maker.f);
}

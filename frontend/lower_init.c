/* Entry `init`: the value of every parameter before the first step. Normal numbers come from
   uniform ones through the inverse error function, one uniform number per element, keyed by the
   parameter's path and counted by the element's logical index: the same on any mesh. */
#include "frontend/lower_build.h"
#include <math.h>

typedef struct Maker {
  Module *m;
  Fn *f;
  ValueId seed, step, base;
  Loc loc;
  Type type;
} Maker;

static ValueId num(Maker *k, double v) { return ir_const(k->m, k->f, ELEM_f32, v, k->loc); }
static ValueId bin(Maker *k, OpCode c, ValueId a, ValueId b) {
  return ir_binary(k->m, k->f, c, a, b, k->loc);
}

/* A number times `factor`, or one number per round. */
static ValueId scaled(Maker *k, const Val *v, double factor) {
  if (!v->rounds) return num(k, v->number * factor);
  ValueId all = emit_rounds(k->m, k->f, v, k->loc);
  return factor == 1 ? all : bin(k, OP_mul, all, num(k, factor));
}

static bool zero(const Val *v) { return !v->rounds && v->number == 0; }

static ValueId uniform(Maker *k, const char *path) {
  const ValueId in[] = {k->seed, k->step, k->base};
  return emit_rand_op(k->m, k->f, in, &k->type, path, k->loc);
}

/* u in (0, 1) -> 2u - 1 */
static ValueId centred(Maker *k, ValueId u) {
  return bin(k, OP_sub, bin(k, OP_mul, u, num(k, 2)), num(k, 1));
}

static ValueId shifted(Maker *k, ValueId v, const Val *by) {
  return zero(by) ? v : bin(k, OP_add, v, scaled(k, by, 1));
}

static ValueId random_value(Maker *k, const Init *init, const char *path) {
  ValueId u = uniform(k, path);
  if (init->kind == INIT_UNIFORM) {
    ValueId low = scaled(k, init->a, 1), width = bin(k, OP_sub, scaled(k, init->b, 1), low);
    return bin(k, OP_add, bin(k, OP_mul, u, width), low);
  }
  ValueId c = centred(k, u);
  if (init->kind == INIT_TRUNCATED) c = bin(k, OP_mul, c, num(k, erf(sqrt(2))));
  ValueId normal = ir_unary(k->m, k->f, OP_erfinv, c, k->loc);
  return shifted(k, bin(k, OP_mul, normal, scaled(k, init->a, sqrt(2))), init->b);
}

static ValueId constant_value(Maker *k, const Val *v) {
  ValueId id = scaled(k, v, 1);
  const Type *have = value_type(k->f, id);
  Axis missing[MAX_RANK];
  int n = 0;
  for (int i = 0; i < k->type.rank; i++)
    if (type_find(have, k->type.axis[i].dim) < 0) missing[n++] = k->type.axis[i];
  return ir_expand(k->m, k->f, id, n, missing, k->loc);
}

static Global *scalar(Module *m, const char *name, Elem e) {
  Str key = intern(m->ctx->names, name);
  Global *g = module_global(m, key);
  return g ? g : module_add_global(m, GLOBAL_SCALAR, key, type_scalar(e), (Loc){0});
}

void lower_init(Build *b, Eval *e) {
  Module *m = b->m;
  Maker k = {.m = m, .f = fn_new(m, FN_ENTRY, intern(m->ctx->names, "init"))};
  k.seed = ir_load(m, k.f, scalar(m, "seed", ELEM_i64), (Loc){0});
  k.step = ir_const(m, k.f, ELEM_i32, 0, (Loc){0});
  k.base = ir_const(m, k.f, ELEM_i64, 0, (Loc){0});
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *p = e->params.at[i];
    Global *g = module_global(m, p->path);
    k.loc = g->loc, k.type = g->type;
    ValueId v = p->init.kind == VAL_INIT ? random_value(&k, p->init.init, p->path)
                                         : constant_value(&k, &p->init);
    ir_store(m, k.f, g, v, k.loc);
  }
  module_add(m, k.f);
}

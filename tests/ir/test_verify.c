/* The verifier: names, SSA form, ops and their types, attributes, settings; what no text can say is
   broken by hand. The files test_verify_*.c break the constraints of later passes. */
#include "broken.h"

/* For the body with the lines of `types` */
static const char args[] = "body @b(%0 : f32[A:2, B:3], %1 : f32[B:3], %2 : i32[A:2], %3 : "
                           "bool[B:3], %4 : f64[A:2], %5 : f32[C:4], "
                           "%6 : i32[], %7 : f32[A:3], %8 : f32[S:4, D:2], %9 : f32[K:5, D:2], %10 "
                           ": bool[S:4, K:5], %11 : f32[S:4]) {\n";

static const Broken types[] = {
    {"group-c1", "E1102", "%20 = add[A] %0, %0 : f32[A:2, B:3]"},
    {"group-c1", "E1102", "%20 = sum[A; B] %0 : f32[]"},
    {"group-c2", "E1102", "%20 = sum[A -> B] %0 : f32[B:3]"},
    {"group-c2", "E1102", "%20 = slice[A] %0 : f32[A:2, B:3]"},
    {"group-c3", "E1102", "%20 = argmax[A, B] %0 : i32[]"},
    {"group-c4", "E1102", "%20 = sum[A, A] %0 : f32[B:3]"},
    {"group-c5", "E1102", "%20 = sum[C] %0 : f32[A:2, B:3]"},
    {"elem-c1", "E1102", "%20 = add %1, %7 : f32[A:3, B:3]"},
    {"elem-c1", "E1102", "%20 = add %0, %7 : f32[A:2, B:3]"},
    {"elem-c2", "E1102", "%20 = add %0, %4 : f32[A:2, B:3]"},
    {"elem-c3", "E1102", "%20 = exp %2 : i32[A:2]"},
    {"elem-c3", "E1102", "%20 = add %3, %3 : bool[B:3]"},
    {"elem-c3", "E1102", "%20 = and %0, %0 : f32[A:2, B:3]"},
    {"elem-c4", "E1102", "%20 = where %1, %1, %1 : f32[B:3]"},
    {"lookup-c1", "E1103", "%20 = lookup %2, %2 {columns = 0, runs = [0, 1]} : bool[A:2]"},
    {"lookup-c1", "E1103", "%20 = lookup %2, %2 {columns = 2, runs = [1, 0]} : bool[A:2]"},
    {"lookup-c1", "E1103", "%20 = lookup %2, %2 {columns = 2, runs = [3]} : bool[A:2]"},
    {"type-c3", "E1102", "%20 = exp %0 : f32[B:3, A:2]"},
    {"type-c3", "E1102", "%20 = lt %0, %1 : f32[A:2, B:3]"},
    {"reduce-c1", "E1102", "%20 = sum %0 : f32[A:2, B:3]"},
    {"rope-c1", "E1102", "%20 = rope[S] %8 {theta = 10} : f32[S:4, D:2]"},
    {"rope-c2", "E1102", "%20 = rope[A; B] %0 {theta = 10} : f32[A:2, B:3]"},
    {"rope-c3", "E1102", "%20 = rope[S; D] %8, %6, %6 {theta = 10} : f32[S:4, D:2]"},
    {"rope-c4", "E1102", "%20 = rope[S; D] %8, %11 {theta = 10} : f32[S:4, D:2]"},
    {"rope-c5", "E1102", "%20 = rope[S; D] %8 {theta = 10, factor = 0} : f32[S:4, D:2]"},
    {"rope-c5", "E1102", "%20 = rope[S; D] %8 {theta = 10, factor = 2, ramp = 4} : f32[S:4, D:2]"},
    {"rope-c5", "E1102",
     "%20 = rope[S; D] %8 {theta = 10, factor = 2, original = 8, slow = 2, fast = 1, ramp = 1} : "
     "f32[S:4, D:2]"},
    {"same-c1", "E1102", "%20 = rope[S; D] {theta = 10} : f32[S:4, D:2]"},
    {"unstack-c1", "E1102", "%20 = unstack[A] %0 : f32[B:3]"},
    {"stack-c1", "E1102", "%20 = stack[N] : f32[N:0]"},
    {"stack-c2", "E1102", "%20 = stack[N] %0, %1 : f32[N:2, A:2, B:3]"},
    {"stack-c3", "E1102", "%20 = stack[A] %0, %0 : f32[A:2, B:3]"},
    {"dot-c1", "E1102", "%20 = dot[A] %0, %1 : f32[B:3]"},
    {"dot-c2", "E1103", "%20 = dot[B] %0, %1 {eights = [0]} : f32[A:2]"},
    {"dot-c2", "E1103", "%20 = dot[B] %0, %1 {eights = [0, 9]} : f32[A:2]"},
    {"quantize-c1", "E1103", "%20 = quantize %0, %0 {format = \"e3m4\"} : f32[A:2, B:3]"},
    {"share-c1", "E1102", "%20 = dot %0, %7 : f32[A:2, B:3]"},
    {"gather-c1", "E1102", "%20 = gather[A] %0, %1 : f32[B:3]"},
    {"attention-c1", "E1102",
     "%20, %21 = attention[S; D] %8, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c2", "E1102",
     "%20, %21 = attention[S -> K; D] %9, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c3", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %8, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c4", "E1102",
     "%12 = expand[H] %9 : f32[H:2, K:5, D:2]\n"
     "%20, %21 = attention[S -> K; D] %8, %12, %12 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c5", "E1102",
     "%12 = expand[H] %9 : f32[H:2, K:5, D:2]\n"
     "%20, %21 = attention[S -> K; D] %8, %9, %12 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c6", "E1102",
     "%12 = cast %8 : f64[S:4, D:2]\n"
     "%20, %21 = attention[S -> K; D] %12, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c7", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %3 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c8", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c10", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %8 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c12", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %9 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c13", "E1102",
     "%12 = iota[K] : i32[K:5]\n%13 = cast %12 : f32[K:5]\n"
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %13, %13 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c14", "E1102",
     "%12 = iota[K] : i32[K:5]\n"
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %12 {scale = 1} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c15", "E1102",
     "%12 = iota[K] : i32[K:5]\n"
     "%20, %21 = attention[S -> K; D] %8, %9, %9, %12 {scale = 1, cap = 2, drop = 0.1} : "
     "f32[S:4, D:2], f32[S:4]"},
    {"attention-c11", "E1102",
     "%20, %21 = attention[S -> K; D] %8, %9, %9 {scale = 1, cap = 0} : f32[S:4, D:2], f32[S:4]"},
    {"attention-c9", "E1102",
     "%20, %21, %22 = attention_grad[S -> K; D] %8, %9, %9, %8, %8, %8 {scale = 1} : "
     "f32[S:4, D:2], f32[K:5, D:2], f32[K:5, D:2]"},
    {"given-c1", "E1102", "%20 = rename[A -> C] %0 : f32[A:2, B:3]"},
    {"given-c1", "E1102", "%20 = expand[N] %1 : f32[N:2]"},
    {"given-c1", "E1102", "%20 = const {value = 1} : f32[A:2]"},
    {"given-c1", "E1102", "%20 = iota[A] : f32[A:2]"},
    {"type-c2", "E1102", "%20 = rename[A -> B] %0 : f32[B:2]"},
    {"rand-c1", "E1102", "%20 = rand[A] %6, %6, %2 {key = 1, strides = [1]} : f32[A:2]"},
    {"rand-c2", "E1102", "%20 = rand[A] %6, %6, %6 {key = 1} : f32[A:2]"},
    {"rename-c1", "E1102", "%20 = rename[A] %0 : f32[A:2, B:3]"},
    {"split-c1", "E1102", "%20 = split[C -> X] %5 : f32[X:4]"},
    {"split-c2", "E1102", "%20 = split[C -> X, Y] %5 : f32[X:2, Y:3]"},
    {"merge-c1", "E1102", "%20 = merge[A -> X] %0 : f32[X:2, B:3]"},
    {"bits-c1", "E1102", "%20 = pack_bits[C -> X] %5 : u8[X:1]"},
    {"bits-c2", "E1102",
     "%20 = lt %5, %5 : bool[R:2, C:3]\n%21 = pack_bits[C -> X] %20 : u8[R:2, X:1]"},
    {"part-c1", "E1102", "%20 = slice[C -> X] %5 {at = 3} : f32[X:2]"},
    {"part-c1", "E1102", "%20 = pad[C -> X] %5 {at = 2} : f32[X:5]"},
    {"concat-c1", "E1102", "%20 = concat[C -> X] %5, %5 : f32[X:8]"},
    {"concat-c2", "E1102", "%20 = concat[C, A -> X] %5, %0 : f32[X:6]"},
    {"scatter-c1", "E1102", "%20 = scatter[A -> X, Y] %0, %2 : f32[X:2, B:3]"},
    {"scatter-c2", "E1102", "%20 = scatter[A -> X] %0, %4 : f32[X:2, B:3]"},
    {"scatter-c3", "E1102", "%20 = scatter[A -> X] %1, %2 : f32[X:2, B:3]"},
    {"scatter-c4", "E1102",
     "%20 = lt %0, %0 : bool[A:2, B:3]\n%21 = scatter[A -> X] %20, %2 : bool[X:2, B:3]"},
    {"type-c1", "E1102",
     "%20 = expand[E, F, G, H, I, J, L] %0 : f32[A:2, B:3, E:1, F:1, G:1, H:1, I:1, J:1]"},
    {"attr-c1", "E1103", "%20 = pow %1 : f32[B:3]"},
    {"attr-c2", "E1103", "%20 = exp %1 {value = 2} : f32[B:3]"},
    {"attr-c4", "E1103", "%20 = cumsum[B] %1 {inverse = 2} : f32[B:3]"},
    {"phase-c1", "E1103", "%20 = le %1, %1 {phase = \"early\"} : bool[B:3]"},
};

static const Broken modules[] = {
    {"attr-c2", "E1103", "lower\nbody @b() {family = \"row\"} {\n}\n"},
    {"attr-c2", "E1103", "lower\nbody @b() {phase = \"late\"} {\n}\n"},
    {"phase-c1", "E1103", "lower\nentry @a {phase = \"early\"} {\n}\n"},
    {"phase-c2", "E1105",
     "lower\nentry @a {phase = \"thaw\"} {\n}\nentry @b {phase = \"thaw\"} {\n}\n"},
    {"phase-c3", "E1105",
     "lower\nentry @a {phase = \"late\"} {\n}\nentry @b {phase = \"frozen\"} {\n}\n"},
    {"phase-c4", "E1105", "lower\nentry @a {phase = \"thaw\", from = 3} {\n}\n"},
    {"phase-c4", "E1105", "lower\nentry @a {from = 3} {\n}\n"},
    {"phase-c5", "E1105", "lower\nentry @a {phase = \"look\"} {\n}\n"},
    {"phase-c5", "E1105", "lower\nentry @a {phase = \"late\", every = 3} {\n}\n"},
    {"name-c4", "E1101",
     "select\nbody @h_f.g(%0 : f32[]) {\nreturn %0\n}\nbody @h.f_g(%0 : f32[]) {\nreturn %0\n}\n"},
    {"name-c4", "E1101",
     "select\nkernel @k(%0 : f32[]) {\nreturn %0\n}\nkernel @k.p0(%0 : f32[]) {\nreturn %0\n}\n"},
    {"name-c4", "E1101",
     "select\nkernel @k.image(%0 : f32[]) {\nreturn %0\n}\nkernel @k(%0 : f32[]) {\nreturn "
     "%0\n}\n"},
    {"target-c1", "E1103", "lower\ntarget {vector_bytes = 48, ..}\n"},
    {"target-c1", "E1103", "lower\ntarget {workers = 0, ..}\n"},
    {"target-c1", "E1103", "lower\ntarget {device = gpu, l2 = 9000000000000000, ..}\n"},
    {"target-c2", "E1103", "lower\ntarget x86_64_v3 {device = cpu, vector_bytes = 32}\n"},
    {"target-c2", "E1103", "lower\ntarget sm_80 {}\n"},
    {"target-c3", "E1103", "lower\ntarget {shared = 1024, ..}\n"},
    {"setting-c1", "E1103", "lower\nset plan.zero = \"-64\"\n"},
    {"setting-c1", "E1103", "lower\nset plan.zero.bucket = \"0\"\n"},
    {"setting-c1", "E1103", "lower\nset train.batch = \"1.5\"\n"},
};

static void wrong_types(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    Ctx *c = ctx_new();
    const char *lines = types[i].lines;
    if (!strcmp(types[i].label, "stack-c1"))
      lines = "%20 = stack[N] : f32[N:1]"; /* the text has no empty dims */
    const char *text = arena_printf(c->arena, BROKEN_HEAD "lower\n%s%s\n}\n", args, lines);
    must_say(c, module_of(c, text), &types[i], text);
    ctx_free(c);
  }
}

/* Modules that no text can express are broken by hand. */
typedef void Breaker(Module *m, Fn *f);

static void strange_dim(Module *m, Fn *f) {
  f->values.at[0].type.axis[0].dim = intern(m->ctx->names, "a-b");
}
static void strange_global(Module *m, Fn *f) {
  (void)f, m->globals.at[0]->name = intern(m->ctx->names, "a b");
}
static void strange_fn(Module *m, Fn *f) { f->name = intern(m->ctx->names, "1f"); }
static void twin_fn(Module *m, Fn *f) { module_add(m, fn_new(m, FN_BODY, f->name)); }
static void twin_global(Module *m, Fn *f) {
  (void)f,
      module_add_global(m, GLOBAL_OUTPUT, m->globals.at[0]->name, type_scalar(ELEM_f32), (Loc){0});
}
static void use_before(Module *m, Fn *f) { (void)m, f->ops.at[0].in[0] = f->ops.at[0].out; }
static void use_nothing(Module *m, Fn *f) { (void)m, f->ops.at[0].in[0] = 77; }
static void foreign_result(Module *m, Fn *f) { (void)m, f->ops.at[0].out = 0; }
static void no_argument(Module *m, Fn *f) { (void)m, f->args.at[0] = f->ops.at[0].out; }
static void no_result(Module *m, Fn *f) { fn_result(m, f, 99); }
static void many_operands(Module *m, Fn *f) { (void)m, f->ops.at[0].nin = 0; }
static void many_results(Module *m, Fn *f) { (void)m, f->ops.at[0].code = OP_store; }
static void strange_symbol(Module *m, Fn *f) { (void)m, f->ops.at[0].callee = f; }
static void empty_dim(Module *m, Fn *f) { (void)m, f->values.at[0].type.axis[0].size = 0; }
static void twin_attr(Module *m, Fn *f) {
  AttrList *l = &f->ops.at[0].attrs;
  attr_set_float(m, l, ATTR_value, 1), attr_set_float(m, l, ATTR_fill, 1);
  l->at[1] = l->at[0];
}
static void no_symbol(Module *m, Fn *f) {
  (void)m, f->ops.at[0].code = OP_copy, f->ops.at[1].global = NULL;
}
static void no_callee(Module *m, Fn *f) { (void)m, f->ops.at[0].code = OP_call; }
static void gone_global(Module *m, Fn *f) { (void)f, m->globals.n = 0; }
static void no_strides(Module *m, Fn *f) {
  m->after = intern(m->ctx->names, "order"), f->ops.n = 0, f->kind = FN_BODY;
}

static const struct {
  Breaker *breaker;
  Broken want;
} by_hand[] = {
    {strange_dim, {"name-c1", "E1101", 0}},   {strange_global, {"name-c2", "E1101", 0}},
    {strange_fn, {"name-c3", "E1101", 0}},    {twin_fn, {"fn-c1", "E1101", 0}},
    {twin_global, {"global-c3", "E1105", 0}}, {use_before, {"ssa-c1", "E1101", 0}},
    {use_nothing, {"ssa-c1", "E1101", 0}},    {foreign_result, {"ssa-c2", "E1101", 0}},
    {no_argument, {"ssa-c3", "E1101", 0}},    {no_result, {"ssa-c4", "E1101", 0}},
    {many_operands, {"op-c1", "E1102", 0}},   {many_results, {"op-c2", "E1105", 0}},
    {strange_symbol, {"op-c3", "E1101", 0}},  {empty_dim, {"type-c4", "E1102", 0}},
    {twin_attr, {"attr-c3", "E1103", 0}},     {no_symbol, {"global-c1", "E1105", 0}},
    {no_callee, {"call-c1", "E1104", 0}},     {gone_global, {"global-c6", "E1105", 0}},
    {no_strides, {"order-c1", "E1107", 0}},
};

static void broken_by_hand(void **state) {
  (void)state;
  static const char text[] = "lower\noutput @o : f32[A:2]\nkernel @f(%0 : f32[A:2]) {\n"
                             "%1 = exp %0 : f32[A:2]\nstore @o, %1\n}\n";
  for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
    Ctx *c = ctx_new();
    Module *m = module_of(c, arena_printf(c->arena, BROKEN_HEAD "%s", text));
    assert_non_null(m);
    by_hand[i].breaker(m, m->fns.at[0]);
    must_say(c, m, &by_hand[i].want, text);
    ctx_free(c);
  }
}

/* Errors point at the op in the text, or at its place in the user's file. */
static void points_at_the_op(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(
      c, arena_printf(c->arena, BROKEN_HEAD "lower\n%s  %%20 = exp %%2 : i32[A:2]\n}\n", args));
  assert_false(ir_verify(m));
  assert_non_null(strstr(reported(c), "test.ir:5:3"));
  ctx_free(c);
  c = ctx_new();
  m = module_new(c);
  vec_push(m->arena, m->sources, (IrSource){.name = "user.shard", .text = "one\ntwo three\n"});
  Fn *f = fn_new(m, FN_BODY, "f");
  Type t = type_scalar(ELEM_i32);
  ValueId a = fn_arg(m, f, t);
  fn_op(m, f, OP_exp, 1, &a, 1, &t, (Loc){1, 2, 5, 5});
  module_add(m, f);
  assert_false(ir_verify(m));
  assert_non_null(strstr(reported(c), "user.shard:2:5"));
  ctx_free(c);
}

int main(void) {
  VerifyTables tables = {.broken = modules, .nbroken = sizeof modules / sizeof *modules};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_types),
      cmocka_unit_test_prestate(wrong_modules, &tables),
      cmocka_unit_test(broken_by_hand),
      cmocka_unit_test(points_at_the_op),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

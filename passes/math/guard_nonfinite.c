/* The guard against numbers that are not finite, part of pass optimizer.

   The norm of all gradients is not finite if a single number of a single gradient is not, and the
   loss covers the remaining cases. Both are known before any update, so every update is
   `where(fine, new, old)`: one comparison of scalars per kernel that is bound by memory anyway, no
   branch, no stop in the middle of a step, the same on every device and rank. A step that is not
   fine leaves parameters and states unchanged, bit by bit.

   norm2.of.NAME, one number per parameter, per layer in a stack, shows which tensors are at fault:
   backward runs through the layers in reverse, so the problem began at the boundary between
   non-finite and clean layers. `of` is a word of the language: no parameter's path contains it.
   Must not: read a gradient more than once. */
#include "guard_nonfinite.h"
#include <math.h>
#include <string.h>

const char guard_prefix[] = "norm2.of.";

void guard_output(Module *m, Fn *f, const char *name, ValueId v) {
  Global *global = global_named(m, name);
  if (!global)
    global = module_add_global(m, GLOBAL_OUTPUT, intern(m->ctx->names, name), *value_type(f, v),
                               (Loc){0});
  ir_store(m, f, global, v, (Loc){0});
}

/* Stacked dims come first, one for every * of the path. */
int guard_stack_dims(const Global *global) {
  int n = 0;
  for (const char *c = global->name; *c; c++) n += *c == '*';
  return n;
}

ValueId guard_squares(Module *m, Fn *f, const Global *global, ValueId d) {
  must(type_same_dims(value_type(f, d), &global->type), "the gradient of @%s has other dims",
       global->name);
  int stacked = guard_stack_dims(global), n = global->type.rank - stacked;
  Str dims[MAX_RANK];
  for (int i = 0; i < n; i++) dims[i] = global->type.axis[stacked + i].dim;
  ValueId square = ir_binary(m, f, OP_mul, d, d, global->loc);
  if (value_type(f, d)->elem != ELEM_f32) square = ir_cast(m, f, square, ELEM_f32, global->loc);
  return n ? ir_reduce(m, f, OP_sum, square, n, dims, global->loc) : square;
}

enum { SHAPES = 64 };

typedef struct Sums { /* one sum for each shape: a number, or numbers per round of a stack */
  ValueId at[SHAPES];
  int n;
} Sums;

static void add(Module *m, Fn *f, Sums *s, ValueId v, Loc loc) {
  int i = 0;
  while (i < s->n && !type_equal(value_type(f, s->at[i]), value_type(f, v))) i++;
  if (i < s->n) s->at[i] = ir_binary(m, f, OP_add, s->at[i], v, loc);
  else if (s->n < SHAPES - (value_type(f, v)->rank > 0)) s->at[s->n++] = v;
  else add(m, f, s, emit_sum_all(m, f, v, loc), loc);
}

ValueId guard_norm(Module *m, Fn *f, uint32_t n, const ValueId *gradient) {
  Sums each = {0}, all = {0};
  for (uint32_t i = 0; i < n; i++) {
    if (gradient[i] == NO_VALUE) continue;
    const Global *global = m->globals.at[i];
    ValueId one = guard_squares(m, f, global, gradient[i]);
    guard_output(m, f, intern_printf(m->ctx->names, "%s%s", guard_prefix, global->name), one);
    add(m, f, &each, one, global->loc);
  }
  for (int i = 0; i < each.n; i++) {
    bool number = !value_type(f, each.at[i])->rank;
    add(m, f, &all, number ? each.at[i] : emit_sum_all(m, f, each.at[i], (Loc){0}), (Loc){0});
  }
  return all.n ? ir_unary(m, f, OP_sqrt, all.at[0], (Loc){0}) : NO_VALUE;
}

ValueId guard_finite(Module *m, Fn *f, ValueId v) {
  must(!value_type(f, v)->rank && value_is_float(f, v),
       "%%%u of %s is no number that could be finite", v, f->name);
  ValueId size = ir_unary(m, f, OP_abs, v, (Loc){0});
  return ir_binary(m, f, OP_lt, size, ir_const(m, f, value_type(f, v)->elem, INFINITY, (Loc){0}),
                   (Loc){0});
}

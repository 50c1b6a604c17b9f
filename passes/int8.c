/* Numbers in 8 bits with a scale for each block, as messages carry them ("ZeRO++: Extremely
   Efficient Collective Communication for Giant Model Training", Wang et al., 2023). Of a block x

     scale = max(max |x| / 127, 2^-100)       code = trunc(x / scale + 128.5), 1 to 255
     x' = (code - 128) scale                  |x' - x| <= scale / 2

   up to rounding in f32. A number that is not finite makes its whole block so: the scale is
   infinite. All of it is plain ops, which pass `fuse` makes kernels of. Must not: choose what
   travels so. */
#include "passes/int8.h"
#include <float.h>
#include <math.h>

static const double LEVELS = 127, ZERO_CODE = 128, LEAST_SCALE = 0x1p-100;

Str int8_dim(const Int8 *k, const char *name) {
  return intern_printf(k->m->ctx->names, "int8_%s", name);
}

static ValueId num(Int8 *k, double value) { return ir_const(k->m, k->f, ELEM_f32, value, k->loc); }

static ValueId bin(Int8 *k, OpCode c, ValueId a, ValueId b) {
  return ir_binary(k->m, k->f, c, a, b, k->loc);
}

/* ---- dims ---- */

static void insert(Type *t, int at, int n, const Axis *axes) {
  must(t->rank + n <= MAX_RANK, "int8: more than %d dims", MAX_RANK);
  for (int i = t->rank; i-- > at;) t->axis[i + n] = t->axis[i];
  for (int i = 0; i < n; i++) t->axis[at + i] = axes[i];
  t->rank += n;
}

ValueId int8_split(Int8 *k, ValueId v, Str from, int n, const Axis *to) {
  const Type *was = value_type(k->f, v);
  Type t = type_without(was, &from, 1);
  Str names[MAX_RANK];
  for (int i = 0; i < n; i++) names[i] = to[i].dim;
  Group g = group_map(1, &from, n, names);
  insert(&t, type_find(was, from), n, to);
  return emit_typed(k->m, k->f, OP_split, 1, &v, &g, t, k->loc);
}

ValueId int8_merge(Int8 *k, ValueId v, int n, const Str *from, Str to) {
  const Type *was = value_type(k->f, v);
  Type t = type_without(was, from, n);
  Axis all = {to, 1};
  for (int i = 0; i < n; i++) all.size *= type_size(was, from[i]);
  Group g = group_map(n, from, 1, &to);
  int at = type_find(was, from[0]);
  insert(&t, at < t.rank ? at : t.rank, 1, &all);
  return emit_typed(k->m, k->f, OP_merge, 1, &v, &g, t, k->loc);
}

ValueId int8_blocks(Int8 *k, ValueId v, Str line) {
  int64_t n = type_size(value_type(k->f, v), line);
  must(n % k->block == 0, "int8: %lld numbers in blocks of %lld", (long long)n,
       (long long)k->block);
  Axis to[] = {{int8_dim(k, "block"), n / k->block}, {int8_dim(k, "in"), k->block}};
  return int8_split(k, v, line, 2, to);
}

ValueId int8_line(Int8 *k, ValueId v, Str line) {
  Str from[] = {int8_dim(k, "block"), int8_dim(k, "in")};
  return int8_merge(k, v, 2, from, line);
}

/* ---- numbers ---- */

Int8Packed int8_pack(Int8 *k, ValueId v) {
  Str in = int8_dim(k, "in");
  v = ir_cast(k->m, k->f, v, ELEM_f32, k->loc);
  ValueId size = ir_unary(k->m, k->f, OP_abs, v, k->loc),
          finite = bin(k, OP_le, size, num(k, FLT_MAX));
  size = ir_where(k->m, k->f, finite, size, num(k, INFINITY), k->loc);
  ValueId most = ir_reduce(k->m, k->f, OP_rmax, size, 1, &in, k->loc);
  Int8Packed p;
  p.scale = bin(k, OP_max, bin(k, OP_mul, most, num(k, 1 / LEVELS)), num(k, LEAST_SCALE));
  ValueId code = bin(k, OP_mul, v, bin(k, OP_div, num(k, 1), p.scale));
  code = bin(k, OP_add, code, num(k, ZERO_CODE + 0.5));
  p.codes = ir_cast(k->m, k->f, code, ELEM_u8, k->loc);
  return p;
}

ValueId int8_unpack(Int8 *k, Int8Packed p) {
  ValueId v = ir_cast(k->m, k->f, p.codes, ELEM_f32, k->loc);
  return bin(k, OP_mul, bin(k, OP_sub, v, num(k, ZERO_CODE)), p.scale);
}

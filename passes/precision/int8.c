/* Numbers in 8 bits with a scale for each block, as messages contain them ("ZeRO++: Extremely
   Efficient Collective Communication for Giant Model Training", Wang et al., 2023). For a block x

     scale = max(max |x| / 127, 2^-100)       code = trunc(x / scale + 128.5), 1 to 255
     x' = (code - 128) scale                  |x' - x| <= scale / 2

   up to rounding in f32. A number that is not finite makes its whole block so: the scale is
   infinite. All of it is plain ops, which pass `fuse` turns into kernels. Must not: choose the
   messages. */
#include "ir/made.h"
#include "int8.h"
#include <math.h>

static const double LEVELS = 127, ZERO_CODE = 128, LEAST_SCALE = 0x1p-100;

Str int8_dim(const Int8 *int8, const char *name) { return name_made(int8->m, "int8'%s", name); }

static ValueId num(Int8 *int8, double value) {
  return ir_const(int8->m, int8->f, ELEM_f32, value, int8->loc);
}

static ValueId bin(Int8 *int8, OpCode c, ValueId a, ValueId b) {
  return ir_binary(int8->m, int8->f, c, a, b, int8->loc);
}

/* ---- dims ---- */

static void insert(Type *t, int at, int n, const Axis *axes) {
  must(t->rank + n <= MAX_RANK, "int8: more than %d dims", MAX_RANK);
  for (int i = t->rank; i-- > at;) t->axis[i + n] = t->axis[i];
  for (int i = 0; i < n; i++) t->axis[at + i] = axes[i];
  t->rank += n;
}

ValueId int8_split(Int8 *int8, ValueId v, Str from, int n, const Axis *to) {
  const Type *was = value_type(int8->f, v);
  Type t = type_without(was, &from, 1);
  Str names[MAX_RANK];
  for (int i = 0; i < n; i++) names[i] = to[i].dim;
  Group group = group_map(1, &from, n, names);
  insert(&t, type_find(was, from), n, to);
  return emit_typed(int8->m, int8->f, OP_split, 1, &v, &group, t, int8->loc);
}

ValueId int8_merge(Int8 *int8, ValueId v, int n, const Str *from, Str to) {
  const Type *was = value_type(int8->f, v);
  Type t = type_without(was, from, n);
  Axis all = {to, 1};
  for (int i = 0; i < n; i++) all.size *= type_size(was, from[i]);
  Group group = group_map(n, from, 1, &to);
  int at = type_find(was, from[0]);
  insert(&t, at < t.rank ? at : t.rank, 1, &all);
  return emit_typed(int8->m, int8->f, OP_merge, 1, &v, &group, t, int8->loc);
}

ValueId int8_blocks(Int8 *int8, ValueId v, Str line) {
  int64_t n = type_size(value_type(int8->f, v), line);
  must(n % int8->block == 0, "int8: %lld numbers in blocks of %lld", (long long)n,
       (long long)int8->block);
  Axis to[] = {{int8_dim(int8, "block"), n / int8->block}, {int8_dim(int8, "in"), int8->block}};
  return int8_split(int8, v, line, 2, to);
}

ValueId int8_line(Int8 *int8, ValueId v, Str line) {
  Str from[] = {int8_dim(int8, "block"), int8_dim(int8, "in")};
  return int8_merge(int8, v, 2, from, line);
}

/* ---- numbers ---- */

Int8Packed int8_pack(Int8 *int8, ValueId v) {
  Str in = int8_dim(int8, "in");
  v = ir_cast(int8->m, int8->f, v, ELEM_f32, int8->loc);
  ValueId size = ir_unary(int8->m, int8->f, OP_abs, v, int8->loc),
          finite = bin(int8, OP_lt, size, num(int8, INFINITY));
  size = ir_where(int8->m, int8->f, finite, size, num(int8, INFINITY), int8->loc);
  ValueId most = ir_reduce(int8->m, int8->f, OP_rmax, size, 1, &in, int8->loc);
  Int8Packed packed;
  packed.scale =
      bin(int8, OP_max, bin(int8, OP_mul, most, num(int8, 1 / LEVELS)), num(int8, LEAST_SCALE));
  ValueId code = bin(int8, OP_mul, v, bin(int8, OP_div, num(int8, 1), packed.scale));
  code = bin(int8, OP_add, code, num(int8, ZERO_CODE + 0.5));
  packed.codes = ir_cast(int8->m, int8->f, code, ELEM_u8, int8->loc);
  return packed;
}

ValueId int8_unpack(Int8 *int8, Int8Packed packed) {
  ValueId v = ir_cast(int8->m, int8->f, packed.codes, ELEM_f32, int8->loc);
  return bin(int8, OP_mul, bin(int8, OP_sub, v, num(int8, ZERO_CODE)), packed.scale);
}

/* The blocks of 1-bit Adam's chunks in buckets, each with messages of its own, for messages that
   overlap with kernels (`zero overlap`): while the signs of one bucket are sent, those of the next
   ones are made.

   A bucket has the same blocks of every chunk, so owners do not change, and no block is cut:
   numbers and states are the same to the bit with any bucket. Its bits are `plan.zero.bucket`
   bytes at most, as long as one concat has enough operands for the buckets; otherwise buckets are
   larger. Without overlap there is one bucket: several messages would hide nothing, and the new
   errors of several buckets have to be joined again at the cost of reading and writing them. Must
   not: let the contents of a block depend on the bucket. */
#include "ir/made.h"
#include "ir/plan/module_settings.h"
#include "onebit.h"

static int64_t blocks_of_one(const Onebit *onebit) {
  int64_t all = onebit->block.size, most = plan_zero_bucket(onebit->u.m),
          each = most / (onebit->chunk.size * onebit->byte.size);
  if (!plan_overlaps(onebit->u.m) || each >= all) return all;
  int64_t n = each > 0 ? (all + each - 1) / each : all;
  if (n > ONEBIT_BUCKETS) n = ONEBIT_BUCKETS;
  return (all + n - 1) / n;
}

/* Buckets of one size share a name, so that one kernel is made for all of them. */
int onebit_buckets(const Onebit *onebit, OnebitBucket *bucket) {
  int64_t each = blocks_of_one(onebit), all = onebit->block.size;
  int n = 0;
  for (int64_t at = 0; at < all; at += each, n++) {
    must(n < ONEBIT_BUCKETS, "onebit: more than %d buckets of %lld of %lld blocks", ONEBIT_BUCKETS,
         (long long)each, (long long)all);
    bool last = all - at < each;
    Str name = each == all
                   ? onebit->block.dim
                   : name_made(onebit->u.m, "%s'%s", onebit->block.dim, last ? "last" : "part");
    bucket[n] = (OnebitBucket){at, {name, last ? all - at : each}};
  }
  return n;
}

ValueId onebit_part(Onebit *onebit, const OnebitBucket *bucket, ValueId v) {
  Module *m = onebit->u.m;
  if (bucket->block.size == onebit->block.size) return v;
  Type t = *value_type(onebit->u.f, v);
  Group cut = group_map(1, &onebit->block.dim, 1, &bucket->block.dim);
  t.axis[type_find(&t, onebit->block.dim)] = bucket->block;
  v = emit_typed(m, onebit->u.f, OP_slice, 1, &v, &cut, t, (Loc){0});
  attr_set_int(m, &vec_last(onebit->u.f->ops).attrs, ATTR_at, bucket->at);
  return v;
}

ValueId onebit_join(Onebit *onebit, const OnebitBucket *bucket, const ValueId *part, int n) {
  Module *m = onebit->u.m;
  Str name[ONEBIT_BUCKETS];
  ValueId in[ONEBIT_BUCKETS];
  if (n == 1) return part[0];
  for (int i = 0; i < n; i++) {
    name[i] = name_made(m, "%s'%c", onebit->block.dim, (char)('a' + i));
    in[i] = ir_rename(m, onebit->u.f, part[i], bucket[i].block.dim, name[i], (Loc){0});
  }
  Type t = *value_type(onebit->u.f, in[0]);
  Group map = group_map(n, name, 1, &onebit->block.dim);
  t.axis[type_find(&t, name[0])] = onebit->block;
  return emit_typed(m, onebit->u.f, OP_concat, (uint32_t)n, in, &map, t, (Loc){0});
}

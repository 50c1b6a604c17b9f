/* Which indexes of an op can be cut over a mesh axis: the rule table of placements, op by op.

   An index runs through dims of operands and results. If a mesh axis cuts it, operands that have it
   are cut along it and so are results; a result without it is a sum over the blocks (a maximum, for
   rmax). A dim that has no index in this table (a minor piece of a split, the end of a shift, the
   keys of attention) cannot be cut: operands are made whole first. The rules look only at the names
   of dims. */
#include "ir/loop.h"
#include "ir/made.h"
#include "placement.h"

typedef VEC(ShardIndex) IndexList;

typedef struct Builder {
  Module *m;
  const Fn *f;
  const Op *o;
  IndexList list;
} Builder;

static const Type *in_type(const Builder *builder, uint32_t i) {
  return value_type(builder->f, builder->o->in[i]);
}
static const Type *out_type(const Builder *builder, uint32_t i) {
  return value_type(builder->f, builder->o->out + i);
}
static bool has(const Type *t, Str dim) { return type_find(t, dim) >= 0; }

static ShardIndex *add(Builder *builder, int64_t size) {
  ShardIndex shard_index = {.lost = PARTIAL_SUM, .ring = -1, .size = size};
  shard_index.in = ARENA_ARRAY(builder->m->arena, Str, builder->o->nin + 1);
  shard_index.out = ARENA_ARRAY(builder->m->arena, Str, builder->o->nout + 1);
  vec_push(builder->m->arena, builder->list, shard_index);
  return &vec_last(builder->list);
}

/* The index that is called `dim` wherever it is. */
static ShardIndex *add_named(Builder *builder, Str dim, int64_t size) {
  ShardIndex *shard_index = add(builder, size);
  for (uint32_t i = 0; i < builder->o->nin; i++)
    if (has(in_type(builder, i), dim)) shard_index->in[i] = dim;
  for (uint32_t i = 0; i < builder->o->nout; i++)
    if (has(out_type(builder, i), dim)) shard_index->out[i] = dim;
  return shard_index;
}

/* Every dim of t but those of `except`. */
static void add_all(Builder *builder, const Type *t, const Str *except, int n) {
  for (int i = 0; i < t->rank; i++)
    if (!names_have(except, n, t->axis[i].dim)) add_named(builder, t->axis[i].dim, t->axis[i].size);
}

static void of_results(Builder *builder) { add_all(builder, out_type(builder, 0), NULL, 0); }

static void of_source(Builder *builder) {
  if (builder->o->code != OP_const) of_results(builder);
}

/* Reductions: what is gone is a partial sum or maximum; for other reductions it must stay. */
static void of_reduce(Builder *builder) {
  const Group *group = &builder->o->group[0];
  const Type *t = in_type(builder, 0);
  for (int i = 0; i < group->nfrom; i++) {
    if (builder->o->code != OP_sum && builder->o->code != OP_rmax) continue;
    ShardIndex *shard_index = add_named(builder, group->from[i], type_size(t, group->from[i]));
    if (builder->o->code == OP_rmax) shard_index->lost = PARTIAL_MAX;
  }
  add_all(builder, t, group->from, group->nfrom);
}

static void of_dot(Builder *builder) {
  Group group = builder->o->ngroups ? builder->o->group[0] : group_dims(0, NULL);
  for (int i = 0; i < group.nfrom; i++)
    add_named(builder, group.from[i], type_size(in_type(builder, 0), group.from[i]));
  of_results(builder);
}

/* One group's dims keep their places elsewhere: everything else goes by name. */
static void of_others(Builder *builder, const Type *t) {
  Str gone[MAX_RANK * MAX_GROUPS];
  int n = 0;
  for (int i = 0; i < builder->o->ngroups; i++)
    for (int k = 0; k < builder->o->group[i].nfrom; k++) gone[n++] = builder->o->group[i].from[k];
  add_all(builder, t, gone, n);
}

static void add_moved(Builder *builder, Str from, Str to, int64_t size) {
  ShardIndex *shard_index = add(builder, size);
  shard_index->in[0] = from, shard_index->out[0] = to;
}

static void of_rename(Builder *builder) {
  for (int i = 0; i < builder->o->ngroups; i++) {
    const Group *group = &builder->o->group[i];
    for (int k = 0; k < group->nfrom; k++)
      add_moved(builder, group->from[k], group->to[k],
                type_size(in_type(builder, 0), group->from[k]));
  }
  of_others(builder, in_type(builder, 0));
}

/* Blocks of whole bytes go with the blocks of their bits. */
static void of_bits(Builder *builder) {
  Str from = builder->o->group[0].from[0], to = builder->o->group[0].to[0];
  const Type *bytes = builder->o->code == OP_pack_bits ? out_type(builder, 0) : in_type(builder, 0);
  add_moved(builder, from, to, type_size(bytes, builder->o->code == OP_pack_bits ? to : from));
  of_others(builder, in_type(builder, 0));
}

/* Parts of a step in time are dealt like this: a rank's samples are its share of every part, so
   cutting Batch into parts moves nothing (`micro` is no dim of a model). */
static bool in_time(const Builder *builder, const Str *pieces, int n) {
  Str micro = intern(builder->m->ctx->names, MADE_MICRO),
      batch = intern(builder->m->ctx->names, "Batch");
  return n == 2 && pieces[0] == micro && pieces[1] == batch;
}

/* The major piece goes with the whole. */
static void of_split(Builder *builder) {
  for (int i = 0; i < builder->o->ngroups; i++) {
    const Group *group = &builder->o->group[i];
    Str major = group->to[in_time(builder, group->to, group->nto)];
    add_moved(builder, group->from[0], major, type_size(out_type(builder, 0), major));
  }
  of_others(builder, in_type(builder, 0));
}

static void of_merge(Builder *builder) {
  for (int i = 0; i < builder->o->ngroups; i++) {
    const Group *group = &builder->o->group[i];
    Str major = group->from[in_time(builder, group->from, group->nfrom)];
    add_moved(builder, major, group->to[0], type_size(in_type(builder, 0), major));
  }
  of_others(builder, in_type(builder, 0));
}

/* Ops that move along the listed dims: those cannot be cut. */
static void of_moved(Builder *builder) {
  if (builder->o->nin) of_others(builder, in_type(builder, 0));
}

static void of_stack(Builder *builder) { add_all(builder, in_type(builder, 0), NULL, 0); }

static void of_rope(Builder *builder) {
  add_all(builder, in_type(builder, 0), builder->o->group[1].from, 1);
}

/* A rank that holds some rows of w gives 0 for the others. An index's own dims are cut with it,
   even if one has the name of the row dim. */
static void of_gather(Builder *builder) {
  Str rows = builder->o->group[0].from[0];
  const Type *w = in_type(builder, 0), *index = in_type(builder, 1), *r = out_type(builder, 0);
  bool dealt = dim_dealt(builder->m, rows).axis >= 0; /* a rank's rows have no first one */
  ShardIndex *shard_index = dealt ? NULL : add(builder, type_size(w, rows));
  if (shard_index) shard_index->in[0] = rows;
  for (int i = 0; i < r->rank; i++) {
    Str dim = r->axis[i].dim;
    shard_index = add(builder, r->axis[i].size);
    shard_index->in[0] = dim != rows && has(w, dim) ? dim : NULL;
    shard_index->in[1] = has(index, dim) ? dim : NULL;
    shard_index->out[0] = dim;
  }
}

/* A rank that is to hold some rows takes only what belongs to them. */
static void of_scatter(Builder *builder) {
  const Group *group = &builder->o->group[0];
  const Type *x = in_type(builder, 0), *index = in_type(builder, 1);
  for (int i = 0; i < x->rank; i++) {
    Str dim = x->axis[i].dim;
    ShardIndex *shard_index = add(builder, x->axis[i].size);
    shard_index->in[0] = dim;
    shard_index->in[1] = has(index, dim) ? dim : NULL;
    shard_index->out[0] = names_have(group->from, group->nfrom, dim) ? NULL : dim;
  }
  if (dim_dealt(builder->m, group->to[0]).axis < 0)
    add(builder, type_size(out_type(builder, 0), group->to[0]))->out[0] = group->to[0];
}

/* With `ring` keys and values stay cut, as their queries are. */
static void add_ring(Builder *builder) {
  Str query = builder->o->group[0].from[0], key = builder->o->group[0].to[0];
  int axis = dim_ring(builder->m, key);
  if (axis < 0 || dim_ring(builder->m, query) != axis) return;
  ShardIndex *index = add_named(builder, query, type_size(in_type(builder, 0), query));
  index->ring = axis, index->in[1] = index->in[2] = key;
  if (builder->o->code == OP_attention_grad) index->out[1] = index->out[2] = key;
}

/* Rows of queries, and the dims common to all rows: heads, samples. Keys and values do not have
   some of these dims (groups of heads, queries), which makes their gradients partial. */
static void of_attention(Builder *builder) {
  add_ring(builder);
  add_all(builder, in_type(builder, 0), builder->o->group[1].from, 1);
}

typedef void IndexRule(Builder *b);

static IndexRule *const by_family[] = {
    [FAMILY_SOURCE] = of_source, [FAMILY_ELEM] = of_results,    [FAMILY_REDUCE] = of_reduce,
    [FAMILY_SCAN] = of_moved,    [FAMILY_STRUCT] = of_moved,    [FAMILY_CONTRACT] = of_dot,
    [FAMILY_GATHER] = of_gather, [FAMILY_SCATTER] = of_scatter, [FAMILY_ATTENTION] = of_attention,
    [FAMILY_GLOBAL] = NULL,      [FAMILY_CALL] = NULL,          [FAMILY_COLLECTIVE] = NULL,
    [FAMILY_FLIGHT] = NULL,      [FAMILY_MOVE] = of_results,
};

static IndexRule *const by_op[OP_COUNT] = {
    [OP_expand] = of_results, [OP_rename] = of_rename,    [OP_split] = of_split,
    [OP_merge] = of_merge,    [OP_stack] = of_stack,      [OP_rope] = of_rope,
    [OP_pack_bits] = of_bits, [OP_unpack_bits] = of_bits,
};

/* concat[A, B -> D] lists another dim for each operand: none of them, and not D. */
static void of_concat(Builder *builder) {
  const Group *group = &builder->o->group[0];
  add_all(builder, out_type(builder, 0), group->to, 1);
}

/* Pieces of a balanced dim are not the pieces of a dim that it becomes. */
static bool is_dealt_alike(const Module *m, const Op *o, const ShardIndex *index) {
  int dealt = 0, others = 0;
  for (uint32_t i = 0; i < o->nin + o->nout; i++) {
    Str dim = i < o->nin ? index->in[i] : index->out[i - o->nin];
    if (dim) *(dim_dealt(m, dim).axis >= 0 ? &dealt : &others) += 1;
  }
  return !dealt || !others;
}

static void keep_dealt(Builder *builder) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < builder->list.n; i++)
    if (is_dealt_alike(builder->m, builder->o, &builder->list.at[i]))
      builder->list.at[n++] = builder->list.at[i];
  builder->list.n = n;
}

uint32_t shard_indexes(Module *m, const Fn *f, const Op *o, ShardIndex **list) {
  Builder builder = {.m = m, .f = f, .o = o};
  IndexRule *rule = by_op[o->code] ? by_op[o->code] : by_family[op_family(o->code)];
  if (o->code == OP_concat) rule = of_concat;
  if (rule) rule(&builder);
  keep_dealt(&builder);
  return *list = builder.list.at, builder.list.n;
}

/* Terms of a partial sum may be rounded before they are added: they are sent in the type that their
   readers use, and are added in f32 by the receiver. */
static bool between_floats(const Fn *f, const Op *o) {
  return value_is_float(f, o->in[0]) && value_is_float(f, o->out);
}

/* Does the op choose, by one number, between operand i and zero, as a stage with fewer layers than
   others does for the gradients of those that it has not? */
static bool is_kept_or_zero(const Fn *f, const Op *o, uint32_t i) {
  return i > 0 && !value_type(f, o->in[0])->rank && value_is_zero(f, o->in[3 - i]);
}

/* Sums, copies and moved indexes of floats; a product with one number. Sums of several terms are
   judged where they are made (all of them partial). */
bool shard_linear(const Module *m, const Fn *f, const Op *o, uint32_t i) {
  (void)m;
  switch (o->code) {
  case OP_neg:
  case OP_copy:
  case OP_sum:
  case OP_expand:
  case OP_rename:
  case OP_split:
  case OP_merge:
  case OP_unstack:
  case OP_slice: return true;
  case OP_cast: return between_floats(f, o);
  case OP_where: return is_kept_or_zero(f, o, i);
  case OP_rope:
  case OP_scatter: return i == 0;
  case OP_mul: return !value_type(f, o->in[1 - i])->rank;
  case OP_div: return i == 0 && !value_type(f, o->in[1])->rank;
  case OP_pad:
  case OP_shift: return attr_float(&o->attrs, ATTR_fill, 0) == 0;
  default: return false;
  }
}

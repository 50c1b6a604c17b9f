/* Publishes the parameters that a rank has updated: cast to the type that all ranks read them in,
   gathered.

   Weights in a narrower type than their master weights are cast and sent a message at a time (a
   loop over messages): so the data that is cast and not sent yet is one message, however many
   parameters the group has (constant-size buffers, "ZeRO: Memory Optimizations Toward Training
   Trillion Parameter Models", section 6.2). Weights without master weights are sent from where the
   update stored them. With v [rounds, buckets, owners, piece] of one rank, m messages of k buckets
   each:

     [m, k, owners, piece] --loop[m]: cast, all-gather--> [m, k, owners, piece] --> [rounds, flat]

   All other ops are views.

   If the host updates the weights (`offload optimizer`), and they are larger than a message, they
   are uploaded row by row, a layer or a bucket, in a loop whose rounds take over the update itself
   (fuse_producers.c): so a row is uploaded while the next one is updated ("ZeRO-Offload:
   Democratizing Billion-Scale Model Training", algorithm 2, copies tile by tile). A row is sent in
   messages as above. Must not: hold more than a message in addition to master weights and weights,
   on the device more than a row. */
#include "ir/made.h"
#include "ir/plan/module_settings.h"
#include "zero.h"

/* [rounds, buckets, ..] as [messages, buckets of one, ..]; without the latter if it is 1. */
static ValueId in_messages(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v, Axis message) {
  Type type = *value_type(fn, v);
  int64_t rows = group->buckets, k;
  Str all = name_made(zero->m, "%s'all", message.dim);
  if (type_find(&type, group->rounds.dim) >= 0) {
    Str both[2] = {group->rounds.dim, group->bucket};
    Group map = group_map(2, both, 1, &all);
    rows *= group->rounds.size;
    type = type_without(&type, &group->rounds.dim, 1), type.axis[0] = (Axis){all, rows};
    v = emit_typed(zero->m, fn, OP_merge, 1, &v, &map, type, (Loc){0});
  } else if (message.dim == group->bucket) return v;
  else v = ir_rename(zero->m, fn, v, group->bucket, all, (Loc){0});
  k = rows / message.size;
  if (k == 1) return ir_rename(zero->m, fn, v, all, message.dim, (Loc){0});
  Str to[2] = {message.dim, group->bucket};
  Group map = group_map(1, &all, 2, to);
  Type cut = {
      .elem = type.elem, .rank = 2, .axis = {message, {group->bucket, k}}, .tier = type.tier};
  for (int i = 1; i < type.rank; i++) cut.axis[cut.rank++] = value_type(fn, v)->axis[i];
  return emit_typed(zero->m, fn, OP_split, 1, &v, &map, cut, (Loc){0});
}

/* [messages, .., piece] of all owners as [rounds, flat]. */
static ValueId as_flat(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value) {
  const Type *type = value_type(fn, value);
  Type flat = zero_flat_type(group, type->elem, group->rounds.dim != NULL);
  Str from[MAX_RANK], to[2] = {group->rounds.dim, group->flat},
                      all = name_made(zero->m, "%s'all", group->flat);
  for (int i = 0; i < type->rank; i++) from[i] = type->axis[i].dim;
  Group map = group_map(type->rank, from, 1, group->rounds.dim ? &all : &group->flat);
  if (!group->rounds.dim) return emit_typed(zero->m, fn, OP_merge, 1, &value, &map, flat, (Loc){0});
  Axis one = {all, type_count(type)};
  value =
      emit_typed(zero->m, fn, OP_merge, 1, &value, &map, type_of(type->elem, 1, &one), (Loc){0});
  map = group_map(1, &all, 2, to);
  return emit_typed(zero->m, fn, OP_split, 1, &value, &map, flat, (Loc){0});
}

static ValueId by_message(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value,
                          int64_t messages) {
  bool buckets = !group->rounds.dim && messages == group->buckets;
  Str dim = buckets ? group->bucket : name_made(zero->m, "Message'%s", group->flat);
  Axis message = {dim, messages};
  value = in_messages(zero, fn, group, value, message);
  Fn *body =
      fn_new(zero->m, FN_BODY, intern_printf(zero->m->ctx->names, "%s.publish", group->name));
  fn_arg(zero->m, body, type_scalar(ELEM_i32));
  ValueId own = fn_arg(zero->m, body, type_without(value_type(fn, value), &message.dim, 1));
  own = ir_cast(zero->m, body, own, group->narrow, (Loc){0});
  fn_result(zero->m, body, zero_gather(zero, body, group, own));
  LoopShape shape = {.stacked = 1, .trip = messages, .axis = message, .rounds = ROUNDS_messages};
  value = rebuild_loop(zero->m, fn, body, shape, &value, (Loc){0})->out;
  return as_flat(zero, fn, group, value);
}

static bool gathers(const ZeroGroup *group) {
  return group->stage && !group->sharded && group->ways > 1;
}

static int64_t count_messages(const Zero *zero, const Fn *fn, const ZeroGroup *group,
                              ValueId value) {
  Type type = type_with_elem(*value_type(fn, value), group->narrow);
  bool cast = group->copied && gathers(group);
  return cast ? zero_messages(zero, OP_all_gather, &type, group->ways) : 1;
}

/* Cast, sent and joined at once, or message by message. */
static ValueId all_of(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value) {
  int64_t messages = count_messages(zero, fn, group, value);
  if (messages > 1) return by_message(zero, fn, group, value, messages);
  if (group->copied) value = ir_cast(zero->m, fn, value, group->narrow, (Loc){0});
  if (gathers(group)) value = zero_gather(zero, fn, group, value);
  return group->sharded ? value : zero_join(zero, fn, group, value, group->rounds.dim != NULL);
}

/* ---- row by row ---- */

/* The dim of the rows: layers, or buckets; no dim if rows need not be uploaded one by one. */
static Axis rows_of(const Zero *zero, const Fn *fn, const ZeroGroup *group, ValueId value) {
  Str param = group->member.at[0].param->name;
  Type type = type_with_elem(*value_type(fn, value), group->narrow);
  bool goes = zero->hosts && plan_offloads(zero->m, OFFLOAD_OPTIMIZER, param);
  bool large = type_dense_bytes(&type) > zero->bucket_bytes;
  if (!goes || !large || group->measured) return (Axis){0};
  return group->rounds.dim ? group->rounds : (Axis){group->bucket, group->buckets};
}

/* A row, as it is read. In a group without layers it is a bucket, which the loop's result joins. */
static ValueId a_row(Zero *zero, Fn *body, const ZeroGroup *group, ValueId own) {
  ZeroGroup row = *group;
  row.rounds.dim = NULL;
  if (!gathers(group)) return own;
  return group->rounds.dim ? all_of(zero, body, &row, own) : zero_gather(zero, body, group, own);
}

static ValueId by_row(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value, Axis rows) {
  Fn *body =
      fn_new(zero->m, FN_BODY, intern_printf(zero->m->ctx->names, "%s.publish", group->name));
  bool joined = gathers(group) && group->rounds.dim;
  if (group->copied) value = ir_cast(zero->m, fn, value, group->narrow, (Loc){0});
  fn_arg(zero->m, body, type_scalar(ELEM_i32));
  ValueId own = fn_arg(zero->m, body, type_without(value_type(fn, value), &rows.dim, 1));
  fn_result(zero->m, body, a_row(zero, body, group, own));
  LoopShape shape = {.stacked = 1, .trip = rows.size, .axis = rows, .rounds = ROUNDS_rows};
  value = rebuild_loop(zero->m, fn, body, shape, &value, (Loc){0})->out;
  if (joined || group->sharded) return value;
  return zero_join(zero, fn, group, value, group->rounds.dim != NULL);
}

ValueId zero_publish(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value) {
  must(type_find(value_type(fn, value), group->part) >= 0, "zero: %%%u of %s is no piece of %s",
       value, fn->name, group->name);
  Axis rows = rows_of(zero, fn, group, value);
  return rows.size > 1 ? by_row(zero, fn, group, value, rows) : all_of(zero, fn, group, value);
}

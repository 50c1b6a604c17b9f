/* What a rank has updated, as all ranks read it: cast to the type that they read it in, gathered.

   Weights that are kept in a narrower type than their masters are made and sent a message at a time
   (a loop over messages): so what is cast and not sent yet is one message, however many parameters
   the group has (constant-size buffers, "ZeRO: Memory Optimizations Toward Training Trillion
   Parameter Models", section 6.2). Weights without masters go from where the update left them.
   With v [rounds, buckets, owners, piece] of one rank, m messages of k buckets each:

     [m, k, owners, piece] --loop[m]: cast, all-gather--> [m, k, owners, piece] --> [rounds, flat]

   all else being views. Must not: hold more than a message beside masters and weights. */
#include "passes/zero.h"

/* [rounds, buckets, ..] as [messages, buckets of one, ..]; without the latter if it is 1. */
static ValueId in_messages(Zero *z, Fn *f, const ZeroGroup *g, ValueId v, Axis message) {
  Type t = *value_type(f, v);
  int64_t rows = g->buckets, k;
  Str all = intern_printf(z->m->ctx->names, "%s_all", message.dim);
  if (type_find(&t, g->rounds.dim) >= 0) {
    Str both[2] = {g->rounds.dim, g->bucket};
    Group map = group_map(2, both, 1, &all);
    rows *= g->rounds.size;
    t = type_without(&t, &g->rounds.dim, 1), t.axis[0] = (Axis){all, rows};
    v = emit_typed(z->m, f, OP_merge, 1, &v, &map, t, (Loc){0});
  } else v = ir_rename(z->m, f, v, g->bucket, all, (Loc){0});
  k = rows / message.size;
  if (k == 1) return ir_rename(z->m, f, v, all, message.dim, (Loc){0});
  Str to[2] = {message.dim, g->bucket};
  Group map = group_map(1, &all, 2, to);
  Type cut = {.elem = t.elem, .rank = 2, .axis = {message, {g->bucket, k}}, .tier = t.tier};
  for (int i = 1; i < t.rank; i++) cut.axis[cut.rank++] = value_type(f, v)->axis[i];
  return emit_typed(z->m, f, OP_split, 1, &v, &map, cut, (Loc){0});
}

/* [messages, .., piece] of all owners as [rounds, flat]. */
static ValueId as_flat(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  const Type *t = value_type(f, v);
  Type flat = zero_flat_type(g, t->elem, g->rounds.dim != NULL);
  Str from[MAX_RANK], to[2] = {g->rounds.dim, g->flat},
                      all = intern_printf(z->m->ctx->names, "%s_all", g->flat);
  for (int i = 0; i < t->rank; i++) from[i] = t->axis[i].dim;
  Group map = group_map(t->rank, from, 1, g->rounds.dim ? &all : &g->flat);
  if (!g->rounds.dim) return emit_typed(z->m, f, OP_merge, 1, &v, &map, flat, (Loc){0});
  Axis one = {all, type_count(t)};
  v = emit_typed(z->m, f, OP_merge, 1, &v, &map, type_of(t->elem, 1, &one), (Loc){0});
  map = group_map(1, &all, 2, to);
  return emit_typed(z->m, f, OP_split, 1, &v, &map, flat, (Loc){0});
}

static ValueId by_message(Zero *z, Fn *f, const ZeroGroup *g, ValueId v, int64_t messages) {
  Axis message = {intern_printf(z->m->ctx->names, "Message_%s", g->flat), messages};
  v = in_messages(z, f, g, v, message);
  Fn *body = fn_new(z->m, FN_BODY, intern_printf(z->m->ctx->names, "%s.publish", g->name));
  fn_arg(z->m, body, type_scalar(ELEM_i32));
  ValueId own = fn_arg(z->m, body, type_without(value_type(f, v), &message.dim, 1));
  own = ir_cast(z->m, body, own, g->narrow, (Loc){0});
  fn_result(z->m, body, zero_gather(z, body, g, own));
  LoopShape shape = {.stacked = 1, .trip = messages, .axis = message};
  v = rebuild_loop(z->m, f, body, shape, &v, (Loc){0})->out;
  return as_flat(z, f, g, v);
}

ValueId zero_publish(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  must(type_find(value_type(f, v), g->part) >= 0, "zero: %%%u of %s is no piece of %s", v, f->name,
       g->name);
  bool gathers = (g->stage == 1 || g->stage == 2) && g->ways > 1;
  if (gathers && g->copied) {
    Type t = type_with_elem(*value_type(f, v), g->narrow);
    int64_t messages = zero_messages(z, OP_all_gather, &t, g->ways);
    if (messages > 1) return by_message(z, f, g, v, messages);
  }
  if (g->copied) v = ir_cast(z->m, f, v, g->narrow, (Loc){0});
  if (gathers) v = zero_gather(z, f, g, v);
  return g->stage < 3 ? zero_join(z, f, g, v, g->rounds.dim != NULL) : v;
}

/* Parameters end to end and taken out again, for 1-bit Adam: [chunk, block, in], a chunk for each
   worker, whole blocks in each. All of it is renaming, merging, slicing: views, where the storage
   allows it. */
#include "passes/onebit.h"

static Type led_by(const Onebit *k, Elem e, bool each) { return type_of(e, each, &k->worker); }

static void push(Type *t, Str dim, int64_t size) { t->axis[t->rank++] = (Axis){dim, size}; }

static Str member_dim(const Onebit *k, uint32_t i) {
  return intern_printf(k->u.m->ctx->names, "%s_%u", k->flat, i);
}

/* A parameter's values with all dims but the workers merged into one. */
static ValueId line_up(Onebit *k, uint32_t i, ValueId v, bool each) {
  const Global *g = k->u.m->globals.at[i];
  Str from[MAX_RANK], to = member_dim(k, i);
  int n = g->type.rank;
  for (int d = 0; d < n; d++) from[d] = g->type.axis[d].dim;
  Type t = led_by(k, value_type(k->u.f, v)->elem, each);
  push(&t, to, type_count(&g->type));
  if (!n) {
    Group one = group_dims(1, &to);
    return emit_typed(k->u.m, k->u.f, OP_expand, 1, &v, &one, t, g->loc);
  }
  Group map = group_map(n, from, 1, &to);
  return emit_typed(k->u.m, k->u.f, n == 1 ? OP_rename : OP_merge, 1, &v, &map, t, g->loc);
}

typedef struct PieceLine { /* pieces that stand one behind the other */
  ValueId at[MAX_RANK];
  Str name[MAX_RANK];
  int n;
  uint32_t steps;
} PieceLine;

/* What is in the line becomes one piece. */
static void close_line(Onebit *k, PieceLine *l, Str name, bool each) {
  int64_t size = 0;
  for (int i = 0; i < l->n; i++) size += type_size(value_type(k->u.f, l->at[i]), l->name[i]);
  Type t = led_by(k, value_type(k->u.f, l->at[0])->elem, each);
  push(&t, name, size);
  Group map = group_map(l->n, l->name, 1, &name);
  l->at[0] = l->n > 1
                 ? emit_typed(k->u.m, k->u.f, OP_concat, (uint32_t)l->n, l->at, &map, t, (Loc){0})
                 : emit_typed(k->u.m, k->u.f, OP_rename, 1, l->at, &map, t, (Loc){0});
  l->name[0] = name, l->n = 1;
}

static void add(Onebit *k, PieceLine *l, ValueId v, Str name, bool each) {
  if (l->n == MAX_RANK) {
    Str to = intern_printf(k->u.m->ctx->names, "%s_to_%u", k->flat, l->steps++);
    close_line(k, l, to, each);
  }
  l->at[l->n] = v, l->name[l->n++] = name;
}

ValueId onebit_flatten(Onebit *k, const ValueId *value, bool each) {
  PieceLine l = {.n = 0};
  Module *m = k->u.m;
  int64_t all = k->chunk.size * k->block.size * k->in.size;
  for (uint32_t i = 0; i < k->u.globals; i++)
    if (value[i] != NO_VALUE) add(k, &l, line_up(k, i, value[i], each), member_dim(k, i), each);
  if (all > k->count) {
    Str name = member_dim(k, k->u.globals);
    Type t = led_by(k, value_type(k->u.f, l.at[0])->elem, each);
    push(&t, name, all - k->count);
    add(k, &l, emit_full(m, k->u.f, t, 0, (Loc){0}), name, each);
  }
  close_line(k, &l, k->flat, each);
  Str to[] = {k->chunk.dim, k->block.dim, k->in.dim};
  Group cut = group_map(1, &k->flat, 3, to);
  Type t = led_by(k, value_type(k->u.f, l.at[0])->elem, each);
  push(&t, k->chunk.dim, k->chunk.size), push(&t, k->block.dim, k->block.size);
  push(&t, k->in.dim, k->in.size);
  return emit_typed(m, k->u.f, OP_split, 1, l.at, &cut, t, (Loc){0});
}

static ValueId piece(Onebit *k, uint32_t i, ValueId line, int64_t at) {
  Module *m = k->u.m;
  const Global *g = m->globals.at[i];
  Str to = member_dim(k, i), dims[MAX_RANK];
  Type t = type_of(ELEM_f32, 1, &(Axis){to, type_count(&g->type)});
  Group cut = group_map(1, &k->flat, 1, &to);
  ValueId v = emit_typed(m, k->u.f, OP_slice, 1, &line, &cut, t, g->loc);
  const Value *made = &k->u.f->values.at[v];
  attr_set_int(m, &k->u.f->ops.at[made->def].attrs, ATTR_at, at);
  int n = g->type.rank;
  if (!n) return ir_reduce(m, k->u.f, OP_sum, v, 1, &to, g->loc); /* of one element */
  for (int d = 0; d < n; d++) dims[d] = g->type.axis[d].dim;
  Group map = group_map(1, &to, n, dims);
  return emit_typed(m, k->u.f, n == 1 ? OP_rename : OP_split, 1, &v, &map,
                    type_with_elem(g->type, ELEM_f32), g->loc);
}

void onebit_pieces(Onebit *k, ValueId flat, ValueId *value) {
  Str from[] = {k->all, k->block.dim, k->in.dim};
  Group map = group_map(3, from, 1, &k->flat);
  Type t = type_of(ELEM_f32, 0, NULL);
  push(&t, k->flat, k->chunk.size * k->block.size * k->in.size);
  ValueId line = emit_typed(k->u.m, k->u.f, OP_merge, 1, &flat, &map, t, (Loc){0});
  int64_t at = 0;
  for (uint32_t i = 0; i < k->u.globals; i++) {
    value[i] = NO_VALUE;
    if (k->gradient[i] == NO_VALUE) continue;
    value[i] = piece(k, i, line, at);
    at += type_count(&k->u.m->globals.at[i]->type);
  }
}

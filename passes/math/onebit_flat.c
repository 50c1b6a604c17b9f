/* Parameters end to end and taken out again, for 1-bit Adam: [chunk, block, in], a chunk for each
   worker, whole blocks in each. All of it is renaming, merging, slicing: views, where the storage
   allows it. */
#include "ir/made.h"
#include "onebit.h"

static Type led_by(const Onebit *onebit, Elem e, bool each) {
  return type_of(e, each, &onebit->worker);
}

static void push(Type *t, Str dim, int64_t size) { t->axis[t->rank++] = (Axis){dim, size}; }

static Str member_dim(const Onebit *onebit, uint32_t i) {
  return name_made(onebit->u.m, "%s'%u", onebit->flat, i);
}

/* A parameter's values with all dims but the workers merged into one. */
static ValueId line_up(Onebit *onebit, uint32_t i, ValueId v, bool each) {
  const Global *global = onebit->u.m->globals.at[i];
  Str from[MAX_RANK], to = member_dim(onebit, i);
  int n = global->type.rank;
  for (int d = 0; d < n; d++) from[d] = global->type.axis[d].dim;
  Type t = led_by(onebit, value_type(onebit->u.f, v)->elem, each);
  push(&t, to, type_count(&global->type));
  if (!n) {
    Group one = group_dims(1, &to);
    return emit_typed(onebit->u.m, onebit->u.f, OP_expand, 1, &v, &one, t, global->loc);
  }
  Group map = group_map(n, from, 1, &to);
  return emit_typed(onebit->u.m, onebit->u.f, n == 1 ? OP_rename : OP_merge, 1, &v, &map, t,
                    global->loc);
}

typedef struct PieceLine { /* adjacent pieces */
  ValueId at[MAX_RANK];
  Str name[MAX_RANK];
  int n;
  uint32_t steps;
} PieceLine;

/* Joins the pieces of the line to one piece. */
static void close_line(Onebit *onebit, PieceLine *line, Str name, bool each) {
  int64_t size = 0;
  for (int i = 0; i < line->n; i++)
    size += type_size(value_type(onebit->u.f, line->at[i]), line->name[i]);
  Type t = led_by(onebit, value_type(onebit->u.f, line->at[0])->elem, each);
  push(&t, name, size);
  Group map = group_map(line->n, line->name, 1, &name);
  line->at[0] =
      line->n > 1 ? emit_typed(onebit->u.m, onebit->u.f, OP_concat, (uint32_t)line->n, line->at,
                               &map, t, (Loc){0})
                  : emit_typed(onebit->u.m, onebit->u.f, OP_rename, 1, line->at, &map, t, (Loc){0});
  line->name[0] = name, line->n = 1;
}

static void add(Onebit *onebit, PieceLine *line, ValueId v, Str name, bool each) {
  if (line->n == MAX_RANK) {
    Str to = name_made(onebit->u.m, "%s'to_%u", onebit->flat, line->steps++);
    close_line(onebit, line, to, each);
  }
  line->at[line->n] = v, line->name[line->n++] = name;
}

ValueId onebit_flatten(Onebit *onebit, const ValueId *value, bool each) {
  PieceLine line = {.n = 0};
  Module *m = onebit->u.m;
  int64_t all = onebit->chunk.size * onebit->block.size * onebit->in.size;
  for (uint32_t i = 0; i < onebit->u.globals; i++)
    if (value[i] != NO_VALUE)
      add(onebit, &line, line_up(onebit, i, value[i], each), member_dim(onebit, i), each);
  if (all > onebit->count) {
    Str name = member_dim(onebit, onebit->u.globals);
    Type t = led_by(onebit, value_type(onebit->u.f, line.at[0])->elem, each);
    push(&t, name, all - onebit->count);
    add(onebit, &line, emit_full(m, onebit->u.f, t, 0, (Loc){0}), name, each);
  }
  close_line(onebit, &line, onebit->flat, each);
  Str to[] = {onebit->chunk.dim, onebit->block.dim, onebit->in.dim};
  Group cut = group_map(1, &onebit->flat, 3, to);
  Type t = led_by(onebit, value_type(onebit->u.f, line.at[0])->elem, each);
  push(&t, onebit->chunk.dim, onebit->chunk.size), push(&t, onebit->block.dim, onebit->block.size);
  push(&t, onebit->in.dim, onebit->in.size);
  return emit_typed(m, onebit->u.f, OP_split, 1, line.at, &cut, t, (Loc){0});
}

static ValueId piece(Onebit *onebit, uint32_t i, ValueId line, int64_t at) {
  Module *m = onebit->u.m;
  const Global *global = m->globals.at[i];
  Str to = member_dim(onebit, i), dims[MAX_RANK];
  Type t = type_of(ELEM_f32, 1, &(Axis){to, type_count(&global->type)});
  Group cut = group_map(1, &onebit->flat, 1, &to);
  ValueId v = emit_typed(m, onebit->u.f, OP_slice, 1, &line, &cut, t, global->loc);
  const Value *made = &onebit->u.f->values.at[v];
  attr_set_int(m, &onebit->u.f->ops.at[made->def].attrs, ATTR_at, at);
  int n = global->type.rank;
  if (!n) return ir_reduce(m, onebit->u.f, OP_sum, v, 1, &to, global->loc); /* of one element */
  for (int d = 0; d < n; d++) dims[d] = global->type.axis[d].dim;
  Group map = group_map(1, &to, n, dims);
  return emit_typed(m, onebit->u.f, n == 1 ? OP_rename : OP_split, 1, &v, &map,
                    type_with_elem(global->type, ELEM_f32), global->loc);
}

void onebit_pieces(Onebit *onebit, ValueId flat, ValueId *value) {
  Str from[] = {onebit->all, onebit->block.dim, onebit->in.dim};
  Group map = group_map(3, from, 1, &onebit->flat);
  Type t = type_of(ELEM_f32, 0, NULL);
  push(&t, onebit->flat, onebit->chunk.size * onebit->block.size * onebit->in.size);
  ValueId line = emit_typed(onebit->u.m, onebit->u.f, OP_merge, 1, &flat, &map, t, (Loc){0});
  int64_t at = 0;
  for (uint32_t i = 0; i < onebit->u.globals; i++) {
    value[i] = NO_VALUE;
    if (onebit->gradient[i] == NO_VALUE) continue;
    value[i] = piece(onebit, i, line, at);
    at += type_count(&onebit->u.m->globals.at[i]->type);
  }
}

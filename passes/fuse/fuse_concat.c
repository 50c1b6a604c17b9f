/* fuse, before grouping: copy elision for concats. The kernels that make the operands write them
   to their places in the result, so that no kernel copies them together (XLA and TVM do it when
   they assign buffers). The most important case is gradients that `zero` flattens for one message:
   each product writes its piece of the bucket.

   A concat is laid out in place if all of this holds:
   - Its result is needed in memory (it is sent, stored, returned, or an operand of a loop or a
     product); or it is large, and with its number of operands a reader takes longer to find the
     operand of each element than a kernel takes to write and read the result.
   - Its operands are adjacent in the result.
   - At least one large operand is made for the concat alone, either element by element or by an op
     that writes its result anyway (a contraction with its epilogue, attention, a scatter, a
     reduction, a loop, a collective).

   Each run of neighbouring other operands (small ones, padding, values with other readers, values
   that would not begin at 16 bytes) stays a concat, which one kernel writes to its place.

   A value that many slices take apart again is a buffer as well (fuse_in_memory): slices of it are
   views.

   A concat that is added to an earlier sum (micro-batches whose gradients stay whole) is taken
   apart first: x + concat(a, b) becomes concat(x's piece + a, x's piece + b), as far as a product
   or a scatter makes a piece and adds in its epilogue; order_inplace.c then places all of it in
   the buffer of x.

   The pass marks concats (storage `assembled`); `order` copies the operands that end up elsewhere.
   Must not: change a value. */
#include "ir/made.h"
#include "ir/bytes.h"
#include "fuse.h"

enum {
  ALIGNED = 16, /* bytes: the widest access of a GPU, which the verifier requires */
  MANY = 3,     /* parts: their selects cost more than a buffer that is written and read */
  LARGE = 16384 /* bytes: a kernel of its own costs less than copying them element by element */
};

typedef struct LaidPiece {
  ValueId v;
  Str dim; /* the one that is joined */
  bool direct;
} LaidPiece;

typedef VEC(LaidPiece) PieceList;

typedef struct Lay {
  Rebuild r;
  const uint32_t *uses;
  bool *absorbed; /* by OpId: part of a concat which is laid, and written with it */
  uint32_t made;
} Lay;

/* ---- readers of the concat ---- */

static bool is_view(const Op *op) { return op_flags(op->code) & VIEW; }

static bool in_memory(const Fn *f, ValueId v);

/* Does op o read its operand k from memory, as it is? */
static bool reads_buffer(const Fn *fn, const Op *op, uint32_t k) {
  OpFamily family = op_family(op->code);
  if (is_view(op) && op->nout == 1) return in_memory(fn, op->out);
  return op_between_buffers(op->code) || family == FAMILY_CONTRACT || op->code == OP_loop ||
         op->code == OP_store || (family == FAMILY_ATTENTION && k < 3);
}

static bool in_memory(const Fn *fn, ValueId value) {
  bool any = value_is_result(fn, value);
  for (OpId i = 0; i < fn->ops.n; i++)
    for (uint32_t k = 0; k < fn->ops.at[i].nin; k++) {
      if (fn->ops.at[i].in[k] != value) continue;
      if (!reads_buffer(fn, &fn->ops.at[i], k)) return false;
      any = true;
    }
  return any;
}

/* ---- producers of an operand ---- */

/* A view of all of its operand, under other names. */
static bool shows_all(const Op *op) {
  return op && (op->code == OP_rename || op->code == OP_merge || op->code == OP_split);
}

/* Does the op end in the epilogue of a product, or in the buffer that a scatter adds to? */
static bool ends_kernel(const Lay *layer, const Op *op) {
  const Fn *fn = layer->r.from;
  const Type *type = value_type(fn, op->out);
  for (uint32_t k = 0; op_family(op->code) == FAMILY_ELEM && k < op->nin; k++) {
    const Op *from = value_def(fn, op->in[k]);
    if (!from || layer->uses[op->in[k]] != 1 || !type_same_dims(type, value_type(fn, op->in[k])))
      continue;
    if (op_family(from->code) == FAMILY_CONTRACT || ends_kernel(layer, from)) return true;
    if (op->code == OP_add && from->code == OP_scatter) return true;
  }
  return false;
}

static bool writes_anyway(const Lay *layer, const Op *op) {
  OpFamily family = op_family(op->code);
  return family == FAMILY_CONTRACT || family == FAMILY_SCATTER || family == FAMILY_ATTENTION ||
         family == FAMILY_REDUCE || op_between_buffers(op->code) || op->code == OP_loop ||
         ends_kernel(layer, op);
}

/* Element by element: by a kernel of its own where there is much of it. */
static bool writes_much(const Lay *layer, const Op *op) {
  bool moves = is_view(op) || !(op_flags(op->code) & POINT);
  return !moves && value_dense_bytes(layer->r.from, op->out) >= LARGE;
}

static bool is_direct(const Lay *layer, ValueId value) {
  const Op *op = value_def(layer->r.from, value);
  for (; op && layer->uses[value] == 1 && shows_all(op); op = value_def(layer->r.from, value))
    value = op->in[0];
  return op && layer->uses[value] == 1 && (writes_anyway(layer, op) || writes_much(layer, op));
}

/* ---- pieces ---- */

/* Concats of concats are one list. */
static void list_pieces(Lay *layer, const Op *op, bool absorb, PieceList *list) {
  const Fn *fn = layer->r.from;
  for (uint32_t k = 0; k < op->nin; k++) {
    const Op *inner = value_def(fn, op->in[k]);
    bool nested = inner && inner->code == OP_concat && layer->uses[op->in[k]] == 1 &&
                  inner->group[0].to[0] == op->group[0].from[k];
    if (nested) list_pieces(layer, inner, absorb, list);
    if (nested && absorb) layer->absorbed[fn->values.at[op->in[k]].def] = true;
    if (!nested)
      vec_push(layer->r.m->arena, *list,
               (LaidPiece){op->in[k], op->group[0].from[k], is_direct(layer, op->in[k])});
  }
}

/* Pieces that begin or end at bytes where no value may begin are not written directly. */
static bool mark_aligned(const Lay *layer, PieceList *list) {
  int64_t at = 0;
  bool any = false;
  for (uint32_t i = 0; i < list->n; i++) {
    int64_t end = at + value_dense_bytes(layer->r.from, list->at[i].v);
    bool fits = at % ALIGNED == 0 && (end % ALIGNED == 0 || i + 1 == list->n);
    list->at[i].direct &= fits;
    any |= list->at[i].direct;
    at = end;
  }
  return any;
}

/* Are the operands adjacent in memory, one after the other? */
static bool is_outermost(const Fn *fn, const Op *op) {
  const Type *type = value_type(fn, op->out);
  for (int i = 0; i < type->rank; i++) {
    if (type->axis[i].dim == op->group[0].to[0]) return true;
    if (type->axis[i].size > 1) return false;
  }
  return false;
}

/* Pieces of a concat that is laid out in place; none for others. */
static PieceList pieces_of(Lay *layer, const Op *op) {
  PieceList list = {0};
  if (op->code != OP_concat || !is_outermost(layer->r.from, op)) return list;
  list_pieces(layer, op, false, &list);
  bool much = list.n >= MANY && value_dense_bytes(layer->r.from, op->out) >= LARGE;
  if (!(much || in_memory(layer->r.from, op->out)) || !mark_aligned(layer, &list))
    return (PieceList){0};
  return list;
}

/* ---- sums ---- */

/* Is v in a buffer that only this sum reads? */
static bool is_earlier(const Lay *layer, ValueId value) {
  const Op *op = value_def(layer->r.from, value);
  return layer->uses[value] == 1 && (!op || op->code == OP_loop);
}

/* Is the value made by an op that can add in its epilogue? A sum of columns, for example,
   cannot, nor can an argument. */
static bool adds_up(const Lay *layer, ValueId value) {
  const Op *op = value_def(layer->r.from, value);
  while (shows_all(op)) op = value_def(layer->r.from, op->in[0]);
  OpFamily family = op ? op_family(op->code) : FAMILY_SOURCE;
  return family == FAMILY_CONTRACT || family == FAMILY_SCATTER || (op && ends_kernel(layer, op));
}

/* The concat that o adds to an earlier value, or NULL: *x is that one. */
static const Op *added_concat(const Lay *layer, const Op *o, ValueId *x) {
  for (uint32_t k = 0; o->code == OP_add && k < 2; k++) {
    const Op *c = value_def(layer->r.from, o->in[k]);
    *x = o->in[1 - k];
    if (c && c->code == OP_concat && layer->uses[c->out] == 1 && is_outermost(layer->r.from, c) &&
        is_earlier(layer, *x) &&
        type_equal(value_type(layer->r.from, *x), value_type(layer->r.from, c->out)))
      return c;
  }
  return NULL;
}

/* Pieces of a sum that is laid over x; none if it is not. */
static PieceList pieces_of_sum(Lay *layer, const Op *o, ValueId *value) {
  PieceList list = {0};
  const Op *c = added_concat(layer, o, value);
  if (!c || !in_memory(layer->r.from, o->out)) return list;
  list_pieces(layer, c, false, &list);
  for (uint32_t i = 0; i < list.n; i++) list.at[i].direct &= adds_up(layer, list.at[i].v);
  if (!mark_aligned(layer, &list)) return (PieceList){0};
  return list;
}

static ValueId view_as(Lay *layer, const Op *like, bool back, ValueId value, Type type) {
  OpCode c = !back || like->code == OP_rename ? like->code
             : like->code == OP_merge         ? OP_split
                                              : OP_merge;
  Op *op = fn_op(layer->r.m, layer->r.to, c, 1, &value, 1, &type, like->loc);
  for (int i = 0; i < like->ngroups; i++) {
    const Group *group = &like->group[i];
    op_add_group(layer->r.m, op,
                 back ? group_map(group->nto, group->to, group->nfrom, group->from) : *group);
  }
  return op->out;
}

/* The sum of v of the old function and a piece of x, made together with v, before its views. */
static ValueId add_below(Lay *layer, ValueId value, ValueId piece) {
  const Fn *fn = layer->r.from;
  const Op *op = value_def(fn, value);
  if (!shows_all(op))
    return ir_binary(layer->r.m, layer->r.to, OP_add, piece, layer->r.map[value], op->loc);
  piece = view_as(layer, op, true, piece, *value_type(fn, op->in[0]));
  return view_as(layer, op, false, add_below(layer, op->in[0], piece), *value_type(fn, value));
}

/* The piece of x that starts at element `at` of the joined dim and has the size that p gives. */
static ValueId piece_of(Lay *layer, ValueId x, Str whole, Axis axis, int64_t at) {
  Type type = *value_type(layer->r.to, x);
  type.axis[type_find(&type, whole)] = axis;
  Group cut = group_map(1, &whole, 1, &axis.dim);
  ValueId v = emit_typed(layer->r.m, layer->r.to, OP_slice, 1, &x, &cut, type, (Loc){0});
  attr_set_int(layer->r.m, &vec_last(layer->r.to->ops).attrs, ATTR_at, at);
  return v;
}

/* ---- writing ---- */

static Str new_dim(Lay *layer, Str of) {
  return name_made(layer->r.m, "%s'laid%u", of, layer->made++);
}

static int64_t size_of(const Lay *layer, LaidPiece piece) {
  return type_size(value_type(layer->r.to, piece.v), piece.dim);
}

static void lay(Lay *layer, ValueId value) {
  layer->r.to->values.at[value].storage.view = VIEW_ASSEMBLED;
}

/* n pieces under the name `to`, in as many steps as a list of dims needs. */
static ValueId join(Lay *layer, const LaidPiece *piece, uint32_t n, Str to, bool laid, Loc loc) {
  LaidPiece all = piece[0];
  for (uint32_t i = 1; i < n;) {
    ValueId in[MAX_RANK] = {all.v};
    Str from[MAX_RANK] = {all.dim};
    int64_t size = size_of(layer, all);
    int k = 1;
    for (; k < MAX_RANK && i < n; k++, i++)
      in[k] = piece[i].v, from[k] = piece[i].dim, size += size_of(layer, piece[i]);
    Str name = i < n ? new_dim(layer, to) : to;
    Type type = *value_type(layer->r.to, in[0]);
    type.axis[type_find(&type, from[0])] = (Axis){name, size};
    Group map = group_map(k, from, 1, &name);
    all = (LaidPiece){
        emit_typed(layer->r.m, layer->r.to, OP_concat, (uint32_t)k, in, &map, type, loc), name,
        true};
    if (laid) lay(layer, all.v);
  }
  return all.v;
}

/* Neighbours without a kernel of their own become one piece. */
static PieceList gather_rest(Lay *layer, const PieceList *list, Str of, Loc loc) {
  PieceList out = {0};
  for (uint32_t i = 0, n; i < list->n; i += n) {
    LaidPiece piece = list->at[i];
    for (n = 1; !piece.direct && i + n < list->n && !list->at[i + n].direct;) n++;
    if (n > 1)
      piece.dim = new_dim(layer, of), piece.v = join(layer, &list->at[i], n, piece.dim, false, loc);
    vec_push(layer->r.m->arena, out, piece);
  }
  return out;
}

static void write(Lay *layer, const Op *op, PieceList list) {
  Str to = op->group[0].to[0];
  for (uint32_t i = 0; i < list.n; i++) list.at[i].v = layer->r.map[list.at[i].v];
  PieceList pieces = gather_rest(layer, &list, to, op->loc);
  if (pieces.n > 1) layer->r.map[op->out] = join(layer, pieces.at, pieces.n, to, true, op->loc);
  else
    layer->r.map[op->out] =
        ir_rename(layer->r.m, layer->r.to, pieces.at[0].v, pieces.at[0].dim, to, op->loc);
}

static void write_sum(Lay *layer, const Op *o, PieceList list, ValueId value) {
  const Op *c = added_concat(layer, o, &value);
  Str to = c->group[0].to[0];
  int64_t at = 0;
  PieceList pieces = {0};
  value = layer->r.map[value];
  for (uint32_t i = 0, n; i < list.n; i += n) {
    LaidPiece laid_piece = list.at[i];
    for (n = 1; !laid_piece.direct && i + n < list.n && !list.at[i + n].direct;) n++;
    Axis axis = {n > 1 ? new_dim(layer, to) : laid_piece.dim, 0};
    for (uint32_t k = i; k < i + n; k++)
      axis.size += type_size(value_type(layer->r.from, list.at[k].v), list.at[k].dim);
    ValueId piece = piece_of(layer, value, to, axis, at);
    if (!laid_piece.direct) {
      for (uint32_t k = i; k < i + n; k++) list.at[k].v = layer->r.map[list.at[k].v];
      ValueId rest = n > 1 ? join(layer, &list.at[i], n, axis.dim, false, o->loc) : list.at[i].v;
      laid_piece.v = ir_binary(layer->r.m, layer->r.to, OP_add, piece, rest, o->loc);
    } else laid_piece.v = add_below(layer, laid_piece.v, piece);
    laid_piece.dim = axis.dim, at += axis.size;
    vec_push(layer->r.m->arena, pieces, laid_piece);
  }
  layer->r.map[o->out] = join(layer, pieces.at, pieces.n, to, true, o->loc);
}

/* Views of products that are added below them are not written where they were. */
static void absorb_views(Lay *layer, const PieceList *list) {
  const Fn *fn = layer->r.from;
  for (uint32_t i = 0; i < list->n; i++)
    for (const Op *op = value_def(fn, list->at[i].v); list->at[i].direct && shows_all(op);
         op = value_def(fn, op->in[0]))
      layer->absorbed[op - fn->ops.at] = true;
}

/* As few pieces as one concat has. */
static bool is_sum(Lay *layer, const Op *op, PieceList *list, ValueId *value) {
  *list = pieces_of_sum(layer, op, value);
  return list->n > 1 && list->n <= MAX_RANK;
}

Fn *fuse_lay(Module *module, const Fn *fn) {
  Lay layer = {.r = rebuild_begin(module, fn), .uses = fuse_uses(module->arena, fn)};
  PieceList list;
  ValueId value;
  layer.absorbed = ARENA_ARRAY(module->arena, bool, fn->ops.n + 1);
  for (OpId i = fn->ops.n; i-- > 0;) {
    const Op *op = &fn->ops.at[i];
    bool sum = is_sum(&layer, op, &list, &value);
    if (sum) absorb_views(&layer, &list);
    if (sum)
      op = added_concat(&layer, op, &value), layer.absorbed[fn->values.at[op->out].def] = true;
    list = (PieceList){0};
    if (sum || pieces_of(&layer, op).n) list_pieces(&layer, op, true, &list);
  }
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (layer.absorbed[i]) continue;
    if (is_sum(&layer, op, &list, &value)) write_sum(&layer, op, list, value);
    else if ((list = pieces_of(&layer, op)).n) write(&layer, op, list);
    else rebuild_op(&layer.r, op);
  }
  rebuild_results(&layer.r);
  return layer.r.to;
}

/* ---- values that fuse must keep in memory ---- */

/* The value that the views leading to v show. */
static ValueId below_views(const Fn *fn, ValueId value) {
  const Op *op = value_def(fn, value);
  for (; op && shows_all(op); op = value_def(fn, value)) value = op->in[0];
  return value;
}

static uint32_t slices_of(const Fn *fn, ValueId value) {
  uint32_t n = 0;
  for (OpId i = 0; i < fn->ops.n; i++)
    n += fn->ops.at[i].code == OP_slice && fn->ops.at[i].in[0] == value;
  return n;
}

bool *fuse_in_memory(Arena *arena, const Fn *fn) {
  bool *kept = ARENA_ARRAY(arena, bool, fn->values.n + 1);
  EACH_OP (fn, op) {
    for (uint32_t k = 0; op_lays(fn, op) && k < op->nin; k++)
      kept[below_views(fn, op->in[k])] = true;
    bool much = op->code == OP_slice && value_dense_bytes(fn, op->in[0]) >= LARGE;
    if (much && slices_of(fn, op->in[0]) >= MANY) kept[below_views(fn, op->in[0])] = true;
  }
  return kept;
}

/* fuse, before grouping: concats whose operands are written at their places by the kernels that
   make them, so that no kernel copies them together (copy elision; XLA and TVM do it when they
   assign buffers). Gradients that `zero` flattens for one message are the case that counts: each
   product writes its part of the bucket.

   A concat is laid if its result is needed in memory (it is sent, stored, returned, goes into a
   loop or a product), if its operands lie one behind the other there, and if one of them at least
   is made for it alone by an op that writes its result anyway: a contraction with its epilogue,
   attention, a scatter, a reduction, a loop, a collective. The other operands (casts of sums,
   padding, values that others read, too, what would not begin at 16 bytes) stay a concat, one for
   all that are neighbours, which one kernel writes into its place: the copy of before, of those
   alone.

   It marks concats (storage `laid`) and leaves the rest to `order`, which copies what turns out to
   lie otherwise. Must not: change what a value is. */
#include "ir/bytes.h"
#include "passes/fuse.h"

enum { ALIGNED = 16 }; /* bytes: the widest access of a GPU, and what the verifier asks for */

typedef struct Piece {
  ValueId v;
  Str dim; /* the one that is joined */
  bool direct;
} Piece;

typedef VEC(Piece) PieceList;

typedef struct Lay {
  Rebuild r;
  const uint32_t *uses;
  bool *absorbed; /* by OpId: a concat that is part of one which is laid */
  uint32_t made;
} Lay;

/* ---- who reads it ---- */

static bool is_view(const Op *o) { return op_flags(o->code) & VIEW; }

static bool in_memory(const Fn *f, ValueId v);

/* Does op o read its operand k from memory, as it is? */
static bool reads_buffer(const Fn *f, const Op *o, uint32_t k) {
  OpFamily family = op_family(o->code);
  if (is_view(o) && o->nout == 1) return in_memory(f, o->out);
  return family == FAMILY_COLLECTIVE || family == FAMILY_CONTRACT || o->code == OP_loop ||
         o->code == OP_store || (family == FAMILY_ATTENTION && k < 3);
}

static bool returned(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return true;
  return false;
}

static bool in_memory(const Fn *f, ValueId v) {
  bool any = returned(f, v);
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      if (f->ops.at[i].in[k] != v) continue;
      if (!reads_buffer(f, &f->ops.at[i], k)) return false;
      any = true;
    }
  return any;
}

/* ---- who makes an operand ---- */

/* A view of all of its operand, under other names. */
static bool shows_all(const Op *o) {
  return o->code == OP_rename || o->code == OP_merge || o->code == OP_split;
}

/* What ends in the epilogue of a product, or in the buffer that a scatter adds to. */
static bool ends_kernel(const Lay *l, const Op *o) {
  const Fn *f = l->r.from;
  const Type *t = value_type(f, o->out);
  for (uint32_t k = 0; op_family(o->code) == FAMILY_ELEM && k < o->nin; k++) {
    const Op *from = value_def(f, o->in[k]);
    if (!from || l->uses[o->in[k]] != 1 || !type_same_dims(t, value_type(f, o->in[k]))) continue;
    if (op_family(from->code) == FAMILY_CONTRACT || ends_kernel(l, from)) return true;
    if (o->code == OP_add && from->code == OP_scatter) return true;
  }
  return false;
}

static bool writes_anyway(const Lay *l, const Op *o) {
  OpFamily family = op_family(o->code);
  return family == FAMILY_CONTRACT || family == FAMILY_SCATTER || family == FAMILY_ATTENTION ||
         family == FAMILY_REDUCE || family == FAMILY_COLLECTIVE || o->code == OP_loop ||
         ends_kernel(l, o);
}

static bool is_direct(const Lay *l, ValueId v) {
  const Op *o = value_def(l->r.from, v);
  for (; o && l->uses[v] == 1 && shows_all(o); o = value_def(l->r.from, v)) v = o->in[0];
  return o && l->uses[v] == 1 && writes_anyway(l, o);
}

/* ---- pieces ---- */

/* Concats of concats are one list. */
static void list_pieces(Lay *l, const Op *o, bool absorb, PieceList *list) {
  const Fn *f = l->r.from;
  for (uint32_t k = 0; k < o->nin; k++) {
    const Op *inner = value_def(f, o->in[k]);
    bool nested = inner && inner->code == OP_concat && l->uses[o->in[k]] == 1 &&
                  inner->group[0].to[0] == o->group[0].from[k];
    if (nested) list_pieces(l, inner, absorb, list);
    if (nested && absorb) l->absorbed[f->values.at[o->in[k]].def] = true;
    if (!nested)
      vec_push(l->r.m->arena, *list,
               (Piece){o->in[k], o->group[0].from[k], is_direct(l, o->in[k])});
  }
}

/* Pieces that begin or end at bytes where no value may begin are not written directly. */
static bool mark_aligned(const Lay *l, PieceList *list) {
  int64_t at = 0;
  bool any = false;
  for (uint32_t i = 0; i < list->n; i++) {
    int64_t end = at + fuse_bytes(l->r.from, list->at[i].v);
    bool fits = at % ALIGNED == 0 && (end % ALIGNED == 0 || i + 1 == list->n);
    list->at[i].direct &= fits;
    any |= list->at[i].direct;
    at = end;
  }
  return any;
}

/* Do the operands lie one behind the other? */
static bool is_outermost(const Fn *f, const Op *o) {
  const Type *t = value_type(f, o->out);
  for (int i = 0; i < t->rank; i++) {
    if (t->axis[i].dim == o->group[0].to[0]) return true;
    if (t->axis[i].size > 1) return false;
  }
  return false;
}

/* Pieces of what is laid; none if it is not. */
static PieceList pieces_of(Lay *l, const Op *o) {
  PieceList list = {0};
  if (o->code != OP_concat || !is_outermost(l->r.from, o) || !in_memory(l->r.from, o->out))
    return list;
  list_pieces(l, o, false, &list);
  if (!mark_aligned(l, &list)) return (PieceList){0};
  return list;
}

/* ---- writing ---- */

static Str new_dim(Lay *l, Str of) {
  return intern_printf(l->r.m->ctx->names, "%s_laid%u", of, l->made++);
}

static int64_t size_of(const Lay *l, Piece p) { return type_size(value_type(l->r.to, p.v), p.dim); }

static void lay(Lay *l, ValueId v) { l->r.to->values.at[v].storage.view = VIEW_LAID; }

/* n pieces under the name `to`, in as many steps as a list of dims needs. */
static ValueId join(Lay *l, const Piece *p, uint32_t n, Str to, bool laid, Loc loc) {
  Piece all = p[0];
  for (uint32_t i = 1; i < n;) {
    ValueId in[MAX_RANK] = {all.v};
    Str from[MAX_RANK] = {all.dim};
    int64_t size = size_of(l, all);
    int k = 1;
    for (; k < MAX_RANK && i < n; k++, i++)
      in[k] = p[i].v, from[k] = p[i].dim, size += size_of(l, p[i]);
    Str name = i < n ? new_dim(l, to) : to;
    Type t = *value_type(l->r.to, in[0]);
    t.axis[type_find(&t, from[0])] = (Axis){name, size};
    Group map = group_map(k, from, 1, &name);
    all =
        (Piece){emit_typed(l->r.m, l->r.to, OP_concat, (uint32_t)k, in, &map, t, loc), name, true};
    if (laid) lay(l, all.v);
  }
  return all.v;
}

/* Neighbours without a kernel of their own become one piece. */
static PieceList gather_rest(Lay *l, const PieceList *list, Str of, Loc loc) {
  PieceList out = {0};
  for (uint32_t i = 0, n; i < list->n; i += n) {
    Piece p = list->at[i];
    for (n = 1; !p.direct && i + n < list->n && !list->at[i + n].direct;) n++;
    if (n > 1) p.dim = new_dim(l, of), p.v = join(l, &list->at[i], n, p.dim, false, loc);
    vec_push(l->r.m->arena, out, p);
  }
  return out;
}

static void write(Lay *l, const Op *o, PieceList list) {
  Str to = o->group[0].to[0];
  for (uint32_t i = 0; i < list.n; i++) list.at[i].v = l->r.map[list.at[i].v];
  PieceList pieces = gather_rest(l, &list, to, o->loc);
  if (pieces.n > 1) l->r.map[o->out] = join(l, pieces.at, pieces.n, to, true, o->loc);
  else l->r.map[o->out] = ir_rename(l->r.m, l->r.to, pieces.at[0].v, pieces.at[0].dim, to, o->loc);
}

Fn *fuse_lay(Module *m, const Fn *f) {
  Lay l = {.r = rebuild_begin(m, f), .uses = fuse_uses(m->arena, f)};
  l.absorbed = ARENA_ARRAY(m->arena, bool, f->ops.n + 1);
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    PieceList list = {0};
    if (pieces_of(&l, o).n) list_pieces(&l, o, true, &list);
  }
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (l.absorbed[i]) continue;
    PieceList list = pieces_of(&l, o);
    if (list.n) write(&l, o, list);
    else rebuild_op(&l.r, o);
  }
  rebuild_results(&l.r);
  return l.r.to;
}

/* sparse: the masks of attention become lists of blocks, constants of the module (ir/lists.h).

   Where positions alone say that a mask leaves gaps (a window, blocks, `causal & sliding(n)`), the
   mask is asked block by block (ir/blocks.h): absent, full, partial. Heads of which the mask is the
   same (sparse_alike.c) or has the same full blocks share their lists, as layers do that agree.
   Data (padding, documents) neither leaves a block out nor makes it partial: where there is such,
   it is asked in full blocks, too (mask_rest). The mask stays with the op: it is what the lists
   mean, what the interpreter computes with, and what is asked inside of partial blocks.

   A mask whose rows are first admitted wholly, then in part, then not at all (`causal`) needs no
   lists: kernels find that with two comparisons. The pass stands where all sizes are those of one
   rank, so nothing of what places or recomputes values knows of lists. Must not: list more than
   ir/lists.h says; patterns of blocks are refused then. */
#include "passes/sparse.h"
#include "ir/lists.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"
#include "passes/tune/tune.h"

enum { WITHOUT = 64 };

typedef struct Listing {
  Module *m;
  Arena *work;
  const Fn *f;
  const Op *o;
  ValueId mask;
  Axis query, key;
  ListsHeads of;
  ListsShape s;
  bool counts;    /* in blocks */
  BlockMap *maps; /* by class */
  int64_t *class; /* by head */
} Listing;

/* Heads by dims, and by numbers of the rank, if all that the mask has are such. */
static bool count_heads(Listing *l) {
  ListsShape *s = &l->s;
  int64_t values[MASK_SCALARS];
  s->count = s->ranks = 1, s->heads = l->of.dims;
  for (int i = 0; i < l->of.dims; i++)
    if ((s->count *= s->head[i] = l->of.dim[i].size) > LISTS_HEADS) return false;
  bool ranks = l->of.scalars > 0 && l->of.dims + l->of.scalars <= MASK_DIMS;
  for (int i = 0; ranks && i < l->of.scalars; i++) {
    ranks = sparse_number(l->m, l->f, l->of.scalar[i], &values[i], &s->step[i]);
    s->ranks *= ranks ? values[i] : 1;
  }
  if (ranks && s->count > LISTS_RANKS / s->ranks) return s->count *= s->ranks, false;
  if (!ranks) return s->ranks = 1, true;
  s->scalars = l->of.scalars, s->count *= s->ranks;
  for (int i = 0; i < s->scalars; i++) s->head[s->heads++] = values[i];
  return true;
}

/* Its sizes; false: no lists are made of such a mask. */
static bool shape_of(Listing *l) {
  ListsShape *s = &l->s;
  l->of = lists_heads(l->f, l->mask, l->query.dim, l->key.dim);
  s->queries = l->query.size, s->keys = l->key.size;
  s->high = s->wide = mask_block_size(l->f, l->mask, l->query.dim, l->key.dim);
  l->counts = s->high > 0;
  if (!l->counts) s->high = s->wide = WITHOUT;
  s->rows = ceil_div(s->queries, s->high), s->columns = ceil_div(s->keys, s->wide);
  return s->rows * s->columns <= LISTS_BLOCKS && count_heads(l);
}

static BlockMap map_of(const Listing *l, Arena *a, int64_t h) {
  BlockHead at[MASK_DIMS];
  lists_head_at(&l->s, &l->of, h, at);
  BlockMap m =
      mask_places(a, l->f, l->mask, l->query, l->key, l->s.high, l->s.wide, l->s.heads, at);
  must(m.rows == l->s.rows && m.columns == l->s.columns,
       "sparse: %lld x %lld blocks of a head, lists of %lld x %lld", (long long)m.rows,
       (long long)m.columns, (long long)l->s.rows, (long long)l->s.columns);
  return m;
}

/* The class of a head of which the mask is another one than of those before: one with the same
   blocks, if all of them are full, since inside of partial ones the masks may differ. */
static int64_t class_of(Listing *l, int64_t h) {
  Arena *a = arena_new();
  BlockMap m = map_of(l, a, h);
  size_t bytes = (size_t)(m.rows * m.columns);
  int64_t c = m.partial ? l->s.classes : 0;
  while (c < l->s.classes && memcmp(l->maps[c].state, m.state, bytes) != 0) c++;
  if (c == l->s.classes) {
    l->maps[c] = m, l->maps[c].state = ARENA_ARRAY(l->work, uint8_t, bytes + 1);
    memcpy(l->maps[l->s.classes++].state, m.state, bytes);
  }
  return arena_free(a), c;
}

/* False: they would be more than a module's lists hold. */
static bool find_classes(Listing *l) {
  const SparseHeads x = {l->query.dim, l->key.dim, &l->s, &l->of};
  const int64_t *first = sparse_alike(l->work, l->f, l->mask, &x);
  int64_t most = LISTS_ALL / (l->s.rows * l->s.columns);
  for (int64_t h = 0; h < l->s.count && l->s.classes <= most; h++)
    l->class[h] = first[h] < h ? l->class[first[h]] : class_of(l, h);
  return l->s.classes <= most;
}

/* Patterns of blocks cost what they list, or are refused; others kernels find by intervals. */
static void refuse(const Listing *l) {
  const ListsShape *s = &l->s;
  const char *why = arena_printf(
      l->m->arena,
      "%lld x %lld blocks of each of %lld heads; at most %d of a head, %lld of heads that "
      "differ, %d heads on a rank, %d on all",
      (long long)s->rows, (long long)s->columns, (long long)s->count, LISTS_BLOCKS,
      (long long)LISTS_ALL, LISTS_HEADS, LISTS_RANKS);
  if (l->counts) listed_refuse(l->m, l->f, l->o, l->mask, "lists hold", why);
}

/* Whether kernels would not find by themselves what it leaves out: patterns of blocks, and rows
   that are not admitted wholly, then in part, then not at all. */
static bool is_worth(const Listing *l, const BlockMap *m) {
  int64_t n = m->rows * m->columns;
  if (l->counts) return m->full < n;
  for (int64_t i = 0; i < n; i++)
    if (i % m->columns && m->state[i] > m->state[i - 1]) return true;
  return false;
}

static bool list(Module *m, const Fn *f, Op *o, Arena *work, SparseWarned *warned) {
  uint32_t operands = o->code == OP_attention ? 3 : 6;
  if (op_family(o->code) != FAMILY_ATTENTION || o->nin <= operands) return false;
  Str q = o->group[0].from[0], k = o->group[0].to[0];
  Listing l = {.m = m, .work = work, .f = f, .o = o, .mask = o->in[operands]};
  l.query = (Axis){q, type_size(value_type(f, o->in[0]), q)};
  l.key = (Axis){k, type_size(value_type(f, o->in[1]), k)};
  sparse_warn(m, f, l.mask, q, warned);
  if (!shape_of(&l)) return refuse(&l), false;
  l.maps = ARENA_ARRAY(work, BlockMap, l.s.count), l.class = ARENA_ARRAY(work, int64_t, l.s.count);
  bool worth = false;
  if (!find_classes(&l)) return refuse(&l), false;
  for (int64_t c = 0; c < l.s.classes; c++) worth |= is_worth(&l, &l.maps[c]);
  if (!worth) return false;
  attr_set_str(m, &o->attrs, ATTR_lists, lists_add(m, &l.s, l.maps, l.class)->name);
  return true;
}

void pass_sparse(Module *m) {
  SparseWarned warned = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId o = 0; o < m->fns.at[i]->ops.n; o++) {
      Arena *work = arena_new();
      list(m, m->fns.at[i], &m->fns.at[i]->ops.at[o], work, &warned);
      arena_free(work);
    }
}

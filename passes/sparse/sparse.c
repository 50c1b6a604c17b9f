/* sparse: the masks of attention become lists of blocks, constants of the module
   (ir/mask/lists.h).

   If a mask leaves gaps by positions alone (a window, blocks, `causal & sliding(n)`), the mask is
   evaluated block by block (blocks.h): absent, full, partial. Heads whose masks are the same
   (sparse_alike.c) or have the same full blocks share their lists, and so do layers with equal
   lists. Data (padding, documents) neither leaves a block out nor makes it partial: if a mask
   depends on data, it is also evaluated in full blocks (mask_rest). The mask stays with the op: it
   defines the meaning of the lists, the interpreter computes with it, and kernels evaluate it
   inside partial blocks.

   A mask whose rows are first admitted wholly, then in part, then not at all (`causal`) needs no
   lists: kernels find that with two comparisons. It does on processors where a rank's positions are
   pieces of a balanced dim: they take many operations to compute, and kernels ask about a few keys
   at a time. The pass runs once all sizes are those of one rank, so the passes that place or
   recompute values know nothing of lists. Must not: list more than ir/mask/lists.h says; patterns
   of blocks are refused then. */
#include "sparse.h"
#include "ir/attention_operands.h"
#include "ir/mask/lists.h"
#include "ir/mask/mask_density.h"
#include "ir/mask/mask_range.h"
#include "ir/support/num.h"
#include "passes/tune/tune.h"

enum { WITHOUT = 64, DEALT_BLOCKS = 1 << 13 };

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
  bool dealt;     /* positions are pieces of a balanced dim */
  BlockMap *maps; /* by class */
  int64_t *class; /* by head */
} Listing;

/* Heads by dims, and by numbers of the rank, if all that the mask has are such. */
static bool count_heads(Listing *listing) {
  ListsShape *shape = &listing->s;
  int64_t values[MASK_SCALARS];
  shape->count = shape->ranks = 1, shape->heads = listing->of.dims;
  for (int i = 0; i < listing->of.dims; i++)
    if ((shape->count *= shape->head[i] = listing->of.dim[i].size) > LISTS_HEADS) return false;
  bool ranks = listing->of.scalars > 0 && listing->of.dims + listing->of.scalars <= MASK_DIMS;
  for (int i = 0; ranks && i < listing->of.scalars; i++) {
    ranks =
        sparse_number(listing->m, listing->f, listing->of.scalar[i], &values[i], &shape->step[i]);
    shape->ranks *= ranks ? values[i] : 1;
  }
  if (ranks && shape->count > LISTS_RANKS / shape->ranks)
    return shape->count *= shape->ranks, false;
  if (!ranks) return shape->ranks = 1, true;
  shape->scalars = listing->of.scalars, shape->count *= shape->ranks;
  for (int i = 0; i < shape->scalars; i++) shape->head[shape->heads++] = values[i];
  return true;
}

/* Its sizes; false: no lists are made of such a mask. */
static bool shape_of(Listing *listing) {
  ListsShape *shape = &listing->s;
  listing->of = lists_heads(listing->f, listing->mask, listing->query.dim, listing->key.dim);
  shape->queries = listing->query.size, shape->keys = listing->key.size;
  shape->high = shape->wide =
      mask_block_size(listing->f, listing->mask, listing->query.dim, listing->key.dim);
  listing->counts = shape->high > 0;
  if (!listing->counts) shape->high = shape->wide = WITHOUT;
  while (listing->dealt && !listing->counts &&
         shape->queries / shape->high > DEALT_BLOCKS / ceil_div(shape->keys, shape->wide))
    shape->high = shape->wide *= 2;
  shape->rows = ceil_div(shape->queries, shape->high),
  shape->columns = ceil_div(shape->keys, shape->wide);
  return shape->rows * shape->columns <= LISTS_BLOCKS && count_heads(listing);
}

static BlockMap map_of(const Listing *listing, Arena *arena, int64_t h) {
  BlockHead at[MASK_DIMS];
  lists_head_at(&listing->s, &listing->of, h, at);
  BlockMap map = mask_places(arena, listing->f, listing->mask, listing->query, listing->key,
                             listing->s.high, listing->s.wide, listing->s.heads, at);
  must(map.rows == listing->s.rows && map.columns == listing->s.columns,
       "sparse: %lld x %lld blocks of a head, lists of %lld x %lld", (long long)map.rows,
       (long long)map.columns, (long long)listing->s.rows, (long long)listing->s.columns);
  return map;
}

/* The class of a head whose mask differs from the earlier ones: one with the same blocks, if all
   of them are full, since masks may differ inside partial blocks. */
static int64_t class_of(Listing *listing, int64_t h) {
  Arena *arena = arena_new();
  BlockMap map = map_of(listing, arena, h);
  size_t bytes = (size_t)(map.rows * map.columns);
  int64_t c = map.partial ? listing->s.classes : 0;
  while (c < listing->s.classes && memcmp(listing->maps[c].state, map.state, bytes) != 0) c++;
  if (c == listing->s.classes) {
    listing->maps[c] = map, listing->maps[c].state = ARENA_ARRAY(listing->work, uint8_t, bytes + 1);
    memcpy(listing->maps[listing->s.classes++].state, map.state, bytes);
  }
  return arena_free(arena), c;
}

/* False: they would be more than a module's lists hold. */
static bool find_classes(Listing *listing) {
  const SparseHeads x = {listing->query.dim, listing->key.dim, &listing->s, &listing->of};
  const int64_t *first = sparse_alike(listing->work, listing->f, listing->mask, &x);
  int64_t most = LISTS_ALL / (listing->s.rows * listing->s.columns);
  for (int64_t h = 0; h < listing->s.count && listing->s.classes <= most; h++)
    listing->class[h] = first[h] < h ? listing->class[first[h]] : class_of(listing, h);
  return listing->s.classes <= most;
}

/* Block patterns must be listed, or are refused; kernels find other masks by intervals. */
static void refuse(const Listing *listing) {
  const ListsShape *shape = &listing->s;
  const char *why = arena_printf(
      listing->m->arena,
      "%lld x %lld blocks of each of %lld heads; at most %d of a head, %lld of heads that "
      "differ, %d heads on a rank, %d on all",
      (long long)shape->rows, (long long)shape->columns, (long long)shape->count, LISTS_BLOCKS,
      (long long)LISTS_ALL, LISTS_HEADS, LISTS_RANKS);
  if (listing->counts)
    listed_refuse(listing->m, listing->f, listing->o, listing->mask, "lists hold", why);
}

/* Does the list leave out blocks that kernels could not leave out by themselves? That holds for
   block patterns, and for rows that are not admitted wholly, then in part, then not at all. */
static bool is_worth(const Listing *listing, const BlockMap *map) {
  int64_t n = map->rows * map->columns;
  if (listing->counts || listing->dealt) return map->full < n;
  for (int64_t i = 0; i < n; i++)
    if (i % map->columns && map->state[i] > map->state[i - 1]) return true;
  return false;
}

static bool is_dealt(const Fn *f, ValueId v, bool *seen) {
  const Op *o = value_def(f, v);
  if (!o || seen[v]) return false;
  seen[v] = true;
  bool found = attr_get(&o->attrs, ATTR_dealt) != NULL;
  for (uint32_t i = 0; i < o->nin && !found; i++) found = is_dealt(f, o->in[i], seen);
  return found;
}

typedef struct MaskListed { /* a mask whose blocks were found */
  ListsShape shape;
  bool counts, dealt;
  const int64_t *words;
  uint32_t n;
  Str lists; /* NULL: it is worth none */
} MaskListed;

typedef struct Sparse { /* of the pass */
  SparseWarned warned;
  VEC(MaskListed) listed;
} Sparse;

/* Attention forward, forward again and backward has one mask. */
static const MaskListed *find_listed(const Sparse *sparse, const MaskListed *like) {
  for (uint32_t i = 0; i < sparse->listed.n; i++) {
    const MaskListed *one = &sparse->listed.at[i];
    bool same = one->n == like->n && one->counts == like->counts && one->dealt == like->dealt;
    if (same && !memcmp(&one->shape, &like->shape, sizeof like->shape) &&
        !memcmp(one->words, like->words, sizeof *like->words * like->n))
      return one;
  }
  return NULL;
}

/* The lists of its mask, NULL: it is worth none; false: they are refused. */
static bool lists_name(Listing *listing, Str *name) {
  bool worth = false;
  listing->maps = ARENA_ARRAY(listing->work, BlockMap, listing->s.count),
  listing->class = ARENA_ARRAY(listing->work, int64_t, listing->s.count);
  *name = NULL;
  if (!find_classes(listing)) return false;
  for (int64_t c = 0; c < listing->s.classes; c++) worth |= is_worth(listing, &listing->maps[c]);
  if (worth) *name = lists_add(listing->m, &listing->s, listing->maps, listing->class)->name;
  return true;
}

static void list(Module *m, const Fn *f, Op *o, Arena *work, Sparse *sparse) {
  if (op_family(o->code) != FAMILY_ATTENTION || attention_mask(f, o) == NO_VALUE) return;
  Str q = o->group[0].from[0], k = o->group[0].to[0];
  Listing listing = {.m = m, .work = work, .f = f, .o = o, .mask = attention_mask(f, o)};
  listing.query = (Axis){q, type_size(value_type(f, o->in[0]), q)};
  listing.key = (Axis){k, type_size(value_type(f, o->in[1]), k)};
  listing.dealt =
      !module_on_gpu(m) && is_dealt(f, listing.mask, ARENA_ARRAY(work, bool, f->values.n + 1));
  sparse_warn(m, f, listing.mask, q, &sparse->warned);
  if (!shape_of(&listing)) return refuse(&listing);
  MaskListed own = {.shape = listing.s, .counts = listing.counts, .dealt = listing.dealt};
  own.n = mask_words(m->arena, f, listing.mask, listing.query, listing.key, &own.words);
  const MaskListed *known = find_listed(sparse, &own);
  if (!known && !lists_name(&listing, &own.lists)) return refuse(&listing);
  if (known) own.lists = known->lists;
  else vec_push(m->arena, sparse->listed, own);
  if (own.lists) attr_set_str(m, &o->attrs, ATTR_lists, own.lists);
}

void pass_sparse(Module *m) {
  Sparse sparse = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId o = 0; o < m->fns.at[i]->ops.n; o++) {
      Arena *work = arena_new();
      list(m, m->fns.at[i], &m->fns.at[i]->ops.at[o], work, &sparse);
      arena_free(work);
    }
}

/* How many pieces a rank has of a balanced dim (Dealt of placement.h): two, unless a layout leaves
   out blocks and more pieces even out the blocks that it lists. Rows of `global` blocks, for
   example, list all columns, and follow one another.

   Candidates have 2, 4, 8, .. pieces of whole blocks. The pass counts the blocks that each row of
   blocks lists, adds them up for each rank, and takes the candidate whose busiest rank has the
   fewest. Masks without blocks rise or fall along the dim, and two pieces even them out. Must not:
   change the meaning of a program, which is the same with any number. */
#include "ir/attention_operands.h"
#include "ir/mask/lists.h"
#include "ir/shape/placement.h"
#include "place.h"

enum { HEADS_ASKED = 4, BLOCKS_ASKED = 1 << 22 };

typedef struct LayoutRows { /* of the blocks of one layout */
  Axis query;
  int64_t high, n;
  double *listed;
} LayoutRows;

static void add_head(const Fn *f, ValueId mask, Axis key, LayoutRows *rows, int heads,
                     const BlockHead *at) {
  Arena *work = arena_new();
  BlockMap map = mask_places(work, f, mask, rows->query, key, rows->high, rows->high, heads, at);
  for (int64_t i = 0; i < map.rows * map.columns; i++)
    rows->listed[i / map.columns] += map.state[i] != BLOCK_ABSENT;
  arena_free(work);
}

/* False: no layout of queries that the axis deals out. */
static bool rows_of(Module *m, const Fn *f, const Op *o, int axis, LayoutRows *rows) {
  ValueId mask = op_family(o->code) == FAMILY_ATTENTION ? attention_mask(f, o) : NO_VALUE;
  if (mask == NO_VALUE) return false;
  Str q = o->group[0].from[0], k = o->group[0].to[0];
  Axis key = {k, type_size(value_type(f, o->in[1]), k)};
  *rows = (LayoutRows){.query = {q, type_size(value_type(f, o->in[0]), q)}};
  rows->high = mask_block_size(f, mask, q, k);
  if (dim_dealt(m, q).axis != axis || rows->high < 1 || rows->query.size % rows->high) return false;
  rows->n = rows->query.size / rows->high;
  ListsHeads of = lists_heads(f, mask, q, k);
  if (of.scalars || key.size / rows->high > BLOCKS_ASKED / rows->n) return false;
  ListsShape shape = {.heads = of.dims, .count = 1};
  for (int i = 0; i < of.dims; i++) shape.count *= shape.head[i] = of.dim[i].size;
  rows->listed = ARENA_ARRAY(m->arena, double, rows->n);
  int64_t step = shape.count > HEADS_ASKED ? shape.count / HEADS_ASKED : 1;
  for (int64_t h = 0; h < shape.count; h += step) {
    BlockHead at[MASK_DIMS];
    lists_head_at(&shape, &of, h, at);
    add_head(f, mask, key, rows, of.dims, at);
  }
  return true;
}

/* The blocks of the busiest rank; negative: pieces are not whole blocks. */
static double busiest(Module *m, const LayoutRows *rows, int64_t ranks, int64_t pieces) {
  int64_t each = rows->n / (ranks * pieces);
  double *load = ARENA_ARRAY(m->arena, double, ranks), most = 0;
  if (rows->n % (ranks * pieces)) return -1;
  for (int64_t i = 0; i < rows->n; i++) {
    int64_t turn = i / each / ranks, at = i / each % ranks, rank = turn % 2 ? ranks - 1 - at : at;
    load[rank] += rows->listed[i];
  }
  for (int64_t r = 0; r < ranks; r++)
    if (load[r] > most) most = load[r];
  return most;
}

/* Can every value along dims of the rule be cut in that number? */
static bool cuts_all(const Module *m, int axis, int64_t pieces) {
  int64_t all = pieces * m->mesh.at[axis].size;
  EACH_FN (m, f)
    for (uint32_t i = 0; i < f->values.n; i++)
      for (int k = 0; k < f->values.at[i].type.rank; k++) {
        const Axis *dim = &f->values.at[i].type.axis[k];
        if (dim->size % all && dim_dealt(m, dim->dim).axis == axis) return false;
      }
  return true;
}

static void choose(Module *m, PlaceRule *rule) {
  enum { MOST = 64, LISTS = 64 };
  int axis = mesh_find(m, rule->axes.at[0]);
  LayoutRows rows[LISTS];
  int n = 0;
  EACH_FN (m, f)
    for (uint32_t i = 0; i < f->ops.n && n < LISTS; i++)
      n += rows_of(m, f, &f->ops.at[i], axis, &rows[n]);
  double least = 0;
  for (int64_t pieces = 2; n && pieces <= MOST && cuts_all(m, axis, pieces); pieces *= 2) {
    double sum = 0;
    for (int i = 0; i < n && sum >= 0; i++) {
      double most = busiest(m, &rows[i], m->mesh.at[axis].size, pieces);
      sum = most < 0 ? -1 : sum + most;
    }
    if (sum >= 0 && (pieces == 2 || sum < 0.99 * least)) least = sum, rule->pieces = pieces;
  }
}

void place_pieces(Module *m) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    if (m->rules.at[i].pieces) choose(m, &m->rules.at[i]);
}

/* Index arithmetic of a rank's slice of a tensor (rank_slice.h). */
#include "rank_slice.h"
#include "module_settings.h"
#include "stage_class.h"
#include <string.h>

int64_t placement_part(const Module *m, const Placement *p, Str dim) {
  if (strcmp(dim, "Batch") || made_workers(m)) return 0;
  return plan_micro(m) * mesh_batch_ranks(m) / placement_ways(m, p, dim);
}

/* The block of a rank: its coordinates on the axes that cut dim, the coarsest first. */
static int64_t block_of(const Module *m, const Placement *p, Str dim, int64_t rank) {
  int axes[MAX_MESH], n = mesh_order(m, axes);
  int64_t block = 0;
  for (int i = 0; i < n; i++)
    if (p->on[axes[i]] == dim)
      block = block * m->mesh.at[axes[i]].size + mesh_coordinate(m, rank, axes[i]);
  return block;
}

RankSlice placement_slice(const Module *m, const Placement *p, const Axis *axis, int64_t rank,
                          bool dealt) {
  int64_t part = dealt ? placement_part(m, p, axis->dim) : 0;
  if (!part || part > axis->size) part = axis->size / stage_chunks(m, p, axis->dim);
  return (RankSlice){part, placement_ways(m, p, axis->dim), block_of(m, p, axis->dim, rank)};
}

int64_t placement_index(const RankSlice *slice, int64_t local) {
  int64_t part = slice->part;
  return local / part * part * slice->ways + slice->block * part + local % part;
}

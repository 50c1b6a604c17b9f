/* The meaning of the numbers of attribute `tile` for the GPU's kernel families: shared by the rules
   that choose them (passes/tune/gpu_*.c) and the emitters that use them. */
#ifndef SHARDC_GPU_TILE_H
#define SHARDC_GPU_TILE_H
#include "nest.h"
#include "ir/support/num.h"

enum GpuElemTile { POINT_LANES, POINT_VECTORS /* per thread */, POINT_TILES };
/* A group of threads has one row; `vectors`: of each thread, kept in registers; or that many per
   turn of a loop. Variant `rows`: lanes run over neighbouring rows. Only kernels with sums of
   columns have `turns`: rows that a group takes, one after the other. */
enum GpuRowTile { ROW_LANES, ROW_GROUP, ROW_VECTORS, ROW_TILES, ROW_TURNS = ROW_TILES };
static inline int gpu_row_tile(const Reductions *r) { return ROW_TILES + (r->ncolumns > 0); }
/* A CTA has `across` vectors of columns, and divides its threads evenly among them; or with variant
   `along` one column. `turns`: elements per turn of its loop. */
enum GpuColumnTile {
  COLUMN_LANES,
  COLUMN_ACROSS,
  COLUMN_SPLITS,
  COLUMN_TURNS,
  COLUMN_JOINERS,
  COLUMN_TILES
};
/* Lanes and vectors per thread of the columns; lanes of the zero fill. */
enum GpuScatterTile { SCATTER_LANES, SCATTER_VECTORS, SCATTER_FILL, SCATTER_TILES };

/* Vectors that a thread may hold of a row; columns, of a scatter. */
enum { GPU_HELD_MOST = 64, GPU_COLUMNS_MOST = 16 };

/* Shared memory of a CTA for joining one reduction of its warps: two parts of 8 bytes per warp. */
enum { GROUP_EXCHANGE = 2 * 32 * 8 };
/* Bytes of one row that a scan leaves in memory. */
static inline int64_t gpu_scan_bytes(const Reductions *r) {
  return round_up(r->over.axis[0].size * 8, CACHE_LINE);
}

#endif

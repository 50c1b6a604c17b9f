/* Cutting family scatter for GPUs: a warp per row and block of columns; a thread per column where
   the index depends on columns. A warp reads several rows at once, and all tensors that a sum of
   them is computed of: the more of these, the fewer columns.

   Rows are sorted by index (variant `order`) unless they are few. Without the sort every warp
   reads the indexes of all rows, and one warp adds all rows of a frequent index; with it there is
   one launch more, and a CTA that reads all indexes a few times. With 512 rows the former is a few
   reads in a row, and the longest sum as long as a few pieces. */
#include "gpu.h"
#include "ir/kernel/gpu_tile.h"
#include "ir/kernel/scatter_shape.h"

enum { THREADS = 256, VECTORS = 8, COLUMNS = 16 };
enum { FEW = 512, MANY = 4096, SORTERS = 1024 }; /* rows, threads of a sort */
enum { READ = 64 };                              /* numbers that a thread reads of a row */

static int64_t tensors_of_columns(const Fn *k, const Scatter *scatter) {
  int64_t n = 0;
  for (uint32_t i = 0; i < k->args.n; i++)
    for (int j = 0; j < scatter->kept.n; j++)
      if (type_find(value_type(k, k->args.at[i]), scatter->kept.dim[j].dim) >= 0) {
        n++;
        break;
      }
  return n;
}

void gpu_tune_scatter(Module *m, Fn *k) {
  Scatter scatter = scatter_of(k, 1);
  bool search = gpu_scatter_searches(k);
  ValueId root[] = {scatter.x, scatter.out};
  int lanes = search ? gpu_lanes(m, k, &scatter.kept, 2, root) : 1;
  int fill = gpu_lanes(m, k, &scatter.result, 1, &scatter.out);
  int64_t read = tensors_of_columns(k, &scatter), columns, vectors = 1;
  while (lanes > 1 && lanes * read > READ) lanes /= 2;
  columns = nest_count(&scatter.kept) / lanes;
  while (search && vectors < VECTORS && vectors * 32 < columns && lanes * vectors < COLUMNS &&
         2 * vectors * lanes * read <= READ)
    vectors *= 2;
  int64_t tile[SCATTER_TILES] = {lanes, vectors, fill}, threads[] = {THREADS, THREADS, THREADS};
  int64_t rows = nest_count(&scatter.from);
  bool order = search && rows >= FEW && rows < INT32_MAX && scatter.to_size < INT32_MAX;
  if (order && rows >= MANY) threads[0] = SORTERS;
  gpu_set(m, k,
          order    ? "order"
          : search ? "search"
                   : "owner",
          SCATTER_TILES, tile, 2 + order, threads);
}

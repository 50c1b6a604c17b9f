/* The values of a number on the ranks of the mesh, for lists: they need values 0, step, 2 step, ..,
   so that a kernel finds its lists by a division (ir/mask/rank_numbers.h). */
#include "ir/mask/rank_numbers.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "sparse.h"

bool sparse_number(const Module *m, const Fn *f, ValueId v, int64_t *values, int64_t *step) {
  int64_t ranks = mesh_ranks(m), most = 0, least = INT64_MAX, n;
  if (!m->mesh.n) return false;
  Arena *arena = arena_new();
  RankWorld world = rank_world(arena, m);
  int64_t *number = ARENA_ARRAY(arena, int64_t, ranks);
  bool known = true;
  for (int64_t rank = 0; rank < ranks && known; rank++) {
    int64_t coordinate[MAX_MESH];
    for (int a = 0; a < (int)m->mesh.n; a++) coordinate[a] = mesh_coordinate(m, rank, a);
    known = rank_number(&world, f, v, coordinate, &n) && n >= 0;
    if (!known) break;
    number[rank] = n, most = max_i64(most, n);
    if (n) least = min_i64(least, n);
  }
  *step = most ? least : 1, *values = most / *step + 1;
  for (int64_t rank = 0; rank < ranks && known; rank++) known = number[rank] % *step == 0;
  return arena_free(arena), known;
}

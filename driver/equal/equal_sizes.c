/* The sizes at which programs are compared in exact arithmetic (cmd_equal.c). The structure of a
   program depends on its mesh, its layers and its micro-batches; width, sequence and vocabulary
   only repeat it. So each dim gets the smallest size from 2 on

     at which the file can be lowered (other dims are derived from it, rules of the model hold)
     which the mesh axes over which it is placed divide if they divide the written size, and else
     do not, so that padding stays
     and which no other dim has, if there is one near, so that dims are not mistaken for each other

   One dim after the other, the largest first, twice, since one may allow less of another. Axes of
   a large mesh shrink to a divisor, and a batch to as many micro-batches as fill the stages.
   Must not: change what is placed, kept, moved or partitioned. */
#include "equal_sizes.h"
#include "driver/fit/fit.h"
#include "frontend/lower.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"

enum { RANKS = 8, LEAST = 2, NEAR = 4, ROUNDS = 2, FEW_PARTS = 3, TRIES = 32 };

typedef struct SmallSizes {
  Cli *o;
  const Module *m; /* as written */
  bool strict;
  int64_t mesh[MAX_MESH]; /* sizes of axes that are compared */
  VEC(Str) dims;
  VEC(int64_t) size; /* by dim of `dims`; 0: as written */
} SmallSizes;

static int64_t written_size(const SmallSizes *sizes, Str name) {
  const Dim *dim = dim_find(sizes->m, name);
  return dim ? dim->size : 0;
}

/* ---- trying ---- */

static Cli cli_with(const SmallSizes *sizes, Arena *arena) {
  Cli one = cli_again(sizes->o);
  one.dims = (Strings){0};
  for (uint32_t i = 0; i < sizes->o->dims.n; i++) vec_push(arena, one.dims, sizes->o->dims.at[i]);
  for (uint32_t i = 0; i < sizes->dims.n; i++)
    if (sizes->size.at[i])
      vec_push(arena, one.dims,
               arena_printf(arena, "%s=%lld", sizes->dims.at[i], (long long)sizes->size.at[i]));
  return one;
}

/* Can the file be lowered at these sizes? */
static bool is_possible(const SmallSizes *sizes) {
  Arena *arena = arena_new();
  Cli one = cli_with(sizes, arena);
  bool possible = load_shard(&one, one.operands.at[0]) && !diag_errors(one.c->diag);
  ctx_free(one.c), arena_free(arena);
  return possible;
}

/* ---- one dim ---- */

/* Ranks over which the lines of the plan split the dim, in all tensors or in some (`else`). */
static int64_t ways_of(const SmallSizes *sizes, Str dim) {
  const Module *m = sizes->m;
  int64_t ways = 1;
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *rule = &m->rules.at[i];
    if (!names_have(rule->dims.at, (int)rule->dims.n, dim) &&
        !names_have(rule->otherwise.at, (int)rule->otherwise.n, dim))
      continue;
    for (uint32_t a = 0; a < rule->axes.n; a++) {
      int axis = mesh_find(m, rule->axes.at[a]);
      ways *= axis < 0 ? 1 : sizes->mesh[axis];
    }
  }
  return ways;
}

static bool is_taken(const SmallSizes *sizes, uint32_t but, int64_t size) {
  for (uint32_t i = 0; i < sizes->size.n; i++)
    if (i != but && sizes->size.at[i] == size) return true;
  return false;
}

/* Over each axis by itself. */
static bool is_split_alike(const SmallSizes *sizes, int64_t n, int64_t written) {
  for (uint32_t i = 0; i < sizes->m->mesh.n; i++)
    if ((n % sizes->mesh[i] == 0) != (written % sizes->mesh[i] == 0)) return false;
  return true;
}

/* The smallest size from `from` on, below `below`; 0: none. A few numbers, then divisors of the
   written size. */
static int64_t smallest(SmallSizes *sizes, uint32_t i, int64_t from, int64_t below, bool alone) {
  int64_t written = written_size(sizes, sizes->dims.at[i]),
          ways = ways_of(sizes, sizes->dims.at[i]), was = sizes->size.at[i];
  for (int64_t n = from; n < below; n++) {
    if (n > from + TRIES && written % n) continue;
    if ((n % ways == 0) != (written % ways == 0) || (alone && is_taken(sizes, i, n))) continue;
    if (sizes->strict && !is_split_alike(sizes, n, written)) continue;
    sizes->size.at[i] = n;
    if (is_possible(sizes)) return n;
  }
  sizes->size.at[i] = was;
  return 0;
}

static void shrink(SmallSizes *sizes, uint32_t i) {
  int64_t written = written_size(sizes, sizes->dims.at[i]), was = sizes->size.at[i],
          now = was ? was : written, ways = ways_of(sizes, sizes->dims.at[i]);
  int64_t least = min_i64(now, written % ways ? LEAST : LEAST * ways);
  int64_t any = smallest(sizes, i, least, now, false);
  int64_t alone = any ? smallest(sizes, i, any, now, true) : 0;
  if (!alone && was && !is_taken(sizes, i, was)) alone = was;
  if (any) sizes->size.at[i] = alone && alone <= NEAR * any ? alone : any;
}

/* ---- mesh and batch ---- */

static void set(Cli *o, const char *key, int64_t value) {
  vec_push(o->c->arena, o->sets, arena_printf(o->c->arena, "%s=%lld", key, (long long)value));
}

/* The largest axis that is no prime; -1: none. A divisor divides every dim that the axis does. */
static int largest_axis(const SmallSizes *sizes) {
  int most = -1;
  for (int i = 0; i < (int)sizes->m->mesh.n; i++) {
    int64_t size = sizes->mesh[i];
    bool shrinks = size > LEAST && divisor_from(size, LEAST) < size;
    if (shrinks && (most < 0 || size > sizes->mesh[most])) most = i;
  }
  return most;
}

/* The axes in the order of their sizes, the largest first, until there are few ranks. */
static void shrink_mesh(SmallSizes *sizes, const char **words) {
  Arena *arena = sizes->o->c->arena;
  int64_t ranks = mesh_ranks(sizes->m), *size = sizes->mesh;
  int n = (int)sizes->m->mesh.n, at;
  for (int i = 0; i < n; i++) size[i] = sizes->m->mesh.at[i].size;
  while (ranks > RANKS && (at = largest_axis(sizes)) >= 0) {
    int64_t rest = ranks / size[at], left = divisor_from(size[at], max_i64(LEAST, RANKS / rest));
    if (left == size[at]) left = divisor_from(size[at], LEAST);
    ranks = rest * left, size[at] = left;
    Str name = sizes->m->mesh.at[at].name;
    set(sizes->o, arena_printf(arena, "plan.mesh.%s", name), left);
    *words = arena_printf(arena, "%s, mesh %s = %lld", *words, name, (long long)left);
  }
}

/* Number of stages of the pipeline; 1: there is none. */
static int64_t stages_of(const SmallSizes *sizes) {
  int64_t stages = 1;
  for (uint32_t i = 0; i < sizes->m->dims.n; i++)
    if (dim_counts_layers(sizes->m, sizes->m->dims.at[i].name))
      stages = max_i64(stages, ways_of(sizes, sizes->m->dims.at[i].name));
  return stages;
}

/* Micro-batches of at most two samples, no more than show the order of stages. */
static void shrink_batch(SmallSizes *sizes, const char **words) {
  int64_t micro = module_whole(sizes->m, "plan.micro");
  Str batch = intern(sizes->m->ctx->names, "Batch");
  int64_t written = written_size(sizes, batch), ways = ways_of(sizes, batch);
  if (written < 1 || (micro < 1 && !sizes->m->mesh.n)) return;
  if (micro < 1) micro = written / ways; /* the samples of a rank are one micro-batch */
  int64_t parts = max_i64(1, written / ways / micro), few = min_i64(micro, LEAST),
          most = max_i64(FEW_PARTS, stages_of(sizes) + 1);
  set(sizes->o, "plan.micro", few);
  *words = arena_printf(sizes->o->c->arena, "%s, micro %lld", *words, (long long)few);
  vec_push(sizes->o->c->arena, sizes->dims, batch);
  vec_push(sizes->o->c->arena, sizes->size, ways * few * min_i64(parts, most));
}

/* ---- all of them ---- */

static bool is_written(const Dim *dim) {
  return dim->size > LEAST && !dim->like && !dim->part && !strchr(dim->name, '\'');
}

/* Dims of the file, the largest first. */
static void list_dims(SmallSizes *sizes) {
  Arena *arena = sizes->o->c->arena;
  bool *listed = ARENA_ARRAY(arena, bool, sizes->m->dims.n + 1);
  for (;;) {
    uint32_t most = sizes->m->dims.n;
    for (uint32_t i = 0; i < sizes->m->dims.n; i++)
      if (is_written(&sizes->m->dims.at[i]) && !listed[i] &&
          (most == sizes->m->dims.n || sizes->m->dims.at[i].size > sizes->m->dims.at[most].size))
        most = i;
    if (most == sizes->m->dims.n) return;
    listed[most] = true;
    bool known = false;
    for (uint32_t i = 0; i < sizes->dims.n; i++)
      known |= sizes->dims.at[i] == sizes->m->dims.at[most].name;
    if (known) continue;
    vec_push(arena, sizes->dims, sizes->m->dims.at[most].name);
    vec_push(arena, sizes->size, 0);
  }
}

void equal_sizes(Cli *o, const Module *m, bool strict, const char **words) {
  SmallSizes sizes = {.o = o, .m = m, .strict = strict};
  Arena *arena = o->c->arena;
  *words = "";
  shrink_mesh(&sizes, words), shrink_batch(&sizes, words);
  uint32_t set_already = sizes.dims.n;
  list_dims(&sizes);
  for (int round = 0; round < ROUNDS; round++)
    for (uint32_t i = set_already; i < sizes.dims.n; i++) shrink(&sizes, i);
  for (uint32_t i = 0; i < sizes.dims.n; i++) {
    if (!sizes.size.at[i]) continue;
    *words =
        arena_printf(arena, "%s, %s %lld", *words, sizes.dims.at[i], (long long)sizes.size.at[i]);
    vec_push(arena, o->dims,
             arena_printf(arena, "%s=%lld", sizes.dims.at[i], (long long)sizes.size.at[i]));
  }
  if (**words) *words += strlen(", ");
}

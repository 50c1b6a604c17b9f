/* Globals of ranks in one process (interp_ranks.h): each holds its blocks of the whole tensor, or
   its pieces of flat storage, as the placements of the module say. Must not: run anything. */
#include "interp_inside.h"
#include "interp_ranks_inside.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/rank_slice.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"

static const Global *find_global(const Ranks *ranks, const char *name) {
  EACH_GLOBAL (ranks->m, g)
    if (!strcmp(g->name, name)) return g;
  return NULL;
}

static Type whole_type(const Ranks *ranks, const Global *global) {
  Type t = global->type;
  for (int i = 0; i < t.rank; i++)
    t.axis[i].size *= placement_ways(ranks->m, &global->placed, t.axis[i].dim);
  return t;
}

/* The offset in the whole tensor of every element that the rank holds, in its order. */
static int64_t *offsets_of(const Ranks *ranks, Arena *arena, const Global *global, int64_t rank) {
  const Type *t = &global->type;
  Type whole = whole_type(ranks, global);
  int64_t *list = ARENA_ARRAY(arena, int64_t, type_count(t)), *along[MAX_RANK],
          index[MAX_RANK] = {0}, n = 0;
  for (int i = 0; i < t->rank; i++) { /* of each index of a dim */
    int64_t stride = stride_of(&whole, t->axis[i].dim);
    RankSlice slice =
        placement_slice(ranks->m, &global->placed, &t->axis[i], rank, global->kind == GLOBAL_INPUT);
    along[i] = ARENA_ARRAY(arena, int64_t, t->axis[i].size);
    for (int64_t k = 0; k < t->axis[i].size; k++) along[i][k] = stride * placement_index(&slice, k);
  }
  do {
    int64_t at = 0;
    for (int i = 0; i < t->rank; i++) at += along[i][index[i]];
    list[n++] = at;
  } while (walk_next(t, index));
  return list;
}

/* The next part of a stack's parameter or state of that name, after number *i. */
static const Global *next_part(const Ranks *ranks, const char *name, uint32_t *i) {
  for (; *i < ranks->m->globals.n; ++*i) {
    const Global *global = ranks->m->globals.at[*i];
    if (layer_dim(ranks->m, global) && !strcmp(layer_whole(ranks->m, global->name), name))
      return ++*i, global;
  }
  return NULL;
}

/* Elements before the part of that type. */
static int64_t part_begin(const Ranks *ranks, const Global *part, const Type *t) {
  return layer_dim(ranks->m, part)->first * (type_count(t) / t->axis[0].size);
}

static bool write_parts(Ranks *ranks, const char *name, const double *data,
                        void write(Ranks *ranks, const char *global, const double *data)) {
  bool any = false;
  const Global *part;
  for (uint32_t i = 0; (part = next_part(ranks, name, &i)); any = true) {
    Type whole = whole_type(ranks, part);
    write(ranks, part->name, data + part_begin(ranks, part, &whole));
  }
  return any;
}

void ranks_set(Ranks *ranks, const char *global, const double *data) {
  const Global *g = find_global(ranks, global);
  if (!g && write_parts(ranks, global, data, ranks_set)) return;
  if (!g) bug("ranks_set: no global @%s", global);
  for (int64_t i = 0; i < ranks->n; i++) {
    Arena *arena = arena_new();
    const int64_t *at = offsets_of(ranks, arena, g, i);
    double *own = ARENA_ARRAY(arena, double, type_count(&g->type));
    for (int64_t k = 0, n = type_count(&g->type); k < n; k++) own[k] = data[at[k]];
    interp_set(ranks->rank[i], global, own);
    arena_free(arena);
  }
}

void ranks_set_all(Ranks *ranks, const char *global, double value) {
  for (int64_t i = 0; i < ranks->n; i++) interp_set_all(ranks->rank[i], global, value);
}

typedef struct Held { /* what one rank holds of a global: its own element `from` is element `at` */
  const double *own;
  int64_t n, *from, *at;
} Held;

static Held held_whole(const Ranks *ranks, const Global *global, int64_t rank) {
  Held held = {.own = interp_get(ranks->rank[rank], global->name)->at,
               .n = type_count(&global->type)};
  held.at = offsets_of(ranks, ranks->arena, global, rank);
  held.from = ARENA_ARRAY(ranks->arena, int64_t, held.n);
  for (int64_t k = 0; k < held.n; k++) held.from[k] = k;
  return held;
}

/* For a member of a flat global: the positions of the elements that the rank has of the flat
   one. */
static Held held_member(const Ranks *ranks, const Global *global, int64_t rank) {
  Held flat = held_whole(ranks, global->within, rank), held = {.own = flat.own};
  Type whole = whole_type(ranks, global->within);
  int64_t *at = offsets_of(ranks, ranks->arena, global, rank);
  int64_t rounds =
      global->type.rank && whole.axis[0].dim == global->type.axis[0].dim ? whole.axis[0].size : 1;
  int64_t round = type_count(&whole) / rounds, count = type_count(&global->type) / rounds;
  held.from = ARENA_ARRAY(ranks->arena, int64_t, flat.n),
  held.at = ARENA_ARRAY(ranks->arena, int64_t, flat.n);
  for (int64_t k = 0; k < flat.n; k++) {
    int64_t in_round = flat.at[k] % round - global->begin;
    if (in_round < 0 || in_round >= count) continue;
    held.from[held.n] = k, held.at[held.n++] = at[flat.at[k] / round * count + in_round];
  }
  return held;
}

/* The logical part of a tensor; NULL if its padding is not zero. */
static Tensor *without_padding(const Ranks *ranks, const Tensor *tensor) {
  Type logical = tensor->type;
  for (int i = 0; i < logical.rank; i++)
    logical.axis[i].size = placement_logical(ranks->m, logical.axis[i].dim, logical.axis[i].size);
  Tensor *out = ARENA_NEW(ranks->arena, Tensor);
  *out = tensor_new(ranks->arena, logical);
  int64_t index[MAX_RANK] = {0}, n = 0, at = 0;
  do {
    bool inside = true;
    for (int i = 0; i < logical.rank; i++) inside &= index[i] < logical.axis[i].size;
    if (inside) out->at[n++] = tensor->at[at];
    else if (tensor->at[at] != 0) return NULL;
    at++;
  } while (walk_next(&tensor->type, index));
  return out;
}

/* Those numbers in a tensor with padding, which is zero. */
static double *with_padding(const Ranks *ranks, const Type *whole, const double *data) {
  double *out = ARENA_ARRAY(ranks->arena, double, type_count(whole) + 1);
  int64_t index[MAX_RANK] = {0}, n = 0, at = 0;
  do {
    bool inside = true;
    for (int i = 0; i < whole->rank; i++)
      inside &= index[i] < placement_logical(ranks->m, whole->axis[i].dim, whole->axis[i].size);
    out[at++] = inside ? data[n++] : 0;
  } while (walk_next(whole, index));
  return out;
}

/* In a program of all stages, other stages have another global in its place. */
static bool holds(const Ranks *ranks, const Global *global, int64_t rank) {
  int axis = module_class(ranks->m).axis;
  if (!global->stages || axis < 0) return true;
  int64_t end = ranks->m->mesh.at[axis].size - 1;
  return mesh_coordinate(ranks->m, rank, axis) == (global->stages == STAGES_FIRST ? 0 : end);
}

/* All layers of a stack that is split into parts; NULL: there are none of that name. */
static const Tensor *get_parts(Ranks *ranks, const char *name) {
  Tensor *tensor = NULL;
  const Global *part;
  for (uint32_t i = 0; (part = next_part(ranks, name, &i));) {
    const Tensor *own = ranks_get(ranks, part->name);
    if (!own) return NULL;
    Type whole = own->type;
    whole.axis[0] = (Axis){layer_dim(ranks->m, part)->part, 0};
    whole.axis[0].size = dim_find(ranks->m, whole.axis[0].dim)->size;
    if (!tensor)
      tensor = ARENA_NEW(ranks->arena, Tensor), *tensor = tensor_new(ranks->arena, whole);
    memcpy(tensor->at + part_begin(ranks, part, &own->type), own->at,
           sizeof *own->at * (size_t)type_count(&own->type));
  }
  return tensor;
}

const Tensor *ranks_get(Ranks *ranks, const char *global) {
  const Global *g = find_global(ranks, global);
  if (!g) return get_parts(ranks, global);
  Tensor *tensor = ARENA_NEW(ranks->arena, Tensor);
  *tensor = tensor_new(ranks->arena, whole_type(ranks, g));
  bool *seen = ARENA_ARRAY(ranks->arena, bool, type_count(&tensor->type));
  for (int64_t i = 0; i < ranks->n; i++) {
    if (!holds(ranks, g, i)) continue;
    Held held = g->within ? held_member(ranks, g, i) : held_whole(ranks, g, i);
    for (int64_t k = 0; k < held.n; k++) {
      double now = held.own[held.from[k]], *then = &tensor->at[held.at[k]];
      if (seen[held.at[k]] && *then != now && (*then == *then || now == now)) {
        ranks->error = arena_printf(ranks->arena, "ranks hold different values of @%s", global);
        return NULL;
      }
      *then = now, seen[held.at[k]] = true;
    }
  }
  if (g->kind != GLOBAL_PARAM && g->kind != GLOBAL_STATE) return tensor;
  tensor = without_padding(ranks, tensor);
  if (!tensor) ranks->error = arena_printf(ranks->arena, "the padding of @%s is not zero", global);
  return tensor;
}

void ranks_put(Ranks *ranks, const char *global, const double *data) {
  const Global *put = find_global(ranks, global);
  if (!put && write_parts(ranks, global, data, ranks_put)) return;
  if (!put) bug("ranks_put: no global @%s", global);
  Type whole = whole_type(ranks, put);
  const double *padded = with_padding(ranks, &whole, data);
  for (int64_t i = 0; i < ranks->n; i++) {
    if (!holds(ranks, put, i)) continue;
    Held held = put->within ? held_member(ranks, put, i) : held_whole(ranks, put, i);
    const char *name = put->within ? put->within->name : put->name;
    int64_t n = type_count(&interp_get(ranks->rank[i], name)->type);
    double *own = ARENA_ARRAY(ranks->arena, double, n + 1);
    memcpy(own, held.own, sizeof *own * (size_t)n);
    for (int64_t k = 0; k < held.n; k++) own[held.from[k]] = padded[held.at[k]];
    interp_set(ranks->rank[i], name, own);
  }
}

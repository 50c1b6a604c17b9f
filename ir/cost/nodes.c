/* Bytes of a step that leave nodes (nodes.h). A rank's coordinates stay what they are in another
   order of the axes; its number, and so its node, follows from the strides. */
#include "nodes.h"
#include "budget.h"
#include "count.h"
#include "ir/schedule/message.h"
#include "ir/shape/placement.h"
#include <string.h>

/* ---- what a rank sends ---- */

typedef struct NodeRow { /* over one axis, of a rank that sends to another one */
  const Op *op;          /* one of its kind */
  int axis;
  double bytes; /* to each of those it sends to */
} NodeRow;
typedef VEC(NodeRow) NodeRows;

static bool same_way(const Op *a, const Op *b) {
  return op_collective(a->code)->way == op_collective(b->code)->way &&
         attr_int(&a->attrs, ATTR_reverse, 0) == attr_int(&b->attrs, ATTR_reverse, 0) &&
         attr_int(&a->attrs, ATTR_cyclic, 0) == attr_int(&b->attrs, ATTR_cyclic, 0);
}

static NodeRow *row_for(Arena *arena, NodeRows *rows, const Op *o, int axis) {
  for (uint32_t i = 0; i < rows->n; i++)
    if (rows->at[i].axis == axis && same_way(rows->at[i].op, o)) return &rows->at[i];
  vec_push(arena, *rows, (NodeRow){o, axis, 0});
  return &vec_last(*rows);
}

/* Paper counting has what a ring sends times n / (n - 1). */
static double to_each(const Fn *f, const Op *o, double ranks) {
  double bytes = message_traffic(f, o) * elem_bytes(value_type(f, o->out)->elem);
  return op_collective(o->code)->way == SEND_EACH ? bytes / ranks
         : op_is_p2p(o->code)                     ? bytes
                                                  : bytes * collective_share(o->code, ranks);
}

static void add_rows(const Module *m, const Fn *f, double times, NodeRows *rows) {
  EACH_OP (f, o) {
    if (o->code == OP_loop)
      add_rows(m, o->callee, times * (double)attr_int(&o->attrs, ATTR_trip, 1), rows);
    if (op_family(o->code) != FAMILY_COLLECTIVE || message_traffic(f, o) <= 0) continue;
    int axis = mesh_find(m, attr_str(&o->attrs, ATTR_axis, ""));
    double ranks = (double)m->mesh.at[axis].size;
    if (ranks > 1) row_for(m->arena, rows, o, axis)->bytes += times * to_each(f, o, ranks);
  }
}

/* ---- where it goes ---- */

typedef struct NodeMap {
  const Module *m;
  int64_t in_node, nodes, stride[MAX_MESH]; /* by axis of m */
} NodeMap;

static NodeMap map_of(const Module *m, const int *order, int64_t in_node) {
  NodeMap map = {.m = m, .in_node = in_node > 0 ? in_node : 1};
  int64_t stride = 1;
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    int axis = order ? order[i] : (int)i;
    map.stride[axis] = stride, stride *= m->mesh.at[axis].size;
  }
  map.nodes = (stride + map.in_node - 1) / map.in_node;
  return map;
}

/* The rank's number in the order of the map. */
static int64_t number_of(const NodeMap *map, int64_t rank) {
  int64_t number = 0;
  for (int i = 0; i < (int)map->m->mesh.n; i++)
    number += mesh_coordinate(map->m, rank, i) * map->stride[i];
  return number;
}

/* Does what the rank sends to coordinate `to` leave its node? */
static bool leaves(const NodeMap *map, int64_t number, int axis, int64_t at, int64_t to) {
  return (number + (to - at) * map->stride[axis]) / map->in_node != number / map->in_node;
}

/* Number of ranks along the axis through that one whose numbers are from `from` on and below
   `end`. */
static int64_t between(const NodeMap *map, int64_t number, int axis, int64_t at, int64_t from,
                       int64_t end) {
  int64_t stride = map->stride[axis], n = map->m->mesh.at[axis].size, base = number - at * stride;
  int64_t first = from <= base ? 0 : (from - base + stride - 1) / stride,
          last = end <= base ? -1 : (end - 1 - base) / stride;
  if (last >= n) last = n - 1;
  return last < first ? 0 : last - first + 1;
}

/* Bytes that leave the node, of the rank with that number. */
static double leaving(const NodeMap *map, const NodeRow *row, int64_t rank, int64_t number) {
  int64_t at = mesh_coordinate(map->m, rank, row->axis), n = map->m->mesh.at[row->axis].size;
  int64_t node = number / map->in_node * map->in_node;
  if (op_collective(row->op->code)->way == SEND_EACH)
    return row->bytes *
           (double)(n - between(map, number, row->axis, at, node, node + map->in_node));
  int64_t to = op_is_p2p(row->op->code) ? hop_peer(row->op, at, n) : (at + 1) % n;
  return to >= 0 && leaves(map, number, row->axis, at, to) ? row->bytes : 0;
}

static bool runs(const Module *m, StageClass class, int64_t rank) {
  int64_t at = class.axis < 0 ? 0 : mesh_coordinate(m, rank, class.axis);
  return at >= class.first && at <= class.last;
}

static void find_classes(Module *const *programs, uint32_t n, StageClass *out) {
  for (uint32_t p = 0; p < n; p++) out[p] = module_class(programs[p]);
}

/* Over one axis, out of each node, by program: sent[node * STAGE_CLASSES + program]. */
static void send_all(const NodeMap *map, Module *const *programs, uint32_t n, const NodeRows *rows,
                     int axis, double *sent, bool *there) {
  StageClass class[STAGE_CLASSES];
  find_classes(programs, n, class);
  for (int64_t rank = 0, all = mesh_ranks(map->m); rank < all; rank++) {
    int64_t number = number_of(map, rank), node = number / map->in_node;
    for (uint32_t p = 0; p < n; p++) {
      if (!runs(map->m, class[p], rank)) continue;
      there[node * STAGE_CLASSES + p] = true;
      for (uint32_t i = 0; i < rows[p].n; i++)
        if (rows[p].at[i].axis == axis)
          sent[node * STAGE_CLASSES + p] += leaving(map, &rows[p].at[i], rank, number);
    }
  }
}

static void add_axis(NodeTraffic *traffic, int axis, const NodeMap *map, uint32_t n,
                     const double *sent, const bool *there) {
  for (int64_t node = 0; node < map->nodes; node++) {
    const double *own = &sent[node * STAGE_CLASSES];
    double all = 0;
    for (uint32_t p = 0; p < n; p++) all += own[p];
    traffic->leaves[axis] += all;
    for (uint32_t p = 0; p < n; p++) {
      NodeSends *from = &traffic->from[axis][p];
      if (!there[node * STAGE_CLASSES + p]) continue;
      if (own[p] > from->own) from->own = own[p];
      if (all > from->all) from->all = all;
    }
  }
  traffic->sum += traffic->leaves[axis];
}

static void rows_of(Module *const *programs, uint32_t n, NodeRows *rows) {
  for (uint32_t p = 0; p < n; p++) {
    const Fn *step = ir_main_entry(programs[p]);
    if (step) add_rows(programs[p], step, 1, &rows[p]);
  }
}

NodeTraffic node_traffic(Module *const *programs, uint32_t n, int64_t in_node) {
  NodeTraffic traffic = {0};
  NodeRows rows[STAGE_CLASSES] = {0};
  Arena *arena = programs[0]->arena;
  NodeMap map = map_of(programs[0], NULL, in_node);
  rows_of(programs, n, rows);
  for (int axis = 0; axis < (int)map.m->mesh.n; axis++) {
    double *sent = ARENA_ARRAY(arena, double, map.nodes *STAGE_CLASSES);
    bool *there = ARENA_ARRAY(arena, bool, map.nodes *STAGE_CLASSES);
    send_all(&map, programs, n, rows, axis, sent, there);
    add_axis(&traffic, axis, &map, n, sent, there);
  }
  return traffic;
}

/* ---- orders ---- */

typedef struct OrderSearch {
  Module *const *programs;
  uint32_t n;
  const NodeRows *rows;
  int64_t in_node;
  uint32_t keep;
  double best; /* below 0: none was tried */
  int at[MAX_MESH], *taken;
} OrderSearch;

static double sum_of(const OrderSearch *search, const int *order) {
  NodeMap map = map_of(search->programs[0], order, search->in_node);
  double sum = 0;
  StageClass class[STAGE_CLASSES];
  find_classes(search->programs, search->n, class);
  for (int64_t rank = 0, all = mesh_ranks(map.m); rank < all; rank++) {
    int64_t number = number_of(&map, rank);
    for (uint32_t p = 0; p < search->n; p++)
      for (uint32_t i = 0; runs(map.m, class[p], rank) && i < search->rows[p].n; i++)
        sum += leaving(&map, &search->rows[p].at[i], rank, number);
  }
  return sum;
}

/* Whether the axis may be the next one after `from` others. */
static bool may_follow(const OrderSearch *search, int from, int axis) {
  uint32_t used = 0, before = search->keep & ((1u << axis) - 1);
  for (int i = 0; i < from; i++) used |= 1u << search->at[i];
  return !(used >> axis & 1) && (!(search->keep >> axis & 1) || !(before & ~used));
}

/* Orders by the position of their axes in the mesh: the one that is written comes first. */
static void try_orders(OrderSearch *search, int from, int axes) {
  double sum = from == axes ? sum_of(search, search->at) : 0;
  if (from == axes && (search->best < 0 || sum < search->best * NODE_GAIN))
    search->best = sum, memcpy(search->taken, search->at, sizeof search->at);
  for (int axis = 0; from < axes && axis < axes; axis++) {
    if (!may_follow(search, from, axis)) continue;
    search->at[from] = axis;
    try_orders(search, from + 1, axes);
  }
}

double node_order(Module *const *programs, uint32_t n, int64_t in_node, uint32_t keep, int *order) {
  NodeRows rows[STAGE_CLASSES] = {0};
  OrderSearch search = {programs, n, rows, in_node, keep, -1, {0}, order};
  rows_of(programs, n, rows);
  try_orders(&search, 0, (int)programs[0]->mesh.n);
  return search.best;
}

/* ---- ranks of a node ---- */

int64_t node_joined(const Module *m, int axis, int64_t in_node, int64_t cpus) {
  NodeMap map = map_of(m, NULL, in_node);
  int64_t most = 1;
  for (int64_t rank = 0, all = mesh_ranks(m); rank < all; rank++) {
    int64_t node = rank / in_node * in_node, cpu = rank % in_node * cpus / in_node;
    int64_t from = node + (cpu * in_node + cpus - 1) / cpus,
            end = node + ((cpu + 1) * in_node + cpus - 1) / cpus;
    int64_t here = between(&map, rank, axis, mesh_coordinate(m, rank, axis), from, end);
    if (here > most) most = here;
  }
  return most;
}

static int64_t root_of(int64_t *parent, int64_t at) {
  while (parent[at] != at) at = parent[at] = parent[parent[at]];
  return at;
}

int64_t node_sets(const Module *m, int axis, int64_t in_node) {
  NodeMap map = map_of(m, NULL, in_node);
  int64_t *parent = ARENA_ARRAY(m->arena, int64_t, map.nodes), sets = map.nodes;
  for (int64_t i = 0; i < map.nodes; i++) parent[i] = i;
  for (int64_t rank = 0, all = mesh_ranks(m); rank < all; rank++) {
    int64_t first = rank - mesh_coordinate(m, rank, axis) * map.stride[axis];
    int64_t a = root_of(parent, rank / map.in_node), b = root_of(parent, first / map.in_node);
    if (a != b) parent[a] = b, sets--;
  }
  return sets;
}

/* Lists of blocks as attributes: run lengths over classes, rows, columns, blocks that are not
   listed and blocks that are in turn; over the listed ones again, full and partial in turn. So
   neighbours cost one number, and a window with some global columns some six numbers a row. */
#include "lists.h"
#include "ir/support/num.h"

enum { MOST_BLOCKS = INT32_MAX };

static int64_t number_of(const BlockLists *lists, AttrKey k) {
  return attr_int(&lists->attrs, k, 0);
}

const BlockLists *lists_named(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->lists.n; i++)
    if (m->lists.at[i].name == name) return &m->lists.at[i];
  return NULL;
}

const BlockLists *lists_of(const Module *m, const Op *attention) {
  Str name = attr_str(&attention->attrs, ATTR_lists, NULL);
  return name ? lists_named(m, name) : NULL;
}

ListsShape lists_shape(const BlockLists *lists) {
  ListsShape shape = {.queries = number_of(lists, ATTR_queries),
                      .keys = number_of(lists, ATTR_keys),
                      .high = number_of(lists, ATTR_high),
                      .wide = number_of(lists, ATTR_wide),
                      .count = 1,
                      .ranks = 1,
                      .classes = 1};
  shape.rows = ceil_div(shape.queries, shape.high),
  shape.columns = ceil_div(shape.keys, shape.wide);
  const Attr *heads = attr_get(&lists->attrs, ATTR_heads),
             *of = attr_get(&lists->attrs, ATTR_classes);
  shape.heads = heads ? (int)heads->i : 0;
  const Attr *steps = attr_get(&lists->attrs, ATTR_steps);
  shape.scalars = steps ? (int)steps->i : 0;
  for (int i = 0; i < shape.heads; i++) shape.count *= shape.head[i] = heads->list[i];
  for (int i = 0; i < shape.scalars; i++)
    shape.step[i] = steps->list[i], shape.ranks *= shape.head[shape.heads - shape.scalars + i];
  for (int64_t i = 0; of && i < of->i; i++) shape.classes = max_i64(shape.classes, of->list[i] + 1);
  return shape;
}

int64_t lists_class(const BlockLists *lists, int64_t head) {
  const Attr *of = attr_get(&lists->attrs, ATTR_classes);
  return of ? of->list[head] : 0;
}

double lists_share(const BlockLists *lists) {
  const Attr *listed = attr_get(&lists->attrs, ATTR_listed);
  ListsShape shape = lists_shape(lists);
  double n = 0;
  for (int64_t i = 1; i < listed->i; i += 2) n += (double)listed->list[i];
  return n / ((double)shape.classes * (double)shape.rows * (double)shape.columns);
}

double *lists_counts(Arena *arena, const BlockLists *lists) {
  const Attr *listed = attr_get(&lists->attrs, ATTR_listed);
  ListsShape shape = lists_shape(lists);
  int64_t each = shape.rows * shape.columns, at = 0;
  double *n = ARENA_ARRAY(arena, double, shape.classes);
  for (int64_t i = 0; i < listed->i; i++)
    for (int64_t left = listed->list[i]; left;) {
      int64_t some = min_i64(left, each - at % each);
      if (i % 2) n[at / each] += (double)some;
      at += some, left -= some;
    }
  return n;
}

double lists_share_of(const BlockLists *lists, int64_t rank) {
  Arena *arena = arena_new();
  ListsShape shape = lists_shape(lists);
  const double *listed = lists_counts(arena, lists);
  double sum = 0;
  for (int64_t h = rank; h < shape.count; h += shape.ranks) sum += listed[lists_class(lists, h)];
  arena_free(arena);
  return sum / ((double)(shape.count / shape.ranks) * (double)shape.rows * (double)shape.columns);
}

ListsHeads lists_heads(const Fn *f, ValueId mask, Str query, Str key) {
  ListsHeads x = {0};
  x.dims = mask_heads(f, mask, query, key, x.dim), x.scalars = mask_scalars(f, mask, x.scalar);
  return x;
}

bool lists_heads_meet(const ListsShape *shape, const ListsHeads *of) {
  bool same = shape->heads - shape->scalars == of->dims &&
              (!shape->scalars || shape->scalars == of->scalars);
  for (int i = 0; same && i < of->dims; i++) same = shape->head[i] == of->dim[i].size;
  return same;
}

void lists_head_at(const ListsShape *shape, const ListsHeads *of, int64_t head,
                   BlockHead at[MASK_DIMS]) {
  for (int i = shape->heads, dims = i - shape->scalars; i-- > 0; head /= shape->head[i]) {
    int64_t here = head % shape->head[i];
    at[i] = i < dims ? (BlockHead){of->dim[i].dim, here, NO_VALUE}
                     : (BlockHead){NULL, here * shape->step[i - dims], of->scalar[i - dims]};
  }
}

/* ---- reading ---- */

typedef struct RunWalk { /* a walk over run lengths: which of the two kinds comes next */
  const Attr *runs;
  int64_t at, left;
} RunWalk;

static RunWalk run_walk(const BlockLists *lists, AttrKey k) {
  RunWalk t = {.runs = attr_get(&lists->attrs, k)};
  t.left = t.runs && t.runs->i ? t.runs->list[0] : MOST_BLOCKS;
  return t;
}

/* The number of elements of the present kind that come next; after the last run: no end. */
static int64_t run_next(RunWalk *t, bool *second) {
  while (!t->left && t->runs && ++t->at < t->runs->i) t->left = t->runs->list[t->at];
  if (!t->left) t->left = (int64_t)MOST_BLOCKS << 16;
  return *second = t->at % 2, t->left;
}

static void put_listed(BlockMap *map, int64_t from, int64_t n, RunWalk *partial) {
  while (n) {
    bool cut;
    int64_t some = min_i64(run_next(partial, &cut), n);
    if (map) {
      memset(map->state + from, cut ? BLOCK_PARTIAL : BLOCK_FULL, (size_t)some);
      *(cut ? &map->partial : &map->full) += some;
    }
    partial->left -= some, from += some, n -= some;
  }
}

BlockMap lists_map(Arena *arena, const BlockLists *lists, int64_t class) {
  ListsShape shape = lists_shape(lists);
  BlockMap map = {
      .rows = shape.rows, .columns = shape.columns, .high = shape.high, .wide = shape.wide};
  map.state = ARENA_ARRAY(arena, uint8_t, map.rows * map.columns + 1);
  RunWalk listed = run_walk(lists, ATTR_listed), partial = run_walk(lists, ATTR_partial);
  int64_t each = shape.rows * shape.columns, first = class * each;
  for (int64_t at = 0; at < first + each;) {
    bool is, mine = at >= first;
    int64_t n = min_i64(run_next(&listed, &is), (mine ? first + each : first) - at);
    if (is) put_listed(mine ? &map : NULL, at - first, n, &partial);
    listed.left -= n, at += n;
  }
  return map;
}

/* ---- writing ---- */

typedef struct Written {
  Arena *a;
  VEC(int64_t) runs;
} Written;

static void write_one(Written *w, bool second) {
  if (!w->runs.n) vec_push(w->a, w->runs, 0);
  if ((w->runs.n % 2 == 0) != second) vec_push(w->a, w->runs, 0);
  vec_last(w->runs)++;
}

/* A position after the last run needs no entry. */
static void set_runs(Module *m, AttrList *list, AttrKey k, const Written *w) {
  attr_set_ints(m, list, k, (int)(w->runs.n / 2 * 2), w->runs.at);
}

static void set_blocks(Module *m, AttrList *list, const ListsShape *shape, const BlockMap *maps) {
  Written listed = {.a = m->arena}, partial = {.a = m->arena};
  for (int64_t i = 0; i < shape->classes; i++)
    for (int64_t b = 0; b < shape->rows * shape->columns; b++) {
      uint8_t state = maps[i].state[b];
      write_one(&listed, state != BLOCK_ABSENT);
      if (state != BLOCK_ABSENT) write_one(&partial, state == BLOCK_PARTIAL);
    }
  set_runs(m, list, ATTR_listed, &listed), set_runs(m, list, ATTR_partial, &partial);
}

static uint64_t mixed(uint64_t h, uint64_t x) {
  for (int i = 0; i < 8; i++) h = (h ^ (x >> 8 * i & 255)) * 1099511628211u;
  return h;
}

Str lists_hash(Module *m, const AttrList *attrs) {
  uint64_t h = 14695981039346656037u;
  for (uint32_t i = 0; i < attrs->n; i++) {
    const Attr *attr = &attrs->at[i];
    for (const char *c = attr_name(attr->key); *c; c++) h = mixed(h, (unsigned char)*c);
    h = mixed(h, (uint64_t)attr->i);
    for (int64_t k = 0; attr_kind(attr->key) == ATTR_INTS && k < attr->i; k++)
      h = mixed(h, (uint64_t)attr->list[k]);
  }
  return intern_printf(m->ctx->names, "x%016llx", (unsigned long long)h);
}

const BlockLists *lists_add(Module *m, const ListsShape *shape, const BlockMap *maps,
                            const int64_t *class) {
  BlockLists lists = {0};
  attr_set_int(m, &lists.attrs, ATTR_queries, shape->queries),
      attr_set_int(m, &lists.attrs, ATTR_keys, shape->keys);
  attr_set_int(m, &lists.attrs, ATTR_high, shape->high),
      attr_set_int(m, &lists.attrs, ATTR_wide, shape->wide);
  if (shape->heads) attr_set_ints(m, &lists.attrs, ATTR_heads, shape->heads, shape->head);
  if (shape->scalars) attr_set_ints(m, &lists.attrs, ATTR_steps, shape->scalars, shape->step);
  if (shape->classes > 1) attr_set_ints(m, &lists.attrs, ATTR_classes, (int)shape->count, class);
  set_blocks(m, &lists.attrs, shape, maps);
  lists.name = lists_hash(m, &lists.attrs);
  const BlockLists *there = lists_named(m, lists.name);
  if (there) return there;
  vec_push(m->arena, m->lists, lists);
  return &vec_last(m->lists);
}

/* ---- checking ---- */

static const char *runs_fault(const BlockLists *lists, AttrKey k, int64_t most, int64_t *second) {
  const Attr *runs = attr_get(&lists->attrs, k);
  int64_t sum = 0;
  *second = 0;
  if (!runs || runs->i % 2) return "has as many runs of one kind as of the other";
  for (int64_t i = 0; i < runs->i; i++) {
    if (runs->list[i] < (i > 0) || runs->list[i] > most - sum)
      return "has positive runs, but for the first, of no more blocks than there are";
    sum += runs->list[i], *second += i % 2 ? runs->list[i] : 0;
  }
  return NULL;
}

static bool positive(int64_t x) { return x > 0 && x <= MOST_BLOCKS; }

static const char *heads_fault(const BlockLists *lists, int64_t *classes) {
  const Attr *heads = attr_get(&lists->attrs, ATTR_heads),
             *of = attr_get(&lists->attrs, ATTR_classes);
  int64_t count = 1, most = 0;
  bool sound = !heads || (heads->i > 0 && heads->i <= MAX_RANK * 2);
  for (int64_t i = 0; sound && heads && i < heads->i; i++) {
    sound = positive(heads->list[i]) && heads->list[i] <= MOST_BLOCKS / count;
    count *= sound ? heads->list[i] : 1;
  }
  if (!sound) return "`heads` are positive sizes";
  const Attr *steps = attr_get(&lists->attrs, ATTR_steps);
  sound = !steps || (heads && steps->i > 0 && steps->i <= heads->i && steps->i <= MASK_SCALARS);
  for (int64_t i = 0; sound && steps && i < steps->i; i++) sound = positive(steps->list[i]);
  if (!sound) return "`steps` are positive, of the last `heads`";
  *classes = 1;
  if (!of) return NULL;
  if (!heads || of->i != count) return "`classes` has a number for each head";
  for (int64_t i = 0; i < of->i; most = max_i64(most, of->list[i++] + 1))
    if (of->list[i] < 0 || of->list[i] > most) return "`classes` count from 0 as they come";
  return *classes = most, NULL;
}

const char *lists_fault(Arena *arena, const BlockLists *lists) {
  static const AttrKey sizes[] = {ATTR_queries, ATTR_keys, ATTR_high, ATTR_wide};
  for (int i = 0; i < 4; i++)
    if (!positive(number_of(lists, sizes[i])))
      return arena_printf(arena, "`%s` is positive", attr_name(sizes[i]));
  int64_t classes, listed, partial;
  const char *why = heads_fault(lists, &classes);
  if (why) return why;
  int64_t each = ceil_div(number_of(lists, ATTR_queries), number_of(lists, ATTR_high)) *
                 ceil_div(number_of(lists, ATTR_keys), number_of(lists, ATTR_wide));
  if (each > MOST_BLOCKS / classes) return "there are 2^31 blocks at most";
  why = runs_fault(lists, ATTR_listed, each * classes, &listed);
  if (why) return arena_printf(arena, "`listed` %s", why);
  why = runs_fault(lists, ATTR_partial, listed, &partial);
  return why ? arena_printf(arena, "`partial` %s", why) : NULL;
}

/* ---- the size of its blocks ---- */

typedef struct Dividing {
  const Fn *f;
  Str query, key;
  bool *seen;
} Dividing;

/* The positions of queries or keys, maybe with another first one */
static bool is_position(const Dividing *dividing, ValueId v) {
  const Op *o = value_def(dividing->f, v);
  while (o && (o->code == OP_expand || o->code == OP_cast || o->code == OP_copy))
    o = value_def(dividing->f, o->in[0]);
  if (o && o->code == OP_add)
    return is_position(dividing, o->in[0]) || is_position(dividing, o->in[1]);
  Str dim = o && o->code == OP_iota ? o->group[0].from[0] : NULL;
  return dim && (dim == dividing->query || dim == dividing->key);
}

static int64_t constant_of(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  while (o && o->code == OP_expand) o = value_def(f, o->in[0]);
  return o && o->code == OP_const ? (int64_t)attr_float(&o->attrs, ATTR_value, 0) : 0;
}

static const Op *divided(const Dividing *dividing, ValueId v, int64_t *most) {
  const Op *o = value_def(dividing->f, v), *found = NULL, *below;
  if (!o || dividing->seen[v]) return NULL;
  dividing->seen[v] = true;
  if (o->code == OP_div && !attr_get(&o->attrs, ATTR_dealt) && is_position(dividing, o->in[0]) &&
      constant_of(dividing->f, o->in[1]) > *most)
    *most = constant_of(dividing->f, o->in[1]), found = o;
  for (uint32_t i = 0; i < o->nin; i++)
    if ((below = divided(dividing, o->in[i], most))) found = below;
  return found;
}

const Op *mask_block_op(const Fn *f, ValueId mask, Str query, Str key, int64_t *size) {
  Arena *arena = arena_new();
  Dividing dividing = {f, query, key, ARENA_ARRAY(arena, bool, f->values.n + 1)};
  const Op *o = (*size = 0, divided(&dividing, mask, size));
  arena_free(arena);
  return o;
}

int64_t mask_block_size(const Fn *f, ValueId mask, Str query, Str key) {
  int64_t n;
  mask_block_op(f, mask, query, key, &n);
  return n;
}

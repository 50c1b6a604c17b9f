/* Lists of blocks as attributes: run lengths over classes, rows, columns, blocks that are not
   listed and blocks that are in turn; over the listed ones again, full and partial in turn. So
   neighbours cost one number, and a window with some global columns some six numbers a row. */
#include "lists.h"
#include "ir/support/num.h"

enum { MOST_BLOCKS = INT32_MAX };

static int64_t number_of(const BlockLists *l, AttrKey k) { return attr_int(&l->attrs, k, 0); }

const BlockLists *lists_named(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->lists.n; i++)
    if (m->lists.at[i].name == name) return &m->lists.at[i];
  return NULL;
}

const BlockLists *lists_of(const Module *m, const Op *attention) {
  Str name = attr_str(&attention->attrs, ATTR_lists, NULL);
  return name ? lists_named(m, name) : NULL;
}

ListsShape lists_shape(const BlockLists *l) {
  ListsShape s = {.queries = number_of(l, ATTR_queries),
                  .keys = number_of(l, ATTR_keys),
                  .high = number_of(l, ATTR_high),
                  .wide = number_of(l, ATTR_wide),
                  .count = 1,
                  .ranks = 1,
                  .classes = 1};
  s.rows = ceil_div(s.queries, s.high), s.columns = ceil_div(s.keys, s.wide);
  const Attr *heads = attr_get(&l->attrs, ATTR_heads), *of = attr_get(&l->attrs, ATTR_classes);
  s.heads = heads ? (int)heads->i : 0;
  const Attr *steps = attr_get(&l->attrs, ATTR_steps);
  s.scalars = steps ? (int)steps->i : 0;
  for (int i = 0; i < s.heads; i++) s.count *= s.head[i] = heads->list[i];
  for (int i = 0; i < s.scalars; i++)
    s.step[i] = steps->list[i], s.ranks *= s.head[s.heads - s.scalars + i];
  for (int64_t i = 0; of && i < of->i; i++) s.classes = max_i64(s.classes, of->list[i] + 1);
  return s;
}

int64_t lists_class(const BlockLists *l, int64_t head) {
  const Attr *of = attr_get(&l->attrs, ATTR_classes);
  return of ? of->list[head] : 0;
}

double lists_share(const BlockLists *l) {
  const Attr *listed = attr_get(&l->attrs, ATTR_listed);
  ListsShape s = lists_shape(l);
  double n = 0;
  for (int64_t i = 1; i < listed->i; i += 2) n += (double)listed->list[i];
  return n / ((double)s.classes * (double)s.rows * (double)s.columns);
}

double *lists_counts(Arena *a, const BlockLists *l) {
  const Attr *listed = attr_get(&l->attrs, ATTR_listed);
  ListsShape s = lists_shape(l);
  int64_t each = s.rows * s.columns, at = 0;
  double *n = ARENA_ARRAY(a, double, s.classes);
  for (int64_t i = 0; i < listed->i; i++)
    for (int64_t left = listed->list[i]; left;) {
      int64_t some = min_i64(left, each - at % each);
      if (i % 2) n[at / each] += (double)some;
      at += some, left -= some;
    }
  return n;
}

double lists_share_of(const BlockLists *l, int64_t rank) {
  Arena *a = arena_new();
  ListsShape s = lists_shape(l);
  const double *listed = lists_counts(a, l);
  double sum = 0;
  for (int64_t h = rank; h < s.count; h += s.ranks) sum += listed[lists_class(l, h)];
  arena_free(a);
  return sum / ((double)(s.count / s.ranks) * (double)s.rows * (double)s.columns);
}

ListsHeads lists_heads(const Fn *f, ValueId mask, Str query, Str key) {
  ListsHeads x = {0};
  x.dims = mask_heads(f, mask, query, key, x.dim), x.scalars = mask_scalars(f, mask, x.scalar);
  return x;
}

bool lists_heads_meet(const ListsShape *s, const ListsHeads *of) {
  bool same = s->heads - s->scalars == of->dims && (!s->scalars || s->scalars == of->scalars);
  for (int i = 0; same && i < of->dims; i++) same = s->head[i] == of->dim[i].size;
  return same;
}

void lists_head_at(const ListsShape *s, const ListsHeads *of, int64_t head,
                   BlockHead at[MASK_DIMS]) {
  for (int i = s->heads, dims = i - s->scalars; i-- > 0; head /= s->head[i]) {
    int64_t here = head % s->head[i];
    at[i] = i < dims ? (BlockHead){of->dim[i].dim, here, NO_VALUE}
                     : (BlockHead){NULL, here * s->step[i - dims], of->scalar[i - dims]};
  }
}

/* ---- reading ---- */

typedef struct Turns { /* a walk over run lengths: which of the two kinds comes next */
  const Attr *runs;
  int64_t at, left;
} Turns;

static Turns turns_of(const BlockLists *l, AttrKey k) {
  Turns t = {.runs = attr_get(&l->attrs, k)};
  t.left = t.runs && t.runs->i ? t.runs->list[0] : MOST_BLOCKS;
  return t;
}

/* Elements of the present kind that come next; behind the last run without end. */
static int64_t turns_next(Turns *t, bool *second) {
  while (!t->left && t->runs && ++t->at < t->runs->i) t->left = t->runs->list[t->at];
  if (!t->left) t->left = (int64_t)MOST_BLOCKS << 16;
  return *second = t->at % 2, t->left;
}

static void put_listed(BlockMap *m, int64_t from, int64_t n, Turns *partial) {
  while (n) {
    bool cut;
    int64_t some = min_i64(turns_next(partial, &cut), n);
    if (m) {
      memset(m->state + from, cut ? BLOCK_PARTIAL : BLOCK_FULL, (size_t)some);
      *(cut ? &m->partial : &m->full) += some;
    }
    partial->left -= some, from += some, n -= some;
  }
}

BlockMap lists_map(Arena *a, const BlockLists *l, int64_t class) {
  ListsShape s = lists_shape(l);
  BlockMap m = {.rows = s.rows, .columns = s.columns, .high = s.high, .wide = s.wide};
  m.state = ARENA_ARRAY(a, uint8_t, m.rows * m.columns + 1);
  Turns listed = turns_of(l, ATTR_listed), partial = turns_of(l, ATTR_partial);
  int64_t each = s.rows * s.columns, first = class * each;
  for (int64_t at = 0; at < first + each;) {
    bool is, mine = at >= first;
    int64_t n = min_i64(turns_next(&listed, &is), (mine ? first + each : first) - at);
    if (is) put_listed(mine ? &m : NULL, at - first, n, &partial);
    listed.left -= n, at += n;
  }
  return m;
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

/* What is not set behind the last run says itself. */
static void set_runs(Module *m, AttrList *l, AttrKey k, const Written *w) {
  attr_set_ints(m, l, k, (int)(w->runs.n / 2 * 2), w->runs.at);
}

static void set_blocks(Module *m, AttrList *l, const ListsShape *s, const BlockMap *maps) {
  Written listed = {.a = m->arena}, partial = {.a = m->arena};
  for (int64_t i = 0; i < s->classes; i++)
    for (int64_t b = 0; b < s->rows * s->columns; b++) {
      uint8_t state = maps[i].state[b];
      write_one(&listed, state != BLOCK_ABSENT);
      if (state != BLOCK_ABSENT) write_one(&partial, state == BLOCK_PARTIAL);
    }
  set_runs(m, l, ATTR_listed, &listed), set_runs(m, l, ATTR_partial, &partial);
}

static uint64_t mixed(uint64_t h, uint64_t x) {
  for (int i = 0; i < 8; i++) h = (h ^ (x >> 8 * i & 255)) * 1099511628211u;
  return h;
}

Str lists_hash(Module *m, const AttrList *attrs) {
  uint64_t h = 14695981039346656037u;
  for (uint32_t i = 0; i < attrs->n; i++) {
    const Attr *x = &attrs->at[i];
    for (const char *c = attr_name(x->key); *c; c++) h = mixed(h, (unsigned char)*c);
    h = mixed(h, (uint64_t)x->i);
    for (int64_t k = 0; attr_kind(x->key) == ATTR_INTS && k < x->i; k++)
      h = mixed(h, (uint64_t)x->list[k]);
  }
  return intern_printf(m->ctx->names, "x%016llx", (unsigned long long)h);
}

const BlockLists *lists_add(Module *m, const ListsShape *s, const BlockMap *maps,
                            const int64_t *class) {
  BlockLists l = {0};
  attr_set_int(m, &l.attrs, ATTR_queries, s->queries),
      attr_set_int(m, &l.attrs, ATTR_keys, s->keys);
  attr_set_int(m, &l.attrs, ATTR_high, s->high), attr_set_int(m, &l.attrs, ATTR_wide, s->wide);
  if (s->heads) attr_set_ints(m, &l.attrs, ATTR_heads, s->heads, s->head);
  if (s->scalars) attr_set_ints(m, &l.attrs, ATTR_steps, s->scalars, s->step);
  if (s->classes > 1) attr_set_ints(m, &l.attrs, ATTR_classes, (int)s->count, class);
  set_blocks(m, &l.attrs, s, maps);
  l.name = lists_hash(m, &l.attrs);
  const BlockLists *there = lists_named(m, l.name);
  if (there) return there;
  vec_push(m->arena, m->lists, l);
  return &vec_last(m->lists);
}

/* ---- checking ---- */

static const char *runs_fault(const BlockLists *l, AttrKey k, int64_t most, int64_t *second) {
  const Attr *runs = attr_get(&l->attrs, k);
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

static const char *heads_fault(const BlockLists *l, int64_t *classes) {
  const Attr *heads = attr_get(&l->attrs, ATTR_heads), *of = attr_get(&l->attrs, ATTR_classes);
  int64_t count = 1, most = 0;
  bool sound = !heads || (heads->i > 0 && heads->i <= MAX_RANK * 2);
  for (int64_t i = 0; sound && heads && i < heads->i; i++) {
    sound = positive(heads->list[i]) && heads->list[i] <= MOST_BLOCKS / count;
    count *= sound ? heads->list[i] : 1;
  }
  if (!sound) return "`heads` are positive sizes";
  const Attr *steps = attr_get(&l->attrs, ATTR_steps);
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

const char *lists_fault(Arena *a, const BlockLists *l) {
  static const AttrKey sizes[] = {ATTR_queries, ATTR_keys, ATTR_high, ATTR_wide};
  for (int i = 0; i < 4; i++)
    if (!positive(number_of(l, sizes[i])))
      return arena_printf(a, "`%s` is positive", attr_name(sizes[i]));
  int64_t classes, listed, partial;
  const char *why = heads_fault(l, &classes);
  if (why) return why;
  int64_t each = ceil_div(number_of(l, ATTR_queries), number_of(l, ATTR_high)) *
                 ceil_div(number_of(l, ATTR_keys), number_of(l, ATTR_wide));
  if (each > MOST_BLOCKS / classes) return "there are 2^31 blocks at most";
  why = runs_fault(l, ATTR_listed, each * classes, &listed);
  if (why) return arena_printf(a, "`listed` %s", why);
  why = runs_fault(l, ATTR_partial, listed, &partial);
  return why ? arena_printf(a, "`partial` %s", why) : NULL;
}

/* ---- the size of its blocks ---- */

typedef struct Dividing {
  const Fn *f;
  Str query, key;
  bool *seen;
} Dividing;

/* Of queries or keys, maybe from another first one on */
static bool is_position(const Dividing *d, ValueId v) {
  const Op *o = value_def(d->f, v);
  while (o && (o->code == OP_expand || o->code == OP_cast || o->code == OP_copy))
    o = value_def(d->f, o->in[0]);
  if (o && o->code == OP_add) return is_position(d, o->in[0]) || is_position(d, o->in[1]);
  Str dim = o && o->code == OP_iota ? o->group[0].from[0] : NULL;
  return dim && (dim == d->query || dim == d->key);
}

static int64_t constant_of(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  while (o && o->code == OP_expand) o = value_def(f, o->in[0]);
  return o && o->code == OP_const ? (int64_t)attr_float(&o->attrs, ATTR_value, 0) : 0;
}

static const Op *divided(const Dividing *d, ValueId v, int64_t *most) {
  const Op *o = value_def(d->f, v), *found = NULL, *below;
  if (!o || d->seen[v]) return NULL;
  d->seen[v] = true;
  if (o->code == OP_div && is_position(d, o->in[0]) && constant_of(d->f, o->in[1]) > *most)
    *most = constant_of(d->f, o->in[1]), found = o;
  for (uint32_t i = 0; i < o->nin; i++)
    if ((below = divided(d, o->in[i], most))) found = below;
  return found;
}

const Op *mask_block_op(const Fn *f, ValueId mask, Str query, Str key, int64_t *size) {
  Arena *a = arena_new();
  Dividing d = {f, query, key, ARENA_ARRAY(a, bool, f->values.n + 1)};
  const Op *o = (*size = 0, divided(&d, mask, size));
  arena_free(a);
  return o;
}

int64_t mask_block_size(const Fn *f, ValueId mask, Str query, Str key) {
  int64_t n;
  mask_block_op(f, mask, query, key, &n);
  return n;
}

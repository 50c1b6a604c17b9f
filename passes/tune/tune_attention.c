/* Tuning of families attention and attention_grad: register tile, blocks of scores, chunks.
   ir/kernel/attention_shape.h says what the numbers mean.

   A tile of scores has keys as rows and queries as lanes. A block of scores (keys x queries) should
   stay in the second-level cache with the rows that meet it. Chunks are heads; long sequences of
   few heads are cut along the queries too, and the gradient then runs twice over the scores: once
   for dk and dv, once for dq, so that every chunk owns what it writes. */
#include "gpu.h"
#include "tune.h"
#include "ir/kernel/attention_list.h"
#include "ir/support/num.h"

/* About so many keys that ranges of whole blocks of `wide` are not cut. */
static int64_t whole_blocks(int64_t keys, int64_t wide) {
  int64_t parts = ceil_div(wide, keys);
  if (wide <= keys) return keys / wide * wide;
  while (wide % parts && parts < 2 * ceil_div(wide, keys)) parts++;
  return ceil_div(wide, parts);
}

typedef struct Listed { /* by the module's lists of blocks */
  int64_t wide;         /* keys of a block; 0: there are no lists */
  double share;         /* of the scores; 1 without lists */
  double heaviest;      /* of these the largest part that a head of keys and values has */
} Listed;

static Listed listed_of(const Module *m, const Fn *k, const Flash *f) {
  const BlockLists *l = lists_of(m, &k->ops.at[f->op]);
  if (!l) return (Listed){0, 1, 1.0 / (double)f->shared.count};
  return (Listed){lists_shape(l).wide, lists_share(l), attention_heaviest(m, k, f)};
}

/* Register tiles: rows of keys and vectors of queries. With four vectors an element of a row serves
 * four multiply-adds: the fewest loads, where that many queries are there to fill them, and blocks
 * of keys need not end with a tile. */
static void choose_tile(const Flash *f, const KernelLimits *x, int64_t wide, int64_t *tile) {
  bool many = x->registers >= 32 && f->queries >= 4 * FLASH_WIDE * x->lanes && !wide;
  tile[FLASH_VECTORS] = many ? FLASH_WIDE : f->queries > x->lanes ? 2 : 1;
  tile[FLASH_ROWS] = flash_rows(x->registers, tile[FLASH_VECTORS]);
  int64_t queries = tile[FLASH_VECTORS] * x->lanes;
  bool far = f->keys * f->width * 8 > x->l2 / 2; /* keys and values: several tiles share a block */
  int64_t keys = (far || many ? 72 : 128) * (f->grad ? 1 : 2); /* 72: whole tiles, whole rounds */
  int64_t block = f->grad ? (far ? 256 : 64) : far ? 256 : queries;
  if (wide) keys = whole_blocks(keys, wide);
  keys = round_up(keys, tile[FLASH_ROWS]);
  tile[FLASH_KEY_BLOCK] = min_i64(keys, round_up(f->keys, tile[FLASH_ROWS]));
  tile[FLASH_QUERY_BLOCK] = min_i64(round_up(block, queries), round_up(f->queries, queries));
}

/* Chunks for this many multiply-adds: about eight per worker, none below some twenty microseconds.
 */
static int64_t chunks_wanted(double work, const KernelLimits *x) {
  double most = 8.0 * (double)x->workers;
  return work / 5e5 > most ? (int64_t)most : max_i64((int64_t)(work / 5e5), 1);
}

/* Heads first; if they are fewer than half of the chunks wanted, each is cut into parts, which copy
   the head's keys and values once more. Returns the number of parts. */
static int64_t cut(int64_t wanted, int64_t heads, int64_t blocks, int64_t *tile) {
  tile[FLASH_HEADS] = min_i64(heads, wanted);
  return 2 * heads >= wanted ? 1 : min_i64(blocks, (wanted + heads - 1) / heads);
}

/* Each part copies the keys and values of its head, which few listed scores do not pay for: so many
   parts at most, but two for each worker. */
static int64_t parts_worth(const Flash *f, const KernelLimits *x, const Listed *l, int64_t heads,
                           int64_t parts) {
  enum { QUERIES = 256 }; /* that make a copy of all keys cheap */
  int64_t most = (int64_t)(l->share * (double)f->queries / QUERIES);
  return l->wide ? min_i64(parts, max_i64(most, ceil_div(2 * x->workers, heads))) : parts;
}

static double multiply_adds(const Flash *f) {
  return 2.0 * (double)(f->shared.count * f->group.count) * (double)f->queries * (double)f->keys *
         (double)f->width;
}

static Cut forward_rule(const Flash *f, const KernelLimits *x, Listed l) {
  Cut c = {{[FLASH_PARTS] = 1}};
  choose_tile(f, x, l.wide, c.at);
  FlashPlan p = flash_plan(f, x->lanes, c.at);
  int64_t heads = f->shared.count * f->group.count;
  int64_t parts = cut(chunks_wanted(l.share * multiply_adds(f), x), heads, p.query_blocks, c.at);
  c.at[FLASH_PARTS] = parts_worth(f, x, &l, heads, parts);
  return c;
}

/* Chunks over queries in the second phase of the gradient, if that many are wanted in all. */
static int64_t second_parts(const Flash *f, const FlashPlan *p, int64_t wanted) {
  int64_t heads = f->shared.count * f->group.count;
  return min_i64(p->query_blocks, (wanted + heads - 1) / heads);
}

/* Whether a head of keys and values, which one phase leaves whole, keeps one worker longer than all
   would need for two phases, which cost two fifths more. */
static bool one_is_heavy(const KernelLimits *x, const Listed *l, int64_t wanted) {
  return l->wide && wanted >= 2 * x->workers && l->heaviest * (double)x->workers > 1.4;
}

static Cut backward_rule(const Flash *f, const KernelLimits *x, Listed l) {
  Cut c = {{[FLASH_PARTS] = 1}};
  choose_tile(f, x, l.wide, c.at);
  FlashPlan p = flash_plan(f, x->lanes, c.at);
  int64_t wanted = chunks_wanted(l.share * 2.5 * multiply_adds(f), x);
  int64_t parts = cut(wanted, f->shared.count, p.key_blocks, c.at);
  bool few = parts > 1 && f->shared.count < 2 * x->workers, one = one_is_heavy(x, &l, wanted);
  if (few || one) {
    int64_t heads = f->shared.count * f->group.count;
    parts = max_i64(parts, ceil_div(wanted, f->shared.count));
    parts = min_i64(parts, p.key_blocks);
    c.at[FLASH_KEY_PARTS] = parts_worth(f, x, &l, f->shared.count, parts);
    c.at[FLASH_PARTS] = parts_worth(f, x, &l, heads, second_parts(f, &p, wanted));
  }
  return c;
}

Cut attention_rule(const Module *m, const Fn *k) {
  KernelLimits x = machine_of(m);
  Flash f = flash_of(k);
  Listed l = listed_of(m, k, &f);
  return f.grad ? backward_rule(&f, &x, l) : forward_rule(&f, &x, l);
}

/* What is listed is counted where the cut is known. */
static void count_lists(Module *m, const Fn *k, const Flash *f, const FlashPlan *p) {
  Arena *a = arena_new();
  bool too_many = attention_list(a, m, k, f, p).too_many;
  arena_free(a);
  listed_check(m, k, f, too_many, "ranges of keys");
}

void attention_apply(Module *m, Fn *k, const Cut *c) {
  must(attention_fits(m, k, c), "kernel %s: a cut that does not fit", k->name);
  Flash f = flash_of(k);
  FlashPlan p = flash_plan(&f, machine_of(m).lanes, c->at);
  attr_set_str(m, &k->attrs, ATTR_variant,
               intern(m->ctx->names, p.phases > 1 ? "two_phases" : "one_phase"));
  attr_set_ints(m, &k->attrs, ATTR_tile, FLASH_COUNT, c->at);
  attr_set_ints(m, &k->attrs, ATTR_chunks, p.phases, p.chunks);
  attr_set_int(m, &k->attrs, ATTR_scratch, p.scratch);
  count_lists(m, k, &f, &p);
}

static void tune_either(Module *m, Fn *k) {
  Cut c = attention_rule(m, k);
  attention_apply(m, k, &c);
}

/* ---- variants ---- */

bool attention_fits(const Module *m, const Fn *k, const Cut *c) {
  Flash f = flash_of(k);
  return flash_fits(m, &f, c->at);
}

const char *attention_shape(Module *m, const Fn *k) {
  Flash f = flash_of(k);
  Listed l = listed_of(m, k, &f);
  const char *masked = l.wide ? arena_printf(m->arena, "listed%.0f-", 100 * l.share) : "masked-";
  return arena_printf(m->arena, "%sh%lld-q%lld-k%lld-d%lld", f.mask == NO_VALUE ? "" : masked,
                      (long long)(f.shared.count * f.group.count), (long long)f.queries,
                      (long long)f.keys, (long long)f.width);
}

static void add(Module *m, CutList *out, const Cut *from, int which, int64_t value) {
  Cut c = *from;
  c.at[which] = value;
  vec_push(m->arena, *out, c);
}

static void vary_blocks(Module *m, const Flash *f, const Cut *from, bool wide, CutList *out) {
  int64_t rows = from->at[FLASH_ROWS], keys = from->at[FLASH_KEY_BLOCK];
  for (int64_t n = wide ? 16 : keys / 2; n <= (wide ? 512 : keys * 2); n *= 2) {
    int64_t block = min_i64(round_up(n, rows), round_up(f->keys, rows));
    if (block != keys) add(m, out, from, FLASH_KEY_BLOCK, block);
  }
}

/* The same with another register tile; blocks stay as large as its multiples allow. */
static Cut with_vectors(const KernelLimits *x, const Cut *from, int64_t vectors) {
  Cut c = *from;
  int64_t *t = c.at, lanes = vectors * x->lanes;
  t[FLASH_VECTORS] = vectors, t[FLASH_ROWS] = flash_rows(x->registers, vectors);
  t[FLASH_KEY_BLOCK] = round_up(t[FLASH_KEY_BLOCK], t[FLASH_ROWS]);
  t[FLASH_QUERY_BLOCK] = round_up(t[FLASH_QUERY_BLOCK], lanes);
  return c;
}

static void vary_queries(Module *m, const Cut *from, bool wide, CutList *out) {
  KernelLimits x = machine_of(m);
  int64_t block = from->at[FLASH_QUERY_BLOCK];
  for (int64_t v = 1; v <= FLASH_WIDE; v *= 2)
    if (v != from->at[FLASH_VECTORS]) {
      Cut c = with_vectors(&x, from, v);
      vec_push(m->arena, *out, c);
    }
  for (int64_t n = wide ? 16 : block / 2; n <= (wide ? 256 : block * 2); n *= 2)
    if (n != block) add(m, out, from, FLASH_QUERY_BLOCK, n);
}

static void vary_chunks(Module *m, const Flash *f, const Cut *from, bool wide, CutList *out) {
  for (int64_t n = wide ? 8 : 2; n >= 2; n /= 2) {
    add(m, out, from, FLASH_HEADS, from->at[FLASH_HEADS] * n);
    add(m, out, from, FLASH_HEADS, from->at[FLASH_HEADS] / n);
    add(m, out, from, FLASH_PARTS, from->at[FLASH_PARTS] * n);
    if (from->at[FLASH_PARTS] > 1) add(m, out, from, FLASH_PARTS, from->at[FLASH_PARTS] / n);
    if (f->grad && from->at[FLASH_KEY_PARTS])
      add(m, out, from, FLASH_KEY_PARTS, from->at[FLASH_KEY_PARTS] / n);
  }
}

void attention_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out) {
  Flash f = flash_of(k);
  if (stage == 0) vary_blocks(m, &f, from, wide, out);
  if (stage == 1) vary_queries(m, from, wide, out);
  if (stage == 2) vary_chunks(m, &f, from, wide, out);
}

/* ---- rules ---- */

#define VARIANTS(name)                                                                             \
  {                                                                                                \
#name, NULL, ATTENTION_COUNT, attention_rule, attention_fits, attention_apply, attention_vary, \
        attention_shape                                                                            \
  }
#define GPU_VARIANTS(name)                                                                         \
  {                                                                                                \
#name, NULL, GPU_ATTENTION_COUNT, gpu_attention_rule, gpu_attention_fits, gpu_attention_apply, \
        gpu_attention_vary, attention_shape                                                        \
  }
#define RULES(i)                                                                                   \
  {                                                                                                \
    .cpu = tune_either, .gpu = gpu_tune_attention, .cpu_variants = &variants[i],                   \
    .gpu_variants = &gpu_variants[i], .larger = gpu_attention_larger                               \
  }

static const Variants variants[] = {VARIANTS(attention), VARIANTS(attention_grad)},
                      gpu_variants[] = {GPU_VARIANTS(attention), GPU_VARIANTS(attention_grad)};

const FamilyRules attention_rules = RULES(0), attention_grad_rules = RULES(1);

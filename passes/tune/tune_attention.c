/* Tuning of families attention and attention_grad: register tile, blocks of scores, chunks.
   ir/kernel/attention_shape.h explains the numbers.

   A tile of scores has keys as rows and queries as lanes. A block of scores (keys x queries)
   should stay in the second-level cache with the rows that it is computed from. Chunks are heads;
   long sequences of few heads are cut along the queries as well, and the gradient then runs twice
   over the scores: once for dk and dv, once for dq, so that every chunk owns its results. */
#include "gpu.h"
#include "tune.h"
#include "ir/kernel/attention_list.h"
#include "ir/support/num.h"

/* About `keys` keys, chosen so that ranges of whole blocks of `wide` are not cut. */
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

static Listed listed_of(const Module *m, const Fn *k, const Flash *flash) {
  const BlockLists *l = lists_of(m, &k->ops.at[flash->op]);
  if (!l) return (Listed){0, 1, 1.0 / (double)flash->shared.count};
  return (Listed){lists_shape(l).wide, lists_share(l), attention_heaviest(m, k, flash)};
}

/* Register tiles: rows of keys and vectors of queries. With four vectors an element of a row
   serves four multiply-adds: the fewest loads, if there are enough queries to fill them, and
   blocks of keys need not end with a tile. */
static void choose_tile(const Flash *flash, const KernelLimits *limits, int64_t wide,
                        int64_t *tile) {
  bool many = limits->registers >= 32 && flash->queries >= 4 * FLASH_WIDE * limits->lanes && !wide;
  tile[FLASH_VECTORS] = many ? FLASH_WIDE : flash->queries > limits->lanes ? 2 : 1;
  tile[FLASH_ROWS] = flash_rows(limits->registers, tile[FLASH_VECTORS]);
  int64_t queries = tile[FLASH_VECTORS] * limits->lanes;
  bool far = flash->keys * flash->width * 8 >
             limits->l2 / 2; /* keys and values: several tiles share a block */
  int64_t keys =
      (far || many ? 72 : 128) * (flash->grad ? 1 : 2); /* 72: whole tiles, whole rounds */
  int64_t block = flash->grad ? (far ? 256 : 64) : far ? 256 : queries;
  if (wide) keys = whole_blocks(keys, wide);
  keys = round_up(keys, tile[FLASH_ROWS]);
  tile[FLASH_KEY_BLOCK] = min_i64(keys, round_up(flash->keys, tile[FLASH_ROWS]));
  tile[FLASH_QUERY_BLOCK] = min_i64(round_up(block, queries), round_up(flash->queries, queries));
}

/* Chunks for this many multiply-adds: about eight per worker, none below some twenty microseconds.
 */
static int64_t chunks_wanted(double work, const KernelLimits *limits) {
  double most = 8.0 * (double)limits->workers;
  return work / 5e5 > most ? (int64_t)most : max_i64((int64_t)(work / 5e5), 1);
}

/* Heads first; if they are fewer than half of the chunks wanted, each is cut into parts, which copy
   the head's keys and values once more. Returns the number of parts. */
static int64_t cut(int64_t wanted, int64_t heads, int64_t blocks, int64_t *tile) {
  tile[FLASH_HEADS] = min_i64(heads, wanted);
  return 2 * heads >= wanted ? 1 : min_i64(blocks, (wanted + heads - 1) / heads);
}

/* The number of parts that is worth its cost: each part copies the keys and values of its head,
   which few listed scores do not pay for. At most this number, but two for each worker. */
static int64_t parts_worth(const Flash *flash, const KernelLimits *limits, const Listed *listed,
                           int64_t heads, int64_t parts) {
  enum { QUERIES = 256 }; /* that make a copy of all keys cheap */
  int64_t most = (int64_t)(listed->share * (double)flash->queries / QUERIES);
  return listed->wide ? min_i64(parts, max_i64(most, ceil_div(2 * limits->workers, heads))) : parts;
}

static double multiply_adds(const Flash *flash) {
  return 2.0 * (double)(flash->shared.count * flash->group.count) * (double)flash->queries *
         (double)flash->keys * (double)flash->width;
}

static Cut forward_rule(const Flash *flash, const KernelLimits *limits, Listed listed) {
  Cut c = {{[FLASH_PARTS] = 1}};
  choose_tile(flash, limits, listed.wide, c.at);
  FlashPlan plan = flash_plan(flash, limits->lanes, c.at);
  int64_t heads = flash->shared.count * flash->group.count;
  int64_t parts = cut(chunks_wanted(listed.share * multiply_adds(flash), limits), heads,
                      plan.query_blocks, c.at);
  c.at[FLASH_PARTS] = parts_worth(flash, limits, &listed, heads, parts);
  return c;
}

/* Chunks over queries in the second phase of the gradient, if that many are wanted in all. */
static int64_t second_parts(const Flash *flash, const FlashPlan *plan, int64_t wanted) {
  int64_t heads = flash->shared.count * flash->group.count;
  return min_i64(plan->query_blocks, (wanted + heads - 1) / heads);
}

/* Does a head of keys and values, which one phase does not split, keep one worker longer than all
   workers would need for two phases, which cost two fifths more? */
static bool one_is_heavy(const KernelLimits *limits, const Listed *listed, int64_t wanted) {
  return listed->wide && wanted >= 2 * limits->workers &&
         listed->heaviest * (double)limits->workers > 1.4;
}

static Cut backward_rule(const Flash *flash, const KernelLimits *limits, Listed listed) {
  Cut c = {{[FLASH_PARTS] = 1}};
  choose_tile(flash, limits, listed.wide, c.at);
  FlashPlan plan = flash_plan(flash, limits->lanes, c.at);
  int64_t wanted = chunks_wanted(listed.share * 2.5 * multiply_adds(flash), limits);
  int64_t parts = cut(wanted, flash->shared.count, plan.key_blocks, c.at);
  bool few = parts > 1 && flash->shared.count < 2 * limits->workers,
       one = one_is_heavy(limits, &listed, wanted);
  if (few || one) {
    int64_t heads = flash->shared.count * flash->group.count;
    parts = max_i64(parts, ceil_div(wanted, flash->shared.count));
    parts = min_i64(parts, plan.key_blocks);
    c.at[FLASH_KEY_PARTS] = parts_worth(flash, limits, &listed, flash->shared.count, parts);
    c.at[FLASH_PARTS] =
        parts_worth(flash, limits, &listed, heads, second_parts(flash, &plan, wanted));
  }
  return c;
}

Cut attention_rule(const Module *m, const Fn *k) {
  KernelLimits limits = machine_of(m);
  Flash flash = flash_of(k);
  Listed listed = listed_of(m, k, &flash);
  return flash.grad ? backward_rule(&flash, &limits, listed)
                    : forward_rule(&flash, &limits, listed);
}

/* Counts the listed blocks, once the tiles are known. */
static void count_lists(Module *m, const Fn *k, const Flash *flash, const FlashPlan *plan) {
  Arena *a = arena_new();
  bool too_many = attention_list(a, m, k, flash, plan).too_many;
  arena_free(a);
  listed_check(m, k, flash, too_many, "ranges of keys");
}

void attention_apply(Module *m, Fn *k, const Cut *cut) {
  must(attention_fits(m, k, cut), "kernel %s: a cut that does not fit", k->name);
  Flash flash = flash_of(k);
  FlashPlan plan = flash_plan(&flash, machine_of(m).lanes, cut->at);
  attr_set_str(m, &k->attrs, ATTR_variant,
               intern(m->ctx->names, plan.phases > 1 ? "two_phases" : "one_phase"));
  attr_set_ints(m, &k->attrs, ATTR_tile, FLASH_COUNT, cut->at);
  attr_set_ints(m, &k->attrs, ATTR_chunks, plan.phases, plan.chunks);
  attr_set_int(m, &k->attrs, ATTR_scratch, plan.scratch);
  count_lists(m, k, &flash, &plan);
}

static void tune_either(Module *m, Fn *k) {
  Cut cut = attention_rule(m, k);
  attention_apply(m, k, &cut);
}

/* ---- variants ---- */

bool attention_fits(const Module *m, const Fn *k, const Cut *cut) {
  Flash flash = flash_of(k);
  return flash_fits(m, &flash, cut->at);
}

const char *attention_shape(Module *m, const Fn *k) {
  Flash flash = flash_of(k);
  Listed listed = listed_of(m, k, &flash);
  const char *masked =
      listed.wide ? arena_printf(m->arena, "listed%.0f-", 100 * listed.share) : "masked-";
  return arena_printf(m->arena, "%sh%lld-q%lld-k%lld-d%lld", flash.mask == NO_VALUE ? "" : masked,
                      (long long)(flash.shared.count * flash.group.count), (long long)flash.queries,
                      (long long)flash.keys, (long long)flash.width);
}

static void add(Module *m, CutList *out, const Cut *from, int which, int64_t value) {
  Cut cut = *from;
  cut.at[which] = value;
  vec_push(m->arena, *out, cut);
}

static void vary_blocks(Module *m, const Flash *flash, const Cut *from, bool wide, CutList *out) {
  int64_t rows = from->at[FLASH_ROWS], keys = from->at[FLASH_KEY_BLOCK];
  for (int64_t n = wide ? 16 : keys / 2; n <= (wide ? 512 : keys * 2); n *= 2) {
    int64_t block = min_i64(round_up(n, rows), round_up(flash->keys, rows));
    if (block != keys) add(m, out, from, FLASH_KEY_BLOCK, block);
  }
}

/* The same with another register tile; blocks stay as large as its multiples allow. */
static Cut with_vectors(const KernelLimits *limits, const Cut *from, int64_t vectors) {
  Cut cut = *from;
  int64_t *t = cut.at, lanes = vectors * limits->lanes;
  t[FLASH_VECTORS] = vectors, t[FLASH_ROWS] = flash_rows(limits->registers, vectors);
  t[FLASH_KEY_BLOCK] = round_up(t[FLASH_KEY_BLOCK], t[FLASH_ROWS]);
  t[FLASH_QUERY_BLOCK] = round_up(t[FLASH_QUERY_BLOCK], lanes);
  return cut;
}

static void vary_queries(Module *m, const Cut *from, bool wide, CutList *out) {
  KernelLimits limits = machine_of(m);
  int64_t block = from->at[FLASH_QUERY_BLOCK];
  for (int64_t v = 1; v <= FLASH_WIDE; v *= 2)
    if (v != from->at[FLASH_VECTORS]) {
      Cut cut = with_vectors(&limits, from, v);
      vec_push(m->arena, *out, cut);
    }
  for (int64_t n = wide ? 16 : block / 2; n <= (wide ? 256 : block * 2); n *= 2)
    if (n != block) add(m, out, from, FLASH_QUERY_BLOCK, n);
}

static void vary_chunks(Module *m, const Flash *flash, const Cut *from, bool wide, CutList *out) {
  for (int64_t n = wide ? 8 : 2; n >= 2; n /= 2) {
    add(m, out, from, FLASH_HEADS, from->at[FLASH_HEADS] * n);
    add(m, out, from, FLASH_HEADS, from->at[FLASH_HEADS] / n);
    add(m, out, from, FLASH_PARTS, from->at[FLASH_PARTS] * n);
    if (from->at[FLASH_PARTS] > 1) add(m, out, from, FLASH_PARTS, from->at[FLASH_PARTS] / n);
    if (flash->grad && from->at[FLASH_KEY_PARTS])
      add(m, out, from, FLASH_KEY_PARTS, from->at[FLASH_KEY_PARTS] / n);
  }
}

void attention_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out) {
  Flash flash = flash_of(k);
  if (stage == 0) vary_blocks(m, &flash, from, wide, out);
  if (stage == 1) vary_queries(m, from, wide, out);
  if (stage == 2) vary_chunks(m, &flash, from, wide, out);
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

/* Tuning of families attention and attention_grad: register tile, blocks of scores, chunks.
   ir/flash.h says what the numbers mean.

   A tile of scores has keys as rows and queries as lanes. A block of scores (keys x queries) should
   stay in the second-level cache with the rows that meet it. Chunks are heads; long sequences of
   few heads are cut along the queries too, and the gradient then runs twice over the scores: once
   for dk and dv, once for dq, so that every chunk owns what it writes. */
#include "tune.h"
#include "ir/flash.h"

typedef struct Machine {
  int64_t registers, workers;
  int lanes;
} Machine;

static Machine machine_of(const Module *m) {
  return (Machine){.registers = (int64_t)module_number(m, "target.vector_registers", 16),
                   .workers = (int64_t)module_number(m, "target.workers", 2),
                   .lanes = (int)module_number(m, "target.vector_bytes", 32) / 4};
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static void choose_tile(const Flash *f, const Machine *x, int64_t *tile) {
  tile[FLASH_VECTORS] = f->queries > x->lanes ? 2 : 1;
  tile[FLASH_ROWS] = x->registers >= 32 ? 8 : 4;
  int64_t queries = tile[FLASH_VECTORS] * x->lanes;
  bool small = f->grad || (f->mask != NO_VALUE && f->keys <= 1024); /* skips more of a triangle */
  tile[FLASH_KEY_BLOCK] = at_most(small ? 64 : 128, round_up(f->keys, tile[FLASH_ROWS]));
  tile[FLASH_QUERY_BLOCK] =
      f->grad ? at_most(round_up(64, queries), round_up(f->queries, queries)) : queries;
}

/* Chunks for this many multiply-adds: about eight per worker, none below some twenty microseconds.
 */
static int64_t chunks_wanted(double work, const Machine *x) {
  double most = 8.0 * (double)x->workers;
  return work / 5e5 > most ? (int64_t)most : at_least((int64_t)(work / 5e5), 1);
}

/* Heads first; if there are fewer heads than chunks wanted, each is cut into parts. Returns the
 * number of parts. */
static int64_t cut(int64_t wanted, int64_t heads, int64_t blocks, int64_t *tile) {
  tile[FLASH_HEADS] = at_most(heads, wanted);
  return heads >= wanted ? 1 : at_most(blocks, (wanted + heads - 1) / heads);
}

static void finish(Module *m, Fn *k, const Flash *f, const Machine *x, const int64_t *tile) {
  FlashPlan p = flash_plan(f, x->lanes, tile);
  attr_set_str(m, &k->attrs, ATTR_variant,
               intern(m->ctx->names, p.phases > 1 ? "two_phases" : "one_phase"));
  attr_set_ints(m, &k->attrs, ATTR_tile, FLASH_COUNT, tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, p.phases, p.chunks);
  attr_set_int(m, &k->attrs, ATTR_scratch, p.scratch);
}

static double multiply_adds(const Flash *f) {
  return 2.0 * (double)(f->shared.count * f->group.count) * (double)f->queries * (double)f->keys *
         (double)f->width;
}

void tune_attention(Module *m, Fn *k) {
  Machine x = machine_of(m);
  Flash f = flash_of(k);
  int64_t tile[FLASH_COUNT] = {[FLASH_PARTS] = 1};
  choose_tile(&f, &x, tile);
  FlashPlan p = flash_plan(&f, x.lanes, tile);
  tile[FLASH_PARTS] = cut(chunks_wanted(multiply_adds(&f), &x), f.shared.count * f.group.count,
                          p.query_blocks, tile);
  finish(m, k, &f, &x, tile);
}

void tune_attention_grad(Module *m, Fn *k) {
  Machine x = machine_of(m);
  Flash f = flash_of(k);
  int64_t tile[FLASH_COUNT] = {[FLASH_PARTS] = 1};
  choose_tile(&f, &x, tile);
  FlashPlan p = flash_plan(&f, x.lanes, tile);
  int64_t wanted = chunks_wanted(2.5 * multiply_adds(&f), &x);
  int64_t parts = cut(wanted, f.shared.count, p.key_blocks, tile);
  if (parts > 1 && f.shared.count < 2 * x.workers) { /* two phases cost two fifths more */
    tile[FLASH_KEY_PARTS] = parts;
    tile[FLASH_PARTS] = at_most(p.query_blocks, (wanted + f.shared.count * f.group.count - 1) /
                                                    (f.shared.count * f.group.count));
  }
  finish(m, k, &f, &x, tile);
}

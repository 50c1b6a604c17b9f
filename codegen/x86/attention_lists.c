/* Lists of the keys that a mask admits, made while the kernel is: constants beside its code.

   Where positions alone say so, the mask is asked once per tile of queries and STEP keys
   (ir/blocks.h); equal neighbours become runs, cut at key blocks. So a kernel walks what is listed
   of a block of keys and asks nothing of what is absent, and runs that are admitted wholly take the
   path without a mask. A run starts anywhere, but a register tile reads whole rows: those of the
   last tile of keys are one mixed run from the tile's start, so nothing is read behind the keys.

   Masks whose rows are first admitted wholly, then in part, then not at all (causal, or only data
   decides) need no list: their blocks are found by intervals as before (attention_mask.c). Must
   not: be as large as all scores; MOST bounds it, above it there are no lists. */
#include "attention.h"
#include "ir/blocks.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"

enum { STEP = 16, HEADS = 64, MOST = 1 << 22 };

typedef VEC(uint32_t) Words;

typedef struct Listing {
  Attention *a;
  Words starts, runs;  /* runs: first key, end * 4 + kind */
  int64_t rows, block; /* keys of a register tile, of a key block */
  bool gaps;           /* some row is not admitted wholly, then in part, then not at all */
} Listing;

static void put_run(Listing *l, int64_t from, int64_t to, AttentionRunKind kind) {
  if (from >= to) return;
  vec_push(l->a->e->arena, l->runs, (uint32_t)from);
  vec_push(l->a->e->arena, l->runs, (uint32_t)to * 4 + kind);
}

static void put_state(Listing *l, int64_t from, int64_t to, BlockState s) {
  if (s == BLOCK_PARTIAL) put_run(l, from, to, RUN_MIXED);
  if (s != BLOCK_FULL || from >= to) return;
  int64_t whole = from + (to - from) / l->rows * l->rows;
  put_run(l, from, whole, RUN_WHOLE), put_run(l, whole, to, RUN_REST);
}

/* Runs of keys [k0, end), of which the states of STEP keys each are given. */
static void list_keys(Listing *l, const uint8_t *state, int64_t k0, int64_t end) {
  for (int64_t k = k0; k < end;) {
    int64_t to = k;
    while (to < end && state[to / STEP] == state[k / STEP]) to = (to / STEP + 1) * STEP;
    to = min_i64(to, end);
    put_state(l, k, to, (BlockState)state[k / STEP]);
    k = to;
  }
}

static void list_row(Listing *l, const uint8_t *state, int64_t columns) {
  int64_t keys = l->a->f.keys, last = l->a->p.keys - l->rows;
  for (int64_t c = 1; c < columns; c++) l->gaps |= state[c] > state[c - 1];
  for (int64_t k0 = 0; k0 < keys; k0 += l->block) {
    int64_t end = min_i64(k0 + l->block, keys);
    vec_push(l->a->e->arena, l->starts, l->runs.n / 2);
    list_keys(l, state, k0, min_i64(end, last));
    bool any = false;
    for (int64_t k = last; end == keys && k < keys; k++) any |= state[k / STEP] != BLOCK_ABSENT;
    if (any) put_run(l, last, keys, RUN_MIXED);
  }
}

static bool find_heads(Attention *a, AttentionLists *x) {
  x->heads = mask_heads(a->e->k, a->f.mask, a->f.query, a->f.key, x->head);
  const FlashDims *dims[] = {&a->f.shared, &a->f.group};
  int64_t count = 1;
  for (int i = 0; i < x->heads; i++) {
    bool found = false;
    for (int g = 0; g < 2; g++)
      for (int k = 0; k < dims[g]->n; k++) found |= dims[g]->axis[k].dim == x->head[i].dim;
    if (!found || (count *= x->head[i].size) > HEADS) return false;
  }
  return x->count = count, true;
}

static void list_head(Listing *l, const AttentionLists *x, int64_t h) {
  Attention *a = l->a;
  Arena *work = arena_new();
  BlockHead at[MASK_DIMS];
  for (int i = x->heads; i-- > 0; h /= x->head[i].size)
    at[i] = (BlockHead){x->head[i].dim, h % x->head[i].size};
  BlockMap m = mask_blocks(work, a->e->k, a->f.mask, (Axis){a->f.query, a->f.queries},
                           (Axis){a->f.key, a->f.keys}, a->p.tile_queries, STEP, x->heads, at);
  for (int64_t r = 0; r < m.rows; r++) list_row(l, m.state + r * m.columns, m.columns);
  arena_free(work);
}

static LLVMValueRef constant(Attention *a, const Words *w, const char *what) {
  Emit *e = a->e;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef *x = ARENA_ARRAY(e->arena, LLVMValueRef, w->n + 1);
  for (uint32_t i = 0; i < w->n; i++) x[i] = LLVMConstInt(i32, w->at[i], 0);
  LLVMValueRef g = LLVMAddGlobal(e->module, LLVMArrayType2(i32, w->n),
                                 arena_printf(e->arena, "%s_%s", e->symbol, what));
  LLVMSetInitializer(g, LLVMConstArray2(i32, x, w->n)), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

void attention_make_lists(Attention *a) {
  AttentionLists *x = &a->lists;
  Listing l = {.a = a, .rows = a->p.tile[FLASH_ROWS], .block = a->p.tile[FLASH_KEY_BLOCK]};
  *x = (AttentionLists){.tiles = ceil_div(a->f.queries, a->p.tile_queries),
                        .blocks = ceil_div(a->f.keys, l.block)};
  if (a->f.mask == NO_VALUE || !find_heads(a, x)) return;
  if (x->count * x->tiles * x->blocks > MOST) return;
  if (x->tiles * ceil_div(a->f.keys, STEP) > 8 * (int64_t)MOST) return;
  for (int64_t h = 0; h < x->count && l.runs.n < MOST; h++) list_head(&l, x, h);
  if (!l.gaps || l.runs.n >= MOST) return;
  vec_push(a->e->arena, l.starts, l.runs.n / 2);
  x->starts = constant(a, &l.starts, "starts"), x->runs = constant(a, &l.runs, "runs");
}

static LLVMValueRef word(Emit *e, LLVMValueRef words, LLVMValueRef at) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef p = LLVMBuildGEP2(e->builder, i32, words, &at, 1, "");
  return LLVMBuildZExt(e->builder, LLVMBuildLoad2(e->builder, i32, p, ""), emit_type(e, ELEM_i64),
                       "");
}

static LLVMValueRef head_number(Attention *a) {
  Emit *e = a->e;
  Point p = attention_point(a);
  LLVMValueRef h = emit_i64(e, 0);
  for (int i = 0; i < a->lists.heads; i++)
    for (int k = 0; k < p.n; k++)
      if (p.index[k].dim == a->lists.head[i].dim)
        h = tile_add(e, tile_times(e, h, a->lists.head[i].size), p.index[k].at);
  return h;
}

AttentionRun attention_runs(Attention *a, LLVMValueRef q0, LLVMValueRef k0) {
  Emit *e = a->e;
  const AttentionLists *x = &a->lists;
  LLVMValueRef tile = LLVMBuildUDiv(e->builder, q0, emit_i64(e, a->p.tile_queries), ""),
               block = LLVMBuildUDiv(e->builder, k0, emit_i64(e, a->p.tile[FLASH_KEY_BLOCK]), "");
  LLVMValueRef at = tile_add(e, tile_times(e, head_number(a), x->tiles), tile);
  at = tile_add(e, tile_times(e, at, x->blocks), block);
  LLVMValueRef from = word(e, x->starts, at),
               to = word(e, x->starts, tile_add(e, at, emit_i64(e, 1)));
  AttentionRun r = {.loop = emit_loop(e, from, to, 1, 0, NULL)};
  LLVMValueRef first = tile_times(e, r.loop.i, 2);
  LLVMValueRef end = word(e, x->runs, tile_add(e, first, emit_i64(e, 1)));
  r.keys = (Range){word(e, x->runs, first), LLVMBuildLShr(e->builder, end, emit_i64(e, 2), "")};
  r.kind = LLVMBuildAnd(e->builder, end, emit_i64(e, 3), "");
  return r;
}

LLVMValueRef attention_run_is(Attention *a, const AttentionRun *r, AttentionRunKind kind) {
  return LLVMBuildICmp(a->e->builder, LLVMIntEQ, r->kind, emit_i64(a->e, kind), "");
}

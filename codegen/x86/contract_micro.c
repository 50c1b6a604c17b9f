/* The micro-kernel: a register tile of rows x vectors accumulators over one block of k.

   Per step of k: load the vectors of b, then for each row load one element of a, spread it, and do
   one fused multiply-add per vector. That order matters: LLVM keeps it, so only vectors + 1
   registers are live beside the accumulators and nothing is spilled while rows * vectors + vectors
   + 1 fits the register file. Strides are constants, so a is read where it lies through one
   pointer.

   The first rounds of the unrolled loop pack a slice of b's next panel (contract_interleave.c), the
   next ones prefetch the lines of the result that the epilogue will write, one a round; all walk
   through the next tile's rows of a.

   k's inner dim is the loop; outer k dims, if there are any, are a loop around it that carries the
   accumulators. */
#include "contract.h"

enum { UNROLL = MICRO_ROUND, LINE = 64 };

typedef struct MicroKernel {
  Contract *c;
  int rows, vectors, n;            /* n: accumulators */
  LLVMValueRef value[MAX_CARRIED]; /* accumulators, then pointers into a and b */
} MicroKernel;

LLVMTypeRef contract_micro_type(Contract *c) {
  LLVMTypeRef t[MICRO_ARGS];
  for (int i = 0; i < MICRO_ARGS; i++) t[i] = c->i64;
  t[MICRO_A] = t[MICRO_B] = t[MICRO_C] = t[MICRO_OUT] = t[MICRO_NEXT] = c->ptr;
  t[MICRO_PREFETCH] = t[MICRO_SLICE] = t[MICRO_PLACE] = c->ptr;
  for (int i = 0; i < BESIDE; i++) t[MICRO_BESIDE + i] = c->ptr;
  return LLVMFunctionType(c->nothing, t, MICRO_ARGS, 0);
}

static LLVMValueRef param(MicroKernel *u, int i) {
  return LLVMGetParam(u->c->e->function, (unsigned)i);
}

static int64_t row_stride(const Contract *c) {
  if (c->plan.rows_a) return c->plan.pitch;
  return c->plan.tile[TILE_PACK_A] ? 1 : contract_inner_stride(&c->product.m, SIDE_A);
}

static int64_t step_a(const Contract *c) {
  if (c->plan.rows_a) return 1;
  if (c->plan.tile[TILE_PACK_A]) return c->plan.tile[TILE_ROWS];
  return contract_inner_stride(&c->product.k, SIDE_A) * c->plan.tile[TILE_DEPTH];
}

static int64_t step_b(const MicroKernel *u) {
  const Contract *c = u->c;
  return c->plan.tile[TILE_PACK_B] ? u->vectors * c->plan.lanes
                                   : contract_inner_stride(&c->product.k, SIDE_B);
}

static LLVMValueRef at(MicroKernel *u, LLVMValueRef base, int64_t offset) {
  Emit *e = u->c->e;
  return tile_elements(e, u->c->f32, base, emit_i64(e, offset));
}

static LLVMValueRef at_a(MicroKernel *u, LLVMValueRef base, int64_t offset) {
  return tile_elements(u->c->e, u->c->a_memory, base, emit_i64(u->c->e, offset));
}

static LLVMValueRef load(MicroKernel *u, LLVMTypeRef type, LLVMValueRef address) {
  LLVMValueRef v = LLVMBuildLoad2(u->c->e->builder, type, address, "");
  LLVMSetAlignment(v, 4);
  return v;
}

/* a's factor at this address; half: its second element does not exist. */
static LLVMValueRef factor(MicroKernel *u, LLVMValueRef address, bool half) {
  Contract *c = u->c;
  if (half) return contract_operand(c, SIDE_A, address, 1, NULL, true);
  LLVMValueRef x = load(u, c->f32, address);
  if (!c->plan.tile[TILE_PACK_A]) LLVMSetAlignment(x, (unsigned)elem_bytes(c->product.elem_a));
  return x;
}

/* One step of k at element i of the unrolled loop: reads phi, updates value. */
static void step(MicroKernel *u, LLVMValueRef pa, LLVMValueRef pb, int i, bool half) {
  Contract *c = u->c;
  LLVMValueRef b[8];
  for (int v = 0; v < u->vectors; v++)
    b[v] = load(u, c->vector, at(u, pb, i * step_b(u) + v * c->plan.lanes));
  for (int r = 0; r < u->rows; r++) {
    LLVMValueRef x = factor(u, at_a(u, pa, i * step_a(c) + r * row_stride(c)), half);
    x = emit_splat(c->e, x, c->plan.lanes);
    for (int v = 0; v < u->vectors; v++) {
      LLVMValueRef *acc = &u->value[r * u->vectors + v];
      *acc = contract_multiply(c, x, b[v], *acc);
    }
  }
}

/* Sums wait in scratch between blocks of k. */
static bool partial(const Contract *c) {
  return c->plan.tile[TILE_K_OUTER] * c->plan.tile[TILE_K_INNER] > 1;
}

typedef enum Beside {
  NOTHING,
  INTERLEAVE,
  FETCH_OUT
} Beside; /* what a loop does beside products */

static void prefetch(MicroKernel *u, LLVMValueRef address, int64_t offset, bool write) {
  Emit *e = u->c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  emit_prefetch(e, tile_elements(e, i8, address, emit_i64(e, offset)), write);
}

static LLVMValueRef round_of(MicroKernel *u, LLVMValueRef k) {
  return LLVMBuildUDiv(u->c->e->builder, k, emit_i64(u->c->e, MICRO_ROUND), "");
}

/* Lines of a row of the result, and of the sums of earlier blocks. */
static int64_t out_lines(const MicroKernel *u) {
  const Contract *c = u->c;
  int64_t bytes = u->vectors * c->plan.lanes * (partial(c) ? 4 : elem_bytes(c->out));
  return (bytes + LINE - 1) / LINE;
}

/* One line of each of the tile's results per round: more of them would fill the queue to memory,
   and what the caches hold would wait behind. */
static void fetch_out(MicroKernel *u, Loop *l, LLVMValueRef from) {
  Contract *c = u->c;
  Emit *e = c->e;
  int64_t lines = out_lines(u), sums = c->plan.tile[TILE_VECTORS] * c->plan.lanes * 4;
  LLVMValueRef round = round_of(u, LLVMBuildNSWSub(e->builder, l->i, from, ""));
  LLVMValueRef row = LLVMBuildUDiv(e->builder, round, emit_i64(e, lines), "");
  LLVMValueRef line = LLVMBuildURem(e->builder, round, emit_i64(e, lines), "");
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  line = tile_times(e, line, LINE);
  LLVMValueRef out = tile_add(e, tile_times(e, row, c->out_row), line);
  LLVMValueRef sum = tile_add(e, tile_times(e, row, sums), line);
  for (int i = 0; c->out_row && !c->nontemporal && i <= c->nbeside; i++) {
    LLVMValueRef base = param(u, i ? MICRO_BESIDE + i - 1 : MICRO_OUT);
    prefetch(u, tile_elements(e, i8, base, out), 0, true);
  }
  if (partial(c)) prefetch(u, tile_elements(e, i8, param(u, MICRO_C), sum), 0, true);
}

static void interleave(MicroKernel *u, LLVMValueRef i) {
  contract_interleave(u->c, u->vectors, param(u, MICRO_SLICE), param(u, MICRO_PLACE), i);
}

/* Two rows of the next tile per round, turn by turn: each row gets a line in `turns` rounds. */
static void fetch_a(MicroKernel *u, LLVMValueRef k) {
  Contract *c = u->c;
  Emit *e = c->e;
  int64_t bytes = c->plan.tile[TILE_PACK_A] ? 4 : elem_bytes(c->product.elem_a);
  int64_t row = row_stride(c) * bytes, turns = u->rows <= 8 ? 4 : 8;
  LLVMValueRef round = round_of(u, k);
  LLVMValueRef turn = LLVMBuildAnd(e->builder, round, emit_i64(e, turns - 1), "");
  LLVMValueRef floats = LLVMBuildAnd(e->builder, k, emit_i64(e, -turns * UNROLL), "");
  LLVMValueRef at = tile_add(e, tile_times(e, turn, 2 * row), tile_times(e, floats, 4));
  LLVMValueRef address =
      tile_elements(e, LLVMInt8TypeInContext(e->context), param(u, MICRO_NEXT), at);
  prefetch(u, address, 0, false);
  prefetch(u, address, row, false);
}

/* `unroll` steps a round, while that many are left between from and to */
static void run_loop(MicroKernel *u, LLVMValueRef from, LLVMValueRef to, int unroll, Beside what,
                     bool half) {
  Contract *c = u->c;
  Emit *e = c->e;
  int n = u->n, carried = n + 2;
  Loop l = emit_loop(e, from, to, unroll, carried, u->value);
  for (int i = 0; i < n; i++) u->value[i] = l.phi[i];
  if (what == INTERLEAVE) interleave(u, round_of(u, l.i));
  if (what == FETCH_OUT) fetch_out(u, &l, from);
  if (unroll == UNROLL && c->prefetch) contract_prefetch(c, round_of(u, l.i));
  if (unroll == UNROLL && c->prefetch_a) fetch_a(u, l.i);
  for (int i = 0; i < unroll; i++) step(u, l.phi[n], l.phi[n + 1], i, half);
  for (int i = 0; i < n; i++) l.next[i] = u->value[i];
  l.next[n] = at_a(u, l.phi[n], unroll * step_a(c));
  l.next[n + 1] = at(u, l.phi[n + 1], unroll * step_b(u));
  emit_loop_end(e, &l);
  for (int i = 0; i < carried; i++) u->value[i] = l.phi[i];
}

/* All of k's inner dim in this block, from the pointers pa and pb. */
static void run_inner(MicroKernel *u, LLVMValueRef pa, LLVMValueRef pb) {
  Contract *c = u->c;
  Emit *e = c->e;
  u->value[u->n] = pa, u->value[u->n + 1] = pb;
  LLVMValueRef length = param(u, MICRO_LENGTH), from = emit_i64(e, 0);
  LLVMValueRef full = length; /* in place, half a step is not read by words */
  bool halves = !c->plan.tile[TILE_PACK_A] && c->product.k.inner % c->plan.tile[TILE_DEPTH];
  if (halves) full = LLVMBuildNSWSub(e->builder, length, param(u, MICRO_HALF), "");
  LLVMValueRef most = LLVMBuildAnd(e->builder, full, emit_i64(e, -UNROLL), "");
  if (c->interleaved) { /* as many as there are rounds */
    LLVMValueRef head = tile_times(e, param(u, MICRO_PACKS), UNROLL);
    run_loop(u, from, head, UNROLL, INTERLEAVE, false);
    from = head;
  }
  if (((c->out_row && !c->nontemporal) || partial(c)) && c->product.k.outer == 1) {
    LLVMValueRef head = tile_add(e, from, emit_i64(e, u->rows * out_lines(u) * UNROLL));
    head = emit_min_i64(e, most, head);
    run_loop(u, from, head, UNROLL, FETCH_OUT, false);
    from = head;
  }
  run_loop(u, from, most, UNROLL, NOTHING, false);
  run_loop(u, most, full, 1, NOTHING, false);
  if (halves) run_loop(u, full, length, 1, NOTHING, true);
}

/* Where outer index o of this block begins, in elements from the block's start. */
static LLVMValueRef outer_offset(MicroKernel *u, LLVMValueRef o, ProductSide s) {
  Contract *c = u->c;
  Emit *e = c->e;
  bool packed = c->plan.tile[s == SIDE_A ? TILE_PACK_A : TILE_PACK_B];
  if (!packed) return contract_offset(e, &c->product.k, c->product.k.count - 1, o, s);
  LLVMValueRef done = LLVMBuildNSWSub(e->builder, o, param(u, MICRO_O0), "");
  done = LLVMBuildNSWMul(e->builder, done, param(u, MICRO_LENGTH), "");
  return tile_times(e, done, s == SIDE_A ? step_a(c) : step_b(u));
}

static void run_all(MicroKernel *u) {
  Contract *c = u->c;
  Emit *e = c->e;
  if (c->product.k.outer == 1) {
    run_inner(u, param(u, MICRO_A), param(u, MICRO_B));
    return;
  }
  Loop l = emit_loop(e, param(u, MICRO_O0), param(u, MICRO_O1), 1, u->n, u->value);
  for (int i = 0; i < u->n; i++) u->value[i] = l.phi[i];
  LLVMValueRef pa = tile_elements(e, c->a_memory, param(u, MICRO_A), outer_offset(u, l.i, SIDE_A));
  LLVMValueRef pb = tile_elements(e, c->f32, param(u, MICRO_B), outer_offset(u, l.i, SIDE_B));
  run_inner(u, pa, pb);
  for (int i = 0; i < u->n; i++) l.next[i] = u->value[i];
  emit_loop_end(e, &l);
  for (int i = 0; i < u->n; i++) u->value[i] = l.phi[i];
}

static LLVMValueRef tile_address(MicroKernel *u, int i) {
  const Contract *c = u->c;
  int64_t row = c->plan.tile[TILE_VECTORS] * c->plan.lanes;
  return at(u, param(u, MICRO_C), i / u->vectors * row + i % u->vectors * c->plan.lanes);
}

/* Accumulators start at zero; what an earlier block of k left is added at the end, when it has been
   fetched. */
static void start(MicroKernel *u) {
  for (int i = 0; i < u->n; i++) u->value[i] = LLVMConstNull(u->c->vector);
}

static void add_earlier(MicroKernel *u) {
  Emit *e = u->c->e;
  if (!partial(u->c)) return;
  LLVMValueRef sum[MAX_CARRIED];
  LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->builder);
  LLVMValueRef more =
      LLVMBuildICmp(e->builder, LLVMIntNE, param(u, MICRO_MORE), emit_i64(e, 0), "");
  Branch b = emit_if(e, more);
  for (int i = 0; i < u->n; i++)
    sum[i] = LLVMBuildFAdd(e->builder, load(u, u->c->vector, tile_address(u, i)), u->value[i], "");
  LLVMBasicBlockRef then = LLVMGetInsertBlock(e->builder);
  emit_end_if(e, b);
  for (int i = 0; i < u->n; i++) {
    LLVMValueRef first = u->value[i];
    u->value[i] = LLVMBuildPhi(e->builder, u->c->vector, "sum");
    LLVMAddIncoming(u->value[i], &first, &entry, 1);
    LLVMAddIncoming(u->value[i], &sum[i], &then, 1);
  }
}

static void store_sums(MicroKernel *u) {
  for (int i = 0; i < u->n; i++) {
    LLVMValueRef s = LLVMBuildStore(u->c->e->builder, u->value[i], tile_address(u, i));
    LLVMSetAlignment(s, 4);
  }
}

static void store_out(void *state) {
  MicroKernel *u = state;
  Contract *c = u->c;
  Emit *e = c->e;
  int bytes = elem_bytes(c->out);
  for (int i = 0; i < u->n; i++) {
    int64_t offset = i / u->vectors * (c->out_row / bytes) + i % u->vectors * c->plan.lanes;
    LLVMValueRef to =
        tile_elements(e, contract_memory(e, c->out), param(u, MICRO_OUT), emit_i64(e, offset));
    LLVMValueRef x = expr_to_memory(e, c->out, u->value[i]);
    if (e->nontemporal) emit_nontemporal_store(e, to, x);
    else LLVMSetAlignment(LLVMBuildStore(e->builder, x, to), (unsigned)bytes);
  }
}

static void store(MicroKernel *u) {
  Emit *e = u->c->e;
  if (!u->c->direct) {
    store_sums(u);
    return;
  }
  LLVMValueRef out =
      LLVMBuildICmp(e->builder, LLVMIntNE, param(u, MICRO_DIRECT), emit_i64(e, 0), "");
  Branch b = emit_if(e, out);
  nontemporal_either(e, u->c->nontemporal, contract_aligned(u->c, param(u, MICRO_OUT)), store_out,
                     u);
  emit_end_if(e, b);
  b = emit_if(e, LLVMBuildNot(e->builder, out, ""));
  store_sums(u);
  emit_end_if(e, b);
}

LLVMValueRef contract_micro(Contract *c, int rows, int vectors) {
  must(rows >= c->plan.height && rows <= c->plan.height + 1, "kernel %s: a micro-kernel of %d rows",
       c->k->name, rows);
  must(vectors >= c->plan.width && vectors <= c->plan.width + 1,
       "kernel %s: a micro-kernel of %d vectors", c->k->name, vectors);
  LLVMValueRef *made = &c->micro[rows > c->plan.height][vectors > c->plan.width];
  if (*made) return *made;
  MicroKernel u = {.c = c, .rows = rows, .vectors = vectors, .n = rows * vectors};
  if (u.n + 4 > MAX_CARRIED) bug("a tile of %d accumulators", u.n);
  Aside s = tile_aside(c->e, arena_printf(c->e->arena, "tile%dx%d", rows, vectors),
                       contract_micro_type(c));
  start(&u);
  run_all(&u);
  add_earlier(&u);
  store(&u);
  tile_aside_end(c->e, &s);
  return *made = s.function;
}

/* The micro-kernel: a register tile of rows x vectors accumulators over one block of k.

   For each step of k: load the vectors of b, then for each row load one element of a, broadcast it,
   and do one fused multiply-add per vector. That order matters: LLVM keeps it, so only vectors + 1
   registers are live in addition to the accumulators and nothing is spilled while rows * vectors +
   vectors + 1 fits the register file. Strides are constants, so a is read in place through one
   pointer.

   The first rounds of the unrolled loop pack a slice of b's next panel (contract_interleave.c), the
   next ones prefetch the lines of the result that the epilogue will write, one a round; all walk
   through the next tile's rows of a.

   --quick: a loop over a few rows at a time, each with its own loop over k: the same sums from less
   code.

   k's inner dim is the loop; outer k dims, if there are any, are a loop around it that carries the
   accumulators. */
#include "contract.h"

enum { UNROLL = MICRO_ROUND, LINE = 64 };

/* Values that the loop over k carries, after the accumulators: pointers into a and b; addresses to
   prefetch, of b (and the round within its row or lane) and of the next tile's a. */
typedef enum Carried {
  AT_A,
  AT_B,
  CARRIED, /* by every loop; the others by unrolled ones */
  FETCH_B = CARRIED,
  FETCH_ROUND,
  FETCH_A,
  CARRIED_MOST
} Carried;

typedef struct MicroKernel {
  Contract *c;
  int rows, vectors, n;            /* n: accumulators */
  LLVMValueRef row;                /* of the tile, the first of these; NULL: 0 */
  LLVMValueRef value[MAX_CARRIED]; /* accumulators, then enum Carried */
} MicroKernel;

LLVMTypeRef contract_micro_type(Contract *contract) {
  LLVMTypeRef t[MICRO_ARGS];
  for (int i = 0; i < MICRO_ARGS; i++) t[i] = contract->i64;
  t[MICRO_A] = t[MICRO_B] = t[MICRO_C] = t[MICRO_OUT] = t[MICRO_NEXT] = contract->ptr;
  t[MICRO_PREFETCH] = t[MICRO_SLICE] = t[MICRO_PLACE] = contract->ptr;
  for (int i = 0; i < BESIDE; i++) t[MICRO_BESIDE + i] = contract->ptr;
  return LLVMFunctionType(contract->nothing, t, MICRO_ARGS, 0);
}

static LLVMValueRef param(MicroKernel *micro, int i) {
  return LLVMGetParam(micro->c->e->function, (unsigned)i);
}

static int64_t row_stride(const Contract *contract) {
  if (contract->plan.rows_a) return contract->plan.pitch;
  return contract->plan.tile[TILE_PACK_A] ? 1 : contract_inner_stride(&contract->product.m, SIDE_A);
}

static int64_t step_a(const Contract *contract) {
  if (contract->plan.rows_a) return 1;
  if (contract->plan.tile[TILE_PACK_A]) return contract->plan.tile[TILE_ROWS];
  return contract_inner_stride(&contract->product.k, SIDE_A) * contract->plan.tile[TILE_DEPTH];
}

static int64_t step_b(const MicroKernel *micro) {
  const Contract *contract = micro->c;
  return contract->plan.tile[TILE_PACK_B] ? micro->vectors * contract->plan.lanes
                                          : contract_inner_stride(&contract->product.k, SIDE_B);
}

static LLVMValueRef at(MicroKernel *micro, LLVMValueRef base, int64_t offset) {
  Emit *emit = micro->c->e;
  return tile_elements(emit, micro->c->f32, base, emit_i64(emit, offset));
}

static LLVMValueRef at_a(MicroKernel *micro, LLVMValueRef base, int64_t offset) {
  return tile_elements(micro->c->e, micro->c->a_memory, base, emit_i64(micro->c->e, offset));
}

/* Where the rows of this code begin, if the tile begins at `first`. */
static LLVMValueRef of_row(MicroKernel *micro, LLVMTypeRef type, LLVMValueRef first,
                           int64_t stride) {
  if (!micro->row) return first;
  Emit *emit = micro->c->e;
  return tile_elements(emit, type, first, tile_times(emit, micro->row, stride));
}

static LLVMValueRef load(MicroKernel *micro, LLVMTypeRef type, LLVMValueRef address) {
  LLVMValueRef v = LLVMBuildLoad2(micro->c->e->builder, type, address, "");
  LLVMSetAlignment(v, 4);
  return v;
}

/* a's factor at this address; half: its second element does not exist. */
static LLVMValueRef factor(MicroKernel *micro, LLVMValueRef address, bool half) {
  Contract *contract = micro->c;
  if (half) return contract_operand(contract, SIDE_A, address, 1, NULL, true);
  LLVMValueRef x = load(micro, contract->f32, address);
  if (!contract->plan.tile[TILE_PACK_A])
    LLVMSetAlignment(x, (unsigned)elem_bytes(contract->product.elem_a));
  return x;
}

/* One step of k at element i of the unrolled loop: reads phi, updates value. */
static void step(MicroKernel *micro, LLVMValueRef pa, LLVMValueRef pb, int i, bool half) {
  Contract *contract = micro->c;
  LLVMValueRef b[8];
  for (int v = 0; v < micro->vectors; v++)
    b[v] =
        load(micro, contract->vector, at(micro, pb, i * step_b(micro) + v * contract->plan.lanes));
  for (int r = 0; r < micro->rows; r++) {
    LLVMValueRef x =
        factor(micro, at_a(micro, pa, i * step_a(contract) + r * row_stride(contract)), half);
    x = emit_splat(contract->e, x, contract->plan.lanes);
    for (int v = 0; v < micro->vectors; v++) {
      LLVMValueRef *acc = &micro->value[r * micro->vectors + v];
      *acc = contract_multiply(contract, x, b[v], *acc);
    }
  }
}

/* Sums wait in scratch between blocks of k. */
static bool partial(const Contract *contract) {
  return contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER] > 1;
}

typedef enum Beside {
  NOTHING,
  INTERLEAVE,
  FETCH_OUT
} Beside; /* what a loop does in addition to products */

static void prefetch(MicroKernel *micro, LLVMValueRef address, int64_t offset, bool write) {
  Emit *emit = micro->c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  emit_prefetch(emit, tile_elements(emit, i8, address, emit_i64(emit, offset)), write);
}

static LLVMValueRef round_of(MicroKernel *micro, LLVMValueRef k) {
  return LLVMBuildUDiv(micro->c->e->builder, k, emit_i64(micro->c->e, MICRO_ROUND), "");
}

/* Lines of a row of the result, and of the sums of earlier blocks. */
static int64_t out_lines(const MicroKernel *micro) {
  const Contract *contract = micro->c;
  int64_t bytes =
      micro->vectors * contract->plan.lanes * (partial(contract) ? 4 : elem_bytes(contract->out));
  return (bytes + LINE - 1) / LINE;
}

/* One line of each of the tile's results, and of operands that its epilogue reads, per round: more
   of them would fill the queue to memory, and requests that the caches could serve would wait for
   it. */
static void fetch_out(MicroKernel *micro, Loop *loop, LLVMValueRef from) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  int64_t lines = out_lines(micro),
          sums = contract->plan.tile[TILE_VECTORS] * contract->plan.lanes * 4;
  LLVMValueRef round = round_of(micro, LLVMBuildNSWSub(emit->builder, loop->i, from, ""));
  LLVMValueRef row = LLVMBuildUDiv(emit->builder, round, emit_i64(emit, lines), "");
  LLVMValueRef line = LLVMBuildURem(emit->builder, round, emit_i64(emit, lines), "");
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  line = tile_times(emit, line, LINE);
  LLVMValueRef out = tile_add(emit, tile_times(emit, row, contract->out_row), line);
  LLVMValueRef sum = tile_add(emit, tile_times(emit, row, sums), line);
  for (int i = 0; contract->out_row && !contract->nontemporal && i <= contract->nbeside; i++) {
    LLVMValueRef base = param(micro, i ? MICRO_BESIDE + i - 1 : MICRO_OUT);
    prefetch(micro, tile_elements(emit, i8, base, out), 0, i <= contract->nresults);
  }
  if (partial(contract))
    prefetch(micro, tile_elements(emit, i8, param(micro, MICRO_C), sum), 0, true);
}

static void interleave(MicroKernel *micro, LLVMValueRef i) {
  contract_interleave(micro->c, micro->vectors, param(micro, MICRO_SLICE),
                      param(micro, MICRO_PLACE), i);
}

/* Two rows of the next tile per round, turn by turn: each row gets a line in `turns` rounds. */
static void fetch_a(MicroKernel *micro, LLVMValueRef k, LLVMValueRef *at) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  int64_t bytes = contract->plan.tile[TILE_PACK_A] ? 4 : elem_bytes(contract->product.elem_a);
  int64_t row = row_stride(contract) * bytes, turns = micro->rows <= 8 ? 4 : 8;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  prefetch(micro, *at, 0, false);
  prefetch(micro, *at, row, false);
  LLVMValueRef turn = LLVMBuildAnd(emit->builder, tile_add(emit, k, emit_i64(emit, UNROLL)),
                                   emit_i64(emit, turns * UNROLL - 1), "");
  LLVMValueRef over = LLVMBuildICmp(emit->builder, LLVMIntEQ, turn, emit_i64(emit, 0), "");
  int64_t back = turns * UNROLL * 4 - (turns - 1) * 2 * row; /* a step is 32 bits wide */
  LLVMValueRef down = tile_elements(emit, i8, *at, emit_i64(emit, 2 * row));
  LLVMValueRef on = tile_elements(emit, i8, *at, emit_i64(emit, back));
  *at = LLVMBuildSelect(emit->builder, over, on, down, "");
}

/* `unroll` steps a round, while that many are left between from and to */
static void run_loop(MicroKernel *micro, LLVMValueRef from, LLVMValueRef to, int unroll,
                     Beside what, bool half) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  int n = micro->n, carried = n + (unroll == UNROLL ? CARRIED_MOST : CARRIED);
  LLVMValueRef *value = micro->value + n;
  Loop loop = emit_loop(emit, from, to, unroll, carried, micro->value);
  for (int i = 0; i < carried; i++) micro->value[i] = loop.phi[i];
  if (what == INTERLEAVE) interleave(micro, round_of(micro, loop.i));
  if (what == FETCH_OUT) fetch_out(micro, &loop, from);
  if (unroll == UNROLL && contract->prefetch)
    contract_prefetch(contract, &value[FETCH_B], &value[FETCH_ROUND]);
  if (unroll == UNROLL && contract->prefetch_a) fetch_a(micro, loop.i, &value[FETCH_A]);
  for (int i = 0; i < unroll; i++) step(micro, value[AT_A], value[AT_B], i, half);
  value[AT_A] = at_a(micro, value[AT_A], unroll * step_a(contract));
  value[AT_B] = at(micro, value[AT_B], unroll * step_b(micro));
  for (int i = 0; i < carried; i++) loop.next[i] = micro->value[i];
  emit_loop_end(emit, &loop);
  for (int i = 0; i < carried; i++) micro->value[i] = loop.phi[i];
}

/* Each round also prefetches a line of the result. Returns where the loop ends. */
static LLVMValueRef run_fetching(MicroKernel *micro, LLVMValueRef from, LLVMValueRef most) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  bool lines = (contract->out_row && !contract->nontemporal) || partial(contract);
  if (!lines || contract->product.k.outer != 1) return from;
  LLVMValueRef head = tile_add(emit, from, emit_i64(emit, micro->rows * out_lines(micro) * UNROLL));
  head = emit_min_i64(emit, most, head);
  run_loop(micro, from, head, UNROLL, FETCH_OUT, false);
  return head;
}

/* All of k's inner dim in this block, from the pointers pa and pb. */
static void run_inner(MicroKernel *micro, LLVMValueRef pa, LLVMValueRef pb) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  LLVMValueRef *value = micro->value + micro->n;
  value[AT_A] = pa, value[AT_B] = pb;
  value[FETCH_B] = param(micro, MICRO_PREFETCH), value[FETCH_ROUND] = emit_i64(emit, 0);
  value[FETCH_A] = param(micro, MICRO_NEXT);
  LLVMValueRef length = param(micro, MICRO_LENGTH), from = emit_i64(emit, 0);
  LLVMValueRef full = length; /* in place, half a step is not read by words */
  bool halves = !contract->plan.tile[TILE_PACK_A] &&
                contract->product.k.inner % contract->plan.tile[TILE_DEPTH];
  if (halves) full = LLVMBuildNSWSub(emit->builder, length, param(micro, MICRO_HALF), "");
  LLVMValueRef most = LLVMBuildAnd(emit->builder, full, emit_i64(emit, -UNROLL), "");
  if (contract->interleaved) { /* as many as there are rounds */
    LLVMValueRef head = tile_times(emit, param(micro, MICRO_PACKS), UNROLL);
    run_loop(micro, from, head, UNROLL, INTERLEAVE, false);
    from = head;
  }
  if (!emit->quick) {
    run_loop(micro, run_fetching(micro, from, most), most, UNROLL, NOTHING, false);
    from = most;
  }
  run_loop(micro, from, full, 1, NOTHING, false);
  if (halves) run_loop(micro, full, length, 1, NOTHING, true);
}

/* Where outer index o of this block begins, in elements from the block's start. */
static LLVMValueRef outer_offset(MicroKernel *micro, LLVMValueRef o, ProductSide side) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  bool packed = contract->plan.tile[side == SIDE_A ? TILE_PACK_A : TILE_PACK_B];
  if (!packed)
    return contract_offset(emit, &contract->product.k, contract->product.k.count - 1, o, side);
  LLVMValueRef done = LLVMBuildNSWSub(emit->builder, o, param(micro, MICRO_O0), "");
  done = LLVMBuildNSWMul(emit->builder, done, param(micro, MICRO_LENGTH), "");
  return tile_times(emit, done, side == SIDE_A ? step_a(contract) : step_b(micro));
}

static LLVMValueRef begin_a(MicroKernel *micro) {
  return of_row(micro, micro->c->a_memory, param(micro, MICRO_A), row_stride(micro->c));
}

static void run_all(MicroKernel *micro) {
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  if (contract->product.k.outer == 1) {
    run_inner(micro, begin_a(micro), param(micro, MICRO_B));
    return;
  }
  Loop loop =
      emit_loop(emit, param(micro, MICRO_O0), param(micro, MICRO_O1), 1, micro->n, micro->value);
  for (int i = 0; i < micro->n; i++) micro->value[i] = loop.phi[i];
  LLVMValueRef pa =
      tile_elements(emit, contract->a_memory, begin_a(micro), outer_offset(micro, loop.i, SIDE_A));
  LLVMValueRef pb = tile_elements(emit, contract->f32, param(micro, MICRO_B),
                                  outer_offset(micro, loop.i, SIDE_B));
  run_inner(micro, pa, pb);
  for (int i = 0; i < micro->n; i++) loop.next[i] = micro->value[i];
  emit_loop_end(emit, &loop);
  for (int i = 0; i < micro->n; i++) micro->value[i] = loop.phi[i];
}

static LLVMValueRef tile_address(MicroKernel *micro, int i) {
  const Contract *contract = micro->c;
  int64_t row = contract->plan.tile[TILE_VECTORS] * contract->plan.lanes;
  LLVMValueRef base = of_row(micro, contract->f32, param(micro, MICRO_C), row);
  return at(micro, base, i / micro->vectors * row + i % micro->vectors * contract->plan.lanes);
}

/* Accumulators start at zero; what an earlier block of k left is added at the end, when it has been
   fetched. */
static void start(MicroKernel *micro) {
  for (int i = 0; i < micro->n; i++) micro->value[i] = LLVMConstNull(micro->c->vector);
}

static void add_earlier(MicroKernel *micro) {
  Emit *emit = micro->c->e;
  if (!partial(micro->c)) return;
  LLVMValueRef sum[MAX_CARRIED];
  LLVMBasicBlockRef entry = LLVMGetInsertBlock(emit->builder);
  LLVMValueRef more =
      LLVMBuildICmp(emit->builder, LLVMIntNE, param(micro, MICRO_MORE), emit_i64(emit, 0), "");
  Branch branch = emit_if(emit, more);
  for (int i = 0; i < micro->n; i++)
    sum[i] = LLVMBuildFAdd(emit->builder, load(micro, micro->c->vector, tile_address(micro, i)),
                           micro->value[i], "");
  LLVMBasicBlockRef then = LLVMGetInsertBlock(emit->builder);
  emit_end_if(emit, branch);
  for (int i = 0; i < micro->n; i++) {
    LLVMValueRef first = micro->value[i];
    micro->value[i] = LLVMBuildPhi(emit->builder, micro->c->vector, "sum");
    LLVMAddIncoming(micro->value[i], &first, &entry, 1);
    LLVMAddIncoming(micro->value[i], &sum[i], &then, 1);
  }
}

static void store_sums(MicroKernel *micro) {
  for (int i = 0; i < micro->n; i++) {
    LLVMValueRef s = LLVMBuildStore(micro->c->e->builder, micro->value[i], tile_address(micro, i));
    LLVMSetAlignment(s, 4);
  }
}

static void store_out(void *state) {
  MicroKernel *micro = state;
  Contract *contract = micro->c;
  Emit *emit = contract->e;
  int bytes = elem_bytes(contract->out);
  int64_t row = contract->out_row / bytes;
  LLVMTypeRef memory = contract_memory(emit, contract->out);
  LLVMValueRef base = of_row(micro, memory, param(micro, MICRO_OUT), row);
  for (int i = 0; i < micro->n; i++) {
    int64_t offset = i / micro->vectors * row + i % micro->vectors * contract->plan.lanes;
    LLVMValueRef to = tile_elements(emit, memory, base, emit_i64(emit, offset));
    LLVMValueRef x = expr_to_memory(emit, contract->out, micro->value[i]);
    if (emit->nontemporal) emit_nontemporal_store(emit, to, x);
    else LLVMSetAlignment(LLVMBuildStore(emit->builder, x, to), (unsigned)bytes);
  }
}

static void store(MicroKernel *micro) {
  Emit *emit = micro->c->e;
  if (!micro->c->direct) {
    store_sums(micro);
    return;
  }
  LLVMValueRef out =
      LLVMBuildICmp(emit->builder, LLVMIntNE, param(micro, MICRO_DIRECT), emit_i64(emit, 0), "");
  Branch branch = emit_if(emit, out);
  nontemporal_either(emit, micro->c->nontemporal,
                     contract_aligned(micro->c, param(micro, MICRO_OUT)), store_out, micro);
  emit_end_if(emit, branch);
  branch = emit_if(emit, LLVMBuildNot(emit->builder, out, ""));
  store_sums(micro);
  emit_end_if(emit, branch);
}

static void run_rows(MicroKernel *micro, LLVMValueRef row, int rows) {
  micro->row = row, micro->rows = rows, micro->n = rows * micro->vectors;
  start(micro);
  run_all(micro);
  add_earlier(micro);
  store(micro);
}

/* With fewer sums at a time each multiply-add waits for the one before it. */
static void run_few_rows(MicroKernel *micro) {
  enum { SUMS = 6 };
  Emit *emit = micro->c->e;
  int rows = 1;
  while (micro->rows % rows || (rows * micro->vectors < SUMS && rows < micro->rows)) rows++;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, micro->rows), rows, 0, NULL);
  run_rows(micro, loop.i, rows);
  emit_loop_end(emit, &loop);
}

LLVMValueRef contract_micro(Contract *contract, int rows, int vectors) {
  must(rows >= contract->plan.height && rows <= contract->plan.height + 1,
       "kernel %s: a micro-kernel of %d rows", contract->k->name, rows);
  must(vectors >= contract->plan.width && vectors <= contract->plan.width + 1,
       "kernel %s: a micro-kernel of %d vectors", contract->k->name, vectors);
  LLVMValueRef *made =
      &contract->micro[rows > contract->plan.height][vectors > contract->plan.width];
  if (*made) return *made;
  MicroKernel micro = {.c = contract, .rows = rows, .vectors = vectors, .n = rows * vectors};
  if (micro.n + CARRIED_MOST > MAX_CARRIED) bug("a tile of %d accumulators", micro.n);
  Aside aside =
      tile_aside(contract->e, arena_printf(contract->e->arena, "tile%dx%d", rows, vectors),
                 contract_micro_type(contract));
  if (contract->e->quick) run_few_rows(&micro);
  else run_rows(&micro, NULL, rows);
  tile_aside_end(contract->e, &aside);
  return *made = aside.function;
}

/* The micro-kernel: a register tile of rows x vectors accumulators over one block of k.

   Per step of k: load the vectors of b, then for each row load one element of a, spread it, and do
   one fused multiply-add per vector. That order matters: LLVM keeps it, so only vectors + 1
   registers are live beside the accumulators and nothing is spilled while rows * vectors + vectors
   + 1 fits the register file. Strides are constants, so a is read where it lies through one
   pointer.

   Memory is asked for early: the first rounds of the unrolled loop prefetch the lines of the result
   that the epilogue will write, one a round, the others walk through the part of b that is packed
   next, and through the next tile's rows of a.

   k's inner dim is the loop; outer k dims, if there are any, are a loop around it that carries the
   accumulators. */
#include "contract.h"

enum { UNROLL = 4, LINE = 64 };

typedef struct Micro {
  Contract *c;
  int rows, vectors, n; /* n: accumulators */
  LLVMValueRef
      value[LOOP_CARRIED]; /* accumulators, then pointers into a, b, and what is fetched ahead */
} Micro;

LLVMTypeRef contract_micro_type(Contract *c) {
  LLVMTypeRef t[MICRO_ARGS];
  for (int i = 0; i < MICRO_ARGS; i++) t[i] = c->i64;
  t[MICRO_A] = t[MICRO_B] = t[MICRO_C] = t[MICRO_AHEAD] = t[MICRO_OUT] = t[MICRO_NEXT] = c->ptr;
  return LLVMFunctionType(c->nothing, t, MICRO_ARGS, 0);
}

static LLVMValueRef param(Micro *u, int i) { return LLVMGetParam(u->c->e->function, (unsigned)i); }

static int64_t row_stride(const Contract *c) {
  if (c->q.rows_a) return c->q.pitch;
  return c->q.tile[TILE_PACK_A] ? 1 : contract_inner_stride(&c->p.m, SIDE_A);
}

static int64_t step_a(const Contract *c) {
  if (c->q.rows_a) return 1;
  if (c->q.tile[TILE_PACK_A]) return c->q.tile[TILE_ROWS];
  return contract_inner_stride(&c->p.k, SIDE_A) * c->q.tile[TILE_DEPTH];
}

static int64_t step_b(const Micro *u) {
  const Contract *c = u->c;
  return c->q.tile[TILE_PACK_B] ? u->vectors * c->q.lanes : contract_inner_stride(&c->p.k, SIDE_B);
}

static LLVMValueRef at(Micro *u, LLVMValueRef base, int64_t offset) {
  Emit *e = u->c->e;
  return tile_elements(e, u->c->f32, base, emit_i64(e, offset));
}

static LLVMValueRef at_a(Micro *u, LLVMValueRef base, int64_t offset) {
  return tile_elements(u->c->e, u->c->a_memory, base, emit_i64(u->c->e, offset));
}

static LLVMValueRef load(Micro *u, LLVMTypeRef type, LLVMValueRef address) {
  LLVMValueRef v = LLVMBuildLoad2(u->c->e->builder, type, address, "");
  LLVMSetAlignment(v, 4);
  return v;
}

/* a's factor at this address; half: its second element does not exist. */
static LLVMValueRef factor(Micro *u, LLVMValueRef address, bool half) {
  Contract *c = u->c;
  if (half) return contract_factors(c, SIDE_A, address, 1, NULL, true);
  LLVMValueRef x = load(u, c->f32, address);
  if (!c->q.tile[TILE_PACK_A]) LLVMSetAlignment(x, (unsigned)elem_bytes(c->p.elem_a));
  return x;
}

/* One step of k at element i of the unrolled loop: reads phi, updates value. */
static void step(Micro *u, LLVMValueRef pa, LLVMValueRef pb, int i, bool half) {
  Contract *c = u->c;
  LLVMValueRef b[8];
  for (int v = 0; v < u->vectors; v++)
    b[v] = load(u, c->vector, at(u, pb, i * step_b(u) + v * c->q.lanes));
  for (int r = 0; r < u->rows; r++) {
    LLVMValueRef x = factor(u, at_a(u, pa, i * step_a(c) + r * row_stride(c)), half);
    x = emit_splat(c->e, x, c->q.lanes);
    for (int v = 0; v < u->vectors; v++) {
      LLVMValueRef *acc = &u->value[r * u->vectors + v];
      *acc = contract_multiply(c, x, b[v], *acc);
    }
  }
}

/* Sums wait in scratch between blocks of k. */
static bool partial(const Contract *c) {
  return c->q.tile[TILE_K_OUTER] * c->q.tile[TILE_K_INNER] > 1;
}

typedef enum Fetch { FETCH_NONE, FETCH_AHEAD, FETCH_OUT } Fetch; /* what a loop asks for early */

static void prefetch(Micro *u, LLVMValueRef address, int64_t offset, bool write) {
  Emit *e = u->c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  emit_prefetch(e, tile_elements(e, i8, address, emit_i64(e, offset)), write);
}

/* Some lines of a row of b, the others in the next rounds; then the next row. */
static void fetch_in_turns(Micro *u, Loop *l, LLVMValueRef base) {
  Contract *c = u->c;
  Emit *e = c->e;
  int64_t turns = c->ahead_turns, each = (c->ahead_count + turns - 1) / turns;
  LLVMValueRef round = LLVMBuildLShr(e->builder, l->i, emit_i64(e, 2), "");
  LLVMValueRef turn = LLVMBuildAnd(e->builder, round, emit_i64(e, turns - 1), "");
  LLVMValueRef row = LLVMBuildUDiv(e->builder, round, emit_i64(e, turns), "");
  LLVMValueRef at = LLVMBuildNSWMul(e->builder, row, param(u, MICRO_STEP), "");
  at = tile_add(e, at, tile_times(e, turn, each * c->ahead_gap));
  LLVMValueRef address = tile_elements(e, LLVMInt8TypeInContext(e->context), base, at);
  for (int64_t i = 0; i < each; i++) prefetch(u, address, i * c->ahead_gap, false);
}

/* Lines of a row of the result, and of the sums of earlier blocks. */
static int64_t out_lines(const Micro *u) {
  const Contract *c = u->c;
  int64_t bytes = u->vectors * c->q.lanes * (partial(c) ? 4 : elem_bytes(c->out));
  return (bytes + LINE - 1) / LINE;
}

/* One line of the tile's result per round: more of them would fill the queue to memory, and what
   the caches hold would wait behind. */
static void fetch_out(Micro *u, Loop *l) {
  Contract *c = u->c;
  Emit *e = c->e;
  int64_t lines = out_lines(u), sums = c->q.tile[TILE_VECTORS] * c->q.lanes * 4;
  LLVMValueRef round = LLVMBuildLShr(e->builder, l->i, emit_i64(e, 2), "");
  LLVMValueRef row = LLVMBuildUDiv(e->builder, round, emit_i64(e, lines), "");
  LLVMValueRef line = LLVMBuildURem(e->builder, round, emit_i64(e, lines), "");
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  line = tile_times(e, line, LINE);
  LLVMValueRef out = tile_add(e, tile_times(e, row, c->out_row), line);
  LLVMValueRef sum = tile_add(e, tile_times(e, row, sums), line);
  if (c->out_row && !c->stream)
    prefetch(u, tile_elements(e, i8, param(u, MICRO_OUT), out), 0, true);
  if (partial(c)) prefetch(u, tile_elements(e, i8, param(u, MICRO_C), sum), 0, true);
}

/* One round's prefetches; moves the addresses on. */
static void fetch(Micro *u, Loop *l, Fetch what) {
  Contract *c = u->c;
  Emit *e = c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  int n = u->n;
  if (what == FETCH_AHEAD && c->ahead_turns > 1) {
    fetch_in_turns(u, l, l->phi[n + 2]);
    return;
  }
  if (what == FETCH_AHEAD) {
    for (int i = 0; i < c->ahead_count; i++) prefetch(u, l->phi[n + 2], i * c->ahead_gap, false);
    l->next[n + 2] = tile_elements(e, i8, l->phi[n + 2], param(u, MICRO_STEP));
    return;
  }
  fetch_out(u, l);
}

/* Two rows of the next tile per round, turn by turn: each row gets a line in `turns` rounds. */
static void fetch_a(Micro *u, LLVMValueRef k) {
  Contract *c = u->c;
  Emit *e = c->e;
  int64_t bytes = c->q.tile[TILE_PACK_A] ? 4 : elem_bytes(c->p.elem_a);
  int64_t row = row_stride(c) * bytes, turns = u->rows <= 8 ? 4 : 8;
  LLVMValueRef round = LLVMBuildLShr(e->builder, k, emit_i64(e, 2), "");
  LLVMValueRef turn = LLVMBuildAnd(e->builder, round, emit_i64(e, turns - 1), "");
  LLVMValueRef floats = LLVMBuildAnd(e->builder, k, emit_i64(e, -turns * UNROLL), "");
  LLVMValueRef at = tile_add(e, tile_times(e, turn, 2 * row), tile_times(e, floats, 4));
  LLVMValueRef address =
      tile_elements(e, LLVMInt8TypeInContext(e->context), param(u, MICRO_NEXT), at);
  prefetch(u, address, 0, false);
  prefetch(u, address, row, false);
}

/* `unroll` steps a round, while that many are left between from and to */
static void run_loop(Micro *u, LLVMValueRef from, LLVMValueRef to, int unroll, Fetch what,
                     bool half) {
  Contract *c = u->c;
  Emit *e = c->e;
  int n = u->n, carried = n + 2 + (what == FETCH_AHEAD);
  Loop l = emit_loop(e, from, to, unroll, carried, u->value);
  for (int i = 0; i < n; i++) u->value[i] = l.phi[i];
  if (what) fetch(u, &l, what);
  if (unroll == UNROLL && c->ahead_a) fetch_a(u, l.i);
  for (int i = 0; i < unroll; i++) step(u, l.phi[n], l.phi[n + 1], i, half);
  for (int i = 0; i < n; i++) l.next[i] = u->value[i];
  l.next[n] = at_a(u, l.phi[n], unroll * step_a(c));
  l.next[n + 1] = at(u, l.phi[n + 1], unroll * step_b(u));
  emit_loop_end(e, &l);
  for (int i = 0; i < carried; i++) u->value[i] = l.phi[i];
}

/* All of k's inner dim in this block, from the pointers pa and pb. */
static void run_inner(Micro *u, LLVMValueRef pa, LLVMValueRef pb) {
  Contract *c = u->c;
  Emit *e = c->e;
  u->value[u->n] = pa, u->value[u->n + 1] = pb;
  LLVMValueRef length = param(u, MICRO_LENGTH), from = emit_i64(e, 0);
  LLVMValueRef full = length; /* in place, half a step is not read by words */
  bool halves = !c->q.tile[TILE_PACK_A] && c->p.k.inner % c->q.tile[TILE_DEPTH];
  if (halves) full = LLVMBuildNSWSub(e->builder, length, param(u, MICRO_HALF), "");
  LLVMValueRef most = LLVMBuildAnd(e->builder, full, emit_i64(e, -UNROLL), "");
  if (((c->out_row && !c->stream) || partial(c)) && c->p.k.outer == 1) {
    LLVMValueRef head = emit_min_i64(e, most, emit_i64(e, u->rows * out_lines(u) * UNROLL));
    run_loop(u, from, head, UNROLL, FETCH_OUT, false);
    from = head;
  }
  run_loop(u, from, most, UNROLL, c->ahead_count ? FETCH_AHEAD : FETCH_NONE, false);
  run_loop(u, most, full, 1, FETCH_NONE, false);
  if (halves) run_loop(u, full, length, 1, FETCH_NONE, true);
}

/* Where outer index o of this block begins, in elements from the block's start. */
static LLVMValueRef outer_offset(Micro *u, LLVMValueRef o, Side s) {
  Contract *c = u->c;
  Emit *e = c->e;
  bool packed = c->q.tile[s == SIDE_A ? TILE_PACK_A : TILE_PACK_B];
  if (!packed) return contract_offset(e, &c->p.k, c->p.k.n - 1, o, s);
  LLVMValueRef done = LLVMBuildNSWSub(e->builder, o, param(u, MICRO_O0), "");
  done = LLVMBuildNSWMul(e->builder, done, param(u, MICRO_LENGTH), "");
  return tile_times(e, done, s == SIDE_A ? step_a(c) : step_b(u));
}

static void run_all(Micro *u) {
  Contract *c = u->c;
  Emit *e = c->e;
  if (c->p.k.outer == 1) {
    run_inner(u, param(u, MICRO_A), param(u, MICRO_B));
    return;
  }
  LLVMValueRef first[LOOP_CARRIED];
  memcpy(first, u->value, sizeof first);
  first[u->n] = u->value[u->n + 2]; /* only accumulators and the prefetch pointer go round */
  Loop l = emit_loop(e, param(u, MICRO_O0), param(u, MICRO_O1), 1, u->n + 1, first);
  for (int i = 0; i < u->n; i++) u->value[i] = l.phi[i];
  u->value[u->n + 2] = l.phi[u->n];
  LLVMValueRef pa = tile_elements(e, c->a_memory, param(u, MICRO_A), outer_offset(u, l.i, SIDE_A));
  LLVMValueRef pb = tile_elements(e, c->f32, param(u, MICRO_B), outer_offset(u, l.i, SIDE_B));
  run_inner(u, pa, pb);
  for (int i = 0; i < u->n; i++) l.next[i] = u->value[i];
  l.next[u->n] = u->value[u->n + 2];
  emit_loop_end(e, &l);
  for (int i = 0; i < u->n; i++) u->value[i] = l.phi[i];
}

static LLVMValueRef tile_address(Micro *u, int i) {
  const Contract *c = u->c;
  int64_t row = c->q.tile[TILE_VECTORS] * c->q.lanes;
  return at(u, param(u, MICRO_C), i / u->vectors * row + i % u->vectors * c->q.lanes);
}

/* Accumulators start at zero; what an earlier block of k left is added at the end, when it has been
   fetched. */
static void start(Micro *u) {
  for (int i = 0; i < u->n; i++) u->value[i] = LLVMConstNull(u->c->vector);
  u->value[u->n + 2] = param(u, MICRO_AHEAD);
}

static void add_earlier(Micro *u) {
  Emit *e = u->c->e;
  if (!partial(u->c)) return;
  LLVMValueRef sum[LOOP_CARRIED];
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

static void store_sums(Micro *u) {
  for (int i = 0; i < u->n; i++) {
    LLVMValueRef s = LLVMBuildStore(u->c->e->builder, u->value[i], tile_address(u, i));
    LLVMSetAlignment(s, 4);
  }
}

static void store_out(Micro *u, bool stream) {
  Contract *c = u->c;
  Emit *e = c->e;
  int bytes = elem_bytes(c->out);
  for (int i = 0; i < u->n; i++) {
    int64_t offset = i / u->vectors * (c->out_row / bytes) + i % u->vectors * c->q.lanes;
    LLVMValueRef to =
        tile_elements(e, contract_memory(e, c->out), param(u, MICRO_OUT), emit_i64(e, offset));
    LLVMValueRef x = expr_to_memory(e, c->out, u->value[i]);
    if (stream) emit_stream(e, to, x);
    else LLVMSetAlignment(LLVMBuildStore(e->builder, x, to), (unsigned)bytes);
  }
}

static void store_result(Micro *u) {
  Contract *c = u->c;
  Emit *e = c->e;
  if (!c->stream) {
    store_out(u, false);
    return;
  }
  LLVMValueRef aligned = contract_aligned(c, param(u, MICRO_OUT));
  Branch b = emit_if(e, aligned);
  store_out(u, true);
  emit_end_if(e, b);
  b = emit_if(e, LLVMBuildNot(e->builder, aligned, ""));
  store_out(u, false);
  emit_end_if(e, b);
}

static void store(Micro *u) {
  Emit *e = u->c->e;
  if (!u->c->direct) {
    store_sums(u);
    return;
  }
  LLVMValueRef out =
      LLVMBuildICmp(e->builder, LLVMIntNE, param(u, MICRO_DIRECT), emit_i64(e, 0), "");
  Branch b = emit_if(e, out);
  store_result(u);
  emit_end_if(e, b);
  b = emit_if(e, LLVMBuildNot(e->builder, out, ""));
  store_sums(u);
  emit_end_if(e, b);
}

LLVMValueRef contract_micro(Contract *c, int rows, int vectors) {
  LLVMValueRef *made = &c->micro[rows > c->q.height][vectors > c->q.width];
  if (*made) return *made;
  Micro u = {.c = c, .rows = rows, .vectors = vectors, .n = rows * vectors};
  if (u.n + 4 > LOOP_CARRIED) bug("a tile of %d accumulators", u.n);
  Aside s = tile_aside(c->e, arena_printf(c->e->arena, "tile%dx%d", rows, vectors),
                       contract_micro_type(c));
  start(&u);
  run_all(&u);
  add_earlier(&u);
  store(&u);
  tile_aside_end(c->e, &s);
  return *made = s.function;
}

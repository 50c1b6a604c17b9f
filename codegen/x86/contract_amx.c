/* The micro-kernel of machines with AMX tiles (AMX; tile depth 32): up to 2 x 2 of them add up 32 x
   32 elements over one block of k.

   An AMX tile has 16 rows of 64 bytes. Per step of k, 32 elements: two of a, each 16 rows of 16
   pairs of bf16, in place or in packed rows; two of b, each 16 rows of a packed panel (one pair
   along k for each of 16 columns); four products of 16 x 16 x 32 into f32. Each of the four loads
   serves two products, which is all that eight registers allow. There are no masks: packed operands
   hold zeros beyond the end of k, and rows and columns that do not exist are never read.

   One operand is streamed and one is reused: a panel of b is multiplied with all row tiles of the
   chunk (a row tile with all panels, if it is the only one). The streamed operand is loaded with
   the hint that it will not be used again, so that it does not evict the reused one; only as many
   of its steps are loaded without the hint as leave room in the first-level cache for sums and
   results. Measured, share of the peak from the second-level cache, 24 steps: 74 % without hints,
   91 % with those for a, 96 % with those for b's last steps.

   The registers' shapes are the same in the whole kernel: set when a chunk begins, released at its
   end. Products take denormals as zeros. */
#include "contract.h"

enum { LINE = 64 };                               /* bytes of a row */
enum { STAY_BYTES = 40 << 10 };                   /* of a first-level cache of 48 KiB */
enum { FIRST_A = 4, FIRST_B = 6, REGISTERS = 8 }; /* 0 .. 3: sums */

typedef struct Matrix {
  Contract *c;
  int rows, vectors; /* of registers */
} Matrix;

static LLVMValueRef number(Contract *contract, int i) {
  return LLVMConstInt(LLVMInt8TypeInContext(contract->e->context), (unsigned)i, 0);
}

static LLVMValueRef bytes_on(Contract *contract, LLVMValueRef base, LLVMValueRef offset) {
  return tile_elements(contract->e, LLVMInt8TypeInContext(contract->e->context), base, offset);
}

static LLVMValueRef param(Matrix *matrix, int i) {
  return LLVMGetParam(matrix->c->e->function, (unsigned)i);
}

static void call(Contract *contract, const char *name, int n, LLVMValueRef *args) {
  emit_intrinsic_types(contract->e, name, 0, NULL, n, args);
}

/* ---- shapes ---- */

/* Palette 1: eight registers of 16 rows of 64 bytes. */
static LLVMValueRef shapes(Contract *contract) {
  enum { BYTES = 64, COLUMNS_AT = 16, ROWS_AT = 48 };
  LLVMTypeRef i8 = LLVMInt8TypeInContext(contract->e->context);
  LLVMValueRef byte[BYTES];
  for (int i = 0; i < BYTES; i++) byte[i] = number(contract, 0);
  byte[0] = number(contract, 1);
  for (int i = 0; i < REGISTERS; i++) {
    byte[COLUMNS_AT + 2 * i] = number(contract, LINE);
    byte[ROWS_AT + i] = number(contract, AMX_ROWS);
  }
  LLVMValueRef g = LLVMAddGlobal(contract->e->module, LLVMArrayType2(i8, BYTES), "shapes");
  LLVMSetInitializer(g, LLVMConstArray2(i8, byte, BYTES));
  LLVMSetGlobalConstant(g, 1), LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, LINE);
  return g;
}

void contract_amx_begin(Contract *contract) {
  LLVMValueRef g = shapes(contract);
  call(contract, "llvm.x86.ldtilecfg", 1, &g);
}

void contract_amx_end(Contract *contract) { call(contract, "llvm.x86.tilerelease", 0, NULL); }

/* ---- one block of k ---- */

static LLVMValueRef sums_stride(Contract *contract) {
  return emit_i64(contract->e, contract->plan.tile[TILE_VECTORS] * contract->plan.lanes * 4);
}

/* Register r, v of the sums at `base`, whose rows are `stride` bytes apart. */
static void move_sum(Matrix *matrix, const char *how, LLVMValueRef base, LLVMValueRef stride, int r,
                     int v) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  LLVMValueRef at =
      tile_add(emit, tile_times(emit, stride, r * AMX_ROWS), emit_i64(emit, v * LINE));
  LLVMValueRef args[] = {number(contract, r * matrix->vectors + v), bytes_on(contract, base, at),
                         stride};
  call(contract, how, 3, args);
}

static void move_sums(Matrix *matrix, const char *how, LLVMValueRef base, LLVMValueRef stride) {
  for (int r = 0; r < matrix->rows; r++)
    for (int v = 0; v < matrix->vectors; v++) move_sum(matrix, how, base, stride, r, v);
}

/* Zero, or what an earlier block of k left; in a tile's first call. */
static void start(Matrix *matrix) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  LLVMValueRef zero = emit_i64(emit, 0);
  Branch first =
      emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntEQ, param(matrix, MICRO_FROM), zero, ""));
  for (int i = 0; i < matrix->rows * matrix->vectors; i++) {
    LLVMValueRef which = number(contract, i);
    call(contract, "llvm.x86.tilezero", 1, &which);
  }
  if (contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER] > 1) {
    Branch branch =
        emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntNE, param(matrix, MICRO_MORE), zero, ""));
    move_sums(matrix, "llvm.x86.tileloadd64", param(matrix, MICRO_C), sums_stride(contract));
    emit_end_if(emit, branch);
  }
  emit_end_if(emit, first);
}

static void store_sums(Matrix *matrix) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  if (!contract->direct) {
    move_sums(matrix, "llvm.x86.tilestored64", param(matrix, MICRO_C), sums_stride(contract));
    return;
  }
  LLVMValueRef out =
      LLVMBuildICmp(emit->builder, LLVMIntNE, param(matrix, MICRO_DIRECT), emit_i64(emit, 0), "");
  LLVMValueRef to =
      LLVMBuildSelect(emit->builder, out, param(matrix, MICRO_OUT), param(matrix, MICRO_C), "");
  LLVMValueRef stride = LLVMBuildSelect(emit->builder, out, emit_i64(emit, contract->out_row),
                                        sums_stride(contract), "");
  move_sums(matrix, "llvm.x86.tilestored64", to, stride);
}

/* After a tile's last call. */
static void finish(Matrix *matrix) {
  Emit *emit = matrix->c->e;
  LLVMValueRef to = param(matrix, MICRO_TO), length = param(matrix, MICRO_LENGTH);
  Branch last = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntEQ, to, length, ""));
  store_sums(matrix);
  emit_end_if(emit, last);
}

static int64_t a_stride(const Contract *contract) { /* bytes between rows of a */
  return contract->plan.rows_a ? contract->plan.pitch * 4
                               : contract_inner_stride(&contract->product.m, SIDE_A) *
                                     elem_bytes(contract->product.elem_a);
}

static void load_factor(Contract *contract, int which, LLVMValueRef from, int64_t offset,
                        int64_t stride, bool stays) {
  Emit *emit = contract->e;
  LLVMValueRef args[] = {number(contract, which), bytes_on(contract, from, emit_i64(emit, offset)),
                         emit_i64(emit, stride)};
  call(contract, stays ? "llvm.x86.tileloadd64" : "llvm.x86.tileloaddt164", 3, args);
}

/* Which operand meets more than one other. */
static ProductSide staying(const Contract *contract) {
  return contract->plan.tiles_max == 1 ? SIDE_A : SIDE_B;
}

/* Steps of a block of k of which it stays. */
static int64_t steps_that_stay(const Matrix *matrix) {
  int registers = staying(matrix->c) == SIDE_A ? matrix->rows : matrix->vectors;
  return STAY_BYTES / (registers * AMX_ROWS * LINE);
}

static void multiply(Matrix *matrix, int r, int v) {
  Contract *contract = matrix->c;
  LLVMValueRef args[] = {number(contract, r * matrix->vectors + v), number(contract, FIRST_A + r),
                         number(contract, FIRST_B + v)};
  call(contract, "llvm.x86.tdpbf16ps", 3, args);
}

/* Each register is loaded just before its first use. */
static void step(Matrix *matrix, LLVMValueRef pa, LLVMValueRef pb, bool stays) {
  Contract *contract = matrix->c;
  bool a = stays && staying(contract) == SIDE_A, b = stays && staying(contract) == SIDE_B;
  int64_t below = a_stride(contract), panel = matrix->vectors * LINE;
  for (int r = 0; r < matrix->rows; r++)
    for (int v = 0; v < matrix->vectors; v++) {
      if (v == 0) load_factor(contract, FIRST_A + r, pa, r * AMX_ROWS * below, below, a);
      if (r == 0) load_factor(contract, FIRST_B + v, pb, v * LINE, panel, b);
      multiply(matrix, r, v);
    }
}

/* Steps [from, to) of the inner dim; at: pa and pb at `from`, then at `to`. */
static void run_steps(Matrix *matrix, LLVMValueRef from, LLVMValueRef to, LLVMValueRef *at,
                      bool stays) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  Loop loop = emit_loop(emit, from, to, 1, 2, at);
  contract_prefetch_amx(contract, loop.i);
  step(matrix, loop.phi[0], loop.phi[1], stays);
  loop.next[0] = bytes_on(contract, loop.phi[0], emit_i64(emit, LINE));
  loop.next[1] = bytes_on(contract, loop.phi[1], emit_i64(emit, matrix->vectors * LINE * AMX_ROWS));
  emit_loop_end(emit, &loop);
  at[0] = loop.phi[0], at[1] = loop.phi[1];
}

/* This call's steps of k's inner dim; pa, pb: at step 0. */
static void run_inner(Matrix *matrix, LLVMValueRef pa, LLVMValueRef pb) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  LLVMValueRef from = param(matrix, MICRO_FROM), to = param(matrix, MICRO_TO);
  int64_t most = steps_that_stay(matrix);
  LLVMValueRef at[] = {
      bytes_on(contract, pa, tile_times(emit, from, LINE)),
      bytes_on(contract, pb, tile_times(emit, from, matrix->vectors * LINE * AMX_ROWS))};
  if (contract->plan.k_inner_max <= most) {
    run_steps(matrix, from, to, at, true);
    return;
  }
  LLVMValueRef part = emit_min_i64(emit, to, emit_i64(emit, most));
  LLVMValueRef past = LLVMBuildICmp(emit->builder, LLVMIntSGT, from, part, "");
  run_steps(matrix, from, part, at, true);
  run_steps(matrix, LLVMBuildSelect(emit->builder, past, from, part, ""), to, at, false);
}

/* Address of side s at outer index o of this block. */
static LLVMValueRef at_outer(Matrix *matrix, LLVMValueRef base, LLVMValueRef o, ProductSide side) {
  Contract *contract = matrix->c;
  Emit *emit = contract->e;
  if (side == SIDE_A && !contract->plan.rows_a)
    return tile_elements(
        emit, contract->a_memory, base,
        contract_offset(emit, &contract->product.k, contract->product.k.count - 1, o, side));
  LLVMValueRef done = LLVMBuildNSWSub(emit->builder, o, param(matrix, MICRO_O0), "");
  done = LLVMBuildNSWMul(emit->builder, done, param(matrix, MICRO_LENGTH), "");
  return bytes_on(
      contract, base,
      tile_times(emit, done, side == SIDE_A ? LINE : matrix->vectors * LINE * AMX_ROWS));
}

LLVMValueRef contract_amx(Contract *contract, int vectors) {
  must(contract->plan.tile[TILE_ROWS] % AMX_ROWS == 0, "kernel %s: AMX tiles of %lld rows",
       contract->k->name, (long long)contract->plan.tile[TILE_ROWS]);
  Emit *emit = contract->e;
  LLVMValueRef *made = &contract->micro[0][vectors > contract->plan.width];
  if (*made) return *made;
  Matrix matrix = {
      .c = contract, .rows = (int)contract->plan.tile[TILE_ROWS] / AMX_ROWS, .vectors = vectors};
  Aside aside = tile_aside(emit, arena_printf(emit->arena, "matrix%dx%d", matrix.rows, vectors),
                           contract_micro_type(contract));
  start(&matrix);
  Loop loop = emit_loop(emit, param(&matrix, MICRO_O0), param(&matrix, MICRO_O1), 1, 0, NULL);
  run_inner(&matrix, at_outer(&matrix, param(&matrix, MICRO_A), loop.i, SIDE_A),
            at_outer(&matrix, param(&matrix, MICRO_B), loop.i, SIDE_B));
  emit_loop_end(emit, &loop);
  finish(&matrix);
  tile_aside_end(emit, &aside);
  return *made = aside.function;
}

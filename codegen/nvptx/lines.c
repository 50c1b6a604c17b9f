/* Lines of partial sums: see lines.h. A warp has 32 adjacent columns and takes every n-th line,
   four at once; the first warp then adds up what the warps of the CTA left in shared memory, in
   their order. */
#include "lines.h"
#include "simt.h"
#include "space.h"

enum { AT_ONCE = 4 };

LLVMValueRef lines_at(Emit *e, const SumLines *lines, int i, LLVMValueRef line, LLVMValueRef at) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context), i8 = LLVMInt8TypeInContext(e->context);
  int64_t bytes = lines_bytes(lines);
  line = LLVMBuildZExt(e->builder, line, i64, ""), at = LLVMBuildZExt(e->builder, at, i64, "");
  LLVMValueRef byte =
      index_mul_add(e, line, bytes, emit_i64(e, lines->at + i * lines->lines * bytes));
  byte = index_mul_add(e, at, 4, byte);
  return LLVMBuildGEP2(e->builder, i8, emit_buffer(e, e->k->args.n + e->k->results.n), &byte, 1,
                       "");
}

static unsigned alignment(LLVMTypeRef type) {
  bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
  unsigned bytes = vector ? 4 * LLVMGetVectorSize(type) : 4;
  return bytes > 16 ? 16 : bytes;
}

LLVMValueRef lines_load(Emit *e, LLVMValueRef pointer, int lanes) {
  LLVMTypeRef type = emit_vector(e, ELEM_f32, lanes);
  LLVMValueRef x = LLVMBuildLoad2(e->builder, type, pointer, "");
  LLVMSetAlignment(x, alignment(type));
  return x;
}

void lines_store(Emit *e, LLVMValueRef pointer, LLVMValueRef x) {
  LLVMSetAlignment(LLVMBuildStore(e->builder, x, pointer), alignment(LLVMTypeOf(x)));
}

/* Lines warp, warp + JOINERS, .. of a column: whole turns, then one by one. */
static LLVMValueRef some_lines(Emit *e, const SumLines *lines, int i, LLVMValueRef warp,
                               LLVMValueRef at) {
  int64_t turn = AT_ONCE * LINES_JOINERS, whole = lines->lines / turn * turn;
  LLVMValueRef sum = LLVMConstNull(emit_type(e, ELEM_f32));
  Loop loop = emit_loop(e, warp, emit_index(e, whole), turn, 1, &sum);
  LLVMValueRef x[AT_ONCE];
  for (int u = 0; u < AT_ONCE; u++) {
    LLVMValueRef line = LLVMBuildNSWAdd(e->builder, loop.i, emit_index(e, u * LINES_JOINERS), "");
    x[u] = lines_load(e, lines_at(e, lines, i, line, at), 1);
  }
  loop.next[0] = loop.phi[0];
  for (int u = 0; u < AT_ONCE; u++)
    loop.next[0] = LLVMBuildFAdd(e->builder, loop.next[0], x[u], "");
  emit_loop_end(e, &loop);
  sum = loop.phi[0];
  LLVMValueRef from = LLVMBuildNSWAdd(e->builder, warp, emit_index(e, whole), "");
  loop = emit_loop(e, from, emit_index(e, lines->lines), LINES_JOINERS, 1, &sum);
  LLVMValueRef one = lines_load(e, lines_at(e, lines, i, loop.i, at), 1);
  loop.next[0] = LLVMBuildFAdd(e->builder, loop.phi[0], one, "");
  emit_loop_end(e, &loop);
  return loop.phi[0];
}

static LLVMValueRef slot(Emit *e, int64_t warp) {
  LLVMValueRef at = LLVMBuildShl(e->builder, simt_lane(e), simt_i32(e, 2), "");
  return simt_shared_at(e,
                        LLVMBuildNSWAdd(e->builder, at, simt_i32(e, warp * LINES_ACROSS * 4), ""));
}

static LLVMValueRef own_slot(Emit *e) {
  return simt_shared_at(e, LLVMBuildShl(e->builder, simt_thread(e), simt_i32(e, 2), ""));
}

static void one_sum(Emit *e, const SumLines *lines, int i, LLVMValueRef warp, LLVMValueRef at,
                    LinesDeliver *deliver, void *state) {
  LLVMValueRef end = emit_index(e, lines->columns);
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntULT, at, end, "inside");
  LLVMValueRef column =
      LLVMBuildSelect(e->builder, inside, at, emit_index(e, lines->columns - 1), "");
  lines_store(e, own_slot(e), some_lines(e, lines, i, warp, column));
  simt_barrier(e);
  LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntEQ, warp, emit_index(e, 0), "");
  Branch one = emit_if(e, LLVMBuildAnd(e->builder, first, inside, ""));
  LLVMValueRef sum = lines_load(e, slot(e, 0), 1);
  for (int w = 1; w < LINES_JOINERS && w < lines->lines; w++) /* others have no line */
    sum = LLVMBuildFAdd(e->builder, sum, lines_load(e, slot(e, w), 1), "");
  deliver(state, i, at, sum);
  emit_end_if(e, one);
}

void lines_join(Emit *e, int phase, const SumLines *lines, LinesDeliver *deliver, void *state) {
  int64_t blocks = lines_blocks(lines);
  e->lanes = 1;
  emit_begin_phase(e, phase);
  must(simt_threads(e, phase) == LINES_THREADS, "kernel %s: %lld threads add up lines", e->k->name,
       (long long)simt_threads(e, phase));
  LLVMValueRef warp = simt_index(e, simt_warp(e)), lane = simt_index(e, simt_lane(e)),
               cta = simt_index(e, simt_cta(e));
  LLVMValueRef at = index_mul_add(e, index_rem(e, cta, blocks), LINES_ACROSS, lane);
  LLVMValueRef which = index_div(e, cta, blocks);
  for (int i = 0; i < lines->sums; i++) {
    Branch mine = {0};
    if (lines->sums > 1)
      mine = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntEQ, which, emit_index(e, i), "mine"));
    one_sum(e, lines, i, warp, at, deliver, state);
    if (lines->sums > 1) emit_end_if(e, mine);
  }
  emit_end_phase(e);
}

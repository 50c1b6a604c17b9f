/* Joining reductions over groups of threads: see group.h. Within a warp by exchanges across ever
   smaller distances: addition commutes, so all threads come to the same bits. Warps then leave
   their results in shared memory, and every warp joins all of them in the same way. */
#include "group.h"

static LLVMTypeRef memory_type(Emit *e, const GroupSum *s, int part, int lanes) {
  LLVMTypeRef t = emit_memory_type(e, accumulator_elem(s->elem, part));
  return lanes > 1 ? LLVMVectorType(t, (unsigned)lanes) : t;
}

static unsigned bytes_of(const GroupSum *s, int part) {
  return (unsigned)elem_bytes(accumulator_elem(s->elem, part));
}

void state_store(Emit *e, const GroupSum *s, int part, LLVMValueRef pointer, LLVMValueRef value) {
  LLVMValueRef x = expr_to_memory(e, accumulator_elem(s->elem, part), value);
  LLVMSetAlignment(LLVMBuildStore(e->builder, x, pointer), bytes_of(s, part));
}

LLVMValueRef state_load(Emit *e, const GroupSum *s, int part, LLVMValueRef pointer, int lanes) {
  LLVMValueRef x = LLVMBuildLoad2(e->builder, memory_type(e, s, part, lanes), pointer, "");
  LLVMSetAlignment(x, bytes_of(s, part));
  return expr_from_memory(e, accumulator_elem(s->elem, part), x);
}

static void join_warp(Emit *e, GroupSum *s, int64_t threads) {
  for (int64_t by = threads / 2; by; by /= 2) {
    LLVMValueRef with[2] = {0};
    for (int part = 0; part < accumulator_parts(s->op); part++)
      with[part] = simt_shuffle_xor(e, s->state[part], (int)by);
    accumulator_join(e, s->op, s->elem, s->state, with);
  }
}

static LLVMValueRef slot(Emit *e, int64_t at, int sum, int part, LLVMValueRef warp) {
  must(at >= 0 && at % 8 == 0, "kernel %s: sums are left at byte %lld", e->k->name, (long long)at);
  LLVMValueRef byte = LLVMBuildShl(e->builder, warp, simt_i32(e, 3), "");
  int64_t base = at + (int64_t)sum * GROUP_EXCHANGE + part * WARP * 8;
  return simt_shared_at(e, LLVMBuildNSWAdd(e->builder, byte, simt_i32(e, base), ""));
}

static void leave(Emit *e, int64_t at, int n, const GroupSum *sum) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef first = LLVMBuildICmp(builder, LLVMIntEQ, simt_lane(e), simt_i32(e, 0), "");
  LLVMValueRef warp = LLVMBuildLShr(builder, simt_thread(e), simt_i32(e, 5), "warp");
  Branch one = emit_if(e, first);
  for (int i = 0; i < n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++)
      state_store(e, &sum[i], part, slot(e, at, i, part, warp), sum[i].state[part]);
  emit_end_if(e, one);
}

void group_join(Emit *e, int64_t threads, int64_t at, int n, GroupSum *sum) {
  must(threads > 0 && !(threads & (threads - 1)), "kernel %s: %lld threads join their sums",
       e->k->name, (long long)threads);
  int64_t warps = threads / WARP;
  for (int i = 0; i < n; i++) join_warp(e, &sum[i], threads < WARP ? threads : WARP);
  if (!n || warps <= 1) return;
  leave(e, at, n, sum);
  simt_barrier(e);
  LLVMValueRef from = LLVMBuildAnd(e->builder, simt_lane(e), simt_i32(e, warps - 1), "");
  for (int i = 0; i < n; i++) {
    for (int part = 0; part < accumulator_parts(sum[i].op); part++)
      sum[i].state[part] = state_load(e, &sum[i], part, slot(e, at, i, part, from), 1);
    join_warp(e, &sum[i], warps);
  }
}

LLVMValueRef group_sum_up_to(Emit *e, LLVMValueRef x) {
  LLVMValueRef lane = simt_lane(e);
  for (int by = 1; by < WARP; by *= 2) {
    LLVMValueRef more = math_combine(e, OP_sum, x, simt_shuffle_up(e, x, by));
    LLVMValueRef has = LLVMBuildICmp(e->builder, LLVMIntUGE, lane, simt_i32(e, by), "");
    x = LLVMBuildSelect(e->builder, has, more, x, "");
  }
  return x;
}

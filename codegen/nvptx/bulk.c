/* Words of bulk tensor copies: see bulk.h. LLVM 19 has no intrinsics for most of them; texts are
   those of the PTX ISA, sections "mbarrier" and "cp.async.bulk.tensor". */
#include "bulk.h"
#include "ir/kernel/tensor_map.h"
#include "simt.h"

static LLVMTypeRef nothing(Warp *w) { return LLVMVoidTypeInContext(w->e->context); }

/* The address in the window of shared memory, as instructions take it. */
static LLVMValueRef place(Warp *w, LLVMValueRef offset) {
  return warp_add(w, LLVMBuildPtrToInt(w->e->builder, w->shared, w->i32, ""), offset);
}

static void say(Warp *w, const char *text, LLVMValueRef signal) {
  LLVMValueRef at = place(w, signal);
  simt_asm(w->e, text, "r,~{memory}", nothing(w), 1, &at, false);
}

void bulk_begin(Warp *w, LLVMValueRef signal, int arrivals) {
  say(w, arena_printf(w->e->arena, "mbarrier.init.shared::cta.b64 [$0], %d;", arrivals), signal);
}

void bulk_begun(Warp *w) {
  simt_asm(w->e, "fence.mbarrier_init.release.cluster;", "~{memory}", nothing(w), 0, NULL, false);
  simt_asm(w->e, "fence.proxy.async.shared::cta;", "~{memory}", nothing(w), 0, NULL, false);
}

void bulk_arrive(Warp *w, LLVMValueRef signal) {
  say(w, "mbarrier.arrive.shared::cta.b64 _, [$0];", signal);
}

void bulk_expect(Warp *w, LLVMValueRef signal, int64_t bytes) {
  const char *text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], %lld;";
  say(w, arena_printf(w->e->arena, text, (long long)bytes), signal);
}

/* A loop of the IR, since labels of machine code may be duplicated. */
void bulk_wait(Warp *w, LLVMValueRef signal, LLVMValueRef parity) {
  LLVMValueRef args[] = {place(w, signal), parity};
  WarpLoop loop = warp_loop(w);
  LLVMValueRef over =
      simt_asm(w->e, "mbarrier.try_wait.parity.shared::cta.b64 $0, [$1], $2;", "=b,r,r,~{memory}",
               LLVMInt1TypeInContext(w->e->context), 2, args, false);
  warp_loop_while(w, &loop, LLVMBuildNot(w->e->builder, over, ""));
  warp_loop_end(w, &loop);
}

/* A copy of a box: `head` is its instruction up to the map, `tail` what follows the coordinates;
   args: the first ones with these constraints, then the coordinates. */
static void copy_box(Warp *w, const char *head, const char *tail, const char *constraints,
                     LLVMValueRef *args, int first, int rank, LLVMValueRef *at) {
  const char *list = "";
  for (int i = 0; i < rank; i++) {
    args[first + i] = at[i];
    list = arena_printf(w->e->arena, "%s%s$%d", list, i ? ", " : "", first + i);
    constraints = arena_printf(w->e->arena, "%sr,", constraints);
  }
  const char *text =
      arena_printf(w->e->arena, "cp.async.bulk.tensor.%dd.%s, {%s}]%s;", rank, head, list, tail);
  constraints = arena_printf(w->e->arena, "%s~{memory}", constraints);
  simt_asm(w->e, text, constraints, nothing(w), first + rank, args, false);
}

void bulk_copy(Warp *w, LLVMValueRef to, LLVMValueRef map, int rank, LLVMValueRef *at,
               LLVMValueRef signal) {
  LLVMValueRef args[3 + MAP_RANK] = {place(w, to), map, place(w, signal)};
  copy_box(w, "shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1", ", [$2]",
           "r,l,r,", args, 3, rank, at);
}

void bulk_leave(Warp *w, LLVMValueRef map, int rank, LLVMValueRef *at, LLVMValueRef from) {
  LLVMValueRef args[2 + MAP_RANK] = {map, place(w, from)};
  copy_box(w, "global.shared::cta.tile.bulk_group [$0", ", [$1]", "l,r,", args, 2, rank, at);
}

static void of_groups(Warp *w, const char *text) {
  simt_asm(w->e, text, "~{memory}", nothing(w), 0, NULL, false);
}

void bulk_leave_end(Warp *w) { of_groups(w, "cp.async.bulk.commit_group;"); }

void bulk_leave_read(Warp *w, int groups) {
  of_groups(w, arena_printf(w->e->arena, "cp.async.bulk.wait_group.read %d;", groups));
}

void bulk_leave_wait(Warp *w) { of_groups(w, "cp.async.bulk.wait_group 0;"); }

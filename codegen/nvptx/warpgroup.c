/* Words of warpgroups: see warpgroup.h. LLVM 19 has no intrinsics for wgmma; texts are those of the
   PTX ISA, section "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation". */
#include "warpgroup.h"
#include "ir/kernel/gemm_gpu.h"
#include "simt.h"

enum { EIGHT_ROWS = 1024 }; /* bytes */

static void say(Warp *w, const char *text) {
  simt_asm(w->e, text, "~{memory}", LLVMVoidTypeInContext(w->e->context), 0, NULL, false);
}

static void barrier(Warp *w, const char *how, LLVMValueRef id, int threads) {
  const char *text = arena_printf(w->e->arena, "bar.%s $0, %d;", how, threads);
  simt_asm(w->e, text, "r,~{memory}", LLVMVoidTypeInContext(w->e->context), 1, &id, false);
}

void warpgroup_meet(Warp *w, LLVMValueRef id, int threads) { barrier(w, "sync", id, threads); }
void warpgroup_arrive(Warp *w, LLVMValueRef id, int threads) { barrier(w, "arrive", id, threads); }

/* A thread begins with 168: three of them have 504, which are 40 and twice 232. */
void warpgroup_registers(Warp *w, bool multiplies) {
  say(w,
      multiplies ? "setmaxnreg.inc.sync.aligned.u32 232;" : "setmaxnreg.dec.sync.aligned.u32 40;");
}

void warpgroup_publish(Warp *w) { say(w, "fence.proxy.async.shared::cta;"); }
void warpgroup_begin(Warp *w) { say(w, "wgmma.fence.sync.aligned;"); }
void warpgroup_commit(Warp *w) { say(w, "wgmma.commit_group.sync.aligned;"); }

LLVMValueRef warpgroup_piece(Warp *w, LLVMValueRef row, LLVMValueRef piece) {
  LLVMValueRef turned = warp_xor(w, piece, warp_rem(w, row, WGMMA_PIECES));
  LLVMValueRef at = warp_times(w, row, WGMMA_PANEL);
  return warp_add(w, at, warp_times(w, turned, WGMMA_PIECE));
}

/* Bits 0 to 13: the address; 16 to 29: from panel to panel; 32 to 45: from eight rows to the next;
   all in units of 16 bytes. Bit 62: swizzles of 128 bytes. */
LLVMValueRef warpgroup_operand(Warp *w, LLVMValueRef offset, int64_t panel) {
  LLVMBuilderRef builder = w->e->builder;
  uint64_t rest = (uint64_t)1 << 62 | (uint64_t)(EIGHT_ROWS / 16) << 32 |
                  (uint64_t)(panel ? panel / 16 : 1) << 16;
  LLVMValueRef at = warp_add(w, LLVMBuildPtrToInt(builder, w->shared, w->i32, ""), offset);
  at = LLVMBuildAnd(builder, LLVMBuildLShr(builder, at, warp_i32(w, 4), ""), warp_i32(w, 0x3fff),
                    "");
  return LLVMBuildOr(builder, warp_wide(w, at), LLVMConstInt(w->i64, rest, 0), "");
}

/* Machine code that reads and writes the sums: results and the first operands. */
static void with_sums(Warp *w, const char *text, const char *more, const Registers *sums, int n,
                      LLVMValueRef *args) {
  LLVMTypeRef types[128];
  LLVMValueRef all[128 + 8];
  const char *results = "", *tied = "";
  must(sums->n <= 128 && n <= 8, "kernel %s: a product of %d sums", w->e->k->name, sums->n);
  for (int i = 0; i < sums->n; i++) {
    types[i] = w->f32, all[i] = warp_get(w, sums, i);
    results = arena_printf(w->e->arena, "%s=f,", results);
    tied = arena_printf(w->e->arena, "%s%d,", tied, i);
  }
  for (int i = 0; i < n; i++) all[sums->n + i] = args[i];
  LLVMTypeRef type = LLVMStructTypeInContext(w->e->context, types, (unsigned)sums->n, 0);
  const char *constraints = arena_printf(w->e->arena, "%s%s%s~{memory}", results, tied, more);
  LLVMValueRef v = simt_asm(w->e, text, constraints, type, sums->n + n, all, false);
  for (int i = 0; i < sums->n; i++)
    warp_set(w, sums, i, LLVMBuildExtractValue(w->e->builder, v, (unsigned)i, ""));
}

/* The instruction up to its sums. */
static const char *text_of(Warp *w, int k, const char *a, const char *b, const Registers *sums) {
  const char *names = "$0";
  for (int i = 1; i < sums->n; i++) names = arena_printf(w->e->arena, "%s, $%d", names, i);
  return arena_printf(w->e->arena, "wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s {%s}",
                      2 * sums->n, k, a, b, names);
}

static const char *product_text(Warp *w, Elem elem, const Registers *sums) {
  const char *type = elem == ELEM_bf16 ? "bf16" : "f16";
  must(elem_is_half(elem), "kernel %s: wgmma of %s", w->e->k->name, elem_name(elem));
  return text_of(w, 16, type, type, sums);
}

void warpgroup_multiply_codes(Warp *w, const char *format_a, const char *format_b,
                              const Registers *sums, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef add) {
  int n = 2 * sums->n;
  const char *text = arena_printf(w->e->arena, "%s, $%d, $%d, $%d, 1, 1;",
                                  text_of(w, 32, format_a, format_b, sums), n, n + 1, n + 2);
  LLVMValueRef args[] = {a, b, add};
  with_sums(w, text, "l,l,b,", sums, 3, args);
}

void warpgroup_multiply(Warp *w, Elem elem, const Registers *sums, LLVMValueRef a, bool a_across,
                        LLVMValueRef b, bool b_across, LLVMValueRef add) {
  int n = 2 * sums->n;
  const char *text = arena_printf(w->e->arena, "%s, $%d, $%d, $%d, 1, 1, %d, %d;",
                                  product_text(w, elem, sums), n, n + 1, n + 2, a_across, b_across);
  LLVMValueRef args[] = {a, b, add};
  with_sums(w, text, "l,l,b,", sums, 3, args);
}

void warpgroup_multiply_words(Warp *w, Elem elem, const Registers *sums, const LLVMValueRef a[4],
                              LLVMValueRef b, bool b_across, LLVMValueRef add) {
  int n = 2 * sums->n;
  const char *text =
      arena_printf(w->e->arena, "%s, {$%d, $%d, $%d, $%d}, $%d, $%d, 1, 1, %d;",
                   product_text(w, elem, sums), n, n + 1, n + 2, n + 3, n + 4, n + 5, b_across);
  LLVMValueRef args[] = {a[0], a[1], a[2], a[3], b, add};
  with_sums(w, text, "r,r,r,r,l,b,", sums, 6, args);
}

void warpgroup_wait(Warp *w, int groups, const Registers *sums) {
  const char *text = arena_printf(w->e->arena, "wgmma.wait_group.sync.aligned %d;", groups);
  with_sums(w, text, "", sums, 0, NULL);
}

void warpgroup_waited(Warp *w, const Registers *sums) { with_sums(w, "", "", sums, 0, NULL); }

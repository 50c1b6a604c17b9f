/* Vocabulary of register tiles: see tile.h. A transpose takes log2(lanes) rounds of shuffles of two
 * vectors each. */
#include "tile.h"
#include <llvm-c/Comdat.h>

LLVMValueRef tile_elements(Emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef offset) {
  return LLVMBuildInBoundsGEP2(e->builder, type, base, &offset, 1, "");
}

LLVMValueRef tile_add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildNSWAdd(e->builder, a, b, "");
}

LLVMValueRef tile_times(Emit *e, LLVMValueRef a, int64_t factor) {
  return LLVMBuildNSWMul(e->builder, a, emit_i64(e, factor), "");
}

Range tile_range(Emit *e, LLVMValueRef i, int64_t total, int64_t blocks) {
  must(blocks >= 1 && total >= 0, "kernel %s: %lld in %lld blocks", e->k->name, (long long)total,
       (long long)blocks);
  if (blocks == 1) return (Range){emit_i64(e, 0), emit_i64(e, total)};
  LLVMValueRef next = tile_add(e, i, emit_i64(e, 1));
  LLVMValueRef from = LLVMBuildUDiv(e->builder, tile_times(e, i, total), emit_i64(e, blocks), "");
  LLVMValueRef to = LLVMBuildUDiv(e->builder, tile_times(e, next, total), emit_i64(e, blocks), "");
  return (Range){from, to};
}

static void copy_attributes(Emit *e, LLVMValueRef from, LLVMValueRef to) {
  LLVMAttributeIndex at = (LLVMAttributeIndex)LLVMAttributeFunctionIndex;
  unsigned n = LLVMGetAttributeCountAtIndex(from, at);
  LLVMAttributeRef *list = ARENA_ARRAY(e->arena, LLVMAttributeRef, n + 1);
  LLVMGetAttributesAtIndex(from, at, list);
  for (unsigned i = 0; i < n; i++) LLVMAddAttributeAtIndex(to, at, list[i]);
  unsigned noinline_ = LLVMGetEnumAttributeKindForName("noinline", 8);
  LLVMAddAttributeAtIndex(to, at, LLVMCreateEnumAttribute(e->context, noinline_, 0));
}

Aside tile_aside(Emit *e, const char *name, LLVMTypeRef type) {
  must(e->function, "kernel %s: a separate function outside of a phase", e->k->name);
  Aside aside = {.outer = e->function, .block = LLVMGetInsertBlock(e->builder)};
  aside.function =
      LLVMAddFunction(e->module, arena_printf(e->arena, "%s_%s", e->symbol, name), type);
  LLVMSetLinkage(aside.function, LLVMInternalLinkage);
  LLVMSetComdat(aside.function, LLVMGetComdat(e->function));
  copy_attributes(e, e->function, aside.function);
  e->function = aside.function;
  LLVMPositionBuilderAtEnd(e->builder,
                           LLVMAppendBasicBlockInContext(e->context, aside.function, "entry"));
  return aside;
}

void tile_aside_end(Emit *e, Aside *aside) {
  must(e->function == aside->function, "kernel %s: separate functions must end in reverse order",
       e->k->name);
  LLVMBuildRetVoid(e->builder);
  e->function = aside->outer;
  LLVMPositionBuilderAtEnd(e->builder, aside->block);
}

/* ---- transpose ---- */

/* For each group of `group` lanes: pairs of blocks of `size` lanes from x and y in turn, `high`
 * half of them. */
static LLVMValueRef interleave(Emit *e, LLVMValueRef x, LLVMValueRef y, int lanes, int group,
                               int size, bool high) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef index[64];
  for (int i = 0; i < lanes; i++) {
    int g = i / group * group, j = i % group, block = j / size;
    int from = g + (high ? group / 2 : 0) + block / 2 * size + j % size;
    index[i] = LLVMConstInt(i32, (unsigned)(from + (block % 2 ? lanes : 0)), 0);
  }
  return LLVMBuildShuffleVector(e->builder, x, y, LLVMConstVector(index, (unsigned)lanes), "");
}

/* One round: rows i + j and i + j + s of each 2 s rows are joined, low halves before high ones.
 * Rows are `unit` apart. */
static void join_rows(Emit *e, LLVMValueRef *row, int lanes, int unit, int size, int group) {
  LLVMValueRef next[64];
  int s = size / unit;
  for (int c = 0; c < unit; c++)
    for (int i = 0; i < lanes / unit; i += 2 * s)
      for (int j = 0; j < s; j++) {
        LLVMValueRef x = row[(i + j) * unit + c], y = row[(i + j + s) * unit + c];
        next[(i + 2 * j) * unit + c] = interleave(e, x, y, lanes, group, size, false);
        next[(i + 2 * j + 1) * unit + c] = interleave(e, x, y, lanes, group, size, true);
      }
  memcpy(row, next, sizeof *row * (size_t)lanes);
}

/* Rounds of single lanes and pairs stay inside 128 bits, where one cheap shuffle does; the later
   ones move blocks of four lanes over the whole vector. */
void tile_transpose(Emit *e, LLVMValueRef *row, int lanes) {
  must(lanes >= 4 && lanes <= 64 && !(lanes & (lanes - 1)), "kernel %s: a transpose of %d lanes",
       e->k->name, lanes);
  must(emit_lanes_of(row[0]) == lanes, "kernel %s: %d rows of %d lanes", e->k->name, lanes,
       emit_lanes_of(row[0]));
  join_rows(e, row, lanes, 1, 1, 4);
  join_rows(e, row, lanes, 1, 2, 4);
  for (int size = 4; size < lanes; size *= 2) join_rows(e, row, lanes, 4, size, lanes);
}

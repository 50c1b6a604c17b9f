/* Vocabulary of the families that work on register tiles (contract, attention): addresses, separate
   functions, transposes in registers. */
#ifndef SHARDC_TILE_H
#define SHARDC_TILE_H
#include "codegen/emit.h"

LLVMValueRef tile_elements(Emit *e, LLVMTypeRef type, LLVMValueRef base,
                           LLVMValueRef offset); /* address base[offset] */
LLVMValueRef tile_add(Emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef tile_times(Emit *e, LLVMValueRef a, int64_t factor);

/* Range [from, to) of block i of [0, total) cut into `blocks` of nearly equal length. */
typedef struct Range {
  LLVMValueRef from, to;
} Range;
Range tile_range(Emit *e, LLVMValueRef i, int64_t total, int64_t blocks);

/* A separate function next to the phases: keeps register allocation of the inner loops apart from
   everything else. Between begin and end the Emit writes into it; parameters are
   LLVMGetParam(e->function, i). */
typedef struct Aside {
  LLVMValueRef function, outer;
  LLVMBasicBlockRef block;
} Aside;
Aside tile_aside(Emit *e, const char *name, LLVMTypeRef type);
void tile_aside_end(Emit *e, Aside *aside); /* ret void */

/* lanes vectors of lanes elements, transposed in place in registers */
void tile_transpose(Emit *e, LLVMValueRef *row, int lanes);
#endif

/* Inside of the contract family: the parts of one kernel share this. See contract.c for the whole. */
#ifndef SHARDC_CONTRACT_H
#define SHARDC_CONTRACT_H
#include "emit.h"
#include "ir/product.h"

typedef struct Contract {
  Emit *e;
  const Fn *k;
  Product p;
  ProductPlan q;
  LLVMTypeRef f32, vector, ptr, i64, nothing;
  LLVMValueRef micro[2][2], pack_a, pack_b[2]; /* functions made so far: [one row more][one vector more] */
} Contract;

/* One block of k: outer indexes from o0 to o1 in flat order, for each of them `length` inner elements. */
typedef struct KBlock {
  LLVMValueRef o0, o1, start, length;
} KBlock;

/* ---- addresses (contract_address.c) ---- */
typedef enum Side { SIDE_A, SIDE_B, SIDE_R } Side;
int64_t contract_stride(const ProductDim *d, Side s);
int64_t contract_inner_stride(const ProductDims *d, Side s); /* 0 if there are no dims */
/* offset in elements of flat index `flat` over the first n dims of d; constant 0 where n is 0 */
LLVMValueRef contract_offset(Emit *e, const ProductDims *d, int n, LLVMValueRef flat, Side s);
/* index of dim `at` of the first n dims at flat index `flat` */
LLVMValueRef contract_index(Emit *e, const ProductDims *d, int n, int at, LLVMValueRef flat);
LLVMValueRef contract_elements(Emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef offset);
LLVMValueRef contract_add(Emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef contract_times(Emit *e, LLVMValueRef a, int64_t factor);
LLVMTypeRef contract_memory(Emit *e, Elem elem);

/* row tile t: its first row within the inner m dim, its number of rows, the offset of its first element */
LLVMValueRef contract_tile_row(Contract *c, LLVMValueRef t);
LLVMValueRef contract_tile_rows(Contract *c, LLVMValueRef t);
LLVMValueRef contract_tile_outer(Contract *c, LLVMValueRef t); /* flat index over the outer m dims */
LLVMValueRef contract_tile_offset(Contract *c, LLVMValueRef t, Side s);

/* A function of its own beside the phases: keeps register allocation of the inner loops apart from everything else. Between
   begin and end the Emit writes there; parameters are LLVMGetParam(e->function, i). */
typedef struct Aside {
  LLVMValueRef function, outer;
  LLVMBasicBlockRef block;
} Aside;
Aside contract_aside(Emit *e, const char *name, LLVMTypeRef type);
void contract_aside_end(Emit *e, Aside *s); /* ret void */

/* ---- parts ---- */
/* C[rows][vectors] of TILE_VECTORS vectors a row (+)= A B over a block of k; more != 0: adds to what stands in C */
enum { MICRO_A, MICRO_B, MICRO_C, MICRO_O0, MICRO_O1, MICRO_LENGTH, MICRO_MORE, MICRO_AHEAD, MICRO_STEP, MICRO_ARGS };
LLVMValueRef contract_micro(Contract *c, int rows, int vectors);
LLVMTypeRef contract_micro_type(Contract *c);

/* b's panel of vectors v0 .. v0 + vectors - 1 at k block x, from src, into dst[k][vectors * lanes] */
void contract_pack_b(Contract *c, int wide, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef v0, const KBlock *x);
/* a's row tiles t0 .. t1 - 1 at k block x, from src, into dst[tile][k][TILE_ROWS] */
void contract_pack_a(Contract *c, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef t0, LLVMValueRef t1, const KBlock *x);
/* LANES x LANES transposed in registers, in place */
void contract_transpose(Emit *e, LLVMValueRef *row, int lanes);

typedef struct TileAt { /* where a register tile is, for the epilogue */
  LLVMValueRef batch, m_outer, row0, rows, v0, values;
  int vectors;
} TileAt;
void contract_epilogue(Contract *c, const TileAt *t);
#endif

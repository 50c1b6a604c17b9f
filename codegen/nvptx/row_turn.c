/* Variant turned of family row (ir/kernel/row_turned.h): a block of numbers that are neighbours
   across the summed dim is written as codes that are neighbours along it. A thread has TURNED_DEPTH
   elements along the summed dim of each of TURNED_LANES neighbours, in registers from the first use
   to the last; a warp reads whole lines, and warps share the block:

     read; the largest number of each neighbour; leave it in shared memory; barrier
     join those of all warps, and if a block spans the neighbours those of all lanes
     codes of 16 bytes for each neighbour; the first warp also writes the scales

   A kernel with a second result writes the same numbers as they are read as well: each of the
   warp's 16 lines of neighbours is a block, whose largest number the lanes join by exchanges.

   Two warps together write a sector of memory. Must not: write kernels with other results. */
#include "ir/kernel/row_turned.h"
#include "put_codes.h"
#include "row_kernel.h"
#include "space.h"

enum { WARPS = TURNED_THREADS / TURNED_WARP };

typedef struct Turning {
  Emit *e;
  TurnedRows rows;
  Codes codes;
  LLVMValueRef lane, warp; /* i32 */
  Point point[TURNED_DEPTH];
  LLVMValueRef number[TURNED_DEPTH]; /* of TURNED_LANES neighbours */
  LLVMValueRef line[TURNED_DEPTH];   /* the largest of the warp's neighbours, for a second result */
} Turning;

static LLVMTypeRef vector(Emit *e) { return emit_vector(e, ELEM_f32, TURNED_LANES); }

/* The thread's neighbours; `guard`: those that exist. */
static Point neighbours(Turning *turning) {
  Emit *e = turning->e;
  const TurnedRows *rows = &turning->rows;
  LLVMValueRef cta = simt_index(e, simt_cta(e)), lane = simt_index(e, turning->lane);
  LLVMValueRef number = rows->whole ? lane : index_mul_add(e, cta, TURNED_WARP, lane);
  Point p = space_point(e, &rows->space.kept, rows->whole ? 1 : TURNED_LANES,
                        rows->whole ? cta : number, NULL);
  if (rows->whole)
    point_set(&p, (Index){.dim = rows->across,
                          .at = index_mul_add(e, lane, TURNED_LANES, emit_index(e, 0)),
                          .lane = true,
                          .multiple = TURNED_LANES});
  if (rows->vectors % TURNED_WARP)
    p.guard =
        LLVMBuildICmp(e->builder, LLVMIntULT, number, emit_index(e, rows->vectors), "present");
  return p;
}

static void read_all(Turning *turning) {
  Emit *e = turning->e;
  Point p = neighbours(turning);
  LLVMValueRef first =
      index_mul_add(e, simt_index(e, turning->warp), TURNED_DEPTH, emit_index(e, 0));
  for (int i = 0; i < TURNED_DEPTH; i++) {
    LLVMValueRef at = i ? LLVMBuildNSWAdd(e->builder, first, emit_index(e, i), "") : first;
    point_set(&p, (Index){.dim = turning->rows.along, .at = at});
    turning->point[i] = p;
    turning->number[i] = expr_value(e, turning->rows.quantize->in[0], &p);
  }
}

/* Where that warp leaves the lane's numbers. */
static LLVMValueRef slot(Turning *turning, LLVMValueRef warp) {
  LLVMValueRef at = index_mul_add(turning->e, warp, TURNED_WARP, turning->lane);
  return simt_shared_at(turning->e,
                        index_mul_add(turning->e, at, TURNED_LANES * 4, simt_i32(turning->e, 0)));
}

/* The largest of all lanes. */
static LLVMValueRef joined(Turning *turning, LLVMValueRef most) {
  Emit *e = turning->e;
  most = math_across(e, OP_rmax, most);
  for (int by = 1; by < TURNED_WARP; by *= 2)
    most = math_combine(e, OP_rmax, most, simt_shuffle_xor(e, most, by));
  return most;
}

/* The largest of each neighbour's block, or of the block that spans them. */
static LLVMValueRef largest(Turning *turning) {
  Emit *e = turning->e;
  LLVMValueRef most = NULL;
  for (int i = 0; i < TURNED_DEPTH; i++) {
    LLVMValueRef x = expr_value(e, turning->rows.most->in[0], &turning->point[i]);
    most = most ? math_combine(e, OP_rmax, most, x) : x;
    if (turning->rows.other_most) turning->line[i] = joined(turning, x);
  }
  LLVMSetAlignment(LLVMBuildStore(e->builder, most, slot(turning, turning->warp)), 16);
  simt_barrier(e);
  for (int i = 0; i < WARPS; i++) {
    LLVMValueRef x = LLVMBuildLoad2(e->builder, vector(e), slot(turning, simt_i32(e, i)), "");
    LLVMSetAlignment(x, 16);
    most = i ? math_combine(e, OP_rmax, most, x) : x;
  }
  return turning->rows.whole ? emit_splat(e, joined(turning, most), TURNED_LANES) : most;
}

/* Codes of neighbour `which`: 16 bytes. */
static LLVMValueRef codes_along(Turning *turning, int which, LLVMValueRef by) {
  Emit *e = turning->e;
  LLVMTypeRef pairs = LLVMVectorType(LLVMInt16TypeInContext(e->context), TURNED_DEPTH / 2);
  LLVMValueRef all = LLVMGetPoison(pairs), at = simt_i32(e, which);
  by = LLVMBuildExtractElement(e->builder, by, at, "");
  for (int i = 0; i < TURNED_DEPTH; i += 2) {
    LLVMValueRef two[2];
    for (int j = 0; j < 2; j++) {
      two[j] = LLVMBuildExtractElement(e->builder, turning->number[i + j], at, "");
      two[j] = LLVMBuildFMul(e->builder, two[j], by, "");
    }
    all = LLVMBuildInsertElement(e->builder, all,
                                 codes_pair(e, turning->codes.format, two[0], two[1]),
                                 simt_i32(e, i / 2), "");
  }
  return LLVMBuildBitCast(e->builder, all, emit_vector(e, ELEM_i32, TURNED_DEPTH / 4), "");
}

static void write_all(Turning *turning, LLVMValueRef most) {
  Emit *e = turning->e;
  uint32_t buffer = e->k->args.n;
  LLVMValueRef scale = codes_scale(e, turning->codes.format, most), by = codes_inverse(e, scale),
               first = codes_offset(e, e->k->results.at[0], &turning->point[0]);
  for (int i = 0; i < TURNED_LANES; i++) {
    LLVMValueRef offset =
        LLVMBuildNSWAdd(e->builder, first, emit_index(e, i * turning->rows.stride), "");
    LLVMValueRef to = LLVMBuildInBoundsGEP2(e->builder, LLVMInt8TypeInContext(e->context),
                                            emit_buffer(e, buffer), &offset, 1, "");
    LLVMSetAlignment(LLVMBuildStore(e->builder, codes_along(turning, i, by), to), 16);
    codes_put_scale(e, buffer, &turning->codes, offset,
                    LLVMBuildExtractElement(e->builder, scale, simt_i32(e, i), ""));
  }
}

static void write_lines(Turning *turning) {
  Emit *e = turning->e;
  for (int i = 0; i < TURNED_DEPTH; i++) {
    expr_bind(e, turning->rows.other_most->out, turning->line[i]);
    nvptx_put_codes(e, e->k->results.at[1], e->k->args.n + 1, &turning->point[i]);
  }
}

void row_turned_emit(Emit *e) {
  Turning turning = {.e = e};
  if (!row_turned(e->m, e->k, &turning.rows)) bug("kernel %s: nothing to turn", e->k->name);
  kernel_codes(e->k, e->k->args.n, &turning.codes);
  e->lanes = TURNED_LANES;
  emit_begin_phase(e, 0);
  turning.lane = simt_lane(e), turning.warp = simt_warp(e);
  read_all(&turning);
  LLVMValueRef most = largest(&turning), present = turning.point[0].guard;
  if (turning.rows.other_most) write_lines(&turning);
  Branch branch = {0};
  if (present) branch = emit_if(e, present);
  write_all(&turning, most);
  if (present) emit_end_if(e, branch);
  emit_end_phase(e);
}

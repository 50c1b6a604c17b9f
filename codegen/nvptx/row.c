/* Family row on a GPU: reductions and scans over the same dims, with element-wise ops before,
   between and after.

   A group of threads has one row: a part of a warp, a warp, or a CTA. Variants:
     held      every thread holds its vectors of the row in registers from the first level of
               reductions to the last, so that memory is read once: the generator writes the levels
               one after the other over the same points, and the expression generator remembers
               the values that it evaluated at them
     online, kept   long rows of a softmax are walked once for all levels (row_online.c)
     turns     other long rows are walked once per level; a few rows that are summed once are cut
               like those of family column (`columns`, `along`)
     rows      rows are contiguous in memory; each thread has a vector of them to itself
     turned    such rows are rounded to 8 bits, and written one after the other (row_turn.c)

   Bits of results that are bytes along the row are combined by exchanges between the threads of a
   byte. A kernel that also has sums of columns takes rows in turn (row_sums.c).

   The states of a level's reductions are joined over the group; every thread then has the results.
   Results of full size are stored in the last level, all evaluated first, those of the row by the
   group's first thread. A scan is computed by a warp, 32 elements at a time, into memory (shared,
   or the workspace), where later levels read it. */
#include "families.h"
#include "row_kernel.h"
#include "space.h"
#include "ir/apart.h"
#include "ir/kernel/gpu_plan.h"

enum { BITS = 8 }; /* of a byte */

static const Op *reduction(const RowKernel *kernel, int i) {
  return &kernel->e->k->ops.at[kernel->r.op[i]];
}
static bool is_scan(const Op *o) { return op_family(o->code) == FAMILY_SCAN; }

static bool sums_now(const RowKernel *kernel, int i) {
  return !is_scan(reduction(kernel, i)) &&
         kernel->level[reduction(kernel, i)->in[0]] == kernel->pass;
}

static void sort_results(RowKernel *kernel) {
  const Fn *k = kernel->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (nest_is_column_sum(k, &kernel->r, v)) continue;
    if (reduction_packed(k, &kernel->r, v) != NO_VALUE) kernel->packed[kernel->npacked++] = v;
    else if (reduction_along(k, &kernel->r, v)) kernel->full[kernel->nfull++] = v;
    else kernel->per_row[kernel->nrow++] = v;
  }
}

/* ---- points of a row ---- */

/* Vector `flat` of the row; `inside`: it is known to exist. */
static Point point_at(RowKernel *kernel, LLVMValueRef flat, bool inside) {
  Emit *e = kernel->e;
  Point p = space_point(e, &kernel->over, kernel->lanes_over, flat, &kernel->row);
  if (inside) return p;
  LLVMValueRef present =
      LLVMBuildICmp(e->builder, LLVMIntULT, flat, emit_index(e, kernel->length), "present");
  p.guard = kernel->valid ? LLVMBuildAnd(e->builder, present, kernel->valid, "") : present;
  return p;
}

static LLVMValueRef vector_number(RowKernel *kernel, LLVMValueRef first, int64_t which) {
  LLVMValueRef by = emit_index(kernel->e, which * kernel->group);
  return which ? LLVMBuildNSWAdd(kernel->e->builder, first, by, "") : first;
}

Point row_nth_point(RowKernel *kernel, LLVMValueRef first, int64_t which, int64_t done) {
  LLVMValueRef flat = vector_number(kernel, first, which);
  return point_at(kernel, flat, done + (which + 1) * kernel->group <= kernel->length);
}

/* ---- bytes of bits along the row ---- */

static const Op *packing(const RowKernel *kernel, uint32_t i) {
  return value_def(kernel->e->k, kernel->packed[i]);
}

/* Threads of a group whose lanes are bytes together; rows of one thread are packed apart. */
static bool packs_in_step(const RowKernel *kernel) {
  return kernel->npacked && !kernel->side && kernel->group * kernel->lanes_over >= BITS;
}

/* Bit k of lane k, on from the thread's place in the byte, put together with its neighbours'. */
static LLVMValueRef byte_of(RowKernel *kernel, LLVMValueRef bits) {
  Emit *e = kernel->e;
  int lanes = kernel->lanes_over;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef word = simt_i32(e, 0), each = simt_i32(e, lanes);
  for (int k = 0; k < lanes; k++) {
    LLVMValueRef bit =
        emit_lanes_of(bits) ? LLVMBuildExtractElement(e->builder, bits, simt_i32(e, k), "") : bits;
    bit = LLVMBuildShl(e->builder, LLVMBuildZExt(e->builder, bit, i32, ""), simt_i32(e, k), "");
    word = LLVMBuildOr(e->builder, word, bit, "");
  }
  LLVMValueRef place = index_rem(e, simt_thread(e), BITS / lanes);
  word = LLVMBuildShl(e->builder, word, LLVMBuildMul(e->builder, place, each, ""), "");
  for (int by = 1; by < BITS / lanes; by *= 2)
    word = LLVMBuildOr(e->builder, word, simt_shuffle_xor(e, word, by), "");
  return LLVMBuildTrunc(e->builder, word, LLVMInt8TypeInContext(e->context), "");
}

/* The first of a byte's threads stores it. */
static void put_byte(RowKernel *kernel, uint32_t i, const Point *p, LLVMValueRef byte) {
  Emit *e = kernel->e;
  const Op *o = packing(kernel, i);
  LLVMValueRef bit = point_find(p, o->group[0].from[0])->at;
  LLVMValueRef place = index_rem(e, kernel->thread, BITS / kernel->lanes_over);
  LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntEQ, place, emit_index(e, 0), "");
  Point q = *p;
  q.guard = p->guard ? LLVMBuildAnd(e->builder, p->guard, first, "") : first;
  point_set(&q, (Index){.dim = o->group[0].to[0], .at = index_div(e, bit, BITS)});
  walk_put(e, &kernel->kept, NULL, &q, 1, &kernel->packed[i], &byte);
}

/* Byte by byte, before the last walk overwrites what they are made from. */
static void pack_apart(RowKernel *kernel) {
  if (kernel->npacked && !packs_in_step(kernel))
    walk_store_packed(kernel->e, &kernel->kept, &kernel->row, kernel->npacked, kernel->packed);
}

/* ---- one level ---- */

static void take(RowKernel *kernel, int64_t n) {
  for (int i = 0; i < kernel->r.n; i++)
    for (int64_t u = 0; u < n && sums_now(kernel, i); u++)
      accumulator_take(kernel->e, &kernel->acc[i], (int)(u % kernel->acc[i].n), &kernel->point[u]);
}

static void store_bytes(RowKernel *kernel, int64_t n) {
  for (int64_t u = 0; u < n && packs_in_step(kernel); u++)
    for (uint32_t i = 0; i < kernel->npacked; i++) {
      const Point *p = &kernel->point[u];
      put_byte(kernel, i, p, byte_of(kernel, expr_value(kernel->e, packing(kernel, i)->in[0], p)));
    }
}

static void store_full(RowKernel *kernel, LLVMValueRef first, int64_t n) {
  LLVMValueRef *value = ARENA_ARRAY(kernel->e->arena, LLVMValueRef, (size_t)n * kernel->nfull + 1);
  if (kernel->pass != kernel->passes - 1) return;
  store_bytes(kernel, n);
  for (int64_t u = 0; u < n; u++)
    for (uint32_t i = 0; i < kernel->nfull; i++)
      value[u * kernel->nfull + i] = expr_value(kernel->e, kernel->full[i], &kernel->point[u]);
  for (int64_t u = 0; u < n; u++) row_sums_take(kernel, u, vector_number(kernel, first, u));
  for (int64_t u = 0; u < n; u++)
    walk_put(kernel->e, &kernel->kept, &kernel->over, &kernel->point[u], kernel->nfull,
             kernel->full, &value[u * kernel->nfull]);
}

static void some_points(RowKernel *kernel, LLVMValueRef first, int64_t n, int64_t done) {
  expr_forget(kernel->e);
  for (int64_t u = 0; u < n; u++) kernel->point[u] = row_nth_point(kernel, first, u, done);
  take(kernel, n);
  store_full(kernel, first, n);
  expr_forget(kernel->e);
}

/* Whole turns in a loop, then what is left. Values of a walk without a loop would otherwise stay in
   registers for the next one, which reads them again. */
static void turns(RowKernel *kernel) {
  Emit *e = kernel->e;
  if (kernel->pass) kernel->thread = simt_read_now(e, kernel->thread);
  int64_t turn = kernel->group * kernel->vectors, whole = kernel->length / turn;
  if (whole) {
    Loop loop = emit_loop(e, emit_index(e, 0), emit_index(e, whole * turn), turn, 0, NULL);
    LLVMValueRef first = LLVMBuildNSWAdd(e->builder, loop.i, kernel->thread, "");
    some_points(kernel, first, kernel->vectors, -turn);
    emit_loop_end(e, &loop);
  }
  int64_t left = kernel->length - whole * turn;
  if (!left) return;
  LLVMValueRef first = LLVMBuildNSWAdd(e->builder, kernel->thread, emit_index(e, whole * turn), "");
  some_points(kernel, first, (left + kernel->group - 1) / kernel->group, whole * turn);
}

static bool walks(const RowKernel *kernel) {
  bool stores = kernel->nfull || kernel->r.ncolumns || packs_in_step(kernel);
  if (kernel->pass == kernel->passes - 1 && stores) return true;
  for (int i = 0; i < kernel->r.n; i++)
    if (sums_now(kernel, i)) return true;
  return false;
}

static int collect_states(RowKernel *kernel, GroupSum *sum) {
  int n = 0;
  for (int i = 0; i < kernel->r.n; i++)
    if (sums_now(kernel, i)) {
      sum[n].op = reduction(kernel, i);
      sum[n].elem = value_type(kernel->e->k, sum[n].op->in[0])->elem;
      accumulator_state(kernel->e, &kernel->acc[i], sum[n++].state);
    }
  return n;
}

/* Every level has its own part of the shared memory, so that no thread writes what another reads.
 */
static int64_t exchange_at(const RowKernel *kernel) {
  int before = 0;
  for (int i = 0; i < kernel->r.n; i++)
    before +=
        !is_scan(reduction(kernel, i)) && kernel->level[reduction(kernel, i)->in[0]] < kernel->pass;
  return (int64_t)before * GROUP_EXCHANGE;
}

void row_join(RowKernel *kernel, int n, GroupSum *sum) {
  Emit *e = kernel->e;
  group_join(e, kernel->group, exchange_at(kernel), n, sum);
  for (int i = 0; i < n; i++)
    expr_bind(e, sum[i].op->out, accumulator_result(e, sum[i].op, sum[i].state));
}

static void level(RowKernel *kernel) {
  Emit *e = kernel->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, kernel->r.n + 1);
  for (int i = 0; i < kernel->r.n; i++)
    if (sums_now(kernel, i)) accumulator_start(e, &kernel->acc[i]);
  if (!kernel->held) {
    turns(kernel);
  } else {
    take(kernel, kernel->vectors);
    store_full(kernel, kernel->thread, kernel->vectors);
  }
  row_join(kernel, collect_states(kernel, sum), sum);
}

/* ---- scans: one warp per row ---- */

static Elem scan_elem(const RowKernel *kernel, const Op *o) {
  return accumulator_elem(value_type(kernel->e->k, o->in[0])->elem, 0);
}

/* The row that scan `which` leaves in shared memory (of this warp), or in the workspace. */
static LLVMValueRef scan_memory(RowKernel *kernel, int which) {
  Emit *e = kernel->e;
  int before = 0, all = 0;
  for (int i = 0; i < kernel->r.n; i++)
    all += is_scan(reduction(kernel, i)), before += i < which && is_scan(reduction(kernel, i));
  int64_t bytes = gpu_scan_bytes(&kernel->r);
  if (!gpu_scan_in_workspace(e->k, &kernel->r)) {
    LLVMValueRef warp = LLVMBuildLShr(e->builder, simt_thread(e), simt_i32(e, 5), "");
    return simt_shared_at(e, index_mul_add(e, warp, all * bytes, simt_i32(e, before * bytes)));
  }
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef at = LLVMBuildZExt(e->builder, kernel->number, i64, "");
  at = index_mul_add(e, at, all * bytes, emit_i64(e, before * bytes));
  LLVMValueRef workspace = emit_buffer(e, e->k->args.n + e->k->results.n);
  return LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), workspace, &at, 1, "");
}

static LLVMValueRef scan_turn(RowKernel *kernel, const Op *o, LLVMValueRef memory,
                              LLVMValueRef first, LLVMValueRef carry) {
  Emit *e = kernel->e;
  Elem elem = scan_elem(kernel, o);
  LLVMValueRef at = LLVMBuildNSWAdd(e->builder, first, kernel->thread, "");
  Point p = kernel->row;
  p.guard = LLVMBuildICmp(e->builder, LLVMIntULT, at, emit_index(e, kernel->length), "present");
  if (attr_int(&o->attrs, ATTR_inverse, 0))
    at = LLVMBuildNSWSub(e->builder, emit_index(e, kernel->length - 1), at, "");
  point_set(&p, (Index){.dim = o->group[0].from[0], .at = at});
  expr_forget(e);
  LLVMValueRef x = LLVMBuildSelect(e->builder, p.guard, expr_value(e, o->in[0], &p),
                                   emit_number(e, elem, 0), "");
  expr_forget(e);
  LLVMValueRef sum = math_combine(e, OP_sum, carry, group_sum_up_to(e, x));
  Branch present = emit_if(e, p.guard);
  LLVMValueRef to = LLVMBuildGEP2(e->builder, emit_type(e, elem), memory, &at, 1, "");
  LLVMSetAlignment(LLVMBuildStore(e->builder, sum, to), (unsigned)elem_bytes(elem));
  emit_end_if(e, present);
  return simt_shuffle_from(e, sum, simt_i32(e, WARP - 1));
}

static void scan(RowKernel *kernel, int which) {
  Emit *e = kernel->e;
  const Op *o = reduction(kernel, which);
  Elem elem = scan_elem(kernel, o);
  LLVMValueRef memory = scan_memory(kernel, which), zero = emit_number(e, elem, 0);
  Loop loop = emit_loop(e, emit_index(e, 0), emit_index(e, kernel->length), WARP, 1, &zero);
  loop.next[0] = scan_turn(kernel, o, memory, loop.i, loop.phi[0]);
  emit_loop_end(e, &loop);
  simt_warp_barrier(e);
  expr_bind_row(e, o->out, memory, o->group[0].from[0], elem);
}

/* ---- rows ---- */

static void hold_points(RowKernel *kernel) {
  for (int64_t u = 0; u < kernel->vectors; u++)
    kernel->point[u] = row_nth_point(kernel, kernel->thread, u, 0);
}

static bool is_of_rows(const RowKernel *kernel, ValueId v) {
  for (uint32_t i = 0; i < kernel->nrow; i++)
    if (kernel->per_row[i] == v) return true;
  return false;
}

/* All threads of a group read what belongs to the row; one of them writes, perhaps into the same
 * memory. */
static void wait_for_readers(RowKernel *kernel) {
  Emit *e = kernel->e;
  bool alone = true;
  for (uint32_t r = 0; r < e->k->results.n; r++)
    if (is_of_rows(kernel, e->k->results.at[r]))
      alone &= kernel_buffer_apart(e->k, e->k->args.n + r);
  if (alone || kernel->group == 1) return;
  if (kernel->group > WARP) simt_barrier(e);
  else simt_warp_barrier(e);
}

static void store_row(RowKernel *kernel) {
  Emit *e = kernel->e;
  LLVMValueRef value[MAX_RESULTS], first = NULL;
  if (!kernel->nrow) return;
  for (uint32_t i = 0; i < kernel->nrow; i++)
    value[i] = expr_value(e, kernel->per_row[i], &kernel->row);
  wait_for_readers(kernel);
  if (kernel->group > 1)
    first = LLVMBuildICmp(e->builder, LLVMIntEQ, kernel->thread, emit_index(e, 0), "first");
  Branch branch = {0};
  if (first) branch = emit_if(e, first);
  walk_put(e, &kernel->kept, NULL, &kernel->row, kernel->nrow, kernel->per_row, value);
  if (first) emit_end_if(e, branch);
}

static void one_row(RowKernel *kernel) {
  Emit *e = kernel->e;
  kernel->row = space_point(e, &kernel->kept, kernel->side ? e->lanes : 1, kernel->number, NULL);
  kernel->row.guard = kernel->valid;
  if (kernel->held) hold_points(kernel);
  if (kernel->online) row_online_emit(kernel);
  for (kernel->pass = 0; !kernel->online && kernel->pass < kernel->passes; kernel->pass++) {
    if (kernel->pass == kernel->passes - 1) pack_apart(kernel);
    if (walks(kernel)) level(kernel);
    for (int i = 0; i < kernel->r.n; i++)
      if (is_scan(reduction(kernel, i)) &&
          kernel->level[reduction(kernel, i)->in[0]] == kernel->pass)
        scan(kernel, i);
  }
  store_row(kernel);
}

static void make_accumulators(RowKernel *kernel) {
  Emit *e = kernel->e;
  kernel->acc = ARENA_ARRAY(e->arena, Accumulator, kernel->r.n + 1);
  int n = kernel->vectors < 4 ? (int)kernel->vectors : 4;
  for (int i = 0; i < kernel->r.n; i++)
    if (!is_scan(reduction(kernel, i)))
      kernel->acc[i] = accumulator_new(e, reduction(kernel, i), e->lanes, !kernel->side, n);
}

/* Groups of whole warps without a row do nothing, smaller ones must take part in exchanges and are
 * guarded. */
static void row_if_present(RowKernel *kernel, int64_t rows) {
  Emit *e = kernel->e;
  int64_t groups = kernel->ctas * (simt_threads(e, 0) / kernel->group);
  Branch branch = {0};
  bool ragged = rows != groups * kernel->turns, small = kernel->group > 1 && kernel->group < WARP;
  LLVMValueRef present = NULL;
  if (ragged)
    present = LLVMBuildICmp(e->builder, LLVMIntULT, kernel->number, emit_index(e, rows), "row");
  if (ragged && small) kernel->valid = present;
  else if (ragged) branch = emit_if(e, present);
  e->guarded = kernel->valid ? NULL : &kernel->r.over;
  one_row(kernel);
  if (ragged && !small) emit_end_if(e, branch);
}

/* Rows that a group takes in turn are as far apart as there are groups. A CTA that joins sums in
   shared memory waits before it writes those of the next row. */
static void rows_in_turn(RowKernel *kernel, int64_t rows) {
  Emit *e = kernel->e;
  int64_t groups = kernel->ctas * (simt_threads(e, 0) / kernel->group);
  LLVMValueRef first = kernel->number;
  Loop loop = emit_loop(e, emit_index(e, 0), emit_index(e, kernel->turns), 1, 0, NULL);
  kernel->number = index_mul_add(e, loop.i, groups, first);
  expr_forget(e);
  row_if_present(kernel, rows);
  expr_forget(e);
  if (kernel->group > WARP) simt_barrier(e);
  emit_loop_end(e, &loop);
}

static void find_rows(RowKernel *kernel, int64_t rows) {
  Emit *e = kernel->e;
  int64_t per_cta = simt_threads(e, 0) / kernel->group;
  LLVMValueRef thread = simt_thread(e), cta = simt_index(e, simt_cta(e));
  kernel->ctas = simt_ctas(e, 0);
  kernel->thread = simt_index(e, index_rem(e, thread, kernel->group));
  kernel->number =
      index_mul_add(e, cta, per_cta, simt_index(e, index_div(e, thread, kernel->group)));
  row_sums_start(kernel);
  if (kernel->turns > 1) rows_in_turn(kernel, rows);
  else row_if_present(kernel, rows);
  row_sums_leave(kernel);
}

static void read_tile(RowKernel *kernel) {
  Emit *e = kernel->e;
  const int64_t *tile = emit_tile(e, gpu_row_tile(&kernel->r));
  Str variant = attr_str(&e->k->attrs, ATTR_variant, "");
  kernel->side = !strcmp(variant, "rows"), kernel->held = !strcmp(variant, "held");
  e->lanes = (int)tile[ROW_LANES];
  kernel->lanes_over = kernel->side ? 1 : e->lanes;
  kernel->group = tile[ROW_GROUP], kernel->vectors = tile[ROW_VECTORS];
  kernel->turns = kernel->r.ncolumns ? tile[ROW_TURNS] : 1;
  kernel->length = space_vectors(e, &kernel->over, kernel->lanes_over);
  kernel->keeps = !strcmp(variant, "kept");
  if (kernel->keeps || !strcmp(variant, "online")) {
    OnlineRows *online = ARENA_NEW(e->arena, OnlineRows);
    if (!rows_online(e->arena, e->k, &kernel->r, online))
      bug("kernel %s: its rows have no walk for all levels", e->k->name);
    kernel->online = online;
  }
  if (kernel->vectors > GPU_HELD_MOST) bug("kernel %s: a thread has too many vectors", e->k->name);
}

void gpu_row_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  if (!strcmp(variant, "columns") || !strcmp(variant, "along")) {
    gpu_column_emit(e);
    return;
  }
  if (!strcmp(variant, "turned")) {
    row_turned_emit(e);
    return;
  }
  reduction_check(e, false);
  RowKernel *kernel = ARENA_NEW(e->arena, RowKernel);
  ReducedSpace space = row_space(k);
  kernel->e = e, kernel->r = space.r, kernel->kept = space.kept, kernel->over = space.over;
  kernel->level = reduction_levels(e->arena, k);
  kernel->passes = reduction_passes(k, &kernel->r, kernel->level);
  read_tile(kernel);
  sort_results(kernel);
  emit_begin_phase(e, 0);
  make_accumulators(kernel);
  find_rows(kernel, space_vectors(e, &kernel->kept, kernel->side ? e->lanes : 1));
  emit_end_phase(e);
  row_sums_join(kernel);
}

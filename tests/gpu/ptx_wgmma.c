/* Products of warpgroups: wgmma.mma_async on operands in shared memory, its groups and waits, and
 * the fence between ordinary writes and asynchronous reads of shared memory.
 *
 * A warp has 16 of the 64 rows: those of its number in the group of four, so each warp computes its
 * part by itself. In eager mode that happens at the issue, in late mode at the wait for its group:
 * then shared memory that was overwritten too early, and sums that were read too early, give other
 * numbers. Operands are in the layout of 128-byte swizzles: bf16 or f16, k or the other dim
 * contiguous, or e4m3 and e5m2 with k contiguous; a left one of 16 bits may be in registers, which
 * are read when the product is computed. With checks, every word read must have been written, not
 * raced for, and be fenced by its writer (fence.proxy.async).
 *
 * Sums are those of f32 multiply-adds in the order of k. GPUs align the products of 8 bits to the
 * largest one and keep some 14 bits of their sum: this machine is more exact.
 *
 * Must not: know other layouts: a descriptor that asks for one ends the launch. */
#include "ptx_lanes.h"
#include "ptx_read.h"
#include <stdio.h>
#include <stdlib.h>

enum { IN_REGISTERS = 4 };
enum { ROWS = 16, BYTES = 32, MOST_DEPTH = 32, MOST_COLUMNS = 256, GROUP_WARPS = 4 };
enum { ATOM = 1024, SWIZZLE_128 = 1, PIECE = 16 };
static const char *const forms[] = {"bf16", "f16", "e4m3", "e5m2"};
enum { FORM_BF16, FORM_F16, FORM_E4M3, FORM_E5M2, FORMS };

struct Product {
  Product *next;
  const Op *op;
  uint64_t a, b; /* descriptors */
  bool add;      /* to the sums, else they begin */
  uint32_t group, stamp;
};

/* op: sub: the form of a, and FORMS times that of b; flag: bit 0 a, bit 1 b: the other dim is
 * contiguous, not k, bit 2: a is in the four registers that follow the sums in `list`; imm: columns
 */
typedef struct Operand {
  Warp *w;
  const Op *op;
  uint64_t descriptor;
  int form;
  bool turned; /* k is not contiguous */
  uint32_t stamp;
} Operand;

static int form_of(const Op *op, bool is_b) { return is_b ? op->sub / FORMS : op->sub % FORMS; }
static int bytes_of(int form) { return form >= FORM_E4M3 ? 1 : 2; }
static int depth_of(const Op *op) { return BYTES / bytes_of(form_of(op, false)); }

static float number_of(int form, const unsigned char *at) {
  uint16_t h;
  if (form == FORM_E4M3) return e4m3_to_float(*at);
  if (form == FORM_E5M2) return f16_to_float((uint16_t)(*at << 8));
  memcpy(&h, at, 2);
  return form == FORM_F16 ? f16_to_float(h) : bf16_to_float(h);
}

/* ---- the address of an element ---- */
static uint32_t field(uint64_t descriptor, int from) {
  return (uint32_t)(descriptor >> from & 0x3fff) << 4;
}

/* Element k of row or column i. */
static uint32_t place_of(const Operand *x, int i, int k) {
  uint32_t at = field(x->descriptor, 0), leading = field(x->descriptor, 16),
           stride = field(x->descriptor, 32);
  at += x->turned ? (uint32_t)(i / 64) * leading + (uint32_t)(k / 8) * stride +
                        (uint32_t)(k % 8) * 128 + (uint32_t)(i % 64) * 2
                  : (uint32_t)(i / 8) * stride + (uint32_t)(i % 8) * 128 +
                        (uint32_t)(k * bytes_of(x->form));
  return at ^ ((at >> 3) & 0x70);
}

bool check_fenced(Warp *w, const Op *op, int lane, uint32_t at) {
  const Cta *c = w->cta;
  if (!c->shared.cells) return true;
  uint32_t stamp = c->shared.cells[at >> 2].wrote >> 5, of = stamp - c->first_stamp;
  if (!stamp || of >= c->nowner || c->owner[of] >= c->nwarps) return true;
  if (stamp < c->warps[c->owner[of]].fenced) return true;
  fault(w, op, lane, "warp %u wrote the bytes at 0x%x and no fence.proxy.async followed",
        c->owner[of], at);
  return false;
}

/* The consecutive elements of 16 bytes, from (i, k) on. */
static bool read_piece(const Operand *x, int i, int k, float *out, int apart) {
  uint32_t at = place_of(x, i, k);
  Warp *w = x->w;
  if (at < SHARED_FIRST || at + PIECE > w->cta->shared_end)
    return fault(w, x->op, 0, "an operand at 0x%x is out of shared memory", at), false;
  Touch t = {.plane = &w->cta->shared,
             .offset = at,
             .bytes = PIECE,
             .product = true,
             .stamp = x->stamp,
             .space = SPACE_SHARED};
  if (w->cta->shared.cells &&
      (!touch(w, x->op, i % LANES, &t) || !check_fenced(w, x->op, i % LANES, at)))
    return false;
  for (int j = 0, each = bytes_of(x->form); j < PIECE / each; j++)
    out[j * apart] = number_of(x->form, w->cta->shared.data + at + j * each);
  return true;
}

/* out[k][i] for n rows or columns from `first` on. */
static bool read_operand(const Operand *x, int first, int n, float *out) {
  bool good = true;
  int depth = depth_of(x->op), piece = PIECE / bytes_of(x->form);
  if (x->turned) {
    for (int k = 0; k < depth; k++)
      for (int i = 0; i < n && good; i += 8) good = read_piece(x, first + i, k, out + k * n + i, 1);
  } else {
    for (int i = 0; i < n; i++)
      for (int k = 0; k < depth && good; k += piece)
        good = read_piece(x, first + i, k, out + k * n + i, n);
  }
  return good;
}

/* out[k][i] from registers: word q of a lane is row l / 4 (+ 8 where q is odd), two elements from k
 * 2 (l % 4) (+ 8 from q 2 on). */
static void read_registers(Warp *w, const Op *op, float *out) {
  for (int q = 0; q < 4; q++)
    for (int l = 0; l < LANES; l++) {
      uint32_t word = ((const uint32_t *)reg_at(w, op->list[op->imm / 2 + q]))[l];
      for (int j = 0; j < 2; j++) {
        uint16_t h = (uint16_t)(word >> 16 * j);
        int row = l / 4 + q % 2 * 8, k = 2 * (l % 4) + j + q / 2 * 8;
        out[k * ROWS + row] = number_of(form_of(op, false), (const unsigned char *)&h);
      }
    }
}

static bool read_left(Warp *w, const Product *p, float *out) {
  if (p->op->flag & IN_REGISTERS) return read_registers(w, p->op, out), true;
  Operand left = {w, p->op, p->a, form_of(p->op, false), p->op->flag & 1, p->stamp};
  return read_operand(&left, ROWS * (int)(w->index % GROUP_WARPS), ROWS, out);
}

/* ---- the product ---- */
static void multiply(const float *a, const float *b, int depth, int n, float *sums) {
  for (int k = 0; k < depth; k++)
    for (int i = 0; i < ROWS; i++) {
      float x = a[k * ROWS + i];
      for (int j = 0; j < n; j++)
        sums[i * n + j] = __builtin_fmaf(x, b[k * n + j], sums[i * n + j]);
    }
}

/* Sum q of a lane: rows l / 4 and 8 below alternate by pairs; columns by eights. */
static float *sum_of(float *sums, int n, int lane, int q) {
  int row = lane / 4 + 8 * (q / 2 % 2), column = 8 * (q / 4) + 2 * (lane % 4) + q % 2;
  return &sums[row * n + column];
}

static bool perform(Warp *w, const Product *p) {
  static _Thread_local float a[MOST_DEPTH * ROWS], b[MOST_DEPTH * MOST_COLUMNS],
      sums[ROWS * MOST_COLUMNS];
  int n = (int)p->op->imm;
  Operand right = {w, p->op, p->b, form_of(p->op, true), p->op->flag >> 1 & 1, p->stamp};
  if (!read_left(w, p, a) || !read_operand(&right, 0, n, b)) return false;
  for (int q = 0; q < n / 2; q++)
    for (int l = 0; l < LANES; l++)
      *sum_of(sums, n, l, q) =
          p->add ? float_of(((const uint32_t *)reg_at(w, p->op->list[q]))[l]) : 0;
  multiply(a, b, depth_of(p->op), n, sums);
  for (int q = 0; q < n / 2; q++)
    for (int l = 0; l < LANES; l++)
      ((uint32_t *)reg_at(w, p->op->list[q]))[l] = bits_of(*sum_of(sums, n, l, q));
  return true;
}

static bool check_descriptor(Warp *w, const Op *op, const Product *p) {
  uint64_t both[] = {p->a, p->b};
  for (int i = op->flag & IN_REGISTERS ? 1 : 0; i < 2; i++) {
    if (both[i] >> 62 != SWIZZLE_128 || both[i] >> 49 & 7)
      return fault(w, op, 0,
                   "a descriptor %016llx without swizzles of 128 bytes, or with an offset",
                   (unsigned long long)both[i]),
             false;
    if (field(both[i], 32) != ATOM)
      return fault(w, op, 0, "eight rows end to end are %d bytes, the descriptor says %u", ATOM,
                   field(both[i], 32)),
             false;
  }
  return true;
}

static uint64_t left_descriptor(Warp *w, const Op *op, int lane) {
  return op->flag & IN_REGISTERS ? 0 : reg_get(w, op->a, REG_64, lane);
}

/* a, b: descriptors; c: whether to add. */
static Went step_product(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!together(w, op, mask, ALL_LANES, &went)) return went;
  if (mask != ALL_LANES || w->cta->nwarps % GROUP_WARPS)
    return fault(w, op, first_lane(mask), "wgmma takes four whole warps");
  Product *p = calloc(1, sizeof *p), **last = &w->products;
  if (!p) return fault(w, op, 0, "the host has no memory for this product");
  *p = (Product){.op = op,
                 .a = left_descriptor(w, op, 0),
                 .b = reg_get(w, op->b, REG_64, 0),
                 .add = reg_get(w, op->c, REG_PRED, 0),
                 .group = w->product_groups,
                 .stamp = interval_apart(w->cta, owner_product(w))};
  while (*last) last = &(*last)->next;
  *last = p;
  for (int i = 1; i < LANES; i++)
    if (left_descriptor(w, op, i) != p->a || reg_get(w, op->b, REG_64, i) != p->b ||
        reg_get(w, op->c, REG_PRED, i) != p->add)
      return fault(w, op, i, "operands of wgmma differ from lane 0's");
  if (!check_descriptor(w, op, p)) return WENT_WAITING;
  w->cta->launch->device->products[w->index / GROUP_WARPS % PTX_GROUPS]++;
  bool late = w->cta->launch->device->o.late;
  return late || perform(w, p) ? WENT_ON : WENT_WAITING;
}

static Went step_commit(Warp *w, const Op *op, uint32_t mask) {
  (void)op, (void)mask;
  w->product_groups++;
  return WENT_ON;
}

/* imm: groups that may stay under way */
static Went step_wait(Warp *w, const Op *op, uint32_t mask) {
  bool late = w->cta->launch->device->o.late;
  uint32_t *over = &w->known[owner_product(w)];
  (void)mask;
  while (w->products && (int64_t)w->products->group + op->imm < (int64_t)w->product_groups) {
    Product *p = w->products;
    if (late && !perform(w, p)) return WENT_WAITING;
    if (p->stamp >= *over) *over = p->stamp + 1;
    w->products = p->next;
    free(p);
  }
  return WENT_ON;
}

void products_drop(Warp *w) {
  while (w->products) {
    Product *p = w->products;
    w->products = p->next;
    free(p);
  }
}

/* ---- decoding ---- */
static int find_form(const char *name) {
  int i = 0;
  while (i < FORMS && strcmp(forms[i], name)) i++;
  return i;
}

/* Columns, from a name like wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T; both forms of 8 bits go
 * together. */
static int decode_columns(Reader *r, const Ins *ins) {
  int n = 0, k = 0, end = 0;
  if (ins->nparts != 8 || strcmp(ins->part[2], "sync") || strcmp(ins->part[3], "aligned") ||
      sscanf(ins->part[4], "m64n%dk%d%n", &n, &k, &end) != 2 || ins->part[4][end] ||
      strcmp(ins->part[5], "f32"))
    unknown(r, ins);
  int a = find_form(ins->part[6]), b = find_form(ins->part[7]);
  bool eights = a >= FORM_E4M3 && b >= FORM_E4M3;
  if (a == FORMS || b == FORMS || (a != b && !eights) || k != BYTES / bytes_of(a)) unknown(r, ins);
  if (n < 8 || n > MOST_COLUMNS || n % 8) read_error(r, ins->line, "no wgmma has %d columns", n);
  return n;
}

/* Arguments i and i + 1 are the factors 1, later ones orders. */
static void decode_factors(Reader *r, const Ins *ins, int i, int end) {
  for (int at = i; at < end; at++)
    if (ins->args[at].kind != ARG_INT || ins->args[at].value > 1 ||
        (at < i + 2 && ins->args[at].value != 1))
      read_error(r, ins->line, "factors of wgmma are 1 here, orders 0 or 1");
}

/* The arguments d, a-desc, b-desc, scale-d, 1, 1, trans-a, trans-b; of 8 bits without the last two;
 * or, with a in registers, d, {a0, a1, a2, a3}, b-desc, scale-d, 1, 1, trans-b */
static void decode_product(Reader *r, const Ins *ins) {
  int n = decode_columns(r, ins);
  bool inside = ins->nargs > 1 && ins->args[1].kind == ARG_VECTOR;
  int a_form = find_form(ins->part[6]), b_form = find_form(ins->part[7]);
  bool eights = bytes_of(a_form) == 1;
  int args = inside ? 7 : eights ? 6 : 8;
  if (inside && eights) read_error(r, ins->line, "codes are in shared memory");
  need_args(r, ins, args, args);
  decode_factors(r, ins, 4, args);
  const Arg *d = &ins->args[0], *left = &ins->args[1];
  if (d->kind != ARG_VECTOR || d->nparts != n / 2)
    read_error(r, ins->line, "`%s` has %d sums", ins->opcode, n / 2);
  if (inside && left->nparts != 4)
    read_error(r, ins->line, "an operand of `%s` has four registers", ins->opcode);
  int32_t *list = get(r, sizeof *list * (size_t)(n / 2 + 4));
  for (int i = 0; i < n / 2; i++) list[i] = result_arg(r, ins, &d->parts[i], REG_32);
  for (int i = 0; i < 4 && inside; i++)
    list[n / 2 + i] = source_arg(r, ins, &left->parts[i], REG_32);
  int32_t a = inside ? 0 : source(r, ins, 1, REG_64), b = source(r, ins, 2, REG_64),
          c = source(r, ins, 3, REG_PRED);
  Op *op = emit(r, ins);
  op->step = step_product, op->list = list, op->a = a, op->b = b, op->c = c, op->imm = n;
  op->sub = (uint8_t)(a_form + FORMS * b_form);
  if (!eights)
    op->flag = (uint8_t)(inside ? ins->args[6].value << 1 | IN_REGISTERS
                                : ins->args[6].value | ins->args[7].value << 1);
}

void decode_wgmma(Reader *r, const Ins *ins) {
  const char *what = ins->nparts > 1 ? ins->part[1] : "";
  if (!strcmp(what, "mma_async")) {
    decode_product(r, ins);
    return;
  }
  bool wait = !strcmp(what, "wait_group"), commit = !strcmp(what, "commit_group");
  if (ins->nparts != 4 || strcmp(ins->part[2], "sync") || strcmp(ins->part[3], "aligned") ||
      (!wait && !commit && strcmp(what, "fence")))
    unknown(r, ins);
  need_args(r, ins, wait, wait);
  if (wait && ins->args[0].kind != ARG_INT)
    read_error(r, ins->line, "the number of groups is a constant");
  if (!wait && !commit) return; /* registers are available at once */
  Op *op = emit(r, ins);
  op->step = wait ? step_wait : step_commit, op->imm = wait ? (int64_t)ins->args[0].value : 0;
}

/* ---- fences ---- */
static Went step_fence(Warp *w, const Op *op, uint32_t mask) {
  signals_fence(w, mask, op->sub);
  if (op->sub != FENCE_ASYNC) return WENT_ON;
  if ((mask & w->alive) != w->alive) return WENT_ON;
  warp_interval(w);
  w->fenced = w->stamp;
  return WENT_ON;
}

/* Only the fences for asynchronous reads and writes have an effect on this machine. */
void decode_fence(Reader *r, const Ins *ins) {
  bool async = has_part(ins, "proxy") && has_part(ins, "async");
  if (!async && !has_part(ins, "mbarrier_init")) return;
  Op *op = emit(r, ins);
  op->step = step_fence, op->sub = async ? FENCE_ASYNC : FENCE_INIT;
}

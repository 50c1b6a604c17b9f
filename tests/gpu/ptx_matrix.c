/* Matrix instructions: mma.sync, ldmatrix and stmatrix.
 *
 * The fragments of the 32 lanes are laid out as plain matrices, multiplied by one loop, and laid
 * back. Products of halves and tf32 are exact in f32; sums are rounded to f32 at each step (a GPU
 * aligns and truncates: compare by tolerance). tf32 operands lose the 13 low bits.
 *
 * Must not: know more than the fragment maps of the PTX ISA: lane l has group g = l / 4 and place
 * t = l % 4 in it. */
#include "ptx_lanes.h"
#include "ptx_memory.h"

typedef enum Element { ELEMENT_BF16, ELEMENT_F16, ELEMENT_TF32 } Element;
typedef struct Shape {
  const char *k, *a, *b; /* .m16n8kK, types of A and B */
  Element element;
  uint8_t depth, na, nb; /* K; registers of A and B */
} Shape;
static const Shape shapes[] = {
    {"m16n8k16", "bf16", "bf16", ELEMENT_BF16, 16, 4, 2},
    {"m16n8k16", "f16", "f16", ELEMENT_F16, 16, 4, 2},
    {"m16n8k8", "bf16", "bf16", ELEMENT_BF16, 8, 2, 1},
    {"m16n8k8", "f16", "f16", ELEMENT_F16, 8, 2, 1},
    {"m16n8k8", "tf32", "tf32", ELEMENT_TF32, 8, 4, 2},
    {"m16n8k4", "tf32", "tf32", ELEMENT_TF32, 4, 2, 1},
};

typedef struct Tiles {
  float a[16][16], b[16][8], c[16][8];
} Tiles;

static inline float element(Element e, uint32_t word, int half) {
  if (e == ELEMENT_TF32) return float_of(word & 0xffffe000);
  uint16_t h = (uint16_t)(word >> 16 * half);
  return e == ELEMENT_BF16 ? bf16_to_float(h) : f16_to_float(h);
}

/* Register i of A: rows g and g + 8 alternate, then the second half of K. */
static void lay_out_a(Tiles *t, const Shape *s, int i, const uint32_t *r) {
  int each = s->element == ELEMENT_TF32 ? 1 : 2;
  for (int l = 0; l < LANES; l++)
    for (int h = 0; h < each; h++)
      t->a[l / 4 + 8 * (i & 1)][each * (l % 4) + h + 4 * each * (i >> 1)] =
          element(s->element, r[l], h);
}

static void lay_out_b(Tiles *t, const Shape *s, int i, const uint32_t *r) {
  int each = s->element == ELEMENT_TF32 ? 1 : 2;
  for (int l = 0; l < LANES; l++)
    for (int h = 0; h < each; h++)
      t->b[each * (l % 4) + h + 4 * each * i][l / 4] = element(s->element, r[l], h);
}

static void multiply(Tiles *t, int depth) {
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < depth; k++) {
      float x = t->a[i][k];
      for (int j = 0; j < 8; j++) t->c[i][j] = __builtin_fmaf(x, t->b[k][j], t->c[i][j]);
    }
}

static void lay_out_c(Tiles *t, const Warp *w, const int32_t *list, bool halves) {
  for (int i = 0; i < (halves ? 2 : 4); i++) {
    const uint32_t *r = reg_at(w, list[i]);
    for (int l = 0; l < LANES; l++) {
      int row = l / 4 + 8 * (halves ? i : i >> 1), column = 2 * (l % 4);
      if (!halves) t->c[row][column + (i & 1)] = float_of(r[l]);
      else
        t->c[row][column] = element(ELEMENT_F16, r[l], 0),
        t->c[row][column + 1] = element(ELEMENT_F16, r[l], 1);
    }
  }
}

static void lay_back(const Tiles *t, const Warp *w, const int32_t *list, bool halves) {
  for (int i = 0; i < (halves ? 2 : 4); i++) {
    uint32_t *r = reg_at(w, list[i]);
    for (int l = 0; l < LANES; l++) {
      const float *c = &t->c[l / 4 + 8 * (halves ? i : i >> 1)][2 * (l % 4)];
      r[l] = halves ? (uint32_t)float_to_f16(c[1]) << 16 | float_to_f16(c[0]) : bits_of(c[i & 1]);
    }
  }
}

/* list: results, A, B, C; flag: bit 0 results are halves, bit 1 C is. */
static Went step_mma(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!together(w, op, mask, ALL_LANES, &went)) return went;
  if (mask != ALL_LANES)
    return fault(w, op, first_lane(mask), "mma with lanes %08x only: all 32 must take part", mask);
  const Shape *s = &shapes[op->sub];
  const int32_t *list = op->list, *a = list + (op->flag & 1 ? 2 : 4), *b = a + s->na,
                *c = b + s->nb;
  Tiles t;
  for (int i = 0; i < s->na; i++) lay_out_a(&t, s, i, reg_at(w, a[i]));
  for (int i = 0; i < s->nb; i++) lay_out_b(&t, s, i, reg_at(w, b[i]));
  lay_out_c(&t, w, c, op->flag & 2);
  multiply(&t, s->depth);
  lay_back(&t, w, list, op->flag & 1);
  return WENT_ON;
}

static int32_t *vector(Reader *r, const Ins *ins, int i, int n, int32_t *at, bool write) {
  const Arg *a = &ins->args[i];
  const Arg *parts = a->kind == ARG_VECTOR ? a->parts : a;
  if ((a->kind == ARG_VECTOR ? a->nparts : 1) != n)
    read_error(r, ins->line, "operand %d of `%s` needs %d registers", i + 1, ins->opcode, n);
  for (int k = 0; k < n; k++) *at++ = (write ? result_arg : source_arg)(r, ins, &parts[k], REG_32);
  return at;
}

/* mma.sync.aligned.SHAPE.row.col.D.A.B.C d, a, b, c */
void decode_mma(Reader *r, const Ins *ins) {
  if (ins->nparts != 10 || strcmp(ins->part[1], "sync") || strcmp(ins->part[2], "aligned") ||
      strcmp(ins->part[4], "row") || strcmp(ins->part[5], "col"))
    unknown(r, ins);
  size_t k = 0, n = sizeof shapes / sizeof *shapes;
  while (k < n && (strcmp(ins->part[3], shapes[k].k) || strcmp(ins->part[7], shapes[k].a) ||
                   strcmp(ins->part[8], shapes[k].b)))
    k++;
  bool d16 = !strcmp(ins->part[6], "f16"), c16 = !strcmp(ins->part[9], "f16");
  if (k == n || (!d16 && strcmp(ins->part[6], "f32")) || (!c16 && strcmp(ins->part[9], "f32")))
    unknown(r, ins);
  need_args(r, ins, 4, 4);
  int32_t *list = get(r, sizeof *list * 16), *at = list;
  at = vector(r, ins, 0, d16 ? 2 : 4, at, true);
  at = vector(r, ins, 1, shapes[k].na, at, false);
  at = vector(r, ins, 2, shapes[k].nb, at, false);
  vector(r, ins, 3, c16 ? 2 : 4, at, false);
  Op *op = emit(r, ins);
  op->step = step_mma, op->sub = (uint8_t)k, op->list = list, op->flag = (uint8_t)(d16 | c16 << 1);
}

/* ---- ldmatrix, stmatrix ---- */
enum { TRANSPOSED = 1, STORES = 2 };

static void put_rows(Warp *w, const Op *op, const Access *x) {
  for (int i = 0; i < op->n; i++)
    for (int l = 0; l < LANES; l++)
      memcpy(x->at[8 * i + l / 4] + 4 * (l % 4), (uint32_t *)reg_at(w, op->list[i]) + l, 4);
}

static void take_rows(Warp *w, const Op *op, const Access *x) {
  for (int i = 0; i < op->n; i++) {
    uint32_t *d = reg_at(w, op->list[i]);
    for (int l = 0; l < LANES; l++) {
      uint16_t pair[2];
      for (int h = 0; h < 2; h++) {
        bool turned = op->flag & TRANSPOSED;
        int row = turned ? 2 * (l % 4) + h : l / 4, column = turned ? l / 4 : 2 * (l % 4) + h;
        memcpy(&pair[h], x->at[8 * i + row] + 2 * column, 2);
      }
      d[l] = (uint32_t)pair[1] << 16 | pair[0];
    }
  }
}

static Went step_matrices(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!together(w, op, mask, ALL_LANES, &went)) return went;
  if (mask != ALL_LANES)
    return fault(w, op, first_lane(mask), "matrices of lanes %08x only: all 32 must take part",
                 mask);
  Access x = {.space = SPACE_SHARED, .bytes = 16, .write = op->flag & STORES};
  uint32_t rows = op->n == 4 ? ALL_LANES : (UINT32_C(1) << 8 * op->n) - 1;
  uint64_t generic[LANES];
  addresses(w, op, op->space == SPACE_GENERIC ? generic : x.address);
  if (op->space == SPACE_GENERIC &&
      (one_window(rows, &x, generic) != rows || x.space != SPACE_SHARED))
    return fault(w, op, 0, "matrices at an address outside shared memory");
  if (!place(w, op, rows, &x)) return WENT_WAITING;
  (op->flag & STORES ? put_rows : take_rows)(w, op, &x);
  return WENT_ON;
}

/* ldmatrix.sync.aligned.m8n8.num{.trans}{.shared}.b16 r, [a]; stmatrix: [a], r */
static void decode_matrices(Reader *r, const Ins *ins, bool stores) {
  if (ins->nparts < 6 || strcmp(ins->part[1], "sync") || strcmp(ins->part[2], "aligned") ||
      strcmp(ins->part[3], "m8n8") || strcmp(ins->part[ins->nparts - 1], "b16") ||
      ins->part[4][0] != 'x')
    unknown(r, ins);
  int n = ins->part[4][1] - '0';
  Space space = SPACE_GENERIC;
  bool trans = false;
  if ((n != 1 && n != 2 && n != 4) || ins->part[4][2]) unknown(r, ins);
  for (int i = 5; i < ins->nparts - 1; i++)
    if (!strcmp(ins->part[i], "trans") && !stores) trans = true;
    else if (!known_space(ins->part[i], &space) || space != SPACE_SHARED) unknown(r, ins);
  need_args(r, ins, 2, 2);
  int32_t *list = get(r, sizeof *list * 4), a;
  RegKind kind;
  int64_t offset;
  vector(r, ins, stores, n, list, !stores);
  decode_address(r, ins, &ins->args[!stores], &a, &kind, &offset);
  Op *op = emit(r, ins);
  op->step = step_matrices, op->a = a, op->kind_a = (uint8_t)kind, op->imm = offset;
  op->list = list, op->n = (uint8_t)n, op->space = (uint8_t)space;
  op->flag = (uint8_t)((trans ? TRANSPOSED : 0) | (stores ? STORES : 0));
}

void decode_ldmatrix(Reader *r, const Ins *ins) { decode_matrices(r, ins, false); }
void decode_stmatrix(Reader *r, const Ins *ins) { decode_matrices(r, ins, true); }

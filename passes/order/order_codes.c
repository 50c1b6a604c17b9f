/* order: which values a GPU keeps as codes of 8 bits (ir/codes.h). It has instructions for
   products of them (target fact wgmma, whose operands have the summed dims innermost), so that the
   operands of a product that pass `quantize` rounded are written as codes and multiplied as such.

   A value is kept so if a kernel rounds it to 8 bits, in blocks along one summed dim of its
   readers, and if all of its readers are products of two such values. So first all products and
   values are taken that could be, then those are dropped that have a reader or an operand which
   cannot, until none is left. All others stay numbers in bf16, the same ones.

   Before the layout the values are asked to have the summed dims innermost (order_preferences.c);
   after it attribute `codes` is set where the kernels exist. Must not: change a number. */
#include "ir/codes.h"
#include "ir/kernel/gpu_plan.h"
#include "ir/loop.h"
#include "ir/plan/stage_class.h"
#include "order.h"

typedef struct SummedDims {
  int n;
  Str dim[MAX_RANK];
} SummedDims;

typedef struct Coding {
  Module *m;
  const Fn *f;
  ValueId *root; /* by value: that whose buffer it shows whole */
  bool *product; /* by op: a product of two values kept as codes */
  bool *coded;   /* by value */
} Coding;

static bool has_dim(const SummedDims *dims, Str dim) {
  for (int i = 0; i < dims->n; i++)
    if (dims->dim[i] == dim) return true;
  return false;
}

/* A view of all of its operand. */
static bool shows(const Op *o) {
  return o && (o->code == OP_split || o->code == OP_merge || o->code == OP_rename);
}

/* ---- values ---- */

/* The result of a kernel that is value v, if the kernel rounds it to 8 bits; else NO_VALUE. */
static ValueId made_as(const Coding *coding, ValueId v) {
  const Op *call = value_def(coding->f, v);
  if (!call || call->code != OP_kernel) return NO_VALUE;
  const Fn *k = call->callee;
  ValueId result = k->results.at[v - call->out];
  uint32_t same = 0;
  for (uint32_t i = 0; i < k->results.n; i++) same += k->results.at[i] == result;
  bool row = !strcmp(attr_str(&k->attrs, ATTR_family, ""), "row");
  bool good = row && same == 1 && codes_most(k, result) && module_calls(coding->m, k) == 1;
  return good ? result : NO_VALUE;
}

/* The dims of the operand of a view that its result has as `dims`; false: parts of one. */
static bool dims_before(const Op *o, const Type *operand, SummedDims *dims) {
  SummedDims of = {0};
  for (int i = 0; i < operand->rank; i++) {
    Str dim = operand->axis[i].dim;
    bool named = false, in = false, out = false;
    for (int g = 0; g < o->ngroups; g++)
      for (int a = 0; a < o->group[g].nfrom; a++) {
        if (o->group[g].from[a] != dim) continue;
        named = true;
        for (int b = 0; b < o->group[g].nto; b++)
          if (has_dim(dims, o->group[g].to[b])) in = true;
          else out = true;
      }
    if (in && out) return false;
    if (named ? in : has_dim(dims, dim)) of.dim[of.n++] = dim;
  }
  *dims = of;
  return true;
}

/* The dims of the root of operand i of a product that it sums, in the root's order. */
static bool summed_dims(const Coding *coding, const Op *call, uint32_t i, SummedDims *dims) {
  const Op *dot = order_dot_of(call->callee);
  const Fn *f = coding->f;
  *dims = (SummedDims){.n = dot->group[0].nfrom};
  memcpy(dims->dim, dot->group[0].from, sizeof *dims->dim * (size_t)dims->n);
  ValueId v = call->in[i];
  for (const Op *o = value_def(f, v); shows(o); o = value_def(f, v)) {
    v = o->in[0];
    if (!dims_before(o, value_type(f, v), dims)) return false;
  }
  SummedDims all = *dims;
  const Type *t = value_type(f, v);
  dims->n = 0;
  for (int a = 0; a < t->rank; a++)
    if (has_dim(&all, t->axis[a].dim)) dims->dim[dims->n++] = t->axis[a].dim;
  return dims->n > 0;
}

/* Are the blocks of a value along the last of these dims? */
static bool in_blocks(const Coding *coding, ValueId v, const SummedDims *summed) {
  const Fn *k = value_def(coding->f, v)->callee;
  const Group *over = &codes_most(k, made_as(coding, v))->group[0];
  Str last = summed->dim[summed->n - 1];
  bool along = false;
  for (int i = 0; i < over->nfrom; i++) {
    along |= over->from[i] == last;
    if (over->from[i] != last && has_dim(summed, over->from[i])) return false;
  }
  return along && type_size(value_type(coding->f, v), last) == EIGHTS_BLOCK;
}

/* ---- products ---- */

/* Which operand of the kernel factor i of its dot is; -1: none, or not it alone. */
static int factor_of(const Fn *k, const Op *dot, int i) {
  for (uint32_t a = 0; a < k->args.n; a++)
    if (k->args.at[a] == dot->in[i])
      return value_uses(k, dot->in[i]) == 1 && value_type(k, dot->in[i])->elem == ELEM_bf16 ? (int)a
                                                                                            : -1;
  return -1;
}

/* Places of experts are skipped where they are empty, by kernels that read numbers. */
static bool has_places(const Module *m, const Type *t) {
  for (int i = 0; i < t->rank; i++)
    if (module_setting(m, arena_printf(m->arena, "made.places.%s", t->axis[i].dim), NULL))
      return true;
  return false;
}

static bool may_multiply(const Coding *coding, const Op *call) {
  const Fn *k = call->code == OP_kernel ? call->callee : NULL;
  const Op *dot = k ? order_dot_of(k) : NULL;
  if (!dot || !attr_get(&dot->attrs, ATTR_eights) || module_calls(coding->m, k) != 1) return false;
  if (has_places(coding->m, value_type(k, dot->in[0]))) return false;
  for (int i = 0; i < 2; i++)
    if (factor_of(k, dot, i) < 0) return false;
  Product of = product_of(k, 8);
  return of.m.outer * of.m.inner >= EIGHTS_BLOCK && of.n.outer * of.n.inner >= EIGHTS_BLOCK;
}

/* Both operands are values kept as codes whose blocks are along the same range of summed dims. */
static bool has_operands(const Coding *coding, const Op *call) {
  const Fn *k = call->callee;
  for (int i = 0; i < 2; i++) {
    SummedDims dims;
    uint32_t a = (uint32_t)factor_of(k, order_dot_of(k), i);
    ValueId root = coding->root[call->in[a]];
    if (!coding->coded[root] || !summed_dims(coding, call, a, &dims)) return false;
    if (!in_blocks(coding, root, &dims)) return false;
  }
  return true;
}

static void drop_products(Coding *coding) {
  for (OpId i = 0; i < coding->f->ops.n; i++)
    if (coding->product[i]) coding->product[i] = has_operands(coding, &coding->f->ops.at[i]);
}

static bool is_factor(const Coding *coding, OpId op, uint32_t operand) {
  const Fn *k = coding->f->ops.at[op].callee;
  return coding->product[op] && (factor_of(k, order_dot_of(k), 0) == (int)operand ||
                                 factor_of(k, order_dot_of(k), 1) == (int)operand);
}

static bool drop_values(Coding *coding) {
  bool dropped = false;
  const Fn *f = coding->f;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t a = 0; a < f->ops.at[i].nin; a++) {
      ValueId root = coding->root[f->ops.at[i].in[a]];
      bool reads = !shows(&f->ops.at[i]);
      if (!reads || !coding->coded[root] || is_factor(coding, i, a)) continue;
      coding->coded[root] = false, dropped = true;
    }
  for (uint32_t i = 0; i < f->results.n; i++) coding->coded[coding->root[f->results.at[i]]] = false;
  return dropped;
}

/* Values that nothing reads remain; they are made by no kernel of a program. */
static void settle(Coding *coding) {
  do drop_products(coding);
  while (drop_values(coding));
}

static Coding coding_of(Module *m, const Fn *f) {
  Coding coding = {m, f, value_map(m, f), ARENA_ARRAY(m->arena, bool, f->ops.n + 1),
                   ARENA_ARRAY(m->arena, bool, f->values.n + 1)};
  for (ValueId v = 0; v < f->values.n; v++) {
    const Op *o = value_def(f, v);
    coding.root[v] = shows(o) ? coding.root[o->in[0]] : v;
    coding.coded[v] = made_as(&coding, v) != NO_VALUE;
  }
  for (OpId i = 0; i < f->ops.n; i++) coding.product[i] = may_multiply(&coding, &f->ops.at[i]);
  settle(&coding);
  return coding;
}

bool order_multiplies_codes(const Module *m) { return module_on_gpu(m) && m->target.wgmma; }

/* ---- before the layout ---- */

static Type summed_innermost(const Type *t, const SummedDims *dims) {
  Type order = *t;
  order.rank = 0;
  for (int inner = 0; inner < 2; inner++)
    for (int i = 0; i < t->rank; i++)
      if (has_dim(dims, t->axis[i].dim) == inner) order.axis[order.rank++] = t->axis[i];
  return order;
}

void order_prefer_codes(Module *m, const Fn *f, const Type **want) {
  if (!order_multiplies_codes(m)) return;
  Coding coding = coding_of(m, f);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *call = &f->ops.at[i];
    for (int k = 0; coding.product[i] && k < 2; k++) {
      SummedDims dims;
      uint32_t a = (uint32_t)factor_of(call->callee, order_dot_of(call->callee), k);
      ValueId root = coding.root[call->in[a]];
      if (want[root] || !summed_dims(&coding, call, a, &dims)) continue;
      Type *order = ARENA_NEW(m->arena, Type);
      *order = summed_innermost(value_type(f, root), &dims);
      want[root] = order;
    }
  }
}

/* ---- after it ---- */

/* Dense, with the summed dims innermost. */
static bool codes_of(const Coding *coding, const Op *call, uint32_t a, Codes *out) {
  SummedDims dims;
  const Fn *f = coding->f;
  const Value *root = &f->values.at[coding->root[call->in[a]]];
  if (!summed_dims(coding, call, a, &dims) || !layout_is_dense(root)) return false;
  *out = (Codes){.count = type_count(&root->type), .run = 1};
  for (int i = 1; i <= dims.n; i++) {
    Axis axis = root->type.axis[root->type.rank - i];
    if (!has_dim(&dims, axis.dim)) return false;
    out->run *= axis.size;
  }
  const Op *made = value_def(f, coding->root[call->in[a]]);
  ValueId result = made_as(coding, coding->root[call->in[a]]);
  out->format = eights_format_of(codes_quantize(made->callee, result));
  return true;
}

static bool has_kernel(const Coding *coding, const Fn *k) {
  static const int64_t cut[GEMM_COUNT] = {[GEMM_M] = WGMMA_GROUPS * WGMMA_ROWS,
                                          [GEMM_N] = WGMMA_LEAST,
                                          [GEMM_K] = EIGHTS_BLOCK,
                                          [GEMM_WARP_M] = WGMMA_ROWS,
                                          [GEMM_WARP_N] = WGMMA_LEAST,
                                          [GEMM_STAGES] = 3,
                                          [GEMM_SPLITS] = 1,
                                          [GEMM_BY] = BY_THREADS};
  GpuProduct product = gpu_product_of(coding->m, k, GEMM_MMA, coding->m->target.shared);
  return gpu_product_fits(&product, cut);
}

/* Sets attribute `codes` of a product's kernel; false: there is none of codes. */
static bool mark_product(const Coding *coding, const Op *call) {
  Fn *k = call->callee;
  bool good = true;
  for (int i = 0; i < 2 && good; i++) {
    Codes codes;
    uint32_t a = (uint32_t)factor_of(k, order_dot_of(k), i);
    good = codes_of(coding, call, a, &codes);
    if (good) kernel_add_codes(coding->m, k, a, &codes);
  }
  good = good && has_kernel(coding, k);
  if (!good) kernel_drop_codes(k);
  return good;
}

static void mark_values(const Coding *coding, const Op *call) {
  for (int i = 0; i < 2; i++) {
    Codes codes, already;
    uint32_t a = (uint32_t)factor_of(call->callee, order_dot_of(call->callee), i);
    const Op *made = value_def(coding->f, coding->root[call->in[a]]);
    uint32_t buffer = made->nin + (coding->root[call->in[a]] - made->out);
    if (kernel_codes(made->callee, buffer, &already)) continue;
    kernel_codes(call->callee, a, &codes);
    kernel_add_codes(coding->m, made->callee, buffer, &codes);
  }
}

/* Products that pass `eights` marked; .. whose operands are codes. */
static void count_products(const Module *m, uint32_t *marked, uint32_t *coded) {
  *marked = *coded = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o)
      if (o->code == OP_dot && attr_get(&o->attrs, ATTR_eights))
        ++*marked, *coded += kernel_has_codes(m->fns.at[i]);
}

void order_warn_codes(const Module *m) {
  uint32_t marked, coded;
  count_products(m, &marked, &coded);
  bool again = module_class(m).first > 0; /* another class of stages has said it */
  if (!order_multiplies_codes(m) || !marked || coded || again) return;
  Report *r = diag_at(m->ctx->diag, "W0709", module_written(m, "plan.precision").value,
                      "`precision fp8` saves no time: no product has sizes for codes of 8 bits");
  diag_label(r, "operands are rounded to 8 bits and multiplied in bf16: the losses of fp8 alone");
  diag_help(r,
            "summed dims of a multiple of %d, at least %d rows and columns; `precision bf16` is "
            "faster",
            EIGHTS_BLOCK, EIGHTS_BLOCK);
}

void order_codes(Module *m, const Fn *f) {
  if (!order_multiplies_codes(m)) return;
  Coding coding = coding_of(m, f);
  for (bool again = true; again; settle(&coding)) {
    again = false;
    for (OpId i = 0; i < f->ops.n; i++) {
      if (!coding.product[i]) continue;
      kernel_drop_codes(f->ops.at[i].callee);
      coding.product[i] = mark_product(&coding, &f->ops.at[i]);
      again |= !coding.product[i];
    }
    for (OpId i = 0; i < f->ops.n && again; i++)
      if (coding.product[i]) kernel_drop_codes(f->ops.at[i].callee);
  }
  for (OpId i = 0; i < f->ops.n; i++)
    if (coding.product[i]) mark_values(&coding, &f->ops.at[i]);
}

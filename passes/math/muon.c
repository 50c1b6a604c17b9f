/* Muon ("Muon: An optimizer for hidden layers in neural networks", K. Jordan et al.): the velocity,
   with its singular values brought near 1, is the step of a matrix. Five steps of Newton and
   Schulz do so, in products alone; x is a matrix of norm 1, the longer side is summed first:

     g = x x^T        x <- 3.4445 x + (-4.7750 g + 2.0315 g g) x

   The formulas are those of torch.optim.Muon, in f32. Other dims of the parameter number its
   matrices, and all are computed in the same ops. Between them dims have made names: pass `zero`
   finds by them the part of an update that needs whole matrices, and place rules hold for Matrix'D
   as for D, so that products over a split dim send the small g alone. Must not: work element by
   element inside that part on values from outside of it, other than x and constants. */
#include "ir/made.h"
#include "ir/plan/optimizers.h"
#include "matrix.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <string.h>

enum { STEPS = 5 };
static const double linear = 3.4445, cubic = -4.7750, quintic = 2.0315, least_norm = 1e-7;

typedef struct Iteration {
  Update *u;
  Str near[MAX_RANK], far[MAX_RANK];     /* made dims: of the shorter side, of the longer */
  Str second[MAX_RANK], third[MAX_RANK]; /* further names of near */
  int nnear, nfar;
} Iteration;

/* Dims of the program, so that place rules hold for them. */
static Str made_dim(Module *m, Str dim) {
  Str name = name_made(m, MADE_MATRIX "%s", dim), like = dim;
  const Dim *old = NULL;
  for (uint32_t i = 0; i < m->dims.n; i++) {
    if (m->dims.at[i].name == name) return name;
    if (m->dims.at[i].name == dim) old = &m->dims.at[i];
  }
  if (!old) return name;
  Dim new = *old;
  new.name = name, new.like = old->like ? old->like : like;
  vec_push(m->arena, m->dims, new);
  return name;
}

static ValueId renamed(Update *u, ValueId v, int n, const Str *from, const Str *to) {
  Type t = *value_type(u->f, v);
  Op *o = fn_op(u->m, u->f, OP_rename, 1, &v, 1, &t, u->loc);
  ValueId out = o->out;
  for (int i = 0; i < n; i++) {
    int at = type_find(&t, from[i]);
    must(at >= 0, "%%%u of %s has no dim %s", v, u->f->name, from[i]);
    t.axis[at].dim = to[i];
    op_add_group(u->m, o, group_map(1, &from[i], 1, &to[i]));
  }
  u->f->values.at[out].type = t;
  return out;
}

/* A product in f32, whatever the plan's precision. */
static ValueId product(Iteration *it, ValueId a, ValueId b, int n, const Str *dims) {
  Update *u = it->u;
  return un(u, OP_wide, ir_dot(u->m, u->f, a, b, n, dims, u->loc));
}

/* x / max(|x|, 1e-7), one norm for each matrix. */
static ValueId of_norm_1(Iteration *it, ValueId x) {
  Update *u = it->u;
  Str dims[MAX_RANK];
  int n = 0;
  for (int i = 0; i < it->nnear; i++) dims[n++] = it->near[i];
  for (int i = 0; i < it->nfar; i++) dims[n++] = it->far[i];
  Type t = *value_type(u->f, x);
  ValueId q = ir_reduce(u->m, u->f, OP_sum, bin(u, OP_mul, x, x), n, dims, u->loc);
  ValueId norm = un(u, OP_sqrt, emit_spread(u->m, u->f, q, t, u->loc));
  x = bin(u, OP_div, x, bin(u, OP_max, norm, num(u, least_norm)));
  return un(u, OP_wide, x);
}

static ValueId iterate(Iteration *it, ValueId x) {
  Update *u = it->u;
  ValueId across = renamed(u, x, it->nnear, it->near, it->second);
  ValueId g = product(it, x, across, it->nfar, it->far);
  ValueId g2 = product(it, g, renamed(u, g, it->nnear, it->near, it->third), it->nnear, it->second);
  g2 = renamed(u, g2, it->nnear, it->third, it->second);
  ValueId b = bin(u, OP_add, times(u, g, cubic), times(u, g2, quintic));
  b = un(u, OP_wide, b);
  x = bin(u, OP_add, times(u, x, linear), product(it, b, across, it->nnear, it->second));
  return un(u, OP_wide, x);
}

/* The matrices of x, a value of the parameter's dims, with all singular values near 1. */
static ValueId matrix_orthogonal(Update *u, const UpdateMatrix *matrix, ValueId x, double factor) {
  Iteration it = {.u = u};
  bool in_near = matrix->fan_in <= matrix->fan_out;
  const Str *near = in_near ? matrix->in : matrix->out, *far = in_near ? matrix->out : matrix->in;
  it.nnear = in_near ? matrix->nin : matrix->nout, it.nfar = in_near ? matrix->nout : matrix->nin;
  for (int i = 0; i < it.nnear; i++) {
    it.near[i] = made_dim(u->m, near[i]);
    it.second[i] = name_made(u->m, MADE_MATRIX "%s'2", near[i]);
    it.third[i] = name_made(u->m, MADE_MATRIX "%s'3", near[i]);
  }
  for (int i = 0; i < it.nfar; i++) it.far[i] = made_dim(u->m, far[i]);
  x = renamed(u, renamed(u, x, it.nnear, near, it.near), it.nfar, far, it.far);
  x = of_norm_1(&it, x);
  for (int i = 0; i < STEPS; i++) x = iterate(&it, x);
  x = times(u, x, factor);
  return renamed(u, renamed(u, x, it.nnear, it.near, near), it.nfar, it.far, far);
}

/* ---- the rule ---- */

void update_muon_begin(Update *u) { update_decoupled(u); }

/* How far a step moves: by default sqrt(max(1, out / in)), as spectral norms of layers have it; by
   `scale = adamw` an element moves 0.2 on average, as with AdamW. */
static double reach(const Update *u, const UpdateMatrix *matrix) {
  double in = (double)matrix->fan_in, out = (double)matrix->fan_out;
  Str scale = module_word(u->m, optimizer_key(u->m, u->line, "train.optim.scale"));
  if (!strcmp(scale, "adamw")) return 0.2 * sqrt(fmax(in, out));
  return sqrt(fmax(1, out / in));
}

/* b += (d - b)(1 - momentum); w = w (1 - lr decay) - lr O(d + (b - d) momentum) */
void update_muon(Update *u, Global *global, ValueId w, ValueId d) {
  UpdateMatrix matrix;
  if (!matrix_of(u->m, global, u->line, &matrix)) return;
  Global *state = moment(u, global, "momentum");
  ValueId b = read_moment(u, state);
  b = bin(u, OP_add, b, times(u, bin(u, OP_sub, d, b), 1 - u->momentum));
  ValueId x = u->nesterov ? bin(u, OP_add, d, times(u, bin(u, OP_sub, b, d), u->momentum)) : b;
  x = matrix_orthogonal(u, &matrix, x, reach(u, &matrix));
  w = shrunk(u, global, w);
  put(u, state, b);
  put(u, global, bin(u, OP_sub, w, bin(u, OP_mul, x, u->rate)));
}

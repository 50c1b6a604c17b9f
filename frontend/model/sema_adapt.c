/* Adapters of low rank (LoRA): the line `lora Rank alpha = A of NAMES` of a train block. Each named
   weight w [In.., Out..] that a product contracts over In gets two parameters, w.lora_a
   [In.., Rank] and w.lora_b [Rank, Out..], and the product becomes

     dot[In](x, w) + A / Rank * dot[Rank](dot[In](x, w.lora_a), w.lora_b)

   lora_a begins with uniform numbers up to 1 / sqrt(In), lora_b with zeros, as in PEFT; they alone
   are trained. With `dropout`, steps drop a share of x in the second term, other elements in each
   product. Everything after this sees parameters and operators like any others. Must not: judge
   the names (frontend/train/sema_lora.c). */
#include "ir/plan/layer_range.h"
#include "lower_emit.h"
#include "sema.h"
#include <math.h>
#include <string.h>

static bool is_named(const Adapters *adapters, const Param *param) {
  for (uint32_t i = 0; i < adapters->n; i++) {
    Str path = adapters->path[i]->path->text;
    if (layer_path_names(path, strlen(path), param->path)) return true;
  }
  return false;
}

void adapt_param(const Eval *e, Param *param) {
  if (e->adapters) param->frozen = true;
}

/* ---- the parameters of a weight ---- */

static Val random_init(Eval *e, const Dims *in) {
  int64_t n = eval_sizes(e, in);
  Val *ends = ARENA_ARRAY(e->arena, Val, 2);
  Init *init = ARENA_NEW(e->arena, Init);
  ends[1] = val_number(n > 0 ? 1 / sqrt((double)n) : 1), ends[0] = val_number(-ends[1].number);
  *init = (Init){INIT_UNIFORM, &ends[0], &ends[1]};
  return (Val){.kind = VAL_INIT, .init = init, .id = NO_VALUE};
}

static Param *add_adapter(Eval *e, const Param *of, const char *name, Dims dims, Val init) {
  Param *param = ARENA_NEW(e->arena, Param);
  *param = (Param){.path = intern_printf(e->ctx->names, "%s.%s", of->path, name),
                   .dims = dims,
                   .lead = of->lead,
                   .init = init,
                   .f32 = of->f32,
                   .used = true,
                   .seen = true,
                   .adapts = of,
                   .span = e->adapters->span,
                   .decl = of->decl};
  vec_push(e->arena, e->params, param);
  return param;
}

static bool has_rank(Eval *e, const Param *param, const Val *x) {
  Str rank = e->adapters->rank;
  bool clash =
      dims_has(&param->dims, rank) || dims_has(&param->lead, rank) || dims_has(&x->dims, rank);
  if (clash && e->mode == MODE_CHECK) {
    Report *r = eval_error(e, "E0203", e->adapters->span, "the product with `%s` has the dim `%s`",
                           param->path, rank);
    diag_help(r, "the rank of adapters is a dim of its own: `dims { Rank = 8 }`, `lora Rank ..`");
  }
  return clash;
}

static void leave_out(Report *r, const Param *param) {
  diag_also(r, param->span, "the parameter");
  diag_help(r, "`of` with the paths of other weights, without this one");
}

/* A weight has one meaning of In: that of its first product. */
static bool adapts_otherwise(Eval *e, const Param *param, const Dims *in) {
  Dims same = *in;
  dims_add(&same, e->adapters->rank);
  if (dims_same(&same, &param->low[0]->dims)) return false;
  if (e->mode == MODE_CHECK)
    leave_out(eval_error(e, "E0602", e->adapters->span,
                         "`lora` adapts one product, and `%s` is contracted over [%s] and others",
                         param->path, dims_names(e->ctx, in)),
              param);
  return true;
}

/* Experts, heads with a matrix each: one adapter would not be one product. */
static bool is_matched(Eval *e, const Param *param, const Val *x, const Dims *in) {
  Dims out = dims_without(&param->dims, in);
  for (int i = 0; i < out.n; i++)
    if (dims_has(&x->dims, out.at[i])) {
      if (e->mode == MODE_CHECK)
        leave_out(eval_error(e, "E0602", e->adapters->span,
                             "`lora` adapts linear layers, and `%s` has a matrix for each `%s`",
                             param->path, out.at[i]),
                  param);
      return true;
    }
  return false;
}

/* The sum of weight and adapter is what products read, and no line sees it. */
static bool is_projected(Eval *e, const Param *param) {
  if (!param->projected || e->mode != MODE_CHECK) return param->projected;
  Report *r = eval_error(e, "E0602", e->adapters->span,
                         "`lora` adapts `%s`, which has a `project` line", param->path);
  diag_also(r, param->span, "the parameter");
  diag_fact(r, "`project` would change the weight without its adapter");
  diag_help(r, "leave its `project` line out, or the weight out of `lora`");
  return true;
}

static bool make_adapters(Eval *e, Param *param, const Val *x, const Dims *in) {
  Dims first = {0}, second = {.n = 1, .at = {e->adapters->rank}},
       out = dims_without(&param->dims, in);
  for (int i = 0; i < param->dims.n; i++)
    if (dims_has(in, param->dims.at[i])) dims_add(&first, param->dims.at[i]);
  dims_add(&first, e->adapters->rank);
  for (int i = 0; i < out.n; i++) dims_add(&second, out.at[i]);
  if (has_rank(e, param, x) || is_matched(e, param, x, in) || is_projected(e, param)) return false;
  if (param->low[0]) return !adapts_otherwise(e, param, in);
  eval_size(e, e->adapters->rank);
  param->low[0] = add_adapter(e, param, "lora_a", first, random_init(e, in));
  param->low[1] = add_adapter(e, param, "lora_b", second, val_number(0));
  return true;
}

/* ---- the product ---- */

static Val contract(Eval *e, const Val *first, const Val *second, const Dims *cut) {
  Dims dims = dims_without(&first->dims, cut), rest = dims_without(&second->dims, cut);
  for (int i = 0; i < rest.n; i++) dims_add(&dims, rest.at[i]);
  Val out = val_tensor(VAL_FLOAT, dims);
  const Val *in[] = {first, second};
  AxisGroup group = {.from = *cut};
  lower_op(e, &out, 1, OP_dot, 2, in, 1, &group);
  return out;
}

static Val value_of(Param *param) {
  Val v = val_tensor(VAL_FLOAT, param->dims);
  v.param = param;
  return v;
}

/* As `dropout` of the library has it. */
static Val dropped(Eval *e, const Val *x) {
  double share = e->adapters->dropout;
  if (share <= 0 || e->mode == MODE_EVAL || e->mode == MODE_LOGITS) return *x;
  Val noise = val_tensor(VAL_FLOAT, x->dims), out = noise, larger = noise;
  Val drops = val_tensor(VAL_BOOL, x->dims);
  Val least = val_number(share), kept = val_number(1 - share), zero = val_number(0);
  const Val *below[] = {&noise, &least}, *by[] = {x, &kept}, *choice[] = {&drops, &zero, &larger};
  lower_rand(e, &noise);
  lower_op(e, &drops, 1, OP_lt, 2, below, 0, NULL);
  lower_op(e, &larger, 1, OP_div, 2, by, 0, NULL);
  lower_op(e, &out, 1, OP_where, 3, choice, 0, NULL);
  return out;
}

static void add_low_rank(Eval *e, const Param *param, const Val *x, bool weight_first,
                         const Dims *in, Val *product) {
  Dims rank = {.n = 1, .at = {e->adapters->rank}};
  int64_t n = eval_sizes(e, &rank);
  Val down = value_of(param->low[0]), up = value_of(param->low[1]), read = dropped(e, x);
  Val low = weight_first ? contract(e, &down, &read, in) : contract(e, &read, &down, in);
  Val whole = weight_first ? contract(e, &up, &low, &rank) : contract(e, &low, &up, &rank);
  Val factor = val_number(e->adapters->alpha / (n > 0 ? (double)n : 1));
  Val scaled = val_tensor(VAL_FLOAT, product->dims), sum = scaled;
  const Val *times[] = {&whole, &factor}, *plus[] = {product, &scaled};
  lower_op(e, &scaled, 1, OP_mul, 2, times, 0, NULL);
  lower_op(e, &sum, 1, OP_add, 2, plus, 0, NULL);
  *product = sum;
}

void adapt_dot(Eval *e, const Call *call, Val *product) {
  for (int i = 0; i < 2; i++) {
    Param *param = call->arg[i].param;
    const Val *x = &call->arg[!i];
    if (!param || param->adapts || !is_named(e->adapters, param)) continue;
    param->products++;
    if (make_adapters(e, param, x, &call->groups.at[0].from))
      add_low_rank(e, param, x, i == 0, &call->groups.at[0].from, product);
  }
}

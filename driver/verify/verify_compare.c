/* Compares the results of two runs of one model: losses and norms step by step, parameters and
   states as logical tensors in the order of the model, so that the first difference is closest to
   the cause. The norm of a difference is compared with the tensor's norm and, for a parameter, with
   the distance that the optimizer can move it.

   Some numbers are only rounding: a gradient that is exactly 0 in mathematics (of the bias of keys)
   is rounding, and an optimizer that divides by its size makes a full step of it. Runs of one rank
   with noise in their sums (passes/math/noise.h) identify such numbers by their spread. The spread
   for a noise of 1 is the condition of a number; an element, a loss or a norm may differ by the
   tolerance times that. An element whose spread is small relative to its size must stay within a
   tenth of it, whatever the tolerance: so a fault is visible even if noise is coarse.

   A state of 16 bits is rounded once more, and of two numbers that are almost the same one in some
   thousands gets the next number of the type. One in a hundred may; more are a fault. */
#include "verify_runs.h"
#include "ir/plan/layer_range.h"
#include "runtime/base/file.h"
#include "runtime/metrics.h"
#include "runtime/store/safetensors.h"
#include <math.h>

typedef struct ComparedSteps {
  VEC(double) loss, norm;
} ComparedSteps;

static bool cannot_read(Cli *o, const Fault *f) {
  diag_at(o->c->diag, "E0803", (Span){0}, "a run left nothing to compare: %s %s", f->where,
          f->what);
  return false;
}

static bool read_steps(Cli *o, const char *path, ComparedSteps *steps) {
  Fault f = {0};
  Bytes bytes;
  if (!rt_map_file(path, 201, &bytes, &f)) return cannot_read(o, &f);
  for (int64_t at = 0, n; at < bytes.n; at += n + 1) {
    const uint8_t *end = memchr(bytes.at + at, '\n', (size_t)(bytes.n - at));
    StepRecord record;
    n = end ? end - (bytes.at + at) : bytes.n - at;
    if (!rt_metrics_line((Bytes){bytes.at + at, n}, &record) || isnan(record.loss)) continue;
    vec_push(o->c->arena, steps->loss, record.loss);
    vec_push(o->c->arena, steps->norm, record.norm);
  }
  rt_unmap_file(&bytes);
  return true;
}

/* ---- numbers ---- */

static double apart(double a, double b, double least) {
  double size = fmax(fabs(a), least);
  return a == b ? 0 : isfinite(a) && isfinite(b) ? fabs(a - b) / size : INFINITY;
}

/* The standard deviation of n numbers. */
static double deviation(const double *x, uint32_t n) {
  double mean = 0, sum = 0;
  for (uint32_t i = 0; i < n; i++) mean += x[i] / n;
  for (uint32_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
  return n > 1 ? sqrt(sum / (n - 1)) : 0;
}

typedef struct ComparedNumbers { /* of losses, or of norms */
  const double *a, *b;
  const double *noisy[NOISY_RUNS];
  double least;          /* below it, differences are not relative */
  double tolerance, per; /* per: allowance for a spread of 1 */
} ComparedNumbers;

typedef struct NumbersVerdict {
  double most, rounding;
  uint32_t bad; /* the first step beyond the tolerance, from 1; 0: none */
  bool same;
} NumbersVerdict;

static NumbersVerdict compare_series(const ComparedNumbers *series, uint32_t steps, uint32_t runs) {
  NumbersVerdict out = {.same = true};
  for (uint32_t i = 0; i < steps; i++) {
    double x[NOISY_RUNS], size = fmax(fabs(series->b[i]), series->least);
    if (isnan(series->a[i]) || isnan(series->b[i])) continue;
    for (uint32_t k = 0; k < runs; k++) x[k] = series->noisy[k][i];
    double by = apart(series->b[i], series->a[i], series->least),
           rounding = runs ? series->per * deviation(x, runs) / size : 0;
    out.same &= by <= 0, out.most = fmax(out.most, by);
    out.rounding = fmax(out.rounding, rounding);
    if (!(by <= series->tolerance + rounding) && !out.bad) out.bad = i + 1;
  }
  return out;
}

static void compare_steps(const ComparedSteps *a, const ComparedSteps *b,
                          const ComparedSteps *noisy, uint32_t runs, const Tolerance *tolerance,
                          Verdict *verdict) {
  ComparedNumbers loss = {.a = a->loss.at,
                          .b = b->loss.at,
                          .least = 1,
                          .tolerance = tolerance->loss},
                  norm = {
                      .a = a->norm.at, .b = b->norm.at, .least = 0.1, .tolerance = tolerance->norm};
  loss.per = tolerance->loss / tolerance->noise, norm.per = tolerance->norm / tolerance->noise;
  for (uint32_t k = 0; k < runs; k++)
    loss.noisy[k] = noisy[k].loss.at, norm.noisy[k] = noisy[k].norm.at;
  NumbersVerdict l = compare_series(&loss, verdict->steps, runs),
                 n = compare_series(&norm, verdict->steps, runs);
  verdict->same_bits &= l.same && n.same;
  verdict->loss = l.most, verdict->loss_rounding = l.rounding, verdict->bad_loss = l.bad;
  verdict->norm = n.most, verdict->norm_rounding = n.rounding, verdict->bad_norm = n.bad;
  if (l.bad) verdict->a_loss = a->loss.at[l.bad - 1], verdict->b_loss = b->loss.at[l.bad - 1];
  if (n.bad) verdict->a_norm = a->norm.at[n.bad - 1], verdict->b_norm = b->norm.at[n.bad - 1];
}

/* ---- tensors ---- */

static int64_t count_of(const SafeTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->size[i];
  return n;
}

typedef struct ComparedTensor { /* of one run */
  const SafeTensor *safe;
  double factor; /* on its elements; of gradients that wait (delay.c): their coefficient */
} ComparedTensor;

static bool is_float(const SafeTensor *tensor) {
  return tensor->elem == RT_F32 || tensor->elem == RT_BF16 || tensor->elem == RT_F16;
}

static double stored(const SafeTensor *tensor, int64_t i) {
  return rt_elem_get((int)tensor->elem, tensor->data, i);
}

static double element(ComparedTensor tensor, int64_t i) {
  return tensor.factor * stored(tensor.safe, i);
}

/* [3, 0, 7] */
static const char *index_text(Arena *a, const SafeTensor *tensor, int64_t at) {
  const char *text = "";
  for (int i = tensor->rank; i-- > 0; at /= tensor->size[i])
    text = arena_printf(a, "%lld%s%s", (long long)(at % tensor->size[i]), *text ? ", " : "", text);
  return arena_printf(a, "[%s]", text);
}

static const char coefficient_name[] = "delay.coefficient";

typedef struct Dumps { /* of all runs */
  SafeFile a, b, noisy[NOISY_RUNS];
  uint32_t runs;
} Dumps;

typedef struct Compared { /* one tensor of all runs */
  ComparedTensor a, b, noisy[NOISY_RUNS];
  uint32_t runs;
  double move; /* how far the optimizer can move an element; of a state 0 */
} Compared;

/* The difference of element i that rounding may cause: see above. */
static double allowance(const Compared *compared, int64_t i, double per) {
  double x[NOISY_RUNS];
  if (!compared->runs) return 0;
  for (uint32_t k = 0; k < compared->runs; k++) x[k] = element(compared->noisy[k], i);
  double allowed = per * deviation(x, compared->runs),
         size = compared->move > 0 ? compared->move : fabs(element(compared->b, i));
  return allowed >= size ? allowed : fmin(allowed, size / 10);
}

static double norm_of(ComparedTensor tensor, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += element(tensor, i) * element(tensor, i);
  return sqrt(sum);
}

static void excuse(Arena *arena, const Compared *compared, int64_t elements, Verdict *verdict) {
  if (!elements) return;
  if (!verdict->excused) verdict->excused_name = arena_printf(arena, "%s", compared->a.safe->name);
  verdict->excused += elements, verdict->excused_tensors++;
}

/* The distance of numbers of 16 bits next to each other, as far from 0 as x; 0 of another type. */
static double spacing(const SafeTensor *tensor, double x) {
  int bits = tensor->elem == RT_BF16 ? 7 : tensor->elem == RT_F16 ? 10 : 0, exponent = 0;
  if (!bits || !isfinite(x)) return 0;
  frexp(x, &exponent);
  return ldexp(1, exponent - 1 - bits);
}

typedef struct TensorDistance {
  int64_t at, excused;
  int64_t next, seen; /* elements that are the next number of their type; those that matter */
  double most, sum, sum_of_next;
} TensorDistance;

static bool is_next(const Compared *compared, int64_t i) {
  double of_a = stored(compared->a.safe, i), of_b = stored(compared->b.safe, i);
  return fabs(of_a - of_b) <= spacing(compared->b.safe, fmax(fabs(of_a), fabs(of_b)));
}

static void add_element(TensorDistance *to, const Compared *compared, int64_t i, double per,
                        double visible) {
  double of_a = element(compared->a, i), of_b = element(compared->b, i);
  double d = of_a == of_b ? 0 : fabs(of_a - of_b);
  double beyond = d > 0 ? fmax(0, d - allowance(compared, i, per)) : 0;
  if (isnan(d)) beyond = INFINITY;
  bool next = beyond > 0 && is_next(compared, i);
  to->next += next, to->seen += next && d > visible;
  *(next ? &to->sum_of_next : &to->sum) += beyond * beyond;
  to->excused += d > visible && beyond <= 0;
  if (beyond > to->most) to->most = beyond, to->at = i;
}

static void compare_tensor(Arena *arena, const Compared *compared, const Tolerance *tolerance,
                           Verdict *verdict) {
  ComparedTensor a = compared->a, b = compared->b;
  int64_t n = count_of(a.safe);
  TensorDistance to = {.most = -1};
  double size = norm_of(b, n) + compared->move * sqrt((double)n),
         visible = tolerance->weights * size / sqrt((double)n);
  for (int64_t i = 0; i < n; i++)
    add_element(&to, compared, i, tolerance->weights / tolerance->noise, visible);
  bool rounding = to.next <= 1 + n / 100;
  double sum = to.sum + (rounding ? 0 : to.sum_of_next), by = sum > 0 ? sqrt(sum) / size : 0;
  verdict->tensors++;
  verdict->same_bits &= !memcmp(a.safe->data, b.safe->data, (size_t)a.safe->bytes);
  excuse(arena, compared, to.excused + (rounding ? to.seen : 0), verdict);
  if (!(by <= verdict->weights)) verdict->weights = by, verdict->worst = a.safe->name;
  if (by <= tolerance->weights || verdict->bad_tensor) return;
  verdict->bad_tensor = arena_printf(arena, "%s", a.safe->name), verdict->bad_by = by;
  verdict->bad_index = index_text(arena, a.safe, to.at);
  verdict->a_value = element(a, to.at), verdict->b_value = element(b, to.at);
}

static bool comparable(const SafeTensor *a, const SafeTensor *b) {
  return a && b && is_float(a) && a->elem == b->elem && count_of(a) == count_of(b);
}

/* Gradients wait without the factor of `clip` and with that of the loss scale of their run: the
   update multiplies by their coefficient, which has both. */
static bool waits(Str name) {
  static const char end[] = ".waiting";
  size_t n = strlen(name);
  return n >= sizeof end && !strcmp(name + n - (sizeof end - 1), end);
}

static ComparedTensor tensor_of(const SafeFile *file, Str name) {
  const SafeTensor *coefficient = waits(name) ? rt_safe_find(file, coefficient_name) : NULL;
  return (ComparedTensor){rt_safe_find(file, name), coefficient ? stored(coefficient, 0) : 1};
}

static bool find_tensor(const Dumps *dumps, Str name, Compared *out) {
  *out = (Compared){tensor_of(&dumps->a, name), tensor_of(&dumps->b, name), .runs = dumps->runs};
  bool good = strcmp(name, coefficient_name) && comparable(out->a.safe, out->b.safe);
  for (uint32_t k = 0; k < dumps->runs; k++) {
    out->noisy[k] = tensor_of(&dumps->noisy[k], name);
    good &= comparable(out->noisy[k].safe, out->b.safe);
  }
  return good;
}

/* The coefficient is compared with the gradients that it scales. */
static void leave_out(Arena *arena, Str name, Verdict *verdict) {
  if (!strcmp(name, coefficient_name)) return;
  if (!verdict->left_out++) verdict->left_out_name = arena_printf(arena, "%s", name);
}

/* States that only the first side keeps: errors of 8-bit messages, a loss scale. */
static void leave_out_own(Arena *arena, const Module *m, const Dumps *dumps, Verdict *verdict) {
  EACH_GLOBAL (m, global) {
    if (global->kind != GLOBAL_STATE || layer_is_rest(global->name)) continue;
    Str name = layer_whole(m, global->name);
    if (rt_safe_find(&dumps->a, name) && !rt_safe_find(&dumps->b, name))
      leave_out(arena, name, verdict);
  }
}

static void compare_kind(Arena *arena, const Module *m, GlobalKind kind, const Dumps *dumps,
                         const Tolerance *tolerance, Verdict *verdict) {
  EACH_GLOBAL (m, global) {
    Compared compared;
    if (global->kind != kind || layer_is_rest(global->name)) continue;
    if (!find_tensor(dumps, layer_whole(m, global->name), &compared)) {
      leave_out(arena, layer_whole(m, global->name), verdict);
      continue;
    }
    compared.move = kind == GLOBAL_PARAM ? tolerance->move : 0;
    compare_tensor(arena, &compared, tolerance, verdict);
  }
}

typedef VEC(Bytes) Mapped;

static bool map_dump(Arena *arena, const VerifySide *side, Mapped *mapped, SafeFile *file,
                     Fault *f) {
  Bytes bytes;
  if (!rt_map_file(side->dump, 301, &bytes, f)) return false;
  vec_push(arena, *mapped, bytes);
  return rt_safe_read(bytes, file, f);
}

static bool compare_dumps(Cli *o, const VerifySide *a, const VerifySide *b, const NoisyRuns *noisy,
                          const Tolerance *tolerance, Verdict *verdict) {
  Fault f = {0};
  Arena *arena = o->c->arena;
  Mapped mapped = {0};
  Dumps dumps = {.runs = noisy->n};
  bool good =
      map_dump(arena, a, &mapped, &dumps.a, &f) && map_dump(arena, b, &mapped, &dumps.b, &f);
  for (uint32_t k = 0; good && k < noisy->n; k++)
    good = map_dump(arena, &noisy->at[k], &mapped, &dumps.noisy[k], &f);
  if (good) {
    compare_kind(arena, b->m, GLOBAL_PARAM, &dumps, tolerance, verdict);
    compare_kind(arena, b->m, GLOBAL_STATE, &dumps, tolerance, verdict);
    leave_out_own(arena, a->m, &dumps, verdict);
    if (verdict->worst) verdict->worst = arena_printf(arena, "%s", verdict->worst);
  } else cannot_read(o, &f);
  rt_safe_free(&dumps.a), rt_safe_free(&dumps.b);
  for (uint32_t k = 0; k < noisy->n; k++) rt_safe_free(&dumps.noisy[k]);
  for (uint32_t i = 0; i < mapped.n; i++) rt_unmap_file(&mapped.at[i]);
  return good;
}

static bool as_many(Cli *o, const ComparedSteps *x, const ComparedSteps *y) {
  if (x->loss.n == y->loss.n && x->loss.n) return true;
  diag_at(o->c->diag, "E0803", (Span){0}, "one run has %u steps, the other one %u", x->loss.n,
          y->loss.n);
  return false;
}

bool verify_compare(Cli *o, const VerifySide *a, const VerifySide *b, const NoisyRuns *noisy,
                    const Tolerance *tolerance, Verdict *verdict) {
  ComparedSteps x = {0}, y = {0}, runs[NOISY_RUNS] = {0};
  *verdict = (Verdict){.same_bits = true};
  if (!read_steps(o, a->metrics, &x) || !read_steps(o, b->metrics, &y)) return false;
  if (!as_many(o, &x, &y)) return false;
  for (uint32_t k = 0; k < noisy->n; k++)
    if (!read_steps(o, noisy->at[k].metrics, &runs[k]) || !as_many(o, &runs[k], &y)) return false;
  verdict->steps = x.loss.n;
  compare_steps(&x, &y, runs, noisy->n, tolerance, verdict);
  return compare_dumps(o, a, b, noisy, tolerance, verdict);
}

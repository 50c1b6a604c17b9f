/* What two runs of one model left behind, compared: losses and norms step by step, parameters and
   states as logical tensors in the order of the model, so that the first one that differs is the
   one nearest to the cause. The norm of a difference is compared with the tensor's norm and what an
   optimizer can move. What has no gradient in mathematics (biases of keys) has one of rounding,
   which an optimizer that divides by its size makes as large as any: where the norm of a gradient
   is below the rounding of all of them, on both sides, the parameter and its states are not judged.
 */
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

static void compare_steps(const ComparedSteps *a, const ComparedSteps *b,
                          const Tolerance *tolerance, Verdict *verdict) {
  enum { LEAST_LOSS = 1 };
  for (uint32_t i = 0; i < verdict->steps; i++) {
    double loss = apart(b->loss.at[i], a->loss.at[i], LEAST_LOSS);
    double norm =
        isnan(a->norm.at[i]) || isnan(b->norm.at[i]) ? 0 : apart(b->norm.at[i], a->norm.at[i], 0.1);
    verdict->same_bits &= loss <= 0 && norm <= 0;
    if (loss > verdict->loss) verdict->loss = loss, verdict->loss_step = i + 1;
    if (norm > verdict->norm) verdict->norm = norm, verdict->norm_step = i + 1;
    if (loss > tolerance->loss && !verdict->bad_loss)
      verdict->bad_loss = i + 1, verdict->a_loss = a->loss.at[i], verdict->b_loss = b->loss.at[i];
    if (norm > tolerance->norm && !verdict->bad_norm)
      verdict->bad_norm = i + 1, verdict->a_norm = a->norm.at[i], verdict->b_norm = b->norm.at[i];
  }
}

/* ---- tensors ---- */

static int64_t count_of(const SafeTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->size[i];
  return n;
}

static float element(const SafeTensor *tensor, int64_t i) {
  float f;
  memcpy(&f, tensor->data + 4 * i, 4);
  return f;
}

/* [3, 0, 7] */
static const char *index_text(Arena *a, const SafeTensor *tensor, int64_t at) {
  const char *text = "";
  for (int i = tensor->rank; i-- > 0; at /= tensor->size[i])
    text = arena_printf(a, "%lld%s%s", (long long)(at % tensor->size[i]), *text ? ", " : "", text);
  return arena_printf(a, "[%s]", text);
}

static void compare_tensor(Arena *arena, const SafeTensor *a, const SafeTensor *b,
                           const Tolerance *tolerance, Verdict *verdict) {
  double sum = 0, size = 0, most = -1;
  int64_t n = count_of(a), at = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = element(a, i), y = element(b, i), d = x == y ? 0 : x - y;
    sum += d * d, size += y * y;
    if (!(fabs(d) <= most)) most = isnan(d) ? INFINITY : fabs(d), at = i;
  }
  double by = sqrt(sum) / (sqrt(size) + tolerance->noise * sqrt((double)n));
  verdict->tensors++;
  verdict->same_bits &= !memcmp(a->data, b->data, (size_t)a->bytes);
  if (!(by <= verdict->weights)) verdict->weights = by, verdict->worst = a->name;
  if (by <= tolerance->weights || verdict->bad_tensor) return;
  verdict->bad_tensor = arena_printf(arena, "%s", a->name), verdict->bad_by = by;
  verdict->bad_index = index_text(arena, a, at);
  verdict->a_value = element(a, at), verdict->b_value = element(b, at);
}

/* The sum of squares that the last step left in norm2.of.NAME, or of parts of it; below 0: it told
   none. */
static double squares_of(const Module *m, const SafeFile *file, Str param) {
  static const char prefix[] = "norm2.of.";
  double sum = 0;
  bool any = false;
  for (int k = 0; k < file->ntensors; k++) {
    const SafeTensor *tensor = &file->tensor[k];
    if (tensor->elem != RT_F32 || strncmp(tensor->name, prefix, sizeof prefix - 1)) continue;
    if (strcmp(layer_whole(m, tensor->name + sizeof prefix - 1), param)) continue;
    any = true;
    for (int64_t i = 0; i < count_of(tensor); i++) sum += element(tensor, i);
  }
  return any ? sum : -1;
}

static bool beneath(const Module *m, const SafeFile *file, Str param, double rounding) {
  double all = 0, own = squares_of(m, file, param);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_PARAM && !layer_is_rest(m->globals.at[i]->name))
      all += fmax(0, squares_of(m, file, layer_whole(m, m->globals.at[i]->name)));
  return own >= 0 && own <= rounding * rounding * all;
}

/* The parameter itself, or the one that a state belongs to. */
static bool belongs(Str name, Str param) {
  size_t n = strlen(param);
  return !strncmp(name, param, n) && (!name[n] || name[n] == '.');
}

typedef VEC(Str) Names;

static Names find_beneath(Arena *arena, const Module *m, const SafeFile *a, const SafeFile *b,
                          const Tolerance *tolerance) {
  Names out = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Str name = layer_whole(m, m->globals.at[i]->name);
    if (m->globals.at[i]->kind == GLOBAL_PARAM && !layer_is_rest(m->globals.at[i]->name) &&
        beneath(m, a, name, tolerance->rounding) && beneath(m, b, name, tolerance->rounding))
      vec_push(arena, out, name);
  }
  return out;
}

static bool comparable(const SafeTensor *a, const SafeTensor *b) {
  return a && b && a->elem == RT_F32 && b->elem == RT_F32 && count_of(a) == count_of(b);
}

static void compare_kind(Arena *arena, const VerifySide *side, GlobalKind kind, const SafeFile *a,
                         const SafeFile *b, const Names *out, const Tolerance *tolerance,
                         Verdict *verdict) {
  for (uint32_t i = 0; i < side->m->globals.n; i++) {
    const Global *global = side->m->globals.at[i];
    Str name = layer_whole(side->m, global->name);
    bool judged = !layer_is_rest(global->name);
    for (uint32_t k = 0; k < out->n; k++) judged &= !belongs(name, out->at[k]);
    if (!judged) continue;
    const SafeTensor *x = rt_safe_find(a, name), *y = rt_safe_find(b, name);
    if (global->kind == kind && comparable(x, y)) compare_tensor(arena, x, y, tolerance, verdict);
  }
}

static bool compare_dumps(Cli *o, const VerifySide *a, const VerifySide *b,
                          const Tolerance *tolerance, Verdict *verdict) {
  Fault f = {0};
  Bytes x, y = {0};
  SafeFile p = {0}, q = {0};
  if (!rt_map_file(a->dump, 301, &x, &f)) return cannot_read(o, &f);
  bool good =
      rt_map_file(b->dump, 301, &y, &f) && rt_safe_read(x, &p, &f) && rt_safe_read(y, &q, &f);
  if (good) {
    Names out = find_beneath(o->c->arena, b->m, &p, &q, tolerance);
    compare_kind(o->c->arena, b, GLOBAL_PARAM, &p, &q, &out, tolerance, verdict);
    compare_kind(o->c->arena, b, GLOBAL_STATE, &p, &q, &out, tolerance, verdict);
    verdict->beneath = out.n, verdict->beneath_name = out.n ? out.at[0] : NULL;
    if (verdict->worst) verdict->worst = arena_printf(o->c->arena, "%s", verdict->worst);
  } else cannot_read(o, &f);
  rt_safe_free(&p), rt_safe_free(&q);
  rt_unmap_file(&x), rt_unmap_file(&y);
  return good;
}

bool verify_compare(Cli *o, const VerifySide *a, const VerifySide *b, const Tolerance *tolerance,
                    Verdict *verdict) {
  ComparedSteps x = {0}, y = {0};
  *verdict = (Verdict){.same_bits = true};
  if (!read_steps(o, a->metrics, &x) || !read_steps(o, b->metrics, &y)) return false;
  if (x.loss.n != y.loss.n || !x.loss.n) {
    diag_at(o->c->diag, "E0803", (Span){0}, "one run has %u steps, the other one %u", x.loss.n,
            y.loss.n);
    return false;
  }
  verdict->steps = x.loss.n;
  compare_steps(&x, &y, tolerance, verdict);
  return compare_dumps(o, a, b, tolerance, verdict);
}

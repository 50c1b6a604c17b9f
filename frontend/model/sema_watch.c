/* Notes for editors: what the values at one place of FILE are, in all models that have them, and
   how large parameters and dims are. Must not: give diagnostics. */
#include "sema.h"

static bool watched(const Eval *e, Span at) {
  const PlaceWatch *watch = e->w->watch;
  return watch && at.file == e->w->top && at.offset <= watch->offset &&
         watch->offset <= at.offset + at.length;
}

/* The smallest span around the place counts. */
static void note(Eval *e, Span at, Str text) {
  PlaceWatch *watch = e->w->watch;
  if (watch->notes.n && watch->notes.at[0].span.length < at.length) return;
  if (watch->notes.n && watch->notes.at[0].span.length > at.length) watch->notes.n = 0;
  for (uint32_t i = 0; i < watch->notes.n; i++)
    if (!strcmp(watch->notes.at[i].text, text)) return;
  vec_push(e->arena, watch->notes, (WatchNote){at, text});
}

static double elements(Eval *e, const Param *param) {
  double n = 1;
  for (int i = 0; i < param->lead.n + param->dims.n; i++) {
    Str dim = i < param->lead.n ? param->lead.at[i] : param->dims.at[i - param->lead.n];
    int64_t size = size_of(e->sizes, dim);
    if (size <= 0) return 0;
    n *= (double)size;
  }
  return n;
}

static Str param_text(Eval *e, const Param *param) {
  Dims all = param->lead;
  for (int i = 0; i < param->dims.n; i++) dims_add(&all, param->dims.at[i]);
  double n = elements(e, param);
  Str text = arena_printf(e->arena, "parameter %s %s", param->path, dims_text(e->ctx, &all));
  return n > 0 ? arena_printf(e->arena, "%s: %.0f elements", text, n) : text;
}

void watch_value(Eval *e, Span at, const Val *v) {
  if (!watched(e, at) || v->kind == VAL_POISON || v->kind == VAL_SUB) return;
  Str kind = kind_text(e->ctx, v);
  if (v->param) note(e, at, param_text(e, v->param));
  else if (v->kind == VAL_NUMBER && v->known) note(e, at, number_text(e->ctx, v->number));
  else if (val_is_tensor(v) && v->kind != VAL_NUMBER)
    note(e, at, arena_printf(e->arena, "%s: %s", kind, dims_text(e->ctx, &v->dims)));
  else note(e, at, kind);
}

void watch_params(Eval *e, const AstStmt *stmt, uint32_t first) {
  Span name = stmt->names.at[0].span,
       at = stmt->of.n ? span_join(name, vec_last(stmt->of).span) : name;
  double n = 0;
  if (!watched(e, at) || first >= e->params.n) return;
  if (first + 1 == e->params.n) {
    note(e, at, param_text(e, e->params.at[first]));
    return;
  }
  for (uint32_t i = first; i < e->params.n; i++) {
    double more = elements(e, e->params.at[i]);
    if (more <= 0) return;
    n += more;
  }
  note(e, at, arena_printf(e->arena, "%.0f elements in %u parameters", n, e->params.n - first));
}

void watch_sizes(Eval *e, Str model) {
  for (uint32_t i = 0; e->w->watch && i < e->sizes->declared; i++) {
    Str dim = e->sizes->dim[i].decl->name;
    int64_t size = size_of(e->sizes, dim);
    if (size > 0)
      vec_push(e->arena, e->w->watch->sizes,
               (WatchSize){model, dim, size, stored_size_of(e->sizes, dim)});
  }
}

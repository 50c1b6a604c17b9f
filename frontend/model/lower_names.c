/* Names of values as lines `recompute` list them: attribute `names` of
   the op that makes one, for pass `recompute`. Must not: check a name, that is lower_recompute.c's.
   */
#include "build.h"
#include "lower_emit.h"
#include <string.h>

static bool is_listed(const Module *m, Str full) {
  for (uint32_t i = 0; i < m->recompute.n; i++)
    for (uint32_t k = 0; k < m->recompute.at[i].names.n; k++)
      if (m->recompute.at[i].names.at[k] == full) return true;
  return false;
}

static void name_result(Module *m, Fn *f, ValueId v, Str full) {
  if (f->values.at[v].def == NO_OP) return;
  Op *o = &f->ops.at[f->values.at[v].def];
  const char *text = "";
  for (uint32_t i = 0; i < o->nout; i++) {
    Str had = attr_str(&o->attrs, ATTR_names, "");
    for (uint32_t k = 0; k < i && *had; k++) had += strcspn(had, ",") + (strchr(had, ',') != NULL);
    text = arena_printf(m->arena, "%s%s%.*s", text, i ? "," : "",
                        o->out + i == v ? (int)strlen(full) : (int)strcspn(had, ","),
                        o->out + i == v ? full : had);
  }
  attr_set_str(m, &o->attrs, ATTR_names, intern(m->ctx->names, text));
}

void lower_assigned(Eval *e, Str name, const Val *v) {
  if (!e->self || !e->site || e->site->decl->space != SPACE_LAYER) return;
  Str full = intern_printf(e->ctx->names, "%s%s", e->self->path, name);
  if (e->mode == MODE_CHECK && strchr(full, '*')) vec_push(e->arena, e->assigned, full);
  if (!e->build || v->id == NO_VALUE || v->frame != e->build->frame) return;
  if (is_listed(e->build->m, full)) name_result(e->build->m, v->frame->fn, v->id, full);
}

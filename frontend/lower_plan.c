/* The mesh and the place lines of a plan, as the module carries them. What they must obey is
   checked before (sema_plan.c); without a mesh the module says nothing of it. */
#include "frontend/lower_build.h"
#include "frontend/settings.h"
#include <string.h>

static void write_axes(Build *b, const AstSetting *mesh) {
  for (uint32_t i = 0; i < mesh->values.n; i++) {
    const AstPair *v = &mesh->values.at[i];
    if (v->key && v->value->kind == VALUE_NUMBER)
      vec_push(b->m->arena, b->m->mesh, (MeshAxis){v->key->text, v->value->number.integral});
  }
}

static void write_operand(Build *b, const Sizes *s, PlaceRule *r, const AstValue *v,
                          bool otherwise) {
  if (v->kind != VALUE_PATH) return;
  Str name = intern(b->m->ctx->names, v->path->text);
  if (!sizes_find(s, name)) vec_push(b->m->arena, r->paths, name);
  else if (otherwise) vec_push(b->m->arena, r->otherwise, name);
  else vec_push(b->m->arena, r->dims, name);
}

static void write_target(Build *b, const Sizes *s, PlaceRule *r, const AstSetting *line) {
  bool otherwise = false;
  for (uint32_t i = 0; i < line->target.n; i++) {
    const AstValue *v = line->target.at[i].value;
    if (v->kind != VALUE_PATH || line->target.at[i].key) continue;
    Str name = intern(b->m->ctx->names, v->path->text);
    if (!strcmp(name, "else")) otherwise = true;
    else if (otherwise) write_operand(b, s, r, v, true);
    else if (strcmp(name, "none")) vec_push(b->m->arena, r->axes, name);
  }
}

static void write_rule(Build *b, const Sizes *s, const AstSetting *line) {
  PlaceRule r = {.loc = build_loc(b, line->path->span)};
  for (uint32_t i = 0; i < line->values.n; i++)
    if (!line->values.at[i].key) write_operand(b, s, &r, line->values.at[i].value, false);
  write_target(b, s, &r, line);
  vec_push(b->m->arena, b->m->rules, r);
}

/* Which dims are read like which others: rules speak of the latter. */
static void write_likes(Module *m, const Sizes *s) {
  for (uint32_t i = 0; i < m->dims.n; i++) {
    const DimInfo *d = sizes_find(s, m->dims.at[i].name);
    if (d && d->def && d->def->like.text) m->dims.at[i].like = d->def->like.text;
  }
}

void write_mesh(Build *b, const Sizes *s, const AstItem *plan) {
  const AstSetting *mesh = settings_line(plan, "mesh");
  if (!mesh) return;
  write_axes(b, mesh);
  write_likes(b->m, s);
  for (uint32_t i = 0; i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    if (!strcmp(line->path->text, "place") && line->arrow == ARROW_RIGHT) write_rule(b, s, line);
  }
}

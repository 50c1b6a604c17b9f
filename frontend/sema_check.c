/* `shardc check`: every model, variant, train, plan and weights block of FILE. */
#include "frontend/lower_build.h"
#include "frontend/settings.h"

static bool own(const World *w, const Decl *d) { return d->span.file == w->top; }

static void check_model(World *w, const Decl *d) {
  Choice c;
  if (!choose_for_model(w, d, &c)) return;
  Eval *e = eval_new(w, choice_sizes(w, &c), MODE_CHECK, NULL);
  e->sized = c.train != NULL;
  eval_model(e, c.base);
  if (c.train) check_data(e, &c);
}

bool check_program(Ctx *c, const char *path) {
  World *w = world_load(c, path);
  uint32_t at = 0;
  if (!w) return false;
  for (const Decl *d; (d = world_next(w, SPACE_MODEL, &at));)
    if (own(w, d)) check_model(w, d);
  world_flush_warnings(w);
  return true;
}

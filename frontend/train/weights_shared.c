/* Names of files that several lines of a weights block have, such as those of a model and its
   frozen reference: `--init` reads the tensor into all of these parameters, and `export` writes one
   of them: the one that is trained, or that has adapters, else that of the first line. Two that are
   trained are refused (E0502). Must not: compare names of single rounds of a stack. */
#include "train.h"
#include <string.h>

static const Param *param_of(const Eval *e, const AstSetting *line) {
  for (uint32_t i = 0; line->arrow == ARROW_LEFT && i < e->params.n; i++)
    if (!strcmp(e->params.at[i]->path, line->path->text)) return e->params.at[i];
  return NULL;
}

/* The name that `export` writes. */
static Str written_name(const AstSetting *line) {
  const AstValue *first = line->target.n ? line->target.at[0].value : NULL;
  return first && first->kind == VALUE_STRING ? first->string : NULL;
}

static int claim(const Param *param) { return param->low[0] ? 2 : !param->frozen; }

/* Is it written in place of the other one? `before`: its line is the first of the two. */
static bool goes_first(const Param *param, const Param *other, bool before) {
  return claim(param) > claim(other) || (claim(param) == claim(other) && before);
}

static bool same_name(const AstSetting *line, const AstSetting *other) {
  Str name = written_name(line), second = written_name(other);
  return other->arrow == ARROW_LEFT && name && second && !strcmp(name, second);
}

/* The parameter of `other` if it has the name of `line` in files. */
static const Param *sharer(const Eval *e, const AstSetting *line, const AstSetting *other) {
  return line != other && same_name(line, other) ? param_of(e, other) : NULL;
}

void check_shared_names(Eval *e, const AstItem *weights) {
  AstSetting *const *line = weights->block->settings.at;
  for (uint32_t i = 0; i < weights->block->settings.n; i++) {
    const Param *param = param_of(e, line[i]);
    for (uint32_t k = 0; param && !param->frozen && k < i; k++) {
      const Param *other = sharer(e, line[i], line[k]);
      if (!other || other->frozen || other == param) continue;
      Report *r = world_error(e->w, "E0502", line[i]->target.at[0].value->span,
                              "`%s` and `%s` have one name in files, and both are trained",
                              other->path, param->path);
      diag_also(r, line[k]->target.at[0].value->span, "the first one");
      diag_help(r, "give it a name of its own, or freeze one: `sub reference = Net @frozen`");
    }
  }
}

void write_shared_names(Module *m, const Eval *e, const AstItem *weights) {
  AstSetting *const *line = weights->block->settings.at;
  uint32_t n = weights->block->settings.n;
  for (uint32_t i = 0; i < n; i++) {
    const Param *param = param_of(e, line[i]);
    bool writes = true;
    for (uint32_t k = 0; param && k < n; k++) {
      const Param *other = sharer(e, line[i], line[k]);
      writes &= !other || goes_first(param, other, i < k);
    }
    if (!writes) module_set(m, arena_printf(m->arena, "weights.reads.%s", param->path), "on");
  }
}

/* Names of files that several lines of a weights block have, such as those of a model and its
   frozen reference: `--init` reads the tensor into all of these parameters, and `export` writes one
   of them: the one that is trained, or that has adapters, else that of the first line. Two that are
   trained are refused (E0502). Must not: compare names of single rounds of a stack. */
#include "train.h"
#include "ir/support/names.h"

/* By line: its parameter; NULL: it has none, or is not read. */
static const Param **params_of(const Eval *e, const AstItem *weights) {
  uint32_t n = weights->block->settings.n, at;
  const Param **param = ARENA_ARRAY(e->arena, const Param *, n + 1);
  NameMap *paths = names_new(e->arena);
  for (uint32_t i = 0; i < e->params.n; i++) names_put(paths, 0, e->params.at[i]->path, i);
  for (uint32_t i = 0; i < n; i++) {
    const AstSetting *line = weights->block->settings.at[i];
    if (line->arrow == ARROW_LEFT && names_find(paths, 0, line->path->text, &at))
      param[i] = e->params.at[at];
  }
  return param;
}

/* The name that `export` writes. */
static Str written_name(const AstSetting *line) {
  const AstValue *first = line->target.n ? line->target.at[0].value : NULL;
  return first && first->kind == VALUE_STRING ? first->string : NULL;
}

static int claim(const Param *param) { return param->low[0] ? 2 : !param->frozen; }

void check_shared_names(Eval *e, const AstItem *weights) {
  AstSetting *const *line = weights->block->settings.at;
  const Param **param = params_of(e, weights);
  NameMap *trained = names_new(e->arena);
  for (uint32_t i = 0, before; i < weights->block->settings.n; i++) {
    Str name = written_name(line[i]);
    if (!param[i] || param[i]->frozen || !name) continue;
    if (!names_find(trained, 0, name, &before)) {
      names_put(trained, 0, name, i);
      continue;
    }
    if (param[before] == param[i]) continue;
    Report *r = world_error(e->w, "E0502", line[i]->target.at[0].value->span,
                            "`%s` and `%s` have one name in files, and both are trained",
                            param[before]->path, param[i]->path);
    diag_also(r, line[before]->target.at[0].value->span, "the first one");
    diag_help(r, "give it a name of its own, or freeze one: `sub reference = Net @frozen`");
  }
}

void write_shared_names(Module *m, const Eval *e, const AstItem *weights) {
  AstSetting *const *line = weights->block->settings.at;
  uint32_t n = weights->block->settings.n, first;
  const Param **param = params_of(e, weights);
  NameMap *writer = names_new(e->arena);
  for (uint32_t i = 0; i < n; i++) {
    Str name = written_name(line[i]);
    if (param[i] && name &&
        (!names_find(writer, 0, name, &first) || claim(param[i]) > claim(param[first])))
      names_put(writer, 0, name, i);
  }
  for (uint32_t i = 0; i < n; i++) {
    Str name = written_name(line[i]);
    if (param[i] && name && names_find(writer, 0, name, &first) && param[first] != param[i])
      module_set(m, arena_printf(m->arena, "weights.reads.%s", param[i]->path), "on");
  }
}

/* The table optimizers.def, and the lines of a module that name its optimizers. Must not: know
   update rules, which are in passes/math. */
#include "optimizers.h"
#include "layer_range.h"
#include "module_settings.h"
#include "ir/support/num.h"
#include <string.h>

static const OptimizerRow rows[] = {
#define FREEZES OPTIMIZER_FREEZES
#define MATRICES OPTIMIZER_MATRICES
#define AVERAGES OPTIMIZER_AVERAGES
#define OPTIMIZER(name, states, flags) {#name, states, flags},
#include "optimizers.def"
#undef OPTIMIZER
#undef FREEZES
#undef MATRICES
#undef AVERAGES
};

const OptimizerRow *optimizer_row(const char *name) {
  for (size_t i = 0; name && i < COUNT_OF(rows); i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

/* ---- lines ---- */

Str optimizer_key(const Module *m, int line, const char *key) {
  static const char first[] = "train.optim";
  size_t n = sizeof first - 1;
  must(!strncmp(key, first, n), "`%s` is no setting of an optimizer", key);
  return line ? intern_printf(m->ctx->names, "%s.%d%s", first, line, key + n)
              : intern(m->ctx->names, key);
}

int optimizer_lines(const Module *m) {
  int n = 0;
  while (module_said(m, optimizer_key(m, n + 1, "train.optim"))) n++;
  return n;
}

/* Groups have no parameter in common. */
int optimizer_line_of(const Module *m, Str param) {
  for (int i = optimizer_lines(m); i > 0; i--) {
    Str path = module_said(m, optimizer_key(m, i, "train.optim.of"));
    for (size_t n; path && *path; path += n + strspn(path + n, ", "))
      if (layer_path_names(path, n = strcspn(path, ","), param)) return i;
  }
  return 0;
}

static double optimizer_rate(const Module *m, int line) {
  return module_amount(m, optimizer_key(m, line, "train.optim.lr"));
}

double optimizer_fastest(const Module *m) {
  double rate = optimizer_rate(m, 0);
  for (int i = optimizer_lines(m); i > 0; i--)
    if (optimizer_rate(m, i) > rate) rate = optimizer_rate(m, i);
  return rate;
}

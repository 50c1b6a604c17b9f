/* Words of a data line that change the numbers of columns: `mean` and `std` have one number, or one
   for each index of the last dimension of every input of floats (E0602); `raw` and both change
   nothing without such an input (W0706). The runtime applies them (data_open.c). Must not: open
   files. */
#include "frontend/settings/settings.h"
#include "train.h"

static bool is_floats(const Input *in) { return in->type.kind == VAL_FLOAT; }

/* The one number that all of the list are; NULL: they differ. */
static const AstValue *all_equal(const AstValue *list) {
  for (uint32_t i = 0; i < list->items.n; i++)
    if (list->items.at[i]->number.value != list->items.at[0]->number.value) return NULL;
  return list->items.n ? list->items.at[0] : NULL;
}

static void other_length(Eval *e, Str key, const AstValue *list, const Input *in, Str last,
                         int64_t size) {
  const Dims *dims = &in->type.dims;
  const AstValue *one = all_equal(list);
  Report *r = world_error(e->w, "E0602", list->span, "`%s` has %u numbers, input `%s` takes %lld",
                          key, list->items.n, in->name, (long long)size);
  if (last) diag_label(r, "one for all, or one for each index of its last dimension, `%s`", last);
  else diag_label(r, "one for all: a sample is one number");
  diag_also(r, in->span, "the input");
  if (one) {
    diag_help(r, "write `%s = %s`", key, one->number.text);
    diag_edit(r, list->span, "%s", one->number.text);
    return;
  }
  for (int i = 1; i + 1 < dims->n; i++)
    if (size_of(e->sizes, dims->at[i]) == list->items.n)
      diag_help(r, "for one number for each index of `%s`, store samples with it as last dimension",
                dims->at[i]);
}

static void check_list(Eval *e, Str key, const AstValue *list) {
  for (uint32_t i = 0; i < e->inputs.n; i++) {
    const Input *in = e->inputs.at[i];
    const Dims *dims = &in->type.dims;
    Str last = dims->n > 1 ? dims->at[dims->n - 1] : NULL;
    int64_t size = last ? size_of(e->sizes, last) : 1;
    if (!is_floats(in) || size <= 0 || list->items.n == 1 || list->items.n == size) continue;
    other_length(e, key, list, in, last, size);
    return;
  }
}

void check_columns(Eval *e, const AstSetting *line) {
  static const char *const keys[] = {"mean", "std", "raw"};
  bool floats = false;
  for (uint32_t i = 0; i < e->inputs.n; i++) floats |= is_floats(e->inputs.at[i]);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const AstValue *value = setting_option(line, keys[i]);
    if (!value) continue;
    if (!floats)
      world_warn(e->w, "W0706", value->span, arena_printf(e->arena, "`%s` has no effect", keys[i]),
                 "the model has no input of floats");
    else if (value->kind == VALUE_LIST) check_list(e, keys[i], value);
  }
}

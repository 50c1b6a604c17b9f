/* Small facts about values and sets of dims. Must not: give diagnostics. */
#include "sema.h"
#include <string.h>

bool dims_has(const Dims *d, Str name) {
  for (int i = 0; i < d->n; i++)
    if (d->at[i] == name) return true;
  return false;
}

bool dims_subset(const Dims *small, const Dims *big) {
  for (int i = 0; i < small->n; i++)
    if (!dims_has(big, small->at[i])) return false;
  return true;
}

bool dims_same(const Dims *a, const Dims *b) { return dims_subset(a, b) && dims_subset(b, a); }

Dims dims_without(const Dims *a, const Dims *cut) {
  Dims r = {0};
  for (int i = 0; i < a->n; i++)
    if (!dims_has(cut, a->at[i])) r.at[r.n++] = a->at[i];
  return r;
}

bool dims_add(Dims *d, Str name) {
  if (d->n == DIMS_MAX) return false;
  d->at[d->n++] = name;
  return true;
}

Str dims_repeated(const Dims *d) {
  for (int i = 0; i < d->n; i++)
    for (int k = i + 1; k < d->n; k++)
      if (d->at[i] == d->at[k]) return d->at[i];
  return NULL;
}

Str dims_names(Ctx *c, const Dims *d) {
  Str s = "";
  for (int i = 0; i < d->n; i++) s = arena_list(c->arena, s, "%s", d->at[i]);
  return s;
}

Str dims_text(Ctx *c, const Dims *d) {
  return d->n ? arena_printf(c->arena, "[%s]", dims_names(c, d)) : "no dimensions";
}

Val val_poison(void) { return (Val){.kind = VAL_POISON, .id = NO_VALUE}; }

Val val_number(double v) {
  return (Val){.kind = VAL_NUMBER, .known = true, .number = v, .id = NO_VALUE};
}

Val val_open_number(void) { return (Val){.kind = VAL_NUMBER, .id = NO_VALUE}; }

Val val_tensor(Kind k, Dims d) { return (Val){.kind = k, .dims = d, .id = NO_VALUE}; }

Val val_flat(Kind k, Dims d, double v) {
  return (Val){.kind = k, .dims = d, .known = true, .number = v, .id = NO_VALUE};
}

bool val_is_tensor(const Val *v) {
  return v->kind == VAL_NUMBER || v->kind == VAL_FLOAT || v->kind == VAL_INDEX ||
         v->kind == VAL_INT || v->kind == VAL_BOOL;
}

bool val_is_real(const Val *v) { return v->kind == VAL_NUMBER || v->kind == VAL_FLOAT; }

Str kind_text(Ctx *c, const Val *v) {
  switch (v->kind) {
  case VAL_POISON:
  case VAL_ABSENT: return "nothing";
  case VAL_NUMBER: return "a number";
  case VAL_FLOAT: return "a float";
  case VAL_INDEX: return arena_printf(c->arena, "an index of `%s`", v->of);
  case VAL_INT: return "an i32";
  case VAL_BOOL: return "a bool";
  case VAL_MASK: return "a mask";
  case VAL_NONE: return "`none`";
  case VAL_FLAG: return v->number != 0 ? "`on`" : "`off`";
  case VAL_STRING: return "a string";
  case VAL_LIST: return v->items ? "several values" : "a list";
  case VAL_INIT: return "an initialiser";
  case VAL_SUB: return "a sub";
  }
  return "something";
}

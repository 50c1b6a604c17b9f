/* text */
#include "ir.h"
const char *type_text(Module *m, const Type *t) {
  const char *text = arena_printf(m->arena, "%s[", elem_name(t->elem));
  for (int i = 0; i < t->rank; i++)
    text = arena_printf(m->arena, "%s%s%s:%lld", text, i ? ", " : "", t->axis[i].dim,
                        (long long)t->axis[i].size);
  return arena_printf(m->arena, "%s]", text);
}

/* The shapes of all families as one table, from families.def. Must not: name a family. */
#include "family.h"

#define FAMILY(name, anchors, buffers, neighbours, devices, what)                                  \
  extern const FamilyShape name##_family;
#include "families.def"
#undef FAMILY

static const struct {
  const char *name;
  const FamilyShape *shape;
} families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) {#name, &name##_family},
#include "families.def"
#undef FAMILY
};

const FamilyShape *family_shape(const Fn *k) {
  Str name = attr_str(&k->attrs, ATTR_family, "");
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return families[i].shape;
  return NULL;
}

bool family_is_argument(const Fn *k, ValueId v) {
  const Op *o = value_def(k, v);
  if (o && o->code == OP_cast) v = o->in[0];
  return k->values.at[v].def == NO_OP;
}

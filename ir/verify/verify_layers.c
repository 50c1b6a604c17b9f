/* Parts of stacks (layer_range.h): a dim that is a part is inside the dim of its stack
   ([layers-c1]), a value named after layers has the dim of these layers ([layers-c2]), and the
   parts of a parameter are all its layers, each exactly once ([layers-c3]); the executable joins
   them by these numbers. Must not: take time where no dim is a part. */
#include "ir/plan/layer_range.h"
#include "verify.h"

static bool check_dims(Verifier *verifier) {
  const Module *m = verifier->m;
  bool any = false;
  for (uint32_t i = 0; i < m->dims.n; i++) {
    const Dim *part = &m->dims.at[i], *whole = part->part ? dim_find(m, part->part) : NULL;
    any |= part->part != NULL;
    if (part->part && (!whole || whole->part || part->size < 1 || part->first < 0 ||
                       part->first > whole->size - part->size))
      verify_report(verifier, "E1105", (VerifyPlace){0}, "[layers-c1] dim %s is no part of dim %s",
                    part->name, part->part);
  }
  return any;
}

static void check_name(Verifier *verifier, const Global *global, const Dim *dim) {
  LayerPart part;
  if (!layer_part(global->name, &part) ||
      (part.first == dim->first && part.last == dim->first + dim->size - 1))
    return;
  verify_report(verifier, "E1105", (VerifyPlace){.loc = global->loc},
                "[layers-c2] @%s has dim %s, layers %lld .. %lld", global->name, dim->name,
                (long long)dim->first, (long long)(dim->first + dim->size - 1));
}

/* Groups are made of parameters as they meet, and of some parts there is none. */
static bool is_group(const Module *m, const Global *global) {
  bool group = global->derived;
  for (uint32_t i = 0; i < m->globals.n; i++) group |= m->globals.at[i]->within == global;
  return group;
}

/* Parts that do not overlap and are as many layers as there are. */
static void check_parts(Verifier *verifier, const Global *global, const Dim *dim) {
  const Module *m = verifier->m;
  Str whole = layer_whole(m, global->name);
  int64_t layers = 0;
  bool meet = false;
  EACH_GLOBAL (m, other) {
    const Dim *part = layer_dim(m, other);
    if (!part || layer_whole(m, other->name) != whole) continue;
    layers += part->size;
    meet |= other != global && part->first < dim->first + dim->size &&
            dim->first < part->first + part->size;
  }
  const Dim *all = dim_find(m, dim->part);
  if (all && (meet || layers != all->size))
    verify_report(verifier, "E1105", (VerifyPlace){.loc = global->loc},
                  "[layers-c3] the parts of @%s are not its %lld layers, each once", whole,
                  (long long)all->size);
}

void verify_layers(Verifier *verifier) {
  const Module *m = verifier->m;
  if (!check_dims(verifier) || verifier->failed) return;
  EACH_GLOBAL (m, global) {
    const Dim *dim = layer_dim(m, global);
    if (!dim) continue;
    check_name(verifier, global, dim);
    if (global->kind == GLOBAL_PARAM && !is_group(m, global) && !verifier->failed)
      check_parts(verifier, global, dim);
  }
}

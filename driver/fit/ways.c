/* The ways by which attention over split positions gets its keys, as values of key `way` of a
   change: `gather`, `ring`, `exchange` (heads for positions). Each is the plan's own `place` line
   in other words; one that is not legal cannot be compiled. Must not: choose. */
#include "ir/made.h"
#include "ir/plan/layer_range.h"
#include "ir/shape/placement.h"
#include "ways.h"

static bool follows(const Module *m, Str dim, Str of) {
  if (dim == of || dim_is_primed(dim, of)) return true;
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (m->dims.at[i].name == dim && m->dims.at[i].like == of) return true;
  return false;
}

/* The first dim that queries and keys share, of samples and of a head's numbers apart. */
static Str heads_of(const Fn *f, const Op *o) {
  const Type *q = value_type(f, o->in[0]), *k = value_type(f, o->in[1]);
  for (int i = 0; i < k->rank; i++) {
    Str dim = k->axis[i].dim;
    if (type_find(q, dim) >= 0 && dim != o->group[1].from[0] && strcmp(dim, "Batch") != 0)
      return dim;
  }
  return NULL;
}

/* Does the line split the queries and keys of the attention, or its heads in their place? */
static bool answers(const Module *m, const Op *o, const PlaceRule *rule, AttentionWay *way) {
  Str sequence = NULL;
  if (rule->dims.n == 1 && !rule->otherwise.n) sequence = rule->dims.at[0];
  else if (rule->dims.n == 1 && rule->otherwise.n == 1 && rule->activations)
    sequence = rule->otherwise.at[0], way->heads = rule->dims.at[0];
  if (!sequence || !follows(m, o->group[0].from[0], sequence) ||
      !follows(m, o->group[0].to[0], sequence))
    return false;
  way->sequence = sequence, way->axis = rule->axes.at[0];
  way->now = rule->activations ? "exchange" : rule->ring ? "ring" : "gather";
  return true;
}

static bool divides(const Module *m, Str dim, int64_t parts) {
  const Dim *info = dim_find(m, dim);
  return info && info->stored % parts == 0;
}

/* The ranks over which lines split a dim. */
static int64_t ranks_of(const Module *m, Str dim) {
  int64_t ranks = 1;
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *rule = &m->rules.at[i];
    for (uint32_t d = 0; d < rule->dims.n; d++)
      for (uint32_t k = 0; k < rule->axes.n && rule->dims.at[d] == dim; k++)
        ranks *= m->mesh.at[mesh_find(m, rule->axes.at[k])].size;
  }
  return ranks;
}

Str attention_heads(const Module *m, Str sequence, bool *masked) {
  enum { UNMASKED = 3 }; /* operands: queries, keys, values */
  EACH_FN (m, f)
    EACH_OP (f, o) {
      if (o->code != OP_attention || !follows(m, o->group[0].from[0], sequence) ||
          !follows(m, o->group[0].to[0], sequence))
        continue;
      *masked = o->nin > UNMASKED;
      return heads_of(f, o);
    }
  return NULL;
}

bool attention_way(const Module *m, AttentionWay *way) {
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *rule = &m->rules.at[i];
    int axis = rule->axes.n == 1 && !rule->paths.n ? mesh_find(m, rule->axes.at[0]) : -1;
    if (axis < 0 || m->mesh.at[axis].size < 2) continue;
    EACH_FN (m, f)
      EACH_OP (f, o) {
        *way = (AttentionWay){.rule = i};
        if (o->code != OP_attention || !answers(m, o, rule, way)) continue;
        if (way->heads) return true;
        Str heads = heads_of(f, o);
        if (heads && divides(m, heads, ranks_of(m, heads) * m->mesh.at[axis].size))
          way->heads = heads;
        return true;
      }
  }
  return false;
}

void way_set(Module *m, const char *value) {
  AttentionWay way;
  if (!attention_way(m, &way)) return;
  PlaceRule *rule = &m->rules.at[way.rule];
  bool exchange = !strcmp(value, "exchange"), was = rule->activations;
  int64_t ranks = m->mesh.at[mesh_find(m, way.axis)].size;
  StrList dims = {0}, otherwise = {0};
  vec_push(m->arena, dims, exchange ? way.heads : way.sequence);
  if (exchange) vec_push(m->arena, otherwise, way.sequence);
  rule->dims = dims, rule->otherwise = otherwise, rule->activations = exchange;
  rule->ring = !strcmp(value, "ring");
  if (exchange) rule->pieces = 0;
  else if (was) rule->pieces = divides(m, way.sequence, 2 * ranks) ? 2 : 0;
}

/* Lists of blocks: sound by themselves, named by what they say, and what positions say in the mask
   of each attention that names them, block by block; of many blocks a sample. A mask that was
   computed elsewhere says nothing here, and has no heads by which a kernel could find lists. */
#include "ir/lists.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"
#include "verify.h"

enum { SAMPLES = 1024, HEADS = 8 };

void verify_lists(Verifier *v) {
  Module *m = v->m;
  for (uint32_t i = 0; i < m->lists.n; i++) {
    const BlockLists *l = &m->lists.at[i];
    VerifyPlace at = {.span = l->span};
    const char *why = lists_fault(m->arena, l);
    for (uint32_t k = 1; k < l->attrs.n && !why; k++)
      if (l->attrs.at[k - 1].key >= l->attrs.at[k].key) why = "attributes are out of order";
    for (uint32_t k = 0; k < l->attrs.n && !why; k++)
      if (l->attrs.at[k].key < ATTR_queries || l->attrs.at[k].key > ATTR_partial)
        why = arena_printf(m->arena, "there is no `%s`", attr_name(l->attrs.at[k].key));
    if (why) verify_report(v, "E1103", at, "[lists-c1] @%s: %s", l->name, why);
    else if (lists_hash(m, &l->attrs) != l->name)
      verify_report(v, "E1103", at, "[lists-c2] @%s is called @%s by what it says", l->name,
                    lists_hash(m, &l->attrs));
    if (lists_named(m, l->name) != l)
      verify_report(v, "E1103", at, "[lists-c2] two lists are called @%s", l->name);
  }
}

static ValueId mask_of(const Op *o) {
  uint32_t operands = o->code == OP_attention ? 3 : 6;
  return o->nin > operands ? o->in[operands] : NO_VALUE;
}

/* Whether its sizes are those of the attention. */
static bool meets(const Verifier *v, const Op *o, const ListsShape *s, Axis *query, Axis *key) {
  Str q = o->group[0].from[0], k = o->group[0].to[0];
  *query = (Axis){q, type_size(value_type(v->fn, o->in[0]), q)};
  *key = (Axis){k, type_size(value_type(v->fn, o->in[1]), k)};
  return query->size == s->queries && key->size == s->keys;
}

static void check_blocks(Verifier *v, const Op *o, const BlockLists *l, const ListsShape *s,
                         const ListsHeads *of, Axis query, Axis key) {
  Arena *a = arena_new();
  int64_t step = max_i64(s->count / HEADS, 1);
  for (int64_t h = 0; h < s->count; h += step) {
    BlockHead at[MASK_DIMS];
    lists_head_at(s, of, h, at);
    BlockMap map = lists_map(a, l, lists_class(l, h));
    int64_t b = mask_contradicts(v->fn, mask_of(o), query, key, &map, s->heads, at, SAMPLES);
    if (b < 0) continue;
    verify_report(v, "E1103", verify_at_op(o),
                  "[lists-c5] block %lld, %lld of head %lld is another one by the mask",
                  (long long)(b / map.columns), (long long)(b % map.columns), (long long)h);
    break;
  }
  arena_free(a);
}

void verify_listed(Verifier *v, const Op *o) {
  Str name = attr_str(&o->attrs, ATTR_lists, NULL);
  if (!name) return;
  const BlockLists *l = lists_of(v->m, o);
  Axis query, key;
  if (!l || mask_of(o) == NO_VALUE) {
    verify_report(v, "E1103", verify_at_op(o),
                  l ? "[lists-c3] there is no mask for lists @%s"
                    : "[lists-c3] there are no lists @%s",
                  name);
    return;
  }
  ListsShape s = lists_shape(l);
  if (!meets(v, o, &s, &query, &key)) {
    verify_report(v, "E1103", verify_at_op(o),
                  "[lists-c4] lists @%s are for %lld queries, %lld keys", name,
                  (long long)s.queries, (long long)s.keys);
    return;
  }
  if (!value_def(v->fn, mask_of(o)) && !s.heads) return;
  ListsHeads of = lists_heads(v->fn, mask_of(o), query.dim, key.dim);
  if (lists_heads_meet(&s, &of)) check_blocks(v, o, l, &s, &of, query, key);
  else
    verify_report(v, "E1103", verify_at_op(o),
                  "[lists-c4] heads of lists @%s are not those by which the mask differs", name);
}

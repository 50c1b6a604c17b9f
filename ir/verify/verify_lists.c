/* Lists of blocks: each is consistent in itself, is named by its contents, and agrees block by
   block with the mask of each attention that uses it; of a long list a sample of blocks is
   compared. A mask that is computed elsewhere cannot be compared, and has no heads by which a
   kernel could find lists. */
#include "ir/mask/lists.h"
#include "ir/attention_operands.h"
#include "ir/mask/mask_range.h"
#include "ir/support/num.h"
#include "verify.h"

enum { SAMPLES = 1024, HEADS = 8 };

void verify_lists(Verifier *verifier) {
  Module *m = verifier->m;
  for (uint32_t i = 0; i < m->lists.n; i++) {
    const BlockLists *lists = &m->lists.at[i];
    VerifyPlace at = {.span = lists->span};
    const char *why = lists_fault(m->arena, lists);
    for (uint32_t k = 1; k < lists->attrs.n && !why; k++)
      if (lists->attrs.at[k - 1].key >= lists->attrs.at[k].key) why = "attributes are out of order";
    for (uint32_t k = 0; k < lists->attrs.n && !why; k++)
      if (lists->attrs.at[k].key < ATTR_queries || lists->attrs.at[k].key > ATTR_partial)
        why = arena_printf(m->arena, "there is no `%s`", attr_name(lists->attrs.at[k].key));
    if (why) verify_report(verifier, "E1103", at, "[lists-c1] @%s: %s", lists->name, why);
    else if (lists_hash(m, &lists->attrs) != lists->name)
      verify_report(verifier, "E1103", at, "[lists-c2] @%s is called @%s by what it says",
                    lists->name, lists_hash(m, &lists->attrs));
    if (lists_named(m, lists->name) != lists)
      verify_report(verifier, "E1103", at, "[lists-c2] two lists are called @%s", lists->name);
  }
}

/* Whether its sizes are those of the attention. */
static bool meets(const Verifier *verifier, const Op *o, const ListsShape *shape, Axis *query,
                  Axis *key) {
  Str q = o->group[0].from[0], k = o->group[0].to[0];
  *query = (Axis){q, type_size(value_type(verifier->fn, o->in[0]), q)};
  *key = (Axis){k, type_size(value_type(verifier->fn, o->in[1]), k)};
  return query->size == shape->queries && key->size == shape->keys;
}

static void check_blocks(Verifier *verifier, const Op *o, const BlockLists *lists,
                         const ListsShape *shape, const ListsHeads *of, Axis query, Axis key) {
  Arena *arena = arena_new();
  int64_t step = max_i64(shape->count / HEADS, 1);
  for (int64_t h = 0; h < shape->count; h += step) {
    BlockHead at[MASK_DIMS];
    lists_head_at(shape, of, h, at);
    BlockMap map = lists_map(arena, lists, lists_class(lists, h));
    int64_t b = mask_contradicts(verifier->fn, attention_mask(verifier->fn, o), query, key, &map,
                                 shape->heads, at, SAMPLES);
    if (b < 0) continue;
    verify_report(verifier, "E1103", verify_at_op(o),
                  "[lists-c5] block %lld, %lld of head %lld is another one by the mask",
                  (long long)(b / map.columns), (long long)(b % map.columns), (long long)h);
    break;
  }
  arena_free(arena);
}

void verify_listed(Verifier *verifier, const Op *o) {
  Str name = attr_str(&o->attrs, ATTR_lists, NULL);
  if (!name) return;
  const BlockLists *lists = lists_of(verifier->m, o);
  Axis query, key;
  if (!lists || attention_mask(verifier->fn, o) == NO_VALUE) {
    verify_report(verifier, "E1103", verify_at_op(o),
                  lists ? "[lists-c3] there is no mask for lists @%s"
                        : "[lists-c3] there are no lists @%s",
                  name);
    return;
  }
  ListsShape shape = lists_shape(lists);
  if (!meets(verifier, o, &shape, &query, &key)) {
    verify_report(verifier, "E1103", verify_at_op(o),
                  "[lists-c4] lists @%s are for %lld queries, %lld keys", name,
                  (long long)shape.queries, (long long)shape.keys);
    return;
  }
  if (!value_def(verifier->fn, attention_mask(verifier->fn, o)) && !shape.heads) return;
  ListsHeads of = lists_heads(verifier->fn, attention_mask(verifier->fn, o), query.dim, key.dim);
  if (lists_heads_meet(&shape, &of)) check_blocks(verifier, o, lists, &shape, &of, query, key);
  else
    verify_report(verifier, "E1103", verify_at_op(o),
                  "[lists-c4] heads of lists @%s are not those by which the mask differs", name);
}

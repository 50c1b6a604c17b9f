/* E0311 if a layout lists more than the constants of a program or of one kernel can hold: at the
   layout's `blocks(n)`, with the numbers. Pass `sparse` makes the lists of the module, `select`
   those of each kernel, which depend on its tiles. Masks without blocks (`causal & sliding(n)`)
   need no lists: kernels find the first and the last key of a tile by comparisons, so they get no
   diagnostic. */
#include "ir/mask/lists.h"
#include "ir/word_patterns.h"
#include "tune.h"

void listed_refuse(Module *m, const Fn *f, const Op *attention, ValueId mask, const char *who,
                   const char *why) {
  int64_t n;
  const Op *o = mask_block_op(f, mask, attention->group[0].from[0], attention->group[0].to[0], &n);
  if (!o) return;
  const BlockLists *lists = lists_of(m, attention);
  Report *r = diag_at(m->ctx->diag, "E0311", loc_span(m, o->loc), "more blocks than %s", who);
  diag_label(r, "blocks of %lld", (long long)n);
  diag_fact(r, "%s", why);
  if (lists) {
    ListsShape shape = lists_shape(lists);
    diag_fact(r, "%.2f %% of %lld x %lld blocks are listed, of %lld that differ by head or rank",
              100 * lists_share(lists), (long long)shape.rows, (long long)shape.columns,
              (long long)shape.classes);
  }
  diag_help(r, "use larger blocks, or a layout that all heads share");
}

void listed_check(Module *m, const Fn *k, const Flash *f, bool too_many, const char *what) {
  if (!too_many) return;
  const char *who = arena_printf(m->arena, "kernel `%s` holds", k->name),
             *why = arena_printf(m->arena, "these are more than %lld %s",
                                 (long long)m->target.listed, what);
  listed_refuse(m, k, &k->ops.at[f->op], f->mask, who, why);
}

/* Options of a stack that differ by layer: a list of numbers, or of masks, one for each.

   Numbers become a value without dims of which each layer sees its own. Where an operator needs a
   constant (the base of rope), or a mask, the different ones are told apart by such a number: the
   value is computed for each of the few different ones, and each layer chooses (RoundChoice). */
#include "sema_mask.h"
#include <string.h>

static bool same_mask(const Mask *a, const Mask *b) {
  if (a == b) return true;
  bool plain = !a->arg && !b->arg && !a->items && !b->items && !a->tensor && !b->tensor;
  if (!plain || a->kind != b->kind || a->number != b->number || a->table != b->table) return false;
  if (a->layout.n != b->layout.n || !dims_same(&a->layout, &b->layout)) return false;
  return (!a->a || same_mask(a->a, b->a)) && (!a->b || same_mask(a->b, b->b));
}

static bool same_item(const Val *a, const Val *b) {
  return a->kind == VAL_MASK ? same_mask(a->mask, b->mask) : a->number == b->number;
}

/* Which layers have the item. */
static Val chosen_by(Eval *e, const Val *list, const Val *item) {
  Val is = val_tensor(VAL_BOOL, (Dims){0}), *number = ARENA_ARRAY(e->arena, Val, list->nitems + 1);
  for (int i = 0; i < list->nitems; i++) number[i] = val_number(same_item(item, &list->items[i]));
  is.rounds = list->rounds, is.items = number, is.nitems = list->nitems;
  return is;
}

RoundChoice rounds_choice(Eval *e, const Val *list) {
  Val *item = ARENA_ARRAY(e->arena, Val, list->nitems + 1),
      *has = ARENA_ARRAY(e->arena, Val, list->nitems + 1);
  RoundChoice choice = {.item = item, .has = has};
  for (int i = 0; i < list->nitems; i++) {
    int k = 0;
    while (k < choice.n && !same_item(&item[k], &list->items[i])) k++;
    if (k < choice.n) continue;
    item[k] = list->items[i], has[k] = chosen_by(e, list, &item[k]), choice.n++;
  }
  return choice;
}

/* (has & mask) | (has & mask) | .. */
static Val masks_by_layer(Eval *e, const Val *list, Span at) {
  RoundChoice choice = rounds_choice(e, list);
  Val any = choice.item[0];
  for (int i = 0; i < choice.n && choice.n > 1; i++) {
    Val own = mask_combine(e, AST_AND, &choice.item[i], &choice.has[i], at);
    any = i ? mask_combine(e, AST_OR, &any, &own, at) : own;
  }
  return any;
}

/* Whether all items are numbers, or all masks, so that layers can have one each. */
static bool by_layer(const Val *list) {
  if (list->kind != VAL_LIST || !list->items || !list->nitems) return false;
  for (int i = 0; i < list->nitems; i++)
    if (list->items[i].kind != list->items[0].kind) return false;
  return list->items[0].kind == VAL_NUMBER || list->items[0].kind == VAL_MASK;
}

/* repeat([a, b]): a list that is as long as the stack has layers. */
Val op_repeat(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  Val list = call->arg[0];
  if (by_layer(&list)) return list.known = true, list;
  Report *r =
      eval_error(e, "E0402", call->expr[0]->span, "`repeat` takes a list of numbers or masks");
  diag_label(r, "is %s", kind_text(e->ctx, &list));
  diag_help(r, "for example `with theta = repeat([10000, 10000, 1000000])`");
  return val_poison();
}

static void fill_layers(Eval *e, Val *list, int64_t rounds) {
  Val *items = ARENA_ARRAY(e->arena, Val, rounds);
  for (int64_t i = 0; i < rounds; i++) items[i] = list->items[i % list->nitems];
  list->items = items, list->nitems = (int)rounds;
}

enum { MOST_BY_LAYER = 1 << 16 };

void rounds_option(Eval *e, Val *val, Str name, Span at, const Stack *stack) {
  if (!by_layer(val)) return;
  int64_t rounds = eval_size(e, stack->dim);
  if (rounds > MOST_BY_LAYER) {
    Report *r = eval_error(e, "E0313", at, "a list of %lld elements", (long long)rounds);
    diag_label(r, "at most %d layers can have values of their own", MOST_BY_LAYER);
    *val = val_poison();
    return;
  }
  if (rounds > 0 && val->known) fill_layers(e, val, rounds);
  if (rounds > 0 && rounds != val->nitems) {
    Report *r = eval_error(e, "E0307", at, "`%s` has %d values for the %lld layers of `%s`", name,
                           val->nitems, (long long)rounds, stack->name);
    diag_label(r, "must have one value for each layer");
  }
  Val v = val_tensor(VAL_FLOAT, (Dims){0});
  v.rounds = stack, v.items = val->items, v.nitems = val->nitems;
  *val = val->items[0].kind == VAL_MASK ? masks_by_layer(e, &v, at) : v;
}

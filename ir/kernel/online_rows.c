/* Sums that a row kernel can find in one walk: see online_rows.h. The forms are those of a softmax
   or a cross-entropy as `grad` and `pad` make them; any other sum that needs the largest element of
   a row leaves the kernel to a walk per level. */
#include "online_rows.h"
#include "ir/support/num.h"
#include <math.h>

typedef struct OnlineSearch {
  const Fn *k;
  const Reductions *r;
  const int *level;
  Str dim; /* of the row */
  OnlineRows *out;
} OnlineSearch;

static const Op *def_of(const OnlineSearch *search, ValueId v, OpCode code) {
  const Op *op = value_def(search->k, v);
  return op && op->code == code ? op : NULL;
}

static bool is_const(const OnlineSearch *search, ValueId v, double number) {
  const Op *op = value_def(search->k, v);
  if (op && op->code == OP_expand) op = value_def(search->k, op->in[0]);
  return op && op->code == OP_const && attr_float(&op->attrs, ATTR_value, 0) == number;
}

/* ---- positions ---- */

static bool is_position(const OnlineSearch *search, ValueId v) {
  const Op *op = def_of(search, v, OP_iota);
  return op && type_find(value_type(search->k, v), search->dim) >= 0;
}

/* A whole number of the row that v is at every place of it; NO_VALUE: it is none. */
static ValueId of_row(const OnlineSearch *search, ValueId v) {
  const Op *expand = def_of(search, v, OP_expand);
  if (expand) v = expand->in[0];
  const Type *t = value_type(search->k, v);
  bool fits = elem_class(t->elem) == CLASS_INT && type_find(t, search->dim) < 0;
  return fits && !search->level[v] ? v : NO_VALUE;
}

static ValueId place_of(const OnlineSearch *search, const Op *equal) {
  for (int i = 0; i < 2; i++)
    if (is_position(search, equal->in[i])) return of_row(search, equal->in[1 - i]);
  return NO_VALUE;
}

static void find_conditions(OnlineSearch *search) {
  OnlineRows *out = search->out;
  EACH_OP (search->k, op) {
    if (op->code != OP_lt && op->code != OP_eq) continue;
    const Op *bound = op->code == OP_lt ? def_of(search, op->in[1], OP_const) : NULL;
    if (bound && is_position(search, op->in[0]) && out->nbelow < MAX_RESULTS)
      out->below[out->nbelow++] =
          (OnlinePlace){op->out, NO_VALUE, (int64_t)ceil(attr_float(&bound->attrs, ATTR_value, 0))};
    ValueId place = op->code == OP_eq ? place_of(search, op) : NO_VALUE;
    if (place != NO_VALUE && out->nplaces < MAX_RESULTS)
      out->place[out->nplaces++] = (OnlinePlace){op->out, place, 0};
  }
}

/* ---- sums ---- */

static const Op *reduction(const OnlineSearch *search, int i) {
  return &search->k->ops.at[search->r->op[i]];
}

static bool is_pick(OnlineSearch *search, int i) {
  OnlineRows *out = search->out;
  const Op *where = def_of(search, reduction(search, i)->in[0], OP_where);
  if (reduction(search, i)->code != OP_sum || !where || !is_const(search, where->in[2], 0))
    return false;
  const Op *equal = def_of(search, where->in[0], OP_eq);
  ValueId place = equal ? place_of(search, equal) : NO_VALUE;
  if (place == NO_VALUE) return false;
  out->pick[out->npicks++] = (OnlinePick){i, where->in[1], place};
  return true;
}

static int reduction_of(const OnlineSearch *search, ValueId v) {
  for (int i = 0; i < search->r->n; i++)
    if (reduction(search, i)->out == v) return i;
  return -1;
}

static bool is_online(OnlineSearch *search, int i) {
  const Op *sum = reduction(search, i), *where = def_of(search, sum->in[0], OP_where);
  if (sum->code != OP_sum || value_type(search->k, sum->in[0])->elem != ELEM_f32) return false;
  if (where && !is_const(search, where->in[2], 0)) return false;
  const Op *power = def_of(search, where ? where->in[1] : sum->in[0], OP_exp);
  const Op *far = power ? def_of(search, power->in[0], OP_sub) : NULL;
  const Op *most = far ? def_of(search, far->in[1], OP_rmax) : NULL;
  if (!most || search->level[most->in[0]] || value_type(search->k, far->in[0])->elem != ELEM_f32)
    return false;
  const Op *inside = def_of(search, most->in[0], OP_where);
  bool masked = inside && where && inside->in[0] == where->in[0] && inside->in[1] == far->in[0] &&
                is_const(search, inside->in[2], -INFINITY);
  if (!masked && (where || most->in[0] != far->in[0])) return false;
  search->out->sum[search->out->nsums++] = (OnlineSum){i, reduction_of(search, most->out), masked};
  return true;
}

static bool find_sums(OnlineSearch *search) {
  for (int i = 0; i < search->r->n; i++) {
    if (op_family(reduction(search, i)->code) == FAMILY_SCAN) return false;
    if (search->level[reduction(search, i)->in[0]]) {
      if (!is_online(search, i)) return false;
    } else {
      is_pick(search, i);
    }
  }
  return search->out->nsums > 0;
}

/* ---- operands that are kept ---- */

/* Read by element-wise ops and reductions alone, and so at the place of the row that is walked. */
static bool stays_in_place(const OnlineSearch *search, ValueId v) {
  EACH_OP (search->k, op)
    for (uint32_t i = 0; i < op->nin; i++)
      if (op->in[i] == v && op_family(op->code) != FAMILY_ELEM &&
          op_family(op->code) != FAMILY_REDUCE)
        return false;
  return true;
}

static bool reads(const OnlineSearch *search, ValueId v, ValueId arg, bool *seen) {
  const Op *op = value_def(search->k, v);
  if (v == arg) return true;
  if (!op || seen[v]) return false;
  seen[v] = true;
  if (op_family(op->code) == FAMILY_REDUCE) return false;
  for (uint32_t i = 0; i < op->nin; i++)
    if (reads(search, op->in[i], arg, seen)) return true;
  return false;
}

static void find_kept(OnlineSearch *search, Arena *arena) {
  OnlineRows *out = search->out;
  const Fn *k = search->k;
  for (uint32_t i = 0; i < k->args.n && out->nkept < MAX_RESULTS; i++) {
    ValueId arg = k->args.at[i];
    bool first = false, last = false, fits = type_find(value_type(k, arg), search->dim) >= 0;
    if (!fits || !value_is_float(k, arg) || !stays_in_place(search, arg)) continue;
    for (int j = 0; j < search->r->n; j++)
      first |= reads(search, reduction(search, j)->in[0], arg,
                     ARENA_ARRAY(arena, bool, k->values.n + 1));
    for (uint32_t j = 0; j < k->results.n; j++)
      if (reduction_along(k, search->r, k->results.at[j]))
        last |= reads(search, k->results.at[j], arg, ARENA_ARRAY(arena, bool, k->values.n + 1));
    if (first && last) out->kept[out->nkept++] = arg;
  }
}

bool rows_online(Arena *arena, const Fn *k, const Reductions *reductions, OnlineRows *online) {
  *online = (OnlineRows){0};
  if (reductions->over.n != 1 || reductions->ncolumns || reduction_packs(k, reductions))
    return false;
  OnlineSearch search = {k, reductions, reduction_levels(arena, k), reductions->over.axis[0].dim,
                         online};
  if (!find_sums(&search)) return false;
  find_conditions(&search), find_kept(&search, arena);
  return true;
}

bool rows_online_has(const OnlineRows *online, int i) {
  for (int j = 0; j < online->nsums; j++)
    if (online->sum[j].sum == i || online->sum[j].most == i) return true;
  for (int j = 0; j < online->npicks; j++)
    if (online->pick[j].sum == i) return true;
  return false;
}

int64_t rows_online_below(const OnlineRows *online, int64_t length) {
  for (int i = 0; i < online->nbelow; i++)
    if (online->below[i].below < length) length = online->below[i].below;
  return length < 0 ? 0 : length;
}

int64_t rows_online_bytes(const Fn *k, const OnlineRows *online, int64_t length) {
  int64_t bytes = 0;
  for (int i = 0; i < online->nkept; i++)
    bytes += round_up(length * elem_bytes(value_type(k, online->kept[i])->elem), 16);
  return bytes;
}
